"""The bounded model: no violation in the machines, and planted defects found without being aimed at.

Searched to the end are here the histories with one disturbance. `make proof` searches those with two to the end (raft
on equal and drifting clocks, lease on equal ones) and fails if one is not complete. Other searches end at a number of
states; each says up to how many disturbances it is complete.

`python -m tests.simulation.test_exhaustive` hunts all the defects, the long hunts included, and prints what each took.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from primacy.election.effects import Persist, Record
from primacy.election.inputs import (
    DeadlinePassed,
    GuardLost,
    Input,
    PersistFailed,
    Received,
    RunLock,
    StepDown,
    WorkGone,
    WorkStarted,
)
from primacy.election.lease.strategy import LeaseStrategy
from primacy.election.model import Role
from primacy.election.raft import lead as raft_lead
from primacy.election.raft.lead import Leading
from primacy.election.raft.memory import Remembering
from primacy.election.raft.state import RaftState
from primacy.election.raft.strategy import RaftStrategy
from primacy.sim.model import equal as model_equal
from primacy.sim.model import exhaustive, snapshot
from primacy.sim.model import values as model_values
from primacy.sim.model.exhaustive import Search, SearchBounds, SearchResult, explore, fresh, led
from primacy.sim.model.history import DISTURBANCES
from primacy.sim.model.settings import DRIFTING, LeaseSetting, RaftSetting
from primacy.sim.model.states import BoundedModel
from primacy.sim.model.values import Numbers, Packet
from primacy.sim.model.world import ModelWorld
from primacy.sim.world.engines import POSTGRESQL, REDIS, Engine
from primacy.sim.world.store import SimStore
from tests.support.mutants_lease_store import redis_named_by
from tests.support.mutants_raft import TermReopens

SIZE = os.environ.get("PRIMACY_SIZE", "")
QUICK = SIZE == "quick"
STATES = 20_000 if QUICK else 100_000
HUNT = 3_000_000
"""A defect must be found within so many states."""


# --- the machines as they are -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("clocks", ["equal", "drifting"])
@pytest.mark.parametrize("setting", [RaftSetting, LeaseSetting])
def test_no_order_of_events_within_a_number_of_states_breaks_a_promise(setting, clocks):
    found = explore(setting(clocks), SearchBounds(STATES))
    assert found.wrong == "", "\n".join(found.history_lines)
    assert found.states >= STATES
    assert found.finished >= 0


@pytest.mark.parametrize("setting", [RaftSetting, LeaseSetting])
def test_no_order_of_the_first_election_within_a_number_of_states_breaks_a_promise(setting):
    found = explore(setting(), SearchBounds(STATES // 4, begin="fresh"))
    assert found.wrong == "", "\n".join(found.history_lines)
    assert found.finished >= 0


@pytest.mark.later
@pytest.mark.parametrize("setting", [RaftSetting("drifting"), LeaseSetting("equal")], ids=["raft", "lease"])
def test_everything_with_one_disturbance_was_walked(setting):
    """Raft on equal clocks: below."""
    found = explore(setting, SearchBounds(1_000_000, disturbances=1))
    assert (found.wrong, found.finished) == ("", 1), "\n".join(found.history_lines)


@pytest.mark.later
def test_everything_with_one_disturbance_was_walked_and_leads_to_a_second_term():
    """The bounds are wide enough to matter: successors work, terms end, nodes restart, and every role occurs."""
    model = BoundedModel(RaftSetting())
    beginning = led(model)
    model.until = beginning[-1].state.now + RaftSetting().span
    search = Search(model, 10_000_000)
    assert search.go(beginning, 1).finished == 1
    ledgers = [model.ledgers[state.ledger] for state in search.states]
    assert {ledger.token for ledger in ledgers} == {0, 1_001, 1_002}
    assert {node for ledger in ledgers for term, node in ledger.leaders if term == 2} == {0, 1, 2}
    numbers = model.numbers
    roles = {numbers.machines[node.machine].role for node in numbers.nodes if node.machine >= 0}  # type: ignore[attr-defined]
    assert roles >= {Role.FOLLOWER, Role.CANDIDATE, Role.LEADER}
    assert max(node.boots for node in numbers.nodes) == 2


def test_the_same_walk_twice_is_the_same():
    first, second = (explore(RaftSetting(), SearchBounds(10_000)) for _ in range(2))
    assert first._replace(seconds=0) == second._replace(seconds=0)


def _seen(setting, disturbances: int) -> set[tuple[object, ...]]:
    """What an outsider can tell of every state: ballots, works, roles, and what was ever promised."""
    model = BoundedModel(setting)
    beginning = led(model)
    model.until = beginning[-1].state.now + 8
    search = Search(model, 10_000_000)
    assert search.go(beginning, disturbances).finished == disturbances
    numbers = model.numbers
    views = {number: _view(numbers, node) for number, node in enumerate(numbers.nodes)}
    return {
        (state.now, model.ledgers[state.ledger], *(views[number] for number in state.nodes)) for state in search.states
    }


def _view(numbers, node) -> tuple[object, ...]:
    machine = numbers.machines[node.machine] if node.machine >= 0 else None
    if isinstance(machine, RaftStrategy):
        machine = snapshot.fork(machine)
        model_equal._save_arrived(machine.state)  # whether a save that arrived was found out about, nobody can tell
    return (node.ballot, node.works, node.asleep, machine and machine.view(0)._replace(alive=()))


@pytest.mark.later
@pytest.mark.parametrize("setting", [RaftSetting, LeaseSetting])
def test_what_is_left_out_of_a_state_decides_nothing(setting, monkeypatch):
    """States are compared without the fields in `UNSEEN`; with them there are more states, but nothing more happens."""
    short = _seen(setting(), 1)
    monkeypatch.setattr(snapshot, "UNSEEN", snapshot.FIXED)
    monkeypatch.setattr(model_values, "settle", lambda machine, now_ms: None)
    monkeypatch.setattr(model_values, "will_settle", lambda machine: False)
    assert _seen(setting(), 1) == short


# --- machines that are one state --------------------------------------------------------------------------------------


Given = tuple[Input, ...]
"""One input, or one and the word that its save failed."""


class Unsettled(Numbers):
    """Numbers every machine as it is, and keeps the moments at which it was."""

    def __init__(self, setting) -> None:
        super().__init__(setting)
        self.moments: dict[int, set[int]] = {}

    def machine(self, machine, now_ms):
        number = super().machine(machine, now_ms)
        self.moments.setdefault(number, set()).add(now_ms)
        return number


def _unsettled(disturbances: int, span: int, monkeypatch) -> Unsettled:
    """All machines of a search in which none was settled."""
    with monkeypatch.context() as patched:
        patched.setattr(model_values, "settle", lambda machine, now_ms: None)
        patched.setattr(model_values, "will_settle", lambda machine: False)
        world = ModelWorld(RaftSetting())
        numbers = world.numbers = Unsettled(RaftSetting())
        model = BoundedModel(RaftSetting(), world)
        beginning = led(model)
        model.until = beginning[-1].state.now + span
        assert Search(model, 10_000_000).go(beginning, disturbances).finished == disturbances
    return numbers


def _merged(numbers: Unsettled, settle) -> list[tuple[int, list[RaftStrategy]]]:
    """(moment, machines): of those that are one state at that moment after `settle`. Also of a heartbeat or two
    later."""
    found: dict[object, list[RaftStrategy]] = {}
    moments: dict[object, int] = {}
    for number, machine in enumerate(numbers.machines):
        for now_ms in {at_ms + later_ms for at_ms in numbers.moments[number] for later_ms in (0, 1, 2)}:
            settled = snapshot.fork(machine)
            settle(settled, now_ms)
            key = (now_ms, snapshot.frozen(settled))
            found.setdefault(key, [settled]).append(machine)  # type: ignore[list-item]
            moments[key] = now_ms
    return [(moments[key], machines) for key, machines in found.items()]


def _inputs(numbers: Unsettled) -> dict[str, list[Given]]:
    """What was ever said to each node in the search, and what a node may be told by itself."""
    by_itself: list[Input] = [DeadlinePassed(), StepDown(), RunLock(False), RunLock(True)]
    for term in (1, 2):
        by_itself += [WorkStarted(term), WorkGone(term), WorkGone(term, True), GuardLost(term)]
    said: dict[str, list[Given]] = {}
    for place, name in enumerate(RaftSetting.names):
        heard = [Received(i.message) for i in numbers.items if isinstance(i, Packet) and i.to == place]
        said[name] = [(given,) for given in (*by_itself, *heard)]
        said[name] += [(given, PersistFailed("full")) for given in heard]
    return said


def _after(machine: RaftStrategy, now_ms: int, given: Given, settle) -> tuple[object, object]:
    """What it does, and what it is then, as far as anybody can tell."""
    copy = snapshot.fork(machine)
    done: list[object] = []
    for one in given:
        if not isinstance(one, PersistFailed) or any(isinstance(effect, Persist) for effect in done):
            done += [effect for effect in copy.step(now_ms, one) if not isinstance(effect, Record)]
    settle(copy, now_ms)
    return done, snapshot.frozen(copy)


def _differences(numbers: Unsettled, settle, every: int) -> Iterator[str]:
    """Merged machines that do not do the same, or are not merged afterwards; of all comparisons every so many."""
    said = _inputs(numbers)
    compared = 0
    for now_ms, (first, *others) in _merged(numbers, settle):
        odd = [other for other in others if snapshot.frozen(other) != snapshot.frozen(first)]
        for given in said[first.node] if odd else []:
            compared += 1
            if compared % every:
                continue
            wanted = _after(first, now_ms, given, settle)
            yield from (f"{now_ms}: {given}" for other in odd if _after(other, now_ms, given, settle) != wanted)
    assert compared > 10_000


@pytest.mark.later
def test_machines_that_are_merged_do_the_same_and_stay_merged(monkeypatch):
    numbers = _unsettled(1, 5 if QUICK else 7, monkeypatch)
    assert list(_differences(numbers, model_equal.settle, {"quick": 41, "proof": 5}.get(SIZE, 41))) == []


def _without_refusals(machine, now_ms):
    model_equal.settle(machine, now_ms)
    machine.state.peers.refused = {}


def _without_numbers(machine, now_ms):
    model_equal.settle(machine, now_ms)
    machine.state.promise.acked_number = 0


def _without_departures(machine, now_ms):
    model_equal.settle(machine, now_ms)
    if machine.state.leader_state is not None:
        progress = machine.state.leader_state.progress
        progress.departures = dict.fromkeys(progress.departures, 0)


@pytest.mark.later
@pytest.mark.parametrize("too_much", [_without_refusals, _without_numbers, _without_departures])
def test_machines_that_must_not_be_merged_are_noticed(too_much, monkeypatch):
    assert next(_differences(_unsettled(1, 5, monkeypatch), too_much, 1), None) is not None


def test_a_fork_leaves_its_original_alone():
    model = BoundedModel(RaftSetting())
    machine = model.numbers.machines[model.numbers.nodes[model.first.nodes[0]].machine]
    before = snapshot.frozen(machine)
    copy = snapshot.fork(machine)
    assert snapshot.frozen(copy) == before
    copy.heard["b"] = 1  # type: ignore[attr-defined]
    copy.state.recovery.reports["b"] = None  # type: ignore[attr-defined]
    copy.state.promise.released_term = 7  # type: ignore[attr-defined]
    assert snapshot.frozen(machine) == before
    assert machine.heard == {}  # type: ignore[attr-defined]
    assert snapshot.frozen(copy) != before


# --- planted defects --------------------------------------------------------------------------------------------------


class VoteForgotten(RaftStrategy):
    """Q1: the vote is not in the ballot that is saved."""

    def _with_persist(self, effects):
        effects = super()._with_persist(effects)
        return [Persist(e.ballot._replace(voted_for="")) if isinstance(e, Persist) else e for e in effects]


class CountFromAck(RaftStrategy):
    """Q3: the hold counts from the ack instead of from before the heartbeat left."""

    class leading_class(Leading):
        def prove(self, now_ms, leader):
            leader.progress.departures[self.proved_number(leader)] = now_ms
            return super().prove(now_ms, leader)


class NoSilence(RaftStrategy):
    """Q4 and Q5: a restarted voter neither keeps silent nor reports an age."""

    class remembering_class(Remembering):
        def ballot_read(self, now_ms):
            effects = super().ballot_read(now_ms)
            self.state.promise.newest_at_ms = None
            return effects


class NoPromise(RaftStrategy):
    """Q4 off. Still safe, because of Q5: the base on which defects of Q5 show."""

    class state_class(RaftState):
        def promise_left(self, now_ms):
            return 0


class NoStartDelay(NoPromise):
    """Q5: the winner does not wait for older holds."""

    class leading_class(Leading):
        def start_at(self, now_ms, ages):
            return now_ms


class NoDriftRatio(NoPromise):
    """Q5: the wait is not stretched by the drift ratio."""

    def __init__(self, seat, timing, ballot, options=None):
        super().__init__(seat, timing._replace(drift_ppm=0), ballot, options)


class EarlyRelease(ModelWorld):
    """G5: the guard releases when it is told to, before the work is gone."""

    def ordered(self, node, work):
        return self.release_items(node, work) if work.ran else []


class TakeWithoutSeq(SimStore):
    """L1: a take compares the token alone."""

    compared = ("token",)


class AnchorAtRequest(LeaseStrategy):
    """L3: the observation counts from before the look left."""

    def _anchor_ms(self, asked_ms, now_ms):
        return asked_ms


class WaitUnstretched(LeaseStrategy):
    """L3: the wait is the hold, without the drift ratio."""

    def _wait_ms(self, sight):
        return self.timing.hold_ms


class NoMark(SimStore):
    """L5: nothing tells a row that a dump brought back from the one that was written."""

    def _mark(self, name, at):
        return ""

    def _vouches(self, stored, name, at, version):
        return True


@dataclass(frozen=True)
class Defect:
    """What is taken out, where it is looked for, and what it must break."""

    name: str
    breaks: str
    disturbances: int
    """How many it needs at least; the search finds a shortest history."""
    machine: type | None = None
    clocks: str = "equal"
    world: type[ModelWorld] | None = None
    store: type[SimStore] | None = None
    lease: bool = False
    engine: Engine = POSTGRESQL
    size: str = "quick"
    """The smallest size of test in which it is looked for."""

    def hunt(self) -> SearchResult:
        setting = LeaseSetting(self.clocks, engine=self.engine) if self.lease else RaftSetting(self.clocks)
        if self.machine is not None:
            setting.machine = self.machine
        if self.store is not None:
            setting.store = self.store
        return explore(setting, SearchBounds(HUNT), self.world(setting) if self.world is not None else None)


DEFECTS = (
    Defect("raft: vote not kept", "I7", 0, VoteForgotten),
    Defect("raft: term reopens", "I4", 1, TermReopens),
    Defect("raft: no start delay, promise off", "I1", 1, NoStartDelay),
    Defect("raft: no drift ratio, promise off", "I1", 2, NoDriftRatio, clocks="drifting", size="proof"),
    Defect("raft: release before the work is gone", "I1", 2, world=EarlyRelease, size="proof"),
    Defect("raft: hold counted from the ack", "I1", 2, CountFromAck, size="proof"),
    Defect("raft: restarted voter without silence and age", "I1", 2, NoSilence, size="proof"),
    Defect("lease: take without seq", "I1", 1, store=TakeWithoutSeq, lease=True),
    Defect("lease: wait not stretched", "I1", 1, WaitUnstretched, clocks="drifting", lease=True),
    Defect("lease: release before the work is gone", "I1", 1, world=EarlyRelease, lease=True),
    Defect("lease: no mark", "I1", 2, store=NoMark, lease=True, size="proof"),
    Defect(
        "lease: Redis without master_replid",
        "I1",
        2,
        store=redis_named_by("run_id"),
        lease=True,
        engine=REDIS,
        size="proof",
    ),
    Defect("lease: observation anchored at the request", "I1", 2, AnchorAtRequest, lease=True, size="proof"),
)
IN_SIZE = ("quick", "proof") if os.environ.get("PRIMACY_SIZE") == "proof" else ("quick",)
"""Which hunts this run does; the longest ones belong to `make proof`."""
ASLEEP_FIRST = 2
"""The beginning stops two agents for a while; that is no disturbance."""


def disturbances(found: SearchResult) -> int:
    return sum(event[0] in DISTURBANCES for event in found.history) - ASLEEP_FIRST


@pytest.mark.parametrize("defect", [d for d in DEFECTS if d.size in IN_SIZE], ids=lambda defect: defect.name)
def test_finds_a_planted_defect_by_itself(defect, monkeypatch):
    """Here all clocks tick together, so a wait needs no tick more; a second one would hide the defect of one unit."""
    monkeypatch.setattr(raft_lead, "TICK_MS", 1)
    found = defect.hunt()
    assert found.wrong.startswith(defect.breaks), found
    assert disturbances(found) == defect.disturbances
    assert found.finished == defect.disturbances - 1
    assert found.history_lines


@pytest.mark.later
def test_without_the_promise_the_start_delay_still_keeps_works_apart():
    """So the defects of Q5 above are theirs, not the base's."""
    for clocks in ("equal", "drifting"):
        assert explore(RaftSetting(clocks, NoPromise), SearchBounds(STATES)).wrong == ""


