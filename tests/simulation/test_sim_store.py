"""The simulated store: its conditions are those of the reference, and each way back does what the real engines do.

What Redis and Kubernetes do otherwise: `test_store_engines.py`.
"""

from __future__ import annotations

from random import Random

import pytest

from primacy.election.store import (
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
from primacy.sim.world.engines import ETCD, FIRST, MARIADB, POSTGRESQL, REDIS, SQLITE, Engine
from primacy.sim.world.store import SimStore
from primacy.store.conditions import Change, after, needs_count

A, B = holder_id("a", 1), holder_id("b", 2)


def _row(holder: str = A, token: int = 7, seq: int = 1, **more: object) -> Row:
    full = {"hold_ms": 1_000, "wait_ms": 1_030, "released": False} | more
    return Row(holder, token, seq, **full)  # type: ignore[arg-type]


def _look(store: SimStore, name: str = "job") -> tuple[Row | None, Genesis, str]:
    answer = store.perform(Look(name, count=True))
    assert answer.genesis is not None
    return answer.row, answer.genesis, answer.server


def take(store: SimStore, holder: str, token: int, name: str = "job") -> bool:
    """Compares everything as it stands there now."""
    row, genesis, server = _look(store, name)
    seq = 1 if row is None else row.seq + 1
    request = Take(name, row, server, _row(holder, token, seq), genesis if row is None else None)
    return store.perform(request).done


def renew(store: SimStore, holder: str = A, server: str = "") -> bool:
    row = store.rows["job"]
    return store.perform(Renew("job", holder, row.token, row.seq, server or store.server)).done


# --- the reference ----------------------------------------------------------------------------------------------------


def _drawn(chance: Random, store: SimStore, looks: list[tuple[Row | None, Genesis, str]]) -> StoreRequest:
    """A request that rests on something that was seen, lately or long ago, with a field bent now and then."""
    name = chance.choice(("job", "other"))
    row, genesis, server = chance.choice(looks[-4:] if chance.random() < 0.8 else looks)
    if chance.random() < 0.1:
        server = "elsewhere"
    if row is not None and chance.random() < 0.2:
        bent = chance.choice(("token", "seq", "proof", "released", "members", "mark", "vouches"))
        values = {"released": not row.released, "vouches": not row.vouches, "token": 3, "seq": 3}
        row = row._replace(**{bent: values.get(bent, "x")})
    if chance.random() < 0.15:
        bent = chance.choice(("settled", "floor", "version", "mark", "names", "count"))
        genesis = genesis._replace(**{bent: "x" if bent in ("settled", "mark") else 5})
    holder, token, seq = (A, 7, 1) if row is None else (row.holder, row.token, row.seq)
    new = _row(chance.choice((A, B)), token + chance.choice((0, 1)), seq + 1)
    return chance.choice(
        (
            Look(name, chance.random() < 0.5),
            Take(name, row, server, new, genesis),
            Renew(name, holder, token, seq, server),
            ReleaseRow(name, holder, token, seq, "b"),
            Place(name, server),
            Settle(name, server, genesis),
            Prune(name, row or new, server, genesis),
        )
    )


def _expected(store: SimStore, request: StoreRequest) -> Change | None:
    genesis = store.genesis if needs_count(request) else store.genesis._replace(count=-1)
    return after(store.rows.get(request.name), genesis, request, store.server)


def _bare(row: Row | None) -> Row | None:
    """Without what the store draws."""
    return None if row is None else row._replace(proof="", mark="", vouches=True)


@pytest.mark.parametrize("engine", [*FIRST, REDIS], ids=lambda engine: engine.name)
def test_L1_every_condition_is_that_of_the_reference(engine: Engine) -> None:
    done: dict[str, int] = {}
    for seed in range(60):
        chance = Random(seed)
        store = SimStore(engine, settled=seed % 3 != 0)
        backups = [store.table]
        looks = [_look(store)]
        for _ in range(60):
            request = _drawn(chance, store, looks)
            change, before = _expected(store, request), store.genesis
            answer = store.perform(request)
            assert answer.done == (change is not None), request
            if change is not None:
                done[type(request).__name__] = done.get(type(request).__name__, 0) + 1
                assert change.removed == (answer.row is None) or change.row is None
                if change.row is not None:
                    assert _bare(answer.row) == _bare(change.row)
                wanted = change.genesis or before
                assert store.genesis[:5] == wanted[:5]
            looks += [_look(store, name) for name in ("job", "other")]
            backups.append(store.table)
            if chance.random() < 0.1:
                _strike(chance, store, backups)
                looks.append(_look(store))
    assert set(done) == {"Take", "Renew", "ReleaseRow", "Place", "Settle", "Prune"}


def _strike(chance: Random, store: SimStore, backups: list[object]) -> None:
    backup = chance.choice(backups)
    chance.choice(
        (
            lambda: store.fail_over(1),
            lambda: store.put_back(backup),
            lambda: store.read_dump(backup, anew=chance.random() < 0.5),
            store.make_anew,
            lambda: store.by_hand(("job", None)),
        )
    )()


# --- the ways back ----------------------------------------------------------------------------------------------------


def _held(engine: Engine) -> SimStore:
    store = SimStore(engine)
    assert take(store, A, 7)
    return store


@pytest.mark.parametrize("engine", FIRST, ids=lambda engine: engine.name)
def test_L5_a_restart_a_promotion_and_a_restore_change_the_identity_or_break_every_connection(engine: Engine) -> None:
    for way in ("start_anew", "fail_over", "promote_again"):
        store = _held(engine)
        before = store.server, store.breaks
        getattr(store, way)(0)
        assert store.server != before[0]
        assert store.breaks == before[1] + 1
        assert store.rows["job"].server == before[0], "the row says under which identity it was written"
        assert not store.perform(ReleaseRow("job", A, 7, 1)).done
        assert renew(store), "a holder whose hold never broke moves along"


def test_L5_a_dump_does_not_bring_the_mark_back() -> None:
    store = _held(POSTGRESQL)
    backup, seen = store.table, store.rows["job"]
    assert take(store, B, 8)
    server = store.server
    store.read_dump(backup, anew=False)
    row = store.rows["job"]
    assert (row.token, row.seq, row.proof, store.server) == (seen.token, seen.seq, seen.proof, server)
    assert not row.vouches
    assert row.mark != seen.mark
    assert not store.genesis.vouches
    assert not store.perform(Take("job", seen, server, _row(B, 9, 2))).done
    assert not renew(store), "it is nobody's"
    assert take(store, B, 9), "who compares what stands there now may have it"
    assert store.rows["job"].vouches
    store.by_hand(("job", store.rows["job"]._replace(released=True)))
    assert not store.rows["job"].vouches
    store.read_dump(store.table, anew=True)
    assert store.server != server


def test_L5_without_a_mark_only_a_table_made_anew_tells() -> None:
    store = _held(MARIADB)
    backup, seen, server = store.table, store.rows["job"], store.server
    assert take(store, B, 8)
    store.read_dump(backup, anew=True)
    assert store.server != server
    assert not store.perform(Take("job", seen, server, _row(B, 9, 2))).done
    store = _held(MARIADB)
    backup, seen, server = store.table, store.rows["job"], store.server
    assert take(store, B, 8)
    store.read_dump(backup, anew=False)
    assert store.perform(Take("job", seen, server, _row(B, 9, 2))).done, "outside, by physics"


def test_L5_an_etcd_folder_comes_back_under_the_identity_of_the_lost_start() -> None:
    store = _held(ETCD)
    folder = store.table
    store.start_anew()
    lost = store.server
    assert take(store, B, 8)
    breaks = store.breaks
    store.put_back(folder)
    assert store.server == lost, "the same raft term"
    assert store.breaks == breaks + 1, "only this tells"
    assert store.perform(Look("job"), link=4).linked


def test_L5_an_etcd_snapshot_restored_with_its_token_does_not_vouch() -> None:
    store = _held(ETCD)
    server = store.server
    assert store.perform(ReleaseRow("job", A, 7, 1)).done
    snapshot = store.table
    store.restore_snapshot(snapshot, other_token=False)
    assert store.server == server
    assert not store.rows["job"].vouches
    assert not store.genesis.vouches
    store.restore_snapshot(snapshot, other_token=True)
    assert store.server != server
    assert not store.perform(Look("job")).watched
    early = SimStore(ETCD, raft_index=4)
    assert take(early, A, 7)
    assert early.rows["job"].vouches
    assert early.perform(Look("job")).watched, "so young an index proves little"


def test_L5_an_etcd_key_that_is_put_back_by_hand_does_not_vouch() -> None:
    store = _held(ETCD)
    backup = store.table
    assert take(store, B, 8)
    entry = backup.entry("job")
    assert entry is not None
    store.by_hand(("job", entry.row._replace(released=True)))
    assert not store.rows["job"].vouches


def test_L5_a_sqlite_file_put_back_in_place_keeps_its_identity_and_its_note() -> None:
    store = _held(SQLITE)
    file, server = store.table, store.server
    assert renew(store)
    store.put_back(file)
    assert store.server == server
    assert not store.rows["job"].vouches
    assert not renew(store)
    store = SimStore(SQLITE)
    empty = store.table
    assert take(store, A, 7)
    store.put_back(empty)
    assert store.rows == {}
    assert not store.genesis.vouches, "so the name is not fresh"
    assert not take(store, B, 8)


def test_L9_a_table_made_anew_is_not_settled_and_counts_what_was_removed_by_hand() -> None:
    for engine in (*FIRST, REDIS):
        store = _held(engine)
        store.make_anew()
        assert store.rows == {}
        assert not store.genesis.is_settled(store.server)
        store = _held(engine)
        store.by_hand(("job", None))
        assert not store.genesis.is_settled(store.server)
        assert not take(store, B, 8)


class PlaceBelieves(SimStore):
    """L9 taken out: a placeholder makes a genesis row vouch that came from a dump."""

    def _unbelieved(self, genesis: Genesis) -> Genesis:
        return genesis


@pytest.mark.parametrize(("kind", "believed"), [(SimStore, False), (PlaceBelieves, True)])
def test_L9_a_placeholder_does_not_make_a_dump_believed(kind: type[SimStore], believed: bool) -> None:
    """A name that the dump does not know has a live holder; another name is placed; the first is not fresh."""
    store = kind(POSTGRESQL)
    backup = store.table
    assert take(store, A, 7, "held")
    store.read_dump(backup, anew=False)
    assert not take(store, B, 8, "held")
    assert store.perform(Place("job", store.server)).done
    assert store.genesis.is_settled(store.server) is believed
    assert take(store, B, 8, "held") is believed


def test_what_was_lost_once_does_not_come_back() -> None:
    store = _held(POSTGRESQL)
    assert renew(store)
    store.fail_over(1)
    assert store.rows["job"].seq == 1
    store.fail_over(0)
    assert renew(store)
    store.fail_over(1)
    assert store.rows["job"].seq == 1, "not the write that the first fail-over lost"


def test_positions_grow_and_fall_with_lost_history_unless_others_write() -> None:
    store = _held(POSTGRESQL)
    first = store.perform(Look("job")).position
    assert renew(store)
    second = store.perform(Look("job")).position
    assert second > first
    store.fail_over(1)
    assert store.perform(Look("job")).position < second
    assert renew(store)
    store.fail_over(1, ahead=100)
    assert store.perform(Look("job")).position > second
