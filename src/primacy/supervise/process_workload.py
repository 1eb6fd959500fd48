"""The workload of `primacy run`: a process, held by a guard.

The pure machine of the watchdog decides; here its orders become packets to the guard, and what the guard says becomes
its inputs. One guard serves one term (G4); a spare one is kept ready, which has no release and holds no lock. Every
order carries absolute moments, counted from s, the beginning of the hold (G1).

This is the port `Work` of the driver. It must never wait: what takes time is told later.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from primacy.election.messages import Release
from primacy.election.model import Leadership
from primacy.loop import timer
from primacy.node.clock import Clock
from primacy.node.lock import RunLock
from primacy.rate_limiter import RateLimiter
from primacy.settings.timing import Timing
from primacy.supervise import vocabulary
from primacy.supervise.child import Child, told
from primacy.supervise.guard_link import GuardLink
from primacy.supervise.lease_file import LeaseFile
from primacy.supervise.machine import Phase, Watchdog
from primacy.supervise.start_gate import StartGate
from primacy.supervise.vocabulary import State
from primacy.supervise.workload import WorkloadHost, WorkloadView
from primacy.transport import ReadyDatagram

LOCK_LOOK_S = 0.005
"""How often a held run lock is looked at: a dying tree is gone in milliseconds."""
LOCK_LOOK_S_MAX = 0.5
"""It did not die: no hurry any more."""
SPARE_AFTER_S = 0.5
"""After a start the next guard is made ready: not at once, for the command has just got to work."""
AGAIN_S = 2.0
"""Between two tries to have a spare guard."""
SAY_AGAIN_MS = 60_000
"""That none can be started is said so often."""
READY_S = 10.0
"""How long the first guard may take to be ready: an interpreter's start on a machine that is very busy."""
FAREWELL_S = 2.0
"""How long an idle guard may take to end before it is killed. It holds nothing."""


Ready = Callable[[Release], list[ReadyDatagram]]
"""Seals a release for every other node, for the guard to send."""
Rights = Callable[[Leadership], tuple[int, str] | None]
"""A lease in a store: the pipe to a process that can release it, for the guard to keep, and the words that make it.

None: there is no such process now, so that the others wait out the hold should the agent be killed.
"""


