"""Every order of events without clocks, breadth first: nodes with a register of members, a few changes and losses.

As in `walks.py`, clocks stand still and every message that was ever sent may arrive at any later moment, any number of
times, or never. So a state is what the nodes have and which messages there are; nothing is ever under way for long.
Woken a few times, asked for a few changes, crashed and robbed of their memory a few times, all orders of it are tried.
The search goes by the number of events, so the first violation that it finds is a shortest one.

    python -m primacy.sim.model.untimed --nodes 3 --voters 2 --changes 1 --losses 1
"""

from __future__ import annotations

import gc
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from primacy.sim.model.history import sentence
from primacy.sim.model.settings import RegisterSetting
from primacy.sim.model.states import BoundedModel, Event
from primacy.sim.model.values import DOWN, Move, Packet
from primacy.sim.model.world import WHOLE


class UntimedBounds(NamedTuple):
    """How far a search goes."""

    states: int = 100_000
    depth: int = 1_000
    terms: int = 2
    wakes: int = 6
    """How often nodes are woken, in one history: each time one campaigns, asks, or sends a heartbeat."""
    changes: int = 1
    losses: int = 0
    crashes: int = 0


class Used(NamedTuple):
    """What of the bounds a history has used up."""

    wakes: int = 0
    changes: int = 0
    losses: int = 0
    crashes: int = 0


class UntimedState(NamedTuple):
    nodes: tuple[int, ...]
    sent: tuple[int, ...]
    """Every message that was ever sent."""
    ledger: int
    used: Used


class UntimedResult(NamedTuple):
    """What a search came to."""

    states: int
    events: int
    depth: int
    """All histories of up to so many events were walked."""
    seconds: float
    complete: bool
    """Nothing is left within the bounds."""
    wrong: str = ""
    history_lines: tuple[str, ...] = ()


class UntimedSearch:
    """All states, by the number of events."""

    def __init__(self, setting: RegisterSetting, bounds: UntimedBounds) -> None:
        self.bounds = bounds
        self.model = BoundedModel(setting)
        self.world, self.numbers = self.model.world, self.model.numbers
        first = self.model.first
        sent = tuple(sorted({*first.under_way, *first.coming}))
        self.first = UntimedState(first.nodes, sent, first.ledger, Used())
        self.known: dict[UntimedState, tuple[UntimedState, Event] | None] = {self.first: None}
        self.events = 0

    def go(self) -> UntimedResult:
        began = time.perf_counter()
        level, depth = [self.first], 0
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            while level and depth < self.bounds.depth:
                after: list[UntimedState] = []
                for state in level:
                    for event, found, wrong in self._nexts(state):
                        self.events += 1
                        if wrong:
                            lines = (*self._told(state), sentence(self.model, event))
                            return self._result(depth, began, wrong, lines)
                        if found not in self.known:
                            self.known[found] = (state, event)
                            after.append(found)
                    if len(self.known) >= self.bounds.states:
                        return self._result(depth, began)
                level, depth = after, depth + 1
        finally:
            gc.enable()
            gc.unfreeze()
        return self._result(depth, began, complete=not level)

    def _result(
        self, depth: int, began: float, wrong: str = "", lines: tuple[str, ...] = (), *, complete: bool = False
    ) -> UntimedResult:
        return UntimedResult(len(self.known), self.events, depth, time.perf_counter() - began, complete, wrong, lines)

    def _told(self, state: UntimedState) -> tuple[str, ...]:
        lines: list[str] = []
        before = self.known[state]
        while before is not None:
            state, event = before
            lines.append(sentence(self.model, event))
            before = self.known[state]
        return tuple(reversed(lines))

    # --- what may follow ----------------------------------------------------------------------------------------------

    def _nexts(self, state: UntimedState) -> Iterator[tuple[Event, UntimedState, str]]:
        world, used, bounds = self.world, state.used, self.bounds
        for item in state.sent:
            packet = self.numbers.items[item]
            assert isinstance(packet, Packet)
            number = state.nodes[packet.to]
            move = world.once(world.hear, number, 0, item, WHOLE, False)
            if move.after != number or move.items or move.facts:
                yield from self._after(state, packet.to, move, ("hear", item), used)
        for i, number in enumerate(state.nodes):
            node = self.numbers.nodes[number]
            if node.machine == DOWN:
                yield from self._after(state, i, world.once(world.start, number, 0), ("restart", i), used)
                continue
            if used.wakes < bounds.wakes:
                move = world.once(world.wake, number, 0, WHOLE, False)
                yield from self._after(state, i, move, ("wake", i), used._replace(wakes=used.wakes + 1))
            if used.losses < bounds.losses and node.ballot is not None:
                more = used._replace(losses=used.losses + 1)
                yield from self._after(state, i, world.once(world.forget, number, 0), ("forget", i), more)
            if used.crashes < bounds.crashes:
                more = used._replace(crashes=used.crashes + 1)
                yield from self._after(state, i, world.once(world.lose_power, number, 0), ("power", i), more)
            if used.changes < bounds.changes and self.numbers.leads[node.machine]:
                yield from self._asked(state, i)

    def _asked(self, state: UntimedState, i: int) -> Iterator[tuple[Event, UntimedState, str]]:
        used = state.used._replace(changes=state.used.changes + 1)
        number = state.nodes[i]
        for which, given in enumerate(self.model.requests):
            move = self.world.once(self.world.request, number, 0, given)
            if move.after != number:
                yield from self._after(state, i, move, ("request", i, which), used)

    def _after(
        self, state: UntimedState, i: int, move: Move, event: Event, used: Used
    ) -> Iterator[tuple[Event, UntimedState, str]]:
        nodes = (*state.nodes[:i], move.after, *state.nodes[i + 1 :])
        packets = {item for item in move.items if isinstance(self.numbers.items[item], Packet)}
        sent = tuple(sorted(packets.union(state.sent))) if packets else state.sent
        ledger, wrong = self.model.judge(state.nodes, state.ledger, move.facts) if move.facts else (state.ledger, "")
        ballot = self.numbers.nodes[move.after].ballot
        if ballot is None or ballot.term <= self.bounds.terms:
            yield event, UntimedState(nodes, sent, ledger, used), wrong


