"""What to do about a node that waits or is not heard: the next command. Pure.

The sentence of a node (`waits_for`) often holds the command already; then nothing is added.
"""

from __future__ import annotations

from primacy.control.earlier import DOUBLED
from primacy.dashboard.rows import Said

COMMANDS = (
    ("first start of the cluster; not heard yet", "start those nodes, or look at address, firewall and secret"),
    ("first start of the cluster", "primacy init, once, on one node"),
    ("new list of nodes", "start those nodes with the new file; gone for good: primacy rejoin --without NODE"),
    ("answers from memory", "start those nodes; gone for good: primacy rejoin --without NODE"),
    ("another node runs", "stop one of the two, start the other anew"),
    (DOUBLED, "stop one of the two, start the other anew"),
    ("primacy resume", "primacy resume {node}"),
    ("approv", "primacy approve {node} --term {term}"),
    ("disk", "make room on its disk, or mend it"),
    ("run lock", "see its log, which names the process that still lives"),
    ("votes of a majority", "start more nodes, or mend the network: a majority must answer"),
    ("majority", "start more nodes, or mend the network: a majority must answer"),
)


def next_step(row: Said, *, heard: bool) -> str:
    """Empty if nothing is to be done."""
    if row.heard_ms is None:
        return f"start it on its machine: primacy --node {row.node} run -- CMD"
    if not heard:
        return "look at its machine and its log; primacy status there says what it waits for"
    if row.role == "paused":
        return f"primacy resume {row.node}"
    if not row.waits_for:
        return ""
    said = next((command for words, command in COMMANDS if words in row.waits_for), "")
    return said.format(node=row.node, term=row.term)
