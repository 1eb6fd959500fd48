"""What every store owes to the rules, asked of each: memory, SQLite, and real servers where they are (L1 to L10)."""

from __future__ import annotations

import random
import select
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.election.store import (
    FAILSAFE,
    GENESIS,
    WAIT_MAX_MS,
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
from primacy.errors import Refused, UsageError
from primacy.store import perform
from primacy.store.memory import MemoryStore
from primacy.store.port import NAME_MAX, Lists, MakesTable, Notifies, check_name
from tests.support.kubernetes_server import Kubernetes, kubernetes_here, shared
from tests.support.servers import KINDS, kinds, server
from tests.support.store_harness import KEPT_READY, Harness, plain, row
from tests.support.store_harness import Place as Where
from tests.support.store_harness import place as place_of

pytestmark = pytest.mark.beside(order=100)


@pytest.fixture(params=[*kinds(), *([KEPT_READY] if "postgresql" in kinds() else []), *kubernetes_here()])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Where]:
    if request.param == Kubernetes.kind and request.node.get_closest_marker("genesis"):
        pytest.skip("Kubernetes has no genesis row: no name is fresh there, and each start is watched (L9)")
    with place_of(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def harness(here: Where) -> Harness:
    return here.harness()


@pytest.mark.parametrize("kind", [*KINDS, Kubernetes.kind])
def test_the_server_is_here(kind: str) -> None:
    if reason := KINDS.get(kind, Kubernetes).missing():
        pytest.skip(reason)
    assert (server(kind) if kind in KINDS else shared()).version()


@pytest.mark.genesis
def test_an_empty_store_has_no_row_and_says_who_answers(harness: Harness) -> None:
    answer = harness.look()
    assert (answer.ok, answer.done, answer.row) == (True, False, None)
    assert answer.server
    assert answer.link > 0
    assert answer.genesis is not None
    assert (answer.genesis.settled, answer.genesis.names, answer.genesis.count) == (answer.server, 0, -1)
    assert (answer.genesis.wait_max_ms, answer.genesis.floor, answer.genesis.vouches) == (WAIT_MAX_MS, 0, True)


def test_L1_the_first_take_writes_the_row_as_it_was_asked(harness: Harness) -> None:
    answer = harness.take(new=row(members="abc"))
    assert answer.done
    assert plain(answer.row) == row(members="abc", server=answer.server)
    assert answer.row is not None
    assert answer.row.vouches
    assert answer.row.proof
    assert harness.look().row == answer.row


def test_L1_every_write_has_a_new_proof(harness: Harness) -> None:
    """Also of a release: what came back from a backup would else look like what was seen."""
    found = [
        harness.take().row,
        harness.renew().row,
        harness.release(seq=2).row,
        harness.take(new=row(token=20, seq=3)).row,
    ]
    proofs = [r.proof for r in found if r is not None]
    assert len(set(proofs)) == 4
    assert all(r is not None and r.vouches for r in found)


def test_L3_a_take_compares_everything_that_it_rests_on(harness: Harness) -> None:
    harness.take(new=row(members="abc"))
    seen = harness.look()
    present = seen.row
    assert present is not None
    wrong: list[Row | None] = [
        None,
        present._replace(token=9),
        present._replace(seq=2),
        present._replace(proof=present.proof[:-1] + ("0" if present.proof[-1] != "0" else "1")),
        present._replace(released=True),
        present._replace(members=""),
        present._replace(mark="1"),
        present._replace(vouches=False),
    ]
    genesis = harness.look(count=True).genesis
    for one in wrong:
        answer = harness.take(new=row("b#2", 20, 2), seen=seen._replace(row=one, genesis=genesis))
        assert (answer.ok, answer.done, answer.row) == (True, False, present), one
    assert harness.take(new=row("b#2", 20, 2, members="abc"), seen=seen).done
    assert not harness.take(new=row("c#3", 30, 2, members="abc"), seen=seen).done, "not what was seen any more"


def test_L1_a_take_of_a_missing_row_that_was_seen_changes_nothing(harness: Harness) -> None:
    answer = harness.take(seen=harness.look()._replace(row=row()))
    assert (answer.ok, answer.done, answer.row) == (True, False, None)


def test_L2_a_renewal_compares_holder_token_seq_and_release(harness: Harness) -> None:
    harness.take()
    assert not harness.renew(holder="a#1 ").ok, "MySQL would find the row"
    for wrong in ({"holder": "A#1"}, {"token": 11}, {"seq": 2}, {"seq": 0}):
        assert not harness.renew(**wrong).done  # type: ignore[arg-type]
    answer = harness.renew()
    assert answer.done
    assert plain(answer.row) == row(seq=2, server=answer.server)
    assert not harness.renew().done, "the same renewal is not proved twice"
    assert harness.release(seq=2).done
    assert not harness.renew(seq=2).done


def test_L3_every_write_compares_the_server(harness: Harness) -> None:
    assert not harness.take(server="elsewhere").done
    harness.take()
    assert not harness.renew(server="elsewhere").done
    assert not harness.take(new=row("b#2", 20, 2), server="elsewhere").done
    assert harness.renew().done


def test_L4_a_release_keeps_the_row_and_names_the_successor(harness: Harness) -> None:
    harness.take()
    for wrong in ({"holder": "b#1"}, {"token": 11}, {"seq": 2}):
        assert not harness.release(**wrong).done  # type: ignore[arg-type]
    answer = harness.release(to="b")
    assert answer.done
    assert plain(answer.row) == row(server=answer.server)._replace(released=True, successor="b")
    again = harness.release(to="c")
    assert again.done
    assert again.row is not None
    assert again.row.successor == "c"
    taken = harness.take(new=row("b#2", 20, 2))
    assert plain(taken.row) == row("b#2", 20, 2, server=taken.server), "neither released nor a successor any more"


def test_rows_are_never_deleted(harness: Harness) -> None:
    harness.take()
    harness.release()
    answer = harness.look()
    assert answer.row is not None
    assert answer.row.token == 10


def test_names_are_compared_as_bytes(harness: Harness) -> None:
    """Databases compare without case, accents or trailing blanks by default (the SQL coordinator, flaw 9)."""
    for number, name in enumerate(("job", "Job", "JOB", "job.", "job-1")):
        assert harness.take(name, new=row(token=10 + number)).done
    found = [harness.look(name).row for name in ("job", "Job", "JOB", "job.", "job-1")]
    assert [r.token for r in found if r is not None] == [10, 11, 12, 13, 14]


def test_names_are_bounded_and_never_reach_the_store_otherwise(harness: Harness) -> None:
    longest = "x" * NAME_MAX
    assert harness.take(longest).done
    assert harness.look(longest).row is not None
    for name in ("", "x" * (NAME_MAX + 1), "jöb", "job'; DROP TABLE primacy_leases", "a b", "-x", "job\n"):
        with pytest.raises(UsageError, match="a lease's name has at most"):
            check_name(name)
        answer = harness.look(name)
        assert not answer.ok
        assert "a lease's name" in answer.reason


def test_large_numbers_survive(harness: Harness) -> None:
    large = row(token=2**53 - 1, seq=2**60)
    assert harness.take(new=large).done
    assert harness.renew(token=2**53 - 1, seq=2**60).done


def test_two_users_see_each_other(here: Where) -> None:
    one, two = here.harness(), here.harness()
    assert one.server() == two.server()
    assert one.take().done
    assert two.look().row == one.look().row
    assert two.take(new=row("b#2", 20, 2)).done
    assert not one.renew().done


def test_one_of_many_takes_wins(here: Where) -> None:
    """A fresh name, or one that was placed, and everybody at once."""
    here.harness()
    for turn in range(5):
        answers: list[StoreAnswer] = []
        barrier = threading.Barrier(6)

        def contend(number: int, turn: int = turn, barrier: threading.Barrier = barrier) -> None:
            harness = here.harness()
            (seen,) = harness.seen([f"job{turn}"])
            barrier.wait(60)
            answers.append(harness.take(f"job{turn}", row(f"n{number}#1", 100 + number), seen))  # noqa: B023

        threads = [threading.Thread(target=contend, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [a.ok for a in answers] == [True] * 6, answers
        assert sum(a.done for a in answers) == 1


def test_L6_many_at_once(harness: Harness) -> None:
    names = [f"job{number:03}" for number in range(250)]
    server = harness.server()
    assert all(answer.done for answer in harness.take_all(names))
    harness.release(names[7])
    harness.take(names[9], new=row("b#2", 20, 2))
    renewals = perform(harness.store, [Renew(name, "a#1", 10, 1, server) for name in reversed(names)])
    lost = [name for name, answer in zip(reversed(names), renewals, strict=True) if not answer.done]
    assert lost == [names[9], names[7]]
    assert all(answer.ok and answer.server == server for answer in renewals)
    rows = [answer.row for answer in perform(harness.store, [Look(name) for name in names])]
    assert [r.seq for r in rows if r is not None] == [2] * 7 + [1] + [2] + [2] + [2] * 240
    released = perform(harness.store, [ReleaseRow(name, "a#1", 10, 2, name) for name in names])
    assert sum(answer.done for answer in released) == 248
    assert all(a.row is not None and a.row.successor == n for n, a in zip(names, released, strict=True) if a.done)


def test_L6_one_name_twice_is_two_steps(harness: Harness) -> None:
    harness.take()
    server = harness.server()
    answers = perform(harness.store, [Renew("job", "a#1", 10, 1, server), Renew("job", "a#1", 10, 1, server)])
    assert sorted(answer.done for answer in answers) == [False, True]


@pytest.mark.genesis
@pytest.mark.parametrize("seed", range(3))
def test_it_does_what_the_store_in_memory_does(harness: Harness, seed: int) -> None:
    """That one applies `conditions.after`, as the simulated one does: the real one must answer the same."""
    rng, model = random.Random(seed), Harness(MemoryStore())
    pairs: dict[str, tuple[Row | None, Row | None]] = {}
    for _ in range(150):
        name = rng.choice(("job", "other"))
        expected, found = model.look(name, count=True), harness.look(name, count=True)
        same(expected, found)
        pairs.setdefault(name, (expected.row, found.row))
        if rng.random() < 0.8:
            pairs[name] = (expected.row, found.row)
        plan = rng.randrange(7), rng.random(), rng.random(), rng.randrange(1, 9), rng.choice(("a#1", "b#2"))
        expected = model.ask(any_request(plan, name, expected, pairs[name][0]))
        same(expected, harness.ask(any_request(plan, name, found, pairs[name][1])), plan)


def same(expected: StoreAnswer, found: StoreAnswer, why: object = "") -> None:
    assert (found.ok, found.done) == (True, expected.done), (why, expected, found)
    assert (found.row is None) == (expected.row is None), (why, expected, found)
    if found.row is not None and expected.row is not None:
        server = found.server if expected.row.server == expected.server else expected.row.server
        assert plain(found.row) == plain(expected.row._replace(server=server)), why
    one, other = found.genesis, expected.genesis
    if one is not None and other is not None:
        assert one.settled == found.server
        assert (one.floor, one.names, one.wait_max_ms) == (other.floor, other.names, other.wait_max_ms), why


def any_request(
    plan: tuple[int, float, float, int, str], name: str, now: StoreAnswer, seen: Row | None
) -> StoreRequest:
    """Mostly sensible, now and then stale, foreign or absurd."""
    kind, odd, foreign, step, somebody = plan
    server = now.server if foreign < 0.9 else "elsewhere"
    genesis = now.genesis
    assert genesis is not None
    if odd < 0.1:
        genesis = genesis._replace(version=genesis.version + 1)
    present = now.row or row(token=5)
    token, seq = (present.token, present.seq) if odd > 0.2 else (present.token + 1, present.seq)
    holder = present.holder if odd < 0.8 else somebody
    match kind:
        case 0 | 1:
            above = max(genesis.floor, 0 if seen is None else seen.token) + step
            new = Row(somebody, above, present.seq + 1, 3_000, 3_061, False)
            return Take(name, seen, server, new, genesis if seen is None else None)
        case 2:
            return Renew(name, holder, token, seq, server)
        case 3:
            return ReleaseRow(name, holder, token, seq, "c" if odd < 0.5 else "")
        case 4:
            return Place(name, server)
        case 5:
            return Settle(name, server, genesis)
    return Look(name) if seen is None else Prune(name, seen, server, genesis)


def test_L3_a_placeholder_is_nobodys_and_is_made_once(harness: Harness) -> None:
    server = harness.server()
    answer = harness.ask(Place("job", server))
    assert answer.done
    assert plain(answer.row) == Row("", 0, 1, WAIT_MAX_MS, WAIT_MAX_MS, False, server=server)
    assert answer.row is not None
    assert answer.row.is_placeholder
    again = harness.ask(Place("job", server))
    assert (again.ok, again.done, again.row) == (True, False, answer.row)
    assert not harness.ask(Place("other", "elsewhere")).done
    assert harness.take().done


@pytest.mark.genesis
def test_L9_a_placeholder_is_a_name_more(harness: Harness) -> None:
    server = harness.server()
    assert harness.ask(Place("job", server)).done
    assert not harness.ask(Place("job", server)).done
    assert not harness.ask(Place("other", "elsewhere")).done
    found = harness.look(count=True).genesis
    assert found is not None
    assert (found.names, found.count) == (1, 1)
    assert harness.take().done
    assert harness.look(count=True).genesis == found, "a take of what stands there adds no name"


def test_L4_a_write_over_another_connection_than_its_evidence_is_not_done(harness: Harness) -> None:
    """Where only a broken connection tells of a restore, even a take that nobody starts on would make the row sound."""
    harness.take()
    seen = harness.look()
    assert seen.row is not None
    assert seen.link == harness.look().link, "one connection"
    harness.store.close()
    answer = harness.ask(Take("job", seen.row, seen.server, row("b#2", 20, 2), link=seen.link))
    assert (answer.ok, answer.done, answer.row) == (True, False, seen.row)
    assert answer.link not in (0, seen.link)
    assert harness.look().row == seen.row
    assert harness.ask(Take("job", seen.row, seen.server, row("b#2", 20, 2), link=answer.link)).done


@pytest.mark.genesis
def test_L4_a_fresh_name_over_another_connection_than_its_evidence_is_not_taken(harness: Harness) -> None:
    harness.take()
    seen = harness.look(count=True)
    assert seen.genesis is not None
    harness.store.close()
    answer = harness.ask(Settle("job", seen.server, seen.genesis, seen.link))
    assert (answer.ok, answer.done) == (True, False)
    assert answer.link not in (0, seen.link)
    assert not harness.ask(Take("new", None, seen.server, row(), harness.look("new", True).genesis, seen.link)).done
    assert harness.ask(Settle("job", seen.server, seen.genesis, answer.link)).done


@pytest.mark.genesis
def test_L9_a_fresh_name_compares_the_genesis_row(harness: Harness) -> None:
    seen = harness.look(count=True)
    genesis = seen.genesis
    assert genesis is not None
    assert genesis.is_settled(seen.server)
    changed: tuple[Genesis | None, ...] = (
        None,
        genesis._replace(settled="elsewhere"),
        genesis._replace(floor=1),
        genesis._replace(version=genesis.version + 1),
        genesis._replace(mark=genesis.mark + "1"),
    )
    for one in changed:
        answer = harness.take(seen=seen._replace(genesis=one))
        assert (answer.ok, answer.done, answer.row) == (True, False, None), one
    assert harness.take(seen=seen).done
    (stale,) = harness.store.take([Take("other", None, seen.server, row(), genesis)])
    assert not stale.done, "version grew with the first one"
    found = harness.look(count=True).genesis
    assert found is not None
    assert (found.names, found.count, found.version) == (1, 1, genesis.version + 1)


@pytest.mark.genesis
def test_L9_fresh_names_that_were_seen_together_are_all_taken(harness: Harness) -> None:
    """Each insert changes the genesis row that the others compare: they do not have to decide anew."""
    seen = harness.look(count=True)
    names = [f"job-{number}" for number in range(30)]
    answers = perform(harness.store, [Take(name, None, seen.server, row(), seen.genesis, seen.link) for name in names])
    assert all(answer.done and answer.row is not None for answer in answers)
    found = harness.look(count=True).genesis
    assert found is not None
    assert found.is_settled(seen.server)
    assert found.names == len(names)


@pytest.mark.genesis
def test_L9_a_fresh_name_is_not_inserted_again_if_more_than_names_was_added(harness: Harness) -> None:
    seen = harness.look(count=True)
    assert seen.genesis is not None
    assert harness.take("old").done
    assert harness.release("old").done
    old = harness.look("old", count=True)
    assert old.row is not None
    assert old.genesis is not None
    assert harness.ask(Prune("old", old.row, old.server, old.genesis)).done
    for what, genesis in (("floor", seen.genesis), ("settled", old.genesis._replace(settled="elsewhere"))):
        answer = harness.take("new", row(token=50), seen._replace(genesis=genesis))
        assert (answer.ok, answer.done, answer.row) == (True, False, None), what
    now = harness.look("new", count=True)
    assert now.genesis is not None
    by_hand = now.genesis._replace(version=now.genesis.version - 1)
    assert not harness.take("new", row(token=50), now._replace(genesis=by_hand)).done, "a version without a name"
    assert not harness.take("new", row(token=50), now, server="elsewhere").done
    assert harness.take("new", row(token=50), now).done


@pytest.mark.genesis
def test_L9_settling_compares_version_mark_and_count(harness: Harness) -> None:
    harness.take()
    seen = harness.look(count=True)
    genesis = seen.genesis
    assert genesis is not None
    for one in (
        genesis._replace(settled="elsewhere"),
        genesis._replace(floor=genesis.floor + 1),
        genesis._replace(version=genesis.version + 1),
        genesis._replace(mark=genesis.mark + "1"),
        genesis._replace(count=0),
        genesis._replace(count=-1),
    ):
        assert not harness.ask(Settle("job", seen.server, one)).done, one
    assert not harness.ask(Settle("job", "elsewhere", genesis)).done
    answer = harness.ask(Settle("job", seen.server, genesis))
    assert answer.done
    assert answer.row == seen.row
    found = harness.look(count=True).genesis
    assert found is not None
    assert (found.settled, found.names, found.version) == (seen.server, 1, genesis.version + 1)
    assert not harness.ask(Settle("job", seen.server, genesis)).done, "it was settled meanwhile"


@pytest.mark.genesis
def test_L10_what_is_pruned_leaves_its_token_as_the_floor(harness: Harness) -> None:
    harness.take(new=row(token=77))
    harness.release(token=77)
    seen = harness.look(count=True)
    assert seen.row is not None
    assert seen.genesis is not None
    wrong = (
        Prune("job", seen.row._replace(released=False), seen.server, seen.genesis),
        Prune("job", seen.row._replace(proof="0"), seen.server, seen.genesis),
        Prune("job", seen.row._replace(token=78), seen.server, seen.genesis),
        Prune("job", seen.row._replace(seq=2), seen.server, seen.genesis),
        Prune("job", seen.row._replace(members="abc"), seen.server, seen.genesis),
        Prune("job", seen.row._replace(mark="1"), seen.server, seen.genesis),
        Prune("job", seen.row._replace(vouches=False), seen.server, seen.genesis),
        Prune("job", seen.row, seen.server, seen.genesis._replace(settled="elsewhere")),
        Prune("job", seen.row, seen.server, seen.genesis._replace(floor=1)),
        Prune("job", seen.row, seen.server, seen.genesis._replace(mark="1")),
        Prune("job", seen.row, "elsewhere", seen.genesis),
        Prune("job", seen.row, seen.server, seen.genesis._replace(version=0)),
    )
    for one in wrong:
        answer = harness.ask(one)
        assert (answer.ok, answer.done, answer.row) == (True, False, seen.row), one
    answer = harness.ask(Prune("job", seen.row, seen.server, seen.genesis))
    assert (answer.ok, answer.done, answer.row) == (True, True, None)
    empty = harness.look(count=True)
    assert empty.row is None
    assert empty.genesis is not None
    assert (empty.genesis.floor, empty.genesis.names, empty.genesis.count) == (77, 0, 0)
    assert not harness.take(new=row(token=77)).done, "not above the floor"
    assert harness.take(new=row(token=78)).done


@pytest.mark.genesis
def test_L9_the_table_can_be_made_beforehand(here: Where) -> None:
    harness = here.harness()
    assert isinstance(harness.store, MakesTable)
    before = harness.look(count=True)
    harness.store.make_table(wait_max_ms=60_000)
    harness.store.make_table(wait_max_ms=30_000)
    harness.store.make_table()
    after = harness.look(count=True)
    assert before.genesis is not None
    assert after.genesis is not None
    assert after.genesis.wait_max_ms == 60_000, "raised, never lowered"
    assert after.genesis.is_settled(after.server) == before.genesis.is_settled(before.server)
    harness.take()
    with pytest.raises(Refused, match="is not new"):
        harness.store.make_table(new=True)
    assert harness.look().row is not None


def test_L7_the_name_of_a_failsafe_row_is_no_users(harness: Harness) -> None:
    assert harness.take(FAILSAFE + "job").done
    assert harness.look(FAILSAFE + "job").row is not None
    assert harness.look("job").row is None
    for name in (FAILSAFE + "job", GENESIS):
        with pytest.raises(UsageError, match="a lease's name has at most"):
            check_name(name)
    for name in (GENESIS, FAILSAFE, FAILSAFE + FAILSAFE + "job", FAILSAFE + "x" * NAME_MAX):
        answer = harness.look(name)
        assert (answer.ok, answer.final) == (False, True), name
        assert "a lease's name" in answer.reason


def test_a_row_that_nobody_could_read_is_not_written(harness: Harness) -> None:
    (seen,) = harness.seen(["job"])
    for new in (row(token=2**53), row(seq=-1), row(members="x" * 65), row()._replace(hold_ms=10**9)):
        answer = harness.take(new=new, seen=seen)
        assert (answer.ok, answer.final) == (False, True), new
        assert "would be read by nobody" in answer.reason
    assert harness.look().row == seen.row


def test_rows_can_be_listed(harness: Harness) -> None:
    for name in ("b", "a", "c"):
        harness.take(name)
    assert isinstance(harness.store, Lists)
    listings = harness.store.listings()
    assert [listing.name for listing in listings] == ["a", "b", "c"]
    assert listings[0].row == harness.look("a").row
    assert listings[0].written_at.startswith("20")


def test_a_store_that_was_closed_comes_back(harness: Harness) -> None:
    harness.take()
    harness.store.close()
    harness.store.close()
    assert harness.renew().done


def test_news_of_a_release(here: Where) -> None:
    """Where a store notifies, a watcher hears of a release without looking."""
    holder, watcher = here.harness(), here.harness()
    assert isinstance(watcher.store, Notifies)
    holder.take()
    watcher.look()
    descriptor = watcher.store.listen()
    assert descriptor >= 0
    watcher.store.news()
    holder.renew()
    holder.release(seq=2)
    assert readable(descriptor)
    heard(watcher.store, "" if here.url.startswith("sqlite") else "job")
    assert watcher.look().row == holder.look().row


def heard(store: Notifies, name: str) -> None:
    """Until there is news of that name, which is not of a renewal."""
    for _ in range(3_000):
        if any(news.name == name and not news.renewed for news in store.news()):
            return
        time.sleep(0.01)
    raise AssertionError("no such news within 30 s")


def readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 30)[0])
