"""Events are written beside the loop: a disk that hangs holds up neither an election nor the end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from primacy.agent import events as agent_events
from primacy.agent.events import EventSink
from primacy.control import eventlog, history
from primacy.control.disk_thread import DiskThread, Found
from primacy.control.eventlog import EVENTS_MAX, FILE_NAME, EventLog, kept
from primacy.node.clock import SystemClock
from primacy.node.folder import Folder
from primacy.node.log import Log
from tests.support.waiting import wait_until, wait_until_async

HANGS_S = 60.0
"""A loop that waits for the disk is let go then, and judged."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(str(tmp_path / "state"))
    yield made
    made.close()


@pytest.fixture
def lets_go(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The disk takes no event before this is set, whoever writes."""
    lets_go, write = threading.Event(), os.write

    def hanging(handle: int, data: bytes) -> int:
        if os.path.basename(os.readlink(f"/proc/self/fd/{handle}")) in (FILE_NAME, f"{FILE_NAME}.new"):
            lets_go.wait(HANGS_S)
        return write(handle, data)

    monkeypatch.setattr(os, "write", hanging)
    monkeypatch.setattr(agent_events, "FLUSH_S", 0.01)
    monkeypatch.setattr(eventlog, "END_S", HANGS_S)
    yield lets_go
    lets_go.set()


def numbers(folder: Folder) -> list[int]:
    return [json.loads(line)["number"] for line in Path(folder.path(FILE_NAME)).read_bytes().splitlines()]


def sink_of(folder: Folder, complain: Callable[[str], None], disk: DiskThread | None = None) -> EventSink:
    log = EventLog(folder, complain, keeps_day=False)
    return EventSink("a", SystemClock(), Log(SystemClock(), handle=-1), log, lambda: 7, disk)


def happens(log: EventLog, times: int) -> None:
    for _ in range(times):
        log.add(1_700_000_000_000, "a", 7, "elected", "x" * 40)
    log.flush()


def nobody(sentence: str) -> None:
    raise AssertionError(sentence)


def is_open(folder: Folder) -> bool:
    """The file was opened: what writes it hangs now."""
    return os.path.exists(folder.path(FILE_NAME))


def test_while_the_disk_hangs_the_loop_goes_on_and_then_all_is_written_in_order(
    folder: Folder, lets_go: threading.Event
) -> None:
    async def play() -> None:
        before, sink = set(threading.enumerate()), sink_of(folder, nobody)
        for number in range(50):
            sink.record(7, "elected", f"event {number}")
            await asyncio.sleep(agent_events.FLUSH_S)
        assert not lets_go.is_set()
        assert numbers(folder) == [], "nothing is written yet"
        assert len(set(threading.enumerate()) - before) == 1, "one thread hangs, and no other"
        lets_go.set()
        await wait_until_async(lambda: numbers(folder) == list(range(1, 51)), "all events")
        sink.record(7, "stopped", "the last")
        await sink.close()
        assert numbers(folder) == list(range(1, 52)), "what happened last is there when it has ended"

    began_s = time.monotonic()
    asyncio.run(play())
    assert time.monotonic() - began_s < HANGS_S, "the loop waited for the disk"


def test_the_end_waits_for_the_disk_for_a_moment_only_and_nothing_is_opened_afterwards(
    folder: Folder, lets_go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's descriptor may be another election's by then. Another election that shares the thread ends, too."""
    monkeypatch.setattr(eventlog, "END_S", 0.05)
    monkeypatch.setattr(history, "END_S", 0.05)
    disk, opened = DiskThread("x"), os.listdir("/proc/self/fd")
    other = Folder(f"{folder.where}.other")

    async def play() -> None:
        sink, beside = sink_of(folder, nobody, disk), sink_of(other, nobody, disk)
        sink.record(7, "elected", "one")
        await wait_until_async(lambda: is_open(folder), "a thread that hangs")
        sink.record(7, "stopped", "two")
        beside.record(7, "stopped", "of the other")
        await sink.close()
        await beside.close()

    asyncio.run(play())
    assert numbers(folder) == []
    lets_go.set()
    disk.ask(lambda: None).result(HANGS_S)
    disk.end()
    assert numbers(folder) == [1], "what hung, and nothing after it"
    assert not os.path.exists(other.path(FILE_NAME))
    other.close()
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= len(opened), "no descriptor is left")


