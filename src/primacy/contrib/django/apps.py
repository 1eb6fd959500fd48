"""The app: it has a command, and no models."""

from __future__ import annotations

from django.apps import AppConfig


class PrimacyConfig(AppConfig):
    name = "primacy.contrib.django"
    label = "primacy"
    verbose_name = "primacy"
