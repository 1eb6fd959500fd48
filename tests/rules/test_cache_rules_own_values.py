"""Rules C8 to C12 and E1 of the cache, one by one. Each schedule is told in `cache_schedules_values.py`."""

from __future__ import annotations

from primacy.cache.own import OwnMachine
from tests.support import cache_schedules_floors as floors
from tests.support import cache_schedules_gathered as gathered
from tests.support import cache_schedules_values as schedules
from tests.support import cache_schedules_whole as whole


def test_C8_epoch_is_the_ballot() -> None:
    assert schedules.epoch_is_the_ballot(OwnMachine) == ""


def test_C8_only_higher_replaces() -> None:
    assert schedules.only_higher_replaces(OwnMachine) == ""


def test_C8_rank_decides_in_one_term() -> None:
    assert schedules.rank_decides_in_one_term(OwnMachine) == ""


def test_C8_none_below_the_floor() -> None:
    assert schedules.none_below_the_floor(OwnMachine) == ""


def test_C8_none_below_the_promise() -> None:
    assert schedules.none_below_the_promise(OwnMachine) == ""


def test_C8_eviction_of_an_older_value() -> None:
    assert schedules.eviction_of_an_older_value(OwnMachine) == ""


def test_C8_eviction_keeps_the_epoch() -> None:
    assert schedules.eviction_keeps_the_epoch(OwnMachine) == ""


def test_C8_late_result_after_a_thaw() -> None:
    assert schedules.late_result_after_a_thaw(OwnMachine) == ""


def test_C8_meta_outlives_the_value() -> None:
    assert schedules.meta_outlives_the_value(OwnMachine) == ""


def test_C9_all_at_once() -> None:
    assert schedules.all_at_once(OwnMachine) == ""


def test_C9_first_ranked_is_dead() -> None:
    assert schedules.first_ranked_is_dead(OwnMachine) == ""


def test_C9_what_wakes_together() -> None:
    assert schedules.what_wakes_together(OwnMachine) == ""


def test_C10_outsider_does_nothing_more() -> None:
    assert schedules.outsider_does_nothing_more(OwnMachine) == ""


def test_C10_outsider_leaves_and_returns_at_once() -> None:
    assert schedules.outsider_leaves_and_returns_at_once(OwnMachine) == ""


def test_C10_one_peer_per_reload() -> None:
    assert schedules.one_peer_per_reload(OwnMachine) == ""


def test_C10_next_change_waits() -> None:
    assert schedules.next_change_waits(OwnMachine) == ""


def test_C10_neighbours_only() -> None:
    assert schedules.neighbours_only(OwnMachine) == ""


def test_C10_pending_counts_for_nothing() -> None:
    assert schedules.pending_counts_for_nothing(OwnMachine) == ""


def test_C10_promises_survive() -> None:
    assert schedules.promises_survive(OwnMachine) == ""


def test_C10_outsider_sends_elsewhere() -> None:
    assert schedules.outsider_sends_elsewhere(OwnMachine) == ""


def test_C10_invalidation_and_lists() -> None:
    assert schedules.invalidation_and_lists(OwnMachine) == ""


def test_C11_floor_above_a_majority() -> None:
    assert floors.floor_above_a_majority(OwnMachine) == ""


def test_C11_floor_durable_before_the_ack() -> None:
    assert floors.floor_durable_before_the_ack(OwnMachine) == ""


def test_C11_own_floor_is_stored_again() -> None:
    assert floors.own_floor_is_stored_again(OwnMachine) == ""


def test_C11_floor_kills_what_is_under_way() -> None:
    assert floors.floor_kills_what_is_under_way(OwnMachine) == ""


def test_C11_refused_by_a_floor() -> None:
    assert floors.refused_by_a_floor(OwnMachine) == ""


def test_C11_floor_is_raised() -> None:
    assert floors.floor_is_raised(OwnMachine) == ""


def test_C11_done_by_all() -> None:
    assert floors.done_by_all(OwnMachine) == ""


def test_C11_done_without_one() -> None:
    assert floors.done_without_one(OwnMachine) == ""


def test_C11_minority_refuses() -> None:
    assert floors.minority_refuses(OwnMachine) == ""


def test_C11_by_prefix() -> None:
    assert floors.by_prefix(OwnMachine) == ""


def test_C11_floors_are_bounded() -> None:
    assert floors.floors_are_bounded(OwnMachine) == ""


def test_C11_refresh_replaces() -> None:
    assert floors.refresh_replaces(OwnMachine) == ""


def test_C11_put_is_an_election() -> None:
    assert floors.put_is_an_election(OwnMachine) == ""


def test_C11_renewal_below_a_floor() -> None:
    assert gathered.refused_below_a_floor(OwnMachine) == ""


def test_C12_stale_out_of_touch() -> None:
    assert floors.stale_out_of_touch(OwnMachine) == ""


def test_C12_touch_from_departure() -> None:
    assert floors.touch_from_departure(OwnMachine) == ""


def test_C12_pong_brings_floors() -> None:
    assert floors.pong_brings_floors(OwnMachine) == ""


def test_C12_pages_while_floors_change() -> None:
    assert floors.pages_while_floors_change(OwnMachine) == ""


def test_C12_since_vouches() -> None:
    assert floors.since_vouches(OwnMachine) == ""


def test_C12_own_since_counts() -> None:
    assert floors.own_since_counts(OwnMachine) == ""


def test_C12_pings() -> None:
    assert floors.pings(OwnMachine) == ""


def test_C12_restarted_without_memory() -> None:
    assert floors.restarted_without_memory(OwnMachine) == ""


def test_E1_refusals_are_bounded() -> None:
    assert floors.refusals_are_bounded(OwnMachine) == ""


def test_E1_one_message_each() -> None:
    assert floors.one_message_each(OwnMachine) == ""


def test_E1_one_entry_request() -> None:
    assert floors.one_entry_request(OwnMachine) == ""


def test_C10_reload_of_two() -> None:
    assert whole.reload_of_two(OwnMachine) == ""
