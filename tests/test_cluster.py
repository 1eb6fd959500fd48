"""Three real agents on loopback, with real commands that stamp when they lived: one at a time, whatever is killed.

The whole life of a cluster is in few tests, for every start costs a second of interpreters. Overlap is judged from the
stamps, ordered by (token, run).
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import stamp

from primacy.cli.new import write_secret
from primacy.settings.timing import PROFILES

STAMP = Path(stamp.__file__)
WITHIN_S = 15.0
"""Far more than anything here takes: only a hang reaches it."""
NAMES = ("a", "b", "c")
PROFILE = "fast"
HOLD_S = PROFILES[PROFILE].hold_ms / 1_000
LONGEST_S = (PROFILES[PROFILE].promise_ms + PROFILES[PROFILE].spread_ms) / 1_000


def free_ports(count: int) -> list[int]:
    """Ports that are free now; held together, so that they differ."""
    held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def file_of(ports: dict[str, int], name: str = "lab", profile: str = PROFILE, more: str = "") -> str:
    nodes = "".join(f'      {node}: {{addr: "127.0.0.1:{port}"}}\n' for node, port in ports.items())
    return (
        f"cluster:\n  name: {name}\n  secret_file: secret\n  first_start: auto\n  manager:\n    type: static\n"
        f"    nodes:\n{nodes}election:\n  profile: {profile}\n{more}"
    )


class Agent:
    """One `primacy run` of a cluster."""

    def __init__(self, folder: Path, node: str, stamps: Path, number: int) -> None:
        self.node = node
        self.err = folder / f"err-{node}-{number}"
        call = [
            sys.executable,
            "-m",
            "primacy.cli.main",
            "--node",
            node,
            "run",
            "--config",
            str(folder / "primacy.yaml"),
        ]
        call += [
            "--state-dir",
            str(folder / f"state-{node}"),
            "--",
            sys.executable,
            "-I",
            "-S",
            str(STAMP),
            str(stamps),
        ]
        with self.err.open("wb") as err:
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=err, stderr=err, cwd=folder)

    @property
    def text(self) -> str:
        return self.err.read_text()

    @property
    def guards(self) -> list[int]:
        """The agent's own children: the guard of its work, and the spare one."""
        return children(self.process.pid)


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def tree(pid: int) -> list[int]:
    return [pid, *(each for child in children(pid) for each in tree(child))]


class Cluster:
    """Three agents and the file that their commands stamp."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self.stamps = folder / "stamps"
        stamp.make_file(str(self.stamps))
        (folder / "primacy.yaml").write_text(file_of(self.ports))
        write_secret(folder / "secret")
        self.started: list[Agent] = []
        self.agents: dict[str, Agent] = {}

    def start(self, *names: str) -> None:
        for name in names:
            self.agents[name] = Agent(self.folder, name, self.stamps, len(self.started))
            self.started.append(self.agents[name])

    def until(self, check: Callable[[], Any], what: str) -> Any:
        last = time.monotonic() + WITHIN_S
        while time.monotonic() < last:
            found = check()
            if found:
                return found
            time.sleep(0.003)
        logs = "\n".join(f"--- {one.err.name}\n{one.text}" for one in self.started)
        raise AssertionError(f"never came: {what}\n{logs}")

    def lives(self) -> list[stamp.Stamp]:
        return stamp.read(str(self.stamps))

    def after(self, token: int) -> stamp.Stamp:
        """The first life with a larger token."""
        return self.until(lambda: next((s for s in self.lives() if s.token > token), None), f"a token above {token}")

    def leader(self) -> Agent:
        """Whose command stamps: the agent that said last that its command runs."""

        def look() -> Agent | None:
            said = [
                (int(found[-1]), one)
                for one in self.agents.values()
                if one.process.poll() is None
                and (found := re.findall(r"leads \(term (\d+)\)", one.text))
                and re.search(r"the command runs", one.text)
            ]
            return max(said, key=lambda pair: pair[0])[1] if said else None

        return self.until(look, "a leader")  # type: ignore[no-any-return]

    def runs_alone(self) -> None:
        """No overlap ever, and exactly one command stamps now."""
        assert stamp.overlaps(self.lives()) == []
        now_ns = stamp.now_ns()
        assert len([s for s in self.lives() if now_ns - s.last_ns < 50_000_000]) == 1, self.lives()

    def end(self) -> None:
        for one in self.started:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)
                one.process.kill()
        for one in self.started:
            one.process.wait(WITHIN_S)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.end()


def failed_over(cluster: Cluster, old: stamp.Stamp, since_ns: int) -> float:
    """Seconds from an instant until the next command's first stamp."""
    new = cluster.after(old.token)
    return (new.first_ns - since_ns) / 1e9


def test_one_command_at_a_time_whatever_is_killed_or_stopped(cluster: Cluster) -> None:
    cluster.start("a", "b", "c")
    first = cluster.after(0)

    # The agent alone: its guard kills the command at once and sends the release that was sealed beforehand.
    agent = cluster.leader()
    since_ns = stamp.now_ns()
    agent.process.kill()
    gap_s = failed_over(cluster, first, since_ns)
    print(f"agent killed: {gap_s * 1_000:.0f} ms")
    assert gap_s < 1.0
    cluster.start(agent.node)

    # All of a node at once: nobody is left to release, so that the others wait for the end of the hold.
    second = cluster.lives()[-1]
    agent = cluster.leader()
    whole = tree(agent.process.pid)
    since_ns = stamp.now_ns()
    for pid in whole:
        os.kill(pid, signal.SIGKILL)
    gap_s = failed_over(cluster, second, since_ns)
    print(f"node lost: {gap_s * 1_000:.0f} ms")
    assert gap_s < LONGEST_S + 1.0
    cluster.start(agent.node)

    # The agent stopped: its guard ends the command by the points of the hold, and a stopped agent releases nothing.
    third = cluster.lives()[-1]
    agent = cluster.leader()
    since_ns = stamp.now_ns()
    agent.process.send_signal(signal.SIGSTOP)
    gap_s = failed_over(cluster, third, since_ns)
    print(f"agent stopped: {gap_s * 1_000:.0f} ms")
    agent.process.send_signal(signal.SIGCONT)
    time.sleep(2 * HOLD_S)  # it would start again now, if it did not know better
    cluster.runs_alone()

    # In order: the command ends, is confirmed gone, and the role is released.
    fourth = cluster.lives()[-1]
    agent = cluster.leader()
    since_ns = stamp.now_ns()
    agent.process.terminate()
    gap_s = failed_over(cluster, fourth, since_ns)
    print(f"agent asked to end: {gap_s * 1_000:.0f} ms")
    assert agent.process.wait(WITHIN_S) == 0
    assert gap_s < 1.0
    cluster.runs_alone()
