"""Keys of calls and bytes of results: equal where the calls are, different where they are not, and never pickle."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primacy.cache.arguments import function_name, key_of, keys_of
from primacy.cache.serializers import NAMES, Unreadable, serializer
from primacy.errors import UsageError


def price(currency: str, days: int = 1, *more: int, exact: bool = False, **rest: Any) -> float:
    return 1.0


def key(*args: Any, **kwargs: Any) -> bytes:
    return keys_of(price, "price")(args, kwargs)


def test_equal_calls_have_one_key() -> None:
    assert key("EUR") == key(currency="EUR") == key("EUR", 1) == key("EUR", days=1, exact=False)
    assert key("EUR", b=1, a=2) == key("EUR", a=2, b=1)


def test_a_plain_call_can_be_read() -> None:
    assert key_of("price", ["EUR", 3]) == b'price("EUR",3)'


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (1, "1"), (None, "null"), (b"a", "a"), (0.0, False), ([1], [[1]]), ("a", ["a"]), ("", None)],
)
def test_different_arguments_have_different_keys(one: Any, other: Any) -> None:
    assert key_of("f", [one]) != key_of("f", [other])


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 62), 1 << 62) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def _typed(value: Any) -> Any:
    """Equality that tells True from 1."""
    if isinstance(value, list):
        return ["list", *map(_typed, value)]
    if isinstance(value, dict):
        return ["dict", sorted((name, _typed(one)) for name, one in value.items())]
    return (type(value).__name__, value)


@given(plain, plain)
def test_keys_are_equal_exactly_where_arguments_are(one: Any, other: Any) -> None:
    assert (key_of("f", [one]) == key_of("f", [other])) == (repr(_typed(one)) == repr(_typed(other)))


def test_long_arguments_and_odd_types_end_in_a_digest() -> None:
    assert key_of("f", ["x" * 1_000]).startswith(b"f#")
    assert key_of("f", [datetime.date(2026, 1, 2)]) == key_of("f", [datetime.date(2026, 1, 2)])
    assert key_of("f", [{3, 1, 2}]) == key_of("f", [{2, 3, 1}])


def test_sets_have_one_key_in_every_process() -> None:
    program = "from primacy.cache.arguments import key_of; print(key_of('f', [{'a', 'b', 'c', 'd'}]).decode())"
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(start)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for start in (1, 2)
    }
    assert len(told) == 1


def test_what_makes_no_key_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"cached\(key=FUNCTION\)"):
        key_of("f", [object()])
    with pytest.raises(UsageError, match=r"cached\(key=FUNCTION\)"):
        key_of("f", [1 << 80])
    with pytest.raises(TypeError):
        key()
    with pytest.raises(UsageError, match=r"cached\(name=...\)"):
        function_name(lambda: 1)
    with pytest.raises(UsageError, match="printable"):
        keys_of(price, "")
    assert function_name(price) == f"{__name__}.price"


@dataclasses.dataclass
class Rate:
    currency: str
    rate: float


@pytest.mark.parametrize("name", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("returns", "result"),
    [
        (Any, {"a": [1, None, "b"]}),
        (tuple[int, str], (1, "a")),
        (Rate, Rate("EUR", 1.5)),
        (datetime.datetime, datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)),
        (bytes, b"\x00\xff"),
        (set[int], {1, 2}),
        (None, None),
    ],
)
def test_a_result_comes_back_as_its_type(name: str, returns: Any, result: Any) -> None:
    chosen = serializer(name, returns)
    back = chosen.decode(chosen.encode(result))
    assert back == result
    assert type(back) is type(result)


def test_text_and_bytes_are_stored_as_they_are() -> None:
    assert serializer("text").encode("é") == "é".encode()
    assert serializer("text").decode("é".encode()) == "é"
    assert serializer("bytes").decode(serializer("bytes").encode(bytearray(b"a"))) == b"a"


def test_what_cannot_be_stored_or_read_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="serializer='bytes'"):
        serializer("json").encode(object())
    with pytest.raises(UsageError, match="return text"):
        serializer("text").encode(b"a")
    with pytest.raises(UsageError, match="json, msgpack, text, bytes"):
        serializer("pickle")
    with pytest.raises(UsageError, match="returns=TYPE"):
        serializer("json", object | Rate | tuple[Rate])
    for name in NAMES[:3]:
        with pytest.raises(Unreadable):
            serializer(name, Rate).decode(b"\xff\xfe{")


@given(st.binary(max_size=40))
def test_no_bytes_from_the_wire_raise_anything_else(data: bytes) -> None:
    for name in NAMES:
        with contextlib.suppress(Unreadable):
            serializer(name, Rate).decode(data)
