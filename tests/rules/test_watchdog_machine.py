"""The watchdog's machine: when the work is started, started again, stopped and given up."""

from __future__ import annotations

import ast
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from primacy.election.inputs import GuardLost, RunLock, WorkGone, WorkStarted
from primacy.election.model import Leadership
from primacy.settings.timing import PROFILES
from primacy.supervise import machine, vocabulary
from primacy.supervise.machine import (
    BACK_OFF_MS_MAX,
    STEADY_MS,
    STUCK_MS,
    Phase,
    Policy,
    Restart,
    Watchdog,
    back_off_ms,
)
from primacy.supervise.vocabulary import (
    Begin,
    Dismiss,
    Effect,
    End,
    Exited,
    Given,
    GiveUp,
    Gone,
    GuardEnded,
    Happened,
    Hurry,
    LetGo,
    Locked,
    LockFree,
    Note,
    NotStarted,
    OrderExtend,
    OrderLetGo,
    OrderStart,
    OrderStop,
    Ran,
    Renew,
    State,
    Tell,
    WatchLock,
    Woke,
)

LAN = PROFILES["lan"]
T0 = 10_000


def leadership(s_ms: int = T0, term: int = 1) -> Leadership:
    return Leadership("a", term, 1_000 + term, s_ms + LAN.hold_ms)


def test_the_short_way_of_a_renewal_is_that_of_a_running_command_only() -> None:
    for before in ([], [Begin(leadership())], [Begin(leadership()), Ran(1, 4711)]):
        for more in ([], [Exited(1, 0)], [End(1, planned=True)], [GuardEnded()]):
            for renewal in (leadership(T0 + 250), leadership(T0), leadership(T0 + 250, term=2)):
                one, other = Bench(), Bench()
                for given_ in (*before, *more):
                    one.give(given_)
                    other.give(given_)
                running = one.m.phase is Phase.RUNNING and renewal == leadership(T0 + 250)
                effects = other.give(Renew(renewal))
                assert one.m.renewed(renewal) is running
                if running:
                    assert effects == [OrderExtend(renewal)]
                    assert vars(one.m) == vars(other.m)
                else:
                    assert one.give(Renew(renewal)) == effects, "nothing was changed before"


class Bench:
    """One machine, told inputs by hand. Its notes are kept apart from what it asks for."""

    def __init__(self, restart: Restart = Restart.ALWAYS, stop_ms: int = 3_000, failures_max: int = 20) -> None:
        self.m = Watchdog(LAN, Policy(restart, stop_ms, failures_max))
        self.now = T0
        self.notes: list[Note] = []

    def give(self, given: Given, at: int | None = None) -> list[Effect]:
        self.now = max(self.now, at if at is not None else self.now)
        effects = self.m.step(self.now, given)
        self.notes += [effect for effect in effects if isinstance(effect, Note)]
        return [effect for effect in effects if not isinstance(effect, Note)]

    def wake(self) -> list[Effect]:
        assert self.m.deadline_ms is not None
        return self.give(Woke(), self.m.deadline_ms)

    def renew(self) -> None:
        self.give(Renew(leadership(self.now, self.m.term)))

    def runs(self, term: int = 1) -> None:
        assert self.give(Begin(leadership(self.now, term))) == [OrderStart(1, leadership(self.now, term))]
        assert self.give(Ran(1, 4711)) == [Tell(WorkStarted(term))]

    def ends(self, code: int, run: int = 1, lasted_ms: int = 0) -> list[Effect]:
        """The command ends by itself, after so long; the hold is renewed meanwhile."""
        self.now += lasted_ms
        self.renew()
        assert self.give(Exited(run, code)) == []
        return self.give(Gone(run, False))

    @property
    def said(self) -> list[Happened]:
        return [note.what for note in self.notes]


# --- starting again ---------------------------------------------------------------------------------------------------


