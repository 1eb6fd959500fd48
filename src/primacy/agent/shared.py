"""What an agent may have in common with other elections of its process: who makes its transport, its control API, its
page and its store. Alone in its process it has its own of each."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from primacy.agent.assemble import MakesTransport
from primacy.agent.control_api import ControlApi
from primacy.agent.gossip import OfAgents
from primacy.agent.page import Page
from primacy.agent.stored import OwnThreads, Threads
from primacy.control import AgentPort
from primacy.control.disk_thread import DiskThread
from primacy.control.eventlog import EventLog
from primacy.node.folder import Folder
from primacy.settings.schema import Settings
from primacy.supervise.process_workload import Reserve
from primacy.transport.udp import UdpTransport


class Api(Protocol):
    """One election's part of a control API."""

    def bind(self) -> None: ...
    def serve(self) -> None: ...
    async def close(self) -> None: ...


class Served(Protocol):
    """A page beside the node, or none."""

    def serve(self) -> None: ...
    async def close(self) -> None: ...


class Shared(NamedTuple):
    """Makers of the parts that one process has once."""

    transport: MakesTransport = UdpTransport
    control: Callable[[Settings, Folder, str, AgentPort, EventLog], Api] = ControlApi
    page: Callable[[Settings, str, str, Callable[[str], None]], Served] = Page
    threads: Threads = OwnThreads()
    saves: Executor | None = None
    """Who saves ballots beside the loop; None: a save holds it up."""
    disk: DiskThread | None = None
    """Who writes events beside the loop; None: a thread of the election's own."""
    aside: Callable[[str], str] = lambda _election: ""
    """Why this node does not campaign in an election from its start on (W2); empty: it does."""
    reserve: Reserve | None = None
    """How many guards are kept ready; None: one for each command."""
    of_agents: OfAgents | None = None
    """Who hears what agents tell each other about all of their elections, from the first moment of each."""


OWN = Shared()
