"""Schedules written by hand for the cache's rules C11, C12 and E1: each gives what is broken, or nothing."""

from __future__ import annotations

from typing import Any

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.model import Ballot, Fetched, Floor
from primacy.cache.own_parts import cursor
from tests.support.cache_harness import KEY, SETTINGS, WALL_MS, Harness
from tests.support.cache_one_peer import BOOTS, One, T, did, said, says_to
from tests.support.cache_schedules import TIMING, Machine, broken

# --- C11: floors ------------------------------------------------------------------------------------------------------


def floor_above_a_majority(machine: Machine) -> str:
    """V11: the floor is above what a majority knows, not only the peer that was asked."""
    one = One(machine)
    one.tell(told.Invalidate(1, KEY))
    number = said(one.seen, says.FloorQuery)[0].request
    answer = says.FloorAnswer(KEY, False, number, T + 4_000, one.trailer("a"))
    floors = {message.floor.term for message in said(one.hear("a", answer), says.FloorSet)}
    return broken(above=bool(floors) and min(floors) > T + 4_000)


def floor_durable_before_the_ack(machine: Machine) -> str:
    """Who cannot write applies the floor and does not ack it."""
    one = One(machine)
    one.update("a", one.ballot("a"))
    one.stores = False
    floor = Floor(KEY, False, T + 5)
    early = says_to(one.hear("a", says.FloorSet(floor, 1, one.trailer("a"))), "a", says.FloorAck)
    applied = not did(one.ask(), does.Give)
    failed = one.tell(told.FloorStored(floor, ok=False))
    one.hear("a", says.FloorSet(floor, 1, one.trailer("a")))
    stored = said(one.tell(told.FloorStored(floor)), says.FloorAck)
    return broken(early=not early, applied=applied, failed=not said(failed, says.FloorAck), stored=len(stored) == 1)


def own_floor_is_stored_again(machine: Machine) -> str:
    """A peer that invalidates, and whose disk refuses the floor, tries again until its time is over, says so once, and
    asks a disk that has not answered nothing more."""
    one = One(machine, names="b")
    one.stores = False
    one.tell(told.Invalidate(1, KEY))
    one.run(3 * TIMING.question_repeat_ms)
    first = did(one.seen, does.StoreFloor)
    floor = first[0].floor
    again = []
    for _ in range(3):
        one.tell(told.FloorStored(floor, ok=False))
        again += did(one.run(TIMING.question_repeat_ms), does.StoreFloor)
    said_once = [effect.event for effect in did(one.seen, does.Record)].count("floor-not-stored") == 1
    one.tell(told.FloorStored(floor))
    ends = did(one.seen, does.Finished)
    return broken(
        once=len(first) == 1,
        again=[effect.floor for effect in again] == [floor] * 3,
        said_once=said_once,
        done=[end.ok for end in ends] == [True],
    )


def floor_kills_what_is_under_way(machine: Machine) -> str:
    """A running call is ended; if clients wait it is asked for anew, above the floor. The refusal names the floor."""
    one = One(machine)
    ballot = one.calls()
    floor = Floor(KEY, False, ballot.term + 5)
    cancelled = did(one.hear("a", says.FloorSet(floor, 1, one.trailer("a"))), does.Cancel)
    void = one.tell(told.SourceEnded(KEY, ballot, Fetched(b"old")))
    again = said(one.run(100), says.Question)
    asked = One(machine, floors=(floor,))
    trailer = asked.trailer("c", asked.ballot("c", floor.term))
    (refusal,) = says_to(asked.hear("c", says.Question(KEY, floor.term, trailer)), "c", says.Answer)
    return broken(
        cancelled=len(cancelled) == 1,
        void=not did(void, does.StoreEntry),
        again=bool(again) and again[0].term > floor.term and again[0].trailer.need > floor.term,
        named=not refusal.vote and refusal.trailer.floor == floor.term,
    )


def refused_by_a_floor(machine: Machine) -> str:
    """A source that has not heard of the floor learns it from the refusal of its ANNOUNCE."""
    one = One(machine)
    ballot = one.calls()
    effects = one.refuse("c", ballot, floor=ballot.term + 3)
    return broken(cancelled=len(did(effects, does.Cancel)) == 1)


