"""`primacy simulate`: its summary, its JSON, its exit codes, and one clear sentence for nonsense."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from primacy.cli import main as entry
from primacy.cli import simulate as command
from primacy.sim.checkers import Violation
from primacy.sim.faults.classes import CLASSES_OF, OUTSIDE_OF
from primacy.sim.trials.batch import run_batch
from primacy.sim.trials.summary import Summary
from primacy.sim.trials.trial import Outcome, Plan

FILES = Path(__file__).parents[1] / "files"
QUICK = ("--nodes", "3", "--minutes", "1", "--jobs", "1")


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Runs `simulate` in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Said:
        code = entry.run(["simulate", *args])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Said(code, out, err)

    return run


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Plan, range, int]]:
    """What would have been run, without running it."""
    calls: list[tuple[Plan, range, int]] = []

    def noted(plan: Plan, seeds: range, jobs: int, **_: Any) -> Summary:
        calls.append((plan, seeds, jobs))
        return run_batch(plan, seeds, 1, run_trial=lambda plan, seed: Outcome(seed))

    monkeypatch.setattr(command, "run_batch", noted)
    return calls


def failing(plan: Plan, seed: int) -> Outcome:
    outcome = Outcome(seed, classes=("stall", "link"))
    if seed == 3 and (plan.faults is None or "link" in plan.faults):
        outcome.violations = [Violation(1500.0, "I1", "a started while b was running")]
    return outcome


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trial of seed 3 with the class `link` breaks a rule."""
    from primacy.sim.trials import shrink

    def run(plan: Plan, seeds: range, jobs: int, **_: Any) -> Summary:
        return run_batch(plan, seeds, 1, run_trial=failing)

    def shrunk(*args: Any, engine: str) -> Any:
        return shrink.shrink(*args, engine=engine, run_trial=failing)

    monkeypatch.setattr(command, "run_batch", run)
    monkeypatch.setattr(command, "shrink", shrunk)
    monkeypatch.setattr(command, "run_or_raised", failing)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_a_summary_for_people(say: Callable[..., Said]) -> None:
    said = say("--seeds", "2", *QUICK)
    assert said.code == 0
    assert said.out.startswith("raft, 3 nodes, profile lan, 2 trials\n")
    for word in ("elections", "failover", "needless", "messages per node", "time with the work running", "overlaps"):
        assert word in said.out
    assert "No violation.  trace " in said.out


def test_a_summary_for_machines(say: Callable[..., Said]) -> None:
    said = say("--seeds", "2", "--first-seed", "5", "--json", *QUICK)
    document = json.loads(said.out)
    assert said.code == 0
    wanted = "strategy nodes seeds simulated_s wall_s elections faults violations failover_ms overlaps trace_hash"
    assert set(wanted.split()) <= document.keys()
    assert document["failover_ms"].keys() == {"p50", "p99", "max"}
    assert (document["seeds"], document["first_seed"], document["simulated_s"]) == (2, 5, 120)
    assert document["violations"] == document["overlaps"] == 0
    assert document["faults"] == sum(document["faults_by_class"].values())


