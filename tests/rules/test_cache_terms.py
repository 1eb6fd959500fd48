"""Terms that cannot be: a broken clock or a damaged disk of one peer does not leave the others without terms (C2)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from primacy.cache import effects as does
from primacy.cache import messages as says
from primacy.cache.effects import StoreCeiling, StoreFloor, StoreMeta
from primacy.cache.lmdb_storage import LmdbStorage
from primacy.cache.model import TERM_MAX, TERM_STEP_MAX, Ballot, Floor, Meta
from primacy.cache.own import OwnMachine
from primacy.cache.own_terms import highest_term
from primacy.cache.peer import Peer
from primacy.cache.storage import Write
from primacy.errors import StorageFailed
from tests.support import cache_schedules_whole as whole
from tests.support.cache_harness import KEY
from tests.support.cache_one_peer import One, T, did, said
from tests.support.mutants_cache import HearsEveryTerm
from tests.support.ports import free_ports


def strange(one: One, term: int) -> dict[str, says.Message]:
    """Each message that could bring a term, with this one."""
    ballot = Ballot(term, "a", 101)
    fine = one.trailer("a")
    own = one.trailer("a", ballot)
    other = Floor(b"other", False, term)
    return {
        "question": says.Question(KEY, term, own),
        "answer": says.Answer(KEY, term, 0, False, fine),
        "answer for a floor": says.Answer(KEY, T, 0, False, one.trailer("a", floor=term)),
        "a claimed epoch": says.Answer(KEY, T, 0, False, one.trailer("a", epoch=ballot)),
        "end of a ballot": says.Answer(KEY, term, 0, False, one.trailer("a", ballot, ended=True)),
        "announce": says.Announce(KEY, term, 0, one.trailer("a", ballot, number=1)),
        "announces": says.Announces((says.Numbered(b"1", T, 2), says.Numbered(KEY, term, 2)), fine),
        "ack": says.Ack(KEY, one.trailer("a", ballot, number=1)),
        "acks": says.Acks((says.Numbered(KEY, term, 1),), fine),
        "update": says.Update(KEY, T, one.wall + 60_000, b"v", one.trailer("a", ballot, epoch=ballot)),
        "term of an update": says.Update(KEY, term, one.wall + 60_000, b"v", one.trailer("a", epoch=ballot)),
        "answer about a floor": says.FloorAnswer(KEY, False, 1, term, fine),
        "floor": says.FloorSet(other, 1, fine),
        "ack of a floor": says.FloorAck(Floor(b"other", False, 5), 1, term, fine),
        "floors": says.Floors((Floor(b"x", True, 5), other), False, fine),
    }


def known(one: One) -> tuple[object, ...]:
    machine = one.machine
    return (dict(machine.metas), machine.top_term, machine.base_term, machine.floors.digest, machine.ceiling.stored)


@pytest.mark.parametrize("name", strange(One(), T))
def test_C2_a_term_that_is_years_ahead_is_neither_remembered_nor_answered(name: str) -> None:
    for term in (TERM_MAX, T + 2 * TERM_STEP_MAX):
        one = One()
        before = known(one)
        effects = one.hear("a", strange(one, term)[name])
        assert known(one) == before
        assert [effect.event for effect in effects if isinstance(effect, does.Record)] == ["strange-term"]
        assert len(effects) == 1
        assert not one.hear("a", strange(one, term)[name]), "said once"
        assert one.machine.counts["term-refused"] == 2
        assert said(one.ask(), says.Question)[0].term < T + TERM_STEP_MAX, "this peer goes on"


@pytest.mark.parametrize("name", strange(One(), T))
def test_the_highest_term_of_each_message_is_seen(name: str) -> None:
    assert highest_term(strange(One(), T + 77)[name]) == T + 77


def test_a_need_is_no_term() -> None:
    """A put needs an epoch above all there are."""
    one = One()
    assert one.question("a", T, need=TERM_MAX) is True


def test_C2_terms_ahead_by_less_than_a_year_are_heard_and_lead_on() -> None:
    """Peers whose clocks were ahead, and are put right, keep their terms."""
    one = One()
    term = one.wall
    for _ in range(5):
        term += TERM_STEP_MAX
        one.hear("a", says.Answer(KEY, term, 0, False, one.trailer("a", one.ballot("a", term), ended=True)))
    assert one.machine.top_term == one.machine._term(KEY) == term
    assert "term-refused" not in one.machine.counts


def test_C2_without_the_rule_one_message_leaves_no_term() -> None:
    one = One(HearsEveryTerm)
    one.question("a", TERM_MAX)
    one.run(2_000)
    assert "terms-exhausted" in [effect.event for effect in did(one.ask(), does.Record)]
    assert whole.terms_do_not_run_out(HearsEveryTerm) != ""
    assert whole.terms_do_not_run_out(OwnMachine) == ""


# --- what a disk says -------------------------------------------------------------------------------------------------

NOW = int(time.time() * 1_000)
FAR = NOW + 2 * TERM_STEP_MAX


@pytest.mark.parametrize(
    "write",
    [
        StoreCeiling(FAR),
        StoreMeta(b"k", Meta(FAR)),
        StoreMeta(b"k", Meta(5, 0, Ballot(FAR, "tcp://a:1", 1))),
        StoreFloor(Floor(b"k", False, FAR)),
    ],
    ids=["ceiling", "term", "epoch", "floor"],
)
def test_a_peer_does_not_start_with_a_term_that_cannot_be_and_says_what_helps(write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "entries"

    async def started() -> None:
        url, api = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
        async with Peer(url, api, storage=LmdbStorage(str(folder))) as peer:
            assert (await peer.put(b"k", b"v", 1_000)).ok

    asyncio.run(started())
    storage = LmdbStorage(str(folder))
    storage.apply([write])
    storage.close()
    with pytest.raises(StorageFailed, match="days ahead of this machine's clock") as caught:
        asyncio.run(started())
    assert str(folder) in str(caught.value)
    assert "Set the clock; if it is right, move the folder away" in str(caught.value)
    folder.rename(tmp_path / "away")
    asyncio.run(started())
