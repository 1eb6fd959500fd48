"""What cache peers tell each other. Closed. How each looks as frames: `wire.py`.

The first seven are the original's. Each may carry a `Trailer`, one more frame, which originals ignore; in `own` mode
every message has one (C1). The others are spoken between peers of this product only.
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.cache.model import NO_BALLOT, Ballot, Floor


class Trailer(NamedTuple):
    """What `own` mode adds to a message (C1). Fields that a message does not use keep their default."""

    membership: int = 0
    """Hash of the sender's list of peers."""
    previous: int = 0
    """Hash of the list before it: neighbours may still work together (C10)."""
    boot: int = 0
    """The sender's boot."""
    echo: int = 0
    """Answers, acks and PONGs: the boot of the peer that asked."""
    ballot: Ballot = NO_BALLOT
    """QUESTION, ANSWER, ANNOUNCE, ACK, UPDATE: the ballot that it is about."""
    number: int = 0
    """ANNOUNCE and PING: counted up; ACK and PONG: the number that is answered."""
    epoch: Ballot = NO_BALLOT
    """Epoch of the value that the sender holds (ANSWER) or sends (UPDATE)."""
    need: int = 0
    """QUESTION, first ANNOUNCE: the lowest term of an epoch that would do (C6); 0: any fresh copy does."""
    wait_ms: int = 0
    """A refusal: how long the promise that forbids it still runs (C3)."""
    ended: bool = False
    """ANSWER no to all: this ballot is over (C7)."""
    digest: int = 0
    """PING, PONG and reports about the list: digest of all floors."""
    since: int = 0
    """PONG: the sender's floors are complete for epochs of terms above this (C12)."""
    wall_ms: int = 0
    """PING, PONG: the sender's wall clock, so that a clock that is off raises an alert (C2)."""
    fetched_ms: int = 0
    """UPDATE: when the call began."""
    floor: int = 0
    """ANSWER no, because of a floor: its term."""
    pending: int = 0
    """Hash of the list that the sender is about to take: a neighbour as well (C10)."""
    missing: bool = False
    """With `ended`: nothing failed, the source has no such entry."""


class Question(NamedTuple):
    """May I fetch this key?"""

    key: bytes
    term: int
    trailer: Trailer | None = None


class Answer(NamedTuple):
    """Yes or no, the highest term known, and when the copy here expires (0: none)."""

    key: bytes
    term: int
    expire_ms: int
    vote: bool
    trailer: Trailer | None = None


class EntryRequest(NamedTuple):
    """Send me your copy."""

    key: bytes
    trailer: Trailer | None = None


class Update(NamedTuple):
    """A value, fresh from the source or as the answer to ENTRYREQ."""

    key: bytes
    term: int
    expire_ms: int
    value: bytes
    trailer: Trailer | None = None


class Announce(NamedTuple):
    """I fetch this key, or am about to."""

    key: bytes
    term: int
    expire_ms: int
    trailer: Trailer | None = None


class Ping(NamedTuple):
    """Are you there?"""

    trailer: Trailer | None = None


class Pong(NamedTuple):
    """Yes."""

    trailer: Trailer | None = None


class Ack(NamedTuple):
    """The answer to an ANNOUNCE of `own` mode: its number was heard, and the promise made (C4, C5). `trailer.ballot`
    and `trailer.number` say which."""

    key: bytes
    trailer: Trailer


class Numbered(NamedTuple):
    """One key of several: the term of its ballot, and the number of its ANNOUNCE."""

    key: bytes
    term: int
    number: int


class Announces(NamedTuple):
    """ANNOUNCEs of several keys whose sources were called, in one message: each renews its own hold (C4). The peer of
    their ballots is the sender, the boot that of the trailer."""

    keys: tuple[Numbered, ...]
    trailer: Trailer


class Acks(NamedTuple):
    """The answer to `Announces`: for these of its keys the promise was made. `trailer.echo` is the boot of their
    ballots."""

    keys: tuple[Numbered, ...]
    trailer: Trailer


class FloorQuery(NamedTuple):
    """What is the highest term that you know of this key (or of every key with this prefix)? (C11)"""

    key: bytes
    prefix: bool
    request: int
    trailer: Trailer


class FloorAnswer(NamedTuple):
    """The highest term known."""

    key: bytes
    prefix: bool
    request: int
    term: int
    trailer: Trailer


class FloorSet(NamedTuple):
    """Store this floor and say so."""

    floor: Floor
    request: int
    trailer: Trailer


class FloorAck(NamedTuple):
    """The floor is durable here. `highest`: the highest term of an epoch that was held or fetched here (C11)."""

    floor: Floor
    request: int
    highest: int
    trailer: Trailer


class FloorsRequest(NamedTuple):
    """Our digests differ: send me your floors, after this key (bounded pages)."""

    after: bytes
    trailer: Trailer


class Floors(NamedTuple):
    """Floors, in order of their keys. `more`: there are others behind the last. `trailer.number` is that of the
    PING whose answer led to it."""

    floors: tuple[Floor, ...]
    more: bool
    trailer: Trailer


Message = (
    Question
    | Answer
    | EntryRequest
    | Update
    | Announce
    | Ping
    | Pong
    | Ack
    | Announces
    | Acks
    | FloorQuery
    | FloorAnswer
    | FloorSet
    | FloorAck
    | FloorsRequest
    | Floors
)
