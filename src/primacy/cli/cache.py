"""`primacy cache`: a peer of the HA cache, and its client."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from primacy.cli.call import Call, SpanMs, config_option, json_option, print_json
from primacy.errors import NotReached, PrimacyError, Refused, UsageError
from primacy.settings.loading import security_of
from primacy.settings.schema import Settings
from primacy.settings.schema_cache import DEFAULT_API, DEFAULT_URL, TTL_MS_LEAST, TTL_MS_MOST

if TYPE_CHECKING:
    from primacy.cache.client import Client

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
APIS = "PRIMACY_CACHE"
KEY = "PRIMACY_CACHE_KEY"
COMMAND_CLIENT = "primacy-command"
"""The client name of commands that may read the cluster's secret: its key is derived, and no file is needed."""
WATCH_S = 1.0
WITHIN_MS = 10_000
STATUS_MS = 2_000
"""A peer that does not answer within this is shown as one that does not."""


@click.group()
def cache() -> None:
    """Each entry fetched once for the whole cluster; peers serve it to everybody."""


# --- the peer ---------------------------------------------------------------------------------------------------------


@cache.command()
@config_option
@click.option("--node", metavar="ID", help="Which peer of the file this is.")
@click.option(
    "--source", metavar="S", help="What fetches an entry: cmd:PROGRAM {key}, http://HOST/{key}, call:MODULE:F."
)
@click.option("--url", metavar="URL", help="Where other peers connect; default: tcp://127.0.0.1:6000.")
@click.option("--api", metavar="URL", help="Where clients connect; default: tcp://127.0.0.1:6001.")
@click.option("--bind-url", metavar="URL", help="What is bound, if another than --url.")
@click.option("--bind-api", metavar="URL", help="What is bound, if another than --api.")
@click.option("--peer", "peers", multiple=True, metavar="URL,API", help="Another peer; once for each.")
@click.option("--http", metavar="HOST:PORT", help="Serve GET /cache/KEY there.")
@click.option(
    "--ttl-ms",
    type=SpanMs(TTL_MS_LEAST, TTL_MS_MOST),
    metavar="SPAN",
    help="How long an entry is fresh (1h).",
)
@click.option("--memory", is_flag=True, help="Keep entries in memory only.")
@click.option("--state-dir", metavar="DIR", help="Where it keeps what it must not forget.")
@click.pass_obj
def serve(call: Call, /, *, config: str | None, node: str | None, state_dir: str | None, **said: Any) -> int:
    """Run one peer of the cache. Ends with Ctrl-C.

    Without a file it is a cache of one peer on this machine: primacy cache serve --source 'cmd:./fetch {key}'
    """
    from primacy.agent.cache_serve import serve_cache
    from primacy.node.clock import SystemClock

    settings = peer_settings(call, config, node, state_dir, said)
    clock = SystemClock()
    log = call.log(settings, clock)
    if security_of(settings) == "none":
        log.warn("security: none. Everybody who can connect can read and write entries")
    return serve_cache(settings, log, clock)


def peer_settings(
    call: Call, config: str | None, node: str | None, state_dir: str | None, said: dict[str, Any]
) -> Settings:
    """The file's settings, or those of the options; both are checked by the same rules."""
    from primacy.settings import load, of_mapping

    file = call.file(config)
    wanted = node or call.node
    listed = {name: said[name] for name in ("url", "api", "bind_url", "bind_api") if said.get(name)}
    _check_source(said["source"] or "")
    options = {name: said[name] for name in ("source", "ttl_ms", "http") if said[name] is not None}
    if said["memory"]:
        options["storage"] = {"type": "memory"}
    if file is None:
        settings = of_mapping(_as_file(listed, said["peers"], options), wanted or None)
        settings = dataclasses.replace(settings, node=wanted or ("self" if settings.cache.peers else ""))
    elif listed or said["peers"]:
        raise UsageError(f"--url, --api and --peer are for a cache without a file; {file} lists the peers")
    else:
        settings = _with_options(load(file, wanted), options)
    folder = os.path.abspath(state_dir) if state_dir is not None else settings.state_dir
    return dataclasses.replace(settings, state_dir=folder)


