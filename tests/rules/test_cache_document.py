"""The rules of the HA cache's document, one by one, as a peer of mode `mixed` keeps them. Each is a transcript.

Where a number is left on purpose the test says so, and docs/origins/deviations.md has its line.
"""

from __future__ import annotations

from tests.support.document_harness import Bench, meta

STALE = {b"k": meta(3, -10_000)}
FRESH = {b"k": meta(3, 3_000_000)}

COLD = """
    > ask 1 k
    client 1: KEEPALIVE
    to all: QUESTION k 0
"""
WON = f"""{COLD}
    > b ANSWER k 0 0 yes
    to all: ANNOUNCE k 0 0
    call k in term 0
"""


def play(bench: Bench, *transcripts: str) -> Bench:
    for transcript in transcripts:
        bench.play("\n".join(line.strip() for line in transcript.strip().splitlines() if line.strip()))
    return bench


# --- 1. timeouts ------------------------------------------------------------------------------------------------------


def test_1_1_too_few_answers_partition_and_disagreement_raises_the_term() -> None:
    """Too few ANSWERs: partitioned, and idle. A majority that disagreed: another QUESTION in the next term.
    In addition to the document, who waits is sent elsewhere at once, and the first PING leaves at once."""
    partitioned = play(
        Bench(),
        COLD,
        """
        > pass 150 ms
        100: to all: QUESTION k 0
        150: client 1: SEEOTHER
        150: to all: PING
        """,
    )
    assert partitioned.machine.partitioned
    assert partitioned.machine.role(b"k") == "idle"
    play(
        Bench(),
        COLD,
        """
        > b ANSWER k 0 0 no
        > c ANSWER k 0 0 no
        > pass 150 ms
        150: to all: QUESTION k 1
        """,
    )


def test_1_2_a_follower_drops_back_to_idle() -> None:
    """After 300 ms without its candidate, 2,000 without a sign of the source. Left on purpose: with a waiting client it
    campaigns at once, after a delay by chance, and in the next term, because its vote of this one is given."""
    bench = play(
        Bench(),
        """
        > b QUESTION k 0
        to b: ANSWER k 0 0 yes
        > pass 299 ms
        """,
    )
    assert bench.machine.role(b"k") == "follower"
    play(bench, "> pass 1 ms")
    assert bench.machine.role(b"k") == "idle"
    play(
        bench,
        """
        > b ANNOUNCE k 0 0
        > pass 1999 ms
        > ask 1 k
        client 1: KEEPALIVE
        > pass 1 ms
        1: to all: QUESTION k 1
        """,
    )


def test_1_3_signs_to_waiting_clients() -> None:
    """Every second while something is under way; SEEOTHER when nothing is."""
    bench = play(
        Bench(),
        """
        > b ANNOUNCE k 0 0
        > ask 1 k
        client 1: KEEPALIVE
        > pass 1000 ms
        1000: client 1: KEEPALIVE
        > b ANNOUNCE k 0 0
        > pass 1000 ms
        1000: client 1: KEEPALIVE
        """,
    )
    bench = Bench(
        settings=bench.machine._state.settings._replace(calls_max=0)
    )  # nothing can be done about the key here
    play(
        bench,
        """
        > ask 1 k
        client 1: KEEPALIVE
        > pass 1000 ms
        1000: client 1: SEEOTHER
        """,
    )


# --- 2. a client asks -------------------------------------------------------------------------------------------------


def test_2_1_partitioned() -> None:
    """SEEOTHER at once. Left on purpose: a copy that is late enough for the client is given, fresh or stale."""
    bench = play(
        Bench(stored={b"held": meta(3, 100_000)}),
        COLD,
        """
        > pass 150 ms
        100: to all: QUESTION k 0
        150: client 1: SEEOTHER
        150: to all: PING
        > ask 2 k
        client 2: SEEOTHER
        > ask 3 held after=+0
        client 3: VALUE held
        """,
    )
    bench.wall_ms += 200_000
    play(
        bench,
        """
        > ask 4 held
        client 4: STALE held
        > ask 5 held after=+0
        client 5: SEEOTHER
        """,
    )


