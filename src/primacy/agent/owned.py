"""From settings to a node of a user's own strategy: loaded, checked, and blamed by name for what it raises."""

from __future__ import annotations

import os
import traceback

from primacy.election.effects import Effect
from primacy.election.inputs import Input
from primacy.election.model import Seat
from primacy.election.own import Plugged
from primacy.errors import PrimacyError, UsageError
from primacy.node.ballot import Memory
from primacy.settings import rank_timing_of, timing_of
from primacy.settings.schema import Settings
from primacy.strategies import own_strategy

KEPT = "own"
"""In the state folder, beside `ballot`: what a user's strategy wants to remember. Raft must not take it for its own."""


class Blamed(Plugged):
    """What it raises is the strategy's fault, and is said so: the agent ends, and with it the work."""

    name = ""

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        try:
            return super().step(now_ms, given)
        except Exception as error:
            raise _blame(self.name, error) from error


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


def own_of(settings: Settings, seat: Seat, memory: Memory, now_ms: int) -> Plugged:
    """With times that hold something if it promises at most one."""
    name = settings.election.strategy
    made = own_strategy(name, os.path.dirname(settings.source))
    timing = timing_of(settings) if made.guarantees.at_most_one else rank_timing_of(settings)
    try:
        plugged = Blamed(made(seat, timing, memory.ballot), seat, now_ms)
    except Exception as error:
        raise _blame(name, error) from error
    plugged.name = name
    return plugged
