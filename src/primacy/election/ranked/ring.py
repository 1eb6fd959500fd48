"""Ring: a baton goes round the nodes in rank order and comes back with the highest one (Hecaton's RING; rules B).

After Chang and Roberts (1979), on the nodes sorted by rank. A node that misses the leader starts a baton. Each node
acknowledges it, writes itself down if it may lead and ranks higher than what stands there, and passes it on to the next
node up; the highest passes it to the lowest. When it is back, its starter tells the node that stands on it, which then
announces itself to all: n batons, n acknowledgements, 1 message to the winner, n announcements (B9: at most 4 n).

Several nodes may notice together. A lower one lets the higher ones start first; who has passed a baton on starts
none; and because the next node up ranks higher, a second baton soon meets a node that has seen the one of a higher
starter and is swallowed (B8), mostly at the price of two messages.

A neighbour that does not acknowledge is asked once more and then skipped, for this round only (B7). A baton that does
not come back is renewed by its starter (B6), with more patience each time, up to a dead node at every hop; if the
starter is dead, by whoever waited for the outcome (B4).

Before and after a round the nodes do as bully's do: when they elect, how the winner announces itself, whom they follow
and how islands that meet become one are `RankRules` in `bully.py`. The bound is `rank.settle_ms` with the number of
nodes.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.inputs import Answered, DeadlinePassed, Input, Received, Unanswered
from primacy.election.messages import Baton, BatonTaken, Message, Won
from primacy.election.model import Seat
from primacy.election.ranked.bully import RankRules
from primacy.election.ranked.lifecycle import Lifecycle
from primacy.election.ranked.rank import RankOptions
from primacy.election.ranked.state import ELECTING, SETTLED, Phase, State, Timer
from primacy.election.ranked.strategy import RankStrategy
from primacy.election.ranked.watch import Watch
from primacy.settings.timing import RankTiming


class RingStrategy(RankStrategy):
    """One node of the ring. Its neighbours are our own nodes only: Ghoti's wire has no baton."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        self._state = State(seat, timing, options, one_by_one=True)
        self._watch = Watch(self._state)
        self._state.on_enter = (self._watch.entered, self._entered)
        self._ranking = self._state.ranking
        self._rules = RankRules(self._state, self._watch)
        self._lifecycle = Lifecycle(self._state, self._watch)
        self._mine = 0
        """The round of its own baton on its way; 0 for none."""
        self._passed: dict[str, tuple[int, str]] = {}
        """By starter: the round and the best of the last baton that it passed on."""
        self._carried = ""
        """The starter of the highest rank whose baton it passed on in this election."""
        self._carried_until_ms = 0
        self._hand: Baton | None = None
        """Sent and not acknowledged."""
        self._hand_to = ""
        self._repeated = False
        self._skipped: tuple[str, ...] = ()
        """Did not answer in this round."""

    def _entered(self, phase: Phase) -> None:
        self._mine = 0  # its own round ends with the phase, or it would go on swallowing others' batons
        if phase in SETTLED:
            self._carried_until_ms = 0
        if phase in SETTLED or phase is Phase.IDLE:
            self._drop()

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        state, rules = self._state, self._rules
        effects = state.wake_up(now_ms, self.deadline_ms)
        match given:
            case Received(message):
                effects += self._receive(now_ms, message)
            case DeadlinePassed():
                for timer in state.due(now_ms):
                    effects += self._fire(now_ms, timer)
                    if state.phase is Phase.CAMPAIGN:
                        effects += self._start_round(now_ms)
            case Unanswered(node) if self._hand is not None and node == self._hand_to and not rules.looks_at(node):
                effects += self._skip_neighbour(now_ms)
            case Unanswered(node):
                effects += rules.unanswered(now_ms, node)
            case Answered(node):
                effects += rules.answered(now_ms, node)
            case _:
                effects += self._lifecycle.take(now_ms, given)  # the list may be another one now
                self._passed = {name: passed for name, passed in self._passed.items() if name in self._ranking}
        if state.phase is Phase.CAMPAIGN:
            effects += self._start_round(now_ms)
        self.deadline_ms = min(state.timers.values(), default=None)
        return effects

    def _fire(self, now_ms: int, timer: Timer) -> list[Effect]:
        match timer, self._state.phase:
            case Timer.ACK, _:
                return self._ack_missing(now_ms)
            case Timer.LIMIT, Phase.CALL:
                return self._renew_baton(now_ms) if self._mine else self._start_baton(now_ms)
            case Timer.LIMIT, Phase.WAIT:
                return self._rules.wait_expired(now_ms, self._in_vain())
        return self._rules.fire(now_ms, timer)

    def _receive(self, now_ms: int, message: Message) -> list[Effect]:
        sender = message.origin.node
        match message:
            case Baton() | BatonTaken() | Won() if sender in self._ranking.others and self._state.takes_part:
                effects = self._watch.note(now_ms, sender) + self._hear_round(now_ms, sender, message)
                return effects + self._rules.counted(now_ms)
        return self._rules.hear(now_ms, message)

    def _hear_round(self, now_ms: int, sender: str, message: Baton | BatonTaken | Won) -> list[Effect]:
        match message:
            case Baton(_, starter, number):
                taken = Send(sender, BatonTaken(self._state.origin, starter, number))
                return [taken, *self._hear_baton(now_ms, message)]
            case BatonTaken(_, starter, number):
                hand = self._hand
                if hand is not None and (sender, starter, number) == (self._hand_to, hand.starter, hand.round):
                    self._drop()
                return []
            case Won(_, starter, number):
                return self._hear_won(now_ms, sender, starter, number)

    # --- a round ------------------------------------------------------------------------------------------------------

    def _start_round(self, now_ms: int) -> list[Effect]:
        if now_ms < self._carried_until_ms:  # a baton is on its way already (B3)
            left_ms, self._carried_until_ms = self._carried_until_ms - now_ms, 0
            return self._state.wait(now_ms, self._carried, left_ms)
        self._state.enter(Phase.CALL)
        head_start_ms = self._head_start_ms()
        if head_start_ms:
            self._state.arm(Timer.LIMIT, now_ms, head_start_ms)
            return []
        return self._start_baton(now_ms)

    def _head_start_ms(self) -> int:
        """What higher nodes are given: half an answer each, so that of many who notice together few start."""
        ahead = sum(name != self._watch.gone and name not in self._ranking.pruned for name in self._ranking.higher)
        span_ms = min(ahead * max(1, self._state.timing.answer_ms // 2), self._state.timing.coordinator_ms)
        return span_ms + self._state.jitter(span_ms) if ahead else 0

    def _start_baton(self, now_ms: int) -> list[Effect]:
        state = self._state
        state.round += 1
        self._mine = state.round
        state.arm(Timer.LIMIT, now_ms, state.patience_ms())
        self._skipped = (self._watch.gone,)
        return self._pass_on(now_ms, Baton(state.origin, state.node, self._mine, state.node, 1))

    def _renew_baton(self, now_ms: int) -> list[Effect]:
        """B6: it has not come round in time."""
        self._drop()
        self._state.rounds += 1
        self._state.leader = ""
        lost = Event(Code.BATON_LOST, self._state.epoch, self._hand_to, "the baton did not come round")
        return [Record(lost), *self._state.campaign(now_ms)]

    # --- passing on ---------------------------------------------------------------------------------------------------

    def _neighbour(self, starter: str) -> str:
        """The next node up that is not skipped, as far as the starter; after the highest, the lowest. Else empty."""
        ring = self._ranking.leaders
        at = ring.index(self._state.node) + 1
        for name in ring[at:] + ring[: at - 1]:
            if name not in self._skipped and name not in self._ranking.pruned:
                return name
            if name == starter:
                break
        return ""

    def _pass_on(self, now_ms: int, baton: Baton) -> list[Effect]:
        """If nobody is left between this node and the starter, and the starter is gone too, the round ends here."""
        to = self._neighbour(baton.starter)
        if not to:
            return self._came_round(now_ms, baton)
        self._hand, self._hand_to, self._repeated = baton, to, False
        self._state.arm(Timer.ACK, now_ms, self._state.timing.answer_ms // 2)
        return [Send(to, baton)]

    def _drop(self) -> None:
        self._hand = None
        self._state.disarm(Timer.ACK)

    def _ack_missing(self, now_ms: int) -> list[Effect]:
        if self._hand is None:
            return []
        if self._repeated:
            return self._skip_neighbour(now_ms)
        self._repeated = True
        self._state.arm(Timer.ACK, now_ms, self._state.timing.answer_ms - self._state.timing.answer_ms // 2)
        return [Send(self._hand_to, self._hand)]

    def _skip_neighbour(self, now_ms: int) -> list[Effect]:
        """B7: the next one gets it. What its starter itself waits here is no part of the baton's way round."""
        assert self._hand is not None
        baton, dead = self._hand, self._hand_to
        self._drop()
        if self._mine and Timer.LIMIT in self._state.timers:
            self._state.timers[Timer.LIMIT] += self._state.timing.answer_ms
        self._skipped += (dead,)
        skipped = Event(Code.SKIPPED, self._state.epoch, dead, f"{dead} did not take the baton")
        return [Record(skipped), *self._pass_on(now_ms, baton)]

    # --- a baton comes ------------------------------------------------------------------------------------------------

    def _hear_baton(self, now_ms: int, baton: Baton) -> list[Effect]:
        state = self._state
        starter, number = baton.starter, baton.round
        may_lead = self._ranking.may_lead
        if not self._ranking.eligible or not may_lead(starter) or (baton.best and not may_lead(baton.best)):
            return []  # of another list (B5): the starter renews it, or another does
        if starter == state.node:
            return self._came_round(now_ms, baton) if self._mine and number == self._mine else []
        best = self._better(now_ms, baton.best)
        last, passed_best = self._passed.get(starter, (0, ""))
        repeated = number == last
        if repeated and not self._ranking.outranks(best, passed_best):
            return []
        if self._merges(now_ms, starter):
            return [Record(Event(Code.BATON_MERGED, state.epoch, starter, f"{starter}'s baton ends at a higher one's"))]
        self._passed[starter] = (number, best)
        if not repeated:
            self._skipped = (self._watch.gone,)
        self._carry(now_ms, starter)
        return self._pass_on(now_ms, Baton(state.origin, starter, number, best, baton.hops + 1))

    def _better(self, now_ms: int, best: str) -> str:
        able = self._state.phase is Phase.LEAD or self._state.able(now_ms)
        return self._state.node if able and self._ranking.outranks(self._state.node, best) else best

    def _merges(self, now_ms: int, starter: str) -> bool:
        """B8: of two batons of one election, the one of the higher starter goes on."""
        carried = self._carried if now_ms < self._carried_until_ms else ""
        return self._ranking.outranks(self._state.node if self._mine else carried, starter)

    def _carry(self, now_ms: int, starter: str) -> None:
        """It takes part in this round now. Who follows, leads or asks goes on: the outcome will be announced."""
        self._mine = 0
        span_ms = self._state.patience_ms() + self._state.wait_ms
        self._carried, self._carried_until_ms = starter, now_ms + span_ms
        if self._state.phase is Phase.CALL:
            self._state.wait(now_ms, starter, span_ms)

    # --- the outcome --------------------------------------------------------------------------------------------------

    def _came_round(self, now_ms: int, baton: Baton) -> list[Effect]:
        state = self._state
        self._mine = 0
        self._drop()
        if state.phase not in ELECTING:
            return []
        if baton.best == state.node and state.able(now_ms):
            return self._rules.win(now_ms)
        winner = baton.best if baton.best != state.node else ""
        self._carried = ""
        state.wait(now_ms, winner, state.wait_ms)
        return [Send(winner, Won(state.origin, baton.starter, baton.round))] if winner else []

    def _hear_won(self, now_ms: int, sender: str, starter: str, number: int) -> list[Effect]:
        """Leads, if it took part in that round and follows nobody above; an old word changes nothing."""
        state = self._state
        if state.phase is Phase.LEAD:
            return [Send(sender, state.announcement())]
        last = self._mine if starter == state.node else self._passed.get(starter, (0, ""))[0]
        took_part = last and number == last
        follows_higher = state.phase is Phase.FOLLOW and self._ranking.outranks(state.leader, state.node)
        if not took_part or follows_higher or not state.able(now_ms):
            return []
        return self._rules.win(now_ms)

    def _in_vain(self) -> Event | None:
        """It waited for the winner that it told itself, or for the end of a round that it only took part in."""
        if self._state.awaited != self._carried:
            return None
        return Event(Code.BATON_LOST, self._state.epoch, self._carried, f"nothing came of {self._carried}'s baton")
