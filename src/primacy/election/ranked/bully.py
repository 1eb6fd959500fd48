"""Bully: the highest live node leads (Ghoti and Hecaton; Garcia-Molina 1982; rules B).

A round: ELECTION goes to all higher nodes at once. Whoever lives answers OK and begins a round of its own; the asker
then waits for an announcement. Nobody answers in time, or all say that they cannot lead: the asker has won and
announces itself to all. One round at a time per node (B3) and one answer per call keep a failure below n² messages
(B9): at most n(n-1)/2 calls, as many answers, and n announcements.

There is no quorum, no durable vote and no token: a partition has one leader per island. What holds is that one remains
when the network heals, within `rank.settle_ms` after the last fault. Nothing here is a safety rule.

- The leader announces itself every heartbeat to the whole list (B2). A leader that hears a higher one makes sure of it
  with one look, stops its work and follows. So two leaders that meet are one a heartbeat and a round trip later.
- A follower of a leader that ranks below it stays quiet (it joined above a healthy leader), but answers the
  announcement of any *other* lower one with an election (B1). So a node between two leaders that cannot hear each
  other takes both.
- Every phase without a leader has a limit and ends in a new round (B4). Rounds wait longer and longer, up to a factor
  of `rank.BACKOFF_MAX`; any announcement ends the waiting at once.

Departures from the two, each because of what it cost there: all are asked at once with one deadline, not one after
the other; a leader that is called says that it leads instead of electing again; a wait for an announcement has a limit
and ends in a loop, not in a latch used once or in recursion; announcements go on for as long as one leads.

`BullyStrategy` is the way in, and a round. `RankRules` is what comes before and after one, in the ring, too. How a
leader's heartbeats are watched stands in `watch.py`, what an operator asks in `lifecycle.py`.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record, Send, Start
from primacy.election.events import Code, Event
from primacy.election.inputs import Answered, DeadlinePassed, Input, Received, Unanswered
from primacy.election.messages import (
    Alive,
    Coordinator,
    Election,
    Handover,
    HeartbeatRequest,
    Message,
    Okay,
    Origin,
    Unable,
)
from primacy.election.model import Seat
from primacy.election.ranked.lifecycle import Lifecycle
from primacy.election.ranked.rank import RankOptions
from primacy.election.ranked.state import ELECTING, Phase, State, Timer
from primacy.election.ranked.strategy import RankStrategy
from primacy.election.ranked.watch import Watch
from primacy.settings.timing import RankTiming


class BullyStrategy(RankStrategy):
    """One node; drivable over Ghoti's wire (B10)."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        self._state = State(seat, timing, options)
        self._watch = Watch(self._state)
        self._state.on_enter = (self._watch.entered,)
        self._rules = RankRules(self._state, self._watch)
        self._lifecycle = Lifecycle(self._state, self._watch)

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        state, rules = self._state, self._rules
        effects = state.wake_up(now_ms, self.deadline_ms)
        match given:
            case Received(message):
                effects += self._receive(now_ms, message)
            case DeadlinePassed():
                for timer in state.due(now_ms):
                    in_round = timer is Timer.LIMIT and state.phase is Phase.CALL
                    effects += rules.win(now_ms) if in_round else rules.fire(now_ms, timer)
            case Unanswered(node) if node in state.pending and state.phase is Phase.CALL:
                effects += self._strike(now_ms, node)
            case Unanswered(node):
                effects += rules.unanswered(now_ms, node)
            case Answered(node):
                effects += rules.answered(now_ms, node)
            case _:
                effects += self._lifecycle.take(now_ms, given)
        if state.phase is Phase.CAMPAIGN:
            effects += self._start_round(now_ms)
        self.deadline_ms = min(state.timers.values(), default=None)
        return effects

    def _receive(self, now_ms: int, message: Message) -> list[Effect]:
        state, watch = self._state, self._watch
        match message:
            case Okay(Origin(node), number) if self._answers_call(node, number):
                return watch.note(now_ms, node) + state.wait(now_ms, node, state.patience_ms())
            case Unable(Origin(node), number) if self._answers_call(node, number):
                return watch.note(now_ms, node) + self._strike(now_ms, node)
        return self._rules.hear(now_ms, message)

    def _start_round(self, now_ms: int) -> list[Effect]:
        """Calls all who rank higher. It has won if there are none, and when no OK has come in time."""
        state, ranking = self._state, self._state.ranking
        state.enter(Phase.CALL)
        state.round += 1
        higher = tuple(name for name in ranking.higher if name not in ranking.pruned)
        if not higher:
            return self._rules.win(now_ms)
        state.pending = dict.fromkeys(higher)
        state.arm(Timer.LIMIT, now_ms, state.timing.election_ms)
        return [Send(name, Election(state.origin, state.round)) for name in higher]

    def _answers_call(self, sender: str, number: int) -> bool:
        """An answer to this round's call, from one who was called; 0 is what a real node of Ghoti says."""
        return self._state.phase is Phase.CALL and sender in self._state.pending and number in (0, self._state.round)

    def _strike(self, now_ms: int, node: str) -> list[Effect]:
        """One fewer to wait for; the last one makes the winner."""
        del self._state.pending[node]
        return [] if self._state.pending else self._rules.win(now_ms)


