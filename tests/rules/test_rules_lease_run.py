"""Rules of a lease under `primacy run`: earlier starts under one run lock (L4), and what a release covers (G8)."""

from __future__ import annotations

import pytest

from primacy.election.effects import Record, Start
from primacy.election.events import Code
from primacy.election.inputs import RunLock, Started, StepDown, WorkGone, WorkStarted
from primacy.election.store import WAIT_MAX_MS, ReleaseRow, holder_id
from primacy.sim.world.store import SimStore
from tests.support.lease_harness import LAN, WALL, Harness, held_by

pytestmark = pytest.mark.coverage


def test_L4_a_row_of_an_earlier_start_under_this_run_lock_is_taken_at_once() -> None:
    harness = Harness(store=held_by(), dead=(holder_id("b", 8), holder_id("b", 9)))
    harness.tell(Started(WALL))
    harness.until(Start)
    assert harness.now == 0
    assert Code.EARLIER_GONE in harness.codes()
    assert Code.LEADER_SILENT not in harness.codes(), "nobody was waited for"


def test_L4_an_earlier_start_proves_nothing_about_anybody_else() -> None:
    """Another holder, another server, a row that is missing, a lock that is held: the wait is the usual one."""
    elsewhere, unsettled = held_by(), SimStore(settled=False)
    elsewhere.fail_over(lost_commits=0)
    for store, known in ((held_by(), holder_id("b", 8)), (elsewhere, holder_id("b", 9)), (unsettled, "b#9")):
        harness = Harness(store=store, dead=(known,))
        harness.tell(Started(WALL))
        harness.until(Start)
        assert harness.now > LAN.wait_ms
    harness = Harness(store=held_by(), dead=(holder_id("b", 9),))
    harness.tell(Started(WALL, lock_held=True))
    harness.answer()
    harness.tell(RunLock(False), at=100)
    harness.until(Start)
    assert 100 <= harness.now < 100 + 2 * LAN.heartbeat_ms


def test_L9_a_name_that_may_have_had_a_row_says_that_it_waits() -> None:
    for settled, told in ((False, [WAIT_MAX_MS]), (True, [])):
        harness = Harness(store=SimStore(settled=settled))
        harness.tell(Started(WALL))
        harness.until(Start)
        events = [effect.event for effect in harness.log if isinstance(effect, Record)]
        assert [event.value for event in events if event.code is Code.NEW_NAME] == told


# --- G8: what a release covers ----------------------------------------------------------------------------------------


def test_G8_a_release_of_work_that_ran_spares_the_fence_command() -> None:
    for successor, covered in (("", True), ("a", True), ("!", False), ("!a", False)):
        store = held_by()
        assert store.perform(ReleaseRow("job", holder_id("b", 9), WALL, 1, successor)).done
        harness = Harness(store=store)
        harness.tell(Started(WALL))
        assert harness.until(Start).covered is covered, successor
        assert harness.now == 0


def test_G8_a_start_without_a_release_is_never_covered() -> None:
    for options in ({}, {"dead": (holder_id("b", 9),)}):
        harness = Harness(store=held_by(), **options)
        harness.tell(Started(WALL))
        assert harness.until(Start).covered is False


def test_G8_a_leadership_that_never_worked_says_so_in_its_release() -> None:
    for works, said in ((True, ""), (False, "!")):
        harness = Harness(store=held_by())
        harness.tell(Started(WALL))
        token = harness.until(Start).leadership.token
        if works:
            harness.tell(WorkStarted(token))
        harness.tell(StepDown())
        harness.tell(WorkGone(token, False))
        while harness.asked:
            harness.answer()
        row = harness.store.rows["job"]
        assert (row.released, row.successor) == (True, said)
