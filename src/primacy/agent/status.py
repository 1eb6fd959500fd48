"""What a node shows of itself: the one value that the control API, the other nodes, metrics and hooks are told from.

It reads, and changes nothing: what a node does stands in `lifecycle.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from primacy.agent.chosen import Chosen
from primacy.agent.meter import Meter
from primacy.agent.peers import Peers
from primacy.control import Heard, NodeStatus
from primacy.election.model import View
from primacy.node.clock import Clock
from primacy.settings.schema import Settings
from primacy.supervise.containment import containment_sentence
from primacy.supervise.probes import HealthProbes
from primacy.supervise.start_gate import StartGate
from primacy.supervise.workload import Performer


@dataclass(eq=False)
class StatusSource:
    """Makes the status of one node from its parts."""

    settings: Settings
    clock: Clock
    chosen: Chosen
    peers: Peers
    workload: Performer
    gate: StartGate
    health: HealthProbes
    meter: Meter
    at_most_one: bool
    others: Mapping[str, Heard] = field(default_factory=dict)
    """What the others say of themselves; nobody does to a node that is alone."""
    ending: bool = False
    """It was asked to end."""
    _told: tuple[Any, ...] = ()

    def status(self) -> NodeStatus:
        now_ms, workload, strategy = self.clock.now_ms(), self.workload.view(), self.chosen.strategy
        transport, configs = self.peers.transport, self.chosen.can.configs
        config, config_also = configs() if configs is not None else (strategy.seat.membership.hash, "")
        others = {**self.chosen.can.seen_in_store(now_ms, workload.kind), **self.others}
        return NodeStatus(
            settings=self.settings,
            node=strategy.seat.node,
            view=self._view(now_ms),
            workload=workload,
            heard_ms=self._heard_ms(now_ms, others),
            counters=self._counters(),
            now_ms=now_ms,
            wall_ms=self.clock.wall_ms(),
            ending=self.ending,
            health=self.health.sentence,
            containment=containment_sentence(workload.containment, workload.containment_why, workload.way)
            if workload.containment
            else "",
            approval_term=self.gate.approval_term,
            preceding_term=strategy.preceding_term,
            others=others,
            troubles=transport.troubles if transport is not None else (),
            config=config,
            config_also=config_also,
            boot=strategy.seat.boot,
            links=self.peers.links(),
            meters=self.meter.readings(),
            listed=self.peers.listed(),
            register=self.chosen.can.register(),
            asking=self.peers.asking(),
            at_most_one=self.at_most_one,
        )

    def has_changed(self) -> bool:
        """Whether there is something worth telling since this was last asked: without the cost of a whole status."""
        strategy, workload = self.chosen.strategy, self.workload.view()
        now = (
            strategy.role,
            strategy.term,
            strategy.leader,
            self.chosen.can.recovering(),
            strategy.paused,
            strategy.healthy,
            workload.state,
            workload.pid,
            self.gate.gate.phase,
            self.chosen.can.register(),
        )
        told, self._told = self._told, now
        return now != told

    def _view(self, now_ms: int) -> View:
        """With what a start waits for on purpose (G8), of which bully, ring and a user's own strategy know nothing."""
        view, node = self.chosen.strategy.view(now_ms), self.chosen.strategy.seat.node
        if view.waits_for or not self.gate.waits:
            return view
        approval = f"an approval: primacy approve {node} --term {self.gate.approval_term}"
        fence = "its fence command to succeed: run.fence_command; the log says how its tries ended"
        return view._replace(waits_for=approval if self.gate.approval_term else fence)

    def _counters(self) -> dict[str, int]:
        counted = dict(self.workload.counters())
        if self.peers.transport is not None:
            counted.update(self.peers.transport.counters)
        if self.chosen.stored is not None:
            counted.update(self.chosen.stored.counters)
        return counted

    def _heard_ms(self, now_ms: int, others: Mapping[str, Heard]) -> dict[str, int]:
        """In the election; where that hears nobody, from what each says of itself or the store tells of it."""
        heard = self.chosen.can.heard
        if heard is None:
            return {name: now_ms - each.at_ms for name, each in others.items()}
        return {name: now_ms - at_ms for name, at_ms in heard().items()}
