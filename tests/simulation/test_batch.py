"""Many lives: the same summary however they were lived, workers that leave nothing behind, failing lives made small."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from primacy.election.model import Member
from primacy.errors import CannotHere
from primacy.sim.checkers import Violation
from primacy.sim.trials import batch as batches
from primacy.sim.trials.batch import CHUNK_MAX, run_batch, trial_outcomes
from primacy.sim.trials.bounds import Bounds
from primacy.sim.trials.shrink import command, shrink
from primacy.sim.trials.summary import SHOWN_MAX, Summary
from primacy.sim.trials.trial import Outcome, Plan, Trial
from primacy.sim.trials.workers import Workers

pytestmark = pytest.mark.real_time

SHORT = Plan(nodes=3, minutes=1.0)


def fake(plan: Plan, seed: int) -> Outcome:
    """A trial that takes no time: it breaks a rule if `partition` and two more nodes are there, in every third seed."""
    classes = ("stall", "partition", "link") if plan.faults is None else plan.faults
    outcome = Outcome(seed, classes, simulated_ms=1000.0, sent=40)
    outcome.gaps_ms = [float(seed)]
    outcome.trace_hash = f"{seed:016x}"
    if "partition" in outcome.classes and plan.nodes >= 3 and seed % 3 == 0:
        outcome.violations = [Violation(5.0, "I1", "two at once"), Violation(6.0, "P1", "nobody")]
    return outcome


def slow(plan: Plan, seed: int) -> Outcome:
    """A trial that lasts longer than anybody waits."""
    if seed >= CHUNK_MAX:
        time.sleep(600)
    return Outcome(seed)


def deadly(plan: Plan, seed: int) -> Outcome:
    """A trial whose worker is killed."""
    os._exit(9)


STUCK, HOGS, KILLED, RAISES, DEAD = 5, 9, 14, 17, 23
"""Seeds of trials that do not end as they should."""


def troubled(plan: Plan, seed: int) -> Outcome:
    """Most trials are well; one never ends, one hoards, one is killed, one raises, and one hangs in the kernel."""
    if seed == STUCK:
        while True:
            pass
    if seed == HOGS:
        hoard = []
        while True:
            hoard.append(bytes(1 << 20))
    if seed == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == RAISES:
        raise ValueError("a defect")
    if seed == DEAD:
        time.sleep(600)
    return fake(plan, seed)


SMALL = Bounds(memory=64 << 20, cpu_s=0.2, wall_s=10.0)


# --- one summary ------------------------------------------------------------------------------------------------------


def test_the_number_of_jobs_does_not_show() -> None:
    alone = run_batch(SHORT, range(10, 19), 1).as_dict()
    together = run_batch(SHORT, range(10, 19), 2).as_dict()
    assert alone["seeds"] == 9
    for figures in (alone, together):
        figures.pop("wall_s")
    assert alone == together


def test_another_seed_is_another_trace() -> None:
    assert run_batch(SHORT, range(2)).trace_hash != run_batch(SHORT, range(1, 3)).trace_hash


def test_outcomes_come_in_seed_order() -> None:
    assert [o.seed for o in trial_outcomes(SHORT, range(7, 60), 2, fake)] == list(range(7, 60))


def test_waits_are_folded_exactly() -> None:
    summary = run_batch(SHORT, range(1, 101), run_trial=fake)
    assert (summary.wait_ms(0.5), summary.wait_ms(0.99), summary.wait_ms(1.0)) == (50, 99, 100)
    assert Summary(SHORT).wait_ms(0.5) is None


def test_figures_are_those_of_the_trials() -> None:
    summary = run_batch(SHORT, range(1, 3), run_trial=fake)
    assert summary.messages_per_node_s == pytest.approx(80 / 2 / 3)
    assert summary.violations == 0
    assert Summary(SHORT).messages_per_node_s == Summary(SHORT).working_share == 0


def test_the_share_of_leaders_in_time_is_that_of_the_trials_that_were_judged() -> None:
    summary = Summary(SHORT)
    for seed, within in enumerate((True, True, None, False)):
        summary.add(Outcome(seed, within_bound=within))
    assert summary.as_dict()["in_time_share"] == pytest.approx(2 / 3, abs=1e-5)
    assert Summary(SHORT).in_time_share is None


def test_violations_are_counted_all_and_kept_in_part() -> None:
    summary = run_batch(SHORT, range(600), run_trial=fake)
    assert (summary.violations, summary.overlaps) == (400, 200)
    assert len(summary.found) == len(summary.failing) == SHOWN_MAX
    assert summary.found[0] == (0, 5.0, "I1", "two at once")


def test_a_trial_that_raises_is_a_violation_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Trial):
        def run(self) -> Outcome:
            self.world.run(250)
            raise AssertionError("a bug")

    monkeypatch.setattr(batches, "trial_of", Broken)
    summary = run_batch(SHORT, range(3, 4))
    assert summary.found[0][:3] == (3, 250, "raised")
    assert "AssertionError in test_batch.py" in summary.found[0].sentence


# --- workers ----------------------------------------------------------------------------------------------------------


def test_an_interrupt_ends_the_workers_and_gives_what_was_lived() -> None:
    def told(outcome: Outcome) -> None:
        raise KeyboardInterrupt

    summary = run_batch(SHORT, range(200), 2, run_trial=slow, told=told)
    assert (summary.interrupted, summary.seeds) == (True, 1)
    assert not multiprocessing.active_children()


def test_an_interrupt_of_a_single_job() -> None:
    def told(outcome: Outcome) -> None:
        if outcome.seed == 4:
            raise KeyboardInterrupt

    summary = run_batch(SHORT, range(20), run_trial=fake, told=told)
    assert (summary.interrupted, summary.seeds) == (True, 5)


def test_workers_that_are_all_killed_are_one_clear_sentence() -> None:
    with pytest.raises(CannotHere, match=r"5 workers in a row were killed from outside.*fewer than 2 jobs"):
        run_batch(SHORT, range(20), 2, run_trial=deadly)


@pytest.mark.later
def test_E2_a_batch_names_the_seed_of_a_lost_trial_and_goes_on() -> None:
    """Stuck, out of memory, killed, raised, hung: each is a violation with its seed, and no other seed is missing."""
    plan = replace(SHORT, nodes=2)  # the others violate nothing
    seen: list[int] = []
    summary = run_batch(plan, range(40), 2, run_trial=troubled, told=lambda o: seen.append(o.seed), bounds=SMALL)
    assert seen == list(range(40))
    assert [(found.seed, found.rule) for found in summary.found] == [
        (STUCK, "E2"),
        (HOGS, "E2"),
        (KILLED, "lost"),
        (RAISES, "raised"),
        (DEAD, "lost"),
    ]
    sentences = {found.seed: found.sentence for found in summary.found}
    assert "0.2 s of the processor" in sentences[STUCK]
    assert "64 MB of memory" in sentences[HOGS]
    assert "SIGKILL" in sentences[KILLED]
    assert "a defect" in sentences[RAISES]
    assert "did not end within 10 s" in sentences[DEAD]
    assert not multiprocessing.active_children()


class ComesLate:
    """Work that takes four seconds to arrive in a worker, as its imports may on a busy machine."""

    def __reduce__(self) -> tuple[Callable[[], Callable[[int], int]], tuple[()]]:
        return comes_late, ()


def comes_late() -> Callable[[int], int]:
    time.sleep(4)
    return abs


@pytest.mark.later
def test_a_worker_that_is_slow_to_start_loses_no_trial() -> None:
    def lost(seed: int, why: str) -> int:
        raise AssertionError(f"seed {seed}: {why}")

    assert list(Workers(1, ComesLate(), lost, 3.0).outcomes(iter([range(5)]))) == [0, 1, 2, 3, 4]  # type: ignore[arg-type]


def test_E2_one_job_outlives_what_is_stuck_or_hoards() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    summary = run_batch(replace(SHORT, nodes=2), range(12), run_trial=troubled, bounds=SMALL)
    assert [(found.seed, found.rule) for found in summary.found] == [(STUCK, "E2"), (HOGS, "E2")]
    assert summary.seeds == 12
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert signal.getsignal(signal.SIGVTALRM) == signal.SIG_DFL


def test_E2_a_users_own_except_does_not_keep_a_trial_that_is_out_of_time() -> None:
    def stubborn(plan: Plan, seed: int) -> Outcome:
        while True:
            with suppress(Exception):
                while True:
                    pass

    assert run_batch(SHORT, range(1), run_trial=stubborn, bounds=SMALL).found[0].rule == "E2"


def test_workers_end_when_their_parent_is_killed() -> None:
    program = (
        "import multiprocessing\n"
        "from tests.simulation.test_batch import SHORT, run_batch, slow\n"
        "told = lambda o: print(*(w.pid for w in multiprocessing.active_children()), flush=True)\n"
        "if __name__ == '__main__': run_batch(SHORT, range(200), 2, run_trial=slow, told=told)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(workers) == 2
    deadline = time.monotonic() + 60
    while any(_alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(_alive(pid) for pid in workers)


def _alive(pid: int) -> bool:
    """A zombie that nobody has reaped yet is dead."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- shrinking --------------------------------------------------------------------------------------------------------


