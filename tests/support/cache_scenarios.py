"""Scenarios of the cache in plain text: commands after `>`, and below each what happened. Played on `cache_harness.py`.

`python -m tests.support.cache_scenarios FILE` prints a file as it is played now. Times are milliseconds since the
start; terms are milliseconds of the wall clock since then. Left out: ANNOUNCEs after the first and their acks, PINGs,
and what is said again under the same command.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from primacy.cache import inputs as told
from primacy.cache.messages import Question
from primacy.cache.model import SourceSettings
from tests.support.cache_harness import SETTINGS, Harness, addresses

ROUTINE = re.compile(r"(announce|ack) ([2-9]|\d\d+)\b")


class Scenario:
    """One file."""

    def __init__(self) -> None:
        self.harness: Harness | None = None

    def do(self, command: str) -> list[str]:
        word, _, rest = command.partition(" ")
        if word == "cluster":
            names, *options = rest.split(" with ")
            how = dict(option.split("=") for option in " ".join(options).split())
            source = SourceSettings(ttl_ms=int(how.get("ttl_ms", 60_000)), negative_ms=int(how.get("negative_ms", 0)))
            self.harness = Harness(names, SETTINGS._replace(sources=(source,)))
            self.harness.run(int(how.get("calm_ms", 0)))
            self.harness.lines.clear()
            return []
        assert self.harness is not None, "a scenario begins with `> cluster ...`"
        self.harness.lines.clear()
        getattr(self, f"_{word}")(self.harness, rest)
        lines: dict[str, str] = {}
        for line in self.harness.lines:
            if not ROUTINE.search(line):
                lines.setdefault(line.lstrip(" 0123456789"), line)  # what is said again is left out
        return list(lines.values())

    def _ask(self, harness: Harness, rest: str) -> None:
        for word in rest.split():
            name, _, key = word.partition(":")
            harness.ask(name, (key or "k").encode())

    def _pass(self, harness: Harness, rest: str) -> None:
        harness.run(int(rest.removesuffix(" ms")))

    def _source(self, harness: Harness, rest: str) -> None:
        word, _, more = rest.partition(" ")
        if word == "takes":
            harness.source_ms = int(more.split()[0])
        elif word == "hangs":
            harness.source_ms = None
        else:
            harness.source_fails = more if word == "fails" else ""

    def _cut(self, harness: Harness, rest: str) -> None:
        harness.cut(*(group.strip() for group in rest.split("|")))

    def _heal(self, harness: Harness, _: str) -> None:
        harness.heal()

    def _kill(self, harness: Harness, rest: str) -> None:
        for name in rest.split():
            harness.kill(name)

    def _start(self, harness: Harness, rest: str) -> None:
        name, _, how = rest.partition(" ")
        harness.start(name, forgets=how == "without memory")

    def _join(self, harness: Harness, rest: str) -> None:
        name, _, names = rest.partition(": ")
        harness.join(name, names)

    def _freeze(self, harness: Harness, rest: str) -> None:
        harness.freeze(rest)

    def _thaw(self, harness: Harness, rest: str) -> None:
        harness.thaw(rest)

    def _evict(self, harness: Harness, rest: str) -> None:
        gone, _ = harness.disks[rest].values.pop(b"k")
        harness.disks[rest].values.clear()
        harness.tell(rest, told.ValueGone(b"k", gone.epoch))

    def _invalidate(self, harness: Harness, rest: str) -> None:
        name, _, key = rest.partition(" ")
        prefix = key.endswith("*")
        harness.order(name, told.Invalidate, (key.rstrip("*") or "k").encode(), prefix)

    def _refresh(self, harness: Harness, rest: str) -> None:
        harness.order(rest, told.Refresh, b"k")

    def _put(self, harness: Harness, rest: str) -> None:
        name, value = rest.split()
        harness.order(name, told.Put, b"k", value.encode(), 60_000)

    def _reload(self, harness: Harness, rest: str) -> None:
        name, _, peers = rest.partition(": ")
        harness.order(name, told.Reload, addresses(peers))

    def _old(self, harness: Harness, rest: str) -> None:
        """`old peer a asks b`: a message as an original peer sends it."""
        _, sender, _, receiver = rest.split()
        harness.say(f"{sender} to {receiver}: a QUESTION without a trailer")
        harness.tell(receiver, told.Received(sender, Question(b"k", 7, None)))
        harness.say(f"{receiver} tells its operator: {harness.events[-1][1]}")


def play(text: str) -> str:
    """The file with what happens now below each command."""
    scenario = Scenario()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *scenario.do(line[2:])]
        elif line.startswith("#") or not line:
            lines.append(line)
    assert scenario.harness is not None
    if scenario.harness.overlaps:
        lines.append(f"VIOLATION: {scenario.harness.overlaps}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(play(Path(sys.argv[1]).read_text(encoding="utf-8")), end="")
