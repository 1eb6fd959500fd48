"""What a strategy can be told. Closed: every `match` over these ends in `assert_never` or ignores what is not its own.

Times are never in an input but for `wall_ms`, which is display time and may only ever lift a token (T2).
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.election.messages import Message
from primacy.election.model import Member
from primacy.election.store import StoreAnswer


class Started(NamedTuple):
    """The first input of a boot. `lock_held`: a process tree of an earlier start still has the run lock (Q6)."""

    wall_ms: int = 0
    lock_held: bool = False


class DeadlinePassed(NamedTuple):
    """The clock reached `deadline_ms`. May come late, and may come early after a clock was read twice."""


class Received(NamedTuple):
    """A message whose seal was good. The sender stands in its `origin`."""

    message: Message


class Unanswered(NamedTuple):
    """A call to `node` failed at once (refused, unreachable). A hint only: silence says the same, later."""

    node: str


class Answered(NamedTuple):
    """A call to `node` was answered, and the answer says no more than that it lives."""

    node: str


class Paced(NamedTuple):
    """Several others answer so late that all times of bully and ring are to be `factor` times those of the profile."""

    factor: int


class StrangerHeard(NamedTuple):
    """A node that is in no list here speaks, sealed, for this cluster and election: it may have begun before (M3)."""

    node: str


class PersistFailed(NamedTuple):
    """The ballot of this step could not be made durable; nothing that stood after it in the list was done."""

    reason: str = ""


class WorkStarted(NamedTuple):
    """The guarded work of this term runs."""

    term: int


class WorkDeferred(NamedTuple):
    """The work of this term is kept from starting on purpose (G8): `why` says what it waits for, empty that it no
    longer does. Nothing of it runs, and its guard has no release yet."""

    term: int
    why: str = ""


class WorkGone(NamedTuple):
    """The work of this term is confirmed gone and the run lock is free. `released`: the guard has sent the release."""

    term: int
    released: bool = False


class GuardLost(NamedTuple):
    """The guard of this term, or the pipe to it, is gone. What it held may still be dying."""

    term: int


class RunLock(NamedTuple):
    """The run lock on this machine was found held, or was found free."""

    held: bool


class StepDown(NamedTuple):
    """An operator, or the agent, asks the leader to give up in order. `successor`: to this node, if it lives."""

    successor: str = ""
    reason: str = "step-down"


class Pause(NamedTuple):
    """Do not lead until told otherwise. `waits_for`: what ends it, for people; empty: an operator's `resume`."""

    waits_for: str = ""


class Resume(NamedTuple):
    """The end of `Pause`."""


class CampaignOrder(NamedTuple):
    """Who should campaign first if there is no leader, then who (W8). It only ever makes a node wait a little longer:
    nobody is kept from campaigning by it. Empty: as the priorities say."""

    nodes: tuple[str, ...]


class Health(NamedTuple):
    """What the probes say. An unhealthy node steps down and does not stand."""

    ok: bool
    detail: str = ""


class Shutdown(NamedTuple):
    """The agent is about to end: hand over in order."""


class Init(NamedTuple):
    """First start of a cluster, said on one node (M3). `without`: voters that cannot answer, named one by one."""

    wall_ms: int
    without: tuple[str, ...] = ()


class Rejoin(NamedTuple):
    """An operator vouches that these voters are gone for good (M1, M2)."""

    without: tuple[str, ...] = ()
    others_stopped: bool = False
    """And that the users of the lease of before that are on no list use it no more (M1)."""


class ChangeMembers(NamedTuple):
    """An operator asks for this membership, the whole of it (R6). Only a leader takes it (`why_not`)."""

    members: tuple[Member, ...]
    by: str = ""
    wall_ms: int = 0
    version: int = 0
    """Refused if the register has another version by now; 0 for whatever it has."""


class CancelChange(NamedTuple):
    """An operator gives up the change that is on its way."""

    by: str = ""


class ForceMembers(NamedTuple):
    """An operator vouches that these members are gone for good, where no leader can be elected any more (R14)."""

    without: tuple[str, ...]


class MembersChanged(NamedTuple):
    """The list of a cluster that grows by joining has changed (bully, ring)."""

    members: tuple[tuple[str, int, int], ...]
    """(id, priority, started_ms) of every node, itself included."""
    version: int = 0


class StoreAnswered(NamedTuple):
    """The store answered request `number`, or failed: then `answer.ok` is False and nothing follows from it."""

    number: int
    answer: StoreAnswer


class StoreNews(NamedTuple):
    """The store says that the row changed: worth a look now. A hint only: it proves nothing and shortens no wait."""

    renewed: bool = False
    """It was a mere renewal: worth a look now and then, and worth one if the next does not come."""


Input = (
    Started
    | DeadlinePassed
    | Received
    | Unanswered
    | Answered
    | Paced
    | StrangerHeard
    | PersistFailed
    | WorkStarted
    | WorkDeferred
    | WorkGone
    | GuardLost
    | RunLock
    | StepDown
    | Pause
    | Resume
    | CampaignOrder
    | Health
    | Shutdown
    | Init
    | Rejoin
    | ChangeMembers
    | CancelChange
    | ForceMembers
    | MembersChanged
    | StoreAnswered
    | StoreNews
)
