"""The node's own control API: HTTP on loopback, for the commands of this machine.

Reading is open to whoever is on this machine; changing needs the control key. Nothing is decided here: a request
becomes an input of the election, and an answer is made from what the agent shows. The agent assembles it, behind the
port below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from primacy.election.inputs import Input
from primacy.election.model import Register, View
from primacy.settings.schema import Settings

if TYPE_CHECKING:
    from primacy.control.summary import Summary

API = 1
"""The version of the documents and paths."""
KEY_HEADER = "X-Primacy-Key"
"""Carries the control key."""
ORDER_HEADER = "X-Primacy"
"""Any value: a page of another site cannot send it, so that no browser can be talked into an order."""
ADDRESS_FILE = "control.json"
"""In the state folder: where the node listens now."""


class WorkloadState(Protocol):
    """How the work stands, as the agent's workload shows it."""

    @property
    def kind(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def since_ms(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def containment(self) -> str: ...
    @property
    def way(self) -> str: ...


class Approve(NamedTuple):
    """An operator lets the work of this node start in this term (G8)."""

    term: int
    by: str
    """Who says so, as the request has it: whoever has the control key may."""


class MonitorSays(NamedTuple):
    """A monitor outside says whether this node is well. `within_ms`: it will speak again before so long; 0: perhaps."""

    monitor: str
    ok: bool
    detail: str = ""
    within_ms: int = 0


class Remove(NamedTuple):
    """An operator takes a node off the list of a cluster that grows by joining. Of the leader only."""

    node: str


Order = Input | Approve | MonitorSays | Remove
"""What a request may become: for the election, or for what stands between it and the work."""


class Trouble(Protocol):
    """What stands between this node and another, for people."""

    @property
    def node(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def alert(self) -> bool: ...


class Heard(NamedTuple):
    """What another node said of itself last."""

    summary: Summary
    boot: int
    at_ms: int
    """When it was heard, on our clock."""


class NodeStatus(NamedTuple):
    """All that is known at one moment; the control API asks for it once per request."""

    settings: Settings
    node: str
    view: View
    workload: WorkloadState
    heard_ms: Mapping[str, int]
    """How long ago each other node was heard; those never heard are not in it."""
    counters: Mapping[str, int]
    now_ms: int
    wall_ms: int
    ending: bool
    """It was asked to end: no order is taken any more."""
    containment: str = ""
    """How firmly the work is held here, why, and what would make it stronger: one sentence."""
    approval_term: int = 0
    """The term whose start waits for an approval here; 0 for none."""
    preceding_term: int = 0
    """The newest earlier term in which, as far as its voters know, somebody led; 0 for none."""
    others: Mapping[str, Heard] = {}
    """What the other nodes said of themselves."""
    troubles: Sequence[Trouble] = ()
    health: str = "ok"
    config: str = ""
    """The configuration hash, as this node shows it; empty as long as it cannot compare it with others'."""
    config_also: str = ""
    """Another one under which a node runs with our configuration, too: with the nodes of the first start in it, or
    without."""
    boot: int = 0
    links: Mapping[str, str] = {}
    """Lab mode: how the link to each other node stands."""
    meters: Mapping[str, float] = {}
    """What the node measures of itself."""
    listed: Sequence[tuple[str, str, str]] = ()
    """Id, kind and address of each node of a list that grows by joining."""
    register: Register | None = None
    """The members, where they are a register (rules R)."""
    asking: Sequence[tuple[str, str]] = ()
    """Nodes that are in no list here and ask to belong, each with the host that it asks from."""
    at_most_one: bool = True
    """What the strategy promises; otherwise each part of a divided network has a leader."""


class Shown(Protocol):
    """What can be looked at, and nothing else."""

    def status(self) -> NodeStatus: ...

    def complain(self, sentence: str) -> None:
        """For the log."""
        ...


class AgentPort(Shown, Protocol):
    """What the control API needs of the agent."""

    async def order(self, given: Order, said_at: str = "") -> None:
        """Its effects are done when this returns, and durable. `said_at`: the node that passed it on."""
        ...

    async def pass_on(self, to: str, name: str, body: dict[str, Any]) -> str:
        """An order for another node; returns what that one says to it. Raises `NotReached`, or its refusal."""
        ...

    def links(self) -> dict[str, str]:
        """How the link to each other node stands: none, in, out, both."""
        ...

    def cut(self, node: str, way: str) -> None:
        """Lab mode: cuts or mends a link; an empty name mends all."""
        ...


class Files(Protocol):
    """A private folder: names are plain names in it, and files are ours alone (0600)."""

    def path(self, name: str) -> str: ...

    def open(self, name: str, flags: int) -> int: ...

    def create(self, name: str) -> int: ...

    def read(self, name: str, most_bytes: int) -> bytes: ...

    def rename(self, old: str, new: str) -> None: ...
