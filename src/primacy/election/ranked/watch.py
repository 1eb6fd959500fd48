"""Watching a leader by its heartbeats, as a node of bully or ring does that does not lead.

A follower looks at its leader every heartbeat, as over Ghoti's wire, where nothing says who leads and no term exists
(B10): fields at their defaults say nothing, and are believed as far as a real node would believe them. A leader whose
answers stop coming counts as gone, and what it still announces counts for nothing until it answers a look: else a node
that is heard but cannot hear would be followed and dropped for ever. An announcement that is older than what is known
(epochs serve for this alone), or that would move a node off a live leader, is proved the same way.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record
from primacy.election.events import Code, Event
from primacy.election.messages import Alive
from primacy.election.ranked.state import SETTLED, Phase, State, Timer


class Watch:
    """What a node knows of leaders: the one that it follows, those that fell silent or announced themselves."""

    def __init__(self, state: State) -> None:
        self._state, self._ranking = state, state.ranking
        self.probes: dict[str, None] = {}
        """Announced themselves and were asked for proof."""
        self.silent: dict[str, None] = {}
        """Did not answer while they led; their announcements need proof until they do."""
        self.rival = ("", 0)
        """Who announced itself last, other than the one followed, and when."""
        self.crossed: dict[str, None] = {}
        """Rivals on record in this leadership."""
        self.gone = ""
        """The leader whose silence began this election."""
        self._unanswered = 0
        """Looks at the leader in a row without an answer."""

    def entered(self, phase: Phase) -> None:
        if phase in SETTLED:
            self.probes.clear()
            self._unanswered = 0
            self.crossed.clear()
            self.gone = ""

    def forget_unlisted(self) -> None:
        for names in (self.probes, self.silent, self.crossed):
            for name in [name for name in names if name not in self._ranking]:
                del names[name]

    def note(self, now_ms: int, sender: str) -> list[Effect]:
        """It lives: a node that was left out comes back by being heard."""
        if sender == self.gone:
            self.gone = ""
        returned = self._ranking.note(now_ms, sender)
        return [Record(Event(Code.RETURNED, self._state.epoch, sender))] if returned else []

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def look_at_leader(self, now_ms: int) -> list[Effect]:
        state, timing = self._state, self._state.timing
        state.arm(Timer.HEARTBEAT, now_ms, timing.heartbeat_ms)
        self._unanswered += 1
        if self.misses_all and Timer.GONE not in state.timers:
            state.arm(Timer.GONE, now_ms, timing.answer_ms)
        return [state.ask(state.leader)]

    @property
    def misses_all(self) -> bool:
        """As many looks as may stay unanswered did."""
        return self._unanswered >= self._state.timing.misses

    def answers(self, sender: str, message: Alive) -> bool:
        """An answer that was asked for: its sender is not silent."""
        if not self._state.expected(sender, message.number):
            return False
        self.silent.pop(sender, None)
        self._state.raise_epoch(message.epoch)
        return True

    def leader_answered(self) -> list[Effect]:
        self._unanswered = 0
        self._state.disarm(Timer.GONE)
        return []

    def probe(self, sender: str) -> list[Effect]:
        """It is to prove that it leads, and hears us, by its answer."""
        self.probes[sender] = None
        return [self._state.ask(sender)]

    # --- without a leader ---------------------------------------------------------------------------------------------

    def leader_gone(self, now_ms: int, why: str, code: Code = Code.LEADER_SILENT) -> list[Effect]:
        """Elects, unless another node above has announced itself just now: then that one is asked first."""
        gone, self._state.leader = self._state.leader, ""
        self.gone = gone
        self.silent[gone] = None
        rival, at_ms = self.rival
        recent = now_ms - at_ms <= 2 * self._state.timing.heartbeat_ms and rival not in self.silent
        lost = Event(code, self._state.epoch, gone, f"{gone} {why}")
        return [Record(lost), *self._go_on(now_ms, rival if recent else "")]

    def does_not_lead(self, now_ms: int, named: str) -> list[Effect]:
        """Its leader is up and says that another leads, or nobody: two may have come to follow each other."""
        gone, self._state.leader = self._state.leader, ""
        left = Event(Code.LEADER_LEFT, self._state.epoch, gone, f"{gone} says that it does not lead")
        return [Record(left), *self._go_on(now_ms, named)]

    def _go_on(self, now_ms: int, candidate: str) -> list[Effect]:
        """Looks at the one said to lead if it is of use (B5), or elects."""
        if self.takes(now_ms, candidate):
            return self._state.look(now_ms, (candidate,), self._state.timing.answer_ms)
        return self._state.campaign(now_ms)

    def takes(self, now_ms: int, candidate: str) -> bool:
        """Would follow it: one that may lead and ranks above; or any rank, if this node cannot lead or is new (B5)."""
        state = self._state
        if not self._ranking.may_lead(candidate) or candidate == state.node:
            return False
        return self._ranking.outranks(candidate, state.node) or not state.joined or not state.able(now_ms)
