"""Whom real nodes of Ghoti take for the leader, as far as this node told them or heard it from them. Pure.

A real node writes lines into its log when it is told who leads, and when it is asked whether it does. So that is done
again only after a while, or when something was heard that may have changed what it believes.
"""

from __future__ import annotations

from primacy.membership.state import State

QUIET_S = 2.0
"""So often at most a real node is told again who leads, and a real leader is asked again whether it does, as long as
nothing was heard that could have changed it: each time it writes lines into its log. A look, which it answers without a
line, goes on at every heartbeat. It looks at its own leader as often."""
CALLS_IN_VAIN = 3
"""Calls that a real node answered, and nobody announced anything: it is joined, for it does not know this node."""


class Beliefs:
    """One node's knowledge of them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.moves = 0
        """How often something was heard that may have changed what they believe."""
        self._told: dict[str, tuple[int, float]] = {}
        """The number of the leadership that each was told of last, and when."""
        self._claimed: dict[str, float] = {}
        """When each said last that it leads."""
        self._in_vain: dict[str, int] = {}
        """Calls that each answered since anybody led or a real node was heard."""

    def moved(self) -> None:
        """A node that is not ours calls, announces or joins: what real ones believe may be another thing now."""
        self.moves += 1
        self._told.clear()
        self._claimed.clear()
        self._in_vain.clear()

    def told(self, to: str, epoch: int) -> None:
        self._told[to] = (epoch, self.state.now_s)

    def knows(self, to: str, epoch: int) -> bool:
        """It was told of this leadership a moment ago, and has believed it."""
        told, at_s = self._told.get(to, (0, 0.0))
        return told == epoch and self._is_recent(at_s) and not self.state.peer(to).boot

    def stop_knowing(self, to: str) -> None:
        """It is told again, or did not say that it lives."""
        self._told.pop(to, None)

    def claimed(self, to: str) -> None:
        self._claimed[to] = self.state.now_s

    def claims(self, to: str) -> bool:
        """It said a moment ago that it leads."""
        return self._is_recent(self._claimed.get(to, float("-inf")))

    def stop_claiming(self, to: str) -> None:
        """It is asked again."""
        self._claimed.pop(to, None)

    def _is_recent(self, at_s: float) -> bool:
        """It will not be too long ago at the next heartbeat either."""
        return self.state.now_s - at_s < QUIET_S - self.state.timing.heartbeat_ms / 1_000

    def called_in_vain(self, to: str) -> bool:
        """A real node answers a call, and must announce itself then. If it never does, it has forgotten this node: one
        that was restarted without a node to join knows nobody, and would be called for ever."""
        self._in_vain[to] = self._in_vain.get(to, 0) + 1
        if self._in_vain[to] < CALLS_IN_VAIN:
            return False
        self._in_vain.clear()
        return True

    def somebody_leads(self) -> None:
        """No call was in vain."""
        self._in_vain.clear()
