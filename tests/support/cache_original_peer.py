"""A double of a peer of the original HA cache (package version 0.2.4), with the defects that it was measured to have.

Written from its described behaviour and its captured frames; it knows nothing of primacy.cache. Handlers are coroutines
over a storage that may be slow, and each works on a copy of what it read: what they do to each other meanwhile is the
original's too (lost updates). As a program it is one peer on real sockets:

    python -m tests.support.cache_original_peer '{"url": ..., "api": ..., "peers": [[url, api], ...], "takes_s": 2.5,
    "log": path}'
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

INTEGER_MAX = (1 << 53) - 1
QUESTION, ANSWER, ENTRYREQ, UPDATE, ANNOUNCE, PING, PONG = (bytes([byte]) for byte in b"QAE=!.-")
GET, DISCOVER = b"?", b"*"
VALUE, SEEOTHER, SERVERS = b"=", b"#", b"*"
REPEAT_MS, FOLLOW_MS, FOLLOW_SOURCE_MS, ANNOUNCE_MS, KEEPALIVE_MS, PING_MS = 100, 300, 2_000, 1_000, 1_000, 3_000


class Fatal(Exception):
    """The original's process ends here."""


def integer(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8 or 1, "little")


def read_integer(frame: bytes) -> int:
    """Empty is null, which compares like zero."""
    number = int.from_bytes(frame, "little")
    if number > INTEGER_MAX:
        raise Fatal("an integer above 2^53 - 1")
    return number


def msgpack_texts(texts: list[str]) -> bytes:
    """An array of short texts."""
    assert len(texts) < 16
    packed = bytes([0x90 | len(texts)])
    for text in texts:
        data = text.encode()
        assert len(data) < 256
        packed += (bytes([0xA0 | len(data)]) if len(data) < 32 else bytes([0xD9, len(data)])) + data
    return packed


@dataclass
class Entry:
    """What is stored of a key beside its value."""

    term: int = 0
    expire: int = 0
    size: int = 0


class Storage:
    """Two stores in memory. An operation takes place when it begins and is over after its time; what is handed out is
    a copy."""

    def __init__(self, read_ms: float = 0, write_ms: float = 0) -> None:
        self._read_ms, self._write_ms = read_ms, write_ms
        self.metas: dict[bytes, Entry] = {}
        self.values: dict[bytes, bytes] = {}

    async def meta(self, key: bytes) -> Entry | None:
        found = self.metas.get(key)
        copy = None if found is None else Entry(found.term, found.expire, found.size)
        await asyncio.sleep(self._read_ms / 1000)
        return copy

    async def value(self, key: bytes) -> bytes | None:
        found = self.values.get(key)
        await asyncio.sleep(self._read_ms / 1000)
        return found

    async def set_meta(self, key: bytes, entry: Entry) -> None:
        self.metas[key] = Entry(entry.term, entry.expire, entry.size)
        await asyncio.sleep(self._write_ms / 1000)

    async def set_value(self, key: bytes, value: bytes) -> None:
        self.values[key] = value
        await asyncio.sleep(self._write_ms / 1000)


@dataclass(eq=False)
class Follower:
    entry: Entry
    peer: str
    is_source: bool
    timer: asyncio.TimerHandle


@dataclass(eq=False)
class Candidate:
    entry: Entry
    deadline: int
    votes: set[str] = field(default_factory=set)
    agreed: int = 1
    aborted: bool = False
    best: str = ""
    best_expire: int = 0
    timer: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class Sourcing:
    entry: Entry
    timer: asyncio.TimerHandle | None = None


@dataclass
class Queued:
    """A client's request that waits."""

    identity: bytes
    request: bytes
    after: int


