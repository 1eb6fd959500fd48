"""`primacy slots`: the slot server of Ghoti, on the node that leads, and its client."""

from __future__ import annotations

import asyncio
import dataclasses
import getpass
import json
import os
import ssl
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from primacy.cli.call import Call, SpanMs, config_option, json_option, print_json
from primacy.errors import UsageError
from primacy.settings.accepted import wrong_listen
from primacy.settings.schema import Settings

if TYPE_CHECKING:
    from primacy.slots.client import Client

F = TypeVar("F", bound=Callable[..., Any])
PROTOCOLS = ("standard", "telnet", "http")
PASSWORD = "PRIMACY_SLOTS_PASSWORD"
"""A password in an option would stand in the list of processes."""


@click.group()
def slots() -> None:
    """Small shared values (memories, buckets, counters, signals) on the node that leads."""


@slots.command()
@config_option
@click.option("--addr", metavar="HOST:PORT", help="Where clients connect; default: the file's slots.addr.")
@click.option("--protocol", type=click.Choice(PROTOCOLS), help="How they speak; default: the file's, else standard.")
@click.option("--node", metavar="ID", help="Which node of the file this is.")
@click.option("--state-dir", metavar="DIR", help="Where a node of a cluster keeps what it must not forget.")
@click.pass_obj
def serve(
    call: Call, *, config: str | None, addr: str | None, protocol: str | None, node: str | None, state_dir: str | None
) -> int:
    """Serve the slots of a file while this node leads.

    Without a `cluster` section it always leads. A file of Ghoti works as it is. Ends with Ctrl-C; clients are told.
    """
    from primacy.cli.node_settings import with_own_folder
    from primacy.node.clock import SystemClock
    from primacy.settings import load
    from primacy.settings.checks import notes

    file, clock = call.file(config), SystemClock()

    def read() -> Settings:
        return with_own_folder(_changed(load(file, node or call.node), addr, protocol, state_dir))

    settings = read()
    log = call.log(settings, clock)
    for note in [*unread(file), *notes(settings)]:
        log.warn(note)
    if alone(settings):
        from primacy.agent.slots_alone import serve_alone

        return serve_alone(settings, log, clock)
    from primacy.agent.assemble import refuse_node
    from primacy.agent.lifecycle import Plan
    from primacy.agent.run import run
    from primacy.agent.slots_workload import SlotsWorkload

    def planned(settings: Settings) -> Plan:
        refuse_node(settings)
        log = call.log(settings, clock)
        slots = SlotsWorkload(settings, clock, log.warn, log.info)
        return Plan(settings, None, log, clock, slots, again=lambda: planned(read()))

    return run(planned(settings))


def unread(file: str | None) -> list[str]:
    """What Ghoti would read, and is not."""
    from primacy.slots.ghoti import unread as found

    return found(os.environ, file is not None, os.path.isfile)


def alone(settings: Settings) -> bool:
    """Nothing in the file speaks of others."""
    manager = settings.cluster.manager
    return manager.type == "none" and not settings.election.store.url and settings.election.strategy == "raft"


def _changed(settings: Settings, addr: str | None, protocol: str | None, state_dir: str | None) -> Settings:
    if addr is not None and (wrong := wrong_listen(addr)):
        raise UsageError(f"--addr {addr}: {wrong}")
    was = settings.slots
    slots = dataclasses.replace(was, addr=addr or was.addr, protocol=protocol or was.protocol)
    folder = os.path.abspath(state_dir) if state_dir is not None else settings.state_dir
    return dataclasses.replace(settings, slots=slots, state_dir=folder)


# --- the client -------------------------------------------------------------------------------------------------------


def client_options(command: F) -> F:
    """Where the slots are, and who asks."""
    for option in (
        json_option,
        config_option,
        click.option("--within-ms", type=SpanMs(1, 3_600_000), default=5_000, metavar="SPAN", help="Try so long (5s)."),
        click.option("--ca", metavar="FILE", help="Speak TLS, and trust whom this file names."),
        click.option("--user", metavar="NAME", help=f"Log in; the password is asked for, or is in {PASSWORD}."),
        click.option("--telnet", is_flag=True, help="The server speaks the telnet variant; default: as the file says."),
        click.option("--addr", "addrs", multiple=True, metavar="HOST:PORT", help="A node; more than once for several."),
    ):
        command = option(command)
    return command


@slots.command("get")
@click.argument("slot", metavar="N")
@client_options
@click.pass_obj
def get_slot(call: Call, /, *, slot: str, as_json: bool, **where: Any) -> None:
    """Print what a read of slot N gives."""

    async def ask(client: Client) -> bytes:
        return await client.get(slot)

    _show(slot, _asked(call, ask, **where), as_json)


@slots.command("set")
@click.argument("slot", metavar="N")
@click.argument("value")
@client_options
@click.pass_obj
def set_slot(call: Call, /, *, slot: str, value: str, as_json: bool, **where: Any) -> None:
    """Write VALUE to slot N, and print what the server says to it.

    Of a signal that is A/B/C: so many took it at once, of so many that were tried, and so many did not.
    """

    async def ask(client: Client) -> bytes:
        return await client.set(slot, os.fsencode(value))

    _show(slot, _asked(call, ask, **where), as_json)


