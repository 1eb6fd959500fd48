"""What the guard does to processes: the kernel's timers and bonds, pid namespaces, and becoming the command.

A plain file beside `guard.py`, which finds it without importing the package; the theory stands there. It decides
nothing: when to start and when to end is the guard's affair. Nothing here waits for anything but the kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import time

TYPE_CHECKING = False  # as in `typing`, which costs memory
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

NEVER_MS = 1 << 62

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_SLAVE = 2, 4, 8, 0x4000, 0x80000
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
SCHED_BYTES, RESET_ON_FORK, SLICE_NS = 48, 1, 100_000
"""The shortest slice that a kernel gives."""
ABSOLUTE = 1  # TIMER_ABSTIME and TFD_TIMER_ABSTIME alike
FLOCK = struct.Struct("hhqqi4x")  # struct flock: kind, whence, start, length (0: all), process

# --- the kernel -------------------------------------------------------------------------------------------------------

libc = ctypes.CDLL(None, use_errno=True)
if not hasattr(libc, "timer_create"):
    libc = ctypes.CDLL("librt.so.1", use_errno=True)  # glibc before 2.34


class TimerSpec(ctypes.Structure):
    """struct itimerspec: an interval, which we leave at zero, and the instant."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns"))


class SignalEvent(ctypes.Structure):
    """struct sigevent."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("_", ctypes.c_int * 12),
    )


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def now_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


moment = TimerSpec()
moment_at = ctypes.byref(moment)
"""One for all: timers are set one after the other, with every heartbeat."""


def instant(at_ms: int) -> object:
    moment.at_s, moment.at_ns = at_ms // 1_000, at_ms % 1_000 * 1_000_000
    return moment_at


def make_deadman() -> ctypes.c_void_p:
    """A timer whose expiry is SIGKILL to this process: no handler, no thread, no luck needed."""
    timer, event = ctypes.c_void_p(), SignalEvent(signal=signal.SIGKILL)
    checked(libc.timer_create(time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(timer)))
    return timer


def arm_deadman(timer: ctypes.c_void_p, at_ms: int) -> None:
    checked(libc.timer_settime(timer, ABSOLUTE, instant(at_ms), None))


def make_timer() -> int:
    """A descriptor that can be polled for an instant of CLOCK_BOOTTIME; poll's own timeout sleeps through a suspend."""
    return checked(libc.timerfd_create(time.CLOCK_BOOTTIME, os.O_CLOEXEC | os.O_NONBLOCK))


def set_timer(timer: int, at_ms: int) -> None:
    checked(libc.timerfd_settime(timer, ABSOLUTE, instant(max(at_ms, 1) if at_ms < NEVER_MS else 0), None))


def bind_to_parent() -> None:
    """The kernel kills this process when its parent ends. Lost by every change of user: call it after that."""
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def go_first() -> None:
    """A busy tree must not delay its own end: each that must die before it can is not kept waiting. Not inherited.

    Real time where that is allowed. A process that goes first may work for a moment only, or nobody else runs.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        go_along()


def goes_first() -> bool:
    return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO


def go_along() -> None:
    """Without real time: short slices, which anybody may have, and which kernels since 6.12 give sooner.

    The others pass over them. Where the call is not known, only real time is given back.
    """
    number, gone = SCHED_SETATTR.get(os.uname().machine), -1
    if number is not None:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        wanted = struct.pack("IIQiIQQQ", SCHED_BYTES, os.SCHED_OTHER, RESET_ON_FORK, nice, 0, SLICE_NS, 0, 0)
        gone = libc.syscall(ctypes.c_long(number), 0, ctypes.create_string_buffer(wanted), 0)
    if gone < 0 and goes_first():
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))


def call_it(name: bytes) -> None:
    libc.prctl(PR_SET_NAME, name, 0, 0, 0)


@contextlib.contextmanager
def user(uid: int) -> Iterator[None]:
    """Be this one for a call: root without CAP_KILL may not signal another user's process, its user may."""
    own = os.geteuid()
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(own)


def send(fd: int, number: int, uid: int | None) -> None:
    """A signal to the process of a pidfd, which runs as `uid`. One that is gone needs none."""
    with contextlib.suppress(OSError):
        try:
            signal.pidfd_send_signal(fd, number)
        except PermissionError:
            if uid is not None:
                with user(uid):
                    signal.pidfd_send_signal(fd, number)


