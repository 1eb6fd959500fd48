"""What a release must show of the slots: a minute of hostile clients, failovers over and over, speed beside redis."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys

FUZZ_S = "60"
CLUSTER_ROUNDS = 5


def main() -> int:
    seed = str(secrets.randbits(32))
    print(f"hostile clients for {FUZZ_S} s, seed {seed}", flush=True)
    code = subprocess.run([sys.executable, "-m", "tests.support.slots_fuzz", FUZZ_S, seed], check=False).returncode
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    for _ in range(CLUSTER_ROUNDS):
        code = code or subprocess.run([*pytest, "tests/processes/test_slots_cluster.py"], check=False).returncode
    if shutil.which("redis-server") is None:
        print("redis-server is not here: speed beside it is not shown")
        return code
    return code or subprocess.run([sys.executable, "-m", "bench.slots"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
