"""`primacy status`: all nodes of the cluster, as the node of this machine knows them."""

from __future__ import annotations

import json
import shutil
import sys
import time
from datetime import UTC, datetime
from typing import Any

import click

from primacy.cli.call import Call, columns, json_option, print_json
from primacy.cli.local import Local, local, local_options, many
from primacy.cli.members import asking, untold
from primacy.cli.status_many import all_lines, all_well
from primacy.control.client import ask
from primacy.control.summary import UNKNOWN
from primacy.errors import NotReached

EVERY_S = 1.0
"""How often `--watch` looks."""
COLUMNS = 80
"""The table fits a terminal of so many, but for names that are long."""
OLD_MS = 5_000
"""News come once a second: older ones say what was, not what is."""


@click.command()
@local_options
@click.option("--watch", is_flag=True, help="Go on, once a second, until Ctrl-C.")
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Versions of the nodes, and what this node has counted.")
@click.pass_obj
def status(call: Call, /, *, watch: bool, as_json: bool, verbose: bool, **where: str | None) -> int:
    """Who leads, where the command runs and since when, and what a node waits for: all nodes, seen from this one.

    Of an agent with several elections, a row for each; --election shows one of them.

    Exit code 1 while nobody runs the command (or, where there is none, while nobody leads), while it is not known here
    whether somebody does, and if two do.
    """
    verbose = verbose or bool(call.verbose)
    if not watch:
        state = _look(call, where)
        if as_json:
            print_json(state)
        else:
            click.echo("\n".join(wrapped(_screen(state, verbose))))
        return 0 if is_well(state) else 1
    while True:
        try:
            state = _look(call, where)
            text = json.dumps(state, ensure_ascii=False) if as_json else "\n".join(wrapped(_screen(state, verbose)))
        except NotReached as error:
            text = json.dumps({"error": str(error)}) if as_json else f"primacy: {error}"
        if not as_json:
            click.clear()
        click.echo(text)
        time.sleep(EVERY_S)


def _look(call: Call, where: dict[str, str | None]) -> dict[str, Any]:
    """Of several elections, all in short; else of one, with all nodes."""
    agent = many(call, **where)
    if agent is not None:
        document: dict[str, Any] = ask(agent, "/v1/elections")
        return document
    return seen(local(call, **where))


def _screen(state: dict[str, Any], verbose: bool) -> list[str]:
    return all_lines(state) if "elections" in state else lines(state, verbose=verbose)


def is_well(state: dict[str, Any]) -> bool:
    """One is seen to act; where there is no command, the one that leads was not lost sight of. What is not known is not
    well. Of several elections, in each that this node takes part in."""
    if "elections" in state:
        return all_well(state)
    if state["acting"]:
        return len(state["acting"]) == 1 or not state.get("at_most_one", True)
    lost = [row["node"] for row in state["rows"] if row.get("acting") in ("unknown", "over")]
    return _bare(state) and state["leader"] is not None and state["leader"] not in lost


def is_unknown(state: dict[str, Any]) -> bool:
    """Nobody is seen to act, and this node cannot know whether somebody does: it hears too few, or only of itself (on a
    lease without a list, below a leader that is a node of Ghoti, before it belongs)."""
    on_lease = state["strategy"] == "lease" and state["leader"] not in (None, state["node"])
    return not state["acting"] and bool(
        state.get("not_known") or on_lease or _leads_unseen(state) or _does_not_belong(state)
    )


def wrapped(said: list[str]) -> list[str]:
    """On a terminal, sentences are broken between words."""
    if sys.stdout is None or not sys.stdout.isatty():
        return said
    wide = max(40, shutil.get_terminal_size((COLUMNS, 24)).columns)
    return [line if len(click.unstyle(line)) <= wide else click.wrap_text(line, wide, "", "  ") for line in said]


def seen(node: Local) -> dict[str, Any]:
    """The state document of the node that is asked, and of all: `rows`, `acting`, what is `not_known`, `alerts`."""
    whole = node.get("/v1/cluster")
    state = node.get("/v1/state")
    known = {name: whole[name] for name in ("acting", "not_known", "alerts", "at", "at_most_one") if name in whole}
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
    said += ["", acting(state) if is_well(state) or is_unknown(state) else click.style(acting(state), fg="red")]
    token = max((row["token"] or 0 for row in state["rows"]), default=0)
    if token:
        said.append(f"token: {token}")
    if state.get("containment"):
        said.append(f"node {state['node']}: {state['containment']}")
    said += [sentence for row in state["rows"] for sentence in sentences(row, state)]
    members = state.get("members") or {}  # nodes of an older version say nothing of it
    said += _members_line(members, state["rows"])
    if members.get("waits_for"):
        said.append(f"members, version {members['version']}: a change waits for {members['waits_for']}")
    said += untold(members) + asking(members)
    if members.get("file"):
        said.append(members["file"])
    said += [
        f"node {name} runs here, too, and is not in this list; primacy --node {name} status shows it"
        for name in state.get("beside", ())
    ]
    if not state["waits_for"] and not state["leader"]:
        said.append(f"node {state['node']} knows of no leader; primacy why says what happened")
    return said + (_more(state) if verbose else [])


