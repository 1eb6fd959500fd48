"""Planted defects of the lease: each takes one rule of section L or T out of the machine, the store or an operator.

They are judged in the lease's own trials (`lease_faults.py`): two works at once, or tokens out of order. A rule that
others mask is taken out of a weakened base (`base`): on the recorded seeds the base is safe, and the mutant is not.

`python -m tests.support.mutants_lease` searches catching seeds for all of them and writes them down.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from primacy.election.inputs import StoreNews
from primacy.election.lease.strategy import LeaseStrategy
from primacy.sim.world.engines import ETCD, KUBERNETES, MARIADB, POSTGRESQL, REDIS, Engine
from primacy.sim.world.store import SimStore
from tests.support.lease_faults import LISTED, trial
from tests.support.lease_world import LAB, LeaseWorld
from tests.support.mutants_lease_store import (
    AnyIndex,
    AnyInsert,
    BelievedAtOnce,
    BornSettled,
    FirstVersionKnown,
    FlushedSettled,
    NamesUncounted,
    NoFloor,
    NothingCompared,
    PruneAnything,
    ReleaseAnywhere,
    ReleasedRenewed,
    ReleasedUncompared,
    RevivedByHand,
    TakeOverAnyLink,
    TakeWithoutUid,
    TakeWithoutVersion,
    TokenAlone,
    WithoutIdentity,
    WithoutMark,
    nameless,
    redis_named_by,
)

# --- L1, L2: the row and its renewal ----------------------------------------------------------------------------------


class HoldFromAnswer(LeaseStrategy):
    """L2: s is read after the answer."""

    def _renewal_answered(self, now_ms, lead, number, answer):
        lead.renewals[number] = lead.renewals[number]._replace(sent_ms=now_ms)
        return super()._renewal_answered(now_ms, lead, number, answer)

    def _written(self, now_ms, row, sent_ms, covered=False):
        return super()._written(now_ms, row, now_ms, covered)


# --- L3: the observation ----------------------------------------------------------------------------------------------


class AnchorAtRequest(LeaseStrategy):
    def _anchor_ms(self, asked_ms, now_ms):
        return asked_ms


class NotStretched(LeaseStrategy):
    def _wait_ms(self, sight):
        return self.timing.hold_ms


class HoldersDriftAlone(LeaseStrategy):
    """L3: the holder's wait is believed, however fast the own clock may run."""

    def _row_wait_ms(self, row):
        return row.wait_ms


class ChangeUnnoticed(LeaseStrategy):
    """L3: a change starts nothing anew; the take compares what was seen last."""

    def _same_row(self, old, new):
        return (old is None) == (new is None)

    def _see(self, now_ms, asked, answer):
        effects = super()._see(now_ms, asked, answer)
        if self._sight is not None:
            self._sight = self._sight._replace(row=answer.row)
        return effects


class ServerUnnoticed(LeaseStrategy):
    """L3: another identity starts nothing anew; the take names the one that was seen last."""

    def _same_server(self, old, answer):
        return True

    def _see(self, now_ms, asked, answer):
        effects = super()._see(now_ms, asked, answer)
        if self._sight is not None:
            self._sight = self._sight._replace(server=answer.server)
        return effects

    def _may_be_old(self, sight, row):
        return False


class Impatient(LeaseStrategy):
    """L3: the longest wait of the table is not asked for."""

    def _long_ms(self):
        return self.timing.wait_ms


class Believing(LeaseStrategy):
    """L3: a row of another identity waits no longer than others."""

    def _may_be_old(self, sight, row):
        return False


class HoldAdmitted(LeaseStrategy):
    """L3: a hold is not refused although others would have to wait for it longer than wait_max."""

    def _hold_admitted(self):
        return True


class NewsRelease(LeaseStrategy):
    """L3: news that a row was released is believed without a look."""

    def _hear(self, now_ms, given):
        sight = self._sight
        if isinstance(given, StoreNews) and sight is not None and sight.row is not None:
            self._sight = sight._replace(row=sight.row._replace(released=True))
        return super()._hear(now_ms, given)


class MissingObserved(LeaseStrategy):
    """L3: a missing row is observed like any other."""

    def _spared_at_ms(self, sight):
        return sight.since_ms + self._long_ms() if sight.row is None else super()._spared_at_ms(sight)

    def _must_place(self, sight):
        return False


