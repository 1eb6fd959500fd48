"""Who judges a trial of placement. They see facts in true time, and are written without the code that they judge.

Each is named by its rule (docs/rules.md, W). `GRACE_MS`: what a node may take to hear of something.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from primacy.placement.model import Placement
from primacy.sim.placement.facts import Facts

GRACE_MS = 2_000
LEARN_MS = 700
"""And to hear who leads, in clear conditions."""
UNHEARD_MS = 5_000
"""What a node said before counts for so long at most, where its words are lost or late."""
URGENT = ("drain", "only", "unable")
CALM_MOVES = 3
"""Handovers per election after the last disturbance, failed ones included: one puts it right, one may be needless."""
SKEWED_MOVES = 9
"""Of one election, for which the files of two nodes say different things, in a trial of ten minutes (W6)."""
FAILURES_MAX = 20
"""Of one election's handovers, in a trial of nine minutes: the pause between two grows to half a minute."""
QUIET_MS = 100_000
"""Before the end nothing moves any more."""


def judge(facts: Facts) -> list[str]:
    found = [*_aside(facts), *_one_at_a_time(facts), *_unsteady(facts), *_disturbed(facts), *_maintenance(facts)]
    if facts.kind == "skewed":
        return found + _back_and_forth(facts)
    if facts.kind == "stuck":
        return found + _not_waited_for(facts)
    found += [*_led(facts), *_bounded(facts), *_first(facts)]
    found += [*_misplaced(facts), *_avoided(facts), *_together(facts), *_preferred(facts), *_above(facts)]
    return found + _even(facts)


def _aside(facts: Facts) -> list[str]:
    """W2: no campaign of a node that is drained, or that `only` does not name."""
    placements, found = dict(facts.placements), []
    drained: dict[str, int] = {}
    events = sorted(
        [(h.at_ms, 0, h.what, h.node, "") for h in facts.happened if h.what in ("drain", "undrain")]
        + [(led.at_ms, 1, led.how, led.node, led.election) for led in facts.led if led.how != "lost"]
    )
    for at_ms, _, what, node, election in events:
        if what == "drain":
            drained[node] = at_ms
        elif what == "undrain":
            drained.pop(node, None)
        elif node in drained and at_ms - drained[node] > GRACE_MS:
            found.append(f"W2: {node} leads {election} by a {what} at {at_ms}, and is drained")
        elif (only := placements[election].only) and node not in only and facts.kind != "skewed":
            found.append(f"W2: {node} leads {election} by a {what} at {at_ms}, and is not in its only")
    return found


def _one_at_a_time(facts: Facts) -> list[str]:
    """W4: where gossip is neither lost nor late, no two handovers at one moment."""
    moves = sorted(facts.moves)
    if not facts.clear:
        return []
    return [
        f"W4: {second.election} moves at {second.began_ms}, while {first.election} does"
        for first, second in pairwise(moves)
        if second.began_ms < first.ended_ms
    ]


def _unsteady(facts: Facts) -> list[str]:
    """W5: nothing that could stay moves to a node that came up a moment ago."""
    found = []
    for move in facts.moves:
        starts = [h.at_ms for h in facts.happened if (h.what, h.node) == ("start", move.to) and h.at_ms < move.began_ms]
        if starts and GRACE_MS <= move.began_ms - starts[-1] < facts.settle_ms and move.reason not in URGENT:
            found.append(f"W5: {move.election} moves to {move.to} {move.began_ms - starts[-1]} ms after its start")
    return found


def _disturbed(facts: Facts) -> list[str]:
    """W4: nothing that could stay moves soon after a node started, or after an election was won anew; judged where
    gossip is neither lost nor late, and before an operator asked for a rebalance."""
    asked_ms = min((h.at_ms for h in facts.happened if h.what == "rebalance"), default=facts.end_ms)
    if not facts.clear:
        return []
    known = [(h.at_ms, GRACE_MS, f"{h.node} started") for h in facts.happened if h.what == "start"]
    known += [(led.at_ms, LEARN_MS, f"{led.node} won {led.election}") for led in facts.led if led.how == "campaign"]
    return [
        f"W4: {move.election} moves at {move.began_ms}, {move.began_ms - at_ms} ms after {what}"
        for move in facts.moves
        if move.reason not in URGENT and move.began_ms < asked_ms
        for at_ms, grace_ms, what in known
        if grace_ms <= move.began_ms - at_ms < facts.disturb_ms
    ]


