"""The renewing thread: one connection, one thread, any number of leases.

A machine's `AskStore(number, request)` becomes `port.ask(number, request)`; the answer comes back as
`StoreAnswered(number, answer)` through the port's `deliver`, *in this thread*, or never. An event loop hands over
`lambda given: loop.call_soon_threadsafe(driver.give, given)`, and the same for `news`, which is called with a
`StoreNews`, if it wants to hear of changes between two looks. The clock that counts for a hold is read by the machine
before it asks, so that waiting in here only ever shortens a hold (L2).

News says that somebody wrote the row, and nothing else: it makes the machine look, and the store answers that look
like any other (L3).

Each port has one place: a newer request takes the place of one that was not begun, for a machine asks again only after
it has given up on what it asked before, or has a later renewal that is worth more. So nothing piles up behind a store
that hangs. Requests of many ports that wait together are performed together (L6).

It must never wait without a limit while somebody asks, nor let a fault of the store end it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from primacy.election.inputs import StoreAnswered, StoreNews
from primacy.election.store import Look, StoreAnswer, StoreRequest
from primacy.errors import PrimacyError
from primacy.node.clock import Clock, SystemClock
from primacy.store.batch import RARE, TAKES_MAX, perform
from primacy.store.port import LeaseStore, Notifies

log = logging.getLogger("primacy.store")

MANY_PORTS = 8
"""From this many leases on, requests are gathered for a moment, so that they share statements."""
TAKES_SHARE = 4
"""A round of takes may need this part of the limit, going by the one before."""
NEVER_MS = -1_000_000_000_000
CLOSE_S = 5.0
"""How long `close` waits for the last statement at most, beyond its limit."""


@dataclass(slots=True)
class StoreCounts:
    """What the thread did, for metrics. Written by the thread alone."""

    asked: int = 0
    performed: int = 0
    """Requests that were begun. The rest were overtaken by newer ones."""
    rounds: int = 0
    """Times that it went to the store; with many leases, fewer than requests."""
    failed: int = 0
    trip_ms: int = 0
    """How long the newest round took."""
    trip_max_ms: int = 0


RING = (1).to_bytes(8, sys.byteorder)
"""One more, for an eventfd, which takes eight bytes."""
WAKE_BYTES = 4_096


class StorePort:
    """The place of one lease. `ask` may be called from any thread and returns at once."""

    def __init__(
        self,
        thread: StoreThread,
        name: str,
        deliver: Callable[[StoreAnswered], None],
        news: Callable[[StoreNews], None] | None,
    ) -> None:
        self.name = name
        self.deliver = deliver
        self.news = news
        """Called, in the thread, when the store says that the row of this name was written."""
        self._thread = thread

    def ask(self, number: int, request: StoreRequest) -> None:
        """Answered later, or never."""
        self._thread._ask(self, number, request)

    def close(self) -> None:
        """Nothing more is delivered."""
        self._thread._forget(self)


class StoreThread:
    """Performs what its ports are asked, on a store that nobody else uses."""

    def __init__(
        self,
        store: LeaseStore,
        limit_ms: int,
        *,
        gather_ms: int = 0,
        clock: Clock | None = None,
        note: Callable[[str], None] = log.info,
    ) -> None:
        self.store = store
        self.limit_ms = limit_ms
        """What one round may take before what is left of it is answered with a failure."""
        self.gather_ms = gather_ms or max(1, limit_ms // 30)
        self.counts = StoreCounts()
        self._clock = clock or SystemClock()
        self._note = note
        self._said: set[str] = set()
        self._lock = threading.Lock()
        self._ports: dict[StorePort, None] = {}
        self._waiting: dict[StorePort, tuple[int, StoreRequest]] = {}
        self._asked_ms: dict[StorePort, int] = {}
        """When each of them was asked for."""
        self._left = False
        """The newest round could not do all that waited."""
        self._wake, self._bell = _waker()
        self._notifies = store if isinstance(store, Notifies) else None
        self._news_fd = -1
        self._all_ms = NEVER_MS
        """When all ports last looked because of news without a name. Not more often than a look per millisecond: where
        many leases share a file, every release of every one of them would make all others look."""
        self._takes_max = TAKES_MAX
        """What is written one by one in the next round."""
        self._closing = False
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None

    def port(
        self, name: str, deliver: Callable[[StoreAnswered], None], news: Callable[[StoreNews], None] | None = None
    ) -> StorePort:
        """A place for the lease of this name."""
        port = StorePort(self, name, deliver, news)
        with self._lock:
            self._ports[port] = None
        return port

    def close(self) -> None:
        """What waits is still performed; then the thread ends and the store is closed. Not to be called in it."""
        if os.getpid() != self._pid:
            return  # nothing of it is ours, and its lock may have been held at the fork
        with self._lock:
            if self._closing:
                return
            self._closing = True
            thread = self._thread
            self._ring()
        if thread is not None:
            thread.join(2 * self.limit_ms / 1_000 + CLOSE_S)
            if thread.is_alive():
                self._say(f"the store did not answer for {2 * self.limit_ms} ms and more; it is left to itself")
                return  # it is a daemon, and ends with the process
        else:
            self.store.close()
        with self._lock:
            for descriptor in {self._wake, self._bell}:
                os.close(descriptor)
            self._wake = -1

    # --- from other threads -------------------------------------------------------------------------------------------

    def _ask(self, port: StorePort, number: int, request: StoreRequest) -> None:
        if os.getpid() != self._pid:
            return  # the thread stayed behind in the parent, and the connection is the parent's
        with self._lock:
            if self._closing or port not in self._ports:
                return
            self.counts.asked += 1
            self._waiting[port] = (number, request)
            self._asked_ms[port] = self._clock.now_ms()
            if self._thread is None:
                self._thread = threading.Thread(target=self._live, name="primacy-store", daemon=True)
                self._thread.start()
            self._ring()

    def _forget(self, port: StorePort) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._ports.pop(port, None)
            self._asked_ms.pop(port, None)

    def _ring(self) -> None:
        """Under the lock, so that the descriptor is still ours."""
        if self._wake >= 0:
            with contextlib.suppress(BlockingIOError):  # a full pipe rings already
                os.write(self._bell, RING)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the thread that expects them
        while True:
            if not self._closing and not self._waiting:  # whoever sets either rings afterwards
                self._rest()
            self._gather()
            with self._lock:
                batch = self._share()
                closing = self._closing
            if batch:
                self._round(batch)
            elif closing:
                break
        try:
            self.store.close()
        except PrimacyError as error:
            self._say(str(error))

    def _share(self) -> dict[StorePort, tuple[int, StoreRequest]]:
        """What the next round does: everything that waits, but of takes a few. Called under the lock.

        A take is a statement of its own. If a thousand leases were taken in one round, the renewals of all others would
        wait behind it, be lost, and be taken again, and so on for ever. On a slow store a few are fewer: who took
        a row must hear of it before it gives up on the answer.
        """
        batch: dict[StorePort, tuple[int, StoreRequest]] = {}
        takes = 0
        for port, asked in self._waiting.items():
            is_rare = isinstance(asked[1], RARE)
            takes += is_rare
            if takes <= self._takes_max or not is_rare:
                batch[port] = asked
        for port in batch:
            del self._waiting[port]
        self._left = bool(self._waiting)
        return batch

    def _rest(self) -> None:
        """Until somebody asks, or the store has news."""
        poller = select.poll()
        for descriptor in (self._wake, self._news_fd):
            if descriptor >= 0:
                poller.register(descriptor, select.POLLIN)
        ready = dict(poller.poll())
        if ready.get(self._news_fd, 0) & select.POLLNVAL:
            self._news_fd = -1
        elif self._news_fd in ready:
            self._hear_news()
        if self._wake not in ready:
            return
        os.read(self._wake, WAKE_BYTES)

    def _gather(self) -> None:
        """A moment, for more requests to share the next statements: not for what a round left to the next one."""
        waiting, ports = len(self._waiting), len(self._ports)
        if ports >= MANY_PORTS and 0 < waiting < ports and not self._left and not self._closing:
            threading.Event().wait(self.gather_ms / 1_000)

    def _round(self, batch: dict[StorePort, tuple[int, StoreRequest]]) -> None:
        began_ms = self._clock.now_ms()
        until_ms = began_ms + 2 * self.limit_ms
        asked_ms = [self._asked_ms.pop(port, began_ms) for port in batch]
        answers = self._performed(
            [r for _, r in batch.values()],
            lambda: self._clock.now_ms() < until_ms,
            lambda place: self._clock.now_ms() - asked_ms[place],
        )
        took_ms = self._clock.now_ms() - began_ms
        self._count(len(batch), sum(not answer.ok for answer in answers), took_ms)
        takes = sum(isinstance(request, RARE) for _, request in batch.values())
        if takes:
            share_ms = self.limit_ms // TAKES_SHARE
            self._takes_max = max(1, min(2 * takes, TAKES_MAX, takes * share_ms // max(1, took_ms)))
        is_well = all(answer.ok for answer in answers)
        for (port, (number, _)), answer in zip(batch.items(), answers, strict=True):
            if port in self._ports:
                self._call(port.deliver, StoreAnswered(number, answer))
        if self._news_fd >= 0 and is_well:
            self._hear_news()  # what came along with an answer wakes nobody
        looked = any(isinstance(request, Look) and port.news is not None for port, (_, request) in batch.items())
        if looked and self._notifies is not None and any(answer.ok for answer in answers):
            self._listen(self._notifies)
        elif not is_well:
            self._news_fd = -1  # it may have gone with the connection, and its number to somebody else

    def _performed(
        self, requests: list[StoreRequest], in_time: Callable[[], bool], age_ms: Callable[[int], int]
    ) -> list[StoreAnswer]:
        try:
            return perform(self.store, requests, in_time, age_ms)
        except Exception:  # a bug of ours or of a driver: nothing is proved, and the next round may still work
            log.exception("a store failed in a way that it should not")
            reason = "a fault of primacy itself; the log has it"
            return [StoreAnswer(ok=False, reason=reason) for _ in requests]

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """One user who fails, such as one whose event loop is closed, must not cost the others their answers."""
        try:
            function(*arguments)
        except Exception:
            log.exception("an answer of the store could not be delivered")

    def _count(self, requests: int, failed: int, trip_ms: int) -> None:
        counts = self.counts
        counts.performed += requests
        counts.rounds += 1
        counts.failed += failed
        counts.trip_ms = trip_ms
        counts.trip_max_ms = max(counts.trip_max_ms, trip_ms)

    def _listen(self, store: Notifies) -> None:
        before = self._news_fd
        try:
            self._news_fd = store.listen()
            if before < 0 <= self._news_fd:
                self._hear_news()  # what came while it began to listen wakes nobody, either
        except PrimacyError as error:
            self._news_fd = -1
            self._say(f"no news from the store, so releases are noticed at the next look: {error}")
        except Exception:  # as in `_performed`: renewals go on without news
            self._news_fd = -1
            log.exception("a store failed to listen in a way that it should not")

    def _hear_news(self) -> None:
        assert self._notifies is not None
        try:
            found = self._notifies.news()
        except PrimacyError:
            self._news_fd = -1  # the next look makes a new connection, and listens again
            return
        except Exception:  # news from anybody must not end the thread that renews
            self._news_fd = -1
            log.exception("news of a store failed in a way that they should not")
            return
        news: dict[str, bool] = {}
        for name, renewed in found:
            news[name] = renewed and news.get(name, True)
        now_ms = self._clock.now_ms()
        if "" in news and now_ms - self._all_ms < len(self._ports):
            del news[""]
        elif "" in news:
            self._all_ms = now_ms
        for port in list(self._ports) if news else ():
            if port.news is not None and (port.name in news or "" in news):
                self._call(port.news, StoreNews(news.get(port.name, False) and "" not in news))

    def _say(self, sentence: str) -> None:
        """Once each, so that a store that keeps failing fills no log."""
        if sentence not in self._said and len(self._said) < 100:
            self._said.add(sentence)
            self._note(sentence)


def _waker() -> tuple[int, int]:
    """A descriptor that becomes readable, and one that makes it so: the same, where the kernel has it."""
    if hasattr(os, "eventfd"):
        made = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return made, made
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    return read, write
