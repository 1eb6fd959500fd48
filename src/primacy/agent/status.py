"""What an agent shows of itself: to commands and the dashboard, to the other nodes, to whoever cares for its work.

It reads, and changes nothing: what a node does stands in `lifecycle.py`, on top of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primacy.agent.assemble import addresses
from primacy.agent.gossip import Gossip
from primacy.agent.integrations import Integrations
from primacy.agent.meter import Meter
from primacy.agent.stored import Stored
from primacy.control import Heard, NodeStatus
from primacy.election.guarantees import Guarantees
from primacy.election.model import Role, View
from primacy.node.clock import Clock
from primacy.settings.schema import Settings
from primacy.slots.where import names_no_host, reached
from primacy.supervise.containment import containment_sentence
from primacy.supervise.start_gate import StartGate
from primacy.supervise.vocabulary import State
from primacy.supervise.workload import Performer
from primacy.transport import Transport

if TYPE_CHECKING:  # each is loaded by those nodes only that need it
    from primacy.agent.chosen import AnyStrategy, Capabilities
    from primacy.election.ranked.strategy import RankStrategy
    from primacy.membership.manager import HttpTransport


class AgentStatus:
    """The parts of an agent that are read, and how."""

    settings: Settings
    node: str
    clock: Clock
    strategy: AnyStrategy
    can: Capabilities
    promise: Guarantees
    workload: Performer
    gate: StartGate
    integrations: Integrations
    meter: Meter
    transport: Transport | None
    stored: Stored | None
    gossip: Gossip | None
    ranked: RankStrategy | None
    manager: HttpTransport | None
    """Of bully and ring: the strategy, and what its nodes speak through."""
    ending: bool

    def names(self) -> tuple[str, ...]:
        """The nodes as they are listed now."""
        listed = self.ranked.membership if self.ranked is not None else self.strategy.seat.membership
        return listed.ids

    def listed(self) -> tuple[tuple[str, str, str], ...]:
        """Id, kind and address of each node of a list that grows by joining; of a fixed one the settings know it."""
        if self.ranked is None or self.manager is None:
            return ()
        kinds = {member.id: str(member.kind) for member in self.ranked.membership.members}
        return tuple((e.node, kinds.get(e.node, "voter"), e.addr) for e in self.manager.member_list.listed)

    def role(self) -> Role:
        return self.strategy.role

    def view(self) -> View:
        return self.strategy.view(self.clock.now_ms())

    def workload_state(self) -> State:
        return self.workload.state

    def pid(self) -> int:
        return self.workload.view().pid

    def preceding_term(self) -> int:
        return self.strategy.preceding_term

    def running_elsewhere(self) -> tuple[str, int]:
        others = self.gossip.others if self.gossip is not None else {}
        ran = [
            (name, heard.summary.term)
            for name, heard in others.items()
            if heard.summary.role == Role.LEADER and heard.summary.workload_state == State.RUNNING
        ]
        return max(ran, key=lambda each: each[1], default=("", 0))

    def status(self) -> NodeStatus:
        now_ms, workload = self.clock.now_ms(), self.workload.view()
        transport = self.transport
        return NodeStatus(
            settings=self.settings,
            node=self.node,
            view=self.strategy.view(now_ms),
            workload=workload,
            heard_ms=self._heard_ms(now_ms),
            counters=self._counters(),
            now_ms=now_ms,
            wall_ms=self.clock.wall_ms(),
            ending=self.ending,
            health=self.integrations.health.sentence,
            containment=containment_sentence(workload.containment, workload.containment_why, workload.way)
            if workload.containment
            else "",
            approval_term=self.gate.approval_term,
            others=self._others(now_ms),
            troubles=transport.troubles if transport is not None else (),
            config=self.strategy.seat.membership.hash,
            boot=self.strategy.seat.boot,
            links=self.links(),
            meters=self.meter.readings(),
            listed=self.listed(),
            at_most_one=self.promise.at_most_one,
        )

    def _counters(self) -> dict[str, int]:
        counted = dict(self.workload.counters())
        if self.transport is not None:
            counted.update(self.transport.counters)
        if self.stored is not None:
            counted.update(self.stored.counters)
        return counted

    def _heard_ms(self, now_ms: int) -> dict[str, int]:
        if self.can.heard is None:
            return {name: now_ms - heard.at_ms for name, heard in self._others(now_ms).items()}
        return {name: now_ms - at_ms for name, at_ms in self.can.heard().items()}

    def _others(self, now_ms: int) -> dict[str, Heard]:
        """What each says of itself; of the holder of a lease, if it says nothing, what its row says."""
        told = self.gossip.others if self.gossip is not None else {}
        return {**self.can.seen_in_store(now_ms, self.workload.view().kind), **told}

    def changing(self) -> tuple[Any, ...]:
        """What is worth telling the others soon, without the cost of a whole status."""
        strategy, workload = self.strategy, self.workload.view()
        return (
            strategy.role,
            strategy.term,
            strategy.leader,
            self.can.muted(),
            strategy.paused,
            strategy.healthy,
            workload.state,
            workload.pid,
            self.gate.gate.phase,
        )

    def hold_left_ms(self) -> int:
        return self.can.hold_left_ms(self.clock.now_ms())

    def links(self) -> dict[str, str]:
        others = [name for name in self.names() if name != self.node]
        return {name: self.transport.links.way(name) for name in others} if self.transport is not None else {}

    def clients_find(self, node: str) -> str:
        """Where the slots of another node are: as it said itself, or by the file that all have; empty if unknown."""
        if not node:
            return ""
        if self.manager is not None:
            others = self.manager.member_list.others
            return next((reached(each.data, each.addr) for each in others if each.node == node), "")
        listed = self.settings.cluster.manager.nodes.get(node)
        listens = self.settings.slots.addr
        return reached(listens, listed.addr) if listed is not None and names_no_host(listens) else ""

    def where(self) -> str:
        if self.manager is not None:
            from primacy.agent.managed import where

            return where(self.settings, self.manager)
        return addresses(self.settings, self.node)
