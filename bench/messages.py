"""How many messages bully and ring send for one failure, over the number of nodes (RULES B9).

A quiet cluster has its leader; that node loses its power, and what the others say until all of them follow a new one is
counted, without heartbeats and their answers, and without the repetitions of an announcement, which are heartbeats too.
"""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from primacy.election.messages import Alive, Coordinator, HeartbeatRequest, Message
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.trial import Plan, Trial

SIZES = (3, 5, 7, 10, 15, 20, 30, 40, 50)
SIZES_QUICK = (3, 10, 50)
BOUNDS = {"bully": lambda nodes: nodes * nodes, "ring": lambda nodes: 4 * nodes}
UNITS_MAX = 400
"""Units of time until somebody must lead; a ring of fifty passes its baton for a while."""
STEPS_PER_UNIT = 20


class Count(NamedTuple):
    """One strategy and size, over several failures."""

    strategy: str
    nodes: int
    messages: float
    most: int
    bound: int
    took_ms: float
    """From the failure until all follow the new leader, the median."""


class ElectionCount:
    """Counts what is said because of an election."""

    def __init__(self) -> None:
        self.count = 0
        self._told: dict[tuple[str, str], int] = {}

    def __call__(self, now_ms: float, sender: str, to: str, message: Message, delay_ms: float) -> None:  # noqa: ARG002
        if isinstance(message, HeartbeatRequest | Alive):
            return
        if isinstance(message, Coordinator):
            known = self._told.get((sender, to))
            self._told[sender, to] = message.epoch
            if known == message.epoch:
                return
        self.count += 1


def table(sizes: tuple[int, ...], failures: int) -> list[Count]:
    """Every strategy and size."""
    return [_row(strategy, nodes, failures) for strategy in BOUNDS for nodes in sizes]


def _row(strategy: str, nodes: int, failures: int) -> Count:
    seen = [_failure(strategy, nodes, seed) for seed in range(failures)]
    counts = [count for count, _ in seen]
    bound = BOUNDS[strategy](nodes)
    return Count(strategy, nodes, median(counts), max(counts), bound, median(took for _, took in seen))


def _failure(strategy: str, nodes: int, seed: int) -> tuple[int, float]:
    """Messages, and the time until everybody follows the new leader."""
    trial = trial_of(Plan(strategy, nodes, "lan", faults=(), draw=False, drift=0.001), seed)
    world = trial.world
    step_ms = trial.unit_ms / STEPS_PER_UNIT
    counter = ElectionCount()
    world.watches_messages = counter
    old = _settle(trial, step_ms, "")
    world.run(world.now + 3 * trial.unit_ms)
    counter.count, began_ms = 0, world.now
    world.crash(world.nodes[old], power=True)
    _settle(trial, step_ms, old)
    took_ms = world.now - began_ms
    world.run(world.now + trial.unit_ms)  # what is still under way belongs to it
    return counter.count, took_ms


def _settle(trial: Trial, step_ms: float, gone: str) -> str:
    """Runs until all who live follow one and the same of them."""
    nodes = trial.world.nodes
    for _ in range(UNITS_MAX * STEPS_PER_UNIT):
        trial.world.run(trial.world.now + step_ms)
        leaders = {nodes[name].leader for name in trial.names if name != gone}
        if len(leaders) == 1 and (leader := leaders.pop()) not in ("", gone):
            return leader
    raise AssertionError(f"{trial.plan.strategy}, {len(trial.names)} nodes: no leader for all")
