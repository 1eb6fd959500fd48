"""A scheduler on every machine, of which only the leading process's runs jobs.

    STORE=postgresql://host/db python apscheduler_leader.py

For many jobs, or jobs that follow one another: one process has all of them, for as long as it leads. SIGTERM (systemd,
Kubernetes) ends it in order: running jobs end, the lease is released, and another process goes on at once.
"""

from __future__ import annotations

import os

from apscheduler.schedulers.background import BackgroundScheduler

from primacy.contrib.apscheduler import LedScheduler

STORE = os.environ.get("STORE", "sqlite:///leases.db")
PROFILE = os.environ.get("PROFILE", "lan")
EVERY_S = float(os.environ.get("EVERY_S", "60"))

scheduler = BackgroundScheduler()
led = LedScheduler(scheduler, "scheduler", store=STORE, profile=PROFILE)


@scheduler.scheduled_job("interval", seconds=EVERY_S)
def tick() -> None:
    print(f"{os.getpid()} ticks under token {led.leadership.token}", flush=True)


if __name__ == "__main__":
    try:
        led.run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
