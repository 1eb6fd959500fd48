"""Events whose stamps are far from all others: a machine began with a clock that was not set (1970). Pure.

One such event would make a span of 56 years, in which nothing else can be seen. A node's clock may be wrong all the
time, though: that is what offsets are for, and nothing of it is left out as long as its events stand together.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from primacy.timeline.schema import Told

FAR_MS = 366 * 24 * 3_600_000
"""Without an event for longer than this, two groups of events are not of one story."""
FIRST_MS = 1_735_689_600_000
"""2025: there was no event before."""


def near(told: Sequence[Told], now_ms: int) -> list[Told]:
    """Those that stand together, in their order. Of several groups the one that is nearest to now; if now is not known
    (0), one of a time that can be, the largest, the latest."""
    groups = _groups(sorted({one.at_unix_ms for one in told}))
    if len(groups) < 2:
        return list(told)

    def rank(group: tuple[int, int]) -> tuple[int, ...]:
        first_ms, last_ms = group
        if now_ms:
            return (-max(0, first_ms - now_ms, now_ms - last_ms), last_ms)
        count = sum(first_ms <= one.at_unix_ms <= last_ms for one in told)
        return (int(last_ms >= FIRST_MS), count, last_ms)

    first_ms, last_ms = max(groups, key=rank)
    return [one for one in told if first_ms <= one.at_unix_ms <= last_ms]


def near_of_each(told: Sequence[Told], now_ms: int) -> list[Told]:
    """The same for each node by its own clock, which may be far off as a whole."""
    if len(_groups(sorted({one.at_unix_ms for one in told}))) < 2:
        return list(told)
    nodes = dict.fromkeys(one.node for one in told)
    kept = {one for node in nodes for one in near([each for each in told if each.node == node], now_ms)}
    return [one for one in told if one in kept]


def _groups(times_ms: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each."""
    found: list[tuple[int, int]] = []
    for at_ms in times_ms:
        if found and at_ms - found[-1][1] <= FAR_MS:
            found[-1] = (found[-1][0], at_ms)
        else:
            found.append((at_ms, at_ms))
    return found


def far_words(gone: Sequence[Told]) -> list[str]:
    """What was left out, by node."""
    found = []
    for node in sorted({one.node for one in gone}):
        its = [one.at_unix_ms for one in gone if one.node == node]
        count = "1 event" if len(its) == 1 else f"{len(its):,} events"
        of = f" of {node}" if node else ""
        found.append(f"{count}{of}, dated {_day(min(its))}, more than a year from the others: a clock was not set")
    return found


def _day(unix_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(unix_ms / 1_000, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms after 1970"
