"""What stands between an election that was won and the first start of its work (G8). Pure.

The election says "start" once its own conditions are met. In manual mode an operator must approve that node and that
term; where a fence command is given, it must end well, unless a release of a term whose work ran covers all
predecessors. First the approval, then the fence: a power switch is not thrown before somebody agreed. Meanwhile the
leadership is kept and renewed, for hours if need be, and nothing is handed to a guard (G4): the election is told that
the work waits on purpose (`WorkDeferred`), so that it does not resign as one that cannot start (Q6).

Nothing is remembered from one term to the next: an approval is for its term only, whatever happened to the node since.
When both are there, the hold is looked at once more; after TERM of it nothing starts, for the term is about to be
closed (Q8). A second start in the same term (the command crashed) does not come here again.

What the election is told stands last in every list: it may answer at once that the term is over, and that must find
the fence command, or the work, which it is to end.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, assert_never

from primacy.election.inputs import WorkDeferred, WorkGone
from primacy.election.model import Leadership
from primacy.settings.timing import Timing
from primacy.supervise.vocabulary import Happened, Note, Tell

AGAIN_MS = 1_000
"""After a fence command that failed; doubled each time."""
AGAIN_MS_MAX = 30_000
"""A switch that does not answer is asked twice a minute: it is back within half a minute once it is mended."""


class Rule(NamedTuple):
    """What the settings ask for before a start."""

    manual: bool = False
    fence: bool = False
    fence_ms: int = 30_000


class Ask(NamedTuple):
    """The election's conditions are met. `covered`: no fence command is needed."""

    leadership: Leadership
    covered: bool


class Renewed(NamedTuple):
    """The hold was proved anew."""

    leadership: Leadership


class Ended(NamedTuple):
    """The election wants no start in this term any more."""

    term: int


class Approved(NamedTuple):
    """An operator approves this term."""

    term: int
    by: str


class FenceEnded(NamedTuple):
    """The fence command of this number ended with this code, or could not be started: then `why` says it."""

    number: int
    code: int
    why: str = ""


class Woke(NamedTuple):
    """`deadline_ms` has passed."""


Given = Ask | Renewed | Ended | Approved | FenceEnded | Woke


class LetIn(NamedTuple):
    """The work may start now."""

    leadership: Leadership


class RunFence(NamedTuple):
    """Start the fence command."""

    number: int
    leadership: Leadership


class KillFence(NamedTuple):
    """End it, with all that it started."""


Effect = LetIn | RunFence | KillFence | Tell | Note


class Phase(StrEnum):
    """Where a start stands."""

    IDLE = "idle"
    """Nobody asked, or who asked was let in."""
    APPROVAL = "approval"
    FENCING = "fencing"
    RESTING = "resting"
    """Between two tries of the fence command."""
    LATE = "late"
    """All is there, but the hold has reached TERM: the election is about to say that it is over."""