def test_a_crash_is_followed_by_the_next_run_of_the_same_leadership() -> None:
    b = Bench()
    b.runs()
    assert b.ends(1) == []
    assert b.m.state is State.WAITING
    assert b.m.deadline_ms == b.now + 100
    assert b.wake() == [OrderStart(2, b.m.leadership)]  # type: ignore[arg-type]
    assert b.give(Ran(2, 4712)) == []  # the election knows that the work of this term runs
    assert (b.m.state, b.m.run, b.m.pid) == (State.RUNNING, 2, 4712)


def test_after_a_steady_run_it_is_started_at_once() -> None:
    b = Bench()
    b.runs()
    b.ends(1, lasted_ms=STEADY_MS)
    assert b.m.deadline_ms == b.now


def test_the_back_off_doubles_up_to_its_bound() -> None:
    waits = [back_off_ms(n) for n in range(12)]
    assert waits[:4] == [0, 100, 200, 400]
    assert waits[-1] == back_off_ms(10**6) == BACK_OFF_MS_MAX
    assert waits == sorted(waits)


@pytest.mark.parametrize(
    ("restart", "code", "again"),
    [
        (Restart.ALWAYS, 0, True),
        (Restart.ALWAYS, 1, True),
        (Restart.ON_FAILURE, 0, False),
        (Restart.ON_FAILURE, 137, True),
        (Restart.NEVER, 0, False),
        (Restart.NEVER, 7, False),
    ],
)
def test_the_policy_decides_whether_it_is_started_again(restart: Restart, code: int, again: bool) -> None:
    b = Bench(restart)
    b.runs()
    assert b.ends(code) == ([] if again else [GiveUp(code)])
    assert (b.m.deadline_ms is not None) is again


def test_after_too_many_quick_failures_it_gives_up_with_the_last_code() -> None:
    b = Bench(failures_max=3)
    b.runs()
    for run in (1, 2, 3):
        assert b.ends(run, run) == []
        b.renew()
        b.wake()
        b.give(Ran(run + 1, 1))
    assert b.ends(9, 4) == [GiveUp(9)]
    assert b.said[-1] is Happened.GAVE_UP


def test_a_steady_run_in_between_begins_the_count_anew() -> None:
    b = Bench(failures_max=2)
    b.runs()
    for run in range(1, 9):
        assert b.ends(1, run, lasted_ms=STEADY_MS if run % 2 else 0) == []
        b.wake()
        b.give(Ran(run + 1, 1))


def test_without_a_limit_it_never_gives_up() -> None:
    b = Bench(failures_max=0)
    b.runs()
    for run in range(1, 100):
        assert b.ends(1, run) == []
        assert b.m.deadline_ms is not None
        b.now = b.m.deadline_ms
        b.renew()
        b.wake()
        b.give(Ran(run + 1, 1))


def test_a_command_that_cannot_be_started_is_a_quick_failure() -> None:
    b = Bench()
    b.give(Begin(leadership()))
    assert b.give(NotStarted(1, "cannot execute x: Permission denied")) == []
    assert b.said == [Happened.NOT_STARTED, Happened.RESTARTS]
    never = Bench(Restart.NEVER)
    never.give(Begin(leadership()))
    assert never.give(NotStarted(1, "no", 127)) == [GiveUp(127)]


@pytest.mark.parametrize("failed", [1, 2, 3])
def test_Q6_the_election_hears_of_the_first_start_that_works(failed: int) -> None:
    """A command that could not be started at first, for its file was being replaced. A leader that never hears of a
    start resigns after H, with the command running."""
    b = Bench()
    b.give(Begin(leadership()))
    for run in range(1, failed + 1):
        assert b.give(NotStarted(run, "cannot execute x: Text file busy")) == []
        assert b.m.deadline_ms is not None
        b.now = b.m.deadline_ms
        b.renew()
        b.wake()
    assert b.give(Ran(failed + 1, 4711)) == [Tell(WorkStarted(1))]
    b.ends(1, failed + 1)
    assert b.m.deadline_ms is not None
    b.now = b.m.deadline_ms
    b.renew()
    b.wake()
    assert b.give(Ran(failed + 2, 4712)) == [], "once in a term"


