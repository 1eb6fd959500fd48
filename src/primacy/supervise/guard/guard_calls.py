"""The guard of a cache's calls: a small process that holds one process tree which fetches an entry (C4).

A peer starts some of these ahead (`cache/source_guard.py`) and talks to each over one packet socket in JSON. The tree
is a command that runs once, or a worker that is kept for many calls of a function. Whatever becomes of the peer, frozen
or killed, the tree ends in time: each call has three absolute instants of CLOCK_BOOTTIME in ms,

    cancel_at    SIGTERM; from here on nothing moves the instants any more
    kill_at      SIGKILL to all of the tree
    deadman_at   a kernel timer kills this process, running or stopped, and the tree with it

and only the peer's word that the hold was proved anew moves them, always to later ones. A frozen peer says nothing.

    namespace:  guard -- init of a pid namespace -- program -- ...   all of it dies with the guard, by the kernel
    weak:       guard -- program -- ...   the guard hunts what it finds below itself; if it is killed itself, only the
                                          program is bound to it

The peer's death: by the kernel in a namespace (PR_SET_PDEATHSIG), otherwise seen here, and the tree is hunted down.

Like `guard.py` it imports nothing of the package. It waits for the kernel only, and while it does a timer is armed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys

TYPE_CHECKING = False  # as in `typing`, which costs memory
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from primacy.supervise.guard import guard_tree as tree
else:
    import guard_tree as tree  # its folder is on the path, the package is not

PACKET_BYTES_MAX = 512 * 1024
FDS_MAX = 8
HANDLE_BYTES = socket.CMSG_SPACE(4 * FDS_MAX)
RECEIVE = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
"""`socket.recv_fds` passes no flags on."""
MARK = b"+"
EXTENSION = struct.Struct("!cq3q")
"""The mark, which no JSON begins with; the run; cancel_at, kill_at, deadman_at."""
JOB = struct.Struct("!I")
KEPT = -1
"""In place of a number for a descriptor: it is the pipe by which this process hands jobs to the worker."""
HIGH_FD = 100
"""Descriptors are moved above this before they get the numbers that the program expects."""
HUNT_PAUSE_MS = 5
HUNTS_MAX = 50
PACKETS_MAX = 64
STATUS = struct.Struct("i")


class Tree:
    """One program and all that stems from it, from the first fork until nothing is left."""

    def __init__(self, order: dict[str, Any], fds: Sequence[tuple[int, int]], way: str) -> None:
        """Returns when the program is executed. Raises `OSError` if it cannot be."""
        self.run: int = order["run"]
        self.way = way
        self.status: int | None = None
        self.killed = False
        self.hunt_at = 0
        self.root = self.program_fd = self.root_fd = self.tell_fd = -1
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._begin(order, fds, line, theirs)
        except OSError:
            line.close()  # whatever was forked reads the end of the line and exits
            self.kill()
            self.close()
            raise
        line.close()

    def _begin(
        self, order: dict[str, Any], fds: Sequence[tuple[int, int]], line: socket.socket, theirs: socket.socket
    ) -> None:
        self.tell_fd, tell = os.pipe2(os.O_CLOEXEC) if self.way else (-1, -1)

        def first() -> None:
            line.close()
            if not self.way:
                be_program(order, fds, theirs)
            tree.enter_namespace()
            init = tree.fork(lambda: be_init(order, fds, theirs, tell), theirs)
            theirs.send(b"=%d" % init)

        self.root = tree.fork(first, theirs)
        theirs.close()
        if self.way:
            os.close(tell)
            os.waitpid(self.root, 0)
            said = line.recv(1_024)
            if not said.startswith(b"="):
                raise OSError(0, f"no pid namespace can be made now: {said[1:].decode(errors='replace')}")
            self.root = int(said[1:])  # an orphan by now, hence a child of this process
        self.root_fd = os.pidfd_open(self.root)
        if self.way:
            line.send(b"b")
        said, about, _, _ = line.recvmsg(1_024, socket.CMSG_SPACE(12))
        if said == b"+":
            pid = struct.unpack("3i", about[0][2][:12])[0]  # the kernel gives the number in our namespace
            self.program_fd = os.pidfd_open(pid)
            line.send(b"g")
            said = line.recv(1_024)  # nothing: the line was closed by the execution
        if said:
            raise OSError(0, said[1:].decode(errors="replace"))

    def signal(self, number: int) -> None:
        """To the program itself, continued so that a stopped one can obey."""
        for each in (number, signal.SIGCONT):
            tree.send(self.program_fd, each, None)

    def kill(self) -> None:
        self.killed = True
        for fd in (self.program_fd, self.root_fd):
            if fd >= 0:
                tree.send(fd, signal.SIGKILL, None)

    def is_gone(self) -> bool:
        """Reaps what has ended. Weak: hunts what the program left behind."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.root:
                    self.root = 0
                    if not self.way:
                        self.status = ended[1]
        if self.root:
            return False
        if self.way:
            said = os.read(self.tell_fd, STATUS.size) if self.status is None else b""
            self.status = STATUS.unpack(said)[0] if said else int(signal.SIGKILL)
            return True
        for _ in range(HUNTS_MAX):
            if tree.hunt(-1) == 0:
                return True
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        self.hunt_at = tree.now_ms() + HUNT_PAUSE_MS
        return False

    def close(self) -> None:
        for fd in (self.root_fd, self.program_fd, self.tell_fd):
            if fd >= 0:
                os.close(fd)


