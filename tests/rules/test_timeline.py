"""The fold from events to a timeline: roles, runs, gaps, clocks, and overlaps that are claimed only outside of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from primacy.agent.sentences import links_sentence
from primacy.lab.lab_server import ACTIONS, MENDED, STORE_BACK
from primacy.lab.network import link_text
from primacy.timeline.clocks import SLACK_MS, TICK_MS, Span, clocks_of
from primacy.timeline.fold import EVENTS_MAX, ROLES, SAID_MS, Facts, timeline_of
from primacy.timeline.lab_faults import NODE, lab_faults
from primacy.timeline.overlap import gaps, overlaps
from primacy.timeline.schema import NETWORK, Node, Run, Timeline, Told

T = 1_794_700_000_000
"""Where the invented clusters begin."""


def told(at: int, node: str, code: str, text: str = "", term: int = 1) -> Told:
    return Told(T + at, node, term, code, text or f"{node} {code}")


def runs(at: int, node: str, term: int = 1, run: int = 1) -> Told:
    return told(at, node, "running", f"the command runs: process 4120, run {run}", term)


def told_to_end(at: int, node: str, left_ms: int = 300) -> Told:
    return told(
        at, node, "stopping", f"the command is told to end, and is killed if it lasts {left_ms} ms more"
    )._replace(value=left_ms)


def gone(at: int, node: str, term: int = 1) -> Told:
    return told(at, node, "gone", "nothing of the command is left (run 1)", term)


def led(at: int, node: str, term: int) -> Told:
    return told(at, node, "elected", f"{node} leads (term {term})", term)


def follows(at: int, node: str, leader: str, term: int) -> Told:
    return told(at, node, "follows", f"{node} follows {leader} (term {term})", term)


HANDOVER = [
    *(told(0, node, "started") for node in "abc"),
    led(1_000, "a", 1),
    follows(1_010, "b", "a", 1),
    follows(1_012, "c", "a", 1),
    runs(1_020, "a"),
    told(9_000, "a", "majority-lost", "a lost its majority and stops its work (term 1)"),
    told_to_end(9_001, "a"),
    gone(9_030, "a"),
    led(10_000, "b", 2),
    runs(10_060, "b", 2),
    follows(10_100, "a", "b", 2),
    follows(10_105, "c", "b", 2),
]


def of(events: list[Told], **facts: object) -> Timeline:
    """`acting`: who says so now."""
    given: dict[str, object] = {"now_ms": T + 20_000, "one_machine": True, **facts}
    given["acting"] = dict.fromkeys(facts.get("acting", ()), T + 20_000)  # type: ignore[call-overload]
    return timeline_of(events, Facts(**given))  # type: ignore[arg-type]


# --- roles and runs ---------------------------------------------------------------------------------------------------


def test_roles_follow_each_other_with_their_terms() -> None:
    found = [row for row in of(HANDOVER).roles if row.node == 0]
    assert [(row.from_ms - T, row.to_ms - T, row.role, row.term) for row in found] == [
        (0, 1_000, "starting", 1),
        (1_000, 9_000, "leader", 1),
        (9_000, 10_100, "follower", 1),
        (10_100, 20_000, "follower", 2),
    ]


def test_who_is_paused_stays_so_when_it_loses_the_lead() -> None:
    events = [led(0, "a", 1), told(500, "a", "paused"), told(600, "a", "released"), follows(900, "a", "b", 2)]
    assert [row.role for row in of(events).roles] == ["leader", "paused", "follower"]


def test_who_is_paused_in_the_same_millisecond_in_which_it_loses_the_lead_stays_paused() -> None:
    events = [led(0, "a", 1), told(500, "a", "paused"), told(500, "a", "step-down"), told(510, "a", "released")]
    assert [row.role for row in of(events).roles] == ["leader", "paused"]


def test_a_leader_that_was_killed_is_no_leader_for_ever() -> None:
    """It says nothing any more. As soon as another leads in a later term, its role is not known."""
    events = [led(0, "a", 1), led(5_000, "b", 2)]
    assert [(row.node, row.from_ms - T, row.to_ms - T, row.role) for row in of(events).roles] == [
        (0, 0, 5_000, "leader"),
        (0, 5_000, 20_000, "unknown"),
        (1, 5_000, 20_000, "leader"),
    ]
    back = [*events, told(9_000, "a", "started")]
    assert [(row.from_ms - T, row.to_ms - T, row.role) for row in of(back).roles if row.node == 0] == [
        (0, 5_000, "leader"),
        (5_000, 9_000, "unknown"),
        (9_000, 20_000, "starting"),
    ]


def test_a_leader_that_tells_its_end_led_until_then() -> None:
    events = [led(0, "a", 1), led(5_000, "b", 2), told(7_000, "a", "majority-lost")]
    assert next(row.to_ms - T for row in of(events).roles if row.role == "leader" and row.node == 0) == 7_000


def test_a_leader_that_a_lab_froze_is_no_leader_any_more_once_another_leads() -> None:
    frozen = [told(4_000, "a", "lab", "the lab freezes node a"), told(6_900, "a", "lab", "the lab thaws node a")]
    events = [led(0, "a", 1), *frozen, led(5_000, "b", 2), told(7_000, "a", "majority-lost")]
    assert [(row.from_ms - T, row.to_ms - T, row.role) for row in of(events).roles if row.node == 0] == [
        (0, 5_000, "leader"),
        (5_000, 7_000, "unknown"),
        (7_000, 20_000, "follower"),
    ]


def test_two_leaders_stay_two_where_that_is_promised() -> None:
    found = of([led(0, "a", 1), led(5_000, "b", 2)], at_most_one=False)
    assert [row.role for row in found.roles] == ["leader", "leader"]


def test_the_role_of_a_node_that_is_not_heard_is_not_known() -> None:
    found = of([follows(0, "a", "b", 1)], silent={"a": T + 12_000})
    assert [(row.from_ms - T, row.to_ms - T, row.role) for row in found.roles] == [
        (0, 12_000, "follower"),
        (12_000, 20_000, "unknown"),
    ]
    stopped = of([told(0, "a", "stopping")], silent={"a": T + 12_000})
    assert [row.role for row in stopped.roles] == ["down"], "why it is silent is known"


@pytest.mark.parametrize("name", ["the", "nothing", "lost"])
def test_a_node_may_be_called_like_the_first_word_of_a_sentence(name: str) -> None:
    found = of([led(0, name, 1), runs(10, name), told_to_end(900, name), gone(930, name)])
    assert [(row.from_ms - T, row.sure_ms - T, row.end) for row in found.runs] == [(10, 930, "confirmed")]


def test_an_event_that_two_logs_have_is_told_once() -> None:
    assert of(HANDOVER + HANDOVER, acting=["b"]) == of(HANDOVER, acting=["b"])


def test_a_note_of_the_command_is_no_role() -> None:
    """Both have the code `stopping`; the sentence tells them apart."""
    events = [led(0, "a", 1), told(500, "a", "stopping", "the command is told to end"), told(900, "a", "stopping")]
    assert [(row.from_ms - T, row.role) for row in of(events).roles] == [(0, "leader"), (900, "down")]


def test_runs_have_their_token_and_the_gap_between_them_its_length() -> None:
    found = of(HANDOVER, acting=["b"], token_base=1_000_000_000_000)
    assert [(row.node, row.token, row.end) for row in found.runs] == [
        (0, 1_000_000_000_001, "confirmed"),
        (1, 1_000_000_000_002, "open"),
    ]
    assert [(gap.to_ms - gap.from_ms, gap.uncertainty_ms) for gap in found.gaps] == [(1_030, 2 * TICK_MS)]
    assert found.overlaps == []


def test_the_token_of_a_lease_stands_in_the_place_of_the_term() -> None:
    assert of([runs(0, "a", term=T + 7)]).runs[0].token == T + 7
    assert of([runs(0, "a", term=7)]).runs[0].token == 0


def test_a_killed_node_confirms_nothing_so_no_gap_and_no_overlap_is_claimed() -> None:
    events = [*HANDOVER[:7], led(10_000, "b", 2), runs(10_060, "b", 2)]
    found = of(events, kind="cluster", acting=["b"])
    first = found.runs[0]
    assert (first.end, first.sure_ms - T, first.to_ms - T) == ("unknown", 1_020, 10_060)
    assert (found.gaps, found.overlaps) == ([], [])


def test_a_run_of_a_silent_node_may_last_until_its_hold_ends() -> None:
    events = [*HANDOVER[:7], led(10_000, "b", 2), runs(10_060, "b", 2)]
    found = of(events, holds=[("a", T + 6_000, T + 9_000, 0)])
    assert found.runs[0].to_ms - T == 9_000


def test_a_release_that_others_took_ends_the_run_of_a_killed_node() -> None:
    """Its guard told them that nothing is left. When that was, nobody says: no gap is claimed."""
    taken = told(9_013, "b", "release-applied", "b takes the release by a (term 1)")
    events = [*HANDOVER[:7], taken, led(9_041, "b", 2), runs(9_057, "b", 2)]
    found = of(events, acting=["b"], holds=[("a", T + 8_900, T + 9_900, 0)])
    first = found.runs[0]
    assert (first.end, first.sure_ms - T, first.to_ms - T) == ("confirmed", 8_900, 9_013)
    assert found.gaps == []
    other = [one._replace(term=0, text="b takes the release by a (term 0)") if one is taken else one for one in events]
    assert of(other, acting=["b"]).runs[0].end == "unknown", "of another term"


FROZEN = [
    *HANDOVER[:7],
    told(5_000, "a", "late-ack"),
    told(15_000, "a", "majority-lost", "a lost its majority and stops its work (term 1)"),
    told_to_end(15_000, "a", left_ms=0),
    gone(15_003, "a"),
    led(10_000, "b", 2),
    runs(10_060, "b", 2),
]
"""As a real lab told it: a's guard ended its command at the end of the hold, and a reported that when it was thawed."""


