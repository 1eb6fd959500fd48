"""`primacy status`: all nodes of the cluster, as the node of this machine knows them."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import click

from primacy.cli.call import Call, columns, json_option, print_json
from primacy.cli.local import Local, local, local_options
from primacy.control.summary import UNKNOWN
from primacy.errors import NotReached

EVERY_S = 1.0
"""How often `--watch` looks."""
OLD_MS = 5_000
"""News come once a second: older ones say what was, not what is."""


@click.command()
@local_options
@click.option("--watch", is_flag=True, help="Go on, once a second, until Ctrl-C.")
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Versions of the nodes, and what this node has counted.")
@click.pass_obj
def status(call: Call, /, *, watch: bool, as_json: bool, verbose: bool, **where: str | None) -> None:
    """Who leads, where the command runs and since when, and what a node waits for: all nodes, seen from this one."""
    verbose = verbose or bool(call.verbose)
    if not watch:
        state = seen(local(call, **where))
        if as_json:
            print_json(state)
        else:
            click.echo("\n".join(lines(state, verbose=verbose)))
        return
    while True:
        try:
            state = seen(local(call, **where))
            text = json.dumps(state, ensure_ascii=False) if as_json else "\n".join(lines(state, verbose=verbose))
        except NotReached as error:
            text = json.dumps({"error": str(error)}) if as_json else f"primacy: {error}"
        if not as_json:
            click.clear()
        click.echo(text)
        time.sleep(EVERY_S)


def seen(node: Local) -> dict[str, Any]:
    """The state document of the node that is asked, and what it knows of all: `rows`, `acting`, `alerts`."""
    whole = node.get("/v1/cluster")
    state = node.get("/v1/state")
    known = {name: whole[name] for name in ("acting", "alerts", "at", "at_most_one") if name in whole}
    return {**state, "rows": whole["nodes"], **known, "beside": _strangers(node.beside, whole)}


def _strangers(beside: tuple[str, ...], whole: dict[str, Any]) -> list[str]:
    """Nodes of this machine that are not of this list: two were told to begin, or one was not taken in yet.

    A lease has no list: its nodes meet in the store.
    """
    listed = {row["node"] for row in whole["nodes"]}
    return [name for name in beside if name not in listed and whole["strategy"] != "lease"]


def lines(state: dict[str, Any], *, verbose: bool = False) -> list[str]:
    """The screen: alerts, a row for each node, who acts, and what each waits for."""
    alerts = [click.style(f"ALERT: {sentence}", fg="red", bold=True) for sentence in state["alerts"]]
    what = f"cluster {state['cluster']}, election {state['election']}, {state['strategy']}, {state['mode']}"
    said = [*alerts, *([""] if alerts else []), f"{what}; seen from {state['node']}", ""]
    head = tuple("slots" if word == "command" and _serves(state) else word for word in HEAD)
    said += _table([head, *(_row(row, state) for row in state["rows"])], state["acting"], bare=_bare(state))
    said += ["", acting(state)]
    token = max((row["token"] or 0 for row in state["rows"]), default=0)
    if token:
        said.append(f"token: {token}")
    if state.get("containment"):
        said.append(f"node {state['node']}: {state['containment']}")
    said += [sentence for row in state["rows"] for sentence in sentences(row, state)]
    members = state.get("members") or {}  # nodes of an older version say nothing of it
    if members.get("waits_for"):
        said.append(f"members, version {members['version']}: a change waits for {members['waits_for']}")
    if members.get("file"):
        said.append(members["file"])
    said += [
        f"node {name} runs here, too, and is not in this list; primacy --node {name} status shows it"
        for name in state.get("beside", ())
    ]
    if not state["waits_for"] and not state["leader"]:
        said.append(f"node {state['node']} knows of no leader; primacy why says what happened")
    return said + (_more(state) if verbose else [])


CLAIMS = ("starting", "running", "stopping", "stuck")
"""Of a node that is no longer believed to act, these are the past."""
BY_HTTP = ("bully", "ring")
"""Nodes of these speak through the manager; all others by datagrams."""
OF_WORK = ("command", "containment")
"""Columns that a cluster without a workload has nothing for."""
HEAD = ("node", "role", "leader", "term", "command", "hold left", "containment", "health", "news")


def _bare(state: dict[str, Any]) -> bool:
    """To lead is all there is (`primacy node start`)."""
    kinds = [row["workload"]["kind"] for row in state["rows"] if row["workload"]]
    return bool(kinds) and all(kind == "none" for kind in kinds)


def _serves(state: dict[str, Any]) -> bool:
    """The work is that of `primacy slots serve`."""
    kinds = [row["workload"]["kind"] for row in state["rows"] if row["workload"]]
    return bool(kinds) and all(kind == "slots" for kind in kinds)


def _row(row: dict[str, Any], state: dict[str, Any]) -> tuple[str, ...]:
    kind = "" if row["kind"] == "voter" else f" ({row['kind']})"
    if row["role"] is None:
        unknown = ["-"] * (len(HEAD) - 3)
        return (row["node"], f"?{kind}", *unknown, age(row, state["node"]))
    hold = f"{row['hold_left_ms']:,} ms" if row["hold_left_ms"] else "-"
    past = was(row, state["acting"])
    return (
        row["node"],
        past + (row["role"] if row["role"] == row["kind"] else f"{row['role']}{kind}"),
        row["leader"] or "nobody",
        str(row["term"]),
        past + _workload(row["workload"]),
        hold,
        row["workload"]["containment"] or "-",
        row["health"].partition(":")[0],
        age(row, state["node"]),
    )


def was(row: dict[str, Any], acts: list[str]) -> str:
    """Put before what a node said of itself and what is over by now: it died, or another one has begun since."""
    return "was " if row["workload"] and row["workload"]["state"] in CLAIMS and row["node"] not in acts else ""


def age(row: dict[str, Any], here: str, of: str = "told_ms") -> str:
    if row["node"] == here:
        return "this node"
    return "never" if row[of] is None else f"{ago(row[of])} ago"


def _workload(workload: dict[str, Any]) -> str:
    said = str(workload["state"])
    if workload["pid"]:
        said += f", process {workload['pid']}"
    if workload["since"]:
        since = datetime.fromisoformat(workload["since"]).astimezone()
        said += f", since {since:%Y-%m-%d %H:%M:%S}"
    return said


def acting(state: dict[str, Any]) -> str:
    """Who really does the work: one sentence."""
    acts = state["acting"]
    work = "the slot server" if _serves(state) else "the command"
    if _bare(state):
        return leading(state)
    if len(acts) > 1:
        return click.style(f"{' and '.join(acts)} BOTH CLAIM {work.upper()}", fg="red", bold=True)
    if not acts and state["strategy"] == "lease" and state["leader"] not in (None, state["node"]):
        return f"node {state['leader']} holds the lease; whether its {work[4:]} runs, primacy status says there"
    if not acts and _leads_unseen(state):
        return f"node {state['leader']} leads; whether its {work[4:]} runs is not known here, as Ghoti does not say it"
    if not acts:
        return f"{work} runs nowhere"
    workload = next(row["workload"] for row in state["rows"] if row["node"] == acts[0])
    if workload is None or workload["state"] != "running":
        doing = {"starting": "is starting", "stopping": "is being stopped", "stuck": "was killed and does not end"}
        return f"{work} {doing.get(workload['state'] if workload else '', 'is')} on {acts[0]}"
    if not workload["since"]:
        return f"{work} runs on {acts[0]}"
    began = datetime.fromisoformat(workload["since"])
    ran_ms = int((datetime.fromisoformat(state["at"]) - began.astimezone(UTC)).total_seconds() * 1_000)
    return f"{work} runs on {acts[0]}, for {ago(max(0, ran_ms))}"


def _leads_unseen(state: dict[str, Any]) -> bool:
    """Another node leads that never said how it stands, although it is heard: nodes of Ghoti say nothing."""
    rows = [row for row in state["rows"] if row["node"] == state["leader"] and row["node"] != state["node"]]
    return state["strategy"] in BY_HTTP and any(row["told_ms"] is None and row["heard_ms"] is not None for row in rows)


def leading(state: dict[str, Any]) -> str:
    """Where there is nothing to run: who leads, as far as this node knows."""
    acts, leader = state["acting"], state["leader"]
    if len(acts) > 1:
        both = f"{' and '.join(acts)} both lead"
        if not state.get("at_most_one", True):
            return click.style(f"{both}, each in its part of the network, until these meet", fg="yellow")
        return click.style(f"{both.upper()}", fg="red", bold=True)
    if leader is None:
        return "nobody leads"
    return f"node {leader} leads" + ("" if leader in acts or not acts else f", and {acts[0]} says that it does")


def sentences(row: dict[str, Any], state: dict[str, Any]) -> list[str]:
    """What is amiss with one node, and what to do."""
    name, here, said = row["node"], state["node"], []
    if row["waits_for"]:
        said.append(f"node {name} waits for {row['waits_for']}")
    if row["health"] not in (None, "ok", UNKNOWN):
        said.append(f"node {name}: {row['health']}")
    if row["trouble"]:
        said.append(row["trouble"])
    elif name != here and row["heard_ms"] is None:
        said.append(
            f"node {name} was never heard; it should be at {row['addr']}: is it started there, and does the firewall "
            f"let {'TCP' if state['strategy'] in BY_HTTP else 'UDP'} through?"
        )
    elif name != here and row["heard_ms"] > OLD_MS:
        said.append(
            f"node {name} was last heard {ago(row['heard_ms'])} ago; what is shown of it is as old. Is it started?"
        )
    return said


def _more(state: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{row['node']} {row['version']}" for row in state["rows"] if row["version"])
    counters = ", ".join(f"{name} {count:,}" for name, count in state["counters"].items())
    return ["", f"versions: {versions}", f"counted by {state['node']}: {counters or 'none'}"]


def ago(ms: int) -> str:
    """A span, as short as it can be said."""
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (10_000, "")):
        if ms >= unit:
            return f"{ms // unit} {name}" if name else f"{ms // 1_000} s"
    return f"{ms:,} ms"


def _table(rows: list[tuple[str, ...]], acts: list[str], *, bare: bool) -> list[str]:
    if bare:
        kept = [at for at, name in enumerate(HEAD) if name not in OF_WORK]
        rows = [tuple(row[at] for at in kept) for row in rows]
    doubled = acts if len(acts) > 1 else ()
    lines = zip(rows, columns(rows), strict=True)
    return [click.style(text, fg="red") if row[0] in doubled else text for row, text in lines]
