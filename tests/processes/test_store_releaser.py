"""The releaser releases on order, its own lease only, and otherwise nothing (G5, L4)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from primacy.supervise.releasing import Releaser as Kept
from tests.support.servers import servers_here, stop_whole
from tests.support.store_harness import LIMIT_MS, Harness, Place, place
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=370)

SHORT_MS = 100
MANY = 30


@pytest.fixture(params=["sqlite", *servers_here()])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place(request.param, tmp_path) as found:
        yield found


class Releaser:
    def __init__(self, url: str, limit_ms: int = LIMIT_MS) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "primacy.store.releaser"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.say({"url": url, "table": "primacy_leases", "limit_ms": limit_ms})
        self.say({"ready": "job"})
        assert self.hear() == "ready"

    def order(self, name: str = "job", holder: str = "a#1", token: int = 10, **more: str) -> None:
        """As a guard does."""
        self.say({"release": True, "name": name, "holder": holder, "token": token, **more})

    def say(self, order: dict[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> int:
        self.process.communicate(timeout=60)
        return self.process.returncode


def released(harness: Harness, name: str = "job") -> bool:
    row = harness.look(name).row
    assert row is not None
    return row.released


def test_G5_it_releases_on_order_with_the_seq_that_it_finds(here: Place) -> None:
    harness = here.harness()
    harness.take()
    releaser = Releaser(here.url)
    harness.renew()
    releaser.order(successor="b")
    assert releaser.hear() == "released job"
    assert releaser.end() == 0
    assert released(harness)


def test_G5_without_an_order_it_releases_nothing(here: Place) -> None:
    harness = here.harness()
    harness.take()
    assert Releaser(here.url).end() == 0, "its input ended"
    torn = Releaser(here.url)
    assert torn.process.stdin is not None
    torn.process.stdin.write('{"release": true, "name": "job", "holder": "a#1", "token": 10}')
    assert torn.end() == 0
    assert not released(harness)


def test_G5_a_lease_that_is_somebody_elses_stays(here: Place) -> None:
    harness = here.harness()
    harness.take()
    releaser = Releaser(here.url)
    releaser.order(token=9)
    assert releaser.hear() == "refused job the row is somebody else's"
    releaser.order(holder="b#1")
    assert releaser.hear() == "refused job the row is somebody else's"
    assert releaser.end() == 1
    assert not released(harness)


def test_G5_it_goes_on_while_the_store_is_late(tmp_path: Path) -> None:
    """Somebody writes into the file for longer than several answers may take."""
    with place("sqlite", tmp_path) as here:
        harness = here.harness()
        harness.take()
        releaser = Releaser(here.url, limit_ms=SHORT_MS)
        writer = sqlite3.connect(urlsplit(here.url).path, isolation_level=None)
        try:
            writer.execute("BEGIN EXCLUSIVE")
            releaser.order()
            time.sleep(5 * SHORT_MS / 1_000)
            writer.execute("COMMIT")
        finally:
            writer.close()
        assert releaser.hear() == "released job"
        assert released(harness)
        assert releaser.end() == 0


def test_G5_a_release_whose_answer_was_lost_is_none_twice(tmp_path: Path) -> None:
    with place("sqlite", tmp_path) as here:
        harness = here.harness()
        harness.take()
        first, second = Releaser(here.url), Releaser(here.url)
        for each in (first, second):
            each.order()
            assert each.hear() == "released job"
            assert each.end() == 0


def test_G5_of_many_leases_those_are_released_that_were_ordered(here: Place) -> None:
    """In one go, over one connection. What is nobody's, or somebody else's, holds up none of the others."""
    harness = here.harness()
    names = [f"job{number:02}" for number in range(MANY)]
    assert all(answer.done for answer in harness.take_all(["job", *names]))
    releaser = Releaser(here.url)
    releaser.order("nobody")
    releaser.order(names[0], token=9)
    for name in names[2:]:
        releaser.order(name)
    said = {releaser.hear() for _ in names}
    lost = {f"refused {name} the row is somebody else's" for name in ("nobody", names[0])}
    assert said == lost | {f"released {name}" for name in names[2:]}
    assert releaser.end() == 1
    held = {name for name in ("job", *names) if not released(harness, name)}
    assert held == {"job", names[0], names[1]}, "nobody ordered these"


# --- as the agent has it ----------------------------------------------------------------------------------------------


class Agent:
    """What keeps the process, in a loop of its own; and the ends of the pipe that guards would have."""

    def __init__(self, url: str) -> None:
        self.complaints: list[str] = []
        self.kept = Kept(url, "primacy_leases", LIMIT_MS, self.complaints.append)
        self.kept.keep()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self.kept._process is not None
        return self.kept._process

    def right(self, name: str) -> tuple[int, bytes]:
        found = self.kept.right(name, "a#1", 10)
        assert found is not None
        return found[0], found[1].encode()


TOLD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def is_ignored(pid: int, number: signal.Signals) -> bool:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn:")]
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


async def until(happened: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(60):
        while not happened():
            await asyncio.sleep(0.02)
    assert happened(), what


def test_G5_one_that_was_killed_is_followed_by_another_that_hears_what_the_guards_said(tmp_path: Path) -> None:
    with place("sqlite", tmp_path) as here:
        harness = here.harness()
        harness.take_all(["early", "late", "kept"])

        async def play() -> None:
            agent = Agent(here.url)
            rights = {name: agent.right(name) for name in ("early", "late", "kept")}
            first = agent.process.pid
            os.kill(first, signal.SIGSTOP)
            os.write(*rights["early"])
            os.kill(first, signal.SIGKILL)
            await until(lambda: released(harness, "early"), "an order that the first one did not read")
            assert agent.process.pid != first
            assert len(agent.complaints) == 1
            os.write(*rights["late"])
            await until(lambda: released(harness, "late"), "an order to the second")
            for handle, _ in rights.values():
                os.close(handle)
            second = agent.process.pid
            await agent.kept.close()
            await until(lambda: not os.path.exists(f"/proc/{second}"), "its end, for nobody is left to order anything")

        asyncio.run(play())
        assert not released(harness, "kept")


def test_G5_orders_that_nobody_reads_hold_up_neither_the_agent_nor_a_guard(tmp_path: Path) -> None:
    """A pipe that is full is written to by nobody, and the next process gets all that comes from then on."""
    with place("sqlite", tmp_path) as here:
        harness = here.harness()
        harness.take_all(["job"])

        async def play() -> None:
            agent = Agent(here.url)
            first = agent.process.pid
            stop_whole(first)
            handle, words = agent.right("job")
            refused: list[str] = []
            while not refused:
                try:
                    os.write(handle, b"." * 4_000 + b"\n")
                except BlockingIOError:
                    refused.append("a guard")
            while not agent.complaints:
                if (more := agent.kept.right("job", "a#1", 10)) is not None:
                    os.close(more[0])
            os.kill(first, signal.SIGKILL)
            await until(lambda: len(agent.complaints) == 2 and agent.kept._process is not None, "another one")
            os.write(handle, words)
            await until(lambda: released(harness), "an order to the second")
            os.close(handle)
            await agent.kept.close()

        asyncio.run(play())


def test_G5_it_outlives_the_agent_for_as_long_as_a_guard_may_order_something(tmp_path: Path) -> None:
    """Without the agent, and told to end by whoever tells all processes of a terminal or a unit."""
    with place("sqlite", tmp_path) as here:
        harness = here.harness()
        harness.take_all(["one", "two"])

        async def play() -> tuple[Agent, list[tuple[int, bytes]]]:
            agent = Agent(here.url)
            rights = [agent.right(name) for name in ("one", "two")]
            await until(lambda: all(is_ignored(agent.process.pid, number) for number in TOLD), "one that is deaf")
            for number in TOLD:
                os.kill(agent.process.pid, number)
            await agent.kept.close()
            return agent, rights

        agent, (one, two) = asyncio.run(play())
        os.close(one[0])
        os.write(*two)
        os.close(two[0])
        wait_until(lambda: released(harness, "two"), "the order of the guard that is left")
        assert agent.process.wait(60) == 0
        assert not released(harness, "one")
