"""The safety rule E1: no refusal is ever answered, and no message from the wire is multiplied.

By hand for what broke it, then for every machine in the simulator: each of its steps is looked at. Each rule is taken
out here, too, and noticed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primacy.election.effects import Effect, Send
from primacy.election.inputs import DeadlinePassed, Input, Received
from primacy.election.messages import (
    Ack,
    Ahead,
    Alive,
    BatonTaken,
    FailsafeAck,
    Heartbeat,
    Message,
    Okay,
    Stale,
    Unable,
    VoteReply,
)
from primacy.election.model import Role
from primacy.election.raft.strategy import RaftStrategy
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.replay import Replayed, read
from primacy.sim.trials.trial import Plan
from tests.support.mutants import raft
from tests.support.mutants_raft import AnswersRefusals, RefusesEach
from tests.support.raft_harness import HEARTBEAT, Bench, H, P, ballot, origin

SEEDS = 3 if os.environ.get("PRIMACY_SIZE") == "quick" else 8
"""Per strategy. Three are clusters of three, four and five nodes."""

# --- raft, by hand ----------------------------------------------------------------------------------------------------


def old(node: str = "b", boot: int = 2) -> Any:
    return origin(node, incarnation=4, boot=boot)


def stale_bench() -> Bench:
    """It has heard the fifth start of b."""
    bench = Bench()
    bench.hear(Heartbeat(origin("b", incarnation=5, boot=1), 1, 1, H, True))
    return bench


def test_E1_a_refusal_of_an_earlier_start_is_not_answered() -> None:
    bench = stale_bench()
    for refusal in (Stale(old(), 1, 9), Ahead(old(), 7), VoteReply(old(), 2, True, False, 1, 1)):
        bench.hear(refusal)
        assert not bench.receivers(), type(refusal).__name__
    bench.hear(Ack(old(), 1, 1, 1))
    assert bench.sent(Stale, "b"), "what is no refusal is"


def test_E1_a_refusal_is_sent_once_to_each_start_within_a_heartbeat() -> None:
    bench = stale_bench()
    for _ in range(3):
        bench.hear(Heartbeat(old(), 2, 1, H, True))
        bench.hear(Ack(old(), 1, 1, 1))
    assert len([e for e in bench.all if isinstance(e, Send) and isinstance(e.message, Stale)]) == 1
    bench.hear(Heartbeat(old(boot=3), 2, 1, H, True))
    assert bench.sent(Stale), "another machine is another peer"
    bench.now += HEARTBEAT
    bench.hear(Heartbeat(old(), 2, 1, H, True))
    assert bench.sent(Stale), "and so is another heartbeat"


def test_E1_a_repeated_heartbeat_of_an_older_term_is_refused_once() -> None:
    bench = Bench(kept=ballot(term=4))
    bench.heartbeat("b", 2)
    assert bench.sent(Ahead)
    bench.heartbeat("b", 2, 2)
    assert not bench.sent(Ahead)


def test_E1_a_repeated_request_is_refused_once_and_another_one_at_once() -> None:
    bench = Bench()
    bench.ask("b", 1, pre=True)
    assert not bench.sent(VoteReply)[0].granted
    bench.ask("b", 1, pre=True)
    assert not bench.sent(VoteReply)
    bench.ask("b", 2, pre=True)
    assert bench.sent(VoteReply)
    bench.ask("c", 1, pre=True)
    assert bench.sent(VoteReply)


def test_E1_a_yes_is_repeated() -> None:
    bench = Bench()
    bench.now += 2 * P
    for _ in range(2):
        bench.ask("b", 1)
        assert bench.sent(VoteReply)[0].granted


def test_E1_whoever_is_told_that_it_is_an_old_copy_believes_it_of_an_old_copy_too() -> None:
    """Both are restored copies: were neither heard, each would wait for the other, and nobody would ask the others."""
    bench = stale_bench()
    bench.hear(Stale(old(), bench.m.seat.boot, 9))
    assert bench.m.role is Role.RECOVERING


def two_old_copies(cls: type[RaftStrategy]) -> tuple[int, list[RaftStrategy]]:
    """Each of a and b has heard a later start of the other, and every datagram comes twice. How many leave in 3
    heartbeats.

    More than a thousand count as without end.
    """
    benches = {
        "a": Bench(kept=ballot(incarnation=3, seen=(("b", 9, 91), ("c", 1, 3))), machine=cls),
        "b": Bench(node="b", kept=ballot(incarnation=3, seen=(("a", 9, 92), ("c", 1, 3))), machine=cls),
    }
    under_way: list[tuple[str, Message]] = []
    for to, sender in (("a", "b"), ("b", "a")):  # both speak before either is heard
        under_way += [(to, Heartbeat(benches[sender].m.origin, 1, 1, H, True))] * 2
    sent = 0
    for _ in range(3):
        while under_way and sent < 1_000:
            to, message = under_way.pop(0)
            for effect in benches[to].hear(message):
                if isinstance(effect, Send) and effect.to in benches:
                    under_way += [(effect.to, effect.message)] * 2
                    sent += 1
        for bench in benches.values():
            bench.now += HEARTBEAT
            for effect in bench.give(DeadlinePassed()):
                if isinstance(effect, Send) and effect.to in benches:
                    under_way += [(effect.to, effect.message)] * 2
                    sent += 1
    return sent, [bench.m for bench in benches.values()]


def test_E1_two_old_copies_do_not_tell_each_other_so_for_ever() -> None:
    sent, machines = two_old_copies(RaftStrategy)
    assert sent < 20
    assert all(machine.role is Role.RECOVERING for machine in machines), "each found out what it is"


def test_E1_taken_out_two_old_copies_storm() -> None:
    assert two_old_copies(AnswersRefusals)[0] >= 1_000


def test_E1_taken_out_the_recorded_storm_is_back() -> None:
    """On a plan that once stormed, the machine of then storms again, and the checker says so. The other plan, of three
    nodes, meets no storm with a register: two of the three wait for each other's memory from then on (R9)."""
    plan = read(Path(__file__).parents[1] / "data" / "plans" / "raft-5-lan-30006618.json")
    for streams in (*plan.streams, 0):
        violations = Replayed(plan, streams, raft(AnswersRefusals)).run().violations
        assert [violation.rule for violation in violations] == ["E2"], streams


