"""Planted defects: each takes one safety rule out of a machine, and the simulator must notice.

A mutant overrides one small method, or one part of the world. It says which rule it breaks, in which lives it is to
be looked for, and which checkers may catch it. Q4 and Q5 mask each other, so some stand on a base whose promise is
off (which is still safe; a test shows it). `python -m tests.support.mutants` searches catching seeds and prints the
table that stands below.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from primacy.election.events import Code
from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.ranked.bully import BullyStrategy, RankRules
from primacy.election.ranked.rank import RankOptions
from primacy.election.ranked.ring import RingStrategy
from primacy.sim.trials.raft import registered, trial_of
from primacy.sim.trials.trial import Outcome, Plan, Trial
from primacy.sim.world.store import SimStore
from tests.support.mutants_lease import AnchorAtRequest, EverythingReleased, HoldFromAnswer, ServerUnnoticed
from tests.support.mutants_raft import (
    AheadIgnored,
    AmnesiacVotes,
    AnyAckProves,
    CandidateAgeForgotten,
    CountFromAck,
    Eager,
    EarlyReleaseGuard,
    EarlyRequests,
    InitWithoutAsking,
    LazyDisk,
    LockIgnored,
    LocklessGuard,
    NeverAgain,
    NeverLate,
    NoDriftRatio,
    NoPreVote,
    NoStartDelay,
    NoStartDelayEager,
    OldestAge,
    OldHeartbeatsRenew,
    PersistLate,
    ReleaseCoversAll,
    ResignWithRelease,
    RestartForgetsAge,
    TermReopens,
    Uncounted,
    Unmarked,
    UnmutedAtOnce,
    WaitsInVain,
    agreeing_walls,
    deaf,
    faster_list,
    much_amnesia,
    one_ahead,
    one_is_left,
    repeated,
    sluggish,
    spare_release,
)

SAFETY = ("I1", "I2", "I3", "I4", "I5", "I7")


# --- lease (L3 stretched, L7, T2 and others: test_lease_trials.py) ----------------------------------------------------


class WaitsForNobody(LeaseStrategy):
    """T2: the end of a start that was never done, for its token could not be saved, is waited for."""

    def _disk_failed(self, now_ms, reason):
        return self._step_down(Code.DISK_FAILED, "the token could not be saved") if self._lead else []


class WithoutCompare(SimStore):
    """L1: take, renew and release compare nothing of the row."""

    compared = ()

    def _own(self, row, request):
        return True


# --- bully and ring (B1, B3, B4, B6: test_rules_bully.py, test_rules_ring.py) -----------------------------------------


class StubbornRules(RankRules):
    def yields_to(self, rival):
        return False


class Stubborn(BullyStrategy):
    """B2: of two leaders that meet, none yields."""

    def __init__(self, seat, timing, options):
        super().__init__(seat, timing, options)
        self._rules = StubbornRules(self._state, self._watch)


class NobodySkipped(RingStrategy):
    """B7: a dead neighbour keeps the baton for ever."""

    def _skip_neighbour(self, now_ms):
        return []

    def _renew_baton(self, now_ms):
        return []

    def _wait_expired(self, now_ms):
        return []


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """One planted defect."""

    rule: str
    name: str
    build: Callable | None
    """How its nodes are made; None if the defect is in the world."""
    plan: Plan
    caught_by: tuple[str, ...] = SAFETY
    """Which broken rules count as caught."""
    prepare: Callable[[Trial], None] | None = None

    @property
    def key(self) -> str:
        return f"{self.rule}: {self.name}"

    def run(self, seed: int) -> Outcome:
        trial = trial_of(self.plan, seed, self.build)
        if self.prepare is not None:
            self.prepare(trial)
        return trial.run()

    def caught(self, outcome: Outcome) -> bool:
        return any(violation.rule in self.caught_by for violation in outcome.violations)

    def is_caught(self, seed: int) -> bool:
        return self.caught(self.run(seed))


class Hunted(Protocol):
    """What seeds are looked for that catch it."""

    def is_caught(self, seed: int) -> bool:
        """Whether this seed does."""
        ...


raft = registered


def lease(cls):
    return lambda node, seat, ballot: cls(
        seat, node.timing, LeaseOptions(node.world.lease_name, ballot.token_max if ballot is not None else 0)
    )


def watchful(node, seat, ballot):
    """A lease whose watchers look often, so that a take comes at the first moment allowed."""
    known = ballot.token_max if ballot is not None else 0
    return LeaseStrategy(seat, node.timing, LeaseOptions(node.world.lease_name, known, look_every_ms=5))


def ranked(cls):
    return lambda node, seat, ballot: cls(seat, node.timing, RankOptions())


def store(cls):
    def prepare(trial):
        trial.world.store = cls(wait_max_ms=trial.slowest.wait_ms)
        sluggish(trial)

    return prepare


def guard(cls):
    def prepare(trial):
        trial.world.guard_class = cls

    return prepare


def watchdog(cls):
    def prepare(trial):
        trial.world.watchdog_class = cls

    return prepare


def disk(cls):
    def prepare(trial):
        for name in sorted(trial.world.nodes):
            node = trial.world.nodes[name]
            was, node.disk = node.disk, cls()
            node.disk.ballot = was.ballot

    return prepare


RAFT3 = Plan("raft", 3, "lab", 1.0)


def only(*classes, nodes=3, minutes=1.0, drift=0.01):
    return Plan("raft", nodes, "lab", minutes, classes, draw=False, drift=drift)


def leased(*classes, drift=0.01, engine=""):
    return Plan("lease", 3, "lab", 1.0, classes, draw=False, drift=drift, engine=engine)


MUTANTS: tuple[Mutant, ...] = (
    Mutant("Q1", "ballot durable after its messages", raft(PersistLate), RAFT3),
    Mutant("Q1", "candidate's vote durable after its requests", raft(EarlyRequests), RAFT3),
    Mutant("Q1", "save not synced", None, only("aimed", "crash-node", "lossy"), prepare=disk(LazyDisk)),
    Mutant("Q3", "hold counted from the ack", raft(CountFromAck), only("lag", "freeze", "clock"), prepare=sluggish),
    Mutant(
        "Q3",
        "any ack proves the newest heartbeat",
        raft(AnyAckProves),
        only("lag", "freeze", "one-way"),
        prepare=sluggish,
    ),
    Mutant("Q4", "no promise", raft(Eager), only("one-way", "link", nodes=5), ("P1", "P2", "P3")),
    Mutant("Q4", "repeated heartbeats renew", raft(OldHeartbeatsRenew), only(), ("P5",), prepare=repeated),
    Mutant("Q5", "no start delay", raft(NoStartDelay), only("relist", minutes=0.3), prepare=faster_list),
    Mutant("Q5", "no start delay, promise off", raft(NoStartDelayEager), only("partition", "stall", "clock")),
    Mutant(
        "Q5", "restarted voter reports no age", raft(RestartForgetsAge), only("storm", "freeze", "crash-node", "aimed")
    ),
    Mutant(
        "Q5", "candidate leaves its age out", raft(CandidateAgeForgotten), only("partition", "link", "freeze", "clock")
    ),
    Mutant("Q5", "largest age", raft(OldestAge), only("partition", "link", "stall", "clock", nodes=5)),
    Mutant("Q5", "no drift ratio", raft(NoDriftRatio), only("freeze", "clock", "partition"), prepare=sluggish),
    Mutant(
        "Q6",
        "run lock ignored",
        raft(LockIgnored),
        only("freeze", "crash-agent", "stall", nodes=1),
        prepare=guard(LocklessGuard),
    ),
    Mutant(
        "Q7",
        "leader without majority goes on",
        raft(NeverLate),
        only("bridge", "partition", nodes=5),
        ("I6",),
        prepare=deaf,
    ),
    Mutant("Q8", "term reopens", raft(TermReopens), only("operator", "stall", "partition")),
    Mutant("Q9", "no pre-vote", raft(NoPreVote), only("one-way", "link", nodes=5), ("P3", "P4")),
    Mutant("Q9", "voter ahead ignored", raft(AheadIgnored), only("link", nodes=5), ("P1",), prepare=one_ahead),
    Mutant("M1", "unmuted at once", raft(UnmutedAtOnce), only("relist", "freeze", "crash-agent", minutes=0.6)),
    Mutant(
        "M2",
        "node without memory votes again",
        raft(AmnesiacVotes),
        only("memory", "aimed", "lossy"),
        prepare=much_amnesia,
    ),
    Mutant(
        "M3",
        "init does not ask all",
        raft(InitWithoutAsking),
        only("memory", "partition", "link"),
        prepare=much_amnesia,
    ),
    Mutant(
        "M3",
        "the list of an answer is not written down",
        raft(Unmarked),
        only(minutes=0.6),
        prepare=one_is_left,
    ),
    Mutant(
        "L1",
        "nothing is compared",
        None,
        leased("stall", "store-slow", engine="postgresql"),
        prepare=store(WithoutCompare),
    ),
    Mutant(
        "L2", "hold counted from the answer", lease(HoldFromAnswer), leased("freeze", "store-slow"), prepare=sluggish
    ),
    Mutant(
        "L3", "observation from the request", lease(AnchorAtRequest), leased("freeze", "store-slow"), prepare=sluggish
    ),
    Mutant(
        "L3",
        "fail-over unnoticed",
        lease(ServerUnnoticed),
        leased("store-blow", "store-other", engine="postgresql"),
        prepare=agreeing_walls,
    ),
    Mutant("T2", "a start that was not done is waited for", lease(WaitsForNobody), leased("disk-full"), ("P1", "P2")),
    Mutant("L4", "unreleased row taken at once", lease(EverythingReleased), leased("stall", engine="postgresql")),
    Mutant("B2", "nobody yields", ranked(Stubborn), Plan("bully", 5, "lab", 1.0, ("partition",), draw=False), ("P1",)),
    Mutant(
        "B7", "nobody skipped", ranked(NobodySkipped), Plan("ring", 5, "lab", 1.0, ("crash-node",), draw=False), ("P1",)
    ),
    Mutant("time", "clocks 3 % off, raft", raft(Eager), only("freeze", "clock", drift=0.03), ("I1",), prepare=sluggish),
    Mutant("time", "clocks 3 % off, lease", watchful, leased("freeze", "clock", drift=0.03), ("I1",), prepare=sluggish),
    Mutant("G4", "spare guard releases", raft(Eager), only("aimed", "crash-agent", "freeze"), prepare=spare_release),
    Mutant("G5", "release before the tree is gone", None, only("operator", "stall"), prepare=guard(EarlyReleaseGuard)),
    Mutant(
        "G6", "release clears newer terms", raft(ReleaseCoversAll), only("hold-back", "operator", "partition", "stall")
    ),
    Mutant(
        "G8",
        "a leader that waits on purpose resigns",
        raft(WaitsInVain),
        Plan("raft", 3, "lab", 1.0, ("link",), draw=False, deferred=1.0),
        ("P1", "P2", "P3"),
    ),
    Mutant("G10", "starts are not counted", None, only("child"), ("I4",), prepare=watchdog(Uncounted)),
    Mutant("G10", "not started again", None, only("child"), ("P2",), prepare=watchdog(NeverAgain)),
    Mutant("G7", "resign with a release", raft(ResignWithRelease), only("operator", "aimed", "freeze", "partition")),
)
SEEDS_FILE = Path(__file__).with_name("mutant_seeds.json")
RECORDED = 2
"""Catching seeds that are kept per mutant: the quick run needs one, the second shows that it is no accident."""


def recorded(path: Path = SEEDS_FILE) -> dict[str, list[int]]:
    """Seeds that catch each mutant, from the last `python -m tests.support.mutants`."""
    return json.loads(path.read_text())


def caught_seeds(mutant: Hunted, seeds: range, wanted: int) -> list[int]:
    """The first seeds of the range that catch it."""
    found: list[int] = []
    for seed in seeds:
        with suppress(AssertionError):  # a machine found out by itself, before any checker could see it
            if mutant.is_caught(seed):
                found.append(seed)
        if len(found) >= wanted:
            break
    return found


def _record_one(number: int) -> tuple[str, list[int]]:
    mutant = MUTANTS[number]
    return mutant.key, caught_seeds(mutant, range(600), RECORDED)


def record() -> None:
    """Searches catching seeds for every mutant and writes them down; needed after the simulator's draws changed."""
    with ProcessPoolExecutor(2) as pool:
        found = {}
        for key, seeds in pool.map(_record_one, range(len(MUTANTS))):
            print(f"{key:50} {seeds}", flush=True)
            found[key] = seeds
    write_seeds(SEEDS_FILE, found)


def write_seeds(path: Path, found: dict[str, list[int]]) -> None:
    lines = [f"  {json.dumps(key)}: {json.dumps(seeds)}" for key, seeds in found.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
