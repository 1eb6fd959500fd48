"""The membership machine with the real machines of bully and ring: joins, loss, crashes, splits and removals.

Each mutant is a machine with one planted defect; the checkers must notice it, else they show nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from primacy.membership.http_wire import Asked, Reply, Said, texts_in
from primacy.membership.machine import MembershipMachine
from primacy.membership.members import Entry
from primacy.sim.membership.trial import Trial

STRATEGIES = ["bully", "ring"]
TRIALS = 20 if os.environ.get("PRIMACY_SIZE") == "quick" else 150
PART = 10


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("first", range(0, TRIALS, PART))
def test_when_the_faults_are_over_all_list_each_other_and_one_leads(strategy: str, first: int) -> None:
    for seed in range(first, first + PART):
        assert not Trial(seed, strategy).run().violations, seed


def test_one_seed_is_one_history() -> None:
    assert Trial(3, "bully").run() == Trial(3, "bully").run()


# --- planted defects --------------------------------------------------------------------------------------------------


def joins_not_spread(machine: MembershipMachine) -> None:
    """A join is not told on, and lists are not compared. Either alone is made good by the other."""
    machine.joining.tell_on = lambda entry, known: None  # type: ignore[method-assign]
    machine.joining._fetch_soon = lambda node: None  # type: ignore[method-assign]


def start_of_removed_forgotten(machine: MembershipMachine) -> None:
    """Any join brings a removed node back, not only one of a later start."""
    member_list = machine.state.member_list
    take = member_list.take

    def take_less(entry: Entry) -> bool:
        return take(entry._replace(started_ms=0) if entry.gone else entry)

    member_list.take = take_less  # type: ignore[method-assign]


def old_list_believed(machine: MembershipMachine) -> None:
    """The list of a node that was joined brings back whom it has not heard to be removed."""
    take_over = machine.joining._take_over

    async def believe(listed: Any, **_: bool) -> None:
        await take_over(listed, is_ours=False)

    machine.joining._take_over = believe  # type: ignore[method-assign]


def answers_not_heard(machine: MembershipMachine) -> None:
    """The election does not hear what the answer to a call means."""
    machine.state.hear = lambda message: None  # type: ignore[method-assign]


def joins_passed_on(machine: MembershipMachine) -> None:
    """Every join is told on by whoever hears it, known or not, as real nodes of Ghoti do."""
    handlers, join = machine.handlers, machine.handlers._join

    async def echo(asked: Asked, said: Said, wall_ms: int) -> Reply:
        reply = await join(asked, said, wall_ms)
        known = machine.state.member_list.entries.get((texts_in(asked.body) or {}).get("id", ""))
        if known is not None:
            machine.joining.tell_on(known, None)
        return reply

    handlers._join = echo  # type: ignore[method-assign]


MUTANTS: dict[str, tuple[Callable[[MembershipMachine], None], str, str, int]] = {
    "joins not spread": (joins_not_spread, "N1", "bully", 0),
    "start of removed forgotten": (start_of_removed_forgotten, "N2", "bully", 87),
    "old list believed": (old_list_believed, "N2", "ring", 346),
    "answers not heard": (answers_not_heard, "N3", "bully", 0),
    "joins passed on": (joins_passed_on, "E2", "bully", 0),
}


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_planted_defect_is_noticed(name: str) -> None:
    plant, rule, strategy, seed = MUTANTS[name]

    def machine(*made_of: Any) -> MembershipMachine:
        made = MembershipMachine(*made_of)
        plant(made)
        return made

    assert not Trial(seed, strategy).run().violations
    violations = Trial(seed, strategy, machine).run().violations
    assert [sentence for sentence in violations if sentence.startswith(rule)], violations