def floor_is_raised(machine: Machine) -> str:
    """An ack that names an epoch above the floor raises it, once per peer."""
    one = One(machine)
    one.tell(told.Invalidate(1, KEY))
    number = said(one.seen, says.FloorQuery)[0].request
    answer = says.FloorAnswer(KEY, False, number, T, one.trailer("a"))
    (first, *_) = said(one.hear("a", answer), says.FloorSet)
    high = first.floor.term + 500
    raised = said(one.hear("a", says.FloorAck(first.floor, number, high, one.trailer("a"))), says.FloorSet)
    floor = Floor(KEY, False, high)
    again = said(one.hear("a", says.FloorAck(floor, number, high + 500, one.trailer("a"))), says.FloorSet)
    return broken(raised={message.floor.term for message in raised} == {high}, once=not again)


def done_by_all(machine: Machine) -> str:
    """Every peer acked: done in two round trips, and nobody gives the old value as fresh."""
    harness = Harness(machine=machine)
    harness.run(4_000)
    harness.ask("a")
    harness.run(100)
    begun_ms = harness.now
    request = harness.order("b", told.Invalidate, KEY)
    while request not in harness.finished and harness.now - begun_ms < 1_000:
        harness.run(1)
    old = [harness.ask(name, fetch=False) for name in "abc"]
    return broken(
        quick=harness.now - begun_ms <= 7,
        ok=harness.finished[request].ok and not harness.finished[request].missing,
        gone=[harness.got(each) for each in old] == ["miss", "miss", "miss"],
    )


def done_without_one(machine: Machine) -> str:
    """A peer is away: done when it cannot be in touch any more. The answer names it, and it never gives the old value
    as fresh afterwards."""
    harness = Harness(machine=machine)
    harness.run(4_000)
    harness.ask("a")
    harness.run(100)
    harness.cut("c", "a b")
    request = harness.order("a", told.Invalidate, KEY)
    early = False
    for _ in range(300):
        harness.run(10)
        if request in harness.finished:
            break
        early = early or harness.got(harness.ask("c")) == "fresh"
    given = harness.got(harness.ask("c"))
    harness.heal()
    harness.run(400)
    back = harness.got(harness.ask("c", fetch=False))
    return broken(
        window=early,
        done=harness.finished[request].ok,
        named=harness.finished[request].missing == ("c",),
        not_fresh=given == "stale",
        learns=back == "miss",
    )


def minority_refuses(machine: Machine) -> str:
    harness = Harness(machine=machine)
    harness.cut("a", "b c")
    harness.run(2_500)
    request = harness.order("a", told.Invalidate, KEY)
    put = harness.order("a", told.Put, KEY, b"x", 1_000)
    harness.run(1)
    return broken(refused=not harness.finished[request].ok, put=not harness.finished[put].ok)


def by_prefix(machine: Machine) -> str:
    """A prefix drops every key under it, on every peer, and no other."""
    harness = Harness(machine=machine)
    harness.run(4_000)
    keys = [b"user:1", b"user:2", b"other"]
    for key in keys:
        harness.ask("a", key)
    harness.run(200)
    request = harness.order("b", told.Invalidate, b"user:", True)
    harness.run(20)
    got = [harness.got(harness.ask("c", key, fetch=False)) for key in keys]
    return broken(done=harness.finished[request].ok, dropped=got == ["miss", "miss", "fresh"])


def floors_are_bounded(machine: Machine) -> str:
    """Beyond the bound the older half becomes one floor for every key: nothing that was dead comes back."""
    one = One(machine, SETTINGS._replace(floors_max=10))
    for number in range(25):
        floor = Floor(b"key-%d" % number, False, T + number)
        one.hear("a", says.FloorSet(floor, number, one.trailer("a")))
    floors = one.machine.floors
    dead = all(floors.of(b"key-%d" % number) >= T + number for number in range(25))
    stored = {effect.floor for effect in did(one.seen, does.StoreFloor)}
    return broken(bounded=len(floors) <= 10, dead=dead, stored=any(floor.prefix for floor in stored))


def refresh_replaces(machine: Machine) -> str:
    """`refresh`: an election with a need above the present epoch; the old value stays fresh meanwhile."""
    harness = Harness(machine=machine)
    harness.ask("a")
    harness.run(100)
    request = harness.order("b", told.Refresh, KEY)
    harness.run(20)
    meanwhile = [harness.ask(name) for name in "abc"]
    harness.run(200)
    afterwards = [harness.ask(name) for name in "abc"]
    return broken(
        done=harness.finished[request].ok,
        meanwhile={harness.value(each) for each in meanwhile} == {b"v1"},
        afterwards={harness.value(each) for each in afterwards} == {b"v2"},
    )


