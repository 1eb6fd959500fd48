"""The audit trail: what is asked of a control API is kept, with who asked and what came of it; bounded, and for all."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primacy.control import KEY_HEADER, ORDER_HEADER, audit, control_server
from primacy.control.audit import (
    BEFORE_NAME,
    FILE_BYTES_MAX,
    FILE_NAME,
    NAMELESS,
    AuditTrail,
    asked_of,
    entry_of,
    kept,
    last_of,
    who_of,
)
from primacy.control.eventlog import EventLog
from primacy.control.requests import carry_out
from primacy.errors import Refused
from primacy.node.folder import Folder
from tests.support.control_harness import FOLLOWS, KEY, LIMIT_S, FakeAgent, Play, Served, folder, node_status, serve
from tests.support.waiting import wait_until_async

__all__ = ["folder", "serve"]

ANN = {KEY_HEADER: KEY, ORDER_HEADER: "ann on the command line"}


def told(served: Served) -> Any:
    return served.get("/v1/audit")


def test_every_request_is_recorded_with_who_asked_and_what_came_of_it(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        assert (await told(served))[1]["requests"] == []
        await served.post("/v1/pause", {}, ANN)
        await served.post("/v1/transfer", {"to": "w"}, ANN)
        await served.post("/v1/resume")
        await served.post("/v1/transfer", {"nonsense": 1}, ANN)
        served.agent.shown = node_status(FOLLOWS)
        await served.post("/v1/pause", {"node": "b"}, ANN)
        rows = (await told(served))[1]["requests"]
        assert [(row["who"], row["asked"], row["outcome"]) for row in rows] == [
            ("ann on the command line", "pause", "done"),
            ("ann on the command line", "transfer (to w)", "refused"),
            (NAMELESS, "resume", "done"),
            ("ann on the command line", "transfer (nonsense 1)", "refused"),
            ("ann on the command line", "pause (node b)", "passed on"),
        ]
        assert rows[1]["why"] == "node w is a witness, and cannot lead"
        assert rows[4]["why"] == "to node b"
        assert {(row["node"], row["election"], row["origin"]) for row in rows} == {("a", "main", "127.0.0.1")}
        assert len((await served.get("/v1/audit?last=2"))[1]["requests"]) == 2

    serve(play)


def test_a_request_that_broke_off_is_not_called_done(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        def breaks() -> str:
            raise RuntimeError("a planted bug")

        served.agent.shown = node_status(FOLLOWS)
        served.agent.pass_answer = breaks
        assert (await served.post("/v1/pause", {"node": "b"}, ANN))[0] == 500
        (row,) = (await told(served))[1]["requests"]
        assert (row["outcome"], row["why"]) == ("not known", "it was interrupted")

    serve(play)


def test_a_disk_that_hangs_holds_up_the_answer_for_a_moment_only(
    serve: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "RECORDED_S", 0.2)

    async def play(served: Served) -> None:
        hangs = threading.Event()
        monkeypatch.setattr(served.log.audit, "flush", lambda: hangs.wait(LIMIT_S))
        asked = time.monotonic()
        assert (await served.post("/v1/pause", {}, ANN))[0] == 200
        assert 0.2 <= time.monotonic() - asked < LIMIT_S / 2
        monkeypatch.undo()
        hangs.set()
        assert [row["asked"] for row in (await told(served))[1]["requests"]] == ["pause"]

    serve(play)


def test_half_a_character_is_recorded_and_ends_nothing(serve: Callable[[Play], None], folder: Folder) -> None:
    """JSON can write it, UTF-8 cannot: a fault of the thread that writes was taken for a fault of the agent."""

    async def play(served: Served) -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        await served.post("/v1/pause", {}, ANN)
        status, answer = await served.post("/v1/transfer", {"to": "\ud800"}, ANN)
        assert (status, answer["error"][:9]) == (400, "to = \ud800: n")
        served.log.add(1, "a", 7, "hook", "a path with \udcff in it")
        served.log.flush()
        assert [row["asked"] for row in (await told(served))[1]["requests"]] == ["pause", "transfer (to ?)"]
        assert [event["text"] for event in (await served.get("/v1/events?last=1"))[1]] == ["a path with ? in it"]
        gc.collect()
        await asyncio.sleep(0)
        assert faults == []

    serve(play)
    rows = kept(folder.where)
    assert [row.asked for row in rows] == ["pause", "transfer (to ?)"]
    assert rows[1].why.startswith("to = ?: no node"), "what it says can be shown"
    assert [event.text for event in EventLog(folder, print).last(1)] == ["a path with ? in it"]


def test_a_fault_of_the_writer_is_complained_of_and_ends_nothing(
    serve: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(served: Served) -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

        def breaks() -> None:
            raise ValueError("a planted bug")

        monkeypatch.setattr(served.log.audit, "flush", breaks)
        assert (await served.post("/v1/pause", {}, ANN))[0] == 200
        await wait_until_async(lambda: served.agent.complaints, "a complaint: the answer does not wait long for it")
        monkeypatch.undo()
        gc.collect()
        await asyncio.sleep(0)
        assert faults == []
        assert served.agent.complaints == ["the audit trail is not kept: ValueError: a planted bug"]

    serve(play)


def test_neither_a_monitor_nor_a_stranger_fills_it(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        assert (await served.post("/v1/health", {"ok": True}))[0] == 200
        assert (await served.post("/v1/pause", {}, {ORDER_HEADER: "1"}))[0] == 403
        assert (await told(served))[1]["requests"] == []

    serve(play)


def test_what_another_node_passed_on_names_that_node(folder: Folder) -> None:
    log = EventLog(folder, print)
    agent = FakeAgent(log)
    asyncio.run(carry_out("pause", {}, agent, log, "c"))
    agent.shown = node_status(ending=True)
    try:
        asyncio.run(carry_out("resume", {}, agent, log, "c"))
    except Refused as error:
        refusal = str(error)
    rows = log.audit.last(10)
    assert [(row.who, row.origin, row.asked, row.outcome) for row in rows] == [
        ("somebody at node c", "node c", "pause", "done"),
        ("somebody at node c", "node c", "resume", "refused"),
    ]
    assert rows[1].why == refusal
    log.close()
    assert kept(folder.where) == rows, "also when nobody asked since"


def test_it_outlives_the_node_and_two_may_write(folder: Folder) -> None:
    one, other = AuditTrail(folder, print), AuditTrail(folder, print)
    for number, trail in enumerate((one, other, one)):
        trail.add(entry_of(number, "ann", "127.0.0.1", ("a", "main"), f"pause {number}", "done"))
        trail.flush()
    assert [entry.asked for entry in AuditTrail(folder, print).last(2)] == ["pause 1", "pause 2"]
    assert one.last(0) == []
    with open(folder.path(FILE_NAME), "ab") as file:
        file.write(b'{"at_unix_ms": "x"}\n[1]\n{half a li')
    assert [entry.asked for entry in kept(folder.where)] == ["pause 0", "pause 1", "pause 2"]


def test_it_is_bounded_and_keeps_the_newest(folder: Folder) -> None:
    trail = AuditTrail(folder, print)
    long = "x" * 200
    many = 3 * FILE_BYTES_MAX // 1_000
    for number in range(many):
        trail.add(entry_of(number, "w" * 100, long, (long, long), f"{number} {long}", "refused", "y" * 400))
        trail.flush()
    files = [Path(folder.path(name)) for name in (FILE_NAME, BEFORE_NAME)]
    assert sum(file.stat().st_size for file in files) <= 2 * FILE_BYTES_MAX + 2_000
    newest = trail.last(1_000)
    assert newest[-1].at_unix_ms == many - 1
    assert len(newest) >= 900


def test_two_that_see_it_full_put_no_small_file_over_the_full_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    trails = AuditTrail(folder, print), AuditTrail(folder, print)
    look, times = os.fstat, iter(range(100))

    def write(trail: AuditTrail) -> None:
        trail.add(entry_of(next(times), "ann", "", ("a", "main"), "pause", "done"))
        trail.flush()

    def meanwhile(handle: int) -> os.stat_result:
        """The agent is quicker than the dashboard: it renames the full file, and begins another."""
        found = look(handle)
        if found.st_size > audit.FILE_BYTES_MAX:
            monkeypatch.setattr(os, "fstat", look)
            write(trails[0])
            write(trails[0])
        return found

    for _ in range(9):
        write(trails[0])
    monkeypatch.setattr(audit, "FILE_BYTES_MAX", 1_000)
    monkeypatch.setattr(os, "fstat", meanwhile)
    write(trails[1])
    assert sorted(entry.at_unix_ms for entry in kept(folder.where)) == list(range(12))


def test_a_disk_that_takes_nothing_is_said_once_and_what_was_asked_is_remembered(folder: Folder) -> None:
    complaints: list[str] = []
    trail = AuditTrail(folder, complaints.append)
    Path(folder.path(FILE_NAME)).symlink_to("/dev/full")
    for number in range(3):
        trail.add(entry_of(number, "ann", "", ("a", "main"), "pause", "done"))
        trail.flush()
    assert len(complaints) == 1
    assert complaints[0].startswith("the audit trail is not kept: ")
    assert [entry.at_unix_ms for entry in trail.last(9)] == [0, 1, 2]


def test_the_trails_of_several_elections_are_one() -> None:
    trails = {name: AuditTrail(None, print) for name in ("mail", "reports", "idle")}

    def add(at: int, asked: str, *names: str) -> None:
        for name in names:
            trails[name].add(entry_of(at, "ann", "127.0.0.1", ("a", name), asked, "done"))

    add(3, "pause", "reports")
    add(1, "pause", "mail")
    add(2, "reload", "mail", "reports")
    both = list(trails.values())
    assert [(entry.asked, entry.election) for entry in last_of(both, 10)] == [
        ("pause", "mail"),
        ("reload", ""),
        ("pause", "reports"),
    ]
    assert [entry.at_unix_ms for entry in last_of(both, 2)] == [2, 3]
    assert last_of(both, 0) == last_of([], 5) == []
    assert [entry.election for entry in last_of(both[:1], 5)] == ["mail", "mail"]


def test_a_request_in_a_few_words() -> None:
    assert asked_of("step-down", {}) == "step-down"
    assert asked_of("init", {"without": ["c", "d"]}) == "init (without c d)"
    assert asked_of("approve", {"node": "a", "term": 7}) == "approve (node a, term 7)"
    assert len(asked_of("x", {"y" * 90: "z" * 9_000, "b": "c" * 900, "d": ["e" * 400] * 90})) <= 240
    assert [who_of(said) for said in ("1", "", "  ", "a\x00b", "ann")] == [NAMELESS] * 4 + ["ann"]
    assert json.dumps(who_of("x" * 500)).count("x") == 120