class OriginalPeer:
    """One peer. `publish` and `reply` take whole messages; `source` fetches; `fatal` is what ends the process."""

    def __init__(
        self,
        url: str,
        peers: list[tuple[str, str]],
        *,
        publish: Callable[[list[bytes]], None],
        reply: Callable[[list[bytes]], None],
        source: Callable[[bytes], Awaitable[bytes]],
        fatal: Callable[[str], None],
        wall_ms: Callable[[], int],
        storage: Storage | None = None,
        ttl_ms: int = 3_600_000,
        chance: Random | None = None,
    ) -> None:
        assert ttl_ms >= 60_000, "the original refuses a shorter one"
        self.url = url
        self.others = [peer for peer, _ in peers if peer != url]
        self.apis = list(dict.fromkeys(api for _, api in peers))
        self.majority = len(self.apis) // 2 + 1
        self.storage = storage or Storage()
        self.partitioned = False
        self.states: dict[bytes, Follower | Candidate | Sourcing] = {}
        self.events: list[str] = []
        self._publish, self._reply, self._source, self._fatal = publish, reply, source, fatal
        self._now = wall_ms
        self._ttl_ms = ttl_ms
        self._chance = chance or Random()
        self._pongs: set[str] = set()
        self._queued: dict[bytes, list[Queued]] = {}
        self._signs: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- plumbing -----------------------------------------------------------------------------------------------------

    def _later(self, delay_ms: float, what: Callable[..., None], *given: Any) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0.0, delay_ms) / 1000, what, *given)

    def _spawn(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Fatal as why:
                self._fatal(str(why))
            except (IndexError, ValueError) as why:
                self._fatal(f"malformed: {why}")

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, target: str, kind: bytes, *frames: bytes) -> None:
        self._publish([target.encode(), self.url.encode(), kind, *frames])

    def role(self, key: bytes) -> str:
        state = self.states.get(key)
        return "idle" if state is None else type(state).__name__.lower()

    def _become(self, key: bytes, state: Follower | Candidate | Sourcing | None) -> None:
        before = self.states.get(key)
        self.events.append(f"{self.role(key)} -> {'idle' if state is None else type(state).__name__.lower()}")
        if before is not None and before is not state and before.timer is not None:
            before.timer.cancel()
        if state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = state

    def _follow(self, key: bytes, entry: Entry, peer: str, is_source: bool) -> None:
        delay_ms = FOLLOW_SOURCE_MS if is_source else FOLLOW_MS
        self._become(key, Follower(entry, peer, is_source, self._later(delay_ms, self._become, key, None)))

    # --- peers --------------------------------------------------------------------------------------------------------

    def peer_message(self, frames: list[bytes]) -> None:
        """As the SUB socket gave it: the target is not looked at again."""
        sender = frames[1].decode(errors="replace") if len(frames) > 1 else ""
        if sender not in self.others or len(frames) < 3 or len(frames[2]) != 1:
            return
        handlers: dict[bytes, Callable[..., Awaitable[None]]] = {
            QUESTION: self._question,
            ANSWER: self._answer,
            ENTRYREQ: self._entry_requested,
            UPDATE: self._update,
            ANNOUNCE: self._announced,
            PING: self._ping,
            PONG: self._pong,
        }
        handler = handlers.get(frames[2])
        if handler is not None:
            self._spawn(handler(sender, frames[3:]))

    async def _question(self, sender: str, body: list[bytes]) -> None:
        key, term = body[0], read_integer(body[1])
        entry = await self.storage.meta(key) or Entry()
        state = self.states.get(key)
        vote = False
        match state:
            case Sourcing():
                self._send(sender, ANNOUNCE, key, integer(state.entry.term), integer(state.entry.expire))
                return
            case None:
                vote = entry.expire < self._now() and term >= entry.term
                if vote:
                    self._follow(key, entry, sender, False)
            case Follower():
                if not state.is_source and term >= entry.term:
                    vote = term > entry.term or sender == state.peer
                if vote:
                    self._follow(key, entry, state.peer, False)  # the defect: it goes on following the other
            case Candidate():
                vote = term > entry.term
                if vote:
                    self._follow(key, entry, sender, False)
        if term > entry.term:
            entry.term = term
            await self.storage.set_meta(key, entry)
        self._send(sender, ANSWER, key, integer(entry.term), integer(entry.expire), b"\x01" if vote else b"")

    async def _answer(self, sender: str, body: list[bytes]) -> None:
        key, term, expire = body[0], read_integer(body[1]), read_integer(body[2])
        vote = len(body[3]) > 0 and body[3][0] != 0
        state = self.states.get(key)
        if not isinstance(state, Candidate) or sender in state.votes:
            return
        state.votes.add(sender)
        entry = state.entry
        if state.aborted:
            await self._raise(key, entry, term)
            return
        if expire > max(entry.expire, state.best_expire):
            state.best, state.best_expire = sender, expire
        if expire > self._now():
            self._send(sender, ENTRYREQ, key)
            state.aborted = True
            state.deadline = self._now() + self._chance.randint(150, 300)
            self._arm(key, state, REPEAT_MS)
            await self._raise(key, entry, term)
        elif term == entry.term and vote:
            state.agreed += 1
            if state.agreed >= self.majority:
                if state.best_expire > entry.expire:
                    self._send(state.best, ENTRYREQ, key)
                self._start_sourcing(key, entry)
        elif term > entry.term:
            state.aborted = True
            await self._raise(key, entry, term)

    async def _raise(self, key: bytes, entry: Entry, term: int) -> None:
        if term > entry.term:
            entry.term = term
            await self.storage.set_meta(key, entry)

    async def _entry_requested(self, sender: str, body: list[bytes]) -> None:
        key = body[0]
        entry, value = await self.storage.meta(key), await self.storage.value(key)
        if entry is not None and value is not None:
            self._send(sender, UPDATE, key, integer(entry.term), integer(entry.expire), value)

    async def _update(self, _sender: str, body: list[bytes]) -> None:
        key, term, expire, value = body[0], read_integer(body[1]), read_integer(body[2]), body[3]
        entry = await self.storage.meta(key) or Entry()
        raised = term > entry.term
        entry.term = max(entry.term, term)
        if expire > entry.expire:
            entry.expire, entry.size = expire, len(value)
            self._answer_clients(key, entry.expire, value)
            await self.storage.set_value(key, value)
            await self.storage.set_meta(key, entry)
        elif raised:
            await self.storage.set_meta(key, entry)
        if expire > self._now() and not isinstance(self.states.get(key), Sourcing) and key in self.states:
            self._become(key, None)

    async def _announced(self, sender: str, body: list[bytes]) -> None:
        key, term, expire = body[0], read_integer(body[1]), read_integer(body[2])
        entry = await self.storage.meta(key) or Entry()
        if expire > entry.expire:
            self._send(sender, ENTRYREQ, key)
        state = self.states.get(key)
        if isinstance(state, Sourcing):
            return
        if isinstance(state, Follower) and state.is_source and state.peer == sender:
            self._follow(key, state.entry, sender, True)
            return
        if state is None or term >= entry.term:
            self._follow(key, entry, sender, True)
            await self._raise(key, entry, term)

    async def _ping(self, sender: str, _body: list[bytes]) -> None:
        self._send(sender, PONG)

    async def _pong(self, sender: str, _body: list[bytes]) -> None:
        if self.partitioned:
            self._pongs.add(sender)
            if len(self._pongs) + 1 >= self.majority:
                self.partitioned = False
                self.events.append("whole")

    def _partition(self) -> None:
        if not self.partitioned:
            self.partitioned = True
            self.events.append("partitioned")
            self._later(PING_MS, self._ping_all)

    def _ping_all(self) -> None:
        if self.partitioned:
            self._pongs.clear()
            self._send("*", PING)
            self._later(PING_MS, self._ping_all)

    # --- elections ----------------------------------------------------------------------------------------------------

    def _elect(self, key: bytes, entry: Entry) -> None:
        if len(self.apis) == 1:
            self._start_sourcing(key, entry)
            return
        self._send("*", QUESTION, key, integer(entry.term))
        state = Candidate(entry, self._now() + self._chance.randint(150, 300))
        self._become(key, state)
        self._arm(key, state, REPEAT_MS)

    def _arm(self, key: bytes, state: Candidate, delay_ms: int) -> None:
        if state.timer is not None:
            state.timer.cancel()
        state.timer = self._later(delay_ms, self._candidate_timer, key, state)

    def _candidate_timer(self, key: bytes, state: Candidate) -> None:
        if self.states.get(key) is not state:
            return
        rest_ms = state.deadline - self._now()
        if rest_ms <= 0:
            self._spawn(self._candidate_deadline(key, state))
            return
        missing = [peer for peer in self.others if peer not in state.votes]
        if not missing:
            self._arm(key, state, rest_ms)
            return
        for target in missing if state.votes else ["*"]:
            self._send(target, QUESTION, key, integer(state.entry.term))
        self._arm(key, state, min(REPEAT_MS, rest_ms))

    async def _candidate_deadline(self, key: bytes, state: Candidate) -> None:
        if len(state.votes) + 1 < self.majority:
            self._become(key, None)
            self._partition()
            return
        state.entry.term += 1
        await self.storage.set_meta(key, state.entry)
        if self.states.get(key) is state:
            self._elect(key, state.entry)

    # --- the source ---------------------------------------------------------------------------------------------------

    def _start_sourcing(self, key: bytes, entry: Entry) -> None:
        state = Sourcing(entry)
        self._become(key, state)
        self._announce(key, state)
        self._spawn(self._fetch(key, state))

    def _announce(self, key: bytes, state: Sourcing) -> None:
        self._send("*", ANNOUNCE, key, integer(state.entry.term), integer(state.entry.expire))
        state.timer = self._later(ANNOUNCE_MS, self._announce, key, state)

    async def _fetch(self, key: bytes, state: Sourcing) -> None:
        try:
            value = await self._source(key)
        except OSError:
            self._become(key, None)
            return
        entry = state.entry
        entry.expire, entry.size = self._now() + self._ttl_ms, len(value)
        await self.storage.set_value(key, value)
        await self.storage.set_meta(key, entry)
        self._answer_clients(key, entry.expire, value)
        self._become(key, None)
        self._send("*", UPDATE, key, integer(entry.term), integer(entry.expire), value)

    # --- clients ------------------------------------------------------------------------------------------------------

    def client_message(self, frames: list[bytes]) -> None:
        """As the ROUTER gave it, identity first."""
        identity, *payload = frames
        if len(payload) < 3 or len(payload[1]) != 1:
            return
        try:
            expires = read_integer(payload[2])
        except Fatal as why:
            self._fatal(str(why))
            return
        if not payload[2] or expires < self._now():
            return
        if payload[1] == DISCOVER:
            self._reply([identity, payload[0], SERVERS, msgpack_texts(self.apis)])
        elif payload[1] == GET and len(payload) > 3 and payload[3]:
            after = read_integer(payload[4]) if len(payload) > 4 else 0
            self._spawn(self._get(identity, payload[0], payload[3], after))

    async def _get(self, identity: bytes, request: bytes, key: bytes, after: int) -> None:
        if self.partitioned:
            return
        entry = await self.storage.meta(key) or Entry()
        if entry.expire > min(after, self._now()):
            value = await self.storage.value(key)
            if value is not None:
                self._reply([identity, request, VALUE, value, integer(entry.expire)])
        else:
            self._reply([identity, request])
            self._queued.setdefault(key, []).append(Queued(identity, request, min(after, self._now())))
            if self._signs is None:
                self._signs = self._later(KEEPALIVE_MS, self._sign)
        if entry.expire < self._now() and key not in self.states:
            self._elect(key, entry)

    def _sign(self) -> None:
        self._signs = None
        for key, queued in list(self._queued.items()):
            for waiting in queued:
                idle = key not in self.states
                self._reply([waiting.identity, waiting.request, *([SEEOTHER] if idle else [])])
            if key not in self.states:
                del self._queued[key]
        if self._queued:
            self._signs = self._later(KEEPALIVE_MS, self._sign)

    def _answer_clients(self, key: bytes, expire: int, value: bytes) -> None:
        rest = []
        for waiting in self._queued.pop(key, []):
            if waiting.after < expire:
                self._reply([waiting.identity, waiting.request, VALUE, value, integer(expire)])
            else:
                rest.append(waiting)
        if rest:
            self._queued[key] = rest
        if not self._queued and self._signs is not None:
            self._signs.cancel()
            self._signs = None


