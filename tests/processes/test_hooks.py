"""Hooks: who is told what, one at a time and bounded, and never in the way of a stop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from primacy.agent.hooks import WAITING_MAX, Hooks
from primacy.agent.integrations import Integrations
from primacy.agent.notify import Notifier
from primacy.control import Heard, NodeStatus
from primacy.control.gossip_rows import GossipEvent
from primacy.election.events import Code, Event
from primacy.election.model import Leadership, Role, View
from primacy.node.clock import SystemClock
from primacy.settings import of_mapping
from primacy.supervise.probes import HealthProbes
from primacy.supervise.vocabulary import Happened, Note, State
from primacy.supervise.workload import WorkloadView
from tests.processes.test_cli_agent import Node, Say, alive, say  # noqa: F401
from tests.support.control_harness import RUNS
from tests.support.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.beside(order=390)


class Told:
    """Hooks in a folder, and what they had to say."""

    def __init__(self, folder: Path, script: str, limit_ms: int = 600_000) -> None:
        self.folder = folder
        self.sentences: list[tuple[bool, str]] = []
        command = ("sh", "-c", script)
        self.hooks = Hooks({"started": command, "lost": command}, limit_ms, str(folder), self._say)

    def _say(self, well: bool, text: str) -> None:
        self.sentences.append((well, text))

    async def until(self, check: Callable[[], object]) -> None:
        await wait_until_async(check, "", 60, 0.003)


until = partial(wait_until, within_s=60, every_s=0.005)


def test_one_at_a_time_of_a_kind_in_order_and_bounded(tmp_path: Path) -> None:
    async def play() -> None:
        told = Told(tmp_path, 'mkdir busy && echo "$PRIMACY_EVENT $N" >> log && sleep 0.02 && rmdir busy')
        for number in range(WAITING_MAX + 3):
            told.hooks.happened("started", {"N": str(number)})
        told.hooks.happened("elected", {"N": "nobody asked for this kind"})
        await told.until(lambda: len(told.sentences) == WAITING_MAX + 3)
        await told.hooks.close()
        wrote = (tmp_path / "log").read_text().splitlines()
        assert wrote == [f"started {number}" for number in range(WAITING_MAX + 1)]
        assert [text for well, text in told.sentences if not well] == [
            f"the hook started is not told of an event: {WAITING_MAX} wait for it already"
        ] * 2

    asyncio.run(play())


def test_kinds_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async def play() -> None:
        told = Told(tmp_path, '[ "$PRIMACY_EVENT" = lost ] || sleep 300')
        told.hooks.happened("started", {})
        told.hooks.happened("lost", {})
        await told.until(lambda: told.sentences == [(True, "the hook lost ended with code 0")])
        began = time.monotonic()
        await told.hooks.close()
        assert time.monotonic() - began < 60
        assert told.sentences[-1] == (False, "the hook started is killed: the agent ends")

    asyncio.run(play())


def test_a_hook_that_hangs_is_killed_with_what_it_started_and_one_that_fails_is_said(tmp_path: Path) -> None:
    async def play() -> None:
        script = 'sleep 300 & echo $! > pid.new; mv pid.new pid; [ "$FAIL" ] && exit 3; wait'
        for limit_ms in (1_500, 6_000, 24_000):  # longer, where the machine let it not come so far
            told = Told(tmp_path, script, limit_ms)
            told.hooks.happened("lost", {})
            await told.until(lambda told=told: told.sentences)  # type: ignore[misc]
            assert told.sentences == [(False, f"the hook lost was killed: it did not end within {limit_ms:,} ms")]
            if (tmp_path / "pid").exists():
                break
        pid = int((tmp_path / "pid").read_text())
        await told.until(lambda: not alive(pid))
        told = Told(tmp_path, script)  # with all the time that a machine which stalls may take
        told.hooks.happened("lost", {"FAIL": "yes"})
        await told.until(lambda: len(told.sentences) == 1)
        assert told.sentences[-1] == (False, "the hook lost ended with code 3")
        os.kill(int((tmp_path / "pid").read_text()), 9)  # what a hook leaves behind on purpose is its own
        missing = Hooks({"lost": ("no-such-command",)}, 600_000, str(tmp_path), told._say)
        missing.happened("lost", {})
        await told.until(lambda: len(told.sentences) == 2)
        why = "the hook lost ended with code 126: no-such-command: no such program, or it may not be run"
        assert told.sentences[-1] == (False, why)

    asyncio.run(play())


def test_a_hook_and_a_fence_command_do_not_outlive_an_agent_that_is_killed(tmp_path: Path) -> None:
    play = (
        "import asyncio, sys\n"
        "from primacy.supervise.short_command import ShortCommand\n"
        "async def play():\n"
        "    script = 'echo $$ > pid.new; mv pid.new pid; exec sleep 77'\n"
        "    command = ShortCommand(['sh', '-c', script], {'PATH': '/usr/bin:/bin'}, sys.argv[1], print)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(play())\n"
    )
    agent = subprocess.Popen([sys.executable, "-c", play, str(tmp_path)])
    try:
        until((tmp_path / "pid").exists)
    finally:
        agent.kill()
        agent.wait()
    until(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_a_node_tells_its_hooks_and_does_not_wait_for_them(say: Say, tmp_path: Path) -> None:  # noqa: F811
    script = (
        'echo "$PRIMACY_EVENT $PRIMACY_NODE $PRIMACY_ELECTION $PRIMACY_TERM $PRIMACY_RUN $PRIMACY_EXIT_CODE'
        ' $PRIMACY_REASON $PRIMACY_TOKEN" >> told; [ $PRIMACY_EVENT != stopped ] || sleep 300'
    )
    command = f"[sh, -c, '{script}']"
    kinds = ", ".join(f"{kind}: {command}" for kind in ("elected", "started", "stopped", "lost"))
    (tmp_path / "primacy.yaml").write_text(f"run: {{hooks: {{{kinds}}}, hook_ms: 60000}}\n")
    node = Node(tmp_path)
    ran = node.runs(say)
    assert say("step-down", "--state-dir", node.state).code == 0
    next_ = node.until(say, lambda s: s["term"] > ran["term"] and s["workload"]["state"] == "running", "the next term")
    me, term, token = ran["node"], str(ran["term"]), str(ran["token"])

    def wrote() -> list[list[str]]:
        return [line.split() for line in (tmp_path / "told").read_text().splitlines()]

    def all_told() -> bool:
        """What happened before its end: four of the first term, and two of the next."""
        found = [(line[0], line[-1]) for line in wrote()]
        later = {(kind, str(next_["token"])) for kind in ("elected", "started")}
        return len({one for one in found if one[1] == token}) == 4 and later <= set(found)

    node.until(say, lambda _: all_told(), "all hooks of before its end")
    began = time.monotonic()
    assert node.end() == 0
    assert time.monotonic() - began < 50
    first = [line[:-1] for line in wrote() if line[-1] == token]
    assert sorted(first) == sorted(
        [
            ["elected", me, "main", term],
            ["started", me, "main", term, "1"],
            ["stopped", me, "main", term, "1", "143"],
            ["lost", me, "main", term, "step-down"],
        ]
    )
    kinds, said = {line[0] for line in wrote() if line[-1] != token}, node.err.read_text()
    assert kinds >= {"elected", "started"}  # type: ignore[operator]
    assert "lost" in kinds or "the hook lost is killed: the agent ends" in said, "it has a moment, and no more"
    assert "the hook stopped is killed: the agent ends" in said
    assert "the hook elected ended with code 0" in say("why", "--state-dir", node.state, "--last", "1000").out


# --- what stands around the work --------------------------------------------------------------------------------------


class Around:
    """A node as `Integrations` sees it, told by hand."""

    def __init__(self, tmp_path: Path) -> None:
        settings = of_mapping({"run": {"command": ["true"]}})
        view = View(Role.FOLLOWER, "", 0, "", 0, 0, (), "")
        self.status = NodeStatus(settings, "a", view, WorkloadView("process", State.STOPPED), {}, {}, 0, 0, False)
        hooks = Hooks({}, 1_000, str(tmp_path), lambda _, __: None)
        health = HealthProbes((), SystemClock(), str(tmp_path), lambda _: None, lambda _, __: None)
        self.integrations = Integrations(settings, "a", lambda: self.status, hooks, health, Notifier({}, 0))
        self.hooks: list[tuple[str, str]] = []
        hooks.happened = lambda kind, told: self.hooks.append((kind, told["PRIMACY_TERM"]))  # type: ignore[method-assign]

    def turn(self, leads: bool, term: int) -> None:
        role = Role.LEADER if leads else Role.FOLLOWER
        self.status = self.status._replace(view=View(role, "", term, "", term, 0, (), ""))
        self.integrations.looked()

    def preceded(self, term: int) -> None:
        self.status = self.status._replace(preceding_term=term)

    @property
    def predecessor(self) -> str:
        term = self.status.view.term
        return self.integrations.fence_told(Leadership("a", term, term, 0))["PRIMACY_PREDECESSOR"]


def test_a_command_that_ends_after_its_role_was_lost_is_told_as_stopped(tmp_path: Path) -> None:
    node = Around(tmp_path)
    node.turn(True, 4)
    node.integrations.noted(Note(Happened.RUNNING, 1, 77))
    node.turn(False, 5)
    node.integrations.noted(Note(Happened.EXITED, 1, 0))
    assert node.hooks == [("elected", "4"), ("started", "4"), ("lost", "4"), ("stopped", "4")]


def test_G8_a_fence_command_is_told_no_predecessor_that_is_not_the_last_one_who_ran(tmp_path: Path) -> None:
    """Cut off while another node led, this one knows an older leader, or itself: neither is to be switched off.

    And one that led last and never started, for its own fence command failed, is not the one that may still run.
    """
    node = Around(tmp_path)
    node.integrations.recorded(Event(Code.FOLLOWS, 1, "b"))
    node.preceded(1)
    assert node.predecessor == ""  # it led; whether it ever started, and so saw to its own predecessor, is not known
    node.integrations.heard("b", GossipEvent(1, 1, "running", "", 0))
    assert node.predecessor == "b"
    node.preceded(2)
    assert node.predecessor == ""
    others = {
        "b": Heard(RUNS._replace(term=9, workload_state="unknown"), 1, 0),
        "c": Heard(RUNS._replace(term=2), 1, 0),
    }
    node.status = node.status._replace(others=others)
    assert node.predecessor == "c"
    node.turn(True, 3)
    node.integrations.noted(Note(Happened.RUNNING, 1, 77))
    node.turn(False, 3)
    node.preceded(3)
    assert node.predecessor == "a"
    node.preceded(4)  # somebody led in term 4, and this node never heard who
    assert node.predecessor == ""
