"""`primacy dashboard`: a page that shows the cluster live. A reader like any other; ending it changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from primacy.cli.call import EXIT_INTERRUPTED, Call
from primacy.cli.local import folder_options, settings_of
from primacy.errors import CannotHere, InUse, UsageError
from primacy.settings.schema_page import Page

if TYPE_CHECKING:
    import ssl

    from primacy.cli.local import NodeFolder
    from primacy.control.audit import AuditTrail
    from primacy.control.client import FoundNode
    from primacy.dashboard.access import TrustedProxy
    from primacy.dashboard.lease_reader import StoreAt
    from primacy.dashboard.page_server import DashboardPlan
    from primacy.dashboard.source import Where

LISTEN = "127.0.0.1:8081"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
WAITING_MAX = 128


class DashboardOptions(NamedTuple):
    """The options, checked."""

    host: str
    port: int
    any_port: bool
    """The port was not asked for: if it is taken, any other does."""
    secure: ssl.SSLContext | None
    open_browser: bool
    until_eof: bool = False


@click.command()
@folder_options
@click.option("--at", "addresses", metavar="HOST:PORT", multiple=True, help="The node to read; may be said again.")
@click.option(
    "--store", metavar="URL", help="Show the leases of this store, too, or alone; default: the file's election.store."
)
@click.option("--table", metavar="NAME", help="The table of --store; default: primacy_leases.")
@click.option("--lab", "lab_folder", metavar="DIR", is_flag=False, flag_value="", help="Show a lab: its folder.")
@click.option("--listen", metavar="HOST:PORT", help=f"Where the page is served; default: {LISTEN}, or a free port.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="A name by which browsers reach it, if not HOST.")
@click.option("--tls-cert", metavar="FILE", type=click.Path(), help="Needed, with its key, to listen off loopback.")
@click.option("--tls-key", metavar="FILE", type=click.Path(), help="The key of the certificate.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option(
    "--until-eof", is_flag=True, hidden=True, help="End when standard input does: for the process that starts it."
)
@click.pass_obj
def dashboard(
    call: Call,
    /,
    *,
    addresses: tuple[str, ...],
    store: str | None,
    table: str | None,
    lab_folder: str | None,
    listen: str | None,
    hosts: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    no_browser: bool,
    until_eof: bool,
    **where: str | None,
) -> int:
    """A page that shows the cluster live: who runs the job, for how long that is promised, what changed and why.

    On loopback everybody of this machine may look; to change something, sign in with the control key or with the link
    that is printed here and works once. Ends with Ctrl-C, and the cluster does not notice.
    """
    host, port = _address(listen or LISTEN, "--listen")
    secure = _tls(tls_cert, tls_key)
    loopback = host in LOOPBACK
    if lab_folder is not None:
        plan = lab_plan(Path(lab_folder).absolute() if lab_folder else None)
    else:
        stores = _stores(call, store, table, where)
        plan = _plan_or_stores(call, addresses, where, stores, alone=store is not None)
    if not loopback and (secure is None or not plan.key):
        raise UsageError(
            f"--listen {listen}: off loopback everybody must sign in and nobody may listen in: it needs --tls-cert, "
            "--tls-key and a control key that can be read; or listen on 127.0.0.1 and come through an SSH tunnel"
        )
    page = Page() if lab_folder is not None else settings_of(call, **where).control.page
    plan = plan._replace(hosts=(host, *hosts, *page.hosts), loopback=loopback, secure=secure is not None)
    plan = plan._replace(proxy=_proxy(page), frame_ancestors=page.frame_ancestors)
    said = DashboardOptions(host, port, listen is None, secure, not no_browser, until_eof)
    return serve(plan, said)


def _proxy(page: Page) -> TrustedProxy:
    """Whose header is believed; nobody's, if no proxy is listed."""
    from primacy.dashboard.access import TrustedProxy

    networks = tuple(ipaddress.ip_network(each) for each in page.proxies)
    return TrustedProxy(networks, page.user_header if networks else "", page.operators, page.viewers)


def _trail(folder: str) -> AuditTrail | None:
    """The audit trail in the folder of a node of this machine; None if it is not ours to write."""
    from primacy.control.audit import AuditTrail
    from primacy.node.folder import Folder

    try:
        files = Folder(folder) if os.path.isdir(folder) else None
    except CannotHere:
        return None
    return AuditTrail(files, lambda sentence: click.echo(f"primacy: {sentence}", err=True)) if files else None


