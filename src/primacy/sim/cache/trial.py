"""One trial of the cache: peers, clients and faults drawn from one seed, then calm, judged all the time.

In the trouble every fact is judged for safety. Then everything is healed: keys must be answered within the bounds of
RULES C, orders must succeed, and what is fetched must reach every peer. The seed and the plan alone decide everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from primacy.cache.model import CacheSettings, Mode, PeerAddress, SourceSettings
from primacy.settings.timing_cache import CACHE_PROFILES, CacheTiming
from primacy.sim.cache.calls import CALM, Temper
from primacy.sim.cache.checkers import KeepingChecker, RequestChecker, SourcingChecker, ValueChecker
from primacy.sim.cache.clients import ClientWorld
from primacy.sim.cache.facts import CallBegan, Calm, Fact, Given, Word
from primacy.sim.cache.faults import CLASSES, Faults, Operator
from primacy.sim.cache.machines import builder
from primacy.sim.cache.peer import Conditions, SimPeer
from primacy.sim.cache.progress import HEALED_MS, ProgressChecker
from primacy.sim.cache.world import WALL0_MS, Build, Overrun
from primacy.sim.checkers import Violation
from primacy.sim.trials.trial import Outcome
from primacy.sim.world.clock import Clock

Make = Callable[[CacheSettings], Build]
STORAGES = ("durable", "memory", "both")
VIOLATIONS_MAX = 20
BACKOFF_MS = 100
BACKOFF_MAX_MS = 1_000
"""Pauses after failures are short in trials, so that they do not cover what is looked for."""
SETTLED_S = 4.0
MESSAGES_PER_KEY_S = 150.0
"""E2, per other peer. A sourced key costs 17 a second (RULES C); elections, repeats and floors are on top of it."""
MESSAGES_BASE_S = 100.0


@dataclass(frozen=True, slots=True)
class CachePlan:
    """What is to be simulated. With the seed, it determines a trial byte for byte."""

    peers: int = 0
    """0: three or five, drawn."""
    storage: str = ""
    """Of `STORAGES`; empty: drawn."""
    seconds: float = 9.0
    """Of trouble; the calm comes on top of it."""
    keys: int = 0
    """0: one to three, drawn."""
    faults: tuple[str, ...] | None = None
    """The allowed classes; a random subset of them is drawn. None: all."""
    draw: bool = True
    """False: all allowed classes are used."""
    drift: float = 0.01
    skew_ms: int = 1_500
    wipes: float = 0.25
    """Crashes that take the disk with them."""
    source_ms: float = 100.0
    """Sources that are not slow answer within this, in the trouble. Long ones meet in renewals that leave together."""
    mode: Mode = Mode.OWN
    timing: CacheTiming | None = None


class CacheTrial:
    """Builds a world from a plan and a seed, runs it, and judges it."""

    def __init__(self, plan: CachePlan, seed: int, make: Make = builder) -> None:
        self.seed = seed
        chance = self.chance = Random(f"cache/{seed}")
        peers = plan.peers or chance.choice((3, 5))
        keys = plan.keys or chance.choice((1, 1, 2, 3))
        storage = plan.storage or chance.choice(STORAGES)
        self.plan = plan = replace(plan, peers=peers, keys=keys, storage=storage)
        self.outcome = Outcome(seed)
        timing = plan.timing or CACHE_PROFILES["lan"]
        self.timing = timing._replace(backoff_ms=BACKOFF_MS, backoff_max_ms=BACKOFF_MAX_MS)
        self.settings = self._draw_settings()
        self.world = world = ClientWorld(f"cache/{seed}", make(self.settings))
        world.skew_ms, world.wipes = plan.skew_ms, plan.wipes
        world.temper = world.usual_temper = Temper(quick_ms=plan.source_ms)
        world.promise_ms = self.timing.promise_ms
        world.ttl_ms = self.settings.sources[0].ttl_ms
        self.keys = tuple(b"k%d/%d" % (n % 2, n) for n in range(keys))
        self.classes = self._draw_classes()
        self.outcome.classes = self.classes
        self._populate()
        others = peers + Operator.MORE - 1
        world.pace_per_s = others * (MESSAGES_BASE_S + MESSAGES_PER_KEY_S * min(keys, 20))
        world.pace_at_once = world.pace_per_s / 2
        self._judge()

    # --- building -----------------------------------------------------------------------------------------------------

    def _draw_settings(self) -> CacheSettings:
        """Values live shortly, so that much expires."""
        chance = self.chance
        source = SourceSettings(
            ttl_ms=int(300 * 10 ** chance.random()),
            negative_ms=chance.choice((0, 0, 300)),
            jitter_percent=chance.choice((0, 0, 20)),
            refresh_ahead_ms=chance.choice((0, 0, 100)),
        )
        return CacheSettings(timing=self.timing, mode=self.plan.mode, sources=(source,))

    def _draw_classes(self) -> tuple[str, ...]:
        allowed = tuple(CLASSES) if self.plan.faults is None else self.plan.faults
        if not self.plan.draw:
            return allowed
        share = self.chance.choice((0.2, 0.4, 0.7))
        return tuple(name for name in allowed if self.chance.random() < share)

    def _populate(self) -> None:
        plan, world, chance = self.plan, self.world, self.chance
        spare = plan.peers + (Operator.MORE if "reload" in self.classes else 0)
        addresses = tuple(PeerAddress(f"tcp://p{n}:1", f"tcp://p{n}:2") for n in range(spare))
        listed = addresses[: plan.peers]
        children = chance.random()
        for n, address in enumerate(addresses):
            durable = plan.storage == "durable" or (plan.storage == "both" and chance.random() < 0.5)
            skew_ms = int(chance.choice((-1, 1, chance.uniform(-1, 1))) * plan.skew_ms)
            rate = 1 + chance.choice((-1, 1, chance.uniform(-1, 1))) * plan.drift
            clock = Clock(chance.random() * 1e6, rate, WALL0_MS + skew_ms)
            peer = world.add(address.url, clock, durable)
            peer.skew_ms = skew_ms
            peer.children = chance.random() < children
            if n < plan.peers:
                peer.file = listed
                world.after(chance.random() * 100, partial(world.start, peer))
        world.apis = [address.url for address in listed]
        world.on_exit = self._exited
        self.trouble_ms = plan.seconds * 1_000
        self.faults = Faults(world, f"cache/{self.seed}", self.classes, (plan.drift, plan.wipes), self.trouble_ms)
        self.operator = self.faults.operator = Operator(world, listed, addresses)

    def _exited(self, peer: SimPeer) -> None:
        """A supervisor starts it again."""
        self.world.after(20 + self.chance.random() * 400, partial(self.world.start, peer))

    def _judge(self) -> None:
        self.requests = RequestChecker(self._violated)
        self.progress = ProgressChecker(self._violated)
        self.world.listeners += [
            SourcingChecker(self._violated, self.timing.skew_max_ms + 2 * self.timing.ceiling_ahead_ms),
            ValueChecker(self._violated),
            KeepingChecker(self._violated, None),
            self.requests,
            self.progress,
            self._count,
        ]

    def _violated(self, violation: Violation) -> None:
        if len(self.outcome.violations) < VIOLATIONS_MAX:
            self.outcome.violations.append(violation)

    def _count(self, fact: Fact) -> None:
        rare = self.outcome.rare
        match fact:
            case CallBegan():
                self.outcome.starts += 1
            case Given(fresh=fresh):
                name = "given fresh" if fresh else "given stale"
                rare[name] = rare.get(name, 0) + 1
            case Word(what="Finished", ok=ok):
                name = "orders done" if ok else "orders failed"
                rare[name] = rare.get(name, 0) + 1

    # --- clients ------------------------------------------------------------------------------------------------------

    def _clients(self) -> None:
        chance = Random(f"clients of cache/{self.seed}")
        self._every(chance, 10 * 12 ** chance.random() / max(1.0, len(self.keys) / 10), lambda: self._get(chance))
        for what, share in (("invalidate", 0.6), ("refresh", 0.3), ("put", 0.3)):
            if chance.random() < share:
                self._every(chance, 150 * 10 ** chance.random(), partial(self._order, chance, what))

    def _every(self, chance: Random, pause_ms: float, action: Callable[[], None]) -> None:
        def again() -> None:
            if self.world.now < self.trouble_ms:
                action()
                self.world.after(chance.expovariate(1 / pause_ms), again)

        self.world.after(chance.random() * 700, again)

    def _get(self, chance: Random) -> None:
        key = chance.choice(self.keys)
        at_once = chance.random() < 0.1
        drawn = chance.random()
        for url in self.world.apis if at_once else [chance.choice(self.world.apis)]:
            self.world.get(key, fresh=drawn < 0.5, within_ms=chance.uniform(300, 6_000), first=url, fetch=drawn < 0.9)

    def _order(self, chance: Random, what: str) -> None:
        key = chance.choice(self.keys)
        prefix = what == "invalidate" and chance.random() < 0.3
        peer = self.world.peers[chance.choice(self.world.apis)]
        self.world.order(
            what,
            peer,
            key[:3] if prefix else key,
            chance.uniform(300, 5_000),
            prefix=prefix,
            ttl_ms=int(chance.uniform(200, 4_000)),
        )

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        world, outcome = self.world, self.outcome
        self._clients()
        try:
            world.run(self.trouble_ms)
            self._heal()
            self._probe_healed()
            world.run(self.trouble_ms + HEALED_MS)
            self._probe_settled()
            world.run(self.trouble_ms + HEALED_MS + SETTLED_S * 1_000)
            self.requests.finish(world.now)
            self.progress.finish(world.now)
        except Overrun as overrun:
            self._violated(Violation(world.now, "E2", str(overrun)))
        outcome.simulated_ms = world.now
        outcome.sent, outcome.steps, outcome.events = world.count.sent, world.count.steps, world.count.events
        outcome.faults = dict(world.count.faults)
        outcome.gaps_ms = self.progress.waits_ms
        outcome.rare["clients answered"] = world.gets_done
        outcome.rare["clients without"] = world.gets_failed
        outcome.trace_hash = world.trace_hash
        return outcome

    def _heal(self) -> None:
        world = self.world
        self.faults.heal()
        world.conditions = Conditions()
        world.temper = CALM
        for url in world.apis:
            peer = world.peers[url]
            peer.doom = -1
            peer.storage.failing, peer.storage.sync_ms = False, 1.0
            world.start(peer)
        world.tell(Calm(world.now, tuple(world.apis)))

    def _probe_healed(self) -> None:
        """Every key, at every peer, at once and a little later."""
        chance = Random(f"probes/{self.seed}")
        for url in self.world.apis:
            for key in self.keys[:20]:
                wait_ms = chance.choice((0.0, 0.0, chance.random() * 1_000))
                self.world.after(wait_ms, partial(self._ask, key, url, HEALED_MS + 500))

    def _probe_settled(self) -> None:
        """Gets at every peer, and orders that must succeed."""
        chance = Random(f"settled/{self.seed}")
        for what in ("invalidate", "refresh", "put"):
            peer = self.world.peers[chance.choice(self.world.apis)]
            key = chance.choice(self.keys)
            wait_ms = 50 + chance.random() * 1_500
            self.world.after(wait_ms, partial(self.world.order, what, peer, key, 2_000.0))
        for _ in range(4 * len(self.world.apis)):
            url, key, wait_ms = chance.choice(self.world.apis), chance.choice(self.keys), 20 + chance.random() * 1_900
            self.world.after(wait_ms, partial(self._ask, key, url, 1_900.0))

    def _ask(self, key: bytes, url: str, within_ms: float) -> None:
        self.world.get(key, fresh=True, within_ms=within_ms, first=url)


def run_trial(plan: CachePlan, _given: Any, seed: int) -> Outcome:
    """One trial, for workers: importable."""
    return CacheTrial(plan, seed).run()
