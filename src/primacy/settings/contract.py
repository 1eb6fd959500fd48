"""The arithmetic of the safety contract: what a configuration promises, in milliseconds. Pure.

Zero is `s`: the instant at which the last *proved* renewal of the old holder left it. Spans on a node's clock become
spans of true time by its rate error: a slow clock stretches them, a fast one shortens them. So the old holder is dead
at the latest after hold / (1 - drift), and the new one starts at the earliest after its wait / (1 + drift). Between the
two lies the margin; it is computed exactly, and a negative one is refused.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from primacy.errors import Problem, SettingsError
from primacy.settings.checks import base_strategy, lost_heartbeats, rank_timing_problems, round_trip_ms, timing_problems
from primacy.settings.timing import PPM, RankTiming, Timing, stretched

NO_PROMISE = (
    "{strategy} does not promise at most one: while the network is divided there is one leader on each side. "
    "It has no fencing token; for work that must never run twice use raft or lease."
)
CONTAINMENT = "known only while a node runs: `strong` if the kernel can kill the whole process tree, else `weak`"


class Moment(NamedTuple):
    """One point of the timeline of a failover."""

    at_ms: float
    who: str
    """`old` for the old holder, `new` for its successor."""
    mark: str
    """A letter for the drawing."""
    text: str


class Contract(NamedTuple):
    """What the times of raft or lease promise. Milliseconds of true time after `s`, unless said otherwise."""

    strategy: str
    at_most_one: bool
    latest_stop_ms: float
    """The old holder's work is dead, on the slowest clock."""
    earliest_start_ms: float
    """The new holder's work starts without a release, on the fastest clock."""
    margin_ms: float
    """Between the two. Never negative."""
    tolerated_stall_ms: int
    """A holder may stand still this long, at the worst moment, and keeps the role."""
    kill_reserve_ms: int
    """Between the kernel's own kill and the end of the hold, on the holder's clock."""
    tolerated_clock_error_ppm: int
    """The largest rate error of all clocks at which the margin is not negative."""
    lost_heartbeats: int
    """Renewals in a row that may be lost."""
    failover_expected_ms: int
    """From the holder's sudden silence to the new start, in a working network of `nodes`."""
    failover_worst_ms: int
    """The same with slow clocks and one split vote (raft), or a look at the row just missed (lease). Lost messages and
    nodes that are down at the same time may make it longer."""
    release_expected_ms: int
    """From the confirmed end of the old work to the new start, after a clean release."""
    release_worst_ms: int
    stop_planned_ms: int
    """What the work has to end by itself when it is asked to; leadership is kept meanwhile."""
    stop_after_loss_ms: int
    """What it has between TERM and KILL when the role was lost."""
    containment: str
    nodes: int


class RankContract(NamedTuple):
    """What the times of bully or ring give. Milliseconds after the leader fell silent."""

    strategy: str
    at_most_one: bool
    warning: str
    detection_expected_ms: int
    detection_worst_ms: int
    """The leader fell silent just after it had answered."""
    election_expected_ms: int
    election_worst_ms: int
    """The winner dies before it has announced itself, so that a second round is needed."""
    failover_expected_ms: int
    failover_worst_ms: int
    looks_missed: int
    """Looks without an answer until a leader counts as gone."""
    stop_planned_ms: int
    nodes: int


def contract(
    timing: Timing | RankTiming, strategy: str, stop_ms: int = 3000, nodes: int = 3, levels: int = 1
) -> Contract | RankContract:
    """What these times promise. Raises `SettingsError` with every inequality that they break.

    `nodes`: how many vote. `levels`: how many different priorities they have; each lower one waits a spread longer.
    """
    if isinstance(timing, RankTiming):
        _refuse(rank_timing_problems(timing))
        return _rank_contract(timing, strategy, stop_ms, nodes)
    _refuse(timing_problems(timing, strategy))
    return _contract(timing, strategy, stop_ms, nodes, levels)


def for_stop_after_loss(timing: Timing, wanted_ms: int) -> Timing:
    """The same times with room for a stop of `wanted_ms` after a loss: KILL and everything after it move."""
    later = max(0, wanted_ms - (timing.kill_at_ms - timing.term_at_ms))
    hold_ms = timing.hold_ms + later
    reserve = timing.promise_ms - timing.wait_ms
    return timing._replace(
        kill_at_ms=timing.kill_at_ms + later,
        deadman_at_ms=timing.deadman_at_ms + later,
        hold_ms=hold_ms,
        promise_ms=stretched(hold_ms, timing.drift_ppm) + max(0, reserve),
    )


def timeline(timing: Timing, made: Contract) -> tuple[Moment, ...]:
    """A failover after a sudden silence, in the order of its moments."""
    raft = base_strategy(made.strategy) == "raft"
    proof = "heartbeat that a majority acked" if raft else "renewal that the store proved"
    wins = "others may grant votes again" if raft else "others have seen the row unchanged for long enough"
    moments = [
        Moment(0, "old", "s", f"the last {proof} leaves the old holder"),
        Moment(timing.heartbeat_ms, "old", "b", "the next one is lost, and so are all after it"),
        Moment(timing.term_at_ms, "old", "T", "TERM: its work is told to stop"),
        Moment(timing.kill_at_ms, "old", "K", "KILL: its work is killed"),
        Moment(timing.deadman_at_ms, "old", "D", "dead-man: the kernel kills guard and work, should both be stopped"),
        Moment(timing.hold_ms, "old", "H", "end of the hold, by the old holder's clock"),
        Moment(made.latest_stop_ms, "old", "X", "latest stop: the old work is dead, even on the slowest clock"),
        Moment(made.earliest_start_ms, "new", "S", f"earliest start: {wins}, even on the fastest clock"),
        Moment(made.failover_expected_ms, "new", "E", _expected(made)),
        Moment(made.failover_worst_ms, "new", "W", "slowest start in a working network"),
    ]
    return tuple(sorted(moments, key=lambda m: m.at_ms))


