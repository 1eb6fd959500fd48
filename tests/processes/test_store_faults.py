"""What happens to a store while real processes use it (F40 to F46): no overlap, and recovery without help.

Three players on one server of the test's own, behind a proxy; one fault after the other; one judge at the end, who is
heard whatever else came of the test. Each fault must have been felt, or its test would prove nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest

from primacy.election.store import Place, StoreAnswer
from primacy.settings.timing import PROFILES, for_lease
from primacy.store import open_store
from tests.support.canary import VOIDS, Canary
from tests.support.redis_servers import Replica
from tests.support.servers import Etcd, MariaDb, Postgres, Redis, Server, free_port, fresh, servers_here, wait_for
from tests.support.store_harness import LIMIT_MS, Harness, opened, row, short_waits
from tests.support.store_proxy import Proxy
from tests.support.store_race import NAME, Race, Verdict, now_ns

pytestmark = pytest.mark.moments(order=220)

PROFILE = PROFILES["fast"]
BOUND_S = (PROFILE.wait_ms + 2 * PROFILE.look_ms + 5_000) / 1_000
"""How soon somebody leads again without help: D, two looks, and five seconds. Asked of a machine that lets processes
run when their time has come: `CANARY_HEARTBEAT_MS`."""
RESTART_MS = 2_500
"""And how much later after a restart of the server: it is another one, and nobody knows what it has forgotten (L3). It
is what all tables here have for their longest wait, above D of the players; also those that the players make."""
RECOVERY_S = 90
"""That somebody leads again at all."""
CANARY_HEARTBEAT_MS = 400
SHORT_MS = PROFILE.term_at_ms - for_lease(PROFILE).heartbeat_ms - 40
"""A renewal that leaves as the server begins to stand is answered before TERM if it stands for no longer; some of it is
for the trip and the commit."""


class Scene:
    """A server, a proxy before it, and players behind."""

    def __init__(self, server: Server, folder: Path, url: str = "") -> None:
        self.server = server
        self.is_judged = False
        self.proxy = Proxy(server.port)
        self.url = url or server.url().replace(f":{server.port}", f":{self.proxy.port}")
        with pytest.MonkeyPatch.context() as monkeypatch:
            short_waits(monkeypatch, RESTART_MS)
            opened(self.url).store.close()
        self.race = Race(self.url, folder / "race", count=3, mode="calm", profile="fast", wait_ms=RESTART_MS)
        try:
            self.leads_since(now_ns(), "its start")  # how soon three interpreters start is no matter here
        except BaseException:
            self.close()
            raise

    def recovered(self, after_what: str, wait_ms: int = 0) -> None:
        """Somebody leads, or goes on leading, from now on: proved three times."""
        since_ns = now_ns()
        bound_s = BOUND_S + wait_ms / 1_000
        with Canary(CANARY_HEARTBEAT_MS) as canary:
            self.leads_since(since_ns, after_what)
            took_s = (now_ns() - since_ns) / 1e9
        canary.judge(took_s <= bound_s, f"a leader {took_s:.1f} s after {after_what}, {bound_s:.1f} s at most")

    def leads_since(self, since_ns: int, after_what: str) -> None:
        wait_for(lambda: self.race.holds_since(since_ns) >= 3, f"a leader after {after_what}", within_s=RECOVERY_S)

    def nobody_holds(self, what: str) -> None:
        """The holder has given up by its own clock."""

        def quiet() -> bool:
            lines = [line for line in self.race.lines() if line["what"] in ("hold", "end")]
            return bool(lines) and lines[-1]["what"] == "end"

        wait_for(quiet, f"the holder to stop: {what}", within_s=RECOVERY_S)

    def tokens(self) -> list[int]:
        return sorted({line["token"] for line in self.race.lines() if line["what"] == "hold"})

    def judge(self) -> Verdict:
        """All players end; then safety is judged."""
        self.is_judged = True
        verdict = self.race.stop()
        verdict.one_at_a_time()
        return verdict

    def close(self) -> None:
        """Judged here, too, if the test did not come so far: what made it fail may have been excused."""
        try:
            if not self.is_judged:
                self.judge()
        finally:
            if self.race.process.poll() is None:
                self.race.process.kill()
                self.race.process.wait()
            self.proxy.close()
            self.server.remove()


@pytest.fixture(params=servers_here())
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    found = Scene(fresh(request.param), tmp_path)
    try:
        yield found
    finally:
        found.close()


def look(url: str) -> StoreAnswer:
    harness = Harness(open_store(url, limit_ms=LIMIT_MS))
    try:
        return harness.look(NAME, count=True)
    finally:
        harness.store.close()


def tried(url: str) -> StoreAnswer:
    """A write under another name: the whole way of one."""
    harness = Harness(open_store(url, limit_ms=LIMIT_MS))
    try:
        seen = harness.look("other", count=True)
        if not seen.ok or seen.row is None:
            return harness.ask(Place("other", seen.server)) if seen.ok else seen
        return harness.take("other", row(token=seen.row.token + 1), seen)
    finally:
        harness.store.close()


def pause(seconds: float) -> None:
    time.sleep(seconds)  # the fault's own length, not a wait for something


def test_F40_F43_a_server_that_goes_and_comes_back(scene: Scene) -> None:
    server, proxy = scene.server, scene.proxy
    before = scene.tokens()
    with Canary(for_lease(PROFILE).heartbeat_ms) as canary:
        began_ns = now_ns()
        server.freeze()
        pause(0.1)
        server.thaw()
        stood_ms = (now_ns() - began_ns) / 1e6
        scene.recovered("a freeze within the hold")
    if stood_ms <= SHORT_MS:
        canary.judge(scene.tokens() == before, f"it is the same leadership: the server stood for {stood_ms:.0f} ms")
    else:
        VOIDS.append(f"the server was to stand for 100 ms, and stood for {stood_ms:.0f}, {SHORT_MS} at most")

    server.freeze()
    scene.nobody_holds("the server is frozen for longer than the hold")
    pause(0.5)
    server.thaw()
    scene.recovered("a freeze beyond the hold")

    server.stop()
    scene.nobody_holds("the server is stopped")
    server.start()
    pause(1)
    server.kill()
    server.start()
    scene.recovered("a restart, and kill -9 and back", RESTART_MS)

    for _ in range(5):
        proxy.cuts = 2
        wait_for(lambda: proxy.cuts == 0, "two answers to be lost")
        scene.recovered("answers lost after their statements were done")
    assert proxy.cut == 10

    proxy.refuses = True
    scene.nobody_holds("the network refuses")
    proxy.refuses = False
    scene.recovered("a network that refused")
    _judged(scene)


def test_F42_F44_F46_a_server_that_answers_but_refuses(scene: Scene) -> None:
    server = scene.server
    if isinstance(server, Postgres | MariaDb):
        _locked(scene, server)
    _read_only(scene, server, True)
    scene.nobody_holds("the server is read-only")
    failed = [line for line in scene.race.lines() if line.get("code") == "store-failed"]
    assert failed, "they said so"
    pause(0.5)
    more = [line for line in scene.race.lines() if line.get("code") == "store-failed"]
    assert len(more) <= len(failed) + 3, "once each, not once per try"
    _read_only(scene, server, False)
    scene.recovered("being read-only")

    server.empty()  # somebody dropped the table
    scene.recovered("a dropped table", RESTART_MS)
    _judged(scene)


def _locked(scene: Scene, server: Postgres | MariaDb) -> None:
    """Another session keeps the row locked for longer than the hold."""
    lock = f"SELECT * FROM primacy_leases WHERE name = '{NAME}' FOR UPDATE"
    if isinstance(server, Postgres):
        import psycopg

        session = psycopg.connect(f"postgresql://admin@127.0.0.1:{server.port}/app")
        session.execute(lock)  # type: ignore[call-overload]
        scene.nobody_holds("the row is locked")
        session.rollback()
        session.close()
    else:
        import pymysql

        other = pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="app")
        other.begin()
        other.cursor().execute(lock)
        scene.nobody_holds("the row is locked")
        other.rollback()
        other.close()
    scene.recovered("a locked row")


def _read_only(scene: Scene, server: Server, on: bool) -> None:
    match server:
        case Postgres():
            server.admin(
                f"ALTER SYSTEM SET default_transaction_read_only = {on}", "SELECT pg_reload_conf()"
            ) if on else (
                server.admin(
                    "SET default_transaction_read_only = off",
                    "ALTER SYSTEM RESET default_transaction_read_only",
                    "SELECT pg_reload_conf()",
                )
            )
        case MariaDb():
            server.admin(f"SET GLOBAL read_only = {int(on)}")
        case Etcd():
            action = "ACTIVATE" if on else "DEACTIVATE"
            member = server.post("cluster/member/list", {})["members"][0]["ID"]
            server.post("maintenance/alarm", {"action": action, "memberID": member, "alarm": "NOSPACE"})
        case Redis():
            server.admin("CONFIG", "SET", "min-replicas-to-write", int(on))
    wait_for(lambda: tried(scene.url).ok is not on, "the server to be told")  # a file that it reads when it comes to it
    answer = tried(scene.url)
    assert on is any(word in answer.reason for word in ("read-only", "space exceeded", "min-replicas")), answer


@pytest.mark.skipif("postgresql" not in servers_here(), reason="PostgreSQL is not installed here")
def test_F41_postgresql_a_standby_is_promoted_that_lost_the_last_commits(tmp_path: Path) -> None:
    primary = fresh("postgresql")
    assert isinstance(primary, Postgres)
    cable = Proxy(primary.port)
    standby = Standby(primary, cable.port)
    scene = Scene(primary, tmp_path)
    try:
        wait_for(lambda: standby.rows() == 2, "the standby to follow")
        refused = look(standby.url())
        assert (refused.ok, "is a standby" in refused.reason) == (False, True), refused

        before = look(primary.url())
        cable.refuses = True
        held_ns = now_ns()
        wait_for(lambda: scene.race.holds_since(held_ns) >= 5, "commits that the standby never sees")
        last = look(primary.url())
        primary.kill()
        standby.promote()
        after = look(standby.url())
        assert before.row is not None
        assert after.row is not None
        assert last.row is not None
        assert after.row.seq < last.row.seq, "commits were lost, or this proves nothing"
        assert after.server != before.server
        same, other = before.server.split(":"), after.server.split(":")
        assert (same[1], same[2], other[1], other[2]) == (other[1], "00000001", same[1], "00000002"), "another timeline"
        assert after.genesis is not None
        assert not after.genesis.is_settled(after.server)
        scene.proxy.target = standby.port
        scene.proxy.drop_all()
        scene.recovered("the promotion", RESTART_MS)
        _judged(scene)
    finally:
        standby.remove()
        cable.close()
        scene.close()


@pytest.mark.skipif("redis" not in servers_here(), reason="Redis is not installed here")
def test_F41_redis_a_replica_is_promoted_that_lost_the_last_writes(tmp_path: Path) -> None:
    primary = fresh("redis")
    cable = Proxy(primary.port)
    replica = Replica(cable.port)
    replica.start()
    wait_for(replica.follows, "the replica to follow", replica)
    scene = Scene(primary, tmp_path)
    try:
        before = look(primary.url())
        wait_for(lambda: replica.admin("HLEN", "primacy_leases") == 2, "the replica to have it all")
        cable.refuses = True
        held_ns = now_ns()
        wait_for(lambda: scene.race.holds_since(held_ns) >= 5, "writes that the replica never sees")
        last = look(primary.url())
        primary.kill()
        replica.promote()
        after = look(replica.url())
        assert before.row is not None
        assert after.row is not None
        assert last.row is not None
        assert after.row.seq < last.row.seq, "writes were lost, or this proves nothing"
        assert after.server != before.server
        assert after.genesis is not None
        assert not after.genesis.is_settled(after.server)
        scene.proxy.target = replica.port
        scene.proxy.drop_all()
        scene.recovered("the promotion", RESTART_MS)
        _judged(scene)
    finally:
        replica.remove()
        cable.close()
        scene.close()


class Standby(Postgres):
    """A copy of a primary that follows it."""

    def __init__(self, primary: Postgres, cable_port: int) -> None:
        super().__init__()
        source = f"host=127.0.0.1 port={primary.port} user=admin"
        self.run(
            self.tool("pg_basebackup"), "-d", source, "-D", str(self.data), "-R", "-X", "stream", "--checkpoint=fast"
        )
        settings = self.data / "postgresql.auto.conf"
        settings.write_text(settings.read_text().replace(f"port={primary.port}", f"port={cable_port}"))
        Server.start(self)

    def rows(self) -> int:
        import psycopg

        try:
            return int(self.admin("SELECT count(*) FROM primacy_leases", database="app")[0][0])
        except psycopg.Error:
            return 0

    def promote(self) -> None:
        self.run(self.tool("pg_ctl"), "promote", "-w", "-D", str(self.data))


class Member(Etcd):
    """One of three."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.peer_port = free_port()
        self.everybody = ""

    def command(self) -> list[str]:
        words = super().command()
        words[words.index("--name") + 1] = f"n{self.number}"
        words[words.index("--initial-cluster") + 1] = self.everybody
        words[words.index("--initial-cluster-token") + 1] = "trio"
        return [*words, "--heartbeat-interval", "30", "--election-timeout", "200"]

    def launch(self) -> None:
        """Without waiting for an answer: one alone has none to give."""
        answers, self.answers = self.answers, lambda: True  # type: ignore[method-assign]
        try:
            self.start()
        finally:
            self.answers = answers  # type: ignore[method-assign]

    def leads(self) -> bool:
        try:
            status = self.post("maintenance/status", {})
        except (OSError, HTTPException, ValueError):
            return False
        return bool(status.get("leader", "0") == status["header"]["member_id"])


