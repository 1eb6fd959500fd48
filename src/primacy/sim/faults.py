"""What goes wrong in a life: fault classes with rates that are drawn anew for every seed.

A life has a random subset of the classes (some interplay only shows when others are absent), each with its own pace and
length, measured in holds so that every profile is treated alike. Each fault knows how to end itself; at the calm all of
them end at once. The numbers in brackets are those of the fault catalogue, docs/faults.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from primacy.election.events import Code
from primacy.election.inputs import Health, Input, Pause, Resume, StepDown
from primacy.election.model import Membership
from primacy.settings.timing import Timing
from primacy.sim.facts import Fact, Kind
from primacy.sim.world import Node, World

Undo = Callable[[], None]

LAYERED = ("loss", "repeat", "delay_min_ms", "delay_span_ms", "store_ms", "store_answer_lost", "store_fails")
"""Parts of the weather that faults worsen."""


class Change(NamedTuple):
    """A list (with times) that an operator rolls out, node by node; new nodes start with it and without memory."""

    text: str
    membership: Membership
    timing: Timing


class Faults:
    """Draws, applies and ends faults in one world."""

    def __init__(self, world: World, chance: Random, names: tuple[str, ...], unit_ms: float) -> None:
        self.world = world
        self.chance = chance
        self.names = names
        self.unit_ms = unit_ms
        self.end_ms = 0.0
        self.active: dict[int, Undo] = {}
        self.change: Change | None = None
        self.final: tuple[Membership, Timing] | None = None
        """The list that holds after the roll-out, once there was one."""
        self.restarts: dict[str, Node] = {}
        """Nodes that an operator restarts at the calm, to be heard again after two boots of one id spoke."""
        self.copies_disks = True
        """Whether a second machine with a copied disk may appear."""
        self.walls_agree = True
        """Wall clocks stay within a fraction of a hold of each other; only then may a store lose commits (T1)."""
        self.stops_guards = 0.2
        """How often a guard is stopped while a new list makes its agent restart."""
        self.drift = 0.0
        self.memory_left = 0
        """How many nodes may still lose their memory: the others must stay a majority."""
        self._next = 0
        self._intervals: dict[str, float] = {}
        self._layers: list[dict[str, float]] = []
        self._fair: dict[str, float] = {name: getattr(world.weather, name) for name in LAYERED}

    # --- pace ---------------------------------------------------------------------------------------------------------

    def begin(self, classes: tuple[str, ...], end_ms: float) -> None:
        self.end_ms = end_ms
        for name in classes:
            if name == "aimed":
                self.world.listeners.append(self._aim)
                continue
            self._intervals[name] = self.unit_ms * self.chance.uniform(1.5, 15)
            self._schedule(name, self.chance.random() * self._intervals[name])

    def _schedule(self, name: str, after_ms: float) -> None:
        def fire() -> None:
            if self.world.now >= self.end_ms:
                return
            CLASSES[name](self)
            faults = self.world.count.faults
            faults[name] = faults.get(name, 0) + 1
            self._schedule(name, self._intervals[name] * self.chance.uniform(0.5, 1.5))

        self.world.after(after_ms, fire)

    def lasting(self, text: str, node: str, undo: Undo, least: float = 0.05, most: float = 4.0) -> None:
        """Ends after a while, or at the calm, whichever comes first."""
        self._next += 1
        key = self._next
        self.world.emit(Kind.FAULT, node, key, text)
        self.active[key] = undo

        def end() -> None:
            again = self.active.pop(key, None)
            if again is not None:
                again()
                self.world.emit(Kind.CALM, node, key, text)

        self.world.after(self.unit_ms * self.chance.uniform(least, most), end)

    def calm(self) -> None:
        """Everything ends now, in the order in which it began."""
        while self.active:
            key = next(iter(self.active))
            self.active.pop(key)()
            self.world.emit(Kind.CALM, "", key, "calm")
        for name in self.names:
            self.world.start(self.world.nodes[name])
        for node in self.restarts.values():
            self.world.crash(node)
            self.world.start(node)

    def weather(self, layer: dict[str, float], text: str) -> None:
        """Worsens the weather for a while; of several layers the worst counts."""
        self._layers.append(layer)
        self._reweather()

        def undo() -> None:
            self._layers.remove(layer)
            self._reweather()

        self.lasting(text, "", undo)

    def _reweather(self) -> None:
        for name, fair in self._fair.items():
            worst = max([fair, *(layer.get(name, fair) for layer in self._layers)])
            setattr(self.world.weather, name, worst)

    # --- aiming -------------------------------------------------------------------------------------------------------

    def _aim(self, fact: Fact) -> None:
        """Strikes right after the moments that matter: a candidacy, a vote, a victory, a start, a release."""
        odds = AIMED.get(fact.kind) or AIMED.get(fact.text)
        if odds is None or self.world.now >= self.end_ms or self.chance.random() >= odds:
            return
        faults = self.world.count.faults
        faults["aimed"] = faults.get("aimed", 0) + 1
        node = self.world.nodes[fact.node]
        strike = self.chance.choice((_strike_crash, _strike_crash, _strike_cut, _strike_stop))
        self.world.after(self.chance.choice((0.0, 0.5, 3.0, 20.0)) * self.chance.random(), lambda: strike(self, node))

    # --- choosing -----------------------------------------------------------------------------------------------------

    def some_node(self) -> Node:
        """Any node, the one that leads more often than others."""
        nodes = self.world.nodes
        leading = [name for name in self.names if nodes[name].role == "leader"]
        if leading and self.chance.random() < 0.5:
            return nodes[self.chance.choice(leading)]
        return nodes[self.chance.choice(self.names)]

    def tell(self, node: Node, given: Input) -> None:
        self.world.give(node, given)


# --- processes --------------------------------------------------------------------------------------------------------


def _crash(f: Faults, *, power: bool) -> None:
    node = f.some_node()
    f.world.crash(node, power=power)
    f.lasting("power lost" if power else "agent killed", node.name, lambda: f.world.start(node), 0.01, 3)


def crash_agent(f: Faults) -> None:
    """The agent is killed; its guard stops the work and releases (F02)."""
    _crash(f, power=False)


def crash_node(f: Faults) -> None:
    """The whole machine is off (F01)."""
    _crash(f, power=True)


def crash_between(f: Faults) -> None:
    """A crash between two effects of one of the next steps."""
    node = f.some_node()
    node.doom = f.chance.randrange(0, 40)

    def undo() -> None:
        node.doom = -1
        f.world.start(node)

    f.lasting("crash between effects", node.name, undo, 0.5, 3)


def storm(f: Faults) -> None:
    """Every agent restarts again and again (F47)."""
    for name in f.names:
        node = f.world.nodes[name]
        f.world.after(f.chance.random() * f.unit_ms, partial(_bounce, f, node))


def _bounce(f: Faults, node: Node) -> None:
    if f.world.now < f.end_ms and node.up:
        f.world.crash(node)
        f.lasting("restart", node.name, lambda: f.world.start(node), 0.005, 0.3)


def stall(f: Faults) -> None:
    """The agent makes no step for a while; its guard goes on (F04, F05, F08)."""
    node = f.some_node()
    f.lasting("agent stopped", node.name, f.world.stop_agent(node), 0.02, 2.5)


def freeze(f: Faults) -> None:
    """Agent and guard are stopped; only the kernel's dead-man timer acts (F07)."""
    node = f.some_node()
    f.lasting("agent and guard stopped", node.name, f.world.stop_agent(node, frozen=True), 0.02, 2.5)


