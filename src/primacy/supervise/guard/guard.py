"""The guard: a small process that holds the command's process tree and its deadline (rules G1-G5, G9, G10).

The agent starts it (`supervise/containment.py`), talks to it over one packet socket in JSON, and may then be killed,
stopped or stuck: the tree ends in time nevertheless. It must never import the package, wait for anything without a
limit, or believe a duration: every deadline is an absolute instant of CLOCK_BOOTTIME in ms.

Extensions, which come with every heartbeat, take a pipe of their own, at which nobody waits: an idle guard is not woken
for each. It looks there by itself, some time before `term_at` and always before it judges a deadline; an extension
counts by the instants in it, however late it is read. Until then the kernel's timer stands at an earlier one, never a
later.

What ends the tree, from the gentle to the certain:
  the agent says stop; no extension until `term_at` (TERM) and `kill_at` (KILL); the agent is dead (KILL at once);
  at `deadman_at` a kernel timer kills this process, running or stopped, and the tree dies with it, because

  namespace:  guard -- init of a pid namespace -- command -- ...   the init has PR_SET_PDEATHSIG=SIGKILL, and when an
                                                                   init dies the kernel kills all in its namespace;
  ptrace:     guard -- holder -- command -- ...                    the guard traces all but the holder, and the kernel
                                                                   kills what is traced (`guard_trace.py`);
  weak:       guard -- command -- ...                              only the command itself is bound to the guard.

The run lock must not be free while anything of the tree lives (G3). Holding it in guard and init is not enough: a dying
process closes its files *before* the kernel tells its children or empties its namespace. So a third process, the
holder, holds the lock until the init (weak: the command) is gone; of a traced tree it is the ancestor that reaps all of
it. A file can be removed while it is locked, and be made anew, unlocked: so the lock is one of the file and one of its
folder (G11). In `weak` the command inherits the lock as well, so that what outlives a killed guard at least keeps a
second start away, unless it closed the descriptor.

Each start goes: take the lock, arm the timer, fork, wait until the child has bound itself and says so, look at the
deadlines once more, and only then let it execute (one byte; end of file means exit, for then the guard is dead).
"""

from __future__ import annotations

import binascii
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
    from typing import Any

    from primacy.supervise.guard import guard_run as runs
    from primacy.supervise.guard import guard_tree as tree
else:
    import guard_run as runs  # its folder is on the path, the package is not
    import guard_tree as tree

PACKET_BYTES_MAX = 256 * 1024
"""A start carries the whole environment; the kernel's own limit for a packet is a little below this."""
EXTENSION = struct.Struct("!c3q")
EXTENSION_MARK = b"+"
"""No JSON begins so. After it `term_at`, `kill_at`, `deadman_at`. In the pipe, or in a packet if the pipe is full."""
EXTENSIONS_MAX = 160
"""Read from the pipe in a row: as many as the kernel keeps whole in a page."""
LOOK_PARTS = 4
"""The pipe is looked at when a fourth of the time to TERM is left: it need not be soon, for the kernel's timer stands
behind KILL, and it must not be late, for whoever looks may have to wait for a processor."""
ORDERS_MAX = 64
"""Packets read in a row before the deadlines are looked at again."""
HUNTS_MAX = 50
"""Weak: looks in a row for processes that are still there after KILL, before anything else is attended to."""
PAUSE_MS_MAX = 100
"""Weak: the pause until the next looks doubles up to this, for what is still there then may be stuck for long."""
RELEASE_TIMES = 2
"""Each release leaves so many times: repeating it does no harm (G6), and a lost one costs the others a whole hold."""
RECEIVE = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
HANDLE_BYTES = socket.CMSG_SPACE(4)
"""At most one descriptor comes with a packet."""
START_FAULTS = (OSError, ValueError, KeyError, TypeError, IndexError)
"""Of a machine that has no room or no descriptor left, and of an order that makes no sense."""
LINGER_MS = 100
"""A dying agent closes its socket before its death can be seen; for so long an end of file may turn out to be one."""
LINGER_ON_LEASE_MS = 5_000
"""The same on a lease: who holds hundreds wakes as many guards while it dies, and waits for a processor behind them."""


