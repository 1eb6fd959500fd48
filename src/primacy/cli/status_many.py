"""The screen of `primacy status` for an agent with several elections: a row for each."""

from __future__ import annotations

from typing import Any

import click

from primacy.cli.call import columns

HEAD = ("election", "strategy", "leader", "term", "command", "here")


def all_lines(document: dict[str, Any]) -> list[str]:
    """Alerts, the table, what each waits for."""
    rows = document["elections"]
    alerts = [f"ALERT: {row['election']}: {text}" for row in rows for text in row.get("alerts", ())]
    said = [click.style(text, fg="red", bold=True) for text in alerts]
    count = f"{len(rows)} elections" if len(rows) != 1 else "1 election"
    said += ["", *[]] if alerts else []
    said += [f"cluster {document['cluster']}, {count}; seen from {document['node']}", ""]
    said += columns([HEAD, *(_row(row) for row in rows)])
    waits = [text for row in rows for text in _sentences(row, document["node"])]
    said += ["", *waits] if waits else []
    return [*said, "", f"one of them: primacy status --election {rows[0]['election'] if rows else 'NAME'}"]


def all_well(document: dict[str, Any]) -> bool:
    """In each election that this node takes part in, one is seen to act."""
    return all(len(row["acting"]) == 1 for row in document["elections"] if row["here"])


def _is_held_elsewhere(row: dict[str, Any]) -> bool:
    return bool(row["strategy"] == "lease" and row["role"] != "leader" and row["leader"])


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    if not row["here"]:
        return (row["election"], "-", "-", "-", "-", "does not take part")
    return (
        row["election"],
        row["strategy"] + (", manual" if row["mode"] == "manual" else ""),
        row["leader"] or "nobody",
        str(row["term"]),
        _command(row),
        row["role"] + (f", process {row['workload']['pid']}" if row["workload"]["pid"] else ""),
    )


def _command(row: dict[str, Any]) -> str:
    """Where it runs."""
    acts = row["acting"]
    if len(acts) > 1:
        return f"{' and '.join(acts)} BOTH CLAIM IT"
    if acts:
        state = row["workload"]["state"] if row["role"] == "leader" else "runs"
        return f"{'runs' if state == 'running' else state} on {acts[0]}"
    if _is_held_elsewhere(row):
        return f"held by {row['leader']}"
    return "not known here" if row.get("not_known") else "nobody runs it"


def _sentences(row: dict[str, Any], node: str) -> list[str]:
    if not row["here"]:
        return [f"{row['election']}: node {node} does not take part: {row['why']}"]
    said = [f"{row['election']}: node {node} waits for {row['waits_for']}"] if row["waits_for"] else []
    return said + ([f"{row['election']}: node {node}: {row['health']}"] if row["health"] != "ok" else [])
