"""Builds the machines of the code at hand from a log, gives them what was recorded, and compares what they do.

Nothing is simulated here: inputs, times and draws come from the log, so that one difference is one difference, and a
simulator that was changed meanwhile does not matter. A machine that differs is left alone from there on, for its state
is another one; the others of its trial go on.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.behaviour.draws import GivenRandom, OtherDraw
from tests.behaviour.machines import FACES, Face
from tests.behaviour.names import NameMissing, Names
from tests.behaviour.recorder import MADE, SHOWN, STEP
from tests.behaviour.trials import FORMAT, in_processes
from tests.behaviour.values import Decoder, same


class Difference(NamedTuple):
    """The first one of a machine."""

    trial: str
    seed: int
    machine: str
    call: int
    """Counted from 1; 0: while it was made."""
    given: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"{self.trial}, seed {self.seed}, {self.machine}, call {self.call}\n"
            f"  input:    {self.given}\n  expected: {self.expected}\n  found:    {self.found}"
        )


class Compared(NamedTuple):
    """What was looked at in one log, or in many."""

    trials: int = 0
    machines: int = 0
    calls: int = 0
    effects: int = 0
    differing: int = 0
    """Machines."""
    first: Difference | None = None

    def plus(self, other: Compared) -> Compared:
        return Compared(
            self.trials + other.trials,
            self.machines + other.machines,
            self.calls + other.calls,
            self.effects + other.effects,
            self.differing + other.differing,
            self.first or other.first,
        )


class Other(Exception):
    """The code at hand does something else."""

    def __init__(self, given: str, expected: object, found: object) -> None:
        super().__init__(given)
        self.given, self.expected, self.found = given, str(expected), str(found)


class Replayed:
    """One machine of the code at hand."""

    def __init__(self, number: int, kind: str, face: Face, names: Names) -> None:
        self.name = f"machine {number} ({kind})"
        self.face = face
        self.random = GivenRandom()
        self.machine: Any = None
        self.calls = 0
        self._called = partial(names.method, kind)
        self._step = self._called("step")
        self._after = tuple(names.method(kind, name) for name in face.after)
        self._clocks = [0] * face.clocks
        self._deadlines: list[int | None] = [None] * len(face.after)

    def step(self, decoder: Decoder, line: list[Any]) -> int:
        """Returns how many effects were compared."""
        _, _, times, given_code, draws, effect_codes, moves, error = line
        self.calls += 1
        self._clocks = [then + by for then, by in zip(self._clocks, times, strict=True)]
        given = decoder.value(given_code)
        expected = [decoder.value(code) for code in effect_codes]
        self.random.expect(draws)
        found: list[Any] = []
        raised = None
        try:
            found = getattr(self.machine, self._step)(*self._clocks, given)
            self.random.check_used()
        except OtherDraw as other:
            raise Other(self._said(given), f"{expected}, with the draws {draws}", other) from None
        except Exception as failed:  # noqa: BLE001  (what a machine raises is compared, like all that it does)
            raised = f"{type(failed).__name__}: {failed}"
        if raised != error:
            raise Other(self._said(given), error or expected, raised or found)
        if not error and not same(expected, list(found)):
            raise Other(self._said(given), *_first_other(expected, list(found)))
        self._compare_deadlines(given, moves)
        return len(expected)

    def _said(self, given: Any) -> str:
        return f"at {', '.join(map(str, self._clocks))} ms: {given!r}"

    def _compare_deadlines(self, given: Any, moves: list[int | None]) -> None:
        deadlines = [
            move if move is None or then is None else then + move
            for then, move in zip(self._deadlines, moves, strict=True)
        ]
        found = [getattr(self.machine, name) for name in self._after]
        if found != deadlines:
            names = ", ".join(self._after)
            raise Other(self._said(given), f"{names}: {deadlines}", f"{names}: {found}")
        self._deadlines = deadlines

    def show(self, decoder: Decoder, code: Any) -> None:
        expected = decoder.value(code)
        found = self.face.shows(self.machine, tuple(self._clocks), self._called)
        if not same(expected, found):
            raise Other("what it shows after this call", expected, found)


def _first_other(expected: list[Any], found: list[Any]) -> tuple[str, str]:
    """Only from where they differ, for lists of effects may be long."""
    at = 0
    while at < min(len(expected), len(found)) and same(expected[at], found[at]):
        at += 1
    more = f" (effect {at + 1}; {len(expected)} and {len(found)} in all)"
    return (
        (repr(expected[at]) if at < len(expected) else "no further effect") + more,
        repr(found[at]) if at < len(found) else "no further effect",
    )


class Log:
    """One trial."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.random = GivenRandom()
        self.decoder = Decoder(names, lambda: self.random)
        self.machines: dict[int, Replayed | None] = {}
        """None: it has differed."""
        self.calls = self.effects = 0

    def make(self, line: list[Any]) -> None:
        _, number, kind, face, arguments, draws, error = line
        replayed = Replayed(number, kind, FACES[face], self.names)
        self.machines[number] = None
        given = {name: self.decoder_for(replayed).value(code) for name, code in arguments.items()}
        said = f"made of {given!r}"
        replayed.random.expect(draws)
        raised = None
        try:
            replayed.machine = self.names.home(kind).made(given)
            replayed.random.check_used()
        except OtherDraw as other:
            raise Other(said, f"the draws {draws}", other) from None
        except NameMissing as missing:
            raise Other(said, kind, missing) from None
        except Exception as failed:  # noqa: BLE001  (as in a step)
            raised = f"{type(failed).__name__}: {failed}"
        if raised != error:
            raise Other(said, error or "no exception", raised or "no exception")
        if error is None:
            self.machines[number] = replayed

    def decoder_for(self, replayed: Replayed) -> Decoder:
        """Chance in the arguments of a machine is that machine's own."""
        self.random = replayed.random
        return self.decoder

    def take(self, line: list[Any]) -> None:
        if self.decoder.takes(line):
            return
        if line[0] == MADE:
            self.make(line)
            return
        replayed = self.machines[line[1]]
        if replayed is None:
            return
        if line[0] == SHOWN:
            replayed.show(self.decoder, line[2])
            return
        assert line[0] == STEP, line
        self.effects += replayed.step(self.decoder, line)
        self.calls += 1

    def described(self, number: int, kind: str) -> tuple[str, int]:
        replayed = self.machines.get(number)
        return (f"machine {number} ({kind})", 0) if replayed is None else (replayed.name, replayed.calls)


