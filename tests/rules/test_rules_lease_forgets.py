"""The rules of the store lease against stores that forget: what is unchanged, and how long the wait is (L3, L5).

What spares the wait (L4) stands in `test_rules_lease_at_once.py`, fresh names in `test_rules_lease_fresh.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from primacy.election.effects import AskStore, Extend, Record, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import Started, StoreNews
from primacy.election.lease.state import TICK_MS, gaps_ms
from primacy.election.model import Member, Membership
from primacy.election.store import (
    WAIT_MAX_MS,
    Look,
    Place,
    ReleaseRow,
    Renew,
    Row,
    StoreAnswer,
    Take,
    holder_id,
    list_hash,
)
from primacy.settings.timing import stretched
from primacy.sim.world.engines import ETCD
from primacy.sim.world.store import SimStore
from tests.support.lease_harness import LAN, LONG_MS, TRIO, WALL, Harness, held_by, look_until, only, row_of, taken_ms

pytestmark = pytest.mark.coverage

# --- L3: unchanged ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"holder": holder_id("c", 9)},
        {"token": WALL + 1},
        {"seq": 2},
        {"released": True, "vouches": False},
        {"proof": "another"},
        {"mark": "another"},
        {"members": list_hash(TRIO)},
        {"server": "server-0"},
        {"vouches": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_L3_every_field_of_the_row_that_changes_starts_the_observation_anew(change: dict[str, Any]) -> None:
    harness = Harness(store=held_by(), failsafe=TRIO, token_max=1)
    harness.tell(Started(WALL))
    look_until(harness, 2_000)
    sight = harness.machine.seen
    assert sight is not None
    row = harness.store.rows["job"]._replace(**change)
    answer = harness.store.perform(Look("job"), harness.link)._replace(row=row)
    harness.until(Look)
    harness.answer(answer=answer)
    since_ms = harness.now
    after = harness.machine.seen
    assert after is not None
    assert (sight.since_ms, after.since_ms) == (0, since_ms)
    assert harness.machine._take_at_ms() is not None
    assert harness.machine._take_at_ms() > since_ms + LAN.wait_ms  # type: ignore[operator]


def test_L3_an_unchanged_row_goes_on_being_watched_whatever_else_is_written() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    look_until(harness, 2_000)
    harness.store.put("other", row_of("c"))
    assert taken_ms(harness) <= LAN.wait_ms + LAN.heartbeat_ms


def test_L3_a_position_that_fell_starts_the_observation_anew_and_lasts_for_wait_max() -> None:
    """The store went back under its name, as none should: to what this node saw, but not unnoticed."""
    store = held_by()
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    look_until(harness, 1_000)
    seen = store.table
    store.put("other", row_of("c"))
    look_until(harness, 2_000)
    store.revert(seen)
    harness.until(Look)
    fell_ms = harness.now
    harness.answer()
    assert Code.OBSERVATION_RESTARTED in harness.codes()
    assert taken_ms(harness) >= fell_ms + LONG_MS


def test_L5_answers_that_overtake_each_other_are_no_position_that_fell() -> None:
    harness = Harness()
    harness.lead()
    harness.wake()
    first, now = harness.asked.pop(0), harness.now
    harness.wake()
    second = harness.asked.pop(0)
    one = harness.store.perform(first.request, harness.link)
    two = harness.store.perform(second.request, harness.link)._replace(position=one.position + 5)
    harness.asked = [second, first]
    harness.answer(answer=two)
    harness.answer(answer=one)
    assert harness.machine._fell_ms is None
    assert harness.now > now


@pytest.mark.parametrize(("engine", "anew"), [(ETCD, True), (None, False)])
def test_L3_a_broken_connection_starts_the_observation_anew_where_the_identity_is_not_enough(
    engine: Any, anew: bool
) -> None:
    store = SimStore(engine) if engine is not None else SimStore()
    store.put("job", row_of(server=store.server))
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    look_until(harness, 2_000)
    harness.link += 1
    assert (taken_ms(harness) > 2_000 + LAN.wait_ms) is anew


def test_L3_a_look_that_fails_breaks_nothing_by_itself() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    look_until(harness, 2_000)
    harness.until(Look)
    harness.answer(answer=StoreAnswer(False, reason="refused"))
    assert taken_ms(harness) < 2_000 + LAN.wait_ms


# --- L3: the wait -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "known", "wait_ms"),
    [
        (row_of(), 0, LAN.wait_ms),
        (row_of(server="server-0"), 0, WAIT_MAX_MS),
        (row_of(token=5), 6, WAIT_MAX_MS),
        (row_of(wait_ms=20_000, server="server-0"), 0, 20_000),
        (Row("", 5, 1, WAIT_MAX_MS, WAIT_MAX_MS, released=False, server="server-1"), 0, WAIT_MAX_MS),
        (Row("", 5, 1, 500, 500, released=False, server="server-1"), 0, WAIT_MAX_MS),
    ],
    ids=["plain", "another-identity", "below-a-known-token", "longer-than-wait_max", "placeholder", "imported"],
)
def test_L3_the_wait_is_wait_max_wherever_the_last_holder_may_be_forgotten(row: Row, known: int, wait_ms: int) -> None:
    store = SimStore()
    store.put("job", row)
    harness = Harness(store=store, token_max=known)
    harness.tell(Started(WALL), at=0)
    at_ms = taken_ms(harness)
    assert wait_ms + TICK_MS <= at_ms <= wait_ms + TICK_MS + LAN.heartbeat_ms


@pytest.mark.parametrize(
    ("row", "wait_ms"),
    [
        (row_of(hold_ms=10_000, wait_ms=10_203), stretched(10_000, 50_000)),
        (row_of(hold_ms=10_000, wait_ms=12_000), 12_000),
        (row_of(server="server-0"), 10_916),
        (Row("", 5, 1, WAIT_MAX_MS, WAIT_MAX_MS, released=False, server="server-1"), 10_916),
        (Row("", 5, 1, 20_000, 20_000, released=False, server="server-1"), 20_793),
    ],
    ids=["longer-hold", "holder-knows-worse", "another-identity", "placeholder", "imported"],
)
def test_L3_who_reckons_with_worse_clocks_than_the_holder_waits_for_longer(row: Row, wait_ms: int) -> None:
    """What the row asks for knows how slow the holder's clock may be, and not how fast ours is."""
    store = SimStore()
    store.put("job", row)
    harness = Harness(store=store, timing=LAN._replace(drift_ppm=50_000))
    harness.tell(Started(WALL), at=0)
    at_ms = taken_ms(harness)
    assert wait_ms + TICK_MS <= at_ms <= wait_ms + TICK_MS + LAN.heartbeat_ms


