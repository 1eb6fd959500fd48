"""The control API in one process: orders, and what they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from primacy.control import Heard
from primacy.control.requests import NAMES_MAX, order_of
from primacy.control.summary import Summary
from primacy.election.events import Code
from primacy.election.inputs import Init, Pause, Rejoin, Resume, StepDown
from primacy.election.model import Role, View
from primacy.errors import Refused, UsageError
from tests.support.control_harness import (
    FOLLOWS,
    VIEW,
    Play,
    Served,
    Work,
    folder,
    node_status,
    serve,
)

__all__ = ["folder", "serve"]


def test_every_order_becomes_its_input(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        wall_ms = served.agent.shown.wall_ms
        asked = "an operator asked for it"
        for name, body, given in (
            ("step-down", None, StepDown(reason=asked)),
            ("transfer", {"to": "b"}, StepDown("b", asked)),
            ("pause", {}, Pause()),
            ("resume", {}, Resume()),
            ("init", {}, Init(wall_ms)),
            ("init", {"without": ["c", "b", "c"]}, Init(wall_ms, ("b", "c"))),
        ):
            served.agent.told.clear()
            status, said = await served.post(f"/v1/{name}", body)
            assert (status, said["node"], served.agent.told) == (200, "a", [given]), name
        served.agent.shown = node_status(FOLLOWS._replace(role=Role.RECOVERING))
        assert (await served.post("/v1/rejoin", {"without": ["gone"]}))[0] == 200
        assert served.agent.told[-1] == Rejoin(("gone",))
        waits = (
            "the first start of the cluster; not heard yet: b, gone (of an earlier list; gone for good: primacy ...)"
        )
        served.agent.shown = node_status(FOLLOWS._replace(role=Role.RECOVERING, waits_for=waits))
        assert (await served.post("/v1/init", {"without": ["gone"]}))[0] == 200
        assert served.agent.told[-1] == Init(wall_ms, ("gone",))

    serve(play)


def test_a_leader_with_nothing_to_hand_over_refuses_a_transfer(serve: Callable[[Play], None]) -> None:
    """Only where it is asked for: placement names who campaigns first, so that a resignation serves it as well."""

    async def play(served: Served) -> None:
        begins = node_status(VIEW._replace(waits_for="its work to start"))
        for shown, says, again in (
            (begins, "node a leads, and has nothing to hand over before its work has started: it waits for", True),
            (begins._replace(approval_term=7), "first primacy approve a --term 7, then transfer. Or", False),
            (node_status(work=Work(state="stopping")), "node a steps down already: when another node leads", False),
        ):
            served.agent.shown = shown
            status, said = await served.post("/v1/transfer", {"to": "b"})
            assert (status, says in said["error"], said.get("again", False)) == (409, True, again), said
            assert served.agent.told == []
            assert order_of("transfer", {"to": "b"}, shown) == StepDown("b", "an operator asked for it")
            assert (await served.post("/v1/step-down"))[0] == 200
            served.agent.told.clear()

    serve(play)


def test_links_are_cut_and_mended_in_lab_mode(serve: Callable[..., None]) -> None:
    async def play(served: Served) -> None:
        whole = {"b": "none", "c": "none", "w": "none"}
        assert await served.get("/v1/links") == (200, {"node": "a", "links": whole})
        for way in ("in", "out", "both"):
            said = (200, {"node": "a", "links": {**whole, "b": way}})
            assert await served.post("/v1/links", {"node": "b", "cut": way}) == said
        assert (await served.post("/v1/links", {"heal": True}))[1]["links"] == whole
        wrong: list[Any] = [
            {},
            {"node": "b"},
            {"node": "x", "cut": "in"},
            {"node": "a", "cut": "in"},
            {"node": "b", "cut": "up"},
            {"node": "b", "cut": ["in"]},
            {"node": ["b"], "cut": "in"},
            {"heal": False},
            {"heal": True, "node": "b"},
            {"node": "b", "cut": "in", "way": 1},
        ]
        for body in wrong:
            assert (await served.post("/v1/links", body))[0] == 400, body
        assert (await served.post("/v1/links", {"node": "b", "cut": "in"}, headers={}))[0] == 403
        assert (await served.get("/v1/links"))[1]["links"] == whole

    serve(play, lab=True)


def test_outside_of_a_lab_there_are_no_links(serve: Callable[..., None]) -> None:
    async def play(served: Served) -> None:
        assert (await served.get("/v1/links"))[0] == 404
        assert (await served.post("/v1/links", {"node": "b", "cut": "both"}))[0] == 404
        assert served.agent.cuts == {}

    serve(play)


def test_what_the_election_refuses_is_said(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        served.agent.answers = Code.INIT_REFUSED
        assert await served.post("/v1/init") == (409, {"error": "a refuses to begin a cluster"})
        served.agent.value = 1
        assert await served.post("/v1/init") == (409, {"error": "a refuses to begin a cluster", "again": True})
        served.agent.shown = node_status(ending=True)
        status, said = await served.post("/v1/resume")
        assert (status, len(served.agent.told)) == (409, 2)
        assert "is stopping" in said["error"]

    serve(play)


@pytest.mark.parametrize(
    ("name", "body", "view", "says"),
    [
        ("step-down", {}, FOLLOWS, "node a does not lead, b does; there, say: primacy step-down"),
        ("step-down", {}, FOLLOWS._replace(leader=""), "knows of nobody"),
        ("transfer", {"to": "a"}, VIEW, "leads already"),
        ("transfer", {"to": "c"}, VIEW, "is not heard"),
        ("transfer", {"to": "w"}, VIEW, "is a witness"),
        ("transfer", {"to": "b"}, FOLLOWS, "there, say: primacy transfer b"),
        ("rejoin", {"without": ["b"]}, VIEW, "is not recovering"),
    ],
)
def test_orders_that_cannot_be_done(name: str, body: dict[str, Any], view: View, says: str) -> None:
    with pytest.raises(Refused, match=says):
        order_of(name, body, node_status(view))


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("transfer", {}, "the name of a node"),
        ("transfer", {"to": 7}, "the name of a node"),
        ("transfer", {"to": "zz"}, "to = zz: no node of this cluster; there are a, b, c"),
        ("transfer", {"ot": "b"}, "ot: no such field; there is to"),
        ("pause", {"node": "b"}, "node = b: this is node a"),
        ("resume", {"nod": "b"}, "nod: no such field; there is node"),
        ("init", {"without": "b"}, "a list of names"),
        ("init", {"without": ["zz"]}, "no node of this cluster"),
        ("init", {"without": ["a"]}, "this node itself"),
        ("init", {"without": ["b"] * (NAMES_MAX + 1)}, "a list of names"),
        ("rejoin", {}, "gone for good"),
        ("rejoin", {"without": ["../x"]}, "is no name of a node"),
        ("rejoin", {"without": [{}]}, "is no name of a node"),
    ],
)
def test_orders_that_make_no_sense(name: str, body: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        order_of(name, body, node_status())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"role": "paused"}, "is paused"),
        ({"role": "recovering", "waits_for": "its new list"}, "it waits for its new list"),
        ({"health": "failing: TCP x:1"}, "is not well: failing: TCP x:1"),
    ],
)
def test_a_transfer_to_a_node_that_would_not_stand_stops_nothing(said: dict[str, Any], why: str) -> None:
    able = Summary("follower", 7, "a", 0, 0, "", "process", "stopped", -1, 0, "strong", "ok", "0", "", ())
    others = {"b": Heard(able, 1, 4_900)}
    assert isinstance(order_of("transfer", {"to": "b"}, node_status()._replace(others=others)), StepDown)
    others = {"b": Heard(able._replace(**said), 1, 4_900)}
    with pytest.raises(Refused, match=why):
        order_of("transfer", {"to": "b"}, node_status()._replace(others=others))