def be_init(order: dict[str, Any], fds: Sequence[tuple[int, int]], line: socket.socket, tell: int) -> None:
    """The namespace's init: bound to the guard, it starts the program, reaps, and says how it ended.

    Its end ends everything in the namespace, so that nothing outlives the program.
    """
    tree.call_it(b"primacy-init")
    tree.close_but(line.fileno(), tell, *(fd for fd, _ in fds))
    tree.go_first()
    if not line.recv(1):  # now the guard is the parent
        return
    tree.bind_to_parent()
    tree.own_proc()
    program = tree.fork(lambda: be_program(order, fds, line), line)
    line.close()
    for fd, _ in fds:
        os.close(fd)
    while (ended := os.wait())[0] != program:
        pass
    os.write(tell, STATUS.pack(ended[1]))


def be_program(order: dict[str, Any], fds: Sequence[tuple[int, int]], line: socket.socket) -> NoReturn:
    """Become the program: descriptors, folder, bond, the byte, exec. Nothing of the guard is left in it."""
    doing = "start"
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(each, signal.SIG_DFL)
        os.setsid()
        line = socket.socket(fileno=fcntl.fcntl(line.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH_FD))
        moved = [(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD), number) for fd, number in fds if number != KEPT]
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        for fd, number in moved:
            os.dup2(fd, number)
        numbers = [number for _, number in moved]
        tree.close_but(line.fileno(), *numbers)
        doing = f"enter {order['cwd']}"
        os.chdir(order["cwd"])
        doing = "bind itself to its guard"
        tree.bind_to_parent()
        line.send(b"+")
        if not line.recv(1):
            os._exit(0)
        argv = [word.encode("latin-1") for word in order["argv"]]
        doing = f"execute {order['argv'][0]}"
        env = {name.encode("latin-1"): value.encode("latin-1") for name, value in order["env"].items()}
        os.execve(argv[0], argv, env)
    except (OSError, ValueError, TypeError, KeyError) as error:
        line.send(f"!cannot {doing}: {getattr(error, 'strerror', None) or error}".encode(errors="replace"))
    finally:
        os._exit(127)


