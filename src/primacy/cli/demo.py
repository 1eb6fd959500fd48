"""`primacy demo`: a real cluster to watch and to break: agents, a signer that must run once, a chain that judges."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from primacy.cli.call import EXIT_INTERRUPTED, json_option, print_json
from primacy.cli.lab import fitting, needs_linux, say
from primacy.errors import CannotHere, Refused, UsageError
from primacy.settings.accepted import STRATEGIES

if TYPE_CHECKING:
    from rich.console import RenderableType

    from primacy.lab.supervisor import Supervisor
    from primacy.lab.tour import Failover

SECONDS_MOST = 86_400
SCENARIOS = {
    "tour": "all of them, one after the other",
    "calm": "nothing: you break it",
    "stop": "the leader is stopped in order, and started again",
    "kill": "the leader's agent is killed; its guard ends the signer",
    "child": "the signer alone is killed: it starts again, without election",
    "links": "the leader's links are cut until it has no majority; mended",
    "one-way": "the leader is heard and hears nobody; mended",
    "minority": "the leader is on the smaller side of a split; mended",
    "halves": "no side has a majority: nobody signs until it is mended",
    "freeze": "the leader's agent and guard are frozen, later thawed",
    "power": "the leader's agent, guard and signer die at one stroke",
}
"""What is done to the cluster. `stop` and `links` are the single executor's; docs/lab.md names the faults."""
KEYS = {
    "s": "stop",
    "k": "kill",
    "c": "child",
    "l": "links",
    "o": "one-way",
    "m": "minority",
    "h": "halves",
    "f": "freeze",
    "p": "power",
    "t": "tour",
}
FRAMES_PER_S = 5
LINES_SHOWN = 6
STRIP_MOST = 50
EXIT_DOUBLE = 1


def _scenarios() -> str:
    """One line each, below the options."""
    width = max(map(len, SCENARIOS))
    return "\b\nScenarios:\n" + "\n".join(f"  {name:<{width}}  {what}" for name, what in SCENARIOS.items())


@click.command(epilog=_scenarios())
@click.option("--nodes", metavar="N", type=click.IntRange(3, 9), default=5, show_default=True, help="How many nodes.")
@click.option("--profile", metavar="P", default="fast", show_default=True, help="Times: lab, fast, lan, wan, executor.")
@click.option("--strategy", type=click.Choice(STRATEGIES), default="raft", show_default=True, help="Which strategy.")
@click.option(
    "--scenario",
    metavar="NAME",
    type=click.Choice(list(SCENARIOS)),
    help="What is done to it, see below. Default: calm in a terminal, where keys do it; else tour.",
)
@click.option(
    "--seconds",
    metavar="S",
    type=float,
    help="End by itself after so long. Default: by Ctrl-C, or by the end of the tour.",
)
@click.option("--no-browser", is_flag=True, help="Serve the page, and open no browser.")
@click.option("--tui", is_flag=True, help="The terminal alone: no page is served.")
@click.option("--dir", "folder", metavar="D", help="The folder, which is then kept. Default: a private one, removed.")
@json_option
def demo(
    *,
    nodes: int,
    profile: str,
    strategy: str,
    scenario: str | None,
    seconds: float | None,
    no_browser: bool,
    tui: bool,
    folder: str | None,
    as_json: bool,
) -> int:
    """Watch a real cluster, and break it.

    Real processes on this machine and nothing else: agents, a signer that must run once, and a chain that takes its
    signatures and notices two at once. Everything is gone at the end. Exit 1 if the chain saw a double signature.
    """
    needs_linux()
    if strategy != "raft":
        raise UsageError(
            f"--strategy {strategy}: real nodes know raft only so far; for a page of one simulated trial: "
            f"primacy simulate --strategy {strategy} --seed 1 --trace trial.html"
        )
    fitting(profile)
    if seconds is not None and not 0 < seconds <= SECONDS_MOST:
        raise UsageError(f"--seconds {seconds:g}: more than 0, at most {SECONDS_MOST}")
    terminal = sys.stdout.isatty() and not as_json
    chosen = scenario or ("calm" if terminal else "tour")
    from primacy.lab.temporary import keep

    where, is_ours = _where(folder)
    show = Screen(where) if terminal else Plain(quiet=as_json)
    page = None if tui else DemoPage(open_browser=terminal and not no_browser)
    result = _play(where, is_ours, nodes, profile, chosen, seconds, show, page)
    if as_json:
        print_json(result)
    else:
        for line in _summary(result):
            say(line)
    if result["overlaps"]:
        keep(where)
        say(f"the logs are kept in {where}/logs")
        return EXIT_DOUBLE
    if is_ours:
        shutil.rmtree(where, ignore_errors=True)
    return EXIT_INTERRUPTED if result["interrupted"] else 0


