"""The ballot file, its folder and the locks: what a crash leaves, what is refused, and with which sentence."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from primacy.election.model import TOKEN_MAX, Ballot, ListRecord
from primacy.errors import CannotHere
from primacy.node import ballot as ballots
from primacy.node.ballot import Durable, FileDurable, Memory, MemoryDurable, packed, unpacked
from primacy.node.folder import Folder
from primacy.node.lock import AgentLock, RunLock
from tests.support.members_drawn import registers

OLD = Ballot(1_700_000_000_000, 3, "a", 3_000, 1_700_000_000_003, 7, (ListRecord("hash", ("a", "b"), True),))
NEW = OLD._replace(
    term=4,
    voted_for="b",
    lists=(*OLD.lists, ListRecord("other", ("a",), False)),
    changed=True,
    seen=(("b", 12, 2**62 + 1),),
)

names = st.text(min_size=1, max_size=20)
numbers = st.integers(0, 2**53 - 1)
ballots_of = st.builds(
    Ballot,
    numbers,
    numbers,
    names,
    numbers,
    numbers,
    numbers,
    st.lists(
        st.builds(ListRecord, names, st.lists(names, max_size=5).map(tuple), st.booleans(), st.booleans()), max_size=3
    ).map(tuple),
    st.booleans(),
    st.lists(st.tuples(names, numbers, st.integers(0, 2**63 - 1)), max_size=4).map(tuple),
    st.booleans(),
    st.none() | registers,
    st.lists(names, max_size=8).map(tuple),
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(str(tmp_path / "state"))
    yield made
    made.close()


@pytest.fixture(params=["file", "memory"])
def durable(request: pytest.FixtureRequest, folder: Folder) -> Durable:
    return FileDurable(folder) if request.param == "file" else MemoryDurable()


# --- the port ---------------------------------------------------------------------------------------------------------


def test_what_was_saved_is_loaded(durable: Durable) -> None:
    assert durable.load() == Memory()
    durable.save(OLD)
    durable.save(NEW)
    assert durable.load() == Memory(NEW)


def test_a_failed_save_leaves_the_old_ballot(durable: Durable, monkeypatch: pytest.MonkeyPatch) -> None:
    durable.save(OLD)
    broken = OSError(errno.ENOSPC, "No space left on device")
    if isinstance(durable, MemoryDurable):
        durable.fails = broken
    else:
        monkeypatch.setattr(os, "fsync", failing(broken))
    with pytest.raises(OSError, match="No space"):
        durable.save(NEW)
    assert durable.load() == Memory(OLD)


def failing(error: OSError) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


# --- layout -----------------------------------------------------------------------------------------------------------


@given(ballots_of)
@hypothesis_settings(max_examples=100, deadline=None)
def test_every_ballot_comes_back(ballot: Ballot) -> None:
    assert unpacked(packed(ballot)) == Memory(ballot)


@given(st.integers(0, len(packed(NEW)) - 1), st.integers(0, 7))
@hypothesis_settings(max_examples=200, deadline=None)
def test_a_flipped_bit_is_no_memory(place: int, bit: int) -> None:
    data = bytearray(packed(NEW))
    data[place] ^= 1 << bit
    found = unpacked(bytes(data))
    assert found.ballot in (None, NEW)  # the last line end is not part of the ballot
    assert found.lost or found.ballot == NEW


def test_a_torn_file_is_no_memory_and_says_so() -> None:
    for length in range(len(packed(NEW)) - 1):
        found = unpacked(packed(NEW)[:length])
        assert found.ballot is None
        assert found.lost


@given(st.binary(max_size=300))
@hypothesis_settings(max_examples=200, deadline=None)
def test_junk_is_no_memory(data: bytes) -> None:
    assert unpacked(data).lost


def with_body(plain: dict[str, Any]) -> bytes:
    body = json.dumps(plain).encode()
    return f"{ballots.KIND} 1 {ballots._sum(body)}\n".encode() + body + b"\n"


def plain(**more: Any) -> dict[str, Any]:
    return {**json.loads(packed(NEW).splitlines()[1]), **more}


def test_unknown_fields_are_ignored_and_new_ones_may_be_missing() -> None:
    assert unpacked(with_body(plain(colour="blue"))) == Memory(NEW)
    short = {name: value for name, value in plain().items() if name not in ("changed", "seen", "void")}
    assert unpacked(with_body(short)) == Memory(NEW._replace(changed=False, seen=()))


@pytest.mark.parametrize(
    "more",
    [
        {"term": -1},
        {"term": "4"},
        {"term": True},
        {"term": 2**64},
        {"base": None},
        {"token_max": TOKEN_MAX + 1},
        {"voted_for": 4},
        {"lists": [{"hash": "h"}]},
        {"lists": 1},
        {"seen": [["b", 1]]},
        {"void": "no"},
    ],
)
def test_a_whole_file_with_a_wrong_value_is_no_memory(more: dict[str, Any]) -> None:
    found = unpacked(with_body(plain(**more)))
    assert found.ballot is None
    assert "no ballot" in found.lost


def test_an_unknown_layout_is_refused_politely() -> None:
    found = unpacked(packed(NEW).replace(b"primacy-ballot 1 ", b"primacy-ballot 2 "))
    assert found.lost == "its layout is 2, and this version of primacy knows 1; use the newer one"


# --- the disk ---------------------------------------------------------------------------------------------------------


def test_short_writes_are_finished(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data)[:7]))
    FileDurable(folder).save(NEW)
    monkeypatch.undo()
    assert FileDurable(folder).load() == Memory(NEW)


def test_a_disk_that_takes_nothing_is_an_error(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    FileDurable(folder).save(OLD)
    monkeypatch.setattr(os, "write", lambda handle, data: 0)
    with pytest.raises(OSError, match="takes no byte"):
        FileDurable(folder).save(NEW)
    monkeypatch.undo()
    assert FileDurable(folder).load() == Memory(OLD)


def test_what_a_crash_left_beside_the_ballot_does_not_matter(folder: Folder) -> None:
    durable = FileDurable(folder)
    durable.save(OLD)
    Path(durable.path + ".new").write_bytes(b"half a ball")
    assert durable.load() == Memory(OLD)
    durable.save(NEW)
    assert durable.load() == Memory(NEW)
    assert os.listdir(folder.where) == ["ballot"]


def test_files_and_folder_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = Folder(str(tmp_path / "deep" / "state"))
        FileDurable(folder).save(OLD)
    finally:
        os.umask(before)
    for path, mode in (
        (tmp_path / "deep", 0o700),
        (tmp_path / "deep/state", 0o700),
        (tmp_path / "deep/state/ballot", 0o600),
    ):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    folder.close()


SAVE = """
import os, sys
from primacy.node.ballot import FileDurable, unpacked
from primacy.node.folder import Folder
folder = Folder(sys.argv[1])
new = unpacked(open(sys.argv[2], "rb").read()).ballot
os.write(2, b"saving")
FileDurable(folder).save(new)
os.write(1, b"durable")
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("fault", ["signal=KILL", "error=EIO"])
def test_a_fault_at_every_system_call_of_a_save_leaves_the_old_or_the_new_ballot(tmp_path: Path, fault: str) -> None:
    """The calls of one save are learned from a first trace; each in turn is made to fail, or to be the last one."""
    wanted = tmp_path / "wanted"
    wanted.write_bytes(packed(NEW))
    calls = calls_of_a_save(tmp_path, wanted)
    assert {name for name, _ in calls} >= {"openat", "write", "fsync", "close"}
    assert any(name.startswith("rename") for name, _ in calls)
    seen = set()
    for number, (name, when) in enumerate(calls):
        state = tmp_path / f"{number}"
        folder = Folder(str(state))
        FileDurable(folder).save(OLD)
        inject = ["-e", f"trace={name}", "-e", f"inject={name}:{fault}:when={when}"]
        result = traced(inject, state, wanted, tmp_path / "log")
        found = FileDurable(folder).load()
        folder.close()
        assert found.ballot in (OLD, NEW), (name, when, found.lost)
        if "durable" in result.stdout:
            assert found.ballot == NEW, (name, when)
        seen.add(found.ballot == NEW)
    assert seen == {True, False}


