"""What the guarded command is started with: its words, folder, user, environment and outputs.

Everything that can be known to be wrong is said before anything is started, in one sentence. The command is a list of
words and never meets a shell.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from primacy.election.model import Leadership
from primacy.errors import CannotHere, UsageError
from primacy.node.bound import outer_environment
from primacy.settings.schema_work import Run

ORDER_BYTES_MAX = 160_000
"""A start travels to the guard as one packet, which the kernel bounds at about 200,000 bytes; the releases for a
hundred other nodes stand in it as well."""


class User(NamedTuple):
    """Whom the command runs as, when it is another."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


class Child(NamedTuple):
    """A command, ready to be started."""

    argv: tuple[str, ...]
    cwd: str
    environment: dict[str, str]
    """Without the variables that differ from start to start."""
    user: User | None
    umask: int
    stdout: str | None
    stderr: str | None
    stop_signal: int

    def order(self, more: Mapping[str, str]) -> dict[str, Any]:
        """The part of a start that is the same in every term."""
        user = self.user
        return {
            "argv": list(self.argv),
            "cwd": self.cwd,
            "env": {**self.environment, **more},
            "uid": user.uid if user else None,
            "gid": user.gid if user else None,
            "groups": list(user.groups) if user else None,
            "umask": self.umask,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "stop_signal": self.stop_signal,
        }


def child_of(run: Run, base: str, stdout: str | None, stderr: str | None, around: Mapping[str, str]) -> Child:
    """The command of the settings. `base`: where relative paths count from; `around`: the environment to start from."""
    if not run.command:
        raise UsageError("there is no command: primacy run -- COMMAND ARGUMENTS, or run.command in the file")
    if any("\0" in word for word in run.command):
        raise UsageError("the command has a zero byte in one of its words")
    cwd = os.path.abspath(os.path.join(base, run.cwd) if run.cwd else os.getcwd())
    if not os.path.isdir(cwd):
        raise UsageError(f"--cwd {cwd}: there is no such folder")
    user = _user(run.user, run.group)
    environment = outer_environment(around)
    if user is not None and run.user:
        environment.update(HOME=user.home, USER=user.name, LOGNAME=user.name)
    environment.update(run.environment)
    program = _program(run.command[0], cwd, environment.get("PATH", os.defpath))
    child = Child(
        argv=(program, *run.command[1:]),
        cwd=cwd,
        environment=environment,
        user=user,
        umask=int(run.umask, 8) if run.umask else _umask(),
        stdout=_output(stdout, run.stdout, base, "stdout"),
        stderr=_output(stderr, run.stderr, base, "stderr"),
        stop_signal=signal.Signals[f"SIG{run.stop_signal}"],
    )
    size = len(json.dumps(child.order({})))
    if size > ORDER_BYTES_MAX:
        raise UsageError(
            f"the command and its environment take {size:,} bytes, and {ORDER_BYTES_MAX:,} fit; "
            "start it with a smaller environment (env -i NAME=VALUE … primacy run …)"
        )
    return child


def told(election: str, node: str, leadership: Leadership, run: int = 0, lease_file: str = "") -> dict[str, str]:
    """What each start of the command is told about its leadership; without a run, what a fence command is told."""
    said = {
        "PRIMACY_ELECTION": election,
        "PRIMACY_NODE": node,
        "PRIMACY_TERM": str(leadership.term),
        "PRIMACY_TOKEN": str(leadership.token),
    }
    return {**said, "PRIMACY_RUN": str(run), "PRIMACY_LEASE_FILE": lease_file} if run else said


def _user(name: str, group: str) -> User | None:
    """With a group, that one alone; otherwise all groups of the user."""
    try:
        found = pwd.getpwnam(name) if name else None
    except KeyError:
        raise UsageError(f"--user {name}: there is no such user here") from None
    try:
        gid = grp.getgrnam(group).gr_gid if group else None
    except KeyError:
        raise UsageError(f"run.group = {group}: there is no such group here") from None
    other_user = found is not None and found.pw_uid != os.geteuid()
    if not other_user and gid in (None, os.getegid()):
        return None
    if os.geteuid() != 0:
        said = f"--user {name}" if other_user else f"run.group = {group}"
        raise CannotHere(f"{said}: only root can run a command as another one; leave it out, or run as root")
    if found is None:
        assert gid is not None
        return User("", os.geteuid(), gid, (gid,), "")
    if gid is not None:
        return User(found.pw_name, found.pw_uid, gid, (gid,), found.pw_dir)
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    return User(found.pw_name, found.pw_uid, found.pw_gid, groups, found.pw_dir)


def _program(word: str, cwd: str, path: str) -> str:
    """The program's path. A slip of the pen is told at once; what the disk does later is the guard's to report."""
    if not word:
        raise UsageError("the command's first word is empty")
    if "/" not in word:
        found = shutil.which(word, path=path)
        if found is None:
            raise UsageError(f"there is no command {word} in PATH")
        return os.path.join(cwd, found)
    program = os.path.join(cwd, word)
    if not os.path.exists(program):
        raise UsageError(f"the command {word} is not there")
    if os.path.isdir(program) or not os.access(program, os.X_OK):
        raise UsageError(f"the command {word} cannot be executed")
    return word


def _output(said: str | None, listed: str, base: str, name: str) -> str | None:
    """The option counts from here, the setting from the folder of its file."""
    if said is None and not listed:
        return None
    path = os.path.abspath(said if said is not None else os.path.join(base, listed))
    what = f"--{name} {said}" if said is not None else f"run.{name} = {listed}"
    if os.path.isdir(path):
        raise UsageError(f"{what}: this is a folder")
    if not os.path.isdir(os.path.dirname(path)):
        raise UsageError(f"{what}: the folder {os.path.dirname(path)} is not there")
    return path


def _umask() -> int:
    """The system tells it only by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