def test_2_2_the_local_copy() -> None:
    """A copy is given at once, and the request not kept; without one it waits and is told so. A fresh one is all."""
    play(Bench(stored=FRESH), "> ask 1 k\nclient 1: VALUE k")
    play(
        Bench(stored=STALE),
        """
        > ask 1 k
        client 1: STALE k
        to all: QUESTION k 3
        > ask 2 k after=+0
        client 2: KEEPALIVE
        > pass 50 ms
        > b UPDATE k 3 +9000 new
        store k = new +9000
        client 2: VALUE k
        """,
    )
    play(Bench(), "> ask 1 k fetch=no\nclient 1: MISS")
    play(Bench(stored=STALE), "> ask 1 k fetch=no\nclient 1: STALE k")


def test_2_3_idle_becomes_candidate() -> None:
    """QUESTION to all in the *present* term (mode `own`: above it), after 100 ms to who has not answered."""
    bench = play(
        Bench("abcde", stored=STALE),
        """
        > ask 1 k after=+0
        client 1: KEEPALIVE
        to all: QUESTION k 3
        > b ANSWER k 3 0 no
        > c ANSWER k 3 0 no
        > pass 100 ms
        100: to d: QUESTION k 3
        100: to e: QUESTION k 3
        """,
    )
    assert bench.machine.role(b"k") == "candidate"


def test_2_3_election_times_are_drawn_between_150_and_300_ms() -> None:
    drawn: list[tuple[int, int]] = []

    class Noted(type(Bench().machine._state.chance)):  # type: ignore[misc]
        def randint(self, a: int, b: int) -> int:
            drawn.append((a, b))
            return b

    bench = Bench()
    bench.machine._state.chance = Noted()
    play(
        bench,
        COLD,
        """
        > b ANSWER k 0 0 no
        > c ANSWER k 0 0 no
        > pass 299 ms
        > pass 1 ms
        1: to all: QUESTION k 1
        """,
    )
    assert drawn == [(150, 300)] * 2


def test_2_4_nothing_is_begun_twice() -> None:
    play(
        Bench(),
        WON,
        """
        > ask 2 k
        client 2: KEEPALIVE
        """,
    )
    play(
        Bench(),
        """
        > b QUESTION k 0
        to b: ANSWER k 0 0 yes
        > ask 1 k
        client 1: KEEPALIVE
        """,
    )


# --- 3. QUESTION ------------------------------------------------------------------------------------------------------


def test_3_1_idle() -> None:
    """Yes if there is no fresh entry and the term is not below ours; the higher term is kept either way."""
    bench = play(
        Bench(stored={b"fresh": meta(3, 100_000), b"stale": meta(3, -100_000)}),
        """
        > b QUESTION fresh 5
        to b: ANSWER fresh 5 +98000 no
        > b QUESTION stale 2
        to b: ANSWER stale 3 -102000 no
        > b QUESTION stale 3
        to b: ANSWER stale 3 -102000 yes
        > b QUESTION new 0
        to b: ANSWER new 0 0 yes
        """,
    )
    assert [bench.machine.role(key) for key in (b"fresh", b"stale", b"new")] == ["idle", "follower", "follower"]
    assert bench.machine.meta(b"fresh").term == 5


def test_3_2_follower() -> None:
    """No if it follows a source; yes to its candidate again, and to a higher term, whose sender it follows from then
    on. A yes begins the 300 ms anew."""
    bench = play(
        Bench(),
        """
        > b QUESTION k 1
        to b: ANSWER k 1 0 yes
        > pass 200 ms
        > b QUESTION k 1
        to b: ANSWER k 1 0 yes
        > pass 200 ms
        > c QUESTION k 1
        to c: ANSWER k 1 0 no
        > c QUESTION k 2
        to c: ANSWER k 2 0 yes
        > b QUESTION k 2
        to b: ANSWER k 2 0 no
        > pass 299 ms
        > c ANNOUNCE k 2 0
        > b QUESTION k 9
        to b: ANSWER k 9 0 no
        """,
    )
    assert bench.machine.role(b"k") == "follower"


