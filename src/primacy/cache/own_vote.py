"""Elections in mode `own`: who asks, who says yes, who promises (C2, C3, C5, C6, C9).

A yes only orders candidates; it gives no right. An ack is the one promise of a key: for Ps after it no other ballot is
acked, nobody else gets a yes, and the peer does not ask itself (C5). That alone keeps two peers from sourcing at once:
two majorities of acks share a peer, and it gave the later one when the earlier hold was over. Terms serve S2: who
shares knows the earlier term, so the later epoch is higher.
"""

from __future__ import annotations

from abc import abstractmethod

from primacy.cache.effects import Send
from primacy.cache.messages import Ack, Acks, Announce, Announces, Answer, Numbered, Question
from primacy.cache.model import ALL, NO_BALLOT, TERM_MAX, Ballot, Meta, short_key
from primacy.cache.own_state import REFUSALS_KEPT, Candidacy, KeyState
from primacy.cache.own_values import Values


def _unsaid(*_: object, **__: object) -> bool:
    """A reason that is not told."""
    return True


class Voting(Values):
    """Layer of the machine: candidates and voters."""

    @abstractmethod
    def _win(self, state: KeyState, candidacy: Candidacy) -> None: ...

    @abstractmethod
    def _refused_claim(self, state: KeyState, sender: str, answer: Answer) -> None: ...

    @abstractmethod
    def _give_up_claim(self, state: KeyState) -> None: ...

    # --- asking -------------------------------------------------------------------------------------------------------

    def _wants(self, state: KeyState) -> bool:
        """Is there anybody for whom this key should be fetched or stored?"""
        if state.wanted or state.gifts or state.wishes:
            return True
        return self.waiting.waits(state.key) and state.key not in self._serving

    def _earliest_ms(self, state: KeyState) -> int:
        """No own QUESTION before this (C3, C5, C7)."""
        moments = [state.quiet_until_ms, self._ask_from_ms()]
        if state.promise is not None:
            moments.append(self._candidacy_after_promise_ms(state))
        if not state.gifts:
            moments.append(state.backoff_until_ms)
        return max(moments)

    def _candidacy_after_promise_ms(self, state: KeyState) -> int:
        return state.promise_until_ms

    def _silent_until_ms(self) -> int:
        return self.silent_until_ms if self.members.majority > 1 else 0

    def _try_stand(self, state: KeyState) -> None:
        """Ask, if there is a reason to and nothing forbids it; otherwise when it is over."""
        if state.claim is not None or state.candidacy is not None or state.entry is not None:
            return
        if not self._wants(state):
            state.retry_ms = None
            return
        if not self._reachable():
            self._give_up(state)
            return
        earliest_ms = self._earliest_ms(state)
        if earliest_ms > self._now_ms:
            # What wakes together asks one after the other (C9).
            state.retry_ms = earliest_ms + self._place(state.key) * self.timing.spread_ms
        elif state.retry_ms is None or state.retry_ms <= self._now_ms:
            self._stand(state)

    def _give_up(self, state: KeyState) -> None:
        """No majority can be had: clients are sent elsewhere, and what was wanted in the background is not any more."""
        state.wanted = False
        self._out += self.waiting.see_other(state.key)

    def _need(self, state: KeyState) -> int:
        """The lowest term of an epoch that would do (C6)."""
        if state.gifts:
            return TERM_MAX
        key, meta = state.key, self.metas.get(state.key)
        need = max(state.need, self.floors.of(key) + 1)
        need = max([need, *(wish.need for wish in state.wishes)])
        if meta is None or meta.epoch.term == 0:
            return max(need, self.base_epoch + 1 if self.base_epoch else 0)
        # The epoch of a lost value may come back; one that is here and does not do must be replaced.
        return max(need, meta.epoch.term + (meta.expire_ms > 0 and not self._fresh(key, meta)))

    def _stand(self, state: KeyState) -> None:
        """Become a candidate: a new ballot above all that is known."""
        key = state.key
        if not state.gifts and len(self._slots) >= self.settings.calls_max:
            self._starved[key] = None
            return
        self._slots[key] = None
        term = max(self._term(key) + 1, self._wall_ms, self.floors.of(key) + 1)
        if term > TERM_MAX:
            self._record("terms-exhausted", key)
            return
        if not self._covered(term):
            self._uncovered[key] = None
            return
        ballot = Ballot(term, self.me, self.boot)
        self._raise_term(key, term)
        state.promised = ballot
        state.retry_ms = None
        candidacy = Candidacy(ballot, self._need(state), self._now_ms, self._now_ms + self.timing.question_repeat_ms)
        state.candidacy = candidacy
        self.counts["election"] = self.counts.get("election", 0) + 1
        if self.members.majority == 1:
            self._win(state, candidacy)
        else:
            self._send(ALL, self._question(state, candidacy))

    def _question(self, state: KeyState, candidacy: Candidacy) -> Question:
        ballot = candidacy.ballot
        return Question(state.key, ballot.term, self._trailer(ballot, need=candidacy.need))

    def _candidate_passed(self, state: KeyState) -> None:
        """Repeat the QUESTION to those who did not answer; end it after E (C3)."""
        candidacy = state.candidacy
        assert candidacy is not None
        silent = [peer for peer in self.members.others if peer not in candidacy.yes and peer not in candidacy.no]
        if self._now_ms >= candidacy.asked_ms + self.timing.election_ms:
            state.candidacy = None
            if self.members.size - len(silent) < self.members.majority:
                self._lose_majority(state)
                return
            self._come_back(state, candidacy.no)
        elif self._now_ms >= candidacy.repeat_ms:
            candidacy.repeat_ms = self._now_ms + self.timing.question_repeat_ms
            for peer in silent:
                self._send(peer, self._question(state, candidacy))

    def _lose_majority(self, state: KeyState) -> None:
        """Fewer than a majority answered. A PING at once tells whether that lasts."""
        self._lost_ms = self._ping_ms = self._now_ms
        self._record("majority-lost", state.key)
        self._give_up(state)

    def _come_back(self, state: KeyState, refusals: dict[str, int]) -> None:
        """Refused: ask again when so many reasons are over that a majority can say yes (C3), above all terms heard."""
        until = sorted(refusals.get(peer, self._now_ms) for peer in self.members.others)
        free_ms = until[self.members.majority - 2] if until else self._now_ms
        if free_ms > self._now_ms:
            # Others were refused for the same reason, and wake at the same instant (C9).
            state.retry_ms = free_ms + self._place(state.key) * self.timing.spread_ms + self._jitter_ms()
        else:
            state.retry_ms = self._now_ms + 1 + self._jitter_ms()
        self._try_stand(state)

    def _jitter_ms(self) -> int:
        return int(self.chance.random() * self.timing.spread_ms)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _heard_answer(self, sender: str, answer: Answer) -> None:
        trailer = answer.trailer
        assert trailer is not None
        if trailer.ended:
            self._heard_end(sender, answer)
            return
        state = self._known(answer.key)
        if state is None or trailer.echo != self.boot:
            return
        self._raise_term(answer.key, max(answer.term, trailer.floor))
        if state.claim is not None and trailer.ballot == state.claim.ballot:
            if not answer.vote:
                self._refused_claim(state, sender, answer)
            return
        candidacy = state.candidacy
        if candidacy is None or not self._counts_answer(candidacy, trailer.ballot):
            return
        if answer.vote:
            candidacy.yes[sender] = None
            if len([peer for peer in self.members.others if peer in candidacy.yes]) + 1 >= self.members.majority:
                state.candidacy = None
                self._win(state, candidacy)
        elif trailer.epoch != NO_BALLOT:
            state.candidacy = None
            self._claimed_fresh(state, sender, trailer.epoch)
        else:
            candidacy.no[sender] = self._now_ms + min(trailer.wait_ms, self.timing.promise_ms)
            if self.members.size - len(candidacy.no) < self.members.majority:
                state.candidacy = None
                self._come_back(state, candidacy.no)

    def _counts_answer(self, candidacy: Candidacy, ballot: Ballot) -> bool:
        """Only for its ballot, boot included, and within E of the QUESTION's departure (C3)."""
        return ballot == candidacy.ballot and self._now_ms < candidacy.asked_ms + self.timing.election_ms

    def _claimed_fresh(self, state: KeyState, sender: str, epoch: Ballot) -> None:
        """A peer refuses because it has a fresh copy that would do: that copy is fetched (C6)."""
        if self._replaces(state, state.key, epoch):
            self._fetch_copy(state, sender, epoch)
        else:
            state.need = max(state.need, epoch.term + 1)
            self._try_stand(state)

    # --- voting -------------------------------------------------------------------------------------------------------

    def _heard_question(self, sender: str, question: Question) -> None:
        trailer = question.trailer
        assert trailer is not None
        ballot = trailer.ballot
        if not self._own_ballot(sender, ballot, trailer.boot, question.term):
            return
        state = self._activate(question.key)
        if state is None:
            return
        self._raise_term(state.key, ballot.term)
        if self._refuses(state, sender, ballot, trailer.need) or not self._covered(ballot.term):
            return
        self._yield(state)
        state.promised = ballot
        state.quiet_until_ms = max(state.quiet_until_ms, self._now_ms + self.timing.election_ms)
        answer = Answer(state.key, self._term(state.key), 0, True, self._trailer(ballot, echo=ballot.boot))
        self._out.append(Send(sender, answer))
        self._try_stand(state)

    def _own_ballot(self, sender: str, ballot: Ballot, boot: int, term: int) -> bool:
        """Nobody speaks for another's ballot, nor for one of another boot."""
        return ballot.peer == sender and ballot.boot == boot and ballot.term == term and 0 < term <= TERM_MAX

    def _yield(self, state: KeyState) -> None:
        """A higher ballot: the own candidacy, or a claim that nobody holds by, is over."""
        if state.candidacy is not None:
            state.candidacy = None
            state.quiet_until_ms = max(state.quiet_until_ms, self._now_ms + self.timing.election_ms)
        if state.claim is not None:
            self._give_up_claim(state)

    def _refuses(
        self, state: KeyState, sender: str, ballot: Ballot, need: int, announced: bool = False, called: bool = False
    ) -> bool:
        """Is there a reason to help this ballot with neither yes nor ack? Then it is told, and what to wait for. A
        source that was called goes on whatever it is told, but for a floor: then nothing else is said."""
        floor = self.floors.of(state.key)
        if ballot.term <= floor:
            return self._refuse(state, sender, ballot, "floor", floor=floor)
        say = _unsaid if called else self._refuse
        meta = self.metas.get(state.key)
        if meta is not None and meta.epoch.term >= need and self._fresh(state.key, meta):
            return say(state, sender, ballot, "fresh", meta=meta)
        if self._now_ms < (self._ack_from_ms() if announced else self._yes_from_ms()):
            return say(state, sender, ballot, "start", until_ms=self.silent_until_ms)
        if self._helps_nobody(state, announced):
            return say(state, sender, ballot, "source", until_ms=self._claim_until_ms(state))
        if not self._above_promised(state, ballot):
            asked_ms = 0 if state.candidacy is None else state.candidacy.asked_ms + self.timing.election_ms
            return say(state, sender, ballot, "below", until_ms=max(state.quiet_until_ms, asked_ms))
        if self._ack_bound(state, ballot) if announced else self._yes_bound(state, ballot):
            return say(state, sender, ballot, "promise", until_ms=state.promise_until_ms)
        return False

    def _ask_from_ms(self) -> int:
        """No candidacy before this (C5)."""
        return self._silent_until_ms()

    def _yes_from_ms(self) -> int:
        """No yes before this (C5)."""
        return self._silent_until_ms()

    def _ack_from_ms(self) -> int:
        """No ack before this (C5)."""
        return self._silent_until_ms()

    def _helps_nobody(self, state: KeyState, announced: bool) -> bool:
        """A source that holds or calls acks nobody (C5). One that only claims may lose to a higher ANNOUNCE."""
        return state.claim is not None and (state.claim.hold_from_ms is not None or not announced)

    def _claim_until_ms(self, state: KeyState) -> int:
        claim = state.claim
        assert claim is not None
        if claim.hold_from_ms is None:
            return claim.won_ms + self.timing.election_ms
        return claim.hold_from_ms + self.timing.hold_ms

    def _above_promised(self, state: KeyState, ballot: Ballot) -> bool:
        """Only above what was voted for, acked or taken, or the same once more; never one that ended (C2)."""
        if ballot.term <= state.closed_term or ballot in state.closed:
            return False
        return ballot == state.promised or self._order(state.key, ballot) > self._order(state.key, state.promised)

    def _yes_bound(self, state: KeyState, ballot: Ballot) -> bool:
        """The one promise forbids a yes to this ballot (C5)."""
        return self._has_promised(state) and ballot != state.promise

    def _ack_bound(self, state: KeyState, ballot: Ballot) -> bool:
        """The one promise forbids an ack to this ballot (C5)."""
        return self._has_promised(state) and ballot != state.promise

    def _refuse(
        self,
        state: KeyState,
        sender: str,
        ballot: Ballot,
        reason: str,
        *,
        until_ms: int = 0,
        floor: int = 0,
        meta: Meta | None = None,
    ) -> bool:
        """Tell it, once per peer, key and reason within half a heartbeat (E1)."""
        if self._said_lately((sender, short_key(state.key), reason)):
            return True
        wait_ms = max(0, until_ms - self._now_ms)
        epoch, expire_ms = (NO_BALLOT, 0) if meta is None else (meta.epoch, meta.expire_ms)
        trailer = self._trailer(ballot, echo=ballot.boot, epoch=epoch, wait_ms=wait_ms, floor=floor)
        self._out.append(Send(sender, Answer(state.key, self._term(state.key), expire_ms, False, trailer)))
        return True

    def _said_lately(self, mark: tuple[str, bytes, str]) -> bool:
        """Was it said, or are too many others said, within half a heartbeat? If not, it is from now on."""
        last_ms = self._refusals.get(mark)
        within_ms = self.timing.announce_ms // 2
        if last_ms is not None and self._now_ms - last_ms < within_ms:
            return True
        if len(self._refusals) >= REFUSALS_KEPT:
            self._refusals = {k: ms for k, ms in self._refusals.items() if self._now_ms - ms < within_ms}
            if len(self._refusals) >= REFUSALS_KEPT:
                return True
        self._refusals[mark] = self._now_ms
        return False

    def _heard_announce(self, sender: str, announce: Announce) -> None:
        """Follow and promise, or refuse (C2, C4, C5)."""
        trailer = announce.trailer
        assert trailer is not None
        ballot = trailer.ballot
        if not self._own_ballot(sender, ballot, trailer.boot, announce.term):
            return
        state = self._promised(sender, announce.key, ballot, trailer.need)
        if state is not None:
            trailer = self._trailer(ballot, echo=ballot.boot, number=trailer.number)
            self._out.append(Send(sender, Ack(announce.key, trailer)))
            self._yield(state)
            self._try_stand(state)

    def _heard_announces(self, sender: str, announces: Announces) -> None:
        """As so many ANNOUNCEs, and one ACK for all that are followed. They concern keys whose source was called, so
        that nobody refuses for freshness (C6)."""
        trailer, first = announces.trailer, len(self._out)
        acked: list[Numbered] = []
        begun: list[KeyState] = []
        for one in announces.keys:
            ballot = Ballot(one.term, sender, trailer.boot)
            if not self._own_ballot(sender, ballot, trailer.boot, one.term):
                continue
            if not self._promised_again(one.key, ballot):
                state = self._promised(sender, one.key, ballot, TERM_MAX, called=True)
                if state is None:
                    continue
                begun.append(state)
            acked.append(one)
        if acked:  # before refusals of others: the second message to one peer waits for the next timer (E1)
            self._out.insert(first, Send(sender, Acks(tuple(acked), self._trailer(echo=trailer.boot))))
        for state in begun:
            self._yield(state)
            self._try_stand(state)

    def _promised_again(self, key: bytes, ballot: Ballot) -> bool:
        """The promise to this ballot, if it still runs, is made anew without a look at all that could forbid a first
        one: so a hundred keys are renewed at the cost of a few."""
        state = self.keys.get(key)
        if state is None or ballot != state.promise or not self._has_promised(state):
            return False
        if not self._undisturbed(state, ballot):
            return False
        state.heard_ms = self._now_ms
        self._promise(state, ballot)
        return True

    def _undisturbed(self, state: KeyState, ballot: Ballot) -> bool:
        """Did nothing happen to the key since the promise that may forbid to make it anew?"""
        if ballot != state.promised or state.claim or state.candidacy or state.entry or state.closed:
            return False
        return ballot.term > self.floors.of(state.key) and self._now_ms >= self._ack_from_ms()

    def _promised(self, sender: str, key: bytes, ballot: Ballot, need: int, *, called: bool = False) -> KeyState | None:
        """The promise is made, if nothing forbids it; otherwise the ballot is refused (C2, C5)."""
        state = self._activate(key)
        if state is None:
            return None
        self._raise_term(key, ballot.term)
        if self._refuses(state, sender, ballot, need, announced=True, called=called):
            if self._order(key, ballot) < self._order(key, state.promised):
                # Somebody fetches although this peer does not help: asking now would only disturb it.
                state.quiet_until_ms = max(state.quiet_until_ms, self._now_ms + self.timing.announce_ms * 2)
            return None
        if not self._covered(ballot.term):
            return None
        self._promise(state, ballot)
        return state

    def _promise(self, state: KeyState, ballot: Ballot) -> None:
        state.promised = state.promise = ballot
        state.promise_until_ms = self._now_ms + self.timing.promise_ms

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _heard_end(self, sender: str, answer: Answer) -> None:
        """A ballot is over, without a value (C7). `wait_ms`: its source failed, and is not asked for so long."""
        trailer = answer.trailer
        assert trailer is not None
        ballot = trailer.ballot
        self._raise_term(answer.key, answer.term)
        state = self._known(answer.key)
        if state is None or ballot.peer != sender or ballot.boot != trailer.boot:
            return
        if trailer.wait_ms and self._concerns(state, ballot):
            reason = (
                f"the source has no such entry, says {sender}" if trailer.missing else f"the source failed at {sender}"
            )
            wait_ms = min(trailer.wait_ms, self._backoff_most_ms())
            self._failed(state, wait_ms, reason, missing=trailer.missing)
        self._free(state, ballot)

    def _concerns(self, state: KeyState, ballot: Ballot) -> bool:
        """Is the failure of this ballot news, and does nobody else fetch the key?"""
        if state.claim is not None or ballot in state.closed:
            return False
        return not self._has_promised(state) or state.promise == ballot

    def _backoff_most_ms(self) -> int:
        longest = max((source.negative_ms for source in self.settings.sources), default=0)
        return max(self.timing.backoff_max_ms, longest)

    @abstractmethod
    def _failed(self, state: KeyState, backoff_ms: int, reason: str, *, missing: bool = False) -> None: ...

    def _free(self, state: KeyState, ballot: Ballot) -> None:
        """The end of a ballot frees the promise to it, and to no other (C7)."""
        self._close(state, ballot)
        if self._frees(state, ballot):
            state.promise = None
        if state.promised == ballot:
            state.quiet_until_ms = 0
        if state.claim is None and state.candidacy is None:
            # Who waited for the end of the promise does not any more: somebody who comes now asks at once.
            wanted = self._wants(state)
            state.retry_ms = self._now_ms + self._place(state.key) * self.timing.spread_ms if wanted else None
            self._try_stand(state)

    def _frees(self, state: KeyState, ballot: Ballot) -> bool:
        return state.promise == ballot

    def _promise_passed(self, state: KeyState) -> None:
        """The source that was followed fell silent. Its value may have been lost on the way: one question for it."""
        if state.promise is None or self._has_promised(state):
            return
        followed, state.promise = state.promise, None
        if not self._wants(state) and self._replaces(state, state.key, followed):
            self._fetch_copy(state, followed.peer, NO_BALLOT)
