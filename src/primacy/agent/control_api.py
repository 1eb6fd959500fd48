"""The agent's side of the control API: binds early, serves a little later, shows the node as it is.

The port is taken before anything starts, so that a taken one is said at once; aiohttp is loaded beside the running
node, in a thread, for loading it takes as long as everything else of a start. Who asks meanwhile waits in the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from primacy.control import ADDRESS_FILE, AgentPort
from primacy.control.eventlog import EventLog
from primacy.control.key import own_key, write_whole
from primacy.control.tls import fingerprint_of, server_context
from primacy.errors import CannotHere, InUse
from primacy.node.folder import Folder
from primacy.settings.schema import Control, Settings

if TYPE_CHECKING:
    from primacy.control.control_server import ControlServer, PublicServer
    from primacy.control.loopback import LoopbackServer

ANY = "127.0.0.1:0"
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where a command of this machine finds a node that listens on all addresses."""
WAITING_MAX = 16
"""Connections that wait to be taken."""


class ControlSockets(ABC):
    """Where a control API is found, and when it is served."""

    def __init__(self, settings: Settings, folder: Folder, node: str, complain: Callable[[str], None]) -> None:
        self.settings = settings
        self.folder = folder
        self.node = node
        self.complain = complain
        self.key = own_key(folder)
        self.address = ""
        self.said: dict[str, Any] = {}
        """What commands of this machine are told."""
        self.tls = server_context(settings)
        self._socket: socket.socket | None = None
        self._public: socket.socket | None = None
        self._serving: asyncio.Task[list[LoopbackServer]] | None = None

    @abstractmethod
    async def _servers(self, host: str) -> tuple[LoopbackServer, LoopbackServer]:
        """For the socket of this machine, and for the one that anybody may ask."""

    def bind(self) -> None:
        """Takes the port and tells the commands of this machine where it is. Raises `InUse`.

        Without a file it is any free one; so it is if the settings leave it at the default and that is taken, for
        several nodes may share a machine. A port that was chosen is that port.
        """
        wanted = self.settings.control.listen if self.settings.source else ANY
        is_default = wanted == Control().listen
        self._socket = listening("control.listen", wanted, else_any=is_default)
        if self.settings.control.public:
            self._public = listening("control.public", self.settings.control.public)
        host, port = self._socket.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.said = {"host": ANYWHERE.get(host, host), "port": port, "pid": os.getpid(), "node": self.node}
        if self.tls is not None:
            self.said["certificate"] = fingerprint_of(self.settings)
        write_address(self.folder, self.said)

    def serve(self) -> None:
        """From now on, beside the node's own work."""
        self._serving = asyncio.get_running_loop().create_task(self._serve())
        self._serving.add_done_callback(self._served)

    async def close(self) -> None:
        if self._serving is not None:
            with contextlib.suppress(Exception):
                for server in await self._serving:
                    await server.close()
        if self._public is not None:
            self._public.close()
        if self._socket is not None:
            self._socket.close()
            with contextlib.suppress(OSError):
                os.unlink(ADDRESS_FILE, dir_fd=self.folder.handle)

    async def _serve(self) -> list[LoopbackServer]:
        assert self._socket is not None, "serve before bind"
        own, open_ = await self._servers(self._socket.getsockname()[0])
        await own.start(self._socket, self.tls)
        if self._public is None:
            return [own]
        await open_.start(self._public)
        return [own, open_]

    def _served(self, task: asyncio.Task[list[LoopbackServer]]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.complain(f"the control API could not be started: {type(fault).__name__}: {fault}")


class ControlApi(ControlSockets):
    """One node's control API."""

    def __init__(self, settings: Settings, folder: Folder, node: str, agent: AgentPort, events: EventLog) -> None:
        super().__init__(settings, folder, node, agent.complain)
        self.agent = agent
        self.events = events

    async def _servers(self, host: str) -> tuple[LoopbackServer, LoopbackServer]:
        control, public = await asyncio.to_thread(_load)
        return control(self.agent, self.events, self.key, host), public(self.agent)


def write_address(folder: Folder, said: dict[str, Any]) -> None:
    """Where the commands of this machine find the node. Raises `CannotHere`."""
    try:
        write_whole(folder, ADDRESS_FILE, json.dumps(said).encode())
    except OSError as error:
        raise CannotHere(f"{folder.path(ADDRESS_FILE)} cannot be written: {error.strerror}") from None


def _load() -> tuple[type[ControlServer], type[PublicServer]]:
    from primacy.control.control_server import ControlServer, PublicServer  # noqa: PLC0415

    return ControlServer, PublicServer


def listening(name: str, address: str, *, else_any: bool = False) -> socket.socket:
    """`name`: the setting, for `InUse`. `else_any`: if the port is taken, another one does."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family, backlog=WAITING_MAX)
    except OSError as error:
        if else_any:
            return socket.create_server((host, 0), family=family, backlog=WAITING_MAX)
        raise InUse(
            f"{name} = {address}: {error.strerror}; end what has it (ss -ltnp shows it), or choose another"
        ) from None
