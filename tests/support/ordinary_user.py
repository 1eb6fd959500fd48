"""The process suite as an ordinary user who may make no namespace: the command is traced, and nothing else differs.

    python -m tests.support.ordinary_user [pytest arguments]

Root becomes nobody, in a user namespace in which no further one may be made; anybody else stays who he is. Where the
interpreter lies in a folder that nobody may read (root's home), one right is kept: to read and search (it writes
nothing, kills nobody, traces nobody else's and makes no namespace). What is about namespaces is named here beforehand,
test by test, and left out; everything else must hold as it does for root.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.support.marks import marked

NOBODY = 65534
CLONE_NEWUSER = 0x10000000
MODES = ("root", "user", "capless")
"""Of the guard's tests: other users than this one; `traced` is the mode of this run."""
ELSEWHERE = {
    "test_what_the_command_leaves_behind_is_cleared_before_the_next_start": (
        "the test counts processes by name, and without a namespace those of others are seen too"
    ),
    "test_mutant_is_caught[nobody keeps the lock when guard and init die]": (
        "there is no init; the lock holder of a traced tree has its own in test_guard_trace.py"
    ),
    "test_mutant_is_caught[the parent-death signal is omitted]": "a traced tree dies without it",
    "test_mutant_overlaps_and_is_seen[the parent-death signal is omitted]": "a traced tree dies without it",
}
"""What is about namespaces, by the test that demands it of them."""
ROOTS = {
    "test_the_command_runs_as_another_user": "only root can change the user",
    "test_F10_user_and_the_parent_death_signal": "only root can change the user",
    "test_where_containment_is_weak_it_says_so_and_still_takes_the_tree_along": "root's way to be weak",
    "test_strong_containment_may_be_required": "root's way to be weak",
    "test_without_a_namespace_a_killed_guard_takes_all_of_the_command_along": "root's way to be traced",
    "test_several_nodes_require_strong_containment": "root's way to be weak",
    "test_a_set_user_id_program_has_no_effect": "only root can make one",
    "test_what_a_lost_guard_held_keeps_the_next_start_away": "root's way to be weak",
}
"""What only root can do, so that root's own run has shown it."""


def why_not(name: str, mode: str | None) -> str:
    """Why a test is left out of this run; empty if it is not."""
    if mode in MODES:
        return "another user's mode, shown by root's run"
    return ELSEWHERE.get(name) or ROOTS.get(name.partition("[")[0], "")


def forbid_namespaces() -> None:
    """A user namespace with the same users as outside, in which no further one may be made."""
    libc = ctypes.CDLL(None, use_errno=True)
    me, root = os.getpid(), os.geteuid() == 0
    (ask, asked), (done, said) = os.pipe(), os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(asked)
        os.read(ask, 1)
        for name, one in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
            if name == "gid_map":
                Path(f"/proc/{me}/setgroups").write_text("allow" if root else "deny")
            Path(f"/proc/{me}/{name}").write_text("0 0 65536" if root else f"{one} {one} 1")
        os.write(said, b"x")
        os._exit(0)
    if libc.unshare(CLONE_NEWUSER) != 0:
        os.kill(helper, signal.SIGKILL)  # none can be made here anyway
        os.waitpid(helper, 0)
        return
    os.write(asked, b"x")
    os.waitpid(helper, 0)
    if os.read(done, 1) == b"x":
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    for handle in (ask, asked, done, said):
        os.close(handle)


def main() -> int:
    """Says first what will be left out, then runs the rest; exits with the tests' own code."""
    print("as an ordinary user without namespaces; left out, for it is about them:")
    for name, why in ELSEWHERE.items():
        print(f"  {name}: {why}")
    print(flush=True)
    folder = tempfile.mkdtemp(prefix="ordinary-")
    worker = os.fork()
    if worker == 0:
        become_ordinary(folder)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    shutil.rmtree(folder, ignore_errors=True)
    return code


def become_ordinary(folder: str) -> None:
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/tests"]
    call += (
        sys.argv[1:] if any(word.startswith("tests/") for word in sys.argv) else [*marked("ordinary"), *sys.argv[1:]]
    )
    environment = {**os.environ, "PRIMACY_ORDINARY": "1", "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        forbid_namespaces()
        right = "+dac_read_search"
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        call = [*drop, f"--inh-caps={right}", f"--ambient-caps={right}", "--", *call]
    else:
        forbid_namespaces()
    os.execvpe(call[0], call, environment)


if __name__ == "__main__":
    sys.exit(main())
