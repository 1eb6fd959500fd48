"""How long clients of slots wait when the leader is killed: three nodes of bully, in the profiles `lan` and `ghoti`.

From SIGKILL to the leader until a client that asks both others every few milliseconds is answered by one of them.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.support.ports import free_ports

from bench import processes

NODES = ("node1", "node2", "node3")
ASK_S = 0.005
LIMIT_S = 60.0


class Cluster:
    """Three nodes that joined each other, as in Ghoti."""

    def __init__(self, folder: Path, profile: str) -> None:
        self.folder = folder
        managers, data = free_ports(3), free_ports(3)
        self.data = dict(zip(NODES, data, strict=True))
        for name, port in zip(NODES, managers, strict=True):
            join = f", join: '127.0.0.1:{managers[0]}'" if name != NODES[0] else ""
            (folder / f"{name}.yaml").write_text(
                f"cluster:\n  node: {name}\n  user: cluster_user\n  pass: cluster_pass\n"
                f"  manager: {{type: join_server, addr: '127.0.0.1:{port}'{join}}}\n"
                f"election: {{profile: {profile}}}\nslots: {{'000': {{kind: simple_memory}}}}\n"
            )
        self.processes = {name: self.start(name) for name in NODES}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "primacy.cli.main", "slots", "serve", "--config", f"{name}.yaml"]
        argv += ["--addr", f"127.0.0.1:{self.data[name]}", "--state-dir", f"state-{name}"]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet, cwd=self.folder)

    def settled(self) -> str:
        """The leader, once all three say that it is."""
        until_s = time.monotonic() + LIMIT_S
        while time.monotonic() < until_s:
            said = {name: asked(port) for name, port in self.data.items()}
            leads = [name for name, line in said.items() if line.startswith(b"v000")]
            if len(leads) == 1 and all(
                line == b"exxx000" + leads[0].encode() + b"\n" for name, line in said.items() if name != leads[0]
            ):
                return leads[0]
            time.sleep(0.05)
        raise SystemExit(f"bench: the cluster did not settle: {said}")

    def failover_ms(self) -> float:
        leader = self.settled()
        others = {name: port for name, port in self.data.items() if name != leader}
        socks = [socket.create_connection(("127.0.0.1", port)) for port in others.values()]
        try:
            self.processes[leader].kill()
            took_ms = answered_ms(socks)
        finally:
            for sock in socks:
                sock.close()
        self.processes[leader].wait(processes.ENDS_S)
        self.processes[leader] = self.start(leader)
        return took_ms

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(processes.ENDS_S)


def asked(port: int) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2.0) as sock:
            sock.sendall(b"r000\n")
            return sock.recv(100)
    except OSError:
        return b""


def answered_ms(socks: list[socket.socket]) -> float:
    """Until one of them gives a value."""
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < LIMIT_S:
        for sock in socks:
            sock.send(b"r000\n")
        until_s = time.perf_counter() + ASK_S
        while (left_s := until_s - time.perf_counter()) > 0:
            for sock in select.select(socks, [], [], left_s)[0]:
                if b"v000" in sock.recv(4_096):
                    return (time.perf_counter() - began_s) * 1_000
    raise SystemExit("bench: nobody took over")
