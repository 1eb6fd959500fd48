"""The rules of the store lease: what spares the wait, and what each of these needs (L4)."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.election.effects import Send, Start
from primacy.election.inputs import Received, RunLock, Started
from primacy.election.lease.state import TICK_MS
from primacy.election.messages import FailsafeHeartbeat, Origin
from primacy.election.store import (
    Look,
    Renew,
    Settle,
    Take,
    holder_id,
    list_hash,
)
from primacy.sim.world.engines import ETCD, POSTGRESQL
from primacy.sim.world.store import SimStore
from tests.support.lease_harness import LAN, LONG_MS, TRIO, WALL, Harness, held_by, look_until, only, row_of, taken_ms

pytestmark = pytest.mark.coverage

# --- L4: what spares the wait, and what each of them needs ------------------------------------------------------------


def released_store() -> tuple[SimStore, dict[str, Any]]:
    return held_by(released=True), {}


def fresh_store() -> tuple[SimStore, dict[str, Any]]:
    return SimStore(), {}


def cold_store() -> tuple[SimStore, dict[str, Any]]:
    return held_by(), {"dead": (holder_id("b", 9),)}


SHORTCUTS = pytest.mark.parametrize("make", [released_store, fresh_store, cold_store])


@SHORTCUTS
def test_L4_a_release_a_fresh_name_and_an_earlier_start_are_taken_at_once(make: Any) -> None:
    store, options = make()
    harness = Harness(store=store, **options)
    harness.tell(Started(WALL))
    assert taken_ms(harness) == 0


@SHORTCUTS
def test_L4a_nothing_is_taken_at_once_under_another_identity(make: Any) -> None:
    store, options = make()
    store.start_anew()
    harness = Harness(store=store, **options)
    harness.tell(Started(WALL))
    assert taken_ms(harness) >= LONG_MS


def test_L4a_a_release_counts_again_once_the_identity_is_settled_and_an_earlier_start_does_not() -> None:
    for make, waits in ((released_store, False), (cold_store, True)):
        store, options = make()
        store.start_anew()
        assert store.perform(Settle("job", store.server, store.genesis)).done
        harness = Harness(store=store, **options)
        harness.tell(Started(WALL))
        assert (taken_ms(harness) >= LONG_MS) is waits


def test_L4a_a_release_under_a_settled_identity_needs_the_count() -> None:
    """Rows were removed by hand: nobody is fast until it is settled again."""
    store = held_by(released=True)
    store.put("other", row_of("c"))
    store.start_anew()
    assert store.perform(Settle("job", store.server, store.genesis)).done
    store.by_hand(("other", None))
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    assert taken_ms(harness) >= LONG_MS


@pytest.mark.parametrize("make", [released_store, cold_store])
def test_L4b_nothing_is_taken_at_once_that_does_not_vouch(make: Any) -> None:
    store, options = make()
    store.by_hand(("job", store.rows["job"]))
    harness = Harness(store=store, **options)
    harness.tell(Started(WALL))
    assert taken_ms(harness) >= LONG_MS


@SHORTCUTS
def test_L4c_nothing_is_taken_at_once_below_a_token_that_this_node_knows(make: Any) -> None:
    store, options = make()
    harness = Harness(store=store, token_max=WALL + 5, **options)
    harness.tell(Started(WALL))
    assert taken_ms(harness) >= LONG_MS
    assert harness.store.rows["job"].token > WALL + 5


@SHORTCUTS
def test_L4c_nor_below_one_that_another_process_of_this_machine_knows(make: Any) -> None:
    store, options = make()
    harness = Harness(store=store, **options)
    harness.machine.learn(WALL + 5)
    harness.tell(Started(WALL))
    assert taken_ms(harness) >= LONG_MS


@SHORTCUTS
def test_L4d_nothing_is_taken_at_once_within_wait_max_of_a_position_that_fell(make: Any) -> None:
    store, options = make()
    harness = Harness(store=store, **options)
    harness.tell(Started(WALL, lock_held=True))
    look_until(harness, 1_000)
    before = store.table
    store.put("other", row_of("c"))
    look_until(harness, 2_000)
    store.revert(before)
    harness.until(Look)
    fell_ms = harness.now
    harness.answer()
    harness.tell(RunLock(False))
    assert "the store went back" in harness.waits()
    assert taken_ms(harness) >= fell_ms + LONG_MS


@pytest.mark.parametrize("make", [released_store, fresh_store])
def test_L4e_a_listed_node_that_acked_within_D_takes_nothing_at_once(make: Any) -> None:
    store, _ = make()
    harness = Harness("b", store=store, failsafe=TRIO, token_max=1)
    harness.store.stop()
    harness.tell(Started(WALL))
    harness.answer()
    heartbeat = FailsafeHeartbeat(Origin("a", boot=9, config=list_hash(TRIO)), 2, 4)
    assert only(harness.tell(Received(heartbeat), at=5_000), Send)
    harness.store.restart()
    if make is fresh_store:
        harness.machine.token_max = 0  # so that only the ack speaks against it
    assert taken_ms(harness) >= 5_000 + LAN.wait_ms + TICK_MS


@pytest.mark.parametrize("make", [released_store, fresh_store])
@pytest.mark.parametrize(("known", "waits"), [(0, True), (WALL, False)])
def test_L4e_a_listed_node_without_memory_has_to_run_for_D_first(make: Any, known: int, waits: bool) -> None:
    store, _ = make()
    if make is fresh_store and known:
        store.put("gone", row_of("c", token=WALL, released=True))
        assert store.genesis.is_settled(store.server)
        known = 1  # it remembers something, and the floor is not below it
        store.table = store.table._replace(genesis=store.table.genesis._replace(floor=1))
    harness = Harness("b", store=store, failsafe=TRIO, token_max=known)
    harness.tell(Started(WALL), at=100)
    assert (taken_ms(harness) >= 100 + LAN.wait_ms + TICK_MS) is waits


def test_L4_an_earlier_start_spares_nothing_with_a_failsafe() -> None:
    store = held_by("b", members=list_hash(TRIO))
    harness = Harness("b", store=store, failsafe=TRIO, token_max=1, dead=(holder_id("b", 9),))
    harness.tell(Started(WALL))
    assert taken_ms(harness) >= LAN.wait_ms + TICK_MS


# --- L4: one's own take, found ----------------------------------------------------------------------------------------


def test_L4_a_found_take_is_renewed_first() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    take = harness.until(Take)
    harness.lose()
    lost_ms = harness.now
    harness.until(Renew)
    assert harness.now < lost_ms + LAN.wait_ms
    (start,) = only(harness.answer(), Start)
    assert start.leadership.token == take.row.token
    assert harness.store.rows["job"].seq == 2


@pytest.mark.parametrize("how", ["identity", "known", "fell"])
def test_L4_a_found_take_needs_the_same_evidence(how: str) -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.lose()
    if how == "identity":
        harness.store.start_anew()
    elif how == "known":
        harness.machine.learn(WALL + 10**6)
    else:
        harness.machine._position = ("server-1", 10**9)  # what it is told next is below what it was told
    lost_ms = harness.now
    start = harness.until(Start, within_ms=30_000)
    assert harness.now >= lost_ms + LONG_MS
    if how != "fell":
        assert start.leadership.token > WALL + 1


def test_L4d_a_take_whose_answer_shows_that_the_store_went_back_proves_nothing() -> None:
    """Between the last look and the take the store was put back to what this node saw, under its name."""
    store = held_by()
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    look_until(harness, 1_000)
    seen = store.table
    for number in range(3):
        store.put(f"other-{number}", row_of("c"))
    harness.until(Take)
    store.revert(seen)
    went_back_ms = harness.now
    assert not only(harness.answer(), Start), "it matched, and yet a holder of what was lost may live"
    assert store.rows["job"].holder == harness.machine.holder
    harness.until(Start, within_ms=30_000)
    assert harness.now >= went_back_ms + LONG_MS


@pytest.mark.parametrize("watched", [False, True])
def test_L4_a_take_over_another_connection_than_its_evidence_proves_nothing(watched: bool) -> None:
    store = SimStore(POSTGRESQL if watched else ETCD)
    store.put("job", row_of(server=store.server))
    harness = Harness(store=store, watched=watched)
    harness.tell(Started(WALL))
    take = harness.until(Take)
    assert take.link == harness.link
    harness.link += 1
    broken_ms = harness.now
    assert not only(harness.answer(), Start)
    assert store.rows["job"].holder != harness.machine.holder, "the store does nothing over another connection"
    harness.until(Start, within_ms=30_000)
    assert harness.now >= broken_ms + (LONG_MS if watched else LAN.wait_ms + TICK_MS)
    plain = Harness(store=held_by())
    plain.tell(Started(WALL))
    assert plain.until(Take).link == 0


def test_L4_nor_does_one_that_a_store_did_over_another_connection_all_the_same() -> None:
    store = SimStore(ETCD)
    store.put("job", row_of(server=store.server))
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    take = harness.until(Take)
    done = store.perform(take, take.link)._replace(link=harness.link + 1)
    assert done.done
    assert not only(harness.answer(answer=done), Start)
    harness.link += 1
    broken_ms = harness.now
    harness.until(Start, within_ms=30_000)
    assert harness.now >= broken_ms + LONG_MS, "nor is it found and believed a moment later"


def test_L4_a_found_take_that_is_renewed_over_another_connection_proves_nothing() -> None:
    store = SimStore(ETCD)
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.lose()
    harness.until(Renew)
    harness.link += 1
    broken_ms = harness.now
    assert not only(harness.answer(), Start)
    harness.until(Start, within_ms=30_000)
    assert harness.now >= broken_ms + LONG_MS


# --- L4: watched ------------------------------------------------------------------------------------------------------


@SHORTCUTS
def test_L4_watched_needs_one_unbroken_connection_for_wait_max(make: Any) -> None:
    store, options = make()
    harness = Harness(store=store, watched=True, **options)
    harness.tell(Started(WALL))
    look_until(harness, 7_000)
    assert "watched" in harness.waits()
    harness.link += 1
    harness.until(Look)
    broken_ms = harness.now
    assert taken_ms(harness) >= broken_ms + LONG_MS


def test_L4_watched_makes_a_release_count_at_once_after_that() -> None:
    harness = Harness(store=held_by(), watched=True)
    harness.tell(Started(WALL))
    seq = 1
    while harness.now < LONG_MS + 1_000:
        harness.answer() if harness.asked else harness.wake()
        if harness.store.perform(Renew("job", holder_id("b", 9), WALL, seq, "server-1")).done:
            seq += 1
    assert harness.store.release("job", holder_id("b", 9), WALL).done
    released_ms = harness.now
    assert taken_ms(harness) <= released_ms + 2 * LAN.heartbeat_ms


def test_L4_watched_a_silent_holder_is_not_followed_before_the_connection_was_watched() -> None:
    """What was lost may have had a longer hold than what is seen."""
    harness = Harness(store=held_by(), watched=True)
    harness.tell(Started(WALL))
    assert taken_ms(harness) >= LONG_MS


def test_L4_watched_a_found_take_is_taken_anew_with_a_new_token() -> None:
    harness = Harness(watched=True)
    harness.tell(Started(WALL))
    first = harness.until(Take)
    harness.lose()
    taken = only(harness.log, Renew)
    start = harness.until(Start)
    assert not taken
    assert start.leadership.token > first.row.token
    assert harness.store.rows["job"].token == start.leadership.token
