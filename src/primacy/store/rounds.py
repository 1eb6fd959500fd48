"""Requests in one trip or in two, for stores that judge on what they remember of a row and compare that it is still so.

The first trip goes by what is remembered; whoever did not meet that sees what is there now, and tries once more.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from primacy.election.store import Place, Prune, Settle, StoreAnswer, StoreRequest, Take
from primacy.store.port import check_request

ROUNDS_MAX = 2
"""With what is remembered, and with what the store then showed. Whoever loses twice in a row has lost."""
KNOWN_MAX = 10_000
"""Rows that are remembered between requests."""
MAKE_MAX = 5
"""Tries to make the genesis row, or to raise its wait_max, while others write it."""

Round = Callable[[Sequence[StoreRequest], bool], list[StoreAnswer | None]]
"""One trip; true for the last. None: not decided, as the row was not what we remembered; now we know it."""


def perform_in_rounds(requests: Sequence[StoreRequest], go: Round) -> list[StoreAnswer]:
    """Each request that writes the genesis row has trips of its own: it changes what the next one compares."""
    for request in requests:
        check_request(request)
    alone = [i for i, request in enumerate(requests) if writes_genesis(request)]
    shared = [i for i in range(len(requests)) if i not in alone]
    answers: dict[int, StoreAnswer] = {}
    for group in (shared, *([i] for i in alone)):
        for turn in range(ROUNDS_MAX):
            left = [i for i in group if i not in answers]
            if left:
                found = go([requests[i] for i in left], turn + 1 == ROUNDS_MAX)
                answers.update((i, answer) for i, answer in zip(left, found, strict=True) if answer is not None)
    return [answers[i] for i in range(len(requests))]


def writes_genesis(request: StoreRequest) -> bool:
    match request:
        case Take(seen=seen):
            return seen is None
        case Place() | Settle() | Prune():
            return True
    return False


def first_version() -> int:
    """Of a genesis row that is made: who waits for the table to be settled must not take it for an earlier one (L9)."""
    return 1 + secrets.randbelow(10**9)
