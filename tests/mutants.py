"""Planted defects: each takes one safety rule out of a machine, and the simulator must notice.

A mutant overrides one small method, or one part of the world. It says which rule it breaks, in which lives it is to
be looked for, and which checkers may catch it. Q4 and Q5 mask each other, so some stand on a base whose promise is
off (which is still safe; a test shows it). `python -m tests.mutants` searches catching seeds and prints the table
that stands below.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from primacy.election.bully import BullyStrategy
from primacy.election.effects import Persist, Send
from primacy.election.events import Code
from primacy.election.inputs import Init
from primacy.election.lease import LeaseOptions, LeaseStrategy
from primacy.election.messages import Release, VoteRequest
from primacy.election.model import Ballot, Membership
from primacy.election.raft import RaftOptions, RaftStrategy
from primacy.election.rank import RankOptions
from primacy.election.ring import RingStrategy
from primacy.election.rollcall import RollCall
from primacy.settings.timing import Timing
from primacy.sim.disk import Disk
from primacy.sim.faults import Change
from primacy.sim.guard import Guard
from primacy.sim.life import Life, Outcome, Plan
from primacy.sim.store import SimStore

SAFETY = ("I1", "I2", "I3", "I4", "I5", "I7")


# --- raft -------------------------------------------------------------------------------------------------------------


class NoPromise(RaftStrategy):
    """Q4 off: a voter grants at once. Safe because of Q5, but a healthy leader may be deposed."""

    def _promise_left(self, now_ms):
        return 0


class Eager(NoPromise):
    """The base without promise, and with candidates that do not wait for it either: all safety rests on Q5."""

    def _timeout(self, from_ms):
        return from_ms + 2 * self.timing.beat_ms + int(self.seat.random.random() * self.timing.spread_ms)


class PersistLate(RaftStrategy):
    """Q1: the ballot becomes durable after the messages that rely on it."""

    def _with_persist(self, effects):
        effects = super()._with_persist(effects)
        return [e for e in effects if not isinstance(e, Persist)] + [e for e in effects if isinstance(e, Persist)]


class EarlyRequests(RaftStrategy):
    """Q1: a candidate asks for votes before its own is durable."""

    def _with_persist(self, effects):
        effects = super()._with_persist(effects)
        early = [e for e in effects if isinstance(e, Send) and isinstance(e.message, VoteRequest)]
        return early + [e for e in effects if e not in early]


class CountFromAck(Eager):
    """Q3: the hold counts from the ack instead of from before the beat left."""

    def _counted_from(self, now_ms, departed_ms):
        return now_ms


class AnyAckProves(Eager):
    """Q3: acks count whatever beat they name."""

    def _proved_number(self, reign):
        return reign.number if len(reign.acked) >= self._majority - 1 else 0


class NoStartDelay(RaftStrategy):
    """Q5: the winner does not wait for older holds."""

    def _start_at(self, now_ms, ages):
        return now_ms


class NoStartDelayEager(NoStartDelay, Eager):
    """Q5 on the base without promise."""


class RestartForgetsAge(Eager):
    """Q5: a restarted voter reports no age instead of the time since it read its ballot."""

    def _ballot_read(self, now_ms):
        effects = super()._ballot_read(now_ms)
        self.newest_at_ms = None
        return effects


class CandidateAgeForgotten(Eager):
    """Q5: the candidate leaves its own age out."""

    def _win(self, now_ms, campaign):
        self.newest_at_ms = None
        return super()._win(now_ms, campaign)


class OldestAge(Eager):
    """Q5: the largest age instead of the smallest."""

    def _start_at(self, now_ms, ages):
        return max(now_ms, min((at_ms for _, at_ms in ages.values()), default=now_ms))


class NoDriftRatio(Eager):
    """Q5: the wait is not stretched by the drift ratio."""

    def __init__(self, seat, timing, ballot, options=None):
        super().__init__(seat, timing._replace(drift_ppm=0), ballot, options)


class LockIgnored(RaftStrategy):
    """Q6: votes and starts beside work that is not confirmed gone."""

    def _work_unconfirmed(self):
        return False


class WaitsInVain(RaftStrategy):
    """G8: a start that is kept back on purpose counts as one that fails, so that its leader resigns after H."""

    def _work_deferred(self, now_ms, term, why):
        return []


class NeverLate(RaftStrategy):
    """Q7: a leader without a majority goes on beating."""

    def _is_late(self, now_ms, reign):
        return False


class TermReopens(RaftStrategy):
    """Q8: after its work is gone, the leader starts again in the same term."""

    def _reopens(self, reign):
        return True


class NoPreVote(RaftStrategy):
    """Q9: a returning node raises the term at once."""

    def _asks_first(self):
        return False


class NoPreVoteNoPromise(NoPreVote, NoPromise):
    """Q9 with Q4: and the others listen to it."""


class AheadIgnored(RaftStrategy):
    """Q9: a leader does not care for a voter that is a term ahead."""

    def _on_ahead(self, now_ms, ahead):
        return []


class _HastyRoll(RollCall):
    def _needed(self, ballot):
        return (
            tuple(name for name in self.own.voters if name != self.seat.node)[:1] if ballot else super()._needed(ballot)
        )


class ListAfterOne(RaftStrategy):
    """M1: one report of the new list is enough to speak again."""

    def __init__(self, seat, timing, ballot, options=None):
        super().__init__(seat, timing, ballot, options)
        self.roll = _HastyRoll(seat, auto=self.options.auto, token_max=self.options.token_max)


class ListIgnored(RaftStrategy):
    """M1: a changed list does not mute, and other lists' messages are heard."""

    def _why_mute(self):
        return "no-memory" if self.ballot is None else ""


