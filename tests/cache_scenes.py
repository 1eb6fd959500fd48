"""Scenarios of the cache in plain text: commands after `>`, and below each what happened. Played on `cache_stage.py`.

`python -m tests.cache_scenes FILE` prints a file as it is played now. Times are milliseconds since the start; terms are
milliseconds of the wall clock since then. Left out: ANNOUNCEs after the first and their acks, PINGs, and what is said
again under the same command.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.cache_stage import SETTINGS, Stage, addresses

from primacy.cache import inputs as told
from primacy.cache.messages import Question
from primacy.cache.model import SourceSettings

ROUTINE = re.compile(r"(announce|ack) ([2-9]|\d\d+)\b")


class Scenario:
    """One file."""

    def __init__(self) -> None:
        self.stage: Stage | None = None

    def do(self, command: str) -> list[str]:
        word, _, rest = command.partition(" ")
        if word == "cluster":
            names, *options = rest.split(" with ")
            how = dict(option.split("=") for option in " ".join(options).split())
            source = SourceSettings(ttl_ms=int(how.get("ttl_ms", 60_000)), negative_ms=int(how.get("negative_ms", 0)))
            self.stage = Stage(names, SETTINGS._replace(sources=(source,)))
            self.stage.run(int(how.get("calm_ms", 0)))
            self.stage.lines.clear()
            return []
        assert self.stage is not None, "a scenario begins with `> cluster ...`"
        self.stage.lines.clear()
        getattr(self, f"_{word}")(self.stage, rest)
        lines: dict[str, str] = {}
        for line in self.stage.lines:
            if not ROUTINE.search(line):
                lines.setdefault(line.lstrip(" 0123456789"), line)  # what is said again is left out
        return list(lines.values())

    def _ask(self, stage: Stage, rest: str) -> None:
        for word in rest.split():
            name, _, key = word.partition(":")
            stage.ask(name, (key or "k").encode())

    def _pass(self, stage: Stage, rest: str) -> None:
        stage.run(int(rest.removesuffix(" ms")))

    def _source(self, stage: Stage, rest: str) -> None:
        word, _, more = rest.partition(" ")
        if word == "takes":
            stage.source_ms = int(more.split()[0])
        elif word == "hangs":
            stage.source_ms = None
        else:
            stage.source_fails = more if word == "fails" else ""

    def _cut(self, stage: Stage, rest: str) -> None:
        stage.cut(*(group.strip() for group in rest.split("|")))

    def _heal(self, stage: Stage, _: str) -> None:
        stage.heal()

    def _kill(self, stage: Stage, rest: str) -> None:
        for name in rest.split():
            stage.kill(name)

    def _start(self, stage: Stage, rest: str) -> None:
        name, _, how = rest.partition(" ")
        stage.start(name, forgets=how == "without memory")

    def _join(self, stage: Stage, rest: str) -> None:
        name, _, names = rest.partition(": ")
        stage.join(name, names)

    def _freeze(self, stage: Stage, rest: str) -> None:
        stage.freeze(rest)

    def _thaw(self, stage: Stage, rest: str) -> None:
        stage.thaw(rest)

    def _evict(self, stage: Stage, rest: str) -> None:
        gone, _ = stage.disks[rest].values.pop(b"k")
        stage.disks[rest].values.clear()
        stage.tell(rest, told.ValueGone(b"k", gone.epoch))

    def _invalidate(self, stage: Stage, rest: str) -> None:
        name, _, key = rest.partition(" ")
        prefix = key.endswith("*")
        stage.order(name, told.Invalidate, (key.rstrip("*") or "k").encode(), prefix)

    def _refresh(self, stage: Stage, rest: str) -> None:
        stage.order(rest, told.Refresh, b"k")

    def _put(self, stage: Stage, rest: str) -> None:
        name, value = rest.split()
        stage.order(name, told.Put, b"k", value.encode(), 60_000)

    def _reload(self, stage: Stage, rest: str) -> None:
        name, _, peers = rest.partition(": ")
        stage.order(name, told.Reload, addresses(peers))

    def _old(self, stage: Stage, rest: str) -> None:
        """`old peer a asks b`: a message as an original peer sends it."""
        _, sender, _, receiver = rest.split()
        stage.say(f"{sender} to {receiver}: a QUESTION without a trailer")
        stage.tell(receiver, told.Received(sender, Question(b"k", 7, None)))
        stage.say(f"{receiver} tells its operator: {stage.events[-1][1]}")


def play(text: str) -> str:
    """The file with what happens now below each command."""
    scenario = Scenario()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *scenario.do(line[2:])]
        elif line.startswith("#") or not line:
            lines.append(line)
    assert scenario.stage is not None
    if scenario.stage.overlaps:
        lines.append(f"VIOLATION: {scenario.stage.overlaps}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(play(Path(sys.argv[1]).read_text(encoding="utf-8")), end="")