def _with_options(settings: Settings, options: dict[str, Any]) -> Settings:
    """The file with what the options say in its place, under the rules of a file."""
    from primacy.errors import SettingsError
    from primacy.settings.accepted import wrong_listen
    from primacy.settings.checks import Checks
    from primacy.settings.loading import completed

    if not options:
        return settings
    http = options.get("http", "")
    if http and (wrong := wrong_listen(http)):
        raise UsageError(f"--http {http[:80]}: {wrong}")
    if "storage" in options:
        options["storage"] = dataclasses.replace(settings.cache.storage, **options["storage"])
    changed = dataclasses.replace(settings, cache=dataclasses.replace(settings.cache, **options))
    whole = completed(changed, {"slots.addr": 0}, settings.node, settings.source)
    problems = [problem for problem in Checks(whole, {}).problems() if problem.path.startswith("cache.")]
    if problems:
        raise SettingsError(problems, f"{settings.source} with these options")
    return whole


def _check_source(source: str) -> None:
    from primacy.settings.accepted import wrong_source

    if source and (wrong := wrong_source(source)):
        raise UsageError(f"--source {source[:80]}: {wrong}")


def _as_file(listed: dict[str, str], peers: tuple[str, ...], options: dict[str, Any]) -> dict[str, object]:
    """What the options say, in the words of a file."""
    section: dict[str, object] = dict(options)
    if listed or peers:
        found: dict[str, dict[str, str]] = {"self": {"url": DEFAULT_URL, "api": DEFAULT_API} | listed}
        for number, peer in enumerate(peers, 1):
            url, comma, api = peer.partition(",")
            if not comma:
                raise UsageError(
                    f"--peer {peer[:80]}: URL,API is needed, such as tcp://10.0.0.2:6000,tcp://10.0.0.2:6001"
                )
            found[f"peer{number}"] = {"url": url, "api": api}
        section["peers"] = found
    return {"cache": section} if section else {}


# --- the client -------------------------------------------------------------------------------------------------------


def within_option(default_ms: int) -> Callable[[F], F]:
    """How long a command tries."""
    limits = SpanMs(1, 3_600_000)
    return click.option(
        "--within-ms", type=limits, default=default_ms, metavar="SPAN", help=f"Try so long ({default_ms} ms)."
    )


def client_options(command: F) -> F:
    """Where the peers are, and who asks."""
    return within_option(WITHIN_MS)(peer_options(command))


def peer_options(command: F) -> F:
    """Where the peers are, and who asks, without how long."""
    for option in (
        json_option,
        config_option,
        click.option("--key-file", metavar="FILE", help=f"The client's key, from `cache key`; default: {KEY}."),
        click.option("--api", "apis", multiple=True, metavar="URL", help=f"A peer; more than once; default: {APIS}."),
    ):
        command = option(command)
    return command


class PeerOptions:
    """How the peers are reached."""

    def __init__(self, call: Call, *, config: str | None, apis: tuple[str, ...], key_file: str | None) -> None:
        from primacy.settings import load

        file = call.file(config)
        self.settings = load(file, call.node) if file is not None else None
        listed = tuple(peer.api for peer in self.settings.cache.peers.values()) if self.settings is not None else ()
        self.apis = apis or tuple(filter(None, os.environ.get(APIS, "").split(","))) or listed or (DEFAULT_API,)
        self._key_file = key_file or os.environ.get(KEY, "")

    def client(self, apis: tuple[str, ...], within_ms: int) -> Client:
        from primacy.cache.client import Client

        return Client(apis, timeout_ms=within_ms, **self._security())

    def _security(self) -> dict[str, Any]:
        """The client's own key, or one that is derived from the secret that this user may read anyway."""
        from primacy.cache.security import ClientSeal, new_boot, read_key
        from primacy.cache.zap import client_key, connect_with, pair_of

        if self._key_file:
            cluster, key = read_key(self._key_file)
            chosen = security_of(self.settings) if self.settings is not None else "secret"
        elif self.settings is not None and security_of(self.settings) != "none":
            from primacy.transport.seal import read_secret

            chosen, cluster = security_of(self.settings), self.settings.cluster.name
            name = next(iter(self.settings.cache.clients), COMMAND_CLIENT)
            key = client_key(read_secret(self.settings.cluster.secret_file), cluster, name)
        else:
            return {}
        if chosen == "curve":
            own = pair_of(key)
            return {"secure": lambda socket: connect_with(socket, own, key.server)}
        return {"seal": ClientSeal(cluster, key, new_boot())}

    def run(self, work: Callable[[Client], Awaitable[T]], within_ms: int, apis: tuple[str, ...] = ()) -> T:
        async def asked() -> T:
            async with self.client(apis or self.apis, within_ms) as client:
                return await work(client)

        try:
            return asyncio.run(asked())
        except NotReached as error:
            where = ", ".join(apis or self.apis)
            raise type(error)(f"{error}; asked: {where}; which peers answer: primacy cache status") from None


