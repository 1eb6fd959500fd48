"""Real agents with several elections on this machine, whose commands stamp when they lived, one file per election."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from primacy.agent.state import AGENT
from primacy.cli.new import write_secret
from primacy.control.client import FoundNode, ask, find
from primacy.errors import NotReached, PrimacyError
from tests.support import stamp
from tests.support.ports import free_ports
from tests.support.real_nodes import children, interpreter, tree
from tests.support.safety_checks import one_at_a_time
from tests.support.waiting import wait_until

WITHIN_S = 60.0
PATIENT = {"term_at_ms": 4_000, "kill_at_ms": 5_100, "deadman_at_ms": 5_600, "hold_ms": 6_000, "promise_ms": 6_200}
"""Of raft: twelve elections and their commands share two processors with other tests, and must keep their leaders."""
STOP_MS = 500
CLUSTER = "many"
LASTS_S = 1_800
FRESH_NS = 500_000_000
"""Who stamped so lately is alive: many commands share a machine here, and each is late at times."""


class AgentProcess:
    """One `primacy agent`."""

    def __init__(self, name: str, folder: Path, module: str) -> None:
        self.name = name
        self.state = folder / f"state-{name}"
        self.log = folder / f"log-{name}"
        call = [sys.executable, "-m", module, "--node", name, "agent"]
        call += ["--config", str(folder / f"{name}.yaml"), "--state-dir", str(self.state)]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder)

    @property
    def is_up(self) -> bool:
        return self.process.poll() is None

    @property
    def text(self) -> str:
        return self.log.read_text()

    def found(self, election: str = AGENT) -> FoundNode | None:
        return find(str(self.state / CLUSTER / election)) if self.is_up else None

    def ask(self, path: str, election: str = AGENT, order: dict[str, Any] | None = None) -> Any:
        """None if it does not answer."""
        found = self.found(election)
        with contextlib.suppress(NotReached):
            return ask(found, path, order) if found is not None else None
        return None

    def rows(self) -> dict[str, dict[str, Any]]:
        said = self.ask("/v1/elections")
        return {row["election"]: row for row in said["elections"]} if said else {}


class Agents:
    """Some of them, their file, and what the commands stamped."""

    def __init__(
        self,
        folder: Path,
        elections: dict[str, dict[str, Any]],
        *,
        profile: str = "lan",
        names: str = "abc",
        module: str = "primacy.cli.main",
        ways: tuple[str, ...] = (),
        **more: Any,
    ) -> None:
        """`module`: what an agent is started with. `ways`: what all commands are like. `more`: sections of the file."""
        self.folder = folder
        self.profile = profile
        self.module = module
        self.ways = ways
        self.more = more
        self.names = tuple(names)
        folder.chmod(0o755)
        write_secret(folder / "secret")
        self.ports = dict(zip(self.names, free_ports(len(self.names)), strict=True))
        self.elections: dict[str, dict[str, Any]] = {}
        self.started: list[AgentProcess] = []
        self.agents: dict[str, AgentProcess] = {}
        self.write(elections)

    # --- the file -----------------------------------------------------------------------------------------------------

    def write(self, elections: dict[str, dict[str, Any]], *names: str) -> None:
        """For all agents, or for these."""
        self.elections = {**self.elections, **elections}
        nodes = {name: {"addr": f"127.0.0.1:{port}"} for name, port in self.ports.items()}
        whole = {
            "cluster": {
                "name": CLUSTER,
                "secret_file": "secret",
                "first_start": "auto",
                "manager": {"nodes": nodes},
            },
            "election": {"profile": self.profile, "timing": PATIENT},
            "run": {"stop_ms": STOP_MS},
            "elections": {name: {"run": {"command": self.command(name)}, **said} for name, said in elections.items()},
            **self.more,
        }
        for name in names or self.names:
            (self.folder / f"{name}.yaml").write_text(json.dumps(whole))

    def command(self, election: str, *ways: str) -> list[str]:
        path = self.folder / f"stamps-{election}"
        if not path.exists():
            stamp.make_file(str(path))
        return [interpreter(), "-I", "-S", stamp.__file__, str(path), f"for={LASTS_S}", *self.ways, *ways]

    # --- agents -------------------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        for name in names:
            self.agents[name] = AgentProcess(name, self.folder, self.module)
            self.started.append(self.agents[name])

    @property
    def up(self) -> list[AgentProcess]:
        return [agent for agent in self.agents.values() if agent.is_up]

    def stamps(self, election: str) -> list[stamp.Stamp]:
        return stamp.read(str(self.folder / f"stamps-{election}"))

    def acting(self, election: str) -> stamp.Stamp | None:
        """Whose command of this election is alive now."""
        alive = [one for one in self.stamps(election) if stamp.now_ns() - one.last_ns < FRESH_NS]
        return alive[-1] if alive else None

    def all_run(self, *names: str, other: str = "", within_s: float = WITHIN_S) -> dict[str, stamp.Stamp]:
        """Until the command of each of these was seen running, and not on the node `other`.

        Not all at one instant: on a machine that stalls, one of many may just be changing its node.
        """
        found: dict[str, stamp.Stamp] = {}

        def look() -> dict[str, stamp.Stamp]:
            for name in names:
                one = self.acting(name)
                if one is not None and one.node != other:
                    found[name] = one
            return found if len(found) == len(names) else {}

        return wait_until(look, f"all of {', '.join(names)}", within_s, 0.05, self.told)

    def move(self, election: str, to: str) -> None:
        """Until it runs there. Asked again while it does not: a node that has just come up is handed nothing."""

        def look() -> bool:
            one = self.acting(election)
            if one is not None and one.node == to:
                return True
            with contextlib.suppress(PrimacyError):
                self.agents[to].ask("/v1/transfer", election, {"to": to})
            return False

        wait_until(look, f"{election} on {to}", WITHIN_S, 0.5, self.told)

    def told(self) -> str:
        return "\n".join(f"{agent.name}: {json.dumps(agent.rows())}\n{agent.text[-3_000:]}" for agent in self.up)

    def leaders(self, *names: str) -> dict[str, tuple[str, int]]:
        """Who leads each, and in which term, as one agent says."""
        rows = wait_until(self.up[0].rows, "an answer")
        return {name: (rows[name]["leader"], rows[name]["term"]) for name in names}

    def end(self) -> None:
        pids = [pid for agent in self.started if agent.is_up for pid in tree(agent.process.pid)[1:]]
        for agent in self.started:
            if agent.is_up:
                agent.process.send_signal(signal.SIGCONT)
                agent.process.kill()
            agent.process.wait(WITHIN_S)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the end of all")
        for name in self.elections:
            one_at_a_time(self.stamps(name))


def guards_of(agent: AgentProcess) -> list[int]:
    return children(agent.process.pid)


@contextlib.contextmanager
def agents_in(folder: Path, elections: dict[str, dict[str, Any]], **more: Any) -> Iterator[Agents]:
    """Started, and ended and judged whatever happens."""
    made = Agents(folder, elections, **more)
    try:
        made.start(*made.names)
        yield made
    finally:
        made.end()
