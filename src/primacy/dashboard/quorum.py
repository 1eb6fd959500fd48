"""How many nodes are up, how many are needed, and how many more may fail. Pure.

Where a majority decides (raft), a majority must be up *and* hear each other: five nodes in two halves elect nobody. A
strategy that needs no majority goes on with one node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from primacy.dashboard.known import Known
from primacy.dashboard.standing import DOWN, Seen


class Quorum(NamedTuple):
    """The margin, of those who vote."""

    up: int
    of: int
    needed: int
    together: int
    """The most that one of them reaches both ways, itself included."""
    sure: bool
    """Who is not up is known to be down: in a lab. Elsewhere it is only not heard from here."""
    level: str
    text: str

    @property
    def has_majority(self) -> bool:
        return min(self.up, self.together) >= self.needed

    @property
    def margin(self) -> str:
        """As the strip has it: who is divided stands beside it, and what changed last must fit as well."""
        divided = self.up >= self.needed > self.together
        return f"{self.text.partition(', ')[0]}, no majority" if divided else self.text


def quorum(known: Known, seen: Mapping[str, Seen], there: Mapping[str, str], cut: set[tuple[str, str]]) -> Quorum:
    """`cut`: the ways (from, to) on which nothing arrives."""
    voters = [name for name, each in seen.items() if each.said.kind != "observer"]
    up = [name for name in voters if there[name] == "here"]
    by_majority = known.first.strategy == "raft"
    needed = len(voters) // 2 + 1 if by_majority else min(1, len(voters))
    together = _together(up, cut) if by_majority else len(up)
    sure = bool(voters) and all(there[name] in (*DOWN, "frozen", "starting") for name in voters if name not in up)
    found = Quorum(len(up), len(voters), needed, together, sure, "", "")
    lone = known.first.strategy == "lease" and len(voters) < 2
    return found._replace(level=_level(found, lone), text=_text(found, lone))


def _together(up: Sequence[str], cut: set[tuple[str, str]]) -> int:
    reached = [sum((one, each) not in cut and (each, one) not in cut for each in up) for one in up]
    return max(reached, default=0)


def _level(found: Quorum, lone: bool) -> str:
    spare = min(found.up, found.together) - found.needed
    if not found.of or (lone and found.up):
        return "unknown"
    return "bad" if spare < 0 else "warn" if spare == 0 else "ok"


def _text(found: Quorum, lone: bool) -> str:
    if not found.of:
        return "no node is known yet"
    if lone and found.up:
        return "1 node is read here; others of the same lease are known to the store only"
    up = f"{found.up} of {found.of} {'nodes' if found.of != 1 else 'node'} {'up' if found.sure else 'heard'}"
    if found.up == found.of:
        up = f"{found.up} of {found.of} {'nodes' if found.of != 1 else 'node'} up"
    if found.up >= found.needed > found.together:
        return f"{up}, but at most {found.together} hear each other, {found.needed} needed"
    spare = min(found.up, found.together) - found.needed
    if spare < 0:
        return f"{up}, {found.needed} needed"
    return f"{up}, {spare} more may fail" if spare else f"{up}, none more may fail"
