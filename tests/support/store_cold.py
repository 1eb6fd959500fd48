"""Eight processes that take a lease at the same moment, as often as they are told to.

    python -m tests.support.store_cold NUMBER      (reads {"url"}, {"look"} and {"name", "at_ns"}, one JSON line each)

Each has its own connection, opened beforehand, and has looked: nobody sees what another one took. The moment is one of
the clock that all of them share, a little ahead.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from primacy.election.store import Row, StoreAnswer
from primacy.store import open_store
from tests.support.store_harness import LIMIT_MS, Harness, row

AHEAD_S = 0.02
"""From the word to the moment: until all of them have read it."""
TOKEN = 100


class Crew:
    """The processes, asked all at once."""

    def __init__(self, count: int) -> None:
        self.all = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.store_cold", str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(count)
        ]

    def open(self, url: str) -> None:
        assert self._ask({"url": url}) == [True] * len(self.all)

    def take(self, name: str) -> list[StoreAnswer]:
        assert self._ask({"look": name}) == [True] * len(self.all)
        at_ns = time.monotonic_ns() + int(AHEAD_S * 1e9)
        return [_answer(one) for one in self._ask({"name": name, "at_ns": at_ns})]

    def end(self) -> None:
        for one in self.all:
            one.communicate()  # the end of its input is its end

    def _ask(self, order: dict[str, Any]) -> list[Any]:
        for one in self.all:
            assert one.stdin is not None
            print(json.dumps(order), file=one.stdin, flush=True)
        return [json.loads(one.stdout.readline()) for one in self.all if one.stdout is not None]


def _answer(found: dict[str, Any]) -> StoreAnswer:
    """Without the genesis row, which nobody compares here."""
    row = None if found["row"] is None else Row(*found["row"])
    return StoreAnswer(**{**found, "row": row, "genesis": None})


def main(words: Sequence[str]) -> None:
    number = int(words[0])
    harness: Harness | None = None
    seen: StoreAnswer | None = None
    for line in sys.stdin:
        order = json.loads(line)
        if "url" in order:
            harness = Harness(open_store(order["url"], limit_ms=LIMIT_MS))
            print(json.dumps(harness.look("nobody").ok), flush=True)
            continue
        assert harness is not None
        if "look" in order:
            seen = harness.look(order["look"], count=True)
            print(json.dumps(seen.ok and seen.row is None), flush=True)
            continue
        time.sleep(max(0, order["at_ns"] - time.monotonic_ns()) / 1e9)
        answer = harness.take(order["name"], new=row(f"n{number}#1", TOKEN + number), seen=seen)
        print(json.dumps(answer._asdict()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
