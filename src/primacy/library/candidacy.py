"""One process's part in one election of the library: a lease machine, driven in the renewer's thread.

The machine decides everything about the lease (`election/lease/strategy.py`). This file is its workload and its ear:
the workload is a body in the user's program, which is told of a beginning and an end through a `Face` (asyncio in
`election.py`, threads in `blocking.py`), and which says when it is over.

A node of the library stands only while somebody waits for the role. So it begins paused, is resumed while a caller
waits, and is paused again before a body's end is reported; it watches the row all the time.

A body whose loop does not turn cannot be ended. The renewer goes on renewing for it for `stall_ms`, one and a half
holds by default: a loop that is blocked for less loses nothing; after that nothing is renewed any more, and one that
comes back after two holds finds its leadership lost, with time left to be gone before anybody else may start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from primacy.election.events import Code, Event, sentence
from primacy.election.inputs import (
    GuardLost,
    Pause,
    Resume,
    Shutdown,
    Started,
    StoreAnswered,
    StoreNews,
    WorkGone,
    WorkStarted,
)
from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.lease.view import ADDRESS
from primacy.election.messages import Release
from primacy.election.model import Kind, Leadership, Member, Membership, Role, Seat
from primacy.election.store import StoreRequest, node_of
from primacy.errors import StoreUnusable, UsageError
from primacy.library.hold import Hold
from primacy.library.renewer import Renewer
from primacy.library.timers import check_kill
from primacy.library.tokens import TokenFile
from primacy.node.ballot import MemoryDurable
from primacy.node.driver import Driver
from primacy.node.log import GRAVE, Level
from primacy.store import StorePort
from primacy.store.port import wrong_lease

log = logging.getLogger("primacy")

LEVELS = {Level.DEBUG: logging.DEBUG, Level.INFO: logging.INFO, Level.WARN: logging.WARNING, Level.ERROR: logging.ERROR}
QUIET = (Code.PAUSED, Code.STOPPING, Code.FOLLOWS, Code.LEASE_TAKEN, Code.NEW_NAME)
"""Said otherwise here, or not worth a line of the user's log."""
PASSING = ("its own work", "the store to prove", "the first look")
"""What a node waits for in the moment after a body's end, before its row is released."""
NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@-]{0,119}")
NODE_CHARS_MAX = 100
SPAN_MS_MAX = 100 * 366 * 86_400_000


class Standing(NamedTuple):
    """How one process sees an election. For people: nothing may be decided by it but by a `Leadership`."""

    role: Role
    leader: str
    """The node that is believed to lead; empty for nobody."""
    token: int
    """The fencing token of that leadership as far as it is known; 0 for none."""
    waits_for: str
    """What this process waits for, in a sentence; empty if for nothing."""


@dataclass(slots=True)
class ElectionCounts:
    """What happened to one election in this process, for metrics."""

    won: int = 0
    lost: int = 0
    renewed: int = 0
    late_ms: int = 0
    """How long the user's event loop took to turn after the newest renewal. Near `stall_ms` the role is in danger."""
    late_max_ms: int = 0
    over_late: int = 0
    """Bodies that were over only after the end of their hold: another holder may have worked beside them."""
    over_late_max_ms: int = 0


class Face(Protocol):
    """Whoever stands for the user's program. Called in the renewer's thread; must return at once."""

    def began(self, hold: Hold) -> None:
        """The role is ours: claim it, or say that it is over."""
        ...

    def renewed(self, hold: Hold, at_ms: int) -> None:
        """Answered with `alive` as soon as the user's loop turns."""
        ...

    def lost(self, hold: Hold) -> None:
        """The body must end now."""
        ...

    def rival(self, node: str) -> None:
        """Another process changed the row: it held the lease, alive, since we look."""
        ...

    def changed(self, standing: Standing) -> None: ...

    def unusable(self, error: StoreUnusable) -> None:
        """The store never was of use to this process, and waiting does not help: who waits for the role hears it."""
        ...

    def closed(self) -> None:
        """Nothing more comes. The row is released, or the store was not to be reached in time."""
        ...


class Wishes(NamedTuple):
    """How this process takes part. A time of 0 means the default named there."""

    observer: bool = False
    """Watches, and never leads."""
    kill: bool = False
    rest_ms: int = 0
    """After a body's end this process lets the others go first for so long; default one hold."""
    stall_ms: int = 0
    """How long the lease is renewed for a loop that does not turn; default one and a half holds; below 0: for ever."""
    at_most_ms: int = 0
    """How long a body may run; default for ever."""
    at_least_ms: int = 0
    """How long the lease is kept from the beginning of a body, however soon that is over."""


