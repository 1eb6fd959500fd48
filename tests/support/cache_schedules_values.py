"""Schedules written by hand for the cache's rules C8 to C10: each gives what is broken, or nothing."""

from __future__ import annotations

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.model import Fetched, Floor, Meta, SourceSettings, rank
from tests.support.cache_harness import KEY, SETTINGS, WALL_MS, Harness, addresses
from tests.support.cache_one_peer import One, T, by_rank, did, said
from tests.support.cache_schedules import TIMING, Machine, broken

# --- C8: epochs -------------------------------------------------------------------------------------------------------


def epoch_is_the_ballot(machine: Machine) -> str:
    """Epoch of a value = the ballot of its call; expiry = start of the call + ttl."""
    one = One(machine)
    ballot = one.calls()
    started = one.wall
    for number in range(2, 10):
        one.run(TIMING.announce_ms)
        one.ack("a", ballot, number)
    one.tell(told.SourceEnded(KEY, ballot, Fetched(b"v", 5_000)))
    (update,) = said(one.seen, says.Update)
    (stored,) = did(one.seen, does.StoreEntry)
    return broken(
        epoch=stored.meta.epoch == ballot == update.trailer.epoch,
        expiry=stored.meta.expire_ms == started + 5_000 == update.expire_ms,
        age=stored.meta.fetched_ms == started,
    )


def only_higher_replaces(machine: Machine) -> str:
    """Only a higher epoch replaces, whatever the expiry."""
    one = One(machine)
    first = one.update("a", one.ballot("a", T + 5), ttl_ms=1_000)
    lower = one.update("c", one.ballot("c", T), ttl_ms=90_000)
    same = one.update("a", one.ballot("a", T + 5), ttl_ms=90_000)
    higher = one.update("c", one.ballot("c", T + 6), ttl_ms=10)
    return broken(first=first, lower=not lower, same=not same, higher=higher)


def rank_decides_in_one_term(machine: Machine) -> str:
    """V7: two winners of one term: the higher rank replaces the lower, and never the other way round."""
    low, high = by_rank(T)
    one, other = One(machine), One(machine)
    up = (one.update(low.peer, low), one.update(high.peer, high))
    down = (other.update(high.peer, high), other.update(low.peer, low))
    return broken(upwards=up == (True, True), downwards=down == (True, False))


def none_below_the_floor(machine: Machine) -> str:
    one = One(machine, floors=(Floor(KEY, False, T),))
    at = one.update("a", one.ballot("a", T))
    return broken(at=not at, above=one.update("a", one.ballot("a", T + 1)))


def none_below_the_promise(machine: Machine) -> str:
    """While a promise runs no epoch below the ballot that was acked is taken: a late result loses."""
    one = One(machine)
    one.announce("a", T + 5)
    late = one.update("c", one.ballot("c", T))
    one.run(TIMING.promise_ms)
    return broken(within=not late, afterwards=one.update("c", one.ballot("c", T)))


def eviction_of_an_older_value(machine: Machine) -> str:
    """The disk says late that it made room: a newer value of the key came meanwhile, and stays."""
    one = One(machine)
    one.update("a", one.ballot("a", T))
    one.update("c", one.ballot("c", T + 5))
    dropped = did(one.tell(told.ValueGone(KEY, one.ballot("a", T))), does.DropValue)
    given = did(one.ask(), does.Give)
    return broken(kept=not dropped, given=bool(given))


def eviction_keeps_the_epoch(machine: Machine) -> str:
    """V16: what was evicted is not replaced by something older that expires later. The same value may come back."""
    one = One(machine)
    one.update("a", one.ballot("a", T + 5), ttl_ms=1_000)
    dropped = did(one.tell(told.ValueGone(KEY, one.ballot("a", T + 5))), does.DropValue)
    older = one.update("c", one.ballot("c", T), ttl_ms=90_000)
    asked = said(one.ask(), says.Question)
    same = one.update("a", one.ballot("a", T + 5), ttl_ms=1_000, result=False)
    return broken(
        dropped=[effect.meta.epoch for effect in dropped] == [one.ballot("a", T + 5)],
        older=not older,
        need=[message.trailer.need for message in asked] == [T + 5],
        same=same,
    )


def late_result_after_a_thaw(machine: Machine) -> str:
    """A frozen source is fenced: its late result loses, also on itself."""
    harness = Harness(machine=machine)
    harness.source_ms = 100
    harness.ask("a")
    harness.run(5)
    frozen = harness.calls[0][1]
    harness.freeze(frozen)
    other = next(name for name in "abc" if name != frozen)
    request = harness.ask(other)
    harness.run(2_000)
    harness.thaw(frozen)
    harness.run(1_000)
    held = {harness.disks[name].values[KEY][1] for name in "abc"}
    return broken(
        second=len(harness.calls) == 2,
        answered=harness.value(request) == b"v2",
        lost=held == {b"v2"},
    )


