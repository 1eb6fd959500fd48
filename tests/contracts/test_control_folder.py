"""What stands beside the control API in a node's folder: the log of events, the key, the address that commands find."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from primacy.agent.control_api import ControlApi
from primacy.control import eventlog
from primacy.control.client import FoundNode, ask, find
from primacy.control.eventlog import EVENTS_MAX, EventLog
from primacy.control.key import KEY_FILE, is_key, own_key
from primacy.errors import CannotHere, InUse, NotReached, Refused, UsageError
from primacy.node.folder import Folder
from primacy.settings import of_mapping
from primacy.settings.schema import Settings
from tests.support.control_harness import FakeAgent
from tests.support.ports import free_port


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(str(tmp_path / "state"))
    yield made
    made.close()


# --- the log of events ------------------------------------------------------------------------------------------------


def nobody(sentence: str) -> None:
    raise AssertionError(sentence)


def test_events_outlive_a_restart_and_their_numbers_go_on(folder: Folder) -> None:
    log = EventLog(folder, nobody)
    for number in range(3):
        log.add(number, "a", 1, "elected", f"sentence {number}", 5)
    log.close()
    again = EventLog(folder, nobody)
    assert list(again.entries) == list(log.entries)
    again.add(9, "a", 2, "elected", "x" * 9_999)
    assert (again.newest, len(again.last(1)[0].text)) == (4, eventlog.TEXT_CHARS_MAX)
    again.close()
    assert os.stat(folder.path(eventlog.FILE_NAME)).st_mode & 0o777 == 0o600


def test_a_damaged_log_costs_its_damaged_lines_only(folder: Folder) -> None:
    log = EventLog(folder, nobody)
    log.add(1, "a", 1, "elected", "one")
    log.close()
    path = Path(folder.path(eventlog.FILE_NAME))
    bad = b'{"number": 2\n\xff\xfe\n[]\n{}\n{"number": "3"}\n7\n' + path.read_bytes()
    path.write_bytes(path.read_bytes() + bad + b'{"number": 9, "at_unix')
    again = EventLog(folder, nobody)
    assert [entry.text for entry in again.entries] == ["one"]
    path.write_bytes(b"x" * (2 * eventlog.FILE_BYTES_MAX + 1))
    assert list(EventLog(folder, nobody).entries) == []


def test_the_log_is_bounded_in_memory_and_on_disk(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventlog, "FILE_BYTES_MAX", 100_000)
    log = EventLog(folder, nobody)
    for number in range(3 * EVENTS_MAX):
        log.add(number, "a", 1, "elected", "a sentence of some length")
        log.flush()
        if number % 100 == 0:
            assert os.path.getsize(folder.path(eventlog.FILE_NAME)) <= 100_000
    log.close()
    assert len(log.entries) == EVENTS_MAX
    assert log.after(0)[0].number == 2 * EVENTS_MAX + 1
    again = EventLog(folder, nobody)
    assert again.newest == log.newest
    assert len(again.entries) >= EVENTS_MAX // 2


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_log_that_cannot_be_written_is_complained_of_once(folder: Folder, kind: str) -> None:
    complaints: list[str] = []
    log = EventLog(folder, complaints.append)
    if kind == "folder":
        os.mkdir(folder.path(eventlog.FILE_NAME))
    else:
        os.symlink("/dev/null", folder.path(eventlog.FILE_NAME))
    for number in range(3):
        log.add(number, "a", 1, "elected", "sentence")
        log.flush()
    assert len(complaints) == 1
    assert "events are not kept" in complaints[0]
    assert log.newest == 3


# --- key, address and client ------------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_is_private(folder: Folder) -> None:
    key = own_key(folder)
    assert (len(key), own_key(folder)) == (64, key)
    assert os.stat(folder.path(KEY_FILE)).st_mode & 0o777 == 0o600
    assert is_key(key, key)
    assert not is_key("", key)
    Path(folder.path(KEY_FILE)).write_text(key[:30])
    with pytest.raises(CannotHere, match=r"holds no control key.*rm "):
        own_key(folder)
    os.chmod(folder.path(KEY_FILE), 0o644)
    with pytest.raises(CannotHere, match="chmod 600"):
        own_key(folder)


def harness_of(folder: Folder, listen: str, source: str = "primacy.yaml") -> ControlApi:
    settings: Settings = of_mapping({"control": {"listen": listen}})
    log = EventLog(folder, nobody)
    return ControlApi(dataclasses.replace(settings, source=source), folder, "a", FakeAgent(log), log)


def test_a_chosen_port_that_is_taken_ends_with_4_and_the_default_one_gives_way(folder: Folder) -> None:
    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            control_api = harness_of(folder, address)
            with pytest.raises(InUse, match=f"control.listen = {address}: Address already in use"):
                control_api.bind()
            await control_api.close()
            for listen, source in (("127.0.0.1:7480", "primacy.yaml"), (address, "")):
                first, second = harness_of(folder, listen, source), harness_of(folder, listen, source)
                first.bind()
                second.bind()
                assert first.address != second.address
                await second.close()
                await first.close()
        assert InUse.exit_code == 4

    asyncio.run(play())


def test_a_command_finds_the_node_of_a_folder_if_it_runs(folder: Folder) -> None:
    async def play() -> None:
        control_api = harness_of(
            folder, f"127.0.0.1:{free_port()}", source=""
        )  # nobody takes it over when it is free again
        assert find(folder.where) is None
        control_api.bind()
        found = find(folder.where)
        assert found == FoundNode(
            "127.0.0.1", int(control_api.address.rpartition(":")[2]), control_api.key, os.getpid()
        )
        assert os.stat(folder.path("control.json")).st_mode & 0o777 == 0o600
        control_api.serve()
        assert found is not None
        said = await asyncio.to_thread(ask, found, "/v1/state")
        assert said["node"] == "a"
        with pytest.raises(UsageError, match="no such field"):
            await asyncio.to_thread(ask, found, "/v1/pause", {"x": 1})
        with pytest.raises(Refused, match="there is nothing"):
            await asyncio.to_thread(ask, found, "/nowhere")
        with pytest.raises(Refused, match="run this as the user"):
            ask(found._replace(key=""), "/v1/pause", {})
        with pytest.raises(Refused, match="needs the control key"):
            await asyncio.to_thread(ask, found._replace(key="0" * 64), "/v1/pause", {})
        await control_api.close()
        assert find(folder.where) is None
        with pytest.raises(NotReached, match="does not answer"):
            ask(found, "/v1/state")

    asyncio.run(play())


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"host": 1, "port": 2, "pid": 3}', "dead"])
def test_an_address_that_nobody_stands_behind(folder: Folder, text: str) -> None:
    if text == "dead":
        text = json.dumps({"host": "127.0.0.1", "port": 1, "pid": 2**22 + 5})
    Path(folder.path("control.json")).write_text(text)
    assert find(folder.where) is None


def test_an_address_of_a_process_of_somebody_else_is_nobodys(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent was killed, and its number and port passed to another user: he must not be sent our key."""
    Path(folder.path("control.json")).write_text(json.dumps({"host": "127.0.0.1", "port": 1, "pid": os.getpid()}))
    assert find(folder.where) is not None
    real = os.stat

    def stat(path: str, **more: Any) -> Any:
        found = real(path, **more)
        return SimpleNamespace(st_uid=found.st_uid + 1) if str(path).startswith("/proc/") else found

    monkeypatch.setattr("primacy.control.client.os.stat", stat)
    assert find(folder.where) is None


def test_at_names_an_address(folder: Folder) -> None:
    assert find(folder.where, "[::1]:80") == FoundNode("::1", 80, "")
    for wrong in ("x", ":80", "h:0", "h:99999", "h:x"):
        with pytest.raises(UsageError, match="HOST:PORT"):
            find(folder.where, wrong)
