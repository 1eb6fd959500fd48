"""`primacy lab`: a real cluster on this machine, to try things and to break them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from primacy.cli.call import EXIT_INTERRUPTED, SpanMs, json_option, print_json
from primacy.errors import CannotHere, NotReached, UsageError
from primacy.settings.timing import PROFILES_OF

F = TypeVar("F", bound=Callable[..., Any])

DOWN_S = 60.0
"""How long a lab may take to end: its nodes end one after the other if need be."""
UP_S = 60.0
LOOK_S = 1.0
"""How often `up` looks who leads."""
READY = "the lab is up"
OUTPUT = "lab.out"
"""In the lab's folder: what a lab in the background says."""
CHAIN_AT = "127.0.0.1:6111"
INTERVAL_MS = 100
NODES_MOST = 25


def dir_option(command: F) -> F:
    return click.option("--dir", "folder", metavar="D", help="The lab's folder; default: one in the temporary folder.")(
        command
    )


def say(sentence: str) -> None:
    """To a terminal that may have been closed: whoever ends a lab in order must not stumble over that."""
    try:
        click.echo(sentence)
    except OSError:
        sys.stdout = None


def needs_linux() -> None:
    if not sys.platform.startswith("linux"):
        raise CannotHere("a lab needs Linux: its nodes are held by `primacy run`; primacy simulate works everywhere")


def fitting(profile: str, strategy: str = "raft") -> str:
    if profile not in PROFILES_OF[strategy]:
        raise UsageError(f"--profile {profile}: {strategy} has {', '.join(PROFILES_OF[strategy])}")
    return profile


def folder_of(folder: str | None) -> Path:
    from primacy.lab.place import default_folder

    return Path(folder).absolute() if folder else default_folder()


