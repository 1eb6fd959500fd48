"""The Redis of the simulator beside a real one: the same requests, and the same done to both, are answered alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest

from primacy.election.store import (
    GENESIS,
    Genesis,
    Look,
    Place,
    Prune,
    ReleaseRow,
    Renew,
    Row,
    Settle,
    StoreAnswer,
    StoreRequest,
    Take,
)
from primacy.sim.world.engines import REDIS
from primacy.sim.world.store import SimStore
from tests.support.redis_servers import Replica, running
from tests.support.servers import Redis, fresh, servers_here, wait_for
from tests.support.store_harness import Harness, opened, plain

pytestmark = [
    pytest.mark.beside(order=276),
    pytest.mark.skipif("redis" not in servers_here(), reason=Redis.missing() or "here"),
]
TABLE = "primacy_leases"
NAMES = ("job", "other")


@pytest.fixture
def real() -> Iterator[Redis]:
    found = fresh("redis")
    assert isinstance(found, Redis)
    yield found
    found.remove()


class Both:
    """A real store and a simulated one, which are told apart by nothing but the words of their identities."""

    def __init__(self, server: Redis) -> None:
        self.server = server
        self.real, self.simulated = opened(server.url()), SimStore(REDIS)
        self.identities: dict[str, str] = {"": ""}
        """What the real one said, and what the simulated one said then."""
        self.versions: dict[int, int] = {}

    def ask(self, name: str, make: Callable[[StoreAnswer, Row | None, Genesis | None], StoreRequest]) -> bool:
        """One request, made for each from what it showed itself."""
        done = []
        for look, ask in ((self.real.look, self.real.ask), (self._look, self.simulated.perform)):
            seen = look(name, True)
            assert seen.genesis is not None
            done.append((seen, ask(make(seen, seen.row, seen.genesis))))
        for real, simulated in zip(*done, strict=True):
            self.same(real, simulated)
        return done[0][1].done

    def _look(self, name: str, count: bool) -> StoreAnswer:
        return self.simulated.perform(Look(name, count))

    def same(self, real: StoreAnswer, simulated: StoreAnswer) -> None:
        assert (real.ok, real.done, real.linked, real.watched) == (True, simulated.done, False, False)
        assert real.position == simulated.position == 0, "a server without replicas"
        assert self.identities.setdefault(real.server, simulated.server) == simulated.server
        assert len(set(self.identities.values())) == len(self.identities)
        assert (real.row is None) == (simulated.row is None)
        if real.row is not None and simulated.row is not None:
            named = real.row._replace(server=self.identities[real.row.server])
            assert plain(named) == plain(simulated.row)
            assert (real.row.mark, real.row.vouches) == (simulated.row.mark, simulated.row.vouches) == ("", True)
        ours, theirs = real.genesis, simulated.genesis
        if ours is not None and theirs is not None:
            named_too = (self.identities[ours.settled], ours.floor, ours.names, ours.mark, ours.vouches)
            assert named_too == (theirs.settled, theirs.floor, theirs.names, theirs.mark, theirs.vouches)
            if ours.count >= 0 and theirs.count >= 0:
                assert ours.count == theirs.count
            shift = self.versions.setdefault(ours.version - theirs.version, theirs.version)
            assert shift <= theirs.version, "one that was made anew is no earlier one"


def _request(chance: Random, name: str) -> Callable[[StoreAnswer, Row | None, Genesis | None], StoreRequest]:
    kind, odd, foreign, step = chance.randrange(9), chance.random(), chance.random(), chance.randrange(1, 4)
    holder = chance.choice(("a#1", "b#2"))

    def make(seen: StoreAnswer, row: Row | None, genesis: Genesis | None) -> StoreRequest:
        assert genesis is not None
        server = seen.server if foreign < 0.9 else "elsewhere"
        stands = row or Row("a#1", 5, 1, 3_000, 3_061, False)
        token, seq = (stands.token, stands.seq) if odd > 0.15 else (stands.token + 1, stands.seq)
        match kind:
            case 0 | 1 | 2:
                new = Row(holder, max(stands.token, genesis.floor) + step, stands.seq + 1, 3_000, 3_061, False)
                return Take(name, row, server, new, genesis if row is None else None)
            case 3 | 4:
                return Renew(name, stands.holder, token, seq, server)
            case 5:
                return ReleaseRow(name, stands.holder, token, seq, "c" if odd < 0.5 else "")
            case 6:
                return Place(name, server)
            case 7:
                return Settle(name, server, genesis)
        return Prune(name, stands, server, genesis)

    return make


def test_what_is_done_to_a_running_server_shows_alike(real: Redis) -> None:
    """FLUSHALL, FLUSHDB, an eviction (which is a DEL), a field removed, and the first replica's new master_replid."""
    both, chance = Both(real), Random(7)
    acts: dict[str, tuple[tuple[str, ...], Callable[[], None]]] = {
        "flushed": (("FLUSHALL",), both.simulated.empty),
        "flushed one": (("FLUSHDB",), both.simulated.empty),
        "evicted": (("DEL", TABLE), both.simulated.empty),
        "row removed": (("HDEL", TABLE, "job"), lambda: both.simulated.by_hand(("job", None))),
        "genesis removed": (("HDEL", TABLE, GENESIS), both.simulated.lose_genesis),
        "replica met": (("DEBUG", "CHANGE-REPL-ID"), both.simulated.meet_replica),
    }
    met: Counter[str] = Counter()
    for _ in range(400):
        name = chance.choice(NAMES)
        met[str(both.ask(name, _request(chance, name)))] += 1
        if chance.random() < 0.08:
            act = chance.choice(list(acts))
            words, simulated = acts[act]
            real.admin(*words)
            simulated()
            met[act] += 1
    both.real.store.close()
    assert met["True"] > 50
    assert set(acts) <= set(met), met


def test_a_restart_and_a_promotion_in_place_show_alike(real: Redis) -> None:
    both, chance = Both(real), Random(8)

    def requests() -> None:
        for _ in range(25):
            name = chance.choice(NAMES)
            both.ask(name, _request(chance, name))

    def run_id() -> tuple[str, str]:
        return both.real.server().split(":")[1], both.simulated.server.split("/")[1]

    requests()
    before = run_id()
    real.kill()
    real.start()
    both.simulated.start_anew()
    _reached(both.real)
    requests()
    started = run_id()
    assert all(one != other for one, other in zip(before, started, strict=True))
    with running(Replica(real.port)) as other:
        assert isinstance(other, Replica)
        wait_for(other.follows, "the other one to follow", other)
        other.promote()
        link = both.real.look().link
        real.admin("REPLICAOF", "127.0.0.1", other.port)
        wait_for(lambda: b"master_link_status:up" in real.admin("INFO", "replication"), "it to follow the other", real)
        refused = both.real.look()
        assert (refused.ok, "is a replica" in refused.reason) == (False, True)
        real.admin("REPLICAOF", "NO", "ONE")
    both.simulated.promote_again()
    seen = both.real.look()
    assert seen.link == link, "no connection broke"
    assert run_id() == started
    assert seen.server not in both.identities
    both.real.store.close()


def _reached(harness: Harness) -> None:
    """The first request after a restart finds the connection broken."""
    wait_for(lambda: harness.look().ok, "the server to answer")
