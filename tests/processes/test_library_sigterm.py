"""SIGTERM ends a program of the library in order: its lease is released, and a successor waits for nothing.

With the profile `wan` a hold lasts ten seconds: who has the lock in less took over a release.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from primacy import blocking
from primacy.library.sigterm import EXIT_CODE, Sigterm
from primacy.settings.timing import PROFILES
from tests.support.store_harness import made_new
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=125)

WITHIN_S = 60
SOON_MS = 8_000
ASYNC = """
import asyncio, sys, primacy
async def main():
    async with primacy.Election("it", store=sys.argv[1], profile="wan") as election:
        async for leadership in election:
            async with leadership:
                try:
                    print("leads", flush=True)
                    await asyncio.sleep(600)
                finally:
                    await asyncio.sleep(0.05)  # the lease is renewed for what is tidied up
                    leadership.check()
                    print("tidied", flush=True)
asyncio.run(main())
"""
LOCK = """
import asyncio, sys, primacy
async def main():
    async with primacy.Lock("it", store=sys.argv[1], profile="wan"):
        try:
            print("leads", flush=True)
            await asyncio.sleep(600)
        finally:
            print("tidied", flush=True)
asyncio.run(main())
"""
SINGLETON = """
import sys, time, primacy
@primacy.singleton("it", store=sys.argv[1], profile="wan")
def work():
    try:
        print("leads", flush=True)
        time.sleep(600)
    finally:
        print("tidied", flush=True)
work()
"""
BLOCKING = """
import sys, time
from primacy import blocking
with blocking.Lock("it", store=sys.argv[1], profile="wan"):
    try:
        print("leads", flush=True)
        time.sleep(600)
    finally:
        print("tidied", flush=True)
"""
BUSY = """
import sys
from primacy import blocking
with blocking.Lock("it", store=sys.argv[1], profile="wan") as leadership:
    try:
        print("leads", flush=True)
        while True:
            leadership.check()
    finally:
        print("tidied", flush=True)
"""


@pytest.mark.parametrize(
    "program", [ASYNC, LOCK, SINGLETON, BLOCKING, BUSY], ids=["async", "lock", "singleton", "blocking", "busy"]
)
def test_SIGTERM_leaves_the_blocks_and_releases(program: str, tmp_path: Path) -> None:
    assert PROFILES["wan"].hold_ms > SOON_MS
    store = f"sqlite:///{tmp_path}/leases.db"
    made_new(store)
    process = subprocess.Popen([sys.executable, "-c", program, store], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "leads\n"
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=WITHIN_S)
    assert (said, process.returncode) == ("tidied\n", EXIT_CODE)
    with blocking.Lock("it", store=store, profile="wan", within_ms=SOON_MS):
        pass  # else InUse


OWN = """
import signal, sys, time
from primacy import blocking
handled = []
def own(*_):
    print("mine", flush=True)
    handled.append(True)
if sys.argv[2] == "own":
    signal.signal(signal.SIGTERM, own)
with blocking.Lock("it", store=sys.argv[1], profile="wan", on_sigterm=sys.argv[2] != "without"):
    print("leads", flush=True)
    while sys.argv[2] != "after" and not handled:
        time.sleep(0.01)
print("after", flush=True)
time.sleep(600 if sys.argv[2] == "after" else 0)
"""


@pytest.mark.parametrize(
    ("how", "awaited", "code", "said"),
    [
        ("own", "leads\n", 0, "mine\nafter\n"),
        ("without", "leads\n", -signal.SIGTERM, ""),
        ("after", "after\n", -signal.SIGTERM, ""),
    ],
)
def test_a_handler_of_the_program_is_left_alone(how: str, awaited: str, code: int, said: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/leases.db"
    made_new(store)
    process = subprocess.Popen([sys.executable, "-c", OWN, store, how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line == awaited:
            break
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=WITHIN_S)[0] == said
    assert process.returncode == code


def test_a_thread_installs_nothing_and_the_last_block_puts_it_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        one = Sigterm()
        thread = threading.Thread(target=one.enter)
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        one.enter()
        one.leave()
        assert signal.getsignal(signal.SIGTERM) == one.end, "the thread's block is still open"
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
            wait_until(lambda: time.sleep(0.01), "a signal is handled soon")
        assert ended.value.code == EXIT_CODE
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the next one ends the process at once"
        one.leave()
    finally:
        signal.signal(signal.SIGTERM, before)
