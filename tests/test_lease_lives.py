"""Lives of several lease nodes, with clocks at both edges of the promised rate; and each rule taken out and caught."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lease_desk import LAN, TRIO, WALL
from lease_universe import ALL, FAILSAFE, LAB, Universe, life
from primacy.election.effects import AskStore, Start
from primacy.election.events import Code
from primacy.election.inputs import (
    DeadlinePassed,
    GuardLost,
    Health,
    Init,
    Input,
    MembersChanged,
    Pause,
    PersistFailed,
    Received,
    Rejoin,
    Resume,
    RunLock,
    Shutdown,
    Started,
    StepDown,
    StoreAnswered,
    Unanswered,
    WorkGone,
    WorkStarted,
)
from primacy.election.lease import LeaseOptions, LeaseStrategy
from primacy.election.lease_state import list_hash
from primacy.election.messages import Election, FailsafeAck, FailsafeBeat, Origin
from primacy.election.model import TOKEN_MAX, Membership, Seat
from primacy.election.store import Row, StoreAnswer, holder_id
from primacy.sim.store import SimStore
from primacy.sim.transcript import play

# --- never raises -----------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(-3, 40), st.sampled_from([0, 1, WALL, WALL + 1, TOKEN_MAX, 2**70, -(2**70)]))
NAMES = st.sampled_from(
    ["", "a", "b", "c", "#", "a#7", "b#9", "\udcff", holder_id("a", 7), list_hash(TRIO), "server-1"]
)
ROWS = st.builds(Row, NAMES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), NAMES, NAMES, NAMES)
ANSWERS = st.builds(StoreAnswer, st.booleans(), st.booleans(), st.none() | ROWS, NAMES, NAMES)
ORIGINS = st.builds(Origin, NAMES, NUMBERS, NUMBERS, NAMES, NUMBERS)
MESSAGES = st.one_of(
    st.builds(FailsafeBeat, ORIGINS, NUMBERS, NUMBERS),
    st.builds(FailsafeAck, ORIGINS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Election, ORIGINS),
)
INPUTS = st.one_of(
    st.builds(Started, NUMBERS, st.booleans()),
    st.just(DeadlinePassed()),
    st.builds(Received, MESSAGES),
    st.builds(Unanswered, NAMES),
    st.builds(PersistFailed, NAMES),
    st.builds(WorkStarted, NUMBERS),
    st.builds(WorkGone, NUMBERS, st.booleans()),
    st.builds(GuardLost, NUMBERS),
    st.builds(RunLock, st.booleans()),
    st.builds(StepDown, NAMES, NAMES),
    st.sampled_from([Pause(), Resume(), Shutdown(), Init(0), Rejoin(), MembersChanged(())]),
    st.builds(Health, st.booleans(), NAMES),
    st.builds(StoreAnswered, st.integers(0, 30), ANSWERS),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 250, 1_500, 4_000]), st.sampled_from(["raw", "last", "own"]), INPUTS, ANSWERS)
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_step_never_raises_and_time_never_stands_still(script: list[Any], failsafe: bool, single: bool) -> None:
    """Odd values in answers and messages, also as answers to what was asked and as reports of its own work."""
    seat = Seat("a", 7, Membership.of(()), Random(1))
    options = LeaseOptions("job", failsafe=TRIO if failsafe else (), single_machine=single)
    machine = LeaseStrategy(seat, LAN, options)
    now, last, started = 0, 0, 0
    machine.step(0, Started(WALL))
    for span, how, raw, answer in script:
        now += span
        given: Input = raw
        if how == "last":
            given = StoreAnswered(last, answer)
        elif how == "own":
            given = WorkGone(started) if span == 1_500 else WorkStarted(started)
        for effect in machine.step(now, given):
            if isinstance(effect, AskStore):
                last = effect.number
            if isinstance(effect, Start):
                assert effect.leadership.token > started, "a token is started once"
                started = effect.leadership.token
        machine.view(now)
        assert machine.deadline_ms is None or machine.deadline_ms > now


# --- lives ------------------------------------------------------------------------------------------------------------


def test_at_most_one_works_at_any_instant_and_someone_does_afterwards() -> None:
    """Clock rates 0.99 and 1.01, work that uses its hold to the last, every trouble at once."""
    rare: set[str] = set()
    starts = 0
    for seed in range(80):
        universe = life(seed)
        assert universe.overlaps == []
        assert universe.own_token_trouble == 0
        universe.calm()
        universe.run(universe.now + 4_000)
        assert len(universe.working()) == 1
        rare.update(universe.codes)
        starts += universe.starts
    assert starts > 600
    wanted = {Code.ANSWER_LOST, Code.OBSERVATION_RESTARTED, Code.OTHER_SERVER, Code.RELEASE_APPLIED, Code.LATE_ACK}
    assert wanted <= rare


def test_at_most_one_works_with_the_failsafe() -> None:
    for seed in range(60):
        universe = life(seed, faults=FAILSAFE, failsafe=True)
        assert universe.overlaps == []


def test_T1_tokens_of_all_only_grow_if_no_commit_is_lost_or_the_wall_clocks_agree() -> None:
    for seed in range(40):
        assert life(seed, lost_max=0).token_trouble == 0
        assert life(seed, wall_spread_ms=0, drift=0.0).token_trouble == 0


def test_a_release_makes_the_handover_quick_and_a_crash_costs_one_wait() -> None:
    universe = Universe(3).run(5_000)
    (worker,) = universe.working()
    node = next(node for node in universe.nodes if node.name == worker)
    universe.give(node, StepDown())
    began = universe.now
    while universe.working() in ([], [worker]):
        universe.run(universe.now + 5)
    assert universe.now - began < 600 + 3 * LAB.beat_ms


class ReleasesLater(SimStore):
    """Nobody waits for the commit of a release: a crash may lose it, if nothing was committed after it."""

    forgotten = 0

    def forget(self, lost_commits: int) -> None:
        while self._history:
            name, before = self._history[-1]
            now = self.rows[name]
            if before is None or before.released or (before.token, before.seq) != (now.token, now.seq):
                return
            super().forget(1)
            self.forgotten += 1


def test_L4_a_release_may_be_forgotten_as_long_as_nobody_took_upon_it() -> None:
    """As PostgreSQL may (`POSTGRESQL_SOON`), under the same identity: it only looks like a holder that fell silent."""
    forgotten = 0
    for seed in range(20):
        for faults in (("people", "people", "crash", "fail_over", "fail_over"), ALL):
            store = ReleasesLater()
            universe = life(seed, faults=faults, store=store, forgets=True)
            assert (universe.overlaps, universe.token_trouble, universe.own_token_trouble) == ([], 0, 0)
            universe.calm()
            assert len(universe.run(universe.now + 10_000).working()) == 1
            forgotten += store.forgotten
    assert forgotten > 3, "or nothing was shown"


def test_L4_a_release_takes_two_trips_at_most_wherever_it_falls_between_two_renewals() -> None:
    """A renewal that is under way may make the first one match nothing. A look's pause would be 150 ms and more."""
    trip_most_ms, met = 2 * 30, 0
    for pause_ms in range(60, 260, 2):
        told = play(
            "> cluster a b c strategy=lease profile=lab\n> elect a\n> weather store_ms=30\n"
            f"> pass {pause_ms} ms\n> step down a\n> pass 600 ms\n"
        )
        gone_ms, released_ms = (
            next(int(line[:6]) for line in told.splitlines() if words in line)
            for words in ("a's work is over", "a leads no more: its work is confirmed gone and released")
        )
        assert released_ms - gone_ms <= 2 * trip_most_ms + 5
        met += released_ms - gone_ms > trip_most_ms
    assert met > 3, "some of them met a renewal"