class FineSetting(RaftSetting):
    """Clocks of four and eight units per millisecond that do not tick together."""

    phases = (0, 2, 3)

    def __init__(self) -> None:
        super().__init__("drifting")
        self.timing = DRIFTING._replace(
            term_at_ms=2, kill_at_ms=3, deadman_at_ms=4, hold_ms=5, promise_ms=10, spread_ms=2
        )
        self.periods = (8, 4, 4)


class OneQuestionLate(BoundedModel):
    """Of all disturbances these: a and b are cut from each other, a is stopped later, questions of b are late."""

    def disturb(self, state):
        for after in super().disturb(state):
            match after.event:
                case ("cut", "a and b are cut from each other") if state.now < self.until - 56:
                    yield after
                case ("asleep", 0) if self.until - 46 < state.now < self.until - 40:
                    yield after
                case ("hold", item) if "VoteRequest" in repr(self.numbers.items[item]):
                    yield after


@pytest.mark.later
@pytest.mark.parametrize(("tick_ms", "overlaps"), [(1, True), (2, False)])
def test_two_clocks_are_read_in_whole_milliseconds(tick_ms, overlaps, monkeypatch):
    """Q5: a voter's age and the winner's wait are each up to a millisecond short, so the delay must cover two."""
    monkeypatch.setattr(raft_lead, "TICK_MS", tick_ms)
    model = OneQuestionLate(FineSetting())
    beginning = led(model)
    model.until = beginning[-1].state.now + 58
    found = Search(model, HUNT).go(beginning, 3)
    assert found.finished == (2 if overlaps else 3)
    assert found.wrong == ("I1: work 1002 of b started beside work 1001 of a" if overlaps else "")


