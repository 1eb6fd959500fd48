"""Reads the nodes, the lab and the chain, once for all browsers, and keeps what was read.

One node is enough: its document has a row for every other. In the lab every node is read, since each of them may be
stopped. Whoever does not answer is asked again after a pause, and its events go on where they broke off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import aiohttp

from primacy.control import KEY_HEADER, ORDER_HEADER
from primacy.control.client import FoundNode, path_of
from primacy.control.earlier import current
from primacy.dashboard import EVENTS_MAX, NODES_MAX
from primacy.dashboard.claims import Claims
from primacy.dashboard.known import Known, Plan, Read
from primacy.dashboard.plan import plan_of, plan_of_profile
from primacy.dashboard.record import Record
from primacy.dashboard.rows import (
    AUDITED_MAX,
    NAME_CHARS_MAX,
    Audited,
    Chain,
    Lab,
    Row,
    audit_row,
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
from primacy.dashboard.spans import HoldSpan, Spans
from primacy.dashboard.standing import hold_left, statements
from primacy.errors import Later, NotReached, Refused
from primacy.timeline.history import Past, past_of
from primacy.timeline.schema import Told

ASKS = "the dashboard"
"""Who asks, in the header of every order: a lab writes it down."""
STIRRING = frozenset(
    {
        *("elected", "lease-taken", "lease-lost", "majority-lost", "step-down", "transfer", "follows", "leader-left"),
        *("running", "stopping", "gone", "exited", "not-started", "guard-lost", "paused", "lab"),
    }
)
"""Events after which nodes stand otherwise: they are asked at once, and what they say is shown at once."""
NEW_MS = 5_000
"""Older ones are told when a page begins to read."""
GONE = "gone"
"""The guard's report that nothing of the command is left."""
STIRRED_LEAST_S = 0.03
"""Between two looks, whatever happens."""
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
HISTORY_S = 10.0
"""For a node to look through its last day, 16 MB, beside its own work."""
KEPT_AGAIN_S = 60.0
"""How often it is asked how far back it goes."""
HISTORIES_MAX = 8
"""Nodes that are asked for a range; each has what it heard of the others, too."""
RANGE_EVENTS_MAX = 6_000
RANGE_EVENTS_LEAST = 1_000
"""Of one range: all nodes that are asked together, and each at least."""
GATEWAY_TIMEOUT = 504
"""The node answers, and what it needs for that does not."""
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


