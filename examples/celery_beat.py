"""Celery's beat must not run twice. Two ways to have it on many machines, of which one sends the tasks:

    STORE=postgresql://host/db celery -A celery_beat beat --scheduler primacy.contrib.celery.Scheduler
    primacy run -- celery -A celery_beat beat --schedule /var/lib/app/beat

The first needs a database and nothing else: only the beat that holds the lease sends. At SIGTERM it releases, and
another one goes on at once. The second runs beat unchanged, on one machine of those in a file (`primacy new --nodes 3`,
see docs/run.md), and ends it in time even if it is frozen. The workers run everywhere, as always.
"""

from __future__ import annotations

import os

from celery import Celery

BROKER = os.environ.get("BROKER_FOLDER", "broker")
STORE = os.environ.get("STORE", "sqlite:///leases.db")
PROFILE = os.environ.get("PROFILE", "lan")
EVERY_S = float(os.environ.get("EVERY_S", "60"))

os.makedirs(BROKER, exist_ok=True)
app = Celery("reports", broker="filesystem://")  # in earnest: amqp://… or redis://…
app.conf.broker_transport_options = {
    "data_folder_in": BROKER,
    "data_folder_out": BROKER,
    "control_folder": os.path.join(BROKER, "control"),
}
app.conf.primacy_store = STORE
app.conf.primacy_profile = PROFILE
app.conf.beat_schedule = {"report": {"task": "celery_beat.report", "schedule": EVERY_S}}


@app.task
def report() -> str:
    return "done"
