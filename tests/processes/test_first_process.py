"""primacy as process 1 of a pid namespace, without a container around it: what an init owes to its orphans and signals.

The tests with a real Docker are in test_containers.py.
"""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.real_nodes import children
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=606)

WITHIN_S = 60.0
FIRST = "import os, signal, sys, time; from primacy.cli.first_process import stay_behind; stay_behind()\n"
"""Process 1 stays behind; what follows is its child."""
ORPHAN = """
def orphan(lasts_s, path=""):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(lasts_s)
            if path:
                open(path, "w").close()
        os._exit(0)
    os.wait()
"""


class Namespace:
    """A program as process 1 of a pid namespace of its own."""

    def __init__(self, *program: str, stdin: int = subprocess.DEVNULL) -> None:
        found = shutil.which("unshare")
        if found is None:
            pytest.skip("unshare is not here")
        rights = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        call = [found, *rights, "--pid", "--fork", "--kill-child", "--mount-proc", *program]
        self.process = subprocess.Popen(call, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @property
    def first(self) -> int:
        """As this namespace numbers it."""
        return wait_until(lambda: children(self.process.pid), "process 1", WITHIN_S)[0]

    def said(self) -> str:
        """What it printed, once it has ended."""
        out, errors = self.process.communicate(timeout=WITHIN_S)
        if b"unshare failed" in errors:
            pytest.skip(f"no pid namespace is to be had here: {errors.decode().strip()}")
        return str((out + errors).decode())

    @property
    def code(self) -> int:
        return self.process.wait(WITHIN_S)


@pytest.fixture
def started() -> Iterator[list[Namespace]]:
    found: list[Namespace] = []
    yield found
    for each in found:
        each.process.kill()
        each.process.wait(WITHIN_S)
        for pipe in (each.process.stdout, each.process.stderr):
            if pipe is not None:
                pipe.close()


def python(started: list[Namespace], text: str) -> Namespace:
    started.append(Namespace(sys.executable, "-c", FIRST + ORPHAN + text))
    return started[-1]


def test_the_code_of_the_agent_is_that_of_the_container(started: list[Namespace]) -> None:
    made = python(started, "print(os.getpid() > 1, os.getppid()); sys.exit(7)")
    assert made.said() == "True 1\n"
    assert made.code == 7


def test_an_orphan_is_reaped(started: list[Namespace]) -> None:
    made = python(
        started,
        "orphan(0)\n"
        "def others():  # also one that ended, until it is reaped\n"
        "    return {int(pid) for pid in os.listdir('/proc') if pid.isdigit()} - {1, os.getpid()}\n"
        "while others():\n"
        "    time.sleep(0.01)\n"
        "print('reaped')",
    )
    assert made.said() == "reaped\n"


def test_signals_are_passed_on_once(started: list[Namespace]) -> None:
    made = python(
        started,
        "heard = []\n"
        "for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGTERM):\n"
        "    signal.signal(number, lambda number, _: heard.append(signal.Signals(number).name))\n"
        "print('ready', flush=True)\n"
        "while 'SIGTERM' not in heard:\n"
        "    time.sleep(0.01)\n"
        "print(*heard)",
    )
    assert made.process.stdout is not None
    assert made.process.stdout.readline() == b"ready\n", made.said()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGTERM):
        os.kill(made.first, number)
    assert sorted(made.said().split()) == ["SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1"]
    assert made.code == 0


def test_ctrl_c_of_a_terminal_comes_once(started: list[Namespace]) -> None:
    """A second one would kill at once, where the first asks."""
    ours, theirs = pty.openpty()
    script = (
        "heard = []\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, lambda number, _: heard.append(number) or print(number, flush=True))\n"
        "print('ready', flush=True)\n"
        "while signal.SIGTERM not in heard:\n"
        "    time.sleep(0.01)\n"
    )
    terminal = "import os, fcntl, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    made = Namespace(sys.executable, "-c", terminal + FIRST + script, stdin=theirs)
    started.append(made)
    os.close(theirs)
    assert made.process.stdout is not None
    assert made.process.stdout.readline() == b"ready\n", made.said()
    os.write(ours, b"\x03")
    assert made.process.stdout.readline() == b"2\n", made.said()
    os.kill(made.first, signal.SIGTERM)  # process 1 takes the lower number first: passed on, 2 would come again
    assert made.said() == "15\n"
    os.close(ours)


def test_a_killed_agent_is_outlived_by_what_has_still_to_do(started: list[Namespace], tmp_path: Path) -> None:
    """Its guard, which confirms the end of the tree and releases."""
    made = python(started, f"orphan(0.3, {str(tmp_path / 'done')!r})\nos.kill(os.getpid(), signal.SIGKILL)")
    assert made.code == 128 + signal.SIGKILL
    assert (tmp_path / "done").exists()


def test_what_does_not_end_is_not_waited_for_ever(started: list[Namespace]) -> None:
    shorter = "import primacy.cli.first_process as first; first.LINGER_S = 0.2\n"
    started.append(Namespace(sys.executable, "-c", f"{shorter}{FIRST}{ORPHAN}orphan(600); os._exit(3)"))
    assert started[-1].code == 3


def test_primacy_run_as_process_one(started: list[Namespace], tmp_path: Path) -> None:
    run = (sys.executable, "-m", "primacy", "run", "--state-dir", str(tmp_path / "state"), "--", "sh", "-c")
    made = Namespace(*run, "trap 'echo ended; exit 0' TERM; echo begun; while :; do sleep 0.05; done")
    started.append(made)
    assert made.process.stdout is not None
    assert made.process.stdout.readline() == b"begun\n", made.said()
    os.kill(made.first, signal.SIGTERM)
    assert "ended" in made.said()
    assert made.code == 0
