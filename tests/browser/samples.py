"""What `samples.js` saw: for how long the page was green for a node, and when it could not show anything new.

A page shows what is so as soon as its server has told it and its browser has drawn it. Chromium's processes and the
server may be late while a canary, which needs next to nothing, is on time. So the sampler notes each time in which no
frame was drawn, or an answer of the server was late. A goal that was missed is void where that explains it, and only
there; whatever else is missed is judged as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.canary import VOIDS, Canary

if TYPE_CHECKING:
    from playwright.sync_api import Page

SAMPLES = Path(__file__).with_name("samples.js").read_text()
Sample = dict[str, Any]
Stood = Sequence[Sequence[float]]
"""From when to when, in ms since 1970; they may overlap."""


class Green(NamedTuple):
    """The page named this node as holder, in green, without a break."""

    node: str
    from_ms: float
    to_ms: float
    """The first frame that showed something else; of the last one the last frame."""


def shown(page: Page) -> list[Sample]:
    """All samples; the page has drawn at least one frame since this was called."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found: list[Sample] = page.evaluate("() => window.samples")
    return found


def stood(page: Page) -> list[list[float]]:
    found: list[list[float]] = page.evaluate("() => window.stood()")
    return found


def greens(samples: Sequence[Sample]) -> list[Green]:
    """In their order. What is counted in the strip changes every second: that is one green, not many."""
    found: list[Green] = []
    is_on = False
    for place, one in enumerate(samples):
        is_green = one["holder"] == "ok"
        if is_green:
            to_ms = samples[place + 1]["at"] if place + 1 < len(samples) else one["until"]
            goes_on = is_on and found[-1].node == one["node"]
            from_ms = found.pop().from_ms if goes_on else one["at"]
            found.append(Green(one["node"], from_ms, to_ms))
        is_on = is_green
    return found


def stood_ms(when: Stood, from_ms: float, to_ms: float, least_ms: float) -> float:
    """For how much of this time the page stood still, in pieces of more than `least_ms`."""
    total, reached_ms = 0.0, from_ms
    for began_ms, ended_ms in sorted((began, ended) for began, ended in when if ended - began > least_ms):
        total += max(0.0, min(ended_ms, to_ms) - max(began_ms, reached_ms))
        reached_ms = max(reached_ms, ended_ms)
    return total


def soon(took: tuple[float, float], goal_ms: float, when: Stood, what: str, canary: Canary) -> None:
    """`took`: from when to when something went on that was to end within the goal. Void where the page stood still for
    so long meanwhile, in pieces that would make a canary late, that it explains what is too much; or beside a late
    canary. Never safety."""
    took_ms = took[1] - took[0]
    still_ms = stood_ms(when, *took, canary.late_ms)
    said = f"{what}: {took_ms:.0f} ms, goal {goal_ms:g} ms"
    if took_ms > goal_ms and took_ms - still_ms <= goal_ms:
        VOIDS.append(f"{said}; the page stood still for {still_ms:.0f} ms of it")
        return
    canary.judge(took_ms <= goal_ms, f"{said}, for {still_ms:.0f} ms of which the page stood still")
