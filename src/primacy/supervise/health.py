"""Whether this node is well enough to lead: what probes and monitors say, and what follows from it. Pure.

Three kinds of witnesses. A probe of the *running* command is asked only while it runs: a silence of what does not run
means nothing. So it cannot say either that all is well again once the command was stopped for its sake, and the node
rests instead, for `rest_ms`, and may then stand again. A probe that is *always* asked (a disk, a route) says both
itself. A monitor outside says what it thinks whenever it likes; if it promised to speak every so often, its silence is
a failure.

A probe fails after so many failures in a row and is well again after so many successes in a row; one hiccup changes
nothing. While any of them fails the node is unhealthy: the election is told, steps down in order, and does not stand.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple, assert_never

from primacy.election.inputs import Health

MONITORS_MAX = 16
"""Monitors that are remembered at one time."""


class Rule(NamedTuple):
    """One probe, as the settings have it."""

    name: str
    running: bool = True
    """Asked only while the command runs; otherwise always."""
    every_ms: int = 1_000
    failures: int = 3
    successes: int = 2
    start_ms: int = 10_000
    """A command that has not answered well yet has this long to do so."""
    rest_ms: int = 30_000
    """How long the node stands back after a probe of the running command failed."""


class Began(NamedTuple):
    """The node is up: probes that are always asked begin."""


class Runs(NamedTuple):
    """The command runs, or no longer does."""

    now: bool


class Answered(NamedTuple):
    """A probe that was asked has its answer."""

    place: int
    ok: bool
    detail: str = ""


class Said(NamedTuple):
    """A monitor has spoken. `within_ms`: it will speak again before so long; 0: it promises nothing."""

    monitor: str
    ok: bool
    detail: str = ""
    within_ms: int = 0


class Woke(NamedTuple):
    """`deadline_ms` has passed."""


Given = Began | Runs | Answered | Said | Woke


class AskProbe(NamedTuple):
    """Ask this probe now."""

    place: int


class DropProbe(NamedTuple):
    """Whatever it answers is not wanted any more."""

    place: int


class Tell(NamedTuple):
    """The election is told."""

    given: Health


class Note(NamedTuple):
    """For the log."""

    ok: bool
    text: str


Effect = AskProbe | DropProbe | Tell | Note


class Probe:
    """How one probe stands."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.next_ms: int | None = None
        self.asked = False
        self.bad = 0
        self.good = 0
        self.excused_ms = 0
        """Until then a command that has never answered well is excused."""
        self.failing = ""
        self.free_ms: int | None = None
        """When the node has rested enough."""

    def quiet(self) -> None:
        self.next_ms = None
        self.asked = False
        self.bad = self.good = 0


class Monitor(NamedTuple):
    """What one monitor said last."""

    failing: str
    silent_ms: int | None
    within_ms: int


