"""`primacy status`: what the node of this machine knows, itself first."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import click

from primacy.cli.call import Call, json_option, print_json
from primacy.cli.local import local, local_options
from primacy.errors import NotReached

EVERY_S = 1.0
"""How often `--watch` looks."""


@click.command()
@local_options
@click.option("--watch", is_flag=True, help="Go on, once a second, until Ctrl-C.")
@json_option
@click.pass_obj
def status(
    call: Call, *, config: str | None, election: str | None, state_dir: str | None, watch: bool, as_json: bool
) -> None:
    """Who leads, where the command runs, and what a node waits for, as the node of this machine knows it."""
    as_json = as_json or call.json
    if not watch:
        state = local(call, config, election, state_dir).get("/v1/state")
        if as_json:
            print_json(state)
        else:
            click.echo("\n".join(lines(state)))
        return
    while True:
        try:
            state = local(call, config, election, state_dir).get("/v1/state")
            text = json.dumps(state, ensure_ascii=False) if as_json else "\n".join(lines(state))
        except NotReached as error:
            text = json.dumps({"error": str(error)}) if as_json else f"primacy: {error}"
        if not as_json:
            click.clear()
        click.echo(text)
        time.sleep(EVERY_S)


def lines(state: dict[str, Any]) -> list[str]:
    """The screen."""
    duty = state["duty"]
    said = [
        f"cluster {state['cluster']}, election {state['election']}, {state['strategy']}, {state['mode']}",
        "",
        *_table([_head(), _own(state), *(_other(row) for row in state["nodes"])]),
        "",
        f"containment: {duty['containment'] or 'not known yet'}",
    ]
    if state["token"]:
        said.append(f"token: {state['token']}")
    if state["waits_for"]:
        said.append(f"node {state['node']} waits for {state['waits_for']}")
    elif not state["leader"]:
        said.append(f"node {state['node']} knows of no leader; primacy why says what happened")
    for row in state["nodes"]:
        if row["heard_ms"] is None:
            said.append(f"node {row['node']} was never heard; it should be at {row['addr']}: is it started there?")
    return said


def _head() -> tuple[str, ...]:
    return ("node", "role", "leader", "term", "duty", "hold left", "heard")


def _own(state: dict[str, Any]) -> tuple[str, ...]:
    hold = f"{state['hold_left_ms']:,} ms" if state["hold_left_ms"] else "-"
    role, leader = state["role"], state["leader"] or "nobody"
    return (state["node"], role, leader, str(state["term"]), _duty(state["duty"]), hold, "this node")


def _duty(duty: dict[str, Any]) -> str:
    said = str(duty["state"])
    if duty["pid"]:
        said += f", process {duty['pid']}"
    if duty["since"]:
        since = datetime.fromisoformat(duty["since"]).astimezone()
        said += f", since {since:%Y-%m-%d %H:%M:%S}"
    return said


def _other(row: dict[str, Any]) -> tuple[str, ...]:
    heard = row["heard_ms"]
    age = "never" if heard is None else f"{heard:,} ms ago"
    kind = row["kind"] if row["kind"] != "voter" else "-"
    return (row["node"], row["role"] or kind, row["leader"] or "-", "-", row["duty"] or "-", "-", age)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
