"""The guard with real processes: who dies with whom, stops and restarts, the run lock, the release (G2-G5, G9-G11).

Whoever lived, and until when, is read from the stamps in a mapped file, never from what the guard says. What a rule
demands is in a function `holds_...`, here and in `test_guard_deadlines.py`, so that `test_guard_mutants.py` can show
that a guard without that rule fails.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import termios
from pathlib import Path
from typing import Any

import pytest

from primacy.supervise.containment import containment_sentence, start_guard
from primacy.supervise.guard_link import GuardLink
from tests.support.canary import Canary, beside_a_canary
from tests.support.guard_harness import (
    ALL,
    LIMIT_S,
    LONG_MS,
    OWN,
    PROMPT_MS,
    STRONG,
    Ended,
    Harness,
    OpenHarness,
    boot_ms,
    dead_in_time,
    ended_at_once,
    is_alive,
    need,
    open_harness,
    state_of,
    status_of,
    wait_until,
)
from tests.support.safety_checks import one_at_a_time, safe

pytestmark = [pytest.mark.moments(order=30), pytest.mark.ordinary]

__all__ = ["open_harness"]

MIB = 1024
RESIDENT_KIB_MAX = 14 * MIB
LIMITED = ("root", "traced", "weak")
"""The modes in which a test, also as root in a container, may change the limits of the guard."""
ROOM_MAX = 40
"""Descriptors: far more than a start needs."""


# --- who dies with whom -----------------------------------------------------------------------------------------------


def holds_when_guard_is_killed(harness: Harness) -> None:
    """G2, F10: the whole tree dies with the guard; the lock is free only then."""
    expect = 1 if harness.mode == "weak" else 2
    harness.start(*(["escape"] if expect == 2 else []), "ignore-term", expect=expect)
    with Canary(PROMPT_MS / 4) as canary:
        harness.signal(signal.SIGKILL, harness.guard_pid)
        killed_ms = boot_ms()
        wait_until(harness.lock_is_free, within_s=harness.killed_s)
    safe(harness.commands() == [], "something of it lives")
    assert harness.stamped()[-1].run == 1
    assert len(harness.stamped()) == expect
    ended_at_once(harness, killed_ms, canary)


def holds_when_both_are_stopped(harness: Harness) -> None:
    """G1, F04: agent and guard are stopped; the kernel's timer ends the tree within the hold."""
    expect = 1 if harness.mode == "weak" else 2
    ways = ["escape"] if expect == 2 else []
    points = harness.start(*ways, "ignore-term", expect=expect, long=False)
    harness.signal(signal.SIGSTOP, harness.agent_pid, harness.guard_pid)
    dead_in_time(harness, points)
    assert not is_alive(harness.guard_pid)
    wait_until(harness.lock_is_free)


def holds_when_agent_is_killed(harness: Harness) -> None:
    """G5, F02: the tree dies at once, and only then the release leaves."""
    harness.start("heavy", "escape", "forking", "ignore-term", expect=20)
    tree = harness.watch()
    with Canary(PROMPT_MS / 4) as canary:
        harness.signal(signal.SIGKILL, harness.agent_pid)
        killed_ms = boot_ms()
        arrived_ns = harness.release_arrived_ns(within_s=LIMIT_S)
        living = tree.living()
    tree.close()
    assert arrived_ns
    safe(living == 0, f"{living} processes lived when the release arrived")
    safe(harness.commands() == [], "something of it lives")
    safe(harness.last_ms() * 1e6 < arrived_ns, "it stamped after its release had arrived")
    if (
        harness.mode in STRONG
    ):  # weak: they are hunted one by one, and a canary does not vouch for how fast that is done
        ended_at_once(harness, killed_ms, canary)
    wait_until(lambda: not is_alive(harness.guard_pid))
    wait_until(harness.lock_is_free)  # a lock holder ends when it has seen that the tree is gone


@pytest.mark.parametrize("mode", ALL)
def test_G2_a_killed_guard_takes_the_tree_with_it(open_harness: OpenHarness, mode: str) -> None:
    holds_when_guard_is_killed(open_harness(mode))


