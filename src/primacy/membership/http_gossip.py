"""How our nodes hear of each other while a real node of Ghoti leads.

As a rule the leader passes on what each node says of itself: its followers look at it, and it announces itself to them.
A real leader passes nothing on, and does not say who of the list is ours. So a follower of one asks another node of the
list once a second, in turn: one of our nodes for its list with all that it was told (`GET /members`), which carries its
own word there; one that was not heard yet, who it is (`GET /leader`, which changes nothing anywhere). One that answers
as a real node does is not asked again. While one of our nodes leads nothing is sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primacy.membership.manager import HttpTransport

EVERY_S = 1.0
"""As often as a node says how it stands. With n nodes each one is heard at least every n seconds, and sooner, for what
one has heard the next one is told."""
LIMIT_S = 2.0


class Gossip:
    """One node's part in it."""

    def __init__(self, manager: HttpTransport) -> None:
        self.manager = manager
        self._timer: asyncio.TimerHandle | None = None
        self._last = ""

    def start(self) -> None:
        self.close()
        every_s = EVERY_S * self.manager.sending.pace.factor
        self._timer = asyncio.get_running_loop().call_later(every_s, self._turn)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        if self.manager.closed:
            return
        self.start()
        to = self._next() if self._is_needed() else ""
        if to:
            self._last = to
            work = self.manager.joining.fetch(to) if self.manager.peer(to).boot else self._who(to)
            self.manager.sending.call(to, "/gossip", work, 1)

    def _is_needed(self) -> bool:
        """A real node leads, as far as this one knows. While nobody leads, the election has the wire for itself."""
        manager = self.manager
        leader = manager.leader()
        return leader in manager.member_list and leader != manager.node and manager.peer(leader).is_real

    def _next(self) -> str:
        """The next in the order of names that may be ours and can be reached; empty if there is none."""
        manager = self.manager
        names = sorted(
            entry.node
            for entry in manager.member_list.others
            if not manager.peer(entry.node).is_real and entry.node not in manager.links.dumb_to
        )
        return next((name for name in names if name > self._last), names[0] if names else "")

    async def _who(self, to: str) -> None:
        await self.manager.sending.ask("GET", to, "/leader", None, LIMIT_S)
