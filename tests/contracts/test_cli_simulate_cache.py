"""`primacy simulate --strategy cache`, as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from primacy.cli import main as entry
from primacy.cli.simulate_text import EXIT_VIOLATION
from primacy.sim.cache import batch as cache_batch
from primacy.sim.cache.trial import CachePlan, CacheTrial
from tests.support.cache_bad_machine import EverybodyFetches, simple


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Runs it in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str, strategy: str = "cache") -> Said:
        code = entry.run(["simulate", "--strategy", strategy, *args])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Said(code, out, err)

    return run


def test_a_summary_for_people(say: Callable[..., Said]) -> None:
    said = say("--seeds", "2", "--jobs", "1")
    assert said.code == 0, said.err
    assert "cache, 3 and 5 peers, storage of every kind, 2 trials" in said.out
    assert "No violation" in said.out


def test_a_summary_for_machines_says_the_same_hash_with_any_number_of_jobs(say: Callable[..., Said]) -> None:
    one, two = (json.loads(say("--seeds", "3", "--jobs", jobs, "--json").out) for jobs in ("1", "2"))
    assert one["strategy"] == "cache"
    assert one["violations"] == 0
    assert one["calls"] > 0
    assert one["trace_hash"] == two["trace_hash"]


def test_a_seed_is_the_trial_that_the_batch_runs(say: Callable[..., Said]) -> None:
    told = json.loads(say("--seed", "4", "--nodes", "3", "--storage", "memory", "--json").out)
    assert told["trace_hash"] == CacheTrial(CachePlan(peers=3, storage="memory"), 4).run().trace_hash


def test_a_trace_is_text(say: Callable[..., Said], tmp_path: Path) -> None:
    file = tmp_path / "trial.txt"
    said = say("--seed", "1", "--trace", str(file), "--jobs", "1")
    assert said.code == 0, said.err
    assert "CallBegan" in file.read_text()


def test_a_violation_is_exit_1_with_fewer_classes_and_the_command(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(CacheTrial):
        def __init__(self, plan, seed):
            super().__init__(plan, seed, simple(EverybodyFetches))

    monkeypatch.setattr(cache_batch, "CacheTrial", Broken)
    monkeypatch.setattr(cache_batch, "run_trial", lambda plan, _, seed: Broken(plan, seed).run())
    said = say("--seeds", "1", "--jobs", "1", "--nodes", "3")
    assert said.code == EXIT_VIOLATION
    assert "Repeat it: primacy simulate --strategy cache --nodes 3" in said.out
    assert "--seed 0" in said.out


def test_faults_help(say: Callable[..., Said]) -> None:
    assert "freeze-source" in say("--faults", "help").out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--nodes", "40"), "say 2 to 9 peers"),
        (("--storage", "tape"), "there are durable, memory, both"),
        (("--faults", "crush"), "is crash meant"),
        (("--profile", "lan"), "--profile is nothing that --strategy cache knows"),
        (("--show",), "--show is gone: write one trial as a page with --seed K --trace FILE.html"),
        (("--trace", "x"), "say which one with --seed"),
    ],
)
def test_nonsense_gets_one_sentence(say: Callable[..., Said], arguments: tuple[str, ...], sentence: str) -> None:
    said = say(*arguments)
    assert said.code == 2, said.err
    assert sentence in said.err


def test_storage_is_of_the_cache_alone(say: Callable[..., Said]) -> None:
    assert say("--storage", "memory", strategy="raft").code == 2