@pytest.mark.parametrize("mode", ALL)
@beside_a_canary(PROMPT_MS / 2, passes_if_late=True)
def test_G1_the_kernel_ends_the_tree_of_a_stopped_guard(open_harness: OpenHarness, mode: str) -> None:
    holds_when_both_are_stopped(open_harness(mode))


@pytest.mark.parametrize("mode", ALL)
def test_G5_a_killed_agent_is_followed_by_its_tree_and_then_the_release(open_harness: OpenHarness, mode: str) -> None:
    holds_when_agent_is_killed(open_harness(mode))


# --- stops, ends and restarts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_G9_a_planned_stop(open_harness: OpenHarness, mode: str) -> None:
    """The signal at once; leadership, and with it the deadlines of the hold, go on meanwhile."""
    harness = open_harness(mode)
    harness.start("escape", expect=2)
    harness.say("stop", signal=signal.SIGUSR1, kill_at=boot_ms() + LONG_MS)
    assert harness.hear("exited") == {"is": "exited", "run": 1, "code": None, "signal": signal.SIGUSR1}
    assert harness.hear("gone") == {"is": "gone", "run": 1, "released": False}
    safe(harness.commands() == [], "something of it lives")
    harness.say("bye")
    with pytest.raises(Ended):
        harness.hear()
    wait_until(harness.lock_is_free)


def test_G9_a_planned_stop_has_an_end(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN)
    harness.start("ignore-term")
    kill_at = boot_ms() + 100
    harness.say("stop", signal=signal.SIGTERM, kill_at=kill_at)
    assert harness.hear("exited")["signal"] == signal.SIGKILL
    assert kill_at <= boot_ms()
    harness.hear("gone")


@pytest.mark.parametrize("mode", ALL)
def test_F06_a_stopped_command_can_be_stopped(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    harness.start()
    (command,) = harness.commands()
    harness.signal(signal.SIGSTOP, command)
    wait_until(lambda: state_of(command) in ("T", "t"))  # t: stopped under a tracer
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + LONG_MS)
    assert harness.hear("exited")["signal"] == signal.SIGTERM
    harness.hear("gone")
    harness.start(run=2)
    (command,) = harness.commands()
    harness.signal(signal.SIGSTOP, command)
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms())
    assert harness.hear("exited")["signal"] in (signal.SIGTERM, signal.SIGKILL)
    harness.hear("gone")


@pytest.mark.parametrize("mode", ALL)
def test_G10_a_restart_waits_until_the_whole_old_tree_is_gone(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    harness.start("escape", "usr1=3", expect=2)
    command = harness.news[-1]["pid"]
    harness.order(run=2)
    assert harness.hear("failed") == {"is": "failed", "run": 2, "why": "run 1 is not gone yet"}
    harness.signal(signal.SIGUSR1, command)
    assert harness.hear("exited") == {"is": "exited", "run": 1, "code": 3, "signal": None}
    assert harness.hear("gone") == {"is": "gone", "run": 1, "released": False}
    safe(harness.commands() == [], "something of it lives")
    harness.start("escape", expect=2, run=2)
    assert not harness.lock_is_free()
    stamped = harness.stamped()
    assert [one.run for one in stamped] == [1, 1, 2, 2]
    one_at_a_time(stamped)


# --- the run lock -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_G3_no_second_start_while_the_lock_is_held(open_harness: OpenHarness, mode: str) -> None:
    one = open_harness(mode)
    one.start()
    two = open_harness(mode, lock=one.lock)
    two.order()
    assert two.hear("locked") == {"is": "locked", "by": one.guard_pid}
    one.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + LONG_MS)
    one.hear("exited")
    one.hear("gone")
    two.order()
    assert two.hear("locked")["by"] == one.guard_pid
    one.say("bye")
    wait_until(one.lock_is_free)
    two.start()


