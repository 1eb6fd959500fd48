"""The proof of leases in Kubernetes: what a release must show.

    python -m tests.support.proof_kubernetes [--seconds 120]

Builds the API server if that was not done yet (five to eight minutes). Then every test of the store on the real server,
and races of five processes that are killed, frozen and ended by chance, first in peace and then while its etcd, and the
API server itself, are stopped and started. Prints a summary that belongs into a release's notes.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.kubernetes_server import Kubernetes
from tests.support.proof_store import said_by
from tests.support.servers import fresh_of
from tests.support.store_race import Race, Verdict

BUILD = Path(__file__).parent / "kube_apiserver/build"
PLAYERS = 5
STARTED_S = 60
"""The first holder watches for the longest wait, as everybody does on a new connection."""
EVERY_S = (12.0, 25.0)
"""Between two acts: nobody takes it for the longest wait after each of them."""


def race(server: Kubernetes, folder: Path, seconds: float, acts: bool) -> Verdict:
    server.empty()
    race = Race(server.url(), folder, PLAYERS, seconds + STARTED_S, seed=time.monotonic_ns() % 10_000)
    end_s, draw = time.monotonic() + seconds, random.Random()
    while acts and time.monotonic() < end_s:
        time.sleep(draw.uniform(*EVERY_S))
        if draw.random() < 0.5:
            server.etcd.freeze()
            time.sleep(draw.uniform(0.5, 5.0))
            server.etcd.thaw()
        else:
            server.kill()
            server.start()
    verdict = race.wait(seconds + STARTED_S + 120)
    verdict.one_at_a_time()
    assert verdict.holds, "nobody ever held it"
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.proof_kubernetes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="how long each race lasts (120)")
    options = parser.parse_args()
    if subprocess.run([BUILD], check=False).returncode:
        print("proof of Kubernetes: not shown, for the API server cannot be built here")
        return 1
    summary = [f"tests: {said_by('tests/processes/test_store_kubernetes.py')[-1]}"]
    server = fresh_of(Kubernetes)
    assert isinstance(server, Kubernetes)
    try:
        with tempfile.TemporaryDirectory(prefix="proof-") as folder:
            for name, acts in (("in peace", False), ("beside stops of etcd and of the API server", True)):
                summary.append(f"race {name}: {race(server, Path(folder) / str(acts), options.seconds, acts)}")
                print(summary[-1], flush=True)
        print("\n".join(["", f"proof of leases on {server.version()}: held", *summary]))
    finally:
        server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
