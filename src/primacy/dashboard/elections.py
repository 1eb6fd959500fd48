"""All elections of an agent on one page: a row for each, and a strip of all of them. Pure.

The document is an agent's `/v1/elections`, in which `control/acting.py` has decided who acts. Green is said of one case
only: one node acts, and is heard. What is not known, or only told by a row in a store, is grey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primacy.dashboard import NODES_MAX
from primacy.dashboard.known import Model
from primacy.dashboard.rows import ALERTS_MAX, NAME_CHARS_MAX, list_of, number_of, object_of, text_of
from primacy.dashboard.strip import GRAVE

ELECTIONS_MAX = 1_000
"""Of one agent: docs/scale.md measures 200."""


class ElectionRow(NamedTuple):
    """One election, as the agent that is read tells it."""

    election: str
    here: bool = True
    """The agent takes part in it."""
    why: str = ""
    """Why it does not."""
    strategy: str = ""
    mode: str = ""
    role: str = ""
    term: int = 0
    leader: str = ""
    token: int = 0
    waits_for: str = ""
    workload: str = ""
    acting: tuple[str, ...] = ()
    not_known: str = ""
    alerts: tuple[str, ...] = ()
    health: str = ""


class Told(NamedTuple):
    """An agent's document."""

    cluster: str
    node: str
    rows: tuple[ElectionRow, ...]


def told_of(raw: object) -> Told | None:
    """From `/v1/elections`; None if it is something else."""
    found = object_of(raw)
    if not isinstance(found.get("elections"), list):
        return None
    rows = tuple(row for row in map(_row, list_of(found["elections"], ELECTIONS_MAX)) if row.election)
    return Told(text_of(found.get("cluster"), NAME_CHARS_MAX), text_of(found.get("node"), NAME_CHARS_MAX), rows)


def _row(raw: object) -> ElectionRow:
    found = object_of(raw)
    words = {
        name: text_of(found.get(name))
        for name in ("election", "why", "strategy", "mode", "role", "leader", "waits_for", "not_known", "health")
    }
    return ElectionRow(
        **{**words, "election": words["election"][:NAME_CHARS_MAX]},
        here=found.get("here") is not False,
        term=number_of(found.get("term")),
        token=number_of(found.get("token")),
        workload=text_of(object_of(found.get("workload")).get("state"), NAME_CHARS_MAX),
        acting=tuple(text_of(name, NAME_CHARS_MAX) for name in list_of(found.get("acting"), NODES_MAX)),
        alerts=tuple(text_of(text) for text in list_of(found.get("alerts"), ALERTS_MAX)),
    )


def standing_of(row: ElectionRow, *, stale: bool) -> tuple[str, str, str]:
    """Level, who holds it, and the sentence."""
    if stale:
        return "unknown", "", "not known: the agent does not answer"
    if not row.here:
        return "unknown", "", f"not known: this node does not take part: {row.why}"
    if len(row.acting) > 1:
        return "bad", "", f"{' and '.join(row.acting)} both claim it"
    if row.alerts:
        return "bad", row.acting[0] if row.acting else "", row.alerts[0]
    if row.acting:
        return _acts(row)
    if row.not_known:
        return "unknown", "", f"not known: {row.not_known}"
    if row.strategy == "lease" and row.leader and row.role != "leader":
        return "unknown", "", f"{row.leader} holds the lease, as its row says; its node is not heard here"
    wait = f"; this node waits for {row.waits_for}" if row.waits_for else ""
    level = "bad" if "majority" in row.waits_for else "warn"
    return level, "", f"nobody runs it{wait}"


def _acts(row: ElectionRow) -> tuple[str, str, str]:
    """Of another node's command only that it acts is known here."""
    holder = row.acting[0]
    state = row.workload if row.role == "leader" and row.leader == holder else "running"
    if state == "stuck":
        return "bad", holder, f"its command on {holder} was killed and does not end"
    words = {"starting": "starts on", "stopping": "stops on"}
    return ("warn" if state in words else "ok"), holder, f"{words.get(state, 'runs on')} {holder}"


def elections_view(told: Told | None, error: str, since_unix_ms: int) -> Model:
    """The page of all of them. `error`: why the agent does not answer now, and since when."""
    rows = [_shown(row, stale=bool(error)) for row in (told.rows if told is not None else ())]
    head = {"cluster": told.cluster if told is not None else "", "election": "", "strategy": "", "many": True}
    return {
        "head": head,
        "source": {"ok": not error, "text": error, "since_unix_ms": since_unix_ms if error else 0},
        "strip": strip_of(rows, told.node if told is not None else "", stale=bool(error)),
        "elections": {"node": told.node if told is not None else "", "rows": rows},
        "alerts": [] if error else _alerts(rows),
        "order": [],
    }


def _alerts(rows: Sequence[Mapping[str, Any]]) -> list[Model]:
    said = [(row["election"], text) for row in rows for text in row["alerts"]]
    return [{"code": "node", "text": f"{election}: {text}"} for election, text in said[:ALERTS_MAX]]


def _shown(row: ElectionRow, *, stale: bool) -> Model:
    level, holder, text = standing_of(row, stale=stale)
    shown = {name: getattr(row, name) for name in ("election", "strategy", "mode", "role", "health")}
    more = {"waits_for": row.waits_for, "alerts": list(row.alerts)}
    return {**shown, **more, "term": row.term, "token": row.token, "level": level, "holder": holder, "text": text}


def strip_of(rows: Sequence[Mapping[str, Any]], node: str, *, stale: bool) -> Model:
    """How many are held, and by whom that is told."""
    levels = [str(row["level"]) for row in rows]
    held = levels.count("ok")
    counts = [
        f"{many} {word}"
        for many, word in (
            (held, "held by one node"),
            (levels.count("bad"), "in trouble"),
            (levels.count("warn"), "without a holder"),
            (levels.count("unknown"), "not known"),
        )
        if many
    ]
    level = max(levels, key=GRAVE.index, default="unknown")
    all_ = f"{len(rows)} elections" if len(rows) != 1 else "1 election"
    text = f"{all_}: {', '.join(counts)}" if rows else "No election is known yet"
    if stale:
        level, text = "unknown", "Not known: the agent does not answer"
    return {
        "level": level,
        "alert": "two" if any(" both claim it" in str(row["text"]) for row in rows) and not stale else "",
        "holder": {"level": level, "text": text, "node": "", "since_unix_ms": 0},
        "margin": {"level": "unknown", "text": f"as node {node} tells it" if node else ""},
        "change": None,
        "of_many": True,
        "title": f"{held} of {len(rows)} held" if rows and not stale else "not known",
    }
