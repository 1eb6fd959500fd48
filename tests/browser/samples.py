"""What `samples.js` saw: for how long the page was green for a node, and when it could not show anything new.

A page shows what is so as soon as its server has told it and its browser has drawn it. Chromium's processes and the
server may be late while a canary, which needs next to nothing, is on time. So the sampler notes each time in which no
frame was drawn, or an answer of the server was late. A goal that was missed is void where that explains it, and only
there; whatever else is missed is judged as ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from primacy.settings.timing import PROFILES
from tests.support.canary import VOIDS, Canary
from tests.support.safety_checks import safe

if TYPE_CHECKING:
    from playwright.sync_api import Page

SAMPLES = Path(__file__).with_name("samples.js").read_text()
Sample = dict[str, Any]
Signature = dict[str, Any]
Stood = Sequence[Sequence[float]]
"""From when to when, in ms since 1970; they may overlap."""
HEARTBEAT_MS = PROFILES["fast"].heartbeat_ms
SETTLED_MS = 700
"""Around a change of the holder the chain and the page may differ: two looks, and a signature on its way."""
SIGNS_MS = 100
"""The signer of a lab signs at this interval: the chain knows of a gap only by so much."""
STARTS_MS = 300
"""From the start of a signer to its first signature, and from its last one to the report that nothing of it is left."""
FIRST_MS = 5_000
"""So long after an election the first signature of its winner is looked for."""
NOBODY = "obody runs the command"
GAP = re.compile(r"nobody ran for ([\d,]+) ms")


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


def judged(samples: list[Sample], signatures: list[Signature], still: Stood, canary: Canary) -> None:
    """What the strip said at each moment, beside what the chain says; the canary has ended.

    Never two, never green without a holder, and whom it named as holder signed. Void is only what is explained by a
    page that stood still: it names the old one for so long. That it says in time who runs the command, and for how long
    nobody did, is judged beside the canary.
    """
    for sample in samples:
        safe(len(sample["acts"]) <= 1, f"two are shown as acting: {sample}")
        safe(len(sample["leaders"]) <= 1, f"two are shown as leaders: {sample}")
        safe(sample["holder"] != "ok" or sample["acts"] == [sample["node"]], f"green without a holder: {sample}")
        safe(sample["level"] != "ok" or sample["holder"] == "ok", f"a good page without a holder: {sample}")
    for green in greens(samples):
        for each in signatures:
            at_ms, within_ms = each["at_unix_ms"], green.to_ms - each["at_unix_ms"]
            if each["node"] == green.node or at_ms < green.from_ms + SETTLED_MS or within_ms < SETTLED_MS:
                continue
            said = f"{green.node} is shown as holder for {within_ms:.0f} ms more while {each['node']} signs"
            still_ms = stood_ms(still, at_ms, green.to_ms, HEARTBEAT_MS / 2)
            safe(within_ms - still_ms < SETTLED_MS, f"{said}; the page stood still for {still_ms:.0f} ms of it")
            VOIDS.append(f"{said}; the page stood still for {still_ms:.0f} ms of it")
    for began_ms, ended_ms in denied(samples, signatures):
        soon((began_ms, ended_ms), SETTLED_MS, still, "the strip says that nobody runs what signs", canary)
    for shown_ms, chain_ms, sample in gaps(samples, signatures):
        near = chain_ms is not None and chain_ms - SIGNS_MS - STARTS_MS <= shown_ms <= chain_ms + SIGNS_MS
        canary.judge(near, f"the chain says {chain_ms} ms, the strip {shown_ms} ms: {sample['change'][:40]}")


def denied(samples: Sequence[Sample], signatures: Sequence[Signature]) -> Iterator[tuple[float, float]]:
    """From when to when the chain signed in one go while the strip said that nobody runs the command."""
    spans: list[list[float]] = []
    for place, one in enumerate(samples):
        if NOBODY in one["said"]:
            to_ms = samples[place + 1]["at"] if place + 1 < len(samples) else one["until"]
            if spans and spans[-1][1] == one["at"]:
                spans[-1][1] = to_ms
            else:
                spans.append([one["at"], to_ms])
    for from_ms, to_ms in spans:
        within = [each["at_unix_ms"] for each in signatures if from_ms <= each["at_unix_ms"] <= to_ms]
        began_ms = within[0] if within else 0
        for before_ms, at_ms in pairwise([*within, to_ms + FIRST_MS]):
            if at_ms - before_ms > STARTS_MS:
                yield began_ms, before_ms
                began_ms = at_ms


def gaps(samples: Sequence[Sample], signatures: Sequence[Signature]) -> Iterator[tuple[int, int | None, Sample]]:
    """Each gap that the strip showed, and that of the chain: from the last signature before to the winner's first. None
    if no other began to sign."""
    handovers = [after for before, after in pairwise(signatures) if before["token"] != after["token"]]
    seen: set[tuple[float, str]] = set()
    for sample in samples:
        said, at_ms = GAP.search(sample["change"]), sample["changed"]
        if said is None or (key := (at_ms, said[1])) in seen:
            continue
        seen.add(key)
        first = next((each for each in handovers if 0 <= each["at_unix_ms"] - at_ms <= FIRST_MS), None)
        yield int(said[1].replace(",", "")), first and first["gap_ms"], sample
