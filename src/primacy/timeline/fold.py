"""From the events of a cluster to its timeline. Pure: the same events give the same timeline.

What nobody reported is not filled in: a run whose end was not confirmed is sure up to the last moment at which it is
known to have run, and from there on it *may* have gone on. So no overlap is claimed there, and no gap either. An end
that was reported late is no better: an agent that was frozen reports the end of its command when it wakes up, and its
guard had ended it before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from primacy.timeline.clocks import TOKENS_FROM, Log, Span, clocks_of, own, same_machine
from primacy.timeline.far_off import far_words, near, near_of_each
from primacy.timeline.lab_faults import LAB, LabFault, lab_faults, restarted
from primacy.timeline.overlap import gaps, overlaps
from primacy.timeline.schema import (
    CONFIRMED,
    NETWORK,
    OPEN,
    UNKNOWN,
    Decision,
    Fault,
    Hold,
    Link,
    Node,
    Role,
    Run,
    Signature,
    Timeline,
    Told,
    Violation,
)

NODES_MAX = 64
"""Lanes. No list of voters is longer."""
EVENTS_MAX = 8_000
"""The newest: as many as one answer of a node's history has (6,000), with what stood before and after them."""
MARGIN_MS = 1_000
"""Drawn before the first event, so that it does not stand on the edge."""
ROLES: dict[str, str] = {
    "started": "starting",
    "recovering": "recovering",
    "recovered": "follower",
    "campaigns": "candidate",
    "elected": "leader",
    "lease-taken": "leader",
    "follows": "follower",
    "leader-silent": "follower",
    "leader-left": "follower",
    "majority-lost": "follower",
    "higher-term": "follower",
    "term-ahead": "follower",
    "step-down": "follower",
    "transfer": "follower",
    "paused": "paused",
    "unhealthy": "follower",
    "stopping": "down",
    "cannot-start": "follower",
    "guard-lost": "follower",
    "renewal-late": "follower",
    "lease-lost": "follower",
    "outranked": "follower",
    "removed": "down",
    "work-ended": "follower",
    "released": "follower",
    "token-low": "follower",
}
"""What a node is after an event of its own."""
NOT_KNOWN = "unknown"
"""In place of a role: nobody heard the node, or another leads by now."""
KEEPS = ("paused", "down", "recovering")
"""Roles that a loss does not end: who is paused loses the lead as well."""
LOSSES = frozenset(code for code, role in ROLES.items() if role == "follower") - {"follows", "recovered"}
RUN = re.compile(r"run (\d+)")
RELEASE = re.compile(r" takes the release by (.+) \(term \d+\)")
CUT = re.compile(r"(with|from|to) ([^\s,]+)(?:,|$)")
CUT_BEFORE = re.compile(r"(\S+) (both|in|out)(?:,|$)")
"""As agents of before said it."""
WAYS = {"with": "both", "from": "in", "to": "out"}
RUNNING, STOPPING, GONE, STARTED = "running", "stopping", "gone", "started"
LINKS, GUARD_LOST, RELEASED = "links", "guard-lost", "release-applied"
Holds = dict[tuple[str, int], list[tuple[int, int]]]
"""By node and token: from and to, of each hold that was heard."""
SAID_MS = 100
"""A statement may be older than its reader believes by this much: it was on its way, or was gathered by a lab."""


class Facts(NamedTuple):
    """What is known beside the events."""

    now_ms: int
    """On the axis: where what still lasts ends."""
    title: str = ""
    kind: str = "incident"
    at_most_one: bool = True
    names: Sequence[str] = ()
    """Nodes that have a lane although they said nothing."""
    acting: Mapping[str, int] = {}
    """Who is shown as acting, and when, on the axis, it said so: up to then it is sure, from then on it may be over."""
    silent: Mapping[str, int] | None = None
    """Nodes that are not heard any more, and since when, on the axis."""
    token_base: int = 0
    """Of raft: what is added to a term; 0: not known."""
    reads: Mapping[str, Span] | None = None
    one_machine: bool = False
    """All nodes read one clock: a lab."""
    logs: Sequence[Log] = ()
    holds: Sequence[tuple[str, int, int, int]] = ()
    """(node, from, to, token), on the axis."""
    chain: Sequence[tuple[int, str, int, int]] = ()
    """(at, node, token, gap), on the axis."""
    notes: Sequence[str] = ()


