"""The guard and a lease in a store: the pipe to whoever can release it, and the words, which are said once (G4, G5)."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.support.guard_harness import (
    ALL,
    LIMIT_S,
    OWN,
    Harness,
    OpenHarness,
    boot_ms,
    is_alive,
    open_harness,
    wait_until,
)
from tests.support.safety_checks import safe

pytestmark = pytest.mark.beside(order=550)

__all__ = ["open_harness"]

WORDS = '{"release": true}\n'
DYING_S = 1.0
"""What it took with three hundred, on two processors, was more than a tenth of that."""


class Pipe:
    """Our end of what the guard is handed."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe2(os.O_CLOEXEC)
        self.inode = os.fstat(self.read).st_ino

    def hand(self, harness: Harness) -> None:
        harness.handles = [self.write]

    def given(self) -> None:
        os.close(self.write)
        self.write = -1

    def said(self, within_s: float) -> str | None:
        """What is there, empty for the end; None if nothing comes."""
        ready, _, _ = select.select([self.read], [], [], within_s)
        return os.read(self.read, 100).decode() if ready else None

    def holders(self, pids: list[int]) -> list[int]:
        return [pid for pid in pids if f"pipe:[{self.inode}]" in links_of(pid)]

    def close(self) -> None:
        for handle in (self.read, self.write):
            if handle >= 0:
                os.close(handle)


def links_of(pid: int) -> list[str]:
    """What its descriptors lead to. One that it closes while they are looked at hides none of the others."""
    found = []
    with contextlib.suppress(OSError):  # it is gone
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


@pytest.mark.parametrize("mode", ALL)
def test_G5_a_killed_agent_has_its_lease_released_when_the_tree_is_gone(
    open_harness: OpenHarness,
    pipe: Pipe,
    mode: str,
) -> None:
    harness = open_harness(mode)
    pipe.hand(harness)
    harness.start("ignore-term", "escape", expect=2, words=WORDS)
    pipe.given()
    # What was just forked closes it when it comes to run; from then on nobody but the guard can say it.
    wait_until(lambda: pipe.holders(harness.processes()) == [harness.guard_pid], "the guard alone to hold the pipe")
    assert pipe.said(0.05) is None
    harness.signal(signal.SIGKILL, harness.agent_pid)
    assert pipe.said(LIMIT_S) == WORDS
    safe(harness.commands() == [], "something of it lives")
    assert pipe.said(LIMIT_S) == "", "once, and then it is gone"
    wait_until(lambda: not is_alive(harness.guard_pid))


def test_G5_an_agent_that_takes_long_to_die_has_its_lease_released(open_harness: OpenHarness, pipe: Pipe) -> None:
    """With hundreds of leases there are as many guards, which all wake when its sockets are closed, and before it."""
    harness = open_harness(OWN)
    pipe.hand(harness)
    harness.start("escape", expect=2, words=WORDS)
    pipe.given()
    harness.socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not harness.commands())
    assert pipe.said(DYING_S) is None, "neither the words, for it lives, nor the end of the guard"
    harness.signal(signal.SIGKILL, harness.agent_pid)
    assert pipe.said(LIMIT_S) == WORDS


def test_G5_without_a_dead_agent_nothing_is_said(open_harness: OpenHarness, pipe: Pipe) -> None:
    """The tree ended in order: the agent lives, and releases by itself."""
    harness = open_harness(OWN)
    pipe.hand(harness)
    harness.start("escape", expect=2, words=WORDS)
    pipe.given()
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + 100)
    harness.hear("exited")
    harness.hear("gone")
    harness.say("bye")
    assert pipe.said(LIMIT_S) == ""
    assert is_alive(harness.agent_pid)


def test_G4_the_right_comes_with_the_first_start_or_not_at_all(open_harness: OpenHarness, pipe: Pipe) -> None:
    """With a start that is refused, or a later one, it is closed at once."""
    harness = open_harness(OWN)
    harness.start("exit=0,20")
    harness.hear("exited")
    harness.hear("gone")
    pipe.hand(harness)
    harness.start("exit=0,20", run=2, words=WORDS)
    pipe.given()
    assert pipe.said(LIMIT_S) == ""
    harness.hear("exited")
    harness.hear("gone")
    harness.signal(signal.SIGKILL, harness.agent_pid)
    wait_until(harness.release_arrived_ns)


def test_G4_a_refused_start_gives_no_right(open_harness: OpenHarness, pipe: Pipe) -> None:
    harness = open_harness(OWN)
    pipe.hand(harness)
    harness.order(s_ms=boot_ms() - 60_000, words=WORDS)
    pipe.given()
    assert harness.hear("failed")["why"] == "the hold has already run out"
    assert pipe.said(LIMIT_S) == ""
    harness.signal(signal.SIGKILL, harness.agent_pid)
    wait_until(lambda: not is_alive(harness.guard_pid))
