"""What crosses the wire between nodes. Closed; every message starts with its `origin`.

The transport seals a message, binds it to cluster, sender and receiver, and drops what is not whole; a strategy may
rely on the origin being true, and on nothing else: a message may be lost, repeated, delayed for minutes and
reordered.
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.election.model import Register


class Origin(NamedTuple):
    """Who says it: node, its count of starts, its random number of this start, its list, its token base, and which
    register of members it has."""

    node: str
    incarnation: int = 0
    boot: int = 0
    config: str = ""
    base: int = 0
    members: tuple[int, int] = (0, 0)
    """Term and version of the register of members that is durable with the sender (R1); (0, 0) for none."""


# --- raft: electing and holding ---------------------------------------------------------------------------------------


class VoteRequest(NamedTuple):
    """ "Would you vote" (`pre`) or "vote for me" in `term`. May carry a release as evidence (G6)."""

    origin: Origin
    term: int
    pre: bool
    evidence: Release | None = None


class VoteReply(NamedTuple):
    """The answer. With a yes: age and term of the newest heartbeat acked or sent (Q5); with a no: how long to wait
    (Q4)."""

    origin: Origin
    asked: int
    """The term that was asked for."""
    pre: bool
    granted: bool
    candidate_boot: int
    term: int
    """The voter's own term."""
    age_ms: int = -1
    """Since the newest heartbeat that it acked or sent, or since it read its ballot; -1: none that counts."""
    age_term: int = 0
    hold_max_ms: int = 0
    token_max: int = 0
    """The largest token that the voter has seen (T2)."""
    retry_ms: int = 0


class Heartbeat(NamedTuple):
    """Numbered by the leader; followers ack each by number."""

    origin: Origin
    term: int
    number: int
    hold_ms: int
    settled: bool
    """The leader's start delay is over: no work of an earlier term is left."""


class Ack(NamedTuple):
    """Names term, number and the leader's boot (Q3)."""

    origin: Origin
    term: int
    number: int
    leader_boot: int


class Ahead(NamedTuple):
    """A heartbeat's refusal by a node whose term is higher (Q9)."""

    origin: Origin
    term: int


class Release(NamedTuple):
    """All work of terms up to `term` is gone (G6). Sealed beforehand; outside the replay window; may be repeated."""

    origin: Origin
    term: int
    successor: str = ""


# --- raft: members and memory -----------------------------------------------------------------------------------------


class Query(NamedTuple):
    """ "Under which configuration do you run, and what do you remember?" The nonce is the asker's boot."""

    origin: Origin
    memory: bool
    term: int = 0
    """The asker's term: above 0, its ballot is in use, and an unused one of another base gives way (M3)."""


class Report(NamedTuple):
    """The answer (M1, M2). The origin's `config` is durable in the reporter's ballot before this leaves."""

    origin: Origin
    echo: int
    """The asker's boot."""
    memory: bool
    used: bool
    """It has voted or acked: an unused first ballot counts as no memory for `init` (M3), a used one that is an old copy
    counts as no memory, but nobody founds a cluster by himself beside it."""
    term: int
    hold_max_ms: int
    token_max: int
    confirmed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(hash, no voters) of the configurations that the reporter has left for another one (M1). A node of the version
    before tells with voters of its lists, too; nobody needs that any more."""
    incarnation_seen: int = 0
    """The highest incarnation that the reporter heard of the asker."""
    gave_way: bool = False
    """It has no memory because it gave up a first ballot that was never used: it never voted in this cluster."""
    register: Register | None = None
    """The members that the reporter knows of (R9), without memory those of its file; None from a node of the version
    before."""
    strangers: tuple[str, ...] = ()
    """Whom the reporter, that has no memory, heard speak for this cluster from outside of its file's list (M3)."""
    listens: bool = False
    """It has not listened for that long enough: nobody begins a cluster on this answer (M3)."""

    def has_left(self, config: str) -> bool:
        """The reporter ran under this configuration, and it was replaced (M1)."""
        return bool(config) and config != self.origin.config and (config, ()) in self.confirmed


class FirstBallot(NamedTuple):
    """The first ballot of a cluster: list (by the origin's config), base, term 0 (M3).

    For the boot that said "no memory", and no other: a later start of the same node may have used and lost it.
    """

    origin: Origin
    base: int
    echo: int
    """The receiver's boot, from its report."""


class FirstBallotTaken(NamedTuple):
    """It is durable here."""

    origin: Origin
    base: int


