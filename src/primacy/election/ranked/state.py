"""What a node of bully or ring is about, and its ways from one phase to the next.

Here are the bookkeeping and the timers of each phase. Which way is taken, and when, is
decided in `bully.py` and `ring.py`. A part that finds that an election is needed asks for one with `campaign`; the
strategy sees that phase in the same step and begins its round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from primacy.election.effects import Effect, Record, Send, Stop
from primacy.election.events import Code, Event
from primacy.election.messages import Alive, Coordinator, HeartbeatRequest, Origin
from primacy.election.model import Leadership, Seat
from primacy.election.ranked.fitness import Fitness
from primacy.election.ranked.rank import (
    EPOCH_JUMP_MAX,
    NO_HOLD_MS,
    RankOptions,
    detect_ms,
    paced,
    patience_span_ms,
    wait_ms,
)
from primacy.election.ranked.ranking import Ranking
from primacy.settings.timing import RankTiming


class Phase(StrEnum):
    """What a node is about. All but the first two have a timer running."""

    IDLE = "idle"
    """Before the start, after the end, or without a list."""
    CAMPAIGN = "campaign"
    """A round of its own is to begin, in this very step."""
    LOOK = "look"
    """Asks others who leads."""
    CALL = "call"
    """Its own round of an election runs."""
    WAIT = "wait"
    """Somebody else is to announce itself."""
    POLL = "poll"
    """It has won and counts who is there (`require_majority`)."""
    FOLLOW = "follow"
    LEAD = "lead"


ELECTING = (Phase.CALL, Phase.WAIT, Phase.POLL)
SETTLED = (Phase.FOLLOW, Phase.LEAD)


class Timer(StrEnum):
    """Fired in this order when several are due."""

    LIMIT = "limit"
    """Of the present phase."""
    HEARTBEAT = "heartbeat"
    """The next look at the leader, or the leader's next announcement."""
    GONE = "gone"
    """The last of the looks that may stay unanswered."""
    ACK = "ack"
    """Ring: the neighbour has not confirmed the baton. It belongs to a baton, not to a phase."""


TIMERS = tuple(Timer)


