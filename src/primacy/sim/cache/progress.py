"""Progress of a healed cache: no key stays stuck, and a fresh entry reaches every connected peer.

Bounds as RULES C gives them. Right after healing a client may wait for a call that hangs until its limit, for promises
and silences, and for one failed election; in settled calm for the source and one election only.
"""

from __future__ import annotations

from collections.abc import Callable

from primacy.cache.model import order as order_of
from primacy.sim.cache.facts import Calm, ClientDone, Fact, Floored, Given, Ordered, ValueStored, Word
from primacy.sim.cache.storage import covers
from primacy.sim.checkers import Violation

HEALED_MS = 6_000.0
"""Right after healing: limit of a hanging call 2,500 + 1,100 + the source + a pause after failures 1,000 + a margin."""
SETTLED_MS = 1_500.0
"""In settled calm; measured at most 1,188 with wall clocks 1.5 s apart."""
REACH_MS = 500.0
"""From the first peer that has a value to all others: one message, and one more for who missed nothing else."""


class ProgressChecker:
    """P1 no key is stuck · P2 a fresh entry reaches every connected peer · P3 nobody waits past the deadline."""

    def __init__(self, report: Callable[[Violation], None]) -> None:
        self.report = report
        self.calm_ms = float("inf")
        self.settled_ms = float("inf")
        self.peers: tuple[str, ...] = ()
        self.held: dict[tuple[str, bytes], tuple[int, int, int]] = {}
        self.first: dict[bytes, tuple[float, tuple[int, int, int]]] = {}
        """The newest epoch of a key that was stored in settled calm, and when first."""
        self.waits_ms: list[float] = []
        self.orders: dict[int, Ordered] = {}

    def __call__(self, fact: Fact) -> None:
        match fact:
            case Calm(at_ms, peers):
                self.calm_ms, self.peers = at_ms, peers
                self.settled_ms = at_ms + HEALED_MS
            case ClientDone():
                self._done(fact)
            case ValueStored(at_ms, peer, key, meta):
                self._stored(at_ms, peer, key, order_of(key, meta.epoch))
            case Given(at_ms=at_ms):
                self._reached(at_ms)
            case Ordered(at_ms=at_ms, request=request) if at_ms >= self.settled_ms:
                self.orders[request] = fact
            case Floored(floor=floor):  # what is dead need not reach anybody
                self.first = {
                    key: known
                    for key, known in self.first.items()
                    if not covers(floor, key) or known[1][0] > floor.term
                }
            case Word(at_ms, peer, request, "Finished", ok, missing) if request in self.orders:
                asked = self.orders.pop(request)
                if not ok:
                    self._say(at_ms, "P1", f"{asked.what} of {asked.key!r} on {peer} failed although all is well")
                elif at_ms - asked.at_ms > SETTLED_MS:
                    self._say(at_ms, "P1", f"{asked.what} of {asked.key!r} on {peer} took {at_ms - asked.at_ms:.0f} ms")
                elif missing:
                    self._say(at_ms, "P1", f"{asked.what} of {asked.key!r} on {peer} misses {', '.join(missing)}")

    def finish(self, at_ms: float) -> None:
        self._reached(at_ms)
        for asked in self.orders.values():
            if at_ms - asked.at_ms > SETTLED_MS:
                self._say(
                    at_ms, "P1", f"{asked.what} of {asked.key!r} on {asked.peer} does not end although all is well"
                )

    def _done(self, fact: ClientDone) -> None:
        if fact.at_ms > fact.deadline_ms + 1:
            self._say(fact.at_ms, "P3", f"a client of {fact.key!r} waited past its deadline")
        if fact.asked_ms < self.calm_ms or fact.outcome == "miss":
            return
        waited_ms = fact.at_ms - fact.asked_ms
        settled = fact.asked_ms >= self.settled_ms
        bound_ms = SETTLED_MS if settled else HEALED_MS
        if fact.outcome == "given" and settled:
            self.waits_ms.append(waited_ms)
        if fact.outcome == "given" and waited_ms > bound_ms:
            self._say(fact.at_ms, "P1", f"{fact.key!r} took {waited_ms:.0f} ms although all is well")
        elif fact.outcome == "deadline" and fact.deadline_ms - fact.asked_ms >= bound_ms:
            self._say(fact.at_ms, "P1", f"{fact.key!r} is stuck: no answer within {waited_ms:.0f} ms")
        elif fact.outcome == "refused" and settled:
            self._say(fact.at_ms, "P1", f"{fact.key!r} was refused although all is well")

    def _stored(self, at_ms: float, peer: str, key: bytes, epoch: tuple[int, int, int]) -> None:
        self.held[peer, key] = epoch
        if at_ms >= self.settled_ms and (key not in self.first or self.first[key][1] < epoch):
            self.first[key] = (at_ms, epoch)

    def _reached(self, at_ms: float) -> None:
        for key, (first_ms, epoch) in tuple(self.first.items()):
            if at_ms < first_ms + REACH_MS:
                continue
            del self.first[key]
            for peer in self.peers:
                if self.held.get((peer, key), (0, 0, 0)) < epoch:
                    self._say(at_ms, "P2", f"{peer} has not got {key!r} of term {epoch[0]} within {REACH_MS:.0f} ms")

    def _say(self, at_ms: float, rule: str, sentence: str) -> None:
        self.report(Violation(at_ms, rule, sentence))


def about(order: Ordered, key: bytes) -> bool:
    """Whether an order concerns this key."""
    return key.startswith(order.key) if order.prefix else key == order.key
