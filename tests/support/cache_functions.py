"""Functions that a cache calls in the tests: good ones, and every kind of bad one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time

from primacy.cache.model import Failure, Fetched

ANSWER = 42


def echo(key: bytes) -> bytes:
    return b"<" + key + b">"


PROCESS = os.urandom(8)
"""Differs from process to process. Their numbers do not: each worker has a namespace of its own."""


def process(key: bytes) -> bytes:
    return PROCESS


def kinds(key: bytes) -> object:
    """What a function may return, and what not."""
    found: dict[bytes, object] = {
        b"bytes": b"\0\xff",
        b"text": "grün",
        b"array": bytearray(b"x"),
        b"none": None,
        b"fetched": Fetched(b"x", 500),
        b"failure": Failure("not today"),
        b"missing": Failure("never was", missing=True),
        b"number": 7,
        b"wrong ttl": Fetched(b"x", "soon"),  # type: ignore[arg-type]
        b"large": bytes(3_000_000),
        b"just": bytes(1_000_000),
    }
    return found[key]


def bad(key: bytes) -> bytes:
    match key:
        case b"raises":
            raise ValueError("a word\nin two lines")
        case b"exits":
            sys.exit(3)
        case b"dies":
            os._exit(9)
        case b"prints":
            print("on the standard output")
            return b"said"
        case b"reads":
            return sys.stdin.read().encode() + b"nothing"
        case b"writes":
            os.write(3, b"rubbish in the wrong place")
            return b"x"
        case b"sleeps":
            time.sleep(20)
        case b"deaf":
            import signal

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(20)
    return b"well"


def stamps(key: bytes) -> bytes:
    """Lives on in every way that a process can: a child, and a grandchild that left by double fork."""
    subprocess.run(
        [sys.executable, "-I", "-S", "tests/support/stamp.py", key.decode(), "escape", "ignore-term"], check=False
    )
    return b""


async def aecho(key: bytes) -> bytes:
    await asyncio.sleep(0.01)
    return b"<" + key + b">"


async def abad(key: bytes) -> bytes:
    match key:
        case b"raises":
            raise ValueError("no")
        case b"sleeps":
            await asyncio.sleep(20)
        case b"stubborn":
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(20)
        case b"slow to end":
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                await asyncio.sleep(0.05)
                raise
        case b"blocks":
            time.sleep(4)
    return b"well"


class Shop:
    """A function need not stand at the top of a module."""

    @staticmethod
    def fetch(key: bytes) -> bytes:
        return b"sold " + key
