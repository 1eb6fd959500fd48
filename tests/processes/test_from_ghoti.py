"""The rolling move of docs/from-ghoti.md and its way back: three nodes of the first version, one after the other.

Doubles of real nodes with a data port stand for Ghoti; ours are real processes with the very same files. A client of
Ghoti's goes on all the time. Until the leader itself is exchanged nobody else leads, so what was written stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.ghoti_double import Double
from tests.support.ports import free_ports
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.beside(order=400)

PRIMACY = [sys.executable, "-m", "primacy.cli.main"]
NAMES = ("node1", "node2", "node3")
LIMIT_S = 180.0
FILE = """
addr: {data}
slot_000: {{kind: simple_memory}}
slot_001: {{kind: atomic}}
cluster:
  node: {node}
  user: my_user
  pass: my_pass
  manager:
    type: join_server
    addr: {manager}
    join: {join}
election:
  profile: wan
"""
"""As Ghoti has it, which passes over the last section; patient times, for a busy machine must not end a leadership."""


class Ghoti(Double):
    """A double with a data port, as far as these clients ask: slot 000 is kept, 001 counts."""

    async def serve(self, data: str) -> None:
        self.slot, self.count = b"", 0
        host, _, port = data.rpartition(":")
        self._data = await asyncio.start_server(self._client, host, int(port))
        self._open: set[asyncio.StreamWriter] = set()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                writer.write(self._said(line.rstrip(b"\n")))
                await writer.drain()
        self._open.discard(writer)
        writer.close()

    def _said(self, line: bytes) -> bytes:
        if not self.leads:
            return b"exxx000" + self.leader.encode() + b"\n"
        if line.startswith(b"w000"):
            self.slot = line[4:]
        if line.startswith(b"r001"):
            self.count += 1
            return b"v001%d\n" % self.count
        return b"v000" + self.slot + b"\n"

    async def kill(self) -> None:
        self._data.close()
        for writer in tuple(self._open):
            writer.close()
        await super().kill()


def asked(addr: str, line: bytes) -> bytes:
    """One answer on a new connection; empty if there is none."""
    host, _, port = addr.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=LIMIT_S) as link:
        link.sendall(line + b"\n")
        return link.makefile("rb").readline().rstrip(b"\n")
    return b""


class Customer(threading.Thread):
    """A client that goes on: it counts, wherever the leader is."""

    def __init__(self, data: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.data = data
        self.served: dict[str, int] = dict.fromkeys(data, 0)
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            for node, addr in self.data.items():
                if asked(addr, b"r001").startswith(b"v001"):
                    self.served[node] += 1


class Move:
    """The three places, each with a Ghoti or one of ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = [f"127.0.0.1:{port}" for port in free_ports(6)]
        self.manager = dict(zip(NAMES, ports[:3], strict=True))
        self.data = dict(zip(NAMES, ports[3:], strict=True))
        self.ghotis: dict[str, Ghoti] = {}
        self.ours: dict[str, subprocess.Popen[bytes]] = {}
        for node in NAMES:
            join = self.manager["node2" if node == "node1" else "node1"]
            text = FILE.format(data=self.data[node], node=node, manager=self.manager[node], join=join)
            (folder / f"{node}.yaml").write_text(text)

    async def ghoti(self, node: str, join: str = "") -> None:
        each = Ghoti(node, int(self.manager[node].rpartition(":")[2]), "my_user", "my_pass", pace=0.5)
        await each.start(self.manager[join] if join else "")
        await each.serve(self.data[node])
        self.ghotis[node] = each

    def primacy(self, node: str) -> None:
        call = [*PRIMACY, "slots", "serve", "--config", f"{node}.yaml", "--state-dir", f"state-{node}"]
        with (self.folder / f"{node}.log").open("ab") as log:
            self.ours[node] = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)

    async def stop(self, node: str) -> None:
        if node in self.ghotis:
            await self.ghotis.pop(node).kill()
        else:
            process = self.ours.pop(node)
            process.terminate()
            assert await asyncio.to_thread(process.wait, LIMIT_S) == 0

    async def leads(self, leader: str) -> None:
        """All three name it, and it answers."""
        wanted = {node: b"v000" if node == leader else b"exxx000" + leader.encode() for node in NAMES}
        until_s = time.monotonic() + LIMIT_S
        while True:
            said = {node: await asyncio.to_thread(asked, self.data[node], b"r000") for node in NAMES}
            if all(said[node].startswith(wanted[node]) for node in NAMES):
                return
            logs = {path.name: path.read_text()[-600:] for path in self.folder.glob("*.log")}
            assert time.monotonic() < until_s, f"{leader} does not lead: {said}; {logs}"
            await asyncio.sleep(0.05)

    async def goes_on(self, customer: Customer, leader: str) -> None:
        """The client is served there, again."""
        before, until_s = customer.served[leader], time.monotonic() + LIMIT_S
        while customer.served[leader] <= before + 2:
            assert time.monotonic() < until_s, f"nobody is served: {customer.served}"
            await asyncio.sleep(0.02)

    def listed(self, node: str) -> set[str]:
        return {name for name, addr in self.ghotis[node].peers.items() if addr == self.manager[name]}

    async def close(self) -> None:
        for process in self.ours.values():
            process.kill()
            process.wait()
        for each in self.ghotis.values():
            await each.kill()


async def there(move: Move, customer: Customer) -> None:
    """Followers first, the highest id first; the leader last."""
    await asyncio.to_thread(asked, move.data["node1"], b"w000kept")
    for node in ("node3", "node2"):
        await move.stop(node)
        move.primacy(node)
        await move.leads("node1")
        await move.goes_on(customer, "node1")
        said = await asyncio.to_thread(asked, move.data["node1"], b"r000")
        assert said == b"v000kept", "the leader was never another"
        await until_true(lambda: move.listed("node1") == {"node2", "node3"}, "node1 knows both where they are")
    await move.stop("node1")
    move.primacy("node1")
    await move.leads("node3")
    await move.goes_on(customer, "node3")


async def back(move: Move, customer: Customer) -> None:
    """Followers first again, and the leader last: the highest id that is left leads then."""
    await asyncio.to_thread(asked, move.data["node3"], b"w000ours")
    for node, join in (("node1", "node2"), ("node2", "node1")):
        await move.stop(node)
        await move.ghoti(node, join)
        await move.leads("node3")
        await move.goes_on(customer, "node3")
        said = await asyncio.to_thread(asked, move.data["node3"], b"r000")
        assert said == b"v000ours", "the leader was never another"
    await until_true(lambda: move.listed("node1") >= {"node2", "node3"}, "node1 knows both")
    await move.stop("node3")
    await move.ghoti("node3", "node1")
    await move.leads("node2")
    await move.goes_on(customer, "node2")


async def until_true(holds: object, what: str) -> None:
    assert callable(holds)
    await wait_until_async(holds, what, LIMIT_S, 0.02)


def test_three_nodes_of_ghoti_become_ours_one_by_one_and_ghoti_again(tmp_path: Path) -> None:
    async def whole() -> None:
        move = Move(tmp_path)
        customer = Customer(move.data)
        try:
            await move.ghoti("node1")
            await move.ghoti("node2", "node1")
            await move.ghoti("node3", "node1")
            await move.leads("node1")
            customer.start()
            await move.goes_on(customer, "node1")
            await there(move, customer)
            await back(move, customer)
        finally:
            customer.ended.set()
            await move.close()
            if customer.is_alive():
                await asyncio.to_thread(customer.join, LIMIT_S)

    asyncio.run(whole())
