"""A background task that one of many web workers runs.

    STORE=postgresql://host/db uvicorn fastapi_lifespan:app --workers 4

Every worker answers requests; one of them builds the reports. When that one ends or dies, another goes on. At SIGTERM
uvicorn ends the lifespan in order, which leaves the election's block: the lease is released at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI

import primacy

STORE = os.environ.get("STORE", "sqlite:///leases.db")
PROFILE = os.environ.get("PROFILE", "lan")
built: list[int] = []


async def build_report(token: int) -> None:
    """The work. Its token goes to every resource that it changes."""
    built.append(token)
    await asyncio.sleep(0.05)


async def keep_reports(election: primacy.Election) -> None:
    async for leadership in election:
        async with leadership:  # cancelled in time if the leadership is lost; the loop goes on
            while True:
                await build_report(leadership.token)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with primacy.Election("reports", store=STORE, profile=PROFILE) as election:
        app.state.election = election
        task = asyncio.create_task(keep_reports(election))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


app = FastAPI(lifespan=lifespan)


@app.get("/reports")
async def reports() -> dict[str, Any]:
    """What this worker did, and who leads. For people: the work itself never asks this."""
    standing = app.state.election.standing
    return {"pid": os.getpid(), "built": len(built), "role": standing.role, "leader": standing.leader}
