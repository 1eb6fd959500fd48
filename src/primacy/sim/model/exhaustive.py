"""Every order of events in a bounded model: three nodes, two terms, a few disturbances, nothing left to chance.

The search goes by (disturbances, events). It knows all states that no disturbance is needed for before it looks at the
first one that needs one, and so on; so the first violation that it finds is a shortest one, and it is told as a story.
What is free and what counts as a disturbance stands in `states.py`.

It says nothing about more disturbances than it finished (it tells how many these are), later moments, more terms, more
nodes, or clocks of other rates; the random trials of `sim/trials/trial.py` go there. What it does cover, it covers
whole.

    python -m primacy.sim.model.exhaustive --strategy raft --states 100000
    python -m primacy.sim.model.exhaustive --strategy raft --states 20000000 --disturbances 2 --complete 2
"""

from __future__ import annotations

import gc
import sys
import time
from argparse import ArgumentParser
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from primacy.election.messages import VoteRequest
from primacy.sim.model.history import history_lines
from primacy.sim.model.settings import CLOCKS, NAMES, LeaseSetting, RaftSetting, RegisterSetting
from primacy.sim.model.states import WAYS_BACK, BoundedModel, Event, Next, State
from primacy.sim.model.values import Packet, Setting
from primacy.sim.model.world import ModelWorld
from primacy.sim.world.engines import BY_NAME


class SearchResult(NamedTuple):
    """What a search came to."""

    states: int
    events: int
    seconds: float
    finished: int
    """All histories with up to so many disturbances were walked to their bounds; -1: not even those with none."""
    wrong: str = ""
    history: tuple[Event, ...] = ()
    """From the very first start on."""
    span: int = 0
    history_lines: tuple[str, ...] = ()


class Search:
    """All states in order of (disturbances, events), until a violation or a bound."""

    def __init__(self, model: BoundedModel, states_max: int) -> None:
        self.model = model
        self.states_max = states_max
        self.states: dict[State, int] = {}
        self.events = 0
        self.wrong = ""
        self.history: tuple[Event, ...] = ()
        self._parents = array("l")
        self._labels: list[Event] = []
        self._known: dict[Event, Event] = {}

    def go(self, beginning: list[Next], disturbances: int) -> SearchResult:
        """From the end of a beginning that leaves no choice."""
        began = time.perf_counter()
        for after in beginning:
            self._keep(len(self.states) - 1, after)
        self._judge_beginning(beginning)
        finished = -1
        level: list[list[State]] = []
        gc.collect()
        gc.freeze()
        gc.disable()  # millions of tuples and not one cycle: there is nothing to look for
        try:
            while finished < disturbances and not self._is_over():
                level = self._level(level, [] if level else [beginning[-1].state])
                finished += not self._is_over()
        finally:
            gc.enable()
            gc.unfreeze()
        seconds = time.perf_counter() - began
        return SearchResult(len(self.states), self.events, seconds, finished, self.wrong, self.history)

    def _judge_beginning(self, beginning: list[Next]) -> None:
        if beginning[-1].wrong:
            self.wrong = beginning[-1].wrong
            self.history = tuple(after.event for after in beginning[1:])

    def _is_over(self) -> bool:
        return bool(self.wrong) or len(self.states) >= self.states_max

    def _level(self, before: list[list[State]], first: list[State]) -> list[list[State]]:
        """The states that need one disturbance more than those of the level before, by the number of events."""
        level: list[list[State]] = [first]
        model = self.model
        while len(level) <= len(before) or level[-1]:
            after: list[State] = []
            for state in level[-1]:
                if not model.is_beyond(state):
                    after += self._new(state, model.follow(state))
            for state in before[len(level) - 1] if len(level) <= len(before) else ():
                if not model.is_beyond(state):
                    after += self._new(state, model.disturb(state))
            level.append(after)
            if self._is_over():
                break
        return level

    def _new(self, state: State, nexts: Iterator[Next]) -> list[State]:
        if self._is_over():
            return []
        states, number = self.states, self.states[state]
        found = []
        for after in nexts:
            self.events += 1
            if after.wrong and not self.wrong:
                self.wrong = after.wrong
                self.history = (*self._history(number), after.event)
            if after.state not in states:
                self._keep(number, after)
                found.append(after.state)
        return found

    def _keep(self, parent: int, after: Next) -> None:
        self.states[after.state] = len(self.states)
        self._parents.append(parent)
        self._labels.append(self._known.setdefault(after.event, after.event))

    def _history(self, number: int) -> tuple[Event, ...]:
        found = []
        while number > 0:
            found.append(self._labels[number])
            number = self._parents[number]
        return tuple(reversed(found))


