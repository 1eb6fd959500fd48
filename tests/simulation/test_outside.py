"""Where the promise ends (README, "Outside of that promise"): trials whose violation is expected, and found.

Each class is played twice on the same seeds: as it is, and with the same blows but without what no rule can help
against. What is found is then the work of that alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from primacy.sim.checkers import Violation, WorkChecker
from primacy.sim.facts import MEMORY_LOST, Fact, Kind
from primacy.sim.faults.acts import Acts
from primacy.sim.faults.classes import CLASSES, OUTSIDE, OUTSIDE_OF, classes_of, named_of
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.replay import record, replayed
from primacy.sim.trials.trial import Outcome, Plan
from primacy.sim.world.clock import Clock

SEEDS = range({"quick": 4, "test": 8, "proof": 100}[os.environ.get("PRIMACY_SIZE", "quick")])
BOTH = ("raft", "lease")

Change = Callable[[Acts], None]


def _played(strategy: str, name: str, seed: int, change: Change | None = None) -> Outcome:
    trial = trial_of(Plan(strategy, 3 if seed % 2 else 5, faults=(name,), draw=False), seed)
    if change is not None:
        change(trial.faults.acts)
    return trial.run()


def _rules(outcome: Outcome) -> set[str]:
    return {violation.rule for violation in outcome.violations}


def _clock_goes_on(acts: Acts) -> None:
    """Agent and guard are stopped at the same moments; the kernel's timer and the clock go on (F07)."""
    acts.freeze_machine = lambda name, clock_too: acts.stop(name, frozen=True)  # type: ignore[method-assign]


def _can_be_killed(acts: Acts) -> None:
    acts.unkillable = lambda name, yes: None  # type: ignore[method-assign]


def _nothing_escapes(acts: Acts) -> None:
    acts.escape = lambda name, yes: None  # type: ignore[method-assign]


def _disk_stays(acts: Acts) -> None:
    """The machine loses its power at the same moments, and keeps its ballot."""
    acts.put_back = lambda name: acts.crash(name, power=True)  # type: ignore[method-assign]


def _ballot_deleted(acts: Acts) -> None:
    """What the manual says: who restores a disk deletes the ballot, once; then its memory is lost (M2)."""
    deleted: list[str] = []

    def put_back(name: str) -> None:
        acts.crash(name, power=True)
        if not deleted:
            acts.lose(name)
            acts.world.emit(Kind.FAULT, name, 0, MEMORY_LOST)
        deleted.append(name)

    acts.put_back = put_back  # type: ignore[method-assign]


PROCESSES: dict[str, tuple[Change, str]] = {
    "frozen-clock": (_clock_goes_on, " went on with run "),
    "standstill": (_clock_goes_on, " went on with run "),
    "unkillable": (_can_be_killed, " started run "),
    "escaped": (_nothing_escapes, " started run "),
}
"""Without what nobody can help against; and how the second one comes to be at work."""


@pytest.mark.parametrize("strategy", BOTH)
@pytest.mark.parametrize("name", PROCESSES)
def test_F10_F11_F29_F30_machines_and_processes_that_no_rule_can_stop_make_two_at_work(
    strategy: str, name: str
) -> None:
    """In nearly every trial; without the one thing that no rule can help against, in none."""
    without, how = PROCESSES[name]
    played = [_played(strategy, name, seed) for seed in SEEDS]
    assert sum(1 for outcome in played if outcome.overlaps) > 0.7 * len(SEEDS)
    assert all(_rules(outcome) <= {"I1"} for outcome in played), "nothing but the overlap"
    assert sum(how in str(outcome.violations) for outcome in played) > 0.7 * len(SEEDS)
    for seed in SEEDS:
        outcome = _played(strategy, name, seed, without)
        assert outcome.faults[name], "it struck"
        assert not outcome.violations, seed


def test_F39_a_ballot_that_is_put_back_makes_two_leaders_of_one_term() -> None:
    """A vote that counted is given again. A ballot that is deleted instead is safe, and so is a mere loss of power."""
    played = [_rules(_played("raft", "old-ballot", seed)) for seed in range(12)]
    assert sum(1 for rules in played if rules >= {"I2", "I3", "I4"}) > 4
    assert any("I1" in rules for rules in played)
    assert all(rules <= {"I1", "I2", "I3", "I4"} for rules in played)
    for change in (_disk_stays, _ballot_deleted):
        for seed in SEEDS:
            assert not _played("raft", "old-ballot", seed, change).violations, (change, seed)


