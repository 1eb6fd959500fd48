"""Scenes in plain text: what is done to a small cluster, and what it then does, for a reviewer to read.

A line that begins with `> ` is a command; the lines below it are what happened, and playing the scene anew must give
the same ones, for one seed is one history. Blank lines and lines that begin with # are for the reader.

    > cluster a b c strategy=raft profile=lab seed=7 formed
    > pass 800 ms
    > cut a | b c

Commands are one regular expression and one function each, in `COMMANDS` below. Nodes are written `name`,
`name:witness`, `name:observer`, or `name:2` with a priority.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from primacy.election.inputs import Health, Input, Pause, Resume, Shutdown
from primacy.sim.stage import Stage, TranscriptError


class Block(NamedTuple):
    """A command with the lines that belong to it; or, without a command, lines for the reader."""

    line: int
    command: str
    output: tuple[str, ...]


def parse(text: str) -> list[Block]:
    """The blocks of a scene, in order. Blank lines and remarks are blocks of their own."""
    blocks: list[Block] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("> "):
            blocks.append(Block(number, line[2:].strip(), ()))
        elif not line.strip() or line.startswith("#") or not blocks or not blocks[-1].command:
            blocks.append(Block(number, "", (line,)))
        else:
            last = blocks[-1]
            blocks[-1] = last._replace(output=(*last.output, line))
    return blocks


def play(text: str, name: str = "scene") -> str:
    """The scene with its output made anew. Equal to `text` if nothing changed."""
    stage = Stage()
    lines: list[str] = []
    for block in parse(text):
        if not block.command:
            lines += block.output
            continue
        lines.append(f"> {block.command}")
        try:
            lines += do(stage, block.command)
        except TranscriptError as wrong:
            raise TranscriptError(f"{name}, line {block.line}: {wrong}") from None
    return "\n".join(lines) + "\n"


def do(stage: Stage, command: str) -> list[str]:
    """Performs one command and returns the lines that it brought about."""
    for pattern, action in COMMANDS:
        found = re.fullmatch(pattern, command)
        if found is not None:
            stage.teller.begin(stage.now_ms)
            shown = action(stage, *found.groups())
            return [*stage.teller.take(), *(shown or [])]
    raise TranscriptError(f"unknown command {command!r}")


def _say(given: Input) -> Callable[[Stage, str], None]:
    return lambda stage, name: stage.tell(name, given)


NODE = r"([\w-]+)"
NODES = r"([\w-]+(?: [\w-]+)*)"

COMMANDS: tuple[tuple[str, Callable[..., list[str] | None]], ...] = (
    (r"cluster (.+)", Stage.cluster),
    (r"pass ([\d.]+) (ms|s)", Stage.pass_time),
    (rf"elect {NODE}", Stage.elect),
    (rf"start {NODES}", Stage.start),
    (rf"kill guard of {NODE}", Stage.kill_guard),
    (rf"kill {NODES}", Stage.kill),
    (rf"power off {NODES}", Stage.power_off),
    (rf"stop {NODE}", Stage.stop),
    (rf"freeze guard of {NODE}", Stage.freeze_guard),
    (rf"thaw guard of {NODE}", Stage.thaw_guard),
    (rf"freeze {NODE}", Stage.freeze),
    (rf"go on {NODE}", Stage.go_on),
    (rf"end child of {NODE}", Stage.end_child),
    (rf"twin {NODE}", Stage.twin),
    (rf"end twin {NODE}", Stage.end_twin),
    (rf"cut {NODES} -> {NODES}", Stage.cut_one_way),
    (rf"cut ({NODES[1:-1]}(?: \| {NODES[1:-1]})+)", Stage.cut),
    (r"heal", Stage.heal),
    (rf"hold messages of {NODE}", Stage.hold),
    (r"let go", Stage.let_go),
    (rf"repeat messages of {NODE} after (\d+) ms", Stage.repeat),
    (r"weather (\w+=[\d.]+(?: \w+=[\d.]+)*)", Stage.conditions),
    (rf"drift {NODE} ([+-][\d.]+)%", Stage.drift),
    (rf"disk full {NODE}", Stage.disk_full),
    (rf"disk free {NODE}", Stage.disk_free),
    (rf"forget {NODE}", Stage.forget),
    (rf"back up {NODE}", Stage.back_up),
    (rf"restore {NODE}", Stage.restore),
    (rf"put term on disk of {NODE} (\d+)", Stage.put_term),
    (rf"init {NODE} without {NODES}", Stage.init),
    (rf"init {NODES}", lambda stage, names: stage.init(names, None)),
    (rf"rejoin {NODE}(?: without {NODES})?", Stage.rejoin),
    (rf"step down {NODE}(?: to {NODE})?", Stage.step_down),
    (rf"approve {NODE}", Stage.approve),
    (rf"pause {NODE}", _say(Pause())),
    (rf"resume {NODE}", _say(Resume())),
    (rf"unhealthy {NODE}", _say(Health(False, "a health probe failed"))),
    (rf"healthy {NODE}", _say(Health(True))),
    (rf"shut down {NODE}", _say(Shutdown())),
    (rf"list ([\w:-]+(?: [\w:-]+)*) on {NODES}", Stage.new_list),
    (rf"timing {NODE} on {NODES}", Stage.new_timing),
    (rf"join {NODE} through {NODE}", Stage.join),
    (rf"remove {NODE}", Stage.remove),
    (r"store away", Stage.store_away),
    (r"store hangs", Stage.store_hangs),
    (r"store back", Stage.store_back),
    (rf"cut {NODE} from the store", Stage.store_cut),
    (r"store fails over(?: losing (\d+) commits?)?", Stage.store_fails_over),
    (r"show", Stage.show),
)
"""The language: what may stand after `> `, and what it does. The first that fits counts."""
