"""A process that calls one plain function of a user, over and over: `call:module:function`, not async.

Jobs come by standard input, each a key; answers go to descriptor 3. The guard above it arms its timer before it hands
a job over, and ends this process with all that it started when the call must be over (C4). What the function prints
goes to the peer's standard error.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from primacy.cache.model import Failure, Fetched

JOBS, ANSWERS = 0, 3
LENGTH = struct.Struct("!I")
REASON_CHARS_MAX = 300
MAIN = "__primacy_source__"
"""The name under which a script is loaded whose function was handed over: its `if __name__ == "__main__"` is false."""


class Answer(msgspec.Struct, array_like=True):
    """What a worker says: `ready` or `async` once it has the function, `broken` if it cannot, then one per job."""

    word: str
    value: bytes = b""
    ttl_ms: int | None = None
    reason: str = ""
    missing: bool = False


def result_of(found: object, value_bytes_max: int) -> Fetched | Failure:
    """What a function returned, as a result: bytes, text, `Fetched` or `Failure`; None: there is no such entry."""
    if isinstance(found, Failure):
        return found
    ttl_ms = found.ttl_ms if isinstance(found, Fetched) else None
    if isinstance(found, Fetched):
        found = found.value
    if found is None:
        return Failure("the source has no such entry", missing=True)
    if isinstance(found, str):
        found = found.encode("utf-8", "surrogateescape")
    if not isinstance(found, bytes | bytearray | memoryview):
        return Failure(f"the source returned {type(found).__name__}; bytes, text, Fetched, Failure or None are right")
    if ttl_ms is not None and (not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or ttl_ms < 0):
        return Failure(f"the source returned a ttl_ms of {ttl_ms!r}; a whole number of milliseconds is right")
    value = bytes(found)
    if len(value) > value_bytes_max:
        return too_large(len(value), value_bytes_max)
    return Fetched(value, ttl_ms)


def too_large(size: int, value_bytes_max: int) -> Failure:
    return Failure(f"the source gave {size:,} bytes or more; cache.value_bytes_max is {value_bytes_max:,}")


def reason_of(error: BaseException) -> str:
    """An exception as one line: its kind, its text, and where in the user's code it was raised."""
    text = one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)} line {frames[-1].lineno})" if frames else ""
    return text[: REASON_CHARS_MAX - len(where)] + where


def one_line(text: str) -> str:
    """Bounded, and without what would disturb a log or a screen."""
    cut = text[: 2 * REASON_CHARS_MAX]
    return " ".join("".join(char if char.isprintable() else " " for char in cut).split())[:REASON_CHARS_MAX]


def load(target: str) -> Callable[[bytes], Any]:
    """The function of `module:name`, or of a script as `/path/to/script.py:name`."""
    home, _, name = target.rpartition(":")
    if home.endswith(".py"):
        spec = importlib.util.spec_from_file_location(MAIN, home)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[MAIN] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(home)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{name} of {home} cannot be called")
    called: Callable[[bytes], Any] = found
    return called


def is_async(function: Callable[..., Any]) -> bool:
    """Calling it gives a coroutine."""
    call = getattr(function, "__call__", None)  # noqa: B004  (an object whose call is async counts)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def say(answer: Answer) -> None:
    data = msgspec.msgpack.encode(answer)
    left = memoryview(LENGTH.pack(len(data)) + data)
    while left:
        left = left[os.write(ANSWERS, left) :]


def read_exactly(count: int) -> bytes:
    parts = []
    while count:
        part = os.read(JOBS, count)
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def answer_of(function: Callable[[bytes], Any], key: bytes, value_bytes_max: int) -> Answer:
    """One call. Whatever it raises is its failure; only the process's end ends this process."""
    try:
        found = result_of(function(key), value_bytes_max)
    except BaseException as error:  # noqa: BLE001  (a user's `sys.exit` must not end the worker, either)
        found = Failure(reason_of(error))
    if isinstance(found, Failure):
        return Answer("failed", reason=found.reason[:REASON_CHARS_MAX], missing=found.missing)
    return Answer("value", found.value, found.ttl_ms)


def main(target: str, value_bytes_max: int) -> None:
    os.set_inheritable(ANSWERS, False)
    os.set_inheritable(JOBS, False)
    sys.stdin = open(os.devnull)  # noqa: SIM115  (a function that reads it gets nothing)
    try:
        function = load(target)
    except BaseException as error:  # noqa: BLE001
        say(Answer("broken", reason=reason_of(error)))
        return
    say(Answer("async" if is_async(function) else "ready"))
    while head := read_exactly(LENGTH.size):
        length = LENGTH.unpack(head)[0]
        key = read_exactly(length)
        if len(key) < length:
            return
        say(answer_of(function, key, value_bytes_max))
        sys.stdout.flush()