@cache.command("get")
@click.argument("key")
@click.option("--fresh", is_flag=True, help="A stale copy will not do.")
@click.option("--no-fetch", is_flag=True, help="What a peer has, or nothing (exit 1).")
@client_options
@click.pass_obj
def get_entry(
    call: Call, /, *, key: str, fresh: bool, no_fetch: bool, as_json: bool, within_ms: int, **where: Any
) -> int:
    """Print the entry of KEY: its raw bytes into a pipe, a summary on a terminal."""
    asked = PeerOptions(call, **where)
    raw = os.fsencode(key)
    found = asked.run(lambda client: client.get(raw, fresh=fresh, fetch=not no_fetch), within_ms)
    key = _shown(raw)
    if found is None:
        if as_json:
            print_json({"key": key, "found": False})
        else:
            click.echo(f"no peer that was asked has {key}", err=True)
        return 1
    summary = {
        "key": key,
        "found": True,
        "stale": found.stale,
        "bytes": len(found.value),
        "age_ms": found.age_ms,
        "expires_ms": found.expire_ms,
        "fetched_by": found.fetcher,
    }
    if as_json:
        print_json({**summary, "value": found.value.decode("utf-8", "backslashreplace")})
    elif sys.stdout.isatty():
        state = "stale" if found.stale else "fresh"
        left_s = (found.expire_ms - time.time() * 1_000) / 1_000
        click.echo(f"{key}: {state}, {len(found.value)} bytes, {found.age_ms / 1_000:.1f} s old, "
                   f"expires in {left_s:.1f} s, fetched by {found.fetcher or 'an original peer'}")  # fmt: skip
        click.echo(found.value[:2_000].decode("utf-8", "backslashreplace"))
    else:
        sys.stdout.buffer.write(found.value)
        sys.stdout.buffer.flush()
    return 0


@cache.command()
@click.argument("key")
@click.option("--prefix", is_flag=True, help="Every key that begins with KEY.")
@client_options
@click.pass_obj
def invalidate(call: Call, /, *, key: str, prefix: bool, as_json: bool, within_ms: int, **where: Any) -> int:
    """Forget the entry of KEY everywhere. Done: no peer gives the old value as fresh any more."""
    asked = PeerOptions(call, **where)
    raw = os.fsencode(key)
    done = asked.run(lambda client: client.invalidate(raw, prefix=prefix), within_ms)
    key = _shown(raw)
    what = f"every key{f' that begins with {key}' if key else ''}" if prefix else key
    return _told(as_json, done, f"{what} is invalidated")


@cache.command()
@click.argument("key")
@client_options
@click.pass_obj
def refresh(call: Call, /, *, key: str, as_json: bool, within_ms: int, **where: Any) -> int:
    """Fetch the entry of KEY anew, although it is fresh."""
    asked = PeerOptions(call, **where)
    raw = os.fsencode(key)
    done = asked.run(lambda client: client.refresh(raw), within_ms)
    return _told(as_json, done, f"{_shown(raw)} was fetched anew")


def _shown(key: bytes) -> str:
    from primacy.cache.access import shown_key

    return shown_key(key)


def _told(as_json: bool, done: Any, sentence: str) -> int:
    if as_json:
        print_json({"ok": done.ok, "reason": done.reason, "not_told": list(done.missing)})
        return 0 if done.ok else 1
    if not done.ok:
        raise Refused(f"not done: {done.reason}")
    click.echo(sentence + (f" ({done.reason})" if done.reason else ""))
    if done.missing:
        click.echo(f"not told: {', '.join(done.missing)}. They give it as stale at most, and learn it on their return")
    return 0


# --- how it stands ----------------------------------------------------------------------------------------------------


class PeerAnswer(NamedTuple):
    """One peer, as it answered."""

    api: str
    document: dict[str, Any] | None
    error: str


async def _asked_each(asked: PeerOptions, prefix: bytes, most: int, within_ms: int) -> list[PeerAnswer]:
    async def one(api: str) -> PeerAnswer:
        try:
            async with asked.client((api,), within_ms) as client:
                return PeerAnswer(api, await client.status(prefix, most), "")
        except NotReached:
            return PeerAnswer(api, None, f"no answer within {within_ms} ms")
        except PrimacyError as error:
            return PeerAnswer(api, None, str(error))

    return list(await asyncio.gather(*(one(api) for api in asked.apis)))


