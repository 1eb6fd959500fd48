"""What a trial must know of each strategy: how its nodes are made, its pace, and the bound for a leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.model import Ballot, Seat, Strategy
from primacy.election.own import Plugged
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.election.ranked.bully import BullyStrategy
from primacy.election.ranked.rank import RankOptions, settle_ms
from primacy.election.ranked.ring import RingStrategy
from primacy.election.store import holder_id
from primacy.settings.timing import PROFILES, RANK_PROFILES, RankTiming, Timing, for_lease
from primacy.sim.world.node import Node
from primacy.sim.world.world import INBOX_MAX, Pace
from primacy.strategies import own_strategy

Build = Callable[[Node, Seat, Ballot | None], Strategy]


class StrategyEntry(NamedTuple):
    """One strategy of the simulator."""

    holds: bool
    """It holds something: its work is guarded and must never overlap."""
    build: Callable[[bool], Build]
    """From `first_start: auto` or not, how a node's strategy is made at each start."""


def _raft(auto: bool) -> Build:
    return lambda node, seat, ballot: RaftStrategy(seat, node.timing, ballot, RaftOptions(auto=auto))


def _lease(auto: bool) -> Build:  # noqa: ARG001
    def build(node: Node, seat: Seat, ballot: Ballot | None) -> Strategy:
        known = ballot.token_max if ballot is not None else 0
        failsafe = node.membership.ids if node.failsafe else ()
        assert isinstance(node.timing, Timing)
        look_ms = node.timing.look_ms
        dead = tuple(node.holders)
        node.holders.append(holder_id(seat.node, seat.boot))
        options = LeaseOptions(
            node.world.lease_name, known, dead=dead, failsafe=failsafe, look_every_ms=look_ms, watched=node.watched
        )
        return LeaseStrategy(seat, node.timing, options)

    return build


def _bully(auto: bool) -> Build:  # noqa: ARG001
    return lambda node, seat, ballot: BullyStrategy(seat, node.timing, RankOptions())  # noqa: ARG005


def _ring(auto: bool) -> Build:  # noqa: ARG001
    return lambda node, seat, ballot: RingStrategy(seat, node.timing, RankOptions())  # noqa: ARG005


STRATEGY_TABLE: dict[str, StrategyEntry] = {
    "raft": StrategyEntry(True, _raft),
    "lease": StrategyEntry(True, _lease),
    "bully": StrategyEntry(False, _bully),
    "ring": StrategyEntry(False, _ring),
}


def entry_of(strategy: str) -> StrategyEntry:
    """Of a user's own strategy, too: what it promises says whether its work must never overlap."""
    if strategy in STRATEGY_TABLE:
        return STRATEGY_TABLE[strategy]
    made = own_strategy(strategy)

    def build(node: Node, seat: Seat, ballot: Ballot | None) -> Strategy:
        return Plugged(made(seat, node.timing, ballot), seat, node.local_ms())

    return StrategyEntry(made.guarantees.at_most_one, lambda _: build)


def timing_for(strategy: str, profile: str) -> Timing | RankTiming:
    """The times of a profile, for this strategy: those that run, not only those that are in the table."""
    if not entry_of(strategy).holds:
        return RANK_PROFILES[profile]
    return for_lease(PROFILES[profile]) if strategy == "lease" else PROFILES[profile]


def unit_ms(timing: Timing | RankTiming) -> float:
    """The span in which faults are measured: long enough to matter, short enough to pass often."""
    if isinstance(timing, Timing):
        return float(timing.hold_ms)
    return float(timing.misses * timing.heartbeat_ms + timing.answer_ms + timing.coordinator_ms)


def bound_ms(strategy: str, timing: Timing | RankTiming, nodes: int) -> float:
    """How soon after the calm a leader must be there (P1)."""
    if isinstance(timing, RankTiming):
        return float(settle_ms(timing, nodes if strategy == "ring" else 0)) + 200
    if strategy == "lease":
        return float(timing.wait_ms + 4 * timing.look_ms + 6_000)
    return float(timing.promise_ms + 2 * timing.spread_ms + 1_000)


EVENTS_PER_HEARTBEAT = 20
"""Of every node and for every other node. The worst of some thousand trials needed 2; what needs more goes round."""
EVENTS_BESIDE = 20_000
"""For what does not come with the heartbeats: retries, faults, orders."""
JOINING = 2
"""So many nodes may join while a trial goes on."""


def events_max(timing: Timing | RankTiming, nodes: int, minutes: float) -> int:
    """How many events a trial may have (E2)."""
    most = nodes + JOINING
    heartbeats = minutes * 60_000 / timing.heartbeat_ms
    return int(EVENTS_BESIDE + EVENTS_PER_HEARTBEAT * most * most * heartbeats)


MESSAGES_PER_HEARTBEAT: dict[str, float] = {"raft": 4, "lease": 4, "bully": 4, "ring": 4}
"""To each other node and for each heartbeat. raft: a leader sends one, and asks and answers as much again while others
ask for votes or for memories. lease: statements count, and nodes ask each other only while the store is away. bully and
ring: a leader sends one and answers one; announcements are repeated."""


def pace_of(strategy: str, timing: Timing | RankTiming, nodes: int) -> Pace:
    """What one node may send (E2): a small multiple of heartbeats × nodes, and a burst on top of it.

    The burst is what no rule forbids: a node that was stopped finds a full inbox and answers each message in it once,
    perhaps twice in a row; and with bully every lower node may call every node above it, whose answer is an
    announcement to all: the square of the nodes, for each of a few calls.
    """
    most = nodes + JOINING
    per_heartbeat = MESSAGES_PER_HEARTBEAT.get(strategy, MESSAGES_PER_HEARTBEAT["bully"])
    at_once = 2 * INBOX_MAX + (4 * most * most if strategy not in ("raft", "lease") else 4 * most)
    return Pace(per_heartbeat * most * 1000 / timing.heartbeat_ms, at_once)
