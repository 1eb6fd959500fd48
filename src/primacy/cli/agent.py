"""`primacy agent`: all elections of a file in one process; `primacy reload`: its file read again."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

import click

from primacy.cli.call import Call, bind_option, config_option, json_option, print_json
from primacy.errors import CannotHere, UsageError

RELOAD_S = 30.0
"""A file of some hundred elections takes a busy machine seconds to read."""


@click.command()
@config_option
@click.option("--node", metavar="ID", help="Which node of the file this is; default: the host's name.")
@bind_option
@click.option("--state-dir", metavar="DIR", help="Where the node keeps what it must not forget.")
@click.pass_obj
def agent(call: Call, *, config: str | None, node: str | None, bind: str, state_dir: str | None) -> int:
    """Run all elections of the file (`elections`) in one process: each command at most once at a time.

    Each has its own ballot, guard, locks and token; all share one UDP port, one control API and one page of metrics.
    `primacy status` shows them, --election NAME one of them. After a change of the file: `primacy reload`.
    """
    if not sys.platform.startswith("linux"):
        raise CannotHere("primacy agent needs Linux: its guards use kernel timers and process namespaces")
    file = call.file(config)
    if file is None:
        raise UsageError("primacy agent needs a file with `elections`; name it with --config")
    path = os.path.abspath(file)

    from primacy.agent.many import ManyPlan, run
    from primacy.node.clock import SystemClock
    from primacy.settings import load

    clock = SystemClock()

    def planned() -> ManyPlan:
        found = load(path, node or call.node)
        folder = os.path.abspath(state_dir) if state_dir is not None else found.state_dir
        settings = dataclasses.replace(found, bind=bind, state_dir=folder)
        return ManyPlan(settings, call.log(settings, clock), clock, planned)

    return run(planned())


@click.command()
@config_option
@click.option("--state-dir", metavar="DIR", help="The state folder, as the agent was told.")
@click.option("--cluster", metavar="NAME", help="Which cluster; default: the file's, else primacy.")
@json_option
@click.pass_obj
def reload(call: Call, /, *, as_json: bool, **where: str | None) -> None:
    """Have the agent of this machine read its file again: it adds, removes and changes elections, and touches no other.

    A changed or removed one is stopped first, in order; its token is kept. A file with a problem changes nothing. The
    signal HUP does the same.
    """
    from primacy.cli.local import agent as found
    from primacy.control.client import ask

    done: dict[str, Any] = ask(found(call, **where), "/v1/reload", {}, RELOAD_S)
    if as_json:
        print_json(done)
        return
    words = {"added": "starts", "removed": "is stopped; its token is kept", "changed": "is stopped, then starts anew"}
    said = [f"{name} {words[word]}" for word in words for name in done[word]]
    for line in said or ["the file has the same elections as before"]:
        click.echo(line)
    for sentence in done.get("warnings", ()):  # an older agent gives none
        click.echo(f"warning: {sentence}", err=True)
