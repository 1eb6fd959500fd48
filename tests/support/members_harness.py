"""Several raft machines with a register of members, and nothing else: no world, no chance but what a test chooses.

Messages stay on the wire until a test delivers or drops them; each machine has its own clock, so that a test may let
time pass for one alone. What is persisted stands on that machine's disk, and `forget` takes it away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple, TypeVar

from primacy.election.effects import Effect, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.inputs import (
    ChangeMembers,
    DeadlinePassed,
    Input,
    PersistFailed,
    Received,
    Started,
    WorkGone,
    WorkStarted,
)
from primacy.election.messages import Message, Release
from primacy.election.model import Ballot, Kind, ListRecord, Member, Membership, Register, Seat
from primacy.election.raft.register import first_register
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from tests.support.raft_harness import BASE, HEARTBEAT, LAB, H, P, member

TIMES = "times-1"
T = TypeVar("T")


def members(words: str) -> tuple[Member, ...]:
    """`a b c`, `w:witness`, `o:observer`, `p:2` (a priority)."""
    return tuple(sorted((member(word) for word in words.split()), key=lambda one: one.id))


class Sent(NamedTuple):
    """A message on its way."""

    to: str
    message: Message

    @property
    def sender(self) -> str:
        return self.message.origin.node


class Node:
    """One machine, its clock and its disk."""

    def __init__(self, cluster: Cluster, name: str, file: str, ballot: Ballot | None) -> None:
        self.cluster = cluster
        self.name = name
        self.file = file
        self.disk = ballot
        self.starts = 0
        self.joins = False
        """It begins no cluster: its file does not name it, or says so."""
        self.up = False
        self.fails = ""
        """Why its disk takes nothing, if it does not."""
        self.events: list[Event] = []
        self.works = 0
        """The term whose work runs here; 0 for none."""
        self.started: list[int] = []
        self.last: list[Effect] = []

    def start(self, now_ms: int = -1) -> None:
        """A new boot, with what the disk has."""
        self.starts += 1
        boot = 1_000 * ord(self.name) + self.starts
        listed = f"{TIMES} of {self.file}" if self.cluster.compares_files else ""
        seat = Seat(self.name, boot, Membership.of(members(self.file), TIMES, listed_hash=listed), Random(boot))
        options = RaftOptions(auto=self.cluster.auto, joins=self.joins)
        self.m = self.cluster.machines.get(self.name, RaftStrategy)(seat, LAB, self.disk, options)
        self.now = self.cluster.now if now_ms < 0 else now_ms
        self.up = True
        self.give(Started(1_500_000 + self.starts))

    def give(self, given: Input) -> list[Effect]:
        """Performs what the machine asks for, in order. A failing disk stops the rest of the step."""
        effects = self.m.step(self.now, given)
        self.last = list(effects)
        for effect in effects:
            if isinstance(effect, Persist) and self.fails:
                self.give(PersistFailed(self.fails))
                break
            self._perform(effect)
        return self.last

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Persist(ballot):
                self.disk = ballot
            case Send(to, message):
                self._check(message)
                self.cluster.wire.append(Sent(to, message))
            case Record(event):
                self.events.append(event)
            case Start(leadership):
                self.works = leadership.term
                self.started.append(leadership.term)
                self.cluster.soon.append((self, WorkStarted(leadership.term)))
            case Stop(term):
                if self.works == term:
                    self.works = 0
                    self.cluster.soon.append((self, WorkGone(term, released=False)))
            case OrderRelease(term, successor):
                self.cluster.soon[:] = [s for s in self.cluster.soon if s != (self, WorkGone(term, released=False))]
                self.cluster.soon.append((self, WorkGone(term, released=True)))
                release = Release(self.m.origin, term, successor)
                self.cluster.wire += [Sent(name, release) for name in self.cluster.nodes if name != self.name]

    def _check(self, message: Message) -> None:
        """R1 and Q1, of every message of every test: what it names is on the disk."""
        term, version = message.origin.members
        if version:
            assert self.disk is not None
            assert self.disk.register is not None
            assert (term, version) == tuple(self.disk.register.id), (
                f"{self.name} names a register that is not durable: {message} {self.disk.register.id} {self.last}"
            )

    @property
    def register(self) -> Register:
        assert self.m.state.register is not None
        return self.m.state.register

    @property
    def leads(self) -> bool:
        return self.up and self.m.state.leader_state is not None

    def heard(self, code: Code) -> list[Event]:
        return [event for event in self.events if event.code is code]


class Cluster:
    """Machines that have used their ballots before, under the members `words`; others are blank."""

    def __init__(
        self,
        words: str = "a b c",
        *,
        also: str = "",
        blank: str = "",
        auto: bool = False,
        compares_files: bool = False,
        machines: dict[str, type[RaftStrategy]] | None = None,
    ) -> None:
        self.now = 10_000
        self.auto = auto
        self.compares_files = compares_files
        """With the first register nodes show a hash of the file's nodes, too, as the version before does."""
        self.machines = machines or {}
        self.wire: list[Sent] = []
        self.soon: list[tuple[Node, Input]] = []
        self.cut: set[frozenset[str]] = set()
        self.loses: Callable[[Sent], bool] = lambda sent: False
        """What gets lost on its way."""
        self.elected: dict[int, str] = {}
        self.counts: dict[str, int] = {}
        """Messages by kind that were handed over, for bounds."""
        listed = members(words)
        record = ListRecord(TIMES, tuple(m.id for m in listed if m.kind is not Kind.OBSERVER), confirmed=True)
        self.nodes: dict[str, Node] = {}
        for name in [m.id for m in listed] + also.split():
            is_blank = name in blank.split() or name in also.split()
            kept = Ballot(BASE, 1, "", H, BASE, 1, (record,), register=first_register(listed))
            self.nodes[name] = Node(self, name, words, None if is_blank else kept)

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def start(self, names: str = "") -> Cluster:
        for name in names.split() or list(self.nodes):
            self.nodes[name].start()
        return self

    def kill(self, name: str) -> None:
        """The machine loses its power: what ran there is gone."""
        node = self.nodes[name]
        node.up, node.works = False, 0
        self.soon = [(one, given) for one, given in self.soon if one is not node]

    def forget(self, name: str) -> None:
        """And its disk."""
        self.kill(name)
        self.nodes[name].disk = None

    # --- time and the wire --------------------------------------------------------------------------------------------

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.cut

    def split(self, one: str, other: str) -> None:
        self.cut |= {frozenset((x, y)) for x in one.split() for y in other.split()}

    def deliver(self, wanted: Callable[[Sent], bool] = lambda sent: True, *, rounds: int = 8) -> int:
        """Hands over what is wanted, and what follows from it, for some rounds."""
        count = 0
        for _ in range(rounds):
            now = [sent for sent in self.wire if wanted(sent)]
            self.wire = [sent for sent in self.wire if not wanted(sent)]
            for sent in now:
                count += self._hand(sent)
            self._settle()
            if not now:
                break
        return count

    def _hand(self, sent: Sent) -> int:
        node = self.nodes.get(sent.to)
        kind = type(sent.message).__name__
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if node is None or not node.up or self.is_cut(sent.sender, sent.to) or self.loses(sent):
            return 0
        before = len(self.wire)
        node.give(Received(sent.message))
        self._at_most_one(sent, self.wire[before:])
        self._judge()
        return 1

    def _at_most_one(self, cause: Sent, caused: Iterable[Sent]) -> None:
        """E1, of every message of every test. A release is not an answer."""
        receivers = [sent.to for sent in caused if not isinstance(sent.message, Release)]
        assert len(receivers) == len(set(receivers)), f"{cause} is answered twice: {receivers}"

    def _settle(self) -> None:
        while self.soon:
            node, given = self.soon.pop(0)
            if node.up:
                node.give(given)
                self._judge()

    def _judge(self) -> None:
        """I2, of every step of every test: one leader per term; and never two that work."""
        for name, node in self.nodes.items():
            leader = node.m.state.leader_state if node.up else None
            if leader is not None:
                assert self.elected.setdefault(leader.term, name) == name, f"two leaders in term {leader.term}"
        working = [name for name, node in self.nodes.items() if node.works]
        assert len(working) < 2, f"{working} work at once"

    def run(self, ms: int, step_ms: int = 5) -> None:
        """Time passes for all that are up, and what is sent arrives within a step."""
        until = self.now + ms
        while self.now < until:
            self.now = min(self.now + step_ms, until)
            for node in self.nodes.values():
                if node.up:
                    node.now = self.now
                    for _ in range(8):
                        if node.m.deadline_ms is None or node.m.deadline_ms > self.now:
                            break
                        node.give(DeadlinePassed())
                        self._settle()
                        self._judge()
            self.deliver()

    def until(self, wanted: Callable[[], bool], ms: int = 20_000) -> None:
        end = self.now + ms
        while not wanted():
            assert self.now < end, "it does not come to that"
            self.run(5)

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def leader(self) -> Node:
        """The only one; a test that asks knows that there is one."""
        (found,) = [node for node in self.nodes.values() if node.leads]
        return found

    def lead(self, name: str = "") -> Node:
        """Until somebody leads and works; this one if it is named."""
        self.until(lambda: any(node.works and node.leads for node in self.nodes.values()))
        if name and self.leader.name != name:
            raise AssertionError(f"{self.leader.name} leads: name another one")
        return self.leader

    def change(self, words: str, **more: Any) -> Node:
        """Asks the leader for these members."""
        leader = self.leader
        leader.give(ChangeMembers(members(words), "root@a", 0, **more))
        return leader

    def on_wire(self, kind: type[T], to: str = "", sender: str = "") -> list[T]:
        return [
            s.message
            for s in self.wire
            if isinstance(s.message, kind) and to in ("", s.to) and sender in ("", s.sender)
        ]

    def has(self, names: str, words: str) -> bool:
        """These have these members, final and without a goal."""
        found = [self.nodes[name].m.state.register for name in names.split()]
        return all(r is not None and r == Register(r.id, members(words)) for r in found)


__all__ = ["HEARTBEAT", "LAB", "Cluster", "H", "Node", "P", "Sent", "members"]
