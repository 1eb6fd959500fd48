"""Strategies of a user's own: what they must have, what they may promise, and who judges them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from examples.rendezvous import Rendezvous

from primacy.agent.assemble import promised, refuse, refuse_node
from primacy.agent.owned import own_of
from primacy.control import NodeStatus
from primacy.control.document import acts_as_leader
from primacy.control.requests import order_of
from primacy.election.effects import Effect, Persist, Record, Send, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    DeadlinePassed,
    Health,
    Pause,
    PersistFailed,
    Received,
    Resume,
    RunLock,
    Shutdown,
    Started,
    StepDown,
    WorkGone,
    WorkStarted,
)
from primacy.election.messages import Origin, Own
from primacy.election.model import Membership, Role, Seat
from primacy.election.own import HEARD_HEARTBEATS, REST_HEARTBEATS, Plugged
from primacy.errors import PrimacyError, Refused, UsageError
from primacy.node.ballot import Memory
from primacy.settings import of_mapping
from primacy.settings.timing import RANK_PROFILES
from primacy.sim.trials.batch import run_or_raised
from primacy.sim.trials.trial import Plan
from primacy.strategies import own_strategy, promise_of
from primacy.supervise.vocabulary import State
from primacy.supervise.workload import WorkloadView
from tests.contracts.test_cli import Said, say  # noqa: F401

pytestmark = pytest.mark.coverage

Say = Callable[..., Said]
EXAMPLE = "examples.rendezvous:Rendezvous"
TIMING = RANK_PROFILES["lan"]
TRIALS = 40


def seat_of(node: str = "a", *others: str) -> Seat:
    return Seat(node, 7, Membership.of((node, *others), "list"), Random(1))


def alone() -> Rendezvous:
    """The only node of its list, which therefore leads as soon as it may."""
    made = Rendezvous(seat_of(), TIMING)
    assert kinds(made.step(0, Started(1_000))) == [Persist, Record]
    assert kinds(made.step(TIMING.heartbeat_ms, DeadlinePassed())) == []
    assert kinds(made.step(2 * TIMING.heartbeat_ms, DeadlinePassed())) == [Record, Start]
    assert made.view(600).role is Role.LEADER
    return made


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


# --- what it must have ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("tests.nowhere:X", "No module named 'tests.nowhere'"),
        ("tests.support.own_strategies:Missing", "tests.support.own_strategies has no Missing"),
        ("tests.support.own_strategies:NOT_A_CLASS", "it is no class"),
        ("tests.support.own_strategies:Mute", "it does not say what it promises: guarantees ="),
        ("tests.support.own_strategies:Two", "it promises at most one, and one per island"),
        ("tests.support.own_strategies:Unfinished", "it leaves out a method of its base: woke"),
        ("pathlib:Path", "it has no method step and no view"),
    ],
)
def test_what_is_no_strategy_is_refused_with_what_it_lacks(name: str, wrong: str) -> None:
    with pytest.raises(UsageError) as caught:
        own_strategy(name)
    assert wrong in str(caught.value)
    assert f"election.strategy = {name}" in str(caught.value)


def test_a_module_that_raises_is_named_with_what_it_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is found in the folder of the settings, after all that is installed."""
    (tmp_path / "broken_strategy.py").write_text("1 / 0\n")
    monkeypatch.setattr("sys.path", ["/nowhere"])
    with pytest.raises(UsageError, match="broken_strategy raises ZeroDivisionError: division by zero"):
        own_strategy("broken_strategy:X", str(tmp_path))


def test_the_example_is_short() -> None:
    text = (Path(__file__).parents[2] / "examples" / "rendezvous.py").read_text()
    assert len(text.splitlines()) < 60


# --- what it may promise ----------------------------------------------------------------------------------------------


def test_what_it_promises_decides_whether_run_accepts_it() -> None:
    modest = of_mapping({"election": {"strategy": EXAMPLE}})
    with pytest.raises(UsageError, match="does not promise at most one"):
        refuse(modest, allow_split_brain=False)
    refuse(modest, allow_split_brain=True)
    refuse_node(modest)
    bold = of_mapping({"election": {"strategy": "tests.support.own_strategies:Boastful"}})
    refuse(bold, allow_split_brain=False)
    assert promised(bold).at_most_one
    assert not promise_of(EXAMPLE).at_most_one


def test_a_list_that_grows_by_joining_is_not_for_it() -> None:
    joins = of_mapping({"cluster": {"manager": {"addr": "localhost:1"}}, "election": {"strategy": EXAMPLE}}, "a")
    with pytest.raises(UsageError, match="a strategy of your own needs a fixed list"):
        refuse_node(joins)


@pytest.mark.later
def test_the_simulator_finds_the_example_to_keep_what_it_promises() -> None:
    found = [run_or_raised(Plan(EXAMPLE, 4), seed).violations for seed in range(TRIALS)]
    assert found == [[]] * TRIALS


