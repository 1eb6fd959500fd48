"""What the watchdog is told, what it asks for, and what the log and the users hear of the work. Closed."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from primacy.election.inputs import GuardLost, RunLock, WorkDeferred, WorkGone, WorkStarted
from primacy.election.model import Leadership

EXIT_NOT_STARTED = 126
"""A shell's number for a command that was found and could not be started."""


class State(StrEnum):
    """What the workload is doing, in the users' words. Closed."""

    STOPPED = "stopped"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STUCK = "stuck"


# --- told by the election ---------------------------------------------------------------------------------------------


class Begin(NamedTuple):
    """All conditions are met: the work may start under this leadership."""

    leadership: Leadership


class Renew(NamedTuple):
    """The hold was proved anew."""

    leadership: Leadership


class End(NamedTuple):
    """The work must end: with its own stop time (`planned`), or by the points of the hold."""

    term: int
    planned: bool


class LetGo(NamedTuple):
    """The guard may release as soon as the tree is confirmed gone (G5)."""

    term: int
    successor: str = ""


# --- told by the guard, the lock and the clock ------------------------------------------------------------------------


class Ran(NamedTuple):
    """The command runs."""

    run: int
    pid: int


class NotStarted(NamedTuple):
    """It could not be started; nothing is left of it."""

    run: int
    why: str
    code: int = EXIT_NOT_STARTED


class Locked(NamedTuple):
    """The run lock is held, so that nothing was started."""

    by: int


class Exited(NamedTuple):
    """The command itself ended; what it left behind is still being cleared."""

    run: int
    code: int
    """As a shell says it: 128 and the signal's number after a signal."""


class Gone(NamedTuple):
    """The whole tree is confirmed gone."""

    run: int
    released: bool


class GuardEnded(NamedTuple):
    """The guard process, or the pipe to it, is gone."""


class LockFree(NamedTuple):
    """The run lock was found free, after it was to be watched."""


class Woke(NamedTuple):
    """`deadline_ms` has passed."""


class Hurry(NamedTuple):
    """Whoever asked for the stop asks again: kill it now."""


Given = Begin | Renew | End | LetGo | Ran | NotStarted | Locked | Exited | Gone | GuardEnded | LockFree | Woke | Hurry


# --- asked for --------------------------------------------------------------------------------------------------------


class OrderStart(NamedTuple):
    """The guard starts run `run` under this leadership."""

    run: int
    leadership: Leadership


class OrderExtend(NamedTuple):
    """The guard's points move to those of this leadership."""

    leadership: Leadership


class OrderStop(NamedTuple):
    """The stop signal now, KILL to the whole tree at this moment or at that of the hold, whichever is earlier."""

    kill_at_ms: int


class OrderLetGo(NamedTuple):
    """The guard releases once the tree is gone."""

    successor: str


class Dismiss(NamedTuple):
    """Nothing runs: the guard of this term may end."""


class WatchLock(NamedTuple):
    """Look at the run lock until it is free, then say `LockFree`."""


class Tell(NamedTuple):
    """The election is told."""

    given: WorkStarted | WorkGone | GuardLost | RunLock | WorkDeferred


class GiveUp(NamedTuple):
    """There will be no further start here: the node hands over, and the agent ends with this code."""

    code: int


class Happened(StrEnum):
    """What the log says of the work. Closed."""

    RUNNING = "running"
    NOT_STARTED = "not-started"
    EXITED = "exited"
    RESTARTS = "restarts"
    GAVE_UP = "gave-up"
    DONE = "done"
    STOPPING = "stopping"
    GONE = "gone"
    LOCKED = "locked"
    LOCK_FREE = "lock-free"
    GUARD_LOST = "guard-lost"
    STUCK = "stuck"
    AWAITS = "awaits-approval"
    APPROVED = "approved"
    FENCING = "fencing"
    FENCED = "fenced"
    FENCE_FAILED = "fence-failed"


class Note(NamedTuple):
    """A fact for the log."""

    what: Happened
    run: int = 0
    number: int = 0
    """A process number, an exit code, a time in milliseconds: what belongs to it."""
    detail: str = ""


Effect = OrderStart | OrderExtend | OrderStop | OrderLetGo | Dismiss | WatchLock | Tell | GiveUp | Note
