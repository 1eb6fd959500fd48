"""From a request to an input of the election, or to the sentence that refuses it. Pure.

What the election itself would silently ignore (a step-down of a node that does not lead) is refused here, with the
command that would do it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from primacy.control import AgentPort, Approve, MonitorSays, NodeStatus, Order, Remove
from primacy.control.audit import DONE, NOT_RECORDED, REFUSED, asked_of, entry_of
from primacy.control.cluster import addr_of, known_nodes
from primacy.control.eventlog import EventLog
from primacy.control.members import BY_CHARS_MAX, only, request_of
from primacy.control.summary import Summary
from primacy.election.events import Code
from primacy.election.inputs import Init, Input, Pause, Rejoin, Resume, StepDown
from primacy.election.model import Kind, Role
from primacy.errors import Later, PrimacyError, Refused, UsageError
from primacy.settings import has_peers, membership_rows
from primacy.settings.accepted import NAME_PATTERN, SPAN_MS_MAX
from primacy.settings.checks import is_newcomer

TO_LEADER = ("step-down", "transfer", "remove", "members")
TO_NODE = ("pause", "resume", "approve")
PASSED = (*TO_LEADER, *TO_NODE)
"""Orders that a node takes from another one, for its operator: by its role, or named in `node`."""
NAMED = ("step-down", "transfer", "pause", "resume")
"""Orders whose `by` says who asked for them: nodes before 0.2 did not take it."""
NAMES_MAX = 64
"""Nodes that one order may name: no list of voters is longer."""
DETAIL_CHARS_MAX = 200
FRESH_MS = 3_000
"""How old a node's last word about itself may be for it to count as heard: it says one every second."""


def target_of(name: str, body: dict[str, Any], status: NodeStatus) -> str:
    """The other node that this order is for; empty if it is for this one. Raises `UsageError` for one not listed."""
    if status.settings.election.strategy == "lease" and not has_peers(status.settings):
        return _on_a_lease(name, body, status)
    listed = [each for each, _, _ in status.listed or membership_rows(status.settings)]
    if name in TO_LEADER:
        leads = status.view.role is Role.LEADER or status.view.leader not in listed
        return "" if leads or status.view.leader == status.node else status.view.leader
    node = body.get("node")
    if name not in TO_NODE or node is None or node == status.node:
        return ""
    if node not in listed:
        raise UsageError(f"node = {str(node)[:80]}: no node of this cluster; there are {', '.join(listed)}")
    return str(node)


def _on_a_lease(name: str, body: dict[str, Any], status: NodeStatus) -> str:
    """Nodes on a lease without a list look at a store and do not speak to each other: no order can be passed on."""
    node = body.get("node")
    if name in TO_NODE and node not in (None, status.node):
        raise Refused(
            f"this is node {status.node}; nodes on a lease do not speak to each other: say it on {str(node)[:80]}"
        )
    return ""


async def carry_out(name: str, body: dict[str, Any], port: AgentPort, events: EventLog, said_at: str = "") -> None:
    """Does it on this node. `said_at`: the node that passed it on. Raises `UsageError` or `Refused`."""
    try:
        await _carry_out(name, body, port, events, said_at)
    except PrimacyError as error:
        _record(name, body, port, events, said_at, str(error))
        raise
    _record(name, body, port, events, said_at)


async def _carry_out(name: str, body: dict[str, Any], port: AgentPort, events: EventLog, said_at: str) -> None:
    before, status = events.newest, port.status()
    given = order_of(name, body, status)
    if name == "transfer":  # not of placement, whose order of campaigns leads to the same node
        _must_have_begun(status, str(body["to"]))
    await port.order(given, _told_by(name, body, said_at or status.node, said_at))
    for entry in events.after(before):
        if entry.code in (Code.INIT_REFUSED, Code.MEMBERS_REFUSED) and entry.node == port.status().node:
            raise Later(entry.text) if entry.value else Refused(entry.text)