class Stale(NamedTuple):
    """ "I have heard a later start of you": the receiver's state is an old copy (Q10)."""

    origin: Origin
    echo: int
    incarnation_seen: int


# --- raft: the register of members ------------------------------------------------------------------------------------


class MembersTold(NamedTuple):
    """The whole register, to a node that showed an older id, and to one that it no longer names (R1, R10)."""

    origin: Origin
    register: Register


class MembersTaken(NamedTuple):
    """The register that the origin names is durable here, where no ack would show it; or it is older than that of a
    heartbeat, which therefore was not acked."""

    origin: Origin


class Admission(NamedTuple):
    """The answer to the question of a node without memory that the leader's register names as observer (R8)."""

    origin: Origin
    echo: int
    """The asker's boot."""
    term: int
    register: Register
    hold_max_ms: int
    token_max: int
    seen: tuple[tuple[str, int, int], ...] = ()
    """The highest incarnation heard of each node, and the boot that spoke with it (Q10)."""


# --- bully and ring ---------------------------------------------------------------------------------------------------
#
# A real node of Ghoti sends and understands the bare form of the first six: every field after the origin has a
# default that means "not said". Election is POST /election, Okay its 200, Unable its 503; Coordinator is
# POST /coordinator; HeartbeatRequest is GET /heartbeat, Alive its 200, or its 503 if not `able`.


class Election(NamedTuple):
    """Bully: "I am calling an election", to every higher node. Both: "elect", from a leader that goes."""

    origin: Origin
    round: int = 0


class Okay(NamedTuple):
    """The answer of a live node, which then calls its own. `round` is the caller's; 0 fits any."""

    origin: Origin
    round: int = 0


class Unable(NamedTuple):
    """The answer of a node that is up but does not stand: paused, unhealthy, stopping, or old work still dying."""

    origin: Origin
    round: int = 0


class Coordinator(NamedTuple):
    """ "I lead." Repeated every heartbeat by our nodes (B2)."""

    origin: Origin
    epoch: int = 0
    pruned: tuple[str, ...] = ()
    """Nodes that the leader has not heard for so long that no election need wait for them."""


class HeartbeatRequest(NamedTuple):
    """A look at a node, pulled as over Ghoti's wire: by a follower at its leader, or to prove an announcement."""

    origin: Origin
    number: int = 0


class Alive(NamedTuple):
    """The answer: up. Our own nodes add whom they believe to lead. A join answer comes as one, unnumbered, too."""

    origin: Origin
    number: int = 0
    leader: str | None = None
    """Empty: nobody. None: it does not say."""
    epoch: int = 0
    able: bool = True


class Handover(NamedTuple):
    """From a leader that stepped down in favour of a named node, to all that follow it."""

    origin: Origin
    successor: str


class Baton(NamedTuple):
    """Ring: passed on to the next live node, with the highest node that it met and the one that started it."""

    origin: Origin
    starter: str
    round: int
    best: str
    hops: int


class BatonTaken(NamedTuple):
    """Ring: the neighbour has it; silence means that the neighbour is skipped for this round (B7)."""

    origin: Origin
    starter: str
    round: int


class Won(NamedTuple):
    """Ring: the baton came round, and its starter tells the highest node that it met. That one announces itself."""

    origin: Origin
    starter: str
    round: int


# --- a user's own strategy --------------------------------------------------------------------------------------------


class Own(NamedTuple):
    """What a strategy of a user's says; it means whatever that strategy takes it to mean."""

    origin: Origin
    number: int
    """Counted by the sender, so that an old one that comes late is known for what it is."""
    word: str = ""
    numbers: tuple[int, ...] = ()


# --- lease, failsafe --------------------------------------------------------------------------------------------------


class FailsafeHeartbeat(NamedTuple):
    """The holder asks every member of the fixed list to count this as a changed row (L7)."""

    origin: Origin
    token: int
    number: int


class FailsafeAck(NamedTuple):
    """The member did so, and has no take outstanding."""

    origin: Origin
    token: int
    number: int
    holder_boot: int


Message = (
    VoteRequest
    | VoteReply
    | Heartbeat
    | Ack
    | Ahead
    | Release
    | Query
    | Report
    | FirstBallot
    | FirstBallotTaken
    | Stale
    | MembersTold
    | MembersTaken
    | Admission
    | Election
    | Okay
    | Unable
    | Coordinator
    | HeartbeatRequest
    | Alive
    | Handover
    | Baton
    | BatonTaken
    | Won
    | Own
    | FailsafeHeartbeat
    | FailsafeAck
)
