"""What is Redis's own: its identity, the servers on which nothing is held, what its script compares (L1, L3, L5, L9).

What every store owes is asked of it as of the others: `test_store_contract.py`, the races, the faults, the acts.
"""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.election.store import Look, Place, Renew, Settle, StoreAnswer
from primacy.errors import NotReached, Refused
from primacy.store import open_store, perform, redis, redis_rows
from primacy.store.port import News
from primacy.store.schema import schema
from tests.support.redis_servers import Node, Replica, Sentinel, running, with_settings
from tests.support.servers import Redis, empty, fresh, server, servers_here, wait_for
from tests.support.store_harness import LIMIT_MS, Harness, opened, row

pytestmark = [
    pytest.mark.beside(order=275),
    pytest.mark.skipif("redis" not in servers_here(), reason=Redis.missing() or "here"),
]
TABLE = "primacy_leases"
ADVISORY = "?durability=advisory"


@pytest.fixture
def shared() -> Redis:
    """The one of all tests of this process, without a lease."""
    empty("redis")
    found = server("redis")
    assert isinstance(found, Redis)
    return found


@pytest.fixture
def own() -> Iterator[Redis]:
    """One to be broken."""
    found = fresh("redis")
    assert isinstance(found, Redis)
    yield found
    found.remove()


def asked(url: str) -> StoreAnswer:
    harness = Harness(open_store(url, limit_ms=LIMIT_MS))
    try:
        return harness.look(count=True)
    finally:
        harness.store.close()


def final(answer: StoreAnswer, *words: str) -> None:
    """One sentence for people, with the remedy."""
    assert (answer.ok, answer.done, answer.final) == (False, False, True), answer
    for word in words:
        assert word in answer.reason, answer.reason
    assert "guessed" not in answer.reason
    assert "secret" not in answer.reason


# --- identity ---------------------------------------------------------------------------------------------------------


def ids(answer: StoreAnswer) -> tuple[str, str]:
    name, run_id, replication_id, role = answer.server.split(":")
    assert (name, role) == ("redis", "master")
    return run_id, replication_id


def test_L5_a_restart_changes_both_ids_and_keeps_the_row(own: Redis) -> None:
    harness = opened(own.url())
    taken = harness.take()
    for end in (own.kill, own.stop):
        before = ids(asked(own.url()))
        end()
        own.start()
        after = asked(own.url())
        assert after.row == taken.row, "it was on the disk before it was answered"
        assert all(one != other for one, other in zip(before, ids(after), strict=True))
        assert after.genesis is not None
        assert not after.genesis.is_settled(after.server), "names are not free at once"
    harness.store.close()


def test_L5_a_promotion_changes_the_second_id_alone_and_a_replica_is_refused(own: Redis) -> None:
    opened(own.url()).store.close()
    with running(Replica(own.port)) as replica:
        assert isinstance(replica, Replica)
        wait_for(replica.follows, "the replica to follow", replica)
        refused = asked(replica.url())
        assert (refused.ok, refused.final, "is a replica" in refused.reason) == (False, False, True), refused
        replica.admin("CONFIG", "SET", "replica-read-only", "no")
        refused = asked(replica.url())
        assert (refused.ok, refused.final, "is a replica" in refused.reason) == (False, False, True), refused
        text = replica.admin("INFO", "server", "replication").decode()
        replica.promote()
        run_id, replication_id = ids(asked(replica.url()))
        assert f"run_id:{run_id}" in text
        assert f"master_replid:{replication_id}" not in text


def test_L3_the_script_itself_compares_the_identity(own: Redis) -> None:
    """The connection stays, the row stays, and what is remembered would match: only the script can tell."""
    harness = opened(own.url())
    assert harness.take().done
    before = harness.look(count=True)
    own.admin("DEBUG", "CHANGE-REPL-ID")
    late = harness.renew(server=before.server)
    assert (late.ok, late.done, late.row, late.link) == (True, False, before.row, before.link)
    assert late.server != before.server
    assert harness.renew(server=late.server).done, "who holds on moves along"
    own.admin("DEBUG", "CHANGE-REPL-ID")
    assert not harness.release(seq=2).done, "it was last written under another identity"
    harness.store.close()