def _maintenance(facts: Facts) -> list[str]:
    """W7: no automatic handover while an operator works on the cluster, unless he asks for it. An end that lasts no
    longer than gossip may be late is none: what was asked for before it goes on."""
    found, since, asked, over_ms = [], -1, False, -UNHEARD_MS
    spans: list[tuple[int, int]] = []
    for h in facts.happened:
        if h.what == "maintenance":
            asked = asked and h.at_ms - over_ms < UNHEARD_MS
            since = -1 if asked else h.at_ms
        elif h.what in ("maintenance over", "rebalance") and since >= 0:
            spans.append((since, h.at_ms))
            since = -1
        asked = asked or h.what == "rebalance"
        over_ms = h.at_ms if h.what == "maintenance over" else over_ms
    for move in facts.moves:
        if move.reason not in URGENT and any(b + GRACE_MS < move.began_ms < e for b, e in spans):
            found.append(f"W7: {move.election} moves at {move.began_ms}, in maintenance")
    return found


def _back_and_forth(facts: Facts) -> list[str]:
    """W6: also where two nodes never agree, an election rests longer and longer."""
    counted = Counter(move.election for move in facts.moves if move.ok)
    return [f"W6: {name} moved {count} times" for name, count in sorted(counted.items()) if count > SKEWED_MOVES]


def _not_waited_for(facts: Facts) -> list[str]:
    """W4: where the first node cannot hand over, the others do; and it does not try all the time (W6)."""
    loads = Counter(node for _, node in facts.last)
    second, third = facts.nodes[1][0], facts.nodes[2][0]
    found = []
    if abs(loads[second] - loads[third]) > 1:
        found.append(
            f"W4: {second} leads {loads[second]} and {third} {loads[third]}: they wait for {facts.nodes[0][0]}"
        )
    tries = Counter(move.election for move in facts.moves if not move.ok)
    most = max(tries.values(), default=0)
    return [*found, f"W6: one handover failed {most} times"] if most > FAILURES_MAX else found


def _bounded(facts: Facts) -> list[str]:
    """W6: few handovers after the last disturbance, then none."""
    after = [move for move in facts.moves if move.began_ms >= facts.calm_ms]
    found = []
    if len(after) > CALM_MOVES * len(facts.placements):
        found.append(f"W6: {len(after)} handovers of {len(facts.placements)} elections in calm")
    late = [move for move in after if move.began_ms > facts.end_ms - QUIET_MS]
    return found + [f"W6: {move.election} moves at {move.began_ms}, long after all was calm" for move in late]


def _first(facts: Facts) -> list[str]:
    """W8: what a lost node led is even at once, before anything moves: in trials in which one node is lost and nothing
    else is asked for."""
    if facts.kind != "loss":
        return []
    lost_ms = min(h.at_ms for h in facts.happened if h.what == "kill")
    moves = [move for move in facts.moves if lost_ms <= move.began_ms < facts.calm_ms]
    return [f"W8: {move.election} had to move at {move.began_ms}" for move in moves]


def _led(facts: Facts) -> list[str]:
    able = dict(facts.able)
    return [f"W8: nobody leads {name}" for name, node in facts.last if not node and able[name]]


def _misplaced(facts: Facts) -> list[str]:
    """W9, W2: what a node should not lead has left it, where another may."""
    able = dict(facts.able)
    return [f"W9: {node} still leads {name}" for name, node in facts.last if able[name] and node not in able[name]]


def _free(facts: Facts) -> bool:
    """No election wishes for what counts more than `prefer`."""
    return not any(p.avoid or p.together or p.capacity for _, p in facts.placements)


def _pairs(facts: Facts, kind: str) -> list[tuple[str, str]]:
    known = dict(facts.placements)
    return [
        (name, other) for name, p in facts.placements for other in getattr(p, kind) if other in known and other != name
    ]