def test_3_3_candidate() -> None:
    """No up to its own term; above it yes, and it follows the sender."""
    bench = play(
        Bench(),
        COLD,
        """
        > b QUESTION k 0
        to b: ANSWER k 0 0 no
        > c QUESTION k 1
        to c: ANSWER k 1 0 yes
        """,
    )
    assert bench.machine.role(b"k") == "follower"


def test_3_4_sourcing() -> None:
    """ANNOUNCE to who asks. In addition to the document, in the term that was asked in."""
    bench = play(
        Bench(),
        WON,
        """
        > c QUESTION k 0
        to c: ANNOUNCE k 0 0
        > c QUESTION k 7
        to c: ANNOUNCE k 7 0
        """,
    )
    assert bench.machine.role(b"k") == "sourcing"


# --- 4. to 6. ---------------------------------------------------------------------------------------------------------


def test_4_update() -> None:
    """A later expiry is kept with its value, and clients are answered; a fresh one ends everything but sourcing."""
    bench = play(
        Bench(stored=STALE),
        """
        > ask 1 k after=+0
        client 1: KEEPALIVE
        to all: QUESTION k 3
        > b UPDATE k 4 -20000 older
        > b UPDATE k 4 -5000 later
        store k = later -5000
        """,
    )
    assert bench.machine.role(b"k") == "candidate"
    assert bench.machine.meta(b"k").term == 4
    play(
        bench,
        """
        > b UPDATE k 4 +5000 fresh
        store k = fresh +5000
        client 1: VALUE k
        """,
    )
    assert bench.machine.role(b"k") == "idle"


def test_5_1_announce_with_a_later_copy() -> None:
    play(
        Bench(stored=STALE),
        """
        > b ANNOUNCE k 3 -20000
        > c ANNOUNCE k 3 -100
        to c: ENTRYREQ k
        """,
    )


def test_5_2_announce() -> None:
    """Idle follows whatever the term, and so does (left on purpose) a candidate. A follower of a source takes another
    one only from its term on, and 2,000 ms begin anew. A source goes on."""
    bench = play(Bench(stored=STALE), "> b ANNOUNCE k 1 0\n> pass 1999 ms\n> b ANNOUNCE k 4 0\n> pass 1999 ms")
    assert bench.machine.role(b"k") == "follower"
    assert bench.machine.meta(b"k").term == 4
    play(bench, "> c ANNOUNCE k 3 0\n> pass 1 ms")
    assert bench.machine.role(b"k") == "idle", "c's lower term did not begin the time anew"
    play(bench, "> b ANNOUNCE k 4 0\n> pass 1999 ms\n> c ANNOUNCE k 4 0\n> pass 1999 ms")
    assert bench.machine.role(b"k") == "follower"
    bench = play(Bench(), WON, "> c ANNOUNCE k 0 0")
    assert bench.machine.role(b"k") == "sourcing"


def test_6_entryreq() -> None:
    play(
        Bench(stored=STALE),
        """
        > b ENTRYREQ k
        to b: UPDATE k 3 -12000 stored
        > b ENTRYREQ unknown
        > evicted k
        drop k
        > b ENTRYREQ k
        """,
    )


# --- 7. ANSWER --------------------------------------------------------------------------------------------------------


