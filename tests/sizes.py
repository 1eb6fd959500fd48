"""The three sizes of test: quick (under two minutes), test (everything once), proof (the counts of a release).

`make quick`, `make test` and `make proof [PART=core]` call this. `make test` has lanes, for tests with real processes
wait most of the time. Those that judge moments come first; then those with bounds of seconds, more of them at a time.
All the time, what only computes takes what they leave of the processors. Which file belongs where is said by its marks
and its folder (README.md). Each size ends with what was skipped and why, and with the servers that ran.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import NamedTuple

from tests.support.canary import NOTES
from tests.support.marks import marked, unmarked
from tests.support.ports import LANE
from tests.support.servers import REPORT

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
LONGEST = ["--durations=25", "--durations-min=8"]
"""Each phase says at its end what took long."""
TWO_AT_A_TIME = ["-n", "2", "--dist", "worksteal"]
FILE_BY_FILE = ["--dist", "loadfile", "--no-loadscope-reorder"]
STAND_BACK = [sys.executable, "-m", "tests.support.stand_back"]
COMPUTING = ("rules", "simulation", "transcripts")
"""Folders of tests that only compute: how long they take is judged by nobody."""
WITH_SOCKETS = ("browser", "contracts", "docs", "processes")
"""Folders of tests that answer each other in real time, some by sockets and processes."""
COVERAGE = ["--cov=primacy.election", "--cov-branch", "--cov-report=term:skip-covered", "--cov-fail-under=98"]
PARTS = {
    "core": "tests.support.proof_core",
    "members": "tests.support.proof_members",
    "many": "tests.support.proof_many",
    "run": "tests.support.proof_run",
    "dashboard": "tests.support.proof_dashboard",
    "store": "tests.support.proof_store",
    "kubernetes": "tests.support.proof_kubernetes",
    "manager": "tests.support.proof_manager",
    "slots": "tests.support.proof_slots",
    "cache": "tests.support.proof_cache",
    "containers": "tests.support.proof_containers",
}
"""What `make proof PART=...` can be asked for, and the module that does it."""


class Lane(NamedTuple):
    """Phases that run one after the other, at the same time as those of other lanes of the same turn."""

    turn: int
    """Those of the next turn wait until all of this one are over."""
    phases: dict[str, list[str]]
    stands_back: bool = False
    """It begins with the first turn, takes what all others leave of the processors, and no turn waits for it."""


def _environment(size: str, lane: str = "0/1") -> dict[str, str]:
    found = {**os.environ, "PRIMACY_SIZE": size, REPORT: servers_file(), LANE: lane}
    if found.pop("PYTHONDONTWRITEBYTECODE", ""):
        found["PYTHONPYCACHEPREFIX"] = compiled_folder()
    return found


@cache
def compiled_folder() -> str:
    """Where modules are kept compiled if nothing may be written next to their sources. The tests start hundreds of
    processes; each would compile all of its modules, which is a third of what its start costs."""
    path = tempfile.mkdtemp(prefix="primacy-compiled-")
    os.chmod(path, 0o755)  # the ordinary user reads there, too
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


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
    moments = {
        "moments": [*PYTEST, *LONGEST, "-n", "2", *FILE_BY_FILE, *marked("moments")],
        "alone": [*PYTEST, *LONGEST, *marked("alone")],
    }
    ordinary = {"ordinary user": [sys.executable, "-m", "tests.support.ordinary_user"]}
    waiting = {"beside": [*PYTEST, *LONGEST, "-n", "4", *FILE_BY_FILE, *marked("beside")]}
    others = {"others": [*PYTEST, *LONGEST, *TWO_AT_A_TIME, *unmarked(*WITH_SOCKETS), *marked("real_time")]}
    computing = {
        "coverage": [*PYTEST, *LONGEST, *TWO_AT_A_TIME, *COVERAGE, *marked("coverage")],
        "computing": [*PYTEST, *LONGEST, *TWO_AT_A_TIME, *unmarked(*COMPUTING)],
    }
    return [
        Lane(0, moments),
        Lane(0, ordinary),
        Lane(1, waiting),
        Lane(1, others),
        Lane(0, computing, stands_back=True),
    ]


STANDING_BACK: list[subprocess.Popen[str]] = []
"""What has a session of its own, so that Ctrl-C does not reach it."""
INTERRUPTED = threading.Event()
"""Nothing more begins."""


def run_lane(lane: Lane, environment: dict[str, str]) -> int:
    """The first code of a phase that failed. What it says stands behind the phase's name: lanes speak all at once."""
    failed = 0
    for name, command in lane.phases.items():
        if INTERRUPTED.is_set():
            break
        began = time.monotonic()
        with subprocess.Popen(
            [*STAND_BACK, *command] if lane.stands_back else command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            if lane.stands_back:
                STANDING_BACK.append(process)
            assert process.stdout is not None
            for line in process.stdout:
                print(f"{name:>13} | {line}", end="", flush=True)
            _, status, used = os.wait4(process.pid, 0)
            code = process.returncode = os.waitstatus_to_exitcode(status)
        state = f"failed with {code}" if code else "green"
        used_s = used.ru_utime + used.ru_stime  # without what did not end before its parent
        print(f"phase {name}: {state} after {time.monotonic() - began:.0f} s, {used_s:.0f} s of processors", flush=True)
        failed = failed or code
    return failed


def turns() -> list[list[Lane]]:
    """Lanes that run at the same time. Those that stand back are in none: they run all the time."""
    found = [lane for lane in lanes() if not lane.stands_back]
    return [[lane for lane in found if lane.turn == turn] for turn in sorted({lane.turn for lane in found})]


def test() -> int:
    """All of it, to its end: what fails in one phase says nothing about the others."""
    behind = [lane for lane in lanes() if lane.stands_back]
    at_once = len(behind) + max(map(len, turns()))
    running: list[Future[int]] = []
    with ThreadPoolExecutor() as threads:

        def begin(found: list[Lane], first: int) -> list[Future[int]]:
            places = [_environment("test", f"{first + number}/{at_once}") for number in range(len(found))]
            running.extend(begun := [threads.submit(run_lane, *each) for each in zip(found, places, strict=True)])
            return begun

        try:
            begin(behind, 0)
            for turn in turns():
                wait(begin(turn, len(behind)))
            wait(running)
        except KeyboardInterrupt:
            INTERRUPTED.set()
            for process in STANDING_BACK:
                process.send_signal(signal.SIGINT)
            raise
    return next(filter(None, (one.result() for one in running)), 0)


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
    """What was void, skipped or failed in any phase, and why."""
    with open(path) as file:
        lines = file.read().splitlines()
    for kind in ("void", "skipped", "failed"):
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
