"""The safety rules R5 to R7: how a leader changes the members while the work runs, and what it refuses."""

from __future__ import annotations

import pytest

from primacy.election.effects import Stop
from primacy.election.events import Code
from primacy.election.inputs import CancelChange, ChangeMembers
from primacy.election.model import Goal, Kind, Member, Register
from primacy.election.raft.register import first_register, prepared, taken_back
from tests.support.members_harness import HEARTBEAT, LAB, Cluster, Node, P, members

pytestmark = pytest.mark.coverage


class Quiet(Cluster):
    """Nothing goes wrong, and every stop of work is kept."""

    def __init__(self, words: str, *, also: str = "") -> None:
        super().__init__(words, also=also)
        self.stops: list[tuple[str, Stop]] = []

    def watch(self) -> None:
        for node in self.nodes.values():
            perform = node._perform

            def watched(effect: object, node: Node = node, perform: object = perform) -> None:
                if isinstance(effect, Stop):
                    self.stops.append((node.name, effect))
                perform(effect)  # type: ignore[operator]

            node._perform = watched  # type: ignore[method-assign]

    def reach(self, words: str, ms: int = 20_000) -> None:
        self.change(words)
        names = " ".join(member.id for member in members(words))
        self.until(lambda: self.has(names, words), ms)
        self.run(4 * HEARTBEAT)


def steps(node: Node) -> list[str]:
    """The registers that a node wrote or took, in words."""
    return [event.detail for event in node.heard(Code.MEMBERS_CHANGED)]


# --- R6: two steps ----------------------------------------------------------------------------------------------------


def test_R6_a_new_voter_is_an_observer_then_joint_then_final() -> None:
    cluster = Quiet("a b c", also="d")
    cluster.start()
    leader = cluster.lead()
    cluster.reach("a b c d")
    assert steps(leader) == ["a, b, c, d (observer)", "a, b, c, d; before: a, b, c", "a, b, c, d"]
    assert [event.subject for event in leader.heard(Code.MEMBERS_DONE)] == [str(leader.register.id)]
    assert cluster["d"].heard(Code.ADMITTED)
    assert cluster["d"].m.leader == leader.name


def test_R6_any_number_of_voters_changes_at_once() -> None:
    cluster = Quiet("a b c", also="d e f")
    cluster.start()
    leader = cluster.lead()
    rest = "".join(name for name in "abc" if name != leader.name)
    words = " ".join(sorted(f"{leader.name}def"))
    cluster.reach(words)
    assert any(detail.endswith("before: a, b, c") for detail in steps(leader))
    assert all(cluster[name].heard(Code.NOT_A_MEMBER) for name in rest)


@pytest.mark.parametrize("what", ["kind", "priority", "address", "new observer", "no observer"])
def test_R6_what_changes_no_set_of_voters_is_one_step(what: str) -> None:
    cluster = Quiet("a b c p:observer")
    cluster.start()
    leader = cluster.lead()
    other = next(name for name in "abc" if name != leader.name)
    changes: dict[str, dict[str, Member | None]] = {
        "kind": {other: Member(other, Kind.WITNESS)},
        "priority": {leader.name: Member(leader.name, priority=7)},
        "address": {other: Member(other, address="h:1")},
        "new observer": {"q": Member("q", Kind.OBSERVER)},
        "no observer": {"p": None},
    }
    wanted = {**{member.id: member for member in leader.register.members}, **changes[what]}
    goal = tuple(member for _, member in sorted(wanted.items()) if member is not None)
    leader.give(ChangeMembers(goal))
    cluster.until(lambda: leader.register.members == goal)
    assert leader.register == Register(leader.register.id, goal)
    assert leader.register.id.version == 2
    cluster.run(4 * HEARTBEAT)
    assert leader.heard(Code.MEMBERS_DONE)


def test_R6_a_voter_becomes_an_observer_by_two_steps() -> None:
    cluster = Quiet("a b c")
    cluster.start()
    leader = cluster.lead()
    name = next(name for name in "abc" if name != leader.name)
    words = " ".join(f"{one}:observer" if one == name else one for one in "abc")
    cluster.reach(words)
    assert any("before: a, b, c" in detail for detail in steps(leader))


def test_R6_the_steps_of_a_goal() -> None:
    present = first_register(members("a b c o:observer"))
    goal = Goal(members("a c:observer d o"), "", 0)
    assert prepared(present, goal, "a") == members("a b c d:observer o:observer")
    joint = Register(present.id, goal.members, tuple(m for m in present.members if m.kind is Kind.VOTER), goal)
    assert joint.halves == (("a", "d", "o"), ("a", "b", "c"))
    assert taken_back(joint) == members("a b c d:observer o:observer")


