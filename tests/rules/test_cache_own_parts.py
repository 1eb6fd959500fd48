"""Parts of the machine of mode `own`, one at a time: what the simulator found wrong in them stays mended."""

from __future__ import annotations

from primacy.cache.messages import Trailer
from primacy.cache.model import PeerAddress
from primacy.cache.own_parts import TERMS_AHEAD, Ceiling, Members

WALL = 1_700_000_000_000
AHEAD = 10_000


def _list(*names):
    return tuple(PeerAddress(f"tcp://{name}:1", f"tcp://{name}:2") for name in names)


def test_C2_restarts_do_not_carry_terms_away_from_the_wall_clock() -> None:
    """Each start begins at the ceiling. If that were written ahead of itself, ten restarts would use terms of 100 s
    ahead, and a start without memory, which knows the wall clock only, would begin far below them."""
    stored = WALL
    for _ in range(10):
        ceiling = Ceiling(AHEAD, durable=True)
        ceiling.stored = stored
        wish = ceiling.wish(max(stored, WALL) + 1, WALL)
        if wish is not None:
            assert wish > max(stored, WALL)
            ceiling.written(wish)
            assert ceiling.covers(max(stored, WALL) + 1)
            stored = wish
    assert stored <= WALL + AHEAD + 10 * (TERMS_AHEAD + 1)


def test_C2_the_ceiling_is_written_once_per_half_of_the_time_ahead() -> None:
    ceiling = Ceiling(AHEAD, durable=True)
    writes = 0
    for passed_ms in range(0, 60_000, 10):
        wish = ceiling.wish(WALL + passed_ms, WALL + passed_ms)
        if wish is not None:
            writes += 1
            ceiling.written(wish)
        assert ceiling.covers(WALL + passed_ms)
    assert writes <= 13


def test_C10_a_peer_that_was_started_with_the_next_list_and_one_that_waits_for_it_hear_each_other() -> None:
    """It knows no list before its own, so that only the other one knows that they are neighbours."""
    old, new = Members("tcp://a:1", _list("a", "b", "c")), Members("tcp://b:1", _list("a", "b", "c", "d"))
    assert not old.works_with(Trailer(new.hash, new.previous))
    assert not new.works_with(Trailer(old.hash, old.previous))
    old.wait_for(new.peers)
    assert old.works_with(Trailer(new.hash, new.previous))
    assert new.works_with(Trailer(old.hash, old.previous, pending=old.pending))
    old.change(new.peers)
    assert old.pending == 0


def test_C10_a_list_that_differs_by_two_is_no_neighbour() -> None:
    members = Members("tcp://a:1", _list("a", "b", "c"))
    members.wait_for(_list("a", "b", "c", "d", "e"))
    assert members.pending == 0