def put_is_an_election(machine: Machine) -> str:
    """A value that a client brings takes the epoch of its ballot; it waits while somebody fetches the key."""
    harness = Harness(machine=machine)
    harness.source_ms = 300
    harness.ask("a")
    harness.run(50)
    request = harness.order("b", told.Put, KEY, b"mine", 5_000)
    harness.run(100)
    early = request in harness.finished
    harness.run(400)
    got = {harness.value(harness.ask(name)) for name in "abc"}
    epochs = {harness.disks[name].metas[KEY].epoch.peer for name in "abc"}
    return broken(
        waits=not early, done=harness.finished[request].ok, everywhere=got == {b"mine"}, epoch=epochs == {"b"}
    )


# --- C12: touch -------------------------------------------------------------------------------------------------------


def _holder(machine: Machine, **how: Any) -> One:
    """A peer with a copy that expires in a minute."""
    one = One(machine, **how)
    one.update("a", one.ballot("a"))
    return one


def stale_out_of_touch(machine: Machine) -> str:
    """Out of touch a copy is served as stale, never as fresh, and refuses no vote."""
    one = _holder(machine)
    before = did(one.ask(), does.Give)
    one.answers_pings = False
    one.run(TIMING.touch_ms + 1)
    given = did(one.ask(2), does.Give)
    fresh_only = did(one.ask(3, after_ms=2 * WALL_MS), does.SeeOther)
    yes = one.question("c", T + 9)
    until_ms = one.machine.fresh_until_ms
    return broken(
        before=[g.stale for g in before] == [False],
        stale=[g.stale for g in given] == [True],
        fresh_only=len(fresh_only) == 1,
        yes=yes is True,
        until=until_ms <= one.now,
    )


def touch_from_departure(machine: Machine) -> str:
    """V counts from the departure of the PING, not from its PONG."""
    one = _holder(machine)
    one.answers_pings = False
    one.run(TIMING.touch_ms + 1)
    number = said(one.run(200), says.Ping)[-1].trailer.number
    left_ms = one.machine.touch.departed_ms(number)
    one.run(1_000)
    one.hear("a", says.Pong(one.trailer("a", number=number)))
    assert left_ms is not None
    within = did(one.ask(5), does.Give)
    one.now = max(one.now, left_ms + TIMING.touch_ms)
    after = did(one.ask(6), does.Give)
    return broken(within=[g.stale for g in within] == [False], after=[g.stale for g in after] == [True])


def pong_brings_floors(machine: Machine) -> str:
    """A PONG with another digest counts only when the floors of its sender are applied."""
    one = _holder(machine)
    one.answers_pings = False
    one.run(TIMING.touch_ms + 1)
    number = said(one.run(200), says.Ping)[-1].trailer.number
    asked = says_to(one.hear("a", says.Pong(one.trailer("a", number=number, digest=77))), "a", says.FloorsRequest)
    early = did(one.ask(4), does.Give)
    floors = says.Floors((Floor(KEY, False, T + 5),), False, one.trailer("a", number=number))
    one.hear("a", floors)
    dead = did(one.ask(5, fetch=False), does.SeeOther)
    return broken(
        asked=len(asked) == 1, early=[g.stale for g in early] == [True], dead=[s.miss for s in dead] == [True]
    )


def pages_while_floors_change(machine: Machine) -> str:
    """Floors are read in pages while they change: one that is merged into a floor of a prefix, or raised, between two
    pages is not overlooked."""
    sender = One(machine)
    for number in range(300):
        sender.machine.floors.apply(Floor(b"z%03d" % number, False, T + number))
    known = sender.machine.floors.sorted()
    request = says.FloorsRequest(b"", sender.trailer("a", number=1))
    (first,) = said(sender.hear("a", request), says.Floors)
    sender.machine.floors.apply(Floor(b"z", True, T + 290))
    sender.machine.floors.apply(Floor(known[-1].key, False, T + 400))
    after = cursor(first.floors[-1])
    (second,) = said(sender.hear("a", says.FloorsRequest(after, sender.trailer("a", number=1))), says.Floors)
    reader = One(machine)
    for floor in first.floors + second.floors:
        reader.machine.floors.apply(floor)
    return broken(
        pages=first.more and not second.more,
        nothing_overlooked=all(reader.machine.floors.of(floor.key) >= floor.term for floor in known),
    )


