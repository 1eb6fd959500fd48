"""Drives the gate in front of the work: runs the fence command, keeps its time, and lets the work in (G8).

The pure machine decides; here a fence command is a process with a group of its own, whose end the loop sees. It never
makes a heartbeat late, and when the role is lost it is killed, and nothing starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from primacy.election.inputs import Input
from primacy.election.model import Leadership
from primacy.node.clock import Clock
from primacy.supervise import gate
from primacy.supervise.gate import Gate
from primacy.supervise.short_command import ShortCommand
from primacy.supervise.vocabulary import Note, Tell

Told = Callable[[Leadership], Mapping[str, str]]
"""The environment of a fence command: what it is told about this leadership and its predecessor."""


class StartGate:
    """One gate with its fence command."""

    def __init__(self, machine: Gate, clock: Clock, fence: Sequence[str], cwd: str, told: Told) -> None:
        self.gate = machine
        self.clock = clock
        self.fence = tuple(fence)
        self.cwd = cwd
        self.told = told
        self.let_in: Callable[[Leadership], None] = lambda _: None
        self.tell: Callable[[Input], None] = lambda _: None
        self.note: Callable[[Note], None] = lambda _: None
        self._command: ShortCommand | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        return self.gate.waits

    @property
    def approval_term(self) -> int:
        """The term that waits for an approval; 0 for none."""
        return self.gate.term if self.gate.phase is gate.Phase.APPROVAL else 0

    def ask(self, leadership: Leadership, covered: bool) -> None:
        self._step(gate.Ask(leadership, covered))

    def renew(self, leadership: Leadership) -> None:
        self._step(gate.Renewed(leadership))

    def end(self, term: int) -> None:
        self._step(gate.Ended(term))

    def approve(self, term: int, by: str) -> None:
        self._step(gate.Approved(term, by))

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._command is not None:
            await self._command.killed()

    def _step(self, given: gate.Given) -> None:
        for effect in self.gate.step(self.clock.now_ms(), given):
            match effect:
                case gate.LetIn(leadership):
                    self.let_in(leadership)
                case gate.RunFence(number, leadership):
                    self._run(number, leadership)
                case gate.KillFence():
                    self._kill()
                case Tell(told):
                    self.tell(told)
                case Note():
                    self.note(effect)
                case _:
                    assert_never(effect)
        self._arm()

    def _run(self, number: int, leadership: Leadership) -> None:
        def done(code: int, why: str) -> None:
            self._command = None
            self._step(gate.FenceEnded(number, code, why))

        self._kill()
        self._command = ShortCommand(self.fence, self.told(leadership), self.cwd, done)

    def _kill(self) -> None:
        if self._command is not None:
            self._command.kill()
            self._command = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wanted_ms = self.gate.deadline_ms
        if wanted_ms is not None:
            left_s = max(0.0, (wanted_ms - self.clock.now_ms()) / 1_000)
            self._timer = asyncio.get_running_loop().call_later(left_s, self._step, gate.Woke())