def meta_outlives_the_value(machine: Machine) -> str:
    """(epoch, floor) stay until ttl_max + stale_ms after the epoch's time, which its term tells; then they go."""
    source = SourceSettings(ttl_ms=1_000, stale_ms=1_000)
    settings = SETTINGS._replace(sources=(source,), ttl_max_ms=10_000)
    one = One(machine, settings, floors=(Floor(b"dead", False, WALL_MS + 10_001),))
    one.update("a", one.ballot("a", T), ttl_ms=1_000)
    one.run(5_000)
    kept = one.machine.metas.get(KEY, Meta())
    dropped = did(one.seen, does.DropValue)
    one.run(30_000)
    return broken(
        value=bool(dropped) and kept.expire_ms == 0,
        meta=kept.epoch == one.ballot("a", T),
        forgotten=KEY not in one.machine.metas,
        floor=len(one.machine.floors) == 0,
        told=bool(did(one.seen, does.Forget)) and bool(did(one.seen, does.ForgetFloor)),
    )


# --- C9: all ask at once ----------------------------------------------------------------------------------------------


def all_at_once(machine: Machine) -> str:
    """All peers are asked at once: one call, after two round trips, and nobody waits for a rank."""
    late = []
    for size in (3, 4, 5):
        names = " ".join("abcde"[:size])
        for number in range(8):
            harness = Harness(names, machine=machine)
            key = f"key-{number}".encode()
            begun_ms = harness.now
            requests = [harness.ask(name, key) for name in names.split()]
            harness.run(200)
            if len(harness.calls) != 1 or any(harness.got(request) != "fresh" for request in requests):
                return f"{size} peers: {len(harness.calls)} calls"
            late.append(harness.calls[0][0] - begun_ms)
    return broken(two_round_trips=max(late) <= 4)


def first_ranked_is_dead(machine: Machine) -> str:
    """A dead peer of the highest rank delays nobody."""
    harness = Harness(machine=machine)
    first = max("abc", key=lambda peer: rank(KEY, peer))
    harness.kill(first)
    begun_ms = harness.now
    others = [name for name in "abc" if name != first]
    harness.ask(others[0])
    harness.ask(others[1])
    harness.run(100)
    return broken(at_once=len(harness.calls) == 1 and harness.calls[0][0] - begun_ms <= 4)


def what_wakes_together(machine: Machine) -> str:
    """The end of a promise wakes all at once: they ask k times 10 ms apart, by their place in the key's order."""
    harness = Harness("a b c d e", machine=machine)
    harness.source_ms = None
    for name in "abcde":
        harness.ask(name)
    harness.run(300)
    harness.kill(harness.calls[0][1])
    harness.sent.clear()
    harness.run(900)
    asked = [(ms, sender) for ms, sender, to, message in harness.sent if isinstance(message, says.Question)]
    _, first = asked[0]
    live = sorted(harness.alive, key=lambda peer: rank(KEY, peer), reverse=True)
    return broken(first=first in live[:2], one_election=len({sender for _, sender in asked}) == 1)


# --- C10: lists -------------------------------------------------------------------------------------------------------


def one_peer_per_reload(machine: Machine) -> str:
    one = One(machine)
    two = did(one.tell(told.Reload(1, addresses("a b d"))), does.Finished)
    none = not did(one.seen, does.Membership)
    forced = did(one.tell(told.Reload(2, addresses("a b d"), force=True)), does.Finished)
    return broken(refused=[f.ok for f in two] == [False], kept=none, forced=[f.ok for f in forced] == [True])


def next_change_waits(machine: Machine) -> str:
    """The next change is taken when every peer that stays has reported the present list with the same floors, Ps
    later."""
    one = One(machine)
    first = did(one.tell(told.Reload(1, addresses("a b c d"))), does.Finished)
    one.answers_pings = False
    second = did(one.tell(told.Reload(2, addresses("a b c d e"))), does.Finished)
    for peer in "acd":
        digest = one.machine.floors.digest + (peer == "d")
        one.hear(peer, says.Ping(one.trailer(peer, number=1, digest=digest)))
    other_floors = did(one.run(TIMING.promise_ms + 1_000), does.Membership)
    one.hear("d", says.Ping(one.trailer("d", number=2)))
    early = did(one.run(TIMING.promise_ms - 1), does.Membership)
    taken = did(one.run(TIMING.ping_ms), does.Membership)
    return broken(
        first=[f.ok for f in first] == [True],
        waits=not second,
        same_floors=not other_floors,
        pause=not early,
        taken=len(taken) == 1,
    )


