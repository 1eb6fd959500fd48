"""Persist before Send: what a message relies on stands on its sender's disk before it leaves (I7).

The one thing that is looked at inside of a step, for nobody outside could tell; a breach is told as a fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primacy.election.messages import Ack, FirstBallotTaken, Heartbeat, Message, Report, VoteReply, VoteRequest
from primacy.sim.facts import Kind

if TYPE_CHECKING:
    from primacy.sim.world.node import Node
    from primacy.sim.world.world import World


def check_order(world: World, node: Node, to: str, message: Message) -> None:
    """What a vote, an ack or a heartbeat relies on stands on the disk before it leaves (I7); and votes are told
    (I3)."""
    kind = type(message)
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


def check_term(world: World, node: Node, message: Ack | Heartbeat) -> None:
    ballot = node.disk.ballot
    if ballot is None or ballot.term < message.term:
        world.emit(Kind.BAD_ORDER, node.name, message.term, type(message).__name__)
