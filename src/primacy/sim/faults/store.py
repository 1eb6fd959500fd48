"""Faults of the store that a lease is kept in, and of the way to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from primacy.election.inputs import StepDown, StoreNews
from primacy.election.store import Look, Prune, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take
from primacy.sim.facts import Kind
from primacy.sim.faults import store_engines as engines
from primacy.sim.world.node import Node
from primacy.sim.world.store import SimStore, Table

if TYPE_CHECKING:
    from primacy.sim.faults.classes import Faults


def store_away(f: Faults) -> None:
    """The store is down for a while (F40)."""
    f.world.store_way.up = False

    def undo() -> None:
        f.world.store_way.up = True

    f.lasting("store away", "", undo, 0.1, 3)


def store_hangs(f: Faults) -> None:
    """The store takes requests and does nothing; when it goes on, it does them all (F42)."""
    f.world.store_way.hangs = True
    f.lasting("store hangs", "", f.world.store_way.go_on, 0.1, 3)


def store_slow(f: Faults) -> None:
    """Statements take up to most of a hold (F42)."""
    f.conditions({"store_ms": f.unit_ms * f.chance.uniform(0.05, 0.45)}, "store slow")


def store_answers(f: Faults) -> None:
    """Answers are lost although the statement was performed (F43), or statements fail."""
    layer = {"store_answer_lost": f.chance.choice((0.1, 0.5)), "store_fails": f.chance.choice((0.0, 0.1, 0.3))}
    f.conditions(layer, "store answers lost")


def store_cut(f: Faults) -> None:
    """One node does not reach the store."""
    node = f.some_node()
    node.cut["store"] = node.cut.get("store", 0) + 1
    f.lasting("cut from the store", node.name, lambda: f.world.mend(node.name, "store"), 0.1, 3)


def store_other(f: Faults) -> None:
    """A restart, a promotion, or promoted again after another was primary: the last commits may be gone (F41).

    A token that was lost with a commit, and that no other node ever saw, is only exceeded by the next taker's wall
    clock, or by the store's: tokens grow then if wall clocks agree within a hold. Trials with wilder wall clocks lose
    no commits.
    """
    store = f.world.store
    assert store is not None
    if store.engine.notes:
        return  # a file has no server that could fall
    # what etcd answered stands on a majority of its members
    lost = f.chance.choice((0, 1, 3, 15)) if f.walls_agree and not store.engine.by_index else 0
    if engines.is_here(store):
        engines.another(f, store, lost, _ahead(f))
        f.world.emit(Kind.FAULT, "", 0, "store failed over")
        return
    way = f.chance.choice((store.fail_over, store.start_anew, store.promote_again))
    way(lost, ahead=_ahead(f))
    f.world.emit(Kind.FAULT, "", 0, "store failed over")


def store_back(f: Faults) -> None:
    """A backup is put back: the data folder, a snapshot, or a dump read into the running server (F41)."""
    store = f.world.store
    if store is None or not f.walls_agree:
        return
    table = store.earlier(f.chance.choice((1, 5, 30, 200)))
    f.chance.choice(ways_back(f, store, table))()
    f.world.emit(Kind.FAULT, "", 0, "store put back")


def store_hand(f: Faults) -> None:
    """A person removes the row, drops the table, or writes into the row (F44). Redis: FLUSHALL, or an eviction."""
    store = f.world.store
    if store is None or not f.walls_agree:
        return
    name = f.world.lease_name
    if engines.is_here(store):
        f.chance.choice(engines.ways_removed(store, name))()
        f.world.emit(Kind.FAULT, "", 0, "table changed by hand")
        return
    entry = store.table.entry(name)
    ways: list[Callable[[], None]] = [partial(store.by_hand, (name, None)), store.make_anew]
    if entry is not None and (store.engine.marks or store.engine.by_index):
        ways.append(partial(store.by_hand, (name, entry.row._replace(released=True))))
        ways.append(partial(store.by_hand, (name, entry.row._replace(seq=entry.row.seq + 1))))
    f.chance.choice(ways)()
    f.world.emit(Kind.FAULT, "", 0, "table changed by hand")


def _ahead(f: Faults) -> int:
    """What others wrote since, so that a position that fell is not seen any more."""
    return f.chance.choice((0, 10_000))


def ways_back(f: Faults, store: SimStore, table: Table) -> list[Callable[[], None]]:
    """Every way in which this kind of store can go back to that table and the rules hold (L5)."""
    if engines.is_here(store):
        return engines.ways_back(store, table, _ahead(f))
    if store.engine.notes:
        return [partial(store.put_back, table)]
    ways: list[Callable[[], None]] = [partial(store.put_back, table, ahead=_ahead(f))]
    if store.engine.by_index:
        ways += [partial(store.restore_snapshot, table, other_token=other) for other in (False, True)]
    else:
        ways.append(partial(store.read_dump, table, anew=True))
    if store.engine.marks or store.engine.by_index:
        ways.append(partial(store.read_dump, table, anew=False))
        ways.append(partial(store.by_hand, *((entry.name, entry.row) for entry in table.entries)))
    return ways


def ways_outside(store: SimStore, table: Table) -> list[Callable[[], None]]:
    """What no rule can tell, by physics: memory reverted behind unbroken connections; a dump where no mark is."""
    ways: list[Callable[[], None]] = [partial(store.revert, table)]
    if not (store.engine.marks or store.engine.by_index or store.engine.notes):
        ways.append(partial(store.read_dump, table, anew=False))
    return ways


# --- aimed ------------------------------------------------------------------------------------------------------------


def store_blow(f: Faults) -> None:
    """A watcher is cut or stopped, another takes, and the store goes back just before the watcher's wait ends (F41)."""
    store = f.world.store
    if not f.walls_agree or store is None:
        return
    if engines.is_here(store) and engines.blow(f, store):
        return
    ways = partial(engines.ways_struck if engines.is_here(store) else ways_back, f)
    f.world.store_way.aims.append(partial(_strike, f, ways, engines.Links()))


