"""Placement machines with one planted defect each, and the rule whose checker must notice it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from primacy.placement import assignment, machine, plan
from primacy.placement.machine import PlacementMachine
from primacy.placement.model import ElectionSeen, NodeSeen, Step, View, why_not
from primacy.placement.vocabulary import Effect

Make = Callable[[str, Any], PlacementMachine]


class NoRest(PlacementMachine):
    """W6: an election that moved may move again at once."""

    def _rest(self, now_ms: int, rest: machine.Rest) -> None:
        rest.failures = rest.retry_ms = 0


class NoIntent(PlacementMachine):
    """W4: what others announced is not waited for, and nothing is announced in time."""

    def _blocked_until_ms(self, now_ms: int) -> int:
        return 0

    def _others_moving(self, now_ms: int) -> list[str]:
        return []


class NoTurns(NoIntent):
    """W4: each node makes the best step of its own, whoever's is next."""

    def _my_step(self, now_ms: int) -> Step | None:
        return self._next(now_ms, self.node)


class NoSettling(PlacementMachine):
    """W5: a node that came up a moment ago is given elections."""

    def _unsteady(self, now_ms: int) -> tuple[str, ...]:
        return ()

    def _note_nodes(self, now_ms: int, before: View) -> None: ...


class NoCalm(PlacementMachine):
    """W4: moves go on while nodes come and go."""

    def _next(self, now_ms: int, leaves: str = "") -> Step | None:
        self._calm_since_ms = -1_000_000
        return super()._next(now_ms, leaves)


class NoMaintenance(PlacementMachine):
    """W7: maintenance changes nothing."""

    def _see(self, now_ms: int, view: View) -> list[Effect]:
        return super()._see(now_ms, view._replace(maintenance=False))


class WaitsForEver(PlacementMachine):
    """W4: a node whose turn it is, and that does not move, is waited for."""

    def _my_step(self, now_ms: int) -> Step | None:
        self._awaits_since_ms = machine.NEVER_MS
        return super()._my_step(now_ms)


class TriesAllTheTime(PlacementMachine):
    """W6: a handover that failed is tried again at once."""

    def _failed(self, now_ms: int, rest: machine.Rest) -> None:
        self._failures = -1


class NeverMoves(PlacementMachine):
    """W3: nothing is ever handed over."""

    def _next(self, now_ms: int, leaves: str = "") -> Step | None:
        return None


class NoSpread(PlacementMachine):
    """W3: nothing moves for the sake of the spread."""

    def _see(self, now_ms: int, view: View) -> list[Effect]:
        elections = tuple(one._replace(placement=one.placement._replace(spread=False)) for one in view.elections)
        return super()._see(now_ms, view._replace(elections=elections))


class ForgetsOperator(PlacementMachine):
    """W2: nobody is told to stand aside."""

    def _order_effects(self) -> list[Effect]:
        with patch.object(machine, "aside", lambda view, election, node: ""):
            return super()._order_effects()


def _names_only(view: View) -> dict[str, tuple[str, ...]]:
    """W8: all campaign in the order of their names."""
    return {seen.name: tuple(node.node for node in view.nodes) for seen in view.elections}


def _drained_may(seen: ElectionSeen, node: NodeSeen) -> str:
    """W9: a drained node counts as any other."""
    return why_not(seen, node._replace(drained=False))


def _without(kind: str) -> Callable[[View, str], dict[str, tuple[str, ...]]]:
    pairs = assignment._pairs
    return lambda view, asked: {} if asked == kind else pairs(view, asked)


class CloseIsFar(assignment.Assignment):
    """W6: a difference of one counts as uneven, and is moved to the other side."""

    def change(self, names: tuple[str, ...], node: str) -> assignment.Cost:
        found = super().change(names, node)
        return (*found[:5], found[5] - 1)


class BlindTo(assignment.Assignment):
    """W3: one of the sums is not looked at."""

    part = 0

    def _cost(self, names: tuple[str, ...], touched: list[str]) -> assignment.Cost:
        found = list(super()._cost(names, touched))
        found[self.part] = 0
        return tuple(found)  # type: ignore[return-value]


class BlindToCapacity(BlindTo):
    part = 3


class BlindToPrefer(BlindTo):
    part = 4


@contextmanager
def planted(name: str) -> Iterator[Make]:
    """The machine to build, with what it calls exchanged meanwhile."""
    if name in MACHINES:
        yield MACHINES[name]
        return
    where, what, by = EXCHANGED[name]
    with patch.object(where, what, by):
        yield PlacementMachine


MACHINES: dict[str, Make] = {
    "no_rest": NoRest,
    "no_turns": NoTurns,
    "no_settling": NoSettling,
    "no_calm": NoCalm,
    "no_maintenance": NoMaintenance,
    "waits_for_ever": WaitsForEver,
    "tries_all_the_time": TriesAllTheTime,
    "never_moves": NeverMoves,
    "no_spread": NoSpread,
    "forgets_operator": ForgetsOperator,
}
EXCHANGED: dict[str, tuple[Any, str, Any]] = {
    "names_only": (machine, "orders", _names_only),
    "drained_may": (assignment, "why_not", _drained_may),
    "no_avoid": (assignment, "_pairs", _without("avoid")),
    "no_with": (assignment, "_pairs", _without("together")),
    "close_is_far": (plan, "Assignment", CloseIsFar),
    "no_capacity": (plan, "Assignment", BlindToCapacity),
    "no_prefer": (plan, "Assignment", BlindToPrefer),
}
CAUGHT_BY = {
    "no_rest": "W6",
    "no_turns": "W4",
    "no_settling": "W5",
    "no_calm": "W4",
    "no_maintenance": "W7",
    "waits_for_ever": "W4",
    "tries_all_the_time": "W6",
    "never_moves": "W3",
    "forgets_operator": "W2",
    "names_only": "W8",
    "drained_may": "W9",
    "no_avoid": "W3",
    "no_with": "W3",
    "close_is_far": "W6",
    "no_capacity": "W3",
    "no_prefer": "W3",
    "no_spread": "W3",
}
FIRST_SEEDS = {
    "no_rest": 3,
    "no_turns": 2,
    "no_settling": 2,
    "no_calm": 2,
    "no_maintenance": 28,
    "waits_for_ever": 5,
    "tries_all_the_time": 5,
    "never_moves": 0,
    "forgets_operator": 4,
    "names_only": 2,
    "drained_may": 7,
    "no_avoid": 79,
    "no_with": 31,
    "close_is_far": 0,
    "no_capacity": 13,
    "no_prefer": 103,
    "no_spread": 0,
}
"""The trial that shows each."""