@pytest.mark.parametrize(
    ("name", "rule"),
    [("Boastful", "I1"), ("Raising", "raised"), ("Deaf", "P1")],
)
def test_the_simulator_finds_one_that_does_not(name: str, rule: str) -> None:
    """Who promises at most one is judged as raft is; who promises less is not, but must still end with one leader."""
    plan = Plan(f"tests.support.own_strategies:{name}", 3)
    broken = {violation.rule for seed in range(8) for violation in run_or_raised(plan, seed).violations}
    assert rule in broken
    if rule == "P1":
        assert "I1" not in broken


def test_simulate_takes_it_by_name(say: Say) -> None:  # noqa: F811
    fine = say("simulate", "--strategy", EXAMPLE, "--seeds", "2", "--jobs", "1", "--nodes", "3")
    assert fine.code == 0, fine.out
    assert f"{EXAMPLE}, 3 nodes" in fine.out
    bad = say(
        "simulate", "--strategy", "tests.support.own_strategies:Boastful", "--seeds", "6", "--jobs", "1", "--no-shrink"
    )
    assert bad.code == 1
    assert "I1" in bad.out
    assert say("simulate", "--strategy", "tests.nowhere:X").code == 2
    page = say("simulate", "--strategy", EXAMPLE, "--seed", "1", "--nodes", "3", "--trace", "page.html")
    assert page.code == 0, page.err


def test_contract_does_not_speak_for_it(say: Say, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "f.yaml").write_text(f"election: {{strategy: '{EXAMPLE}'}}\n")
    said = say("contract", "--config", "f.yaml")
    assert said.code == 2
    assert "is your own, and so is what its times promise" in said.err
    assert say("check", "f.yaml").code == 0


def test_init_and_rejoin_are_about_ballots_of_raft() -> None:
    node_status = NodeStatus(
        settings=of_mapping({"election": {"strategy": EXAMPLE}}),
        node="a",
        view=alone().view(600),
        workload=WorkloadView("none", State.RUNNING),
        heard_ms={},
        counters={},
        now_ms=600,
        wall_ms=0,
        ending=False,
    )
    for name in ("init", "rejoin"):
        with pytest.raises(Refused, match=f"{name} is about the ballots of raft"):
            order_of(name, {}, node_status)
    assert acts_as_leader(node_status._replace(at_most_one=False)), "where nothing is held, no hold is asked for"
    assert not acts_as_leader(node_status)


# --- what the base sees to --------------------------------------------------------------------------------------------


def test_it_leads_once_and_leaves_in_order() -> None:
    """Told to pause: stop, confirmed gone, and only then no leader any more; resumed, it leads anew in a new term."""
    made = alone()
    assert made.step(600, DeadlinePassed()) == [], "it leads still: nothing is started twice"
    effects = made.step(700, Pause())
    assert [effect.planned for effect in effects if isinstance(effect, Stop)] == [True]
    assert made.step(710, Pause()) == []
    assert made.view(720).role is Role.LEADER, "the role is kept until its work is gone"
    made.step(730, WorkGone(1))
    view = made.view(740)
    assert (view.role, view.leader, view.waits_for) == (Role.PAUSED, "", "an operator: primacy resume")
    started = [effect for effect in made.step(800, Resume()) if isinstance(effect, Start)]
    assert [start.leadership.term for start in started] == [2]


def test_whoever_is_ill_stopped_or_stepped_down_does_not_lead() -> None:
    made = alone()
    assert Stop in kinds(made.step(600, Health(False, "disk full")))
    made.step(610, WorkGone(1))
    assert made.view(620).waits_for == "its health probe to pass (disk full)"
    assert Start in kinds(made.step(700, Health(True)))
    made.step(800, StepDown())
    made.step(810, WorkGone(2))
    assert Start not in kinds(made.step(850, DeadlinePassed())), "the others go first"
    rested_ms = 800 + REST_HEARTBEATS * TIMING.heartbeat_ms
    assert Start in kinds(made.step(rested_ms, DeadlinePassed()))
    assert Stop in kinds(made.step(rested_ms + 1, Shutdown()))
    assert kinds(made.step(rested_ms + 2, WorkGone(3))) == [Record]
    assert made.step(rested_ms + 300, DeadlinePassed()) == []


def test_old_work_that_still_ends_is_waited_for() -> None:
    made = Rendezvous(seat_of(), TIMING)
    made.step(0, Started(1_000, lock_held=True))
    made.step(500, DeadlinePassed())
    assert made.view(500).waits_for == "the run lock: its old work is not confirmed gone"
    assert Start in kinds(made.step(600, RunLock(False)))


