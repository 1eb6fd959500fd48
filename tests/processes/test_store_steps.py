"""Steps that change the genesis row, too, by many connections at once: every name counts, and nobody wins twice (L9).

Databases compare a row that somebody else changed meanwhile once more, but everything else as it was when the statement
began. So these steps are where a count could be wrong; a count that is wrong would make everybody slow, or a lost row
look like a fresh name.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from primacy.election.store import Genesis, Place, Prune, Renew, Settle, StoreAnswer
from tests.support.servers import kinds
from tests.support.store_harness import Harness, place, row
from tests.support.store_harness import Place as Where

pytestmark = pytest.mark.beside(order=330)

KINDS = [kind for kind in kinds() if kind != "memory"]
USERS = 6
SECONDS = 2.5
SECONDS_MOST = 60
"""On a busy machine: until each of them was done a few times."""
NAMES = [f"job{number}" for number in range(5)]
LOCKED_MS = 120_000
"""For an answer that waits for a lock which this process holds, and may hold for seconds if it stalls."""


def whole(answer: StoreAnswer) -> Genesis:
    assert answer.genesis is not None
    assert answer.genesis.names == answer.genesis.count, answer
    return answer.genesis


def at_once(here: Where, users: int, act: Callable[[int, Harness], None]) -> None:
    """Each in a thread of its own, on a connection of its own."""
    barrier, wrong = threading.Barrier(users), list[BaseException]()

    def live(number: int, harness: Harness) -> None:
        try:
            harness.look("nobody")
            barrier.wait(60)
            act(number, harness)
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            wrong.append(error)

    harnesses = [Harness(here.open()) for _ in range(users)]
    threads = [threading.Thread(target=live, args=pair) for pair in enumerate(harnesses)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


@pytest.mark.parametrize("kind", KINDS)
def test_L9_names_that_are_placed_at_once_are_all_counted(kind: str, tmp_path: Path) -> None:
    """Each has one name of its own, and one that all want. Who was not served asks again."""
    with place(kind, tmp_path) as here:
        first = here.harness()
        server, made = first.server(), Counter[str]()

        def act(number: int, harness: Harness) -> None:
            for turn in range(6):
                for name in (f"own{number}-{turn}", f"all-{turn}"):
                    answer = harness.ask(Place(name, server))
                    while answer.row is None:
                        answer = harness.ask(Place(name, server))
                    made[name] += answer.done

        at_once(here, USERS, act)
        assert all(made[f"own{number}-{turn}"] == 1 for number in range(USERS) for turn in range(6)), made
        assert all(made[f"all-{turn}"] == 1 for turn in range(6)), made
        assert whole(first.look(count=True)).names == 6 * USERS + 6


@pytest.mark.parametrize("kind", KINDS)
def test_L9_L10_whatever_is_done_at_once_is_counted_and_won_by_one(kind: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as here:
        first = here.harness()
        wins: dict[tuple[str, int], list[str]] = {}
        done = Counter[str]()
        lock = threading.Lock()

        def note(what: str, answer: StoreAnswer, name: str, token: int = 0, who: str = "") -> bool:
            assert answer.ok, answer
            with lock:
                done[what] += answer.done
                if token and answer.done:
                    wins.setdefault((name, token), []).append(who)
            return answer.done

        def enough() -> bool:
            return all(done[what] > 3 for what in ("insert", "place", "prune", "take", "renew"))

        def act(number: int, harness: Harness) -> None:
            rng, began = random.Random(number), time.monotonic()
            while time.monotonic() < began + SECONDS or (not enough() and time.monotonic() < began + SECONDS_MOST):
                name, who = rng.choice(NAMES), f"n{number}#1"
                seen = harness.look(name, count=True)
                assert seen.ok, seen
                assert seen.genesis is not None
                present, genesis = seen.row, seen.genesis
                kind_of = rng.random()
                if present is None and kind_of < 0.5:
                    token = genesis.floor + 1
                    note("insert", harness.take(name, row(who, token), seen), name, token, who)
                elif present is None:
                    note("place", harness.ask(Place(name, seen.server)), name)
                elif kind_of < 0.1:
                    note("settle", harness.ask(Settle(name, seen.server, genesis)), name)
                elif kind_of < 0.4:
                    note("prune", harness.ask(Prune(name, present, seen.server, genesis)), name)
                elif kind_of < 0.7:
                    token = max(present.token, genesis.floor) + 1
                    note("take", harness.take(name, row(who, token, present.seq + 1), seen), name, token, who)
                else:
                    renewal = Renew(name, present.holder, present.token, present.seq, seen.server)
                    if present.holder and note("renew", harness.ask(renewal), name):
                        with lock:
                            wins.setdefault((f"{name} {present.holder} {present.seq}", present.token), []).append(who)

        at_once(here, USERS, act)
        print(f"{kind}: {dict(done)}")
        assert enough(), done
        assert {key: who for key, who in wins.items() if len(who) > 1} == {}, "two won the same"
        after = first.look(count=True)
        genesis = whole(after)
        assert genesis.is_settled(after.server)
        assert genesis.names == sum(first.look(name).row is not None for name in NAMES)
        tokens = [token for name, token in wins if " " not in name]
        assert genesis.floor <= max(tokens)


def test_the_check_can_fail(tmp_path: Path) -> None:
    """A row that is made without being counted is noticed."""
    if "postgresql" not in KINDS:
        pytest.skip("PostgreSQL is not installed here")
    with place("postgresql", tmp_path) as here:
        harness = here.harness()
        assert harness.take().done
        store = harness.store
        store._execute("DELETE FROM primacy_leases WHERE name = 'job'", {})  # type: ignore[attr-defined]
        with pytest.raises(AssertionError):
            whole(harness.look(count=True))
        seen = harness.look(count=True)
        assert not harness.take(seen=seen).done, "a row that somebody removed is no fresh name"
        assert seen.genesis is not None
        assert harness.ask(Settle("job", seen.server, seen.genesis)).done
        assert harness.take().done


def test_L9_a_count_that_changed_meanwhile_settles_nothing(tmp_path: Path) -> None:
    """PostgreSQL: the count is of the moment at which the statement began. What came after has another version."""
    if "postgresql" not in KINDS:
        pytest.skip("PostgreSQL is not installed here")
    import psycopg

    with place("postgresql", tmp_path) as here:
        here.harness()
        harness, other = (Harness(here.open(limit_ms=LOCKED_MS)) for _ in range(2))
        seen = harness.look(count=True)
        assert seen.genesis is not None
        with psycopg.connect(here.url) as holds:  # the genesis row is locked: the step has begun, and waits
            holds.execute("SELECT * FROM primacy_leases WHERE name = ':genesis' FOR UPDATE")
            answers: list[StoreAnswer] = []
            genesis = seen.genesis
            ask = [
                threading.Thread(target=lambda: answers.append(harness.ask(Settle("job", seen.server, genesis)))),
                threading.Thread(target=lambda: answers.append(other.ask(Place("job", seen.server)))),
            ]
            for thread in ask:
                thread.start()
                time.sleep(0.3)
            holds.rollback()
        for thread in ask:
            thread.join()
        assert any(answer.done for answer in answers)
        whole(harness.look(count=True))
