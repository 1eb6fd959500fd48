"""`primacy.cache.Peer`: a cache peer inside of an application, or of `primacy cache serve`.

    async with primacy.cache.Peer(
        "tcp://10.0.0.1:6000", "tcp://10.0.0.1:6001",
        peers=[("tcp://10.0.0.2:6000", "tcp://10.0.0.2:6001"), ("tcp://10.0.0.3:6000", "tcp://10.0.0.3:6001")],
        source=fetch,
        secured=primacy.cache.Secured.by("rates", [secret]),
    ) as peer:
        found = await peer.read(b"rates/today")

It is assembled in `start`: a machine for its mode, sockets, storage, sources. All of it lives in the running loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple, Self

from primacy.cache.access import WITHIN_MS_MAX, Absent, Done, Found, Why, check_after, check_ms, check_ttl
from primacy.cache.claims import ClaimCalls
from primacy.cache.driver import Driver
from primacy.cache.effects import Membership, Record
from primacy.cache.inputs import Asked, Input, Invalidate, Put, Refresh, Reload, Started, Withdrawn
from primacy.cache.machine import Machine
from primacy.cache.model import CacheSettings, Mode, PeerAddress, SourceSettings
from primacy.cache.security import PeerSeal, ServerSeal, new_boot
from primacy.cache.serving import Serving
from primacy.cache.sockets import PeerSockets
from primacy.cache.source import Calls, SourceSpec
from primacy.cache.storage import MemoryStorage, Storage, check_stored
from primacy.cache.wire import URL_CHARS_MAX, Limits, Reader
from primacy.cache.writing import Writer
from primacy.cache.zap import CLIENTS, PEERS, Curve, Zap, connect_with, serve_with
from primacy.errors import UsageError
from primacy.loop import timer
from primacy.node.clock import Clock, SystemClock
from primacy.settings.checks_cache import LOOPBACK
from primacy.settings.schema_cache import TTL_MS_LEAST, TTL_MS_MOST
from primacy.settings.timing_cache import CACHE_PROFILES

log = logging.getLogger("primacy")

WITHIN_MS = 2_000
CHANGE_MS = 5_000
RELOAD_MS = 60_000
NOT_RUNNING = "this peer does not run: use it between start and stop"
LATER_MS = 200
"""A request from inside is withdrawn at its time. The machine's own bound on it is a little later, so that who asked
too late is told that, and is not sent elsewhere."""

Address = PeerAddress | tuple[str, str] | Mapping[str, str]
Source = str | Callable[[bytes], object] | Sequence[SourceSpec]
"""`call:`, `http:` or `cmd:` as in the settings, a function (plain or async), or several, each with a prefix."""


class Secured(NamedTuple):
    """Seals of a peer under `secret`, or what `curve` is made of; nothing: `none`."""

    peers: PeerSeal | None = None
    clients: ServerSeal | None = None
    curve: Curve | None = None

    @classmethod
    def by(
        cls, cluster: str, secrets: Sequence[bytes], clients: Sequence[str] = (), wall_ms: int | None = None
    ) -> Self:
        """Seals under the secrets of a cluster: the first one seals, all are accepted. `clients`: the only names that
        are heard; empty: every one whose key was made with the secret."""
        started_ms = SystemClock().wall_ms() if wall_ms is None else wall_ms
        return cls(PeerSeal(cluster, new_boot(), secrets), ServerSeal(cluster, secrets, started_ms, clients))


class Peer:
    """One peer. `peers` are the others; this one may be among them. `api` is where clients find it. `allow_open`: it
    may bind an address that others reach although it asks nobody for a key."""

    def __init__(
        self,
        url: str,
        api: str,
        peers: Iterable[Address] = (),
        source: Source | None = None,
        storage: Storage | None = None,
        *,
        bind_url: str | None = None,
        bind_api: str | None = None,
        ttl_ms: int = 3_600_000,
        stale_ms: int | None = None,
        profile: str | None = None,
        mode: str = "own",
        settings: CacheSettings | None = None,
        secured: Secured = Secured(),  # noqa: B008 -- immutable
        allow_open: bool = False,
        on_event: Callable[[Record], None] | None = None,
        on_overrun: str = "exit",
        folder: str = "",
        clock: Clock | None = None,
        machine: Callable[[str, tuple[PeerAddress, ...], CacheSettings, Random], Machine] | None = None,
    ) -> None:
        self.url, self.api = url, api
        self.peers = checked_peers(url, api, peers)
        self.storage: Storage = storage if storage is not None else MemoryStorage()
        self._bind_url, self._bind_api = bind_url or url, bind_api or api
        self._sources = source_specs(source)
        self.settings = settings or settings_of(mode, profile, ttl_ms, stale_ms, self._sources)
        self.settings = self.settings._replace(durable=self.storage.durable)
        self._on_overrun, self._folder = on_overrun, folder
        if not allow_open:
            _check_closed(self._bind_url, self._bind_api, secured)
        self._secured = secured
        self._on_event = on_event
        self._clock: Clock = clock or SystemClock()
        self._make_machine = machine or machine_of
        self.boot = new_boot()
        self._started = self._runs = False
        self._turns = asyncio.Lock()
        """Start and stop follow each other: who stops a peer that still starts waits for it."""
        self._ended: asyncio.Event = asyncio.Event()
        self.machine: Machine
        self.driver: Driver
        self.serving: Serving
        self.calls: Calls
        self._sockets: PeerSockets
        self._zap: Zap | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"Peer({self.url!r}, {self.api!r})"

    # --- from start to stop -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Binds, loads what the storage has, and takes part."""
        if self._started:
            raise UsageError("this peer was started before; make a new one")
        self._started = True
        async with self._turns:
            await self._start()

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        calls: Calls | None = None
        sockets: PeerSockets | None = None
        try:
            limits = Limits(self.settings.key_bytes_max, self.settings.value_bytes_max)
            sockets = self._sockets = PeerSockets(self.url, limits)
            stored = self.storage.load()
            if self.settings.mode is Mode.OWN:
                check_stored(stored, self._clock.wall_ms(), getattr(self.storage, "where", ""))
            self.machine = self._make_machine(self.url, self.peers, self.settings, Random(secrets.randbits(64)))
            driver = self.driver = self._driven()
            driver.writer = Writer(self.storage, loop, driver.tell)
            calls = self._calling()
            await calls.open()
            self.calls = calls
            driver.timer = timer(driver.ring)
            self._serve_clients()
            self._zap = self._encrypted(self._secured.curve)
            self._sockets.open(self._bind_url, self._bind_api, (peer.url for peer in self.peers))
        except BaseException:
            if calls is not None:
                await calls.close()
            if self._zap is not None:
                self._zap.close()
            if sockets is not None:
                await sockets.close()
            self.storage.close()
            self._ended.set()
            raise
        self._runs = True
        driver.tell(Started(self.boot, stored.metas, stored.floors, stored.ceiling))
        self._sockets.watch(loop, driver.turn)
        if self._zap is not None:
            self._zap.watch(loop)

    def _driven(self) -> Driver:
        """Between machine and sockets."""
        return Driver(
            self.machine,
            self._clock,
            self._sockets,
            self._reader(),
            bundles=self.settings.mode is Mode.OWN,
            seal=self._secured.peers,
            on_event=self._on_event,
            on_membership=self._list_changed,
            on_failure=self._failed,
        )

    def _calling(self) -> Calls:
        """The sources."""
        return Calls(
            self._sources,
            self._clock,
            self.driver.tell,
            calls_max=self.settings.calls_max,
            value_bytes_max=self.settings.value_bytes_max,
            on_overrun=self._on_overrun,
            on_alert=self._alert,
            folder=self._folder,
        )

    def _serve_clients(self) -> None:
        """Clients, and those of them that fetch by themselves."""
        settings, driver = self.settings, self.driver
        self.serving = driver.serving = Serving(
            self.machine, settings, self._sockets, self._clock, driver.tell, driver.value, self._secured.clients
        )
        driver.calls = ClaimCalls(
            self.calls,
            self.serving,
            lambda key: settings.source_of(key) is not None,
            lambda key, epoch: driver.writer.read(key, epoch) is not None,
            driver.tell,
            self._clock,
        )
        self.serving.apis = tuple(peer.api for peer in self.peers)

    def _encrypted(self, curve: Curve | None) -> Zap | None:
        """CURVE on all sockets, and who answers for it."""
        if curve is None:
            return None
        own = curve.own
        zap = Zap(self._sockets.context, curve.admitted())
        self._sockets.secure(
            lambda socket: serve_with(socket, own, PEERS),
            lambda socket: connect_with(socket, own, own.public),
            lambda socket: serve_with(socket, own, CLIENTS),
        )
        return zap

    def _alert(self, text: str) -> None:
        log.error("%s", text)
        if self._on_event is not None:
            self._on_event(Record("overrun", b"", text))

    async def stop(self) -> None:
        """Calls are ended and others told so; clients that wait are sent elsewhere; what was stored is on the disk."""
        async with self._turns:
            if self._runs:
                self._runs = False
                await self._stop()

    async def _stop(self) -> None:
        try:
            # Nobody waits here any more, so that this peer does not fetch anew what it ends now: another one will.
            self.machine.retire()
            for number in self.serving.send_away():
                self.driver.tell(Withdrawn(number))
            await self.driver.calls.close()
            self.driver.timer.clear()
            if self._zap is not None:
                self._zap.close()
            await self._sockets.close()
            await self.driver.writer.close()
        finally:
            self._ended.set()

    async def wait_stopped(self) -> None:
        """Until it has ended, by `stop` or by a defect, which is raised."""
        if not self._started:
            raise UsageError(NOT_RUNNING)
        await self._ended.wait()
        driver: Driver | None = getattr(self, "driver", None)  # there is none where the start failed early
        if driver is not None and driver.failure is not None:
            raise driver.failure

    def _failed(self, error: BaseException) -> None:  # noqa: ARG002
        self._stopper = asyncio.get_running_loop().create_task(self.stop())

    def _reader(self) -> Reader:
        limits = Limits(self.settings.key_bytes_max, self.settings.value_bytes_max)
        return Reader(self.url, (peer.url for peer in self.peers), limits)

    def _list_changed(self, effect: Membership) -> None:
        self.peers = effect.peers
        urls = [peer.url for peer in self.peers]
        self.driver.reader = self._reader()
        self._sockets.connect(urls)
        self.serving.apis = tuple(peer.api for peer in self.peers)
        if self._secured.peers is not None:
            self._secured.peers.forget(urls)

    # --- asked from inside --------------------------------------------------------------------------------------------

    async def read(
        self, key: bytes, *, after_ms: int = 0, within_ms: int = WITHIN_MS, fetch: bool = True
    ) -> Found | Absent:
        """The entry, or why there is none. `after_ms`: it must expire later than this (Unix ms)."""
        self._check_key(key)
        check_ms("within_ms", within_ms, 0, WITHIN_MS_MAX)
        check_after("after_ms", after_ms)
        self._check_runs()
        at_hand = self.serving.at_hand(key)
        if at_hand is not None:
            return at_hand
        after_ms = min(after_ms, self._clock.wall_ms())
        until_ms = self._clock.now_ms() + within_ms + LATER_MS
        found = await self._asked(lambda number: Asked(number, key, after_ms, fetch, False, until_ms), within_ms)
        if found is None:
            return Absent(Why.LATE, f"the entry was not had within {within_ms:,} ms")
        assert not isinstance(found, Done)
        return found

    async def invalidate(self, key: bytes, *, prefix: bool = False, within_ms: int = CHANGE_MS) -> Done:
        """Nobody gives what was there as fresh any more, once this is done (C11). `prefix`: all keys of it."""
        self._check_key(key, empty=prefix)
        check_ms("within_ms", within_ms, 0, WITHIN_MS_MAX)
        until_ms = self._clock.now_ms() + within_ms + LATER_MS
        return await self._changed(lambda number: Invalidate(number, key, prefix, until_ms), within_ms)

    async def refresh(self, key: bytes, *, within_ms: int = CHANGE_MS) -> Done:
        """The key is fetched anew; until then the old value stays."""
        self._check_key(key)
        check_ms("within_ms", within_ms, 0, WITHIN_MS_MAX)
        until_ms = self._clock.now_ms() + within_ms + LATER_MS
        return await self._changed(lambda number: Refresh(number, key, until_ms), within_ms)

    async def put(self, key: bytes, value: bytes, ttl_ms: int | None = None, *, within_ms: int = CHANGE_MS) -> Done:
        """A value that this process brings itself."""
        self._check_key(key)
        check_ms("within_ms", within_ms, 0, WITHIN_MS_MAX)
        if not isinstance(value, bytes):
            raise UsageError(f"a value is bytes, and this is {type(value).__name__}: encode it first")
        if len(value) > self.settings.value_bytes_max:
            raise UsageError(f"the value has {len(value)} bytes; value_bytes_max = {self.settings.value_bytes_max}")
        until_ms = self._clock.now_ms() + within_ms + LATER_MS
        if ttl_ms is not None:
            check_ttl(ttl_ms)
        ttl_ms = ttl_ms or self.settings.ttl_of(key)
        return await self._changed(lambda number: Put(number, key, value, ttl_ms, until_ms), within_ms)

    async def reload(
        self, peers: Iterable[Address], *, force: bool = False, leaves: bool = False, within_ms: int = RELOAD_MS
    ) -> Done:
        """The list of peers has changed: one added or removed (C10). `leaves`: this peer is not in it any more, and
        sends its clients to the others from now on."""
        check_ms("within_ms", within_ms, 0, WITHIN_MS_MAX)
        self._check_runs()
        found = checked_peers(self.url, self.api, peers)
        self._sockets.refuse_bad(peer.url for peer in found if peer.url != self.url)
        if leaves:
            found = tuple(peer for peer in found if peer.url != self.url)
        return await self._changed(lambda number: Reload(number, found, force), within_ms)

    async def _changed(self, make: Callable[[int], Input], within_ms: int) -> Done:
        found = await self._asked(make, within_ms)
        if found is None:
            return Done(False, f"it was not done within {within_ms:,} ms; it may still be")
        if isinstance(found, Absent):  # what waits when this peer ends is sent elsewhere, whatever it was
            return Done(False, "this peer was stopped before it was done; it may still be: ask another peer")
        assert isinstance(found, Done)
        return found

    async def _asked(self, make: Callable[[int], Input], within_ms: int) -> Found | Absent | Done | None:
        self._check_runs()
        number, answer = self.serving.local(make)
        try:
            async with asyncio.timeout(within_ms / 1_000):
                return await answer
        except TimeoutError:
            return None
        finally:
            if not answer.done() or answer.cancelled():
                self.serving.withdraw(number)
                self.driver.tell(Withdrawn(number))

    def _check_runs(self) -> None:
        if not self._runs:
            raise UsageError(NOT_RUNNING)

    def _check_key(self, key: bytes, empty: bool = False) -> None:
        if not isinstance(key, bytes):
            raise UsageError(f"a key is bytes, and this is {type(key).__name__}: encode it first")
        if not key and not empty:
            raise UsageError("the key is empty")
        if len(key) > self.settings.key_bytes_max:
            raise UsageError(f"the key has {len(key)} bytes; key_bytes_max = {self.settings.key_bytes_max}")

    # --- shown --------------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """For metrics and tests."""
        serving, driver, writer = self.serving, self.driver, self.driver.writer
        return {
            "hits": serving.hits,
            "stale": serving.stale,
            "misses": serving.misses,
            "see_others": serving.see_others,
            "refusals": serving.refusals,
            "stampedes_avoided": serving.stampedes_avoided,
            "fetches": driver.fetches,
            "fetch_failures": driver.fetch_failures,
            "fetch_ms": driver.fetch_ms,
            "waiting": serving.waiting,
            "requests_dropped": serving.dropped.total(),
            "messages_sent": driver.sent.total(),
            "messages_received": driver.received.total(),
            "messages_dropped": driver.dropped.total(),
            "batches": writer.batches,
            "writes": writer.writes,
            "write_failures": writer.failures,
        }