class LinkIgnored(LeaseStrategy):
    """L5: a broken connection starts nothing anew, and no take names its connection."""

    def _broken_counts(self, answer):
        return False


class GapUnnoticed(LeaseStrategy):
    """L5: an observation goes on through a gap in which nothing was looked at."""

    def _looked_away(self, now_ms):
        return False


class AnyLinkBelieved(GapUnnoticed):
    """L5: a take counts over whichever connection it was done, on a base that a frozen node's gap does not stop."""

    def _same_link(self, asked, answer):
        return True


class NeverFalls(LeaseStrategy):
    """L3: a position that fell starts nothing anew."""

    def _has_fallen(self, known, answer):
        return False


class KnowsNothing(LeaseStrategy):
    """L4: a row below a known token is believed."""

    def _not_below_known(self, token):
        return True


class ProofIgnored(LeaseStrategy):
    """L3: unchanged means holder, token and seq; the take compares what was seen last."""

    def _same_row(self, old, new):
        if old is None or new is None:
            return old is new
        return (old.holder, old.token, old.seq, old.released) == (new.holder, new.token, new.seq, new.released)

    def _see(self, now_ms, asked, answer):
        effects = super()._see(now_ms, asked, answer)
        if self._sight is not None:
            self._sight = self._sight._replace(row=answer.row)
        return effects


# --- L4: what spares the wait -----------------------------------------------------------------------------------------


class EverythingReleased(LeaseStrategy):
    def _is_released(self, row):
        return True


class ReleaseOfAnyServer(LeaseStrategy):
    def _release_counts(self, sight, row):
        return row.released


class ColdStartAnywhere(LeaseStrategy):
    """L4: a row of an earlier start is taken at once, whatever it was written under."""

    def _cold_start(self, sight, row):
        return row.holder in self.options.dead


class FoundAnywhere(LeaseStrategy):
    """L4: one's own take is started on wherever it is found."""

    def _ours(self, sight):
        row = None if sight is None else sight.row
        return row if row is not None and row.holder == self.holder and not row.released else None


class Unwatched(LeaseStrategy):
    """L4: `watched` waits for nothing."""

    def _watched_from_ms(self):
        return 0

    def _broken_counts(self, answer):
        return False


class Reopens(LeaseStrategy):
    """L4: a closed leadership is opened again."""

    _used_token = property(lambda self: 0, lambda self, value: None)


# --- L7: failsafe -----------------------------------------------------------------------------------------------------


class FailsafeByOne(LeaseStrategy):
    def _complete(self, acked):
        return True


class AckRestartsNothing(LeaseStrategy):
    def _ack_restarts(self):
        pass


class AckBesideTake(LeaseStrategy):
    """L7: a node acks while a take of its own may still be written."""

    def _may_ack(self, heartbeat):
        take, self._take = self._take, None
        try:
            return super()._may_ack(heartbeat)
        finally:
            self._take = take


class ListIgnored(LeaseStrategy):
    def _list_allows(self, row):
        return True


class ShortcutAfterAck(KnowsNothing):
    """L4: a node that acked uses shortcuts at once, on a base that believes rows below a known token."""

    def _acked_until_ms(self):
        return 0

    def _without_memory_until_ms(self):
        return 0


def releases_all(world: LeaseWorld) -> None:
    """L7: `lease break` releases a failsafe row."""
    world.break_releases_all = True


def breaks_at_once(world: LeaseWorld) -> None:
    """L7: `lease break` releases at once."""
    world.break_wait_ms = lambda wait_ms: 0  # type: ignore[method-assign]


# --- L9, L10: names ---------------------------------------------------------------------------------------------------


class FreshAlways(LeaseStrategy):
    """L9: a missing row is taken at once."""

    def _is_fresh(self, sight):
        return sight.row is None and sight.genesis is not None


class SettledAtOnce(LeaseStrategy):
    """L9: a table is settled without the wait."""

    def _settle_after_ms(self):
        return 0


# --- T: tokens --------------------------------------------------------------------------------------------------------


class TokenKept(LeaseStrategy):
    """T1: a take that is repeated keeps its token."""

    def _next_token(self, now_ms, sight):
        take = self._take
        if take is not None and (take.server, take.seen) == (sight.server, sight.row):
            return take.row.token
        return super()._next_token(now_ms, sight)


