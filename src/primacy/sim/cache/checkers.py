"""What is judged in a trial of the cache. Checkers see facts only, in true time.

S1 one peer sources a key at any instant · S2 a late result of a fenced source never replaces a newer epoch · S3 what is
stale, or older than a completed invalidation, is never given as fresh · S4 terms and epochs only grow · C2, C4, C8, C11
what these rest on, where an outsider can see it · R every client has its answer, once, and words until then · K nothing
that was stored is lost · E1 an input from the wire causes one message per receiver. Progress: `cache_progress.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from primacy.cache.model import Ballot, Meta, order
from primacy.sim.cache.facts import (
    Acked,
    Asked,
    BadOrder,
    CallBegan,
    CallCounts,
    CallOver,
    Down,
    Echoed,
    Ended,
    Fact,
    Frozen,
    Given,
    LateExtend,
    MetaStored,
    Missed,
    Ordered,
    PutBrought,
    Up,
    ValueDropped,
    ValueStored,
    Withdrew,
    Word,
)
from primacy.sim.cache.progress import about
from primacy.sim.cache.storage import covers
from primacy.sim.checkers import Violation

Report = Callable[[Violation], None]

FIRST_WORD_MS = 450.0
"""A client hears something within this, before it turns to the next peer after 500 ms."""
NEXT_WORD_MS = 1_900.0
"""And then again and again; after 2,000 ms it would turn away."""
FINISHED_MS = 400.0
"""An invalidate, refresh or put says how it ended at the latest this long after its deadline."""


class Origin(NamedTuple):
    """Where a value comes from."""

    key: bytes
    began_ms: float
    ballot: Ballot | None
    """None: a client brought it."""
    expire_max_ms: int
    """By the wall clock of its fetcher."""


class SourcingChecker:
    """S1; once per ballot (C4); a call is over by the end of its hold (C4); epochs of calls grow in true time (S4)."""

    def __init__(self, report: Report, allowance_ms: int = 0) -> None:
        self.report = report
        self.allowance_ms = allowance_ms
        """A start without memory knows no terms but those up to its wall clock and this (C2)."""
        self.forgot: dict[str, list[Up]] = {}
        self.acks: dict[bytes, dict[Ballot, dict[str, list[float]]]] = {}
        """Of each key and ballot: who acked it, and when."""
        self.running: dict[bytes, dict[int, str]] = {}
        self.calls: dict[int, CallBegan] = {}
        self.highest: dict[bytes, CallBegan] = {}
        self.ballots: set[tuple[bytes, Ballot]] = set()

    def __call__(self, fact: Fact) -> None:
        match fact:
            case CallBegan():
                self._began(fact)
            case CallCounts(at_ms, number, on):
                call = self.calls[number]
                self.running.setdefault(call.key, {}).pop(number, None)
                if on:
                    self._runs(at_ms, call)
            case CallOver(at_ms, number, within_hold):
                call = self.calls[number]
                self.running.setdefault(call.key, {}).pop(number, None)
                if not within_hold:
                    self._say(at_ms, "C4", f"a call of {call.peer} for {call.key!r} outlived its hold")
            case Up(peer=peer, forgot=True):
                self.forgot.setdefault(peer, []).append(fact)
            case Acked(at_ms, peer, key, ballot):
                self.acks.setdefault(key, {}).setdefault(ballot, {}).setdefault(peer, []).append(at_ms)
            case LateExtend(at_ms, peer, key):
                self._say(at_ms, "C4", f"{peer} prolongs its call for {key!r} after the moment of its cancel")

    def _began(self, call: CallBegan) -> None:
        self.calls[call.number] = call
        if (call.key, call.ballot) in self.ballots:
            self._say(call.at_ms, "C4", f"{call.peer} called the source twice for {call.key!r} under one ballot")
        self.ballots.add((call.key, call.ballot))
        before = self.highest.get(call.key)
        if before is None or order(call.key, before.ballot) < order(call.key, call.ballot):
            self.highest[call.key] = call
        elif not self._forgotten(before, call):
            self._say(
                call.at_ms,
                "S4",
                f"{call.peer} calls for {call.key!r} under {call.ballot.term}, not above {before.ballot.term} of "
                f"{before.peer}, which began {call.at_ms - before.at_ms:.0f} ms earlier",
            )
        self._runs(call.at_ms, call)

    def _forgotten(self, before: CallBegan, call: CallBegan) -> bool:
        """Every peer that helped first the higher ballot and then this one has started in between without memory, or
        with what a full disk had kept, and cannot know a term that is so far ahead: the limit of what is promised then.
        Two majorities share a peer, so that there is one."""
        earlier, later = self._helped(before), self._helped(call)
        both = [(peer, min(earlier[peer]), max(later[peer])) for peer in earlier if max(later.get(peer, [-1.0])) >= 0.0]
        knew = [(peer, from_ms, to_ms) for peer, from_ms, to_ms in both if from_ms < to_ms]
        return bool(knew) and all(self._forgot(before, *each) for each in knew)

    def _helped(self, call: CallBegan) -> dict[str, list[float]]:
        """Who acked the ballot of this call before it began, the caller included, and when."""
        acks = self.acks.get(call.key, {}).get(call.ballot, {})
        found = {peer: [at_ms for at_ms in moments if at_ms <= call.at_ms] for peer, moments in acks.items()}
        return {peer: moments for peer, moments in found.items() if moments} | {call.peer: [call.at_ms]}

    def _forgot(self, before: CallBegan, peer: str, from_ms: float, to_ms: float) -> bool:
        """The last start of this peer in between could not know the term, and nobody has told it since."""
        starts = [up for up in self.forgot.get(peer, ()) if from_ms < up.at_ms < to_ms]
        if not starts or self._knows(starts[-1], before.key) >= before.ballot.term:
            return False
        heard = [
            at_ms
            for ballot, acks in self.acks.get(before.key, {}).items()
            if order(before.key, ballot) >= order(before.key, before.ballot)
            for at_ms in acks.get(peer, ())
        ]
        return not any(starts[-1].at_ms < at_ms < to_ms for at_ms in heard)

    def _knows(self, up: Up, key: bytes) -> int:
        """The highest term of this key that a start can know (C2)."""
        kept = max((meta.term for known, meta in up.kept if known == key), default=0)
        return max(kept, up.wall_ms + self.allowance_ms if up.ceiling is None else max(up.ceiling, up.wall_ms))

    def _runs(self, at_ms: float, call: CallBegan) -> None:
        running = self.running.setdefault(call.key, {})
        for number, peer in running.items():
            self._say(
                at_ms,
                "S1",
                f"{call.peer} sources {call.key!r} (call {call.number}) while {peer} does (call {number})",
            )
        running[call.number] = call.peer

    def _say(self, at_ms: float, rule: str, sentence: str) -> None:
        self.report(Violation(at_ms, rule, sentence))


class ValueChecker:
    """S2, S3, S4 and C8: where values come from, what replaces what, what is given as fresh."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.origins: dict[int, Origin] = {}
        self.held: dict[tuple[str, bytes], Meta] = {}
        """The newest that this boot of a peer has stored of a key."""
        self.numbers: dict[tuple[bytes, Ballot], int] = {}
        self.promised: dict[tuple[str, bytes], Acked] = {}
        self.ended: set[tuple[bytes, Ballot]] = set()
        self.orders: dict[int, Ordered] = {}
        self.done: list[Ordered] = []
        """Invalidations that have completed."""

    def __call__(self, fact: Fact) -> None:
        match fact:
            case CallBegan(at_ms, _, key, ballot, number, wall_ms, ttl_ms):
                self.origins[number] = Origin(key, at_ms, ballot, wall_ms + ttl_ms)
            case PutBrought(at_ms, _, key, number, ttl_ms):
                self.origins[number] = Origin(key, at_ms, None, ttl_ms)
            case ValueStored():
                self._stored(fact)
            case MetaStored(at_ms, peer, key, meta):
                self._grows(at_ms, peer, key, meta)
            case ValueDropped(peer=peer, key=key):
                pass
            case Acked(peer=peer, key=key):
                self.promised[peer, key] = fact
            case Ended(key=key, ballot=ballot):
                self.ended.add((key, ballot))
            case Given():
                self._given(fact)
            case Up(peer=peer, kept=kept):
                self.held = {at: meta for at, meta in self.held.items() if at[0] != peer}
                self.held.update({(peer, key): meta for key, meta in kept})
                self.promised = {at: acked for at, acked in self.promised.items() if at[0] != peer}
            case Ordered(request=request, what="invalidate"):
                self.orders[request] = fact
            case Word(request=request, what="Finished", ok=True):
                if request in self.orders:
                    self.done.append(self.orders.pop(request))

    # --- storing ------------------------------------------------------------------------------------------------------

    def _stored(self, fact: ValueStored) -> None:
        at_ms, key, epoch = fact.at_ms, fact.key, fact.meta.epoch
        origin = self.origins.get(fact.number)
        if origin is None or origin.key != key:
            self._say(at_ms, "C8", f"{fact.peer} stores a value of {key!r} that nobody fetched for it")
            return
        if origin.ballot is not None and origin.ballot != epoch:
            self._say(at_ms, "C8", f"{fact.peer} stores {key!r} as of {epoch}; its call was made under {origin.ballot}")
        latest_ms = origin.expire_max_ms
        if origin.ballot is None and (key, epoch) not in self.numbers:
            # A client brought it: its time counts from when its peer takes it, and so does its place in the order.
            latest_ms = origin.expire_max_ms + fact.wall_ms
            self.origins[fact.number] = origin._replace(began_ms=at_ms, expire_max_ms=latest_ms)
        if fact.meta.expire_ms > latest_ms:
            self._say(
                at_ms, "C8", f"{fact.peer} keeps {key!r} for {fact.meta.expire_ms - latest_ms} ms longer than told"
            )
        if fact.late_ms > 0 and (key, epoch) not in self.numbers:
            self._say(at_ms, "C4", f"{fact.peer} uses its result for {key!r} {fact.late_ms} ms after its hold was over")
        known = self.numbers.setdefault((key, epoch), fact.number)
        if known != fact.number:
            self._say(at_ms, "C8", f"two values of {key!r} have the epoch {epoch}")
        self._fenced(fact)
        self._grows(at_ms, fact.peer, key, fact.meta)

    def _fenced(self, fact: ValueStored) -> None:
        """While its promise to a newer ballot runs, a peer takes no older value (C8)."""
        acked = self.promised.get((fact.peer, fact.key))
        if acked is None or (fact.key, acked.ballot) in self.ended:
            return
        if fact.at_ms < acked.at_ms + acked.promise_ms and order(fact.key, fact.meta.epoch) < order(
            fact.key, acked.ballot
        ):
            self._say(
                fact.at_ms,
                "S2",
                f"{fact.peer} takes the late {fact.meta.epoch.term} of {fact.key!r} although it follows "
                f"{acked.ballot.term} of {acked.ballot.peer}",
            )

    def _grows(self, at_ms: float, peer: str, key: bytes, meta: Meta) -> None:
        before = self.held.get((peer, key))
        self.held[peer, key] = meta
        if before is None:
            return
        if order(key, meta.epoch) < order(key, before.epoch):
            self._say(at_ms, "S2", f"{peer} replaces {before.epoch.term} of {key!r} by the older {meta.epoch.term}")
        if meta.term < before.term:
            self._say(at_ms, "S4", f"{peer} falls from term {before.term} of {key!r} to {meta.term}")

    # --- giving -------------------------------------------------------------------------------------------------------

    def _given(self, fact: Given) -> None:
        before = self.held.get((fact.peer, fact.key))
        if before is not None and order(fact.key, fact.meta.epoch) < order(fact.key, before.epoch):
            self._say(
                fact.at_ms, "S4", f"{fact.peer} gives {fact.meta.epoch.term} of {fact.key!r} and holds a newer one"
            )
        if fact.after_ms and fact.meta.expire_ms <= fact.after_ms:
            self._say(fact.at_ms, "S3", f"{fact.peer} gives {fact.key!r}, which expired before it was asked for")
        if not fact.fresh and not fact.wanted:
            return
        if fact.fresh and fact.meta.expire_ms <= fact.wall_ms:
            late_ms = fact.wall_ms - fact.meta.expire_ms
            self._say(fact.at_ms, "S3", f"{fact.peer} gives {fact.key!r} as fresh {late_ms} ms after its expiry")
        origin = self.origins.get(fact.number)
        if origin is None:
            self._say(fact.at_ms, "C8", f"{fact.peer} gives a value of {fact.key!r} that nobody fetched")
            return
        for invalidation in self.done:
            if origin.began_ms < invalidation.at_ms and about(invalidation, fact.key):
                self._say(
                    fact.at_ms,
                    "S3",
                    f"{fact.peer} gives {fact.key!r} of {origin.began_ms:.0f} ms as fresh; it was invalidated at "
                    f"{invalidation.at_ms:.0f} ms by {invalidation.peer} (request {invalidation.request})",
                )
                return

    def _say(self, at_ms: float, rule: str, sentence: str) -> None:
        self.report(Violation(at_ms, rule, sentence))