def child(f: Faults) -> None:
    """The child ends by itself (F03), or its guard is killed."""
    for name in f.names:
        guard = f.world.nodes[name].guard
        if guard is not None:
            if f.chance.random() < 0.3:
                guard.kill_guard()
            else:
                guard.child_ends()


def _strike_crash(f: Faults, node: Node) -> None:
    if f.world.now < f.end_ms and node.up:
        f.world.crash(node, power=f.chance.random() < 0.5)
        f.lasting("struck: crash", node.name, lambda: f.world.start(node), 0.002, 1.5)


def _strike_cut(f: Faults, node: Node) -> None:
    if f.world.now < f.end_ms:
        others = tuple(name for name in f.names if name != node.name)
        ways = _between((node.name,), others)
        if f.chance.random() < 0.5:
            ways = [way for way in ways if way[0] == node.name or f.chance.random() < 0.3]
        _cut(f, ways, f"struck: {node.name} cut", 2.0)


def _strike_stop(f: Faults, node: Node) -> None:
    if f.world.now < f.end_ms:
        resume = f.world.stop_agent(node, frozen=f.chance.random() < 0.4)
        f.lasting("struck: stopped", node.name, resume, 0.02, 2.5)


# --- network ----------------------------------------------------------------------------------------------------------


def _cut(f: Faults, pairs: list[tuple[str, str]], text: str, most: float = 4.0) -> None:
    for a, b in pairs:
        f.world.cut(a, b)

    def undo() -> None:
        for a, b in pairs:
            f.world.mend(a, b)

    f.lasting(text, "", undo, 0.1, most)


