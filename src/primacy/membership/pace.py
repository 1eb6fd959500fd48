"""How much slower than usual the other nodes answer, as a factor for all times of bully and ring. Pure.

Twenty nodes that start together on two cores answer each other after a second, where a profile counts on a tenth of
that. Each then takes all others for dead and leads; twenty leaders announce themselves to twenty nodes at every
heartbeat, which keeps the machine as busy as it is: an election that feeds itself, and does not end when its cause has
gone. So a node that is answered late by *several* others does everything more slowly: its limits are longer and its
heartbeats rarer, until they answer in time again. Silence says nothing here, and one slow node alone nothing either:
those are what the limits of the profile are for.
"""

from __future__ import annotations

PACE_MAX = 8
"""Of the times of the profile. Slower than this is a machine on which nobody could tell the dead from the living."""
ROOM = 2
"""Times what an answer took is what the limit leaves for the next."""
KEPT_S = 5.0
"""So long an answer counts, and so long a pace is kept before it quickens."""
WITNESSES = 2
"""Nodes that must have answered late before the pace slows down: one of them may itself be the trouble."""
PATIENCE_S = 3.0
"""One call to each node is waited for at least so long, whatever the limit: else nobody knew how late its answer is."""


class Pace:
    """One node's measure of the others."""

    def __init__(self) -> None:
        self.factor = 1
        self._since_s = 0.0
        self._needed: dict[str, list[tuple[float, int]]] = {}
        """By node: when it answered lately, and the factor that its answer would have needed; falling."""

    def answered(self, now_s: float, node: str, took_s: float, limit_s: float) -> bool:
        """An answer came, to a call for which the profile has this limit. True if the pace is another one now."""
        needed = 1
        while needed < PACE_MAX and needed * limit_s < ROOM * took_s:
            needed *= 2
        self._note(now_s, node, needed)
        worst = sorted((each[0][1] for each in self._needed.values()), reverse=True)
        wanted = worst[WITNESSES - 1] if len(worst) >= WITNESSES else min(worst[0], self.factor)
        if wanted == self.factor or (wanted < self.factor and now_s - self._since_s < KEPT_S):
            return False
        self.factor = wanted if wanted > self.factor else self.factor // 2
        self._since_s = now_s
        return True

    def _note(self, now_s: float, node: str, needed: int) -> None:
        """Of each node only what no later answer has outdone is kept: at most one for each factor."""
        own = [(at_s, each) for at_s, each in self._needed.pop(node, []) if each > needed]
        self._needed[node] = [*own, (now_s, needed)]
        for name, seen in list(self._needed.items()):
            fresh = [(at_s, each) for at_s, each in seen if now_s - at_s <= KEPT_S]
            if fresh:
                self._needed[name] = fresh
            else:
                del self._needed[name]
