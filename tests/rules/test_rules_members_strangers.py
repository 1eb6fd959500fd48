"""The safety rule M3 where a cluster of this name runs already: nobody begins another one beside it."""

from __future__ import annotations

import pytest

from primacy.election.effects import Send
from primacy.election.events import Code
from primacy.election.inputs import Init, Received, StrangerHeard
from primacy.election.messages import Query, Report
from primacy.election.raft.memory import STRANGERS_TOLD, Remembering
from primacy.election.raft.strategy import RaftStrategy
from tests.support.members_harness import HEARTBEAT, Cluster, P
from tests.support.raft_harness import BASE

pytestmark = pytest.mark.coverage


class FoundsBesideStrangers(RaftStrategy):
    """M3 without its last sentence: who speaks from outside of the list is no reason to wait."""

    class Careless(Remembering):
        def speaks_against(self, now_ms: int, init: Init) -> str:
            return ""

    remembering_class = Careless


@pytest.mark.parametrize("machine", [RaftStrategy, FoundsBesideStrangers])
def test_M3_no_cluster_begins_while_a_node_outside_of_the_list_speaks_for_it(machine: type[RaftStrategy]) -> None:
    """Machines of a list without memory: the cluster of this name goes on elsewhere, under other members."""
    careless = machine is FoundsBesideStrangers
    cluster = Cluster(blank="a b c", auto=True, machines=dict.fromkeys("abc", machine)).start()
    while cluster.now < 10_000 + 6 * P:
        cluster.run(HEARTBEAT)
        cluster["a"].give(StrangerHeard("x"))
        cluster["a"].give(StrangerHeard("b"))  # a listed one is none
    assert bool(cluster["a"].heard(Code.FIRST_BALLOT)) == careless
    if not careless:
        waits = cluster["a"].m.view(cluster.now).waits_for
        assert "node x speaks for it already, and is not in the file's list" in waits
        cluster["a"].give(Init(0))
        assert "node x speaks" in cluster["a"].heard(Code.INIT_REFUSED)[-1].detail
        cluster.run(2 * P)  # it is silent for P
        assert cluster["a"].heard(Code.FIRST_BALLOT)
    cluster.lead()


class AnswersAtOnce(RaftStrategy):
    """M3: who has no memory says so at its start, before it has listened."""

    class remembering_class(Remembering):
        def on_query(self, now_ms, query):  # type: ignore[no-untyped-def]
            told = super().on_query(now_ms, query)
            reports = [e.message for e in told if isinstance(e, Send) and isinstance(e.message, Report)]
            return [Send(query.origin.node, report._replace(listens=False)) for report in reports]


class TellsOfNoStranger(RaftStrategy):
    """M3: what another node without memory has heard is no reason to wait."""

    class remembering_class(Remembering):
        def stranger_told(self, now_ms: int, report: Report) -> None:
            return


class BeginsAtOnce(RaftStrategy):
    """M3: an operator's word is carried out before anybody has listened."""

    class remembering_class(Remembering):
        def has_listened(self, now_ms: int) -> bool:
            return True


def one_of_three_forgets(word: str, machine: type[RaftStrategy] = RaftStrategy) -> Cluster:
    """The file of a and b, which were replaced by d and e and wiped, is as old as they. Then c forgets, too: of this
    file nobody remembers, and d and e go on."""
    cluster = Cluster("a b c", also="d e", auto=word == "auto", machines=dict.fromkeys("abc", machine))
    cluster["d"].joins = cluster["e"].joins = True
    cluster.start()
    cluster.lead()
    cluster.change("c d e")
    cluster.until(lambda: cluster.has("c d e", "c d e") and any(node.works for node in cluster.nodes.values()))
    for name in "abc":
        cluster.forget(name)
    cluster.until(lambda: any(node.leads and node.works for node in (cluster["d"], cluster["e"])))
    if word == "auto":  # a and b have been up for long when c comes back
        cluster.start("a b")
        cluster.run(3 * P)
        cluster.start("c")
    else:
        cluster.start("a b c")
        cluster["a"].give(Init(0))
    return cluster


