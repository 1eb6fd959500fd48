"""Any mixture of requests, as few calls of the port as possible (L6).

Requests of one kind go together, in name order, at most `BATCH_MAX` in a call, so that two processes never wait for
each other's locks in a circle. A batch that failed as a whole is tried again row by row, if the store still answers:
one locked row must not cost a hundred leases their renewal. Nothing is counted as done that was not proved for
that very row.

Renewals come first, as a hold depends on them. Settling comes before takes, which may rest on it; what is removed is
removed last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from primacy.election.store import (
    Genesis,
    Look,
    Place,
    Prune,
    ReleaseRow,
    Renew,
    Settle,
    StoreAnswer,
    StoreRequest,
    Take,
)
from primacy.errors import CannotHere, PrimacyError, Refused, UsageError
from primacy.store.port import BATCH_MAX, LeaseStore

TAKES_MAX = 20
"""Takes, and whatever else is written one by one, in a call: renewals must not wait behind a hundred of them."""
RARE = (Take, Place, Settle, Prune)
FRESH_TRIES = 4
"""How often a fresh name is inserted, if others are inserted in the same moment."""


FELL = -1
"""A position below every other: the store went back while it was asked."""


def perform(
    store: LeaseStore,
    requests: Sequence[StoreRequest],
    in_time: Callable[[], bool] = lambda: True,
    age_ms: Callable[[int], int] = lambda _: 0,
) -> list[StoreAnswer]:
    """One answer per request, in the same order. Faults of the world are answers with `ok` False.

    `in_time`: asked before each further try; once it says no, the rest is answered without asking the store.
    `age_ms`: how long ago the request of this place in the list was decided on.
    """
    answers: list[StoreAnswer | None] = [None] * len(requests)
    calls: tuple[tuple[type[StoreRequest], Callable[[Any], list[StoreAnswer]]], ...] = (
        (Renew, store.renew),
        (ReleaseRow, store.release),
        (Settle, store.change),
        (Place, store.change),
        (Take, store.take),
        (Look, store.look),
        (Prune, store.change),
    )
    for kind, call in calls:
        chosen = sorted((r.name, i) for i, r in enumerate(requests) if type(r) is kind)
        while chosen:
            chunk, chosen = _one_per_name(chosen, TAKES_MAX if kind in RARE else BATCH_MAX)
            numbers = [i for _, i in chunk]
            if kind is Take:
                used: set[Genesis | None] = set()
                found = []
                for i in numbers:
                    insert = _inserting(store, used, lambda i=i: age_ms(i))  # type: ignore[misc]
                    found += _attempt(insert, [requests[i]], in_time)
            else:
                found = _attempt(call, [requests[i] for i in numbers], in_time)
            for i, answer in zip(numbers, found, strict=True):
                answers[i] = answer
    assert all(answer is not None for answer in answers)
    return [answer for answer in answers if answer is not None]


def _one_per_name(chosen: list[tuple[str, int]], most: int) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """The next chunk, in which no name stands twice, and the rest."""
    chunk: list[tuple[str, int]] = []
    rest: list[tuple[str, int]] = []
    last = None
    for name, i in chosen:
        if name == last or len(chunk) >= most:
            rest.append((name, i))
        else:
            chunk.append((name, i))
            last = name
    return chunk, rest


def _attempt(
    call: Callable[[Any], list[StoreAnswer]], requests: Sequence[StoreRequest], in_time: Callable[[], bool]
) -> list[StoreAnswer]:
    if not in_time():
        return [StoreAnswer(ok=False, reason="the store was too slow")] * len(requests)
    try:
        return call(requests)
    except PrimacyError as error:
        if len(requests) > 1 and isinstance(error, Refused | UsageError):  # perhaps only because of one of them
            return [answer for request in requests for answer in _attempt(call, [request], in_time)]
        final = isinstance(error, CannotHere | UsageError)  # no wait and no second try will cure it
        return [StoreAnswer(ok=False, reason=str(error), final=final)] * len(requests)


def _inserting(
    store: LeaseStore, used: set[Genesis | None], age_ms: Callable[[], int]
) -> Callable[[Any], list[StoreAnswer]]:
    """A fresh name that did not get in, only because other names did, is inserted again at once (L9).

    Each insert changes the genesis row that all others compare. If everybody who waits had to decide anew after each of
    them, a thousand names would take half a million statements. Nothing but names was added, so the decision stands;
    what is compared now is the genesis row of the newest answer. If the store went back between two tries, that is told
    by a position below all others (L4 d). A decision that is not young is made anew, with a new token (T1): in the time
    that it takes to settle a table, the name may have been taken, and forgotten.

    `used`: genesis rows that an insert of this call has changed; what compares them is looked at first.
    """

    def insert(requests: Sequence[Take]) -> list[StoreAnswer]:
        (take,) = requests
        stale = take.seen is None and take.genesis in used
        (answer,) = store.look([Look(take.name, count=True)]) if stale else store.take([take])
        for _ in range(FRESH_TRIES - 1):
            if not _only_added(take, answer) or not _is_young(take, age_ms()):
                break
            take, before = take._replace(genesis=answer.genesis), answer
            (answer,) = store.take([take])
            if answer.server == before.server and answer.position < before.position:
                answer = answer._replace(position=FELL)
                break
        if answer.done and take.seen is None:
            used.update((requests[0].genesis, take.genesis))
        return [answer]

    return insert


def _is_young(take: Take, age_ms: int) -> bool:
    """Decided on much less ago than a table that came back takes to be settled (L9)."""
    return take.genesis is not None and age_ms * 2 < take.genesis.wait_max_ms


def _only_added(take: Take, answer: StoreAnswer) -> bool:
    """Since the decision, rows were added by users of leases, one with each version, and nothing else happened."""
    old, new = take.genesis, answer.genesis
    if answer.done or answer.server != take.server or answer.row is not None or take.link not in (0, answer.link):
        return False
    if take.seen is not None or old is None or new is None:
        return False
    added = new.version - old.version
    same = (new.settled, new.floor, new.wait_max_ms) == (old.settled, old.floor, old.wait_max_ms)
    return same and added > 0 and new.names - old.names == added and new.is_settled(take.server)
