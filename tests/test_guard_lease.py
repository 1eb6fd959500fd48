"""The guard and a lease in a store: the pipe to whoever can release it, and the words, which are said once (G4, G5)."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator

import pytest
from tests.guard_desk import ALL, LIMIT_S, OWN, Desk, OpenDesk, boot_ms, is_alive, open_desk, wait_until

__all__ = ["open_desk"]

WORDS = '{"release": true}\n'


class Pipe:
    """Our end of what the guard is handed."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe2(os.O_CLOEXEC)
        self.inode = os.fstat(self.read).st_ino

    def hand(self, desk: Desk) -> None:
        desk.handles = [self.write]

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
    try:
        return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


@pytest.mark.parametrize("mode", ALL)
def test_G5_a_killed_agent_has_its_lease_released_when_the_tree_is_gone(
    open_desk: OpenDesk,
    pipe: Pipe,
    mode: str,
) -> None:
    desk = open_desk(mode)
    pipe.hand(desk)
    desk.start("ignore-term", "escape", expect=2, words=WORDS)
    pipe.given()
    assert pipe.holders(desk.processes()) == [desk.guard_pid], "nobody but the guard can say it"
    assert pipe.said(0.05) is None
    desk.signal(signal.SIGKILL, desk.agent_pid)
    assert pipe.said(LIMIT_S) == WORDS
    assert desk.commands() == []
    assert pipe.said(LIMIT_S) == "", "once, and then it is gone"
    wait_until(lambda: not is_alive(desk.guard_pid))


def test_G5_without_a_dead_agent_nothing_is_said(open_desk: OpenDesk, pipe: Pipe) -> None:
    """The tree ended in order: the agent lives, and releases by itself."""
    desk = open_desk(OWN)
    pipe.hand(desk)
    desk.start("escape", expect=2, words=WORDS)
    pipe.given()
    desk.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + 100)
    desk.hear("exited")
    desk.hear("gone")
    desk.say("bye")
    assert pipe.said(LIMIT_S) == ""
    assert is_alive(desk.agent_pid)


def test_G4_the_right_comes_with_the_first_start_or_not_at_all(open_desk: OpenDesk, pipe: Pipe) -> None:
    """With a start that is refused, or a later one, it is closed at once."""
    desk = open_desk(OWN)
    desk.start("exit=0,20")
    desk.hear("exited")
    desk.hear("gone")
    pipe.hand(desk)
    desk.start("exit=0,20", run=2, words=WORDS)
    pipe.given()
    assert pipe.said(LIMIT_S) == ""
    desk.hear("exited")
    desk.hear("gone")
    desk.signal(signal.SIGKILL, desk.agent_pid)
    wait_until(desk.release_arrived_ns)


def test_G4_a_refused_start_gives_no_right(open_desk: OpenDesk, pipe: Pipe) -> None:
    desk = open_desk(OWN)
    pipe.hand(desk)
    desk.order(s_ms=boot_ms() - 60_000, words=WORDS)
    pipe.given()
    assert desk.hear("failed")["why"] == "the hold has already run out"
    assert pipe.said(LIMIT_S) == ""
    desk.signal(signal.SIGKILL, desk.agent_pid)
    wait_until(lambda: not is_alive(desk.guard_pid))
