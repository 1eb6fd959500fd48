"""A scheduler that only the leading process starts.

    STORE=postgresql://host/db python apscheduler_leader.py

For many jobs, or jobs that follow one another: one process has all of them, for as long as it leads.
"""

from __future__ import annotations

import asyncio
import os

from apscheduler.schedulers.asyncio import AsyncIOScheduler

import primacy

STORE = os.environ.get("STORE", "sqlite:///leases.db")
PROFILE = os.environ.get("PROFILE", "lan")
EVERY_S = float(os.environ.get("EVERY_S", "60"))


async def tick(leadership: primacy.Leadership) -> None:
    leadership.check()  # the scheduler runs jobs in tasks of its own, which the block does not cancel
    print(f"{os.getpid()} ticks under token {leadership.token}", flush=True)


@primacy.singleton("scheduler", store=STORE, profile=PROFILE)
async def schedule() -> None:
    scheduler = AsyncIOScheduler()
    scheduler.add_job(tick, "interval", seconds=EVERY_S, args=[primacy.current()])
    scheduler.start()
    try:
        await asyncio.Event().wait()
    finally:
        scheduler.shutdown(wait=False)


if __name__ == "__main__":
    try:
        asyncio.run(schedule())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
