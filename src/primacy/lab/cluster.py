"""A cluster of real agents on this machine, and what can be done to it.

Everything here is plain and blocking: signals, short requests on loopback, and waits that look. A lab belongs to the
thread that made it (it is bound to it); reading (`state`, `look`, `events`) is free to all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from primacy.control.client import FoundNode, ask, find
from primacy.errors import NotReached, PrimacyError, Refused, UsageError
from primacy.lab.bound_process import BoundProcess, Held, children, send
from primacy.lab.lease_file import LeaseFile
from primacy.lab.network import LabNetwork, islands_of
from primacy.lab.place import LabFolder, free_ports, names_of
from primacy.lab.tail import Tail, merged

UP_S = 30.0
"""How long a node may take to answer: an interpreter and a guard on a machine that is very busy."""
STOP_S = 15.0
"""How long nodes that are stopped together may take to end in order, before they are killed as a whole."""
GONE_S = 10.0
"""How long the last process of a node that was killed may take to be gone."""
LOOK_S = 0.01
"""Between two looks."""
LOG_CHARS = 1_500
RUN_LOCK = "run.lock"

Answer = TypeVar("Answer")


class Row(NamedTuple):
    """One node, from outside and from inside."""

    node: str
    process: str
    """`running`, `frozen`, `starting` (it has not answered yet); without a process: `stopped` (in order, or never
    started), `killed`, `restarting`, or `ended` by itself."""
    pid: int | None
    exit_code: int | None
    """Of the last process that ended."""
    state: dict[str, Any] | None
    """Its state document; None if it does not answer."""


class Node:
    """One agent as a process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.agent: BoundProcess | None = None
        self.frozen: Held | None = None
        """What is frozen besides the agent, while it is."""
        self.ended_by_us = True
        self.restarting = False
        self.has_answered = False
        """The present process did."""
        self.told: dict[str, str] = {}
        """The cuts that this process was told of."""

    @property
    def is_alive(self) -> bool:
        agent = self.agent  # once: another thread may be looking while this one is exchanged
        return agent is not None and agent.exit_code is None

    @property
    def process(self) -> str:
        if self.is_alive:
            return "frozen" if self.frozen is not None else "running"
        if self.restarting:
            return "restarting"
        agent = self.agent
        killed = agent is not None and agent.exit_code == 128 + signal.SIGKILL
        return "ended" if not self.ended_by_us else "killed" if killed else "stopped"


