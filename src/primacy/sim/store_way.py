"""The way to the store and back: requests travel, are performed on arrival, and are answered, or are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from primacy.election.events import Code
from primacy.election.inputs import StoreAnswered
from primacy.election.store import Look, ReleaseRow, StoreAnswer
from primacy.sim.facts import Kind

if TYPE_CHECKING:
    from primacy.sim.node import Node
    from primacy.sim.world import World


class StoreWay:
    """One for all nodes; a node whose `cut` names "store" does not reach it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.up = True
        self.hangs = False
        """What arrives is neither performed nor answered before it goes on."""
        self._held: list[Callable[[], None]] = []

    def ask(self, node: Node, number: int, request: Any) -> None:
        """The request travels, is performed atomically on arrival, and its answer travels back, or does not."""
        boot, weather, chance = node.boot, self.world.weather, self.world.chance

        def answer(said: StoreAnswer) -> Callable[[], None]:
            return lambda: self._answer(node, boot, number, said)

        def arrive() -> None:
            if self.hangs:
                self._held.append(arrive)
                return
            if not self.up or "store" in node.cut or chance.random() < weather.store_fails:
                self._after(0.1, weather.store_ms, answer(StoreAnswer(False)))
                return
            assert self.world.store is not None
            said = self.world.store.perform(request)
            if chance.random() < weather.store_answer_lost:
                if said.done:
                    self.world.emit(Kind.EVENT, node.name, 0, Code.ANSWER_LOST)
                self._after(1, 20 * weather.store_ms, answer(StoreAnswer(False)))
                return
            self._after(0.1, weather.store_ms, answer(said))

        self._after(0.1, weather.store_ms, arrive)

    def go_on(self) -> None:
        """What has arrived meanwhile is done now, late as it is: whoever asked may have given up on it, or be dead."""
        self.hangs = False
        held, self._held = self._held, []
        for arrive in held:
            self._after(0.1, self.world.weather.store_ms, arrive)

    def _after(self, least_ms: float, most_ms: float, then: Callable[[], None]) -> None:
        self.world.after(self.world.draw_ms(least_ms, most_ms), then)

    def _answer(self, node: Node, boot: int, number: int, answer: StoreAnswer) -> None:
        if node.machine is not None and node.boot == boot:
            self.world.give(node, StoreAnswered(number, answer))

    def release_row(self, node: Node, token: int, successor: str) -> None:
        """What the guard's releaser does: look, and mark the row released if it is still of this token."""
        name = self.world.lease_name

        def arrive() -> None:
            if self.hangs:
                self._held.append(arrive)
                return
            store = self.world.store
            if not self.up or store is None or "store" in node.cut:
                return
            row = store.perform(Look(name)).row
            if row is not None and row.token == token:
                store.perform(ReleaseRow(name, row.holder, row.token, row.seq, successor))

        self._after(0.1, 2 * self.world.weather.store_ms, arrive)
