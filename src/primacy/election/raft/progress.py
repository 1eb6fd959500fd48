"""What a leader sent and when, what each voter acked of it, and what of it a majority has (Q3).

A hold counts from before the newest heartbeat left that a majority acked, never from an ack: so each departure is kept
until a newer one is proved. Pure: who is a majority says `quorum.py`, what follows from the hold `lead.py`.
"""

from __future__ import annotations


class Progress:
    """The heartbeats of one term."""

    def __init__(self, now_ms: int) -> None:
        self.number = 0
        """Of the newest heartbeat that was sent."""
        self.departures: dict[int, int] = {}
        """When those left that are not older than the newest one proved."""
        self.acked: dict[str, int] = {}
        """Of each other voter, the newest that it acked."""
        self.proved = 0
        """The newest that a majority acked; 0 before the first such round."""
        self.hold_from_ms = now_ms
        """When that one left; before the first such round, the moment of the election."""

    def sent(self, now_ms: int) -> None:
        """The next heartbeat leaves now."""
        self.number += 1
        self.departures[self.number] = now_ms

    def is_news(self, node: str, number: int) -> bool:
        """An ack of this number says more than this voter's acks before, and names a heartbeat that was sent."""
        return self.acked.get(node, 0) < number <= self.number

    def prove(self, number: int) -> bool:
        """A majority has this one: the hold counts from its departure. False if that was known."""
        if number <= self.proved:
            return False
        for old in range(self.proved, number):
            self.departures.pop(old, None)
        self.proved = number
        self.hold_from_ms = self.departures[number]
        return True