def test_an_end_that_a_frozen_node_reports_when_it_wakes_is_no_overlap() -> None:
    found = of(FROZEN, acting=["b"])
    first = found.runs[0]
    assert (first.end, first.sure_ms - T, first.to_ms - T) == ("confirmed", 1_020, 15_003)
    assert (found.overlaps, found.gaps) == ([], [])


def test_the_same_end_in_time_is_an_overlap() -> None:
    """It is what tells a late report from two at once: the command was told to end before its time was over."""
    events = [one._replace(value=300) if one.code == "stopping" else one for one in FROZEN]
    assert [(one.from_ms - T, one.to_ms - T) for one in of(events, acting=["b"]).overlaps] == [(10_060, 15_003)]
    late = [one._replace(at_unix_ms=one.at_unix_ms + 400) if one.code == "gone" else one for one in events]
    assert [one.to_ms - T for one in of(late, acting=["b"]).overlaps] == [15_000], "sure up to when it was told to end"


def test_while_the_report_is_on_its_way_nothing_is_claimed_either() -> None:
    """A page may look between what a node says when it wakes up and the report of its guard."""
    assert of([one for one in FROZEN if one.code != "gone"], acting=["b"]).overlaps == []


def test_who_is_still_shown_as_acting_was_sure_when_it_said_so() -> None:
    """A page hears of the next run at once, and of the end of the one before perhaps a moment later."""
    events = [runs(0, "a"), runs(10_000, "b", 2)]
    facts = Facts(T + 10_900, one_machine=True, acting={"a": T + 9_950, "b": T + 10_900})
    assert timeline_of(events, facts).overlaps == []
    facts = facts._replace(acting={"a": T + 10_800, "b": T + 10_900})
    assert [(one.from_ms - T, one.to_ms - T) for one in timeline_of(events, facts).overlaps] == [(10_000, 10_700)]


