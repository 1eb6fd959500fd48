"""Three real agents on loopback, with real commands that stamp when they lived: one at a time, whatever is killed.

The whole life of a cluster is in few tests, for every start costs a second of interpreters. Overlap is judged from the
stamps, always.
"""

from __future__ import annotations

import contextlib
import os
import random
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

from primacy.agent.state import claim
from primacy.cli import main as entry
from primacy.cli.new import write_secret
from primacy.election.messages import Heartbeat, Origin, VoteRequest
from primacy.errors import Unsafe
from primacy.node.folder import Folder
from primacy.settings.timing import PROFILES
from primacy.transport.layout import packed
from primacy.transport.seal import Seal, Sort
from tests.support import stamp
from tests.support.canary import Canary
from tests.support.ports import free_ports
from tests.support.real_nodes import children, tree
from tests.support.safety_checks import one_at_a_time, safe
from tests.support.servers import stop_whole
from tests.support.silence import heartbeats_watched, waited
from tests.support.waiting import wait_until

pytestmark = pytest.mark.moments(order=60)

STAMP = Path(stamp.__file__)
WITHIN_S = 180.0
"""Far more than anything here takes: only a hang reaches it."""
NAMES = ("a", "b", "c")
PROFILE = "fast"
TIMING = PROFILES[PROFILE]
RELEASED_MS = TIMING.promise_ms * 2 // 3
"""At most, after a release: nobody has waited for the end of the hold."""
LONGEST_MS = TIMING.promise_ms + 2 * TIMING.spread_ms + 700
"""At most, without one: a split vote included."""
INTERPRETERS = 20
"""So many starts of an interpreter come on top: a handover starts some, and a canary does not vouch for how fast."""


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


def interpreter_ms() -> float:
    """What one takes to start, here and now."""
    since_ns = stamp.now_ns()
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    return (stamp.now_ns() - since_ns) / 1e6


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
        def logs() -> str:
            return "\n".join(f"--- {one.err.name}\n{one.text}" for one in self.started)

        return wait_until(check, what, WITHIN_S, told=logs)

    def stamped(self) -> list[stamp.Stamp]:
        return stamp.read(str(self.stamps))

    def after(self, token: int) -> stamp.Stamp:
        """The first stamp with a larger token."""
        return self.until(lambda: next((s for s in self.stamped() if s.token > token), None), f"a token above {token}")

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

    def acting(self) -> tuple[Agent, stamp.Stamp]:
        """The leader and its command, once that has stamped: an agent says that it runs before it has come so far."""

        def look() -> tuple[Agent, stamp.Stamp] | None:
            agent, since_ns = self.leader(), stamp.now_ns()
            time.sleep(0.02)
            found = [each for each in self.stamped() if each.node == agent.node and each.last_ns > since_ns]
            return (agent, found[-1]) if found else None

        return self.until(look, "a leader whose command stamps")  # type: ignore[no-any-return]

    def runs_alone(self) -> None:
        """No overlap ever, and exactly one command goes on stamping."""

        def one_goes_on() -> bool:
            since_ns = stamp.now_ns()
            time.sleep(0.05)
            return len([each for each in self.stamped() if each.last_ns > since_ns]) == 1

        self.until(one_goes_on, "one command that goes on, and no other")
        one_at_a_time(self.stamped())

    def lose(self, what: str, harm: Callable[[Agent], None], waits: bool, most_ms: float) -> Agent:
        """Does this to the agent that leads, and says which. `waits`: nobody releases, and the hold is waited for.

        How long it takes is asked of a machine that is on time; overlap is judged always.
        """
        with Canary(TIMING.heartbeat_ms) as after:
            with heartbeats_watched(TIMING) as before:
                agent, old = self.acting()
                since_ns = stamp.now_ns()
                harm(agent)
            took_ms = (self.after(old.token).first_ns - since_ns) / 1e6
            most_ms += INTERPRETERS * interpreter_ms()
        one_at_a_time(self.stamped())
        if waits:
            waited(TIMING, before, took_ms, what)
        after.judge(took_ms < most_ms, f"{what}: {took_ms:.0f} ms, {most_ms:.0f} at most")
        return agent

    def back(self, node: str) -> None:
        """It was started again, and takes part."""
        self.start(node)
        self.until(lambda: re.search("follows|leads", self.agents[node].text), f"{node} to take part")

    def end(self) -> None:
        for one in self.started:
            if one.process.poll() is None:
                tell(signal.SIGCONT, one.process.pid, *one.guards)  # a spare guard that stands outlives its agent
                one.process.kill()
        for one in self.started:
            one.process.wait(WITHIN_S)
        one_at_a_time(self.stamped())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.end()


def kill_agent(agent: Agent) -> None:
    agent.process.kill()


def kill_all(agent: Agent) -> None:
    """From the leaves to the agent, which stands still meanwhile: no guard outlives it and could still release."""
    stop_whole(agent.process.pid)  # only under a parent that stands is the list of its children whole
    tell(signal.SIGKILL, *reversed(tree(agent.process.pid)))


def stop_agent(agent: Agent) -> None:
    agent.process.send_signal(signal.SIGSTOP)


def stop_agent_and_guards(agent: Agent) -> None:
    tell(signal.SIGSTOP, agent.process.pid, *agent.guards)


