"""Each condition of each statement, taken out: the contract must notice, or it would not notice its absence either.

The statements stand as text in `sql_text.py`; a mutant is the same text without one `AND`. What catches it is the walk
beside the simulated store (`test_store_contract.py`), or a scene made for that condition.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers import servers_here
from tests.store_desk import Desk, Place, lied_to, place, row
from tests.test_store_contract import any_request, to_real

from primacy.election.store import Renew
from primacy.sim.store import SimStore
from primacy.store import perform, sql_text

COLUMN = r"(?:l\.)?(?:token|seq|members|server|holder|released)"
CONDITION = re.compile(
    rf"(?:{COLUMN} = (?:r\.\w+|:\w+|me\.server|0)|NOT l\.released|me\.server = (?:r\.server|:server)|:me = :server|"
    r"server = IDENTITY|IDENTITY = :server|json_extract\(value, '\$\[[1-4]\]'\) = :me)"
)
KINDS = [kind for kind in ("sqlite", *servers_here()) if kind != "etcd"]
TEXTS = {
    "sqlite": sql_text.sqlite("primacy_leases"),
    "postgresql": sql_text.postgresql("primacy_leases"),
    "mariadb": sql_text.mysql("primacy_leases", "IDENTITY"),
    "mysql": sql_text.mysql("primacy_leases", "IDENTITY"),
}
IDENTITY = {"mariadb": sql_text.MARIADB_IDENTITY, "mysql": sql_text.MYSQL_IDENTITY}
SEEN_BY_VALUE = {"'$[1]'": "holder", "'$[2]'": "token", "'$[3]'": "seq"}


def mutants(kind: str) -> Iterator[tuple[str, str]]:
    """(statement, condition that is taken out). The SET list is no condition."""
    for statement in ("take", "first", "renew", "release"):
        where = getattr(TEXTS[kind], statement).rpartition("WHERE" if kind != "sqlite" else "\nWHERE")[2]
        if statement == "renew" and kind == "sqlite":
            where = getattr(TEXTS[kind], statement).partition("\nWHERE")[2]
        for found in CONDITION.findall(where.partition("RETURNING")[0]):
            yield statement, found
        if kind == "sqlite" and statement in ("renew", "release"):
            yield from ((statement, place) for place in SEEN_BY_VALUE)


CASES = [(kind, *case) for kind in KINDS for case in mutants(kind)]


def without(text: str, condition: str) -> str:
    """The same statement with a condition that is always true in its place."""
    if condition in SEEN_BY_VALUE:  # compared with itself
        head, _, tail = text.partition("\nWHERE")
        column = f"primacy_leases.{SEEN_BY_VALUE[condition]}"
        return f"{head}\nWHERE{tail.replace(f'json_extract(value, {condition})', column, 1)}"
    head, found, tail = text.rpartition(condition)
    return f"{head}1 = 1{tail}" if found else text


def test_there_are_mutants_of_every_kind() -> None:
    for kind in KINDS:
        statements = {statement for statement, _ in mutants(kind)}
        assert statements >= {"take", "renew", "release"}, kind
    assert len(CASES) >= 9 * len(KINDS)


@pytest.mark.skipif("postgresql" not in KINDS, reason="PostgreSQL is not installed here")
def test_the_proof_taken_out_is_caught(tmp_path: Path) -> None:
    """Without it a watcher that believed a lie takes the row of a holder that is well."""
    with place("postgresql", tmp_path) as here:
        _, watcher, told = lied_to(here)
        store: Any = watcher.store
        proved = "AND l.proof = coalesce(CAST(%(proof)s AS text), l.proof)"
        assert proved in store.texts.take
        store.texts = store.texts._replace(take=store.texts.take.replace(proved, ""))
        assert watcher.take(seen=(10, 2), new=row("b#1", 11, 3), server=told.server).done


@pytest.mark.parametrize(("kind", "statement", "condition"), CASES)
def test_a_condition_taken_out_is_caught(kind: str, statement: str, condition: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as here:
        store: Any = here.open()
        desk = Desk(store)
        desk.look()
        before = getattr(store.texts, statement)
        spelled = condition.replace("IDENTITY", IDENTITY.get(kind, ""))
        spelled = spelled if kind == "sqlite" else sql_text.spelled(spelled, "%({})s")
        after = without(before, spelled)
        assert after != before, (before, spelled)
        store.texts = store.texts._replace(**{statement: after})
        found = _caught(desk, store)
        assert found is not None, f"nothing noticed that {condition!r} was missing"


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_mutation_nothing_is_caught(kind: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as here:
        desk = here.desk()
        assert _caught(desk, desk.store) is None


def _caught(desk: Desk, store: Any) -> str | None:
    """The first difference between the real store and the simulated one, over walks from many seeds."""
    real = desk.server()
    for seed in range(12):
        rng, sim = random.Random(seed), SimStore()
        for step in range(60):
            request = any_request(rng, sim)
            meant = to_real(request, {"sim": sim.server, "real": real})
            meant = meant._replace(name=f"{seed}-{meant.name}")
            expected, found = sim.perform(request), desk.ask(meant)
            wanted = None if expected.row is None else expected.row._replace(server=real)
            assert found.ok, f"a mutant must be a statement that runs: {found.reason}"
            if (found.done, found.row) != (expected.done, wanted):
                return f"seed {seed}, step {step}: {meant}"
    return _moved(desk, store)


def _moved(desk: Desk, store: Any) -> str | None:
    """A row that was written on another server, which no walk can make: its release does not count here (L4)."""
    name = "moved"
    assert desk.take(name).done
    table = "primacy_leases"
    store._execute(f"UPDATE {table} SET server = 'elsewhere' WHERE name = '{name}'", {})
    getattr(store, "_known", {}).clear()
    if desk.release(name).done:
        return "a release of a row that another server wrote"
    if not desk.renew(name).done:
        return "a holder moves along with a fail-over"
    return None


def test_L6_a_repeated_renewal_proves_nothing(tmp_path: Path) -> None:
    """The seq that it would have left stands there, but an earlier one left it: only its own proof counts."""
    for kind in ("sqlite", *servers_here()):
        with place(kind, tmp_path / kind if kind == "sqlite" else tmp_path) as here:
            _repeated(here)


def _repeated(here: Place) -> None:
    (Path(here.url.partition(":///")[2]).parent.mkdir(parents=True, exist_ok=True) if "sqlite" in here.url else None)
    one, two = here.desk(), here.desk()
    server = one.server()
    for name in ("a", "b"):
        assert one.take(name).done
    assert one.renew("a").done, "written; suppose that its answer was lost"
    answers = perform(two.store, [Renew(name, "a#1", 10, 1, server) for name in ("a", "b")])
    assert [answer.done for answer in answers] == [False, True], here.url
    assert row(seq=2, server=server) == answers[0].row == answers[1].row
