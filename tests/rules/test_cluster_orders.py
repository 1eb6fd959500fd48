"""Nodes that tell each other beside the election: orders that are passed on, events, alerts, the last words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest

from primacy.agent import gossip
from primacy.agent.gossip import Gossip
from primacy.control import Heard, NodeStatus, gossip_rows
from primacy.control.cluster import cluster
from primacy.control.gossip_rows import GossipEvent, event_row
from primacy.control.requests import target_of
from primacy.control.summary import SENT_AT, row_of
from primacy.election.model import Role
from primacy.errors import Later, NotReached, Refused, UsageError
from primacy.node.clock import HandClock
from primacy.transport import MemoryNet, MemoryTransport
from tests.support.control_harness import FOLLOWS, NOW_MS, RUNS, SETTINGS, VIEW, Work, node_status, seen
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.real_time

LIMIT_S = 30.0


def test_news_that_waited_while_we_stood_still_are_as_old_as_they_are() -> None:
    """The last word of a killed leader, read after a pause of our own, is no claim of now."""

    async def story(a: Harness, _b: Harness, _: MemoryNet) -> None:
        a.clock.ms = 100_000
        for number in range(30):  # another clock, another start of counting
            a.clock.ms += 1_000
            a.talk.hear("b", 5, row_of(RUNS, 7_000_000 + 1_000 * number))
            assert a.talk.others["b"].at_ms == a.clock.ms
        last_ms = 7_000_000 + 29_000
        a.clock.ms += 5_000  # we stood still; b said one more thing a second after its last, and was killed
        a.talk.hear("b", 5, row_of(RUNS, last_ms + 1_000))
        assert a.clock.ms - a.talk.others["b"].at_ms == 4_000
        c = RUNS._replace(token=9, run_ms=3_500)
        a.talk.hear("c", 6, row_of(c, 50))
        said = cluster(a.status())
        assert (said["acting"], said["alerts"]) == (["c"], [])
        a.talk.hear("b", 6, row_of(RUNS, 10))  # a new start has a new clock
        assert a.talk.others["b"].at_ms == a.clock.ms
        for wrong in (None, "x", -1, 0, True, 2**80):
            a.talk.hear("b", 6, [*row_of(RUNS)[:SENT_AT], wrong])
            assert a.talk.others["b"].at_ms == a.clock.ms
        a.talk.hear("b", 6, row_of(RUNS)[:SENT_AT])

    together(story)


class Harness:
    """An agent, as far as its gossip knows it."""

    def __init__(self, net: MemoryNet, node: str) -> None:
        self.node = node
        self.done: list[tuple[str, dict[str, Any], str]] = []
        self.events: list[tuple[str, GossipEvent]] = []
        self.alerts: list[str] = []
        self.refuses: Exception | None = None
        self.shown = node_status(FOLLOWS, Work(state="stopped", pid=0))._replace(node=node, settings=SETTINGS)
        self.clock = HandClock()
        others = tuple(name for name in ("a", "b") if name != node)
        self.transport = MemoryTransport(net, node, others)
        self.talk = Gossip(node, others, self.transport, self.clock, self, self, self.carry_out)

    def status(self) -> NodeStatus:
        others = self.talk.others
        return self.shown._replace(now_ms=self.clock.now_ms(), others=others)

    async def carry_out(self, name: str, body: dict[str, Any], said_at: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.done.append((name, body, said_at))

    def heard_event(self, node: str, event: GossipEvent) -> None:
        self.events.append((node, event))

    def alert(self, sentence: str) -> None:
        self.alerts.append(sentence)


def together(story: Callable[[Harness, Harness, MemoryNet], Awaitable[None]]) -> None:
    async def whole() -> None:
        net = MemoryNet()
        a, b = Harness(net, "a"), Harness(net, "b")
        for harness in (a, b):
            await harness.transport.start(lambda _: None, harness.talk.hear)
            harness.talk.start()

        async def deliver() -> None:
            while True:
                net.deliver()
                await asyncio.sleep(0.005)

        delivering = asyncio.create_task(deliver())
        try:
            await asyncio.wait_for(story(a, b, net), 2 * LIMIT_S)
        finally:
            delivering.cancel()
            a.talk.close()
            b.talk.close()

    asyncio.run(whole())


until = partial(wait_until_async, within_s=LIMIT_S, every_s=0.005)


def test_nodes_know_how_the_others_stand_and_what_happened_there() -> None:
    async def story(a: Harness, b: Harness, _: MemoryNet) -> None:
        await until(lambda: "b" in a.talk.others and "a" in b.talk.others)
        assert a.talk.others["b"].summary.role == "follower"
        b.shown = b.shown._replace(view=VIEW)
        b.talk.changed()
        await until(lambda: a.talk.others["b"].summary.role == "leader")
        event = GossipEvent(1, 7, "elected", "b leads (term 7)", 0)
        b.talk.happened(event)
        await until(lambda: a.events == [("b", event)])
        assert b.events == []
        for number in range(1_000):
            b.talk.happened(GossipEvent(number, 0, "x", "", 0))
        await until(lambda: len(a.events) > 1)
        assert len(a.events) <= 1 + gossip.EVENTS_MAX, "a flood of events is cut off"

    together(story)


def test_an_order_is_done_once_however_often_it_arrives() -> None:
    async def story(a: Harness, b: Harness, net: MemoryNet) -> None:
        tells: list[list[Any]] = []
        plain = a.transport.tell

        def tell(to: str, row: list[Any], only: int = 0) -> int:
            tells.append(row)
            if len([each for each in tells if each[0] == gossip_rows.ORDER]) == 3:
                b.answers = True  # type: ignore[attr-defined]
            return plain(to, row, only)

        lost: list[Any] = []
        answering = b.transport.tell

        def answer(to: str, row: list[Any], only: int = 0) -> int:
            if row[0] == gossip_rows.ANSWER and not getattr(b, "answers", False):
                lost.append(row)
                return 1
            return answering(to, row, only)

        a.transport.tell, b.transport.tell = tell, answer  # type: ignore[method-assign]
        assert await a.talk.pass_on("b", "pause", {"node": "b"}) == b.shown.view.waits_for
        assert b.done == [("pause", {"node": "b"}, "a")]
        assert len(lost) == 2
        orders = [row for row in tells if row[0] == gossip_rows.ORDER]
        for row in orders:  # and whatever comes later
            b.talk.hear("a", 1, row)
        b.talk.hear("a", 2, orders[0])
        await until(lambda: len(b.done) > 1)
        assert len(b.done) == 2, "another start of its sender is another order"

    together(story)


def test_a_refusal_comes_back_as_it_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(a: Harness, b: Harness, _: MemoryNet) -> None:
        for error in (Refused("node b does not lead"), UsageError("to: the name of a node"), Later("in a moment")):
            b.refuses = error
            with pytest.raises(type(error), match=str(error)):
                await a.talk.pass_on("b", "transfer", {"to": "c"})
        with pytest.raises(UsageError, match="does not take this from another node"):
            await a.talk.pass_on("b", "init", {})
        b.refuses = None
        monkeypatch.setattr(gossip, "DONE_MAX", 3)
        with pytest.raises(Refused, match="too many orders"):
            await a.talk.pass_on("b", "pause", {})
        b.clock.ms += gossip.DONE_MS + 1
        assert await a.talk.pass_on("b", "pause", {}) == b.shown.view.waits_for

    together(story)


def test_who_does_not_answer_was_not_reached_and_who_started_anew_is_not_told_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gossip, "TRY_S", 0.02)

    async def story(a: Harness, b: Harness, _: MemoryNet) -> None:
        b.transport.close()
        with pytest.raises(NotReached, match="node b was not reached"):
            await a.talk.pass_on("b", "pause", {})
        starts = chain((0, 5, 5), repeat(6))
        a.transport.tell = lambda to, row, only=0: next(starts)  # type: ignore[method-assign]
        with pytest.raises(NotReached, match="node b was started anew before it answered"):
            await a.talk.pass_on("b", "step-down", {})
        assert b.done == []

    together(story)


def test_an_alarm_is_said_once() -> None:
    async def story(a: Harness, b: Harness, _: MemoryNet) -> None:
        a.shown = a.shown._replace(config="00" * 16)
        b.shown = b.shown._replace(config="11" * 16)
        a.talk.changed()
        await until(lambda: a.alerts and b.alerts)
        for _ in range(3):
            a.talk._tell()
        assert len(a.alerts) == 1
        assert "another configuration" in a.alerts[0]

    together(story)


def test_an_alarm_of_bully_and_ring_must_last() -> None:
    """One that was frozen says with its first word that it still leads, and with its next one that it does not."""

    async def story(a: Harness, _: Harness, __: MemoryNet) -> None:
        a.shown = seen(view=VIEW, work=Work(since_ms=NOW_MS - 10_000))._replace(at_most_one=False)
        a.clock.ms = NOW_MS

        def look(after_ms: int, *, claims: bool) -> int:
            a.clock.ms += after_ms
            b = Heard(RUNS if claims else RUNS._replace(workload_state="stopped", run_ms=-1), 1, a.clock.ms)
            a.talk.others = {"b": b}
            a.talk._tell()
            return len(a.alerts)

        almost_ms = gossip.STAYS_MS - 100
        assert look(0, claims=True) == 0
        assert look(almost_ms, claims=True) == 0
        assert look(50, claims=False) == 0
        assert look(almost_ms, claims=True) == 0, "it begins again"
        assert look(almost_ms, claims=True) == 0
        assert look(100, claims=True) == 1
        assert "nodes a and b both run the command" in a.alerts[0]

    together(story)


def test_what_is_passed_on_late_does_not_replace_what_a_node_said_itself_and_its_last_word_is_told() -> None:
    async def story(a: Harness, b: Harness, _: MemoryNet) -> None:
        b.clock.ms = 100_000
        await until(lambda: "b" in a.talk.others)
        b.shown = b.shown._replace(view=VIEW, workload=Work(since_ms=NOW_MS - 10_000))
        b.talk.changed()
        await until(lambda: a.talk.others["b"].summary.workload_state == "running")
        old = row_of(a.talk.others["b"].summary, a.talk._senders["b"].sent_ms)
        b.clock.ms += 10
        b.shown = b.shown._replace(view=FOLLOWS, workload=Work(state="stopped"), at_most_one=False)
        b.talk.close()
        await until(lambda: a.talk.others["b"].summary.workload_state == "stopped")
        a.talk.hear("b", a.talk.others["b"].boot, old)
        assert a.talk.others["b"].summary.workload_state == "stopped"

    together(story)


def test_whom_an_order_is_for() -> None:
    leads, follows = node_status(), node_status(FOLLOWS)
    assert target_of("step-down", {}, leads) == ""
    assert target_of("step-down", {}, follows) == "b"
    assert target_of("transfer", {"to": "a"}, follows) == "b"
    assert target_of("step-down", {}, node_status(FOLLOWS._replace(leader="", role=Role.CANDIDATE))) == ""
    for name in ("pause", "resume", "approve"):
        assert target_of(name, {}, leads) == ""
        assert target_of(name, {"node": "a"}, leads) == ""
        assert target_of(name, {"node": "b"}, leads) == "b"
        for wrong in ("zz", 7, ["b"], {}):
            with pytest.raises(UsageError, match="no node of this cluster"):
                target_of(name, {"node": wrong}, leads)
    assert target_of("init", {"node": "b"}, leads) == ""


def test_a_node_that_goes_wrong_does_not_push_others_out_of_the_log_and_the_last_words_are_told() -> None:
    async def story(a: Harness, b: Harness, _: MemoryNet) -> None:
        row = event_row(GossipEvent(1, 0, "x", "", 0))
        for _ in range(500):
            a.talk.hear("b", 1, row)
        assert len(a.events) == gossip.EVENTS_MAX
        a.clock.ms += 4 * gossip.EVENT_EVERY_MS
        for _ in range(500):
            a.talk.hear("b", 1, row)
        assert len(a.events) == gossip.EVENTS_MAX + 4
        a.events.clear()
        a.clock.ms += 60_000
        b.talk.happened(GossipEvent(2, 7, "stopping", "b is stopping", 0))
        b.talk.close()
        await until(lambda: ("b", GossipEvent(2, 7, "stopping", "b is stopping", 0)) in a.events)

    together(story)