def _where(folder: str | None) -> tuple[Path, bool]:
    """The folder, and whether it is ours to remove. The lab's own if it is free: then `primacy lab` needs no --dir.

    What earlier demos of this user could not remove goes first."""
    from primacy.lab.place import default_folder, holder_of
    from primacy.lab.temporary import new_temporary, sweep

    sweep()
    if folder is not None:
        return Path(folder).absolute(), False
    usual = default_folder()
    with contextlib.suppress(CannotHere):  # somebody else's, or open to others
        if holder_of(usual) is None:
            return usual, True
    return new_temporary(), True


class DemoPage(NamedTuple):
    """The dashboard of the demo: a process of its own, which ends with the lab."""

    open_browser: bool

    def serve(self, up: Supervisor, show: Show) -> None:
        """At the usual port, or at any that is free: it says itself where."""
        from primacy.cli.dashboard import open_browser, tunnel

        place = up.lab.place
        call = [sys.executable, "-m", "primacy.cli.main", "dashboard", "--lab", str(place.path), "--no-browser"]
        up.lab.assist("dashboard", call)

        def address() -> re.Match[str] | None:
            text = place.log("dashboard").read_text(encoding="utf-8", errors="replace")
            return re.search(r"^dashboard: (http://localhost:(\d+)/dashboard)$", text, re.MULTILINE)

        found = up.lab.until(address, "the address of the dashboard")
        assert found is not None
        show.page(found[1], tunnel(int(found[2]), os.environ))
        if self.open_browser and not os.environ.get("SSH_CONNECTION"):
            open_browser(f"{found[1]}#/network")


def _play(
    where: Path,
    is_ours: bool,
    nodes: int,
    profile: str,
    chosen: str,
    seconds: float | None,
    show: Show,
    page: DemoPage | None,
) -> dict[str, Any]:
    from primacy.lab.supervisor import Ended, Supervisor
    from primacy.lab.temporary import mark
    from primacy.lab.tour import DemoScript

    began_s = time.monotonic()
    number = 0
    failovers: list[Failover] = []
    up = Supervisor(where, nodes, profile, (), show.line)
    if is_ours:
        mark(up.lab.place.folder)
    try:
        with show.open(up, f"{nodes} real nodes, raft, profile {profile}"), up:
            if seconds is not None:
                up.end_s = time.monotonic() + seconds
            if page is not None:
                page.serve(up, show)
            script = DemoScript(up, show)
            failovers = script.failovers
            try:
                _scenes(script, chosen, show, stays=show.is_live or seconds is not None)
            finally:
                show.scene("The nodes end, in order.", "")
    except Ended as end:
        number = end.number
    chain = up.last_chain or {"counters": {}, "alerts": []}
    counters = chain["counters"]
    return {
        "api": 1,
        "nodes": nodes,
        "profile": profile,
        "strategy": "raft",
        "scenario": chosen,
        "seconds": round(time.monotonic() - began_s, 1),
        "interrupted": number == signal.SIGINT,
        "failovers": [each._asdict() for each in failovers],
        "signatures": counters.get("signatures", 0),
        "gaps": counters.get("gaps", 0),
        "longest_gap_ms": counters.get("longest_gap_ms", 0),
        "stale": counters.get("stale", 0),
        "overlaps": max(counters.get("double_signatures", 0), 1 if up.chain_code == EXIT_DOUBLE else 0),
        "alerts": chain["alerts"],
    }


def _scenes(script: Any, chosen: str, show: Show, *, stays: bool) -> None:
    """The chosen scenario, then whatever keys ask for, until the end. Raises `Ended`."""
    from primacy.lab.tour import SCENARIOS as SCENES

    def play(name: str) -> None:
        try:
            SCENES[name](script)
        except Refused as error:  # somebody else broke it meanwhile, from another terminal
            show.line(f"the scene ends here: {error}")
        if name != "calm" and show.is_live:
            SCENES["calm"](script)

    script.until(lambda: script.chain()["height"], "the first signature")
    show.line(f"{script.leader()} leads, and its signer signs")
    script.up.rest(script.rest_s)
    play(chosen)
    while stays:
        script.up.rest(0.1)
        key = show.key()
        if key == "q":
            return
        if key in KEYS:
            play(KEYS[key])


