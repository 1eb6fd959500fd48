"""The control API of an agent with several elections: each request names one, and two are about all of them.

`?election=NAME` says which; where there are several and none is named, the refusal lists them. `GET /v1/elections` is
all of them in short, and `POST /v1/reload` has the file read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from aiohttp import web

from primacy import __version__
from primacy.control import API, NodeStatus
from primacy.control.cluster import cluster
from primacy.control.control_server import AnswersForNodes, Asked
from primacy.control.document import document
from primacy.control.loopback import body_of
from primacy.control.members import only
from primacy.control.placement import AGENT_REQUESTS
from primacy.errors import Refused, UsageError

NAMED_MAX = 12
"""Names in one sentence."""
OF_EACH = ("election", "strategy", "mode", "role", "term", "leader", "token", "hold_left_ms", "waits_for", "workload")
"""What the short form has of the state document."""


class Elections(Protocol):
    """The elections of one agent."""

    def present(self) -> Mapping[str, Asked]:
        """Those that take part here, by name."""
        ...

    def absent(self) -> Mapping[str, str]:
        """Those of the file that do not, each with the sentence that says why."""
        ...

    def describe(self) -> dict[str, Any]:
        """Of the agent itself: cluster, node, file."""
        ...

    async def reload(self) -> dict[str, Any]:
        """Reads the file again; what follows from it. Raises one of ours, and then nothing has changed."""
        ...

    def complain(self, sentence: str) -> None: ...

    @property
    def placing(self) -> AsksPlacement: ...


class AsksPlacement(Protocol):
    """Where the elections are led, and should be."""

    def document(self) -> dict[str, Any]: ...

    async def ask(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Of this agent, of another, or of all. Raises a `PrimacyError`."""
        ...


class ManyControlServer(AnswersForNodes):
    """Serves all elections of one agent on a socket that listens already."""

    def __init__(self, elections: Elections, key: str, host: str, *, lab: bool) -> None:
        super().__init__(key, host, elections.complain)
        self.elections = elections
        self.lab = lab

    def routes(self, router: web.UrlDispatcher) -> None:
        super().routes(router)
        router.add_get("/v1/elections", self._all)
        router.add_post("/v1/reload", self._reload)
        router.add_get("/v1/placement", self._placement)
        for name in AGENT_REQUESTS:
            router.add_post(f"/v1/{name}", partial(self._ask_agents, name))

    def asked(self, request: web.Request) -> Asked:
        present, absent = self.elections.present(), self.elections.absent()
        named = request.query.get("election")
        if named is not None and named in present:
            return present[named]
        if named is not None and named in absent:
            raise Refused(f"election {named} does not take part on this node: {absent[named]}")
        names = sorted({*present, *absent})
        there = ", ".join(names[:NAMED_MAX]) + (f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else "")
        if named is not None:
            raise UsageError(f"election = {named[:80]}: this agent has no such election; there are {there}")
        if len(present) == 1 and not absent:
            return next(iter(present.values()))
        raise UsageError(f"which election? Say --election with one of {there}")

    def audited(self, request: web.Request) -> list[Asked]:
        """Without an election: all of them."""
        return [self.asked(request)] if "election" in request.query else self.all_asked()

    def all_asked(self) -> list[Asked]:
        return list(self.elections.present().values())

    def statuses(self) -> list[NodeStatus]:
        return [asked.port.status() for asked in self.elections.present().values()]

    async def _all(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response(all_document(self.elections))

    async def _reload(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        only(body)
        async with self.recorded(request, "reload", body, *self.elections.present().values()):
            return web.json_response(await self.elections.reload())

    async def _placement(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response({"api": API, **self.elections.placing.document()})

    async def _ask_agents(self, name: str, request: web.Request) -> web.Response:
        body = await body_of(request)
        async with self.recorded(request, name, body, *self.elections.present().values()):
            done = await self.elections.placing.ask(name, body)
        return web.json_response({"api": API, **done, **self.elections.placing.document()})


def all_document(elections: Elections) -> dict[str, Any]:
    """`GET /v1/elections`: a row for each, in the order of their names."""
    rows = {name: row_of(asked.port.status()) for name, asked in elections.present().items()}
    for name, why in elections.absent().items():
        rows[name] = {"election": name, "here": False, "why": why}
    head = {"api": API, "version": __version__, **elections.describe()}
    return {**head, "elections": [rows[name] for name in sorted(rows)]}


def row_of(status: NodeStatus) -> dict[str, Any]:
    state, whole = document(status), cluster(status)
    return {
        **{word: state[word] for word in OF_EACH},
        "here": True,
        "acting": whole["acting"],
        "not_known": whole["not_known"],
        "alerts": whole["alerts"],
        "health": state["health"],
    }