def store_outside(f: Faults) -> None:
    """The same by ways that are outside of the promise. Drawn only if it is asked for by name."""
    store, ways = f.world.store, ways_outside
    assert store is not None
    if store.engine.by_run and f.chance.random() < 0.3:
        engines.two_primaries(f)
        return
    if store.engine.objects and f.chance.random() < 0.5:
        f.world.store_way.aims.append(engines.Returned(f, unseen=True))
        return
    if engines.is_here(store):
        ways = partial(engines.ways_outside, name=f.world.lease_name)
    f.world.store_way.aims.append(partial(_strike, f, ways, engines.Links()))


def _strike(
    f: Faults,
    ways: Callable[[SimStore, Table], list[Callable[[], None]]],
    links: engines.Links,
    node: Node,
    request: StoreRequest,
    answer: StoreAnswer,
    table: Table,
) -> bool:
    """Strikes if this answer begins, or may have begun, an observation of a holder that works; False: not yet."""
    store, row = f.world.store, answer.row
    if f.world.now >= f.end_ms:
        return True
    watch_ms = 0.0
    if store is not None and store.engine.objects:
        watch_ms = links.left_ms(node, answer, store.genesis.wait_max_ms)
    holders = [f.world.nodes[name] for name in f.names if f.world.nodes[name].role == "leader" and name != node.name]
    if store is None or not isinstance(request, Look) or row is None or row.released or not holders:
        return False
    wait_ms = max(row.wait_ms, node.timing.wait_ms)
    if row.server != answer.server or not row.vouches or row.is_placeholder:
        wait_ms = max(wait_ms, store.genesis.wait_max_ms)
    left_ms = max(wait_ms / node.clock.rate, watch_ms)
    early_ms = 0.05 * f.unit_ms
    if f.chance.random() < 0.5 or store.engine.objects:  # where a new connection begins a new watch, a cut saves it
        resume = f.world.stop_agent(node)
    else:
        f.world.cut(node.name, "store")
        resume = partial(f.world.mend, node.name, "store")
    key = f.until_calm(resume)
    f.world.emit(Kind.FAULT, node.name, key, "watcher struck")

    def end() -> None:
        if f.active.pop(key, None) is not None:
            resume()
            f.world.emit(Kind.CALM, node.name, key, "watcher struck")

    end_ms = left_ms - f.chance.uniform(-1, early_ms)
    for holder in holders:
        f.world.after(f.chance.uniform(0, left_ms / 3), partial(f.world.give, holder, StepDown()))
    blow_ms = left_ms - f.chance.uniform(0.5, early_ms)
    if store.engine.objects:
        end_ms = max(end_ms, blow_ms + 0.1)  # its watches are long and few: none is spent on a blow that comes late
    f.world.after(end_ms, end)
    f.world.after(blow_ms, partial(_put_back, f, ways(store, table)))
    f.counted("struck at a watcher")
    return True


