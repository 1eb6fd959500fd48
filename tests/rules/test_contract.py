"""The arithmetic of the contract against numbers worked out by hand and against random schedules."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from primacy.errors import SettingsError
from primacy.settings.checks import timing_problems
from primacy.settings.contract import Contract, RankContract, as_dict, contract, for_stop_after_loss, timeline
from primacy.settings.timing import PPM, PROFILES, PROFILES_OF, RANK_PROFILES, Timing, for_lease, stretched


def holding(profile: str, strategy: str = "raft", stop_ms: int = 3000) -> Contract:
    made = contract(PROFILES[profile], strategy, stop_ms)
    assert isinstance(made, Contract)
    return made


def test_the_table_of_profiles_is_the_one_of_the_rules() -> None:
    """heartbeat, TERM, KILL, dead-man, hold, wait, promise, end of the spread; nowhere else may these numbers stand."""
    expected = {
        "lab": (50, 200, 350, 400, 500, 511, 525, 725),
        "fast": (100, 400, 700, 850, 1_000, 1_021, 1_040, 1_300),
        "lan": (250, 1_200, 2_300, 2_700, 3_000, 3_061, 3_100, 3_700),
        "wan": (1_000, 5_000, 8_500, 9_300, 10_000, 10_203, 10_400, 12_400),
    }
    for name, numbers in expected.items():
        t = PROFILES[name]
        assert (*t[:5], t.wait_ms, t.promise_ms, t.promise_ms + t.spread_ms) == numbers
    assert (PROFILES["executor"].heartbeat_ms, PROFILES["executor"].hold_ms) == (1_000, 10_000)
    assert (PROFILES["coordinator"].heartbeat_ms, PROFILES["coordinator"].hold_ms) == (10_000 // 3, 10_000)
    assert tuple(RANK_PROFILES["ghoti"]) == (2_000, 1, 2_000, 3_000, 3_000)
    assert tuple(RANK_PROFILES["hecaton"]) == (5_000, 3, 5_000, 5_000, 10_000)


def test_lan_by_hand() -> None:
    made = holding("lan")
    assert made.latest_stop_ms == pytest.approx(3000 / 0.99, abs=0.001)
    assert made.earliest_start_ms == pytest.approx(3100 / 1.01, abs=0.001)
    assert made.margin_ms == pytest.approx(3100 / 1.01 - 3000 / 0.99, abs=0.001)
    assert made.tolerated_clock_error_ppm == 16_393  # (3100 - 3000) / (3100 + 3000)
    assert made.tolerated_stall_ms == 1200 - 250 - 25
    assert made.lost_heartbeats == 3
    assert made.kill_reserve_ms == 300
    assert (made.stop_planned_ms, made.stop_after_loss_ms) == (3000, 1100)
    assert made.failover_expected_ms == 3100 - 125 + 200 + 75


def test_a_lease_waits_for_its_own_observation_and_not_for_a_promise() -> None:
    made = holding("lan", "lease")
    assert made.earliest_start_ms == pytest.approx(3061 / 1.01, abs=0.001)
    assert 0 <= made.margin_ms < 1


def test_ghoti_notices_within_the_two_to_four_seconds_of_its_document() -> None:
    made = contract(RANK_PROFILES["ghoti"], "bully")
    assert isinstance(made, RankContract)
    assert made.detection_worst_ms == 4_000
    assert made.detection_expected_ms == 3_000


@pytest.mark.parametrize("strategy", ["bully", "ring"])
def test_bully_and_ring_say_that_they_promise_no_at_most_one(strategy: str) -> None:
    made = contract(RANK_PROFILES["lan"], strategy)
    assert isinstance(made, RankContract)
    assert not made.at_most_one
    assert f"{strategy} does not promise at most one" in made.warning


@pytest.mark.parametrize(("strategy", "profile"), [(s, p) for s in ("raft", "lease") for p in PROFILES_OF[s]])
def test_every_profile_has_a_margin_and_bears_its_own_drift(strategy: str, profile: str) -> None:
    made = holding(profile, strategy)
    assert made.margin_ms >= 0
    assert made.tolerated_clock_error_ppm >= PROFILES[profile].drift_ppm
    assert made.failover_expected_ms <= made.failover_worst_ms
    assert made.release_worst_ms < made.failover_expected_ms, "a clean release is the faster way"


def test_a_look_is_a_sixth_of_the_hold_unless_that_is_too_often() -> None:
    looks = {name: PROFILES[name].look_ms for name in PROFILES_OF["lease"]}
    assert looks == {"lab": 150, "fast": 300, "lan": 900, "wan": 1_666, "coordinator": 1_666, "executor": 1_666}
    for hold_ms in (3_000, 4_000, 5_400, 5_500, 10_000, 60_000):
        factor = hold_ms / 3_000
        timing = for_lease(PROFILES["lan"]._replace(hold_ms=hold_ms, term_at_ms=int(1_200 * factor)))
        assert 1_000 / timing.heartbeat_ms + 2 * 1_000 / (1.1 * timing.look_ms) < 4, "one holder and two others"
        assert hold_ms // 6 <= timing.look_ms <= hold_ms * 3 // 10


def test_the_hold_for_a_wanted_stop_after_a_loss() -> None:
    wanted = for_stop_after_loss(PROFILES["lan"], 5000)
    assert wanted.kill_at_ms - wanted.term_at_ms == 5000
    assert wanted.hold_ms == 3000 + 3900
    assert not timing_problems(wanted, "raft")
    assert for_stop_after_loss(PROFILES["lan"], 10) == PROFILES["lan"], "what is there already needs no change"


def test_unsafe_times_are_refused_with_both_values() -> None:
    with pytest.raises(SettingsError, match=r"deadman_at_ms = 2700 and election\.timing\.hold_ms = 2700"):
        contract(PROFILES["lan"]._replace(hold_ms=2700), "raft")


def test_the_timeline_is_in_order_and_the_old_stops_before_the_new_starts() -> None:
    made = holding("fast")
    moments = timeline(PROFILES["fast"], made)
    assert [m.at_ms for m in moments] == sorted(m.at_ms for m in moments)
    assert "".join(m.mark for m in moments) == "sbTKDHXSEW"


def test_the_document_holds_times_and_timeline() -> None:
    document = as_dict(holding("lan"), PROFILES["lan"])
    assert document["timing"]["wait_ms"] == 3061
    assert document["timeline"][0]["at_ms"] == 0


spans = st.integers(1, 20_000)


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.tuples(*[spans] * 7), st.integers(100, 100_000), st.sampled_from(["raft", "lease"]))
def test_no_times_that_pass_the_checks_have_a_negative_margin(
    numbers: tuple[int, ...], drift_ppm: int, strategy: str
) -> None:
    ordered = sorted(numbers[:5])
    timing = Timing(*ordered, numbers[5], numbers[6], drift_ppm)  # type: ignore[call-arg]
    if timing_problems(timing, strategy):
        with pytest.raises(SettingsError):
            contract(timing, strategy)
        return
    made = contract(timing, strategy)
    assert isinstance(made, Contract)
    assert made.margin_ms >= 0


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.integers(1, 10**7), st.integers(0, 200_000))
def test_stretched_is_exact_and_rounded_up(span_ms: int, drift_ppm: int) -> None:
    exact = Fraction(span_ms * (PPM + drift_ppm), PPM - drift_ppm)
    assert 0 <= stretched(span_ms, drift_ppm) - exact < 1
