"""The state document: what one node knows, in the words of every screen. Made from a snapshot, and decides nothing."""

from __future__ import annotations

from typing import Any

from primacy import __version__
from primacy.control import API, Snapshot
from primacy.control.cluster import addr_of, heard_ms, known_nodes
from primacy.control.when import instant
from primacy.election.model import Role


def document(shot: Snapshot) -> dict[str, Any]:
    """`GET /v1/state`."""
    settings, view = shot.settings, shot.view
    return {
        "api": API,
        "version": __version__,
        "cluster": settings.cluster.name,
        "election": settings.election.name,
        "node": shot.node,
        **_place(shot),
        "strategy": settings.election.strategy,
        "mode": settings.election.mode,
        "role": str(view.role),
        "term": view.term,
        "voted_for": view.voted_for or None,
        "leader": view.leader or None,
        "token": view.token or None,
        "hold_left_ms": view.hold_left_ms,
        "waits_for": view.waits_for or None,
        "workload": _workload(shot),
        "health": shot.health,
        "containment": shot.containment or None,
        "nodes": [_row(shot, name, kind) for name, kind in known_nodes(shot) if name != shot.node],
        "counters": dict(sorted(shot.counters.items())),
    }


def _place(shot: Snapshot) -> dict[str, Any]:
    """What the list says of the node itself, as the rows say it of the others."""
    listed = shot.settings.cluster.manager.nodes.get(shot.node)
    return {"kind": listed.kind if listed else "voter", "addr": addr_of(shot, shot.node)}


def acts_as_leader(shot: Snapshot) -> bool:
    """It leads, its hold lasts if the strategy has one, and its work runs: what a load balancer wants to know."""
    running = shot.workload.kind == "none" or shot.workload.state == "running"
    holds = shot.view.hold_left_ms > 0 or not shot.at_most_one
    return shot.view.role is Role.LEADER and holds and running


def _workload(shot: Snapshot) -> dict[str, Any]:
    """`since` belongs to a run: a workload that has none has no beginning either."""
    workload = shot.workload
    has_run = workload.since_ms and workload.state in ("starting", "running")
    since = instant(shot.wall_ms - (shot.now_ms - workload.since_ms)) if has_run else None
    return {
        "kind": workload.kind,
        "state": str(workload.state),
        "since": since,
        "pid": workload.pid or None,
        "containment": workload.containment,
        "way": workload.way or None,
    }


def _row(shot: Snapshot, name: str, kind: str) -> dict[str, Any]:
    """Another node in short, as it said itself; `/v1/cluster` has the whole."""
    heard = shot.others.get(name)
    said = heard.summary if heard is not None else None
    return {
        "node": name,
        "kind": kind,
        "addr": addr_of(shot, name),
        "heard_ms": heard_ms(shot, name),
        "role": said.role if said is not None else "leader" if name == shot.view.leader else None,
        "leader": (said.leader or None) if said is not None else None,
        "workload": said.workload_state if said is not None else None,
    }
