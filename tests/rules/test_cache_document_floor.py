"""Mode `mixed`: invalidate, refresh and put among the peers of this product (RULES C, paragraph `mixed`)."""

from __future__ import annotations

from primacy.cache.effects import Finished, ForgetFloor, StoreFloor
from primacy.cache.inputs import FloorStored, Started
from primacy.cache.model import Ballot, Floor, Meta
from tests.rules.test_cache_document import WON, play
from tests.support.document_harness import SETTINGS, WALL_MS, Bench

HELD = {b"k": Meta(3, WALL_MS + 50_000, Ballot(3, "b", 9), 1)}


def finished(bench: Bench) -> Finished:
    return [effect for effect in bench.all if isinstance(effect, Finished)][-1]


def test_invalidate_says_ours_only() -> None:
    """b is one of this product, c an original. b is asked for its term, told the floor, and acks it."""
    bench = play(
        Bench(stored=HELD),
        """
        > b* PONG
        > invalidate 5 k
        to b: FLOORQUERY k 1
        > b* FLOORANSWER k 1 7
        drop k
        store floor k 8
        to b: FLOORSET k 1 8
        > stored floor k 8
        > b* FLOORACK k 1 8
        request 5: done ours only: a, b; not told: c (an original cannot be told, and keeps its copy)
        """,
    )
    assert finished(bench).missing == ("c",)
    assert bench.machine.meta(b"k").term == 9


def test_invalidate_among_originals_alone() -> None:
    bench = play(
        Bench(stored=HELD),
        """
        > invalidate 5 k
        drop k
        store floor k 4
        > stored floor k 4
        request 5: done ours only: a; not told: b, c (an original cannot be told, and keeps its copy)
        """,
    )
    assert finished(bench).missing == ("b", "c")


def test_invalidate_waits_for_ours_as_long_as_it_was_told() -> None:
    bench = play(Bench(stored=HELD), "> b* PONG\n> invalidate 5 k\nto b: FLOORQUERY k 1")
    bench.pass_ms(400)
    bench.command("stored", "floor", "k", "4")
    bench.pass_ms(1_599)
    assert not any(isinstance(effect, Finished) for effect in bench.all)
    bench.pass_ms(101)
    assert finished(bench).ok
    assert finished(bench).missing == ("b", "c")


def test_invalidate_that_cannot_be_stored_has_not_happened() -> None:
    """The disk is asked again until the time is over."""
    bench = Bench("a", stored=HELD)
    bench.command("invalidate", "5", "k")
    asked = 0
    while not any(isinstance(effect, Finished) for effect in bench.all):
        assert bench.now_ms < 60_000
        while asked < sum(isinstance(effect, StoreFloor) for effect in bench.all):
            asked += 1
            bench.give(FloorStored(Floor(b"k", False, 4), ok=False))
        bench.pass_ms(100)
    assert not finished(bench).ok
    assert finished(bench).reason.startswith("the floor could not be stored")
    assert asked == 20, "every 100 ms of two seconds"


def test_invalidate_that_the_disk_refuses_at_first_is_stored_again() -> None:
    bench = Bench("a", stored=HELD)
    bench.command("invalidate", "5", "k")
    for _ in range(3):
        bench.give(FloorStored(Floor(b"k", False, 4), ok=False))
        bench.all.clear()
        bench.pass_ms(100)
        assert [effect.floor.term for effect in bench.all if isinstance(effect, StoreFloor)] == [4]
        bench.all.clear()
        bench.pass_ms(100)
        assert not [effect for effect in bench.all if isinstance(effect, StoreFloor)], "it has not answered"
    bench.give(FloorStored(Floor(b"k", False, 4)))
    assert finished(bench).ok


def test_a_value_without_an_epoch_never_passes_a_floor() -> None:
    """Neither by UPDATE nor by an ANSWER that says fresh; who waits is sent to the original that has it."""
    bench = play(Bench(stored=HELD), "> invalidate 5 k\ndrop k\nstore floor k 4")
    bench.command("stored", "floor", "k", "4")
    play(
        bench,
        """
        > c UPDATE k 9 +50000 old
        > ask 1 k
        client 1: KEEPALIVE
        to all: QUESTION k 9
        > c ANSWER k 9 +50000 no
        > c UPDATE k 9 +50000 old
        client 1: SEEOTHER
        > b* UPDATE k 9 +50000 dead epoch=4
        > b* UPDATE k 9 +50000 new epoch=5
        store k = new +50000
        """,
    )


def test_ballots_at_or_below_a_floor_get_no_vote_and_the_answer_names_a_higher_term() -> None:
    bench = play(Bench(), "> invalidate 5 k\nstore floor k 1\n> c QUESTION k 1\nto c: ANSWER k 2 0 no")
    play(bench, "> c QUESTION k 2\nto c: ANSWER k 2 0 yes")


def test_a_call_below_a_floor_is_ended_and_asked_anew() -> None:
    play(
        Bench(),
        WON,
        """
        > invalidate 5 k
        cancel k
        store floor k 1
        > fetched k old
        to all: QUESTION k 2
        """,
    )


def test_a_floor_is_acked_once_it_is_durable() -> None:
    bench = play(
        Bench(stored=HELD),
        """
        > b* FLOORQUERY k 4
        to b: FLOORANSWER k 4 3
        > b* FLOORSET k 4 6
        drop k
        store floor k 6
        > b* FLOORSET k 4 6
        > stored floor k 6
        to b: FLOORACK k 4 6
        > b* FLOORSET k 5 6
        store floor k 6
        """,
    )
    bench.give(FloorStored(Floor(b"k", False, 6), ok=False))
    assert bench.words(bench.all)[-1] == "store floor k 6", "what could not be stored is not acked"


