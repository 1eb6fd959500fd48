"""The smallest machine of a cache: one peer alone, no election. For tests of what drives a machine."""

from __future__ import annotations

from random import Random

from primacy.cache import effects as fx
from primacy.cache import inputs as given_as
from primacy.cache.inputs import Input
from primacy.cache.model import Ballot, CacheSettings, Fetched, Floor, Meta, PeerAddress
from primacy.cache.waiting import Waiting

FAR_MS = 1 << 60
HOUR_MS = 3_600_000


class AloneMachine:
    """Fetches what is missing, gives what it has."""

    def __init__(self, me: str, peers: tuple[PeerAddress, ...], settings: CacheSettings, chance: Random) -> None:
        self.me, self.settings = me, settings
        self.fresh_until_ms = FAR_MS
        self.metas: dict[bytes, Meta] = {}
        self.calls: dict[bytes, tuple[Ballot, int]] = {}
        self.waiting = Waiting(settings.timing.keepalive_ms)
        self.boot = self.term = 0

    @property
    def deadline_ms(self) -> int | None:
        return self.waiting.deadline_ms

    def retire(self) -> None:
        pass

    def step(self, now_ms: int, wall_ms: int, given: Input) -> list[fx.Effect]:
        match given:
            case given_as.Started(boot, metas):
                self.boot, self.metas = boot, dict(metas)
            case given_as.TimerPassed():
                return self.waiting.passed(now_ms, lambda key: key not in self.calls)
            case given_as.Asked():
                return self._asked(now_ms, wall_ms, given)
            case given_as.Withdrawn(request):
                self.waiting.withdraw(request)
            case given_as.SourceEnded(key, ballot, result):
                return self._ended(key, ballot, result)
            case given_as.ValueGone(key):
                self.metas.pop(key, None)
            case given_as.Invalidate(request, key, prefix):
                self.term += 1
                for known in [one for one in self.metas if one == key or (prefix and one.startswith(key))]:
                    del self.metas[known]
                return [fx.StoreFloor(Floor(key, prefix, self.term)), fx.Finished(request, True)]
            case given_as.Refresh(request, key):
                return [*self._fetch(key, now_ms, wall_ms), fx.Finished(request, True)]
            case given_as.Put(request, key, value, ttl_ms):
                self.term += 1
                ballot = Ballot(self.term, self.me, self.boot)
                meta = self.metas[key] = Meta(self.term, wall_ms + ttl_ms, ballot, len(value), wall_ms)
                return [fx.StoreEntry(key, meta, value), fx.Finished(request, True)]
        return []

    def _asked(self, now_ms: int, wall_ms: int, given: given_as.Asked) -> list[fx.Effect]:
        meta = self.metas.get(given.key, Meta())
        fetch = self._fetch(given.key, now_ms, wall_ms) if given.fetch and meta.expire_ms <= wall_ms else []
        if meta.expire_ms > given.after_ms:
            return [fx.Give(given.request, given.key, meta, meta.expire_ms <= wall_ms), *fetch]
        if not given.fetch:
            return [fx.SeeOther(given.request, miss=True)]
        return [*self.waiting.add(now_ms, given.request, given.key, given.after_ms, until_ms=given.until_ms), *fetch]

    def _fetch(self, key: bytes, now_ms: int, wall_ms: int) -> list[fx.Effect]:
        if key in self.calls:
            return []
        self.term += 1
        ballot = Ballot(self.term, self.me, self.boot)
        self.calls[key] = ballot, wall_ms
        return [fx.Call(key, ballot, now_ms + HOUR_MS, now_ms + HOUR_MS)]

    def _ended(self, key: bytes, ballot: Ballot, result: object) -> list[fx.Effect]:
        _, began_ms = self.calls.pop(key)
        if not isinstance(result, Fetched):
            return self.waiting.refuse(key, str(result))
        ttl_ms = result.ttl_ms or self.settings.sources[0].ttl_ms
        meta = self.metas[key] = Meta(ballot.term, began_ms + ttl_ms, ballot, len(result.value), began_ms)
        return [fx.StoreEntry(key, meta, result.value), *self.waiting.give(key, meta, stale=False)]
