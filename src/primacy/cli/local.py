"""How the commands find the node of this machine, and the options that all of them share."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

import click

from primacy.cli.call import Call, checked_name, not_empty
from primacy.control import ADDRESS_FILE
from primacy.control.client import FoundNode, ask, find
from primacy.errors import NotReached, PrimacyError, UsageError

if TYPE_CHECKING:
    from primacy.settings.schema import Settings

NODES = "nodes"
"""Below the state folder: a folder for each node of `node start` and of a file that joins, by its id."""

PROBE_S = 1.0
"""Of several that run here, one that says nothing for so long is frozen, or hangs: another one is asked."""

F = TypeVar("F", bound=Callable[..., Any])


class Local(NamedTuple):
    """Whom a command speaks to."""

    folder: str
    election: str
    found: FoundNode
    beside: tuple[str, ...] = ()
    """Other nodes of a cluster and an election of these names that run on this machine."""

    def get(self, path: str) -> Any:
        return ask(self.found, path)

    def order(self, name: str, **body: Any) -> Any:
        """The state after it."""
        return ask(self.found, f"/v1/{name}", body)


def _at(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Said after the command, it wins over the one in front."""
    not_empty(ctx, param, value)
    call = ctx.find_object(Call)
    if value is not None and call is not None:
        ctx.obj = call._replace(at=value)


at_option = click.option(
    "--at", metavar="HOST:PORT", callback=_at, expose_value=False, is_eager=True, help="The running node to speak to."
)


def local_options(command: F) -> F:
    """Which node is meant."""
    return at_option(folder_options(command))


def folder_options(command: F) -> F:
    """Which node of this machine is meant."""
    for option in (
        click.option("--state-dir", metavar="DIR", help="The state folder, as the node was told."),
        click.option("--election", metavar="NAME", help="Which election; default: the file's, else main."),
        click.option("--cluster", metavar="NAME", help="Which cluster; default: the file's, else primacy."),
        click.option("--config", metavar="FILE", help="The file that the node was started with."),
    ):
        command = option(command)
    return command


def folder_name(node: str) -> str:
    """An id as the name of a folder: ids of Ghoti may have any character."""
    name = quote(node, safe="", errors="surrogateescape")  # of the command line: it may be no text
    return name if name.strip(".") else name.replace(".", "%2E")


class NodeFolder(NamedTuple):
    """Where the node of an election keeps its things on this machine, whether it runs or not."""

    above: str
    folder: str
    election: str
    node: str = ""
    """Of which the file speaks, if it is the file of one node."""
    of_many: bool = False
    """One of several elections of the file."""
    is_named: bool = True
    """The election was named; else it is the file's own, or the default."""
    at_most_one: bool | None = None
    """Whether the file's strategy promises it; None where no file says which strategy it is."""

    @property
    def events_file(self) -> str:
        from primacy.control.eventlog import FILE_NAME

        return os.path.join(self.folder, FILE_NAME)

    def has_events(self) -> bool:
        return os.path.isfile(self.events_file)

    def nobody(self) -> NotReached:
        return NotReached(_nobody(self))


def local(call: Call, **where: str | None) -> Local:
    """The node that runs here, or `NotReached` with the command that starts one.

    Several may run here, each with a folder of its own (`node start`): then any of them can say how the cluster stands.
    """
    return _local(call, place(call, **where), exact=False)


def this_node(call: Call, **where: str | None) -> Local:
    """The same, for a command that is for this very node: if several run here, `--node` must say which."""
    return _local(call, place(call, **where), exact=True)