class State:
    """One node: its phase, whom it believes to lead, and the number of that leadership."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions, *, one_by_one: bool = False) -> None:
        self.seat = seat
        self.node = seat.node
        self.options = options
        self.timing = self._profile = timing
        self.random = seat.random
        self.origin = Origin(seat.node, boot=seat.boot, config=seat.membership.hash)
        self.ranking = Ranking(seat.node, seat.membership, options.rank, detect_ms(timing) + timing.heartbeat_ms)
        self.fitness = Fitness()
        self.phase = Phase.IDLE
        self.on_enter: tuple[Callable[[Phase], None], ...] = ()
        """Who keeps something that ends with a phase."""
        self.timers: dict[Timer, int] = {}
        self.leader = ""
        """Whom this node believes to lead; empty for nobody."""
        self.epoch = 0
        """The largest number of a leadership that it heard of."""
        self.led = 0
        """The number of its own leadership; 0 while it does not lead."""
        self.led_since_ms = 0
        self.leaving: str | None = None
        """It ends its leadership in order; in favour of this node, or of the highest if empty."""
        self.joined = False
        """It has taken part in this cluster since its start; until then a leader of any rank is welcome."""
        self.rounds = 0
        """Rounds in a row that brought no leader."""
        self.round = seat.random.getrandbits(31)
        """Numbers its rounds and its looks; random at first, so that answers to an earlier start fit none of them."""
        self.pending: dict[str, None] = {}
        """Who has still to answer in this phase."""
        self.awaited = ""
        """Who is to announce itself."""
        self.ended_ms: int | None = None
        """When somebody's announcement last ended an election of this node."""
        self._asked: dict[str, int] = {}
        """The number of the last look at each node."""
        self._one_by_one = one_by_one
        """A round goes from node to node (ring), not to all at once (bully)."""
        self._two_boots = False

    # --- time ---------------------------------------------------------------------------------------------------------

    def arm(self, timer: Timer, now_ms: int, span_ms: int) -> None:
        self.timers[timer] = now_ms + max(1, span_ms)

    def disarm(self, timer: Timer) -> None:
        self.timers.pop(timer, None)

    def due(self, now_ms: int) -> Iterator[Timer]:
        """One after the other, for what the first one does may end the next."""
        for timer in TIMERS:
            if self.timers.get(timer, now_ms + 1) <= now_ms:
                del self.timers[timer]
                yield timer

    def jitter(self, span_ms: int) -> int:
        """Up to a quarter, so that nodes which begin together do not go on together."""
        return self.random.randrange(span_ms // 4 + 1)

    @property
    def wait_ms(self) -> int:
        return wait_ms(self.timing)

    def patience_ms(self) -> int:
        """How long this round may take: longer after each that failed, with a bound. No storm over a one-way link."""
        hops = len(self.ranking.leaders) if self._one_by_one else 0
        first_ms, most_ms = patience_span_ms(self.timing, hops)
        span_ms = min(first_ms << min(self.rounds, 16), most_ms)
        return span_ms + (self.jitter(span_ms) if self.rounds else 0)

    def pace(self, factor: int) -> None:
        """From now on; what is being waited for keeps the limit that it has."""
        self.timing = paced(self._profile, max(1, factor))
        self.ranking.window_ms = detect_ms(self.timing) + self.timing.heartbeat_ms

    # --- from phase to phase ------------------------------------------------------------------------------------------

    def enter(self, phase: Phase) -> None:
        """The timers of a phase end with it; the ring's ack when there is a leader."""
        self.phase = phase
        for timer in (Timer.LIMIT, Timer.HEARTBEAT, Timer.GONE):
            self.disarm(timer)
        self.pending.clear()
        if phase in SETTLED:
            self.disarm(Timer.ACK)
            self.rounds = self.fitness.sits_out_ms = 0
            self.joined = True
        for entered in self.on_enter:
            entered(phase)

    def campaign(self, now_ms: int) -> list[Effect]:
        """A round of its own; one that cannot lead asks who does instead."""
        self.joined = True
        if not self.able(now_ms):
            return self.look_around(now_ms)
        self.enter(Phase.CAMPAIGN)
        return [Record(Event(Code.CAMPAIGNS, self.epoch))]

    def wait(self, now_ms: int, whom: str, span_ms: int) -> list[Effect]:
        """Somebody else is to announce itself, within the limit (B4)."""
        self.enter(Phase.WAIT)
        self.awaited = whom
        self.arm(Timer.LIMIT, now_ms, span_ms)
        return []

    def poll(self, now_ms: int) -> list[Effect]:
        """Asks all, to see whether a majority is there."""
        self.enter(Phase.POLL)
        self.arm(Timer.LIMIT, now_ms, self.timing.answer_ms)
        return [self.ask(name) for name in self.ranking.others]

    def poll_failed(self, now_ms: int) -> list[Effect]:
        self.rounds += 1
        self.leader = ""
        few = Event(Code.MAJORITY_LOST, self.epoch, "", "too few nodes answer to lead")
        return [Record(few), *self.wait(now_ms, "", self.patience_ms())]

    def follow(self, now_ms: int, leader: str) -> list[Effect]:
        if not self.fitness.up:
            return []
        changed = leader != self.leader
        if self.phase in ELECTING:
            self.ended_ms = now_ms
        self.enter(Phase.FOLLOW)
        self.leader = leader
        self.arm(Timer.HEARTBEAT, now_ms, self.random.randint(1, max(1, self.timing.heartbeat_ms)))
        return [Record(Event(Code.FOLLOWS, self.epoch, leader))] if changed else []

    def lead(self, now_ms: int) -> Leadership:
        self.enter(Phase.LEAD)
        self.epoch += 1
        self.led = self.fitness.work = self.epoch
        self.led_since_ms = now_ms
        self.leader = self.node
        return Leadership(self.node, self.led, 0, NO_HOLD_MS)

    def prune(self, now_ms: int) -> list[Effect]:
        """The leader leaves out of elections who was silent for too long."""
        limit_ms = self.options.prune_after_ms
        dead = self.ranking.prune(now_ms, self.led_since_ms, limit_ms) if limit_ms > 0 else ()
        return [Record(Event(Code.PRUNED, self.led, name, f"{name} was silent for {limit_ms} ms")) for name in dead]

    def resign(self, code: Code, subject: str, detail: str) -> list[Effect]:
        """Leads no more, at once. What comes next is the caller's to say."""
        effects: list[Effect] = [Record(Event(code, self.led, subject, detail)), Stop(self.led, code.value, False)]
        self.halt()
        self.fitness.up = not self.fitness.stopping
        return effects

    def halt(self) -> None:
        """Nothing more is done or waited for."""
        self.enter(Phase.IDLE)
        self.timers.clear()
        self.led, self.leader, self.leaving = 0, "", None

    def wake_up(self, now_ms: int, deadline_ms: int | None) -> list[Effect]:
        """It was stopped for so long that the others must have gone on without it, and comes back as a follower.

        What it believed is old, and its overdue waits prove nothing about others.
        """
        if deadline_ms is None or now_ms - deadline_ms <= detect_ms(self.timing) or not self.ranking.others:
            return []
        effects = self.resign(Code.OVERSLEPT, "", "it was stopped meanwhile") if self.phase is Phase.LEAD else []
        self.timers.clear()
        self.joined = False
        return effects + self.look_around(now_ms)

    # --- asking others ------------------------------------------------------------------------------------------------

    def ask(self, node: str) -> Effect:
        number = self._asked.get(node, self.round) + 1
        self._asked[node] = number
        return Send(node, HeartbeatRequest(self.origin, number))

    def expected(self, sender: str, number: int) -> bool:
        """An answer to a recent look. Real nodes of Ghoti give no number, but their calls end in time or fail."""
        asked = self._asked.get(sender, -1)
        return number == 0 or 0 <= asked - number <= 1 + self.timing.answer_ms // max(1, self.timing.heartbeat_ms)

    def look_around(self, now_ms: int) -> list[Effect]:
        """Asks all who leads.

        Long enough to hear an announcement too; shorter for the first node of a cluster, so that it is heard.
        """
        answer_ms, heartbeat_ms = self.timing.answer_ms, self.timing.heartbeat_ms
        first_ms = answer_ms if self.options.bootstrap else max(answer_ms, heartbeat_ms + heartbeat_ms // 2)
        return self.look(now_ms, self.ranking.others, self.patience_ms() if self.rounds else first_ms)

    def look(self, now_ms: int, whom: tuple[str, ...], span_ms: int) -> list[Effect]:
        if not self.fitness.up:
            return []
        self.enter(Phase.LOOK)
        self.leader = ""
        self.arm(Timer.LIMIT, now_ms, span_ms + self.jitter(self.timing.heartbeat_ms))
        self.pending = dict.fromkeys(whom)
        return [self.ask(name) for name in whom]

    # --- what it says, and may ---------------------------------------------------------------------------------------

    def alive(self, now_ms: int, number: int) -> Alive:
        """The answer to a look."""
        able = self.phase is Phase.LEAD or self.able(now_ms)
        return Alive(self.origin, number, self.leader, self.epoch, able)

    def announcement(self) -> Coordinator:
        return Coordinator(self.origin, self.led, self.ranking.pruned)

    def raise_epoch(self, epoch: int) -> int:
        """The epoch as far as it can be believed; 0 for none."""
        if not 0 < epoch <= self.epoch + EPOCH_JUMP_MAX:
            return 0
        self.epoch = max(self.epoch, epoch)
        return epoch

    def hear_namesake(self, origin: Origin) -> list[Effect]:
        if self._two_boots or origin.boot in (0, self.origin.boot):
            return []
        self._two_boots = True
        return [Record(Event(Code.TWO_BOOTS, self.epoch, self.node, "another node uses this id"))]

    def forget_unlisted(self) -> None:
        self._asked = {name: number for name, number in self._asked.items() if name in self.ranking}
        self.pending = {name: None for name in self.pending if name in self.ranking}

    def hindrance(self, now_ms: int) -> str:
        """Why it cannot lead; empty if it can."""
        return self.fitness.hindrance(now_ms, leads=self.phase is Phase.LEAD, eligible=self.ranking.eligible)

    def able(self, now_ms: int) -> bool:
        return not self.hindrance(now_ms)

    @property
    def takes_part(self) -> bool:
        """It is up, and listed."""
        return self.fitness.up and self.node in self.ranking
