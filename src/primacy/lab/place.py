"""The folder of a lab: one lab at a time, begun anew each time, and nothing of anybody else's is touched."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import string
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from primacy.errors import CannotHere, InUse, UsageError
from primacy.node.folder import Folder
from primacy.node.lock import AgentLock, Holder

CLUSTER = "lab"
FILE = "primacy.yaml"
SECRET = "secret"
SECRET_BYTES = 32
NODES, LOGS, RUN, STORE = "nodes", "logs", "run", "store"
LOCK = "agent.lock"
"""As in a node's folder: who holds it, holds the lab. It is also how a folder is known to be a lab's."""
BALLOT = "ballot"
"""Where this stands a node keeps what it must not forget."""
TEMPORARY = "temporary"
"""Stands in the folder of a demo that removes it at its end (`temporary.py`)."""
MADE = (FILE, SECRET, NODES, LOGS, RUN, STORE, "events.jsonl", "control.json", "control.key", TEMPORARY)
"""What a lab makes, and what the next one in the same folder removes."""
NODES_MAX = 25


def default_folder() -> Path:
    """One per user, where things may be lost at the next boot."""
    return Path(tempfile.gettempdir()) / f"primacy-lab-{os.geteuid()}"


def names_of(count: int) -> tuple[str, ...]:
    if not 1 <= count <= NODES_MAX:
        raise UsageError(f"--nodes {count}: from 1 to {NODES_MAX}")
    return tuple(string.ascii_lowercase[:count])


class LabFolder:
    """The folder, held by its lock."""

    def __init__(self, where: Path) -> None:
        """Raises `InUse` if another lab has it, `UsageError` if something else is there."""
        if where.is_dir() and not (where / LOCK).exists() and any(where.iterdir()):
            raise UsageError(f"--dir {where}: there are files in it, and it is no lab's; name an empty or a new folder")
        if (where / BALLOT).exists():
            raise UsageError(f"--dir {where}: this is the state folder of a node, and no lab's; name another one")
        try:
            self.folder = Folder(str(where))
        except CannotHere as error:
            raise CannotHere(str(error).replace("state folder", "lab's folder").replace("state-dir", "dir")) from None
        self.lock = AgentLock(self.folder)
        if not self.lock.take():
            holder = self.lock.holder()
            self.close()
            raise InUse(f"a lab is up in {where}, by {holder}; end it with: primacy lab down --dir {where}")
        self.path = Path(self.folder.where)
        for name in MADE:
            old = self.path / name
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)

    def close(self) -> None:
        self.lock.close()
        self.folder.close()

    def write(
        self,
        ports: Mapping[str, int],
        election: Mapping[str, object],
        command: Sequence[str],
        more: Mapping[str, object],
    ) -> None:
        """The file of the cluster, and its secret. `more`: sections that replace or join ours."""
        document: dict[str, object] = {
            "cluster": {
                "name": CLUSTER,
                "secret_file": SECRET,
                "first_start": "auto",
                "manager": {
                    "type": "static",
                    "nodes": {name: {"addr": f"127.0.0.1:{port}"} for name, port in ports.items()},
                },
            },
            "election": dict(election),
            "run": {"command": list(command), "require_containment": "any"},  # a trial runs everywhere, and says it
            "control": {"lab": True},
        }
        for section, values in more.items():
            ours = document.get(section)
            document[section] = {**ours, **values} if isinstance(ours, dict) and isinstance(values, dict) else values
        (self.path / FILE).write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        handle = self.folder.create(SECRET)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(SECRET_BYTES) + "\n")
        for name in (LOGS, RUN, STORE):
            (self.path / name).mkdir()

    def state_dir(self, node: str) -> Path:
        """What `primacy run --state-dir` is told."""
        return self.path / NODES / node

    def own_folder(self, node: str, election: str = "main") -> Path:
        """Where that node keeps its ballot, its address and its events."""
        return self.state_dir(node) / CLUSTER / election

    @property
    def lease_file(self) -> Path:
        """Where the lease is kept, in a lab of that strategy: a SQLite file, for all its nodes are on this machine."""
        return self.path / STORE / "leases.db"

    def log(self, name: str) -> Path:
        return self.path / LOGS / f"{name}.log"


def holder_of(where: Path) -> Holder | None:
    """Who holds the lab in this folder; None if nobody does."""
    if not (where / LOCK).exists():
        return None
    folder = Folder(str(where))
    try:
        lock = AgentLock(folder)
        try:
            return None if lock.take() else lock.holder()
        finally:
            lock.close()
    finally:
        folder.close()


def free_ports(count: int, kind: socket.SocketKind) -> list[int]:
    """Ports of loopback that are free now; held together, so that they differ."""
    held = [socket.socket(socket.AF_INET, kind) for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()
