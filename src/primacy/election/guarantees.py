"""What each strategy promises, as data.

This value drives the table in the README, the simulator's checkers, and what a command agrees to do: `primacy run`
refuses a strategy that does not promise at most one, unless told `--allow-split-brain`.
"""

from __future__ import annotations

from typing import NamedTuple


class Guarantees(NamedTuple):
    """The promise of one strategy."""

    at_most_one: bool
    """No two nodes act at one instant, under any partition, within the stated clock error."""
    one_per_island: bool
    """A partition has a leader on each side, and one again after healing. Excludes `at_most_one`."""
    fencing_token: bool
    """Each leadership has an integer that grows, for the resource to check."""
    whole_network: str
    partition: str
    token: str
    relies_on: str


RAFT = Guarantees(
    at_most_one=True,
    one_per_island=False,
    fencing_token=True,
    whole_network="exactly one, soon",
    partition="none in a minority; at most one acting holder at any instant",
    token="term",
    relies_on="a majority, durable ballots, bounded clock rate error",
)
LEASE = Guarantees(
    at_most_one=True,
    one_per_island=False,
    fencing_token=True,
    whole_network="exactly one, soon",
    partition="at most one acting holder at any instant",
    token="counter in the store",
    relies_on="a store with atomic conditional writes, bounded clock rate error",
)
BULLY = Guarantees(
    at_most_one=False,
    one_per_island=True,
    fencing_token=False,
    whole_network="exactly one, soon",
    partition="one per island, healed when the network heals",
    token="none",
    relies_on="timely failure detection",
)
RING = Guarantees(
    at_most_one=False,
    one_per_island=True,
    fencing_token=False,
    whole_network="exactly one, after a round",
    partition="one per island, healed likewise",
    token="none",
    relies_on="an agreed order of nodes",
)

OF: dict[str, Guarantees] = {"raft": RAFT, "lease": LEASE, "bully": BULLY, "ring": RING}
