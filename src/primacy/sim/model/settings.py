"""What the bounded model is made of: tiny times, steady chance, and a few nodes of one strategy or the other."""

from __future__ import annotations

from itertools import combinations
from random import Random

from primacy.election.effects import Effect
from primacy.election.inputs import CancelChange, ChangeMembers, Input
from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.model import Ballot, ListRecord, Member, Membership, MembersId, Register, Seat, Strategy
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.settings.timing import Timing, waited
from primacy.sim.world.engines import POSTGRESQL, Engine
from primacy.sim.world.store import SimStore

EQUAL = Timing(
    heartbeat_ms=1, term_at_ms=4, kill_at_ms=5, deadman_at_ms=6, hold_ms=7, promise_ms=7, spread_ms=3, drift_ppm=0
)
"""The smallest times that keep every relation of the rules, for clocks that run alike."""
DRIFTING = EQUAL._replace(promise_ms=14, drift_ppm=333_333)
"""The same for clocks of which one runs twice as fast as the other: the drift ratio is 2."""
TIMELESS = Timing(
    heartbeat_ms=0, term_at_ms=10, kill_at_ms=11, deadman_at_ms=12, hold_ms=13, promise_ms=0, spread_ms=0, drift_ppm=0
)
"""For clocks that stand still: nothing is waited for, so that nothing rests on time; and no work ever starts."""
CLOCKS: dict[str, tuple[Timing, tuple[int, ...]]] = {
    "equal": (EQUAL, (1, 1, 1)),
    "drifting": (DRIFTING, (2, 1, 1)),
}
"""Times, and units per millisecond of each node's clock. When they drift, the first leader is the slow one."""
SHARES = (0.4, 0.0, 0.7, 0.4, 0.0)
"""Each node's constant chance: they stand 1, 0 and 2 ms after their promise has run out."""
NAMES = ("a", "b", "c")
HISTORY_MAX = 2
"""Commits that a way back of the store can lose. More would make more states, and no other order of events."""


class Steady(Random):
    """Chance that is always the same, so that a state says all about the future."""

    def __init__(self, share: float) -> None:
        super().__init__(0)
        self.share = share

    def random(self) -> float:
        return self.share

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:  # noqa: ARG002
        return int(self.share * start) if stop is None else start + int(self.share * (stop - start))


def _formed(voters: tuple[str, ...], timing: Timing) -> Ballot:
    """As if it had been in this cluster before the search begins."""
    record = ListRecord("times", voters, confirmed=True)
    register = Register(MembersId(0, 1), tuple(Member(name) for name in voters))
    return Ballot(1_000, 0, "", timing.hold_ms, 1_000, 0, (record,), register=register)


class RaftSetting:
    """Three voters of a formed cluster, whose register is the first one: term 0, nobody has voted."""

    names: tuple[str, ...] = NAMES
    phases: tuple[int, ...] = (0, 0, 0)
    requests: tuple[Input, ...] = ()

    def __init__(self, clocks: str = "equal", machine: type[RaftStrategy] = RaftStrategy) -> None:
        self.timing, self.periods = CLOCKS[clocks]
        self.span = self.timing.wait_ms + 4
        self.machine = machine

    def make(self, index: int, boot: int, ballot: Ballot | None) -> Strategy:
        seat = Seat(self.names[index], boot, Membership.of(self.names, "times"), Steady(SHARES[index]))
        return self.machine(seat, self.timing, ballot, RaftOptions())

    def first_ballot(self, index: int) -> Ballot | None:  # noqa: ARG002
        return _formed(self.names, self.timing)

    def first_store(self) -> SimStore | None:
        return None


def without_pre_vote(machine: type[RaftStrategy]) -> type[RaftStrategy]:
    """The same machine, whose candidates ask for votes at once. That must be as safe (Q9), and has fewer states."""

    class AtOnce(machine.campaigning_class):  # type: ignore[name-defined, misc]
        def ask_votes(self, now_ms: int, term: int, *, pre: bool) -> list[Effect]:  # noqa: ARG002
            return list(super().ask_votes(now_ms, term, pre=False))

    return type(machine.__name__, (machine,), {"campaigning_class": AtOnce})


class RegisterSetting:
    """Nodes of which the first few are the voters of a register; the others are blank and know of all (rules R).

    An operator may ask a leader for every set of voters, and cancel; a memory may be lost.
    """

    def __init__(
        self,
        voters: int = 3,
        *,
        nodes: int = 3,
        clocks: str = "equal",
        machine: type[RaftStrategy] = RaftStrategy,
        pre_vote: bool = True,
    ) -> None:
        self.names = (*NAMES, "d", "e")[:nodes]
        self.voters = self.names[:voters]
        self.phases: tuple[int, ...] = (0,) * nodes
        self.timing, self.periods = (TIMELESS, (1,) * nodes) if clocks == "none" else CLOCKS[clocks]
        self.span = self.timing.wait_ms + 4
        self.machine = machine if pre_vote else without_pre_vote(machine)
        wanted = [chosen for count in range(1, nodes + 1) for chosen in combinations(self.names, count)]
        changes = tuple(ChangeMembers(tuple(Member(name) for name in chosen), "operator") for chosen in wanted)
        self.requests: tuple[Input, ...] = (*changes, CancelChange("operator"))

    def make(self, index: int, boot: int, ballot: Ballot | None) -> Strategy:
        seat = Seat(self.names[index], boot, Membership.of(self.names, "times"), Steady(SHARES[index]))
        return self.machine(seat, self.timing, ballot, RaftOptions())

    def first_ballot(self, index: int) -> Ballot | None:
        if self.names[index] not in self.voters:
            return None
        return _formed(self.voters, self.timing)

    def first_store(self) -> SimStore | None:
        return None


class LeaseSetting:
    """Three nodes and one row, which is not there yet."""

    names: tuple[str, ...] = NAMES
    phases: tuple[int, ...] = (0, 0, 0)
    requests: tuple[Input, ...] = ()
    options = LeaseOptions("main", look_every_ms=4, answer_ms=4)
    store = SimStore

    def __init__(
        self, clocks: str = "equal", machine: type[LeaseStrategy] = LeaseStrategy, engine: Engine = POSTGRESQL
    ) -> None:
        timing, self.periods = CLOCKS[clocks]
        self.engine = engine
        self.timing = timing._replace(heartbeat_ms=2)
        self.span = waited(self.timing.admitted_ms, self.timing.drift_ppm) + 5
        self.machine = machine

    def make(self, index: int, boot: int, ballot: Ballot | None) -> Strategy:
        seat = Seat(self.names[index], boot, Membership.of(self.names, "list"), Steady(SHARES[index]))
        known = 0 if ballot is None else ballot.token_max
        return self.machine(seat, self.timing, self.options._replace(token_max=known))

    def first_ballot(self, index: int) -> Ballot | None:  # noqa: ARG002
        return None

    def first_store(self) -> SimStore | None:
        return self.store(self.engine, wait_max_ms=self.timing.admitted_ms, history_max=HISTORY_MAX)