# --- assembled --------------------------------------------------------------------------------------------------------


def settings_of(
    mode: str, profile: str | None, ttl_ms: int, stale_ms: int | None, specs: Sequence[SourceSpec]
) -> CacheSettings:
    """What is said in a few words, as settings."""
    if mode not in tuple(Mode):
        raise UsageError(f"mode = {mode}: own or mixed")
    name = profile or ("lan" if mode == Mode.OWN else "ha-cache")
    if name not in CACHE_PROFILES:
        raise UsageError(f"profile = {name}: one of {', '.join(CACHE_PROFILES)}")
    check_ms("ttl_ms", ttl_ms, TTL_MS_LEAST, TTL_MS_MOST)
    if stale_ms is not None:
        check_ms("stale_ms", stale_ms, 0, TTL_MS_MOST, "; left out: without limit")
    sources = tuple(SourceSettings(spec.prefix, ttl_ms, stale_ms, limit_ms=spec.timeout_ms) for spec in specs)
    return CacheSettings(CACHE_PROFILES[name], Mode(mode), sources, stale_ms=stale_ms, ttl_ms=ttl_ms)


def machine_of(me: str, peers: tuple[PeerAddress, ...], settings: CacheSettings, chance: Random) -> Machine:
    """The machine of the mode."""
    if settings.mode is Mode.OWN:
        from primacy.cache.own import OwnMachine  # noqa: PLC0415 -- a peer needs one of the two

        return OwnMachine(me, peers, settings, chance)
    from primacy.cache.document import DocumentMachine  # noqa: PLC0415

    return DocumentMachine(me, peers, settings, chance)


