"""Strategies of a user's that go wrong, each in its own way: what the simulator and the agent must notice."""

from __future__ import annotations

from examples.rendezvous import Rendezvous

from primacy.election.effects import Effect
from primacy.election.guarantees import RAFT
from primacy.election.own import OwnStrategy

NOT_A_CLASS = 3


class Mute:
    """It promises nothing."""

    def step(self) -> None: ...

    def view(self) -> None: ...


class Boastful(Rendezvous):
    """Promises at most one, and has nothing to keep it with: each side of a divided network believes in its own."""

    guarantees = RAFT

    def lead(self, now_ms: int, token: int = 0, valid_until_ms: int = 0) -> list[Effect]:
        return super().lead(now_ms, self.term + 1, now_ms + self.timing.heartbeat_ms * 10)


class Two(Rendezvous):
    """Cannot be: at most one, and one per island."""

    guarantees = RAFT._replace(one_per_island=True)


class Unfinished(OwnStrategy):
    """Does not say what to do at a heartbeat."""

    guarantees = RAFT


class Raising(Rendezvous):
    """A step must never raise."""

    def woke(self, now_ms: int) -> list[Effect]:
        return [][now_ms]


class Deaf(Rendezvous):
    """Does not look at who else is there: everybody leads."""

    def woke(self, now_ms: int) -> list[Effect]:
        return self.lead(now_ms)
