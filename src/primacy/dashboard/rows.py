"""Documents from outside become rows of known form, or nothing. Pure.

What arrives over HTTP was written by somebody else: a wrong type is left out, a text has a bound, a list has a bound.
Nothing is escaped here, for nothing here becomes markup: the page sets text, never HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from primacy.control.earlier import current
from primacy.dashboard import NODES_MAX

NAME_CHARS_MAX = 80
TEXT_CHARS_MAX = 500
FILE_CHARS_MAX = 2_000
"""A sentence that names all members, and those of the file; its end is the remedy."""
ALERTS_MAX = 16
SIGNATURES_MAX = 50
AUDITED_MAX = 500
"""Requests of all nodes together."""


class Row(NamedTuple):
    """One event of one node, as every screen shows it."""

    at_unix_ms: int
    node: str
    term: int
    code: str
    text: str
    value: int = 0


class Audited(NamedTuple):
    """One request of the audit trail."""

    at_unix_ms: int
    who: str
    origin: str
    node: str
    election: str
    asked: str
    outcome: str
    why: str = ""


class Said(NamedTuple):
    """What one node says of itself, or what was last heard of it."""

    node: str
    kind: str = "voter"
    addr: str = ""
    heard_ms: int | None = None
    """Since anything was heard of it; 0: it answers itself. None: never."""
    told_ms: int | None = None
    """How old the rest is; None: it was never told, and is unknown."""
    role: str = ""
    term: int = 0
    leader: str = ""
    token: int = 0
    hold_left_ms: int = 0
    waits_for: str = ""
    trouble: str = ""
    """What others find wrong with it."""
    workload_kind: str = ""
    workload: str = ""
    since_unix_ms: int = 0
    pid: int = 0
    containment: str = ""
    health: str = ""
    version: str = ""
    members_version: int = 0
    """Of the members that it has; 0 for none."""
    cuts: tuple[tuple[str, str], ...] = ()
    """In the lab: (other node, both | in | out)."""


class Members(NamedTuple):
    """Which members a node has, and what a change of them waits for; empty if none is on its way."""

    term: int
    version: int
    waits_for: str = ""
    untold: tuple[str, ...] = ()
    """Who was removed and does not know it."""
    file: str = ""
    """How this node's file differs from them, and what to do; empty if it does not."""


class Cluster(NamedTuple):
    """One node's `/v1/cluster`."""

    cluster: str = ""
    election: str = ""
    strategy: str = ""
    mode: str = ""
    seen_from: str = ""
    rows: tuple[Said, ...] = ()
    alerts: tuple[str, ...] = ()
    at_most_one: bool = True
    """What the strategy promises; otherwise each part of a divided network has a leader."""
    members: Members | None = None
    """Where they are a register (raft)."""
    at_unix_ms: int = 0
    """What the clock of the node showed when it answered; 0: not told."""


class LabNode(NamedTuple):
    """A process of the lab."""

    node: str
    process: str
    """running | starting | frozen; without a process: stopped | killed | ended | restarting"""
    pid: int = 0
    said: Said | None = None
    """Its own state document; None if it does not answer."""
    kind: str = "voter"
    addr: str = ""
    """As the other nodes' list says: known of a node that never answered, too."""


class Lab(NamedTuple):
    """The lab supervisor's own document."""

    nodes: tuple[LabNode, ...] = ()
    cuts: tuple[tuple[str, str], ...] = ()
    """(from, to): what `from` sends does not reach `to`."""
    strategy: str = ""
    profile: str = ""


class Signature(NamedTuple):
    """One that the chain recorded."""

    number: int
    at_unix_ms: int
    node: str
    token: int
    height: int
    gap_ms: int
    """Since the one before."""


class Chain(NamedTuple):
    """What the outside saw, which is the only judge that counts."""

    seen: int = 0
    double_signatures: int = 0
    alerts: tuple[str, ...] = ()
    """A sentence for each double that is remembered."""
    newest: tuple[Signature, ...] = ()
    """Newest first."""


def text_of(value: object, most: int = TEXT_CHARS_MAX) -> str:
    return value[:most] if isinstance(value, str) else ""


