"""All nodes seen from one: what they say of themselves, who acts, alerts."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from primacy.cli.why import change_line, members_line
from primacy.control import earlier, gossip_rows
from primacy.control.acting import CLAIM_MS
from primacy.control.changes import changes, members_changes
from primacy.control.cluster import cluster
from primacy.control.document import document
from primacy.control.gossip_rows import GossipEvent, GossipReply, GossipRequest, event_row, read, reply_row, request_row
from primacy.control.summary import MEMBERS_AT, Summary, row_of, sent_in, short, summary_in, summary_of
from primacy.election.model import DOUBLED
from primacy.errors import UsageError
from primacy.transport import Trouble
from primacy.transport.duplicates import FORGOTTEN_S, LEAST_COUNT, LEAST_S, Duplicates
from primacy.transport.layout import packed_word, unpacked_word
from primacy.transport.seal import DATAGRAM_BYTES_MAX, Seal, Sort
from tests.support.control_harness import FOLLOWS, NOW_MS, RUNS, VIEW, Work, node_status, seen

BIG = 2**62 - 1
NAME = "node-of-twenty-chars"
LONGEST = Summary(
    role="candidate",
    term=BIG,
    leader=NAME,
    token=2**53 - 1,
    hold_left_ms=86_400_000,
    waits_for="ü" * 500,
    workload_kind="process",
    workload_state="stopping",
    run_ms=BIG,
    pid=4_194_304,
    containment="strong",
    health="failing: " + "ü" * 500,
    version="100.200.300.dev400+abcdef",
    config="f" * 16,
    doubled=(NAME,) * 9,
    members=(BIG, BIG),
    untold=(NAME,) * 9,
)


def size(row: list[Any]) -> int:
    return len(Seal("lab", "main", NAME, BIG, (bytes(range(32)),)).sealed(Sort.WORD, NAME, BIG, packed_word(row)))


# --- rows -------------------------------------------------------------------------------------------------------------


def test_the_longest_words_fit_one_datagram_and_come_back() -> None:
    assert size(row_of(LONGEST, BIG)) <= DATAGRAM_BYTES_MAX
    back = summary_in(row_of(LONGEST))
    assert back is not None
    assert back[:5] == LONGEST[:5]
    assert back.waits_for.endswith("ü…")
    assert back.doubled == (NAME, NAME)
    assert (back.members, back.untold) == ((BIG, BIG), (NAME, NAME))
    earlier_version = summary_in(row_of(LONGEST)[:MEMBERS_AT])
    assert earlier_version is not None
    assert (earlier_version.members, earlier_version.untold) == ((0, 0), ())
    happened = GossipEvent(BIG, BIG, "c" * 99, "ü" * 999, BIG)
    assert size(event_row(happened)) <= DATAGRAM_BYTES_MAX
    answer = GossipReply(BIG, 409, "ü" * 999)
    assert size(reply_row(answer)) <= DATAGRAM_BYTES_MAX
    order = GossipRequest(BIG, "step-down", {"x": "y" * 290})
    assert size(request_row(order)) <= DATAGRAM_BYTES_MAX
    assert read(request_row(order)) == order
    with pytest.raises(UsageError, match="more than 300 bytes"):
        request_row(GossipRequest(1, "pause", {"node": "x" * 300}))
    with pytest.raises(UsageError, match="half a character"):
        request_row(GossipRequest(1, "transfer", {"to": "\ud800"}))
    assert short("abc", 3) == "abc"
    assert short("half: \ud800", 300) == "half: ?", "a refusal of what another node passed on quotes it"


def test_a_quiet_node_says_little() -> None:
    """Once a second to each other node: it must not cost what the heartbeats cost."""
    quiet = summary_of(node_status(FOLLOWS, Work(state="stopped", pid=0))._replace(config="0123456789abcdef" * 2))
    assert size(row_of(quiet, 86_400_000)) - len(NAME) <= 95


def test_words_of_a_later_version_are_read_as_far_as_they_are_known() -> None:
    row = row_of(LONGEST)
    assert summary_in([*row, "new", {"x": 1}]) == summary_in(row)
    for place in (1, 6, 7, 10):  # a role, a workload, a state, a containment that is not known yet
        later = summary_in([*row[:place], 99, *row[place + 1 :]])
        assert later is not None
        assert "?" in later[:12]
    assert read([*event_row(GossipEvent(1, 2, "elected", "a leads", 3)), "new"]) == GossipEvent(
        1, 2, "elected", "a leads", 3
    )
    for kind in (0, 5, 99):
        assert read([kind, 1, 2, 3, 4]) is None


def test_garbage_is_nothing_and_never_raises() -> None:
    chance = random.Random(3)
    values: list[Any] = [None, -2, 2**64 - 1, 1.5, "x" * 600, b"\xff" * 20, [], [[[]]], {}, True, "\x1b[31m", 7, "{"]
    rows = [
        row_of(LONGEST),
        event_row(GossipEvent(1, 2, "elected", "a leads", 3)),
        request_row(GossipRequest(1, "pause", {"node": "b"})),
        reply_row(GossipReply(1, 200, "")),
    ]
    for row in rows:
        for place in range(len(row)):
            for value in values:
                changed = [*row[:place], value, *row[place + 1 :]]
                for reader in (summary_in, read):
                    found = reader(changed)  # type: ignore[operator]
                    assert found is None or "\x1b" not in repr(found).replace("\\x1b", "\x1b")
        for _ in range(300):
            data = bytearray(packed_word(row))
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            word = unpacked_word(bytes(data[: chance.randrange(len(data) + 1)]))
            if word is not None:
                summary_in(word)
                read(word)
    for data in (b"", b"\xc0", b"\x90", b"\x91\xa1x", b"\x91\xc3", b"\x91" * 5_000):
        assert unpacked_word(data) is None
    assert read([gossip_rows.ORDER, 1, "pause", "[" * 200]) is None


def test_the_row_is_plain_msgpack() -> None:
    """So that another program could read it."""
    assert msgspec.msgpack.decode(packed_word(row_of(RUNS)))[0] == 1


# --- the document -----------------------------------------------------------------------------------------------------


def test_the_cluster_document_has_a_row_for_each_node_with_its_age() -> None:
    said = cluster(seen(("b", RUNS, 300), ("c", RUNS._replace(workload_state="stopped", run_ms=-1, waits_for="x"), 1)))
    assert {key: said[key] for key in ("api", "cluster", "election", "strategy", "mode", "seen_from")} == {
        "api": 1,
        "cluster": "billing",
        "election": "main",
        "strategy": "raft",
        "mode": "automatic",
        "seen_from": "a",
    }
    rows = {row["node"]: row for row in said["nodes"]}
    assert list(rows) == ["a", "b", "c", "w"]
    assert rows["b"] == {
        "node": "b",
        "kind": "voter",
        "addr": "h:2",
        "heard_ms": 41,
        "told_ms": 300,
        "role": "leader",
        "term": 8,
        "leader": "b",
        "token": 1_794_700_800_008,
        "hold_left_ms": 600,
        "waits_for": None,
        "workload": {
            "kind": "process",
            "state": "running",
            "since": "2023-11-14T22:13:17.700Z",
            "pid": 5,
            "containment": "weak",
        },
        "health": "ok",
        "version": "0",
        "members": None,
        "boot": "9",
        "acting": "acts",
        "trouble": None,
    }
    assert (rows["a"]["heard_ms"], rows["a"]["role"], rows["c"]["waits_for"]) == (0, "follower", "x")
    assert rows["w"]["kind"] == "witness"
    assert {
        rows["w"][key] for key in ("heard_ms", "told_ms", "role", "term", "workload", "health", "hold_left_ms")
    } == {None}
    assert (said["acting"], said["alerts"]) == (["b"], [])
    short_rows = document(seen(("b", RUNS, 300)))["nodes"]
    assert (short_rows[0]["role"], short_rows[0]["workload"], short_rows[1]["workload"]) == ("leader", "running", None)
    late = cluster(seen(("b", RUNS, 5_000)))
    assert late["nodes"][1]["hold_left_ms"] == 0


def test_a_node_that_was_removed_shows_itself_and_says_so() -> None:
    """The others do not list it any more; its own list is all that its operator sees."""
    trouble = Trouble("a", "node a was removed from the cluster; restart it to join again, or end it")
    said = cluster(seen(listed=(("b", "voter", "h:2"), ("c", "voter", "h:3")), troubles=(trouble,)))
    assert [(row["node"], row["trouble"]) for row in said["nodes"]] == [
        ("a", trouble.sentence),
        ("b", None),
        ("c", None),
    ]
    assert [row["node"] for row in cluster(seen(listed=(("a", "voter", "h:1"),)))["nodes"]] == ["a"]


@pytest.mark.parametrize(
    ("b", "b_age_ms", "c", "c_age_ms", "acting", "alert"),
    [
        # b was killed; c started 400 ms after the last word of b
        (RUNS, 1_000, RUNS._replace(token=9, run_ms=500), 100, ["c"], False),
        # the very same, heard the other way round in time: news may be late by half a second
        (RUNS, 300, RUNS._replace(token=9, run_ms=500), 50, ["c"], False),
        # b still claims it two seconds after c started
        (RUNS, 100, RUNS._replace(token=9, run_ms=2_000), 100, ["b", "c"], True),
        (RUNS._replace(workload_state="stuck"), 100, RUNS._replace(token=9, run_ms=1_900), 100, ["b", "c"], True),
        # handed over in order: b is still stopping, c does not claim anything
        (
            RUNS._replace(workload_state="stopping"),
            100,
            RUNS._replace(workload_state="waiting", run_ms=-1),
            100,
            ["b"],
            False,
        ),
        # the claim of a dead node is over with its hold, or after a while
        (RUNS, CLAIM_MS + 1, RUNS._replace(workload_state="stopped", run_ms=-1), 100, [], False),
        (RUNS._replace(hold_left_ms=10_000), 9_000, RUNS._replace(workload_state="stopped"), 100, ["b"], False),
    ],
)
def test_two_that_claim_the_command_at_the_same_time_are_an_alarm(
    b: Summary, b_age_ms: int, c: Summary, c_age_ms: int, acting: list[str], alert: bool
) -> None:
    said = cluster(seen(("b", b, b_age_ms), ("c", c, c_age_ms)))
    assert said["acting"] == acting
    assert bool(said["alerts"]) is alert
    if alert:
        assert "nodes b and c both say that they run the command: it may run twice" in said["alerts"][0]
        assert "primacy pause c" in said["alerts"][0], "the one with the smaller token is the older one"


def test_our_own_claim_counts_as_well() -> None:
    work = Work(since_ms=NOW_MS - 10_000)
    said = cluster(seen(("b", RUNS, 100), view=VIEW, work=work))
    assert said["acting"] == ["a", "b"]
    assert "primacy pause a" in said["alerts"][0]


def test_two_that_act_are_said_to_be_what_they_are() -> None:
    """A broken promise, or the two parts of a divided network; and of nodes without a workload, that they lead."""
    work = Work(since_ms=NOW_MS - 10_000)
    node_status = seen(("b", RUNS, 100), view=VIEW, work=work)
    divided = cluster(node_status._replace(at_most_one=False))
    assert divided["at_most_one"] is False
    assert "nodes a and b both run the command: raft has one leader in each part" in divided["alerts"][0]
    idle = seen(("b", RUNS._replace(workload_kind="none"), 100), view=VIEW, work=work._replace(kind="none"))
    assert "nodes a and b both say that they lead. Pause the older one: primacy pause a" in cluster(idle)["alerts"][0]
    assert "nodes a and b both lead: raft has one" in cluster(idle._replace(at_most_one=False))["alerts"][0]


def test_two_of_one_id_and_another_configuration_are_alarms_with_the_next_command() -> None:
    duplicate = Trouble("c", "two nodes run with the id c at the same time: stop one of them", alert=True)
    told = RUNS._replace(workload_state="stopped", run_ms=-1, doubled=("c",), config="00" * 8)
    said = cluster(seen(("b", told, 100), troubles=[duplicate], config="00" * 16))
    assert said["alerts"] == [duplicate.sentence]
    assert next(row for row in said["nodes"] if row["node"] == "c")["trouble"] == duplicate.sentence
    assert summary_of(seen(troubles=[duplicate])).doubled == ("c",)
    said = cluster(seen(("b", told, 100), config="00" * 16))
    assert "node b hears two nodes that run with the id c" in said["alerts"][0]
    said = cluster(seen(("b", told._replace(doubled=()), 100), config="11" * 16))
    assert "node b runs with another configuration than a" in said["alerts"][0]
    assert "primacy check" in said["alerts"][0]
    assert cluster(seen(("b", told, 9_000), config="11" * 16))["alerts"] == [], "old news are no alert"
    quiet = Trouble("c", "node c: its address h:3 cannot be resolved yet")
    assert cluster(seen(troubles=[quiet]))["alerts"] == []


# --- changes of leadership --------------------------------------------------------------------------------------------


def happenings(*rows: tuple[int, str, int, str, str]) -> list[dict[str, Any]]:
    """(when, node, term, code, text), numbered as they arrived here."""
    fields = ("at_unix_ms", "node", "term", "code", "text")
    return [{**dict(zip(fields, row, strict=True)), "number": n, "value": 0} for n, row in enumerate(rows)]


def test_a_handover_is_told_with_its_reason_and_its_phases() -> None:
    rows = happenings(
        (100, "a", 1, "elected", "a leads (term 1)"),
        (105, "a", 1, "running", "the command runs: process 7, run 1"),
        (5_000, "b", 1, "follows", "b follows a (term 1)"),
        (9_000, "a", 1, "step-down", "a steps down (term 1): an operator asked for it"),
        (9_001, "a", 1, "stopping", "the command is told to end, and is killed if it lasts 3,000 ms more"),
        (9_010, "a", 1, "gone", "nothing of the command is left (run 1)"),
        (9_018, "c", 1, "release-applied", "c takes the release by a (term 1)"),
        (9_012, "b", 1, "release-applied", "b takes the release by a (term 1)"),
        (9_020, "b", 2, "elected", "b leads (term 2)"),
        (9_035, "b", 2, "running", "the command runs: process 8, run 1"),
        (9_030, "c", 2, "follows", "c follows b (term 2)"),
    )
    first, second = changes(rows)
    assert first == (1, "a", 100, "nobody led before", None, None, 5, None)
    assert second[:3] == (2, "b", 9_020)
    assert second.reason == "a steps down (term 1): an operator asked for it"
    assert second[4:] == (12, 8, 15, 25)
    told = change_line(second)
    assert "b leads term 2, because: a steps down" in told
    assert "noticed +12 ms, elected +8 ms, started +15 ms; the command stood still for 25 ms" in told


def test_one_who_led_earlier_and_says_late_that_it_lost_its_role_is_no_cause() -> None:
    """A node that was frozen says so when it is thawed, in the time of the next leader, whose end it is not."""
    rows = happenings(
        (100, "a", 11, "elected", "a leads (term 11)"),
        (2_000, "b", 12, "elected", "b leads (term 12)"),
        (2_010, "b", 12, "running", "the command runs: process 8, run 1"),
        (5_000, "a", 11, "majority-lost", "a lost its majority and stops its work (term 11)"),
        (5_005, "a", 12, "gone", "nothing of the command is left (run 1)"),
        (6_000, "a", 12, "leader-silent", "a no longer hears b (term 12)"),
        (6_100, "a", 13, "elected", "a leads (term 13)"),
        (6_110, "a", 13, "running", "the command runs: process 9, run 2"),
    )
    last = changes(rows)[-1]
    assert (last.reason, last.gap_ms) == ("a no longer hears b (term 12)", None)


def test_R_changes_of_the_members_are_told_with_who_asked_and_how_long_they_took() -> None:
    asked = "a is told by root on h to change the members: add d at h:4 (said at b)"
    rows = happenings(
        (100, "a", 1, "members-done", "a has changed the members, as was asked for, to 1.2 (term 1): a, b"),
        (1_000, "a", 1, "told", asked),
        (1_010, "a", 1, "members-changed", "a has the members 1.3 (term 1): a, b, c, d (observer)"),
        (1_500, "a", 1, "members-taken-back", "a takes a change of the members back, with 1.5 (term 1): not acked"),
        (3_000, "b", 2, "members-done", "b has changed the members, as was asked for, to 2.7 (term 2): a, b, c, d"),
        (3_001, "c", 2, "members-changed", "c has the members 2.7 (term 2): a, b, c, d"),
    )
    first, back, done = members_changes(rows)
    assert (first.done, first.asked, first.took_ms) == (True, "", None)
    assert (back.done, back.asked, back.took_ms) == (False, asked, 500)
    assert (done.done, done.asked, done.took_ms) == (True, asked, 2_000)
    assert members_line(first).endswith("to 1.2 (term 1): a, b")
    assert f"to 2.7 (term 2): a, b, c, d ({asked}; +2,000 ms)" in members_line(done)
    assert members_changes([]) == []


def test_a_silent_death_is_told_by_who_noticed_it_and_clocks_that_differ_tell_nothing() -> None:
    rows = happenings(
        (100, "a", 1, "elected", "a leads (term 1)"),
        (5_000, "b", 1, "leader-silent", "b no longer hears a (term 1)"),
        (5_010, "b", 2, "elected", "b leads (term 2)"),
        (5_005, "b", 2, "running", "the command runs"),
        (7_000, "c", 3, "elected", "c leads (term 3)"),
        (8_000, "a", 3, "release-applied", "a takes the release by c (term 3)"),
        (8_004, "a", 4, "elected", "a leads (term 4)"),
    )
    _, silent, unknown, killed = changes(rows)
    assert killed.reason.startswith(
        "a takes the release by c (term 3); the one before gave no reason: its agent was killed"
    )
    assert silent == (2, "b", 5_010, "b no longer hears a (term 1)", None, 10, None, None)
    assert unknown.reason == "not known here"
    assert changes([]) == []


# --- two starts of one id ---------------------------------------------------------------------------------------------


def test_a_second_start_that_goes_on_speaking_is_found_and_a_restart_or_recording_is_not() -> None:
    def heard(spoken: list[tuple[float, int]], at_s: float) -> dict[str, str]:
        duplicates = Duplicates()
        for now_s, counter in spoken:
            duplicates.note(now_s, "c", 7, counter, "10.0.0.9:7400")
        return duplicates.found(at_s)

    steady = [(number * 0.5, number) for number in range(10)]
    assert heard(steady, 4.5) == {"c": "10.0.0.9:7400"}
    assert heard(steady, 4.5 + FORGOTTEN_S + 1) == {}, "it has fallen silent"
    assert heard(steady[: int(LEAST_S / 0.5)], 2.0) == {}, "a restart"
    assert heard([(number * 0.5, 5) for number in range(10)], 4.5) == {}, "one recording, over and over"
    assert heard([(0.0, 1), (4.0, 2)], 4.0) == {}, f"fewer than {LEAST_COUNT}"
    duplicates = Duplicates()
    for now_s, counter in steady:
        duplicates.note(now_s, "c", 7, counter, "")
    duplicates.forget("c", 7)
    assert duplicates.found(4.5) == {}, "it is the one that is heard, after all"
    for boot in range(1_000):
        duplicates.note(5.0, "c", boot, 1, "")
    assert len(duplicates._seconds) <= 16


def test_a_row_with_anything_else_in_it_is_read_as_it_stands_or_not_at_all() -> None:
    first = row_of(RUNS, 1_000)
    assert summary_in(first) == RUNS
    assert sent_in(first) == 1_000
    for place in range(1, 17):
        for wrong in (None, "x", -2, 2**80, 0.5, [], b"\xff" * 9):
            found = summary_in([*first[:place], wrong, *first[place + 1 :]])
            assert found is None or sum(a != b for a, b in zip(found, RUNS, strict=True)) <= 1, (place, wrong)
    assert summary_in([1]) is summary_in([]) is None


@pytest.mark.parametrize("begins", [DOUBLED, earlier.DOUBLED], ids=["today", "a node of before"])
def test_a_node_whose_id_is_used_twice_is_an_alarm_of_everybody(begins: str) -> None:
    waits = f"{begins}, or this disk is a copy"
    told = RUNS._replace(workload_state="stopped", run_ms=-1, role="recovering", waits_for=waits)
    (sentence,) = cluster(seen(("b", told, 100)))["alerts"]
    assert sentence.startswith("node b is recovering, for another node runs with its id")
    (own,) = cluster(seen(view=VIEW._replace(waits_for=waits)))["alerts"]
    assert own.startswith("node a is recovering")
    assert cluster(seen(("b", told, 9_000)))["alerts"] == [], "old news are no alert"
