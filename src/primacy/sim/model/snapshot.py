"""Copies of machines, and values to compare them by: for a search of states instead of trial.

Any machine will do whose fields are plain values, dictionaries, sets, lists and objects made of these.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from random import Random
from typing import Any, TypeVar

PARTS = frozenset(
    {"leading", "releasing", "following", "campaigning", "remembering", "meeting", "telling", "changing", "admitting"}
)
"""Parts of a machine that keep nothing of their own: all that they know is its `state`."""
FIXED = PARTS | {"seat", "timing", "options"}
"""Fields of a machine that never change, wherever they stand."""
UNSEEN = FIXED | {"heard_at_ms", "elsewhere", "noted", "earlier", "steady", "calm", "_outage"}
"""Fields of a machine that decide nothing: what only people look at (when others were heard, and under which
list, which complaints were recorded, since when a store fails), the ballot before the durable one, which is only asked
for in the very step in which a save is refused, and what says whether a message may take the short way past a step.
States that differ in nothing else are one state."""
SHARED = (tuple, str, bytes, int, float, Enum, Random, frozenset, type(None))
"""What a copy may share with its original, for it is never changed in place."""

Thing = TypeVar("Thing")


def fork(thing: Thing) -> Thing:
    """A copy that can be stepped without changing the original."""
    copy: Thing = _fork(thing, {})
    return copy


def frozen(thing: object) -> Any:
    """Everything that a machine's future depends on, as one value to compare and to hash."""
    return _frozen(thing, [])


def _fork(value: Any, known: dict[int, Any]) -> Any:
    if isinstance(value, SHARED):
        return value
    kind: Any = type(value)
    if kind is dict:
        return {key: _fork(part, known) for key, part in value.items()}
    if kind is set:
        return set(value)
    if kind is list:
        return [_fork(part, known) for part in value]
    if kind is deque:
        return deque(value, value.maxlen)
    if id(value) in known:
        return known[id(value)]
    copy = known[id(value)] = kind.__new__(kind)
    for name, part in _fields(value):
        object.__setattr__(copy, name, _fork(part, known))
    return copy


def _frozen(value: Any, above: list[int]) -> Any:
    if isinstance(value, SHARED):
        return value
    kind = type(value)
    if kind is dict:
        return tuple((key, _frozen(value[key], above)) for key in sorted(value))
    if kind is set:
        return tuple(sorted(value))
    if kind is list or kind is deque:
        return tuple(_frozen(part, above) for part in value)
    if id(value) in above:
        return None  # a part that names its whole
    above.append(id(value))
    parts = tuple(_frozen(part, above) for name, part in _fields(value) if name not in UNSEEN)
    above.pop()
    return (kind.__name__, parts)


def _fields(value: Any) -> list[tuple[str, Any]]:
    """All attributes, of its slots and of its dictionary, in a steady order."""
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    found = [(name, getattr(value, name)) for name in slots if name != "__dict__" and hasattr(value, name)]
    return found + list(getattr(value, "__dict__", {}).items())
