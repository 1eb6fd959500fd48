"""The rules of the store lease, one test each, named by the rule: the row and its conditions (L1), renewing (L2).

They drive one machine against the simulated store by hand. Observing and taking stand in `test_rules_lease_take.py`,
tokens in `test_rules_lease_tokens.py`, the holder's work in `test_rules_lease_holder.py`, the failsafe in
`test_rules_lease_failsafe.py`, whole lives and the rules taken out in `test_lease_trials.py`.
"""

from __future__ import annotations

import pytest

from primacy.election.effects import Extend, OrderRelease, Send, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    Received,
    Started,
    StoreAnswered,
)
from primacy.election.lease.state import OUTSTANDING_MAX
from primacy.election.messages import FailsafeAck, Origin
from primacy.election.model import Role
from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, Take, holder_id, list_hash, node_of
from primacy.sim.world.store import SimStore
from tests.support.lease_harness import LAN, WALL, Harness, held_by, only, row_of

pytestmark = pytest.mark.coverage

# --- L1: the row and its conditions -----------------------------------------------------------------------------------


def test_L1_the_row_says_holder_token_seq_hold_and_wait() -> None:
    harness = Harness()
    start = harness.lead()
    row = harness.store.rows["job"]
    mine = Row(holder_id("a", 7), start.leadership.token, 1, 3000, 3061, False, server="server-1")
    assert row == mine._replace(proof=row.proof, mark=row.mark)
    assert row.proof
    assert row.mark
    assert node_of(row.holder) == "a"
    assert node_of("whatever") == "whatever"
    assert holder_id("a", 7) != holder_id("a", 8)


@pytest.mark.parametrize(("token", "seq", "fits"), [(5, 2, True), (5, 1, False), (4, 2, False)])
def test_L1_take_renew_and_release_compare_token_and_seq(token: int, seq: int, fits: bool) -> None:
    for request in (
        Take("job", held_by(token=5, seq=2).rows["job"]._replace(token=token, seq=seq), "server-1", row_of("c", 6)),
        Renew("job", holder_id("b", 9), token, seq, "server-1"),
        ReleaseRow("job", holder_id("b", 9), token, seq),
    ):
        store = held_by(token=5, seq=2)
        before = store.commits
        assert store.perform(request).done is fits
        assert store.commits == before + fits


def test_L1_a_stranger_and_a_released_row_are_not_renewed() -> None:
    store = held_by(token=5, seq=2)
    assert not store.perform(Renew("job", holder_id("b", 10), 5, 2, "server-1")).done
    assert not store.perform(ReleaseRow("job", holder_id("b", 10), 5, 2)).done
    row = store.perform(ReleaseRow("job", holder_id("b", 9), 5, 2, "c")).row
    assert row is not None
    assert row._replace(proof="", mark="") == row_of(token=5, seq=2, released=True, successor="c")
    assert not store.perform(Renew("job", holder_id("b", 9), 5, 2, "server-1")).done
    assert not SimStore().perform(Renew("job", "x", 5, 2, "server-1")).done
    assert not SimStore().perform(ReleaseRow("job", "x", 5, 2)).done
    assert not SimStore().perform(Take("job", row, "server-1", row_of("c", 6))).done


def test_L1_every_write_compares_the_server() -> None:
    store = held_by(token=5, seq=2)
    seen = store.rows["job"]
    store.fail_over()
    assert not store.perform(Take("job", seen, "server-1", row_of("c", 6))).done
    assert not store.perform(Renew("job", holder_id("b", 9), 5, 2, "server-1")).done
    assert not store.release("job", holder_id("b", 9), 5).done
    assert store.perform(Renew("job", holder_id("b", 9), 5, 2, "server-2")).done
    assert store.release("job", holder_id("b", 9), 5).done
    assert not store.release("other", holder_id("b", 9), 5).done


def test_the_store_forgets_commits_only_when_told() -> None:
    store = SimStore()
    empty, state = store.table, store.state()
    take = Take("job", None, "server-1", row_of("c", 6), store.genesis)
    taken = store.perform(take)
    assert taken.done
    renewed = store.perform(Renew("job", holder_id("c", 9), 6, 1, "server-1")).row
    store.stop()
    assert store.perform(Look("job")) == StoreAnswer(False, reason="the store refuses connections")
    store.restart()
    assert store.perform(Look("job")).row == renewed
    store.forget(1)
    assert store.rows["job"] == taken.row
    store.forget(5)
    assert store.table == empty
    store.fail_over()
    assert store.state()[:3] != state[:3]


# --- L2: renewing -----------------------------------------------------------------------------------------------------


def test_L2_the_hold_counts_from_before_the_renewal_left() -> None:
    harness = Harness()
    harness.lead()
    harness.wake()
    sent_ms = harness.now
    assert isinstance(harness.asked[0].request, Renew)
    (extend,) = only(harness.answer(at=sent_ms + 400), Extend)
    assert extend.leadership.valid_until_ms == sent_ms + LAN.hold_ms


def test_L2_the_take_counts_as_the_first_renewal() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Take)
    sent_ms = harness.now
    (start,) = only(harness.answer(at=sent_ms + 300), Start)
    assert start.leadership.valid_until_ms == sent_ms + LAN.hold_ms