def test_L3_the_longest_wait_seen_under_the_name_is_stretched_too() -> None:
    store = held_by(token=5, wait_ms=3_000)
    before = store.table
    store.put("job", row_of("c", token=6, hold_ms=18_000, wait_ms=18_000))
    harness = Harness(store=store, timing=LAN._replace(drift_ppm=50_000))
    harness.tell(Started(WALL))
    look_until(harness, 1_000)
    store.put_back(before)
    harness.until(Look)
    back_ms = harness.now
    assert taken_ms(harness) > back_ms + stretched(18_000, 50_000)


def test_L3_a_hold_of_good_clocks_is_admitted_as_if_they_had_the_default_error() -> None:
    """Others reckon with that: 3,000 ms at 0.01 % make 3,001 ms, and a watcher of 1 % needs 3,061."""
    timing = LAN._replace(drift_ppm=100)
    assert timing.wait_ms < 3_060 < timing.admitted_ms == LAN.wait_ms
    harness = Harness(store=SimStore(wait_max_ms=3_060), timing=timing)
    harness.tell(Started(WALL))
    with pytest.raises(AssertionError):
        harness.until(Take)
    assert "`primacy lease schema --wait-max-ms 3061`" in harness.waits()


def test_L3_a_row_that_does_not_vouch_is_watched_for_wait_max_released_or_not() -> None:
    for released in (False, True):
        store = held_by()
        store.by_hand(("job", store.rows["job"]._replace(released=released)))
        assert not store.rows["job"].vouches
        harness = Harness(store=store)
        harness.tell(Started(WALL))
        assert taken_ms(harness) >= LONG_MS


def test_L3_the_longest_wait_that_was_ever_seen_under_the_name_counts() -> None:
    """b held with a long hold; the history in which it did so is lost, and a row of before shows a short one."""
    store = held_by(token=5, wait_ms=3_000)
    before = store.table
    store.put("job", row_of("c", token=6, wait_ms=18_000))
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    look_until(harness, 1_000)
    store.put_back(before)
    harness.until(Look)
    back_ms = harness.now
    assert taken_ms(harness) > back_ms + 18_000


def test_L3_a_token_that_is_learned_meanwhile_makes_the_wait_longer() -> None:
    harness = Harness(store=held_by(token=5))
    harness.tell(Started(WALL))
    look_until(harness, 2_900)
    harness.machine.learn(6)
    assert taken_ms(harness) >= LONG_MS