class RankRules:
    """Rules B1 to B5: when a node elects, how it wins and announces itself, whom it follows, to whom it yields."""

    def __init__(self, state: State, watch: Watch) -> None:
        self._state, self._watch = state, watch
        self._ranking = state.ranking

    # --- the way in ---------------------------------------------------------------------------------------------------

    def hear(self, now_ms: int, message: Message) -> list[Effect]:
        """A message that belongs to no round."""
        state, sender = self._state, message.origin.node
        if sender == state.node:
            return state.hear_namesake(message.origin)
        known = sender in self._ranking
        effects = self._watch.note(now_ms, sender) if known else []
        match message:
            case HeartbeatRequest(_, number):
                return [*effects, Send(sender, state.alive(now_ms, number))]
            case Election(_, number):
                return effects + self.hear_call(now_ms, sender, number)
        if not known or not state.takes_part:
            return effects
        match message:
            case Alive():
                effects += self.hear_alive(now_ms, sender, message)
            case Coordinator():
                effects += self.hear_coordinator(now_ms, sender, message)
            case Handover(_, successor):
                effects += self.hear_handover(now_ms, sender, successor)
        return effects + self.counted(now_ms)

    def answered(self, now_ms: int, node: str) -> list[Effect]:
        """It lives, and says no more."""
        return self._watch.note(now_ms, node) + self.counted(now_ms) if node in self._ranking else []

    def unanswered(self, now_ms: int, node: str) -> list[Effect]:
        """A look failed at once. That is its silence, sooner; it proves no more."""
        if not self.looks_at(node):
            return []
        if self._state.phase is Phase.FOLLOW:
            return self._watch.leader_gone(now_ms, "refuses the call")
        return self.look_answered(now_ms, node)

    def looks_at(self, node: str) -> bool:
        """It waits for its answer: the last one that its leader may miss, or that of one who was asked who leads."""
        if self._state.phase is Phase.FOLLOW:
            return node == self._state.leader and self._watch.misses_all
        return self._state.phase is Phase.LOOK and node in self._state.pending

    def fire(self, now_ms: int, timer: Timer) -> list[Effect]:
        """A timer that belongs to no round."""
        match timer, self._state.phase:
            case Timer.LIMIT, Phase.LOOK:
                return self.look_over(now_ms)
            case Timer.LIMIT, Phase.WAIT:
                return self.wait_expired(now_ms)
            case Timer.LIMIT, _:
                return self._state.poll_failed(now_ms)
            case Timer.HEARTBEAT, Phase.LEAD:
                return self.leader_heartbeat(now_ms)
            case Timer.HEARTBEAT, _:
                return self._watch.look_at_leader(now_ms)
        return self._watch.leader_gone(now_ms, "does not answer")

    # --- when to elect ------------------------------------------------------------------------------------------------

    def hear_call(self, now_ms: int, sender: str, number: int) -> list[Effect]:
        """OK, and an own election. A leader answers by saying so; a stranger is kept quiet and moves nobody.

        On Ghoti's wire the sender may be unknown, as nobody reads that body: an empty one counts as listed (B10).
        """
        okay = Send(sender, Okay(self._state.origin, number))
        if self._state.phase is Phase.LEAD:
            return [okay, Send(sender, self._state.announcement())] if sender in self._ranking else [okay]
        if not self._state.able(now_ms):
            return [Send(sender, Unable(self._state.origin, number))]
        listed = not sender or sender in self._ranking
        begins = listed and not self.is_just_over(now_ms, sender)
        return [okay, *(self.elect(now_ms) if begins else [])]

    def elect(self, now_ms: int) -> list[Effect]:
        """Somebody else gave the reason, so the leader that it believes in is kept on show until the outcome.

        One that is new, or slept, asks who leads before it campaigns: the call may be as old as its sleep.
        """
        asks_first = self._state.phase is Phase.LOOK and not self._state.joined
        return [] if asks_first or self.election_running() else self._state.campaign(now_ms)

    def election_running(self) -> bool:
        """B3: one election at a time; what else calls for one is merged into it."""
        return self._state.phase in ELECTING

    def is_just_over(self, now_ms: int, caller: str) -> bool:
        """B3, B9: a call within a heartbeat of the outcome is merged into the election that ended by it.

        The leader hears that call too, and repeats its announcement. Else n nodes that call each other begin a round at
        each call and end it by the leader's answer, over and over: 2ⁿ messages. A call by the leader itself counts: it
        may leave.
        """
        if self._state.phase is not Phase.FOLLOW or self._state.ended_ms is None or caller in ("", self._state.leader):
            return False
        return now_ms - self._state.ended_ms < self._state.timing.heartbeat_ms

    def wait_expired(self, now_ms: int, in_vain: Event | None = None) -> list[Effect]:
        """B4: every wait ends in a new round."""
        state, awaited = self._state, self._state.awaited
        dead = Event(Code.WINNER_DEAD, state.epoch, awaited, f"{awaited} was there and did not announce itself")
        state.leader = ""
        state.rounds += 1
        return [*([Record(in_vain or dead)] if awaited else []), *state.campaign(now_ms)]

    def look_answered(self, now_ms: int, node: str) -> list[Effect]:
        """All have answered and nobody leads: no need to wait longer. One that cannot lead would only ask again."""
        self._state.pending.pop(node, None)
        return [] if self._state.pending or not self._state.able(now_ms) else self.look_over(now_ms)

    def look_over(self, now_ms: int) -> list[Effect]:
        """B5: "no usable leader" is itself a reason to elect."""
        state, able = self._state, self._state.able(now_ms)
        if able and state.options.bootstrap and not state.joined:
            return self.win(now_ms)
        state.rounds += not able
        return state.campaign(now_ms)

    # --- how to win and to announce -----------------------------------------------------------------------------------

    def win(self, now_ms: int) -> list[Effect]:
        majority = not self._state.options.require_majority or self._ranking.has_majority(now_ms)
        return self._lead(now_ms) if majority else self._state.poll(now_ms)

    def counted(self, now_ms: int) -> list[Effect]:
        """One more was heard: it leads, if it waited for a majority and this makes one."""
        polled = self._state.phase is Phase.POLL and self._ranking.has_majority(now_ms)
        return self._lead(now_ms) if polled else []

    def _lead(self, now_ms: int) -> list[Effect]:
        won = self._state.lead(now_ms)
        return [Record(Event(Code.ELECTED, won.term, won.member)), *self._announce(now_ms), Start(won)]

    def _announce(self, now_ms: int) -> list[Effect]:
        state, heartbeat_ms = self._state, self._state.timing.heartbeat_ms
        state.arm(Timer.HEARTBEAT, now_ms, heartbeat_ms - state.random.randrange(heartbeat_ms // 10 + 1))
        message = state.announcement()
        return [Send(name, message) for name in self._ranking.others]

    def leader_heartbeat(self, now_ms: int) -> list[Effect]:
        """B2: announces itself every heartbeat, to the whole list."""
        effects = self._state.prune(now_ms)
        settled = now_ms - self._state.led_since_ms > self._ranking.window_ms
        if self._state.options.require_majority and settled and not self._ranking.has_majority(now_ms):
            effects += self._state.resign(Code.MAJORITY_LOST, "", "fewer than a majority are heard")
            return effects + self._state.look_around(now_ms)
        return effects + self._announce(now_ms)

    # --- whom to follow, to whom to yield -----------------------------------------------------------------------------

    def hear_coordinator(self, now_ms: int, sender: str, message: Coordinator) -> list[Effect]:
        state, watch = self._state, self._watch
        if not self._ranking.may_lead(sender):
            return []
        known = state.epoch
        epoch = state.raise_epoch(message.epoch)
        following = state.phase is Phase.FOLLOW
        if following and sender == state.leader:
            self._ranking.told_pruned(sender, message.pruned)
            return []
        watch.rival = (sender, now_ms)
        if state.phase is Phase.LEAD:
            return self._meet(sender)
        if following:
            if self.answers_lower_announcement(now_ms, sender):
                return self.elect(now_ms)
            newer = epoch == 0 or epoch > known or self._ranking.outranks(sender, state.leader)
            return watch.probe(sender) if newer and watch.takes(now_ms, sender) else []
        if not watch.takes(now_ms, sender):
            return []  # from below, and an election is running that will tell it (B1, B3)
        if sender in watch.silent or 0 < epoch < known:
            return watch.probe(sender)
        return state.follow(now_ms, sender)

    def answers_lower_announcement(self, now_ms: int, sender: str) -> bool:
        """B1: a node that may lead does not stand by while another than its leader takes over from below.

        Not if its leader ranks above itself: that one lives, would win again, and meets the announcer on its own.
        """
        state, outranks = self._state, self._ranking.outranks
        return outranks(state.node, sender) and not outranks(state.leader, state.node) and state.able(now_ms)

    def _meet(self, rival: str) -> list[Effect]:
        """Two leaders met. The lower makes sure and yields; the higher goes on, as its next announcement says (B2)."""
        effects: list[Effect] = []
        if rival not in self._watch.crossed:
            self._watch.crossed[rival] = None
            effects.append(Record(Event(Code.CROSSED, self._state.led, rival, f"{rival} announced itself too")))
        return effects + self._watch.probe(rival) if self.yields_to(rival) else effects

    def yields_to(self, rival: str) -> bool:
        """B2: of two leaders that meet, the lower yields."""
        return self._ranking.outranks(rival, self._state.node)

    def hear_alive(self, now_ms: int, sender: str, message: Alive) -> list[Effect]:
        """The answer to a look: of its leader, of one that was to prove itself, or of one that was asked who leads."""
        state, watch = self._state, self._watch
        if not watch.answers(sender, message):
            return []
        named = message.leader or ""
        leads = named == sender or (message.leader is None and message.able)
        if state.phase is Phase.FOLLOW and sender == state.leader:
            return watch.leader_answered() if leads else watch.does_not_lead(now_ms, named)
        if leads and (named or sender in watch.probes):
            return self._proved(now_ms, sender)
        if state.phase is not Phase.LOOK:
            return []
        # It does not lead itself. A join answer names the leader; the word of others is not enough.
        if message.number == 0 and not state.joined and named != sender and watch.takes(now_ms, named):
            return state.follow(now_ms, named)
        return self.look_answered(now_ms, sender)

    def _proved(self, now_ms: int, sender: str) -> list[Effect]:
        """A look was answered: it leads, and hears us."""
        state, watch = self._state, self._watch
        asked = sender in watch.probes
        watch.probes.pop(sender, None)
        if state.phase is Phase.LEAD:
            if not asked or not self.yields_to(sender):
                return []
            return state.resign(Code.OUTRANKED, sender, f"{sender} leads too") + state.follow(now_ms, sender)
        if not watch.takes(now_ms, sender) or (state.phase is Phase.FOLLOW and not asked):
            return []
        return state.follow(now_ms, sender)

    def hear_handover(self, now_ms: int, sender: str, successor: str) -> list[Effect]:
        """Only from the leader that it follows, so that nobody is made leader by a stranger's or an old word."""
        if self._state.phase is not Phase.FOLLOW or sender != self._state.leader:
            return []
        if successor == self._state.node:
            return self.win(now_ms) if self._state.able(now_ms) else []
        return self._state.follow(now_ms, successor) if self._ranking.may_lead(successor) else []
