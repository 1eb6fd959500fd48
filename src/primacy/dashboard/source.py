"""Reads the nodes, the lab and the chain, once for all browsers, and keeps what was read.

One node is enough: its document has a row for every other. In the lab every node is read, since each of them may be
stopped. Whoever does not answer is asked again after a pause, and its events go on where they broke off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

import aiohttp

from primacy.control import KEY_HEADER, ORDER_HEADER
from primacy.control.client import FoundNode
from primacy.dashboard import NODES_MAX
from primacy.dashboard.claims import Claims
from primacy.dashboard.plan import plan_of, plan_of_profile
from primacy.dashboard.record import Record
from primacy.dashboard.rows import (
    NAME_CHARS_MAX,
    Chain,
    Lab,
    Row,
    chain_of,
    cluster_of,
    event_row,
    head_of,
    lab_of,
    list_of,
    number_of,
    object_of,
    text_of,
)
from primacy.dashboard.view import Known, Plan, Read, statements
from primacy.errors import NotReached, Refused

LOOK_S = 0.25
"""How often a node is asked while somebody watches."""
IDLE_LOOK_S = 2.0
"""The same when nobody does."""
FIRST_LOOK_MS = 800
"""Whoever opens the page waits at most this long for a fresh look at the cluster."""
AGAIN_S = 0.5
"""After an answer that did not come."""
PLAN_AGAIN_S = 10.0
MORE_S = 1.0
"""How often it is looked for nodes of this machine that are new."""
ASK_S = 2.0
ORDER_S = 15.0
"""A planned stop may take a while; the node or the lab answers when it is taken, not when it is over."""
ANSWER_BYTES_MAX = 4_000_000
LINE_BYTES_MAX = 64_000
NEWS_MAX = 5_000
"""Events that were read and not yet shown: at 200 a second this is 25 seconds."""


Where = Callable[[], FoundNode | None]
"""Where a node answers now; None if it does not run. Asked again after every failure, for a restart may move it."""
More = Callable[[], Mapping[str, Where]]
"""Nodes that run now, by a name that stays theirs: whoever is new among them is read from then on."""
AddressOf = Callable[[str], FoundNode | None]
"""Where a node, by its name, takes orders now; None if nobody knows."""


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Source:
    """What was read so far."""

    def __init__(
        self, nodes: Sequence[Where], lab_at: FoundNode | None, address_of: AddressOf, more: More = dict
    ) -> None:
        self.nodes = nodes
        self.more = more
        self.lab_at = lab_at
        self.address_of = address_of
        self.record = Record()
        self.claims = Claims()
        self.reads: dict[str, Read] = {}
        self.plan = Plan()
        self.lab: Lab | None = None
        self.chain: Chain | None = None
        self.homes: dict[str, FoundNode] = {}
        """Where a node itself answers, by its name."""
        self.is_watched = False
        self._hurry = asyncio.Event()
        self._news: list[Row] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None

    # --- start and end ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        limit = aiohttp.ClientTimeout(total=ASK_S)
        self._session = aiohttp.ClientSession(timeout=limit, trust_env=False)
        work: list[Coroutine[Any, Any, None]] = [self._keep_plan(), self._find_more()]
        if self.lab_at is not None:
            lab_at = self.lab_at
            work += [self._look_lab(lab_at), self._listen(lambda: lab_at)]
        for where in self.nodes:
            work += [self._look(where), self._listen(where)]
        self._tasks = [asyncio.get_running_loop().create_task(each) for each in work]

    async def _find_more(self) -> None:
        """A node that is started later is read, too: it may be the last one that answers."""
        known: set[str] = set()
        while True:
            for name, where in self.more().items():
                if name not in known and len(known) < NODES_MAX:
                    known.add(name)
                    self._tasks += [asyncio.create_task(self._look(where)), asyncio.create_task(self._listen(where))]
            await asyncio.sleep(MORE_S)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def attend(self, *, watched: bool) -> None:
        """Somebody watches from now on, or nobody any more. Who comes first waits for a fresh look, but not long."""
        if watched and not self.is_watched:
            self.is_watched = True
            self._hurry.set()
            began_ms = now_ms()
            while now_ms() - began_ms < FIRST_LOOK_MS and not any(r.read_ms >= began_ms for r in self.reads.values()):
                await asyncio.sleep(0.02)
        self.is_watched = watched

    async def _rest(self, seconds: float = LOOK_S) -> None:
        if self.is_watched:
            await asyncio.sleep(seconds)
            return
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_LOOK_S):  # `wait_for` may take an end in the same moment for the hurry
                await self._hurry.wait()

    # --- what was read ------------------------------------------------------------------------------------------------

    def known(self) -> Known:
        reads = tuple(self.reads.values())
        found = Known(now_ms(), reads, self.record.rows, self.plan, self.lab, self.chain)
        for seen in statements(found).values():
            if seen.told_ms is not None:
                self.claims.hear(seen.said, found.now_ms - seen.told_ms)
        return found._replace(overlapping=self.claims.overlapping())

    def take_news(self) -> list[Row]:
        """The events that came since the last time."""
        news, self._news = self._news, []
        return news

    # --- a node -------------------------------------------------------------------------------------------------------

    async def _look(self, where: Where) -> None:
        found, name = where(), "the node"
        while True:
            try:
                if found is None:
                    raise NotReached("no node runs here; primacy run starts one")
                self._renamed(name, name := _at(found))
                document = cluster_of(await self._get(found, "/v1/cluster"))
                if document is None:
                    raise NotReached(f"what answers at {name} is no node of primacy")
                self.reads[name] = Read(name, document, now_ms())
                self.homes[document.seen_from] = found
            except (NotReached, Refused) as error:
                self._missed(name, str(error))
                await asyncio.sleep(AGAIN_S)
                found = where()
            await self._rest()

    def _renamed(self, before: str, now: str) -> None:
        """It answers elsewhere now: what was read of it is not read by anybody else."""
        if before != now and before in self.reads:
            self.reads[now] = self.reads.pop(before)._replace(at=now)

    def _missed(self, name: str, error: str) -> None:
        before = self.reads.get(name) or Read(name, None, now_ms())
        since = before.failing_since_unix_ms or wall_ms()
        self.reads[name] = before._replace(failing_since_unix_ms=since, error=error)

    async def _keep_plan(self) -> None:
        """The file changes with a restart only; it is asked for again now and then, for a node may have another."""
        while True:
            plan, hashes = None, {}
            for address in sorted({found for name in self._names() if (found := self.address_of(name)) is not None}):
                with contextlib.suppress(NotReached, Refused):
                    raw = object_of(await self._get(address, "/v1/config"))
                    node = text_of(raw.get("node"), NAME_CHARS_MAX)
                    plan = plan or plan_of(raw, node)
                    hashes[node] = text_of(raw.get("hash"), NAME_CHARS_MAX)
            if plan is not None:
                self.plan = plan._replace(hashes=hashes)
            await asyncio.sleep(PLAN_AGAIN_S if self.plan.text else AGAIN_S)

    def _names(self) -> set[str]:
        return {read.document.seen_from for read in self.reads.values() if read.document is not None and not read.error}

    # --- events -------------------------------------------------------------------------------------------------------

    async def _listen(self, where: Where) -> None:
        """All events that there are, then as they come; after a break, from where it broke."""
        seen = 0
        while True:
            with contextlib.suppress(NotReached, Refused, aiohttp.ClientError, OSError, TimeoutError, ValueError):
                found = where()
                if found is None:
                    raise NotReached("nobody is there")
                async for raw in self._events(found, seen):
                    seen = number_of(raw.get("number")) or seen
                    row = event_row(raw)
                    if row is not None and len(self._news) < NEWS_MAX:
                        self._news += self.record.add((row,))
            await asyncio.sleep(AGAIN_S)

    async def _events(self, found: FoundNode, after: int) -> AsyncIterator[dict[str, Any]]:
        earlier = await self._get(found, f"/v1/events?after={after}")
        for raw in earlier if isinstance(earlier, list) else []:
            if isinstance(raw, dict):
                after = number_of(raw.get("number")) or after
                yield raw
        assert self._session is not None
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        limit = aiohttp.ClientTimeout(total=None, sock_connect=ASK_S, sock_read=60)
        url = f"{_url(found)}/v1/events"
        async with self._session.get(url, headers=headers, timeout=limit, ssl=_trusted(found)) as answer:
            if answer.status != 200:
                raise NotReached(f"no events from {url}: {answer.status}")
            async for line in answer.content:
                if line.startswith(b"data:") and len(line) <= LINE_BYTES_MAX:
                    told = json.loads(line[5:])
                    if isinstance(told, dict):
                        yield told

    # --- the lab ------------------------------------------------------------------------------------------------------

    async def _look_lab(self, lab_at: FoundNode) -> None:
        """The lab asks all of its nodes itself: each that answers is a statement by itself."""
        while True:
            try:
                raw = object_of(await self._get(lab_at, "/v1/lab"))
                found = lab_of(raw)
                if found is None:
                    raise NotReached(f"what answers at {_at(lab_at)} is no lab of primacy")
                self._take_lab(found, raw)
            except (NotReached, Refused) as error:
                for name in tuple(self.reads) or ("the lab",):
                    self._missed(name, str(error))
                await asyncio.sleep(AGAIN_S)
            await self._rest()

    def _take_lab(self, lab: Lab, raw: Mapping[str, Any]) -> None:
        if self.lab is None and not self.plan.text:
            self.plan = plan_of_profile(lab.strategy, lab.profile)
        self.lab = lab
        self.chain = chain_of(raw.get("chain")) or self.chain
        self.reads.pop("the lab", None)
        for node, each in zip(lab.nodes, list_of(raw.get("nodes"), len(lab.nodes)), strict=False):
            head = head_of(object_of(each).get("state"))
            name = f"node {node.node} of the lab"
            if node.said is not None and head is not None:
                self.reads[name] = Read(name, head._replace(rows=(node.said,)), now_ms())
            else:
                self._missed(name, f"node {node.node} does not answer")

    # --- asking -------------------------------------------------------------------------------------------------------

    async def document(self, node: str) -> Any:
        """A node's own state document, with its counters; None if its API is not read here."""
        found = self.address_of(node) if self.lab_at is not None else self.homes.get(node)
        return await self._get(found, "/v1/state") if found is not None else None

    async def order_node(self, node: str, path: str, body: dict[str, Any]) -> Any:
        """Said to the node itself if it can be, else to one that answers and passes it on."""
        for name in (node, *sorted(self._names())):
            address = self.address_of(name) if name else None
            if address is not None:
                return await self._order(address, path, body)
        raise NotReached("no node answers, so that nobody can be told")

    async def order_lab(self, path: str, body: dict[str, Any]) -> Any:
        assert self.lab_at is not None
        return await self._order(self.lab_at, path, body)

    async def _order(self, found: FoundNode, path: str, body: dict[str, Any]) -> Any:
        """Raises `NotReached`, or `Refused` with the sentence of whoever refused."""
        assert self._session is not None
        headers = {ORDER_HEADER: "1", **({KEY_HEADER: found.key} if found.key else {})}
        limit = aiohttp.ClientTimeout(total=ORDER_S)
        url, trust = f"{_url(found)}{path}", _trusted(found)
        return await self._answer(self._session.post(url, json=body, headers=headers, timeout=limit, ssl=trust), found)

    async def _get(self, found: FoundNode, path: str) -> Any:
        assert self._session is not None
        return await self._answer(self._session.get(f"{_url(found)}{path}", ssl=_trusted(found)), found)

    async def _answer(self, request: Any, found: FoundNode) -> Any:
        where = _at(found)
        try:
            async with request as answer:
                data = await answer.content.read(ANSWER_BYTES_MAX)
                while not answer.content.at_eof() and len(data) < ANSWER_BYTES_MAX:
                    data += await answer.content.read(ANSWER_BYTES_MAX - len(data))
                status = answer.status
            said = json.loads(data)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise NotReached(f"nothing answers at {where}: {_why(error)}") from None
        except (ValueError, RecursionError):
            raise NotReached(f"what answers at {where} is no node of primacy") from None
        if status >= 400:
            sentence = said.get("error") if isinstance(said, dict) else None
            raise Refused(str(sentence or f"{where} refused with {status}")[:500])
        return said


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "too slow"
    system = getattr(error, "os_error", None) or error
    return str(getattr(system, "strerror", None) or type(error).__name__)


def _at(found: FoundNode) -> str:
    return f"[{found.host}]:{found.port}" if ":" in found.host else f"{found.host}:{found.port}"


def _url(found: FoundNode) -> str:
    return f"{'https' if found.certificate else 'http'}://{_at(found)}"


def _trusted(found: FoundNode) -> aiohttp.Fingerprint | bool:
    """A node with TLS must show the very certificate that its state folder names."""
    return aiohttp.Fingerprint(bytes.fromhex(found.certificate)) if found.certificate else True
