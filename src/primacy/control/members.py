"""From an operator's words about members to the membership that is wanted, and back to words. Pure.

Each verb of `primacy members` is one function: it takes the register as the leader has it and gives the whole
membership that is wanted, or raises with the reason and the remedy. Whether the change may begin now, and how it is
made, is the election's to say (rules R).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from primacy.control import NodeStatus
from primacy.control.cluster import heard_ms
from primacy.election.inputs import CancelChange, ChangeMembers, ForceMembers
from primacy.election.model import Kind, Member, Register
from primacy.errors import Refused, UsageError
from primacy.settings.accepted import ID_CHARS_MAX, ID_PATTERN, wrong_address
from primacy.settings.schema import Settings

Members = tuple[Member, ...]
EVERY_HOST = ("0.0.0.0", "[::]", "[::0]")

PRIORITY_MAX = 1_000
MEMBERS_MAX = 32
"""More do not fit into what nodes tell each other, and no election needs them."""
BY_CHARS_MAX = 100
"""A user's name, with the machine's."""
KINDS = tuple(str(kind) for kind in Kind)


class Asked(NamedTuple):
    """What was said: a verb, the node it is about, and what else the verb needs."""

    verb: str
    node: str = ""
    new: str = ""
    """The node that takes its place, for `replace`."""
    addr: str = ""
    kind: str = ""
    priority: int | None = None
    members: Members = ()
    """The list of a file, for `apply`."""
    leaving: tuple[str, ...] | None = None
    """For `apply` of a difference: who leaves. `members` are then only those that come or change."""


def only(body: dict[str, Any], *known: str) -> None:
    """No field but these: a misspelt one must not be left out in silence."""
    for field in body:
        if field not in known:
            there = f"there is {', '.join(known)}" if known else "this order has none"
            raise UsageError(f"{field[:40]}: no such field; {there}")


def wanted(register: Register, asked: Asked) -> Members:
    """Raises `UsageError` for what makes no sense, `Refused` for what cannot be done to these members."""
    made = VERBS[asked.verb](register, asked)
    found = tuple(sorted(made, key=lambda member: member.id))
    if len(found) > MEMBERS_MAX:
        raise Refused(f"{len(found)} members are more than {MEMBERS_MAX}; nodes that only watch need not be members")
    _check_addresses(found)
    return found


def _add(register: Register, asked: Asked) -> Members:
    node = _name(asked.node)
    there = register.get(node)
    if there is not None:
        raise Refused(f"{node} is a {there.kind} already; to move it: primacy members set {node} --addr HOST:PORT")
    return (*register.members, Member(node, _kind(asked.kind), asked.priority or 0, address=_new_address(asked.addr)))


def _remove(register: Register, asked: Asked) -> Members:
    _member(register, asked.node)
    return _without(register, asked.node)


def _replace(register: Register, asked: Asked) -> Members:
    """The new one gets the kind and the priority of the old one, unless others were said."""
    old, node = _member(register, asked.node), _name(asked.new)
    if register.get(node) is not None:
        raise Refused(f"{node} is a member already; to take {old.id} out: primacy members remove {old.id}")
    kind = _kind(asked.kind) if asked.kind else old.kind
    priority = old.priority if asked.priority is None else asked.priority
    return (*_without(register, old.id), Member(node, kind, priority, address=_new_address(asked.addr)))


def _promote(register: Register, asked: Asked) -> Members:
    there = _member(register, asked.node)
    if there.kind is Kind.VOTER:
        raise Refused(f"{there.id} is a voter already")
    return (*_without(register, there.id), there._replace(kind=Kind.VOTER))


def _demote(register: Register, asked: Asked) -> Members:
    there, kind = _member(register, asked.node), _kind(asked.kind or Kind.OBSERVER)
    if kind is Kind.VOTER:
        raise UsageError(f"--to voter: that is primacy members promote {there.id}")
    if there.kind is kind:
        raise Refused(f"{there.id} is a {kind} already")
    return (*_without(register, there.id), there._replace(kind=kind))


def _set(register: Register, asked: Asked) -> Members:
    there = _member(register, asked.node)
    if not asked.addr and asked.priority is None:
        raise UsageError(f"what is to be set? primacy members set {there.id} --addr HOST:PORT, or --priority N")
    changed = there._replace(
        address=_new_address(asked.addr) if asked.addr else there.address,
        priority=there.priority if asked.priority is None else asked.priority,
    )
    if changed == there:
        raise Refused(f"{there.id} has that address and priority already")
    return (*_without(register, there.id), changed)


def _apply(register: Register, asked: Asked) -> Members:
    """A whole list, or a difference: that of a long list fits what nodes pass on to each other."""
    members = asked.members
    if asked.leaving is not None:
        changed = {*asked.leaving, *(member.id for member in members)}
        members = (*(member for member in register.members if member.id not in changed), *members)
    if not difference(members, register):
        raise Refused(f"the file names the members of version {register.id.version}: there is nothing to apply")
    return members


VERBS: dict[str, Callable[[Register, Asked], Members]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "promote": _promote,
    "demote": _demote,
    "set": _set,
    "apply": _apply,
}


FIELDS = ("verb", "node", "new", "addr", "kind", "priority", "members", "version", "without", "by")


def request_of(body: dict[str, Any], register: Register, wall_ms: int) -> ChangeMembers | CancelChange | ForceMembers:
    """The body of `POST /v1/members`, as an input of the election."""
    only(body, *FIELDS)
    verb, by = body.get("verb"), body.get("by", "")
    if not isinstance(by, str) or len(by) > BY_CHARS_MAX or not by.isprintable():
        raise UsageError(f"by: a name of at most {BY_CHARS_MAX} characters")
    if verb == "cancel":
        return CancelChange(by)
    if verb == "force":
        if not body.get("without"):
            raise UsageError('without: the members that are gone for good, ["b", "c"]')
        return ForceMembers(_names(body["without"]))
    if verb not in VERBS:
        raise UsageError(f"verb = {str(verb)[:40]}: there is {', '.join((*VERBS, 'cancel', 'force'))}")
    version = body.get("version", 0)
    if type(version) is not int or version < 0:
        raise UsageError("version: the version of the members that this is about, a whole number")
    priority = body.get("priority")
    asked = Asked(
        verb,
        node=str(body.get("node", "")),
        new=str(body.get("new", "")),
        addr=str(body.get("addr", "")),
        kind=str(body.get("kind", "")),
        priority=None if priority is None else _priority(priority),
        members=members_of(body["members"]) if verb == "apply" and "members" in body else (),
        leaving=_names(body["without"]) if verb == "apply" and body.get("without") is not None else None,
    )
    return ChangeMembers(wanted(register, asked), by, wall_ms, version)


def _names(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or len(names) > MEMBERS_MAX:
        raise UsageError('without: a list of names, ["b", "c"]')
    return tuple(sorted({_name(name) for name in names}))


def difference(members: Iterable[Member], register: Register) -> tuple[str, ...]:
    """What would change for the register to have these members, a line for each node."""
    now = {member.id: member for member in register.members}
    then = {member.id: member for member in members}
    lines = [f"add {_shown(then[name])}" for name in sorted(then.keys() - now.keys())]
    lines += [f"remove {name}" for name in sorted(now.keys() - then.keys())]
    for name in sorted(now.keys() & then.keys()):
        old, new = now[name], then[name]
        said = [f"{what} {a} becomes {b}" for what, a, b in zip(WHAT, _parts(old), _parts(new), strict=True) if a != b]
        if said:
            lines.append(f"change {name}: {', '.join(said)}")
    return tuple(lines)


WHAT = ("kind", "address", "priority")


def _parts(member: Member) -> tuple[str, str, int]:
    return str(member.kind), member.address, member.priority


def _shown(member: Member) -> str:
    kind = "" if member.kind is Kind.VOTER else f" as {member.kind}"
    priority = f" with priority {member.priority}" if member.priority else ""
    return f"{member.id} at {member.address or 'no address'}{kind}{priority}"


def document(status: NodeStatus) -> dict[str, Any]:
    """`GET /v1/members`. Without members yet, `version` is null, and `waits_for` says why."""
    register, view = status.register, status.view
    shown: dict[str, Any] = {"node": status.node, "leader": view.leader or None}
    if register is None:
        return {**shown, "version": None, "term": None, "members": [], "waits_for": view.waits_for or None}
    halves = [{"voters": list(half), "needed": len(half) // 2 + 1} for half in register.halves]
    goal = register.goal
    return {
        **shown,
        "version": register.id.version,
        "term": register.id.term,
        "members": [
            {**_row(member), "heard_ms": heard_ms(status, member.id), "has_version": _has(status, member.id)}
            for member in register.members
        ],
        "leaving": [member.id for member in register.prior if register.get(member.id) is None],
        "needs": halves,
        "goal": None
        if goal is None
        else {"members": [_row(member) for member in goal.members], "by": goal.by, "wall_ms": goal.wall_ms},
        "waits_for": view.change or None,
        "removed_untold": list(untold(status)),
        "asking": [{"node": node, "host": host} for node, host in status.asking],
        "file": file_differs(status) or None,
    }


def _has(status: NodeStatus, node: str) -> int | None:
    """The version that a node says it has; None if it has said nothing."""
    if node == status.node:
        return status.register.id.version if status.register is not None else None
    heard = status.others.get(node)
    return heard.summary.members[1] or None if heard is not None else None


def untold(status: NodeStatus) -> tuple[str, ...]:
    """Who was removed and does not know it, as the leader says."""
    if status.view.leader == status.node:
        return status.view.removed_untold
    leader = status.others.get(status.view.leader)
    return leader.summary.untold if leader is not None else ()


def file_differs(status: NodeStatus) -> str:
    """What the file names and what the register has, if they differ: one sentence with the remedy."""
    return sentence_of(status.settings, status.register) if status.register is not None else ""


def members_in(settings: Settings) -> Members:
    """The nodes of a file, as members."""
    nodes = settings.cluster.manager.nodes
    return tuple(Member(name, Kind(one.kind), one.priority, address=one.addr) for name, one in sorted(nodes.items()))


def sentence_of(settings: Settings, register: Register) -> str:
    """How the nodes of a file differ from the members, and what to do; empty if they do not."""
    listed = members_in(settings)
    differs = difference(listed, register)
    if not listed or not differs:
        return ""
    now, named = (",".join(member.id for member in members) for members in (register.members, listed))
    return (
        f"the file names {named}; the members (version {register.id.version}) are {now} ({'; '.join(differs)}): the "
        "file counts only for a first start, and to edit it changes nothing. To make its nodes the members: primacy "
        "members apply; to write the members into it: primacy members export"
    )


def _row(member: Member) -> dict[str, Any]:
    return {"node": member.id, "kind": str(member.kind), "addr": member.address, "priority": member.priority}


def members_of(rows: Any) -> Members:
    """From `document`'s rows. Raises `UsageError` for anything else."""
    if not isinstance(rows, list) or len(rows) > MEMBERS_MAX:
        raise UsageError(f"members: a list of at most {MEMBERS_MAX} members")
    found = []
    for row in rows:
        if not isinstance(row, dict):
            raise UsageError('members: rows such as {"node": "a", "kind": "voter", "addr": "10.0.0.1:7400"}')
        kind = _kind(row.get("kind", ""))
        found.append(
            Member(_name(row.get("node")), kind, _priority(row.get("priority", 0)), address=_address(row.get("addr")))
        )
    if len({member.id for member in found}) < len(found):
        raise UsageError("members: a node is named twice")
    return tuple(sorted(found, key=lambda member: member.id))