class UnmutedAtOnce(Eager):
    """M1: the end of muteness does not count as reading the ballot."""

    def _decide_mute(self, now_ms):
        was = self.muted
        effects = super()._decide_mute(now_ms)
        if was and not self.muted:
            self.newest_at_ms = None
        return effects


class _ForgetfulRoll(RollCall):
    def remembered(self, wall_ms):
        heard = [r for r in self._reports() if r.memory and r.origin.config == self.own.hash]
        if not heard:
            return None
        return Ballot(heard[0].origin.base, min(r.term for r in heard), "", heard[0].hold_max_ms, 0, 99, (self.own,))


class AmnesiacVotes(RaftStrategy):
    """M2: a node without memory asks one other and votes again, in terms in which it may have voted."""

    def __init__(self, seat, timing, ballot, options=None):
        super().__init__(seat, timing, ballot, options)
        self.roll = _ForgetfulRoll(seat, auto=self.options.auto, token_max=self.options.token_max)


class _BoldRoll(RollCall):
    def wants_first(self, *, waited_long, base):
        lowest = self.own.voters[0] == self.seat.node
        return self.init or (Init(0) if lowest and not base else None)

    def first_refused(self, init):
        return ""

    def first_complete(self, init):
        return len(self.reports) + 1 > len(self.own.voters) // 2

    def take_offers(self, init):
        self.init = None
        return {node: report.origin.boot for node, report in sorted(self.reports.items())}


class InitWithoutAsking(RaftStrategy):
    """M3: a majority of answers is enough for a first start, whatever they say, and a ballot in use gives way."""

    def __init__(self, seat, timing, ballot, options=None):
        super().__init__(seat, timing, ballot, RaftOptions(auto=True))
        self.roll = _BoldRoll(seat, auto=True, token_max=0)

    def _on_first_ballot(self, now_ms, message):
        if self.ballot is not None and message.base != self.ballot.base:
            self._forget()
        return super()._on_first_ballot(now_ms, message)


class ReleaseCoversAll(RaftStrategy):
    """G6: a release clears promises of newer terms, too."""

    def _release_covers(self, term):
        return True

    def _apply_release(self, now_ms, release):
        effects = super()._apply_release(now_ms, release)
        self.released_term = max(self.released_term, release.term)
        return effects


class ResignWithRelease(Eager):
    """G7: a leader that never started its work says that all work is gone."""

    def _resign(self, now_ms, reign, code, detail):
        effects = super()._resign(now_ms, reign, code, detail)
        return effects + [Send(node, Release(self.origin, reign.term)) for node in self._others]


class EarlyReleaseGuard(Guard):
    """G5: the release leaves when the stop is ordered, before the tree is gone."""

    def order_release(self, successor):
        super().order_release(successor)
        if self.run > 0 and not self.frozen and not self.reported:
            self.send_release()


