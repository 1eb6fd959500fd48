"""One trial as one page: lanes per node over true time, roles, work, messages, faults, and what was said about it.

The recorder listens to the world as a checker does and changes nothing: the drawn trial is the one that was judged. The
page is a timeline like every other (docs/timeline.md), in one file without outside parts. Its size is bounded; what was
left out is said on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from primacy.election.events import Code
from primacy.election.messages import (
    Ack,
    Alive,
    Coordinator,
    FailsafeAck,
    FailsafeHeartbeat,
    Heartbeat,
    HeartbeatRequest,
    Message,
    VoteReply,
    VoteRequest,
)
from primacy.sim.facts import Fact, Kind
from primacy.sim.sentences import sentence
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.trial import Outcome, Plan
from primacy.strategies import promise_of
from primacy.timeline.overlap import gaps, overlaps
from primacy.timeline.page import page as whole_file
from primacy.timeline.schema import (
    CONFIRMED,
    OPEN,
    Decision,
    Fault,
    Node,
    Role,
    Run,
    SentMessage,
    Timeline,
    Violation,
)

MESSAGES_MAX = 12_000
"""Of each sort: a page of a few megabytes that a browser still draws at once."""
MARKS_MAX = 8_000
SPANS_MAX = 20_000
BEFORE_MS = 30_000
"""If a trial is too long to draw whole, its drawing begins this long before the first violation."""
ROUTINE = (Heartbeat, Ack, HeartbeatRequest, Alive, FailsafeHeartbeat, FailsafeAck)
"""Sent all the time; drawn only when asked for."""

TERM_TELLS = (Code.CAMPAIGNS, Code.ELECTED, Code.FOLLOWS, Code.LEASE_TAKEN)
"""Events after which a node is in their term."""

Row = list[Any]
"""Rows are lists and not objects: the page holds tens of thousands of them."""


@dataclass(slots=True)
class Kept:
    """A bounded list that counts what it did not take."""

    most: int
    rows: list[Row] = field(default_factory=list)
    left_out: int = 0

    def add(self, row: Row) -> None:
        if len(self.rows) < self.most:
            self.rows.append(row)
        else:
            self.left_out += 1


@dataclass(slots=True)
class Recording:
    """A recorded trial."""

    plan: Plan
    outcome: Outcome
    names: tuple[str, ...]
    from_ms: float
    calm_ms: float | None
    roles: list[Row]
    work: list[Row]
    faults: list[Row]
    marks: Kept
    messages: Kept
    routine: Kept
    labels: list[str]
    left_out: dict[str, int]
    """What was too much to draw, with how many."""


class Recorder:
    """Listens to one world."""

    def __init__(self, from_ms: float = 0.0) -> None:
        self.from_ms = from_ms
        self.names: list[str] = []
        self.roles = Kept(SPANS_MAX)
        self.work = Kept(SPANS_MAX)
        self.faults = Kept(SPANS_MAX)
        self.marks = Kept(MARKS_MAX)
        self.messages = Kept(MESSAGES_MAX)
        self.routine = Kept(MESSAGES_MAX)
        self.labels: dict[str, int] = {}
        self._role: dict[str, tuple[float, str, int]] = {}
        self._runs: dict[tuple[str, int, int], float] = {}
        self._open: dict[int, tuple[float, str, str]] = {}
        self._announced: dict[tuple[str, str], int] = {}

    # --- listening ----------------------------------------------------------------------------------------------------

    def fact(self, fact: Fact) -> None:
        match fact.kind:
            case Kind.ROLE:
                self._change_role(fact.node, fact.at_ms, fact.text)
            case Kind.EVENT if fact.text in TERM_TELLS:
                self._change_term(fact.node, fact.at_ms, fact.number)
            case Kind.UP:
                self._change_role(fact.node, fact.at_ms, "starting")
            case Kind.DOWN:
                self._change_role(fact.node, fact.at_ms, "down")
            case Kind.WORK_STARTED:
                self._runs[fact.node, fact.number, fact.extra] = fact.at_ms
            case Kind.WORK_ENDED:
                since_ms = self._runs.pop((fact.node, fact.number, fact.extra), fact.at_ms)
                self.work.add([self._index(fact.node), _ms(since_ms), _ms(fact.at_ms), fact.number, fact.extra])
            case Kind.FAULT if fact.number:
                self._open[fact.number] = (fact.at_ms, fact.node, fact.text)
            case Kind.FAULT:
                self._add_fault(fact.at_ms, fact.at_ms, fact.node, fact.text)
            case Kind.CALM:
                self._end_fault(fact.number, fact.at_ms)
        self._mark(fact)

    def message(self, now_ms: float, sender: str, to: str, message: Message, delay_ms: float) -> None:
        if now_ms < self.from_ms:
            return
        label = self.labels.setdefault(_label(message), len(self.labels))
        row = [_ms(now_ms), self._index(sender), self._index(to), _ms(delay_ms), label]
        (self.routine if self._is_routine(sender, to, message) else self.messages).add(row)

    # --- keeping ------------------------------------------------------------------------------------------------------

    def _index(self, node: str) -> int:
        if not node:
            return -1
        if node not in self.names:
            self.names.append(node)
        return self.names.index(node)

    def _mark(self, fact: Fact) -> None:
        if fact.at_ms < self.from_ms or fact.kind in (Kind.ROLE, Kind.LEADER, Kind.CALM) or fact.text == Code.STARTED:
            return
        text = sentence(fact)
        if text:
            self.marks.add([_ms(fact.at_ms), self._index(fact.node), fact.kind.value, text])

    def _change_role(self, node: str, at_ms: float, role: str, term: int = 0) -> None:
        since_ms, before, in_term = self._role.get(node, (at_ms, "", 0))
        if before and at_ms > since_ms:
            self.roles.add([self._index(node), _ms(since_ms), _ms(at_ms), before, in_term])
        self._role[node] = (at_ms, role, term or (0 if role in ("", "down", "starting") else in_term))

    def _change_term(self, node: str, at_ms: float, term: int) -> None:
        """The same role in another term is another band; the event may come right after the role, or before it."""
        since_ms, role, before = self._role.get(node, (at_ms, "", 0))
        if role and (before == term or since_ms == at_ms):
            self._role[node] = (since_ms, role, term)
        elif role:
            self._change_role(node, at_ms, role, term)

    def _add_fault(self, from_ms: float, to_ms: float, node: str, text: str) -> None:
        self.faults.add([self._index(node), _ms(from_ms), _ms(to_ms), text])

    def _end_fault(self, key: int, at_ms: float) -> None:
        began = self._open.pop(key, None)
        if began is not None:
            self._add_fault(began[0], at_ms, began[1], began[2])

    def _is_routine(self, sender: str, to: str, message: Message) -> bool:
        """A coordinator's word is news once, and then a heartbeat (B2)."""
        if not isinstance(message, Coordinator):
            return isinstance(message, ROUTINE)
        known = self._announced.get((sender, to))
        self._announced[sender, to] = message.epoch
        return known == message.epoch

    def close(self, end_ms: float, calm_ms: float | None) -> None:
        """What still lasts ends with the page; faults end with the calm."""
        for node in tuple(self._role):
            self._change_role(node, end_ms, "")
        for (node, token, run), since_ms in self._runs.items():
            self.work.add([self._index(node), _ms(since_ms), _ms(end_ms), token, run])
        for key, (since_ms, _, _) in tuple(self._open.items()):
            self._end_fault(key, max(since_ms, end_ms if calm_ms is None else calm_ms))


