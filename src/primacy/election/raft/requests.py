"""What an operator may ask for about the members, and why not (R6, R7, R14): one sentence with the remedy. Pure."""

from __future__ import annotations

from primacy.election.inputs import CancelChange, ChangeMembers, ForceMembers
from primacy.election.model import Kind, Member, Register
from primacy.election.raft.register import MEMBERS_MAX, UNKNOWN, difference, is_voter, names, ordered, voting
from primacy.election.raft.state import RaftState

PRIORITY_MAX = 2**31
"""What fits a message."""


def why_not(state: RaftState, given: ChangeMembers | CancelChange | ForceMembers) -> str:
    """Empty if it may."""
    register = state.register
    if register is None or state.muted:
        return "this node is recovering: ask another one, or wait until it follows a leader"
    if isinstance(given, ForceMembers):
        return _why_not_force(state, register, given)
    leader = state.leader_state
    if leader is None:
        return f"{state.leader} leads: ask it" if state.leader else "nobody leads: wait for a leader, then ask it"
    if leader.closed:
        return "this leader steps down: ask the next one"
    goal = register.goal or leader.change.wanted
    busy = goal is not None or bool(register.prior) or leader.change.is_done_due
    if isinstance(given, CancelChange):
        return "" if goal is not None or register.prior else "nothing is on its way: there is nothing to cancel"
    if busy:
        what = difference(register, goal.members) if goal is not None else ""
        by = f" by {goal.by}" if goal is not None and goal.by else ""
        said = f" ({what or 'the last step'}, version {register.id.version}{by})"
        return f"a change is on its way{said}: wait for it, or cancel it"
    if earlier := _of_the_version_before(state):
        return f"{', '.join(earlier)} runs an older version, which knows no change of members: upgrade it first"
    if given.version not in (0, register.id.version):
        return f"the members are at version {register.id.version} by now, not {given.version}: look, then ask again"
    return _why_not_members(register, given.members)


def is_last_step(state: RaftState) -> bool:
    """All that a change still lacks is a quorum's ack of its last step: the next request can be taken in a moment."""
    leader, register = state.leader_state, state.register
    if leader is None or register is None or leader.closed:
        return False
    return leader.change.is_done_due and not register.prior and register.goal is None


def _of_the_version_before(state: RaftState) -> list[str]:
    """Members that were heard in this boot, and show no register. One that was not heard may come later: then it hears
    nobody, for its configuration is another, and says so."""
    known = state.peers.known
    return [name for name in state.quorum.others if name in known and known[name].members == UNKNOWN]


def _why_not_members(register: Register, members: tuple[Member, ...]) -> str:
    """A membership that cannot be, or cannot be reached."""
    wanted = [member.id for member in members]
    addresses = sorted(member.address for member in members if member.address)
    twice = sorted({name for name in wanted if wanted.count(name) > 1})
    shared = sorted({address for address in addresses if addresses.count(address) > 1})
    if twice or "" in wanted:
        return f"{twice[0] if twice else 'a node without a name'} is named twice or not at all: give each node one name"
    if shared:
        users = ", ".join(sorted(member.id for member in members if member.address == shared[0]))
        return f"address {shared[0]} is that of {users}: give each node its own"
    if len(members) > MEMBERS_MAX:
        return f"{len(members)} nodes are more than {MEMBERS_MAX}: use fewer"
    if any(abs(member.priority) > PRIORITY_MAX for member in members):
        return f"a priority is larger than {PRIORITY_MAX}: use a smaller one"
    able = [member.id for member in members if member.kind is Kind.VOTER]
    if not able:
        return "no voter would be left that may lead: keep one"
    present = names(tuple(m for m in register.members if m.kind is Kind.VOTER))
    if not any(name in present for name in able):
        return f"none of the present voters ({', '.join(present)}) would be kept: keep one, and remove it afterwards"
    if ordered(members) == register.members:
        return "the members are so already: there is nothing to change"
    return ""


def _why_not_force(state: RaftState, register: Register, given: ForceMembers) -> str:
    """The last resort (R14): only where nobody leads, and only by a node that may lead afterwards.

    Not on a first ballot that was never used: it binds nobody (M3), so that the others may begin anew beside it.
    """
    if state.leader:
        return f"{state.leader} leads: change the members there"
    if state.term == 0:
        return (
            "this first start was never used, so that there is nothing to go on with: take the nodes that are gone out "
            "of the file, stop the agent, remove its file ballot, start it again"
        )
    if not given.without:
        return "name the members that are gone for good"
    unknown = [name for name in given.without if not register.named(name)]
    if unknown:
        return f"{', '.join(unknown)} is not among the members: name those that are"
    if state.node in given.without or not is_voter(register, state.node):
        return "this node would not vote: say it on one that does"
    left = voting(tuple(member for member in register.members if member.id not in given.without))
    if not any(member.kind is Kind.VOTER for member in left):
        return "no voter would be left that may lead: keep one"
    if state.node not in names(left):
        return "this node would not vote: say it on one that does"
    return ""
