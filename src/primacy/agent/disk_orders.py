"""What orders leave on a disk, done beside the loop: a disk that hangs holds up its own node's answer and nothing else.

One at a time, so that orders keep their order; whoever gives the next one meanwhile is asked to say it again. What is
once begun is carried through when the disk takes it, also if its answer was given up before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from primacy.control.disk_thread import DiskThread
from primacy.errors import Later, PrimacyError, Refused
from primacy.node.folder import Folder

Found = TypeVar("Found")
WITHIN_S = 2.0
"""How long an answer waits for the disk: less than another node, or a command, waits for the answer."""


class DiskOrders:
    """Of one node, or of one agent with several elections."""

    def __init__(self, whose: str, complain: Callable[[str], None]) -> None:
        """`whose`: the disk's, for a sentence. `complain`: told what the disk refused after the answer."""
        self.whose = whose
        self.complain = complain
        self._closed = False
        self._doing: asyncio.Task[Any] | None = None

    def refuse_if_busy(self) -> None:
        if self._doing is not None:
            raise Later(f"{self.whose} waits for its disk; say it again in a moment")

    async def change(
        self, folder: Folder, work: Callable[[Folder], None], late: str, then: Callable[[], None] | None = None
    ) -> None:
        """`then` is called in the loop once the disk has taken it. Raises what `work` raises, or `Refused`, with `late`
        for what becomes of it, if the disk takes too long."""
        self.refuse_if_busy()
        own = folder.again()  # the election may end, and close its folder, while the disk hangs
        await self._do(partial(_with, own, work), late, own.close, then)

    async def read(self, work: Callable[[], Found], late: str) -> Found:
        """Raises what `work` raises, or `Refused`, with `late`."""
        self.refuse_if_busy()
        return await self._do(work, late)

    async def _do(
        self,
        work: Callable[[], Found],
        late: str,
        otherwise: Callable[[], None] = lambda: None,
        then: Callable[[], None] | None = None,
    ) -> Found:
        thread = DiskThread("primacy-order")
        try:
            asked = asyncio.wrap_future(thread.ask(work))
        except Later:  # no thread is to be had now
            otherwise()
            raise
        thread.end()
        doing: asyncio.Task[Found] = asyncio.get_running_loop().create_task(self._finish(asked, then))
        self._doing = doing
        doing.add_done_callback(_seen)
        done, _ = await asyncio.wait({doing}, timeout=WITHIN_S)
        if not done:
            doing.add_done_callback(self._done_late)
            raise Refused(f"the disk of {self.whose} did not answer within {WITHIN_S:.0f} s: {late}")
        return doing.result()

    async def _finish(self, asked: asyncio.Future[Found], then: Callable[[], None] | None) -> Found:
        try:
            found = await asked
            if then is not None and not self._closed:
                then()
            return found
        finally:
            self._doing = None

    def _done_late(self, doing: asyncio.Task[Any]) -> None:
        if doing.cancelled() or self._closed:
            return
        try:
            doing.result()
        except PrimacyError as error:
            self.complain(str(error))

    def close(self) -> None:
        """What the disk takes from now on changes nothing here."""
        self._closed = True


def _seen(doing: asyncio.Task[Any]) -> None:
    """If nobody waits for the answer any more, its refusal is no fault of this code."""
    if not doing.cancelled():
        doing.exception()


def _with(own: Folder, work: Callable[[Folder], None]) -> None:
    try:
        work(own)
    finally:
        own.close()