def recorded(plan: Plan, seed: int) -> Recording:
    """Runs the trial and records it. One that is too long to draw is run again and drawn around its violation."""
    recording = _record(plan, seed, 0.0)
    if any(recording.left_out.values()) and recording.outcome.violations:
        from_ms = recording.outcome.violations[0].at_ms - BEFORE_MS
        if from_ms > 0:
            return _record(plan, seed, from_ms)
    return recording


def _record(plan: Plan, seed: int, from_ms: float) -> Recording:
    trial = trial_of(plan, seed)
    recorder = Recorder(from_ms)
    for name in trial.names:
        recorder._index(name)
    trial.world.listeners.append(recorder.fact)
    trial.world.watches_messages = recorder.message
    outcome = trial.run()
    calm_ms = trial.liveness.calm_ms
    recorder.close(outcome.simulated_ms, calm_ms)
    left_out = {
        "heartbeats": recorder.routine.left_out,
        "other messages": recorder.messages.left_out,
        "events": recorder.marks.left_out,
        "spans": recorder.roles.left_out + recorder.work.left_out + recorder.faults.left_out,
    }
    return Recording(
        plan,
        outcome,
        tuple(recorder.names),
        from_ms,
        calm_ms,
        sorted(recorder.roles.rows),
        sorted(recorder.work.rows, key=lambda row: row[1]),
        sorted(recorder.faults.rows, key=lambda row: row[1]),
        recorder.marks,
        recorder.messages,
        recorder.routine,
        list(recorder.labels),
        left_out,
    )


