"""Events with far-off stamps are left out of a timeline, and it says so; clocks that are wrong all the time are not."""

from __future__ import annotations

import pytest

from primacy.timeline.clocks import CONTRADICTION, Span
from primacy.timeline.far_off import FAR_MS
from primacy.timeline.fold import MARGIN_MS
from primacy.timeline.schema import Told
from tests.rules.test_timeline import HANDOVER, T, led, of, told

UNSET = Told(7_000, "b", 0, "started", "b started")
SAID = "more than a year from the others: a clock was not set"


@pytest.mark.parametrize("now_ms", [T + 20_000, 0], ids=["a node runs", "none runs"])
@pytest.mark.parametrize("at_ms", [7_000, T - 20 * FAR_MS, T + 20 * FAR_MS, 10**17], ids=str)
def test_an_event_with_a_far_off_stamp_does_not_stretch_the_span(at_ms: int, now_ms: int) -> None:
    found = of([*HANDOVER, UNSET._replace(at_unix_ms=at_ms)], now_ms=now_ms)
    whole = of(HANDOVER, now_ms=now_ms)
    assert (found.from_ms, found.to_ms) == (T - MARGIN_MS, whole.to_ms)
    assert (found.roles, found.runs, found.decisions) == (whole.roles, whole.runs, whole.decisions)
    (words,) = found.left_out
    assert words.startswith("1 event of b, dated ")
    assert words.endswith(SAID)


def test_the_day_is_said() -> None:
    found = of([*HANDOVER, UNSET, UNSET._replace(at_unix_ms=8_000)])
    assert found.left_out == [f"2 events of b, dated 1970-01-01, {SAID}"]


def test_many_events_before_the_clock_was_set_do_not_outvote_those_after_it() -> None:
    before = [UNSET._replace(at_unix_ms=at) for at in range(100)]
    found = of([*before, *HANDOVER], now_ms=0)
    assert (found.from_ms, len(found.decisions)) == (T - MARGIN_MS, len(HANDOVER))


def test_a_clock_that_was_never_set_is_brought_to_the_axis() -> None:
    """It was read: how far it is off is known, and its events have their place."""
    off_ms = -T + 5_000
    events = [led(0, "a", 1), told(off_ms + 40, "b", "started")]
    found = of(events, one_machine=False, reads={"a": Span(0, 0), "b": Span(off_ms - 2, off_ms + 2)})
    assert [(one.at_ms, one.code) for one in found.decisions] == [(T, "elected"), (T + 40, "started")]
    assert found.left_out == []


def test_a_clock_that_was_never_set_nor_read_is_left_out() -> None:
    events = [led(0, "a", 1), Told(7_000, "b", 0, "started", "b started")]
    found = of(events, one_machine=False, reads={"a": Span(0, 0)})
    assert [one.code for one in found.decisions] == ["elected"]
    assert found.left_out == [f"1 event of b, dated 1970-01-01, {SAID}"]


def test_one_far_off_stamp_in_a_log_contradicts_nothing() -> None:
    log = [led(0, "a", 1), UNSET, told(50, "b", "follows", "b follows a (term 1)"), UNSET, told(90, "b", "paused")]
    found = of(log, one_machine=False, reads={"b": Span(0, 0)}, logs=[("b", log)])
    assert CONTRADICTION not in found.notes


def test_a_quiet_cluster_may_be_old() -> None:
    """Nothing happened for more than a year since: that is no far-off stamp."""
    found = of(HANDOVER, now_ms=T + 3 * FAR_MS)
    assert (found.from_ms, found.to_ms, found.left_out) == (T - MARGIN_MS, T + 3 * FAR_MS, [])
