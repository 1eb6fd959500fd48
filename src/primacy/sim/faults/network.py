"""Faults between machines: cut, one-way, lossy, slow and late ways."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from primacy.sim.faults.acts import LOST_MS

if TYPE_CHECKING:
    from primacy.sim.faults.classes import Faults


def cut(f: Faults, pairs: list[tuple[str, str]], text: str, most: float = 4.0) -> None:
    f.acts.cut(pairs)
    f.lasting(text, "", lambda: f.acts.mend(pairs), 0.1, most)


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
    both = [(a, b), (b, a)]

    def off(times: int) -> None:
        if times and f.world.now < f.end_ms:
            f.acts.cut(both)

            def mend() -> None:
                f.acts.mend(both)

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
    f.conditions(layer, "loss, repetition, delay")


def lag(f: Faults) -> None:
    """The way to a node, or from it, becomes long; the other direction stays short."""
    node = f.some_node()
    lag_ms = f.unit_ms * f.chance.uniform(0.02, 0.3)
    inward = f.chance.random() < 0.6
    in_ms, out_ms = (lag_ms, 0.0) if inward else (0.0, lag_ms)
    f.acts.lag(node.name, in_ms, out_ms)
    text = "long way to it" if inward else "long way from it"
    f.lasting(text, node.name, lambda: f.acts.lag(node.name, -in_ms, -out_ms))


def hold_back(f: Faults) -> None:
    """What a node sends is held back and delivered much later, all at once (F23)."""
    node = f.some_node()
    if node.held is not None:
        return
    f.acts.hold_back(node.name)

    def undo() -> None:
        late_ms = [f.chance.random() * f.unit_ms * 2 if f.chance.random() < 0.7 else LOST_MS for _ in node.held or ()]
        f.acts.let_go(node.name, late_ms)

    f.lasting("messages held back", node.name, undo, 0.02, 3)
