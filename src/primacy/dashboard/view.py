"""From what was read to what is shown: the view model. Pure: the same reading gives the same page.

The model is a dictionary of parts; the hub sends a part again only when it has changed. So nothing that changes with
every look (how many milliseconds ago a node was heard) stands in a part unless it is worth a redraw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from primacy.control.acting import ACTS, Acting
from primacy.dashboard.advice import next_step
from primacy.dashboard.change import last_change
from primacy.dashboard.holder import job
from primacy.dashboard.islands import Island, explained, islands
from primacy.dashboard.known import Known, Model
from primacy.dashboard.link_states import blocked, links
from primacy.dashboard.quorum import quorum
from primacy.dashboard.rows import Chain
from primacy.dashboard.standing import Seen, acting, hold_left, process_of, statements, there_of
from primacy.dashboard.strip import gap_text, strip

SIGNATURES_SHOWN = 8


def view(known: Known) -> Model:
    """All parts."""
    seen = statements(known)
    names = list(seen)
    there = {name: there_of(known, each) for name, each in seen.items()}
    shown = acting(known, seen)
    cut = blocked((each.said for each in seen.values()), known.lab.cuts if known.lab is not None else ())
    parts = _islands(known, seen)
    votes = quorum(known, seen, there, cut)
    work = job(known, seen, there, shown, votes, parts)
    change = last_change(known.rows, known.chain)
    model: Model = {
        "head": _head(known),
        "source": _source(known),
        "job": work,
        "strip": strip(known, work, votes, change),
        "alerts": _alerts(known, parts),
        "islands": [{"leader": each.leader, "nodes": list(each.nodes)} for each in parts],
        "change": {**change, "gap": gap_text(known, change["gap_ms"])} if change is not None else None,
        "members": _members(known),
        "contract": dict(known.plan.contract) if known.plan.contract is not None else None,
        "config": _config(known, seen),
        "chain": _chain(known.chain),
        "order": names,
        "links": links(names, {name: state == "here" for name, state in there.items()}, cut),
    }
    past, files = _past_leaders(known, seen, shown), _files(known)
    for name, each in seen.items():
        node = _node(known, each, there[name], shown[name], past=name in past)
        model[f"node:{name}"] = {**node, "file_differs": files.get(name, "")}
    return model


def _past_leaders(known: Known, seen: Mapping[str, Seen], shown: Mapping[str, Acting]) -> set[str]:
    """Whose row still says that it leads, although its time is over: another one leads in a later term, or acts."""
    leaders = {name: each.said.term for name, each in seen.items() if each.said.role == "leader"}
    newest = max(leaders.values(), default=0)
    older = {name for name, term in leaders.items() if term < newest} if known.at_most_one else set()
    return (older | {name for name in leaders if shown[name] is Acting.OVER}) - set(known.overlapping)


def _members(known: Known) -> Model | None:
    """The newest that anybody has; what a change waits for its leader knows best, and says most."""
    documents = [read.document for read in known.reads if read.document is not None and not read.error]
    told = [document.members for document in documents if document.members is not None]
    if not told:
        return None
    newest = max(told, key=lambda each: (each.term, each.version))
    waits = max((each.waits_for for each in told if each.version == newest.version), key=len)
    untold = sorted({name for each in told for name in each.untold})
    return {"version": newest.version, "waits_for": waits, "untold": untold}


def _files(known: Known) -> dict[str, str]:
    """By node, how its file differs from the members: each knows its own file only, and says so itself."""
    documents = [read.document for read in known.reads if read.document is not None and not read.error]
    return {each.seen_from: each.members.file for each in documents if each.members is not None}


def _islands(known: Known, seen: Mapping[str, Seen]) -> tuple[Island, ...]:
    if known.at_most_one:
        return ()
    return islands((each.said for each in seen.values() if each.fresh), known.overlapping)


def _head(known: Known) -> Model:
    first = known.first
    return {
        "cluster": first.cluster,
        "election": first.election,
        "strategy": first.strategy,
        "at_most_one": first.at_most_one,
        "mode": first.mode,
        "seen_from": [read.document.seen_from for read in known.reads if read.document is not None and not read.error],
        "can_transfer": _can_transfer(known),
        "lab": known.lab is not None,
        "processes": len(known.lab.nodes) if known.lab is not None else 0,
        "profile": known.lab.profile if known.lab is not None else "",
        "heartbeat_ms": known.plan.heartbeat_ms,
        "hold_ms": known.plan.hold_ms,
        "term_at_ms": known.plan.term_at_ms,
    }


def _can_transfer(known: Known) -> bool:
    """A lease names nobody, unless its nodes speak to each other."""
    rows = [row for read in known.reads if read.document is not None for row in read.document.rows]
    return known.first.strategy != "lease" or any(row.told_ms for row in rows)


def _source(known: Known) -> Model:
    """Whether anybody answers, and if not since when."""
    answering = [read for read in known.reads if not read.error and read.document is not None]
    if answering or (known.lab is not None and not known.lab_error):
        return {"ok": True, "text": "", "since_unix_ms": 0}
    if not known.reads:
        return {"ok": False, "text": "no node is known yet", "since_unix_ms": 0}
    last = max(known.reads, key=lambda read: read.failing_since_unix_ms)
    return {"ok": False, "text": last.error or "has not answered yet", "since_unix_ms": last.failing_since_unix_ms}


def _alerts(known: Known, parts: Sequence[Island]) -> list[Model]:
    """What a node itself says of two leaders is left out where the parts are shown: it says the same."""
    found: list[Model] = []
    first = known.first
    if known.overlapping and first.at_most_one:
        names = ", ".join(known.overlapping)
        found.append({"code": "two-act", "text": f"Nodes {names} claimed to run the command at the same time."})
    if parts:
        found.append({"code": "islands", "level": "bad", "text": explained(first.strategy, parts)})
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


def _node(known: Known, seen: Seen, there: str, acts: Acting, *, past: bool) -> Model:
    said, heard = seen.said, there == "here"
    silent_s = seen.heard_ms // 1_000 if seen.heard_ms is not None and not seen.fresh else 0
    process = process_of(known, said.node)
    leads = said.role == "leader" and not past
    return {
        "node": said.node,
        "kind": said.kind,
        "addr": said.addr,
        "there": there,
        "silent_s": silent_s,
        "role": "was leader" if past else said.role,
        "leads": leads and heard,
        "acts": str(acts),
        "work": work_text(seen, there, acts),
        "term": said.term,
        "leader": said.leader,
        "token": said.token if acts in (Acting.ACTS, Acting.UNKNOWN) or leads else 0,
        "hold_left_ms": hold_left(seen) if leads and there not in ("stopped", "restarting") else 0,
        "told": "itself" if said.told_ms == 0 else "others",
        "waits_for": said.waits_for,
        "trouble": said.trouble,
        "next": next_step(said, heard=heard) if there in ("here", "silent", "never") else "",
        "workload": said.workload,
        "workload_kind": said.workload_kind,
        "since_unix_ms": said.since_unix_ms if acts is Acting.ACTS else 0,
        "pid": said.pid if acts in (Acting.ACTS, Acting.UNKNOWN) else 0,
        "containment": said.containment,
        "health": said.health,
        "version": said.version,
        "members_version": said.members_version,
        "agent_pid": process.pid if process is not None else 0,
    }


def work_text(seen: Seen, there: str, acts: Acting) -> str:
    """What is known of a node's command, in a few words: the same on every page."""
    said = seen.said
    if acts is Acting.UNKNOWN:
        return f"not known, was {said.workload}"
    if acts is Acting.OVER:
        return f"was {said.workload}"
    if there not in ("here", "stopped", "restarting"):
        return "not known"
    if said.workload_kind == "none":
        return "no workload"
    if acts is Acting.ACTS:
        return said.workload
    return said.workload if there == "here" and said.workload and said.workload not in ACTS else "stopped"


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