def test_floors_survive_a_restart_and_are_forgotten_when_everything_before_them_has_expired() -> None:
    bench = Bench()
    bench.machine.step(bench.now_ms, bench.wall_ms, Started(8, {}, (Floor(b"k", False, 6),)))
    bench.pass_ms(2_000)
    play(bench, "> c UPDATE k 9 +5000 old")
    told = bench.pass_ms(58_000)
    assert told[-1].endswith("forget floor k 6")
    play(bench, "> c UPDATE k 9 +5000 new\nstore k = new +5000")


def test_a_prefix_drops_what_begins_so_and_what_comes_later() -> None:
    stored = {key: Meta(3, WALL_MS + 50_000, Ballot(3, "b", 9), 1) for key in (b"a1", b"a2", b"b1")}
    bench = play(Bench("a", stored=stored), "> invalidate 5 a prefix\ndrop a1\ndrop a2\nstore floor a* 4")
    play(bench, "> ask 1 b1\nclient 1: VALUE b1\n> ask 2 a9\nclient 2: KEEPALIVE\ncall a9 in term 5")


def test_floors_are_bounded_and_none_is_lost() -> None:
    """In memory and in the storage, also when the floor for every key is the oldest."""
    bench = Bench("a", settings=SETTINGS._replace(floors_max=5))
    stored: dict[tuple[bytes, bool], int] = {}
    for number in range(40):
        bench.all.clear()
        bench.command("invalidate", str(number), f"k{number}")
        for effect in bench.all:
            if isinstance(effect, StoreFloor):
                stored[effect.floor.key, effect.floor.prefix] = effect.floor.term
            elif isinstance(effect, ForgetFloor):
                del stored[effect.floor.key, effect.floor.prefix]
        bench.pass_ms(10)
    state = bench.machine._state
    assert len(state.floors) + len(state.wide) == 5
    assert all(state.floor(b"k%d" % number) >= 1 for number in range(40))
    assert stored == {(key, False): term for key, term in state.floors.items()} | {
        (key, True): term for key, term in state.wide.items()
    }


def test_refresh_is_refused_while_an_original_reports_the_key_as_fresh() -> None:
    bench = play(
        Bench(stored=HELD),
        """
        > refresh 5 k
        to all: QUESTION k 4 need=4
        > b* ANSWER k 4 +48000 yes term=4:a epoch=3:b
        > c ANSWER k 4 +48000 no
        request 5: not done c is an original and reports the key as fresh: it cannot be told to drop it
        """,
    )
    assert bench.machine.role(b"k") == "idle"
    play(bench, "> ask 1 k\nclient 1: VALUE k")


def test_refresh_waits_for_every_answer_and_replaces_the_value() -> None:
    """The old value stays fresh meanwhile; a peer of this product agrees although its copy is fresh."""
    play(
        Bench(stored=HELD),
        """
        > refresh 5 k
        to all: QUESTION k 4 need=4
        > b* ANSWER k 4 +48000 yes term=4:a epoch=3:b
        > c ANSWER k 4 0 yes
        to all: ANNOUNCE k 4 +48000
        call k in term 4
        > ask 1 k
        client 1: VALUE k
        > b* UPDATE k 4 +48000 old epoch=3
        > fetched k new 1000
        store k = new +1000
        to all: UPDATE k 4 +1000 new
        request 5: done
        """,
    )
    play(Bench(stored=HELD), "> b* QUESTION k 4 need=4 term=4\nto b: ANSWER k 4 +48000 yes")
    play(Bench(stored=HELD), "> b* QUESTION k 4 need=3 term=4\nto b: ANSWER k 4 +48000 no")


def test_refresh_whose_peer_is_silent_goes_on_at_the_deadline() -> None:
    bench = play(
        Bench(stored=HELD),
        """
        > refresh 5 k
        to all: QUESTION k 4 need=4
        > b* ANSWER k 4 +48000 yes term=4:a epoch=3:b
        > pass 150 ms
        100: to c: QUESTION k 4 need=4
        150: to all: ANNOUNCE k 4 +47850
        150: call k in term 4
        """,
    )
    assert bench.machine.role(b"k") == "sourcing"


def test_refresh_ends_when_another_peer_fetches_or_nobody_agrees() -> None:
    play(
        Bench(stored=HELD),
        """
        > refresh 5 k
        to all: QUESTION k 4 need=4
        > c ANNOUNCE k 4 0
        request 5: not done c fetches the key
        > refresh 6 k
        request 6: not done the key is being fetched: try again
        """,
    )
    bench = play(Bench(stored=HELD), "> refresh 5 k\nto all: QUESTION k 4 need=4")
    bench.pass_ms(150)
    assert finished(bench).reason == "too few peers are heard"
    play(bench, "> refresh 6 k\nrequest 6: not done too few peers are heard")


def test_put_is_an_election_and_no_call() -> None:
    play(
        Bench(stored=HELD),
        """
        > put 5 k mine 70000
        to all: QUESTION k 4 need=4
        > b* ANSWER k 4 0 yes term=4:a
        > c* ANSWER k 4 0 yes term=4:a
        store k = mine +70000
        to all: UPDATE k 4 +70000 mine
        request 5: done
        """,
    )
    play(Bench("a"), "> put 5 k mine 70000\nstore k = mine +70000\nrequest 5: done")
    play(
        Bench(quiet=True), "> put 5 k mine 70000\nrequest 5: not done this peer has just started: try again in a moment"
    )
