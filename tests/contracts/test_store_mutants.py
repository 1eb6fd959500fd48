"""Each condition of each statement, taken out: the contract must notice, or it would not notice its absence either.

The statements stand as text in `sql_text.py`; a mutant is the same text with one condition that is always true. What
catches it is a test of the contract (`test_store_contract.py`), or a scene made for that condition: a row that somebody
changed by hand, or that was written on another server, which no request can make.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.election.store import Place, Prune, Renew, Settle, Take
from primacy.store import perform, sql_text
from tests.contracts import test_store_contract as contract
from tests.support.servers import servers_here
from tests.support.store_harness import Harness, place, row
from tests.support.store_harness import Place as Where

pytestmark = pytest.mark.beside(order=90)

KINDS = [kind for kind in ("postgresql", "mariadb", "mysql") if kind in servers_here()]
TABLE = "primacy_leases"
WHERE = re.compile(r"^\s*WHERE (.*?)(?=\n\s*(?:RETURNING|FOR UPDATE)|\Z)", re.DOTALL | re.MULTILINE)
OWN = "xid = pg_current_xact_id()"


def statements(kind: str) -> dict[str, str]:
    if kind == "postgresql":
        return sql_text.postgresql(TABLE)._asdict() | sql_text.postgresql_steps(TABLE)._asdict()
    return sql_text.mysql(TABLE, "IDENTITY")._asdict()


def mutants(kind: str) -> Iterator[tuple[str, str]]:
    """(statement, condition that is taken out). The SET list is no condition."""
    for statement in ("take", "renew", "release", "first", "place", "settle", "prune"):
        text = statements(kind).get(statement, "")
        found = [one for where in WHERE.findall(text) for one in re.split(r"\s+AND\s+", where)]
        yield from ((statement, one) for one in dict.fromkeys(found) if not _masked(one))


def _masked(condition: str) -> bool:
    """By name: all others would have to fit another row as well. By a name that stands there already: it is an error.
    By read-only: such a server refuses by itself whoever is no administrator."""
    by_name = re.match(r"(l\.)?name (=|IN) ", condition) or "(name, " in condition
    return bool(by_name) or condition.startswith("NOT EXISTS") or condition == sql_text.MYSQL_WRITABLE


CASES = [(kind, *case) for kind in KINDS for case in mutants(kind)]
COLUMNS = [
    (kind, statement, column)
    for kind in KINDS
    if kind != "postgresql"
    for statement in ("renew", "release")
    for column in ("holder", "token", "seq")
]
"""MySQL compares these as one tuple."""


def test_there_are_mutants_of_every_kind() -> None:
    for kind in KINDS:
        found = {statement for statement, _ in mutants(kind)}
        assert found >= {"take", "renew", "release"}, kind
    assert sum(kind == "postgresql" for kind, *_ in CASES) >= (45 if "postgresql" in KINDS else 0)
    assert sum(kind == "mariadb" for kind, *_ in CASES) >= (8 if "mariadb" in KINDS else 0)


@pytest.mark.parametrize(("kind", "statement", "condition"), CASES)
def test_a_condition_taken_out_is_caught(kind: str, statement: str, condition: str, tmp_path: Path) -> None:
    def change(store: Any, text: str) -> str:
        identity = _identity(store) if kind != "postgresql" else ""
        spelled = sql_text.spelled(condition.replace("IDENTITY", identity), "%({})s")
        return WHERE.sub(lambda where: where[0].replace(spelled, "1 = 1"), text)

    _caught(kind, statement, change, tmp_path)


@pytest.mark.parametrize(("kind", "statement", "column"), COLUMNS)
def test_a_column_of_a_tuple_taken_out_is_caught(kind: str, statement: str, column: str, tmp_path: Path) -> None:
    def change(_: Any, text: str) -> str:
        named = [name if name != column else "1" for name in ("name", "holder", "token", "seq")]
        return text.replace("(name, holder, token, seq) IN", f"({', '.join(named)}) IN")

    def given(store: Any) -> None:
        write = store._write
        number = ("name", "holder", "token", "seq").index(column)

        def written(text: str, values: dict[str, Any]) -> int:
            if "batch" in values:
                batch = [tuple(1 if i == number else one for i, one in enumerate(four)) for four in values["batch"]]
                values = values | {"batch": batch}
            count: int = write(text, values)
            return count

        store._write = written

    _caught(kind, statement, change, tmp_path, given)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_mutation_nothing_is_caught(kind: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as here:
        for statement in SCENES:
            assert _noticed(here, statement, lambda store: None) is None, statement


def test_a_placeholder_that_keeps_what_a_dump_brought_is_caught(tmp_path: Path) -> None:
    """The one condition that stands in a SET list."""
    if "postgresql" not in KINDS:
        pytest.skip("PostgreSQL is not installed here")
    with place("postgresql", tmp_path) as here:

        def mutate(store: Any) -> None:
            kept = store._steps.place.replace("ELSE '' END", "ELSE l.server END")
            assert kept != store._steps.place
            store._steps = store._steps._replace(place=kept)

        assert _noticed(here, "place", mutate) is not None


def _caught(
    kind: str,
    statement: str,
    change: Callable[[Any, str], str],
    folder: Path,
    given: Callable[[Any], None] = lambda store: None,
) -> None:
    def mutate(store: Any) -> None:
        where = "texts" if statement in store.texts._fields else "_steps"
        found = getattr(store, where)
        before = getattr(found, statement)
        after = change(store, before)
        assert after != before
        setattr(store, where, found._replace(**{statement: after}))
        given(store)

    with place(kind, folder) as here:
        assert _noticed(here, statement, mutate) is not None, "nothing noticed that it was missing"


def _noticed(here: Where, statement: str, mutate: Callable[[Any], None]) -> str | None:
    """What the first test or scene said that noticed something; each begins with an empty table."""
    from tests.support.servers import server

    for scene in SCENES[statement]:
        server("postgresql" if here.url.startswith("postgresql") else "mariadb").empty()
        store: Any = here.open()
        harness = Harness(store)
        store.make_table(new=True)
        mutate(store)
        try:
            scene(harness)
        except AssertionError as noticed:
            return f"{scene.__name__}: {noticed}"
        finally:
            store.close()
    return None


def _identity(store: Any) -> str:
    found = re.search(r"server = (CONVERT.*) AND CAST", store.texts.release, re.DOTALL)
    assert found is not None
    return found[1]


# --- scenes that no request can make ----------------------------------------------------------------------------------


def by_hand(harness: Harness, name: str, change: str, vouching: bool = True) -> None:
    """Somebody writes to the table; `vouching`: with everything that a write of ours leaves."""
    store: Any = harness.store
    own = f", {OWN}" if vouching and type(store).__name__ == "PostgresqlStore" else ""
    store._execute(f"UPDATE {TABLE} SET {change}{own} WHERE name = '{name}'", {})
    getattr(store, "_known", {}).clear()


def has_a_mark(harness: Harness) -> bool:
    return bool(harness.look().genesis.mark)  # type: ignore[union-attr]


def a_row_of_another_server_is_renewed_and_not_released(harness: Harness) -> None:
    assert harness.take().done
    by_hand(harness, "job", "server = 'elsewhere'")
    assert not harness.release().done, "its release does not count here (L4)"
    assert harness.renew().done, "a holder moves along with a fail-over"


def a_row_that_does_not_vouch_is_nobodys(harness: Harness) -> None:
    if not has_a_mark(harness):
        return
    assert harness.take().done
    by_hand(harness, "job", "hold_ms = hold_ms", vouching=False)
    found = harness.look().row
    assert found is not None
    assert not found.vouches
    assert not harness.renew().done
    assert not harness.release().done
    assert harness.take(new=row("b#1", 11, 2)).done, "who has waited takes it as it is"


def a_released_row_is_not_renewed(harness: Harness) -> None:
    assert harness.take().done
    assert harness.release().done
    assert not harness.renew().done


def only_a_table_that_is_settled_here_has_fresh_names(harness: Harness) -> None:
    server = harness.server()
    for change, vouching in (("server = 'elsewhere'", True), ("hold_ms = hold_ms + 1", True), ("seq = seq + 1", False)):
        if not vouching and not has_a_mark(harness):
            continue
        seen = harness.look(count=True)
        assert seen.genesis is not None
        assert harness.take("first", new=row(token=seen.genesis.floor + 5)).done
        assert harness.release("first", token=seen.genesis.floor + 5).done
        by_hand(harness, ":genesis", change, vouching)
        seen = harness.look("fresh", count=True)
        assert seen.genesis is not None
        assert not seen.genesis.is_settled(server)
        assert not harness.take("fresh", new=row(token=seen.genesis.floor + 9), seen=seen).done, change
        old = harness.look("first", count=True)
        assert old.row is not None
        assert old.genesis is not None
        assert not harness.ask(Prune("first", old.row, server, old.genesis)).done, change
        assert harness.ask(Settle("first", server, old.genesis)).done
        old = harness.look("first", count=True)
        assert old.row is not None
        assert old.genesis is not None
        assert harness.ask(Prune("first", old.row, server, old.genesis)).done


def a_placeholder_settles_nothing(harness: Harness) -> None:
    """A genesis row that came from a dump says settled; the write of a placeholder gives it a mark that vouches."""
    server = harness.server()
    assert not harness.ask(Place("other", "elsewhere")).done
    if not has_a_mark(harness):
        return
    by_hand(harness, ":genesis", "seq = seq", vouching=False)
    assert harness.ask(Place("job", server)).done
    after = harness.look(count=True)
    assert after.genesis is not None
    assert after.genesis.vouches
    assert not after.genesis.is_settled(server)


def a_fresh_name_is_above_the_floor(harness: Harness) -> None:
    by_hand(harness, ":genesis", "token = 10")
    assert not harness.take(new=row(token=10)).done
    assert harness.take(new=row(token=11)).done


def a_fresh_name_elsewhere(harness: Harness) -> None:
    """Settled where it is asked for, and not where it is answered."""
    by_hand(harness, ":genesis", "server = 'elsewhere'")
    seen = harness.look(count=True)
    assert not harness.ask(Take("job", None, "elsewhere", row(), seen.genesis)).done


def settled_elsewhere(harness: Harness) -> None:
    seen = harness.look(count=True)
    assert seen.genesis is not None
    assert not harness.ask(Settle("job", "elsewhere", seen.genesis)).done


SCENES: dict[str, list[Callable[[Harness], None]]] = {
    "take": [
        contract.test_L3_a_take_compares_everything_that_it_rests_on,
        contract.test_L3_every_write_compares_the_server,
    ],
    "renew": [
        contract.test_L2_a_renewal_compares_holder_token_seq_and_release,
        contract.test_L3_every_write_compares_the_server,
        a_row_that_does_not_vouch_is_nobodys,
        a_released_row_is_not_renewed,
    ],
    "release": [
        contract.test_L4_a_release_keeps_the_row_and_names_the_successor,
        a_row_of_another_server_is_renewed_and_not_released,
        a_row_that_does_not_vouch_is_nobodys,
    ],
    "first": [
        contract.test_L9_a_fresh_name_compares_the_genesis_row,
        contract.test_L3_every_write_compares_the_server,
        only_a_table_that_is_settled_here_has_fresh_names,
        a_fresh_name_is_above_the_floor,
        a_fresh_name_elsewhere,
    ],
    "place": [a_placeholder_settles_nothing],
    "settle": [contract.test_L9_settling_compares_version_mark_and_count, settled_elsewhere],
    "prune": [
        contract.test_L10_what_is_pruned_leaves_its_token_as_the_floor,
        only_a_table_that_is_settled_here_has_fresh_names,
    ],
}


def test_L6_a_repeated_renewal_proves_nothing(tmp_path: Path) -> None:
    """The seq that it would have left stands there, but an earlier one left it: only its own proof counts."""
    for kind in ("sqlite", *servers_here()):
        with place(kind, tmp_path / kind if kind == "sqlite" else tmp_path) as here:
            _repeated(here)


def _repeated(here: Where) -> None:
    (Path(here.url.partition(":///")[2]).parent.mkdir(parents=True, exist_ok=True) if "sqlite" in here.url else None)
    one, two = here.harness(), here.harness()
    server = one.server()
    for name in ("a", "b"):
        assert one.take(name).done
    assert one.renew("a").done, "written; suppose that its answer was lost"
    answers = perform(two.store, [Renew(name, "a#1", 10, 1, server) for name in ("a", "b")])
    assert [answer.done for answer in answers] == [False, True], here.url
    assert all(contract.plain(answer.row) == row(seq=2, server=server) for answer in answers)