class HoldFromAnswer(LeaseStrategy):
    def _counted_from(self, sent_ms: int, now_ms: int) -> int:
        return now_ms


class AnchorAtRequest(LeaseStrategy):
    def _anchor_ms(self, asked_ms: int, now_ms: int) -> int:
        return asked_ms


class NotStretched(LeaseStrategy):
    def _wait_ms(self, old: Any, answer: StoreAnswer) -> int:
        return self.timing.hold_ms


class ChangeUnnoticed(LeaseStrategy):
    def _same_row(self, old: Row | None, new: Row | None) -> bool:
        return (old is None) == (new is None)


class ServerUnnoticed(LeaseStrategy):
    def _same_server(self, old: Any, answer: StoreAnswer) -> bool:
        return True


class EverythingReleased(LeaseStrategy):
    def _at_once(self, sight: Any, row: Row) -> bool:
        return True


class ReleaseOfAnyServer(LeaseStrategy):
    def _at_once(self, sight: Any, row: Row) -> bool:
        return row.released


class FailsafeByOne(LeaseStrategy):
    def _complete(self, acked: tuple[str, ...]) -> bool:
        return True


class AckWithoutRestart(LeaseStrategy):
    def _watch_anew(self) -> None:
        pass


class WithoutSeq(SimStore):
    def _same(self, row: Row, token: int, seq: int) -> bool:
        return row.token == token


