"""How long nobody may follow a leader that fell silent without a release, and how that is measured.

A voter grants nothing within P of the newest heartbeat that it acked (Q4). The last heartbeat that left before the blow
was heard by all others, so that each majority of them waits for P from then, however late anybody is from then on. A
command before that would be one that did not wait. How old that heartbeat is when the blow falls:

    one heartbeat, for the next one was not due yet
    + what the leader's loop was late with the next one. How late its machine was at most is what the canary says: its
      largest lateness, and one of its naps more, for what can hide between two wakes
    + half a heartbeat for what a canary cannot see: that the leader alone was late

So the bound follows from what the canary measured. Beyond half a heartbeat of lateness the measurement is void. Whether
two ran at once is another question: it is judged always, from the stamps.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from primacy.settings.timing import Timing
from tests.support.canary import Canary
from tests.support.real_nodes import Crowd, Handover, Node

HEARTBEATS_BEFORE = 3
"""So many are watched before the blow: the last one that left was on time, and the next one is."""
NAPS = 4
"""Of the canary, in one heartbeat."""


def least_ms(timing: Timing, late_ms: float) -> float:
    """At most half a heartbeat late, with four naps in a heartbeat: P - 2 1/4 heartbeats at least, P - 1 3/4 on a calm
    machine."""
    return timing.promise_ms - 1.5 * timing.heartbeat_ms - late_ms - timing.heartbeat_ms / NAPS


@contextlib.contextmanager
def heartbeats_watched(timing: Timing) -> Iterator[Canary]:
    """Strike inside, at once: only what is late before that can make the last heartbeat older."""
    with Canary(timing.heartbeat_ms / NAPS, late_ms=timing.heartbeat_ms / 2) as canary:
        time.sleep(HEARTBEATS_BEFORE * timing.heartbeat_ms / 1_000)
        yield canary


def waited(timing: Timing, canary: Canary, took_ms: float, what: str) -> None:
    """From the blow to the next command, in a silence without a release."""
    least = least_ms(timing, canary.worst_ms)
    canary.judge(least < took_ms, f"{what}: {took_ms:.0f} ms without a command, {least:.0f} at least")


def moves_away(crowd: Crowd, harm: Callable[[Node], object], lost: Callable[[str], str]) -> Handover:
    """The next command runs on none of those that are lost with the struck one (itself among them).

    An election that was under way at the blow may still be won by one of these, if a machine stood still before it:
    that one keeps it no longer than the struck one. Else none of these is elected at all.
    """
    with contextlib.ExitStack() as watched:
        canary = watched.enter_context(heartbeats_watched(crowd.timing))

        def struck(node: Node) -> None:
            harm(node)
            watched.close()

        done = crowd.strike(struck)
    names = lost(done.struck.name)
    crowd.elsewhere(names)
    canary.judge(done.new.node not in names, f"{done.new.node} runs the command, and {names} are lost")
    return done


def outwaits_the_hold(crowd: Crowd, harm: Callable[[Node], object]) -> Handover:
    """Nobody releases: the next one waits. That somebody runs is the rule, not when."""
    with contextlib.ExitStack() as watched:
        canary = watched.enter_context(heartbeats_watched(crowd.timing))

        def struck(node: Node) -> None:
            harm(node)
            watched.close()

        done = crowd.strike(struck)
    waited(crowd.timing, canary, done.took_ms, "a blow")
    return done
