"""The largest token that this machine has seen in an election, for users of the library (T2).

A process of the library has no state folder unless it is given one; then what it knew dies with it, and the row itself,
and the wall clock behind it, are what keeps tokens growing. With a folder, all processes of this machine share one mark
per election. It is raised before a body begins; a process that finds it above its own token learns that one, begins
nothing, and takes the lease anew with a larger one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from primacy.election.model import Ballot
from primacy.errors import CannotHere, InUse, PrimacyError, StaleToken
from primacy.fence.file import Mark
from primacy.node.ballot import Memory

WAIT_MS = 500
"""How long a neighbour's write of a few bytes is waited for. Longer would cost the renewals of all leases here."""


class TokenFile:
    """The driver's port `Durable`, of which a lease needs one number."""

    def __init__(self, folder: str | os.PathLike[str], table: str, name: str, learn: Callable[[int], None]) -> None:
        self._folder = folder
        self._mark = Mark(os.path.join(folder, f"{table}.{name.replace('/', '%')}.token"), wait_ms=WAIT_MS)
        self._learn = learn

    def known(self) -> int:
        """The largest token seen; 0 for none. Raises `Unsafe` if it cannot be read: it is not taken for none."""
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
            return self._mark.value()
        except OSError as error:
            raise CannotHere(f"state_dir = {os.fspath(self._folder)}: {error.strerror}") from None

    def load(self) -> Memory:
        return Memory(None)

    def save(self, ballot: Ballot) -> None:
        """The mark is at least this from now on; `OSError` if that is not certain, or if it is above."""
        try:
            self._mark.admit(ballot.token_max)
        except StaleToken as error:
            self._learn(error.mark)
            raise OSError(errno.ESTALE, f"this machine has seen a larger token, {error.mark}") from None
        except InUse:
            raise OSError(errno.EBUSY, "its file is locked by another process") from None
        except PrimacyError as error:
            raise OSError(errno.EIO, str(error)) from None
