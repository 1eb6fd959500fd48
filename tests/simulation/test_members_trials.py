"""Clusters whose members change: no violation in trials, in walks without clocks, or in any order of a few events."""

from __future__ import annotations

import os

import pytest

from primacy.election.model import Ballot, ListRecord, Member, MembersId, Register
from primacy.election.raft.recovery import FLOOR
from primacy.election.raft.strategy import RaftStrategy
from primacy.sim.checkers import RegisterChecker, Violation
from primacy.sim.facts import Fact, Kind
from primacy.sim.model.exhaustive import SearchBounds, explore
from primacy.sim.model.settings import RegisterSetting
from primacy.sim.model.untimed import UntimedBounds, UntimedSearch
from primacy.sim.model.walks import Walk, walk_many
from primacy.sim.trials.batch import run_or_raised
from primacy.sim.trials.raft import RaftTrial, registered, trial_of
from primacy.sim.trials.shrink import command
from primacy.sim.trials.trial import Plan, Trial
from primacy.sim.world.order import tell_register
from tests.support.mutants_members import SAFETY, SEARCHED, Mutant, recorded
from tests.support.mutants_raft import Eager

SIZE = os.environ.get("PRIMACY_SIZE", "quick")
QUICK = SIZE == "quick"
CHUNK = 10
SCOPES = {"quick": 1, "test": 2, "proof": 4}
TRIALS: tuple[tuple[Plan, int], ...] = (
    (Plan("raft", 3, "lab", 1.0, members_change=True), 80),
    (Plan("raft", 5, "lab", 1.0, members_change=True), 40),
    (Plan("raft", 2, "lab", 1.0, members_change=True), 30),
    (Plan("raft", 1, "lab", 1.0, members_change=True), 20),
    (Plan("raft", 4, "lab", 1.0, members_change=True), 20),
    (Plan("raft", 3, "lan", 2.0, members_change=True), 20),
)
FORCED = Plan("raft", 3, "lab", 1.0, ("members", "force"), draw=False, members_change=True)
QUIET = Plan("raft", 3, "lab", 1.0, ("members",), draw=False, members_change=True)


def _chunks() -> list[tuple[Plan, range]]:
    chunks = []
    for plan, count in TRIALS:
        trials = 2 if QUICK else count
        chunks += [(plan, range(first, min(first + CHUNK, trials))) for first in range(0, trials, CHUNK)]
    return chunks


def _name(given: object) -> str:
    if isinstance(given, Plan):
        return f"{given.nodes}-{given.profile}"
    return f"{given.start}-{given.stop - 1}" if isinstance(given, range) else str(given)


def _broken(plan: Plan, seeds: range) -> list[str]:
    outcomes = [run_or_raised(plan, seed) for seed in seeds]
    return [f"seed {outcome.seed}: {violation}" for outcome in outcomes for violation in outcome.violations[:1]]


# --- trials -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("plan", "seeds"), _chunks(), ids=_name)
def test_no_trial_with_changing_members_breaks_a_promise(plan: Plan, seeds: range) -> None:
    broken = _broken(plan, seeds)
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("first", range(0, 2 if QUICK else 30, CHUNK))
def test_where_nothing_else_goes_wrong_the_work_is_interrupted_by_ordered_handovers_only(first: int) -> None:
    broken = _broken(QUIET, range(first, first + (2 if QUICK else CHUNK)))
    assert not broken, "\n".join(broken)


@pytest.mark.later
@pytest.mark.parametrize("seed", range(15))
def test_the_base_without_promise_is_still_safe_with_changing_members(seed: int) -> None:
    trial = RaftTrial(TRIALS[0][0], seed, registered(Eager))
    trial.world.conditions.slow_kill = 1.0
    assert not [violation for violation in trial.run().violations if violation.rule in SAFETY]


@pytest.mark.later
def test_what_is_rare_is_not_left_to_chance() -> None:
    """One that never comes would mean that the trials show less than they seem to."""
    missing = {
        *("change of members done", "change of members taken back", "change of members refused", "node admitted"),
        *("node outside of the members", "lost memory healed", "change that waited in vain was cancelled"),
    }
    for seed in (1_037, *range(1_000, 1_200)):  # the first shows what is rarest
        missing -= run_or_raised(TRIALS[0][0], seed).rare.keys()
        if not missing:
            break
    assert not missing


def test_a_seed_is_one_history_and_its_command_says_so() -> None:
    first, second = (trial_of(QUIET, 3).run() for _ in range(2))
    assert first.trace_hash == second.trace_hash
    assert first.rare["registers written"] > 10
    assert "--members" in command(QUIET, 3)
    assert "--faults members" in command(QUIET, 3)


def test_others_go_on_without_those_that_are_gone_for_good() -> None:
    """What the operator vouches for is true: they never run again (R14)."""
    trial = RaftTrial(FORCED, 3)
    outcome = trial.run()
    gone = trial.faults.acts.gone
    assert not outcome.violations
    assert gone
    assert not any(trial.world.nodes[name].up or trial.world.nodes[name].disk.ballot for name in gone)
    assert trial.newest().id.term >= FLOOR, "it was forced"
    assert not any(trial.newest().named(name) for name in gone)
    assert trial.liveness.leaders()


