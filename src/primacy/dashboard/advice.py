"""What to do about a node that waits or is not heard: the next command. Pure.

The sentence of a node (`waits_for`) often holds the command already; then it is that one.
"""

from __future__ import annotations

import re

from primacy.control.earlier import DOUBLED
from primacy.dashboard.rows import Said

NOTHING = ""
"""It waits as the file says, or for a moment: there is nothing to do."""
COMMANDS = (
    # placement
    ("the end of its drain", "primacy undrain {node}"),
    ("placement.only of", NOTHING),
    # the register of members
    ("not among the members", "on a node of the cluster: primacy members add {node} --addr {addr}; or stop it"),
    ("to add it to the members", "on a node of the cluster: primacy members add {node} --addr {addr}"),
    ("its file names nobody but itself", "write the other nodes into its file, and start it again"),
    ("the leader to admit it", "primacy members, on a node of the cluster, says what that waits for"),
    ("as it voted alone", "if its machine and its command are surely stopped elsewhere: primacy init"),
    ("too few remember", "on the node that it names: primacy members force, with the --without that it names"),
    ("two first starts are in use", "on the nodes that it names: stop the agent, remove the file ballot, start it"),
    # the first start, and a changed file
    ("speaks for it already", "write that node into all files, or stop it"),
    ("on one node, when all that used its lease", "when all of those are stopped: primacy init, once, on one node"),
    ("used its lease of before", "when all of those are stopped: primacy rejoin --others-stopped"),
    ("its file was replaced", "start it with the file that the others have"),
    ("give all nodes the same file", "give all nodes the same file, and start them again"),
    ("first start of the cluster; not heard yet", "start those nodes, or look at address, firewall and secret"),
    ("first start of the cluster", "primacy init, once, on one node"),
    ("new list of nodes", "start those nodes with the new file; gone for good: primacy rejoin --without NODE"),
    ("its new times", "start those nodes with the new file; gone for good: primacy rejoin --without NODE"),
    ("its new strategy", "start those nodes with the new file; gone for good: primacy rejoin --without NODE"),
    ("answers from memory", "start those nodes; gone for good: primacy rejoin --without NODE"),
    ("another node runs", "stop one of the two, start the other anew"),
    (DOUBLED, "stop one of the two, start the other anew"),
    ("primacy resume", "primacy resume {node}"),
    ("approv", "primacy approve {node} --term {term}"),
    ("disk", "make room on its disk, or mend it"),
    ("run lock", "see its log, which names the process that still lives"),
    ("its health to return", "mend what its health says; it leads again by itself"),
    ("votes of a majority", "start more nodes, or mend the network: a majority must answer"),
    ("majority", "start more nodes, or mend the network: a majority must answer"),
)
GONE = re.compile(r"gone for good: (primacy [^()]+)\)")
"""A node names the very command, with the nodes in it."""


def next_step(row: Said, *, heard: bool) -> str:
    """Empty if nothing is to be done."""
    if row.heard_ms is None:
        return f"start it on its machine: primacy --node {row.node} run -- CMD"
    if not heard:
        return "look at its machine and its log; primacy status there says what it waits for"
    if row.role == "paused" and not row.waits_for:
        return f"primacy resume {row.node}"
    if not row.waits_for:
        return ""
    if gone := GONE.search(row.waits_for):
        return f"start those nodes; gone for good: {gone[1]}"
    said = next((command for words, command in COMMANDS if words in row.waits_for), "")
    if not said and row.role == "paused" and "placement.only of" not in row.waits_for:
        said = "primacy resume {node}"
    return said.format(node=row.node, term=row.term, addr=row.addr or "HOST:PORT")
