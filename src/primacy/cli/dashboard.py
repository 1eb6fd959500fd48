"""`primacy dashboard`: a page that shows the cluster live. A reader like any other; ending it changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING, NamedTuple

import click

from primacy.cli.call import Call
from primacy.cli.local import local_options
from primacy.errors import CannotHere, InUse, UsageError

if TYPE_CHECKING:
    import ssl

    from primacy.dashboard.server import DashboardPlan

LISTEN = "127.0.0.1:8081"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
WAITING_MAX = 128


class Said(NamedTuple):
    """The options, checked."""

    host: str
    port: int
    any_port: bool
    """The port was not asked for: if it is taken, any other does."""
    secure: ssl.SSLContext | None
    open_browser: bool


@click.command()
@local_options
@click.option("--at", "addresses", metavar="HOST:PORT", multiple=True, help="The node to read; may be said again.")
@click.option("--listen", metavar="HOST:PORT", help=f"Where the page is served; default: {LISTEN}, or a free port.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="A name by which browsers reach it, if not HOST.")
@click.option("--tls-cert", metavar="FILE", type=click.Path(), help="Needed, with its key, to listen off loopback.")
@click.option("--tls-key", metavar="FILE", type=click.Path(), help="The key of the certificate.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.pass_obj
def dashboard(
    call: Call,
    *,
    config: str | None,
    election: str | None,
    state_dir: str | None,
    addresses: tuple[str, ...],
    listen: str | None,
    hosts: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    no_browser: bool,
) -> int:
    """A page that shows the cluster live: who runs the job, for how long that is promised, what changed and why.

    On loopback everybody of this machine may look; to change something, sign in with the control key or with the link
    that is printed here and works once. Ends with Ctrl-C, and the cluster does not notice.
    """
    from primacy.dashboard.server import DashboardPlan

    host, port = _address(listen or LISTEN, "--listen")
    secure = _tls(tls_cert, tls_key)
    loopback = host in LOOPBACK
    found_at, key = _node(call, config, election, state_dir, addresses)
    if not loopback and (secure is None or not key):
        raise UsageError(
            f"--listen {listen}: off loopback everybody must sign in and nobody may listen in: it needs --tls-cert, "
            "--tls-key and a control key that can be read; or listen on 127.0.0.1 and come through an SSH tunnel"
        )
    plan = DashboardPlan(found_at, key, hosts=(host, *hosts), loopback=loopback, secure=secure is not None)
    said = Said(host, port, listen is None, secure, not no_browser)
    return serve(plan, said)


def serve(plan: DashboardPlan, said: Said) -> int:
    """Until a signal comes; returns the exit code."""
    with _listening(said) as taken:
        return asyncio.run(_serve(plan, said, taken))


async def _serve(plan: DashboardPlan, said: Said, taken: socket.socket) -> int:
    from primacy.dashboard.server import Dashboard
    from primacy.dashboard.source import now_ms

    over = asyncio.Event()
    codes: list[int] = []
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGHUP, 0)):
        asyncio.get_running_loop().add_signal_handler(number, lambda code=code: (codes.append(code), over.set()))
    board = Dashboard(plan, lambda sentence: click.echo(f"primacy: {sentence}", err=True))
    if said.secure is not None:
        board.tls = said.secure
    await board.start(taken)
    link = page_address(said, taken.getsockname()[1])
    code = board.access.new_code(now_ms()) if plan.key else ""
    for line in greeting(link, code, taken.getsockname()[1], os.environ):
        click.echo(line)
    if said.open_browser and not os.environ.get("SSH_CONNECTION"):
        _open_browser(f"{link}#enter={code}" if code else link)
    await over.wait()
    await board.close()
    return codes[0]


def page_address(said: Said, port: int) -> str:
    host = "localhost" if said.host in LOOPBACK else said.host
    return f"{'https' if said.secure is not None else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/dashboard"


def greeting(link: str, code: str, port: int, environment: os._Environ[str] | dict[str, str]) -> list[str]:
    """What is printed: the page, the link that signs in, and over SSH the tunnel."""
    lines = [f"dashboard: {link}"]
    if code:
        lines.append(f"sign in, once, within 15 minutes: {link}#enter={code}")
    else:
        lines.append("read only: no control key can be read here")
    if environment.get("SSH_CONNECTION"):
        user = environment.get("USER") or "USER"
        there = environment["SSH_CONNECTION"].split()
        host = there[2] if len(there) > 2 else "HOST"
        lines.append(f"from your own machine: ssh -L {port}:127.0.0.1:{port} {user}@{host}, then open the page there")
    lines.append("Ctrl-C ends it; the cluster does not notice.")
    return lines


def _node(
    call: Call, config: str | None, election: str | None, state_dir: str | None, addresses: tuple[str, ...]
) -> tuple[tuple[str, ...], str]:
    """Which nodes to read, and the control key if it can be read. A node that is named need not run yet."""
    from primacy.cli.local import local
    from primacy.errors import NotReached

    named = addresses or ((call.at,) if call.at is not None else ())
    for address in named:
        _address(address, "--at")
    try:
        found = local(call._replace(at=named[0] if named else None), config, election, state_dir).found
    except NotReached:
        if named:
            return named, ""
        raise
    host = f"[{found.host}]" if ":" in found.host else found.host
    return named or (f"{host}:{found.port}",), found.key


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


def _listening(said: Said) -> socket.socket:
    for port in (said.port, 0) if said.any_port else (said.port,):
        with contextlib.suppress(OSError):
            family = socket.AF_INET6 if ":" in said.host else socket.AF_INET
            return socket.create_server((said.host, port), family=family, backlog=WAITING_MAX)
    raise InUse(f"--listen {said.host}:{said.port}: cannot listen there; choose another address, or port 0 for any")


def _open_browser(link: str) -> None:
    import webbrowser

    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    with contextlib.suppress(webbrowser.Error, CannotHere):
        webbrowser.open(link)