def report(setting: RegisterSetting, bounds: UntimedBounds, found: UntimedResult) -> list[str]:
    """What a person is told of a search."""
    names, voters = len(setting.names), len(setting.voters)
    scope = f"{names} nodes, {voters} of them voters at first, {bounds.terms} terms, {bounds.wakes} times woken"
    lines = [
        f"{scope}, {bounds.changes} changes, {bounds.losses} memories lost, {bounds.crashes} crashes",
        f"distinct states   {found.states:>12,}",
        f"events            {found.events:>12,}",
        f"violations        {1 if found.wrong else 0:>12}",
        f"time              {found.seconds:>10.1f} s",
        "complete" if found.complete else f"complete for every history of up to {found.depth} events",
    ]
    return [*lines, "", *found.history_lines, f"VIOLATION {found.wrong}"] if found.wrong else lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m primacy.sim.model.untimed", description="Every order, without clocks.")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--voters", type=int, default=2, help="who votes at the beginning; the others are blank")
    for name, value in UntimedBounds()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--pre-vote", action="store_true", help="candidates ask first whether others would vote")
    parser.add_argument("--complete", action="store_true", help="exit 1 unless nothing is left within the bounds")
    given = parser.parse_args(arguments)
    if not 1 <= given.voters <= given.nodes:
        parser.error(f"--voters {given.voters}: between 1 and the {given.nodes} nodes")
    setting = RegisterSetting(given.voters, nodes=given.nodes, clocks="none", pre_vote=given.pre_vote)
    bounds = UntimedBounds(**{name: getattr(given, name) for name in UntimedBounds._fields})
    found = UntimedSearch(setting, bounds).go()
    print("\n".join(report(setting, bounds, found)))
    return 1 if found.wrong or (given.complete and not found.complete) else 0


if __name__ == "__main__":
    sys.exit(main())