class Gate:
    """One node's gate, over all its terms."""

    def __init__(self, timing: Timing, rule: Rule, node: str) -> None:
        self.timing = timing
        self.rule = rule
        self.node = node
        self.phase = Phase.IDLE
        self.deadline_ms: int | None = None
        self.leadership: Leadership | None = None
        self.covered = False
        self.tries = 0
        self.number = 0
        """Counts fence commands over all terms, so that the end of an old one is not taken for that of a new one."""

    @property
    def waits(self) -> bool:
        """Somebody asked, and nothing was started."""
        return self.phase is not Phase.IDLE

    @property
    def term(self) -> int:
        return self.leadership.term if self.leadership is not None else 0

    def step(self, now_ms: int, given: Given) -> list[Effect]:
        """One input, one ordered list of effects."""
        match given:
            case Ask(leadership, covered):
                return self._ask(now_ms, leadership, covered)
            case Renewed(leadership):
                if self.waits and leadership.term == self.term:
                    self.leadership = leadership
            case Ended(term):
                return self._end() if self.waits and term == self.term else []
            case Approved(term, by):
                return self._approved(now_ms, by) if self.phase is Phase.APPROVAL and term == self.term else []
            case FenceEnded(number, code, why):
                return self._fence_ended(now_ms, code, why) if self._is_current(number) else []
            case Woke():
                return self._woke(now_ms)
            case _:
                assert_never(given)
        return []

    def _ask(self, now_ms: int, leadership: Leadership, covered: bool) -> list[Effect]:
        assert not self.waits, f"asked again while {self.phase}"
        self.leadership = leadership
        self.covered = covered
        self.tries = 0
        if not self.rule.manual:
            return self._fence(now_ms)
        self.phase = Phase.APPROVAL
        why = f"an approval: primacy approve {self.node} --term {leadership.term}"
        return [Note(Happened.AWAITS, number=leadership.term, detail=self.node), Tell(WorkDeferred(self.term, why))]

    def _approved(self, now_ms: int, by: str) -> list[Effect]:
        return [Note(Happened.APPROVED, number=self.term, detail=by), *self._fence(now_ms)]

    def _fence(self, now_ms: int) -> list[Effect]:
        """The fence command, if there is one and nobody vouches for all predecessors."""
        assert self.leadership is not None
        if not self.rule.fence or self.covered:
            return self._let_in(now_ms)
        self.phase = Phase.FENCING
        self.number += 1
        self.tries += 1
        self.deadline_ms = now_ms + self.rule.fence_ms
        return [
            Note(Happened.FENCING, number=self.tries),
            RunFence(self.number, self.leadership),
            Tell(WorkDeferred(self.term, "its fence command to succeed: run.fence_command")),
        ]

    def _is_current(self, number: int) -> bool:
        return self.phase is Phase.FENCING and number == self.number

    def _fence_ended(self, now_ms: int, code: int, why: str) -> list[Effect]:
        if code == 0:
            return [Note(Happened.FENCED), *self._let_in(now_ms)]
        return self._fence_failed(now_ms, code, why)

    def _fence_failed(self, now_ms: int, code: int, why: str) -> list[Effect]:
        self.phase = Phase.RESTING
        wait_ms = min(AGAIN_MS_MAX, AGAIN_MS << min(self.tries - 1, 20))
        self.deadline_ms = now_ms + wait_ms
        said = why or f"it ended with code {code}"
        waits_for = f"its fence command to succeed: {said}; the log says what it printed, try {self.tries}"
        return [Note(Happened.FENCE_FAILED, number=wait_ms, detail=said), Tell(WorkDeferred(self.term, waits_for))]

    def _let_in(self, now_ms: int) -> list[Effect]:
        """All conditions, once more: asked in this very term, and its hold has not reached TERM."""
        leadership = self.leadership
        assert leadership is not None
        self.deadline_ms = None
        if now_ms >= leadership.valid_until_ms - self.timing.hold_ms + self.timing.term_at_ms:
            self.phase = Phase.LATE
            return []
        waited = self.waits
        self.phase = Phase.IDLE
        self.leadership = None
        told: list[Effect] = [Tell(WorkDeferred(leadership.term))] if waited else []
        return [LetIn(leadership), *told]

    def _end(self) -> list[Effect]:
        """Nothing of this term ever ran."""
        killed: list[Effect] = [KillFence()] if self.phase is Phase.FENCING else []
        gone = WorkGone(self.term, released=False)
        self.phase = Phase.IDLE
        self.leadership = None
        self.deadline_ms = None
        return [*killed, Tell(gone)]

    def _woke(self, now_ms: int) -> list[Effect]:
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return []
        if self.phase is Phase.FENCING:
            late = f"it did not end within {self.rule.fence_ms:,} ms"
            return [KillFence(), *self._fence_failed(now_ms, 1, late)]
        return self._fence(now_ms)
