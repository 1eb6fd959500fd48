"""The one loop that waits in tests: it gives what it found, and says in a sentence what never came."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.waiting import wait_until, wait_until_async


def test_it_gives_what_it_found_and_looks_as_often_as_it_must() -> None:
    looks = iter([0, "", None, "there", "never looked at"])
    assert wait_until(lambda: next(looks), every_s=0) == "there"
    assert next(looks) == "never looked at"


def test_it_looks_once_even_if_there_is_no_time() -> None:
    assert wait_until(lambda: "there", within_s=0) == "there"


def test_in_vain_it_says_what_and_asks_only_then_for_more() -> None:
    asked = []
    with pytest.raises(AssertionError, match=r"never came within 0 s: a leader\nNone"):
        wait_until(lambda: False, "a leader", 0, told=lambda: asked.append("asked"))
    assert asked == ["asked"]


def test_other_tasks_go_on_while_one_waits() -> None:
    async def scene() -> None:
        done: list[str] = []
        asyncio.get_running_loop().call_later(0.001, done.append, "there")
        assert await wait_until_async(lambda: done[-1:], every_s=0) == ["there"]
        with pytest.raises(AssertionError, match="never came within 0 s: what was waited for"):
            await wait_until_async(lambda: False, within_s=0)

    asyncio.run(scene())