def source_specs(source: Source | None) -> tuple[SourceSpec, ...]:
    """Every source, with its prefix."""
    if source is None:
        return ()
    return (SourceSpec(source),) if isinstance(source, str) or callable(source) else tuple(source)


def _check_closed(bind_url: str, bind_api: str, secured: Secured) -> None:
    """Refuses an address that others reach where everybody would be heard there."""
    for address, key in ((bind_url, secured.peers or secured.curve), (bind_api, secured.clients or secured.curve)):
        if key is None and not LOOPBACK.fullmatch(address):
            raise UsageError(
                f"{address[:80]} is open to others, and this peer asks nobody for a key; say "
                "secured=Secured.by(CLUSTER, SECRETS), or allow_open=True in a network that nobody else is in"
            )


def checked_peers(url: str, api: str, peers: Iterable[Address]) -> tuple[PeerAddress, ...]:
    """The whole list, this peer included, in the order of its urls. All peers must be told the same strings."""
    found = {url: api}
    for given in peers:
        match given:
            case (str(), str()):
                one = PeerAddress(*given)
            case Mapping() if {"url", "api"} <= set(given):
                one = PeerAddress(given["url"], given["api"])
            case _:
                raise UsageError(f"peers: {given!r} is no pair of url and api")
        if found.setdefault(one.url, one.api) != one.api:
            raise UsageError(f"peers: {one.url} is listed with two apis, {found[one.url]} and {one.api}")
    if len(set(found.values())) != len(found):
        raise UsageError(
            f"peers: {len(found)} urls and {len(set(found.values()))} different apis; each peer has its own"
        )
    for address in (*found, *found.values()):
        if "://" not in address or len(address) > URL_CHARS_MAX:
            raise UsageError(f"{address[:80]} is no address such as tcp://10.0.0.1:6000")
    return tuple(PeerAddress(*pair) for pair in sorted(found.items()))
