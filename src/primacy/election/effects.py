"""What a strategy can ask for, in order. Closed.

Performed one after the other; a crash may fall between any two. If a `Persist` fails, nothing after it in the same list
is done and the strategy is told `PersistFailed`.
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.election.events import Event
from primacy.election.messages import Message, Release
from primacy.election.model import Ballot, Leadership
from primacy.election.store import StoreRequest


class Persist(NamedTuple):
    """Make this ballot durable, file and folder, before going on."""

    ballot: Ballot


class Send(NamedTuple):
    """Hand the message to the transport. It may be lost, repeated, late."""

    to: str
    message: Message


class Start(NamedTuple):
    """All conditions of the election are met: the work may start now, under this leadership.

    `release` is what the guard will send once the work is confirmed gone (G4). `covered`: a release by a term whose
    work ran covers all predecessors, so that no fence command is needed (G8).
    """

    leadership: Leadership
    release: Release | None = None
    covered: bool = False


class Extend(NamedTuple):
    """The hold was proved anew: the guard's deadline moves to the one of this leadership, never back."""

    leadership: Leadership


class Stop(NamedTuple):
    """The work must end. Planned: with its own stop time, while heartbeats go on. Otherwise TERM now, KILL at its
    point."""

    term: int
    reason: str
    planned: bool


class OrderRelease(NamedTuple):
    """The guard may send the release as soon as the tree is confirmed gone (G5). `successor` stands first."""

    term: int
    successor: str = ""


class AskStore(NamedTuple):
    """Ask the store; the answer comes back as `StoreAnswered` with this number, or never."""

    number: int
    request: StoreRequest


class Record(NamedTuple):
    """Note a fact with its reason."""

    event: Event


Effect = Persist | Send | Start | Extend | Stop | OrderRelease | AskStore | Record
