"""Real nodes without a workload on this machine, started with the words of Hecaton: to be watched, and broken."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from primacy.control.client import ask, find
from primacy.errors import NotReached
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

WITHIN_S = 40.0
"""Far more than anything here takes: only a hang reaches it."""
ROOT = Path(__file__).parents[2]
"""Where `examples` is found."""
TRIES = 5
RELEASED = "leads no more: its work is confirmed gone and released"
CLUSTER, ELECTION = "primacy", "main"


class Node:
    """One `primacy node start`."""

    def __init__(self, folder: Path, port: int, words: Sequence[str]) -> None:
        self.port = port
        self.name = f"localhost-{port}"
        self.root = folder / "state"
        self.log = folder / f"{self.name}.log"
        self.call = [sys.executable, "-m", "primacy.cli.main", "-v", "node", "start", "--port", str(port)]
        self.call += ["--state-dir", str(self.root), *words]
        self.folder = folder
        self.start()

    def start(self) -> None:
        """Again, with the same words."""
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(self.call, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT)

    @property
    def is_up(self) -> bool:
        return self.process.poll() is None

    @property
    def text(self) -> str:
        return self.log.read_text()

    def tell(self, number: int) -> None:
        """A process that has ended is told nothing."""
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WITHIN_S)

    def ask(self, path: str = "/v1/state", order: dict[str, Any] | None = None) -> Any:
        """None if it does not answer."""
        found = find(str(self.root / "nodes" / self.name / CLUSTER / ELECTION)) if self.is_up else None
        with contextlib.suppress(NotReached):
            return ask(found, path, order) if found is not None else None
        return None

    def codes(self) -> list[str]:
        """What happened here, as far as it is remembered."""
        return [row["code"] for row in self.ask("/v1/events?last=1000") or () if row["node"] == self.name]


class NodeCrowd:
    """The nodes of one cluster."""

    def __init__(self, folder: Path, count: int = 3, profile: str = "fast") -> None:
        self.folder = folder
        self.ports = free_ports(count)
        self.profile = profile
        self.nodes: dict[str, Node] = {}

    def add(self, port: int, *words: str) -> Node:
        node = Node(self.folder, port, ["--profile", self.profile, *words])
        self.nodes[node.name] = node
        return node

    def add_after(self, port: int, *words: str) -> Node:
        """Added, and known to follow somebody: the next one is younger, and finds it in the list."""
        node = self.add(port, *words)
        wait_until(lambda: (node.ask() or {}).get("leader"), f"{node.name} with a leader", WITHIN_S)
        return node

    @property
    def up(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up]

    def agree(self, among: Sequence[Node] | None = None, *, but: str = "") -> Node:
        """All of them, at one look, believe in one of them, which says that it leads; not in `but`."""

        def look() -> Node | None:
            said = {node.name: node.ask() for node in among or self.up}
            if not all(said.values()):
                return None
            leaders = {state["leader"] for state in said.values()}
            leads = [name for name, state in said.items() if state["role"] == "leader"]
            alike = len(leaders) == 1 and len(leads) == 1 and leaders == set(leads) and leads[0] != but
            return self.nodes[leads[0]] if alike else None

        try:
            found: Node = wait_until(look, "one leader that all follow", WITHIN_S)
        except AssertionError as error:
            told = "".join(f"\n--- {node.name}\n{node.text}" for node in self.nodes.values())
            raise AssertionError(f"{error}{told}") from None
        return found

    def led(self, among: Sequence[Node] | None = None) -> tuple[Node, int]:
        """The leader that they agree on, and its token, which it says while it leads: it may be another one's soon."""

        def look() -> tuple[Node, int] | None:
            node = self.agree(among)
            state = node.ask() or {}
            return (node, state["token"]) if state.get("role") == "leader" and state["token"] else None

        found: tuple[Node, int] = wait_until(look, "a leader that says its token", WITHIN_S)
        return found

    def stopped_leader(self, stop: Callable[[Node], None]) -> Node:
        """One that was stopped while it led, and has ended. On a machine that stalls another may lead meanwhile."""
        for _ in range(TRIES):
            leader = self.agree()
            before = leader.text.count(RELEASED)
            stop(leader)
            assert leader.process.wait(WITHIN_S) is not None
            if leader.text.count(RELEASED) > before:
                return leader
            leader.start()
        raise AssertionError(f"nobody was stopped while it led, in {TRIES} tries")

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                with contextlib.suppress(ProcessLookupError):
                    node.tell(signal.SIGCONT)
                node.kill()


@contextlib.contextmanager
def node_crowd(folder: Path, count: int = 3, profile: str = "fast") -> Iterator[NodeCrowd]:
    """Whatever is started is ended."""
    made = NodeCrowd(folder, count, profile)
    try:
        yield made
    finally:
        made.close()
