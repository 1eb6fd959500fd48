"""The history of the last day in the state folder: lines, files in turn, ranges, bounds, clocks, damage, upgrades."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from primacy.control import control_server, eventlog, history
from primacy.control.control_server import HISTORY_READERS_MAX
from primacy.control.disk_thread import DiskThread
from primacy.control.eventlog import Entry, EventLog
from primacy.control.history import (
    AGE_MS,
    BYTES_MAX,
    FILE_BYTES_MAX,
    FILE_MS,
    FILES_MAX,
    HeardHolds,
    History,
    head_of,
    heads,
    kept,
    name_of,
    too_old,
)
from primacy.control.history_scan import EVENTS_BYTES_MAX, Hold, Scan, event_line, hold_line
from primacy.errors import Later
from primacy.node.folder import Folder
from primacy.timeline.history import past_of
from tests.support.control_harness import LIMIT_S, RUNS, VIEW, Play, Served, folder, seen, serve
from tests.support.waiting import wait_until as until
from tests.support.waiting import wait_until_async

__all__ = ["folder", "serve"]

T = 1_794_700_000_000
HOUR = FILE_MS
MINUTE = 60_000


class Wall:
    """A wall clock that a test sets."""

    def __init__(self, now_ms: int = T) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def nobody(sentence: str) -> None:
    raise AssertionError(sentence)


def entry(number: int, at_ms: int, code: str = "elected", node: str = "a", text: str = "") -> Entry:
    return Entry(number, at_ms, node, 1, code, text or f"{node} {code} {number}")


def size_of(folder: Folder) -> int:
    names = [name for name in os.listdir(folder.where) if name.startswith("history")]
    return sum(os.path.getsize(folder.path(name)) for name in names)


def texts(said: dict[str, Any], part: str = "events") -> list[object]:
    return [row[-1] for row in said[part]]


# --- a range ----------------------------------------------------------------------------------------------------------


def scanned(from_ms: int, to_ms: int, *lines: bytes, most: int = 100) -> Scan:
    scan = Scan(from_ms, to_ms, most)
    scan.take(b"".join(lines))
    return scan


def line(at_ms: int, code: str, node: str = "a", number: int = 1) -> bytes:
    return event_line(at_ms, code, node, 1, number, 0, f"{node} {code} at {at_ms}")


def test_a_range_has_its_events_and_how_things_stood_around_it() -> None:
    rows = [(1, "started"), (2, "elected"), (3, "elected"), (5, "paused"), (7, "gone"), (8, "gone"), (9, "started")]
    scan = scanned(4, 6, *(line(at_ms, code) for at_ms, code in rows))
    assert [one.at_unix_ms for one in scan.before] == [1, 3]
    assert [one.at_unix_ms for one in scan.events] == [5]
    assert [one.at_unix_ms for one in scan.after] == [7, 9]


def test_both_ends_belong_to_it_and_nodes_are_told_apart_whatever_they_are_called() -> None:
    names = ["a", 'q"uote', "b,c", "ü", "x\\", 'y",z', "\n"]
    scan = scanned(5, 6, *(line(at_ms, "follows", name) for name in names for at_ms in (4, 5, 6, 7)))
    assert [one.node for one in scan.events] == [name for name in names for _ in (5, 6)]
    assert {one.node for one in scan.before} == set(names)


def test_of_too_many_the_newest_are_kept_and_it_says_from_where() -> None:
    scan = scanned(10, 90, *(line(at_ms, "elected", number=at_ms) for at_ms in range(100)), most=5)
    assert [one.at_unix_ms for one in scan.events] == [86, 87, 88, 89, 90]
    assert (scan.of, scan.cut_ms) == (81, 85)
    assert [one.at_unix_ms for one in scan.before] == [85], "what was cut tells how things stood"
    long = event_line(20, "late", "a", 1, 1, 0, "x" * 500)
    scan = scanned(0, 100, *([long] * 10_000), most=10_000)
    assert sum(map(len, map(str, scan.events))) < 1.5 * EVENTS_BYTES_MAX


def test_of_a_hold_the_newest_renewal_counts_if_it_touches_the_range() -> None:
    holds = [Hold("a", 10, 20, 7), Hold("a", 15, 25, 7), Hold("a", 14, 24, 7), Hold("b", 40, 50, 8)]
    assert scanned(21, 30, *map(hold_line, holds)).holds == [Hold("a", 15, 25, 7)]
    assert scanned(30, 60, *map(hold_line, holds)).holds == [Hold("b", 40, 50, 8)]


def test_events_are_counted_by_five_minutes() -> None:
    scan = scanned(0, 1, line(T, "a"), line(T + 1, "a"), line(T + 5 * MINUTE, "a"))
    assert [many for _, many in scan.counts(T)] == [2, 1]
    assert scan.counts(T + 10 * MINUTE) == []


@pytest.mark.parametrize(
    "torn",
    [b"", b"[", b"]", b"{}", b"[]", b'[1,"x"]', b'[7,"elec', b'[7,"elected","a",1]', b'["x","elected","a",1,1,0,"t"]',
     b'[7,"elected","a",1,1,0,7]', b'[7,"elected","a",1,1,0,"t"],', b'[7,"","a",1]', b'[7,"","a","x",9]', b"\xff\xfe",
     b'[7,"elected","a\\"],', b"[" * 5_000 + b"]"],
)  # fmt: skip
def test_a_torn_line_costs_itself_only(torn: bytes) -> None:
    scan = scanned(0, 10, line(5, "elected"), torn + b"\n", line(6, "gone"))
    assert [one.at_unix_ms for one in scan.events] == [5, 6]
    assert scan.holds == []


# --- the files --------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read_by_the_next_start_and_without_one(folder: Folder) -> None:
    with closing(EventLog(folder, nobody)) as log:
        log.add(T, "a", 1, "elected", "one")
        log.history.hear_holds([Hold("a", T, T + 900, 7)])
    with closing(EventLog(folder, nobody)) as log:
        log.add(T + 1, "a", 1, "gone", "two")
        said = log.history.read(node="a")
        assert (texts(said), said["holds"], said["node"]) == (["one", "two"], [Hold("a", T, T + 900, 7)], "a")
    assert texts(kept(folder.where)) == ["one", "two"]
    assert texts(kept(folder.where, T + 1, T + 1)) == ["two"]
    names = [name for name in os.listdir(folder.where) if name.startswith("history")]
    assert [os.stat(folder.path(name)).st_mode & 0o777 for name in names] == [0o600]


def test_a_day_of_two_hundred_events_a_second_stays_within_its_bound(folder: Folder) -> None:
    """The newest are kept, and it is said since when."""
    wall = Wall()
    log = History(folder, nobody, wall_ms=wall)
    number = 0
    for _ in range(110):
        for _ in range(1_000):
            number += 1
            wall.now_ms += 5
            log.add(entry(number, wall.now_ms, text="a sentence of the length that most of them have, and some" * 2))
        log.write()
    assert BYTES_MAX - 2 * FILE_BYTES_MAX < size_of(folder) <= BYTES_MAX
    assert len([name for name in os.listdir(folder.where) if name.startswith("history")]) == FILES_MAX
    said = log.read(most=10)
    assert [row[4] for row in said["events"]] == list(range(number - 9, number + 1))
    assert T < said["kept_from_ms"] < said["cut_ms"] < wall.now_ms
    assert said["kept_bytes"] <= said["bytes_max"] == BYTES_MAX
    assert log.read(said["kept_from_ms"], said["kept_from_ms"] + 20)["events_of_range"] == 5
    log.close()


def through(log: History, wall: Wall, hours: int, number: int = 0) -> int:
    """A quiet node: an event every ten minutes."""
    for _ in range(6 * hours):
        wall.now_ms += 10 * MINUTE
        number += 1
        log.add(entry(number, wall.now_ms))
        log.write()
    return number


def test_a_day_is_kept_and_little_more(folder: Folder) -> None:
    wall = Wall()
    log = History(folder, nobody, wall_ms=wall)
    through(log, wall, 80)
    said = log.read()
    first_ms = said["events"][0][0]
    assert AGE_MS <= wall.now_ms - first_ms <= AGE_MS + 2 * HOUR
    assert wall.now_ms - said["kept_from_ms"] <= AGE_MS + 2 * HOUR
    assert size_of(folder) < 50_000
    log.close()


def test_what_is_old_goes_also_if_nothing_happens(folder: Folder) -> None:
    wall = Wall()
    log = History(folder, nobody, wall_ms=wall)
    through(log, wall, 2)
    for _ in range(60):
        wall.now_ms += HOUR
        assert log.is_due()
        log.write()
    assert log.read()["events"] == []
    log.close()


@pytest.mark.parametrize("jump_ms", [365 * 24 * HOUR, -365 * 24 * HOUR, -T + 1_000])
def test_a_clock_that_was_set_costs_two_hours_and_not_the_day(folder: Folder, jump_ms: int) -> None:
    wall = Wall()
    log = History(folder, nobody, wall_ms=wall)
    number = through(log, wall, 24)
    wall.now_ms += jump_ms
    log.add(entry(number + 1, wall.now_ms, "late"))
    log.write()
    wall.now_ms -= jump_ms
    log.add(entry(number + 2, wall.now_ms, "late"))
    log.write()
    left = [row for row in log.read()["events"] if row[1] == "elected"]
    assert len(left) >= 6 * 19, "each of the two jumps may cost two files, of an hour each"
    number = through(log, wall, 3, number + 2)
    assert [row[4] for row in log.read()["events"]][-18:] == list(range(number - 17, number + 1))
    log.close()


def test_what_was_written_under_a_wrong_clock_does_not_stay_for_ever(folder: Folder) -> None:
    wall = Wall(T + 365 * 24 * HOUR)
    log = History(folder, nobody, wall_ms=wall)
    through(log, wall, 5)
    wall.now_ms = T
    through(log, wall, 30)
    assert max(row[0] for row in log.read()["events"]) <= wall.now_ms
    assert too_old({1: T - 90 * HOUR, 2: T - 80 * HOUR, 3: T - 70 * HOUR, 4: T - HOUR, 5: T}, T) == [1, 2], (
        "two at most"
    )
    assert too_old({5: 1}, T) == [], "the newest never"
    log.close()


def test_a_file_that_was_cut_off_goes_on_with_a_whole_line(folder: Folder) -> None:
    with closing(History(folder, nobody)) as log:
        log.add(entry(1, T))
    path = Path(folder.path(name_of(0)))
    path.write_bytes(path.read_bytes() + b'[1794700000001,"elec')
    with closing(History(folder, nobody)) as log:
        log.add(entry(2, T + 2))
        assert [row[4] for row in log.read()["events"]] == [1, 2]


def test_a_machine_that_starts_in_1970_has_kept_nothing_since_then(folder: Folder) -> None:
    wall = Wall(5_000)
    log = History(folder, nobody, wall_ms=wall)
    for number, now_ms in ((1, 5_000), (2, T)):
        wall.now_ms = now_ms
        log.add(entry(number, now_ms))
        log.write()
    said = log.read()
    assert (said["kept_from_ms"], [many for _, many in said["counts"]]) == (T, [1])
    log.close()


def test_a_file_that_is_gone_costs_itself_and_the_next_one_is_begun(folder: Folder) -> None:
    complaints: list[str] = []
    log = History(folder, complaints.append, wall_ms=Wall())
    for number in (1, 2, 3):
        log.add(entry(number, T + number))
        log.write()
        if number == 1:
            os.unlink(folder.path(name_of(0)))
    assert [row[4] for row in log.read()["events"]] == [3]
    assert len(complaints) == 1
    log.close()


def test_what_cannot_be_written_is_complained_of_once_and_stops_nobody(folder: Folder) -> None:
    complaints: list[str] = []
    os.mkdir(folder.path(name_of(0)))
    log = EventLog(folder, complaints.append)
    for number in range(3):
        log.add(T + number, "a", 1, "elected", "sentence")
        log.history.write()
    assert len(complaints) == 1
    assert "the history of the last day is not kept" in complaints[0]
    assert log.history.read()["events"] == []
    log.close()
    assert len(log.entries) == 3


def test_a_full_disk_costs_what_it_does_not_take(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[str] = []
    log = History(folder, complaints.append, wall_ms=Wall())
    log.add(entry(1, T))
    log.write()

    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for number in (2, 3):
            log.add(entry(number, T + number))
            log.write()
    assert [("No space left on device" in said) for said in complaints] == [True]
    log.add(entry(4, T + 4))
    assert [row[4] for row in log.read()["events"]] == [1, 4]
    log.close()


def test_no_link_is_followed(folder: Folder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text('{"history": 0, "at": 1}\n' + line(T, "elected").decode())
    os.symlink(other, folder.path(name_of(0)))
    before = other.read_bytes()
    assert kept(folder.where)["events"] == []
    with closing(History(folder, nobody)) as log:
        log.add(entry(7, T))
        assert [row[4] for row in log.read()["events"]] == [7]
    assert other.read_bytes() == before
    assert not os.path.islink(folder.path(name_of(0)))


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that hangs for all threads but this one, until it is set."""
    hangs, write = threading.Event(), os.write

    def hanging(handle: int, data: bytes) -> int:
        if threading.current_thread() is not threading.main_thread():
            hangs.wait(60)
        return write(handle, data)

    monkeypatch.setattr(os, "write", hanging)
    monkeypatch.setattr(history, "END_S", 0.05)
    yield hangs
    hangs.set()


