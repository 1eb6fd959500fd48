"""The scenarios of drills: which fault of the catalogue (docs/faults.md), on what, and what must come of it. Data."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from primacy.errors import UsageError


class Promise(StrEnum):
    """What a scenario is judged by."""

    SILENCE = "silence"
    """The holder falls silent: its command is dead in time, another node starts in time."""
    RELEASE = "release"
    """The holder stops in order: its command ends in its time, another node starts soon after that."""
    STEADY = "steady"
    """The holder keeps the role."""
    OUTAGE = "outage"
    """Nobody runs the command while it lasts; soon after it, one does."""


LAB, CLUSTER = "lab", "cluster"
BOTH = ("raft", "lease")


class Scenario(NamedTuple):
    """One fault."""

    name: str
    fault: str
    """Its number in docs/faults.md."""
    title: str
    must: str
    """What must come of it, for people."""
    promise: Promise
    on: str
    strategies: tuple[str, ...] = BOTH
    takes_node: bool = True
    """The majority loses a node by it."""

    @property
    def beyond_quorum(self) -> bool:
        """Nobody can run the command while it lasts."""
        return self.promise is Promise.OUTAGE


RELEASED = "Its command ends in its time; another node starts as soon as the end is confirmed."
STAYS = "Nothing changes: the same node runs it, under the same token."

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("stop", "F54", "the holder is stopped in order", RELEASED, Promise.RELEASE, LAB),
    Scenario(
        "kill",
        "F02",
        "the holder's agent is killed (kill -9)",
        "Its guard ends the command, confirms it and releases; another node starts.",
        Promise.SILENCE,
        LAB,
    ),
    Scenario(
        "child",
        "F03",
        "the command alone is killed (kill -9)",
        "No election: the same node starts it again, under the same token.",
        Promise.STEADY,
        LAB,
        takes_node=False,
    ),
    Scenario(
        "stall",
        "F05",
        "the holder's agent stands still, for less than it may",
        STAYS,
        Promise.STEADY,
        LAB,
        takes_node=False,
    ),
    Scenario(
        "link",
        "F14",
        "one link of the holder is cut",
        STAYS,
        Promise.STEADY,
        LAB,
        strategies=("raft",),
        takes_node=False,
    ),
    Scenario(
        "one-way",
        "F19",
        "the holder is heard by all, and hears nobody",
        "It stops its command and its heartbeats; another node starts.",
        Promise.SILENCE,
        LAB,
        strategies=("raft",),
    ),
    Scenario(
        "minority",
        "F18",
        "the network is divided, and the holder is on the smaller side",
        "Its command is dead before a node of the larger side starts.",
        Promise.SILENCE,
        LAB,
        strategies=("raft",),
    ),
    Scenario(
        "hang",
        "F04",
        "the holder's agent is frozen (SIGSTOP)",
        "Its guard ends the command in time; another node starts.",
        Promise.SILENCE,
        LAB,
    ),
    Scenario(
        "freeze",
        "F07",
        "the holder's agent and guard are frozen (SIGSTOP)",
        "The kernel ends the command in time; another node starts.",
        Promise.SILENCE,
        LAB,
    ),
    Scenario(
        "power",
        "F01",
        "agent, guard and command of the holder are killed at one stroke",
        "Nobody can release: another node starts once the hold is over.",
        Promise.SILENCE,
        LAB,
    ),
    Scenario(
        "halves",
        "F18",
        "the network is divided, and no side has a majority",
        "Nobody runs the command; once the links are mended, one node does.",
        Promise.OUTAGE,
        LAB,
        strategies=("raft",),
    ),
    Scenario(
        "store-away",
        "F40",
        "nobody reaches the store",
        "Nobody runs the command; once the store is back, one node does.",
        Promise.OUTAGE,
        LAB,
        strategies=("lease",),
    ),
    Scenario(
        "step-down", "F54", "the holder is asked to step down", RELEASED, Promise.RELEASE, CLUSTER, takes_node=False
    ),
    Scenario(
        "transfer",
        "F54",
        "the role is handed to another node",
        RELEASED,
        Promise.RELEASE,
        CLUSTER,
        takes_node=False,
    ),
    Scenario(
        "pause",
        "F54",
        "the holder is paused, and resumed later",
        RELEASED,
        Promise.RELEASE,
        CLUSTER,
        takes_node=False,
    ),
)


def offered(on: str, strategy: str) -> list[Scenario]:
    """In the order in which they are played."""
    return [each for each in SCENARIOS if each.on == on and strategy in each.strategies]


def known(names: tuple[str, ...]) -> None:
    """Before a cluster is looked for. Raises `UsageError` if one is the name of nothing."""
    there = list(dict.fromkeys(each.name for each in SCENARIOS))
    for name in names:
        if name not in there:
            raise UsageError(f"--scenario {name[:40]}: there is no such scenario; there are {', '.join(there)}")


def chosen(names: tuple[str, ...], on: str, strategy: str, *, beyond_quorum: bool) -> list[Scenario]:
    """Those that are named, or all. Raises `UsageError`."""
    there = {each.name: each for each in offered(on, strategy)}
    where = "a lab" if on == LAB else "a cluster that is no lab"
    for name in names:
        if name not in there:
            raise UsageError(
                f"--scenario {name[:40]}: no scenario for {where} of {strategy}; there are {', '.join(there)}"
            )
        if there[name].beyond_quorum and not beyond_quorum:
            raise UsageError(
                f"--scenario {name}: nobody can run the command while it lasts; if that is meant, add --beyond-quorum"
            )
    if names:
        return [there[name] for name in names]
    return [each for each in there.values() if beyond_quorum or not each.beyond_quorum]
