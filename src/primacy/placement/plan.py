"""The next handover that makes the assignment better, and the whole list of them (W3).

Elections that belong together move one after the other; what is compared is the state when all have arrived. Where
no single move helps, a chain of them may: the last link moves first, so that no node is fuller than before.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from primacy.placement.assignment import NOTHING, Assignment, Cost
from primacy.placement.model import ElectionSeen, Step, View, why_not

STEPS_MAX = 4
"""Steps of a plan per election. The sums fall with each; this is only a bound on a plan's length."""


class Allowed(NamedTuple):
    """What may move where, beside what the view says."""

    resting: tuple[str, ...] = ()
    """Elections that moved not long ago: they move only where they have to (W6)."""
    unsteady: tuple[str, ...] = ()
    """Nodes that came up not long ago: nothing moves there, unless it has to and can go nowhere else (W5)."""
    urgent_only: bool = False
    """Only what has to leave its node."""
    leaves: str = ""
    """Only what this node leads; empty: whatever is best."""


def next_step(view: View, allowed: Allowed | None = None) -> Step | None:
    """The same for all who see the same: it depends on nothing but its arguments."""
    return _next(Assignment(view), allowed or Allowed())


def plan(view: View) -> tuple[Step, ...]:
    """All steps from here, one after the other, as if each went well."""
    assignment, found = Assignment(view), []
    for _ in range(STEPS_MAX * len(view.elections)):
        step = _next(assignment, Allowed())
        if step is None:
            break
        assignment.put(step.election, step.to)
        found.append(step)
    return tuple(found)


def stays(view: View, node: str) -> tuple[tuple[str, str], ...]:
    """What this node leads and can hand over to nobody, with the reason: of each other node one."""
    found = []
    for seen in view.elections:
        if seen.leader != node:
            continue
        reasons = [(other.node, why_not(seen, other)) for other in view.nodes if other.node != node]
        if all(why for _, why in reasons):
            found.append((seen.name, "; ".join(f"{name} {why}" for name, why in reasons) or "there is no other node"))
    return tuple(found)


def _next(assignment: Assignment, allowed: Allowed) -> Step | None:
    best: tuple[Cost, tuple[str, ...], str] | None = None
    for unit in _units(assignment):
        if allowed.leaves and any(assignment.at[name] != allowed.leaves for name in unit):
            continue
        for node in assignment.nodes:
            change = _allowed_change(assignment, allowed, unit, node)
            if change < NOTHING and (best is None or (change, unit, node) < best):
                best = (change, unit, node)
    if best is not None:
        _, unit, node = best
        name = next(name for name in unit if assignment.at[name] != node)
        return Step(name, assignment.at[name], node, _reason(assignment, best[0], name))
    return None if allowed.urgent_only else _chain(assignment, allowed)


def _units(assignment: Assignment) -> list[tuple[str, ...]]:
    """Elections that one node should lead, where one can; all others alone. None without a leader."""
    found: list[tuple[str, ...]] = []
    done: set[str] = set()  # only asked for membership, never walked
    for name in assignment.at:
        if name in done:
            continue
        unit, ahead = [name], [name]
        while ahead:
            for other in assignment.together.get(ahead.pop(), ()):
                if other not in unit:
                    unit.append(other)
                    ahead.append(other)
        done.update(unit)
        members = tuple(sorted(unit))
        led = all(each in assignment.at for each in members)
        possible = led and any(all(assignment.may(each, node) for each in members) for node in assignment.nodes)
        found.extend([members] if possible else [(each,) for each in members if each in assignment.at])
    return found


def _allowed_change(assignment: Assignment, allowed: Allowed, unit: tuple[str, ...], node: str) -> Cost:
    """`NOTHING` for what is not allowed now."""
    if all(assignment.at[name] == node for name in unit):
        return NOTHING
    if not all(assignment.may(name, node) for name in unit):
        return NOTHING
    change = assignment.change(unit, node)
    if change[0] < 0:  # it has to leave: a node that lasts is better, but any that may lead it will do
        steady = node not in allowed.unsteady or not any(
            all(assignment.may(name, other) for name in unit)
            for other in assignment.nodes
            if other not in allowed.unsteady
        )
        return change if steady else NOTHING
    rests = any(name in allowed.resting for name in unit if assignment.at[name] != node)
    if allowed.urgent_only or node in allowed.unsteady or rests:
        return NOTHING
    if not any(change[:5]) and not all(assignment.elections[name].placement.spread for name in unit):
        return NOTHING
    return change


def _chain(assignment: Assignment, allowed: Allowed) -> Step | None:
    """An election on a full node may go only to another full one, whose election may go on to an empty one."""
    loads = {node: len(names) for node, names in assignment.led.items()}
    for first in sorted(loads, key=lambda node: (-loads[node] * assignment.scale[node], node)):
        came: dict[str, tuple[str, str]] = {}
        ahead = deque([first])
        while ahead:
            here = ahead.popleft()
            for name, node in _neutral(assignment, allowed, here):
                if node == first or node in came:
                    continue
                came[node] = (here, name)
                ahead.append(node)
                gain = (2 * loads[first] - 1) * assignment.scale[first]
                if (2 * loads[node] + 1) * assignment.scale[node] < gain:
                    # The last link alone must not make it worse: the way back would look like a gain.
                    is_its_turn = here == allowed.leaves or not allowed.leaves
                    if is_its_turn and assignment.change((name,), node) <= NOTHING:
                        return Step(name, here, node, "spread")
    return None


def _neutral(assignment: Assignment, allowed: Allowed, here: str) -> list[tuple[str, str]]:
    """What could leave this node, and for where, if only the spread counted. The first for each node."""
    found: dict[str, str] = {}
    for name in sorted(assignment.led[here]):
        seen: ElectionSeen = assignment.elections[name]
        if name in allowed.resting or not seen.placement.spread or name in assignment.together:
            continue
        for node in assignment.nodes:
            if node == here or node in found or node in allowed.unsteady or not assignment.may(name, node):
                continue
            if assignment.change((name,), node)[:5] == NOTHING[:5]:
                found[node] = name
    return [(name, node) for node, name in sorted(found.items())]


def _reason(assignment: Assignment, change: Cost, name: str) -> str:
    """Why the whole of it is better; of an election that has to leave its node, why it has to."""
    if change[0] < 0:
        seen, node = assignment.elections[name], assignment.nodes[assignment.at[name]]
        if seen.placement.only and node.node not in seen.placement.only:
            return "only"
        return "drain" if node.drained else "unable"
    reasons = ("avoid", "with", "capacity", "prefer", "spread")
    return next(reason for reason, part in zip(reasons, change[1:], strict=True) if part < 0)
