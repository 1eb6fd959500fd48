"""The gate in front of the work, told by hand: approvals, the fence command, and what must not slip through (G8)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from primacy.election.inputs import WorkDeferred, WorkGone
from primacy.election.model import Leadership
from primacy.settings.timing import PROFILES
from primacy.supervise.gate import (
    AGAIN_MS,
    AGAIN_MS_MAX,
    Approved,
    Ask,
    Effect,
    Ended,
    FenceEnded,
    Gate,
    Given,
    KillFence,
    LetIn,
    Phase,
    Renewed,
    Rule,
    RunFence,
    Woke,
)
from primacy.supervise.vocabulary import Happened, Note, Tell

LAN = PROFILES["lan"]
MANUAL, FENCE, BOTH = Rule(True), Rule(False, True), Rule(True, True)
WAITS = Tell(WorkDeferred(1, "an approval: primacy approve a --term 1"))


def leadership(s_ms: int = 10_000, term: int = 1) -> Leadership:
    return Leadership("a", term, 1_000 + term, s_ms + LAN.hold_ms)


class Bench:
    """One gate, its notes kept apart from what it asks for."""

    def __init__(self, rule: Rule = Rule()) -> None:  # noqa: B008
        self.gate = Gate(LAN, rule, "a")
        self.now = 10_000
        self.notes: list[Note] = []

    def give(self, given: Given) -> list[Effect]:
        effects = self.gate.step(self.now, given)
        self.notes += [effect for effect in effects if isinstance(effect, Note)]
        return [effect for effect in effects if not isinstance(effect, Note)]

    def later(self, ms: int) -> None:
        """Time passes, and the hold is renewed as a leader's is."""
        self.now += ms
        assert self.give(Renewed(leadership(self.now, self.gate.term))) == []

    @property
    def said(self) -> list[Happened]:
        return [note.what for note in self.notes]


def test_without_a_rule_the_work_is_let_in_at_once_and_nobody_is_told_that_it_waits() -> None:
    b = Bench()
    assert b.give(Ask(leadership(), False)) == [LetIn(leadership())]
    assert (b.gate.waits, b.said) == (False, [])


def test_G8_an_approval_names_its_term_and_counts_for_it_alone() -> None:
    b = Bench(MANUAL)
    assert b.give(Approved(1, "early")) == []  # nobody has asked yet
    assert b.give(Ask(leadership(), False)) == [WAITS]
    b.later(3_600_000)
    for term in (0, 2):
        assert b.give(Approved(term, "mistaken")) == []
    assert b.give(Approved(1, "ann")) == [LetIn(leadership(b.now)), Tell(WorkDeferred(1))]
    assert b.notes[-1] == Note(Happened.APPROVED, number=1, detail="ann")
    assert b.give(Approved(1, "ann")) == []  # there is nothing more to let in
    assert b.give(Ask(leadership(b.now, 2), False))[0] == Tell(
        WorkDeferred(2, "an approval: primacy approve a --term 2")
    )
    assert b.give(Approved(1, "ann")) == []


def test_G8_what_was_waiting_is_over_when_the_election_says_so_and_nothing_starts_any_more() -> None:
    b = Bench(MANUAL)
    b.give(Ask(leadership(), False))
    assert b.give(Ended(2)) == []
    assert b.give(Ended(1)) == [Tell(WorkGone(1, released=False))]
    assert b.give(Approved(1, "late")) == []
    assert not b.gate.waits


def test_G8_an_approval_after_TERM_of_the_hold_starts_nothing() -> None:
    b = Bench(MANUAL)
    b.give(Ask(leadership(), True))
    b.now += LAN.term_at_ms
    assert b.give(Approved(1, "late")) == []
    assert b.gate.waits
    b.give(Renewed(leadership(b.now)))
    assert b.give(Approved(1, "again")) == []  # the term is about to be closed, whatever is renewed now (Q8)
    assert b.give(Ended(1)) == [Tell(WorkGone(1, released=False))]


def test_G8_the_fence_command_runs_before_the_start_and_must_end_well() -> None:
    b = Bench(FENCE)
    run, told = b.give(Ask(leadership(), False))
    assert told == Tell(WorkDeferred(1, "its fence command to succeed: run.fence_command"))
    assert run == RunFence(1, leadership())
    assert b.give(FenceEnded(7, 0)) == []  # of another time
    b.later(5_000)
    assert b.give(FenceEnded(1, 0)) == [LetIn(leadership(b.now)), Tell(WorkDeferred(1))]


def test_G8_a_release_that_covers_all_predecessors_makes_it_needless() -> None:
    b = Bench(FENCE)
    assert b.give(Ask(leadership(), True)) == [LetIn(leadership())]


