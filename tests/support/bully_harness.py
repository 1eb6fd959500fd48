"""Nodes of bully, alone or several, at the moment that a test begins with."""

from __future__ import annotations

from primacy.election.effects import Send
from primacy.election.events import Code
from primacy.election.inputs import (
    Received,
    Started,
)
from primacy.election.messages import Coordinator, Origin
from primacy.election.ranked.bully import BullyStrategy
from primacy.election.ranked.rank import RankOptions, settle_ms
from tests.support.rank_harness import LAN, Cluster, seat

BOUND_MS = settle_ms(LAN)
ALL = [Code.CAMPAIGNS, Code.ELECTED]


def cluster(names: str = "a b c d e", kind: type[BullyStrategy] = BullyStrategy, **more: object) -> Cluster:
    made = Cluster(kind, names, **more)
    made.settle(BOUND_MS)
    made.run(1000)
    made.forget()
    return made


def machine(node: str = "b", names: str = "a b c", **options: object) -> BullyStrategy:
    made = BullyStrategy(seat(node, list(names.split())), LAN, RankOptions(**options))
    made.step(0, Started())
    return made


def follower(node: str = "b", leader: str = "c", names: str = "a b c") -> BullyStrategy:
    made = machine(node, names)
    made.step(1, Received(Coordinator(Origin(leader, boot=7), 3)))
    assert made.leader == leader
    return made


def to(effects: list[object]) -> list[tuple[str, str]]:
    return [(effect.to, type(effect.message).__name__) for effect in effects if isinstance(effect, Send)]


def codes(effects: list[object]) -> list[Code]:
    return [effect.event.code for effect in effects if hasattr(effect, "event")]
