"""Starting a guard process, and saying in one sentence how firmly it holds the command (G2).

The guard's files are loaded by themselves, without the package, in an interpreter that reads no environment, no
site packages and no folder of the user's: nothing else can change what it does, and it stays small.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

GUARD = Path(__file__).with_name("guard") / "guard.py"
LAUNCH = "import sys; sys.path.append(sys.argv[1]); import guard; guard.main()"
"""As a module, not as a script: a script is compiled at every start, and that memory stays with the guard."""

STRONG = "if the guard dies, the kernel ends every process of it"
WEAK = (
    "if the guard itself is killed, a process that left the command (double fork, session of its own) lives on, "
    "and keeps the next start away only if it kept the run lock's descriptor"
)
CURE = (
    "to make it strong, allow ptrace (kernel.yama.ptrace_scope below 2, and no seccomp profile that refuses it), run "
    "as root (with CAP_SYS_ADMIN in a container), or allow unprivileged user namespaces (sysctl "
    "user.max_user_namespaces, kernel.unprivileged_userns_clone or the AppArmor restriction of them)"
)
LOOK_S = 5.0
"""How long a look at what this machine can do may take."""
SAID_BYTES_MAX = 65_536
PASSED_ON = ("LD_LIBRARY_PATH",)
"""Without it some interpreters find no library of their own. Nothing else of the agent's environment is passed on."""


class GuardProcess(NamedTuple):
    """A guard that was just started, and our end of the packet socket to it."""

    process: subprocess.Popen[bytes]
    socket: socket.socket


def guard_argv(python: str, folder: Path, fd: int) -> list[str]:
    """How a guard is started from its files in `folder`, with its end of the socket as `fd`."""
    return [python, "-I", "-S", "-c", LAUNCH, str(folder), str(fd)]


def start_guard() -> GuardProcess:
    """Start one, in a session of its own. It does nothing before `hello`, and ends with the agent or the socket.

    The agent must be its parent and must not fork for it in a passing process: the guard checks that the number in
    `hello` is that of its parent, so that it never takes a stranger's process for the agent.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            guard_argv(sys.executable, GUARD.parent, theirs.fileno()),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
            start_new_session=True,
        )
    return GuardProcess(process, ours)


def containment_here() -> str:
    """What a guard that is started now, by this user, could do: the sentence, or nothing if none can be started."""
    if not sys.platform.startswith("linux"):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        guard, line = start_guard()
        try:
            line.settimeout(LOOK_S)
            hello = {"do": "hello", "agent": os.getpid(), "lock": os.path.join(folder, "lock"), "containment": "any"}
            line.send(json.dumps(hello).encode())
            said = json.loads(line.recv(SAID_BYTES_MAX))
            if said.get("is") != "ready":
                return ""
            return containment_sentence(said["containment"], said["why"], said.get("way", ""))
        except (OSError, ValueError):
            return ""
        finally:
            line.close()
            guard.kill()
            guard.wait()


def containment_sentence(containment: str, why: str, way: str = "") -> str:
    """For `status`, `contract` and the first line of the log: what holds, why, and what would make it strong."""
    if containment == "strong":
        return f"containment is strong{f' ({way})' if way else ''}: {why}, and {STRONG}"
    return f"containment is weak: {why}, so that {WEAK}; {CURE}"
