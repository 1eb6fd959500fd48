"""Waiting clients of the cache (1.3 of the document, weaknesses L2 and L7): each is answered exactly once."""

from __future__ import annotations

from random import Random

import pytest

from primacy.cache.effects import Effect, Give, KeepAlive, Refuse, SeeOther
from primacy.cache.model import Meta
from primacy.cache.waiting import SIGNS_MAX, WAIT_MAX_MS, Waiting

FRESH = Meta(term=1, expire_ms=5_000)


def busy(key: bytes) -> bool:
    return False


def idle(key: bytes) -> bool:
    return True


@pytest.fixture
def waiting() -> Waiting:
    return Waiting(1_000)


def test_1_3_a_sign_at_once_and_then_every_interval(waiting: Waiting) -> None:
    assert waiting.add(50, 1, b"k") == [KeepAlive(1)]
    assert waiting.deadline_ms == 1_050
    assert waiting.passed(1_049, busy) == []
    assert waiting.passed(1_050, busy) == [KeepAlive(1)]
    assert waiting.deadline_ms == 2_050
    assert waiting.passed(2_060, busy) == [KeepAlive(1)]
    assert waiting.deadline_ms == 3_060, "late by 10 ms: the next one is an interval later, not two at once"


def test_signs_that_are_due_together_leave_in_portions(waiting: Waiting) -> None:
    """Thousands at once would keep a peer from renewing its holds."""
    for request in range(500):
        waiting.add(0, request, b"k%d" % (request % 7))
    signs: list[Effect] = []
    looks = 0
    while waiting.deadline_ms is not None and waiting.deadline_ms <= 1_000:
        some = waiting.passed(1_000, busy)
        assert 0 < len(some) <= SIGNS_MAX
        signs += some
        looks += 1
    assert sorted(sign.request for sign in signs if isinstance(sign, KeepAlive)) == list(range(500))
    assert looks >= 500 / SIGNS_MAX
    assert waiting.deadline_ms == 2_000


def test_a_value_goes_to_so_many_at_once_as_is_said(waiting: Waiting) -> None:
    for request in range(10):
        waiting.add(0, request, b"k", 5_000 if request == 1 else 0)
    given = [waiting.give(b"k", FRESH, stale=False, most=4) for _ in range(4)]
    assert [[one.request for one in some if isinstance(one, Give)] for some in given] == [
        [0, 2, 3, 4],
        [5, 6, 7, 8],
        [9],
        [],
    ]


def test_1_3_of_an_idle_key_they_are_sent_elsewhere_and_forgotten(waiting: Waiting) -> None:
    waiting.add(0, 1, b"k")
    assert waiting.passed(1_000, idle) == [SeeOther(1)]
    assert len(waiting) == 0
    assert not waiting.waits(b"k")
    assert waiting.deadline_ms is None


def test_a_value_goes_to_those_it_is_late_enough_for(waiting: Waiting) -> None:
    waiting.add(0, 1, b"k")
    waiting.add(0, 2, b"k", 5_000)
    waiting.add(0, 3, b"k", 4_999)
    waiting.add(0, 4, b"other")
    assert waiting.give(b"k", FRESH, stale=False) == [Give(1, b"k", FRESH, False), Give(3, b"k", FRESH, False)]
    assert [waiter.request for waiter in waiting.of(b"k")] == [2], "its value must expire later than 5,000"
    assert waiting.give(b"k", FRESH, stale=False) == []
    later = Meta(term=1, expire_ms=5_001)
    assert waiting.give(b"k", later, stale=True, fits=lambda waiter: False) == []
    assert waiting.give(b"k", later, stale=True) == [Give(2, b"k", later, True)]
    assert waiting.keys() == (b"other",)


def test_refused_and_sent_elsewhere_once(waiting: Waiting) -> None:
    for request in range(4):
        waiting.add(0, request, b"even" if request % 2 == 0 else b"odd", offers=request == 3)
    assert waiting.offers(b"odd") == (3,)
    assert waiting.offers(b"even") == ()
    assert waiting.refuse(b"even", "the source failed") == [
        Refuse(0, "the source failed"),
        Refuse(2, "the source failed"),
    ]
    assert waiting.see_other(b"even") == []
    assert waiting.see_other_all() == [SeeOther(1), SeeOther(3)]
    assert waiting.see_other_all() == []
    assert len(waiting) == 0


def test_who_withdrew_hears_nothing_more(waiting: Waiting) -> None:
    waiting.add(0, 1, b"k")
    waiting.withdraw(1)
    waiting.withdraw(1)
    assert waiting.passed(1_000, busy) == []
    assert waiting.give(b"k", FRESH, stale=False) == []
    assert waiting.add(1_500, 1, b"k") == [KeepAlive(1)], (
        "the same number may come again, as after a value that is gone"
    )
    assert waiting.passed(2_000, busy) == [], "the old timer of this number is void"
    assert waiting.passed(2_500, busy) == [KeepAlive(1)]


