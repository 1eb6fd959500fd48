"""The peers: etcd with `etcdctl lock`, and PySyncObj. On free ports of loopback, in folders of their own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.ports import free_ports

from bench import processes
from bench.watch import Doorbell, Line, Watch, rings

ROOT = Path(__file__).parents[1]
UNPACKED = ROOT / ".venv" / "peers" / "usr" / "bin"
"""Where `make peers` unpacks Debian's packages: nothing is installed, so that no service is ever started."""
FAST = ("--heartbeat-interval=50", "--election-timeout=250")
NODES = 3
UP_S = 30.0
QUEUED_S = 0.3
"""Until a waiting `etcdctl lock` stands in line."""


def program(name: str) -> str:
    """The path of one of etcd's programs; empty if it is not here."""
    return str(UNPACKED / name) if (UNPACKED / name).exists() else shutil.which(name) or ""


def missing() -> str:
    """Why the peers cannot run here, as a sentence; empty if they can."""
    if not program("etcd") or not program("etcdctl"):
        return "etcd is not here: make peers"
    if importlib.util.find_spec("pysyncobj") is None:
        return "PySyncObj is not here: make peers"
    return ""


class Etcd:
    """Three servers; `fast` has the shortest times that it bears here, without it they are the default."""

    def __init__(self, watch: Watch, folder: Path, *, fast: bool) -> None:
        self.folder = folder / ("etcd-fast" if fast else "etcd")
        self.folder.mkdir(mode=0o700)
        self.watch = watch
        self.client_ports = free_ports(2 * NODES)
        peer_ports = self.client_ports[NODES:]
        del self.client_ports[NODES:]
        self.endpoints = ",".join(f"http://127.0.0.1:{port}" for port in self.client_ports)
        together = ",".join(f"n{i}=http://127.0.0.1:{port}" for i, port in enumerate(peer_ports))
        self.servers = []
        for i, (client, peer) in enumerate(zip(self.client_ports, peer_ports, strict=True)):
            argv = [program("etcd"), f"--name=n{i}", f"--data-dir={self.folder / f'n{i}'}", "--log-level=error"]
            argv += [f"--listen-client-urls=http://127.0.0.1:{client}"]
            argv += [f"--advertise-client-urls=http://127.0.0.1:{client}"]
            argv += [f"--listen-peer-urls=http://127.0.0.1:{peer}"]
            argv += [f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}", f"--initial-cluster={together}"]
            argv += ["--logger=zap", *(FAST if fast else ())]
            self.servers.append(processes.start(watch, f"etcd-{i}", argv, self.folder))

    def wait(self) -> None:
        """Until all answer."""
        last_s = time.monotonic() + UP_S
        while self.call("endpoint", "health") != 0:
            if time.monotonic() > last_s:
                raise TimeoutError(f"etcd did not come up within {UP_S:g} s")
            self.watch.rest(0.1)

    def call(self, *words: str) -> int:
        argv = [program("etcdctl"), f"--endpoints={self.endpoints}", *words]
        quiet = subprocess.DEVNULL
        return subprocess.run(argv, stdout=quiet, stderr=quiet, env=client_environment(), check=False).returncode

    def end(self) -> None:
        processes.end(self.servers)


def client_environment() -> dict[str, str]:
    return {**os.environ, "ETCDCTL_API": "3"}


class EtcdLocks:
    """Three `etcdctl lock --ttl=1 NAME COMMAND`: one holds the lock and runs the command, two wait."""

    name = "etcd"

    def __init__(self, etcd: Etcd, bell: Doorbell, watch: Watch) -> None:
        self.etcd = etcd
        self.watch = watch
        self._command = bell.command(self.name)
        self._all: list[subprocess.Popen[bytes]] = []
        self._commands: list[int] = []
        self.holder: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        since = len(self.watch.lines)
        for _ in range(NODES):
            self.start_one()
        self.note(self.watch.until(rings(self.name), since, "the first command under etcdctl lock"))
        self.watch.rest(QUEUED_S)

    def start_one(self) -> None:
        argv = [program("etcdctl"), f"--endpoints={self.etcd.endpoints}", "lock", "--ttl=1", "--", "bench"]
        argv += self._command
        self._all.append(processes.start(self.watch, "etcdctl", argv, self.etcd.folder, {"ETCDCTL_API": "3"}))

    def note(self, ring: Line) -> Line:
        """The command rings with its own number: its parent is the one that holds the lock."""
        self._commands.append(int(ring.text.split()[2]))
        alive = [one for one in self._all if one.poll() is None]
        self.holder = next((one for one in alive if self._commands[-1] in processes.children(one.pid)), None)
        return ring

    @property
    def command_pid(self) -> int:
        return self._commands[-1]

    def kill_holder(self) -> None:
        assert self.holder is not None
        self.holder.kill()

    def back(self, orphan: int | None = None) -> None:
        """Another one stands in line. What a killed `etcdctl` ran lives on, beside its successor: we end it."""
        if orphan is not None:
            processes.signal_to(orphan, signal.SIGKILL)
        self._all = [one for one in self._all if one.poll() is None]
        self.start_one()
        self.watch.rest(QUEUED_S)

    def end(self) -> None:
        processes.end(self._all)
        for pid in self._commands:
            if processes.name_of(pid) == "sleep":
                processes.signal_to(pid, signal.SIGKILL)


class SyncObjs:
    """Three nodes of PySyncObj, with its own default times."""

    name = "pysyncobj"

    def __init__(self, watch: Watch, *, lock: bool = False) -> None:
        self.watch = watch
        self.lock = lock
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(NODES)]
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._all: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        since = len(self.watch.lines)
        for address in self.addresses:
            self.start_one(address)
        self.watch.until(self.leads, since, "the first leader of PySyncObj")
        for address in self.addresses:
            self.settle(address, since)

    def start_one(self, address: str) -> None:
        others = [one for one in self.addresses if one != address]
        argv = [sys.executable, "-m", "bench.syncobj_node", *(["--lock"] if self.lock else []), address, *others]
        self.nodes[address] = processes.start(self.watch, f"{self.name} {address}", argv, ROOT)
        self._all.append(self.nodes[address])

    def leads(self, line: Line) -> bool:
        return line.source.startswith(f"{self.name} ") and line.text == "leads"

    def back(self, address: str) -> None:
        since = len(self.watch.lines)
        self.nodes[address].wait(processes.ENDS_S)
        self.start_one(address)
        self.settle(address, since)

    def holds(self, line: Line) -> bool:
        return line.source.startswith(f"{self.name} ") and line.text == "holds"

    def settle(self, address: str, since: int) -> None:
        source = f"{self.name} {address}"
        self.watch.until(lambda line: line.source == source and line.text == "ready", since, f"{source} is ready")
        self.watch.rest(0.3)

    def end(self) -> None:
        processes.end(self._all)