@pytest.mark.parametrize("mode", ALL)
def test_G11_a_lock_file_that_is_removed_while_it_is_held_frees_nothing(open_harness: OpenHarness, mode: str) -> None:
    """Nor once the guard is gone and only what keeps the lock in its place is left. The file is made anew each time."""
    one = open_harness(mode)
    one.start("escape", expect=2)
    one.lock.unlink()
    two = open_harness(mode, lock=one.lock)
    two.order(run=2)
    assert two.hear("locked") == {"is": "locked", "by": None}
    one.signal(signal.SIGKILL, one.guard_pid)
    if mode == "weak":
        wait_until(lambda: len(one.commands()) == 1)
        two.order(run=2)
        assert two.hear("locked")["by"] is None, "what outlives the guard has inherited it"
        one.signal(signal.SIGKILL, *one.commands())
    two.order(run=2)
    while two.hear("locked", "running")["is"] == "locked":
        two.order(run=2)
    wait_until(two.stamped)
    one_at_a_time(one.stamped() + two.stamped())


@pytest.mark.parametrize("mode", LIMITED)
def test_G3_the_number_in_the_lock_file_is_only_for_a_sentence(open_harness: OpenHarness, mode: str) -> None:
    """As on a disk that is full: the lock is held whether the number finds room or not."""
    one = open_harness(mode)
    resource.prlimit(one.guard_pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    one.start()
    two = open_harness(mode, lock=one.lock)
    two.order()
    assert two.hear("locked") == {"is": "locked", "by": None}


@pytest.mark.parametrize("mode", LIMITED)
def test_G3_a_start_that_lacks_descriptors_is_answered_and_keeps_none(open_harness: OpenHarness, mode: str) -> None:
    """For each call that a start makes, one too many: the answer is `failed`, and the next one may run."""
    one = open_harness(mode)
    limits = resource.prlimit(one.guard_pid, resource.RLIMIT_NOFILE)
    folder, run = f"/proc/{one.guard_pid}/fd", 0
    least = len(os.listdir(folder))
    said = {"is": "failed"}
    for room in range(ROOM_MAX):
        resource.prlimit(one.guard_pid, resource.RLIMIT_NOFILE, (least + room, limits[1]))
        run += 1
        one.order(run=run, s_ms=boot_ms() + LONG_MS)
        said = one.hear("failed", "running")
        if said["is"] == "running":
            break
        assert "Too many open files" in said["why"]
        assert room or len(os.listdir(folder)) == least, "nothing was opened, and nothing is held"
        assert one.lock_is_free() or len(os.listdir(folder)) >= least + 2, "held, by file and folder"
    assert said["is"] == "running", said
    assert run > 2, "descriptors were lacking"
    one_at_a_time(one.stamped())


def holds_lock_until_the_last_is_gone(harness: Harness) -> None:
    """G3: whoever finds the lock free after the guard was killed finds no process of the tree either."""
    harness.start("heavy", "escape", "ignore-term", expect=2)
    tree = harness.watch()
    harness.signal(signal.SIGKILL, harness.guard_pid)
    while not harness.lock_is_free():
        pass
    living = tree.living()
    tree.close()
    safe(living == 0, f"{living} processes lived when the lock was free")


@pytest.mark.parametrize("mode", STRONG)
def test_G3_the_lock_is_free_only_when_the_last_descendant_is_gone(open_harness: OpenHarness, mode: str) -> None:
    holds_lock_until_the_last_is_gone(open_harness(mode))


@pytest.mark.parametrize("mode", ["weak"])
def test_G3_weak_what_outlives_a_killed_guard_keeps_the_next_start_away(open_harness: OpenHarness, mode: str) -> None:
    """The named limit of weak: the one that left the command lives on. It has inherited the lock."""
    one = open_harness(mode)
    one.start("escape", expect=2)
    one.signal(signal.SIGKILL, one.guard_pid)
    wait_until(lambda: len(one.commands()) == 1)
    two = open_harness(mode, lock=one.lock)
    two.order(run=2)
    assert two.hear("locked")["by"] == one.guard_pid
    one.signal(signal.SIGKILL, *one.commands())
    wait_until(one.lock_is_free)
    two.start(run=2)
    one_at_a_time(one.stamped() + two.stamped())


@pytest.mark.parametrize("mode", ["root", "user", "weak"])
def test_G3_a_killed_lock_holder_is_replaced(open_harness: OpenHarness, mode: str) -> None:
    """Unless it is the one that reaps a traced tree: see `test_guard_trace.py`."""
    harness = open_harness(mode)
    harness.start()
    lock_holder = harness.lock_holder()
    harness.signal(signal.SIGKILL, lock_holder)
    wait_until(lambda: harness.named("primacy-lock") not in ([], [lock_holder]))
    assert harness.commands()


def test_a_lock_file_that_was_replaced_is_not_the_lock(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN)
    harness.lock.unlink()
    harness.start()
    assert not harness.lock_is_free()
    assert stat.S_IMODE(harness.lock.stat().st_mode) == 0o600
    assert int(harness.lock.read_text()) == harness.guard_pid


# --- the release ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_G5_a_closed_socket_is_no_dead_agent(open_harness: OpenHarness, mode: str) -> None:
    """The tree is stopped in order and the guard ends, without a release."""
    harness = open_harness(mode)
    harness.start("escape", expect=2)
    harness.socket.close()
    wait_until(lambda: not is_alive(harness.guard_pid))
    safe(harness.commands() == [], "something of it lives")
    assert is_alive(harness.agent_pid)
    assert harness.release_arrived_ns() is None
    wait_until(harness.lock_is_free)


def test_G5_an_agent_that_dies_as_agents_do(open_harness: OpenHarness) -> None:
    """Its socket is closed a moment before its death can be seen; that must not cost the release."""
    harness = open_harness(OWN)
    harness.start()
    harness.signal(signal.SIGSTOP, harness.guard_pid)
    harness.socket.close()
    harness.signal(signal.SIGCONT, harness.guard_pid)
    wait_until(lambda: not harness.commands())
    harness.signal(signal.SIGKILL, harness.agent_pid)
    wait_until(harness.release_arrived_ns)


def test_G5_an_ordered_release_waits_for_the_end_of_the_tree(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN)
    harness.start("ignore-term")
    host, port = harness.inbox.getsockname()
    harness.say("release", datagrams=[[base64.b64encode(b"release").decode(), host, port], ["?", "no.name.here", 9]])
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + 100)
    while boot_ms() < harness.last_ms() + 50 and harness.commands():
        safe(harness.release_arrived_ns() is None or not harness.commands(), "released while something of it lives")
    harness.hear("exited")
    assert harness.hear("gone") == {"is": "gone", "run": 1, "released": True}
    arrived = harness.release_arrived_ns()
    assert arrived is not None
    safe(harness.last_ms() * 1e6 < arrived, "it stamped after its release had arrived")
    harness.order(run=2)
    assert harness.hear("failed")["why"] == "a release was ordered"