class KeepingChecker:
    """K: a value goes only if a floor covers it, or if its time is over; C2, C11: durable before it is said; E1."""

    def __init__(self, report: Report, stale_ms: int | None) -> None:
        self.report = report
        self.stale_ms = stale_ms

    def __call__(self, fact: Fact) -> None:
        match fact:
            case ValueDropped(at_ms, peer, key, meta, wall_ms, floors):
                dead = any(covers(floor, key) and meta.epoch.term <= floor.term for floor in floors)
                over = self.stale_ms is not None and meta.expire_ms + self.stale_ms <= wall_ms
                if not dead and not over:
                    self.report(Violation(at_ms, "K", f"{peer} drops {key!r} although nothing speaks against it"))
            case Missed(at_ms, peer, key, meta):
                self.report(
                    Violation(at_ms, "K", f"{peer} says that it has no {key!r}; its storage has {meta.epoch.term}")
                )
            case BadOrder(at_ms, peer, what):
                self.report(Violation(at_ms, "C2" if "ceiling" in what else "C11", f"{peer}: {what}"))
            case Echoed(at_ms, peer, what, count):
                self.report(Violation(at_ms, "E1", f"{peer} answers one {what} with {count} messages to one receiver"))


class _Waiting:
    __slots__ = ("heard_ms", "peer", "said", "until_ms", "what")

    def __init__(self, at_ms: float, peer: str, until_ms: float, what: str) -> None:
        self.peer = peer
        self.heard_ms = at_ms
        self.until_ms = until_ms
        self.said = False
        self.what = what


