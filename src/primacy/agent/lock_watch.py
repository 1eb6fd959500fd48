"""Hears that the lock of this agent was removed, at the moment at which it is (G11).

Its own lock on the folder still keeps every agent of this version away. One of an earlier version knows the file only;
and a folder that was removed and made anew has locks of its own. So this agent ends before somebody can start another.

The kernel tells it (inotify), so that nothing is woken for it. Each watch is one of the user's 128 by default: an agent
with several elections has none. It looks when a ballot is saved, and before each start, as every agent does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from primacy.node.folder import Folder
from primacy.node.lock import AGENT
from primacy.store.inotify import Ear


class LockWatch:
    """On one folder, until it is closed. `lost` is told what happened and what to do."""

    def __init__(self, folder: Folder, lost: Callable[[str], None], *, alone: bool) -> None:
        """`alone`: this process has no other election."""
        self._folder = folder
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._is_ours, folder.is_ours = folder.is_ours, self._asked
        self._ear: Ear | None = None
        if alone:
            with contextlib.suppress(OSError):  # too many of them: there is the look with each ballot and each start
                self._ear = Ear(folder.path(AGENT))
                self._loop.add_reader(self._ear.descriptor, self._heard)
        self._loop.call_soon(self._asked)

    def _asked(self) -> bool:
        """For each look, of whatever thread: one that finds it lost is the last."""
        ours = self._is_ours()
        if not ours:
            self._loop.call_soon_threadsafe(self._say)
        return ours

    def _heard(self) -> None:
        assert self._ear is not None
        self._ear.touched()
        self._asked()

    def _say(self) -> None:
        self._lost(
            f"{self._folder.path(AGENT)} was removed or replaced while this agent ran, so that another agent could "
            "take its place: it has killed what it ran and ends. Locks free themselves when their holders end: take "
            "this folder from whatever clears it, then start the agent again"
        )

    def close(self) -> None:
        self._folder.is_ours = self._is_ours
        if self._ear is not None:
            self._loop.remove_reader(self._ear.descriptor)
            self._ear.close()
            self._ear = None
