"""Real servers whose history goes back: a folder put back, a dump restored, a server that followed another (L5).

What each of them shows afterwards must not look like what was seen before. The dumps are made and read by the
databases' own programs, into the running server.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.election.store import Place, Settle, StoreAnswer
from primacy.settings.timing import PROFILES, for_lease
from primacy.store import open_store
from tests.support.canary import Canary
from tests.support.safety_checks import safe
from tests.support.servers import ENVIRONMENT, MariaDb, Postgres, Server, find, fresh, server, servers_here, wait_for
from tests.support.store_harness import LIMIT_MS, Harness, opened, place, row
from tests.support.store_harness import Place as Where
from tests.support.store_proxy import Proxy
from tests.support.store_race import Race, now_ns

pytestmark = pytest.mark.beside(order=80)

needs_postgresql = pytest.mark.skipif("postgresql" not in servers_here(), reason="PostgreSQL is not installed here")
needs_mariadb = pytest.mark.skipif("mariadb" not in servers_here(), reason="MariaDB is not installed here")
TABLE = "primacy_leases"
TRIES_MAX = 8


def looked(harness: Harness, name: str = "job") -> StoreAnswer:
    """Again, if the connection died with the server."""
    found = harness.look(name, count=True)
    return found if found.ok else harness.look(name, count=True)


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Where]:
    with place("postgresql", tmp_path) as found:
        yield found


def postgres() -> Postgres:
    found = server("postgresql")
    assert isinstance(found, Postgres)
    return found


def dumped(*options: str) -> bytes:
    where = ["-h", "127.0.0.1", "-p", str(postgres().port), "-U", "admin", "-d", "app"]
    command = [Postgres.tool("pg_dump"), *where, "-t", TABLE, *options]
    return subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT).stdout


def restored(dump: bytes) -> None:
    command = [Postgres.tool("psql"), "-h", "127.0.0.1", "-p", str(postgres().port), "-U", "admin", "-d", "app"]
    command += ["-v", "ON_ERROR_STOP=1", "-q"]
    subprocess.run(command, check=True, capture_output=True, input=dump, env=ENVIRONMENT)


@needs_postgresql
@pytest.mark.parametrize("way", ["the table made anew", "emptied", "rows deleted", "as INSERTs"])
def test_L5_a_dump_restored_into_the_running_server_vouches_for_nothing(here: Where, way: str) -> None:
    """It brings token, seq and proof back as they were: only what PostgreSQL itself notes of a write tells."""
    harness, watcher = here.harness(), here.harness()
    assert harness.take("free").done
    assert harness.release("free").done
    assert harness.take().done
    seen, settled = watcher.look(count=True), harness.look("fresh", count=True)
    free = watcher.look("free", count=True)
    dump = dumped(*{"the table made anew": ["--clean"], "as INSERTs": ["--data-only", "--column-inserts"]}.get(
        way, ["--data-only"]
    ))  # fmt: skip
    assert harness.renew().done, "and is at work since"
    assert harness.take("free", new=row("b#1", 11, 2)).done
    postgres().admin(*_emptied(way), database="app")
    restored(dump)

    for name, before in (("job", seen), ("free", free)):
        back = looked(watcher, name)
        assert back.row is not None
        assert before.row is not None
        assert (back.row.token, back.row.seq, back.row.proof) == (before.row.token, before.row.seq, before.row.proof)
        assert not back.row.vouches, "or this dump looks like what was seen"
        assert (back.server == before.server) is (way not in ("the table made anew", "emptied"))
        assert not watcher.take(name, new=row("c#1", 12, 3), seen=before).done, "the evidence is of before"
        assert not harness.renew(name, server=back.server).done
        assert not harness.release(name).done
    after = looked(watcher, "fresh")
    assert after.genesis is not None
    assert not after.genesis.vouches
    assert not after.genesis.is_settled(after.server)
    for genesis in (settled.genesis, after.genesis):
        assert not harness.take("fresh", seen=after._replace(genesis=genesis)).done, "no name is fresh in it"
    assert harness.ask(Place("fresh", after.server)).done
    placed = looked(watcher, "fresh")
    assert placed.genesis is not None
    assert not placed.genesis.is_settled(placed.server), "a placeholder's write settles nothing"

    back = looked(watcher)
    assert watcher.take(new=row("c#1", 12, 3), seen=back).done, "who has waited takes what is there now"
    now = looked(watcher)
    assert now.row is not None
    assert now.row.vouches
    assert now.genesis is not None
    assert watcher.ask(Settle("job", now.server, now.genesis)).done
    assert looked(watcher).genesis.is_settled(now.server)  # type: ignore[union-attr]


def _emptied(way: str) -> list[str]:
    if way == "the table made anew":
        return []
    return [f"TRUNCATE {TABLE}" if way == "emptied" else f"DELETE FROM {TABLE}"]


@needs_postgresql
def test_L5_a_dump_of_before_the_mark_vouches_for_nothing(here: Where) -> None:
    """Its rows have no such column: a default would fill it in, and vouch."""
    harness = here.harness()
    assert harness.take().done
    postgres().admin("CREATE TABLE kept AS SELECT * FROM primacy_leases", "ALTER TABLE kept DROP COLUMN xid",
                     database="app")  # fmt: skip
    before = harness.look()
    columns = "name, holder, token, seq, hold_ms, wait_ms, released, members, successor, server, written_at, proof"
    postgres().admin(
        f"DELETE FROM {TABLE}", f"INSERT INTO {TABLE} ({columns}) SELECT {columns} FROM kept", "DROP TABLE kept",
        database="app",
    )  # fmt: skip
    back = harness.look()
    assert back.row is not None
    assert (back.server, back.row.vouches) == (before.server, False)
    assert not harness.renew().done
    assert not harness.take(new=row("b#1", 11, 2), seen=before).done


@needs_postgresql
def test_L5_what_an_administrator_does_to_a_table_leaves_live_leases_alone(here: Where) -> None:
    harness = here.harness()
    assert harness.take().done
    seq = 1
    for statement in (f"VACUUM FREEZE {TABLE}", f"VACUUM FULL {TABLE}", f"SELECT * FROM {TABLE} FOR UPDATE",
                      f"ALTER TABLE {TABLE} ADD COLUMN note text", f"ANALYZE {TABLE}", f"REINDEX TABLE {TABLE}",
                      f"CLUSTER {TABLE} USING {TABLE}_pkey"):  # fmt: skip
        before = harness.look(count=True)
        postgres().admin(statement, database="app")
        after = harness.look(count=True)
        assert (after.row, after.genesis) == (before.row, before.genesis), statement
        changes = ("VACUUM FULL", "ALTER", "CLUSTER")
        assert (after.server != before.server) is statement.startswith(changes), "what rewrites or alters it is told"
        assert after.row is not None
        assert after.row.vouches, statement
        assert harness.renew(seq=seq).done, statement
        seq += 1
    postgres().admin(f"UPDATE {TABLE} SET hold_ms = 1 WHERE name = 'job'", database="app")
    assert not harness.renew(seq=seq).done, "a row changed by hand is nobody's"


@needs_postgresql
def test_L5_the_position_grows(here: Where) -> None:
    harness = here.harness()
    found = [harness.look().position]
    assert harness.take().done
    for seq in range(1, 5):
        found.append(harness.renew(seq=seq).position)
        found.append(harness.look().position)
    assert found == sorted(found)
    assert 0 < found[0] < found[-1]


@needs_postgresql
def test_L3_who_may_only_connect_can_repeat_news_and_gains_nothing(here: Where, tmp_path: Path) -> None:
    """It hears whatever is told, and tells it again as a release, in the words of every version there was."""
    import psycopg

    here.harness()
    postgres().admin("DROP ROLE IF EXISTS stranger", "CREATE ROLE stranger LOGIN", database="app")
    race = Race(here.url, tmp_path / "race", count=3, mode="calm", profile="lan")  # `fast` loses it by one slow write
    try:
        wait_for(lambda: race.holds_since(0) >= 3, "somebody to hold it")
        with (
            Canary(for_lease(PROFILES["lan"]).heartbeat_ms) as canary,
            psycopg.connect(here.url.replace("app@", "stranger@"), autocommit=True) as stranger,
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                stranger.execute("SELECT * FROM primacy_leases")
            stranger.execute("LISTEN primacy_leases")
            lies = 0
            since = now_ns()
            while lies < 12:
                for heard in list(stranger.notifies(timeout=1, stop_after=1)):
                    if heard.pid == stranger.info.backend_pid:
                        continue  # a lie of its own
                    words = heard.payload.split(" ")
                    for lie in (
                        words[0],
                        " ".join([*words[:3], "1", *words[4:]]),
                        f"{words[0]} renewed",
                        f"{words[0]} 1 1 1 x ",
                        "",
                    ):
                        stranger.execute("SELECT pg_notify('primacy_leases', %s)", (lie,))
                    lies += 1
                if race.holds_since(since) > 60:
                    break
            held = {line["token"] for line in race.lines() if line["what"] == "hold"}  # another may hold it at the end
        assert lies >= 10, "it heard nothing, so this shows nothing"
    finally:
        verdict = race.stop()
        postgres().admin("DROP ROLE stranger", database="app")
    verdict.one_at_a_time()
    canary.judge(len(held) == 1, f"nobody takes a live lease: {verdict}")


@needs_postgresql
def test_L4_a_folder_put_back_makes_nobody_start_before_the_longest_wait(tmp_path: Path) -> None:
    """The row says released, with a token that nobody remembers any more; the holder that it forgot is at work."""
    found = fresh("postgresql")
    assert isinstance(found, Postgres)
    proxy = Proxy(found.port)
    url = found.url().replace(f":{found.port}", f":{proxy.port}")
    race = later = None
    harness = Harness(open_store(found.url(), limit_ms=LIMIT_MS))
    try:
        harness.store.make_table(new=True)  # type: ignore[attr-defined]
        assert harness.take("race").done
        assert harness.release("race").done
        before = harness.look("race", count=True)
        found.stop()
        copy = found.folder / "copy"
        shutil.copytree(found.data, copy, symlinks=True)
        _owned(found, copy)
        found.start()
        after_start = looked(harness, "race")
        assert after_start.server != before.server
        assert after_start.genesis is not None
        assert harness.ask(Settle("race", after_start.server, after_start.genesis)).done, (
            "this test has waited long enough"
        )
        race = Race(url, tmp_path / "before", count=1, mode="calm", profile="wan")
        wait_for(lambda: race.holds_since(0) >= 1, "a holder", within_s=60)
        proxy.refuses = True
        found.kill()
        shutil.rmtree(found.data)
        copy.rename(found.data)
        found.start()
        back = looked(harness, "race")
        assert back.row is not None
        assert (back.row.token, back.row.released, back.row.vouches) == (10, True, True)
        assert back.server not in (before.server, after_start.server), "each start is another server"
        assert back.row.server != back.server
        assert back.genesis is not None
        assert not back.genesis.is_settled(back.server)
        assert not harness.take("race", new=row("b#1", 11, 2), seen=back._replace(server=before.server)).done
        later = Race(found.url(), tmp_path / "after", count=2, mode="calm", profile="fast")
        wait_for(lambda: any(line["what"] == "end" for line in race.lines()), "the holder to stop by itself")
        ended = next(line["at"] for line in race.lines() if line["what"] == "end")
        began = [line["at"] for line in later.lines() if line["what"] == "hold"]
        safe(not began or min(began) > ended, f"they started beside it, at {began[:1]}; it ended at {ended}")
    finally:
        for one in (race, later):
            if one is not None and one.process.poll() is None:
                one.process.kill()
                one.process.wait()
        harness.store.close()
        proxy.close()
        found.remove()


def _owned(found: Postgres, folder: Path) -> None:
    import os

    status = found.data.stat()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)
    folder.chmod(0o700)


# --- MariaDB ----------------------------------------------------------------------------------------------------------


class Replicating(MariaDb):
    """One that others can follow, and that can follow others."""

    number = 1

    def command(self) -> list[str]:
        words = [word for word in super().command() if word != "--skip-log-bin"]
        return [*words, f"--log-bin={self.folder}/binlog", f"--server-id={self.number}", "--binlog-format=ROW",
                "--log-slave-updates", "--slave-net-timeout=4"]  # fmt: skip

    def start(self) -> None:
        super().start()
        self.admin("CREATE USER IF NOT EXISTS repl@'%' IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO repl@'%'")

    def follow(self, other: MariaDb) -> None:
        self.admin(
            "SET GLOBAL read_only = 1",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {other.port}, master_user = 'repl', "
            "master_password = 'r', master_use_gtid = slave_pos",
            "START SLAVE",
        )

    def lead(self) -> None:
        self.admin("STOP SLAVE", "SET GLOBAL read_only = 0")


@pytest.fixture
def pair() -> Iterator[tuple[Replicating, Replicating]]:
    """X, which is written to, and Y, which follows it."""
    if reason := MariaDb.missing():
        pytest.skip(reason)
    made = (Replicating(), Replicating())
    try:
        for number, one in enumerate(made, 1):
            one.number = number
            one.prepare()
            one.start()
        yield made
    finally:
        for one in made:
            one.remove()


@needs_mariadb
def test_L5_a_server_that_followed_another_one_is_another_server(pair: tuple[Replicating, Replicating]) -> None:
    """X leads; Y takes over, and X follows it with a lag; Y dies, and X leads again, without what Y has done."""
    x, y = pair
    watcher, other = (Harness(open_store(one.url(), limit_ms=LIMIT_MS)) for one in pair)
    watcher.store.make_table(new=True)  # type: ignore[attr-defined]
    assert watcher.take().done
    seen, fresh_name = watcher.look(count=True), watcher.look("fresh", count=True)
    y.follow(x)
    wait_for(lambda: _rows(y) >= 2, "Y to follow")
    refused = other.look()
    assert (refused.ok, "read-only" in refused.reason) == (False, True), refused

    x.admin("SET GLOBAL read_only = 1")
    y.lead()
    x.follow(y)
    x.admin("STOP SLAVE SQL_THREAD")  # it lags
    there = other.look()
    assert there.row is not None
    assert (there.row.token, there.server == seen.server) == (10, False)
    assert other.take(new=row("b#1", 20, 2), seen=there).done, "somebody works under it"
    y.kill()
    x.lead()

    back = looked(watcher)
    assert back.row == seen.row, "X has forgotten the take, or this shows nothing"
    assert back.server != seen.server
    assert not watcher.take(new=row("c#1", 30, 2), seen=seen).done, "what was seen before proves nothing"
    assert not watcher.take("fresh", seen=fresh_name).done
    assert not watcher.release().done
    assert not watcher.renew(server=seen.server).done
    again = looked(watcher, "fresh")
    assert again.genesis is not None
    assert not again.genesis.is_settled(again.server)
    assert watcher.take(new=row("c#1", 30, 2), seen=back).done, "who has waited takes it"
    for harness in (watcher, other):
        harness.store.close()


@needs_mariadb
def test_L5_servers_that_follow_each_other_all_the_time_keep_no_lease(pair: tuple[Replicating, Replicating]) -> None:
    """The one is writable, then the other, and nobody is made to follow: nothing else would tell what X forgot."""
    x, y = pair
    watcher, other = (Harness(open_store(one.url(), limit_ms=LIMIT_MS)) for one in pair)
    watcher.store.make_table(new=True)  # type: ignore[attr-defined]
    assert watcher.take().done
    alone = watcher.look(count=True)
    y.follow(x)
    wait_for(lambda: _rows(y) >= 2, "Y to follow")
    x.follow(y)
    x.admin("SET GLOBAL read_only = 0")
    wait_for(lambda: _follows(x), "X to follow")
    for _ in range(2):
        refused = looked(watcher)
        assert not refused.ok
        assert not refused.final, "it may be stopped"
        assert "follows another server" in refused.reason
        assert "STOP SLAVE" in refused.reason
    assert not watcher.renew(server=alone.server).done
    assert not watcher.release().done
    assert not watcher.take("fresh", seen=_of_a_fresh_name(alone)).done
    x.admin("SET GLOBAL read_only = 1")
    y.admin("SET GLOBAL read_only = 0")
    assert "follows another server" in looked(other).reason, "also as the next to be written to"

    y.admin("STOP SLAVE")
    promoted = looked(other)
    assert promoted.ok, "a replica that is promoted"
    assert other.take(new=row("b#1", 20, 2), seen=promoted).done
    x.lead()
    back = looked(watcher)
    assert back.ok
    assert back.server != alone.server
    assert back.link != alone.link, "for those who trust what they have watched alone"
    assert not back.genesis.is_settled(back.server)  # type: ignore[union-attr]
    for harness in (watcher, other):
        harness.store.close()


def _of_a_fresh_name(seen: StoreAnswer) -> StoreAnswer:
    """The same sight, of a name that has no row."""
    return seen._replace(row=None)


def _follows(one: MariaDb) -> bool:
    return one.admin("SHOW GLOBAL STATUS LIKE 'Slaves_running'") == (("Slaves_running", "1"),)


def _rows(one: MariaDb) -> int:
    import pymysql

    try:
        return int(one.admin("SELECT COUNT(*) FROM primacy_leases", database="app")[0][0])
    except pymysql.Error:
        return 0


@needs_mariadb
def test_L4_who_watches_a_server_that_is_fenced_begins_anew(tmp_path: Path) -> None:
    """Another one may be written to meanwhile, and nothing of this one tells: so `trust: watched` must not hold on."""
    with place("mariadb", tmp_path) as here:
        harness, maria = here.harness(), server("mariadb")
        assert isinstance(maria, MariaDb)
        seen = harness.look()
        assert harness.look().link == seen.link
        maria.admin("SET GLOBAL read_only = 1")
        try:
            refused = harness.look()
            assert "read-only" in refused.reason
        finally:
            maria.admin("SET GLOBAL read_only = 0")
        back = harness.look()
        assert (back.ok, back.server) == (True, seen.server)
        assert back.link != seen.link


@needs_mariadb
def test_L5_what_an_administrator_resets_does_not_bring_an_identity_back(tmp_path: Path) -> None:
    with place("mariadb", tmp_path) as here:
        harness, maria = here.harness(), server("mariadb")
        assert isinstance(maria, MariaDb)
        seen = {looked(harness).server}
        read_only = ["SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"]
        for statements in (
            ["FLUSH STATUS"],
            ["FLUSH TABLES"],
            ["FLUSH LOGS"],
            read_only,
            [f"ANALYZE TABLE app.{TABLE}"],
        ):
            maria.admin(*statements)
            seen.add(looked(harness).server)
        assert len(seen) == 1, seen
        maria.admin("CHANGE MASTER TO master_host = '127.0.0.1', master_port = 1, master_user = 'x'", "START SLAVE")
        maria.admin("STOP SLAVE", "RESET SLAVE ALL", "FLUSH STATUS")
        assert looked(harness).server not in seen


@needs_mariadb
def test_L5_a_server_that_starts_twice_in_one_second_is_another_server() -> None:
    """It crashes right after its start, and with it goes a take that was answered. Its start is known to the second."""
    maria = fresh("mariadb")
    assert isinstance(maria, MariaDb)
    began: list[int] = []
    try:
        harness = opened(maria.url())
        assert harness.take().done
        assert harness.release().done
        for token in range(100, 100 + 10 * TRIES_MAX, 10):
            maria.kill()
            wait_for(lambda: time.time() % 1 < 0.05, "the beginning of a second")
            Server.start(maria)
            row_here = looked(harness).row
            assert row_here is not None
            assert harness.take(new=row("a#1", token, row_here.seq + 1)).done
            assert harness.release("job", "a#1", token, row_here.seq + 1).done
            maria.admin("SET GLOBAL innodb_flush_log_at_trx_commit = 0")  # what comes now is in its memory for a second
            seen = looked(harness)
            assert harness.take(new=row("b#1", token + 1, row_here.seq + 2), seen=seen).done, "somebody works under it"
            began = [_began(maria)]
            maria.kill()
            Server.start(maria)
            began.append(_began(maria))
            back = looked(harness)
            assert back.server != seen.server, began
            assert not harness.take(new=row("c#1", token + 2, row_here.seq + 2), seen=seen).done
            if began[0] == began[1] and back.row == seen.row:
                return  # the take is forgotten, and the start is the same to the second
    finally:
        maria.remove()
    pytest.skip(f"this machine did not start it twice in one second, in {TRIES_MAX} tries: {began}")


def _began(maria: MariaDb) -> int:
    """As the server tells it."""
    ((moment,),) = maria.admin(
        "SELECT UNIX_TIMESTAMP() - VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'"
    )
    return int(moment)


@needs_mariadb
def test_L5_a_dump_that_makes_the_table_anew_is_another_server(tmp_path: Path) -> None:
    """To the second, which is what MariaDB keeps of it. Rows read into the table that stands are outside."""
    with place("mariadb", tmp_path) as here:
        harness, maria = here.harness(), server("mariadb")
        assert isinstance(maria, MariaDb)
        assert harness.take().done
        seen, fresh_name = harness.look(count=True), harness.look("fresh", count=True)
        login = ["--no-defaults", "-h", "127.0.0.1", "-P", str(maria.port), "-u", "root"]
        program = find("mariadb-dump") or "mysqldump"
        dump = subprocess.run([program, *login, "app", TABLE], check=True, capture_output=True).stdout
        assert harness.renew().done
        wait_for(lambda: _now(maria) > int(seen.server.rpartition(":")[2]), "the next second")
        subprocess.run([find("mariadb") or "mysql", *login, "app"], check=True, input=dump, capture_output=True)
        back = looked(harness)
        assert back.row == seen.row
        assert back.server != seen.server
        assert not harness.take(new=row("b#1", 11, 2), seen=seen).done
        assert not harness.take("fresh", seen=fresh_name).done
        assert not harness.release().done
        assert not looked(harness, "fresh").genesis.is_settled(back.server)  # type: ignore[union-attr]


def _now(maria: Any) -> int:
    return int(maria.admin("SELECT UNIX_TIMESTAMP()")[0][0])


@needs_mariadb
def test_L9_an_emptied_table_is_not_the_one_that_was_seen(tmp_path: Path) -> None:
    """Nothing of MariaDB tells: the genesis row that is made anew has another version, drawn by chance."""
    with place("mariadb", tmp_path) as here:
        harness, maria = Harness(here.open()), server("mariadb")
        assert isinstance(maria, MariaDb)
        before = looked(harness)
        assert before.genesis is not None
        assert not before.genesis.is_settled(before.server)
        maria.admin(f"TRUNCATE app.{TABLE}")
        after = looked(harness)
        assert after.server == before.server
        assert not harness.ask(Settle("job", before.server, before.genesis)).done, "what was watched is gone"
        assert not after.genesis.is_settled(after.server)  # type: ignore[union-attr]


@needs_mariadb
def test_L3_a_row_that_was_written_by_hand_can_be_taken_like_any_other(tmp_path: Path) -> None:
    """No user of leases writes a proof below 0, and a name must not be locked out by one."""
    with place("mariadb", tmp_path) as here:
        harness, maria = here.harness(), server("mariadb")
        assert isinstance(maria, MariaDb)
        assert harness.take().done
        maria.admin(f"UPDATE app.{TABLE} SET proof = -5 WHERE name = 'job'")
        seen = looked(harness)
        assert seen.row is not None
        assert seen.row.proof == "-5"
        assert harness.take(new=row("b#1", 11, 2), seen=seen).done