class RequestChecker:
    """R: every request has its answer once, and words until then, while its process runs; orders end in time."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.waiting: dict[int, _Waiting] = {}
        self.closed: set[int] = set()
        self.frozen: set[str] = set()

    def __call__(self, fact: Fact) -> None:
        match fact:
            case Asked(at_ms, peer, request, _, until_ms):
                if request not in self.waiting:  # else asked again, for its value could not be read
                    self.waiting[request] = _Waiting(at_ms, peer, until_ms, "get")
            case Ordered(at_ms, peer, request, what, _, _, until_ms):
                self.waiting[request] = _Waiting(at_ms, peer, max(at_ms, until_ms), what)
            case Given(at_ms, peer, request):
                self._answered(at_ms, peer, request, "a value")
            case Word(at_ms, peer, request, what):
                if what == "KeepAlive":
                    self._kept_alive(at_ms, peer, request)
                else:
                    self._answered(at_ms, peer, request, what)
            case Withdrew(at_ms, _, request):
                waiting = self.waiting.pop(request, None)
                self.closed.add(request)
                if waiting is not None:
                    self._silence(at_ms, request, waiting)
            case Down(peer=peer):
                self._lost(peer)
            case Frozen(at_ms, peer, on):
                self._froze(at_ms, peer, on)

    def finish(self, at_ms: float) -> None:
        """At the end of the trial."""
        for request, waiting in self.waiting.items():
            if waiting.peer not in self.frozen:
                self._silence(at_ms, request, waiting)

    def _lost(self, peer: str) -> None:
        gone = [request for request, waiting in self.waiting.items() if waiting.peer == peer]
        for request in gone:
            del self.waiting[request]
        self.closed.update(gone)
        self.frozen.discard(peer)

    def _froze(self, at_ms: float, peer: str, on: bool) -> None:
        """A frozen process says nothing; its clients are gone by the time it wakes up."""
        if on:
            self.frozen.add(peer)
        else:
            self.frozen.discard(peer)
        for request, waiting in self.waiting.items():
            if waiting.peer == peer:
                if on:
                    self._silence(at_ms, request, waiting)
                waiting.heard_ms = at_ms
                if waiting.what != "get":
                    waiting.until_ms = max(waiting.until_ms, at_ms)

    def _kept_alive(self, at_ms: float, peer: str, request: int) -> None:
        waiting = self.waiting.get(request)
        if waiting is None:
            if request in self.closed:
                self._say(at_ms, f"{peer} keeps request {request} alive, which has its answer or was withdrawn")
            return
        self._silence(at_ms, request, waiting)
        waiting.heard_ms, waiting.said = at_ms, True
        if at_ms > waiting.until_ms + NEXT_WORD_MS:
            self._say(at_ms, f"{peer} keeps request {request} alive, for which nobody waits any more")

    def _answered(self, at_ms: float, peer: str, request: int, what: str) -> None:
        waiting = self.waiting.pop(request, None)
        if waiting is not None:
            self._silence(at_ms, request, waiting)
        elif request in self.closed:
            self._say(at_ms, f"{peer} answers request {request} ({what}), which has its answer or was withdrawn")
        self.closed.add(request)

    def _silence(self, at_ms: float, request: int, waiting: _Waiting) -> None:
        """Since the last word, up to now or to when nobody waits any more."""
        if waiting.what != "get":
            if at_ms > waiting.until_ms + FINISHED_MS:
                self._say(at_ms, f"{waiting.peer} did not say in time how the {waiting.what} {request} ended")
            return
        silent_ms = min(at_ms, waiting.until_ms) - waiting.heard_ms
        if silent_ms > (NEXT_WORD_MS if waiting.said else FIRST_WORD_MS):
            self._say(
                at_ms, f"{waiting.peer} left the client of request {request} without a word for {silent_ms:.0f} ms"
            )

    def _say(self, at_ms: float, sentence: str) -> None:
        self.report(Violation(at_ms, "R", sentence))
