"""Real nodes of one cluster on this machine, with commands that stamp when they lived: for tests that break things.

A crowd is used by many tests, one after the other, for every start costs a second of interpreters: each begins with
`settle`, which mends what the one before has broken. Who runs, and whether two did, is read from the stamps alone,
which tell every start of a command from every other; what a node believes, from its control API. With a switch
(`datagram_switch.py`) between the nodes, links can be cut one way or both. Whatever is started is ended, by its number,
and judged once more then.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from primacy.cli.new import write_secret
from primacy.control.client import ask, find
from primacy.errors import NotReached, PrimacyError
from primacy.settings.timing import PROFILES
from tests.support import datagram_switch as switch
from tests.support import stamp
from tests.support.guard_harness import is_alive, state_of
from tests.support.ports import free_ports
from tests.support.safety_checks import one_at_a_time, safe
from tests.support.servers import stop_whole
from tests.support.waiting import wait_until

WITHIN_S = 180.0
"""Far more than anything here takes, also with several crowds on two cores that stall: only a hang reaches it."""
LOOK_S = 0.003
FRESH_NS = 30_000_000
"""Who stamped so lately is alive."""
LASTS_S = 1_800
CLUSTER, ELECTION = "crowd", "main"
PLAIN = "import sys; from primacy.cli import main; sys.exit(main.run(sys.argv[1:]))"
HANG = """
import ctypes, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: ctypes.PyDLL(None).usleep(2_000_000))  # one call, the interpreter's lock held
"""
"""Said before the program itself: at SIGUSR1 the event loop, and every other thread, stands still for two seconds."""


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(word) for word in path.read_text().split()]
    except OSError:
        return []


def tree(pid: int) -> list[int]:
    return [pid, *(each for child in children(pid) for each in tree(child))]


class Stopped(threading.local):
    """Whom we stopped. A spare guard that is stopped outlives its agent, for nothing ends one that holds nothing.

    Each thread has its own: of stories side by side, none wakes whom another has stopped.
    """

    def __init__(self) -> None:
        self.pids: set[int] = set()


STOPPED = Stopped()


def tell_all(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            if number == signal.SIGSTOP:
                STOPPED.pids.add(pid)


def wake_all() -> None:
    """Whoever is still stopped by us goes on."""
    tell_all(signal.SIGCONT, [pid for pid in STOPPED.pids if state_of(pid) == "T"])
    STOPPED.pids.clear()


class Node:
    """One `primacy run`."""

    def __init__(self, name: str, call: list[str], state: Path, log: Path, cwd: Path) -> None:
        self.name = name
        self.state = state
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        return self.log.read_text()

    @property
    def is_up(self) -> bool:
        return self.process.poll() is None

    @property
    def guards(self) -> list[int]:
        """The agent's own children: the guard of its work, and the spare one."""
        return children(self.pid)

    @property
    def guard(self) -> int:
        """The one that holds a tree."""
        found: int = wait_until(
            lambda: next((pid for pid in self.guards if len(tree(pid)) > 1), 0), "a guard with a tree"
        )
        return found

    @property
    def ballot(self) -> Path:
        return self.state / CLUSTER / ELECTION / "ballot"

    def ask(self, path: str = "/v1/state", order: dict[str, Any] | None = None) -> Any:
        """None if it does not answer."""
        found = find(str(self.state / CLUSTER / ELECTION)) if self.is_up else None
        with contextlib.suppress(NotReached):
            return ask(found, path, order) if found is not None else None
        return None

    def document(self) -> dict[str, Any]:
        said: dict[str, Any] = wait_until(self.ask, f"an answer of {self.name}")
        return said

    def wait(self) -> int:
        return self.process.wait(WITHIN_S)


class Handover(NamedTuple):
    """What a fault did: the last stamp before it, the first one after it, on whose node it struck, and how long."""

    old: stamp.Stamp
    new: stamp.Stamp
    struck: Node
    took_ms: float


