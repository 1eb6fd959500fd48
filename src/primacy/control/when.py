"""Wall time, for documents."""

from __future__ import annotations

from datetime import UTC, datetime


def instant(unix_ms: int) -> str:
    """UTC, with milliseconds."""
    return datetime.fromtimestamp(unix_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