# --- R7: nothing is interrupted ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "also", "goals"),
    [
        ("a", "b c", ["a b c"]),
        ("a b c", "d e", ["a b c d e"]),
        ("a b c d e", "", ["3 of them"]),
        ("a b c", "", ["1 of them"]),
        ("a b", "", ["1 of them"]),
        ("a", "b", ["a b", "1 of them"]),
    ],
)
def test_R7_the_work_is_never_interrupted_by_a_change(start: str, also: str, goals: list[str]) -> None:
    cluster = Quiet(start, also=also)
    cluster.start()
    leader = cluster.lead()
    cluster.watch()
    others = [name for name in cluster.nodes if name != leader.name]
    for goal in goals:
        fewer = sorted([leader.name, *others[: int(goal[0]) - 1]]) if goal.endswith("of them") else [goal]
        cluster.reach(" ".join(fewer))
    assert cluster.leader is leader
    assert leader.works == leader.started[0]
    assert not cluster.stops


def test_R7_a_dead_node_is_replaced_at_a_bare_majority() -> None:
    cluster = Quiet("a b c", also="d")
    cluster.start()
    leader = cluster.lead()
    cluster.watch()
    dead = next(name for name in "abc" if name != leader.name)
    cluster.kill(dead)
    words = " ".join(sorted({*"abcd"} - {dead}))
    cluster.reach(words)
    assert cluster.leader is leader
    assert not cluster.stops


def test_R7_a_leader_that_leaves_hands_over_first_to_one_that_stays() -> None:
    cluster = Quiet("a b c", also="d")
    cluster.start()
    leader = cluster.lead()
    cluster.watch()
    stays = sorted({*"abc"} - {leader.name})
    cluster.run(P)
    cluster.reach(" ".join([*stays, "d"]))
    assert [(name, stop.planned) for name, stop in cluster.stops] == [(leader.name, True)]
    assert leader.heard(Code.TRANSFER)[0].subject == stays[0]
    assert cluster.leader.name == stays[0]
    assert cluster.leader.works
    assert leader.heard(Code.NOT_A_MEMBER)


def test_R7_a_leader_that_becomes_a_witness_hands_over_first_although_no_voter_changes() -> None:
    cluster = Quiet("a b c")
    cluster.start()
    leader = cluster.lead()
    cluster.watch()
    cluster.run(P)
    words = " ".join(f"{name}:witness" if name == leader.name else name for name in "abc")
    cluster.reach(words)
    assert [(name, stop.planned) for name, stop in cluster.stops] == [(leader.name, True)]
    assert not leader.leads


def test_R7_a_node_that_never_comes_up_costs_nothing() -> None:
    cluster = Quiet("a b c", also="d")
    cluster.start("a b c")
    leader = cluster.lead()
    cluster.watch()
    cluster.change("a b c d")
    cluster.run(10 * P)
    assert leader.works
    assert not cluster.stops
    assert not leader.register.prior
    assert leader.register.voters == ("a", "b", "c")
    assert "d to be heard" in leader.m.view(leader.now).change
    assert "asked for by root@a" in leader.m.view(leader.now).change
    cluster["d"].start()
    cluster.until(lambda: cluster.has("a b c d", "a b c d"))


def test_R7_a_joint_register_that_is_not_proved_is_taken_back_and_tried_again() -> None:
    cluster = Quiet("a b c", also="d e f")
    cluster.start()
    leader = cluster.lead()
    cluster.watch()
    words = " ".join(sorted([leader.name, *"def"]))
    cluster.loses = lambda sent: sent.to in "def" and bool(leader.register.prior)
    cluster.change(words)
    cluster.until(lambda: bool(leader.register.prior))
    cluster.run(LAB.term_at_ms)
    assert leader.heard(Code.MEMBERS_TAKEN_BACK)
    assert leader.leads
    assert not cluster.stops
    assert leader.register.voters == ("a", "b", "c")
    assert leader.register.goal is not None
    cluster.loses = lambda sent: False
    names = " ".join(member.id for member in members(words))
    cluster.until(lambda: cluster.has(names, words))
    assert not cluster.stops


def test_R7_a_node_that_was_never_heard_is_no_voter_however_young_the_leader_is() -> None:
    cluster = Cluster(also="d").start("a b c")
    leader = cluster.lead()
    leader.give(ChangeMembers(members("a b c d")))
    cluster.run(6 * HEARTBEAT)
    assert leader.register.voters == ("a", "b", "c")


def test_R7_the_next_leader_goes_on_with_the_goal() -> None:
    cluster = Quiet("a b c", also="d")
    cluster.start("a b c")
    leader = cluster.lead()
    cluster.change("a b c d")
    cluster.until(lambda: all(cluster[name].register.goal is not None for name in "abc"))
    cluster.kill(leader.name)
    cluster["d"].start()
    rest = " ".join(name for name in "abcd" if name != leader.name)
    cluster.until(lambda: cluster.has(rest, "a b c d"))
    assert cluster.leader is not leader


# --- cancelled --------------------------------------------------------------------------------------------------------