def may_release(guard: Guard) -> bool:
    """G5, all three: the agent is dead or ordered it, the tree is confirmed gone, the run lock is held."""
    return (guard.agent_dead or guard.release_ordered) and guard.run is None and guard.lock_fd >= 0


class Guard:
    """What the agent wants, what the clock says and what the tree does, in one loop."""

    def __init__(self, agent: socket.socket) -> None:
        self.agent = agent
        self.agent_fd = -1
        self.agent_dead = False
        self.cut_ms = tree.NEVER_MS
        """When the agent's end of the socket was found closed."""
        self.leaving = False
        self.lock_path = ""
        self.lock_fd = self.folder_fd = -1
        """Open means held, both: from the first start to the end of this process, restarts included."""
        self.ready, self.way, self.strong_only = False, "", False
        self.deadman = tree.make_deadman()
        self.timer = tree.make_timer()
        self.extensions = -1
        self.term_at = self.kill_at = self.stop_kill_at = self.look_at = tree.NEVER_MS
        self.deadman_at = 0
        self.stop_signal = int(signal.SIGTERM)
        self.closed = ""
        """Why nothing can be started or extended any more (Q8); empty while it can."""
        self.run: runs.Run | None = None
        self.last_run = 0
        self.release_ordered = False
        self.datagrams: list[list[Any]] = []
        self.given: list[int] = []
        """Descriptors that came with the order that is being obeyed."""
        self.releaser = -1
        self.words = b""
        """A lease in a store: the pipe to the process that can release it, and what to say to it."""
        self.packet = memoryview(bytearray(PACKET_BYTES_MAX))

    def loop(self) -> None:
        poll, polled = select.poll(), list[int]()
        while not self.finished():
            tree.set_timer(self.timer, self.next_ms())
            fds = self.watched()
            if fds != polled:
                poll, polled = select.poll(), fds
                for fd in fds:
                    poll.register(fd, select.POLLIN)
            found = poll.poll()
            while len(found) == 1 and found[0][0] == self.timer and self.goes_on():
                found = poll.poll()
            ready, now = {fd for fd, _ in found}, tree.now_ms()
            # After the clock and before the deadlines: what came in time counts, however late it is read, and also if
            # this process slept between the poll and here.
            self.hear_extensions(now)
            if self.agent.fileno() in ready or (now >= self.term_at and self.cut_ms == tree.NEVER_MS):
                self.hear_agent()
            if self.agent_fd in ready and not self.agent_dead:
                self.agent_dead = True
                self.close("the agent is dead")
                self.kill()
                self.release()
            self.keep_deadlines(now)
            self.watch_tree(ready)

    def watched(self) -> list[int]:
        fds = [self.timer]
        if self.cut_ms == tree.NEVER_MS:
            fds.append(self.agent.fileno())
        if not self.agent_dead:
            fds.append(self.agent_fd)
        if self.run is not None:
            run = self.run
            fds += [run.line.fileno(), run.tell_fd, run.root_fd if run.root else -1, run.lock_holder_fd]
            fds.append(run.trace.fd if run.trace is not None else -1)
        return [fd for fd in fds if fd >= 0]

    def next_ms(self) -> int:
        """The earliest instant at which something is due without further news."""
        run, due = self.run, []
        if not self.closed:
            due.append(min(self.look_at, self.term_at))
        if run is not None and not run.killed:
            due.append(min(self.kill_at, self.stop_kill_at))
        if run is not None and not run.way and (run.killed or not run.root):
            due.append(run.hunt_at)
        if run is not None and run.trace is not None:
            due.append(0 if run.trace.more else run.trace.quiet_at)
        if run is None and self.cut_ms < tree.NEVER_MS:
            due.append(self.cut_ms + self.linger_ms())
        return min(due, default=tree.NEVER_MS)

    def finished(self) -> bool:
        if self.run is not None:
            return False
        return self.agent_dead or self.leaving or tree.now_ms() >= self.cut_ms + self.linger_ms()

    def linger_ms(self) -> int:
        return LINGER_ON_LEASE_MS if self.releaser >= 0 else LINGER_MS

    # --- the agent's words

    def tell(self, word: str, **more: object) -> None:
        with contextlib.suppress(OSError):
            self.agent.send(json.dumps({"is": word, **more}).encode(), socket.MSG_DONTWAIT)

    def goes_on(self) -> bool:
        """The one thing that happens all the time: the timer rang, extensions have come, and nothing else is due.

        False if there is more to be looked at. Then all that was found here is found once more.
        """
        run, now = self.run, tree.now_ms()
        if run is None or run.phase != "running" or run.killed or self.closed:
            return False
        self.hear_extensions(now)
        due = min(self.look_at, self.term_at, self.kill_at, self.stop_kill_at)
        if now >= due or self.look_at == tree.NEVER_MS:
            return False
        tree.set_timer(self.timer, due)
        self.reap(run)
        busy = run.trace is not None and run.trace.busy  # what is left has stopped, and will not tell again
        return run.root != 0 and run.status is None and not busy

    def hear_extensions(self, now: int) -> None:
        """All that is in the pipe, as one: each instant is the latest of its kind. Nothing is there before a start."""
        if self.extensions < 0 or self.deadman_at == 0:
            return
        if now >= self.look_at:
            self.look_at = tree.NEVER_MS  # once: if nothing has come, the next time is TERM itself
        most = EXTENSIONS_MAX * EXTENSION.size
        came = most
        while came == most:
            try:
                data = os.read(self.extensions, most)
            except BlockingIOError:
                return
            came = len(data)
            if came:
                _, *points = map(max, zip(*EXTENSION.iter_unpack(data), strict=True))
                self.extend(*points)

    def hear_agent(self) -> None:
        for _ in range(ORDERS_MAX):
            more: list[Any] = []
            try:
                count, more, _, _ = self.agent.recvmsg_into([self.packet], HANDLE_BYTES, RECEIVE)
            except BlockingIOError:
                return
            except OSError:
                count = 0
            packet = bytes(self.packet[:count])
            if not packet:
                self.cut_ms = tree.now_ms()
                self.close("the agent closed the socket")
                self.end()
                return
            self.given = [struct.unpack("i", data[:4])[0] for _, _, data in more]
            try:
                if packet.startswith(EXTENSION_MARK):
                    self.extend(*EXTENSION.unpack(packet)[1:])
                else:
                    self.obey(json.loads(packet))
            except (struct.error, *START_FAULTS) as error:
                self.tell("error", why=f"{type(error).__name__}: {error}")
            while self.given:
                os.close(self.given.pop())

    def obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "hello" if self.agent_fd < 0:
                self.hello(order)
            case "start":
                self.start(order)
            case "stop":
                self.stop_kill_at = min(self.stop_kill_at, order["kill_at"])
                self.end(order.get("signal", self.stop_signal))
            case "release":
                self.release_ordered, self.datagrams = True, order.get("datagrams") or self.datagrams
                if self.run is None:
                    self.tell("gone", run=self.last_run, released=self.release())
            case "bye" if self.run is None:
                self.leaving = True
            case other:
                self.tell("error", why=f"not now, or never heard of: {other}")

    def hello(self, order: dict[str, Any]) -> None:
        self.agent_fd = os.pidfd_open(order["agent"])
        if os.getppid() != order["agent"]:  # it died meanwhile, and its number may belong to somebody else
            self.leaving = True
            return
        if self.given:
            self.extensions = self.given.pop()
        self.lock_path, self.strong_only = order["lock"], order.get("containment") == "strong"
        os.close(self.open_lock())
        self.way, why = runs.containment()
        self.ready = True
        self.tell("ready", containment="strong" if self.way else "weak", way=self.way, why=why)

    def start(self, order: dict[str, Any]) -> None:
        """Answered by exactly one of `running`, `failed` and `locked`, whatever happens: the agent waits for it."""
        try:
            why = self.why_not(order)
            if not why and self.begin(order):
                return
        except START_FAULTS as error:
            said = error.strerror if isinstance(error, OSError) else None
            why = f"cannot start: {said or f'{type(error).__name__}: {error}'}"
        if why:
            self.tell("failed", run=order.get("run"), why=why)
        else:
            self.tell("locked", by=self.lock_named())

    def begin(self, order: dict[str, Any]) -> bool:
        """False if the run lock is held. The release is kept from the first order on, also if nothing starts (G4)."""
        if self.deadman_at == 0:
            self.datagrams = order.get("datagrams") or []
            if self.given:
                if self.releaser >= 0:
                    os.close(self.releaser)
                self.releaser, self.words = self.given.pop(), order["words"].encode()
            if order.get("release"):
                self.datagrams = [[order["release"], host, port] for host, port in order.get("targets") or []]
        if not self.take_lock():
            return False
        if self.deadman_at == 0:
            self.term_at = self.kill_at = 0
        self.stop_signal, self.stop_kill_at = order.get("stop_signal", self.stop_signal), tree.NEVER_MS
        self.extend(order["term_at"], order["kill_at"], order["deadman_at"], starting=True)
        self.run = runs.Run(order, self.way, (self.lock_fd, self.folder_fd))
        return True

    def why_not(self, order: dict[str, Any]) -> str:
        """Why nothing may be started now; empty if it may."""
        if not self.ready:
            return "no hello was said, or it failed"
        if self.run is not None:
            return f"run {self.run.number} is not gone yet"
        if self.closed or self.release_ordered:
            return self.closed or "a release was ordered"
        if self.strong_only and not self.way:
            return "strong containment is required and cannot be had here"
        if not (order["argv"] and order["term_at"] <= order["kill_at"] <= order["deadman_at"]):
            return "the order makes no sense: no command, or deadlines out of order"
        return "" if tree.now_ms() < order["term_at"] else "the hold has already run out"

    def extend(self, term_at: int, kill_at: int, deadman_at: int, starting: bool = False) -> None:
        """G1: only ever to later instants, and never again once the work was told to end for the hold's sake (Q8)."""
        if self.closed or (self.deadman_at == 0 and not starting):
            return
        if term_at > self.term_at:
            self.term_at = term_at
            self.look_at = term_at - (term_at - tree.now_ms()) // LOOK_PARTS
        self.kill_at = max(self.kill_at, kill_at)
        if deadman_at > self.deadman_at:
            self.deadman_at = deadman_at
            tree.arm_deadman(self.deadman, self.deadman_at)

    # --- the run lock

    def open_lock(self) -> int:
        return os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def take_lock(self) -> bool:
        """True if it is ours: the file and its folder, for a file may be taken away while somebody holds it.

        A file that was replaced while we took it is not the lock that others will see.
        """
        while self.lock_fd < 0:
            fd = self.open_lock()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(fd), os.stat(self.lock_path)):
                    continue
                self.folder_fd = tree.keep_folder(os.path.dirname(self.lock_path))
                if self.folder_fd < 0:
                    return False
                self.lock_fd, fd = fd, -1
                with contextlib.suppress(OSError):  # only for a sentence, and the disk may be full
                    os.ftruncate(self.lock_fd, 0)
                    os.pwrite(self.lock_fd, f"{os.getpid()}\n".encode(), 0)
            except BlockingIOError:
                return False
            finally:
                if fd >= 0:
                    os.close(fd)
        return True

    def lock_named(self) -> int | None:
        """Who has it, as far as the file says."""
        with contextlib.suppress(OSError), open(self.lock_path, "rb") as file:
            holder = file.read(32).strip()
            return int(holder) if holder.isdigit() else None
        return None

    # --- ending

    def close(self, why: str) -> None:
        self.closed = self.closed or why

    def end(self, number: int | None = None) -> None:
        """In order: the command is asked to end, and KILL comes at its instant. One that does not run yet is killed."""
        if self.run is not None and self.run.phase in ("executing", "running"):
            self.run.signal(number or self.stop_signal)
        else:
            self.kill()

    def kill(self) -> None:
        if self.run is not None:
            self.run.kill()

    def keep_deadlines(self, now: int) -> None:
        if not self.closed and now >= self.term_at:
            self.close("no extension came in time")
            self.end()
        if self.run is not None and not self.run.killed and now >= min(self.kill_at, self.stop_kill_at):
            self.kill()

    def watch_tree(self, ready: set[int]) -> None:
        run = self.run
        if run is None:
            return
        self.reap(run)
        while run.hear_line():
            if run.phase == "bound" and not run.killed and not self.closed and tree.now_ms() < self.term_at:
                run.go()
            elif run.phase == "bound":
                run.kill()
            elif run.phase == "running":
                self.tell("running", run=run.number, pid=run.command)
        if run.tell_fd in ready or not run.root or run.status is not None:
            self.hear_end(run)
        if run.is_empty:
            self.gone(run)
        elif not run.way and (run.killed or not run.root) and tree.now_ms() >= run.hunt_at:
            self.hunt(run)

    def hunt(self, run: runs.Run) -> None:
        """Weak: the tree is looked for until it is not found any more."""
        for _ in range(HUNTS_MAX):
            if tree.hunt(run.lock_holder) == 0:
                self.gone(run)
                return
            self.reap(run)
        run.pause_ms = min(2 * run.pause_ms, PAUSE_MS_MAX)
        run.hunt_at = tree.now_ms() + run.pause_ms

    def attend(self, run: runs.Run) -> None:
        """Traced: the tree goes on, and its ends are seen. The command's own ends all that it left behind.

        So does the end of the holder, whatever killed it: no other process could know when the tree is gone.
        """
        assert run.trace is not None
        for pid, status in run.trace.attend():
            if pid == run.root:
                run.root = 0
            elif pid == run.command and run.status is None:
                run.status = status
            else:
                continue
            run.kill()

    def reap(self, run: runs.Run) -> None:
        if run.trace is not None:
            self.attend(run)
            return
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == run.root:
                    run.root = 0
                    if not run.way:
                        run.status = ended[1]
                elif ended[0] == run.lock_holder:
                    run.renew_lock_holder()
        except ChildProcessError:
            pass

    def hear_end(self, run: runs.Run) -> None:
        """Say once how the command ended: by its own status, or with the whole tree."""
        if run.tell_fd >= 0:
            said = os.read(run.tell_fd, 4)
            os.close(run.tell_fd)
            run.tell_fd = -1
            run.status = struct.unpack("i", said)[0] if said else int(signal.SIGKILL)  # with its init
        if run.status is not None and run.phase == "running":
            run.phase = "ended"
            code = os.waitstatus_to_exitcode(run.status)
            self.tell("exited", run=run.number, code=None if code < 0 else code, signal=-code if code < 0 else None)

    def gone(self, run: runs.Run) -> None:
        """Nothing of the run is left. One that never became the command has failed, and that is all there is to say."""
        self.hear_end(run)
        run.close()
        self.run, self.last_run = None, run.number
        released = self.release()
        if run.phase == "ended":
            self.tell("gone", run=run.number, released=released)
        else:
            self.tell("failed", run=run.number, why=run.why or "it was ended before it was executed")

    def release(self) -> bool:
        """Send what the agent sealed, if it may be sent (G5). No names are looked up, nothing is waited for.

        A lease is released by a process that was made ready for this, and has the words in its pipe when we are gone.
        """
        if not may_release(self):
            return False
        for text, host, port in self.datagrams * RELEASE_TIMES:
            with contextlib.suppress(OSError, ValueError):
                family, kind, _, _, address = socket.getaddrinfo(
                    host.encode(), port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
                )[0]
                with socket.socket(family, kind | socket.SOCK_NONBLOCK) as out:
                    out.sendto(binascii.a2b_base64(text), address)
        self.datagrams = []
        if self.releaser >= 0:
            with contextlib.suppress(OSError):
                os.write(self.releaser, self.words)
            os.close(self.releaser)
            self.releaser = -1
        return True


def main() -> None:
    agent = socket.socket(fileno=int(sys.argv[-1]))
    agent.set_inheritable(False)
    tree.be_guard(agent.fileno())
    guard = Guard(agent)
    try:
        guard.loop()
    finally:
        guard.kill()
    os._exit(0)  # Python would tidy up for 5 ms, at the moment in which the next leader needs the processor