def lab_plan(where: Path | None) -> DashboardPlan:
    """A dashboard of the lab in this folder, or of the one in the usual folder."""
    from primacy.control.client import find
    from primacy.dashboard.page_server import DashboardPlan
    from primacy.errors import NotReached
    from primacy.lab.place import CLUSTER, NODES, default_folder

    folder = where or default_folder()
    found = find(str(folder))
    if found is None:
        raise NotReached(f"no lab is up in {folder}; start one: primacy lab up")

    def address_of(node: str) -> FoundNode | None:
        return find(str(folder / NODES / node / CLUSTER / "main")) if "/" not in node else None

    return DashboardPlan((), found.key, found, address_of, lab_folder=str(folder))


def serve(plan: DashboardPlan, said: DashboardOptions) -> int:
    """Until a signal comes; returns the exit code."""
    with _listening(said) as taken:
        return asyncio.run(_serve(plan, said, taken))


async def _serve(plan: DashboardPlan, said: DashboardOptions, taken: socket.socket) -> int:
    from primacy.dashboard.page_server import Dashboard
    from primacy.dashboard.source import now_ms

    over = Over()
    board = Dashboard(plan, lambda sentence: click.echo(f"primacy: {sentence}", err=True))
    await board.start(taken, said.secure)
    port = taken.getsockname()[1]
    link = page_address(said, port)
    code = board.access.new_code(now_ms()) if plan.key and plan.lab is None else ""
    for line in greeting(link, code, port, os.environ, lab=plan.lab is not None):
        click.echo(line)
    if plan.no_nodes:
        click.echo(
            "no node runs here: the page shows what is read without one; start it again next to a node", err=True
        )
    if said.open_browser and not os.environ.get("SSH_CONNECTION"):
        open_browser(f"{link}#enter={code}" if code else link)
    if said.until_eof:
        asyncio.get_running_loop().add_reader(0, over.event.set)
    await over.event.wait()
    await board.close()
    return over.code


class Over:
    """The signals that end it: Ctrl-C gives 130, the others 0."""

    def __init__(self) -> None:
        self.code = 0
        self.event = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._hear, number)

    def _hear(self, number: int) -> None:
        if not self.event.is_set():
            self.code = EXIT_INTERRUPTED if number == signal.SIGINT else 0
        self.event.set()


def page_address(said: DashboardOptions, port: int) -> str:
    host = "localhost" if said.host in LOOPBACK else said.host
    return f"{'https' if said.secure is not None else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/dashboard"


def greeting(link: str, code: str, port: int, environment: Mapping[str, str], *, lab: bool) -> list[str]:
    """What is printed: the page, the link that signs in, and over SSH the tunnel."""
    lines = [f"dashboard: {link}"]
    if lab:
        lines.append("it shows a lab: everybody on this machine may break it and mend it there")
    elif code:
        lines.append(f"sign in, once, within 15 minutes: {link}#enter={code}")
    else:
        lines.append("read only: no control key can be read here")
    lines += [said] if (said := tunnel(port, environment)) else []
    lines.append("Ctrl-C ends the page; the cluster does not notice.")
    return lines


def tunnel(port: int, environment: Mapping[str, str]) -> str:
    """Over SSH: the line that brings the page to one's own machine. Else empty."""
    there = environment.get("SSH_CONNECTION", "").split()
    if not there:
        return ""
    host = there[2] if len(there) > 2 else "HOST"
    user = environment.get("USER") or "USER"
    return f"from your own machine: ssh -L {port}:127.0.0.1:{port} {user}@{host}, then open the page there"


def _plan(call: Call, addresses: tuple[str, ...], where: dict[str, str | None]) -> DashboardPlan:
    """Which nodes are read, and the control key. A node that is named by its address need not run yet.

    Without a name all that run on this machine are read (`node start`), also those that are started later: each may be
    in another part of the network, and any may be the last one.
    """
    from primacy.cli.local import above_of, agent_in, local, many, place
    from primacy.control.client import FoundNode
    from primacy.dashboard.page_server import DashboardPlan
    from primacy.errors import NotReached

    named = addresses or ((call.at,) if call.at is not None else ())
    agent = many(call, **where) if not named else None
    if agent is not None:
        above = above_of(call, **where)
        return DashboardPlan((), agent.key, agent=lambda: agent_in(above))
    places = [_address(address, "--at") for address in named]
    try:
        here = local(call._replace(at=named[0] if named else None), **where)
    except NotReached:
        if not named:
            raise
        return _of(tuple(_fixed(FoundNode(*each, "")) for each in places), "")
    if named:
        return _of(tuple(_fixed(here.found._replace(host=host, port=port)) for host, port in places), here.found.key)
    trail = _trail(here.folder)
    if call.node:
        return _of((_found_in(here.folder),), here.found.key)._replace(trail=trail)
    all_here = Here(place(call, **where))
    return DashboardPlan((), here.found.key, address_of=all_here.address, more=all_here.nodes, trail=trail)


