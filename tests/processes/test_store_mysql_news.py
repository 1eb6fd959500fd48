"""MariaDB: a release is heard at once, by a lock that the holder's session keeps; and nothing rests on that lock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from bench.lease_pair import NAME, Contender

from primacy.election.inputs import StoreAnswered, StoreNews
from primacy.election.store import Look
from primacy.errors import NotReached
from primacy.settings.timing import PROFILES
from primacy.store import StoreThread, open_store
from primacy.store.mysql import MysqlStore
from primacy.store.mysql_news import PAUSE_GROWS, PAUSE_LEAST_S, WAIT_S, lock_name
from primacy.store.port import NAME_MAX, News
from tests.support.canary import Canary
from tests.support.servers import MariaDb, server
from tests.support.store_harness import LIMIT_MS, Harness, Place, place, row
from tests.support.store_proxy import Proxy
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.beside(order=301),
    pytest.mark.skipif(bool(MariaDb.missing()), reason=MariaDb.missing() or "it is here"),
]
HEARD_S = 30
"""Far less than a wait for a lock lasts: who hears within it was woken."""
assert HEARD_S < WAIT_S


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    with place("mariadb", tmp_path) as found:
        yield found


def admin(*statements: str) -> tuple[Any, ...]:
    return server("mariadb").admin(*statements)  # type: ignore[attr-defined, no-any-return]


class Watcher(Harness):
    """One who looks, listens, and waits for news."""

    store: MysqlStore

    def __init__(self, here: Place, url: str = "") -> None:
        store = open_store(url, limit_ms=LIMIT_MS) if url else here.open()
        here.opened.append(store)
        super().__init__(store)
        self.descriptor = -1

    def waits(self, name: str = "job") -> None:
        """After this the server has it among those who wait for the lock of this name."""
        seen = self.look(name)
        assert seen.row is not None
        self.descriptor = self.store.listen()
        assert self.descriptor >= 0
        lock = lock_name("app", "primacy_leases", name, seen.row.token)

        def waiting() -> int:
            if self.store.news():  # the lock was free in that moment
                self.look(name)
                self.descriptor = self.store.listen()
            return self.session(lock)

        wait_until(waiting, f"a wait for {lock}", told=lambda: admin("SHOW FULL PROCESSLIST"))

    def session(self, lock: str) -> int:
        """Of the connection that waits."""
        found = [one[0] for one in admin("SHOW FULL PROCESSLIST") if one[6] == "User lock" and lock in (one[7] or "")]
        return int(found[0]) if found else 0

    def hears(self) -> list[News]:
        last_s = time.monotonic() + HEARD_S
        while (left_s := last_s - time.monotonic()) > 0:
            if select.select([self.descriptor], [], [], left_s)[0] and (found := self.store.news()):
                return found
        raise AssertionError(f"no news within {HEARD_S} s")

    @property
    def own(self) -> int:
        """The id of its second session."""
        return int(self.store._waiter.connection.thread_id())


def held(here: Place, token: int = 10) -> Harness:
    """A holder whose session has the lock, for certain."""
    holder = here.harness()
    assert holder.take(new=row(token=token)).done
    has_lock(holder, token)
    return holder


def has_lock(holder: Harness, token: int = 10) -> None:
    holder.look("nobody")  # reads what was said of the lock
    assert isinstance(holder.store, MysqlStore)
    assert holder.store._kept._kept == {"job": token}
    assert holder_of(lock_name("app", "primacy_leases", "job", token)) == holder.store._connection.thread_id()


def holder_of(lock: str) -> int | None:
    found: int | None = admin(f"SELECT IS_USED_LOCK('{lock}')")[0][0]
    return found


JOB_LOCK = lock_name("app", "primacy_leases", "job", 10)


def test_the_name_of_a_lock_is_short_and_of_one_leadership() -> None:
    names = {
        lock_name(database, table, name, token)
        for database in ("app", "App", "other")
        for table in ("primacy_leases", "t")
        for name in ("job", "j" * NAME_MAX)
        for token in (10, 2**53)
    }
    assert len(names) == 24
    assert max(len(name) for name in names) <= 64, "MySQL refuses longer ones"


def test_three_watchers_hear_of_one_release(here: Place) -> None:
    holder, watchers = held(here), [Watcher(here) for _ in range(3)]
    for watcher in watchers:
        watcher.waits()
    assert holder.renew().done
    assert not select.select([watcher.descriptor for watcher in watchers], [], [], 0)[0], "a renewal is not told"
    assert holder.release(seq=2).done
    for watcher in watchers:
        assert watcher.hears() == [News("job")]
        seen = watcher.look().row
        assert seen is not None
        assert seen.released
        watcher.store.listen()
        assert not watcher.store._waiter._waiting, "nobody holds it, so there is nothing to wait for"
    assert holder_of(JOB_LOCK) is None


def test_the_next_holder_has_its_own_lock_and_one_connection(here: Place) -> None:
    holder, next_one = held(here), Watcher(here)
    next_one.waits()
    assert holder.release().done
    assert next_one.hears()
    assert next_one.take(new=row("b#1", 11, 2)).done
    assert next_one.store.news() == [], "a take is told before anything is closed"
    assert next_one.renew(holder="b#1", token=11, seq=2).done
    with pytest.raises(NotReached):
        next_one.store.news()  # so that the thread forgets the descriptor
    assert next_one.store._waiter.connection is None
    has_lock(next_one, 11)
    watcher = Watcher(here)
    watcher.waits()
    assert next_one.release(holder="b#1", token=11, seq=3).done
    assert watcher.hears() == [News("job")]


def test_L3_a_killed_holder_wakes_looks_and_nothing_is_taken_early(here: Place) -> None:
    """Its session dies with it. The machine looks at once, some more times, and waits out the hold all the same."""
    here.harness()
    code = (
        "import sys, time; from primacy.store import open_store, perform; from primacy.election.store import *\n"
        "store = open_store(sys.argv[1], limit_ms=20_000); (seen,) = perform(store, [Look('pair', True)])\n"
        "new = Row('z#1', 10, 1, 2_000, 2_041, False)\n"
        "print(perform(store, [Take('pair', None, seen.server, new, seen.genesis)])[0].done, flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, here.url], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "True\n"

            async def watched() -> tuple[int, int, int]:
                began_ns = time.monotonic_ns()
                contender = Contender("b", here.url, "lan")
                try:
                    lock = lock_name("app", "primacy_leases", NAME, 10)
                    watcher = Watcher(here)
                    await asyncio.to_thread(wait_until, lambda: watcher.session(lock), "the wait for its lock")
                    before = contender.thread.counts.performed
                    process.send_signal(signal.SIGKILL)
                    await asyncio.to_thread(process.wait)
                    await asyncio.wait_for(contender.leads.wait(), 60)
                    return contender.began_ns - began_ns, before, contender.thread.counts.performed
                finally:
                    await contender.close()

            with Canary(PROFILES["lan"].heartbeat_ms) as canary:
                took_ns, before, after = asyncio.run(watched())
        finally:
            process.kill()
    assert took_ns / 1e6 > 3_061, "its own wait in the profile `lan`, after its first look"
    canary.judge(after - before >= 5, f"it looked {after - before} times, more often than every 900 ms")


def test_the_end_of_a_holders_session_wakes_a_watcher(here: Place) -> None:
    holder, watcher = held(here), Watcher(here)
    watcher.waits()
    holder.store.close()
    assert watcher.hears() == [News("job")]
    seen = watcher.look().row
    assert seen is not None
    assert not seen.released


def test_a_killed_session_of_the_holder_costs_news_until_its_next_renewal(here: Place) -> None:
    holder, watcher = held(here), Watcher(here)
    watcher.waits()
    assert isinstance(holder.store, MysqlStore)
    admin(f"KILL {holder.store._connection.thread_id()}")
    assert watcher.hears()
    assert not holder.ask(Look("job")).ok, "its connection is gone"
    assert holder.renew().done
    has_lock(holder)
    watcher.waits()
    assert holder.release(seq=2).done
    assert watcher.hears() == [News("job")]


def test_a_killed_session_of_a_watcher_is_made_again_after_a_pause(here: Place) -> None:
    holder, watcher = held(here), Watcher(here)
    watcher.waits()
    first = watcher.own
    admin(f"KILL {first}")
    with pytest.raises(NotReached):
        watcher.hears()
    assert watcher.store.listen() == -1, "not at once, so that it is no busy loop"
    wait_until(lambda: watcher.look().ok and watcher.store.listen() >= 0, "another connection")
    assert watcher.own != first
    watcher.waits()
    assert holder.release().done
    assert watcher.hears() == [News("job")]


def test_a_killed_statement_of_a_watcher_is_no_news(here: Place) -> None:
    held(here)
    watcher = Watcher(here)
    watcher.waits()
    admin(f"KILL QUERY {watcher.own}")
    with pytest.raises(NotReached):
        watcher.hears()
    assert watcher.store.listen() == -1


def test_a_wait_that_is_over_begins_anew_without_a_look(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primacy.store.mysql_news.WAIT_S", 1)
    monkeypatch.setattr("primacy.store.mysql_news.EARLY_S", 0.5)
    holder, watcher = held(here), Watcher(here)
    watcher.waits()
    for _ in range(2):
        assert select.select([watcher.descriptor], [], [], HEARD_S)[0]
        assert watcher.store.news() == []
        assert watcher.store._waiter._waiting
    assert holder.release().done
    assert watcher.hears() == [News("job")]


def test_a_server_limit_for_statements_does_not_end_the_wait(here: Place) -> None:
    held(here)
    before = admin("SELECT @@global.max_statement_time")[0][0]
    admin("SET GLOBAL max_statement_time = 0.2")
    try:
        watcher = Watcher(here)
        watcher.waits()
        assert not select.select([watcher.descriptor], [], [], 1.0)[0]
    finally:
        admin(f"SET GLOBAL max_statement_time = {before}")


# --- others who use locks ---------------------------------------------------------------------------------------------


Counted = Callable[[], int]


@pytest.fixture
def counted() -> Iterator[Counted]:
    """How many statements the server had since it was last asked this."""
    connection = pymysql.connect(host="127.0.0.1", port=server("mariadb").port, user="root", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        last = 0

        def asked() -> int:
            nonlocal last
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            before, last = last, int(cursor.fetchall()[0][1])
            return last - before - 1

        yield asked


@pytest.fixture
def stranger(here: Place) -> Iterator[Any]:
    """May connect, and no more."""
    here.harness()
    admin("CREATE OR REPLACE USER stranger@'%' IDENTIFIED BY 'x'")
    connection = pymysql.connect(
        host="127.0.0.1", port=server("mariadb").port, user="stranger", password="x", autocommit=True
    )
    with contextlib.closing(connection), connection.cursor() as cursor:
        yield cursor
    admin("DROP USER stranger@'%'")


def most_in(span_s: float) -> int:
    """How many false news there are at most in this time, by the pauses between them."""
    number, pauses_s = 1, 0.0
    while pauses_s < span_s:
        pauses_s += PAUSE_LEAST_S * PAUSE_GROWS ** (number - 1)
        number += 1
    return number


def test_L3_one_who_plays_with_the_lock_wakes_few_looks_and_gains_nothing(here: Place, stranger: Any) -> None:
    """It must know the token. Each false news makes the next one later, until they are lost."""
    stranger.execute(f"SELECT GET_LOCK('{JOB_LOCK}', 0)")
    holder = here.harness()
    assert holder.take().done
    assert holder.renew().done, "what somebody does to the lock is nothing to the lease"
    watcher = Watcher(here)
    watcher.waits()
    heard = pulses = 0
    began_s = time.monotonic()
    while time.monotonic() < began_s + 2.0 or pulses < 100:
        stranger.execute(f"SELECT RELEASE_LOCK('{JOB_LOCK}'), GET_LOCK('{JOB_LOCK}', 0)")
        pulses += 1
        if select.select([watcher.descriptor], [], [], 0.001)[0] and (found := watcher.store.news()):
            heard += len(found)
            seen = watcher.look().row
            assert seen is not None
            assert (seen.holder, seen.released) == ("a#1", False)
            watcher.descriptor = watcher.store.listen()
    assert 1 <= heard <= most_in(time.monotonic() - began_s) < pulses, f"{heard} false news, {pulses} times"
    assert holder.release(seq=2).done
    seen = watcher.look().row
    assert seen is not None
    assert seen.released, "the next look finds it"


def test_a_lock_that_somebody_else_has_is_asked_for_again_but_not_with_each_renewal(
    here: Place, stranger: Any, counted: Counted
) -> None:
    stranger.execute(f"SELECT GET_LOCK('{JOB_LOCK}', 0)")
    holder = here.harness()
    assert holder.take().done
    at = holder.server()
    counted()
    began_s = time.monotonic()
    for seq in range(1, 21):
        assert holder.renew(seq=seq, server=at).done
    assert counted() <= 20 + 1 + time.monotonic() - began_s, "once a second at most"
    stranger.execute(f"SELECT RELEASE_LOCK('{JOB_LOCK}')")
    seqs = iter(range(21, 10_000))
    wait_until(lambda: holder.renew(seq=next(seqs)).done and holder_of(JOB_LOCK), "the holder to have it", every_s=0.05)


def test_the_session_of_an_earlier_holder_that_hangs_is_in_nobodys_way(here: Place) -> None:
    hangs, watcher = held(here), Watcher(here)
    watcher.waits()
    second = here.harness()
    assert second.take(new=row("b#1", 11, 1)).done, "its hold was waited out"
    has_lock(second, 11)
    assert holder_of(JOB_LOCK), "the first one has its lock still"
    watcher.waits()
    assert second.release(holder="b#1", token=11).done
    assert watcher.hears() == [News("job")]
    hangs.look()
    hangs.look("nobody")
    assert holder_of(JOB_LOCK) is None, "it saw that the row is another's"


def test_a_release_by_another_session_is_told_when_the_holder_sees_it(here: Place) -> None:
    holder, watcher, releaser = held(here), Watcher(here), here.harness()
    watcher.waits()
    assert releaser.release().done
    holder.look()
    assert watcher.hears() == [News("job")]


def test_of_several_names_one_is_heard_and_then_the_next(here: Place) -> None:
    holder = here.harness()
    names = ("one", "other")
    for name in names:
        assert holder.take(name).done
    watcher = Watcher(here)
    for name in names:
        watcher.look(name)
    watcher.waits("other")
    assert watcher.look("one").ok
    assert watcher.store.listen() == watcher.descriptor, "it waits for one of them, whatever is looked at"
    assert holder.release("one").done
    seen = watcher.look("one").row
    assert seen is not None
    assert seen.released
    assert holder.release("other").done
    assert watcher.hears() == [News("other")]
    assert holder.take("one", new=row(token=12)).done
    watcher.waits("one")
    assert holder.release("one", token=12).done
    assert watcher.hears() == [News("one")]


def test_many_names_without_locks_wake_no_more_looks_than_one(here: Place) -> None:
    """As if they were held by an earlier version of primacy: the pause is one for all of them."""
    names = [f"job{number}" for number in range(20)]
    holder = here.harness()
    for name in names:
        assert holder.take(name).done
    holder.store.close()
    watcher = Watcher(here)
    for name in names:
        watcher.look(name)
    began_s, heard = time.monotonic(), 0
    while (took_s := time.monotonic() - began_s) < 1.0 or (heard == 0 and took_s < HEARD_S):
        for name in names:
            watcher.look(name)
            watcher.store.listen()
            heard += len(watcher.store.news())
    assert 1 <= heard <= most_in(time.monotonic() - began_s)


# --- what it costs, and what must not be harmed -----------------------------------------------------------------------


def test_idle_nodes_send_no_statement_more(here: Place, counted: Counted) -> None:
    """One for each renewal and each look. A wait for the lock is one a minute, and lasts."""
    holder, watchers = held(here), [Watcher(here) for _ in range(2)]
    for watcher in watchers:
        watcher.waits()
    at = holder.server()
    counted()
    for seq in range(1, 11):
        assert holder.renew(seq=seq, server=at).done
        for watcher in watchers:
            assert watcher.look().ok
            assert watcher.store.news() == []
            assert watcher.store.listen() == watcher.descriptor
    assert counted() == 30


def test_a_forked_child_leaves_the_second_connection_alone(here: Place) -> None:
    holder, watcher = held(here), Watcher(here)
    watcher.waits()
    child = os.fork()
    if child == 0:
        try:
            watcher.store.listen()
        except NotReached:
            watcher.store.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert holder.release().done
    assert watcher.hears() == [News("job")]


def test_a_store_that_is_closed_leaves_no_session(here: Place) -> None:
    held(here)
    watcher = Watcher(here)
    watcher.waits()
    own = watcher.own
    watcher.store.close()
    wait_until(lambda: own not in [one[0] for one in admin("SHOW PROCESSLIST")], "the session to end")


class Renames(Proxy):
    """GET_LOCK gets a name that no function has, so that the real server refuses it."""

    def _pass_on(self, end: socket.socket) -> None:
        other, is_server = self._pairs[end]
        if is_server:
            return super()._pass_on(end)
        data = end.recv(65_536)
        if not data:
            return self._drop(end)
        return other.sendall(data.replace(b"GET_LOCK", b"GOT_LOCK"))


def asked(port: Any, number: int, answers: queue.Queue[StoreAnswered]) -> None:
    port.ask(number, Look("job"))
    assert answers.get(timeout=60).answer.ok


def said_by(thread_of: Any, looks: int) -> list[str]:
    """What the thread of a watcher says while it looks so often."""
    said: list[str] = []
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    news: queue.Queue[StoreNews] = queue.Queue()
    thread = StoreThread(thread_of, LIMIT_MS, note=said.append)
    port = thread.port("job", answers.put, news.put)
    number = iter(range(10_000))
    wait_until(lambda: asked(port, next(number), answers) or said, "a sentence", every_s=0.05)
    for _ in range(looks):
        asked(port, next(number), answers)
    thread.close()
    assert news.empty()
    return said


def test_where_GET_LOCK_is_refused_leases_go_on_and_it_is_said_once(here: Place) -> None:
    here.harness()
    proxy = Renames(server("mariadb").port)
    url = here.url.replace(f":{server('mariadb').port}/", f":{proxy.port}/")
    try:
        holder = Watcher(here, url)
        assert holder.take().done
        for seq in range(1, 4):
            assert holder.renew(seq=seq).done
        watcher = open_store(url, limit_ms=LIMIT_MS)
        (sentence,) = said_by(watcher, looks=5)
        assert "releases are noticed at the next look" in sentence
        assert "refuses GET_LOCK" in sentence
        assert "GOT_LOCK" in sentence
        assert holder.release(seq=4).done
        holder.store.close()
    finally:
        proxy.close()


def test_who_may_have_one_connection_only_watches_without_news(here: Place) -> None:
    held(here)
    admin(
        "CREATE OR REPLACE USER single@'%' IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 1",
        "GRANT SELECT, INSERT, UPDATE ON app.* TO single@'%'",
    )
    try:
        url = f"mariadb://single:x@127.0.0.1:{server('mariadb').port}/app"
        (sentence,) = said_by(open_store(url, limit_ms=LIMIT_MS), looks=5)
        assert "has no second connection for us" in sentence
        assert "max_user_connections" in sentence
    finally:
        admin("DROP USER single@'%'")


def test_a_broken_second_connection_is_no_busy_loop(here: Place) -> None:
    """The thread sees its end once, and rests until the next look."""
    held(here)
    store = here.open()
    assert isinstance(store, MysqlStore)
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    thread = StoreThread(store, LIMIT_MS)
    port = thread.port("job", answers.put, lambda _: None)
    asked(port, 1, answers)
    wait_until(lambda: thread._news_fd >= 0, "it to listen")
    admin(f"KILL {store._waiter.connection.thread_id()}")
    wait_until(lambda: thread._news_fd < 0, "it to hear of the end")
    numbers = iter(range(2, 10_000))
    wait_until(lambda: asked(port, next(numbers), answers) or thread._news_fd >= 0, "it to listen again", every_s=0.05)
    thread.close()
