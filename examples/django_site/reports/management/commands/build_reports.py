"""`manage.py build_reports` on every machine: one of them builds, the others wait.

At SIGTERM (systemd, Kubernetes) the blocks are left, an open transaction is rolled back, and the lease is released.

Each report is one transaction. The guard in it refuses a process that was stopped while it led and was replaced
meanwhile: it would otherwise go on where it was.
"""

from __future__ import annotations

import os
import time
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection, transaction

import primacy
from primacy.contrib.django import only_one
from primacy.fence import sql
from reports.models import Report


@only_one("reports")
class Command(BaseCommand):
    help = "Builds reports, on one machine at a time."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--reports", type=int, default=0, help="end after so many (default: never)")

    def handle(self, *args: Any, **options: Any) -> None:
        leadership, most, done = primacy.current(), options["reports"], 0
        while not most or done < most:
            leadership.check()
            with transaction.atomic():
                sql.guard(connection, "reports", leadership.token)
                Report.objects.create(token=leadership.token, pid=os.getpid())
            done += 1
            self.stdout.write(f"report {done} under token {leadership.token}")
            time.sleep(0.02)
