"""Tells a user's commands what happened: elected, started, stopped, lost.

They run beside the node and can hold up nothing: each kind has one running and a few waiting, each a limit of time, and
nobody waits for their end but, for a moment, an agent that has nothing else left to do.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping

from primacy.node.bound import outer_environment
from primacy.supervise.short_command import ShortCommand

WAITING_MAX = 8
"""Of one kind: a command that is slower than what happens misses the newest."""
FAREWELL_S = 2.0
"""How long an agent that is done waits for the last ones."""


class Hooks:
    """The commands of one node, by the kind of event that they want to hear of."""

    def __init__(
        self, commands: Mapping[str, tuple[str, ...]], limit_ms: int, cwd: str, say: Callable[[bool, str], None]
    ) -> None:
        self.commands = commands
        self.limit_ms = limit_ms
        self.cwd = cwd
        self.say = say
        """Told whether it went well, and a sentence."""
        self._running: dict[str, ShortCommand] = {}
        self._waiting: dict[str, deque[dict[str, str]]] = {kind: deque() for kind in commands}
        self._limits: dict[str, asyncio.TimerHandle] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def happened(self, kind: str, told: Mapping[str, str]) -> None:
        if kind not in self.commands:
            return
        waiting = self._waiting[kind]
        if len(waiting) >= WAITING_MAX:
            self.say(False, f"the hook {kind} is not told of an event: {WAITING_MAX} wait for it already")
            return
        waiting.append({**told, "PRIMACY_EVENT": kind})
        self._next(kind)

    async def close(self) -> None:
        """The last ones have a moment; what is still there then is killed."""
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._idle.wait()
        except TimeoutError:
            for kind in tuple(self._running):
                self.say(False, f"the hook {kind} is killed: the agent ends")
        for waiting in self._waiting.values():
            waiting.clear()
        for limit in self._limits.values():
            limit.cancel()
        for kind in tuple(self._running):
            await self._running.pop(kind).killed()

    def _next(self, kind: str) -> None:
        if kind in self._running or not self._waiting[kind]:
            return
        told = self._waiting[kind].popleft()
        self._idle.clear()
        environment = {**outer_environment(os.environ), **told}
        self._running[kind] = ShortCommand(
            self.commands[kind], environment, self.cwd, lambda code, why: self._ended(kind, code, why)
        )
        loop = asyncio.get_running_loop()
        self._limits[kind] = loop.call_later(self.limit_ms / 1_000, self._late, kind)

    def _ended(self, kind: str, code: int, why: str) -> None:
        self._over(kind)
        self.say(code == 0, f"the hook {kind} ended with code {code}" + (f": {why}" if why else ""))
        self._next(kind)

    def _late(self, kind: str) -> None:
        self._running[kind].kill()
        self._over(kind)
        self.say(False, f"the hook {kind} was killed: it did not end within {self.limit_ms:,} ms")
        self._next(kind)

    def _over(self, kind: str) -> None:
        del self._running[kind]
        self._limits.pop(kind).cancel()
        if not self._running and not any(self._waiting.values()):
            self._idle.set()