class Candidacy:
    """A machine, its driver and its workload. What has no underscore may be called from any thread."""

    def __init__(self, renewer: Renewer, name: str, node: str, wishes: Wishes, face: Face) -> None:
        if wrong := wrong_lease(name) if isinstance(name, str) else f"a lease's name is a text, not {name!r:.40}":
            raise UsageError(wrong)
        self.renewer = renewer
        self.name = name
        self.node = node or own_name()
        if not isinstance(self.node, str) or not NODE.fullmatch(self.node):
            raise UsageError(f"a node's name has at most 120 letters, digits and . _ : @ -, not {self.node!r:.40}")
        self.counts = ElectionCounts()
        self.standing = Standing(Role.STARTING, "", 0, "")
        self._face = face
        self._wishes = wishes
        timing = renewer.timing
        self._stall_ms = wishes.stall_ms or timing.hold_ms * 3 // 2
        members = Membership.of([Member(self.node, Kind.OBSERVER)] if wishes.observer else [])
        tokens = None if renewer.state_dir is None else TokenFile(renewer.state_dir, renewer.table, name, self._learn)
        known = 0 if tokens is None else tokens.known()
        options = LeaseOptions(name, known, look_every_ms=timing.look_ms, rest_ms=wishes.rest_ms or timing.hold_ms)
        seat = Seat(self.node, secrets.randbits(63), members, Random(secrets.randbits(64)))
        self._machine = LeaseStrategy(seat, timing, options)
        self._port: StorePort | None = None
        self._driver = Driver(self._machine, renewer.clock, tokens or MemoryDurable(), self, self._tell, store=self)
        self._driver.stepped = self._stepped
        self._hold: Hold | None = None
        self._wanted = False
        self._said = ""
        self._undisturbed = 0
        """What the machine said of itself after the step before."""
        self._seen: tuple[str, int, int, bool] | None = None
        """The row as the newest answer showed it: holder, token, seq, released."""
        self._closing = False
        self._answered = False
        """The store has answered a request of this process."""
        self._limit: asyncio.TimerHandle | None = None
        self._free_ms = 0
        """Until when the lease of the newest body is kept."""
        self._stopped: Hold | None = None
        """The newest one that the machine has given up: there is nothing to keep."""
        self._kept: Hold | None = None
        """A body is over, and its lease is kept: the machine is told later that the work is gone."""
        self._leaves = False
        """The election's block was left meanwhile."""

    def __repr__(self) -> str:
        """What both faces show of themselves; the store's address, which may hold a password, is no part of it."""
        standing = self.standing
        led = f", led by {standing.leader}" if standing.leader else ""
        return f"<Election {self.name} of node {self.node}: {standing.role}{led}>"

    # --- from the user's side, in any thread --------------------------------------------------------------------------

    def open(self) -> None:
        """It begins to watch the row."""
        self.renewer.call(self._open)

    def stand(self, wanted: bool) -> None:
        """Somebody waits for the role, or nobody any more."""
        self.renewer.call(self._stand, wanted)

    def claimed(self, hold: Hold) -> None:
        """The body begins."""
        self.renewer.call(self._claimed, hold)

    def over(self, hold: Hold) -> None:
        """The body is over, or never began: the lease may be released, or is kept until its time has come."""
        if hold.end():
            self._free_ms = hold.began_ms + self._wishes.at_least_ms if hold.claimed and not hold.lost else 0
            self.renewer.now(self._over, hold)

    def kept_ms(self) -> int:
        """For how long the lease of a body that is over is still kept."""
        return max(0, self._free_ms - self.renewer.clock.now_ms())

    def alive(self, hold: Hold, sent_ms: int) -> None:
        """The user's loop turns. Called in it."""
        now_ms = self.renewer.clock.now_ms()
        hold.alive_ms = now_ms
        self.counts.late_ms = now_ms - sent_ms
        self.counts.late_max_ms = max(self.counts.late_max_ms, now_ms - sent_ms)

    def close(self) -> bool:
        """Hands over in order; `Face.closed` says when that is done. False: there is nobody who could."""
        return self.renewer.call(self._close)

    # --- in the renewer's thread: the machine's ports -----------------------------------------------------------------

    def ask(self, number: int, request: StoreRequest) -> None:
        assert self._port is not None
        self._port.ask(number, request)

    def start(self, leadership: Leadership, release: Release | None, covered: bool) -> None:  # noqa: ARG002
        self.counts.won += 1
        wishes, renewer = self._wishes, self.renewer
        preceding = self._machine.preceding_term
        self._hold = Hold(
            self.name, leadership, renewer.timing, renewer.clock, wishes.kill, wishes.at_most_ms, preceding
        )
        self._said = ""
        self._face.began(self._hold)

    def extend(self, leadership: Leadership) -> None:
        hold = self._hold
        if hold is None or hold.term != leadership.term:
            return
        self.counts.renewed += 1
        hold.extend(leadership)
        now_ms = self.renewer.clock.now_ms()
        stalled_ms = now_ms - hold.alive_ms
        if hold.ended:
            return  # its lease is kept, or about to be released
        if hold.is_outlasted():
            self._give_up(hold, hold.outlasted())
        elif hold.claimed and 0 < self._stall_ms < stalled_ms:
            self._give_up(hold, f"its event loop did not turn for {stalled_ms:,} ms")
        else:
            self._face.renewed(hold, now_ms)

    def stop(self, term: int, reason: str, planned: bool) -> None:
        hold = self._hold
        if hold is None or hold.term != term:
            return
        self._stopped = hold
        if hold is self._kept:
            log.warning(
                "%s: the lease of token %d was to be kept longer, and was lost: %s", self.name, hold.token, reason
            )
            self._free_ms = 0
            self._gone(hold)
            return
        hold.lose(reason)
        if not hold.claimed:  # and it cannot be claimed any more
            self.over(hold)
            return
        self.counts.lost += not planned
        self._face.lost(hold)
        self.renewer.later(max(0, hold.valid_until_ms - self.renewer.clock.now_ms()), self._still_there, hold)

    def release(self, term: int, successor: str) -> None:
        """The machine releases its row itself, as soon as the body is over: there is no guard that could."""

    # --- in the renewer's thread: what was asked for ------------------------------------------------------------------

    def _open(self) -> None:
        renewer = self.renewer
        self._port = renewer.store.port(
            self.name,
            lambda answered: renewer.now(self._heard, answered),
            lambda news: void(renewer.call(self._news, news)),
        )
        self._driver.give(Started(self.renewer.clock.wall_ms()))
        self._driver.give(Pause())

    def _stand(self, wanted: bool) -> None:
        if wanted != self._wanted:
            self._wanted, self._said = wanted, ""
            if self._kept is None:  # else when that is over
                self._driver.give(Resume() if wanted else Pause())

    def _claimed(self, hold: Hold) -> None:
        self._driver.give(WorkStarted(hold.term))
        if hold.at_most_ms:
            self._end_in_time(hold)

    def _end_in_time(self, hold: Hold) -> None:
        """`lock_at_most_ms`: from then on nothing is renewed, as on any loss. A loop has its own timer for the body."""
        if hold.ended or hold is not self._hold:
            return
        if hold.is_outlasted():
            self._give_up(hold, hold.outlasted())
        else:
            left_ms = hold.began_ms + hold.at_most_ms - self.renewer.clock.now_ms()
            self.renewer.later(max(1, left_ms), self._end_in_time, hold)

    def _give_up(self, hold: Hold, reason: str) -> None:
        hold.lose(reason)
        self._driver.give(GuardLost(hold.term))

    def _over(self, hold: Hold) -> None:
        late_ms = self.renewer.clock.now_ms() - hold.valid_until_ms
        if hold.claimed and late_ms > 0:
            self.counts.over_late += 1
            self.counts.over_late_max_ms = max(self.counts.over_late_max_ms, late_ms)
            log.warning(
                "%s: the body of token %d was over only %s ms after its hold had ended; another holder may have worked "
                "at the same time (call check() in blocking code, use on_loss='kill', or let the resource check the "
                "token)",
                self.name, hold.token, f"{late_ms:,}",
            )  # fmt: skip
        self._wanted = False
        if hold is self._stopped:  # perhaps a moment after its body was over
            self._free_ms = 0
        kept_ms = self.kept_ms()
        if not kept_ms:
            self._gone(hold)
            return
        self._kept = hold
        log.info("%s: the lease is kept for %s ms more (lock_at_least_ms)", self.name, f"{kept_ms:,}")
        self._let_go(hold)

    def _let_go(self, hold: Hold) -> None:
        """`lock_at_least_ms`: the lease is renewed until its time has come."""
        if hold is not self._kept:
            return  # it was lost
        if kept_ms := self.kept_ms():
            self.renewer.later(kept_ms, self._let_go, hold)
        else:
            self._gone(hold)

    def _gone(self, hold: Hold) -> None:
        """The machine hears that the work is over, and releases the row; who waits for the role again campaigns."""
        self._kept = None
        self._driver.give(WorkGone(hold.term))
        self._driver.give(Pause())
        if self._wanted:
            self._driver.give(Resume())
        if self._leaves:
            self._close()

    def _still_there(self, hold: Hold) -> None:
        if not hold.ended:
            log.error(
                "%s: the body of token %d still runs although its hold has ended: another holder may work, too",
                self.name, hold.token,
            )  # fmt: skip

    def _learn(self, token: int) -> None:
        self._machine.learn(token)

    def _heard(self, answered: StoreAnswered) -> None:
        if self._port is None:
            return
        answer, row = answered.answer, answered.answer.row
        if answer.final and not self._answered:
            self._face.unusable(StoreUnusable(answer.reason))
        if answer.ok:
            self._answered = True
            seen = ("", 0, 0, True) if row is None else (row.holder, row.token, row.seq, row.released)
            rival = row is not None and not row.is_placeholder and row.holder != self._machine.holder
            if row is not None and rival and self._seen not in (None, seen):
                self._face.rival(node_of(row.holder))
            self._seen = seen
        self._driver.give(answered)

    def _news(self, news: StoreNews) -> None:
        if self._port is not None:
            self._driver.give(news)

    def _close(self) -> None:
        if self._closing or self._port is None:
            self._face.closed()
            return
        if self._kept is not None:
            self._leaves = True
            return
        self._closing = True
        self._driver.give(Shutdown())
        self._limit = self.renewer.later(2 * self.renewer.limit_ms, self._leave)
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        """The machine wants to be woken for nothing any more: nothing of ours is left in the store."""
        if self._closing and self._machine.deadline_ms is None:
            self._leave()

    def _leave(self) -> None:
        port, self._port = self._port, None
        if port is None:
            return
        if self._limit is not None:
            self._limit.cancel()
        self._driver.close()
        port.close()
        self._face.closed()

    # --- in the renewer's thread: what people are told ----------------------------------------------------------------

    def _stepped(self) -> None:
        token, told = self._machine.undisturbed, self._undisturbed
        self._undisturbed = token
        if token and token == told:
            return  # as after nearly every step of a holder
        now_ms = self.renewer.clock.now_ms()
        view = self._machine.view(now_ms)
        waits_for = view.waits_for.removesuffix(ADDRESS) if self._wanted else ""
        standing = Standing(view.role, view.leader, view.token or (view.term if view.leader else 0), waits_for)
        if standing[:3] != self.standing[:3]:
            self.standing = standing
            self._face.changed(standing)
        else:
            self.standing = standing
        self._say_why(waits_for)
        self._leave_if_done()

    def _say_why(self, waits_for: str) -> None:
        """One line while it waits: for whom, and how long at most. Another one only for another reason.

        What a store says, in brackets, may be another thing at each try, and the event has told the first of them.
        """
        if not waits_for or waits_for.startswith(PASSING) or self._machine.role in (Role.LEADER, Role.STARTING):
            return
        gist = re.sub(r"\d+|\(.*\)", "", waits_for)
        if gist != self._said:
            self._said = gist
            log.info("%s: %s waits for %s", self.name, self.node, waits_for)

    def _tell(self, events: Sequence[Event]) -> None:
        for found in events:
            event = found
            if event.code in QUIET or (event.code is Code.STEP_DOWN and self._hold is not None and self._hold.ended):
                continue
            level = LEVELS[GRAVE.get(event.code, Level.INFO)]
            if event.code is Code.GUARD_LOST and self._hold is not None and self._hold.lost:
                event = event._replace(code=Code.RENEWAL_LATE, detail=self._hold.lost)
            log.log(level, "%s: %s", self.name, sentence(self.node, event))


