"""Lease: whoever writes its name into one row of a store leads, for as long as it proves that it stands there.

The idea (rules L and T). The row has a token, which grows with every leadership, and a seq, which grows with every
renewal. A holder reads its clock *before* a renewal leaves; once the store has proved that very renewal, its work may
live until that moment plus the hold. Everybody else looks. Whoever has seen (token, seq) unchanged on its *own* clock
for the hold times the drift ratio, counted from *after* the answer arrived, knows that the holder's last renewal left
before that, so that its work is dead; it takes the row by a write that compares what it saw. No two clocks are ever
compared, and the store's own clock plays no part.

What this machine must never do: extend anything because of an error, a late answer or a mere look; take a row that it
has not watched for the whole wait (but a released one); open a leadership again that it closed.

Choices that the rules leave open:

- `term` is the token.
- A beat is renewed even if the one before is unanswered, with the same seq; whichever is proved counts with its own
  departure. A look extends nothing, not even one that shows the seq of an unanswered renewal: the next renewal, sent at
  once with the seq found, gives a later hold anyway.
- A take without an answer counts as not held. If a later look finds our name in the row (it is unique per start), on
  the server that the take was written on, the row is *renewed* first and work starts on the proof of that: the
  predecessor was dead when the take left, and nobody took the row since.
- A row of ours that we do not want, or whose leadership is closed, is released by this machine as soon as no work of
  ours is alive. It may do so even if no work ever started (G7 forbids that to a raft leader, which wins first and waits
  afterwards): here the wait comes before the take, so holding the row proves that all earlier work is dead.
- A release counts only on the server that it was written on; see `store.py` for the fail-over that makes this needful.
- Watchers look every beat, so that a release is noticed within a beat; the take itself needs no further look.
- Clocks are read in whole milliseconds. An anchor may therefore lie up to one before the true moment; one is added.

It is level-triggered: an input changes what is known, then `_go_on` does whatever is due. The holder's half stands in
`lease_hold.py`, what is remembered in `lease_state.py`, the words for people in `lease_view.py`; this file is the port
and the watcher (L3, L4). Each rule that has a mutant has a method of its own.
"""

from __future__ import annotations

from typing import assert_never

from primacy.election.effects import AskStore, Effect
from primacy.election.events import Code
from primacy.election.inputs import (
    Answered,
    DeadlinePassed,
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
    Unanswered,
    WorkDeferred,
    WorkGone,
    WorkStarted,
)
from primacy.election.lease_hold import LeaseHolder
from primacy.election.lease_state import RETRY_MAX_MS, TICK_MS, Asked, LeaseOptions, Sighting
from primacy.election.lease_view import believed, role_of, view_of
from primacy.election.messages import FailsafeAck, FailsafeBeat
from primacy.election.model import TOKEN_MAX, Role, View
from primacy.election.store import (
    IDLE,
    Look,
    ReleaseRow,
    Renew,
    Row,
    StoreAnswer,
    StoreRequest,
    Take,
    covers,
    heir_of,
    node_of,
)

__all__ = ["LeaseOptions", "LeaseStrategy"]


