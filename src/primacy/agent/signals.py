"""Waiting for one's turn, and hearing that the end is wanted.

One agent per election and machine: whoever comes second says for whom it waits, and goes on after it. The signals that
ask an agent to end are heard from its first moment to its last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from primacy.node.lock import AgentLock
from primacy.node.log import Log

EXIT_INTERRUPTED = 130
TURN_LOOK_S = 0.5
"""How often a second agent looks whether it is its turn, should the end of the first not be seen at once."""
TURN_AGAIN_S = 0.01
"""The one that is named is gone: either it is our turn now, or another one is just about to write its name."""


class Ending(Protocol):
    """Whether the end is wanted, and by whom it is heard."""

    exit_code: int | None
    event: asyncio.Event
    told: Callable[[int], None] | None
    """Told with each request to end how many there were."""


class Notified(Protocol):
    """Who is told how this node is: systemd, or nobody."""

    def ready(self, status: str) -> None: ...
    def status(self, status: str) -> None: ...
    def stopping(self, within_ms: int) -> None: ...
    def close(self) -> None: ...


async def take_turn(lock: AgentLock, what: str, log: Log, signals: Ending, notifier: Notified) -> bool:
    """One agent per election and machine: whoever comes second says for whom it waits, and goes on after it.

    Returns whether it waited: then its file may be another one than at its start.
    """
    named = -1
    while not await asyncio.to_thread(lock.take) and signals.exit_code is None:
        holder = lock.holder()
        if holder.pid != named:
            named = holder.pid
            waits = f"waits for {holder}, which holds {what} on this machine; goes on when it ends"
            log.info(waits, holder=holder.pid)
            notifier.ready(waits)
        await _end_of(holder.pid, signals)
    return named >= 0


async def _end_of(pid: int, signals: Ending) -> None:
    """Until that process ends, a signal comes, or half a second has passed; if it is gone already, a moment."""
    loop = asyncio.get_running_loop()
    handle, wait_s = -1, TURN_LOOK_S
    try:
        handle = os.pidfd_open(pid) if pid > 0 else -1
    except OSError:
        wait_s = TURN_AGAIN_S
    if handle >= 0:
        loop.add_reader(handle, signals.event.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await signals.event.wait()
    finally:
        if handle >= 0:
            loop.remove_reader(handle)
            os.close(handle)
        signals.event.clear()


class EndRequest:
    """The same for one election of several, which may end while the others go on."""

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self.times = 0
        self.event = asyncio.Event()
        self.told: Callable[[int], None] | None = None

    def ask(self) -> None:
        """Once: in order. Again: at once."""
        self.times += 1
        self.exit_code = 0
        self.event.set()
        if self.told is not None:
            self.told(self.times)


class EndSignals:
    """The signals that ask the agent to end: Ctrl-C gives 130, TERM and HUP give 0."""

    def __init__(self, reload: Callable[[], None] | None = None) -> None:
        """`reload`: what HUP means instead."""
        self.exit_code: int | None = None
        self.times = 0
        self.event = asyncio.Event()
        self.told: Callable[[int], None] | None = None
        """Told with each of them how many there were."""
        loop = asyncio.get_running_loop()
        self.numbers = [signal.SIGINT, signal.SIGTERM]
        if reload is not None or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            self.numbers.append(signal.SIGHUP)
        for number in self.numbers:
            loop.add_signal_handler(number, self._hear, number)
        if reload is not None:
            loop.add_signal_handler(signal.SIGHUP, reload)
        loop.set_default_executor(ThreadPoolExecutor(initializer=self.block, thread_name_prefix="primacy"))
        # a storm of signals fills the loop's pipe: the interpreter would complain from inside its handler, and may hang
        signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)

    def _hear(self, number: int) -> None:
        self.times += 1
        if self.exit_code is None:
            self.exit_code = EXIT_INTERRUPTED if number == signal.SIGINT else 0
        self.event.set()
        if self.told is not None:
            self.told(self.times)

    async def settle(self) -> None:
        """The work is over and the exit code stands: from here to the end of the process no signal changes it.

        They are blocked, not only unheard: the loop gives them back their deadly default when it closes. No other
        thread takes them either: a worker has them blocked from its beginning, for it may live on for a moment after
        it was waited for, and whatever is started from here on inherits it.
        """
        self.told = None
        self.block()
        await asyncio.get_running_loop().shutdown_default_executor()

    def block(self) -> None:
        """In the thread that calls this: signals are heard by the loop's alone."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)
