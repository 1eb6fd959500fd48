"""A lab in a few lines: its nodes, who runs the command, what the chain has seen. Pure: from the document to text."""

from __future__ import annotations

from typing import Any

SIGNATURES_SHOWN = 5


def lines(document: dict[str, Any]) -> list[str]:
    """For a terminal, without colours."""
    rows: list[tuple[str, ...]] = [("node", "process", "role", "leader", "term", "command", "hold left")]
    rows += [_cells(row) for row in document["nodes"]]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    said = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    said += ["", _acting(document), f"links: {links_of(document)}"]
    said += [f"node {row['node']} waits for {row['state']['waits_for']}" for row in document["nodes"] if _waits(row)]
    if document["chain"] is not None:
        said += ["", *chain_lines(document["chain"])]
    return said


def _waits(row: dict[str, Any]) -> bool:
    return row["state"] is not None and row["state"]["role"] == "recovering"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    state = row["state"]
    process = f"ended ({row['exit_code']})" if row["process"] == "ended" else row["process"]
    if state is None:
        return (row["node"], process, "-", "-", "-", "-", "-")
    hold = f"{state['hold_left_ms']:,} ms" if state["hold_left_ms"] else "-"
    leader, term = state["leader"] or "nobody", str(state["term"])
    return (row["node"], process, state["role"], leader, term, state["workload"]["state"], hold)


def _acting(document: dict[str, Any]) -> str:
    acting = document["acting"]
    if len(acting) > 1:
        return f"ALERT: {' and '.join(acting)} claim to run the command at once"
    if not acting:
        return "nobody runs the command"
    state = next(row["state"] for row in document["nodes"] if row["node"] == acting[0])
    return f"{acting[0]} runs the command (token {state['token']})"


def links_of(document: dict[str, Any]) -> str:
    """Which are cut: `a-b` both ways, `a→b` one way."""
    cuts = {tuple(street) for street in document["cuts"]}
    both = [f"{a}-{b}" for a, b in sorted(cuts) if a < b and (b, a) in cuts]
    one_way = [f"{a}→{b}" for a, b in sorted(cuts) if (b, a) not in cuts]
    return f"cut {', '.join(both + one_way)}" if cuts else "all whole"


def chain_lines(chain: dict[str, Any]) -> list[str]:
    """What the chain has seen, alerts first."""
    if "counters" not in chain:
        return [f"the chain at {chain['address']} does not answer"]
    said = [f"DOUBLE SIGNATURE: {alert}" for alert in chain["alerts"]]
    said.append(f"chain: {counted(chain['counters'])}")
    for each in reversed(chain["signatures"][-SIGNATURES_SHOWN:]):
        said.append(
            f"  height {each['height']}  signed by {each['node']}  token {each['token']}  after {each['gap_ms']:,} ms"
        )
    return said


def strip(signatures: list[dict[str, Any]], interval_ms: int, width: int) -> str:
    """One letter per signature, the signer's; a dot per interval in which none came. The newest is on the right."""
    signs = ""
    for each in signatures:
        missed = round(each["gap_ms"] / interval_ms) - 1
        signs += "." * max(0, min(missed, width)) + each["node"][:1]
    return signs[-width:]


def counted(n: dict[str, int]) -> str:
    """The counters of a chain, in one sentence."""
    return (
        f"{_many(n['signatures'], 'signature')}, {_many(n['handovers'], 'handover')}, "
        f"longest gap {n['longest_gap_ms']:,} ms, {n['stale']} stale refused, "
        f"{_many(n['double_signatures'], 'double signature')}"
    )


def _many(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"
