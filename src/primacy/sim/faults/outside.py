"""What no rule can help against: the promise ends here, and trials that are asked for it must find two at work.

No trial draws these classes. Each strikes at a node that leads, if there is one, and does the rest of what it takes to
show: an agent that is killed, say, so that another node leads soon. Only a token that the resource checks helps, or a
successor that switches the old machine off before it starts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from primacy.sim.faults.network import between
from primacy.sim.world.node import Node

if TYPE_CHECKING:
    from primacy.sim.faults.classes import Faults


def _holder(f: Faults) -> Node | None:
    """Who leads, or any node; never one whose id a second machine has, for the two have one clock."""
    leading = [name for name in f.names if f.world.nodes[name].role == "leader"]
    node = f.world.nodes[f.chance.choice(leading or f.names)]
    return None if f.acts.is_doubled(node.name) or node.frozen or not node.up else node


# --- machines ---------------------------------------------------------------------------------------------------------


def frozen_clock(f: Faults) -> None:
    """A machine is frozen together with its clock, and its work goes on afterwards (F30)."""
    _freeze(f, clock_too=True, text="machine and clock frozen")


def standstill(f: Faults) -> None:
    """A machine stands still, its clock goes on: what its kernel kills on waking runs for a moment (F29)."""
    _freeze(f, clock_too=False, text="machine frozen")


def _freeze(f: Faults, *, clock_too: bool, text: str) -> None:
    node = _holder(f)
    if node is not None:
        frozen = f.acts.freeze_machine(node.name, clock_too)
        f.lasting(text, node.name, lambda: f.acts.go_on(frozen))


# --- processes --------------------------------------------------------------------------------------------------------


def unkillable(f: Faults) -> None:
    """The work cannot be killed for a while, and its agent dies (F11)."""
    node = _holder(f)
    if node is None:
        return
    f.acts.unkillable(node.name, True)

    def undo() -> None:
        f.acts.unkillable(node.name, False)
        f.acts.start(node.name)

    f.lasting("work cannot be killed", node.name, undo)
    f.acts.crash(node.name)


def escaped(f: Faults) -> None:
    """What left a weak containment runs on after its guard has confirmed the end of the rest (F10)."""
    node = _holder(f)
    if node is None:
        return
    f.acts.escape(node.name, True)

    def undo() -> None:
        f.acts.escape(node.name, False)
        f.acts.start(node.name)

    f.lasting("a part of the work escapes", node.name, undo)
    f.acts.crash(node.name)


# --- disks ------------------------------------------------------------------------------------------------------------


def old_ballot(f: Faults) -> None:
    """A voter's ballot is put back to before a vote that counted, where nobody of that term is heard (F39)."""
    names = [name for name in f.names if not f.acts.is_doubled(name)]
    f.chance.shuffle(names)
    voter, rest = names[0], names[1:]
    knowing, other = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    f.acts.back_up(voter)
    way = between(tuple(other), (voter, *knowing))
    f.acts.cut(way)
    key = f.until_calm(lambda: f.acts.mend(way))
    f.acts.begins(voter, key, "ballot copied")
    for name in (voter, *knowing):
        if f.world.nodes[name].role == "leader":
            f.acts.tell(name, "step-down")  # a new term, which the others do not hear of
    f.world.after(f.unit_ms * f.chance.uniform(1, 4), partial(_put_back, f, key, voter, knowing, other))


def _put_back(f: Faults, key: int, voter: str, knowing: list[str], other: list[str]) -> None:
    again = f.active.pop(key, None)
    if again is None:
        return  # the calm came first
    again()
    f.acts.ends(key)
    f.acts.put_back(voter)
    f.acts.start(voter)
    way = between(tuple(knowing), (voter, *other))
    f.acts.cut(way)
    f.lasting("ballot put back", voter, lambda: f.acts.mend(way), 3, 6)
