"""How long nobody may follow a leader that fell silent without a release, and how that is measured.

A voter grants nothing within P of the newest beat that it acked (Q4). The last beat that left before the blow was heard
by all others, so that each majority of them waits for P from then, however late anybody is from then on. A command
before that would be one that did not wait. How old that beat is when the blow falls:

    one beat, for the next one was not due yet
    + what the leader's loop was late with the next one. That its machine stood still no longer than three eighths of a
      beat is what the canary says: it wakes four times in a beat, and a stall of one and a half of its naps can hide
    + half a beat for what a canary cannot see: that the leader alone was late

In every profile P is longer than the hold by four tenths of a beat at least. P - 1 7/8 beats is thus not less than the
hold - 1 1/2 beats.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from tests.canary import Canary
from tests.crowd import Crowd, Handover, Node

from primacy.settings.timing import Timing

BEATS_BEFORE = 3
"""So many are watched before the blow: the last one that left was on time, and the next one is."""
NAPS = 4
"""Of the canary, in one beat."""


def least_ms(timing: Timing) -> float:
    return timing.hold_ms - 1.5 * timing.beat_ms


@contextlib.contextmanager
def beats_watched(timing: Timing) -> Iterator[Canary]:
    """Strike inside, at once: only what is late before that can make the last beat older."""
    with Canary(timing.beat_ms / NAPS) as canary:
        time.sleep(BEATS_BEFORE * timing.beat_ms / 1_000)
        yield canary


def outwaits_the_hold(crowd: Crowd, harm: Callable[[Node], object]) -> Handover:
    """Nobody releases: the next one waits. That somebody runs is the rule, not when."""
    with contextlib.ExitStack() as watched:
        canary = watched.enter_context(beats_watched(crowd.timing))

        def struck(node: Node) -> None:
            harm(node)
            watched.close()

        done = crowd.strike(struck)
    least = least_ms(crowd.timing)
    canary.judge(least < done.took_ms, f"{done.took_ms:.0f} ms without a command after a blow, {least:.0f} at least")
    return done
