"""What a drill is played on, as the player sees it: five methods, for a lab and for a real cluster."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from primacy.drill.catalogue import Scenario
from primacy.drill.record import Record, Standing
from primacy.settings.contract import Contract
from primacy.settings.timing import Timing

DRILL = "the drill"
"""Who asks, in the log of a lab."""


class Span(NamedTuple):
    """From the beginning of something to the moment at which it was complete, on the clock of the axis."""

    from_ms: int
    done_ms: int


class Subject(NamedTuple):
    """What is drilled, for the report."""

    name: str
    strategy: str
    profile: str
    on: str
    """`lab` or `cluster`."""
    nodes: int
    contract: Contract
    timing: Timing
    where: str
    """The file or the folder, for people."""
    cluster: str
    """Its name alone, which an operator types."""


class Target(Protocol):
    """A lab, or a real cluster."""

    subject: Subject
    one_machine: bool
    """All nodes read one clock."""
    disk: str
    """A folder on the disk that the leases are kept on, if it is one of this machine; else empty."""
    reader: str
    """The node whose log is read; empty: the logs of all."""

    def read(self, record: Record) -> Standing:
        """All that is new since the last time. Raises `NotReached`."""
        ...

    def strike(self, scenario: Scenario, before: Standing, for_ms: int) -> Span:
        """Begins the fault, which ends by itself after `for_ms` at the latest. Raises `Refused` or `NotReached`."""
        ...

    def mend(self, scenario: Scenario, before: Standing) -> Span:
        """Ends it."""
        ...

    def wants(self, scenario: Scenario, before: Standing) -> str:
        """Who must lead afterwards, once it was begun; empty: anybody."""
        ...

    def refuses(self, scenario: Scenario, before: Standing) -> str:
        """Why it cannot be played now, as a sentence; empty: it can."""
        ...
