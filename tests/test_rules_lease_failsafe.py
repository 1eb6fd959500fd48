"""The failsafe of the store lease (L7), and when a holder says that the store does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from lease_desk import LAN, TRIO, WALL, Desk, held_by, only, row_of
from primacy.election.effects import Extend, Send, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    Pause,
    Received,
    Started,
)
from primacy.election.lease_state import list_hash
from primacy.election.messages import FailsafeAck, FailsafeBeat, Origin
from primacy.election.model import TOKEN_MAX, Role
from primacy.election.store import Look, Renew, Take, holder_id
from primacy.settings.timing import for_lease


def ack(beat: FailsafeBeat, node: str, **more: Any) -> Received:
    full = {"token": beat.token, "number": beat.number, "holder_boot": beat.origin.boot} | more
    return Received(FailsafeAck(Origin(node, config=list_hash(TRIO)), **full))


def beats(desk: Desk) -> list[Send]:
    """The store is away; the holder asks the others."""
    for _ in range(4):
        desk.asked.clear()
        sent = only(desk.wake(), Send)
        if sent:
            return sent
    raise AssertionError("no failsafe beat")


def test_L7_the_row_carries_the_lists_hash_and_take_compares_it() -> None:
    desk = Desk(failsafe=TRIO)
    desk.lead()
    row = desk.store.rows["job"]
    assert row.members == list_hash(TRIO) != ""
    stranger = Desk("d", store=desk.store)
    stranger.tell(Started(WALL))
    with pytest.raises(AssertionError):
        stranger.until(Take)
    assert "`primacy lease break job`" in stranger.waits()
    assert not desk.store.perform(Take("job", row._replace(members=""), "server-1", row_of("d"))).done
    assert desk.store.perform(Take("job", row, "server-1", row_of("d"))).done


def test_L7_after_a_release_anybody_may_take_it() -> None:
    desk = Desk("d", store=held_by(members="other", released=True))
    desk.tell(Started(WALL))
    desk.until(Start)
    assert desk.now == 0


def test_L7_a_node_outside_of_the_list_does_not_stand() -> None:
    desk = Desk("d", failsafe=TRIO)
    desk.tell(Started(WALL))
    with pytest.raises(AssertionError):
        desk.until(Take)
    assert desk.machine.role is Role.OBSERVER
    assert desk.waits() == ""


def test_L7_the_hold_counts_from_the_departure_of_the_beat_that_all_acked() -> None:
    desk = Desk(failsafe=TRIO)
    desk.lead()
    to_b, to_c = beats(desk)
    assert (to_b.to, to_c.to) == ("b", "c")
    sent_ms = desk.now
    assert not only(desk.tell(ack(to_b.message, "b"), sent_ms + 5), Extend)
    assert not only(desk.tell(ack(to_b.message, "b"), sent_ms + 6), Extend), "one node counts once"
    (extend,) = only(desk.tell(ack(to_c.message, "c"), sent_ms + 30), Extend)
    assert extend.leadership.valid_until_ms == sent_ms + LAN.hold_ms


def test_L7_acks_of_strangers_other_boots_tokens_and_numbers_do_not_count() -> None:
    desk = Desk(failsafe=TRIO)
    desk.lead()
    beat = beats(desk)[0].message
    desk.tell(ack(beat, "b"))
    for wrong in (
        ack(beat, "d"),
        ack(beat, "c", holder_boot=1),
        ack(beat, "c", token=1),
        ack(beat, "c", number=10**6),
        Received(FailsafeAck(Origin("c", config="other"), beat.token, beat.number, beat.origin.boot)),
    ):
        assert not only(desk.tell(wrong), Extend)
    assert only(desk.tell(ack(beat, "c")), Extend)


def test_L7_the_failsafe_keeps_the_leadership_for_the_whole_outage_and_no_longer() -> None:
    desk = Desk(failsafe=TRIO)
    term = desk.lead().leadership.term
    desk.store.stop()
    while desk.now < 30_000:
        effects = desk.answer() if desk.asked else desk.wake()
        for sent in only(effects, Send):
            desk.tell(ack(sent.message, sent.to))
    assert not only(desk.log, Stop)
    desk.store.restart()
    desk.until(Extend)
    assert desk.store.rows["job"].token == term
    desk.store.stop()
    while not only(desk.log, Stop):
        desk.answer() if desk.asked else desk.wake()


def test_L7_a_store_that_hangs_is_noticed_before_term() -> None:
    """No answer ever comes, so that nothing fails before its limit; the times are those that run."""
    desk = Desk(failsafe=TRIO)
    desk.machine.timing = for_lease(LAN)
    desk.lead()
    while desk.now < 10 * LAN.hold_ms:
        desk.asked.clear()
        for sent in only(desk.wake(), Send):
            desk.tell(ack(sent.message, sent.to))
    assert not only(desk.log, Stop)
    assert desk.codes().count(Code.FAILSAFE) == 1, "recorded once"
    assert "b, c agree that it goes on meanwhile" in desk.waits()


def test_L2_a_holder_says_before_term_that_the_store_does_not_answer() -> None:
    desk = Desk()
    desk.machine.timing = for_lease(LAN)
    desk.lead()
    while not only(desk.log, Stop):
        desk.asked.clear()
        desk.wake()
    codes = desk.codes()
    assert codes.count(Code.STORE_FAILED) == 1
    assert codes.index(Code.STORE_FAILED) < codes.index(Code.RENEWAL_LATE)


def test_L7_nobody_is_asked_while_the_store_answers_in_time() -> None:
    desk = Desk(failsafe=TRIO)
    desk.machine.timing = for_lease(LAN)
    desk.lead()
    while desk.now < 10 * LAN.hold_ms:
        desk.answer(desk.now + 100) if desk.asked else desk.wake()
    assert not only(desk.log, Send)
    assert not only(desk.log, Stop)


def test_L7_an_ack_counts_for_that_node_as_a_changed_row() -> None:
    desk = Desk("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    desk.tell(Started(WALL))
    while desk.now < 2_900:
        desk.answer() if desk.asked else desk.wake()
    beat = FailsafeBeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL, 4)
    (sent,) = only(desk.tell(Received(beat)), Send)
    assert (sent.to, sent.message) == ("a", FailsafeAck(Origin("b", boot=7, config=list_hash(TRIO)), WALL, 4, 9))
    acked_ms = desk.now
    desk.until(Take)
    assert desk.now > acked_ms + LAN.wait_ms


def test_L7_no_ack_with_a_take_outstanding_that_may_still_be_written() -> None:
    desk = Desk("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    beat = Received(FailsafeBeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL, 4))
    desk.tell(Started(WALL))
    desk.until(Take)
    assert not only(desk.tell(beat), Send)
    desk.asked.clear()
    desk.wake()
    assert not only(desk.tell(beat), Send), "unanswered, it may still be on its way"
    desk.store.perform(Renew("job", holder_id("a", 9), WALL, 1, "server-1"))
    desk.until(Take, 1_000) if not desk.asked else None
    desk.answer()
    assert only(desk.tell(beat), Send), "the row has changed, so the take can no longer match"


def test_L7_an_unanswered_take_is_settled_by_a_look_that_shows_another_row() -> None:
    desk = Desk("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.asked.clear()
    desk.store.perform(Renew("job", holder_id("a", 9), WALL, 1, "server-1"))
    desk.tell(Pause())
    desk.until(Look)
    desk.answer()
    beat = Received(FailsafeBeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL, 4))
    assert only(desk.tell(beat), Send)


def test_L7_no_ack_for_strangers_older_tokens_or_by_a_holder() -> None:
    desk = Desk("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    desk.tell(Started(WALL))
    desk.answer()
    for origin, token in (
        (Origin("d", boot=9, config=list_hash(TRIO)), WALL),
        (Origin("a", boot=9, config="other"), WALL),
        (Origin("a", boot=9, config=list_hash(TRIO)), WALL - 1),
    ):
        assert not only(desk.tell(Received(FailsafeBeat(origin, token, 4))), Send)
    desk.until(Start)
    beat = FailsafeBeat(Origin("a", boot=9, config=list_hash(TRIO)), TOKEN_MAX, 4)
    assert not only(desk.tell(Received(beat)), Send)