def _between(left: tuple[str, ...], right: tuple[str, ...]) -> list[tuple[str, str]]:
    return [pair for a in left for b in right if a != b for pair in ((a, b), (b, a))]


def partition(f: Faults) -> None:
    """Two sides that do not hear each other; often the leader alone (F18)."""
    names = list(f.names)
    f.chance.shuffle(names)
    size = f.chance.randrange(1, max(2, len(names)))
    left = tuple(names[:size])
    if f.chance.random() < 0.4:
        left = (f.some_node().name,)
    right = tuple(name for name in f.names if name not in left)
    _cut(f, _between(left, right), f"partition {'+'.join(sorted(left))} | {'+'.join(right)}")


def link(f: Faults) -> None:
    """One link is broken (F14)."""
    a = f.some_node().name
    b = f.chance.choice(f.names)
    if a != b:
        _cut(f, [(a, b), (b, a)], f"link {a}-{b} broken")


def one_way(f: Faults) -> None:
    """A node sends and cannot receive, or receives and cannot send, with some or all others (F19, F20)."""
    node = f.some_node().name
    others = [name for name in f.names if name != node and f.chance.random() < 0.8]
    if f.chance.random() < 0.5:
        _cut(f, [(node, other) for other in others], f"{node} cannot send")
    else:
        _cut(f, [(other, node) for other in others], f"{node} cannot receive")


def chain(f: Faults) -> None:
    """Only neighbours of a random row hear each other (F16)."""
    names = list(f.names)
    f.chance.shuffle(names)
    far = [(a, b) for i, a in enumerate(names) for j, b in enumerate(names) if abs(i - j) > 1]
    _cut(f, far, "chain " + "-".join(names))


