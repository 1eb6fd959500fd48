from __future__ import annotations

from django.db import models


class Report(models.Model):
    """What the command writes."""

    token = models.BigIntegerField()
    pid = models.IntegerField()
