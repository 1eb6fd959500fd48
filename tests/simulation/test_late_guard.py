"""A guard tells all nodes of a release in the same moment as its own agent, which may hear of it last (G6)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from primacy.election.effects import Effect
from primacy.election.raft.follow import Following
from primacy.election.raft.strategy import RaftStrategy
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.trial import Plan
from primacy.sim.world.guard import Guard
from primacy.supervise.vocabulary import Gone
from tests.support.mutants import raft

pytestmark = pytest.mark.coverage

LATE_MS = 20
"""Longer than a message takes, and than a candidate needs to ask."""


class LateGuard(Guard):
    """The release leaves at once; that the work is gone reaches the agent later, unless the guard has ended by then."""

    def _confirm(self) -> None:
        hear = self.agent.hear
        self.agent.hear = partial(self._later, hear)  # type: ignore[method-assign]
        super()._confirm()
        self.agent.hear = hear  # type: ignore[method-assign]

    def _later(self, hear: Callable[[object], None], told: object) -> None:
        if not isinstance(told, Gone):
            hear(told)
            return
        self.world.after(self.node.draw_ms(0, LATE_MS), lambda: hear(told) if self.agent.guard is self else None)


@pytest.mark.parametrize("nodes", [2, 3])
def test_G6_a_release_that_others_hear_first_never_lets_two_run(nodes: int) -> None:
    early: list[int] = []

    class Counted(Following):
        def hear_early(self, now_ms: int) -> list[Effect]:
            early.extend([now_ms] if self.state.early is not None else [])
            return super().hear_early(now_ms)

    class Counting(RaftStrategy):
        following_class = Counted

    for seed in range(15):
        classes = None if seed % 3 else ("operator", "stall", "partition")
        trial = trial_of(Plan("raft", nodes, "lab", 0.5, classes, draw=classes is None), seed, raft(Counting))
        trial.world.guard_class = LateGuard
        assert trial.run().violations == []
    assert early, "the order that this is about was met"
