"""Weaknesses S1 to S8 and L1 to L8 of the original HA cache, closed in mode `mixed` as far as its wire allows.

`tests/rules/test_cache_document_mutants.py` takes each cure out and sees the test named there fail. Those of the wire
(L6, S5, most of S8) and of the client (L2, L8) stand with the tests of the wire and of the client.
"""

from __future__ import annotations

from primacy.cache.effects import Call, Extend, Send, StoreMeta
from primacy.cache.inputs import Reload
from primacy.cache.messages import Question
from primacy.cache.model import TERM_MAX, Ballot, Meta, rank
from tests.rules.test_cache_document import COLD, STALE, WON, play
from tests.support.document_harness import SETTINGS, WALL_MS, Bench, addresses, meta

# --- S: two sources at once -------------------------------------------------------------------------------------------


def test_W_S1_a_candidate_follows_a_source_of_a_lower_term() -> None:
    """The original drops the ANNOUNCE, wins in its higher term and fetches as well: 1 of 480 healthy retrievals."""
    bench = play(
        Bench("abcd"),
        COLD,
        """
        > b ANSWER k 0 0 no
        > c ANSWER k 0 0 no
        > d ANSWER k 0 0 no
        > pass 150 ms
        150: to all: QUESTION k 1
        > c ANNOUNCE k 0 0
        > b ANSWER k 1 0 yes
        > d ANSWER k 1 0 yes
        """,
    )
    assert bench.machine.role(b"k") == "follower"


def test_W_S1_a_follower_of_a_candidate_follows_a_source_of_a_lower_term() -> None:
    bench = play(
        Bench(),
        """
        > b QUESTION k 5
        to b: ANSWER k 5 0 yes
        > c ANNOUNCE k 4 0
        > b QUESTION k 6
        to b: ANSWER k 6 0 no
        """,
    )
    assert bench.machine.role(b"k") == "follower"


def test_W_S1_a_source_takes_over_the_term_it_is_asked_in() -> None:
    """So that an original candidate, which follows only from its own term on, follows."""
    play(
        Bench(),
        WON,
        """
        > c QUESTION k 1
        to c: ANNOUNCE k 1 0
        > b PONG
        > pass 1000 ms
        1000: to all: ANNOUNCE k 1 0
        1000: to all: PING
        1000: client 1: KEEPALIVE
        """,
    )


def test_W_S2_one_vote_per_term() -> None:
    """The original keeps following the first candidate when it votes for a higher term: the behaviour vector
    `double_vote_in_one_term`, with the answers that it should have given."""
    play(
        Bench(),
        """
        > b QUESTION dv 0
        to b: ANSWER dv 0 0 yes
        > c QUESTION dv 1
        to c: ANSWER dv 1 0 yes
        > b QUESTION dv 1
        to b: ANSWER dv 1 0 no
        > c QUESTION dv 1
        to c: ANSWER dv 1 0 yes
        """,
    )


def test_W_S3_a_vote_lasts_as_long_as_its_term() -> None:
    """Not 300 ms: the behaviour vector `vote_lease_is_300ms_not_term`."""
    play(
        Bench(),
        """
        > b QUESTION k 5
        to b: ANSWER k 5 0 yes
        > pass 350 ms
        > c QUESTION k 5
        to c: ANSWER k 5 0 no
        > b QUESTION k 5
        to b: ANSWER k 5 0 yes
        > pass 350 ms
        > c QUESTION k 6
        to c: ANSWER k 6 0 yes
        """,
    )


def test_W_S3_a_fresh_value_frees_the_vote() -> None:
    """Otherwise the document's start in the same term would fail each time."""
    bench = play(
        Bench(),
        """
        > b QUESTION k 5
        to b: ANSWER k 5 0 yes
        > b UPDATE k 5 +100 value
        store k = value +100
        > pass 101 ms
        > c QUESTION k 5
        to c: ANSWER k 5 -1 yes
        """,
    )
    assert bench.machine.meta(b"k").voted == "c"


