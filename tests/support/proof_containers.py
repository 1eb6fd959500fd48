"""What a release must show of containers: the tests with a real Docker, over and over, each with containers anew."""

from __future__ import annotations

import subprocess
import sys

from tests.support import containers

ROUNDS = 10


def main() -> int:
    if why := containers.missing():
        print(f"containers are not shown: {why}")
        return 0
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/processes/test_containers.py"]
    for number in range(1, ROUNDS + 1):
        print(f"containers: round {number} of {ROUNDS}", flush=True)
        if code := subprocess.run(pytest, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