def test_a_renewal_that_was_heard_shows_that_it_ran() -> None:
    found = of(FROZEN, acting=["b"], holds=[("a", T + 6_000, T + 7_000, 0), ("b", T + 19_500, T + 20_500, 0)])
    assert found.runs[0].sure_ms - T == 6_000
    assert found.overlaps == []


def test_a_node_that_a_lab_froze_is_sure_of_nothing_from_then_on() -> None:
    events = [one._replace(value=300) if one.code == "stopping" else one for one in FROZEN]
    found = of([*events, lab(6_000, "a", "the lab freezes node a"), lab(14_999, "a", "the lab thaws node a")])
    assert (found.runs[0].sure_ms - T, found.overlaps) == (6_000, [])


def test_a_node_that_renewed_its_hold_after_it_was_thawed_ran_all_the_time() -> None:
    events = [*HANDOVER[:7], lab(5_000, "a", "the lab freezes node a"), lab(5_300, "a", "the lab thaws node a")]
    found = of(events, acting=["a"], holds=[("a", T + 19_500, T + 20_500, 0)])
    assert found.runs[0].sure_ms - T == 20_000 - SAID_MS
    before = of(events, acting=["a"], holds=[("a", T + 4_900, T + 5_900, 0)])
    assert before.runs[0].sure_ms - T == 5_000, "it may not know yet that its time is over"