def _avoided(facts: Facts) -> list[str]:
    """W3: a pair shares a node only if each of the two meets another one that it avoids wherever it may go."""
    led, able = dict(facts.last), dict(facts.able)
    near: dict[str, set[str]] = {}
    for name, other in _pairs(facts, "avoid"):
        near.setdefault(name, set()).add(other)
        near.setdefault(other, set()).add(name)
    found = []
    for name, other in _pairs(facts, "avoid"):
        if led[name] != led[other] or not led[name]:
            continue
        for mover in (name, other):
            crowded = {led[one] for one in near[mover]}
            if any(node not in crowded for node in able[mover]) and not _has(facts, mover, "together"):
                found.append(f"W3: {name} and {other} share {led[name]}, and {mover} could leave it")
    return found


def _has(facts: Facts, name: str, kind: str) -> bool:
    return any(name in pair for pair in _pairs(facts, kind))


def _together(facts: Facts) -> list[str]:
    """W3: a pair is apart only if no node may lead both; judged where nothing is avoided."""
    led, able = dict(facts.last), dict(facts.able)
    if any(p.avoid for _, p in facts.placements):
        return []
    group = _groups(facts)
    found = []
    for name, other in _pairs(facts, "together"):
        everywhere = [node for node in able[name] if all(node in able[one] for one in group[name])]
        if led[name] != led[other] and everywhere:
            found.append(
                f"W3: {name} is led by {led[name]} and {other} by {led[other]}, and {everywhere} may lead both"
            )
    return found


def _groups(facts: Facts) -> dict[str, list[str]]:
    group = {name: [name] for name, _ in facts.placements}
    for name, other in _pairs(facts, "together"):
        if group[name] is not group[other]:
            merged = group[name] + group[other]
            group.update(dict.fromkeys(merged, merged))
    return group


def _preferred(facts: Facts) -> list[str]:
    """W3: the first of `prefer` that may lead it does; judged where nothing else is wished for."""
    able, found = dict(facts.able), []
    for name, node in facts.last:
        wanted = [one for one in dict(facts.placements)[name].prefer if one in able[name]]
        if wanted and node != wanted[0] and _free(facts):
            found.append(f"W3: {node} leads {name}, which prefers {wanted[0]}")
    return found


def _above(facts: Facts) -> list[str]:
    """W3: a node leads more than an election there wants, while something without a capacity could leave for a node
    that has nothing with one; judged where capacity is the only wish."""
    if not all(p._replace(capacity=0) == Placement() for _, p in facts.placements):
        return []
    led: dict[str, list[str]] = {}
    for name, node in facts.last:
        led.setdefault(node, []).append(name)
    capacities, able = {name: p.capacity for name, p in facts.placements}, dict(facts.able)
    free = [node for node in facts.up if not any(capacities[name] for name in led.get(node, []))]
    found = []
    for node, names in sorted(led.items()):
        least = min((capacities[name] for name in names if capacities[name]), default=0)
        could = [name for name in names if not capacities[name] and any(to in able[name] for to in free)]
        if least and len(names) > least and could:
            found.append(f"W3: {node} leads {len(names)}, one with a capacity of {least}; {could[0]} could leave")
    return found


def _even(facts: Facts) -> list[str]:
    """W3: within one of even, by weights: judged where nothing else is wished for and all that count may lead all."""
    if not all(p == Placement() for _, p in facts.placements) or not facts.last:
        return []
    ables = {nodes for _, nodes in facts.able}
    if len(ables) != 1:
        return []
    weights = {node: weight for node, weight in facts.nodes if node in next(iter(ables))}
    whole = sum(weights.values())
    loads = Counter(node for _, node in facts.last)
    if not whole:
        return []
    found = []
    for node, weight in sorted(weights.items()):
        share = len(facts.last) * weight / whole
        if abs(loads[node] - share) >= (1 if len(set(weights.values())) == 1 else 1.5):
            found.append(f"W3: {node} leads {loads[node]} of {len(facts.last)}, its share is {share:.2f}")
    return found
