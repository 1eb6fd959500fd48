"""The planted defects of the cache's machine in random trials: which of them the simulator catches, and by which seeds.

`mutants_cache.py` has the defects, each with a schedule written by hand. Many of them show at random as well, which
says that the trials look; the others mask each other, or need a schedule that chance does not find. Two bases let some
of these show: small terms (nothing is lifted by wall time; nobody forgets), and a machine that forgets no vote.

`python -m tests.support.mutants_cache_trials` searches seeds and writes them down: needed after the draws of the
simulator changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

from primacy.cache.model import CacheSettings, PeerAddress
from primacy.cache.own import OwnMachine
from primacy.sim.cache.peer import SimPeer
from primacy.sim.cache.trial import CachePlan, CacheTrial, Make
from primacy.sim.trials.trial import Outcome
from tests.support.mutants_cache import CACHE_MUTANTS

SEEDS_FILE = Path(__file__).with_name("mutant_seeds_cache.json")
SEARCHED = 120
"""Seeds that are tried for each defect and base."""


class SmallTerms(OwnMachine):
    """Terms count elections; wall time lifts none. Safe while nobody forgets: the base on which defects of C2 and C11
    show that wall time covers otherwise."""

    def _stand(self, state: Any) -> None:
        wall_ms, self._wall_ms = self._wall_ms, 0
        super()._stand(state)
        self._wall_ms = wall_ms

    def _floor_term(self, work: Any) -> int:
        return max(work.terms.values()) + 1

    def _first_term(self, ceiling: int | None) -> int:
        return ceiling or 0

    def _complete_since(self) -> int:
        return 0

    def _forget_ms(self) -> int:
        """The age of what may be forgotten is read off its term, which is no time here."""
        return self._wall_ms + 1

    def _forgettable(self, meta: Any) -> bool:
        return False


DEFAULT = CachePlan()
REMEMBERED = CachePlan(
    storage="durable",
    wipes=0.0,
    faults=("crash", "crash-source", "aimed", "freeze-source", "partition", "isolate", "lossy", "lag", "sources"),
)
HELD = CachePlan(
    faults=("freeze-source", "isolate", "one-way", "partition", "lag", "late", "clock", "sources", "crash-source"),
    draw=False,
    storage="memory",
    peers=3,
)
MANY = CachePlan(keys=12, source_ms=2_000.0)
"""Many keys that are fetched at once: their holds are renewed together."""
BASES: dict[str, tuple[type[OwnMachine] | None, CachePlan]] = {
    "as it is": (None, DEFAULT),
    "held": (None, HELD),
    "small terms": (SmallTerms, REMEMBERED),
    "many keys": (None, MANY),
}
"""By name: what the defect is put on, and in which trials it is looked for."""


def machine_of(defect: type[OwnMachine], base: str) -> type[OwnMachine]:
    """The defect on its base."""
    below = BASES[base][0]
    return defect if below is None else type(f"{defect.__name__}On{below.__name__}", (defect, below), {})


def making(machine: type[OwnMachine]) -> Make:
    """Trials whose peers have this machine."""

    def make(settings: CacheSettings) -> Any:
        def build(peer: SimPeer, peers: tuple[PeerAddress, ...], chance: Random) -> OwnMachine:
            return machine(peer.url, peers, settings._replace(durable=peer.storage.durable), chance)

        return build

    return make


def run(machine: type[OwnMachine], base: str, seed: int) -> Outcome:
    """One trial of a machine in the trials of a base."""
    return CacheTrial(BASES[base][1], seed, making(machine)).run()


def caught(defect: type[OwnMachine], base: str, seed: int) -> list[str]:
    """The rules that a defect breaks in this trial, if the base breaks none in it."""
    rules = sorted({violation.rule for violation in run(machine_of(defect, base), base, seed).violations})
    below = BASES[base][0] or OwnMachine
    return [] if not rules or run(below, base, seed).violations else rules


def recorded() -> dict[str, list[Any]]:
    """By the name of the defect: base, seed, rules. None for those that no trial caught."""
    found: dict[str, list[Any]] = json.loads(SEEDS_FILE.read_text())
    return found


def search(name: str, seeds: range) -> list[Any] | None:
    """The base whose trials catch it soonest, and the seed."""
    defect = next(mutant.machine for mutant in CACHE_MUTANTS if mutant.name == name)
    for seed in seeds:
        for base in BASES:
            rules = caught(defect, base, seed)
            if rules:
                return [base, seed, rules]
    return None


def record(names: list[str]) -> None:
    known = recorded() if SEEDS_FILE.exists() else {}
    for mutant in CACHE_MUTANTS:
        if names and mutant.name not in names:
            continue
        known[mutant.name] = search(mutant.name, range(SEARCHED))  # type: ignore[assignment]
        print(f"{mutant.name:30} {known[mutant.name]}", flush=True)
        ordered = {one.name: known[one.name] for one in CACHE_MUTANTS if one.name in known}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in ordered.items()]
        SEEDS_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record(sys.argv[1:])
