"""The rules of the store lease: placeholders (L3), fresh names and settling (L9), the floor (L10)."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.election.effects import Start
from primacy.election.events import Code
from primacy.election.inputs import Pause, Resume, Shutdown, Started
from primacy.election.lease.state import TICK_MS
from primacy.election.store import (
    WAIT_MAX_MS,
    Look,
    Place,
    Prune,
    Renew,
    Row,
    Settle,
    StoreAnswer,
    Take,
    holder_id,
)
from primacy.sim.world.engines import ETCD, POSTGRESQL, SQLITE
from primacy.sim.world.store import SimStore
from tests.support.lease_harness import LAN, WALL, Harness, held_by, only, row_of

pytestmark = pytest.mark.coverage

LONG_MS = WAIT_MAX_MS + TICK_MS
SLACK_MS = 2 * LAN.heartbeat_ms


def run_until(harness: Harness, ms: int) -> list[Any]:
    """Everything is answered at once until that moment. What was asked."""
    asked: list[Any] = []
    while harness.now < ms:
        asked += [one.request for one in harness.asked]
        harness.answer() if harness.asked else harness.wake()
    return asked


def kinds(asked: list[Any], *wanted: type) -> list[Any]:
    return [request for request in asked if isinstance(request, wanted)]


# --- L9: a settled table ----------------------------------------------------------------------------------------------


def test_L9_a_fresh_name_is_taken_at_once_under_a_settled_identity() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    assert harness.asked[0].request == Look("job"), "the insert counts by itself"
    harness.answer()
    (take,) = [asked.request for asked in harness.asked]
    assert isinstance(take, Take)
    assert take.seen is None
    assert only(harness.answer(), Start)
    assert harness.now == 0
    assert (harness.store.genesis.names, harness.store.genesis.version) == (1, 1)
    assert harness.store.genesis.is_settled("server-1")


def test_L9_an_insert_that_another_name_overtook_is_repeated_at_once() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    harness.answer()
    harness.store.put("other", row_of("c"))
    assert not only(harness.answer(), Start)
    assert isinstance(harness.asked[0].request, Take)
    assert only(harness.answer(), Start)
    assert harness.now == 0


def test_L9_an_insert_that_changes_nothing_is_not_repeated_as_fast_as_the_store_answers() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    harness.answer()
    for counted in (-1, 0):
        while not isinstance(harness.asked[0].request, Take):
            harness.answer()
        genesis = harness.store.genesis._replace(count=counted)
        harness.answer(answer=harness.store.perform(Look("job"), harness.link)._replace(genesis=genesis))
        if counted < 0:
            assert harness.asked[0].request == Look("job", count=True), "what was not counted is counted first"
    assert not harness.asked
    assert harness.machine.deadline_ms is not None
    assert harness.machine.deadline_ms >= harness.now + LAN.heartbeat_ms


def test_L9_rows_removed_by_hand_make_nobody_fast_until_it_is_settled_again() -> None:
    store = SimStore()
    store.put("other", row_of("c"))
    store.by_hand(("other", None))
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    asked = run_until(harness, 5_000)
    assert len(kinds(asked, Take)) == 1, "it counted, and was refused"
    assert "rows were added to the table, or removed from it, by hand" in harness.waits()
    settle = harness.until(Settle)
    assert harness.now >= LONG_MS
    assert (settle.genesis.names, settle.genesis.count) == (1, 0)
    harness.until(Start)
    assert harness.now <= LONG_MS + SLACK_MS
    assert store.genesis.is_settled("server-1")


def test_L9_a_node_that_knows_a_token_above_the_floor_does_not_believe_that_the_row_was_removed() -> None:
    harness = Harness(token_max=WALL + 7)
    harness.tell(Started(WALL))
    place = harness.until(Place)
    assert (harness.now, place) == (0, Place("job", "server-1"))
    harness.answer()
    assert harness.store.rows["job"].is_placeholder
    assert "this machine knows a newer token than the store has" in harness.waits()
    harness.until(Take)
    assert LONG_MS <= harness.now <= LONG_MS + SLACK_MS
    assert only(harness.answer(), Start)[0].leadership.token > WALL + 7


# --- L10: the floor ---------------------------------------------------------------------------------------------------


def pruned(token: int) -> SimStore:
    store = held_by(token=token, released=True)
    assert store.perform(Prune("job", store.rows["job"], "server-1", store.genesis)).done
    return store


def test_L10_after_a_row_was_pruned_the_name_is_free_at_once_above_the_floor() -> None:
    for known in (0, WALL * 2):
        harness = Harness(store=pruned(WALL * 2), token_max=known)
        harness.tell(Started(WALL))
        assert harness.until(Start).leadership.token == WALL * 2 + 1
        assert harness.now == 0


def test_L10_a_placeholder_has_the_floor_as_its_token() -> None:
    harness = Harness(store=pruned(WALL), token_max=WALL + 1)
    harness.tell(Started(0))
    harness.until(Place)
    harness.answer()
    assert harness.store.rows["job"].token == WALL
    assert harness.until(Start).leadership.token == WALL + 2


# --- L9: an unsettled table -------------------------------------------------------------------------------------------


def test_L9_an_unsettled_table_is_settled_after_wait_max_and_then_names_are_free() -> None:
    store = SimStore(settled=False)
    harness = Harness(store=store)
    harness.tell(Started(WALL), at=100)
    harness.answer(at=300)
    assert harness.asked[0].request == Look("job", count=True)
    harness.answer(at=500)
    asked = run_until(harness, 500 + WAIT_MAX_MS)
    assert not kinds(asked, Take, Settle, Place)
    assert not kinds([request for request in asked if isinstance(request, Look) and request.count], Look)
    settle = harness.until(Settle)
    assert 500 + LONG_MS <= harness.now <= 500 + LONG_MS + SLACK_MS, "counted from after the answer that counted"
    assert settle == Settle("job", "server-1", store.genesis)
    at_ms = harness.now
    harness.until(Start)
    assert harness.now == at_ms, "and the name is taken at once"
    assert Code.SETTLED in harness.codes()
    other = Harness("b", store=store)
    other.machine.options = other.machine.options._replace(name="second")
    other.tell(Started(WALL))
    other.until(Start)
    assert other.now == 0, "one wait per start of the server, not per name"


def test_L9_who_waits_is_told_for_what_and_how_long() -> None:
    harness = Harness(store=SimStore(settled=False))
    harness.tell(Started(WALL))
    run_until(harness, 4_000)
    left_ms = int(harness.waits().split(" ms")[0].rpartition(" ")[2])
    assert harness.waits() == (
        f"names to be free, in at most {left_ms} ms: the server of the store (re)started, or its table is new"
    )
    assert 6_000 < left_ms < 7_000


def test_L9_a_name_that_is_asked_for_later_waits_no_longer_than_the_server_runs() -> None:
    store = SimStore(settled=False)
    first, late = Harness("a", store=store), Harness("b", store=store)
    late.machine.options = late.machine.options._replace(name="late")
    first.tell(Started(WALL))
    late.tell(Started(WALL), at=9_000)
    while not only(late.log, Start):
        harness = min((first, late), key=lambda one: one.now if one.asked else one.machine.deadline_ms or 0)
        harness.answer() if harness.asked else harness.wake()
    assert late.now <= LONG_MS + SLACK_MS + 2 * LAN.heartbeat_ms


@pytest.mark.parametrize("engine", [POSTGRESQL, ETCD])
def test_L9_another_identity_starts_the_wait_anew(engine: Any) -> None:
    store = SimStore(engine, settled=False)
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    run_until(harness, 8_000)
    store.start_anew()
    harness.until(Settle)
    assert harness.now >= 8_000 + LONG_MS


def test_L9_a_broken_connection_or_a_position_that_fell_starts_the_wait_anew() -> None:
    for how in ("link", "position"):
        store = SimStore(ETCD, settled=False)
        harness = Harness(store=store)
        harness.tell(Started(WALL))
        before = store.table
        store.put("other", row_of("c"))
        run_until(harness, 8_000)
        if how == "link":
            harness.link += 1
        else:
            store.revert(before)
        harness.until(Settle)
        assert harness.now >= 8_000 + LONG_MS, how


def test_L9_placeholders_of_others_do_not_put_it_off() -> None:
    store = SimStore(settled=False)
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    harness.tell(Pause())
    number = 0
    while not store.genesis.settled and harness.now < 60_000:
        if harness.asked:
            harness.answer()
        else:
            harness.wake()
            number += 1
            assert store.perform(Place(f"other-{number}", "server-1")).done
    assert number > 10
    assert harness.now <= LONG_MS + SLACK_MS + 3 * LAN.heartbeat_ms


def test_L9_a_row_removed_meanwhile_starts_the_wait_anew() -> None:
    """Its holder may live: only wait_max after the removal is it surely gone."""
    store = SimStore(settled=False)
    store.put("other", row_of("c"))
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    harness.tell(Pause())
    run_until(harness, 9_000)
    store.by_hand(("other", None))
    harness.until(Settle)
    harness.answer()
    assert not store.genesis.is_settled("server-1"), "the count is compared"
    refused_ms = harness.now
    harness.until(Settle, within_ms=30_000)
    assert harness.now >= refused_ms + LONG_MS


def test_L9_settled_by_another_and_then_a_row_removed_is_another_state() -> None:
    """names and count differ by one as before, and yet it is not the same: the version tells."""
    store = SimStore()
    store.put("one", row_of("c"))
    store.put("two", row_of("c"))
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    harness.until(Take)
    store.by_hand(("one", None))
    harness.answer()  # it was refused, and counted
    harness.tell(Pause())
    run_until(harness, 9_000)
    assert harness.machine._settling is not None
    assert store.perform(Settle("x", "server-1", store.genesis)).done
    store.by_hand(("two", None))
    harness.tell(Resume())
    harness.until(Start, within_ms=30_000)
    assert harness.now >= 9_000 + LONG_MS


@pytest.mark.parametrize("engine", [POSTGRESQL, ETCD, SQLITE], ids=lambda engine: engine.name)
@pytest.mark.parametrize("way", ["made anew", "a dump read twice"])
def test_L9_what_looks_the_same_after_somebody_settled_it_and_led_is_another_state(engine: Any, way: str) -> None:
    """The node that waits looks away meanwhile. The holder that was lost may have renewed a moment ago."""
    store = SimStore(engine, settled=way != "made anew")
    dump = store.table
    if way == "a dump read twice":
        store.put("other", row_of("c"))
        store.read_dump(dump, anew=False)
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    run_until(harness, 9_000)
    while harness.asked:
        harness.answer()
    assert harness.machine._settling is not None
    assert store.perform(Settle("x", store.server, store.perform(Look("x", count=True)).genesis)).done
    store.put("job", row_of("c"))
    before = store.server
    store.make_anew() if way == "made anew" else store.read_dump(dump, anew=False)
    if engine is not POSTGRESQL or way != "made anew":
        assert store.server == before, "or the identity tells"
    away_ms = harness.now = harness.now + LONG_MS
    harness.until(Start, within_ms=30_000)
    assert harness.now >= away_ms + LONG_MS


def test_L9_a_state_that_changed_under_the_wait_is_waited_for_no_longer_the_row_is_placed() -> None:
    store = SimStore(settled=False)
    store.put("other", row_of("c"))
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    run_until(harness, 9_000)
    store.by_hand(("other", None))
    harness.until(Place)
    placed_ms = harness.now
    harness.until(Start)
    assert placed_ms + LONG_MS <= harness.now <= placed_ms + LONG_MS + SLACK_MS


def test_L9_a_genesis_row_that_does_not_vouch_is_not_settled() -> None:
    store = SimStore()
    dump = store.table
    store.read_dump(dump, anew=False)
    assert store.genesis.settled == "server-1"
    assert not store.genesis.vouches
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    harness.until(Start)
    assert harness.now >= LONG_MS


# --- L9: who settles --------------------------------------------------------------------------------------------------


def follow(harness: Harness, until_ms: int) -> list[Any]:
    """Time passes while b renews."""
    asked: list[Any] = []
    store = harness.store
    while harness.now < until_ms:
        asked += [one.request for one in harness.asked]
        row = store.rows["job"]
        store.perform(Renew("job", row.holder, row.token, row.seq, store.server))
        harness.answer() if harness.asked else harness.wake()
    return asked


@pytest.mark.parametrize("paused", [False, True])
def test_L9_who_follows_a_live_holder_settles_too(paused: bool) -> None:
    """So that a later release, or a fresh name, is at once."""
    store = held_by()
    store.start_anew()
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    if paused:
        harness.tell(Pause())
    asked = follow(harness, LONG_MS + 2_000)
    assert store.genesis.is_settled(store.server)
    assert len(kinds(asked, Settle)) == 1
    assert len([look for look in kinds(asked, Look) if look.count]) == 1, "counting costs: once is enough"
    assert not kinds(asked, Take, Place)


def test_L9_who_follows_under_a_settled_identity_counts_nothing() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    asked = follow(harness, 20_000)
    assert not kinds(asked, Settle, Take, Place)
    assert not [look for look in kinds(asked, Look) if look.count]


def test_L9_who_only_watches_a_missing_row_places_nothing() -> None:
    for settled in (True, False):
        harness = Harness(store=SimStore(settled=settled))
        harness.tell(Started(WALL))
        harness.tell(Pause())
        asked = run_until(harness, 5_000)
        assert not kinds(asked, Take, Place)
        assert len([look for look in kinds(asked, Look) if look.count]) == (not settled)
        harness.tell(Resume())
        harness.until(Start)
        assert (harness.now > WAIT_MAX_MS) is not settled


def test_L9_nobody_settles_who_is_about_to_leave() -> None:
    harness = Harness(store=SimStore(settled=False))
    harness.tell(Started(WALL))
    run_until(harness, 2_000)
    harness.tell(Shutdown())
    while harness.asked:
        harness.answer()
    assert harness.machine.deadline_ms is None
    assert not harness.store.genesis.settled


# --- L3: placeholders -------------------------------------------------------------------------------------------------


def test_L3_a_placeholder_is_nobodys_and_is_watched_for_wait_max() -> None:
    store = SimStore()
    assert store.perform(Place("job", "server-1")).done
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    harness.answer()
    assert harness.machine.leader == ""
    assert Code.FOLLOWS not in harness.codes()
    assert harness.waits().startswith("the longest hold of this table to run out, at most 10501 ms")
    take = harness.until(Take)
    assert LONG_MS <= harness.now <= LONG_MS + SLACK_MS
    assert take.seen == store.rows["job"]
    assert Code.LEADER_SILENT not in harness.codes()


def test_L3_a_placeholder_that_another_made_first_is_watched_from_then() -> None:
    harness = Harness(token_max=WALL + 7)
    harness.tell(Started(WALL))
    harness.until(Place)
    harness.store.perform(Place("job", "server-1"))
    harness.answer(at=200)
    assert harness.store.rows["job"].is_placeholder
    harness.until(Take)
    assert harness.now >= 200 + LONG_MS


def test_L3_a_placeholder_is_taken_by_one_only() -> None:
    harness = Harness(token_max=WALL + 7)
    harness.tell(Started(WALL))
    harness.until(Take)
    taken = Row(holder_id("c", 9), WALL, 2, LAN.hold_ms, LAN.wait_ms, released=False)
    assert harness.store.perform(Take("job", harness.store.rows["job"], "server-1", taken)).done
    assert not only(harness.answer(), Start)


def test_L3_without_a_genesis_row_a_missing_row_is_placed() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    harness.answer(answer=StoreAnswer(True, False, None, "server-1"))
    assert isinstance(harness.asked[0].request, Place)
