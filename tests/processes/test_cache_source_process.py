"""C4 with real processes: nothing of a call outlives its hold, whatever becomes of the peer that made it.

The processes that fetch write down until when they lived (`stamp.py`), so that they are judged from outside. `weak`:
no pid namespace can be made, as in most containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from primacy.cache import Client
from primacy.cache.source_async import LOOK_MS
from primacy.cache.source_guard import FOLDER
from tests.support import canary, stamp
from tests.support.cache_peers import Crowd
from tests.support.cache_source_caller import OVER_MS
from tests.support.canary import Canary
from tests.support.guard_harness import boot_ms, wait_until
from tests.support.safety_checks import SafetyViolation, safe
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.beside(order=490)

HERE = Path(__file__).parents[2]
WAYS = ["strong", "weak"] if os.geteuid() == 0 else ["strong"]
KINDS = [("function", "strong"), *(("command", way) for way in WAYS)]
LIMIT_S = 60
"""For whatever must come: only a hang reaches it."""
GONE_MS = 800
"""Of a killed peer, everything is gone within this, on a machine that lets the dying run."""


class Caller:
    """A peer that makes one call and proves its hold anew every 100 ms."""

    def __init__(self, source: str, key: str, way: str = "strong", guard: Path | None = None) -> None:
        weak = [sys.executable, "-I", "tests/support/weak_containment.py"] if way == "weak" else []
        self.process = subprocess.Popen(
            [*weak, sys.executable, "-m", "tests.support.cache_source_caller", source, key],
            cwd=HERE,
            env={**os.environ, "CALLER_GUARD": str(guard)} if guard else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def read(self, word: str) -> str:
        """The next line that begins so."""
        assert self.process.stdout is not None
        while not (line := self.process.stdout.readline()).startswith(word):
            assert line, self.process.stderr.read() if self.process.stderr else ""
            self.lines.append(line.strip())
        self.lines.append(line.strip())
        return line.strip().removeprefix(word).strip()

    def rest(self) -> None:
        """Everything that it still said."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().split("\n")

    @property
    def over_at_ms(self) -> int:
        """The end of the last hold that was proved."""
        return max(int(line.split()[1]) for line in self.lines if line.startswith("hold"))

    def guards(self) -> list[int]:
        return children(self.process.pid, b"primacy-source")


def children(pid: int, comm: bytes) -> list[int]:
    """A thread, or a process, that ends while it is being looked at has none."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{child}/comm").read_bytes().strip() == comm:
                        found.append(int(child))
    return found


Call = Callable[..., Caller]


@pytest.fixture
def call() -> Iterator[Call]:
    made: list[Caller] = []

    def one(*arguments: Any) -> Caller:
        made.append(Caller(*arguments))
        return made[-1]

    yield one
    for caller in made:
        with contextlib.suppress(ProcessLookupError):
            caller.process.send_signal(signal.SIGCONT)
        caller.process.kill()
        caller.process.wait()
        for stream in (caller.process.stdout, caller.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = str(tmp_path / "stamps")
    stamp.make_file(path)
    return path


def sources(kind: str) -> str:
    """A command or a function, each with a grandchild that left by double fork and ignores SIGTERM."""
    if kind == "function":
        return "call:tests.support.cache_functions:stamps"
    return f"cmd:{sys.executable} -I -S {HERE}/tests/support/stamp.py {{key}} escape ignore-term"


def lived(path: str) -> None:
    """Both have: the program, and the grandchild that left it."""
    wait_until(lambda: len(stamp.read(path)) == 2, within_s=LIMIT_S)


def last_ms(path: str) -> float:
    return max(one.last_ns for one in stamp.read(path)) / 1e6


def frozen(caller: Caller, file: str) -> None:
    """The peer is stopped for ever; its call dies by the end of the hold that it proved last."""
    lived(file)
    began = boot_ms()
    caller.read("hold")
    wait_until(lambda: last_ms(file) > began + 300)
    caller.process.send_signal(signal.SIGSTOP)
    at = boot_ms()
    wait_until(lambda: boot_ms() > at + OVER_MS + 500)
    still = last_ms(file)
    time.sleep(0.05)
    safe(last_ms(file) == still, "nothing of it lives")
    caller.process.send_signal(signal.SIGKILL)
    caller.process.wait()
    caller.rest()
    assert still <= caller.over_at_ms
    assert still > began + 300, "the hold was proved anew, and it lived meanwhile"


def killed(caller: Caller, file: str) -> None:
    """The peer is killed; so is all that fetched for it."""
    lived(file)
    assert caller.guards()
    with Canary(GONE_MS / 8) as canary:
        caller.process.kill()
        at = boot_ms()
        caller.process.wait()
        wait_until(lambda: boot_ms() > at + GONE_MS + 200)
    took_ms = last_ms(file) - at
    canary.judge(took_ms < GONE_MS, f"it stamps until {took_ms:.0f} ms after the blow, {GONE_MS} at most")


def stopped(caller: Caller, file: str) -> None:
    """The guard itself is stopped: the kernel's timer kills it, and the tree with it."""
    lived(file)
    holding = [pid for pid in caller.guards() if children(pid, b"primacy-init")]
    os.kill(holding[0], signal.SIGSTOP)
    at = boot_ms()
    wait_until(lambda: boot_ms() > at + OVER_MS + 500)
    safe(last_ms(file) <= at + OVER_MS + 100, "it has read no extension since it was stopped")


