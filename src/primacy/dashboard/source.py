"""Reads the nodes, the lab and the chain, once for all browsers, and keeps what was read.

One node is enough: its document has a row for every other. In the lab every node is read, since each of them may be
stopped. Whoever does not answer is asked again after a pause, and its events go on where they broke off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

import aiohttp

from primacy.control import KEY_HEADER, ORDER_HEADER
from primacy.dashboard.claims import Claims
from primacy.dashboard.plan import plan_of
from primacy.dashboard.record import Record
from primacy.dashboard.rows import Chain, Lab, Row, chain_of, cluster_of, event_row, lab_of, number_of
from primacy.dashboard.view import Known, Plan, Read, statements
from primacy.errors import NotReached, Refused

LOOK_S = 0.25
"""How often a node is asked while somebody watches."""
IDLE_LOOK_S = 2.0
"""The same when nobody does."""
AGAIN_S = 0.5
"""After an answer that did not come."""
PLAN_AGAIN_S = 30.0
ASK_S = 2.0
ORDER_S = 15.0
"""A planned stop may take a while; the node or the lab answers when it is taken, not when it is over."""
ANSWER_BYTES_MAX = 4_000_000
LINE_BYTES_MAX = 64_000
NEWS_MAX = 5_000
"""Events that were read and not yet shown: at 200 a second this is 25 seconds."""


class LabAt(NamedTuple):
    """Where the lab supervisor listens, and its key."""

    url: str
    key: str = ""


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Source:
    """What was read so far."""

    def __init__(
        self, addresses: tuple[str, ...], lab_at: LabAt | None, chain_url: str, is_watched: Callable[[], bool]
    ):
        self.addresses = addresses
        self.lab_at = lab_at
        self.chain_url = chain_url
        self.is_watched = is_watched
        self.record = Record()
        self.claims = Claims()
        self.reads: dict[str, Read] = {}
        self.plan = Plan()
        self.lab: Lab | None = None
        self.chain: Chain | None = None
        self.homes: dict[str, str] = {}
        """Which node answers at which address: address by node."""
        self._news: list[Row] = []
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._session: aiohttp.ClientSession | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        limit = aiohttp.ClientTimeout(total=ASK_S)
        self._session = aiohttp.ClientSession(timeout=limit, trust_env=False, auto_decompress=False)
        if self.lab_at is not None:
            self._tasks["the lab"] = [_task(self._follow_lab(self.lab_at))]
        if self.chain_url or self.lab_at is not None:
            self._tasks["the chain"] = [_task(self._follow_chain())]
        for address in self.addresses:
            self._follow(address)

    async def close(self) -> None:
        tasks = [task for each in self._tasks.values() for task in each]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _follow(self, address: str) -> None:
        if address not in self._tasks:
            self.reads[address] = Read(address, None, now_ms())
            self._tasks[address] = [_task(self._look(address)), _task(self._listen(address))]

    def _leave(self, address: str) -> None:
        for task in self._tasks.pop(address, []):
            task.cancel()
        self.reads.pop(address, None)

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

    async def _look(self, address: str) -> None:
        planned_at = -PLAN_AGAIN_S
        while True:
            try:
                document = cluster_of(await self._get(f"http://{address}/v1/cluster"))
                if document is None:
                    raise NotReached(f"what answers at {address} is no node of primacy")
                self.reads[address] = Read(address, document, now_ms())
                self.homes[document.seen_from] = address
                if time.monotonic() - planned_at > PLAN_AGAIN_S:
                    planned_at = time.monotonic()
                    await self._read_plan(address, document.seen_from)
            except (NotReached, Refused) as error:
                before = self.reads[address]
                since = before.failing_since_unix_ms or wall_ms()
                self.reads[address] = before._replace(failing_since_unix_ms=since, error=str(error))
                await asyncio.sleep(AGAIN_S)
            await asyncio.sleep(LOOK_S if self.is_watched() else IDLE_LOOK_S)

    async def _read_plan(self, address: str, node: str) -> None:
        """The file changes with a restart only; whoever cannot tell it is asked again later."""
        with contextlib.suppress(NotReached, Refused):
            self.plan = plan_of(await self._get(f"http://{address}/v1/config"), node) or self.plan

    async def _listen(self, address: str) -> None:
        """The events of one node: all that it has, then as they come; after a break from where it broke."""
        seen = 0
        while True:
            with contextlib.suppress(NotReached, aiohttp.ClientError, OSError, TimeoutError, ValueError):
                async for raw in self._events(address, seen):
                    seen = number_of(raw.get("number")) or seen
                    row = event_row(raw)
                    if row is not None and len(self._news) < NEWS_MAX:
                        self._news += self.record.add((row,))
            await asyncio.sleep(AGAIN_S)

    async def _events(self, address: str, after: int) -> AsyncIterator[dict[str, Any]]:
        """What the log has after this number, then the stream from there."""
        earlier = await self._get(f"http://{address}/v1/events?after={after}")
        for raw in earlier if isinstance(earlier, list) else []:
            if isinstance(raw, dict):
                after = number_of(raw.get("number")) or after
                yield raw
        assert self._session is not None
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        limit = aiohttp.ClientTimeout(total=None, sock_connect=ASK_S, sock_read=60)
        async with self._session.get(f"http://{address}/v1/events", headers=headers, timeout=limit) as answer:
            if answer.status != 200:
                raise NotReached(f"no events from {address}: {answer.status}")
            async for line in answer.content:
                if line.startswith(b"data:") and len(line) <= LINE_BYTES_MAX:
                    found = json.loads(line[5:])
                    if isinstance(found, dict):
                        yield found

    # --- lab and chain ------------------------------------------------------------------------------------------------

    async def _follow_lab(self, lab_at: LabAt) -> None:
        while True:
            try:
                found = lab_of(await self._get(f"{lab_at.url}/v1/lab"))
            except (NotReached, Refused):
                found = None
            if found is not None:
                self.lab = found
                self.chain_url = found.chain or self.chain_url
                wanted = {each.control for each in found.nodes if each.control}
                for address in wanted:
                    self._follow(address)
                for address in [each for each in self.reads if each not in wanted and each not in self.addresses]:
                    self._leave(address)
            await asyncio.sleep(LOOK_S if self.is_watched() else IDLE_LOOK_S)

    async def _follow_chain(self) -> None:
        while True:
            if self.chain_url:
                with contextlib.suppress(NotReached, Refused):
                    self.chain = chain_of(await self._get(f"{self.chain_url}/v1/chain")) or self.chain
            await asyncio.sleep(LOOK_S if self.is_watched() else IDLE_LOOK_S)

    # --- asking -------------------------------------------------------------------------------------------------------

    async def document(self, address: str) -> Any:
        """One node's own state document, with its counters."""
        return await self._get(f"http://{address}/v1/state")

    async def order(self, url: str, body: dict[str, Any], key: str) -> Any:
        """Raises `NotReached`, or `Refused` with the sentence of whoever refused."""
        assert self._session is not None
        headers = {ORDER_HEADER: "1", **({KEY_HEADER: key} if key else {})}
        limit = aiohttp.ClientTimeout(total=ORDER_S)
        return await self._answer(self._session.post(url, json=body, headers=headers, timeout=limit), url)

    async def _get(self, url: str) -> Any:
        assert self._session is not None
        return await self._answer(self._session.get(url), url)

    async def _answer(self, request: Any, url: str) -> Any:
        where = url.removeprefix("http://").partition("/")[0]
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


def _task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)
