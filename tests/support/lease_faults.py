"""What goes wrong in a trial of leases: machines, people, and every way in which a store goes back.

A third of the blows are aimed: they wait for the moment at which a rule is all that keeps two holders apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from primacy.election.inputs import GuardLost, Health, Pause, Resume, StepDown, StoreNews
from primacy.election.store import Look, Prune, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take
from primacy.settings.timing import stretched
from primacy.sim.faults import store_engines
from primacy.sim.world.engines import ETCD, KUBERNETES, MARIADB, POSTGRESQL, REDIS, SQLITE
from primacy.sim.world.store import Table
from tests.support.lease_world import BACKUPS_MAX, LAB, LeaseWorld, Node

AHEAD = 10_000
"""What others wrote since: a position that fell is not seen any more."""
EARLY_MS = 30
"""A blow puts the store back at most so long before the watcher's wait ends."""


# --- machines and people ----------------------------------------------------------------------------------------------


def _victim(u: LeaseWorld) -> Node:
    """Often the one that works."""
    working = [node for node in u.nodes if any(work.alive for work in node.works)]
    return u.chance.choice(working if working and u.chance.random() < 0.7 else u.nodes)


def _for_a_while(u: LeaseWorld, node: Node, what: str, least: float = 10, most: float = 3 * LAB.hold_ms) -> None:
    setattr(node, what, getattr(node, what) + 1)
    u.after(u.chance.uniform(least, most), lambda: setattr(node, what, max(0, getattr(node, what) - 1)))


def cut(u: LeaseWorld) -> None:
    _for_a_while(u, _victim(u), "cut")


def cut_peer(u: LeaseWorld) -> None:
    _for_a_while(u, u.chance.choice(u.nodes), "deaf")


def cut_listed(u: LeaseWorld) -> None:
    """All but the last node lose the store: with a failsafe they keep the holder alive (L7)."""
    for node in u.nodes[:-1]:
        _for_a_while(u, node, "cut", 2 * LAB.hold_ms, 4 * LAB.hold_ms)


def isolate(u: LeaseWorld) -> None:
    """The worker loses the store, and one of the others loses the worker."""
    node = _victim(u)
    other = u.chance.choice([n for n in u.nodes if n is not node])
    for victim, what in ((node, "cut"), (other, "deaf")):
        _for_a_while(u, victim, what, LAB.hold_ms, 3 * LAB.hold_ms)


def stall(u: LeaseWorld) -> None:
    u.pause(_victim(u), u.chance.uniform(1, 3 * LAB.hold_ms))


def crash(u: LeaseWorld) -> None:
    node = _victim(u)
    if node.machine is not None:
        u.crash(node)


def guard(u: LeaseWorld) -> None:
    node = _victim(u)
    for work in node.works:
        if work.alive and work.boot == node.boot:
            work.lost = True
            u.give(node, GuardLost(work.token))
            u.end_soon(work)


def people(u: LeaseWorld) -> None:
    node = _victim(u)
    heir = u.chance.choice(("", u.chance.choice(u.names)))
    u.give(node, u.chance.choice((StepDown(heir), Pause(), Health(False, "sick"))))
    u.after(u.chance.uniform(1, 1000), lambda: (u.give(node, Resume()), u.give(node, Health(True))))


def news(u: LeaseWorld) -> None:
    """Somebody says that there is news, true or not."""
    for node in u.nodes:
        u.give(node, StoreNews())


# --- operators of leases ----------------------------------------------------------------------------------------------


