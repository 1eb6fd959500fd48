"""What the bounded model is made of: tiny times, steady chance, and three nodes of one strategy or the other."""

from __future__ import annotations

from random import Random

from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.model import Ballot, ListRecord, Membership, Seat, Strategy
from primacy.election.raft.strategy import RaftStrategy
from primacy.settings.timing import Timing
from primacy.sim.world.store import SimStore

EQUAL = Timing(
    heartbeat_ms=1, term_at_ms=4, kill_at_ms=5, deadman_at_ms=6, hold_ms=7, promise_ms=7, spread_ms=3, drift_ppm=0
)
"""The smallest times that keep every relation of the rules, for clocks that run alike."""
DRIFTING = EQUAL._replace(promise_ms=14, drift_ppm=333_333)
"""The same for clocks of which one runs twice as fast as the other: the drift ratio is 2."""
CLOCKS: dict[str, tuple[Timing, tuple[int, ...]]] = {
    "equal": (EQUAL, (1, 1, 1)),
    "drifting": (DRIFTING, (2, 1, 1)),
}
"""Times, and units per millisecond of each node's clock. When they drift, the first leader is the slow one."""
SHARES = (0.4, 0.0, 0.7)
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


class RaftSetting:
    """Three voters of a formed cluster: term 0, nobody has voted."""

    names: tuple[str, ...] = NAMES
    phases: tuple[int, ...] = (0, 0, 0)

    def __init__(self, clocks: str = "equal", machine: type[RaftStrategy] = RaftStrategy) -> None:
        self.timing, self.periods = CLOCKS[clocks]
        self.span = self.timing.wait_ms + 4
        self.machine = machine

    def make(self, index: int, boot: int, ballot: Ballot | None) -> Strategy:
        seat = Seat(self.names[index], boot, Membership.of(self.names, "list"), Steady(SHARES[index]))
        return self.machine(seat, self.timing, ballot)

    def first_ballot(self) -> Ballot | None:
        record = ListRecord("list", self.names, confirmed=True)
        return Ballot(1_000, 0, "", self.timing.hold_ms, 1_000, 0, (record,))

    def first_store(self) -> SimStore | None:
        return None


class LeaseSetting:
    """Three nodes and one row, which is not there yet."""

    names: tuple[str, ...] = NAMES
    phases: tuple[int, ...] = (0, 0, 0)
    options = LeaseOptions("main", look_every_ms=4, answer_ms=4)
    store = SimStore

    def __init__(self, clocks: str = "equal", machine: type[LeaseStrategy] = LeaseStrategy) -> None:
        timing, self.periods = CLOCKS[clocks]
        self.timing = timing._replace(heartbeat_ms=2)
        self.span = self.timing.wait_ms + 6
        self.machine = machine

    def make(self, index: int, boot: int, ballot: Ballot | None) -> Strategy:
        seat = Seat(self.names[index], boot, Membership.of(self.names, "list"), Steady(SHARES[index]))
        known = 0 if ballot is None else ballot.token_max
        return self.machine(seat, self.timing, self.options._replace(token_max=known))

    def first_ballot(self) -> Ballot | None:
        return None

    def first_store(self) -> SimStore | None:
        return self.store(wait_max_ms=self.timing.wait_ms, history_max=HISTORY_MAX)
