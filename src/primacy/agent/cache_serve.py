"""`primacy cache serve`: one cache peer, assembled from the settings, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from primacy.agent.control_api import ANY, ANYWHERE, listening
from primacy.agent.notify import Notifier
from primacy.agent.signals import EndSignals
from primacy.agent.state import state_root
from primacy.cache.access import Done, named_key
from primacy.cache.configured import machine_settings, source_specs, storage_of
from primacy.cache.control import CacheControl, Events
from primacy.cache.effects import Record
from primacy.cache.http import CacheServer
from primacy.cache.peer import Peer, Secured
from primacy.cache.shown import told
from primacy.cache.sockets import plain_frames
from primacy.cache.zap import Curve
from primacy.control import ADDRESS_FILE
from primacy.control.key import own_key, write_whole
from primacy.control.tls import server_context
from primacy.errors import CannotHere, InUse, UsageError
from primacy.loop import QuickLoop
from primacy.node.clock import Clock
from primacy.node.folder import Folder
from primacy.node.lock import AgentLock
from primacy.node.log import Level, Log
from primacy.settings.loading import load, security_of
from primacy.settings.schema import Settings
from primacy.settings.schema_cache import DEFAULT_API, DEFAULT_URL
from primacy.settings.schema_cache import Peer as ListedPeer
from primacy.transport.seal import read_secrets

FOLDER = "cache"
"""Below the folder of the cluster: a folder for each peer of this machine, by its id."""
NODE = "peer"
"""The id of a peer without a list."""
QUIET = frozenset(("asked", "fetch-started", "fetched", "called"))
"""Events that happen with every retrieval: they are lines only with -v."""
GRAVE = frozenset(
    (
        "majority-lost",
        "partitioned",
        "old-peer",
        "clock-off",
        "terms-exhausted",
        "strange-term",
        "ceiling-not-stored",
        "floor-not-stored",
        "overrun",
    )
)
"""Events that somebody should look at."""


REMOVED = "this peer is not in the list any more: it sends its clients to the others; end it when none is left"


class PeerPlace(NamedTuple):
    """Which peer of the list this is, and where it keeps its things."""

    node: str
    listed: ListedPeer
    folder: str


def place_of(settings: Settings, environment: Mapping[str, str], uid: int) -> PeerPlace:
    """Without a list this peer is alone, on loopback."""
    cache = settings.cache
    node = settings.node or (next(iter(cache.peers)) if len(cache.peers) == 1 else "")
    if cache.peers and node not in cache.peers:
        named = ", ".join(list(cache.peers)[:8])
        raise UsageError(f"which peer is this? Say --node ID with one of cache.peers: {named}")
    listed = cache.peers[node] if cache.peers else ListedPeer(DEFAULT_URL, DEFAULT_API)
    name = node or NODE
    return PeerPlace(name, listed, folder_of(settings, environment, uid, name))


def folder_of(settings: Settings, environment: Mapping[str, str], uid: int, name: str) -> str:
    """Where the peer of this id keeps its things on this machine."""
    return os.path.join(state_root(settings, environment, uid), settings.cluster.name, FOLDER, name)


def secured(settings: Settings, clock: Clock) -> Secured:
    """Seals or CURVE, as the file says."""
    cache, cluster = settings.cache, settings.cluster
    chosen = security_of(settings)
    if chosen == "none":
        return Secured()
    if not cluster.secret_file:
        raise UsageError(f"cache.security = {chosen} needs cluster.secret_file; make one with: primacy keygen")
    secrets = read_secrets(cluster.secret_file)
    if chosen == "curve":
        return Secured(curve=Curve(secrets[0], cluster.name, cache.clients))
    return Secured.by(cluster.name, secrets, cache.clients, clock.wall_ms())


# --- serving ----------------------------------------------------------------------------------------------------------


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class Lines(logging.Handler):
    """What the peer's parts say is a line like every other, in the form that the file wants."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.INFO)
        self._lines = log

    def emit(self, record: logging.LogRecord) -> None:
        graves = ((logging.ERROR, Level.ERROR), (logging.WARNING, Level.WARN))
        level = next((ours for least, ours in graves if record.levelno >= least), Level.INFO)
        for line in self.format(record).splitlines():
            self._lines.say(level, line)


def serve_cache(settings: Settings, log: Log, clock: Clock) -> int:
    """Until a signal ends it; returns the exit code."""
    place = place_of(settings, os.environ, os.geteuid())
    with contextlib.ExitStack() as stack:
        lines = Lines(log)
        logging.getLogger("primacy").addHandler(lines)
        stack.callback(logging.getLogger("primacy").removeHandler, lines)
        try:
            return _serve_in(place, settings, log, clock)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise CannotHere(
                f"the state folder {place.folder} cannot be written: {error.strerror}; make room on that disk, or name "
                "another folder with --state-dir"
            ) from None


def _serve_in(place: PeerPlace, settings: Settings, log: Log, clock: Clock) -> int:
    with contextlib.ExitStack() as stack:
        folder = Folder(place.folder)
        stack.callback(folder.close)
        lock = AgentLock(folder)
        stack.callback(lock.close)
        if not lock.take():
            raise InUse(f"peer {place.node} runs on this machine already: {lock.holder()} has {folder.where}")
        with asyncio.Runner(loop_factory=QuickLoop) as runner:
            return runner.run(_Serving(settings, log, clock, place, folder).run())


