"""Needless failovers: all cores are kept busy, and nothing is wrong. Whoever loses the leadership then is too nervous.

A canary beside it notes how late it wakes. A failover counts as needless unless the canary itself was late by a
heartbeat or more within the hold before it: then the machine stood still for everybody, and a cluster that reacts is
right.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import processes
from bench.nodes import Nodes
from bench.watch import Doorbell, Watch

PROFILE = "lan"
BURN = "while True: pass"
CANARY = """
import os, time
while True:
    asleep = time.monotonic_ns()
    time.sleep(0.01)
    late = (time.monotonic_ns() - asleep) // 1_000_000 - 10
    if late >= 1:
        os.write(1, b"late %d\\n" % late)
"""
"""It says by how many milliseconds it was late, every time."""
STEP_S = 5.0


class Busy(NamedTuple):
    """What was seen."""

    seconds: float
    failovers: int
    needless: int
    """Without a canary that was late by a heartbeat."""
    canary_ms: int
    """The latest that it ever was."""
    load: float


def measure(seconds: float, progress: Callable[[str], None]) -> Busy:
    """Three nodes and as many busy processes as there are cores, for so long."""
    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="primacy-bench-") as name:
        folder = Path(name)
        nodes = Nodes(watch, Doorbell(watch, folder), folder, PROFILE)
        burners: list[subprocess.Popen[bytes]] = []
        canary: list[subprocess.Popen[bytes]] = []
        try:
            nodes.start()
            since = len(watch.lines)
            canary = [processes.start(watch, "canary", [sys.executable, "-c", CANARY], folder)]
            burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(os.cpu_count() or 1)]
            began_s = time.monotonic()
            while (left_s := began_s + seconds - time.monotonic()) > 0:
                watch.rest(min(STEP_S, left_s))
                progress(
                    f"busy: {seconds - left_s:.0f} of {seconds:.0f} s, {_failovers(nodes, watch, since)} failovers"
                )
            load = os.getloadavg()[0]
        finally:
            processes.end([*burners, *canary])
            nodes.end()
            watch.close()
        return _judged(nodes, watch, since, seconds, load)


def _failovers(nodes: Nodes, watch: Watch, since: int) -> int:
    return sum(nodes.elected(line) for line in watch.lines[since:])


def _judged(nodes: Nodes, watch: Watch, since: int, seconds: float, load: float) -> Busy:
    lines = watch.lines[since:]
    late = [(line.at_ns, int(line.text.split()[1])) for line in lines if line.source == "canary"]
    elected = [line.at_ns for line in lines if nodes.elected(line)]
    hold_ns = (nodes.timing.hold_ms + nodes.timing.promise_ms) * 1_000_000
    excused = [
        at_ns
        for at_ns in elected
        if any(at_ns - hold_ns <= seen_ns <= at_ns and ms >= nodes.timing.heartbeat_ms for seen_ns, ms in late)
    ]
    latest_ms = max((ms for _, ms in late), default=0)
    return Busy(seconds, len(elected), len(elected) - len(excused), latest_ms, load)
