"""Whether two nodes could be elected in one term by what they and their voters have now.

Of a term that is still to come (`rivals`), and of one that has its leader already (`second_leader`).

What every rule about registers of members stands on: any two registers that can still elect share a voter. A node can
be elected if a quorum of its own register would vote for it, and nobody votes for one whose register is older than its
own (R3). If two nodes have quorums without a common voter, they need nothing but a term that neither has asked for yet.
So a walk that comes to that has found two leaders of one term, although it has not walked to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from primacy.election.messages import VoteRequest
from primacy.election.raft.strategy import RaftStrategy


def rivals(machines: Sequence[RaftStrategy | None]) -> tuple[str, str] | None:
    """Two nodes whose quorums need not meet; None if there are none. Looks at nodes that are up and remember."""
    able = [machine for machine in machines if machine is not None and machine.ballot is not None and not machine.muted]
    candidates = [machine for machine in able if machine.state.quorum.campaigns]
    voters = {machine.node: _voters(machine, able) for machine in candidates}
    candidates = [machine for machine in candidates if machine.state.quorum.has(voters[machine.node])]
    for first, second in combinations(candidates, 2):
        if _may_part(first, voters[first.node], second, voters[second.node]):
            return first.node, second.node
    return None


def second_leader(machines: Sequence[RaftStrategy | None], term: int, leader: str) -> str:
    """A node that could still win a term that has a leader; empty if there is none.

    It may not have come to the term yet, or ask for votes in it now. Who has not voted in it may vote for it, and who
    did vote for it may be heard late.
    """
    able = [machine for machine in machines if machine is not None and machine.ballot is not None and not machine.muted]
    for machine in able:
        if machine.node != leader and machine.state.quorum.campaigns and _may_ask(machine, term):
            voters = [other.node for other in able if other is machine or _may_vote(other, machine, term)]
            if machine.state.quorum.has(voters):
                return machine.node
    return ""


def _may_ask(machine: RaftStrategy, term: int) -> bool:
    campaign = machine.state.campaign
    return machine.term < term or (campaign is not None and not campaign.pre and campaign.term == term)


def _may_vote(voter: RaftStrategy, candidate: RaftStrategy, term: int) -> bool:
    ballot = voter.ballot
    assert ballot is not None
    if ballot.term == term and ballot.voted_for == candidate.node:
        return True
    if ballot.term > term or (ballot.term == term and ballot.voted_for):
        return False
    return not voter.following.is_outdated(VoteRequest(candidate.origin, term, False))


def _voters(candidate: RaftStrategy, able: Sequence[RaftStrategy]) -> tuple[str, ...]:
    """Who would vote for it in a new term."""
    request = VoteRequest(candidate.origin, candidate.term + 1, False)
    return tuple(machine.node for machine in able if machine is candidate or not machine.following.is_outdated(request))


def _may_part(
    first: RaftStrategy, first_voters: tuple[str, ...], second: RaftStrategy, second_voters: tuple[str, ...]
) -> bool:
    """Each has its own vote; of those whom both may ask, every division is tried."""
    both = [node for node in first_voters if node in second_voters and node not in (first.node, second.node)]
    of_first = [node for node in first_voters if node not in both and node != second.node]
    of_second = [node for node in second_voters if node not in both and node != first.node]
    for count in range(len(both) + 1):
        for chosen in combinations(both, count):
            rest = [node for node in both if node not in chosen]
            if first.state.quorum.has([*of_first, *chosen]) and second.state.quorum.has([*of_second, *rest]):
                return True
    return False
