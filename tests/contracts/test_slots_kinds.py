"""The kinds of slots, told the time; and one session, fed with bytes. No socket, no clock."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from primacy.settings.schema_work import Slots
from primacy.slots.board import Board
from primacy.slots.kinds import (
    INT64_MAX,
    Atomic,
    LeakyBucket,
    Signal,
    Ticker,
    TimeoutMemory,
    TokenBucket,
    number_in,
)
from primacy.slots.session import Hall, Session, TelnetSession
from tests.support.slots_harness import slots_of

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A machine that stalls finds no fault."""


class Ear:
    """A receiver in memory."""

    def __init__(self, user: str = "", takes: bool = True) -> None:
        self.user = user
        self.takes = takes
        self.heard: list[bytes] = []

    def offer(self, event: bytes) -> bool:
        if self.takes:
            self.heard.append(event)
        return self.takes

    def deregistered(self) -> None:
        self.heard.append(b"deregistered")


# --- buckets, tickers, counters ---------------------------------------------------------------------------------------


def test_a_bucket_that_was_left_alone_is_refilled_for_each_window() -> None:
    bucket = TokenBucket(size=10, period_ms=1_000, added=2, per_read=5, now_ms=5_500)
    assert bucket.read(5_900) == b"2"
    assert bucket.read(5_999) == b"0"
    assert bucket.read(6_000) == b"2"
    assert bucket.read(8_999) == b"4"
    assert bucket.read(900_000) == b"5"
    assert bucket.read(900_000) == b"5"
    assert bucket.read(900_000) == b"0"


def test_no_bucket_gains_by_a_clock_that_steps_back() -> None:
    tokens = TokenBucket(size=3, period_ms=1_000, added=1, per_read=1, now_ms=9_000)
    leaky = LeakyBucket(size=1, leak_ms=1_000, now_ms=9_000)
    ticker = Ticker(5, 1_000, 9_000)
    assert (tokens.read(9_000), leaky.read(9_000), ticker.read(9_000)) == (b"1", b"1", b"5")
    for back_ms in (8_000, 0, 7_999):
        assert (tokens.read(back_ms), leaky.read(back_ms), ticker.read(back_ms)) == (b"0", b"0", b"5")


