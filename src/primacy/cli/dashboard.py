"""`primacy dashboard`: a page that shows the cluster live. A reader like any other; ending it changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from primacy.cli.call import EXIT_INTERRUPTED, Call
from primacy.cli.local import local_options
from primacy.errors import CannotHere, InUse, UsageError

if TYPE_CHECKING:
    import ssl

    from primacy.cli.local import NodeFolder
    from primacy.control.client import FoundNode
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
@local_options
@click.option("--at", "addresses", metavar="HOST:PORT", multiple=True, help="The node to read; may be said again.")
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
        plan = _plan(call, addresses, where)
    if not loopback and (secure is None or not plan.key):
        raise UsageError(
            f"--listen {listen}: off loopback everybody must sign in and nobody may listen in: it needs --tls-cert, "
            "--tls-key and a control key that can be read; or listen on 127.0.0.1 and come through an SSH tunnel"
        )
    plan = plan._replace(hosts=(host, *hosts), loopback=loopback, secure=secure is not None)
    said = DashboardOptions(host, port, listen is None, secure, not no_browser, until_eof)
    return serve(plan, said)


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

    return DashboardPlan((), found.key, found, address_of)


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
    from primacy.cli.local import local, place
    from primacy.control.client import FoundNode
    from primacy.dashboard.page_server import DashboardPlan
    from primacy.errors import NotReached

    named = addresses or ((call.at,) if call.at is not None else ())
    places = [_address(address, "--at") for address in named]
    try:
        here = local(call._replace(at=named[0] if named else None), **where)
    except NotReached:
        if not named:
            raise
        return _of(tuple(_fixed(FoundNode(*each, "")) for each in places), "")
    if named:
        return _of(tuple(_fixed(here.found._replace(host=host, port=port)) for host, port in places), here.found.key)
    if call.node:
        return _of((_found_in(here.folder),), here.found.key)
    all_here = Here(place(call, **where))
    return DashboardPlan((), here.found.key, address_of=all_here.address, more=all_here.nodes)


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
