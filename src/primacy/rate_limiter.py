"""How often the same is said in a log: at first, and again when an interval has passed. Pure: time is an argument."""

from __future__ import annotations


class RateLimiter:
    """Of the texts that passed it remembers the newest `texts_max`; one that it does not remember passes at once."""

    def __init__(self, every_ms: int, texts_max: int = 1) -> None:
        self._every_ms = every_ms
        self._texts_max = texts_max
        self._passed_ms: dict[str, float] = {}

    @property
    def newest(self) -> str | None:
        """The text that passed last."""
        return next(reversed(self._passed_ms), None)

    def passes(self, now_ms: float, text: str = "") -> bool:
        """May it be said now? If so, it counts as said."""
        last_ms = self._passed_ms.get(text)
        if last_ms is not None and now_ms - last_ms < self._every_ms:
            return False
        self._passed_ms.pop(text, None)
        self._passed_ms[text] = now_ms
        while len(self._passed_ms) > self._texts_max:
            del self._passed_ms[next(iter(self._passed_ms))]
        return True
