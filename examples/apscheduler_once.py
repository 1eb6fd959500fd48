"""A scheduler in every process, and a job that one of them runs.

    STORE=postgresql://host/db python apscheduler_once.py

All schedulers fire; whoever comes first runs the job. `lock_at_least_ms` is larger than the clocks of the machines
may differ, and smaller than the time to the next run. The jobs run in threads, where no signal arrives: so the program
handles SIGTERM itself, waits for a job that runs, and its lease is released.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import UTC, datetime

from apscheduler.schedulers.background import BackgroundScheduler

import primacy

STORE = os.environ.get("STORE", "sqlite:///leases.db")
PROFILE = os.environ.get("PROFILE", "lan")
EVERY_S = float(os.environ.get("EVERY_S", "60"))
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
"""Runs are counted from here, and not from the start of each process: all schedulers fire at the same moments."""


@primacy.once("nightly-report", store=STORE, profile=PROFILE, lock_at_least_ms=int(EVERY_S * 500))
def report() -> None:
    print(f"{os.getpid()} reports under token {primacy.current().token}", flush=True)


def main() -> None:
    scheduler = BackgroundScheduler()
    scheduler.add_job(report, "interval", seconds=EVERY_S, start_date=BEGAN, max_instances=1, coalesce=True)
    scheduler.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        scheduler.shutdown()


if __name__ == "__main__":
    main()
