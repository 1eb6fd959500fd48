"""A command that says when it lived: every millisecond it stamps CLOCK_BOOTTIME into a mapped file.

    python -I -S stamp.py FILE [ignore-term] [block-term] [escape] [escape-heavy] [forking] [hopping] [heavy]
        [exit=CODE,MS] [usr1=CODE] [for=S] [every=MS] [@WAYS]

Every process takes a slot of its own in the file (made beforehand by `make_file`) and notes the node, token and run of
its environment, the first and the last instant at which it was alive, and what it is: the command itself, a grandchild
that left by double fork and setsid (`escape`), or one of a tree that grows (`forking`) or moves (`hopping`). The file
outlives whatever kills the process, so that it is judged afterwards, from outside. Each start of the command draws a
number, which all of its tree stamp: two starts are two, also under one node, one token and one run.
A `heavy` one has much memory, which the kernel takes back page by page before the process counts as gone; so has the
grandchild of `escape-heavy`. It lives for 20 seconds, or as long as `for` says, or until SIGUSR1 ends it with the code
of `usr1`. Where many share a machine, each may stamp less often (`every`). `@WAYS` is a file with further words: what
the next start is to be like.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import struct
import sys
import time

SLOTS = 512
SPARE = 100
"""Slots that a growing tree leaves to others."""
SLOT = struct.Struct("=8sQQQQQQQ")  # node, start, token, run, kind, process number as it sees it, first ns, last ns
WORDS = SLOT.size // 8
PID_AT = 5
COMMAND, ESCAPED, FORKED = 1, 2, 3
BALLAST_BYTES = 192 * 1024 * 1024
TICK_S = 0.001
LASTS_S = 20
"""Nothing of a broken test outlives this."""
FORKING_S = 0.002
TWO_AT_ONCE = "two at once"
ONE_MARK = "one token and run for two starts"
BACKWARDS = "the smaller token or run came after the larger one"


START = int.from_bytes(os.urandom(8), "big")
"""Of this start of the command; inherited by all that it forks."""


class Stamp:
    """One process's life, as far as it could write it down."""

    def __init__(
        self, node: bytes, start: int, token: int, run: int, kind: int, pid: int, first_ns: int, last_ns: int
    ) -> None:
        self.node = node.rstrip(b"\0").decode()
        self.start, self.token, self.run, self.kind, self.pid = start, token, run, kind, pid
        self.first_ns, self.last_ns = first_ns, last_ns

    @property
    def mark(self) -> tuple[int, int]:
        return self.token, self.run

    @property
    def instance(self) -> tuple[str, int, int, int]:
        """The command's start that this process belongs to."""
        return self.node, self.start, self.token, self.run

    def __repr__(self) -> str:
        kind = ("", "command", "escaped", "forked")[self.kind]
        lived = f"{self.first_ns / 1e6:.3f}..{self.last_ns / 1e6:.3f} ms"
        return f"<{self.node} {kind} {self.token}/{self.run} start {self.start:016x} {lived}>"


class Violation:
    """Two starts of the command that must not both have been, or not like this."""

    def __init__(self, what: str, old: Stamp, new: Stamp) -> None:
        self.what, self.old, self.new = what, old, new

    def __repr__(self) -> str:
        return f"{self.what}: {self.old} and {self.new}"


def make_file(path: str) -> None:
    with open(path, "wb") as file:
        file.truncate(SLOTS * SLOT.size)
    os.chmod(path, 0o666)  # the command may run as somebody else


def read(path: str) -> list[Stamp]:
    """All stamps in the file, in the order of (token, run, first instant)."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), SLOTS * SLOT.size, prot=mmap.PROT_READ) as mapped:
        with memoryview(mapped) as octets, octets.cast("Q") as words:
            lasts = words[WORDS - 1 :: WORDS].tolist()  # first: whose last instant is there has written all else before
        found = [(*fields[:-1], last) for fields, last in zip(SLOT.iter_unpack(mapped[:]), lasts, strict=True)]
    seen = [Stamp(*fields) for fields in found if fields[-1]]
    return sorted(seen, key=lambda one: (one.token, one.run, one.first_ns))


def starts(stamps: list[Stamp]) -> list[Stamp]:
    """One stamp for each start of the command, from its tree's first instant to its last, by (token, run, first)."""
    found: dict[tuple[str, int, int, int], Stamp] = {}
    for one in stamps:
        known = found.setdefault(one.instance, one)
        first_ns, last_ns = min(known.first_ns, one.first_ns), max(known.last_ns, one.last_ns)
        found[one.instance] = Stamp(
            one.node.encode(), one.start, one.token, one.run, COMMAND, known.pid, first_ns, last_ns
        )
    return sorted(found.values(), key=lambda one: (one.mark, one.first_ns))


