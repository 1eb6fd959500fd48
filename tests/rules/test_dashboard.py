"""The dashboard without a browser: from documents to the view model, and frames of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primacy.cli.status import lines
from primacy.control import earlier
from primacy.control.document import cluster_document
from primacy.dashboard.change import last_change
from primacy.dashboard.claims import Claims
from primacy.dashboard.hub import FRAMES_MAX, QUIET_MS, Hub
from primacy.dashboard.known import Known, Plan, Read
from primacy.dashboard.plan import plan_of, plan_of_profile
from primacy.dashboard.record import Record
from primacy.dashboard.rows import Chain, Cluster, Lab, LabNode, Row, Said, chain_of, cluster_of, event_row, lab_of
from primacy.dashboard.view import view
from primacy.election.model import DOUBLED, Member, MembersId, Register
from tests.support.control_harness import node_status

LEADER = Said(
    node="a",
    heard_ms=0,
    told_ms=0,
    role="leader",
    term=7,
    leader="a",
    token=1_794_700_800_007,
    hold_left_ms=900,
    workload_kind="process",
    workload="running",
    since_unix_ms=1_794_700_900_000,
    pid=4711,
    containment="strong",
    health="ok",
)
FOLLOWER = Said(node="b", heard_ms=40, told_ms=300, role="follower", term=7, leader="a", workload_kind="process")
PLAN = Plan(hold_ms=1_000, heartbeat_ms=100, term_at_ms=400)


def known(*rows: Said, now_ms: int = 10_000, read_ms: int = 9_900, **more: Any) -> Known:
    read = Read("127.0.0.1:7480", Cluster("billing", "main", "raft", "automatic", "a", rows), read_ms)
    return Known(now_ms, (read,), plan=PLAN)._replace(**more)


# --- the job ----------------------------------------------------------------------------------------------------------


def test_a_running_job_is_shown_with_its_node_token_and_hold() -> None:
    job = view(known(LEADER, FOLLOWER))["job"]
    assert (job["state"], job["level"], job["text"]) == ("running", "ok", "Running on a")
    assert (job["node"], job["token"], job["term"], job["pid"]) == ("a", 1_794_700_800_007, 7, 4711)
    assert job["hold_left_ms"] == 800, "100 ms have passed since the answer"


def test_after_a_handover_the_new_holder_is_shown_although_the_old_row_still_says_running() -> None:
    new = LEADER._replace(node="b", term=8, told_ms=0, heard_ms=0)
    old = LEADER._replace(told_ms=400, heard_ms=30)
    assert view(known(old, new))["job"]["node"] == "b"
    assert view(known(old, new))["alerts"] == []


@pytest.mark.parametrize(
    ("rows", "state", "level"),
    [
        ((LEADER._replace(workload="starting"), FOLLOWER), "starting", "warn"),
        ((LEADER._replace(workload="stuck"), FOLLOWER), "stuck", "bad"),
        ((LEADER._replace(workload="waiting", waits_for="300 ms"), FOLLOWER), "waiting", "warn"),
        ((LEADER._replace(workload="stopped", workload_kind="none"), FOLLOWER), "leading", "ok"),
        ((FOLLOWER._replace(role="candidate", leader=""),), "electing", "warn"),
        ((FOLLOWER._replace(leader=""),), "nobody", "warn"),
        ((LEADER._replace(heard_ms=60_000, told_ms=60_000),), "unknown", "unknown"),
        ((), "unknown", "unknown"),
    ],
)
def test_every_state_of_the_job_has_its_word(rows: tuple[Said, ...], state: str, level: str) -> None:
    job = view(known(*rows))["job"]
    assert (job["state"], job["level"]) == (state, level)


# --- one leader per island --------------------------------------------------------------------------------------------


def divided(*rows: Said, overlapping: tuple[str, ...] = ()) -> Known:
    document = Cluster("primacy", "main", "bully", "automatic", "a", rows, at_most_one=False)
    return Known(10_000, (Read("127.0.0.1:7480", document, 9_900),), plan=PLAN, overlapping=overlapping)


def led(node: str, leader: str) -> Said:
    leads = node == leader
    role, workload = ("leader", "running") if leads else ("follower", "stopped")
    return Said(node, heard_ms=0, told_ms=0, role=role, term=3, leader=leader, workload_kind="none", workload=workload)


def test_two_leaders_in_two_parts_of_a_bully_cluster_are_shown_as_what_they_are() -> None:
    """No alert of a broken promise: the network is divided, and each part has the leader that it was promised."""
    rows = (led("a", "a"), led("b", "a"), led("c", "c"), led("d", "c"), led("e", "c"))
    model = view(divided(*rows, overlapping=("a", "c")))
    assert (model["job"]["state"], model["job"]["level"]) == ("islands", "bad")
    assert model["job"]["text"] == "2 parts: a leads b · c leads d, e"
    assert model["islands"] == [{"leader": "a", "nodes": ["a", "b"]}, {"leader": "c", "nodes": ["c", "d", "e"]}]
    [alert] = model["alerts"]
    assert (alert["code"], alert["level"]) == ("islands", "bad")
    assert alert["text"].startswith("a and c lead, each in its part of the network. bully promises one leader per part")
    strip = model["strip"]
    assert (strip["level"], strip["alert"], strip["title"]) == ("bad", "parts", "divided")
    assert (strip["holder"]["level"], strip["holder"]["text"]) == ("bad", model["job"]["text"])
    assert strip["margin"] == {"level": "unknown", "text": "5 of 5 nodes up"}, "of which part could one more fail?"
    assert model["head"]["at_most_one"] is False


def test_the_same_two_leaders_are_the_worst_alarm_where_at_most_one_was_promised() -> None:
    rows = (led("a", "a"), led("c", "c"))
    model = view(known(*rows, overlapping=("a", "c")))
    assert (model["job"]["state"], model["job"]["level"]) == ("overlap", "bad")
    assert [alert["code"] for alert in model["alerts"]] == ["two-act"]
    assert model["islands"] == []


def test_a_leader_that_died_is_no_island_although_its_last_word_is_young() -> None:
    last = led("a", "a")._replace(told_ms=400, heard_ms=400)
    model = view(divided(last, led("b", "b"), overlapping=()))
    assert model["islands"] == []
    assert model["alerts"] == []
    assert model["job"]["text"] == "b leads"
    assert model["strip"]["alert"] == ""


def test_two_leaders_are_red_before_their_spans_are_known_to_overlap() -> None:
    """A page that begins in a divided network has one look at each: two are shown, and neither may be green."""
    model = view(divided(led("a", "a"), led("c", "c")))
    assert (model["job"]["state"], model["job"]["level"]) == ("overlap", "bad")
    assert model["job"]["text"] == "a and c lead at the same time"
    assert (model["strip"]["alert"], model["strip"]["holder"]["node"]) == ("two", "")
    work = view(divided(*(led(name, name)._replace(workload_kind="process") for name in "ac")))
    assert work["job"]["text"] == "a and c run the command at the same time"


def test_parts_that_met_are_one_cluster_again() -> None:
    """What was seen at once stays so for a promise that was broken; islands end when one leader is left."""
    model = view(divided(led("a", "c"), led("c", "c"), overlapping=("a", "c")))
    assert (model["job"]["state"], model["job"]["text"]) == ("leading", "c leads")
    assert model["alerts"] == []


def test_what_a_node_says_of_the_same_parts_is_not_said_twice() -> None:
    rows = (led("a", "a"), led("c", "c"))
    found = divided(*rows, overlapping=("a", "c"))
    document = found.reads[0].document
    assert document is not None
    said = "nodes a and c both lead: bully has one leader in each part of a divided network. One of them gives way"
    read = found.reads[0]._replace(document=document._replace(alerts=(said, "node c hears two nodes")))
    assert [alert["code"] for alert in view(found._replace(reads=(read,)))["alerts"]] == ["islands", "node"]


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_of_several_readings_the_youngest_statement_counts() -> None:
    heard = Read("one", Cluster(rows=(FOLLOWER._replace(told_ms=900, term=6),)), 10_000)
    itself = Read("two", Cluster(rows=(FOLLOWER._replace(told_ms=0, heard_ms=0, term=7),)), 9_950)
    for reads in ((heard, itself), (itself, heard)):
        assert view(known(reads=reads))["node:b"]["term"] == 7


def test_a_node_that_is_heard_but_tells_seldom_is_here_and_one_that_is_not_heard_is_silent() -> None:
    assert view(known(FOLLOWER._replace(told_ms=1_400, heard_ms=40)))["node:b"]["there"] == "here"
    silent = view(known(FOLLOWER._replace(told_ms=9_000, heard_ms=8_000)))["node:b"]
    assert (silent["there"], silent["silent_s"]) == ("silent", 8)
    never = view(known(Said("c")))["node:c"]
    assert never["there"] == "never"
    assert "primacy --node c run" in never["next"]


@pytest.mark.parametrize(
    ("row", "command"),
    [
        (FOLLOWER._replace(role="paused", waits_for="an operator: primacy resume"), "primacy resume b"),
        (
            FOLLOWER._replace(role="recovering", waits_for="the first start of the cluster: primacy init, once"),
            "primacy init",
        ),
        (FOLLOWER._replace(role="recovering", waits_for="its new list of nodes to be reported by c"), "primacy rejoin"),
        (FOLLOWER._replace(role="recovering", waits_for=f"{DOUBLED}, or this disk is a copy"), "stop one of the two"),
        (FOLLOWER._replace(role="recovering", waits_for=f"{earlier.DOUBLED}, or"), "stop one of the two"),
        (FOLLOWER._replace(role="leader", waits_for="an operator to approve it"), "primacy approve"),
        (FOLLOWER._replace(heard_ms=60_000, told_ms=60_000), "primacy status"),
        (
            FOLLOWER._replace(role="paused", waits_for="the end of its drain: primacy undrain b"),
            "primacy undrain b",
        ),
        (
            FOLLOWER._replace(
                role="recovering",
                addr="h:2",
                waits_for="an operator to add it to the members, on one of their nodes: primacy members add b",
            ),
            "on a node of the cluster: primacy members add b --addr h:2",
        ),
        (
            FOLLOWER._replace(waits_for="nothing: it is not among the members (version 7); primacy members add b"),
            "primacy members add b --addr HOST:PORT; or stop it",
        ),
        (
            FOLLOWER._replace(
                role="recovering",
                waits_for="answers from memory, for its own is lost, by c (gone for good: primacy members remove c)",
            ),
            "start those nodes; gone for good: primacy members remove c",
        ),
        (
            FOLLOWER._replace(
                role="recovering",
                waits_for="an operator: its file names nobody but itself; write the other nodes into it",
            ),
            "write the other nodes into its file",
        ),
        (
            FOLLOWER._replace(role="recovering", waits_for="an operator: too few remember to elect a leader; on a: x"),
            "primacy members force",
        ),
        (
            FOLLOWER._replace(
                role="recovering",
                waits_for="the first start of the cluster: primacy init, once, on one node, when all that used its "
                "lease of before, of which there is no list, are stopped or run with the new file",
            ),
            "when all of those are stopped: primacy init",
        ),
    ],
)
def test_a_node_that_waits_or_is_mute_says_the_next_command(row: Said, command: str) -> None:
    assert command in view(known(row))["node:b"]["next"]


def test_a_node_that_stands_aside_as_the_file_says_needs_no_command() -> None:
    aside = FOLLOWER._replace(role="paused", waits_for="nothing: placement.only of mail does not name b")
    assert view(known(aside))["node:b"]["next"] == ""


def test_what_the_lab_did_to_a_process_is_how_its_node_stands() -> None:
    lab = Lab((LabNode("a", "running", 11), LabNode("b", "frozen", 12), LabNode("c", "ended")), (("a", "b"),))
    model = view(known(LEADER, FOLLOWER, lab=lab))
    assert [model[f"node:{name}"]["there"] for name in "abc"] == ["here", "frozen", "ended"]
    assert model["node:a"]["agent_pid"] == 11
    states = {(link["a"], link["b"]): link for link in model["links"]}
    assert states["a", "b"] == {"a": "a", "b": "b", "state": "one-way", "from": "b", "to": "a"}
    assert states["a", "c"]["state"] == "down"


def test_kind_and_address_are_known_of_every_node_of_a_lab_that_any_other_lists() -> None:
    """A node's own document says its own; of one that is stopped, or older, another node's list does."""
    rows = [{"node": "a", "kind": "voter", "addr": "h:1"}, {"node": "c", "kind": "witness", "addr": "h:3"}]
    states = {
        "a": {"role": "follower", "addr": "h:1"},
        "b": {"role": "leader", "addr": "h:2", "nodes": rows},
        "c": None,
    }
    lab = lab_of({"nodes": [{"node": name, "process": "running", "state": state} for name, state in states.items()]})
    assert lab is not None
    assert [(each.said.kind, each.said.addr) for each in lab.nodes if each.said] == [("voter", "h:1"), ("voter", "h:2")]
    reads = tuple(Read(each.node, Cluster(rows=(each.said,)), 0) for each in lab.nodes if each.said)
    model = view(known(reads=reads, lab=lab))
    assert [model[f"node:{name}"]["addr"] for name in "abc"] == ["h:1", "h:2", "h:3"]
    assert model["node:c"]["kind"] == "witness"


def test_differences_between_nodes_are_marked() -> None:
    model = view(known(LEADER._replace(version="0.1.0"), FOLLOWER._replace(version="0.2.0")))
    assert model["config"]["differs"] == [{"what": "version of primacy", "of": {"a": "0.1.0", "b": "0.2.0"}}]
    other = view(known(LEADER, FOLLOWER, plan=PLAN._replace(hashes={"a": "c0ffee", "b": "facade"})))
    assert other["config"]["differs"] == [{"what": "configuration", "of": {"a": "c0ffee", "b": "facade"}}]


def test_nothing_that_changes_with_every_look_makes_a_part_change() -> None:
    """Else every look would be a redraw of every node in every browser."""
    one, other = view(known(LEADER, FOLLOWER)), view(known(LEADER, FOLLOWER._replace(heard_ms=61, told_ms=700)))
    assert one["node:b"] == other["node:b"]


# --- links ------------------------------------------------------------------------------------------------------------


def test_R_the_newest_members_are_shown_and_a_change_that_is_on_its_way() -> None:
    assert view(known(LEADER))["members"] is None, "another strategy, or a node of an earlier version"
    raw = {"nodes": [{"node": "a", "members": {"term": 2, "version": 7}}], "members": {"term": 2, "version": 7}}
    old = cluster_of({**raw, "members": {"term": 2, "version": 6, "waits_for": "the leader to go on with it"}})
    waits = "d to be heard (d added, asked for by root)"
    new = cluster_of({**raw, "members": {"term": 2, "version": 7, "waits_for": waits, "removed_untold": ["b"]}})
    shown = view(Known(10_000, (Read("x", old, 9_900), Read("y", new, 9_900)), plan=PLAN))
    assert shown["members"] == {"version": 7, "waits_for": waits, "untold": ["b"]}
    assert shown["node:a"]["members_version"] == 7
    gone = view(Known(10_000, (Read("x", old, 9_900), Read("y", new, 9_900, 1, "gone")), plan=PLAN))
    assert gone["members"]["version"] == 6


def test_R_a_file_that_differs_from_the_members_is_said_of_its_node_as_status_says_it() -> None:
    """Each node knows its own file only; one that gives no answer says nothing of it any more."""
    voters = tuple(Member(name, address=f"h:{at}") for at, name in enumerate("abcd", 1))
    told = node_status()._replace(register=Register(MembersId(2, 7), voters))
    document = cluster_document(told)
    said = document["members"]["file"]
    assert said.startswith("the file names a,b,c,w; the members (version 7) are a,b,c,d (")
    assert said.endswith("to write the members into it: primacy members export")
    state = {"members": document["members"], "rows": [], "acting": [], "alerts": [], "waits_for": "", "leader": "a"}
    state |= {"cluster": "billing", "election": "main", "strategy": "raft", "mode": "automatic", "node": "a"}
    state |= {"workload": {"kind": "process"}}
    assert said in lines(state, verbose=False)
    same = cluster_of({**document, "seen_from": "b", "members": {**document["members"], "file": None}})
    reads = (Read("x", cluster_of(document), 9_900), Read("y", same, 9_900))
    shown = view(Known(10_000, reads, plan=PLAN))
    assert [shown[f"node:{name}"]["file_differs"] for name in "abc"] == [said, "", ""]
    gone = view(Known(10_000, (reads[0]._replace(error="gone"), reads[1]), plan=PLAN))
    assert gone["node:a"]["file_differs"] == ""


def test_links_are_open_cut_or_one_way_by_what_the_nodes_say() -> None:
    rows = (
        LEADER._replace(cuts=(("b", "both"), ("c", "in"))),
        FOLLOWER,
        FOLLOWER._replace(node="c"),
    )
    states = {(link["a"], link["b"]): link for link in view(known(*rows))["links"]}
    assert states["a", "b"]["state"] == "cut"
    assert (states["a", "c"]["state"], states["a", "c"]["from"], states["a", "c"]["to"]) == ("one-way", "a", "c")
    assert states["b", "c"]["state"] == "open"


# --- two that act -----------------------------------------------------------------------------------------------------


def test_two_claims_one_after_the_other_are_no_alarm_and_two_at_once_are() -> None:
    claims = Claims()
    for at_ms in (1_000, 1_500, 2_000):
        claims.hear(LEADER, at_ms)
    for at_ms in (2_040, 2_500):
        claims.hear(LEADER._replace(node="b", term=8, token=LEADER.token + 1), at_ms)
    assert claims.overlapping() == ()
    claims.hear(LEADER, 2_300)
    assert claims.overlapping() == ("a", "b")
    alerts = view(known(LEADER, overlapping=("a", "b")))["alerts"]
    assert "a, b" in alerts[0]["text"]


def test_a_slow_answer_is_no_proof_that_two_claim_at_once() -> None:
    """Asked at 1,100 and answered at 2,000, after the handover at 1,700: b may have begun at any moment of these."""
    claims, b = Claims(), LEADER._replace(node="b", term=8, token=LEADER.token + 1)
    claims.hear(LEADER, 1_000)
    claims.hear(LEADER, 1_100, 900)
    claims.hear(b, 1_100, 900)
    claims.hear(LEADER, 1_690, 10)
    claims.hear(b, 2_500, 10)
    assert (claims.overlapping(), claims.spans["b"].first_ms) == ((), 2_000)
    claims.hear(LEADER, 2_100, 900)
    assert claims.overlapping() == ("a", "b"), "asked again at 2,100, it still claims to act"


def test_a_claim_that_ended_and_began_again_is_a_new_one() -> None:
    claims = Claims()
    claims.hear(LEADER, 1_000)
    claims.hear(LEADER._replace(workload="stopped"), 1_500)
    b = LEADER._replace(node="b", token=LEADER.token + 1)
    claims.hear(b, 1_600)
    claims.hear(b, 2_000)
    claims.hear(b._replace(workload="stopped"), 2_100)
    again = LEADER._replace(token=LEADER.token + 2)
    claims.hear(again, 2_200)
    claims.hear(again, 2_900)
    assert claims.overlapping() == ()


def test_the_next_token_is_the_next_claim_although_nobody_said_that_the_last_one_had_ended() -> None:
    claims = Claims()
    claims.hear(LEADER, 1_000)
    b = LEADER._replace(node="b", token=LEADER.token + 1)
    claims.hear(b, 1_600)
    claims.hear(b, 2_000)
    claims.hear(LEADER._replace(token=LEADER.token + 2), 2_200)
    claims.hear(LEADER._replace(token=0, workload="stopping"), 2_900)
    assert claims.overlapping() == ()
    claims.hear(b, 2_950)
    assert claims.overlapping() == ("a", "b")


def test_one_token_on_two_nodes_is_an_alarm_at_any_time() -> None:
    claims = Claims()
    claims.hear(LEADER, 1_000)
    claims.hear(LEADER._replace(workload="stopped"), 1_500)
    claims.hear(LEADER._replace(node="b"), 9_000)
    assert claims.overlapping() == ("a", "b")
    claims = Claims()
    claims.hear(LEADER._replace(token=0), 1_000)
    claims.hear(LEADER._replace(node="b", token=0), 9_000)
    assert claims.overlapping() == ()


def test_an_older_statement_that_arrives_late_changes_nothing() -> None:
    claims = Claims()
    claims.hear(LEADER._replace(workload="stopped"), 2_000)
    claims.hear(LEADER, 1_000)
    assert claims.spans == {}


def test_a_double_signature_and_a_nodes_own_alarm_are_banners() -> None:
    read = Read("x", Cluster(rows=(LEADER,), alerts=("nodes a and b both say so",)), 9_900)
    alerts = view(known(reads=(read,), chain=Chain(9, 1, ("height 4 has two signers: a and b",))))["alerts"]
    assert [alert["code"] for alert in alerts] == ["double-signature", "node"]
    assert "height 4" in alerts[0]["text"]


# --- the source -------------------------------------------------------------------------------------------------------


def test_when_nobody_answers_it_says_so_and_since_when() -> None:
    failing = Read("127.0.0.1:7480", None, 0, 1_794_700_000_000, "nothing answers at 127.0.0.1:7480: refused")
    source = view(known(reads=(failing,)))["source"]
    assert (source["ok"], source["since_unix_ms"]) == (False, 1_794_700_000_000)
    assert "refused" in source["text"]
    both = (failing, Read("other", Cluster(rows=(LEADER,)), 9_900))
    assert view(known(reads=both))["source"]["ok"] is True


# --- changes ----------------------------------------------------------------------------------------------------------


def row(at: int, node: str, term: int, code: str, text: str = "") -> Row:
    return Row(1_794_700_000_000 + at, node, term, code, text or f"{node} {code}")


def test_the_last_change_has_its_cause_its_gap_and_its_steps() -> None:
    rows = [
        row(0, "a", 1, "elected"),
        row(20, "a", 1, "running", "the command runs: process 1, run 1"),
        row(5_000, "a", 1, "majority-lost", "a lost its majority and stops its work"),
        row(5_000, "a", 1, "stopping", "the command is told to end, and is killed if it lasts 299 ms more"),
        row(5_030, "a", 1, "gone", "nothing of the command is left (run 1)"),
        row(6_100, "b", 1, "leader-silent", "b no longer hears a"),
        row(6_120, "b", 2, "campaigns"),
        row(6_140, "b", 2, "elected", "b leads (term 2)"),
        row(6_160, "b", 2, "running", "the command runs: process 2, run 1"),
    ]
    change = last_change(rows)
    assert change is not None
    assert (change["text"], change["because"]) == ("b leads (term 2)", "a lost its majority and stops its work")
    assert change["gap_ms"] == 1_130
    assert [step["after_ms"] for step in change["steps"]][-1] == 1_160
    assert change["steps"][0]["code"] == "majority-lost"


def test_a_role_that_was_lost_since_is_the_last_change() -> None:
    change = last_change([row(0, "a", 1, "elected"), row(900, "a", 1, "majority-lost", "a lost its majority")])
    assert change is not None
    assert change["text"] == "a lost its majority"
    assert last_change([row(0, "a", 0, "started")]) is None


def test_an_event_that_two_nodes_tell_stands_once() -> None:
    record = Record(3)
    assert len(record.add([row(1, "a", 1, "elected"), row(1, "a", 1, "elected")])) == 1
    assert record.add([row(1, "a", 1, "elected")]) == []
    record.add([row(at, "a", 1, "follows") for at in range(2, 6)])
    assert [each.at_unix_ms % 10 for each in record.rows] == [3, 4, 5]
    lab = record.add([Row(1_794_700_000_010, "lab", 0, "lab", "the lab mends all links")])
    assert lab[0].term == 1, "what a person did stands in the term in which it was done"


@pytest.mark.parametrize("size", [3, 40])
def test_the_past_of_a_node_that_is_met_late_pushes_nothing_newer_out(size: int) -> None:
    record = Record(size)
    newest = record.add([row(1_000 + at, "a", 9, "elected") for at in range(2)])
    shown = record.add([row(at, "b", 1, "follows") for at in range(size)])
    assert record.rows[-2:] == newest
    assert record.rows == [*shown, *newest]
    assert [each.at_unix_ms % 1_000 for each in shown] == list(range(2, size))
    assert (record.before["b", "follows"], record.dropped_ms % 1_000) == (row(1, "b", 1, "follows"), 1)
    assert record.add([row(1, "c", 1, "follows")]) == [], "older than all that are kept"
    assert record.before["c", "follows"].at_unix_ms == row(1, "c", 1, "follows").at_unix_ms
    change = last_change(record.rows)
    assert change is not None
    assert change["at_unix_ms"] == newest[-1].at_unix_ms


# --- documents from outside -------------------------------------------------------------------------------------------


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["node", "nodes", "role", "workload", "links", "cuts", "heard_ms", "state", "signatures", "code", "at"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_whatever_a_document_holds_it_is_a_row_or_nothing(raw: object) -> None:
    for reader in (cluster_of, lab_of, chain_of, event_row):
        found = reader(raw)
        if isinstance(found, Cluster):
            json.dumps(view(known(reads=(Read("x", found, 0),))), allow_nan=False)
    plan_of(raw, "a")


def test_texts_and_lists_from_outside_are_bounded() -> None:
    found = cluster_of({"nodes": [{"node": "n" * 5_000, "role": "x" * 5_000}] * 1_000, "alerts": ["!" * 9_000] * 99})
    assert found is not None
    assert len(found.rows) == 64
    assert len(found.rows[0].node) == 80
    assert (len(found.alerts), len(found.alerts[0])) == (16, 500)
    event = event_row({"at_unix_ms": 5, "node": "a", "code": "c", "text": "t" * 9_999, "term": 2**70})
    assert event is not None
    assert (len(event.text), event.term) == (500, 0)


def test_the_file_is_shown_with_its_promise_and_a_strange_one_as_text() -> None:
    plan = plan_of({"settings": {"cluster": {"name": "x"}, "election": {"profile": "fast"}}}, "a")
    assert plan is not None
    assert plan.contract is not None
    assert (plan.hold_ms, plan.contract["margin_ms"]) == (1_000, 20)
    strange = plan_of({"settings": {"cluster": {"name": "x"}, "future": {"a": 1}}}, "a")
    assert strange is not None
    assert (strange.contract, "future" in strange.text) == (None, True)
    assert plan_of_profile("raft", "lab").hold_ms == 500
    assert plan_of_profile("raft", "nonsense") == Plan()


# --- frames -----------------------------------------------------------------------------------------------------------


def frame_of(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data.partition(b"data: ")[2])
    return found


def test_a_frame_has_what_changed_and_a_newcomer_gets_everything() -> None:
    record = Record()
    hub = Hub(record)
    hub.publish({"a": 1, "b": {"x": 2}}, record.add([row(1, "n", 1, "elected")]), 0, 5)
    hub.publish({"a": 2, "b": {"x": 2}}, [], 100, 6)
    hub.publish({"a": 2}, [], 200, 7)
    frames = [frame_of(data) for _, data in hub.frames]
    assert [sorted(frame["parts"]) for frame in frames] == [["a", "b"], ["a"], []]
    assert frames[2]["gone"] == ["b"]
    whole = frame_of(hub.snapshot(8))
    assert (whole["whole"], whole["parts"], len(whole["events"])) == (True, {"a": 2}, 1)


def test_a_quiet_stream_says_now_and_then_that_it_is_there() -> None:
    hub = Hub(Record())
    for at_ms in range(0, 2 * QUIET_MS + 1, 200):
        hub.publish({"a": 1}, [], at_ms, at_ms)
    assert hub.number == 3


def test_a_browser_goes_on_where_it_left_off_unless_it_was_away_too_long_or_the_server_is_another() -> None:
    hub = Hub(Record())
    for number in range(1, FRAMES_MAX + 11):
        hub.publish({"a": number}, [], 0, 0)
    assert hub.seen_by(f"{hub.boot}-{hub.number}") == hub.number
    assert hub.after(hub.number) == b""
    last = hub.after(hub.number - 2)
    assert last is not None
    assert last.count(b"event: frame") == 2
    for stale in (f"{hub.boot}-3", "00000000-70", "", "nonsense", f"{hub.boot}-{hub.number + 1}", f"{hub.boot}-x"):
        assert hub.seen_by(stale) is None
    assert hub.after(3) is None