def timeline_of(told: Sequence[Told], facts: Facts) -> Timeline:
    """All that the events tell."""
    once = list(dict.fromkeys(told))  # two logs may have the same event
    likely = near_of_each(once, facts.now_ms)
    kept = frozenset(likely)
    newest = sorted(likely, key=lambda one: one.at_unix_ms)[-EVENTS_MAX:]
    names = _names(newest, facts)
    if facts.one_machine:
        nodes, set_note = same_machine(names), ""
    else:
        logs = [(reader, [one for one in log if one in kept]) for reader, log in facts.logs]
        nodes, set_note = clocks_of(names, newest, facts.reads, logs)
    offset = {node.name: node.offset_ms for node in nodes}
    on_axis = [one._replace(at_unix_ms=round(one.at_unix_ms - offset.get(one.node, 0.0))) for one in newest]
    events = sorted(near(on_axis, facts.now_ms), key=lambda one: one.at_unix_ms)
    far = [*(set(once) - kept), *(set(on_axis) - set(events))]
    end_ms = max([facts.now_ms, *(one.at_unix_ms for one in events[-1:])])
    place = {name: at for at, name in enumerate(names)}
    started: dict[str, list[int]] = {}
    for one in events:
        if one.code == STARTED:
            started.setdefault(one.node, []).append(one.at_unix_ms)
    faults = [restarted(fault, started.get(fault.node, ())) for fault in lab_faults(events, end_ms)]
    runs = _runs(events, place, faults, facts, end_ms)
    found = overlaps(runs, nodes)
    words = [
        Violation(each.from_ms, "overlap", f"{names[each.node]} and {names[each.other]} ran at the same time")
        for each in found
        if facts.at_most_one
    ]
    left = len(likely) - len(newest)
    return Timeline(
        title=facts.title,
        kind=facts.kind,
        axis="unix",
        from_ms=(events[0].at_unix_ms if events else end_ms) - MARGIN_MS,
        to_ms=end_ms,
        nodes=nodes,
        at_most_one=facts.at_most_one,
        roles=_roles(events, place, faults, facts, end_ms),
        runs=runs,
        holds=[Hold(place[node], since, to, token) for node, since, to, token in facts.holds if node in place],
        faults=[Fault(place.get(each.node, NETWORK), each.from_ms, each.to_ms, each.text) for each in faults],
        decisions=[
            Decision(one.at_unix_ms, place.get(one.node, NETWORK), one.code, _named(one), one.term) for one in events
        ],
        links=_links(events, place, end_ms),
        chain=[Signature(at, place[node], token, gap) for at, node, token, gap in facts.chain if node in place],
        overlaps=found,
        gaps=gaps(runs, nodes),
        violations=words,
        left_out=[*([f"{left:,} older events"] if left else []), *far_words(far)],
        notes=[each for each in (*facts.notes, set_note, _clock_note(nodes)) if each],
    )


def _names(events: Sequence[Told], facts: Facts) -> list[str]:
    """Of a lab's own events the node is the one that they are about, or nobody."""
    said = {one.node for one in events if one.code != LAB}
    return sorted({*facts.names, *said} - {""})[:NODES_MAX]


def _named(one: Told) -> str:
    return one.text if own(one) or one.code == LAB else f"{one.node}: {one.text}"


def _clock_note(nodes: Sequence[Node]) -> str:
    unsure = [node.name for node in nodes if node.uncertainty_ms is None]
    if not unsure:
        return ""
    one = len(unsure) == 1
    return (
        f"How far the {'clock' if one else 'clocks'} of {', '.join(unsure)} {'is' if one else 'are'} off is not known: "
        f"no overlap with {'it' if one else 'them'} is claimed."
    )


# --- roles ------------------------------------------------------------------------------------------------------------