def neighbours_only(machine: Machine) -> str:
    """Asker and voter hold the same list, or the one before."""
    one = One(machine)
    same = one.announce("a", T)
    one.ended(one.ballot("a"))
    stranger = one.announce("c", T + 1, membership=12345)
    mine = one.machine.members.hash
    ahead = one.announce("c", T + 1, membership=12345, previous=mine, number=2)
    one.tell(told.Reload(1, addresses("a b c d")))
    one.run(TIMING.promise_ms)
    behind = one.announce("c", T + 9, membership=mine)
    return broken(same=same, stranger=not stranger, ahead=ahead, behind=behind)


def pending_counts_for_nothing(machine: Machine) -> str:
    """Two peers were started with the list of five, of which b, with four, only waits: it does not help them, for a and
    c, still with three, make a majority without any of them."""
    harness = Harness(machine=machine)
    harness.source_ms = 3_000
    harness.run(2_000)
    harness.order("b", told.Reload, addresses("a b c d"))
    harness.join("d", "a b c d e")
    harness.join("e", "a b c d e")
    harness.order("b", told.Reload, addresses("a b c d e"))
    harness.run(3_000)
    sizes = [harness.peers[name].members.size for name in "abcde"]
    harness.cut("a c", "b d e")
    harness.run(50)
    harness.ask("a")
    harness.run(200)
    touch = [name for name in "de" if harness.peers[name].in_touch(harness.now)]
    harness.ask("d")
    harness.run(1_500)
    return broken(
        lists=sizes == [3, 4, 3, 5, 5],
        called=[call[1] for call in harness.calls] == ["a"],
        one=not harness.overlaps,
        touch=not touch,
    )


def promises_survive(machine: Machine) -> str:
    one = One(machine)
    one.announce("a", T)
    one.tell(told.Reload(1, addresses("a b c d")))
    return broken(kept=one.question("c", T + 9) is False)


def outsider_sends_elsewhere(machine: Machine) -> str:
    """A peer outside its own list answers SEEOTHER, and majorities are those of the list in force."""
    one = One(machine)
    one.update("a", one.ballot("a"))
    one.ask(1, b"cold")
    one.tell(told.Reload(1, addresses("a c")))
    answered = [effect.request for effect in did(one.seen, does.SeeOther)]
    hit = did(one.ask(2), does.SeeOther)
    return broken(waiting=answered == [1], hits=len(hit) == 1)


def outsider_does_nothing_more(machine: Machine) -> str:
    """Who was removed gives nothing from what is at hand, begins nothing, also where one peer is left, which is a
    majority by itself; and what it was to do is told to have failed."""
    one = One(machine, names="a b")
    one.update("a", one.ballot("a"))
    one.tell(told.Put(7, b"other", b"x", 1_000))
    one.tell(told.Reload(1, addresses("a")))
    ended = [(effect.request, effect.ok) for effect in did(one.seen, does.Finished)]
    at_hand = one.machine.fresh_until_ms > one.now
    put = did(one.tell(told.Put(8, KEY, b"x", 1_000)), does.Finished)
    later = one.run(3_000)
    return broken(
        told=sorted(ended) == [(1, True), (7, False)],
        at_hand=not at_hand,
        put=[effect.ok for effect in put] == [False],
        silent=not said(later, says.Question) and not said(later, says.Announce) and not said(later, says.Ping),
        calls=not did(one.seen, does.Call),
        touch=not one.machine.in_touch(one.now),
    )


def outsider_leaves_and_returns_at_once(machine: Machine) -> str:
    """It waits for nobody, because nobody of the others speaks to it; when it returns it is silent for Ps, and out of
    touch until it has heard all floors again."""
    one = One(machine)
    one.update("a", one.ballot("a"))
    one.answers_pings = False
    one.tell(told.Reload(1, addresses("a c")))
    left = did(one.seen, does.Membership)
    one.tell(told.Reload(2, addresses("a b c")))
    back = did(one.seen, does.Membership)
    stale = [effect.stale for effect in did(one.ask(2), does.Give)]
    early = one.question("c", T + 50, need=T + 40)
    one.run(TIMING.promise_ms)
    late = one.question("c", T + 60, need=T + 40)
    return broken(
        left=len(left) == 1,
        back=len(back) == 2,
        stale=stale == [True],
        silent=early is False,
        speaks=late is True,
    )


def invalidation_and_lists(machine: Machine) -> str:
    """V13: under a change of the list, "all acked" does not count: the peer that was removed may still be in touch."""
    harness = Harness(machine=machine)
    harness.run(4_000)
    harness.ask("c")
    harness.run(100)
    for name in "ab":
        harness.order(name, told.Reload, addresses("a b"))
    harness.run(50)
    request = harness.order("a", told.Invalidate, KEY)
    harness.run(200)
    done = request in harness.finished
    old = harness.ask("c")
    fresh = harness.got(old) == "fresh"
    harness.run(4_000)
    later = harness.ask("c")
    return broken(
        not_both=not (done and fresh), done_later=harness.finished[request].ok, stale=harness.got(later) == "stale"
    )
