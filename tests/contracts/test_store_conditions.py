"""The written conditions (`conditions.py`), one by one: memory, SQLite and etcd apply them as they stand.

Each condition is taken out of the source in turn. What must notice it is a test of the contract on the store in memory,
or one of the cases below, which no store in memory can show: rows that do not vouch, or of another server.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from primacy.election.store import Genesis, Place, Prune, ReleaseRow, Renew, Row, StoreRequest, Take
from primacy.store import conditions, memory
from primacy.store.memory import MemoryStore
from tests.contracts import test_store_contract as contract
from tests.support.store_harness import Harness, row

HERE = "here"
SETTLED = Genesis(settled=HERE, names=1, count=1, version=3)
Judge = Callable[[Row | None, Genesis, StoreRequest, str], "conditions.Change | None"]


def mine(**more: Any) -> Row:
    return row(server=HERE)._replace(**more)


def a_row_that_does_not_vouch_is_nobodys(after: Judge) -> None:
    doubtful = mine(vouches=False)
    assert after(doubtful, SETTLED, Renew("job", "a#1", 10, 1, HERE), HERE) is None
    assert after(doubtful, SETTLED, ReleaseRow("job", "a#1", 10, 1), HERE) is None
    assert after(mine(), SETTLED, Renew("job", "a#1", 10, 1, HERE), HERE) is not None
    assert after(mine(), SETTLED, ReleaseRow("job", "a#1", 10, 1), HERE) is not None
    assert after(doubtful, SETTLED, Take("job", doubtful, HERE, row(token=11)), HERE) is not None, "it was watched"


def a_row_of_another_server_is_renewed_and_not_released(after: Judge) -> None:
    elsewhere = mine(server="elsewhere")
    found = after(elsewhere, SETTLED, Renew("job", "a#1", 10, 1, HERE), HERE)
    assert found is not None
    assert found.row is not None
    assert found.row.server == HERE
    assert after(elsewhere, SETTLED, ReleaseRow("job", "a#1", 10, 1), HERE) is None


def a_fresh_name_needs_a_settled_table(after: Judge) -> None:
    def fresh(genesis: Genesis, server: str = HERE) -> bool:
        return after(None, genesis, Take("job", None, server, row(), genesis), server) is not None

    assert fresh(SETTLED)
    assert not fresh(SETTLED._replace(settled="elsewhere"))
    assert not fresh(SETTLED._replace(vouches=False))
    assert not fresh(SETTLED._replace(names=2))
    assert not fresh(SETTLED._replace(floor=10)), "its token is not above the floor"
    assert after(None, SETTLED, Take("job", None, HERE, row(), None), HERE) is None
    assert after(mine(), SETTLED, Take("job", None, HERE, row(token=11), SETTLED), HERE) is None


def pruning_needs_a_settled_table(after: Judge) -> None:
    def prune(genesis: Genesis) -> bool:
        return after(mine(), genesis, Prune("job", mine(), HERE, genesis), HERE) is not None

    assert prune(SETTLED)
    assert not prune(SETTLED._replace(settled="elsewhere"))
    assert not prune(SETTLED._replace(vouches=False))
    assert not prune(SETTLED._replace(count=2))
    assert after(None, SETTLED, Prune("job", mine(), HERE, SETTLED), HERE) is None
    assert after(mine(), SETTLED, Prune("job", mine(), HERE, SETTLED._replace(floor=1)), HERE) is None


def a_placeholder_settles_nothing(after: Judge) -> None:
    found = after(None, SETTLED._replace(vouches=False), Place("job", HERE), HERE)
    assert found is not None
    assert found.genesis is not None
    assert found.genesis.settled == "", "its next mark vouches, and what a dump says must not look settled by that"


def what_is_pruned_never_lowers_the_floor(after: Judge) -> None:
    high = SETTLED._replace(floor=500)
    found = after(mine(), high, Prune("job", mine(), HERE, high), HERE)
    assert found is not None
    assert found.genesis is not None
    assert found.genesis.floor == 500


def a_taken_row_is_not_released(after: Judge) -> None:
    odd = row(token=11)._replace(released=True, successor="c")
    found = after(mine(), SETTLED, Take("job", mine(), HERE, odd), HERE)
    assert found is not None
    assert found.row is not None
    assert (found.row.released, found.row.successor) == (False, "")


CASES: tuple[Callable[[Judge], None], ...] = (
    a_row_that_does_not_vouch_is_nobodys,
    a_row_of_another_server_is_renewed_and_not_released,
    a_fresh_name_needs_a_settled_table,
    pruning_needs_a_settled_table,
    a_placeholder_settles_nothing,
    what_is_pruned_never_lowers_the_floor,
    a_taken_row_is_not_released,
)
CONTRACT = (
    contract.test_L2_a_renewal_compares_holder_token_seq_and_release,
    contract.test_L3_a_take_compares_everything_that_it_rests_on,
    contract.test_L3_every_write_compares_the_server,
    contract.test_L3_a_placeholder_is_nobodys_and_is_made_once,
    contract.test_L4_a_release_keeps_the_row_and_names_the_successor,
    contract.test_L9_a_fresh_name_compares_the_genesis_row,
    contract.test_L9_settling_compares_version_mark_and_count,
    contract.test_L10_what_is_pruned_leaves_its_token_as_the_floor,
)
SAME_ROW = "(row.token, row.seq, row.proof, row.released, row.members, row.mark, row.vouches)"
COMPARED = ("token", "seq", "proof", "released", "members", "mark", "vouches")
OF_GENESIS = ("settled", "floor", "version", "mark")
SAME_GENESIS = "(genesis.settled, genesis.floor, genesis.version, genesis.mark)"
MUTANTS = (
    ("row is None or row.released or", "row is None or"),
    ("row.released or not row.vouches or", "row.released or"),
    ("not row.vouches or request.server != server or not", "not row.vouches or not"),
    ("not row.vouches or row.server != server", "row.server != server"),
    ("not row.vouches or row.server != server", "not row.vouches"),
    ("row is not None or request.server != server", "row is not None"),
    ("genesis if genesis.vouches else genesis._replace", "genesis if True else genesis._replace"),
    ("request.server != server or not _same_genesis", "not _same_genesis"),
    ("request.server != server or not _same_genesis(genesis, request.genesis)", "request.server != server"),
    ("genesis.count != request.genesis.count", "False"),
    ("row is None or request.server != server or not same_row", "row is None or not same_row"),
    ("request.server != server or not same_row(row, request.seen)", "request.server != server"),
    ("not _same_genesis(genesis, request.genesis) or not genesis", "not genesis"),
    ("(genesis, request.genesis) or not genesis.is_settled(server)", "(genesis, request.genesis)"),
    ("max(genesis.floor, row.token)", "row.token"),
    ("max(genesis.floor, row.token)", "genesis.floor"),
    ("take.server != server", "False"),
    ("row is not None and same_row(row, take.seen)", "row is not None"),
    ("if row is not None or take.genesis is None", "if take.genesis is None"),
    ("take.genesis is None or not _same_genesis(genesis, take.genesis)", "take.genesis is None"),
    ("genesis.is_settled(server) and take.row.token > genesis.floor", "take.row.token > genesis.floor"),
    ("genesis.is_settled(server) and take.row.token > genesis.floor", "genesis.is_settled(server)"),
    *((SAME_ROW, SAME_ROW.replace(f"row.{field}", f"seen.{field}")) for field in COMPARED),
    *(
        (SAME_GENESIS, SAME_GENESIS.replace(f"genesis.{field}", f"seen.{field}"))
        for field in ("settled", "floor", "version", "mark")
    ),
    ("(row.holder, row.token, row.seq)", "(request.holder, row.token, row.seq)"),
    ("(row.holder, row.token, row.seq)", "(row.holder, request.token, row.seq)"),
    ("(row.holder, row.token, row.seq)", "(row.holder, row.token, request.seq)"),
    ('released=False, successor=""', 'successor=""'),
)


def mutated(old: str, new: str) -> Judge:
    """The module with this text in place of that one."""
    source = inspect.getsource(conditions)
    result = source.replace(old, new, 1)
    assert result != source, old
    space: dict[str, Any] = {"__name__": "mutant"}
    exec(compile(result, "mutant", "exec"), space)
    judge: Judge = space["after"]
    return judge


@pytest.mark.parametrize("case", CASES)
def test_L1_a_condition(case: Callable[[Judge], None]) -> None:
    case(conditions.after)


@pytest.mark.parametrize(("old", "new"), MUTANTS)
def test_a_condition_taken_out_is_caught(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = mutated(old, new)
    monkeypatch.setattr(memory, "after", judge)
    for case in (*CASES, *CONTRACT):
        try:
            if case in CASES:
                case(judge)  # type: ignore[operator]
            else:
                case(Harness(MemoryStore()))  # type: ignore[operator]
        except (AssertionError, TypeError):
            return
    raise AssertionError("nothing noticed that it was missing")


def test_without_a_mutation_nothing_is_caught() -> None:
    for case in CONTRACT:
        case(Harness(MemoryStore()))
