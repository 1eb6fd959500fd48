"""The short way of heartbeats and acks: whatever a node has lived through, it does exactly what a step does, or
nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from primacy.election.effects import Effect
from primacy.election.inputs import DeadlinePassed, Input, Received
from primacy.election.messages import Message
from primacy.election.raft.strategy import RaftStrategy
from primacy.sim.model.snapshot import fork, frozen
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.trial import Plan
from tests.support.mutants import raft

pytestmark = pytest.mark.coverage

TAKEN: Counter[str] = Counter()


class Twice(RaftStrategy):
    """Takes each message both ways, and compares."""

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        if not isinstance(given, Received | DeadlinePassed):
            return super().step(now_ms, given)
        message = given.message if isinstance(given, Received) else None
        chance = self.seat.random.getstate()
        forked = fork(self)
        short = forked.again(now_ms, message)
        drawn = self.seat.random.getstate()
        if short is None:
            assert (seen(forked), drawn) == (seen(self), chance), "a way that was not taken changed something"
        self.seat.random.setstate(chance)
        effects = super().step(now_ms, given)
        TAKEN[type(message).__name__ if short is not None else "step"] += 1
        if short is not None:
            assert short == effects
            assert seen(forked) == seen(self)
            assert drawn == self.seat.random.getstate()
            assert (unnumbered(forked), forked.state.calm) == (unnumbered(self), self.state.calm), (
                "nor may the next message differ"
            )
        return effects


def unnumbered(strategy: RaftStrategy) -> object:
    return strategy.state.steady and strategy.state.steady._replace(number=0)


def seen(strategy: RaftStrategy) -> tuple[object, ...]:
    return frozen(strategy), dict(strategy.heard), strategy.deadline_ms, strategy.state.campaign_at_ms


@pytest.mark.later
@pytest.mark.parametrize("seed", [1, 4, 5, 6, 7, 9, 10, 11])  # those in between are too disturbed for the short way
def test_the_short_way_leads_where_a_step_leads(seed: int) -> None:
    TAKEN.clear()
    trial_of(Plan("raft", 3 if seed % 2 else 5, "lab", 0.5), seed, raft(Twice)).run()
    assert TAKEN["Heartbeat"] > 100, TAKEN
    assert TAKEN["Ack"] > 100, TAKEN
    assert TAKEN["NoneType"] > 100, TAKEN
    assert TAKEN["step"] > 10, TAKEN


class Forgetful(Twice):
    """It promises nothing with the ack that it gives on the short way (Q4)."""

    def again(self, now_ms: int, message: Message | None) -> list[Effect] | None:
        before = self.state.promise.newest_at_ms
        effects = super().again(now_ms, message)
        self.state.promise.newest_at_ms = before
        return effects


class Trusting(Twice):
    """An ack of another term, or of another start of this node, counts."""

    def again(self, now_ms: int, message: Message | None) -> list[Effect] | None:
        leader = self.state.leader_state
        if leader is not None and hasattr(message, "leader_boot"):
            message = message._replace(term=leader.term, leader_boot=self.seat.boot)  # type: ignore[call-arg, union-attr]
        return super().again(now_ms, message)


@pytest.mark.parametrize("mutant", [Forgetful, Trusting])
def test_a_short_way_that_leads_elsewhere_is_noticed(mutant: type[Twice]) -> None:
    late = Plan("raft", 3, "lab", 1.0, ("hold-back", "operator", "stall"), draw=False)
    # acks of a term arrive when the same node leads another one

    def trials() -> None:
        for seed in range(40):
            trial_of(late, seed, raft(mutant)).run()

    with pytest.raises(AssertionError):
        trials()
