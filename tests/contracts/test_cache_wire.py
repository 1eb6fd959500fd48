"""Frames of the cache: the original's vectors both ways, round trips, and what strangers may send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primacy.cache import messages as m
from primacy.cache import wire_client as wc
from primacy.cache.model import NO_BALLOT, TERM_MAX, Ballot, Floor
from primacy.cache.wire import (
    TAG,
    Bad,
    Dropped,
    Heard,
    Limits,
    Reader,
    bundle_frames,
    integer,
    peer_frames,
    read_flag,
    read_integer,
)

FACTS = json.loads((Path(__file__).parents[1] / "data/ha_cache_frames.json").read_text())
VECTORS = {one["name"]: one for one in FACTS["vectors"]}
A, B, C = "tcp://127.0.0.1:23000", "tcp://127.0.0.1:23001", "tcp://127.0.0.1:23002"
TRAILER = m.Trailer(7, 6, 2**63 + 5, 3, Ballot(9, A, 4), 1, Ballot(8, B, 2), 5, 620, True, 2**64 - 1, 1, 2, 3, 4, 5)


def frames_of(name: str) -> list[bytes]:
    return [bytes.fromhex(one) for one in VECTORS[name]["frames"]]


@pytest.mark.parametrize("one", FACTS["integers"], ids=lambda one: one["hex"])
def test_integers_are_the_originals(one: dict[str, Any]) -> None:
    assert integer(one["value"]).hex() == one["hex"]
    assert read_integer(bytes.fromhex(one["hex"])) == one["value"]


@pytest.mark.parametrize("one", FACTS["integers_read_only"], ids=lambda one: one["hex"])
def test_integers_that_are_read_and_never_written(one: dict[str, Any]) -> None:
    if "error" in one:
        with pytest.raises(Bad, match=r".*"):
            read_integer(bytes.fromhex(one["hex"]))
    else:
        assert read_integer(bytes.fromhex(one["hex"])) == one["value"]


@pytest.mark.parametrize("one", FACTS["votes"], ids=lambda one: one["hex"])
def test_votes_are_the_originals(one: dict[str, Any]) -> None:
    assert read_flag(bytes.fromhex(one["hex"])) is one["vote"]


PEER_VECTORS = {
    "question_broadcast": ("*", m.Question(b"alpha", 0)),
    "question_retry_targeted": (C, m.Question(b"alpha", 0)),
    "question_next_term": ("*", m.Question(b"alpha", 1)),
    "entryreq_targeted": (C, m.EntryRequest(b"alpha")),
    "announce_targeted": (B, m.Announce(b"alpha", 1, 0)),
    "update_broadcast": ("*", m.Update(b"alpha", 1, 1794704429896, b"value-of-alpha-by-0-call-1")),
    "update_targeted": (B, m.Update(b"alpha", 9, 1794704429896, b"value-of-alpha-by-0-call-1")),
    "pong": (B, m.Pong()),
    "answer_yes": (B, m.Answer(b"beta", 0, 0, True)),
    "ping_broadcast": ("*", m.Ping()),
}
CLIENT_VECTORS = {
    "client_get": wc.GetRequest(b"1", 1794704437506, b"k"),
    "client_get_fresh": wc.GetRequest(b"1", 1794704445615, b"k2", 1794704440611),
    "client_discover": wc.DiscoverRequest(b"1", 1794704446534),
}
ANSWER_VECTORS = {
    "client_keepalive": wc.Answer(b"1", b""),
    "client_value": wc.Answer(b"1", b"=", b"value-of-alpha-by-0-call-1", 1794704429896),
    "client_servers": wc.Answer(
        b"3", b"*", servers=("tcp://127.0.0.1:24000", "tcp://127.0.0.1:24001", "tcp://127.0.0.1:24002")
    ),
}


def test_every_vector_is_tried() -> None:
    assert sorted(VECTORS) == sorted([*PEER_VECTORS, *CLIENT_VECTORS, *ANSWER_VECTORS])


@pytest.mark.parametrize("name", PEER_VECTORS)
def test_peer_vectors_both_ways(name: str) -> None:
    to, message = PEER_VECTORS[name]
    assert peer_frames(to, A, message) == frames_of(name)
    me = to if to != "*" else B
    assert Reader(me, (A, B, C)).read(frames_of(name)) == Heard(A, message)


@pytest.mark.parametrize("name", CLIENT_VECTORS)
def test_request_vectors_both_ways(name: str) -> None:
    assert wc.request_frames(CLIENT_VECTORS[name]) == frames_of(name)
    assert wc.read_request(frames_of(name)) == CLIENT_VECTORS[name]


@pytest.mark.parametrize("name", ANSWER_VECTORS)
def test_answer_vectors_both_ways(name: str) -> None:
    assert wc.answer_frames(ANSWER_VECTORS[name]) == frames_of(name)
    assert wc.read_answer(frames_of(name)) == ANSWER_VECTORS[name]


def test_see_other_has_two_frames() -> None:
    assert wc.answer_frames(wc.Answer(b"1", wc.SEEOTHER)) == [b"1", b"#"]


def test_W_S5_a_target_that_only_begins_alike_is_not_obeyed() -> None:
    reader = Reader("tcp://127.0.0.1:600", (A,))
    for target in ("tcp://127.0.0.1:6000", "*nobody", "tcp://127.0.0.1:60", ""):
        assert reader.read(peer_frames(target, A, m.Ping())) == Dropped("target: another peer")
    for target in ("*", "tcp://127.0.0.1:600"):
        assert reader.read(peer_frames(target, A, m.Ping())) == Heard(A, m.Ping())


def test_W_S8_a_sender_that_is_not_listed_is_not_heard() -> None:
    reader = Reader(B, (A, B, C))
    assert reader.read(peer_frames("*", "tcp://127.0.0.1:9", m.Ping())) == Dropped("sender: not in the list")
    assert reader.read(peer_frames("*", B, m.Ping())) == Dropped("sender: not in the list"), (
        "its own words come from it"
    )


@pytest.mark.parametrize(
    "frames",
    [
        [b"*", A.encode(), b"Q", b"k"],
        [b"*", A.encode(), b"A", b"k", b"\0", b"\0"],
        [b"*", A.encode(), b"Q", b"k", b""],
        [b"*", A.encode(), b"Q", b"k", b"\xff" * 8],
        [b"*", A.encode(), b"Q", b"k", b"\0" * 33],
        [b"*", A.encode(), b"Q", b"", b"\0"],
        [b"*", A.encode(), b"QQ", b"k", b"\0"],
        [b"*", A.encode(), b"", b"k", b"\0"],
        [b"*", A.encode()],
        [],
        [b"*", A.encode(), b".", *[b""] * 40],
        [b"*", A.encode(), b".", TAG],
        [b"*", A.encode(), b".", b"\xc1\x02"],
        [b"*", A.encode(), b".", TAG + b"\x90"],
        [b"*", A.encode(), b"k", b"key"],
        [b"*", A.encode(), b"k", b"key", b"trailer"],
        [b"*", A.encode(), b"=", b"k", b"\1", b"\1", b"x" * 65],
        [b"*", A.encode(), b"Q", b"k" * 17, b"\1"],
    ],
)
def test_W_L6_malformed_peer_messages_are_dropped_with_a_reason(frames: list[bytes]) -> None:
    found = Reader(B, (A, B), Limits(16, 64)).read(frames)
    assert isinstance(found, Dropped)
    assert found.reason


@pytest.mark.parametrize(
    "frames",
    [
        [b"1", b"?", b"\xff" * 8, b"k"],
        [b"1", b"?", b"", b"k"],
        [b"1", b"?", b"\1"],
        [b"1", b"?", b"\1", b""],
        [b"1", b"??", b"\1", b"k"],
        [b"1", b"", b"\1", b"k"],
        [b"1", b"z", b"\1", b"k"],
        [b"1"],
        [],
        [b"1", b"?", b"\1", b"k", b"\xff" * 8],
        [b"1", b"?", b"\1", b"k", b"\0", TAG + b"\xff"],
        [b"1", b"?", b"\1", b"k", b"\0", b"\xc1\x07"],
        [b"1", b"?", b"\1", b"k" * 17],
        [b"1" * 65, b"?", b"\1", b"k"],
        [b"1", b"x", b"\1", b"", b"", wc.options_frame(wc.Options())],
        [b"1", b"x", b"\1", b"k", b"", b"none"],
        [b"1", b"p", b"\1", b"k", b"\1", b"x" * 65, wc.options_frame(wc.Options())],
        [b"1", b"c", b"\1", b"k", b"", TAG + b"\x90"],
    ],
)
def test_W_L6_malformed_requests_are_dropped_with_a_reason(frames: list[bytes]) -> None:
    found = wc.read_request(frames, Limits(16, 64))
    assert isinstance(found, Dropped)
    assert found.reason


def test_a_frame_behind_the_known_ones_changes_nothing() -> None:
    """The original ignores it on every message; so do we, unless it says that it is one of ours."""
    reader = Reader(B, (A, B))
    for _, message in PEER_VECTORS.values():
        assert reader.read([*peer_frames("*", A, message), b"extra"]) == Heard(A, message)
        with_trailer = message._replace(trailer=TRAILER)  # type: ignore[attr-defined]
        assert reader.read([*peer_frames("*", A, with_trailer), b"seal"]) == Heard(A, with_trailer)
    get = wc.GetRequest(b"1", 5, b"k", 3)
    assert wc.read_request([*wc.request_frames(get), b"extra"]) == get


def test_only_a_client_that_sends_options_needs_a_later_frame() -> None:
    plain = wc.request_frames(wc.GetRequest(b"1", 5, b"k"))
    own = wc.request_frames(wc.GetRequest(b"1", 5, b"k", options=wc.Options(fetch=False)))
    assert own[: len(plain)] == plain
    assert own[4] == b"\0", "`after` is said before anything stands behind it"
    assert wc.read_request(own) == wc.GetRequest(b"1", 5, b"k", 0, wc.Options(fetch=False))


def test_a_bundle_is_what_it_holds_and_nothing_more() -> None:
    reader = Reader(B, (A, B))
    said = [message for _, message in PEER_VECTORS.values()]
    bodies = [peer_frames("*", A, message)[2:] for message in said]
    assert reader.read_all(bundle_frames(B, A, bodies)) == [Heard(A, message) for message in said]
    assert reader.read_all(bundle_frames(C, A, bodies)) == [Dropped("target: another peer")]
    assert reader.read_all(bundle_frames(B, C, bodies)) == [Dropped("sender: not in the list")]
    assert reader.read_all(bundle_frames(B, A, [])) == [Dropped("bundle: unreadable")]
    assert reader.read_all(bundle_frames(B, A, [[]])) == [Dropped("bundle: unreadable")]
    assert reader.read_all(bundle_frames(B, A, bodies * 13)) == [Dropped("bundle: unreadable")], "128 at most"
    nested = bundle_frames(B, A, bodies)[2:]
    assert reader.read_all(bundle_frames(B, A, [nested])) == [Dropped("type: unknown")], "no bundle in a bundle"
    assert reader.read_all([B.encode(), A.encode(), b"b"]) == [Dropped("type: unknown")]
    assert reader.read_all(peer_frames(B, A, m.Ping())) == [Heard(A, m.Ping())]


def test_several_keys_in_one_message_are_bounded_and_checked() -> None:
    reader = Reader(B, (A, B), Limits(key_bytes_max=16))
    trailer = m.Trailer(boot=3)

    def read(*keys: m.Numbered) -> Heard | Dropped:
        return reader.read(peer_frames(B, A, m.Announces(keys, trailer)))

    one = m.Numbered(b"k", 5, 2)
    assert read(one, one._replace(key=b"l")) == Heard(A, m.Announces((one, one._replace(key=b"l")), trailer))
    assert read() == Dropped("keys: unreadable")
    assert isinstance(read(*[one] * 128), Heard)
    assert read(*[one] * 129) == Dropped("keys: unreadable")
    assert read(one._replace(key=b"")) == Dropped("key: empty")
    assert read(one._replace(key=b"k" * 17)) == Dropped("key: too long")
    assert read(one._replace(term=TERM_MAX + 1)) == Dropped("keys: unreadable")
    assert read(one._replace(number=-1)) == Dropped("keys: unreadable")
    whole = peer_frames(B, A, m.Acks((one,), trailer))
    assert reader.read([*whole[:3], b"\x91\xff", *whole[4:]]) == Dropped("keys: unreadable")
    assert reader.read([*whole[:3], b"\x90" * 300_000, *whole[4:]]) == Dropped("keys: too long")
    assert reader.read(whole[:4]) == Dropped("trailer: missing")


# --- round trips ------------------------------------------------------------------------------------------------------

keys = st.binary(min_size=1, max_size=40)
prefixes = st.binary(max_size=40)
terms = st.integers(0, TERM_MAX)
longs = st.integers(0, 2**64 - 1)
ballots = st.one_of(st.just(NO_BALLOT), st.builds(Ballot, terms, st.sampled_from([A, B, C]), longs))
trailers = st.builds(
    m.Trailer, longs, longs, longs, longs, ballots, longs, ballots, terms, terms, st.booleans(), longs, terms, terms,
    terms, terms, longs,
)  # fmt: skip
maybe = st.one_of(st.none(), trailers)
numbered = st.lists(st.builds(m.Numbered, keys, terms, longs), min_size=1, max_size=5).map(tuple)
plain_floors = st.builds(Floor, keys, st.booleans(), terms)
peer_messages = st.one_of(
    st.builds(m.Question, keys, terms, maybe),
    st.builds(m.Answer, keys, terms, terms, st.booleans(), maybe),
    st.builds(m.EntryRequest, keys, maybe),
    st.builds(m.Update, keys, terms, terms, st.binary(max_size=50), maybe),
    st.builds(m.Announce, keys, terms, terms, maybe),
    st.builds(m.Ping, maybe),
    st.builds(m.Pong, maybe),
    st.builds(m.Ack, keys, trailers),
    st.builds(m.Announces, numbered, trailers),
    st.builds(m.Acks, numbered, trailers),
    st.builds(m.FloorQuery, prefixes, st.just(True), terms, trailers),
    st.builds(m.FloorQuery, keys, st.just(False), terms, trailers),
    st.builds(m.FloorAnswer, keys, st.booleans(), terms, terms, trailers),
    st.builds(m.FloorSet, plain_floors, terms, trailers),
    st.builds(m.FloorAck, plain_floors, terms, terms, trailers),
    st.builds(m.FloorsRequest, prefixes, trailers),
    st.builds(m.Floors, st.lists(plain_floors, max_size=5).map(tuple), st.booleans(), trailers),
)
options = st.builds(wc.Options, terms, st.booleans(), st.booleans(), st.booleans())
ids = st.binary(max_size=64)
requests = st.one_of(
    st.builds(wc.GetRequest, ids, terms, keys, terms, st.one_of(st.none(), options)),
    st.builds(wc.DiscoverRequest, ids, terms),
    st.builds(wc.InvalidateRequest, ids, terms, keys, st.booleans(), options),
    st.builds(wc.RefreshRequest, ids, terms, keys, options),
    st.builds(wc.PutRequest, ids, terms, keys, terms, st.binary(max_size=50), options),
    st.builds(
        wc.ClaimRequest, ids, terms, keys,
        st.builds(wc.ClaimReport, terms, st.just(A), longs, st.sampled_from(["alive", "value", "failed"]), terms,
                  st.binary(max_size=50), st.text(max_size=30)),
    ),
)  # fmt: skip
remarks = st.one_of(
    st.none(),
    st.builds(wc.Remark, st.sampled_from(["", A]), st.booleans(), st.booleans(), st.text(max_size=30),
              st.lists(st.sampled_from([A, B]), max_size=2).map(tuple), terms, longs, terms),
)  # fmt: skip


@given(peer_messages, st.sampled_from(["*", B]))
def test_peer_messages_come_back(message: m.Message, to: str) -> None:
    assert Reader(B, (A, B, C)).read(peer_frames(to, A, message)) == Heard(A, message)


@given(requests)
def test_requests_come_back(request: wc.Request) -> None:
    assert wc.read_request(wc.request_frames(request)) == request


@given(ids, remarks, st.integers(0, 2**48 - 1), st.binary(max_size=50), terms)
def test_answers_come_back(name: bytes, remark: wc.Remark | None, age_ms: int, value: bytes, expire_ms: int) -> None:
    age_ms = age_ms if remark is not None else 0
    for answer in (
        wc.Answer(name, b""),
        wc.Answer(name, wc.VALUE, value, expire_ms, age_ms, remark=remark),
        wc.Answer(name, wc.SEEOTHER, age_ms=age_ms, remark=remark),
        wc.Answer(name, wc.DONE, age_ms=age_ms, remark=remark),
        wc.Answer(name, wc.SERVERS, servers=(A, B)),
    ):
        assert wc.read_answer(wc.answer_frames(answer)) == answer


@st.composite
def mutated(draw: st.DrawFn, whole: st.SearchStrategy[list[bytes]]) -> list[bytes]:
    """Some frames, after some of them were cut, swapped, doubled, changed or taken out."""
    frames = draw(whole)
    for _ in range(draw(st.integers(1, 4))):
        if not frames:
            break
        at = draw(st.integers(0, len(frames) - 1))
        match draw(st.sampled_from(["out", "twice", "other", "cut", "bit", "swap"])):
            case "out":
                del frames[at]
            case "twice":
                frames.insert(at, frames[at])
            case "other":
                frames[at] = draw(st.binary(max_size=80))
            case "cut":
                frames[at] = frames[at][: draw(st.integers(0, len(frames[at])))]
            case "bit" if frames[at]:
                changed = bytearray(frames[at])
                changed[draw(st.integers(0, len(changed) - 1))] ^= 1 << draw(st.integers(0, 7))
                frames[at] = bytes(changed)
            case "swap":
                to = draw(st.integers(0, len(frames) - 1))
                frames[at], frames[to] = frames[to], frames[at]
    return frames


@given(mutated(peer_messages.map(lambda message: peer_frames("*", A, message))))
def test_mutated_peer_messages_are_read_or_dropped(frames: list[bytes]) -> None:
    found = Reader(B, (A, B, C), Limits(64, 64)).read(frames)
    if isinstance(found, Heard):  # whatever it means, it can be said again and means the same
        again = Reader(B, (A, B, C), Limits(64, 64)).read(peer_frames("*", found.sender, found.message))
        assert again == found


@given(mutated(requests.map(wc.request_frames)))
def test_mutated_requests_are_read_or_dropped(frames: list[bytes]) -> None:
    found = wc.read_request(frames, Limits(64, 64))
    if not isinstance(found, Dropped):
        assert wc.read_request(wc.request_frames(found), Limits(64, 64)) == found


answers = st.builds(
    wc.Answer, ids, st.sampled_from([b"=", b"#", b"d", b"c"]), st.just(b"v"), terms, st.just(1), st.just(()), remarks
)


@given(mutated(answers.map(wc.answer_frames)))
def test_mutated_answers_are_read_or_dropped(frames: list[bytes]) -> None:
    assert isinstance(wc.read_answer(frames, Limits(64, 64)), wc.Answer | Dropped)


@given(st.lists(st.binary(max_size=60), max_size=12))
def test_any_frames_are_read_or_dropped(frames: list[bytes]) -> None:
    assert isinstance(Reader(B, (A, B)).read(frames), Heard | Dropped)
    Reader(B, (A, B)).read_all([b"*", A.encode(), b"b", *frames])
    wc.read_request(frames)
    wc.read_answer(frames)


def test_a_page_of_floors_is_read_however_short_values_are() -> None:
    """Else two peers with different floors would never count each other's answers again."""
    page = m.Floors(tuple(Floor(b"%020d" % each, False, 7) for each in range(50)), False, m.Trailer(membership=1))
    reader = Reader(B, (A, B), Limits(value_bytes_max=100))
    assert reader.read(peer_frames(B, A, page)) == Heard(A, page)
