"""What operators, monitors and other nodes may see of this node and ask of it: the port of the control API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from primacy.agent.disk_orders import DiskOrders
from primacy.agent.events import EventSink
from primacy.agent.peers import Peers
from primacy.agent.sentences import links_sentence, request_sentence
from primacy.agent.state import forget_pause, keep_pause
from primacy.control import Approve, MonitorSays, NodeStatus, Order, Remove
from primacy.control.requests import carry_out
from primacy.election.inputs import ChangeMembers, Input, Pause, Resume
from primacy.errors import Later, Refused
from primacy.node.folder import Folder
from primacy.settings import load
from primacy.supervise.probes import HealthProbes
from primacy.supervise.start_gate import StartGate

if TYPE_CHECKING:
    from primacy.agent.gossip import Gossip


@dataclass(eq=False)
class Operations:
    """One node's. Nothing is decided here: a request becomes an input of the election, or of the parts around it."""

    folder: Folder
    status: Callable[[], NodeStatus]
    tell: Callable[[Input], None]
    """For the election."""
    events: EventSink
    peers: Peers
    gate: StartGate
    health: HealthProbes
    gossip: Gossip | None = None
    """None: there is no other node."""
    is_saving: Callable[[], bool] = lambda: False
    """What is told to the election now waits for its disk, and so does its answer."""

    def __post_init__(self) -> None:
        self.disk = DiskOrders(f"node {self.peers.node}", self.complain)

    def complain(self, sentence: str) -> None:
        self.events.complain(sentence)

    async def order(self, given: Order, said_at: str = "") -> None:
        """Raises `Refused` if the disk does not take what the order must leave there."""
        if isinstance(given, MonitorSays):  # what it changes is an event; that it spoke is none
            self.health.said(given.monitor, given.ok, given.detail, given.within_ms)
            return
        if self.is_saving():
            raise Later(f"node {self.peers.node} waits for its disk; say it again in a moment")
        self.disk.refuse_if_busy()
        if isinstance(given, Resume):
            late = "the node resumes as soon as the disk takes it; see: primacy status"
            await self.disk.change(self.folder, forget_pause, late, partial(self._do, given, said_at))
            return
        if isinstance(given, ChangeMembers):
            await self._check_file(given)
        self._do(given, said_at)
        if isinstance(given, Pause):
            late = "the node is paused, but perhaps only until its next start; see: primacy status"
            await self.disk.change(self.folder, keep_pause, late)

    def _do(self, given: Order, said_at: str) -> None:
        register = self.peers.chosen.can.register()
        self.events.remark("told", True, request_sentence(self.peers.node, given, said_at, register))
        if isinstance(given, Approve):
            self.gate.approve(given.term, given.by)
            return
        if isinstance(given, Remove):
            self.peers.remove(given.node)
            return
        assert not isinstance(given, MonitorSays), "a monitor is heard at once"
        self.tell(given)

    async def _check_file(self, given: ChangeMembers) -> None:
        """A member of several whose file names nobody but itself would begin a cluster of its own, should it lose its
        ballot (R12). The file is read again: it may have been written since the start."""
        settings = self.status().settings
        others = sorted({member.id for member in given.members} - {self.peers.node})
        listed = settings.cluster.manager.nodes.keys() - {self.peers.node}
        if not others or listed:
            return
        late = f"{settings.source} was not read, and nothing was changed"
        written = await self.disk.read(partial(load, settings.source, self.peers.node), late)
        if not written.cluster.manager.nodes.keys() - {self.peers.node}:
            raise Refused(
                f"the file of node {self.peers.node} names nobody but itself: without its ballot it would begin a "
                f"second cluster. First write {', '.join(others)} into {settings.source}, below cluster.manager.nodes"
            )

    async def carry_out(self, name: str, body: dict[str, Any], said_at: str) -> None:
        """What another node passes on."""
        await carry_out(name, body, self, self.events.events, said_at)

    async def pass_on(self, to: str, name: str, body: dict[str, Any]) -> str:
        assert self.gossip is not None, "alone, and another node is listed"
        return await self.gossip.pass_on(to, name, body)

    def links(self) -> dict[str, str]:
        return self.peers.links()

    def cut(self, node: str, way: str) -> None:
        if self.peers.transport is None:
            return
        self.peers.cut(node, way)
        self.events.remark("links", True, links_sentence(self.peers.node, self.links()))
