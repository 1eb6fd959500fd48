"""E2: a node that sends far more than heartbeats ends its trial, as a violation, before anything is full."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from primacy.election.effects import AskStore, Effect, Send
from primacy.election.inputs import Input, Received, StoreAnswered
from primacy.election.messages import Message
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.replay import Replayed, record
from primacy.sim.trials.strategy_table import entry_of, events_max, pace_of, timing_for
from primacy.sim.trials.trial import Plan
from primacy.sim.world.world import INBOX_MAX, Overrun, World


def planted(strategy: str, more: Callable[[Input, list[Effect]], list[Effect]]) -> Callable[..., Any]:
    """Its machines, with effects that they should not have."""
    build = entry_of(strategy).build(True)

    def plant(node: Any, seat: Any, ballot: Any) -> Any:
        machine = build(node, seat, ballot)
        step = machine.step
        machine.step = lambda now_ms, given: (effects := step(now_ms, given)) + more(given, effects)
        return machine

    return plant


def echo(times: int) -> Callable[[Input, list[Effect]], list[Effect]]:
    """Every message is sent back to whoever sent it: an answer to an answer (E1)."""

    def more(given: Input, _: list[Effect]) -> list[Effect]:
        if not isinstance(given, Received):
            return []
        return [Send(given.message.origin.node, given.message)] * times

    return more


def asks_again() -> Callable[[Input, list[Effect]], list[Effect]]:
    """Each answer of the store makes it ask for the last thing once more, at once."""
    asked: list[Effect] = []

    def more(given: Input, effects: list[Effect]) -> list[Effect]:
        asked.extend(effect for effect in effects if isinstance(effect, AskStore))
        return asked[-1:] if isinstance(given, StoreAnswered) else []

    return more


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("strategy", ["raft", "bully", "ring"])
def test_E2_answers_to_answers_are_a_storm(strategy: str, times: int) -> None:
    trial = trial_of(Plan(strategy, 3, "lan", 1.0, faults=(), draw=False), 3, planted(strategy, echo(times)))
    outcome = trial.run()
    assert outcome.violations[-1].rule == "E2"
    assert outcome.violations[-1].at_ms < 10_000
    assert outcome.events < 20_000


def test_E2_a_store_that_is_asked_again_and_again_is_a_storm() -> None:
    trial = trial_of(Plan("lease", 3, "lan", 1.0, faults=(), draw=False), 3, planted("lease", asks_again()))
    assert trial.run().violations[-1].rule == "E2"


def test_E2_a_storm_fills_no_memory() -> None:
    tracemalloc.start()
    trial_of(Plan("raft", 5, "lan", 1.0, faults=(), draw=False), 3, planted("raft", echo(3))).run()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 32 << 20


@pytest.mark.parametrize("strategy", ["raft", "lease", "bully", "ring"])
def test_E2_the_bound_is_a_small_multiple_of_heartbeats_and_nodes(strategy: str) -> None:
    timing = timing_for(strategy, "lan")
    pace = pace_of(strategy, timing, 5)
    assert pace.per_s <= 6 * 5 * 1000 / timing.heartbeat_ms
    assert pace.at_once < 4 * INBOX_MAX


def test_E2_a_trial_that_has_too_many_events_ends() -> None:
    """However few of them are messages."""
    trial = trial_of(Plan("raft", 3, "lan", 1.0, faults=(), draw=False), 3)

    def again() -> None:
        trial.world.after(0.01, again)

    trial.world.after(0, again)
    outcome = trial.run()
    assert [violation.rule for violation in outcome.violations] == ["E2"]
    assert outcome.events == trial.world.events_max == events_max(trial.timing, 3, 1.0)
    assert f"{outcome.events:,} events" in outcome.violations[0].sentence


def test_E2_a_burst_is_no_storm_and_more_than_a_burst_is_one() -> None:
    plan = Plan("raft", 3, "lan", 1.0, faults=(), draw=False)
    trial = trial_of(plan, 3)
    message = _some_message(plan)
    world, node = trial.world, trial.world.nodes["n1"]

    def burst(more: int = 0) -> None:
        for _ in range(int(world.pace.at_once) + more):
            world.send(node, "n2", message)

    burst()
    world.now += 60_000
    burst()
    with pytest.raises(Overrun, match="n1 sends more than 80 messages a second"):
        burst(1)


def _some_message(plan: Plan) -> Message:
    seen: list[Message] = []
    trial = trial_of(plan, 3)
    trial.world.watches_messages = lambda *told: seen.append(told[3])
    trial.world.run(5_000)
    return seen[0]


def test_E2_a_storm_can_be_recorded_with_what_comes_after_it() -> None:
    plan = Plan("raft", 3, "lan", 1.0)
    send = World.send
    faults = record(plan, 5, storms=True)
    assert World.send is send
    assert max(act[0] for act in faults.acts) > 30_000
    assert Replayed(faults).run().trace_hash


@pytest.mark.parametrize("seed", [10_141, 10_224, 10_269])
def test_B9_many_nodes_that_call_each_other_do_not_storm(seed: int) -> None:
    """Each ended its election by the leader's answer, and the next call began another one, thousands a second."""
    assert not trial_of(Plan("bully", 20), seed).run().violations
