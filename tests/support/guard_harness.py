"""A real guard with a stand-in for its agent, in a folder of its own, and eyes to see what they do.

The stand-in is a small process that starts the guard and then only exists, so that it can be killed or stopped; the
test itself holds the socket. In which way the guard runs is chosen by the mode:

    root     as root: a pid namespace
    user     as an ordinary user: a pid namespace inside a user namespace
    traced   as an ordinary user who may make no namespace: every process is traced
    capless  as root in a container, without CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_KILL: traced; it can change the user
    weak     as an ordinary user who may make no namespace and trace nothing

Every process that belongs to a harness has the harness's folder in its arguments; `close` ends them by their numbers.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from primacy.supervise.containment import GUARD, guard_argv
from primacy.supervise.guard_link import EXTENSION, EXTENSION_MARK
from tests.support import stamp, waiting
from tests.support.canary import Canary
from tests.support.safety_checks import safe

NOBODY = 65534
ORDINARY = "PRIMACY_ORDINARY" in os.environ
"""This whole run is that of an ordinary user who may make no namespace (tests/support/ordinary_user.py)."""
OWN = "root" if os.geteuid() == 0 else "traced" if ORDINARY else "user"
"""The mode of the one who runs the tests."""
TRACED = ("traced", "capless")
STRONG = ("root", "user", *TRACED)
ALL = (*STRONG, "weak")
TERM_MS, KILL_MS, DEADMAN_MS, HOLD_MS = 400, 700, 850, 1_000
"""The profile `fast`."""
BOOT_MS = 1_000
"""Added to the first deadlines, so that an interpreter can start on a busy machine before they come."""
LONG_MS = 60_000
PROMPT_MS = 200
"""At once, on a machine whose canary was on time."""
LIMIT_S = 30.0
"""For whatever must come."""
KILLED_S = 12.0
"""For the end of what the kernel kills; below the life of a command (`stamp.LASTS_S`), or a survivor is not seen."""
OUTLIVES_S = 3.0
"""The same for a guard with a rule taken out: what lives so long after the kernel should have killed it lives on."""
STAMPS_S = 0.05
"""In which whoever lives has stamped."""
STILL_LOOKS = 5
"""At 50 ms each: a process that sleeps through all of them has nothing left to do."""

AGENT = """
import ctypes, errno, os, signal, struct, sys
mode, uid, fd, argv = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
libc = ctypes.CDLL(None, use_errno=True)

def write(path, text):
    with open(path, "w") as file:
        file.write(text)

def forbid_namespaces():
    me, (ask, asked), (done, said) = os.getpid(), os.pipe(), os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(asked)
        os.read(ask, 1)
        many = "0 0 65536" if os.geteuid() == 0 else None
        write(f"/proc/{me}/setgroups", "allow" if many else "deny")
        write(f"/proc/{me}/uid_map", many or f"{os.geteuid()} {os.geteuid()} 1")
        write(f"/proc/{me}/gid_map", many or f"{os.getegid()} {os.getegid()} 1")
        os._exit(0)
    if libc.unshare(0x10000000) == 0:
        os.write(asked, b"x")
        os.waitpid(helper, 0)
        write("/proc/sys/user/max_user_namespaces", "0")
    else:
        os.kill(helper, signal.SIGKILL)

def forbid_ptrace():
    number = {"x86_64": 101}.get(os.uname().machine, 117)
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    libc.prctl(38, 1, 0, 0, 0)
    if libc.prctl(22, 2, struct.pack("HxxxxxxP", len(code), ctypes.addressof(text)), 0, 0):
        sys.exit("cannot forbid ptrace")

if mode in ("traced", "weak"):
    forbid_namespaces()
if mode == "capless" and any(libc.prctl(24, right, 0, 0, 0) for right in (21, 19, 5)):
    sys.exit("cannot drop CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_KILL")
if mode == "weak":
    forbid_ptrace()
if mode in ("user", "traced", "weak") and uid != os.geteuid():
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
guard = os.fork()
if guard == 0:
    os.execv(argv[0], argv)
os.close(fd)
print(os.getpid(), guard, flush=True)
while True:
    signal.pause()
