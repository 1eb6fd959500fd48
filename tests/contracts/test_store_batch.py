"""An insert of a fresh name that is tried again (L9): never after the store went back, nor on an old decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from primacy.election.store import WAIT_MAX_MS, Genesis, Row, StoreAnswer, Take
from primacy.store.batch import FELL, perform

GENESIS = Genesis("server", names=2, version=9, count=2)
GROWN = Genesis("server", names=3, version=10, count=3)
REFUSED = StoreAnswer(ok=True, server="server", genesis=GROWN, position=100)
ROW = Row(token=5, holder="a", seq=1, hold_ms=3_000, wait_ms=3_061, released=False)
DONE = StoreAnswer(ok=True, done=True, row=ROW, server="server", position=101)
TAKE = Take("n", None, "server", ROW, GENESIS)


class Scripted:
    """A store whose answers to takes are given."""

    def __init__(self, *answers: StoreAnswer) -> None:
        self.answers = list(answers)
        self.takes: list[Take] = []

    def take(self, requests: Sequence[Take]) -> list[StoreAnswer]:
        self.takes.extend(requests)
        return [self.answers.pop(0)]

    def __getattr__(self, name: str) -> Any:
        return None


def tried(*answers: StoreAnswer, age_ms: int = 0) -> tuple[StoreAnswer, list[Take]]:
    store = Scripted(*answers)
    (answer,) = perform(store, [TAKE], lambda: True, lambda _: age_ms)  # type: ignore[arg-type]
    return answer, store.takes


def test_only_names_were_added_so_it_is_inserted_again() -> None:
    answer, takes = tried(REFUSED, DONE)
    assert answer == DONE
    assert [take.genesis for take in takes] == [GENESIS, GROWN]


def test_a_store_that_went_back_between_two_tries_is_told_as_one() -> None:
    """Although the position is not below what the decision knew."""
    answer, _ = tried(REFUSED, DONE._replace(position=96))
    assert answer.position == FELL


@pytest.mark.parametrize(("age_ms", "count"), [(0, 2), (WAIT_MAX_MS // 2 - 1, 2), (WAIT_MAX_MS // 2, 1), (60_000, 1)])
def test_an_old_decision_is_made_anew(age_ms: int, count: int) -> None:
    """In the time that a table takes to be settled, the name may have been taken with a larger token, and forgotten."""
    answer, takes = tried(REFUSED, DONE, age_ms=age_ms)
    assert len(takes) == count
    assert answer.done == (count == 2)
