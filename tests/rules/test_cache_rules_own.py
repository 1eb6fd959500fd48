"""Rules C1 to C7 of the cache, one by one. Each schedule is told in `cache_schedules.py`; mutants run the same ones."""

from __future__ import annotations

import pytest

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.model import Fetched, Mode
from primacy.cache.own import OwnMachine
from tests.support import cache_schedules as schedules
from tests.support import cache_schedules_ends as ends
from tests.support import cache_schedules_gathered as gathered
from tests.support import cache_schedules_whole as whole
from tests.support.cache_harness import KEY, SETTINGS, Harness, addresses
from tests.support.cache_one_peer import One, did, said


def test_C1_mode_is_a_setting() -> None:
    with pytest.raises(AssertionError):
        One(settings=SETTINGS._replace(mode=Mode.MIXED))


def test_C1_every_message_says_whose_it_is() -> None:
    """List, boot and digest stand in every message that leaves."""
    harness = Harness()
    harness.ask("a")
    harness.run(200)
    harness.order("b", told.Invalidate, KEY)
    harness.run(500)
    kinds = {type(message) for _, _, _, message in harness.sent}
    assert kinds >= {says.Question, says.Answer, says.Announce, says.Ack, says.Update, says.Ping, says.FloorSet}
    for _, sender, _, message in harness.sent:
        machine = harness.peers[sender]
        assert message.trailer is not None
        assert (message.trailer.membership, message.trailer.boot) == (machine.members.hash, machine.boot)


def test_C1_old_peer() -> None:
    assert schedules.old_peer(OwnMachine) == ""


def test_C1_other_boot_does_not_answer() -> None:
    assert schedules.other_boot_does_not_answer(OwnMachine) == ""


def test_C2_yes_only_above() -> None:
    assert schedules.yes_only_above(OwnMachine) == ""


def test_C2_rank_orders_one_term() -> None:
    assert schedules.rank_orders_one_term(OwnMachine) == ""


def test_C2_announce_below() -> None:
    assert schedules.announce_below(OwnMachine) == ""


def test_C2_question_does_not_promise() -> None:
    assert schedules.question_does_not_promise(OwnMachine) == ""


def test_C2_source_keeps_its_term() -> None:
    assert schedules.source_keeps_its_term(OwnMachine) == ""


def test_C2_ceiling_first() -> None:
    assert schedules.ceiling_first(OwnMachine) == ""


def test_C2_no_question_before_the_ceiling() -> None:
    assert schedules.no_question_before_the_ceiling(OwnMachine) == ""


def test_C2_ceiling_closes_terms() -> None:
    assert schedules.ceiling_closes_terms(OwnMachine) == ""


def test_C2_ceiling_is_rarely_written() -> None:
    assert schedules.ceiling_is_rarely_written(OwnMachine) == ""


def test_C2_lower_epoch_after_a_restart() -> None:
    assert schedules.lower_epoch_after_a_restart(OwnMachine) == ""


def test_C2_clock_alert() -> None:
    assert schedules.clock_alert(OwnMachine) == ""


def test_C3_answers_in_time() -> None:
    assert schedules.answers_in_time(OwnMachine) == ""


def test_C3_votes_give_no_right() -> None:
    assert schedules.votes_give_no_right(OwnMachine) == ""


def test_C3_refusal_says_when() -> None:
    assert schedules.refusal_says_when(OwnMachine) == ""


def test_C3_yes_is_quiet() -> None:
    assert schedules.yes_is_quiet(OwnMachine) == ""


def test_C4_call_after_majority() -> None:
    assert schedules.call_after_majority(OwnMachine) == ""


def test_C4_hold_from_departure() -> None:
    assert schedules.hold_from_departure(OwnMachine) == ""


def test_C4_cancelled_in_time() -> None:
    assert schedules.cancelled_in_time(OwnMachine) == ""


def test_C4_late_ack_of_a_frozen_source() -> None:
    assert schedules.late_ack_of_a_frozen_source(OwnMachine) == ""


def test_C4_result_needs_the_hold() -> None:
    assert schedules.result_needs_the_hold(OwnMachine) == ""


def test_C4_claim_ends() -> None:
    assert schedules.claim_ends(OwnMachine) == ""


def test_C4_closed_for_good() -> None:
    assert schedules.closed_for_good(OwnMachine) == ""


def test_C4_no_slot_no_candidate() -> None:
    assert schedules.no_slot_no_candidate(OwnMachine) == ""


def test_C4_source_died() -> None:
    assert schedules.source_died(OwnMachine) == ""


def test_C4_renewed_together() -> None:
    assert gathered.renewed_together(OwnMachine) == ""


def test_C4_acks_count_for_their_ballot() -> None:
    assert gathered.acks_count_for_their_ballot(OwnMachine) == ""


