"""What befalls a simulated cache: each class is one way in which the world is unkind. Each has its own draws, so that a
trial can be repeated with fewer classes and the others stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from primacy.cache.effects import Finished
from primacy.cache.model import PeerAddress
from primacy.sim.cache.calls import Temper

if TYPE_CHECKING:
    from primacy.sim.cache.clients import ClientWorld
    from primacy.sim.cache.peer import SimPeer


class Faults:
    """The faults of one trial. `every_ms` is the mean pause of each class; a trial draws its own."""

    def __init__(
        self, world: ClientWorld, seed: str, classes: tuple[str, ...], limits: tuple[float, float], until_ms: float
    ) -> None:
        self.world = world
        self.drift, self.wipes = limits
        self.until_ms = until_ms
        self.undo: list[Callable[[], None]] = []
        self.operator: Operator | None = None
        for name in classes:
            chance = Random(f"{name}/{seed}")
            self._next(name, chance, 600.0 * 6 ** chance.random())

    def _next(self, name: str, chance: Random, every_ms: float) -> None:
        pause_ms = chance.expovariate(1 / every_ms)
        if self.world.now + pause_ms >= self.until_ms:
            return

        def strike() -> None:
            self.world.count.faults[name] = self.world.count.faults.get(name, 0) + 1
            CLASSES[name](self, chance)
            self._next(name, chance, every_ms)

        self.world.after(pause_ms, strike)

    def any_peer(self, chance: Random) -> SimPeer:
        """Of the present list."""
        return self.world.peers[chance.choice(self.world.apis)]

    def sourcing_peer(self, chance: Random) -> SimPeer:
        """One that sources something, if there is one."""
        busy = [url for url in self.world.apis if self._is_busy(self.world.peers[url])]
        return self.world.peers[chance.choice(busy or self.world.apis)]

    @staticmethod
    def _is_busy(peer: SimPeer) -> bool:
        return peer.machine is not None and bool(peer.calls.running)

    def back_at(self, after_ms: float, undo: Callable[[], None]) -> None:
        """Undone then, or when everything is healed."""
        done = [False]

        def once() -> None:
            if not done[0]:
                done[0] = True
                undo()

        self.undo.append(once)
        self.world.after(after_ms, once)

    def heal(self) -> None:
        for undo in self.undo:
            undo()
        self.world.cut.clear()


def crash(faults: Faults, chance: Random) -> None:
    """A process is killed and started again; a quarter of them lose their disk."""
    peer = faults.any_peer(chance)
    faults.world.crash(peer, wipe=chance.random() < faults.wipes)
    faults.back_at(5 + chance.random() ** 3 * 2_500, partial(faults.world.start, peer))


def crash_source(faults: Faults, chance: Random) -> None:
    """A peer that sources is killed, and comes back soon."""
    peer = faults.sourcing_peer(chance)
    faults.world.crash(peer, wipe=chance.random() < faults.wipes)
    faults.back_at(5 + chance.random() ** 2 * 1_500, partial(faults.world.start, peer))


def aimed(faults: Faults, chance: Random) -> None:
    """A process dies between two effects of one step."""
    peer = faults.any_peer(chance)
    if peer.machine is not None:
        peer.doom = chance.randrange(8)


def crash_many(faults: Faults, chance: Random) -> None:
    """All processes are killed within a moment, and come back one after the other."""
    wipe = chance.random() < faults.wipes
    for url in tuple(faults.world.apis):
        peer = faults.world.peers[url]
        if chance.random() < 0.8:
            faults.world.crash(peer, wipe=wipe and chance.random() < 0.7)
            faults.back_at(5 + chance.random() ** 2 * 1_500, partial(faults.world.start, peer))


def freeze(faults: Faults, chance: Random) -> None:
    """A process is stopped for up to 5 s."""
    faults.back_at(20 + chance.random() ** 2 * 5_000, faults.world.freeze(faults.any_peer(chance)))


def freeze_source(faults: Faults, chance: Random) -> None:
    """A peer that sources is stopped, for about as long as its hold."""
    faults.back_at(200 + chance.random() ** 2 * 1_800, faults.world.freeze(faults.sourcing_peer(chance)))


def partition(faults: Faults, chance: Random) -> None:
    """Two sides that do not hear each other."""
    urls = sorted(faults.world.peers)
    side = {url for url in urls if chance.random() < 0.5}
    _cut(faults, chance, [(a, b) for a in urls for b in urls if (a in side) != (b in side)], 4_000)


def one_way(faults: Faults, chance: Random) -> None:
    """Some ways carry nothing, in one direction."""
    urls = sorted(faults.world.peers)
    _cut(faults, chance, [(a, b) for a in urls for b in urls if a != b and chance.random() < 0.25], 3_000)


def isolate(faults: Faults, chance: Random) -> None:
    """One peer hears nobody, is heard by nobody, or both."""
    peer = faults.any_peer(chance).url
    kind = chance.randrange(3)
    others = [url for url in sorted(faults.world.peers) if url != peer]
    ways = [(peer, url) for url in others if kind != 1] + [(url, peer) for url in others if kind != 0]
    _cut(faults, chance, ways, 5_000)


def _cut(faults: Faults, chance: Random, ways: list[tuple[str, str]], most_ms: float) -> None:
    cut = faults.world.cut
    fresh = [way for way in ways if way not in cut]
    cut.update(fresh)
    faults.back_at(50 + chance.random() ** 2 * most_ms, lambda: cut.difference_update(fresh))


def lossy(faults: Faults, chance: Random) -> None:
    """Messages are lost and repeated."""
    conditions = faults.world.conditions
    conditions.loss, conditions.repeat = chance.random() ** 2 * 0.5, chance.random() * 0.3

    def undo() -> None:
        conditions.loss = conditions.repeat = 0.0

    faults.back_at(200 + chance.random() * 3_000, undo)


def lag(faults: Faults, chance: Random) -> None:
    """Messages are slow, and some are overtaken by many others."""
    conditions = faults.world.conditions
    conditions.delay_span_ms = 1.5 + chance.random() ** 2 * 200
    conditions.far, conditions.far_ms = chance.random() * 0.2, chance.random() * 1_500

    def undo() -> None:
        conditions.delay_span_ms, conditions.far, conditions.far_ms = 1.5, 0.0, 0.0

    faults.back_at(200 + chance.random() * 3_000, undo)


def late(faults: Faults, chance: Random) -> None:
    """Timers come late: the machines are busy."""
    conditions = faults.world.conditions
    conditions.late_ms = chance.random() ** 2 * 150

    def undo() -> None:
        conditions.late_ms = 1.0

    faults.back_at(200 + chance.random() * 3_000, undo)


def disk_slow(faults: Faults, chance: Random) -> None:
    """A storage takes up to half a second for each batch."""
    storage = faults.any_peer(chance).storage
    storage.sync_ms = chance.random() ** 2 * 500

    def undo() -> None:
        storage.sync_ms = 1.0

    faults.back_at(200 + chance.random() * 3_000, undo)


def disk_full(faults: Faults, chance: Random) -> None:
    """A storage can write nothing for a while."""
    storage = faults.any_peer(chance).storage
    storage.failing = True

    def undo() -> None:
        storage.failing = False

    faults.back_at(200 + chance.random() * 4_000, undo)


def sources(faults: Faults, chance: Random) -> None:
    """Sources become slow, fail, hang, outlive their cancel, or answer at that very moment."""
    world = faults.world
    world.temper = Temper(
        slow=chance.random() * 0.5,
        hangs=chance.random() ** 2 * 0.4,
        fails=chance.random() ** 2 * 0.5,
        missing=chance.random(),
        stubborn=chance.random() ** 2 * 0.3,
        races=chance.random() * 0.5,
        quick_ms=world.usual_temper.quick_ms,
    )
    faults.back_at(500 + chance.random() * 4_000, lambda: setattr(world, "temper", world.usual_temper))


def evict(faults: Faults, chance: Random) -> None:
    """A storage gives up some values for lack of room."""
    storage = faults.any_peer(chance).storage
    for key in sorted(storage.view.values):
        if chance.random() < 0.5:
            storage.evict(key)


def clock(faults: Faults, chance: Random) -> None:
    """A clock changes its rate, within the bound."""
    peer = faults.any_peer(chance)
    peer.clock.set_rate(faults.world.now, 1 + chance.choice((-1, 1, chance.uniform(-1, 1))) * faults.drift)
    faults.world.rearm(peer)


def wall(faults: Faults, chance: Random) -> None:
    """A wall clock jumps; all of them stay within 1.5 s of the truth."""
    peer = faults.any_peer(chance)
    true_ms = peer.clock.wall_offset_ms - peer.skew_ms
    peer.skew_ms = int(chance.uniform(-faults.world.skew_ms, faults.world.skew_ms))
    peer.clock.wall_offset_ms = true_ms + peer.skew_ms


def reload(faults: Faults, chance: Random) -> None:
    """The operator adds or removes one peer, everywhere, one change at a time."""
    if faults.operator is not None:
        faults.operator.change(chance)


CLASSES: dict[str, Callable[[Faults, Random], None]] = {
    "crash": crash,
    "crash-source": crash_source,
    "crash-many": crash_many,
    "aimed": aimed,
    "freeze": freeze,
    "freeze-source": freeze_source,
    "partition": partition,
    "one-way": one_way,
    "isolate": isolate,
    "lossy": lossy,
    "lag": lag,
    "late": late,
    "disk-slow": disk_slow,
    "disk-full": disk_full,
    "sources": sources,
    "evict": evict,
    "clock": clock,
    "wall": wall,
    "reload": reload,
}


class Operator:
    """Who edits the files: one peer more or less, told to every peer, and the next change only when all have it."""

    PAUSE_MS = 150.0
    LEAST = 2
    MORE = 2
    """Peers beyond those of the beginning."""

    def __init__(self, world: ClientWorld, peers: tuple[PeerAddress, ...], spare: tuple[PeerAddress, ...]) -> None:
        self.world = world
        self.list = peers
        self.spare = spare
        self.leaving: set[str] = set()
        self.taken: set[str] = {peer.url for peer in peers}
        self.asked: set[tuple[str, int, int]] = set()
        """Requests that were not answered yet: peer, boot, change."""
        self.changes = 0

    @property
    def busy(self) -> bool:
        return any(peer.url not in self.taken for peer in self.list) or bool(self.leaving)

    def change(self, chance: Random) -> None:
        if self.busy:
            return
        listed = {peer.url for peer in self.list}
        out = [peer for peer in self.spare if peer.url not in listed]
        if out and (len(self.list) <= self.LEAST or chance.random() < 0.5):
            new = tuple(sorted((*self.list, chance.choice(out))))
        elif len(self.list) > self.LEAST:
            gone = chance.choice(self.list)
            self.leaving.add(gone.url)
            new = tuple(peer for peer in self.list if peer != gone)
        else:
            return
        self.changes += 1
        for address in new:
            if address.url not in listed:
                self.leaving.discard(address.url)
                peer = self.world.peers[address.url]
                self.world.crash(peer)  # what was left of an earlier membership of this address
                peer.file = new
        self.list = new
        self.world.apis = [peer.url for peer in new]
        self.taken = {url for url in self.world.apis if self.world.peers[url].file == new}
        for url in sorted(self.taken):
            self.world.start(self.world.peers[url])
        self._tell(self.changes)

    def _tell(self, change: int) -> None:
        """Every peer that has not taken it is told, again and again."""
        if change != self.changes:
            return
        for url in sorted({*self.world.apis, *self.leaving} - self.taken):
            peer = self.world.peers[url]
            if peer.machine is None:
                peer.file = () if url in self.leaving else self.list  # the file is changed while nothing runs
                self.taken.add(url)
            else:
                self._tell_one(peer, change)
        if {*self.world.apis, *self.leaving} <= self.taken:
            self._stop_leaving()
        else:
            self.world.after(self.PAUSE_MS, lambda: self._tell(change))

    def _tell_one(self, peer: SimPeer, change: int) -> None:
        new, boot = self.list, peer.boot
        asked = (peer.url, boot, change)
        if asked in self.asked:
            return
        self.asked.add(asked)

        def heard(finished: Finished) -> None:
            self.asked.discard(asked)
            if finished.ok and change == self.changes and peer.boot == boot:
                peer.file = new
                self.taken.add(peer.url)

        self.world.reload(peer, new, heard)

    def _stop_leaving(self) -> None:
        for url in sorted(self.leaving):
            peer = self.world.peers[url]
            self.world.crash(peer)
            peer.file = ()
        self.leaving.clear()
