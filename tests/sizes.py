"""The three sizes of test: quick (under two minutes), test (everything once), proof (the counts of a release).

`make quick`, `make test` and `make proof [PART=core]` call this. The trials run apart from the rest, without coverage,
which would slow them down five times; tests with real processes run one at a time where they are about moments. Which
file belongs where is said by its marks (README.md). Each size ends with what was skipped and why, and with the servers
that ran.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from functools import cache

from tests.support.canary import NOTES
from tests.support.marks import marked
from tests.support.servers import REPORT

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
TWO_AT_A_TIME = ["-n", "2", "--dist", "worksteal"]
THREE_FILES_AT_A_TIME = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
COVERAGE = ["--cov=primacy.election", "--cov-branch", "--cov-report=term:skip-covered", "--cov-fail-under=95"]
PARTS = {
    "core": "tests.support.proof_core",
    "run": "tests.support.proof_run",
    "dashboard": "tests.support.proof_dashboard",
    "store": "tests.support.proof_store",
    "manager": "tests.support.proof_manager",
    "slots": "tests.support.proof_slots",
    "cache": "tests.support.proof_cache",
}
"""What `make proof PART=...` can be asked for, and the module that does it."""


def _pytest(size: str, *arguments: str) -> int:
    environment = {**os.environ, "PRIMACY_SIZE": size, REPORT: servers_file()}
    return subprocess.run([*PYTEST, *arguments], env=environment, check=False).returncode


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
    return [*TWO_AT_A_TIME, *_without("alone", "beside", "later"), "-m", "not later"]


def quick() -> int:
    """All but real processes, long pauses and what is recorded, and a twentieth of the trials."""
    return _pytest("quick", *quick_arguments())


def test() -> int:
    """The rules with coverage, then the trials, then the processes, then some of these as an ordinary user."""
    phases = {
        "rules": lambda: _pytest("test", *TWO_AT_A_TIME, *COVERAGE, *_without("trials", "alone", "beside")),
        "trials": lambda: _pytest("test", *TWO_AT_A_TIME, *marked("trials")),
        "processes": lambda: _pytest("test", *marked("alone")),
        "processes, three at a time": lambda: _pytest("test", *THREE_FILES_AT_A_TIME, *marked("beside")),
        "ordinary user": lambda: (
            subprocess.run([sys.executable, "-m", "tests.support.ordinary_user"], check=False).returncode
        ),
    }
    for name, phase in phases.items():
        began = time.monotonic()
        code = phase()
        print(
            f"phase {name}: {'green' if code == 0 else f'failed with {code}'} after {time.monotonic() - began:.0f} s\n"
        )
        if code:
            return code
    return 0


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
