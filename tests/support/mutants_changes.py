"""M1 over strategies and stores, taken out: machines that trials with changing files must catch."""

from __future__ import annotations

from typing import NamedTuple

from primacy.election.effects import Effect
from primacy.election.events import Code
from primacy.election.lease.changed import Changed
from primacy.election.lease.state import LeaseOptions
from primacy.election.lease.strategy import LeaseStrategy
from primacy.election.messages import Report
from primacy.election.model import Ballot, Seat
from primacy.election.raft.lead import Leading
from primacy.election.raft.memory import Remembering
from primacy.election.raft.roles import Leader
from primacy.election.raft.state import TERM_JUMP_MAX, RaftState
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.settings.timing import Timing
from primacy.sim.trials.changed import ChangedTrial
from primacy.sim.trials.trial import Plan
from primacy.sim.world import engines


class NotRemembered(Changed):
    """What this node ran under before is no reason to wait."""

    @property
    def is_over(self) -> bool:
        return True


class OneReports(Changed):
    """One node that runs with the new file is enough."""

    def missing(self) -> tuple[str, ...]:
        missing = super().missing()
        return () if len(missing) < len(self._concerned()) else missing


class AnyConfiguration(Changed):
    """Who answers has reported, whatever it runs with."""

    def _reported(self, node: str) -> bool:
        return node in self.reports


class HoldNotWaited(Changed):
    """The last report ends it at once, although the work of before may still be dying."""

    def over_at_ms(self) -> int | None:
        return None if super().over_at_ms() is None else self.heard_ms


class AnyEcho(Changed):
    """An answer to an earlier start counts."""

    def hear(self, now_ms: int, report: Report) -> bool:
        return super().hear(now_ms, report._replace(echo=self.seat.boot))


class Unasked(Changed):
    """It does not ask at its start whether its file was replaced. The trials that are the rarest were found so."""

    def begin(self, now_ms: int, *, speaks: bool) -> None:
        super().begin(now_ms, speaks=speaks)
        self.listens = False


class NotToldReplaced(Changed):
    """Who comes back with a file that was replaced meanwhile takes part as before."""

    def _is_replaced_by(self, report: Report) -> bool:
        return False


def on_lease(changed: type[Changed]) -> type[LeaseStrategy]:
    class Mutated(LeaseStrategy):
        def __init__(self, seat: Seat, timing: Timing, options: LeaseOptions) -> None:
            super().__init__(seat, timing, options)
            self._changed = changed(seat, timing, options.config, options.lists, options.hold_max_ms, options.left)

    return Mutated


class RaftForgetsLeases(RaftStrategy):
    """A ballot that was used counts, whatever this node did on a lease since."""

    def __init__(self, seat: Seat, timing: Timing, ballot: Ballot | None, options: RaftOptions | None = None) -> None:
        if ballot is not None and not ballot.void:
            ballot = ballot._replace(lists=tuple(record for record in ballot.lists if not record.elsewhere))
        super().__init__(seat, timing, ballot, options)


class _NotMarked(Remembering):
    def mark(self) -> list[Effect]:
        return [] if self.state.recovery.leases else super().mark()


class NotWritten(RaftStrategy):
    """That it has no memory is said before it is written down under which configuration."""

    remembering_class = _NotMarked


class _NotReplaced(Remembering):
    def _replaced(self, now_ms: int, report: Report) -> list[Effect]:
        return []


class RaftNotToldReplaced(RaftStrategy):
    """Likewise, in raft."""

    remembering_class = _NotReplaced


class _TermsAlone(RaftState):
    @property
    def reached_term(self) -> int:
        return self.term


class TermsNotAboveTokens(RaftStrategy):
    """A campaign is for the next term, whatever tokens a lease has given."""

    state_class = _TermsAlone


class _AnyJump(RaftState):
    def is_too_far(self, term: int) -> bool:
        return term - self.term > TERM_JUMP_MAX


class JumpDespiteAToken(RaftStrategy):
    """A term is too far above, also if a token that this node knows asks for it."""

    state_class = _AnyJump


class _NotLearnt(RaftState):
    def learn_token(self, token: int) -> None:
        pass


class TokensNotLearnt(RaftStrategy):
    """What voters have seen is nothing to who asks them."""

    state_class = _NotLearnt


class _NotAsked(RaftState):
    def doubt(self, now_ms: int, node: str, term: int) -> list[Effect]:
        return self.note(Code.TERM_JUMP, node, "too far")


class NotAsked(RaftStrategy):
    """Whose term is too far above is refused, and that is all."""

    state_class = _NotAsked


class _NotLookedAtAgain(Leading):
    def is_below(self, leader: Leader) -> bool:
        return False


class StartsBelowWhatItLearnt(RaftStrategy):
    """A token that is told after the majority's answers keeps nobody from starting below it."""

    leading_class = _NotLookedAtAgain


RULES = ("I1", "I2", "I4")
"""What may be the first to notice."""


class Mutant(NamedTuple):
    """A rule taken out, and a trial that shows it."""

    name: str
    machines: tuple[type[RaftStrategy], type[LeaseStrategy]]
    nodes: int
    seed: int
    rules: tuple[str, ...] = RULES
    on_all: bool = False
    """Found when there were more engines to draw from."""


def caught(mutant: Mutant) -> str:
    """The first rule that was violated in its trial; empty if none was."""

    class Trial(ChangedTrial):
        machines = mutant.machines
        drawn = staticmethod(engines.drawn if mutant.on_all else engines.drawn_first)

    outcome = Trial(Plan("raft", mutant.nodes, "lan", 2.0, changes=True), mutant.seed).run()
    return next((violation.rule for violation in outcome.violations if violation.rule in mutant.rules), "")


def _lease(changed: type[Changed], nodes: int, seed: int) -> Mutant:
    return Mutant(changed.__name__, (RaftStrategy, on_lease(changed)), nodes, seed)


def _raft(machine: type[RaftStrategy], nodes: int, seed: int) -> Mutant:
    return Mutant(machine.__name__, (machine, LeaseStrategy), nodes, seed)


MUTANTS = (
    _lease(NotRemembered, 5, 8),
    _lease(OneReports, 3, 2),
    _lease(AnyConfiguration, 3, 60),
    _lease(HoldNotWaited, 2, 253),
    _raft(RaftForgetsLeases, 3, 1024),
    Mutant("NotWritten", (NotWritten, on_lease(Unasked)), 3, 701),
    _raft(TermsNotAboveTokens, 1, 1)._replace(on_all=True),
    _raft(JumpDespiteAToken, 3, 3)._replace(on_all=True, rules=("P1",)),
    _raft(TokensNotLearnt, 2, 340)._replace(on_all=True, rules=("P1",)),
)
