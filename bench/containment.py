"""What it costs a command to be held, and how soon it is gone when its guard is.

    python -m bench.containment [--kills 250] [--only cost,kills] [--json]

`cost`: a command that forks, spawns programs, calls the kernel, gets signals or starts threads, by itself, in a pid
namespace, and traced. Rounds take turns; the figure is the least median of a round, in microseconds: the rest is what
else the machine did.

`kills`: agent and guard are stopped, so that only the kernel's timer is left; beside a busy loop for each core and a
disk that is written and synced all the time. From the instant of the dead-man to the last stamp of the tree, and until
the kernel says that the last process is gone. The worst counts: it must fit between dead-man and hold of the profile.
Exit 1 if it does not fit `lan`. Needs root for all ways. Beside it a process of the highest priority on each core says
for how long that core ran nothing at all, as when a host takes a virtual machine's core away: a kernel can kill nothing
there then. That is printed, and excuses nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.guard_harness import Harness, boot_ms, interpreter_for, wait_until
from tests.support.real_nodes import burning

from primacy.settings.timing import PROFILES

WAYS = {"namespace": "root", "namespace, user": "user", "ptrace": "capless", "ptrace, user": "traced"}
"""Each way with the mode of the guard's harness that has it."""
COSTS = """
import os, signal, sys, threading, time
heard = 0
def hear(*_):
    global heard
    heard += 1
signal.signal(signal.SIGUSR1, hear)
def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
def spawn():
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
def thread():
    each = threading.Thread(target=int)
    each.start()
    each.join()
def call():
    for _ in range(1_000):
        os.getppid()
def tell():
    os.kill(os.getpid(), signal.SIGUSR1)
for work, times in ((fork, 300), (spawn, 200), (thread, 500), (call, 200), (tell, 3_000)):
    took = []
    for _ in range(times // int(sys.argv[1])):
        began = time.perf_counter_ns()
        work()
        took.append(time.perf_counter_ns() - began)
    print(work.__name__, sorted(took)[len(took) // 2] / 1e3, flush=True)
print("over", 0, flush=True)
"""
WORDS = {
    "fork": "fork, exit, wait",
    "spawn": "start a program, wait",
    "thread": "start a thread, join",
    "call": "1,000 system calls",
    "tell": "a signal to a handler",
}
ROUNDS = 5
AHEAD_MS, AHEAD_MS_MAX = 400, 3_200
"""From the order to the dead-man: enough for the tree to be there, also on a busy machine; doubled when it was not."""
LATE_S = 5.0
STILL_MS = 5
WATCHER = """
import os, select, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(3))
poll, before = select.poll(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
poll.register(0, select.POLLIN)
while not poll.poll(1):
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    if now - before > int(sys.argv[2]) * 1_000_000:
        print(before / 1e6, now / 1e6, flush=True)
    before = now
"""
"""Until its standard input ends: from when to when its core did not run it although nothing goes before it."""
WRITER = """
import os, sys
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
while True:
    os.pwrite(handle, bytes(8 << 20), 0)
    os.fsync(handle)
"""


class Kill(NamedTuple):
    """Milliseconds after the instant of the dead-man."""

    due_ms: float
    """That instant itself, of CLOCK_BOOTTIME."""
    last_ms: float
    """The last stamp of any process of the tree: it acted then."""
    empty_ms: float
    """The last one was gone."""
    still_ms: float
    """The longest time for which a process of real time did not run: the one that looks was late itself."""

    def core_still_ms(self, spans: list[tuple[float, float]]) -> float:
        """The longest of these standstills of a core between the dead-man and the end."""
        met = [(since, until) for since, until in spans if until > self.due_ms and since < self.due_ms + self.empty_ms]
        return max((until - since for since, until in met), default=0.0)


# --- cost -------------------------------------------------------------------------------------------------------------


