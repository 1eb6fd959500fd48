"""When our nodes do something about two real nodes of Ghoti that both lead, moment by moment: b and c, or others.

What is done then is tried in `test_manager_two_leaders.py`.
"""

from __future__ import annotations

from itertools import pairwise

from primacy.membership.ghoti.claims import (
    CALL_AGAIN_S,
    CALLS_FIRST,
    FORGET_S,
    RETURNS_MAX,
    Claims,
    Remedy,
)

GAP_S = CALL_AGAIN_S / 2


def found(claims: Claims, now_s: float) -> list[Remedy]:
    return [claims.both(now_s, "b", "c"), claims.both(now_s + 0.1, "b", "c")]


def test_what_is_seen_once_is_asked_again_first() -> None:
    claims = Claims()
    assert claims.both(0.0, "b", "c") is Remedy.SURE
    assert not claims.one(1.0, "b")
    assert found(claims, 2.0) == [Remedy.SURE, Remedy.CALL]
    assert claims.both(3.0, "b", "d") is Remedy.SURE, "another pair"
    claims.unknown()
    assert claims.both(100.0, "b", "d") is Remedy.SURE
    assert claims.both(101.0, "d", "b") is Remedy.CALL, "the same two, whichever of them is followed"


def test_calls_have_a_distance_and_after_two_of_them_the_others_are_made_known_once() -> None:
    claims, done = Claims(), []
    for number in range(20):
        remedy = claims.both(number * GAP_S, "b", "c")
        if remedy is not Remedy.NOTHING:
            done.append((number, remedy))
    wanted = [Remedy.SURE, *[Remedy.CALL] * CALLS_FIRST, Remedy.INTRODUCE]
    assert [remedy for _, remedy in done][: len(wanted)] == wanted
    assert {remedy for _, remedy in done[len(wanted) :]} == {Remedy.CALL}
    assert [number for number, _ in done] == [0, *range(1, 20, 2)]


def test_if_two_lead_again_and_again_calls_become_rare() -> None:
    """Announcements arrive, and the lower one does not reach the higher: it follows and leads again."""
    claims, now_s, called = Claims(), 0.0, []
    while len(called) < RETURNS_MAX + 4:
        if claims.both(now_s, "b", "c") is Remedy.CALL:
            called.append(now_s)
            assert claims.one(now_s + 1.0, "b")
            now_s += 3.0
        now_s += 0.5
    gaps = [late - soon for soon, late in pairwise(called)]
    assert gaps[0] >= 2 * CALL_AGAIN_S
    assert all(late > 1.8 * soon for soon, late in pairwise(gaps[:RETURNS_MAX]))
    assert max(gaps) < 2**RETURNS_MAX * CALL_AGAIN_S + 5
    assert "elections do not end it" not in claims.sentence


def test_after_a_long_time_with_one_leader_two_are_a_new_matter() -> None:
    claims = Claims()
    assert found(claims, 0.0) == [Remedy.SURE, Remedy.CALL]
    assert claims.one(1.0, "b")
    late_s = 2.0 + FORGET_S
    assert found(claims, late_s) == [Remedy.SURE, Remedy.CALL]
    assert claims.both(late_s + 1.2 * CALL_AGAIN_S, "b", "c") is Remedy.CALL, "the first distance again"


def test_the_sentence_comes_with_the_first_call_and_goes_when_one_is_left() -> None:
    claims = Claims()
    assert claims.both(0.0, "b", "c") is Remedy.SURE
    assert claims.sentence == ""
    assert claims.both(1.0, "b", "c") is Remedy.CALL
    assert claims.sentence == "nodes b and c of Ghoti both lead: node c is called to an election"
    for number in range(1, CALLS_FIRST + 3):
        claims.both(1.0 + number * 1.1 * CALL_AGAIN_S, "b", "c")
    assert "elections do not end it" in claims.sentence
    assert claims.one(1_000.0, "b")
    assert claims.sentence == ""


def test_who_is_asked_next_is_the_other_of_the_two() -> None:
    claims = Claims()
    assert claims.rival("c") == ""
    claims.both(0.0, "b", "c")
    assert (claims.rival("c"), claims.rival("b"), claims.rival("d")) == ("b", "c", "c")
    assert not claims.one(1.0, "d"), "one of the others"
    assert claims.rival("c") == "b"
    assert not claims.one(1.0, "b"), "nothing was done about it"
    assert claims.rival("c") == ""