def tell(number: int, *pids: int) -> None:
    """A guard that has ended is gone as soon as its agent, which goes on, has heard of it."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def test_one_command_at_a_time_whatever_is_killed_or_stopped(cluster: Cluster) -> None:
    cluster.start("a", "b", "c")
    cluster.after(0)

    # The agent alone: its guard kills the command at once and sends the release that was sealed beforehand.
    agent = cluster.lose("agent killed", kill_agent, False, RELEASED_MS)
    cluster.back(agent.node)

    # All of a node at once: nobody is left to release, so that the others wait for the end of the hold.
    agent = cluster.lose("agent, guard and command killed", kill_all, True, LONGEST_MS)
    cluster.back(agent.node)

    # The agent stopped: its guard ends the command by the points of the hold, and a stopped agent releases nothing.
    agent = cluster.lose("agent stopped", stop_agent, True, LONGEST_MS)
    agent.process.send_signal(signal.SIGCONT)

    # Its guard as well: the kernel's own timer kills the guard, and the command with it.
    agent = cluster.lose("agent and guard stopped", stop_agent_and_guards, True, LONGEST_MS)
    tell(signal.SIGCONT, agent.process.pid, *agent.guards)
    time.sleep(2 * TIMING.hold_ms / 1_000)  # they would start again now, if they did not know better
    cluster.runs_alone()

    # In order: the command ends, is confirmed gone, and the role is released.
    agent = cluster.lose("agent asked to end", lambda one: one.process.terminate(), False, RELEASED_MS)
    assert agent.process.wait(WITHIN_S) == 0
    cluster.runs_alone()


def forged(secret: bytes) -> list[bytes]:
    """Junk, and datagrams that are right but for the seal, the cluster or the receiver."""
    chance = random.Random(1)
    take_over = packed(VoteRequest(Origin("b", 9, 9, "f" * 32, 1), 1_000, False))
    heartbeat = packed(Heartbeat(Origin("b", 9, 9, "f" * 32, 1), 1_000, 1, 1_000, True))
    found = [chance.randbytes(chance.randrange(1, 512)) for _ in range(300)]
    for payload in (take_over, heartbeat):
        found += [Seal("lab", "main", "b", 9, (bytes(range(32)),)).sealed(Sort.MESSAGE, "a", 0, payload)] * 50
        found += [Seal("other", "main", "b", 9, (secret,)).sealed(Sort.MESSAGE, "a", 0, payload)] * 50
        found += [Seal("lab", "main", "b", 9, (secret,)).sealed(Sort.MESSAGE, "nobody", 0, payload)] * 50
    return found


def test_all_are_needed_for_the_first_start_a_majority_for_the_next_and_strangers_change_nothing(
    cluster: Cluster,
) -> None:
    cluster.start("a", "b")
    cluster.until(lambda: "not heard yet: c" in cluster.agents["b"].text, "who is missing")
    safe(cluster.stamped() == [], "a command runs before all are there")
    cluster.start("c")
    cluster.after(0)

    # Forged datagrams are counted, and nothing else comes of them.
    secret = (cluster.folder / "secret").read_bytes().strip()
    with Canary(TIMING.heartbeat_ms) as canary, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        _, first = cluster.acting()
        leader = cluster.leader()
        for data in forged(secret):
            for port in cluster.ports.values():
                out.sendto(data, ("127.0.0.1", port))
            time.sleep(0.001)
        for one in cluster.agents.values():
            cluster.until(lambda one=one: re.search(r"dropped datagrams: .*\bseal\b", one.text), "the count")  # type: ignore[misc]
        now, tokens = cluster.leader(), {each.token for each in cluster.stamped() if each.token >= first.token}
    canary.judge((now is leader, tokens) == (True, {first.token}), f"strangers change nothing: {tokens}")
    cluster.runs_alone()
    last = max(each.token for each in cluster.stamped())

    # All machines lose power; two of them come back, and remember.
    for one in cluster.agents.values():
        kill_all(one)
        one.process.wait(WITHIN_S)
    del cluster.agents["c"]
    cluster.start("a", "b")
    cluster.after(last)
    cluster.runs_alone()
    logs = "".join(one.text for one in cluster.started)
    assert secret.decode() not in logs
    assert "Traceback" not in logs


@pytest.mark.parametrize(
    ("change", "args", "code", "part"),
    [
        ("", (), 2, "which node is this? Say --node with one of a, b, c"),
        ("", ("--node", "x", "--strategy", "bully", "--allow-split-brain"), 2, "is not in cluster.manager.nodes"),
        ("secret_file: secret", ("--node", "a"), 2, "cluster.secret_file is missing"),
        ("", ("--node", "a", "--strategy", "lease"), 2, "needs a store: say --store URL"),
    ],
)
def test_what_a_cluster_needs_is_said_in_one_sentence(
    change: str,
    args: tuple[str, ...],
    code: int,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = file_of(dict.fromkeys(NAMES, 0) | {"a": 7401, "b": 7402, "c": 7403})
    (tmp_path / "primacy.yaml").write_text(text.replace(f"  {change}\n", "") if change else text)
    assert entry.run(["run", "--state-dir", str(tmp_path / "state"), *args, "--", "true"]) == code
    assert part in capsys.readouterr().err


def test_a_secret_that_others_can_read_and_a_port_in_use(cluster: Cluster) -> None:
    (cluster.folder / "secret").chmod(0o644)
    cluster.start("a")
    assert cluster.agents["a"].process.wait(WITHIN_S) == 4
    assert "others can read it (mode 0644): chmod 600" in cluster.agents["a"].text
    (cluster.folder / "secret").chmod(0o600)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", cluster.ports["a"]))
        cluster.start("a")
        assert cluster.agents["a"].process.wait(WITHIN_S) == 4
    assert f"UDP port 127.0.0.1:{cluster.ports['a']} is in use" in cluster.agents["a"].text


def test_a_state_folder_belongs_to_one_node(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "state"))
    try:
        for _ in range(2):
            claim(folder, "a")
        with pytest.raises(Unsafe, match="is that of node a, and this is node b"):
            claim(folder, "b")
    finally:
        folder.close()