@pytest.mark.parametrize(("kind", "way"), KINDS)
def test_all_that_fetches_dies_by_the_end_of_the_hold_of_a_frozen_peer(
    call: Call, file: str, kind: str, way: str
) -> None:
    frozen(call(sources(kind), file, way), file)


@pytest.mark.parametrize(("kind", "way"), KINDS)
def test_all_that_fetches_dies_with_a_killed_peer(call: Call, file: str, kind: str, way: str) -> None:
    killed(call(sources(kind), file, way), file)


def test_a_stopped_guard_is_killed_by_its_kernel_timer_and_takes_the_tree_along(call: Call, file: str) -> None:
    caller = call(sources("command"), file)
    stopped(caller, file)
    assert caller.read("ended") == "failed its guard was killed"
    assert caller.process.wait(LIMIT_S) == 0


DEADLINES = [
    ("        if now >= self.cancel_at:", "        if False:"),
    ("        if now >= self.kill_at and", "        if False and"),
]
TIMER = [("        tree.arm_deadman(self.deadman, deadman_at)", "        pass")]
BOND = [
    ("        if self.way:\n            tree.bind_to_parent()", "        if self.way:\n            pass"),
    ("            if self.peer_fd in ready:", "            if False:"),
    (
        "            if not packet:\n                self.leave()",
        "            if not packet:\n                os.kill(os.getpid(), 19)",
    ),
]
MUTANTS = {
    "nothing ends a call whose peer is frozen": (DEADLINES + TIMER, frozen),
    "the kernel's timer is not armed": (TIMER, stopped),
    "the guard is not bound to the peer": (BOND, killed),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(call: Call, file: str, tmp_path: Path, name: str) -> None:
    changes, scene = MUTANTS[name]
    folder = tmp_path / "guard"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "guard_calls.py").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "guard_calls.py").write_text(text)
    caller = call(sources("command"), file, "strong", folder)
    lived(file)
    guards = caller.guards()
    try:
        scene(caller, file)
    except (AssertionError, SafetyViolation):
        pass
    else:
        assert canary.VOIDS, f"{name}: not caught"  # what was not judged is tried again
    finally:
        for pid in guards:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_guard_that_is_killed_ends_the_call_when_its_tree_is_gone(call: Call, file: str) -> None:
    caller = call(sources("command"), file)
    lived(file)
    for pid in caller.guards():
        with contextlib.suppress(ProcessLookupError):  # it ended with the one before
            os.kill(pid, signal.SIGKILL)
    assert caller.read("ended") == "failed its guard was killed"
    still = last_ms(file)
    time.sleep(0.05)
    safe(last_ms(file) == still, "it was told only when nothing ran any more")


def test_an_async_function_that_refuses_to_end_ends_the_process(call: Call) -> None:
    caller = call("call:tests.support.cache_functions:abad", "stubborn")
    caller.read("hold")
    caller.process.send_signal(signal.SIGSTOP)
    time.sleep(OVER_MS / 1_000 + 0.3)
    with Canary(LOOK_MS) as looks:
        caller.process.send_signal(signal.SIGCONT)
        assert caller.process.wait(LIMIT_S) == 1
    assert caller.process.stderr is not None
    said = caller.process.stderr.read()
    why = "is not over by the end of its hold, although it was cancelled; this process ends"
    assert why in said or "the machine is so busy that the loop does not come round" in said
    looks.judge(why in said, f"the loop came round: {said}")


