"""What operators do to strategy, store and times: another file is rolled out, node by node, again and again (M1).

In good and in bad orders, quickly or over many holds; some nodes are forgotten for a while, some roll-outs are taken
back half-way, and the next one may begin before the last has ended.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from primacy.sim.faults.people import give_file

if TYPE_CHECKING:
    from primacy.sim.faults.classes import Faults

FORGOTTEN = 0.15
"""How often a node does not get the file of a roll-out."""
TAKEN_BACK = 0.25


def changed(f: Faults) -> None:
    """Another strategy, store or profile, on one node after the other."""
    before = f.rolled_out
    which = f.chance.choice([name for name in sorted(f.acts.lists) if name != before])
    order = list(f.names)
    f.chance.shuffle(order)
    span_ms = f.unit_ms * f.chance.choice((0.05, f.chance.uniform(1, 6)))
    back = f.chance.random() < TAKEN_BACK
    for place, name in enumerate(order):
        if f.chance.random() >= FORGOTTEN and (not back or place <= len(order) // 2):
            f.world.after(f.chance.random() * span_ms, partial(give_file, f, name, which))
    if back:
        for name in order:
            f.world.after(span_ms + f.chance.random() * span_ms, partial(give_file, f, name, before))
    f.acts.begins("", 0, f"new file: {which}{', taken back' if back else ''}")
    f.rolled_out = before if back else which
    f.acts.begin_list(f.rolled_out, f.names)


def settle(f: Faults) -> None:
    """At the calm all nodes get the file that was rolled out last."""
    for name in f.names:
        give_file(f, name, f.rolled_out, settles=True)
