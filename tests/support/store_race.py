"""Many real processes that want one lease, on a real store, and a judge who sees only what they wrote down.

    python -m tests.support.store_race URL FOLDER COUNT SECONDS SEED [calm|seed]

Each player drives the real machine by the real driver and the real renewing thread. `calm`: it keeps what it has. Else,
once it leads, chance decides: it releases, crashes without a word, is frozen for a while and resumes, or holds on.
`seed`: it follows the SQL coordinator's own protocol instead, on MariaDB, as a control: the same judge must find
overlaps.

Players write one line per fact into FOLDER/log, in one append each, with the machine's one CLOCK_BOOTTIME, which all of
them share. A hold counts from its start to its end, or to the end of its validity if that comes first: what a process
does after that is the resource's to refuse, by the token, and FOLDER/fence plays that resource.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from primacy.election.events import Code, Event
from primacy.election.inputs import Shutdown, Started, StepDown, StoreAnswered, StoreNews, WorkGone, WorkStarted
from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.messages import Release
from primacy.election.model import Leadership, Membership, Seat
from primacy.node.ballot import MemoryDurable
from primacy.node.clock import SystemClock
from primacy.node.driver import Driver
from primacy.settings.timing import PROFILES
from primacy.store import StoreThread, limit_of_ms, open_store
from tests.support.safety_checks import safe

PROFILE = PROFILES["lab"]
"""For the players of a process; see `Race`."""
NAME = "race"
FROZEN_S = (0.2, 1.2)
SEED_LEASE_S = 1
PR_SET_PDEATHSIG = 1
WAIT = "PRIMACY_RACE_WAIT_MS"


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Log:
    """Facts, one line each. An append of one line is whole."""

    def __init__(self, folder: Path, node: str) -> None:
        self.node = node
        self._file = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def say(self, what: str, token: int = 0, **more: Any) -> None:
        line = {"at": now_ns(), "node": self.node, "pid": os.getpid(), "what": what, "token": token, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Fence:
    """A resource that refuses a token below the highest one that it has seen."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "fence", os.O_RDWR | os.O_CREAT, 0o666)

    def write(self, token: int, log: Log) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            highest = int(os.pread(self._file, 32, 0) or b"0")
            if token < highest:
                log.say("refused", token, highest=highest)
                return
            os.pwrite(self._file, b"%020d" % token, 0)
            log.say("wrote", token)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


