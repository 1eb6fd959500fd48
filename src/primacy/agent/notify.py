"""Tells systemd how this node is: ready, what it does, alive, stopping. The protocol of sd_notify, by hand.

Datagrams to the socket that NOTIFY_SOCKET names, at most a few per change; one that cannot be sent is dropped, for a
supervisor that is away must not stop anything. What was meant for the agent alone is taken out of the environment, so
that nothing that it starts can speak in its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import MutableMapping

OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
STATUS_CHARS_MAX = 200
US_PER_MS = 1_000


class Notifier:
    """Speaks to systemd if it asked for that; otherwise does nothing."""

    def __init__(self, environment: MutableMapping[str, str], pid: int) -> None:
        address, watchdog, whose = (environment.pop(name, "") for name in OURS)
        self.watchdog_s = _interval_s(watchdog, whose, pid)
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._status = ""
        if address[:1] in ("/", "@"):
            self._address = "\0" + address[1:] if address.startswith("@") else address
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def ready(self, status: str) -> None:
        """The node is up, or waits for its turn. From now on the loop itself says that it lives, at half the interval.

        One that waits for another agent of this machine is ready, too: it may wait for days, and is not failing.
        """
        self._status = status
        self._send("READY=1", f"STATUS={_line(status)}")
        if self.watchdog_s and self._timer is None:
            self._alive()

    def status(self, status: str) -> None:
        if status != self._status:
            self._status = status
            self._send(f"STATUS={_line(status)}")

    def stopping(self, within_ms: int) -> None:
        """A planned stop may take longer than systemd would wait by itself."""
        self._send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={within_ms * US_PER_MS}")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _alive(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(self.watchdog_s / 2, self._alive)

    def _send(self, *lines: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), self._address)


def _interval_s(watchdog_us: str, whose: str, pid: int) -> float:
    """0: nobody asked for it, or somebody else was."""
    if not watchdog_us.isdigit() or (whose and whose != str(pid)):
        return 0.0
    return int(watchdog_us) / 1_000_000


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:STATUS_CHARS_MAX]