def spare_release(life):
    """G4: a guard that is kept ready already holds the release, and sends it when the agent dies in its start delay."""
    crash = life.world.crash

    def crash_with_release(node, *, power=False):
        machine = node.machine
        if isinstance(machine, RaftStrategy) and machine.reign is not None and not machine.reign.ordered and not power:
            for name in node.release_targets():
                life.world.send(node, name, Release(machine.origin, machine.reign.term))
        crash(node, power=power)

    life.world.crash = crash_with_release


def faster_list(life):
    """All nodes get a file with shorter times at once, while the guards of the old times are stopped."""
    timing = life.timing
    faster = Timing(*(int(value * 0.7) for value in timing[:-1]))
    life.faults.change = Change("faster", Membership.of(life.names, "list-2"), faster)
    life.faults.stops_guards = 1.0
    sluggish(life)


def sluggish(life):
    """Kills take as long as they may."""
    life.world.weather.slow_kill = 1.0
    life.world.weather.spawn_ms = 1.0


def agreeing_walls(life):
    """Fail-overs lose commits only in lives whose wall clocks agree."""
    life.faults.walls_agree = True
    sluggish(life)


def deaf(life):
    """The work does not hear TERM."""
    life.world.weather.ignores_term = 1.0


def one_ahead(life):
    """A follower comes back five terms ahead of the leader, as after candidacies that nobody heard of."""

    def come_back():
        name = next(name for name in life.names if life.world.nodes[name].role == "follower")
        node = life.world.nodes[name]
        life.world.crash(node, power=True)
        node.disk.ballot = node.disk.ballot._replace(term=node.disk.ballot.term + 5, voted_for=name)
        life.world.start(node)

    life.world.after(30_000, come_back)


def much_amnesia(life):
    """Any number of nodes may lose their memory."""
    life.faults.memory_left = 99


class LazyDisk(Disk):
    """Q1: a save is not synced; a crash takes the last one back."""

    older: Ballot | None = None

    def save(self, ballot):
        self.older = self.ballot
        return super().save(ballot)

    def crash(self, chance):
        if chance.random() < 0.5:
            self.ballot = self.older


# --- lease (L3 stretched, L7, T2 and others: test_lease_lives.py) -----------------------------------------------------


class HoldFromAnswer(LeaseStrategy):
    """L2: the hold counts from the answer."""

    def _counted_from(self, sent_ms, now_ms):
        return now_ms


class WaitsForNobody(LeaseStrategy):
    """T2: the end of a start that was never done, for its token could not be saved, is waited for."""

    def _disk_failed(self, now_ms, reason):
        return self._step_down(Code.DISK_FAILED, "the token could not be saved") if self._lead else []


class AnchorAtRequest(LeaseStrategy):
    """L3: the observation counts from the request."""

    def _anchor_ms(self, asked_ms, now_ms):
        return asked_ms


class ServerUnnoticed(LeaseStrategy):
    """L3: a fail-over of the store does not restart the observation."""

    def _same_server(self, old, answer):
        return True


class EverythingReleased(LeaseStrategy):
    """L4: a row is taken at once although it was not released."""

    def _at_once(self, sight, row):
        return True


class WithoutCompare(SimStore):
    """L1: take, renew and release compare neither token nor seq."""

    def _same(self, row, token, seq):
        return True


# --- bully and ring (B1, B3, B4, B6: test_rules_bully.py, test_rules_ring.py) -----------------------------------------


class Stubborn(BullyStrategy):
    """B2: of two leaders that meet, none yields."""

    def _yields_to(self, rival):
        return False


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
    prepare: Callable[[Life], None] | None = None

    @property
    def key(self) -> str:
        return f"{self.rule}: {self.name}"

    def live(self, seed: int) -> Outcome:
        life = Life(self.plan, seed, self.build)
        if self.prepare is not None:
            self.prepare(life)
        return life.live()

    def caught(self, outcome: Outcome) -> bool:
        return any(violation.rule in self.caught_by for violation in outcome.violations)


def raft(cls):
    return lambda node, seat, ballot: cls(seat, node.timing, ballot, RaftOptions(auto=True))


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
    def prepare(life):
        life.world.store = cls()
        sluggish(life)

    return prepare