class Lab:
    """N agents of one cluster, each in a private folder, on free ports of loopback."""

    def __init__(
        self,
        where: str | Path,
        nodes: int = 3,
        profile: str = "fast",
        command: Sequence[str] = ("sleep", "infinity"),
        more: Mapping[str, object] | None = None,
        strategy: str = "raft",
    ) -> None:
        """`more`: sections of the file that join ours, {"election": {"mode": "manual"}}. Nothing is started yet.

        With the strategy `lease` the nodes meet in a SQLite file of the lab's folder, and speak to each other, too.
        """
        self.names = names_of(nodes)
        self.place = LabFolder(Path(where))
        self.profile = profile
        self.strategy = strategy
        self.command = tuple(command)
        self.store = LeaseFile(self.place.lease_file) if strategy == "lease" else None
        ports = free_ports(nodes, socket.SOCK_DGRAM)
        election: dict[str, object] = {"strategy": strategy, "profile": profile}
        if self.store is not None:
            election["store"] = {"url": self.store.url}
        self.place.write(dict(zip(self.names, ports, strict=True)), election, command, more or {})
        self.nodes = {name: Node(name) for name in self.names}
        self.links = LabNetwork(self.names)
        self.helpers: dict[str, BoundProcess] = {}
        """Other processes of this lab, such as the chain."""
        self.on_wait: Callable[[], None] = lambda: None
        """Called at every look of a wait; may raise to end it."""
        self._thread = threading.get_ident()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- starts and ends ----------------------------------------------------------------------------------------------

    def start(self, *names: str, wait: bool = True) -> None:
        """These nodes, or all. With `wait`, until each answers and knows which of its links are cut."""
        assert threading.get_ident() == self._thread, "a lab's nodes are started by the thread that made it"
        chosen = [self.node(name) for name in names or self.names]
        for node in chosen:
            if node.is_alive:
                raise Refused(f"node {node.name} is {node.process} already")
        for node in chosen:
            self._forget(node)
            call = [sys.executable, "-m", "primacy.cli.main", "run", "--config", str(self.place.path / "primacy.yaml")]
            call += ["--node", node.name, "--state-dir", str(self.place.state_dir(node.name))]
            with self.place.log(node.name).open("ab") as log:
                node.agent = BoundProcess(
                    call, self.place.path, log, {"RUNTIME_DIRECTORY": str(self.place.path / "run")}
                )
            node.ended_by_us = node.has_answered = False
        if wait:
            for node in chosen:
                self.until(lambda node=node: self._answers(node), f"an answer of node {node.name}", UP_S)  # type: ignore[misc]
                self._tell_links(node)

    def assist(self, name: str, argv: Sequence[str]) -> None:
        """Starts a process that is no node; it lives as long as the lab."""
        assert threading.get_ident() == self._thread, "a lab's processes are started by the thread that made it"
        with self.place.log(name).open("ab") as log:
            self.helpers[name] = BoundProcess(argv, self.place.path, log, {})

    def stop(self, *names: str) -> None:
        """In order: its command ends, then it releases. These nodes at the same time, or all, the leader last."""
        chosen = [self.node(name) for name in names or self.names]
        leading = self.leader() if not names else ""
        for group in ([n for n in chosen if n.name != leading], [n for n in chosen if n.name == leading]):
            for node in group:
                node.ended_by_us = True
                if node.frozen is not None:
                    self._thaw(node)
                if node.agent is not None and node.is_alive:
                    node.agent.send(signal.SIGTERM)
            last_s = time.monotonic() + STOP_S
            for node in group:
                if node.agent is not None and not node.agent.wait(max(0.0, last_s - time.monotonic())):
                    self._kill_whole(node)

    def kill(self, name: str, *, whole: bool = False) -> None:
        """`kill -9` of the agent; `whole`: of guard and command besides, at one stroke, as a lost machine would."""
        node = self.node(name)
        if node.agent is None or not node.is_alive:
            raise Refused(f"node {name} is not running, and cannot be killed")
        node.ended_by_us = True
        with self._between_writes():
            node.agent.send(signal.SIGSTOP)
        if whole:
            self._kill_whole(node)
            return
        node.agent.send(signal.SIGKILL)
        self._forget_frozen(node, signal.SIGCONT)  # a guard that was frozen goes on, and finds its agent dead
        node.agent.wait(GONE_S)

    def freeze(self, name: str, *, guard: bool = False) -> None:
        """Stops the agent where it stands; `guard`: also the guard that holds its command."""
        node = self.node(name)
        if node.agent is None or node.process != "running":
            raise Refused(f"node {name} is {node.process}, and cannot be frozen")
        with self._between_writes():
            node.agent.send(signal.SIGSTOP)
        node.frozen = Held()
        if guard:
            for pid in children(node.agent.pid):
                if children(pid):  # a spare guard holds nothing, and no timer of the kernel would end it
                    node.frozen.take(node.agent.pid, pid)
            node.frozen.send(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        node = self.node(name)
        if node.frozen is None:
            raise Refused(f"node {name} is {node.process}, not frozen")
        self._thaw(node)
        self.until(lambda: not node.is_alive or self._answers(node), f"an answer of node {name}", UP_S)
        self._tell_links(node)

    def kill_command(self, name: str) -> None:
        """`kill -9` of what the node says it runs, and of nothing else. Asked again once we hold it, for a number alone
        may be reused."""

        def pid() -> int:
            return int(((self.state(name) or {}).get("workload") or {}).get("pid") or 0)

        found = pid()
        if not found:
            raise Refused(f"node {name} runs nothing now")
        try:
            handle = os.pidfd_open(found)
        except ProcessLookupError:
            raise Refused(f"what node {name} ran has just ended") from None
        try:
            if pid() != found:
                raise Refused(f"node {name} runs something else by now")
            send(handle, signal.SIGKILL)
        finally:
            os.close(handle)

    def restart(self, name: str) -> None:
        node = self.node(name)
        node.restarting = True
        try:
            self.stop(name)
            self.start(name)
        finally:
            node.restarting = False

    def close(self) -> None:
        """All of it ends, in order if it can, and nothing stays behind."""
        with contextlib.suppress(PrimacyError):
            self.stop()
        for helper in self.helpers.values():
            helper.send(signal.SIGTERM)
        for helper in self.helpers.values():
            helper.wait(STOP_S)
        self.drop()

    def drop(self) -> None:
        """All of it ends, now."""
        for helper in self.helpers.values():
            helper.close()
        for node in self.nodes.values():
            if node.is_alive:
                self._kill_whole(node)
        for node in self.nodes.values():
            self._forget(node)
            self._gone(node)
        self.give_store()
        self.place.close()

    # --- links --------------------------------------------------------------------------------------------------------

    def cut(self, node: str, other: str, way: str = "both") -> None:
        """`in`: nothing of `other` reaches `node`; `out`: the reverse; `both`; `none` mends the link."""
        self.links.set(node, other, way)
        self._tell_all()

    def partition(self, shape: str = "", islands: Iterable[Iterable[str]] = ()) -> None:
        """A named shape (`links.SHAPES`), or islands. The links are those of this division, and no other is cut."""
        self.links.divide(islands_of(shape, self.names, self.leader()) if shape else islands)
        self._tell_all()

    def heal(self) -> None:
        self.links.heal()
        self._tell_all()

    # --- the store ----------------------------------------------------------------------------------------------------

    def take_store(self) -> None:
        """Nobody reads or writes the lease from now on, as if its server were away."""
        if self.store is None:
            raise Refused("this lab has no store: it is one of raft; primacy lab up --strategy lease has one")
        if not self.store.take():
            raise Refused("somebody has the file of the leases; say it again in a moment")

    def give_store(self) -> None:
        if self.store is not None:
            self.store.give()

    # --- looking ------------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        if name not in self.nodes:
            raise UsageError(f"there is no node {name[:40]} in this lab; there are {', '.join(self.names)}")
        return self.nodes[name]

    def get(self, name: str, path: str) -> Any:
        """What this node answers. Raises `NotReached`."""
        return ask(self._found(name), path)

    def order(self, name: str, order: str, **body: Any) -> Any:
        """`POST /v1/ORDER`, with the key of that node."""
        return ask(self._found(name), f"/v1/{order}", body)

    def state(self, name: str) -> dict[str, Any] | None:
        """Its state document; None if it does not run or does not answer."""
        if self.node(name).process != "running":
            return None
        try:
            said: dict[str, Any] = self.get(name, "/v1/state")
        except PrimacyError:
            return None
        return said

    def cluster(self, name: str) -> dict[str, Any]:
        """All nodes, as this one knows them. Raises `NotReached`."""
        said: dict[str, Any] = self.get(name, "/v1/cluster")
        return said

    def look(self) -> list[Row]:
        """All nodes, now."""
        return [self._row(node) for node in self.nodes.values()]

    def leader(self) -> str:
        """Who leads with a command that runs; of two that say so, the one of the higher term. Empty: nobody."""
        return leader_of(self.look())

    def events(self) -> list[dict[str, Any]]:
        """What all nodes wrote down, oldest first; also those that are down now."""
        return merged(self.tails())

    def tails(self) -> dict[str, Tail]:
        """To follow the events, from the beginning."""
        return {name: Tail(name, self.place.own_folder(name)) for name in self.names}

    def log(self, name: str) -> str:
        return self.place.log(name).read_text(encoding="utf-8", errors="replace")

    def until(self, check: Callable[[], Answer], what: str, within_s: float = UP_S) -> Answer:
        """Looks until it is so. Raises `NotReached` with the last lines of all logs if it never is."""
        last_s = time.monotonic() + within_s
        while not (found := check()):
            self.on_wait()
            if time.monotonic() > last_s:
                raise NotReached(f"waited {within_s:g} s for {what}, in vain\n{self._logs()}")
            time.sleep(LOOK_S)
        return found

    def until_acting(self, but: str = "", within_s: float = UP_S) -> str:
        """The next node that leads and runs the command; `but`: another one than this."""

        def acting() -> str:
            leader = self.leader()
            return leader if leader != but else ""

        return self.until(acting, f"a leader{f' other than {but}' if but else ''}", within_s)

    # --- how ----------------------------------------------------------------------------------------------------------

    def _found(self, name: str) -> FoundNode:
        """Where the node's *present* process listens: an address that an older one left behind is nobody's."""
        agent = self.node(name).agent
        found = find(str(self.place.own_folder(name)))
        if found is None or agent is None or found.pid != agent.pid:
            raise NotReached(f"node {name} does not listen")
        return found

    def _answers(self, node: Node) -> bool:
        if not node.is_alive:
            code = node.agent.exit_code if node.agent is not None else None
            raise NotReached(f"node {node.name} ended with {code} before it answered\n{self._logs(node.name)}")
        node.has_answered = self.state(node.name) is not None
        return node.has_answered

    def _row(self, node: Node) -> Row:
        agent = node.agent
        code = agent.exit_code if agent is not None else None
        pid = agent.pid if agent is not None and code is None else None
        state, process = self.state(node.name), node.process
        node.has_answered = node.has_answered or state is not None
        waits = process == "running" and not node.has_answered
        return Row(node.name, "starting" if waits else process, pid, code, state)

    def _tell_all(self) -> None:
        for node in self.nodes.values():
            if node.process == "running":
                self._tell_links(node)

    def _tell_links(self, node: Node) -> None:
        """What has changed since this process was last told."""
        for other in self.names:
            way = self.links.way(node.name, other) if other != node.name else "none"
            if node.told.get(other, "none") != way:
                self.order(node.name, "links", node=other, cut=way)
                node.told[other] = way

    def _between_writes(self) -> contextlib.AbstractContextManager[None]:
        """One that is stopped or killed meanwhile was not writing the lease: such a process would keep the file, or
        leave a row that nobody believes (leases.md)."""
        return self.store.quiet() if self.store is not None else contextlib.nullcontext()

    def _thaw(self, node: Node) -> None:
        assert node.agent is not None
        self._forget_frozen(node, signal.SIGCONT)
        node.agent.send(signal.SIGCONT)

    @staticmethod
    def _forget_frozen(node: Node, last: signal.Signals) -> None:
        if node.frozen is not None:
            node.frozen.send(last)
            node.frozen.close()
            node.frozen = None

    def _kill_whole(self, node: Node) -> None:
        """All are stopped first, so that none sees another one die: nothing is released, as after a power cut."""
        assert node.agent is not None
        held = Held()
        try:
            node.agent.send(signal.SIGSTOP)
            before = -1
            while len(held.handles) > before:
                before = len(held.handles)
                held.take_tree(node.agent.pid)
                held.send(signal.SIGSTOP)
            held.send(signal.SIGKILL)
            node.agent.send(signal.SIGKILL)
        finally:
            held.close()
        self._forget_frozen(node, signal.SIGKILL)
        node.agent.wait(GONE_S)

    def _forget(self, node: Node) -> None:
        self._forget_frozen(node, signal.SIGCONT)
        if node.agent is not None:
            node.agent.close()
            node.agent = None
        node.told = {}

    def _gone(self, node: Node) -> None:
        """Until the run lock is free, which is when the last process of its command is gone."""
        path = self.place.own_folder(node.name) / RUN_LOCK
        if not path.exists():
            return
        with path.open("rb") as file:
            self.until(lambda: _is_free(file.fileno()), f"the end of all processes of node {node.name}", GONE_S)

    def _logs(self, *names: str) -> str:
        files = [(name, self.place.log(name)) for name in names or self.names]
        return "\n".join(f"--- {name}\n{self.log(name)[-LOG_CHARS:]}" for name, file in files if file.exists())


def leader_of(rows: Iterable[Row]) -> str:
    """Who leads with a command that runs, by what the nodes say themselves."""
    acting = [
        (row.state["term"], row.node)
        for row in rows
        if row.state is not None and row.state["role"] == "leader" and row.state["workload"]["state"] == "running"
    ]
    return max(acting)[1] if acting else ""


def acts(state: dict[str, Any] | None) -> bool:
    """Whether a node says that something of its command may live."""
    return state is not None and state["workload"]["state"] in ("starting", "running", "stopping", "stuck")


def _is_free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(handle, fcntl.LOCK_UN)
    return True
