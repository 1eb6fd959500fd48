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
from primacy.sim.transcripts.scenario import Scenario, TranscriptError


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
    scenario = Scenario()
    lines: list[str] = []
    for block in parse(text):
        if not block.command:
            lines += block.output
            continue
        lines.append(f"> {block.command}")
        try:
            lines += do(scenario, block.command)
        except TranscriptError as wrong:
            raise TranscriptError(f"{name}, line {block.line}: {wrong}") from None
    return "\n".join(lines) + "\n"


def do(scenario: Scenario, command: str) -> list[str]:
    """Performs one command and returns the lines that it brought about."""
    for pattern, action in COMMANDS:
        found = re.fullmatch(pattern, command)
        if found is not None:
            scenario.transcript.begin(scenario.now_ms)
            shown = action(scenario, *found.groups())
            return [*scenario.transcript.take(), *(shown or [])]
    for before, now in RENAMED.items():
        if re.match(rf"{before}\b", command):
            raise TranscriptError(f"unknown command {command!r}: `{before}` is called `{now}` now")
    raise TranscriptError(f"unknown command {command!r}")


def _say(given: Input) -> Callable[[Scenario, str], None]:
    return lambda scenario, name: scenario.tell(name, given)


NODE = r"([\w-]+)"
NODES = r"([\w-]+(?: [\w-]+)*)"

RENAMED = {"twin": "duplicate", "end twin": "end duplicate", "weather": "conditions"}

COMMANDS: tuple[tuple[str, Callable[..., list[str] | None]], ...] = (
    (r"cluster (.+)", Scenario.cluster),
    (r"pass ([\d.]+) (ms|s)", Scenario.pass_time),
    (rf"elect {NODE}", Scenario.elect),
    (rf"start {NODES}", Scenario.start),
    (rf"kill guard of {NODE}", Scenario.kill_guard),
    (rf"kill {NODES}", Scenario.kill),
    (rf"power off {NODES}", Scenario.power_off),
    (rf"stop {NODE}", Scenario.stop),
    (rf"freeze guard of {NODE}", Scenario.freeze_guard),
    (rf"thaw guard of {NODE}", Scenario.thaw_guard),
    (rf"freeze {NODE}", Scenario.freeze),
    (rf"go on {NODE}", Scenario.go_on),
    (rf"end child of {NODE}", Scenario.end_child),
    (rf"duplicate {NODE}", Scenario.duplicate),
    (rf"end duplicate {NODE}", Scenario.end_duplicate),
    (rf"cut {NODES} -> {NODES}", Scenario.cut_one_way),
    (rf"cut ({NODES[1:-1]}(?: \| {NODES[1:-1]})+)", Scenario.cut),
    (r"heal", Scenario.heal),
    (rf"hold messages of {NODE}", Scenario.hold),
    (r"let go", Scenario.let_go),
    (rf"repeat messages of {NODE} after (\d+) ms", Scenario.repeat),
    (r"conditions (\w+=[\d.]+(?: \w+=[\d.]+)*)", Scenario.conditions),
    (rf"drift {NODE} ([+-][\d.]+)%", Scenario.drift),
    (rf"disk full {NODE}", Scenario.disk_full),
    (rf"disk free {NODE}", Scenario.disk_free),
    (rf"forget {NODE}", Scenario.forget),
    (rf"back up {NODE}", Scenario.back_up),
    (rf"restore {NODE}", Scenario.restore),
    (rf"put term on disk of {NODE} (\d+)", Scenario.put_term),
    (rf"put token on disk of {NODE} A\+(\d+)", Scenario.put_token),
    (rf"init {NODE} without {NODES}", Scenario.init),
    (rf"init {NODES}", lambda scenario, names: scenario.init(names, None)),
    (rf"rejoin {NODE}(?: without {NODES})?", Scenario.rejoin),
    (rf"step down {NODE}(?: to {NODE})?", Scenario.step_down),
    (rf"approve {NODE}", Scenario.approve),
    (rf"pause {NODE}", _say(Pause())),
    (rf"resume {NODE}", _say(Resume())),
    (rf"unhealthy {NODE}", _say(Health(False, "a health probe failed"))),
    (rf"healthy {NODE}", _say(Health(True))),
    (rf"shut down {NODE}", _say(Shutdown())),
    (rf"list ([\w:-]+(?: [\w:-]+)*) on {NODES}", Scenario.new_list),
    (rf"timing {NODE} on {NODES}", Scenario.new_timing),
    (rf"file {NODE} on {NODES}", Scenario.new_file),
    (rf"machine {NODE}", Scenario.machine),
    (r"members ([\w:-]+(?: [\w:-]+)*)", Scenario.members),
    (r"cancel members", Scenario.cancel_members),
    (rf"force members on {NODE} without {NODES}", Scenario.force_members),
    (rf"join {NODE} through {NODE}", Scenario.join),
    (rf"remove {NODE}", Scenario.remove),
    (r"store away", Scenario.store_away),
    (r"store hangs", Scenario.store_hangs),
    (r"store back", Scenario.store_back),
    (rf"cut {NODE} from the store", Scenario.store_cut),
    (r"store fails over(?: losing (\d+) commits?)?", Scenario.store_fails_over),
    (r"show", Scenario.show),
)
"""The language: what may stand after `> `, and what it does. The first that fits counts."""
