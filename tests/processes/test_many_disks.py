"""The disk of one raft election hangs, or is full: the others that the same agent leads keep their leader and term."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.errors import Later
from tests.support import hanging_disk
from tests.support.many_agents import CLUSTER, PATIENT, Agents, agents_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=18)

ROOT = Path(__file__).parents[2]
IS_ROOT = os.geteuid() == 0
HANGS, FULL = "hangs", "full"
QUIET = ("quiet0", "quiet1", "quiet2")
STAYS = {"placement": {"spread": False}}
ELECTIONS: dict[str, dict[str, Any]] = dict.fromkeys((HANGS, FULL, *QUIET), STAYS)
CANARY_HEARTBEAT_MS = 250
"""Of the profile: that no leader changes can only be asked of a machine that wakes its processes in time."""
RENEWED_S = 1.0
"""Holds reach beyond a hold and so much after the disk failed: each was renewed since then."""
LEFT_LEAST_MS = PATIENT["hold_ms"] - 8 * CANARY_HEARTBEAT_MS
"""What is left of a hold whenever one looks. It is renewed every 250 ms; a heartbeat that waited for the disk, here
until the test lets it go, would leave nothing."""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """`a` leads what is quiet. The folder of one of its elections can be made to hang; of another it is a small file
    system of its own, if we may mount one."""
    folder = tmp_path_factory.mktemp("disks")
    state = folder / "state-a" / CLUSTER
    with pytest.MonkeyPatch.context() as patch, small_disk(state / FULL):
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv(hanging_disk.FOLDER, str(state / HANGS))
        patch.setenv(hanging_disk.HANGS, str(folder / "now"))
        with agents_in(folder, ELECTIONS, module="tests.support.hanging_disk") as made:
            try:
                made.all_run(*ELECTIONS)
                yield made
            finally:
                (folder / "now").unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """Here, until no process uses it any more."""
    place.mkdir(mode=0o700, parents=True)
    for above in (place.parent, place.parent.parent):
        above.chmod(0o700)
    if not IS_ROOT:
        yield
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        call = ["umount", str(place)]
        wait_until(lambda: not subprocess.run(call, check=False, capture_output=True).returncode, "its users' end")


def quiet(agents: Agents) -> dict[str, tuple[str, int]]:
    """Their leader and term, as `a` says; each with most of its hold left. Empty if it does not answer now."""
    rows = agents.agents["a"].rows()
    for name in QUIET if rows else ():
        left_ms = rows[name]["hold_left_ms"]
        assert left_ms >= LEFT_LEAST_MS, f"{name}: {left_ms} ms left of its hold"
    return {name: (rows[name]["leader"], rows[name]["term"]) for name in QUIET} if rows else {}


@contextlib.contextmanager
def undisturbed(agents: Agents) -> Iterator[Callable[[], None]]:
    """What `a` leads stays so, in the same terms; called: until each was renewed since this began, for a whole hold."""
    for name in QUIET:
        agents.move(name, "a")
    before = wait_until(lambda: leads_all(agents), "a that leads what is quiet")
    began_s = time.monotonic()

    def lasting() -> None:
        wanted_s = began_s + RENEWED_S + PATIENT["hold_ms"] / 1_000
        while time.monotonic() < wanted_s:
            assert wait_until(lambda: quiet(agents), "an answer") == before
            time.sleep(0.1)

    yield lasting
    assert wait_until(lambda: quiet(agents), "an answer") == before


def leads_all(agents: Agents) -> dict[str, tuple[str, int]]:
    with contextlib.suppress(AssertionError):  # one that has just won holds nothing yet
        found = quiet(agents)
        return found if {leader for leader, _ in found.values()} == {"a"} else {}
    return {}


def test_a_vote_that_hangs_in_its_disk_holds_up_no_other_election(agents: Agents) -> None:
    """`a` is to vote for `c`, and its disk takes nothing; the others of it go on, and so do `b` and `c`."""
    agents.move(HANGS, "b")
    hangs = agents.folder / "now"
    with undisturbed(agents) as lasting:
        ballot = agents.agents["a"].state / CLUSTER / HANGS / "ballot"
        hangs.touch()
        before = ballot.read_bytes()
        try:
            agents.move(HANGS, "c")
            lasting()
            assert ballot.read_bytes() == before, "it still waits for its disk"
        finally:
            hangs.unlink()
        wait_until(lambda: ballot.read_bytes() != before, "a that goes on there")


def taken(agents: Agents, at: str) -> bool:
    """Told to hand over to `a`: its command stamps a moment before its agent knows that it runs."""
    try:
        agents.agents[at].ask("/v1/transfer", FULL, {"to": "a"})
    except Later:
        return False
    return True


@pytest.mark.skipif(not IS_ROOT, reason="only root can mount a file system")
def test_the_full_disk_of_one_election_costs_the_others_nothing(agents: Agents) -> None:
    """`a` leads it, and can save no vote: it leads no further term there until there is room again."""
    agents.move(FULL, "a")
    filling = agents.folder / "state-a" / CLUSTER / FULL / "filling"
    with undisturbed(agents) as lasting:
        try:
            with filling.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4_096))
            agents.move(FULL, "b")
            wait_until(lambda: taken(agents, "b"), "a start that the leader knows of, too")
            lasting()
            agents.all_run(FULL, other="a")
        finally:
            filling.unlink()
    agents.move(FULL, "a")
