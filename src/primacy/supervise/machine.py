"""When the guarded work is started, started again, stopped and given up. Pure.

The election says when work may begin and must end; the guard process does it. Between the two stands this machine, and
it answers the questions that neither of them can:

- The command ended by itself. Is it started again, here and in this term (G10), and when? The policy says whether
  (`always`, `on-failure`, `never`); the back-off says when: at once after a steady run, then doubling while it keeps
  failing quickly; and after a limit of quick failures in a row the node gives up, so that another one may try.
- It ended because it was told to. Then nothing is started again, whatever the policy says.
- A planned stop has its own time, `stop_ms`, during which the leadership is kept; after a loss there is only what lies
  between TERM and KILL of the hold (G9).
- The guard is lost: the term is closed (Q8), and the run lock decides when the tree is gone (G3, Q6).

A start happens only while the hold has not reached TERM (Q8): a guard that already told the work to stop on its own
account is never told to start another in the same term.

It knows no clock, process or socket: `step(now_ms, given)` answers with an ordered list of effects, `deadline_ms` says
when it wants to be woken. What the election must hear stands in `Tell`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, assert_never

from primacy.election.inputs import GuardLost, RunLock, WorkGone, WorkStarted
from primacy.election.model import Leadership
from primacy.settings.timing import Timing
from primacy.supervise.vocabulary import (
    Begin,
    Dismiss,
    Effect,
    End,
    Exited,
    Given,
    GiveUp,
    Gone,
    GuardEnded,
    Happened,
    Hurry,
    LetGo,
    Locked,
    LockFree,
    Note,
    NotStarted,
    OrderExtend,
    OrderLetGo,
    OrderStart,
    OrderStop,
    Ran,
    Renew,
    State,
    Tell,
    WatchLock,
    Woke,
)

BACK_OFF_MS = 100
"""Before the second start in a row after a quick failure; doubled each time."""
BACK_OFF_MS_MAX = 10_000
"""A command that cannot run costs one start in ten seconds, and is back within ten when its cause is mended."""
STEADY_MS = 10_000
"""A run that lasted this long was no failure to start: the count of quick failures begins anew."""
FAILURES_MAX = 20
"""Quick failures in a row until the node gives up: over two minutes of trying with the back-off above."""
STUCK_MS = 2_000
"""So long after KILL a tree is gone, unless the kernel cannot end it (a disk or network that hangs)."""
EXIT_GAVE_UP = 1
"""For a command that ended well every time, and far too soon."""


class Restart(StrEnum):
    """What follows when the command ends by itself."""

    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


class Policy(NamedTuple):
    """What the settings say about starts and stops."""

    restart: Restart = Restart.ALWAYS
    stop_ms: int = 3_000
    failures_max: int = FAILURES_MAX
    steady_ms: int = STEADY_MS


class Phase(StrEnum):
    """Where the work of a term stands."""

    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    CLEARING = "clearing"
    """The command ended by itself; its tree is not gone yet."""
    RESTING = "resting"
    """Between two runs of a term, or after the last one: nothing runs, the guard waits."""
    LOCKED = "locked"
    """Ordered, but the run lock is held."""
    ENDING = "ending"
    CLOSING = "closing"
    """Nothing runs and the term is over: only the guard is still to end, and with it the run lock to be free."""
    ORPHANED = "orphaned"
    """The guard is lost and the lock was not found free yet."""


SHOWN = {
    Phase.IDLE: State.STOPPED,
    Phase.STARTING: State.STARTING,
    Phase.RUNNING: State.RUNNING,
    Phase.CLEARING: State.STARTING,
    Phase.RESTING: State.WAITING,
    Phase.LOCKED: State.WAITING,
    Phase.ENDING: State.STOPPING,
    Phase.CLOSING: State.STOPPING,
    Phase.ORPHANED: State.STOPPING,
}


class Watchdog:
    """The work of one node, over all its terms."""

    def __init__(self, timing: Timing, policy: Policy) -> None:
        self.timing = timing
        self.policy = policy
        self.phase = Phase.IDLE
        self.deadline_ms: int | None = None
        self.leadership: Leadership | None = None
        self.run = 0
        """Counts the starts of a term: with the token it orders all work (G10)."""
        self.told_started = False
        """The election knows that something of this term ran."""
        self.pid = 0
        self.since_ms = 0
        self.failures = 0
        """Quick failures in a row, over all terms."""
        self.exit_code = 0
        self.kill_at_ms = 0
        self.stuck = False
        self.let_go = False
        self.released = False

    @property
    def state(self) -> State:
        """In the users' words."""
        return State.STUCK if self.stuck else SHOWN[self.phase]

    @property
    def term(self) -> int:
        return self.leadership.term if self.leadership is not None else 0

    def step(self, now_ms: int, given: Given) -> list[Effect]:
        """One input, one ordered list of effects."""
        match given:
            case Begin(leadership):
                return self._begin(leadership)
            case Renew(leadership):
                return self._renew(leadership)
            case End(term, planned):
                return self._end(now_ms, planned) if term == self.term else []
            case LetGo(term, successor):
                return self._let_go(successor) if term == self.term else []
            case Ran(run, pid):
                return self._ran(now_ms, pid) if run == self.run else []
            case NotStarted(run, why, code):
                return self._not_started(now_ms, why, code) if run == self.run else []
            case Locked(by):
                return self._locked(by)
            case Exited(run, code):
                return self._exited(code) if run == self.run else []
            case Gone(run, released):
                return self._gone(now_ms, released) if run == self.run else []
            case GuardEnded():
                return self._guard_ended()
            case LockFree():
                return self._lock_free(now_ms)
            case Woke():
                return self._woke(now_ms)
            case Hurry():
                return self._hurry(now_ms)
            case _:
                assert_never(given)

    # --- the election's words -----------------------------------------------------------------------------------------

    def _begin(self, leadership: Leadership) -> list[Effect]:
        assert self.phase is Phase.IDLE, f"a start while {self.phase}"
        self.leadership = leadership
        self.run = 0
        self.told_started = self.let_go = self.released = False
        return self._start_next(leadership)

    def _start_next(self, leadership: Leadership) -> list[Effect]:
        self.phase = Phase.STARTING
        self.deadline_ms = None
        self.run += 1
        return [OrderStart(self.run, leadership)]

    def renewed(self, leadership: Leadership) -> bool:
        """A short way for `Renew` while the command runs: the guard's points are to move, and nothing else is to do.

        False, with nothing changed, if it must be told by a step.
        """
        old = self.leadership
        if self.phase is not Phase.RUNNING or old is None or leadership.term != old.term:
            return False
        if leadership.valid_until_ms <= old.valid_until_ms:
            return False
        self.leadership = leadership
        return True

    def _renew(self, leadership: Leadership) -> list[Effect]:
        old = self.leadership
        if old is None or leadership.term != old.term or leadership.valid_until_ms <= old.valid_until_ms:
            return []
        self.leadership = leadership
        return [] if self.phase is Phase.CLOSING else [OrderExtend(leadership)]

    def _end(self, now_ms: int, planned: bool) -> list[Effect]:
        """A second one may only shorten the first: the role was lost while a planned stop went on."""
        kill_at_ms = now_ms + self.policy.stop_ms if planned else max(now_ms, self._point(self.timing.kill_at_ms))
        match self.phase:
            case Phase.STARTING | Phase.RUNNING | Phase.CLEARING:
                self.phase = Phase.ENDING
                self.kill_at_ms = kill_at_ms
                self.deadline_ms = kill_at_ms + STUCK_MS
                left_ms = kill_at_ms - now_ms
                return [Note(Happened.STOPPING, self.run, left_ms), OrderStop(kill_at_ms)]
            case Phase.ENDING if kill_at_ms < self.kill_at_ms:
                self.kill_at_ms = kill_at_ms
                self.deadline_ms = kill_at_ms + STUCK_MS
                return [OrderStop(kill_at_ms)]
            case Phase.RESTING | Phase.LOCKED:
                self._close(released=False)
                self.deadline_ms = now_ms  # after the word about the release, which follows in the same breath
        return []

    def _let_go(self, successor: str) -> list[Effect]:
        if self.phase in (Phase.IDLE, Phase.ORPHANED) or self.let_go:
            return []
        self.let_go = True
        return [OrderLetGo(successor)]

    # --- the guard's words --------------------------------------------------------------------------------------------

    def _ran(self, now_ms: int, pid: int) -> list[Effect]:
        self.pid = pid
        self.since_ms = now_ms
        effects: list[Effect] = [Note(Happened.RUNNING, self.run, pid)]
        if self.phase is Phase.STARTING:
            self.phase = Phase.RUNNING
        if not self.told_started:  # not with the first start: that may have failed
            self.told_started = True
            effects.append(Tell(WorkStarted(self.term)))
        return effects

    def _not_started(self, now_ms: int, why: str, code: int) -> list[Effect]:
        self.exit_code = code
        self.since_ms = now_ms
        return [Note(Happened.NOT_STARTED, self.run, code, why), *self._gone(now_ms, released=False)]

    def _locked(self, by: int) -> list[Effect]:
        if self.phase not in (Phase.STARTING, Phase.ENDING):
            return []
        effects: list[Effect] = [Note(Happened.LOCKED, self.run, by)]
        if self.phase is Phase.ENDING:
            self._close(released=False)  # nothing was started, and nothing will be
            return [*effects, Dismiss()]
        self.phase = Phase.LOCKED
        return [*effects, Tell(RunLock(True)), WatchLock()]

    def _exited(self, code: int) -> list[Effect]:
        self.exit_code = code
        self.pid = 0
        if self.phase in (Phase.STARTING, Phase.RUNNING):
            self.phase = Phase.CLEARING
        return [Note(Happened.EXITED, self.run, code)]

    def _gone(self, now_ms: int, released: bool) -> list[Effect]:
        self.pid = 0
        match self.phase:
            case Phase.ENDING:
                self._close(released)
                return [Note(Happened.GONE, self.run), Dismiss()]
            case Phase.STARTING | Phase.RUNNING | Phase.CLEARING:
                self.phase = Phase.RESTING
                return self._decide(now_ms)
        return []

    def _close(self, released: bool) -> None:
        """Nothing runs any more. The guard still holds the run lock, and frees it by ending."""
        self.phase = Phase.CLOSING
        self.released = released
        self.deadline_ms = None
        self.stuck = False

    def _forget(self, phase: Phase) -> None:
        self.phase = phase
        self.leadership = None
        self.deadline_ms = None
        self.pid = 0
        self.stuck = False

    def _decide(self, now_ms: int) -> list[Effect]:
        """The command ended by itself, and nothing is left of it."""
        self.deadline_ms = None
        if now_ms >= self._point(self.timing.term_at_ms):
            return []  # the guard ended it, for the hold ran out: the election will say so (Q8)
        if not self._starts_again():
            return [Note(Happened.DONE, self.run, self.exit_code), GiveUp(self.exit_code)]
        self.failures = 0 if now_ms - self.since_ms >= self.policy.steady_ms else self.failures + 1
        if self.policy.failures_max and self.failures > self.policy.failures_max:
            return [Note(Happened.GAVE_UP, self.run, self.failures), GiveUp(self.exit_code or EXIT_GAVE_UP)]
        wait_ms = back_off_ms(self.failures)
        self.deadline_ms = now_ms + wait_ms
        return [Note(Happened.RESTARTS, self.run + 1, wait_ms)]

    def _starts_again(self) -> bool:
        restart = self.policy.restart
        return restart is Restart.ALWAYS or (restart is Restart.ON_FAILURE and self.exit_code != 0)

    def _guard_ended(self) -> list[Effect]:
        """Nothing ran: the term's work is over. Something may have run: only the lock can tell (Q6)."""
        match self.phase:
            case Phase.IDLE | Phase.ORPHANED:
                return []
            case Phase.CLOSING:
                gone = WorkGone(self.term, self.released or self.let_go)
                self._forget(Phase.IDLE)
                return [Tell(gone)]
        effects: list[Effect] = [Note(Happened.GUARD_LOST, self.run), Tell(GuardLost(self.term)), WatchLock()]
        if self.phase is Phase.CLEARING and not self._starts_again():
            effects = [Note(Happened.DONE, self.run, self.exit_code), GiveUp(self.exit_code), *effects]
        self._forget(Phase.ORPHANED)
        return effects

    def _lock_free(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = [Note(Happened.LOCK_FREE), Tell(RunLock(False))]
        match self.phase:
            case Phase.ORPHANED:
                self._forget(Phase.IDLE)
            case Phase.LOCKED:
                self.phase = Phase.RESTING
                self.run -= 1  # that one never was
                self.deadline_ms = now_ms
        return effects

    # --- time, and impatience -----------------------------------------------------------------------------------------

    def _woke(self, now_ms: int) -> list[Effect]:
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return []
        self.deadline_ms = None
        match self.phase:
            case Phase.RESTING:
                assert self.leadership is not None
                if now_ms >= self._point(self.timing.term_at_ms):
                    return []
                return self._start_next(self.leadership)
            case Phase.CLOSING:
                return [Dismiss()]
            case Phase.ENDING if not self.stuck:
                self.stuck = True
                return [Note(Happened.STUCK, self.run, self.pid)]
        return []

    def _hurry(self, now_ms: int) -> list[Effect]:
        if self.phase is not Phase.ENDING or self.kill_at_ms <= now_ms:
            return []
        self.kill_at_ms = now_ms
        self.deadline_ms = now_ms + STUCK_MS
        return [OrderStop(now_ms)]

    def _point(self, after_ms: int) -> int:
        """A point of the hold on the local clock: s is where the hold began."""
        return self.leadership.valid_until_ms - self.timing.hold_ms + after_ms if self.leadership is not None else 0


def back_off_ms(failures: int) -> int:
    """How long to wait before the next start: not at all after a steady run, then doubling."""
    if failures <= 0:
        return 0
    return min(BACK_OFF_MS_MAX, BACK_OFF_MS << min(failures - 1, 30))