def test_G5_a_release_ordered_after_the_end(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN)
    harness.start("exit=0,20")
    harness.hear("exited")
    harness.hear("gone")
    host, port = harness.inbox.getsockname()
    harness.say("release", datagrams=[[base64.b64encode(b"release").decode(), host, port]])
    assert harness.hear("gone") == {"is": "gone", "run": 1, "released": True}
    assert harness.release_arrived_ns() is not None
    assert harness.release_arrived_ns() is not None, "it is sent twice"
    harness.signal(signal.SIGKILL, harness.agent_pid)
    wait_until(lambda: not is_alive(harness.guard_pid))
    assert harness.release_arrived_ns() is None


def holds_spare_releases_nothing(harness: Harness) -> None:
    """G4: it holds no lock, so that neither an order nor its agent's death gets a release out of it."""
    host, port = harness.inbox.getsockname()
    harness.say("release", datagrams=[[base64.b64encode(b"release").decode(), host, port]])
    assert harness.hear("gone") == {"is": "gone", "run": 0, "released": False}
    harness.signal(signal.SIGKILL, harness.agent_pid)
    wait_until(lambda: not is_alive(harness.guard_pid))
    assert harness.release_arrived_ns() is None


def test_G4_a_spare_guard_releases_nothing(open_harness: OpenHarness) -> None:
    holds_spare_releases_nothing(open_harness(OWN))


def test_G5_an_agent_that_dies_between_two_runs_leaves_a_release(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN)
    harness.start("exit=0,20")
    harness.hear("exited")
    harness.hear("gone")
    harness.signal(signal.SIGKILL, harness.agent_pid)
    wait_until(harness.release_arrived_ns)
    wait_until(lambda: not is_alive(harness.guard_pid))


