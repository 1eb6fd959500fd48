"""The simulated Redis and Kubernetes: they say of themselves what the real stores say, and trials live through it.

What the real ones say: `tests/processes/test_store_redis.py`, `tests/processes/test_store_kubernetes.py`; the two Redis
are compared in `tests/processes/test_store_simulated.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from primacy.election.events import Code
from primacy.election.lease.strategy import LeaseStrategy
from primacy.election.store import (
    WAIT_MAX_MS,
    Genesis,
    Look,
    Place,
    Prune,
    ReleaseRow,
    Renew,
    Row,
    Settle,
    StoreRequest,
    Take,
    holder_id,
)
from primacy.sim.facts import Kind
from primacy.sim.faults.store_engines import two_primaries
from primacy.sim.model.exhaustive import SearchBounds, explore
from primacy.sim.model.settings import LeaseSetting
from primacy.sim.trials.raft import run_trial, trial_of
from primacy.sim.trials.shrink import command, shrink
from primacy.sim.trials.strategy_table import Build
from primacy.sim.trials.trial import Outcome, Plan
from primacy.sim.world import engines
from primacy.sim.world.engines import BY_NAME, ENGINES, FIRST, KUBERNETES, LATER, POSTGRESQL, REDIS
from primacy.sim.world.store import SimStore
from primacy.store.conditions import after
from primacy.store.kubernetes import NO_GENESIS
from tests.support.mutants import lease
from tests.support.mutants_lease import GapUnnoticed, LinkIgnored
from tests.support.mutants_lease_store import TakeWithoutUid, TakeWithoutVersion, redis_named_by

A, B = holder_id("a", 1), holder_id("b", 2)
IN_STORE = ("store-other", "store-back", "store-hand", "store-blow", "store-people", "operator")


def _row(holder: str = A, token: int = 7, seq: int = 1, **more: object) -> Row:
    full = {"hold_ms": 1_000, "wait_ms": 1_030, "released": False} | more
    return Row(holder, token, seq, **full)  # type: ignore[arg-type]


def take(store: SimStore, holder: str = A, token: int = 7, name: str = "job") -> bool:
    """Compares everything as it stands there now."""
    seen = store.perform(Look(name, count=True))
    seq = 1 if seen.row is None else seen.row.seq + 1
    return store.perform(Take(name, seen.row, seen.server, _row(holder, token, seq), seen.genesis)).done


def renew(store: SimStore, holder: str = A) -> bool:
    row = store.rows["job"]
    return store.perform(Renew("job", holder, row.token, row.seq, store.server)).done


def held(engine: engines.Engine) -> SimStore:
    store = SimStore(engine)
    if engine is KUBERNETES:
        assert store.perform(Place("job", store.server)).done
    assert take(store)
    return store


# --- Redis ------------------------------------------------------------------------------------------------------------


def ids(store: SimStore) -> tuple[str, str]:
    name, run_id, replication_id = store.server.split("/")
    assert name == "redis"
    return run_id, replication_id


@pytest.mark.parametrize(
    ("way", "run_id_stays", "connections_stay"),
    [
        ("start_anew", False, False),
        ("fail_over", False, False),
        ("promote_again", True, True),
        ("meet_replica", True, True),
    ],
)
def test_L5_redis_a_restart_changes_both_ids_and_a_promotion_in_place_the_second(
    way: str, run_id_stays: bool, connections_stay: bool
) -> None:
    store = held(REDIS)
    before, server, breaks = ids(store), store.server, store.breaks
    getattr(store, way)()
    now = ids(store)
    assert now[1] != before[1]
    assert (now[0] == before[0]) is run_id_stays
    assert (store.breaks == breaks) is connections_stay
    assert store.rows["job"].server == server, "the row says under which identity it was written"
    assert not store.genesis.is_settled(store.server)
    assert not store.perform(ReleaseRow("job", A, 7, 1)).done
    assert renew(store), "a holder whose hold never broke moves along"


@pytest.mark.parametrize("way", ["put_back", "take_over", "follow"])
def test_L5_redis_what_goes_back_to_an_older_table_is_another_server(way: str) -> None:
    store = held(REDIS)
    table, seen, server = store.table, store.rows["job"], store.server
    assert take(store, B, 8)
    getattr(store, way)(table)
    assert (store.rows["job"], store.server != server) == (seen, True)
    assert not store.perform(Take("job", seen, server, _row(B, 9, 2))).done


def test_L9_redis_FLUSHALL_leaves_nothing_that_is_believed() -> None:
    """As `test_store_redis.py` has it of the real one."""
    store = held(REDIS)
    before = store.perform(Look("job", count=True))
    store.empty()
    assert not store.perform(Renew("job", A, 7, 1, before.server)).done
    after_it = store.perform(Look("job", count=True))
    assert (after_it.server, after_it.row) == (before.server, None), "the name does not tell"
    assert after_it.genesis is not None
    assert before.genesis is not None
    assert (after_it.genesis.settled, after_it.genesis.names) == ("", 0)
    assert after_it.genesis.version != before.genesis.version
    assert not take(store)
    assert store.perform(Place("job", store.server)).done


@pytest.mark.parametrize("gone", ["job", ":genesis"])
def test_L9_redis_a_field_that_somebody_removed_frees_no_name(gone: str) -> None:
    store = held(REDIS)
    if gone == "job":
        store.by_hand(("job", None))
    else:
        store.lose_genesis()
    assert not take(store, A, 7, "other")
    assert not take(store) if gone == "job" else renew(store)


@pytest.mark.parametrize("anew", [False, True])
def test_L5_redis_what_is_loaded_into_the_running_server_is_outside(anew: bool) -> None:
    """RESTORE, with or without a DEL before it: neither the identity nor a mark tells."""
    store = held(REDIS)
    table, seen, server = store.table, store.rows["job"], store.server
    assert take(store, B, 8)
    store.read_dump(table, anew=anew)
    assert store.perform(Take("job", seen, server, _row(B, 9, 2))).done


def test_L5_redis_has_no_position_and_tells_no_time() -> None:
    """`master_repl_offset` of a server without replicas stays 0."""
    store = held(REDIS)
    assert renew(store)
    assert store.perform(Look("job")).position == 0
    assert not REDIS.tells_time


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def _drawn(chance: Random, looks: list[tuple[Row | None, str]]) -> StoreRequest:
    """A request that rests on something that was seen, lately or long ago, with a field bent now and then."""
    name = chance.choice(("job", "other"))
    row, server = chance.choice(looks[-4:] if chance.random() < 0.8 else looks)
    if chance.random() < 0.1:
        server = "elsewhere"
    if row is not None and chance.random() < 0.2:
        bent = chance.choice(("token", "seq", "proof", "released", "members", "mark", "vouches"))
        values = {"released": not row.released, "vouches": not row.vouches, "token": 3, "seq": 3}
        row = row._replace(**{bent: values.get(bent, "x")})
    holder, token, seq = (A, 7, 1) if row is None else (row.holder, row.token, row.seq)
    new = _row(chance.choice((A, B)), token + chance.choice((0, 1)), seq + 1)
    return chance.choice(
        (
            Look(name, chance.random() < 0.5),
            Take(name, row, server, new, Genesis(settled=server, count=0)),
            Renew(name, holder, token, seq, server),
            ReleaseRow(name, holder, token, seq, "b"),
            Place(name, server),
            Settle(name, server, Genesis(count=0)),
            Prune(name, row or new, server, Genesis(settled=server)),
        )
    )


def test_L1_kubernetes_every_condition_is_that_of_the_reference() -> None:
    """With no genesis row, as the real store asks it; nothing is settled or pruned."""
    done: Counter[str] = Counter()
    for seed in range(60):
        chance, store = Random(seed), SimStore(KUBERNETES)
        tables, looks = [store.table], [(store.rows.get("job"), store.server)]
        for _ in range(60):
            request = _drawn(chance, looks)
            change = after(store.rows.get(request.name), NO_GENESIS, request, store.server)
            if isinstance(request, Settle | Prune):
                change = None
            answer = store.perform(request)
            assert (answer.done, answer.genesis) == (change is not None, None), request
            if change is not None and change.row is not None and answer.row is not None:
                done[type(request).__name__] += 1
                bare = [row._replace(proof="", mark="") for row in (answer.row, change.row)]
                assert bare[0] == bare[1]
            looks += [(store.rows.get(name), store.server) for name in ("job", "other")]
            tables.append(store.table)
            if chance.random() < 0.1:
                table = chance.choice(tables)
                chance.choice((lambda: store.put_back(table), store.empty, lambda: store.by_hand(("job", None))))()  # noqa: B023
    assert set(done) == {"Take", "Renew", "ReleaseRow", "Place"}


def test_L5_kubernetes_always_has_to_be_watched() -> None:
    store = SimStore(KUBERNETES)
    answer = store.perform(Look("job", count=True), link=3)
    assert (answer.linked, answer.watched, answer.genesis, answer.row, answer.link) == (True, True, None, None, 3)
    assert not take(store), "nothing is fresh"
    assert store.perform(Place("job", store.server)).done
    placed = store.rows["job"]
    assert (placed.token, placed.wait_ms, placed.is_placeholder) == (0, WAIT_MAX_MS, True)
    position = answer.position
    assert store.perform(Look("job")).position > position


def test_L5_kubernetes_an_etcd_put_back_answers_to_the_same_name() -> None:
    store = held(KUBERNETES)
    table, seen = store.table, store.rows["job"]
    assert take(store, B, 8)
    server, breaks, position = store.server, store.breaks, store.perform(Look("job")).position
    store.put_back(table)
    assert (store.server, store.rows["job"]) == (server, seen), "uid and resourceVersion come back"
    assert store.breaks == breaks + 1, "only this tells, and the position if nobody wrote"
    assert store.perform(Look("job")).position < position
    assert not store.perform(Take("job", seen, server, _row(B, 9, 2), link=4), link=5).done
    store.put_back(table, ahead=100)
    assert store.perform(Look("job")).position > position


def test_L5_kubernetes_what_is_removed_and_made_anew_is_not_what_was_seen() -> None:
    store = held(KUBERNETES)
    entry, seen = store.table.entry("job"), store.rows["job"]
    assert entry is not None
    store.by_hand(("job", None))
    request = Take("job", seen, store.server, _row(B, 9, 2))
    assert not store.perform(request).done
    store.by_hand(("job", entry.row))
    assert store.rows["job"].mark != seen.mark
    assert (store.rows["job"].proof, store.rows["job"].vouches) == (seen.proof, True), "put back, word for word"
    assert not store.perform(request).done


def test_kubernetes_refuses_a_hold_that_needs_more_than_its_longest_wait() -> None:
    store = held(KUBERNETES)
    seen = store.perform(Look("job"))
    answer = store.perform(Take("job", seen.row, seen.server, _row(B, 9, 2, wait_ms=WAIT_MAX_MS + 1)))
    assert (answer.ok, answer.final) == (False, True)


def test_kubernetes_another_cluster_has_another_name() -> None:
    store = held(KUBERNETES)
    server, breaks = store.server, store.breaks
    store.make_anew()
    assert (store.rows, store.server != server, store.breaks) == ({}, True, breaks + 1)


# --- which one a trial is on ------------------------------------------------------------------------------------------


def test_all_kinds_are_drawn_alike_and_a_seed_on_one_of_the_first_is_what_it_was() -> None:
    drawn = Counter(engines.drawn(Random(f"store/{seed}"), seed) for seed in range(3_000))
    assert set(drawn) == set(ENGINES)
    assert all(400 < count < 600 for count in drawn.values()), drawn
    for seed in range(300):
        before, now = Random(f"store/{seed}"), Random(f"store/{seed}")
        first, engine = before.choice(FIRST), engines.drawn(now, seed)
        assert engine in LATER or engine is first
        assert before.random() == now.random(), "what is drawn after it is what it was"


def test_a_trial_says_on_which_store_it_was_and_can_be_run_again_on_it() -> None:
    plan = Plan("lease", 3, "lab", 1.0)
    seen = set()
    for seed in range(8):
        outcome = run_trial(plan, seed)
        assert run_trial(replace(plan, engine=outcome.engine), seed).trace_hash == outcome.trace_hash
        seen.add(outcome.engine)
    assert len(seen) > 3
    assert run_trial(Plan("raft", 3, "lab", 1.0), 0).engine == ""


def test_what_is_shrunk_stays_on_its_store() -> None:
    def broken(plan: Plan, seed: int) -> Outcome:
        return run_trial(replace(plan, faults=("store-outside",), draw=False), seed)

    plan = Plan("lease", 3, "lab", 1.0)
    seed = next(seed for seed in range(100) if engines.drawn(Random(f"store/{seed}"), seed) is REDIS)
    seed = next(seed for seed in range(seed, 200) if any(v.rule == "I1" for v in broken(plan, seed).violations))
    engine = broken(plan, seed).engine
    shrunk = shrink(plan, seed, "I1", ("store-outside",), engine=engine, run_trial=broken, trials_max=20)
    assert shrunk is not None
    assert shrunk.plan.engine == engine
    assert f"--engine {engine} " in command(shrunk.plan, shrunk.seed)


# --- trials -----------------------------------------------------------------------------------------------------------


def _violations(
    engine: engines.Engine,
    seeds: range,
    classes: tuple[str, ...] | None = None,
    store: type[SimStore] = SimStore,
    build: Build | None = None,
) -> Counter[str]:
    """In how many trials each rule was broken. With `store`, the one that was drawn is exchanged for this one."""
    plan = Plan("lease", 3, "lab", 1.0 if engine is REDIS else 2.0, classes, draw=classes is None, engine=engine.name)
    found: Counter[str] = Counter()
    for seed in seeds:
        trial = trial_of(plan, seed, build)
        drawn = trial.world.store
        assert drawn is not None
        if store is not SimStore:
            trial.world.store = store(drawn.engine, wait_max_ms=drawn.genesis.wait_max_ms)
        found.update({violation.rule for violation in trial.run().violations})
    return found


@pytest.mark.parametrize("engine", LATER, ids=lambda engine: engine.name)
def test_at_most_one_works_whatever_befalls_the_store(engine: engines.Engine) -> None:
    assert not _violations(engine, range(12), IN_STORE)
    assert not _violations(engine, range(100, 120))


@pytest.mark.later
@pytest.mark.parametrize("engine", LATER, ids=lambda engine: engine.name)
def test_what_is_outside_of_the_promise_is_found(engine: engines.Engine) -> None:
    """Redis: RESTORE, and two primaries. Kubernetes: etcd put back below API servers that go on; a row written into."""
    assert _violations(engine, range(16), ("store-outside",))["I1"] > 6


def test_two_primaries_of_redis_grant_at_once() -> None:
    """A replica is promoted while the old primary lives: outside, and what Sentinel does."""
    plan = Plan("lease", 3, "lab", 1.0, (), draw=False, engine="redis")
    trial = trial_of(plan, 4)
    trial.faults.end_ms = trial.calm_ms
    trial.world.run(5_000)
    old = trial.world.store
    assert old is not None
    two_primaries(trial.faults)
    trial.world.run(12_000)
    assert [violation.rule for violation in trial.outcome.violations] == ["I1"]
    new = {node.store for node in trial.world.nodes.values()} - {old}
    assert len(new) == 1
    assert new.pop().server != old.server


@pytest.mark.later
def test_L5_the_simulator_notices_an_identity_of_redis_without_master_replid() -> None:
    """Without run_id alone nothing breaks: whatever changes it changes the other one, too (measured on 7.0)."""
    seeds = (range(at, at + 4) for at in range(0, 20, 4))
    assert any(_violations(REDIS, some, ("store-blow",), store=redis_named_by("run_id"))["I1"] for some in seeds)
    assert not _violations(REDIS, range(20), ("store-blow",), store=redis_named_by("master_replid"))


@pytest.mark.later
def test_L5_the_simulator_notices_what_a_take_of_kubernetes_leaves_out() -> None:
    assert _violations(KUBERNETES, range(4), ("stall",), store=TakeWithoutVersion)["I1"]
    seeds = (range(at, at + 4) for at in range(0, 200, 4))
    masked = lease(GapUnnoticed)  # the frozen watchers that are struck at would begin anew
    assert any(_violations(KUBERNETES, some, ("store-blow",), TakeWithoutUid, masked)["I1"] for some in seeds)
    assert not _violations(KUBERNETES, range(20), ("store-blow",), build=masked)


@pytest.mark.later
def test_L5_the_simulator_notices_a_broken_connection_to_kubernetes_that_is_ignored() -> None:
    seeds = (range(at, at + 4) for at in range(0, 200, 4))
    assert any(_violations(KUBERNETES, some, ("store-blow",), build=lease(LinkIgnored))["I1"] for some in seeds)


# --- how trials on Kubernetes are judged ------------------------------------------------------------------------------


class WatchedFourTimes(LeaseStrategy):
    """It watches four times as long as L4 says, or begins its watch again and again."""

    def _watched_from_ms(self) -> int:
        return self._link_ms + 4 * self._long_ms() if self._is_watched() else 0


def test_P1_one_watch_of_kubernetes_is_waited_for_and_no_more() -> None:
    liveness = trial_of(Plan("lease", 3, "lab", 1.0, engine="kubernetes"), 0).liveness
    assert liveness.watch_ms < WAIT_MAX_MS < liveness.bound_ms + liveness.watch_ms
    assert liveness.limit_ms < 3 * liveness.bound_ms + WAIT_MAX_MS
    assert trial_of(Plan("lease", 3, "lab", 1.0, engine="redis"), 0).liveness.watch_ms == 0
    assert _violations(KUBERNETES, range(6), ("store-back",), build=lease(WatchedFourTimes))["P1"]


def _needless(engine: str, code: Code, *, of_now: bool = False, after_ms: float = 0.0) -> int:
    """How many losses are counted if this is said of a holder, a while after the last trouble."""
    trial = trial_of(Plan("lease", 3, "lab", 1.0, (), draw=False, engine=engine), 4)
    trial.world.run(20_000)
    (leader,) = trial.leads
    token = trial.leads[leader] if of_now else trial.leads[leader] - 1
    other = next(name for name in trial.names if name != leader)
    trial.world.emit(Kind.FAULT, "", 0, "trouble")
    trial.world.run(trial.world.now + 4 * trial.unit_ms + after_ms)
    assert trial.outcome.needless == 0
    trial.world.emit(Kind.EVENT, other if code is Code.LEADER_SILENT else leader, token, code, 0, leader)
    return trial.outcome.needless


def test_P5_only_a_holder_that_was_lost_in_the_trouble_is_told_of_late_and_only_on_kubernetes() -> None:
    assert _needless("kubernetes", Code.LEADER_SILENT) == 0
    assert _needless("kubernetes", Code.LEADER_SILENT, after_ms=WAIT_MAX_MS) == 1
    assert _needless("kubernetes", Code.LEADER_SILENT, of_now=True) == 1, "it leads"
    assert _needless("kubernetes", Code.LEASE_LOST) == _needless("kubernetes", Code.RENEWAL_LATE) == 1
    assert _needless("redis", Code.LEADER_SILENT) == 1


def test_P5_a_holder_that_led_after_the_trouble_is_not_told_of_late() -> None:
    trial = trial_of(Plan("lease", 3, "lab", 1.0, (), draw=False, engine="kubernetes"), 4)
    trial.world.run(20_000)
    (leader,) = trial.leads
    token, other = trial.leads[leader], next(name for name in trial.names if name != leader)
    trial.world.emit(Kind.FAULT, "", 0, "trouble")
    trial.world.run(trial.world.now + 4 * trial.unit_ms)
    trial.world.emit(Kind.ROLE, leader, 0, "follower")
    trial.world.emit(Kind.EVENT, other, token, Code.LEADER_SILENT, 0, leader)
    assert trial.outcome.needless == 1


# --- every order of events --------------------------------------------------------------------------------------------


class OnRedis(LeaseSetting):
    def __init__(self, store: type[SimStore] = SimStore) -> None:
        super().__init__("equal", LeaseStrategy, REDIS)
        self.store = store


def test_no_order_of_events_on_redis_within_a_number_of_states_breaks_a_promise() -> None:
    found = explore(OnRedis(), SearchBounds(20_000))
    assert (found.wrong, found.finished >= 0) == ("", True), "\n".join(found.history_lines)


@pytest.mark.later
def test_everything_with_one_disturbance_on_redis_was_walked() -> None:
    found = explore(OnRedis(), SearchBounds(1_000_000, disturbances=1))
    assert (found.wrong, found.finished) == ("", 1), "\n".join(found.history_lines)


def test_the_engines_have_names_of_their_own() -> None:
    assert list(BY_NAME) == ["postgresql", "mariadb", "etcd", "sqlite", "redis", "kubernetes"]
    assert POSTGRESQL.names_table
    assert not REDIS.names_table
