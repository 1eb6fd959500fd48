"""The cache's machine of mode `own`: what clients see, deadlines, bounds, and many keys."""

from __future__ import annotations

import time
from random import Random

import pytest

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache import own_source
from primacy.cache.model import CacheSettings, Failure, Fetched, Floor, Meta, Role, SourceSettings
from primacy.cache.own import OwnMachine
from primacy.cache.own_parts import cursor
from tests.support.cache_harness import KEY, SETTINGS, WALL_MS, Harness, addresses
from tests.support.cache_one_peer import START_MS, One, T, did, said


def settings(**how: object) -> CacheSettings:
    source = SourceSettings(**how)  # type: ignore[arg-type]
    return SETTINGS._replace(sources=(source,))


# --- clients ----------------------------------------------------------------------------------------------------------


def test_a_stale_copy_is_given_at_once_and_fetched_behind() -> None:
    harness = Harness(settings=settings(ttl_ms=300))
    harness.ask("a")
    harness.run(500)
    stale = harness.ask("b")
    assert (harness.got(stale), harness.value(stale)) == ("stale", b"v1")
    harness.run(100)
    fresh = harness.ask("c")
    assert (harness.got(fresh), harness.value(fresh), len(harness.calls)) == ("fresh", b"v2", 2)


def test_stale_copies_are_given_while_the_source_is_down_until_stale_ms() -> None:
    harness = Harness(settings=settings(ttl_ms=300, stale_ms=1_000))
    harness.ask("a")
    harness.run(500)
    harness.source_fails = "down"
    assert harness.got(harness.ask("a")) == "stale"
    harness.run(300)
    assert harness.got(harness.ask("a")) == "stale"
    harness.run(600)
    too_old = harness.ask("a")
    harness.run(100)
    assert harness.got(too_old) == "refused"


def test_who_wants_a_fresh_one_is_not_given_a_stale_one() -> None:
    harness = Harness(settings=settings(ttl_ms=300))
    harness.ask("a")
    harness.run(500)
    request = harness.ask("a", after_ms=2 * WALL_MS)
    assert harness.got(request) == "waits"
    harness.run(100)
    assert (harness.got(request), harness.value(request)) == ("fresh", b"v2")


def test_a_value_that_expires_before_it_comes_is_given_to_who_waited_for_it() -> None:
    """A slow source with a short time to live: nobody waits for ever, and it is said to be stale."""
    harness = Harness(settings=settings(ttl_ms=50))
    harness.source_ms = 200
    request = harness.ask("a", after_ms=2 * WALL_MS)
    harness.run(400)
    assert (harness.got(request), len(harness.calls)) == ("stale", 1)


def test_without_fetch_there_is_no_election() -> None:
    harness = Harness()
    assert harness.got(harness.ask("a", fetch=False)) == "miss"
    harness.run(100)
    assert not harness.calls


def test_no_client_waits_past_its_deadline() -> None:
    harness = Harness()
    harness.source_ms = None
    request = harness.ask("a", until_ms=harness.now + 777)
    harness.run(776)
    assert harness.got(request) == "waits"
    harness.run(1)
    assert harness.got(request) == "other"


def test_the_survivor_of_three_serves_what_it_has_and_sends_the_rest_elsewhere_at_once() -> None:
    harness = Harness()
    harness.ask("a")
    harness.run(100)
    harness.kill("b")
    harness.kill("c")
    assert harness.got(harness.ask("a")) == "fresh"
    harness.run(2_500)
    assert harness.got(harness.ask("a")) == "stale"
    assert harness.got(harness.ask("a", b"other")) == "other"
    assert len(harness.calls) == 1
    harness.start("b")
    begun_ms = harness.now
    while not harness.peers["a"].in_touch(harness.now):
        harness.run(10)
    assert harness.now - begun_ms <= 200
    request = harness.ask("a", b"other")
    harness.run(1_000)
    assert harness.got(request) == "fresh"


def test_what_is_asked_for_often_is_fetched_before_it_expires() -> None:
    harness = Harness(settings=settings(ttl_ms=1_000, refresh_ahead_ms=300))
    harness.ask("a")
    harness.run(800)
    harness.ask("b")
    assert len(harness.calls) == 1
    harness.ask("b")
    harness.run(100)
    assert len(harness.calls) == 2
    assert harness.value(harness.ask("a")) == b"v2"


def test_the_time_to_live_is_that_of_the_result_and_at_most_the_longest() -> None:
    one = One(settings=settings(ttl_ms=5_000, jitter_percent=50)._replace(ttl_max_ms=60_000))
    for number, (ttl_ms, least, most) in enumerate([(None, 2_500, 5_000), (7, 7, 7), (10**9, 60_000, 60_000)], 1):
        ballot = one.calls(number, after_ms=2 * WALL_MS) if number == 1 else refreshed(one, number)
        one.tell(told.SourceEnded(KEY, ballot, Fetched(b"v", ttl_ms)))
        meta = one.machine.metas[KEY]
        assert least <= meta.expire_ms - meta.fetched_ms <= most


