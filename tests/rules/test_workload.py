"""A workload inside of the agent's own process: started and stopped one after the other, confirmed, and released."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from primacy.election.inputs import Input, RunLock, WorkDeferred, WorkGone, WorkStarted
from primacy.election.messages import Origin, Release
from primacy.election.model import Leadership
from primacy.errors import InUse
from primacy.node.clock import SystemClock
from primacy.settings.timing import PROFILES
from primacy.supervise.gate import Gate, Rule
from primacy.supervise.start_gate import StartGate
from primacy.supervise.vocabulary import Note, State
from primacy.supervise.workload import HostedWorkload, Nothing, Spans

pytestmark = pytest.mark.real_time

TIMING = PROFILES["lan"]


class Slow:
    """Takes as long as it is told to, and may refuse."""

    kind = "slots"

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.may_stop = asyncio.Event()
        self.refuses = False

    async def start(self, leadership: Leadership) -> None:
        if self.refuses:
            raise InUse("the port is taken")
        self.said.append(("start", leadership.term))

    async def stop(self, within_ms: int, reason: str) -> None:
        self.said.append(("stop", within_ms, reason))
        if within_ms:
            await self.may_stop.wait()

    async def close(self) -> None:
        self.said.append("close")


class FreeLock:
    held = False
    may_start = True

    def is_held(self) -> bool:
        return self.held


class Bench:
    """The host of a workload, which notes what it is told, in order."""

    def __init__(self, workload: Any, *, manual: bool = False) -> None:
        self.told: list[Any] = []
        self.lock = FreeLock()
        clock = SystemClock()
        self.gate = StartGate(Gate(TIMING, Rule(manual=manual), "a"), clock, (), "/", lambda _: {})
        self.workload = HostedWorkload(
            workload, Spans(3_000, 1_100), clock, self.lock, self, self.gate, self.told.append
        )  # type: ignore[arg-type]
        self.now_ms = clock.now_ms()

    def lead(self, term: int = 1) -> None:
        """With a hold that no machine is too slow for."""
        leadership = Leadership("a", term, term, self.now_ms + 3_600_000)
        self.workload.start(leadership, Release(Origin("a"), term), covered=False)

    def tell(self, given: Input) -> None:
        self.told.append(given)

    def note(self, note: Note) -> None: ...

    def complain(self, sentence: str) -> None:
        self.told.append(sentence)

    def give_up(self, code: int) -> None: ...

    def stepped(self) -> None: ...


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(whole())


async def settled(bench: Bench) -> None:
    """Whatever is under way and waits for nobody is done."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_it_starts_is_stopped_confirmed_and_then_released() -> None:
    """The release leaves when nothing is left, and before the election hears of it: it binds us as it binds others."""

    async def story() -> None:
        slow = Slow()
        bench = Bench(slow)
        bench.lead()
        assert bench.workload.state is State.STARTING
        await settled(bench)
        assert (bench.workload.state, bench.workload.term, bench.told) == (State.RUNNING, 1, [WorkStarted(1)])
        assert bench.workload.view().kind == "slots"
        bench.workload.stop(1, "step-down", planned=True)
        bench.workload.release(1, "b")
        await settled(bench)
        assert slow.said == [("start", 1), ("stop", 3_000, "step-down")]
        assert (bench.workload.state, bench.workload.is_over) == (State.STOPPING, False)
        assert bench.told == [WorkStarted(1)], "nothing is confirmed before it is so"
        slow.may_stop.set()
        await settled(bench)
        assert bench.told[1:] == [Release(Origin("a"), 1, "b"), WorkGone(1, released=True)]
        assert bench.workload.is_over
        await bench.workload.close()

    play(story)


def test_a_loss_has_less_time_and_without_an_order_nothing_is_released() -> None:
    async def story() -> None:
        slow = Slow()
        slow.may_stop.set()
        bench = Bench(slow)
        bench.lead()
        await settled(bench)
        bench.workload.stop(2, "another term", planned=False)
        bench.workload.stop(1, "majority-lost", planned=False)
        bench.workload.stop(1, "majority-lost", planned=False)
        await settled(bench)
        assert slow.said[1:] == [("stop", 1_100, "majority-lost")], "once, and for its own term only"
        assert bench.told == [WorkStarted(1), WorkGone(1, released=False)]

    play(story)


def test_a_stop_that_comes_during_the_start_waits_for_it() -> None:
    async def story() -> None:
        slow = Slow()
        slow.may_stop.set()
        bench = Bench(slow)
        bench.lead()
        bench.workload.stop(1, "lost", planned=False)
        await settled(bench)
        assert [each[0] for each in slow.said] == ["start", "stop"]
        assert bench.told == [WorkGone(1, released=False)], "it never ran, as far as the election is told"

    play(story)


def test_one_that_cannot_start_lets_another_node_lead() -> None:
    async def story() -> None:
        slow = Slow()
        slow.refuses = True
        bench = Bench(slow)
        bench.lead()
        await settled(bench)
        assert bench.told == [
            "cannot do what a leader does, and lets another one lead: the port is taken",
            WorkGone(1, released=False),
        ]
        assert bench.workload.is_over

    play(story)


def test_whoever_asks_twice_for_the_end_does_not_wait() -> None:
    async def story() -> None:
        slow = Slow()
        bench = Bench(slow)
        bench.lead()
        await settled(bench)
        bench.workload.hurry()
        assert bench.workload.state is State.RUNNING, "nobody asked for its end yet"
        bench.workload.stop(1, "stopping", planned=True)
        await settled(bench)
        bench.workload.hurry()
        await settled(bench)
        assert slow.said[-1] == ("stop", 0, "was asked to end again")
        assert bench.told[-1] == WorkGone(1, released=False)

    play(story)


def test_the_end_of_the_agent_cuts_off_what_still_runs() -> None:
    async def story() -> None:
        slow = Slow()
        bench = Bench(slow)
        bench.lead()
        await settled(bench)
        await bench.workload.close()
        assert slow.said[-2:] == [("stop", 0, "the node ends"), "close"]

    play(story)


def test_it_waits_at_the_gate_like_a_command() -> None:
    async def story() -> None:
        bench = Bench(Nothing(), manual=True)
        bench.lead(4)
        assert (bench.workload.state, bench.workload.term) == (State.WAITING, 4)
        assert isinstance(bench.told[0], WorkDeferred)
        bench.workload.stop(4, "lost", planned=False)
        assert bench.told[-1] == WorkGone(4, released=False), "nothing of it ever ran"
        bench.lead(5)
        bench.gate.approve(5, "an operator")
        await settled(bench)
        assert bench.told[-1] == WorkStarted(5)
        assert bench.workload.view()[:2] == ("none", State.RUNNING)

    play(story)


def test_a_command_of_an_earlier_agent_is_waited_for() -> None:
    async def story() -> None:
        bench = Bench(Nothing())
        bench.lock.held = True
        bench.workload.watch_lock()
        assert bench.told == []
        bench.lock.held = False
        while not bench.told:
            await asyncio.sleep(0.02)
        assert bench.told == [RunLock(held=False)]

    play(story)
