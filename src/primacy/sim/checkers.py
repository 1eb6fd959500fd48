"""Judges outside of the world: they see facts and say what was violated.

Safety (I1-I7, I9) is judged at every fact. The overlap checker looks at the work in true time, ordered by (token, run);
what a node believes plays no role. Liveness (P1-P3) is judged after the faults were calmed. The bounds come from the
strategy's timing, what is judged comes from its guarantees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from primacy.election.events import Code
from primacy.sim.facts import MEMORY_LOST, OLDER, Fact, Kind


class Violation(NamedTuple):
    """A broken promise, with the true time at which it showed."""

    at_ms: float
    rule: str
    sentence: str


Report = Callable[[Violation], None]


class WorkChecker:
    """I1: at most one runs at any instant. I4: (token, run) only grows. I5: it starts with time left to be stopped.

    Work of a frozen machine does nothing: it runs beside another one from the moment at which the machine goes on.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self.running: dict[str, tuple[int, int, float]] = {}
        """Of each node its latest run: token, run, since when."""
        self.left: dict[tuple[str, int, int], bool] = {}
        """Earlier runs of a node that has begun another one: they go on beside it."""
        self.frozen: dict[str, tuple[int, int]] = {}
        """Runs of machines that are frozen."""
        self.highest = (0, 0)
        self.starts = 0
        self.running_ms = 0.0
        self.gaps_ms: list[float] = []
        self._ended_ms: float | None = None
        self._ended_token = 0

    def __call__(self, fact: Fact) -> None:
        if fact.kind is Kind.WORK_STARTED:
            self._started(fact)
        elif fact.kind is Kind.WORK_ENDED:
            self._ended(fact)
        elif fact.kind is Kind.FROZEN and fact.node in self.running:
            token, run, _ = self.running[fact.node]
            self._rests(fact, token)
            self.frozen[fact.node] = (token, run)
        elif fact.kind is Kind.THAWED and fact.node in self.frozen:
            mark = self.frozen.pop(fact.node)
            self._beside(fact, f"{fact.node} went on with run {mark}")
            self.running[fact.node] = (*mark, fact.at_ms)

    def _ended(self, fact: Fact) -> None:
        mark = (fact.number, fact.extra)
        if self.left.pop((fact.node, *mark), False):
            return
        if self.frozen.get(fact.node) == mark:
            del self.frozen[fact.node]
            return
        self._rests(fact, fact.number)

    def _rests(self, fact: Fact, token: int) -> None:
        _, _, since_ms = self.running.pop(fact.node, (0, 0, fact.at_ms))
        self.running_ms += fact.at_ms - since_ms
        self._ended_ms, self._ended_token = fact.at_ms, token

    def _beside(self, fact: Fact, what: str) -> None:
        """Whatever else runs now."""
        others = [(node, (token, run)) for node, (token, run, _) in self.running.items()]
        others += [(node, (token, run)) for node, token, run in self.left]
        for node, mark in sorted(others):
            self.report(Violation(fact.at_ms, "I1", f"{what} while run {mark} of {node} was still running"))

    def _started(self, fact: Fact) -> None:
        mark = (fact.number, fact.extra)
        self._beside(fact, f"{fact.node} started run {mark}")
        if mark <= self.highest:
            self.report(
                Violation(fact.at_ms, "I4", f"{fact.node} started {mark} after {self.highest} had been started")
            )
        if int(fact.subject) <= 0:
            self.report(Violation(fact.at_ms, "I5", f"{fact.node} started {mark} with no time left to be stopped"))
        self.highest = max(self.highest, mark)
        if fact.node in self.running:
            token, run, _ = self.running[fact.node]
            self.left[fact.node, token, run] = True
        self.running[fact.node] = (*mark, fact.at_ms)
        self.starts += 1
        if self._ended_ms is not None and fact.number != self._ended_token and not self.running.keys() - {fact.node}:
            self.gaps_ms.append(fact.at_ms - self._ended_ms)