class CallGuard:
    """What the peer wants, what the clock says and what the tree does, in one loop."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.peer_fd = -1
        self.leaving = False
        self.way = ""
        self.deadman = tree.make_deadman()
        self.timer = tree.make_timer()
        self.tree: Tree | None = None
        self.jobs = -1
        self.cancel_at = self.kill_at = tree.NEVER_MS
        self.deadman_at = 0
        """0: not armed."""
        self.cancelled = False
        self.given: list[int] = []

    def loop(self) -> None:
        while not (self.leaving and self.tree is None):
            tree.set_timer(self.timer, self.next_ms())
            poll = select.poll()
            for fd in self.watched():
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll()}
            now = tree.now_ms()
            if not self.leaving:
                self.hear()  # before the deadlines: what came in time counts, however late it is read
            if self.peer_fd in ready:
                self.leave()
            self.keep_deadlines(now)
            if self.tree is not None and self.tree.is_gone():
                self.gone(self.tree)

    def watched(self) -> list[int]:
        fds = [self.timer]
        if not self.leaving:
            fds += [self.peer.fileno(), self.peer_fd]
        if self.tree is not None and self.tree.root:
            fds.append(self.tree.root_fd)
        return [fd for fd in fds if fd >= 0]

    def next_ms(self) -> int:
        if self.tree is None:
            return tree.NEVER_MS
        due = [tree.NEVER_MS]
        if not self.cancelled:
            due.append(self.cancel_at)
        if not self.tree.killed:
            due.append(self.kill_at)
        if not self.tree.root:
            due.append(self.tree.hunt_at)
        return min(due)

    def leave(self) -> None:
        """The peer is gone, or wants nothing more: so is all that ran for it."""
        self.leaving = True
        if self.tree is not None:
            self.tree.kill()

    def tell(self, word: str, *fds: int, **more: object) -> None:
        with contextlib.suppress(OSError):
            socket.send_fds(self.peer, [json.dumps({"is": word, **more}).encode()], list(fds))

    # --- the peer's words

    def hear(self) -> None:
        for _ in range(PACKETS_MAX):
            try:
                packet, more, _, _ = self.peer.recvmsg(PACKET_BYTES_MAX, HANDLE_BYTES, RECEIVE)
                self.given = [fd for _, _, data in more for fd in struct.unpack(f"{len(data) // 4}i", data)]
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self.leave()
                return
            try:
                if packet.startswith(MARK):
                    _, run, *instants = EXTENSION.unpack(packet)
                    self.extend(run, *instants)
                else:
                    self.obey(json.loads(packet))
            except (struct.error, ValueError, KeyError, TypeError) as error:
                self.tell("error", why=f"{type(error).__name__}: {error}")
            while self.given:
                os.close(self.given.pop())

    def obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "hello" if self.peer_fd < 0:
                self.hello(order["peer"])
            case "start" if self.tree is None and self.peer_fd >= 0:
                self.start(order)
            case "job" if self.is_run(order) and not self.cancelled and self.jobs >= 0:
                self.job(order)
            case "rest" if self.is_run(order) and not self.cancelled:
                self.arm(tree.NEVER_MS, tree.NEVER_MS, 0)
            case "stop" if self.is_run(order):
                self.cancel()
                self.kill_at = min(self.kill_at, order["kill_at"])
            case "start":
                self.tell("gone", run=order["run"], code=None, signal=None, why="there is no place for it any more")
            case "job" | "rest" | "stop":
                pass  # it ends, or has ended meanwhile: that is told, or was
            case other:
                self.tell("error", why=f"not now, or never heard of: {other}")

    def is_run(self, order: dict[str, Any]) -> bool:
        return self.tree is not None and self.tree.run == order["run"]

    def hello(self, peer: int) -> None:
        self.peer_fd = os.pidfd_open(peer)
        number = tree.try_namespace()
        self.way = "namespace" if number == 0 else ""
        if self.way:
            tree.bind_to_parent()
        else:  # it must live to hunt the tree down, and go on if it was stopped
            tree.checked(tree.libc.prctl(tree.PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0))
        if os.getppid() != peer:  # it died before the kernel could know
            self.leave()
        self.tell("ready", way=self.way, why="" if self.way else os.strerror(number))

    def start(self, order: dict[str, Any]) -> None:
        numbers = order["fds"]
        fds = list(zip(self.given, numbers, strict=True))
        self.cancelled = False
        self.arm(order["cancel_at"], order["kill_at"], order["deadman_at"])
        try:
            if tree.now_ms() >= self.cancel_at:
                raise OSError(0, "its time was over before it began")
            self.tree = Tree(order, fds, self.way)
        except OSError as error:
            self.arm(tree.NEVER_MS, tree.NEVER_MS, 0)
            self.tell("gone", run=order["run"], code=None, signal=None, why=error.strerror or str(error))
            return
        self.jobs = next((fd for fd, number in fds if number == KEPT), -1)
        if self.jobs >= 0:
            self.given.remove(self.jobs)
        self.tell("started", self.tree.root_fd, run=order["run"])

    def job(self, order: dict[str, Any]) -> None:
        """Armed first. A worker that does not take its job at once is none."""
        assert self.tree is not None
        self.arm(order["cancel_at"], order["kill_at"], order["deadman_at"])
        data = order["job"].encode("latin-1")
        packet = JOB.pack(len(data)) + data
        try:
            whole = os.write(self.jobs, packet) == len(packet)
        except OSError:
            whole = False
        if not whole:
            self.tree.kill()

    def extend(self, run: int, cancel_at: int, kill_at: int, deadman_at: int) -> None:
        """Only to later instants, only while one is armed, and never once the end has begun."""
        if self.tree is None or self.tree.run != run or self.cancelled or not self.deadman_at:
            return
        self.arm(max(self.cancel_at, cancel_at), max(self.kill_at, kill_at), max(self.deadman_at, deadman_at))

    def arm(self, cancel_at: int, kill_at: int, deadman_at: int) -> None:
        self.cancel_at, self.kill_at, self.deadman_at = cancel_at, kill_at, deadman_at
        tree.arm_deadman(self.deadman, deadman_at)

    # --- ends

    def cancel(self) -> None:
        if not self.cancelled and self.tree is not None:
            self.cancelled = True
            self.tree.signal(signal.SIGTERM)

    def keep_deadlines(self, now: int) -> None:
        if self.tree is None:
            return
        if now >= self.cancel_at:
            self.cancel()
        if now >= self.kill_at and not self.tree.killed:
            self.tree.kill()

    def gone(self, ended: Tree) -> None:
        """Nothing is left of it."""
        self.arm(tree.NEVER_MS, tree.NEVER_MS, 0)
        assert ended.status is not None
        code = os.waitstatus_to_exitcode(ended.status)
        ended.close()
        self.tree = None
        if self.jobs >= 0:
            os.close(self.jobs)
            self.jobs = -1
        self.tell("gone", run=ended.run, code=None if code < 0 else code, signal=-code if code < 0 else None, why="")


def main() -> None:
    peer = socket.socket(fileno=int(sys.argv[-1]))
    peer.set_inheritable(False)
    tree.be_guard(peer.fileno())
    tree.call_it(b"primacy-source")
    guard = CallGuard(peer)
    try:
        guard.loop()
    finally:
        if guard.tree is not None:
            guard.tree.kill()
