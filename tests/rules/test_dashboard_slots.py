"""The slots on the page: what is read and what is not, changes, rates. Without a browser."""

from __future__ import annotations

from primacy.dashboard.slots import PLAIN, SAMPLES_MAX, Declared, SlotSeen, SlotsSeen, counted, read, slots_view
from primacy.settings.schema_work import SLOT_KINDS


def test_only_what_a_read_leaves_as_it_is_and_everybody_may_read_is_read() -> None:
    assert {kind for kind in SLOT_KINDS if kind not in PLAIN} == {"token_bucket", "leaky_bucket", "atomic"}
    assert Declared("000", "atomic").why_not == "not read: a read would change it"
    assert Declared("000", "simple_memory", restricted=True).why_not == "not read: it is for its users"
    assert Declared("000", "simple_memory").why_not == ""


def test_values_changes_and_a_line_of_numbers() -> None:
    seen = SlotSeen()
    for at_ms, value in enumerate((b"5", b"5", b"x", b"7.5"), 1):
        seen = read(seen, value, at_ms)
    assert seen == SlotSeen("7.5", True, 4, 2, (5.0, 5.0, None, 7.5)), "the first value is no change"
    for _ in range(2 * SAMPLES_MAX):
        seen = read(seen, b"\xff", 9)
    assert len(seen.samples) == SAMPLES_MAX
    assert seen.value == "\\xff"
    assert read(SlotSeen(), b"1e999", 1).samples == (None,)


def test_rates_begin_anew_with_another_node_or_another_start() -> None:
    seen = counted(SlotsSeen(), "a", {"slots_requests": 100, "slots_open": 3}, 1_000)
    assert (seen.open_now, seen.rates["slots_requests"].samples) == (3, ())
    seen = counted(seen, "a", {"slots_requests": 150}, 1_500)
    assert seen.rates["slots_requests"].samples == (100.0,)
    assert counted(seen, "a", {"slots_requests": 4}, 2_000).rates["slots_requests"].samples == ()
    assert counted(seen, "b", {"slots_requests": 900}, 2_000).rates["slots_requests"].samples == ()


def test_what_is_not_known_is_shown_as_such() -> None:
    declared = [Declared("000", "simple_memory"), Declared("001", "atomic")]
    first, second = slots_view(declared, SlotsSeen())["slots"]
    assert (first["known"], first["why"]) == (False, "not known yet")
    assert (second["known"], second["why"]) == (False, "not read: a read would change it")
    seen = SlotsSeen({"000": read(SlotSeen(), b"v", 1)}, counters_error="")
    assert slots_view(declared, seen)["slots"][0]["known"] is True
    lost = slots_view(declared, seen._replace(error="nobody leads"))
    assert (lost["slots"][0]["known"], lost["slots"][0]["why"]) == (False, "not known: nobody leads")
    assert slots_view(declared, seen._replace(counters_error="gone"))["open_now"] is None
