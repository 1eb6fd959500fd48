"""What nodes tell each other beside how they stand: what happened, an operator's order, and its answer. Pure.

Each is a row of plain values that fits one sealed datagram. Bounded on both sides: what is longer is cut (texts) or
refused (orders), and what cannot be read is nothing.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from primacy.control.earlier import current_code
from primacy.control.summary import NUMBER_MAX, short
from primacy.errors import UsageError

HAPPENED, ORDER, ANSWER, AGENT = 2, 3, 4, 5
"""Kinds of rows; 1 is a summary. Numbers are never used again for something else."""
TEXT_BYTES_MAX = 300
CODE_CHARS_MAX = 32
BODY_BYTES_MAX = 300
ANSWER_BYTES_MAX = 380
DONE, WRONG, REFUSED, LATER = 200, 400, 409, 425
"""How an order went, as the control API says it."""


class GossipEvent(NamedTuple):
    """An event of the sender."""

    at_unix_ms: int
    term: int
    code: str
    text: str
    value: int


class GossipRequest(NamedTuple):
    """What an operator said at another node. `number` is random: it is done once, however often it arrives."""

    number: int
    name: str
    body: dict[str, Any]


class GossipReply(NamedTuple):
    """To the order of that number."""

    number: int
    status: int
    text: str


def event_row(event: GossipEvent) -> list[Any]:
    text = short(event.text, TEXT_BYTES_MAX)
    return [HAPPENED, event.at_unix_ms, event.term, event.code[:CODE_CHARS_MAX], text, event.value]


def request_row(order: GossipRequest) -> list[Any]:
    """Raises `UsageError` for what does not fit."""
    body = json.dumps(order.body, ensure_ascii=False)
    try:
        size = len(body.encode())
    except UnicodeEncodeError:
        raise UsageError("this order has half a character in it, and cannot be passed on") from None
    if size > BODY_BYTES_MAX:
        raise UsageError(
            f"this order has more than {BODY_BYTES_MAX} bytes, and cannot be passed on to another node: say it there"
        )
    return [ORDER, order.number, order.name, body]


def reply_row(answer: GossipReply) -> list[Any]:
    return [ANSWER, answer.number, answer.status, short(answer.text, ANSWER_BYTES_MAX)]


def read(row: list[Any]) -> GossipEvent | GossipRequest | GossipReply | None:
    """What a row says; None if it is none of these, or of a later version."""
    match row:
        case [kind, int(at_unix_ms), int(term), str(code), str(text), int(value), *_] if kind == HAPPENED:
            if _fits(code, CODE_CHARS_MAX) and _fits(text, TEXT_BYTES_MAX) and _counts(at_unix_ms, term, value):
                return GossipEvent(at_unix_ms, term, current_code(code), text, value)
        case [kind, int(number), str(name), str(body), *_] if kind == ORDER:
            said = _object(body)
            if said is not None and _fits(name, CODE_CHARS_MAX) and _counts(number):
                return GossipRequest(number, name, said)
        case [kind, int(number), int(status), str(text), *_] if kind == ANSWER:
            if _fits(text, ANSWER_BYTES_MAX) and _counts(number, status):
                return GossipReply(number, status, text)
    return None


def _fits(text: str, most: int) -> bool:
    return len(text) <= most and text.isprintable()


def _counts(*numbers: int) -> bool:
    return all(type(number) is int and -1 <= number <= NUMBER_MAX for number in numbers)


def _object(text: str) -> dict[str, Any] | None:
    if len(text) > BODY_BYTES_MAX:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