def _record(
    name: str, body: dict[str, Any], port: AgentPort, events: EventLog, said_at: str, refusal: str = ""
) -> None:
    """What another node passed on; its own trail names who asked. What is asked here is recorded with its sender."""
    if said_at and name not in NOT_RECORDED:
        status = port.status()
        where, origin = (status.node, status.settings.election.name), f"node {said_at}"
        outcome = REFUSED if refusal else DONE
        who = str(body.get("by") or f"somebody at node {said_at}")
        events.audit.add(entry_of(status.wall_ms, who, origin, where, asked_of(name, body), outcome, refusal))


def order_of(name: str, body: dict[str, Any], status: NodeStatus) -> Order:
    """Raises `UsageError` for a request that makes no sense, `Refused` for one that cannot be done now."""
    if status.ending:
        raise Refused(f"node {status.node} is stopping and takes no orders any more")
    by_name = name == "transfer" and has_peers(status.settings)
    recovers = name == "rejoin" and status.view.role is Role.RECOVERING  # its configuration has changed (M1)
    on_a_lease = status.settings.election.strategy == "lease"
    if on_a_lease and name in NOT_ON_A_LEASE and not by_name and not recovers:
        raise Refused(NOT_ON_A_LEASE[name])
    if status.settings.election.strategy in ("bully", "ring") and name in NOT_RANKED:
        raise Refused(NOT_RANKED[name])
    if status.settings.election.strategy != "raft" and name in ("init", "rejoin", "members") and not recovers:
        raise Refused(
            f"{name} is about the ballots of raft, and election.strategy is {status.settings.election.strategy}"
        )
    return ORDERS[name](body, status)


NOT_RANKED = {
    "init": "a node that joins nobody begins a cluster by itself; there is nothing to init",
    "rejoin": "bully and ring remember nothing for each other; a node that is gone for good: primacy remove NODE",
}
NOT_ON_A_LEASE = {
    "remove": "nodes on a lease are on no list; one that is not started takes no part",
    "transfer": "a lease goes to the node that takes it first, and its nodes do not speak to each other, so that none "
    "can be named (unless cluster.manager.nodes and cluster.secret_file are given); primacy step-down on the node that "
    "leads lets the others go first",
    "init": "a lease needs no first start: its row in the store is made by the first node that uses the name",
    "rejoin": "this node on a lease waits for nobody's memory; there is nothing to rejoin",
}


def _step_down(body: dict[str, Any], status: NodeStatus) -> Input:
    only(body, "by")
    reason = _asked(body)
    _must_lead(status, "step-down")
    return StepDown(reason=reason)


def _transfer(body: dict[str, Any], status: NodeStatus) -> Input:
    only(body, "to", "by")
    to, reason = body.get("to"), _asked(body)
    if not isinstance(to, str) or not to:
        raise UsageError('to: the name of a node, {"to": "b"}')
    kinds = dict(known_nodes(status))
    if to not in kinds:
        raise UsageError(f"to = {to[:80]}: no node of this cluster; there are {', '.join(kinds)}")
    _must_lead(status, f"transfer {to}")
    if to == status.node:
        raise Refused(f"node {to} leads already: there is nothing to transfer; to elect again: primacy step-down")
    if kinds[to] != Kind.VOTER:
        raise Refused(f"node {to} is a {kinds[to]}, and cannot lead")
    heard = status.others.get(to)
    on_lease = status.settings.election.strategy == "lease"  # which knows of no others by itself
    fresh = heard is not None and on_lease and status.now_ms - heard.at_ms <= FRESH_MS
    if to not in status.view.alive and not fresh:
        raise Refused(f"node {to} is not heard, and cannot take over; see: primacy status")
    if heard is not None and (why := unable(heard.summary)):
        raise Refused(f"node {to} {why}, and cannot take over; nothing was stopped")
    return StepDown(successor=to, reason=reason)


