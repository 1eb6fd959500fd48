"""Nodes that are in no list here, or speak from elsewhere than it says: what of them is heard, and where they are
answered.

A node that is to be added does not know its address before the members have it, and the members do not know where it
is before it speaks. So it asks from any port, and is answered there. That is all that it gets: of a guest nothing is
heard but questions about memory, which bind nobody, and nothing is sent to it but what answers that very start of it.
It neither votes nor acks in this way. A second machine with the name of a node that is heard is no guest.
"""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from primacy.election.messages import Admission, Message, Query, Report
from primacy.transport.duplicates import Spoken
from primacy.transport.layout import unpacked
from primacy.transport.peer import Address, Peer, SocketAddress
from primacy.transport.seal import Opened, Sort, Windows

GUESTS_MAX = 16
"""More at once are not answered: nobody adds so many nodes in a minute."""
SILENT_S = 6.0
"""A node that was silent for so long has gone, or was started anew; it speaks once per heartbeat."""

ANSWERS = (Report, Admission)
"""What a guest may be sent: each names the start that it answers."""


class Guest(NamedTuple):
    """One that asks, for people."""

    node: str
    host: str


class Guests:
    """Those of one node, by their names."""

    def __init__(self) -> None:
        self.by_name: dict[str, Peer] = {}
        self._spoken: dict[str, Spoken] = {}
        self._asked: dict[str, int] = {}
        """The start that the last question of each was of, in its own words."""

    @property
    def present(self) -> tuple[Guest, ...]:
        """Who asks at this time, and from which host."""
        since_s, known = monotonic() - SILENT_S, sorted(self.by_name.items())
        asks = (guest for name, guest in known if name in self._asked and guest.heard_s > since_s)
        return tuple(Guest(guest.name, guest.dialled.host) for guest in asks)

    def of(self, opened: Opened, source: SocketAddress, listed: Peer | None) -> Peer | None:
        """The guest that this is from; None if there are too many. Nothing of it is believed yet."""
        guest = self.by_name.get(opened.sender)
        if guest is None:
            self._forget_silent()
            if len(self.by_name) >= GUESTS_MAX:
                return None
            guest = self.by_name[opened.sender] = Peer(opened.sender, Address(*source[:2]))
            self._spoken[opened.sender] = Spoken()
            if listed is not None:
                guest.windows = listed.windows
        return guest

    def met(self, guest: Peer, opened: Opened, source: SocketAddress, asks: int) -> bool:
        """It knows our start, and says this for the first time: it is answered there. `asks`: the start that asks. True
        if another start of its name asks as well."""
        guest.heard_s, self._asked[guest.name] = monotonic(), asks
        guest.boot, guest.address, guest.dialled = opened.boot, source, Address(*source[:2])
        return self._spoken[guest.name].again(guest.heard_s, opened.boot)

    def spoke(self, guest: Peer) -> None:
        """It says something else than questions, and is there: what of it was heard is not heard again."""
        guest.heard_s = monotonic()

    def asker(self, to: str, message: Message) -> Peer | None:
        """The guest whose question this answers."""
        guest = self.by_name.get(to)
        if guest is None or not isinstance(message, ANSWERS) or message.echo != self._asked.get(to):
            return None
        return guest

    def leave(self, name: str, boot: int) -> bool:
        """This start speaks as a listed node from now on. True if it was a guest."""
        guest = self.by_name.get(name)
        if guest is None or guest.boot != boot:
            return False
        self._forget(name)
        return True

    def windows_of(self, name: str) -> Windows:
        """What was heard of one that is listed only now: it must not be heard again."""
        guest = self.by_name.get(name)
        return guest.windows if guest is not None else Windows()

    def _forget_silent(self) -> None:
        since_s = monotonic() - SILENT_S
        for name in [name for name, guest in self.by_name.items() if guest.heard_s < since_s]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        del self.by_name[name], self._spoken[name]
        self._asked.pop(name, None)


def asked_in(opened: Opened) -> Query | None:
    """The question of a guest; None if it says anything else, which is not looked at."""
    payload = opened.payload
    if opened.sort is Sort.CARRIES:
        payload = payload[2 : 2 + int.from_bytes(payload[:2], "big")]
    message = unpacked(opened.sender, payload)
    return message if isinstance(message, Query) else None


def is_taken(listed: Peer | None, boot: int, within_s: float) -> bool:
    """Another start of this name was heard within so long, where it is listed."""
    return listed is not None and listed.boot not in (0, boot) and monotonic() - listed.heard_s <= within_s