def violations(stamps: list[Stamp]) -> list[Violation]:
    """Of any two starts of the command: both alive at once, one (token, run) for both, or a step backwards.

    The second is one without an overlap, too: no fence could tell the two apart. So is the third, in which the one
    with the smaller (token, run) came after the other.
    """
    found = []
    seen = starts(stamps)
    for place, old in enumerate(seen):
        for new in seen[place + 1 :]:
            if old.first_ns <= new.last_ns and new.first_ns <= old.last_ns:
                found.append(Violation(TWO_AT_ONCE, old, new))
            elif old.mark == new.mark:
                found.append(Violation(ONE_MARK, old, new))
            elif new.first_ns <= old.last_ns:
                found.append(Violation(BACKWARDS, old, new))
    return found


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Slot:
    """Our own line of the file.

    The last instant is stored as one machine word, and for the first time when all else is there. `pack_into` would
    clear it before it writes: a reader in between sees no life, and so does every reader if that is when it is killed.
    """

    def __init__(self, path: str, kind: int) -> None:
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), SLOTS * SLOT.size)
            fcntl.lockf(file, fcntl.LOCK_EX)  # only while a slot is chosen
            taken = [fields[PID_AT] for fields in SLOT.iter_unpack(self.map[:])]
            self.at = taken.index(0) * SLOT.size
            first = now_ns()
            token, run = (int(os.environ.get(name, "0")) for name in ("PRIMACY_TOKEN", "PRIMACY_RUN"))
            node = os.environ.get("PRIMACY_NODE", "").encode()[:8]
            SLOT.pack_into(self.map, self.at, node, START, token, run, kind, os.getpid(), first, 0)
        self.words = memoryview(self.map).cast("Q")
        self.last = self.at // 8 + WORDS - 1
        self.words[self.last] = first

    def stamp(self) -> None:
        self.words[self.last] = now_ns()


def live(slot: Slot, until_ns: int, every_s: float = TICK_S) -> None:
    while now_ns() < until_ns:
        slot.stamp()
        time.sleep(every_s)
    slot.stamp()


def escape(path: str, until_ns: int, weighs: bool = False) -> None:
    """Fork twice with a session in between: the grandchild has left the group, the session and the parent."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ballast = heavy() if weighs else None  # noqa: F841
            live(Slot(path, ESCAPED), until_ns)
        os._exit(0)
    os.wait()


def forking(path: str, until_ns: int) -> None:
    """A growing line: each one forks the next, in a session of its own, and lives on."""
    slot = Slot(path, FORKED)
    time.sleep(FORKING_S)
    while slot.at < (SLOTS - SPARE) * SLOT.size and os.fork() == 0:
        os.setsid()
        slot = Slot(path, FORKED)
        time.sleep(FORKING_S)
    live(slot, until_ns)


def hopping(path: str, until_ns: int) -> None:
    """One that is never where it was: about a thousand times a second it forks, takes a new session, and ends."""
    slot = Slot(path, FORKED)
    while now_ns() < until_ns:
        slot.stamp()
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(TICK_S / 2)


def heavy() -> mmap.mmap:
    """Some tens of milliseconds of dying."""
    ballast = mmap.mmap(-1, BALLAST_BYTES)
    ballast.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, BALLAST_BYTES, mmap.PAGESIZE):
        ballast[at] = 1
    return ballast


def end_at_usr1(code: int) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(code))


def main(path: str, *ways: str) -> int:
    for each in ways:
        if each.startswith("@"):
            with open(each[1:]) as file:
                ways += tuple(file.read().split())
    seconds = [int(way.removeprefix("for=")) for way in ways if way.startswith("for=")]
    until_ns = now_ns() + (seconds or [LASTS_S])[-1] * 10**9
    if "ignore-term" in ways:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "block-term" in ways:  # it can be seen from outside that it has come
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if "escape" in ways or "escape-heavy" in ways:
        escape(path, until_ns, "escape-heavy" in ways)
    for name, grow in (("forking", forking), ("hopping", hopping)):
        if name in ways and os.fork() == 0:
            grow(path, until_ns)
            os._exit(0)
    ballast = heavy() if "heavy" in ways else None
    every_s = [int(way.removeprefix("every=")) / 1_000 for way in ways if way.startswith("every=")]
    code = 0
    for way in ways:
        if way.startswith("usr1="):
            end_at_usr1(int(way.removeprefix("usr1=")))
        if way.startswith("exit="):
            code, after_ms = map(int, way.removeprefix("exit=").split(","))
            until_ns = now_ns() + after_ms * 1_000_000
    live(Slot(path, COMMAND), until_ns, [TICK_S, *every_s][-1])
    del ballast
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
