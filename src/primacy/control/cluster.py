"""`GET /v1/cluster`: all nodes as one of them knows them, each with the age of what it said; and alerts.

A claim to run the command is a word of the past: `acting.py` decides what may be shown of it. Only a node that *still*
claimed it after another had started is an alert.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from primacy.control import API, Heard, NodeStatus
from primacy.control.acting import ACTS, CLAIM_MS, Acting, Rules, Statement, not_known, overtaken, rules_of, shown_as
from primacy.control.earlier import DOUBLED as EARLIER_DOUBLED
from primacy.control.summary import CONFIG_BYTES, Summary, summary_of
from primacy.control.when import instant
from primacy.election.model import DOUBLED, Kind
from primacy.settings import is_ranked, membership_rows, rank_timing_of, timing_of
from primacy.settings.timing import Timing

FRESH_MS = 5_000
"""Older news say nothing about what a node is now."""


def cluster(status: NodeStatus) -> dict[str, Any]:
    """The document."""
    settings = status.settings
    shown = acting_of(status)
    return {
        "api": API,
        "cluster": settings.cluster.name,
        "election": settings.election.name,
        "strategy": settings.election.strategy,
        "at_most_one": status.at_most_one,
        "mode": settings.election.mode,
        "seen_from": status.node,
        "at": instant(status.wall_ms),
        "nodes": [_row(status, name, kind, shown) for name, kind in known_nodes(status)],
        "acting": sorted(name for name, acts in shown.items() if acts is Acting.ACTS),
        "not_known": _not_known(status, shown) or None,
        "alerts": alerts(status),
    }


def known_nodes(status: NodeStatus) -> list[tuple[str, str]]:
    """Those of the list with their kinds, then whoever else was heard of: the holder of a lease."""
    rows = status.listed or membership_rows(status.settings)
    listed = [(name, kind) for name, kind, _ in rows]
    if not any(name == status.node for name, _ in listed):
        listed.insert(0, (status.node, str(Kind.VOTER)))  # not added yet, or removed: it says why it takes no part
    if status.listed:  # one that was removed is not shown any more, but by itself
        return listed
    names = {name for name, _ in listed}
    return listed + [(name, str(Kind.VOTER)) for name in sorted(status.others) if name not in names]


def addr_of(status: NodeStatus, node: str) -> str | None:
    """What others dial to reach it; None if that is not known."""
    listed = next((addr for name, _, addr in status.listed if name == node), "")
    fixed = status.settings.cluster.manager.nodes.get(node)
    return listed or (fixed.addr if fixed is not None else None)


# --- who acts ---------------------------------------------------------------------------------------------------------


def statements(status: NodeStatus) -> list[Statement]:
    """What each node said of itself last, this one included."""
    kinds = dict(known_nodes(status))
    said = [_statement(status.node, summary_of(status), status.now_ms, status.now_ms)]
    for name, heard in sorted(status.others.items()):
        heard_at_ms = status.now_ms - (heard_ms(status, name) or 0)
        said.append(_statement(name, heard.summary, heard.at_ms, heard_at_ms))
    silent = [
        Statement(name, heard_ms=None if (age := heard_ms(status, name)) is None else status.now_ms - age)
        for name in kinds
        if name != status.node and name not in status.others
    ]
    return [each._replace(votes=kinds.get(each.node) != Kind.OBSERVER) for each in [*said, *silent]]


def _statement(node: str, summary: Summary, said_ms: int, heard_at_ms: int) -> Statement:
    return Statement(
        node=node,
        state=summary.workload_state,
        said_ms=said_ms,
        heard_ms=heard_at_ms,
        began_ms=said_ms - max(0, summary.run_ms),
        token=summary.token,
        hold_ms=summary.hold_left_ms,
        leader=summary.leader,
    )


def acting_of(status: NodeStatus) -> dict[str, Acting]:
    """By node, what may be shown of its command."""
    return shown_as(statements(status), status.now_ms, _rules(status))


def _not_known(status: NodeStatus, shown: dict[str, Acting]) -> str:
    return not_known(status.node, statements(status), shown, status.now_ms, _rules(status))


def _rules(status: NodeStatus) -> Rules:
    settings = status.settings
    if is_ranked(settings):
        return rules_of(settings.election.strategy, rank_timing_of(settings).heartbeat_ms, 0, 0)
    timing = timing_of(settings)
    if not isinstance(timing, Timing):
        return rules_of(settings.election.strategy, timing.heartbeat_ms, 0, 0)
    return rules_of(settings.election.strategy, timing.heartbeat_ms, timing.term_at_ms, timing.hold_ms)


def claims(status: NodeStatus) -> list[Statement]:
    """Who says that it acts, without those that a later start shows to be over, and without old ones."""
    found = [each for each in statements(status) if each.state in ACTS and each.said_ms is not None]
    found = [each for each in found if status.now_ms <= (each.said_ms or 0) + max(each.hold_ms, CLAIM_MS)]
    return [one for one in found if not any(overtaken(one, other) for other in found)]


# --- alerts -----------------------------------------------------------------------------------------------------------


def alerts(status: NodeStatus) -> list[str]:
    """Sentences, each with the next command."""
    found = []
    for one, other in combinations(claims(status), 2):
        older = min(one, other, key=lambda claim: (claim.token, claim.began_ms))
        found.append(_both(status, one.node, other.node, older.node))
    found += [
        f"node {name} is recovering, for another node runs with its id, or its disk is a copy: stop one of the "
        "two, then restart the other"
        for name, waits_for in _waiting(status)
        if waits_for.startswith((DOUBLED, EARLIER_DOUBLED))
    ]
    found += [trouble.sentence for trouble in status.troubles if trouble.alert]
    heard_here = {trouble.node for trouble in status.troubles if trouble.alert}
    for name, heard in sorted(status.others.items()):
        if status.now_ms - heard.at_ms > FRESH_MS:
            continue
        for double in heard.summary.doubled:
            if double not in heard_here:
                heard_here.add(double)
                found.append(
                    f"node {name} hears two nodes that run with the id {double}: two have this id, or a disk was "
                    f"copied; stop one of them. On {name}, primacy status says where the other one is"
                )
        ours = [config[: 2 * CONFIG_BYTES] for config in (status.config, status.config_also) if config]
        if ours and heard.summary.config and heard.summary.config not in ours:
            found.append(
                f"node {name} runs with another configuration than {status.node} (nodes, times or election differ), "
                f"and they do not vote for each other: compare primacy check on both, then start {name} with the "
                "same file"
            )
    return found


def _both(status: NodeStatus, one: str, other: str, older: str) -> str:
    """Two act at once. Where one per island was promised, that breaks no promise, and ends by itself."""
    runs = {"none": "lead", "slots": "serve slots"}.get(status.workload.kind, "run the command")
    if not status.at_most_one:
        strategy = status.settings.election.strategy
        return (
            f"nodes {one} and {other} both {runs}: {strategy} has one leader in each part of a divided network. One of "
            "them gives way as soon as they hear each other; where two must never act at once, use raft or lease"
        )
    if status.workload.kind in ("none", "slots"):
        says = f"nodes {one} and {other} both say that they {runs}"
        return f"{says}. Pause the older one: primacy pause {older}; primacy why"
    return (
        f"nodes {one} and {other} both say that they run the command: it may run twice. Stop the older one: primacy "
        f"pause {older}; then see: primacy why"
    )


def _waiting(status: NodeStatus) -> list[tuple[str, str]]:
    """What each node waits for, itself first, as far as that is news."""
    fresh = {name: one.summary for name, one in sorted(status.others.items()) if status.now_ms - one.at_ms <= FRESH_MS}
    return [(status.node, status.view.waits_for), *((name, said.waits_for) for name, said in fresh.items())]


# --- one node ---------------------------------------------------------------------------------------------------------


def _row(status: NodeStatus, name: str, kind: str, shown: dict[str, Acting]) -> dict[str, Any]:
    trouble = next((each.sentence for each in status.troubles if each.node == name), None)
    row: dict[str, Any] = {"node": name, "kind": kind, "addr": addr_of(status, name)}
    if name == status.node:
        row |= {"heard_ms": 0, "told_ms": 0, **_said(status, summary_of(status), 0, status.boot)}
    else:
        heard = status.others.get(name)
        row |= {"heard_ms": heard_ms(status, name), **told(status, heard)}
    row |= {"acting": str(shown.get(name, Acting.UNKNOWN)), "trouble": trouble}
    if status.settings.control.lab and name == status.node:
        row["links"] = dict(status.links)
    return row


def heard_ms(status: NodeStatus, name: str) -> int | None:
    """Since anything was heard of it, or None."""
    ages = [status.heard_ms[name]] if name in status.heard_ms else []
    if name in status.others:
        ages.append(status.now_ms - status.others[name].at_ms)
    return max(0, min(ages)) if ages else None


def told(status: NodeStatus, heard: Heard | None) -> dict[str, Any]:
    """What another node says of itself, and how old that is."""
    if heard is None:
        return {"told_ms": None, **dict.fromkeys(SAID)}
    age_ms = max(0, status.now_ms - heard.at_ms)
    return {"told_ms": age_ms, **_said(status, heard.summary, age_ms, heard.boot)}


SAID = (
    "role",
    "term",
    "leader",
    "token",
    "hold_left_ms",
    "waits_for",
    "workload",
    "health",
    "version",
    "members",
    "boot",
)


def _said(status: NodeStatus, summary: Summary, age_ms: int, boot: int) -> dict[str, Any]:
    since = instant(status.wall_ms - age_ms - summary.run_ms) if summary.run_ms >= 0 else None
    return {
        "role": summary.role,
        "term": summary.term,
        "leader": summary.leader or None,
        "token": summary.token or None,
        "hold_left_ms": max(0, summary.hold_left_ms - age_ms),
        "waits_for": summary.waits_for or None,
        "workload": {
            "kind": summary.workload_kind,
            "state": summary.workload_state,
            "since": since,
            "pid": summary.pid or None,
            "containment": summary.containment,
        },
        "health": summary.health,
        "version": summary.version,
        "members": {"term": summary.members[0], "version": summary.members[1]} if summary.members[1] else None,
        "boot": f"{boot:x}",
    }
