"""Times of the strategies, in integer milliseconds, and the one table of profiles.

All values are spans counted from `s`, the holder's clock *before* its renewal left, on CLOCK_BOOTTIME. The numbers are
those of the safety rules, section Time; they stand here and nowhere else. What a span means, and what breaks when it is
too small or too large, is said at each field; the relations between them are checked in `checks.py`.
"""

from __future__ import annotations

from typing import NamedTuple

PPM = 1_000_000
DRIFT_PPM = 10_000
"""The error of a clock that is reckoned with where nobody says another: 1 %."""
LOOK_MS = 900
"""Lease: no node looks more often than this for the sake of a sixth of the hold."""


def stretched(span_ms: int, drift_ppm: int) -> int:
    """The span on the fastest clock that surely covers `span_ms` on the slowest.

    That is `span_ms` times (1 + drift) / (1 - drift), rounded up.
    """
    return -(-span_ms * (PPM + drift_ppm) // (PPM - drift_ppm))


def waited(wait_ms: int, drift_ppm: int) -> int:
    """A wait that was computed for clocks of the default error, on a clock that may be off by more; never shorter.

    What the holder's clock adds to its hold is in it already; what is missing is how much faster ours may run.
    """
    return max(wait_ms, -(-wait_ms * (PPM + drift_ppm) // (PPM + DRIFT_PPM)))


class Timing(NamedTuple):
    """Times of a strategy that holds something: raft and lease."""

    heartbeat_ms: int
    """Between two renewals. Too small: needless traffic. Too large: few lost heartbeats are tolerated before TERM."""
    term_at_ms: int
    """After s: no proved renewal means that the work is told to stop. Too small: a short stall costs the role."""
    kill_at_ms: int
    """After s: the work is killed. The time from TERM to KILL is all it has to end by itself after a loss."""
    deadman_at_ms: int
    """After s: the kernel kills guard and work even if agent and guard are both stopped."""
    hold_ms: int
    """After s: the work is dead, whatever happened. Too large: every failover without a release takes longer."""
    promise_ms: int
    """A voter that acked a heartbeat grants no vote for this long. Below hold times the drift ratio, winners must
    wait."""
    spread_ms: int
    """Candidates campaign at a random moment within promise .. promise + spread. Too small: split votes."""
    drift_ppm: int = DRIFT_PPM
    """Largest rate error of any clock, in parts per million. A clock outside of it is outside of the promise."""

    @property
    def beat_ms(self) -> int:
        """What `heartbeat_ms` was called: for strategies that were written before."""
        raise AttributeError("timing.beat_ms is called timing.heartbeat_ms now")

    @property
    def wait_ms(self) -> int:
        """D: what a successor waits after its evidence arrived."""
        return stretched(self.hold_ms, self.drift_ppm)

    @property
    def admitted_ms(self) -> int:
        """Lease: what a table must admit for this hold. Watchers may reckon with 1 %, and this node with less."""
        return stretched(self.hold_ms, max(self.drift_ppm, DRIFT_PPM))

    @property
    def look_ms(self) -> int:
        """Lease: between two looks of a node that does not hold; up to a fifth is added by chance.

        Looks are what a store is asked most. A later one costs a release that nobody tells of, and the beginning of an
        observation, as much. So it is a sixth of the hold, but for short holds, where that would be many statements:
        there it is up to three tenths. With this, one holder and two others ask less than four statements a second at a
        hold of three seconds or more, and the median of a takeover stays within 1.1 holds.
        """
        return max(self.hold_ms // 6, min(self.hold_ms * 3 // 10, LOOK_MS))


class RankTiming(NamedTuple):
    """Times of bully and ring. They hold nothing, so only heartbeats and waits count."""

    heartbeat_ms: int
    """Between two looks at the leader, and between two announcements of it."""
    misses: int
    """Looks in a row without an answer until the leader counts as gone."""
    answer_ms: int
    """How long a look at the leader may take. Larger than the heartbeat only delays the notice."""
    election_ms: int
    """How long a call for an election waits for an OK before the caller declares itself."""
    coordinator_ms: int
    """How long one who was told OK waits for the announcement before it calls again."""

    @property
    def beat_ms(self) -> int:
        """What `heartbeat_ms` was called: for strategies that were written before."""
        raise AttributeError("timing.beat_ms is called timing.heartbeat_ms now")


class PlacementTiming(NamedTuple):
    """Times of placement, which no promise depends on: too small, there are needless moves; too large, late ones."""

    intent_ms: int
    """Between telling what will be handed over and doing it: longer than gossip takes, also if one word is lost."""
    intent_max_ms: int
    """After which nobody waits for a handover any more. Longer than the longest planned stop of a workload."""
    gap_ms: int
    """After a handover, before the next: all others must have heard how it ended."""
    calm_ms: int
    """For how long no node and no leader has changed before anything moves that could stay."""
    settle_ms: int
    """For how long a node is up before anything moves to it; twice as long after each return within `flaps_ms`."""
    flaps_ms: int = 120_000
    """For how long a return is remembered, and the longest time that a node has to last."""
    rest_ms: int = 10_000
    """An election that moved stays, unless it has to leave; twice as long after each move."""
    retry_ms: int = 2_000
    """After a handover that failed; twice as long after each failure."""
    turn_ms: int = 6_000
    """For how long the others wait for a node whose turn it is."""
    look_ms: int = 1_000
    """Between two looks at what only time changes."""
    rebalance_ms: int = 300_000
    """For how long an operator's `rebalance` goes on."""


def placement_timing(timing: Timing, stop_ms: int) -> PlacementTiming:
    """For elections of which the slowest has these times, and a planned stop of at most `stop_ms`."""
    return PlacementTiming(
        intent_ms=1_200,
        intent_max_ms=1_200 + stop_ms + timing.hold_ms + timing.wait_ms + 5_000,
        gap_ms=500,
        calm_ms=max(3_000, timing.hold_ms + timing.promise_ms),
        settle_ms=max(5_000, 3 * timing.hold_ms),
    )


PROFILES: dict[str, Timing] = {
    "lab": Timing(50, 200, 350, 400, 500, 525, 200),
    "fast": Timing(100, 400, 700, 850, 1_000, 1_040, 260),
    "lan": Timing(250, 1_200, 2_300, 2_700, 3_000, 3_100, 600),
    "wan": Timing(1_000, 5_000, 8_500, 9_300, 10_000, 10_400, 2_000),
    "coordinator": Timing(3_333, 7_000, 8_500, 9_300, 10_000, 10_400, 2_000),
    "executor": Timing(1_000, 5_000, 8_500, 9_300, 10_000, 10_400, 2_000),
}

RANK_PROFILES: dict[str, RankTiming] = {
    "lab": RankTiming(50, 3, 100, 100, 200),
    "fast": RankTiming(100, 2, 150, 150, 300),
    "lan": RankTiming(250, 2, 250, 250, 500),
    "wan": RankTiming(1_000, 3, 1_000, 1_000, 3_000),
    "ghoti": RankTiming(2_000, 1, 2_000, 3_000, 3_000),
    "hecaton": RankTiming(5_000, 3, 5_000, 5_000, 10_000),
}

DEFAULT_PROFILE = "lan"


def for_lease(timing: Timing) -> Timing:
    """The times of a profile with the renewals of a lease: two of them, and a trip, before TERM.

    A heartbeat to a node costs nothing; a renewal is a statement, and a commit, of somebody's database. One of them may
    be lost. `coordinator` keeps its third of the hold.
    """
    return timing._replace(heartbeat_ms=max(timing.heartbeat_ms, timing.term_at_ms * 11 // 24))


PROFILES_OF: dict[str, tuple[str, ...]] = {
    "raft": ("lab", "fast", "lan", "wan", "executor"),
    "lease": ("lab", "fast", "lan", "wan", "coordinator", "executor"),
    "bully": tuple(RANK_PROFILES),
    "ring": tuple(RANK_PROFILES),
}
"""Which profile fits which strategy."""


def profiles_of(strategy: str) -> tuple[str, ...]:
    """A user's own strategy may hold something or not: it has the profiles that are there for both."""
    return PROFILES_OF.get(strategy, tuple(name for name in PROFILES if name in RANK_PROFILES))