def _must_have_begun(status: NodeStatus, to: str) -> None:
    """A leader that is ending its work already takes no successor. One of raft hands the role over with the release of
    work that ran (G7); before that it could only resign, and any node would win. `Later` where it begins by itself."""
    node = status.node
    if status.workload.state in ("stopping", "stuck"):
        raise Refused(f"node {node} steps down already: when another node leads, say it again if that is not {to}")
    if status.settings.election.strategy != "raft" or not status.view.waits_for:
        return
    if status.approval_term:
        raise Refused(
            f"node {node} waits for an approval and has nothing to hand over: first primacy approve {node} --term "
            f"{status.approval_term}, then transfer. Or let the others elect, without a start on {node}: "
            f"primacy pause {node}"
        )
    raise Later(
        f"node {node} leads, and has nothing to hand over before its work has started: it waits for "
        f"{status.view.waits_for}; then say it again, or primacy step-down, and any node may win"
    )


def _asked(body: dict[str, Any]) -> str:
    return f"{_by(body) or 'an operator'} asked for it"


def _by(body: dict[str, Any]) -> str:
    """Who asks, by their own word."""
    by = body.get("by", "")
    if not isinstance(by, str) or len(by) > BY_CHARS_MAX or not by.isprintable():
        raise UsageError(f"by: a name of at most {BY_CHARS_MAX} characters")
    return by


def _told_by(name: str, body: dict[str, Any], where: str, said_at: str) -> str:
    """Where an order was said, and by whom if that is known."""
    by = body.get("by") if name in NAMED else ""
    return f"{where}, by {by}" if by else said_at


def _remove(body: dict[str, Any], status: NodeStatus) -> Order:
    only(body, "node")
    node = body.get("node")
    if not isinstance(node, str) or not node:
        raise UsageError('node: the name of a node, {"node": "b"}')
    if not status.listed or status.settings.cluster.manager.type == "static":
        raise Refused("nodes do not join this cluster by themselves; of raft, say: primacy members remove NODE")
    names = [name for name, _, _ in status.listed]
    if node not in names:
        raise UsageError(f"node = {node[:80]}: no node of this cluster; there are {', '.join(names)}")
    if node == status.node:
        raise Refused(f"node {node} leads: let another one lead first (primacy step-down), then remove it")
    _must_lead(status, f"remove {node}")
    return Remove(node)


def _members(body: dict[str, Any], status: NodeStatus) -> Input:
    if status.register is None:
        waits = status.view.waits_for or "its first start"
        raise Refused(f"node {status.node} has no members yet: it waits for {waits}")
    if body.get("verb") != "force":
        _must_lead(status, "members")
    return request_of(body, status.register, status.wall_ms)


def unable(said: Summary) -> str:
    """Why a node that is heard would not stand, in its own words; the work must not be stopped for it in vain."""
    if said.role == Role.PAUSED:
        return "is paused (primacy resume) or stopping"
    if said.role == Role.RECOVERING:
        return f"is recovering: it waits for {said.waits_for}"
    return f"is not well: {said.health}" if said.health != "ok" else ""


def _pause(body: dict[str, Any], status: NodeStatus) -> Input:
    _for_this_node(body, status)
    return Pause()


def _resume(body: dict[str, Any], status: NodeStatus) -> Input:
    _for_this_node(body, status)
    return Resume()


def _init(body: dict[str, Any], status: NodeStatus) -> Input:
    only(body, "without")
    joins = status.settings.cluster.first_start == "join"
    if joins or is_newcomer(status.settings):
        why = "cluster.first_start is join" if joins else f"{status.node} is not in the file's list"
        raise Refused(
            f"{why}: node {status.node} begins no cluster; on a node of it, say: primacy members add {status.node} "
            f"--addr {addr_of(status, status.node) or 'HOST:PORT'}"
        )
    without = _without(body, status)
    listed = [name for name, _, _ in membership_rows(status.settings)]
    awaited = status.view.waits_for.replace(",", " ").split()  # of an earlier list, which only this node's disk knows
    for name in without:
        if name not in listed and name not in awaited:
            raise UsageError(f"without = {name}: no node of this cluster; there are {', '.join(listed)}")
    return Init(status.wall_ms, without)


def _rejoin(body: dict[str, Any], status: NodeStatus) -> Input:
    """The names may be of an older list, which only the ballots know."""
    only(body, "without", "others_stopped")
    without, others_stopped = _without(body, status), body.get("others_stopped", False)
    if not isinstance(others_stopped, bool):
        raise UsageError("others_stopped: true, if all that used the lease of before are stopped")
    if not without and not others_stopped:
        raise UsageError('without: the nodes that are gone for good, {"without": ["c"]}')
    if status.view.role is not Role.RECOVERING:
        raise Refused(f"node {status.node} is not recovering and waits for nobody's memory; there is nothing to rejoin")
    return Rejoin(without, others_stopped)


