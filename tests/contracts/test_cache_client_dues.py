"""When the attempts of a cache client are due: one timer for all, and a sign that costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from primacy.cache.client_calls import Dues


class LoopByHand:
    """What `Dues` needs of a loop, with a time that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[TimerByHand] = []
        self.armed = 0

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], None]) -> TimerByHand:
        self.armed += 1
        self.timers.append(TimerByHand(self, at_s, call))
        return self.timers[-1]

    def pass_until(self, until_s: float) -> None:
        while self.timers and min(timer.at_s for timer in self.timers) <= until_s:
            timer = min(self.timers, key=lambda timer: timer.at_s)
            self.timers.remove(timer)
            self.now_s = max(self.now_s, timer.at_s)
            timer.call()
        self.now_s = until_s


class TimerByHand:
    def __init__(self, loop: LoopByHand, at_s: float, call: Callable[[], None]) -> None:
        self.loop, self.at_s, self.call = loop, at_s, call

    def cancel(self) -> None:
        if self in self.loop.timers:
            self.loop.timers.remove(self)


class Attempts:
    """Attempts by name with when they are due, and those that ended by it."""

    def __init__(self) -> None:
        self.loop = LoopByHand()
        self.dues = Dues(self.due)
        self.dues.open(self.loop)  # type: ignore[arg-type]
        self.at: dict[bytes, float] = {}
        self.ended: list[tuple[bytes, float]] = []
        self.on_end: Callable[[bytes], None] = lambda _: None

    def begin(self, name: bytes, at_s: float) -> None:
        self.at[name] = at_s
        self.dues.add(at_s, name)

    def due(self, name: bytes, now_s: float) -> float | None:
        at_s = self.at.get(name)
        if at_s is None or at_s > now_s:
            return at_s
        del self.at[name]
        self.ended.append((name, self.loop.now_s))
        self.on_end(name)
        return None


def test_each_attempt_ends_when_it_is_due_and_in_that_order() -> None:
    tried = Attempts()
    for name, at_s in ((b"c", 3.5), (b"a", 0.5), (b"b", 2.0)):
        tried.begin(name, at_s)
    tried.loop.pass_until(10.0)
    assert tried.ended == [(b"a", 0.5), (b"b", 2.0), (b"c", 3.5)]
    assert not tried.loop.timers


def test_a_sign_moves_an_attempt_and_arms_no_timer() -> None:
    tried = Attempts()
    for number in range(100):
        tried.begin(b"%d" % number, 0.5)
    armed = tried.loop.armed
    for at_s in (1.0, 1.7, 2.4):
        for name in tried.at:
            tried.at[name] = at_s
    assert tried.loop.armed == armed == 1
    tried.loop.pass_until(2.3)
    assert not tried.ended
    tried.loop.pass_until(2.4)
    assert sorted(tried.ended) == sorted((b"%d" % number, 2.4) for number in range(100))
    assert tried.loop.armed < 5


def test_an_attempt_that_was_answered_is_forgotten_and_wakes_nobody_later() -> None:
    tried = Attempts()
    for number in range(1_000):
        tried.begin(b"%d" % number, 0.5 + number / 1_000)
        del tried.at[b"%d" % number]
    tried.begin(b"last", 1.6)
    tried.loop.pass_until(0.5)
    assert [timer.at_s for timer in tried.loop.timers] == [1.6]
    tried.loop.pass_until(2.0)
    assert tried.ended == [(b"last", 1.6)]


def test_an_earlier_one_is_not_kept_waiting_by_a_later_one() -> None:
    tried = Attempts()
    tried.begin(b"change", 3.5)
    tried.begin(b"get", 0.5)
    assert len(tried.loop.timers) == 1
    tried.loop.pass_until(0.5)
    assert tried.ended == [(b"get", 0.5)]


def test_an_attempt_that_begins_while_others_end_is_in_time() -> None:
    tried = Attempts()
    again: list[bytes] = []

    def once_more(name: bytes) -> None:
        if not name.startswith(b"again"):
            again.append(name)
            tried.begin(b"again " + name, tried.loop.now_s + 0.5)

    tried.on_end = once_more
    for number in range(20):
        tried.begin(b"%02d" % number, 0.5)
    tried.loop.pass_until(0.9)
    assert len(again) == 20
    tried.loop.pass_until(1.0)
    assert sorted(tried.ended)[20:] == sorted((b"again " + name, 1.0) for name in again)


def test_a_late_process_reads_between_two_looks() -> None:
    """What is not read yet puts off the end of an attempt by a moment. Thousands of these must not be gone through
    again and again in one callback, or nothing would ever be read."""
    tried = Attempts()
    looked = 0

    def put_off(name: bytes, now_s: float) -> float | None:
        nonlocal looked
        looked += 1
        tried.loop.now_s += 0.001  # each takes a while
        return now_s + 0.005 if name in tried.at else None

    tried.dues._due = put_off
    for number in range(1_000):
        tried.begin(b"%d" % number, 0.5)
    tried.loop.now_s = 0.5
    (timer,) = tried.loop.timers
    tried.loop.timers.clear()
    timer.call()
    assert looked <= 1_001
    assert len(tried.loop.timers) == 1


def test_after_close_nothing_is_due() -> None:
    tried = Attempts()
    tried.begin(b"a", 0.5)
    tried.dues.close()
    tried.loop.pass_until(5.0)
    assert not tried.ended
    tried.dues.add(6.0, b"b")
    assert not tried.loop.timers


def test_a_real_loop_takes_it() -> None:
    """None ends before its time, and each of them once. On a machine that stands still both may be due at once."""
    early: list[bytes] = []
    ended: list[bytes] = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        at: dict[bytes, Any] = {b"a": loop.time() + 0.01, b"b": loop.time() + 0.02}

        def due(name: bytes, now_s: float) -> float | None:
            if at[name] > now_s:
                return float(at[name])
            early.extend([name] if loop.time() < at[name] else [])
            ended.append(name)
            return None

        dues = Dues(due)
        dues.open(loop)
        for name, at_s in at.items():
            dues.add(at_s, name)
        at[b"a"] += 0.02
        async with asyncio.timeout(60):
            while len(ended) < len(at):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)

    asyncio.run(wait())
    assert (sorted(ended), early) == ([b"a", b"b"], [])