def break_lease(u: LeaseWorld) -> None:
    """`lease break`: takes the row, waits, and releases it, but never a failsafe row (L7)."""
    seen = u.store.perform(Look(u.name))
    row, genesis = seen.row, u.store.genesis
    if not seen.ok or row is None:
        return
    wait_ms = u.break_wait_ms(max(row.wait_ms, LAB.wait_ms, genesis.wait_max_ms))
    token = max(row.token + 1, genesis.floor + 1, seen.wall_ms)
    hold_ms = max(row.hold_ms, wait_ms * 99 // 101)
    new = Row(f"break#{u.chance.randrange(1, 2**60)}", token, row.seq + 1, hold_ms, wait_ms, False, row.members)
    done = u.store.perform(Take(u.name, row, seen.server, new))
    if not done.done or done.row is None or (row.members and not u.break_releases_all):
        return
    taken = done.row
    u.after(
        wait_ms / u.chance.choice((0.99, 1.01)),
        lambda: u.store.perform(ReleaseRow(u.name, taken.holder, taken.token, taken.seq)),
    )


def prune(u: LeaseWorld) -> None:
    """A released row is removed, as L4 would let it be taken now (L10). The operator looks a moment before."""
    seen = u.store.perform(Look(u.name, count=True))
    row, genesis = seen.row, seen.genesis
    if not seen.ok or row is None or genesis is None or not row.released or not row.vouches:
        return
    if genesis.is_settled(seen.server):
        request = Prune(u.name, row, seen.server, genesis)
        u.after(u.chance.choice((0.1, 20, 200)), lambda: u.store.perform(request))


def fresh(u: LeaseWorld) -> None:
    """Another user of the table takes, and gives back, a name of its own: names and versions move."""
    name = u.chance.choice(("x", "y", "z"))
    if u.store.engine is KUBERNETES:
        store_engines.other_name(u.store, name)
        return
    seen = u.store.perform(Look(name, count=True))
    if not seen.ok or seen.genesis is None:
        return
    token = max(u.highest, seen.genesis.floor) + 1
    row = Row(f"user#{u.serial}", token, 1, LAB.hold_ms, LAB.wait_ms, False)
    if seen.row is None:
        u.store.perform(Take(name, None, seen.server, row, seen.genesis))
    elif not seen.row.released:
        u.store.perform(ReleaseRow(name, seen.row.holder, seen.row.token, seen.row.seq))
    else:
        u.store.perform(Prune(name, seen.row, seen.server, seen.genesis))


# --- the store --------------------------------------------------------------------------------------------------------


def away(u: LeaseWorld) -> None:
    u.store.stop()
    u.after(u.chance.uniform(10, 3 * LAB.hold_ms), u.store.restart)


def backup(u: LeaseWorld) -> None:
    u.backups = [*u.backups[1 - BACKUPS_MAX :], u.store.table]


def _ways(u: LeaseWorld, table: Table) -> list[Callable[[], None]]:
    """Every way in which this kind of store goes back to that table and the rules hold (L5)."""
    store, ahead = u.store, u.chance.choice((0, AHEAD))
    ways: dict[str, list[Callable[[], None]]] = {
        POSTGRESQL.name: [
            partial(store.put_back, table, ahead=ahead),
            partial(store.restore_snapshot, table, other_token=False),
            partial(store.read_dump, table, anew=False),
            partial(store.read_dump, table, anew=True),
            partial(store.by_hand, *((entry.name, entry.row) for entry in table.entries)),
        ],
        MARIADB.name: [
            partial(store.put_back, table, ahead=ahead),
            *([partial(store.read_dump, table, anew=True)] if u.tables_anew else []),
        ],
        ETCD.name: [
            partial(store.put_back, table, ahead=ahead),
            partial(store.put_back, table, ahead=ahead),
            partial(store.restore_snapshot, table, other_token=False),
            partial(store.restore_snapshot, table, other_token=True),
            partial(store.read_dump, table, anew=False),
            partial(store.by_hand, *((entry.name, entry.row) for entry in table.entries)),
        ],
        SQLITE.name: [partial(store.put_back, table)],
        REDIS.name: [*store_engines.ways_back(store, table, ahead), store.empty],
        KUBERNETES.name: [
            *store_engines.ways_back(store, table, ahead),
            *store_engines.ways_back(store, table, ahead),
            partial(store.by_hand, (u.name, None)),
        ],
    }
    return ways[store.engine.name]


def _went(u: LeaseWorld, name: str) -> None:
    u.blows[f"{u.store.engine.name} {name}"] += 1


def fail_over(u: LeaseWorld) -> None:
    """The last commits are lost: a restart, a promotion, or promoted again after another was primary."""
    if u.store.engine in (SQLITE, ETCD, KUBERNETES):
        if u.store.engine is not SQLITE:
            u.store.fail_over(0)  # its writes are on a majority
        return
    lost = min(u.lost_max, u.chance.choice((0, 1, 1, 2, 5)))
    way = u.chance.choice((u.store.fail_over, u.store.start_anew, u.store.promote_again))
    way(lost, ahead=u.chance.choice((0, AHEAD)))
    _went(u, way.__name__)


def back(u: LeaseWorld) -> None:
    """A backup of any age."""
    table = u.chance.choice(u.backups[-3:] if u.chance.random() < 0.5 else u.backups)
    u.chance.choice(_ways(u, table))()
    _went(u, "back")


def remove(u: LeaseWorld) -> None:
    """A person removes the row, or drops the table."""
    if store_engines.is_here(u.store):
        u.chance.choice(store_engines.ways_removed(u.store, u.name))()
    elif u.chance.random() < 0.5:
        u.store.by_hand((u.name, None))
    else:
        u.store.make_anew()
    _went(u, "removed")


def free_by_hand(u: LeaseWorld) -> None:
    """A person writes `released` into the row of a live holder."""
    row = u.store.rows.get(u.name)
    entry = u.store.table.entry(u.name)
    if row is not None and entry is not None and u.store.engine in (POSTGRESQL, ETCD):
        u.store.by_hand((u.name, entry.row._replace(released=True)))
        _went(u, "freed by hand")


# --- aimed ------------------------------------------------------------------------------------------------------------


def blow(u: LeaseWorld) -> None:
    """A watcher is cut or stopped, another takes, and the store goes back just before the watcher's wait ends."""
    ways = _outside if u.outside else _ways
    u.aims.append(partial(_strike, u, ways))


def _strike(
    u: LeaseWorld,
    ways: Callable[[LeaseWorld, Table], list[Callable[[], None]]],
    node: Node,
    request: StoreRequest,
    answer: StoreAnswer,
    table: Table,
) -> bool:
    watch = node.watch
    if not isinstance(request, Look) or watch is None or not answer.ok or watch.row.released:
        return False
    holders = [other for other in u.nodes if other is not node and any(work.alive for work in other.works)]
    if not holders and not watch.row.is_placeholder and u.chance.random() < 0.7:
        return False
    row, genesis = watch.row, answer.genesis
    wait_ms = max(row.wait_ms, node.timing.wait_ms, stretched(row.hold_ms, node.timing.drift_ppm))
    if row.server != answer.server or not row.vouches or row.is_placeholder:
        wait_ms = max(wait_ms, 0 if genesis is None else genesis.wait_max_ms)
    left = max(1.0, watch.since + (wait_ms + 1) / node.rate - u.now)
    if u.chance.random() < 0.5:
        u.pause(node, max(0.0, left + u.chance.uniform(-EARLY_MS, 5)))
    else:
        node.cut += 1
        u.after(max(0.0, left - u.chance.uniform(0, EARLY_MS)), lambda: setattr(node, "cut", max(0, node.cut - 1)))
    for holder in holders:
        u.after(u.chance.uniform(0, left / 3), partial(u.give, holder, StepDown()))
    u.after(max(0.0, left - u.chance.uniform(0.5, EARLY_MS)), u.chance.choice(ways(u, watch.table)))
    _went(u, "blow")
    return True


def sudden(u: LeaseWorld) -> None:
    """A renewal, a look of everybody else 2 to 9 ms later, and the holder's crash: the least that a wait can be."""

    def aim(node: Node, request: StoreRequest, answer: StoreAnswer, table: Table) -> bool:
        if not isinstance(request, Renew) or not answer.done:
            return False
        for other in u.nodes:
            if other is not node:
                u.after(u.chance.uniform(0, 3), partial(u.give, other, StoreNews()))
        u.after(0.2, lambda: u.crash(node) if node.machine is not None else None)
        return True

    u.aims.append(aim)


def revive(u: LeaseWorld) -> None:
    """A renewal, or a release, of a leadership that is long over arrives when its row has just been brought back (L2).

    The holder and one watcher do not reach the store meanwhile, and so know of no later token.
    """

    def aim(node: Node, request: StoreRequest, answer: StoreAnswer, table: Table) -> bool:
        entry = table.entry(u.name)
        if not isinstance(request, Renew) or not answer.done or entry is None or len(u.nodes) < 3:
            return False
        row = entry.row
        late: Renew | ReleaseRow = ReleaseRow(u.name, row.holder, row.token, row.seq)
        way = partial(u.store.put_back, table)
        if u.store.engine in (POSTGRESQL, ETCD) and u.chance.random() < 0.5:
            late = Renew(u.name, row.holder, row.token, row.seq, answer.server)
            way = partial(u.store.read_dump, table, anew=False)

        def arrive() -> None:
            way()
            u.store.perform(late)

        _while_cut_off(u, [node, u.chance.choice([other for other in u.nodes if other is not node])], arrive)
        _went(u, "revive")
        return True

    u.aims.append(aim)


def lost_take(u: LeaseWorld) -> None:
    """A take is written, but its taker does not hear of it; another takes; then the store goes back to it (L4)."""

    def swallow(node: Node, answer: StoreAnswer) -> bool:
        if not answer.done or len(u.nodes) < 3:
            return False
        table = u.store.table
        _while_cut_off(u, [node], u.chance.choice(_ways(u, table)))
        _went(u, "lost take")
        return True

    u.swallows.append(swallow)


def overlooked(u: LeaseWorld) -> None:
    """The holder dies, and the store comes back from a backup. Who has looked at that stands still while another waits
    and takes; then the same backup is put back, which comes up under the same name (etcd, L5).

    Every way to the store is in order, and whoever took has it for some looks: what comes and goes between two looks of
    a node that goes on looking, nobody can see behind a proxy."""
    u.loss = u.slow = 0.0
    longest_ms = 4 * LAB.heartbeat_ms

    def again(table: Table) -> None:
        if any(work.alive and u.now - work.since > longest_ms for node in u.nodes for work in node.works):
            u.store.put_back(table)
            _went(u, "overlooked")

    def aim(node: Node, request: StoreRequest, answer: StoreAnswer, table: Table) -> bool:
        others = [other for other in u.nodes if other is not node and other.machine is not None]
        if not isinstance(request, Renew) or not answer.done or len(others) < 2:
            return False
        frozen = u.chance.choice(others)
        span_ms = 1.1 * u.wait_max_ms + u.chance.uniform(0, 0.8) * LAB.hold_ms
        u.after(0.2, lambda: u.crash(node) if node.machine is not None else None)
        u.after(0.3, partial(u.store.put_back, table))
        u.after(longest_ms, partial(u.pause, frozen, span_ms))
        u.after(longest_ms + span_ms - u.chance.uniform(0.5, EARLY_MS), partial(again, table))
        return True

    u.aims.append(aim)


def emptied(u: LeaseWorld) -> None:
    """Who waits for a table to be settled is cut off; others settle and use it; then somebody empties it (L9)."""

    def aim(node: Node, request: StoreRequest, answer: StoreAnswer, table: Table) -> bool:
        settling = None if node.machine is None else node.machine._settling
        if settling is None or answer.server != settling.state[0] or len(u.nodes) < 2:
            return False
        _while_cut_off(u, [node], u.store.empty)
        _went(u, "emptied")
        return True

    u.aims.append(aim)


def _while_cut_off(u: LeaseWorld, victims: list[Node], then: Callable[[], None]) -> None:
    """These do not reach the store until somebody else must have taken the lease, and then it happens."""
    for victim in victims:
        victim.cut += 1

    def end() -> None:
        then()
        for victim in victims:
            victim.cut = max(0, victim.cut - 1)

    u.after(u.wait_max_ms * 1.1 + u.chance.uniform(0.3, 1.5) * LAB.hold_ms, end)


# --- outside, by physics ----------------------------------------------------------------------------------------------


def _outside(u: LeaseWorld, table: Table) -> list[Callable[[], None]]:
    """What no rule can tell on this engine; each is found by `outside` trials and drawn in no other."""
    store = u.store
    if u.outside == "folder":  # not outside at all: the one way that a rule is about
        return [partial(store.put_back, table)]
    ways: list[Callable[[], None]] = [partial(store.revert, table)]
    if store.engine in (MARIADB, REDIS):
        ways.append(partial(store.read_dump, table, anew=False))
    if store.engine is KUBERNETES:
        ways.append(partial(store_engines.freed_by_hand, store, u.name))
    return ways if u.outside == "any" else [ways[-1] if u.outside == "hand" else ways[0]]


FAULTS: dict[str, Callable[[LeaseWorld], None]] = {
    made.__name__: made
    for made in (
        *(cut, cut_peer, cut_listed, isolate, stall, crash, guard, people, news, away, backup),
        *(break_lease, prune, fresh, fail_over, back, remove, free_by_hand, blow, sudden, revive, lost_take, emptied),
        overlooked,
    )
}
PLAIN = ("cut", "stall", "crash", "guard", "people", "away", "news")
STORE = (
    "fail_over",
    "back",
    "backup",
    "backup",
    "remove",
    "free_by_hand",
    "revive",
    "lost_take",
    "blow",
    "blow",
    "blow",
    "blow",
)
OPERATORS = ("break_lease", "prune", "fresh", "fresh")
ALL = (*PLAIN, *STORE, *OPERATORS, "sudden")
LISTED = ("cut", "stall", "crash", "away", "cut_peer", "isolate", "isolate", "cut_listed")
"""For the failsafe (L7)."""


def trouble(u: LeaseWorld, until: float, faults: tuple[str, ...]) -> None:
    """Draws rates anew and strikes at random moments until the end."""
    u.loss = u.chance.choice((0.0, 0.0, 0.02, 0.1))
    u.slow = u.chance.choice((0.0, 0.02, 0.1))
    when = 0.0
    mean = u.chance.choice((300.0, 800.0, 2000.0))
    while (when := when + u.chance.expovariate(1 / mean)) < until:
        u.at(when, partial(FAULTS[u.chance.choice(faults)], u))


def trial(
    seed: int,
    seconds: float = 20,
    faults: tuple[str, ...] = ALL,
    prepare: Callable[[LeaseWorld], None] | None = None,
    **how: object,
) -> LeaseWorld:
    """One trial with trouble."""
    world = LeaseWorld(seed, **how)  # type: ignore[arg-type]
    if prepare is not None:
        prepare(world)
    trouble(world, seconds * 1000, faults)
    return world.run(seconds * 1000)
