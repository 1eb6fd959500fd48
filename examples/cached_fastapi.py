"""A slow answer that a fleet of web workers computes once.

    primacy cache serve                                # the peers; on each machine one, see docs/cache.md
    PRIMACY_CACHE=tcp://127.0.0.1:6001 uvicorn cached_fastapi:app --workers 4

The first request for a currency computes its rate in one worker; all others, in all workers, wait for that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI

import primacy
import primacy.cache

TAKES_S = float(os.environ.get("TAKES_S", "0.5"))
computed: list[str] = []


@primacy.cached(ttl_ms=60_000, stale_ms=600_000, name="rate")
async def rate(currency: str) -> float:
    """Something slow, or paid by the call."""
    computed.append(currency)
    await asyncio.sleep(TAKES_S)
    return len(currency) * 1.25


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await primacy.cache.close()


app = FastAPI(lifespan=lifespan)


@app.get("/rates/{currency}")
async def read_rate(currency: str) -> dict[str, Any]:
    return {"rate": await rate(currency), "pid": os.getpid(), "computed": len(computed)}