def test_R6_a_change_that_waits_is_cancelled() -> None:
    cluster = Quiet("a b c", also="d")
    cluster.start("a b c")
    leader = cluster.lead()
    assert "nothing is on its way" in leader.m.why_not(CancelChange())
    cluster.change("a b c d")
    cluster.run(4 * HEARTBEAT)
    leader.give(CancelChange("root@b"))
    cluster.run(4 * HEARTBEAT)
    assert leader.register == Register(leader.register.id, members("a b c d:observer"))
    assert leader.heard(Code.MEMBERS_TAKEN_BACK)
    assert leader.m.view(leader.now).change == ""


@pytest.mark.parametrize("proved", [True, False])
def test_R6_a_joint_register_is_taken_back_when_it_is_cancelled_proved_or_not(proved: bool) -> None:
    cluster = Quiet("a b c", also="d e f")
    cluster.start()
    leader = cluster.lead()
    cluster.watch()
    if not proved:
        cluster.loses = lambda sent: sent.to in "def" and bool(leader.register.prior)
    cluster.change(" ".join(sorted([leader.name, *"def"])))
    cluster.until(lambda: bool(leader.register.prior))
    leader.give(CancelChange())
    cluster.run(3 * HEARTBEAT)
    assert leader.register.voters == ("a", "b", "c")
    assert leader.register.goal is None
    cluster.run(4 * HEARTBEAT)
    assert not cluster.stops
    assert all(node.register == leader.register for node in cluster.nodes.values())


def test_R6_a_request_that_was_not_written_yet_is_cancelled_without_a_trace() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    leader.give(ChangeMembers(members("a b")))
    leader.give(CancelChange())
    cluster.run(4 * HEARTBEAT)
    assert leader.register.id == (0, 1)


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("a b c", "so already"),
        ("", "no voter would be left"),
        ("a:witness b:observer", "no voter would be left"),
        ("x y z", "none of the present voters"),
    ],
)
def test_R7_a_membership_that_cannot_be_is_refused_with_the_remedy(words: str, why: str) -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    refused = leader.m.why_not(ChangeMembers(members(words)))
    assert why in refused
    assert ":" in refused, "and what to do"
    leader.give(ChangeMembers(members(words)))
    assert leader.heard(Code.MEMBERS_REFUSED)[-1].detail == refused
    cluster.run(3 * HEARTBEAT)
    assert leader.register.id == (0, 1)


def test_R7_a_request_during_the_last_step_is_refused_as_one_that_may_be_asked_again() -> None:
    """By a number, not by words: the next request can be taken as soon as a quorum has acked."""
    cluster = Cluster(also="d").start()
    leader = cluster.lead()
    cluster.change("a b c d")
    leader.give(ChangeMembers(members("a b")))
    assert leader.heard(Code.MEMBERS_REFUSED)[-1].value == 0, "it may take long: d is not there yet"
    cluster.until(lambda: leader.register.goal is None and leader.register.get("d") is not None)
    leader.give(ChangeMembers(members("a b c")))
    refused = leader.heard(Code.MEMBERS_REFUSED)[-1]
    assert (refused.value, "the last step" in refused.detail) == (1, True)
    leader.give(CancelChange())
    assert leader.heard(Code.MEMBERS_REFUSED)[-1].value == 0, "there is nothing to cancel in a moment either"
    cluster.until(lambda: leader.m.why_not(ChangeMembers(members("a b c"))) == "", 4 * HEARTBEAT)


def test_R7_names_and_addresses_are_used_once() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    twice = (Member("a"), Member("b"), Member("b", Kind.OBSERVER))
    assert "b is named twice" in leader.m.why_not(ChangeMembers(twice))
    shared = (Member("a", address="h:1"), Member("b", address="h:2"), Member("d", address="h:1"))
    assert "address h:1 is that of a, d" in leader.m.why_not(ChangeMembers(shared))
    assert "priority" in leader.m.why_not(ChangeMembers((Member("a", priority=2**40),)))
    crowd = tuple(Member(f"n{number}") for number in range(101))
    assert "more than 100" in leader.m.why_not(ChangeMembers((Member("a"), *crowd)))


def test_R7_a_request_names_the_version_that_it_is_about() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    assert "at version 1 by now, not 7" in leader.m.why_not(ChangeMembers(members("a b"), version=7))
    assert leader.m.why_not(ChangeMembers(members("a b"), version=1)) == ""


def test_R7_only_the_leader_takes_a_request_and_others_say_who_leads() -> None:
    cluster = Cluster(also="d").start()
    leader = cluster.lead()
    other = next(node for node in cluster.nodes.values() if not node.leads)
    assert other.m.why_not(ChangeMembers(members("a b"))) == f"{leader.name} leads: ask it"
    assert "recovering" in cluster["d"].m.why_not(ChangeMembers(members("a b")))


def test_who_asked_is_kept_as_far_as_a_message_carries_it() -> None:
    cluster = Cluster(also="d").start("a b c")
    leader = cluster.lead()
    leader.give(ChangeMembers(members("a b c d"), "x" * 500))
    cluster.run(3 * HEARTBEAT)
    assert leader.register.goal is not None
    assert leader.register.goal.by == "x" * 64
