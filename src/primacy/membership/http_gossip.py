"""How our nodes hear of each other while a real node of Ghoti leads.

As a rule the leader passes on what each node says of itself: its followers look at it, and it announces itself to them.
A real leader passes nothing on, and does not say who of the list is ours. So a follower of one asks another node of the
list once a second, in turn: one of our nodes for its list with all that it was told (`GET /members`), which carries its
own word there; one that was not heard yet, who it is (`GET /leader`, which changes nothing anywhere). One that answers
as a real node does is not asked again. While one of our nodes leads nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from primacy.membership.procedures import Timer
from primacy.membership.send import Sending
from primacy.membership.state import State

EVERY_S = 1.0
"""As often as a node says how it stands. With n nodes each one is heard at least every n seconds, and sooner, for what
one has heard the next one is told."""
LIMIT_S = 2.0


class Gossip:
    """One node's part in it."""

    def __init__(self, state: State, sending: Sending, fetch: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self.state = state
        self._sending = sending
        self._fetch = fetch
        self._timer: Timer | None = None
        self._last = ""

    def start(self) -> None:
        self.close()
        self._timer = self.state.procedures.later(EVERY_S * self.state.pace.factor, self.turn)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def turn(self) -> None:
        """While nobody leads, the election has the wire for itself."""
        self.start()
        to = self._next() if self.state.is_led_by_real else ""
        if to:
            self._last = to
            self._sending.call(to, "/gossip", self._fetch(to) if self.state.peer(to).boot else self._who(to), 1)

    def _next(self) -> str:
        """The next in the order of names that may be ours and can be reached; empty if there is none."""
        state = self.state
        names = sorted(
            entry.node
            for entry in state.member_list.others
            if not state.peer(entry.node).is_real and entry.node not in state.links.dumb_to
        )
        return next((name for name in names if name > self._last), names[0] if names else "")

    async def _who(self, to: str) -> None:
        await self._sending.ask("GET", to, "/leader", None, LIMIT_S)
