"""Locks of names that nobody used before, on real stores: free at once where the table is settled (L9)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import primacy
from primacy.settings.timing import PROFILES
from tests.support.canary import Canary
from tests.support.servers import KINDS as SERVERS
from tests.support.store_harness import made_new, place, short_waits

pytestmark = pytest.mark.beside(order=425)

PROFILE = "lan"
HOLD_S = PROFILES[PROFILE].hold_ms / 1_000
SETTLES_MS = 3_500
"""The longest wait of a table that tests can wait for; it must admit the holds of this profile."""
CANARY_MS = 500
STORES = {
    kind: pytest.param(kind, marks=pytest.mark.skipif(bool(why), reason=why or "here"))
    for kind, why in {"sqlite": "", **{kind: made.missing() for kind, made in SERVERS.items()}}.items()
}


async def lock(name: str, url: str, within_ms: int) -> int:
    """How long it was waited for."""
    began_s = time.monotonic()
    async with primacy.Lock(name, store=url, within_ms=within_ms, profile=PROFILE):
        return int((time.monotonic() - began_s) * 1_000)


async def three(url: str) -> None:
    for name in ("one", "two", "three"):
        await lock(name, url, 2_000)


def are_had_at_once(url: str) -> None:
    """Not even one hold for all three. `InUse` would say that somebody has them, or is waited for."""
    with Canary(CANARY_MS) as canary:
        began_s = time.monotonic()
        asyncio.run(three(url))
        took_s = time.monotonic() - began_s
    canary.judge(took_s < HOLD_S, f"three fresh locks took {took_s:.1f} s")


@pytest.mark.parametrize("kind", STORES.values())
def test_L9_three_fresh_locks_in_a_table_that_was_made_new(kind: str, tmp_path: Path) -> None:
    """As by `primacy lease schema --new`."""
    with place(kind, tmp_path) as here:
        are_had_at_once(made_new(here.url))


@pytest.mark.parametrize("kind", [STORES["sqlite"], STORES["postgresql"]])
def test_L9_three_fresh_locks_in_a_table_that_is_in_use(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody said that it is new: the first one waits until it is settled, and those after it need not."""
    short_waits(monkeypatch, SETTLES_MS)
    with place(kind, tmp_path) as here:
        assert asyncio.run(lock("first", here.url, 60_000)) >= SETTLES_MS, "nothing vouches for a new table"
        are_had_at_once(here.url)