class Pulse:
    """Wakes whoever waits for it, also if it came since `count` was looked at."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def send(self) -> None:
        self.count += 1
        now, self._event = self._event, asyncio.Event()
        now.set()

    async def within(self, seconds: float, seen: int) -> bool:
        """After this time, or with the next pulse (True), but not before `STIRRED_LEAST_S`."""
        await asyncio.sleep(min(seconds, STIRRED_LEAST_S))
        if self.count != seen:
            return True
        try:
            async with asyncio.timeout(max(0.0, seconds - STIRRED_LEAST_S)):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


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
        self.spans = Spans()
        self.kept: dict[str, Past] = {}
        """By node: how far back it can tell more than stands here, and from where on all of it does."""
        self.reads: dict[str, Read] = {}
        self.gone: dict[str, int] = {}
        self.plan = Plan()
        self.lab: Lab | None = None
        self.lab_error = ""
        self.chain: Chain | None = None
        self.homes: dict[str, FoundNode] = {}
        """Where a node itself answers, by its name."""
        self.is_watched = False
        self._asks_now = False
        self._hurry = asyncio.Event()
        self._happened = Pulse()
        """Something that changes how nodes stand."""
        self.answered = Pulse()
        """A node was asked because of it, and answered: worth a frame at once."""
        self._has_events = False
        """Some node has told what happened so far."""
        self._heard_itself: set[str] = set()
        """Nodes of a lab whose own events are listened to."""
        self._news: list[Row] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None

    # --- start and end ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        limit = aiohttp.ClientTimeout(total=ASK_S)
        self._session = aiohttp.ClientSession(timeout=limit, trust_env=False)
        work: list[Coroutine[Any, Any, None]] = [self._keep_plan(), self._find_more(), self._keep_kept()]
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
        """Somebody watches from now on, or nobody any more.

        Who comes first waits for a fresh look, and for the first events ever, but not long: a page that gets its parts
        one after the other moves under the eyes.
        """
        if watched and not self.is_watched:
            self.is_watched = True
            self._hurry.set()
            began_ms = now_ms()
            while now_ms() - began_ms < FIRST_LOOK_MS and not (
                self._has_events and any(r.read_ms >= began_ms for r in self.reads.values())
            ):
                await asyncio.sleep(0.02)
        self.is_watched = watched

    async def _rest(self, happened: int) -> None:
        """`happened`: how much had when the last question was asked."""
        if self.is_watched:
            self._asks_now = await self._happened.within(LOOK_S, happened)
            return
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_LOOK_S):
                await self._hurry.wait()

    # --- what was read ------------------------------------------------------------------------------------------------

    def known(self) -> Known:
        reads = tuple(self.reads.values())
        found = Known(now_ms(), reads, self.record.rows, self.plan, self.lab, self.chain, lab_error=self.lab_error)
        for seen in statements(found).values():
            if seen.told_ms is not None:
                self.claims.hear(seen.said, found.now_ms - seen.told_ms, seen.took_ms)
            is_long = self.plan.hold_ms > 0  # else it is not known yet how long it is, and what a node kept of it stays
            if is_long and seen.said.role == "leader" and (left_ms := hold_left(seen)) > 0:
                self.spans.hear_hold(seen.said.node, seen.said.token, wall_ms() + left_ms, self.plan.hold_ms)
        began = {name: span.first_ms for name, span in self.claims.spans.items() if not span.over}
        before = tuple(self.record.before.values())
        return found._replace(overlapping=self.claims.overlapping(), began=began, gone=self.gone, before=before)

    def take_news(self) -> list[Row]:
        """The events that came since the last time."""
        news, self._news = self._news, []
        return news

    # --- a node -------------------------------------------------------------------------------------------------------

    async def _look(self, where: Where) -> None:
        found, name = where(), "the node"
        while True:
            happened = self._happened.count
            try:
                if found is None:
                    raise NotReached("no node runs here; primacy run starts one")
                self._renamed(name, name := _at(found))
                asked_ms, asked_unix_ms = now_ms(), wall_ms()
                document = cluster_of(await self._get(found, "/v1/cluster"))
                if document is None:
                    raise NotReached(f"what answers at {name} is no node of primacy")
                self.reads[name] = Read(name, document, asked_ms, took_ms=now_ms() - asked_ms)
                self.homes[document.seen_from] = found
                self.spans.hear_clock(document.seen_from, document.at_unix_ms, asked_unix_ms, wall_ms())
                self._show_soon()
            except (NotReached, Refused) as error:
                self._missed(name, str(error))
                await asyncio.sleep(AGAIN_S)
                found = where()
            await self._rest(happened)

    def _show_soon(self) -> None:
        if self._asks_now:
            self._asks_now = False
            self.answered.send()

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
        seen, has_past = 0, False
        while True:
            with contextlib.suppress(NotReached, Refused, aiohttp.ClientError, OSError, TimeoutError, ValueError):
                found = where()
                if found is None:
                    raise NotReached("nobody is there")
                has_past = has_past or await self._load_history(found)
                async for raw in self._events(found, seen):
                    seen = number_of(raw.get("number")) or seen
                    row = event_row(raw)
                    if row is not None and len(self._news) < NEWS_MAX:
                        self._news += self.record.add((row,))
                        self._react(row)
            await asyncio.sleep(AGAIN_S)

    # --- the last day -------------------------------------------------------------------------------------------------

    async def _load_history(self, found: FoundNode) -> bool:
        """The newest that a node kept, as much as stands here; what happened before this page was started is in it.
        Whether that is done: a lab, or a node of an earlier version, keeps none, and tells its last events."""
        try:
            past = await self._past(found, f"/v1/history?most={EVENTS_MAX}")
        except Refused as error:
            return not isinstance(error, Later)
        except NotReached:
            return False
        for one in past.before:
            self.record.stood(Row(*one))
        fresh = self.record.add(Row(*one) for one in past.told)
        self._news += fresh[: max(0, NEWS_MAX - len(self._news))]
        for node, since, to, token in past.holds:
            self.spans.hear_span(node, token, HoldSpan(since, to))
        self.kept[past.node] = past._replace(told=(), before=(), after=(), holds=(), left=0, to_ms=0)
        return True

    async def _keep_kept(self) -> None:
        """How far back, and how many events when: for the bar above the lanes."""
        while True:
            await asyncio.sleep(KEPT_AGAIN_S)
            for name, found in self._answering().items() if self.is_watched else ():
                if name not in self.kept:
                    await self._load_history(found)  # it did not answer in time when the page began
                    continue
                with contextlib.suppress(NotReached, Refused):
                    past = await self._past(found, f"/v1/history?from={wall_ms()}&most=1")
                    self.kept[name] = self.kept[name]._replace(kept_from_ms=past.kept_from_ms, counts=past.counts)

    async def _past(self, found: FoundNode, path: str) -> Past:
        past = past_of(await self._get(found, path, aiohttp.ClientTimeout(total=HISTORY_S)))
        if past is None:
            raise NotReached(f"what answers at {_at(found)} is no node of primacy")
        return past

    def kept_now(self) -> list[Past]:
        """For the live timeline: what is complete here, and how much more there is."""
        stood = tuple(Told(*row) for row in self.record.before.values())
        dropped_ms = self.record.dropped_ms
        found = [past._replace(from_ms=max(past.from_ms, dropped_ms), before=stood) for past in self.kept.values()]
        return [past for past in found if past.kept_from_ms]

    async def pasts(self, from_ms: int, to_ms: int) -> list[Past]:
        """What the nodes that are read here kept of a range. Raises `NotReached` if none does."""
        homes = list(self._answering().values())[:HISTORIES_MAX]
        most = max(RANGE_EVENTS_LEAST, RANGE_EVENTS_MAX // max(1, len(homes)))
        path = f"/v1/history?from={from_ms}&to={to_ms}&most={most}"
        answers = await asyncio.gather(*(self._past(found, path) for found in homes), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, NotReached | Refused):
                raise answer
        found = [answer for answer in answers if isinstance(answer, Past) and answer.kept_from_ms]
        if not found:
            raise NotReached("no node that answers here has kept this time")
        return found

    async def cluster(self) -> dict[str, Any]:
        """How the first node that answers says that it stands; empty if none does."""
        for found in self._answering().values():
            with contextlib.suppress(NotReached, Refused):
                return dict(object_of(current(await self._get(found, "/v1/cluster"))))
        return {}

    def _react(self, row: Row) -> None:
        """To what is new: nodes are asked again. That a command is gone is shown without asking."""
        if row.code in STIRRING and wall_ms() - row.at_unix_ms < NEW_MS:
            self._happened.send()
            if row.code == GONE:
                self.gone[row.node] = now_ms()
                self.answered.send()

    async def _events(self, found: FoundNode, after: int) -> AsyncIterator[dict[str, Any]]:
        earlier = await self._get(found, f"/v1/events?after={after}")
        for raw in earlier if isinstance(earlier, list) else []:
            if isinstance(raw, dict):
                after = number_of(raw.get("number")) or after
                yield raw
        self._has_events = True
        assert self._session is not None
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        limit = aiohttp.ClientTimeout(total=None, sock_connect=ASK_S, sock_read=60)
        url = _url(found, "/v1/events")
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
            happened = self._happened.count
            try:
                asked_ms = now_ms()
                raw = object_of(await self._get(lab_at, "/v1/lab"))
                found = lab_of(raw)
                if found is None:
                    raise NotReached(f"what answers at {_at(lab_at)} is no lab of primacy")
                self._take_lab(found, raw, asked_ms)
                self._show_soon()
            except (NotReached, Refused) as error:
                self.lab_error = str(error)
                for name in tuple(self.reads) or ("the lab",):
                    self._missed(name, str(error))
                await asyncio.sleep(AGAIN_S)
            await self._rest(happened)

    def _take_lab(self, lab: Lab, raw: Mapping[str, Any], asked_ms: int) -> None:
        if self.lab is None and not self.plan.text:
            self.plan = plan_of_profile(lab.strategy, lab.profile)
        self.lab, self.lab_error = lab, ""
        for name in (node.node for node in lab.nodes if node.node not in self._heard_itself):
            self._heard_itself.add(name)  # the lab tells its events as well, but later, from its file
            self._tasks.append(asyncio.create_task(self._listen(partial(self.address_of, name))))
        self.chain = chain_of(raw.get("chain")) or self.chain
        if self.chain is not None:
            self.spans.hear_chain(self.chain)
        self.reads.pop("the lab", None)
        took_ms = now_ms() - asked_ms
        for node, each in zip(lab.nodes, list_of(raw.get("nodes"), len(lab.nodes)), strict=False):
            head = head_of(object_of(each).get("state"))
            name = f"node {node.node} of the lab"
            if node.said is not None and head is not None:
                self.reads[name] = Read(name, head._replace(rows=(node.said,)), asked_ms, took_ms=took_ms)
            else:
                self._missed(name, f"node {node.node} does not answer")

    # --- asking -------------------------------------------------------------------------------------------------------

    async def document(self, node: str) -> Any:
        """A node's own state document, with its counters; None if its API is not read here."""
        found = self.address_of(node) if self.lab_at is not None else self.homes.get(node)
        return await self._get(found, "/v1/state") if found is not None else None

    async def audits(self, within_s: float) -> tuple[list[Audited], list[str]]:
        return await self.audits_of(self._answering(), within_s)

    async def audits_of(self, homes: Mapping[str, FoundNode], within_s: float) -> tuple[list[Audited], list[str]]:
        """What these were asked, and which of them do not tell it."""
        limit = aiohttp.ClientTimeout(total=within_s)
        answers = await asyncio.gather(
            *(self._get(found, f"/v1/audit?last={AUDITED_MAX}", limit) for found in homes.values()),
            return_exceptions=True,
        )
        rows, missed = [], []
        for name, said in zip(homes, answers, strict=True):
            if isinstance(said, NotReached | Refused):
                missed.append(name)
            elif isinstance(said, BaseException):
                raise said
            else:
                rows += [audit_row(raw) for raw in list_of(object_of(said).get("requests"), AUDITED_MAX)]
        return rows, missed

    def _answering(self) -> dict[str, FoundNode]:
        """Where nodes themselves answer, by their names."""
        if self.lab_at is None:
            return dict(self.homes)
        found = {name: self.address_of(name) for name in self._names()}
        return {name: at for name, at in found.items() if at is not None}

    async def order_node(self, node: str, path: str, body: dict[str, Any], who: str) -> Any:
        """Said to the node itself if it can be, else to one that answers and passes it on."""
        for name in (node, *sorted(self._names())):
            address = self.address_of(name) if name else None
            if address is not None:
                return await self._order(address, path, body, who)
        raise NotReached("no node answers, so that nobody can be told")

    async def order_lab(self, path: str, body: dict[str, Any], who: str) -> Any:
        assert self.lab_at is not None
        return await self._order(self.lab_at, path, body, who)

    async def _order(self, found: FoundNode, path: str, body: dict[str, Any], who: str) -> Any:
        """Raises `NotReached`, or `Refused` with the sentence of whoever refused."""
        assert self._session is not None
        headers = {ORDER_HEADER: who, **({KEY_HEADER: found.key} if found.key else {})}
        limit = aiohttp.ClientTimeout(total=ORDER_S)
        url, trust = _url(found, path), _trusted(found)
        return await self._answer(self._session.post(url, json=body, headers=headers, timeout=limit, ssl=trust), found)

    async def get(self, found: FoundNode, path: str) -> Any:
        """Raises `NotReached` or `Refused`."""
        return await self._get(found, path)

    async def _get(self, found: FoundNode, path: str, limit: aiohttp.ClientTimeout | None = None) -> Any:
        assert self._session is not None
        url, trust, limit = _url(found, path), _trusted(found), limit or aiohttp.ClientTimeout(total=ASK_S)
        return await self._answer(self._session.get(url, ssl=trust, timeout=limit), found)

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
            is_later = isinstance(said, dict) and said.get("again") is True
            raise (Later if is_later or status == GATEWAY_TIMEOUT else Refused)(
                str(sentence or f"{where} refused with {status}")[:500]
            )
        return said


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "too slow"
    system = getattr(error, "os_error", None) or error
    number = getattr(system, "errno", None)
    return os.strerror(number).lower() if isinstance(number, int) and number > 0 else type(error).__name__


def _at(found: FoundNode) -> str:
    return f"[{found.host}]:{found.port}" if ":" in found.host else f"{found.host}:{found.port}"


def _url(found: FoundNode, path: str) -> str:
    return f"{'https' if found.certificate else 'http'}://{_at(found)}{path_of(found, path)}"


def _trusted(found: FoundNode) -> aiohttp.Fingerprint | bool:
    """A node with TLS must show the very certificate that its state folder names."""
    return aiohttp.Fingerprint(bytes.fromhex(found.certificate)) if found.certificate else True
