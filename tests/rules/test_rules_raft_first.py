"""The safety rule M3 where a first start broke off: what a node must know of it that was not there at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primacy.election.effects import Send
from primacy.election.events import Code
from primacy.election.inputs import Init, PersistFailed
from primacy.election.messages import (
    Ack,
    Ahead,
    FirstBallot,
    Heartbeat,
    Message,
    Query,
    Release,
    Report,
    Stale,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import CLOSED, ListRecord, Role
from primacy.election.raft.memory import Remembering
from primacy.election.raft.register import first_register
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.sim.trials.replay import Replayed, read
from tests.support.mutants import raft
from tests.support.raft_harness import BASE, LIST, Bench, H, P, ballot, boot_of, membership, origin

pytestmark = pytest.mark.coverage

AUTO = RaftOptions(auto=True)


def left_behind(words: str = "b", **more: Any) -> Bench:
    """Node b said under the list a, b, c that it has no memory, and is started again under a shorter list."""
    first = Bench(node="b", blank=True, options=AUTO)
    first.hear(Query(origin("a", base=0, incarnation=0), memory=False))
    return Bench(words, kept=first.disk, node="b", config="list-2", blank=True, options=AUTO, boot=77, **more)


def test_M3_who_says_that_it_has_no_memory_first_writes_down_under_which_list() -> None:
    bench = Bench(node="b", blank=True, options=AUTO)
    bench.now += P
    bench.hear(Query(origin("a", base=0, incarnation=0), memory=False))
    assert bench.order() == ["Persist", "Send"]
    assert bench.disk is not None
    assert bench.disk.is_mark
    assert bench.disk.lists[0].voters == ("a", "b", "c")
    bench.hear(Query(origin("c", base=0, incarnation=0), memory=False))
    assert bench.order() == ["Send"], "once is enough"
    again = Bench(node="b", kept=bench.disk, blank=True, options=AUTO, boot=9)
    assert again.m.ballot is None
    again.hear(FirstBallot(origin("a"), BASE, 9))
    assert again.m.role is Role.FOLLOWER, "under that list it is as new as before"


def test_M3_an_answer_that_could_not_be_written_down_is_not_given() -> None:
    bench = Bench(node="b", blank=True)
    bench.now += P
    bench.hear(Query(origin("a", base=0, incarnation=0), memory=False))
    bench.give(PersistFailed("disk full"))
    assert bench.events(Code.DISK_FAILED)
    assert "disk full" in bench.m.view(bench.now).waits_for
    bench.hear(Query(origin("a", base=0, incarnation=0), memory=False))
    assert bench.order() == ["Persist", "Send"]


def test_M3_a_node_that_was_listed_with_others_begins_no_cluster_of_its_own() -> None:
    """The others began theirs without it: the first ballot was on its way when this node lost its power."""
    bench = left_behind()
    bench.wait(10 * P)
    assert bench.m.role is Role.RECOVERING
    assert {e.to for e in bench.all if isinstance(e, Send)} == {"a", "c"}, "they are asked although not listed"
    waits = "the first start of the cluster; not heard yet: a, c (of an earlier list; gone for good: "
    assert bench.m.view(bench.now).waits_for == waits + (
        "primacy init --without a --without c) (if it runs already, there: primacy members add b --addr HOST:PORT)"
    )
    for node in ("a", "c"):
        bench.report(node, 5, config="list-2", register=first_register(membership("a b c").members))
    assert bench.m.role is Role.RECOVERING
    assert "its file names nobody but itself" in bench.m.view(bench.now).waits_for, "it is part of their cluster (R12)"


def test_M3_a_node_that_was_listed_with_others_begins_by_itself_if_none_of_them_remembers() -> None:
    bench = left_behind()
    bench.report("a", memory=False, config="list-2")
    assert bench.m.role is Role.RECOVERING
    bench.report("c", memory=False, config="list-2")
    assert bench.m.role is Role.FOLLOWER


def test_M3_init_is_refused_when_one_of_an_earlier_list_remembers() -> None:
    bench = left_behind()
    bench.give(Init(5_000_000, without=("c",)))
    bench.report("a", 3, config="list-2")
    assert bench.events(Code.INIT_REFUSED)
    bench.give(Init(5_000_000, without=("a", "c")))
    assert bench.m.role is Role.FOLLOWER, "an operator vouches for both"


def test_M3_nobody_begins_by_itself_beside_one_that_was_listed_with_others() -> None:
    bench = left_behind("b d")
    bench.now += P
    bench.hear(Query(origin("d", base=0, incarnation=0, config="list-2"), memory=False))
    assert bench.sent(Report)[0].used
    other = Bench("b d", node="b", config="list-2", blank=True, options=AUTO)
    other.wait(2 * P)
    blank = Report(origin("d", base=0, incarnation=0, config="list-2"), other.m.seat.boot, False, True, 0, 0, 0)
    other.hear(blank._replace(register=first_register(membership("b d").members)))
    other.wait(2 * P)
    assert other.m.role is Role.RECOVERING
    assert other.m.view(other.now).waits_for == "the first start of the cluster: primacy init, once, on one node"


@pytest.mark.parametrize("word", [None, Init(5_000_000)], ids=["auto", "init"])
def test_M3_a_first_start_that_a_full_disk_broke_off_is_tried_again(word: Init | None) -> None:
    bench = Bench(blank=True, options=None if word else AUTO)
    bench.wait(2 * P)
    if word is not None:
        bench.give(word)
    bench.report("b", memory=False)
    bench.report("c", memory=False)
    assert bench.order()[0] == "Persist"
    bench.give(PersistFailed("disk full"))
    assert bench.m.role is Role.RECOVERING
    bench.wait(2 * P)
    assert bench.receivers() == {"b", "c"}
    bench.report("b", memory=False)
    bench.report("c", memory=False)
    assert bench.order() == ["Persist", "Send", "Send"]
    bench.wait(1)
    assert bench.m.role is Role.FOLLOWER


def test_M3_where_nobody_remembers_and_one_memory_is_an_old_copy_every_node_says_what_to_do() -> None:
    """All nodes were restored or wiped: nobody begins by itself beside a copy, and only an operator can know (Q10)."""
    says = "the first start of the cluster: primacy init, once, on one node"
    copied = Bench(kept=ballot(term=4, void=True), options=AUTO)
    copied.report("b", memory=False)
    copied.report("c", memory=False)
    copied.wait(10 * P)
    assert copied.m.view(copied.now).waits_for == says
    wiped = Bench(node="b", blank=True, options=AUTO)
    who = origin("a", base=0, incarnation=0)
    listed = first_register(membership("a b c").members)
    copy = Report(who, wiped.m.seat.boot, False, True, 0, 0, BASE + 4, register=listed)
    wiped.hear(copy)
    wiped.report("c", memory=False)
    wiped.wait(10 * P)
    assert wiped.m.view(wiped.now).waits_for == says
    wiped.give(Init(5))
    wiped.hear(copy)
    wiped.report("c", memory=False)
    assert wiped.disk is not None
    assert wiped.disk.base > BASE + 4, "above every token that a copy knows"


def test_M2_a_full_disk_of_long_ago_does_not_hide_what_a_node_without_memory_waits_for() -> None:
    bench = Bench("a b c d e", blank=True)
    bench.hear(Query(origin("b"), memory=True))
    for node in ("b", "c", "d", "e"):
        bench.report(node, 3)
    bench.give(PersistFailed("disk full"))
    assert bench.m.role is Role.RECOVERING
    bench.report("c", memory=False, who=origin("c", incarnation=0, boot=99, base=0))  # c has lost its memory, too
    says = "answers from memory, for its own is lost, by c (gone for good: primacy members remove c)"
    assert bench.m.view(bench.now).waits_for == says


def test_M3_a_node_under_another_file_is_named_with_what_to_do() -> None:
    bench = Bench(blank=True)
    bench.report("b", memory=False, config="list-2")
    waits = "the first start of the cluster; node b runs under another list of nodes: give all nodes the same file"
    assert bench.m.view(bench.now).waits_for == waits


def test_a_candidate_says_who_runs_under_another_file() -> None:
    bench = Bench()
    bench.ask_first()
    bench.hear(Query(origin("b", config="list-2"), memory=True))
    waits = "votes of a majority: 2 of 3 voting nodes; under another list or timing: b (give all nodes the same file)"
    assert bench.m.view(bench.now).waits_for == waits


# --- two first starts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "gives_way"),
    [
        (Query(origin("b", base=BASE - 7), True, 1), True),
        (Query(origin("b", base=BASE + 7), True, 0), True),
        (Query(origin("b", base=BASE - 7), True, 0), False),
        (Query(origin("b", base=0, incarnation=0), False, 0), False),
        (Query(origin("b", base=BASE - 7, config="list-2"), True, 1), False),
        (Query(origin("z", base=BASE - 7), True, 1), False),
        (VoteRequest(origin("b", base=BASE - 7), 1, False), True),
        (VoteRequest(origin("b", base=BASE - 7), 2, True), True),
        (VoteRequest(origin("b", base=BASE - 7), 1, True), False),
        (VoteRequest(origin("b", base=BASE + 7), 1, True), True),
        (VoteReply(origin("b", base=BASE - 7), 1, False, False, 5, 1), True),
        (Heartbeat(origin("b", base=BASE - 7), 1, 1, 10, True), True),
        (Ack(origin("b", base=BASE - 7), 1, 1, 5), True),
        (Ahead(origin("b", base=BASE - 7), 1), True),
        (Release(origin("b", base=BASE - 7), 1), False),
        (Report(origin("b", base=BASE - 7), boot_of("a"), True, True, 1, 0, BASE), True),
        (Report(origin("b", base=BASE - 7), boot_of("a"), True, True, 0, 0, BASE), False),
        (Report(origin("b", base=BASE + 7), boot_of("a"), True, False, 0, 0, BASE), True),
    ],
)
def test_M3_an_unused_first_ballot_gives_way_whatever_message_shows_the_one_that_counts(
    shown: Message, gives_way: bool
) -> None:
    """Of two first ballots the one in use counts, else the larger base: both ends of a message decide alike."""
    unused = Bench()
    unused.hear(shown)
    assert (unused.m.role is Role.RECOVERING) == gives_way
    used = Bench(kept=ballot(term=1, voted_for="a"))
    used.hear(shown)
    assert used.m.role is Role.FOLLOWER, "one that was used never gives way"


def test_M3_who_gave_way_takes_part_again_with_what_the_others_remember() -> None:
    bench = Bench()
    bench.hear(Query(origin("b", base=BASE - 7), True, 1))
    (answer,) = bench.sent(Report, "b")
    assert (answer.memory, answer.gave_way) == (False, True)
    bench.wake()
    bench.report("b", 1, who=origin("b", base=BASE - 7))
    bench.hear(Report(origin("c", base=0), boot_of("a"), False, False, 0, 0, BASE, gave_way=True))
    assert bench.disk is not None
    assert (bench.disk.base, bench.disk.term, bench.disk.voted_for) == (BASE - 7, 1_007, CLOSED)


def test_M3_two_machines_with_one_id_wait_for_an_operator_whatever_first_start_counts() -> None:
    bench = Bench()
    bench.hear(Stale(origin("c"), bench.m.seat.boot, bench.m.origin.incarnation))
    assert bench.m.muted == "two-boots"
    bench.hear(Query(origin("b", base=BASE + 7), True, 1))
    assert bench.m.muted == "two-boots"


def test_M3_a_node_that_gave_way_and_lost_its_memory_later_is_no_newcomer() -> None:
    bench = Bench()
    bench.hear(Query(origin("b", base=BASE - 7), True, 1))
    bench.wake()
    for node in ("b", "c"):
        bench.report(node, 1, who=origin(node, base=BASE - 7))
    assert bench.m.role is Role.FOLLOWER
    bench.hear(Stale(origin("c", base=BASE - 7), bench.m.seat.boot, bench.m.origin.incarnation + 1))
    bench.hear(Query(origin("c", base=BASE - 7), True, 2))
    (answer,) = bench.sent(Report, "c")
    assert (answer.memory, answer.gave_way) == (False, False), "it may have voted since"


@pytest.mark.parametrize(
    ("b", "c", "removed", "base"),
    [
        ((0, 0), (0, 0), (-7, 0), 0),  # what a node of an earlier list never used is no other cluster
        ((0, 0), (0, 0), (7, 0), 0),
        ((0, 3), (0, 2), (7, 0), 0),
        ((0, 3), (7, 0), (7, 0), 0),  # c gives way to the one in use
        ((0, 0), (7, 0), (7, 0), None),  # b gives way to the larger base, and is waited for
        ((0, 3), (7, 1), (0, 0), None),
        ((0, 3), (0, 3), (7, 1), None),
    ],
)
def test_M2_an_unused_first_ballot_keeps_nobody_from_remembering(
    b: tuple[int, int], c: tuple[int, int], removed: tuple[int, int], base: int | None
) -> None:
    bench = Bench(blank=True)
    for node, (more, term) in (("z", removed), ("b", b), ("c", c)):
        bench.report(node, term, who=origin(node, base=BASE + more))
    assert (None if bench.m.ballot is None else bench.m.ballot.base - BASE) == base


# --- taken out --------------------------------------------------------------------------------------------------------


class KeepsOffers(RaftStrategy):
    """A first start whose ballot could not be saved goes on as if it had been offered."""

    class remembering_class(Remembering):
        def first_start_failed(self) -> None:
            return


class HeedsLeadersOnly(RaftStrategy):
    """A first ballot that was never used gives way to a leader's heartbeat, and to what a mute node is answered."""

    class remembering_class(Remembering):
        def give_way(self, message):  # type: ignore[no-untyped-def]
            asked = isinstance(message, Report) and self.state.muted
            larger = message.origin.base > self.state.origin.base and not isinstance(message, Query | Report)
            return super().give_way(message) if asked or larger or isinstance(message, Heartbeat) else []


