"""What an agent and a simulator read of a node of bully or ring: one type for both. Nothing is decided here."""

from __future__ import annotations

from abc import ABC, abstractmethod

from primacy.election.effects import Effect
from primacy.election.inputs import Input
from primacy.election.model import Kind, Membership, Role, Seat, View
from primacy.election.ranked.fitness import PAUSED
from primacy.election.ranked.state import ELECTING, Phase, State


class RankStrategy(ABC):
    """One node of a cluster in which the highest live node is to lead."""

    _state: State
    deadline_ms: int | None = None
    """When it next wants to be woken."""

    @abstractmethod
    def step(self, now_ms: int, given: Input) -> list[Effect]:
        """One input; the effects stand in the order in which they must happen."""

    @property
    def seat(self) -> Seat:
        return self._state.seat

    @property
    def role(self) -> Role:
        """In the users' words."""
        state = self._state
        if state.phase is Phase.LEAD:
            return Role.LEADER
        if state.ranking.kind is Kind.OBSERVER:
            return Role.OBSERVER
        if state.fitness.paused:
            return Role.PAUSED
        if state.phase in ELECTING:
            return Role.CANDIDATE
        return Role.FOLLOWER if state.joined else Role.STARTING

    @property
    def leader(self) -> str:
        """Whom this node believes to lead; empty for nobody."""
        return self._state.leader

    @property
    def term(self) -> int:
        """The largest number of a leadership that it heard of."""
        return self._state.epoch

    @property
    def preceding_term(self) -> int:
        """The newest earlier leadership that it heard of; 0 for none."""
        return max(0, self._state.led - 1) if self._state.led else self._state.epoch

    @property
    def paused(self) -> bool:
        return self._state.fitness.paused

    @property
    def healthy(self) -> bool:
        return not self._state.fitness.ill

    @property
    def heard(self) -> dict[str, int]:
        """When each other node was heard last."""
        return self._state.ranking.heard

    @property
    def membership(self) -> Membership:
        """The list as it is now."""
        return self._state.ranking.membership

    @property
    def pruned(self) -> tuple[str, ...]:
        """Nodes that no election waits for at present."""
        return self._state.ranking.pruned

    def view(self, now_ms: int) -> View:
        """How it stands. Nothing is held here, hence no hold and no token."""
        alive = self._state.ranking.alive(now_ms)
        return View(self.role, self._state.leader, self._state.epoch, "", 0, 0, alive, self._waits_for(now_ms))

    def _waits_for(self, now_ms: int) -> str:
        """What belongs behind "waits for"; a paused node says so even while it follows."""
        if self._state.fitness.paused and self._state.phase is not Phase.LEAD:
            return PAUSED
        match self._state.phase:
            case Phase.IDLE:
                return "the list of nodes; see that a node to join is up" if self._state.fitness.up else ""
            case Phase.LOOK:
                return self._state.hindrance(now_ms) or "the other nodes to say who leads"
            case Phase.CALL:
                return f"the election that it called: {len(self._state.pending)} nodes have still to answer"
            case Phase.WAIT if self._state.awaited:
                return f"an announcement, since {self._state.awaited} is there"
            case Phase.WAIT:
                return "its next round"
            case Phase.POLL:
                return "a majority of the list to answer"
            case _:
                return ""
