"""Being the leader in bully and ring: announcing, yielding, leaving in order, and whether a node may lead at all.

Leading here is a belief that is kept fresh, not a right: no hold, no quorum unless asked for, no token. What it can
do is to be loud (an announcement every beat, B2), to yield to a higher one at once, and to end in order when it ends
on purpose: stop the work, have it confirmed, and only then let the next one begin. `follow.py` stands on this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum

from primacy.election.effects import Effect, Record, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.messages import Coordinator, Election, Handover, Heartbeat, Origin
from primacy.election.model import Leadership, Membership, Seat
from primacy.election.ranked.rank import NO_HOLD_MS, RankOptions, detect_ms, paced, patience_span_ms, wait_ms
from primacy.election.ranked.ranking import Ranking
from primacy.settings.timing import RankTiming


class Phase(StrEnum):
    """What a node is about. All but the first have a timer running."""

    IDLE = "idle"
    """Before the start, after the end, or without a list."""
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
PAUSED = "an operator: primacy resume"
"""What a paused node waits for."""


class Timer(StrEnum):
    """Fired in this order when several are due."""

    LIMIT = "limit"
    """Of the present phase."""
    BEAT = "beat"
    """The next look at the leader, or the leader's next announcement."""
    GONE = "gone"
    """The last of the looks that may stay unanswered."""
    ACK = "ack"
    """Ring: the neighbour has not confirmed the baton."""


