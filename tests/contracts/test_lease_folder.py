"""The folders of lease files: made and locked by an agent, and removed by a later one if the agent was killed."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.node.clock import HandClock
from primacy.supervise import lease_folder as module
from primacy.supervise.lease_folder import LeaseFolder, lease_folder, sweep

UID = os.geteuid()
CALLS = ((os, "mkdir"), (os, "lstat"), (os, "open"), (os, "stat"), (os, "listdir"), (os, "unlink"), (os, "rmdir"))
"""What makes and removes folders, call by call."""


@pytest.fixture
def clock() -> HandClock:
    return HandClock(now_ms=10_000)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "run").mkdir()
    return {"RUNTIME_DIRECTORY": str(tmp_path / "run")}


@pytest.fixture
def above(environment: dict[str, str]) -> Path:
    return Path(environment["RUNTIME_DIRECTORY"]) / "primacy"


def made(environment: dict[str, str], state: str = "/state") -> LeaseFolder:
    found = lease_folder(state, environment, UID)
    assert found.path.startswith(environment["RUNTIME_DIRECTORY"])
    return found


def write(folder: LeaseFolder, until_ms: object) -> None:
    (Path(folder.path) / "lease").write_text(json.dumps({"valid_until_boottime_ms": until_ms}) + "\n")


def kill(folder: LeaseFolder) -> None:
    """Its agent: the kernel closes what it had open."""
    assert folder._close_lock is not None
    folder._close_lock()


def test_it_is_private_and_goes_with_its_agent(environment: dict[str, str], above: Path) -> None:
    folder = made(environment)
    assert stat.S_IMODE(os.stat(folder.path).st_mode) == 0o711
    assert stat.S_IMODE(os.stat(f"{folder.path}/lock").st_mode) == 0o600
    folder.close()
    folder.close()
    assert list(above.iterdir()) == []


def test_the_state_folder_is_never_removed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    folder = lease_folder(str(state), {"XDG_RUNTIME_DIR": "/nowhere"}, UID or 7)
    assert folder.path == str(state)
    folder.close()
    assert state.exists()


@pytest.mark.parametrize("until_ms", [None, 9_999], ids=["it did not lead", "its hold is over"])
def test_what_a_killed_agent_left_goes_with_the_next_start(
    environment: dict[str, str], above: Path, clock: HandClock, until_ms: int | None
) -> None:
    folder = made(environment)
    if until_ms is not None:
        write(folder, until_ms)
        (Path(folder.path) / "lease.new").touch()
    sweep(environment, UID, clock)
    assert Path(folder.path).exists(), "it lives"
    kill(folder)
    sweep(environment, UID, clock)
    assert list(above.iterdir()) == []


def test_a_hold_that_is_not_over_stays_although_the_agent_is_gone(
    environment: dict[str, str], above: Path, clock: HandClock
) -> None:
    folder = made(environment)
    write(folder, 10_000)
    kill(folder)
    sweep(environment, UID, clock)
    assert (Path(folder.path) / "lease").exists()
    clock.ms += 1
    sweep(environment, UID, clock)
    assert list(above.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "{}", '{"valid_until_boottime_ms": null}', "[" * 60_000, "\udcff"]
)
def test_a_lease_that_cannot_be_read_stays(environment: dict[str, str], clock: HandClock, text: str) -> None:
    folder = made(environment)
    path = Path(folder.path) / "lease"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    kill(folder)
    sweep(environment, UID, clock)
    assert path.exists()


def test_a_folder_without_a_lock_is_of_an_earlier_version_and_stays(
    environment: dict[str, str], above: Path, clock: HandClock
) -> None:
    old = above / "0123456789abcdef"
    old.mkdir(parents=True)
    (old / "lease").write_text('{"valid_until_boottime_ms": 1}')
    sweep(environment, UID, clock)
    assert (old / "lease").exists()


def test_no_link_is_followed_and_nothing_else_is_touched(
    environment: dict[str, str], above: Path, clock: HandClock, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("lease", "lock"):
        (theirs / name).write_text('{"valid_until_boottime_ms": 1}')
    above.mkdir()
    (above / ("a" * 16)).symlink_to(theirs)
    for mark, linked, own in (("b" * 16, "lock", "lease"), ("c" * 16, "lease", "lock")):
        (above / mark).mkdir()
        (above / mark / linked).symlink_to(theirs / linked)
        (above / mark / own).write_text('{"valid_until_boottime_ms": 1}')
    (above / ("d" * 16)).mkdir()
    (above / ("d" * 16)).chmod(0o777)
    (above / ("d" * 16) / "lock").touch()
    (above / "of somebody else").mkdir()
    (above / "of somebody else" / "lock").touch()
    before = sorted(tmp_path.rglob("*"))
    sweep(environment, UID, clock)
    assert sorted(tmp_path.rglob("*")) == before
    above.rename(tmp_path / "moved")
    above.symlink_to(tmp_path / "moved")
    kill(LeaseFolder(str(above / ("e" * 16)), made_by_hand(tmp_path / "moved" / ("e" * 16))))
    sweep(environment, UID, clock)
    assert (tmp_path / "moved" / ("e" * 16)).exists()


def made_by_hand(folder: Path) -> int:
    folder.mkdir()
    return os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)


def test_one_that_nobody_knows_any_more_is_given_back(environment: dict[str, str]) -> None:
    """An agent that could not be put together tries again in the same process."""
    first = made(environment)
    del first
    gc.collect()
    made(environment).close()


def test_who_finds_the_lock_held_goes_to_the_state_folder(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BETWEEN_S", 0)
    first = made(environment)
    assert lease_folder("/state", environment, UID).path == "/state"
    first.close()
    made(environment).close()


# --- at the same moment -----------------------------------------------------------------------------------------------


class Interrupted:
    """Does something before one of the calls, counted from 0; or after the last one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, act: Callable[[], None]) -> None:
        self.at, self.act, self.count, self.is_inside = at, act, 0, False
        for where, name in (*CALLS, (fcntl, "flock")):
            monkeypatch.setattr(where, name, self.counted(getattr(where, name)))

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            self.step()
            return call(*args, **named)

        return run

    def step(self) -> None:
        if not self.is_inside:
            if self.count == self.at:
                self.is_inside = True
                self.act()
                self.is_inside = False
            self.count += 1


