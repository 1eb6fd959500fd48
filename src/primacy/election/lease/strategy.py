"""Lease: whoever writes its name into one row of a store leads, for as long as it proves that it stands there.

The idea (rules L and T). The row has a token, which grows with every leadership, and a seq, which grows with every
renewal. A holder reads its clock *before* a renewal leaves; once the store has proved that very renewal, its work may
live until that moment plus the hold. Everybody else looks. Who has seen the row unchanged on its *own* clock for
the hold times the drift ratio, counted from *after* the answer arrived, knows that the holder's last renewal left
before that, so that its work is dead; it takes the row by a write that compares what it saw. No two clocks are ever
compared, and the store's own clock plays no part.

A store may forget. What is concluded from its answers although it does stands in `lease_evidence.py`.

What this machine must never do: extend anything because of an error, a late answer or a mere look; take a row that it
has not watched for the whole wait (but for L4's four cases, with their evidence); open a leadership that it closed.

Choices that the rules leave open:

- `term` is the token.
- A heartbeat is renewed even if the one before is unanswered, with the same seq; whichever is proved counts with its
own departure. A look extends nothing, not even one that shows the seq of an unanswered renewal: the next renewal, sent
at once with the seq found, gives a later hold anyway.
- A take without an answer counts as not held. If a later look finds our name in the row (it is unique per start), under
  the identity that the take was written under, the row is *renewed* first and work starts on the proof of that: the
  predecessor was dead when the take left, and nobody took the row since.
- A missing row that will be free once the table is settled (L9) is waited for and not placed: that takes no longer, and
  is over at once if another node has watched the table for longer. Otherwise a placeholder is made (L3).
- A fresh name is inserted without a look that counts: the insert counts by itself.
- A row of ours that we do not want, or whose leadership is closed, is released by this machine as soon as no work of
  ours is alive. It may do so even if no work ever started (G7 forbids that to a raft leader, which wins first and waits
  afterwards): here the wait comes before the take, so holding the row proves that all earlier work is dead.
- Watchers look every heartbeat, so that a release is noticed within a heartbeat; the take itself needs no further look.
Where the store tells of renewals, they look when that is worth most (`_hear_of_renewal`).
- Clocks are read in whole milliseconds. An anchor may therefore lie up to one before the true moment; one is added.

It is level-triggered: an input changes what is known, then `_go_on` does whatever is due. The holder's half stands in
`lease_hold.py`, what is remembered in `lease_state.py`, the words for people in `lease_view.py`; this file is the port
and the watcher (L3, L4). Most rules have a method of their own, which their mutant overrides.
"""

from __future__ import annotations

from typing import assert_never

from primacy.election.effects import AskStore, Effect
from primacy.election.events import Code
from primacy.election.inputs import (
    Answered,
    CampaignOrder,
    CancelChange,
    ChangeMembers,
    DeadlinePassed,
    ForceMembers,
    GuardLost,
    Health,
    Init,
    Input,
    MembersChanged,
    Paced,
    Pause,
    PersistFailed,
    Received,
    Rejoin,
    Resume,
    RunLock,
    Shutdown,
    Started,
    StepDown,
    StoreAnswered,
    StoreNews,
    StrangerHeard,
    Unanswered,
    WorkDeferred,
    WorkGone,
    WorkStarted,
)
from primacy.election.lease.hold import LeaseHolder
from primacy.election.lease.state import RETRY_MAX_MS, Asked, LeaseOptions, Sighting
from primacy.election.lease.view import believed, role_of, view_of
from primacy.election.messages import FailsafeAck, FailsafeHeartbeat, Query, Report
from primacy.election.model import Role, View
from primacy.election.store import (
    IDLE,
    Look,
    Place,
    ReleaseRow,
    Renew,
    Row,
    Settle,
    StoreAnswer,
    StoreRequest,
    Take,
    covers,
    node_of,
)

__all__ = ["LeaseOptions", "LeaseStrategy"]

OTHER = "other-configuration"
"""Why a node on a lease recovers."""


