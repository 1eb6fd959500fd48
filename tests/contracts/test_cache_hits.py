"""Hits: what is given straight from a value at hand is what the machine would give, byte for byte, and nothing more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from primacy.cache import sockets
from primacy.cache.inputs import Input
from primacy.cache.model import Ballot, CacheSettings, Meta
from primacy.cache.peer import Peer
from primacy.cache.security import ClientKey, ClientSeal, ServerSeal, client_secret
from primacy.cache.serving import Hot, Serving
from primacy.cache.sockets import CLIENTS_AT_ONCE, PeerSockets
from primacy.cache.wire import Dropped, integer
from primacy.cache.wire_client import (
    ID_BYTES_MAX,
    VALUE,
    Answer,
    GetRequest,
    Options,
    Remark,
    answer_frames,
    options_frame,
    read_request,
    request_frames,
)
from primacy.node.clock import HandClock
from tests.support.cache_served_peers import addresses

SECRET = b"a secret of 40 bytes for the tests of hits"
META = Meta(7, 1_700_000_900_000, Ballot(7, "tcp://10.0.0.1:6000", 1 << 62), 5, 1_699_999_999_000)
KNOWN = Options(10_000)
IDENTITY = b"\x00abcd"


class Vouches:
    """A machine that is in touch until a moment."""

    fresh_until_ms = 10_500


class Wire:
    """The messages that wait, and the frames that leave. Something may happen while messages are received."""

    def __init__(self) -> None:
        self.waiting: list[list[bytes]] = []
        self.left: list[list[bytes]] = [[]]
        self.meanwhile: Callable[[], None] = lambda: None
        self.steady: set[bytes] = set()

    def from_clients(self, most: int) -> list[list[bytes]]:
        found, self.waiting = self.waiting[:most], self.waiting[most:]
        self.meanwhile()
        return found

    def send_frame(self, frame: bytes, flags: int) -> None:
        self.left[-1].append(frame)
        if not flags & zmq.SNDMORE:
            self.left.append([])

    def to_client(self, frames: list[bytes]) -> bool:
        self.left[-1:] = [list(frames), []]
        return True

    @property
    def answers(self) -> list[list[bytes]]:
        assert self.left[-1] == [], "a message that has no end"
        return self.left[:-1]


class Bench:
    """A `Serving` with one value at hand, `k`, and what it tells the machine."""

    def __init__(self, sealed: bool = False) -> None:
        self.clock, self.wire = HandClock(), Wire()
        self.told: list[Input] = []
        self.seal = ServerSeal("c", [SECRET], self.clock.wall_ms()) if sealed else None
        self.client = ClientSeal("c", ClientKey("web", client_secret(SECRET, "c", "web")), 9)
        self.serving = Serving(
            Vouches(),  # type: ignore[arg-type]
            CacheSettings(),
            self.wire,  # type: ignore[arg-type]
            self.clock,
            self.told.append,
            lambda *_: None,
            self.seal,
        )
        self.serving._hot[b"k"] = Hot(META, b"value", META.expire_ms)
        self.serving._remember(options_frame(KNOWN), KNOWN)

    def ask(self, *asked: list[bytes]) -> list[list[bytes]]:
        """All of them are there when the turn begins."""
        for frames in asked:
            seal = [self.client.sealed(frames, self.clock.wall_ms())] if self.seal is not None else []
            self.wire.waiting.append([IDENTITY, *frames, *seal])
        self.serving.turn()
        return self.wire.answers

    def request(self, name: bytes = b"1", options: Options | None = KNOWN, key: bytes = b"k") -> list[bytes]:
        return request_frames(GetRequest(name, self.clock.wall_ms() + 1_000, key, 0, options))

    def expected(self, name: bytes, options: Options | None) -> list[bytes]:
        epoch, age_ms = META.epoch, self.clock.wall_ms() - META.fetched_ms
        remark = Remark(epoch.peer, term=epoch.term, boot=epoch.boot) if options is not None else None
        return answer_frames(Answer(name, VALUE, b"value", META.expire_ms, age_ms, remark=remark))


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("options", [None, KNOWN])
def test_a_hit_is_the_answer_of_the_machine_byte_for_byte(sealed: bool, options: Options | None) -> None:
    bench = Bench(sealed)
    for length in range(ID_BYTES_MAX + 1):
        bench.clock.ms += 3  # the age is that of each answer
        (answer,) = bench.ask(bench.request(bytes(length), options))
        assert answer.pop(0) == IDENTITY
        if sealed:
            seal = answer.pop()
            assert bench.client.is_good(answer, seal)
        assert answer == bench.expected(bytes(length), options)
        bench.wire.left = [[]]
    assert bench.serving.hits == ID_BYTES_MAX + 1


def test_a_turn_takes_no_more_than_it_is_told_to() -> None:
    bench = Bench()
    bench.wire.waiting = [[IDENTITY, *bench.request()] for _ in range(2 * CLIENTS_AT_ONCE + 3)]
    bench.serving.turn(CLIENTS_AT_ONCE + 2)
    assert bench.serving.hits == CLIENTS_AT_ONCE + 2
    assert len(bench.wire.waiting) == CLIENTS_AT_ONCE + 1
    bench.serving.turn()
    assert not bench.wire.waiting


def test_C12_a_process_that_stood_still_while_it_received_vouches_for_nothing() -> None:
    bench = Bench()

    def freeze() -> None:
        bench.clock.ms += 600

    bench.wire.meanwhile = freeze
    assert bench.ask(*[bench.request()] * 3) == []
    assert len(bench.told) == 3, "the machine is asked, which knows what was missed"


def test_what_expired_in_the_meantime_is_not_given() -> None:
    bench = Bench()
    bench.serving._hot[b"k"].until_ms = bench.clock.wall_ms() + 100

    def slowly() -> None:
        bench.clock.ms += 100

    bench.wire.meanwhile = slowly
    assert bench.ask(bench.request()) == []
    assert len(bench.told) == 1


def test_hits_and_other_requests_of_one_turn_keep_their_order() -> None:
    bench = Bench()
    before: list[int] = []
    bench.serving._tell = lambda asked: before.append(len(bench.wire.answers))
    names = [b"%d" % number for number in range(6)]
    keys = [b"k", b"k", b"cold", b"k", b"cold", b"k"]
    answers = bench.ask(*(bench.request(name, key=key) for name, key in zip(names, keys, strict=True)))
    assert [answer[1] for answer in answers] == [b"0", b"1", b"3", b"5"]
    assert before == [2, 3], "hits leave before what comes after them is told to the machine"


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("at", "frame"),
    [
        (2, b"\x00" * 6),  # it has expired
        (2, b""),
        (2, integer(1_700_000_100_000) + b"\x00" * 40),  # no integer has so many bytes
        (2, b"\xff" * 7),
        (4, b"\xff" * 7),
        (4, b"\x01" + b"\x00" * 40),
        (0, b"n" * (ID_BYTES_MAX + 1)),
        (1, b"*"),
        (1, b""),
        (3, b""),
        (5, b"\xc1\x02"),
        (5, b"\xc1\x01\xc1"),
    ],
)
def test_what_cannot_be_read_is_no_hit(sealed: bool, at: int, frame: bytes) -> None:
    bench = Bench(sealed)
    asked = bench.request()
    asked[at] = frame
    assert not any(answer[2] == VALUE for answer in bench.ask(asked) if len(answer) > 2)
    assert bench.serving.hits == 0
    assert bench.serving.dropped.total() + len(bench.told) <= 1


@given(st.data())
def test_what_is_a_hit_is_a_request_that_is_good(data: st.DataObject) -> None:
    """Frames are changed, left out and added; then the strict reader is asked."""
    bench = Bench()
    frames = bench.request()
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, max(0, len(frames) - 1)))
        match data.draw(st.sampled_from(["change", "leave out", "add", "pad"])):
            case "change" if frames:
                frames[at] = data.draw(st.binary(max_size=80))
            case "leave out" if frames:
                del frames[at]
            case "pad" if frames:
                frames[at] += bytes(data.draw(st.integers(1, 40)))
            case _:
                frames.insert(at, data.draw(st.binary(max_size=8)))
    bench.wire.waiting = [[IDENTITY, *frames]]
    bench.serving.turn()
    read = read_request(frames)
    if bench.serving.hits:
        assert isinstance(read, GetRequest)
        assert read.key == b"k"
        assert read.expiry_ms >= bench.clock.wall_ms()
    elif isinstance(read, Dropped):
        assert bench.serving.dropped.total() == 1


@pytest.mark.parametrize("change", ["replay", "frame", "tag", "unsealed", "short", "cut"])
def test_a_sealed_hit_needs_its_seal(change: str) -> None:
    bench = Bench(sealed=True)
    asked = bench.request()
    good = [IDENTITY, *asked, bench.client.sealed(asked, bench.clock.wall_ms())]
    bad = list(good)
    match change:
        case "frame":
            bad[3] = integer(bench.clock.wall_ms() + 2_000)
        case "tag":
            bad[-1] = bad[-1][:-1] + bytes((bad[-1][-1] ^ 1,))
        case "unsealed":
            bad.pop()
        case "short":
            bad = bad[:2]
        case "cut":
            bad[4:6] = [bad[4] + bad[5], b""]
    if change == "replay":
        bench.wire.waiting = [list(good)]
        bench.serving.turn()
        bench.serving.hits = 0
        bench.wire.left = [[]]
    bench.wire.waiting = [bad]
    bench.serving.turn()
    assert (bench.serving.hits, bench.wire.answers, bench.told) == (0, [], [])
    assert bench.serving.dropped.total() == 1
    if change != "replay":
        bench.wire.waiting = [good]
        bench.serving.turn()
        assert bench.serving.hits == 1, "the true one is heard all the same"


def test_large_messages_are_taken_one_at_a_time_and_all_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "AT_ONCE_S", -1.0)
    asyncio.run(one_at_a_time())


async def one_at_a_time() -> None:
    ((url, api),) = addresses(1)
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    counts: list[int] = []
    try:
        async with Peer(url, api) as peer:
            receive = peer._sockets.from_clients

            def counted(most: int) -> list[list[bytes]]:
                found = receive(most)
                counts.append(len(found))
                return found

            peer._sockets.from_clients = counted
            assert isinstance(peer._sockets, PeerSockets)
            assert (await peer.put(b"k", b"value", 60_000)).ok
            socket.connect(api)
            expiry_ms = time.time_ns() // 1_000_000 + 30_000
            for number in range(30):
                socket.send_multipart(request_frames(GetRequest(b"%d" % number, expiry_ms, b"k", 0, KNOWN)))
            found: list[bytes] = []
            async with asyncio.timeout(60):
                while len(found) < 30:
                    if socket.poll(0):
                        found.append(socket.recv_multipart()[0])
                    else:
                        await asyncio.sleep(0.005)
    finally:
        socket.close(0)
        context.term()
    assert found == [b"%d" % number for number in range(30)]
    assert max(counts) == 1
