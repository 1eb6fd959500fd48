"""Values as lines of JSON, and back: exact, and without a table of what there is.

Numbers, texts, true, false and null stand for themselves. Everything else is an array whose first element says what it
is: one of the tags below, or the number of a class, followed by the values of its fields. Classes get their numbers in
the order of their first use, by a line of their own. So do values that may come again, such as messages, which a
machine sends once and several machines receive.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from enum import Enum
from random import Random
from typing import Any

import msgspec

from tests.behaviour.names import Home, Names

TUPLE, LIST, ENUM, BYTES, MAPPING, SET, SHARED, RANDOM = range(8)
CLASS0 = 10
"""The first number of a class."""
SHARED_CHARS = 24
"""Shorter texts cost less than a reference to them."""
SCALARS = (int, str, bool, float, bytes)
CLASS_LINE, SHARED_LINE = "c", "v"

dumped = json.JSONEncoder(separators=(",", ":")).encode


class Unknown(TypeError):
    """A value of a kind that the log has no words for."""


def fields_of(kind: type) -> tuple[str, ...] | None:
    """The names of its fields in order, if instances are nothing but their fields."""
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple(kind._fields)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    return None


def name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class Encoder:
    """Of one log. `write` takes each line; lines of classes and of shared values come before the first use."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._classes: dict[type, tuple[int, tuple[str, ...]]] = {}
        self._shared: dict[str, list[int]] = {}
        self._kept: dict[int, tuple[Any, Any]] = {}
        """By identity: the value itself, which keeps the identity in use, and its code."""
        self._randoms = 0

    def line(self, *parts: Any) -> None:
        self._write(dumped(parts))

    def code(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (int, str, bool, float):
            return value
        if kind is tuple:
            return [TUPLE, *map(self.code, value)]
        kept = self._kept.get(id(value))
        if kept is not None and kept[0] is value:
            return kept[1]
        return self._composed(kind, value)

    def _composed(self, kind: type, value: Any) -> Any:
        if issubclass(kind, Enum):
            return [ENUM, self._class(kind)[0], value.value]
        if kind in (bytes, bytearray, memoryview):
            return [BYTES, bytes(value).hex()]
        if kind is list:
            return [LIST, *map(self.code, value)]
        if isinstance(value, Mapping):
            return [MAPPING, *([self.code(key), self.code(item)] for key, item in value.items())]
        if isinstance(value, (set, frozenset)):
            return [SET, *sorted(map(self.code, value), key=dumped)]
        if isinstance(value, Random):
            self._randoms += 1
            return [RANDOM]
        return self._object(kind, value)

    def _object(self, kind: type, value: Any) -> Any:
        number, fields = self._class(kind)
        randoms = self._randoms
        code: Any = [number, *(self.code(getattr(value, name)) for name in fields)]
        try:
            hash(value)
        except TypeError:  # it holds something that changes, such as a mapping
            return code
        if self._randoms != randoms:
            return code  # a source of chance belongs to one machine
        text = dumped(code)
        if len(text) >= SHARED_CHARS:
            reference = self._shared.get(text)
            if reference is None:
                reference = self._shared[text] = [SHARED, len(self._shared)]
                self._write(f'["{SHARED_LINE}",{reference[1]},{text}]')
            code = reference
        self._kept[id(value)] = value, code
        return code

    def _class(self, kind: type) -> tuple[int, tuple[str, ...]]:
        known = self._classes.get(kind)
        if known is None:
            fields = () if issubclass(kind, Enum) else fields_of(kind)
            if fields is None:
                raise Unknown(f"{name_of(kind)} is no value: it has no fixed fields")
            known = self._classes[kind] = CLASS0 + len(self._classes), fields
            self.line(CLASS_LINE, known[0], name_of(kind), fields)
        return known


class Decoder:
    """Of one log. Makes values of the code at hand, under the names that it has now."""

    def __init__(self, names: Names, random: Callable[[], Random]) -> None:
        self._names = names
        self._random = random
        self._classes: dict[int, tuple[Home, tuple[str, ...]]] = {}
        self._shared: dict[int, Any] = {}

    def takes(self, line: list[Any]) -> bool:
        """A line that only prepares the others."""
        if line[0] == CLASS_LINE:
            _, number, name, fields = line
            self._classes[number] = self._names.home(name, fields), tuple(fields)
            return True
        if line[0] == SHARED_LINE:
            self._shared[line[1]] = self.value(line[2])
            return True
        return False

    def value(self, code: Any) -> Any:
        if type(code) is str:
            return self._names.text(code)
        if type(code) is not list:
            return code
        tag, *rest = code
        match tag:
            case 0:  # TUPLE
                return tuple(map(self.value, rest))
            case 1:  # LIST
                return list(map(self.value, rest))
            case 2:  # ENUM
                return self._classes[rest[0]][0].member(rest[1])
            case 3:  # BYTES
                return bytes.fromhex(rest[0])
            case 4:  # MAPPING
                return {self.value(key): self.value(item) for key, item in rest}
            case 5:  # SET
                return frozenset(map(self.value, rest))
            case 6:  # SHARED
                return self._shared[rest[0]]
            case 7:  # RANDOM
                return self._random()
        home, fields = self._classes[tag]
        return home.made(dict(zip(fields, map(self.value, rest), strict=True)))


def same(expected: Any, found: Any) -> bool:
    """Of the same class and with the same content, all the way down: True is not 1, and a Heartbeat is no Ack."""
    if expected is found:
        return True
    kind = type(expected)
    if kind is not type(found):
        return False
    if kind in SCALARS:
        return bool(expected == found)
    if issubclass(kind, (tuple, list)):
        return len(expected) == len(found) and all(map(same, expected, found))
    if issubclass(kind, Mapping):
        return len(expected) == len(found) and all(
            key in found and same(item, found[key]) for key, item in expected.items()
        )
    fields = fields_of(kind)
    if fields is not None:
        return all(same(getattr(expected, name), getattr(found, name)) for name in fields)
    return bool(expected == found)
