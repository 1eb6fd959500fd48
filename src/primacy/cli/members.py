"""`primacy members`: who belongs to a cluster, changed while the work runs.

Each verb may be said on any node: the leader is told. It waits until the change is made, unless told not to; what a
change waits for is said meanwhile, once per sentence.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from primacy.cli.call import Call, SpanMs, json_option, print_json, type_yes, yes_option
from primacy.cli.local import Local, local, local_options, this_node
from primacy.cli.outcome import goes_on
from primacy.cli.requests import said_by
from primacy.control.members import members_of
from primacy.errors import Later, NotReached, Refused, UsageError

EVERY_S = 0.1
WITHIN = "15s"
TOLD_S = 3.0
NEWS_S = 0.8
"""After so long the other nodes have heard from the leader whether a node that it removed knows."""
F = TypeVar("F", bound=Callable[..., Any])


def _change_options(command: F) -> F:
    """What all verbs that change something share."""
    for option in (
        json_option,
        click.option("--no-wait", is_flag=True, help="Do not wait until the change is made."),
        click.option(
            "--within",
            "within_ms",
            default=WITHIN,
            type=SpanMs(),
            metavar="SPAN",
            help="Wait at most so long.",
        ),
        click.option("--version", type=int, default=0, metavar="N", help="Only if this is still their version."),
        local_options,
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@local_options
@json_option
@click.pass_context
def members(ctx: click.Context, /, *, as_json: bool, **where: str | None) -> None:
    """Who belongs, with a version; its verbs change it while the work runs.

    Without a verb: the members, as the node of this machine has them, and what a change waits for.
    """
    if ctx.invoked_subcommand is not None:
        if (as_json and not ctx.obj.json) or any(where.values()):
            raise UsageError(f"options stand behind the verb: primacy members {ctx.invoked_subcommand} [OPTIONS]")
        return
    shown = _members(local(ctx.obj, **where))
    if as_json:
        print_json(shown)
    else:
        click.echo("\n".join(lines(shown)))


@members.command()
@click.argument("node")
@click.option("--addr", required=True, metavar="HOST:PORT", help="Where the other nodes find it.")
@click.option("--as", "kind", type=click.Choice(["voter", "witness", "observer"]), default="voter", help="Its kind.")
@click.option("--priority", type=int, default=0, metavar="N", help="A higher one campaigns earlier.")
@_change_options
@click.pass_obj
def add(call: Call, /, *, node: str, addr: str, kind: str, priority: int, **rest: Any) -> None:
    """Take NODE in. It is started with the same file and secret, and `--node NODE`; in whichever order."""
    _change(call, "add", {"node": node, "addr": addr, "kind": kind, "priority": priority}, **rest)


@members.command()
@click.argument("node")
@yes_option
@_change_options
@click.pass_obj
def remove(call: Call, /, *, node: str, yes: bool, **rest: Any) -> None:
    """Take NODE out. If it leads, the command moves to another node first."""
    _change(call, "remove", {"node": node}, leaves=node, yes=yes, **rest)


@members.command()
@click.argument("node")
@click.argument("new")
@click.option("--addr", required=True, metavar="HOST:PORT", help="Where the other nodes find NEW.")
@yes_option
@_change_options
@click.pass_obj
def replace(call: Call, /, *, node: str, new: str, addr: str, yes: bool, **rest: Any) -> None:
    """Put NEW in the place of NODE, in one change; NODE may be dead."""
    _change(call, "replace", {"node": node, "new": new, "addr": addr}, leaves=node, yes=yes, **rest)


@members.command()
@click.argument("node")
@_change_options
@click.pass_obj
def promote(call: Call, /, *, node: str, **rest: Any) -> None:
    """Make NODE, a witness or an observer, a voter."""
    _change(call, "promote", {"node": node}, **rest)


@members.command()
@click.argument("node")
@click.option("--to", "kind", type=click.Choice(["witness", "observer"]), default="observer", help="What it becomes.")
@yes_option
@_change_options
@click.pass_obj
def demote(call: Call, /, *, node: str, kind: str, yes: bool, **rest: Any) -> None:
    """Make NODE a witness, which votes and never leads, or an observer, which only watches."""
    _change(call, "demote", {"node": node, "kind": kind}, leaves=node, yes=yes, **rest)


@members.command("set")
@click.argument("node")
@click.option("--addr", default="", metavar="HOST:PORT", help="Where the other nodes find it.")
@click.option("--priority", type=int, default=None, metavar="N", help="A higher one campaigns earlier.")
@_change_options
@click.pass_obj
def set_(call: Call, /, *, node: str, addr: str, priority: int | None, **rest: Any) -> None:
    """Change the address or the priority of NODE."""
    body: dict[str, Any] = {"node": node, "addr": addr}
    _change(call, "set", body if priority is None else {**body, "priority": priority}, **rest)


@members.command()
@yes_option
@_change_options
@click.pass_obj
def apply(call: Call, /, *, yes: bool, config: str | None, **rest: Any) -> None:
    """Make the list of the file the members, in one change; the difference is shown first."""
    from primacy.settings import load

    nodes = load(call.file(config), call.node).cluster.manager.nodes
    rows = [
        {"node": name, "kind": str(node.kind), "addr": node.addr, "priority": node.priority}
        for name, node in sorted(nodes.items())
    ]
    if not rows:
        raise UsageError("the file names no nodes: cluster.manager.nodes")
    here = local(call, config=config, **_where(rest))
    shown = _known(_members(here))
    if not (changes := _changes(shown, rows)):
        click.echo(f"the file names the members of version {shown['version']}: nothing to apply")
        return
    click.echo("\n".join(changes), err=True)
    type_yes("The members become those of the file.", yes)
    rest["version"] = rest["version"] or shown["version"]  # the difference is one to these members
    _change(call, "apply", _differing(shown, rows), config=config, **rest)


@members.command()
@click.argument("node")
@_change_options
@click.pass_obj
def renew(call: Call, /, *, node: str, **rest: Any) -> None:
    """Take NODE out and in again: for one that lost its memory while not all others answer."""
    here = local(call, config=rest["config"], **_where(rest))
    row = next((row for row in _known(_members(here))["members"] if row["node"] == node), None)
    if row is None:
        raise UsageError(f"{node} is no member; see: primacy members")
    if node == here.get("/v1/members")["leader"]:
        raise Refused(f"{node} leads, and has its memory: there is nothing to renew")
    _change(call, "remove", {"node": node}, quiet=True, **{**rest, "no_wait": False})
    again = {"node": node, "addr": row["addr"], "kind": row["kind"], "priority": row["priority"]}
    _change(call, "add", again, **{**rest, "version": 0})


@members.command()
@_change_options
@click.pass_obj
def cancel(call: Call, /, **rest: Any) -> None:
    """Give up the change that is on its way."""
    _change(call, "cancel", {}, **rest)


@members.command()
@local_options
@click.option("--without", multiple=True, required=True, metavar="NODE", help="A member that is gone for good.")
@yes_option
@json_option
@click.pass_obj
def force(call: Call, /, *, without: tuple[str, ...], yes: bool, as_json: bool, **where: str | None) -> None:
    """The last resort, said on one node, when no majority is left: the members go on without NODE.

    You vouch that NODE is gone for good: its machine is off or wiped, and its command does not run.
    """
    node = this_node(call, **where)
    _members(node)
    risk = (
        f"You vouch that {', '.join(without)} is gone for good: its machine is off or wiped, and its command does not "
        "run. If it lives, the command may run twice."
    )
    type_yes(risk, yes)
    node.order("members", verb="force", without=list(without), by=said_by())
    shown = node.get("/v1/members")
    if as_json:
        print_json(shown)
    else:
        click.echo("\n".join(lines(shown)))


@members.command()
@local_options
@click.pass_obj
def export(call: Call, /, **where: str | None) -> None:
    """Print the members as they stand in a file, below cluster.manager.nodes."""
    shown = _known(_members(local(call, **where)))
    for row in shown["members"]:
        said = [f'addr: "{row["addr"]}"']
        said += [f"kind: {row['kind']}"] if row["kind"] != "voter" else []
        said += [f"priority: {row['priority']}"] if row["priority"] else []
        click.echo(f"{row['node']}: {{{', '.join(said)}}}")


def _members(here: Local) -> dict[str, Any]:
    """As this node has them. Raises `Refused` where no node has any."""
    shown: dict[str, Any] = here.get("/v1/members")
    if shown["version"] is None and (strategy := here.get("/v1/state")["strategy"]) != "raft":
        raise Refused(f"{strategy} keeps no list of members, which raft does; who takes part: primacy status")
    return shown


def _known(shown: dict[str, Any]) -> dict[str, Any]:
    if shown["version"] is None:
        raise NotReached(f"node {shown['node']} has no members yet: it waits for {shown['waits_for']}")
    return shown


# --- a change, from the order to its end ------------------------------------------------------------------------------


def _change(
    call: Call,
    verb: str,
    body: dict[str, Any],
    *,
    config: str | None,
    as_json: bool,
    no_wait: bool,
    within_ms: int,
    version: int,
    leaves: str = "",
    yes: bool = False,
    quiet: bool = False,
    **where: str | None,
) -> None:
    here = local(call, config=config, **where)
    before = _members(here)
    if leaves and leaves == before["leader"]:
        type_yes(f"Node {leaves} leads: the command moves to another node first.", yes)
    _ask(here, within_ms, verb=verb, version=version, by=said_by(), **body)
    with goes_on("primacy members; to give up a change: primacy members cancel"):
        shown = before if no_wait else _wait(here, before, within_ms, verb, body)
        if verb == "remove" and not no_wait and not quiet:
            shown = _wait_told(here, shown, body["node"])
    if as_json:
        print_json(shown)
    elif not quiet:
        click.echo(f"{verb}: asked for; see: primacy members" if no_wait else _done(verb, body, shown))


def _ask(here: Local, within_ms: int, **body: Any) -> None:
    """A change that is made may still lack a majority's ack, which only its leader knows: a command that follows at
    once waits for that, too."""
    ends = time.monotonic() + within_ms / 1_000
    while True:
        try:
            here.order("members", **body)
        except Later:
            if time.monotonic() > ends:
                raise
            time.sleep(EVERY_S)
        else:
            return


def _wait(here: Local, before: dict[str, Any], within_ms: int, verb: str, body: dict[str, Any]) -> dict[str, Any]:
    """Until it is made, and nothing is on its way any more. What it waits for is said, each sentence once.

    A new leader gives the members a new term, also where it knows of no change: that alone tells nothing.
    """
    ends = time.monotonic() + within_ms / 1_000
    said, settled, begun = "", True, False
    while time.monotonic() < ends:
        time.sleep(EVERY_S)
        newer: dict[str, Any] = here.get("/v1/members")
        moved = (newer["term"], newer["version"]) > (before["term"], before["version"])
        settled = newer["goal"] is None and not newer["leaving"] and len(newer["needs"]) == 1
        if moved and settled and is_made(verb, body, newer):
            return newer
        if settled and begun:
            gone = "by an operator, or with the leader that it was said to"
            raise Refused(f"{verb} was given up, {gone}; version {newer['version']}: {_named(newer)}")
        begun = not settled
        if newer["waits_for"] and newer["waits_for"] != said:
            said = newer["waits_for"]
            click.echo(f"waits: {said}", err=True)
    if settled:
        raise Refused("not confirmed: the change has not begun, or was given up; see: primacy members")
    why = said or "see: primacy members"
    raise Refused(f"not done within {within_ms} ms, and it goes on: {why}; to give it up: primacy members cancel")


def is_made(verb: str, body: dict[str, Any], shown: dict[str, Any]) -> bool:
    """The members are as was asked for. Pure."""
    rows = {row["node"]: row for row in shown["members"]}
    row = rows.get(body.get("new") or body.get("node", ""), {})
    match verb:
        case "add" | "demote":
            return bool(row.get("kind") == body["kind"])
        case "promote":
            return bool(row.get("kind") == "voter")
        case "remove":
            return body["node"] not in rows
        case "replace":
            return body["new"] in rows and body["node"] not in rows
        case "set":
            said = [field for field in ("addr", "priority") if body.get(field) not in (None, "")]
            return all(row.get(field) == body[field] for field in said)
        case "apply":
            stay = all(rows.get(each["node"], {}).items() >= each.items() for each in body["members"])
            return stay and not rows.keys() & set(body["without"])
    return True


def _wait_told(here: Local, shown: dict[str, Any], node: str) -> dict[str, Any]:
    """A moment longer, until the node that is out has said that it knows: one that is off never does."""
    begun = time.monotonic()
    least_s = 0.0 if shown["leader"] == shown["node"] else NEWS_S
    while (waited_s := time.monotonic() - begun) < TOLD_S:
        if node not in shown.get("removed_untold", ()) and waited_s >= least_s:
            break
        time.sleep(EVERY_S)
        newer = here.get("/v1/members")
        shown = newer if newer["version"] == shown["version"] else shown
    return shown


def _done(verb: str, body: dict[str, Any], shown: dict[str, Any]) -> str:
    version, node = shown["version"], body.get("new") or body.get("node", "")
    kinds = {row["node"]: row["kind"] for row in shown["members"]}
    match verb:
        case "add" | "replace" | "promote" | "demote":
            votes = {"voter": "votes", "witness": "is a witness", "observer": "is an observer"}[kinds[node]]
            return f"{node} {votes} since version {version}"
        case "remove":
            told = "it was not told: keep it off" if node in shown.get("removed_untold", ()) else "it was told"
            return f"{node} is out since version {version}; {told}"
    return f"version {version}: {_named(shown)}"


def _named(shown: dict[str, Any]) -> str:
    """The members; one that is no voter with its kind."""
    kinds = [(row["node"], row["kind"]) for row in shown["members"]]
    return ", ".join(node if kind == "voter" else f"{node} ({kind})" for node, kind in kinds)


def _where(rest: dict[str, Any]) -> dict[str, str | None]:
    return {name: rest[name] for name in ("election", "state_dir", "cluster")}


def _differing(shown: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What comes or changes, and who leaves: a whole list may be too long to be passed on to the leader."""
    now = {row["node"]: {name: row[name] for name in ("node", "kind", "addr", "priority")} for row in shown["members"]}
    gone = sorted(now.keys() - {row["node"] for row in rows})
    return {"members": [row for row in rows if now.get(row["node"]) != row], "without": gone}


