"""What an election is about: nodes, their list, the durable ballot, leadership, and the words for states.

Nothing here does anything; the strategies do. Values are immutable so that the simulator may keep old ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:  # they name what stands here
    from primacy.election.effects import Effect
    from primacy.election.inputs import Input

TOKEN_MAX = 2**53 - 1
"""Largest fencing token: still exact in every JSON reader (T1)."""


class Role(StrEnum):
    """What a node is in the election, in the users' words. Closed."""

    STARTING = "starting"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    OBSERVER = "observer"
    PAUSED = "paused"
    RECOVERING = "recovering"


class Kind(StrEnum):
    """What the list says of a node: a witness votes but never leads, an observer only watches."""

    VOTER = "voter"
    WITNESS = "witness"
    OBSERVER = "observer"


class Member(NamedTuple):
    """One node of the list. A higher priority stands earlier (raft) or ranks higher (bully, ring)."""

    id: str
    kind: Kind = Kind.VOTER
    priority: int = 0
    started_ms: int = 0
    """Wall time of its start, for `rank: started` only."""
    address: str = ""
    """Where it is found, for members of a register; empty: where the file says."""


class Membership(NamedTuple):
    """The sorted list of nodes with its version and hash. Owns the majority arithmetic."""

    members: tuple[Member, ...]
    hash: str = ""
    """Configuration hash: cluster name, nodes, election settings. Nodes with another hash exchange no votes. Where the
    members are a register, the nodes are not in it."""
    version: int = 0
    """Counts changes of a list that grows by joining (bully, ring); 0 for a fixed list."""
    listed_hash: str = ""
    """Of raft: the hash with the nodes in it, which nodes of the version before know; it is shown as long as
    the members are those of the first start."""

    @classmethod
    def of(cls, members: Iterable[Member | str], hash: str = "", version: int = 0, listed_hash: str = "") -> Membership:
        """A list in id order, from members or plain ids."""
        full = {m.id: m for m in (Member(m) if isinstance(m, str) else m for m in members)}
        return cls(tuple(full[name] for name in sorted(full)), hash, version, listed_hash)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(m.id for m in self.members)

    @property
    def voters(self) -> tuple[str, ...]:
        """Who votes and acks: all but observers (Q2)."""
        return tuple(m.id for m in self.members if m.kind is not Kind.OBSERVER)

    def is_config(self, config: str) -> bool:
        """A node that shows this hash runs with our configuration."""
        return config == self.hash or (config == self.listed_hash and config != "")

    @property
    def majority(self) -> int:
        """Strict majority of the whole list of voters, reachable or not."""
        return len(self.voters) // 2 + 1

    def get(self, node: str) -> Member | None:
        return next((m for m in self.members if m.id == node), None)


class MembersId(NamedTuple):
    """Which register of members: the newer of two is the larger (R1)."""

    term: int
    """Of the leader that wrote it; 0 for the first."""
    version: int
    """Counts the changes, from 1."""

    def __str__(self) -> str:
        return f"{self.term}.{self.version}"


class Goal(NamedTuple):
    """The whole membership that somebody asked for, until a leader has reached it or it was cancelled (R6)."""

    members: tuple[Member, ...]
    by: str
    wall_ms: int
    """When it was asked for, for people."""


class Register(NamedTuple):
    """Who belongs, as the nodes agreed while they run (rules R). Durable in the ballot."""

    id: MembersId
    members: tuple[Member, ...]
    """Sorted by id."""
    prior: tuple[Member, ...] = ()
    """While a change of voters is on its way, the voters and witnesses before it (R6)."""
    goal: Goal | None = None

    @property
    def voters(self) -> tuple[str, ...]:
        """Who votes and acks: all but observers (R2)."""
        return tuple(m.id for m in self.members if m.kind is not Kind.OBSERVER)

    @property
    def halves(self) -> tuple[tuple[str, ...], ...]:
        """A quorum is a majority of each (R2): of the voters, and of those before while a change is on its way."""
        return (self.voters, tuple(m.id for m in self.prior)) if self.prior else (self.voters,)

    @property
    def everybody(self) -> tuple[str, ...]:
        """Members and those before, each once, sorted."""
        return tuple(sorted({m.id for m in (*self.members, *self.prior)}))

    def get(self, node: str) -> Member | None:
        return next((m for m in self.members if m.id == node), None)

    def named(self, node: str) -> bool:
        """It is a member, or was a voter before the change that is on its way."""
        return any(m.id == node for m in (*self.members, *self.prior))


