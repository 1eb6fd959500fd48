"""The proof of the stores and of `primacy run` on them: what a release must show.

    python -m tests.support.proof_store [--rounds 10] [--only race,acts,faults,run]

Races of 20 s and a hundred cold starts of eight processes on every store; four races of 40 s on each beside random
acts of an operator; the faults of servers (F40 to F46) three
times over on PostgreSQL, MariaDB, etcd and Redis; the faults of processes (F01 to F10) on SQLite and PostgreSQL, many
rounds.
Takes about a quarter of an hour on two cores (`make proof PART=store`) and prints a summary that belongs into a
release's notes.
"""

from __future__ import annotations

import argparse
import inspect
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.processes import test_faults_lease
from tests.sizes import PYTEST
from tests.support import real_nodes as crowds
from tests.support.proof_run import judged
from tests.support.real_nodes_on_lease import LeaseCrowd, lease_crowd
from tests.support.safety_checks import SafetyViolation

RACE_S = "20"
COLD_ROUNDS = "100"
ACTS_S = "40"
ACTS_TRIALS = "4"
FAULT_ROUNDS = 3
FRESH = ("F10",)
"""They fill the file of stamps: every round has a crowd of its own."""
LAST = "test_T1_tokens_only_grow"
"""Judges what all rounds before it left behind."""

Case = Callable[[LeaseCrowd], None]


def race(_: argparse.Namespace) -> list[str]:
    more = {"PRIMACY_RACE_S": RACE_S, "PRIMACY_COLD_ROUNDS": COLD_ROUNDS}
    return [
        f"race: {line}"
        for line in said_by("tests/processes/test_store_race.py", more)
        if "overlaps" in line or "cold" in line
    ]


def acts(_: argparse.Namespace) -> list[str]:
    """Whatever an operator may do to a store, drawn anew."""
    more = {"PRIMACY_ACTS_S": ACTS_S, "PRIMACY_ACTS_TRIALS": ACTS_TRIALS}
    return [f"acts: {line}" for line in said_by("tests/processes/test_store_acts.py", more) if "overlaps" in line]


def faults(_: argparse.Namespace) -> list[str]:
    """F40 to F46, each round on servers of its own."""
    ends = [said_by("tests/processes/test_store_faults.py")[-1] for _ in range(FAULT_ROUNDS)]
    return [f"faults of servers, round {number}: {end}" for number, end in enumerate(ends, 1)]


def said_by(file: str, more: dict[str, str] | None = None) -> list[str]:
    """Every line that the tests of this file said. Raises if one failed."""
    environment = {**os.environ, **(more or {})}
    run = subprocess.Popen([*PYTEST, "-s", "-rs", file], env=environment, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    lines = []
    for line in run.stdout:
        print(line, end="", flush=True)
        if line.strip():
            lines.append(line.strip().lstrip("."))
    if run.wait():
        raise AssertionError(f"{file} failed with {run.returncode}: {lines[-1]}")
    return lines


def cases() -> dict[str, Case]:
    """The tests of one crowd, by what they are called."""
    found = {name: test for name, test in vars(test_faults_lease).items() if name.startswith("test_")}
    return {name: test for name, test in found.items() if list(inspect.signature(test).parameters) == ["crowd"]}


def run(options: argparse.Namespace) -> list[str]:
    """Agent killed, stopped, hung; guard killed, stopped; trees that fork and leave: on a file and on a server."""
    said = []
    for kind in test_faults_lease.KINDS:
        with tempfile.TemporaryDirectory(prefix="proof-") as folder:
            Path(folder).chmod(0o755)
            for number, (name, case) in enumerate(cases().items()):
                if name != LAST:
                    where = Path(folder) / str(number)
                    said.append(rounds_of(kind, test_faults_lease.PROFILE, name, case, options.rounds, where))
                    print(said[-1], flush=True)
    return said


def rounds_of(kind: str, profile: str, name: str, case: Case, rounds: int, folder: Path) -> str:
    """One line: how often, how long, how many commands."""
    took_s: list[float] = []
    ran = voids = 0
    alone = any(mark in name for mark in FRESH)
    for number in range(rounds if alone else 1):
        (folder / str(number)).mkdir(parents=True)
        with lease_crowd(kind, folder / str(number), profile=profile, plant=crowds.HANG) as crowd:
            for _ in range(1 if alone else rounds):
                began = time.monotonic()
                voids += judged(case, crowd)
                took_s.append(time.monotonic() - began)
            ran += len({(one.token, one.run) for one in crowd.stamped()})
            if len(crowd.tokens()) >= 5:
                cases()[LAST](crowd)
    middle_s, most_s = statistics.median(took_s), max(took_s)
    what = name.removeprefix("test_").replace("_", " ")
    return (
        f"run on {kind}: {what}: {rounds} rounds, {ran} commands, 0 overlaps; a round took {middle_s:.1f} s, "
        f"{most_s:.1f} s at most{f'; {voids} rounds void' if voids else ''}"
    )


PARTS: dict[str, Callable[[argparse.Namespace], list[str]]] = {"race": race, "acts": acts, "faults": faults, "run": run}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.proof_store", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="of every fault of processes, on each store (10)")
    parser.add_argument("--only", default=",".join(PARTS), help="some of the parts, with commas between them")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if set(wanted) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(set(wanted) - PARTS.keys()))}; there are {', '.join(PARTS)}")
    began, summary, held = time.monotonic(), [], True
    for name in wanted:
        since = time.monotonic()
        try:
            said = PARTS[name](options)
        except (AssertionError, SafetyViolation) as fault:
            held, said = False, [f"{name}: FAILED: {fault}"]
        summary += [*said, f"{name}: after {time.monotonic() - since:.0f} s"]
    print("\nproof of the stores:")
    for line in summary:
        print(f"  {line}")
    print(f"{'held' if held else 'FAILED'} after {time.monotonic() - began:.0f} s")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
