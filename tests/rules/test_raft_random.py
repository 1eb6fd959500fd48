"""Any message at any time: a raft node never raises, never unsays a vote, never leads beyond its hold (I6)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primacy.election.effects import Persist, Send, Start
from primacy.election.inputs import (
    CampaignOrder,
    DeadlinePassed,
    GuardLost,
    Health,
    Init,
    Input,
    Pause,
    PersistFailed,
    Received,
    Rejoin,
    Resume,
    RunLock,
    Shutdown,
    StepDown,
    WorkGone,
    WorkStarted,
)
from primacy.election.messages import (
    Ack,
    Ahead,
    FirstBallot,
    FirstBallotTaken,
    Heartbeat,
    Origin,
    Query,
    Release,
    Report,
    Stale,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import Role
from tests.support.raft_harness import BASE, LIST, Bench, H, ballot, boot_of

pytestmark = pytest.mark.coverage

LISTS = ("a", "a b", "a b c", "a b c d", "a b w:witness o:observer", "a:witness b c", "a:observer b c")

names = st.sampled_from(["a", "b", "c", "d", "w", "o", "z"])
flags = st.booleans()
terms = st.one_of(st.integers(0, 6), st.sampled_from([10**6, 10**6 + 3, 2**60]))
numbers = st.one_of(st.integers(-1, 6), st.just(2**60))
spans = st.sampled_from([-1, 0, 1, 100, 500, 525, 3_000, 10**9])
boots = st.sampled_from([1, 2, *(boot_of(name) for name in "abcd")])
bases = st.sampled_from([0, BASE - 1, BASE, BASE, BASE, BASE + 1])
origins = st.builds(Origin, names, st.integers(0, 3), boots, st.sampled_from([LIST, LIST, LIST, "other"]), bases)
releases = st.builds(Release, origins, terms, names)
votes = st.builds(VoteRequest, origins, terms, flags, st.none() | releases)
answers = st.builds(
    VoteReply, origins, terms, flags, flags, boots, terms, spans, terms, spans, st.sampled_from([BASE, 0]), spans
)
confirmed = st.lists(st.tuples(st.sampled_from([LIST, "other"]), st.lists(names, max_size=3).map(tuple)), max_size=2)
reports = st.builds(
    Report, origins, boots, flags, flags, terms, spans, st.just(BASE), confirmed.map(tuple), st.integers(0, 4)
)
messages = st.one_of(
    votes,
    answers,
    st.builds(Heartbeat, origins, terms, numbers, spans, flags),
    st.builds(Ack, origins, terms, numbers, boots),
    st.builds(Ahead, origins, terms),
    releases,
    st.builds(Query, origins, flags),
    reports,
    st.builds(FirstBallot, origins, bases, boots),
    st.builds(FirstBallotTaken, origins, bases),
    st.builds(Stale, origins, boots, st.integers(0, 9)),
)
inputs: st.SearchStrategy[Input] = st.one_of(
    messages.map(Received),
    messages.map(Received),
    st.just(DeadlinePassed()),
    st.just(DeadlinePassed()),
    st.builds(WorkStarted, st.integers(0, 6)),
    st.builds(WorkGone, st.integers(0, 6), flags),
    st.builds(GuardLost, st.integers(0, 6)),
    st.builds(RunLock, flags),
    st.builds(StepDown, names),
    st.sampled_from([Pause(), Resume(), Shutdown(), Health(True), Health(False, "probe")]),
    st.permutations(["a", "b", "c"]).map(lambda nodes: CampaignOrder(tuple(nodes))),
    st.builds(Init, st.integers(0, 10**7), st.lists(names, max_size=2).map(tuple)),
    st.builds(Rejoin, st.lists(names, max_size=2).map(tuple)),
)
steps = st.lists(st.tuples(st.sampled_from([0, 1, 49, 200, 525, 2_000]), inputs, flags), max_size=40)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(words=st.sampled_from(LISTS), blank=flags, lock_held=flags, trial=steps)
def test_any_input_at_any_time(words: str, blank: bool, lock_held: bool, trial: list[tuple[int, Input, bool]]) -> None:
    bench = Bench(words, kept=None if blank else ballot(words), blank=blank, lock_held=lock_held)
    granted: dict[tuple[int, int], str] = {}
    for pause_ms, told, disk_fails in trial:
        bench.now += pause_ms
        deadline = bench.m.deadline_ms
        if isinstance(told, DeadlinePassed) and deadline is not None:
            bench.now = max(bench.now, min(deadline, bench.now + 2_000))
        effects = bench.give(told)
        failed = disk_fails and any(isinstance(effect, Persist) for effect in effects)
        check_order(bench)
        if failed:
            bench.give(PersistFailed("disk full"))
        else:
            check_votes(bench, granted)
        check_state(bench)


def check_order(bench: Bench) -> None:
    """At most one ballot per step, in front of all that relies on it (Q1)."""
    kinds = [type(effect) for effect in bench.last]
    assert kinds.count(Persist) <= 1
    if Persist in kinds:
        before = kinds[: kinds.index(Persist)]
        assert Send not in before
        assert Start not in before


def check_votes(bench: Bench, granted: dict[tuple[int, int], str]) -> None:
    """One vote per base and term."""
    for effect in bench.last:
        if isinstance(effect, Send) and isinstance(effect.message, VoteReply):
            reply = effect.message
            if reply.granted and not reply.pre:
                assert granted.setdefault((reply.origin.base, reply.asked), effect.to) == effect.to


def check_state(bench: Bench) -> None:
    machine = bench.m
    assert machine.deadline_ms is None or isinstance(machine.deadline_ms, int)
    assert (machine.role is Role.LEADER) == (machine.state.leader_state is not None)
    view = machine.view(bench.now)
    assert view.hold_left_ms >= 0
    if machine.state.leader_state is not None:
        assert machine.state.leader_state.progress.hold_from_ms + H > bench.now
        assert machine.ballot is not None
        assert machine.ballot.term == machine.state.leader_state.term
        assert machine.ballot.voted_for == "a"
    if machine.muted:
        assert machine.role is Role.RECOVERING
        assert view.waits_for
