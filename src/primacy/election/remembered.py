"""Which configurations a node has run under, over changes of strategy and store (M1). Pure.

Raft keeps them in the ballot, a lease in the file of its tokens. A node that is started with another strategy has to
know what it may have promised, or held, under the one before: it takes that over into its own file, durably, before it
says anything, and only then strikes it from the other one. After a crash in between both have it, which changes
nothing. What is taken over ends when all nodes concerned have reported the new configuration, or by an operator's word:
in raft by `raft/recovery.py`, on a lease by `lease/changed.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.election.model import Ballot, ListRecord, Member
from primacy.election.raft.register import first_register

NOTHING = Ballot(0, 0, "", 0, 0, 0, ())
LOST = ListRecord("lost", (), confirmed=True, elsewhere=True)
"""A ballot that cannot be read: nobody knows who belonged to its cluster."""
UNREADABLE = NOTHING._replace(base=1, void=True)
"""What stands for it on the disk once that is remembered: no memory, and no first start either."""
LEFT_MAX = 8
"""Configurations that a node remembers to have left. One that is older than eight changes is not recognised."""


class Kept(NamedTuple):
    """What is on the disk: the ballot of raft, and the tokens of a lease."""

    ballot: Ballot | None
    tokens: Ballot | None


def for_raft(kept: Kept) -> Kept:
    """What a start of raft must find on the disk. The ballot is saved first.

    Without a ballot it is a mark (M3): who ran on the lease with this node is asked before a cluster begins.
    """
    ballot, tokens = kept
    if tokens is None or not tokens.lists:
        return kept
    known = ballot or NOTHING._replace(void=True)
    both = known._replace(
        lists=_joined(known.lists, tokens.lists),
        hold_max_ms=max(known.hold_max_ms, tokens.hold_max_ms),
        left=with_left(known.left, tokens.left),
    )
    return Kept(both, tokens._replace(lists=()))


def for_lease(kept: Kept, own: ListRecord, *, speaks: bool, lost: bool = False) -> Kept:
    """What a start on a lease must find on the disk. The tokens are saved first.

    `own`: the lease that the file names. A node without any memory confirms it at once if it speaks to nobody; else it
    listens first whether one of its nodes runs with another configuration. `lost`: there is a ballot, of which nothing
    can be read.
    """
    ballot, tokens = kept
    blank = ballot is None and tokens is None and not lost
    known = tokens or NOTHING
    before = known.lists
    if ballot is not None:
        before = _joined(before, _with_register(ballot))
    if lost:
        before = _joined(before, (LOST,))
    others = [record for record in before if record.hash != own.hash]
    earlier = next((record for record in before if record.hash == own.hash), None)
    confirmed = earlier.confirmed if earlier is not None else not others and not (blank and speaks)
    token_max = max(known.token_max, ballot.token_known if ballot is not None else 0)
    made = known._replace(
        term=max(known.term, token_max),
        token_max=token_max,
        hold_max_ms=max(known.hold_max_ms, ballot.hold_max_ms if ballot is not None else 0),
        lists=(*others, own._replace(confirmed=confirmed)),
        left=with_left(known.left, ballot.left if ballot is not None else ()),
    )
    return Kept(UNREADABLE if lost else _without_lists(ballot), made)


def with_left(left: tuple[str, ...], more: tuple[str, ...], own: str = "") -> tuple[str, ...]:
    """Each once, the latest last; a node that returned to one of them has not left it."""
    kept = [one for one in left if one not in more]
    return tuple(one for one in (*kept, *more) if one not in ("", own))[-LEFT_MAX:]


def _joined(one: tuple[ListRecord, ...], other: tuple[ListRecord, ...]) -> tuple[ListRecord, ...]:
    """Each configuration once."""
    known = [record.hash for record in one]
    return (*one, *(record for record in other if record.hash not in known))


def _with_register(ballot: Ballot) -> tuple[ListRecord, ...]:
    """Its configurations, each with the voters of the register: nobody else has a say under them."""
    register = ballot.register
    if register is None:
        return ballot.lists
    voters = tuple(sorted({name for half in register.halves for name in half}))
    return tuple(record if record.elsewhere else record._replace(voters=voters) for record in ballot.lists)


def _without_lists(ballot: Ballot | None) -> Ballot | None:
    """A ballot from before there were registers tells its voters nowhere else."""
    if ballot is None or not ballot.lists:
        return ballot
    register = ballot.register
    listed = [record for record in ballot.lists if record.voters and not record.elsewhere]
    if register is None and not ballot.void and listed:
        first = next((record for record in listed if record.confirmed), listed[0])
        register = first_register(tuple(Member(name) for name in first.voters))
    return ballot._replace(lists=(), register=register)