def refreshed(one: One, number: int):
    (asked,) = said(one.tell(told.Refresh(number, KEY)), says.Question)
    one.vote("a", asked.trailer.ballot)
    assert did(one.ack("a", asked.trailer.ballot, 1), does.Call)
    return asked.trailer.ballot


def test_a_value_that_is_too_large_is_a_failure_that_names_the_bound() -> None:
    one = One(settings=SETTINGS._replace(value_bytes_max=10))
    ballot = one.calls()
    (refusal,) = did(one.tell(told.SourceEnded(KEY, ballot, Fetched(b"x" * 11))), does.Refuse)
    assert "value_bytes_max" in refusal.reason


def test_a_client_that_left_costs_no_call() -> None:
    one = One()
    ballot = one.wins()
    one.tell(told.Withdrawn(1))
    effects = one.ack("a", ballot, 1)
    assert not did(effects, does.Call)


def test_requests_that_cannot_be_done_in_time_say_so() -> None:
    harness = Harness()
    harness.source_ms = None
    harness.ask("a")
    harness.run(50)
    put = harness.order("b", told.Put, KEY, b"x", 1_000, until_ms=harness.now + 500)
    refresh = harness.order("c", told.Refresh, KEY, until_ms=harness.now + 500)
    harness.run(600)
    assert not harness.finished[put].ok
    assert not harness.finished[refresh].ok


def test_what_is_shown_of_a_key() -> None:
    harness = Harness()
    harness.source_ms = 200
    harness.ask("a")
    harness.ask("b")
    harness.run(50)
    views = {name: harness.peers[name].view(harness.now, harness.wall(name), KEY) for name in "abc"}
    source = harness.calls[0][1]
    assert {view.source for view in views.values()} == {source}
    assert {name: view.role for name, view in views.items()} == {
        name: Role.SOURCING if name == source else Role.FOLLOWER for name in "abc"
    }
    harness.run(300)
    view = harness.peers["c"].view(harness.now, harness.wall("c"), KEY)
    assert (view.role, view.fresh, view.source, view.meta.size) == (Role.IDLE, True, "", 2)


# --- the disk ---------------------------------------------------------------------------------------------------------


def test_a_full_disk_costs_nothing_but_durability() -> None:
    """The ceiling cannot be written: it goes on from memory, and says so."""
    harness = Harness()
    harness.kill("a")
    harness.start("a", full=True)
    harness.run(20_000)
    request = harness.ask("a")
    harness.run(100)
    assert harness.got(request) == "fresh"
    assert ("a", "ceiling-not-stored") in harness.events


def test_a_restart_finds_entries_terms_and_floors() -> None:
    harness = Harness()
    harness.run(4_000)
    harness.ask("a")
    harness.ask("a", b"dead")
    harness.run(100)
    harness.order("b", told.Invalidate, b"dead")
    harness.run(50)
    harness.kill("a")
    harness.start("a")
    harness.run(50)
    assert harness.got(harness.ask("a")) == "fresh"
    assert harness.got(harness.ask("a", b"dead", fetch=False)) == "miss"
    assert len(harness.calls) == 2


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_nothing_grows_without_bound() -> None:
    """Keys that nobody has a value for, from clients and from peers: records go when they are idle, and so do metas."""
    small = SETTINGS._replace(active_max=200, keys_max=500, waiting_max=100)
    one = One(settings=small)
    for number in range(2_000):
        one.ask(number, b"asked-%d" % number)
        one.question("a", T + number, key=b"key-%d" % number)
        if number % 100 == 0:
            one.run(1_000)
    assert len(one.machine.keys) <= 200
    assert len(one.machine.waiting) <= 100
    one.run(20_000)
    assert len(one.machine.metas) <= 500
    assert not one.machine.keys
    assert len(one.machine._timers) <= 64
    assert not one.machine._slots
    assert not one.machine._starved


def test_what_was_forgotten_for_lack_of_room_does_not_come_back_older() -> None:
    one = One(settings=SETTINGS._replace(keys_max=1))
    one.update("a", one.ballot("a", T + 5))
    one.machine.metas[b"other"] = Meta(T)
    one.run(5_000)
    assert KEY not in one.machine.metas
    assert not one.update("c", one.ballot("c", T))
    assert one.update("c", one.ballot("c", T + 6))


@pytest.mark.later
def test_a_hundred_thousand_keys() -> None:
    """A start, hits and a step of time do not depend on how many keys there are."""
    count = 100_000
    metas = {b"key-%d" % n: Meta(T, WALL_MS + 10**9, One.ballot(None, "a", T), 10, WALL_MS) for n in range(count)}  # type: ignore[arg-type]
    machine = OwnMachine("b", addresses("b"), SETTINGS, Random(1))
    machine.step(START_MS, WALL_MS, told.Started(1, metas, (), WALL_MS))
    begun = time.process_time()
    for number in range(10_000):
        effects = machine.step(START_MS + number, WALL_MS + number, told.Asked(number, b"key-%d" % number))
        assert type(effects[-1]) is does.Give
        assert machine.deadline_ms > 0
    assert time.process_time() - begun < 2.0
    assert not machine.keys