class Player:
    """One node: the machine, its store, and work that does nothing but say that it runs."""

    def __init__(self, url: str, folder: Path, node: str, rng: random.Random, calm: bool) -> None:
        self.log, self.fence, self.rng, self.calm = Log(folder, node), Fence(folder), rng, calm
        self.leadership: Leadership | None = None
        self.over = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.thread = StoreThread(open_store(url, limit_ms=limit_of_ms(PROFILE.hold_ms)), limit_of_ms(PROFILE.hold_ms))
        port = self.thread.port(NAME, self._later, self._later)
        seat = Seat(node, rng.getrandbits(48), Membership.of(()), rng)
        self.machine = LeaseStrategy(seat, PROFILE, LeaseOptions(NAME))
        self.driver = Driver(self.machine, SystemClock(), MemoryDurable(), self, self.hear, store=port)

    def _later(self, given: StoreAnswered | StoreNews) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the player is gone
            self.loop.call_soon_threadsafe(self.driver.give, given)

    # --- the work, as the driver sees it ------------------------------------------------------------------------------

    def start(self, leadership: Leadership, release: Release | None, covered: bool) -> None:
        self.leadership = leadership
        self.log.say("hold", leadership.token, until_ms=leadership.valid_until_ms, first=True)
        self.fence.write(leadership.token, self.log)
        self.driver.give(WorkStarted(leadership.term))
        if not self.calm:
            self.loop.call_later(self.rng.uniform(0, 0.4), self.misbehave, leadership.token)

    def extend(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self.log.say("hold", leadership.token, until_ms=leadership.valid_until_ms)

    def stop(self, term: int, reason: str, planned: bool) -> None:
        self.end(reason)
        self.driver.give(WorkGone(term))

    def release(self, term: int, successor: str) -> None:
        """There is no guard here: the machine releases by itself once the work is gone."""

    def end(self, reason: str) -> None:
        if self.leadership is not None:
            self.log.say("end", self.leadership.token, reason=reason)
            self.leadership = None

    def hear(self, events: Sequence[Event]) -> None:
        for event in events:
            self.log.say("event", event.term, code=event.code.value, detail=event.detail)

    # --- chance -------------------------------------------------------------------------------------------------------

    def misbehave(self, token: int) -> None:
        if self.leadership is None or self.leadership.token != token:
            return
        dice = self.rng.random()
        if dice < 0.4:
            self.driver.give(StepDown(reason="by chance"))
        elif dice < 0.65:
            self.end("crash")
            os._exit(9)
        elif dice < 0.85:
            self.log.say("frozen", token)
            os.kill(os.getpid(), signal.SIGSTOP)
            self.fence.write(token, self.log)  # a careless body goes on at once, before anything can stop it
            self.log.say("thawed", token)
        else:
            self.loop.call_later(self.rng.uniform(0, 0.8), self.misbehave, token)

    async def live(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.over.set)
        self.driver.give(Started(SystemClock().wall_ms()))
        await self.over.wait()
        self.driver.give(Shutdown())
        for _ in range(20):
            if self.machine.deadline_ms is None:
                break
            await asyncio.sleep(0.02)
        self.driver.close()
        self.end("shutdown")
        await asyncio.to_thread(self.thread.close)


# --- the SQL coordinator's own protocol, as a control -----------------------------------------------------------------


class SeedPlayer:
    """What the document says, with its arithmetic put right: a fixed id per node, the database's clock, a read-back
    that compares the owner only."""

    def __init__(self, server: dict[str, Any], folder: Path, node: str, rng: random.Random) -> None:
        import pymysql

        self.log, self.node, self.rng = Log(folder, node), node, rng
        self.connection = pymysql.connect(**server, autocommit=True)

    def live(self, until_ns: int) -> None:
        while now_ns() < until_ns:
            if not self.acquire():
                time.sleep(self.rng.uniform(0.05, 0.3))
                continue
            self.hold(until_ns)

    def acquire(self) -> bool:
        """A node that was there before finds its own row, and believes in a whole lease."""
        self.sent_ns = now_ns()
        with self.connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO locks (lock_key, owner_id, expires_at) "
                "VALUES ('coordinator_lock', %s, NOW() + INTERVAL %s SECOND) "
                "ON DUPLICATE KEY UPDATE owner_id = IF(expires_at < NOW(), VALUES(owner_id), owner_id), "
                "expires_at = IF(expires_at < NOW(), VALUES(expires_at), expires_at)",
                (self.node, SEED_LEASE_S),
            )
            cursor.execute("SELECT owner_id FROM locks WHERE lock_key = 'coordinator_lock'")
            return bool(cursor.fetchone()[0] == self.node)

    def hold(self, until_ns: int) -> None:
        token = self.sent_ns
        until_ms = self.sent_ns // 1_000_000 + SEED_LEASE_S * 1_000
        self.log.say("hold", token, until_ms=until_ms, first=True)
        end_ns = min(until_ns, self.sent_ns + int(self.rng.uniform(0.2, 1.0) * SEED_LEASE_S * 1e9))
        while now_ns() < end_ns:
            time.sleep(0.02)
        self.log.say("end", token, reason="gave up without a word")


# --- the runner -------------------------------------------------------------------------------------------------------


def run(url: str, folder: Path, count: int, seconds: float, seed: int, mode: str) -> None:
    """Keeps `count` players alive for so long: a crashed one comes back, a frozen one is thawed."""
    rng = random.Random(seed)
    stopping = False

    def stop(*_: Any) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    until_ns = now_ns() + int(seconds * 1e9)
    seats = {_spawn(url, folder, f"n{i}", rng.getrandbits(32), mode, until_ns): f"n{i}" for i in range(count)}
    thaw: dict[int, float] = {}
    while now_ns() < until_ns and not stopping:
        pid, status = os.waitpid(-1, os.WUNTRACED | os.WNOHANG)
        if pid and os.WIFSTOPPED(status):
            thaw[pid] = time.monotonic() + rng.uniform(*FROZEN_S)
        elif pid:
            node = seats.pop(pid)
            thaw.pop(pid, None)
            seats[_spawn(url, folder, node, rng.getrandbits(32), mode, until_ns)] = node
        else:
            time.sleep(0.005)
        for frozen in [one for one, at in thaw.items() if time.monotonic() >= at]:
            del thaw[frozen]
            os.kill(frozen, signal.SIGCONT)
    for pid in seats:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
    end = time.monotonic() + 5
    while seats and time.monotonic() < end:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            os.kill(pid, signal.SIGCONT)
        elif pid:
            seats.pop(pid, None)
        else:
            time.sleep(0.01)
    for pid in seats:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _spawn(url: str, folder: Path, node: str, seed: int, mode: str, until_ns: int) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody plays on without a runner
    if os.getppid() != parent:
        os._exit(0)
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if mode == "seed":
            SeedPlayer(json.loads(url), folder, node, random.Random(seed)).live(until_ns)
        else:
            asyncio.run(_live(url, folder, node, random.Random(seed), mode == "calm"))
    except BaseException as error:
        Log(folder, node).say("broken", error=f"{type(error).__name__}: {error}")
        raise
    finally:
        os._exit(0)


async def _live(url: str, folder: Path, node: str, rng: random.Random, calm: bool) -> None:
    await Player(url, folder, node, rng, calm).live()