@slots.command()
@click.argument("slot", metavar="N")
@click.option("--count", type=click.IntRange(1), metavar="K", help="End after so many.")
@client_options
@click.pass_obj
def watch(call: Call, /, *, slot: str, count: int | None, as_json: bool, **where: Any) -> None:
    """Print what is written to signal slot N.

    As it comes, until Ctrl-C; also under the next leader.
    """
    from primacy.settings import load
    from primacy.slots.client import number
    from primacy.slots.kinds import SIGNALS

    known = load(call.file(where["config"]), call.node).slots.numbered.get(number(slot).decode())
    if known is not None and known.kind not in SIGNALS and not where["addrs"]:
        raise UsageError(f"slot {slot} is a {known.kind}: it sends nothing; {', '.join(SIGNALS)} do")

    async def follow(client: Client) -> None:
        async with client.watch(slot) as values:
            shown = 0
            async for value in values:
                text = value.decode("utf-8", "backslashreplace")
                click.echo(json.dumps({"slot": values.slot, "value": text}, ensure_ascii=False) if as_json else text)
                shown += 1
                if shown == count:
                    return

    _asked(call, follow, **where)


@slots.command()
@click.option("--slot", default="000", show_default=True, metavar="N", help="A memory slot; its value is read.")
@click.option("--write", "value", metavar="VALUE", help="Write this to it instead.")
@click.option("--connections", type=click.IntRange(1, 20_000), default=50, show_default=True, metavar="C")
@click.option("--depth", type=click.IntRange(1, 1_000), default=1, show_default=True, metavar="D", help="On their way.")
@click.option("--seconds", type=click.FloatRange(0.1, 3_600), default=5.0, show_default=True, metavar="S")
@click.option("--addr", metavar="HOST:PORT", help="The node that leads; default: the file's slots.addr.")
@config_option
@json_option
@click.pass_obj
def bench(
    call: Call,
    *,
    slot: str,
    value: str | None,
    connections: int,
    depth: int,
    seconds: float,
    addr: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Ask as fast as one process can; compare every answer.

    Prints requests per second, and how long a batch of requests took to be answered.
    """
    from primacy.settings import load
    from primacy.slots.client import number, valued
    from primacy.slots.load import Load, measured

    settings = load(call.file(config), call.node)
    end = b"\n"
    if not addr:
        _refuse_http(settings)
        if settings.slots.tls.cert:
            raise UsageError("slots.tls: this measures without TLS, and the server of this file speaks with it")
        end = b"\r\n" if settings.slots.protocol == "telnet" else end
    where = addresses_of(settings, (addr,) if addr else ())
    line = b"r" + number(slot) if value is None else b"w" + number(slot) + valued(os.fsencode(value))
    result = asyncio.run(measured(Load(next(iter(where.values())), line + end, connections, depth, seconds)))
    if as_json:
        print_json({"api": 1, **result._asdict(), "per_second": result.per_second})
        return
    click.echo(
        f"{result.requests:,} requests in {result.seconds:.1f} s: {result.per_second:,.0f} per second on {connections} "
        f"connections, {depth} on their way on each"
    )
    click.echo(f"a batch took {result.p50_us:,.0f} us (median), {result.p99_us:,.0f} (p99), {result.max_us:,.0f} (max)")


def _asked(
    call: Call,
    what: Callable[[Client], Any],
    *,
    addrs: tuple[str, ...],
    config: str | None,
    user: str | None,
    telnet: bool,
    ca: str | None,
    within_ms: int,
) -> Any:
    from primacy.settings import load
    from primacy.slots.client import Client

    settings = load(call.file(config), call.node)
    if not addrs:
        _refuse_http(settings)
        if settings.slots.tls.cert and not ca:
            raise UsageError("slots.tls: the server of this file speaks TLS; say whom to trust: --ca FILE")
    password = _password() if user else ""
    tls = _tls(ca)
    telnet = telnet or (not addrs and settings.slots.protocol == "telnet")

    async def run() -> Any:
        nodes = addresses_of(settings, addrs)
        async with Client(
            nodes, user=user or "", password=password, within_ms=within_ms, tls=tls, telnet=telnet
        ) as client:
            return await what(client)

    return asyncio.run(run())


def _refuse_http(settings: Settings) -> None:
    if settings.slots.protocol == "http":
        raise UsageError("slots.protocol = http: this client speaks the line protocol; use curl http://HOST:PORT/000")


def _tls(ca: str | None) -> ssl.SSLContext | None:
    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise UsageError(f"--ca {ca}: {getattr(error, 'strerror', None) or error}") from None


def _password() -> str:
    found = os.environ.get(PASSWORD)
    if found is not None:
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return str(click.prompt("password", hide_input=True, err=True))
        except getpass.GetPassWarning:
            raise UsageError(
                f"--user: there is no terminal to ask for the password on; it may be in {PASSWORD}"
            ) from None


def addresses_of(settings: Settings, said: tuple[str, ...]) -> dict[str, str]:
    """By id where the file says it: each node of a list that serves on all its addresses; else the one address."""
    from primacy.settings.accepted import wrong_address
    from primacy.slots.where import names_no_host, reached

    for each in said:
        if wrong := wrong_address(each):
            raise UsageError(f"--addr {each[:80]}: {wrong}")
    if said:
        return {each: each for each in said}
    listens = settings.slots.addr
    nodes = settings.cluster.manager.nodes
    if nodes and names_no_host(listens):
        return {name: reached(listens, node.addr) for name, node in nodes.items()}
    return {"": reached(listens, "localhost:1")}


def _show(slot: str, value: bytes, as_json: bool) -> None:
    text = value.decode("utf-8", "backslashreplace")
    if as_json:
        print_json({"api": 1, "slot": f"{int(slot):03}", "value": text})
    else:
        click.echo(text)
