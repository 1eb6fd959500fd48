"""The simulated operator: it does what the nodes say, and vouches for nobody who lives and remembers."""

from __future__ import annotations

import pytest

from primacy.election.inputs import Init, Input, Rejoin
from primacy.election.model import Ballot, ListRecord
from primacy.sim.trials.operator import Operator
from primacy.sim.trials.trial import BASE, Plan, Trial


class Told(Operator):
    """Reads given sentences, and keeps what it would say."""

    def __init__(self, said: dict[str, str]) -> None:
        super().__init__(Trial(Plan("raft", 3, "lab", 1.0, (), draw=False), 1))
        self.said = said
        self.given: list[tuple[str, Input]] = []
        self.trial.world.give = lambda node, given: self.given.append((node.name, given))  # type: ignore[method-assign]
        self._look()

    def _said(self) -> dict[str, str]:
        return self.said


LOST = "answers from memory, for its own is lost, by {} (gone for good: primacy rejoin --without {})"


def test_two_without_memory_vouch_for_each_other() -> None:
    told = Told({"n1": "", "n2": LOST.format("n3", "n3"), "n3": LOST.format("n2", "n2")})
    assert told.given == [("n2", Rejoin(("n3",))), ("n3", Rejoin(("n2",)))]
    assert told.acts == 1


def test_one_that_is_up_and_remembers_is_never_named() -> None:
    assert not Told({"n1": "", "n2": "", "n3": LOST.format("n2", "n2")}).given


def test_one_that_is_down_for_good_is_named() -> None:
    two = "its new list of nodes to be reported by n2, n3 (gone for good: primacy rejoin --without n2 --without n3)"
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
    trial = Trial(Plan("raft", len(uses), "lab", 1.0, (), draw=False), seed)
    for name, base in zip(trial.names, uses, strict=True):
        node = trial.world.nodes[name]
        listed = ListRecord(node.membership.hash, node.membership.voters, confirmed=True)
        begun = BASE + int(base.replace(".", "0"))
        used = Ballot(begun, 1, name, node.timing.hold_ms, begun, 0, (listed,))
        node.disk.ballot = used if base != "." else None
    outcome = trial.run()
    assert not outcome.violations
    assert outcome.rare["ballot removed by an operator"]


@pytest.mark.parametrize("seed", [13, 49, 50])
def test_a_roll_out_that_is_on_its_way_at_the_calm_ends_there(seed: int) -> None:
    """Steps of it that were due later took a node's list away again, and nobody was to blame for what followed."""
    trial = Trial(Plan("raft", 3, "wan", 1.0, ("relist",), draw=False), seed)
    trial.run()
    assert trial.faults.final is not None
    nodes = [trial.world.nodes[name] for name in trial.faults.names]
    assert {(node.membership, node.timing) for node in nodes} == {trial.faults.final}
