"""The control API in one process: every path, who may use it, and what is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import aiohttp.web
import pytest
from tests.control_desk import FOLLOWS, KEY, MAY, NODES, SETTINGS, VIEW, FakeAgent, Work, shot

from primacy.control import KEY_HEADER, ORDER_HEADER, Heard, loopback
from primacy.control.document import acts_as_leader, document
from primacy.control.eventlog import EventLog
from primacy.control.loopback import BODY_BYTES_MAX
from primacy.control.news import Summary
from primacy.control.orders import NAMES_MAX, ORDERS, order_of
from primacy.control.server import ControlServer, PublicServer
from primacy.control.when import instant
from primacy.election.events import Code
from primacy.election.inputs import Init, Pause, Rejoin, Resume, StepDown
from primacy.election.model import Role, View
from primacy.errors import Refused, UsageError
from primacy.node.folder import Folder
from primacy.settings import of_mapping

LIMIT_S = 30.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(str(tmp_path / "state"))
    yield made
    made.close()


class Served(NamedTuple):
    agent: FakeAgent
    log: EventLog
    url: str
    port: int
    http: aiohttp.ClientSession
    server: ControlServer

    async def get(self, path: str, **more: Any) -> tuple[int, Any]:
        async with self.http.get(self.url + path, **more) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: Any = None, headers: dict[str, str] = MAY, **more: Any) -> tuple[int, Any]:
        async with self.http.post(self.url + path, json=body, headers=headers, **more) as answer:
            return answer.status, await answer.json()


Play = Callable[[Served], Awaitable[None]]


@pytest.fixture
def serve(folder: Folder) -> Callable[..., None]:
    """Plays one act against a server."""

    async def whole(play: Play, lab: bool) -> None:
        log = EventLog(folder, lambda _: None)
        agent = FakeAgent(log)
        if lab:
            control = dataclasses.replace(SETTINGS.control, lab=True)
            agent.shown = agent.shown._replace(settings=dataclasses.replace(SETTINGS, control=control))
        made = ControlServer(agent, log, KEY, "127.0.0.1")
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        await made.start(listening)
        try:
            async with aiohttp.ClientSession() as http:
                await asyncio.wait_for(play(Served(agent, log, f"http://127.0.0.1:{port}", port, http, made)), LIMIT_S)
        finally:
            await made.close()
            log.close()
            listening.close()

    return lambda play, lab=False: asyncio.run(whole(play, lab))


# --- reading ----------------------------------------------------------------------------------------------------------


def test_the_state_document_has_the_fields_of_the_surface() -> None:
    said = document(shot())
    assert said["nodes"][0] == {
        "node": "b",
        "kind": "voter",
        "addr": "h:2",
        "heard_ms": 41,
        "role": None,
        "leader": None,
        "duty": None,
    }
    assert said["nodes"][1]["heard_ms"] is None
    rest = {key: value for key, value in said.items() if key not in ("nodes", "version")}
    assert rest == {
        "api": 1,
        "cluster": "billing",
        "election": "main",
        "node": "a",
        "kind": "voter",
        "addr": "h:1",
        "strategy": "raft",
        "mode": "automatic",
        "role": "leader",
        "term": 7,
        "voted_for": "a",
        "leader": "a",
        "token": 1_794_700_800_007,
        "hold_left_ms": 2_410,
        "waits_for": None,
        "duty": {
            "kind": "process",
            "state": "running",
            "since": "2023-11-14T22:13:19.000Z",
            "pid": 4711,
            "containment": "strong",
        },
        "health": "ok",
        "containment": None,
        "counters": {"sent": 3},
    }
    assert instant(0) == "1970-01-01T00:00:00.000Z"
    stopped = document(shot(FOLLOWS, Work(state="stopped", pid=0)))
    assert (stopped["duty"]["since"], stopped["duty"]["pid"], stopped["token"]) == (None, None, None)
    assert stopped["nodes"][0]["role"] == "leader"


def test_the_acting_leader_has_a_hold_and_running_work() -> None:
    assert acts_as_leader(shot())
    assert acts_as_leader(shot(work=Work(kind="none", state="stopped")))
    assert not acts_as_leader(shot(work=Work(state="starting")))
    assert not acts_as_leader(shot(VIEW._replace(hold_left_ms=0)))
    assert not acts_as_leader(shot(FOLLOWS))


def test_reading_needs_no_key(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        assert await served.get("/healthz") == (200, {"ok": True})
        assert await served.get("/v1/state") == (200, document(served.agent.shown))
        assert await served.get("/leader") == (200, {"leads": True, "node": "a", "leader": "a"})
        served.agent.shown = shot(FOLLOWS)
        assert await served.get("/leader") == (503, {"leads": False, "node": "a", "leader": "b"})
        for number in (1, 2, 3):
            served.log.add(number, "a", 7, "elected", f"sentence {number}", number)
        status, events = await served.get("/v1/events")
        assert (status, [each["text"] for each in events]) == (200, ["sentence 1", "sentence 2", "sentence 3"])
        assert events[0] == {
            "number": 1,
            "at_unix_ms": 1,
            "at": "1970-01-01T00:00:00.001Z",
            "node": "a",
            "term": 7,
            "code": "elected",
            "text": "sentence 1",
            "value": 1,
        }
        assert [each["number"] for each in (await served.get("/v1/events?last=1"))[1]] == [3]
        assert (await served.get("/v1/events?last=0"))[1] == []
        assert [each["number"] for each in (await served.get("/v1/events?after=1"))[1]] == [2, 3]
        for wrong in ("last=-1", "last=x", "after=1e3", "after=" + "9" * 40, "last=²"):
            status, said = await served.get(f"/v1/events?{wrong}")
            assert status == 400, wrong
            assert "whole number" in said["error"]

    serve(play)


def test_what_is_not_there_and_what_is_not_done_there(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        for path in ("/", "/v1", "/v1/state/", "/v2/state", "/v1/../etc/passwd", "/" + "x" * 2_000):
            status, said = await served.get(path)
            assert (status, said["error"][:16]) == (404, "there is nothing")
            assert len(said["error"]) < 120
        for name in ORDERS:
            status, said = await served.get(f"/v1/{name}")
            assert (status, said) == (405, {"error": f"GET is not for /v1/{name}; there is POST"})
        for path in ("/v1/state", "/v1/cluster", "/v1/config", "/v1/events", "/healthz", "/leader", "/metrics"):
            status, said = await served.post(path)
            assert status == 405, path
            assert "there is GET" in said["error"]
        async with served.http.delete(served.url + "/v1/state", headers=MAY) as answer:
            assert answer.status == 405
            assert "GET" in answer.headers["Allow"]

    serve(play)


def test_a_bug_of_ours_is_no_end_of_the_node(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        served.agent.breaks = True
        status, said = await served.get("/v1/state")
        assert status == 500
        assert "planted" not in said["error"]
        assert "AssertionError: a planted bug" in served.agent.complaints[0]
        served.agent.breaks = False
        assert (await served.get("/v1/state"))[0] == 200

    serve(play)


def test_the_settings_are_shown_without_secrets(serve: Callable[..., None]) -> None:
    async def play(served: Served) -> None:
        said = {
            "cluster": {
                "name": "billing",
                "secret_file": "s",
                "pass": "hunter2!",
                "user": "ghoti",
                "manager": {"nodes": NODES},
            },
            "run": {
                "command": ["serve", "--db", "postgresql://app:hunter2!@db/x"],
                "environment": {"DB_PASSWORD": "hunter2!", "TZ": "UTC"},
                "health": [{"http": "http://probe:x@hunter2!@127.0.0.1/ok?token=hunter2!"}],
                "fence_command": ["/bin/fence", "-p", "hunter2!"],
                "hooks": {"lost": ["tell", "Bearer hunter2!"]},
            },
        }
        served.agent.shown = shot()._replace(settings=of_mapping(said, "a"), config="f" * 32)
        status, document_ = await served.get("/v1/config")
        assert (status, document_["node"], document_["hash"]) == (200, "a", "f" * 32)
        assert "hunter2" not in json.dumps(document_)
        settings = document_["settings"]
        assert settings["run"]["environment"].keys() == {"DB_PASSWORD", "TZ"}
        assert settings["run"]["command"][:2] == ["serve", "--db"]
        assert settings["run"]["fence_command"][0] == "/bin/fence"
        assert settings["cluster"]["manager"]["nodes"]["b"]["addr"] == "h:2"

    serve(play)


def test_metrics_can_be_read_by_prometheus(serve: Callable[..., None]) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    async def play(served: Served) -> None:
        meters = {"saves": 3, "save_ms": 6.0, "save_max_ms": 4.0, "failovers": 2, "late_ms": 1.5, "late_max_ms": 20.0}
        served.agent.shown = shot()._replace(meters=meters)
        async with served.http.get(served.url + "/metrics", headers={"Accept": "text/plain;version=x;q=é"}) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = await answer.text()
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert all(name[0].startswith("primacy_") for name in found)
        for name, value in {
            ("primacy_role", "leader"): 1,
            ("primacy_role", "follower"): 0,
            ("primacy_duty_state", "running"): 1,
            ("primacy_acting_leader",): 1,
            ("primacy_term",): 7,
            ("primacy_token",): 1_794_700_800_007,
            ("primacy_hold_left_seconds",): 2.41,
            ("primacy_failovers_total",): 2,
            ("primacy_datagrams_total", "sent"): 3,
            ("primacy_ballot_save_seconds_count",): 3,
            ("primacy_ballot_save_seconds_sum",): 0.006,
            ("primacy_ballot_save_max_seconds",): 0.004,
            ("primacy_loop_late_max_seconds",): 0.02,
            ("primacy_heard_seconds", "b"): 0.041,
            ("primacy_alarms",): 0,
        }.items():
            assert found[name] == value, name
        assert ("primacy_heard_seconds", "c") not in found

    serve(play)


def test_the_public_address_serves_three_paths_to_anybody_and_takes_no_order() -> None:
    async def play(folder: Folder) -> None:
        agent = FakeAgent(EventLog(folder, lambda _: None))
        made = PublicServer(agent)
        listening = socket.create_server(("127.0.0.1", 0))
        await made.start(listening)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            async with aiohttp.ClientSession(headers={"Host": "billing.example"}) as http:
                for path, status in (
                    ("/healthz", 200),
                    ("/leader", 200),
                    ("/metrics", 200),
                    ("/v1/state", 404),
                    ("/v1/cluster", 404),
                    ("/v1/config", 404),
                    ("/v1/events", 404),
                    ("/v1/links", 404),
                ):
                    async with http.get(url + path) as answer:
                        assert answer.status == status, path
                for path, status in (("/v1/pause", 404), ("/leader", 405), ("/v1/links", 404)):
                    async with http.post(url + path, json={}, headers=MAY) as answer:
                        assert answer.status == status, path
                agent.shown = shot(FOLLOWS)
                async with http.get(url + "/leader") as answer:
                    assert answer.status == 503
        finally:
            await made.close()
            listening.close()
        assert agent.told == []

    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path + "/state")
        asyncio.run(play(folder))
        folder.close()


# --- who may ask ------------------------------------------------------------------------------------------------------


def test_an_order_needs_key_and_header(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        wrong: list[dict[str, str]] = [
            {},
            {ORDER_HEADER: "1"},
            {KEY_HEADER: KEY},
            {ORDER_HEADER: "1", KEY_HEADER: ""},
            {ORDER_HEADER: "1", KEY_HEADER: KEY[:-1]},
            {ORDER_HEADER: "1", KEY_HEADER: "K" * 64},
            {ORDER_HEADER: "1", KEY_HEADER: "é" * 64},
            {ORDER_HEADER: "1", "Authorization": f"Bearer {KEY}"},
        ]
        for headers in wrong:
            status, said = await served.post("/v1/pause", headers=headers)
            assert status == 403, headers
            assert KEY not in json.dumps(said)
            assert "needs the" in said["error"]
        assert served.agent.told == []
        assert (await served.post("/v1/pause"))[0] == 200
        assert served.agent.told == [Pause()]

    serve(play)


def test_from_another_machine_even_reading_needs_the_key(
    serve: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What listens on all addresses. A certificate, if wanted, is asked for first."""
    monkeypatch.setattr(loopback, "is_loopback", lambda _: False)

    async def play(served: Served) -> None:
        served.server.is_open = True
        for path in ("/v1/state", "/v1/cluster", "/v1/config", "/v1/events", "/leader"):
            status, said = await served.get(path, headers={"Host": "billing.example"})
            assert (status, "even reading needs the control key" in said["error"]) == (403, True)
            assert (await served.get(path, headers={**MAY, "Host": "billing.example"}))[0] in (200, 503)
        assert (await served.post("/v1/pause", headers={ORDER_HEADER: "1"}))[0] == 403
        served.server.certified = True
        status, said = await served.get("/v1/state", headers=MAY)
        assert (status, "a certificate is needed" in said["error"]) == (403, True)
        assert served.agent.told == []

    serve(play)


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        *[(host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1", "::1%lo")],
        *[(host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "", "::ffff:10.0.0.1", "localhost.x", "fe80::1%x")],
    ],
)
def test_which_addresses_are_this_machine(host: str, is_one: bool) -> None:
    assert loopback.is_loopback(host) is is_one