def _roles(
    events: Sequence[Told], place: Mapping[str, int], faults: Sequence[LabFault], facts: Facts, end_ms: int
) -> list[Role]:
    changes: dict[str, list[tuple[int, str, int]]] = {}
    for one in events:
        role = ROLES.get(one.code, "")
        if role and one.node in place and own(one):
            changes.setdefault(one.node, []).append((one.at_unix_ms, f"{role} {one.code}", one.term))
    for fault in faults:
        if fault.what in ("stopped", "killed", "restarted"):
            changes.setdefault(fault.node, []).append((fault.from_ms, "down", 0))
    leads = [one for one in events if ROLES.get(one.code) == "leader" and own(one)] if facts.at_most_one else []
    found: list[Role] = []
    for node, rows in changes.items():
        if node in place:
            in_order = sorted(rows, key=lambda row: row[0])
            said_ms = [at_ms for at_ms, said, _ in in_order if said != f"starting {STARTED}"]
            silent_ms = (facts.silent or {}).get(node, end_ms)
            others = [one for one in leads if one.node != node]
            frozen = [fault for fault in faults if fault.node == node and fault.what == "frozen"]
            for band in _bands(place[node], in_order, end_ms):
                found += _as_known(band, said_ms, others, frozen, silent_ms, end_ms)
    return sorted(found)


def _as_known(
    band: Role,
    said_ms: Sequence[int],
    leads: Sequence[Told],
    frozen: Sequence[LabFault],
    silent_ms: int,
    end_ms: int,
) -> tuple[Role, ...]:
    """A node that was killed says nothing, nor does one that a lab froze, until it is thawed. It is no leader for ever:
    once another leads later, that is not known."""
    until_ms: float = band.to_ms
    if band.role == "leader":
        later = [one.at_unix_ms for one in leads if one.term > band.term and one.at_unix_ms >= band.from_ms]
        if band.to_ms in said_ms:  # else the agent began anew, or nothing came since
            later = [at_ms for at_ms in later if any(each.from_ms <= at_ms <= each.to_ms for each in frozen)]
        until_ms = min([until_ms, *later])
    if band.to_ms == end_ms and band.role != "down":
        until_ms = min(until_ms, max(silent_ms, band.from_ms))
    if until_ms >= band.to_ms:
        return (band,)
    rest = Role(band.node, until_ms, band.to_ms, NOT_KNOWN)
    return (band._replace(to_ms=until_ms), rest) if until_ms > band.from_ms else (rest,)


def _bands(node: int, rows: Sequence[tuple[int, str, int]], end_ms: int) -> list[Role]:
    """Spans of one role in one term, one after the other."""
    found: list[Role] = []
    for place, (at_ms, said, term) in enumerate(rows):
        to_ms = rows[place + 1][0] if place + 1 < len(rows) else end_ms
        role, _, code = said.partition(" ")
        before = found[-1] if found else None
        if before is not None and before.role in KEEPS and code in LOSSES:
            role = before.role
        if before is not None and (before.role, before.term) == (role, term or before.term):
            found[-1] = before._replace(to_ms=to_ms)
        else:
            found.append(Role(node, at_ms, to_ms, role, term))
    return [band for band in found if band.to_ms > band.from_ms]


# --- runs -------------------------------------------------------------------------------------------------------------


