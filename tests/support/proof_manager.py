"""`make proof PART=manager`: the manager's long counts. A thousand idle and fifty slow connections while leaders are
killed, a minute of random bytes, and the scenarios several times over: beside doubles, and with ring."""

from __future__ import annotations

import os
import subprocess
import sys

ROUNDS = 5
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def main() -> int:
    environment = {**os.environ, "PRIMACY_SIZE": "proof"}
    processes = [
        "tests/processes/test_manager_process.py",
        "tests/processes/test_manager_storm.py",
        "tests/processes/test_manager_fuzz.py",
    ]
    code = subprocess.run([*PYTEST, *processes], env=environment, check=False).returncode
    for number in range(ROUNDS):
        if code:
            break
        print(f"scenarios beside doubles, round {number + 1} of {ROUNDS}")
        files = [
            "tests/processes/test_manager_scenarios.py",
            "tests/processes/test_manager.py",
            "tests/processes/test_manager_belongs.py",
            "tests/processes/test_manager_two_leaders.py",
        ]
        code = subprocess.run([*PYTEST, *files], env=environment, check=False).returncode
        if not code:
            print(f"scenarios with ring, round {number + 1} of {ROUNDS}")
            ring = {**environment, "PRIMACY_SCENARIOS": "ring"}
            code = subprocess.run([*PYTEST, files[0]], env=ring, check=False).returncode
    print(f"proof of the manager: {'green' if code == 0 else f'failed with {code}'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
