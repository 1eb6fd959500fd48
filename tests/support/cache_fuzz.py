"""Random and mutated frames on both ports of a real peer, and requests by HTTP, beside clients that use it. Stays up,
right and small.

python -m tests.support.cache_fuzz SECONDS SEED
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import aiohttp
import zmq

from primacy.cache import messages as m
from primacy.cache import wire_client as wc
from primacy.cache.client import Client
from primacy.cache.model import TERM_MAX, Ballot, Floor
from primacy.cache.wire import peer_frames
from primacy.errors import NotReached
from tests.support.cache_peers import Crowd
from tests.support.safety_checks import safe

GROWTH_KB_MAX = 60_000
"""Of a peer's memory, once it has warmed up: queues and tables that are bounded may still fill."""
PAUSE_S = 0.002
VISIT_S = 2.0
VISITS_MAX = 40
"""Connections by HTTP of the attacker that are open at one time: fewer than a peer allows."""


def any_message(chance: Random, peers: list[str]) -> m.Message:
    """A message of a listed peer that can be read and means nothing good."""
    ballot = Ballot(
        chance.choice([0, 1, chance.getrandbits(41), TERM_MAX]), chance.choice(peers), chance.getrandbits(64)
    )
    trailer = m.Trailer(*(chance.choice([0, 1, chance.getrandbits(40)]) for _ in range(4)), ballot, chance.randrange(3),  # type: ignore[call-arg]
                        ballot, chance.getrandbits(30), chance.randrange(5_000), chance.random() < 0.5)  # fmt: skip
    key = chance.choice([b"k", b"fuzz%d" % chance.randrange(50)])
    term, floor = (
        chance.choice([0, 1, chance.getrandbits(41)]),
        Floor(b"fuzz", chance.random() < 0.5, chance.getrandbits(20)),
    )
    own = chance.choice([trailer, trailer, None])
    numbered = tuple(m.Numbered(b"fuzz%d" % each, term, chance.randrange(9)) for each in range(chance.randrange(4)))
    return chance.choice(  # type: ignore[return-value]
        [
            m.Question(key, term, own),
            m.Answer(key, term, chance.getrandbits(41), chance.random() < 0.5, own),
            m.EntryRequest(key, own),
            m.Update(b"fuzz%d" % chance.randrange(50), term, chance.getrandbits(41), chance.randbytes(50), own),
            m.Announce(key, term, chance.getrandbits(41), own),
            m.Ping(own),
            m.Pong(own),
            m.Ack(key, trailer),
            m.Announces(numbered, trailer),
            m.Acks(numbered, trailer),
            m.FloorQuery(key, False, chance.randrange(9), trailer),
            m.FloorAnswer(key, False, chance.randrange(9), term, trailer),
            m.FloorSet(floor, chance.randrange(9), trailer),
            m.FloorAck(floor, chance.randrange(9), term, trailer),
            m.FloorsRequest(key, trailer),
            m.Floors((floor,), chance.random() < 0.5, trailer),
        ]
    )


def any_request(chance: Random) -> wc.Request:
    key = b"fuzz%d" % chance.randrange(20)
    expiry_ms = int(time.time() * 1_000) + chance.choice([5_000, -5_000, 10**9])
    options = wc.Options(
        chance.choice([0, 1, 300]), chance.random() < 0.5, chance.random() < 0.2, chance.random() < 0.2
    )
    name = chance.randbytes(3)
    return chance.choice(  # type: ignore[return-value]
        [
            wc.GetRequest(name, expiry_ms, key, chance.choice([0, expiry_ms]), chance.choice([None, options])),
            wc.DiscoverRequest(name, expiry_ms),
            wc.InvalidateRequest(name, expiry_ms, key, chance.random() < 0.2, options),
            wc.RefreshRequest(name, expiry_ms, key, options),
            wc.PutRequest(name, expiry_ms, key, chance.choice([0, 50, 5_000]), chance.randbytes(40), options),
            wc.ClaimRequest(name, expiry_ms, key, wc.ClaimReport(1, "tcp://x:1", 2, "value", 5, b"v")),
        ]
    )


def mutated(chance: Random, frames: list[bytes]) -> list[bytes]:
    frames = list(frames)
    for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
        at = chance.randrange(len(frames)) if frames else 0
        match chance.randrange(7):
            case 0 if frames:
                del frames[at]
            case 1 if frames:
                frames.insert(at, frames[at])
            case 2:
                frames.insert(at, chance.randbytes(chance.choice([0, 1, 7, 100, 70_000])))
            case 3 if frames and frames[at]:
                changed = bytearray(frames[at])
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
                frames[at] = bytes(changed)
            case 4 if frames:
                frames[at] = frames[at][: chance.randrange(len(frames[at]) + 1)]
            case 5 if frames:
                frames[at] = chance.choice([b"", b"\xff" * 8, b"\0" * 40, b"*", b"\xc1\x01", b"\xc1\x02"])
            case 6:
                chance.shuffle(frames)
    return frames or [b""]


