"""What the schedules of `members_schedules.py` are made of: clusters whose clocks go as a schedule says, and steps.

A step does one thing to real machines, or says that it was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps

from primacy.election.inputs import DeadlinePassed, Received
from primacy.election.messages import (
    Ack,
    Heartbeat,
    MembersTaken,
    MembersTold,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import Register
from primacy.election.raft.strategy import RaftStrategy
from tests.support.members_harness import Cluster, H, Node, P, Sent

TWICE = "a vote is given twice in one term"


class Untimed(Cluster):
    """Each clock goes as the schedule says, so only terms are judged: who works when is a matter of time."""

    def _at_most_one(self, cause: Sent, caused: Iterable[Sent]) -> None:
        """A machine that lacks a rule may answer twice: that is not what is looked for here."""
        if not self.machines or set(self.machines.values()) == {RaftStrategy}:
            super()._at_most_one(cause, caused)

    def _judge(self) -> None:
        working = {name: node.works for name, node in self.nodes.items()}
        for node in self.nodes.values():
            node.works = 0
        super()._judge()
        for name, term in working.items():
            self.nodes[name].works = term


Schedule = Callable[[type[RaftStrategy]], str]


def schedule(play: Schedule) -> Schedule:
    """What the harness itself sees is what went wrong, too."""

    @wraps(play)
    def played(machine: type[RaftStrategy]) -> str:
        try:
            return play(machine)
        except AssertionError as error:
            if "two leaders in term" in str(error) or "work at once" in str(error):
                return str(error)
            raise

    return played


def all_of(kind: type[RaftStrategy], names: str = "abcdef") -> dict[str, type[RaftStrategy]]:
    return dict.fromkeys(names, kind)


def asleep(
    words: str, machine: type[RaftStrategy], *, also: str = "", has: dict[str, Register] | None = None
) -> Untimed:
    """All are up, met nobody, and are past their silence; the wire is empty. These have other registers."""
    cluster = Untimed(words, machines=all_of(machine), also=also)
    for name, register in (has or {}).items():
        kept = cluster["a"].disk
        assert kept is not None
        cluster[name].disk = kept._replace(register=register)
    cluster.start()
    for node in cluster.nodes.values():
        node.now += P
        node.m.state.file_ask_at_ms = 0
    cluster.wire.clear()
    return cluster


def stands(node: Node, would: str, term: int = 0) -> bool:
    """It asks for votes for real, after the pre-votes of these, if they are enough. Its requests are on the wire."""
    cluster, term = node.cluster, term or node.m.term + 1
    node.m.campaigning.ask_votes(node.now, term, pre=True)
    for name in would.split():
        voter = cluster[name].m
        node.give(Received(VoteReply(voter.origin, term, True, True, node.m.seat.boot, term - 1, 10_000, 0, H, 0)))
    return any(request.term == term for request in cluster.on_wire(VoteRequest, sender=node.name))


def campaign(node: Node, would: str, term: int = 0) -> int:
    term = term or node.m.term + 1
    assert stands(node, would, term), "it asks for real"
    return term


def only(*kinds: type, to: str = "", sender: str = "") -> Callable[[Sent], bool]:
    return lambda sent: (
        isinstance(sent.message, kinds) and sent.to in (to or sent.to) and sent.sender in (sender or sent.sender)
    )


def take(cluster: Cluster, *kinds: type, to: str = "", sender: str = "") -> None:
    """Hands over these now, once."""
    cluster.deliver(only(*kinds, to=to, sender=sender), rounds=1)


def kept_back(cluster: Cluster, *kinds: type, to: str = "", sender: str = "") -> list[Sent]:
    """Takes these from the wire: they arrive later."""
    wanted = only(*kinds, to=to, sender=sender)
    late = [sent for sent in cluster.wire if wanted(sent)]
    cluster.wire = [sent for sent in cluster.wire if sent not in late]
    return late


def beat(leader: Node, to: str) -> None:
    """The leader's next heartbeat, its register first, and the acks of these; what is for others stays on the wire."""
    cluster = leader.cluster
    assert leader.m.deadline_ms is not None
    leader.now = max(leader.now, leader.m.deadline_ms)
    leader.give(DeadlinePassed())
    for _ in range(3):
        take(cluster, MembersTold, to=to, sender=leader.name)
        take(cluster, Heartbeat, to=to, sender=leader.name)
        take(cluster, Ack, MembersTaken, to=leader.name)
    cluster._settle()


def told(cluster: Cluster, register: Register, to: str) -> None:
    """These are told a register, by a node that nobody knows."""
    origin = cluster["a"].m.origin._replace(node="z", boot=9, incarnation=0, members=tuple(register.id))
    for name in to:
        cluster[name].give(Received(MembersTold(origin, register)))


def elected(cluster: Untimed, node: Node, by: str) -> int:
    """It wins the next term with these votes."""
    for name in by.split():
        cluster[name].now += P
    node.now += P
    term = campaign(node, by)
    take(cluster, VoteRequest, to=by.replace(" ", ""), sender=node.name)
    take(cluster, VoteReply, to=node.name)
    cluster.wire.clear()
    assert node.leads
    return term


def both_campaign(cluster: Untimed, term: int, *sides: tuple[str, str]) -> None:
    """Each of these, started anew, asks its own side for one term. The harness says if two win it."""
    for name, by in sides:
        cluster.wire.clear()
        cluster.kill(name)
        cluster[name].start()
        for node in (cluster[name], *(cluster[voter] for voter in by.split())):
            node.now += 2 * P
        cluster.wire.clear()
        if stands(cluster[name], by, term):
            take(cluster, VoteRequest, to=by.replace(" ", ""), sender=name)
            take(cluster, VoteReply, to=name, sender=by.replace(" ", ""))


def asks_another(cluster: Untimed, asker: Node, voter: Node, term: int) -> str:
    """Asks a voter, which has a memory again, for a term in which it has voted before."""
    voter.now += P
    asker.now += 2 * P
    cluster.wire.clear()
    assert campaign(asker, f"a {voter.name}", term) == term
    take(cluster, VoteRequest, to=voter.name, sender=asker.name)
    return TWICE if cluster.on_wire(VoteReply, to=asker.name)[0].granted else ""
