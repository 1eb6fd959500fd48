"""What the judges of changing members excuse, and that they still see a planted defect right beside each excuse."""

from __future__ import annotations

import pytest

from primacy.election.effects import Effect
from primacy.election.events import Code
from primacy.election.model import Goal, Kind, Member, MembersId, Register
from primacy.election.raft.change import Changing
from primacy.election.raft.roles import Leader
from primacy.election.raft.strategy import RaftStrategy
from primacy.sim.checkers import LivenessChecker, TermChecker, Violation
from primacy.sim.facts import MEMORY_LOST, Fact
from primacy.sim.facts import Kind as FactKind
from primacy.sim.trials.raft import RaftTrial, registered
from primacy.sim.trials.trial import Plan

QUIET = Plan("raft", 3, "lab", 1.0, ("members",), draw=False, members_change=True)
BOUND_MS = 100.0


def ended(seed: int = 3) -> RaftTrial:
    """A trial that was run and had no violation; nobody is broken from here on, but for what a test breaks."""
    trial = RaftTrial(QUIET, seed)
    assert not trial.run().violations
    trial.broken, trial.breaks, trial.apart = {}, {}, {}
    for node in trial.world.nodes.values():
        node.cut.clear()
    leader = trial.liveness.leaders()[0]
    newest = trial.newest()
    for name in newest.everybody:
        node = trial.world.nodes[name]
        node.introduced, node.leader = True, leader
        trial.world.start(node)
        node.disk.ballot = trial.world.nodes[leader].disk.ballot
        node.leader = leader
    assert agreement(trial) == []
    return trial


def agreement(trial: RaftTrial) -> list[str]:
    trial.outcome.violations.clear()
    trial._judge_agreement(trial.liveness.leaders()[0])
    return [f"{violation.rule} {violation.sentence}" for violation in trial.outcome.violations]


def other(trial: RaftTrial) -> str:
    """A member that does not lead."""
    return next(name for name in trial.newest().everybody if name not in trial.liveness.leaders())


def has(trial: RaftTrial, name: str, register: Register | None) -> None:
    disk = trial.world.nodes[name].disk
    assert disk.ballot is not None
    disk.ballot = None if register is None else disk.ballot._replace(register=register)


# --- P1: registers that nobody can be told of -------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "is_seen"), [(0, False), (1, False), (2, False), (3, True), (4, True)])
def test_P1_a_register_counts_unless_its_only_node_is_heard_no_more(how: int, is_seen: bool) -> None:
    trial = ended()
    left = other(trial)
    newer = trial.newest()._replace(id=MembersId(99, 9))
    has(trial, left, newer)
    trial.broken[left], trial.breaks[left] = True, (how, "")
    seen = agreement(trial)
    assert any("not 99.9" in sentence for sentence in seen) is is_seen, seen


def test_P6_a_change_that_was_done_is_not_lost() -> None:
    trial = ended()
    assert trial.done, "changes were done in this trial"
    first = Register(MembersId(0, 1), trial.newest().members)
    for name in trial.world.nodes:
        if trial.world.nodes[name].disk.ballot is not None:
            has(trial, name, first)
    trial.outcome.violations.clear()
    trial._judge_liveness()
    assert [violation.rule for violation in trial.outcome.violations] == ["P6"]


# --- P1: nodes that need not follow -----------------------------------------------------------------------------------


def test_P1_a_node_that_is_cut_from_one_other_follows_unless_that_one_leads() -> None:
    trial = ended()
    leader, left = trial.liveness.leaders()[0], other(trial)
    trial.world.nodes[left].leader = ""
    trial.broken[left], trial.breaks[left] = True, (4, "n9")
    trial.apart[left] = True
    assert agreement(trial) == [f"P1 {left} follows nobody while {leader} leads"]
    trial.world.nodes[left].cut[leader] = 1
    assert agreement(trial) == []


def test_P1_a_node_that_does_not_run_is_seen_unless_it_stays_off() -> None:
    trial = ended()
    left = other(trial)
    trial.world.crash(trial.world.nodes[left])
    assert agreement(trial) == [f"P1 {left} does not run"]
    trial.broken[left], trial.breaks[left] = True, (0, "")
    assert agreement(trial) == []


def test_P1_a_node_without_memory_is_excused_where_it_cannot_be_helped_only() -> None:
    trial = ended()
    newest = trial.newest()
    leader, left = trial.liveness.leaders()[0], other(trial)
    observed = Register(MembersId(90, 9), tuple(sorted((Member(left, Kind.OBSERVER), Member(leader), Member("new9")))))
    voted = observed._replace(members=tuple(m._replace(kind=Kind.VOTER) for m in observed.members if m.id != "new9"))
    assert newest.id < observed.id
    trial.world.nodes[left].leader = ""
    has(trial, left, None)
    missing = f"P1 {left} follows nobody while {leader} leads"
    has(trial, leader, voted)
    assert agreement(trial) == [missing], "a voter, and all others remember"
    trial.faults.acts.gone["n9"] = True
    assert agreement(trial) == [missing], "it does not say that it waits for one that is gone"
    has(trial, leader, observed._replace(members=tuple(m for m in observed.members if m.id != "new9")))
    assert agreement(trial) == [missing], "an observer is admitted, although others are blank (R8)"
    has(trial, leader, voted._replace(prior=(Member(left),)))
    assert agreement(trial) == [], "it is all of a half (R9)"
    third = next(name for name in trial.world.nodes if name not in (leader, left))
    trial.world.nodes[third].disk.ballot = None
    has(trial, leader, voted._replace(members=tuple(sorted((*voted.members, Member(third))))))
    assert missing in agreement(trial), "another voter is blank, too: the operator renews one of them"


