"""Each checker of the cache's simulator is shown a history that it must refuse, and one like it that it must not."""

from __future__ import annotations

import pytest

from primacy.cache.model import Ballot, Floor, Meta, order
from primacy.sim.cache import facts as f
from primacy.sim.cache.checkers import KeepingChecker, RequestChecker, SourcingChecker, ValueChecker
from primacy.sim.cache.progress import HEALED_MS, ProgressChecker

K = b"k"
A, B, C = "tcp://a:1", "tcp://b:1", "tcp://c:1"
WALL = 1_700_000_000_000


def ballot(term, peer=A, boot=1):
    return Ballot(term, peer, boot)


def meta(term, expire_ms=WALL + 500, peer=A):
    return Meta(term, expire_ms, ballot(term, peer), 1, 0)


def began(at_ms, term, number, peer=A, wall_ms=WALL, ttl_ms=500):
    return f.CallBegan(at_ms, peer, K, ballot(term, peer), number, wall_ms, ttl_ms)


def stored(at_ms, term, number, peer=B, source=A, late_ms=0, expire_ms=WALL + 500):
    return f.ValueStored(at_ms, peer, K, meta(term, expire_ms, source), number, WALL, late_ms)


def given(at_ms, term, number, *, peer=B, fresh=True, wanted=False, after_ms=0, wall_ms=WALL + 100, request=1):
    return f.Given(at_ms, peer, request, K, meta(term), number, fresh, wanted, after_ms, wall_ms)


def acked(at_ms, term, peer, source=A):
    return f.Acked(at_ms, peer, K, ballot(term, source), 600.0)


def helped(term, *peers):
    """A call that these peers acked, and that is over."""
    return [*(acked(-1, term, peer) for peer in peers or (B,)), began(0, term, 1), f.CallOver(1, 1, True)]


def broken(checker, history, end_ms=None):
    """The rules that a checker finds broken in a history."""
    found = []
    one = checker(found.append)
    for fact in history:
        one(fact)
    if end_ms is not None:
        one.finish(end_ms)
    return [violation.rule for violation in found]


def keeping(report):
    return KeepingChecker(report, None)


FIRST = began(0, 5, 1)
WON = [FIRST, f.CallOver(10, 1, True), stored(11, 5, 1)]
OLD = f.Ordered(20, A, 7, "invalidate", K, False, 900)
DONE = f.Word(30, A, 7, "Finished", True)
CALM = f.Calm(0, (A, B))
LATER = HEALED_MS + 10


SOURCING = {
    "two calls at once": ([FIRST, began(5, 6, 2, B)], ["S1"]),
    "one after the other": ([FIRST, f.CallOver(4, 1, True), began(5, 6, 2, B)], []),
    "another while the first is frozen": ([FIRST, f.CallCounts(4, 1, False), began(5, 6, 2, B)], []),
    "the frozen one wakes up in time": (
        [FIRST, f.CallCounts(4, 1, False), began(5, 6, 2, B), f.CallCounts(6, 1, True)],
        ["S1"],
    ),
    "a call outlives its hold": ([FIRST, f.CallOver(700, 1, False)], ["C4"]),
    "twice under one ballot": ([FIRST, f.CallOver(1, 1, True), began(2, 5, 2)], ["C4", "S4"]),
    "a later call under a lower term": ([FIRST, f.CallOver(1, 1, True), began(2, 4, 2, B)], ["S4"]),
    "a later call under a lower term, after a start that forgot a term it could know by its clock": (
        [*helped(WALL), f.Up(3, B, 2, (), True, WALL), began(4, 4, 2, B)],
        ["S4"],
    ),
    "a later call under a lower term, after a start that forgot a term beyond its clock": (
        [*helped(WALL + 1), f.Up(3, B, 2, (), True, WALL), began(4, 4, 2, B)],
        [],
    ),
    "a later call under a lower term, after a start with the old ceiling of a full disk": (
        [*helped(WALL + 9), f.Up(3, B, 2, (), True, WALL, WALL + 8), began(4, 4, 2, B)],
        [],
    ),
    "a later call under a lower term than the ceiling": (
        [*helped(WALL + 9), f.Up(3, B, 2, (), True, WALL, WALL + 9), began(4, 4, 2, B)],
        ["S4"],
    ),
    "a later call under a lower term than what the disk kept of the key": (
        [*helped(WALL + 9), f.Up(3, B, 2, ((K, meta(WALL + 9)),), True, WALL, WALL + 8), began(4, 4, 2, B)],
        ["S4"],
    ),
    "a later call under a lower term, after somebody forgot who had helped neither": (
        [*helped(WALL + 1), f.Up(3, C, 2, (), True, WALL), began(4, 4, 2, B)],
        ["S4"],
    ),
    "a later call under a lower term, after somebody forgot who had helped the earlier one only": (
        [*helped(WALL + 1, B, C), f.Up(3, C, 2, (), True, WALL), began(4, 4, 2, B)],
        ["S4"],
    ),
    "a later call under a lower term, helped by one who forgot and by one who did not": (
        [*helped(WALL + 1, B, C), f.Up(3, B, 2, (), True, WALL), acked(3.5, 4, C, B), began(4, 4, 2, B)],
        ["S4"],
    ),
    "a later call under a lower term, helped by two who forgot": (
        [
            *helped(WALL + 1, B, C),
            f.Up(3, B, 2, (), True, WALL),
            f.Up(3, C, 2, (), True, WALL),
            acked(3.5, 4, C, B),
            began(4, 4, 2, B),
        ],
        [],
    ),
    "a later call under a lower term, by one who forgot and was told again": (
        [*helped(WALL + 1), f.Up(3, B, 2, (), True, WALL), acked(3.5, WALL + 1, B), began(4, 4, 2, B)],
        ["S4"],
    ),
    "a later call under a lower term, by one who forgot before it helped the earlier one": (
        [f.Up(-2, B, 2, (), True, WALL), *helped(WALL + 1), began(4, 4, 2, B)],
        ["S4"],
    ),
    "prolonged after its cancel": ([FIRST, f.LateExtend(500, A, K)], ["C4"]),
}