def test_a_disk_that_hangs_holds_up_neither_the_loop_nor_the_end(
    serve: Callable[[Play], None], hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "HOLDS_S", 0.02)
    monkeypatch.setattr(control_server, "HISTORY_S", 0.2)

    async def play(served: Served) -> None:
        threads = threading.active_count()
        for number in range(2 * history.WAITING_MAX):
            served.log.add(T + number, "a", 7, "elected", f"event {number}")

        def asked() -> list[asyncio.Task[tuple[int, Any]]]:
            return [asyncio.create_task(served.get("/v1/history")) for _ in range(HISTORY_READERS_MAX)]

        for status, said in await asyncio.gather(*asked()):
            assert (status, "the disk is slow, or hangs" in said["error"]) == (504, True)
        monkeypatch.setattr(control_server, "HISTORY_S", LIMIT_S)
        waiting = asked()
        await wait_until_async(lambda: served.server._readers == HISTORY_READERS_MAX, "that all of them wait")
        for status, said in await asyncio.gather(*asked()):
            assert (status, "others wait for the history of this node; ask again" in said["error"]) == (409, True)
        assert (await served.get("/v1/state"))[0] == 200
        assert threading.active_count() <= threads + 1, "one thread hangs, and no other"
        assert len(served.log.history._waiting) <= history.WAITING_MAX
        served.log.add(T, "a", 7, "elected", "the last")
        await served.log.history.aclose()
        assert served.log.history.files is None
        for task in waiting:
            task.cancel()

    serve(play)


