"""Values of a class, made from the types of its fields: one with its defaults, one with every field filled.

What is filled in is the same in every run, and no word that people may want to rename.
"""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Annotated, Any

from tests.behaviour.values import fields_of


def samples(kind: Any, **fixed: Any) -> list[Any]:
    """`fixed`: fields in which only some values make sense."""
    hints = typing.get_type_hints(kind)
    fields = fields_of(kind) or ()
    needed = {name: _filled(hints[name], place) for place, name in enumerate(fields) if not _has_default(kind, name)}
    every = {name: _filled(hints[name], place) for place, name in enumerate(fields)}
    given = {name: value for name, value in fixed.items() if name in fields}
    least = kind(**{**needed, **{name: value for name, value in given.items() if name in needed}})
    most = kind(**{**every, **given})
    return [least] if least == most else [least, most]


def _has_default(kind: Any, name: str) -> bool:
    if issubclass(kind, tuple):
        return name in kind._field_defaults
    defaults = kind.__struct_defaults__
    return name in kind.__struct_fields__[len(kind.__struct_fields__) - len(defaults) :]


def _filled(hint: Any, place: int) -> Any:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _filled(parts[0], place)
    if origin in (typing.Union, types.UnionType):
        return _filled(next(part for part in parts if part is not type(None)), place)
    if origin is tuple:
        inner = parts[:1] * 2 if len(parts) == 2 and parts[1] is Ellipsis else parts
        return tuple(_filled(part, place + n) for n, part in enumerate(inner))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)[place % len(hint)]
    plain = {bool: True, int: 1_000 + 77 * place, str: f"n{place + 1}", bytes: b"k%d" % place}
    if hint in plain:
        return plain[hint]
    return samples(hint)[-1]
