"""A slow figure that all processes of the site compute once: a view, a command and a worker may all ask for it.

PRIMACY_CACHE=tcp://127.0.0.1:6001 ./manage.py show_rate EUR
"""

from __future__ import annotations

import os
import time

import primacy

LOG = os.environ.get("LOG_FILE", "computed.log")


@primacy.cached(ttl_ms=60_000, stale_ms=600_000, name="site-rate")
def rate(currency: str) -> float:
    with open(LOG, "a") as file:
        file.write(f"{currency} by {os.getpid()}\n")
    time.sleep(0.5)
    return len(currency) * 1.25
