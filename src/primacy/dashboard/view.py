"""From what was read to what is shown: the view model. Pure: the same reading gives the same page.

The model is a dictionary of parts; the hub sends a part again only when it has changed. So nothing that changes with
every look (how many milliseconds ago a node was heard) stands in a part unless it is worth a redraw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primacy.dashboard.advice import next_step
from primacy.dashboard.change import last_change
from primacy.dashboard.claims import ACTING
from primacy.dashboard.islands import Island, explained, islands, told
from primacy.dashboard.link_states import blocked, links
from primacy.dashboard.rows import Chain, Cluster, Lab, Row, Said

FRESH_MS = 1_500
"""A row younger than this, or than the hold, is how the node stands; an older one is what it last said."""
SIGNATURES_SHOWN = 8

Model = dict[str, Any]


class Read(NamedTuple):
    """What one node answered, and when on our clock."""

    at: str
    document: Cluster | None
    read_ms: int
    failing_since_unix_ms: int = 0
    """0 while it answers."""
    error: str = ""


class Plan(NamedTuple):
    """What the file says, as far as a page needs it."""

    text: str = ""
    """The canonical form, secrets removed."""
    source: str = ""
    """The node that told it."""
    heartbeat_ms: int = 0
    hold_ms: int = 0
    term_at_ms: int = 0
    contract: Mapping[str, Any] | None = None
    hashes: Mapping[str, str] = {}
    """By node: the hash of what must agree, of those that were asked."""


class Known(NamedTuple):
    """All that was read so far."""

    now_ms: int
    reads: tuple[Read, ...]
    rows: Sequence[Row] = ()
    plan: Plan = Plan()
    lab: Lab | None = None
    chain: Chain | None = None
    overlapping: tuple[str, ...] = ()


class Seen(NamedTuple):
    """The best statement about one node."""

    said: Said
    told_ms: int | None
    """How old the statement is now; None: there is none."""
    heard_ms: int | None
    """Since anything was heard of the node, by anybody that is read."""
    fresh: bool
    """It is how the node stands; otherwise it is what the node last said."""


def view(known: Known) -> Model:
    """All parts."""
    seen = statements(known)
    names = list(seen)
    there = {name: _there(known, each) for name, each in seen.items()}
    cut = blocked((each.said for each in seen.values()), known.lab.cuts if known.lab is not None else ())
    parts = _islands(known, seen)
    job = _job(known, seen, parts)
    model: Model = {
        "head": _head(known),
        "source": _source(known),
        "job": job,
        "alerts": _alerts(known, parts),
        "islands": [{"leader": each.leader, "nodes": list(each.nodes)} for each in parts],
        "change": last_change(known.rows),
        "contract": dict(known.plan.contract) if known.plan.contract is not None else None,
        "config": _config(known, seen),
        "chain": _chain(known.chain),
        "order": names,
        "links": links(names, {name: state in ("here", "frozen") for name, state in there.items()}, cut),
    }
    for name, each in seen.items():
        model[f"node:{name}"] = _node(known, each, there[name])
    return model


def statements(known: Known) -> dict[str, Seen]:
    """Of every node the youngest statement, in the order of their names."""
    best: dict[str, Seen] = {}
    limit_ms = max(FRESH_MS, known.plan.hold_ms)
    for read in known.reads:
        since_ms = max(0, known.now_ms - read.read_ms)
        for row in read.document.rows if read.document is not None else ():
            said = row
            told_ms = None if row.told_ms is None else row.told_ms + since_ms
            heard_ms = None if row.heard_ms is None else row.heard_ms + since_ms
            before = best.get(row.node)
            if before is not None and _younger(before.heard_ms, heard_ms):
                heard_ms = before.heard_ms
            if before is not None and not _younger(told_ms, before.told_ms):
                said, told_ms = before.said, before.told_ms
            fresh = told_ms is not None and heard_ms is not None and min(told_ms, heard_ms) <= limit_ms
            best[said.node] = Seen(said, told_ms, heard_ms, fresh)
    for each in known.lab.nodes if known.lab is not None else ():
        best.setdefault(each.node, Seen(Said(each.node, each.kind, each.addr), None, None, fresh=False))
    return dict(sorted(best.items()))


def _younger(age_ms: int | None, than_ms: int | None) -> bool:
    return age_ms is not None and (than_ms is None or age_ms < than_ms)


def _there(known: Known, seen: Seen) -> str:
    """here | silent | never, or in the lab what became of its process: stopped | frozen."""
    process = next((each for each in known.lab.nodes if each.node == seen.said.node), None) if known.lab else None
    if process is not None and process.process != "running":
        return "frozen" if process.process == "frozen" else "stopped"
    if seen.fresh:
        return "here"
    return "never" if seen.heard_ms is None else "silent"


def _first(known: Known) -> Cluster:
    return next((read.document for read in known.reads if read.document is not None), Cluster())


def _islands(known: Known, seen: Mapping[str, Seen]) -> tuple[Island, ...]:
    if _first(known).at_most_one:
        return ()
    return islands((each.said for each in seen.values() if each.fresh), known.overlapping)


def _head(known: Known) -> Model:
    first = _first(known)
    return {
        "cluster": first.cluster,
        "election": first.election,
        "strategy": first.strategy,
        "at_most_one": first.at_most_one,
        "mode": first.mode,
        "seen_from": [read.document.seen_from for read in known.reads if read.document is not None and not read.error],
        "lab": known.lab is not None,
        "processes": len(known.lab.nodes) if known.lab is not None else 0,
        "profile": known.lab.profile if known.lab is not None else "",
        "heartbeat_ms": known.plan.heartbeat_ms,
        "hold_ms": known.plan.hold_ms,
        "term_at_ms": known.plan.term_at_ms,
    }


def _source(known: Known) -> Model:
    """Whether anybody answers, and if not since when."""
    answering = [read for read in known.reads if not read.error and read.document is not None]
    if answering:
        return {"ok": True, "text": "", "since_unix_ms": 0}
    if not known.reads:
        return {"ok": False, "text": "no node is known yet", "since_unix_ms": 0}
    last = max(known.reads, key=lambda read: read.failing_since_unix_ms)
    return {"ok": False, "text": last.error or "has not answered yet", "since_unix_ms": last.failing_since_unix_ms}


def _alerts(known: Known, parts: Sequence[Island]) -> list[Model]:
    """What a node itself says of two leaders is left out where the parts are shown: it says the same."""
    found: list[Model] = []
    first = _first(known)
    if known.overlapping and first.at_most_one:
        names = ", ".join(known.overlapping)
        found.append({"code": "two-act", "text": f"Nodes {names} claimed to run the work at the same time."})
    if parts:
        found.append({"code": "islands", "level": "warn", "text": explained(first.strategy, parts)})
    if known.chain is not None and known.chain.double_signatures:
        many = known.chain.double_signatures
        times = "once" if many == 1 else f"{many:,} times"
        which = f": {known.chain.alerts[-1]}" if known.chain.alerts else ""
        found.append({"code": "double-signature", "text": f"The chain saw a double signature, {times}{which}."})
    said: dict[str, None] = {}
    for read in known.reads:
        said.update(dict.fromkeys(read.document.alerts if read.document is not None and not read.error else ()))
    shown = [text for text in said if not (parts and "each part of a divided network" in text)]
    return found + [{"code": "node", "text": text} for text in shown]


def _job(known: Known, seen: Mapping[str, Seen], parts: Sequence[Island]) -> Model:
    """Is the work running, where, since when."""
    fresh = [each.said for each in seen.values() if each.fresh]
    acting = [said for said in fresh if said.workload in ACTING]
    leading = [said for said in fresh if said.role == "leader"]
    holder = _newest(acting) or _newest(leading)
    state, level, text = ("islands", "warn", told(parts)) if parts else _headline(known, fresh, acting, holder)
    job: Model = {"state": state, "level": level, "text": text, "node": None}
    if holder is not None:
        job.update(
            node=holder.node,
            since_unix_ms=holder.since_unix_ms,
            pid=holder.pid,
            containment=holder.containment,
            kind=holder.workload_kind,
            token=holder.token,
            term=holder.term,
            hold_left_ms=_hold_left(seen[holder.node]),
        )
    return job


def _hold_left(seen: Seen) -> int:
    """`hold_left_ms` is as of the answer, the row's own age subtracted: what passed since the answer comes off."""
    return max(0, seen.said.hold_left_ms - ((seen.told_ms or 0) - (seen.said.told_ms or 0)))