@cache.command()
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option("--key", "prefix", metavar="PREFIX", default="", help="Also each key that begins so, on each peer.")
@within_option(STATUS_MS)
@peer_options
@click.pass_obj
def status(call: Call, /, *, watch: bool, prefix: str, as_json: bool, within_ms: int, **where: Any) -> int:
    """The state of each peer; with --key, the state of keys on each of them."""
    asked = PeerOptions(call, **where)
    while True:
        seen = asyncio.run(_asked_each(asked, os.fsencode(prefix), 200 if prefix else 0, within_ms))
        if as_json:
            # the peer's own document says where clients find it; who does not answer is named by what was asked
            print_json({"peers": [{"clients_at": one.api, "error": one.error, **(one.document or {})} for one in seen]})
        else:
            if watch and sys.stdout.isatty():
                click.clear()
            click.echo(peers_text(seen))
            if prefix:
                click.echo(keys_text(seen))
        if not watch:
            return 0 if any(one.document for one in seen) else 3
        time.sleep(WATCH_S)


def peers_text(seen: list[PeerAnswer]) -> str:
    """One line per peer."""
    lines = []
    up = [one for one in seen if one.document is not None]
    lines.append(f"{len(up)} of {len(seen)} peers answer")
    for one in seen:
        if one.document is None:
            lines.append(f"  {one.api}  {one.error}")
            continue
        said = one.document
        counters = said["counters"]
        touch = "in touch" if said["in_touch"] else "out of touch: it serves its copies as stale, and fetches nothing"
        if said["peers"] and not any(peer["self"] for peer in said["peers"]):
            touch = "not in its list of peers: it sends its clients to the others"
        lines.append(
            f"  {one.api}  {said['node']}: {touch}; {said['keys']} keys{_memory(said)}, {counters['hits']} hits, "
            f"{counters['stale']} stale, {said['fetches']} fetched, {counters['waiting']} waiting"
        )
        unheard = {why: count for why, count in said.get("dropped", {}).items() if why.startswith("seal: ")}
        if unheard:
            text = ", ".join(f"{count} {why.removeprefix('seal: ')}" for why, count in sorted(unheard.items()))
            lines.append(f"    dropped, for their seal: {text}. Does everybody have this secret? Its log names who")
    return "\n".join(lines)


def _memory(said: dict[str, Any]) -> str:
    each = said.get("memory", {}).get("per_key_bytes")
    return f" ({each} bytes of memory each)" if each else ""


def keys_text(seen: list[PeerAnswer]) -> str:
    """For each key: its state on each peer."""
    keys = sorted({row["key"] for one in seen if one.document for row in one.document["rows"]})
    lines = []
    for key in keys:
        lines.append(key)
        for one in seen:
            if one.document is None:
                continue
            row = next((row for row in one.document["rows"] if row["key"] == key), None)
            if row is None:
                lines.append(f"  {one.document['node']}: knows nothing of it")
                continue
            fetching = f", {row['fetched_now_by']} fetches it" if row["fetched_now_by"] else ""
            lines.append(
                f"  {one.document['node']}: {row['state']}, {row['role']}, term {row['term']}, "
                f"{row['left_ms'] / 1_000:.1f} s left, {row['waiting']} waiting{fetching}"
            )
    return "\n".join(lines) if lines else "no such key on any peer that answered"


@cache.command()
@click.argument("prefix", default="")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, metavar="N", help="At most so many (100).")
@client_options
@click.pass_obj
def keys(call: Call, /, *, prefix: str, limit: int, as_json: bool, within_ms: int, **where: Any) -> int:
    """The keys that begin with PREFIX, as one peer that answers knows them."""
    asked = PeerOptions(call, **where)
    said = asked.run(lambda client: client.status(os.fsencode(prefix), limit), within_ms)
    rows = said["rows"]
    if as_json:
        print_json({"node": said["node"], "keys": rows, "more": said["more"]})
        return 0
    for row in rows:
        click.echo(f"{row['state']:7}{row['bytes']:>10}  {row['left_ms'] / 1_000:>10.1f} s  {row['key']}")
    if said["more"]:
        click.echo(f"... and {said['more']} more: --limit shows them", err=True)
    return 0


# --- keys of clients, reload ------------------------------------------------------------------------------------------


