"""Where a node keeps what it must not forget: STATE/CLUSTER/ELECTION/, with `ballot`, `agent.lock` and `run.lock`.

In a cluster of several, `node` besides: whose ballot it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from primacy.errors import CannotHere, Unsafe
from primacy.node.folder import Folder
from primacy.settings.schema import Settings

SYSTEM = "/var/lib/primacy"
USERS = ".local/state"
NODE = "node"
NODE_BYTES_MAX = 256


def state_root(settings: Settings, environment: Mapping[str, str], uid: int) -> str:
    """The settings' folder, counted from their file; else the system's (root), else the user's."""
    if settings.state_dir:
        return os.path.abspath(os.path.join(os.path.dirname(settings.source), settings.state_dir))
    if uid == 0:
        return SYSTEM
    base = environment.get("XDG_STATE_HOME", "")
    if os.path.isabs(base):
        return os.path.join(base, "primacy")
    home = environment.get("HOME", "")
    if not os.path.isabs(home):
        raise CannotHere("there is no home folder to keep the state in; name one with --state-dir")
    return os.path.join(home, USERS, "primacy")


def open_state(settings: Settings, environment: Mapping[str, str], uid: int) -> Folder:
    """The folder of this election, private from the state folder down."""
    root = Folder(state_root(settings, environment, uid))
    try:
        cluster = Folder(root.path(settings.cluster.name))
    finally:
        root.close()
    try:
        return Folder(cluster.path(settings.election.name))
    finally:
        cluster.close()


def claim(folder: Folder, node: str) -> None:
    """Whose ballot this is. Under another id its promises would be given a second time (Q1)."""
    try:
        owner = folder.read(NODE, NODE_BYTES_MAX).decode("ascii", "replace").strip()
    except FileNotFoundError:
        owner = ""
    if not owner:
        handle = folder.create(NODE + ".new")
        try:
            os.write(handle, f"{node}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        folder.rename(NODE + ".new", NODE)
        folder.sync()
    elif owner != node:
        raise Unsafe(
            f"the state folder {folder.where} is that of node {owner}, and this is node {node}: what {owner} promised "
            "must not be forgotten. Start it with the id that it had, or give this one a folder of its own with "
            "--state-dir"
        )