"""


class Ended(AssertionError):
    """The guard closed its end of the socket."""


@functools.cache
def interpreter_for(uid: int) -> str:
    """An interpreter that this user may execute (a private one in root's home is none), or empty."""
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        drop: dict[str, Any] = {} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}
        try:
            subprocess.run([python, "-I", "-S", "-c", "import ctypes, json"], check=True, capture_output=True, **drop)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    return ""


wait_until = partial(waiting.wait_until, within_s=LIMIT_S, every_s=0.001)


def boot_ms() -> int:
    return stamp.now_ns() // 1_000_000


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def cpu_ms_of(pid: int) -> float:
    """What it has taken of the processors so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return 1_000 * (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wakes_of(pid: int) -> int:
    """How often it has gone to sleep so far."""
    return int(status_of(pid)["voluntary_ctxt_switches"])


def status_of(pid: int) -> dict[str, str]:
    """The lines of its status; none if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


def wait_until_still(pid: int) -> int:
    """How often it has slept, once it sleeps and that does not change any more."""
    seen: list[int] = []

    def still() -> bool:
        time.sleep(0.05)
        seen.append(wakes_of(pid))
        return len(seen) > STILL_LOOKS and len(set(seen[-STILL_LOOKS:])) == 1 and state_of(pid) == "S"

    wait_until(still)
    return seen[-1]


def was_told_to_end(pid: int) -> bool:
    """TERM has come to one that has blocked it (`block-term`)."""
    pending = int(status_of(pid).get("ShdPnd", "0"), 16) | int(status_of(pid).get("SigPnd", "0"), 16)
    return bool(pending >> signal.SIGTERM - 1 & 1)


class Deadlines(NamedTuple):
    """The points of one hold, absolute."""

    term_at: int
    kill_at: int
    deadman_at: int
    hold_at: int

    @classmethod
    def after(cls, s_ms: int) -> Deadlines:
        return cls(s_ms + TERM_MS, s_ms + KILL_MS, s_ms + DEADMAN_MS, s_ms + HOLD_MS)

    def points(self) -> dict[str, int]:
        return {"term_at": self.term_at, "kill_at": self.kill_at, "deadman_at": self.deadman_at}


def extension(points: Deadlines) -> bytes:
    return EXTENSION.pack(EXTENSION_MARK, points.term_at, points.kill_at, points.deadman_at)


class Watch:
    """Processes whose end can be seen without delay: one call to the kernel tells how many are still there."""

    def __init__(self, pids: list[int]) -> None:
        self.poll = select.poll()
        self.fds: list[int] = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended since it was listed
                self.fds.append(os.pidfd_open(pid))
                self.poll.register(self.fds[-1], select.POLLIN)

    def living(self) -> int:
        return len(self.fds) - len(self.poll.poll(0))

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


