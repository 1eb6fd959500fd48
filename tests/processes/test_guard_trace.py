"""The guard's second way to hold a tree, with real processes: every process of it is traced (G2, G3).

What every way of strong containment must do is demanded in `test_guard.py` and `test_guard_deadlines.py` of this one,
too. Here: that nothing gets out of it, that the command hardly notices it, and who keeps the run lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from typing import Any

import pytest
from bench.containment import first

from tests.processes.test_guard import holds_lock_until_the_last_is_gone, holds_when_guard_is_killed
from tests.support.canary import Canary
from tests.support.guard_harness import (
    KILLED_S,
    LONG_MS,
    NOBODY,
    PROMPT_MS,
    TRACED,
    Ended,
    Harness,
    OpenHarness,
    boot_ms,
    dead_after,
    ended_at_once,
    is_alive,
    open_harness,
    state_of,
    status_of,
    wait_until,
)
from tests.support.safety_checks import SafetyViolation, one_at_a_time, safe

pytestmark = pytest.mark.moments(order=10)

__all__ = ["open_harness"]

CLONE = """
import ctypes, errno, json, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"

def clone(flags):
    pid = libc.syscall(ctypes.c_long(56 if x86 else 220), ctypes.c_long(flags | signal.SIGCHLD), 0, 0, 0, 0)
    return pid if pid >= 0 else -ctypes.get_errno()

def clone3(flags):
    words = (ctypes.c_uint64 * 8)(flags, 0, 0, 0, signal.SIGCHLD)
    pid = libc.syscall(ctypes.c_long(435), ctypes.byref(words), ctypes.c_long(64))
    return pid if pid >= 0 else -ctypes.get_errno()
"""
UNTRACED = 0x00800000
GETS_OUT = """
found = {}
for name, call in (("clone", clone), ("clone3", clone3)):
    found[name] = call(%d)
    if found[name] == 0:
        os.setsid()
        time.sleep(20)
        os._exit(0)
found["plain"] = clone(0)
if found["plain"] == 0:
    os._exit(0)
print(json.dumps(found), flush=True)
time.sleep(20)
"""
OTHER_CALLS = """
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("53 89f8 89f3 31c9 31d2 31f6 31ff cd80 5b c3"))  # as a 32-bit program does: int 0x80
int80 = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

def x32(flags):
    pid = libc.syscall(ctypes.c_long(0x40000000 | 56), ctypes.c_long(flags), 0, 0, 0, 0)
    return pid if pid >= 0 else -ctypes.get_errno()

trial = os.fork()
if trial == 0:
    os._exit(int80(20, 0) != os.getpid())
found = {"32 bits": os.waitpid(trial, 0)[1]}
flags = %d | signal.SIGCHLD
calls = {"x32": lambda: x32(flags)}
if not found["32 bits"]:
    calls |= {"clone": lambda: int80(120, flags), "clone3": lambda: int80(435, 0)}
for name, call in calls.items():
    found[name] = call()
    if found[name] == 0:
        os.setsid()
        time.sleep(20)
        os._exit(0)
print(json.dumps(found), flush=True)
time.sleep(20)
"""
ASKS_PTRACE = """
def ptrace(*words):
    return -ctypes.get_errno() if libc.ptrace(*map(ctypes.c_long, words)) < 0 else 0
print(json.dumps({"traceme": ptrace(0, 0, 0, 0), "guard": ptrace(0x4206, int(sys.argv[2]), 0, 0),
  "holder": ptrace(0x4206, os.getppid(), 0, 0), "parent": os.getppid()}), flush=True)
time.sleep(20)
"""
JOBS = """
import json, os, signal, sys, time
said = []
child = os.fork()
if child == 0:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # it may come before it is waited for
    os.setpgid(0, 0)
    for each in (signal.SIGSTOP, signal.SIGTSTP):
        os.kill(0, each)
        signal.sigwait([signal.SIGUSR1])  # a second stop before the parent looks would hide that it went on
    os._exit(7)
for _ in range(2):
    said.append(os.WSTOPSIG(os.waitpid(child, os.WUNTRACED)[1]))
    time.sleep(0.05)
    said.append(os.waitpid(child, os.WNOHANG)[0])
    os.kill(child, signal.SIGCONT)
    said.append(os.WIFCONTINUED(os.waitpid(child, os.WCONTINUED)[1]))
    time.sleep(0.05)
    os.kill(child, signal.SIGUSR1)
said.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(said), flush=True)
"""
ALL_SORTS = """
import json, os, signal, subprocess, sys, threading, time
said = {}
def add(each):
    said[each] = threading.get_native_id() != os.getpid()