def test_a_long_name_of_the_folder_for_temporary_files_is_no_hindrance(tmp_path: Path) -> None:
    """No socket can be named there, and so no server of workers can listen."""
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    call = [sys.executable, "-m", "primacy", "simulate", "--seeds", "6", *QUICK, "--jobs", "2"]
    done = subprocess.run(call, env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "No violation." in done.stdout


def test_the_same_seed_is_the_same_trial_under_any_hash_seed() -> None:
    args = [sys.executable, "-m", "primacy.cli.main", "simulate", "--seeds", "2", "--json", *QUICK]
    hashes = set()
    for hash_seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(args, capture_output=True, text=True, check=True, env=environment, timeout=60)
        hashes.add(json.loads(done.stdout)["trace_hash"])
    assert len(hashes) == 1


def test_a_violation_is_exit_1_with_the_smallest_trial_and_its_command(say: Callable[..., Said], breaks: None) -> None:
    said = say("--seeds", "5", "--nodes", "3")
    assert said.code == 1
    assert "1 violation in one trial:\n    seed 3, 1.500 s, I1: a started while b was running" in said.out
    assert "primacy simulate --strategy raft --nodes 1 --minutes 1.0 --faults link --seed 3" in said.out
    assert "seed 3 breaks I1" in said.err


def test_a_violation_in_json(say: Callable[..., Said], breaks: None) -> None:
    document = json.loads(say("--seeds", "5", "--json").out)
    assert document["violations"] == document["overlaps"] == 1
    assert document["violation_list"][0]["seed"] == 3
    assert document["shrunk"]["faults"] == ["link"]
    assert document["shrunk"]["command"].endswith("--faults link --seed 3")


def test_no_shrink(say: Callable[..., Said], breaks: None) -> None:
    said = say("--seeds", "5", "--no-shrink")
    assert said.code == 1
    assert "smallest" not in said.out


def test_the_printed_command_is_accepted(say: Callable[..., Said], breaks: None) -> None:
    printed = json.loads(say("--seeds", "5", "--json").out)["shrunk"]["command"]
    assert say(*printed.split()[2:]).code == 1


def test_ctrl_c_gives_what_was_lived_and_130(say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    def told(outcome: Outcome) -> None:
        if outcome.seed == 2:
            raise KeyboardInterrupt

    def run(plan: Plan, seeds: range, jobs: int, **_: Any) -> Summary:
        return run_batch(plan, seeds, 1, run_trial=lambda plan, seed: Outcome(seed), told=told)

    monkeypatch.setattr(command, "run_batch", run)
    said = say("--json")
    assert said.code == 130
    assert (json.loads(said.out)["seeds"], json.loads(said.out)["interrupted"]) == (3, True)
    assert "stopped early" in say().err


def test_a_trace_is_written(say: Callable[..., Said]) -> None:
    said = say("--seed", "4", "--trace", "trial.html", *QUICK)
    assert said.code == 0
    assert "wrote trial.html" in said.out
    assert Path("trial.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    again = say("--seed", "4", "--json", *QUICK)
    assert json.loads(again.out)["trace_hash"] in said.out


def test_the_page_and_the_terminal_say_the_same_hash(say: Callable[..., Said]) -> None:
    said = say("--seed", "4", "--trace", "trial.html", *QUICK).out
    told = re.search(r"trace ([0-9a-f]{16,})", said)
    assert told is not None
    assert f'"{told[1]}"' in Path("trial.html").read_text(encoding="utf-8")
    assert told[1] in say("--seed", "4", *QUICK).out
    assert told[1] != json.loads(say("--first-seed", "4", "--seeds", "2", "--json", *QUICK).out)["trace_hash"]


def test_the_share_of_leaders_within_the_bound_is_told(say: Callable[..., Said]) -> None:
    assert re.search(r"leader within the bound +[0-9.]+ % of 1", say("--seed", "4", *QUICK).out)
    assert 0 <= json.loads(say("--seed", "4", "--json", *QUICK).out)["in_time_share"] <= 1


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_defaults(say: Callable[..., Said], tried: list[tuple[Plan, range, int]]) -> None:
    assert say().code == 0
    plan, seeds, jobs = tried[0]
    assert (plan, seeds) == (Plan(), range(100))
    assert jobs >= 1


def test_a_list_of_faults_is_taken_exactly(say: Callable[..., Said], tried: list[tuple[Plan, range, int]]) -> None:
    say("--faults", "link, partition ,link", "--seed", "3")
    say("--faults", "none")
    say("--faults", "all")
    assert [(plan.faults, plan.draw) for plan, _, _ in tried] == [
        (("partition", "link"), False),
        ((), False),
        (None, True),
    ]


def test_a_kind_of_store_is_taken_exactly_and_told(
    say: Callable[..., Said], tried: list[tuple[Plan, range, int]]
) -> None:
    say("--strategy", "lease", "--engine", "redis")
    say("--strategy", "lease")
    assert [plan.engine for plan, _, _ in tried] == ["redis", ""]


def test_the_summary_says_on_which_stores_the_trials_were(say: Callable[..., Said]) -> None:
    lease = ("--strategy", "lease", "--profile", "lab", *QUICK)
    told = json.loads(say("--engine", "kubernetes", "--seed", "4", "--json", *lease).out)
    assert told["engines"] == {"kubernetes": 1}
    assert re.search(r"trials on each kind of store +1 redis", say("--engine", "redis", "--seed", "4", *lease).out)
    assert json.loads(say("--seed", "4", "--json", *QUICK).out)["engines"] == {}


def test_a_file_gives_strategy_nodes_and_times(
    say: Callable[..., Said], tried: list[tuple[Plan, range, int]], tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    nodes = ", ".join(f'{name}: {{addr: "10.0.0.1:{port}"}}' for name, port in (("x", 1), ("y", 2), ("z", 3)))
    file.write_text(
        f"cluster: {{manager: {{type: static, nodes: {{{nodes}}}}}}}\n"
        "election: {strategy: raft, profile: fast, timing: {spread_ms: 333}}\n"
    )
    said = say("--config", str(file))
    plan = tried[0][0]
    assert (plan.strategy, [m.id for m in plan.members], plan.profile) == ("raft", ["x", "y", "z"], "fast")
    assert plan.timing is not None
    assert plan.timing.spread_ms == 333  # type: ignore[union-attr]
    assert said.out.startswith(f"{file}: raft, 3 nodes, profile fast")


def test_a_file_in_the_working_folder_counts_unless_contradicted(
    say: Callable[..., Said], tried: list[tuple[Plan, range, int]]
) -> None:
    Path("primacy.yaml").write_text("election: {profile: wan}\n")
    say()
    say("--nodes", "3")
    assert [plan.profile for plan, _, _ in tried] == ["wan", "lan"]


def test_faults_help(say: Callable[..., Said]) -> None:
    said = say("--faults", "help", "--strategy", "bully")
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()[2:]] == list(CLASSES_OF["bully"])
    assert all(len(line.split()) > 2 for line in said.out.splitlines()[2:])


@pytest.mark.parametrize("strategy", sorted(OUTSIDE_OF))
def test_faults_help_says_once_what_is_beyond_the_promise(say: Callable[..., Said], strategy: str) -> None:
    said = say("--faults", "help", "--strategy", strategy)
    before, _, outside = said.out.partition("Beyond the promise")
    assert [line.split()[0] for line in outside.splitlines()[2:]] == list(OUTSIDE_OF[strategy])
    assert not any(f"  {name} " in before for name in OUTSIDE_OF[strategy])


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--strategy", "zz"), "--strategy zz: there is no such strategy; there are raft, lease"),
        (("--strategy", "raftt"), "--strategy raftt: there is no such strategy; is raft meant? There are raft, lease"),
        (("--profile", "lam"), "--profile lam: raft has no such profile; is la"),
        (("--profile", "ghoti"), "--profile ghoti: raft has no such profile;"),
        (("--strategy", "bully", "--profile", "executor"), "--profile executor: bully has no such profile;"),
        (("--faults", "link,twin"), "--faults twin: this class is called duplicate now"),
        (("--faults", "partiton"), "--faults partiton: there is no such class; is partition meant? There are "),
        (("--faults", "store-away"), "--faults store-away: does not befall raft; "),
        (("--faults", "stall,,link"), "--faults 'stall,,link': there is no such class"),
        (("--faults", ""), "--faults '': there is no such class"),
        (("--nodes", "0"), "'--nodes': 0 is not in the range 1<=x<=50"),
        (("--nodes", "five"), "'--nodes': 'five' is not a whole number"),
        (("--minutes", "0"), "'--minutes': 0.0 is not in the range"),
        (("--minutes", "nan"), "'--minutes': nan is not in the range 1<=x<=1440"),
        (("--drift", "3"), "'--drift': 3.0 is not in the range"),
        (("--drift", "nan"), "'--drift': nan is not in the range"),
        (("--seeds", "0"), "'--seeds': 0 is not in the range"),
        (("--seed", "-1"), "'--seed': -1 is not in the range"),
        (("--seed", "1", "--seeds", "2"), "--seeds 2 and --seed 1 exclude each other"),
        (("--seed", "1", "--first-seed", "2"), "--first-seed 2 and --seed 1 exclude each other"),
        (("--jobs", "0"), "'--jobs': 0 is not in the range"),
        (("--trace", "x.html"), "--trace x.html is of one trial: say which one with --seed K"),
        (
            ("--show",),
            "--show is gone: write one trial as a page with --seed K --trace FILE.html, or watch a real cluster",
        ),
        (("--show", "--seconds", "0", "--strategy", "bully"), "is gone: write one trial as a page with --seed K"),
        (("--seconds", "5"), "--seconds is gone: write one trial as a page"),
        (("--nonsense",), "No such option '--nonsense'. (Did you mean one of: '--nodes', '--seed'?)"),
        (("--config", "no.yaml"), "no.yaml"),
        (("--config", "no.yaml", "--nodes", "3"), "--nodes 3 and --config no.yaml exclude each other"),
        (("--strategy", "lease", "--engine", "redi"), "there is no such store; is redis meant?"),
        (("--engine", "redis"), "raft has no store"),
        (("--strategy", "cache", "--engine", "redis"), "--engine is nothing that --strategy cache knows"),
    ],
)
def test_nonsense_gets_one_sentence(say: Callable[..., Said], args: tuple[str, ...], sentence: str) -> None:
    said = say(*args)
    assert said.code == 2
    assert sentence in said.err
    assert said.out == ""


def test_a_trace_that_cannot_be_written(say: Callable[..., Said]) -> None:
    said = say("--seed", "1", "--trace", "no/such/folder.html")
    assert said.code == 4
    assert "--trace no/such/folder.html: cannot be written: No such file or directory" in said.err
