"""The lock files of an agent are removed while it runs: by hand, by a cleaner, by a copy that deletes (G11)."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from primacy.node.lock import AGENT, RUN
from primacy.settings.timing import PROFILES
from tests.processes.test_run_faults import guard_of
from tests.support import stamp
from tests.support.many_agents import CLUSTER, agents_in
from tests.support.real_nodes import interpreter
from tests.support.run_process import Start, alive, start
from tests.support.safety_checks import one_at_a_time, safe, tokens_grow
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.beside(order=172), pytest.mark.ordinary]

__all__ = ["start"]

WAITS_S = 2.0
"""A second agent that found itself alone would run its command long before."""


class Stamps:
    """The command that stamps as long as it lives."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "stamps")
        stamp.make_file(self.path)
        self.command = ("--", interpreter(), "-I", "-S", stamp.__file__, self.path)

    def seen(self) -> list[stamp.Stamp]:
        return stamp.read(self.path)

    def judge(self) -> None:
        found = self.seen()
        one_at_a_time(found)
        tokens_grow(each.token for each in sorted(found, key=lambda each: each.first_ns))


@pytest.fixture
def stamps(tmp_path: Path) -> Stamps:
    return Stamps(tmp_path)


def removed(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink()


@pytest.mark.parametrize("names", [(AGENT, RUN), (AGENT,)], ids=["both", "the agent's"])
def test_G11_an_agent_whose_lock_file_is_removed_ends_before_the_next_one_runs_anything(
    start: Start, stamps: Stamps, tmp_path: Path, names: tuple[str, ...]
) -> None:
    folder = tmp_path / "state/primacy/main"
    first = start(*stamps.command)
    first.until(stamps.seen, "the command")
    removed(folder, names)
    second = start(*stamps.command)
    second.until(lambda: len(stamps.seen()) > 1, "the next command")
    assert first.ends() == 5
    first.said(rf"{folder / AGENT} was removed or replaced while this agent ran.+then start the agent again")
    second.signal(signal.SIGTERM)
    assert second.ends() == 0
    stamps.judge()


def test_G11_the_run_lock_alone_is_removed_and_the_next_agent_waits_for_the_tree(
    start: Start, stamps: Stamps, tmp_path: Path
) -> None:
    agent = start(*stamps.command)
    agent.until(stamps.seen, "the command")
    removed(tmp_path / "state/primacy/main", (RUN,))
    guard = guard_of(agent, agent.pid())
    os.kill(guard, signal.SIGSTOP)  # it does not see that its agent dies, and the kernel's timer ends it
    agent.process.kill()
    agent.process.wait()
    second = start(*stamps.command)
    second.said("waits for the run lock")
    safe(alive(guard), "it is the old tree that is waited for")
    second.until(lambda: len(stamps.seen()) > 1, "the next command")
    second.signal(signal.SIGTERM)
    assert second.ends() == 0
    stamps.judge()


def test_G11_both_are_removed_while_only_the_guard_of_a_dead_agent_is_left(
    start: Start, stamps: Stamps, tmp_path: Path
) -> None:
    agent = start(*stamps.command)
    agent.until(stamps.seen, "the command")
    os.kill(guard_of(agent, agent.pid()), signal.SIGSTOP)
    agent.process.kill()
    agent.process.wait()
    removed(tmp_path / "state/primacy/main", (AGENT, RUN))
    second = start(*stamps.command)
    second.said("waits for the run lock")
    second.until(lambda: len(stamps.seen()) > 1, "the next command")
    second.signal(signal.SIGTERM)
    assert second.ends() == 0
    stamps.judge()


def test_G11_an_agent_that_was_stopped_when_it_happened_still_has_the_folder(
    start: Start, stamps: Stamps, tmp_path: Path
) -> None:
    """It hears of nothing. The next one waits for it, whatever the files say, until it goes on and ends."""
    first = start(*stamps.command)
    first.until(stamps.seen, "the command")
    first.signal(signal.SIGSTOP)
    removed(tmp_path / "state/primacy/main", (AGENT, RUN))
    second = start(*stamps.command)
    second.said("waits for another process, which holds election main on this machine")
    time.sleep(PROFILES["lan"].hold_ms / 1_000)
    safe(len(stamps.seen()) == 1, "one that waits runs nothing")
    first.signal(signal.SIGCONT)
    assert first.ends() == 5
    second.until(lambda: len(stamps.seen()) > 1, "the next command")
    second.signal(signal.SIGTERM)
    assert second.ends() == 0
    stamps.judge()


def test_G11_a_folder_that_is_removed_and_made_anew_ends_the_agent(
    start: Start, stamps: Stamps, tmp_path: Path
) -> None:
    first = start(*stamps.command)
    first.until(stamps.seen, "the command")
    waits = start(*stamps.command)
    waits.said("waits for process")
    shutil.rmtree(tmp_path / "state")
    second = start(*stamps.command)
    second.until(lambda: len(stamps.seen()) > 1, "the next command")
    assert first.ends() == 5
    assert waits.ends() == 4
    waits.said("was removed, or replaced by another one, while this agent waited for it; start the agent again")
    second.signal(signal.SIGTERM)
    assert second.ends() == 0
    stamps.judge()


def test_G11_one_of_several_elections_ends_at_its_next_start_and_takes_part_again(tmp_path: Path) -> None:
    """Without a watch: the next ballot, or the next start, finds it out. The other election notices nothing."""
    with agents_in(tmp_path, {"one": {}, "two": {}}, names="a") as agents:
        before, agent = agents.all_run("one", "two"), agents.agents["a"]
        (agent.state / CLUSTER / "one" / AGENT).unlink()
        os.kill(agent.ask("/v1/state", "one")["workload"]["pid"], signal.SIGKILL)
        wait_until(lambda: "agent.lock was removed or replaced while this agent ran" in agent.text, "the end", 60.0)
        wait_until(lambda: agents.stamps("one")[-1].token > before["one"].token, "the command again", 60.0)
        assert len(agents.stamps("two")) == 1