def test_G8_first_the_approval_then_the_fence() -> None:
    b = Bench(BOTH)
    assert b.give(Ask(leadership(), False)) == [WAITS]
    assert isinstance(b.give(Approved(1, "ann"))[0], RunFence)
    assert isinstance(b.give(FenceEnded(1, 0))[0], LetIn)
    assert b.said == [Happened.AWAITS, Happened.APPROVED, Happened.FENCING, Happened.FENCED]


def test_G8_a_fence_command_that_fails_is_tried_again_ever_more_slowly_and_nothing_starts() -> None:
    b = Bench(FENCE)
    b.give(Ask(leadership(), False))
    waits = []
    for number in range(1, 9):
        (told,) = b.give(FenceEnded(number, 3))
        assert isinstance(told, Tell)
        assert f"it ended with code 3; the log says what it printed, try {number}" in str(told.given)
        assert b.gate.deadline_ms is not None
        waits.append(b.gate.deadline_ms - b.now)
        b.now = b.gate.deadline_ms - 1
        assert b.give(Woke()) == []
        b.later(1)
        assert isinstance(b.give(Woke())[0], RunFence)
    assert waits == [min(AGAIN_MS_MAX, AGAIN_MS << n) for n in range(8)]


def test_G8_a_fence_command_that_hangs_is_killed_and_counts_as_failed() -> None:
    b = Bench(FENCE)
    b.give(Ask(leadership(), False))
    b.later(FENCE.fence_ms)
    killed, told = b.give(Woke())
    assert killed == KillFence()
    assert "it did not end within 30,000 ms" in str(told)
    assert b.give(FenceEnded(1, 0)) == []  # what it would have said in the end is too late


def test_G8_a_lost_hold_kills_the_fence_command() -> None:
    b = Bench(FENCE)
    b.give(Ask(leadership(), False))
    assert b.give(Ended(1)) == [KillFence(), Tell(WorkGone(1, released=False))]
    assert b.give(FenceEnded(1, 0)) == []
    assert b.gate.deadline_ms is None


@pytest.mark.parametrize("rule", [MANUAL, FENCE, BOTH])
def test_Q8_the_election_may_answer_at_once_that_the_term_is_over_and_finds_what_it_must_end(rule: Rule) -> None:
    """The node stood still between two looks at the clock: the election finds its hold lost when it is told something.

    What it ends then must be there by then: nothing may be let in, and no fence command run, behind its back.
    """
    b = Bench(rule)
    moves: list[Given] = [Ask(leadership(), False)]
    moves += [Approved(1, "ann")] if rule.manual else []
    moves += [FenceEnded(1, 0)] if rule.fence else []
    for lost_at in range(len(moves)):
        b = Bench(rule)
        for move in moves[:lost_at]:
            b.give(move)
        over = False
        for effect in b.give(moves[lost_at]):
            assert not (over and isinstance(effect, LetIn | RunFence)), (lost_at, effect)
            if isinstance(effect, Tell):
                b.give(Ended(1))
                over = True
        assert over


@pytest.mark.parametrize("rule", [MANUAL, FENCE, BOTH])
@given(st.integers(0, 2**32))
@hypothesis_settings(max_examples=200, deadline=None)
def test_in_any_order_nothing_is_let_in_without_what_the_rule_asks_for(rule: Rule, seed: int) -> None:
    chance = Random(seed)
    b = Bench(rule)
    term = 0
    approved = fenced = covered = False
    for _ in range(80):
        b.now += chance.choice((0, 1, 100, 2_000, 40_000))
        if not b.gate.waits and chance.random() < 0.5:
            term += 1
            approved, fenced, covered = False, False, chance.random() < 0.3
            move: Given = Ask(leadership(b.now, term), covered)
        else:
            said, number = chance.choice((term, term - 1)), chance.choice((b.gate.number, b.gate.number - 1))
            code = chance.choice((0, 0, 1))
            renewed = leadership(b.now, term)
            move = chance.choice(
                [Approved(said, "x"), FenceEnded(number, code), Woke(), Ended(said), *[Renewed(renewed)] * 4]
            )
            approved |= b.gate.phase is Phase.APPROVAL and move == Approved(term, "x")
            fenced |= b.gate.phase is Phase.FENCING and move == FenceEnded(b.gate.number, 0)
        for effect in b.give(move):
            if isinstance(effect, LetIn):
                assert effect.leadership.term == term
                assert b.now < effect.leadership.valid_until_ms - LAN.hold_ms + LAN.term_at_ms
                assert approved or not rule.manual
                assert fenced or covered or not rule.fence
            if isinstance(effect, RunFence):
                assert approved or not rule.manual