def test_only_loopback_names_lead_here(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1:7480", "", "[fe80::1]:80", "localhost.evil"):
            status, said = await served.get("/v1/state", headers={"Host": host})
            assert status == 403, host
            assert "loopback" in said["error"]
            assert (await served.post("/v1/pause", headers={**MAY, "Host": host}))[0] == 403
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1", f"127.0.0.1:{served.port}", "[::1]:7480", "[::1]"):
            assert (await served.get("/v1/state", headers={"Host": host}))[0] == 200, host
        assert served.agent.told == []

    serve(play)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_bodies_are_bounded_and_are_objects(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        for body in (b"x" * (BODY_BYTES_MAX + 1), b"[" * (BODY_BYTES_MAX + 1)):
            async with served.http.post(served.url + "/v1/pause", data=body, headers=MAY) as answer:
                assert answer.status == 413
                assert "at most 16384 bytes" in (await answer.json())["error"]
        for body in (b"[]", b"1", b"null", b"{", b"\xff", b'"x"', b"[" * BODY_BYTES_MAX):
            async with served.http.post(served.url + "/v1/pause", data=body, headers=MAY) as answer:
                assert answer.status == 400, body
                assert "no JSON object" in (await answer.json())["error"]
        assert served.agent.told == []

    serve(play)


def test_a_body_that_does_not_come_is_not_waited_for(
    serve: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "READ_S", 1.0)  # the head has so long, too

    async def play(served: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = f"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\n{KEY_HEADER}: {KEY}\r\n{ORDER_HEADER}: 1\r\n"
        writer.write(f"{head}Content-Length: 10\r\n\r\n{{".encode())
        assert b"408" in await reader.readline()
        writer.close()

    serve(play)


def test_a_connection_that_asks_nothing_is_closed(
    serve: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "READ_S", 0.1)

    async def play(served: Served) -> None:
        for said in (b"", b"GET /v1/state HTTP/1.1\r\nHost: local"):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(said)
            with contextlib.suppress(ConnectionResetError):  # if what it said came after that
                assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
            writer.close()

    serve(play)


def test_what_is_no_http_harms_nobody(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        for said in (b"\0" * 500 + b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"y" * 20_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(said + b"\r\n\r\n")
            assert b" 400 " in await reader.readline()
            writer.close()
        assert (await served.get("/healthz"))[0] == 200

    serve(play)


def test_connections_are_bounded_for_a_node_needs_descriptors_itself() -> None:
    """Whoever is on this machine may connect: that must not keep the node from its disk, its guards and the others."""

    class Server(loopback.LoopbackServer):
        def routes(self, router: aiohttp.web.UrlDispatcher) -> None:
            router.add_get("/healthz", self.healthz)

    async def play() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        server = Server("", "127.0.0.1", print)
        await server.start(listening)
        most = loopback.CONNECTIONS_MAX
        first = [await asyncio.open_connection("127.0.0.1", port) for _ in range(most)]
        more = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for reader, _ in more:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
        for _, writer in (*first, *more):
            writer.close()
        async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    assert (await session.get(f"http://127.0.0.1:{port}/healthz")).status == 200
                    break
        await server.close()

    asyncio.run(play())


# --- the stream -------------------------------------------------------------------------------------------------------


async def events_of(answer: aiohttp.ClientResponse, count: int) -> list[tuple[int, str, str]]:
    """(id, event, text of data) of the first ones."""
    found: list[tuple[int, str, str]] = []
    fields: dict[str, str] = {}
    while len(found) < count:
        line = (await answer.content.readline()).decode().rstrip("\n")
        if not line and fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])["text"]))
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
    return found


def test_the_stream_goes_on_where_its_reader_left_off(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        for number in (1, 2, 3):
            served.log.add(number, "a", 7, "elected", f"sentence {number}")
        asks = {"Accept": "text/event-stream"}
        url = served.url + "/v1/events"
        async with served.http.get(url, headers={**asks, "Last-Event-ID": "1"}) as answer:
            assert answer.content_type == "text/event-stream"
            assert await events_of(answer, 2) == [(2, "elected", "sentence 2"), (3, "elected", "sentence 3")]
            served.log.add(4, "a", 7, "released", "sentence 4")
            assert await events_of(answer, 1) == [(4, "released", "sentence 4")]
        async with served.http.get(url, headers=asks) as answer:
            await answer.content.readline()
            served.log.add(5, "a", 7, "elected", "only the new")
            assert await events_of(answer, 1) == [(5, "elected", "only the new")]
        async with served.http.get(url, headers={**asks, "Last-Event-ID": "999"}) as answer:
            assert len(await events_of(answer, 5)) == 5, "a number of another log: all of them"
        async with served.http.get(url, headers={**asks, "Last-Event-ID": "x"}) as answer:
            assert answer.status == 400

    serve(play)


def test_streams_are_bounded_and_end_with_the_node(
    serve: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "STREAMS_MAX", 1)
    monkeypatch.setattr(loopback, "STREAM_BEAT_S", 0.05)

    async def play(served: Served) -> None:
        asks = {"Accept": "text/event-stream"}
        async with served.http.get(served.url + "/v1/events", headers=asks) as answer:
            assert (await served.get("/v1/events", headers=asks))[0] == 503
            lines = [await answer.content.readline() for _ in range(3)]
            assert lines == [b": the events of this node\n", b"\n", b": quiet\n"]
            await served.server.close()
            await asyncio.wait_for(answer.content.read(), LIMIT_S)
        assert served.log.wakers == set()

    serve(play)


# --- orders -----------------------------------------------------------------------------------------------------------


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
        served.agent.shown = shot(FOLLOWS._replace(role=Role.MUTED))
        assert (await served.post("/v1/rejoin", {"without": ["gone"]}))[0] == 200
        assert served.agent.told[-1] == Rejoin(("gone",))

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
        served.agent.shown = shot(ending=True)
        status, said = await served.post("/v1/resume")
        assert (status, len(served.agent.told)) == (409, 1)
        assert "is stopping" in said["error"]

    serve(play)


@pytest.mark.parametrize(
    ("name", "body", "view", "says"),
    [
        ("step-down", {}, FOLLOWS, "node a does not lead, b does; there, say: primacy step-down"),
        ("step-down", {}, FOLLOWS._replace(leader=""), "knows of nobody"),
        ("transfer", {"to": "a"}, VIEW, "is this node"),
        ("transfer", {"to": "c"}, VIEW, "is not heard"),
        ("transfer", {"to": "w"}, VIEW, "is a witness"),
        ("transfer", {"to": "b"}, FOLLOWS, "there, say: primacy transfer b"),
        ("rejoin", {"without": ["b"]}, VIEW, "is not muted"),
    ],
)
def test_orders_that_cannot_be_done(name: str, body: dict[str, Any], view: View, says: str) -> None:
    with pytest.raises(Refused, match=says):
        order_of(name, body, shot(view))


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
        order_of(name, body, shot())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"role": "paused"}, "is paused"),
        ({"role": "muted", "waits_for": "its new list"}, "it waits for its new list"),
        ({"health": "failing: TCP x:1"}, "is not well: failing: TCP x:1"),
    ],
)
def test_a_transfer_to_a_node_that_would_not_stand_stops_nothing(said: dict[str, Any], why: str) -> None:
    able = Summary("follower", 7, "a", 0, 0, "", "process", "stopped", -1, 0, "strong", "ok", "0", "", ())
    others = {"b": Heard(able, 1, 4_900)}
    assert isinstance(order_of("transfer", {"to": "b"}, shot()._replace(others=others)), StepDown)
    others = {"b": Heard(able._replace(**said), 1, 4_900)}
    with pytest.raises(Refused, match=why):
        order_of("transfer", {"to": "b"}, shot()._replace(others=others))
