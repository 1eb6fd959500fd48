"""Placement in an agent with several elections: what it knows becomes a view, and what its machine says is done (W).

It looks once a second, and when its machine wants to. What agents tell each other goes over two of their elections.
Drained and in maintenance an agent stays over a restart: files in its folder say so. None of this is part of safety:
it tells elections who should campaign first, pauses where this node stands aside, and asks for transfers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from primacy.agent.disk_orders import DiskOrders
from primacy.agent.state import is_paused, keep
from primacy.control import NodeStatus
from primacy.control.placement import AgentRequest, AgentRow, placement_document, read_row, request_of, row_of
from primacy.control.requests import FRESH_MS, order_of, unable
from primacy.election.inputs import CampaignOrder, Pause, Resume, StepDown
from primacy.election.model import Kind, Role
from primacy.errors import NotReached, PrimacyError, Refused
from primacy.loop import timer
from primacy.node.clock import Clock
from primacy.node.folder import Folder
from primacy.placement.machine import PlacementMachine
from primacy.placement.model import ElectionSeen, Intent, NodeSeen, Placement, View
from primacy.placement.vocabulary import Announce, DeadlinePassed, Effect, Move, MoveEnded, Order, Rebalance, Seen
from primacy.settings.elections import of_election
from primacy.settings.schema import Settings
from primacy.settings.timing import placement_timing

if TYPE_CHECKING:
    from primacy.agent.lifecycle import Agent

LOOK_MS = 1_000
TELL_MS = 900
HEARD_MS = 5_000
"""An agent that said nothing for so long is not heard: it speaks once a second."""
CARRIERS = 2
"""Elections that carry what agents say: one may be away on the other side."""
DRAINED, MAINTENANCE = "drained", "maintenance"
"""Files in the agent's folder."""


class Known(NamedTuple):
    """What another agent said last."""

    row: AgentRow
    at_ms: int


