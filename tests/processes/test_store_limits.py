"""Limits of the stores: what hangs is given up in time, what is behind a pooler works, and a fork harms nobody."""

from __future__ import annotations

import os
import queue
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.election.inputs import StoreAnswered, StoreNews
from primacy.election.store import Look, ReleaseRow
from primacy.settings.timing import PROFILES
from primacy.store import StoreThread, limit_of_ms, open_store
from primacy.store.port import Notifies
from tests.support.servers import Pooler, Postgres, empty, fresh, pooler, server, servers_here, wait_for
from tests.support.store_harness import LIMIT_MS, Harness, Place, opened, place, row

pytestmark = pytest.mark.beside(order=350)

__all__ = ["pooler"]
SERVERS = servers_here()
HANGS_MS = 4_000
"""A limit that a server which answers keeps on a busy machine, too."""


@pytest.mark.parametrize("profile", PROFILES)
def test_limits_are_below_a_third_of_the_hold(profile: str) -> None:
    hold_ms = PROFILES[profile].hold_ms
    assert limit_of_ms(hold_ms) * 3 < hold_ms


# --- a server that never answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["postgresql://127.0.0.1:{}/db", "mysql://127.0.0.1:{}/db", "etcd://127.0.0.1:{}", "redis://127.0.0.1:{}"],
)
def test_a_server_that_accepts_and_says_nothing(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        harness = Harness(open_store(address.format(mute.getsockname()[1]), limit_ms=200))
        began = time.monotonic()
        answer = harness.look()
        assert not answer.ok
        assert time.monotonic() - began < 60, "without a limit it would wait for ever"
        assert answer.reason


@pytest.fixture(params=SERVERS)
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place(request.param, tmp_path) as found:
        yield found


@pytest.mark.parametrize("kind", SERVERS)
def test_F42_a_statement_that_hangs_is_given_up_within_its_limit(kind: str) -> None:
    found = fresh(kind)
    try:
        opened(found.url()).store.close()
        harness = Harness(open_store(found.url(), limit_ms=HANGS_MS))
        assert harness.take().done
        who = harness.server()
        found.freeze()
        began = time.monotonic()
        answer = harness.renew(server=who)
        took_s = time.monotonic() - began
        found.thaw()
        assert (answer.ok, answer.done) == (False, False)
        assert took_s < 60, "without a limit it would wait for ever"
        assert f"{HANGS_MS} ms" in answer.reason or "timed out" in answer.reason
        wait_for(lambda: harness.look().ok, "an answer: it connects anew")
        after = harness.look()
        assert after.row is not None, after
        assert after.row.seq in (1, 2), "whether it was done is not known, and was not claimed"
        harness.store.close()
    finally:
        found.remove()


@pytest.mark.parametrize("kind", [kind for kind in SERVERS if kind not in ("etcd", "redis")])
def test_F42_a_locked_row_is_refused_within_the_limit_and_costs_its_neighbours_nothing(kind: str) -> None:
    """Row by row after the batch failed (L6)."""
    import psycopg
    import pymysql

    from primacy.election.store import Renew
    from primacy.store import perform

    url, found = empty(kind), server(kind)
    opened(url).store.close()
    harness = Harness(open_store(url, limit_ms=3_000))
    for name in ("a", "b", "c"):
        assert harness.take(name).done
    lock = "SELECT * FROM primacy_leases WHERE name = 'b' FOR UPDATE"
    other: psycopg.Connection[tuple[object, ...]] | pymysql.connections.Connection
    if isinstance(found, Postgres):
        other = psycopg.connect(f"postgresql://admin@127.0.0.1:{found.port}/app")
        other.execute(lock)  # type: ignore[call-overload]
    else:
        other = pymysql.connect(host="127.0.0.1", port=found.port, user="root", database="app")
        other.begin()
        other.cursor().execute(lock)
    who = harness.server()
    began = time.monotonic()
    answers = perform(harness.store, [Renew(name, "a#1", 10, 1, who) for name in ("a", "b", "c")])
    took_s = time.monotonic() - began
    other.rollback()
    other.close()
    assert [answer.done for answer in answers] == [True, False, True], answers
    assert not answers[1].ok
    assert took_s < 40, "without a limit the server would wait for most of a minute"
    assert harness.renew("b", server=who).done
    harness.store.close()


# --- poolers ----------------------------------------------------------------------------------------------------------


def test_a_pooler_in_transaction_mode_does_no_harm(pooler: Pooler) -> None:
    opened(pooler.url()).store.close()
    harnesses = [Harness(open_store(pooler.url(), limit_ms=LIMIT_MS)) for _ in range(3)]
    assert harnesses[0].take().done
    for seq in range(1, 20):
        assert harnesses[seq % 3].renew(seq=seq).done
    settings = pooler.postgres.admin("SELECT setting FROM pg_settings WHERE name = 'lock_timeout'")
    assert settings == [("0",)], "nothing of ours stays behind on a connection of the pool"
    for harness in harnesses:
        harness.store.close()


def test_where_LISTEN_does_not_get_through_it_is_said_once(pooler: Pooler) -> None:
    said: list[str] = []
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    thread = StoreThread(open_store(pooler.url(), limit_ms=LIMIT_MS), LIMIT_MS, note=said.append)
    port = thread.port("job", answers.put, lambda _: None)
    others = [Harness(open_store(pooler.url(), limit_ms=LIMIT_MS)) for _ in range(3)]
    for number in range(8):
        for other in others:
            other.look()  # so that the pool has several connections to give
        port.ask(number, Look("job"))
        assert answers.get(timeout=60).answer.ok
    thread.close()
    for other in others:
        other.store.close()
    assert len(said) <= 1, said
    assert all("releases are noticed at the next look" in sentence for sentence in said)


# --- forks ------------------------------------------------------------------------------------------------------------


def test_a_forked_child_harms_neither_connection_nor_row(here: Place) -> None:
    harness = here.harness()
    assert harness.take().done
    if isinstance(harness.store, Notifies):
        harness.store.listen()
    child = os.fork()
    if child == 0:
        answer = harness.renew(server="x")
        harness.store.close()
        os._exit(0 if not answer.ok and "forked" in answer.reason else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert harness.renew().done
    assert harness.release(seq=2).done


# --- news through the thread ------------------------------------------------------------------------------------------


def test_news_comes_without_a_look(here: Place) -> None:
    """A release is known to a watcher before its next look."""
    holder = here.harness()
    assert isinstance(holder.store, Notifies)
    assert holder.take(new=row()).done
    news: queue.Queue[StoreNews] = queue.Queue()
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    thread = StoreThread(here.open(), LIMIT_MS)
    port = thread.port("job", answers.put, news.put)
    port.ask(1, Look("job"))
    assert answers.get(timeout=60).answer.ok
    port.ask(2, Look("job"))  # after this one it listens for certain
    assert answers.get(timeout=60).answer.ok
    while not news.empty():
        news.get()
    assert holder.ask(ReleaseRow("job", "a#1", 10, 1)).done
    assert not news.get(timeout=30).renewed  # nobody looks any more: without news there is no end
    thread.close()


# --- who the server is ------------------------------------------------------------------------------------------------


@pytest.mark.skipif("postgresql" not in SERVERS, reason="PostgreSQL is not installed here")
def test_a_server_that_hides_its_identifier_is_told_by_its_start(tmp_path: Path) -> None:
    found = fresh("postgresql")
    assert isinstance(found, Postgres)
    try:
        found.admin("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC", database="app")
        harness = opened(found.url())
        assert harness.take().done
        before = harness.server()
        assert before.startswith(f"postgresql:127.0.0.1:{found.port}:")
        assert harness.renew().done
        oid = found.admin("SELECT 'primacy_leases'::regclass::oid", database="app")[0][0]
        assert f".{oid}." in before, "a table that is made anew has another number"
        assert harness.look().position == 0
        assert harness.release(seq=2).done
        found.stop()
        found.start()
        harness.store.close()
        after = harness.look()
        assert after.ok
        assert after.server != before, "it may have forgotten"
        assert after.row is not None
        assert not harness.take(new=row("b#1", 11, 3), seen=after._replace(server=before)).done
        harness.store.close()
    finally:
        found.remove()


def test_L3_the_name_of_a_server_stays(here: Place) -> None:
    """MariaDB's is made of its start time: it must not change with the second hand."""
    harness = here.harness()
    names = set()
    end = time.monotonic() + 2.2
    while time.monotonic() < end:
        names.add(harness.server())
    assert len(names) == 1, names


@pytest.mark.parametrize("kind", SERVERS)
def test_L5_a_restart_changes_the_name(kind: str) -> None:
    found = fresh(kind)
    try:
        harness = opened(found.url())
        assert harness.take().done
        before = harness.server()
        time.sleep(1.1)  # MariaDB's start time is in seconds, and it starts again in less
        found.kill()
        found.start()
        harness.store.close()
        after = harness.look()
        assert after.row is not None, "an answered commit outlives kill -9"
        assert after.server != before, "or a data folder that was put back would look like this"
        assert after.genesis is not None
        assert not after.genesis.is_settled(after.server)
        assert not harness.take(new=row("b#1", 11, 2), seen=after._replace(server=before)).done
        assert harness.renew(server=after.server).done, "a holder whose hold never broke moves along"
        harness.store.close()
    finally:
        found.remove()
