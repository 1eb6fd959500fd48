"""One client's conversation, as bytes in and bytes out. Knows no socket and no clock.

Framing, in the order of the bytes: a line ends with LF (telnet: CR LF), has at most 40 bytes before that, and is
answered by one line, in order. What is too long is answered once and skipped to its LF. What has no LF yet waits; the
driver says when it has waited too long. Nothing that a client sends can do more than be refused. Signals to many, sent
by the hundred at once, are worked off in portions: between two of them the driver attends to everybody else.

Every node reads and refuses what is no command; only the leader, which has a board, does more: all others answer
NOT_LEADER and the leader's id.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping
from typing import ClassVar

from primacy.settings.schema_work import Slots
from primacy.slots.board import MISSING, Act, Board, lowered, registers

LINE_BYTES_MAX = 40
LINE_BYTES_MIN = 4
NAME = re.compile(rb"[A-Za-z][A-Za-z0-9_]{3,}")
SIGNED = re.compile(rb"[rw](?:\+[0-9]{2}|-00)")
"""Slots as the first version of Ghoti reads them, too: of three bytes the first may be a sign. Below 0 there is none:
that version dies of it, and later ones refuse every sign."""
PASSWORD_BYTES_MIN = 4
EVENTS_PER_TURN = 1_000
"""Signals that one client's lines hand out in one go; some milliseconds. An election must not wait for more."""
PARSE_ERROR = b"exxx001\n"
WRONG_USER = b"exxx002\n"
WRONG_PASS = b"exxx003\n"
WRONG_LOGIN = b"exxx004\n"
NOBODY: Mapping[bytes, Act] = {}
"""The table of a node that does not lead."""
NO_PASSWORD = b"\x00" * 16
"""Compared with for a name that nobody has, so that it takes as long as for one that somebody has."""


