"""The folders of lease files: one for each election of a machine whose agent runs a command.

An agent holds the lock in its folder for as long as it lives, and removes the folder at its end. What a killed agent
left is removed by the next one of the same user that starts, whatever its state folder is: if the lock is free, and the
hold that stands in the lease file is over, for until then the guard may let the command run. A folder without a lock
is left alone: it is of an earlier version, or just being made. No link is followed.

Whoever has the lock of a folder looks whether it still is the lock of that folder. Who removes one takes the lock away
last, and then the folder only if it is empty: what an agent makes there meanwhile stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import time
import weakref
from collections.abc import Iterator, Mapping

import msgspec

from primacy.node.clock import Clock

BELOW = "primacy"
NAME, NEW = "lease", "lease.new"
"""The file, and what is exchanged for it."""
LOCK = "lock"
PRIVATE = 0o600
"""Nobody else can open the lock, and so nobody else can hold it."""
ENTERED = 0o711
"""Others may open what they know the name of, and see nothing else."""
MARK_BYTES = 8
MARK = re.compile(rf"[0-9a-f]{{{2 * MARK_BYTES}}}")
LEASE_BYTES_MAX = 65_536
TRIES, BETWEEN_S = 20, 0.01
"""For a lock that somebody holds who removes what was left: a few calls long. This holds up the loop of the agent."""
OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class LeaseFolder:
    """One folder. Its lock is ours until it is closed, or until nobody knows this any more."""

    def __init__(self, path: str, lock: int = -1) -> None:
        """Without a lock it is the state folder, which is not ours to remove."""
        self.path = path
        self._close_lock = None if lock < 0 else weakref.finalize(self, os.close, lock)

    def close(self) -> None:
        if self._close_lock is None or not self._close_lock.alive:
            return
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.path, LOCK))
            os.rmdir(self.path)
        self._close_lock()


def lease_folder(state: str, environment: Mapping[str, str], uid: int) -> LeaseFolder:
    """A folder for the lease of the election whose state is kept in `state`, made if need be, and locked.

    The folder that a service was given for this (RUNTIME_DIRECTORY, as systemd says it), the system's folder for what
    lives until the next boot (root), or the user's; if none can be used, the state folder itself, which the command can
    enter only if it runs as the same user.

    In a container the system's folder is often on a disk. A write there, several a second, costs more than all else
    that an idle node does, and holds it up while the disk is busy: shared memory is preferred then.
    """
    found = (_made(base, state, uid) for base in _bases(environment, uid))
    return next((folder for folder in found if folder is not None), LeaseFolder(state))


def _bases(environment: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """The folders in which one can be, the best first."""
    given = environment.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if given or uid:
        return (given or environment.get("XDG_RUNTIME_DIR", ""),)
    return ("/run", "/dev/shm") if _in_memory("/run") or not _in_memory("/dev/shm") else ("/dev/shm", "/run")


def _in_memory(folder: str) -> bool:
    """Whether it is on a file system that has no disk."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            return any(line.split()[1:3] == [folder, "tmpfs"] for line in file)
    except OSError:
        return False


def _made(base: str, state: str, uid: int) -> LeaseFolder | None:
    """The folder in this one, that only this user can change; None if there can be none."""
    if not os.path.isabs(base) or not os.path.isdir(base):
        return None
    mark = hashlib.blake2b(state.encode("utf-8", "surrogateescape"), digest_size=MARK_BYTES).hexdigest()
    above = os.path.join(base, BELOW)
    where = os.path.join(above, mark)
    try:
        for _ in range(TRIES):
            with contextlib.suppress(FileNotFoundError):  # it is being removed, as what somebody left
                for folder in (above, where):
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, ENTERED)
                        os.chmod(folder, ENTERED)
                    if not _is_ours(os.lstat(folder), uid):
                        return None
                if (lock := _locked(os.path.join(where, LOCK), os.O_CREAT)) >= 0:
                    return LeaseFolder(where, lock)
            time.sleep(BETWEEN_S)
    except OSError:
        pass
    return None


def _is_ours(found: os.stat_result, uid: int) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o022


def _locked(path: str, flags: int = 0, folder: int | None = None) -> int:
    """The lock, held; -1 if somebody else has it, or took its name away."""
    lock = os.open(path, os.O_RDWR | flags | OPEN, PRIVATE, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(path, dir_fd=folder, follow_symlinks=False)):
            return lock
    except BlockingIOError:
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return -1


# --- what killed agents left ------------------------------------------------------------------------------------------


def sweep(environment: Mapping[str, str], uid: int, clock: Clock) -> None:
    """Removes what killed agents of this user left. What cannot be removed is left for the next start."""
    for base in _bases(environment, uid):
        if os.path.isabs(base):
            with contextlib.suppress(OSError), _opened(os.path.join(base, BELOW), uid) as above:
                for name in os.listdir(above):
                    if MARK.fullmatch(name):
                        with contextlib.suppress(OSError):
                            _remove_if_over(name, above, uid, clock)


@contextlib.contextmanager
def _opened(path: str, uid: int, above: int | None = None) -> Iterator[int]:
    """A folder that only this user can change. Raises `OSError` if it is not."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | OPEN, dir_fd=above)
    try:
        if not _is_ours(os.fstat(handle), uid):
            raise PermissionError(path)
        yield handle
    finally:
        os.close(handle)


def _remove_if_over(name: str, above: int, uid: int, clock: Clock) -> None:
    with _opened(name, uid, above) as folder:
        lock = _locked(LOCK, folder=folder)
        if lock < 0:
            return
        try:
            if not _is_over(folder, clock):
                return
            for part in (NAME, NEW, LOCK):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=folder)
            os.rmdir(name, dir_fd=above)
        finally:
            os.close(lock)


def _is_over(folder: int, clock: Clock) -> bool:
    """Nobody has a hold by what stands there. A file that cannot be read is not ours to judge."""
    try:
        handle = os.open(NAME, os.O_RDONLY | OPEN, dir_fd=folder)
    except FileNotFoundError:
        return True
    with open(handle, "rb") as file:
        text = file.read(LEASE_BYTES_MAX)
    try:
        return int(msgspec.json.decode(text)["valid_until_boottime_ms"]) < clock.now_ms()
    except (ValueError, TypeError, KeyError, msgspec.MsgspecError, RecursionError):
        return False