class InOrder(click.Group):
    """Lists its commands in the order in which one needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)


@click.group(cls=InOrder)
def lab() -> None:
    """A real cluster on this machine, to try things and to break them.

    `up` starts it, `status` shows it, `down` ends it. Meanwhile nodes can be stopped, killed and frozen, and links cut:
    these are real processes, and nothing outside the lab's folder is touched.
    """


@lab.command(context_settings={"allow_interspersed_args": False})
@click.option("--nodes", metavar="N", type=click.IntRange(1, NODES_MOST), default=5, show_default=True)
@click.option("--profile", metavar="P", default="fast", show_default=True, help="Times: lab, fast, lan, wan, executor.")
@click.option(
    "--strategy",
    type=click.Choice(["raft", "lease"]),
    default="raft",
    show_default=True,
    help="lease: the nodes meet in a SQLite file of the lab's folder.",
)
@dir_option
@click.option("--detach", is_flag=True, help="Go into the background once all nodes answer.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD [ARG]...]")
def up(*, nodes: int, profile: str, strategy: str, folder: str | None, detach: bool, command: tuple[str, ...]) -> int:
    """Start a lab, and stay until Ctrl-C.

    Without CMD the nodes run a signer, whose signatures a chain takes and judges: `primacy lab status` shows both.
    """
    needs_linux()
    fitting(profile, strategy)
    where = folder_of(folder)
    if detach:
        times = ["--nodes", str(nodes), "--profile", profile, "--strategy", strategy]
        _detach(where, [*times, "--dir", str(where), "--", *command])
        return 0
    from primacy.lab.supervisor import Ended, Supervisor

    try:
        with Supervisor(where, nodes, profile, command, say, strategy) as up:
            count = f"{nodes} node{'s' if nodes > 1 else ''}"
            say(f"{READY} in {where}: {count}, profile {profile}; its API is at http://{up.address}/v1/lab")
            say(f"look: primacy lab status{_dir(where)}   break: primacy lab --help   end: Ctrl-C")
            leader = ""
            while True:
                up.rest(LOOK_S)
                now = up.lab.leader()
                if now and now != leader:
                    say(f"{now} leads, and runs the command")
                leader = now or leader
    except Ended as end:
        say("all nodes have ended")
        return EXIT_INTERRUPTED if end.number == signal.SIGINT else 0


def _detach(where: Path, args: list[str]) -> None:
    from primacy.lab.place import LabFolder

    LabFolder(where).close()  # said here, and not in a file, if it is taken
    out = where / OUTPUT
    call = [sys.executable, "-m", "primacy.cli.main", "lab", "up", *args]
    with out.open("wb") as file:
        process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    last_s = time.monotonic() + UP_S
    try:
        while READY.encode() not in out.read_bytes():
            if process.poll() is not None:
                raise NotReached(f"the lab did not come up: {out.read_text().strip()[-2_000:]}")
            if time.monotonic() > last_s:
                raise NotReached(f"the lab did not come up within {UP_S:.0f} s; see {where}/logs")
            time.sleep(0.02)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    process.returncode = 0  # it lives on, and nobody waits for it here
    click.echo(out.read_text().splitlines()[0])
    click.echo(f"look: primacy lab status{_dir(where)}   end: primacy lab down{_dir(where)}")


@lab.command()
@dir_option
def down(*, folder: str | None) -> None:
    """End a lab in order, wherever it was started."""
    from primacy.lab.bound_process import ended, send
    from primacy.lab.place import holder_of

    where = folder_of(folder)
    holder = holder_of(where)
    if holder is None:
        raise _not_up(where)
    try:
        handle = os.pidfd_open(holder.pid)
    except (OSError, ValueError):
        raise NotReached(f"the lab in {where} is held by {holder}, which cannot be reached") from None
    try:
        again = holder_of(where)
        if again is not None and again.pid == holder.pid:  # otherwise it has just ended by itself
            send(handle, signal.SIGTERM)
            if not ended(handle, DOWN_S):
                raise NotReached(f"{holder} did not end within {DOWN_S:.0f} s; kill -9 {holder.pid} ends all of it")
    except PermissionError:
        raise CannotHere(f"the lab in {where} is another user's: {holder}") from None
    finally:
        os.close(handle)
    click.echo(f"the lab in {where} has ended")


@lab.command()
@dir_option
@json_option
def status(*, folder: str | None, as_json: bool) -> None:
    """Show all nodes of a lab, what is cut, and what the chain has seen."""
    _show(folder, as_json, "")


def _order(name: str, help_text: str, option: str = "", option_help: str = "") -> None:
    """A command that does one thing to one node."""

    def act(*, node: str, folder: str | None, as_json: bool, **more: bool) -> None:
        _show(folder, as_json, f"/{node}/{name}", {option: True} if option and more.get(option) else {})

    act.__doc__ = help_text
    made: Any = json_option(dir_option(click.argument("node")(act)))
    if option:
        made = click.option(f"--{option}", is_flag=True, help=option_help)(made)
    lab.command(name)(made)


_order("start", "Start a node that was stopped or killed.")
_order("stop", "Stop a node in order: its command ends, then it releases the role.")
_order("kill", "Kill the agent of a node (kill -9).", "whole", "Guard and command besides, as a power cut would.")
_order("freeze", "Freeze the agent of a node (SIGSTOP).", "guard", "Also the guard that holds its command.")
_order("thaw", "Let a frozen node go on.")
_order("kill-command", "Kill what a node runs (kill -9), and nothing else: it is started again there.")


@lab.command()
@click.argument("node")
@click.argument("other")
@click.option("--way", default="both", show_default=True, help="both, in, out, or none to mend it; seen from NODE.")
@dir_option
@json_option
def cut(*, node: str, other: str, way: str, folder: str | None, as_json: bool) -> None:
    """Cut the link between two nodes."""
    _show(folder, as_json, "/links", {"node": node, "with": other, "cut": way})


@lab.command()
@click.argument("shape")
@dir_option
@json_option
def partition(*, shape: str, folder: str | None, as_json: bool) -> None:
    """Divide the network: leader-alone, halves, or 2/3 (the leader is on the smaller side)."""
    _show(folder, as_json, "/partition", {"shape": shape})


@lab.command()
@dir_option
@json_option
def heal(*, folder: str | None, as_json: bool) -> None:
    """Mend all links."""
    _show(folder, as_json, "/heal", {})


@lab.command()
@click.option("--chain", default=CHAIN_AT, show_default=True, metavar="HOST:PORT", help="Where the chain listens.")
@click.option("--interval-ms", default=INTERVAL_MS, show_default=True, type=SpanMs(1, 3_600_000))
def signer(*, chain: str, interval_ms: int) -> int:
    """Sign at the chain, with the token of `primacy run`: a command that must run once."""
    from primacy.lab.signer import main

    return main([chain, str(interval_ms)])


@lab.command()
@click.option("--listen", default=CHAIN_AT, show_default=True, metavar="HOST:PORT", help="Port 0: any.")
def chain(*, listen: str) -> int:
    """Take signatures and notice two signers at once. Ends with 1 if there were; GET /v1/chain shows it."""
    from primacy.lab.chain import run

    return run(listen, say)


# --- what all of them share -------------------------------------------------------------------------------------------


def _not_up(where: Path) -> NotReached:
    return NotReached(f"no lab is up in {where}; start one: primacy lab up{_dir(where)}")


def _dir(where: Path) -> str:
    from primacy.lab.place import default_folder

    return "" if where == default_folder() else f" --dir {where}"


def _show(folder: str | None, as_json: bool, path: str, order: dict[str, Any] | None = None) -> None:
    """The lab's document, after the order if there is one."""
    from primacy.control.client import ask, find
    from primacy.lab.screen import lines

    where = folder_of(folder)
    found = find(str(where))
    if found is None:
        raise _not_up(where)
    document = ask(found, f"/v1/lab{path}", order)
    if as_json:
        print_json(document)
    else:
        click.echo("\n".join(lines(document)))