def _put_back(f: Faults, ways: list[Callable[[], None]]) -> None:
    if f.world.now < f.end_ms:
        f.chance.choice(ways)()
        f.world.emit(Kind.FAULT, "", 0, "store put back to what a watcher saw")


def store_sudden(f: Faults) -> None:
    """A renewal, a look of everybody else right after it, and the holder's crash: the least that a wait can be (L3)."""

    def aim(node: Node, request: StoreRequest, answer: StoreAnswer, _: Table) -> bool:
        store = f.world.store
        if store is not None and engines.is_here(store) and f.world.now >= f.end_ms:
            return True  # where a holder is long in coming, the first renewal may be after the calm
        if not isinstance(request, Renew) or not answer.done:
            return False
        for name in f.names:
            if name != node.name:
                f.world.after(f.chance.uniform(0, 3), partial(f.world.give, f.world.nodes[name], StoreNews()))
        f.world.after(0.2, partial(f.world.crash, node))
        f.lasting("struck: crash after a renewal", node.name, lambda: f.world.start(node), 0.5, 2)
        return True

    f.world.store_way.aims.append(aim)


# --- operators --------------------------------------------------------------------------------------------------------


def store_people(f: Faults) -> None:
    """`lease break`, a row that is not used any more is removed, or another name of the table comes and goes (F54)."""
    f.chance.choice((_break, _prune, _other_name, _other_name))(f)


def _break(f: Faults) -> None:
    """Takes the row, waits, and releases it; a failsafe row is never released (L7)."""
    store, name = f.world.store, f.world.lease_name
    assert store is not None
    seen = store.perform(Look(name))
    row, genesis = seen.row, store.genesis
    if row is None:
        return
    wait_ms = max(row.wait_ms, genesis.wait_max_ms)
    wall_ms = seen.wall_ms
    if engines.is_here(store):  # what these stores do not tell, the operator's machine does
        wall_ms = f.world.nodes[f.names[0]].clock.wall_ms(f.world.now)
    token = max(row.token + 1, genesis.floor + 1, wall_ms)
    new = Row(f"break#{f.world.chance.getrandbits(60):x}", token, row.seq + 1, row.hold_ms, wait_ms, False, row.members)
    done = store.perform(Take(name, row, seen.server, new))
    taken = done.row
    if not done.done or taken is None:
        return
    f.world.emit(Kind.FAULT, "", 0, "lease break")
    if not row.members:
        release = ReleaseRow(name, taken.holder, taken.token, taken.seq)
        f.world.after(wait_ms / (1 - f.drift), partial(_ask, store, release))


def _ask(store: SimStore, request: StoreRequest) -> None:
    store.perform(request)


def _prune(f: Faults) -> None:
    """Where L4 would let a release be taken now, the row may be removed instead (L10)."""
    store, name = f.world.store, f.world.lease_name
    assert store is not None
    seen = store.perform(Look(name, count=True))
    row, genesis = seen.row, seen.genesis
    if row is not None and genesis is not None and row.released and row.vouches and genesis.is_settled(seen.server):
        request = Prune(name, row, seen.server, genesis)
        f.world.after(f.chance.uniform(0.1, 0.2 * f.unit_ms), partial(_ask, store, request))
        f.world.emit(Kind.FAULT, "", 0, "lease pruned")


def _other_name(f: Faults) -> None:
    """Names and versions of the table move."""
    store = f.world.store
    assert store is not None
    name = f.chance.choice(("x", "y", "z"))
    if store.engine.objects:
        engines.other_name(store, name)
        return
    seen = store.perform(Look(name, count=True))
    row, genesis = seen.row, seen.genesis
    if genesis is None:
        return
    if row is None:
        new = Row("user#1", genesis.floor + 1, 1, 1_000, 1_030, False)
        store.perform(Take(name, None, seen.server, new, genesis))
    elif not row.released:
        store.perform(ReleaseRow(name, row.holder, row.token, row.seq))
    else:
        store.perform(Prune(name, row, seen.server, genesis))
