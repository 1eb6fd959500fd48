"""The control API in one process: what can be read, and the stream."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections.abc import Callable

import aiohttp
import aiohttp.web
import pytest

from primacy.control import loopback
from primacy.control.control_server import PublicServer
from primacy.control.document import acts_as_leader, document, is_ready
from primacy.control.eventlog import EventLog
from primacy.control.requests import ORDERS
from primacy.control.when import instant
from primacy.election.model import Role, View
from primacy.node.folder import Folder
from primacy.settings import of_mapping
from tests.support.control_harness import (
    FOLLOWS,
    LIMIT_S,
    MAY,
    NODES,
    VIEW,
    FakeAgent,
    Play,
    Served,
    Work,
    folder,
    node_status,
    serve,
)

__all__ = ["folder", "serve"]

# --- reading ----------------------------------------------------------------------------------------------------------


def test_the_state_document_has_the_fields_of_the_surface() -> None:
    said = document(node_status())
    assert said["nodes"][0] == {
        "node": "b",
        "kind": "voter",
        "addr": "h:2",
        "heard_ms": 41,
        "role": None,
        "leader": None,
        "workload": None,
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
        "workload": {
            "kind": "process",
            "state": "running",
            "since": "2023-11-14T22:13:19.000Z",
            "pid": 4711,
            "containment": "strong",
            "way": "ptrace",
        },
        "health": "ok",
        "containment": None,
        "members": None,
        "counters": {"sent": 3},
    }
    assert instant(0) == "1970-01-01T00:00:00.000Z"
    stopped = document(node_status(FOLLOWS, Work(state="stopped", pid=0)))
    assert (stopped["workload"]["since"], stopped["workload"]["pid"], stopped["token"]) == (None, None, None)
    assert stopped["nodes"][0]["role"] == "leader"


def test_the_acting_leader_has_a_hold_and_running_work() -> None:
    assert acts_as_leader(node_status())
    assert acts_as_leader(node_status(work=Work(kind="none", state="stopped")))
    assert not acts_as_leader(node_status(work=Work(state="starting")))
    assert not acts_as_leader(node_status(VIEW._replace(hold_left_ms=0)))
    assert not acts_as_leader(node_status(FOLLOWS))


@pytest.mark.parametrize(
    ("view", "ending", "ready"),
    [
        (VIEW, False, True),
        (FOLLOWS, False, True),
        (FOLLOWS._replace(role=Role.OBSERVER), False, True),
        (FOLLOWS._replace(role=Role.PAUSED), False, True),
        (FOLLOWS._replace(leader=""), False, False),
        (FOLLOWS._replace(role=Role.STARTING), False, False),
        (FOLLOWS._replace(role=Role.RECOVERING), False, False),
        (FOLLOWS._replace(role=Role.CANDIDATE), False, False),
        (VIEW, True, False),
    ],
)
def test_a_node_is_ready_if_it_takes_part_and_knows_who_leads(view: View, ending: bool, ready: bool) -> None:
    assert is_ready(node_status(view, ending=ending)) is ready


def test_reading_needs_no_key(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        assert await served.get("/healthz") == (200, {"ok": True})
        assert await served.get("/v1/state") == (200, document(served.agent.shown))
        assert await served.get("/leader") == (200, {"leads": True, "node": "a", "leader": "a"})
        served.agent.shown = node_status(FOLLOWS)
        assert await served.get("/leader") == (503, {"leads": False, "node": "a", "leader": "b"})
        assert await served.get("/readyz") == (200, {"ready": True})
        served.agent.shown = node_status(FOLLOWS._replace(leader=""))
        assert await served.get("/readyz") == (503, {"ready": False})
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
            if name == "members":  # which may be read, too
                continue
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
        served.agent.shown = node_status()._replace(settings=of_mapping(said, "a"), config="f" * 32)
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
        served.agent.shown = node_status()._replace(meters=meters)
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
            ("primacy_workload_state", "running"): 1,
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
            ("primacy_alerts",): 0,
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
                    ("/readyz", 200),
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
                async with http.options(url + "/leader") as answer:
                    assert (answer.status, (await answer.json())["leads"]) == (200, True)
                for path, status in (("/v1/pause", 404), ("/leader", 405), ("/v1/links", 404)):
                    async with http.post(url + path, json={}, headers=MAY) as answer:
                        assert answer.status == status, path
                agent.shown = node_status(FOLLOWS)
                for method in ("GET", "OPTIONS", "HEAD"):  # OPTIONS: what HAProxy asks by default
                    async with http.request(method, url + "/leader") as answer:
                        assert answer.status == 503
        finally:
            await made.close()
            listening.close()
        assert agent.told == []

    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path + "/state")
        asyncio.run(play(folder))
        folder.close()


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
    monkeypatch.setattr(loopback, "STREAM_HEARTBEAT_S", 0.05)

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
