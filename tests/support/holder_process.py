"""A process that holds an election of the library, for tests that stop, kill and fork it.

`python -m tests.support.holder_process MODE STORE [RESOURCE]`. It says in lines of JSON what it does, with the moment
on CLOCK_BOOTTIME in ms, and goes on until it is ended. With each beginning and each step it says until when it may go
on without a renewal, and when its hold is over by then; and with each beginning, in which state the process is whose
number stands in HOLDER_WATCHES: so that who judges it needs no clock of its own.

What it claims is never longer than it is, and may be shorter on a machine that is late: who judges whether it ended
in time needs `hold_end` instead, which is the library's own number. Each renewal says it too, before it counts: a
holder that is stopped between a renewal and its next step would have held for longer than it said.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

import primacy
from primacy import blocking
from primacy.election.model import Leadership
from primacy.fence import file, sql
from primacy.library.hold import Hold
from primacy.settings.timing import PROFILES

STEP_S = 0.01
KILL_MASK = 1 << signal.SIGKILL - 1
FLAGS_AT, PF_EXITING = 5, 4
"""Of the kernel's flags of a process: where they stand after its state, and the one of a process that dies."""
REST_S = 0.1
"""Between two writes, after it said that it wrote. A test stops a writer in here, and not in the middle of a write,
where it would keep a lock."""


def now_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def say(word: str, **more: Any) -> None:
    line = json.dumps({"is": word, "at": now_ms(), "pid": os.getpid(), **more})
    os.write(1, f"{line}\n".encode())


def begins(leadership: primacy.Leadership, profile: str = "lab") -> None:
    """In the body, so that whoever is alive now is alive beside it."""
    watched = os.environ.get("HOLDER_WATCHES", "")
    beside = state_of(watched) if watched else ""
    say("leads", version=primacy.__version__, beside=beside, **claim(leadership, profile))


def claim(leadership: primacy.Leadership, profile: str = "lab") -> dict[str, int]:
    """The clock is read first: a claim is never said to be longer than it is. One that is over claims nothing."""
    timing, now, left = PROFILES[profile], now_ms(), leadership.left_ms()
    until = now + left if left else 0
    return {
        "token": leadership.token,
        "until": until,
        "hold_until": until - timing.term_at_ms + timing.hold_ms if until else 0,
        "hold_end": leadership._hold.valid_until_ms,
    }


def say_renewals() -> None:
    """In the renewer's thread."""
    extend = Hold.extend

    def said(self: Hold, given: Leadership) -> None:
        term_ms = self._timing.term_at_ms - self._timing.hold_ms
        say("renews", token=given.token, until=given.valid_until_ms + term_ms, hold_end=given.valid_until_ms)
        extend(self, given)

    Hold.extend = said  # type: ignore[method-assign]


def state_of(pid: str) -> str:
    """As the kernel says: T is stopped, Z is dead; empty if there is none.

    K is killed: it will not run a line of its own any more, but on a busy machine it waits for a processor to die on.
    """
    try:
        with open(f"/proc/{pid}/status", "rb") as file_:
            masks = [line.split()[1] for line in file_ if line.startswith((b"SigPnd:", b"ShdPnd:"))]
        with open(f"/proc/{pid}/stat", "rb") as file_:
            state, *fields = file_.read().rpartition(b") ")[2].split()
    except OSError:
        return ""
    is_killed = any(int(mask, 16) & KILL_MASK for mask in masks) or int(fields[FLAGS_AT]) & PF_EXITING
    return "K" if is_killed and state != b"Z" else state.decode()


# --- elections --------------------------------------------------------------------------------------------------------


async def lead(store: str, **options: Any) -> None:
    """Says whom it sees leading, each beginning, each step and each end."""

    def sees(standing: primacy.Standing) -> None:
        if standing.role == "follower" and standing.leader:
            say("sees", leader=standing.leader)

    async with primacy.Election("job", store=store, profile="lab", on_change=sees, **options) as election:
        async for leadership in election:
            async with leadership:
                begins(leadership)
                try:
                    while True:
                        await asyncio.sleep(STEP_S)
                        say("works", **claim(leadership))
                finally:
                    say("over", token=leadership.token)


