"""One cache peer of mode `own` among hand-written messages: what it says to each, and when."""

from __future__ import annotations

from random import Random
from typing import Any

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.model import NO_BALLOT, Ballot, CacheSettings, Floor, Meta, order
from primacy.cache.own import OwnMachine
from tests.support.cache_harness import KEY, SETTINGS, WALL_MS, addresses

BOOTS = {"a": 101, "b": 102, "c": 103, "d": 104, "e": 105}
START_MS = 10_000
T = WALL_MS + 15_000
"""A term above everything that a start closes, and below the ceiling."""


class One:
    """Peer `b`, started, silent for Ps, and in touch with the others unless told otherwise."""

    def __init__(
        self,
        machine: type[OwnMachine] = OwnMachine,
        settings: CacheSettings = SETTINGS,
        names: str = "a b c",
        *,
        ceiling: int | None = WALL_MS,
        metas: dict[bytes, Meta] | None = None,
        floors: tuple[Floor, ...] = (),
        calm: bool = True,
    ) -> None:
        self.me = "b"
        self.now = START_MS
        self.skew = 0
        self.stores = True
        self.answers_pings = True
        self.seen: list[does.Effect] = []
        self.machine = machine(self.me, addresses(names), settings, Random(1))
        self.tell(told.Started(BOOTS["b"], metas or {}, floors, ceiling))
        if calm:
            self.run(settings.timing.promise_ms + 1)
            self.seen.clear()

    @property
    def wall(self) -> int:
        return WALL_MS + self.now + self.skew

    # --- in -----------------------------------------------------------------------------------------------------------

    def tell(self, given: told.Input) -> list[does.Effect]:
        """One input; storage answers at once, and so do the others to PINGs."""
        effects = self.machine.step(self.now, self.wall, given)
        self.seen += effects
        for effect in effects:
            match effect:
                case does.StoreCeiling(ceiling) if self.stores:
                    self.tell(told.CeilingStored(ceiling))
                case does.StoreFloor(floor) if self.stores:
                    self.tell(told.FloorStored(floor))
                case does.Send(_, says.Ping(trailer)) if self.answers_pings and trailer is not None:
                    for peer in self.machine.members.others:
                        self.hear(peer, says.Pong(self.trailer(peer, number=trailer.number, wall_ms=self.wall)))
        return effects

    def hear(self, sender: str, message: says.Message) -> list[does.Effect]:
        return self.tell(told.Received(sender, message))

    def run(self, for_ms: int) -> list[does.Effect]:
        """Let time pass, with a timer whenever one is due."""
        end, before = self.now + for_ms, len(self.seen)
        while self.machine.deadline_ms <= end:
            self.now = max(self.now, self.machine.deadline_ms)
            self.tell(told.TimerPassed())
        self.now = end
        self.tell(told.TimerPassed())
        return self.seen[before:]

    def trailer(self, sender: str, ballot: Ballot = NO_BALLOT, **more: Any) -> says.Trailer:
        more.setdefault("boot", BOOTS[sender])
        more.setdefault("echo", BOOTS["b"])
        more.setdefault("membership", self.machine.members.hash)
        more.setdefault("digest", self.machine.floors.digest)
        return says.Trailer(ballot=ballot, **more)

    def ballot(self, sender: str, term: int = T) -> Ballot:
        return Ballot(term, sender, BOOTS[sender])

    def question(self, sender: str, term: int = T, need: int = 0, key: bytes = KEY) -> bool | None:
        """The answer: yes, no, or none."""
        trailer = self.trailer(sender, self.ballot(sender, term), need=need)
        answers = says_to(self.hear(sender, says.Question(key, term, trailer)), sender, says.Answer)
        return answers[0].vote if answers else None

    def announce(self, sender: str, term: int = T, number: int = 1, need: int = 0, **more: Any) -> bool:
        """Was it acked?"""
        trailer = self.trailer(sender, self.ballot(sender, term), number=number, need=need, **more)
        effects = self.hear(sender, says.Announce(KEY, term, 0, trailer))
        return bool(says_to(effects, sender, says.Ack))

    def ended(self, ballot: Ballot, *, boot: int | None = None, wait_ms: int = 0) -> list[does.Effect]:
        boot = ballot.boot if boot is None else boot
        trailer = self.trailer(ballot.peer, ballot, ended=True, boot=boot, wait_ms=wait_ms, echo=0)
        return self.hear(ballot.peer, says.Answer(KEY, ballot.term, 0, False, trailer))

    def update(
        self, sender: str, epoch: Ballot, value: bytes = b"v", ttl_ms: int = 60_000, *, result: bool = True
    ) -> bool:
        """Was the value taken?"""
        trailer = self.trailer(sender, epoch if result else NO_BALLOT, epoch=epoch, fetched_ms=self.wall)
        effects = self.hear(sender, says.Update(KEY, epoch.term, self.wall + ttl_ms, value, trailer))
        return any(isinstance(effect, does.StoreEntry) for effect in effects)

    def ask(self, request: int = 1, key: bytes = KEY, **how: Any) -> list[does.Effect]:
        return self.tell(told.Asked(request, key, **how))

    def vote(self, sender: str, ballot: Ballot, **more: Any) -> list[does.Effect]:
        """A peer says yes to this peer's ballot."""
        trailer = self.trailer(sender, ballot, **more)
        return self.hear(sender, says.Answer(KEY, ballot.term, 0, True, trailer))

    def refuse(self, sender: str, ballot: Ballot, term: int = 0, **more: Any) -> list[does.Effect]:
        trailer = self.trailer(sender, ballot, **more)
        return self.hear(sender, says.Answer(KEY, term or ballot.term, 0, False, trailer))

    def ack(self, sender: str, ballot: Ballot, number: int, **more: Any) -> list[does.Effect]:
        return self.hear(sender, says.Ack(KEY, self.trailer(sender, ballot, number=number, **more)))

    # --- out ----------------------------------------------------------------------------------------------------------

    def stands(self, request: int = 1, **how: Any) -> Ballot:
        """A client asks, and this peer asks the others: its ballot."""
        asked = said(self.ask(request, **how), says.Question)
        assert asked, "it does not ask"
        return asked[-1].trailer.ballot

    def wins(self, request: int = 1, **how: Any) -> Ballot:
        ballot = self.stands(request, **how)
        self.vote("a", ballot)
        return ballot

    def calls(self, request: int = 1, **how: Any) -> Ballot:
        """It won, and its first ANNOUNCE was acked."""
        ballot = self.wins(request, **how)
        assert did(self.ack("a", ballot, 1), does.Call), "it does not call"
        return ballot


def said(effects: list[does.Effect], kind: type) -> list[Any]:
    """Messages of this kind."""
    sends = [effect for effect in effects if isinstance(effect, does.Send | does.SendEntry)]
    return [effect.message for effect in sends if isinstance(effect.message, kind)]


def says_to(effects: list[does.Effect], peer: str, kind: type) -> list[Any]:
    sends = [effect for effect in effects if isinstance(effect, does.Send) and effect.to == peer]
    return [effect.message for effect in sends if isinstance(effect.message, kind)]


def did(effects: list[does.Effect], kind: type) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def by_rank(term: int, peers: str = "a c") -> list[Ballot]:
    """Ballots of one term, the lowest first."""
    return sorted((Ballot(term, peer, BOOTS[peer]) for peer in peers.split()), key=lambda ballot: order(KEY, ballot))
