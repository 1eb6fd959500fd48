"""Random walks of real raft machines with a register of members, in which time is only the order of events.

The clock of every node stands at 0 and all waits are 0 (`TIMELESS`): a node may campaign, ask or send a heartbeat
whenever it is woken, no promise keeps a voter, no leader is too late. A message that was sent arrives at any later
moment, several times, or never. A node crashes, starts again, loses its memory; operators ask for anything. What must
hold then holds whatever clocks do: one leader per term, one membership per id, nothing named before it is durable.
What rests on time (that no two act) is not judged here; the trials and the bounded model do that.

Each walk is drawn from its seed, and so are its rates: in one walk a node hears next to nothing, in another messages
come again and again, or nobody crashes. Most steps are one node that is woken and heard by some others, for walks of
single events seldom elect anybody.

    python -m primacy.sim.model.walks --nodes 4 --walks 10000
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from primacy.election.effects import Effect, Persist, Record, Send
from primacy.election.events import Code, Event
from primacy.election.inputs import CancelChange, ChangeMembers, DeadlinePassed, Input, Received, Started, StepDown
from primacy.election.messages import Admission, MembersTold, Message, VoteReply, VoteRequest
from primacy.election.model import Ballot, Kind, Member, Register
from primacy.election.raft.strategy import RaftStrategy
from primacy.sim.model.overlap import rivals, second_leader
from primacy.sim.model.settings import RegisterSetting
from primacy.sim.transcripts.text import SAID

FLIGHT_MAX = 60
"""So many messages are under way at most; then any of them is lost."""
STEPS = 60
BEGINNINGS = ("fresh", "split")
"""All nodes have just been started; or two of them ask for the first term, and one has won it."""
MANY = 5
TERMS_MAX = 3
"""Of so many of the terms that were won it is asked whether another could win them, too."""
LOSSES = 2
"""Memories that may be lost in one walk, each of another node: with more, nobody is left who could tell."""


class Rates:
    """What is likely in one walk."""

    def __init__(self, chance: Random, nodes: int) -> None:
        self.hears = [chance.choice((0.1, 0.7, 1.0, 1.0, 1.0, 1.0)) for _ in range(nodes)]
        """Of each node: how likely a message that might arrive does."""
        self.again = chance.choice((0.02, 0.1, 0.4))
        """How often a message that arrives stays under way, to arrive once more."""
        self.steps = ("wake", "split", "deliver", "ask", "crash", "forget", "step down", "cut")
        self.weights = (
            *(60, chance.choice((0, 3, 10)), chance.choice((2, 8, 20)), chance.choice((6, 17))),
            *(chance.choice((0, 4)), chance.choice((0, 2, 6)), chance.choice((0, 2)), chance.choice((0, 5))),
        )
        self.led = chance.choice((0.7, 0.9, 0.97))
        """How often it is a leader that wakes."""


class Walked(NamedTuple):
    """What one walk came to."""

    wrong: str
    seen: Counter[str]
    """How often what happened, so that one can see that the walks lead anywhere."""
    lines: tuple[str, ...] = ()


class Walk:
    """One walk."""

    def __init__(self, setting: RegisterSetting, seed: int, *, begin: str = "fresh", told: bool = False) -> None:
        self.setting = setting
        self.chance = Random(f"walk/{seed}")
        self.names = setting.names
        self.machines: list[RaftStrategy | None] = [None] * len(self.names)
        self.ballots: list[Ballot | None] = [setting.first_ballot(index) for index in range(len(self.names))]
        self.boots = [0] * len(self.names)
        self.flight: list[tuple[int, Message]] = []
        self.losses = LOSSES
        self.rates = Rates(self.chance, len(self.names))
        self._insisted = self._drawn_names()
        """What an operator asks for again and again."""
        self.side = [0] * len(self.names)
        """Nodes of one side hear each other; of the others they hear what comes late."""
        self.wrong = ""
        self.seen: Counter[str] = Counter()
        self.lines: list[str] | None = [] if told else None
        self._changed = True
        """Somebody took a register, or lost its memory, since it was last asked who could be elected."""
        self._leaders: dict[int, str] = {}
        self._won: dict[int, str] = {}
        """Who has won each term."""
        self._terms: dict[int, str] = {}
        """The last terms that were won, and by whom."""
        self._votes: dict[tuple[str, int], str] = {}
        self._registers: dict[tuple[int, int], Register] = {}
        for index in range(len(self.names)):
            self.start(index)
        if begin == "split":
            self._split()

    def _split(self) -> None:
        """Two ask for one term: the third of five has a vote that it does not hear of yet, the first has won.

        An operator wants both of them, and one of the others.
        """
        assert len(self.setting.voters) >= MANY, "a rival has a voter besides those of the leader"
        rival, voter = 2, 3
        self.wake(rival)
        self._deliver_all(lambda to, said: to == voter and said.origin.node == self.names[rival])
        self.wake(0)
        self._deliver_all(lambda to, said: to not in (rival, voter) and said.origin.node == self.names[0])
        self._deliver_all(lambda to, said: to == 0 and said.origin.node not in (self.names[rival], self.names[voter]))
        self.rates.hears[rival] = 0.0  # it hears what comes late
        self._insisted = [self.names[index] for index in (0, rival, self.chance.choice((1, voter, 4)))]

    def _deliver_all(self, chosen: Callable[[int, Message], bool]) -> None:
        items = [item for item in self.flight if chosen(*item)]
        self.flight = [item for item in self.flight if item not in items]
        for to, message in items:
            self.hear(to, message)

    def go(self, steps: int = STEPS) -> Walked:
        for _ in range(steps):
            self._step()
            self._judge_elections()
            if self.wrong:
                break
        return Walked(self.wrong, self.seen, tuple(self.lines or ()))

    # --- what may happen ----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        chance, rates = self.chance, self.rates
        leading = [index for index, machine in enumerate(self.machines) if machine and machine.state.leader_state]
        match chance.choices(rates.steps, rates.weights)[0]:
            case "wake":
                index = chance.choice(leading) if leading and chance.random() < rates.led else self._any()
                self.wake(index)
                self._exchange(index, chance.choice((0.5, 0.8, 1.0)), chance.choice((1, 2, 3)))
            case "split":
                first, second = self._any(), self._any()
                self.wake(first)
                self.wake(second)
                for index in (first, second, first, second):
                    self._exchange(index, 0.5, 1)
            case "deliver":
                for _ in range(chance.choice((1, 3, 9))):
                    self._deliver_any()
            case "ask":
                for index in leading:
                    self.ask(index)
            case "crash":
                self.crash(self._any())
            case "forget":
                self._forget()
            case "cut":
                cut = chance.random() < 0.7
                self.side = [cut * chance.randrange(2) for _ in self.names]
            case "step down" if leading:
                self.give(chance.choice(leading), StepDown(), "is asked to step down")
        for index, machine in enumerate(self.machines):
            if machine is None and chance.random() < 0.5:
                self.start(index)

    def _any(self) -> int:
        return self.chance.randrange(len(self.names))

    def _exchange(self, index: int, share: float, rounds: int) -> None:
        """What this node says arrives at others, and what they say at it: each with this chance."""
        node, side = self.names[index], self.side
        near = {name for name, at in zip(self.names, side, strict=True) if at == side[index]}
        for _ in range(rounds):
            sent = [p for p, (to, m) in enumerate(self.flight) if m.origin.node == node and side[to] == side[index]]
            self._deliver(sent, share)
            self._deliver([p for p, (to, m) in enumerate(self.flight) if to == index and m.origin.node in near], share)

    def _deliver(self, places: list[int], share: float) -> None:
        """In any order."""
        hears, flight, draw = self.rates.hears, self.flight, self.chance.random
        chosen = [place for place in places if draw() < share * hears[flight[place][0]]]
        items = [flight[place] for place in chosen]
        gone = {place for place in chosen if draw() >= self.rates.again}
        self.flight = [item for place, item in enumerate(self.flight) if place not in gone]
        self.chance.shuffle(items)
        for to, message in items:
            self.hear(to, message)

    def _deliver_any(self) -> None:
        if self.flight:
            place = self.chance.randrange(len(self.flight))
            to, message = self.flight[place]
            if self.chance.random() >= self.rates.again:
                del self.flight[place]
            self.hear(to, message)

    def _forget(self) -> None:
        if self.losses > 0:
            self.losses -= 1
            self.forget(self._any())

    # --- single events, also for schedules ----------------------------------------------------------------------------

    def start(self, index: int) -> None:
        self.boots[index] += 1
        boot = 100 * (index + 1) + self.boots[index]
        machine = self.setting.make(index, boot, self.ballots[index])
        assert isinstance(machine, RaftStrategy)
        self.machines[index] = machine
        self.give(index, Started(), "starts")

    def crash(self, index: int) -> None:
        self._say(index, "crashes")
        self.machines[index] = None

    def forget(self, index: int) -> None:
        """Its memory is lost."""
        self.crash(index)
        self._say(index, "loses its memory")
        self.ballots[index] = None
        self._changed = True
        self.seen["memories lost"] += 1
        self._strike_votes(self.names[index])

    def wake(self, index: int) -> None:
        self.give(index, DeadlinePassed(), "wakes")

    def hear(self, index: int, message: Message) -> None:
        self.give(index, Received(message), "hears ", message)

    def ask(self, index: int) -> None:
        """An operator asks for any members, or cancels."""
        chance = self.chance
        if chance.random() < 0.2:
            self.give(index, CancelChange("operator"), "is asked to cancel the change")
            return
        names = self._drawn_names() if chance.random() < 0.4 else self._insisted
        kinds = (Kind.VOTER, Kind.VOTER, Kind.VOTER, Kind.OBSERVER) if chance.random() < 0.3 else (Kind.VOTER,)
        members = [Member(name, chance.choice(kinds)) for name in names]
        self.change(index, *sorted(members))

    def _drawn_names(self) -> list[str]:
        names = list(self.names)
        self.chance.shuffle(names)
        return names[: self.chance.randrange(1, len(names) + 1)]

    def change(self, index: int, *members: Member) -> None:
        said = ", ".join(f"{m.id}{'' if m.kind is Kind.VOTER else f' ({m.kind})'}" for m in members)
        self.give(index, ChangeMembers(members, "operator"), f"is asked for the members {said}")

    # --- performing and judging ---------------------------------------------------------------------------------------

    def give(self, index: int, given: Input, how: str, message: Message | None = None) -> None:
        machine = self.machines[index]
        if machine is None:
            return
        self._say(index, how, message)
        for effect in machine.step(0, given):
            self._perform(index, effect)

    def _perform(self, index: int, effect: Effect) -> None:
        match effect:
            case Persist(ballot):
                self._saved(index, ballot)
            case Send(to, message):
                self._check_order(index, to, message)
                if to in self.names:
                    self._sent((self.names.index(to), message))
            case Record(event):
                self._recorded(index, event)

    def _sent(self, item: tuple[int, Message]) -> None:
        if len(self.flight) >= FLIGHT_MAX:
            del self.flight[self.chance.randrange(FLIGHT_MAX)]
        self.flight.append(item)

    def _saved(self, index: int, ballot: Ballot) -> None:
        before, self.ballots[index] = self.ballots[index], ballot
        if ballot.void:  # given up (R10): as if it had lost its memory
            self._strike_votes(self.names[index])
        register = ballot.register
        if register is None or (before is not None and before.register is register):
            return
        self._changed = True
        if before is not None and before.register is not None and register.id < before.register.id:
            self._found(f"I9: {self.names[index]} took the members {register.id} after {before.register.id}")
        known = self._registers.setdefault(register.id, register)
        if known != register:
            self._found(f"I9: two memberships have the id {register.id}")

    def _strike_votes(self, node: str) -> None:
        """They may be of a register that elects no more, but for those that elected somebody (R8, R9)."""
        self._votes = {
            (voter, term): voted
            for (voter, term), voted in self._votes.items()
            if voter != node or self._won.get(term) == voted
        }

    def _check_order(self, index: int, to: str, message: Message) -> None:
        ballot, node = self.ballots[index], self.names[index]
        named = message.origin.members
        if isinstance(message, MembersTold | Admission):
            named = max(named, message.register.id)
        if named != (0, 0) and (ballot is None or ballot.register is None or ballot.register.id < named):
            self._found(f"I7: {node} names the members {named} before they are durable")
        vote = None
        if isinstance(message, VoteReply) and message.granted and not message.pre:
            vote = (message.asked, to)
        elif isinstance(message, VoteRequest) and not message.pre:
            vote = (message.term, node)
        if vote is None:
            return
        if ballot is None or (ballot.term, ballot.voted_for) != vote:
            self._found(f"I7: {node} lets its vote of term {vote[0]} go before it is durable")
        if self._votes.setdefault((node, vote[0]), vote[1]) != vote[1]:
            self._found(f"I3: {node} votes for {self._votes[node, vote[0]]} and for {vote[1]} in term {vote[0]}")

    def _recorded(self, index: int, event: Event) -> None:
        self.seen[event.code] += 1
        if self.lines is not None:
            self.lines.append(f"      {self.names[index]}: {event.code} {event.subject} {event.detail}".rstrip())
        if event.code is Code.ELECTED:
            other = self._leaders.setdefault(event.value, self.names[index])
            self._won[event.term] = self._terms[event.term] = self.names[index]
            if len(self._terms) > TERMS_MAX:
                del self._terms[min(self._terms)]
            if other != self.names[index]:
                self._found(f"I2: {other} and {self.names[index]} both lead term {event.term}")

    def _judge_elections(self) -> None:
        """What is not there yet, but cannot be kept from coming."""
        for term, leader in self._terms.items():
            other = second_leader(self.machines, term, leader)
            if other:
                self._found(f"I2: {other} can be elected in term {term}, which {leader} has won")
        found = rivals(self.machines) if self._changed else None
        self._changed = False
        if found is not None:
            self._found(f"I2: {found[0]} and {found[1]} can be elected in one term, by voters of which none is common")

    def _found(self, wrong: str) -> None:
        self.wrong = self.wrong or wrong

    def _say(self, index: int, how: str, message: Message | None = None) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.names[index]} {how}{_said(message) if message is not None else ''}")


def _said(message: Message) -> str:
    tell = SAID.get(type(message))
    return f"{message.origin.node}: {tell(message)[0] if tell is not None else message[1:]}"


class WalksResult(NamedTuple):
    """What many walks came to."""

    walks: int
    seconds: float
    seen: Counter[str]
    seed: int = -1
    """The first that shows a violation; -1: none does."""
    wrong: str = ""


def walk_many(setting: RegisterSetting, seeds: range, steps: int = STEPS, begin: str = "fresh") -> WalksResult:
    """Walks until one shows a violation."""
    began = time.perf_counter()
    seen: Counter[str] = Counter()
    for count, seed in enumerate(seeds, 1):
        walked = Walk(setting, seed, begin=begin).go(steps)
        seen += walked.seen
        if walked.wrong:
            return WalksResult(count, time.perf_counter() - began, seen, seed, walked.wrong)
    return WalksResult(len(seeds), time.perf_counter() - began, seen)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m primacy.sim.model.walks", description="Walks at random, without clocks.")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--voters", type=int, default=3, help="who votes at the beginning; the others are blank")
    parser.add_argument("--walks", type=int, default=1_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--begin", choices=BEGINNINGS, default="fresh")
    parser.add_argument("--pre-vote", action="store_true", help="candidates ask first whether others would vote")
    given = parser.parse_args(arguments)
    if not 1 <= given.voters <= given.nodes:
        parser.error(f"--voters {given.voters}: between 1 and the {given.nodes} nodes")
    setting = RegisterSetting(given.voters, nodes=given.nodes, clocks="none", pre_vote=given.pre_vote)
    if given.begin == "split" and (given.voters < MANY or given.pre_vote):
        parser.error(f"--begin split: needs {MANY} voters, who are asked at once")
    seeds = range(given.first_seed, given.first_seed + given.walks)
    found = walk_many(setting, seeds, given.steps, given.begin)
    print(f"{found.walks:,} walks of {given.nodes} nodes, {found.seconds:.1f} s")
    for what, count in found.seen.most_common():
        print(f"  {count:>10,}  {what}")
    if found.wrong:
        print("\n".join(Walk(setting, found.seed, begin=given.begin, told=True).go(given.steps).lines))
        print(f"seed {found.seed}: VIOLATION {found.wrong}")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