def guard(cls):
    def prepare(life):
        life.world.guard_class = cls

    return prepare


def disk(cls):
    def prepare(life):
        for name in sorted(life.world.nodes):
            node = life.world.nodes[name]
            was, node.disk = node.disk, cls()
            node.disk.ballot = was.ballot

    return prepare


RAFT3 = Plan("raft", 3, "lab", 1.0)


def only(*classes, nodes=3, minutes=1.0, drift=0.01):
    return Plan("raft", nodes, "lab", minutes, classes, draw=False, drift=drift)


def leased(*classes, drift=0.01):
    return Plan("lease", 3, "lab", 1.0, classes, draw=False, drift=drift)


MUTANTS: tuple[Mutant, ...] = (
    Mutant("Q1", "ballot durable after its messages", raft(PersistLate), RAFT3),
    Mutant("Q1", "candidate's vote durable after its requests", raft(EarlyRequests), RAFT3),
    Mutant("Q1", "save not synced", None, only("aimed", "crash-node", "lossy"), prepare=disk(LazyDisk)),
    Mutant("Q3", "hold counted from the ack", raft(CountFromAck), only("lag", "freeze", "clock"), prepare=sluggish),
    Mutant(
        "Q3", "any ack proves the newest beat", raft(AnyAckProves), only("lag", "freeze", "one-way"), prepare=sluggish
    ),
    Mutant("Q4", "no promise", raft(Eager), only("one-way", "link", nodes=5), ("L1", "L2", "L3")),
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
    Mutant("Q6", "run lock ignored", raft(LockIgnored), only("freeze", "crash-agent", "stall", nodes=1)),
    Mutant(
        "Q7",
        "leader without majority goes on",
        raft(NeverLate),
        only("bridge", "partition", nodes=5),
        ("I6",),
        prepare=deaf,
    ),
    Mutant("Q8", "term reopens", raft(TermReopens), only("operator", "stall", "partition")),
    Mutant("Q9", "no pre-vote", raft(NoPreVote), only("one-way", "link", nodes=5), ("L3", "L4")),
    Mutant("Q9", "voter ahead ignored", raft(AheadIgnored), only("link", nodes=5), ("L1",), prepare=one_ahead),
    Mutant("M1", "one report of the new list is enough", raft(ListAfterOne), only("relist", "link", minutes=0.6)),
    Mutant("M1", "a changed list does not mute", raft(ListIgnored), only("relist", "link", minutes=0.6)),
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
    Mutant("L1", "nothing is compared", None, leased("stall", "store-slow"), prepare=store(WithoutCompare)),
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
        leased("freeze", "store-other", "store-cut"),
        prepare=agreeing_walls,
    ),
    Mutant("T2", "a start that was not done is waited for", lease(WaitsForNobody), leased("disk-full"), ("L1", "L2")),
    Mutant("L4", "unreleased row taken at once", lease(EverythingReleased), leased("stall")),
    Mutant("B2", "nobody yields", ranked(Stubborn), Plan("bully", 5, "lab", 1.0, ("partition",), draw=False), ("L1",)),
    Mutant(
        "B7", "nobody skipped", ranked(NobodySkipped), Plan("ring", 5, "lab", 1.0, ("crash-node",), draw=False), ("L1",)
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
        ("L1", "L2", "L3"),
    ),
    Mutant("G7", "resign with a release", raft(ResignWithRelease), only("operator", "aimed", "freeze", "partition")),
)


SEEDS_FILE = Path(__file__).with_name("mutant_seeds.json")
RECORDED = 2
"""Catching seeds that are kept per mutant: the quick run needs one, the second shows that it is no accident."""


def recorded() -> dict[str, list[int]]:
    """Seeds that catch each mutant, from the last `python -m tests.mutants`."""
    return json.loads(SEEDS_FILE.read_text())


def caught_seeds(mutant: Mutant, seeds: range, wanted: int) -> list[int]:
    """The first seeds of the range that catch it."""
    found: list[int] = []
    for seed in seeds:
        if mutant.caught(mutant.live(seed)):
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
    lines = [f"  {json.dumps(key)}: {json.dumps(seeds)}" for key, seeds in found.items()]
    SEEDS_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
