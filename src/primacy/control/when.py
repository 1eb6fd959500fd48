"""Wall time, for documents."""

from __future__ import annotations

from datetime import UTC, datetime

DATE_MAX_MS = 253_370_764_800_000
"""The year 9999 begins: what is later cannot be shown as a date in every time zone, and nothing that happened is."""


def instant(unix_ms: int) -> str:
    """UTC, with milliseconds."""
    return datetime.fromtimestamp(unix_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