@pytest.mark.parametrize("word", ["auto", "init"])
def test_M3_two_wiped_nodes_begin_no_cluster_with_a_third_that_just_forgot_where_it_is_a_member(word: str) -> None:
    """The leader speaks to c, which is among its members, and not to a and b. That anybody works at once, the cluster
    judges at every step."""
    cluster = one_of_three_forgets(word)
    cluster.run(6 * P)
    assert not any(cluster[name].heard(Code.FIRST_BALLOT) for name in "abc")
    assert cluster.leader.name in "de"
    waits = cluster["a"].m.view(cluster.now).waits_for
    if word == "auto":
        assert "speaks for it already, and is not in the file's list" in waits
    else:
        assert "speaks for this cluster already" in cluster["a"].heard(Code.INIT_REFUSED)[-1].detail


@pytest.mark.parametrize(
    ("word", "machine"),
    [("auto", AnswersAtOnce), ("auto", TellsOfNoStranger), ("init", TellsOfNoStranger), ("init", BeginsAtOnce)],
)
def test_M3_taken_out_the_three_begin_another_cluster(word: str, machine: type[RaftStrategy]) -> None:
    with pytest.raises(AssertionError, match=r"work at once|two leaders in term"):
        one_of_three_forgets(word, machine).run(6 * P)


def test_M3_what_another_node_heard_is_not_told_on() -> None:
    """Told in turns, a stranger that is gone would never be forgotten."""
    cluster = Cluster(blank="a b c", auto=True).start()
    cluster.run(P // 2)
    cluster["c"].give(StrangerHeard("x"))
    cluster.until(lambda: "x" in cluster["a"].m.state.first.told)
    assert "node x speaks for it already" in cluster["a"].m.view(cluster.now).waits_for
    cluster.until(lambda: bool(cluster["a"].heard(Code.FIRST_BALLOT)), 3 * P)


def test_M3_an_observer_of_the_file_that_remembers_keeps_an_init_from_going_on() -> None:
    cluster = Cluster("a b c o:observer").start()
    cluster.lead()
    for name in "abc":
        cluster.forget(name)
    cluster.start("a b c")
    cluster.run(2 * P)
    cluster["a"].give(Init(0))
    cluster.run(2 * HEARTBEAT)
    assert cluster["a"].heard(Code.INIT_REFUSED)[-1].detail == "node o remembers this cluster"
    cluster["a"].give(Init(0, ("o",)))
    cluster.run(2 * HEARTBEAT)
    assert cluster["a"].heard(Code.FIRST_BALLOT)


def test_M3_an_operator_who_knows_better_names_the_stranger() -> None:
    cluster = Cluster(blank="a b c").start()
    cluster.run(P)
    cluster["a"].give(StrangerHeard("x"))
    cluster["a"].give(Init(0, ("x",)))
    cluster.run(P // 2)
    assert cluster["a"].heard(Code.FIRST_BALLOT)


def test_M3_a_question_from_memory_of_a_node_outside_of_the_list_speaks_against_it_and_a_blank_one_does_not() -> None:
    cluster = Cluster(blank="a b c", auto=True).start("a b c")
    a = cluster["a"]
    origin = a.m.origin._replace(node="x", boot=9, incarnation=4, base=BASE)
    a.give(Received(Query(origin._replace(incarnation=0, base=0), False, 0)))
    assert not a.m.state.first.strangers
    a.give(Received(Query(origin, True, 5)))
    assert list(a.m.state.first.strangers) == ["x"]


def test_M3_an_operator_must_name_every_stranger_also_those_that_no_answer_has_room_for() -> None:
    cluster = Cluster(blank="a b c").start()
    cluster.run(P)
    names = tuple(f"x{number:02}" for number in range(STRANGERS_TOLD + 2))
    for name in names:
        cluster["a"].give(StrangerHeard(name))
    cluster["a"].give(Init(0, names[1:]))
    assert f"node {names[0]} speaks" in cluster["a"].heard(Code.INIT_REFUSED)[-1].detail
    cluster["a"].give(Init(0, names))
    cluster.run(P // 4)
    assert cluster["a"].heard(Code.FIRST_BALLOT)