def test_W_S3_the_own_vote_is_a_vote() -> None:
    """A peer whose vote of this term is given, to another or to itself, asks in the next one."""
    play(
        Bench(),
        """
        > b QUESTION k 5
        to b: ANSWER k 5 0 yes
        > pass 300 ms
        > ask 1 k
        client 1: KEEPALIVE
        to all: QUESTION k 6
        > b ANSWER k 6 0 no
        > c QUESTION k 6
        to c: ANSWER k 6 0 no
        """,
    )
    play(
        Bench(),
        WON,
        """
        > failed k no
        to all: ANSWER k 0 0 no ended
        client 1: REFUSED no
        > pass 500 ms
        > ask 2 k
        client 2: KEEPALIVE
        to all: QUESTION k 1
        """,
    )


def test_W_S3_the_vote_is_stored_with_the_term() -> None:
    bench = Bench()
    bench.command("b", "QUESTION", "k", "5")
    bench.command("c", "QUESTION", "k", "6")
    assert [effect.meta for effect in bench.all if isinstance(effect, StoreMeta)] == [
        Meta(term=5, voted="b"),
        Meta(term=6, voted="c"),
    ]
    again = Bench(stored={b"k": Meta(term=6, voted="c")})
    play(again, "> b QUESTION k 6\nto b: ANSWER k 6 0 no\n> c QUESTION k 6\nto c: ANSWER k 6 0 yes")


def test_W_S3_no_vote_right_after_a_start() -> None:
    """Which source it followed is forgotten, and a vote of the boot before may not have reached the disk. For as long
    as a source goes on without a sign of others nothing is agreed to, nor asked."""
    bench = Bench(quiet=True)
    play(
        bench,
        """
        > b QUESTION k 0
        to b: ANSWER k 0 0 no
        > ask 1 k
        client 1: KEEPALIVE
        > pass 1999 ms
        300: to all: PING
        600: to all: PING
        900: to all: PING
        1000: client 1: KEEPALIVE
        1200: to all: PING
        1500: to all: PING
        1800: to all: PING
        > b QUESTION k 0
        to b: ANSWER k 0 0 no
        > pass 1 ms
        1: to all: QUESTION k 0
        1: client 1: KEEPALIVE
        """,
    )
    bench = Bench(quiet=True)
    play(bench, "> ask 1 k\nclient 1: KEEPALIVE\n> b ANNOUNCE k 0 0")
    bench.pass_ms(1_999)
    bench.command("b", "ANNOUNCE", "k", "0", "0")
    bench.pass_ms(1_999)
    assert not any(isinstance(effect, Send) and isinstance(effect.message, Question) for effect in bench.all)


def test_W_S3_late_answers_count_for_nothing() -> None:
    """More than 300 ms after the QUESTION, or of another election of a peer of this product."""
    bench = Bench()
    play(bench, COLD)
    bench.freeze(301)
    play(bench, "> b ANSWER k 0 0 yes")
    assert bench.machine.role(b"k") == "candidate"
    bench = Bench()
    play(bench, COLD)
    bench.freeze(140)
    play(bench, "> b* ANSWER k 0 0 yes term=0:c")
    assert bench.machine.role(b"k") == "candidate", "the answer names another ballot"
    play(bench, "> b* ANSWER k 0 0 yes term=0:a\nto all: ANNOUNCE k 0 0\ncall k in term 0")