def led(model: BoundedModel, leader: int = 0) -> list[Next]:
    """A beginning after which this node leads and its work runs. The others slept until it asked for votes.

    What else it says is no reason to wake them: it asks and answers others from its start on (R12).
    """
    world, numbers = model.world, model.numbers
    path = [Next(("first",), model.first)]

    def all_asleep(asleep: bool) -> None:
        for i in world.everybody:
            state = path[-1].state
            if i != leader and numbers.nodes[state.nodes[i]].asleep is not asleep:
                move = world.once(world.sleep, state.nodes[i], asleep)
                path.append(model.after(state, i, move, ("asleep" if asleep else "awake", i)))

    all_asleep(True)
    while not path[-1].wrong:
        state = path[-1].state
        works = numbers.nodes[state.nodes[leader]].works
        said = [thing for thing in map(numbers.items.__getitem__, state.under_way) if isinstance(thing, Packet)]
        asks = [thing for thing in said if isinstance(thing.message, VoteRequest)]
        if any(thing.message.origin.node == model.names[leader] for thing in asks) or any(work.ran for work in works):
            all_asleep(False)
        if any(work.ran for work in works) and not path[-1].state.under_way:
            return path
        path.append(next(step for step in model.follow(path[-1].state) if step.event[0] != "awake"))
    return path


def fresh(model: BoundedModel) -> list[Next]:
    """The beginning of everything: all three nodes have just been started."""
    return [Next(("first",), model.first)]


BEGINNINGS = {"led": led, "fresh": fresh}


class SearchBounds(NamedTuple):
    """How far a search goes."""

    states: int = 100_000
    disturbances: int = 3
    terms: int = 2
    span: int = 0
    """Units of time after the beginning; 0: enough for a successor's work to run, and a little more."""
    begin: str = "led"
    """`led`: one node's work runs. `fresh`: all have just been started, and the first election is walked over, too."""


def explore(setting: Setting, bounds: SearchBounds, world: ModelWorld | None = None) -> SearchResult:
    """One search of the states of a setting; with `world`, of one whose guards were tampered with."""
    model = BoundedModel(setting, world, terms=bounds.terms)
    beginning = BEGINNINGS[bounds.begin](model)
    span = bounds.span or setting.span * (2 if bounds.begin == "fresh" else 1)
    model.until = beginning[-1].state.now + span
    found = Search(model, bounds.states).go(beginning, bounds.disturbances)
    return found._replace(span=span, history_lines=tuple(history_lines(model, found.history)))


def report(strategy: str, clocks: str, bounds: SearchBounds, found: SearchResult) -> list[str]:
    """What a person is told of a search."""
    begin = "its first leader's work runs" if bounds.begin == "led" else "all nodes were started"
    lines = [
        f"{strategy}, {clocks} clocks: 3 nodes, {bounds.terms} terms, {found.span} units of time after {begin}",
        f"distinct states   {found.states:>12,}",
        f"events            {found.events:>12,}",
        f"violations        {1 if found.wrong else 0:>12}",
        f"time              {found.seconds:>10.1f} s",
    ]
    if found.finished < 0:
        lines.append("complete: not even without a disturbance")
    else:
        many = "1 disturbance" if found.finished == 1 else f"{found.finished} disturbances"
        lines.append(f"complete for every history with up to {many}")
    if found.wrong:
        lines += ["", *found.history_lines, f"     VIOLATION {found.wrong}"]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m primacy.sim.model.exhaustive", description="Walks over every order of events."
    )
    parser.add_argument("--strategy", choices=("raft", "lease"), default="raft")
    parser.add_argument(
        "--voters", type=int, default=0, help="raft whose members change, from so many voters; 0: they stay"
    )
    parser.add_argument("--engine", choices=tuple(WAYS_BACK), default="postgresql", help="lease: which kind of store")
    parser.add_argument("--clocks", choices=tuple(CLOCKS), default="equal")
    parser.add_argument("--begin", choices=tuple(BEGINNINGS), default="led")
    parser.add_argument("--states", type=int, default=100_000, help="stop after this many distinct states")
    parser.add_argument("--disturbances", type=int, default=3, help="at most so many in one history")
    parser.add_argument("--terms", type=int, default=2, help="histories end when a node is beyond this term")
    parser.add_argument("--span", type=int, default=0, help="units of time after the beginning; 0 for a fitting number")
    parser.add_argument("--complete", type=int, default=0, help="exit 1 unless it is complete for so many disturbances")
    given = parser.parse_args(arguments)
    for name, least in (("states", 1), ("disturbances", 0), ("terms", 1), ("span", 0), ("complete", 0)):
        if getattr(given, name) < least:
            parser.error(f"--{name} {getattr(given, name)}: must be at least {least}")
    if given.complete > given.disturbances:
        parser.error(f"--complete {given.complete}: there are at most {given.disturbances} disturbances")
    if given.voters and (given.strategy != "raft" or not 1 <= given.voters <= len(NAMES)):
        parser.error(f"--voters {given.voters}: 1 to {len(NAMES)} voters, of raft")
    setting: Setting = RaftSetting(given.clocks)
    if given.strategy == "lease":
        setting = LeaseSetting(given.clocks, engine=BY_NAME[given.engine])
    if given.voters:
        setting = RegisterSetting(given.voters, clocks=given.clocks)
    bounds = SearchBounds(given.states, given.disturbances, given.terms, given.span, given.begin)
    found = explore(setting, bounds)
    print("\n".join(report(given.strategy, given.clocks, bounds, found)))
    if found.finished < given.complete:
        print(f"NOT COMPLETE for {given.complete} disturbances: give it more --states")
    return 1 if found.wrong or found.finished < given.complete else 0


if __name__ == "__main__":
    sys.exit(main())