def traced(options: list[str], state: Path, wanted: Path, log: Path) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {[p for p in sys.path if p]}\n" + SAVE]
    command = ["strace", "-qq", "-o", str(log), *options, *script, str(state), str(wanted)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def calls_of_a_save(tmp_path: Path, wanted: Path) -> list[tuple[str, int]]:
    """(system call, how many times it was made by then) of everything between the two marks."""
    state, log = tmp_path / "first", tmp_path / "log"
    folder = Folder(str(state))
    FileDurable(folder).save(OLD)
    folder.close()
    traced([], state, wanted, log)
    counts: dict[str, int] = {}
    found: list[tuple[str, int]] = []
    inside = False
    for line in log.read_text().splitlines():
        name = line.partition("(")[0]
        counts[name] = counts.get(name, 0) + 1
        inside = inside and '"durable"' not in line
        if inside and name in (
            "unlink",
            "unlinkat",
            "openat",
            "write",
            "fsync",
            "close",
            "rename",
            "renameat",
            "renameat2",
        ):
            found.append((name, counts[name]))
        inside = inside or '"saving"' in line
    return found


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(where: Path) -> str:
    with pytest.raises(CannotHere) as caught:
        Folder(str(where))
    assert caught.value.exit_code == 4
    return str(caught.value)


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o755)
    assert refused(tmp_path / "open") == (
        f"the state folder {tmp_path}/open is open to others (mode 0755): chmod 700 {tmp_path}/open"
    )


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert "is a link" in refused(tmp_path / "link")


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be" in refused(tmp_path / "file")
    assert "no folder" in refused(tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", 12345, 12345)
    assert "belongs to user 12345" in refused(tmp_path / "theirs")


def test_a_ballot_that_others_can_read_is_refused(folder: Folder) -> None:
    durable = FileDurable(folder)
    durable.save(OLD)
    os.chmod(durable.path, 0o644)
    with pytest.raises(CannotHere, match=f"mode 0644.: chmod 600 {durable.path}"):
        durable.load()


def test_a_ballot_that_is_a_link_a_folder_or_a_pipe_is_refused(folder: Folder, tmp_path: Path) -> None:
    durable = FileDurable(folder)
    (tmp_path / "elsewhere").write_bytes(packed(OLD))
    os.symlink(tmp_path / "elsewhere", durable.path)
    with pytest.raises(CannotHere, match="is a link"):
        durable.load()
    for make in (os.mkdir, os.mkfifo):
        shutil.rmtree(durable.path) if os.path.isdir(durable.path) else os.unlink(durable.path)
        make(durable.path)
        with pytest.raises(CannotHere, match="no plain file"):
            durable.load()


def test_a_file_far_too_large_is_no_memory(folder: Folder) -> None:
    durable = FileDurable(folder)
    durable.save(OLD)
    os.truncate(durable.path, ballots.BALLOT_BYTES_MAX + 1)
    assert durable.load() == Memory(lost="it cannot be read: it is far too large")


# --- locks ------------------------------------------------------------------------------------------------------------


def test_the_second_agent_learns_who_holds_the_folder(folder: Folder) -> None:
    first, second = AgentLock(folder), AgentLock(folder)
    assert first.take()
    assert not second.take()
    assert second.holder().pid == os.getpid()
    assert str(second.holder()).startswith(f"process {os.getpid()} (")
    first.close()
    assert second.take()
    second.close()


def test_the_run_lock_is_looked_at_and_left_alone(folder: Folder) -> None:
    looks, holds = RunLock(folder), folder.open("run.lock", os.O_RDWR)
    assert not looks.is_held()
    fcntl.flock(holds, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert looks.is_held()
    os.close(holds)
    assert not looks.is_held()
    looks.close()


def test_G11_a_lock_whose_file_is_removed_is_still_held(folder: Folder) -> None:
    first = AgentLock(folder)
    assert first.take()
    os.unlink(folder.path("agent.lock"))
    second = AgentLock(folder)
    assert not second.take()
    assert not first.is_ours()
    first.close()
    assert second.take()
    assert second.is_ours()
    second.close()


def test_G11_an_agent_that_knows_the_file_only_is_waited_for_also_when_its_name_is_gone(folder: Folder) -> None:
    second, older = AgentLock(folder), folder.open("agent.lock", os.O_RDWR)
    fcntl.flock(older, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.unlink(folder.path("agent.lock"))
    assert not second.take()
    os.close(older)
    assert second.take()
    assert second.is_ours(), "by a file that others find"
    second.close()


def test_G11_a_folder_that_was_replaced_is_not_taken(folder: Folder) -> None:
    lock = AgentLock(folder)
    os.rename(folder.where, folder.where + ".old")
    os.mkdir(folder.where, 0o700)
    with pytest.raises(CannotHere, match="was removed, or replaced by another one"):
        lock.take()
    lock.close()


def test_G11_no_ballot_is_saved_and_the_run_lock_counts_as_held_once_the_own_lock_is_lost(folder: Folder) -> None:
    lock, looks, durable = AgentLock(folder), RunLock(folder), FileDurable(folder)
    assert lock.take()
    durable.save(OLD)
    assert not looks.is_held()
    os.unlink(folder.path("agent.lock"))
    with pytest.raises(OSError, match="the lock of this agent was removed"):
        durable.save(NEW)
    assert durable.load() == Memory(OLD)
    assert looks.is_held()
    looks.close()
    lock.close()


def test_G11_a_run_lock_whose_file_was_replaced_is_looked_at_anew(folder: Folder) -> None:
    looks = RunLock(folder)
    os.unlink(folder.path("run.lock"))
    holds = folder.open("run.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(holds, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert looks.is_held()
    os.close(holds)
    assert not looks.is_held()
    looks.close()
