"""A world for nodes that grow a list by joining: true time, requests that get lost or stay unanswered, crashes.

Each node has two machines, as a real one has: the election and the membership machine, which is performed as its shell
performs it. A request or its answer that is lost is silence until the caller's limit; where nobody listens, the caller
is told at once. A crash falls between any two effects. What happens is told as facts; the world judges nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

from primacy.election.effects import Send, Start, Stop
from primacy.election.inputs import DeadlinePassed, Received, Started, WorkGone, WorkStarted
from primacy.election.inputs import Input as ElectionInput
from primacy.election.messages import Message
from primacy.election.model import Member, Membership, Role, Seat
from primacy.election.ranked.bully import BullyStrategy
from primacy.election.ranked.rank import RankOptions
from primacy.election.ranked.ring import RingStrategy
from primacy.membership.http_wire import Answer, Asked, Credentials, Reply, Said, Silent
from primacy.membership.machine import MembershipMachine
from primacy.membership.members import entries_in
from primacy.membership.state import Identity, JoinPlan
from primacy.membership.vocabulary import (
    REPLIES,
    Begin,
    Call,
    CallEnded,
    Done,
    Effect,
    Fail,
    Input,
    Keep,
    LeaderIs,
    Outgoing,
    Remove,
    Requested,
    Respond,
    Tell,
    Told,
)
from primacy.settings.timing import RANK_PROFILES
from primacy.transport.link_cuts import LinkCuts

STRATEGIES = {"bully": BullyStrategy, "ring": RingStrategy}
CREDENTIALS = (Credentials("user", "pass"),)
WALL_MS = 1_700_000_000_000
BEGIN = 1
"""Number of the one input of ours that is answered by `Done`."""
EVENTS_MAX = 50_000
"""Of one trial; the longest of thousands had a third of it. A storm reaches it."""


class Kind(StrEnum):
    """What sort of fact."""

    UP = "up"
    DOWN = "down"
    LISTED = "listed"
    LEADER = "leader"
    SENT = "sent"
    REMOVED = "removed"
    CALM = "calm"


class Fact(NamedTuple):
    """One fact at a true time. `names`: whom it joins, who is listed, who is believed to lead, who was removed."""

    at_ms: int
    kind: Kind
    node: str
    names: tuple[str, ...] = ()
    leads: bool = False


Machine = Callable[..., MembershipMachine]


class World:
    """One history."""

    def __init__(self, seed: int, strategy: str, profile: str, tell: Callable[[Fact], None]) -> None:
        self.random = Random(seed)
        self.strategy = strategy
        self.timing = RANK_PROFILES[profile]
        self.tell = tell
        self.now_ms = 0
        self.nodes: dict[str, SimNode] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.delay_ms = (1, 10)
        self.machine: Machine = MembershipMachine
        """Planted defects take its place."""
        self.events = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []

    def node(self, name: str, join: tuple[str, ...] = ()) -> SimNode:
        node = self.nodes[name] = SimNode(self, name, f"10.0.0.{len(self.nodes) + 1}:80", join)
        return node

    def fact(self, kind: Kind, node: str, names: tuple[str, ...] = (), *, leads: bool = False) -> None:
        self.tell(Fact(self.now_ms, kind, node, names, leads))

    def after(self, span_ms: int, then: Callable[[], None]) -> None:
        self.events += 1
        heappush(self._queue, (self.now_ms + span_ms, self.events, then))

    def run(self, until_ms: int) -> bool:
        """False: it had more events than any history without a storm has."""
        while self._queue and self._queue[0][0] <= until_ms:
            if self.events > EVENTS_MAX:
                return False
            self.now_ms, _, then = heappop(self._queue)
            then()
        self.now_ms = until_ms
        return True

    def calm(self) -> None:
        """Nothing goes wrong from here on."""
        self.cuts.clear()
        self.loss, self.delay_ms = 0.0, (1, 10)
        self.fact(Kind.CALM, "")

    # --- the network --------------------------------------------------------------------------------------------------

    def carry(self, a: str, b: str, then: Callable[[], None]) -> None:
        if (a, b) not in self.cuts and self.random.random() >= self.loss:
            self.after(self.random.randint(*self.delay_ms), then)

    def call(self, caller: SimNode, call: Call) -> None:
        """Ends once: with what came back, or at its limit."""
        self.fact(Kind.SENT, caller.name)
        start = caller.start
        target = next((node for node in self.nodes.values() if node.addr == call.addr), None)
        is_open = [True]

        def end(found: Answer | Silent) -> None:
            if is_open and caller.start == start:
                is_open.clear()
                caller.give(CallEnded(call.number, found))

        self.after(int(call.limit_s * 1_000), lambda: end(Silent(False, "it does not answer in time")))
        if target is None:
            return

        def respond(reply: Reply | None) -> None:
            if reply is not None:
                answer = Answer(reply.status, Said(reply.said or None), reply.body)
                self.carry(target.name, caller.name, lambda: end(answer))

        def arrive() -> None:
            if not target.is_up:
                self.carry(target.name, caller.name, lambda: end(Silent(True, "nobody listens there")))
                return
            host = caller.addr.partition(":")[0]
            body = call.body or b""
            asked = Asked(call.method, call.path, CREDENTIALS[0].header, call.said, body, False, host)
            target.request(asked, respond)

        self.carry(caller.name, target.name, arrive)


class SimNode:
    """One node: its disk, and its machines while it is up."""

    def __init__(self, world: World, name: str, addr: str, targets: tuple[str, ...]) -> None:
        self.world = world
        self.name = name
        self.addr = addr
        self.targets = targets
        """Nodes that it joins at each start."""
        self.join = tuple(world.nodes[each].addr for each in targets)
        self.disk: dict[str, Any] | None = None
        self.is_up = False
        self.is_paused = False
        self.start = 0
        """How often it was started."""
        self.crash_in = 0
        """So many effects later it is down; 0: it is not about to crash."""

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.world.now_ms

    @property
    def _believes(self) -> LeaderIs:
        return LeaderIs(self.election.leader, self.election.role is Role.LEADER)

    def boot(self) -> None:
        world, random = self.world, self.world.random
        self.start += 1
        self.is_up, self.is_paused, self.crash_in = True, False, 0
        remembered = entries_in(self.disk)
        boot = random.getrandbits(53) | 1
        identity = Identity(
            self.name, boot, self.addr, "c", "e", world.strategy, "id", started_ms=self.wall_ms, config="config"
        )
        plan = JoinPlan(self.join, True, False, remembered, random.getrandbits(32))
        self.membership = world.machine(identity, world.timing, plan, CREDENTIALS, self.wall_ms, LinkCuts())
        listed = [Member(each.node, started_ms=each.started_ms) for each in remembered if not each.gone]
        others = any(not each.gone and each.node != self.name for each in remembered)
        options = RankOptions(bootstrap=not self.join, joining=bool(self.join) and not others)
        members = Membership.of([*listed, Member(self.name)], "config")
        seat = Seat(self.name, boot, members, Random(random.getrandbits(64)))
        self.election = STRATEGIES[world.strategy](seat, world.timing, options)
        self._waiting: deque[Input] = deque()
        self._elections: deque[ElectionInput] = deque()
        self._busy = self._electing = False
        self._slot: list[Message] = []
        self._slot_for = ""
        self._asked = 0
        self._answers: dict[int, Callable[[Reply | None], None]] = {}
        self._leader = LeaderIs("", False)
        self._listed: tuple[str, ...] = ()
        self._shown = LeaderIs("", False)
        self._due: dict[str, int | None] = {}
        world.fact(Kind.UP, self.name, self.targets)
        self.give(Begin(BEGIN))

    def crash(self) -> None:
        if self.is_up:
            self.is_up = False
            self.world.fact(Kind.DOWN, self.name)

    def pause(self, span_ms: int) -> None:
        start = self.start

        def resume() -> None:
            if self.is_up and self.start == start:
                self.is_paused = False
                self._go_on()

        self.is_paused = True
        self.world.after(span_ms, resume)

    def remove(self, node: str) -> None:
        self.world.fact(Kind.REMOVED, self.name, (node,))
        self.give(Remove(node, self.wall_ms))

    def request(self, asked: Asked, respond: Callable[[Reply | None], None]) -> None:
        self._asked += 1
        self._answers[self._asked] = respond
        self.give(Requested(self._asked, self.wall_ms, asked))

    # --- its machines, as the shell and the driver perform them -------------------------------------------------------

    def give(self, given: Input) -> None:
        self._waiting.append(given)
        self._go_on()

    def elect(self, given: ElectionInput) -> None:
        self._elections.append(given)
        self._elect_waiting()

    def _go_on(self) -> None:
        if self._busy or self.is_paused:
            return
        self._busy = True
        while self._waiting and self.is_up:
            given = self._waiting.popleft()
            if self._believes != self._leader:
                self._leader = self._believes
                self.membership.step(self.world.now_ms, self._leader)
            for effect in self.membership.step(self.world.now_ms, given):
                if self.is_up and not self._crashes():
                    self._perform(effect)
        self._busy = False
        self._elect_waiting()
        if self.is_up:
            self._look()
            self._arm("membership", self.membership.deadline_ms, lambda: self.give(DeadlinePassed()))

    def _crashes(self) -> bool:
        if self.crash_in:
            self.crash_in -= 1
            if not self.crash_in:
                self.crash()
        return not self.is_up

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Call():
                self.world.call(self, effect)
            case Respond(number, reply):
                self._answers.pop(number)(reply)
            case Tell(given, number, sender):
                self._slot, self._slot_for = [], sender
                self.elect(given)
                answer = self._slot[0] if self._slot and isinstance(given, Received) else None
                self._slot_for = ""
                if number:
                    self._waiting.appendleft(Told(number, answer))
            case Keep(kept):
                self.disk = kept
            case Done(number, _) if number == BEGIN:
                self.elect(Started(self.wall_ms))
            case Fail(error, _):
                raise error

    def _elect_waiting(self) -> None:
        if self._electing or self.is_paused:
            return
        self._electing = True
        while self._elections and self.is_up:
            for effect in self.election.step(self.world.now_ms, self._elections.popleft()):
                if not self.is_up or self._crashes():
                    break
                match effect:
                    case Send(to, message) if isinstance(message, REPLIES):
                        if to == self._slot_for:
                            self._slot.append(message)
                    case Send(to, message):
                        self.give(Outgoing(to, message))
                    case Start(leadership):
                        self._elections.append(WorkStarted(leadership.term))
                    case Stop(term):
                        self._elections.append(WorkGone(term))
        self._electing = False
        if self.is_up:
            self._look()
            self._arm("election", self.election.deadline_ms, lambda: self.elect(DeadlinePassed()))

    def _look(self) -> None:
        """What changed is a fact."""
        listed = tuple(entry.node for entry in self.membership.state.member_list.listed)
        if listed != self._listed:
            self._listed = listed
            self.world.fact(Kind.LISTED, self.name, listed)
        if self._believes != self._shown:
            self._shown = self._believes
            self.world.fact(Kind.LEADER, self.name, (self._shown.leader,), leads=self._shown.leads)

    def _arm(self, which: str, due_ms: int | None, then: Callable[[], None]) -> None:
        if due_ms == self._due.get(which):
            return
        self._due[which] = due_ms
        if due_ms is None:
            return
        start = self.start

        def due() -> None:
            if self.is_up and self.start == start and self._due.get(which) == due_ms:
                self._due[which] = None
                then()

        self.world.after(max(0, due_ms - self.world.now_ms), due)