class Reserve:
    """How many guards the workloads of one process keep ready. One that finds no place starts its guard when it needs
    it, as one does whose spare guard was lost: a start then takes as long as that of an interpreter."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def take(self) -> bool:
        if self.taken >= self.most:
            return False
        self.taken += 1
        return True

    def give_back(self) -> None:
        self.taken -= 1


@dataclass(eq=False)
class ProcessWorkload:
    """One command under a guard."""

    election: str
    child: Child
    watchdog: Watchdog
    timing: Timing
    clock: Clock
    lock: RunLock
    lease: LeaseFile
    require: str
    host: WorkloadHost
    gate: StartGate
    ready: Ready = lambda _: []
    rights: Rights | None = None
    reserve: Reserve | None = None
    """None: a guard is always kept ready."""

    def __post_init__(self) -> None:
        self.gate.let_in, self.gate.tell, self.gate.note = self._begin, self.host.tell, self.host.note
        self._release: Release | None = None
        """Of the term whose work may run: in the guard's hands from its first start on (G4)."""
        self.guard: GuardLink | None = None
        self.spare: GuardLink | None = None
        self._has_place = False
        """In the reserve."""
        self.containment = ""
        self.containment_why = ""
        self.way = ""
        self._ready: asyncio.Event = asyncio.Event()
        self._empty: asyncio.Event | None = None
        """Set when no guard is left, once that is waited for."""
        self._timer = timer(self._wake)
        self._armed_ms: int | None = None
        """What it is set for."""
        self._look: asyncio.TimerHandle | None = None
        self._spare_timer: asyncio.TimerHandle | None = None
        self._said = RateLimiter(SAY_AGAIN_MS)
        self._closed = False
        self._waiting: deque[vocabulary.Given] = deque()
        self._busy = False

    # --- what the driver says -----------------------------------------------------------------------------------------

    def start(self, leadership: Leadership, release: Release | None, covered: bool) -> None:
        self._release = release
        self.gate.ask(leadership, covered)

    def _begin(self, leadership: Leadership) -> None:
        self._step(vocabulary.Begin(leadership))

    def extend(self, leadership: Leadership) -> None:
        """With every heartbeat, and nearly always of a command that runs, which has passed the gate."""
        if not self._busy and not self._waiting and self.watchdog.renewed(leadership):
            self._extend(leadership)
        elif self.gate.waits:
            self.gate.renew(leadership)
        else:
            self._step(vocabulary.Renew(leadership))

    def stop(self, term: int, reason: str, planned: bool) -> None:  # noqa: ARG002
        if self.gate.waits:
            self.gate.end(term)
            self.host.stepped()
        else:
            self._step(vocabulary.End(term, planned))

    def release(self, term: int, successor: str) -> None:
        """A lease in a store is released by the election itself, as soon as it is told that the work is gone.

        Its guard does so only if there is no agent any more.
        """
        if self.rights is None:
            self._step(vocabulary.LetGo(term, successor))

    # --- what the agent says ------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """A guard is ready, and has said how well it can hold a tree."""
        self._keep_spare(needed=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_S):
                await self._ready.wait()
        if self.spare is not None and not self._has_reserve():
            link, self.spare = self.spare, None
            self._send_away(link)

    def hurry(self) -> None:
        self._step(vocabulary.Hurry())

    @property
    def is_over(self) -> bool:
        """Nothing runs, and nothing is left to be confirmed."""
        return self.watchdog.phase is Phase.IDLE and not self.gate.waits

    @property
    def is_orphaned(self) -> bool:
        """The guard is lost and what it held may live: there is nobody left to be told anything."""
        return self.watchdog.phase is Phase.ORPHANED

    @property
    def state(self) -> State:
        """In the users' words."""
        return State.WAITING if self.gate.waits else self.watchdog.state

    @property
    def term(self) -> int:
        """Of the work that is there, or is waited with; 0 for none."""
        return self.watchdog.term or self.gate.gate.term

    def view(self) -> WorkloadView:
        dog = self.watchdog
        held = (self.containment, self.containment_why, self.way)
        return WorkloadView("process", self.state, dog.since_ms, dog.pid, dog.run, *held)

    def looked(self, leader: str, address: str) -> None:
        """Who leads elsewhere is no matter to a command that does not run."""

    def counters(self) -> Mapping[str, int]:
        return {}

    def watch_lock(self) -> None:
        """Look until the run lock is free, quickly at first."""
        if self._look is None:
            self._look_again(LOCK_LOOK_S)

    async def close(self) -> None:
        """Guards that hold nothing are sent away, and waited for. One that does ends its tree when we are gone."""
        self._closed = True
        self._leave_reserve()
        await self.gate.close()
        self._timer.end()
        for handle in (self._look, self._spare_timer):
            if handle is not None:
                handle.cancel()
        if not self.is_over:
            self.guard = None
        for link in (self.guard, self.spare):
            if link is not None:
                self._send_away(link)
        if self.guard is not None or self.spare is not None:
            self._empty = asyncio.Event()
            await self._empty.wait()
        self.lease.close()

    # --- one step -----------------------------------------------------------------------------------------------------

    def _step(self, given: vocabulary.Given) -> None:
        """One input after the other: what is said while an effect is performed comes after it."""
        self._waiting.append(given)
        if self._busy:
            return
        self._busy = True
        try:
            while self._waiting:
                for effect in self.watchdog.step(self.clock.now_ms(), self._waiting.popleft()):
                    self._perform(effect)
        finally:
            self._busy = False
        self._arm()
        if type(given) is not vocabulary.Renew:  # which changes nothing but the hold
            self.host.stepped()

    def _perform(self, effect: vocabulary.Effect) -> None:
        match effect:
            case vocabulary.OrderStart(run, leadership):
                self._order_start(run, leadership)
            case vocabulary.OrderExtend(leadership):
                self._extend(leadership)
            case vocabulary.OrderStop(kill_at_ms):
                self._send({"do": "stop", "signal": self.child.stop_signal, "kill_at": kill_at_ms})
            case vocabulary.OrderLetGo(successor):
                self._send({"do": "release", "datagrams": self._datagrams(successor)})
            case vocabulary.Dismiss():
                self.lease.remove()
                if self.guard is not None:
                    self._send_away(self.guard)
                else:  # none could be started, so that there is no end of one to wait for
                    self._step(vocabulary.GuardEnded())
            case vocabulary.WatchLock():
                self.lease.remove()
                self.watch_lock()
            case vocabulary.Tell(given):
                self.host.tell(given)
            case vocabulary.GiveUp(code):
                self.host.give_up(code)
            case vocabulary.Note():
                self.host.note(effect)
            case _:
                assert_never(effect)

    def _extend(self, leadership: Leadership) -> None:
        if self.guard is not None:
            self.guard.extend(*self._points(leadership))
        self.lease.follow(leadership, self.watchdog.run, self.timing.hold_ms)

    def _order_start(self, run: int, leadership: Leadership) -> None:
        if not self.lock.may_start:
            self._step(vocabulary.NotStarted(run, "the lock of this agent was removed"))
            return
        if self.guard is None:
            self._keep_spare(needed=True)
            self.guard, self.spare = self.spare, None
            self._leave_reserve()
        if self.guard is None:
            self._step(vocabulary.NotStarted(run, "no guard process could be started"))
            return
        self.lease.write(leadership, run)
        more = told(self.election, leadership.member, leadership, run, self.lease.path)
        order = {"do": "start", "run": run, **self.child.order(more)}
        order |= zip(("term_at", "kill_at", "deadman_at"), self._points(leadership), strict=True)
        right = self.rights(leadership) if self.rights is not None and run == 1 else None
        if right is not None:
            self.guard.send({**order, "words": right[1]}, right[0])
        else:
            self._send({**order, "datagrams": self._datagrams()})

    def _datagrams(self, successor: str = "") -> list[tuple[str, str, int]]:
        """The release, sealed for each other node, as the guard takes it."""
        if self._release is None or self._release.term != self.watchdog.term:
            return []
        sealed = self.ready(self._release._replace(successor=successor))
        return [(base64.b64encode(data).decode(), host, port) for data, host, port in sealed]

    def _points(self, leadership: Leadership) -> tuple[int, int, int]:
        """TERM, KILL and dead-man as absolute moments: s is where the hold began."""
        timing = self.timing
        s_ms = leadership.valid_until_ms - timing.hold_ms
        return s_ms + timing.term_at_ms, s_ms + timing.kill_at_ms, s_ms + timing.deadman_at_ms

    def _send(self, packet: dict[str, Any]) -> None:
        if self.guard is not None:
            self.guard.send(packet)

    # --- guards -------------------------------------------------------------------------------------------------------

    def _keep_spare(self, *, needed: bool = False) -> None:
        """If none can be started now (no memory, no processes left), it is tried again later, or when it is needed."""
        if self.spare is not None or self._closed or not (needed or self._has_reserve()):
            return
        try:
            self.spare = GuardLink(self._hear, self._ended)
        except OSError as error:
            sentence = f"no guard process could be started: {error.strerror}"
            if self._said.passes(self.clock.now_ms(), sentence):
                self.host.complain(sentence)
            self._spare_later(AGAIN_S)
            return
        self.spare.hello(self.lock.path, self.require)

    def _has_reserve(self) -> bool:
        """There is a place for a spare guard of this workload."""
        self._has_place = self._has_place or self.reserve is None or self.reserve.take()
        return self._has_place

    def _leave_reserve(self) -> None:
        """Its spare guard is one at work now, or the workload is over."""
        if self._has_place and self.reserve is not None:
            self.reserve.give_back()
        self._has_place = False

    def _spare_later(self, after_s: float) -> None:
        """One look at a time: each try that fails asks for the next one."""
        if self._spare_timer is None and not self._closed:
            self._spare_timer = asyncio.get_running_loop().call_later(after_s, self._look_for_spare)

    def _look_for_spare(self) -> None:
        self._spare_timer = None
        self._keep_spare()

    def _send_away(self, link: GuardLink) -> None:
        """It holds nothing, so that it may be killed if it does not end by itself."""
        link.send({"do": "bye"})
        asyncio.get_running_loop().call_later(FAREWELL_S, link.kill)

    def _hear(self, link: GuardLink, said: dict[str, Any]) -> None:
        match said:
            case {"is": "ready"}:
                self.containment, self.containment_why, self.way = link.containment, link.why, link.way
                self._ready.set()
            case {"is": "error", "why": why}:
                self.host.complain(f"the guard says: {why}")
                self._ready.set()
            case _ if link is self.guard:
                self._hear_own(said)

    def _hear_own(self, said: dict[str, Any]) -> None:
        match said:
            case {"is": "running", "run": run, "pid": pid}:
                self._step(vocabulary.Ran(run, pid))
                self._spare_later(SPARE_AFTER_S)
            case {"is": "failed", "run": run, "why": why}:
                self._step(vocabulary.NotStarted(run, why))
            case {"is": "locked"}:
                self._step(vocabulary.Locked(said.get("by") or 0))
            case {"is": "exited", "run": run}:
                self._step(vocabulary.Exited(run, exit_code(said.get("code"), said.get("signal"))))
            case {"is": "gone", "run": run}:
                self._step(vocabulary.Gone(run, bool(said.get("released"))))

    def _ended(self, link: GuardLink) -> None:
        if link is self.spare:
            self.spare = None
            self._ready.set()
            self._spare_later(AGAIN_S)
        elif link is self.guard:
            self.guard = None
            self._step(vocabulary.GuardEnded())
        if self._empty is not None and self.guard is None and self.spare is None:
            self._empty.set()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """One timer, for the moment that the machine wants."""
        wanted_ms = None if self._closed else self.watchdog.deadline_ms
        if wanted_ms == self._armed_ms:
            return
        self._armed_ms = wanted_ms
        if wanted_ms is None:
            self._timer.clear()
        else:
            self._timer.set(max(0.0, (wanted_ms - self.clock.now_ms()) / 1_000))

    def _wake(self) -> None:
        self._armed_ms = None
        wanted_ms = self.watchdog.deadline_ms
        if wanted_ms is not None and self.clock.now_ms() < wanted_ms:
            self._arm()
        else:
            self._step(vocabulary.Woke())

    def _look_again(self, after_s: float) -> None:
        self._look = None
        if self._closed:
            return
        if self.lock.is_held():
            again_s = min(LOCK_LOOK_S_MAX, after_s * 1.2)
            if after_s < LOCK_LOOK_S_MAX == again_s:
                self.host.complain("waits for the run lock: something of an earlier start still lives and holds it")
            self._look = asyncio.get_running_loop().call_later(after_s, self._look_again, again_s)
        else:
            self._step(vocabulary.LockFree())


def exit_code(code: int | None, signal: int | None) -> int:
    """As a shell says it."""
    return 128 + signal if signal is not None else code if code is not None else 1
