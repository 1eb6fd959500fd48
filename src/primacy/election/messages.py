"""What crosses the wire between nodes. Closed; every message starts with its `origin`.

The transport seals a message, binds it to cluster, sender and receiver, and drops what is not whole; a strategy may rely
on the origin being true, and on nothing else: a message may be lost, repeated, delayed for minutes and reordered.
"""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """Who says it: node, its count of starts, its random number of this start, its list, its token base."""

    node: str
    incarnation: int = 0
    boot: int = 0
    config: str = ""
    base: int = 0


# --- raft: electing and holding ---------------------------------------------------------------------------------------


class VoteRequest(NamedTuple):
    """ "Would you vote" (`pre`) or "vote for me" in `term`. May carry a release as evidence (G6)."""

    origin: Origin
    term: int
    pre: bool
    evidence: Release | None = None


class VoteReply(NamedTuple):
    """The answer. With a yes: age and term of the newest beat acked or sent (Q5); with a no: how long to wait (Q4)."""

    origin: Origin
    term: int
    pre: bool
    granted: bool
    candidate_boot: int
    age_ms: int = -1
    """Since the newest beat that it acked or sent; -1: none that counts."""
    age_term: int = 0
    hold_max_ms: int = 0
    token_max: int = 0
    retry_ms: int = 0


class Beat(NamedTuple):
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
    """A beat's refusal by a node whose term is higher (Q9)."""

    origin: Origin
    term: int


class Release(NamedTuple):
    """All work of terms up to `term` is gone (G6). Sealed beforehand; outside of the replay window; harmless if repeated."""

    origin: Origin
    term: int
    successor: str = ""


# --- raft: members and memory -----------------------------------------------------------------------------------------


class Query(NamedTuple):
    """ "Under which list do you run, and what do you remember?" The nonce is the asker's boot."""

    origin: Origin
    memory: bool


class Report(NamedTuple):
    """The answer (M1, M2). The list is the origin's `config`; it is durable in the reporter's ballot before this leaves."""

    origin: Origin
    echo: int
    """The asker's boot."""
    memory: bool
    used: bool
    """It has voted or acked under this ballot; an unused first ballot counts as no memory for `init` (M3)."""
    term: int
    hold_max_ms: int
    token_max: int
    confirmed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(hash, voters) of the lists that the reporter was unmuted under."""
    incarnation_seen: int = 0
    """The highest incarnation that the reporter heard of the asker."""


class FirstBallot(NamedTuple):
    """The first ballot of a cluster's life: list (by the origin's config), base, term 0 (M3)."""

    origin: Origin
    base: int


class FirstBallotTaken(NamedTuple):
    """It is durable here."""

    origin: Origin
    base: int


class Stale(NamedTuple):
    """ "I have heard a later start of you": the receiver's state is an old copy (Q10)."""

    origin: Origin
    echo: int
    incarnation_seen: int


# --- bully and ring ---------------------------------------------------------------------------------------------------


class Election(NamedTuple):
    """Bully: "I am calling an election", to every higher node."""

    origin: Origin


class Okay(NamedTuple):
    """Bully: the answer of a live higher node, which then calls its own."""

    origin: Origin


class Coordinator(NamedTuple):
    """ "I lead." Repeated every beat by our nodes; `epoch` travels where real nodes of seed 000 ignore it."""

    origin: Origin
    epoch: int = 0


class Heartbeat(NamedTuple):
    """A follower's look at its leader (pulled, as over seed 000's wire)."""

    origin: Origin


class Alive(NamedTuple):
    """The answer: up; and, from our own nodes, whom it believes to lead."""

    origin: Origin
    leader: str = ""
    epoch: int = 0


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


# --- lease, failsafe --------------------------------------------------------------------------------------------------


class FailsafeBeat(NamedTuple):
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
    | Beat
    | Ack
    | Ahead
    | Release
    | Query
    | Report
    | FirstBallot
    | FirstBallotTaken
    | Stale
    | Election
    | Okay
    | Coordinator
    | Heartbeat
    | Alive
    | Baton
    | BatonTaken
    | FailsafeBeat
    | FailsafeAck
)