def test_some_trials_are_forced() -> None:
    plan = TRIALS[0][0]
    forced = [seed for seed in range(40) if "force" in RaftTrial(plan, seed)._draw_classes()]
    assert 2 < len(forced) < 20


def test_all_nodes_of_raft_keep_a_register_and_in_a_third_of_the_trials_operators_change_it() -> None:
    """As every agent does; nobody tests a configuration in which no agent is."""
    plan = Plan("raft", 3, "lab", 1.0)
    trials = [RaftTrial(plan, seed) for seed in range(60)]
    changed = [trial for trial in trials if "members" in trial._draw_classes()]
    assert 10 < len(changed) < 32
    trial = trials[3]
    trial.world.run(10_000)
    machines = [trial.world.nodes[name].machine for name in trial.names]
    assert all(isinstance(machine, RaftStrategy) and machine.state.register for machine in machines)
    with pytest.raises(AssertionError):
        Trial(plan, 3)


# --- the checkers -----------------------------------------------------------------------------------------------------


def test_a_register_that_goes_back_and_an_id_with_two_memberships_are_seen() -> None:
    found: list[Violation] = []
    checker = RegisterChecker(found.append)
    checker(Fact(1.0, Kind.REGISTER, "a", 2, "a, b | ", 1, "1.2"))
    checker(Fact(2.0, Kind.REGISTER, "b", 2, "a, b | ", 1, "1.2"))
    assert not found
    checker(Fact(3.0, Kind.REGISTER, "b", 2, "a, c | ", 1, "1.2"))
    checker(Fact(4.0, Kind.REGISTER, "a", 1, "a | ", 0, "0.1 after 1.2"))
    assert [violation.rule for violation in found] == ["I9", "I9"]
    assert checker.written == 2


def test_a_register_that_is_exchanged_for_an_older_one_on_a_disk_is_told() -> None:
    trial = trial_of(QUIET, 3)
    told: list[Fact] = []
    trial.world.listeners.append(told.append)
    record = ListRecord("times-1", ("n1",), confirmed=True)
    newer, older = (Register(MembersId(term, 2), (Member("n1"),)) for term in (5, 4))
    before, after = (Ballot(1, 5, "", 1, 1, 1, (record,), register=register) for register in (newer, older))
    tell_register(trial.world, trial.world.nodes["n1"], before, after)
    tell_register(trial.world, trial.world.nodes["n1"], before._replace(void=True), after)
    assert [fact.subject for fact in told] == ["4.2 after 5.2", "4.2"]


# --- without clocks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "voters"), [(4, 3), (4, 4), (5, 5), (3, 1), (3, 2)])
@pytest.mark.parametrize("pre_vote", [False, True])
def test_no_walk_without_clocks_breaks_a_promise(nodes: int, voters: int, pre_vote: bool) -> None:
    setting = RegisterSetting(voters, nodes=nodes, clocks="none", pre_vote=pre_vote)
    found = walk_many(setting, range(20 if QUICK else 100))
    assert not found.wrong, "\n".join(Walk(setting, found.seed, told=True).go().lines)
    assert found.seen["elected"] > found.walks
    assert found.seen["members-done"] > 0


UNTIMED = (
    (RegisterSetting(1, nodes=2, clocks="none", pre_vote=False), UntimedBounds(300_000, wakes=3, terms=1, losses=1)),
    (RegisterSetting(1, nodes=2, clocks="none", pre_vote=False), UntimedBounds(300_000, wakes=4, terms=1)),
    (RegisterSetting(2, nodes=2, clocks="none", pre_vote=False), UntimedBounds(300_000, wakes=4, terms=1)),
    (RegisterSetting(2, nodes=2, clocks="none", pre_vote=False), UntimedBounds(300_000, wakes=3, changes=2)),
)
"""Small scopes that are known whole. The last two take gigabytes, and are for the proof."""


@pytest.mark.parametrize(("setting", "bounds"), UNTIMED[: SCOPES[SIZE]], ids=range(SCOPES[SIZE]))
def test_no_order_of_events_without_clocks_breaks_a_promise(setting: RegisterSetting, bounds: UntimedBounds) -> None:
    found = UntimedSearch(setting, bounds).go()
    assert not found.wrong, "\n".join(found.history_lines)
    assert found.complete, found


# --- the bounded model ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("voters", [1, 2, 3])
def test_no_order_of_events_with_changing_members_breaks_a_promise(voters: int) -> None:
    found = explore(RegisterSetting(voters), SearchBounds(4_000 if QUICK else 12_000))
    assert not found.wrong, "\n".join(found.history_lines)
    assert found.finished >= 0


# --- planted defects --------------------------------------------------------------------------------------------------


@pytest.mark.later
@pytest.mark.parametrize("mutant", SEARCHED, ids=lambda mutant: mutant.key)
def test_a_planted_defect_of_the_register_is_caught(mutant: Mutant) -> None:
    seeds = recorded()[mutant.key]
    assert seeds, "no seed is recorded: python -m tests.support.mutants_members"
    assert any(mutant.is_caught(seed) for seed in seeds), (
        f"seeds {seeds} no longer catch it; if the draws changed: python -m tests.support.mutants_members"
    )


def test_the_recorded_seeds_are_those_of_the_table() -> None:
    assert list(recorded()) == [mutant.key for mutant in SEARCHED]
