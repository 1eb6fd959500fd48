"""Strangers at our servers: what they send is no line of a log, and one too many, or one that asks nothing, has to go.

Every server of ours that others can connect to needs the same answers to them; the limits are its own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web  # takes as long to load as all else, and a server of lines does without


def silent(name: str) -> logging.Logger:
    """For aiohttp: what a stranger sends is no line of the node's log."""
    logger = logging.Logger(name)
    logger.addHandler(logging.NullHandler())
    return logger


LOST = ("SSL connection is closed", "socket.send() raised exception.")


def pass_over_lost() -> None:
    """asyncio warns of each write to a connection that is lost, and over TLS nobody can know that it is.

    Whoever broke it off would write our log.
    """
    logging.getLogger("asyncio").addFilter(_speaks_of_else)


def _speaks_of_else(record: logging.LogRecord) -> bool:
    return record.msg not in LOST


class HangUp(asyncio.Protocol):
    """Speaks with one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Idlers:
    """aiohttp waits for a first request for ever: whoever was idle at two looks is hung up on."""

    def __init__(self) -> None:
        self._busy: set[Any] = set()
        self._idle: set[Any] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, server: web.Server | None, every_s: float) -> None:
        """From now until `close`. `server`: of a runner that is set up."""
        assert server is not None
        self._timer = asyncio.get_running_loop().call_later(every_s, self._look, server, every_s)

    def asks(self, connection: Any) -> None:
        self._busy.add(connection)

    def served(self, connection: Any) -> None:
        self._busy.discard(connection)
        self._idle.discard(connection)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, server: web.Server, every_s: float) -> None:
        waiting = {each for each in server.connections if each not in self._busy}
        for each in waiting & self._idle:
            each.force_close()
        self._idle = waiting
        self.watch(server, every_s)
