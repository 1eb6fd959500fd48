"""`primacy simulate --show`: one simulated trial to watch, with a script instead of drawn faults.

The real machines, in a world that the script breaks: for every strategy, and nothing is started on this computer.
"""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING

import click

from primacy.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from primacy.sim.show import Demonstration

SECONDS_DEFAULT = 25.0
SECONDS_MOST = 600
NODES_LEAST, NODES_MOST = 3, 9
SEED_DEFAULT = 3
FRAMES_PER_S = 12
LINES_SHOWN = 6
COLUMNS_MOST = 150
NAME_COLUMNS = 5
EXIT_OVERLAPPED = 1


def show(strategy: str, nodes: int, profile: str, seed: int, seconds: float | None) -> int:
    """Plays it; returns the exit code: 1 if the work overlapped although the strategy promises that it never does."""
    if not NODES_LEAST <= nodes <= NODES_MOST:
        raise UsageError(f"--nodes {nodes}: --show has room for {NODES_LEAST} to {NODES_MOST}")
    if seconds is not None and not 0 <= seconds <= SECONDS_MOST:
        raise UsageError(f"--seconds {seconds:g}: say a number from 0 to {SECONDS_MOST}")
    from primacy.sim.show import demonstrate

    recorded = demonstrate(strategy, nodes, profile, seed)
    terminal = sys.stdout.isatty()
    if seconds is None:
        seconds = SECONDS_DEFAULT if terminal else 0
    (_show if terminal else _tell)(recorded, profile, seconds)
    return EXIT_OVERLAPPED if recorded.overlaps and recorded.promised_one else 0


def _title(recorded: Demonstration, profile: str) -> str:
    return f"{recorded.strategy}, {len(recorded.names)} simulated nodes, profile {profile}"


# --- in a terminal ----------------------------------------------------------------------------------------------------


def _show(recorded: Demonstration, profile: str, seconds: float) -> None:
    import time

    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if seconds > 0:
        with Live(console=console, refresh_per_second=FRAMES_PER_S, auto_refresh=False, transient=True) as live:
            began_s = time.monotonic()
            while (passed_s := time.monotonic() - began_s) < seconds:
                live.update(_frame(recorded, profile, passed_s / seconds * recorded.end_ms, console), refresh=True)
                time.sleep(1 / FRAMES_PER_S)
    console.print(_frame(recorded, profile, recorded.end_ms, console, done=True), no_wrap=True, overflow="ellipsis")


def _frame(
    recorded: Demonstration, profile: str, now_ms: float, console: Console, *, done: bool = False
) -> RenderableType:
    from rich.text import Text

    from primacy.sim.show import lane, legend, plain, ruler, scene_at, summary

    columns = max(20, min(console.width - NAME_COLUMNS - 4, COLUMNS_MOST))
    signs = (lambda text: text) if (console.encoding or "").startswith("utf") else plain
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"\n  {_title(recorded, profile)}", "bold").append(f"   {now_ms / 1000:5.1f} s\n\n")
    if not done:
        scene = scene_at(recorded, now_ms)
        text.append(f"  {scene.title}\n", "bold cyan").append(f"  {scene.look}\n\n", "cyan")
    text.append(" " * (NAME_COLUMNS + 2) + signs(ruler(recorded, now_ms, columns)) + "\n", "cyan")
    for name in recorded.names:
        text.append(f"  {name:<{NAME_COLUMNS}}", "bold")
        for cell, alike in groupby(lane(recorded, name, now_ms, columns)):
            text.append(signs(cell.sign) * len(list(alike)), cell.style)
        text.append("\n")
    text.append("\n  ")
    for cell, words in legend(recorded):
        text.append(signs(cell.sign), cell.style).append(f" {words}   ", "bright_black")
    text.append("\n\n")
    if done:
        text.append("\n".join(f"  {line}" for line in summary(recorded)) + "\n")
        return text
    heard = [line for line in recorded.lines if line.at_ms <= now_ms][-LINES_SHOWN:]
    for line in heard:
        text.append(f"  {line.at_ms / 1000:6.2f} s  ", "bright_black").append(f"{line.text}\n")
    text.append("\n" * (LINES_SHOWN - len(heard)))
    return text


# --- elsewhere --------------------------------------------------------------------------------------------------------


def _tell(recorded: Demonstration, profile: str, seconds: float) -> None:
    """Plain lines, in the order in which things happen, and the lanes at the end."""
    import time

    from primacy.sim.show import lane, legend, plain, ruler, summary

    utf = (sys.stdout.encoding or "").lower().startswith("utf")
    signs = (lambda text: text) if utf else plain
    columns = 80 - NAME_COLUMNS - 4
    click.echo(_title(recorded, profile))
    scenes = [(scene.at_ms, f"\n{scene.title} {scene.look}") for scene in recorded.scenes]
    told = [(line.at_ms, f"  {line.at_ms / 1000:6.2f} s  {line.text}") for line in recorded.lines]
    began_s = time.monotonic()
    for at_ms, text in sorted(scenes + told, key=lambda row: row[0]):
        wait_s = at_ms / recorded.end_ms * seconds - (time.monotonic() - began_s)
        if wait_s > 0:
            time.sleep(wait_s)
        click.echo(text)
    click.echo("\n" + " " * (NAME_COLUMNS + 2) + signs(ruler(recorded, recorded.end_ms, columns)))
    for name in recorded.names:
        cells = "".join(cell.sign for cell in lane(recorded, name, recorded.end_ms, columns))
        click.echo(f"  {name:<{NAME_COLUMNS}}{signs(cells)}")
    click.echo("\n  " + "   ".join(f"{signs(cell.sign)} {words}" for cell, words in legend(recorded)) + "\n")
    for line in summary(recorded):
        click.echo(f"  {line}")