def any_http(chance: Random) -> bytes:
    """A request by HTTP that nearly makes sense, or a mutation of one."""
    method = chance.choice([*["GET"] * 8, "HEAD", "DELETE", "POST", "OPTIONS", "get", "\x7f"])
    odd = chance.choice(["%00", "%zz", "a/b/../c", "%ff" * 50, "x" * 9_000, "", "é"])
    key = chance.choice([f"fuzz{chance.randrange(20)}", odd])
    path = chance.choice([*[f"/cache/{key}"] * 6, "/healthz", "/", "*", f"http://127.0.0.1/cache/{key}"])
    query = chance.choice(
        ["", "?fetch=0", "?within_ms=50", "?within_ms=-1", "?fresh=1&fresh=0", "?within_ms=50&fetch=no"]
    )
    headers = chance.sample(
        [
            "Host: 127.0.0.1",
            "Host: elsewhere.example",
            'If-None-Match: *, "x',
            "Content-Length: 5",
            "Content-Length: -1",
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
            "X-Primacy: 1",
            f"X-Primacy-Key: {'k' * 63}",
            "Connection: close",
            f"X-Long: {'y' * chance.choice([10, 9_000, 70_000])}",
        ],
        chance.choice([0, 0, 0, 1, 1, 2, 4]),
    )
    lines = [
        f"{method} {path}{query} HTTP/{chance.choice([*['1.1'] * 6, '1.0', '2', 'x'])}",
        "Host: 127.0.0.1",
        *headers,
    ]
    said = bytearray("\r\n".join([*lines, "", chance.choice(["", "", "hello", "5\r\nhello\r\n0\r\n\r\n"])]).encode())
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        at = chance.randrange(len(said))
        match chance.randrange(4):
            case 0:
                said[at] ^= 1 << chance.randrange(8)
            case 1:
                del said[at:]
            case 2:
                said[at:at] = chance.randbytes(chance.choice([1, 20, 5_000]))
            case 3:
                said[at:at] = said[: chance.randrange(200)]
        said = said or bytearray(b"\r")
    return bytes(said)


def rss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("a process without memory")


async def fuzzed(folder: Path, seconds: float, seed: int, *, liar: bool = False) -> str:
    """Three real peers. A fourth address is listed, and bound by the attacker, who speaks as that peer.

    `liar`: the attacker also repeats and changes what real peers say, as if it were its own. No rule holds against a
    listed peer that lies, so that calls at the same time and keys that stand still are not judged then: only that no
    peer ends, grows, or gives a value that the source did not."""
    context = zmq.Context()
    try:
        async with Crowd(folder, 3, 0.02, silent=1, judged=not liar, http=True) as crowd:
            attacker = Attacker(context, crowd, Random(seed), liar)
            attacker.http_ports = [(await crowd.counts(each))["http"] for each in range(3)]
            try:
                return await _attacked(crowd, attacker, seconds)
            finally:
                attacker.close()
    finally:
        context.term()


