"""The driver: effects in order, a failed save, the one timer; and a node that is alone leads by itself (M3, M4)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from primacy.election.effects import Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.inputs import (
    DeadlinePassed,
    Input,
    Pause,
    PersistFailed,
    Received,
    Resume,
    RunLock,
    Shutdown,
    Started,
    WorkGone,
    WorkStarted,
)
from primacy.election.messages import Heartbeat, Message, Origin, Query, Release
from primacy.election.model import Ballot, Leadership, Membership, Role, Seat, View
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.node.ballot import MemoryDurable
from primacy.node.clock import HandClock, SystemClock
from primacy.node.driver import Driver
from primacy.settings.timing import PROFILES

pytestmark = pytest.mark.real_time

CALM = PROFILES["wan"]
"""No machine is so slow that a node alone would lose its hold, or that its wait of P could be taken for none."""
LIMIT_S = 30.0
BALLOT = Ballot(1, 1, "", 500, 1, 1, ())
LEADS = Leadership("a", 1, 2, 20_000)


class Work:
    """Notes what it is asked for, in the common list."""

    def __init__(self, did: list[Any]) -> None:
        self.did = did

    def start(self, leadership: Leadership, release: Release | None, covered: bool) -> None:
        self.did.append(("start", leadership.term))

    def extend(self, leadership: Leadership) -> None:
        self.did.append(("extend", leadership.term))

    def stop(self, term: int, reason: str, planned: bool) -> None:
        self.did.append(("stop", term, planned))

    def release(self, term: int, successor: str) -> None:
        self.did.append(("release", term))


class Wire:
    def __init__(self, did: list[Any]) -> None:
        self.did = did

    def send(self, to: str, message: Message) -> None:
        self.did.append(("send", to))


class Script:
    """A strategy that answers as it was told to, and notes what it heard."""

    def __init__(self, did: list[Any], answers: dict[type, list[Effect]]) -> None:
        self.did = did
        self.answers = answers
        self.deadline_ms: int | None = None

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        self.did.append(given)
        return self.answers.get(type(given), [])

    def view(self, now_ms: int) -> View:
        return View(Role.FOLLOWER, "", 0, "", 0, 0, (), "")


class Disk(MemoryDurable):
    def __init__(self, did: list[Any]) -> None:
        super().__init__()
        self.did = did

    def save(self, ballot: Ballot) -> None:
        super().save(ballot)
        self.did.append("saved")


def scripted(answers: dict[type, list[Effect]]) -> tuple[Driver, list[Any], Disk, Script]:
    did: list[Any] = []
    disk, script = Disk(did), Script(did, answers)

    def heard(events: Sequence[Event]) -> None:
        did.extend(event.code for event in events)

    return Driver(script, HandClock(), disk, Work(did), heard, Wire(did)), did, disk, script


EVERYTHING: list[Effect] = [
    Stop(1, "", True),
    Persist(BALLOT),
    Send("b", Query(Origin("a"), True)),
    Start(LEADS),
    Extend(LEADS),
    OrderRelease(1),
    Record(Event(Code.ELECTED)),
]


def test_effects_are_performed_in_their_order() -> None:
    async def scene() -> None:
        driver, did, _, _ = scripted({Started: EVERYTHING})
        driver.give(Started())
        assert did == [
            Started(),
            ("stop", 1, True),
            "saved",
            ("send", "b"),
            ("start", 1),
            ("extend", 1),
            ("release", 1),
            Code.ELECTED,
        ]

    asyncio.run(scene())


def test_a_failed_save_drops_the_rest_and_is_told_before_anything_else() -> None:
    async def scene() -> None:
        driver, did, disk, _ = scripted({Started: EVERYTHING})
        disk.fails = OSError(errno.ENOSPC, "No space left on device")
        driver.work.stop = lambda *_: driver.give(Pause())  # type: ignore[method-assign]
        driver.give(Started())
        assert did == [Started(), PersistFailed("No space left on device"), Pause()]

    asyncio.run(scene())


def test_what_a_port_says_while_it_is_used_comes_after_the_step() -> None:
    async def scene() -> None:
        driver, did, _, _ = scripted({Started: EVERYTHING})
        driver.work.start = lambda *_: driver.give(Pause())  # type: ignore[method-assign]
        driver.give(Started())
        assert did[-2:] == [Code.ELECTED, Pause()]

    asyncio.run(scene())


def test_a_closed_driver_makes_no_step() -> None:
    async def scene() -> None:
        driver, did, _, _ = scripted({Started: EVERYTHING})
        driver.close()
        driver.give(Started())
        assert did == []

    asyncio.run(scene())


def test_a_message_like_the_last_one_takes_the_short_way() -> None:
    """Its effects are done at once; what the strategy does not take there, and what comes meanwhile, makes a step."""
    like, other = Heartbeat(Origin("b"), 1, 1, 500, True), Query(Origin("b"), True)

    async def scene() -> None:
        driver, did, _, script = scripted({})

        def again(now_ms: int, message: Message | None) -> list[Effect] | None:
            if message is other:
                return None
            script.deadline_ms = now_ms + 50
            return [Send("b", like), Extend(LEADS)]

        driver.again = again
        driver.hear(like)
        assert did == [("send", "b"), ("extend", 1)]
        assert driver._armed_ms == script.deadline_ms
        driver.hear(other)
        assert did[2:] == [Received(other)]
        driver.work.extend = lambda _: (driver.give(Pause()), driver.hear(like))  # type: ignore[assignment, func-returns-value]
        driver.hear(like)
        assert did[3:] == [("send", "b"), Pause(), Received(like)]
        driver.close()
        driver.hear(like)
        assert len(did) == 6

    asyncio.run(scene())


def test_heartbeats_and_acks_are_no_news_and_all_else_is() -> None:
    heartbeat, question = Heartbeat(Origin("a"), 1, 1, 500, True), Query(Origin("a"), True)
    quiet: list[Effect] = [Send("b", heartbeat), Extend(LEADS)]

    async def scene() -> None:
        for given, effects, news in (
            (DeadlinePassed(), quiet, False),
            (Received(heartbeat), quiet, False),
            (Pause(), quiet, True),
            (DeadlinePassed(), [Send("b", question)], True),
            (Received(heartbeat), [Record(Event(Code.CAMPAIGNS, 1))], True),
        ):
            driver, _, _, _ = scripted({type(given): effects})  # type: ignore[dict-item]
            told: list[bool] = []
            driver.stepped = lambda told=told: told.append(True)  # type: ignore[misc]
            driver.give(given)
            assert told == [True] * news, (given, effects)

    asyncio.run(scene())


def test_one_timer_for_the_deadline_of_the_machine() -> None:
    async def scene() -> None:
        driver, did, _, script = scripted({})
        clock = driver.clock
        assert isinstance(clock, HandClock)
        script.deadline_ms = clock.ms + 3_600_000
        driver.give(Started())
        script.deadline_ms = clock.ms + 1
        driver.give(Pause())
        clock.ms += 1
        script_step = script.step

        def step(now_ms: int, given: Input) -> list[Effect]:
            script.deadline_ms = None
            woken.set()
            return script_step(now_ms, given)

        woken = asyncio.Event()
        script.step = step  # type: ignore[method-assign]
        await asyncio.wait_for(woken.wait(), LIMIT_S)
        assert did[-1] == DeadlinePassed()
        assert driver._armed_ms is None

    asyncio.run(scene())


# --- a node that is alone ---------------------------------------------------------------------------------------------


class Alone:
    """A real strategy of one node, its disk in memory, its work done by hand."""

    def __init__(self, ballot: Ballot | None = None, *, auto: bool = True) -> None:
        self.did: list[Any] = []
        self.events: list[Code] = []
        self.disk = MemoryDurable(ballot)
        seat = Seat("a", 7, Membership.of(["a"], "list"), Random(1))
        self.strategy = RaftStrategy(seat, CALM, ballot, RaftOptions(auto=auto))
        self.driver = Driver(self.strategy, SystemClock(), self.disk, Work(self.did), self.heard)
        self.started = asyncio.Event()
        self.driver.stepped = lambda: self.started.set() if any(d[0] == "start" for d in self.did) else None

    def heard(self, events: Sequence[Event]) -> None:
        self.events += [event.code for event in events]

    async def leads(self, within_s: float) -> None:
        await asyncio.wait_for(self.started.wait(), within_s)
        assert self.strategy.view(self.driver.clock.now_ms()).role is Role.LEADER


def test_a_node_alone_leads_at_once_at_its_first_start_and_at_the_next() -> None:
    """No wait of P, which is ten seconds in this profile: the free run lock takes its place."""

    async def scene() -> None:
        first = Alone()
        first.driver.give(Started(SystemClock().wall_ms()))
        await first.leads(within_s=CALM.promise_ms / 2_000)
        kept = first.disk.ballot
        first.driver.close()
        assert kept is not None
        assert kept.term == 1
        second = Alone(kept)
        second.driver.give(Started(SystemClock().wall_ms()))
        await second.leads(within_s=CALM.promise_ms / 2_000)
        assert second.did[0] == ("start", 2)
        second.driver.close()

    asyncio.run(scene())


def test_a_held_run_lock_keeps_it_from_standing_until_it_is_free() -> None:
    async def scene() -> None:
        node = Alone()
        node.driver.give(Started(SystemClock().wall_ms(), lock_held=True))
        with pytest.raises(TimeoutError):
            await node.leads(within_s=0.05)
        assert node.did == []
        node.driver.give(RunLock(False))
        await node.leads(within_s=CALM.promise_ms / 2_000)
        node.driver.close()

    asyncio.run(scene())


def test_it_renews_its_own_hold_and_releases_in_order() -> None:
    async def scene() -> None:
        node = Alone()
        node.driver.give(Started(SystemClock().wall_ms()))
        await node.leads(LIMIT_S)
        node.driver.give(WorkStarted(1))
        extended, extend = asyncio.Event(), node.driver.work.extend

        def noted(leadership: Leadership) -> None:
            extend(leadership)
            extended.set()

        node.driver.work.extend = noted  # type: ignore[method-assign]
        await asyncio.wait_for(extended.wait(), LIMIT_S)
        assert ("extend", 1) in node.did
        node.driver.give(Shutdown())
        assert node.did[-2:] == [("stop", 1, True), ("release", 1)]
        node.driver.give(WorkGone(1, True))
        assert node.events[-2:] == [Code.RELEASED, Code.RELEASE_APPLIED]
        node.driver.give(Resume())
        node.driver.close()

    asyncio.run(scene())


def test_a_disk_that_fails_keeps_it_from_leading_until_it_is_well() -> None:
    async def scene() -> None:
        node = Alone()
        node.disk.fails = OSError(errno.ENOSPC, "No space left on device")
        node.driver.give(Started(SystemClock().wall_ms()))
        with pytest.raises(TimeoutError):
            await node.leads(within_s=0.12)
        assert Code.DISK_FAILED in node.events
        assert "No space left" in node.strategy.view(node.driver.clock.now_ms()).waits_for
        node.disk.fails = None
        await node.leads(LIMIT_S)
        node.driver.close()

    asyncio.run(scene())


def test_without_the_first_start_it_waits_for_the_word() -> None:
    async def scene() -> None:
        node = Alone(auto=False)
        node.driver.give(Started(SystemClock().wall_ms()))
        assert node.strategy.view(node.driver.clock.now_ms()).role is Role.RECOVERING
        node.driver.close()

    asyncio.run(scene())
