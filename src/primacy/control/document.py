"""The state document: what one node knows, in the words of every screen. Made from its status, and decides nothing."""

from __future__ import annotations

from typing import Any

from primacy import __version__
from primacy.control import API, NodeStatus
from primacy.control.cluster import addr_of, cluster, heard_ms, known_nodes
from primacy.control.members import file_differs, untold
from primacy.control.when import instant
from primacy.election.model import Role
from primacy.settings import membership_rows


def document(status: NodeStatus) -> dict[str, Any]:
    """`GET /v1/state`."""
    settings, view = status.settings, status.view
    return {
        "api": API,
        "version": __version__,
        "cluster": settings.cluster.name,
        "election": settings.election.name,
        "node": status.node,
        **_place(status),
        "strategy": settings.election.strategy,
        "mode": settings.election.mode,
        "role": str(view.role),
        "term": view.term,
        "voted_for": view.voted_for or None,
        "leader": view.leader or None,
        "token": view.token or None,
        "hold_left_ms": view.hold_left_ms,
        "waits_for": view.waits_for or None,
        "workload": _workload(status),
        "health": status.health,
        "containment": status.containment or None,
        "members": _members(status),
        "nodes": [_row(status, name, kind) for name, kind in known_nodes(status) if name != status.node],
        "counters": dict(sorted(status.counters.items())),
    }


def cluster_document(status: NodeStatus) -> dict[str, Any]:
    """`GET /v1/cluster`."""
    return {**cluster(status), "members": _members(status)}


def _members(status: NodeStatus) -> dict[str, Any] | None:
    """Their version, what a change waits for, and what the file says otherwise; `/v1/members` has the whole."""
    register = status.register
    if register is None:
        return None
    return {
        "version": register.id.version,
        "term": register.id.term,
        "waits_for": status.view.change or None,
        "removed_untold": list(untold(status)),
        "asking": [{"node": node, "host": host} for node, host in status.asking],
        "file": file_differs(status) or None,
    }


def _place(status: NodeStatus) -> dict[str, Any]:
    """What the list says of the node itself, as the rows say it of the others."""
    kinds = {name: kind for name, kind, _ in status.listed or membership_rows(status.settings)}
    return {"kind": kinds.get(status.node, "voter"), "addr": addr_of(status, status.node)}


def acts_as_leader(status: NodeStatus) -> bool:
    """It leads, its hold lasts if the strategy has one, and its work runs: what a load balancer wants to know."""
    running = status.workload.kind == "none" or status.workload.state == "running"
    holds = status.view.hold_left_ms > 0 or not status.at_most_one
    return status.view.role is Role.LEADER and holds and running


def is_ready(status: NodeStatus) -> bool:
    """It takes part and knows who leads: what must be so of one node before the next one is restarted. It does not end,
    and has not just started without the memory that its vote needs."""
    taking_part = status.view.role not in (Role.STARTING, Role.RECOVERING, Role.CANDIDATE)
    return taking_part and bool(status.view.leader) and not status.ending


def _workload(status: NodeStatus) -> dict[str, Any]:
    """`since` belongs to a run: a workload that has none has no beginning either."""
    workload = status.workload
    has_run = workload.since_ms and workload.state in ("starting", "running")
    since = instant(status.wall_ms - (status.now_ms - workload.since_ms)) if has_run else None
    return {
        "kind": workload.kind,
        "state": str(workload.state),
        "since": since,
        "pid": workload.pid or None,
        "containment": workload.containment,
        "way": workload.way or None,
    }


def _row(status: NodeStatus, name: str, kind: str) -> dict[str, Any]:
    """Another node in short, as it said itself; `/v1/cluster` has the whole."""
    heard = status.others.get(name)
    said = heard.summary if heard is not None else None
    return {
        "node": name,
        "kind": kind,
        "addr": addr_of(status, name),
        "heard_ms": heard_ms(status, name),
        "role": said.role if said is not None else "leader" if name == status.view.leader else None,
        "leader": (said.leader or None) if said is not None else None,
        "workload": said.workload_state if said is not None else None,
    }
