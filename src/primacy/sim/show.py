"""A short play for `simulate --show`: a simulated cluster is quiet, loses its leader, is split, heals, loses a machine.

`demonstrate` plays it at once and records everything; the terminal then shows the record at a pace that a person can
follow. What is drawn is a pure function of the record and of the moment that is shown, so that a test can look at every
frame.
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.election.events import Code
from primacy.sim.facts import Fact, Kind
from primacy.sim.sentences import sentence
from primacy.sim.trace import Recorder, overlaps_of
from primacy.sim.trial import Plan, Trial
from primacy.strategies import promise_of

PATIENCE = 8
"""Units of time that a scene waits for the next holder; every strategy is much quicker."""
STEPS_PER_UNIT = 40
TOLD = (
    Code.STANDS,
    Code.ELECTED,
    Code.MAJORITY_LOST,
    Code.RENEWAL_LATE,
    Code.LEASE_LOST,
    Code.LEASE_TAKEN,
    Code.HIGHER_TERM,
    Code.OUTRANKED,
    Code.START_DELAY,
)
"""Events that the audience hears of; the others are what the page of `simulate --trace` is for."""


class Scene(NamedTuple):
    """From a moment on: what happens, and what to look at."""

    at_ms: float
    title: str
    look: str


class Line(NamedTuple):
    """A sentence of the story."""

    at_ms: float
    text: str


class Span(NamedTuple):
    """A node in a state, from and to."""

    node: str
    from_ms: float
    to_ms: float
    state: str


class Demonstration(NamedTuple):
    """The whole record of a play."""

    strategy: str
    names: tuple[str, ...]
    end_ms: float
    scenes: tuple[Scene, ...]
    lines: tuple[Line, ...]
    spans: tuple[Span, ...]
    """Roles, work ("work") and isolation ("cut")."""
    overlaps: tuple[tuple[float, float], ...]
    failovers: tuple[tuple[str, float], ...]
    """After what, and for how long nobody was at work; negative: the next one came while the old one went on."""

    @property
    def promised_one(self) -> bool:
        return promise_of(self.strategy).at_most_one


def demonstrate(strategy: str = "raft", nodes: int = 5, profile: str = "lan", seed: int = 1) -> Demonstration:
    """Plays it. Nothing here waits."""
    return _Script(Plan(strategy, nodes, profile, faults=(), draw=False, drift=0.0005), seed).perform()


class _Script:
    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.trial = Trial(plan, seed)
        self.world = self.trial.world
        self.names = self.trial.names
        self.unit_ms = self.trial.unit_ms
        self.recorder = Recorder()
        self.scenes: list[Scene] = []
        self.lines: list[Line] = []
        self.cuts: list[Span] = []
        self.failovers: list[tuple[str, float]] = []
        self.working: dict[str, float] = {}
        self.ended_ms: dict[str, float] = {}
        self.world.listeners += [self.recorder.fact, self._hear]

    def _hear(self, fact: Fact) -> None:
        if fact.kind is Kind.WORK_STARTED:
            self.working[fact.node] = fact.at_ms
        elif fact.kind is Kind.WORK_ENDED:
            self.working.pop(fact.node, None)
            self.ended_ms[fact.node] = fact.at_ms
        shown = fact.kind in (Kind.WORK_STARTED, Kind.WORK_ENDED, Kind.RELEASE_SENT, Kind.DOWN)
        if shown or (fact.kind is Kind.EVENT and fact.text in TOLD) or (fact.kind is Kind.UP and fact.number > 1):
            self.lines.append(Line(fact.at_ms, sentence(fact)))

    # --- the script ---------------------------------------------------------------------------------------------------

    def perform(self) -> Demonstration:
        holds = promise_of(self.plan.strategy).at_most_one
        self._scene(f"{len(self.names)} nodes start.", "Nobody works until one of them is chosen.")
        self._until_work("the start")
        self._pass(1.0)

        leader = self._worker()
        look = "The guard stops the work and tells the others: see how fast the next one starts."
        if not holds:
            look = "The others miss its answers, and the next in rank takes over."
        self._scene(f"The agent of {leader} is killed.", look)
        self.world.crash(self.world.nodes[leader])
        self._until_work("a killed agent", not_by=leader)
        self._pass(0.6)

        self._scene(f"{leader} is back.", self._return_look())
        self.world.start(self.world.nodes[leader])
        self._pass(1.0)

        alone = self._worker()
        self._partition(alone, holds)

        last = self._worker()
        look = "Nobody can say that its work is gone: the others wait until it surely is."
        if not holds:
            look = "The same as before: silence is all that the others see."
        self._scene(f"{last} loses its power.", look)
        self.world.crash(self.world.nodes[last], power=True)
        self._until_work("a lost machine", not_by=last)
        self._pass(1.0)
        return self._recorded()

    def _partition(self, alone: str, holds: bool) -> None:
        store = self.plan.strategy == "lease"
        look = "Its work is stopped before another one may start: the two are never at work at once."
        if not holds:
            look = f"{self.plan.strategy} promises one per island: both sides have one now."
        self._scene(f"{alone} is cut off from {'the store' if store else 'all others'}.", look)
        others = ("store",) if store else tuple(name for name in self.names if name != alone)
        for other in others:
            self.world.cut(alone, other)
            if not store:
                self.world.cut(other, alone)
        began_ms = self.world.now
        self._until_work("a partition", not_by=alone)
        self._pass(1.0)
        self.cuts.append(Span(alone, began_ms, self.world.now, "cut"))
        self._scene("The network heals.", "One of them is at work, and nobody is deposed without need.")
        for other in others:
            self.world.mend(alone, other)
            if not store:
                self.world.mend(other, alone)
        self._pass(1.5)

    def _return_look(self) -> str:
        if self.plan.strategy == "raft":
            return "It asks before it stands, and so it disturbs nobody."
        return "It finds somebody at work and joins quietly."

    # --- direction ----------------------------------------------------------------------------------------------------

    def _scene(self, title: str, look: str) -> None:
        self.scenes.append(Scene(self.world.now, title, look))

    def _pass(self, units: float) -> None:
        self.world.run(self.world.now + units * self.unit_ms)

    def _worker(self) -> str:
        """Who is at work; the longest, if several are."""
        return min(self.working, key=lambda name: self.working[name]) if self.working else self.names[-1]

    def _until_work(self, after: str, not_by: str = "") -> None:
        for _ in range(PATIENCE * STEPS_PER_UNIT):
            self._pass(1 / STEPS_PER_UNIT)
            started = [at_ms for name, at_ms in self.working.items() if name != not_by]
            if started:
                if not_by:
                    over_ms = (
                        self.ended_ms.get(not_by, self.world.now) if not_by not in self.working else self.world.now
                    )
                    self.failovers.append((after, min(started) - over_ms))
                return

    def _recorded(self) -> Demonstration:
        end_ms = self.world.now
        self.recorder.close(end_ms, None)
        names = self.recorder.names
        spans = [Span(names[node], from_ms, to_ms, role) for node, from_ms, to_ms, role in self.recorder.roles.rows]
        work = sorted(self.recorder.work.rows, key=lambda row: row[1])
        spans += [Span(names[row[0]], row[1], row[2], "work") for row in work]
        return Demonstration(
            self.plan.strategy,
            self.names,
            end_ms,
            tuple(self.scenes),
            tuple(self.lines),
            (*spans, *self.cuts),
            tuple((a, b) for a, b in overlaps_of(work)),
            tuple(self.failovers),
        )


# --- drawing ----------------------------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """One column of a lane."""

    sign: str
    style: str


SIGNS: dict[str, Cell] = {
    "twice": Cell("█", "bold red"),
    "work": Cell("█", "green"),
    "cut": Cell("╌", "red"),
    "leader": Cell("▓", "blue"),
    "candidate": Cell("▒", "yellow"),
    "muted": Cell("░", "magenta"),
    "follower": Cell("─", "bright_black"),
    "starting": Cell("·", "bright_black"),
    "down": Cell("×", "red"),
    "": Cell(" ", ""),
}
"""In the order of what is worth seeing: a column shows the first of these that fell into it."""
PLAIN = {"█": "#", "▓": "L", "▒": "?", "░": "m", "╌": "~", "─": "-", "·": ".", "×": "x", "▼": "v"}
"""For terminals that cannot show the others."""
LEGEND = {
    "twice": "two at work",
    "work": "at work",
    "leader": "leads",
    "candidate": "stands",
    "muted": "mute",
    "starting": "starts",
    "follower": "follows",
    "cut": "cut off",
    "down": "down",
}


def lane(recorded: Demonstration, name: str, now_ms: float, columns: int) -> list[Cell]:
    """One node, from the beginning to now; `columns` hold the whole play."""
    own = [span for span in recorded.spans if span.node == name]
    width_ms = recorded.end_ms / columns
    cells = []
    for column in range(columns):
        from_ms, to_ms = column * width_ms, min((column + 1) * width_ms, now_ms)
        if from_ms >= now_ms:
            break
        states = {span.state for span in own if span.from_ms < to_ms and span.to_ms > from_ms}
        worked = "work" in states
        if not any(span.state == "work" and span.from_ms < to_ms <= span.to_ms for span in own):
            states.discard("work")  # counted at the column's end: a handover within one column is no overlap
        if worked and recorded.promised_one and _within(recorded.overlaps, from_ms, to_ms):
            states.add("twice")
        cells.append(next(cell for state, cell in SIGNS.items() if state in states or not state))
    return cells


def ruler(recorded: Demonstration, now_ms: float, columns: int) -> str:
    """A mark where each scene began."""
    marks = [" "] * columns
    for scene in recorded.scenes:
        if scene.at_ms <= now_ms:
            marks[min(columns - 1, int(scene.at_ms / recorded.end_ms * columns))] = "▼"
    return "".join(marks)


def legend(recorded: Demonstration) -> list[tuple[Cell, str]]:
    """The signs that this play has, with their words."""
    seen = {span.state for span in recorded.spans} | (
        {"twice"} if recorded.overlaps and recorded.promised_one else set()
    )
    return [(SIGNS[state], words) for state, words in LEGEND.items() if state in seen]


def scene_at(recorded: Demonstration, now_ms: float) -> Scene:
    """What is played at this moment."""
    return max((scene for scene in recorded.scenes if scene.at_ms <= now_ms), key=lambda scene: scene.at_ms)


def plain(text: str) -> str:
    """The same in ASCII."""
    return "".join(PLAIN.get(sign, sign) for sign in text)


def _within(spans: tuple[tuple[float, float], ...], from_ms: float, to_ms: float) -> bool:
    return any(a < to_ms and b > from_ms for a, b in spans)


def summary(recorded: Demonstration) -> list[str]:
    """What one has seen, in a few sentences."""
    count = f"{len(recorded.failovers)} failover{'' if len(recorded.failovers) == 1 else 's'}"
    said = [f"{count}, in {recorded.end_ms / 1000:.1f} simulated seconds:"]
    for after, gap_ms in recorded.failovers:
        gap = f"nobody at work for {gap_ms:,.0f} ms" if gap_ms >= 0 else "two at work for a while"
        said.append(f"  after {after}: {gap}")
    if not recorded.overlaps:
        said.append("No overlap: never were two at work at once.")
    elif recorded.promised_one:
        said.append(f"The work overlapped {len(recorded.overlaps)} times. That must never be.")
    else:
        said.append(
            f"Two were at work while the network was split: {recorded.strategy} promises one per island, not one."
        )
    return said
