"""When an election moves (W4 to W7). One per agent; each decides for what its own node leads.

All agents work out the same next step from what they know, and the one that leads that election makes it. It first
tells all others what it is about to do, waits until they must have heard it, and looks again: of two that want to move
at once, the one whose node comes first goes on. With the same view there is never more than one move under way. With
different views there may be two, and a needless one: then each election rests after a move, twice as long after each,
so that moves cannot go back and forth.

It never waits for anything without a deadline, and takes nobody's word for more than `intent_max_ms`.
"""

from __future__ import annotations

from typing import assert_never

from primacy.placement.model import URGENT, Intent, NodeSeen, Step, View
from primacy.placement.order import aside, orders
from primacy.placement.plan import Allowed, next_step
from primacy.placement.vocabulary import (
    Announce,
    DeadlinePassed,
    Effect,
    Input,
    Move,
    MoveEnded,
    Order,
    Rebalance,
    Seen,
)
from primacy.settings.timing import PlacementTiming

DOUBLED_MAX = 4
"""A rest is doubled so often at most: 16 times the first one."""
RETURNS_MAX = 16
"""Moments of returns that are kept of a node."""
LATE_MS = 3_000
"""A word that is so late makes its sender look younger by as much, and no more: it has not started anew."""
NEVER_MS = 1 << 62


class Rest:
    """What is remembered of one election's changes of leader, and of handovers that failed."""

    def __init__(self) -> None:
        self.leader = ""
        """The last one that was known."""
        self.changes = 0
        self.changed_ms = 0
        self.until_ms = 0
        self.failures = 0
        self.retry_ms = 0


