"""An event loop in a thread of its own, for faces of async clients that threads and scripts use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as Waited
from typing import Any, TypeVar

T = TypeVar("T")
WAKE_S = 1.0
"""Waiting threads look up at least this often, so that Ctrl-C is never kept waiting."""


class LoopThread:
    """An event loop in a thread. Any other thread waits for coroutines on it."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        asked = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            while True:
                try:
                    return asked.result(WAKE_S)
                except Waited:
                    if asked.done():
                        raise
        except BaseException:  # such as Ctrl-C
            asked.cancel()
            raise

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
