"""Persist before Send: what a message relies on stands on its sender's disk before it leaves (I7).

The one thing that is looked at inside of a step, for nobody outside could tell; a breach is told as a fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primacy.election.messages import (
    Ack,
    Admission,
    FirstBallotTaken,
    Heartbeat,
    MembersTold,
    Message,
    Report,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import Ballot, Member
from primacy.election.model import Kind as MemberKind
from primacy.sim.facts import OLDER, Kind

if TYPE_CHECKING:
    from primacy.sim.world.node import Node
    from primacy.sim.world.world import World

NO_MEMBERS = (0, 0)
"""In an origin: its node has no register of members, as it has no memory."""


def check_order(world: World, node: Node, to: str, message: Message) -> None:
    """What a vote, an ack or a heartbeat relies on stands on the disk before it leaves (I7); and votes are told
    (I3)."""
    kind = type(message)
    if message.origin.members != NO_MEMBERS:
        check_members(world, node, message)
    if kind is Heartbeat or kind is Ack:
        check_term(world, node, message)  # type: ignore[arg-type]
    elif isinstance(message, VoteReply) and message.granted and not message.pre:
        _check_vote(world, node, message.asked, to, message)
    elif isinstance(message, VoteRequest) and not message.pre:
        _check_vote(world, node, message.term, node.name, message)
    elif isinstance(message, Report) and message.memory:
        ballot = node.disk.ballot
        if ballot is None or message.origin.config not in [record.hash for record in ballot.lists]:
            world.emit(Kind.BAD_ORDER, node.name, message.term, "Report")
    elif isinstance(message, FirstBallotTaken):
        ballot = node.disk.ballot
        if ballot is None or ballot.base != message.base:
            world.emit(Kind.BAD_ORDER, node.name, 0, "FirstBallotTaken")


def _check_vote(world: World, node: Node, term: int, candidate: str, message: VoteReply | VoteRequest) -> None:
    """A vote for another, or for oneself, stands on the disk before anybody hears of it."""
    ballot = node.disk.ballot
    if ballot is None or (ballot.term, ballot.voted_for) != (term, candidate):
        world.emit(Kind.BAD_ORDER, node.name, term, type(message).__name__)
    world.emit(Kind.VOTE, node.name, message.origin.base + term, candidate)


def check_members(world: World, node: Node, message: Message) -> None:
    """Whoever names a register of members has it, or a newer one, on its disk (R1)."""
    named = message.origin.members
    if isinstance(message, MembersTold | Admission):
        named = max(named, message.register.id)
    ballot = node.disk.ballot
    if ballot is None or ballot.register is None or ballot.register.id < named:
        world.emit(Kind.BAD_ORDER, node.name, named[0], type(message).__name__)


def tell_register(world: World, node: Node, before: Ballot | None, ballot: Ballot) -> None:
    """A save has made another register durable."""
    register = ballot.register
    if register is None or (before is not None and before.register == register):
        return
    kept = f"{_rows(register.members)} | {_rows(register.prior)}"
    was = before.register if before is not None and not before.void and before.base == ballot.base else None
    id_ = f"{register.id}{OLDER}{was.id}" if was is not None and register.id < was.id else str(register.id)
    world.emit(Kind.REGISTER, node.name, register.id.version, kept, register.id.term, id_, _goal(ballot))


def _rows(members: tuple[Member, ...]) -> str:
    kinds = {MemberKind.VOTER: "", MemberKind.WITNESS: " (witness)", MemberKind.OBSERVER: " (observer)"}
    return ", ".join(f"{member.id}{kinds[member.kind]}" for member in members)


def _goal(ballot: Ballot) -> str:
    goal = ballot.register.goal if ballot.register is not None else None
    return "" if goal is None else _rows(goal.members)


def check_term(world: World, node: Node, message: Ack | Heartbeat) -> None:
    ballot = node.disk.ballot
    if ballot is None or ballot.term < message.term:
        world.emit(Kind.BAD_ORDER, node.name, message.term, type(message).__name__)
