"""Where a node keeps what it must not forget: STATE/CLUSTER/ELECTION/, with `ballot`, `agent.lock` and `run.lock`.

In a cluster of several, `node` besides: whose ballot it is. While the node is paused, `paused`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping

from primacy.errors import CannotHere, Refused, Unsafe
from primacy.node.folder import Folder
from primacy.settings.schema import Settings

SYSTEM = "/var/lib/primacy"
VARIABLE = "PRIMACY_STATE_DIR"
"""Names the state folder where nobody else does: for a container, and for tests."""
USERS = ".local/state"
AGENT = ".agent"
"""Beside the folders of the elections."""
NODE = "node"
PAUSED = "paused"
NODE_BYTES_MAX = 256


def state_root(settings: Settings, environment: Mapping[str, str], uid: int) -> str:
    """The settings' folder, counted from their file; else the environment's, the system's (root), or the user's."""
    if settings.state_dir:
        return os.path.abspath(os.path.join(os.path.dirname(settings.source), settings.state_dir))
    named = environment.get(VARIABLE, "")
    if named and not os.path.isabs(named):
        raise CannotHere(f"{VARIABLE} = {named[:80]}: the whole path of a folder, from / on, is needed")
    if named:
        return named
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
    return _open(settings, environment, uid, settings.election.name)


def agent_folder(settings: Settings, environment: Mapping[str, str], uid: int) -> Folder:
    """Of an agent with several elections: its lock, its key, and where it is found. No election has such a name."""
    return _open(settings, environment, uid, AGENT)


def is_elsewhere(settings: Settings, before: Settings, environment: Mapping[str, str], uid: int) -> bool:
    """These settings mean another folder than those before."""
    one, other = (
        (state_root(each, environment, uid), each.cluster.name, each.election.name) for each in (settings, before)
    )
    return one != other


def _open(settings: Settings, environment: Mapping[str, str], uid: int, name: str) -> Folder:
    root = Folder(state_root(settings, environment, uid))
    try:
        cluster = Folder(root.path(settings.cluster.name))
    finally:
        root.close()
    try:
        return Folder(cluster.path(name))
    finally:
        cluster.close()


def claim(folder: Folder, node: str) -> None:
    """Whose ballot this is. Under another id its promises would be given a second time (Q1)."""
    owner = owner_of(folder)
    if not owner:
        keep(folder, NODE, f"{node}\n".encode())
    elif owner != node:
        raise Unsafe(
            f"the state folder {folder.where} is that of node {owner}, and this is node {node}: what {owner} promised "
            "must not be forgotten. Start it with the id that it had, or give this one a folder of its own with "
            "--state-dir"
        )


def owner_of(folder: Folder) -> str:
    """The node that has claimed it; empty if none has."""
    try:
        return folder.read(NODE, NODE_BYTES_MAX).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""


def is_paused(folder: Folder) -> bool:
    """Whether an operator has paused this node, now or before an earlier end of it. That the file is there says it."""
    try:
        os.stat(PAUSED, dir_fd=folder.handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def keep_pause(folder: Folder) -> None:
    """The pause outlives the agent. Raises `Refused` if the disk does not take it."""
    try:
        keep(folder, PAUSED, b"primacy resume ends this\n")
    except OSError as error:
        raise Refused(
            f"the node is paused, but only until its next start: {folder.path(PAUSED)}: {error.strerror}"
        ) from None


def forget_pause(folder: Folder) -> None:
    """Raises `Refused` if the file cannot be removed: the next start would be paused again."""
    try:
        os.unlink(PAUSED, dir_fd=folder.handle)
        folder.sync()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Refused(f"the node stays paused: {folder.path(PAUSED)} cannot be removed: {error.strerror}") from None


def keep(folder: Folder, name: str, data: bytes) -> None:
    """A small file, exchanged as a whole, and durable when this returns."""
    handle = folder.create(name + ".new")
    try:
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    folder.rename(name + ".new", name)
    folder.sync()


@contextlib.contextmanager
def room_in(folder: Folder) -> Iterator[None]:
    """A disk without room for what an agent writes first is said with the folder's name."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise CannotHere(
            f"the state folder {folder.where} cannot be written: {error.strerror}; make room on that disk, or name "
            "another folder with --state-dir"
        ) from None
