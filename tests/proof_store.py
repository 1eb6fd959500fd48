"""What a release must show of the stores: longer races, a hundred cold starts, the faults three times over."""

from __future__ import annotations

import os
import subprocess
import sys

RACE_S = "20"
COLD_ROUNDS = "100"
FAULT_ROUNDS = 3


def main() -> int:
    environment = {**os.environ, "PRIMACY_RACE_S": RACE_S, "PRIMACY_COLD_ROUNDS": COLD_ROUNDS}
    pytest = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    code = subprocess.run([*pytest, "tests/test_store_race.py"], env=environment, check=False).returncode
    for _ in range(FAULT_ROUNDS):
        code = code or subprocess.run([*pytest, "tests/test_store_faults.py"], check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