def test_W_S4_a_source_that_hears_no_majority_ends_its_call() -> None:
    """Followers wait 2,000 ms for the next ANNOUNCE; 150 ms before that the call is cancelled. Each ANNOUNCE after
    which too few peers are heard is repeated."""
    bench = play(
        Bench(),
        WON,
        """
        > b PONG
        > pass 1000 ms
        1000: to all: ANNOUNCE k 0 0
        1000: to all: PING
        1000: client 1: KEEPALIVE
        > pass 849 ms
        250: to all: ANNOUNCE k 0 0
        250: to all: PING
        500: to all: ANNOUNCE k 0 0
        500: to all: PING
        750: to all: ANNOUNCE k 0 0
        750: to all: PING
        > pass 1 ms
        1: cancel k
        1: to all: ANSWER k 0 0 no ended
        1: client 1: SEEOTHER
        1: to all: PING
        """,
    )
    assert bench.machine.partitioned
    assert bench.machine.role(b"k") == "idle"
    play(bench, "> b QUESTION k 4\nto b: ANSWER k 4 0 no\n> fetched k late\n> b QUESTION k 4\nto b: ANSWER k 4 0 yes")


def test_W_S4_a_call_that_was_cut_short_is_no_failure_of_the_source() -> None:
    """Who runs the call ends it at its time, too, perhaps before the machine's own timer."""
    bench = play(Bench(), WON)
    bench.pass_ms(1_849)
    bench.freeze(1)
    play(bench, "> failed k cancelled\nto all: ANSWER k 0 0 no ended\nto all: QUESTION k 1")


def test_W_S4_a_call_runs_on_while_a_majority_is_heard() -> None:
    """As long as the source needs, up to its limit. Originals say PONG, and no more."""
    bench = play(Bench(), WON)
    for _ in range(20):
        bench.command("c", "PONG")
        bench.pass_ms(1_000)
    assert bench.machine.role(b"k") == "sourcing"
    calls = [effect for effect in bench.all if isinstance(effect, Call)]
    proofs = [effect.over_at_ms for effect in bench.all if isinstance(effect, Extend)]
    assert len(calls) == 1
    assert len(proofs) == 19, "the votes proved the first second"
    assert proofs == sorted(proofs)


def test_W_S4_the_result_of_a_frozen_source_is_not_used() -> None:
    bench = play(Bench(), WON)
    bench.freeze(3_500)
    play(bench, "> fetched k late\nto all: ANSWER k 0 0 no ended\nto all: QUESTION k 1")
    assert bench.machine.meta(b"k").expire_ms == 0
    assert bench.machine.role(b"k") == "candidate", "client 1 may wait still"


def test_W_S4_a_higher_term_of_another_source_ends_the_call() -> None:
    """An original's ANNOUNCE has the term that it won. One of this product may have raised it, and names its ballot."""
    bench = play(
        Bench(),
        WON,
        """
        > c ANNOUNCE k 1 0
        cancel k
        > fetched k late
        """,
    )
    assert bench.machine.role(b"k") == "follower"
    bench = play(Bench(), WON, "> c* ANNOUNCE k 4 0 term=-1")
    assert bench.machine.role(b"k") == "sourcing", "it was raised to 4, but won below ours"
    higher, lower = sorted("bc", key=lambda peer: rank(b"k", peer) > rank(b"k", "a"), reverse=True)
    outranked = rank(b"k", higher) > rank(b"k", "a")
    bench = play(Bench(), WON, f"> {higher}* ANNOUNCE k 0 0 term=0" + ("\ncancel k" if outranked else ""))
    assert lower != higher


def test_W_S4_of_two_sources_of_one_term_exactly_one_goes_on() -> None:
    """Both of this product: the rank for this key decides, on both sides alike."""
    for key in (b"k", b"l", b"m", b"n", b"o"):
        a_first = rank(key, "a") > rank(key, "b")
        name = key.decode()
        bench = play(Bench(), WON.replace(" k", f" {name}"))
        play(bench, f"> b* ANNOUNCE {name} 0 0 term=0" + ("" if a_first else f"\ncancel {name}"))
        assert (bench.machine.role(key) == "sourcing") == a_first


