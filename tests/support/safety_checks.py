"""What is judged always and at once, however late the machine was: safety.

Two holders at once, one (token, run) given twice, a token that goes back, a double signature, a holder that lives
beyond its hold: no load excuses these. Whatever asserts one of them says it by `safe` or by `one_at_a_time`, which
raise `SafetyViolation`. The canary repeats and skips tests whose stability was void (`canary.py`, `void_attempts.py`),
and never one in whose failure a violation can be found, on whatever attempt. A fixture of real processes judges once
more when it ends, so that an attempt that failed halfway is judged too.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.support import stamp


class SafetyViolation(pytest.fail.Exception):  # type: ignore[name-defined]
    """Not an `Exception`: nothing between a checker and the end of its test takes it for something to wait out."""


def safe(holds: object, what: object) -> None:
    if not holds:
        raise SafetyViolation(str(what))


def one_at_a_time(stamps: list[stamp.Stamp]) -> None:
    """I1 and I4, by what the commands stamped."""
    found = stamp.violations(stamps)
    safe(not found, f"{len(found)} violations: " + "; ".join(map(str, found[:5])))


def tokens_grow(tokens: Iterable[int]) -> None:
    """I4: in the order in which they began."""
    found = list(tokens)
    safe(found == sorted(set(found)), f"tokens that do not grow: {found}")


def violation_in(fault: BaseException | None) -> SafetyViolation | None:
    """The violation in a failure: itself, what it was raised from or while, or one of a group."""
    waiting, seen = [fault], set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, SafetyViolation):
            return each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
    return None
