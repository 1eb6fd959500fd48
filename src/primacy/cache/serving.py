"""The clients of one cache peer: requests in, answers out, and hits that cost no step of the machine.

A value that the machine gave as fresh is kept at hand. While the machine says that this peer is in touch (C12), the
value has not expired and nothing happened to its key, it is given again straight from a dictionary. Everything else
goes to the machine, which answers every request exactly once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from primacy.cache.access import Absent, Done, Found, Why
from primacy.cache.effects import Finished, Give, Refuse, SeeOther
from primacy.cache.inputs import Asked, Input, Invalidate, Put, Refresh, ValueGone
from primacy.cache.machine import Machine
from primacy.cache.model import NO_BALLOT, CacheSettings, Floor, Meta
from primacy.cache.security import ClientBoot, Opened, ServerSeal, covered, digested
from primacy.cache.sockets import CLIENTS_AT_ONCE, CLIENTS_PER_TURN, MORE, NOBLOCK, TURN_MS, Frames, PeerSockets
from primacy.cache.wire import TAG, Dropped, Limits, integer
from primacy.cache.wire_client import (
    AGE_BYTES,
    DONE,
    DROPPED_COPY,
    GET,
    ID_BYTES_MAX,
    REASON_CHARS_MAX,
    SEEOTHER,
    SERVERS,
    STATUS,
    VALUE,
    Answer,
    ClaimRequest,
    DiscoverRequest,
    GetRequest,
    InvalidateRequest,
    Options,
    PutRequest,
    RefreshRequest,
    Remark,
    Request,
    StatusRequest,
    answer_frames,
    read_request,
    remark_frame,
)
from primacy.node.clock import Clock

log = logging.getLogger("primacy")

HOT_BYTES_MAX = 128 * 1024 * 1024
"""Values at hand. More than this: the oldest go, and cost a step and a read when they are asked for again."""
HOT_ENTRY_BYTES = 512
"""What one costs beside its value."""
HOT_VALUE_BYTES_MAX = 1024 * 1024
"""Larger ones are read each time; copying them costs more than the step."""
OPTIONS_KNOWN_MAX = 1_024
"""Different frames of options whose meaning is remembered. A client sends the same one each time."""
STEADY_MAX = 10_000
"""Clients whose next GET is expected to be like the last. Beyond it all are forgotten, and found again with their next
request: among them are those of connections that ended."""
WATCHERS_MAX = 10_000
"""Clients that are told of invalidations. Beyond it the longest silent is not told; its copies live `local_ms`."""
AGAIN_MAX = 3
"""A request whose value was gone is asked again so often, and then sent elsewhere."""
NOTHING_ASKED = ValueGone(b"", NO_BALLOT)
"""For who is told something and waits for no answer of the machine."""
HIT_INTEGER_BYTES = 6
"""Times of this age have so many. What is longer may be too long to be read: it is looked at with the rest."""
AGE_MAX_MS = (1 << (8 * AGE_BYTES)) - 1
KEY_TOO_LONG = "key: too long"
TOO_LONG = frozenset((KEY_TOO_LONG, "value: too long"))
REMEDIES = {
    "seal: bad-seal": "its key was made with another secret, or for another cluster; make it anew: primacy cache key",
    "seal: unsealed": "it has no key; make one: primacy cache key NAME",
    "seal: unknown-client": "its name is not in cache.clients",
    "seal: old-seal": "its clock is behind this machine's, or the request was under way for long",
    "seal: early-seal": "its clock is ahead of this machine's",
    "seal: too-many-clients": "more processes ask within a minute than can be told apart; keep clients open for longer",
    "request: expired": "its clock is behind this machine's, or the request was under way for long",
}
"""What an operator can do about requests that are dropped."""


class Remote(NamedTuple):
    """A client behind the ROUTER that waits for an answer."""

    identity: bytes
    id: bytes
    own: bool
    """It understands what originals do not."""
    sealed: Opened | None
    asked: Input
    again: int = 0
    """How often its value was gone when it was to be given."""


class Local(NamedTuple):
    """Somebody in this process who waits."""

    answer: asyncio.Future[Found | Absent | Done]
    asked: Input
    at_ms: int
    """Wall clock: when it was asked."""
    again: int = 0


class Hot:
    """A value at hand, with the frames that an answer needs."""

    __slots__ = (
        "_digest",
        "_tail",
        "covered",
        "expire_frame",
        "expire_ms",
        "fetched_ms",
        "fetcher",
        "meta",
        "remark",
        "remark_ms",
        "until_ms",
        "value",
    )

    def __init__(self, meta: Meta, value: bytes, until_ms: int) -> None:
        self.meta = meta
        self.value = value
        self.until_ms = until_ms
        """Wall clock: from then on the machine is asked."""
        self.expire_ms = meta.expire_ms
        self.expire_frame = integer(meta.expire_ms)
        self.fetched_ms = meta.fetched_ms
        self.fetcher = meta.epoch.peer
        self._tail = remark_frame(Remark(self.fetcher, term=meta.epoch.term, boot=meta.epoch.boot))[2 + AGE_BYTES :]
        self.remark = b""
        self.remark_ms = -1
        """Wall clock: when the age in the remark was true."""
        self._digest = b""
        self.covered = b""
        """What the seal of an answer covers behind the id, once there was a sealed one."""

    def tell_age(self, wall_ms: int, sealed: bool = False) -> None:
        """The remark of an answer that is given now."""
        age_ms = wall_ms - self.fetched_ms
        self.remark = TAG + (age_ms if age_ms > 0 else 0).to_bytes(AGE_BYTES, "little") + self._tail
        self.remark_ms = wall_ms
        if sealed:
            if not self._digest:
                self._digest = digested((VALUE, self.value, self.expire_frame), len(self.remark))
            self.covered = self.remark + self._digest


class Serving:
    """Requests of clients, of others and of this process alike."""

    def __init__(
        self,
        machine: Machine,
        settings: CacheSettings,
        sockets: PeerSockets,
        clock: Clock,
        tell: Callable[[Input], None],
        read: Callable[[bytes, Meta], bytes | None],
        seal: ServerSeal | None = None,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._limits = Limits(settings.key_bytes_max, settings.value_bytes_max)
        self._sockets = sockets
        self._clock = clock
        self._tell = tell
        self._read = read
        self._seal = seal
        self._hot: dict[bytes, Hot] = {}
        self._hot_bytes = 0
        self._askers: dict[int, Remote | Local] = {}
        self._last = 0
        self._options: dict[bytes, bool] = {}
        """Frames of options whose meaning is known, and whether they ask to be told of invalidations."""
        self._watchers: dict[bytes, Remote] = {}
        self._given: list[tuple[bytes, bytes, Hot, bytes, bytes]] = []
        """Values of this turn: the client's identity, the id of its request, the value, the remark, the seal."""
        self.claimed: Callable[[ClaimRequest, Remote], None] | None = None
        self.status: Callable[[bytes, int], bytes] | None = None
        """How this peer stands, for `StatusRequest`: a prefix of keys and how many, as JSON."""
        self.apis: tuple[str, ...] = ()
        """What DISCOVER is answered with."""
        self.dropped: Counter[str] = Counter()
        self.hits = self.stale = self.misses = self.see_others = self.refusals = 0
        self._waits: set[int] = set()
        """Requests that were told to go on waiting. Each is one that asks, too."""
        self._fetched_for = b""
        self.stampedes_avoided = 0
        """Requests that waited for a value and were given it, but for one of each call that this peer made: without the
        cache each would have been a call."""

    @property
    def waiting(self) -> int:
        return len(self._askers)

    # --- in -----------------------------------------------------------------------------------------------------------

    def turn(self, most: int = CLIENTS_PER_TURN) -> None:
        """Reads what clients sent, bounded."""
        receive, clock = self._sockets.from_clients, self._clock
        now_ms = clock.now_ms()
        until_ms = now_ms + TURN_MS
        try:
            while most > 0 and now_ms <= until_ms:
                at_once = min(most, CLIENTS_AT_ONCE)
                messages = receive(at_once)
                # After the requests were received, each time: a process that stood still in between must not vouch for
                # what was invalidated before the request was made (C12).
                now_ms, wall_ms = clock.now_ms(), clock.wall_ms()
                self._take(messages, now_ms, wall_ms)
                if len(messages) < at_once:
                    return
                most -= at_once
        finally:
            self.hand_out()

    def _take(self, messages: list[Frames], now_ms: int, wall_ms: int) -> None:
        """Hits are given, and all else is a request for the machine. In their order."""
        at_hand, watches_of, give, number = self._hot.get, self._options.get, self._given.append, int.from_bytes
        client: ClientBoot | None = None
        fresh, opened, sealer = now_ms < self._machine.fresh_until_ms, None, self._seal
        if sealer is not None:
            heard, (earliest_ms, latest_ms) = sealer.heard, sealer.times(wall_ms)
            steady = self._sockets.steady
        for frames in messages:
            if sealer is not None:
                if len(frames) < 3:
                    steady.discard(frames[0])
                    self.dropped["frames: too few"] += 1
                    continue
                client = heard(frames, earliest_ms, latest_ms)
                if client is None:
                    steady.discard(frames[0])
                    self._drop_request(f"seal: {sealer.why}")
                    continue
                opened = client.opened
            watches: bool | None = False
            after = b""
            match len(frames):
                case 7:
                    identity, name, command, expiry, key, after, options = frames
                    watches = watches_of(options)
                case 5:
                    identity, name, command, expiry, key = frames
                case 6:
                    identity, name, command, expiry, key, after = frames
                case _:
                    key = b""
            found = at_hand(key)
            # `after` is at most now, hence before the expiry of what is fresh; but it must be readable.
            if (
                found is not None
                and watches is not None
                and fresh
                and command == GET
                and wall_ms < found.until_ms
                and len(expiry) == HIT_INTEGER_BYTES
                and number(expiry, "little") >= wall_ms
                and len(after) <= HIT_INTEGER_BYTES
                and len(name) <= ID_BYTES_MAX
            ):
                self.hits += 1
                remark = seal = b""
                if len(frames) == 7:
                    if found.remark_ms != wall_ms:
                        found.tell_age(wall_ms, opened is not None)
                    remark = found.remark
                if client is not None:
                    tag = client.begin_answer()
                    if remark:
                        tag.update(name + found.covered)
                        if identity not in steady:
                            self._expect(identity)
                    else:
                        tag.update(covered((name, VALUE, found.value, found.expire_frame)))
                    seal = tag.digest()
                if watches:
                    self._watch(Remote(identity, b"", True, opened, NOTHING_ASKED))
                give((identity, name, found, remark, seal))
            else:
                now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()  # what came before may have taken long
                self._request(frames, opened, now_ms, wall_ms)
                fresh = now_ms < self._machine.fresh_until_ms

    def _expect(self, identity: bytes) -> None:
        """This client has sent a GET with options and a good seal: its next GET is expected to have as many frames. One
        that has fewer is dropped, with up to three requests of others that come right behind it, which are asked again;
        nothing of its sender is then expected until its next good one. Only who has a key can do that, and with a key
        one can do worse: invalidate everything."""
        if len(self._sockets.steady) >= STEADY_MAX:
            self._sockets.steady.clear()
        self._sockets.steady.add(identity)

    def hand_out(self) -> None:
        """The values of a turn leave together: each send after a pause wakes the library's thread, which costs as much
        as the request itself."""
        if not self._given:
            return
        send, given = self._sockets.send_frame, self._given.copy()
        self._given.clear()
        for identity, name, found, remark, seal in given:
            send(identity, MORE)
            send(name, MORE)
            send(VALUE, MORE)
            send(found.value, MORE)
            if seal:
                send(found.expire_frame, MORE)
                if remark:
                    send(remark, MORE)
                send(seal, NOBLOCK)
            elif remark:
                send(found.expire_frame, MORE)
                send(remark, NOBLOCK)
            else:
                send(found.expire_frame, NOBLOCK)

    def _request(self, frames: list[bytes], opened: Opened | None, now_ms: int, wall_ms: int) -> None:
        self.hand_out()  # a step may tell clients what is void: values that were given before come before it
        request = read_request(frames[1:], self._limits)
        if isinstance(request, Dropped):
            self._drop_request(request.reason)
            if request.reason in TOO_LONG:
                self._say_too_long(frames, request.reason, opened)
            return
        if request.expiry_ms < wall_ms:
            self._drop_request("request: expired")
            return
        if isinstance(request, DiscoverRequest):
            self._send(frames[0], answer_frames(Answer(request.id, SERVERS, servers=self.apis)), opened)
            return
        if isinstance(request, StatusRequest):
            if self.status is not None:
                told = Answer(request.id, STATUS, self.status(request.key, request.most))
                self._send(frames[0], answer_frames(told), opened)
            return
        if isinstance(request, ClaimRequest):
            if self.claimed is not None:
                self.claimed(request, Remote(frames[0], request.id, True, opened, NOTHING_ASKED))
            return
        if type(request) is GetRequest and request.options is not None:
            self._remember(frames[6], request.options)
            if request.options.watches:
                self._watch(Remote(frames[0], b"", True, opened, NOTHING_ASKED))
        self._ask(frames[0], request, opened, now_ms, wall_ms)

    def _drop_request(self, reason: str) -> None:
        """Who is not heard learns nothing; the first time of each reason that an operator can mend is a line here."""
        self.dropped[reason] += 1
        if self.dropped[reason] == 1 and reason in REMEDIES:
            log.warning("requests of a client are dropped (%s): %s", reason, REMEDIES[reason])

    def _say_too_long(self, frames: list[bytes], reason: str, opened: Opened | None) -> None:
        """A client of this product is told what it cannot know. An original would only ask again at once."""
        name, command = frames[1], frames[2]
        limit = f"key_bytes_max = {self._limits.key_bytes_max}"
        text = f"the key has {len(frames[4])} bytes; here {limit}"
        if reason != KEY_TOO_LONG:
            text = f"the value is too long; here value_bytes_max = {self._limits.value_bytes_max}"
        if command != GET:
            self._send(frames[0], answer_frames(Answer(name, DONE, remark=Remark(error=text, ok=False))), opened)
        elif len(frames) > 6 and frames[6][:2] == TAG:
            self._send(frames[0], answer_frames(Answer(name, SEEOTHER, remark=Remark(error=text))), opened)

    def _ask(self, identity: bytes, request: Request, opened: Opened | None, now_ms: int, wall_ms: int) -> None:
        number = self._number()
        options = getattr(request, "options", None)
        until_ms = now_ms + options.within_ms if options is not None and options.within_ms else None
        asked: Input
        match request:
            case GetRequest(_, _, key, after_ms, None):
                asked = Asked(number, key, min(after_ms, wall_ms))
            case GetRequest(_, _, key, after_ms, Options() as given):
                asked = Asked(number, key, min(after_ms, wall_ms), given.fetch, given.offers, until_ms)
            case InvalidateRequest(_, _, key, prefix):
                asked = Invalidate(number, key, prefix, until_ms)
            case RefreshRequest(_, _, key):
                asked = Refresh(number, key, until_ms)
            case PutRequest(_, _, key, ttl_ms, value):
                asked = Put(number, key, value, ttl_ms or self._settings.ttl_of(key), until_ms)
            case _:
                raise AssertionError(f"no request for the machine: {request}")
        self._askers[number] = Remote(identity, request.id, options is not None, opened, asked)
        self._tell(asked)

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _remember(self, frame: bytes, options: Options) -> None:
        if len(self._options) >= OPTIONS_KNOWN_MAX:
            self._options.clear()
        self._options[frame] = options.watches

    def local(self, make: Callable[[int], Input]) -> tuple[int, asyncio.Future[Found | Absent | Done]]:
        """Somebody in this process asks; `make` gets the number of the request."""
        number = self._number()
        asked = make(number)
        answer: asyncio.Future[Found | Absent | Done] = asyncio.get_running_loop().create_future()
        self._askers[number] = Local(answer, asked, self._clock.wall_ms())
        self._tell(asked)
        return number, answer

    def at_hand(self, key: bytes) -> Found | None:
        """A fresh value without a step, if there is one."""
        found, wall_ms = self._hot.get(key), self._clock.wall_ms()
        if found is None or wall_ms >= found.until_ms or self._clock.now_ms() >= self._machine.fresh_until_ms:
            return None
        self.hits += 1
        return Found(found.value, found.expire_ms, max(0, wall_ms - found.fetched_ms), found.fetcher, False)

    # --- out ----------------------------------------------------------------------------------------------------------

    def give(self, effect: Give) -> None:
        """The value, or the request once more if the value is gone."""
        asker = self._askers.pop(effect.request, None)
        hot = self._hot.get(effect.key)  # as for the first of those who waited for it
        value = hot.value if hot is not None and hot.meta == effect.meta else self._read(effect.key, effect.meta)
        if value is None:
            self._waits.discard(effect.request)
            self._tell(ValueGone(effect.key, effect.meta.epoch))
            if asker is not None:
                self._ask_again(asker)
            return
        self._count_waited(effect)
        wall_ms = self._clock.wall_ms()
        meta = effect.meta
        age_ms = min(max(0, wall_ms - meta.fetched_ms), AGE_MAX_MS) if meta.fetched_ms else 0
        if effect.stale:
            self.stale += 1
        else:
            if hot is None or hot.meta != meta:
                hot = self._keep(effect.key, meta, value)
            self.hits += 1
        if isinstance(asker, Local):
            waited = meta.fetched_ms >= asker.at_ms
            self._settle(asker, Found(value, meta.expire_ms, age_ms, meta.epoch.peer, effect.stale, waited))
        elif asker is not None and hot is not None and not effect.stale and asker.sealed is None:
            if asker.own and hot.remark_ms != wall_ms:
                hot.tell_age(wall_ms)
            self._given.append((asker.identity, asker.id, hot, hot.remark if asker.own else b"", b""))
        elif asker is not None:
            remark = Remark(meta.epoch.peer, effect.stale, term=meta.epoch.term, boot=meta.epoch.boot)
            self._answer(asker, Answer(asker.id, VALUE, value, meta.expire_ms, age_ms, remark=remark))

    def fetched_for(self, key: bytes) -> None:
        """A call of this peer for the key is over: one of those who wait for it is the one that it was made for."""
        self._fetched_for = key

    def _count_waited(self, effect: Give) -> None:
        if effect.request not in self._waits:
            return
        self._waits.discard(effect.request)
        if effect.key == self._fetched_for:
            self._fetched_for = b""
        elif not effect.stale:
            self.stampedes_avoided += 1

    def _ask_again(self, asker: Remote | Local) -> None:
        assert isinstance(asker.asked, Asked), "only who asked is given a value"
        number = self._number()
        asked = asker.asked._replace(request=number)
        self._askers[number] = asker._replace(asked=asked, again=asker.again + 1)
        if asker.again < AGAIN_MAX:
            self._tell(asked)
        else:
            self.see_other(SeeOther(number))

    def keep_alive(self, request: int) -> None:
        asker = self._askers.get(request)
        if asker is not None and request not in self._waits:
            self._waits.add(request)
            self.misses += 1
        if isinstance(asker, Remote):
            self._send(asker.identity, [asker.id], asker.sealed)

    def see_other(self, effect: SeeOther) -> None:
        asker = self._askers.pop(effect.request, None)
        self._waits.discard(effect.request)
        self.misses += effect.miss
        self.see_others += not effect.miss
        if isinstance(asker, Local):
            why = Why.MISS if effect.miss else Why.ELSEWHERE
            text = "there is no such entry here" if effect.miss else "this peer cannot get the entry now"
            self._settle(asker, Absent(why, text))
        elif asker is not None:
            self._answer(asker, Answer(asker.id, SEEOTHER, remark=Remark(miss=effect.miss)))

    def refuse(self, effect: Refuse) -> None:
        asker = self._askers.pop(effect.request, None)
        self._waits.discard(effect.request)
        self.refusals += 1
        if isinstance(asker, Local):
            self._settle(asker, Absent(Why.MISS if effect.miss else Why.SOURCE, effect.reason))
        elif asker is not None:
            remark = Remark(miss=effect.miss, error=effect.reason[:REASON_CHARS_MAX] or "the source failed")
            self._answer(asker, Answer(asker.id, SEEOTHER, remark=remark))

    def finished(self, effect: Finished) -> None:
        asker = self._askers.pop(effect.request, None)
        if isinstance(asker, Local):
            self._settle(asker, Done(effect.ok, effect.reason, effect.missing))
        elif asker is not None:
            remark = Remark(error=effect.reason[:REASON_CHARS_MAX], missing=effect.missing, ok=effect.ok)
            self._answer(asker, Answer(asker.id, DONE, remark=remark))

    def withdraw(self, request: int) -> None:
        """Nobody in this process waits for it any more."""
        self._askers.pop(request, None)
        self._waits.discard(request)

    def asker(self, request: int) -> Remote | None:
        """The client behind a request that waits."""
        found = self._askers.get(request)
        return found if isinstance(found, Remote) else None

    def answer(self, asker: Remote, answer: Answer) -> None:
        """One more answer to a client that waits, such as a claim."""
        self._answer(asker, answer)

    def send_away(self) -> tuple[int, ...]:
        """This peer ends: everybody who waits asks another one. Gives the requests that nobody waits for any more."""
        numbers = tuple(self._askers)
        for number in numbers:
            self.see_other(SeeOther(number))
        return numbers

    def _answer(self, asker: Remote, answer: Answer) -> None:
        if not asker.own:
            answer = answer._replace(remark=None)
        self._send(asker.identity, answer_frames(answer), asker.sealed)

    def _send(self, identity: bytes, frames: list[bytes], opened: Opened | None) -> None:
        if opened is not None:
            assert self._seal is not None
            frames.append(self._seal.sealed(opened, frames))
        self._sockets.to_client([identity, *frames])

    @staticmethod
    def _settle(asker: Local, answer: Found | Absent | Done) -> None:
        if not asker.answer.done():
            asker.answer.set_result(answer)

    # --- values at hand, and who is told that one is void -------------------------------------------------------------

    def _keep(self, key: bytes, meta: Meta, value: bytes) -> Hot | None:
        """None: it is too large to be kept."""
        if len(value) > HOT_VALUE_BYTES_MAX:
            return None
        source = self._settings.source_of(key)
        until_ms = meta.expire_ms - (source.refresh_ahead_ms if source is not None else 0)
        self.drop(key)
        kept = self._hot[key] = Hot(meta, value, until_ms)
        self._hot_bytes += len(value) + len(key) + HOT_ENTRY_BYTES
        while self._hot_bytes > HOT_BYTES_MAX:
            self.drop(next(iter(self._hot)))
        return kept

    def changed(self, key: bytes, meta: Meta) -> None:
        """The meta of a key was stored: its value at hand stays if it is still this one."""
        found = self._hot.get(key)
        if found is not None and (found.meta.epoch, found.expire_ms) != (meta.epoch, meta.expire_ms):
            self.drop(key)

    def drop(self, key: bytes) -> None:
        """The value at hand, if any, is not given any more."""
        found = self._hot.pop(key, None)
        if found is not None:
            self._hot_bytes -= len(found.value) + len(key) + HOT_ENTRY_BYTES

    def floored(self, floor: Floor) -> None:
        """What the floor reaches is not given any more, here and by clients that keep copies."""
        if floor.prefix:
            for key in [key for key in self._hot if key.startswith(floor.key)]:
                self.drop(key)
        else:
            self.drop(floor.key)
        self.hand_out()  # what was given before comes before it
        flag = b"\x01" if floor.prefix else b""
        for watcher in self._watchers.values():
            self._send(watcher.identity, [b"", DROPPED_COPY, floor.key, flag], watcher.sealed)

    def _watch(self, watcher: Remote) -> None:
        self._watchers.pop(watcher.identity, None)
        self._watchers[watcher.identity] = watcher
        if len(self._watchers) > WATCHERS_MAX:
            del self._watchers[next(iter(self._watchers))]