# --- the guard itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_G9_the_guard_stands_alone(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    harness.start("escape", expect=2)
    assert os.getsid(harness.guard_pid) == harness.guard_pid
    harness.signal(signal.SIGTERM, harness.guard_pid)
    harness.signal(signal.SIGINT, harness.guard_pid)
    harness.signal(signal.SIGHUP, harness.guard_pid)
    harness.say("nonsense")
    assert harness.hear("error")["why"] == "not now, or never heard of: nonsense"
    harness.say("bye")
    harness.hear("error")
    harness.socket.send(b"{")
    harness.hear("error")
    harness.socket.send(b"[1]")
    harness.hear("error")
    assert len(harness.commands()) == 2
    assert [os.sched_getscheduler(pid) for pid in harness.commands()] == [os.SCHED_OTHER] * 2


def test_strong_containment_can_be_required(open_harness: OpenHarness) -> None:
    harness = open_harness("weak", containment="strong")
    harness.order()
    assert harness.hear("failed")["why"] == "strong containment is required and cannot be had here"


def test_G2_the_sentence_says_what_holds_why_and_the_cure(open_harness: OpenHarness) -> None:
    (ready,) = open_harness("weak").news
    sentence = containment_sentence(ready["containment"], ready["why"])
    assert sentence.startswith("containment is weak: no pid namespace can be made (No space left on device: ")
    assert "and the command cannot be traced (Operation not permitted" in sentence
    assert "to make it strong, allow ptrace (kernel.yama.ptrace_scope below 2" in sentence
    assert "\n" not in sentence
    strong = containment_sentence("strong", "x", "ptrace")
    assert strong.startswith("containment is strong (ptrace): x, and")
    assert "the kernel ends every process" in strong


def test_a_guard_refuses_a_stranger_as_agent(open_harness: OpenHarness) -> None:
    need(OWN)
    harness = Harness(OWN)
    try:
        harness.say("hello", agent=os.getpid(), lock=str(harness.lock), containment="any")
        with pytest.raises(Ended):
            harness.hear()
    finally:
        harness.close()


def test_start_guard_makes_a_small_guard_that_ends_with_its_socket(tmp_path: Path) -> None:
    guard = start_guard()
    with guard.socket:
        hello = {"do": "hello", "agent": os.getpid(), "lock": str(tmp_path / "lock"), "containment": "any"}
        guard.socket.send(json.dumps(hello).encode())
        assert json.loads(guard.socket.recv(65536))["is"] == "ready"
        environment = Path(f"/proc/{guard.process.pid}/environ").read_bytes().split(b"\0")
        assert [each for each in environment if each and not each.startswith(b"LD_LIBRARY_PATH=")] == []
        resident_kib = int(status_of(guard.process.pid)["VmRSS"].split()[0])
    assert guard.process.wait(timeout=LIMIT_S) == 0
    assert resident_kib <= RESIDENT_KIB_MAX


def test_the_agents_link_uses_the_pipe_and_a_packet_when_that_is_full(tmp_path: Path) -> None:
    """It never waits, and a guard that has not looked for long is woken."""

    async def scene() -> None:
        said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        ended = asyncio.Event()
        link = GuardLink(lambda _, packet: said.put_nowait(packet), lambda _: ended.set())
        link.hello(str(tmp_path / "lock"), "any")
        assert (await said.get())["is"] == "ready"
        os.kill(link.process.pid, signal.SIGSTOP)
        extended = 0
        while not unread_bytes(link.socket):
            link.extend(1, 2, 3)
            extended += 1
        assert extended > 1_000, "a guard that sleeps has room for minutes"
        os.kill(link.process.pid, signal.SIGCONT)
        while unread_bytes(link.socket):
            await asyncio.sleep(0.001)
        link.send({"do": "bye"})
        await ended.wait()
        link.extend(1, 2, 3)
        assert said.empty(), said

    asyncio.run(asyncio.wait_for(scene(), 2 * LIMIT_S))


def unread_bytes(line: socket.socket) -> int:
    """What was sent and not read yet."""
    return int(struct.unpack("i", fcntl.ioctl(line, termios.TIOCOUTQ, b"    "))[0])