@pytest.mark.later
@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("name", "machine", "rule"),
    [
        ("raft-5-lan-1500000062", KeepsOffers, "P1"),
        ("raft-3-fast-41001499", KeepsOffers, "P1"),
    ],
)
def test_M3_taken_out_a_recorded_trial_breaks_again(name: str, machine: type[RaftStrategy], rule: str) -> None:
    plan = read(Path(__file__).parents[1] / "data" / "plans" / f"{name}.json")
    for streams in (0, *plan.streams):
        violations = Replayed(plan, streams, raft(machine)).run().violations
        assert rule in [violation.rule for violation in violations], streams


def test_M3_taken_out_a_question_shows_in_vain_that_another_first_ballot_is_in_use() -> None:
    """Since who has no memory listens before it answers, no trial was found that needs it (2,400 tried)."""
    bench = Bench(machine=HeedsLeadersOnly)
    bench.hear(Query(origin("b", base=BASE - 7), True, 1))
    assert bench.m.role is Role.FOLLOWER, "the rule is taken out here"


# --- T2: what a lease gave in between ---------------------------------------------------------------------------------

FAR = BASE + 5_000_000


def test_M3_a_node_that_comes_back_from_a_lease_is_no_blank_one() -> None:
    """Raft was never used before the lease; a first start now would forget its tokens (T2)."""
    lists = (ListRecord(LIST, ("a", "b", "c"), confirmed=True), ListRecord("lease", ("a", "b", "c"), True, True))
    bench = Bench(kept=ballot(term=0, lists=lists, hold_max_ms=H))
    for node in "bc":
        bench.report(node, 0, used=False, token_max=FAR)
    assert not bench.m.muted
    assert (bench.m.ballot.term, bench.m.ballot.voted_for, bench.m.ballot.token_max) == (1, CLOSED, FAR)
    bench.give(Init(0, ("b", "c")))
    assert bench.events(Code.INIT_REFUSED)
    bench.hear(FirstBallot(origin("b", base=FAR + 1), FAR + 1, bench.m.seat.boot))
    assert bench.m.ballot.base == BASE


def test_T2_another_first_ballot_keeps_the_token_that_was_seen() -> None:
    bench = Bench(kept=ballot(term=0))
    bench.ask_first()
    bench.no("b", 1, pre=True, token_max=FAR)
    bench.hear(FirstBallot(origin("b", base=BASE + 10), BASE + 10, bench.m.seat.boot))
    assert (bench.m.ballot.base, bench.m.ballot.token_max) == (BASE + 10, FAR)


def test_T2_a_first_start_is_above_the_token_that_its_founder_has_seen() -> None:
    bench = Bench(kept=ballot(term=0))
    bench.ask_first()
    bench.no("b", 1, pre=True, token_max=FAR)
    bench.give(Init(0))
    for node in "bc":
        bench.report(node, memory=False, used=False)
    bench.wait(P)
    assert bench.m.ballot.base > FAR