class WithoutCompare(SimStore):
    def _same(self, row: Row, token: int, seq: int) -> bool:
        return True


class WithoutServer(SimStore):
    def _same_server(self, server: str) -> bool:
        return True


QUIET = ("cut", "stall")
OTHERS = ("cut", "stall", "fail_over")


@pytest.mark.parametrize(
    ("kind", "store", "faults", "how"),
    [
        pytest.param(HoldFromAnswer, SimStore, QUIET, {}, id="L2-hold-from-answer"),
        pytest.param(AnchorAtRequest, SimStore, QUIET, {}, id="L3-anchor-at-request"),
        pytest.param(NotStretched, SimStore, QUIET, {}, id="L3-wait-not-stretched"),
        pytest.param(ChangeUnnoticed, SimStore, QUIET, {}, id="L3-change-unnoticed"),
        pytest.param(ServerUnnoticed, SimStore, ("cut", "fail_over"), {}, id="L3-server-unnoticed"),
        pytest.param(EverythingReleased, SimStore, QUIET, {}, id="L4-unreleased-taken"),
        pytest.param(ReleaseOfAnyServer, SimStore, ("people", "fail_over"), {}, id="L4-release-of-another-server"),
        pytest.param(FailsafeByOne, SimStore, FAILSAFE, {"failsafe": True}, id="L7-not-all"),
        pytest.param(AckWithoutRestart, SimStore, FAILSAFE, {"failsafe": True}, id="L7-ack-without-restart"),
        pytest.param(LeaseStrategy, WithoutSeq, ALL, {}, id="L1-without-seq"),
        pytest.param(LeaseStrategy, WithoutCompare, ALL, {}, id="L1-without-compare"),
        pytest.param(LeaseStrategy, WithoutServer, OTHERS, {}, id="L3-take-without-server"),
        pytest.param(LeaseStrategy, SimStore, ("people", "fail_over"), {"forgets": True}, id="store-that-forgets"),
        pytest.param(LeaseStrategy, SimStore, QUIET, {"drift": 0.03}, id="clocks-outside-of-the-model"),
    ],
)
def test_a_rule_taken_out_is_caught(kind: type[LeaseStrategy], store: type[SimStore], faults: Any, how: Any) -> None:
    assert any(life(seed, faults=faults, kind=kind, store=store(), **how).overlaps for seed in range(150))


def test_T2_taken_out_is_caught() -> None:
    class Forgetful(LeaseStrategy):
        def _largest_known(self) -> int:
            return 0

    faults = ("cut", "people", "fail_over")
    assert any(life(seed, faults=faults, kind=Forgetful).own_token_trouble for seed in range(100))


def test_Q8_taken_out_is_caught() -> None:
    class Reopens(LeaseStrategy):
        _used_token = property(lambda self: 0, lambda self, value: None)  # type: ignore[assignment]

    assert any(life(seed, kind=Reopens, lost_max=0).token_trouble for seed in range(30))
