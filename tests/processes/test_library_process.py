"""The library in real processes that are stopped, killed, blocked and forked. Profile `lab`: hold 500 ms.

Whether two held at once is judged from what they said themselves when all have ended (`holder_harness.py`): that the
next one waits for the hold of the one before is part of it. A machine that is late excuses none of it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.election.store import Look
from primacy.settings.timing import PROFILES, for_lease
from primacy.store import open_store
from tests.support import servers
from tests.support.holder_harness import WITHIN_S, Holders, Process, holders
from tests.support.holder_process import now_ms, state_of
from tests.support.safety_checks import safe
from tests.support.store_harness import LIMIT_MS, made_new

pytestmark = pytest.mark.moments(order=130)

LAB = for_lease(PROFILES["lab"])
CANARY_HEARTBEAT_MS = (LAB.term_at_ms - LAB.heartbeat_ms) / 2
"""See `library_harness.py`."""


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Holders]:
    with holders(tmp_path) as found:
        yield found


def lived_until_ms(pid: int) -> int:
    """Watches until the process is dead or killed: the last moment at which it could still have gone on.

    The clock is read before the look, so that one who watches late does not make it live longer.
    """
    end = time.monotonic() + WITHIN_S
    alive_ms = 0
    while time.monotonic() < end:
        looked_ms = now_ms()
        if state_of(str(pid)) in ("K", "Z"):
            return alive_ms
        alive_ms = looked_ms
        time.sleep(0.001)
    raise AssertionError(f"process {pid} lives")


def is_dead_before(old: Process, new: Process, lived_ms: int) -> None:
    """The kernel has ended it within its hold, and the next one has not seen it alive."""
    begun = new.hear("leads")
    assert old.child.wait(WITHIN_S) == -signal.SIGKILL
    held_ms = max(line["hold_end"] for line in old.rest() if "hold_end" in line)
    safe(lived_ms <= held_ms, f"alive at {lived_ms}, and its hold was over at {held_ms}")
    safe(begun["beside"] in ("", "K", "Z"), f"the old holder was in state {begun['beside']} when the next one began")
    safe(begun["at"] > lived_ms, f"alive at {lived_ms}, and the next one began at {begun['at']}")


def test_U1_a_stopped_holder_finds_its_leadership_lost_when_it_goes_on(crowd: Holders) -> None:
    """One valid leadership at a time: the old body is cancelled, but only after it was let go on."""
    old = crowd.start("lead")
    first = old.hear("leads")
    old.hear("works")
    new = crowd.start("lead")
    old.stop()
    stopped = now_ms()
    second = new.hear("leads")
    assert second["at"] - stopped > LAB.hold_ms - 2 * LAB.heartbeat_ms - LAB.term_at_ms
    old.go_on()
    assert old.hear("over")["token"] == first["token"]
    steps = [line for line in old.words("works") if line["at"] >= second["at"]]
    safe(len(steps) <= 1, f"at most the step that was ready when it was let go on: {steps}")
    new.hear("works")


def test_U1_with_on_loss_kill_the_kernel_ends_even_a_stopped_holder_before_the_next_one_starts(crowd: Holders) -> None:
    old = crowd.start("kill")
    old.hear("works")
    new = crowd.start("lead", watches=old.child.pid)
    new.hear("sees")
    old.stop()
    is_dead_before(old, new, lived_until_ms(old.child.pid))


def test_U1_with_on_loss_kill_a_loop_that_never_turns_is_ended_before_the_next_one_starts(crowd: Holders) -> None:
    old = crowd.start("block-kill")
    old.hear("works")
    new = crowd.start("lead", watches=old.child.pid)
    is_dead_before(old, new, lived_until_ms(old.child.pid))


def test_on_loss_kill_does_nothing_to_a_body_that_ends_in_time(crowd: Holders) -> None:
    """The lease is taken away under it; the body is cancelled, and the process lives on and leads again."""
    old = crowd.start("kill")
    first = old.hear("leads")
    os.rename(crowd.folder / "leases.db", crowd.folder / "away.db")  # a store that forgot everything
    assert old.hear("over")["token"] == first["token"]
    old.hear("leads")
    assert old.child.poll() is None


def test_a_killed_holder_is_followed_after_its_hold_and_not_before(crowd: Holders) -> None:
    old = crowd.start("lead")
    old.hear("works")
    new = crowd.start("lead")
    new.hear("sees")
    old.child.kill()
    killed = now_ms()
    started = new.hear("leads")["at"]
    assert started - killed > LAB.hold_ms - 2 * LAB.heartbeat_ms
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
    store = open_store(crowd.store, limit_ms=LIMIT_MS)
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
    url = made_new(f"sqlite:///{tmp_path}/leases.db" if kind == "sqlite" else servers.empty(kind))
    with holders(tmp_path) as crowd:
        first = crowd.start("lead", store=url)
        token = first.hear("leads")["token"]
        second = crowd.start("lead", store=url)
        second.hear("sees")
        first.child.send_signal(signal.SIGINT)
        over = first.hear("over")["at"]
        led = second.hear("leads")
        safe(led["token"] > token, f"{led} after token {token}")
        assert led["at"] - over < LAB.hold_ms
        third = crowd.start("lead", store=url)
        third.hear("sees")
        second.child.kill()
        killed = now_ms()
        assert third.hear("leads")["at"] - killed > LAB.hold_ms - 2 * LAB.heartbeat_ms