class ListRecord(NamedTuple):
    """A configuration as it stands in a ballot: its hash and its voters (M1)."""

    hash: str
    voters: tuple[str, ...]
    confirmed: bool
    """True once this node was unmuted under it; False while it is only pending."""
    elsewhere: bool = False
    """Of a lease: its nodes, if it tells them, are asked as well as those of the register. Without any, nobody knows
    who else has run under it, and only an operator can say that they are stopped."""


CLOSED = "*"
"""In `voted_for`: no vote is left in this term, and none was given (M1, M2)."""


class Ballot(NamedTuple):
    """What a raft node must never forget. Durable before any message that relies on it (Q1)."""

    base: int
    """Token base, chosen once by `init`; another base is another cluster (T1)."""
    term: int
    voted_for: str
    """Whom this node voted for in `term`; empty for nobody yet; `CLOSED` for nobody ever."""
    hold_max_ms: int
    """The largest hold that an acked leader may still rely on (Q5)."""
    token_max: int
    """The largest fencing token seen in this election, whatever the strategy (T2)."""
    incarnation: int
    """Counts the starts of this node (Q10)."""
    lists: tuple[ListRecord, ...]
    """Every configuration that this node may have promised anything under; more than one means recovering (M1)."""
    changed: bool = False
    """True once the ballot held another configuration than its first (M4)."""
    seen: tuple[tuple[str, int, int], ...] = ()
    """The highest incarnation heard of each other node, and the boot that spoke with it (Q10)."""
    void: bool = False
    """It counts as no memory (Q10, M2): it turned out to be an old copy, or it only tells who was listed (M3)."""
    register: Register | None = None
    """The members (rules R); None in a ballot of before there were registers, until its node is started. No hash tells
    the members: `lists` is about changed times, strategies and stores (M1)."""
    left: tuple[str, ...] = ()
    """Configurations that this node ran under and that were replaced: all reported another one, or an operator named
    those that did not. Who comes back with one of them is told so (M1)."""

    @property
    def is_mark(self) -> bool:
        """Never a ballot: the lists under which a node said that it has no memory, durable before it said so (M3)."""
        return self.void and self.base == 0

    @property
    def token_known(self) -> int:
        """The largest token that this ballot knows of: a leader of its term would have base + term."""
        return max(self.token_max, self.base + self.term)


class Leadership(NamedTuple):
    """The only thing user code receives: who leads, with which proof, and until when at most on the local clock."""

    member: str
    term: int
    token: int
    """Fencing token; 0 for strategies that have none (bully, ring)."""
    valid_until_ms: int
    """End of the hold on this node's clock: s + hold. The guarded work is dead by then."""


DOUBLED = "an operator: another node runs with this id"
"""So begins what a node waits for whose id was heard twice (Q10): an alert, wherever it is read."""


UNLISTED_STOPPED = "all that used its lease of before, of which there is no list, are stopped or run with the new file"
UNLISTED = f"an operator: when {UNLISTED_STOPPED}: primacy rejoin --others-stopped"
"""What a node waits for that ran on a lease without a list (M1)."""


def replaced_sentence(names: tuple[str, ...]) -> str:
    """What a node waits for that came back with a file which those nodes have left (M1)."""
    return f"an operator: its file was replaced, as {', '.join(names)} said; start it with the file that they have"


class View(NamedTuple):
    """A read-only look at a strategy, for people and for the summary that travels in heartbeats."""

    role: Role
    leader: str
    """Whom this node believes to lead; empty for nobody."""
    term: int
    voted_for: str
    token: int
    hold_left_ms: int
    """How long this node's own hold lasts; 0 if it holds nothing."""
    alive: tuple[str, ...]
    """Nodes heard from recently, itself included."""
    waits_for: str
    """One sentence: what it waits for and the next command, or empty."""
    members: MembersId | None = None
    """Which register of members this node has; None without one."""
    change: str = ""
    """What a change of members waits for, in one sentence; empty if none is on its way."""
    removed_untold: tuple[str, ...] = ()
    """Of a leader: who was removed in its term, and has not said yet that it knows (R10)."""


class Seat(NamedTuple):
    """What every strategy is told at birth: who it is, among whom, and where its chance comes from."""

    node: str
    boot: int
    """Random per start. Two starts of one id never share it."""
    membership: Membership
    random: Random


class Strategy(Protocol):
    """The port of all four strategies, and of a plugged-in one."""

    deadline_ms: int | None
    """When the machine next wants to be woken, on the local clock; None for never."""

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        """Takes one input at the local time `now_ms`, returns what is to be done, in order. Never raises."""
        ...

    def view(self, now_ms: int) -> View:
        """How it stands now. Changes nothing."""
        ...