class LeaseStrategy(LeaseHolder):
    """At most one holder of a row, by conditional writes and by waiting out the hold on one's own clock."""

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        """What is due by the clock comes first: a hold that ran out is lost, whatever the input says (section Time)."""
        if self._saving and type(given) is not PersistFailed:
            self._saving, self._unsaved = False, ""  # it arrived on the disk
        effects = self._expire(now_ms)
        effects += self._hear(now_ms, given)
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
                return [self._note(Code.STARTED), *([self._note(Code.LOCK_HELD)] if lock_held else [])]
            case StoreAnswered(number, answer):
                return self._answered(now_ms, number, answer)
            case StoreNews():
                self._news, self._next_ask_ms = self._pending is not None, now_ms
            case Received(FailsafeBeat() as beat):
                return self._failsafe_beat(beat)
            case Received(FailsafeAck() as ack):
                return self._failsafe_ack(now_ms, ack)
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
            case Pause():
                self._paused = True
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
                | Init()
                | Rejoin()
                | MembersChanged()
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

    def _wake_ms(self) -> int | None:
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
            effects += self._stand(request)
        self._number += 1
        self._pending = Asked(self._number, request, now_ms)
        return [*effects, AskStore(self._number, request)]

    def _next_request(self, now_ms: int) -> StoreRequest:
        """Which of the four requests serves best now."""
        sight, name = self._sight, self.options.name
        ours = self._ours(sight)
        if sight is not None and ours is not None and not self._work:
            if self._may_lead() and ours.token > self._used_token and self._token_grows(ours.token):
                return Renew(name, self.holder, ours.token, ours.seq, sight.server)
            self._used_token = max(self._used_token, ours.token)
            return ReleaseRow(name, self.holder, ours.token, ours.seq, (IDLE if self._idle else "") + self._heir)
        take_at_ms = self._take_at_ms(now_ms)
        if sight is None or take_at_ms is None or now_ms < take_at_ms:
            return Look(name)
        row, token = sight.row, self._take_token(now_ms, sight)
        if row is None:
            return Take(name, 0, 0, sight.server, self._own_row(token, 1, sight.server))
        new = self._own_row(token, row.seq + 1, sight.server)
        return Take(name, row.token, row.seq, sight.server, new, row.members)

    def _stand(self, take: Take) -> list[Effect]:
        """A take that is asked for again, as the store said nothing, is recorded once: it is the same one."""
        again = self._take is not None and self._take.row.token == take.row.token
        self._take, self._owes, self._heir, self._idle = take, True, "", True
        self._preceding = max(take.seen_token, self.token_max)
        if again:
            return []
        sight = self._sight
        row = None if sight is None else sight.row
        stands = self._note(Code.STANDS, take.row.token)
        if sight is None or row is None or row.released:
            return [stands]
        if self._cold_start(sight):
            return [self._note(Code.EARLIER_GONE, row.token, node_of(row.holder)), stands]
        return [self._note(Code.LEADER_SILENT, row.token, node_of(row.holder), value=sight.wait_ms), stands]

    def _plan(self, now_ms: int, request: StoreRequest) -> None:
        """When to ask next: at once if there is something to do, else when a take is due, else after a look's pause."""
        pause_ms = now_ms + self._look_ms + self._jitter(self._look_ms // 5)
        take_at_ms = self._take_at_ms(now_ms)
        self._next_ask_ms = pause_ms if take_at_ms is None else min(pause_ms, max(now_ms, take_at_ms))
        ours = self._ours(self._sight)
        to_do = ours is not None and not self._work and not self._asked_for_nothing(request, ours)
        if to_do or self._news:
            self._news, self._next_ask_ms = False, now_ms

    @staticmethod
    def _asked_for_nothing(request: StoreRequest, ours: Row) -> bool:
        """A release of the very row that still stands there, unreleased: to say it again at once would change nothing.

        One that a renewal of ours overtook on the way is another matter: it is said again with the seq found.
        """
        return isinstance(request, ReleaseRow) and (request.token, request.seq) == (ours.token, ours.seq)

    def _back_off(self, now_ms: int) -> None:
        """Twice as long after each failure, half of it by chance, so that nodes do not come back in step."""
        most_ms = max(self._look_ms, min(self.timing.wait_ms, RETRY_MAX_MS))
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
            effects = self._failed(now_ms, answer.reason, writes=not isinstance(asked.request, Look))
            self._back_off(now_ms)
            return effects
        self._answers()
        effects = self._recovered(now_ms) if self._ends_outage(asked.request, answer) else []
        if isinstance(asked.request, Take):
            self._take = None
        effects += self._done_or_not(now_ms, asked, answer)
        if self._lead is None:
            self._plan(now_ms, asked.request)
        return effects

    def _done_or_not(self, now_ms: int, asked: Asked, answer: StoreAnswer) -> list[Effect]:
        request = asked.request
        match request:
            case Take() if answer.done and answer.server == request.server:
                taken = self._note(Code.LEASE_TAKEN, request.row.token, value=request.row.token)
                used, covered = self._release_used(request), self._covered()
                return [taken, *used, *self._written(now_ms, request.row, asked.asked_ms, covered)]
            case Renew() if answer.done and answer.server == request.server:
                row = self._own_row(request.token, request.seq + 1, request.server)
                return self._written(now_ms, row, asked.asked_ms)
            case ReleaseRow() if answer.done:
                return self._note_release(request.token) + self._see(now_ms, asked, answer)
        return self._see(now_ms, asked, answer)

    def _release_used(self, take: Take) -> list[Effect]:
        sight = self._sight
        row = None if sight is None else sight.row
        if sight is None or row is None or not self._at_once(sight, row):
            return []
        return [self._note(Code.RELEASE_APPLIED, take.row.token, node_of(row.holder))]

    def _covered(self) -> bool:
        """What was taken had been released, by a leadership whose work ran (G8)."""
        sight = self._sight
        return sight is not None and sight.row is not None and self._at_once(sight, sight.row) and covers(sight.row)

    def _see(self, now_ms: int, asked: Asked, answer: StoreAnswer) -> list[Effect]:
        """What a look, or a write that matched nothing, showed (L3)."""
        old, row = self._sight, answer.row
        effects: list[Effect] = []
        if old is not None and self._unchanged(old, answer):
            fresh = row is not None and row.released and old.row is not None and not old.row.released
            since_ms = now_ms if fresh else old.released_ms
            self._sight = old._replace(server=answer.server, row=row, released_ms=since_ms)
        else:
            effects += self._restarted(old, answer)
            self._sight = Sighting(
                server=answer.server,
                row=row,
                since_ms=self._anchor_ms(asked.asked_ms, now_ms),
                wait_ms=self._wait_ms(old, answer),
                jitter_ms=self._jitter(self._look_ms // 5),
                released_ms=now_ms,
                first=not self._ever_saw,
            )
        if row is None and not self._ever_saw and not self._cold_start(self._sight):
            effects.append(self._note(Code.NEW_NAME, value=self._sight.wait_ms))
        self._ever_saw = True
        if self._take is not None and not self._still_open(self._take, answer):
            self._take = None
        ours = self._ours(self._sight)
        if ours is not None and ours.token > self._used_token:
            effects.append(self._note(Code.ANSWER_LOST, ours.token, detail="a take was written but not answered"))
        self._owes = ours is not None or self._take is not None
        if row is not None:
            self._note_token(row.token)
        return effects + self._save()

    def _still_open(self, take: Take, answer: StoreAnswer) -> bool:
        """Whether an unanswered take could still be written, going by what stands there now."""
        token, seq = (0, 0) if answer.row is None else (answer.row.token, answer.row.seq)
        return (take.server, take.seen_token, take.seen_seq) == (answer.server, token, seq)

    def _restarted(self, old: Sighting | None, answer: StoreAnswer) -> list[Effect]:
        """Records what is worth it. An ordinary renewal by the holder is not."""
        row, before = answer.row, None if old is None else old.row
        known = (self.holder, "" if before is None else before.holder)
        effects: list[Effect] = []
        if row is not None and not row.released and row.holder not in known:
            effects.append(self._note(Code.FOLLOWS, row.token, node_of(row.holder)))
        if old is None:
            return effects
        if old.server != answer.server:
            effects.append(self._note(Code.OTHER_SERVER, detail=f"{old.server}, now {answer.server}"))
        if old.server != answer.server or (before is not None and (row is None or row.token < before.token)):
            effects.append(self._note(Code.OBSERVATION_RESTARTED, value=self.timing.wait_ms))
        return effects

    # --- observation (L3) ---------------------------------------------------------------------------------------------

    def _anchor_ms(self, asked_ms: int, now_ms: int) -> int:  # noqa: ARG002 -- what a mutant would use
        """After the answer arrived: a renewal may have left, and counted, while the look was under way."""
        return now_ms

    def _wait_ms(self, old: Sighting | None, answer: StoreAnswer) -> int:
        """The holder's own wait if it is longer than ours.

        If the row vanished or went back, its last holder may still live by the wait that *it* had written.
        """
        row = answer.row
        wait_ms = max(self.timing.wait_ms, 0 if row is None else row.wait_ms)
        if old is None or (row is not None and (old.row is None or row.token >= old.row.token)):
            return wait_ms
        return max(wait_ms, old.wait_ms)

    def _ripe_ms(self, sight: Sighting) -> int:
        """When the row has been watched for the whole wait."""
        return sight.since_ms + sight.wait_ms + TICK_MS

    # --- the moment to take (L3, L4, L7) ------------------------------------------------------------------------------

    def _take_at_ms(self, now_ms: int) -> int | None:
        """The earliest moment at which what is seen may be taken; None if not at all."""
        sight = self._sight
        if sight is None or not self._may_lead() or self._take_token(now_ms, sight) > TOKEN_MAX:
            return None
        row = sight.row
        if row is not None and self._at_once(sight, row):
            back_ms = 2 * self._look_ms if heir_of(row) not in ("", self.seat.node) else 0
            return max(sight.released_ms + back_ms, self._hold_off_ms)
        if self._ours(sight) is not None or (row is not None and not self._list_allows(row)):
            return None
        if self._cold_start(sight):
            return sight.since_ms
        return max(self._ripe_ms(sight) + sight.jitter_ms, self._hold_off_ms)

    def _at_once(self, sight: Sighting, row: Row) -> bool:
        """Only a clean release is taken without waiting (L4)."""
        return row.released and self._written_here(sight, row)

    def _cold_start(self, sight: Sighting) -> bool:
        """A free run lock proves every earlier holder under it dead (L4). `_may_lead` asks whether it is free.

        Of an earlier start of this node we know that it was under this very lock. Where all users of the row are, it is
        good for the first sighting of a boot only: a neighbour that took the row a moment ago and has not locked yet
        would lose it. Even then it cannot work beside us, as its guard and ours want the same lock (G3).
        """
        row = sight.row
        ours = row is not None and row.holder in self.options.dead and self._written_here(sight, row)
        return (ours or (self.options.single_machine and sight.first)) and not self._others

    def _list_allows(self, row: Row) -> bool:
        """A failsafe row belongs to its list until it is released (L7)."""
        return row.members in ("", self._list_hash)