def test_a_failing_trial_is_shrunk_to_what_matters() -> None:
    shrunk = shrink(Plan(nodes=7), 3, "I1", ("stall", "partition", "link"), run_trial=fake)
    assert shrunk is not None
    assert (shrunk.plan.faults, shrunk.plan.nodes, shrunk.plan.draw) == (("partition",), 3, False)
    assert shrunk.violation.rule == "I1"
    assert fake(shrunk.plan, shrunk.seed).overlaps == 1


def test_only_the_same_rule_counts() -> None:
    assert shrink(Plan(), 3, "I2", ("partition",), run_trial=fake) is None


def test_a_trial_that_does_not_fail_again_is_not_shrunk() -> None:
    assert shrink(Plan(), 4, "I1", ("partition",), run_trial=fake) is None


def test_a_trial_that_needs_its_draw_is_told_as_it_is() -> None:
    def drawn(plan: Plan, seed: int) -> Outcome:
        return fake(plan, seed) if plan.draw else Outcome(seed)

    shrunk = shrink(Plan(), 3, "I1", ("partition",), run_trial=drawn)
    assert shrunk is not None
    assert (shrunk.plan, shrunk.seed) == (Plan(), 3)


def test_shrinking_is_bounded() -> None:
    shrunk = shrink(Plan(nodes=7), 3, "I1", ("stall", "partition", "link"), run_trial=fake, trials_max=5)
    assert shrunk is not None
    assert shrunk.trials == 5


def test_nodes_of_a_file_are_not_taken_away() -> None:
    plan = Plan(nodes=5, members=tuple(Member(name) for name in "abcde"))
    shrunk = shrink(plan, 3, "I1", ("partition",), run_trial=fake)
    assert shrunk is not None
    assert shrunk.plan.members == plan.members


def test_the_command_says_everything_that_is_not_default() -> None:
    assert command(Plan(), 7) == "primacy simulate --strategy raft --nodes 5 --seed 7"
    plan = replace(Plan("lease", 3, "lab", 1.0, ("stall", "child"), drift=0.03), draw=False)
    expected = "--strategy lease --nodes 3 --profile lab --minutes 1.0 --drift 0.03 --faults stall,child --seed 7"
    assert command(plan, 7) == f"primacy simulate {expected}"
    assert command(replace(plan, faults=()), 7, "my file.yaml").startswith("primacy simulate --config 'my file.yaml'")
    assert "--faults none" in command(replace(plan, faults=()), 7)
