"""A machine of mode `mixed` on the network of `cache_original_world.py`: frames in, frames out, effects performed.

It stands for the driver: storage in memory that answers at once, calls of the world's source that end when they are
cancelled. What the rules forbid on the wire is looked at here, whatever happens: at most one message per receiver and
message received (E1), one vote per term, and terms that only grow.
"""

from __future__ import annotations

import asyncio
from random import Random

from primacy.cache.document import DocumentMachine
from primacy.cache.effects import (
    Call,
    Cancel,
    DropValue,
    Effect,
    Extend,
    Forget,
    Give,
    KeepAlive,
    Refuse,
    SeeOther,
    Send,
    SendEntry,
    StoreEntry,
    StoreMeta,
)
from primacy.cache.inputs import Asked, Input, Received, SourceEnded, Started, TimerPassed
from primacy.cache.messages import Announce, Answer, Message, Question, Update
from primacy.cache.model import ALL, Ballot, CacheSettings, Failure, Fetched, Meta, PeerAddress
from primacy.cache.wire import Heard, Reader, peer_frames
from primacy.cache.wire_client import DiscoverRequest, GetRequest, read_request
from tests.support.cache_original_client import integer
from tests.support.cache_original_world import World
from tests.support.document_harness import SETTINGS
from tests.support.virtual_time import now_ms


class MixedPeer:
    """`kept`: what a boot before has stored."""

    def __init__(
        self,
        world: World,
        url: str,
        urls: list[str],
        kept: tuple[dict[bytes, Meta], dict[bytes, bytes]] | None = None,
        settings: CacheSettings = SETTINGS,
    ) -> None:
        self.url = url
        self._world = world
        self._urls = urls
        addresses = tuple(PeerAddress(other, f"api-{other}") for other in urls)
        self.machine = DocumentMachine(url, addresses, settings, Random(world.chance.getrandbits(32)))
        self._reader = Reader(url, urls)
        self.metas, self.values = kept or ({}, {})
        self._requests: dict[int, tuple[bytes, bytes]] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._calls: dict[tuple[bytes, Ballot], asyncio.Task[None]] = {}
        self._votes: dict[tuple[bytes, int], str] = {}
        self.doubtful: list[str] = []
        world.peers[url] = self
        self.step(Started(world.chance.getrandbits(40) | 1, dict(self.metas)))

    def kill(self) -> tuple[dict[bytes, Meta], dict[bytes, bytes]]:
        """It is gone; what it has stored stays."""
        if self._timer is not None:
            self._timer.cancel()
        for call in self._calls.values():
            call.cancel()
        del self._world.peers[self.url]
        return self.metas, self.values

    # --- in -----------------------------------------------------------------------------------------------------------

    def peer_message(self, frames: list[bytes]) -> None:
        heard = self._reader.read(frames)
        if isinstance(heard, Heard):
            self.step(Received(heard.sender, heard.message))

    def client_message(self, frames: list[bytes]) -> None:
        request = read_request(frames[1:])
        if isinstance(request, DiscoverRequest) or not isinstance(request, GetRequest):
            return
        if request.expiry_ms < self._world.wall_ms():
            return
        self._count += 1
        self._requests[self._count] = (frames[0], request.id)
        self.step(Asked(self._count, request.key, request.after_ms))

    def step(self, given: Input) -> None:
        effects = self.machine.step(now_ms(), self._world.wall_ms(), given)
        if isinstance(given, Received):
            self._look(given, effects)
        for effect in effects:
            self._perform(effect)
        if self._timer is not None:
            self._timer.cancel()
        due_ms = self.machine.deadline_ms
        if due_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), due_ms / 1000), self.step, TimerPassed())

    # --- out ----------------------------------------------------------------------------------------------------------

    def _look(self, given: Received, effects: list[Effect]) -> None:
        receivers = [effect.to for effect in effects if isinstance(effect, Send | SendEntry)]
        wide = receivers.count(ALL)
        for url in self._urls:
            if wide + receivers.count(url) > 1:
                self.doubtful.append(f"{given.message}: several messages to {url}")

    def _send(self, to: str, message: Message) -> None:
        if isinstance(message, Answer) and message.vote:
            known = self._votes.setdefault((message.key, message.term), to)
            if known != to:
                self.doubtful.append(f"two votes in term {message.term} of {message.key!r}")
        if isinstance(message, Question):
            known = self._votes.setdefault((message.key, message.term), self.url)
            if known != self.url:
                self.doubtful.append(f"asks in term {message.term} of {message.key!r} after a vote for {known}")
        if isinstance(message, Question | Announce | Answer | Update):
            stored = self.metas.get(message.key)
            if stored is not None and message.term < stored.term and not isinstance(message, Question):
                self.doubtful.append(f"term {message.term} after {stored.term}")
        self._world.publish(self.url, peer_frames(to, self.url, message))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self._send(to, message)
            case SendEntry(to, Update() as message, _):
                self._send(to, message._replace(value=self.values[message.key]))
            case StoreEntry(key, meta, value):
                if meta.expire_ms > self._world.wall_ms():
                    self._votes = {vote: to for vote, to in self._votes.items() if vote[0] != key}
                self.metas[key], self.values[key] = meta, value
            case StoreMeta(key, meta):
                if not meta.voted and meta.expire_ms > self._world.wall_ms():
                    self._votes = {vote: to for vote, to in self._votes.items() if vote[0] != key}
                self.metas[key] = meta
            case DropValue(key, meta):
                self.metas[key] = meta
                self.values.pop(key, None)
            case Forget(key):
                self.metas.pop(key, None)
                self.values.pop(key, None)
            case Call(key, ballot):
                self._calls[key, ballot] = asyncio.get_running_loop().create_task(self._call(key, ballot))
            case Cancel(key, ballot):
                if (key, ballot) in self._calls:
                    self._calls[key, ballot].cancel()
            case Give(request, key, meta):
                self._reply(request, b"=", self.values[key], integer(meta.expire_ms))
            case KeepAlive(request):
                self._world.reply(self.url, list(self._requests[request]))
            case SeeOther(request) | Refuse(request):
                self._reply(request, b"#")
            case Extend():
                pass

    def _reply(self, request: int, *frames: bytes) -> None:
        """The one answer: a second one to the same request fails here."""
        identity, number = self._requests.pop(request)
        self._world.reply(self.url, [identity, number, *frames])

    async def _call(self, key: bytes, ballot: Ballot) -> None:
        result: Fetched | Failure
        try:
            result = Fetched(await self._world.fetch(key, self.url))
        except OSError as error:
            result = Failure(str(error))
        except asyncio.CancelledError:
            result = Failure("cancelled")
        del self._calls[key, ballot]
        if self._world.peers.get(self.url) is self:
            self.step(SourceEnded(key, ballot, result))