def test_floors_are_read_in_pages() -> None:
    one = One()
    floors = tuple(Floor(b"key-%04d" % number, number % 2 == 0, T + number) for number in range(600))
    for floor in floors:
        one.machine.floors.apply(floor)
    pages = []
    after = b""
    while True:
        request = says.FloorsRequest(after, one.trailer("a", number=3))
        (page,) = said(one.hear("a", request), says.Floors)
        pages += page.floors
        if not page.more:
            break
        after = cursor(page.floors[-1])
    assert set(pages) == set(floors)
    assert len(pages) == 600


def test_every_input_is_safe_at_any_time() -> None:
    """Late, repeated and meaningless inputs are dropped: the world's faults are never exceptions."""
    one = One()
    ballot = one.ballot("b", T)
    for given in (
        told.SourceEnded(KEY, ballot, Failure("late")),
        told.CeilingStored(5),
        told.FloorStored(Floor(b"x", True, 5)),
        told.ValueGone(b"unknown", ballot),
        told.Withdrawn(99),
        told.TimerPassed(),
    ):
        assert not did(one.tell(given), does.Send)
    nobody = says.Trailer(membership=one.machine.members.hash)
    for message in (
        says.Question(KEY, T, nobody),
        says.Answer(KEY, T, 0, True, nobody),
        says.Announce(b"", T, 0, nobody),
        says.Ack(KEY, nobody),
        says.Update(KEY, T, 0, b"", nobody),
        says.FloorAck(Floor(KEY, False, T), 77, 5, nobody),
        says.FloorAnswer(KEY, False, 77, 5, nobody),
        says.Floors((), False, nobody),
        says.Pong(nobody),
    ):
        assert not did(one.hear("a", message), does.Send), message


def test_the_first_input_is_started() -> None:
    machine = OwnMachine("b", addresses("a b c"), SETTINGS, Random(1))
    with pytest.raises(AssertionError):
        machine.step(0, 0, told.TimerPassed())


def test_refreshes_and_puts_are_bounded_in_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_source, "PUT_BYTES_MAX", 100)
    one = One(settings=SETTINGS._replace(requests_max=3))
    one.announce("a", T)
    done = [did(one.tell(told.Put(number, KEY, b"x" * 40, 1_000)), does.Finished) for number in range(3)]
    assert [len(each) for each in done] == [0, 0, 1]
    assert not did(one.tell(told.Refresh(5, KEY)), does.Finished)
    (full,) = did(one.tell(told.Refresh(6, b"other")), does.Finished)
    assert not full.ok
    assert full.reason


def test_a_late_failure_does_not_concern_who_waits_for_a_newer_source() -> None:
    one = One()
    one.announce("a", T + 5)
    one.ask()
    effects = one.ended(one.ballot("c", T), wait_ms=500)
    assert not did(effects, does.Refuse)
    assert len(did(one.ended(one.ballot("a", T + 5), wait_ms=500), does.Refuse)) == 1


def test_the_quick_way_ends_when_the_fewest_who_vouch_are_out_of_touch() -> None:
    """Values are given again as fresh without a step until `fresh_until_ms`: never longer than a step would. Here c
    has started without memory and does not vouch for the value: it ends with the touch of a, not with that of c."""
    one = One()
    one.update("a", one.ballot("a", T))
    one.answers_pings = False
    one.run(400)
    first = one.machine.touch.number
    one.hear("a", says.Pong(one.trailer("a", number=first)))
    one.run(600)
    later = one.machine.touch.number
    assert later > first
    one.hear("c", says.Pong(one.trailer("c", number=later, since=T + 5)))
    left_ms = [one.machine.touch.departed_ms(number) for number in (first, later)]
    assert left_ms[0] is not None
    assert one.machine.fresh_until_ms == left_ms[0] + SETTINGS.timing.touch_ms
    one.now = one.machine.fresh_until_ms - 1
    assert [given.stale for given in did(one.ask(1), does.Give)] == [False]
    one.now += 1
    assert [given.stale for given in did(one.ask(2), does.Give)] == [True]
    one.update("c", one.ballot("c", T + 9))
    one.run(1)
    assert [given.stale for given in did(one.ask(3), does.Give)] == [False]


def test_a_restart_without_memory_does_not_take_the_quick_way_from_the_others() -> None:
    harness = Harness(settings=SETTINGS._replace(durable=False))
    harness.ask("a")
    harness.run(100)
    harness.kill("c")
    harness.start("c", forgets=True)
    harness.run(1_000)
    assert harness.peers["a"].fresh_until_ms > harness.now
    assert harness.got(harness.ask("a")) == "fresh"