def test_an_async_function_that_blocks_the_loop_ends_the_process_in_time(call: Call) -> None:
    caller = call("call:tests.support.cache_functions:abad", "blocks")
    with Canary(100) as canary:
        over_at = int(caller.read("hold"))
        assert caller.process.wait(LIMIT_S) == 1
        late_ms = boot_ms() - over_at
    canary.judge(late_ms < 500, f"it ended {late_ms} ms after its hold; 4 seconds is what it would have blocked")
    assert caller.process.stderr is not None
    assert "an async source blocks the loop of this process" in caller.process.stderr.read()


def test_a_peer_that_was_frozen_goes_on_and_its_async_call_has_failed(call: Call) -> None:
    caller = call("call:tests.support.cache_functions:abad", "sleeps")
    caller.read("hold")
    time.sleep(0.3)
    caller.process.send_signal(signal.SIGSTOP)
    time.sleep(OVER_MS / 1_000 + 0.8)
    caller.process.send_signal(signal.SIGCONT)
    assert caller.read("ended") == "failed the hold was not proved anew in time"
    assert caller.process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("kind", ["command", "function"])
def test_a_peer_that_was_frozen_goes_on_and_its_processes_are_gone(call: Call, file: str, kind: str) -> None:
    caller = call(sources(kind), file)
    lived(file)
    caller.process.send_signal(signal.SIGSTOP)
    time.sleep(OVER_MS / 1_000 + 0.8)
    caller.process.send_signal(signal.SIGCONT)
    assert caller.read("ended").startswith("failed")
    assert caller.process.wait(LIMIT_S) == 0
    caller.rest()
    safe(last_ms(file) <= caller.over_at_ms, "it fetches beyond its hold")


def test_a_function_of_the_script_itself_can_be_handed_over(tmp_path: Path) -> None:
    script = tmp_path / "peer.py"
    script.write_text(
        """
import asyncio
from primacy.cache.effects import Call
from primacy.cache.model import Ballot
from primacy.cache.source import Calls, SourceSpec
from primacy.node.clock import SystemClock

def fetch(key):
    return b"here: " + key

async def main():
    clock, ended = SystemClock(), asyncio.Queue()
    calls = Calls([SourceSpec(fetch)], clock, ended.put_nowait)
    await calls.open()
    calls.start(Call(b"a", Ballot(1, "x", 1), clock.now_ms() + 9_000, clock.now_ms() + 9_900))
    print((await ended.get()).result.value.decode())
    await calls.close()

if __name__ == "__main__":
    asyncio.run(main())
"""
    )
    done = subprocess.run([sys.executable, str(script)], check=False, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("here: a\n", 0), done.stderr


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
def test_three_peers_never_run_the_command_of_one_key_at_once(tmp_path: Path, file: str, how: signal.Signals) -> None:
    """S1 in true time, although the peer that fetches is frozen: its command is dead before the next one starts."""

    async def main() -> None:
        source = f"cmd:{sys.executable} -I -S {HERE}/tests/support/stamp.py {file} escape ignore-term {{key}}"
        async with Crowd(tmp_path, 3, 0, source=source, judged=False) as crowd, Client(crowd.apis) as cache:
            asking = asyncio.create_task(cache.get("a", timeout_ms=30_000))
            await until(lambda: len(stamp.read(file)) == 2)
            (fetches,) = [
                process
                for process in crowd.processes
                if any(children(pid, b"primacy-init") for pid in children(process.pid, b"primacy-source"))
            ]
            fetches.send_signal(how)
            at = boot_ms()
            await until(lambda: len({one.start for one in stamp.read(file)}) == 2)
            print(f"{how.name}: the next one starts after {boot_ms() - at} ms")
            await asyncio.sleep(0.5)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(main())
    found = [wrong for wrong in stamp.violations(stamp.read(file)) if wrong.what == stamp.TWO_AT_ONCE]
    safe(not found, f"two at once: {found}")


until = partial(wait_until_async, within_s=LIMIT_S, every_s=0.005)
