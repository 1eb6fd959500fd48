"""Any mixture of requests, as few calls of the port as possible (L6).

Requests of one kind go together, in name order, at most `BATCH_MAX` in a call, so that two processes never wait for
each other's locks in a circle. A batch that failed as a whole is tried again row by row, if the store still answers:
one locked row must not cost a hundred leases their renewal. Nothing is counted as done that was not proved for
that very row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from primacy.election.store import Look, ReleaseRow, Renew, StoreAnswer, StoreRequest, Take
from primacy.errors import PrimacyError, Refused
from primacy.store.port import BATCH_MAX, LeaseStore

TAKES_MAX = 20
"""Takes in a call: SQL stores write them one by one, and renewals must not wait behind a hundred of them."""


def perform(
    store: LeaseStore, requests: Sequence[StoreRequest], in_time: Callable[[], bool] = lambda: True
) -> list[StoreAnswer]:
    """One answer per request, in the same order. Faults of the world are answers with `ok` False.

    `in_time`: asked before each further try; once it says no, the rest is answered without asking the store.
    """
    answers: list[StoreAnswer | None] = [None] * len(requests)
    calls: tuple[tuple[type[StoreRequest], Callable[[Any], list[StoreAnswer]]], ...] = (
        (Renew, store.renew),
        (ReleaseRow, store.release),
        (Take, store.take),
        (Look, store.look),
    )
    for kind, call in calls:
        chosen = sorted((r.name, i) for i, r in enumerate(requests) if type(r) is kind)
        while chosen:
            chunk, chosen = _one_per_name(chosen, TAKES_MAX if kind is Take else BATCH_MAX)
            numbers = [i for _, i in chunk]
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
    except Refused as error:
        if len(requests) > 1:  # it answers, and refuses: perhaps only because of one of them
            return [answer for request in requests for answer in _attempt(call, [request], in_time)]
        return [StoreAnswer(ok=False, reason=str(error))]
    except PrimacyError as error:
        return [StoreAnswer(ok=False, reason=str(error))] * len(requests)