def test_7_1_candidate() -> None:
    """A fresh copy elsewhere is fetched, and the voting is over; a lower term counts for nothing, a higher one ends the
    voting; a majority of yes begins the call."""
    play(
        Bench(),
        COLD,
        """
        > b ANSWER k 5 +9000 no
        to b: ENTRYREQ k
        > c ANSWER k 0 0 yes
        > pass 140 ms
        > b UPDATE k 5 +8860 theirs
        store k = theirs +8860
        client 1: VALUE k
        """,
    )
    play(
        Bench(),
        COLD,
        """
        > b ANSWER k 4 0 no
        > c ANSWER k 0 0 yes
        > pass 150 ms
        150: to all: QUESTION k 5
        > b ANSWER k 4 0 yes
        > pass 100 ms
        100: to c: QUESTION k 5
        > c ANSWER k 5 0 yes
        to all: ANNOUNCE k 5 0
        call k in term 5
        """,
    )
    play(
        Bench(),
        WON,
        """
        > b PONG
        > pass 1000 ms
        1000: to all: ANNOUNCE k 0 0
        1000: to all: PING
        1000: client 1: KEEPALIVE
        """,
    )


def test_7_1_the_winner_fetches_the_best_stale_copy() -> None:
    """As the original does: clients that take a stale copy need not wait for the source."""
    play(
        Bench("abcde"),
        COLD,
        """
        > b ANSWER k 0 -5000 yes
        > c ANSWER k 0 -100 yes
        to all: ANNOUNCE k 0 0
        call k in term 0
        > pass 0 ms
        0: to c: ENTRYREQ k
        > c UPDATE k 0 -100 old
        store k = old -100
        client 1: STALE k
        """,
    )


def test_7_2_nobody_else_counts_answers() -> None:
    play(Bench(), "> b ANSWER k 3 +100 yes")
    play(Bench(), "> b QUESTION k 0\nto b: ANSWER k 0 0 yes\n> b ANSWER k 3 0 yes")
    bench = play(Bench(), WON, "> c ANSWER k 9 +5000 yes")
    assert bench.machine.role(b"k") == "sourcing"
    assert bench.machine.meta(b"k").term == 0


# --- 8. to 10. --------------------------------------------------------------------------------------------------------


def test_8_ping() -> None:
    play(Bench(), "> b PING\nto b: PONG")


def test_9_a_majority_of_pongs_ends_the_partition() -> None:
    bench = play(
        Bench("abcde"),
        COLD,
        """
        > pass 150 ms
        100: to all: QUESTION k 0
        150: client 1: SEEOTHER
        150: to all: PING
        > b PONG
        > b PONG
        > pass 3000 ms
        3000: to all: PING
        > c PONG
        """,
    )
    assert bench.machine.partitioned, "each PING begins the count anew"
    play(bench, "> b PONG")
    assert not bench.machine.partitioned


def test_10_sourcing() -> None:
    """Success: the expiry counts from the start (the original's: from the end), the entry is kept, all are told.
    Either way idle. In addition to the document, a failure is told to clients and our peers, and there is a pause."""
    bench = play(
        Bench(),
        WON,
        """
        > pass 200 ms
        > fetched k value
        store k = value +59800
        client 1: VALUE k
        to all: UPDATE k 0 +59800 value
        """,
    )
    assert bench.machine.role(b"k") == "idle"
    bench = play(
        Bench(),
        WON,
        """
        > failed k no route
        to all: ANSWER k 0 0 no ended
        client 1: REFUSED no route
        """,
    )
    assert bench.machine.role(b"k") == "idle"


def test_what_is_shown_of_a_key() -> None:
    bench = play(Bench(stored=FRESH), WON.replace(" k", " cold"), "> c ANNOUNCE other 2 0")
    views = [bench.machine.view(bench.now_ms, bench.wall_ms, key) for key in (b"cold", b"other", b"k")]
    assert [(view.role, view.source, view.term, view.fresh, view.waiting) for view in views] == [
        ("sourcing", "a", 0, False, 1),
        ("follower", "c", 2, False, 0),
        ("idle", "", 3, True, 0),
    ]
    assert bench.machine.in_touch(bench.now_ms)