def _name(text: Any) -> str:
    if not isinstance(text, str) or not re.fullmatch(ID_PATTERN, text):
        raise UsageError(
            f"{str(text)[:40]!r} is no name of a node: 1 to {ID_CHARS_MAX} letters, digits, dots, dashes, underscores"
        )
    return text


def _address(text: Any) -> str:
    wrong = wrong_address(text) if isinstance(text, str) and text else "it is missing"
    if wrong:
        raise UsageError(f"--addr {str(text or '')[:80]}: {wrong}; say where the other nodes find it, HOST:PORT")
    return str(text)


def _new_address(text: Any) -> str:
    """One that an operator says: it must lead to one machine. In a file there may be another one already."""
    address = _address(text)
    if address.rpartition(":")[0] in EVERY_HOST:
        raise UsageError(
            f"--addr {address}: that is every address of a machine, and nobody else can dial it; say where the other "
            f"nodes find it, HOST:PORT (to listen on all of its own, start it with --bind {address})"
        )
    return address


def _kind(text: Any) -> Kind:
    if text and text not in KINDS:
        raise UsageError(f"{str(text)[:40]!r} is no kind of member; there are {', '.join(KINDS)}")
    return Kind(text or Kind.VOTER)


def _priority(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= PRIORITY_MAX:
        raise UsageError(f"priority {str(value)[:40]}: a whole number, 0 to {PRIORITY_MAX:,}")
    return value


def _member(register: Register, node: str) -> Member:
    found = register.get(_name(node))
    if found is None:
        there = ", ".join(member.id for member in register.members)
        raise UsageError(f"{node} is no member; there are {there}")
    return found


def _without(register: Register, node: str) -> Members:
    return tuple(member for member in register.members if member.id != node)


def _check_addresses(members: Members) -> None:
    taken: dict[str, str] = {}
    for member in members:
        other = taken.setdefault(member.address, member.id)
        if other != member.id and member.address:
            raise Refused(f"address {member.address} of {member.id} is in use by {other}")