def test_what_may_not_wait_any_longer_is_counted_and_told(folder: Folder, lets_go: threading.Event) -> None:
    complaints: list[str] = []

    async def play() -> int:
        sink = sink_of(folder, complaints.append)
        sink.record(7, "elected", "one")
        await wait_until_async(lambda: is_open(folder), "a thread that hangs")
        for number in range(EVENTS_MAX + 30):
            sink.record(7, "elected", f"event {number}")
        assert complaints == []
        lets_go.set()
        await sink.close()
        return sink.events.missing

    assert asyncio.run(play()) == 30
    assert numbers(folder) == [1, *range(32, EVENTS_MAX + 32)], "the newest are kept"
    assert complaints == [
        f"{folder.path(FILE_NAME)} lacks 30 events before number 32: the disk did not take them in time"
    ]


def test_without_a_thread_events_wait_and_the_end_writes_them_itself(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_events, "FLUSH_S", 0.01)

    def none(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def play() -> None:
        sink = sink_of(folder, nobody)
        sink.record(7, "elected", "one")
        await asyncio.sleep(5 * agent_events.FLUSH_S)
        assert not is_open(folder)
        await sink.close()

    monkeypatch.setattr(threading.Thread, "start", none)
    asyncio.run(play())
    assert numbers(folder) == [1]


def test_what_happens_after_the_end_asks_for_no_thread(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_events, "FLUSH_S", 0.01)
    asked: list[object] = []

    class Counted(DiskThread):
        def ask(self, work: Callable[[], Found]) -> Future[Found]:
            asked.append(work)
            return super().ask(work)

    async def play() -> None:
        sink = sink_of(folder, nobody, Counted("x"))
        sink.record(7, "stopped", "the last")
        await sink.close()
        before = len(asked)
        sink.record(7, "gone", "too late")
        await asyncio.sleep(5 * agent_events.FLUSH_S)
        assert len(asked) == before

    asyncio.run(play())
    assert numbers(folder) == [1]


def test_a_disk_that_takes_a_part_costs_that_part_and_it_is_counted(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[str] = []
    log, write = EventLog(folder, complaints.append, keeps_day=False), os.write
    happens(log, 1)
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[: len(data) // 2]))
    happens(log, 4)
    assert complaints == [f"events are not kept: {folder.path(FILE_NAME)}: {os.strerror(errno.ENOSPC)}"]
    monkeypatch.undo()
    happens(log, 1)
    happens(log, 1)
    log.close()
    found = [entry.number for entry in kept(folder.path(FILE_NAME))]
    assert found[-2:] == [6, 7], "the half line costs itself, and no other"
    assert (log.missing, found) == (5 - len(found[:-2]), [*range(1, len(found) - 1), 6, 7])
    assert complaints[1:] == [
        f"{folder.path(FILE_NAME)} lacks {log.missing} events before number 6: the disk did not take them in time"
    ]


def test_a_line_that_an_earlier_start_left_torn_costs_no_other(folder: Folder) -> None:
    log = EventLog(folder, nobody, keeps_day=False)
    happens(log, 2)
    log.close()
    path = Path(folder.path(FILE_NAME))
    path.write_bytes(path.read_bytes()[:-5])
    log = EventLog(folder, nobody, keeps_day=False)
    happens(log, 1)
    log.close()
    assert [entry.number for entry in kept(str(path))] == [1, 2]


def test_a_close_that_fails_leaves_no_number_of_a_file_that_may_be_another_one_s(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[str] = []
    log, close = EventLog(folder, complaints.append, keeps_day=False), os.close
    happens(log, 1)
    held = log._handle

    def fails(handle: int) -> None:
        close(handle)
        if handle == held:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(eventlog, "FILE_BYTES_MAX", 10)
    monkeypatch.setattr(os, "close", fails)
    happens(log, 1)
    monkeypatch.undo()
    other = os.open(f"{folder.where}.other", os.O_RDWR | os.O_CREAT)
    assert other == held, "the number is another file's now"
    happens(log, 1)
    log.close()
    assert os.pread(other, 10, 0) == b""
    os.close(other)
    assert log.missing == 1
    assert [entry.number for entry in kept(folder.path(FILE_NAME))] == [1, 3]


def test_a_file_that_is_made_small_beyond_the_end_is_not_put_over_that_of_the_next_start(
    folder: Folder, lets_go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (eventlog, history):
        monkeypatch.setattr(module, "END_S", 0.05)
    monkeypatch.setattr(eventlog, "FILE_BYTES_MAX", 10)
    disk = DiskThread("x")

    async def play() -> None:
        sink = sink_of(folder, nobody, disk)
        sink.record(7, "elected", "before")
        await wait_until_async(lambda: os.path.exists(folder.path(f"{FILE_NAME}.new")), "a thread that hangs")
        await sink.close()

    asyncio.run(play())
    Path(folder.path(FILE_NAME)).write_text("of the next start")
    lets_go.set()
    disk.ask(lambda: None).result(HANGS_S)
    disk.end()
    assert Path(folder.path(FILE_NAME)).read_text() == "of the next start"
