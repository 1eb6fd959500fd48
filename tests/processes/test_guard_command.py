"""What the guard gives to the command that it starts, and what it says if that cannot be done (F10)."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from primacy.supervise.containment import GUARD
from tests.support.canary import Canary
from tests.support.guard_harness import (
    ALL,
    LONG_MS,
    NOBODY,
    PROMPT_MS,
    OpenHarness,
    boot_ms,
    dead_after,
    ended_at_once,
    open_harness,
    status_of,
)
from tests.support.safety_checks import safe

pytestmark = [pytest.mark.beside(order=380), pytest.mark.ordinary]

__all__ = ["open_harness"]

REPORT = """
import json, os, sys
def mask(name):
    with open("/proc/self/status") as file:
        return int([line.split()[1] for line in file if line.startswith(name + ":")][0], 16)
umask = os.umask(0)
with open("/proc/self/environ", "rb") as file:
    env = dict(each.split("=", 1) for each in os.fsdecode(file.read()).split("\\0") if each)
fds = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in "0123456789" if os.path.exists(f"/proc/self/fd/{fd}")}
print(json.dumps({"env": env, "fds": fds, "umask": umask, "cwd": os.getcwd(), "uid": os.getresuid(),
  "gid": os.getresgid(), "groups": os.getgroups(), "leads": os.getsid(0) == os.getpid(), "ignored": mask("SigIgn"),
  "blocked": mask("SigBlk"), "pid": os.getpid(), "self": int(os.readlink("/proc/self")), "argv": sys.argv[1:]}))
"""


@pytest.mark.parametrize("mode", ALL)
def test_the_command_gets_what_was_ordered_and_nothing_else(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    out, err = harness.folder / "out", harness.folder / "err"
    user = {"uid": NOBODY, "gid": NOBODY, "groups": [NOBODY]} if mode in ("root", "capless") else {}
    env = {"ONE": "1", "ODD": "\udcff ü\n", "PATH": "/nowhere", "BIG": "x" * 100_000}
    argv = [harness.anyones_python, "-I", "-S", "-X", "utf8", "-c", REPORT, "a b", "$HOME", ""]
    more: dict[str, Any] = {"argv": argv, "env": env, "cwd": "/usr", "umask": 0o27, **user}
    harness.order(s_ms=boot_ms() + LONG_MS, stdout=str(out), stderr=str(err), **more)
    harness.hear("running")
    harness.hear("exited")
    harness.hear("gone")
    said = json.loads(out.read_text())
    fds = said["fds"]
    assert [fds.pop("0"), fds.pop("1"), fds.pop("2")] == ["/dev/null", str(out), str(err)]
    assert sorted(fds.values()) == ([str(harness.lock.parent), str(harness.lock)] if mode == "weak" else [])
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    uid = NOBODY if os.geteuid() == 0 else os.geteuid()
    gid = NOBODY if os.geteuid() == 0 else os.getegid()
    assert said["env"] == env
    assert said["groups"] == [NOBODY] or not user
    assert said["uid"] == [uid] * 3
    assert said["gid"] == [gid] * 3
    assert said["umask"] == 0o27
    assert said["cwd"] == "/usr"
    assert said["leads"]
    assert said["argv"] == ["a b", "$HOME", ""]
    assert said["blocked"] == 0
    assert said["pid"] == said["self"], "/proc shows the numbers that the command itself sees"
    python_ignores = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)
    nobody_can_set = (1 << 32 - 1) | (1 << 33 - 1)  # the C library's own; no program can give them back
    assert said["ignored"] & ~python_ignores & ~nobody_can_set == 0


@pytest.mark.parametrize("mode", ["root", "capless"])
def test_F10_another_user_is_bound_to_the_guard_all_the_same(open_harness: OpenHarness, mode: str) -> None:
    """A change of user takes the parent-death signal away, so it is asked for afterwards."""
    harness = open_harness(mode)
    harness.start(uid=NOBODY, gid=NOBODY, groups=[])
    (command,) = harness.commands()
    assert status_of(command)["Uid"].split() == [str(NOBODY)] * 4
    assert status_of(command)["Groups"] == ""
    with Canary(PROMPT_MS / 4) as canary:
        harness.signal(signal.SIGKILL, harness.guard_pid)
        killed_ms = boot_ms()
        dead_after(harness)
    ended_at_once(harness, killed_ms, canary)


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"argv": ["/nowhere/at/all"]}, "cannot execute /nowhere/at/all: No such file or directory"),
        ({"argv": ["/etc/passwd"]}, "cannot execute /etc/passwd: Permission denied"),
        ({"cwd": "/nowhere"}, "cannot enter /nowhere: No such file or directory"),
        ({"stdout": "/nowhere/out"}, "cannot open /nowhere/out: No such file or directory"),
        ({"argv": []}, "the order makes no sense: no command, or deadlines out of order"),
    ],
)
def test_a_command_that_cannot_be_started(
    open_harness: OpenHarness, mode: str, wrong: dict[str, Any], why: str
) -> None:
    harness = open_harness(mode)
    harness.order(s_ms=boot_ms() + LONG_MS, **wrong)
    assert harness.hear("failed") == {"is": "failed", "run": 1, "why": why}
    safe(harness.commands() == [], "something of it lives")
    harness.start(run=2)


@pytest.mark.parametrize("mode", ["user", "weak"])
def test_a_user_that_cannot_be_had(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    harness.order(s_ms=boot_ms() + LONG_MS, uid=0, gid=0)
    assert harness.hear("failed")["why"] == "cannot become user 0, group 0: Operation not permitted"


@pytest.fixture
def bare_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, socket.socket]]:
    """A run of the guard with its line, and the command's end of it."""
    monkeypatch.syspath_prepend(GUARD.parent)
    runs = importlib.import_module("guard_run")
    run = runs.Run.__new__(runs.Run)
    run.phase, run.command_fd, run.why = "preparing", -1, ""
    run.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    run.line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with run.line, theirs:
        yield run, theirs


def test_a_command_that_is_killed_while_it_waits_for_its_byte_is_a_failure_and_not_the_guards_end(
    bare_run: tuple[Any, socket.socket],
) -> None:
    run, theirs = bare_run
    say = f"import os; os.write({theirs.fileno()}, b'+')"
    child = subprocess.Popen([sys.executable, "-c", say], pass_fds=[theirs.fileno()])
    child.wait()
    assert run.hear_line()
    assert (run.phase, run.command_fd, run.command) == ("failed", -1, child.pid)


@pytest.mark.parametrize("killed", ["before the byte is sent", "before it is read"])
def test_a_command_that_is_killed_before_it_reads_its_byte_was_never_executed(
    bare_run: tuple[Any, socket.socket], killed: str
) -> None:
    """The kernel says so with an error at the guard's end of the line: a broken pipe, or a reset."""
    run, theirs = bare_run
    run.phase = "bound"
    if killed == "before the byte is sent":
        theirs.close()
        run.go()
    else:
        run.go()
        assert run.phase == "executing"
        theirs.close()
    assert run.hear_line()
    assert not run.hear_line(), "the line is closed"
    assert (run.phase, run.why) == ("failed", "")
