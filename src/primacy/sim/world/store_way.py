"""The way to the store and back: requests travel, are performed on arrival, and are answered, or are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from primacy.election.events import Code
from primacy.election.inputs import StoreAnswered
from primacy.election.store import Look, ReleaseRow, StoreAnswer, StoreRequest
from primacy.sim.facts import Kind
from primacy.sim.world.store import SimStore, Table

if TYPE_CHECKING:
    from primacy.sim.world.node import Node
    from primacy.sim.world.world import World


class StoreWay:
    """One for all nodes; a node whose `cut` names "store" does not reach it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.up = True
        self.hangs = False
        """What arrives is neither performed nor answered before it goes on."""
        self.aims: list[Callable[[Node, StoreRequest, StoreAnswer, Table], bool]] = []
        """Blows that wait for their moment: each is shown every answer, with the table that it showed, until it says
        that it has struck."""
        self._held: list[Callable[[], None]] = []
        self._links: dict[str, tuple[tuple[int, int], int]] = {}
        """Of each node: its start and the store's count of broken connections, and the number of its connection."""

    def _link(self, node: Node) -> int:
        """The connection on which a request leaves now: a new one after every break and every start (L5)."""
        assert node.store is not None
        made = (node.boot, node.store.breaks)
        known, number = self._links.get(node.name, (made, 1))
        if known != made:
            number = number + 1 if known[0] == node.boot else 1
        self._links[node.name] = (made, number)
        return number

    def _connect_anew(self, node: Node, link: int) -> None:
        """A request without an answer ends its connection."""
        made, number = self._links.get(node.name, ((0, 0), 0))
        if number == link and made[0] == node.boot:
            self._links[node.name] = (made, number + 1)

    def ask(self, node: Node, number: int, request: Any) -> None:
        """The request travels, is performed atomically on arrival, and its answer travels back, or does not."""
        boot, conditions, chance = node.boot, self.world.conditions, self.world.chance
        store = node.store
        assert store is not None
        link, breaks = self._link(node), store.breaks

        def fail(least_ms: float, most_ms: float) -> None:
            if node.boot == boot:
                self._connect_anew(node, link)
            self._after(least_ms, most_ms, answer(StoreAnswer(False)))

        def answer(said: StoreAnswer, table: Table | None = None) -> Callable[[], None]:
            def arrive() -> None:
                self._answer(node, boot, number, said)
                if store is not self.world.store:
                    return  # another one than blows are aimed at
                if table is not None and self.aims and node.boot == boot and node.up and not node.stopped:
                    self.aims = [aim for aim in self.aims if not aim(node, request, said, table)]

            return arrive

        def arrive() -> None:
            if self.hangs:
                self._held.append(arrive)
                return
            if not self.up or "store" in node.cut or chance.random() < conditions.store_fails:
                fail(0.1, conditions.store_ms)
                return
            if store.breaks != breaks and (store.engine.linked or chance.random() < 0.5):
                fail(0.1, conditions.store_ms)  # it was on a connection that broke; else a pool has passed it on
                return
            said = store.perform(request, link)
            if chance.random() < conditions.store_answer_lost:
                if said.done:
                    self.world.emit(Kind.EVENT, node.name, 0, Code.ANSWER_LOST)
                fail(1, 20 * conditions.store_ms)
                return
            self._after(0.1, conditions.store_ms, answer(said, store.table))

        self._after(0.1, conditions.store_ms, arrive)

    def go_on(self) -> None:
        """What has arrived meanwhile is done now, late as it is: whoever asked may have given up on it, or be dead."""
        self.hangs = False
        held, self._held = self._held, []
        for arrive in held:
            self._after(0.1, self.world.conditions.store_ms, arrive)

    def _after(self, least_ms: float, most_ms: float, then: Callable[[], None]) -> None:
        self.world.after(self.world.draw_ms(least_ms, most_ms), then)

    def _answer(self, node: Node, boot: int, number: int, answer: StoreAnswer) -> None:
        if node.machine is not None and node.boot == boot:
            self.world.give(node, StoreAnswered(number, answer))

    def release_row(self, node: Node, store: SimStore | None, token: int, successor: str) -> None:
        """What the guard's releaser does: look, and mark the row released if it is still of this token."""
        name = self.world.lease_name

        def arrive() -> None:
            if self.hangs:
                self._held.append(arrive)
                return
            if not self.up or store is None or "store" in node.cut:
                return
            row = store.perform(Look(name)).row
            if row is not None and row.token == token:
                store.perform(ReleaseRow(name, row.holder, row.token, row.seq, successor))

        self._after(0.1, 2 * self.world.conditions.store_ms, arrive)
