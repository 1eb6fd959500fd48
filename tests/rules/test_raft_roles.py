"""Raft's roles: one object each, gone with the role; changed in one place; and parts that keep nothing of their own."""

from __future__ import annotations

import ast
from pathlib import Path

from primacy.election import raft
from primacy.election.inputs import Pause, Resume, WorkGone
from primacy.election.messages import Stale, VoteRequest
from primacy.election.model import Role
from primacy.election.raft.roles import Candidate, Follower, Leader, Recovering
from primacy.election.raft.state import RaftState
from primacy.sim.model.snapshot import PARTS
from tests.support.raft_harness import Bench, P, origin


def test_from_follower_to_leader_and_back_each_role_has_its_own_object() -> None:
    bench = Bench()
    assert (bench.m.role, type(bench.m.state.role_state)) == (Role.FOLLOWER, Follower)
    bench.ask_first()
    asked = bench.m.state.role_state
    assert isinstance(asked, Candidate)
    assert (bench.m.role, asked.pre, asked.term) == (Role.CANDIDATE, True, 1)
    bench.yes("b", 1, pre=True)
    campaign = bench.m.state.role_state
    assert isinstance(campaign, Candidate)
    assert (campaign.pre, sorted(campaign.yes)) == (False, ["a"]), "what was said to the question is no vote"
    bench.yes("b", 1)
    assert (bench.m.role, type(bench.m.state.role_state)) == (Role.LEADER, Leader)
    bench.give(Pause())
    assert (bench.m.role, type(bench.m.state.role_state)) == (Role.PAUSED, Follower)
    bench.give(Resume())
    assert bench.m.role is Role.FOLLOWER


def test_a_second_term_begins_with_nothing_of_the_first() -> None:
    bench = Bench()
    first = bench.lead()
    before = bench.m.state.leader_state
    bench.give(WorkGone(first, released=True))
    bench.wait(2 * P)
    second = bench.win()
    after = bench.m.state.leader_state
    assert before is not None
    assert after is not None
    assert (before.term, after.term) == (first, second)
    assert (after.ran, after.ordered, after.progress.acked, after.progress.proved) == (False, False, {}, 0)


def test_who_recovers_leaves_that_role_by_memory_alone() -> None:
    bench = Bench()
    bench.lead()
    bench.hear(Stale(origin("b"), bench.m.seat.boot, 99))
    assert (bench.m.role, type(bench.m.state.role_state), bench.m.muted) == (Role.RECOVERING, Recovering, "no-memory")
    bench.give(WorkGone(1, released=True))
    bench.give(Resume())
    bench.wait(2 * P)
    assert bench.m.role is Role.RECOVERING
    assert not bench.sent(VoteRequest)


def test_a_resume_shows_a_candidate_as_a_follower_and_its_votes_still_count() -> None:
    bench = Bench()
    term = bench.stand()
    bench.give(Resume())
    assert bench.m.role is Role.FOLLOWER
    bench.yes("b", term)
    assert bench.m.role is Role.LEADER


def test_before_it_has_started_it_is_starting_whatever_it_is_told() -> None:
    state = RaftState(Bench().m.seat, Bench().m.state.timing, None, Bench().m.state.options)
    assert state.role is Role.STARTING
    state.become_recovering("no-memory")
    assert state.role is Role.STARTING


def test_the_role_is_changed_in_one_file_only() -> None:
    folder = Path(raft.__file__).parent
    changed = {
        file.name
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "role_state" and isinstance(node.ctx, ast.Store)
    }
    assert changed == {"state.py"}


def test_parts_keep_nothing_of_their_own() -> None:
    """A copy of the state is a copy of the node, and the bounded model looks at no part."""
    bench = Bench()
    bench.lead()
    machine = bench.m
    parts = {name: part for name, part in vars(machine).items() if name in PARTS}
    assert set(parts) == PARTS
    known = [machine.state, *parts.values()]
    for name, part in parts.items():
        assert all(any(value is one for one in known) for value in vars(part).values()), name