def test_L3_a_hold_that_the_table_does_not_admit_is_refused_with_the_remedy() -> None:
    for store in (SimStore(wait_max_ms=3_000), SimStore(wait_max_ms=3_000, settled=False)):
        harness = Harness(store=store)
        harness.tell(Started(WALL))
        with pytest.raises(AssertionError):
            harness.until(Take)
        assert not any(isinstance(asked.request, Take | Place) for asked in harness.asked)
        assert harness.codes().count(Code.HOLD_TOO_LONG) == 1
        (told,) = [e.event for e in only(harness.log, Record) if e.event.code is Code.HOLD_TOO_LONG]
        assert "3,061 ms" in told.detail
        assert "3,000 ms" in told.detail
        assert "`primacy lease schema --wait-max-ms 3061`" in told.detail
        assert harness.waits().startswith("an operator: others would have to wait")
    raised = SimStore(wait_max_ms=stretched(LAN.hold_ms, LAN.drift_ppm))
    harness = Harness(store=raised)
    harness.tell(Started(WALL))
    harness.until(Start)


# --- L3: evidence and news --------------------------------------------------------------------------------------------


def test_L3_the_take_carries_every_field_that_the_decision_rested_on() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    take = harness.until(Take)
    assert take.seen == harness.store.rows["job"]
    assert take.seen.mark
    assert take.server == "server-1"
    fresh = Harness()
    fresh.tell(Started(WALL))
    take = fresh.until(Take)
    assert take.seen is None
    seen, there = take.genesis, fresh.store.genesis
    assert (seen.settled, seen.floor, seen.version, seen.mark) == (
        there.settled,
        there.floor,
        there.version,
        there.mark,
    )


@pytest.mark.parametrize("renewed", [False, True])
def test_L3_news_wake_a_look_and_shorten_nothing(renewed: bool) -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    harness.answer()
    told = 0
    while harness.now < LAN.wait_ms - 100:
        at = harness.now + 100
        harness.tell(StoreNews(renewed), at)
        told += len(harness.asked)
        while harness.asked:
            assert isinstance(harness.asked[0].request, Look)
            harness.answer()
    assert told >= (29 if not renewed else 6)
    assert harness.until(Take)
    assert harness.now >= LAN.wait_ms + TICK_MS


def test_L3_hints_of_renewals_spare_looks_and_delay_no_take() -> None:
    """A notification says when a look is worth most; who repeats it for ever delays nothing that is due."""
    plain, hinted = Harness(store=held_by(), look_every_ms=300), Harness(store=held_by(), look_every_ms=300)
    for harness in (plain, hinted):
        harness.tell(Started(WALL))
        while not (harness.asked and isinstance(harness.asked[0].request, Take)):
            if harness.asked:
                harness.answer()
            elif harness is hinted and harness.machine.deadline_ms is not None:
                at = min(harness.machine.deadline_ms, harness.now + 50)
                harness.tell(StoreNews(renewed=True), at)
            else:
                harness.wake()
    assert plain.now == pytest.approx(hinted.now, abs=LAN.heartbeat_ms)


def test_L3_a_renewal_that_is_overdue_brings_a_look() -> None:
    harness = Harness(store=held_by(), look_every_ms=900)
    harness.tell(Started(WALL))
    harness.answer()
    tenth_ms, spans_ms = LAN.heartbeat_ms // 10, []
    for number in range(20):
        harness.store.perform(Renew("job", holder_id("b", 9), WALL, number + 1, "server-1"))
        harness.tell(StoreNews(renewed=True), harness.now + LAN.heartbeat_ms)
        if harness.asked:
            harness.answer()
        else:
            assert harness.machine.deadline_ms is not None
            spans_ms.append(harness.machine.deadline_ms - harness.now)
    assert len(spans_ms) == 15
    assert set(spans_ms) == {8 * tenth_ms + tenth_ms, 12 * tenth_ms + tenth_ms}, "the holder's gaps, and a tenth"


def test_L3_two_who_hear_of_renewals_look_at_different_ones() -> None:
    """Each at one of four, before the longer gaps; whoever of the three holds, and whether they know a list."""
    for listed in ("", "own", "abc"):
        for holder in "abc":
            seen: list[int] = []
            for node in "abc".replace(holder, ""):
                membership = Membership.of([Member(name) for name in (node if listed == "own" else listed)])
                harness = Harness(node, store=held_by(holder), membership=membership)
                looks = [seq for seq in range(40) if harness.machine._looks_at(holder_id(holder, 9), seq)]
                assert len(looks) == 10
                assert all(harness.machine._gap_ms(seq) > LAN.heartbeat_ms for seq in looks)
                seen += looks
            assert sorted(seen) == list(range(0, 40, 2)), holder