class PlacementMachine:
    """One node's part in placing elections."""

    def __init__(self, node: str, timing: PlacementTiming) -> None:
        self.node = node
        self.timing = timing
        self.deadline_ms = NEVER_MS
        self.view = View()
        self.intent: Intent | None = None
        self.step_reason = ""
        self.moving = False
        self._act_at_ms = NEVER_MS
        """When the intent is acted on."""
        self._ended_ms = 0
        """When the last handover that is known here was over."""
        self._calm_since_ms = 0
        self._rebalance_until_ms = 0
        self._rests: dict[str, Rest] = {}
        self._returns: dict[str, list[int]] = {}
        self._heard_intents: dict[str, tuple[Intent, int]] = {}
        self._expected: dict[str, tuple[str, int]] = {}
        """Where an election was announced to go, and until when a change of its leader to there disturbs nothing."""
        self._orders: dict[str, tuple[tuple[str, ...], str]] = {}
        self._order_key: dict[str, tuple[object, ...]] = {}
        self._lasting = View()
        self._ordered: View | None = None
        self._awaits_since_ms = NEVER_MS
        """Since when it is another node's turn."""
        self._failures = 0
        """Handovers of this node that failed one after the other: it lets others go first."""
        self._retry_ms = 0
        self._planned: tuple[tuple[object, ...], Step | None] | None = None
        """The last plan, and what it was made from: the same again is not worked out again."""

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        match given:
            case Seen(view):
                effects = self._see(now_ms, view)
            case DeadlinePassed():
                effects = []
            case MoveEnded(election, moved):
                effects = self._ended(now_ms, election, moved)
            case Rebalance():
                self._rebalance_until_ms = now_ms + self.timing.rebalance_ms
                for rest in self._rests.values():
                    rest.until_ms = rest.retry_ms = rest.changes = 0
                effects = []
            case _:
                assert_never(given)
        return effects + self._decide(now_ms)

    # --- what is known ------------------------------------------------------------------------------------------------

    def _see(self, now_ms: int, view: View) -> list[Effect]:
        before, self.view, self._lasting = self.view, view, _lasting(view)
        if view.maintenance and not before.maintenance:
            self._rebalance_until_ms = 0
        self._hear_intents(now_ms)
        self._note_nodes(now_ms, before)
        self._note_leaders(now_ms, before)
        return self._order_effects()

    def _hear_intents(self, now_ms: int) -> None:
        for node in self.view.nodes:
            if node.intent is None or node.node == self.node or not node.heard:
                if (over := self._heard_intents.pop(node.node, None)) is not None:
                    self._ended_ms = now_ms
                    self._expect(now_ms, over[0], 2 * self.timing.gap_ms)  # who leads may be known a moment later
                continue
            known = self._heard_intents.get(node.node)
            if known is None or known[0] != node.intent:
                self._heard_intents[node.node] = (node.intent, now_ms)
                self._expect(now_ms, node.intent, self.timing.intent_max_ms)

    def _expect(self, now_ms: int, intent: Intent, within_ms: int) -> None:
        self._expected[intent.election] = (intent.to, now_ms + within_ms)

    def _note_nodes(self, now_ms: int, before: View) -> None:
        """A node that comes or goes, or that may lead less or more than before, disturbs."""
        known = {node.node: node for node in before.nodes}
        for node in self.view.nodes:
            was = known.get(node.node, NodeSeen(node.node, heard=False))
            again = node.heard and (not was.heard or node.up_ms < was.up_ms - LATE_MS)  # also one that nobody missed
            if again and node.node != self.node:
                self._returned(now_ms, node.node)
            if again or (node.heard, node.drained, node.weight) != (was.heard, was.drained, was.weight):
                self._calm_since_ms = now_ms

    def _returned(self, now_ms: int, node: str) -> None:
        recent = [at_ms for at_ms in self._returns.get(node, []) if now_ms - at_ms < self.timing.flaps_ms]
        self._returns[node] = [*recent, now_ms][-RETURNS_MAX:]

    def _note_leaders(self, now_ms: int, before: View) -> None:
        if self.view.elections == before.elections:
            return
        known = {seen.name: seen for seen in before.elections}
        self._rests = {seen.name: self._rests.get(seen.name) or Rest() for seen in self.view.elections}
        for seen in self.view.elections:
            was = known.get(seen.name)
            if was is not None and was.leader == seen.leader:
                if was.unable != seen.unable or was.placement != seen.placement:
                    self._calm_since_ms = now_ms
                continue
            rest = self._rests[seen.name]
            if seen.leader and seen.leader != rest.leader:
                if rest.leader:
                    self._rest(now_ms, rest)
                rest.leader = seen.leader
            to, until_ms = self._expected.get(seen.name, ("", 0))
            if now_ms < until_ms and seen.leader in ("", to):
                self._ended_ms = now_ms
                self._awaits_since_ms = NEVER_MS
                if seen.leader == to:
                    del self._expected[seen.name]
            else:
                self._calm_since_ms = now_ms

    def _rest(self, now_ms: int, rest: Rest) -> None:
        """Twice as long after each change of its leader, whatever it came from: one that moves back and forth for any
        reason moves less and less. Forgotten when it has stayed for twice the longest rest (W6)."""
        if now_ms - rest.changed_ms > 2 * (self.timing.rest_ms << DOUBLED_MAX):
            rest.changes = 0
        rest.changed_ms = now_ms
        rest.until_ms = now_ms + (self.timing.rest_ms << min(rest.changes, DOUBLED_MAX))
        rest.changes += 1
        rest.failures = rest.retry_ms = 0

    # --- who campaigns first ------------------------------------------------------------------------------------------

    def _order_effects(self) -> list[Effect]:
        """An election without a leader keeps its order while the same nodes may lead it: two who campaign at once would
        split the votes."""
        if self._lasting == self._ordered:
            return []
        self._ordered = self._lasting
        found = orders(self.view)
        able = tuple((node.node, node.heard, node.drained) for node in self.view.nodes)
        effects: list[Effect] = []
        for seen in self.view.elections:
            key = (able, seen.unable, seen.placement)
            if not seen.leader and self._order_key.get(seen.name) == key:
                continue
            self._order_key[seen.name] = key
            order = (found[seen.name], aside(self.view, seen.name, self.node))
            if self._orders.get(seen.name) != order:
                self._orders[seen.name] = order
                effects.append(Order(seen.name, *order))
        return effects

    # --- moves --------------------------------------------------------------------------------------------------------

    def _decide(self, now_ms: int) -> list[Effect]:
        self.deadline_ms = NEVER_MS
        if self.moving and self.intent is not None:
            end_ms = self._act_at_ms + self.timing.intent_max_ms
            if now_ms < end_ms:
                return self._wake(end_ms)
            self.deadline_ms = now_ms + self.timing.gap_ms
            return self._ended(now_ms, self.intent.election, moved=False)
        if self.intent is not None:
            return self._look_again(now_ms) if now_ms >= self._act_at_ms else self._wake(self._act_at_ms)
        if (blocked_ms := self._blocked_until_ms(now_ms)) > now_ms:
            return self._wake(blocked_ms)
        step = self._my_step(now_ms)
        if step is None:
            return self._wake(now_ms + self.timing.look_ms)
        self.intent, self.step_reason = Intent(step.election, step.to), step.reason
        self._expect(now_ms, self.intent, self.timing.intent_max_ms)
        self._act_at_ms = now_ms + self.timing.intent_ms
        self.deadline_ms = self._act_at_ms
        return [Announce(self.intent)]

    def _my_step(self, now_ms: int) -> Step | None:
        """The next one, if it is this node's. A node that sees it otherwise, or whose handovers fail, is not waited for
        for ever: then each makes the best that it can make itself."""
        step = self._next(now_ms)
        if step is None or step.leaves == self.node:
            self._awaits_since_ms = NEVER_MS
            return step
        self._awaits_since_ms = min(self._awaits_since_ms, now_ms)
        if now_ms - self._awaits_since_ms < self.timing.turn_ms:
            return None
        return self._next(now_ms, self.node)

    def _failed(self, now_ms: int, rest: Rest) -> None:
        rest.retry_ms = now_ms + (self.timing.retry_ms << min(rest.failures, DOUBLED_MAX))
        rest.failures += 1

    def _wake(self, at_ms: int) -> list[Effect]:
        self.deadline_ms = at_ms
        return []

    def _look_again(self, now_ms: int) -> list[Effect]:
        """What was announced, if it is still the next step and no node before ours has announced one, too."""
        assert self.intent is not None, "nothing was announced"
        step, intent = self._my_step(now_ms), self.intent
        first = min((node for node in self._others_moving(now_ms)), default="")
        if step is not None and Intent(step.election, step.to) == intent and (not first or self.node < first):
            self.moving, self._act_at_ms = True, now_ms
            self.deadline_ms = now_ms + self.timing.intent_max_ms
            return [Move(intent.election, intent.to, step.reason)]
        self.intent = None
        self._ended_ms = now_ms
        self._expected.pop(intent.election, None)
        self.deadline_ms = now_ms + self.timing.gap_ms
        return [Announce(None)]

    def _ended(self, now_ms: int, election: str, moved: bool) -> list[Effect]:
        if self.intent is None or self.intent.election != election:
            return []
        self.intent, self.moving, self._ended_ms = None, False, now_ms
        rest = self._rests.get(election)
        if rest is not None and not moved:
            self._expected.pop(election, None)
            self._failed(now_ms, rest)
        self._failures = 0 if moved else self._failures + 1
        self._retry_ms = 0 if moved else now_ms + (self.timing.retry_ms << min(self._failures, DOUBLED_MAX))
        return [Announce(None)]

    def _others_moving(self, now_ms: int) -> list[str]:
        max_ms = self.timing.intent_max_ms
        return [node for node, (_, at_ms) in self._heard_intents.items() if now_ms - at_ms < max_ms]

    def _blocked_until_ms(self, now_ms: int) -> int:
        """Another one moves, a move was just over and not all know it yet, or moves of this node fail."""
        moving = [self._heard_intents[node][1] + self.timing.intent_max_ms for node in self._others_moving(now_ms)]
        return max([self._ended_ms + self.timing.gap_ms, self._retry_ms, *moving]) if self._ended_ms or moving else 0

    def _next(self, now_ms: int, leaves: str = "") -> Step | None:
        asked = now_ms < self._rebalance_until_ms
        whole = all(seen.leader for seen in self.view.elections)
        calm = whole and now_ms - self._calm_since_ms >= self.timing.calm_ms
        urgent_only = not asked and (self.view.maintenance or not calm)
        failed = tuple(name for name, rest in self._rests.items() if now_ms < rest.retry_ms)
        resting = tuple(name for name, rest in self._rests.items() if now_ms < rest.until_ms)
        step = self._plan(failed, Allowed(resting, self._unsteady(now_ms), urgent_only, leaves))
        if step is None and asked and whole and not leaves:
            self._rebalance_until_ms = 0
        assert step is None or not urgent_only or step.reason in URGENT, "a move that could wait"
        return step

    def _plan(self, failed: tuple[str, ...], allowed: Allowed) -> Step | None:
        key = (self._lasting, failed, allowed)
        if self._planned is None or self._planned[0] != key:
            view = _without(self.view, failed) if failed else self.view
            self._planned = (key, next_step(view, allowed))
        return self._planned[1]

    def _unsteady(self, now_ms: int) -> tuple[str, ...]:
        """Nodes that came up not long ago, by their own word or ours; who returns often has to last longer (W5)."""
        found = []
        for node in self.view.nodes:
            returns = [at_ms for at_ms in self._returns.get(node.node, []) if now_ms - at_ms < self.timing.flaps_ms]
            last_ms = self.timing.settle_ms << min(max(len(returns) - 1, 0), DOUBLED_MAX)
            seen_ms = now_ms - returns[-1] if returns else NEVER_MS
            if min(node.up_ms, seen_ms) < min(last_ms, self.timing.flaps_ms):
                found.append(node.node)
        return tuple(found)


def _lasting(view: View) -> View:
    """Without what changes all the time and no plan depends on."""
    return view._replace(nodes=tuple(node._replace(up_ms=0, intent=None) for node in view.nodes))


def _without(view: View, names: tuple[str, ...]) -> View:
    """What failed to move a moment ago is left where it is, and counts there: it is only not to be moved."""
    elections = tuple(
        seen._replace(placement=seen.placement._replace(only=(seen.leader,), avoid=(), together=(), prefer=()))
        if seen.name in names
        else seen
        for seen in view.elections
    )
    return view._replace(elections=elections)
