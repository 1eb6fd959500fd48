"""What operators do to a cluster: orders, failing probes, and a new list rolled out node by node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from primacy.election.inputs import Health, Pause, Resume, StepDown
from primacy.election.model import Membership
from primacy.settings.timing import Timing
from primacy.sim.facts import Kind

if TYPE_CHECKING:
    from primacy.sim.faults import Faults


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
    f.until_calm(settle)


def _new_list(f: Faults, name: str, membership: Membership, timing: Timing) -> None:
    node = f.world.nodes[name]
    if node.introduced and node.membership == membership and node.timing == timing:
        return
    if f.chance.random() < f.stops_guards and f.world.now < f.end_ms:
        # its old guard is stopped while the agent restarts
        f.lasting("agent and guard stopped", name, f.world.stop_agent(node, frozen=True), 0.1, 2)
    f.world.crash(node)
    node.membership, node.timing = membership, timing
    node.introduced = True
    f.world.after(f.chance.uniform(1, 50), lambda: f.world.start(node))
