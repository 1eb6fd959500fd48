"""What a cluster costs that does nothing but stay one: processor time, bytes, memory. Three nodes, heartbeats of 100
ms.

Each party lives in a network namespace of its own, where the counters of `lo` have seen every byte of it and of nobody
else; processor time is the scheduler's account of all its processes. Both are measured at the same time, slice by
slice, so that whatever else this machine does meets both.

    python -m bench.idle PARTY SECONDS SLICES     (inside its namespace; one JSON line per slice)
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import peers, processes
from bench.nodes import Nodes
from bench.watch import Doorbell, Watch

PARTIES = ("primacy", "etcd")
PROFILE = "fast"
"""Its heartbeat is 100 ms, as etcd's is by default."""
CALM_S = 1.5
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


class Slice(NamedTuple):
    """Of one party, per second."""

    cpu_ms: float
    sent_bytes: float
    sent_packets: float


class Idle(NamedTuple):
    """Medians over the slices."""

    cpu_ratio: float
    bytes_ratio: float
    ours: Slice
    etcds: Slice
    agent_mib: float
    guard_mib: float
    """The largest of each."""


def cannot() -> str:
    """Why this cannot be measured here; empty if it can."""
    if shutil.which("unshare") is None:
        return "unshare (util-linux) is not here"
    done = subprocess.run([*_namespace(), "true"], capture_output=True, text=True, check=False)
    return f"no network namespace can be made: {done.stderr.strip()}" if done.returncode else ""


def _namespace() -> list[str]:
    return ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--"]


def measure(slice_s: float, slices: int) -> Idle:
    """Both parties at once."""
    runs = []
    for party in PARTIES:
        argv = [*_namespace(), sys.executable, "-m", "bench.idle", party, str(slice_s), str(slices)]
        runs.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=peers.ROOT))
    try:
        for run in runs:
            assert run.stdout is not None
            if run.stdout.readline().strip() != "ready":
                raise RuntimeError("a party of the idle comparison did not start; its own lines say why")
        for run in runs:
            assert run.stdin is not None
            run.stdin.write("go\n")
            run.stdin.flush()
        ours, etcds = (json.loads(run.communicate()[0]) for run in runs)
    finally:
        for run in runs:
            run.terminate()  # they end what they started
            run.wait(processes.ENDS_S)
    pairs = [(Slice(*a), Slice(*b)) for a, b in zip(ours["slices"], etcds["slices"], strict=True)]
    return Idle(
        median(a.cpu_ms / b.cpu_ms for a, b in pairs),
        median(a.sent_bytes / b.sent_bytes for a, b in pairs),
        _middle([a for a, _ in pairs]),
        _middle([b for _, b in pairs]),
        ours["agent_mib"],
        ours["guard_mib"],
    )


def _middle(slices: list[Slice]) -> Slice:
    return Slice(*(median(values) for values in zip(*slices, strict=True)))


# --- inside -----------------------------------------------------------------------------------------------------------


def _lo_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(handle, SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def _sent() -> tuple[int, int]:
    """Bytes and packets that `lo` of this namespace has sent."""
    for line in Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            words = counts.split()
            return int(words[8]), int(words[9])
    raise RuntimeError("there is no lo in this namespace")


def _inside(party: str, slice_s: float, slices: int) -> None:
    _lo_up()
    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="primacy-bench-") as name:
        folder = Path(name)
        cluster = Nodes(watch, Doorbell(watch, folder), folder, PROFILE) if party == "primacy" else None
        etcd = peers.Etcd(watch, folder, fast=False) if cluster is None else None
        try:
            roots = []
            if cluster is not None:
                cluster.start()
                roots = [agent.pid for agent in cluster.agents.values()]
            if etcd is not None:
                etcd.wait()
                roots = [server.pid for server in etcd.servers]
            watch.rest(CALM_S)
            print("ready", flush=True)
            sys.stdin.readline()
            found = [_slice(watch, roots, slice_s) for _ in range(slices)]
            largest = _largest(roots)
        finally:
            processes.deaf()
            for one in (cluster, etcd):
                if one is not None:
                    one.end()
            watch.close()
    print(json.dumps({"slices": found, **largest}), flush=True)


def _slice(watch: Watch, roots: list[int], slice_s: float) -> Slice:
    pids = [pid for root in roots for pid in processes.tree(root)]
    before, sent, began = sum(map(processes.cpu_ns, pids)), _sent(), time.monotonic()
    watch.rest(slice_s)
    took_s = time.monotonic() - began
    after, now = sum(map(processes.cpu_ns, pids)), _sent()
    return Slice((after - before) / 1e6 / took_s, (now[0] - sent[0]) / took_s, (now[1] - sent[1]) / took_s)


def _largest(roots: list[int]) -> dict[str, float]:
    """Resident, of the largest agent (or server) and the largest guard."""
    guards = [pid for root in roots for pid in processes.children(root) if processes.name_of(pid) == "primacy-guard"]
    return {
        "agent_mib": max(map(processes.resident_mib, roots)),
        "guard_mib": max(map(processes.resident_mib, guards), default=0.0),
    }


if __name__ == "__main__":
    with processes.ended_in_order():
        _inside(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