def bridge(f: Faults) -> None:
    """The leader keeps a minority; one other node sees a majority (F15)."""
    leader = f.some_node().name
    others = [name for name in f.names if name != leader]
    f.chance.shuffle(others)
    keep = others[: max(1, (len(f.names) - 1) // 2 - 1)]
    cut = [name for name in others if name not in keep]
    _cut(f, _between((leader,), tuple(cut)), f"{leader} keeps only {'+'.join(sorted(keep))}")


def swizzle(f: Faults) -> None:
    """Links of a random subset stop one by one and return in another order (F17)."""
    for name in f.names:
        if f.chance.random() < 0.6:
            others = tuple(other for other in f.names if other != name)
            f.world.after(f.chance.random() * f.unit_ms, partial(_cut_if_early, f, name, others))


def _cut_if_early(f: Faults, name: str, others: tuple[str, ...]) -> None:
    if f.world.now < f.end_ms:
        _cut(f, _between((name,), others), f"links of {name} stop", 2.0)


def flap(f: Faults) -> None:
    """A link goes on and off (F21)."""
    a, b = f.some_node().name, f.chance.choice(f.names)
    if a == b:
        return
    period_ms = f.chance.uniform(10, f.unit_ms)

    def off(times: int) -> None:
        if times and f.world.now < f.end_ms:
            f.world.cut(a, b)
            f.world.cut(b, a)
            key = f._next = f._next + 1

            def mend() -> None:
                f.world.mend(a, b)
                f.world.mend(b, a)

            def on() -> None:
                if f.active.pop(key, None) is not None:
                    mend()

            f.active[key] = mend
            f.world.after(period_ms, on)
            f.world.after(2 * period_ms, lambda: off(times - 1))

    off(f.chance.randrange(2, 20))


def lossy(f: Faults) -> None:
    """Loss, repetition and delay rise (F22)."""
    layer = {"loss": f.chance.choice((0.01, 0.1, 0.3)), "repeat": f.chance.choice((0.0, 0.2))}
    if f.chance.random() < 0.5:
        layer["delay_min_ms"] = f.unit_ms * 0.01
        layer["delay_span_ms"] = f.unit_ms * f.chance.choice((0.02, 0.1))
    f.weather(layer, "loss, repetition, delay")


def lag(f: Faults) -> None:
    """The way to a node, or from it, becomes long; the other direction stays short."""
    node = f.some_node()
    lag_ms = f.unit_ms * f.chance.uniform(0.02, 0.3)
    inward = f.chance.random() < 0.6
    if inward:
        node.lag_in_ms += lag_ms
    else:
        node.lag_out_ms += lag_ms

    def undo() -> None:
        if inward:
            node.lag_in_ms -= lag_ms
        else:
            node.lag_out_ms -= lag_ms

    f.lasting("long way to it" if inward else "long way from it", node.name, undo)


def hold_back(f: Faults) -> None:
    """What a node sends is held back and delivered much later, all at once (F23)."""
    node = f.some_node()
    if node.held is not None:
        return
    node.held = []
    world = f.world

    def undo() -> None:
        held, node.held = node.held, None
        for to, message in held or []:
            if f.chance.random() < 0.7:
                late_ms = f.chance.random() * f.unit_ms * 2
                world.deliver_later(late_ms, to, message)

    f.lasting("messages held back", node.name, undo, 0.02, 3)


# --- time, disk, memory -----------------------------------------------------------------------------------------------


def clock(f: Faults) -> None:
    """A clock changes its rate within the bound (F28); wall clocks jump (F27)."""
    node = f.world.nodes[f.chance.choice(f.names)]
    extreme = f.chance.random() < 0.7
    rate = 1 + (f.chance.choice((-1, 1)) if extreme else f.chance.uniform(-1, 1)) * f.drift
    node.clock.set_rate(f.world.now, rate)
    if not f.walls_agree:
        node.clock.wall_offset_ms += f.chance.choice((-3_600_000, -1_000, 0, 1_000, 3_600_000))
    f.world.rearm(node)


def disk_full(f: Faults) -> None:
    """Nothing can be saved (F31)."""
    node = f.some_node()
    node.disk.full = True

    def undo() -> None:
        node.disk.full = False

    f.lasting("disk full", node.name, undo)


def disk_slow(f: Faults) -> None:
    """A save takes long, and the agent waits for it (F35)."""
    node = f.some_node()
    node.disk.slow_ms = int(f.unit_ms * f.chance.uniform(0.01, 1.5))

    def undo() -> None:
        node.disk.slow_ms = 0

    f.lasting("slow disk", node.name, undo)


def memory(f: Faults) -> None:
    """A node comes back without its ballot (F36, F37)."""
    node = f.some_node()
    if f.memory_left <= 0 or not node.up:
        return
    f.memory_left -= 1
    f.world.crash(node, power=f.chance.random() < 0.5)
    node.disk.lose()
    f.lasting("memory lost", node.name, lambda: f.world.start(node), 0.01, 2)


def twin(f: Faults) -> None:
    """A second machine with the same id and a copied disk speaks; what is sent to the id reaches the first (F49)."""
    node = f.some_node()
    if not f.copies_disks or min(len(f.world.nodes[name].membership.voters) for name in f.names) < 3:
        return  # with fewer voters nobody is there who could notice
    ghost = Node(f.world, node.index, node.name, node.clock, node.membership, node.timing)
    ghost.disk.ballot = node.disk.ballot
    f.world.crash(node)
    f.world.start(node)
    f.world.start(ghost)

    def undo() -> None:
        """An operator finds the second machine and restarts the first: a new start is heard again."""
        f.world.crash(ghost, power=True)
        f.world.crash(node)
        f.world.start(node)
        f.restarts[node.name] = node

    f.lasting("two nodes with one id", node.name, undo, 0.5, 3)


# --- people -----------------------------------------------------------------------------------------------------------


def operator(f: Faults) -> None:
    """Step-down, transfer, pause and resume, a failing health probe."""
    node = f.some_node()
    what = f.chance.randrange(4)
    if what == 0:
        f.tell(node, StepDown())
    elif what == 1:
        f.tell(node, StepDown(successor=f.chance.choice(f.names), reason="transfer"))
    elif what == 2:
        f.tell(node, Pause())
        f.lasting("paused", node.name, lambda: f.tell(node, Resume()), 0.1, 3)
    else:
        f.tell(node, Health(False, "probe failed"))
        f.lasting("unhealthy", node.name, lambda: f.tell(node, Health(True)), 0.1, 3)


def relist(f: Faults) -> None:
    """A changed list, or changed times, is rolled out node by node; sometimes it is taken back half-way (M1)."""
    change, f.change = f.change, None
    if change is None:
        return
    old = {name: (f.world.nodes[name].membership, f.world.nodes[name].timing) for name in f.names}
    first = old[f.names[0]]
    new_names = tuple(name for name in change.membership.ids if name not in f.names)
    f.names = (*f.names, *new_names)
    order = list(f.names)
    f.chance.shuffle(order)
    span_ms = f.unit_ms * f.chance.choice((0.05, f.chance.uniform(1, 6)))
    back = f.chance.random() < 0.25
    for place, name in enumerate(order):
        if not back or place <= len(order) // 2 or name in new_names:
            f.world.after(f.chance.random() * span_ms, partial(_new_list, f, name, change.membership, change.timing))
    final = (change.membership, change.timing)
    if back:
        final = first
        for name in order:
            f.world.after(span_ms + f.chance.random() * span_ms, partial(_new_list, f, name, *first))
    f.world.emit(Kind.FAULT, "", 0, f"new list: {change.text}{', taken back' if back else ''}")

    def settle() -> None:
        for name in order:
            _new_list(f, name, *final)

    f.final = final
    f._next += 1
    f.active[f._next] = settle


def _new_list(f: Faults, name: str, membership: Membership, timing: Timing) -> None:
    node = f.world.nodes[name]
    if node.introduced and node.membership == membership and node.timing == timing:
        return
    if (
        f.chance.random() < f.stops_guards and f.world.now < f.end_ms
    ):  # its old guard is stopped while the agent restarts
        f.lasting("agent and guard stopped", name, f.world.stop_agent(node, frozen=True), 0.1, 2)
    f.world.crash(node)
    node.membership, node.timing = membership, timing
    node.introduced = True
    f.world.after(f.chance.uniform(1, 50), lambda: f.world.start(node))


# --- store ------------------------------------------------------------------------------------------------------------


def store_away(f: Faults) -> None:
    """The store is down for a while (F40)."""
    f.world.store_up = False

    def undo() -> None:
        f.world.store_up = True

    f.lasting("store away", "", undo, 0.1, 3)


def store_hangs(f: Faults) -> None:
    """The store takes requests and does nothing; when it goes on, it does them all (F42)."""
    f.world.store_hangs = True
    f.lasting("store hangs", "", f.world.store_goes_on, 0.1, 3)


def store_slow(f: Faults) -> None:
    """Statements take up to most of a hold (F42)."""
    f.weather({"store_ms": f.unit_ms * f.chance.uniform(0.05, 0.45)}, "store slow")


def store_answers(f: Faults) -> None:
    """Answers are lost although the statement was performed (F43), or statements fail."""
    layer = {"store_answer_lost": f.chance.choice((0.1, 0.5)), "store_fails": f.chance.choice((0.0, 0.1, 0.3))}
    f.weather(layer, "store answers lost")


def store_cut(f: Faults) -> None:
    """One node does not reach the store."""
    node = f.some_node()
    node.cut["store"] = node.cut.get("store", 0) + 1
    f.lasting("cut from the store", node.name, lambda: f.world.mend(node.name, "store"), 0.1, 3)


def store_other(f: Faults) -> None:
    """A fail-over to another server, which may lack the last commits (F41).

    A token that was lost with a commit, and that no other node ever saw, is only exceeded by the next taker's wall
    clock: tokens grow then if wall clocks agree within a hold. Lives with wilder wall clocks lose no commits.
    """
    assert f.world.store is not None
    f.world.store.fail_over(f.chance.choice((0, 1, 3, 15)) if f.walls_agree else 0)
    f.world.emit(Kind.FAULT, "", 0, "store failed over")


def aimed(f: Faults) -> None:
    """Not on a timer: see `Faults._aim`."""


AIMED: dict[str, float] = {
    Kind.WORK_STARTED: 0.15,
    Kind.RELEASE_SENT: 0.1,
    Kind.VOTE: 0.1,
    Code.STANDS: 0.3,
    Code.ELECTED: 0.2,
    Code.UNMUTED: 0.1,
    Code.FIRST_BALLOT: 0.1,
    Code.LEASE_TAKEN: 0.2,
    Code.FOLLOWS: 0.02,
}
"""How often a moment is struck at."""

CLASSES: dict[str, Callable[[Faults], None]] = {
    "aimed": aimed,
    "crash-agent": crash_agent,
    "crash-node": crash_node,
    "crash-between": crash_between,
    "storm": storm,
    "stall": stall,
    "freeze": freeze,
    "child": child,
    "partition": partition,
    "link": link,
    "one-way": one_way,
    "chain": chain,
    "bridge": bridge,
    "swizzle": swizzle,
    "flap": flap,
    "lossy": lossy,
    "lag": lag,
    "hold-back": hold_back,
    "clock": clock,
    "disk-full": disk_full,
    "disk-slow": disk_slow,
    "memory": memory,
    "twin": twin,
    "relist": relist,
    "operator": operator,
    "store-away": store_away,
    "store-hangs": store_hangs,
    "store-slow": store_slow,
    "store-answers": store_answers,
    "store-cut": store_cut,
    "store-other": store_other,
}

_PROCESS = ("aimed", "crash-agent", "crash-node", "crash-between", "storm", "stall", "freeze", "clock", "operator")
_NETWORK = ("partition", "link", "one-way", "chain", "bridge", "swizzle", "flap", "lossy", "lag", "hold-back")
_DISK = ("disk-full", "disk-slow", "memory", "twin", "relist")
_STORE = ("store-away", "store-hangs", "store-slow", "store-answers", "store-cut", "store-other")

CLASSES_OF: dict[str, tuple[str, ...]] = {
    "raft": (*_PROCESS, "child", *_NETWORK, *_DISK),
    "lease": (*_PROCESS, "child", *_NETWORK, "disk-full", "disk-slow", *_STORE),
    "bully": (*_PROCESS, *_NETWORK),
    "ring": (*_PROCESS, *_NETWORK),
}
"""Which faults can befall which strategy."""


def classes_of(strategy: str) -> tuple[str, ...]:
    """A user's own has no store, and no disk that we know of."""
    return CLASSES_OF.get(strategy, CLASSES_OF["bully"])