def _changes(shown: dict[str, Any], rows: list[dict[str, Any]]) -> tuple[str, ...]:
    from primacy.control.members import difference
    from primacy.election.model import MembersId, Register

    there = Register(MembersId(shown["term"], shown["version"]), members_of(shown["members"]))
    return difference(members_of(rows), there)


# --- the screen -------------------------------------------------------------------------------------------------------


def lines(shown: dict[str, Any]) -> list[str]:
    """The members, a row for each; then what is on its way."""
    _known(shown)
    found = [f"version {shown['version']} (term {shown['term']})"]
    width = max(len(row["node"]) for row in shown["members"])
    for row in shown["members"]:
        heard = "this node" if row["node"] == shown["node"] else _ago(row["heard_ms"])
        leads = ", leads" if row["node"] == shown["leader"] else ""
        has = row.get("has_version")
        older = f", has version {has}" if has not in (None, shown["version"]) else ""
        found.append(f"  {row['node']:{width}}  {row['addr'] or '-':22} {row['kind']:9} {heard}{leads}{older}")
    if shown["leaving"]:
        found.append(f"leaving: {', '.join(shown['leaving'])}")
    if len(shown["needs"]) > 1:
        halves = [f"{half['needed']} of {','.join(half['voters'])}" for half in shown["needs"]]
        found.append(f"needs {' and '.join(halves)}")
    if shown["goal"]:
        wanted = ", ".join(f"{row['node']} ({row['kind']})" for row in shown["goal"]["members"])
        found.append(f"on its way, asked for by {shown['goal']['by'] or 'an operator'}: {wanted}")
    if shown["waits_for"]:
        found.append(f"waits: {shown['waits_for']}")
    return found + untold(shown) + asking(shown) + ([shown["file"]] if shown["file"] else [])


def untold(shown: dict[str, Any]) -> list[str]:
    """Who was removed while it was off."""
    return [
        f"{name} was removed and was not told: keep it off, or remove its state folder before it is started"
        for name in shown.get("removed_untold", ())
    ]


def asking(shown: dict[str, Any]) -> list[str]:
    """Nodes that are started, and that nobody has added."""
    return [
        f"a node that asks to belong: {one['node']}, from {one['host']}; to take it in: primacy members add "
        f"{one['node']} --addr {one['host']}:PORT"
        for one in shown.get("asking", ())
    ]


def _ago(heard_ms: int | None) -> str:
    return "not heard" if heard_ms is None else f"heard {heard_ms / 1_000:.1f} s ago"
