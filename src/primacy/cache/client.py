"""`primacy.cache.Client`: asks the peers of a cache, one after the other, until one answers.

    async with primacy.cache.Client(["tcp://10.0.0.1:6001", "tcp://10.0.0.2:6001"]) as cache:
        found = await cache.get("rates/today")
        print(found.value, found.age_ms)

As in the document: requests go round robin; 500 ms to the first answer, 2,000 ms after each sign to go on waiting;
then, or when a peer says so, the next one is asked. Beyond it: one deadline over everything; an answer that comes late
to the same call still counts; a peer that is silent is asked nothing until it answered a small question (health),
unless all are; after a round of refusals there is a pause, which doubles. One DEALER per peer, so that a dead one holds
nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Literal, Self, overload

from primacy.cache.access import WITHIN_MS_MAX, Absent, Done, Found, Why, as_key, check_after, check_ms, check_ttl
from primacy.cache.claims import RELEASED
from primacy.cache.client_calls import PAUSE_MAX_S, Call, Dues, Late, Make, about, is_final, late, plain
from primacy.cache.client_claims import ClientClaim
from primacy.cache.client_copies import Copies
from primacy.cache.client_servers import Server, Servers
from primacy.cache.security import ClientSeal
from primacy.cache.sockets import FRAME_BYTES_SPARE
from primacy.cache.wire import LIMITS, Dropped, Limits
from primacy.cache.wire_client import (
    CLAIMED,
    DONE,
    DROPPED_COPY,
    SEEOTHER,
    VALUE,
    Answer,
    ClaimReport,
    ClaimRequest,
    DiscoverRequest,
    GetRequest,
    InvalidateRequest,
    Options,
    PutRequest,
    RefreshRequest,
    Request,
    StatusRequest,
    read_answer,
    request_frames,
)
from primacy.errors import CannotHere, NoSuchEntry, NotReached, SourceFailed, UsageError
from primacy.node.clock import Clock, SystemClock

TIMEOUT_MS = 10_000
"""For one call, whatever happens."""
REQUEST_MS = 5_000
"""A peer drops a request that it finds later than this, by its own clock (the original's number)."""
FAR_MS = 3_600_000
"""Added to now where a fresh entry is wanted; peers cut it to their own now, so that clocks need not agree."""
CONNECT_S = 0.01
"""Between two looks whether somebody can be asked at all."""
UNREAD_S = 0.005
"""Between two looks whether what a peer said has been read."""
PROBE_S = 0.25
"""Between two small questions to a peer that is silent."""
DISCOVERY_MIN_MS = 1_000
MANY_MAX = 128
"""Of `get_many`, on their way at once."""
PROBE_ID = b"~"
ROWS_MAX = 10_000
"""Keys of one answer about the state of a peer."""

log = logging.getLogger("primacy.cache")


class Client:
    """`timeout_ms`: over everything that a call does, from 1; one that does not wait at all can have no answer.
    `discovery_ms`: 0 never asks for the list of peers, below 0 once, above it again and again, after 1,000 at least (as
    in the document). `local_ms`: how long a copy is kept here; 0: none is."""

    def __init__(
        self,
        apis: str | Iterable[str],
        *,
        timeout_ms: int = TIMEOUT_MS,
        discovery_ms: int = 0,
        local_ms: int = 0,
        limits: Limits = LIMITS,
        seal: ClientSeal | None = None,
        secure: Callable[[Any], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._apis = (apis,) if isinstance(apis, str) else tuple(apis)
        if not self._apis:
            raise UsageError("a cache client needs the api of at least one peer, such as tcp://10.0.0.1:6001")
        for api in self._apis:
            if not isinstance(api, str) or "://" not in api:
                raise UsageError(f"{str(api)[:80]!r} is no address of a cache peer, such as tcp://10.0.0.1:6001")
        check_ms("timeout_ms", timeout_ms, 1, WITHIN_MS_MAX)
        check_ms("local_ms", local_ms, 0, WITHIN_MS_MAX)
        check_ms("discovery_ms", discovery_ms, -WITHIN_MS_MAX, WITHIN_MS_MAX, "; 0: never, below 0: once")
        self._timeout_ms = timeout_ms
        self._discovery_ms = discovery_ms
        self._limits = limits
        self._seal = seal
        self._clock: Clock = clock or SystemClock()
        self._servers = Servers(self._heard, limits.value_bytes_max + FRAME_BYTES_SPARE, Random())
        if secure is not None:
            self._servers.secure(secure)
        self._copies = Copies(local_ms)
        self._watches = local_ms > 0
        self._pending: dict[bytes, Call] = {}
        self._dues = Dues(self._due)
        self._claims: dict[bytes, ClientClaim] = {}
        self._on_dropped: list[Callable[[bytes, bool], None]] = []
        self._last = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: list[asyncio.Task[None]] = []
        self._closed = False
        self.dropped: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    # --- from open to close -------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def open(self) -> None:
        """Connects to all; nothing is waited for."""
        if self._loop is not None or self._closed:
            raise UsageError("this client was opened before; make a new one")
        self._loop = asyncio.get_running_loop()
        self._servers.open(self._loop, self._apis)
        self._dues.open(self._loop)
        self._background.append(self._loop.create_task(self._probe()))
        if self._discovery_ms:
            self._background.append(self._loop.create_task(self._discover()))

    async def close(self) -> None:
        """Calls that wait end with an error; nothing connects again."""
        if self._closed or self._loop is None:
            self._closed = True
            return
        self._closed = True
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._dues.close()
        for call in set(self._pending.values()):
            self._fail(call, NotReached("the cache client was closed"))
        for claim in tuple(self._claims.values()):
            claim.heard(Done(False, "the cache client was closed"))
            claim.end()
        await self._servers.close()
        self._copies.clear()

    @property
    def apis(self) -> tuple[str, ...]:
        """The peers that are asked now."""
        return tuple(server.api for server in self._servers.all) or self._apis

    @property
    def silent(self) -> tuple[str, ...]:
        """Those of them that did not answer, and were not heard since."""
        return tuple(server.api for server in self._servers.all if server.silent)

    # --- asked --------------------------------------------------------------------------------------------------------

    @overload
    async def get(
        self,
        key: str | bytes,
        *,
        fresh: bool = ...,
        after: int | None = ...,
        fetch: Literal[True] = ...,
        timeout_ms: int | None = ...,
    ) -> Found: ...

    @overload
    async def get(
        self, key: str | bytes, *, fresh: bool = ..., after: int | None = ..., fetch: bool, timeout_ms: int | None = ...
    ) -> Found | None: ...

    async def get(
        self,
        key: str | bytes,
        *,
        fresh: bool = False,
        after: int | None = None,
        fetch: bool = True,
        timeout_ms: int | None = None,
    ) -> Found | None:
        """The entry. `fresh`: a stale one will not do; `after`: it must expire later than this (Unix ms). `fetch`
        False: what a peer has, or None.

        Raises `SourceFailed` if the source gave none (`NoSuchEntry` if there is none), `NotReached` if it was not had
        in time."""
        raw, within_ms = as_key(key), self._within_ms(timeout_ms)
        if after is not None:
            check_after("after", after)
        asked_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        if self._watches:
            copy = self._copies.get(raw, asked_ms, wall_ms)
            if copy is not None and copy.expire_ms > (after or 0):
                return copy
        after_ms = after if after is not None else wall_ms + FAR_MS if fresh else 0
        options = Options(within_ms, fetch, False, self._watches)

        def make(name: bytes, expiry_ms: int, _left_ms: int) -> Request:
            return GetRequest(name, expiry_ms, raw, after_ms, options)

        answer = await self._ask(make, within_ms, False, raw, fresh)
        remark = answer.remark
        if answer.kind == SEEOTHER:
            return None
        found = Found(
            answer.value,
            answer.expire_ms,
            answer.age_ms,
            remark.fetcher if remark is not None else "",
            remark.stale if remark is not None else answer.expire_ms <= wall_ms,
            self._clock.wall_ms() - answer.age_ms >= wall_ms,
        )
        if self._watches:
            self._copies.keep(raw, found, asked_ms, self._clock.now_ms())
        return found

    async def obtain(
        self, key: str | bytes, *, after_ms: int = 0, within_ms: int | None = None
    ) -> Found | Absent | ClientClaim:
        """An entry that expires after `after_ms`, or the claim to compute it: one of all who ask gets it, the others
        wait for its result. `within_ms` 0: the shortest there is, 1. Raises `NotReached` where no peer answers."""
        raw = as_key(key)
        check_after("after_ms", after_ms)
        if within_ms is None:
            within_ms = self._timeout_ms
        check_ms("within_ms", within_ms, 0, WITHIN_MS_MAX)
        within_ms = max(1, within_ms)
        options = Options(within_ms, True, True, self._watches)

        def make(name: bytes, expiry_ms: int, _left_ms: int) -> Request:
            return GetRequest(name, expiry_ms, raw, after_ms, options)

        try:
            answer, server = await self._ask_someone(make, within_ms, False, raw)
        except SourceFailed as error:
            return Absent(Why.SOURCE, str(error))
        remark = answer.remark
        if answer.kind == VALUE:
            stale = remark.stale if remark is not None else answer.expire_ms <= self._clock.wall_ms()
            fetcher = remark.fetcher if remark is not None else ""
            return Found(answer.value, answer.expire_ms, answer.age_ms, fetcher, stale)
        assert remark is not None
        return self._claimed(raw, answer.id, server, (remark.term, remark.fetcher, remark.boot))

    def _claimed(self, key: bytes, name: bytes, server: Server, ballot: tuple[int, str, int]) -> ClientClaim:
        def say(report: ClaimReport) -> None:
            self._report(server, name, key, report)

        def over() -> None:
            self._claims.pop(name, None)

        claim = self._claims[name] = ClientClaim(key, ballot, say, over)
        return claim

    def _report(self, server: Server, name: bytes, key: bytes, report: ClaimReport) -> None:
        frames = request_frames(ClaimRequest(name, self._clock.wall_ms() + REQUEST_MS, key, report))
        if self._seal is not None:
            frames.append(self._seal.sealed(frames, self._clock.wall_ms()))
        assert self._loop is not None
        server.send(frames, self._loop.time())
        self._servers.look(server)

    def _let_go(self, answer: Answer, server: Server) -> None:
        """A claim for a call that was answered elsewhere meanwhile: a client that waits there may have it."""
        remark = answer.remark
        assert remark is not None
        # The key is not known any more, and not needed: the ballot and the id say which it is.
        report = ClaimReport(remark.term, remark.fetcher, remark.boot, RELEASED)
        self._report(server, answer.id, b"-", report)

    def on_dropped(self, call: Callable[[bytes, bool], None]) -> None:
        """`call(key, prefix)` whenever a peer says that an entry was invalidated. Needs `local_ms` above 0."""
        self._on_dropped.append(call)

    async def get_many(
        self, keys: Iterable[str | bytes], *, fresh: bool = False, timeout_ms: int | None = None
    ) -> dict[str | bytes, Found]:
        """All of them at once, by their keys. Raises as `get` does, for the first that fails."""
        self._within_ms(timeout_ms)
        room = asyncio.Semaphore(MANY_MAX)
        wanted = list(dict.fromkeys(keys))

        async def one(key: str | bytes) -> Found:
            async with room:
                return await self.get(key, fresh=fresh, timeout_ms=timeout_ms)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(plain(one(key))) for key in wanted]
        found = [task.result() for task in tasks]
        for result in found:
            if isinstance(result, BaseException):
                raise result
        return {key: result for key, result in zip(wanted, found, strict=True) if isinstance(result, Found)}

    async def invalidate(self, key: str | bytes, *, prefix: bool = False, timeout_ms: int | None = None) -> Done:
        """Once this is done, no peer gives what was there as fresh. `missing` names peers that could not be told."""
        raw = as_key(key, empty=prefix)

        def make(name: bytes, expiry_ms: int, left_ms: int) -> Request:
            return InvalidateRequest(name, expiry_ms, raw, prefix, Options(left_ms))

        self._within_ms(timeout_ms)
        self._copies.drop(raw, self._clock.now_ms(), prefix)
        self._servers.forget_puts()
        done = await self._change(make, timeout_ms, about("the invalidation", raw, prefix))
        self._copies.drop(raw, self._clock.now_ms(), prefix)
        return done

    async def status(
        self, prefix: str | bytes = b"", most: int = 100, *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """How one peer stands, and what it knows of keys that begin so. Ask each with a client of its own."""
        raw = as_key(prefix, empty=True)
        if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= ROWS_MAX:
            raise UsageError(f"most = {str(most)[:40]}: a whole number of keys from 0 to {ROWS_MAX}")

        def make(name: bytes, expiry_ms: int, left_ms: int) -> Request:
            return StatusRequest(name, expiry_ms, raw, most, Options(left_ms))

        answer = await self._ask(make, self._within_ms(timeout_ms), False, "the state of a peer")
        found = json.loads(answer.value)
        if not isinstance(found, dict):
            raise NotReached("what answers is no cache peer of this product")
        return found

    async def refresh(self, key: str | bytes, *, timeout_ms: int | None = None) -> Done:
        """The key is fetched anew; until then the old value stays."""
        raw = as_key(key)

        def make(name: bytes, expiry_ms: int, left_ms: int) -> Request:
            return RefreshRequest(name, expiry_ms, raw, Options(left_ms))

        done = await self._change(make, timeout_ms, about("the refresh", raw))
        self._copies.drop(raw, self._clock.now_ms())
        return done

    async def put(self, key: str | bytes, value: bytes, ttl_ms: int = 0, *, timeout_ms: int | None = None) -> Done:
        """A value that the caller brings. `ttl_ms` 0: as long as the peers' own."""
        raw = as_key(key)
        if not isinstance(value, bytes):
            raise UsageError(f"a value is bytes, and this is {type(value).__name__}: encode it first")
        check_ttl(ttl_ms)
        if len(value) > self._limits.value_bytes_max:
            raise UsageError(f"the value has {len(value)} bytes; at most {self._limits.value_bytes_max}")

        def make(name: bytes, expiry_ms: int, left_ms: int) -> Request:
            return PutRequest(name, expiry_ms, raw, ttl_ms, value, Options(left_ms))

        done = await self._change(make, timeout_ms, about("the put", raw), raw)
        self._copies.drop(raw, self._clock.now_ms())
        return done

    async def _change(self, make: Make, timeout_ms: int | None, what: str, put: bytes = b"") -> Done:
        answer, server = await self._ask_someone(make, self._within_ms(timeout_ms), True, what)
        remark = answer.remark
        done = Done(remark.ok, remark.error, remark.missing) if remark is not None else Done(True)
        if put and done.ok:
            self._servers.has_put(put, server, asyncio.get_running_loop().time())
        return done

    def _within_ms(self, timeout_ms: int | None) -> int:
        """How long one call may take. 0 is refused: nobody answers at once, and it does not mean the default."""
        if timeout_ms is None:
            return self._timeout_ms
        check_ms("timeout_ms", timeout_ms, 1, WITHIN_MS_MAX, "; left out: the client's own")
        return timeout_ms

    # --- one call, attempt by attempt ---------------------------------------------------------------------------------

    async def _ask(self, make: Make, within_ms: int, change: bool, what: str | bytes, fresh: bool = False) -> Answer:
        return (await self._ask_someone(make, within_ms, change, what, fresh))[0]

    async def _ask_someone(
        self, make: Make, within_ms: int, change: bool, what: str | bytes, fresh: bool = False
    ) -> tuple[Answer, Server]:
        """The answer, and the peer that gave it. `what` was asked: a sentence's beginning, or a key."""
        loop = self._loop
        if loop is None or self._closed:
            raise UsageError("a cache client is used between `open` and `close`, such as in its `async with` block")
        call = Call(make, loop.time() + within_ms / 1_000, change, loop.create_future())
        call.fresh, call.key = fresh, what if isinstance(what, bytes) else b""
        self.counts["calls"] += 1
        self._attempt(call)
        try:
            answer = await call.future
            assert call.server is not None
            return answer, call.server
        except Late:
            raise late(call, what, within_ms) from None
        finally:
            self._forget(call)

    def _attempt(self, call: Call) -> None:
        loop = self._loop
        if loop is None or call.future.done():
            return
        now_s = loop.time()
        if now_s >= call.deadline_s:
            self._fail(call, Late())
            return
        self._last += 1
        name = b"%x" % self._last
        wall_ms = self._clock.wall_ms()
        left_ms = max(1, int((call.deadline_s - now_s) * 1_000))
        frames = request_frames(call.make(name, wall_ms + REQUEST_MS, left_ms))
        if self._seal is not None:
            frames.append(self._seal.sealed(frames, wall_ms))
        if call.refused and not self._servers.any_good(call.refused):
            self._pause(call)  # who is left is silent: who refused is asked again first
            return
        server = self._servers.choose(frames, now_s, call.refused, call.key)
        if server is None:
            self._wait(call, CONNECT_S)
            return
        self.counts["attempts"] += 1
        call.current, call.server = name, server
        call.ids.append(name)
        self._pending[name] = call
        call.why = f"{server.api} was silent"
        call.asked(now_s)
        self._dues.add(call.due_s, name)

    def _due(self, name: bytes, now_s: float) -> float | None:
        """When this attempt is due; None: it is over. One that is due now ends here."""
        call = self._pending.get(name)
        if call is None or name != call.current or call.future.done():
            return None
        if call.due_s > now_s:
            return call.due_s
        server = call.server
        assert server is not None
        if now_s < call.deadline_s and self._servers.has_unread(server):
            return now_s + UNREAD_S  # this process is late, and not the peer: what it said is read first
        if server.heard_s <= call.since_s:
            server.silent = True
        self._attempt(call)
        return None

    def _wait(self, call: Call, for_s: float) -> None:
        assert self._loop is not None
        if call.timer is not None:
            call.timer.cancel()
        call.current = b""
        call.timer = self._loop.call_at(min(self._loop.time() + for_s, call.deadline_s), self._attempt, call)

    def _pause(self, call: Call) -> None:
        """Every peer has refused: once more, a little later."""
        call.refused.clear()
        pause_s, call.pause_s = call.pause_s, min(call.pause_s * 2, PAUSE_MAX_S)
        self._wait(call, pause_s)

    def _heard(self, server: Server, frames: list[bytes]) -> None:
        if self._seal is not None:
            seal = frames.pop() if len(frames) > 1 else b""
            if not self._seal.is_good(frames, seal):
                self.dropped["seal: bad"] += 1
                return
        if len(frames) == 1:
            self._go_on(server, frames[0])
            return
        answer = read_answer(frames, self._limits)
        if isinstance(answer, Dropped):
            self.dropped[answer.reason] += 1
            return
        if answer.kind == DROPPED_COPY:
            self._copies.drop(answer.value, self._clock.now_ms(), bool(answer.expire_ms))
            for dropped in self._on_dropped:
                dropped(answer.value, bool(answer.expire_ms))
            return
        claim = self._claims.get(answer.id)
        if claim is not None:
            if answer.kind == DONE:
                remark = answer.remark
                self._servers.has_put(claim.key, server, asyncio.get_running_loop().time())
                claim.heard(Done(remark.ok, remark.error) if remark is not None else Done(True))
            return
        call = self._pending.get(answer.id)
        if call is None or call.future.done():
            if answer.id != PROBE_ID:
                self.counts["late"] += 1
            if answer.kind == CLAIMED and answer.remark is not None:
                self._let_go(answer, server)
            return
        self._answered(call, server, answer)

    def _go_on(self, server: Server, name: bytes) -> None:
        """A sign to go on waiting."""
        call = self._pending.get(name)
        if call is None or call.future.done():
            self.counts["late"] += name != PROBE_ID and name not in self._claims
        elif name == call.current:
            call.why = f"{server.api} went on waiting for the entry"
            call.went_on(server.heard_s)

    def _answered(self, call: Call, server: Server, answer: Answer) -> None:
        current = answer.id == call.current
        remark = answer.remark
        if is_final(call, answer):
            call.server = server
            call.future.set_result(answer)
        elif answer.kind == SEEOTHER and remark is not None and remark.error:
            self._fail(call, NoSuchEntry(remark.error) if remark.miss else SourceFailed(remark.error))
        else:
            self._refused(call, server, answer, current)

    def _refused(self, call: Call, server: Server, answer: Answer, current: bool) -> None:
        """SEEOTHER, a change that this peer cannot make, or a stale value where a fresh one is wanted."""
        call.refused.add(server)
        why = answer.remark.error if answer.remark is not None else ""
        call.why = f"{server.api} cannot do it now{': ' + why if why else ''}"
        if answer.kind == DONE and all(one in call.refused for one in self._servers.all):
            call.future.set_result(answer)
        elif current:
            self._attempt(call)

    def _fail(self, call: Call, error: Exception) -> None:
        if not call.future.done():
            call.future.set_exception(error)

    def _forget(self, call: Call) -> None:
        if call.timer is not None:
            call.timer.cancel()
        for name in call.ids:
            self._pending.pop(name, None)

    # --- beside the calls ---------------------------------------------------------------------------------------------

    async def _probe(self) -> None:
        """Small questions to peers that are silent, so that no call has to find out."""
        assert self._loop is not None
        while True:
            await asyncio.sleep(PROBE_S)
            for server in self._servers.all:
                if server.silent:
                    frames = request_frames(DiscoverRequest(PROBE_ID, self._clock.wall_ms() + REQUEST_MS))
                    if self._seal is not None:
                        frames.append(self._seal.sealed(frames, self._clock.wall_ms()))
                    server.send(frames, self._loop.time())
                    self._servers.look(server)

    async def _discover(self) -> None:
        while True:
            try:
                answer = await self._ask(lambda name, expiry_ms, _: DiscoverRequest(name, expiry_ms), 2_000, False, "")
            except NotReached:
                continue
            if answer.servers:
                self._replace(answer.servers)
            if self._discovery_ms < 0:
                return
            await asyncio.sleep(max(DISCOVERY_MIN_MS, self._discovery_ms) / 1_000)

    def _replace(self, apis: tuple[str, ...]) -> None:
        try:
            gone = self._servers.replace(apis)
        except (UsageError, CannotHere) as error:
            log.info("a peer names a server that cannot be asked: %s", error)
            self.dropped["servers: no address"] += 1
            return
        for call in set(self._pending.values()):
            if call.server in gone and call.current:
                self._attempt(call)