# --- every machine, in the simulator ----------------------------------------------------------------------------------

ANSWERS = (Okay, Unable, Alive, BatonTaken, FailsafeAck)
"""Over HTTP these are the answer of a request itself; of what they come with, one message per receiver."""


def is_refusal(message: Message) -> bool:
    if isinstance(message, VoteReply):
        return not message.granted
    return isinstance(message, Stale | Ahead | Unable) or (isinstance(message, Alive) and not message.able)


class Watched:
    """A machine whose every step is looked at. It keeps what breaks E1, and changes nothing."""

    def __init__(self, machine: Any, heartbeat_ms: int, broken: list[str]) -> None:
        self.machine = machine
        self.heartbeat_ms = heartbeat_ms
        self.broken = broken
        self.refused: dict[tuple[Any, ...], int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        due = self.machine.deadline_ms is not None and self.machine.deadline_ms <= now_ms
        effects: list[Effect] = self.machine.step(now_ms, given)
        sends = [effect for effect in effects if isinstance(effect, Send)]
        if isinstance(given, Received) and not due:  # what was due by time leaves with it
            self.look(given.message, sends)
        for send in sends:
            if is_refusal(send.message) and isinstance(send.message, Stale | Ahead | VoteReply):
                said = send.message
                of = said[1] if isinstance(said, Stale) else said[1:5] if isinstance(said, VoteReply) else 0
                last_ms = self.refused.get((send.to, type(said), of))
                if last_ms is not None and now_ms - last_ms < self.heartbeat_ms:
                    self.broken.append(f"{said} twice within a heartbeat")
                self.refused[send.to, type(said), of] = now_ms
        return effects

    def look(self, heard: Message, sends: list[Send]) -> None:
        if is_refusal(heard) and isinstance(heard, Stale | Ahead | VoteReply) and sends:
            self.broken.append(f"{heard} was answered by {sends[0]}")
        for kinds in (True, False):
            receivers = [send.to for send in sends if isinstance(send.message, ANSWERS) is kinds]
            if len(receivers) != len(set(receivers)):
                self.broken.append(f"{heard} gave {sends}")


def watched(plan: Plan, seed: int, cls: type[RaftStrategy] | None = None) -> list[str]:
    """One trial; what broke E1."""
    broken: list[str] = []
    trial = trial_of(plan, seed)
    maker: Callable[..., Any] = trial.world.maker

    def made(node: Any, seat: Any, kept: Any) -> Any:
        machine = maker(node, seat, kept)
        if cls is not None:
            machine = cls(seat, node.timing, kept, machine.state.options)
        return Watched(machine, node.timing.heartbeat_ms, broken)

    trial.world.maker = made
    trial.run()
    return broken


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("strategy", ["raft", "lease", "bully", "ring"])
def test_E1_no_step_of_any_machine_answers_a_refusal_or_multiplies_a_message(strategy: str, seed: int) -> None:
    broken = watched(Plan(strategy, 3 + seed % 3, "lab", 1.0), seed)
    assert not broken, broken[:3]


@pytest.mark.later
def test_E1_taken_out_a_repeated_datagram_is_refused_again() -> None:
    plan = Plan("raft", 5, "lab", 1.0, ("lossy", "duplicate", "partition"), draw=False)
    assert any("twice within a heartbeat" in text for text in watched(plan, 3, RefusesEach))
    assert not watched(plan, 3)