def cost(rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds for each kind of work, for each way."""
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for way in ("none", *WAYS):
            for name, value in (bare() if way == "none" else held(WAYS[way])).items():
                found.setdefault(way, {}).setdefault(name, []).append(value)
    return {way: {name: min(each) for name, each in row.items()} for way, row in found.items()}


def bare(part: int = 1) -> dict[str, float]:
    """`part`: 10 for a tenth of the work."""
    call = [interpreter_for(os.geteuid()), "-I", "-S", "-c", COSTS, f"{part}"]
    return read(subprocess.run(call, capture_output=True, text=True, check=True).stdout)


def held(mode: str, part: int = 1) -> dict[str, float]:
    harness = Harness(mode)
    try:
        harness.hello()
        out = harness.folder / "out"
        argv = [harness.anyones_python, "-I", "-S", "-c", COSTS, f"{part}", str(harness.folder)]
        harness.order(s_ms=boot_ms() + 600_000, argv=argv, stdout=str(out))
        harness.hear("running")
        wait_until(lambda: out.exists() and "over" in out.read_text(), within_s=60.0)
        return read(out.read_text())
    finally:
        harness.close()


def read(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in map(str.split, text.splitlines()) if name != "over"}


# --- kills ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Every core is busy, and so is the disk."""
    with tempfile.TemporaryDirectory(prefix="load-") as folder, burning(os.cpu_count() or 1):
        writer = subprocess.Popen([sys.executable, "-I", "-S", "-c", WRITER, str(Path(folder) / "file")])
        try:
            yield
        finally:
            writer.kill()
            writer.wait()


def kills(mode: str, count: int) -> list[Kill]:
    """As many as wanted. One whose tree was not there in time is tried again, with more time."""
    found: list[Kill] = []
    ahead_ms = AHEAD_MS
    while len(found) < count:
        one = kill(mode, ahead_ms)
        if one is not None:
            found.append(one)
            continue
        ahead_ms = min(2 * ahead_ms, AHEAD_MS_MAX)
    return found


def kill(mode: str, ahead_ms: int) -> Kill | None:
    harness = Harness(mode)
    try:
        harness.hello()
        due_ms = boot_ms() + ahead_ms
        harness.order("escape", "ignore-term", term_at=due_ms, kill_at=due_ms, deadman_at=due_ms)
        while len(harness.stamped()) < 2:
            if boot_ms() > due_ms - 50:
                return None
            time.sleep(0.005)
        try:
            tree = [os.pidfd_open(pid) for pid in harness.commands()]
        except ProcessLookupError:  # the machine was so slow that the dead-man came first
            assert boot_ms() >= due_ms, "it ended before its time"
            return None
        harness.signal(signal.SIGSTOP, harness.agent_pid, harness.guard_pid)
        if boot_ms() >= due_ms:
            return None
        empty_ns, still_ns = ended_ns(tree)
        return Kill(due_ms, harness.last_ms() - due_ms, empty_ns / 1e6 - due_ms, still_ns / 1e6)
    finally:
        harness.close()


def ended_ns(handles: list[int]) -> tuple[int, int]:
    """When the last of them was gone, and the longest time between two looks that were to be a millisecond apart."""
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    left = set(handles)
    now_ns, still_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME), 0
    end_ns = now_ns + int((LATE_S + AHEAD_MS_MAX / 1_000) * 1e9)
    while left:
        ready = poll.poll(1)
        before_ns, now_ns = now_ns, time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        still_ns = max(still_ns, now_ns - before_ns - 1_000_000)
        assert now_ns < end_ns, "the tree lives on"
        for handle, _ in ready:
            poll.unregister(handle)
            left.discard(handle)
            os.close(handle)
    return now_ns, still_ns


class Cores:
    """Watches every core for standstills while it is entered."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    def __enter__(self) -> Cores:
        self.notes = tempfile.NamedTemporaryFile("r", prefix="cores-")
        self.watchers = []
        with open(self.notes.name, "a", encoding="ascii") as notes:
            for core in sorted(os.sched_getaffinity(0)) if os.geteuid() == 0 else ():  # only root goes before all
                call = [sys.executable, "-I", "-S", "-c", WATCHER, f"{core}", f"{STILL_MS}"]
                self.watchers.append(subprocess.Popen(call, stdin=subprocess.PIPE, stdout=notes))
        return self

    def __exit__(self, *_: object) -> None:
        for watcher in self.watchers:
            watcher.communicate()
        with self.notes as notes:
            for line in notes:
                since, until = map(float, line.split())
                self.spans.append((since, until))


@contextlib.contextmanager
def first() -> Iterator[None]:
    """Whoever looks must not be late itself."""
    before = os.sched_getscheduler(0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(2))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, before, os.sched_param(0))


def reserve_ms(profile: str) -> int:
    """What a profile leaves the kernel."""
    timing = PROFILES[profile]
    return timing.hold_ms - timing.deadman_at_ms


def in_words(way: str, found: list[Kill], spans: list[tuple[float, float]]) -> str:
    last, empty = sorted(one.last_ms for one in found), sorted(one.empty_ms for one in found)
    worst = max(found, key=lambda one: one.empty_ms)
    p99 = max(0, int(len(found) * 0.99) - 1)
    return (
        f"{way:16} {len(found):5} kills; last stamp p50 {last[len(found) // 2]:.1f}, p99 {last[p99]:.1f}, at most "
        f"{last[-1]:.1f} ms; empty p50 {empty[len(found) // 2]:.1f}, p99 {empty[p99]:.1f}, at most {empty[-1]:.1f} ms "
        f"after the dead-man; in the worst one the machine stood still for {worst.still_ms:.1f} ms, one core for "
        f"{worst.core_still_ms(spans):.1f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.containment", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=250, help="for each way (250)")
    parser.add_argument("--only", default="cost,kills", help="cost, kills, or both with a comma (both)")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    args = parser.parse_args()
    ways = WAYS if os.geteuid() == 0 else {"namespace, user": "user", "ptrace, user": "traced"}
    document: dict[str, object] = {}
    missed = []
    if "cost" in args.only:
        table = cost(ROUNDS)
        document["cost_us"] = table
        if not args.json:
            print(f"{'microseconds':24}" + "".join(f"{way:>18}" for way in table))
            for name, words in WORDS.items():
                print(f"{words:24}" + "".join(f"{row[name]:18.1f}" for row in table.values()))
    if "kills" in args.only:
        with load(), first():
            for way, mode in ways.items():
                with Cores() as cores:
                    found = kills(mode, args.kills)
                document[way] = [one._asdict() for one in found]
                missed += [one for one in found if one.empty_ms > reserve_ms("lan")]
                if not args.json:
                    print(in_words(way, found, cores.spans), flush=True)
    if args.json:
        print(json.dumps(document, indent=2))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