def test_L1_no_clock_of_the_server_stands_in_the_script() -> None:
    for word in ("TIME", "EXPIRE", "TTL", "os.clock"):
        assert word not in redis_rows.SCRIPT


def test_L9_FLUSHALL_leaves_nothing_that_is_believed(shared: Redis) -> None:
    harness = opened(shared.url())
    assert harness.take().done
    before = harness.look(count=True)
    shared.admin("FLUSHALL")
    assert not harness.renew(server=before.server).done
    after = harness.look(count=True)
    assert (after.server, after.row) == (before.server, None), "the name does not tell"
    assert after.genesis is not None
    assert before.genesis is not None
    assert after.genesis.settled == ""
    assert after.genesis.version != before.genesis.version
    assert not harness.take().done
    assert harness.ask(Place("job", after.server)).done
    harness.store.close()


@pytest.mark.parametrize("gone", ["job", ":genesis"])
def test_L9_a_row_that_somebody_removed_frees_no_name(shared: Redis, gone: str) -> None:
    harness = opened(shared.url())
    assert harness.take().done
    shared.admin("HDEL", TABLE, gone)
    assert not harness.take("other").done
    assert not harness.take().done if gone == "job" else harness.renew().done
    harness.store.close()


# --- what the script compares -----------------------------------------------------------------------------------------


# One store remembers what is no longer so: `harness`. Each says whether it wrote all the same.


def an_older_row(shared: Redis, harness: Harness, other: Harness) -> bool:
    seen = harness.look()
    assert other.take(new=row("b#2", 20, 2)).done
    return harness.renew(server=seen.server).done


def an_older_genesis(shared: Redis, harness: Harness, other: Harness) -> bool:
    seen = harness.look(count=True)
    assert seen.genesis is not None
    assert other.ask(Settle("job", seen.server, seen.genesis)).done
    return harness.ask(Settle("job", seen.server, seen.genesis)).done


def another_count(shared: Redis, harness: Harness, other: Harness) -> bool:
    seen = harness.look("new", count=True)
    shared.admin("HDEL", TABLE, "other")
    return harness.take("new", seen=seen).done


def another_identity(shared: Redis, harness: Harness, other: Harness) -> bool:
    seen = harness.look()
    shared.admin("DEBUG", "CHANGE-REPL-ID")
    return harness.renew(server=seen.server).done


def wrote(shared: Redis, happens: Callable[[Redis, Harness, Harness], bool]) -> bool:
    shared.empty()
    harness, other = opened(shared.url()), Harness(open_store(shared.url(), limit_ms=LIMIT_MS))
    assert harness.take("other").done
    assert harness.take().done
    try:
        return happens(shared, harness, other)
    finally:
        harness.store.close()
        other.store.close()


MUTANTS = {
    "(row(name) or '') == was": an_older_row,
    "(row(':genesis') or '') == genesis_was": an_older_genesis,
    "redis.call('HLEN', KEYS[1]) == tonumber(fields)": another_count,
    "ARGV[1] == server": another_identity,
}


