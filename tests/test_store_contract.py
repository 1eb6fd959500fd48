"""What every store owes to the rules, asked of each: memory, SQLite, and real servers where they are (L1-L6)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.servers import KINDS, kinds, server
from tests.store_desk import KEPT_READY, Desk, Place, place, row

from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take
from primacy.errors import UsageError
from primacy.sim.store import SimStore
from primacy.store import perform
from primacy.store.port import NAME_MAX, Lists, News, Notifies, check_name


@pytest.fixture(params=[*kinds(), *([KEPT_READY] if "postgresql" in kinds() else [])])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def desk(here: Place) -> Desk:
    return here.desk()


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_is_here(kind: str) -> None:
    if reason := KINDS[kind].missing():
        pytest.skip(reason)
    assert server(kind).version()


def test_an_empty_store_has_no_row_and_says_who_answers(desk: Desk) -> None:
    answer = desk.look()
    assert (answer.ok, answer.done, answer.row) == (True, False, None)
    assert answer.server


def test_L1_the_first_take_writes_the_row_as_it_was_asked(desk: Desk) -> None:
    answer = desk.take(new=row(members="abc"))
    assert answer.done
    assert answer.row == row(members="abc", server=answer.server)
    assert desk.look() == answer._replace(done=False)


def test_L1_a_take_compares_token_and_seq(desk: Desk) -> None:
    desk.take()
    for seen in ((0, 0), (10, 2), (9, 1), (11, 1)):
        answer = desk.take(seen=seen, new=row("b#2", 20, 2))
        assert (answer.ok, answer.done) == (True, False)
        assert answer.row is not None
        assert answer.row.holder == "a#1"
    assert desk.take(seen=(10, 1), new=row("b#2", 20, 2)).done


def test_L1_a_take_of_a_missing_row_that_was_seen_changes_nothing(desk: Desk) -> None:
    answer = desk.take(seen=(10, 1))
    assert (answer.ok, answer.done, answer.row) == (True, False, None)


def test_L7_a_take_compares_the_list(desk: Desk) -> None:
    desk.take(new=row(members="abc"))
    assert not desk.take(seen=(10, 1), new=row("b#2", 20, 2)).done
    assert desk.take(seen=(10, 1), new=row("b#2", 20, 2, members="abc"), seen_members="abc").done


def test_L2_a_renewal_compares_holder_token_seq_and_release(desk: Desk) -> None:
    desk.take()
    assert not desk.renew(holder="a#1 ").ok, "MySQL would find the row"
    for wrong in ({"holder": "A#1"}, {"token": 11}, {"seq": 2}, {"seq": 0}):
        assert not desk.renew(**wrong).done  # type: ignore[arg-type]
    answer = desk.renew()
    assert answer.done
    assert answer.row == row(seq=2, server=answer.server)
    assert not desk.renew().done, "the same renewal is not proved twice"
    assert desk.release(seq=2).done
    assert not desk.renew(seq=2).done


def test_L3_every_write_compares_the_server(desk: Desk) -> None:
    assert not desk.take(server="elsewhere").done
    desk.take()
    assert not desk.renew(server="elsewhere").done
    assert not desk.take(seen=(10, 1), new=row("b#2", 20, 2), server="elsewhere").done
    assert desk.renew().done


def test_L4_a_release_keeps_the_row_and_names_the_successor(desk: Desk) -> None:
    desk.take()
    for wrong in ({"holder": "b#1"}, {"token": 11}, {"seq": 2}):
        assert not desk.release(**wrong).done  # type: ignore[arg-type]
    answer = desk.release(to="b")
    assert answer.done
    assert answer.row == row(server=answer.server)._replace(released=True, successor="b")
    again = desk.release(to="c")
    assert again.done
    assert again.row is not None
    assert again.row.successor == "c"
    taken = desk.take(seen=(10, 1), new=row("b#2", 20, 2))
    assert taken.row == row("b#2", 20, 2, server=taken.server), "neither released nor a successor any more"


def test_rows_are_never_deleted(desk: Desk) -> None:
    desk.take()
    desk.release()
    answer = desk.look()
    assert answer.row is not None
    assert answer.row.token == 10


def test_names_are_compared_as_bytes(desk: Desk) -> None:
    """Databases compare without case, accents or trailing blanks by default (seed 002, flaw 9)."""
    for number, name in enumerate(("job", "Job", "JOB", "job.", "job-1")):
        assert desk.take(name, new=row(token=10 + number)).done
    found = [desk.look(name).row for name in ("job", "Job", "JOB", "job.", "job-1")]
    assert [r.token for r in found if r is not None] == [10, 11, 12, 13, 14]


def test_names_are_bounded_and_never_reach_the_store_otherwise(desk: Desk) -> None:
    longest = "x" * NAME_MAX
    assert desk.take(longest).done
    assert desk.look(longest).row is not None
    for name in ("", "x" * (NAME_MAX + 1), "jöb", "job'; DROP TABLE primacy_leases", "a b", "-x", "job\n"):
        with pytest.raises(UsageError, match="a lease's name has at most"):
            check_name(name)
        answer = desk.look(name)
        assert not answer.ok
        assert "a lease's name" in answer.reason


def test_large_numbers_survive(desk: Desk) -> None:
    large = row(token=2**53 - 1, seq=2**60)
    assert desk.take(new=large).done
    assert desk.renew(token=2**53 - 1, seq=2**60).done


def test_two_users_see_each_other(here: Place) -> None:
    one, two = here.desk(), here.desk()
    assert one.server() == two.server()
    assert one.take().done
    assert two.look().row == one.look().row
    assert not two.take().done
    assert two.take(seen=(10, 1), new=row("b#2", 20, 2)).done
    assert not one.renew().done


def test_one_of_many_takes_wins(here: Place) -> None:
    """Cold start: no row, no table yet, and everybody at once."""
    for turn in range(5):
        answers: list[StoreAnswer] = []
        barrier = threading.Barrier(6)

        def contend(number: int, turn: int = turn, barrier: threading.Barrier = barrier) -> None:
            desk = here.desk()
            server = desk.server() if turn else ""
            barrier.wait(60)
            server = server or desk.server()
            answers.append(desk.take(f"job{turn}", new=row(f"n{number}#1", 100 + number), server=server))  # noqa: B023

        threads = [threading.Thread(target=contend, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [a.ok for a in answers] == [True] * 6, answers
        assert sum(a.done for a in answers) == 1


def test_L6_many_at_once(desk: Desk) -> None:
    names = [f"job{number:03}" for number in range(250)]
    server = desk.server()
    first = perform(desk.store, [Take(name, 0, 0, server, row()) for name in names])
    assert all(answer.done for answer in first)
    desk.release(names[7])
    desk.take(names[9], seen=(10, 1), new=row("b#2", 20, 2))
    renewals = perform(desk.store, [Renew(name, "a#1", 10, 1, server) for name in reversed(names)])
    lost = [name for name, answer in zip(reversed(names), renewals, strict=True) if not answer.done]
    assert lost == [names[9], names[7]]
    assert all(answer.ok and answer.server == server for answer in renewals)
    rows = [answer.row for answer in perform(desk.store, [Look(name) for name in names])]
    assert [r.seq for r in rows if r is not None] == [2] * 7 + [1] + [2] + [2] + [2] * 240
    released = perform(desk.store, [ReleaseRow(name, "a#1", 10, 2, name) for name in names])
    assert sum(answer.done for answer in released) == 248
    assert all(a.row is not None and a.row.successor == n for n, a in zip(names, released, strict=True) if a.done)


def test_L6_one_name_twice_is_two_steps(desk: Desk) -> None:
    desk.take()
    server = desk.server()
    answers = perform(desk.store, [Renew("job", "a#1", 10, 1, server), Renew("job", "a#1", 10, 1, server)])
    assert sorted(answer.done for answer in answers) == [False, True]


@pytest.mark.parametrize("seed", range(3))
def test_it_does_what_the_simulated_store_does(desk: Desk, seed: int) -> None:
    """The lives were lived on `SimStore`: whatever is asked, the real one must answer the same."""
    rng, sim = random.Random(seed), SimStore()
    names = {"sim": sim.server, "real": desk.server()}
    for _ in range(150):
        request = any_request(rng, sim)
        expected, found = sim.perform(request), desk.ask(to_real(request, names))
        assert (found.ok, found.done) == (True, expected.done), request
        assert found.row == (None if expected.row is None else expected.row._replace(server=names["real"])), request
        assert found.server == names["real"]


def any_request(rng: random.Random, sim: SimStore) -> StoreRequest:
    """Mostly sensible, now and then stale, foreign or absurd."""
    name = rng.choice(("job", "other"))
    present = sim.rows.get(name)
    token, seq = (0, 0) if present is None else (present.token, present.seq)
    if rng.random() < 0.2:
        token, seq = rng.choice(((0, 0), (token + 1, seq), (token, seq + 1), (max(0, token - 1), seq)))
    server = sim.server if rng.random() < 0.9 else "elsewhere"
    holder = present.holder if present is not None and rng.random() < 0.8 else rng.choice(("a#1", "b#2"))
    match rng.randrange(4):
        case 0:
            return Look(name)
        case 1:
            new = Row(rng.choice(("a#1", "b#2")), token + rng.randrange(1, 9), seq + 1, 3_000, 3_061, False, "", "", "")
            return Take(name, token, seq, server, new, "" if rng.random() < 0.9 else "list")
        case 2:
            return Renew(name, holder, token, seq, server)
    return ReleaseRow(name, holder, token, seq, rng.choice(("", "c")))


def to_real(request: StoreRequest, names: dict[str, str]) -> StoreRequest:
    if isinstance(request, Take | Renew) and request.server == names["sim"]:
        return request._replace(server=names["real"])
    return request


def test_rows_can_be_listed(desk: Desk) -> None:
    for name in ("b", "a", "c"):
        desk.take(name)
    assert isinstance(desk.store, Lists)
    sheets = desk.store.sheets()
    assert [sheet.name for sheet in sheets] == ["a", "b", "c"]
    assert sheets[0].row == desk.look("a").row
    assert sheets[0].written_at.startswith("20")


def test_a_store_that_was_closed_comes_back(desk: Desk) -> None:
    desk.take()
    desk.store.close()
    desk.store.close()
    assert desk.renew().done


def test_news_of_a_release(here: Place) -> None:
    """Where a store notifies, a watcher hears of a release without looking."""
    holder, watcher = here.desk(), here.desk()
    if not isinstance(watcher.store, Notifies):
        assert here.url.startswith(("mysql", "mariadb")), "these have nothing to notify with"
        return
    holder.take()
    watcher.look()
    descriptor = watcher.store.listen()
    assert descriptor >= 0
    assert watcher.store.news() == []
    holder.renew()
    holder.release(seq=2)
    assert readable(descriptor)
    news = heard(watcher.store, lambda one: one.answer is None or one.answer.row.released)
    if news.answer is None:
        assert here.url.startswith("sqlite"), "it says only that there is something to see"
    else:
        assert (news.name, news.answer) == ("job", holder.look())
    assert watcher.look() == holder.look()


def test_L3_news_of_a_renewal_is_as_good_as_a_look(here: Place) -> None:
    """It shows what stood there before it came: the row, whole, on this server."""
    holder, watcher = here.desk(), here.desk()
    if not isinstance(watcher.store, Notifies) or here.url.startswith("sqlite"):
        return
    assert holder.take().done
    watcher.look()
    watcher.store.listen()
    for seq in (1, 2, 3):
        assert holder.renew(seq=seq).done
    news = heard(watcher.store, lambda one: one.answer.row.seq == 4)
    assert (news.name, news.answer) == ("job", holder.look())
    seen = news.answer
    mine = row("b#1", 11, 5)
    assert watcher.take(seen=(10, 4), new=mine, server=seen.server).done, "without a look of its own"
    assert holder.look().row == mine._replace(server=seen.server)
    assert watcher.store.news() == [], "of one's own writes nobody needs to hear"


def test_L3_news_is_never_older_than_an_answer(here: Place) -> None:
    """Or an observation would go back to a row that nobody can take any more."""
    holder, watcher = here.desk(), here.desk()
    if not isinstance(watcher.store, Notifies) or here.url.startswith("sqlite"):
        return
    assert holder.take().done
    watcher.look()
    watcher.store.listen()
    assert holder.renew(seq=1).done
    assert holder.renew(seq=2).done
    assert watcher.look().row.seq == 3
    for _ in range(20):
        assert watcher.store.news() == []
        time.sleep(0.01)
    assert holder.renew(seq=3).done
    assert heard(watcher.store, lambda one: True).answer.row.seq == 4


def heard(store: Notifies, wanted: Callable[[News], bool]) -> News:
    """The first such news."""
    for _ in range(3_000):
        for news in store.news():
            if wanted(news):
                return news
        time.sleep(0.01)
    raise AssertionError("no such news within 30 s")


def readable(descriptor: int) -> bool:
    import select

    return bool(select.select([descriptor], [], [], 30)[0])
