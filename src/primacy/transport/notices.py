"""What stands between two nodes, as sentences with the remedy: for the log, and for `primacy status`."""

from __future__ import annotations

from primacy.transport import Trouble


def unresolved(name: str, address: str) -> str:
    return f"node {name}: its address {address} cannot be resolved yet"


def no_route(name: str, address: str, why: str) -> str:
    return f"node {name} cannot be dialled at {address}: {why}"


def unmoved(address: str, why: str) -> str:
    return f"the members have this node at {address}: {why}; or move it: primacy members set NODE --addr HOST:PORT"


def other_layout(name: str, theirs: int, ours: int) -> str:
    older = "this node" if theirs > ours else f"node {name}"
    return (
        f"node {name} speaks layout {theirs}, and this version of primacy layout {ours}: they do not hear each other; "
        f"upgrade {older}"
    )


def no_seal(name: str) -> str:
    return f"what comes from node {name} has no good seal: its secret, cluster.name or election.name is another"


def no_election(name: str) -> str:
    return (
        f"some of what comes from node {name} is of no election here: its secret or cluster.name is another, or its "
        "file has an election that this one has not"
    )


def duplicate_nodes(name: str, source: str) -> Trouble:
    """Beside the start that is heard, another one speaks."""
    place = f", one of them from {source}" if source else ""
    return Trouble(
        name,
        f"two nodes run with the id {name} at the same time{place}: two have this id, or a disk was copied; "
        "stop one of them",
        alert=True,
    )


def unheard(name: str, source: str, dialled: str) -> Trouble:
    """It speaks with a good seal, and does not get our answers."""
    if source:
        return Trouble(
            name,
            f"node {name} speaks from {source}, and answers go to {dialled}, where it does not get them: "
            f"correct cluster.manager.nodes.{name}.addr in the file",
        )
    return Trouble(name, f"node {name} is heard and does not hear this node: look at the firewall for UDP to {dialled}")
