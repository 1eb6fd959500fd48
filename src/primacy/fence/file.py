"""A durable high-water mark in a file, and a file that is changed only with a token not below the last.

The mark stands in a small file of its own, under a lock that the kernel frees when its holder is gone. It is raised,
and on the disk, *before* anything is done under the new token; judging and doing stand inside the same lock, so that
no older holder can come between. A mark that cannot be read is an error and never "no mark yet": that would let
everybody in.

All users of a mark must be on one machine: locks on network file systems are not to be trusted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from primacy.election.model import TOKEN_MAX
from primacy.errors import InUse, StaleToken, Unsafe, UsageError

WAIT_MS = 10_000
"""How long a lock is waited for by default. Whoever has it may have been frozen with it: then a person must decide."""
POLL_S = 0.005
MARK_BYTES_MAX = 128
SUM_BYTES = 8


class Mark:
    """The largest token seen, in a file.

    `admit` is the whole check, for gates of one's own; `admitted` keeps the lock while something is done.
    """

    def __init__(self, path: str | os.PathLike[str], *, wait_ms: int = WAIT_MS) -> None:
        self.path = Path(path)
        self.wait_ms = wait_ms

    def admit(self, token: int) -> None:
        """Raises `StaleToken` if a larger one was seen; else it is the mark from now on, whatever happens."""
        with self.admitted(token):
            pass

    @contextlib.contextmanager
    def admitted(self, token: int) -> Iterator[None]:
        """The same, and nobody else is admitted before the block is left."""
        check_token(token)
        handle = self._locked()
        try:
            mark = self._read(handle)
            if token < mark:
                raise StaleToken(str(self.path), token, mark)
            if token > mark:
                self._write(handle, token)
            yield
        finally:
            os.close(handle)

    def value(self) -> int:
        """The largest token seen; 0 for none."""
        handle = self._locked()
        try:
            return self._read(handle)
        finally:
            os.close(handle)

    def _locked(self) -> int:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + self.wait_ms / 1_000
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise InUse(
                            f"{self.path} was locked by another process for {self.wait_ms:,} ms; if that is a holder "
                            "that was stopped in the middle of its work, end it or let it go on"
                        ) from None
                    time.sleep(POLL_S)
                else:
                    return handle
        except BaseException:
            os.close(handle)
            raise

    def _read(self, handle: int) -> int:
        text = os.pread(handle, MARK_BYTES_MAX, 0)
        if not text:
            return 0
        number, _, found = text.decode("ascii", "replace").strip().partition(" ")
        if not number.isdigit() or found != _sum(int(number)):
            raise Unsafe(
                f"the mark in {self.path} cannot be read, so that nobody is let in: write the largest token that was "
                "ever used there with Mark(path).reset(token)"
            )
        return int(number)

    def reset(self, token: int) -> None:
        """An operator says what the mark is, after the file was lost or damaged."""
        check_token(token)
        handle = self._locked()
        try:
            self._write(handle, token)
        finally:
            os.close(handle)

    def _write(self, handle: int, token: int) -> None:
        """One short write of a fixed length: after a crash the old mark is there, or the new one, or a wrong sum."""
        is_new = os.fstat(handle).st_size == 0
        os.pwrite(handle, f"{token:020} {_sum(token)}\n".encode(), 0)
        os.fsync(handle)
        if is_new:
            sync_folder(self.path)


class File:
    """A file that holders write in turn: `append` and `replace` with a token not below the last.

    The mark is `NAME.fence` beside it. A reader needs nothing of this.
    """

    def __init__(self, path: str | os.PathLike[str], *, wait_ms: int = WAIT_MS) -> None:
        self.path = Path(path)
        self.mark = Mark(self.path.with_name(self.path.name + ".fence"), wait_ms=wait_ms)

    def append(self, data: bytes, token: int) -> None:
        """Durable when it returns. A part that a crash left behind is not taken away: write whole lines, with sums."""
        with self.mark.admitted(token), open(self.path, "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def replace(self, data: bytes, token: int) -> None:
        """All of it or nothing, durable when it returns."""
        with self.mark.admitted(token):
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            try:
                with open(handle, "wb") as file:
                    if self.path.exists():
                        os.fchmod(file.fileno(), self.path.stat().st_mode & 0o777)
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, self.path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)
                raise
            sync_folder(self.path)


def check_token(token: int) -> int:
    """The token, if it could be one."""
    if not isinstance(token, int) or isinstance(token, bool) or not 0 < token <= TOKEN_MAX:
        raise UsageError(f"a fencing token is a whole number from 1 to {TOKEN_MAX}, not {token!r:.40}")
    return token


def sync_folder(path: Path) -> None:
    """The name is durable, not only the content."""
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sum(token: int) -> str:
    return blake2b(str(token).encode(), digest_size=SUM_BYTES, person=b"primacy-fence").hexdigest()