# --- the judge --------------------------------------------------------------------------------------------------------


@dataclass
class Hold:
    """One leadership, as it was written down."""

    node: str
    pid: int
    token: int
    start_ns: int
    until_ns: int
    end_ns: int = 0
    frozen: bool = False

    @property
    def valid_ns(self) -> int:
        return min(self.until_ns, self.end_ns or self.until_ns)


@dataclass
class Verdict:
    """What the judge found."""

    holds: list[Hold] = field(default_factory=list)
    overlaps: list[tuple[Hold, Hold]] = field(default_factory=list)
    not_growing: list[tuple[Hold, Hold]] = field(default_factory=list)
    stale_writes: int = 0
    """Writes that the resource accepted although it had seen a higher token: its own fault, and must be 0."""
    refused: int = 0
    frozen: int = 0
    late: int = 0
    """Holds of processes that were not frozen, and ended after their validity."""
    broken: list[str] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)

    def one_at_a_time(self) -> None:
        """Safety: never excused. Every start of a hold is one of its own, whoever's it is."""
        safe(not self.overlaps, f"{self}: {self.overlaps[:3]}")
        safe(not self.not_growing, f"{self}: {self.not_growing[:3]}")
        safe(not self.stale_writes, f"{self.stale_writes} stale writes: {self}")

    def __str__(self) -> str:
        return (
            f"{len(self.holds)} holds, {len(self.overlaps)} overlaps, {len(self.not_growing)} tokens not growing, "
            f"{self.frozen} frozen, {self.refused} writes refused, {self.late} late"
        )


def facts(folder: Path) -> list[dict[str, Any]]:
    """All lines that are whole: of one that crosses a page, a reader may see the first part alone."""
    path = folder / "log"
    text = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


def judge(folder: Path) -> Verdict:
    found = Verdict()
    holds: dict[tuple[int, int], Hold] = {}
    """The newest of a process under a token."""
    highest = 0
    for line in sorted(facts(folder), key=lambda one: one["at"]):
        key, what = (line["pid"], line["token"]), line["what"]
        if what == "hold" and line.get("first"):
            holds[key] = Hold(line["node"], line["pid"], line["token"], line["at"], line["until_ms"] * 1_000_000)
            found.holds.append(holds[key])
        elif what == "hold":
            holds[key].until_ns = max(holds[key].until_ns, line["until_ms"] * 1_000_000)
        elif what == "end":
            holds[key].end_ns = line["at"]
        elif what == "frozen":
            holds[key].frozen = True
        elif what == "wrote":
            found.stale_writes += line["token"] < highest
            highest = max(highest, line["token"])
        elif what == "refused":
            found.refused += 1
        elif what == "broken":
            found.broken.append(line["error"])
        elif what == "event":
            found.events[line["code"]] = found.events.get(line["code"], 0) + 1
    found.frozen = sum(hold.frozen for hold in found.holds)
    found.late = sum(not hold.frozen and hold.end_ns > hold.until_ns for hold in found.holds)
    for i, old in enumerate(found.holds):
        for new in found.holds[i + 1 :]:
            if new.start_ns < old.valid_ns:
                found.overlaps.append((old, new))
    found.not_growing = [
        (old, new) for old, new in zip(found.holds, found.holds[1:], strict=False) if new.token <= old.token
    ]
    return found


class Race:
    """The same, from a test."""

    def __init__(
        self,
        url: str,
        folder: Path,
        count: int = 8,
        seconds: float = 600,
        seed: int = 1,
        mode: str = "",
        profile: str = "lab",
        wait_ms: int = 0,
    ) -> None:
        """`wait_ms`: the longest wait of tables that the players make, in place of the usual one."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "tests.support.store_race",
            url,
            str(folder),
            str(count),
            str(seconds),
            str(seed),
            mode,
            profile,
        ]
        environment = {**os.environ, WAIT: str(wait_ms or "")}
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[2], env=environment)

    def wait(self, within_s: float = 120) -> Verdict:
        code = self.process.wait(within_s)
        assert code == 0, f"the runner of the race ended with {code}"
        return judge(self.folder)

    def stop(self) -> Verdict:
        self.process.terminate()
        return self.wait()

    def lines(self) -> list[dict[str, Any]]:
        return facts(self.folder)

    def holds_since(self, at_ns: int) -> int:
        """How many leaderships were begun or proved since then."""
        return sum(line["what"] == "hold" and line["at"] > at_ns for line in self.lines())


CODES = {code.value for code in Code}

if __name__ == "__main__":
    given = sys.argv[1:]
    PROFILE = PROFILES[given[6]]
    if os.environ.get(WAIT):
        import pytest

        from tests.support.store_harness import short_waits

        short_waits(pytest.MonkeyPatch(), int(os.environ[WAIT]))
    run(given[0], Path(given[1]), int(given[2]), float(given[3]), int(given[4]), given[5])