class RankLeader(ABC):
    """What a node is, and what it does while it leads."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        self.seat = seat
        self.node = seat.node
        self.timing = self._profile = timing
        self.options = options
        self.deadline_ms: int | None = None
        self.leader = ""
        """Whom this node believes to lead; empty for nobody."""
        self._random = seat.random
        self._origin = Origin(seat.node, boot=seat.boot, config=seat.membership.hash)
        self._ranking = Ranking(seat.node, seat.membership, options.rank, detect_ms(timing) + timing.heartbeat_ms)
        self._phase = Phase.IDLE
        self._timers: dict[Timer, int] = {}
        self._wait_ms = wait_ms(timing)
        self._rounds = 0
        """Rounds in a row that brought no leader."""
        self._round = seat.random.getrandbits(31)
        """Numbers its rounds and its looks; random at first, so that answers to an earlier start fit none of them."""
        self._asked: dict[str, int] = {}
        """The number of the last look at each node."""
        self._pending: dict[str, None] = {}
        """Who has still to answer in this phase."""
        self._awaited = ""
        """Who is to announce itself."""
        self._epoch = 0
        """The largest number of a leadership that it heard of."""
        self._led = 0
        """The number of its own leadership; 0 while it does not lead."""
        self._led_since_ms = 0
        self._work = 0
        """The leadership whose work is not confirmed gone."""
        self._leaving: str | None = None
        """It ends its leadership in order; in favour of this node, or of the highest if empty."""
        self._sits_out_ms = 0
        """After a step-down it does not stand before this moment."""
        self._joined = False
        """It has taken part in this cluster since its start; until then a leader of any rank is welcome."""
        self._up = self._stopping = self._paused = self._lock_held = False
        self._ill = ""

    # --- what an agent asks of any strategy ---------------------------------------------------------------------------

    @property
    def term(self) -> int:
        """The largest number of a leadership that it heard of."""
        return self._epoch

    @property
    def preceding_term(self) -> int:
        """The newest earlier leadership that it heard of; 0 for none."""
        return max(0, self._led - 1) if self._led else self._epoch

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def healthy(self) -> bool:
        return not self._ill

    @property
    def heard(self) -> dict[str, int]:
        """When each other node was heard last."""
        return self._ranking.heard

    @property
    def membership(self) -> Membership:
        """The list as it is now."""
        return self._ranking.membership

    # --- what follow.py adds ------------------------------------------------------------------------------------------

    @abstractmethod
    def _look_around(self, now_ms: int) -> list[Effect]:
        """Asks all others whom they follow."""

    @abstractmethod
    def _new_round(self, now_ms: int) -> list[Effect]:
        """Begins an election, or lets the running one go on."""

    def _pace(self, factor: int) -> None:
        """From now on; what is being waited for keeps the limit that it has."""
        self.timing = paced(self._profile, max(1, factor))
        self._wait_ms = wait_ms(self.timing)
        self._ranking.window_ms = detect_ms(self.timing) + self.timing.heartbeat_ms

    # --- time and phases ----------------------------------------------------------------------------------------------

    def _arm(self, timer: Timer, now_ms: int, span_ms: int) -> None:
        self._timers[timer] = now_ms + max(1, span_ms)

    def _jitter(self, span_ms: int) -> int:
        """Up to a quarter, so that nodes which begin together do not go on together."""
        return self._random.randrange(span_ms // 4 + 1)

    def _patience_span_ms(self) -> tuple[int, int]:
        """Of the first round, and of any."""
        return patience_span_ms(self.timing)

    def _patience_ms(self) -> int:
        """How long this round may take: longer after each that failed, with a bound. No storm over a one-way link."""
        first_ms, most_ms = self._patience_span_ms()
        span_ms = min(first_ms << min(self._rounds, 16), most_ms)
        return span_ms + (self._jitter(span_ms) if self._rounds else 0)

    def _enter(self, phase: Phase) -> None:
        """The timers of a phase end with it; the ring's ack belongs to a baton, not to a phase."""
        self._phase = phase
        for timer in (Timer.LIMIT, Timer.BEAT, Timer.GONE):
            self._timers.pop(timer, None)
        self._pending.clear()
        if phase in (Phase.FOLLOW, Phase.LEAD):
            self._rounds = self._sits_out_ms = 0
            self._joined = True

    def _await(self, now_ms: int, whom: str, span_ms: int) -> list[Effect]:
        """Somebody else is to announce itself, within the limit (B4)."""
        self._enter(Phase.WAIT)
        self._awaited = whom
        self._arm(Timer.LIMIT, now_ms, span_ms)
        return []

    def _halt(self) -> None:
        """Nothing more is done or waited for."""
        self._enter(Phase.IDLE)
        self._timers.clear()
        self._led, self.leader, self._leaving = 0, "", None

    def _ask(self, node: str) -> Effect:
        number = self._asked.get(node, self._round) + 1
        self._asked[node] = number
        return Send(node, Heartbeat(self._origin, number))

    # --- leading ------------------------------------------------------------------------------------------------------

    def _win(self, now_ms: int) -> list[Effect]:
        if not self.options.require_majority or self._ranking.has_majority(now_ms):
            return self._lead(now_ms)
        self._enter(Phase.POLL)
        self._arm(Timer.LIMIT, now_ms, self.timing.answer_ms)
        return [self._ask(name) for name in self._ranking.others]

    def _poll_over(self, now_ms: int) -> list[Effect]:
        self._rounds += 1
        self.leader = ""
        few = Event(Code.MAJORITY_LOST, self._epoch, "", "too few nodes answer to lead")
        return [Record(few), *self._await(now_ms, "", self._patience_ms())]

    def _lead(self, now_ms: int) -> list[Effect]:
        self._enter(Phase.LEAD)
        self._epoch += 1
        self._led = self._work = self._epoch
        self._led_since_ms = now_ms
        self.leader = self.node
        return [
            Record(Event(Code.ELECTED, self._led, self.node)),
            *self._announce(now_ms),
            Start(Leadership(self.node, self._led, 0, NO_HOLD_MS)),
        ]

    def _announcement(self) -> Coordinator:
        return Coordinator(self._origin, self._led, self._ranking.pruned)

    def _announce(self, now_ms: int) -> list[Effect]:
        """B2: every beat, to the whole list."""
        heartbeat_ms = self.timing.heartbeat_ms
        self._arm(Timer.BEAT, now_ms, heartbeat_ms - self._random.randrange(heartbeat_ms // 10 + 1))
        message = self._announcement()
        return [Send(name, message) for name in self._ranking.others]

    def _leader_beat(self, now_ms: int) -> list[Effect]:
        effects = self._prune(now_ms)
        settled = now_ms - self._led_since_ms > self._ranking.window_ms
        if self.options.require_majority and settled and not self._ranking.has_majority(now_ms):
            effects += self._resign(Code.MAJORITY_LOST, "", "fewer than a majority are heard")
            return effects + self._look_around(now_ms)
        return effects + self._announce(now_ms)

    def _prune(self, now_ms: int) -> list[Effect]:
        limit_ms = self.options.prune_after_ms
        if limit_ms <= 0:
            return []
        dead = self._ranking.prune(now_ms, self._led_since_ms, limit_ms)
        return [Record(Event(Code.PRUNED, self._led, name, f"{name} was silent for {limit_ms} ms")) for name in dead]

    def _yields_to(self, rival: str) -> bool:
        """B2: of two leaders that meet, the lower yields."""
        return self._ranking.outranks(rival, self.node)

    def _resign(self, code: Code, subject: str, detail: str) -> list[Effect]:
        """Leads no more, at once. What comes next is the caller's to say."""
        effects: list[Effect] = [Record(Event(code, self._led, subject, detail)), Stop(self._led, code.value, False)]
        self._halt()
        self._up = not self._stopping
        return effects

    # --- leaving in order ---------------------------------------------------------------------------------------------

    def _leave(self, code: Code, detail: str, successor: str = "") -> list[Effect]:
        """Stop, confirm, hand over: the role is kept until the work is gone, so that no other starts beside it."""
        if self._phase is not Phase.LEAD or self._leaving is not None:
            return []
        self._leaving = successor
        return [Record(Event(code, self._led, successor, detail)), Stop(self._led, code.value, True)]

    def _work_gone(self, now_ms: int, term: int) -> list[Effect]:
        if not term or term != self._work:
            return []
        self._work = 0
        if self._phase is not Phase.LEAD:
            return self._can_lead(now_ms)
        effects: list[Effect] = []
        if self._leaving is None:  # the next in line gets a try
            effects.append(Record(Event(Code.WORK_ENDED, self._led, "", "its work ended by itself")))
        return effects + self._hand_over(now_ms)

    def _hand_over(self, now_ms: int) -> list[Effect]:
        """To the named node, if it lives, by telling all; else the highest live node is told to elect."""
        named = self._leaving or ""
        to_named = named != self.node and self._ranking.may_lead(named) and self._ranking.is_alive(now_ms, named)
        heir = named if to_named else self._ranking.highest_live(now_ms)
        self._halt()
        effects: list[Effect] = []
        if to_named:
            effects += [Send(name, Handover(self._origin, heir)) for name in self._ranking.others]
        elif heir:
            effects.append(Send(heir, Election(self._origin)))
        if self._stopping:
            self._up = False
            return effects
        self._sits_out_ms = now_ms + 2 * self._wait_ms
        return effects + self._await(now_ms, heir, self._wait_ms)

    def _shut_down(self) -> list[Effect]:
        self._stopping = True
        if self._phase is Phase.LEAD:
            return self._leave(Code.STOPPING, "the node is stopping")
        self._halt()
        self._up = False
        return []

    # --- able to lead or not ------------------------------------------------------------------------------------------

    def _hindrance(self, now_ms: int) -> str:
        """Why it cannot lead; empty if it can."""
        if not self._up:
            return "it is not running"
        if not self._ranking.eligible:
            return "a leader to be elected: no voter of the list, it only follows"
        if self._paused:
            return PAUSED
        if self._ill:
            return f"its health probe to pass ({self._ill})"
        if self._lock_held or (self._work and self._phase is not Phase.LEAD):
            return "the run lock: its old work is not confirmed gone"
        return "others to lead first, as it stepped down a moment ago" if now_ms < self._sits_out_ms else ""

    def _able(self, now_ms: int) -> bool:
        return not self._hindrance(now_ms)

    def _cannot_lead(self, now_ms: int, code: Code, detail: str) -> list[Effect]:
        """A leader leaves, a candidate gives up; the rest changes nothing."""
        return self._look_around(now_ms) if self._phase in ELECTING else self._leave(code, detail)

    def _can_lead(self, now_ms: int) -> list[Effect]:
        """What hindered it is over. It stands if it was left without a leader, and changes nothing otherwise."""
        alone = self._phase is Phase.IDLE and not self._ranking.others and not self.options.joining
        leaderless = self._phase is Phase.LOOK and self._joined
        return self._new_round(now_ms) if (alone or leaderless) and self._able(now_ms) else []

    def _run_lock(self, now_ms: int, held: bool) -> list[Effect]:
        """A leader's own work has the lock; for others it is what an earlier start left behind."""
        if self._phase is Phase.LEAD:
            return []
        self._lock_held = held
        if held:
            return []
        self._work = 0
        return self._can_lead(now_ms)