def test_C4_late_is_not_renewed() -> None:
    assert gathered.late_is_not_renewed(OwnMachine) == ""


def test_C4_bounded_messages() -> None:
    assert gathered.bounded_messages(OwnMachine) == ""


def test_C4_crowd_of_keys() -> None:
    assert gathered.crowd_of_keys(OwnMachine) == ""


def test_C4_not_acked_when_over() -> None:
    assert gathered.not_acked_when_over(OwnMachine) == ""


def test_C5_no_other_ack() -> None:
    assert schedules.no_other_ack(OwnMachine) == ""


def test_C5_no_yes_within() -> None:
    assert schedules.no_yes_within(OwnMachine) == ""


def test_C5_no_candidacy_within() -> None:
    assert schedules.no_candidacy_within(OwnMachine) == ""


def test_C5_acks_renew() -> None:
    assert schedules.acks_renew(OwnMachine) == ""


def test_C5_silent_yes() -> None:
    assert schedules.silent_yes(OwnMachine) == ""


def test_C5_silent_ack() -> None:
    assert schedules.silent_ack(OwnMachine) == ""


def test_C5_silent_candidate() -> None:
    assert schedules.silent_candidate(OwnMachine) == ""


def test_C5_source_acks_nobody() -> None:
    assert schedules.source_acks_nobody(OwnMachine) == ""


def test_C5_claim_loses() -> None:
    assert schedules.claim_loses(OwnMachine) == ""


def test_C5_promise_covers_the_hold() -> None:
    assert schedules.promise_covers_the_hold(OwnMachine) == ""


def test_C5_acked_together() -> None:
    assert gathered.acked_together(OwnMachine) == ""


def test_C5_acked_if_followed() -> None:
    assert gathered.acked_if_followed(OwnMachine) == ""


def test_C5_not_acked_after_a_start() -> None:
    assert gathered.not_acked_after_a_start(OwnMachine) == ""


def test_C5_not_acked_for_another_boot() -> None:
    assert gathered.not_acked_for_another_boot(OwnMachine) == ""


def test_C5_follower_of_two() -> None:
    assert gathered.follower_of_two(OwnMachine) == ""


def test_C6_fresh_refuses() -> None:
    assert ends.fresh_refuses(OwnMachine) == ""


def test_C6_refused_claim_fetches() -> None:
    assert ends.refused_claim_fetches(OwnMachine) == ""


def test_C6_undelivered_raises_need() -> None:
    assert ends.undelivered_raises_need(OwnMachine) == ""


def test_C6_expired_copy_needs_more() -> None:
    assert ends.expired_copy_needs_more(OwnMachine) == ""


def test_C6_clocks_apart() -> None:
    assert ends.clocks_apart(OwnMachine) == ""


def test_C6_called_is_not_refused() -> None:
    assert ends.called_is_not_refused(OwnMachine) == ""


def test_C7_end_frees_its_ballot() -> None:
    assert ends.end_frees_its_ballot(OwnMachine) == ""


def test_C7_end_names_the_boot() -> None:
    assert ends.end_names_the_boot(OwnMachine) == ""


def test_C7_failure_rests() -> None:
    assert ends.failure_rests(OwnMachine) == ""


def test_C7_negative_is_remembered() -> None:
    assert ends.negative_is_remembered(OwnMachine) == ""


def test_C7_missing_is_told() -> None:
    assert ends.missing_is_told(OwnMachine) == ""


def test_C5_candidate_while_promised() -> None:
    assert whole.candidate_while_promised(OwnMachine) == ""


def test_C5_restarted_follower() -> None:
    assert whole.restarted_follower(OwnMachine) == ""


def test_C4_one_peer_alone_needs_neither_acks_nor_silence() -> None:
    """N = 1: the run lock replaces both. A standstill of the process does not cost it the call."""
    one = One(names="b", calm=False)
    (call,) = did(one.ask(), does.Call)
    one.now += 30_000
    assert not did(one.tell(told.TimerPassed()), does.Cancel)
    one.tell(told.SourceEnded(KEY, call.ballot, Fetched(b"v")))
    assert len(did(one.seen, does.StoreEntry)) == 1
    assert not did(one.seen, does.Send)
    assert not did(one.tell(told.Reload(1, addresses("b a"))), does.Finished)[0].reason


def test_C4_without_source_a_waiting_client_may_fetch_it() -> None:
    """A claim: the call names the clients that offer to fetch; nobody does: they are told so."""
    one = One(settings=SETTINGS._replace(sources=()))
    ballot = one.wins(offers=True)
    (call,) = did(one.ack("a", ballot, 1), does.Call)
    assert call.offers == (1,)
    other = One(settings=SETTINGS._replace(sources=()))
    other.wins()
    assert len(did(other.seen, does.Refuse)) == 1
    assert not said(other.seen, says.Announce)
