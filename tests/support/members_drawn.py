"""Registers of members for tests that draw values: any that can be, sorted and with a voter, as machines rely on."""

from __future__ import annotations

from hypothesis import strategies as st

from primacy.election.model import Goal, Kind, Member, MembersId, Register
from primacy.election.raft.register import ordered

names = st.text(min_size=1, max_size=20)
numbers = st.integers(0, 2**53 - 1)


def _distinct(drawn: list[Member]) -> tuple[Member, ...]:
    return ordered(tuple({member.id: member for member in drawn}.values()))


def _some(kinds: list[Kind], least: int = 0) -> st.SearchStrategy[tuple[Member, ...]]:
    member = st.builds(
        Member, names, st.sampled_from(kinds), st.integers(-1000, 1000), st.just(0), st.text(max_size=260)
    )
    return st.lists(member, min_size=least, max_size=6).map(_distinct)


def _with_voter(drawn: tuple[Member, ...]) -> tuple[Member, ...]:
    first, *rest = drawn
    return (first._replace(kind=Kind.VOTER), *rest)


whole = _some(list(Kind), 1).map(_with_voter)
registers = st.builds(
    Register,
    st.builds(MembersId, numbers, numbers),
    whole,
    _some([Kind.VOTER, Kind.WITNESS]),
    st.none() | st.builds(Goal, whole, st.text(max_size=64), numbers),
)
