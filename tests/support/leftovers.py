"""Runs a command and sees what it leaves: every process that outlives it, and every file that it made or changed.

Processes: whoever loses its parent is given to the nearest ancestor that asked for it, by the kernel. The command runs
below a small process that did ask, so that nothing can slip away by a new session, group or environment; it waits
until it has no child any more, or says who still lives.

Files: the command has a home, a temporary folder and a working folder of its own, which are compared with what they
were; and where strace is here, every call that makes, changes or removes a file is looked at, wherever that file is.

python -m tests.support.leftovers REPORT GRACE_S -- COMMAND ...
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 15.0
"""For a process that is about to end, and waits for one that waits for a processor, or for a disk that hangs. One that
sleeps then lives on."""
DYING_S = 60.0
"""For one that does not sleep: on a busy machine it waits for a processor, to end on or to die on."""
KILL_MASK = 1 << signal.SIGKILL - 1
FLAGS_AT, PF_EXITING = 5, 4
"""Of the kernel's flags of a process: where they stand among its figures, and the one of a process that dies."""
PLACES = ("home", "state", "config", "cache", "data", "runtime", "tmp", "cwd")
CHANGING = (
    "open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,"
    "unlink,unlinkat,rmdir,truncate,bind"
)
NOT_FILES = ("/dev/", "/proc/", "/sys/", "pipe:", "socket:", "anon_inode:")


class Left(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str
    processes: list[str]
    """Command lines of those that lived on."""
    files: list[str]
    """Made, changed or removed in its own places."""
    elsewhere: list[str]
    """Made, changed or removed anywhere but in its temporary folder, by the calls that it made; needs strace."""
    calls: int
    """How many such calls were looked at; 0 without strace."""


def run(
    place: Path, command: Sequence[str], *, traced: bool = False, within_s: float = 120, grace_s: float = GRACE_S
) -> Left:
    """The command, in places of its own below `place`."""
    homes = {name: place / name for name in PLACES}
    for folder in homes.values():
        folder.mkdir(parents=True, mode=0o700)
        (folder / "before").write_text("as it was")
    report, trace = place / "report.json", place / "trace"
    call = [sys.executable, "-m", "tests.support.leftovers", str(report), str(grace_s), "--"]
    if traced:
        call += ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "512", "-e", f"trace={CHANGING}", "-o", str(trace)]
    before = snapshot(homes.values())
    with subprocess.Popen(
        [*call, *command],
        cwd=homes["cwd"],
        env=_environment(homes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=within_s)
        except BaseException:
            process.terminate()  # it ends all that is below it
            process.communicate(timeout=30)
            raise
    after = snapshot(homes.values())
    files = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    calls = changes(trace.read_text(errors="replace").splitlines()) if traced else []
    said = json.loads(report.read_text())
    allowed = (f"{homes['tmp']}/", *NOT_FILES)
    elsewhere = sorted({path for path in calls if not path.startswith(allowed)})
    return Left(said["code"], out, err, said["left"], files, elsewhere, len(calls))


def _environment(homes: dict[str, Path]) -> dict[str, str]:
    """Nothing of ours but the way to Python and to this checkout."""
    root = str(Path(__file__).parents[2])
    xdg = {f"XDG_{name.upper()}_HOME": str(homes[name]) for name in ("state", "config", "cache", "data")}
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": root,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(homes["home"]),
        "TMPDIR": str(homes["tmp"]),
        "XDG_RUNTIME_DIR": str(homes["runtime"]),
        "LANG": "C.UTF-8",
        **xdg,
    }


def snapshot(folders: Iterable[Path]) -> dict[str, tuple[int, int, int]]:
    """Of every file and folder below: mode, size and when it was changed."""
    found: dict[str, tuple[int, int, int]] = {}
    for folder in folders:
        for home, _, names in os.walk(folder):
            found[home] = (os.lstat(home).st_mode, 0, 0)
            for name in names:
                path = os.path.join(home, name)
                with contextlib.suppress(FileNotFoundError):
                    state = os.lstat(path)
                    found[path] = (state.st_mode, state.st_size, state.st_mtime_ns)
    return found


# --- what strace saw --------------------------------------------------------------------------------------------------

CALL = re.compile(r"^(?:\d+\s+)?(\w+)\((.*)\)\s+= (-?\d+)")
PATH = re.compile(r'(?:(?:AT_FDCWD|-?\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
WRITES = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)")


def changes(lines: Sequence[str]) -> list[str]:
    """The paths of all calls that made, changed or removed something; as they were said, where no folder was said."""
    return [path for line in _whole(lines) for path in _changed(line)]


def _whole(lines: Sequence[str]) -> list[str]:
    """A call that was interrupted by others stands on two lines."""
    begun: dict[str, str] = {}
    found = []
    for line in lines:
        pid, _, rest = line.partition(" ")
        if line.endswith("<unfinished ...>"):
            begun[pid] = rest.strip().removesuffix("<unfinished ...>").rstrip()
        elif resumed := re.match(r"\s*<\.\.\. \w+ resumed>(.*)", rest):
            found.append(f"{pid} {begun.pop(pid, '')}{resumed[1]}")
        else:
            found.append(line)
    return found


def _changed(line: str) -> list[str]:
    call = CALL.match(line)
    if call is None or int(call[3]) < 0:
        return []
    name, arguments = call[1], call[2]
    if name == "bind":
        named = re.search(r'sun_path="([^"]*)"', arguments)
        return [named[1]] if named else []
    if name.startswith("open") and not WRITES.search(arguments):
        return []
    paths = [os.path.normpath(os.path.join(folder or "", path)) for folder, path in PATH.findall(arguments)]
    return paths[1:] if name.startswith("symlink") else paths


# --- the process above it ---------------------------------------------------------------------------------------------


def main() -> int:
    report, grace_s, dashes, *command = sys.argv[1:]
    assert dashes == "--"
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: process.kill())
    code = process.wait()
    left = _left(float(grace_s))
    Path(report).write_text(json.dumps({"code": code, "left": left}))
    return 0


def _left(grace_s: float) -> list[str]:
    """Those that are ours and live on. They are ended, so that a failed test leaves none either."""
    began_s = time.monotonic()
    while children := _children():
        waited_s = time.monotonic() - began_s
        if waited_s > DYING_S or (waited_s > grace_s and any(map(_sleeps, children))):
            break
        time.sleep(0.02)
    found = []
    for pid in children:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        if words:  # an ended one has none
            found.append(f"{pid}: {words}")
        os.kill(pid, signal.SIGKILL)  # it is our child and was not waited for: the number is its own
        os.waitpid(pid, 0)
    return found


def _children() -> list[int]:
    """Those that are there, once whoever has ended was waited for."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _sleeps(pid: int) -> bool:
    """Of a child that was not waited for: it has not ended, was not killed, and waits for something."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    state, *figures = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    is_killed = any(mask & KILL_MASK for mask in masks) or int(figures[FLAGS_AT]) & PF_EXITING
    return state not in "RZX" and not is_killed


if __name__ == "__main__":
    sys.exit(main())