class Forgetful(LeaseStrategy):
    """T2: what a node knows of tokens does not count."""

    def _largest_known(self):
        return 0


# --- the table --------------------------------------------------------------------------------------------------------


def admits_less(world: LeaseWorld) -> None:
    """L3: the table admits the shorter of the two holds only."""
    store = world.store
    store._write_genesis(store.table.genesis._replace(wait_max_ms=LAB.wait_ms))
    world.wait_max_ms = LAB.wait_ms


def overlaps(world: LeaseWorld) -> bool:
    return bool(world.overlaps)


def tokens(world: LeaseWorld) -> bool:
    return bool(world.token_trouble)


def own_tokens(world: LeaseWorld) -> bool:
    return bool(world.own_token_trouble)


@dataclass(frozen=True)
class LeaseMutant:
    """One planted defect, and the trials in which it is to be noticed."""

    name: str
    """Begins with its rule."""
    faults: tuple[str, ...]
    kind: type[LeaseStrategy] = LeaseStrategy
    store: type[SimStore] = SimStore
    engine: Engine | None = None
    caught: Callable[[LeaseWorld], bool] = overlaps
    how: dict[str, object] = field(default_factory=dict)
    prepare: Callable[[LeaseWorld], None] | None = None
    base: tuple[type[LeaseStrategy], type[SimStore]] | None = None
    """Machine and store of the weakened base, which is safe on the recorded seeds."""

    @property
    def rule(self) -> str:
        return self.name.partition("-")[0]

    def run(self, seed: int, kind: type[LeaseStrategy], store: type[SimStore], seconds: float = 10) -> LeaseWorld:
        how = {"engine": self.engine, **self.how}
        return trial(seed, seconds, self.faults, self.prepare, kind=kind, store=store, **how)

    def is_caught(self, seed: int) -> bool:
        if not self.caught(self.run(seed, self.kind, self.store)):
            return False
        return self.base is None or not self.caught(self.run(seed, *self.base))


QUIET = ("cut", "stall", "news")
BACK = ("backup", "back", "blow", "blow", "blow", "cut", "people")
LOST = ("fail_over", "people", "cut", "stall")
BLOW = ("blow",)
HANDS = ("remove", "people", "crash", "cut")
WATCHED: dict[str, object] = {"watched": True, "tables_anew": False}