# --- what a person sees -----------------------------------------------------------------------------------------------


def test_a_violation_is_told_as_a_story():
    bounds = SearchBounds(HUNT)
    found = explore(RaftSetting("equal", TermReopens), bounds)
    told = exhaustive.report("raft", "equal", bounds, found)
    assert "violations                   1" in told
    assert told[-1] == "     VIOLATION I4: work 1001 of a started after work 1001"
    assert any(line.endswith("! a is asked to step down") for line in told)
    assert any("a's work of term 1 is gone" in line for line in told)


@pytest.mark.later
@pytest.mark.parametrize(("setting", "machine"), [(RaftSetting, NoSilence), (LeaseSetting, LeaseStrategy)])
def test_every_event_can_be_told(setting, machine):
    model = BoundedModel(setting("equal", machine))
    beginning = fresh(model) if setting is LeaseSetting else led(model)
    model.until = beginning[-1].state.now + 12
    search = Search(model, 60_000)
    search.go(beginning, 2)
    told = [exhaustive.history_lines(model, (event,)) for event in search._known]  # type: ignore[attr-defined]
    assert all(len(lines) == 1 and "(" not in lines[0][:8] for lines in told if lines)


def test_the_command_prints_its_counts(capsys):
    assert exhaustive.main(["--strategy", "raft", "--states", "5000"]) == 0
    out = capsys.readouterr().out
    assert "distinct states" in out
    assert "violations                   0" in out


@pytest.mark.later
def test_the_command_fails_where_a_walk_is_not_complete(capsys):
    assert exhaustive.main(["--states", "200000", "--disturbances", "1", "--complete", "1"]) == 0
    assert "complete for every history with up to 1 disturbance" in capsys.readouterr().out
    assert exhaustive.main(["--states", "5000", "--disturbances", "1", "--complete", "1"]) == 1
    assert "NOT COMPLETE for 1 disturbance" in capsys.readouterr().out


NONSENSE = (["--strategy", "ring"], ["--states", "0"], ["--disturbances", "-1"], ["--complete", "4"])


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_nonsense_is_refused(nonsense, capsys):
    with pytest.raises(SystemExit) as wrong:
        exhaustive.main(nonsense)
    assert wrong.value.code == 2
    assert nonsense[0] in capsys.readouterr().err


def main() -> int:
    missed = 0
    for defect in DEFECTS:
        found = defect.hunt()
        missed += not found.wrong
        told = f"{disturbances(found)} disturbances, {len(found.history)} events" if found.wrong else "MISSED"
        print(f"{defect.name:50} {told:32} {found.states:>10,} states {found.seconds:6.1f} s", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
