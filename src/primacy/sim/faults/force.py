"""The last resort of an operator (R14): machines are gone for good, and the others go on without them.

What the operator vouches for is true here: who is named is off for ever, and its disk with it. The operator looks at
all that are left, and says it on one that has the newest register. Somebody may lead meanwhile, where the operator does
not see it. A lie, and a node that knows less than others, are outside of the promise (docs/operate.md).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from primacy.election.model import Kind as MemberKind
from primacy.election.model import Register
from primacy.sim.faults import members as fault_members

if TYPE_CHECKING:
    from primacy.sim.faults.classes import Faults

UNSEEN = 0.3
"""How often the operator does not see that somebody leads."""
PAUSE = 0.7
"""Holds between two tries."""


def force(f: Faults) -> None:
    """Some machines are gone for good, once in a trial; then an operator says so (R14)."""
    register = newest(f)
    if register is None or f.acts.gone:
        return
    gone = _chosen(f, register)
    if not gone:
        return
    for name in gone:
        f.acts.destroy(name)
    f.acts.begins("", 0, f"gone for good: {', '.join(sorted(gone))}")
    f.world.after(f.unit_ms * f.chance.random(), partial(_again, f))


def _again(f: Faults) -> None:
    if f.world.now < f.end_ms and go_without(f, sees=f.chance.random() >= UNSEEN):
        f.world.after(f.unit_ms * PAUSE, partial(_again, f))


def _chosen(f: Faults, register: Register) -> list[str]:
    """Any of them, as long as one is left that may lead and knows the newest register, and enough vote."""
    able = [name for name in _holders(f, register) if not f.acts.is_doubled(name)]
    names = [name for name in register.everybody if name in f.names and not f.acts.is_doubled(name)]
    f.chance.shuffle(names)
    gone: list[str] = []
    for name in names[: f.chance.randrange(1, len(names) + 1) if names else 0]:
        voters = [voter for voter in register.voters if voter not in (*gone, name)]
        if any(other not in (*gone, name) for other in able) and len(voters) >= f.voters_least:
            gone.append(name)
    return gone


def newest(f: Faults) -> Register | None:
    """Of all that are left; of the cluster that began last. One that was never used is not forced: its operator changes
    the file, and begins it anew."""
    ballots = [node.disk.ballot for name, node in f.world.nodes.items() if name not in f.acts.gone]
    known = [ballot for ballot in ballots if ballot is not None and not ballot.void and ballot.register is not None]
    known = [ballot for ballot in known if ballot.term > 0]
    base = max((ballot.base for ballot in known), default=0)
    registers = [ballot.register for ballot in known if ballot.base == base and ballot.register is not None]
    return max(registers, key=lambda register: register.id, default=None)


def _holders(f: Faults, register: Register) -> list[str]:
    """Who may lead by this register, and has it."""
    able = [member.id for member in register.members if member.kind is MemberKind.VOTER]
    ballots = {name: f.world.nodes[name].disk.ballot for name in able if name not in f.acts.gone}
    return [name for name, ballot in ballots.items() if ballot is not None and ballot.register == register]


def go_without(f: Faults, *, sees: bool = True) -> bool:
    """Asks the leader to remove those that are gone, or says it on one node; False if none of them is a member."""
    register = newest(f)
    gone = [name for name in f.acts.gone if register is not None and register.named(name)]
    if register is None or not gone:
        return False
    leading = fault_members.leaders(f) if sees else []
    rows = [(m.id, str(m.kind), m.priority, m.address) for m in register.members if m.id not in gone]
    for name in leading:
        if register.goal is not None and any(member.id in gone for member in register.goal.members):
            f.acts.cancel_change(name, "first")
        f.acts.change_members(name, rows, "first")
    up = [name for name in _holders(f, register) if f.world.nodes[name].up]
    if not leading and up:
        f.acts.force_members(up[0], gone)
    return True
