"""From settings to a node of a user's own strategy: loaded, checked, and blamed by name for what it raises."""

from __future__ import annotations

import os
import traceback

from primacy.election.effects import Effect, Persist, Start
from primacy.election.inputs import Input
from primacy.election.model import Ballot, Seat
from primacy.election.own import Pluggable, Plugged
from primacy.errors import PrimacyError, UsageError
from primacy.node.ballot import Memory
from primacy.settings import rank_timing_of, timing_of
from primacy.settings.schema import Settings
from primacy.strategies import own_strategy

KEPT = "own"
"""In the state folder, beside `ballot`: what a user's strategy wants to remember. Raft must not take it for its own."""


class Blamed(Plugged):
    """What it raises is the strategy's fault, and is said so: the agent ends, and with it the work.

    If it promises a fencing token, none that was seen here before leads again (T2), over restarts and under whichever
    strategy it was seen.
    """

    def __init__(self, name: str, machine: Pluggable, seat: Seat, now_ms: int, kept: Ballot | None, token: int) -> None:
        super().__init__(machine, seat, now_ms)
        self.name = name
        self.kept = kept or Ballot(0, 0, "", 0, 0, 0, ())
        self.token = max(token, self.kept.token_max)

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        try:
            effects = super().step(now_ms, given)
        except Exception as error:
            raise _blame(self.name, error) from error
        return [each for effect in effects for each in self._fenced(effect)]

    def _fenced(self, effect: Effect) -> list[Effect]:
        if isinstance(effect, Persist):
            self.kept = effect.ballot._replace(token_max=max(effect.ballot.token_max, self.token))
            return [Persist(self.kept)]
        if not isinstance(effect, Start) or not self.machine.guarantees.fencing_token:
            return [effect]
        token = effect.leadership.token
        if token <= self.token:
            raise PrimacyError(
                f"the strategy {self.name} leads with token {token}, and {self.token} was seen in this election: a "
                "token that does not grow proves nothing to the resource"
            )
        self.token = token
        self.kept = self.kept._replace(token_max=token)
        return [Persist(self.kept), effect]


def _blame(name: str, error: Exception) -> PrimacyError:
    where = traceback.extract_tb(error.__traceback__)[-1]
    at = f"{os.path.basename(where.filename)}:{where.lineno}"
    return PrimacyError(f"the strategy {name} raised {type(error).__name__}: {error} ({at}); a step must never raise")


def refuse_own(settings: Settings) -> None:
    """Raises `UsageError` for one that cannot be loaded, and for a list that grows by joining."""
    own_strategy(settings.election.strategy, os.path.dirname(settings.source))
    if settings.cluster.manager.type == "join_server":
        raise UsageError(
            f"election.strategy = {settings.election.strategy}: a strategy of your own needs a fixed list, "
            "cluster.manager.nodes (--nodes); only bully and ring know one that grows by joining"
        )


def own_of(settings: Settings, seat: Seat, memory: Memory, token: int, now_ms: int) -> Plugged:
    """With times that hold something if it promises at most one. `token`: the largest that is known here."""
    name = settings.election.strategy
    made = own_strategy(name, os.path.dirname(settings.source))
    timing = timing_of(settings) if made.guarantees.at_most_one else rank_timing_of(settings)
    try:
        machine = made(seat, timing, memory.ballot)
        return Blamed(name, machine, seat, now_ms, memory.ballot, token)
    except Exception as error:
        raise _blame(name, error) from error