threads = [threading.Thread(target=add, args=(f"thread {each}",)) for each in range(20)]
[each.start() for each in threads]
[each.join() for each in threads]
said["spawned"] = os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {}), 0)[1]
said["vforked"] = subprocess.run(["/bin/sh", "-c", "exit 4"], close_fds=False).returncode
heard = []
signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
end = time.monotonic() + 10
while len(heard) <= 20 and time.monotonic() < end:
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
said["signals"] = len(heard) > 20
code = f"import json; print(json.dumps({said!r} | dict(executed=True)), flush=True)"
threading.Thread(target=lambda: os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", code])).start()
time.sleep(20)
"""

ALL_HEAR = """
import os, signal, sys
for _ in range(%d):
    if os.fork() == 0:
        break
def hear(*_):
    os.close(os.open(f"{sys.argv[1]}/heard-{os.getpid()}", os.O_CREAT, 0o600))
signal.signal(signal.SIGUSR1, hear)
os.close(os.open(f"{sys.argv[1]}/ready-{os.getpid()}", os.O_CREAT, 0o600))
while True:
    signal.pause()
"""
KERNEL_5_18 = """
newer = ptrace

def ptrace(request, pid, data=0):
    if request != PTRACE_KILL:
        return newer(request, pid, data)
    with contextlib.suppress(OSError):
        newer(PTRACE_CONT, pid)

def kills_by_ptrace():
    return False
"""


def says(harness: Harness, code: str, *arguments: str, run: int = 1) -> Any:
    """What a command with this code prints first."""
    out = harness.folder / f"out-{run}"
    argv = [harness.anyones_python, "-I", "-S", "-c", code, str(harness.folder), *arguments]
    harness.order(run=run, s_ms=boot_ms() + LONG_MS, argv=argv, stdout=str(out))
    harness.hear("running")
    wait_until(lambda: out.exists() and out.read_text().endswith("\n"))
    return json.loads(out.read_text())


# --- no way out -------------------------------------------------------------------------------------------------------


def holds_whatever_is_asked_of_clone(harness: Harness) -> None:
    found = says(harness, CLONE + GETS_OUT % UNTRACED)
    assert harness.commands()
    harness.signal(signal.SIGKILL, harness.guard_pid)
    wait_until(lambda: not is_alive(harness.guard_pid))
    wait_until(harness.lock_is_free, within_s=harness.killed_s)
    time.sleep(0.02)
    safe(harness.commands() == [], "something of it lives")
    assert found["clone"] == -1, "EPERM"
    assert found["clone3"] == -38, "ENOSYS, so that C libraries use clone"
    assert found["plain"] > 0


@pytest.mark.parametrize("mode", TRACED)
def test_G2_a_process_cannot_ask_not_to_be_traced(open_harness: OpenHarness, mode: str) -> None:
    holds_whatever_is_asked_of_clone(open_harness(mode))


def holds_for_every_way_to_call_the_kernel(harness: Harness) -> None:
    """A 32-bit program's numbers are others, and those of x32 have a bit more."""
    if os.uname().machine != "x86_64":
        pytest.skip("this processor has other calls")
    found = says(harness, CLONE + OTHER_CALLS % UNTRACED)
    assert found.pop("x32") == -1, "EPERM, also from a kernel that has no such calls"
    if found.pop("32 bits"):
        pytest.skip("this kernel runs no 32-bit programs")
    assert found == {"clone": -1, "clone3": -38}
    assert harness.commands()
    harness.signal(signal.SIGKILL, harness.guard_pid)
    wait_until(harness.lock_is_free, within_s=harness.killed_s)
    safe(harness.commands() == [], "something of it lives")


def test_G2_a_process_cannot_ask_so_in_another_way(open_harness: OpenHarness) -> None:
    holds_for_every_way_to_call_the_kernel(open_harness("traced"))


@pytest.mark.parametrize("mode", TRACED)
def test_G2_the_command_can_trace_nobody_and_cannot_make_the_guard_let_go(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    found = says(harness, CLONE + ASKS_PTRACE, str(harness.guard_pid))
    assert found.pop("parent") == harness.lock_holder()
    assert found == {"traceme": -1, "guard": -1, "holder": -1}, "EPERM"
    assert harness.commands()


def holds_when_guard_is_killed_in_a_storm(harness: Harness) -> None:
    """New processes appear, and old ones leave their sessions, while the guard dies."""
    harness.start("forking", "hopping", "escape", "ignore-term", expect=30)
    with Canary(PROMPT_MS / 4) as canary:
        harness.signal(signal.SIGKILL, harness.guard_pid)
        killed_ms = boot_ms()
        wait_until(harness.lock_is_free, within_s=KILLED_S)
    safe(harness.commands() == [], "something of it lives")
    seen = harness.last_ms()
    time.sleep(0.05)
    safe(harness.last_ms() == seen, "something of it lives on")
    canary.judge(seen - killed_ms < 1_000, f"stamps until {seen - killed_ms:.0f} ms after the blow")


@pytest.mark.parametrize("mode", TRACED)
def test_G2_a_tree_that_forks_while_the_guard_is_killed(open_harness: OpenHarness, mode: str) -> None:
    holds_when_guard_is_killed_in_a_storm(open_harness(mode))


@pytest.mark.parametrize("mode", TRACED)
def test_G2_a_stopped_tree_dies_with_its_guard(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    harness.start("escape", "ignore-term", expect=2)
    tree = harness.commands()
    harness.signal(signal.SIGSTOP, *tree)
    wait_until(lambda: all(state_of(pid) == "t" for pid in tree))
    with Canary(PROMPT_MS / 4) as canary:
        harness.signal(signal.SIGKILL, harness.guard_pid)
        killed_ms = boot_ms()
        wait_until(harness.lock_is_free, within_s=KILLED_S)
    safe(harness.commands() == [], "something of it lives")
    ended_at_once(harness, killed_ms, canary)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a set-user-ID program")
def test_a_set_user_id_program_has_no_effect(open_harness: OpenHarness) -> None:
    """As inside a user namespace: the kernel gives a traced program no rights that its tracer does not have."""
    harness = open_harness("traced")
    program = harness.folder / "id"
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    said = subprocess.run([program, "-u"], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=True)
    assert said.stdout == b"0\n", "it has one without a guard"
    code = "import os, sys; os.execv(sys.argv[1] + '/id', ['id', '-u'])"
    assert says(harness, code) == NOBODY


# --- the command hardly notices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", TRACED)
def test_stops_of_a_group_are_stops(open_harness: OpenHarness, mode: str) -> None:
    """A shell with jobs in it sees them stop, stay so, and go on."""
    assert says(open_harness(mode), JOBS) == [signal.SIGSTOP, 0, True, signal.SIGTSTP, 0, True, 7]


def test_threads_vfork_signals_and_a_thread_that_executes(open_harness: OpenHarness) -> None:
    harness = open_harness("traced")
    said = says(harness, ALL_SORTS)
    assert [said.pop(f"thread {each}") for each in range(20)] == [True] * 20
    assert said == {"spawned": 3 << 8, "vforked": 4, "signals": True, "executed": True}
    assert harness.hear("exited")["code"] == 0
    harness.hear("gone")


def test_F09_a_tree_of_another_user_is_killed_also_without_the_right_to_signal_it(open_harness: OpenHarness) -> None:
    harness = open_harness("capless")
    harness.start("ignore-term", "escape", "forking", expect=10, uid=NOBODY, gid=NOBODY, groups=[])
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms())
    assert harness.hear("exited")["signal"] == signal.SIGKILL
    harness.hear("gone")
    safe(harness.commands() == [], "something of it lives")
    assert is_alive(harness.guard_pid)


def test_the_command_of_another_user_is_asked_to_end_also_without_the_right_to_signal_it(
    open_harness: OpenHarness,
) -> None:
    harness = open_harness("capless")
    out = harness.folder / "out"
    argv = ["/bin/sh", "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done", str(harness.folder)]
    more: dict[str, Any] = {"argv": argv, "stdout": str(out), "uid": NOBODY, "gid": NOBODY, "groups": []}
    harness.order(s_ms=boot_ms() + LONG_MS, **more)
    harness.hear("running")
    wait_until(lambda: out.exists() and out.read_text())
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + LONG_MS // 4)
    assert harness.hear("exited")["code"] == 3
    harness.hear("gone")
    assert status_of(harness.guard_pid)["Uid"].split() == ["0"] * 4


def test_F09_where_the_kernel_kills_nothing_by_ptrace_the_guard_ends_and_all_with_it(open_harness: OpenHarness) -> None:
    """As before Linux 5.19. It would try for ever; the others wait out the hold, for no release is sent."""
    harness = open_harness("capless", mutant={"guard_trace.py": KERNEL_5_18})
    harness.start("ignore-term", "escape", expect=2, uid=NOBODY, gid=NOBODY, groups=[])
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms())
    with pytest.raises(Ended):
        harness.hear("exited", within_s=KILLED_S)
    wait_until(harness.lock_is_free, within_s=KILLED_S)
    safe(harness.commands() == [], "something of it lives")
    assert harness.release_arrived_ns() is None


def test_a_fork_storm_keeps_no_deadline_away(open_harness: OpenHarness) -> None:
    harness = open_harness("traced")
    harness.start("forking", "hopping", "ignore-term", expect=20)
    kill_at = boot_ms() + 100
    harness.say("stop", signal=signal.SIGTERM, kill_at=kill_at)
    harness.hear("exited")
    harness.hear("gone")
    assert kill_at <= boot_ms()
    dead_after(harness)


FORKS_UNTIL = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
time.sleep(20)
"""


def test_the_guard_of_a_tree_that_forks_all_the_time_leaves_the_processor_to_others(open_harness: OpenHarness) -> None:
    """In real time it kept all others from a core for up to 0.9 s. Its tree is quiet: it goes first again."""
    harness = open_harness("capless")

    def goes_first() -> bool:
        return os.sched_getscheduler(harness.guard_pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO

    if not goes_first():
        pytest.skip("this machine gives nobody real time")
    quiet = harness.folder / "quiet"
    harness.order(
        s_ms=boot_ms() + 4 * LONG_MS, argv=[harness.anyones_python, "-I", "-S", "-c", FORKS_UNTIL, str(quiet)]
    )
    harness.hear("running")
    wait_until(lambda: not goes_first(), within_s=60.0)
    quiet.touch()
    wait_until(goes_first, within_s=60.0)
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms())
    harness.hear("exited")
    harness.hear("gone")


def test_much_at_once_keeps_nothing_standing(open_harness: OpenHarness) -> None:
    """More than is attended to in a row, and then no further news: all that could tell of something stand still."""
    few, many = 2, 9
    harness = open_harness("traced", mutant={"guard_trace.py": f"EVENTS_MAX = {few}"})
    harness.order(
        s_ms=boot_ms() + LONG_MS, argv=[harness.python, "-I", "-S", "-c", ALL_HEAR % many, str(harness.folder)]
    )
    harness.hear("running")
    wait_until(lambda: len(list(harness.folder.glob("ready-*"))) == many + 1)
    tree = harness.commands()
    harness.signal(signal.SIGSTOP, harness.guard_pid)
    harness.signal(signal.SIGUSR1, *tree)
    wait_until(lambda: all(state_of(pid) == "t" for pid in tree))
    harness.signal(signal.SIGCONT, harness.guard_pid)
    wait_until(lambda: len(list(harness.folder.glob("heard-*"))) == many + 1)


# --- the run lock -----------------------------------------------------------------------------------------------------


def holds_lock_until_the_heavy_orphan_is_gone(harness: Harness) -> None:
    """G3: the command is gone long before what left it is."""
    harness.start("escape-heavy", "ignore-term", expect=2)
    tree = harness.watch()
    with open(harness.lock, "rb") as lock, first():
        harness.signal(signal.SIGKILL, harness.guard_pid)
        fcntl.flock(lock, fcntl.LOCK_EX)
        living = tree.living()
    tree.close()
    safe(living == 0, f"{living} processes lived when the lock was free")


@pytest.mark.parametrize("mode", TRACED)
def test_G3_the_lock_waits_for_what_left_the_command(open_harness: OpenHarness, mode: str) -> None:
    holds_lock_until_the_heavy_orphan_is_gone(open_harness(mode))


def test_G3_the_command_has_nothing_of_the_lock(open_harness: OpenHarness) -> None:
    harness = open_harness("traced")
    code = "import json, os; print(json.dumps([os.path.exists(f'/proc/self/fd/{fd}') for fd in range(99)]))"
    assert [fd for fd, is_open in enumerate(says(harness, code)) if is_open] == [0, 1, 2]


def test_G3_a_killed_lock_holder_ends_the_run_and_the_next_one_has_its_own(open_harness: OpenHarness) -> None:
    """Nobody else could know when the tree is gone. The guard holds the lock until it has ended it itself."""
    harness = open_harness("traced")
    harness.start("escape", "ignore-term", expect=2)
    harness.signal(signal.SIGKILL, harness.lock_holder())
    assert harness.hear("exited")["signal"] == signal.SIGKILL
    harness.hear("gone")
    safe(harness.commands() == [], "something of it lives")
    assert not harness.lock_is_free()
    harness.start("escape", expect=2, run=2)
    assert harness.lock_holder()
    one_at_a_time(harness.stamped())


@pytest.mark.parametrize("mode", ["root", "user", "traced"])
def test_G3_a_stopped_lock_holder_goes_on_when_the_guard_is_dead(open_harness: OpenHarness, mode: str) -> None:
    """It would keep the lock for ever."""
    harness = open_harness(mode)
    harness.start("escape", "ignore-term", expect=2)
    harness.signal(signal.SIGSTOP, harness.lock_holder())
    harness.signal(signal.SIGKILL, harness.guard_pid)
    wait_until(harness.lock_is_free, within_s=KILLED_S)
    safe(harness.commands() == [], "something of it lives")


def test_G3_a_stopped_lock_holder_delays_no_end(open_harness: OpenHarness) -> None:
    harness = open_harness("traced")
    harness.start("escape", "ignore-term", expect=2)
    harness.signal(signal.SIGSTOP, harness.lock_holder())
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms())
    harness.hear("exited")
    harness.hear("gone")
    safe(harness.commands() == [], "something of it lives")


def kill_all(*pids: int) -> None:
    """One may be gone already because of the other."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("mode", TRACED)
def test_G2_guard_and_lock_holder_killed_at_once(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    harness.start("escape", "forking", "ignore-term", expect=20)
    with Canary(PROMPT_MS / 4) as canary:
        kill_all(harness.lock_holder(), harness.guard_pid)
        killed_ms = boot_ms()
        wait_until(lambda: not harness.commands(), within_s=KILLED_S)
    ended_at_once(harness, killed_ms, canary)
    wait_until(harness.lock_is_free)


@pytest.mark.parametrize("mode", TRACED)
def test_F03_all_killed_at_once(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    harness.start("escape", "forking", "ignore-term", expect=20)
    with Canary(PROMPT_MS / 4) as canary:
        kill_all(harness.agent_pid, harness.lock_holder(), harness.guard_pid)
        killed_ms = boot_ms()
        wait_until(lambda: not harness.commands(), within_s=KILLED_S)
    ended_at_once(harness, killed_ms, canary)
    arrived_ns = harness.release_arrived_ns()
    safe(arrived_ns is None or harness.last_ms() * 1e6 < arrived_ns, "it stamped after its release had arrived")


# --- rules taken out --------------------------------------------------------------------------------------------------

ATTEMPTS = 5
"""Some are seen for a moment only, in which the test may not have the processor."""
TRUSTS = "\ndef why_not_traced():\n    return ''\n"
"""The trial at the start would find out."""
MUTANTS = {
    "the kernel is not asked to kill": (holds_when_guard_is_killed, "OPTIONS &= ~EXIT_KILL" + TRUSTS),
    "forks are not followed": (holds_when_guard_is_killed, "OPTIONS &= ~TRACE_FORK" + TRUSTS),
    "a process may ask not to be traced": (holds_whatever_is_asked_of_clone, "def no_way_out():\n    pass"),
    "32-bit calls are not looked at": (
        holds_for_every_way_to_call_the_kernel,
        "MACHINES = {name: (number, calls[:1]) for name, (number, calls) in MACHINES.items()}",
    ),
    "calls of x32 are not looked at": (holds_for_every_way_to_call_the_kernel, "NUMBER_MASK = 0xFFFFFFFF"),
    "only the guard holds the lock": (
        holds_lock_until_the_last_is_gone,
        "kept = be_lock_holder\n\n"
        "def be_lock_holder(order, line, lock):\n"
        "    for each in lock:\n"
        "        os.dup2(os.open(os.devnull, os.O_RDONLY), each)\n"
        "    kept(order, line, lock)",
    ),
    "the holder waits for the command only": (
        holds_lock_until_the_heavy_orphan_is_gone,
        "kept = be_lock_holder\n\n"
        "def be_lock_holder(order, line, lock):\n"
        "    tree.PR_SET_CHILD_SUBREAPER = tree.PR_SET_PDEATHSIG\n"
        "    kept(order, line, lock)",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(open_harness: OpenHarness, name: str) -> None:
    holds, mutant = MUTANTS[name]
    for _ in range(ATTEMPTS):
        try:
            holds(open_harness("traced", mutant={"guard_trace.py": mutant}))
        except (AssertionError, SafetyViolation):
            return
    raise AssertionError(f"{name}: not caught in {ATTEMPTS} attempts")


@pytest.mark.parametrize("option", ["EXIT_KILL", "TRACE_FORK"])
def test_G2_a_kernel_that_does_not_do_it_is_found_out_beforehand(open_harness: OpenHarness, option: str) -> None:
    harness = Harness("traced", mutant={"guard_trace.py": f"OPTIONS &= ~{option}\nTRIAL_S = 1"})
    try:
        ready = harness.hello()
        assert (ready["containment"], ready["way"]) == ("weak", "")
        assert "and the command cannot be traced (the kernel does not kill what is traced)" in ready["why"]
    finally:
        harness.close()