def places(begin: Callable[[int], int]) -> Iterator[int]:
    """Each call of what is begun, as many as there are."""
    at = 0
    while begin(at) > at:
        yield at
        at += 1


@pytest.mark.parametrize("which", ["a start in the midst of a removal", "a removal in the midst of a start"])
@pytest.mark.parametrize("is_left", [True, False], ids=["of what was left", "with nothing left"])
def test_an_agent_that_starts_at_the_same_moment_keeps_its_folder(
    which: str, is_left: bool, environment: dict[str, str], above: Path, clock: HandClock
) -> None:
    """At each call of one, all of the other. The lease of who starts is found where it wrote it, before and after."""
    is_start_inside = which.startswith("a start")

    def begin(at: int) -> int:
        if is_left:
            kill(made(environment))
        started: list[LeaseFolder] = []

        def start() -> None:
            started.append(lease_folder("/state", environment, UID))
            if started[-1].path != "/state":
                write(started[-1], 1)

        def removal() -> None:
            sweep(environment, UID, clock)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module, "BETWEEN_S", 0)
            inside, outside = (start, removal) if is_start_inside else (removal, start)
            calls = Interrupted(patched, at, inside)
            outside()
            calls.is_inside = True
        if started:
            (folder,) = started
            removal()
            if folder.path != "/state":
                assert (Path(folder.path) / "lease").exists(), f"at call {at}"
                assert (Path(folder.path) / "lock").exists(), f"at call {at}"
                (Path(folder.path) / "lease").unlink()
            else:
                assert is_start_inside, f"at call {at}: nobody holds the lock in the end"
            folder.close()
        removal()
        assert list(above.glob("*")) == [], f"at call {at}"
        return calls.count

    count = sum(1 for _ in places(begin))
    assert count > 5 or not is_left