class HealthWatch:
    """All witnesses of one node."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.probes = [Probe(rule) for rule in rules]
        self.monitors: dict[str, Monitor] = {}
        self.running = False
        self.told = ""
        """What the election was last told: empty for all well."""

    @property
    def failing(self) -> str:
        """The first that is wrong, or nothing."""
        probes = (f"{probe.rule.name}: {probe.failing}" for probe in self.probes if probe.failing)
        monitors = (f"{name}: {said.failing}" for name, said in sorted(self.monitors.items()) if said.failing)
        return next(chain(probes, monitors), "")

    @property
    def deadline_ms(self) -> int | None:
        probes = (at for probe in self.probes for at in (probe.next_ms, probe.free_ms) if at is not None)
        silent = (said.silent_ms for said in self.monitors.values() if said.silent_ms is not None)
        return min((*probes, *silent), default=None)

    def step(self, now_ms: int, given: Given) -> list[Effect]:
        """One input, one ordered list of effects."""
        effects: list[Effect] = []
        match given:
            case Began():
                for probe in self.probes:
                    probe.next_ms = None if probe.rule.running else now_ms
            case Runs(now):
                effects = self._runs(now_ms, now)
            case Answered(place, ok, detail):
                effects = self._answered(now_ms, self.probes[place], ok, detail)
            case Said():
                effects = self._said(now_ms, given)
            case Woke():
                pass
            case _:
                assert_never(given)
        return [*effects, *self._due(now_ms), *self._verdict()]

    def _runs(self, now_ms: int, now: bool) -> list[Effect]:
        if now == self.running:
            return []
        self.running = now
        dropped: list[Effect] = []
        for place, probe in enumerate(self.probes):
            if probe.rule.running:
                if probe.asked:
                    dropped.append(DropProbe(place))
                probe.quiet()
                if now:
                    probe.next_ms, probe.excused_ms = now_ms, now_ms + probe.rule.start_ms
        return dropped

    def _answered(self, now_ms: int, probe: Probe, ok: bool, detail: str) -> list[Effect]:
        if not probe.asked:
            return []
        probe.asked = False
        probe.next_ms = now_ms + probe.rule.every_ms
        if ok:
            probe.bad, probe.excused_ms = 0, 0
            probe.good += 1
            if probe.failing and not probe.rule.running and probe.good >= probe.rule.successes:
                probe.failing = ""
                return [Note(True, f"{probe.rule.name} is well again, {probe.good} times in a row")]
            return []
        probe.good = 0
        if now_ms < probe.excused_ms:
            return []
        probe.bad += 1
        if probe.failing or probe.bad < probe.rule.failures:
            return []
        probe.failing = detail or "it failed"
        if probe.rule.running:
            probe.free_ms = now_ms + probe.rule.rest_ms
        return [Note(False, f"{probe.rule.name} failed {probe.bad} times in a row: {probe.failing}")]

    def has_room(self, monitor: str) -> bool:
        """Whether what this monitor says can be remembered: it must not seem to be heard if it cannot."""
        return monitor in self.monitors or len(self.monitors) < MONITORS_MAX

    def _said(self, now_ms: int, said: Said) -> list[Effect]:
        known = self.monitors.get(said.monitor)
        failing = "" if said.ok else said.detail or "it says that this node is not well"
        if not failing and not said.within_ms:
            self.monitors.pop(said.monitor, None)  # all is well, and nothing more was promised
        elif self.has_room(said.monitor):
            silent_ms = now_ms + said.within_ms if said.within_ms else None
            self.monitors[said.monitor] = Monitor(failing, silent_ms, said.within_ms)
        else:
            return []
        return self._heard(said.monitor, known.failing if known is not None else "", failing)

    def _heard(self, name: str, before: str, failing: str) -> list[Effect]:
        if bool(before) == bool(failing):
            return []
        return [Note(not failing, f"monitor {name} says: {failing or 'all is well'}")]

    def _due(self, now_ms: int) -> list[Effect]:
        """What time alone brings: the next question, the end of a rest, a silence."""
        effects: list[Effect] = []
        for place, probe in enumerate(self.probes):
            if probe.next_ms is not None and now_ms >= probe.next_ms:
                probe.next_ms = None
                probe.asked = True
                effects.append(AskProbe(place))
            if probe.free_ms is not None and now_ms >= probe.free_ms and not self.running:
                probe.free_ms, probe.failing = None, ""
                effects.append(Note(True, f"this node has rested for {probe.rule.rest_ms:,} ms and may lead again"))
            elif probe.free_ms is not None and now_ms >= probe.free_ms:
                probe.free_ms = now_ms + probe.rule.every_ms  # it still runs: looked at again
        for name, said in sorted(self.monitors.items()):
            if said.silent_ms is not None and now_ms >= said.silent_ms:
                failing = f"silent for more than {said.within_ms:,} ms"
                self.monitors[name] = Monitor(failing, None, said.within_ms)
                effects += self._heard(name, said.failing, failing)
        return effects

    def _verdict(self) -> list[Effect]:
        failing = self.failing
        before, self.told = self.told, failing
        if bool(before) == bool(failing):
            return []
        return [Tell(Health(not failing, failing))]
