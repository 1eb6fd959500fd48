"""What operators do to a cluster: orders, failing probes, and a file with other times rolled out node by node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primacy.sim.faults.classes import Faults


def operator(f: Faults) -> None:
    """Step-down, transfer, pause and resume, a failing health probe."""
    node = f.some_node()
    what = f.chance.randrange(4)
    if what == 0:
        f.acts.tell(node.name, "step-down")
    elif what == 1:
        f.acts.tell(node.name, "transfer", f.chance.choice(f.names))
    elif what == 2:
        f.acts.tell(node.name, "pause")
        f.lasting("paused", node.name, lambda: f.acts.tell(node.name, "resume"), 0.1, 3)
    else:
        f.acts.tell(node.name, "unhealthy")
        f.lasting("unhealthy", node.name, lambda: f.acts.tell(node.name, "healthy"), 0.1, 3)


def relist(f: Faults) -> None:
    """A file with other times is rolled out node by node; sometimes it is taken back half-way (M1)."""
    change, f.change = f.change, None
    if change is None:
        return
    f.acts.lists = {"old": f.list_now(), "new": (change.membership, change.timing)}
    order = list(f.names)
    f.chance.shuffle(order)
    span_ms = f.unit_ms * f.chance.choice((0.05, f.chance.uniform(1, 6)))
    back = f.chance.random() < 0.25
    for place, name in enumerate(order):
        if not back or place <= len(order) // 2:
            f.world.after(f.chance.random() * span_ms, partial(give_file, f, name, "new"))
    if back:
        for name in order:
            f.world.after(span_ms + f.chance.random() * span_ms, partial(give_file, f, name, "old"))
    final = "old" if back else "new"
    f.acts.begins("", 0, f"new times: {change.text}{', taken back' if back else ''}")

    def settle() -> None:
        for name in order:
            give_file(f, name, final, settles=True)

    f.acts.begin_list(final, f.names)
    f.until_calm(settle)


def give_file(f: Faults, name: str, which: str, *, settles: bool = False) -> None:
    """A roll-out that is still on its way at the calm ends there: all nodes get the list that holds in the end."""
    node = f.world.nodes[name]
    if f.world.now >= f.end_ms and not settles:
        return
    if node.introduced and (node.membership, node.timing) == f.acts.lists[which]:
        return
    if f.chance.random() < f.stops_guards and f.world.now < f.end_ms:
        # its old guard is stopped while the agent restarts
        stopped = f.acts.stop(name, frozen=True)
        f.lasting("agent and guard stopped", name, lambda: f.acts.go_on(stopped), 0.1, 2)
    f.acts.crash(name)
    f.acts.give_list(name, which)
    f.world.after(f.chance.uniform(1, 50), lambda: f.acts.start(name))