def test_nothing_is_started_once_the_hold_reached_term() -> None:
    """The guard ended the command on its own account; whatever the policy says, the term is closed (Q8)."""
    b = Bench()
    b.runs()
    b.now = T0 + LAN.term_at_ms
    b.give(Exited(1, 143))
    assert b.give(Gone(1, False)) == []
    assert b.m.deadline_ms is None
    rests = Bench()
    rests.runs()
    rests.ends(1)
    assert rests.give(Woke(), T0 + LAN.term_at_ms) == []


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_a_planned_stop_has_its_own_time_and_is_released_when_all_is_gone() -> None:
    b = Bench(stop_ms=60_000)
    b.runs()
    assert b.give(End(1, planned=True)) == [OrderStop(T0 + 60_000)]
    assert b.give(LetGo(1, "b")) == [OrderLetGo("b")]
    assert b.m.state is State.STOPPING
    b.now += 500
    assert b.give(Renew(leadership(b.now))) == [OrderExtend(leadership(b.now))]  # the leadership is kept meanwhile
    assert b.give(Exited(1, 0)) == []
    assert b.give(Gone(1, True)) == [Dismiss()]
    assert b.m.state is State.STOPPING  # the guard still has the lock
    assert b.give(GuardEnded()) == [Tell(WorkGone(1, True))]
    assert b.m.state is State.STOPPED


def test_after_a_loss_it_has_what_the_hold_leaves() -> None:
    b = Bench(stop_ms=60_000)
    b.runs()
    assert b.give(End(1, planned=False), T0 + 1_200) == [OrderStop(T0 + LAN.kill_at_ms)]


def test_a_loss_during_a_planned_stop_shortens_it_and_never_the_other_way() -> None:
    b = Bench(stop_ms=60_000)
    b.runs()
    b.give(End(1, planned=True))
    assert b.give(End(1, planned=False)) == [OrderStop(T0 + LAN.kill_at_ms)]
    assert b.give(End(1, planned=True)) == []


def test_impatience_kills() -> None:
    b = Bench(stop_ms=60_000)
    b.runs()
    assert b.give(Hurry()) == []
    b.give(End(1, planned=True))
    assert b.give(Hurry(), T0 + 100) == [OrderStop(T0 + 100)]
    assert b.give(Hurry()) == []


def test_a_tree_that_does_not_die_is_said_to_be_stuck() -> None:
    b = Bench(stop_ms=1_000)
    b.runs()
    b.give(End(1, planned=True))
    assert b.m.deadline_ms == T0 + 1_000 + STUCK_MS
    assert b.wake() == []
    assert (b.m.state, b.said[-1]) == (State.STUCK, Happened.STUCK)
    b.give(Gone(1, False))
    assert b.m.state is State.STOPPING


def test_a_stop_between_two_runs_waits_for_the_guard_only() -> None:
    b = Bench()
    b.runs()
    b.ends(1)
    assert b.give(End(1, planned=True)) == []
    assert b.give(LetGo(1)) == [OrderLetGo("")]
    assert b.wake() == [Dismiss()]
    assert b.give(GuardEnded()) == [Tell(WorkGone(1, True))]


def test_a_stop_before_it_runs() -> None:
    b = Bench()
    b.give(Begin(leadership()))
    assert b.give(End(1, planned=False)) == [OrderStop(T0 + LAN.kill_at_ms)]
    assert b.give(NotStarted(1, "it was ended before it was executed")) == [Dismiss()]
    assert b.give(GuardEnded()) == [Tell(WorkGone(1, False))]


def test_what_is_said_of_another_term_or_run_changes_nothing() -> None:
    b = Bench()
    b.runs(term=4)
    for other in (End(3, True), LetGo(3), Ran(7, 1), Exited(7, 1), Gone(7, True), NotStarted(7, ""), LockFree()):
        assert [e for e in b.give(other) if not isinstance(e, Tell)] == []
        assert b.m.state is State.RUNNING
    assert b.give(Renew(leadership(T0 + 9_999, term=3))) == []
    assert b.give(Renew(leadership(T0 - 1, term=4))) == []


# --- guard and lock ---------------------------------------------------------------------------------------------------


