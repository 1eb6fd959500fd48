"""Planted defects of the cache's machine of mode `own`: each takes one rule of section C out.

Each names the schedule, written by hand, in which it shows (`cache_schedules*.py`): the real machine breaks nothing
there. Rules that mask each other are taken out together with the rule that masks them (`base`). The simulator's random
trials and the bounded model use the same classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from primacy.cache.own import OwnMachine
from primacy.cache.own_parts import FloorBook
from tests.support import cache_schedules as first
from tests.support import cache_schedules_ends as ends
from tests.support import cache_schedules_floors as floors
from tests.support import cache_schedules_gathered as gathered
from tests.support import cache_schedules_values as second
from tests.support import cache_schedules_whole as whole

Schedule = Callable[[type[OwnMachine]], str]

# --- C2 ---------------------------------------------------------------------------------------------------------------


class AnyBallot(OwnMachine):
    """C2: yes and ack whatever was promised."""

    def _above_promised(self, state, ballot):
        return ballot.term > state.closed_term


class HearsEveryTerm(OwnMachine):
    """C2: a term that is years ahead is taken like any other."""

    def _is_no_term(self, term):
        return False


class WithoutCeiling(OwnMachine):
    """C2: yes, ack and QUESTION before the ceiling is durable."""

    def _covered(self, term):
        super()._covered(term)
        return True


class TermsForgotten(OwnMachine):
    """C2: a start closes no terms."""

    def _first_term(self, ceiling):
        return 0


# --- C3, C4 -----------------------------------------------------------------------------------------------------------


class VotesGiveRight(OwnMachine):
    """C3: the winner of the votes calls the source."""

    def _win(self, state, candidacy):
        super()._win(state, candidacy)
        claim = state.claim
        if claim is not None and not claim.called:
            claim.hold_from_ms = self._now_ms
            self._call(state, claim)


class LateAnswers(OwnMachine):
    """C3: an ANSWER counts whenever it comes, for whatever boot."""

    def _counts_answer(self, candidacy, ballot):
        return (ballot.term, ballot.peer) == (candidacy.ballot.term, candidacy.ballot.peer)


class HoldNotKept(OwnMachine):
    """C4: the call goes on although nobody acks."""

    def _is_late(self, claim):
        return False


class HoldFromAck(OwnMachine):
    """C4: the hold counts from the ack."""

    def _counted_from_ms(self, claim):
        return None if super()._counted_from_ms(claim) is None else self._now_ms


class CalledEachRound(OwnMachine):
    """C4: every round that is acked calls the source."""

    def _prove(self, state, claim):
        claim.hold_from_ms = None
        super()._prove(state, claim)


class AnyAckProves(OwnMachine):
    """C4: one ack is enough."""

    def _proved_number(self, claim):
        return max(claim.acked.values(), default=0)


class ResultWithoutHold(OwnMachine):
    """C4: a result is used whenever it comes."""

    def _holds(self, claim):
        return True


class ClaimWithoutEnd(OwnMachine):
    """C4: a claim that nobody acks goes on."""

    def _claim_ms(self):
        return 1 << 40


class NothingClosed(OwnMachine):
    """C4: what has ended is helped again."""

    def _close(self, state, ballot):
        pass


class AcksOfAnyBoot(OwnMachine):
    """C4: acks of several keys count although they were given to an earlier boot."""

    def _counts_acks(self, acks):
        return True


class LatecomersAnnounced(OwnMachine):
    """C4: what is renewed together includes calls whose cancel is due."""

    def _renews(self, state, soon_ms):
        return state.claim is not None and state.claim.called and state.claim.next_ms <= soon_ms


# --- C5 ---------------------------------------------------------------------------------------------------------------


class TwoPromises(OwnMachine):
    """C5: an ack to another ballot within Ps."""

    def _ack_bound(self, state, ballot):
        return False


class YesWithinPromise(OwnMachine):
    """C5: a yes within Ps."""

    def _yes_bound(self, state, ballot):
        return False


class CandidateWithinPromise(OwnMachine):
    """C5: an own candidacy within Ps."""

    def _candidacy_after_promise_ms(self, state):
        return 0


class YesAfterStart(OwnMachine):
    """C5: a yes right after the start."""

    def _yes_from_ms(self):
        return 0


class AckAfterStart(OwnMachine):
    """C5: an ack right after the start."""

    def _ack_from_ms(self):
        return 0


class CandidateAfterStart(OwnMachine):
    """C5: a candidacy right after the start."""

    def _ask_from_ms(self):
        return 0


class ShortPromise(OwnMachine):
    """C5: Ps is shorter than the hold on another clock."""

    def _promise(self, state, ballot):
        super()._promise(state, ballot)
        state.promise_until_ms = self._now_ms + 560


class GatheredBlindly(OwnMachine):
    """C5: a message that renews several keys is acked for all of them, whatever was promised."""

    def _promised_again(self, key, ballot):
        self._promise(self._activate(key), ballot)
        return True


class SourceAcks(OwnMachine):
    """C5: a source acks a higher ballot."""

    def _helps_nobody(self, state, announced):
        return state.claim is not None and not announced


# --- C6, C7 -----------------------------------------------------------------------------------------------------------


class WithoutNeed(OwnMachine):
    """C6: a question names no epoch, and every fresh copy refuses."""

    def _need(self, state):
        return 0


class NeedStays(OwnMachine):
    """C6: a copy that does not come is asked for again and again."""

    def _unanswered_need(self, entry):
        return 0


class FreshRefusesCalled(OwnMachine):
    """C6: a fresh copy refuses acks although the source was called."""

    def _announced_need(self, claim):
        return claim.need


class EndFreesAny(OwnMachine):
    """C7: the end of any ballot frees the promise."""

    def _frees(self, state, ballot):
        return True


class EndOfAnyBoot(OwnMachine):
    """C7: the boot of an ended ballot is not compared."""

    def _frees(self, state, ballot):
        return state.promise is not None and state.promise[:2] == ballot[:2]


class NoBackoff(OwnMachine):
    """C7: a failed source is called again at once."""

    def _failed(self, state, backoff_ms, reason, *, missing=False):
        super()._failed(state, 0, reason, missing=missing)


# --- C8 ---------------------------------------------------------------------------------------------------------------


class LaterExpiryWins(OwnMachine):
    """C8: a lower epoch that expires later replaces."""

    def _heard_update(self, sender, update):
        meta = self.metas.get(update.key)
        if meta is not None and update.expire_ms > meta.expire_ms:
            self.metas[update.key] = meta._replace(epoch=meta.epoch._replace(term=1))
        super()._heard_update(sender, update)


class ExpiryFromCompletion(OwnMachine):
    """C8: the value expires ttl after it came."""

    def _expiry_ms(self, claim, ttl_ms):
        return self._wall_ms + ttl_ms


class TermIsEpoch(OwnMachine):
    """C8: of two values of one term the first stays."""

    def _order(self, key, ballot):
        return (ballot.term, 0, 0)


class FloorNotCompared(OwnMachine):
    """C8: a value below the floor is taken."""

    def _above_floor(self, key, epoch):
        return True


class LateResultWins(OwnMachine):
    """C8: a lower epoch than the ballot that was acked is taken."""

    def _above_promise(self, state, epoch):
        return True


class EvictionForgets(OwnMachine):
    """C8: what is evicted leaves nothing behind."""

    def _drop_value(self, key, meta):
        super()._drop_value(key, meta)
        del self.metas[key]


class EvictsWhateverIsThere(OwnMachine):
    """C8: a value that was evicted takes the newer one along that came meanwhile."""

    def _gone(self, given):
        meta = self.metas.get(given.key)
        super()._gone(given if meta is None else given._replace(epoch=meta.epoch))


# --- C10 --------------------------------------------------------------------------------------------------------------


class OutsiderGoesOn(OwnMachine):
    """C10: who was removed goes on as if it were part of the list."""

    def _change_list(self, given):
        super()._change_list(given)
        self.members.listed = True
        self.members.majority = self.members.size // 2 + 1
        self.touch.keep(self.members)
        self._still_fresh()


class OutsiderKeepsTouch(OwnMachine):
    """C10, C12: who was removed and returns is in touch by what it heard before."""

    def _change_list(self, given):
        heard = dict(self.touch._heard)
        super()._change_list(given)
        self.kept = heard or getattr(self, "kept", {})
        if self.members.listed:
            self.touch._heard = dict(self.kept)
            self.touch.keep(self.members)
            self._still_fresh()


class ManyPerReload(OwnMachine):
    """C10: several peers change at once."""

    def _reload(self, given):
        super()._reload(given._replace(force=True))


class NoPause(OwnMachine):
    """C10: the next change is taken at once."""

    def _may_change(self, given):
        return True


class PendingCounts(OwnMachine):
    """C10: who has a list that is only about to be taken has a vote already."""

    def _counts(self, trailer):
        return True


class ListsNotCompared(OwnMachine):
    """C10, C11: an invalidation does not ask under which list it was acked."""

    def _list_is_old(self):
        return True


# --- C11, C12 ---------------------------------------------------------------------------------------------------------


class FloorOfOwnTerm(OwnMachine):
    """C11: the floor is one above the own term."""

    def _floor_term(self, work):
        return work.terms[self.me] + 1


class FloorAckedEarly(OwnMachine):
    """C11: a floor is acked before it is durable."""

    def _floor_is_durable(self, floor):
        return True


class DoesNotWait(OwnMachine):
    """C11: done when a majority has stored it."""

    def _untouched_ms(self):
        return 0


class OwnFloorOnce(OwnMachine):
    """C11: a floor of this peer that its disk refused is not stored again."""

    def _store_own_again(self, number, floor):
        pass


class NotRaised(OwnMachine):
    """C11: an epoch above the floor that an ack names is overlooked."""

    def _floor_acked(self, peer, number, floor, highest, *, same_list):
        super()._floor_acked(peer, number, floor, 0, same_list=same_list)


class GatheredOverFloor(OwnMachine):
    """C11: a message that renews several keys is acked although a floor came to one of them."""

    def _undisturbed(self, state, ballot):
        return True


class CallSurvivesFloor(OwnMachine):
    """C11: a running call at or below the floor goes on."""

    def _under_floor(self, state):
        pass


class WithoutTouch(OwnMachine):
    """C12: a copy is fresh whoever was heard."""

    def _vouched(self, epoch):
        return True


class DigestIgnored(OwnMachine):
    """C12: a PONG counts although its sender knows other floors."""

    def _knows_floors(self, digest):
        return True


class FloorsByKey(FloorBook):
    """Floors in the order of their keys."""

    def page(self, after, most):
        floors = [floor for floor in sorted(self.sorted()) if not after or floor.key > self.last]  # type: ignore[has-type]
        self.last = floors[:most][-1].key if floors else b""
        return tuple(floors[:most]), len(floors) > most


class PagesByKey(OwnMachine):
    """C12: floors that change while they are read in pages are overlooked."""

    def __init__(self, me, peers, settings, chance):
        super().__init__(me, peers, settings, chance)
        self.floors = FloorsByKey(settings.floors_max)


class SinceIgnored(OwnMachine):
    """C12: a peer without memory vouches for everything."""

    def _since(self, since):
        return 0


class OwnSinceIgnored(OwnMachine):
    """C12: after a start without memory this peer itself vouches for everything."""

    def _complete_since(self):
        return 0


# --- E1 ---------------------------------------------------------------------------------------------------------------


class RefusesAlways(OwnMachine):
    """E1: every message that is refused is answered."""

    def _said_lately(self, mark):
        return False


class ManyMessages(OwnMachine):
    """E1: an input from the wire causes several messages to one receiver."""

    def _one_each(self):
        pass


# --- rules that mask each other ---------------------------------------------------------------------------------------


class Endless(ClaimWithoutEnd, TermsForgotten):
    """The base of V1: claims without an end, and starts that close no terms. Still safe, by the one promise."""


class EndlessTwoPromises(TwoPromises, Endless):
    """C5 on that base: two winners source at once."""


class ForgetfulTwoPromises(TwoPromises, TermsForgotten):
    """C5 on the base whose starts close no terms, of five peers: claims that end do not save it."""


class NoSilence(YesAfterStart, AckAfterStart):
    """C5: no silence after the start at all; each alone is masked by the other."""


class CacheMutant(NamedTuple):
    """One planted defect and the schedule in which it shows."""

    name: str
    rule: str
    machine: type[OwnMachine]
    schedule: Schedule
    base: type[OwnMachine] = OwnMachine


def mutant(machine: type[OwnMachine], schedule: Schedule, base: type[OwnMachine] = OwnMachine) -> CacheMutant:
    """Named by its class; its rule is the first word of what it says of itself."""
    rule = (machine.__doc__ or "").partition(":")[0].split(",")[0].split()[0]
    return CacheMutant(machine.__name__, rule, machine, schedule, base)


CACHE_MUTANTS = [
    mutant(AnyBallot, first.yes_only_above),
    mutant(HearsEveryTerm, whole.terms_do_not_run_out),
    mutant(WithoutCeiling, first.ceiling_first),
    mutant(TermsForgotten, first.lower_epoch_after_a_restart),
    mutant(VotesGiveRight, first.votes_give_no_right),
    mutant(LateAnswers, first.answers_in_time),
    mutant(HoldNotKept, first.cancelled_in_time),
    mutant(HoldFromAck, first.hold_from_departure),
    mutant(CalledEachRound, first.call_after_majority),
    mutant(AnyAckProves, first.call_after_majority),
    mutant(ResultWithoutHold, first.result_needs_the_hold),
    mutant(ClaimWithoutEnd, first.claim_ends),
    mutant(NothingClosed, first.closed_for_good),
    mutant(AcksOfAnyBoot, gathered.acks_count_for_their_ballot),
    mutant(LatecomersAnnounced, gathered.late_is_not_renewed),
    mutant(TwoPromises, first.no_other_ack),
    mutant(YesWithinPromise, first.no_yes_within),
    mutant(CandidateWithinPromise, whole.candidate_while_promised),
    mutant(YesAfterStart, first.silent_yes),
    mutant(AckAfterStart, first.silent_ack),
    mutant(CandidateAfterStart, first.silent_candidate),
    mutant(ShortPromise, first.promise_covers_the_hold),
    mutant(EndlessTwoPromises, whole.two_winners_and_a_forgetful_voter, Endless),
    mutant(ForgetfulTwoPromises, whole.five_peers_and_two_forgetful_voters, TermsForgotten),
    mutant(NoSilence, whole.restarted_follower),
    mutant(GatheredBlindly, gathered.follower_of_two),
    mutant(SourceAcks, first.source_acks_nobody),
    mutant(WithoutNeed, ends.clocks_apart),
    mutant(NeedStays, ends.undelivered_raises_need),
    mutant(FreshRefusesCalled, ends.called_is_not_refused),
    mutant(EndFreesAny, ends.end_frees_its_ballot),
    mutant(EndOfAnyBoot, ends.end_names_the_boot),
    mutant(NoBackoff, ends.failure_rests),
    mutant(LaterExpiryWins, second.only_higher_replaces),
    mutant(ExpiryFromCompletion, second.epoch_is_the_ballot),
    mutant(TermIsEpoch, second.rank_decides_in_one_term),
    mutant(FloorNotCompared, second.none_below_the_floor),
    mutant(LateResultWins, second.none_below_the_promise),
    mutant(EvictionForgets, second.eviction_keeps_the_epoch),
    mutant(EvictsWhateverIsThere, second.eviction_of_an_older_value),
    mutant(OutsiderGoesOn, second.outsider_does_nothing_more),
    mutant(OutsiderKeepsTouch, second.outsider_leaves_and_returns_at_once),
    mutant(ManyPerReload, whole.reload_of_two),
    mutant(NoPause, second.next_change_waits),
    mutant(PendingCounts, second.pending_counts_for_nothing),
    mutant(ListsNotCompared, second.invalidation_and_lists),
    mutant(FloorOfOwnTerm, floors.floor_above_a_majority),
    mutant(FloorAckedEarly, floors.floor_durable_before_the_ack),
    mutant(DoesNotWait, floors.done_without_one),
    mutant(OwnFloorOnce, floors.own_floor_is_stored_again),
    mutant(NotRaised, floors.floor_is_raised),
    mutant(GatheredOverFloor, gathered.refused_below_a_floor),
    mutant(CallSurvivesFloor, floors.floor_kills_what_is_under_way),
    mutant(WithoutTouch, floors.stale_out_of_touch),
    mutant(DigestIgnored, floors.pong_brings_floors),
    mutant(PagesByKey, floors.pages_while_floors_change),
    mutant(SinceIgnored, floors.restarted_without_memory),
    mutant(OwnSinceIgnored, floors.own_since_counts),
    mutant(RefusesAlways, floors.refusals_are_bounded),
    mutant(ManyMessages, floors.one_message_each),
]
