"""Trials whose nodes change their strategy, their store or their times, one node after the other (M1).

Every node has one of several files: raft, raft with other times, a lease, a lease in another store. Operators roll them
out, forget nodes, and take roll-outs back; everything else goes wrong as ever, at the same time. Work must never
overlap and tokens must never go back, whatever runs where. At the calm all nodes get the file of the last roll-out, and
a leader must appear.

A node may not lose its memory here: on a lease, one without memory that nobody answers takes part after one promise.
"""

from __future__ import annotations

from dataclasses import replace

from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.model import Ballot, ListRecord, Membership, MembersId, Register, Role, Seat, Strategy
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.election.remembered import Kept, for_lease, for_raft
from primacy.election.store import WAIT_MAX_MS, holder_id
from primacy.settings.timing import Timing
from primacy.settings.timing import for_lease as times_of_lease
from primacy.sim.faults import changed as fault_changed
from primacy.sim.faults.classes import CHANGING, WITH_CHANGES
from primacy.sim.trials.strategy_table import Build, bound_ms
from primacy.sim.trials.trial import Plan, Trial, _scaled, watch_ms
from primacy.sim.world import engines
from primacy.sim.world.node import Node
from primacy.sim.world.store import SimStore
from primacy.sim.world.world import World

RAFT, OTHER_TIMES, LEASE, OTHER_STORE = "raft", "raft, other times", "lease", "lease, other store"


def changing(
    stores: dict[str, SimStore],
    raft: type[RaftStrategy] = RaftStrategy,
    lease: type[LeaseStrategy] = LeaseStrategy,
    *,
    auto: bool = True,
) -> Build:
    """Nodes whose file, named by the hash of their list, says which strategy they run."""

    def build(node: Node, seat: Seat, ballot: Ballot | None) -> Strategy:  # noqa: ARG001
        file, disk = node.membership.hash, node.disk
        assert isinstance(node.timing, Timing)
        node.store = stores.get(file)
        if node.store is None:
            disk.use("raft")
            disk.ballot, disk.other = for_raft(Kept(disk.ballot, disk.other))
            known = disk.other.token_max if disk.other is not None else 0
            return raft(seat, node.timing, disk.ballot, RaftOptions(auto=auto, token_max=known))
        disk.use("lease")
        own = ListRecord(file, node.membership.voters, confirmed=False, elsewhere=True)
        disk.other, disk.ballot = for_lease(Kept(disk.other, disk.ballot), own, speaks=True)
        assert disk.ballot is not None
        dead = tuple(node.holders)
        node.holders.append(holder_id(seat.node, seat.boot))
        options = LeaseOptions(
            node.world.lease_name,
            disk.ballot.token_max,
            dead=dead,
            look_every_ms=node.timing.look_ms,
            config=file,
            lists=disk.ballot.lists,
            hold_max_ms=disk.ballot.hold_max_ms,
            left=disk.ballot.left,
        )
        return lease(seat, node.timing, options)

    return build


class ChangedTrial(Trial):
    """One trial of a cluster whose nodes get other files while it runs."""

    machines: tuple[type[RaftStrategy], type[LeaseStrategy]] = (RaftStrategy, LeaseStrategy)
    drawn = staticmethod(engines.drawn)
    """Which kind of store each of the two is."""

    def __init__(self, plan: Plan, seed: int, build: Build | None = None) -> None:
        assert plan.strategy == "raft", plan.strategy
        super().__init__(plan, seed, build)
        assert isinstance(self.timing, Timing)
        times = times_of_lease(self.timing)
        self.liveness.bound_ms += bound_ms("lease", times, len(self.names)) + 2 * self.unit_ms
        self.liveness.watch_ms = watch_ms(times, *self.stores.values())

    # --- building -----------------------------------------------------------------------------------------------------

    def _draw_first_start(self) -> str:
        drawn = super()._draw_first_start()
        self.first_file = self.chance.choice((RAFT, RAFT, LEASE))
        return drawn if self.first_file == RAFT else "auto"

    def _build(self) -> Build:
        assert isinstance(self.timing, Timing)
        chance = self.chance
        wait_ms = 2 * self.timing.wait_ms
        self.stores = {}
        for file in (LEASE, OTHER_STORE):
            engine, settled = self.drawn(chance, f"{self.seed}/{file}"), chance.random() < 0.5
            if engine.objects and wait_ms > WAIT_MAX_MS:
                engine = engines.ETCD  # some of the times that are drawn are too long for the other
            longest_ms = WAIT_MAX_MS if engine.objects else wait_ms
            self.stores[file] = SimStore(engine, settled=settled, wait_max_ms=longest_ms)
        return changing(self.stores, *self.machines, auto=self.first_start == "auto")

    def _make_world(self, build: Build, store: SimStore | None) -> World:  # noqa: ARG002
        return super()._make_world(build, self.stores[LEASE])

    def _first_membership(self) -> Membership:
        return Membership.of(self.members, self.first_file)

    def _form(self, node: Node) -> None:
        super()._form(node)
        assert node.disk.ballot is not None
        register = Register(MembersId(0, 1), self._first_list.members)
        node.disk.ballot, node.disk.strategy = node.disk.ballot._replace(register=register), "raft"

    def _populate(self) -> None:
        super()._populate()
        assert isinstance(self.timing, Timing)
        times = {
            RAFT: self.timing,
            OTHER_TIMES: _scaled(self.timing, self.chance.choice((0.7, 1.4))),
            LEASE: times_of_lease(self.timing),
            OTHER_STORE: times_of_lease(_scaled(self.timing, self.chance.choice((0.7, 1.0, 1.4)))),
        }
        self.faults.acts.lists = {file: (Membership.of(self.members, file), times[file]) for file in times}
        self.faults.rolled_out = self.first_file
        for name in self.names:
            self.world.nodes[name].timing = times[self.first_file]

    def _draw_classes(self) -> tuple[str, ...]:
        share = self.chance.choice((0.15, 0.3, 0.6))
        drawn = [name for name in CHANGING if self.chance.random() < share]
        if self.plan.faults is not None:
            drawn = [name for name in drawn if name in self.plan.faults] if self.plan.draw else list(self.plan.faults)
        wanted = self.plan.draw and (self.plan.faults is None or WITH_CHANGES[0] in self.plan.faults)
        return (*drawn, *WITH_CHANGES) if wanted else tuple(drawn)

    def _begin_faults(self, calm_ms: float) -> None:
        super()._begin_faults(calm_ms)
        self.faults.until_calm(lambda: fault_changed.settle(self.faults))

    # --- who must lead ------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """From here on it is a cluster of the strategy that was rolled out last."""
        final = "raft" if self.faults.rolled_out in (RAFT, OTHER_TIMES) else "lease"
        self.plan = replace(self.plan, strategy=final)
        super()._calm()

    def _core(self) -> tuple[str, ...]:
        """All, if anybody recovers: that may need all to end."""
        recovers = any(self.world.nodes[name].role is Role.RECOVERING for name in self.names)
        return self.voters() if recovers else super()._core()

    def _judge_agreement(self, leader: str) -> None:
        """Two that a first start did not reach wait for each other's memory, until an operator renews one (R9)."""
        blank = self._blank()
        if len(blank) > 1:
            self.outcome.rare["first start that did not reach two"] = 1
            self.liveness.core = tuple(name for name in self.liveness.core if name not in blank)
        super()._judge_agreement(leader)