def test_W_S4_a_fresh_value_ends_the_call() -> None:
    bench = play(
        Bench(),
        WON,
        """
        > c UPDATE k 0 +5000 theirs
        store k = theirs +5000
        client 1: VALUE k
        cancel k
        > fetched k ours
        """,
    )
    assert bench.machine.meta(b"k").expire_ms == WALL_MS + 2_000 + 5_000


def test_W_S4_a_late_result_does_not_replace_a_newer_fetch() -> None:
    """Fetched in term 4 by a peer of this product; then the UPDATE of a source that was frozen meanwhile."""
    bench = play(
        Bench(),
        """
        > b* UPDATE k 4 +9000 new epoch=4
        store k = new +9000
        > c* UPDATE k 4 +9500 late epoch=3
        > c UPDATE k 4 +9500 late
        > c* UPDATE k 4 +9500 same epoch=4
        store k = same +9500
        > c* UPDATE k 5 +9400 higher epoch=5
        store k = higher +9400
        > pass 9400 ms
        > c UPDATE k 5 +9000 original
        store k = original +9000
        """,
    )
    assert bench.machine.meta(b"k").epoch.peer == ""


def test_W_S6_what_is_being_stored_counts_already() -> None:
    """The original reads, changes a copy and writes it back: the behaviour vector `lost_update`. Here nothing is ever
    told to be stored, and the value counts."""
    bench = play(
        Bench(),
        """
        > b UPDATE k 1 +9000 value
        store k = value +9000
        > c QUESTION k 2
        to c: ANSWER k 2 +9000 no
        > c ENTRYREQ k
        to c: UPDATE k 2 +9000 stored
        """,
    )
    assert bench.machine.meta(b"k").size == 5


def test_W_S7_a_call_needs_a_key_that_is_not_fresh() -> None:
    """Judged when the votes are there and when a campaign that was put off begins, not when the client asked."""
    bench = play(Bench(stored=STALE), "> ask 1 k after=+0\nclient 1: KEEPALIVE\nto all: QUESTION k 3")
    bench.wall_ms -= 20_000  # the wall clock was corrected meanwhile: the copy is fresh
    play(bench, "> b ANSWER k 3 0 yes")
    assert bench.machine.role(b"k") == "idle"
    bench = Bench(quiet=True, stored=STALE)
    play(bench, "> ask 1 k\nclient 1: STALE k")
    bench.wall_ms -= 20_000
    bench.pass_ms(3_000)
    assert not any(isinstance(effect, Send) and isinstance(effect.message, Question) for effect in bench.all)


def test_W_S8_timers_do_not_use_the_wall_clock() -> None:
    bench = play(Bench(), COLD)
    bench.wall_ms += 3_600_000
    assert bench.machine.deadline_ms == bench.now_ms + 100
    bench.wall_ms -= 7_200_000
    play(bench, "> b ANSWER k 0 0 yes\nto all: ANNOUNCE k 0 0\ncall k in term 0")


# --- L: nobody is answered --------------------------------------------------------------------------------------------


def test_W_L1_a_call_that_never_ends_is_ended() -> None:
    source = SETTINGS.sources[0]._replace(limit_ms=1_200)
    bench = play(Bench(settings=SETTINGS._replace(sources=(source,))), WON)
    bench.command("b", "PONG")
    bench.pass_ms(1_100)
    bench.command("b", "PONG")
    play(
        bench,
        """
        > pass 100 ms
        100: cancel k
        100: to all: ANSWER k 0 0 no ended
        100: client 1: REFUSED the source took too long
        """,
    )
    assert not bench.machine.partitioned