class Crowd:
    """Nodes, the file that their commands stamp, and the switch between them."""

    def __init__(
        self,
        folder: Path,
        names: str = "abc",
        profile: str = "lab",
        *,
        switched: bool = False,
        first: str = "auto",
        plant: str = "",
        options: tuple[str, ...] = (),
        more: str = "",
    ) -> None:
        self.folder = folder
        self.profile = profile
        self.timing = PROFILES[profile]
        self.first, self.plant, self.options, self.more = first, plant, options, more
        self.stamps, self.ways_file = folder / "stamps", folder / "ways"
        folder.chmod(0o755)
        self.program = folder / "stamp.py"
        """Where every user may read it: a checkout may be in a folder of its owner's."""
        shutil.copyfile(stamp.__file__, self.program)
        stamp.make_file(str(self.stamps))
        self.ways()
        write_secret(folder / "secret")
        self.ports: dict[str, int] = {}
        self.listed: dict[str, int] = {}
        self.wires = (
            subprocess.Popen(
                [sys.executable, "-I", "-S", switch.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            if switched
            else None
        )
        self.names = ""
        self.list(names)
        self.nodes: dict[str, Node] = {}
        self.started: list[Node] = []
        self.is_judged = True
        """At its end. Not if a rule was taken out on purpose, so that there is an overlap to be found."""

    # --- the file -----------------------------------------------------------------------------------------------------

    def list(self, names: str) -> None:
        """From now on the file lists these; known ones keep their ports."""
        fresh = [name for name in names if name not in self.ports]
        ports = free_ports(2 * len(fresh))
        for at, name in enumerate(fresh):
            self.ports[name] = ports[2 * at]
            self.listed[name] = ports[2 * at + 1] if self.wires else ports[2 * at]
        self.names = names
        if self.wires:
            self.switch(nodes={name: [self.listed[name], self.ports[name]] for name in names})
        self.file("primacy.yaml")

    def file(self, name: str, profile: str = "", cluster: str = CLUSTER, **bound: int) -> Path:
        """The same file but for what is said here: `bound` gives a node another port of its own."""
        ports = {**self.ports, **bound}
        nodes = "".join(
            f'      {one}: {{addr: "127.0.0.1:{self.listed[one]}", bind: "127.0.0.1:{ports[one]}"}}\n'
            for one in self.names
        )
        (self.folder / name).write_text(
            f"cluster:\n  name: {cluster}\n  secret_file: secret\n  first_start: {self.first}\n  manager:\n"
            f"    type: static\n    nodes:\n{nodes}election:\n  profile: {profile or self.profile}\n"
            f"{self.more}"
        )
        return self.folder / name

    def ways(self, *ways: str) -> None:
        """What the commands that start from now on are like."""
        self.ways_file.write_text(" ".join((f"for={LASTS_S}", *ways)))

    # --- nodes --------------------------------------------------------------------------------------------------------

    def start(self, *names: str, state: str = "", file: str = "primacy.yaml", under: tuple[str, ...] = ()) -> Node:
        """These nodes, or all; says the last."""
        for name in names or self.names:
            front = ["-c", self.plant + PLAIN] if self.plant else ["-m", "primacy.cli.main"]
            folder = self.folder / (state or f"state-{name}")
            call = [*under, sys.executable, *front, "--node", name, "run", "--config", str(self.folder / file)]
            call += [
                "--state-dir",
                str(folder),
                "--stop-ms",
                "200",
                *self.options,
                "--",
                interpreter(),
                "-I",
                "-S",
                str(self.program),
            ]
            log = self.folder / f"log-{len(self.started)}-{name}"
            node = Node(name, [*call, str(self.stamps), f"@{self.ways_file}"], folder, log, self.folder)
            self.started.append(node)
            if not state:
                self.nodes[name] = node
        return self.started[-1]

    def settle(self, *ways: str) -> Node:
        """All are up, connected and healthy, follow one leader, and its command runs, in these ways: that node."""
        self.mend()
        self.start_missing()
        self.agree()
        if self.ways_file.read_text() != " ".join((f"for={LASTS_S}", *ways)):
            self.ways(*ways)
            old: stamp.Stamp = self.until(self._told_to_step_down, "a leader that steps down")
            self.acting(old.token)
            self.agree()
        return self.nodes[self.acting().node]

    def _told_to_step_down(self) -> stamp.Stamp | None:
        """Whose command runs now: it may be another one's by the time that the order comes, and is then asked anew."""
        old = self.acting()
        with contextlib.suppress(PrimacyError):
            return old if self.nodes[old.node].ask("/v1/step-down", {}) is not None else None
        return None

    def start_missing(self) -> None:
        for name in self.names:
            if name not in self.nodes or not self.nodes[name].is_up:
                self.start(name)

    def agree(self) -> str:
        """Until all that are up follow one of them."""

        def look() -> str:
            said = [node.ask() for name, node in sorted(self.nodes.items()) if name in self.names and node.is_up]
            leaders = {one["leader"] if one else None for one in said}
            return str(leaders.pop() or "") if len(leaders) == 1 else ""

        return str(self.until(look, "one leader whom all follow"))

    def order(self, node: Node, path: str, order: dict[str, Any]) -> Any:
        """A node that is just being told something else may refuse, and one that stands still does not answer in time:
        then it is asked again. What the latter was told may be done by then, and be refused for that."""
        is_lost = False

        def say() -> Any:
            nonlocal is_lost
            try:
                found = node.ask(path, order)
            except PrimacyError:
                return is_lost
            is_lost = is_lost or found is None
            return None if found is None else found or True

        return self.until(say, f"{path} at {node.name}")

    def mend(self) -> None:
        self.cut()
        wake_all()
        for node in self.started:
            if node.is_up:
                tell_all(signal.SIGCONT, (node.pid, *node.guards))

    def end(self) -> None:
        try:
            self._end_all()
        finally:
            if self.is_judged:
                self.one_at_a_time()

    def _end_all(self) -> None:
        pids = list(STOPPED.pids)
        for node in self.started:
            pids += tree(node.pid)[1:] if node.is_up else []
            if node.is_up:
                tell_all(signal.SIGCONT, (node.pid,))
                node.process.kill()
        for node in self.started:
            node.process.wait(WITHIN_S)
        tell_all(signal.SIGCONT, pids)
        wake_all()
        if self.plant:
            tell_all(signal.SIGKILL, self.commands())  # of a guard that was made worse on purpose
        wait_until(lambda: not self.commands() and not any(map(is_alive, pids)), "the end of all")
        if self.wires:
            self.wires.communicate(timeout=WITHIN_S)

    def commands(self) -> builtins.list[int]:
        """Every process that stamps into our file."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    if str(self.stamps).encode() in Path(f"/proc/{entry}/cmdline").read_bytes() and is_alive(
                        int(entry)
                    ):
                        found.append(int(entry))
        agents = {node.pid for node in self.started}
        return [pid for pid in found if pid not in agents]

    # --- links --------------------------------------------------------------------------------------------------------

    def switch(self, **order: Any) -> None:
        assert self.wires is not None and self.wires.stdin is not None and self.wires.stdout is not None  # noqa: PT018
        self.wires.stdin.write(json.dumps(order).encode() + b"\n")
        self.wires.stdin.flush()
        assert self.wires.stdout.readline() == b"done\n"

    def cut(self, *ways: str) -> None:
        """`ab`: what a sends does not reach b. All else passes."""
        if self.wires:
            self.switch(cut=[list(way) for way in ways])

    def apart(self, *sides: str) -> None:
        """Each of these groups hears only itself."""
        self.cut(*(x + y for one in sides for other in sides if one != other for x in one for y in other))

    # --- what is seen -------------------------------------------------------------------------------------------------

    def until(self, check: Callable[[], Any], what: str, within_s: float = WITHIN_S) -> Any:
        def told() -> str:
            logs = "\n".join(f"--- {one.log.name}\n{one.text[-3_000:]}" for one in self.started[-8:])
            return f"{self.stamped()[-6:]}\n{logs}"

        return wait_until(check, what, within_s, LOOK_S, told=told)

    def stamped(self) -> builtins.list[stamp.Stamp]:
        return stamp.read(str(self.stamps))

    def living(self) -> builtins.list[stamp.Stamp]:
        now = stamp.now_ns()
        return [one for one in self.stamped() if now - one.last_ns < FRESH_NS]

    def has_grown(self, count: int = 20) -> bool:
        """The command that runs has a tree of more processes than that. Each has stamped since it began; that all of
        them come to stamp within a moment is not to be had of every machine."""
        acts = self.acting()
        return len([one for one in self.stamped() if one.instance == acts.instance]) > count

    def acting(self, above: int = 0) -> stamp.Stamp:
        """The command that runs, under a token above this one, once there is one."""

        def look() -> stamp.Stamp | None:
            found = [one for one in self.living() if one.kind == stamp.COMMAND and one.token > above]
            return found[-1] if found else None

        found: stamp.Stamp = self.until(look, f"a command under a token above {above}")
        return found

    def elsewhere(self, lost: str) -> stamp.Stamp:
        """The command of another node than these, once one runs."""

        def look() -> stamp.Stamp | None:
            found = self.acting()
            return None if found.node in lost else found

        found: stamp.Stamp = self.until(look, f"a command on another node than {lost}")
        return found

    def one_at_a_time(self) -> None:
        """I1 and I4, by what was stamped."""
        one_at_a_time(self.stamped())

    def one_now(self) -> stamp.Stamp:
        """I1, and exactly one goes on. Whoever stamps may have to wait for a processor: it is watched for."""

        def look() -> bool:
            self.one_at_a_time()
            return len({one.instance for one in self.living()}) == 1

        for _ in range(2):
            self.until(look, "one that runs")
            time.sleep(2 * FRESH_NS / 1e9)
        return self.acting()

    def nobody(self) -> bool:
        """No command is left. One that has not stamped for a moment may only wait for a processor."""
        return not self.living() and not self.commands()

    def nobody_for(self, ms: int) -> None:
        """From now on, nothing stamps for so long."""
        last_ns = stamp.now_ns()
        time.sleep(ms / 1_000)
        ran = [one for one in self.stamped() if one.last_ns > last_ns]
        safe(not ran, f"a command runs where none may: {ran}")

    def strike(self, harm: Callable[[Node], object]) -> Handover:
        """Does this to the node that acts; until another token's command runs. Never an overlap."""
        old = self.acting()
        node = self.nodes[old.node]
        since_ns = stamp.now_ns()
        harm(node)
        new = self.acting(old.token)
        time.sleep(FRESH_NS / 1e9)  # so that an old one that goes on has stamped beside it
        self.one_at_a_time()
        return Handover(old, new, node, (new.first_ns - since_ns) / 1e6)

    def tokens(self) -> builtins.list[int]:
        return sorted({one.token for one in self.stamped()})


def interpreter() -> str:
    """For the commands: one that any user may execute, where there is one."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else os.path.realpath(sys.executable)


@contextlib.contextmanager
def crowd_in(folder: Path, names: str = "abc", profile: str = "lab", **more: Any) -> Iterator[Crowd]:
    """A crowd that has been started, ended whatever happens."""
    made = Crowd(folder, names, profile, **more)
    try:
        yield made
    finally:
        made.end()


@contextlib.contextmanager
def burning(count: int) -> Iterator[None]:
    """Processes that use all the time they are given."""
    burners = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"], start_new_session=True)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for one in burners:
            one.kill()
            one.wait()


# --- what is done to a node -------------------------------------------------------------------------------------------


def kill_agent(node: Node) -> None:
    node.process.kill()


def kill_all(node: Node) -> None:
    """From the leaves to the agent: no guard outlives it and could still release.

    Nor does the agent, which stands still meanwhile: on a lease it would release what it sees to be gone.
    """
    stop_agent(node)
    stop_whole(node.pid)  # only under a parent that stands is the list of its children whole
    tell_all(signal.SIGKILL, reversed(tree(node.pid)))


def kill_guard(node: Node) -> None:
    tell_all(signal.SIGKILL, [node.guard])


def stop_agent(node: Node) -> None:
    tell_all(signal.SIGSTOP, [node.pid])


def stop_agent_and_guards(node: Node) -> None:
    """The guards when the agent stands. It may be starting one: stopped before it is a program of its own, that one
    would keep the agent waiting in the kernel (vfork), where no signal but the last stops it."""
    stop_whole(node.pid)
    tell_all(signal.SIGSTOP, node.guards)


def stop_guards_and_agent(node: Node) -> None:
    tell_all(signal.SIGSTOP, (*node.guards, node.pid))


def hang(node: Node) -> None:
    """See `HANG`."""
    os.kill(node.pid, signal.SIGUSR1)


LEAVING = ("escape",)
"""A process that leaves the command. Containment is strong, in one way or the other, wherever these tests run."""