def close_but(*kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def be_guard(agent: int) -> None:
    """Of what it was started with, the guard keeps the agent's socket and the standard descriptors only.

    It has a session of its own, and only the agent, the deadlines and SIGKILL end it (G9). Orphans of the tree come to
    it and to nobody else.
    """
    call_it(b"primacy-guard")
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass  # a closed standard descriptor would be handed out as something else
    close_but(agent)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an agent that ignores it would have our children reap themselves
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(OSError):
        os.setsid()
    go_first()
    os.chdir("/")
    checked(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


# --- the run lock -----------------------------------------------------------------------------------------------------


def keep_folder(path: str) -> int:
    """The folder, kept: a file of it can be taken away while it is locked, a folder that has files cannot. -1: kept.

    A lock for reading, which is all that a folder can have, and which the agent's own lock on it does not concern.
    Whoever looks whether one for writing would be in its way finds it. Of two at one moment, none may have it.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.fcntl(folder, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
        found = fcntl.fcntl(folder, fcntl.F_OFD_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        if FLOCK.unpack(found)[0] == fcntl.F_UNLCK:
            return folder
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP):
            return folder  # a kernel, or a file system, without them: then there is the file only
        os.close(folder)
        raise
    os.close(folder)
    return -1


# --- containment ------------------------------------------------------------------------------------------------------


def enter_namespace() -> None:
    """The next fork of this process is the init of a new pid namespace (with mounts of its own, for its /proc).

    An ordinary user needs a user namespace around it, in which only the own user and group exist.
    """
    uid, gid = os.geteuid(), os.getegid()
    checked(libc.unshare(CLONE_NEWPID | CLONE_NEWNS | (CLONE_NEWUSER if uid else 0)))
    if uid:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def try_namespace() -> int:
    """Make one and throw it away: 0, or the error number. What a machine allows is known by trying only."""
    pid = os.fork()
    if pid == 0:
        try:
            enter_namespace()
            init = os.fork()
            os._exit(0 if init == 0 or os.waitpid(init, 0)[1] == 0 else errno.ECHILD)
        except OSError as error:
            os._exit(error.errno or errno.EINVAL)
        finally:
            os._exit(errno.EINVAL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def own_proc() -> None:
    """A /proc that shows the namespace's own numbers. Where it cannot be mounted, the outer one stays visible."""
    if libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None) == 0:
        libc.mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)


def children_of(pid: int) -> list[int]:
    """As the kernel lists them, dead ones included until they are reaped."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            found.extend(map(int, file.read().split()))
    return found


def hunt(lock_holder: int) -> int:
    """Weak: kill all that stems from this process, but the holder, from the top down; says how many there were.

    None proves that nothing is left: orphans come to this process (it is a subreaper), and its own children, even dead
    ones, stay listed until it reaps them itself. What forks while it is being looked for is found next time.
    """
    found = [pid for pid in children_of(os.getpid()) if pid != lock_holder]
    for pid in found:
        with contextlib.suppress(OSError):
            found.extend(children_of(pid))
            os.kill(pid, signal.SIGKILL)
    return len(found)


# --- the processes below the guard ------------------------------------------------------------------------------------


def fork(work: Callable[[], object], line: socket.socket) -> int:
    """Fork a child that does `work` and never comes back; why it could not is told on the line."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except OSError as error:
            line.send(f"!{error.strerror}".encode())
        finally:
            os._exit(127)
    return pid


def be_command(
    order: dict[str, Any], line: socket.socket, inherited: tuple[int, ...], bind: Callable[[], object] = lambda: None
) -> NoReturn:
    """Become the command: descriptors, user, folder, bond, the byte, exec. Nothing of the guard is left in it.

    `bind`: what this way of containment does to the command itself, besides the parent-death signal.
    """
    doing = "start"
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(each, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            if order.get(name) is not None:
                doing = f"open {order[name]}"
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                os.dup2(os.open(order[name], flags, 0o600), number)
        uid, gid, groups = order.get("uid"), order.get("gid"), order.get("groups")
        doing = f"become user {uid}, group {gid}"
        if groups is not None or uid not in (None, os.geteuid()):
            os.setgroups(groups or [])
        if gid is not None:
            os.setresgid(gid, gid, gid)
        if uid is not None:
            os.setresuid(uid, uid, uid)
        if order.get("umask") is not None:
            os.umask(order["umask"])
        doing = f"enter {order.get('cwd')}"
        os.chdir(order.get("cwd") or "/")
        doing = "bind itself to the guard"
        bind_to_parent()
        bind()
        line.send(b"+")
        if not line.recv(1):
            os._exit(0)
        doing = f"execute {order['argv'][0]}"
        for kept in inherited:
            os.set_inheritable(kept, True)
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        line.send(f"!cannot {doing}: {getattr(error, 'strerror', None) or error}".encode(errors="replace"))
    finally:
        os._exit(127)


def be_init(order: dict[str, Any], line: socket.socket, lock: tuple[int, ...], tell: int) -> None:
    """The namespace's init: bound to the guard, it starts the command, reaps, and says how the command ended.

    Its end, whatever the reason, ends everything in the namespace. It passes no signal on.
    """
    call_it(b"primacy-init")
    close_but(line.fileno(), *lock, tell)
    go_first()
    if not line.recv(1):  # now the guard is the parent
        return
    bind_to_parent()
    own_proc()
    command = fork(lambda: be_command(order, line, ()), line)
    line.close()
    while (ended := os.wait())[0] != command:
        pass
    os.write(tell, struct.pack("i", ended[1]))


def make_init(order: dict[str, Any], line: socket.socket, lock: tuple[int, ...], tell: int) -> None:
    """A passing process, so that the guard itself stays outside: its child is the init, which the guard inherits."""
    enter_namespace()
    init = fork(lambda: be_init(order, line, lock, tell), line)
    line.send(f"={init}".encode())


def keep_lock(lock: tuple[int, ...], root_fd: int) -> int:
    """Fork the holder: it holds the lock until the tree's root is gone, also when the guard is no more."""
    pid = os.fork()
    if pid == 0:
        try:
            call_it(b"primacy-lock")
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)  # a stopped one would keep the lock for ever
            close_but(*lock, root_fd)
            poll = select.poll()
            poll.register(root_fd, select.POLLIN)
            poll.poll()
        finally:
            os._exit(0)
    return pid
