"""Nodes of bully and ring as real processes, over the manager: killed, frozen, cut off, divided, restarted, crowded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from primacy.control.client import ask, find
from primacy.errors import NotReached
from tests.support.ports import free_ports
from tests.support.real_nodes import LOOK_S
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=50)

WITHIN_S = 90.0
PROOF = os.environ.get("PRIMACY_SIZE") == "proof"
FILES = Path(__file__).parents[1] / "files"


class Node:
    """One `primacy node start`, or another command of a node."""

    def __init__(self, folder: Path, name: str, words: list[str], system: Path | None = None) -> None:
        """`system`: in place of the machine's own state folder, for a node that names none."""
        self.name, self.folder, self.words, self.system = name, folder, words, system
        self.state = folder / name if system is None else system / "nodes" / name
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        code = "from primacy.cli.main import main; main()"
        if self.system is not None:
            code = f"import primacy.agent.state as state; state.SYSTEM = {str(self.system)!r}; {code}"
        call = [sys.executable, "-c", code, *self.words]
        environment = {**os.environ, "XDG_STATE_HOME": str(self.folder)}
        if self.system is not None:
            del environment["PRIMACY_STATE_DIR"]  # it would go before the machine's own
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                call, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder, env=environment
            )

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(WITHIN_S)
        self.process = None

    def ask(self, path: str = "/v1/state", order: dict[str, Any] | None = None) -> Any:
        """None if it does not answer."""
        found = find(str(self.state / "primacy" / "main")) if self.process is not None else None
        with contextlib.suppress(NotReached):
            return ask(found, path, order) if found is not None else None
        return None


