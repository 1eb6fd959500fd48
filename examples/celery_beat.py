"""Celery's beat must not run twice, and is not to be changed: `primacy run` runs it on one machine of many.

    primacy run -- celery -A celery_beat beat --schedule /var/lib/app/beat

On one machine that is all; a second `primacy run` waits for the first. On several, add a file with their addresses
(`primacy new --nodes 3`, see docs/run.md). The workers run everywhere, as always.
"""

from __future__ import annotations

import os

from celery import Celery

BROKER = os.environ.get("BROKER_FOLDER", "broker")
EVERY_S = float(os.environ.get("EVERY_S", "60"))

os.makedirs(BROKER, exist_ok=True)
app = Celery("reports", broker="filesystem://")  # in earnest: amqp://… or redis://…
app.conf.broker_transport_options = {
    "data_folder_in": BROKER,
    "data_folder_out": BROKER,
    "control_folder": os.path.join(BROKER, "control"),
}
app.conf.beat_schedule = {"report": {"task": "celery_beat.report", "schedule": EVERY_S}}


@app.task
def report() -> str:
    return "done"
