"""Clients that wait for a key, whatever the mode: who waits, since when, and when they hear something. Pure.

Every request that was added leaves exactly once: by `Give`, `SeeOther` or `Refuse`, or because it is withdrawn. Between
these it gets a `KeepAlive` at once and then one every `keepalive_ms` (1.3 of the document), counted from its own
arrival, so that the signs of many clients do not fall on one instant.

A client waits 2,000 ms after a sign (the original's 2,100) and then asks another peer under another number. So a
request whose last sign is older than that has nobody behind it, nor has one whose own time is over. It gets SEEOTHER:
who is gone does not hear it, who is not asks again, and the driver knows that this request is done. One that has waited
for `wait_max_ms` without a time of its own is treated alike: originals name no time, and a dead client looks like a
patient one (weakness L7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple

from primacy.cache.effects import Effect, Give, KeepAlive, Refuse, SeeOther
from primacy.cache.model import Meta, short_key

PATIENCE_MS = 2_100
"""How long the more patient of the known clients waits after a sign."""
WAIT_MAX_MS = 60_000
"""The longest wait of a request that names no time. Longer than most sources take; a live client loses nothing, because
it asks again at once."""
PER_KEY_MAX = 10_000
"""Requests that wait for one key. Each costs a KEEPALIVE a second."""
REQUESTS_MAX = 100_000
"""Requests that wait in all: about 50 MB."""
BYTES_MAX = 67_108_864
"""Bytes of the keys of these requests, each with its own."""
PROMPT_MAX = 20
"""Requests of one key that are sent away at once within one interval. The original's client asks the next peer without
a pause: if all peers sent it away at once, it would do nothing else. Further ones wait for the next sign."""


GIVEN_MAX = 64
"""Requests that one step gives a value to. The others follow at once, each look judging anew whether it is fresh."""
SIGNS_MAX = 64
"""Signs of one look at the time, a few milliseconds' worth. The others follow at once, after what peers have said:
thousands of signs that are due together, as when the machine was busy, would keep holds from being renewed."""


class Waiter(NamedTuple):
    """One request that waits."""

    request: int
    key: bytes
    after_ms: int
    """Unix ms: the value must expire later than this."""
    offers: bool
    """The client can fetch the key itself."""
    until_ms: int
    """On the machine's clock: nobody waits afterwards."""
    sign_ms: int
    """When it last heard something."""