class Placing:
    """One agent's part in placing elections."""

    def __init__(
        self,
        node: str,
        clock: Clock,
        folder: Folder,
        agents: Callable[[], Mapping[str, Agent]],
        say: Callable[[str], None],
    ) -> None:
        """`agents`: of the elections that take part here, now."""
        self.node = node
        self.clock = clock
        self.folder = folder
        self.agents = agents
        self.say = say
        self.settings: Settings
        self.machine: PlacementMachine
        self.disk = DiskOrders(f"the agent of node {node}", say)
        self.drained = _has(folder, DRAINED)
        self.maintenance = _has(folder, MAINTENANCE)
        self.intent: Intent | None = None
        self.known: dict[str, Known] = {}
        self.orders: dict[str, Order] = {}
        self._told: dict[str, tuple[Agent, tuple[str, ...]]] = {}
        """The order that each election was told, and to which start of it."""
        self._aside: dict[str, Agent] = {}
        """Elections that were paused because this node stands aside there."""
        self._moving: tuple[str, str] | None = None
        self._began_ms = clock.now_ms()
        self._told_ms = 0
        self._timer = timer(self._look)
        self._closed = False

    def use(self, settings: Settings) -> None:
        """The file as it is now."""
        self.settings = settings
        each = [of_election(settings, name) for name in settings.elections]
        from primacy.agent.assemble import holding_times  # noqa: PLC0415  (it loads every strategy)

        slowest = max((holding_times(one) for one in each), key=lambda timing: timing.hold_ms)
        timing = placement_timing(slowest, max(one.run.stop_ms for one in each))
        before: PlacementMachine | None = getattr(self, "machine", None)
        if before is None or before.timing != timing:
            self.machine = PlacementMachine(self.node, timing)

    def aside(self, election: str) -> str:
        """Why this node does not campaign there, from the start of that election on."""
        entry = self.settings.elections.get(election)
        if entry is not None and entry.placement.only and self.node not in entry.placement.only:
            return f"nothing: placement.only of {election} does not name {self.node}"
        return f"the end of its drain: primacy undrain {self.node}" if self.drained else ""

    def start(self) -> None:
        self._timer.set(LOOK_MS / 1_000)

    def close(self) -> None:
        self._closed = True
        self.disk.close()
        self._timer.end()

    # --- what is known ------------------------------------------------------------------------------------------------

    def view(self) -> View:
        now_ms = self.clock.now_ms()
        talking = {name: agent for name, agent in self.agents().items() if agent.gossip is not None}
        statuses = {name: agent.shown.status() for name, agent in talking.items()}
        names = sorted({self.node, *self.known, *(node for status in statuses.values() for node in _kinds(status))})
        nodes = tuple(self._node(now_ms, name) for name in names)
        placed = self.settings.elections
        elections = tuple(
            ElectionSeen(
                name,
                placement_of(placed[name].placement) if name in placed else Placement(),
                _leader(status),
                tuple((node, why) for node in names if (why := self._why_not(now_ms, status, node))),
            )
            for name, status in sorted(statuses.items())
        )
        heard = {node.node for node in nodes if node.heard}
        maintenance = self.maintenance or any(k.row.maintenance for n, k in self.known.items() if n in heard)
        return View(nodes, elections, maintenance)

    def _node(self, now_ms: int, name: str) -> NodeSeen:
        if name == self.node:
            return NodeSeen(name, True, now_ms - self._began_ms, self._weight(), self.drained, self.intent)
        known = self.known.get(name)
        if known is None:
            return NodeSeen(name, heard=False)
        age_ms, row = now_ms - known.at_ms, known.row
        return NodeSeen(name, age_ms <= HEARD_MS, row.up_ms + age_ms, row.weight, row.drained, row.intent)

    def _weight(self) -> int:
        listed = self.settings.cluster.manager.nodes.get(self.node)
        return listed.weight if listed is not None else 1

    def _why_not(self, now_ms: int, status: NodeStatus, node: str) -> str:
        kind = _kinds(status).get(node)
        if kind is None:
            return "is no member of it"
        if kind != Kind.VOTER:
            return f"is a {kind}"
        if node == self.node:
            if status.settings.election.name in self._aside:
                return ""  # drained, or not in `only`: the view says so itself
            role = status.view.role
            if role in (Role.PAUSED, Role.RECOVERING, Role.OBSERVER):
                return f"is {role}"
            return "" if status.health == "ok" else f"is not well: {status.health}"
        heard = status.others.get(node)
        if heard is None or now_ms - heard.at_ms > HEARD_MS:
            return "does not take part in it now"
        known = self.known.get(node)
        if heard.summary.role == Role.PAUSED and known is not None and known.row.drained:
            return ""
        return unable(heard.summary)

    def heard(self, sender: str, row: list[Any]) -> None:
        said = read_row(row)
        if said is None or sender == self.node:
            return
        known = self.known.get(sender)
        again = known is not None and said.up_ms < known.row.up_ms
        if known is None or again or said.sent_ms > known.row.sent_ms:
            self.known[sender] = Known(said, self.clock.now_ms())

    # --- what is done -------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._closed:
            return
        now_ms = self.clock.now_ms()
        for name, agent in self.agents().items():
            if agent.began_aside:  # an operator may have ended it before this first look
                agent.began_aside, self._aside[name] = False, agent
            if agent.gossip is None:
                self._alone(name, agent)
                continue
            self._tell_order(name, agent)
        self._see_move()
        self._perform(self.machine.step(now_ms, Seen(self.view())))
        if self.machine.deadline_ms <= self.clock.now_ms():
            self._perform(self.machine.step(self.clock.now_ms(), DeadlinePassed()))
        if now_ms - self._told_ms >= TELL_MS:
            self._tell()
        wait_ms = min(LOOK_MS, max(20, self.machine.deadline_ms - self.clock.now_ms()))
        self._timer.set(wait_ms / 1_000)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Order():
                    self.orders[effect.election] = effect
                    if (agent := self.agents().get(effect.election)) is not None:
                        self._tell_order(effect.election, agent)
                case Announce(intent):
                    self.intent = intent
                    self._tell()
                case Move():
                    self._move(effect)
                case _:
                    assert_never(effect)

    def _tell(self) -> None:
        """To all nodes, over the first elections that have any."""
        now_ms = self._told_ms = self.clock.now_ms()
        up_ms = now_ms - self._began_ms
        row = row_of(AgentRow(now_ms, up_ms, self._weight(), self.drained, self.maintenance, self.intent))
        carriers = [agent.gossip for _, agent in sorted(self.agents().items()) if agent.gossip is not None]
        for gossip in carriers[:CARRIERS]:
            for name in gossip.names:
                gossip.transport.tell(name, row)  # at once: what may wait takes the place of what waits already

    def _tell_order(self, name: str, agent: Agent) -> None:
        """Once to each start of it, and whenever it changes."""
        order = self.orders.get(name)
        if order is None:
            return
        if self._told.get(name) != (agent, order.nodes):
            self._told[name] = (agent, order.nodes)
            agent.tell(CampaignOrder(order.nodes))
        moves = self._moving is not None and self._moving[0] == name
        leads = agent.strategy.role is Role.LEADER  # it goes on until it can hand over: what nobody can lead stays (W9)
        resumed = agent.strategy.role in (Role.FOLLOWER, Role.CANDIDATE)
        if order.aside and not leads and not moves and (resumed or self._aside.get(name) is not agent):
            self._aside[name] = agent
            agent.tell(Pause(self.aside(name)))
        elif not order.aside and self._aside.pop(name, None) is agent and not is_paused(agent.folder):
            agent.tell(Resume())

    def _alone(self, name: str, agent: Agent) -> None:
        """On a store without a list nodes do not speak to each other: it can be left to them, and to nobody by name."""
        self.orders[name] = Order(name, (), self.aside(name))
        if self.orders[name].aside and self._aside.get(name) is not agent:
            self._aside[name] = agent
            agent.tell(Pause(self.aside(name)))
        elif not self.orders[name].aside and self._aside.pop(name, None) is agent and not is_paused(agent.folder):
            agent.tell(Resume())

    def _move(self, move: Move) -> None:
        agent = self.agents().get(move.election)
        self._moving = (move.election, move.to)
        if agent is None:
            self._over(moved=False)
            return
        try:
            given = order_of("transfer", {"to": move.to}, agent.shown.status())
        except PrimacyError as error:
            self.say(f"{move.election} was not handed over to {move.to} ({move.reason}): {error}")
            self._over(moved=False)
            return
        assert isinstance(given, StepDown), "a transfer is a step-down with a successor"
        self.say(f"hands {move.election} over to {move.to}: {move.reason}")
        agent.tell(given._replace(reason=f"placement: {move.reason}"))

    def _see_move(self) -> None:
        """How it went: another node leads, or this one leads on after it had tried."""
        if self._moving is None:
            return
        name, _ = self._moving
        agent = self.agents().get(name)
        if agent is None:
            self._over(moved=False)
        elif agent.strategy.role is not Role.LEADER and agent.strategy.leader not in ("", self.node):
            self._over(moved=True)
        elif not self.machine.moving:
            self._moving = None

    def _over(self, *, moved: bool) -> None:
        assert self._moving is not None
        name, self._moving = self._moving[0], None
        self._perform(self.machine.step(self.clock.now_ms(), MoveEnded(name, moved)))

    # --- what operators ask -------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        orders = {name: order.nodes for name, order in self.orders.items()}
        return {"node": self.node, **placement_document(self.view(), orders)}

    async def ask(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """For this agent, for another, or for all that are heard. Returns who was told, and who could not be."""
        view = self.view()
        request = request_of(name, body, tuple(node.node for node in view.nodes))
        named = (request.node,) if request.node else tuple(node.node for node in view.nodes if node.heard)
        told, missed = [], {}
        for node in named:
            try:
                await self._ask_one(node, request)
                told.append(node)
            except PrimacyError as error:
                if request.node:
                    raise
                missed[node] = str(error)
        return {"told": told, "missed": missed}

    async def _ask_one(self, node: str, request: AgentRequest) -> None:
        if node == self.node:
            await self.carry_out(request.name, request.body, "")
            return
        now_ms = self.clock.now_ms()
        for _, agent in sorted(self.agents().items()):
            heard = agent.shown.status().others.get(node)
            if agent.gossip is not None and heard is not None and now_ms - heard.at_ms <= FRESH_MS:
                await agent.gossip.pass_on(node, request.name, request.body)
                return
        raise NotReached(f"node {node} is not heard in any election: say it there, or when it is up again")

    async def carry_out(self, name: str, body: dict[str, Any], said_at: str) -> None:
        """On this node."""
        names = (self.node,) if name in ("drain", "undrain") else ()
        request = request_of(name, body, names)
        by = f" (said at {said_at})" if said_at else ""
        match request.name:
            case "drain" | "undrain":
                await self._set(DRAINED, on=request.name == "drain")
                self.say(f"an operator asks to {request.name} node {self.node}{by}")
            case "maintenance":
                await self._set(MAINTENANCE, on=request.on)
                self.say(f"an operator says: maintenance {'begins' if request.on else 'is over'}{by}")
            case _:
                self.say(f"an operator asks for a rebalance{by}")
                self._perform(self.machine.step(self.clock.now_ms(), Rebalance()))
                self._timer.set(0)
                self._tell()

    async def _set(self, file: str, *, on: bool) -> None:
        """Raises `Refused` if the disk does not take it, and nothing has changed, or if it takes too long: then it
        changes when the disk takes it."""

        def kept() -> None:
            if file == DRAINED:
                self.drained = on
            else:
                self.maintenance = on
            if not self._closed:
                self._timer.set(0)
                self._tell()

        late = f"{'this' if on else 'the end of this'} begins when the disk takes it; see: primacy placement"
        await self.disk.change(self.folder, partial(_keep if on else _forget, file), late, kept)


def placement_of(said: Any) -> Placement:
    """The file's words as the machine's."""
    return Placement(said.only, said.avoid, said.with_, said.capacity, said.prefer, said.spread)


def _kinds(status: NodeStatus) -> dict[str, str]:
    from primacy.control.cluster import known_nodes  # noqa: PLC0415

    return dict(known_nodes(status))


def _leader(status: NodeStatus) -> str:
    return status.node if status.view.role is Role.LEADER else status.view.leader


def _keep(file: str, folder: Folder) -> None:
    try:
        keep(folder, file, b"primacy says so: see primacy placement\n")
    except OSError as error:
        raise Refused(f"{folder.path(file)}: {error.strerror}; nothing was changed") from None


def _forget(file: str, folder: Folder) -> None:
    try:
        if _has(folder, file):
            os.unlink(file, dir_fd=folder.handle)
            folder.sync()
    except OSError as error:
        raise Refused(f"{folder.path(file)}: {error.strerror}; nothing was changed") from None


def _has(folder: Folder, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder.handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
