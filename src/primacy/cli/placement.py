"""Where the elections of an agent with several are led: `placement`, `rebalance`, `drain`, `undrain`, `maintenance`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from primacy.cli.call import Call, SpanMs, config_option, json_option, print_json
from primacy.cli.local import agent as found
from primacy.cli.outcome import goes_on
from primacy.control.client import FoundNode, ask
from primacy.errors import Refused

EVERY_S = 0.3
WITHIN = "5m"
"""A handover takes as long as the command takes to stop, and they are made one after the other."""

F = TypeVar("F", bound=Callable[..., Any])


def agent_options(command: F) -> F:
    """Which agent is meant."""
    for option in (
        json_option,
        click.option("--cluster", metavar="NAME", help="Which cluster; default: the file's, else primacy."),
        click.option("--state-dir", metavar="DIR", help="The state folder, as the agent was told."),
        config_option,
    ):
        command = option(command)
    return command


def waiting_options(command: F) -> F:
    for option in (
        click.option("--no-wait", is_flag=True, help="Ask for it, and do not wait until it is done."),
        click.option(
            "--within",
            "within_ms",
            default=WITHIN,
            metavar="SPAN",
            type=SpanMs(),
            help="Wait at most so long; default: 5m.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@agent_options
@click.pass_obj
def placement(call: Call, /, *, as_json: bool, **where: str | None) -> None:
    """Which node leads which election, who is drained, and what would be handed over."""
    said = ask(found(call, **where), "/v1/placement")
    if as_json:
        print_json(said)
        return
    if said["maintenance"]:
        click.echo("maintenance: nothing moves by itself; to end this: primacy maintenance off")
    for node in said["nodes"]:
        notes = [] if node["heard"] else ["not heard"]
        notes += ["drained"] if node["drained"] else []
        notes += [f"weight {node['weight']}"] if node["weight"] != 1 else []
        names = ", ".join(node["leads"]) or "nothing"
        click.echo(f"{node['node']}  leads {len(node['leads'])}: {names}{''.join(f'; {note}' for note in notes)}")
    nobody = [row["election"] for row in said["elections"] if not row["leader"]]
    if nobody:
        click.echo(f"nobody leads {', '.join(nobody)}")
    _say_plan(said)


@click.command()
@agent_options
@waiting_options
@click.option("--dry-run", is_flag=True, help="Only say what would be handed over.")
@click.pass_obj
def rebalance(
    call: Call, /, *, as_json: bool, within_ms: int, no_wait: bool, dry_run: bool, **where: str | None
) -> None:
    """Hand elections over, one after the other, until they are spread as weights and placements say.

    It happens by itself, too, when all has been calm for a while; this does not wait for that, nor for the end of
    `primacy maintenance`.
    """
    here = found(call, **where)
    said = ask(here, "/v1/placement") if dry_run else ask(here, "/v1/rebalance", {})
    if not dry_run and not no_wait:
        with goes_on("primacy placement"):
            said = _wait(here, within_ms, lambda now: not now["plan"])
    if as_json:
        print_json(said)
    else:
        _say_plan(said)
    if said["plan"] and not dry_run and not no_wait:
        raise Refused(f"not done within {within_ms} ms, and it goes on: primacy placement")


@click.command()
@agent_options
@waiting_options
@click.argument("node")
@click.pass_obj
def drain(call: Call, /, *, node: str, as_json: bool, within_ms: int, no_wait: bool, **where: str | None) -> None:
    """Hand over all that NODE leads, one after the other. Nothing comes back, also after a restart, until `undrain`.

    What no other node can lead stays, and is named with the reason: then this ends with 1.
    """
    here = found(call, **where)
    said = ask(here, "/v1/drain", {"node": node})
    if not no_wait:
        with goes_on("primacy placement"):
            said = _wait(here, within_ms, lambda now: set(_row(now, node)["leads"]) <= set(_row(now, node)["stays"]))
    row = _row(said, node)
    if as_json:
        print_json(said)
    elif not row["leads"]:
        click.echo(f"node {node} is drained and leads nothing; to end this: primacy undrain {node}")
    if row["leads"] and not no_wait:
        reasons = [f"{name}: {row['stays'].get(name, 'still to be handed over')}" for name in row["leads"]]
        raise Refused(f"node {node} is drained, and still leads {len(reasons)}:\n" + "\n".join(reasons))


@click.command()
@agent_options
@click.argument("node")
@click.pass_obj
def undrain(call: Call, /, *, node: str, as_json: bool, **where: str | None) -> None:
    """End `primacy drain`: NODE may lead again. Elections come back to it when all has been calm for a while."""
    said = ask(found(call, **where), "/v1/undrain", {"node": node})
    if as_json:
        print_json(said)
    else:
        click.echo(f"node {node} may lead again; elections come back by themselves, or now: primacy rebalance")


@click.command()
@agent_options
@click.argument("state", type=click.Choice(["on", "off"]))
@click.pass_obj
def maintenance(call: Call, /, *, state: str, as_json: bool, **where: str | None) -> None:
    """Keep elections where they are while you work on the cluster: nothing is handed over but what has to leave.

    It holds for all nodes, over restarts, until it is turned off. `drain` and `rebalance` are done all the same.
    """
    said = ask(found(call, **where), "/v1/maintenance", {"on": state == "on"})
    if as_json:
        print_json(said)
    else:
        told = ", ".join(said["told"])
        click.echo(
            f"maintenance is {state} on {told}" + ("; to end this: primacy maintenance off" if state == "on" else "")
        )
    if said["missed"]:
        raise Refused("\n".join(f"node {name} was not told: {why}" for name, why in said["missed"].items()))


def _row(said: dict[str, Any], node: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in said["nodes"] if row["node"] == node)
    return row


def _wait(here: FoundNode, within_ms: int, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What is known when it is done, twice in a row, or when the time is over."""
    ends, before = time.monotonic() + within_ms / 1_000, False
    while True:
        said: dict[str, Any] = ask(here, "/v1/placement")
        now = done(said) and all(row["leader"] for row in said["elections"])
        if (now and before) or time.monotonic() > ends:
            return said
        before = now
        time.sleep(EVERY_S)


def _say_plan(said: dict[str, Any]) -> None:
    from primacy.control.placement import step_sentence

    for step in said["plan"]:
        click.echo(step_sentence(step))
    if not said["plan"]:
        click.echo("nothing is to be handed over")