def number_of(value: object) -> int:
    """A whole number that JavaScript can hold; 0 for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124
        return 0
    return int(value) if abs(value) < 2**53 else 0


def instant_of(value: object) -> int:
    """Unix milliseconds, from a number of them or from an ISO text."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1_000)
        except (ValueError, OverflowError):
            return 0
    return number_of(value)


def list_of(value: object, most: int) -> list[Any]:
    return value[:most] if isinstance(value, list) else []


def object_of(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def event_row(raw: object) -> Row | None:
    """An event of `/v1/events`."""
    found = object_of(current(raw))
    code = text_of(found.get("code"), NAME_CHARS_MAX)
    node = text_of(found.get("node"), NAME_CHARS_MAX) or ("lab" if code == "lab" else "")
    at_unix_ms = instant_of(found.get("at_unix_ms", found.get("at")))
    if not code or not node or at_unix_ms <= 0:
        return None
    text = text_of(found.get("text")) or code
    return Row(at_unix_ms, node, number_of(found.get("term")), code, text, number_of(found.get("value")))


def audit_row(raw: object) -> Audited:
    """A request of `/v1/audit`."""
    found = object_of(raw)
    words = (text_of(found.get(name)) for name in Audited._fields[1:])
    return Audited(number_of(found.get("at_unix_ms")), *words)


def cluster_of(raw: object) -> Cluster | None:
    """A document of `/v1/cluster`; None if it is none."""
    found = object_of(current(raw))
    if not isinstance(found.get("nodes"), list):
        return None
    rows = tuple(row for row in (_said(each) for each in list_of(found["nodes"], NODES_MAX)) if row is not None)
    alerts = tuple(text for text in map(text_of, list_of(found.get("alerts"), ALERTS_MAX)) if text)
    seen_from = text_of(found.get("seen_from"), NAME_CHARS_MAX)
    members = _members(object_of(found.get("members")))
    at_unix_ms = instant_of(found.get("at"))
    return _head(found)._replace(seen_from=seen_from, rows=rows, alerts=alerts, members=members, at_unix_ms=at_unix_ms)


def _members(found: Mapping[str, Any]) -> Members | None:
    version = number_of(found.get("version"))
    if not version:
        return None
    names = tuple(text_of(name, NAME_CHARS_MAX) for name in list_of(found.get("removed_untold"), NODES_MAX))
    file = text_of(found.get("file"), FILE_CHARS_MAX)
    return Members(number_of(found.get("term")), version, text_of(found.get("waits_for")), names, file)


def _said(raw: object) -> Said | None:
    found = object_of(raw)
    node = text_of(found.get("node"), NAME_CHARS_MAX)
    if not node:
        return None
    heard = found.get("heard_ms")
    told = found.get("told_ms", heard if found.get("role") is not None else None)
    workload, kind = object_of(found.get("workload")), text_of(found.get("kind"), NAME_CHARS_MAX)
    return Said(
        node=node,
        kind=kind or "voter",
        addr=text_of(found.get("addr"), NAME_CHARS_MAX),
        heard_ms=None if heard is None else max(0, number_of(heard)),
        told_ms=None if told is None else max(0, number_of(told)),
        role=text_of(found.get("role"), NAME_CHARS_MAX),
        term=number_of(found.get("term")),
        leader=text_of(found.get("leader"), NAME_CHARS_MAX),
        token=number_of(found.get("token")),
        hold_left_ms=max(0, number_of(found.get("hold_left_ms"))),
        waits_for=text_of(found.get("waits_for")),
        trouble=text_of(found.get("trouble")),
        workload_kind=text_of(workload.get("kind"), NAME_CHARS_MAX),
        workload=text_of(workload.get("state"), NAME_CHARS_MAX),
        since_unix_ms=instant_of(workload.get("since")),
        pid=number_of(workload.get("pid")),
        containment=text_of(workload.get("containment"), NAME_CHARS_MAX),
        health=text_of(found.get("health")),
        version=text_of(found.get("version"), NAME_CHARS_MAX),
        members_version=number_of(object_of(found.get("members")).get("version")),
        cuts=_cuts(found.get("links")),
    )


def _cuts(raw: object) -> tuple[tuple[str, str], ...]:
    pairs = [(str(name)[:NAME_CHARS_MAX], how) for name, how in object_of(raw).items()]
    return tuple(sorted((name, how) for name, how in pairs if how in ("both", "in", "out")))[:NODES_MAX]


def lab_of(raw: object) -> Lab | None:
    """The lab supervisor's `/v1/lab`; None if it is something else."""
    found = object_of(current(raw))
    if not isinstance(found.get("nodes"), list):
        return None
    listed = [object_of(each) for each in list_of(found["nodes"], NODES_MAX)]
    known = _neighbours(object_of(each.get("state")) for each in listed)
    nodes = []
    for each in listed:
        name, process = text_of(each.get("node"), NAME_CHARS_MAX), text_of(each.get("process"), NAME_CHARS_MAX)
        kind, addr = known.get(name, ("voter", ""))
        state = object_of(each.get("state"))
        sure = {"node": name, "heard_ms": 0, "told_ms": 0, "links": None}
        said = _said({"kind": kind, "addr": addr, **state, **sure}) if state else None
        if name:
            nodes.append(LabNode(name, process, number_of(each.get("pid")), said, kind, addr))
    ways = [way for way in list_of(found.get("cuts"), NODES_MAX * NODES_MAX) if isinstance(way, list) and len(way) == 2]
    cuts = sorted((str(sender)[:NAME_CHARS_MAX], str(receiver)[:NAME_CHARS_MAX]) for sender, receiver in ways)
    strategy, profile = (text_of(found.get(key), NAME_CHARS_MAX) for key in ("strategy", "profile"))
    return Lab(tuple(nodes), tuple(cuts), strategy, profile)


def _neighbours(states: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """(kind, address) of every node that another one lists: so it is known of those that do not answer as well."""
    rows = [object_of(row) for state in states for row in list_of(state.get("nodes"), NODES_MAX)]
    named = {text_of(row.get("node"), NAME_CHARS_MAX): row for row in rows}
    return {
        name: (text_of(row.get("kind"), NAME_CHARS_MAX) or "voter", text_of(row.get("addr"), NAME_CHARS_MAX))
        for name, row in named.items()
        if name
    }


def head_of(raw: object) -> Cluster | None:
    """What a node's own state document says of its cluster."""
    found = object_of(current(raw))
    said = _head(found)
    return said._replace(seen_from=text_of(found.get("node"), NAME_CHARS_MAX)) if said.cluster else None


def _head(found: Mapping[str, Any]) -> Cluster:
    return Cluster(
        cluster=text_of(found.get("cluster"), NAME_CHARS_MAX),
        election=text_of(found.get("election"), NAME_CHARS_MAX),
        strategy=text_of(found.get("strategy"), NAME_CHARS_MAX),
        mode=text_of(found.get("mode"), NAME_CHARS_MAX),
        at_most_one=found.get("at_most_one") is not False,
    )


def chain_of(raw: object) -> Chain | None:
    """The chain's `/v1/chain`; None if it is something else."""
    found = object_of(current(raw))
    if not isinstance(found.get("signatures"), list):
        return None
    counters = object_of(found.get("counters"))
    rows = [_signature(object_of(each)) for each in found["signatures"][-SIGNATURES_MAX:]]
    alerts = tuple(text for text in map(text_of, list_of(found.get("alerts"), ALERTS_MAX)) if text)
    return Chain(
        number_of(counters.get("signatures")),
        number_of(counters.get("double_signatures")),
        alerts,
        tuple(reversed(rows)),
    )


def _signature(found: Mapping[str, Any]) -> Signature:
    return Signature(
        number=number_of(found.get("number")),
        at_unix_ms=instant_of(found.get("at_unix_ms")),
        node=text_of(found.get("node"), NAME_CHARS_MAX),
        token=number_of(found.get("token")),
        height=number_of(found.get("height")),
        gap_ms=number_of(found.get("gap_ms")),
    )
