"""Writes down every machine that is made, and every step that it makes, while a simulator runs as it is.

The classes of the machines are changed for that time and for nothing else: their construction and their `step` tell the
recorder. So nothing of the simulator has to know of it, and whatever makes a machine is recorded.

Lines of a log, beside those of `values.py`. Times are differences to the time before, of the same machine:

    ["m", machine, class, face, {argument: value}, draws, error]     it is made
    ["s", machine, times, input, draws, effects, after, error]       a step; after: deadlines, as differences
    ["w", machine, shown]                                            what it shows people after that step
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from tests.behaviour.draws import Draw, NotedRandom
from tests.behaviour.machines import FACES, MACHINES, SHOWN_EVERY, Face
from tests.behaviour.values import Encoder, name_of

MADE, STEP, SHOWN = "m", "s", "w"


class Noted:
    """One machine in a log."""

    def __init__(self, machine: Any, number: int, face: Face) -> None:
        self.machine = machine
        self.number = number
        self.face = face
        self.draws: list[Draw] = []
        self.clocks = (0,) * face.clocks
        self.after: tuple[int | None, ...] = (None,) * len(face.after)
        self.calls = 0

    def note(self, draw: Draw) -> None:
        self.draws.append(draw)

    def taken_draws(self) -> list[Draw]:
        draws, self.draws = self.draws, []
        return draws


class Recorder:
    """One log."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.encoder = Encoder(write)
        self.machines: dict[int, Noted] = {}
        """By identity; the machines are kept, so that no identity is used twice."""
        self.calls = 0
        self.effects = 0

    def make(self, init: Callable[..., None], machine: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kind = type(machine)
        noted = Noted(machine, len(self.machines), FACES[MACHINES[kind]])
        bound = inspect.signature(init).bind(machine, *args, **kwargs)
        arguments = list(bound.arguments.items())[1:]
        given = {name: self._with_notes(noted, value) for name, value in arguments}
        codes = {name: self.encoder.code(value) for name, value in arguments}
        error = _raised(lambda: init(machine, **given))
        self.machines[id(machine)] = noted
        self.encoder.line(MADE, noted.number, name_of(kind), MACHINES[kind], codes, noted.taken_draws(), _text(error))
        if error is not None:
            raise error

    def _with_notes(self, noted: Noted, value: Any) -> Any:
        """The same value, with every source of chance in it noted."""
        if isinstance(value, Random):
            return NotedRandom(value, noted.note)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._with_notes(noted, part) for part in value))
        return value

    def step(self, step: Callable[..., list[Any]], machine: Any, args: tuple[Any, ...]) -> list[Any]:
        noted = self.machines[id(machine)]
        face, encoder = noted.face, self.encoder
        clocks, given = args[: face.clocks], args[face.clocks :]
        inputs = [encoder.code(one) for one in given]  # before the step: it may hold what changes
        effects: list[Any] = []
        error = _raised(lambda: effects.extend(step(machine, *args)))
        after = tuple(getattr(machine, name) for name in face.after)
        encoder.line(
            STEP,
            noted.number,
            [now - then for now, then in zip(clocks, noted.clocks, strict=True)],
            *inputs,
            noted.taken_draws(),
            [encoder.code(effect) for effect in effects],
            [moved(then, now) for then, now in zip(noted.after, after, strict=True)],
            _text(error),
        )
        noted.clocks, noted.after = clocks, after
        noted.calls += 1
        self.calls += 1
        self.effects += len(effects)
        if noted.calls % SHOWN_EVERY == 0 and error is None:
            encoder.line(SHOWN, noted.number, encoder.code(face.shows(machine, clocks, str)))
        if error is not None:
            raise error
        return effects


def moved(then: int | None, now: int | None) -> int | None:
    """As a difference, if there is one; a first value as it is."""
    return now if now is None or then is None else now - then


def _raised(action: Callable[[], None]) -> Exception | None:
    try:
        action()
    except Exception as error:  # noqa: BLE001  (it is recorded, and raised again by the caller)
        return error
    return None


def _text(error: Exception | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"


@contextmanager
def recorded(recorder: Recorder) -> Iterator[None]:
    """Machines that are made and called meanwhile are written down."""
    changed: list[tuple[type, str, Any]] = []

    def change(kind: type, name: str, to: Any) -> None:
        changed.append((kind, name, kind.__dict__.get(name)))
        setattr(kind, name, to)

    try:
        for kind in MACHINES:
            init, step = kind.__init__, kind.step  # type: ignore[misc, attr-defined]
            change(kind, "__init__", _init(recorder, init))
            change(kind, "step", _step(recorder, step))
        yield
    finally:
        for kind, name, before in reversed(changed):
            if before is None:
                delattr(kind, name)  # it was inherited
            else:
                setattr(kind, name, before)


def _init(recorder: Recorder, init: Any) -> Any:
    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.make(init, self, args, kwargs)

    return made


def _step(recorder: Recorder, step: Any) -> Any:
    @functools.wraps(step)
    def steps(self: Any, *args: Any) -> list[Any]:
        return recorder.step(step, self, args)

    return steps
