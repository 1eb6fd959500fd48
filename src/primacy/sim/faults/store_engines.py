"""What befalls Redis and Kubernetes under a lease, in and outside of the promise (docs/leases.md).

Redis. Inside: restarts, also on a file that was put back; a replica that lagged is promoted once the old primary is
stopped; a server that followed another and is promoted again, over unbroken connections; the first replica comes;
FLUSHALL, FLUSHDB and an eviction, which take the whole table; a field that somebody removes, the genesis row's
included. Outside: rows that are put back into the running server (RESTORE, HSET, SWAPDB), and a replica that is
promoted while the old primary still answers (Sentinel, a cluster, `durability=advisory`).

Kubernetes. Inside: API servers restart; the etcd below is put back while they are stopped, so that every connection
breaks; objects are removed; another cluster stands in its place. Outside: etcd is put back under API servers that go on
running; somebody writes into a row, which vouches all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from primacy.election.store import Look, Place, ReleaseRow, Row, StoreAnswer, StoreRequest, Take
from primacy.sim.facts import Kind
from primacy.sim.world.node import Node
from primacy.sim.world.store import SimStore, Table

if TYPE_CHECKING:
    from primacy.sim.faults.classes import Faults

Ways = list[Callable[[], None]]
RETURNED = 0.4
"""How often a blow at these stores brings back a release that was used."""
FLUSHED = 0.3
"""How often one at Redis is a FLUSHALL behind the back of a node that waits for the table to be settled."""


def is_here(store: SimStore) -> bool:
    """Whether this file knows the faults of this store."""
    return store.engine.by_run or store.engine.objects


def another(f: Faults, store: SimStore, lost: int, ahead: int) -> None:
    """A restart, a promotion, or promoted again. Kubernetes: what was answered stands on a majority of its etcd."""
    if store.engine.objects:
        store.start_anew(0)
        return
    ways: Ways = [partial(way, lost, ahead=ahead) for way in (store.fail_over, store.start_anew, store.promote_again)]
    f.chance.choice([*ways, store.meet_replica])()


def ways_back(store: SimStore, table: Table, ahead: int) -> Ways:
    """Back to that table."""
    ways: Ways = [partial(store.put_back, table, ahead=ahead)]
    if store.engine.by_run:
        ways += [partial(store.take_over, table, ahead=ahead), partial(store.follow, table, ahead=ahead)]
    return ways


def ways_removed(store: SimStore, name: str) -> Ways:
    """Somebody removes rows, or the server does."""
    last = store.lose_genesis if store.engine.by_run else store.make_anew
    return [partial(store.by_hand, (name, None)), store.empty, last]


def ways_struck(f: Faults, store: SimStore, table: Table) -> Ways:
    """Behind the back of a watcher: back to what it saw, or away with what it saw."""
    ahead = f.chance.choice((0, 10_000))
    return [*ways_back(store, table, ahead), *ways_removed(store, f.world.lease_name)[:2]]


def ways_outside(store: SimStore, table: Table, name: str) -> Ways:
    """What no rule can tell on these engines."""
    if store.engine.by_run:
        return [partial(store.revert, table), partial(store.read_dump, table, anew=False)]
    return [partial(store.revert, table), partial(freed_by_hand, store, name)]


def freed_by_hand(store: SimStore, name: str) -> None:
    """Somebody writes `released` into the row of a live holder."""
    entry = store.table.entry(name)
    if entry is not None:
        store.by_hand((name, entry.row._replace(released=True)))


# --- aimed ------------------------------------------------------------------------------------------------------------


def blow(f: Faults, store: SimStore) -> bool:
    """Aims one of the blows that only these stores get; False: the one that all get is to be aimed."""
    odds = f.chance.random()
    if odds < RETURNED:
        f.world.store_way.aims.append(Returned(f))
    elif odds < RETURNED + FLUSHED and store.engine.by_run:
        flush(f)
    else:
        return False
    return True


class Returned:
    """A release is used, and a moment later the store goes back to it: it must not be believed again (L4).

    `unseen`: outside of the promise. It goes back with its memory, before anybody has looked.
    """

    def __init__(self, f: Faults, *, unseen: bool = False) -> None:
        self.f = f
        self.unseen = unseen
        self.released: Table | None = None
        """What the store had when somebody saw the release."""

    def __call__(self, _: Node, request: StoreRequest, answer: StoreAnswer, table: Table) -> bool:
        f, store, row = self.f, self.f.world.store, answer.row
        if f.world.now >= f.end_ms:
            return True
        if row is not None and row.released:
            self.released = table
        if store is None or self.released is None or not isinstance(request, Take) or not answer.done:
            return False
        if self.unseen:
            f.world.after(0.1, partial(_back, f, partial(store.revert, self.released)))
        else:
            way = f.chance.choice(ways_back(store, self.released, f.chance.choice((0, 10_000))))
            f.world.after(f.unit_ms * f.chance.uniform(0.1, 1.0), partial(_back, f, way))
        f.counted("struck after a release")
        return True


def _back(f: Faults, way: Callable[[], None]) -> None:
    if f.world.now < f.end_ms:
        way()
        f.world.emit(Kind.FAULT, "", 0, "store put back to a release")


class Links:
    """Since when each node has its present connection, as its answers tell it. One for each blow that waits."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, int, float]] = {}

    def left_ms(self, node: Node, answer: StoreAnswer, wait_max_ms: int) -> float:
        """Until this node has watched over its connection for the longest wait, on its own clock (L4)."""
        boot, link, since_ms = self._since.get(node.name, (-1, -1, 0.0))
        if (boot, link) != (node.boot, answer.link):
            since_ms = node.world.now
            self._since[node.name] = (node.boot, answer.link, since_ms)
        return max(0.0, since_ms + wait_max_ms / node.clock.rate - node.world.now)


