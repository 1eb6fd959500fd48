"""The simulated operator: it does what the nodes say, and vouches for nobody who lives and remembers."""

from __future__ import annotations

import pytest

from primacy.election.inputs import ChangeMembers, ForceMembers, Init, Input, Rejoin
from primacy.election.model import Ballot, ListRecord, Member, MembersId, Register, Role
from primacy.election.raft.register import first_register
from primacy.sim.trials.operator import Operator
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.trial import BASE, Plan


class Told(Operator):
    """Reads given sentences, and keeps what it would say."""

    def __init__(self, said: dict[str, str], leads: str = "") -> None:
        super().__init__(trial_of(Plan("raft", 3, "lab", 1.0, (), draw=False), 1))
        self.given: list[tuple[str, Input]] = []
        self.trial.world.give = lambda node, given: self.given.append((node.name, given))  # type: ignore[method-assign]
        self.has("n1", Register(MembersId(0, 1), tuple(Member(name) for name in self.trial.names)))
        if leads:
            self.trial.world.nodes[leads].role = Role.LEADER
        self.look(said)

    def has(self, name: str, register: Register) -> None:
        self.trial.world.nodes[name].disk.ballot = Ballot(BASE, 1, "", 1, BASE, 0, (), register=register)

    def look(self, said: dict[str, str]) -> None:
        self.said = said
        self._look()

    def _said(self) -> dict[str, str]:
        return self.said


LOST = "answers from memory, for its own is lost, by {} (gone for good: primacy members remove {})"
TOO_FEW = (
    "an operator: too few remember to elect a leader; on n1: primacy members force --without n2 --without n3, then"
)


def _asked(given: Input) -> list[str]:
    assert isinstance(given, ChangeMembers)
    return [member.id for member in given.members]


def test_of_two_without_memory_one_is_taken_out_and_added_again() -> None:
    told = Told({"n1": "", "n2": LOST.format("n3", "n3"), "n3": LOST.format("n2", "n2")}, leads="n1")
    assert [(name, _asked(given)) for name, given in told.given] == [("n1", ["n1", "n2"])]
    assert told.acts == 1
    left = Register(MembersId(1, 2), tuple(Member(name) for name in ("n1", "n2")))
    told.has("n1", left)
    told.look({"n1": "", "n2": "", "n3": "an operator to add it to the members: primacy members add n3 --addr H:1"})
    assert _asked(told.given[-1][1]) == ["n1", "n2", "n3"]


def test_nobody_is_added_that_was_not_taken_out() -> None:
    told = Told({"n1": "", "n9": "an operator to add it to the members: primacy members add n9 --addr H:1"}, leads="n1")
    assert not told.given


def test_one_that_is_up_and_remembers_is_never_named() -> None:
    assert not Told({"n1": "", "n2": "", "n3": LOST.format("n2", "n2")}, leads="n1").given
    assert not Told({"n1": "votes of a majority", "n2": TOO_FEW, "n3": "votes of a majority"}).given


def test_where_too_few_remember_one_that_does_is_told_to_go_on() -> None:
    told = Told({"n1": "votes of a majority", "n2": TOO_FEW, "n3": TOO_FEW})
    assert told.given == [("n1", ForceMembers(("n2", "n3")))]


def test_one_that_is_down_for_good_is_named() -> None:
    two = "its new times to be reported by n2, n3 (gone for good: primacy rejoin --without n2 --without n3)"
    assert Told({"n1": two, "n3": ""}).given == [("n1", Rejoin(("n2",)))]


def test_a_first_start_is_said_once_if_all_voters_wait_for_it() -> None:
    init = "the first start of the cluster: primacy init, once, on one node"
    assert not Told({"n1": init, "n2": init, "n3": ""}).given
    ((name, given),) = Told(dict.fromkeys(("n1", "n2", "n3"), init)).given
    assert name == "n1"
    assert isinstance(given, Init)
    assert not given.without


@pytest.mark.later
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("uses", ["12.", "112.", "1122.", "11122.."])
def test_of_two_first_starts_in_use_one_is_given_up(uses: str, seed: int) -> None:
    """n1 and so on have begun with the base of this number; a dot has no memory."""
    trial = trial_of(Plan("raft", len(uses), "lab", 1.0, (), draw=False), seed)
    for name, base in zip(trial.names, uses, strict=True):
        node = trial.world.nodes[name]
        listed = ListRecord(node.membership.hash, node.membership.voters, confirmed=True)
        begun = BASE + int(base.replace(".", "0"))
        register = first_register(node.membership.members)
        used = Ballot(begun, 1, name, node.timing.hold_ms, begun, 0, (listed,), register=register)
        node.disk.ballot = used if base != "." else None
    outcome = trial.run()
    assert not outcome.violations
    assert outcome.rare["ballot removed by an operator"]
    assert outcome.within_bound is not None, "too few remember then, and what the nodes say leads out of it"


@pytest.mark.parametrize("seed", [13, 49, 50])
def test_a_roll_out_that_is_on_its_way_at_the_calm_ends_there(seed: int) -> None:
    """Steps of it that were due later took a node's list away again, and nobody was to blame for what followed."""
    trial = trial_of(Plan("raft", 3, "wan", 1.0, ("relist",), draw=False), seed)
    trial.run()
    assert trial.faults.final is not None
    nodes = [trial.world.nodes[name] for name in trial.faults.names]
    assert {(node.membership, node.timing) for node in nodes} == {trial.faults.final}
