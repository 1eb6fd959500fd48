"""What operators do to a register of members: they add, remove, replace and change nodes, and cancel it again.

They ask every node that believes it leads, as commands do that any node forwards. They are two, and know nothing of
each other. What they ask for may be refused, may come to a leader that is about to lose its term, and may name machines
that are set up later or never.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from primacy.election.events import Code
from primacy.election.model import Kind as MemberKind
from primacy.election.model import Member, Register
from primacy.sim.facts import MEMORY_LOST, Fact, Kind

if TYPE_CHECKING:
    from primacy.sim.faults.classes import Faults

NEVER_UP = 0.2
"""How often a machine that is to be a member is not set up with the request."""


def members(f: Faults) -> None:
    """An operator asks for other members, by adding, removing, replacing, promoting, or cancels a change."""
    now = register_of(f)
    if now is not None and now.goal is not None and f.chance.random() < 0.5:
        _cancel(f, "first")
        return
    _ask(f, "first", now)
    if f.chance.random() < 0.25:
        f.world.after(f.chance.choice((0.0, 5.0, f.unit_ms)) * f.chance.random(), partial(_second, f))


def _second(f: Faults) -> None:
    """The second operator knows nothing of the first."""
    if f.world.now >= f.end_ms:
        return
    if f.chance.random() < 0.4:
        _cancel(f, "second")
    else:
        _ask(f, "second", register_of(f))


def leaders(f: Faults) -> list[str]:
    """Everybody that believes it leads."""
    return [name for name in f.names if f.world.nodes[name].role == "leader"]


def register_of(f: Faults) -> Register | None:
    """What a command that asks for the members is told: by a leader, or else by anybody; the newest of that."""
    ballots = [f.world.nodes[name].disk.ballot for name in leaders(f) or f.names]
    registers = [ballot.register for ballot in ballots if ballot is not None and ballot.register is not None]
    return max(registers, key=lambda register: register.id, default=None)


def _cancel(f: Faults, by: str) -> None:
    for name in leaders(f):
        f.acts.cancel_change(name, by)


def _ask(f: Faults, by: str, now: Register | None) -> None:
    if now is None:
        return
    wanted = _wanted(f, now)
    for name in sorted(wanted):
        if name in f.spares and not f.world.nodes[name].introduced and f.chance.random() >= NEVER_UP:
            later_ms = f.chance.choice((0.0, 0.3, 3.0)) * f.unit_ms * f.chance.random()
            f.world.after(later_ms, partial(_introduce, f, name))
    version = f.chance.choice((0, 0, now.id.version, now.id.version - 1))
    rows = [(m.id, str(m.kind), m.priority, m.address) for m in (wanted[name] for name in sorted(wanted))]
    for name in leaders(f):
        f.acts.change_members(name, rows, by, max(0, version))


def _introduce(f: Faults, name: str) -> None:
    if f.world.now < f.end_ms:
        f.acts.introduce(name)


def _wanted(f: Faults, now: Register) -> dict[str, Member]:
    """A small change of what there is, or a membership of 1 to 5 voters that has little to do with it."""
    before = {member.id: member for member in now.members}
    after = _edited(f, dict(before)) if f.chance.random() < 0.5 else _drawn(f, before)
    able = [name for name, member in after.items() if member.kind is MemberKind.VOTER]
    voters = [name for name, member in after.items() if member.kind is not MemberKind.OBSERVER]
    return after if able and len(voters) >= f.voters_least else before


def _edited(f: Faults, after: dict[str, Member]) -> dict[str, Member]:
    outside = [name for name in (*f.names, *f.spares) if name not in after]
    inside = sorted(after)
    what = f.chance.randrange(5)
    if what in (1, 2) and len(inside) > 1:
        del after[f.chance.choice(inside)]
    if what in (0, 2) and outside:
        name = f.chance.choice(outside)
        after[name] = Member(name, _kind(f))
    if what >= 3:
        name = f.chance.choice(inside)
        changed = after[name]._replace(kind=_kind(f)) if what == 3 else after[name]
        after[name] = changed._replace(priority=f.chance.choice((0, 0, 5)), address=f.chance.choice(("", "moved")))
    return after


def _drawn(f: Faults, before: dict[str, Member]) -> dict[str, Member]:
    names = list(dict.fromkeys((*sorted(before), *f.names, *f.spares)))
    f.chance.shuffle(names)
    count = f.chance.randrange(f.voters_least, f.voters_most + 1)
    return {name: before.get(name, Member(name, _kind(f))) for name in names[:count]}


def _kind(f: Faults) -> MemberKind:
    return f.chance.choice((MemberKind.VOTER,) * 4 + (MemberKind.WITNESS, MemberKind.OBSERVER))


AIMED: dict[str, float] = {Kind.VOTE: 0.02, Kind.REGISTER: 0.04, Code.ELECTED: 0.03, Code.ADMITTED: 0.1}
"""How often a memory is lost right after such a moment."""


def forgets(f: Faults, fact: Fact) -> None:
    """A node loses its memory within milliseconds of a vote, of a register that it took, or of an admission."""
    odds = AIMED.get(fact.kind) or AIMED.get(fact.text)
    if odds is None or f.world.now >= f.end_ms or f.memory_left <= 0 or f.chance.random() >= odds:
        return
    f.world.after(f.chance.choice((0.0, 1.0, 20.0)) * f.chance.random(), partial(_forget, f, fact.node))


def _forget(f: Faults, name: str) -> None:
    if f.memory_left > 0 and f.world.now < f.end_ms and f.world.nodes[name].up:
        f.memory_left -= 1
        f.counted("memory")
        f.acts.crash(name, power=f.chance.random() < 0.5)
        f.acts.lose(name)
        f.lasting(MEMORY_LOST, name, lambda: f.acts.start(name), 0.002, 1)