def test_a_restart_of_the_agent_ends_what_it_did_not_report() -> None:
    found = of([runs(0, "a"), told(4_000, "a", "started"), runs(5_000, "a", 2)], acting=["a"])
    assert [(row.from_ms - T, row.to_ms - T, row.end) for row in found.runs] == [
        (0, 4_000, "unknown"),
        (5_000, 20_000, "open"),
    ]


# --- clocks -----------------------------------------------------------------------------------------------------------


def ran(node: int, start: float, end: float) -> Run:
    return Run(node, start, end, 0, 1, end)


@pytest.mark.parametrize(
    ("length", "unsure", "claimed"),
    [(10, 0.0, True), (10, 4.0, True), (10, 5.0, False), (10, 6.0, False), (10, None, False)],
)
def test_an_overlap_is_claimed_only_outside_of_the_uncertainty(
    length: int, unsure: float | None, claimed: bool
) -> None:
    nodes = [Node("a", 0.0, unsure), Node("b", 0.0, unsure)]
    assert bool(overlaps([ran(0, 0, 100), ran(1, 100 - length, 200)], nodes)) is claimed


def test_the_same_node_never_overlaps_with_itself_and_its_gaps_are_certain() -> None:
    nodes = [Node("a", 0.0, None)]
    assert overlaps([ran(0, 0, 100), ran(0, 50, 150)], nodes) == []
    assert [gap.uncertainty_ms for gap in gaps([ran(0, 0, 100), ran(0, 150, 200)], nodes)] == [0.0]


def test_no_gap_while_a_third_one_runs() -> None:
    nodes = [Node("a"), Node("b"), Node("c")]
    assert gaps([ran(0, 0, 100), ran(1, 10, 20), ran(2, 110, 120)], nodes) == gaps(
        [ran(0, 0, 100), ran(2, 110, 120)], nodes
    )


def test_a_clock_that_was_read_is_known_to_half_of_the_round_trip() -> None:
    (a, b), note = clocks_of(["a", "b"], [], {"a": Span(-3.0, 5.0), "b": Span(490.0, 510.0)})
    assert (a.offset_ms, a.uncertainty_ms, a.clock) == (0.0, 5.0, "read")  # it may be right: it stays as it is
    assert (b.offset_ms, b.uncertainty_ms, b.clock) == (500.0, 10.0, "read")
    assert note == ""


def test_times_of_a_clock_that_is_ahead_are_brought_back() -> None:
    """b's clock is 5 s ahead: without this its run would stand 4 s after the end of a's, in truth it overlaps."""
    events = [runs(0, "a"), told_to_end(8_900, "a"), gone(9_000, "a"), runs(13_000, "b", 2)]
    found = of(events, one_machine=False, reads={"a": Span(-2, 2), "b": Span(4_995, 5_005)}, acting=["b"])
    assert [(row.node, row.from_ms - T) for row in found.runs] == [(0, 0), (1, 8_000)]
    assert [(one.from_ms - T, one.to_ms - T) for one in found.overlaps] == [(8_000, 9_000)]
    assert [one.text for one in found.violations] == ["a and b ran at the same time"]
    assert of(events, one_machine=False, reads={"a": Span(-2, 2)}, acting=["b"]).overlaps == []


def test_the_order_of_events_bounds_a_clock_that_was_never_read() -> None:
    events = [led(0, "a", 1), follows(10, "b", "a", 1), led(5_000, "b", 2), follows(5_020, "a", "b", 2)]
    (a, b), note = clocks_of(["a", "b"], events)
    assert (a.uncertainty_ms, a.clock) == (0.0, "axis")
    assert (b.offset_ms, b.uncertainty_ms, b.clock) == (0.0, 20 + SLACK_MS + TICK_MS, "order")
    ahead = [one._replace(at_unix_ms=one.at_unix_ms + 700) if one.node == "b" else one for one in events]
    (_, b), note = clocks_of(["a", "b"], ahead)
    assert b.uncertainty_ms is not None
    assert abs(b.offset_ms - 700) <= b.uncertainty_ms < 100
    assert note == ""


