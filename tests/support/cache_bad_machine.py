"""A cache machine that is no good, for tests of the world and of its checkers: the first peer of the list fetches
everything, alone, and tells the others. It needs no election, so it breaks nothing, and stands still without that peer.
"""

from __future__ import annotations

from primacy.cache import effects, inputs
from primacy.cache.messages import Trailer, Update
from primacy.cache.model import ALL, NO_BALLOT, Ballot, Fetched, Meta

HOLD_MS = 600


class FirstFetches:
    """`everybody`: each peer fetches what it is asked for, which no checker can let pass."""

    everybody = False
    fresh_until_ms = 0

    def __init__(self, me, peers, settings, chance):
        self.me = me
        self.first = min(peer.url for peer in peers)
        self.ttl_ms = settings.sources[0].ttl_ms if settings.sources else 1_000
        self.deadline_ms = None
        self.metas = {}
        self.waiting = {}
        self.calls = {}
        self.term = 0

    def step(self, now_ms, wall_ms, given):
        match given:
            case inputs.Started(boot, metas, _, _):
                self.boot, self.metas = boot, dict(metas)
                return []
            case inputs.Asked(request, key, after_ms, fetch):
                return self._asked(now_ms, wall_ms, request, key, min(after_ms, wall_ms), fetch)
            case inputs.Withdrawn(request):
                for waiting in self.waiting.values():
                    waiting[:] = [one for one in waiting if one[0] != request]
                return []
            case inputs.TimerPassed():
                return self._extend(now_ms)
            case inputs.SourceEnded(key, ballot, result):
                return self._ended(wall_ms, key, ballot, result)
            case inputs.Received(_, Update(key, term, expire_ms, value, trailer)):
                if trailer.epoch.term <= self.metas.get(key, Meta()).epoch.term:
                    return []
                meta = Meta(term, expire_ms, trailer.epoch, len(value), 0)
                return [*self._store(key, meta, value), *self._answer(wall_ms, key)]
            case inputs.ValueGone(key, epoch):
                meta = self.metas.get(key, Meta())
                if meta.epoch != epoch:
                    return []
                meta = meta._replace(expire_ms=0, size=0)
                self.metas[key] = meta
                return [effects.StoreMeta(key, meta)]
            case inputs.Invalidate(request) | inputs.Refresh(request) | inputs.Put(request) | inputs.Reload(request):
                return [effects.Finished(request, False, "this machine cannot")]
        return []

    def _asked(self, now_ms, wall_ms, request, key, after_ms, fetch):
        meta = self.metas.get(key, Meta())
        if meta.expire_ms > after_ms:
            return [effects.Give(request, key, meta, meta.expire_ms <= wall_ms)]
        if not fetch:
            return [effects.SeeOther(request, miss=True)]
        if self.me != self.first and not self.everybody:
            return [effects.SeeOther(request)]
        self.waiting.setdefault(key, []).append((request, after_ms))
        found = [effects.KeepAlive(request)]
        if key not in self.calls:
            self.term = max(self.term + 1, wall_ms + 3_000)
            self.calls[key] = (Ballot(self.term, self.me, self.boot), wall_ms)
            times = now_ms + HOLD_MS - 150, now_ms + HOLD_MS
            found += [effects.StoreCeiling(self.term), effects.Call(key, self.calls[key][0], *times)]  # type: ignore[list-item]
            self.deadline_ms = now_ms + 100
        return found

    def _extend(self, now_ms):
        self.deadline_ms = now_ms + 100 if self.calls else None
        times = now_ms + HOLD_MS - 150, now_ms + HOLD_MS
        waiting = [effects.KeepAlive(request) for key in self.waiting for request, _ in self.waiting[key]]
        return [effects.Extend(key, ballot, *times) for key, (ballot, _) in self.calls.items()] + waiting

    def _ended(self, wall_ms, key, ballot, result):
        _, began_ms = self.calls.pop(key)
        if not isinstance(result, Fetched):
            return [effects.SeeOther(request) for request, _ in self.waiting.pop(key, ())]
        expire_ms = began_ms + (result.ttl_ms or self.ttl_ms)
        meta = Meta(ballot.term, expire_ms, ballot, len(result.value), began_ms)
        trailer = Trailer(ballot=ballot, epoch=ballot)
        update = effects.Send(ALL, Update(key, ballot.term, expire_ms, result.value, trailer))
        return [*self._store(key, meta, result.value), update, *self._answer(wall_ms, key)]

    def _store(self, key, meta, value):
        self.metas[key] = meta
        assert meta.epoch != NO_BALLOT
        return [effects.StoreEntry(key, meta, value)]

    def _answer(self, wall_ms, key):
        meta = self.metas[key]
        return [
            effects.Give(request, key, meta, meta.expire_ms <= wall_ms)
            if meta.expire_ms > after_ms
            else effects.SeeOther(request)
            for request, after_ms in self.waiting.pop(key, ())
        ]


class EverybodyFetches(FirstFetches):
    everybody = True


def simple(cls=FirstFetches):
    def make(settings):
        return lambda peer, peers, chance: cls(peer.url, peers, settings, chance)

    return make
