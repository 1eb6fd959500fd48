"""What a node on a lease needs besides its strategy: the store, its thread, and which starts were here before (L4).

The store is asked in a thread of its own; answers come back into the event loop. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from primacy.agent.assemble import row_name
from primacy.agent.state import keep
from primacy.control import Heard
from primacy.control.summary import UNKNOWN, Summary
from primacy.election.inputs import Input, StoreAnswered
from primacy.election.lease.strategy import LeaseStrategy
from primacy.election.model import Leadership, Role
from primacy.election.store import StoreRequest, node_of
from primacy.errors import StoreUnusable
from primacy.node.folder import Folder
from primacy.node.lock import RunLock
from primacy.settings import store_url
from primacy.settings.schema import Settings
from primacy.settings.timing import Timing
from primacy.store import LeaseStore, StoreThread, limit_of_ms, open_store
from primacy.supervise.releasing import Releaser

HOLDERS = "holders"
"""In the state folder: under which names earlier starts of this node may stand in the row."""
HOLDERS_MAX = 16
"""Starts in a row that never led, before one is forgotten that did. Then the next one waits a hold, and no more."""
HOLDERS_BYTES_MAX = 16_384
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Access(NamedTuple):
    """How this process gets at a store: each of these has a connection."""

    thread: StoreThread
    releaser: Releaser


class Threads(Protocol):
    """Who asks the stores of this process."""

    def open(self, settings: Settings, timing: Timing, complain: Callable[[str], None]) -> Access:
        """Raises at once for an address, or a driver, that is wrong; whether the store answers is another matter."""
        ...

    async def close(self, access: Access) -> None:
        """What was asked last is still done."""
        ...


class OwnThreads:
    """One for each election: a process has one."""

    def open(self, settings: Settings, timing: Timing, complain: Callable[[str], None]) -> Access:
        return _access(settings, timing, complain)

    async def close(self, access: Access) -> None:
        await _close(access)


class SharedThreads:
    """Elections of one process on one store share its connections, and their renewals a statement (L6)."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._accesses: dict[tuple[str, str, int], Access] = {}
        self._users: dict[Access, int] = {}

    def open(self, settings: Settings, timing: Timing, complain: Callable[[str], None]) -> Access:  # noqa: ARG002
        key = (store_url(settings), settings.election.store.table, limit_of_ms(timing.hold_ms))
        access = self._accesses.get(key)
        if access is None:
            access = self._accesses[key] = _access(settings, timing, self._complain)
        self._users[access] = self._users.get(access, 0) + 1
        return access

    async def close(self, access: Access) -> None:
        self._users[access] -= 1
        if self._users[access]:
            return
        del self._users[access]
        self._accesses = {key: one for key, one in self._accesses.items() if one is not access}
        await _close(access)