def test_one_side_of_a_bound_is_none() -> None:
    (_, b), _ = clocks_of(["a", "b"], [led(0, "a", 1), follows(10, "b", "a", 1)])
    assert (b.uncertainty_ms, b.clock) == (None, "unknown")


def test_a_log_says_what_came_before_what_its_node_wrote_next() -> None:
    """a is told by b before it writes on: with the other side of the bound, b's clock is known."""
    events = [led(0, "a", 1), follows(10, "b", "a", 1), told(100, "a", "step-down")]
    (_, b), _ = clocks_of(["a", "b"], events, logs=[("a", events)])
    assert b.uncertainty_ms == 90 + SLACK_MS + TICK_MS


def test_a_clock_that_was_set_meanwhile_is_said_and_nothing_is_claimed() -> None:
    events = [led(0, "a", 1), follows(10, "b", "a", 1), led(9_000, "b", 2), follows(4_000, "a", "b", 2)]
    (_, b), note = clocks_of(["a", "b"], events)
    assert b.uncertainty_ms is None
    assert "a clock was set" in note
    read, note = clocks_of(["a", "b"], events, {"a": Span(-1, 1), "b": Span(-1, 1)})
    assert [node.uncertainty_ms for node in read] == [None, None], "a read of now says nothing of before"
    assert "a clock was set" in note


def test_followers_of_a_lease_prove_no_order() -> None:
    """They read the row, perhaps before its holder has the answer."""
    events = [led(0, "a", T), follows(10, "b", "a", T), led(5_000, "b", T + 1), follows(5_020, "a", "b", T + 1)]
    assert clocks_of(["a", "b"], events)[0][1].uncertainty_ms is None


def test_the_page_says_whose_clock_is_not_known() -> None:
    assert list(of([runs(0, "b")], one_machine=False, names=["a"]).notes) == [
        "How far the clock of b is off is not known: no overlap with it is claimed."
    ]


def test_two_at_once_is_no_violation_where_that_is_promised() -> None:
    ends = [told_to_end(4_900, "a"), gone(5_000, "a"), told_to_end(5_900, "b"), gone(6_000, "b")]
    found = of([runs(0, "a"), runs(1_000, "b"), *ends], at_most_one=False)
    assert (len(found.overlaps), found.violations) == (1, [])


# --- a lab ------------------------------------------------------------------------------------------------------------


def lab(at: int, node: str, text: str) -> Told:
    return Told(T + at, node, 0, "lab", text)


def test_faults_of_a_lab_last_until_they_are_mended() -> None:
    events = [
        lab(0, "a", "the lab kills node a, asked for by the dashboard"),
        lab(2_000, "b", "the lab freezes node b (guard)"),
        lab(3_000, "a", "the lab starts node a"),
        lab(
            4_000,
            "lab",
            "the lab divides the network: the leader is alone, the others are together, asked for by the dashboard",
        ),
        lab(4_500, "c", "the lab cuts the link between c and a, asked for by the dashboard"),
        lab(5_000, "b", "the lab thaws node b"),
        lab(6_000, "lab", "the lab mends all links"),
        lab(7_000, "a", "the lab stops node a"),
    ]
    found = of([told(0, node, "started") for node in "abc"] + events).faults
    assert [(row.node, row.from_ms - T, row.to_ms - T, row.text) for row in found] == [
        (0, 0, 3_000, "killed"),
        (1, 2_000, 5_000, "frozen"),
        (NETWORK, 4_000, 6_000, "divided: the leader is alone, the others are together"),
        (NETWORK, 4_500, 6_000, "link between c and a cut"),
        (0, 7_000, 20_000, "stopped"),
    ]


BEFORE = "the lab sets the link of {} with {}: cut {}"
"""As labs of before said it: what they kept is read as ever."""


@pytest.mark.parametrize("said", [link_text, BEFORE.format])
def test_a_link_of_a_lab_is_cut_one_way_and_whole_again(said: Callable[[str, str, str], str]) -> None:
    asked = [(1_000, "b", "c", "in"), (2_000, "c", "b", "out"), (3_000, "c", "b", "both"), (4_000, "b", "c", "none")]
    events = [lab(at, node, f"{said(node, other, way)}, asked for by ann") for at, node, other, way in asked]
    found = of([told(0, node, "started") for node in "abc"] + events).faults
    assert [(row.node, row.from_ms - T, row.to_ms - T, row.text) for row in found] == [
        (NETWORK, 1_000, 2_000, "link from c to b cut"),
        (NETWORK, 2_000, 3_000, "link from c to b cut"),
        (NETWORK, 3_000, 4_000, "link between c and b cut"),
    ]