@cache.command("key")
@click.argument("name")
@click.option("--to", metavar="FILE", help="Write it there; default: NAME.key.")
@config_option
@click.pass_obj
def client_key_file(call: Call, /, *, name: str, to: str | None, config: str | None) -> int:
    """Make the key of the client NAME. It opens the cache and nothing else, and is not the cluster's secret."""
    from primacy.cache.security import key_text, wrong_name
    from primacy.cache.zap import client_key
    from primacy.settings import load
    from primacy.transport.seal import read_secret

    if wrong := wrong_name(name):
        raise UsageError(wrong)
    settings = load(call.file(config), call.node)
    if not settings.cluster.secret_file:
        raise UsageError("a client's key is derived from cluster.secret_file, and the file names none: primacy keygen")
    if settings.cache.clients and name not in settings.cache.clients:
        raise UsageError(f"{name} is not in cache.clients, so that its key would be refused; add it there first")
    key = client_key(read_secret(settings.cluster.secret_file), settings.cluster.name, name)
    path = to or f"{name}.key"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} is there already; remove it, or name another with --to") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "w") as file:
        file.write(key_text(settings.cluster.name, key))
    click.echo(f"{path} is the key of client {name}: give it to the programs that ask as {name} ({KEY}={path})")
    return 0


@cache.command()
@click.option(
    "--force", is_flag=True, help="Do not wait for the others: a retrieval may double, an invalidation be lost."
)
@click.option("--node", metavar="ID", help="Which peer of the file this is.")
@click.option("--state-dir", metavar="DIR", help="The state folder, as the peer was told.")
@json_option
@config_option
@click.pass_obj
def reload(
    call: Call, /, *, force: bool, node: str | None, state_dir: str | None, as_json: bool, config: str | None
) -> int:
    """Let the peer of this machine read its file again: one peer added to the list, or removed."""
    from primacy.agent.cache_serve import folder_of, place_of
    from primacy.control.client import ask, find
    from primacy.settings import load

    file = call.file(config)
    if file is None:
        raise UsageError(
            "there is no file to read: say --config FILE. A peer that was started without one has nothing to read again"
        )
    settings = load(file, node or call.node, any_node=True)
    if state_dir is not None:
        settings = dataclasses.replace(settings, state_dir=os.path.abspath(state_dir))
    name = settings.node
    found = find(folder_of(settings, os.environ, os.geteuid(), name), call.at) if name else None
    if found is None:  # one that the file does not list any more is found above, if it runs
        place = place_of(settings, os.environ, os.geteuid())
        name, found = place.node, find(place.folder, call.at)
    if found is None:
        raise NotReached(f"peer {name} does not run on this machine: primacy cache serve --node {name}")
    said = ask(found, "/v1/cache/reload", {"force": force}, 70.0)
    if as_json:
        print_json(said)
        return 0 if said["ok"] else 1
    if not said["ok"]:
        raise Refused(f"the list is not changed: {said['reason']}")
    click.echo("the list of peers is that of the file now" + (f"; {said['reason']}" if said["reason"] else ""))
    return 0


@cache.command()
@click.option("--requests", type=click.IntRange(1, 10_000_000), default=20_000, metavar="N", help="How many (20000).")
@click.option("--outstanding", type=click.IntRange(1, 1_000), default=64, metavar="N", help="At once (64).")
@click.option(
    "--keys", "count", type=click.IntRange(1, 100_000), default=100, metavar="N", help="Different keys (100)."
)
@client_options
@click.pass_obj
def bench(
    call: Call, /, *, requests: int, outstanding: int, count: int, as_json: bool, within_ms: int, **where: Any
) -> int:
    """Put entries under bench/..., read them often, and say how long it took."""
    asked = PeerOptions(call, **where)
    figures = asked.run(lambda client: _bench(client, requests, outstanding, count), within_ms)
    if as_json:
        print_json(figures)
    else:
        click.echo(
            f"{figures['per_s']:,.0f} reads a second, p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms"
        )
    return 0


async def _bench(client: Client, requests: int, outstanding: int, count: int) -> dict[str, Any]:
    names = [b"bench/%d" % number for number in range(count)]
    for name in names:
        done = await client.put(name, b"x" * 100, 600_000)
        if not done.ok:
            raise Refused(f"an entry cannot be put: {done.reason}")
    took: list[float] = []
    left = iter(range(requests))

    async def reader() -> None:
        for number in left:
            began_s = time.perf_counter()
            await client.get(names[number % count])
            took.append(time.perf_counter() - began_s)

    began_s = time.perf_counter()
    await asyncio.gather(*(reader() for _ in range(outstanding)))
    all_s = time.perf_counter() - began_s
    took.sort()
    return {
        "requests": requests,
        "outstanding": outstanding,
        "per_s": requests / all_s,
        "p50_ms": took[len(took) // 2] * 1_000,
        "p99_ms": took[min(len(took) - 1, len(took) * 99 // 100)] * 1_000,
    }
