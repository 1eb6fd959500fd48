"""One of several elections of an agent: what is asked of it while it stops, and what it leaves when it ends."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from primacy.agent import hosted as hosting
from primacy.agent import many
from primacy.agent.hosted import HostedControl, HostedElection
from primacy.agent.many import ManyAgent, ManyPlan, plans_of
from primacy.agent.shared import Shared
from primacy.control import ADDRESS_FILE
from primacy.node.clock import SystemClock
from primacy.node.folder import Folder
from primacy.node.log import Level, Log
from primacy.settings import load
from tests.support.waiting import wait_until, wait_until_async

HANGS_S = 10.0
"""An end that waits for the disk is let go then, and judged."""
TOLD: Any = SimpleNamespace(ready=lambda *_: None, status=lambda *_: None, stopping=lambda *_: None)


def write(folder: Path, command: str) -> ManyPlan:
    """The plan of a file with one election, which says this now."""
    path, clock = folder / "a.yaml", SystemClock()
    one = {"e": {"run": {"command": [command]}}}
    path.write_text(json.dumps({"state_dir": str(folder / "state"), "cluster": {"name": "c"}, "elections": one}))

    def planned() -> ManyPlan:
        return ManyPlan(load(str(path), "a"), Log(clock, Level.ERROR, handle=2), clock, planned)

    return planned()


def hosted(plan: ManyPlan, faults: list[BaseException], told: Any = TOLD) -> HostedElection:
    one = plans_of(plan.settings, plan.log, plan.clock)["e"]
    return HostedElection(one, Shared(), told, asyncio.Semaphore(1), faults.append)


def live_agent(plan: ManyPlan) -> Any:
    """Of which only the file is of interest."""
    agent: Any = ManyAgent(plan)
    agent._is_live = True
    agent.reserve, agent.placing = SimpleNamespace(), SimpleNamespace(use=lambda _: None)
    agent.sockets = SimpleNamespace(expect_others=lambda: None, drops=SimpleNamespace(counters={}))
    return agent


def test_a_change_that_is_put_back_while_the_election_still_stops_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    stops = asyncio.Event()

    async def run(one: HostedElection) -> int:
        ran.append(one.plan.settings.run.command[0])
        await one._end.event.wait()
        await stops.wait()
        return 0

    async def play() -> None:
        plan, faults = write(tmp_path, "/bin/true"), list[BaseException]()
        agent = live_agent(plan)
        one = agent.hosted["e"] = hosted(plan, faults)
        await wait_until_async(lambda: ran == ["/bin/true"], "a start")
        write(tmp_path, "/bin/false")
        assert (await agent.reload())["changed"] == ["e"]
        assert (await agent.reload())["changed"] == [], "it stops for that already"
        write(tmp_path, "/bin/true")
        assert (await agent.reload())["changed"] == ["e"]
        assert one._end.times == 1, "and goes on stopping in order"
        stops.set()
        await wait_until_async(lambda: len(ran) == 2, "another start")
        assert ran == ["/bin/true", "/bin/true"]
        one.leave()
        await one.task
        assert faults == []

    monkeypatch.setattr(HostedElection, "_run", run)
    monkeypatch.setattr(many, "_raise_limit", lambda _: None)
    asyncio.run(play())


@pytest.mark.parametrize("how", ["asked", "by signals", "asked while signals come"])
def test_a_reload_never_puts_an_older_file_in_the_place_of_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The thread that has read the file for the first one goes on late."""
    reads: list[str] = []
    goes_on = threading.Event()
    read_again = ManyAgent._read_again

    def slow(agent: ManyAgent) -> Any:
        settings, plans = read_again(agent)
        reads.append(plans["e"].settings.run.command[0])
        if len(reads) == 1:
            goes_on.wait(HANGS_S)
        return settings, plans

    async def run(one: HostedElection) -> int:
        await one._end.event.wait()
        return 0

    async def play() -> None:
        plan, faults = write(tmp_path, "/bin/true"), list[BaseException]()
        agent = live_agent(plan)
        one = agent.hosted["e"] = hosted(plan, faults)

        def reload(*, by_signal: bool) -> Any:
            return agent.reload_quietly() if by_signal else asyncio.create_task(agent.reload())

        first = reload(by_signal=how != "asked")
        await wait_until_async(lambda: reads == ["/bin/true"], "the first one has read")
        write(tmp_path, "/bin/false")
        second = reload(by_signal=how == "by signals")
        await asyncio.sleep(0.2)  # for the second one to read and be taken, if it did not wait for the first
        goes_on.set()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task(), one.task})
        assert (reads, {first, second} != {None}) == (["/bin/true", "/bin/false"], how != "by signals")
        assert one.wanted.settings.run.command == ("/bin/false",)
        one.leave()
        await one.task
        assert faults == []

    monkeypatch.setattr(ManyAgent, "_read_again", slow)
    monkeypatch.setattr(HostedElection, "_run", run)
    monkeypatch.setattr(many, "_raise_limit", lambda _: None)
    asyncio.run(play())


def test_a_start_that_is_refused_leaves_no_descriptor(tmp_path: Path) -> None:
    """It is tried again every 15 s, for as long as its ballot is not to be trusted."""
    plan, folder = write(tmp_path, "/bin/true"), tmp_path / "state" / "c" / "e"
    folder.mkdir(parents=True)
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o700)
    (folder / "ballot").write_text("torn")
    (folder / "ballot").chmod(0o600)

    def left() -> list[str]:
        paths = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        open_now = [os.readlink(each) for each in paths if os.path.islink(each)]
        return [each for each in open_now if each.startswith(str(folder))]

    async def play() -> None:
        faults: list[BaseException] = []
        told: list[str] = []
        one = hosted(plan, faults, SimpleNamespace(ready=lambda _, why: told.append(why)))
        for times in (1, 2):
            await wait_until_async(lambda times=times: len(told) == times, "a refusal")
            assert "cannot be trusted" in told[-1]
            assert left() == []
            one.look_again()
        one.leave()
        await one.task
        assert faults == []

    asyncio.run(play())


def control_of(plan: ManyPlan, folder: Folder) -> HostedControl:
    nobody: Any = None
    registry: Any = SimpleNamespace(strike=lambda _: None)
    one = plans_of(plan.settings, plan.log, plan.clock)["e"]
    Path(folder.path(ADDRESS_FILE)).touch()
    return HostedControl(registry, one.settings, folder, nobody, nobody)


def test_a_disk_that_hangs_holds_up_the_end_of_an_election_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lets_go, unlink = threading.Event(), os.unlink

    def hanging(*where: Any, **more: Any) -> None:
        lets_go.wait(HANGS_S)
        unlink(*where, **more)

    monkeypatch.setattr(hosting, "END_S", 0.05, raising=False)
    folder = Folder(str(tmp_path / "folder"))
    control = control_of(write(tmp_path, "/bin/true"), folder)
    monkeypatch.setattr(os, "unlink", hanging)
    began_s = time.monotonic()
    asyncio.run(control.close())
    assert time.monotonic() - began_s < HANGS_S / 2, "the end waited for the disk"
    lets_go.set()
    wait_until(lambda: not os.path.exists(folder.path(ADDRESS_FILE)), "the file's end")
    folder.close()


def test_without_a_thread_the_end_of_an_election_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    folder = Folder(str(tmp_path / "folder"))
    control = control_of(write(tmp_path, "/bin/true"), folder)
    monkeypatch.setattr(threading.Thread, "start", none)
    asyncio.run(control.close())
    assert not os.path.exists(folder.path(ADDRESS_FILE))
    folder.close()