def _approve(body: dict[str, Any], status: NodeStatus) -> Order:
    """Names node and term, so that what was decided for one leadership never starts another (G8)."""
    only(body, "node", "term", "by")
    node, term, by = body.get("node"), body.get("term"), _by(body)
    if not isinstance(node, str) or type(term) is not int or term < 1:
        raise UsageError('node and term: what is approved, {"node": "a", "term": 7}')
    if status.settings.election.mode != "manual":
        raise Refused("election.mode is automatic: nothing waits for an approval")
    if node != status.node:
        raise Refused(f"this is node {status.node}; an approval of node {node[:80]} is given there")
    if not status.approval_term:
        waits = f"; it waits for {status.view.waits_for}" if status.view.waits_for else ""
        raise Refused(f"node {node} does not wait for an approval{waits}")
    if term != status.approval_term:
        raise Refused(
            f"node {node} waits for an approval of term {status.approval_term}, not {term}: "
            f"primacy approve {node} --term {status.approval_term}"
        )
    return Approve(term, by or "a holder of the control key")


def _health(body: dict[str, Any], status: NodeStatus) -> Order:  # noqa: ARG001
    only(body, "ok", "detail", "monitor", "within_ms")
    ok, detail, monitor = body.get("ok"), body.get("detail", ""), body.get("monitor", "monitor")
    if not isinstance(ok, bool):
        raise UsageError('ok: whether this node is well, {"ok": false, "detail": "why", "monitor": "name"}')
    if not isinstance(detail, str) or len(detail) > DETAIL_CHARS_MAX or not detail.isprintable():
        raise UsageError(f"detail: a sentence of at most {DETAIL_CHARS_MAX} characters")
    if not isinstance(monitor, str) or not re.fullmatch(NAME_PATTERN, monitor):
        raise UsageError("monitor: a name of letters, digits, dots, dashes or underscores, at most 63")
    within_ms = body.get("within_ms", 0)
    if type(within_ms) is not int or not 0 <= within_ms <= SPAN_MS_MAX:
        raise UsageError(f"within_ms: a whole number of milliseconds, at most {SPAN_MS_MAX:,}; 0 for no promise")
    return MonitorSays(monitor, ok, detail, within_ms)


ORDERS: dict[str, Callable[[dict[str, Any], NodeStatus], Order]] = {
    "step-down": _step_down,
    "transfer": _transfer,
    "remove": _remove,
    "pause": _pause,
    "resume": _resume,
    "approve": _approve,
    "health": _health,
    "init": _init,
    "rejoin": _rejoin,
    "members": _members,
}
"""`POST /v1/NAME`."""


def _for_this_node(body: dict[str, Any], status: NodeStatus) -> None:
    only(body, "node", "by")
    _by(body)
    node = body.get("node", status.node)
    if node != status.node:
        raise UsageError(f"node = {str(node)[:80]}: this is node {status.node}")


def _must_lead(status: NodeStatus, command: str) -> None:
    if status.view.role is Role.LEADER:
        return
    leader = status.view.leader
    if leader and leader != status.node:
        raise Refused(f"node {status.node} does not lead, {leader} does; there, say: primacy {command}")
    waits = f"; it waits for {status.view.waits_for}" if status.view.waits_for else ""
    raise Refused(f"node {status.node} does not lead, and knows of nobody who does{waits}; see: primacy status")


def _without(body: dict[str, Any], status: NodeStatus) -> tuple[str, ...]:
    names = body.get("without", [])
    if not isinstance(names, list) or len(names) > NAMES_MAX:
        raise UsageError('without: a list of names of nodes, ["c"]')
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
            raise UsageError(f"without: {str(name)[:40]!r} is no name of a node")
        if name == status.node:
            raise UsageError(f"without = {name}: that is this node itself")
    return tuple(sorted(set(names)))
