"""Terms that cannot be: mode `own`. Pure.

A new term is at least Unix time in milliseconds, and at most one above what is known (C2), so that terms stay near the
wall clocks of the peers. One that is years ahead is a mistake: a broken clock, a damaged storage, a defect. A peer
that took it would have no higher one left before long, for the wire ends at 2^53 - 1, and would keep it on its disk. So
it is not heard from others, and a peer does not start with it. This is no defence against a peer that lies step by
step: peers trust each other.
"""

from __future__ import annotations

from primacy.cache.messages import (
    Acks,
    Announce,
    Announces,
    Answer,
    FloorAck,
    FloorAnswer,
    Floors,
    FloorSet,
    Message,
    Question,
    Update,
)


def highest_term(message: Message) -> int:
    """The highest term that a receiver would remember of this message. What it is needed for (`need`) is none."""
    trailer = message.trailer
    highest = 0 if trailer is None else max(trailer.ballot.term, trailer.epoch.term, trailer.floor)
    match message:
        case Question() | Answer() | Announce() | Update() | FloorAnswer():
            return max(highest, message.term)
        case Announces(keys) | Acks(keys):
            return max([highest, *(one.term for one in keys)])
        case FloorSet(floor):
            return max(highest, floor.term)
        case FloorAck(floor, _, told):
            return max(highest, floor.term, told)
        case Floors(floors):
            return max([highest, *(floor.term for floor in floors)])
        case _:
            return highest