# --- as a program -----------------------------------------------------------------------------------------------------


async def serve(config: dict[str, Any]) -> None:
    """One peer on real sockets. It writes down when its source is called, and ends with its input."""
    import zmq
    import zmq.asyncio

    def note(*words: object) -> None:
        line = " ".join(map(str, (time.monotonic(), os.getpid(), *words)))
        with Path(config["log"]).open("a") as file:
            file.write(line + "\n")

    def fatal(why: str) -> None:
        print(f"fatal: {why}", file=sys.stderr, flush=True)
        os._exit(1)

    async def source(key: bytes) -> bytes:
        note("begin", key.decode())
        await asyncio.sleep(config["takes_s"])
        if key.startswith(b"bad"):
            note("failed", key.decode())
            raise OSError("the source has nothing of that name")
        note("end", key.decode())
        return b"value of " + key + b" by %d" % os.getpid()

    context = zmq.asyncio.Context()
    publisher, subscriber, router = (context.socket(kind) for kind in (zmq.PUB, zmq.SUB, zmq.ROUTER))
    publisher.setsockopt(zmq.LINGER, 0)
    subscriber.setsockopt(zmq.LINGER, 0)
    router.setsockopt(zmq.LINGER, 1000)
    publisher.bind(config.get("bind_url", config["url"]))
    router.bind(config.get("bind_api", config["api"]))
    subscriber.setsockopt(zmq.SUBSCRIBE, b"*")
    subscriber.setsockopt(zmq.SUBSCRIBE, config["url"].encode())
    peers = [(url, api) for url, api in config["peers"]]
    if config["url"] not in [url for url, _ in peers]:
        peers.append((config["url"], config["api"]))
    for url, _ in peers:
        if url != config["url"]:
            subscriber.connect(url)
    peer = OriginalPeer(
        config["url"],
        peers,
        publish=publisher.send_multipart,
        reply=router.send_multipart,
        source=source,
        fatal=fatal,
        wall_ms=lambda: time.time_ns() // 1_000_000,
        storage=Storage(config.get("storage_ms", 0), config.get("storage_ms", 0)),
        ttl_ms=config.get("ttl_ms", 60_000),
    )

    async def read(socket: Any, take: Callable[[list[bytes]], None]) -> None:
        while True:
            take(await socket.recv_multipart())

    ended = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(ended), sys.stdin)
    print("ready", flush=True)
    reading = asyncio.gather(read(subscriber, peer.peer_message), read(router, peer.client_message))
    await asyncio.wait([reading, asyncio.ensure_future(ended.read())], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