def _plan_or_stores(
    call: Call,
    addresses: tuple[str, ...],
    where: dict[str, str | None],
    stores: tuple[StoreAt, ...],
    *,
    alone: bool,
) -> DashboardPlan:
    """Where no node runs here and the file has a store, a cache or slots, these are shown alone: programs may use them.

    `alone`: the store was named in this command.
    """
    from primacy.cli.dashboard_cache import cache_of
    from primacy.cli.dashboard_slots import slots_of
    from primacy.dashboard.page_server import DashboardPlan
    from primacy.errors import NotReached

    cache, slots = cache_of(call, where.get("config")), slots_of(call, where.get("config"))
    try:
        return _plan(call, addresses, where)._replace(stores=stores, cache=cache, slots=slots)
    except (NotReached, UsageError) as error:
        which = where.get("election") is None and bool(settings_of(call, **where).elections)
        if not (stores or cache or slots) or addresses or (isinstance(error, UsageError) and not alone and not which):
            raise
        key = cache.control_key() if cache is not None else ""
        return DashboardPlan((), key, stores=stores, cache=cache, slots=slots, no_nodes=True)


def _stores(call: Call, store: str | None, table: str | None, where: dict[str, str | None]) -> tuple[StoreAt, ...]:
    """The one that is named, else all that the file names."""
    from primacy.cli.lease import LIMIT_MS
    from primacy.dashboard.lease_reader import StoreAt
    from primacy.settings.accepted import wrong_store
    from primacy.settings.canonical import place_of_store
    from primacy.settings.elections import of_election
    from primacy.settings.loading import store_url
    from primacy.store.url import TABLE, open_store

    if store is not None:
        if wrong := wrong_store(store):
            raise UsageError(f"--store: {wrong}")
        found = [(store, table or TABLE)]
    else:
        if table is not None:
            raise UsageError("--table belongs to --store")
        settings = settings_of(call, **where)
        each = [of_election(settings, name) for name in settings.elections] or [settings]
        urls = [(store_url(one), one.election.store.table) for one in each if one.election.store.url]
        found = [(url, name) for url, name in dict.fromkeys(urls) if not url.startswith("memory:")]

    def at(url: str, name: str) -> StoreAt:
        scheme, *place = place_of_store(url)
        label = f"{scheme}:{place[0]}" if len(place) == 1 else f"{scheme}://{','.join(place[:-1])}{place[-1]}"
        return StoreAt(label[:120], name, lambda: open_store(url, table=name, limit_ms=LIMIT_MS, create=False))

    return tuple(at(url, name) for url, name in found)


def _of(nodes: tuple[Where, ...], key: str) -> DashboardPlan:
    """Orders go to any of these, which passes them on."""
    from primacy.dashboard.page_server import DashboardPlan

    return DashboardPlan(nodes, key, address_of=lambda _: next((at for node in nodes if (at := node())), None))


class Here:
    """The nodes of one election on this machine, as they come and go."""

    def __init__(self, where: NodeFolder) -> None:
        self.where = where

    def nodes(self) -> dict[str, Where]:
        """By their folders."""
        from primacy.cli.local import locals_in

        return {one.folder: _found_in(one.folder) for one in locals_in(self.where).values()}

    def address(self, node: str) -> FoundNode | None:
        from primacy.cli.local import locals_in

        one = locals_in(self.where).get(node)
        return one.found if one is not None else None


def _found_in(folder: str) -> Where:
    from primacy.control.client import find

    return lambda: find(folder)


def _fixed(found: FoundNode) -> Where:
    return lambda: found


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"{option} {text[:80]}: an address is HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _tls(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise UsageError("--tls-cert and --tls-key go together")
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--tls-cert {cert}, --tls-key {key}: {error.strerror or error}") from None
    return context


def _listening(said: DashboardOptions) -> socket.socket:
    for port in (said.port, 0) if said.any_port else (said.port,):
        with contextlib.suppress(OSError):
            family = socket.AF_INET6 if ":" in said.host else socket.AF_INET
            return socket.create_server((said.host, port), family=family, backlog=WAITING_MAX)
    raise InUse(f"--listen {said.host}:{said.port}: cannot listen there; choose another address, or port 0 for any")


def open_browser(link: str) -> None:
    import webbrowser

    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    with contextlib.suppress(webbrowser.Error, CannotHere):
        webbrowser.open(link)