def flush(f: Faults) -> None:
    """Who waits for the table to be settled is cut off; others settle and use it; then FLUSHALL (L9)."""

    def aim(node: Node, request: StoreRequest, answer: StoreAnswer, _: Table) -> bool:
        store, genesis = f.world.store, answer.genesis
        if f.world.now >= f.end_ms:
            return True
        if store is None or not isinstance(request, Look) or genesis is None or genesis.count < 0:
            return False
        if genesis.is_settled(answer.server) or len(f.names) < 2:
            return False
        f.world.cut(node.name, "store")
        key = f.until_calm(partial(f.world.mend, node.name, "store"))
        f.world.emit(Kind.FAULT, node.name, key, "watcher struck")

        def end() -> None:
            if f.active.pop(key, None) is not None:
                store.empty()
                f.world.emit(Kind.FAULT, "", 0, "table flushed")
                f.world.mend(node.name, "store")
                f.world.emit(Kind.CALM, node.name, key, "watcher struck")

        wait_ms = store.genesis.wait_max_ms / (1 - f.drift)
        f.world.after(wait_ms * 1.1 + f.unit_ms * f.chance.uniform(0.3, 1.5), end)
        f.counted("struck at a watcher")
        return True

    f.world.store_way.aims.append(aim)


def two_primaries(f: Faults) -> None:
    """Redis, outside: a replica is promoted while the old primary lives, and the nodes reach one or the other."""
    old = f.world.store
    assert old is not None
    leading = [name for name in f.names if f.world.nodes[name].role == "leader"]
    others = [name for name in f.names if name not in leading]
    if not leading or not others:
        return
    new = old.beside(f.chance.choice((0, 1, 3)))
    for name in others:
        f.world.nodes[name].store = new

    def end() -> None:
        f.world.store = new
        for node in f.world.nodes.values():
            node.store = new

    longest = 3 * new.genesis.wait_max_ms / f.unit_ms
    f.lasting("two primaries", "", end, longest / 2, longest)


# --- operators --------------------------------------------------------------------------------------------------------


def other_name(store: SimStore, name: str) -> None:
    """Kubernetes: other objects of the table are made, taken and released."""
    seen = store.perform(Look(name))
    row = seen.row
    if row is None:
        store.perform(Place(name, seen.server))
    elif row.released or row.is_placeholder:
        store.perform(Take(name, row, seen.server, Row("user#1", row.token + 1, row.seq + 1, 1_000, 1_030, False)))
    else:
        store.perform(ReleaseRow(name, row.holder, row.token, row.seq))