def _runs(
    events: Sequence[Told], place: Mapping[str, int], faults: Sequence[LabFault], facts: Facts, end_ms: int
) -> list[Run]:
    """A run is known to go on at its start, at a renewal, when it is told to end, and up to an end reported in time."""
    found: list[Run] = []
    current: dict[str, Run] = {}
    killed_by_ms: dict[str, int] = {}
    terms: dict[str, int] = {}
    holds: Holds = {}
    for node, since, to, token in facts.holds:
        holds.setdefault((node, token), []).append((since, to))

    def close(node: str, at_ms: float, end: str) -> None:
        run = current.pop(node, None)
        if run is not None:
            in_time = end == CONFIRMED and at_ms <= killed_by_ms.get(node, 0)
            said_ms = facts.acting.get(node, 0) - SAID_MS if end == OPEN else 0
            renewed_ms = _renewed(node, run, at_ms, holds)
            sure_ms = at_ms if in_time else max(run.sure_ms, said_ms, renewed_ms)
            sure_ms = min(at_ms, _awake(node, run, sure_ms, renewed_ms, faults))
            found.append(run._replace(to_ms=at_ms, sure_ms=sure_ms, end=CONFIRMED if end == RELEASED else end))

    for one in events:
        if one.node not in place or one.code == LAB:
            continue
        if one.code == RUNNING and not own(one):
            close(one.node, one.at_unix_ms, UNKNOWN)
            current[one.node] = _begun(place[one.node], one, facts.token_base)
            killed_by_ms.pop(one.node, None)
            terms[one.node] = one.term
        elif one.code == STOPPING and not own(one) and one.node in current and one.value > 0:
            killed_by_ms[one.node] = one.at_unix_ms + one.value
            current[one.node] = current[one.node]._replace(sure_ms=one.at_unix_ms)
        elif one.code == RELEASED and (found_by := RELEASE.search(one.text)) is not None:
            # Of an agent that was killed, its guard says so to the others: nothing is left, since when nobody knows.
            whom = found_by[1]
            if terms.get(whom) == one.term and whom in current and current[whom].from_ms < one.at_unix_ms:
                close(whom, one.at_unix_ms, RELEASED)
        elif one.code == GONE and not own(one):
            close(one.node, one.at_unix_ms, CONFIRMED)
        elif (one.code == STARTED or (one.code == GUARD_LOST and not own(one))) and one.node in current:
            until_ms = _may_run_until(one.node, current[one.node], [one.at_unix_ms], holds)
            close(one.node, until_ms, UNKNOWN)
    for node, run in tuple(current.items()):
        if node in facts.acting:
            close(node, end_ms, OPEN)
        else:
            later = [other.from_ms for other in (*found, *current.values()) if other.from_ms > run.from_ms]
            close(node, _may_run_until(node, run, [*later, end_ms], holds), UNKNOWN)
    return sorted(found, key=lambda run: (run.from_ms, run.node))


def _renewed(node: str, run: Run, at_ms: float, holds: Holds) -> float:
    """The newest renewal of its hold that was heard while it ran."""
    heard = [since for since, _ in holds.get((node, run.token), ())]
    return max((since for since in heard if run.from_ms < since <= at_ms), default=run.from_ms)


def _awake(node: str, run: Run, sure_ms: float, renewed_ms: float, faults: Sequence[LabFault]) -> float:
    """Of a node that a lab froze nothing is sure from then on, unless it renewed its hold after it was thawed."""
    frozen = [fault for fault in faults if fault.node == node and fault.what == "frozen"]
    lasting = [fault.from_ms for fault in frozen if run.from_ms < fault.from_ms and fault.to_ms >= renewed_ms]
    return min([sure_ms, *lasting])


def _begun(node: int, one: Told, token_base: int) -> Run:
    number = RUN.search(one.text)
    token = one.term if one.term >= TOKENS_FROM else token_base + one.term if token_base else 0
    return Run(node, one.at_unix_ms, one.at_unix_ms, token, int(number[1]) if number else 0, one.at_unix_ms)


def _may_run_until(node: str, run: Run, later: Sequence[float], holds: Holds) -> float:
    """The end of its hold if that is known, else what came next."""
    held = [to for since, to in holds.get((node, run.token), ()) if since > run.from_ms]
    return max(held) if held else min(later)


# --- links ------------------------------------------------------------------------------------------------------------


def _links(events: Sequence[Told], place: Mapping[str, int], end_ms: int) -> list[Link]:
    found: list[Link] = []
    current: dict[str, Link] = {}
    for one in [*events, *(Told(end_ms, name, 0, LINKS, "") for name in place)]:
        if one.code != LINKS or one.node not in place:
            continue
        before = current.pop(one.node, None)
        if before is not None and one.at_unix_ms > before.from_ms:
            found.append(before._replace(to_ms=one.at_unix_ms))
        _, _, said = one.text.partition(" has its links cut: ")
        ways = [(name, WAYS[way]) for way, name in CUT.findall(said)] or CUT_BEFORE.findall(said)
        cut = tuple((place[name], way) for name, way in ways if name in place)
        if cut:
            current[one.node] = Link(place[one.node], one.at_unix_ms, one.at_unix_ms, cut)
    return found