@calm
@given(st.lists(st.integers(0, 3_000), max_size=60), st.integers(1, 9), st.integers(1, 9))
def test_a_token_bucket_never_gives_more_than_its_windows_brought(waits: list[int], size: int, added: int) -> None:
    added = min(added, size)
    now_ms = start_ms = 10_000
    bucket = TokenBucket(size, 1_000, added, size, now_ms)
    given_out = 0
    for wait_ms in waits:
        now_ms += wait_ms
        given_out += int(bucket.read(now_ms))
    assert given_out <= added + added * (now_ms // 1_000 - start_ms // 1_000)


@calm
@given(st.lists(st.integers(0, 3_000), max_size=60), st.integers(1, 9))
def test_a_leaky_bucket_lets_in_its_size_and_what_has_leaked(waits: list[int], size: int) -> None:
    now_ms = 10_000
    bucket = LeakyBucket(size, 1_000, now_ms)
    let_in = 0
    for wait_ms in waits:
        now_ms += wait_ms
        let_in += int(bucket.read(now_ms))
        assert 0 <= bucket.level <= size
    assert let_in <= size + (now_ms - 10_000) // 1_000


@calm
@given(st.lists(st.integers(0, 5_000), max_size=40), st.integers(0, 30))
def test_a_ticker_falls_by_one_per_window_down_to_0(waits: list[int], value: int) -> None:
    now_ms = 12_345
    ticker = Ticker(value, 1_000, now_ms)
    for wait_ms in waits:
        now_ms += wait_ms
        assert int(ticker.read(now_ms)) == max(0, value - (now_ms // 1_000 - 12))


def test_a_counter_gives_no_number_twice_and_wraps_to_0() -> None:
    counter = Atomic()
    assert [counter.read(0) for _ in range(3)] == [b"1", b"2", b"3"]
    assert counter.write(0, None, b"%d" % (INT64_MAX - 1)) == b"9223372036854775806"
    assert [counter.read(0) for _ in range(3)] == [b"9223372036854775807", b"0", b"1"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"0", 0),
        (b"+7", 7),
        (b"007", 7),
        (b"-0", 0),
        (b"9223372036854775807", INT64_MAX),
        (b"9223372036854775808", None),
        (b"-1", None),
        (b"", None),
        (b" 7", None),
        (b"7\r", None),
        (b"1_0", None),
        (b"\xc2\xb2", None),
        ("٣".encode(), None),
    ],
)
def test_numbers_are_plain_decimals_of_64_bits(text: bytes, number: int | None) -> None:
    assert number_in(text) == number


def test_a_timeout_slot_is_its_writers_until_strictly_after_the_timeout() -> None:
    slot = TimeoutMemory(1_000)
    assert slot.write(0, "a", b"one") == b"one"
    assert slot.write(1_000, "b", b"two") is None
    assert slot.write(1_001, "b", b"two") == b"two"
    assert slot.write(1_002, "a", b"three") is None
    assert slot.read(99_999) == b"two"


# --- signals ----------------------------------------------------------------------------------------------------------


def board(more: dict, everybody: list[Ear] | None = None) -> Board:
    return Board(slots_of(more=more), 0, Random(7), lambda: everybody or [])


def test_a_multicast_reaches_those_who_registered_and_may_read() -> None:
    found = board({"100": {"kind": "multicast", "users": {"pepe": "r", "sammy": "a"}}})
    pepe, sammy, gone = Ear("pepe"), Ear("sammy"), Ear("pepe")
    for ear in (pepe, sammy, gone):
        assert found.table(ear.user)[b"s100"](ear, b"s100", 0) == b"v1001\n"
    assert found.table("pepe")[b"d100"](gone, b"d100", 0) == b"v1000\n"
    assert found.table("")[b"s100"](Ear(), b"s100", 0) == b"e100008\n"
    assert found.table("sammy")[b"w100"](sammy, b"w100hi", 0) == b"v1002/2/0\n"
    pepe.user = ""  # it logged out, and stays registered
    assert found.table("sammy")[b"w100"](sammy, b"w100ho", 0) == b"v1001/1/0\n"
    assert (pepe.heard, sammy.heard, gone.heard) == ([b"a100hi\n"], [b"a100hi\n", b"a100ho\n"], [])
    assert found.table("sammy")[b"r100"](sammy, b"r100", 0) == b"v100ho\n"


def test_a_random_signal_reaches_one_of_them_each_time() -> None:
    found = board({"100": {"kind": "random"}})
    assert found.table("")[b"w100"](Ear(), b"w100x", 0) == b"v1000/0/0\n"
    ears = [Ear() for _ in range(4)]
    for ear in ears:
        found.table("")[b"s100"](ear, b"s100", 0)
    for _ in range(200):
        assert found.table("")[b"w100"](ears[0], b"w100x", 0) == b"v1001/1/0\n"
    counts = [len(ear.heard) for ear in ears]
    assert sum(counts) == 200
    assert min(counts) > 20  # by this seed; chance itself is Python's


def test_whoever_does_not_take_its_messages_is_deregistered_in_time() -> None:
    slot = Signal("multicast", Random(1), tries=3, after_ms=1_000)
    ear = Ear()
    slot.register(ear)
    for now_ms in (0, 10, 20, 999):
        slot.delivered(now_ms, ear, False)
    assert ear in slot.registered, "often enough, and not long enough"
    slot.delivered(1_000, ear, True)
    for now_ms in (5_000, 7_000):
        slot.delivered(now_ms, ear, False)
    assert ear in slot.registered, "long enough, and not often enough"
    slot.delivered(7_001, ear, False)
    assert ear not in slot.registered
    assert ear.heard == [b"deregistered"]
    stream = Signal("broadcast", Random(1), tries=1, after_ms=0)
    stream.register(ear)
    stream.delivered(9_000, ear, False)
    assert ear in stream.registered, "a stream of a broadcast has its own bounds"


def test_a_slow_reader_of_a_broadcast_counts_as_failed() -> None:
    ears = [Ear(), Ear(takes=False), Ear()]
    found = board({}, ears)
    assert found.table("")[b"w014"](ears[0], b"w014x", 0) == b"v0142/3/1\n"


def test_register_is_no_command_where_nothing_can_be_registered() -> None:
    assert session_of(slots_of()).take(b"s000\nd000\n", 0) == b"exxx001\nexxx001\n"
    more = slots_of(more={"100": {"kind": "multicast"}})
    assert session_of(more).take(b"s000\nd014\ns999\ns100\n", 0) == b"e000010\ne014010\ne999005\nv1001\n"


def test_a_user_of_the_file_logs_in_in_small_letters_too() -> None:
    given_users = {"Pepe": "passw0rd"}
    slots = slots_of(more={"users": given_users, "100": {"kind": "simple_memory", "users": {"Pepe": "a"}}})
    for name in (b"Pepe", b"pepe"):
        assert session_of(slots).take(b"u" + name + b"\nppassw0rd\nw100x\n", 0).endswith(b"v100x\n")


# --- framing ----------------------------------------------------------------------------------------------------------


def session_of(slots: Slots, kind: type[Session] = Session, leads: bool = True) -> Session:
    hall = Hall(slots)
    if leads:
        hall.lead(Board(slots, 0, Random(1), lambda: ()))
    return kind(hall, lambda event: True)


LINES = st.one_of(
    st.binary(max_size=60).map(lambda line: line.replace(b"\n", b"")),
    st.sampled_from([b"r000", b"w000abc", b"w001" + b"x" * 36, b"w001" + b"x" * 37, b"r013", b"", b"\r", b"r-01"]),
    st.tuples(st.sampled_from([b"r", b"w", b"u", b"p", b"j", b"s", b"d"]), st.binary(max_size=8)).map(
        lambda pair: (pair[0] + pair[1]).replace(b"\n", b"")
    ),
)


@calm
@given(st.lists(LINES, max_size=30), st.lists(st.integers(1, 400), max_size=12), st.booleans())
def test_how_the_bytes_are_cut_changes_no_answer(lines: list[bytes], cuts: list[int], leads: bool) -> None:
    """The whole at once, and in any pieces: the same answers, but for a moment in between."""
    lines = [line for line in lines if not line.startswith(b"q")]
    for kind, end in ((Session, b"\n"), (TelnetSession, b"\r\n")):
        data = b"".join(line + end for line in lines)
        whole = session_of(slots_of(), kind, leads)
        wanted = whole.take(data, 0)
        pieces, left = [], data
        for cut in cuts:
            pieces.append(left[:cut])
            left = left[cut:]
        pieces.append(left)
        session = session_of(slots_of(), kind, leads)
        got = b""
        for piece in pieces:
            if piece and not session.closing:
                got += session.take(piece, 0)
        assert got == wanted
        if not whole.closing:
            assert whole.rest == b""
            assert len(wanted.splitlines()) >= len(lines)


def test_a_line_that_is_too_long_is_answered_once_however_it_comes() -> None:
    session = session_of(slots_of())
    assert session.take(b"w000" + b"x" * 50, 0) == b"exxx001\n"
    assert session.take(b"x" * 10_000, 0) == b""
    assert session.take(b"x\nr000\n", 0) == b"v000\n"
    assert session.rest == b""


def test_an_id_that_would_forge_an_answer_is_not_passed_on() -> None:
    session = session_of(slots_of(), leads=False)
    for leader, said in (("n1", b"n1"), ("n1\nv000forged", b""), ("a b", b""), ("ñ", "ñ".encode())):
        session.hall.follow(leader)
        assert session.take(b"r000\n", 0) == b"exxx000" + said + b"\n"
