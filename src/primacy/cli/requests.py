"""The commands that change who leads, and the two that an operator must answer for: `init` and `rejoin`.

Each is one order to the node of this machine, which refuses what makes no sense, with the reason.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections.abc import Callable
from typing import Any

import click

from primacy.cli.call import Call, json_option, print_json, type_yes, yes_option
from primacy.cli.local import Local, local, local_options, this_node
from primacy.cli.outcome import (
    goes_on,
    leader_of,
    look,
    sentence,
    wait_for_answers,
    wait_for_end,
    wait_for_leader,
    wait_options,
    when_taken,
)
from primacy.errors import Refused, UsageError


@click.command("step-down")
@local_options
@wait_options
@json_option
@click.pass_obj
def step_down(call: Call, /, *, no_wait: bool, within_ms: int, as_json: bool, **where: str | None) -> None:
    """Stop the command, in order, and let the nodes elect again: the same node may win again.

    May be said on any node: the leader is told. Waits until a node leads, and its command runs.
    """
    here = local(call, **where)
    before = here.get("/v1/state")
    state = here.order("step-down")
    begun = f"node {_whose(state)} steps down: its work is stopped, then the role is free"
    if no_wait:
        _say(as_json, state, begun)
    else:
        _say_outcome(as_json, here, begun, lambda: wait_for_leader(here, before, within_ms))


@click.command()
@local_options
@click.argument("node")
@wait_options
@json_option
@click.pass_obj
def transfer(call: Call, /, *, node: str, no_wait: bool, within_ms: int, as_json: bool, **where: str | None) -> None:
    """Stop the command where it runs, in order, and hand the role to NODE. May be said on any node.

    Waits until NODE leads, and its command runs; exit code 1, with the reason, if another one leads.
    """
    here = local(call, **where)

    def asked() -> tuple[dict[str, Any], dict[str, Any] | None]:
        before = here.get("/v1/state")
        return before, None if before["leader"] == node else here.order("transfer", to=node)

    before, state = when_taken(asked, 0 if no_wait else within_ms)
    if state is None:
        already = f"node {node} leads already (term {before['term']}): nothing to do"
        _say(as_json, {**before, "waits_for": None}, already)
        return
    begun = f"node {_whose(state)} steps down in favour of {node}"
    if no_wait:
        _say(as_json, state, begun)
    else:
        _say_outcome(as_json, here, begun, lambda: wait_for_leader(here, before, within_ms, node))


@click.command()
@local_options
@click.argument("node", required=False)
@wait_options
@json_option
@click.pass_obj
def pause(
    call: Call, /, *, node: str | None, no_wait: bool, within_ms: int, as_json: bool, **where: str | None
) -> None:
    """Keep NODE, or this node, from leading, over restarts too, until `primacy resume`. If it leads, it steps down.

    Waits until its command has ended.
    """
    here = (this_node if node is None else local)(call, **where)
    state = here.order("pause", **_named(node))
    whose = _whose(state)
    end = f"primacy resume {whose}" if "passed_to" in state else "primacy resume"
    passed = {name: state[name] for name in ("passed_to", "passed_waits_for") if name in state}
    if not no_wait:
        with goes_on("primacy status"):
            state = {**wait_for_end(here, whose, within_ms), **passed}
    _say(as_json, state, f"node {whose} is paused and does not lead; to end this: {end}")


@click.command()
@local_options
@click.argument("node", required=False)
@json_option
@click.pass_obj
def resume(call: Call, /, *, node: str | None, as_json: bool, **where: str | None) -> None:
    """End `primacy pause`: NODE, or this node, may lead again."""
    state = (this_node if node is None else local)(call, **where).order("resume", **_named(node))
    _say(as_json, state, f"node {_whose(state)} may lead again")


@click.command()
@local_options
@click.argument("node", required=False)
@click.option(
    "--term", type=click.IntRange(1), metavar="N", help="The term that is approved; `primacy status` says it."
)
@json_option
@click.pass_obj
def approve(call: Call, /, *, node: str | None, term: int | None, as_json: bool, **where: str | None) -> None:
    """Let the elected node start the command (election.mode: manual). It is for this node and this term only.

    Without NODE and --term it is what `primacy status` shows to be waiting.
    """
    here = local(call, **where)
    if node is None or term is None:
        waiting = [found for found in _waiting(here) if node in (None, found[0]) and term in (None, found[1])]
        if not waiting:
            whose = f"node {node}" if node else "no node"
            raise Refused(f"as far as this node knows, {whose} waits for {'no' if node else 'an'} approval")
        node, term = waiting[0]
    state = here.order("approve", node=node, term=term, by=said_by())
    _say(as_json, state, f"a start of node {node} in term {term} is approved")


@click.command()
@local_options
@click.argument("node")
@json_option
@click.pass_obj
def remove(call: Call, /, *, node: str, as_json: bool, **where: str | None) -> None:
    """Take NODE off the list of a cluster that grows by joining (bully, ring). May be said on any node.

    It stops taking part if it still runs; started anew, it joins again.
    """
    state = local(call, **where).order("remove", node=node)
    _say(as_json, state, f"node {node} is removed from the list; started anew, it joins again")


@click.command()
@local_options
@click.option("--without", multiple=True, metavar="NODE", help="A node that cannot answer and has no memory.")
@yes_option
@json_option
@click.pass_obj
def init(call: Call, /, *, without: tuple[str, ...], yes: bool, as_json: bool, **where: str | None) -> None:
    """Begin a cluster, once, on one of its nodes (first_start: explicit). All others must answer that they are new."""
    node = this_node(call, **where)
    risk = "This begins a new cluster. A node that remembers an older one refuses it."
    if without:
        risk = (
            f"This begins a new cluster. Nobody asks {', '.join(without)}: if a node left out here remembers the "
            "cluster, or runs its command now, the command may run twice, and tokens may repeat."
        )
    type_yes(risk, yes, f"Election {node.election}: type yes to go on")
    state = wait_for_answers(node, node.order("init", without=list(without)))
    _say(as_json, state, f"node {state['node']} begins the cluster; see: primacy status")


@click.command()
@local_options
@click.option("--without", multiple=True, metavar="NODE", help="A node that is gone for good.")
@click.option("--others-stopped", is_flag=True, help="Nobody uses the lease any more that this node used before.")
@yes_option
@json_option
@click.pass_obj
def rejoin(
    call: Call, /, *, without: tuple[str, ...], others_stopped: bool, yes: bool, as_json: bool, **where: str | None
) -> None:
    """Let this node speak again although NODE does not answer: you vouch that NODE is gone for good."""
    if not without and not others_stopped:
        raise UsageError("Missing option '--without' (NODE is gone for good) or, after a lease, '--others-stopped'.")
    node = this_node(call, **where)
    vouched = [f"{', '.join(without)} is gone for good: its machine is off or wiped, and its command does not run"]
    vouched = vouched if without else []
    if others_stopped:
        vouched.append("nobody uses the lease any more that this node used before: no agent, no program")
    risk = (
        f"You vouch that {'; and that '.join(vouched)}. If one of them lives, behind a broken network perhaps, the "
        "command may run twice."
    )
    type_yes(risk, yes, f"Election {node.election}: type yes to go on")
    more = {"others_stopped": True} if others_stopped else {}  # a node of an older version does not know it
    state = node.order("rejoin", without=list(without), **more)
    left_out = ", ".join((*without, *(["the others of the lease"] if others_stopped else [])))
    _say(as_json, state, f"node {state['node']} goes on without {left_out}; see: primacy status")


def _waiting(here: Local) -> list[tuple[str, int]]:
    """Which nodes wait for an approval of which term, as the node of this machine knows it: itself first."""
    said = [str(here.get("/v1/state")["waits_for"])]
    with contextlib.suppress(Refused):  # a node of an older version knows of itself only
        said += [str(row["waits_for"]) for row in here.get("/v1/cluster")["nodes"]]
    found = [re.search(r"primacy approve (\S+) --term (\d+)", sentence) for sentence in said]
    return list(dict.fromkeys((match[1], int(match[2])) for match in found if match))


def said_by() -> str:
    """For the record; what counts is the control key."""
    try:
        return f"{getpass.getuser()} on {socket.gethostname()}"
    except (KeyError, OSError):
        return f"user {os.getuid()} on {socket.gethostname()}"


def _named(node: str | None) -> dict[str, str]:
    """The node that is meant; none: that of this machine."""
    return {} if node is None else {"node": node}


def _whose(state: dict[str, Any]) -> str:
    """The node that did it: another one, if the order was passed on."""
    return str(state.get("passed_to") or state["node"])


def _say_outcome(as_json: bool, here: Local, begun: str, wait: Callable[[], dict[str, Any]]) -> None:
    """What was begun, at once; then what came of it."""
    if not as_json:
        click.echo(begun)
    with goes_on("primacy status"):
        state = wait()
    if as_json:
        print_json(state)
        return
    click.echo(sentence(state, leader_of(*look(here))[1]))


def _say(as_json: bool, state: dict[str, Any], sentence: str) -> None:
    if as_json:
        print_json(state)
        return
    click.echo(sentence)
    waits = state.get("passed_waits_for") if "passed_to" in state else state["waits_for"]
    if waits:
        click.echo(f"node {_whose(state)} waits for {waits}")