class Crowd:
    """Nodes n1 … of one cluster, or with other ids, each with its file; the first begins it."""

    def __init__(
        self,
        folder: Path,
        count: int,
        strategy: str = "bully",
        profile: str = "fast",
        names: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.ports = free_ports(count)
        self.nodes: dict[str, Node] = {}
        for number, port in enumerate(self.ports, 1):
            name = names[number - 1] if names else f"n{number}"
            manager: dict[str, Any] = {"type": "join_server", "addr": f"127.0.0.1:{port}"}
            if number > 1:
                manager["join"] = [f"127.0.0.1:{self.ports[0]}", f"127.0.0.1:{self.ports[number - 2]}"][: number - 1]
            told = {
                "cluster": {"node": name, "user": "my_user", "pass": "my_pass", "manager": manager},
                "election": {"strategy": strategy, "profile": profile},
                "control": {"lab": True},
                "state_dir": name,
            }
            file = folder / f"{name}.yaml"
            file.write_text(yaml.safe_dump(told))
            self.nodes[name] = Node(folder, name, ["--config", str(file), "node", "start"])

    def start(self, *names: str) -> None:
        for name in names or tuple(self.nodes):
            self.nodes[name].start()

    @property
    def up(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.process is not None]

    def agreed(self, *names: str) -> str:
        """The one leader that these, or all that run, believe in at one look."""
        said = {name: self.nodes[name].ask() for name in names or tuple(self.up)}
        if not said or not all(said.values()):
            return ""
        leaders = {state["leader"] for state in said.values()}
        leads = {name for name, state in said.items() if state["role"] == "leader"}
        return leads.pop() if len(leads) == 1 and leaders == leads else ""

    def leads(
        self, wanted: Callable[[str], bool] | str, *names: str, within_s: float = WITHIN_S, every_s: float = LOOK_S
    ) -> str:
        def look() -> str:
            found = self.agreed(*names)
            good = found == wanted if isinstance(wanted, str) else bool(found) and wanted(found)
            return found if good else ""

        try:
            found: str = wait_until(look, f"one leader of {names or 'all'}", within_s, every_s)
        except AssertionError as error:
            logs = "".join(f"\n--- {name}\n{node.log.read_text()}" for name, node in self.nodes.items())
            raise AssertionError(f"{error}{logs}") from None
        return found

    def know(self, count: int, within_s: float = WITHIN_S) -> None:
        def all_know() -> bool:
            said = [self.nodes[name].ask() for name in self.up]
            return all(state and len(state["nodes"]) == count - 1 for state in said)

        wait_until(all_know, f"all know {count} nodes", within_s)

    def cut(self, left: list[str], right: list[str]) -> None:
        for one, other in [(a, b) for a in left for b in right] + [(b, a) for a in left for b in right]:
            assert self.nodes[one].ask("/v1/links", {"node": other, "cut": "both"}) is not None

    def heal(self) -> None:
        for name in self.up:
            assert self.nodes[name].ask("/v1/links", {"heal": True}) is not None

    def close(self) -> None:
        for node in self.nodes.values():
            if node.process is not None:
                node.kill()


@contextlib.contextmanager
def crowd(
    folder: Path, count: int, strategy: str = "bully", profile: str = "fast", names: tuple[str, ...] = ()
) -> Iterator[Crowd]:
    made = Crowd(folder, count, strategy, profile, names)
    try:
        yield made
    finally:
        made.close()


def formed(made: Crowd) -> None:
    made.start()
    made.leads(lambda _: True)
    made.know(len(made.nodes))


@pytest.mark.parametrize("strategy", ["bully", "ring"])
def test_a_leader_that_is_killed_is_replaced_and_follows_when_it_is_back(tmp_path: Path, strategy: str) -> None:
    with crowd(tmp_path, 3, strategy) as made:
        formed(made)
        old = made.agreed() or made.leads(lambda _: True)
        made.nodes[old].kill()
        new = made.leads(lambda found: found != old)
        made.nodes[old].start()
        made.leads(lambda _: True)
        wait_until(lambda: (made.nodes[old].ask() or {}).get("leader"), f"{old} knows a leader", WITHIN_S)
        assert new in made.up


def test_a_leader_that_is_frozen_is_replaced_and_comes_back_as_one_of_all(tmp_path: Path) -> None:
    with crowd(tmp_path, 5) as made:
        formed(made)
        old = made.leads(lambda _: True)
        others = [name for name in made.nodes if name != old]
        made.nodes[old].send(signal.SIGSTOP)
        made.leads(lambda found: found != old, *others)
        made.nodes[old].send(signal.SIGCONT)
        made.leads(lambda _: True)


def test_of_a_node_that_was_stopped_in_order_the_others_know_that_it_leads_no_more(tmp_path: Path) -> None:
    """Its last word is told once, with a limit: a machine that stands still for long loses it, but not each time."""
    with crowd(tmp_path, 2) as made:
        formed(made)
        for _ in range(3):
            old = made.leads(lambda _: True)
            (other,) = set(made.nodes) - {old}
            wait_until(
                lambda other=other, old=old: workload_of(made.nodes[other], old) == "running", "known to lead", WITHIN_S
            )  # type: ignore[misc]
            made.nodes[old].send(signal.SIGTERM)
            ended = made.nodes[old].process
            assert ended is not None
            assert ended.wait(WITHIN_S) == 0
            made.leads(other, other)
            if workload_of(made.nodes[other], old) == "stopped":
                return
            made.nodes[old].kill()
            made.nodes[old].start()
        raise AssertionError("its last word was never heard")


def workload_of(node: Node, of: str) -> str:
    """How the work of one node stands, as far as another knows."""
    rows = (node.ask("/v1/cluster") or {"nodes": []})["nodes"]
    return next((row["workload"]["state"] for row in rows if row["node"] == of and row["workload"]), "")


def test_a_leader_that_is_cut_off_and_a_divided_cluster_heal_to_one_leader(tmp_path: Path) -> None:
    with crowd(tmp_path, 5) as made:
        formed(made)
        old = made.leads(lambda _: True)
        others = [name for name in made.nodes if name != old]
        made.cut([old], others)
        made.leads(lambda found: found != old, *others)
        made.heal()
        made.leads(lambda _: True)
        made.cut(["n1", "n5"], ["n2", "n3", "n4"])
        made.leads(lambda _: True, "n1", "n5")
        made.leads(lambda _: True, "n2", "n3", "n4")
        made.heal()
        made.leads(lambda _: True)


def test_all_restarted_at_once_and_in_any_order_elect_one(tmp_path: Path) -> None:
    with crowd(tmp_path, 5) as made:
        formed(made)
        for name in made.up:
            made.nodes[name].kill()
        made.start("n5", "n3", "n1", "n2", "n4")
        made.leads(lambda _: True)
        made.know(5)
        made.nodes["n1"].kill()
        made.leads(lambda found: found != "n1")


def test_a_node_is_removed_by_a_command_on_any_node_whatever_its_id(tmp_path: Path) -> None:
    """Ids with quotes, marks of markup and of files, and letters of other scripts: they lead, are shown and named."""
    with crowd(tmp_path, 3, names=('a"quote', "b ünï}]{", "\N{FOX FACE}<&'\\")) as made:
        formed(made)
        leader = made.leads(lambda _: True)
        gone, here = (name for name in made.nodes if name != leader)
        made.nodes[gone].kill()
        call = [sys.executable, "-m", "primacy.cli.main", "--config", str(tmp_path / f"{here}.yaml")]

        def remove() -> bool:
            done = subprocess.run([*call, "remove", gone], capture_output=True, encoding="utf-8", check=False)
            return f"node {gone} is removed" in done.stdout

        wait_until(remove, "the order is taken", WITHIN_S)
        made.know(2)
        said = json.loads(subprocess.run([*call, "status", "--json"], capture_output=True, check=True).stdout)
        assert [row["node"] for row in said["nodes"]] == [leader]
        shown = subprocess.run([*call, "status"], capture_output=True, encoding="utf-8", check=True).stdout
        assert (leader in shown, here in shown, gone in shown) == (True, True, False)
        made.nodes[gone].start()
        made.know(3)


def test_the_seed_s_two_files_run_as_they_are_printed(tmp_path: Path) -> None:
    """On the ports that Ghoti prints, if this machine has them free, and without a word about folders."""
    for port in (2222, 2223):
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                pytest.skip(f"port {port} is in use on this machine")
    with contextlib.ExitStack() as ends:
        nodes = []
        for name, file in (("node1", "ghoti_first.yaml"), ("node2", "ghoti_joining.yaml")):
            words = ["--config", str(FILES / file), "run", "--allow-split-brain", "--", "sleep", "1000"]
            node = Node(tmp_path, name, words, tmp_path / "primacy")
            node.start()
            ends.callback(node.kill)
            nodes.append(node)
        first, second = nodes
        wait_until(lambda: (first.ask() or {}).get("workload", {}).get("state") == "running", "node1 runs it", WITHIN_S)
        wait_until(lambda: (second.ask() or {}).get("leader") == "node1", "node2 follows", WITHIN_S)
        first.send(signal.SIGTERM)
        wait_until(
            lambda: (second.ask() or {}).get("workload", {}).get("state") == "running", "node2 runs it", WITHIN_S
        )


class Guests:
    """Connections that ask nothing, and some that ask very slowly."""

    def __init__(self, ports: list[int], idle: int, slow: int) -> None:
        self.sockets = [socket.create_connection(("127.0.0.1", ports[n % len(ports)]), 30) for n in range(idle)]
        self.slow = [socket.create_connection(("127.0.0.1", ports[n % len(ports)]), 30) for n in range(slow)]
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._dribble)
        self.thread.start()

    def _dribble(self) -> None:
        text = b"POST /election HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1_000
        for byte in text:
            for each in self.slow:
                with contextlib.suppress(OSError):
                    each.send(bytes([byte]))
            if self.over.wait(0.02):
                return

    def close(self) -> None:
        self.over.set()
        self.thread.join()
        for each in (*self.sockets, *self.slow):
            each.close()


def test_elections_go_on_beside_idle_and_slow_connections(tmp_path: Path) -> None:
    idle, slow = (1_000, 50) if PROOF else (200, 20)
    with crowd(tmp_path, 3) as made:
        formed(made)
        guests = Guests(made.ports, idle, slow)
        try:
            for _ in range(2):
                old = made.leads(lambda _: True)
                made.nodes[old].kill()
                made.leads(lambda found, old=old: found != old)  # type: ignore[misc]
                made.nodes[old].start()
                made.leads(lambda _: True)
            time.sleep(0.1)
        finally:
            guests.close()
