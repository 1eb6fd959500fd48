"""All slots of one leadership, and who may do what with them.

For each user there is one table from the first four bytes of a command (`r000`) to what is done then: permissions are
looked up when the table is made, not at each command, so that a command costs one look and one call. A leader that
comes back gets a new board: nothing of an earlier leadership is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from primacy.settings.schema_work import Slots
from primacy.slots.kinds import REGISTERING, SIGNALS, Kind, Receiver, Signal, made

Act = Callable[[Receiver, bytes, int], bytes]
"""(who, the whole line, now_ms) -> the answer."""
Everybody = Callable[[], Iterable[Receiver]]
"""Who hears a broadcast besides those who registered."""

VALUE_BYTES_MAX = 36
MISSING, NO_WRITE, WRITE_FAILED, NO_READ, UNSUPPORTED = b"005", b"006", b"007", b"008", b"010"


def registers(slots: Slots) -> bool:
    """Are `s` and `d` commands here? They came with the slots that need them; without one they are unknown letters."""
    return any(slot.kind in REGISTERING for slot in slots.numbered.values())


def lowered(users: Mapping[str, str]) -> dict[str, str]:
    """Names as they are written, and in small letters: Ghoti's program reads them so, and its clients log in so."""
    return {name.lower(): word for name, word in users.items()} | dict(users)


class Board:
    """The slots of one leadership."""

    def __init__(self, slots: Slots, now_ms: int, random: Random, everybody: Everybody) -> None:
        self.everybody = everybody
        self.kinds: dict[bytes, Kind] = {}
        self.rights: dict[bytes, dict[str, str]] = {}
        self.registers = registers(slots)
        self.signalled = 0
        """Events that were handed to receivers, for the counters."""
        for number, slot in slots.numbered.items():
            name = number.encode()
            self.kinds[name] = made(slot, now_ms, random)
            self.rights[name] = lowered(slot.users)
        self._tables: dict[str, dict[bytes, Act]] = {}
        self._quick: dict[str, dict[bytes, Act]] = {}
        self._sends = {b"w" + name for name, kind in self.kinds.items() if isinstance(kind, Signal)}

    def may(self, user: str, number: bytes, right: str) -> bool:
        """`right`: r or w. A slot without users is everybody's."""
        rights = self.rights[number]
        return not rights or rights.get(user, "") in (right, "a")

    def table(self, user: str) -> dict[bytes, Act]:
        """What this user's commands do; an empty name is nobody's. There are as many as there are users, and one."""
        found = self._tables.get(user)
        if found is None:
            found = self._tables[user] = self._table(user)
        return found

    def quick(self, user: str) -> dict[bytes, Act]:
        """The same without those that send: each of them may cost as much as there are receivers."""
        found = self._quick.get(user)
        if found is None:
            acts = self.table(user).items()
            found = self._quick[user] = {name: act for name, act in acts if name not in self._sends}
        return found

    def signal(self, number: bytes) -> Signal | None:
        """The slot, if it is one that sends."""
        found = self.kinds.get(number)
        return found if isinstance(found, Signal) else None

    def forget(self, receiver: Receiver) -> None:
        """It is gone."""
        for kind in self.kinds.values():
            if isinstance(kind, Signal) and kind.registered:
                kind.deregister(receiver)

    # --- the tables ---------------------------------------------------------------------------------------------------

    def _table(self, user: str) -> dict[bytes, Act]:
        acts: dict[bytes, Act] = {}
        for number, kind in self.kinds.items():
            reads, writes = self.may(user, number, "r"), self.may(user, number, "w")
            acts[b"r" + number] = _reader(number, kind) if reads else _refuser(number, NO_READ)
            acts[b"w" + number] = self._writer(number, kind) if writes and kind.writable else _refuser(number, NO_WRITE)
            if not self.registers:
                continue
            for letter in (b"s", b"d"):
                if not isinstance(kind, Signal) or kind.kind not in REGISTERING:
                    acts[letter + number] = _refuser(number, UNSUPPORTED)
                elif not reads:
                    acts[letter + number] = _refuser(number, NO_READ)
                else:
                    acts[letter + number] = _registrar(number, kind, letter == b"s")
        return acts

    def _writer(self, number: bytes, kind: Kind) -> Act:
        head, failed = b"v" + number, b"e" + number + WRITE_FAILED + b"\n"

        def write(who: Receiver, line: bytes, now_ms: int) -> bytes:
            said = kind.write(now_ms, who, line[4:])
            return failed if said is None else head + said + b"\n"

        def send(who: Receiver, line: bytes, now_ms: int) -> bytes:  # noqa: ARG001
            assert isinstance(kind, Signal)
            return head + self.send(number, kind, line[4:], now_ms) + b"\n"

        return send if isinstance(kind, Signal) else write

    def send(self, number: bytes, kind: Signal, value: bytes, now_ms: int) -> bytes:
        """To all who may read it; then taken/tried/failed, as the writer is told."""
        assert kind.kind in SIGNALS
        kind.write(now_ms, None, value)
        heard = list(kind.registered)
        if kind.kind == "broadcast":
            heard += self.everybody()
        if self.rights[number]:
            heard = [each for each in heard if self.may(each.user, number, "r")]
        event = b"a" + number + value + b"\n"
        tried = kind.chosen(heard)
        taken = 0
        for each in tried:
            took = each.offer(event)
            taken += took
            if not took or each in kind.registered:
                kind.delivered(now_ms, each, took)
        self.signalled += len(tried)
        return b"%d/%d/%d" % (taken, len(tried), len(tried) - taken)


def _reader(number: bytes, kind: Kind) -> Act:
    head, value_of = b"v" + number, kind.read

    def read(who: Receiver, line: bytes, now_ms: int) -> bytes:  # noqa: ARG001
        return head + value_of(now_ms) + b"\n"

    return read


def _refuser(number: bytes, code: bytes) -> Act:
    answer = b"e" + number + code + b"\n"

    def refuse(who: Receiver, line: bytes, now_ms: int) -> bytes:  # noqa: ARG001
        return answer

    return refuse


def _registrar(number: bytes, kind: Signal, joins: bool) -> Act:
    answer = b"v" + number + (b"1\n" if joins else b"0\n")

    def register(who: Receiver, line: bytes, now_ms: int) -> bytes:  # noqa: ARG001
        (kind.register if joins else kind.deregister)(who)
        return answer

    return register
