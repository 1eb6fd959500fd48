"""Schedules of rules R (`members_schedules.py`): each is refused, and comes to something wrong without its rule.

Without the second half a schedule would show nothing.
"""

from __future__ import annotations

import pytest

from primacy.election.inputs import ChangeMembers
from primacy.election.raft.strategy import RaftStrategy
from tests.support.members_harness import Cluster, P, members
from tests.support.members_schedules import SCHEDULES
from tests.support.mutants_members import MUTANTS, SCHEDULED, Mutant, recorded

pytestmark = pytest.mark.coverage

PARTS: dict[str, tuple[str, ...]] = {
    "R1": (
        *("durable before a message names it", "an older one never wins", "a leader takes none but its own"),
        "who takes one gives up its candidacy",
    ),
    "R2": ("a majority of the voters", "observers never count", "of those before as well", "of both halves"),
    "R3": ("no vote for an older register",),
    "R4": ("the winner's term",),
    "R5": (
        *("acked, in its term, before the next", "by a heartbeat that carried it", "to have stored it is no proof"),
        "only the writer takes back unproved",
    ),
    "R6": ("voters change in two steps",),
    "R7": ("new voters are there first",),
    "R8": ("admitted as observer", "never as voter", "proved after the question", "the nonce is echoed"),
    "R9": (
        *("a voter without memory asks", "every voter of every register told of", "all have answered"),
        *("the term is closed", "not the only voter of a half"),
    ),
    "R13": ("the lock suffices for the first register only",),
    "R14": (
        *("silent as after a start", "a term that nobody can have voted in", "the voters before count on"),
        "nothing that was never used",
    ),
}
"""What of each rule can be taken out, by itself: all that carries safety, and the liveness of R4 and R7."""


def refused(name: str) -> bool:
    return SCHEDULES[name](RaftStrategy) == ""


def test_R1_S0_a_vote_for_an_older_register_elects_nobody_under_the_newer_one() -> None:
    assert refused("S0")


def test_R1_S8_a_leader_does_not_go_on_with_what_another_one_left_half_done() -> None:
    assert refused("S8")


def test_R2_S9_observers_elect_nobody() -> None:
    assert refused("S9")


def test_R4_S14_what_a_leader_left_half_done_gives_way() -> None:
    assert refused("S14")


def test_R5_S3_a_joint_register_of_another_leader_is_not_taken_back_unproved() -> None:
    assert refused("S3")


def test_R5_S10_what_was_proved_before_proves_nothing_of_the_next_register() -> None:
    assert refused("S10")


def test_R5_S11_who_stored_a_register_and_is_a_term_ahead_proves_nothing() -> None:
    assert refused("S11")


def test_R6_S1_the_voters_before_must_have_stored_the_step() -> None:
    assert refused("S1")


def test_R8_S4_a_deposed_leader_admits_nobody() -> None:
    assert refused("S4")


def test_R8_S5_an_answer_to_an_earlier_boot_is_not_taken() -> None:
    assert refused("S5")


def test_R8_S6_a_voter_is_not_admitted() -> None:
    assert refused("S6")


def test_R9_S2_nobody_else_knows_what_a_node_did_alone() -> None:
    assert refused("S2")


def test_R9_S12_the_answers_of_a_majority_are_not_enough() -> None:
    assert refused("S12")


def test_R9_S13_who_is_told_of_is_asked_too() -> None:
    assert refused("S13")


def test_R13_S7_a_free_run_lock_is_no_proof_once_the_members_have_changed() -> None:
    assert refused("S7")


def test_R14_S15_who_was_told_to_go_on_without_others_is_silent_first() -> None:
    assert refused("S15")


def test_R14_S16_a_forced_register_has_an_id_of_its_own() -> None:
    assert refused("S16")


def test_R14_S17_a_forced_register_keeps_the_voters_before_of_a_change() -> None:
    assert refused("S17")


def test_R14_S18_a_first_ballot_that_was_never_used_is_not_forced() -> None:
    assert refused("S18")


@pytest.mark.parametrize("mutant", SCHEDULED, ids=lambda mutant: f"{mutant.key}-{mutant.schedule}")
def test_taken_out_the_schedule_comes_to_something_wrong(mutant: Mutant) -> None:
    assert mutant.goes_wrong()


def test_every_part_of_a_rule_has_a_mutant_and_somebody_who_catches_it() -> None:
    """By search, with recorded seeds, or by a schedule: the tests above and those of the recorded seeds show it."""
    parts: dict[str, tuple[str, ...]] = {}
    for mutant in MUTANTS:
        parts[mutant.rule] = (*parts.get(mutant.rule, ()), mutant.asks)
        assert mutant.schedule in SCHEDULES or recorded()[mutant.key], mutant.key
    assert parts == PARTS
    assert {mutant.schedule for mutant in SCHEDULED} == set(SCHEDULES), "each schedule catches a mutant"


def test_R4_the_first_register_too_gives_way_to_none_that_was_left_half_done() -> None:
    """A leader that is cut off has begun a change of the first register; the next one meets it before it is elected."""
    cluster = Cluster("a b c").start()
    first = cluster.lead()
    others = [node for node in cluster.nodes.values() if node is not first]
    cluster.split(first.name, " ".join(node.name for node in others))
    first.give(ChangeMembers(members("a b c:2"), "root@a", 0))
    cluster.until(lambda: first.register.id.version == 2)
    cluster.until(lambda: not first.leads)
    cluster.cut.clear()
    cluster.loses = lambda sent: sent.to == first.name  # it is heard, but hears nobody yet
    cluster.until(lambda: any(node.leads for node in others))
    cluster.loses = lambda sent: False
    cluster.run(4 * P)
    registers = {node.register.id for node in cluster.nodes.values()}
    assert len(registers) == 1, registers
