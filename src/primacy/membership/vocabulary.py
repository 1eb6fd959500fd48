"""What the membership machine can be told, and what it can ask for, in order. Both are closed.

Numbers bind an answer to its question; each is used once. Wall time orders changes of the list (`members.py`), and
nothing else follows from it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from primacy.election.inputs import DeadlinePassed
from primacy.election.inputs import Input as ElectionInput
from primacy.election.messages import Alive, BatonTaken, Message, Okay, Unable
from primacy.membership.http_wire import Answer, Asked, Reply, Silent

REPLIES = (Okay, Unable, Alive, BatonTaken)
"""Messages that the election sends as answers to requests: they go into the answer, or nowhere."""

# --- inputs -----------------------------------------------------------------------------------------------------------


class Begin(NamedTuple):
    """The first input: this node listens. Answered by `Done` when its election may start."""

    number: int


class Requested(NamedTuple):
    """Another node asks. Answered by `Respond`, or by `Fail`."""

    number: int
    wall_ms: int
    asked: Asked


class Abandoned(NamedTuple):
    """Who asked this has gone, and waits for no answer."""

    number: int


class CallEnded(NamedTuple):
    """What came of a `Call`."""

    number: int
    found: Answer | Silent


class Told(NamedTuple):
    """The election has heard what it was told with this number, and answered the sender in the same step, or not."""

    number: int
    answer: Message | None


class LeaderIs(NamedTuple):
    """Whom this node's election takes for the leader from now on, and whether that is this node."""

    leader: str
    leads: bool


class Outgoing(NamedTuple):
    """The election has a message for another node."""

    to: str
    message: Message


class Word(NamedTuple):
    """What this node says of itself, packed. `only`: to this start of the other node. `later`: it may wait for the next
    exchange, and takes the place of the one before."""

    to: str
    word: bytes
    only: int
    later: bool


class JoinAt(NamedTuple):
    """Join the cluster of the node there, too. Answered by `Done`."""

    number: int
    addr: str


class Remove(NamedTuple):
    """Take a node off the list, on all nodes."""

    node: str
    wall_ms: int


class Ending(NamedTuple):
    """This node is about to end: it takes nobody in any more, and puts right what it has bent."""


class Settle(NamedTuple):
    """Tell others what waits to be told. Answered by `Done` when those calls have ended."""

    number: int


class Close(NamedTuple):
    """The last input but for requests: nothing new is begun."""


Input = (
    Begin
    | DeadlinePassed
    | Requested
    | Abandoned
    | CallEnded
    | Told
    | LeaderIs
    | Outgoing
    | Word
    | JoinAt
    | Remove
    | Ending
    | Settle
    | Close
)

# --- effects ----------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """Ask the node at this address. `CallEnded` follows within the limit, at once if nobody listens there."""

    number: int
    method: str
    addr: str
    path: str
    body: bytes | None
    said: str
    """The header that carries what is ours."""
    limit_s: float


class Respond(NamedTuple):
    """The answer to a request. None: no answer at all, for the link is cut."""

    number: int
    reply: Reply | None


class Tell(NamedTuple):
    """Give this to the election. With a number, `Told` follows with what it answers `sender`."""

    given: ElectionInput
    number: int = 0
    sender: str = ""


class Overheard(NamedTuple):
    """What a node says of itself, for whoever shows it."""

    node: str
    boot: int
    row: list[Any]


class Keep(NamedTuple):
    """Write the list to the disk. It is a help, not a promise: nothing waits for it."""

    kept: dict[str, Any]


class Complain(NamedTuple):
    """A line for the log."""

    sentence: str


class Done(NamedTuple):
    """What was asked with this number is done; or it is not, and `why` says so."""

    number: int
    why: str = ""


class Fail(NamedTuple):
    """A bug of ours. With a number, a request that stays without an answer because of it."""

    error: Exception
    number: int = 0


Effect = Call | Respond | Tell | Overheard | Keep | Complain | Done | Fail
