"""The renewing thread: what goes in comes back, nothing piles up, and nothing of the store's ends it."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from primacy.election.inputs import StoreAnswered, StoreNews
from primacy.election.store import Genesis, Look, Place, Prune, ReleaseRow, Renew, Settle, StoreAnswer, Take
from primacy.errors import StoreUnusable
from primacy.node.clock import HandClock
from primacy.store import StoreThread, perform
from primacy.store.batch import TAKES_MAX
from primacy.store.memory import MemoryStore, MemoryTable
from primacy.store.port import News
from primacy.store.thread import MANY_PORTS
from tests.support.store_harness import row

WITHIN_S = 30


class Gate(MemoryStore):
    """A store that can be held up, and that counts its calls."""

    def __init__(self, table: MemoryTable) -> None:
        super().__init__(table)
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Semaphore(0)
        self.batches: list[int] = []

    def _wait(self, requests: Any) -> None:
        self.batches.append(len(requests))
        self.entered.release()
        assert self.open.wait(WITHIN_S)

    def look(self, requests: Any) -> list[StoreAnswer]:
        self._wait(requests)
        return super().look(requests)

    def renew(self, requests: Any) -> list[StoreAnswer]:
        self._wait(requests)
        return super().renew(requests)


def fresh(table: MemoryTable, name: str = "job") -> Take:
    """A take of a name that was never used, as the table is now."""
    return Take(name, None, table.server, row(), table.state())


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable()


@pytest.fixture
def gate(table: MemoryTable) -> Gate:
    return Gate(table)


@pytest.fixture
def thread(gate: Gate) -> Iterator[StoreThread]:
    """By a clock that stands still: no round of it is too long, and no news are too old."""
    found = StoreThread(gate, 1_000, clock=HandClock())
    yield found
    gate.open.set()
    found.close()


def test_a_question_is_answered_with_its_number(thread: StoreThread) -> None:
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    port = thread.port("job", answers.put)
    port.ask(7, Look("job"))
    first = answers.get(timeout=WITHIN_S)
    assert (first.number, first.answer.ok, first.answer.row) == (7, True, None)
    port.ask(8, fresh(thread.store.table))  # type: ignore[attr-defined]
    assert answers.get(timeout=WITHIN_S).answer.done


def test_it_is_delivered_in_the_thread(thread: StoreThread) -> None:
    names: queue.Queue[str] = queue.Queue()
    thread.port("job", lambda _: names.put(threading.current_thread().name)).ask(1, Look("job"))
    assert names.get(timeout=WITHIN_S) == "primacy-store"


def test_asking_never_waits_and_the_newest_question_counts(thread: StoreThread, gate: Gate) -> None:
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    port = thread.port("job", answers.put)
    gate.open.clear()
    port.ask(1, Look("job"))
    assert gate.entered.acquire(timeout=WITHIN_S)
    for number in range(2, 50):
        port.ask(number, Look("job"))
    gate.open.set()
    assert [answers.get(timeout=WITHIN_S).number for _ in range(2)] == [1, 49]
    assert answers.empty()
    assert (thread.counts.asked, thread.counts.performed) == (49, 2)


def test_L6_what_waits_together_is_performed_together(thread: StoreThread, gate: Gate) -> None:
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    ports = [thread.port(f"job{n:03}", answers.put) for n in range(250)]
    gate.open.clear()
    ports[0].ask(0, Look("job000"))
    assert gate.entered.acquire(timeout=WITHIN_S)
    for number, port in enumerate(ports[1:], 1):
        port.ask(number, Renew(port.name, "a#1", 10, 1, gate.table.server))
    gate.open.set()
    assert sorted(answers.get(timeout=WITHIN_S).number for _ in ports) == list(range(250))
    assert gate.batches == [1, 100, 100, 49]
    assert thread.counts.rounds == 2


def test_L6_what_came_during_a_round_waits_a_moment_for_more(thread: StoreThread, gate: Gate) -> None:
    """Otherwise a store that is a little slower is asked more often, and gets slower by that."""
    asked_s: queue.Queue[float] = queue.Queue()
    answered_s: queue.Queue[float] = queue.Queue()
    ports = [thread.port(f"job{n}", lambda _: answered_s.put(time.monotonic())) for n in range(MANY_PORTS - 1)]

    def ask_again(_: StoreAnswered) -> None:
        thread.gather_ms = 200
        asked_s.put(time.monotonic())
        ports[0].ask(2, Look("job0"))

    thread.port("last", ask_again).ask(1, Look("last"))
    assert answered_s.get(timeout=WITHIN_S) - asked_s.get(timeout=WITHIN_S) >= 0.2


def test_L6_fewer_takes_share_a_round_of_a_slow_store(table: MemoryTable) -> None:
    """Whoever took a row must hear of it before it gives up on the answer."""

    class Slow(MemoryStore):
        def take(self, requests: Any) -> list[StoreAnswer]:
            time.sleep(0.02)
            return super().take(requests)

    thread, answers = StoreThread(Slow(table), limit_ms=400), queue.Queue[StoreAnswered]()
    try:
        ports = [thread.port(f"job{n:03}", answers.put) for n in range(3 * TAKES_MAX)]
        for number, port in enumerate(ports):
            port.ask(number, fresh(table, port.name))
        assert all(answers.get(timeout=WITHIN_S).answer.done for _ in ports)
        assert 1 <= thread._takes_max <= 5, "20 ms each, and a quarter of the limit for all"
        assert thread.counts.rounds > 6
    finally:
        thread.close()


def test_L6_renewals_do_not_wait_behind_a_crowd_of_takes(thread: StoreThread, gate: Gate, table: MemoryTable) -> None:
    """A hundred leases are taken at once: a renewal that is asked for meanwhile comes after twenty of them."""
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    first = thread.port("first", answers.put)
    takers = [thread.port(f"job{n:03}", answers.put) for n in range(5 * TAKES_MAX)]
    gate.open.clear()
    first.ask(0, Look("first"))
    assert gate.entered.acquire(timeout=WITHIN_S)
    for number, port in enumerate(takers, 1):
        port.ask(number, fresh(table, port.name))
    renews: list[int] = []

    def ask_beside(answered: StoreAnswered) -> None:
        """Whoever hears of its take asks for its renewal at once, in this very moment."""
        answers.put(answered)
        renews.append(answered.number)
        first.ask(1_000, Renew("first", "a#1", 10, 1, table.server))

    takers[0].deliver = ask_beside
    gate.open.set()
    order = [answers.get(timeout=WITHIN_S).number for _ in range(2 + len(takers))]
    assert renews == [1]
    assert order[0] == 0
    assert sorted(order[1 : 1 + TAKES_MAX]) == list(range(1, 1 + TAKES_MAX)), "one share of the takes"
    assert order.index(1_000) <= 2 * TAKES_MAX + 1, "with the next share at the latest"
    assert sorted(order) == [*range(1 + len(takers)), 1_000], "and all are performed in the end"


def test_a_fault_of_the_store_is_an_answer(thread: StoreThread, table: MemoryTable) -> None:
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    port = thread.port("job", answers.put)
    table.up = False
    port.ask(1, Look("job"))
    failed = answers.get(timeout=WITHIN_S).answer
    assert (failed.ok, failed.done, failed.reason) == (False, False, "the store in memory was stopped")
    table.up = True
    port.ask(2, Look("job"))
    assert answers.get(timeout=WITHIN_S).answer.ok
    assert thread.counts.failed == 1


def test_closing_performs_what_waits(thread: StoreThread, table: MemoryTable) -> None:
    """The last thing that a holder asks for is the release of its row."""
    done = threading.Event()
    port = thread.port("job", lambda _: done.set())
    port.ask(1, fresh(table))
    assert done.wait(WITHIN_S)
    port.ask(2, ReleaseRow("job", "a#1", 10, 1))
    thread.close()
    assert table.rows["job"].released
    port.ask(3, Renew("job", "a#1", 10, 1, table.server))  # nobody is there, and that is no error


def test_a_closed_port_hears_nothing_more(thread: StoreThread, gate: Gate) -> None:
    heard: list[StoreAnswered] = []
    port = thread.port("job", heard.append)
    gate.open.clear()
    port.ask(1, Look("job"))
    assert gate.entered.acquire(timeout=WITHIN_S)
    port.close()
    gate.open.set()
    thread.close()
    assert heard == []


class Watcher:
    """A port of the thread that listens, and what it was told."""

    def __init__(self, thread: StoreThread, name: str) -> None:
        self.news: queue.Queue[StoreNews] = queue.Queue()
        self.answers: queue.Queue[StoreAnswered] = queue.Queue()
        self.name, self.number = name, 0
        self.port = thread.port(name, self.answers.put, self.news.put)

    def look(self) -> StoreAnswer:
        self.number += 1
        self.port.ask(self.number, Look(self.name))
        found = self.answers.get(timeout=WITHIN_S)
        assert found.number == self.number
        return found.answer


def watcher_of(thread: StoreThread, table: MemoryTable, name: str = "job") -> Watcher:
    found = Watcher(thread, name)
    found.look()
    deadline = threading.Event()
    while not table.watchers and not deadline.wait(0.01):
        continue
    return found


def test_news_reaches_the_ports_of_that_name_only(thread: StoreThread, table: MemoryTable) -> None:
    holder = MemoryStore(table)
    holder.take([fresh(table)])
    job, other = watcher_of(thread, table), watcher_of(thread, table, "other")
    holder.release([ReleaseRow("job", "a#1", 10, 1)])
    job.news.get(timeout=WITHIN_S)
    assert other.news.empty()


def test_L3_news_answers_nothing(thread: StoreThread, table: MemoryTable) -> None:
    """The look that it wakes goes to the store, which says more than the news, and something else by then."""
    holder = MemoryStore(table)
    holder.take([fresh(table)])
    watcher = watcher_of(thread, table)
    performed = thread.counts.performed
    holder.release([ReleaseRow("job", "a#1", 10, 1)])
    watcher.news.get(timeout=WITHIN_S)
    table.rows["job"] = table.rows["job"]._replace(seq=9, released=False)  # and nobody tells
    assert watcher.look().row == table.rows["job"]
    assert thread.counts.performed == performed + 1


def test_news_says_what_is_a_mere_renewal(thread: StoreThread, table: MemoryTable) -> None:
    holder = MemoryStore(table)
    holder.take([fresh(table)])
    watcher = watcher_of(thread, table)
    for seq in (1, 2, 3):
        assert holder.renew([Renew("job", "a#1", 10, seq, table.server)])[0].done
        assert watcher.news.get(timeout=WITHIN_S) == StoreNews(renewed=True)
    holder.release([ReleaseRow("job", "a#1", 10, 4)])
    assert watcher.news.get(timeout=WITHIN_S) == StoreNews()


class Nameless(MemoryStore):
    """Like SQLite: it says that there is something to see, and not where."""

    def news(self) -> list[News]:
        return [News("")] if super().news() else []  # renewals, too


def test_news_without_a_name_makes_all_look_but_not_all_the_time(table: MemoryTable) -> None:
    clock = HandClock()
    thread = StoreThread(Nameless(table), 1_000, clock=clock)
    holder = MemoryStore(table)
    holder.take([fresh(table)])
    watchers = [watcher_of(thread, table, f"other{n}") for n in range(3)]
    for seq, heard in ((1, True), (2, False), (3, True)):
        holder.renew([Renew("job", "a#1", 10, seq, table.server)])
        for watcher in watchers if heard else ():
            watcher.news.get(timeout=WITHIN_S)
        watchers[0].look()  # what came before it has been heard
        assert all(watcher.news.empty() for watcher in watchers)
        clock.ms += 2 if heard else 1
    thread.close()


def test_a_fork_leaves_the_child_without_it(thread: StoreThread, table: MemoryTable) -> None:
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    port = thread.port("job", answers.put)
    port.ask(1, Look("job"))
    answers.get(timeout=WITHIN_S)
    child = os.fork()
    if child == 0:
        port.ask(2, Look("job"))
        thread.close()
        os._exit(0 if answers.empty() else 1)
    assert os.waitpid(child, 0)[1] == 0
    port.ask(3, Look("job"))
    assert answers.get(timeout=WITHIN_S).number == 3


def test_closing_right_after_asking_does_not_wait(table: MemoryTable) -> None:
    """Both rings may be heard as one. Whoever waited would wait for two limits, which are minutes here."""
    for _ in range(50):
        thread = StoreThread(MemoryStore(table), 60_000, gather_ms=1)
        answers: queue.Queue[StoreAnswered] = queue.Queue()
        thread.port("job", answers.put).ask(1, Look("job"))
        began = time.monotonic()
        thread.close()
        assert time.monotonic() - began < WITHIN_S
        assert answers.get_nowait().answer.ok


def test_a_user_who_fails_costs_nobody_else_an_answer(thread: StoreThread, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: StoreAnswered) -> None:
        raise RuntimeError("the event loop is closed")

    answers: queue.Queue[StoreAnswered] = queue.Queue()
    bad, good = thread.port("a", fail), thread.port("b", answers.put)
    for number in range(3):
        bad.ask(number, Look("a"))
        good.ask(number, Look("b"))
        assert answers.get(timeout=WITHIN_S).number == number
    assert "could not be delivered" in caplog.text


def test_a_bug_of_a_store_is_an_answer(table: MemoryTable, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryStore):
        def look(self, requests: Any) -> list[StoreAnswer]:
            raise ZeroDivisionError

    thread = StoreThread(Broken(table), 1_000)
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    port = thread.port("a", answers.put)
    for number in range(2):
        port.ask(number, Look("a"))
        assert "a fault of primacy itself" in answers.get(timeout=WITHIN_S).answer.reason
    thread.close()
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("part", ["news", "listen"])
def test_a_bug_in_the_news_of_a_store_ends_nobodys_renewals(
    part: str, table: MemoryTable, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(MemoryStore):
        def news(self) -> list[News]:
            raise AttributeError("what a server sent was of no shape that was thought of")

        def listen(self) -> int:
            if part == "listen":
                self.news()
            return super().listen()

    thread = StoreThread(Broken(table), 900)
    try:
        watcher = Watcher(thread, "job")
        assert watcher.look().ok
        MemoryStore(table).take([fresh(table)])  # and that is told
        assert watcher.look().row is not None
        assert watcher.look().ok
    finally:
        thread.close()
    assert "in a way that" in caplog.text


def test_what_cannot_pass_is_said_to_be_final(table: MemoryTable) -> None:
    class Unusable(MemoryStore):
        def look(self, requests: Any) -> list[StoreAnswer]:
            raise StoreUnusable("no such database: make it")

    thread = StoreThread(Unusable(table), 1_000)
    answers: queue.Queue[StoreAnswered] = queue.Queue()
    thread.port("a", answers.put).ask(1, Look("a"))
    answer = answers.get(timeout=WITHIN_S).answer
    assert (answer.ok, answer.final, answer.reason) == (False, True, "no such database: make it")
    thread.close()


def test_L6_the_order_within_a_round(table: MemoryTable) -> None:
    """Renewals first; takes after what they may rest on; what is removed goes last."""

    class Told(MemoryStore):
        def __init__(self, table: MemoryTable) -> None:
            super().__init__(table)
            self.kinds: list[str] = []

        def _perform(self, request: Any) -> StoreAnswer:
            self.kinds.append(type(request).__name__)
            return super()._perform(request)

    store, genesis = Told(table), Genesis(count=0)
    requests = [
        Prune("a", row(), "x", genesis),
        Look("a"),
        Take("a", row(), "x", row()),
        Place("a", "x"),
        Settle("a", "x", genesis),
        ReleaseRow("a", "a#1", 10, 1),
        Renew("a", "a#1", 10, 1, "x"),
    ]
    assert all(answer.ok and not answer.done for answer in perform(store, requests)[:6])
    assert store.kinds == ["Renew", "ReleaseRow", "Settle", "Place", "Take", "Look", "Prune"]


def test_L6_one_bad_request_costs_the_others_nothing(table: MemoryTable) -> None:
    store = MemoryStore(table)
    store.take([fresh(table)])
    answers = perform(store, [Renew("job", "a#1", 10, 1, table.server), Renew("no such name", "a#1", 1, 1, "")])
    assert answers[0].done
    assert (answers[1].ok, answers[1].final) == (False, True)