class TermChecker:
    """I2: one leader per term. I3: one vote per node and term. I7: nothing leaves before it is durable.

    A vote is not held against a node that lost its memory if it can be counted nowhere: see `_forgets`.
    """

    def __init__(self, report: Report, *, counts_by_register: bool = False) -> None:
        self.report = report
        self.counts_by_register = counts_by_register
        """A vote from before its voter's memory was lost may be of a register that can elect no more, unless its
        candidate was elected (R8, R9)."""
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.elections = 0
        self._up: dict[str, int] = {}
        """How many machines speak with this id now."""

    def __call__(self, fact: Fact) -> None:
        if fact.kind is Kind.UP:
            self._up[fact.node] = self._up.get(fact.node, 0) + 1
        elif fact.kind is Kind.DOWN:
            self._up[fact.node] = self._up.get(fact.node, 0) - 1
        elif fact.kind is Kind.FAULT and fact.text == MEMORY_LOST:
            self._forgets(fact.node)
        elif fact.kind is Kind.EVENT and fact.text == Code.ADMITTED:  # it had given its ballot up (R8, R10)
            self._strike(fact.node)
        elif fact.kind is Kind.EVENT and fact.text == Code.ELECTED:
            self.elections += 1
            if fact.extra:
                other = self.leaders.setdefault(fact.extra, fact.node)
                if other != fact.node:
                    sentence = f"{other} and {fact.node} both lead term {fact.number}"
                    self.report(Violation(fact.at_ms, "I2", sentence))
        elif fact.kind is Kind.VOTE:
            first = self.votes.setdefault((fact.node, fact.number), fact.text)
            if first != fact.text:
                sentence = f"{fact.node} voted for {first} and for {fact.text} in one term"
                self.report(Violation(fact.at_ms, "I3", sentence))
        elif fact.kind is Kind.BAD_ORDER:
            sentence = f"{fact.node} let {fact.text} of term {fact.number} go before it was durable"
            self.report(Violation(fact.at_ms, "I7", sentence))

    def _forgets(self, node: str) -> None:
        """Strikes what the node voted for itself where it asked in vain until its memory was lost.

        Only the boot that asked counts such a vote, and it is gone. If anybody had voted for it in that term, or
        another machine speaks with its id, the vote stands: then somebody remembers the term, or may still count it.
        """
        if self._up.get(node, 0) > 0:
            return
        if self.counts_by_register:
            self._strike(node)
            return
        own = [number for (voter, number), candidate in self.votes.items() if voter == node == candidate]
        helped = {number for (voter, number), candidate in self.votes.items() if voter != node == candidate}
        for number in own:
            if number not in helped and self.leaders.get(number) != node:
                del self.votes[node, number]

    def _strike(self, node: str) -> None:
        """Where there is a register: every vote but those for who was elected with them. Of that quorum somebody else
        remembers the term, and it is heard before the node has a memory again (R8, R9)."""
        self.votes = {
            (voter, number): candidate
            for (voter, number), candidate in self.votes.items()
            if voter != node or self.leaders.get(number) == candidate
        }


class RegisterChecker:
    """I9: a node never exchanges its register of members for an older one; and one id means one membership."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.written = 0
        self._known: dict[tuple[int, int], str] = {}

    def __call__(self, fact: Fact) -> None:
        if fact.kind is not Kind.REGISTER:
            return
        id_, said = (fact.extra, fact.number), f"{fact.text} | {fact.detail}"
        if OLDER in fact.subject:
            self.report(Violation(fact.at_ms, "I9", f"{fact.node} took the members {fact.subject}"))
        self.written += id_ not in self._known
        known = self._known.setdefault(id_, said)
        if known != said:
            sentence = f"the members {fact.subject} are {known} and, on {fact.node}, {said}"
            self.report(Violation(fact.at_ms, "I9", sentence))


class LivenessChecker:
    """P1: a leader within the bound after the calm. P2: its work runs. P3: it stays. P4: no term begins beside it."""

    def __init__(self, bound_ms: float, watch_ms: float = 0.0) -> None:
        self.bound_ms = bound_ms
        self.watch_ms = watch_ms
        """What is added to it, once: a store that cannot name its start is watched first, and nothing breaks a
        connection after the calm (L4)."""
        self.calm_ms: float | None = None
        self.core: tuple[str, ...] = ()
        self.leader_after_ms: float | None = None
        self.work_after_ms: float | None = None
        self.changes_after = 0
        self.candidacies_after = 0
        self._successor = self._candidate = ""
        """Who is to lead next, and may still ask for votes, because a leader hands over."""
        self._roles: dict[str, str] = {}
        self._working: dict[str, int] = {}

    def begin(self, now_ms: float, core: tuple[str, ...]) -> None:
        """The calm begins; who already leads in the core counts at once."""
        self.calm_ms, self.core = now_ms, core
        if any(self._roles.get(node) == "leader" for node in core):
            self.leader_after_ms = 0.0
        if any(node in core for node in self._working):
            self.work_after_ms = 0.0

    def hands_over(self, successor: str) -> None:
        """The leader has to give its place to this one, in order: one candidacy and one change are no fault."""
        self._successor = self._candidate = successor

    def __call__(self, fact: Fact) -> None:
        if fact.kind is Kind.ROLE:
            self._role(fact)
        elif fact.kind is Kind.EVENT:
            if fact.text == Code.CAMPAIGNS and self._is_settled(fact.at_ms):
                self.candidacies_after += fact.node != self._candidate
                self._candidate = ""
        elif fact.kind is Kind.DOWN:
            self._roles.pop(fact.node, None)
        elif fact.kind is Kind.WORK_STARTED:
            self._working[fact.node] = fact.number
            if self.calm_ms is not None and fact.node in self.core and self.work_after_ms is None:
                self.work_after_ms = fact.at_ms - self.calm_ms
        elif fact.kind is Kind.WORK_ENDED:
            self._working.pop(fact.node, None)

    def _role(self, fact: Fact) -> None:
        self._roles[fact.node] = fact.text
        if self.calm_ms is None or fact.text != "leader" or fact.node not in self.core:
            return
        if self.leader_after_ms is None:
            self.leader_after_ms = fact.at_ms - self.calm_ms
        elif self._is_settled(fact.at_ms) and fact.node != self._successor:
            self.changes_after += 1
        self._successor = self._candidate = ""

    def _is_settled(self, at_ms: float) -> bool:
        return self.calm_ms is not None and at_ms > self.calm_ms + self.limit_ms

    @property
    def limit_ms(self) -> float:
        """What is later than this after the calm breaks P1: three times the bound, and one watch."""
        return 3 * self.bound_ms + self.watch_ms

    def leaders(self) -> tuple[str, ...]:
        """Who of the core says that it leads, now."""
        return tuple(node for node in self.core if self._roles.get(node) == "leader")
