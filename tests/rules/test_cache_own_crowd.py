"""Mode `own`: thousands wait for one key. No step answers more than a few of them, and what is given is judged anew."""

from __future__ import annotations

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.model import Fetched, Floor
from primacy.cache.waiting import GIVEN_MAX
from tests.support.cache_harness import KEY
from tests.support.cache_one_peer import One, T, did, said

CROWD = 500


def crowd() -> One:
    """`b` fetches a key for which many wait."""
    one = One()
    one.calls(request=1)
    for request in range(2, CROWD + 1):
        one.ask(request)
    return one


def passed(one: One) -> list[does.Effect]:
    assert one.machine.deadline_ms <= one.now, "there is more to do at once"
    return one.tell(told.TimerPassed())


def test_all_are_given_the_value_in_portions_and_nobody_fetches_again() -> None:
    one = crowd()
    claim = one.machine.keys[KEY].claim
    assert claim is not None
    effects = one.tell(told.SourceEnded(KEY, claim.ballot, Fetched(b"v")))
    assert said(effects, says.Update), "the others have it before the last client"
    given = did(effects, does.Give)
    assert len(given) == GIVEN_MAX
    while len(given) < CROWD:
        effects = passed(one)
        some = did(effects, does.Give)
        assert 0 < len(some) <= GIVEN_MAX
        assert not said(effects, says.Question)
        given += some
    assert sorted(one_.request for one_ in given) == list(range(1, CROWD + 1))
    assert not any(one_.stale for one_ in given)
    assert one.machine.deadline_ms > one.now
    assert not said(one.run(2_000), says.Question)
    assert KEY not in one.machine.keys


def test_who_asks_meanwhile_is_given_it_at_once() -> None:
    one = crowd()
    claim = one.machine.keys[KEY].claim
    assert claim is not None
    one.tell(told.SourceEnded(KEY, claim.ballot, Fetched(b"v")))
    assert [given.request for given in did(one.ask(CROWD + 1), does.Give)] == [CROWD + 1]


def test_what_was_invalidated_between_two_portions_is_not_given_any_more() -> None:
    """S3: the rest is fetched anew."""
    one = crowd()
    claim = one.machine.keys[KEY].claim
    assert claim is not None
    one.tell(told.SourceEnded(KEY, claim.ballot, Fetched(b"v")))
    floor = claim.ballot.term + 1
    one.hear("c", says.FloorSet(Floor(KEY, False, floor), 1, one.trailer("c")))
    effects = [effect for _ in range(20) if one.machine.deadline_ms <= one.now for effect in passed(one)]
    effects += one.run(100)
    assert not did(effects, does.Give)
    questions = said(effects, says.Question)
    assert questions
    assert questions[0].term > floor


def test_out_of_touch_between_two_portions_the_rest_is_given_as_stale() -> None:
    one = crowd()
    claim = one.machine.keys[KEY].claim
    assert claim is not None
    one.tell(told.SourceEnded(KEY, claim.ballot, Fetched(b"v")))
    one.answers_pings = False
    one.now += one.machine.timing.touch_ms + 1
    given = did(passed(one), does.Give)
    assert given
    assert all(one_.stale for one_ in given)


def test_one_more_who_waits_costs_a_sign_and_nothing_else() -> None:
    one = One()
    ballot = one.stands(1)
    assert one.ask(2) == [does.KeepAlive(2)]
    one.vote("a", ballot)
    assert one.ask(3) == [does.KeepAlive(3)]
    assert [call.key for call in did(one.ack("a", ballot, 1), does.Call)] == [KEY]
    assert one.ask(4) == [does.KeepAlive(4)]
    other = One()
    assert other.announce("a", T)
    assert other.ask(1) == [does.KeepAlive(1)]
    assert other.ask(2) == [does.KeepAlive(2)]
    asked = said(other.run(other.machine.timing.promise_ms + 100), says.Question)
    assert asked, "when the source falls silent, those who wait are fetched for"