class Attacker:
    """Speaks as the listed peer that was not started, and as any number of clients."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], crowd: Crowd, chance: Random, liar: bool) -> None:
        self._crowd, self.chance, self.liar = crowd, chance, liar
        self._peers = [*crowd.urls, *crowd.silent_urls]
        self._overheard: deque[list[bytes]] = deque(maxlen=200)
        self._bus, self._ear = context.socket(zmq.PUB), context.socket(zmq.SUB)
        self._dealers = [context.socket(zmq.DEALER) for _ in crowd.apis]
        for each in (self._bus, self._ear, *self._dealers):
            each.linger = 0
        self._bus.bind(crowd.silent_urls[0])
        self._ear.subscribe(b"")
        for url in crowd.urls:
            self._ear.connect(url)
        for dealer, api in zip(self._dealers, crowd.apis, strict=True):
            dealer.connect(api)
        self.sent = 0
        self.http_ports: list[int] = []
        self._visits: deque[socket.socket] = deque()

    def close(self) -> None:
        for visit in self._visits:
            visit.close()
        for each in (self._bus, self._ear, *self._dealers):
            each.close()

    def some(self) -> None:
        """Twenty of each kind."""
        while self._ear.poll(0):
            self._overheard.append(self._ear.recv_multipart())
        for _ in range(20):
            self._bus.send_multipart(mutated(self.chance, self._message()))
            dealer = self.chance.choice(self._dealers)
            dealer.send_multipart(mutated(self.chance, wc.request_frames(any_request(self.chance))))
            while dealer.poll(0):
                dealer.recv_multipart()
            self.sent += 2

    def visit(self) -> None:
        """One more connection by HTTP; some of the last ones stay open, and read nothing."""
        visit = socket.socket()
        visit.settimeout(VISIT_S)
        self._visits.append(visit)
        with contextlib.suppress(OSError):  # who has enough of it hangs up
            visit.connect(("127.0.0.1", self.chance.choice(self.http_ports)))
            visit.sendall(any_http(self.chance))
            self.sent += 1
        while len(self._visits) > VISITS_MAX:
            self._visits.popleft().close()

    def _message(self) -> list[bytes]:
        chance, silent = self.chance, self._crowd.silent_urls[0]
        if self.liar and self._overheard and chance.random() < 0.7:
            frames = list(chance.choice(self._overheard))
            frames[0], frames[1] = chance.choice([b"*", frames[0]]), silent.encode()
            return frames
        to = chance.choice(["*", "*", *self._crowd.urls, "*x", self._peers[0] + "0"])
        whose = chance.choice([silent, silent, self._crowd.urls[0], "tcp://nobody:1"])
        return peer_frames(to, whose, any_message(chance, self._peers))


async def by_http(session: aiohttp.ClientSession, port: int, key: str) -> bool:
    """Whether there was an answer; a wrong one is a violation, and so is a fault of the server."""
    async with session.get(f"http://127.0.0.1:{port}/cache/{key}?within_ms=8000") as answer:
        value = await answer.read()
        safe(answer.status in (200, 502, 503, 504), f"HTTP {answer.status} for {key}: {value[:200]!r}")
        right = value.startswith(f"value of {key} by ".encode())
        safe(answer.status != 200 or right, f"a wrong answer by HTTP: {value[:200]!r}")
        return answer.status == 200


async def _attacked(crowd: Crowd, attacker: Attacker, seconds: float) -> str:
    chance, right, stuck, by_web = attacker.chance, 0, 0, 0
    each_its_own = aiohttp.TCPConnector(force_close=True)
    async with Client(crowd.apis, timeout_ms=8_000) as cache, aiohttp.ClientSession(connector=each_its_own) as session:
        await asyncio.sleep(0.5)
        await cache.get("warm")
        until_s, warm_s, is_warm = time.monotonic() + seconds, time.monotonic() + seconds / 3, False
        before = [rss_kb(process.pid) for process in crowd.processes]  # a slow machine may have no turn once it is warm
        while time.monotonic() < until_s:
            attacker.some()
            for _ in range(5):
                attacker.visit()
            if not attacker.liar and (not by_web or chance.random() < 0.1):
                by_web += await by_http(session, chance.choice(attacker.http_ports), f"calm{chance.randrange(30)}")
            if chance.random() < 0.2:
                key = f"calm{chance.randrange(30)}"
                try:
                    found = await cache.get(key, timeout_ms=500 if attacker.liar else 8_000)
                    safe(found.value.startswith(f"value of {key} by ".encode()), f"a wrong answer: {found}")
                    right += 1
                except NotReached:
                    if not attacker.liar:
                        raise
                    stuck += 1
            if not is_warm and time.monotonic() > warm_s:
                is_warm = True
                before = [rss_kb(process.pid) for process in crowd.processes]
            await asyncio.sleep(PAUSE_S)
        assert all(process.poll() is None for process in crowd.processes), "a peer has ended"
        grown = [rss_kb(process.pid) - was for process, was in zip(crowd.processes, before, strict=True)]
        counts = [await crowd.counts(each) for each in range(len(crowd.processes))]
        assert max(grown) < GROWTH_KB_MAX, f"memory has grown by {grown} kB"
        assert all(sum(one["dropped"].values()) for one in counts), "nothing malformed reached a peer"
        assert right, "no client was answered meanwhile"
        assert by_web or attacker.liar, "nobody was answered by HTTP meanwhile"
        faults = [complaint for one in counts for complaint in one["complaints"]]
        safe(not faults, f"HTTP met a defect: {faults[:3]}")
        outcome = f"{attacker.sent} hostile messages, {right} right answers, {by_web} by HTTP, {stuck} too late"
        return f"{outcome}; memory grew by {grown} kB; dropped: {counts[0]['dropped']}"


def main(arguments: list[str], say: Callable[[str], None] = print) -> int:
    seconds, seed = float(arguments[0]), int(arguments[1])
    for liar in (False, True):
        with TemporaryDirectory() as folder:
            say(asyncio.run(fuzzed(Path(folder), seconds / 2, seed, liar=liar)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
