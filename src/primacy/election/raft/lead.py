"""Leading: winning, beating, proving the hold, starting the work, and every way in which a term ends.

A leader's hold counts from before a beat left that a majority acked (Q3). It starts its work after the first such
round, after what an older leader may still hold (Q5), and with the run lock free; once in a term (G4). It ends by
losing its majority (Q7), by stepping down in order, or by losing its guard; nothing reopens a term (Q8). Only a
leader whose work ran may release (G7), and a release frees the voters that it covers, and no others (G6).
"""

from __future__ import annotations

from primacy.election.effects import Effect, Extend, OrderRelease, Record, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.messages import Ack, Ahead, Beat, Release, VoteRequest
from primacy.election.model import Kind, Leadership
from primacy.election.raft.roles import Candidate, Leader
from primacy.election.raft.state import TERM_JUMP_MAX, RaftState, made
from primacy.settings.timing import stretched

TICK_MS = 2
"""Two clocks are read in whole milliseconds: a voter's age may be one too large, a winner's wait one too short."""
SLOT_PARTS = 5
"""After a release the k-th node in line stands after k fifths of a beat: time for the one before to be heard."""


class Leading(RaftState):
    """What a winner and a leader do."""

    def _win(self, now_ms: int, campaign: Candidate) -> list[Effect]:
        """Leader of this term; but votes give no hold (Q3), and an older leader's hold is waited for (Q5)."""
        ballot = self.ballot
        assert ballot is not None
        replies = [campaign.yes[node] for node in sorted(campaign.yes)]
        replies = [
            r if r.origin.node != self.node else self._yes(now_ms, VoteRequest(self.origin, r.asked, False))
            for r in replies
        ]
        hold_max_ms = max(reply.hold_max_ms for reply in replies)
        ages = {}
        for reply in replies:
            if reply.age_ms >= 0 and reply.age_term > self.released_term:
                left_ms = stretched(hold_max_ms, self.timing.drift_ppm) + TICK_MS - reply.age_ms
                ages[reply.origin.node] = (reply.age_term, now_ms + max(0, left_ms))
        token = ballot.base + ballot.term
        leader_state = Leader(now_ms, ballot.term, token, self._start_at(now_ms, ages), ages)
        leader_state.newest_term = 0 if self.newest_at_ms is None else self.newest_term
        self._become_leader(leader_state)
        effects: list[Effect] = [Record(Event(Code.ELECTED, ballot.term, self.node, value=token))]
        delay_ms = leader_state.start_at_ms - now_ms
        if delay_ms > 0:
            effects.append(Record(Event(Code.START_DELAY, ballot.term, value=delay_ms)))
        known = max([ballot.token_max, self.options.token_max, *(reply.token_max for reply in replies)])
        if known > token:
            refused = self._resign(
                now_ms, leader_state, Code.TOKEN_LOW, f"token {known} was already seen, ours is {token}"
            )
            return effects + refused
        return effects + self._lead_on(now_ms, leader_state)

    def _start_at(self, now_ms: int, ages: dict[str, tuple[int, int]]) -> int:
        """The end of the winner's start delay (Q5): the latest moment at which any reported hold is surely over."""
        return max([now_ms, *(at_ms for _, at_ms in ages.values())])

    def _is_late(self, now_ms: int, leader_state: Leader) -> bool:
        """No majority by TERM (Q7)."""
        return now_ms >= leader_state.progress.hold_from_ms + self.timing.term_at_ms

    def _lead_on(self, now_ms: int, leader_state: Leader) -> list[Effect]:
        if not leader_state.ran and not leader_state.closed and self._is_overdue(now_ms, leader_state):
            return self._resign(now_ms, leader_state, Code.CANNOT_START, "the work could not be started in time")
        effects: list[Effect] = []
        if now_ms >= leader_state.next_beat_ms:
            effects = self._beat(now_ms, leader_state)
        return effects if leader_state.ordered else effects + self._start_if_ready(now_ms)

    def _is_overdue(self, now_ms: int, leader_state: Leader) -> bool:
        """Its work could not start within H (Q6). One that waits on purpose may wait for hours (G8)."""
        return (
            not leader_state.deferred
            and now_ms >= max(leader_state.due_ms, leader_state.start_at_ms) + self.timing.hold_ms
        )

    def _beat(self, now_ms: int, leader_state: Leader) -> list[Effect]:
        leader_state.progress.sent(now_ms)
        late_ms = now_ms - leader_state.next_beat_ms
        leader_state.next_beat_ms = now_ms + self.timing.heartbeat_ms - min(late_ms, self.timing.heartbeat_ms // 2)
        self.newest_at_ms, self.newest_term = now_ms, leader_state.term
        settled = now_ms >= leader_state.start_at_ms
        beat = made(Beat, (self.origin, leader_state.term, leader_state.progress.number, self.timing.hold_ms, settled))
        effects: list[Effect] = [made(Send, (node, beat)) for node in self.quorum.others]
        return effects + self._prove(now_ms, leader_state) if self.quorum.majority == 1 else effects

    def _on_ack(self, now_ms: int, ack: Ack) -> list[Effect]:
        leader_state = self.leader_state
        if leader_state is None or ack.term != leader_state.term or ack.leader_boot != self.seat.boot:
            return []
        node = ack.origin.node
        progress = leader_state.progress
        if not progress.is_news(node, ack.number) or node not in self.quorum.other_voters:
            is_late = ack.number < progress.acked.get(node, 0)
            return [Record(Event(Code.LATE_ACK, ack.term, node, value=ack.number))] if is_late else []
        progress.acked[node] = ack.number
        return self._prove(now_ms, leader_state) if ack.number > progress.proved else []

    def _prove(self, now_ms: int, leader_state: Leader) -> list[Effect]:
        """Hold = H from the departure of the newest beat that a majority, the leader included, acked (Q3)."""
        if not leader_state.progress.prove(self._proved_number(leader_state)):
            return []
        if leader_state.ordered:  # also during a planned stop: the work may end in peace (G9)
            return [made(Extend, (self._leadership(leader_state),))]
        return self._start_if_ready(now_ms)

    def _proved_number(self, leader_state: Leader) -> int:
        progress = leader_state.progress
        return self.quorum.newest_acked(progress.acked.values(), progress.number)

    def _leadership(self, leader_state: Leader) -> Leadership:
        until_ms = leader_state.progress.hold_from_ms + self.timing.hold_ms
        return made(Leadership, (self.node, leader_state.term, leader_state.token, until_ms))

    def _start_if_ready(self, now_ms: int) -> list[Effect]:
        """Work starts after the first acked round, the start delay, and with the run lock free; once in a term (G4)."""
        leader_state = self.leader_state
        if leader_state is None or leader_state.ordered or leader_state.closed or leader_state.progress.proved == 0:
            return []
        if now_ms < leader_state.start_at_ms or self._work_unconfirmed():
            return []
        leader_state.ordered = True
        self.work_term = leader_state.term
        covered = self.released_term > 0 and self.preceding_term <= self.released_term
        return [Start(self._leadership(leader_state), Release(self.origin, leader_state.term), covered)]

    @property
    def preceding_term(self) -> int:
        """A leader's: the newest earlier term of which it or a voter of its majority knows a beat; 0 for none."""
        leader_state = self.leader_state
        return (
            max(leader_state.newest_term, *(term for term, _ in leader_state.ages.values()), 0)
            if leader_state is not None
            else 0
        )

    def _work_started(self, now_ms: int, term: int) -> list[Effect]:  # noqa: ARG002
        if self.leader_state is not None and self.leader_state.term == term:
            self.leader_state.ran = True
        return []

    def _work_deferred(self, now_ms: int, term: int, why: str) -> list[Effect]:
        """Once it waits no more, H counts from now: the run lock may be held (Q6)."""
        leader_state = self.leader_state
        if leader_state is not None and leader_state.term == term:
            leader_state.deferred, leader_state.due_ms = why, now_ms
        return []

    def _lose(self, now_ms: int, code: Code, detail: str) -> list[Effect]:
        """The term is over for this node: stop the work, go silent, and release once the work is confirmed gone."""
        leader_state = self.leader_state
        assert leader_state is not None
        effects: list[Effect] = [Record(Event(code, leader_state.term, detail=detail))]
        if self.work_term == leader_state.term:
            effects.append(Stop(leader_state.term, code.value, planned=False))
            if leader_state.ran:  # only then all work up to its term is known to be gone (G7)
                effects.append(OrderRelease(leader_state.term, leader_state.successor))
        self._retire(now_ms)
        return effects

    def _retire(self, now_ms: int) -> None:
        """Follower of nobody, without a beat; the own beats still bind (Q4)."""
        self._become_follower()
        self.stand_at_ms = self._timeout(now_ms if self.newest_at_ms is None else self.newest_at_ms)

    def _resign(self, now_ms: int, leader_state: Leader, code: Code, detail: str) -> list[Effect]:
        """Gives up a term whose work never ran: without a release, for a predecessor may still act (G7)."""
        effects: list[Effect] = [Record(Event(code, leader_state.term, detail=detail))]
        if self.work_term == leader_state.term:
            effects.append(Stop(leader_state.term, code.value, planned=False))
        self._retire(now_ms)
        return effects

    def _step_down(self, now_ms: int, code: Code, detail: str, successor: str = "") -> list[Effect]:
        """Stop, confirm, release, in this order; beats go on until the work is confirmed gone (G9)."""
        leader_state = self.leader_state
        if leader_state is None:
            if self.campaign is not None:
                self._become_follower()
            return []
        if leader_state.closed:
            return []
        if not leader_state.ran:
            return self._resign(now_ms, leader_state, code, detail)
        leader_state.closed = True
        leader_state.successor = successor
        return [
            Record(Event(code, leader_state.term, successor, detail)),
            Stop(leader_state.term, code.value, planned=True),
            OrderRelease(leader_state.term, successor),
        ]

    def _on_ahead(self, now_ms: int, ahead: Ahead) -> list[Effect]:
        """A voter is a term ahead and can ack nothing: step down in order, then stand again above its term (Q9)."""
        leader_state = self.leader_state
        if (
            leader_state is None
            or ahead.term <= leader_state.term
            or leader_state.closed
            or ahead.origin.node not in self.quorum.voters
        ):
            return []
        if ahead.term - leader_state.term > TERM_JUMP_MAX:
            return self._note(
                Code.TERM_JUMP, ahead.origin.node, f"term {ahead.term} is too far above {leader_state.term}"
            )
        leader_state.ahead_term = ahead.term
        effects = self._step_down(
            now_ms, Code.TERM_AHEAD, f"node {ahead.origin.node} is at term {ahead.term}", self.node
        )
        if self.leader_state is None:
            self._adopt(ahead.term)
        return effects

    def _health(self, now_ms: int, ok: bool, detail: str) -> list[Effect]:
        was, self.healthy = self.healthy, ok
        self.ill = "" if ok else detail or "a health probe failed"
        if ok:
            return [] if was else self._stand_again(now_ms)
        return self._step_down(now_ms, Code.UNHEALTHY, self.ill)

    def _stand_again(self, now_ms: int) -> list[Effect]:
        if self.leader_state is None and not self.muted:
            self._show_as_follower()
            self.stand_at_ms = max(self.stand_at_ms, now_ms + int(self.seat.random.random() * self.timing.spread_ms))
        return []

    def _work_gone(self, now_ms: int, term: int, released: bool) -> list[Effect]:
        """The tree is confirmed gone. If the release has left, it binds us as it binds the others."""
        if term == self.work_term:
            self.work_term = 0
        leader_state = self.leader_state
        ahead_term, successor = 0, ""
        effects: list[Effect] = []
        if leader_state is not None and leader_state.term == term:
            ahead_term, successor = leader_state.ahead_term, leader_state.successor
            effects.append(Record(Event(Code.RELEASED if released else Code.WORK_ENDED, term)))
            self._retire(now_ms)
        if released:
            effects += self._apply_release(now_ms, Release(self.origin, term, successor))
        if ahead_term > self.term:
            self._adopt(ahead_term)
        return effects

    def _guard_lost(self, now_ms: int, term: int) -> list[Effect]:
        """The guard is gone, and with it the release; its tree may still be dying, so the run lock decides (Q6, Q8)."""
        if term != self.work_term:
            return []
        leader_state = self.leader_state
        self.work_term = 0
        self.lock_held = True  # until the driver finds it free
        if leader_state is None or leader_state.term != term:
            return []
        self._retire(now_ms)
        return [Record(Event(Code.GUARD_LOST, term))]

    def _on_release(self, now_ms: int, release: Release, *, evidence: bool = False) -> list[Effect]:
        origin = release.origin
        ballot = self.ballot
        if ballot is None or self.muted or origin.base != ballot.base or origin.config != self.origin.config:
            return []
        if origin.node == self.node and self.work_term >= release.term:
            return []
        if evidence and not self._release_covers(release.term):
            return []  # an old one that a candidate carries along
        return self._apply_release(now_ms, release)

    def _apply_release(self, now_ms: int, release: Release) -> list[Effect]:
        """Clears acks of terms up to T and nothing above (G6)."""
        leader_state = self.leader_state
        term = release.term
        if leader_state is not None:
            return self._release_in_delay(now_ms, leader_state, release) if term < leader_state.term else []
        if self.newest_at_ms is None and term <= self.released_term:
            return []
        if not self._release_covers(term):
            return [Record(Event(Code.RELEASE_REFUSED, term, release.origin.node))]
        self.newest_at_ms = None
        self.released_term = max(self.released_term, term)
        self.release = release
        self._become_follower()
        self.stand_at_ms = now_ms + self._slot_ms(release)
        return [Record(Event(Code.RELEASE_APPLIED, term, release.origin.node))]

    def _release_covers(self, term: int) -> bool:
        """At least the newest term acked and, after a restart, at least the ballot's term as it was read (G6)."""
        return term >= self.newest_term

    def _release_in_delay(self, now_ms: int, leader_state: Leader, release: Release) -> list[Effect]:
        """A winner applies a release that arrives during its delay."""
        if leader_state.ordered or release.term <= self.released_term:
            return []
        self.released_term, self.release = release.term, release
        leader_state.ages = {node: age for node, age in leader_state.ages.items() if age[0] > release.term}
        shorter = self._start_at(now_ms, leader_state.ages)
        effects: list[Effect] = []
        if shorter < leader_state.start_at_ms:
            leader_state.start_at_ms = shorter
            effects = [Record(Event(Code.RELEASE_APPLIED, release.term, release.origin.node))]
        return effects + self._start_if_ready(now_ms)

    def _slot_ms(self, release: Release) -> int:
        """Who stands when after a release: the named one at once, then the others in turn, the releaser last.

        Where one is named the others leave it the spread: it is healthy, for it was asked for, but it may be late.
        """
        able = [m for m in self.seat.membership.members if m.kind is Kind.VOTER]
        from_id = release.origin.node
        able.sort(key=lambda m: (m.id != release.successor, m.id == from_id, -m.priority, m.id <= from_id, m.id))
        place = next((i for i, m in enumerate(able) if m.id == self.node), len(able))
        is_left_to_another = place > 0 and able[0].id == release.successor
        return place * (self.timing.heartbeat_ms // SLOT_PARTS) + is_left_to_another * self.timing.spread_ms
