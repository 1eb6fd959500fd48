"""The ballot file: what a node must never forget, durable before anything relies on it (Q1, I7, I8).

A save writes a new file beside the old one, all of it, syncs it, exchanges the names and syncs the folder. After a
crash at any system call the old ballot or the new one stands, never a mixture; a sum over the content proves that it
is whole. A file that is torn, foreign or of an unknown layout is *no memory*, and `Memory.lost` says why: it must
never be taken for a node that was never started, whose file is simply not there.

Layout: two lines. `primacy-ballot 1 SUM`, then the ballot as one JSON object; SUM is BLAKE2b over the second line.
Fields that are not known are ignored (a newer version may have written them), fields with a default may be missing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from typing import Any, NamedTuple, Protocol

from primacy.election.model import TOKEN_MAX, Ballot, Goal, Kind, ListRecord, Member, MembersId, Register
from primacy.node.folder import Folder

NAME = "ballot"
KIND = "primacy-ballot"
LAYOUT = 1
SUM_BYTES = 16
BALLOT_BYTES_MAX = 262_144
"""A ballot of a hundred nodes and a few lists has under 20 KiB; more is no ballot."""
INTEGERS = ("base", "term", "hold_max_ms", "token_max", "incarnation")
NUMBER_MAX = 2**63 - 1


class Memory(NamedTuple):
    """What was found at a start."""

    ballot: Ballot | None = None
    lost: str = ""
    """Why there is no ballot although there was a file; empty if there was none, or if it was read."""


class Durable(Protocol):
    """The port of whatever keeps a ballot."""

    def load(self) -> Memory:
        """What was kept; never raises for what stands in the file."""
        ...

    def save(self, ballot: Ballot) -> None:
        """Returns once it is durable. Raises `OSError` if that is not certain."""
        ...


class MemoryDurable:
    """Keeps a ballot in memory, for tests. `fails` is raised by the saves that follow."""

    def __init__(self, ballot: Ballot | None = None) -> None:
        self.ballot = ballot
        self.fails: OSError | None = None
        self.saves = 0

    def load(self) -> Memory:
        return Memory(self.ballot)

    def save(self, ballot: Ballot) -> None:
        if self.fails is not None:
            raise self.fails
        self.ballot = ballot
        self.saves += 1


class FileDurable:
    """Keeps a ballot in a private folder."""

    def __init__(self, folder: Folder, name: str = NAME) -> None:
        self.folder = folder
        self.name = name

    @property
    def path(self) -> str:
        return self.folder.path(self.name)

    def load(self) -> Memory:
        try:
            data = self.folder.read(self.name, BALLOT_BYTES_MAX)
        except FileNotFoundError:
            return Memory()
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                raise
            return Memory(lost=f"it cannot be read: {error.strerror}")
        return unpacked(data)

    def save(self, ballot: Ballot) -> None:
        """Written whole, synced, renamed, and the folder synced. The old one stands until the rename.

        Not by whoever may no longer be the one writer of the folder (G11).
        """
        if not self.folder.is_ours():
            raise OSError(errno.ESTALE, "the lock of this agent was removed")
        fresh = self.name + ".new"
        data = packed(ballot)
        handle = self.folder.create(fresh)
        try:
            _write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        self.folder.rename(fresh, self.name)
        self.folder.sync()


def _write_all(handle: int, data: bytes) -> None:
    """A write may take less than it was given, and says so only by its answer."""
    rest = memoryview(data)
    while rest:
        written = os.write(handle, rest)
        if written <= 0:
            raise OSError(errno.EIO, "the disk takes no byte")
        rest = rest[written:]


# --- layout -----------------------------------------------------------------------------------------------------------


def packed(ballot: Ballot) -> bytes:
    """The content of the file."""
    body = json.dumps(_plain(ballot), separators=(",", ":"), ensure_ascii=True).encode()
    return f"{KIND} {LAYOUT} {_sum(body)}\n".encode() + body + b"\n"


def unpacked(data: bytes) -> Memory:
    """The ballot in the content of a file, or why there is none."""
    head, _, body = data.partition(b"\n")
    words = head.split(b" ")
    if len(words) < 2 or words[0] != KIND.encode():
        return Memory(lost="it is empty or torn" if len(data) < len(KIND) or not data.strip(b"\0") else "it is foreign")
    if words[1] != str(LAYOUT).encode():
        version = words[1][:12].decode("ascii", "replace")
        return Memory(lost=f"its layout is {version}, and this version of primacy knows {LAYOUT}; use the newer one")
    body = body.removesuffix(b"\n")
    if len(words) != 3 or words[2] != _sum(body).encode():
        return Memory(lost="its checksum does not fit: it is torn or was changed")
    try:
        return Memory(_ballot(json.loads(body)))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Memory(lost=f"its content is no ballot ({type(error).__name__}: {str(error)[:80]})")


def _sum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=SUM_BYTES).hexdigest()


def _plain(ballot: Ballot) -> dict[str, Any]:
    plain: dict[str, Any] = ballot._asdict()
    plain["lists"] = [_plain_list(record) for record in ballot.lists]
    if not ballot.left:
        del plain["left"]  # as earlier versions wrote it
    if ballot.register is None:
        del plain["register"]
    else:
        plain["register"] = _plain_register(ballot.register)
    return plain


def _plain_list(record: ListRecord) -> dict[str, Any]:
    """As earlier versions wrote it, where there is nothing else to say."""
    plain: dict[str, Any] = record._asdict()
    if not record.elsewhere:
        del plain["elsewhere"]
    return plain


def _plain_register(register: Register) -> dict[str, Any]:
    goal = register.goal
    return {
        "id": register.id._asdict(),
        "members": [member._asdict() for member in register.members],
        "prior": [member._asdict() for member in register.prior],
        "goal": goal and {**goal._asdict(), "members": [member._asdict() for member in goal.members]},
    }


def _ballot(plain: Any) -> Ballot:
    """Every field checked: a machine must be able to rely on what it is handed."""
    found: dict[str, Any] = {name: _number(plain[name], name) for name in INTEGERS}
    if found["token_max"] > TOKEN_MAX:
        raise ValueError(f"token_max is {found['token_max']}")
    found["voted_for"] = _text(plain["voted_for"])
    found["lists"] = tuple(_list(one) for one in plain["lists"])
    if "seen" in plain:
        found["seen"] = tuple(
            (_text(node), _number(incarnation, "seen"), _number(boot, "seen"))
            for node, incarnation, boot in plain["seen"]
        )
    for name in ("changed", "void"):
        if name in plain:
            found[name] = _flag(plain[name])
    if "left" in plain:
        found["left"] = tuple(map(_text, plain["left"]))
    if "register" in plain:
        found["register"] = _register(plain["register"])
    return Ballot(**found)


def _list(plain: Any) -> ListRecord:
    voters = tuple(map(_text, plain["voters"]))
    return ListRecord(_text(plain["hash"]), voters, _flag(plain["confirmed"]), _flag(plain.get("elsewhere", False)))


def _register(plain: Any) -> Register:
    identity = MembersId(_number(plain["id"]["term"], "term"), _number(plain["id"]["version"], "version"))
    goal = plain["goal"]
    wanted = None
    if goal is not None:
        wanted = Goal(_members(goal["members"]), _text(goal["by"]), _number(goal["wall_ms"], "wall_ms"))
    register = Register(identity, _members(plain["members"]), _members(plain["prior"]), wanted)
    if not register.voters or any(member.kind is Kind.OBSERVER for member in register.prior):
        raise ValueError("a register without a voter, or with an observer before it")
    return register


def _members(rows: Any) -> tuple[Member, ...]:
    found = tuple(
        Member(
            _text(row["id"]),
            Kind(row["kind"]),
            _priority(row["priority"]),
            _number(row["started_ms"], "started_ms"),
            _text(row["address"]),
        )
        for row in rows
    )
    names = [member.id for member in found]
    if names != sorted(set(names)):
        raise ValueError("members that are not in order")
    return found


def _priority(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("a priority is no number")
    return value


def _number(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{name} is no number that primacy writes")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("a name is no text")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("a mark is neither true nor false")
    return value