def _local(call: Call, where: NodeFolder, *, exact: bool) -> Local:
    found = find(where.folder, call.at)
    if found is not None:
        several = where.of_many or (where.is_named and bool(found.election))
        found = found._replace(election=where.election) if several and call.at is not None else found
        return Local(where.folder, where.election, found)
    started = _started(where)
    if not started:
        _refuse_many(where)
    wanted = call.node or where.node
    if wanted in started:
        return started[wanted]
    if started and (call.node is not None or (exact and wanted)):
        raise NotReached(f"node {wanted[:80]} does not run here; {', '.join(started)} does")
    if exact and len(started) > 1:
        raise UsageError(f"several nodes run here: say primacy --node ID ..., with one of {', '.join(started)}")
    if not started:
        raise where.nobody()
    name = next(iter(started)) if len(started) == 1 else _answering(started)
    return started[name]._replace(beside=tuple(each for each in started if each != name))


def agent_in(above: str) -> FoundNode | None:
    """The agent with several elections of the cluster in this folder, if it runs."""
    from primacy.agent.state import AGENT

    return find(os.path.join(above, AGENT))


def _refuse_many(where: NodeFolder) -> None:
    """No node of the election that nobody named runs here, but an agent with several does."""
    agent = None if where.is_named or where.of_many else agent_in(where.above)
    if agent is not None:
        names = [row["election"] for row in ask(agent, "/v1/elections")["elections"]]
        raise UsageError(f"which election? Say --election with one of {', '.join(names)}")


def _answering(started: dict[str, Local]) -> str:
    """One that answers: each knows how the cluster stands, unless it is frozen. If none does, the first says why."""
    for name, one in started.items():
        try:
            ask(one.found, "/v1/state", within_s=PROBE_S)
        except PrimacyError:
            continue
        return name
    return next(iter(started))


def locals_in(where: NodeFolder) -> dict[str, Local]:
    """All nodes of this election that run on this machine, by their ids."""
    found = find(where.folder)
    own = {_node_of(where.folder): Local(where.folder, where.election, found)} if found is not None else {}
    return {**own, **_started(where)}


def events_of(call: Call, where: NodeFolder) -> NodeFolder:
    """Where events are, should nothing be in the usual place: of the node that is named, or runs, or ran here last."""
    if find(where.folder, call.at) is not None or where.has_events():
        return where
    root, cluster = os.path.join(os.path.dirname(where.above), NODES), os.path.basename(where.above)
    wanted = call.node or where.node
    names = [wanted] if wanted else [*_started(where), *map(unquote, _listed(root))]
    for name in names:
        above = os.path.join(root, folder_name(name), cluster)
        promised = where.at_most_one if name == where.node else None  # else the file is not that node's
        kept = NodeFolder(above, os.path.join(above, where.election), where.election, at_most_one=promised)
        if kept.has_events():
            return kept
    return where


def _listed(root: str) -> list[str]:
    try:
        return sorted(os.listdir(root))
    except OSError:
        return []


def _started(where: NodeFolder) -> dict[str, Local]:
    """Those of `node start`, which have a folder each."""
    root = os.path.join(os.path.dirname(where.above), NODES)
    cluster = os.path.basename(where.above)
    found = {}
    for name in _listed(root):
        folder = os.path.join(root, name, cluster, where.election)
        one = find(folder)
        if one is not None:
            found[unquote(name)] = Local(folder, where.election, one)
    return found


def _node_of(folder: str) -> str:
    """The id of the node that runs in this folder, as its own file says."""
    try:
        with open(os.path.join(folder, ADDRESS_FILE), encoding="utf-8") as file:
            return str(json.load(file)["node"])
    except (OSError, ValueError, KeyError, TypeError):
        return os.path.basename(folder)


def many(
    call: Call,
    *,
    config: str | None = None,
    election: str | None = None,
    state_dir: str | None = None,
    cluster: str | None = None,
) -> FoundNode | None:
    """The agent with several elections that is meant, if no single one is named and there is none of its own."""
    if election is not None:
        return None
    settings, above = _above(call, config, state_dir, cluster)
    own = None if settings.elections else find(os.path.join(above, settings.election.name))
    agent = agent_in(above) if own is None else None
    if agent is not None and call.at is not None:
        host, _, port = call.at.rpartition(":")
        agent = agent._replace(host=host.strip("[]"), port=int(port)) if port.isdigit() else agent
    return agent