@pytest.mark.parametrize(
    "answer",
    [
        StoreAnswer(False, reason="time-out"),
        StoreAnswer(False, done=True, row=None, server="server-1"),
        StoreAnswer(True, done=False, row=row_of("a"), server="server-1"),
    ],
)
def test_L2_anything_but_one_proved_row_is_not_renewed(answer: StoreAnswer) -> None:
    harness = Harness()
    start = harness.lead()
    if answer.row is not None:
        answer = answer._replace(row=harness.store.rows["job"])
    harness.wake()
    effects = harness.answer(answer=answer)
    assert not only(effects, Extend)
    assert not only(effects, Stop)
    while not only(effects := harness.wake(), Stop):
        harness.asked.clear()
    assert harness.now == start.leadership.valid_until_ms - LAN.hold_ms + LAN.term_at_ms
    assert only(effects, Stop) == [Stop(start.leadership.term, "no renewal was proved in time", planned=False)]


@pytest.mark.parametrize(
    "answer",
    [
        StoreAnswer(True, False, row_of("b", WALL + 10**9), "server-1"),
        StoreAnswer(True, False, row_of("a"), "server-1"),
        StoreAnswer(True, False, None, "server-1"),
    ],
)
def test_L2_a_row_that_is_no_longer_ours_ends_the_leadership_at_once(answer: StoreAnswer) -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    if answer.row is not None and node_of(answer.row.holder) == "a":
        answer = answer._replace(row=harness.store.rows["job"]._replace(released=True))
    harness.wake()
    effects = harness.answer(answer=answer)
    assert only(effects, Stop)[0].planned is False
    assert only(effects, OrderRelease) == [OrderRelease(term)]
    assert Code.LEASE_LOST in harness.codes()
    assert harness.machine.role is Role.FOLLOWER


def test_Time_an_answer_after_TERM_was_due_is_a_loss_even_if_it_says_done() -> None:
    harness = Harness()
    start = harness.lead()
    proved_ms = start.leadership.valid_until_ms - LAN.hold_ms
    harness.wake()
    effects = harness.answer(at=proved_ms + LAN.term_at_ms)
    assert not only(effects, Extend)
    assert only(effects, Stop)
    assert Code.RENEWAL_LATE in harness.codes()


def test_Time_a_late_proof_of_an_old_renewal_extends_nothing() -> None:
    harness = Harness()
    harness.lead()
    harness.wake()
    old = harness.asked.pop(0)
    sent_ms = harness.now
    done = harness.store.perform(old.request)
    harness.wake()
    harness.answer()  # matches nothing, and shows that the old one was written
    assert Code.ANSWER_LOST in harness.codes()
    while harness.now < sent_ms + LAN.term_at_ms:
        harness.answer() if harness.asked else harness.wake()
    before = harness.machine.view(harness.now).hold_left_ms
    effects = harness.tell(StoreAnswered(old.number, done))
    assert not only(effects, Extend)
    assert harness.machine.view(harness.now).hold_left_ms == before
    assert Code.LATE_ACK in harness.codes()


def test_L2_of_overlapping_renewals_each_counts_with_its_own_departure() -> None:
    harness = Harness()
    harness.lead()
    harness.wake()
    first, first_ms = harness.asked.pop(0), harness.now
    harness.wake()
    second = harness.asked.pop(0)
    assert harness.now > first_ms
    assert first.request == second.request
    done, refused = harness.store.perform(first.request), harness.store.perform(second.request)
    assert (done.done, refused.done) == (True, False)
    (extend,) = only(harness.tell(StoreAnswered(first.number, done), harness.now + 20), Extend)
    assert extend.leadership.valid_until_ms == first_ms + LAN.hold_ms
    assert not only(harness.tell(StoreAnswered(second.number, refused)), Extend)
    assert not only(harness.tell(StoreAnswered(second.number, done)), Extend), "each answer counts once"
    harness.until(Extend)


def test_L2_an_older_proof_never_shortens_the_hold() -> None:
    harness = Harness()
    harness.lead()
    harness.wake()
    first = harness.asked.pop(0)
    harness.wake()
    second = harness.asked.pop(0)
    proof = StoreAnswer(True, True, None, "server-1")
    assert only(harness.tell(StoreAnswered(second.number, proof)), Extend)
    assert not only(harness.tell(StoreAnswered(first.number, proof)), Extend)


def test_L2_unanswered_renewals_are_bounded() -> None:
    harness = Harness(failsafe=("a", "b"))
    harness.lead()
    for _ in range(OUTSTANDING_MAX * 4):
        harness.wake()
        harness.tell(Received(FailsafeAck(Origin("b", config=list_hash(("a", "b"))), WALL, 0, 7)))
        for effect in only(harness.log[-20:], Send):
            ack = FailsafeAck(Origin("b", config=list_hash(("a", "b"))), effect.message.token, effect.message.number, 7)
            harness.tell(Received(ack), harness.now + 1)
    lead = harness.machine._lead
    assert lead is not None
    assert len(lead.renewals) == OUTSTANDING_MAX
    assert len(lead.rounds) <= OUTSTANDING_MAX


def test_L2_after_an_error_the_holder_tries_again_within_a_heartbeat() -> None:
    harness = Harness()
    harness.lead()
    harness.wake()
    harness.answer(answer=StoreAnswer(False, reason="refused"))
    assert harness.machine.deadline_ms is not None
    assert harness.machine.deadline_ms - harness.now < LAN.heartbeat_ms
    harness.until(Extend)


def test_L2_a_holder_moves_along_with_a_fail_over_that_kept_its_hold() -> None:
    harness = Harness()
    harness.lead()
    for _ in range(3):
        harness.until(Extend)
    harness.store.fail_over(lost_commits=2)
    harness.until(Extend)
    assert Code.OTHER_SERVER in harness.codes()
    assert harness.store.rows["job"].server == "server-2"
    assert not only(harness.log, Stop)