@pytest.mark.parametrize("word", [word for _, word in ACTIONS.values()])
def test_every_action_of_the_lab_is_understood(word: str) -> None:
    assert NODE.match(f"the lab {word} node a") is not None


def test_a_store_that_is_away_lasts_and_a_killed_command_is_a_moment_and_what_ends_by_itself_ends() -> None:
    over = "for the time of the fault is over"
    events = [
        lab(0, "", "the lab keeps the store from all nodes, asked for by the drill"),
        lab(900, "", f"{STORE_BACK}, {over}"),
        lab(1_000, "a", "the lab kills the command of node a, asked for by the drill"),
        lab(2_000, "a", "the lab freezes node a (guard), asked for by the drill"),
        lab(2_500, "a", f"the lab thaws node a, {over}"),
        lab(3_000, "", "the lab divides the network: no side has a majority, asked for by the drill"),
        lab(3_700, "", f"{MENDED}, {over}"),
    ]
    assert [(row.node, row.from_ms - T, row.to_ms - T, row.text) for row in lab_faults(events, T + 9_000)] == [
        ("", 0, 900, "store away"),
        ("a", 1_000, 1_000, "command killed"),
        ("a", 2_000, 2_500, "frozen"),
        ("", 3_000, 3_700, "divided: no side has a majority"),
    ]


def test_a_sentence_that_cannot_be_read_is_a_moment() -> None:
    assert lab_faults([lab(5, "a", "the lab does something new")], T)[0][1:3] == (T + 5, T + 5)


def test_a_restart_ends_with_the_start_of_the_node() -> None:
    events = [told(0, "a", "started"), lab(5_000, "a", "the lab restarts node a"), told(6_200, "a", "started")]
    assert [(row.from_ms - T, row.to_ms - T) for row in of(events).faults] == [(5_000, 6_200)]


def links_before(node: str, links: Mapping[str, str]) -> str:
    """As agents of before said it: their histories are read as ever."""
    return f"{node} has its links cut: {', '.join(f'{name} {way}' for name, way in links.items() if way != 'none')}"


@pytest.mark.parametrize("said", [links_sentence, links_before])
def test_links_that_a_node_says_are_cut(said: Callable[[str, Mapping[str, str]], str]) -> None:
    events = [
        *(told(0, node, "started") for node in "abc"),
        told(1_000, "a", "links", said("a", {"b": "both", "c": "in"})),
        told(2_000, "a", "links", said("a", {"b": "out", "c": "none"})),
        told(3_000, "a", "links", links_sentence("a", {"b": "none", "c": "none"})),
    ]
    assert [(row.node, row.from_ms - T, row.to_ms - T, row.cut) for row in of(events).links] == [
        (0, 1_000, 2_000, ((1, "both"), (2, "in"))),
        (0, 2_000, 3_000, ((1, "out"),)),
    ]


# --- the document -----------------------------------------------------------------------------------------------------


def test_the_document_is_json_with_every_field() -> None:
    found = json.loads(json.dumps(of(HANDOVER, chain=[(T, "a", 1, 200)]).document()))
    assert found["timeline"] == 1
    assert set(Timeline._fields) <= set(found)
    assert found["nodes"][0] == {"name": "a", "offset_ms": 0.0, "uncertainty_ms": 1.0, "clock": "machine"}
    assert found["chain"] == [[T, 0, 1, 200]]


def test_nothing_is_a_timeline_too() -> None:
    found = of([])
    assert (found.to_ms, list(found.nodes), list(found.runs)) == (T + 20_000, [], [])


def test_it_is_bounded_and_what_is_left_out_is_counted() -> None:
    found = of([told(at, "a", "late-ack") for at in range(EVENTS_MAX + 5)])
    assert (len(found.decisions), found.left_out) == (EVENTS_MAX, ["5 older events"])


def test_every_code_that_makes_a_role_is_one_of_the_election() -> None:
    from primacy.election.events import Code

    assert set(ROLES) <= {str(code) for code in Code}