def _summary(result: dict[str, Any]) -> list[str]:
    count = len(result["failovers"])
    said = [
        "",
        f"{result['signatures']} signatures in {result['seconds']:g} s, {count} failover{'' if count == 1 else 's'}"
        f"{':' if count else ''}",
    ]
    said += [
        f"  after {f['after']}: nobody signed for {f['gap_ms']:,} ms, then {f['node']}" for f in result["failovers"]
    ]
    if result["overlaps"]:
        said += [f"DOUBLE SIGNATURE: {alert}" for alert in result["alerts"]]
        said.append("Two were at work at once. That must never be: please report it.")
    else:
        said.append("No double signature: never were two at work at once.")
    return said


# --- shown where there is no terminal ---------------------------------------------------------------------------------


class Plain:
    """Lines, in the order in which things happen."""

    is_live = False

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.began_s = time.monotonic()

    @contextlib.contextmanager
    def open(self, up: Supervisor, title: str) -> Iterator[None]:
        if not self.quiet:
            say(f"{title}, in {up.lab.place.path}")
        yield

    def page(self, link: str, tunnel: str) -> None:
        if not self.quiet:
            say(f"the page: {link}")
            if tunnel:
                say(tunnel)

    def scene(self, title: str, look: str) -> None:
        if not self.quiet:
            say(f"\n{title} {look}")

    def line(self, sentence: str) -> None:
        if not self.quiet:
            say(f"  {time.monotonic() - self.began_s:6.2f} s  {sentence}")

    def key(self) -> str:
        return ""


# --- and in one -------------------------------------------------------------------------------------------------------


class Screen:
    """One screen that follows the cluster. Keys break it."""

    is_live = True

    def __init__(self, where: Path) -> None:
        self.where = where
        self.began_s = time.monotonic()
        self.title = ""
        self.link = ""
        self.at = ("The nodes start.", "")
        self.told: list[tuple[float, str]] = []

    def page(self, link: str, tunnel: str) -> None:
        self.link = f"{link}   {tunnel}".rstrip()

    def scene(self, title: str, look: str) -> None:
        self.at = (title, look)

    def line(self, sentence: str) -> None:
        self.told.append((time.monotonic() - self.began_s, sentence))
        del self.told[:-LINES_SHOWN]

    def key(self) -> str:
        if not sys.stdin.isatty() or not select.select([sys.stdin], [], [], 0)[0]:
            return ""
        return sys.stdin.read(1).lower()

    @contextlib.contextmanager
    def open(self, up: Supervisor, title: str) -> Iterator[None]:
        from rich.console import Console
        from rich.live import Live

        self.title = title
        console = Console(highlight=False)
        with (
            _keys(),
            Live(
                console=console,
                get_renderable=lambda: self.frame(up.document(), console.width),
                refresh_per_second=FRAMES_PER_S,
                transient=True,
            ),
        ):
            yield

    def frame(self, document: dict[str, Any], width: int) -> RenderableType:
        """A pure function of the document, but for the time that has passed."""
        from rich.text import Text

        from primacy.lab.screen import chain_lines, lines, strip
        from primacy.lab.supervisor import INTERVAL_MS

        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"\n  {self.title}", "bold").append(f"   {time.monotonic() - self.began_s:5.1f} s\n\n")
        if self.link:
            text.append(f"  the page: {self.link}\n\n", "bold")
        text.append(f"  {self.at[0]}\n", "bold cyan").append(f"  {self.at[1]}\n\n", "cyan")
        for line in lines({**document, "chain": None}):
            text.append(f"  {line}\n", _style(line))
        chain = document["chain"] or {}
        if "signatures" in chain:
            columns = max(10, min(width - 6, STRIP_MOST))
            text.append("\n  " + strip(chain["signatures"], INTERVAL_MS, columns).rjust(columns) + "\n", "green")
            for line in chain_lines({**chain, "signatures": []}):
                text.append(f"  {line}\n", _style(line))
        text.append("\n")
        for at_s, sentence in self.told:
            text.append(f"  {at_s:6.1f} s  ", "bright_black").append(f"{sentence}\n")
        keys = "  ".join(f"{key} {name}" for key, name in KEYS.items())
        text.append(f"\n  keys: {keys}  q end\n", "bright_black")
        return text


Show = Plain | Screen


def _style(line: str) -> str:
    """Alerts in red; who runs it in green."""
    if line.startswith(("ALERT", "DOUBLE")):
        return "bold white on red"
    return "green" if " running  " in line and "leader " in line else ""


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Keys are heard without Enter and not shown; afterwards the terminal is as it was."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal may have been closed
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