def test_what_hung_when_its_folder_was_closed_opens_nothing_afterwards(folder: Folder, hung: threading.Event) -> None:
    """The folder's descriptor may be another election's by then."""
    log = History(folder, nobody, wall_ms=Wall())
    log.add(entry(1, T))
    writer = threading.Thread(target=log.write)
    writer.start()
    until(lambda: os.path.exists(folder.path(name_of(0))))
    log.add(entry(2, T))
    log.close()
    hung.set()
    writer.join(60)
    assert not writer.is_alive()
    assert os.path.getsize(folder.path(name_of(0))) < 50, "the head that hung, and no line after it"


def test_without_threads_nothing_is_written_and_nobody_ends(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = History(folder, nobody)
    log.add(entry(1, T))
    with monkeypatch.context() as patched:

        def none(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", none)
        with pytest.raises(Later, match="no further thread"):
            DiskThread("x").ask(log.write)
        log.close()
    assert not os.path.exists(folder.path(name_of(0)))


def test_the_thread_does_one_thing_after_another_tells_what_failed_and_hears_no_signal() -> None:
    thread, done = DiskThread("x"), []
    for number in range(5):
        thread.ask(partial(done.append, number))
    fault = thread.ask(lambda: 1 // 0)
    blocked = thread.ask(lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    thread.end()
    assert blocked.result(60) >= {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    assert isinstance(fault.exception(60), ZeroDivisionError)
    assert done == [0, 1, 2, 3, 4]


def test_switched_off_nothing_is_kept_and_the_last_events_are_told(folder: Folder) -> None:
    with closing(EventLog(folder, nobody, keeps_day=False)) as log:
        log.add(T, "a", 1, "elected", "one")
        log.history.hear_holds([Hold("a", T, T + 900, 7)])
        assert not log.history.is_due()
        said = log.history.read(node="a", beside=tuple(log.entries))
        assert (texts(said), said["kept_from_ms"], said["bytes_max"]) == (["one"], T, 0)
        past = past_of(said)
        assert past is not None
        assert past.sentence().endswith(": its last events only.")
    assert [name for name in os.listdir(folder.where) if name.startswith("history")] == []


def test_a_file_of_the_folder_that_is_no_history_is_left_alone_and_overwritten_in_its_turn(folder: Folder) -> None:
    for slot, data in ((0, b"x" * 3 * FILE_BYTES_MAX), (1, b'{"history": 2, "at": 1}\n'), (2, b'{"history": "2"}\n')):
        handle = folder.create(name_of(slot))
        os.write(handle, data)
        os.close(handle)
    assert head_of(b"") is None
    with closing(History(folder, nobody)) as log:
        log.add(entry(1, T))
        assert [row[4] for row in log.read()["events"]] == [1]
    assert os.path.getsize(folder.path(name_of(0))) < 1_000
    assert list(heads(lambda name, most: Path(folder.path(name)).read_bytes()[:most])) == [0]


# --- upgrades ---------------------------------------------------------------------------------------------------------


def of_the_version_before(folder: Folder, count: int) -> None:
    rows = [entry(number, T + number)._asdict() for number in range(1, count + 1)]
    path = Path(folder.path(eventlog.FILE_NAME))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path.chmod(0o600)


def test_the_events_of_the_version_before_go_into_the_history_once(folder: Folder) -> None:
    of_the_version_before(folder, 5)
    assert [row[4] for row in kept(folder.where, beside=eventlog.kept(folder.path(eventlog.FILE_NAME)))["events"]] == [
        *range(1, 6)
    ]
    for _ in range(2):
        with closing(EventLog(folder, nobody)) as log:
            log.add(T + 1_000, "a", 1, "started", "a starts")
    numbers = [row[4] for row in kept(folder.where)["events"]]
    assert numbers == [1, 2, 3, 4, 5, 6, 7]


def test_what_the_version_before_wrote_meanwhile_is_not_lost(folder: Folder) -> None:
    with closing(EventLog(folder, nobody)) as log:
        log.add(T, "a", 1, "started", "a starts")
    of_the_version_before(folder, 4)
    said = kept(folder.where, beside=eventlog.kept(folder.path(eventlog.FILE_NAME)))
    assert [row[4] for row in said["events"]] == [1, 2, 3, 4]
    with closing(EventLog(folder, nobody)) as log:
        assert [row[4] for row in log.history.read()["events"]] == [1, 2, 3, 4]
        log.add(T + 9, "a", 1, "started", "a starts")
    assert [row[4] for row in kept(folder.where)["events"]] == [1, 2, 3, 4, 5]


# --- over HTTP --------------------------------------------------------------------------------------------------------


def test_a_node_answers_a_range_and_has_kept_who_holds(
    serve: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own hold, and the one that another said last before it fell silent."""
    monkeypatch.setattr(control_server, "HOLDS_S", 0.02)

    async def play(served: Served) -> None:
        served.agent.shown = seen(("b", RUNS, 2_000), view=VIEW)
        for number in range(5):
            served.log.add(T + number, "a", 7, "elected", f"event {number}")

        async def both() -> Any:
            said = (await served.get("/v1/history"))[1]
            return said if len(said["holds"]) == 2 else None

        while (said := await both()) is None:
            await asyncio.sleep(0.01)
        wall_ms, holds = served.agent.shown.wall_ms, {hold[0]: hold for hold in said["holds"]}
        assert holds["b"][2:] == [wall_ms - 2_000 + RUNS.hold_left_ms, RUNS.token]
        assert holds["a"][2] == wall_ms + VIEW.hold_left_ms
        assert (said["node"], texts(said)) == ("a", [f"event {number}" for number in range(5)])
        said = (await served.get(f"/v1/history?from={T + 1}&to={T + 3}&most=2"))[1]
        assert (texts(said), said["events_of_range"], said["cut_ms"]) == (["event 2", "event 3"], 3, T + 1)
        assert (texts(said, "before"), texts(said, "after")) == (["event 1"], ["event 4"])

    serve(play)


@pytest.mark.parametrize("query", ["from=x", "to=-1", "most=1.5", "from=2&to=1", "from=" + "9" * 40])
def test_nonsense_is_refused_with_a_sentence(serve: Callable[[Play], None], query: str) -> None:
    async def play(served: Served) -> None:
        status, said = await served.get(f"/v1/history?{query}")
        assert (status, list(said)) == (400, ["error"])

    serve(play)


def test_a_bug_in_what_is_shown_ends_nobody(serve: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "HOLDS_S", 0.02)

    async def play(served: Served) -> None:
        served.agent.breaks = True
        while not served.agent.complaints:
            await asyncio.sleep(0.01)
        assert "the history of the last day is not kept: AssertionError: a planted bug" in served.agent.complaints[0]
        assert (await served.get("/healthz"))[0] == 200

    serve(play)


# --- holds ------------------------------------------------------------------------------------------------------------


def test_of_a_hold_that_is_renewed_all_day_a_line_is_written_every_five_seconds() -> None:
    heard = HeardHolds()
    lines = [
        one for second in range(60) for one in heard.hear([Hold("a", T + second * 1_000, T + second * 1_000 + 900, 7)])
    ]
    assert len(lines) == 12


def test_the_last_renewal_of_each_leadership_is_written() -> None:
    heard = HeardHolds()
    first, second, last = (Hold("a", T + at_ms, T + at_ms + 900, 7) for at_ms in (0, 1_000, 2_000))
    assert heard.hear([first]) == [first]
    assert heard.hear([second]) == []
    assert heard.hear([last]) == []
    assert heard.hear([last._replace(from_ms=T + 2_001, to_ms=last.to_ms + 1)]) == [last], "it is not renewed any more"
    assert heard.hear([last]) == []
    other = Hold("b", T + 4_000, T + 4_900, 8)
    assert heard.hear([last, other]) == [other]
    renewed = other._replace(from_ms=T + 5_000, to_ms=T + 5_900)
    assert heard.hear([renewed]) == []
    assert heard.hear([]) == [renewed], "it leads no more"


@pytest.mark.parametrize("turns", range(5))
def test_an_event_in_the_moment_of_the_end_does_not_hide_the_end(
    serve: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """That a node ends is an event. `wait_for` of Python 3.11 takes an end that meets what is waited for as that."""
    monkeypatch.setattr(control_server, "HOLDS_S", 0.001)
    monkeypatch.setattr(control_server, "HOLDS_TIMES", 0)

    async def play(served: Served) -> None:
        await asyncio.sleep(0.05)  # it waits for what happens
        served.server._happened.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(LIMIT_S):
            await served.server.close()

    serve(play)
