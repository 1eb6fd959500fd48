"""What this node and the others tell each other beside the election: how each stands, what happened, and orders.

How a node stands goes to all others once a second, more often while it holds something short, and soon after a change:
also without a leader, and also from a node that is mute. Events go along as they happen, and may be lost. An order is
repeated until it is answered, and done once: its receiver knows its number, and a receiver that was started anew in
between is not told again.

Nothing here decides anything, and nothing is sent while an election is being settled: it waits a moment.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from primacy.control import Heard, NodeStatus
from primacy.control.acting import CLAIM_MS
from primacy.control.cluster import alerts
from primacy.control.gossip_rows import (
    AGENT,
    DONE,
    LATER,
    REFUSED,
    WRONG,
    GossipEvent,
    GossipReply,
    GossipRequest,
    event_row,
    read,
    reply_row,
    request_row,
)
from primacy.control.placement import AGENT_REQUESTS
from primacy.control.requests import PASSED
from primacy.control.summary import SUMMARY, Delays, row_of, sent_in, summary_in, summary_of
from primacy.errors import Later, NotReached, PrimacyError, Refused, UsageError
from primacy.loop import timer
from primacy.node.clock import Clock
from primacy.rate_limiter import RateLimiter
from primacy.transport import Transport

NEWS_MS = 1_000
NEWS_LEAST_MS = 200
"""Between two of them, however much changes."""
SLACK_S = 0.3
"""What is told without a reason may wait for the next heartbeat, and leaves with it."""
STAYS_MS = CLAIM_MS + 500
"""Where one leader per island is all that is promised, an alert must last so long to be said: one that was frozen says
with its first word that it still leads, and with its next one that it does not."""
SOON_S = 0.05
"""After a change or an event: what it came from is finished first."""
EVENTS_MAX = 64
"""That wait to be told; more within a moment are lost."""
EVENT_EVERY_MS = 250
"""More than one event of a node in this time, but for `EVENTS_MAX` at once, are not taken into our log."""
TRIES = 16
TRY_S = 0.2
"""An order is given up after about three seconds, before a command gives up on its node."""
DONE_MAX = 256
"""Orders whose answers are remembered. More within `DONE_MS` are refused: no operator is so quick."""
DONE_MS = 60_000
ALERT_AGAIN_MS = 60_000
ALERTS_MAX = 256
"""Sentences that are remembered, so that the same is not said again before that."""


class OwnStatus(Protocol):
    """How this node stands."""

    def status(self) -> NodeStatus: ...


class GossipListener(Protocol):
    """Who is told what is heard."""

    def heard_event(self, node: str, event: GossipEvent) -> None: ...

    def alert(self, sentence: str) -> None: ...


class Sender:
    """Another node, as far as its words about itself go."""

    def __init__(self, boot: int) -> None:
        self.boot = boot
        self.delays = Delays()
        self.sent_ms = 0
        """When its newest summary was sent, on its own clock."""


class Gossip:
    """One node's words with the others."""

    def __init__(
        self,
        node: str,
        names: tuple[str, ...],
        transport: Transport,
        clock: Clock,
        own: OwnStatus,
        events: GossipListener,
        carry_out: Callable[[str, dict[str, Any], str], Awaitable[None]],
    ) -> None:
        """`names`: of the other nodes; whoever sees them change sets them.

        `carry_out`: does what another node passes on: its name, its fields, and who said it. Raises one of ours.
        """
        self.node = node
        self.names = names
        self.transport = transport
        self.clock = clock
        self.own = own
        self.events = events
        self.carry_out = carry_out
        self.others: dict[str, Heard] = {}
        self.of_agents: OfAgents | None = None
        self._told_ms = 0
        self._timer = timer(self._tell)
        self._events: deque[GossipEvent] = deque(maxlen=EVENTS_MAX)
        self._event_timer: asyncio.TimerHandle | None = None
        self._asked: dict[int, asyncio.Future[GossipReply]] = {}
        self._done: dict[tuple[str, int, int], tuple[int, GossipReply | None]] = {}
        """None: it is being done."""
        self._doing: set[asyncio.Task[None]] = set()
        self._alerted = RateLimiter(ALERT_AGAIN_MS, ALERTS_MAX)
        self._seen: dict[str, int] = {}
        """Since when each of the alerts of the last look has been found at every look."""
        self._allowed: dict[str, tuple[float, int]] = {}
        self._senders: dict[str, Sender] = {}
        self._started = self._closed = False

    def start(self) -> None:
        self._started = True
        self._timer.set(SOON_S)

    def close(self) -> None:
        """What happened last is still told: why this node went is what the others will be asked."""
        self._tell_events()
        if self._started and not self._closed:
            self._tell_last()
        self._closed = True
        self._timer.end()
        if self._event_timer is not None:
            self._event_timer.cancel()
        for answer in self._asked.values():
            answer.cancel()

    def _tell_last(self) -> None:
        """How it stands as it goes: without this the others would show its work as running.

        In bully and ring only. Where there is fencing, the last who is known to have run is of use after its end, too.
        """
        status = self.own.status()
        if not status.at_most_one:
            row = row_of(summary_of(status), status.now_ms)
            for name in self.names:
                self.transport.tell(name, row)

    # --- how this node stands -----------------------------------------------------------------------------------------

    def changed(self) -> None:
        """This node stands otherwise than before: that is told soon."""
        if not self._closed:
            since_ms = self.clock.now_ms() - self._told_ms
            self._timer.set(max(SOON_S, (NEWS_LEAST_MS - since_ms) / 1_000))

    def _tell(self) -> None:
        status = self.own.status()
        summary = summary_of(status)
        row = row_of(summary, status.now_ms)
        self._look_for_alerts(status)
        self._told_ms = status.now_ms
        for name in self.names:
            self.transport.tell(name, row, later=True)
        hold_left_ms, period_ms = summary.hold_left_ms, NEWS_MS
        if hold_left_ms:
            period_ms = min(NEWS_MS, max(NEWS_LEAST_MS, hold_left_ms * 2 // 3))
        self._timer.set(period_ms / 1_000, SLACK_S)

    def _look_for_alerts(self, status: NodeStatus) -> None:
        found = alerts(status)
        self._seen = {sentence: self._seen.get(sentence, status.now_ms) for sentence in found}
        for sentence in found:
            if not status.at_most_one and status.now_ms - self._seen[sentence] < STAYS_MS:
                continue
            if self._alerted.passes(status.now_ms, sentence):
                self.events.alert(sentence)

    # --- what happened ------------------------------------------------------------------------------------------------

    def happened(self, event: GossipEvent) -> None:
        """To all others, soon."""
        if self._closed:
            return
        self._events.append(event)
        if self._event_timer is None:
            self._event_timer = asyncio.get_running_loop().call_later(SOON_S, self._tell_events)

    def _tell_events(self) -> None:
        self._event_timer = None
        while self._events:
            row = event_row(self._events.popleft())
            for name in self.names:
                self.transport.tell(name, row)

    # --- what is heard ------------------------------------------------------------------------------------------------

    def hear(self, sender: str, boot: int, row: list[Any]) -> None:
        if row[0] == SUMMARY:
            self._hear_summary(sender, boot, row)
            return
        if row[0] == AGENT:
            if self.of_agents is not None:
                self.of_agents.heard(sender, row)
            return
        match read(row):
            case GossipEvent() as event:
                if self._may_tell(sender):
                    self.events.heard_event(sender, event)
            case GossipRequest() as order:
                self._on_order(sender, boot, order)
            case GossipReply() as answer:
                waiting = self._asked.get(answer.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _hear_summary(self, sender: str, boot: int, row: list[Any]) -> None:
        """At the moment at which it was said, on our clock: earlier than now if it waited for us."""
        known = self._senders.get(sender)
        if known is None or known.boot != boot:
            known = self._senders[sender] = Sender(boot)
        sent_ms = sent_in(row)
        if sent_ms is not None and sent_ms < known.sent_ms:
            return  # older than what it said itself meanwhile: another node passed it on
        summary = summary_in(row)
        if summary is None:
            return
        known.sent_ms = sent_ms or 0
        now_ms = self.clock.now_ms()
        delay_ms = 0 if sent_ms is None else known.delays.delay_ms(now_ms, sent_ms)
        self.others[sender] = Heard(summary, boot, now_ms - delay_ms)

    def _may_tell(self, sender: str) -> bool:
        """A node that goes wrong must not push what happened elsewhere out of our log."""
        now_ms = self.clock.now_ms()
        left, last_ms = self._allowed.get(sender, (float(EVENTS_MAX), now_ms))
        left = min(EVENTS_MAX, left + (now_ms - last_ms) / EVENT_EVERY_MS)
        self._allowed[sender] = (left - 1 if left >= 1 else left, now_ms)
        return left >= 1

    # --- orders -------------------------------------------------------------------------------------------------------

    async def pass_on(self, to: str, name: str, body: dict[str, Any]) -> str:
        """What the other node says to it. Raises `NotReached`, or what it refuses with."""
        number = secrets.randbits(62)
        row = request_row(GossipRequest(number, name, body))
        answer: asyncio.Future[GossipReply] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        start = 0
        try:
            for _ in range(TRIES):
                now = self.transport.tell(to, row, start)
                if start and now != start:
                    raise NotReached(
                        f"node {to} was started anew before it answered; whether it did this is not known: "
                        "primacy status"
                    )
                start = now
                done, _ = await asyncio.wait((answer,), timeout=TRY_S)
                if done:
                    return _outcome(answer.result())
        finally:
            del self._asked[number]
        raise NotReached(
            f"node {to} was not reached: no answer within {TRIES * TRY_S:.0f} s; if only its answers are lost, it may "
            "have done this: primacy status"
        )

    def _on_order(self, sender: str, boot: int, order: GossipRequest) -> None:
        key, now_ms = (sender, boot, order.number), self.clock.now_ms()
        if key not in self._done:
            while self._done and now_ms - next(iter(self._done.values()))[0] > DONE_MS:
                del self._done[next(iter(self._done))]
            if len(self._done) >= DONE_MAX:
                refusal = GossipReply(
                    order.number, REFUSED, f"node {self.node} was given too many orders; try again later"
                )
                self.transport.tell(sender, reply_row(refusal))
                return
            self._done[key] = (now_ms, None)
            doing = asyncio.get_running_loop().create_task(self._do(key, order))
            self._doing.add(doing)
            doing.add_done_callback(self._over)
        elif (reply := self._done[key][1]) is not None:
            self.transport.tell(sender, reply_row(reply))

    async def _do(self, key: tuple[str, int, int], order: GossipRequest) -> None:
        sender = key[0]
        reply = await self._carried_out(sender, order)
        self._done[key] = (self.clock.now_ms(), reply)
        if not self._closed:
            self.transport.tell(sender, reply_row(reply))

    def _over(self, doing: asyncio.Task[None]) -> None:
        """A fault of this code is told at once, and not when somebody misses the answer."""
        self._doing.discard(doing)
        if not doing.cancelled():
            doing.result()

    async def _agent_carried_out(self, sender: str, order: GossipRequest) -> GossipReply:
        assert self.of_agents is not None
        try:
            await self.of_agents.carry_out(order.name, order.body, sender)
        except UsageError as error:
            return GossipReply(order.number, WRONG, str(error))
        except PrimacyError as error:
            return GossipReply(order.number, REFUSED, str(error))
        return GossipReply(order.number, DONE, "")

    async def _carried_out(self, sender: str, order: GossipRequest) -> GossipReply:
        if self.of_agents is not None and order.name in AGENT_REQUESTS:
            return await self._agent_carried_out(sender, order)
        if order.name not in PASSED:
            return GossipReply(
                order.number, WRONG, f"{order.name}: node {self.node} does not take this from another node"
            )
        try:
            await self.carry_out(order.name, order.body, sender)
        except UsageError as error:
            return GossipReply(order.number, WRONG, str(error))
        except PrimacyError as error:
            return GossipReply(order.number, LATER if isinstance(error, Later) else REFUSED, str(error))
        return GossipReply(order.number, DONE, self.own.status().view.waits_for)


class OfAgents(Protocol):
    """What is said between agents with several elections, whichever of them carries it."""

    def heard(self, sender: str, row: list[Any]) -> None: ...

    async def carry_out(self, name: str, body: dict[str, Any], said_at: str) -> None: ...


def _outcome(answer: GossipReply) -> str:
    if answer.status == DONE:
        return answer.text
    raise {WRONG: UsageError, LATER: Later}.get(answer.status, Refused)(answer.text)
