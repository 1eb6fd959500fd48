"""Three real agents of primacy on loopback, each with its folder, that run the command of the comparison."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.ports import free_ports

from bench import processes
from bench.watch import Doorbell, Line, Watch, rings
from primacy.cli.new import write_secret
from primacy.control.client import ask, find
from primacy.settings.timing import PROFILES

NAMES = ("a", "b", "c")
ELECTED = re.compile(r"\bleads \(term \d+\)")
FOLLOWS = re.compile(r"\bfollows\b")
SPARE_S = 0.8
"""After a start: until the next guard is ready, so that a round begins as calm as a cluster is."""


class Nodes:
    """A cluster. `name` tells its lines and rings apart from those of others."""

    def __init__(self, watch: Watch, bell: Doorbell, folder: Path, profile: str, heartbeat_ms: int = 0) -> None:
        self.watch = watch
        self.name = f"primacy-{profile}"
        self.timing = PROFILES[profile]
        self.folder = folder / self.name
        self.folder.mkdir()
        ports = free_ports(len(NAMES))
        (self.folder / "primacy.yaml").write_text(_file(dict(zip(NAMES, ports, strict=True)), profile, heartbeat_ms))
        write_secret(self.folder / "secret")
        self._command = bell.command(self.name)
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self._all: list[subprocess.Popen[bytes]] = []
        self.runs_on = ""
        """The node whose command rang last."""

    def start(self) -> None:
        """All of them, until the command runs."""
        since = len(self.watch.lines)
        for node in NAMES:
            self.start_one(node)
        self.note(self.watch.until(rings(self.name), since, f"the first command of {self.name}"))
        self.watch.rest(SPARE_S)

    def start_one(self, node: str) -> None:
        argv = [sys.executable, "-m", "primacy.cli.main", "--node", node, "run", "--config", "primacy.yaml"]
        argv += ["--state-dir", str(self.folder / node), "--", *self._command]
        agent = processes.start(self.watch, f"{self.name}-{node}", argv, self.folder)
        self.agents[node] = agent
        self._all.append(agent)

    def note(self, ring: Line) -> Line:
        self.runs_on = ring.text.split()[2]
        return ring

    def back(self, node: str) -> None:
        """Starts one again, until it follows, and until everybody has a guard ready."""
        since = len(self.watch.lines)
        self.agents[node].wait(processes.ENDS_S)
        self.start_one(node)
        source = f"{self.name}-{node}"
        self.watch.until(
            lambda line: line.source == source and bool(FOLLOWS.search(line.text)), since, f"{source} is back"
        )
        self.watch.rest(SPARE_S)

    def elected(self, line: Line) -> bool:
        return line.source.startswith(f"{self.name}-") and bool(ELECTED.search(line.text))

    def step_down(self, node: str) -> None:
        found = find(str(self.folder / node / "bench" / "main"))
        assert found is not None, f"{self.name}-{node} says nowhere where it listens"
        ask(found, "/v1/step-down", {})

    def command_pid(self, node: str) -> int:
        """The command itself, in our own numbers."""
        return next(pid for pid in processes.tree(self.agents[node].pid) if processes.name_of(pid) == "sleep")

    def kill_whole(self, node: str) -> int:
        """A machine that is lost: no guard may outlive the agent and release. Returns when the agent stood still."""
        agent = self.agents[node].pid
        at_ns = time.monotonic_ns()
        processes.signal_to(agent, signal.SIGSTOP)
        for pid in reversed(processes.tree(agent)):
            processes.signal_to(pid, signal.SIGKILL)
        return at_ns

    def end(self) -> None:
        processes.end(self._all)


def _file(ports: dict[str, int], profile: str, heartbeat_ms: int) -> str:
    nodes = "".join(f'      {node}: {{addr: "127.0.0.1:{port}"}}\n' for node, port in ports.items())
    timing = f"  timing: {{heartbeat_ms: {heartbeat_ms}}}\n" if heartbeat_ms else ""
    return (
        "cluster:\n  name: bench\n  secret_file: secret\n  first_start: auto\n  manager:\n    type: static\n"
        f"    nodes:\n{nodes}election:\n  profile: {profile}\n{timing}"
    )
