"""The library in real processes that are stopped, killed, blocked and forked. Profile `lab`: hold 500 ms."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.holder import now_ms
from tests.holder_desk import WITHIN_S, Holders, holders

from primacy.election.store import Look
from primacy.settings.timing import PROFILES, for_lease
from primacy.store import open_store

LAB = for_lease(PROFILES["lab"])
CANARY_BEAT_MS = LAB.beat_ms


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Holders]:
    with holders(tmp_path) as found:
        yield found


def died_at_ms(pid: int) -> int:
    """Watches until the process is dead, however it stands with its parent."""
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        with open(f"/proc/{pid}/stat", "rb") as file:
            if file.read().rpartition(b") ")[2][:1] == b"Z":
                return now_ms()
        time.sleep(0.001)
    raise AssertionError(f"process {pid} lives")


def test_U1_a_stopped_holder_finds_its_leadership_lost_when_it_goes_on(crowd: Holders) -> None:
    """One valid leadership at a time: the old body is cancelled, but only after it was let go on."""
    old = crowd.start("lead")
    first = old.hear("leads")
    old.hear("works")
    new = crowd.start("lead")
    old.stop()
    stopped = now_ms()
    second = new.hear("leads")
    assert second["token"] > first["token"]
    assert second["at"] - stopped > LAB.hold_ms - 2 * LAB.beat_ms - LAB.term_at_ms
    old.go_on()
    assert old.hear("over")["token"] == first["token"]
    steps = [line for line in old.words("works") if line["at"] >= second["at"]]
    assert len(steps) <= 1, "at most the step that was ready when it was let go on"
    new.hear("works")


def test_U1_with_on_loss_kill_the_kernel_ends_even_a_stopped_holder_before_the_next_one_starts(crowd: Holders) -> None:
    old = crowd.start("kill")
    old.hear("works")
    new = crowd.start("lead")
    new.hear("sees")
    old.stop()
    stopped = now_ms()
    died = died_at_ms(old.child.pid)
    assert died - stopped <= LAB.deadman_at_ms + 50
    assert old.child.wait(WITHIN_S) == -signal.SIGKILL
    assert new.hear("leads")["at"] > died


def test_U1_with_on_loss_kill_a_loop_that_never_turns_is_ended_before_the_next_one_starts(crowd: Holders) -> None:
    old = crowd.start("block-kill")
    old.hear("works")
    new = crowd.start("lead")
    died = died_at_ms(old.child.pid)
    assert old.child.wait(WITHIN_S) == -signal.SIGKILL
    assert new.hear("leads")["at"] > died
    assert max(line["at"] for line in old.rest()) <= died


def test_on_loss_kill_does_nothing_to_a_body_that_ends_in_time(crowd: Holders) -> None:
    """The lease is taken away under it; the body is cancelled, and the process lives on and leads again."""
    old = crowd.start("kill")
    first = old.hear("leads")
    os.rename(crowd.folder / "leases.db", crowd.folder / "away.db")  # a store that forgot everything
    assert old.hear("over")["token"] == first["token"]
    assert old.hear("leads")["token"] > first["token"]
    assert old.child.poll() is None


def test_a_killed_holder_is_followed_after_its_hold_and_not_before(crowd: Holders) -> None:
    old = crowd.start("lead")
    old.hear("works")
    new = crowd.start("lead")
    new.hear("sees")
    old.child.kill()
    killed = now_ms()
    started = new.hear("leads")["at"]
    assert started - killed > LAB.hold_ms - 2 * LAB.beat_ms
    old.child.wait(WITHIN_S)


def test_a_holder_that_is_told_to_end_releases_and_is_followed_at_once(crowd: Holders) -> None:
    old = crowd.start("lead")
    old.hear("works")
    new = crowd.start("lead")
    new.hear("sees")
    old.child.send_signal(signal.SIGINT)
    over = old.hear("over")["at"]
    assert new.hear("leads")["at"] - over < LAB.hold_ms


def test_a_fork_inside_a_leadership_leaves_the_child_without_it(crowd: Holders) -> None:
    parent = crowd.start("fork")
    token = parent.hear("leads")["token"]
    child = parent.hear("child")
    assert (child["why"], child["left_ms"]) == ("this process was forked from the one that leads", 0)
    parent.hear("child out")
    store = open_store(crowd.store)
    (answer,) = store.look([Look("job")])
    assert answer.row is not None
    assert (answer.row.token, answer.row.released) == (token, False)
    assert parent.hear("still")["token"] == token
    parent.hear("out")
    (answer,) = store.look([Look("job")])
    assert answer.row is not None
    assert answer.row.released
    store.close()


# --- every store ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in servers.kinds() if kind != "memory"])
def test_two_holders_take_turns_on_every_store(kind: str, tmp_path: Path) -> None:
    """First use, a release that is taken at once, and a loss when the holder is killed."""
    url = f"sqlite:///{tmp_path}/leases.db" if kind == "sqlite" else servers.empty(kind)
    with holders(tmp_path) as crowd:
        first = crowd.start("lead", store=url)
        token = first.hear("leads")["token"]
        second = crowd.start("lead", store=url)
        second.hear("sees")
        first.child.send_signal(signal.SIGINT)
        over = first.hear("over")["at"]
        led = second.hear("leads")
        assert led["token"] > token
        assert led["at"] - over < LAB.hold_ms
        third = crowd.start("lead", store=url)
        third.hear("sees")
        second.child.kill()
        killed = now_ms()
        assert third.hear("leads")["at"] - killed > LAB.hold_ms - 2 * LAB.beat_ms
