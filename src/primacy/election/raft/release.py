"""Releases: all work up to a term is gone, so nobody needs to wait for it (G6, G7).

A release frees the voters that it covers, and no others: it clears acks of terms up to its own and nothing above. Who
campaigns when after it is decided by turns, so that the one who was named, or the next in line, meets no rival.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record
from primacy.election.events import Code, Event
from primacy.election.messages import Release
from primacy.election.model import Kind
from primacy.election.raft.lead import Leading
from primacy.election.raft.roles import Leader
from primacy.election.raft.state import RaftState

SLOT_PARTS = 5
"""After a release the k-th node in line campaigns after k fifths of a heartbeat: time for the one before to be
heard."""


class Releasing:
    """What a release does to whoever hears it, its sender included."""

    def __init__(self, state: RaftState, leading: Leading) -> None:
        self.state = state
        self.leading = leading

    def work_gone(self, now_ms: int, term: int, released: bool) -> list[Effect]:
        """The tree is confirmed gone. If the release has left, it binds us as it binds the others."""
        state = self.state
        if term == state.work_term:
            state.work_term = 0
        leader = state.leader_state
        ahead_term, successor = 0, ""
        effects: list[Effect] = []
        if leader is not None and leader.term == term:
            ahead_term, successor = leader.ahead_term, leader.successor
            effects.append(Record(Event(Code.RELEASED if released else Code.WORK_ENDED, term)))
            state.retire(now_ms)
        if released:
            effects += self.apply(now_ms, Release(state.origin, term, successor))
        if ahead_term > state.term:
            state.adopt(ahead_term)
        return effects

    def on_release(self, now_ms: int, release: Release, *, evidence: bool = False) -> list[Effect]:
        state = self.state
        origin, ballot = release.origin, state.ballot
        if ballot is None or state.muted or origin.base != ballot.base:
            return []
        if not state.seat.membership.is_config(origin.config):
            return []
        if origin.node == state.node and state.work_term >= release.term:
            return []
        if evidence and not self.covers(release.term):
            return []  # an old one that a candidate carries along
        return self.apply(now_ms, release)

    def apply(self, now_ms: int, release: Release) -> list[Effect]:
        """Clears acks of terms up to T and nothing above (G6)."""
        state = self.state
        promise, leader, term = state.promise, state.leader_state, release.term
        if leader is not None:
            return self._in_delay(now_ms, leader, release) if term < leader.term else []
        if promise.newest_at_ms is None and term <= promise.released_term:
            return []
        if not self.covers(term):
            return [Record(Event(Code.RELEASE_REFUSED, term, release.origin.node))]
        promise.newest_at_ms = None
        promise.released_term = max(promise.released_term, term)
        promise.release = release
        state.become_follower()
        state.campaign_at_ms = now_ms + self._slot_ms(release)
        return [Record(Event(Code.RELEASE_APPLIED, term, release.origin.node))]

    def covers(self, term: int) -> bool:
        """At least the newest term acked and, after a restart, at least the ballot's term as it was read (G6)."""
        return term >= self.state.promise.newest_term

    def _in_delay(self, now_ms: int, leader: Leader, release: Release) -> list[Effect]:
        """A winner applies a release that arrives during its delay."""
        promise = self.state.promise
        if leader.ordered or release.term <= promise.released_term:
            return []
        promise.released_term, promise.release = release.term, release
        leader.ages = {node: age for node, age in leader.ages.items() if age[0] > release.term}
        shorter = self.leading.start_at(now_ms, leader.ages)
        effects: list[Effect] = []
        if shorter < leader.start_at_ms:
            leader.start_at_ms = shorter
            effects = [Record(Event(Code.RELEASE_APPLIED, release.term, release.origin.node))]
        return effects + self.leading.start_if_ready(now_ms)

    def _slot_ms(self, release: Release) -> int:
        """Who campaigns when after a release: the named one at once, then the others in turn, the releaser last.

        Where one is named the others leave it the spread: it is healthy, for it was asked for, but it may be late.
        """
        state = self.state
        able = [m for m in state.members if m.kind is Kind.VOTER]
        from_id, leaving, order = release.origin.node, state.leaving, state.order
        able.sort(
            key=lambda m: (
                *(m.id != release.successor, m.id in leaving, m.id == from_id),
                order.index(m.id) if m.id in order else len(order),
                *(-m.priority, m.id <= from_id, m.id),
            )
        )
        place = next((i for i, m in enumerate(able) if m.id == state.node), len(able))
        is_left_to_another = place > 0 and able[0].id == release.successor
        return place * (state.timing.heartbeat_ms // SLOT_PARTS) + is_left_to_another * state.timing.spread_ms