def test_W_L2_a_failing_source_is_not_called_again_at_once() -> None:
    """A pause, doubled each time, in which clients hear why; the other half of L2 is the client's."""
    bench = play(Bench("a"), "> ask 0 k\nclient 0: KEEPALIVE\ncall k in term 0")
    for pause_ms in (500, 1_000, 2_000, 4_000, 8_000, 8_000):
        bench.command("failed", "k", "no")
        play(bench, f"> pass {pause_ms - 1} ms\n> ask 1 k\nclient 1: REFUSED no\n> pass 1 ms")
        play(bench, "> ask 2 k\nclient 2: KEEPALIVE\ncall k in term 0")
    play(bench, "> fetched k v\nstore k = v +60000\nclient 2: VALUE k")
    bench.wall_ms += 60_001
    play(bench, "> ask 3 k\nclient 3: STALE k\ncall k in term 0\n> failed k no\n> pass 500 ms")
    play(bench, "> ask 4 k\nclient 4: STALE k\ncall k in term 0")


def test_W_L3_a_follower_that_is_waited_for_campaigns() -> None:
    play(
        Bench(),
        """
        > b ANNOUNCE k 0 0
        > ask 1 k
        client 1: KEEPALIVE
        > pass 2000 ms
        1000: client 1: KEEPALIVE
        2000: to all: QUESTION k 0
        2000: client 1: KEEPALIVE
        """,
    )
    play(
        Bench(),
        """
        > b* ANNOUNCE k 0 0 term=0
        > ask 1 k
        client 1: KEEPALIVE
        > c* ANSWER k 0 0 no ended=yes term=0:b
        > b* ANSWER k 0 0 no ended=yes term=1:b
        > b* ANSWER k 0 0 no ended=yes term=0:b
        to all: QUESTION k 0
        """,
    )


def test_W_L4_whoever_says_anything_is_there() -> None:
    """A source answers a QUESTION with ANNOUNCE only; the original takes itself for partitioned then."""
    bench = play(
        Bench("abcde"),
        COLD,
        """
        > b ANSWER k 0 0 no
        > c ANSWER other 0 0 no
        > pass 150 ms
        100: to c: QUESTION k 0
        100: to d: QUESTION k 0
        100: to e: QUESTION k 0
        150: to all: QUESTION k 1
        """,
    )
    assert not bench.machine.partitioned


def test_W_L4_a_partition_ends_with_any_message() -> None:
    """And begins with a PING, as a start does: who was partitioned learns of a peer that came back at once."""
    bench = play(Bench(), COLD)
    bench.pass_ms(150)
    assert bench.machine.partitioned
    play(bench, "> b PING\nto b: PONG")
    assert not bench.machine.partitioned
    started = Bench(quiet=True)
    assert bench.words(started.all) == ["to all: PING"]


def test_W_L5_what_was_not_sent_is_not_believed_again() -> None:
    """b says that it has a fresh copy and sends none. The original asks again every 150 to 300 ms until it expires."""
    bench = play(
        Bench(),
        COLD,
        """
        > b ANSWER k 0 +9000 no
        to b: ENTRYREQ k
        > pass 150 ms
        150: to all: QUESTION k 1
        > b ANSWER k 1 +8850 no
        > c ANSWER k 1 0 yes
        to all: ANNOUNCE k 1 0
        call k in term 1
        """,
    )
    assert bench.machine.role(b"k") == "sourcing"


def test_W_L5_elections_that_nobody_wins_end() -> None:
    """Both others refuse for ever: after eight elections clients are sent elsewhere, and terms do not grow by time."""
    bench = play(Bench(), COLD)
    for term in range(8):
        bench.command("b", "ANSWER", "k", str(term), "0", "no")
        bench.command("c", "ANSWER", "k", str(term), "0", "no")
        told = bench.pass_ms(150)
    assert told == ["150: client 1: SEEOTHER"]
    assert bench.machine.role(b"k") == "idle"
    assert bench.machine.meta(b"k").term == 7


def test_W_L7_what_is_known_without_a_value_is_bounded() -> None:
    bench = Bench(settings=SETTINGS._replace(keys_max=10))
    for number in range(100):
        bench.command("b", "QUESTION", f"key{number}", "1")
        bench.pass_ms(300)
    assert len(bench.machine._state.metas) == 10


