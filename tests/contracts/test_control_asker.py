"""Orders name who asked for them: by the header, from another machine with the address; passed on, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from primacy import __version__
from primacy.control import KEY_HEADER, ORDER_HEADER
from primacy.control.asker import asker_of, takes_names
from primacy.control.members import BY_CHARS_MAX
from primacy.control.requests import carry_out
from primacy.election.inputs import Pause, Resume, StepDown
from primacy.errors import UsageError
from tests.support.control_harness import FOLLOWS, KEY, RUNS, FakeAgent, Play, Served, folder, seen, serve

__all__ = ["folder", "serve"]

ANNA = {KEY_HEADER: KEY, ORDER_HEADER: "anna on host1"}


def test_every_order_of_an_operator_names_who_asked(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        reason = "anna on host1 asked for it"
        for name, body, given in (
            ("step-down", None, StepDown(reason=reason)),
            ("transfer", {"to": "b"}, StepDown("b", reason)),
            ("pause", {}, Pause()),
            ("resume", {"node": "a"}, Resume()),
        ):
            status, said = await served.post(f"/v1/{name}", body, ANNA)
            assert (status, served.agent.told[-1]) == (200, given), said
            assert served.agent.said_at[-1] == "a, by anna on host1", name
        assert (await served.post("/v1/pause", {"by": "the night shift"}, ANNA))[0] == 200
        assert served.agent.said_at[-1] == "a, by the night shift", "what the order says wins"
        assert (await served.post("/v1/pause", {}))[0] == 200
        assert served.agent.said_at[-1] == "", "nobody said a name"

    serve(play)


@pytest.mark.parametrize("by", [7, "a\nb", "x" * (BY_CHARS_MAX + 1)])
@pytest.mark.parametrize(("name", "more"), [("step-down", {}), ("transfer", {"to": "b"}), ("pause", {})])
def test_a_name_that_is_none_is_refused(
    serve: Callable[[Play], None], by: Any, name: str, more: dict[str, str]
) -> None:
    async def play(served: Served) -> None:
        status, said = await served.post(f"/v1/{name}", {**more, "by": by})
        assert (status, served.agent.told) == (400, [])
        assert said["error"].startswith("by: a name of at most 100 characters")

    serve(play)


@pytest.mark.parametrize(
    ("version", "sent"),
    [(__version__, {"node": "b", "by": "anna on host1"}), ("0.1.0", {"node": "b"}), ("?", {"node": "b"})],
)
def test_an_order_that_is_passed_on_has_the_name_if_the_other_node_takes_it(
    serve: Callable[[Play], None], version: str, sent: dict[str, str]
) -> None:
    async def play(served: Served) -> None:
        served.agent.shown = seen(("b", RUNS._replace(version=version), 300))
        assert (await served.post("/v1/pause", {"node": "b"}, ANNA))[0] == 200
        assert served.agent.passed == [("b", "pause", sent)]

    serve(play)


def test_what_another_node_passes_on_is_told_with_both(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        agent: FakeAgent = served.agent
        await carry_out("pause", {"node": "a", "by": "anna on host1"}, agent, served.log, "b")
        assert agent.said_at == ["b, by anna on host1"]
        await carry_out("pause", {"node": "a"}, agent, served.log, "b")
        assert agent.said_at[-1] == "b", "of a node of before"
        agent.shown = seen(view=FOLLOWS)
        with pytest.raises(UsageError):
            await carry_out("pause", {"node": "a", "by": []}, agent, served.log, "b")

    serve(play)


class Connection:
    """Where a request comes from."""

    def __init__(self, certificate: dict[str, Any] | None) -> None:
        self._certificate = certificate

    def get_extra_info(self, name: str) -> Any:
        return self._certificate if name == "peercert" else None


class Request:
    def __init__(self, header: str, remote: str, certificate: dict[str, Any] | None = None) -> None:
        self.headers = {ORDER_HEADER: header}
        self.remote, self.transport = remote, Connection(certificate)


CERTIFICATE = {"subject": ((("organizationName", "x"),), (("commonName", "ops.example"),))}


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request("1", "127.0.0.1"), ""),
        (Request("anna", "::1"), "anna"),
        (Request("anna", "10.0.0.9"), "anna (from 10.0.0.9)"),
        (Request("1", "10.0.0.9"), "from 10.0.0.9"),
        (Request("anna", "10.0.0.9", CERTIFICATE), "anna (certificate of ops.example, from 10.0.0.9)"),
        (Request("1", "127.0.0.1", {}), ""),
        (Request("a\x00b", "127.0.0.1"), ""),
        (Request("x" * 200, "10.0.0.9"), "x" * 84 + " (from 10.0.0.9)"),
    ],
)
def test_what_is_known_of_who_asks(request_: Any, said: str) -> None:
    assert asker_of(request_) == said
    assert len(said) <= BY_CHARS_MAX


def test_versions_that_take_a_name() -> None:
    assert [takes_names(version) for version in ("0.2.0", "0.3", "1.0.0", __version__)] == [True] * 4
    assert [takes_names(version) for version in ("0.1.0", "", "?", "0.x", "dev")] == [False] * 5