@pytest.mark.parametrize("condition", MUTANTS)
def test_L3_without_a_condition_of_the_script_somebody_notices(
    shared: Redis, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    happens = MUTANTS[condition]
    assert not wrote(shared, happens)
    assert redis_rows.SCRIPT.count(condition) == 1
    monkeypatch.setattr(redis, "SCRIPT", redis_rows.SCRIPT.replace(condition, "true"))
    monkeypatch.setattr(redis, "SCRIPT_SHA", "0" * 40)
    assert wrote(shared, happens), "or the condition is not needed"


# --- where nothing is held --------------------------------------------------------------------------------------------

UNFIT = {
    "nothing on disk": (("--appendonly", "no"), "appendonly no", "a restart forgets who holds"),
    "on disk later": (("--appendfsync", "everysec"), "appendfsync everysec", "set appendfsync to always"),
    "on disk later, at times": (("--no-appendfsync-on-rewrite", "yes"), "no-appendfsync-on-rewrite yes", "a crash"),
    "eviction": (("--maxmemory-policy", "allkeys-lru"), "maxmemory-policy allkeys-lru", "removes leases"),
    "no CONFIG": (("--rename-command", "CONFIG", ""), "refuses CONFIG GET", "nobody knows"),
}


@pytest.mark.parametrize("why", UNFIT)
def test_nothing_is_held_on_a_server_that_may_forget(why: str) -> None:
    settings, *words = UNFIT[why]
    with running(with_settings(*settings)) as found:
        final(asked(found.url()), *words, "Redis at 127.0.0.1", "durability=advisory")
        harness = opened(found.url() + ADVISORY)
        assert harness.take().done
        assert harness.renew().done
        harness.store.close()


@pytest.mark.parametrize(("query", "code", "says"), [("", 4, "appendonly no"), (ADVISORY, 2, "two nodes can hold")])
def test_primacy_run_takes_no_such_server(query: str, code: int, says: str, tmp_path: Path) -> None:
    with running(with_settings("--appendonly", "no")) as found:
        command = [sys.executable, "-m", "primacy.cli.main", "run", "--state-dir", str(tmp_path / "state")]
        command += ["--store", found.url() + query, "--", "touch", str(tmp_path / "ran")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert says in done.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "ran").exists()


def test_a_server_that_is_set_otherwise_while_a_lease_is_held_is_refused(own: Redis) -> None:
    harness = opened(own.url())
    assert harness.take().done
    who = harness.server()
    own.admin("CONFIG", "SET", "appendfsync", "everysec")
    final(harness.renew(server=who), "appendfsync everysec")
    own.admin("CONFIG", "SET", "appendfsync", "always")
    seen = harness.look()
    assert seen.row is not None
    assert harness.renew(server=who, seq=seen.row.seq).done, "a mended server is enough"
    harness.store.close()


def test_a_node_of_a_cluster_is_refused_unless_advisory() -> None:
    with running(Node()) as found:
        final(asked(found.url()), "is a node of a cluster", "two primaries can grant at once", "a database")
        harness = opened(found.url() + ADVISORY)
        assert harness.take().done
        harness.store.close()


def test_a_server_that_a_sentinel_watches_is_refused_unless_advisory(own: Redis) -> None:
    assert asked(own.url()).ok
    with running(Sentinel(own)):
        wait_for(lambda: not asked(own.url()).ok, "the Sentinel to watch")
        final(asked(own.url()), "is watched by a Sentinel", "two primaries can grant at once", "a database")
        assert asked(own.url() + ADVISORY).ok
    wait_for(lambda: asked(own.url()).ok, "nobody to watch any more")


def test_two_primaries_grant_at_once_and_WAIT_undoes_nothing(own: Redis) -> None:
    """Why a Sentinel is refused. If this fails, Redis has changed, and the refusal may go."""
    opened(own.url()).store.close()
    with running(Replica(own.port)) as replica:
        assert isinstance(replica, Replica)
        wait_for(replica.follows, "the replica to follow", replica)
        replica.promote()
        grants = []
        for one in (own, replica):
            harness = Harness(open_store(one.url(), limit_ms=LIMIT_MS))
            seen = harness.look(count=True)
            assert seen.genesis is not None
            assert harness.ask(Settle("job", seen.server, seen.genesis)).done
            grants.append(harness.take().done)
            harness.store.close()
        assert grants == [True, True]
        wait_for(lambda: own.admin("WAIT", 1, 100) == 0, "the first primary to see that nobody follows it")
        assert asked(own.url()).row is not None


def test_a_full_memory_costs_no_holder_its_lease(own: Redis) -> None:
    harness = opened(own.url())
    assert harness.take().done
    own.admin("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(Refused, match="OOM"):
        own.admin("SET", "x", "y")
    for seq in (1, 2, 3):
        assert harness.renew(seq=seq).done
    assert harness.release(seq=4).done
    harness.store.close()


def test_an_evicted_table_is_made_anew_and_frees_no_name(own: Redis) -> None:
    """With `advisory` it may happen; all of the table goes at once."""
    harness = opened(own.url() + ADVISORY)
    assert harness.take().done
    own.admin("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    own.admin("CONFIG", "SET", "maxmemory", "1")
    wait_for(lambda: own.admin("DBSIZE") == 0, "the eviction")
    own.admin("CONFIG", "SET", "maxmemory", "0")
    assert not harness.renew().done
    assert not harness.take().done
    harness.store.close()


# --- who may, and what is not Redis -----------------------------------------------------------------------------------


def test_what_never_passes_by_itself_is_told_with_the_remedy(own: Redis) -> None:
    where = f"127.0.0.1:{own.port}"
    final(asked(f"redis://:guessed@{where}"), "AUTH", "leave the password out")
    final(asked(f"redis://{where}/99"), "DB index", "choose a database")
    own.admin("SET", TABLE, "somebody's")
    final(asked(own.url()), "WRONGTYPE", "choose another name")
    own.admin("DEL", TABLE)
    own.admin("ACL", "SETUSER", "few", "on", ">secret", "~*", "+info")
    final(asked(f"redis://few:secret@{where}"), "NOPERM", "primacy lease schema --store redis://")
    own.admin("ACL", "SETUSER", "few", "+evalsha", "+eval")
    final(asked(f"redis://few:secret@{where}"), "primacy lease schema --store redis://")
    own.admin("CONFIG", "SET", "requirepass", "secret")
    final(asked(f"redis://{where}"), "unauthenticated", "asks for a password")
    for user in ("", "default", "few", "nobody"):
        final(asked(f"redis://{user}:guessed@{where}"), "WRONGPASS", "correct the user or the password")
    assert asked(f"redis://:secret@{where}").ok


def test_a_server_without_INFO_is_told_with_the_remedy() -> None:
    with running(with_settings("--rename-command", "INFO", "")) as found:
        final(asked(found.url()), "command called from script", "with INFO")


def test_what_passes_by_itself_is_waited_for(own: Redis) -> None:
    assert asked(own.url()).ok
    harness = opened(own.url())
    own.admin("CONFIG", "SET", "maxclients", 1)
    full = asked(own.url())
    assert (full.ok, full.final, "max number of clients" in full.reason) == (False, False, True), full
    assert harness.take().done
    with contextlib.closing(open_store(own.url(), limit_ms=LIMIT_MS)) as kept:
        for _ in range(3):  # it hung up: no try is lost on a connection that is over
            (full,) = perform(kept, [Look("job")])
            assert "max number of clients reached: raise maxclients" in full.reason, full
        harness.store.close()
        wait_for(lambda: asked(own.url()).ok, "its place")
        (found,) = perform(kept, [Look("job")])
        assert found.ok, found


def test_the_rights_that_the_schema_prints_suffice(own: Redis, tmp_path: Path) -> None:
    words = schema("redis", TABLE, "bob").replace("'", "").split()
    own.admin(*words[1:], "on", ">p w")
    (tmp_path / "password").write_text("p w\n")
    url = f"redis://bob@127.0.0.1:{own.port}/0?password_file={tmp_path}/password"
    harness = opened(url)
    store: Any = harness.store
    assert store.listen() >= 0
    assert harness.take().done
    assert harness.renew().done
    assert harness.release(seq=2).done
    assert [one.name for one in store.listings()] == ["job"]
    other = Harness(open_store(url, table="elsewhere", limit_ms=LIMIT_MS))
    final(other.look(), "primacy lease schema --store redis://")
    other.store.close()
    own.admin("ACL", "SETUSER", "bob", "-publish", "resetchannels")
    assert harness.take(new=row("a#2", 11, 2)).done, "news are worth nothing to who may not send them"
    store.close()


ANSWERS = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"*1\r\n*1\r\n*-1\r\n:7\r\n",
    b"$-1\r\n" * 3,
    b"\0" * 100_000,
    b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n" * 3,
    b"$99999999999\r\n",
    b"*999999999\r\n",
    b"*1\r\n" * 20,
    b":x\r\n",
    b":" + b"9" * 5_000 + b"\r\n",
    b"-\x1b[31mERR\x07\r\n" * 3,
    b"*6\r\n$8\r\n::master\r\n$1\r\n0\r\n$1\r\n0\r\n$-1\r\n:0\r\n*2\r\n:0\r\n$-1\r\n",
    b"*1\r\n$1\r\nx\r\n*2\r\n$1\r\nx\r\n:0\r\n*0\r\n",
    *(
        b"*6\r\n$88\r\n%b:%b:master\r\n$%d\r\n%b\r\n$1\r\n0\r\n$-1\r\n:0\r\n*2\r\n:0\r\n$-1\r\n"
        % (b"a" * 40, b"b" * 40, len(offset), offset)
        for offset in ("²".encode(), b"9" * 5_000)
    ),
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_is_not_redis_is_told_and_is_no_fault_of_ours(answer: bytes) -> None:
    def serve() -> None:
        while True:
            try:
                connection, _ = other.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):  # who asked may have seen enough before all of it was sent
                connection.recv(65_536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=serve, daemon=True).start()
        for query in ("", ADVISORY):
            store: Any = open_store(f"redis://127.0.0.1:{other.getsockname()[1]}{query}", limit_ms=2_000)
            for request in (Look("job"), Renew("job", "a#1", 1, 1, "x"), Place("job", "x")):
                (found,) = perform(store, [request])
                assert (found.ok, found.done) == (False, False)
                assert found.reason.startswith("Redis at 127.0.0.1")
                assert found.reason.isprintable()
                for word in ("int()", "literal", "digits"):  # of Python, not of ours
                    assert word not in found.reason
            with pytest.raises((NotReached, Refused)):
                store.listings()
            store.close()
        other.shutdown(socket.SHUT_RDWR)


def test_more_leases_than_are_remembered_cost_no_answer(shared: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "KNOWN_MAX", 10)
    store = opened(shared.url()).store
    for numbers in (range(5), range(5, 10), (0, 1, 2, 10, 11), (3, 4, 5, 12), range(8)):
        assert all(found.ok for found in perform(store, [Look(f"job{n}") for n in numbers]))
    store.close()


def test_a_row_of_somebody_else_costs_its_neighbours_nothing(shared: Redis) -> None:
    harness = opened(shared.url())
    for name in ("a", "b"):
        assert harness.take(name).done
    who = harness.server()
    for bad in ("", "{}", "[" * 5_000, "7", '{"holder": 5}', "\xff"):
        shared.admin("HSET", TABLE, "b", bad.encode("latin1"))
        seq = harness.look("a").row.seq
        one, other = perform(harness.store, [Renew("a", "a#1", 10, seq, who), Renew("b", "a#1", 10, 1, who)])
        assert one.done, one
        assert (other.ok, "is not one of primacy's" in other.reason) == (False, True), other
    store: Any = harness.store
    assert [(one.name, one.row is None) for one in store.listings()] == [("a", False), ("b", True)]
    shared.admin("HSET", TABLE, ":genesis", "{}")
    assert harness.renew("a", seq=seq + 1, server=who).done, "a live holder does not depend on it"
    assert not harness.look("a").ok
    harness.store.close()


def test_L3_news_wake_a_look_and_say_no_more(shared: Redis) -> None:
    harness, watcher = opened(shared.url()), Harness(open_store(shared.url(), limit_ms=LIMIT_MS))
    store: Any = watcher.store
    assert harness.take().done
    watcher.look()
    descriptor = store.listen()
    for forged in ("job", "job 0 renewed", "", " ", b"\xff\xfe", "x" * 100_000):
        shared.admin("PUBLISH", TABLE, forged)
    told: list[News] = []
    while len(told) < 4:
        assert select.select([descriptor], [], [], 30)[0]
        told += store.news()
    assert told[:2] == [News("job"), News("job", renewed=True)]
    assert watcher.look().row == harness.look().row
    assert harness.renew().done
    assert select.select([descriptor], [], [], 30)[0]
    assert watcher.look().row == harness.look().row
    assert store.news() == [], "an answer was quicker"
    shared.admin("CLIENT", "KILL", "TYPE", "pubsub")
    assert select.select([descriptor], [], [], 30)[0]
    with pytest.raises(NotReached):
        store.news()
    assert store.listen() >= 0, "and again"
    harness.store.close()
    store.close()
