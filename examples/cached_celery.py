"""A result that Celery's workers compute once, whichever of them is asked.

    primacy cache serve                                # the peers; on each machine one, see docs/cache.md
    PRIMACY_CACHE=tcp://127.0.0.1:6001 celery -A cached_celery worker

Celery forks its workers; each makes a client of its own at its first call.
"""

from __future__ import annotations

import os
import time

from celery import Celery

import primacy

BROKER = os.environ.get("BROKER_FOLDER", "broker")
LOG = os.environ.get("LOG_FILE", "computed.log")

os.makedirs(BROKER, exist_ok=True)
app = Celery("reports", broker="filesystem://", backend=f"file://{os.path.abspath(BROKER)}")
app.conf.broker_transport_options = {
    "data_folder_in": BROKER,
    "data_folder_out": BROKER,
    "control_folder": os.path.join(BROKER, "control"),
}


@primacy.cached(ttl_ms=60_000, name="monthly-report")
def monthly_report(month: str) -> dict[str, str]:
    with open(LOG, "a") as file:
        file.write(f"{month} by {os.getpid()}\n")
    time.sleep(0.5)
    return {"month": month, "text": f"report of {month}"}


@app.task
def send_report(month: str, to: str) -> str:
    return f"{to}: {monthly_report(month)['text']}"
