"""How a guard can hold a tree, and one run of the command from its first fork to its end (G2, G3).

A plain file beside `guard.py`; the theory stands there and in `guard_trace.py`. It decides nothing: when to start and
when to end is the guard's affair. Nothing here waits for anything but the kernel.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct

TYPE_CHECKING = False  # as in `typing`, which costs memory
if TYPE_CHECKING:
    from typing import Any

    from primacy.supervise.guard import guard_trace as tracing
    from primacy.supervise.guard import guard_tree as tree
else:
    import guard_trace as tracing
    import guard_tree as tree

NAMESPACE, PTRACE = "namespace", "ptrace"
"""The two ways of strong containment."""


def containment() -> tuple[str, str]:
    """The way in which the whole tree is bound to the guard, empty if there is none, and why, as half a sentence."""
    number = tree.try_namespace()
    if number == 0:
        user = ", inside a user namespace where set-user-ID programs have no effect" if os.geteuid() else ""
        return NAMESPACE, f"the command runs in a pid namespace of its own{user}"
    whose = "a user namespace is not allowed here" if os.geteuid() else "root lacks CAP_SYS_ADMIN here"
    without = f"no pid namespace can be made ({os.strerror(number)}: {whose})"
    why_not = tracing.why_not_traced()
    if not why_not:
        limits = "set-user-ID programs have no effect in it and no debugger can be attached"
        return PTRACE, f"the guard traces every process of the command, for {without}; {limits}"
    tree.children_of(os.getpid())  # without it, as in a kernel from before 2012, nothing may be started at all
    return "", f"{without}, and the command cannot be traced ({why_not})"


class Run:
    """One start of the command, from the first fork until its tree is confirmed gone."""

    def __init__(self, order: dict[str, Any], way: str, lock: tuple[int, ...]) -> None:
        """`lock`: the descriptors that hold the run lock."""
        self.number: int = order["run"]
        self.uid: int | None = order.get("uid")
        self.way = way
        self.phase = "preparing"
        """preparing, bound (it waits for the byte), executing, running, ended; or failed."""
        self.why = ""
        self.killed = False
        self.status: int | None = None
        self.hunt_at = self.pause_ms = 1
        self.command = self.command_fd = -1
        self.lock_holder, self.lock_holder_fd = 0, -1
        self.root, self.root_fd = 0, -1
        self.trace: tracing.Trace | None = None
        self._lock = lock
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.tell_fd, tell = os.pipe() if way == NAMESPACE else (-1, -1)  # without an init the guard sees it itself
        try:
            self._begin(order, theirs, tell)
        except BaseException:
            self.close()  # whatever was forked reads the end of the line and exits
            raise
        finally:
            theirs.close()
            if tell >= 0:
                os.close(tell)

    def _begin(self, order: dict[str, Any], theirs: socket.socket, tell: int) -> None:
        """The root is what dies last: the namespace's init, the holder of a traced tree, or the command."""
        ours, way, lock = self.line, self.way, self._lock
        if way == PTRACE:
            self.trace = tracing.Trace()
            tracing.be_private()

        def first() -> None:
            ours.close()
            if way == NAMESPACE:
                tree.make_init(order, theirs, lock, tell)
            elif way == PTRACE:
                tracing.be_lock_holder(order, theirs, lock)
            else:
                tree.be_command(order, theirs, lock)

        self.root = tree.fork(first, theirs)
        if way == NAMESPACE:
            self.root = self._inherit_init()
        self.root_fd = os.pidfd_open(self.root)
        if way != PTRACE:
            self.lock_holder = tree.keep_lock(lock, self.root_fd)
            self.lock_holder_fd = os.pidfd_open(self.lock_holder)
        if way == NAMESPACE:
            ours.send(b"b")  # from here on the guard is the init's parent, and the init binds itself to it

    def _inherit_init(self) -> int:
        """The passing process is gone, so its child the init is ours: this process is a subreaper."""
        os.waitpid(self.root, 0)
        said = self.line.recv(1024, socket.MSG_DONTWAIT).decode()
        if not said.startswith("="):
            raise OSError(errno.EPERM, f"no pid namespace can be made now: {said[1:]}")
        return int(said[1:])

    def renew_lock_holder(self) -> None:
        """The holder ended: rightly, because the root is gone, or somebody killed it."""
        os.close(self.lock_holder_fd)
        self.lock_holder, self.lock_holder_fd = 0, -1
        if self.root:
            self.lock_holder = tree.keep_lock(self._lock, self.root_fd)
            self.lock_holder_fd = os.pidfd_open(self.lock_holder)

    def hear_line(self) -> bool:
        """True for news: the child is bound and waits, has executed the command (the line is closed), or could not."""
        if self.line.fileno() < 0:
            return False
        try:
            text, about, _, _ = self.line.recvmsg(1024, socket.CMSG_SPACE(12), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # it was killed and had not read the byte that starts it
            text, about, self.phase = b"", [], "failed"
        if text in (b"?", b"+"):
            self.command = struct.unpack("3i", about[0][2][:12])[0]  # the kernel gives the number in our namespace
        if text == b"?":
            self._seize()
        elif text == b"+":
            try:
                self.command_fd = os.pidfd_open(self.command)
                self.phase = "bound"
            except OSError as error:  # killed while it waited for the byte, or there is no descriptor for it
                self.why, self.phase = f"cannot start: {error.strerror}", "failed"
                self.line.close()  # it reads the end of the line and exits: that is seen at the root
        elif text:
            self.why = text[1:].decode(errors="replace")
            self.phase = "failed"
        else:
            self.line.close()
            self.phase = "running" if self.phase == "executing" else "failed"
        return True

    def _seize(self) -> None:
        """Before it is anything but a copy of the guard. One that cannot be seized reads the end of the line."""
        assert self.trace is not None
        try:
            self.trace.seize(self.command)
            self.line.send(b"s")
        except OSError as error:
            self.why, self.phase = f"cannot trace the command: {error.strerror}", "failed"
            self.line.close()

    def go(self) -> None:
        try:
            self.line.send(b"g")
            self.phase = "executing"
        except (BrokenPipeError, ConnectionResetError):  # it was killed meanwhile: its end is seen at the root
            self.phase = "failed"

    def signal(self, number: int) -> None:
        """To the command itself, continued so that a stopped one can obey."""
        for each in (number, signal.SIGCONT):
            tree.send(self.command_fd, each, self.uid)

    def kill(self) -> None:
        """All of it. The command is named besides: it need not wait until its init is dead."""
        self.killed = True
        if self.trace is None:
            number = signal.SIGKILL
        else:
            number = signal.SIGCONT  # the holder must live, and go on, to see the others end
            self.trace.kill()
            if self.command < 0:
                self.line.close()  # it has not been seized, and never will be
        for fd, each in ((self.command_fd, signal.SIGKILL), (self.root_fd, number)):
            if fd >= 0:
                tree.send(fd, each, self.uid)

    @property
    def is_empty(self) -> bool:
        """Strong: the kernel has said that nothing is left. Weak: it cannot say so, and the tree is looked for."""
        return self.trace.empty if self.trace is not None else self.way == NAMESPACE and not self.root

    def close(self) -> None:
        if self.lock_holder:
            os.kill(self.lock_holder, signal.SIGKILL)
            os.waitpid(self.lock_holder, 0)
        if self.trace is not None:
            self.trace.close()
        self.line.close()
        for fd in (self.root_fd, self.command_fd, self.tell_fd, self.lock_holder_fd):
            if fd >= 0:
                os.close(fd)
