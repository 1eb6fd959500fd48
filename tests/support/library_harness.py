"""A store in memory with a released row, and elections on it, in the times of profile `lab` (hold 500 ms).

Only the tests that are about waiting wait.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

import primacy
from primacy.election.store import Look, ReleaseRow, Row, Take
from primacy.settings.timing import PROFILES, for_lease
from primacy.store.memory import MemoryStore, MemoryTable, shared
from tests.support.waiting import WITHIN_THE_TEST_S, wait_until_async

LAB = for_lease(PROFILES["lab"])
CANARY_HEARTBEAT_MS = (LAB.term_at_ms - LAB.heartbeat_ms) / 2
"""A process that stands still from a renewal that is due to TERM loses what it holds, as it must: this canary tells of
three quarters of that."""
HOLD_S = LAB.hold_ms / 1_000
WITHIN_S = 60


def fresh_url() -> str:
    """Never used before, not even by a test that has imported this module under another name."""
    return f"memory:{uuid.uuid4().hex}"


class Place:
    """A table in memory whose row `job` was released, and elections on it."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        self.url = fresh_url()
        self.table: MemoryTable = shared(self.url.partition(":")[2])
        self.store = MemoryStore(self.table)
        self.release("job")

    def release(self, name: str) -> None:
        row = Row("old#1", 5, 1, LAB.hold_ms, LAB.wait_ms, False)
        (seen,) = self.store.look([Look(name, count=True)])
        assert self.store.take([Take(name, seen.row, seen.server, row, seen.genesis)])[0].done
        assert self.store.release([ReleaseRow(name, "old#1", 5, 1)])[0].done

    def election(self, **options: Any) -> primacy.Election:
        return primacy.Election("job", store=self.url, profile="lab", **options)

    def row(self) -> Row:
        return self.table.rows["job"]


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place()
    yield found
    found.table.up = True


def run(body: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(WITHIN_S):
            return await body()

    return asyncio.run(bounded())


until = partial(wait_until_async, within_s=WITHIN_THE_TEST_S, every_s=0.005)