def test_a_lost_guard_closes_the_term_and_the_lock_decides() -> None:
    b = Bench()
    b.runs()
    assert b.give(GuardEnded()) == [Tell(GuardLost(1)), WatchLock()]
    assert b.m.state is State.STOPPING
    assert b.give(LockFree()) == [Tell(RunLock(False))]
    assert b.m.state is State.STOPPED
    b.runs(term=2)


def test_a_guard_lost_after_the_command_was_done_starts_nothing_again() -> None:
    b = Bench(Restart.NEVER)
    b.runs()
    b.give(Exited(1, 7))
    assert b.give(GuardEnded()) == [GiveUp(7), Tell(GuardLost(1)), WatchLock()]


def test_a_held_lock_is_waited_for_and_that_run_never_was() -> None:
    b = Bench()
    b.give(Begin(leadership()))
    assert b.give(Locked(99)) == [Tell(RunLock(True)), WatchLock()]
    assert b.m.state is State.WAITING
    assert b.give(LockFree()) == [Tell(RunLock(False))]
    assert b.wake() == [OrderStart(1, leadership())]
    assert b.give(Ran(1, 5)) == [Tell(WorkStarted(1))]


def test_a_held_lock_and_a_leader_that_resigns() -> None:
    b = Bench()
    b.give(Begin(leadership()))
    b.give(Locked(99))
    b.give(End(1, planned=False))
    assert b.wake() == [Dismiss()]
    assert b.give(GuardEnded()) == [Tell(WorkGone(1, False))]
    assert b.give(LockFree()) == [Tell(RunLock(False))]


# --- always -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.sampled_from(list(Restart)))
@hypothesis_settings(max_examples=300, deadline=None)
def test_in_any_order_of_events_no_run_overlaps_another(seed: int, restart: Restart) -> None:
    """A world of chance around the machine: it never orders a start while the last one may live, and numbers grow."""
    chance = Random(seed)
    b = Bench(restart, stop_ms=chance.choice((0, 500, 60_000)))
    term, alive, guard, last = 0, False, False, (0, 0)
    for _ in range(120):
        b.now += chance.choice((0, 1, 50, 700))
        moves: list[Given] = [Woke(), Hurry(), LockFree()] if not alive else [Woke(), Hurry()]
        if b.m.phase is Phase.IDLE:
            term += 1
            moves = [Begin(leadership(b.now, term))]
        else:
            moves += [Renew(leadership(b.now, term)), End(term, chance.random() < 0.5), LetGo(term)]
            run = b.m.run
            if b.m.phase is Phase.STARTING or (b.m.phase is Phase.ENDING and alive):
                moves += [Ran(run, 1)] if alive else [Locked(1)]
            if alive:
                moves += [Exited(run, chance.choice((0, 1))), Gone(run, False)]
        given = chance.choice(moves)
        if isinstance(given, Gone):
            alive = False
        if chance.random() < 0.03 and guard:
            alive, given = False, GuardEnded()
        for effect in b.give(given):
            if isinstance(effect, OrderStart):
                assert not alive, "a start beside a living run"
                number = (effect.leadership.token, effect.run)
                assert number > last, "numbers only grow"
                assert b.now < effect.leadership.valid_until_ms - LAN.hold_ms + LAN.term_at_ms
                alive, guard, last = chance.random() < 0.9, True, number  # else the lock was held
            if isinstance(effect, Tell) and isinstance(effect.given, WorkGone):
                assert not alive, "said to be gone while it lives"
            if isinstance(effect, Dismiss):
                assert not alive, "a guard sent away with its work"
                guard = False
                b.give(GuardEnded())
        if isinstance(given, Locked) and b.m.phase in (Phase.LOCKED, Phase.CLOSING, Phase.IDLE):
            last = (last[0], last[1] - 1)


def test_the_machine_imports_nothing_that_touches_the_world() -> None:
    never = {"asyncio", "datetime", "logging", "os", "pathlib", "select", "signal", "socket", "subprocess", "time"}
    text = "".join(Path(part.__file__).read_text() for part in (machine, vocabulary))
    for node in ast.walk(ast.parse(text.replace("from __future__ import annotations", ""))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not never & {name.partition(".")[0] for name in names}
