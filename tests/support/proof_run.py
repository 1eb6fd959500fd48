"""The proof of `primacy run`: every fault of real processes and links many times, and twenty minutes on a busy
machine, ten of them under a flood of junk.

    python -m tests.support.proof_run [--rounds 20] [--busy-s 600] [--only processes,links,chaos,...]

Takes about 60 minutes on two cores (`make proof PART=run`) and prints a summary that belongs into a release's notes:
rounds, handovers, durations, voids. Exit 1 if two commands ever ran at once, if nobody ran, or if a planted defect was
missed. A window of the busy machine in which the canary was late by more than a heartbeat is void, and said.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.processes import test_faults_links, test_faults_process
from tests.processes.test_faults_chaos import case_chaos
from tests.sizes import PYTEST, say_notes
from tests.support import hostile_datagrams as hostile
from tests.support.canary import NOTES, VOIDS, Canary, note
from tests.support.real_nodes import HANG, Crowd, burning, crowd_in
from tests.support.safety_checks import SafetyViolation
from tests.support.void_attempts import TRIES

LONG_ROUNDS = {
    "F10 tree that forks": 0.5,
    "F12 busy machine": 0.5,
    "F21 flapping": 0.5,
    "F22 loss and repetition": 0.5,
    "F47 restart storm": 0.25,
}
"""A fraction of the rounds, for cases that are many faults each."""
FRESH = ("F10 tree that forks",)
"""It fills the file of stamps: every round has a crowd of its own."""
WINDOW_S = 60
CHAOS_S = 25

Case = Callable[[Crowd], None]


def judged(case: Case, crowd: Crowd) -> int:
    """One round: 1 if what it says of times was void three times. Overlaps were judged all along."""
    for _ in range(TRIES):
        VOIDS.clear()
        case(crowd)
        if not VOIDS:
            return 0
        for void in VOIDS:
            note(f"void: {void}")
    return 1


def rounds_of(name: str, case: Case, rounds: int, folder: Path, names: str, switched: bool) -> bool:
    """One line: how often, how long, and whether it held."""
    took_s: list[float] = []
    ran = voids = 0
    try:
        for number in range(rounds if name in FRESH else 1):
            where = folder / f"{number}"
            where.mkdir(parents=True)
            with crowd_in(where, names, plant=HANG, switched=switched) as crowd:
                for _ in range(1 if name in FRESH else rounds):
                    began = time.monotonic()
                    voids += judged(case, crowd)
                    took_s.append(time.monotonic() - began)
                ran += len({one.instance for one in crowd.stamped()})
    except (AssertionError, SafetyViolation) as fault:
        print(f"{name:45} FAILED in round {len(took_s) + 1} of {rounds}: {fault}", flush=True)
        return False
    middle_s, most_s = statistics.median(took_s), max(took_s)
    print(
        f"{name:45} {rounds:3} rounds, {ran:4} commands, 0 overlaps; a round took {middle_s:.1f} s, {most_s:.1f} s "
        f"at most{f'; {voids} rounds void' if voids else ''}",
        flush=True,
    )
    return True


def faults(cases: dict[str, Case], rounds: int, names: str, switched: bool) -> bool:
    held = True
    with tempfile.TemporaryDirectory(prefix="proof-") as folder:
        Path(folder).chmod(0o755)
        for number, (name, case) in enumerate(cases.items()):
            some = max(1, int(rounds * LONG_ROUNDS.get(name, 1)))
            held = rounds_of(name, case, some, Path(folder) / f"{number}", names, switched) and held
    return held


def processes(options: argparse.Namespace) -> bool:
    return faults(test_faults_process.CASES, options.rounds, "abc", False)


def links(options: argparse.Namespace) -> bool:
    held = faults(test_faults_links.CASES, options.rounds, "abcde", True)
    four = {"F18 two and two of four": test_faults_links.case_two_and_two}
    return faults(four, max(1, options.rounds // 2), "abcd", True) and held


def chaos(options: argparse.Namespace) -> bool:
    """Faults that meet, with seeds that nobody chose."""
    seeds = [secrets.randbelow(10**6) for _ in range(max(1, options.rounds // 4))]
    cases = {f"chaos {seed}": lambda crowd, seed=seed: case_chaos(crowd, seed, CHAOS_S) for seed in seeds}
    with tempfile.TemporaryDirectory(prefix="proof-") as folder:
        return all(
            [rounds_of(name, case, 1, Path(folder) / name, "abcde", True) for name, case in cases.items()]  # noqa: C419
        )


def busy(options: argparse.Namespace) -> bool:
    """Every core burning, then a flood of junk as well: at `lan` no handover. Of `fast` it is told, and not judged."""
    held = needless("lan", options.busy_s, flood=False) == 0
    held = needless("lan", options.busy_s // 2, flood=True) == 0 and held
    return needless("fast", options.busy_s // 2, flood=True) >= 0 and held


def needless(profile: str, seconds: int, *, flood: bool) -> int:
    """Handovers of three nodes in windows, each beside a canary; -1 if all windows were void."""
    found = void = windows = 0
    worst_ms = 0.0
    with tempfile.TemporaryDirectory(prefix="proof-") as folder, crowd_in(Path(folder), "abc", profile) as crowd:
        crowd.settle()
        with burning(os.cpu_count() or 1), flooding(crowd, seconds if flood else 0):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                before = crowd.acting()
                with Canary(crowd.timing.heartbeat_ms) as canary:
                    time.sleep(min(WINDOW_S, max(0.0, end - time.monotonic())))
                after = crowd.acting()
                windows += 1
                is_void = canary.worst_ms > canary.heartbeat_ms
                void += is_void
                found += len([t for t in crowd.tokens() if before.token < t <= after.token]) * (not is_void)
                worst_ms = max(worst_ms, canary.worst_ms)
        crowd.one_now()
    print(
        f"all cores busy{' and a flood' if flood else ''} for {seconds} s at {profile}: {found} needless handovers in "
        f"{windows - void} windows, {void} void; the canary woke {worst_ms:.0f} ms late at most",
        flush=True,
    )
    return found if void < windows else -1


@contextlib.contextmanager
def flooding(crowd: Crowd, seconds: int) -> Iterator[None]:
    """Junk for all nodes, as fast as one process can throw it; for no time: none."""
    ports = map(str, crowd.ports.values())
    call = [sys.executable, "-I", "-S", hostile.__file__, str(seconds), *ports]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            print(f"flood: {int(process.communicate(timeout=seconds + 60)[0]):,} datagrams", flush=True)


def tests(*arguments: str) -> bool:
    environment = {**os.environ, "PRIMACY_SIZE": "proof"}
    return not subprocess.run([*PYTEST, *arguments], env=environment, check=False).returncode


def members(_: argparse.Namespace) -> bool:
    """First starts and changed lists in every order, and the failing disk."""
    return tests("tests/processes/test_faults_members.py", "tests/processes/test_faults_ballot.py")


def calm(_: argparse.Namespace) -> bool:
    """With a flood of 20 s, and half a minute of fuzzing from outside and from inside."""
    return tests("-s", "tests/processes/test_faults_calm.py", "tests/contracts/test_fuzz_datagrams.py")


def mutants(_: argparse.Namespace) -> bool:
    return tests("tests/processes/test_faults_mutants.py", "tests/processes/test_guard_mutants.py")


def traced(options: argparse.Namespace) -> bool:
    """The faults of processes as root in a container: no namespace is to be had, and every command is traced."""
    drop = ["setpriv", "--bounding-set=-sys_admin,-sys_ptrace"]
    again = [sys.executable, "-m", "tests.support.proof_run", "--only", "processes", "--rounds", f"{options.rounds}"]
    return not subprocess.run([*drop, *again], check=False).returncode


def kills(options: argparse.Namespace) -> bool:
    """From the kernel's dead-man to the last process, a thousand times, beside busy cores and a busy disk."""
    call = [sys.executable, "-m", "bench.containment", "--only", "kills", "--kills", f"{options.kills}"]
    return not subprocess.run(call, check=False).returncode


