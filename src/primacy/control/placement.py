"""What agents with several elections tell each other about placement, and what operators are shown and may ask. Pure.

A row says of a node what no election says: whether it is drained, its weight, since when it is up, what it is about to
hand over, and whether an operator works on the cluster. A later version may add values at the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from primacy.control.gossip_rows import AGENT
from primacy.control.members import only
from primacy.control.summary import NUMBER_MAX
from primacy.errors import UsageError
from primacy.placement.model import Intent, Step, View, why_not
from primacy.placement.plan import plan, stays

AGENT_REQUESTS = ("drain", "undrain", "rebalance", "maintenance")
"""For an agent, whichever of its elections carries them."""
NAME_CHARS_MAX = 80


class AgentRow(NamedTuple):
    """What an agent says of itself."""

    sent_ms: int
    """On its own clock: an older one that arrives later says nothing new."""
    up_ms: int
    weight: int
    drained: bool
    maintenance: bool
    intent: Intent | None = None


def row_of(said: AgentRow) -> list[Any]:
    election, to = said.intent or ("", "")
    return [AGENT, said.sent_ms, said.up_ms, said.weight, said.drained, said.maintenance, election, to]


def read_row(row: list[Any]) -> AgentRow | None:
    """None for what cannot be read."""
    match row:
        case [_, int(sent), int(up), int(weight), bool(drained), bool(maintenance), str(election), str(to), *_]:
            numbers = all(type(each) is int and 0 <= each <= NUMBER_MAX for each in (sent, up, weight))
            if numbers and len(election) <= NAME_CHARS_MAX and len(to) <= NAME_CHARS_MAX:
                intent = Intent(election, to) if election and to else None
                return AgentRow(sent, up, weight, drained, maintenance, intent)
    return None


class AgentRequest(NamedTuple):
    """What an operator asks of agents. `node`: of this one; empty: of all."""

    name: str
    node: str = ""
    on: bool = True

    @property
    def body(self) -> dict[str, Any]:
        if self.name == "maintenance":
            return {"on": self.on}
        return {"node": self.node} if self.node else {}


def request_of(name: str, body: dict[str, Any], nodes: tuple[str, ...]) -> AgentRequest:
    """Raises `UsageError`."""
    if name == "maintenance":
        only(body, "on")
        if not isinstance(body.get("on"), bool):
            raise UsageError('on: true or false, {"on": true}')
        return AgentRequest(name, on=body["on"])
    if name == "rebalance":
        only(body)
        return AgentRequest(name)
    only(body, "node")
    node = body.get("node")
    if not isinstance(node, str) or node not in nodes:
        named = str(node)[:NAME_CHARS_MAX] if node else "(none)"
        raise UsageError(f"node = {named}: no node of this cluster; there are {', '.join(nodes)}")
    return AgentRequest(name, node)


def placement_document(view: View, orders: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """`GET /v1/placement`: who leads what, who is drained, what would move, and what cannot."""
    leads = {node.node: [seen.name for seen in view.elections if seen.leader == node.node] for node in view.nodes}
    return {
        "maintenance": view.maintenance,
        "nodes": [
            {
                "node": node.node,
                "heard": node.heard,
                "drained": node.drained,
                "weight": node.weight,
                "up_ms": node.up_ms,
                "leads": leads[node.node],
                "hands_over": node.intent._asdict() if node.intent is not None else None,
                "stays": dict(stays(view, node.node)),
            }
            for node in view.nodes
        ],
        "elections": [
            {
                "election": seen.name,
                "leader": seen.leader,
                "order": list(orders.get(seen.name, ())),
                "cannot_lead": {node.node: why for node in view.nodes if (why := why_not(seen, node))},
            }
            for seen in view.elections
        ],
        "plan": [step._asdict() for step in plan(view)],
    }


def step_sentence(step: Step | dict[str, str]) -> str:
    """For a screen."""
    said = step if isinstance(step, dict) else step._asdict()
    why = {
        "drain": f"{said['leaves']} is drained",
        "only": f"{said['leaves']} is not named by its placement.only",
        "unable": f"{said['leaves']} cannot lead it",
        "avoid": "it avoids an election there",
        "with": "it belongs with an election there",
        "capacity": f"{said['leaves']} leads more than a capacity allows",
        "prefer": "its placement prefers it there",
        "spread": f"{said['leaves']} leads more than its share",
    }[said["reason"]]
    return f"{said['election']}: {said['leaves']} -> {said['to']} ({why})"