class Harness:
    """One guard, its stand-in agent, and what can be asked of both."""

    def __init__(self, mode: str, lock: Path | None = None, mutant: dict[str, str] | None = None) -> None:
        self.mode = mode
        self.killed_s = OUTLIVES_S if mutant else KILLED_S
        self.folder = Path(tempfile.mkdtemp(prefix="guard-"))
        self.folder.chmod(0o777)
        self.lock = lock or self.folder / "run.lock"
        self.stamps = str(self.folder / "stamps")
        stamp.make_file(self.stamps)
        for source in (*GUARD.parent.glob("guard*.py"), Path(stamp.__file__)):
            shutil.copy(source, self.folder)
            (self.folder / source.name).chmod(0o644)
        for name, text in (mutant or {}).items():
            mutate(self.folder / name, text)
        self.uid = NOBODY if os.geteuid() == 0 and mode in ("user", "traced", "weak") else os.geteuid()
        self.python = interpreter_for(self.uid)
        self.anyones_python = interpreter_for(NOBODY) if os.geteuid() == 0 else self.python
        self.news: list[dict[str, Any]] = []
        self.handles: list[int] = []
        self.looked_at, self.pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.agent, self.agent_pid, self.guard_pid = self._start_agent()
        self.inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inbox.bind(("127.0.0.1", 0))

    def _start_agent(self) -> tuple[subprocess.Popen[bytes], int, int]:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        guard = guard_argv(self.python, self.folder, theirs.fileno())
        arguments = [self.mode, str(self.uid), str(theirs.fileno()), *guard]
        with theirs:
            agent = subprocess.Popen(
                [os.path.realpath(sys.executable), "-I", "-S", "-c", AGENT, *arguments],
                pass_fds=[theirs.fileno()],
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
            )
        assert agent.stdout is not None
        agent_pid, guard_pid = map(int, agent.stdout.readline().split())
        return agent, agent_pid, guard_pid

    # --- talking

    def say(self, do: str, **more: object) -> None:
        """With the descriptors that are to go along with the next order."""
        handles, self.handles = self.handles, []
        socket.send_fds(self.socket, [json.dumps({"do": do, **more}).encode()], handles)

    def extend(self, points: Deadlines) -> None:
        """As the agent does with every renewal: through the pipe. Raises `BlockingIOError` if it is full."""
        os.write(self.pipe, extension(points))

    def extend_by_packet(self, points: Deadlines) -> None:
        """As it does when the pipe is full."""
        self.socket.send(extension(points))

    def hear(self, *words: str, within_s: float = LIMIT_S) -> dict[str, Any]:
        """The next packet; it must be one of these."""
        self.socket.settimeout(within_s)
        packet = self.socket.recv(65536)
        if not packet:
            raise Ended
        news: dict[str, Any] = json.loads(packet)
        self.news.append(news)
        assert news["is"] in words, news
        return news

    def hello(self, containment: str = "any") -> dict[str, Any]:
        self.handles = [self.looked_at]
        self.say("hello", agent=self.agent_pid, lock=str(self.lock), containment=containment)
        return self.hear("ready")

    def order(self, *ways: str, run: int = 1, s_ms: int | None = None, **more: object) -> Deadlines:
        """Order a start of the stamping command."""
        points = Deadlines.after(boot_ms() + BOOT_MS if s_ms is None else s_ms)
        port = self.inbox.getsockname()[1]
        command = {
            "run": run,
            "argv": [self.anyones_python, "-I", "-S", str(self.folder / "stamp.py"), self.stamps, *ways],
            "cwd": str(self.folder),
            "env": {"PRIMACY_TOKEN": "7", "PRIMACY_RUN": str(run)},
            "umask": 0o77,
            "release": base64.b64encode(b"release").decode(),
            "targets": [["127.0.0.1", port]],
        }
        self.say("start", **(command | points.points() | more))
        return points

    def start(self, *ways: str, expect: int = 1, run: int = 1, long: bool = True, **more: object) -> Deadlines:
        """Order a start, and wait until `expect` processes have stamped. `long`: no deadline will come."""
        points = self.order(*ways, run=run, s_ms=boot_ms() + (LONG_MS if long else BOOT_MS), **more)
        self.hear("running")
        wait_until(lambda: len([one for one in stamp.read(self.stamps) if one.run == run]) >= expect)
        return points

    def release_arrived_ns(self, within_s: float = 0.0) -> int | None:
        """When we saw it, which is not before it arrived; None if it is not there."""
        self.inbox.settimeout(within_s)
        try:
            assert self.inbox.recv(100) == b"release"
        except (BlockingIOError, TimeoutError):
            return None
        return stamp.now_ns()

    # --- looking

    def processes(self) -> list[int]:
        """All living processes of this harness but the stand-in agent."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != self.agent_pid:
                try:
                    arguments = Path(f"/proc/{entry}/cmdline").read_bytes()
                except OSError:
                    continue
                if str(self.folder).encode() in arguments and is_alive(int(entry)):
                    found.append(int(entry))
        return found

    def named(self, comm: str) -> list[int]:
        return [pid for pid in self.processes() if status_of(pid).get("Name") == comm]

    def lock_holder(self) -> int:
        """The one, once it is called so: it says that itself, a moment after it was forked."""
        (found,) = wait_until(lambda: self.named("primacy-lock"), "a lock holder")
        return found

    def commands(self) -> list[int]:
        """Living processes of the tree, without guard, init and lock holder."""
        return [pid for pid in self.processes() if not status_of(pid).get("Name", "").startswith("primacy-")]

    def watch(self) -> Watch:
        """An eye on all that lives in the tree now."""
        return Watch(self.commands())

    def stamped(self) -> list[stamp.Stamp]:
        return stamp.read(self.stamps)

    def last_ms(self) -> float:
        """The last stamp of all. `running` is said before the command stamps: its first stamp is waited for."""
        wait_until(self.stamped)
        return max(one.last_ns for one in self.stamped()) / 1e6

    def lock_is_free(self) -> bool:
        with open(self.lock, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def signal(self, number: signal.Signals, *pids: int) -> None:
        for pid in pids:
            os.kill(pid, number)

    def close(self) -> None:
        self.agent.kill()
        self.agent.wait()
        with contextlib.suppress(ProcessLookupError):  # it may end by itself at any moment, for its agent is dead
            if is_alive(self.guard_pid):
                os.kill(self.guard_pid, signal.SIGKILL)
        assert self.agent.stdout is not None
        self.agent.stdout.close()
        self.socket.close()
        self.inbox.close()
        os.close(self.pipe)
        os.close(self.looked_at)
        wait_until(self._swept)
        shutil.rmtree(self.folder)

    def _swept(self) -> bool:
        """Nothing of this harness is left. What forks while it is being looked for is found next time."""
        found = self.processes()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        return not found


def mutate(path: Path, text: str) -> None:
    """Put another definition behind the one in the file."""
    path.write_text(path.read_text() + "\n\n" + text + "\n")


def need(mode: str) -> str:
    """The containment that this mode must give; skips, with the reason, what this machine cannot give."""
    if mode in ("root", "capless") and os.geteuid() != 0:
        pytest.skip("needs root")
    if os.geteuid() == 0 and mode in ("user", "traced", "weak") and not interpreter_for(NOBODY):
        pytest.skip("no interpreter that an ordinary user may execute")
    return "weak" if mode == "weak" else "strong"


OpenHarness = Callable[..., Harness]


@pytest.fixture
def open_harness() -> Iterator[OpenHarness]:
    """Desks that have said hello, closed at the end with whatever is left of them."""
    harnesses: list[Harness] = []

    def opened(mode: str, containment: str = "any", **more: Any) -> Harness:
        expected = need(mode)
        harnesses.append(Harness(mode, **more))
        ready = harnesses[-1].hello(containment)
        if expected == "strong" and ready["containment"] == "weak" and mode == "user":
            pytest.skip(ready["why"])
        assert ready["containment"] == expected, ready
        if expected == "strong":
            assert ready["way"] == ("ptrace" if mode in TRACED else "namespace"), ready
        return harnesses[-1]

    yield opened
    for harness in harnesses:
        harness.close()


def dead_in_time(harness: Harness, points: Deadlines) -> None:
    """By the end of its hold, and not before TERM. Who was killed may still wait for a processor to die on; who lives
    stamps beyond the hold, and no machine is too slow for that."""
    wait_until(lambda: boot_ms() >= points.hold_at)
    left = harness.commands()
    if left:
        time.sleep(STAMPS_S)
    last_ms = harness.last_ms()
    safe(last_ms <= points.hold_at, f"it lived until {last_ms:.0f}, and its hold ended at {points.hold_at}")
    assert left == []
    assert points.term_at < last_ms


def dead_after(harness: Harness) -> None:
    """Nothing of the tree lives, and nothing stamped after we found that."""
    wait_until(lambda: not harness.commands())
    seen = harness.last_ms()
    assert seen <= boot_ms() + 1
    safe(harness.last_ms() == seen, "something of it lives")


def ended_at_once(harness: Harness, killed_ms: int, canary: Canary) -> None:
    """No deadline is near that could have done it; whoever was killed does not stamp any more."""
    took_ms = harness.last_ms() - killed_ms
    canary.judge(took_ms < PROMPT_MS, f"stamps until {took_ms:.0f} ms after the blow, {PROMPT_MS} at most")
