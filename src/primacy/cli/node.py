"""`primacy node start` and `node stop`: an agent that takes part in an election and does nothing else (Hecaton)."""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import sys
from typing import Any

import click

from primacy.cli.call import Call, bind_option, checked_name, columns, json_option, print_json
from primacy.cli.lab import InOrder
from primacy.cli.local import Local, local, local_options, locals_in, place
from primacy.cli.node_settings import HOST, PORT, NodeOptions, check_relations, settings_of
from primacy.cli.status import age, status, was
from primacy.errors import CannotHere, NotReached, Refused, UsageError
from primacy.settings.accepted import RANKS
from primacy.settings.timing import RANK_PROFILES

SILENT_S = 1.0
"""After so long, what is waited for is said."""
STOP_S = 30.0
"""How long a node may take to hand over and end."""


@click.group(cls=InOrder)
def node() -> None:
    """A node that takes part in an election, and does nothing else.

    To act on its outcome, ask it (primacy status --json, GET /leader), or give it hooks in a file.
    """


def _several(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG001
    """a,b,c or said several times."""
    return tuple(part.strip() for each in value for part in each.split(",") if part.strip())


@node.command()
@click.option("--port", type=click.IntRange(1, 65_535), metavar="P", help=f"Where it listens; default: {PORT}.")
@click.option("--host", metavar="H", help=f"The name or address that others dial; default: {HOST}.")
@click.option("--id", "id_", metavar="ID", help="Its name; default: HOST-PORT.")
@click.option("--leader", is_flag=True, help="The first node of a new cluster: it leads (bully, ring).")
@click.option("--join", multiple=True, callback=_several, metavar="A,…", help="Nodes to join: HOST:PORT (bully, ring).")
@click.option(
    "--nodes", multiple=True, callback=_several, metavar="A,A,A", help="A fixed list, the same on all: HOST:PORT."
)
@click.option(
    "--algorithm",
    "--strategy",
    "strategy",
    metavar="S",
    help="bully, ring, raft, lease, or your own as package.module:Class; default: bully.",
)
@click.option(
    "--rank",
    type=click.Choice(RANKS),
    help="Who is higher (bully, ring); default: started, the youngest; id with --nodes.",
)
@click.option("--profile", metavar="P", help=f"Times: {', '.join(RANK_PROFILES)}; default: lan.")
@click.option(
    "--store",
    metavar="URL",
    help="lease: the database, such as postgresql://host/db or sqlite:///f; default: $PRIMACY_STORE.",
)
@click.option("--secret-file", metavar="FILE", help="The cluster's secret; needed if nodes are on several machines.")
@click.option("--cluster", "cluster_", metavar="NAME", help="The cluster's name; default: primacy.")
@click.option("--election", metavar="NAME", help="The role to be filled; default: main.")
@click.option("--state-dir", metavar="DIR", help="Where nodes keep what they must not forget, each in a folder below.")
@click.option("--config", metavar="FILE", help="Instead of all this: a file; --id says which node of it this is.")
@bind_option
@click.pass_obj
def start(
    call: Call,
    *,
    port: int | None,
    host: str | None,
    id_: str | None,
    leader: bool,
    join: tuple[str, ...],
    nodes: tuple[str, ...],
    strategy: str | None,
    rank: str | None,
    profile: str | None,
    store: str | None,
    secret_file: str | None,
    cluster_: str | None,
    election: str | None,
    state_dir: str | None,
    config: str | None,
    bind: str,
) -> int:
    """Start a node, and stay until Ctrl-C.

    \b
    primacy node start --port 5001 --leader
    primacy node start --port 5002 --join localhost:5001
    primacy node start --port 5003 --join localhost:5001

    With raft every node is told the whole list: --algorithm raft --nodes localhost:5001,localhost:5002,localhost:5003
    """
    if not sys.platform.startswith("linux"):
        raise CannotHere("a node of primacy needs Linux; primacy simulate works everywhere")
    said = NodeOptions(
        id_ or call.node,
        host,
        port,
        leader,
        join,
        nodes,
        strategy,
        rank,
        profile,
        store,
        checked_name("--cluster", cluster_),
        checked_name("--election", election),
        secret_file,
        state_dir,
    )
    settings = settings_of(said, call.file(config) if said.is_silent else config or call.config)
    settings = dataclasses.replace(settings, bind=bind)
    check_relations(settings)

    from primacy.agent.assemble import refuse_node
    from primacy.agent.lifecycle import Plan
    from primacy.agent.run import run
    from primacy.node.clock import SystemClock

    refuse_node(settings)
    clock = SystemClock()
    return run(Plan(settings, None, call.log(settings, clock), clock, waits=False))


node.add_command(status)


@node.command()
@local_options
@click.argument("name", required=False, metavar="[NODE]")
@click.option("--node-id", metavar="ID", help="The same as NODE.")
@click.option("--all", "all_", is_flag=True, help="All of this cluster and election that run on this machine.")
@json_option
@click.pass_obj
def stop(
    call: Call, /, *, name: str | None, node_id: str | None, all_: bool, as_json: bool, **where: str | None
) -> None:
    """End a node of this machine, in order: it hands over, then ends. Without a name: the only one that runs."""
    wanted = name or node_id or call.node
    if all_ and wanted:
        raise UsageError(f"--all and {wanted} exclude each other")
    here = place(call, **where)
    found = locals_in(here)
    if not wanted and not all_ and where["config"] is not None:
        wanted = here.node
    if wanted:
        found = {each: one for each, one in found.items() if each == wanted}
    if not found:
        which = f"node {wanted} does not run" if wanted else "no node runs"
        raise NotReached(f"{which} here; say --state-dir, --cluster or --config as it was started")
    if len(found) > 1 and not all_:
        raise UsageError(f"several nodes run here: {', '.join(found)}; name one, or say --all")
    ended = [each for each, one in found.items() if _end(each, one)]
    if as_json:
        print_json({"ended": ended})
    else:
        click.echo(f"{'node' if len(ended) == 1 else 'nodes'} {', '.join(ended)} ended")


def _end(name: str, one: Local) -> bool:
    """TERM, by a handle that cannot come to mean another process, and a wait for the end."""
    if not one.found.pid:
        raise UsageError("--at says where a node answers, not which process it is; leave it out")
    try:
        handle = os.pidfd_open(one.found.pid)
    except ProcessLookupError:
        return True  # it ended meanwhile
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not select.select([handle], [], [], SILENT_S)[0]:
            click.echo(f"waits: {_ending(name, one.found.pid)}; at most {STOP_S:.0f} s", err=True)
            if not select.select([handle], [], [], STOP_S - SILENT_S)[0]:
                raise Refused(f"{_ending(name, one.found.pid)}: it has not ended within {STOP_S:.0f} s")
    except ProcessLookupError:
        pass
    except PermissionError:
        raise Refused(f"node {name}, process {one.found.pid}, belongs to somebody else") from None
    finally:
        os.close(handle)
    return True


def _ending(name: str, pid: int) -> str:
    """What the end of a node waits for, as far as it can be seen from outside."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except OSError:
        state = "gone"
    if state in ("T", "t"):
        return f"node {name} is frozen (SIGSTOP) and ends when it goes on: kill -CONT {pid}"
    return f"node {name}, process {pid}, was told to end, and ends its command first (run.stop_ms)"


# --- Hecaton's other words -------------------------------------------------------------------------------------------


@click.group(cls=InOrder)
def cluster() -> None:
    """The cluster, as any node of this machine knows it."""


cluster.add_command(status)
"""One command, two spellings."""


@cluster.command()
@local_options
@json_option
@click.pass_obj
def nodes(call: Call, /, *, as_json: bool, **where: str | None) -> None:
    """The nodes of the cluster: where each is, what it is, and whom it follows."""
    whole = local(call, **where).get("/v1/cluster")
    keys = ("node", "addr", "kind", "role", "leader", "term", "heard_ms")
    rows = [{key: row[key] for key in keys} for row in whole["nodes"]]
    if as_json:
        print_json({"cluster": whole["cluster"], "seen_from": whole["seen_from"], "nodes": rows})
        return
    click.echo("\n".join(_lines(whole)))


def _lines(whole: dict[str, Any]) -> list[str]:
    table = [("node", "address", "role", "follows", "heard")]
    for row in whole["nodes"]:
        role = was(row, whole["acting"]) + row["role"] if row["role"] else "?"
        heard = age(row, whole["seen_from"], "heard_ms")
        table.append((row["node"], row["addr"] or "-", role, row["leader"] or "nobody", heard))
    return columns(table)
