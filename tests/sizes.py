"""The three sizes of test: quick (under two minutes), test (everything once), proof (the counts of a release).

`make quick`, `make test` and `make proof [PART=core]` call this. Each ends with what was skipped and why, and with the
servers that really ran (none yet: the core needs none).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

PYTEST = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
COVERAGE = ["--cov=primacy.election", "--cov-branch", "--cov-report=term:skip-covered", "--cov-fail-under=95"]
PARTS = ("core",)


def _run(size: str, *arguments: str) -> int:
    environment = {**os.environ, "PRIMACY_SIZE": size}
    return subprocess.run([*PYTEST, *arguments], env=environment, check=False).returncode


def quick() -> int:
    return _run("quick")


def test() -> int:
    return _run("test", *COVERAGE)


def proof(part: str) -> int:
    if part not in ("all", *PARTS):
        print(f"make proof: no part named {part!r}; the parts are: all, {', '.join(PARTS)}", file=sys.stderr)
        return 2
    tested = _run("test", *COVERAGE)
    if tested:
        return tested
    return subprocess.run([sys.executable, "-m", "tests.proof_core"], check=False).returncode


def main() -> int:
    began = time.monotonic()
    size = sys.argv[1] if len(sys.argv) > 1 else "test"
    code = {"quick": quick, "test": test}[size]() if size != "proof" else proof(*(sys.argv[2:] or ["all"]))
    print(f"make {size}: {'green' if code == 0 else f'exit {code}'} after {time.monotonic() - began:.0f} s")
    print("servers that ran: none are needed by the core")
    return code


if __name__ == "__main__":
    sys.exit(main())