def containment(options: argparse.Namespace) -> bool:
    """Each in turn, as often as the rest: traced trees, and those that are stopped or frozen."""
    files = ("tests/processes/test_guard_trace.py", "tests/processes/test_guard_freeze.py")
    return all([tests(*files) for _ in range(max(1, options.rounds // 4))])  # noqa: C419


def ordinary(_: argparse.Namespace) -> bool:
    return not subprocess.run([sys.executable, "-m", "tests.support.ordinary_user"], check=False).returncode


PARTS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "processes": processes,
    "links": links,
    "chaos": chaos,
    "members": members,
    "calm": calm,
    "mutants": mutants,
    "containment": containment,
    "traced": traced,
    "kills": kills,
    "ordinary": ordinary,
    "busy": busy,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.proof_run", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="of every case (20)")
    parser.add_argument("--busy-s", type=int, default=600, help="how long both cores are busy (600)")
    parser.add_argument("--kills", type=int, default=250, help="for each way of containment (250)")
    parser.add_argument("--only", default=",".join(PARTS), help="some of the parts, with commas between them")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if set(wanted) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(set(wanted) - PARTS.keys()))}; there are {', '.join(PARTS)}")
    own = NOTES not in os.environ
    if own:
        handle, os.environ[NOTES] = tempfile.mkstemp(prefix="notes-")
        os.close(handle)
        os.chmod(os.environ[NOTES], 0o666)
    began = time.monotonic()
    results = {}
    for name in wanted:
        since = time.monotonic()
        results[name] = PARTS[name](options)
        print(f"{name}: {'held' if results[name] else 'FAILED'} after {time.monotonic() - since:.0f} s", flush=True)
    if own:
        say_notes(os.environ[NOTES])
        os.unlink(os.environ[NOTES])
    print(f"proof of run: {results}, {time.monotonic() - began:.0f} s")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