def test_W_L7_keys_under_way_are_bounded() -> None:
    bench = Bench(settings=SETTINGS._replace(active_max=2))
    play(
        bench,
        """
        > b QUESTION k1 1
        to b: ANSWER k1 1 0 yes
        > b ANNOUNCE k2 1 0
        > b QUESTION k3 1
        to b: ANSWER k3 1 0 no
        > b ANNOUNCE k4 1 0
        > ask 1 k5
        client 1: SEEOTHER
        """,
    )
    assert len(bench.machine._state.active) == 2


# --- what goes beyond -------------------------------------------------------------------------------------------------


def test_a_peer_alone_needs_no_election() -> None:
    play(
        Bench("a"),
        """
        > ask 1 k
        client 1: KEEPALIVE
        call k in term 0
        > fetched k v 5000
        store k = v +5000
        client 1: VALUE k
        """,
    )


def test_calls_at_once_are_bounded_and_the_next_key_has_its_turn() -> None:
    play(
        Bench("a", settings=SETTINGS._replace(calls_max=1)),
        """
        > ask 1 k
        client 1: KEEPALIVE
        call k in term 0
        > ask 2 l
        client 2: KEEPALIVE
        > fetched k v 5000
        store k = v +5000
        client 1: VALUE k
        call l in term 0
        """,
    )


def test_the_highest_term_of_all_is_not_exceeded() -> None:
    """An integer above it kills an original, and our own wire refuses it."""
    bench = Bench()
    play(bench, f"> b QUESTION k {TERM_MAX}\nto b: ANSWER k {TERM_MAX} 0 yes\n> pass 300 ms")
    play(bench, f"> ask 1 k\nclient 1: KEEPALIVE\nto all: QUESTION k {TERM_MAX}")


def test_a_key_without_a_source_is_asked_for_elsewhere() -> None:
    bench = Bench(settings=SETTINGS._replace(sources=()))
    play(bench, "> ask 1 k\nclient 1: SEEOTHER")
    play(bench, "> ask 2 k offers=yes\nclient 2: KEEPALIVE\nto all: QUESTION k 0")
    play(bench, "> b ANSWER k 0 0 yes\nto all: ANNOUNCE k 0 0\ncall k in term 0")
    assert next(effect.offers for effect in bench.all if isinstance(effect, Call)) == (2,)


def test_a_copy_that_is_too_old_is_not_given() -> None:
    source = SETTINGS.sources[0]._replace(stale_ms=5_000)
    bench = Bench(settings=SETTINGS._replace(sources=(source,)), stored={b"k": meta(3, 2_000)})
    bench.wall_ms = WALL_MS + 2_000 + 4_999
    play(bench, "> ask 1 k fetch=no\nclient 1: STALE k")
    bench.wall_ms += 1
    play(bench, "> ask 2 k fetch=no\nclient 2: MISS")


def test_an_evicted_value_is_asked_for_anew() -> None:
    bench = Bench(stored={b"k": Meta(3, WALL_MS + 9_000_000, Ballot(3, "b", 9), 1, voted="b")})
    play(
        bench, "> ask 1 k\nclient 1: VALUE k\n> evicted k\ndrop k\n> ask 1 k\nclient 1: KEEPALIVE\nto all: QUESTION k 4"
    )


def test_a_reload_asks_again_among_the_new_peers() -> None:
    bench = play(Bench(), COLD)
    bench.give(Reload(9, addresses("abcde")))
    play(bench, "> b ANSWER k 0 0 yes\n> pass 150 ms\n150: to all: QUESTION k 1")
    play(bench, "> b ANSWER k 1 0 yes\n> d ANSWER k 1 0 yes\nto all: ANNOUNCE k 1 0\ncall k in term 1")


def test_a_stranger_is_not_heard() -> None:
    play(Bench(), "> x QUESTION k 0\n> x PING")
