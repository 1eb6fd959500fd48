"""The guard's second way to hold a tree: every process of it is seized with ptrace (G2, G3).

For machines where no pid namespace is to be had, as in most containers. PTRACE_O_EXITKILL makes the kernel kill every
traced process when the tracer dies, and the options that follow forks have it attach each new process and thread
before that runs its first instruction: there is no moment at which one is free, whatever session or parent it has.

    guard ------ traces ------------+---+      The holder is a child subreaper: orphans of the tree become its
      `-- holder -- command -- ... -'---'      children, so that its `waitpid` finds none only when none is left.
                                               It holds the run lock until then, also when the guard is no more.

The one way out is a flag of clone(2), CLONE_UNTRACED. A seccomp filter refuses it, and says of clone3(2), whose flags a
filter cannot see, that the kernel does not know it: C libraries then use clone(2). A filter needs no_new_privs, so that
set-user-ID programs have no effect in the tree; a traced one would lose that anyway. Nothing in the tree can be traced
by anybody else.

A tracer is a thread, not a process: the guard has one thread only. A plain file beside `guard.py`. Nothing here waits
for anything but the kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import socket
import struct

TYPE_CHECKING = False  # as in `typing`, which costs memory
if TYPE_CHECKING:
    from typing import Any

    from primacy.supervise.guard import guard_tree as tree
else:
    import guard_tree as tree

PTRACE_CONT, PTRACE_KILL, PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_LISTEN = 7, 8, 0x4206, 0x4207, 0x4208
TRACE_FORK, TRACE_VFORK, TRACE_CLONE, EXIT_KILL = 2, 4, 8, 0x100000
OPTIONS = TRACE_FORK | TRACE_VFORK | TRACE_CLONE | EXIT_KILL
EVENT_STOP = 128
STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
WALL = 0x40000000
"""Also what does not tell its parent by SIGCHLD that it ended, as threads do not."""
EVENTS_MAX = 128
"""Attended to in a row before the deadlines are looked at again: a tree that forks for ever must not keep them away."""
QUIET_MS = 20
"""After so long without an event the guard goes first again."""
TRIAL_S = 2
"""A trial that a kernel does not end as it should ends by itself after this."""
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
SIGNALFD_BYTES = 128
YAMA = "/proc/sys/kernel/yama/ptrace_scope"

CLONE_UNTRACED, CLONE3, NUMBER_MASK = 0x00800000, 435, 0xBFFFFFFF
"""clone3 has one number everywhere; the mask takes away what marks a call of x32."""
MACHINES = {
    "x86_64": (317, ((0xC000003E, 56), (0x40000003, 120))),
    "aarch64": (277, ((0xC00000B7, 220), (0x40000028, 120))),
    "riscv64": (277, ((0xC00000F3, 220), (0x400000F3, 220))),
}
"""The number of seccomp(2), and for each way to call the kernel there its name for filters and its number of clone."""
LOAD, AND, IF_EQUAL, IF_BITS, RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
NUMBER_AT, ARCH_AT, FLAGS_AT = 0, 4, 16
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
SET_MODE_FILTER, SPEC_ALLOW = 1, 4


def ptrace(request: int, pid: int, data: int = 0) -> None:
    tree.checked(tree.libc.ptrace(ctypes.c_long(request), ctypes.c_long(pid), None, ctypes.c_void_p(data)))


def seize(pid: int) -> None:
    """Does not stop it. From here on it and all that stems from it dies with this process."""
    ptrace(PTRACE_SEIZE, pid, OPTIONS)


# --- no way out -------------------------------------------------------------------------------------------------------


def no_way_out() -> None:
    """The calling process, and all that stems from it, can make no process that is not traced. Cannot be undone."""
    machine = os.uname().machine
    if machine not in MACHINES:
        raise OSError(errno.ENOSYS, f"no filter is known for {machine}")
    number, calls = MACHINES[machine]
    code = b"".join(filter_of(arch, clone) for arch, clone in calls) + operation(RETURN, ALLOW)
    room = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP" if struct.calcsize("P") == 8 else "HxxP", len(code) // 8, ctypes.addressof(room))
    tree.checked(tree.libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    tree.checked(
        tree.libc.syscall(ctypes.c_long(number), SET_MODE_FILTER, SPEC_ALLOW, ctypes.create_string_buffer(program))
    )


def operation(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """One of the kernel's filter language. `yes` and `no`: how many of the next ones are passed over."""
    return struct.pack("HBBI", code, yes, no, value)