def page(recording: Recording) -> str:
    """The whole HTML file."""
    return whole_file(timeline_of(recording))


def timeline_of(recording: Recording) -> Timeline:
    """In the schema that all timelines have (docs/timeline.md). The clocks of the lanes are one: true time."""
    plan, outcome = recording.plan, recording.outcome
    nodes = [Node(name) for name in recording.names]
    runs = [
        Run(node, from_ms, to_ms, token, run, to_ms, OPEN if to_ms >= outcome.simulated_ms else CONFIRMED)
        for node, from_ms, to_ms, token, run in recording.work
    ]
    return Timeline(
        title=f"{plan.strategy}, {len(plan.members) or plan.nodes} nodes, seed {outcome.seed}",
        kind="trial",
        axis="trial",
        from_ms=_ms(recording.from_ms),
        to_ms=_ms(outcome.simulated_ms),
        nodes=nodes,
        at_most_one=promise_of(plan.strategy).at_most_one,
        roles=[Role(*row) for row in recording.roles],
        runs=runs,
        faults=[Fault(*row) for row in recording.faults],
        decisions=[Decision(*row) for row in recording.marks.rows],
        messages=[SentMessage(*row) for row in recording.messages.rows],
        routine=[SentMessage(*row) for row in recording.routine.rows],
        labels=recording.labels,
        overlaps=overlaps(runs, nodes),
        gaps=gaps(runs, nodes),
        violations=[Violation(_ms(each.at_ms), each.rule, each.sentence) for each in outcome.violations],
        calm_ms=None if recording.calm_ms is None else _ms(recording.calm_ms),
        left_out=[f"{count:,} {what}" for what, count in recording.left_out.items() if count],
        notes=_notes(recording),
        figures=_figures(outcome),
    )


def _notes(recording: Recording) -> list[str]:
    faults = ", ".join(recording.outcome.classes) or "none"
    calm_ms = recording.calm_ms
    calm = "" if calm_ms is None else f" They end at {calm_ms / 1000:.3f} s; then a leader must come and stay."
    store = f" Store: {recording.outcome.engine}." if recording.outcome.engine else ""
    found = [f"Profile {recording.plan.profile}.{store} Faults: {faults}.{calm}"]
    if recording.from_ms:
        found.append(f"It is too long to draw whole: drawn from {recording.from_ms / 1000:.3f} s on.")
    return found


def _figures(outcome: Outcome) -> list[tuple[str, str]]:
    gaps = sorted(outcome.gaps_ms)
    middle = f"{gaps[len(gaps) // 2]:,.0f} ms" if gaps else "none"
    share = outcome.working_ms / outcome.simulated_ms if outcome.simulated_ms else 0
    return [
        ("simulated", f"{outcome.simulated_ms / 1000:,.0f} s"),
        ("elections", f"{outcome.elections:,}"),
        ("starts of the work", f"{outcome.starts:,}"),
        ("failover, median", middle),
        ("work running", f"{100 * share:.1f} %"),
        ("overlaps", f"{outcome.overlaps:,}"),
        ("faults", f"{sum(outcome.faults.values()):,}"),
        ("messages", f"{outcome.sent:,}"),
        ("trace", outcome.trace_hash),
    ]


def _label(message: Message) -> str:
    name = type(message).__name__
    if isinstance(message, VoteRequest):
        return f"{'would you vote' if message.pre else 'vote request'} (term {message.term})"
    if isinstance(message, VoteReply):
        answer = "yes" if message.granted else "no"
        return f"{'pre-vote' if message.pre else 'vote'}: {answer} (term {message.asked})"
    term = getattr(message, "term", 0)
    return f"{name} (term {term})" if term else name


def _ms(value: float) -> float:
    return round(value, 1)
