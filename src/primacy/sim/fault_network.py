"""Faults between machines: cut, one-way, lossy, slow and late ways."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primacy.sim.faults import Faults


def cut(f: Faults, pairs: list[tuple[str, str]], text: str, most: float = 4.0) -> None:
    for a, b in pairs:
        f.world.cut(a, b)

    def undo() -> None:
        for a, b in pairs:
            f.world.mend(a, b)

    f.lasting(text, "", undo, 0.1, most)


def between(left: tuple[str, ...], right: tuple[str, ...]) -> list[tuple[str, str]]:
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
    cut(f, between(left, right), f"partition {'+'.join(sorted(left))} | {'+'.join(right)}")


def link(f: Faults) -> None:
    """One link is broken (F14)."""
    a = f.some_node().name
    b = f.chance.choice(f.names)
    if a != b:
        cut(f, [(a, b), (b, a)], f"link {a}-{b} broken")


def one_way(f: Faults) -> None:
    """A node sends and cannot receive, or receives and cannot send, with some or all others (F19, F20)."""
    node = f.some_node().name
    others = [name for name in f.names if name != node and f.chance.random() < 0.8]
    if f.chance.random() < 0.5:
        cut(f, [(node, other) for other in others], f"{node} cannot send")
    else:
        cut(f, [(other, node) for other in others], f"{node} cannot receive")


def chain(f: Faults) -> None:
    """Only neighbours of a random row hear each other (F16)."""
    names = list(f.names)
    f.chance.shuffle(names)
    far = [(a, b) for i, a in enumerate(names) for j, b in enumerate(names) if abs(i - j) > 1]
    cut(f, far, "chain " + "-".join(names))


def bridge(f: Faults) -> None:
    """The leader keeps a minority; one other node sees a majority (F15)."""
    leader = f.some_node().name
    others = [name for name in f.names if name != leader]
    f.chance.shuffle(others)
    keep = others[: max(1, (len(f.names) - 1) // 2 - 1)]
    lost = tuple(name for name in others if name not in keep)
    cut(f, between((leader,), lost), f"{leader} keeps only {'+'.join(sorted(keep))}")


def swizzle(f: Faults) -> None:
    """Links of a random subset stop one by one and return in another order (F17)."""
    for name in f.names:
        if f.chance.random() < 0.6:
            others = tuple(other for other in f.names if other != name)
            f.world.after(f.chance.random() * f.unit_ms, partial(_cut_if_early, f, name, others))


def _cut_if_early(f: Faults, name: str, others: tuple[str, ...]) -> None:
    if f.world.now < f.end_ms:
        cut(f, between((name,), others), f"links of {name} stop", 2.0)


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

            def mend() -> None:
                f.world.mend(a, b)
                f.world.mend(b, a)

            def on() -> None:
                if f.active.pop(key, None) is not None:
                    mend()

            key = f.until_calm(mend)
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