def test_what_is_outside_is_drawn_by_no_trial_and_can_be_asked_for() -> None:
    assert set(OUTSIDE) == {name for names in OUTSIDE_OF.values() for name in names} <= set(CLASSES)
    for strategy in ("raft", "lease", "bully", "ring"):
        assert not set(OUTSIDE) & set(classes_of(strategy))
        assert set(OUTSIDE) & set(named_of(strategy)) == set(OUTSIDE_OF.get(strategy, ()))
    for seed in range(30):
        trial = trial_of(Plan("raft", 3), seed)
        assert not set(trial._draw_classes()) & set(OUTSIDE)


@pytest.mark.parametrize("name", OUTSIDE_OF["raft"])
def test_what_is_outside_can_be_written_down_and_done_again(name: str) -> None:
    plan = Plan("raft", 3, faults=(name,), draw=False)
    seed = next(seed for seed in range(12) if trial_of(plan, seed).run().violations)
    told, again = trial_of(plan, seed).run(), replayed(record(plan, seed))
    assert [(v.at_ms, v.rule) for v in again.violations] == [(v.at_ms, v.rule) for v in told.violations]


@pytest.mark.parametrize("strategy", BOTH)
def test_what_is_outside_goes_together_with_every_other_fault(strategy: str) -> None:
    """It ends, and its undoing fits: a frozen machine may be switched off, doubled, or given another rate."""
    members = ("members", "force") if strategy == "raft" else ()
    plan = Plan(strategy, 3, "lab", 1.0, (*classes_of(strategy), *members, *OUTSIDE_OF[strategy]), draw=False)
    for seed in SEEDS:
        trial = trial_of(plan, seed)
        trial.run()
        for node in trial.world.nodes.values():
            assert (node.frozen, node.unkillable, node.escaping, node.late) == (False, False, None, [])
            assert node.clock.rate > 0.9


# --- the parts --------------------------------------------------------------------------------------------------------


def _judged(*facts: Fact) -> list[str]:
    found: list[Violation] = []
    checker = WorkChecker(found.append)
    for fact in facts:
        checker(fact)
    return [violation.rule for violation in found]


def _work(kind: Kind, at_ms: float, node: str, token: int, run: int = 1) -> Fact:
    return Fact(at_ms, kind, node, token, str(token), run, "100")


def test_work_of_a_frozen_machine_overlaps_from_the_moment_at_which_it_goes_on() -> None:
    a, b = _work(Kind.WORK_STARTED, 1, "a", 1), _work(Kind.WORK_STARTED, 3, "b", 2)
    frozen, thawed = Fact(2, Kind.FROZEN, "a"), Fact(5, Kind.THAWED, "a")
    assert _judged(a, frozen, b) == []
    assert _judged(a, frozen, b, thawed) == ["I1"]
    assert _judged(a, frozen, b, _work(Kind.WORK_ENDED, 4, "b", 2), thawed) == []
    assert _judged(a, frozen, _work(Kind.WORK_ENDED, 2.5, "a", 1), b, thawed) == []
    assert _judged(a, frozen, thawed, b) == ["I1"]


def test_an_earlier_run_of_the_same_node_is_not_forgotten_when_the_later_one_begins_or_ends() -> None:
    both = (_work(Kind.WORK_STARTED, 1, "a", 1), _work(Kind.WORK_STARTED, 2, "a", 2))
    other = _work(Kind.WORK_STARTED, 4, "b", 3)
    assert _judged(*both, _work(Kind.WORK_ENDED, 3, "a", 2), other) == ["I1", "I1"]
    assert _judged(*both, _work(Kind.WORK_ENDED, 3, "a", 1), other) == ["I1", "I1"]
    ended = (_work(Kind.WORK_ENDED, 3, "a", 1), _work(Kind.WORK_ENDED, 3.5, "a", 2))
    assert _judged(*both, *ended, other) == ["I1"]


def test_a_stopped_clock_shows_the_same_until_it_goes_on_and_a_new_rate_counts_from_then() -> None:
    clock = Clock(1_000.0, 0.99)
    clock.stop(100)
    assert (clock.local_ms(100), clock.local_ms(5_000), clock.true_ms(2_000)) == (1_099, 1_099, float("inf"))
    clock.stop(200)
    clock.set_rate(300, 1.01)
    assert (clock.local_ms(400), clock.running_rate) == (1_099, 1.01)
    clock.go_on(1_000)
    assert (clock.local_ms(1_000), clock.local_ms(1_100), clock.rate) == (1_099, 1_200, 1.01)