def since_vouches(machine: Machine) -> str:
    """A peer that started without memory vouches only for what was fetched later."""
    one = One(machine, ceiling=None)
    one.update("a", Ballot(WALL_MS + 5_000, "a", BOOTS["a"]))
    alone = did(one.ask(), does.Give)
    other = _holder(machine)
    other.answers_pings = False
    other.run(TIMING.touch_ms + 1)
    number = said(other.run(200), says.Ping)[-1].trailer.number
    other.hear("a", says.Pong(other.trailer("a", number=number, since=T + 1)))
    young = did(other.ask(2), does.Give)
    other.hear("c", says.Pong(other.trailer("c", number=number)))
    old = did(other.ask(3), does.Give)
    return broken(
        own=[g.stale for g in alone] == [False],
        young=[g.stale for g in young] == [True],
        old=[g.stale for g in old] == [False],
    )


def own_since_counts(machine: Machine) -> str:
    """The own start without memory counts as well: one other peer is then no majority of three."""
    one = One(machine, ceiling=None)
    one.update("a", Ballot(WALL_MS + 5_000, "a", BOOTS["a"]))
    one.answers_pings = False
    one.run(TIMING.touch_ms + 1)
    number = said(one.run(200), says.Ping)[-1].trailer.number
    one.hear("a", says.Pong(one.trailer("a", number=number)))
    given = did(one.ask(2), does.Give)
    return broken(stale=[g.stale for g in given] == [True])


def pings(machine: Machine) -> str:
    """At once at start, every 500 ms, every 150 out of touch. PONG only to listed peers."""
    one = One(machine, calm=False)
    first = said(one.seen, says.Ping)
    in_touch = len(said(one.run(5_000), says.Ping))
    one.answers_pings = False
    one.run(TIMING.touch_ms + TIMING.ping_ms)
    lost = len(said(one.run(1_500), says.Ping))
    listed = said(one.hear("a", says.Ping(one.trailer("a", number=1))), says.Pong)
    stranger = said(one.hear("x", says.Ping(one.trailer("a", number=1))), says.Pong)
    return broken(
        first=len(first) == 1, calm=9 <= in_touch <= 11, lost=9 <= lost <= 11, listed=len(listed) == 1,
        stranger=not stranger,
    )  # fmt: skip


def restarted_without_memory(machine: Machine) -> str:
    """V12: the invalidator's helper restarts without memory. It does not vouch for what it cannot judge."""
    harness = Harness(machine=machine, settings=SETTINGS._replace(durable=False))
    harness.run(8_000)
    harness.ask("c")
    harness.run(100)
    harness.cut("c", "a b")
    request = harness.order("a", told.Invalidate, KEY)
    harness.run(3_000)
    harness.kill("a")
    harness.kill("b")
    harness.start("b", forgets=True)
    harness.heal()
    harness.run(1_000)
    return broken(done=harness.finished[request].ok, stale=harness.got(harness.ask("c")) == "stale")


# --- E1: echoes -------------------------------------------------------------------------------------------------------


def refusals_are_bounded(machine: Machine) -> str:
    """One refusal per peer, key and reason within b/2; nothing answers a refusal."""
    one = One(machine)
    one.announce("a", T)
    answers = []
    for _ in range(20):
        answers.append(one.question("c", T + 9))
        one.run(1)
    quiet = one.refuse("c", one.ballot("b", T + 9)) + one.ended(one.ballot("c", T + 9))
    return broken(once=answers.count(False) == 1, silent=not did(quiet, does.Send))


def one_message_each(machine: Machine) -> str:
    """An input from the wire causes at most one message per receiver at once."""
    one = One(machine)
    ballot = one.wins()
    trailer = one.trailer("c", one.ballot("c", ballot.term + 1), number=1)
    effects = one.hear("c", says.Announce(KEY, ballot.term + 1, 0, trailer))
    sends = [effect for effect in did(effects, does.Send) if effect.to in ("c", "*")]
    rest = did(one.run(1), does.Send)
    return broken(one=len(sends) == 1, rest=any(isinstance(effect.message, says.Answer) for effect in rest))


def one_entry_request(machine: Machine) -> str:
    one = One(machine)
    ballot = one.stands()
    for peer in ("a", "c"):
        one.refuse(peer, ballot, epoch=one.ballot(peer, T))
    return broken(one=len(said(one.seen, says.EntryRequest)) == 1)
