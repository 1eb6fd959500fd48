"""Of the one file, several elections in one agent: `elections.NAME`, and where each may be led (`placement`).

What an entry does not say it takes from `election:` and `run:`; `elections.py` puts that together.
"""

# ruff: noqa: RUF009  (`setting` returns a `dataclasses.field`, which is what a default may be)
from __future__ import annotations

from dataclasses import dataclass

from primacy.settings.accepted import ID_PATTERN, NAME_PATTERN, wrong_strategy
from primacy.settings.rule import setting
from primacy.settings.schema_choice import Overrides, Store
from primacy.settings.schema_work import Run

NODE_SAYS = "the id of a node"
ELECTION_SAYS = "the name of an election"
CAPACITY_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an election is led rather than elsewhere. It chooses who campaigns first, and is no part of safety."""

    spread: bool = setting(
        True, "Count it when elections are spread evenly over the nodes. Off: it stays where it is, and is not moved."
    )
    prefer: tuple[str, ...] = setting(
        tuple,
        "Nodes that should lead it, the first one that can. None: any.",
        pattern=ID_PATTERN,
        says=NODE_SAYS,
        one_or_more=True,
    )
    only: tuple[str, ...] = setting(
        tuple,
        "Nodes that may lead it, and no other. None: any.",
        pattern=ID_PATTERN,
        says=NODE_SAYS,
        one_or_more=True,
    )
    avoid: tuple[str, ...] = setting(
        tuple,
        "Elections that should be led by another node than this one.",
        pattern=NAME_PATTERN,
        says=ELECTION_SAYS,
        one_or_more=True,
    )
    with_: tuple[str, ...] = setting(
        tuple,
        "Elections that should be led by the same node as this one.",
        key="with",
        pattern=NAME_PATTERN,
        says=ELECTION_SAYS,
        one_or_more=True,
    )
    capacity: int = setting(
        0,
        "It goes to no node that leads so many elections already, unless there is no other. 0: no bound.",
        least=0,
        most=CAPACITY_MAX,
    )


@dataclass(frozen=True, slots=True)
class ElectionEntry:
    """One of several elections."""

    run: Run = setting(Run, "Its command; what it does not say it takes from `run`, setting by setting.", like="run")
    strategy: str = setting(
        "",
        "As `election.strategy`. Default: `lease` if the entry has a store of its own, else that of `election`.",
        check=wrong_strategy,
    )
    profile: str = setting("", "As `election.profile`. Default: that of `election`.", pattern=r"[a-z-]+", says="a word")
    mode: str = setting("", "As `election.mode`. Default: that of `election`.", choices=("automatic", "manual"))
    timing: Overrides = setting(
        Overrides,
        "Single values over the profile. An entry that names a strategy or a profile takes none of `election.timing`.",
        like="election.timing",
    )
    store: Store = setting(
        Store, "lease: where it is kept; what it does not say it takes from `election.store`.", like="election.store"
    )
    placement: Placement = setting(Placement, "Where it is led rather than elsewhere.")
