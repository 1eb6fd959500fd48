"""How results of cached functions become bytes, by name. Never pickle: what comes from the wire runs no code.

A serializer is chosen by name where a function is decorated, and is part of what the entry means: two programs that
share an entry name the same one. `json` and `msgpack` read a result back as the type that the function is annotated
with, so that a tuple stays a tuple and a dataclass a dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from primacy.errors import UsageError

NAMES = ("json", "msgpack", "text", "bytes")


class Unreadable(Exception):
    """The bytes of an entry are no result of this function: another program wrote it, or its type has changed."""


class Serializer(NamedTuple):
    """Both ways, for one type of result."""

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def serializer(name: str, returns: Any = Any) -> Serializer:
    """The serializer of this name for results of this type."""
    match name:
        case "json":
            return _typed(name, msgspec.json.encode, lambda: msgspec.json.Decoder(returns).decode, returns)
        case "msgpack":
            return _typed(name, msgspec.msgpack.encode, lambda: msgspec.msgpack.Decoder(returns).decode, returns)
        case "text":
            return Serializer(name, _only(str, name, str.encode), _text)
        case "bytes":
            return Serializer(name, _only((bytes, bytearray, memoryview), name, bytes), bytes)
    raise UsageError(f"serializer = {name!r}: it is one of {', '.join(NAMES)}")


def _typed(
    name: str, encode: Callable[[Any], bytes], decoder: Callable[[], Callable[[bytes], Any]], returns: Any
) -> Serializer:
    try:
        decode = decoder()
    except (TypeError, NameError) as error:
        raise UsageError(
            f"a result of type {returns!r} cannot be read back by {name}: {error}. Say returns=TYPE with a type of "
            "plain values, or serializer='bytes' and encode it yourself"
        ) from None

    def encoded(result: Any) -> bytes:
        try:
            return encode(result)
        except (TypeError, OverflowError, ValueError) as error:
            raise UsageError(
                f"a result of type {type(result).__name__} cannot be stored by {name}: {error}. Return plain values, "
                "or say serializer='bytes' and encode it yourself"
            ) from None

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unreadable(str(error)) from None

    return Serializer(name, encoded, decoded)


def _only(types: type | tuple[type, ...], name: str, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def encoded(result: Any) -> bytes:
        if not isinstance(result, types):
            raise UsageError(
                f"a result of type {type(result).__name__} cannot be stored by {name}: return {name}, or say "
                "serializer='json'"
            )
        return encode(result)

    return encoded


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(str(error)) from None
