"""The control API of a cache peer, on loopback: how it stands, its keys, its events, its figures; and changes.

Reading is open to everybody on this machine; a change needs the control key. `primacy cache status`, `keys`,
`invalidate`, `refresh` and `reload` ask here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from primacy.cache.access import as_key, check_ms, shown_key
from primacy.cache.effects import Record
from primacy.cache.peer import Peer
from primacy.cache.shown import document, exposition, rows
from primacy.control.loopback import LoopbackServer, body_of, number_of, sent_event, wants_stream
from primacy.errors import UsageError
from primacy.node.clock import Clock

EVENTS_MAX = 1_000
"""Events that are kept for readers."""
KEY_BYTES_SHOWN = 500
"""Of a key in an event. Keys may be long, and a thousand events are kept."""
KEYS_DEFAULT = 100
WITHIN_MS_MAX = 600_000
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Event(NamedTuple):
    """One event of this peer."""

    number: int
    at_ms: int
    name: str
    key: str
    detail: str


class Events:
    """The newest events, numbered; a port of `LoopbackServer.stream`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.newest = 0
        self.wakers: set[Callable[[], None]] = set()

    def add(self, record: Record) -> None:
        self.newest += 1
        self._kept.append(
            Event(
                self.newest,
                self._clock.wall_ms(),
                record.event,
                shown_key(record.key[:KEY_BYTES_SHOWN]),
                record.detail[:500],
            )
        )
        for wake in tuple(self.wakers):
            wake()

    def after(self, number: int, /) -> Sequence[Event]:
        return [event for event in self._kept if event.number > number]


class CacheControl(LoopbackServer):
    """Serves one peer's control API."""

    def __init__(
        self,
        peer: Peer,
        clock: Clock,
        key: str,
        host: str,
        complain: Callable[[str], None],
        events: Events,
        about: dict[str, Any],
        reload: Callable[[bool], Any],
    ) -> None:
        """`about`: what the file says of this peer. `reload(force)`: reads the file again and gives a `Done`."""
        super().__init__(key, host, complain)
        self._peer, self._clock, self._events, self._about, self._reload = peer, clock, events, about, reload
        self._started_ms = clock.now_ms()

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/healthz", self.healthz)
        router.add_get("/metrics", self._metrics)
        router.add_get("/v1/state", self._state)
        router.add_get("/v1/cache", self._state)
        router.add_get("/v1/cache/keys", self._keys)
        router.add_get("/v1/events", self._events_of)
        router.add_post("/v1/cache/invalidate", self._invalidate)
        router.add_post("/v1/cache/refresh", self._refresh)
        router.add_post("/v1/cache/reload", self._reloaded)

    # --- read ---------------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """How this peer stands."""
        now_ms = self._clock.now_ms()
        return document(self._peer, self._about, now_ms, now_ms - self._started_ms)

    async def _state(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response(self.document())

    async def _keys(self, request: web.Request) -> web.Response:
        prefix = as_key(request.query.get("prefix", ""), empty=True)
        most = number_of(request.query.get("limit", str(KEYS_DEFAULT)), "limit")
        found, more = rows(self._peer.machine, prefix, most, self._clock.now_ms(), self._clock.wall_ms())
        return web.json_response({"keys": found, "more": more})

    async def _events_of(self, request: web.Request) -> web.StreamResponse:
        if wants_stream(request):
            return await self.stream(
                request,
                self._events,
                lambda event: sent_event(event.number, event.name, event._asdict()),
                "events of this cache peer",
            )
        after = number_of(request.query.get("after", "0"), "after")
        return web.json_response({"events": [event._asdict() for event in self._events.after(after)]})

    async def _metrics(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(body=exposition(self._peer, self._clock.now_ms()), headers={"Content-Type": METRICS_TYPE})

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _invalidate(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        prefix = body.get("prefix", False) is True
        done = await self._peer.invalidate(_key(body, empty=prefix), prefix=prefix, within_ms=_within(body))
        return web.json_response({"ok": done.ok, "reason": done.reason, "not_told": list(done.missing)})

    async def _refresh(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        done = await self._peer.refresh(_key(body), within_ms=_within(body))
        return web.json_response({"ok": done.ok, "reason": done.reason, "not_told": list(done.missing)})

    async def _reloaded(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        done = await self._reload(body.get("force", False) is True)
        return web.json_response({"ok": done.ok, "reason": done.reason, "not_told": list(done.missing)})


def _key(body: dict[str, Any], empty: bool = False) -> bytes:
    key = body.get("key")
    if not isinstance(key, str) or (not key and not empty):
        raise UsageError('the body names a key: {"key": "TEXT"}')
    return as_key(key, empty=empty)


def _within(body: dict[str, Any]) -> int:
    within_ms = body.get("within_ms", 5_000)
    check_ms("within_ms", within_ms, 1, WITHIN_MS_MAX)
    assert isinstance(within_ms, int)
    return within_ms
