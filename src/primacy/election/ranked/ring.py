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
starter is dead, by whoever waited for the outcome (B4). How leaders are watched, and how islands that meet become
one, stands in `follow.py`; the bound is `rank.settle_ms` with the number of nodes.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.messages import Baton, BatonTaken, Message, Won
from primacy.election.model import Seat
from primacy.election.ranked.lead import ELECTING, Phase, Timer
from primacy.election.ranked.rank import RankOptions, patience_span_ms
from primacy.election.ranked.strategy import RankStrategy
from primacy.settings.timing import RankTiming


class RingStrategy(RankStrategy):
    """One node of the ring. Its neighbours are our own nodes only: Ghoti's wire has no baton."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
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

    def _enter(self, phase: Phase) -> None:
        super()._enter(phase)
        self._mine = 0  # its own round ends with the phase, or it would go on swallowing others' batons
        if phase in (Phase.FOLLOW, Phase.LEAD):
            self._carried_until_ms = 0
            self._drop()

    def _halt(self) -> None:
        super()._halt()
        self._drop()

    def _members_changed(self, now_ms: int, members: tuple[tuple[str, int, int], ...], version: int) -> list[Effect]:
        effects = super()._members_changed(now_ms, members, version)
        self._passed = {name: passed for name, passed in self._passed.items() if name in self._ranking}
        return effects

    def _patience_span_ms(self) -> tuple[int, int]:
        return patience_span_ms(self.timing, len(self._ranking.leaders))

    # --- a round ------------------------------------------------------------------------------------------------------

    def _start_round(self, now_ms: int) -> list[Effect]:
        if now_ms < self._carried_until_ms:  # a baton is on its way already (B3)
            left_ms, self._carried_until_ms = self._carried_until_ms - now_ms, 0
            return self._await(now_ms, self._carried, left_ms)
        self._enter(Phase.CALL)
        head_start_ms = self._head_start_ms()
        if head_start_ms:
            self._arm(Timer.LIMIT, now_ms, head_start_ms)
            return []
        return self._start_baton(now_ms)

    def _head_start_ms(self) -> int:
        """What higher nodes are given: half an answer each, so that of many who notice together few start."""
        ahead = sum(name != self._gone and name not in self._ranking.pruned for name in self._ranking.higher)
        span_ms = min(ahead * max(1, self.timing.answer_ms // 2), self.timing.coordinator_ms)
        return span_ms + self._jitter(span_ms) if ahead else 0

    def _start_baton(self, now_ms: int) -> list[Effect]:
        self._round += 1
        self._mine = self._round
        self._arm(Timer.LIMIT, now_ms, self._patience_ms())
        self._skipped = (self._gone,)
        return self._pass_on(now_ms, Baton(self._origin, self.node, self._mine, self.node, 1))

    def _call_over(self, now_ms: int) -> list[Effect]:
        return self._renew_baton(now_ms) if self._mine else self._start_baton(now_ms)

    def _renew_baton(self, now_ms: int) -> list[Effect]:
        """B6: it has not come round in time."""
        self._drop()
        self._rounds += 1
        self.leader = ""
        self._enter(Phase.IDLE)
        lost = Event(Code.BATON_LOST, self._epoch, self._hand_to, "the baton did not come round")
        return [Record(lost), *self._new_round(now_ms)]

    # --- passing on ---------------------------------------------------------------------------------------------------

    def _neighbour(self, starter: str) -> str:
        """The next node up that is not skipped, as far as the starter; after the highest, the lowest. Else empty."""
        ring = self._ranking.leaders
        at = ring.index(self.node) + 1
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
        self._arm(Timer.ACK, now_ms, self.timing.answer_ms // 2)
        return [Send(to, baton)]

    def _drop(self) -> None:
        self._hand = None
        self._timers.pop(Timer.ACK, None)

    def _ack_missing(self, now_ms: int) -> list[Effect]:
        if self._hand is None:
            return []
        if self._repeated:
            return self._skip_neighbour(now_ms)
        self._repeated = True
        self._arm(Timer.ACK, now_ms, self.timing.answer_ms - self.timing.answer_ms // 2)
        return [Send(self._hand_to, self._hand)]

    def _skip_neighbour(self, now_ms: int) -> list[Effect]:
        """B7: the next one gets it. What its starter itself waits here is no part of the baton's way round."""
        assert self._hand is not None
        baton, dead = self._hand, self._hand_to
        self._drop()
        if self._mine and Timer.LIMIT in self._timers:
            self._timers[Timer.LIMIT] += self.timing.answer_ms
        self._skipped += (dead,)
        skipped = Event(Code.SKIPPED, self._epoch, dead, f"{dead} did not take the baton")
        return [Record(skipped), *self._pass_on(now_ms, baton)]

    def _strike(self, now_ms: int, node: str) -> list[Effect]:
        if self._hand is None or node != self._hand_to:
            return []
        return self._skip_neighbour(now_ms)

    def _in_vain(self) -> list[Effect]:
        """It waited for the winner that it told itself, or for the end of a round that it only took part in."""
        if self._awaited != self._carried:
            return super()._in_vain()
        lost = Event(Code.BATON_LOST, self._epoch, self._carried, f"nothing came of {self._carried}'s baton")
        return [Record(lost)]

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _hear_round(self, now_ms: int, sender: str, message: Message) -> list[Effect]:
        match message:
            case Baton(_, starter, number):
                return [Send(sender, BatonTaken(self._origin, starter, number)), *self._hear_baton(now_ms, message)]
            case BatonTaken(_, starter, number):
                hand = self._hand
                if hand is not None and (sender, starter, number) == (self._hand_to, hand.starter, hand.round):
                    self._drop()
            case Won(_, starter, number):
                return self._hear_won(now_ms, sender, starter, number)
        return []

    def _hear_baton(self, now_ms: int, baton: Baton) -> list[Effect]:
        starter, number = baton.starter, baton.round
        may_lead = self._ranking.may_lead
        if not self._ranking.eligible or not may_lead(starter) or (baton.best and not may_lead(baton.best)):
            return []  # of another list (B5): the starter renews it, or another does
        if starter == self.node:
            return self._came_round(now_ms, baton) if self._mine and number == self._mine else []
        best = self._better(now_ms, baton.best)
        last, passed_best = self._passed.get(starter, (0, ""))
        repeated = number == last
        if repeated and not self._ranking.outranks(best, passed_best):
            return []
        if self._merges(now_ms, starter):
            return [Record(Event(Code.BATON_MERGED, self._epoch, starter, f"{starter}'s baton ends at a higher one's"))]
        self._passed[starter] = (number, best)
        if not repeated:
            self._skipped = (self._gone,)
        self._carry(now_ms, starter)
        return self._pass_on(now_ms, Baton(self._origin, starter, number, best, baton.hops + 1))

    def _better(self, now_ms: int, best: str) -> str:
        able = self._phase is Phase.LEAD or self._able(now_ms)
        return self.node if able and self._ranking.outranks(self.node, best) else best

    def _merges(self, now_ms: int, starter: str) -> bool:
        """B8: of two batons of one election, the one of the higher starter goes on."""
        carried = self._carried if now_ms < self._carried_until_ms else ""
        return self._ranking.outranks(self.node if self._mine else carried, starter)

    def _carry(self, now_ms: int, starter: str) -> None:
        """It takes part in this round now. Who follows, leads or asks goes on: the outcome will be announced."""
        self._mine = 0
        span_ms = self._patience_ms() + self._wait_ms
        self._carried, self._carried_until_ms = starter, now_ms + span_ms
        if self._phase is Phase.CALL:
            self._await(now_ms, starter, span_ms)

    # --- the outcome --------------------------------------------------------------------------------------------------

    def _came_round(self, now_ms: int, baton: Baton) -> list[Effect]:
        self._mine = 0
        self._drop()
        if self._phase not in ELECTING:
            return []
        if baton.best == self.node and self._able(now_ms):
            return self._win(now_ms)
        winner = baton.best if baton.best != self.node else ""
        self._carried = ""
        self._await(now_ms, winner, self._wait_ms)
        return [Send(winner, Won(self._origin, baton.starter, baton.round))] if winner else []

    def _hear_won(self, now_ms: int, sender: str, starter: str, number: int) -> list[Effect]:
        """Leads, if it took part in that round and follows nobody above; an old word changes nothing."""
        if self._phase is Phase.LEAD:
            return [Send(sender, self._announcement())]
        last = self._mine if starter == self.node else self._passed.get(starter, (0, ""))[0]
        took_part = last and number == last
        follows_higher = self._phase is Phase.FOLLOW and self._ranking.outranks(self.leader, self.node)
        if not took_part or follows_higher or not self._able(now_ms):
            return []
        return self._win(now_ms)
