"""Questions about registers of members (rules R), pure: what the next one is, and who is new or leaves.

A register changes in steps. What changes no set of voters (kinds of voters, priorities, addresses, observers) is one
step. Voters change in two: a joint register, whose quorum is a majority of the voters and of those before, then the
final one (R6). Nothing here knows of time, terms or messages; `change.py` says when a leader takes which step.
"""

from __future__ import annotations

from primacy.election.model import Goal, Kind, Member, MembersId, Register

FIRST = MembersId(0, 1)
"""Of the register that the first ballot carries: the file's members (M3, R12)."""
UNKNOWN = MembersId(0, 0)
"""What a node shows that has no register: it has no memory, or is of the version before there were any."""
MEMBERS_MAX = 100
"""As many as a file may name."""
BY_CHARS_MAX = 64
"""Who asked for a change, for people; as much as a message carries."""


def ordered(members: tuple[Member, ...]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda member: member.id))


def first_register(members: tuple[Member, ...]) -> Register:
    return Register(FIRST, tuple(member._replace(started_ms=0) for member in ordered(members)))


def votes(member: Member) -> bool:
    return member.kind is not Kind.OBSERVER


def voting(members: tuple[Member, ...]) -> tuple[Member, ...]:
    return tuple(member for member in members if votes(member))


def names(members: tuple[Member, ...]) -> tuple[str, ...]:
    return tuple(member.id for member in members)


def is_voter(register: Register, node: str) -> bool:
    """Of either half: its vote and its acks count (R2)."""
    return any(node in half for half in register.halves)


def is_observer(register: Register, node: str) -> bool:
    """A member that counts in no quorum, so that it may come without a memory (R8)."""
    return register.get(node) is not None and not is_voter(register, node)


def is_joint_needed(register: Register, goal: Goal) -> bool:
    """The set of those that vote differs: two steps (R6)."""
    return names(voting(goal.members)) != register.voters


def new_voters(register: Register, goal: Goal) -> tuple[str, ...]:
    return tuple(name for name in names(voting(goal.members)) if name not in register.voters)


def prepared(register: Register, goal: Goal, leader: str) -> tuple[Member, ...]:
    """The goal as far as one step leads: who is to vote and does not yet is an observer, who votes still does (R6).

    A leader that is to lead no more stays what it is, until it has handed over (R7).
    """
    present = {member.id: member for member in register.members}
    wanted = {member.id: member for member in goal.members}
    found = []
    for name in sorted({*present, *wanted}):
        is_present_voter = name in present and votes(present[name])
        if name not in wanted:
            if is_present_voter:
                found.append(present[name])
        elif name == leader and wanted[name].kind is not Kind.VOTER:
            found.append(present[name])
        elif votes(wanted[name]) == is_present_voter:
            found.append(wanted[name])
        elif is_present_voter:  # it stops voting only by two steps
            found.append(wanted[name]._replace(kind=present[name].kind))
        else:
            found.append(wanted[name]._replace(kind=Kind.OBSERVER))
    return tuple(found)


def taken_back(register: Register) -> tuple[Member, ...]:
    """The members once the voters before vote again: who was to be new stays as observer."""
    prior = {member.id: member for member in register.prior}
    rest = [member._replace(kind=Kind.OBSERVER) for member in register.members if member.id not in prior]
    return ordered((*register.prior, *rest))


def difference(register: Register, members: tuple[Member, ...]) -> str:
    """What these members would change, for people."""
    present, wanted = {m.id: m for m in register.members}, {m.id: m for m in members}
    added = [f"{name} added" for name in sorted(wanted) if name not in present]
    removed = [f"{name} removed" for name in sorted(present) if name not in wanted]
    both = [(present[name], wanted[name]) for name in sorted(present) if name in wanted]
    kinds = [f"{new.id} as {new.kind}" for old, new in both if new.kind is not old.kind]
    changed = [f"{new.id} changed" for old, new in both if new != old and new.kind is old.kind]
    return ", ".join([*added, *removed, *kinds, *changed])


def sentence(register: Register) -> str:
    """A register in a few words, for people."""
    kinds = {Kind.VOTER: "", Kind.WITNESS: " (witness)", Kind.OBSERVER: " (observer)"}
    listed = ", ".join(f"{member.id}{kinds[member.kind]}" for member in register.members)
    return f"{listed}; before: {', '.join(names(register.prior))}" if register.prior else listed
