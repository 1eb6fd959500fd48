"""Where only a connection tells that a store came back, a gap in which nothing was looked at tells nothing (L5)."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.election.effects import Start
from primacy.election.inputs import DeadlinePassed, Started, StoreNews, WorkGone
from primacy.election.lease.state import TICK_MS
from primacy.election.store import Look, Renew, StoreAnswer, Take, holder_id
from primacy.sim.world.engines import ETCD, POSTGRESQL
from primacy.sim.world.store import SimStore
from tests.support.lease_harness import LAN, LONG_MS, WALL, Harness, held_by, look_until, only, row_of, taken_ms

pytestmark = pytest.mark.coverage


def seen_over_a_link(kept: bool = True, **more: Any) -> Harness:
    """A store whose rows count over one connection only: etcd, or any that is `watched`."""
    store = SimStore(ETCD, settled=True, raft_index=5_000) if kept else SimStore(POSTGRESQL, settled=True)
    store.put("job", row_of(server=store.server, **more))
    return Harness(store=store, watched=not kept)


@pytest.mark.parametrize("kept", [True, False], ids=["etcd", "watched"])
def test_L5_a_gap_in_which_nothing_was_looked_at_starts_the_observation_anew(kept: bool) -> None:
    """The process stood still behind a proxy that kept its connection; all else is as it was."""
    harness = seen_over_a_link(kept)
    harness.tell(Started(WALL))
    look_until(harness, 2_000)
    woken_ms = harness.now + 60_000
    harness.tell(DeadlinePassed(), woken_ms)
    assert not any(isinstance(asked.request, Take) for asked in harness.asked)
    harness.answer()
    assert taken_ms(harness) >= woken_ms + (LAN.wait_ms + TICK_MS if kept else LONG_MS)


def test_L5_a_gap_that_news_of_renewals_end_is_one_too() -> None:
    harness = seen_over_a_link()
    harness.tell(Started(WALL))
    look_until(harness, 2_000)
    woken_ms = harness.now + 60_000
    harness.tell(StoreNews(renewed=True), woken_ms)
    assert taken_ms(harness) >= woken_ms + LAN.wait_ms + TICK_MS


def test_L5_an_answer_that_waited_while_the_process_stood_still_starts_the_observation_anew() -> None:
    harness = seen_over_a_link()
    harness.tell(Started(WALL))
    look_until(harness, 2_000)
    harness.until(Look)
    woken_ms = harness.now + 60_000
    harness.answer(at=woken_ms)
    assert taken_ms(harness) >= woken_ms + LAN.wait_ms + TICK_MS


def test_L5_looks_that_fail_for_long_are_a_gap_and_a_short_failure_is_none() -> None:
    for spans_ms in (1_500, 6_000):
        harness = seen_over_a_link()
        harness.tell(Started(WALL))
        look_until(harness, 1_000)
        while harness.now < spans_ms:
            failed = StoreAnswer(False, reason="refused")
            harness.answer(answer=failed) if harness.asked else harness.wake()
        ended_ms = harness.now
        assert (taken_ms(harness) > ended_ms + LAN.wait_ms) is (spans_ms > 2_000)


def test_L5_a_store_that_answers_slowly_but_in_time_keeps_nobody_out() -> None:
    harness = seen_over_a_link()
    harness.tell(Started(WALL))
    while not (harness.asked and isinstance(harness.asked[0].request, Take)):
        harness.answer(at=harness.now + LAN.hold_ms // 3) if harness.asked else harness.wake()
        assert harness.now < 3 * LAN.wait_ms


@pytest.mark.parametrize("kept", [True, False], ids=["etcd", "watched"])
def test_L5_news_of_renewals_make_looks_rarer_and_no_gap(kept: bool) -> None:
    """A watcher that is told of every renewal looks at one of four, and sees a release at once all the same."""
    harness = seen_over_a_link(kept)
    harness.tell(Started(WALL))
    seq, told_ms, away = 1, 0, 0
    while harness.now < 2 * LONG_MS:
        if harness.asked:
            harness.answer()
            continue
        assert harness.machine.deadline_ms is not None
        at_ms = min(harness.machine.deadline_ms, told_ms + 550)
        if at_ms == told_ms + 550:
            told_ms = at_ms
            assert harness.store.perform(Renew("job", holder_id("b", 9), WALL, seq, harness.store.server)).done
            seq += 1
            harness.tell(StoreNews(renewed=True), at_ms)
        else:
            harness.tell(DeadlinePassed(), at_ms)
        away += harness.machine._away
    assert not away
    assert harness.store.release("job", holder_id("b", 9), WALL).done
    released_ms = harness.now
    assert taken_ms(harness) <= released_ms + LAN.hold_ms


@pytest.mark.parametrize("kept", [True, False], ids=["etcd", "watched"])
def test_L5_a_take_that_was_answered_after_a_gap_is_watched(kept: bool) -> None:
    """It may have been done only now, in a history that its evidence is not from."""
    harness = seen_over_a_link(kept)
    harness.tell(Started(WALL))
    harness.until(Take, within_ms=60_000)
    woken_ms = harness.now + 60_000
    assert not only(harness.answer(at=woken_ms), Start)
    harness.until(Start, within_ms=60_000)
    assert harness.now >= woken_ms + LONG_MS


def test_L5_a_holder_that_stood_still_believes_no_release_before_it_watched_again() -> None:
    harness = Harness(watched=True)
    harness.lead()
    woken_ms = harness.now + 60_000
    harness.asked.clear()
    harness.tell(DeadlinePassed(), woken_ms)
    token = harness.machine.token_max
    harness.store.put("job", row_of(token=token + 1, released=True, server=harness.store.server))
    harness.tell(WorkGone(token))
    assert taken_ms(harness) >= woken_ms + LONG_MS


def test_L5_where_the_identity_tells_of_every_start_a_gap_is_no_matter() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    look_until(harness, 2_000)
    harness.tell(DeadlinePassed(), 62_000)
    assert isinstance(harness.asked[0].request, Take)
