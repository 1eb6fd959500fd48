"""The three sizes of test: quick (under two minutes), test (everything once), proof (the counts of a release).

`make quick`, `make test` and `make proof [PART=core]` call this. `make test` has three lanes. Tests that judge moments
have the machine to themselves. The other two run side by side, for tests with real processes wait most of the time:
those with bounds of seconds come first at the processors, and what computes takes the rest. Which file belongs where
is said by its marks (README.md). Each size ends with what was skipped and why, and with the servers that ran.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

from tests.support.canary import NOTES
from tests.support.marks import marked
from tests.support.ports import LANE
from tests.support.servers import REPORT

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
TWO_AT_A_TIME = ["-n", "2", "--dist", "worksteal"]
FILE_BY_FILE = ["--dist", "loadfile", "--no-loadscope-reorder"]
COVERAGE = ["--cov=primacy.election", "--cov-branch", "--cov-report=term:skip-covered", "--cov-fail-under=97"]
PARTS = {
    "core": "tests.support.proof_core",
    "members": "tests.support.proof_members",
    "run": "tests.support.proof_run",
    "dashboard": "tests.support.proof_dashboard",
    "store": "tests.support.proof_store",
    "manager": "tests.support.proof_manager",
    "slots": "tests.support.proof_slots",
    "cache": "tests.support.proof_cache",
}
"""What `make proof PART=...` can be asked for, and the module that does it."""


class Lane(NamedTuple):
    """Phases that run one after the other, beside those of other lanes of the same turn."""

    turn: int
    """Those of the next one wait until all of this one are over."""

    nice: int
    """How far its tests stand back where there are not processors enough."""
    phases: dict[str, list[str]]


def _environment(size: str, lane: str = "0/1") -> dict[str, str]:
    return {**os.environ, "PRIMACY_SIZE": size, REPORT: servers_file(), LANE: lane}


@cache
def servers_file() -> str:
    """Where the tests note the servers that they started."""
    handle, path = tempfile.mkstemp(prefix="primacy-servers-")
    os.close(handle)
    atexit.register(os.unlink, path)
    return path


def servers_that_ran() -> str:
    with open(servers_file(), encoding="utf-8") as file:
        found = sorted({line.strip() for line in file if line.strip()})
    return ", ".join(["SQLite " + sqlite3.sqlite_version, *found]) if found else "none"


def _without(*names: str) -> list[str]:
    """Without the files that have one of these marks."""
    return [f"--ignore={file}" for name in names for file in marked(name)]


def quick_arguments() -> list[str]:
    return [*TWO_AT_A_TIME, *_without("moments", "alone", "beside", "later"), "-m", "not later"]


def quick() -> int:
    """All but real processes, long pauses and what is recorded, and a twentieth of the trials."""
    return subprocess.run([*PYTEST, *quick_arguments()], env=_environment("quick"), check=False).returncode


def lanes() -> list[Lane]:
    """All tests, each once but for those that are tried as an ordinary user, too."""
    others = _without("coverage", "moments", "alone", "beside")
    moments = {
        "moments": [*PYTEST, "-n", "2", *FILE_BY_FILE, *marked("moments")],
        "alone": [*PYTEST, *marked("alone")],
        "ordinary user": [sys.executable, "-m", "tests.support.ordinary_user"],
    }
    waiting = {"beside": [*PYTEST, "-n", "3", *FILE_BY_FILE, *marked("beside")]}
    computing = {
        "coverage": [*PYTEST, *TWO_AT_A_TIME, *COVERAGE, *marked("coverage")],
        "others": [*PYTEST, *TWO_AT_A_TIME, *others],
    }
    return [Lane(0, 0, moments), Lane(1, 0, waiting), Lane(1, 10, computing)]


def run_lane(lane: Lane, which: str) -> int:
    """The first code of a phase that failed. What it says stands behind the phase's name: lanes speak all at once."""
    environment, failed = _environment("test", which), 0
    for name, command in lane.phases.items():
        began = time.monotonic()
        with subprocess.Popen(
            ["nice", "-n", str(lane.nice), *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(f"{name:>13} | {line}", end="", flush=True)
        code = process.returncode
        state = f"failed with {code}" if code else "green"
        print(f"phase {name}: {state} after {time.monotonic() - began:.0f} s", flush=True)
        failed = failed or code
    return failed


def test() -> int:
    """All of it, to its end: what fails in one phase says nothing about the others."""
    found = [(lane, f"{number}/{len(lanes())}") for number, lane in enumerate(lanes())]
    codes: list[int] = []
    for turn in sorted({lane.turn for lane, _ in found}):
        beside = [pair for pair in found if pair[0].turn == turn]
        with ThreadPoolExecutor(len(beside)) as threads:
            codes += threads.map(run_lane, *zip(*beside, strict=True))
    return next(filter(None, codes), 0)


def proof(part: str) -> int:
    if part != "all" and part not in PARTS:
        print(f"make proof: no part named {part!r}; the parts are: all, {', '.join(PARTS)}", file=sys.stderr)
        return 2
    code = test()
    for name, module in PARTS.items():
        if not code and part in ("all", name):
            code = subprocess.run([sys.executable, "-m", module], check=False).returncode
    return code


def say_notes(path: str) -> None:
    """What was void or skipped in any phase, and why."""
    with open(path) as file:
        lines = file.read().splitlines()
    for kind in ("void", "skipped"):
        found = [line for line in lines if line.startswith(kind)]
        print(f"{kind}: {len(found) or 'none'}")
        for line in found:
            print(f"  {line}")


def main() -> int:
    began = time.monotonic()
    size = sys.argv[1] if len(sys.argv) > 1 else "test"
    handle, notes = tempfile.mkstemp(prefix="notes-")
    os.close(handle)
    os.chmod(notes, 0o666)  # the ordinary user's run writes here, too
    os.environ[NOTES] = notes
    code = proof(*(sys.argv[2:] or ["all"])) if size == "proof" else {"quick": quick, "test": test}[size]()
    say_notes(notes)
    os.unlink(notes)
    print(f"servers that ran: {servers_that_ran()}")
    print(f"make {size}: {'green' if code == 0 else f'failed with {code}'} after {time.monotonic() - began:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