def test_L2_an_uneven_gap_leaves_time_for_the_trip_before_TERM() -> None:
    for heartbeat_ms, longest_ms in ((250, 300), (550, 660), (1_100, 1_120), (1_199, 1_199), (1_300, 1_300)):
        after_even_ms, after_odd_ms = gaps_ms(LAN._replace(heartbeat_ms=heartbeat_ms))
        assert after_even_ms == longest_ms
        assert after_even_ms + after_odd_ms == 2 * heartbeat_ms


@pytest.mark.parametrize("proofs", [1, 2])
def test_L2_two_renewals_leave_before_TERM_whichever_was_the_last_that_was_proved(proofs: int) -> None:
    harness = Harness()
    harness.lead()
    for _ in range(proofs):
        harness.until(Extend)
    assert harness.machine._lead is not None
    proved_ms, left_ms = harness.machine._lead.proved_ms, []
    while harness.machine._lead is not None:
        left_ms += [harness.now - proved_ms for effect in harness.wake() if isinstance(effect, AskStore)]
    assert left_ms[1] == 2 * LAN.heartbeat_ms < LAN.term_at_ms
    assert left_ms[0] in (LAN.heartbeat_ms * 4 // 5, LAN.heartbeat_ms * 6 // 5)


# --- L2, L3: a row that does not vouch is nobody's --------------------------------------------------------------------


def test_L2_a_holder_whose_row_does_not_vouch_stops() -> None:
    harness = Harness()
    harness.lead()
    harness.until(Extend)
    row = harness.store.rows["job"]
    harness.store.by_hand(("job", row))
    assert not harness.store.rows["job"].vouches
    stop = harness.until(Stop)
    assert not stop.planned
    (told,) = [e.event for e in only(harness.log, Record) if e.event.code is Code.LEASE_LOST]
    assert told.detail == "the row was put back, or changed by hand"


def test_L4_a_row_of_ours_that_does_not_vouch_is_neither_renewed_nor_released() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.lose()
    harness.store.by_hand(("job", harness.store.rows["job"]))
    lost_ms = harness.now
    while harness.now < lost_ms + WAIT_MAX_MS:
        assert not any(isinstance(asked.request, Renew | ReleaseRow) for asked in harness.asked)
        harness.answer() if harness.asked else harness.wake()
    assert harness.until(Start).leadership.token > WALL


def test_L3_a_holder_moves_along_only_with_a_row_that_is_its_own_unreleased_and_vouches() -> None:
    for change, lost in (
        ({}, False),
        ({"holder": holder_id("a", 8)}, True),
        ({"token": 5}, True),
        ({"released": True}, True),
        ({"vouches": False}, True),
    ):
        harness = Harness()
        harness.lead()
        harness.wake()
        row = harness.store.rows["job"]._replace(**change)  # type: ignore[arg-type]
        effects = harness.answer(answer=StoreAnswer(True, False, row, "server-2"))
        assert bool(only(effects, Stop)) is lost, change


# --- answers that are final -------------------------------------------------------------------------------------------


def test_a_store_that_cannot_be_used_is_told_at_once_with_its_sentence() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    harness.answer(answer=StoreAnswer(False, reason="no answer"))
    final = StoreAnswer(False, reason="the password of u is wrong", final=True)
    for _ in range(5):
        harness.until(Look)
        harness.answer(answer=final)
    told = [e.event for e in only(harness.log, Record) if e.event.code is Code.STORE_UNUSABLE]
    assert [event.detail for event in told] == ["the password of u is wrong"]
    assert harness.machine.unusable == "the password of u is wrong"
    assert harness.waits() == "somebody to change what the store refuses (the password of u is wrong)"
    assert harness.machine.deadline_ms is not None
    assert harness.machine.deadline_ms > harness.now, "it backs off"
    harness.until(Look)
    harness.answer()
    assert harness.machine.unusable == ""
    assert Code.STORE_ANSWERS in harness.codes()


def test_a_holder_whose_store_cannot_be_used_any_more_says_so_and_holds_on_until_TERM() -> None:
    harness = Harness()
    start = harness.lead()
    harness.wake()
    effects = harness.answer(answer=StoreAnswer(False, reason="no rights", final=True))
    assert not only(effects, Stop)
    assert Code.STORE_UNUSABLE in harness.codes()
    while not only(harness.log, Stop):
        harness.asked.clear()
        harness.wake()
    assert harness.now == start.leadership.valid_until_ms - LAN.hold_ms + LAN.term_at_ms