class _Serving:
    """One peer and what serves it."""

    def __init__(self, settings: Settings, log: Log, clock: Clock, place: PeerPlace, folder: Folder) -> None:
        self._settings, self._log, self._clock, self._place, self._folder = settings, log, clock, place, folder
        self._events = Events(clock)
        self._servers: list[Any] = []

    async def run(self) -> int:
        plain_frames()
        settings, place, signals = self._settings, self._place, EndSignals()
        cache, started_ms = settings.cache, self._clock.now_ms()
        addresses = [(one.url, one.api) for one in cache.peers.values()]
        peer = Peer(
            place.listed.url,
            place.listed.api,
            addresses,
            source_specs(cache),
            storage_of(cache, place.folder),
            bind_url=place.listed.bind_url or None,
            bind_api=place.listed.bind_api or None,
            settings=machine_settings(cache),
            secured=secured(settings, self._clock),
            allow_open=cache.allow_open,
            on_overrun=cache.on_overrun,
            folder=os.path.dirname(os.path.abspath(settings.source)) if settings.source else os.getcwd(),
            on_event=self._record,
            clock=self._clock,
        )
        await peer.start()
        about = self._about()

        def told_now(prefix: bytes, most: int) -> bytes:
            now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
            return told(peer, about, prefix, most, now_ms, wall_ms, now_ms - started_ms)

        peer.serving.status = told_now
        notifier = Notifier(os.environ, os.getpid())
        stopped = asyncio.ensure_future(peer.wait_stopped())
        waits = asyncio.ensure_future(signals.event.wait())
        try:
            await self._open(peer)
            self._log.info(self._sentence())
            notifier.ready(f"cache peer {place.node}")
            await asyncio.wait((stopped, waits), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits.cancel()
            notifier.close()
            for server in self._servers:
                await server.close()
            await peer.stop()
            with contextlib.suppress(OSError):
                os.unlink(ADDRESS_FILE, dir_fd=self._folder.handle)
            await signals.settle()
        await stopped  # a defect of the peer is raised here
        return signals.exit_code or 0

    def _about(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "cluster": settings.cluster.name,
            "node": self._place.node,
            "security": security_of(settings),
            "storage": settings.cache.storage.type,
        }

    async def _open(self, peer: Peer) -> None:
        """The control API, and HTTP if it is wanted."""
        settings, key = self._settings, own_key(self._folder)

        async def reload(force: bool) -> Done:
            return await self._reload(peer, force)

        tls = server_context(settings)
        wanted = settings.control.listen if settings.source else ANY
        at = listening("control.listen", wanted, else_any=True)
        host, port = at.getsockname()[:2]
        control = CacheControl(peer, self._clock, key, host, self._log.warn, self._events, self._about(), reload)
        self._servers.append(control)
        await control.start(at, tls)
        said = {"host": ANYWHERE.get(host, host), "port": port, "pid": os.getpid(), "node": self._place.node}
        write_whole(self._folder, ADDRESS_FILE, json.dumps(said).encode())
        if settings.cache.http:
            at = listening("cache.http", settings.cache.http)
            host = at.getsockname()[0]
            served = CacheServer(peer, self._clock, key, host, settings.cache.key_bytes_max, self._log.warn)
            self._servers.append(served)
            await served.start(at, tls)

    async def _reload(self, peer: Peer, force: bool) -> Done:
        """The file once more: one peer added or removed (C10). Everything else needs a restart, and is named."""
        if not self._settings.source:
            raise UsageError("this peer was started without a file: there is nothing to read again")
        now = load(self._settings.source, self._place.node, any_node=True)
        listed = now.cache.peers.values()
        leaves = bool(listed) and all(one.url != peer.url for one in listed)
        done = await peer.reload([(one.url, one.api) for one in listed], force=force, leaves=leaves)
        if done.ok:
            gone = ", without this one: clients are sent to the others" if leaves else ""
            self._log.info(f"the list of peers has {len(listed)} now{gone}")
        return done._replace(reason=done.reason or (REMOVED if leaves and done.ok else ""))

    def _record(self, record: Record) -> None:
        self._events.add(record)
        about = [named_key(record.key)] if record.key else []
        line = ": ".join([record.event, *about, *([record.detail[:300]] if record.detail else [])])
        if record.event in GRAVE:
            self._log.warn(line)
        elif record.event in QUIET:
            self._log.debug(line)
        else:
            self._log.info(line)

    def _sentence(self) -> str:
        cache, place = self._settings.cache, self._place
        count = max(1, len(cache.peers))
        peers = "alone" if count == 1 else f"one of {count}"
        sources = ", ".join(spec.source for spec in source_specs(cache) if isinstance(spec.source, str)) or "no source"
        http = f", HTTP at {cache.http}" if cache.http else ""
        kept = "memory" if cache.storage.type == "memory" else os.path.join(place.folder, cache.storage.dir)
        return (
            f"cache peer {place.node}, {peers}: clients at {place.listed.api}{http}; {sources}; entries in {kept}; "
            f"security {security_of(self._settings)}"
        )