def agent(call: Call, **where: str | None) -> FoundNode:
    """The same, which must run."""
    found = many(call, **where)
    if found is None:
        settings, above = _above(call, where.get("config"), where.get("state_dir"), where.get("cluster"))
        more = "primacy agent" if settings.elections else "primacy agent with a file that has `elections`"
        raise NotReached(f"no agent of cluster {os.path.basename(above)} runs here; start it: {more}")
    return found


def place(
    call: Call,
    *,
    config: str | None = None,
    election: str | None = None,
    state_dir: str | None = None,
    cluster: str | None = None,
) -> NodeFolder:
    """Which folder is meant, by the `local_options`."""
    from primacy.settings.elections import one_of

    settings, above = _above(call, config, state_dir, cluster)
    checked_name("--election", election)
    name = one_of(settings, election).election.name
    own = settings.node if settings.cluster.manager.type == "join_server" else ""
    promised = _promised(one_of(settings, election)) if settings.source else None
    folder = os.path.join(above, name)
    return NodeFolder(above, folder, name, own, bool(settings.elections), election is not None, promised)


def _promised(settings: Settings) -> bool | None:
    """By the strategy's name: a user's own is not loaded here."""
    from primacy.election.guarantees import OF

    found = OF.get(settings.election.strategy)
    return found.at_most_one if found is not None else None


def settings_of(call: Call, *, config: str | None = None, **where: str | None) -> Settings:
    """The file that is meant; the defaults without one."""
    return _above(call, config, where.get("state_dir"), where.get("cluster"))[0]


def above_of(call: Call, *, config: str | None = None, **where: str | None) -> str:
    """Where the elections of the cluster that is meant have their folders."""
    return _above(call, config, where.get("state_dir"), where.get("cluster"))[1]


def _above(call: Call, config: str | None, state_dir: str | None, cluster: str | None) -> tuple[Settings, str]:
    """The file, and where the elections of its cluster have their folders."""
    from primacy.agent.state import state_root
    from primacy.settings import load

    file = call.file(config)
    settings = load(file, call.node if file is not None else None)
    checked_name("--cluster", cluster)
    if state_dir is not None:
        settings = dataclasses.replace(settings, state_dir=os.path.abspath(state_dir))
    root = state_root(settings, os.environ, os.geteuid())
    return settings, os.path.join(root, cluster or settings.cluster.name)


def _nobody(where: NodeFolder) -> str:
    """Says where it was looked, and what to do next."""
    if _is_closed(where.folder):
        return (
            f"the state folder {where.folder} cannot be read by this user: say it as the user that runs the node, or "
            "name the node's address with --at HOST:PORT"
        )
    said = f"no node of election {where.election} runs here (its folder would be {where.folder})"
    for cluster, election in _running(os.path.dirname(where.above)):
        which = f" --cluster {cluster}" if cluster != os.path.basename(where.above) else ""
        which += f" --election {election}" if election != where.election else ""
        return f"{said}; there is one of cluster {cluster}, election {election}: primacy status{which}"
    return f"{said}; start one: primacy run -- CMD, or say --config or --state-dir as it was started"


def _is_closed(folder: str) -> bool:
    """It, or one above it, is somebody else's: whether a node runs there cannot be seen."""
    try:
        os.stat(folder)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return not os.access(folder, os.R_OK | os.X_OK)


def _running(root: str) -> list[tuple[str, str]]:
    """The clusters and elections of which a node runs here."""
    above = [root, *(os.path.join(root, NODES, name) for name in _listed(os.path.join(root, NODES)))]
    return [
        (cluster, election)
        for folder in above
        for cluster in _listed(folder)
        for election in _listed(os.path.join(folder, cluster))
        if not election.startswith(".") and find(os.path.join(folder, cluster, election)) is not None
    ]