def test_own_time_over_nobody_waits(waiting: Waiting) -> None:
    waiting.add(0, 1, b"k", until_ms=1_300)
    waiting.add(0, 2, b"k", until_ms=400)
    assert waiting.add(0, 3, b"k", until_ms=0) == [SeeOther(3)]
    assert waiting.deadline_ms == 400
    assert waiting.passed(400, busy) == [SeeOther(2)]
    assert waiting.passed(1_000, busy) == [KeepAlive(1)]
    assert waiting.passed(1_300, busy) == [SeeOther(1)]
    assert waiting.given_up == 3


def test_W_L7_who_can_no_longer_be_waiting_is_dropped(waiting: Waiting) -> None:
    """A frozen process wakes 3 s late: every client has gone to another peer, and asked there."""
    waiting.add(0, 1, b"k")
    waiting.add(1_500, 2, b"k")
    assert waiting.passed(3_000, busy) == [SeeOther(1), KeepAlive(2)]
    assert waiting.given_up == 1


def test_W_L7_a_request_without_a_time_does_not_wait_for_ever(waiting: Waiting) -> None:
    waiting.add(0, 1, b"k")
    signs = [effect for now_ms in range(1_000, WAIT_MAX_MS + 2_000, 1_000) for effect in waiting.passed(now_ms, busy)]
    assert signs == [KeepAlive(1)] * (WAIT_MAX_MS // 1_000 - 1) + [SeeOther(1)]


def test_W_L7_bounds_per_key_and_in_all() -> None:
    waiting = Waiting(1_000, per_key_max=2, requests_max=3)
    assert waiting.add(0, 1, b"k") + waiting.add(0, 2, b"k") == [KeepAlive(1), KeepAlive(2)]
    assert waiting.add(0, 3, b"k") == [SeeOther(3)]
    assert 3 not in waiting
    assert waiting.add(0, 4, b"l") == [KeepAlive(4)]
    assert 4 in waiting
    assert waiting.add(0, 5, b"m") == [SeeOther(5)]
    assert not waiting.waits(b"m")
    waiting.withdraw(1)
    assert waiting.add(0, 6, b"k") == [KeepAlive(6)]
    assert waiting.turned_away == 2


def test_a_client_must_hear_a_sign_before_it_gives_up() -> None:
    with pytest.raises(AssertionError, match="sign"):
        Waiting(2_100)


@pytest.mark.parametrize("seed", range(20))
def test_each_leaves_exactly_once_and_hears_in_time(seed: int) -> None:
    """By chance: whatever is done, each request ends once, hears a sign each second until then, and nothing grows."""
    chance = Random(seed)
    waiting = Waiting(1_000, wait_max_ms=9_000, per_key_max=20, requests_max=60)
    ended: dict[int, int] = {}
    heard: dict[int, int] = {}
    added = 0
    now_ms = 0

    def note(effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case KeepAlive(request):
                    assert now_ms - heard.get(request, now_ms) <= 1_000
                    assert request not in ended
                    heard[request] = now_ms
                case Give(request) | SeeOther(request) | Refuse(request):
                    ended[request] = ended.get(request, 0) + 1
                case _:
                    raise AssertionError(effect)

    for _ in range(2_000):
        key = b"%d" % chance.randrange(5)
        match chance.randrange(12):
            case 0:
                note(waiting.give(key, Meta(expire_ms=chance.randrange(4)), stale=False))
            case 1:
                note(chance.choice((waiting.see_other, lambda k: waiting.refuse(k, "no")))(key))
            case 2 if waiting.of(key):
                gone = chance.choice(waiting.of(key)).request
                waiting.withdraw(gone)
                ended[gone] = ended.get(gone, 0) + 1
            case 3 | 4 | 5:
                until_ms = chance.choice((None, now_ms + chance.randrange(5_000)))
                note(waiting.add(now_ms, added, key, chance.randrange(4), until_ms=until_ms))
                added += 1
            case _:
                due_ms = waiting.deadline_ms
                step_ms = chance.randrange(300)
                now_ms = min(now_ms + step_ms, due_ms) if due_ms is not None else now_ms + step_ms
                note(waiting.passed(now_ms, lambda k: k == b"4"))
        assert len(waiting._due) <= 2 * len(waiting) + 65
        assert len(waiting) <= 60
    note(waiting.see_other_all())
    assert ended == dict.fromkeys(range(added), 1)
    assert len(waiting) == 0
    assert waiting.keys() == ()


def test_W_L7_timers_of_requests_that_left_do_not_pile_up(waiting: Waiting) -> None:
    waiting.add(0, 0, b"k")
    for request in range(1, 5_000):
        waiting.add(0, request, b"k")
        waiting.withdraw(request)
    assert len(waiting._due) <= 70
    assert waiting.passed(1_000, busy) == [KeepAlive(0)]


def test_W_L2_requests_are_not_sent_away_without_end(waiting: Waiting) -> None:
    """The original's client asks again at once. What is sent away at once is bounded per key and second."""
    assert [waiting.at_once(500, b"k") for _ in range(25)] == [True] * 20 + [False] * 5
    assert waiting.at_once(500, b"other")
    assert not waiting.at_once(999, b"k")
    assert waiting.at_once(1_500, b"k")