class Hall:
    """What all sessions of a node share: does it lead, and if not, who does."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.passwords = lowered(slots.users)
        self.slot_letters = b"rwsd" if registers(slots) else b"rw"
        self.board: Board | None = None
        self.not_leader = b"exxx000\n"
        self.requests = 0
        """Lines that were answered."""
        self.logins_refused = 0
        self._signalled = 0

    def follow(self, leader: str) -> None:
        """This node does not lead. An id with anything but visible characters in it is not passed on to clients."""
        if self.board is not None:
            self._signalled += self.board.signalled
        self.board = None
        plain = leader.isprintable() and " " not in leader
        self.not_leader = b"exxx000" + (leader.encode() if plain else b"") + b"\n"

    def lead(self, board: Board) -> None:
        self.board = board

    @property
    def events(self) -> int:
        """Handed to receivers, under all boards."""
        return self._signalled + (self.board.signalled if self.board is not None else 0)


class Session:
    """One client. Its driver gives it bytes and sends what it answers."""

    __slots__ = ("acts", "closing", "hall", "more", "name", "offer_to", "out", "rest", "sent", "skips", "user")
    tail: ClassVar[bytes] = b""
    """What stands before the LF."""

    def __init__(self, hall: Hall, offer_to: Callable[[bytes], bool]) -> None:
        """`offer_to`: hands an event to the client, outside of an answer."""
        self.hall = hall
        self.offer_to = offer_to
        self.user = ""
        self.name = b""
        """What `u` said."""
        self.rest = b""
        """A line without its end; or, if there is `more`, all that was not worked off."""
        self.more = False
        """`take` wants to be called again, with nothing new, in another turn."""
        self.sent = 0
        """Signals handed out in this go."""
        self.skips = False
        """In the middle of a line that was too long."""
        self.closing = False
        """Hang up when what was answered is sent."""
        self.out: list[bytes] | None = None
        """Answers of the bytes that are being taken."""
        self.acts: Mapping[bytes, Act] = NOBODY
        self.greet()

    def greet(self) -> None:
        """The node begins or ceases to lead, or the session is new: nobody is logged in."""
        board = self.hall.board
        self.user, self.name = "", b""
        self.acts = board.quick("") if board is not None else NOBODY

    def take(self, data: bytes, now_ms: int) -> bytes:
        """The answers to what came, or to the first of it."""
        self.more = False
        if self.rest:
            data = self.rest + data
        lines = data.split(b"\n")
        rest = lines.pop()
        if self.skips and lines:
            del lines[0]
            self.skips = False
        self.out = out = []
        acts = self.acts
        coming = iter(lines)
        for line in coming:
            act = acts.get(line[:4])
            if act is not None and len(line) <= LINE_BYTES_MAX:
                out.append(act(self, line, now_ms))
            else:
                out.append(self._other(line, now_ms))
                if self.closing or self.sent >= EVENTS_PER_TURN:
                    break
                acts = self.acts
        self.out = None
        self.hall.requests += len(lines)
        self.rest = rest
        if self.sent >= EVENTS_PER_TURN and self._keeps([*coming, rest]):
            self.hall.requests -= self.rest.count(b"\n")
        elif self.skips:
            self.rest = b""
        elif len(rest) > LINE_BYTES_MAX + len(self.tail):
            self.rest, self.skips = b"", True
            out.append(PARSE_ERROR)
        return out[0] if len(out) == 1 else b"".join(out)

    def _keeps(self, lines: list[bytes]) -> bool:
        """It was enough for one go: these, of which the last has no end, wait for the next."""
        self.sent = 0
        self.more = len(lines) > 1 and not self.closing
        if self.more:
            self.rest = b"\n".join(lines)
        return self.more

    def give_up_line(self) -> bytes:
        """Its end did not come in time."""
        self.rest = b""
        return PARSE_ERROR

    def offer(self, event: bytes) -> bool:
        """To the client: now, or, while its own command is being answered, before that answer."""
        if self.out is not None:
            self.out.append(event)
            return True
        return self.offer_to(event)

    def deregistered(self) -> None:
        """The protocol has no word for it; the client may register again."""

    # --- all that is no plain command on a slot -----------------------------------------------------------------------

    def _other(self, line: bytes, now_ms: int) -> bytes:
        """First what is no command, then who leads, then names and slots; last a signal."""
        letter = line[:1]
        if letter == b"q":
            self.closing = True
            return b""
        if not LINE_BYTES_MIN <= len(line) <= LINE_BYTES_MAX:
            return PARSE_ERROR
        names = letter in (b"u", b"p")
        if SIGNED.match(line):
            line = letter + b"0" + line[2:]
        if not names and not (letter in self.hall.slot_letters and line[1:4].isdigit()):
            return PARSE_ERROR
        board = self.hall.board
        if board is None:
            return self.hall.not_leader
        if names:
            return self._named(line[1:], board) if letter == b"u" else self._proved(line[1:], board)
        act = board.table(self.user).get(line[:4])
        if act is None:
            return b"e" + line[1:4] + MISSING + b"\n"
        before = board.signalled
        said = act(self, line, now_ms)
        self.sent += board.signalled - before
        return said

    def _named(self, name: bytes, board: Board) -> bytes:
        if not NAME.fullmatch(name):
            self.closing = True
            return WRONG_USER
        self.user, self.name = "", name
        self.acts = board.quick("")
        return b"v" + name + b"\n"

    def _proved(self, password: bytes, board: Board) -> bytes:
        if len(password) < PASSWORD_BYTES_MIN or not self.name:
            self.closing = True
            return WRONG_PASS
        name = self.name.decode()
        known = self.hall.passwords.get(name)
        right = hmac.compare_digest(password, known.encode() if known is not None else NO_PASSWORD)
        if known is None or not right:
            self.closing = True
            self.hall.logins_refused += 1
            return WRONG_LOGIN
        self.user = name
        self.acts = board.quick(name)
        return b"v" + self.name + b"\n"


class TelnetSession(Session):
    """Lines end in CR LF; answers in LF alone. Option bytes of telnet are bytes like any other."""

    __slots__ = ()
    tail = b"\r"

    def take(self, data: bytes, now_ms: int) -> bytes:
        """One line after the other, for each end must be looked at. A human types: speed is no matter."""
        if self.rest:
            data = self.rest + data
            self.rest = b""
        lines = data.split(b"\n")
        rest = lines.pop()
        answers = []
        began = self.hall.events
        coming = iter(lines)
        for line in coming:
            if self.skips or line[-1:] == b"\r":
                answers.append(super().take(line[:-1] + b"\n", now_ms))
            else:
                answers.append(PARSE_ERROR)
            enough = self.hall.events - began >= EVENTS_PER_TURN
            if self.closing or (enough and self._keeps([*coming, rest])):
                return b"".join(answers)
        if rest:
            answers.append(super().take(rest, now_ms))
        return b"".join(answers)
