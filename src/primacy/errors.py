"""The one exception tree. Every error that a user can cause or meet is one of these, says the value and the remedy in
one sentence, and knows the exit code that a command ends with.

    PrimacyError              1   anything of ours
    ├── Refused               1   the answer is no: a violation, a double signature, a refused request
    │   ├── Later             1   not now: the same request may be taken in a moment
    │   ├── StaleToken        1   a fence has let a newer holder in: the writer's leadership is over
    │   ├── SlotRefused       1   a slot does not do what a client asked for
    │   └── SourceFailed      1   the source of a cache gave no value
    │       └── NoSuchEntry   1   it has none: nothing failed
    ├── LeadershipLost        1   what the holder of a leadership meets once it is over
    ├── UsageError            2   a wrong call: which option, which value, what would be right
    │   └── SettingsError     2   a wrong file: every problem at once, each with its path
    ├── NotReached            3   no agent, no cluster or no store answered
    │   └── Unsure            3   the answer was lost: what was asked may have been done
    ├── InUse                 4   a port, a folder or a lock is taken
    ├── CannotHere            4   this platform cannot do it
    │   ├── MissingExtra      4   an optional part of the package is not installed
    │   ├── StoreUnusable     4   the store answers, and will not be of use before somebody changes something
    │   └── StorageFailed     4   the storage of a cache peer cannot be read or written
    │       └── StorageFull   4   it has no room left: the peer goes on from memory
    └── Unsafe                5   going on needs an operator: memory lost, list of nodes changed

Our own bugs are `AssertionError`s and not here; what the network and the disk do wrong is an input to a machine and not
here either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class PrimacyError(Exception):
    """Anything of ours. The text is one sentence for people."""

    exit_code = 1


class Refused(PrimacyError):
    """The answer is no."""


class Later(Refused):
    """Not now; the same request may be taken in a moment."""


class StaleToken(Refused):
    """A fence refused a token, for it has seen a larger one. Whoever meets this must stop: somebody else leads."""

    def __init__(self, fence: str, token: int, mark: int) -> None:
        self.fence, self.token, self.mark = fence, token, mark
        super().__init__(f"{fence} has seen token {mark}, so that {token} is stale: another holder leads; stop here")


class SlotRefused(Refused):
    """A slot refuses a command. `slot`: its three digits, empty if none is meant. `code`: the protocol's."""

    def __init__(self, slot: str, code: str, why: str) -> None:
        self.slot, self.code, self.why = slot, code, why
        super().__init__(f"{'slot ' + slot if slot else 'the slot server'} refuses with {code}: {why}")


class SourceFailed(Refused):
    """The source of a cache gave no value for a key. The text is its own, or says what became of the call."""


class NoSuchEntry(SourceFailed):
    """Nothing failed: the source says that it has no such entry, or no source serves the key."""


class LeadershipLost(PrimacyError):
    """A leadership is over: its hold was not renewed in time, or somebody ended it."""

    def __init__(self, election: str, token: int, reason: str) -> None:
        self.election, self.token, self.reason = election, token, reason
        super().__init__(f"the leadership of {election} (token {token}) is over: {reason}")


class UsageError(PrimacyError):
    """A wrong call. Says which option, which value, and what would be right."""

    exit_code = 2


class Problem(NamedTuple):
    """One thing that is wrong in a file."""

    path: str
    """The setting, with dots: `election.timing.hold_ms`. Empty if the whole file is meant."""
    value: str
    """What stands there, shortened; empty if nothing does, or if it is a secret."""
    wrong: str
    """What is wrong with it, and what would be right."""
    line: int = 0
    """The line in the file, from 1; 0 if there is none."""

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        if not self.path:
            return where + self.wrong
        shown = f" = {self.value}" if self.value else ""
        return f"{where}{self.path}{shown}: {self.wrong}"


class SettingsError(UsageError):
    """A wrong file, with all of its problems."""

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        assert problems, "a SettingsError without a problem"
        self.problems = tuple(problems)
        self.source = source
        super().__init__(str(self))

    def __str__(self) -> str:
        of = f" in {self.source}" if self.source else ""
        if len(self.problems) == 1:
            return f"{self.source}: {self.problems[0]}" if self.source else str(self.problems[0])
        return "\n".join((f"{len(self.problems)} problems{of}:", *(f"  {p}" for p in self.problems)))


class NotReached(PrimacyError):
    """No agent, no cluster or no store answered."""

    exit_code = 3


class Unsure(NotReached):
    """The answer was lost. What was asked may have been done, so that it is not simply asked again."""


class InUse(PrimacyError):
    """A port, a folder or a lock is taken."""

    exit_code = 4


class CannotHere(PrimacyError):
    """This platform cannot do it."""

    exit_code = 4


EXTRAS = {
    "postgres": ("psycopg[binary]>=3.2",),
    "mysql": ("PyMySQL[rsa]>=1.1",),
    "cache": ("pyzmq>=26", "lmdb>=1.5"),
    "celery": ("celery>=5.4",),
    "apscheduler": ("APScheduler>=3.10,<4",),
    "django": ("Django>=5.2",),
}
"""What each extra brings, as pyproject.toml says it; a test compares the two."""


class MissingExtra(CannotHere):
    """An optional part of the package is not installed. Names the extra and the command that brings it.

    The command names the packages and not `primacy[extra]`, which only an index that has primacy could resolve.
    """

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        packages = " ".join(f"'{package}'" for package in EXTRAS[extra])
        super().__init__(f"{what} needs the extra `{extra}`: pip install {packages} (pipx inject primacy {packages})")


class StoreUnusable(CannotHere):
    """The store refuses in a way that cannot pass by itself: wrong password, no rights, no such database, TLS.

    Waiting does not help. The text says what to change.
    """


class StorageFailed(CannotHere):
    """The storage of a cache peer cannot be read or written. Nothing of what was to be written is there."""


class StorageFull(StorageFailed):
    """The disk or the storage itself has no room left. What was stored before stays readable."""


class Unsafe(PrimacyError):
    """Going on needs an operator."""

    exit_code = 5
