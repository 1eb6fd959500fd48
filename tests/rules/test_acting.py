"""Who is shown as acting: one function for `/v1/cluster`, `status` and the dashboard."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primacy.control.acting import (
    CLAIM_MS,
    LOOKS_MS,
    NEWS_MS,
    Acting,
    Rules,
    Statement,
    not_known,
    rules_of,
    shown_as,
)
from primacy.settings.timing import PROFILES

NOW_MS = 100_000
FAST = PROFILES["fast"]
RAFT = rules_of("raft", FAST.heartbeat_ms, FAST.term_at_ms, FAST.hold_ms)
LEASE = rules_of("lease", FAST.heartbeat_ms, FAST.term_at_ms, FAST.hold_ms)
BULLY = rules_of("bully", 100, 0, 0)


def holder(node: str = "a", *, silent_ms: int = 50, token: int = 1, ran_ms: int = 9_000, **more: object) -> Statement:
    at_ms = NOW_MS - silent_ms
    found = Statement(node, "running", at_ms, at_ms, at_ms - ran_ms, token, 900, node)
    return found._replace(**more)  # type: ignore[arg-type]


def follower(node: str, of: str = "", silent_ms: int = 40) -> Statement:
    return Statement(node, "stopped", NOW_MS - silent_ms, NOW_MS - silent_ms, leader=of)


def of(*statements: Statement, rules: Rules = RAFT, at_once: tuple[str, ...] = ()) -> str:
    shown = shown_as(statements, NOW_MS, rules, at_once)
    return " ".join(str(shown[each.node]) for each in statements)


def test_who_is_heard_acts_and_who_says_that_nothing_is_left_does_not() -> None:
    assert of(holder(), follower("b", "a"), Statement("c")) == "acts no no"
    assert of(holder(state="stuck")) == of(holder(state="starting")) == of(holder(state="stopping")) == "acts"


def test_a_holder_that_is_not_heard_any_more_is_unknown_and_never_acts() -> None:
    assert of(holder(silent_ms=RAFT.fresh_ms)) == "acts"
    assert of(holder(silent_ms=RAFT.fresh_ms + 1)) == "unknown"
    assert of(holder(silent_ms=600_000), follower("b")) == "unknown no", "the reader may be the part that is cut off"


def test_a_heartbeat_keeps_what_was_said_but_not_for_ever() -> None:
    said = holder(silent_ms=1_000, heard_ms=NOW_MS - 20)
    assert of(said) == "acts"
    assert of(holder(silent_ms=CLAIM_MS + 1, heard_ms=NOW_MS - 20)) == "unknown"
    assert of(holder(silent_ms=9_000, hold_ms=10_000, heard_ms=NOW_MS - 20)) == "acts"


def test_its_time_is_over_when_its_hold_is_and_a_majority_follows_somebody_else_or_nobody() -> None:
    late = holder(silent_ms=FAST.hold_ms + 1)
    others = [follower(name) for name in "bcde"]
    assert of(late, *others).split()[0] == "over"
    assert of(late, *others[:2], Statement("d"), Statement("e")).split()[0] == "unknown", "2 of 5 deny it"
    loyal = [each._replace(leader="a") for each in others[2:]]
    assert of(late, *others[:2], *loyal).split()[0] == "unknown"
    assert of(holder(silent_ms=FAST.hold_ms - 1), *others).split()[0] == "unknown", "its hold lasts"
    assert of(late, *others, rules=LEASE).split()[0] == "acts", "news of a lease come once a second"
    assert of(late._replace(state="stuck"), *others).split()[0] == "unknown", "the kernel keeps it alive"


def test_a_frozen_holder_never_acts_and_its_hold_ends_its_time() -> None:
    assert of(holder(silent_ms=0, process="frozen")) == "unknown"
    assert of(holder(silent_ms=FAST.hold_ms + 1, process="frozen")) == "over"
    assert of(holder(silent_ms=0, process="killed")) == "unknown"
    assert of(holder(silent_ms=0, process="stopped")) == "over", "it ended in order: its command before it"


def test_a_later_start_ends_an_older_claim() -> None:
    new = holder("b", token=2, ran_ms=30)
    assert of(holder(silent_ms=200), new) == "over acts"
    assert of(holder(silent_ms=600_000), new) == "over acts"


def test_two_that_were_seen_at_once_are_both_shown() -> None:
    new = holder("b", token=2, ran_ms=5_000)
    assert of(holder(silent_ms=100), new) == "acts acts", "it claimed to act five seconds after the other had started"
    both = holder(silent_ms=200), holder("b", token=2, ran_ms=30)
    assert of(*both, at_once=("a", "b")) == "acts acts"


def test_a_strategy_without_a_hold_promises_no_end() -> None:
    assert of(holder(silent_ms=600_000), *(follower(name) for name in "bcde"), rules=BULLY).split()[0] == "unknown"


@pytest.mark.parametrize(("strategy", "least"), [("raft", LOOKS_MS), ("lease", NEWS_MS), ("bully", NEWS_MS)])
@pytest.mark.parametrize("profile", PROFILES)
def test_silence_means_nothing_before_a_holder_would_stop_by_itself(strategy: str, least: int, profile: str) -> None:
    timing = PROFILES[profile]
    rules = rules_of(strategy, timing.heartbeat_ms, timing.term_at_ms, timing.hold_ms)
    assert rules.fresh_ms >= max(least, timing.term_at_ms)


SPAN = st.integers(0, 20_000)
STATEMENTS = st.lists(
    st.builds(
        lambda node, silent, ran, token, state, process, leader: Statement(
            node, state, NOW_MS - silent, NOW_MS - silent, NOW_MS - silent - ran, token, 900, leader, process=process
        ),
        st.sampled_from("abcde"),
        SPAN,
        SPAN,
        st.integers(1, 9),
        st.sampled_from(["running", "starting", "stopping", "stuck", "stopped"]),
        st.sampled_from(["", "", "frozen", "killed", "stopped"]),
        st.sampled_from(["", *"abcde"]),
    ),
    max_size=5,
    unique_by=lambda each: each.node,
)


@given(STATEMENTS, st.sampled_from([RAFT, LEASE, BULLY]))
def test_whatever_was_heard_nobody_acts_who_is_silent_stands_still_or_said_no(
    said: list[Statement], rules: Rules
) -> None:
    shown = shown_as(said, NOW_MS, rules)
    assert set(shown) == {each.node for each in said}
    for each in said:
        silent_ms = NOW_MS - (each.said_ms or 0)
        if shown[each.node] is Acting.ACTS:
            assert not each.process
            assert silent_ms <= rules.fresh_ms
            assert each.state != "stopped"
    acting = [each for each in said if shown[each.node] is Acting.ACTS]
    for one, other in itertools.combinations(sorted(acting, key=lambda each: each.began_ms), 2):
        assert (one.said_ms or 0) > other.began_ms + rules.slack_ms or one.began_ms == other.began_ms, (
            "two are shown only if the older one still claimed it after the newer one had started"
        )


# --- what a node cannot know ------------------------------------------------------------------------------------------


def unsure(*statements: Statement, rules: Rules = RAFT) -> str:
    return not_known("b", statements, shown_as(statements, NOW_MS, rules), NOW_MS, rules)


def test_a_node_that_hears_nobody_does_not_know_whether_the_command_runs_elsewhere() -> None:
    alone = unsure(follower("b", silent_ms=0), Statement("a"), Statement("c"))
    assert alone == "this node hears nobody; it does not know whether the command runs elsewhere"
    assert unsure(follower("b", silent_ms=0), Statement("a"), rules=BULLY) == alone
    assert unsure(follower("b", silent_ms=0)) == "", "a cluster of one"


def test_a_node_that_hears_less_than_a_majority_says_so() -> None:
    said = unsure(follower("b", silent_ms=0), follower("c"), *(Statement(name) for name in "ade"))
    assert said.startswith("this node hears 2 of 5 nodes, 3 are needed; it does not know")
    assert unsure(follower("b", silent_ms=0), follower("c"), follower("a")) == "", "a majority is heard: nobody runs it"


def test_the_last_word_of_a_holder_that_is_lost_is_told_with_its_age() -> None:
    said = unsure(follower("b", silent_ms=0), holder(silent_ms=61_000), Statement("c"))
    assert said == ("node a ran the command when it was last heard, 61 s ago; whether it still does is not known here")
    assert unsure(follower("b", silent_ms=0), holder()) == ""


def test_a_leader_that_only_others_hear() -> None:
    said = unsure(follower("b", silent_ms=0), follower("c", "a"), Statement("a"))
    assert said == "node a leads, as others say; whether the command runs there is not known here"
