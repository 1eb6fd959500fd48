"""placeholder"""

from __future__ import annotations


def kinds() -> list[str]:
    return ["memory", "sqlite"]


def empty(kind: str) -> str:
    raise AssertionError(kind)