class Waiting:
    """All waiting requests of one peer."""

    def __init__(
        self,
        keepalive_ms: int,
        *,
        patience_ms: int = PATIENCE_MS,
        wait_max_ms: int = WAIT_MAX_MS,
        per_key_max: int = PER_KEY_MAX,
        requests_max: int = REQUESTS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        assert 0 < keepalive_ms < patience_ms, "a client must hear a sign before it gives up"
        self._keepalive_ms = keepalive_ms
        self._patience_ms = patience_ms
        self._wait_max_ms = wait_max_ms
        self._per_key_max = per_key_max
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._waiters: dict[int, Waiter] = {}
        self._keys: dict[bytes, dict[int, None]] = {}  # in order of arrival
        self._due: list[tuple[int, int]] = []  # (when, request), a heap; entries of requests that left are passed over
        self._prompt: dict[bytes, int] = {}
        self._prompt_since_ms = 0
        self.turned_away = 0
        """Requests that were sent elsewhere because a bound was reached."""
        self.given_up = 0
        """Requests behind which nobody can be waiting any more."""

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, request: int) -> bool:
        return request in self._waiters

    def waits(self, key: bytes) -> bool:
        """Does anybody wait for this key?"""
        return key in self._keys

    def of(self, key: bytes) -> tuple[Waiter, ...]:
        """Who waits for this key, in order of arrival."""
        return tuple(self._waiters[request] for request in self._keys.get(key, ()))

    def keys(self) -> tuple[bytes, ...]:
        """The keys that somebody waits for, in the order in which the first of them came."""
        return tuple(self._keys)

    def offers(self, key: bytes) -> tuple[int, ...]:
        """The requests whose clients could fetch the key themselves."""
        return tuple(waiter.request for waiter in self.of(key) if waiter.offers)

    @property
    def deadline_ms(self) -> int | None:
        """When `passed` has something to do; None while nobody waits. May be early, never late."""
        return self._due[0][0] if self._due else None

    # --- in -----------------------------------------------------------------------------------------------------------

    def add(
        self,
        now_ms: int,
        request: int,
        key: bytes,
        after_ms: int = 0,
        *,
        offers: bool = False,
        until_ms: int | None = None,
    ) -> list[Effect]:
        """A request waits from now on and is told so; or is sent elsewhere at once (nobody behind it, or no room).
        `request in waiting` afterwards says which."""
        assert request not in self._waiters, f"request {request} waits already"
        until_ms = now_ms + self._wait_max_ms if until_ms is None else until_ms
        if until_ms <= now_ms:
            self.given_up += 1
            return [SeeOther(request)]
        room = self._bytes + len(key) <= self._bytes_max and len(self._waiters) < self._requests_max
        if not room or len(self._keys.get(key, ())) >= self._per_key_max:
            self.turned_away += 1
            return [SeeOther(request)]
        self._bytes += len(key)
        self._keys.setdefault(key, {})[request] = None
        self._await_sign(Waiter(request, key, after_ms, offers, until_ms, now_ms))
        return [KeepAlive(request)]

    def at_once(self, now_ms: int, key: bytes) -> bool:
        """May one more request of this key be sent away without a wait?"""
        if now_ms - self._prompt_since_ms >= self._keepalive_ms:
            self._prompt.clear()
            self._prompt_since_ms = now_ms
        if len(self._prompt) >= self._requests_max:
            return False
        short = short_key(key)
        self._prompt[short] = self._prompt.get(short, 0) + 1
        return self._prompt[short] <= PROMPT_MAX

    def _await_sign(self, waiter: Waiter) -> None:
        self._waiters[waiter.request] = waiter
        heappush(self._due, (min(waiter.sign_ms + self._keepalive_ms, waiter.until_ms), waiter.request))

    # --- out ----------------------------------------------------------------------------------------------------------

    def withdraw(self, request: int) -> None:
        """Its client is gone. One that is not known has left already, which a client cannot know."""
        if request in self._waiters:
            self._leave(request)

    def give(
        self,
        key: bytes,
        meta: Meta,
        *,
        stale: bool,
        fits: Callable[[Waiter], bool] | None = None,
        most: int = REQUESTS_MAX,
    ) -> list[Effect]:
        """The value of this meta goes to every request that it is late enough for, or to the first `most` of them;
        `fits` may refuse more of them. The others go on waiting."""
        suited = (
            waiter.request
            for waiter in map(self._waiters.__getitem__, self._keys.get(key, ()))
            if meta.expire_ms > waiter.after_ms and (fits is None or fits(waiter))
        )
        served = tuple(islice(suited, most))
        return [Give(self._leave(request), key, meta, stale) for request in served]

    def see_other(self, key: bytes) -> list[Effect]:
        """All requests of this key are sent to another peer."""
        return [SeeOther(self._leave(request)) for request in tuple(self._keys.get(key, ()))]

    def refuse(self, key: bytes, reason: str, *, miss: bool = False) -> list[Effect]:
        """All requests of this key are told why there is no value."""
        return [Refuse(self._leave(request), reason, miss) for request in tuple(self._keys.get(key, ()))]

    def see_other_all(self) -> list[Effect]:
        """Everybody is sent to another peer."""
        return [effect for key in self.keys() for effect in self.see_other(key)]

    def _leave(self, request: int) -> int:
        waiter = self._waiters.pop(request)
        self._bytes -= len(waiter.key)
        row = self._keys[waiter.key]
        del row[request]
        if not row:
            del self._keys[waiter.key]
        if len(self._due) > 2 * len(self._waiters) + 64:  # mostly requests that left: bounded, and cheap on average
            self._due = [(due_ms, known) for due_ms, known in self._due if known in self._waiters]
            heapify(self._due)
        return request

    # --- time ---------------------------------------------------------------------------------------------------------

    def passed(self, now_ms: int, idle: Callable[[bytes], bool]) -> list[Effect]:
        """Time has passed: signs that are due (1.3), bounded; `deadline_ms` says whether there are more. Who waits for
        a key about which nothing is under way (`idle`) is sent to another peer, and so is who cannot be waiting any
        more."""
        effects: list[Effect] = []
        for request in self._take_due(now_ms):
            waiter = self._waiters[request]
            if now_ms >= waiter.until_ms or now_ms - waiter.sign_ms > self._patience_ms:
                self.given_up += 1
                effects.append(SeeOther(self._leave(request)))
            elif idle(waiter.key):
                effects.append(SeeOther(self._leave(request)))
            else:
                self._await_sign(waiter._replace(sign_ms=now_ms))
                effects.append(KeepAlive(request))
        return effects

    def _take_due(self, now_ms: int) -> Iterable[int]:
        due: list[int] = []
        while self._due and self._due[0][0] <= now_ms and len(due) < SIGNS_MAX:
            when_ms, request = heappop(self._due)
            waiter = self._waiters.get(request)
            if waiter is not None and min(waiter.sign_ms + self._keepalive_ms, waiter.until_ms) == when_ms:
                due.append(request)
        return due