def filter_of(arch: int, clone: int) -> bytes:
    return b"".join(
        (
            operation(LOAD, ARCH_AT),
            operation(IF_EQUAL, arch, 0, 9),
            operation(LOAD, NUMBER_AT),
            operation(AND, NUMBER_MASK),
            operation(IF_EQUAL, CLONE3, 0, 1),
            operation(RETURN, REFUSE | errno.ENOSYS),
            operation(IF_EQUAL, clone, 0, 2),
            operation(LOAD, FLAGS_AT),
            operation(IF_BITS, CLONE_UNTRACED, 1, 0),
            operation(RETURN, ALLOW),
            operation(RETURN, REFUSE | errno.EPERM),
        )
    )


# --- what this machine allows -----------------------------------------------------------------------------------------


def why_not_traced() -> str:
    """Empty if a tree that is seized dies with its tracer here. What a machine allows is known by trying only."""
    tracer = os.fork()
    if tracer == 0:
        number = errno.EINVAL
        try:
            number = try_to_trace()
        except OSError as error:
            number = error.errno or errno.EINVAL
        finally:
            os._exit(number)
    code = os.waitstatus_to_exitcode(os.waitpid(tracer, 0)[1])
    ends = []
    with contextlib.suppress(ChildProcessError):  # what it left behind comes to this process, a subreaper
        while True:
            ends.append(os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]))
    if code == 0 and ends == [-signal.SIGKILL] * 2:
        return ""
    why = os.strerror(code) if code > 0 else "the kernel does not kill what is traced"
    with contextlib.suppress(OSError), open(YAMA, encoding="ascii") as file:
        why += f"; kernel.yama.ptrace_scope is {file.read().strip()}"
    return why