def replay_trial(path: Path, names: Names) -> Compared:
    first: Difference | None = None
    differing = 0
    with gzip.open(path, "rt", encoding="utf-8") as file:
        head = json.loads(next(file))
        if head["format"] != FORMAT:
            raise NameMissing(f"{path} has format {head['format']}, this version reads {FORMAT}")
        log = Log(names)
        for text in file:
            line = json.loads(text)
            try:
                log.take(line)
            except (Other, NameMissing) as other:
                if isinstance(other, NameMissing):
                    other = Other("a value of the log", "a value of the code at hand", other)
                is_machine = line[0] in (MADE, STEP, SHOWN)
                name, call = log.described(line[1], line[2]) if is_machine else ("all machines", 0)
                first = first or Difference(
                    head["strategy"], head["seed"], name, call, other.given, other.expected, other.found
                )
                differing += 1
                if not is_machine:
                    break  # a class or a value that nobody can use: nothing after it can be read
                log.machines[line[1]] = None
    return Compared(1, len(log.machines), log.calls, log.effects, differing, first)


def replay_trials(folder: Path, names: Names, jobs: int = 1) -> dict[str, Compared]:
    """By strategy."""
    paths = sorted((folder / "machines").glob("*.jsonl.gz"))
    found: dict[str, Compared] = {}
    for path, compared in zip(paths, in_processes(replay_trial, [(path, names) for path in paths], jobs), strict=True):
        strategy = path.name.rpartition("-")[0]
        found[strategy] = found.get(strategy, Compared()).plus(compared)
    return found


def total(compared: Iterable[Compared]) -> Compared:
    whole = Compared()
    for one in compared:
        whole = whole.plus(one)
    return whole
