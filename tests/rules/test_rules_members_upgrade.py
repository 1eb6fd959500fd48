"""A register beside nodes of the version before there were any: they hear each other as long as nothing has changed."""

from __future__ import annotations

from random import Random

from primacy.election.effects import Send
from primacy.election.inputs import ChangeMembers, DeadlinePassed, Received, Started
from primacy.election.messages import (
    Ack,
    Heartbeat,
    MembersTaken,
    MembersTold,
    Origin,
    Query,
    Report,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import Ballot, ListRecord, Member, Membership, MembersId, Role, Seat
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.settings.timing import PROFILES

TIMING = PROFILES["lab"]
PLAIN, LISTED = "plain", "listed"
MEMBERS = Membership.of([Member(name, address=f"{name}:1") for name in "abc"], PLAIN, listed_hash=LISTED)
BASE = 1_000_000


def earlier_ballot(**more: object) -> Ballot:
    """As the version before wrote it: the hash of its record has the nodes in it."""
    record = ListRecord(LISTED, ("a", "b", "c"), confirmed=True)
    return Ballot(BASE, 5, "", TIMING.hold_ms, BASE + 5, 1, (record,))._replace(**more)


def node(ballot: Ballot | None, membership: Membership = MEMBERS) -> RaftStrategy:
    seat = Seat("a", 11, membership, Random(1))
    return RaftStrategy(seat, TIMING, ballot, RaftOptions())


def earlier(name: str, config: str = LISTED) -> Origin:
    return Origin(name, 1, 100 + ord(name), config, BASE)


def started(ballot: Ballot | None, membership: Membership = MEMBERS) -> RaftStrategy:
    made = node(ballot, membership)
    made.step(0, Started(1_700_000_000_000))
    return made


def test_a_ballot_of_before_gets_the_members_of_the_first_start_and_the_node_is_not_recovering() -> None:
    made = started(earlier_ballot())
    assert made.ballot is not None
    assert made.ballot.register is not None
    assert made.ballot.register.id == MembersId(0, 1)
    assert made.ballot.register.members == MEMBERS.members
    assert [record.hash for record in made.ballot.lists] == [PLAIN]
    assert made.muted == ""
    assert made.origin.config == LISTED, "which the others know"


def test_a_ballot_of_before_under_other_times_makes_the_node_recover() -> None:
    record = ListRecord("other", ("a", "b", "c"), confirmed=True)
    made = started(earlier_ballot(lists=(record,)))
    assert made.muted == "other-list"


def test_a_candidate_and_a_leader_of_before_are_heard_as_long_as_nothing_has_changed() -> None:
    made = started(earlier_ballot())
    later = TIMING.promise_ms + 1
    effects = made.step(later, Received(VoteRequest(earlier("b"), 6, False)))
    assert any(getattr(e, "message", None).__class__ is VoteReply and e.message.granted for e in effects)
    effects = made.step(later + 1, Received(Heartbeat(earlier("b"), 6, 1, TIMING.hold_ms, True)))
    assert any(getattr(e, "message", None).__class__ is Ack for e in effects)


def test_once_the_members_have_changed_a_candidate_of_before_gets_no_vote() -> None:
    made = started(earlier_ballot())
    assert made.ballot is not None
    assert made.ballot.register is not None
    changed = made.ballot._replace(register=made.ballot.register._replace(id=MembersId(5, 2)))
    again = started(changed)
    assert again.origin.config == PLAIN
    effects = again.step(TIMING.promise_ms + 1, Received(VoteRequest(earlier("b"), 7, False)))
    assert not any(getattr(e, "message", None).__class__ is VoteReply for e in effects)
    assert again.term == 5


def test_a_change_is_refused_while_a_member_of_before_is_heard() -> None:
    made = started(earlier_ballot())
    made.step(1, Received(Heartbeat(earlier("c"), 5, 1, TIMING.hold_ms, True)))
    wanted = ChangeMembers((*MEMBERS.members, Member("d", address="d:1")))
    while made.role is not Role.CANDIDATE:
        at = made.deadline_ms or 0
        made.step(at, DeadlinePassed())
    made.step(at, Received(VoteReply(earlier("b"), 6, True, True, 11, 5)))
    made.step(at, Received(VoteReply(earlier("b"), 6, False, True, 11, 5)))
    assert made.role is Role.LEADER
    assert made.why_not(wanted) == "b, c runs an older version, which knows no change of members: upgrade it first"


def test_a_node_that_forgot_asks_with_the_plain_hash_and_takes_what_nodes_of_before_remember() -> None:
    made = started(None)
    assert made.origin.config == PLAIN
    for name in "bc":
        report = Report(earlier(name), 11, True, True, 5, TIMING.hold_ms, BASE + 5, ((LISTED, ("a", "b", "c")),), 1)
        effects = made.step(10, Received(report))
    assert made.muted == "", effects
    assert made.ballot is not None
    assert made.ballot.register is not None
    assert made.ballot.register.members == MEMBERS.members
    assert made.origin.config == LISTED


def test_a_node_of_before_that_forgot_is_told_under_the_hash_that_it_knows() -> None:
    made = started(earlier_ballot())
    (sent,) = [
        e
        for e in made.step(5, Received(Query(earlier("c")._replace(incarnation=0, base=0), False)))
        if hasattr(e, "to")
    ]
    assert isinstance(sent.message, Report)
    assert sent.message.origin.config == LISTED
    assert sent.message.memory


def test_a_node_that_knows_the_first_members_only_is_told_the_newer_ones_although_its_hash_is_not_known() -> None:
    """It was away since the first start; this boot computed the hash with the nodes of today in it."""
    made = started(earlier_ballot())
    assert made.ballot is not None
    assert made.ballot.register is not None
    changed = made.ballot._replace(register=made.ballot.register._replace(id=MembersId(5, 2)))
    again = started(changed, MEMBERS._replace(listed_hash="of today"))
    away = earlier("b")._replace(members=(0, 1))
    for message in (VoteRequest(away, 7, True), MembersTaken(away), Heartbeat(away, 4, 1, TIMING.hold_ms, True)):
        made_of = started(changed, MEMBERS._replace(listed_hash="of today"))
        (told,) = [e.message for e in made_of.step(5, Received(message)) if isinstance(e, Send)]
        assert isinstance(told, MembersTold)
        assert told.origin.config == PLAIN, "which it knows"
    assert not [e for e in again.step(5, Received(VoteRequest(away._replace(base=7), 7, True))) if isinstance(e, Send)]
    for_older = VoteRequest(earlier("b"), 7, True)
    assert not [e for e in again.step(6, Received(for_older)) if isinstance(e, Send)], "it knows no register"
