"""The holder's half of a lease: renewals (L2), the beginning and the end of a leadership, and the failsafe (L7).

The theory stands at the head of `strategy.py`.
"""

from __future__ import annotations

from primacy.election.effects import AskStore, Effect, Extend, OrderRelease, Send, Start, Stop
from primacy.election.events import Code
from primacy.election.lease.evidence import LeaseEvidence
from primacy.election.lease.state import LATE_MAX, OUTSTANDING_MAX, Lead, Renewal, Round, Sighting
from primacy.election.messages import FailsafeAck, FailsafeHeartbeat
from primacy.election.model import Leadership
from primacy.election.store import Renew, Row, StoreAnswer


class LeaseHolder(LeaseEvidence):
    """What a node does with a row that it was proved to have written."""

    def _keep(self, now_ms: int, lead: Lead) -> list[Effect]:
        """What a holder does when its time has come: renew, help itself by the failsafe, give up a start that fails."""
        effects: list[Effect] = []
        if self._must_start(lead) and now_ms >= lead.started_ms + self._start_within_ms:
            effects += self._step_down(Code.CANNOT_START, "the work did not start in time")
        if lead.renew_at_ms is not None and now_ms >= lead.renew_at_ms:
            effects += self._renew(now_ms, lead)
        failsafe_at_ms = self._failsafe_due_ms(lead)
        if failsafe_at_ms is not None and now_ms >= failsafe_at_ms:
            effects += self._failsafe_round(now_ms, lead)
        return effects

    def _keep_at_ms(self, lead: Lead) -> int:
        """When `_keep`, or the end of the hold, is next due."""
        times = [lead.proved_ms + self.timing.term_at_ms]
        if lead.renew_at_ms is not None:
            times.append(lead.renew_at_ms)
        if self._must_start(lead):
            times.append(lead.started_ms + self._start_within_ms)
        failsafe_at_ms = self._failsafe_due_ms(lead)
        if failsafe_at_ms is not None:
            times.append(failsafe_at_ms)
        return min(times)

    @staticmethod
    def _must_start(lead: Lead) -> bool:
        """Its work is to start within a time (Q6): it neither runs, nor ends, nor waits on purpose (G8)."""
        return not (lead.running or lead.ending or lead.deferred)

    # --- renewals (L2) ------------------------------------------------------------------------------------------------

    def _renew(self, now_ms: int, lead: Lead) -> list[Effect]:
        """s is the time of this step: before the request leaves, before a connection is even asked for (L2)."""
        effects: list[Effect] = []
        if now_ms - self._oldest_ms(lead, now_ms) >= min(self._gaps_ms):
            effects += self._failed(now_ms, "no answer in time", writes=True)
        lead.renew_at_ms = now_ms + self._gap_ms(lead.seq + 1)
        self._number += 1
        lead.renewals[self._number] = Renewal(now_ms, lead.seq, lead.server, self._position)
        if len(lead.renewals) > OUTSTANDING_MAX:
            del lead.renewals[min(lead.renewals)]
        request = Renew(self.options.name, self.holder, lead.token, lead.seq, lead.server)
        return [*effects, AskStore(self._number, request)]

    @staticmethod
    def _oldest_ms(lead: Lead, otherwise_ms: int) -> int:
        """When the oldest renewal left that still matters, if one does: later ones were not answered either."""
        waiting = [renewal.sent_ms for number, renewal in lead.renewals.items() if number > lead.heard]
        return min(waiting, default=otherwise_ms)

    def _renewal_answered(self, now_ms: int, lead: Lead, number: int, answer: StoreAnswer) -> list[Effect]:
        sent_ms, seq, server, known = lead.renewals.pop(number)
        if not answer.ok:
            heartbeat_ms = self.timing.heartbeat_ms
            soon_ms = now_ms + heartbeat_ms // 2 + self._jitter(heartbeat_ms // 4)
            lead.renew_at_ms = None if lead.renew_at_ms is None else min(lead.renew_at_ms, soon_ms)
            return self._failed(now_ms, answer.reason, writes=True, final=answer.final)
        self._answers()
        lead.kept = False
        effects = self._note_answer(now_ms, answer, known) + self._recovered(now_ms)
        if answer.done and answer.server == server:
            if number > lead.heard:
                lead.heard, lead.seq = number, seq + 1
            return effects + self._proof(now_ms, lead, sent_ms)  # from before it left (L2)
        return effects + self._not_renewed(now_ms, lead, number, answer)

    def _proof(self, now_ms: int, lead: Lead, from_ms: int) -> list[Effect]:
        """A renewal or a failsafe round was proved. After TERM of its own hold was due it is worth nothing."""
        if now_ms >= from_ms + self.timing.term_at_ms:
            return [self._note(Code.LATE_ACK, lead.token, value=now_ms - from_ms)]
        if from_ms <= lead.proved_ms:
            return []
        lead.proved_ms = from_ms
        return [Extend(self._leadership(lead))]

    def _not_renewed(self, now_ms: int, lead: Lead, number: int, answer: StoreAnswer) -> list[Effect]:
        """Nothing matched: an unanswered renewal moved the seq, another server answers, or the lease is gone."""
        row = answer.row
        if row is None or not self._is_own(lead, row) or (row.released and not lead.ending):
            return self._lose(now_ms, Code.LEASE_LOST, "the row is no longer ours")
        if not self._vouched(row):
            return self._lose(now_ms, Code.LEASE_LOST, "the row was put back, or changed by hand")
        if row.released:  # the guard was quicker than its report
            lead.renew_at_ms = None
            return []
        if number < lead.heard or (row.seq, answer.server) == (lead.seq, lead.server):
            return []
        effects: list[Effect] = []
        if answer.server != lead.server:
            # The hold is unbroken, so nobody can have held the lease in between: move along, with the seq that is left.
            effects.append(self._note(Code.OTHER_SERVER, lead.token, detail=f"{lead.server}, now {answer.server}"))
        elif row.seq > lead.seq:
            effects.append(self._note(Code.ANSWER_LOST, lead.token, detail="a renewal was written but not answered"))
        lead.heard, lead.seq, lead.server = number, row.seq, answer.server
        if lead.renew_at_ms is not None:
            lead.renew_at_ms = now_ms
        return effects

    def _is_own(self, lead: Lead, row: Row) -> bool:
        return row.holder == self.holder and row.token == lead.token

    # --- beginning and end --------------------------------------------------------------------------------------------

    def _written(self, now_ms: int, row: Row, sent_ms: int, covered: bool = False) -> list[Effect]:
        """A take, or the renewal of a row found ours, was proved. It counts as the first renewal."""
        self._sight = Sighting(row.server, row, now_ms)
        if now_ms + self.timing.heartbeat_ms > sent_ms + self.timing.term_at_ms:
            self._late += 1
            if self._late >= LATE_MAX:
                self._give_up(now_ms, row)
            return [self._note(Code.LATE_ACK, row.token, detail="too late to start on", value=now_ms - sent_ms)]
        if not self._may_lead():
            self._give_up(now_ms, row)
            return []
        if not self._token_grows(row.token):
            self._give_up(now_ms, row)
            known = self._largest_known()
            return [self._note(Code.TOKEN_LOW, row.token, detail=f"{known} is known", value=known)]
        return self._begin(now_ms, row, sent_ms, covered)

    def _begin(self, now_ms: int, row: Row, from_ms: int, covered: bool) -> list[Effect]:
        heartbeat_ms = self.timing.heartbeat_ms
        renew_at_ms = from_ms + self._gap_ms(row.seq)
        lead = Lead(row.token, row.seq, row.server, from_ms, now_ms, renew_at_ms, now_ms + heartbeat_ms)
        self._idle = not covered  # what covers them goes on to do so
        self._lead, self._late, self._follows = lead, 0, ""
        self._watch_anew()
        self._work = self._used_token = row.token
        self._note_token(row.token)
        elected = self._note(Code.ELECTED, row.token, value=row.token)
        return [*self._save(), elected, Start(self._leadership(lead), covered=covered)]

    def _give_up(self, now_ms: int, row: Row) -> None:
        """The row is ours, nothing runs, and we do not want it: the next request releases it."""
        self._used_token = max(self._used_token, row.token)
        self._hold_off_ms, self._late = now_ms + 2 * self._look_ms, 0

    def _leadership(self, lead: Lead) -> Leadership:
        return Leadership(self.seat.node, lead.token, lead.token, lead.proved_ms + self.timing.hold_ms)

    def _expire(self, now_ms: int) -> list[Effect]:
        lead = self._lead
        if lead is None or now_ms < lead.proved_ms + self.timing.term_at_ms:
            return []
        return self._lose(now_ms, Code.RENEWAL_LATE, "no renewal was proved in time")

    def _lose(self, now_ms: int, code: Code, detail: str, order: bool = True) -> list[Effect]:
        """The leadership is over for good; the work must die now. The row is released once it is gone."""
        lead, self._lead = self._lead, None
        assert lead is not None
        self._next_ask_ms = now_ms
        effects: list[Effect] = [self._note(code, lead.token, detail=detail), Stop(lead.token, detail, planned=False)]
        if lead.ending:
            self._hold_off_ms = now_ms + self._hold_off_span_ms(lead)
        elif order:
            effects.append(OrderRelease(lead.token))
        return effects

    def _step_down(self, code: Code, detail: str, successor: str = "") -> list[Effect]:
        """Give up in order: stop with the work's own stop time, renew meanwhile, release when it is gone (Q8, G5)."""
        lead = self._lead
        if lead is None or lead.ending is not None:
            return []
        lead.ending, lead.successor = code, successor
        note = self._note(code, lead.token, subject=successor, detail=detail)
        return [note, Stop(lead.token, detail, planned=True), OrderRelease(lead.token, successor)]

    def _work_gone(self, now_ms: int, term: int, released: bool) -> list[Effect]:
        """Confirmed by guard and run lock. If the guard could not release the row, this node does it next."""
        self._lock_held, self._next_ask_ms = False, now_ms
        if term != self._work:
            return []
        self._work = 0
        lead, self._lead = self._lead, None
        if lead is None:
            return []
        self._hold_off_ms = now_ms + self._hold_off_span_ms(lead)
        effects: list[Effect] = []
        if not lead.ending:
            effects.append(self._note(Code.STEP_DOWN, lead.token, detail="the work ended by itself"))
        self._heir = lead.successor  # also if the guard released: a look may come first, and release once more
        if released:
            self._owes = False
            return effects + self._note_release(lead.token)
        self._sight = Sighting(lead.server, self._own_row(lead.token, lead.seq, lead.server), now_ms)
        return effects

    def _run_lock(self, now_ms: int, held: bool) -> list[Effect]:
        """A free lock also says that no work of ours is left, where no guard is there to report it (G3)."""
        self._lock_held, self._next_ask_ms = held, now_ms
        if held:
            return [self._note(Code.LOCK_HELD)]
        if self._lead is None:
            self._work = 0
        return []

    def _hold_off_span_ms(self, lead: Lead) -> int:
        """After giving up in order a node lets the others go first: long enough that each has looked."""
        if lead.successor or lead.ending in (Code.CANNOT_START, Code.DISK_FAILED):
            return self._d_ms + self._jitter(self._look_ms)
        if self.options.rest_ms:
            return self.options.rest_ms
        return 3 * self._look_ms + self._jitter(self._look_ms)

    def _health(self, now_ms: int, ok: bool, detail: str) -> list[Effect]:
        was_ill, self._ill = self._ill, "" if ok else detail or "unhealthy"
        if ok:
            self._next_ask_ms = now_ms if was_ill else self._next_ask_ms
            return []
        known = [] if was_ill or self._lead else [self._note(Code.UNHEALTHY, detail=self._ill)]
        return [*known, *self._step_down(Code.UNHEALTHY, self._ill)]

    def _disk_failed(self, now_ms: int, reason: str) -> list[Effect]:
        """The token could not be kept (T2). A start that stood behind it was not done, and nobody will report its end.

        It is tried again at each look; until it succeeds this node does not stand.
        """
        effects: list[Effect] = [] if self._unsaved else [self._note(Code.DISK_FAILED, detail=reason)]
        lead, behind = self._lead, self._saving
        self._unsaved, self._saved, self._saving = reason or "no reason given", None, False
        if lead is None or lead.running:
            return effects
        if not behind:
            return effects + self._step_down(Code.DISK_FAILED, "the token could not be saved")
        lead.ending = lead.ending or Code.DISK_FAILED
        return effects + self._work_gone(now_ms, lead.token, released=False)

    # --- failsafe (L7) ------------------------------------------------------------------------------------------------

    def _failsafe_due_ms(self, lead: Lead) -> int | None:
        """When the others are to be asked: the store fails, or lets a renewal wait for a third of what is left to TERM.

        A store that hangs says nothing, and the limit of a statement is longer than that.
        """
        if not self._others:
            return None
        if self._failures:
            return lead.failsafe_at_ms
        if all(number <= lead.heard for number in lead.renewals):
            return None
        patience_ms = (self.timing.term_at_ms - self.timing.heartbeat_ms) // 3
        return max(self._oldest_ms(lead, lead.proved_ms) + patience_ms, lead.failsafe_at_ms)

    def _failsafe_round(self, now_ms: int, lead: Lead) -> list[Effect]:
        """The store is away: ask every other node of the list to count this as a changed row."""
        lead.failsafe_at_ms = now_ms + self.timing.heartbeat_ms
        self._number += 1
        lead.rounds[self._number] = Round(now_ms, ())
        if len(lead.rounds) > OUTSTANDING_MAX:
            del lead.rounds[min(lead.rounds)]
        return [Send(name, FailsafeHeartbeat(self._origin, lead.token, self._number)) for name in self._others]

    def _failsafe_ack(self, now_ms: int, ack: FailsafeAck) -> list[Effect]:
        lead, origin = self._lead, ack.origin
        ours = ack.holder_boot == self.seat.boot and origin.config == self._list_hash and origin.node in self._others
        if lead is None or not ours or ack.token != lead.token or ack.number not in lead.rounds:
            return []
        known = lead.rounds[ack.number]
        acked = tuple(sorted({*known.acked, origin.node}))
        lead.rounds[ack.number] = Round(known.sent_ms, acked)
        if not self._complete(acked):
            return []
        del lead.rounds[ack.number]
        proof = self._proof(now_ms, lead, known.sent_ms)
        if proof and self._failures and not lead.kept:
            lead.kept = True
            proof.append(self._note(Code.FAILSAFE, lead.token, detail=self._failure))
        return proof

    def _complete(self, acked: tuple[str, ...]) -> bool:
        """All of them, not a majority: any single one could take the row (L7)."""
        return acked == self._others

    def _failsafe_heartbeat(self, now_ms: int, heartbeat: FailsafeHeartbeat) -> list[Effect]:
        """An ack counts here as a changed row."""
        if not self._may_ack(heartbeat):
            return []
        self._ack_restarts()
        self._acked_ms = now_ms
        self._note_token(heartbeat.token)
        origin = heartbeat.origin
        return [
            *self._save(),
            Send(origin.node, FailsafeAck(self._origin, heartbeat.token, heartbeat.number, origin.boot)),
        ]

    def _may_ack(self, heartbeat: FailsafeHeartbeat) -> bool:
        """Not for a stranger, not beside a newer leadership, and not with a take of ours that may still be written."""
        listed = heartbeat.origin.node in self._others and heartbeat.origin.config == self._list_hash
        able = self._lead is None and self._changed.is_own_alone
        return listed and able and self._token_grows(heartbeat.token) and self._take is None

    def _ack_restarts(self) -> None:
        """The observation of the row starts with the next look (L7)."""
        self._sight = None