async def block(store: str, **options: Any) -> None:
    """Leads, and then does not let the loop turn."""
    async with primacy.Election("job", store=store, profile="lab", **options) as election:
        async for leadership in election:
            async with leadership:
                begins(leadership)
                await asyncio.sleep(0.1)
                while True:
                    time.sleep(STEP_S)
                    say("works", **claim(leadership))


def fork(store: str) -> None:
    """Forks inside of a leadership; the child says what is left of it there, and leaves both blocks.

    The parent then goes on for longer than the dead-man point (850 ms), which its renewals move.
    """
    with blocking.Election("job", store=store, profile="fast", on_loss="kill") as election:
        for leadership in election:
            with leadership:
                begins(leadership, "fast")
                child = os.fork()
                if child == 0:
                    why = ""
                    try:
                        leadership.check()
                    except primacy.LeadershipLost as error:
                        why = error.reason
                    say("child", why=why, left_ms=leadership.left_ms())
                    break
                os.waitpid(child, 0)
                for _ in range(120):
                    time.sleep(STEP_S)
                    leadership.check()
                say("still", token=leadership.token)
            break
    if child == 0:
        say("child out")
        os._exit(0)
    say("out")


# --- fences -----------------------------------------------------------------------------------------------------------


def writer(kind: str, resource: str) -> Callable[[int], None]:
    """Writes with a token, or raises `StaleToken`."""
    if kind == "file":
        return lambda token: file.File(resource).append(f"{token}\n".encode(), token)
    if kind == "http":
        return lambda token: post(resource, token)
    connection = connect(kind, resource)

    def write(token: int) -> None:
        try:
            sql.guard(connection, "job", token)
            cursor = connection.cursor()
            cursor.execute(f"INSERT INTO written (token) VALUES ({token:d})")
            cursor.close()
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    return write


def connect(kind: str, resource: str) -> Any:
    """A plain connection as an application would make it."""
    match kind:
        case "sqlite":
            return sqlite3.connect(resource, timeout=60, check_same_thread=False)
        case "postgresql":
            import psycopg

            return psycopg.connect(resource)
        case _:
            import pymysql

            from primacy.store.url import mysql_options

            options = {key: value for key, value in mysql_options(resource).items() if key != "autocommit"}
            return pymysql.connect(**options)


def post(resource: str, token: int) -> None:
    host, _, port = resource.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        connection.request("POST", "/", body=b"x", headers={"Primacy-Token": str(token)})
        answer = connection.getresponse()
        answer.read()
    finally:
        connection.close()
    if answer.status == 412:
        raise primacy.StaleToken(resource, token, 0)
    assert answer.status == 200, answer.status


def write(kind: str, store: str, resource: str) -> None:
    """A body that never asks whether it still leads: only the fence can stop it."""
    put = writer(kind, resource)
    with blocking.Election("job", store=store, profile="lab") as election:
        for leadership in election:
            with leadership:
                begins(leadership)
                while True:
                    try:
                        put(leadership.token)
                        say("wrote", token=leadership.token)
                    except primacy.StaleToken:
                        say("refused", token=leadership.token)
                        break
                    time.sleep(REST_S)
            break
    say("out")


def main() -> None:
    mode, store, *resource = sys.argv[1:]
    say_renewals()
    with contextlib.suppress(KeyboardInterrupt):
        match mode:
            case "lead" | "kill":
                asyncio.run(lead(store, on_loss="kill" if mode == "kill" else "cancel"))
            case "block" | "block-kill":
                asyncio.run(block(store, on_loss="kill" if mode == "block-kill" else "cancel"))
            case "fork":
                fork(store)
            case kind:
                write(kind, store, *resource)


if __name__ == "__main__":
    main()