# --- P3, P4: handovers ------------------------------------------------------------------------------------------------


class Wanders(RaftStrategy):
    """A leader hands over now and then, although nobody wants it to leave."""

    class changing_class(Changing):
        def at_heartbeat(self, now_ms: int, leader: Leader) -> list[Effect]:
            others = self.state.quorum.other_voters
            if leader.ran and others and leader.progress.number % 100 == 99:
                return self.leading.step_down(now_ms, Code.TRANSFER, "it leaves the members", others[0])
            return super().at_heartbeat(now_ms, leader)


def test_P3_a_handover_is_excused_where_the_register_wants_it_only() -> None:
    violations = RaftTrial(QUIET, 3, registered(Wanders)).run().violations
    assert {"P3", "P4"} <= {violation.rule for violation in violations}


def test_P3_an_ordered_handover_that_ends_late_is_no_needless_change() -> None:
    """The work of a leader that leaves the members took nine seconds to end."""
    plan = Plan("raft", 4, "lan", 2.0, members_change=True)
    assert not RaftTrial(plan, 720_010_063).run().violations


def test_P3_only_the_successor_and_only_once() -> None:
    checker = LivenessChecker(BOUND_MS)
    checker(Fact(0.0, FactKind.ROLE, "a", 0, "leader"))
    checker.begin(0.0, ("a", "b", "c"))

    def wins(at_ms: float, node: str) -> None:
        checker(Fact(at_ms, FactKind.EVENT, node, 2, Code.CAMPAIGNS))
        checker(Fact(at_ms, FactKind.ROLE, node, 0, "leader"))

    checker.hands_over("b")
    wins(1_000.0, "b")
    assert (checker.changes_after, checker.candidacies_after) == (0, 0)
    wins(2_000.0, "b")
    assert (checker.changes_after, checker.candidacies_after) == (1, 1), "it was handed over to it once"
    checker.hands_over("c")
    wins(3_000.0, "a")
    assert (checker.changes_after, checker.candidacies_after) == (2, 2), "another one than the successor"
    checker.hands_over("c")
    checker(Fact(4_000.0, FactKind.EVENT, "c", 2, Code.CAMPAIGNS))
    wins(4_100.0, "c")
    assert (checker.changes_after, checker.candidacies_after) == (2, 3), "it asks twice"


def test_P1_a_register_that_was_left_half_done_gives_way_where_it_is_heard_of() -> None:
    classes = (
        *("aimed", "crash-agent", "crash-node", "crash-between", "freeze", "child", "partition", "link", "one-way"),
        *("swizzle", "flap", "lossy", "disk-full", "disk-slow", "memory", "duplicate", "relist", "extremes", "members"),
    )
    plan = Plan("raft", 5, "lan", 2.0, classes, draw=False, members_change=True)
    assert not RaftTrial(plan, 700_010_343).run().violations


# --- P6: who is waited for --------------------------------------------------------------------------------------------


def test_P6_the_operator_gives_up_only_what_waits_for_a_node_that_is_away() -> None:
    trial = ended()
    leader, left = trial.liveness.leaders()[0], other(trial)
    register = Register(MembersId(9, 9), tuple(sorted((Member(leader), Member(left)))))
    alone = Goal((Member(left),), "", 0)
    trial.world.crash(trial.world.nodes["new3"])
    assert trial._waits_in_vain(register, Goal((*register.members, Member("new3")), "", 0), leader), "it is off"
    assert not trial._waits_in_vain(register, Goal((Member(leader),), "", 0), leader)
    trial.world.nodes[left].cut[leader] = 1
    assert trial._waits_in_vain(register, alone, leader), "it could hand over to nobody"
    trial.world.nodes[left].cut.clear()
    trial.broken[left], trial.breaks[left] = True, (4, "n9")
    assert not trial._waits_in_vain(register, alone, leader), "it is cut from another one only"


# --- I3: votes of a node that forgot ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", [Fact(3.0, FactKind.FAULT, "a", 1, MEMORY_LOST), Fact(3.0, FactKind.EVENT, "a", 1, Code.ADMITTED)]
)
@pytest.mark.parametrize("is_elected", [True, False])
def test_I3_a_forgotten_vote_counts_where_its_candidate_was_elected(how: Fact, is_elected: bool) -> None:
    found: list[Violation] = []
    checker = TermChecker(found.append, counts_by_register=True)
    checker(Fact(1.0, FactKind.VOTE, "a", 1_007, "b"))
    if is_elected:
        checker(Fact(2.0, FactKind.EVENT, "b", 7, Code.ELECTED, 1_007))
    checker(how)
    checker(Fact(4.0, FactKind.VOTE, "a", 1_007, "c"))
    assert [violation.rule for violation in found] == (["I3"] if is_elected else [])
