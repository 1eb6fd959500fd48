"""`primacy run -- CMD`: one process, at most one machine."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

import click

from primacy.cli.call import Call, SpanMs, bind_option, checked_name, config_option
from primacy.errors import CannotHere
from primacy.settings.accepted import STRATEGIES
from primacy.settings.names import host_name
from primacy.settings.schema import Settings
from primacy.settings.timing import PROFILES


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] CMD [ARG]...")
@config_option
@click.option(
    "--node", metavar="ID", help="Which node this is, of the file's list or a new one; default: the host's name."
)
@bind_option
@click.option("--election", metavar="NAME", help="The role to be filled; default: main.")
@click.option("--state-dir", metavar="DIR", help="Where the node keeps what it must not forget.")
@click.option("--profile", metavar="P", help=f"Times: {', '.join(PROFILES)}; see `primacy contract`.")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="How the one is chosen; default: raft.")
@click.option(
    "--store", metavar="URL", help="Choose it by a lease in this database: postgresql://host/db, sqlite:///f."
)
@click.option(
    "--restart",
    type=click.Choice(("always", "on-failure", "never")),
    help="When the command ends by itself; default: always. With `never` this ends with the command's own code.",
)
@click.option(
    "--stop-ms",
    type=SpanMs(),
    metavar="SPAN",
    help="How long a planned stop may take before it is killed; default: 3s.",
)
@click.option("--user", metavar="NAME", help="Run the command as this user (root only).")
@click.option("--cwd", metavar="DIR", help="The folder that the command starts in.")
@click.option("--stdout", metavar="FILE", help="Append what it prints to this file.")
@click.option("--stderr", metavar="FILE", help="Append its errors to this file.")
@click.option(
    "--require-containment",
    type=click.Choice(("any", "strong")),
    help="`strong`: refuse to start where the kernel cannot kill the whole process tree; default, unless this node is "
    "alone.",
)
@click.option("--allow-split-brain", is_flag=True, help="Accept a strategy that may run the command twice.")
@click.pass_obj
def run(
    call: Call,
    *,
    command: tuple[str, ...],
    config: str | None,
    node: str | None,
    bind: str,
    election: str | None,
    state_dir: str | None,
    profile: str | None,
    strategy: str | None,
    store: str | None,
    restart: str | None,
    stop_ms: int | None,
    user: str | None,
    cwd: str | None,
    stdout: str | None,
    stderr: str | None,
    require_containment: str | None,
    allow_split_brain: bool,
) -> int:
    """Run a command, at most once at a time.

    The node that leads runs it: without a file this machine is the only one, with a list in the file its nodes elect
    one. It is started again when it ends (--restart), and told to end, then killed, when the leadership does. This runs
    a service, not a one-time job: in a cluster, another node starts it when this one gives up.
    """
    if not sys.platform.startswith("linux"):
        raise CannotHere("primacy run needs Linux: its guard uses kernel timers and process namespaces")
    from primacy.agent.assemble import refuse
    from primacy.agent.lifecycle import Plan
    from primacy.agent.run import run as live
    from primacy.cli.node_settings import check_relations, with_own_folder
    from primacy.node.clock import SystemClock
    from primacy.settings import load
    from primacy.settings.elections import one_of
    from primacy.supervise.child import child_of

    file, clock = call.file(config), SystemClock()
    said_election = {"name": election, "profile": profile, "strategy": strategy, "store": store}
    said_run = {
        "command": command or None,
        "restart": restart,
        "stop_ms": stop_ms,
        "user": user,
        "cwd": os.path.abspath(cwd) if cwd is not None else None,
        "require_containment": require_containment,
    }

    def planned() -> Plan:
        """By the file as it is now."""
        whole = load(file, node or call.node)
        settings = one_of(whole, election) if whole.elections and election is not None else whole
        said = _changed(settings, said_election, said_run, state_dir)
        changed = with_own_folder(dataclasses.replace(said, bind=bind))
        refuse(changed, allow_split_brain=allow_split_brain)
        check_relations(changed)
        child = child_of(changed.run, os.path.dirname(changed.source), stdout, stderr, os.environ)
        return Plan(changed, child, call.log(changed, clock), clock, again=planned)

    return live(planned())


def _changed(settings: Settings, election: dict[str, Any], run: dict[str, Any], state_dir: str | None) -> Settings:
    """The settings with what was said on the command line put over them."""
    from primacy.cli.node_settings import store_address

    checked_name("--election", election["name"])
    said_election = {key: value for key, value in election.items() if value is not None}
    if (url := said_election.pop("store", None)) is not None:
        said_election["store"] = dataclasses.replace(settings.election.store, url=store_address(url))
        said_election.setdefault("strategy", "lease")
    said_run = {key: value for key, value in run.items() if value is not None}
    strategy = said_election.get("strategy", settings.election.strategy)
    return dataclasses.replace(
        settings,
        node=settings.node or (host_name() if strategy == "lease" and not settings.cluster.manager.nodes else ""),
        election=dataclasses.replace(settings.election, **said_election),
        run=dataclasses.replace(settings.run, **said_run),
        state_dir=os.path.abspath(state_dir) if state_dir is not None else settings.state_dir,
    )