def _newest(rows: Sequence[Said]) -> Said | None:
    """After a handover the old holder's last row may still say that it runs: the higher term is the newer one."""
    return max(rows, key=lambda said: (said.term, said.since_unix_ms), default=None)


def _headline(known: Known, fresh: Sequence[Said], acting: Sequence[Said], holder: Said | None) -> tuple[str, str, str]:
    if known.overlapping and _first(known).at_most_one:
        return "overlap", "bad", f"Two nodes claim to act: {', '.join(known.overlapping)}"
    if not fresh:
        return "unknown", "unknown", "Not known: no node answers"
    if acting and holder is not None and holder.workload_kind == "none":
        return "leading", "ok", f"{holder.node} leads"
    if acting and holder is not None:
        words = {"running": "Running on", "starting": "Starting on", "stopping": "Stopping on", "stuck": "Stuck on"}
        level = {"running": "ok", "stuck": "bad"}.get(holder.workload, "warn")
        return holder.workload, level, f"{words[holder.workload]} {holder.node}"
    if holder is not None and holder.workload_kind == "none":
        return "leading", "ok", f"{holder.node} leads"
    if holder is not None:
        wait = f": it waits for {holder.waits_for}" if holder.waits_for else ""
        return "waiting", "warn", f"{holder.node} leads, and does not run the work yet{wait}"
    candidates = [said.node for said in fresh if said.role == "candidate"]
    if candidates:
        return "electing", "warn", f"Electing: {', '.join(candidates)} campaigns"
    return "nobody", "warn", "Nobody leads"