def check_spans(**spans_ms: object) -> None:
    """Raises `UsageError` for what is no time, and for what no clock could count to."""
    for word, value in spans_ms.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UsageError(f"{word} is a time in whole milliseconds, not {value!r:.40}")
        if value > SPAN_MS_MAX:
            raise UsageError(f"{word} is at most {SPAN_MS_MAX:,} ms, which is a century: leave it out for no limit")


def check_bounds(lock_at_least_ms: int, lock_at_most_ms: int) -> None:
    """How long a lock is kept at least and at most; 0 for no bound."""
    check_spans(lock_at_least_ms=lock_at_least_ms, lock_at_most_ms=lock_at_most_ms)
    if 0 < lock_at_most_ms < lock_at_least_ms:
        raise UsageError(
            f"lock_at_least_ms = {lock_at_least_ms:,} is longer than lock_at_most_ms = {lock_at_most_ms:,}: "
            "lower the first, or raise the second"
        )


def check_options(on_loss: object, on_change: object) -> None:
    """The same for what both faces of the library take."""
    if on_loss not in ("cancel", "kill"):
        raise UsageError(f"on_loss is 'cancel' or 'kill', not {on_loss!r:.40}")
    check_kill(on_loss == "kill")
    if on_change is not None and not callable(on_change):
        raise UsageError(f"on_change is a function that is called with a Standing, not {on_change!r:.40}")


def own_name() -> str:
    """Host and process: what people look for when they read whom a process waits for."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:NODE_CHARS_MAX].lstrip(".-") or "node"
    return f"{host}:{os.getpid()}"


def void(_: object) -> None:
    """For a callback whose answer nobody needs."""


Change = Callable[[Standing], None]
