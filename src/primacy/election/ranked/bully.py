"""Bully: the highest live node leads (Ghoti and Hecaton; Garcia-Molina 1982; rules B).

A round: ELECTION goes to all higher nodes at once. Whoever lives answers OK and begins a round of its own; the asker
then waits for an announcement. Nobody answers in time, or all say that they cannot lead: the asker has won and
announces itself to all. One round at a time per node (B3) and one answer per call keep a failure below n² messages
(B9): at most n(n-1)/2 calls, as many answers, and n announcements.

Departures from these two, each because of what it cost there: all are asked at once with one deadline, not one after
the other; a leader that is called says that it leads instead of electing again; a wait for an announcement has a limit
and ends in a loop, not in a latch used once or in recursion; announcements go on for as long as one leads.
How leaders are watched, and how islands that meet become one within `rank.settle_ms`, stands in `follow.py`.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Send
from primacy.election.messages import Election, Message, Okay, Unable
from primacy.election.ranked.lead import Phase, Timer
from primacy.election.ranked.strategy import RankStrategy


class BullyStrategy(RankStrategy):
    """One node; drivable over Ghoti's wire (B10)."""

    def _start_round(self, now_ms: int) -> list[Effect]:
        self._enter(Phase.CALL)
        self._round += 1
        higher = tuple(name for name in self._ranking.higher if name not in self._ranking.pruned)
        if not higher:
            return self._win(now_ms)
        self._pending = dict.fromkeys(higher)
        self._arm(Timer.LIMIT, now_ms, self.timing.election_ms)
        return [Send(name, Election(self._origin, self._round)) for name in higher]

    def _call_over(self, now_ms: int) -> list[Effect]:
        """No OK came in time."""
        return self._win(now_ms)

    def _hear_round(self, now_ms: int, sender: str, message: Message) -> list[Effect]:
        match message:
            case Okay(_, number) if self._answers_call(sender, number):
                return self._await(now_ms, sender, self._patience_ms())
            case Unable(_, number) if self._answers_call(sender, number):
                return self._strike(now_ms, sender)
        return []

    def _answers_call(self, sender: str, number: int) -> bool:
        """An answer to this round's call, from one who was called; 0 is what a real node of Ghoti says."""
        return self._phase is Phase.CALL and sender in self._pending and number in (0, self._round)

    def _strike(self, now_ms: int, node: str) -> list[Effect]:
        """One fewer to wait for; the last one makes the winner."""
        if self._phase is not Phase.CALL or node not in self._pending:
            return []
        del self._pending[node]
        return [] if self._pending else self._win(now_ms)

    def _ack_missing(self, now_ms: int) -> list[Effect]:
        """Nothing is passed on here, so nothing is acknowledged."""
        raise AssertionError(now_ms)