def _node(known: Known, seen: Seen, there: str) -> Model:
    said, heard = seen.said, there == "here"
    silent_s = seen.heard_ms // 1_000 if seen.heard_ms is not None and not seen.fresh else 0
    process = next((each for each in known.lab.nodes if each.node == said.node), None) if known.lab else None
    return {
        "node": said.node,
        "kind": said.kind,
        "addr": said.addr,
        "there": there,
        "silent_s": silent_s,
        "role": said.role,
        "term": said.term,
        "leader": said.leader,
        "token": said.token,
        "hold_left_ms": _hold_left(seen) if said.role == "leader" and there in ("here", "frozen") else 0,
        "told": "itself" if said.told_ms == 0 else "others",
        "waits_for": said.waits_for,
        "trouble": said.trouble,
        "next": next_step(said, heard=heard) if there in ("here", "silent", "never") else "",
        "workload": said.workload,
        "workload_kind": said.workload_kind,
        "since_unix_ms": said.since_unix_ms,
        "pid": said.pid,
        "containment": said.containment,
        "health": said.health,
        "version": said.version,
        "agent_pid": process.pid if process is not None else 0,
    }


def _config(known: Known, seen: Mapping[str, Seen]) -> Model:
    """The file, and who has another one: versions and, where they are told, the hashes of what must agree."""
    marks = []
    versions = {each.said.node: each.said.version for each in seen.values() if each.said.version}
    for name, values in (("configuration", dict(known.plan.hashes)), ("version of primacy", versions)):
        if len(set(values.values())) > 1:
            marks.append({"what": name, "of": values})
    return {"text": known.plan.text, "source": known.plan.source, "differs": marks}


def _chain(chain: Chain | None) -> Model | None:
    if chain is None:
        return None
    newest = [each._asdict() for each in chain.newest[:SIGNATURES_SHOWN]]
    return {"count": chain.seen, "double_signatures": chain.double_signatures, "newest": newest}
