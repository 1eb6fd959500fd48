"""Who ranks above whom, for bully and ring.

A rank is a total order: the id, compared as bytes, breaks every tie, so that no two nodes are ever equal (Hecaton's
millisecond stamps could be, and then both won). All nodes of a cluster must use the same order; it is part of the
configuration hash.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from primacy.election.model import TOKEN_MAX, Member
from primacy.settings.timing import RankTiming

ORDERS = ("id", "natural", "started", "priority")

NO_HOLD_MS = TOKEN_MAX
"""`valid_until_ms` of a leadership that holds nothing: it ends when its `Stop` comes, never by the clock."""

BACKOFF_MAX = 4
"""A round that fails is followed by one that waits twice as long, up to this factor: no storm, and still a bound."""

EPOCH_JUMP_MAX = 1_000_000
"""An epoch further ahead than this is read as "not said": nobody can push the counter to its end."""

MEMBERS_MAX = 1_024
"""Longest list that is taken over; n² messages of more nodes than this would help nobody."""


class RankOptions(NamedTuple):
    """What bully and ring are told besides their times."""

    rank: str = "id"
    """id | natural (node10 above node9) | started (the youngest ranks highest, as in Hecaton) | priority."""
    require_majority: bool = False
    """Nobody leads who has not heard from a majority of the whole list lately."""
    prune_after_ms: int = 0
    """A node that the leader has not heard for this long is left out of elections until it is heard again; 0: never."""
    bootstrap: bool = False
    """If nobody leads at its start, this node leads without an election (Ghoti's first node)."""
    joining: bool = False
    """The list is not known yet: stay quiet until it has come, instead of leading a cluster of one."""


def rank_key(member: Member, order: str) -> tuple[Any, ...]:
    """Larger is higher. Ends with the id as bytes."""
    name = member.id.encode("utf-8", "surrogatepass")
    match order:
        case "id":
            return (name,)
        case "natural":
            return (natural_key(member.id), name)
        case "started":
            return (member.started_ms, name)
        case "priority":
            return (member.priority, name)
    raise ValueError(f"rank is {order!r}; it can be one of: {', '.join(ORDERS)}")


def natural_key(name: str) -> tuple[Any, ...]:
    """Text and numbers in turn. Numbers compare by length, then by digits, however long they are."""
    parts = re.split(r"([0-9]+)", name)
    texts = tuple(part.encode("utf-8", "surrogatepass") for part in parts[::2])
    numbers = tuple((len(digits), digits) for digits in (part.lstrip("0") for part in parts[1::2]))
    key: list[Any] = [texts[0]]
    for number, text in zip(numbers, texts[1:], strict=True):
        key += [number, text]
    return tuple(key)


def paced(timing: RankTiming, factor: int) -> RankTiming:
    """The same times, so much slower: heartbeats, too, for who answers late has too much to do already."""
    return RankTiming(
        timing.heartbeat_ms * factor,
        timing.misses,
        timing.answer_ms * factor,
        timing.election_ms * factor,
        timing.coordinator_ms * factor,
    )


def wait_ms(timing: RankTiming) -> int:
    """How long one who was told OK waits for the announcement.

    The one who said OK may itself wait `election_ms` for nodes above it. Where a profile gives no more than that for
    both (Ghoti: 3 s and 3 s), half a heartbeat is added for the way.
    """
    return max(timing.coordinator_ms, timing.election_ms + timing.heartbeat_ms // 2)


def detect_ms(timing: RankTiming) -> int:
    """The longest time from the first look that stays unanswered to the verdict."""
    return timing.misses * timing.heartbeat_ms + timing.answer_ms


def patience_span_ms(timing: RankTiming, nodes: int = 0) -> tuple[int, int]:
    """How long the first round may take, and any.

    With `nodes`: the ring's, whose baton may find a quarter of them dead at first, and all of them in the end.
    """
    first_ms, dead_ms = wait_ms(timing), nodes * timing.answer_ms
    return first_ms + dead_ms // 4, max(BACKOFF_MAX * first_ms, first_ms + dead_ms)


def patience_max_ms(timing: RankTiming, nodes: int = 0) -> int:
    """The longest back-off, jitter included; `nodes` for the ring, as above."""
    span_ms = patience_span_ms(timing, nodes)[1]
    return span_ms + span_ms // 4


def settle_ms(timing: RankTiming, nodes: int = 0) -> int:
    """Bound: with no fault left, this long after the last one exactly one leader is left and all follow it.

    The last dead leader is noticed; the longest back-off of the highest live node ends; its round takes its full time;
    its announcement is heard, proved and, where it meets another leader, obeyed. `nodes` for the ring, as above: there
    the limits of the rounds double until one fits, so that all together take at most twice the last. Where a node waits
    for its own old work to stop, that comes on top.
    """
    rounds_ms = patience_max_ms(timing, nodes) * (2 if nodes else 1) + wait_ms(timing) * (2 if nodes else 1)
    return timing.heartbeat_ms + detect_ms(timing) + rounds_ms + 2 * (timing.heartbeat_ms + timing.answer_ms)
