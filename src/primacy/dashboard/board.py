"""What one stream shows: a cluster's election, or all elections of an agent; read once for all browsers that watch it.

An election of an agent with several is read while somebody looks at it, and a little longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from primacy.dashboard.cache import cache_strip
from primacy.dashboard.clicks import Scene
from primacy.dashboard.cluster_timeline import cluster_timeline, past_facts, past_timeline
from primacy.dashboard.elections import Told, elections_view, told_of
from primacy.dashboard.hub import Hub
from primacy.dashboard.known import Model
from primacy.dashboard.leases import stores_strip
from primacy.dashboard.record import Record
from primacy.dashboard.rows import Audited
from primacy.dashboard.source import AGAIN_S, IDLE_LOOK_S, Pulse, Source, Where, now_ms, wall_ms
from primacy.dashboard.standing import DOWN
from primacy.dashboard.view import view
from primacy.errors import NotReached, Refused
from primacy.timeline.history import Past, incident
from primacy.timeline.schema import Timeline
from primacy.timeline.schema import Told as Event

TICK_S = 0.2
"""Between two frames, unless something happened: then one follows at once. Between them the page moves by itself."""
IDLE_TICK_S = 1.0
FOLD_MS = 400
"""A timeline is folded at most this often, once for all browsers."""
LOOK_S = 0.5
"""How often an agent is asked for all of its elections while somebody watches."""


NOTHING_KNOWN: Model = {
    "level": "unknown",
    "alert": "",
    "holder": {"level": "unknown", "text": "No node is read here: slots alone", "node": "", "since_unix_ms": 0},
    "margin": {"level": "unknown", "text": ""},
    "change": None,
    "of_many": True,
    "title": "no node",
}


class Board(ABC):
    """A model, its frames, and those who watch."""

    def __init__(self, record: Record) -> None:
        self.hub = Hub(record)
        self.extras: Callable[[], Model] = dict
        """Parts that every board has: what is read beside the elections."""
        self.model: Model = {}
        self.answered = Pulse()
        self.left_ms = now_ms()
        """When the last one who watched left."""
        self._ticking: asyncio.Task[None] | None = None

    async def audits(self, within_s: float) -> tuple[list[Audited], list[str]]:  # noqa: ARG002
        """What the nodes that are read here were asked, and which of them do not tell it."""
        return [], []

    async def start(self) -> None:
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking
        for watcher in tuple(self.hub.watchers):
            watcher.set()

    async def attend(self) -> None:
        """Somebody came, or left."""
        self.left_ms = now_ms()

    @abstractmethod
    def show(self) -> None:
        """Makes a frame, if there is something to say."""

    async def _tick(self) -> None:
        """Makes a frame, five times a second while somebody watches, and seldom when nobody does."""
        while True:
            seen = self.answered.count
            self.show()
            await self.answered.within(TICK_S, seen)
            waited_s = TICK_S
            while not self.hub.watchers and waited_s < IDLE_TICK_S:
                await asyncio.sleep(TICK_S)
                waited_s += TICK_S


class ElectionBoard(Board):
    """One election."""

    def __init__(self, source: Source, among: AgentBoard | None = None) -> None:
        """`among`: the others of the same agent."""
        super().__init__(source.record)
        self.source = source
        self.answered = source.answered
        self.among = among
        self._folded: tuple[int, str] = (-FOLD_MS, "")

    async def audits(self, within_s: float) -> tuple[list[Audited], list[str]]:
        return await self.source.audits(within_s)

    async def start(self) -> None:
        await self.source.start()
        await super().start()

    async def close(self) -> None:
        await super().close()
        await self.source.close()

    async def attend(self) -> None:
        await super().attend()
        await self.source.attend(watched=bool(self.hub.watchers))

    def show(self) -> None:
        known = self.source.known()
        self.model = view(known)
        if self.among is not None:
            self.model["head"]["many"] = True
            self.model["elections"] = self.among.model.get("elections")
        self.model.update(self.extras())
        self.hub.publish(self.model, self.source.take_news(), known.now_ms, wall_ms())

    def timeline(self) -> str:
        """All that is known, in the schema of docs/timeline.md."""
        at_ms, text = self._folded
        if now_ms() - at_ms >= FOLD_MS:
            kept = self.source.kept_now()
            found = cluster_timeline(self.source.known(), self.source.spans, wall_ms(), kept=kept)
            text = _json(found)
            self._folded = (now_ms(), text)
        return text

    async def past(self, from_ms: int, to_ms: int) -> str:
        """The same of a range that the nodes kept. Raises `NotReached`."""
        pasts = await self.source.pasts(from_ms, to_ms)
        facts = past_facts(self.source.known(), self.source.spans, wall_ms(), pasts)
        found = await asyncio.to_thread(past_timeline, facts, pasts)
        return _json(found)

    async def incident(self, from_ms: int, to_ms: int) -> Timeline:
        """Of a range, for a file: the one that `primacy why --export` writes of it. A lab knows more, and a node of an
        earlier version keeps no day: then it is made of what is read here."""
        if self.source.lab_at is None:
            with contextlib.suppress(NotReached):
                pasts, cluster = await self.source.pasts(from_ms, to_ms), await self.source.cluster()
                return await asyncio.to_thread(incident, pasts, cluster, wall_ms())
        known = self.source.known()
        stood = tuple(Event(*row) for row in known.before)
        ranged = [Past(from_ms=from_ms, to_ms=min(to_ms, wall_ms()), before=stood)] if from_ms else []
        return cluster_timeline(known, self.source.spans, wall_ms(), "incident", ranged)

    def scene(self) -> Scene:
        nodes: list[Mapping[str, Any]] = [self.model[f"node:{name}"] for name in self.model.get("order", [])]
        job = self.model.get("job", {})
        return Scene(
            names=tuple(each["node"] for each in nodes),
            leader=job.get("node") or "",
            lab=self.source.lab_at is not None,
            down=tuple(each["node"] for each in nodes if each["there"] in DOWN),
            frozen=tuple(each["node"] for each in nodes if each["there"] == "frozen"),
        )


def _json(found: Timeline) -> str:
    return json.dumps(found.document(), ensure_ascii=False, separators=(",", ":"))


class NoNodesBoard(Board):
    """Stores and a cache alone: programs use them, and no node is read."""

    def __init__(self) -> None:
        super().__init__(Record())

    def show(self) -> None:
        extras = self.extras()
        head = {"cluster": ", ".join(sorted(extras)), "election": "", "strategy": "", "many": True}
        source = {"ok": True, "text": "", "since_unix_ms": 0}
        strip = NOTHING_KNOWN
        if "leases" in extras:
            strip = stores_strip(extras["leases"])
        elif "cache" in extras:
            strip = cache_strip(extras["cache"])
        self.model = {"head": head, "source": source, "strip": strip, "alerts": [], "order": [], **extras}
        self.hub.publish(self.model, [], now_ms(), wall_ms())


class AgentBoard(Board):
    """All elections of an agent, in short."""

    def __init__(self, where: Where, reader: Source) -> None:
        """`where`: the agent. `reader`: who asks it."""
        super().__init__(Record())
        self.where = where
        self.reader = reader
        self.told: Told | None = None
        self.is_watched: Callable[[], bool] = lambda: bool(self.hub.watchers)
        """Also by those who look at one of its elections: that page shows all of them, too."""
        self.error = "the agent was not asked yet"
        self.failing_since_unix_ms = wall_ms()
        self._looking: asyncio.Task[None] | None = None

    @property
    def names(self) -> set[str]:
        return {row.election for row in self.told.rows} if self.told is not None else set()

    async def audits(self, within_s: float) -> tuple[list[Audited], list[str]]:
        """Of all elections of the agent."""
        found = self.where()
        if found is None:
            return [], ["the agent"]
        return await self.reader.audits_of({"the agent": found}, within_s)

    async def start(self) -> None:
        await self.reader.start()
        self._looking = asyncio.get_running_loop().create_task(self._look())
        await super().start()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        await super().close()
        await self.reader.close()

    def show(self) -> None:
        self.model = elections_view(self.told, self.error, self.failing_since_unix_ms)
        self.model.update(self.extras())
        self.hub.publish(self.model, [], now_ms(), wall_ms())

    async def _look(self) -> None:
        found = self.where()
        while True:
            try:
                if found is None:
                    raise NotReached("no agent runs here; primacy agent starts one")
                told = told_of(await self.reader.get(found, "/v1/elections"))
                if told is None:
                    raise NotReached("what answers is no agent of primacy with several elections")
                self.told, self.error = told, ""
            except (NotReached, Refused) as error:
                if not self.error:
                    self.failing_since_unix_ms = wall_ms()
                self.error = str(error)
                await asyncio.sleep(AGAIN_S)
                found = self.where()  # a restart may move it
            self.answered.send()
            await asyncio.sleep(LOOK_S if self.is_watched() else IDLE_LOOK_S)