def _access(settings: Settings, timing: Timing, complain: Callable[[str], None]) -> Access:
    loop = asyncio.get_running_loop()

    def note(sentence: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be gone
            loop.call_soon_threadsafe(complain, sentence)

    limit_ms = limit_of_ms(timing.hold_ms)
    releaser = Releaser(store_url(settings), settings.election.store.table, limit_ms, complain)
    return Access(StoreThread(opened(settings, timing), limit_ms, note=note), releaser)


async def _close(access: Access) -> None:
    await access.releaser.close()
    await asyncio.to_thread(access.thread.close)


class Stored:
    """The store of one node. The driver's port `Store`, and the workload's way to a release after our death."""

    def __init__(
        self, settings: Settings, threads: Threads, timing: Timing, holder: str, complain: Callable[[str], None]
    ) -> None:
        self.name, self.holder = row_name(settings), holder
        self.threads = threads
        self.access = threads.open(settings, timing, complain)
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._tell: Callable[[Input], None] = lambda _: None
        self._give_up: Callable[[StoreUnusable], None] = lambda _: None
        self._answered = False
        """The store has answered a request of this agent."""
        self.port = self.access.thread.port(self.name, self._deliver, self._deliver)

    def start(self, tell: Callable[[Input], None], give_up: Callable[[StoreUnusable], None], *, releases: bool) -> None:
        """`give_up`: the store is of no use before somebody changes something, and never was to this agent.

        `releases`: there is a guard, to whom the right to release after our death can be given.
        """
        self._tell, self._give_up = tell, give_up
        if releases:
            self.access.releaser.keep()

    def right(self, leadership: Leadership) -> tuple[int, str] | None:
        """To release this lease after our death: for the guard of this leadership."""
        return self.access.releaser.right(self.name, self.holder, leadership.token)

    def ask(self, number: int, request: StoreRequest) -> None:
        self.port.ask(number, request)

    async def close(self) -> None:
        """What was asked last is still done: it may be the release."""
        self.port.close()
        await self.threads.close(self.access)

    @property
    def counters(self) -> dict[str, int]:
        return {f"store_{name}": count for name, count in dataclasses.asdict(self.access.thread.counts).items()}

    def _deliver(self, given: Input) -> None:
        """In the store's thread (the loop may be gone: then nobody waits for it), or in that of the loop itself."""
        if threading.get_ident() == self._home:
            self._hear(given)
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._hear, given)

    def _hear(self, given: Input) -> None:
        """An agent whose store never was of use ends. Later, as after a changed password, it says so and goes on."""
        if isinstance(given, StoreAnswered):
            answer = given.answer
            self._answered = self._answered or answer.ok
            if answer.final and not self._answered:
                self._give_up(StoreUnusable(answer.reason))
                return
        self._tell(given)


def opened(settings: Settings, timing: Timing) -> LeaseStore:
    """Raises at once for an address, or a driver, that is wrong; whether the store answers is another matter."""
    return open_store(store_url(settings), table=settings.election.store.table, limit_ms=limit_of_ms(timing.hold_ms))


# --- who was here before (L4) -----------------------------------------------------------------------------------------


def earlier_holders(folder: Folder, lock: RunLock, holder: str) -> tuple[str, ...]:
    """Under which names earlier starts may stand in the row, all of whose work was held by this very run lock.

    Kept for this boot of the machine and this lock file only: a copy of the folder, on another machine or in another
    container, proves nothing about the work of the original. Our own name is noted before it could be in any row.
    """
    place = _place_of(lock)
    before = _noted(folder, place)
    noted = [*before, holder][-HOLDERS_MAX:]
    keep(folder, HOLDERS, json.dumps({**place, "holders": noted}).encode())
    return tuple(before)


def _place_of(lock: RunLock) -> dict[str, Any]:
    found = os.fstat(lock.handle)
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""  # then nothing is believed
    return {"boot": boot, "device": found.st_dev, "file": found.st_ino}


def _noted(folder: Folder, place: dict[str, Any]) -> list[str]:
    """None, if the file is torn or about another place: a hold is waited out then, and nothing else happens."""
    try:
        found = json.loads(folder.read(HOLDERS, HOLDERS_BYTES_MAX))
        known = {key: found[key] for key in place}
        return [str(name) for name in found["holders"]] if place["boot"] and known == place else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


# --- who holds it, as far as the row tells ----------------------------------------------------------------------------


def seen_in_store(strategy: LeaseStrategy, now_ms: int, kind: str) -> dict[str, Heard]:
    """The holder, if it is another node: that it holds, since when unchanged, how long at most. No more is known.

    `kind`: of our own workload; whoever holds the same lease has the same.
    """
    leader = strategy.view(now_ms).leader
    sight = strategy.seen
    if sight is None or sight.row is None or sight.row.released or leader in ("", strategy.seat.node):
        return {}
    row = sight.row
    summary = Summary(
        role=str(Role.LEADER),
        term=row.token,
        leader=leader,
        token=row.token,
        hold_left_ms=row.hold_ms,
        waits_for="",
        workload_kind=kind,
        workload_state=UNKNOWN,
        run_ms=-1,
        pid=0,
        containment="",
        health=UNKNOWN,
        version="",
        config="",
        doubled=(),
    )
    return {node_of(row.holder): Heard(summary, _boot_of(row.holder), sight.since_ms)}


def _boot_of(holder: str) -> int:
    try:
        return int(holder.rpartition("#")[2], 16)
    except ValueError:
        return 0