def as_dict(made: Contract | RankContract, timing: Timing | RankTiming) -> dict[str, Any]:
    """For `--json`: the contract, and the times that it was made from."""
    found = {"api": 1, **made._asdict(), "timing": timing._asdict()}
    if isinstance(made, Contract) and isinstance(timing, Timing):
        found["timing"]["wait_ms"] = timing.wait_ms
        found["timeline"] = [m._asdict() for m in timeline(timing, made)]
    return found


def _expected(made: Contract) -> str:
    """On a lease it does not depend on how many they are."""
    return "expected start of the new work" + (f", {made.nodes} nodes" if made.strategy != "lease" else "")


def _contract(timing: Timing, strategy: str, stop_ms: int, nodes: int, levels: int) -> Contract:
    raft = base_strategy(strategy) == "raft"
    slow, fast = Fraction(PPM - timing.drift_ppm, PPM), Fraction(PPM + timing.drift_ppm, PPM)
    wait_ms = max(timing.wait_ms, timing.promise_ms) if raft else timing.wait_ms
    latest_stop, earliest_start = timing.hold_ms / slow, wait_ms / fast
    margin = earliest_start - latest_stop
    if margin < 0:  # `wait_ms` is rounded up, so this is a bug of ours or a strategy of somebody else's
        wrong = (
            f"the new work could start at {float(earliest_start):.1f} ms (election.timing.promise_ms = "
            f"{timing.promise_ms}), {-float(margin):.1f} ms before the old one is dead (election.timing.hold_ms = "
            f"{timing.hold_ms}); raise promise_ms or lower hold_ms"
        )
        _refuse([Problem("election.timing", "", wrong)])
    trip_ms = round_trip_ms(timing)
    if raft:
        # Silence begins half a heartbeat after the last ack on average; the earliest of the others' random moments
        # counts. With priorities the one who fell silent was probably the highest. A split vote is repeated within 1.5
        # spreads.
        lag_ms = timing.spread_ms if levels > 1 else 0
        expected = (
            timing.promise_ms - timing.heartbeat_ms // 2 + timing.spread_ms // max(2, nodes) + lag_ms + 3 * trip_ms
        )
        worst = (timing.promise_ms + Fraction(3 + 2 * levels, 2) * timing.spread_ms) / slow + 6 * trip_ms
        release = (4 * trip_ms, timing.spread_ms + 6 * trip_ms)
    else:
        # The last renewal is half a heartbeat old, and others see it half a look later. Looks come after their span and
        # up to a fifth more, so that not all ask at once. A store that tells of releases makes those a trip or two.
        expected = timing.wait_ms + (timing.look_ms - timing.heartbeat_ms) // 2 + 2 * trip_ms
        worst = (timing.wait_ms + Fraction(7, 5) * timing.look_ms) / slow + 2 * trip_ms
        release = (timing.look_ms // 2 + trip_ms, timing.look_ms * 6 // 5 + 2 * trip_ms)
    return Contract(
        strategy=strategy,
        at_most_one=True,
        latest_stop_ms=round(float(latest_stop), 3),
        earliest_start_ms=round(float(earliest_start), 3),
        margin_ms=round(float(margin), 3),
        tolerated_stall_ms=timing.term_at_ms - timing.heartbeat_ms - trip_ms,
        kill_reserve_ms=timing.hold_ms - timing.deadman_at_ms,
        tolerated_clock_error_ppm=PPM * (wait_ms - timing.hold_ms) // (wait_ms + timing.hold_ms),
        lost_heartbeats=lost_heartbeats(timing),
        failover_expected_ms=expected,
        failover_worst_ms=-int(-worst // 1),
        release_expected_ms=release[0],
        release_worst_ms=release[1],
        stop_planned_ms=stop_ms,
        stop_after_loss_ms=timing.kill_at_ms - timing.term_at_ms,
        containment=CONTAINMENT,
        nodes=nodes,
    )


def _rank_contract(timing: RankTiming, strategy: str, stop_ms: int, nodes: int) -> RankContract:
    trip_ms = round_trip_ms(timing)
    detection_worst = timing.misses * timing.heartbeat_ms + timing.answer_ms
    if strategy == "ring":  # one dead neighbour is skipped, then the baton goes round, and the announcement after it
        election, election_worst = timing.answer_ms + 2 * nodes * trip_ms, nodes * timing.answer_ms
    else:  # the call to the dead leader, which ranks highest, is never answered
        election, election_worst = timing.election_ms, timing.election_ms
    election_worst += timing.coordinator_ms + timing.election_ms
    detection = detection_worst - timing.heartbeat_ms // 2
    return RankContract(
        strategy=strategy,
        at_most_one=False,
        warning=NO_PROMISE.format(strategy=strategy),
        detection_expected_ms=detection,
        detection_worst_ms=detection_worst,
        election_expected_ms=election,
        election_worst_ms=election_worst,
        failover_expected_ms=detection + election,
        failover_worst_ms=detection_worst + election_worst,
        looks_missed=timing.misses,
        stop_planned_ms=stop_ms,
        nodes=nodes,
    )


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise SettingsError(problems)
