"""Every exchange with Ghoti's manager, through a real socket against a running node of ours.

`tests/data/manager_exchanges.json` says what a real node answers and sends. Peers are recorders on ports of their own
that answer as real nodes do. Where we answer otherwise, `BETTER` has it, and the data says so, too.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from primacy.agent.cluster import ManagedCluster
from primacy.election.inputs import Shutdown
from primacy.membership.members import Entry
from primacy.settings import of_mapping
from tests.support.managers_in_one_loop import LIMIT_S, free_ports, mapping
from tests.support.waiting import wait_until_async

DATA = json.loads((Path(__file__).parents[1] / "data" / "manager_exchanges.json").read_text(encoding="utf-8"))
EXCHANGES = {each["id"]: each for each in DATA["cluster_http"]["exchanges"]}
BETTER: dict[str, tuple[int, str]] = {
    "join-own-id": (400, ""),
    "join-get": (405, ""),
    "join-empty-strings": (400, ""),
    "election-get": (405, ""),
    "coordinator-lower": (200, ""),
    "coordinator-unknown": (400, ""),
    "coordinator-empty": (400, ""),
    "unknown-path": (404, ""),
    "root-path": (404, ""),
    "leader-endpoint": (503, "not leader: node1"),
}
STATE_STAYS = {"join-own-id", "join-get", "join-empty-strings", "coordinator-lower", "coordinator-unknown"}
STATE_STAYS |= {"coordinator-empty"}


class Recorder:
    """A real node as far as one exchange needs it: it answers, and notes what it was sent."""

    def __init__(self, leads: bool) -> None:
        self.leads = leads
        self.heard: list[tuple[str, str, str, str]] = []

    async def start(self, port: int) -> None:
        self.runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", port).start()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        body = (await request.read()).decode()
        user = request.headers.get("Authorization", "")
        self.heard.append((request.method, request.path, body, user))
        return web.Response(status=400 if request.path == "/remove" and not self.leads else 200)


class Exchange:
    """Our node in the state that an exchange begins with."""

    def __init__(self, exchange: dict[str, Any]) -> None:
        self.exchange = exchange
        before = exchange["state_before"]
        self.names = {before["addr"]: "", **dict.fromkeys(before["peers"].values(), "")}
        for old, port in zip(self.names, free_ports(len(self.names)), strict=True):
            self.names[old] = f"127.0.0.1:{port}"
        self.names["10.9.9.9:1"] = "127.9.9.9:1"  # nothing leaves this machine
        self.recorders: dict[str, Recorder] = {}

    def real(self, text: str) -> str:
        """In one pass, and whole ports only: a port that was given may begin with one of the data's."""
        known = "|".join(re.escape(old) for old in self.names)
        return re.sub(rf"(?:{known})(?!\d)", lambda found: self.names[found[0]], text)

    async def __aenter__(self) -> Exchange:
        before = self.exchange["state_before"]
        remembered = tuple(Entry(name, self.real(addr)) for name, addr in before["peers"].items())
        for name, addr in before["peers"].items():
            recorder = self.recorders[self.real(addr)] = Recorder(name == before["leader"])
            await recorder.start(int(self.real(addr).rpartition(":")[2]))
        port = int(self.real(before["addr"]).rpartition(":")[2])
        self.node = ManagedCluster(of_mapping(mapping(before["id"], port)), remembered=remembered)
        await self.node.start()
        await self.until(lambda: self.node.leader() == before["leader"], f"{before['leader']} leads")
        for recorder in self.recorders.values():
            recorder.heard.clear()
        if before.get("up") is False:
            self.node.driver.give(Shutdown())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.node.kill()
        for recorder in self.recorders.values():
            await recorder.runner.cleanup()

    async def until(self, holds: Any, what: str) -> None:
        await wait_until_async(holds, what, LIMIT_S, told=self.state)

    def state(self) -> dict[str, Any]:
        peers = {name: addr for name, addr in self.node.manager.member_list.peers.items() if name != self.node.node}
        return {"leader": self.node.leader(), "peers": peers}

    async def ask(self) -> tuple[int, dict[str, str], str]:
        asked = self.exchange["request"]
        body = self.real(asked["body"] or "").encode()
        head = f"{asked['method']} {asked['path']} HTTP/1.1\r\nHost: :2222\r\nUser-Agent: Go-http-client/1.1\r\n"
        if asked["basic_auth"]:
            head += f"Authorization: Basic {base64.b64encode(':'.join(asked['basic_auth']).encode()).decode()}\r\n"
        if asked["body"] is not None:
            head += f"Content-Length: {len(body)}\r\n"
        host, _, port = self.node.manager.identity.addr.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"{head}\r\n".encode() + body)
        async with asyncio.timeout(LIMIT_S):
            answer = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = answer.strip().split("\r\n")
            headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
            found = await reader.readexactly(int(headers["content-length"]))
        writer.close()
        await writer.wait_closed()
        return int(first.split()[1]), headers, found.decode()


@pytest.mark.parametrize("name", sorted(EXCHANGES))
def test_every_exchange_of_seed_000_is_answered(name: str) -> None:
    asyncio.run(_played(EXCHANGES[name]))


async def _played(exchange: dict[str, Any]) -> None:
    async with Exchange(exchange) as ours:
        status, headers, body = await ours.ask()
        wanted = BETTER.get(exchange["id"]) or (exchange["response"]["status"], exchange["response"]["body"])
        assert (status, body) == (wanted[0], ours.real(wanted[1]))
        if not body:
            assert "content-type" not in headers
        for key, value in exchange["response"].get("headers", {}).items():
            if wanted[0] == 200 and body:
                assert headers[key.lower()] == value
        assert "primacy" not in headers, "a real node is told nothing of ours"
        after = exchange["state_before" if exchange["id"] in STATE_STAYS else "state_after"]
        peers = {key: ours.real(value) for key, value in after["peers"].items()}
        if exchange["state_before"].get("up") is not False:
            await ours.until(
                lambda: ours.state() == {"leader": after["leader"], "peers": peers}, f"{after['leader']}, {peers}"
            )
        await _sent(ours, exchange)


async def _sent(ours: Exchange, exchange: dict[str, Any]) -> None:
    """What it sends afterwards arrives; joins arrive once each, and nobody else is told of one."""
    wanted = Counter(
        (each["path"], ours.real(each["to"]), ours.real(each["body"])) for each in exchange["sends_afterwards"]
    )
    if exchange["id"] == "coordinator-lower":
        addr = ours.real(exchange["state_before"]["peers"]["node1"])
        wanted = Counter({("/coordinator", addr, '{"id":"node3"}'): 1})

    def heard() -> Counter[tuple[str, str, str]]:
        return Counter((path, addr, body) for addr, each in ours.recorders.items() for _, path, body, _ in each.heard)

    await ours.until(lambda: not wanted - heard(), f"sent: {wanted}")
    joins = Counter({key: count for key, count in heard().items() if key[0] == "/join"})
    assert joins == Counter({key: count for key, count in wanted.items() if key[0] == "/join"})


def test_the_answers_that_differ_are_those_that_the_data_names() -> None:
    assert {name for name, each in EXCHANGES.items() if each["ours"] != "same"} == set(BETTER)
