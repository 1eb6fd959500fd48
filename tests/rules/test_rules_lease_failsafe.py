"""The failsafe of the store lease (L7), and when a holder says that the store does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.election.effects import Extend, Send, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    Pause,
    Received,
    Started,
)
from primacy.election.messages import FailsafeAck, FailsafeHeartbeat, Origin
from primacy.election.model import TOKEN_MAX, Role
from primacy.election.store import Look, Renew, Take, holder_id, list_hash
from primacy.settings.timing import for_lease
from tests.support.lease_harness import LAN, TRIO, WALL, Harness, held_by, only, row_of

pytestmark = pytest.mark.coverage


def ack(heartbeat: FailsafeHeartbeat, node: str, **more: Any) -> Received:
    full = {"token": heartbeat.token, "number": heartbeat.number, "holder_boot": heartbeat.origin.boot} | more
    return Received(FailsafeAck(Origin(node, config=list_hash(TRIO)), **full))


def heartbeats(harness: Harness) -> list[Send]:
    """The store is away; the holder asks the others."""
    for _ in range(4):
        harness.asked.clear()
        sent = only(harness.wake(), Send)
        if sent:
            return sent
    raise AssertionError("no failsafe heartbeat")


def test_L7_the_row_carries_the_lists_hash_and_take_compares_it() -> None:
    harness = Harness(failsafe=TRIO)
    harness.lead()
    row = harness.store.rows["job"]
    assert row.members == list_hash(TRIO) != ""
    stranger = Harness("d", store=harness.store)
    stranger.tell(Started(WALL))
    with pytest.raises(AssertionError):
        stranger.until(Take)
    assert "`primacy lease break job`" in stranger.waits()
    assert not harness.store.perform(Take("job", row._replace(members=""), "server-1", row_of("d"))).done
    assert harness.store.perform(Take("job", row, "server-1", row_of("d"))).done


def test_L7_after_a_release_anybody_may_take_it() -> None:
    harness = Harness("d", store=held_by(members="other", released=True))
    harness.tell(Started(WALL))
    harness.until(Start)
    assert harness.now == 0


def test_L7_a_node_outside_of_the_list_does_not_stand() -> None:
    harness = Harness("d", failsafe=TRIO)
    harness.tell(Started(WALL))
    with pytest.raises(AssertionError):
        harness.until(Take)
    assert harness.machine.role is Role.OBSERVER
    assert harness.waits() == ""


def test_L7_the_hold_counts_from_the_departure_of_the_heartbeat_that_all_acked() -> None:
    harness = Harness(failsafe=TRIO)
    harness.lead()
    to_b, to_c = heartbeats(harness)
    assert (to_b.to, to_c.to) == ("b", "c")
    sent_ms = harness.now
    assert not only(harness.tell(ack(to_b.message, "b"), sent_ms + 5), Extend)
    assert not only(harness.tell(ack(to_b.message, "b"), sent_ms + 6), Extend), "one node counts once"
    (extend,) = only(harness.tell(ack(to_c.message, "c"), sent_ms + 30), Extend)
    assert extend.leadership.valid_until_ms == sent_ms + LAN.hold_ms


def test_L7_acks_of_strangers_other_boots_tokens_and_numbers_do_not_count() -> None:
    harness = Harness(failsafe=TRIO)
    harness.lead()
    heartbeat = heartbeats(harness)[0].message
    harness.tell(ack(heartbeat, "b"))
    for wrong in (
        ack(heartbeat, "d"),
        ack(heartbeat, "c", holder_boot=1),
        ack(heartbeat, "c", token=1),
        ack(heartbeat, "c", number=10**6),
        Received(FailsafeAck(Origin("c", config="other"), heartbeat.token, heartbeat.number, heartbeat.origin.boot)),
    ):
        assert not only(harness.tell(wrong), Extend)
    assert only(harness.tell(ack(heartbeat, "c")), Extend)


def test_L7_the_failsafe_keeps_the_leadership_for_the_whole_outage_and_no_longer() -> None:
    harness = Harness(failsafe=TRIO)
    term = harness.lead().leadership.term
    harness.store.stop()
    while harness.now < 30_000:
        effects = harness.answer() if harness.asked else harness.wake()
        for sent in only(effects, Send):
            harness.tell(ack(sent.message, sent.to))
    assert not only(harness.log, Stop)
    harness.store.restart()
    harness.until(Extend)
    assert harness.store.rows["job"].token == term
    harness.store.stop()
    while not only(harness.log, Stop):
        harness.answer() if harness.asked else harness.wake()


def test_L7_a_store_that_hangs_is_noticed_before_term() -> None:
    """No answer ever comes, so that nothing fails before its limit; the times are those that run."""
    harness = Harness(failsafe=TRIO)
    harness.machine.timing = for_lease(LAN)
    harness.lead()
    while harness.now < 10 * LAN.hold_ms:
        harness.asked.clear()
        for sent in only(harness.wake(), Send):
            harness.tell(ack(sent.message, sent.to))
    assert not only(harness.log, Stop)
    assert harness.codes().count(Code.FAILSAFE) == 1, "recorded once"
    assert "b, c agree that it goes on meanwhile" in harness.waits()


def test_L2_a_holder_says_before_term_that_the_store_does_not_answer() -> None:
    harness = Harness()
    harness.machine.timing = for_lease(LAN)
    harness.lead()
    while not only(harness.log, Stop):
        harness.asked.clear()
        harness.wake()
    codes = harness.codes()
    assert codes.count(Code.STORE_FAILED) == 1
    assert codes.index(Code.STORE_FAILED) < codes.index(Code.RENEWAL_LATE)


def test_L7_nobody_is_asked_while_the_store_answers_in_time() -> None:
    harness = Harness(failsafe=TRIO)
    harness.machine.timing = for_lease(LAN)
    harness.lead()
    while harness.now < 10 * LAN.hold_ms:
        harness.answer(harness.now + 100) if harness.asked else harness.wake()
    assert not only(harness.log, Send)
    assert not only(harness.log, Stop)


def test_L7_an_ack_counts_for_that_node_as_a_changed_row() -> None:
    harness = Harness("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    harness.tell(Started(WALL))
    while harness.now < 2_900:
        harness.answer() if harness.asked else harness.wake()
    heartbeat = FailsafeHeartbeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL, 4)
    (sent,) = only(harness.tell(Received(heartbeat)), Send)
    assert (sent.to, sent.message) == ("a", FailsafeAck(Origin("b", boot=7, config=list_hash(TRIO)), WALL, 4, 9))
    acked_ms = harness.now
    harness.until(Take)
    assert harness.now > acked_ms + LAN.wait_ms


def test_L7_no_ack_with_a_take_outstanding_that_may_still_be_written() -> None:
    harness = Harness("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    heartbeat = Received(FailsafeHeartbeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL, 4))
    harness.tell(Started(WALL))
    harness.until(Take)
    assert not only(harness.tell(heartbeat), Send)
    harness.asked.clear()
    harness.wake()
    assert not only(harness.tell(heartbeat), Send), "unanswered, it may still be on its way"
    harness.store.perform(Renew("job", holder_id("a", 9), WALL, 1, "server-1"))
    harness.until(Take, 1_000) if not harness.asked else None
    harness.answer()
    assert only(harness.tell(heartbeat), Send), "the row has changed, so the take can no longer match"


def test_L7_an_unanswered_take_is_settled_by_a_look_that_shows_another_row() -> None:
    harness = Harness("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.asked.clear()
    harness.store.perform(Renew("job", holder_id("a", 9), WALL, 1, "server-1"))
    harness.tell(Pause())
    harness.until(Look)
    harness.answer()
    heartbeat = Received(FailsafeHeartbeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL, 4))
    assert only(harness.tell(heartbeat), Send)


def test_L7_no_ack_for_strangers_older_tokens_or_by_a_holder() -> None:
    harness = Harness("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    harness.tell(Started(WALL))
    harness.answer()
    for origin, token in (
        (Origin("d", boot=9, config=list_hash(TRIO)), WALL),
        (Origin("a", boot=9, config="other"), WALL),
        (Origin("a", boot=9, config=list_hash(TRIO)), WALL - 1),
    ):
        assert not only(harness.tell(Received(FailsafeHeartbeat(origin, token, 4))), Send)
    harness.until(Start)
    heartbeat = FailsafeHeartbeat(Origin("a", boot=9, config=list_hash(TRIO)), TOKEN_MAX, 4)
    assert not only(harness.tell(Received(heartbeat)), Send)