LEASE_MUTANTS: tuple[LeaseMutant, ...] = (
    LeaseMutant("L1-nothing-compared", QUIET, store=NothingCompared),
    LeaseMutant("L1-token-alone", QUIET, store=TokenAlone),
    LeaseMutant("L2-hold-from-answer", QUIET, HoldFromAnswer),
    LeaseMutant("L2-row-that-does-not-vouch-renewed", ("revive",), store=RevivedByHand, engine=POSTGRESQL),
    LeaseMutant(
        "L2-released-row-renewed",
        ("people", "people", "cut", "stall"),
        Reopens,
        ReleasedRenewed,
        base=(Reopens, SimStore),
    ),
    LeaseMutant("L3-anchor-at-request", QUIET, AnchorAtRequest),
    LeaseMutant("L3-wait-not-stretched", ("sudden",), NotStretched, how={"look_every_ms": 3}),
    LeaseMutant(
        "L3-own-drift-ignored",
        ("sudden",),
        HoldersDriftAlone,
        how={"look_every_ms": 3, "mixed": True, "uneven": True},
    ),
    LeaseMutant("L3-change-unnoticed", QUIET, ChangeUnnoticed),
    LeaseMutant("L3-server-unnoticed", BLOW, ServerUnnoticed, engine=MARIADB),
    LeaseMutant("L3-identity-not-compared", BLOW, store=WithoutIdentity, engine=MARIADB),
    LeaseMutant("L3-wait-max-ignored", ("fail_over", "cut", "crash"), Impatient, engine=MARIADB, how={"mixed": True}),
    LeaseMutant(
        "L3-hold-not-refused",
        ("fail_over", "fail_over", "crash", "cut"),
        HoldAdmitted,
        engine=MARIADB,
        how={"mixed": True},
        prepare=admits_less,
    ),
    LeaseMutant("L3-old-row-waits-as-others", ("revive", "fail_over"), Believing, engine=MARIADB, how={"mixed": True}),
    LeaseMutant("L3-news-believed", QUIET, NewsRelease, ReleasedUncompared),
    LeaseMutant("L3-missing-row-observed", ("remove", "cut", "stall", "crash"), MissingObserved, AnyInsert),
    LeaseMutant(
        "L3-unchanged-without-proof",
        ("fail_over", "fail_over", "cut"),
        ProofIgnored,
        nameless("start", "promotion", "counters"),
        MARIADB,
        base=(LeaseStrategy, nameless("start", "promotion", "counters")),
    ),
    LeaseMutant(
        "L3-falling-position-ignored",
        BACK,
        NeverFalls,
        nameless("start"),
        MARIADB,
        base=(LeaseStrategy, nameless("start")),
    ),
    LeaseMutant("L4-unreleased-taken", QUIET, EverythingReleased),
    LeaseMutant("L4-release-of-another-identity", ("people", "fail_over"), ReleaseOfAnyServer, engine=MARIADB),
    LeaseMutant("L4-cold-start-of-another-identity", ("crash", "fail_over"), ColdStartAnywhere, engine=MARIADB),
    LeaseMutant("L4-found-take-of-another-identity", ("lost_take",), FoundAnywhere, engine=MARIADB),
    LeaseMutant("L4-release-under-another-identity", ("revive",), store=ReleaseAnywhere, engine=MARIADB),
    LeaseMutant("L4-closed-leadership-reopened", ("cut", "stall", "people", "guard"), Reopens, caught=tokens),
    LeaseMutant(
        "L4-known-tokens-ignored",
        BACK,
        KnowsNothing,
        nameless("start"),
        MARIADB,
        base=(LeaseStrategy, nameless("start")),
    ),
    LeaseMutant(
        "L4-watched-for-nothing",
        ("backup", "blow", "fail_over", "people"),
        Unwatched,
        nameless("start", "promotion", "counters"),
        MARIADB,
        how=WATCHED,
        base=(LeaseStrategy, nameless("start", "promotion", "counters")),
    ),
    LeaseMutant("L5-start-not-named", BACK, store=nameless("start"), engine=POSTGRESQL),
    LeaseMutant("L5-promotion-not-named", LOST, store=nameless("promotion"), engine=POSTGRESQL),
    LeaseMutant("L5-demotion-not-named", LOST, store=nameless("counters"), engine=MARIADB),
    LeaseMutant("L5-new-table-not-named", BACK, store=nameless("table"), engine=MARIADB),
    LeaseMutant("L5-no-mark", BACK, store=WithoutMark, engine=POSTGRESQL),
    LeaseMutant("L5-any-raft-index", BACK, store=AnyIndex, engine=ETCD),
    LeaseMutant("L5-connection-ignored", BLOW, LinkIgnored, engine=ETCD),
    LeaseMutant("L5-gap-unnoticed", ("overlooked",), GapUnnoticed, engine=ETCD, how={"proxied": True}),
    LeaseMutant(
        "L5-take-over-any-connection",
        BLOW,
        AnyLinkBelieved,
        TakeOverAnyLink,
        ETCD,
        how={"outside": "folder"},
        base=(GapUnnoticed, SimStore),
    ),
    LeaseMutant("L5-redis-without-master-replid", BACK, store=redis_named_by("run_id"), engine=REDIS),
    LeaseMutant(
        "L5-redis-without-run-id",
        BACK,
        store=redis_named_by(),
        engine=REDIS,
        base=(LeaseStrategy, redis_named_by("run_id")),
    ),
    LeaseMutant("L5-kubernetes-take-without-uid", BLOW, store=TakeWithoutUid, engine=KUBERNETES),
    LeaseMutant("L5-kubernetes-take-without-version", QUIET, store=TakeWithoutVersion, engine=KUBERNETES),
    LeaseMutant("L4-kubernetes-believed-at-once", BACK, store=BelievedAtOnce, engine=KUBERNETES),
    LeaseMutant("L5-kubernetes-connection-ignored", BACK, LinkIgnored, engine=KUBERNETES),
    LeaseMutant("L7-not-all", LISTED, FailsafeByOne, how={"failsafe": True}),
    LeaseMutant("L7-ack-restarts-nothing", LISTED, AckRestartsNothing, how={"failsafe": True}),
    LeaseMutant(
        "L7-ack-beside-a-take",
        ("backup", "back", "blow", "isolate", "isolate", "stall"),
        AckBesideTake,
        nameless("start"),
        MARIADB,
        how={"failsafe": True},
        base=(LeaseStrategy, nameless("start")),
    ),
    LeaseMutant("L7-list-not-compared", LISTED, ListIgnored, how={"failsafe": True, "outsider": True}),
    LeaseMutant(
        "L7-shortcut-after-ack",
        ("people", "backup", "back", "back", "isolate", "cut"),
        ShortcutAfterAck,
        nameless("start"),
        MARIADB,
        how={"failsafe": True},
        base=(KnowsNothing, nameless("start")),
    ),
    LeaseMutant(
        "L7-break-releases-a-failsafe-row",
        ("cut_listed", "cut_listed", "break_lease", "break_lease"),
        how={"failsafe": True, "outsider": True},
        prepare=releases_all,
    ),
    LeaseMutant("L7-break-without-the-wait", ("break_lease",), prepare=breaks_at_once),
    LeaseMutant("L9-fresh-at-once", HANDS, FreshAlways, AnyInsert),
    LeaseMutant("L9-rows-not-counted", HANDS, store=NamesUncounted),
    LeaseMutant("L9-settled-without-the-wait", HANDS, SettledAtOnce),
    LeaseMutant("L9-first-version-known", ("emptied",), store=FirstVersionKnown, how={"settled": False}),
    LeaseMutant("L9-born-settled", HANDS, store=BornSettled),
    LeaseMutant(
        "L9-redis-settled-after-a-flush", HANDS, KnowsNothing, FlushedSettled, REDIS, base=(KnowsNothing, SimStore)
    ),
    LeaseMutant(
        "L9-redis-first-version-known", ("emptied",), store=FirstVersionKnown, engine=REDIS, how={"settled": False}
    ),
    LeaseMutant("L10-pruned-without-compare", ("prune", "prune", "people"), store=PruneAnything),
    LeaseMutant(
        "L10-floor-not-raised",
        ("prune", "prune", "people", "crash"),
        store=NoFloor,
        caught=tokens,
        how={"wall_spread_ms": 10_000_000},
    ),
    LeaseMutant(
        "T1-token-kept-for-a-repeated-take",
        ("back", "backup", "cut", "cut", "stall", "people"),
        TokenKept,
        nameless("start"),
        MARIADB,
        caught=tokens,
        how={"tables_anew": False},
        base=(LeaseStrategy, nameless("start")),
    ),
    LeaseMutant(
        "T2-known-tokens-forgotten",
        ("cut", "people", "fail_over"),
        Forgetful,
        caught=own_tokens,
        how={"wall_spread_ms": 10_000_000},
    ),
)
SEEDS_FILE = Path(__file__).with_name("mutant_seeds_lease.json")
RECORDED = 2


def recorded() -> dict[str, list[int]]:
    """Seeds that catch each mutant, from the last `python -m tests.support.mutants_lease`."""
    found: dict[str, list[int]] = json.loads(SEEDS_FILE.read_text())
    return found


def search(name: str, most: int = 100) -> tuple[str, list[int], int]:
    """The first seeds that catch it, and how many were tried."""
    mutant = next(mutant for mutant in LEASE_MUTANTS if mutant.name == name)
    found: list[int] = []
    for seed in range(most):
        if mutant.is_caught(seed):
            found.append(seed)
            if len(found) == RECORDED:
                return name, found, seed + 1
    return name, found, most


def main(names: list[str]) -> None:
    wanted = names or [mutant.name for mutant in LEASE_MUTANTS]
    known = recorded() if SEEDS_FILE.exists() else {}
    with ProcessPoolExecutor(2) as pool:
        for name, found, tried in pool.map(search, wanted):
            print(f"{name:45} {found} of {tried}", flush=True)
            known[name] = found
            lines = [f"  {json.dumps(m.name)}: {json.dumps(known[m.name])}" for m in LEASE_MUTANTS if m.name in known]
            SEEDS_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
