"""What agents tell each other of placement, and what an operator may ask of them: rows, requests, documents."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.control.gossip_rows import AGENT
from primacy.control.placement import (
    AgentRequest,
    AgentRow,
    placement_document,
    read_row,
    request_of,
    row_of,
    step_sentence,
)
from primacy.errors import UsageError
from primacy.placement.model import REASONS, ElectionSeen, Intent, NodeSeen, Placement, Step, View


@pytest.mark.parametrize("intent", [None, Intent("e1", "b")])
def test_a_row_is_read_as_it_was_said(intent: Intent | None) -> None:
    said = AgentRow(5, 7, 2, True, False, intent)
    assert read_row(row_of(said)) == said
    assert read_row([*row_of(said), "of a later version"]) == said


@pytest.mark.parametrize(
    "row",
    [
        [AGENT],
        [AGENT, -1, 7, 1, False, False, "", ""],
        [AGENT, 5, True, 1, False, False, "", ""],
        [AGENT, 5, 7, 2**63, False, False, "", ""],
        [AGENT, 5, 7, 1, 0, False, "", ""],
        [AGENT, 5, 7, 1, False, False, "e" * 81, "b"],
        [AGENT, 5, 7, 1, False, False, None, "b"],
    ],
)
def test_what_cannot_be_read_is_nothing(row: list[Any]) -> None:
    assert read_row(row) is None


def test_requests_name_a_node_of_the_cluster_or_all() -> None:
    assert request_of("drain", {"node": "b"}, ("a", "b")) == AgentRequest("drain", "b")
    assert request_of("rebalance", {}, ()).body == {}
    assert request_of("maintenance", {"on": False}, ()).body == {"on": False}
    for name, body, why in (
        ("drain", {"node": "x"}, "node = x: no node of this cluster; there are a, b"),
        ("undrain", {}, "no node of this cluster"),
        ("maintenance", {}, "on: true or false"),
        ("rebalance", {"now": True}, "now"),
    ):
        with pytest.raises(UsageError, match=why):
            request_of(name, body, ("a", "b"))


def test_the_document_says_who_leads_what_what_would_move_and_what_cannot() -> None:
    nodes = (NodeSeen("a", drained=True), NodeSeen("b", weight=2), NodeSeen("c", heard=False))
    elections = (ElectionSeen("e0", leader="a"), ElectionSeen("e1", Placement(only=("a", "c")), "a"))
    said = placement_document(View(nodes, elections), {"e0": ("b", "a", "c")})
    assert [row["leads"] for row in said["nodes"]] == [["e0", "e1"], [], []]
    assert said["nodes"][0]["stays"] == {"e1": "b is not named by placement.only; c is not heard"}
    assert said["elections"][0]["cannot_lead"] == {"a": "is drained", "c": "is not heard"}
    assert said["plan"] == [{"election": "e0", "leaves": "a", "to": "b", "reason": "drain"}]


def test_every_reason_has_a_sentence() -> None:
    assert len({step_sentence(Step("e", "a", "b", reason)) for reason in REASONS}) == len(REASONS)
