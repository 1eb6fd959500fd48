"""The key of a call: the name of its function and its arguments, equal in every process that makes the same call.

Arguments are bound to the function's parameters first, defaults included, so that `f(1)`, `f(a=1)` and `f(1, b=2)` with
that default are one entry. Keys of plain arguments can be read (`prices("EUR",3)`); others, and long ones, end in a
digest. Lists and tuples are one, as are sets in any order; 1, 1.0, True and "1" are four.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec

from primacy.errors import UsageError

READABLE_CHARS_MAX = 200
"""Longer arguments are shown as a digest: keys are printed, and go through the wire with every request."""
DIGEST_BYTES = 16
NAME_CHARS_MAX = 200

_packed = msgspec.msgpack.Encoder(order="deterministic").encode
_text = msgspec.json.Encoder(order="deterministic").encode


def function_name(function: Callable[..., Any]) -> str:
    """What entries of this function begin with, unless it is given a name."""
    module, name = getattr(function, "__module__", "") or "", getattr(function, "__qualname__", "")
    if not name or "<lambda>" in name or "<locals>" in name:
        raise UsageError(
            f"{name or function!r} has no name that other processes know: say cached(name=...), the same in all of them"
        )
    if module == "__main__":
        raise UsageError(
            f"{name} is defined in a program, not in a module: other processes know it by another name. "
            "Say cached(name=...), the same in all of them"
        )
    return f"{module}.{name}"


def keys_of(function: Callable[..., Any], name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], bytes]:
    """The function that makes the keys of calls."""
    if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise UsageError(f"cached(name={name!r}): it has 1 to {NAME_CHARS_MAX} printable characters")
    signature = inspect.signature(function)

    def made(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        bound = signature.bind(*args, **kwargs)  # raises what the function itself would raise
        bound.apply_defaults()
        values = [
            sorted(value.items()) if parameter.kind is parameter.VAR_KEYWORD else value
            for parameter, value in zip(
                (signature.parameters[name] for name in bound.arguments), bound.arguments.values(), strict=True
            )
        ]
        return key_of(name, values)

    return made


def key_of(name: str, values: list[Any]) -> bytes:
    """The key of these arguments in the order of their parameters."""
    if all(_is_plain(value) for value in values):
        text = _text(values)
        if len(text) <= READABLE_CHARS_MAX:
            return name.encode() + b"(" + text[1:-1] + b")"
    try:
        packed = _packed(values)
    except (TypeError, OverflowError, ValueError) as error:
        raise UsageError(
            f"{name}: its arguments make no key: {error}. Call it with plain values, or say cached(key=FUNCTION) with "
            "a function of the same arguments that returns text"
        ) from None
    return (
        name.encode() + b"#" + blake2b(packed, digest_size=DIGEST_BYTES, person=b"primacy cached").hexdigest().encode()
    )


def _is_plain(value: Any) -> bool:
    """Whether JSON tells this value from every other: no bytes, no NaN, no types that look like another."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-(1 << 53) < value < 1 << 53)
    if kind is float:
        return math.isfinite(value)
    if kind is list or kind is tuple:
        return all(_is_plain(one) for one in value)
    if kind is dict:
        return all(type(name) is str and _is_plain(one) for name, one in value.items())
    return False