def try_to_trace() -> int:
    """Seize a child, see it fork, and end before them; 0, or an error number."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            signal.alarm(TRIAL_S)
            if theirs.recv(1):
                no_way_out()
                os.fork()
                signal.alarm(TRIAL_S)
                signal.pause()
        finally:
            os._exit(errno.EPERM)
    theirs.close()
    signal.alarm(TRIAL_S)
    seize(child)
    ours.send(b"g")
    while True:
        pid, status = os.waitpid(-1, WALL)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status) or errno.EPERM
        if pid != child:
            return 0  # the kernel stopped and told of a process that this one never named
        go_on(pid, status)


# --- the tree ---------------------------------------------------------------------------------------------------------


def go_on(pid: int, status: int) -> None:
    """Let it go on as if nobody had looked: a signal is delivered, a stop of its group stays one until SIGCONT."""
    number, event = status >> 8 & 0xFF, status >> 16
    with contextlib.suppress(OSError):  # it was killed meanwhile
        if event == EVENT_STOP and number in STOPS:
            ptrace(PTRACE_LISTEN, pid)
        else:
            ptrace(PTRACE_CONT, pid, 0 if event else number)


def kill(pid: int) -> None:
    """Also another user's, without the right to signal it.

    A thread that executes a program takes the number of its process, so that its own may have become a stranger's: only
    what the kernel still knows as traced by this process is killed. Kernels before 5.19 kill by ptrace only what
    is just getting a signal. There the one way to kill what may not be signalled is that the tracer dies.
    """
    with contextlib.suppress(OSError):
        ptrace(PTRACE_INTERRUPT, pid)
        ptrace(PTRACE_KILL, pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            if not kills_by_ptrace():
                os.kill(os.getpid(), signal.SIGKILL)


def kills_by_ptrace() -> bool:
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int(minor.partition("-")[0])) >= (5, 19)


class Trace:
    """All that is traced, from the first one seized until the kernel says that nothing is left."""

    def __init__(self) -> None:
        self.tasks: set[int] = set()
        """Processes and threads that have been seen. One that was just born is seen before it runs."""
        self.killing = False
        self.more = self.empty = False
        """More may have happened than was attended to; nothing is left, neither traced nor a child of this process."""
        self.first = tree.goes_first()
        self.quiet_at = tree.NEVER_MS
        """The guard does not go first for the moment, and does again from then on."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        mask = ctypes.create_string_buffer(SIGNALFD_BYTES)
        tree.checked(tree.libc.sigemptyset(mask))
        tree.checked(tree.libc.sigaddset(mask, signal.SIGCHLD))
        self.fd = tree.checked(tree.libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK))
        """Readable when something has happened."""

    def seize(self, pid: int) -> None:
        seize(pid)
        self.tasks.add(pid)

    def attend(self) -> list[tuple[int, int]]:
        """Let go on what has stopped; says who ended, and how."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, SIGNALFD_BYTES)
        ended: list[tuple[int, int]] = []
        self.more = False
        try:
            for number in range(EVENTS_MAX):
                pid, status = os.waitpid(-1, os.WNOHANG | WALL)
                self._take_turns(pid != 0 or number > 0)
                if pid == 0:
                    return ended
                if not os.WIFSTOPPED(status):
                    self.tasks.discard(pid)
                    ended.append((pid, status))
                elif self.killing:
                    kill(pid)
                else:
                    self.tasks.add(pid)
                    go_on(pid, status)
            self.more = True
        except ChildProcessError:
            self.empty = True
        return ended

    def _take_turns(self, busy: bool) -> None:
        """With an event the guard goes along with all others, until there was none for a while; to kill it goes first.

        A tree that forks all the time keeps its guard at work all the time. In real time nothing else would run on
        that core, sometimes for a second: no other node's guard, no heartbeat.
        """
        if not self.first:
            return
        if busy and not self.killing:
            if self.quiet_at == tree.NEVER_MS:
                tree.go_along()
            self.quiet_at = tree.now_ms() + QUIET_MS
        elif self.quiet_at < tree.NEVER_MS and (self.killing or tree.now_ms() >= self.quiet_at):
            self.quiet_at = tree.NEVER_MS
            tree.go_first()

    @property
    def busy(self) -> bool:
        """There is more to attend to, now or in a while, without further news."""
        return self.more or self.quiet_at < tree.NEVER_MS

    def kill(self) -> None:
        """All that has been seen; what is born meanwhile stops before it runs, is seen then, and killed."""
        self.killing = True
        self._take_turns(busy=False)
        for pid in self.tasks:
            kill(pid)

    def close(self) -> None:
        if self.quiet_at < tree.NEVER_MS:
            tree.go_first()
        os.close(self.fd)


def be_lock_holder(order: dict[str, Any], line: socket.socket, lock: tuple[int, ...]) -> None:
    """Start the command and reap whatever comes, until nothing is left; only then let the lock go.

    SIGCONT at the guard's death: one that was stopped would keep the lock for ever.
    """
    tree.call_it(b"primacy-lock")
    tree.close_but(line.fileno(), *lock)
    tree.checked(tree.libc.prctl(tree.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    tree.checked(tree.libc.prctl(tree.PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0))
    tree.fork(lambda: be_traced(order, line, lock), line)
    line.close()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def be_traced(order: dict[str, Any], line: socket.socket, lock: tuple[int, ...]) -> None:
    """Be seized first of all: as another user it could not be any more."""
    for each in lock:
        os.close(each)
    tree.checked(tree.libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
    line.send(b"?")
    if line.recv(1):
        tree.be_command(order, line, (), no_way_out)


def be_private() -> None:
    """Nothing that runs as the same user can trace the guard and what it forks, and so make it let go."""
    tree.checked(tree.libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