def test_what_an_earlier_start_said_and_what_was_overtaken_is_not_news() -> None:
    made = Rendezvous(seat_of("a", "b"), TIMING)
    made.step(0, Started(1_000))

    def hear(incarnation: int, number: int, able: int, node: str = "b", config: str = "list") -> None:
        made.step(10, Received(Own(Origin(node, incarnation, 9, config), number, "here", (able,))))

    hear(5, 2, 1)
    hear(5, 1, 0)
    hear(4, 9, 0)
    assert made.told["b"].numbers == (1,)
    hear(6, 1, 0)
    assert made.told["b"].numbers == (0,)
    hear(9, 9, 1, config="another list")
    hear(9, 9, 1, node="c")
    assert made.told["b"].numbers == (0,)
    assert set(made.heard_ms) == {"b"}
    assert made.alive(10 + HEARD_HEARTBEATS * TIMING.heartbeat_ms) == ("a", "b")
    assert made.alive(11 + HEARD_HEARTBEATS * TIMING.heartbeat_ms) == ("a",)


def test_a_start_is_counted_durably_before_anything_is_said() -> None:
    """So that its own late words of before are known for old; a disk that fails is tried again."""
    made = Rendezvous(seat_of("a", "b"), TIMING)
    first = made.step(0, Started(1_000))
    assert kinds(first)[0] is Persist
    assert Send in kinds(first)
    assert kinds(made.step(5, PersistFailed("full")))[:1] == [Persist]
    kept = next(effect.ballot for effect in first if isinstance(effect, Persist))
    again = Rendezvous(seat_of("a", "b"), TIMING, kept)
    ballot = next(effect.ballot for effect in again.step(0, Started(3)) if isinstance(effect, Persist))
    assert ballot.incarnation == kept.incarnation + 1 == 1_001, "although the clock was set back"


def test_a_message_in_the_millisecond_of_a_heartbeat_does_not_swallow_it() -> None:
    made = Rendezvous(seat_of("a", "b"), TIMING)
    made.step(0, Started(1_000))
    due_ms = made.deadline_ms
    assert due_ms is not None
    made.step(due_ms, Received(Own(Origin("b", 1, 9, "list"), 1, "here", (1,))))
    assert made.deadline_ms == due_ms
    assert Send in kinds(made.step(due_ms, DeadlinePassed()))


# --- as the agent drives it -------------------------------------------------------------------------------------------


def test_the_end_of_a_node_ends_its_work_whatever_the_strategy_thinks() -> None:
    class Stubborn(Rendezvous):
        def _stand_back(self, code: Code, detail: str, successor: str = "") -> list[Effect]:
            return []

    seat = seat_of()
    plugged = Plugged(Stubborn(seat, TIMING), seat, 0)
    for at_ms, given in ((0, Started(1)), (250, DeadlinePassed()), (500, DeadlinePassed())):
        plugged.step(at_ms, given)
    assert plugged.role is Role.LEADER
    assert [effect.term for effect in plugged.step(600, Shutdown()) if isinstance(effect, Stop)] == [1]


def test_what_it_raises_is_its_own_fault_and_said_so() -> None:
    settings = of_mapping({"election": {"strategy": "tests.support.own_strategies:Raising"}})
    plugged = own_of(settings, seat_of(), Memory(None, ""), 0, 0)
    with pytest.raises(PrimacyError, match=r"the strategy tests.support.own_strategies:Raising raised IndexError: .*"):
        plugged.step(0, Started(1))


def test_T2_a_token_that_does_not_grow_never_leads() -> None:
    """Over restarts, and whatever the strategy before it was; kept before the start that it belongs to."""
    settings = of_mapping({"election": {"strategy": "tests.support.own_strategies:Boastful"}})
    times = ((0, Started(1)), (250, DeadlinePassed()), (500, DeadlinePassed()))
    first = own_of(settings, seat_of(), Memory(None, ""), 0, 0)
    effects = [effect for at_ms, given in times for effect in first.step(at_ms, given)]
    kept = [effect.ballot for effect in effects if isinstance(effect, Persist)]
    assert [ballot.token_max for ballot in kept] == [0, 1]
    assert kinds(effects)[-2:] == [Persist, Start]
    for memory, known in ((Memory(kept[-1], ""), 0), (Memory(None, ""), 17)):
        again = own_of(settings, seat_of(), memory, known, 0)
        for at_ms, given in times[:2]:
            again.step(at_ms, given)
        with pytest.raises(PrimacyError, match=r"leads with token 1, and (1|17) was seen in this election"):
            again.step(*times[2])


def test_a_start_whose_token_could_not_be_kept_is_no_leadership() -> None:
    made = alone()
    assert kinds(made.step(600, PersistFailed("full"))) == [Persist, Record]
    assert made.view(600).role is not Role.LEADER
    assert Start in kinds(made.step(750, DeadlinePassed())), "tried again"
    made.step(760, WorkStarted(2))
    made.step(770, PersistFailed("full"))
    assert made.view(780).role is Role.LEADER, "what runs is not given up for a count of starts"
