"""The word to systemd, heard on a real datagram socket: ready, status, alive, stopping; and nothing for others."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.agent.notify import Notifier
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=340)

WITHIN_S = 60.0
HEARTBEATS = 10
WATCHDOG_US = 400_000
"""The kernel keeps ten datagrams for one who does not read (`net.unix.max_dgram_qlen`), and the node drops what finds
no room: so often it says that it lives, that a reader which stands still for a second loses nothing."""
CONTRIB = Path(__file__).parents[2] / "contrib"


class Systemd:
    """The other end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(0.1)
        self.said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        """All the time, whatever the test does meanwhile: nothing may find the queue of the kernel full."""
        while not self.over.is_set():
            with contextlib.suppress(TimeoutError):
                self.said.put(self.socket.recv(4096))

    def until(self, line: str) -> list[str]:
        """All lines up to the first that begins so."""
        heard: list[str] = []
        last = time.monotonic() + WITHIN_S
        while time.monotonic() < last:
            with contextlib.suppress(queue.Empty):
                heard += self.said.get(timeout=WITHIN_S).decode().splitlines()
            if any(each.startswith(line) for each in heard):
                return heard
        raise AssertionError(f"never came: {line}\n{heard}")

    def close(self) -> None:
        self.over.set()
        self.thread.join()
        self.socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    made = Systemd(str(tmp_path / "notify") if request.param == "path" else f"@primacy-test-{os.getpid()}")
    yield made
    made.close()


def test_a_node_tells_systemd_what_it_does_and_the_command_cannot(systemd: Systemd, tmp_path: Path) -> None:
    script = "env | grep -c 'NOTIFY\\|WATCHDOG' > env; exec sleep 300"
    call = [sys.executable, "-m", "primacy.cli.main", "run", "--state-dir", str(tmp_path / "s"), "--stop-ms", "120000"]
    told = {**os.environ, "NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": str(WATCHDOG_US)}
    began = time.monotonic()
    with (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen([*call, "--", "sh", "-c", script], env=told, stderr=err, cwd=tmp_path)
    try:
        heard = systemd.until("STATUS=leads term 1; the command runs, process ")
        assert heard.index("READY=1") < len(heard) - 1
        heartbeats = heard.count("WATCHDOG=1")
        while heartbeats < HEARTBEATS:
            heartbeats += systemd.until("WATCHDOG=1").count("WATCHDOG=1")
        every_s = WATCHDOG_US / 2 / 1e6
        assert time.monotonic() - began >= (heartbeats - 1) * every_s * 0.5  # at half the interval, not in a burst
        wrote = tmp_path / "env"
        wait_until(lambda: wrote.exists() and wrote.read_text() == "0\n", "what the command sees", WITHIN_S)
        process.send_signal(signal.SIGTERM)
        assert "EXTEND_TIMEOUT_USEC=130000000" in systemd.until("STOPPING=1")
        assert process.wait(WITHIN_S) == 0
    finally:
        process.kill()
        process.wait(WITHIN_S)


def test_one_that_waits_for_its_turn_is_ready_and_says_for_whom(systemd: Systemd, tmp_path: Path) -> None:
    call = [sys.executable, "-m", "primacy.cli.main", "run", "--state-dir", str(tmp_path / "s"), "--", "sleep", "300"]
    with (tmp_path / "err").open("wb") as err:
        first = subprocess.Popen(call, stderr=err, cwd=tmp_path)
        processes = [first]
        try:
            while b"runs" not in (tmp_path / "err").read_bytes():
                assert first.poll() is None, (tmp_path / "err").read_text()
                time.sleep(0.01)
            second = subprocess.Popen(
                call, stderr=err, cwd=tmp_path, env={**os.environ, "NOTIFY_SOCKET": systemd.address}
            )
            processes.append(second)
            heard = systemd.until("STATUS=waits for ")
            assert "READY=1" in heard
            assert [line for line in heard if line.startswith("STATUS=waits for ") and str(first.pid) in line]
            first.terminate()
            systemd.until("STATUS=leads term ")
        finally:
            for process in processes:
                process.terminate()
                process.wait(WITHIN_S)


def test_without_systemd_nothing_is_said_and_with_nonsense_neither() -> None:
    for around in ({}, {"NOTIFY_SOCKET": "vsock:2:1234"}, {"NOTIFY_SOCKET": "/nowhere/at/all"}, {"WATCHDOG_USEC": "x"}):
        environment = {"HUE": "red", **around}
        notifier = Notifier(environment, 4711)
        assert environment == {"HUE": "red"}
        notifier.ready("up")
        notifier.status("busy")
        notifier.stopping(1)
        notifier.close()
    assert Notifier({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "4711"}, 4711).watchdog_s == 1.0
    assert Notifier({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "4712"}, 4711).watchdog_s == 0.0


def test_a_status_is_one_line_and_said_once(systemd: Systemd) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": systemd.address}, 1)
    notifier.status("waits\nREADY=1" + "x" * 500)
    notifier.status("waits\nREADY=1" + "x" * 500)
    notifier.stopping(5)
    notifier.close()
    heard = systemd.until("STOPPING=1")
    assert [line.partition("=")[0] for line in heard] == ["STATUS", "STOPPING", "EXTEND_TIMEOUT_USEC"]
    assert len(heard[0]) == len("STATUS=") + 200


def test_the_example_unit_has_the_lines_that_must_be_there() -> None:
    lines = {
        line for line in (CONTRIB / "primacy.service").read_text().splitlines() if line and not line.startswith("#")
    }
    assert lines >= {
        "Type=notify",
        "NotifyAccess=main",
        "KillMode=process",
        "Restart=always",
        "StateDirectory=primacy",
        "StateDirectoryMode=0700",
        "RuntimeDirectory=primacy",
        "TimeoutStopSec=30",
        "WatchdogSec=30",
        "WatchdogSignal=SIGKILL",
        "Delegate=no",
    }