@pytest.mark.parametrize("name", SOURCING)
def test_sourcing(name: str) -> None:
    history, rules = SOURCING[name]
    assert broken(SourcingChecker, history) == rules


def test_in_one_term_the_rank_decides_which_call_is_later() -> None:
    low, high = sorted((A, B), key=lambda peer: order(K, ballot(5, peer)))
    assert broken(SourcingChecker, [began(0, 5, 1, low), f.CallOver(1, 1, True), began(2, 5, 2, high)]) == []
    assert broken(SourcingChecker, [began(0, 5, 1, high), f.CallOver(1, 1, True), began(2, 5, 2, low)]) == ["S4"]


VALUES = {
    "kept and given": ([*WON, given(12, 5, 1)], []),
    "an older value replaces a newer one": ([*WON, began(12, 6, 2), stored(13, 6, 2), stored(14, 5, 1)], ["S2", "S4"]),
    "the same after a restart that kept the newer one": (
        [*WON, began(12, 6, 2), f.Up(13, B, 2, ((K, meta(6)),)), stored(14, 5, 1)],
        ["S2", "S4"],
    ),
    "the same after a restart that kept nothing": (
        [*WON, began(12, 6, 2), stored(13, 6, 2), f.Up(13, B, 2), stored(14, 5, 1)],
        [],
    ),
    "a late value while a newer ballot is followed": (
        [FIRST, f.Acked(1, B, K, ballot(6), 600), stored(2, 5, 1)],
        ["S2"],
    ),
    "the newer ballot has ended": (
        [FIRST, f.Acked(1, B, K, ballot(6), 600), f.Ended(2, A, K, ballot(6)), stored(3, 5, 1)],
        [],
    ),
    "the promise is over": ([FIRST, f.Acked(1, B, K, ballot(6), 600), stored(700, 5, 1)], []),
    "the deliverer's term as epoch": ([FIRST, stored(2, 6, 1)], ["C8"]),
    "a value from nowhere": ([stored(2, 6, 1)], ["C8"]),
    "two values of one epoch": ([FIRST, began(1, 5, 2), stored(2, 5, 1), stored(3, 5, 2)], ["C8"]),
    "kept longer than its source said": ([FIRST, stored(2, 5, 1, expire_ms=WALL + 501)], ["C8"]),
    "used after the hold": ([FIRST, stored(800, 5, 1, A, late_ms=3)], ["C4"]),
    "a term falls": (
        [*WON, f.MetaStored(12, B, K, meta(5)._replace(term=9)), f.MetaStored(13, B, K, meta(5)._replace(term=8))],
        ["S4"],
    ),
    "given while a newer one is held": ([*WON, began(12, 6, 2), stored(13, 6, 2), given(14, 5, 1)], ["S4"]),
    "expired and called fresh": ([*WON, given(600, 5, 1, wall_ms=WALL + 500)], ["S3"]),
    "expired and called stale": ([*WON, given(600, 5, 1, wall_ms=WALL + 500, fresh=False)], []),
    "expired when a fresh one was asked for": (
        [*WON, given(600, 5, 1, wall_ms=WALL + 600, after_ms=WALL + 550, fresh=False)],
        ["S3"],
    ),
    "invalidated": ([*WON, OLD, DONE, given(31, 5, 1)], ["S3"]),
    "invalidated, and told as stale": ([*WON, OLD, DONE, given(31, 5, 1, fresh=False)], []),
    "invalidated, and a fresh one was asked for": (
        [*WON, OLD, DONE, given(31, 5, 1, fresh=False, wanted=True, after_ms=WALL)],
        ["S3"],
    ),
    "not yet done": ([*WON, OLD, given(29, 5, 1)], []),
    "by its prefix": ([*WON, OLD._replace(key=b"", prefix=True), DONE, given(31, 5, 1)], ["S3"]),
    "of another key": ([*WON, OLD._replace(key=b"kk"), DONE, given(31, 5, 1)], []),
    "it failed": ([*WON, OLD, DONE._replace(ok=False), given(31, 5, 1)], []),
    "fetched after it was asked for": (
        [*WON, OLD, began(25, 6, 2), stored(26, 6, 2), DONE, given(31, 6, 2)],
        [],
    ),
    "a put is kept from when its peer takes it": (
        [f.PutBrought(0, A, K, 1, 500), stored(1, 5, 1, A), stored(1, 5, 1, B)],
        [],
    ),
    "a put is kept too long": ([f.PutBrought(0, A, K, 1, 500), stored(1, 5, 1, A, expire_ms=WALL + 501)], ["C8"]),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    history, rules = VALUES[name]
    assert broken(ValueChecker, history) == rules


DROPPED = f.ValueDropped(1, A, K, meta(5), WALL, ())
KEEPING = {
    "a value is dropped for nothing": ([DROPPED], ["K"]),
    "a floor covers it": ([DROPPED._replace(floors=(Floor(b"", True, 5),))], []),
    "a floor below it": ([DROPPED._replace(floors=(Floor(K, False, 4),))], ["K"]),
    "a miss beside a stored value": ([f.Missed(1, A, K, meta(5))], ["K"]),
    "a yes above the ceiling": ([f.BadOrder(1, A, "a yes left before the ceiling was kept")], ["C2"]),
    "a floor that is not kept": ([f.BadOrder(1, A, "a floor was acked before it was kept")], ["C11"]),
    "an echo": ([f.Echoed(1, A, "Question", 2)], ["E1"]),
}


@pytest.mark.parametrize("name", KEEPING)
def test_keeping(name: str) -> None:
    history, rules = KEEPING[name]
    assert broken(keeping, history) == rules


ASKED = f.Asked(0, A, 1, K, 5_000)
ALIVE = f.Word(1, A, 1, "KeepAlive")
REQUESTS = {
    "answered": ([ASKED, f.Word(1, A, 1, "SeeOther")], []),
    "answered twice": ([ASKED, f.Word(1, A, 1, "SeeOther"), given(2, 5, 1, peer=A)], ["R"]),
    "answered after it was withdrawn": ([ASKED, ALIVE, f.Withdrew(2, A, 1), f.Word(3, A, 1, "Refuse")], ["R"]),
    "kept alive after its answer": ([ASKED, f.Word(1, A, 1, "SeeOther"), ALIVE], ["R"]),
    "no word": ([ASKED, f.Withdrew(500, A, 1)], ["R"]),
    "no second word": ([ASKED, ALIVE, f.Withdrew(2_001, A, 1)], ["R"]),
    "words all the time": ([ASKED, ALIVE, ALIVE._replace(at_ms=1_001.0), f.Withdrew(2_001, A, 1)], []),
    "no word, for the process was frozen": (
        [ASKED, f.Frozen(10, A, True), f.Frozen(900, A, False), f.Word(901, A, 1, "SeeOther")],
        [],
    ),
    "no word, for the process was killed": ([ASKED, f.Down(10, A, 1)], []),
    "kept alive long after its end": (
        [ASKED, *(ALIVE._replace(at_ms=float(at)) for at in range(400, 7_601, 800))],
        ["R"],
    ),
    "an order without an end": ([OLD], ["R"]),
    "an order with one": ([OLD, DONE], []),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(name: str) -> None:
    history, rules = REQUESTS[name]
    assert broken(RequestChecker, history, end_ms=2_500.0 if "order" in name else 9_000.0) == rules


def asked(wait_ms, outcome="given", at_ms=LATER):
    return f.ClientDone(at_ms + wait_ms, K, at_ms, at_ms + 7_000, 1, outcome)


def floored(at_ms, term, key=K):
    return f.Floored(at_ms, B, Floor(key, False, term))


PROGRESS = {
    "quick": ([CALM, asked(300)], []),
    "slow in settled calm": ([CALM, asked(1_600)], ["P1"]),
    "slow right after healing": ([CALM, asked(1_600, at_ms=1.0)], []),
    "stuck": ([CALM, asked(7_000, "deadline")], ["P1"]),
    "refused": ([CALM, asked(10, "refused")], ["P1"]),
    "before the calm": ([asked(7_000, "deadline"), CALM], []),
    "past its deadline": ([asked(7_100, "deadline")], ["P3"]),
    "an order fails": ([CALM, OLD._replace(at_ms=LATER), DONE._replace(at_ms=LATER + 5, ok=False)], ["P1"]),
    "an order is slow": ([CALM, OLD._replace(at_ms=LATER), DONE._replace(at_ms=LATER + 1_600)], ["P1"]),
    "an order misses a peer": ([CALM, OLD._replace(at_ms=LATER), DONE._replace(at_ms=LATER + 5, missing=(B,))], ["P1"]),
    "an order does not end": ([CALM, OLD._replace(at_ms=LATER)], ["P1"]),
    "one peer does not get the value": ([CALM, stored(LATER, 5, 1, A)], ["P2"]),
    "one peer does not get what is invalidated at that moment": (
        [
            CALM,
            stored(LATER, 5, 1, A),
            OLD._replace(at_ms=LATER + 1),
            floored(LATER + 2, 5),
            DONE._replace(at_ms=LATER + 5),
        ],
        [],
    ),
    "one peer does not get what is taken while an invalidation is under way": (
        [
            CALM,
            OLD._replace(at_ms=LATER),
            stored(LATER + 1, 5, 1, A),
            floored(LATER + 2, 6),
            DONE._replace(at_ms=LATER + 5),
        ],
        [],
    ),
    "one peer does not get what was there and is above the floor": (
        [
            CALM,
            stored(LATER, 5, 1, A),
            OLD._replace(at_ms=LATER + 1),
            floored(LATER + 2, 4),
            DONE._replace(at_ms=LATER + 5),
        ],
        ["P2"],
    ),
    "one peer does not get what is taken meanwhile and is above the floor": (
        [
            CALM,
            OLD._replace(at_ms=LATER),
            stored(LATER + 1, 5, 1, A),
            floored(LATER + 2, 4),
            DONE._replace(at_ms=LATER + 5),
        ],
        ["P2"],
    ),
    "one peer does not get what is taken beside the invalidation of another key": (
        [
            CALM,
            OLD._replace(at_ms=LATER),
            stored(LATER + 1, 5, 1, A),
            floored(LATER + 2, 9, b"other"),
            DONE._replace(at_ms=LATER + 5),
        ],
        ["P2"],
    ),
    "one peer does not get what a floor of its prefix kills": (
        [CALM, stored(LATER, 5, 1, A), f.Floored(LATER + 2, B, Floor(b"", True, 5))],
        [],
    ),
    "one peer does not get what is taken after an invalidation": (
        [CALM, OLD._replace(at_ms=LATER), DONE._replace(at_ms=LATER + 5), stored(LATER + 9, 5, 1, A)],
        ["P2"],
    ),
    "all get it": ([CALM, stored(LATER, 5, 1, A), stored(LATER + 400, 5, 1, B)], []),
}


@pytest.mark.parametrize("name", PROGRESS)
def test_progress(name: str) -> None:
    history, rules = PROGRESS[name]
    assert broken(ProgressChecker, history, end_ms=LATER + 8_000) == rules