def _members_line(members: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """Which members count, and who has others yet."""
    if not members:
        return []
    version = members["version"]
    has = {row["node"]: (row.get("members") or {}).get("version") for row in rows}
    others = [f"{name} has version {its}" for name, its in has.items() if its not in (None, version)]
    silent = [name for name, its in has.items() if its is None]
    unsaid = [f"what {', '.join(silent)} {'has' if len(silent) == 1 else 'have'} is not known here"] if silent else []
    return ["; ".join([f"members: version {version}", *others, *unsaid])]


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
    doing = "not known, " if row.get("acting") == "unknown" and past else ""
    return (
        row["node"],
        past + (row["role"] if row["role"] == row["kind"] else f"{row['role']}{kind}"),
        row["leader"] or "nobody",
        str(row["term"]),
        doing + past + _workload(row["workload"]),
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
    if not acts and _does_not_belong(state):
        return f"node {state['node']} does not belong yet: where {work} runs, primacy status says on the other nodes"
    if not acts:
        unsure = state.get("not_known", "nobody is known to run the command")  # of an earlier version
        return str(unsure or "nobody runs the command").replace("the command", work)
    workload = next(row["workload"] for row in state["rows"] if row["node"] == acts[0])
    if workload is None or workload["state"] != "running":
        doing = {"starting": "is starting", "stopping": "is being stopped", "stuck": "was killed and does not end"}
        return f"{work} {doing.get(workload['state'] if workload else '', 'is')} on {acts[0]}"
    if not workload["since"]:
        return f"{work} runs on {acts[0]}"
    began = datetime.fromisoformat(workload["since"])
    ran_ms = int((datetime.fromisoformat(state["at"]) - began.astimezone(UTC)).total_seconds() * 1_000)
    since = f"{began.astimezone():%Y-%m-%d %H:%M:%S}"
    return click.style(f"{work} runs on {acts[0]}, for {ago(max(0, ran_ms))}, since {since}", fg="green")


def _does_not_belong(state: dict[str, Any]) -> bool:
    """It has no members, and others answer it, but do not tell it how they stand."""
    others = [row for row in state["rows"] if row["node"] != state["node"]]
    answered = any(row["heard_ms"] is not None for row in others) and all(row["told_ms"] is None for row in others)
    recovers = state["strategy"] == "raft" and state.get("role") == "recovering"
    return recovers and answered and state.get("members", {}) is None


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
    if leader is None and state.get("not_known"):
        return "this node knows of no leader; whether somebody leads elsewhere is not known here"
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


LEFT_OUT = {"containment": ("strong", "-"), "health": ("ok", "-")}
"""Columns that are shown only if somebody has something else to say there."""
SPARED = ("hold left", "containment", "leader")
"""Columns that are left out one by one where the table is too wide; `--json` has all."""


def _table(rows: list[tuple[str, ...]], acts: list[str], *, bare: bool) -> list[str]:
    said = {name: {row[at] for row in rows[1:]} for at, name in enumerate(HEAD)}
    dull = [name for name, usual in LEFT_OUT.items() if said[name] <= set(usual)]
    names = [name for name in HEAD if name not in dull and not (bare and name in OF_WORK)]
    table = _columns(rows, names)
    for spared in SPARED:
        if max(map(len, table)) <= COLUMNS:
            break
        names = [name for name in names if name != spared]
        table = _columns(rows, names)
    return [_coloured(row, text, acts) for row, text in zip(rows, table, strict=True)]


def _columns(rows: list[tuple[str, ...]], names: list[str]) -> list[str]:
    kept = [at for at, name in enumerate(HEAD) if name in names]
    return columns([tuple(row[at] for at in kept) for row in rows])


def _coloured(row: tuple[str, ...], text: str, acts: list[str]) -> str:
    """Two that act are red, the one that acts is green, who takes no part is yellow."""
    if row[0] in acts:
        return click.style(text, fg="red" if len(acts) > 1 else "green")
    away = row[1].startswith(("?", "was ", "recovering", "paused", "starting"))
    return click.style(text, fg="yellow") if away else text