@pytest.mark.skipif("etcd" not in servers_here(), reason="etcd is not installed here")
def test_F45_three_members_of_etcd_lose_their_leader_are_compacted_and_lose_their_quorum(tmp_path: Path) -> None:
    members = [Member(number) for number in range(3)]
    everybody = ",".join(f"n{m.number}=http://127.0.0.1:{m.peer_port}" for m in members)
    scene: Scene | None = None
    try:
        for member in members:
            member.everybody = everybody
            member.launch()
        wait_for(lambda: all(member.answers() for member in members), "three members to agree")
        members[0].age()
        url = "etcd://" + ",".join(f"127.0.0.1:{member.port}" for member in members)
        scene = Scene(members[0], tmp_path, url)

        for _ in range(2):
            wait_for(lambda: any(member.leads() for member in members), "a leader of etcd")
            leader = next((member for member in members if member.leads()), members[0])
            leader.kill()
            scene.recovered("the death of etcd's leader", RESTART_MS)
            leader.launch()
            wait_for(leader.answers, "the member to come back")
        revision = int(members[0].post("kv/range", {"key": "AA=="})["header"]["revision"])
        members[0].post("kv/compaction", {"revision": str(revision), "physical": True})
        scene.recovered("a compaction", RESTART_MS)

        for member in members[:2]:
            member.kill()
        scene.nobody_holds("etcd has lost its quorum")
        for member in members[:2]:
            member.launch()
        wait_for(lambda: all(member.answers() for member in members), "the quorum to come back")
        scene.recovered("a lost quorum", RESTART_MS)
        _judged(scene)
    finally:
        if scene is not None:
            scene.close()
        for member in members:
            member.remove()


def _judged(scene: Scene) -> None:
    assert scene.judge().broken == []