class LeaseStrategy(LeaseHolder):
    """At most one holder of a row, by conditional writes and by waiting out the hold on one's own clock."""

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        """What is due by the clock comes first: a hold that ran out is lost, whatever the input says (section Time)."""
        if self._saving and type(given) is not PersistFailed:
            self._saving, self._unsaved = False, ""  # it arrived on the disk
        self._away = self._away or (self._bound and self._looked_away(now_ms))
        effects = self._expire(now_ms)
        effects += self._hear(now_ms, given)
        if not self._changed.is_over and self._born is not None:
            effects += self._recover(now_ms)
        effects += self._go_on(now_ms)
        self.deadline_ms = self._wake_ms()
        return effects

    @property
    def role(self) -> Role:
        """What this node is in the election."""
        return role_of(self)

    @property
    def leader(self) -> str:
        """Whom it last saw holding the lease; empty for nobody."""
        return believed(self, None)

    def view(self, now_ms: int) -> View:
        """How it stands, in the users' words."""
        return view_of(self, now_ms)

    def _hear(self, now_ms: int, given: Input) -> list[Effect]:
        match given:
            case Started(wall_ms, lock_held):
                self._born, self._lock_held, self._next_ask_ms = (now_ms, wall_ms), lock_held, now_ms
                self._changed.begin(now_ms, speaks=self.options.speaks)
                notes = [self._note(Code.STARTED), *([self._note(Code.LOCK_HELD)] if lock_held else [])]
                return [*notes, *([self._note(Code.RECOVERING, detail=OTHER)] if self._changed.others else [])]
            case StoreAnswered(number, answer):
                return self._answered(now_ms, number, answer)
            case StoreNews(renewed=True):
                self._hear_of_renewal(now_ms)
            case StoreNews():
                self._news, self._next_ask_ms = self._pending is not None, now_ms
            case Received(FailsafeHeartbeat() as heartbeat):
                return self._failsafe_heartbeat(now_ms, heartbeat)
            case Received(FailsafeAck() as ack):
                return self._failsafe_ack(now_ms, ack)
            case Received(Query() as query):
                return self._report(query)
            case Received(Report() as report):
                return self._reported(now_ms, report)
            case Rejoin(without, others_stopped):
                self._changed.vouched(now_ms, without, others_stopped)
            case WorkStarted(term):
                if self._lead is not None and self._lead.token == term:
                    self._lead.running, self._idle = True, False
            case WorkDeferred(term, why):
                if self._lead is not None and self._lead.token == term:
                    self._lead.deferred, self._lead.started_ms = why, now_ms
            case WorkGone(term, released):
                return self._work_gone(now_ms, term, released)
            case GuardLost(term):
                if self._lead is not None and self._lead.token == term:
                    return self._lose(now_ms, Code.GUARD_LOST, "the guard is gone", order=False)
            case RunLock(held):
                return self._run_lock(now_ms, held)
            case StepDown(successor, reason):
                return self._step_down(Code.TRANSFER if successor else Code.STEP_DOWN, reason, successor)
            case Pause(waits_for):
                self._paused, self._pause_ends_by = True, waits_for
                return self._step_down(Code.PAUSED, "paused") or [self._note(Code.PAUSED)]
            case Resume():
                self._paused, self._next_ask_ms = False, now_ms
            case Health(ok, detail):
                return self._health(now_ms, ok, detail)
            case Shutdown():
                self._closing = True
                return self._step_down(Code.STOPPING, "the agent ends") or [self._note(Code.STOPPING)]
            case PersistFailed(reason):
                return self._disk_failed(now_ms, reason)
            case (
                DeadlinePassed()
                | Received()
                | Unanswered()
                | Answered()
                | Paced()
                | CampaignOrder()
                | Init()
                | ChangeMembers()
                | CancelChange()
                | ForceMembers()
                | MembersChanged()
                | StrangerHeard()
            ):
                pass  # the clock is looked at in `_go_on`; the rest belongs to other strategies
            case _:
                assert_never(given)
        return []

    def _go_on(self, now_ms: int) -> list[Effect]:
        if self._born is None:
            return []
        if self._lead is not None:
            return self._keep(now_ms, self._lead)
        return self._watch(now_ms)

    # --- a configuration that is another one than before (M1) ---------------------------------------------------------

    def _report(self, query: Query) -> list[Effect]:
        """Anybody is told which configuration this node runs with, as soon as its disk has it."""
        if not self.options.config or self._born is None or self._unsaved:
            return []
        return [self._changed.answer(query, self.token_max)]

    def _reported(self, now_ms: int, report: Report) -> list[Effect]:
        if self._born is None or self._changed.is_over:
            return []
        told_of_another = self._changed.hear(now_ms, report)
        self._note_token(report.token_max)
        return [self._note(Code.RECOVERING, detail=OTHER), *self._save()] if told_of_another else []

    def _recover(self, now_ms: int) -> list[Effect]:
        """Asks who has not answered; ends when all of it is over, durably before anything is taken."""
        over_ms = self._changed.over_at_ms()
        if over_ms is None or now_ms < over_ms:
            return [*self._changed.ask(now_ms)]
        recovered = [self._note(Code.RECOVERED, detail=OTHER)] if self._changed.others else []
        self._changed.end()
        self._next_ask_ms = now_ms
        return [*self._save(), *recovered]

    def _wake_ms(self) -> int | None:
        wake_ms = self._wake_for_row_ms()
        if self._born is None or self._changed.is_over or wake_ms is None:
            return wake_ms
        return min(wake_ms, self._changed.wake_ms())

    def _wake_for_row_ms(self) -> int | None:
        if self._lead is not None:
            return self._keep_at_ms(self._lead)
        if self._pending is not None:
            return self._pending.asked_ms + self._answer_ms
        return None if self._born is None or self._done() else self._next_ask_ms

    # --- asking -------------------------------------------------------------------------------------------------------

    def _watch(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._pending is not None:
            if now_ms < self._pending.asked_ms + self._answer_ms:
                return []
            writes = not isinstance(self._pending.request, Look)
            self._pending = None
            effects += self._failed(now_ms, "no answer in time", writes=writes)
            self._back_off(now_ms)
        if now_ms < self._next_ask_ms or self._done():
            return effects
        request = self._next_request(now_ms)
        if isinstance(request, Take):
            effects += self._stand(now_ms, request)
        elif isinstance(request, ReleaseRow):
            self._used_token = max(self._used_token, request.token)
        self._number += 1
        self._pending = Asked(self._number, request, now_ms, self._position, self._evidence_link())
        return [*effects, AskStore(self._number, request)]

    def _next_request(self, now_ms: int) -> StoreRequest:
        """What is due, or else a look."""
        sight = self._sight
        if sight is None or self._away:
            return Look(self.options.name)
        due, _ = self._outlook(now_ms, sight)
        return due or Look(self.options.name, self._counts(sight))

    def _outlook(self, now_ms: int, sight: Sighting) -> tuple[StoreRequest | None, int | None]:
        """The write that serves now, or a look that counts, if one waits for it; else when a write will be due."""
        name, row = self.options.name, sight.row
        ours = self._ours(sight)
        own = None if ours is None or self._work else self._own_request(now_ms, sight, ours)
        if own is not None:
            return own, None
        take_at_ms = self._take_at_ms()
        if take_at_ms is not None and now_ms >= take_at_ms:
            return self._take_request(now_ms, sight), None
        if row is None and self._must_place(sight):
            return Place(name, sight.server), None
        settling = self._settling
        settle_at_ms = None if settling is None else self._settle_at_ms()
        if settling is not None and settle_at_ms is not None and now_ms >= settle_at_ms:
            return Settle(name, sight.server, settling.genesis, self._evidence_link()), None
        if (row is None or row.released) and self._counts(sight) and self._may_lead():
            return Look(name, count=True), None
        if take_at_ms is None or settle_at_ms is None:
            return None, settle_at_ms if take_at_ms is None else take_at_ms
        return None, min(take_at_ms, settle_at_ms)

    def _own_request(self, now_ms: int, sight: Sighting, ours: Row) -> StoreRequest | None:
        """What becomes of a row that is ours: a take that was found is renewed first (L4), the rest is released.

        None: it has to be watched. Where nothing is believed before it was watched for (`watched`), a take that was
        found is taken anew, with a new token.
        """
        name, trusted = self.options.name, now_ms >= self._trusted_at_ms()
        if self._may_lead() and self._found(sight) is not None:
            if self._is_watched() or not trusted:
                return None
            return Renew(name, self.holder, ours.token, ours.seq, sight.server)
        if not trusted:
            return None
        return ReleaseRow(name, self.holder, ours.token, ours.seq, (IDLE if self._idle else "") + self._heir)

    def _take_request(self, now_ms: int, sight: Sighting) -> Take:
        """It compares all that the decision rested on (L3): the row, or for a fresh name the genesis row."""
        row, token = sight.row, self._next_token(now_ms, sight)
        new = self._own_row(token, 1 if row is None else row.seq + 1, sight.server)
        genesis = sight.genesis if row is None else None
        return Take(self.options.name, row, sight.server, new, genesis, self._evidence_link())

    def _stand(self, now_ms: int, take: Take) -> list[Effect]:
        """A take that is asked for again, as the store said nothing, is recorded once: it is the same decision."""
        before, row = self._take, take.seen
        again = before is not None and (before.server, before.seen) == (take.server, row)
        self._take, self._owes, self._heir, self._idle = take, True, "", True
        floor = 0 if take.genesis is None else take.genesis.floor
        self._preceding = max(floor if row is None else row.token, self.token_max)
        if again:
            return []
        sight, stands = self._sight, self._note(Code.CAMPAIGNS, take.row.token)
        if sight is None or row is None or row.released or row.is_placeholder:
            return [stands]
        if row.holder == self.holder:
            return [stands]
        if self._spared(now_ms, sight):
            return [self._note(Code.EARLIER_GONE, row.token, node_of(row.holder)), stands]
        return [self._note(Code.LEADER_SILENT, row.token, node_of(row.holder), value=self._wait_ms(sight)), stands]

    def _plan(self, now_ms: int, request: StoreRequest) -> None:
        """When to ask next: at once if there is something to do, else when a write is due, or after a look's pause."""
        sight = self._sight
        due, at_ms = (None, None) if sight is None else self._outlook(now_ms, sight)
        if self._news or (due is not None and not self._said_already(due, request)):
            self._news, self._next_ask_ms = False, now_ms
            return
        pause_ms = now_ms + self._look_ms + self._jitter(self._look_ms // 5)
        self._next_ask_ms = pause_ms if at_ms is None else max(now_ms, min(pause_ms, at_ms))

    def _hear_of_renewal(self, now_ms: int) -> None:
        """The holder is said to live. That proves nothing, but tells when a look is worth most.

        Right after a renewal an observation begins as early as it can; and if none is heard of in time, it is due now.
        So each watcher looks at one of four renewals, others at others (`_looks_at`), and at none between them. Who
        lies about renewals delays a look by less than a hold, and no take that is due.
        """
        sight = self._sight
        if self._lead is not None or self._pending is not None or sight is None or sight.row is None:
            return
        self._heard += 1
        seq = sight.row.seq + self._heard
        if self._looks_at(sight.row.holder, seq):
            self._next_ask_ms = now_ms
            return
        overdue_ms = now_ms + self._gap_ms(seq) + self.timing.heartbeat_ms // 10
        latest_ms = self._looked_ms + self.timing.hold_ms * 7 // 8
        due, at_ms = self._outlook(now_ms, sight)
        due_ms = now_ms if due is not None else overdue_ms if at_ms is None else at_ms
        self._next_ask_ms = max(now_ms, min(overdue_ms, latest_ms, due_ms))

    @staticmethod
    def _said_already(due: StoreRequest, request: StoreRequest) -> bool:
        """The same has just been answered and changed nothing: to say it again at once would not change more.

        A release that an own renewal overtook on the way is another one: it is said again with the seq found.
        """
        if isinstance(due, Take) and isinstance(request, Take):
            return (due.seen, due.server, due.genesis) == (request.seen, request.server, request.genesis)
        return due == request

    def _back_off(self, now_ms: int) -> None:
        """Twice as long after each failure, half of it by chance, so that nodes do not come back in step."""
        most_ms = max(self._look_ms, min(self._d_ms, RETRY_MAX_MS))
        pause_ms = min(most_ms, self._look_ms << min(self._failures - 1, 10))
        self._next_ask_ms = now_ms + pause_ms // 2 + self._jitter(pause_ms // 2)

    def _done(self) -> bool:
        """The agent ends, and nothing of ours is left in the store."""
        return self._closing and not self._owes and not self._work

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answered(self, now_ms: int, number: int, answer: StoreAnswer) -> list[Effect]:
        lead, asked = self._lead, self._pending
        if lead is not None and number in lead.renewals:
            return self._renewal_answered(now_ms, lead, number, answer)
        if asked is None or number != asked.number:
            return []  # given up on: what it did to the row will be seen
        self._pending = None
        if not answer.ok:
            writes = not isinstance(asked.request, Look)
            effects = self._failed(now_ms, answer.reason, writes=writes, final=answer.final)
            self._back_off(now_ms)
            return effects
        self._answers()
        effects = self._recovered(now_ms) if self._ends_outage(asked.request, answer) else []
        effects += self._note_answer(now_ms, answer, asked.position)
        if isinstance(asked.request, Take):
            self._take = None
        effects += self._done_or_not(now_ms, asked, answer)
        if self._lead is None:
            self._plan(now_ms, asked.request)
        return effects

    def _done_or_not(self, now_ms: int, asked: Asked, answer: StoreAnswer) -> list[Effect]:
        request = asked.request
        match request:
            case Take() | Renew() | Settle() if answer.done and not self._done_here(now_ms, asked, answer):
                self._fell_ms = now_ms
            case Take() if answer.done:
                taken = self._note(Code.LEASE_TAKEN, request.row.token, value=request.row.token)
                used, covered = self._release_used(now_ms, request), self._covered(now_ms)
                return [taken, *used, *self._written(now_ms, request.row, asked.asked_ms, covered)]
            case Renew() if answer.done:
                row = self._own_row(request.token, request.seq + 1, request.server)
                return self._written(now_ms, row, asked.asked_ms)
            case ReleaseRow() if answer.done:
                return self._note_release(request.token) + self._see(now_ms, asked, answer)
            case Settle() if answer.done:
                self._settling = None
                return [self._note(Code.SETTLED), *self._see(now_ms, asked, answer)]
        return self._see(now_ms, asked, answer)

    def _release_used(self, now_ms: int, take: Take) -> list[Effect]:
        row = take.seen
        if row is None or not self._by_release(now_ms):
            return []
        return [self._note(Code.RELEASE_APPLIED, take.row.token, node_of(row.holder))]

    def _by_release(self, now_ms: int) -> bool:
        """What is seen may be taken at once, as it was released."""
        sight = self._sight
        released = sight is not None and sight.row is not None and self._release_counts(sight, sight.row)
        return released and now_ms >= self._trusted_at_ms()

    def _covered(self, now_ms: int) -> bool:
        """What was taken had been released, by a leadership whose work ran (G8)."""
        sight = self._sight
        return self._by_release(now_ms) and sight is not None and sight.row is not None and covers(sight.row)

    def _see(self, now_ms: int, asked: Asked, answer: StoreAnswer) -> list[Effect]:
        """What a look, or a write that matched nothing, showed (L3)."""
        effects = self._see_genesis(now_ms, answer)
        old, row = self._sight, answer.row
        self._looked_ms, self._heard = now_ms, 0
        if old is not None and self._unchanged(old, answer):
            self._refused = self._refused or (isinstance(asked.request, Take) and asked.request.seen is None)
            self._sight = old._replace(genesis=answer.genesis or old.genesis)
        else:
            effects += self._restarted(old, answer)
            anchor_ms, jitter_ms = self._anchor_ms(asked.asked_ms, now_ms), self._jitter(self._look_ms // 10)
            self._sight = Sighting(answer.server, row, anchor_ms, jitter_ms, answer.genesis)
            self._refused = False
        if row is None and not self._ever_saw and not self._is_fresh(self._sight):
            effects.append(self._note(Code.NEW_NAME, value=self._wait_ms(self._sight)))
        self._ever_saw = True
        if self._take is not None and not self._still_open(self._take, answer):
            self._take = None
        if row is not None:
            self._note_token(row.token)
            self._longest_ms = max(self._longest_ms, self._row_wait_ms(row))
        ours = self._ours(self._sight)
        if ours is not None and ours.token > self._used_token:
            effects.append(self._note(Code.ANSWER_LOST, ours.token, detail="a take was written but not answered"))
        self._owes = ours is not None or self._take is not None
        return effects + self._save()

    def _restarted(self, old: Sighting | None, answer: StoreAnswer) -> list[Effect]:
        """Records what is worth it. An ordinary renewal by the holder is not."""
        row, before = answer.row, None if old is None else old.row
        effects: list[Effect] = []
        if row is not None and not row.released and row.holder not in ("", self.holder, self._follows):
            self._follows = row.holder
            effects.append(self._note(Code.FOLLOWS, row.token, node_of(row.holder)))
        if old is None:
            return effects
        if old.server != answer.server:
            effects.append(self._note(Code.OTHER_SERVER, detail=f"{old.server}, now {answer.server}"))
        if old.server != answer.server or (before is not None and (row is None or row.token < before.token)):
            effects.append(self._note(Code.OBSERVATION_RESTARTED, value=self._long_ms()))
        return effects

    # --- the moment to take (L3, L4, L7) ------------------------------------------------------------------------------

    def _take_at_ms(self) -> int | None:
        """The earliest moment at which what is seen may be taken; None if not at all."""
        sight = self._sight
        if sight is None or not self._may_lead() or not self._tokens_left(sight):
            return None
        row, spared_ms = sight.row, self._spared_at_ms(sight)
        if row is None:
            return spared_ms
        if self._found(sight) is not None and not self._is_watched():
            spared_ms = None  # it is renewed instead
        if not self._list_allows(row):
            return spared_ms if row.released else None
        ripe_ms = max(self._ripe_ms(sight) + sight.jitter_ms, self._hold_off_ms)
        return ripe_ms if spared_ms is None else min(spared_ms, ripe_ms)

    def _list_allows(self, row: Row) -> bool:
        """A failsafe row belongs to its list until it is released (L7)."""
        return row.members in ("", self._list_hash)
