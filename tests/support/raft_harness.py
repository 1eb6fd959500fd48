"""A bench for one raft node: it is told inputs by hand, and its answers are kept in order. No world, no other node."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from primacy.election.effects import Effect, Persist, Record, Send
from primacy.election.events import Code, Event
from primacy.election.inputs import DeadlinePassed, Input, Received, Started, WorkStarted
from primacy.election.messages import Ack, Heartbeat, Message, Origin, Report, VoteReply, VoteRequest
from primacy.election.model import Ballot, Kind, ListRecord, Member, Membership, Seat
from primacy.election.raft.register import FIRST, first_register
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.settings.timing import PROFILES, Timing

LAB = PROFILES["lab"]
P, H, SPREAD, HEARTBEAT = LAB.promise_ms, LAB.hold_ms, LAB.spread_ms, LAB.heartbeat_ms
BASE = 1_000_000
LIST = "list-1"
NOTHING = (0, 0)
"""What a node without memory names as its members."""
T = TypeVar("T")


def member(word: str) -> Member:
    """`b`, `w:witness`, `o:observer`, `p:2` (a priority)."""
    name, _, more = word.partition(":")
    kind = Kind(more) if more in list(Kind) else Kind.VOTER
    return Member(name, kind, int(more) if more.isdigit() else 0)


def membership(words: str, config: str = LIST) -> Membership:
    return Membership.of([member(word) for word in words.split()], config)


def ballot(words: str = "a b c", term: int = 0, voted_for: str = "", config: str = LIST, **more: Any) -> Ballot:
    """As a disk has it. Everybody was met before, so that meeting them again writes nothing."""
    listed = membership(words)
    record = ListRecord(config, listed.voters, confirmed=True)
    fields: dict[str, Any] = {"hold_max_ms": H, "token_max": BASE, "incarnation": 0, "lists": (record,)}
    fields["seen"] = tuple((name, 1, boot_of(name)) for name in listed.ids)
    fields["register"] = first_register(listed.members)
    fields.update(more)
    return Ballot(base=BASE, term=term, voted_for=voted_for, **fields)


def boot_of(node: str) -> int:
    return 1_000 + ord(node[0])


def origin(node: str, incarnation: int = 1, boot: int = 0, config: str = LIST, base: int = BASE) -> Origin:
    return Origin(node, incarnation, boot or boot_of(node), config, base, FIRST if base else NOTHING)


class Bench:
    """One node `a` (or another), started at 10,000 on its own clock."""

    def __init__(
        self,
        words: str = "a b c",
        kept: Ballot | None = None,
        *,
        node: str = "a",
        blank: bool = False,
        config: str = LIST,
        timing: Timing = LAB,
        options: RaftOptions | None = None,
        lock_held: bool = False,
        boot: int = 0,
        seed: int = 0,
        machine: type[RaftStrategy] = RaftStrategy,
    ) -> None:
        seat = Seat(node, boot or boot_of(node), membership(words, config), Random(seed))
        if kept is None and not blank:
            kept = ballot(words, config=config)
        self.m = machine(seat, timing, kept, options)
        self.now = 10_000
        self.disk = kept
        self.last_heartbeat_ms = 0
        self.all: list[Effect] = []
        self.last: list[Effect] = []
        self.give(Started(1_500_000, lock_held))

    # --- giving -------------------------------------------------------------------------------------------------------

    def give(self, given: Input) -> list[Effect]:
        self.last = self.m.step(self.now, given)
        self.all += self.last
        for effect in self.last:
            if isinstance(effect, Persist):
                self.disk = effect.ballot
            if isinstance(effect, Send) and isinstance(effect.message, Heartbeat):
                self.last_heartbeat_ms = self.now
        return self.last

    def hear(self, message: Message) -> list[Effect]:
        return self.give(Received(message))

    def wait(self, ms: int) -> list[Effect]:
        """Time passes; whenever the node wants to be woken, it is."""
        until, told = self.now + ms, []
        while self.m.deadline_ms is not None and self.m.deadline_ms <= until:
            self.now = max(self.now, self.m.deadline_ms)
            before = self.m.deadline_ms
            told += self.give(DeadlinePassed())
            assert self.m.deadline_ms is None or self.m.deadline_ms > before, "it wants to be woken again at once"
        self.now = until
        self.last = told
        return told

    def wake(self) -> list[Effect]:
        """To its deadline, and wakes it there."""
        assert self.m.deadline_ms is not None
        self.now = max(self.now, self.m.deadline_ms)
        return self.give(DeadlinePassed())

    # --- looking ------------------------------------------------------------------------------------------------------

    def sent(self, kind: type[T], to: str = "") -> list[T]:
        """Messages of a kind in the last answer."""
        return [
            e.message for e in self.last if isinstance(e, Send) and isinstance(e.message, kind) and to in ("", e.to)
        ]

    def receivers(self) -> set[str]:
        """To whom the last answer sent anything."""
        return {effect.to for effect in self.last if isinstance(effect, Send)}

    def did(self, kind: type[T]) -> list[T]:
        """Effects of a kind in the last answer."""
        return [effect for effect in self.last if isinstance(effect, kind)]

    def events(self, code: Code) -> list[Event]:
        return [e.event for e in self.last if isinstance(e, Record) and e.event.code is code]

    def order(self) -> list[str]:
        """The last answer by kinds, in order, without records."""
        return [type(effect).__name__ for effect in self.last if not isinstance(effect, Record)]

    # --- elections ----------------------------------------------------------------------------------------------------

    def yes(self, node: str, term: int, *, pre: bool = False, age_ms: int = 10_000, **more: Any) -> list[Effect]:
        fields: dict[str, Any] = {"age_term": 0, "hold_max_ms": H, "token_max": BASE, **more}
        who = fields.pop("who", origin(node))
        return self.hear(VoteReply(who, term, pre, True, self.m.seat.boot, term - 1, age_ms, **fields))

    def no(
        self, node: str, term: int, *, pre: bool = False, at: int = 0, retry_ms: int = 0, token_max: int = 0
    ) -> list[Effect]:
        told = (origin(node), term, pre, False, self.m.seat.boot, at)
        return self.hear(VoteReply(*told, token_max=token_max, retry_ms=retry_ms))

    def ask(self, node: str, term: int, *, pre: bool = False, **more: Any) -> list[Effect]:
        return self.hear(VoteRequest(more.pop("who", origin(node)), term, pre, **more))

    def heartbeat(
        self, node: str, term: int, number: int = 1, *, settled: bool = True, hold_ms: int = H
    ) -> list[Effect]:
        return self.hear(Heartbeat(origin(node), term, number, hold_ms, settled))

    def ack(self, node: str, number: int = 0, term: int = 0, boot: int = 0) -> list[Effect]:
        assert self.m.state.leader_state is not None
        number = number or self.m.state.leader_state.progress.number
        return self.hear(Ack(origin(node), term or self.m.state.leader_state.term, number, boot or self.m.seat.boot))

    def held_from(self) -> int:
        """s of the newest proved heartbeat."""
        assert self.m.state.leader_state is not None
        return self.m.state.leader_state.progress.hold_from_ms

    def ask_first(self) -> None:
        """Wakes it until it asks whether others would vote."""
        self.last = []
        for _ in range(50):
            self.wake()
            if self.sent(VoteRequest):
                return
        raise AssertionError("it does not ask")

    def stand(self) -> int:
        """Wakes it until it asks for votes for real; b would vote. Returns the term."""
        for _ in range(50):
            self.wake()
            asked = self.sent(VoteRequest)
            if asked and asked[0].pre:
                self.yes("b", asked[0].term, pre=True)
                asked = self.sent(VoteRequest)
            if asked:
                return asked[0].term
        raise AssertionError("it does not stand")

    def win(self, **more: Any) -> int:
        """Elected with the vote of b; no heartbeat is acked yet."""
        term = self.stand()
        self.yes("b", term, **more)
        assert self.m.state.leader_state is not None
        return term

    def lead(self, **more: Any) -> int:
        """Elected, first heartbeat acked by b, work running."""
        term = self.win(**more)
        self.ack("b")
        self.give(WorkStarted(term))
        return term

    def report(self, node: str, term: int = 0, *, memory: bool = True, used: bool = True, **more: Any) -> list[Effect]:
        who = more.pop("who", None) or origin(node, base=BASE if memory else 0, config=more.pop("config", LIST))
        fields: dict[str, Any] = {"hold_max_ms": H, "token_max": BASE, "incarnation_seen": 0, **more}
        fields.setdefault("register", first_register(self.m.seat.membership.members))
        echo = fields.pop("echo", self.m.seat.boot)
        return self.hear(Report(who, echo, memory, memory and used, term, **fields))
