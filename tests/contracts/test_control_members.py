"""What an operator says about members, as the membership that is wanted; refusals name the reason and the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.agent.sentences import request_sentence
from primacy.cli.members import is_made, lines
from primacy.cli.status import lines as status_lines
from primacy.control import Heard
from primacy.control.cluster import cluster
from primacy.control.document import document as state_document
from primacy.control.members import difference, document, members_in, members_of, request_of, sentence_of
from primacy.election.inputs import CancelChange, ChangeMembers, ForceMembers
from primacy.election.model import Goal, Kind, Member, MembersId, Register
from primacy.errors import Refused, UsageError
from primacy.settings import of_mapping
from tests.support.control_harness import FOLLOWS, RUNS, VIEW, node_status

A = Member("a", priority=2, address="10.0.0.1:7400")
B = Member("b", address="10.0.0.2:7400")
C = Member("c", Kind.WITNESS, address="10.0.0.3:7400")
E = Member("e", address="h:1")
THREE = Register(MembersId(3, 7), (A, B, C))
WALL_MS = 1_700_000_000_000


def said(**body: Any) -> Any:
    return request_of(body, THREE, WALL_MS)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (
            {"verb": "add", "node": "d", "addr": "h:1"},
            (A, B, C, Member("d", address="h:1")),
        ),
        (
            {"verb": "add", "node": "aa", "addr": "h:1", "kind": "observer", "priority": 3},
            (A, Member("aa", Kind.OBSERVER, 3, address="h:1"), B, C),
        ),
        ({"verb": "remove", "node": "b"}, (A, C)),
        ({"verb": "replace", "node": "c", "new": "d", "addr": "h:1"}, (A, B, Member("d", Kind.WITNESS, address="h:1"))),
        ({"verb": "replace", "node": "a", "new": "d", "addr": "h:1"}, (B, C, Member("d", priority=2, address="h:1"))),
        ({"verb": "promote", "node": "c"}, (A, B, C._replace(kind=Kind.VOTER))),
        ({"verb": "demote", "node": "b"}, (A, B._replace(kind=Kind.OBSERVER), C)),
        ({"verb": "demote", "node": "b", "kind": "witness"}, (A, B._replace(kind=Kind.WITNESS), C)),
        ({"verb": "set", "node": "b", "addr": "[::1]:7400"}, (A, B._replace(address="[::1]:7400"), C)),
        ({"verb": "set", "node": "a", "priority": 0}, (A._replace(priority=0), B, C)),
        (
            {"verb": "apply", "members": [{"node": "e", "addr": "h:1"}, {"node": "a", "addr": "h:2", "priority": 1}]},
            (Member("a", priority=1, address="h:2"), Member("e", address="h:1")),
        ),
        (
            {
                "verb": "apply",
                "without": ["b"],
                "members": [{"node": "e", "addr": "h:1"}, {"node": "a", "addr": "h:2"}],
            },
            (Member("a", address="h:2"), C, Member("e", address="h:1")),
        ),
        ({"verb": "apply", "without": [], "members": [{"node": "e", "addr": "h:1"}]}, (*THREE.members, E)),
        ({"verb": "apply", "without": ["b"], "members": []}, (A, C)),
    ],
    ids=lambda value: "-".join(str(each) for each in list(value.values())[:3]) if isinstance(value, dict) else "",
)
def test_each_verb_asks_for_a_whole_membership(body: dict[str, Any], wanted: tuple[Member, ...]) -> None:
    assert said(**body, version=7, by="root on h") == ChangeMembers(wanted, "root on h", WALL_MS, 7)
    assert said(**body) == ChangeMembers(wanted, "", WALL_MS, 0)


def test_cancel_and_force_need_no_membership() -> None:
    assert said(verb="cancel", by="x") == CancelChange("x")
    assert said(verb="force", without=["c", "b", "b"]) == ForceMembers(("b", "c"))


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        ({}, UsageError, "verb = None: there is add, remove"),
        ({"verb": "addd"}, UsageError, "verb = addd: there is add"),
        ({"verb": "add", "node": "d", "adr": "h:1"}, UsageError, "adr: no such field"),
        ({"verb": "add", "node": "d"}, UsageError, "--addr : it is missing; say where the other nodes find it"),
        ({"verb": "add", "node": "d", "addr": "h"}, UsageError, "--addr h: this is no host:port"),
        ({"verb": "add", "node": "d", "addr": "0.0.0.0:1"}, UsageError, "nobody else can dial it; say where"),
        ({"verb": "set", "node": "b", "addr": "[::]:1"}, UsageError, "start it with --bind [::]:1"),
        ({"verb": "replace", "node": "b", "new": "d", "addr": "0.0.0.0:1"}, UsageError, "that is every address of"),
        ({"verb": "add", "node": "", "addr": "h:1"}, UsageError, "is no name of a node"),
        ({"verb": "add", "node": "d/e", "addr": "h:1"}, UsageError, "'d/e' is no name of a node"),
        ({"verb": "add", "node": "d" * 21, "addr": "h:1"}, UsageError, "is no name of a node: 1 to 20 letters"),
        ({"verb": "add", "node": "d", "addr": "h:1", "kind": "king"}, UsageError, "'king' is no kind of member"),
        ({"verb": "add", "node": "d", "addr": "h:1", "priority": -1}, UsageError, "priority -1: a whole number"),
        ({"verb": "add", "node": "d", "addr": "h:1", "priority": True}, UsageError, "priority True: a whole number"),
        ({"verb": "add", "node": "d", "addr": "h:1", "version": "7"}, UsageError, "version: the version"),
        ({"verb": "add", "node": "d", "addr": "h:1", "by": "x" * 101}, UsageError, "by: a name of at most 100"),
        ({"verb": "add", "node": "b", "addr": "h:1"}, Refused, "b is a voter already; to move it: primacy members set"),
        ({"verb": "add", "node": "d", "addr": A.address}, Refused, f"address {A.address} of d is in use by a"),
        ({"verb": "remove", "node": "x"}, UsageError, "x is no member; there are a, b, c"),
        ({"verb": "replace", "node": "a", "new": "b", "addr": "h:1"}, Refused, "b is a member already"),
        ({"verb": "promote", "node": "a"}, Refused, "a is a voter already"),
        ({"verb": "demote", "node": "c", "kind": "witness"}, Refused, "c is a witness already"),
        ({"verb": "demote", "node": "c", "kind": "voter"}, UsageError, "primacy members promote c"),
        ({"verb": "set", "node": "a"}, UsageError, "what is to be set?"),
        ({"verb": "set", "node": "a", "priority": 2}, Refused, "a has that address and priority already"),
        ({"verb": "apply", "members": [{"node": "a"}]}, UsageError, "--addr : it is missing"),
        ({"verb": "apply", "members": "a"}, UsageError, "members: a list of at most"),
        ({"verb": "apply", "members": ["a"]}, UsageError, "members: rows such as"),
        ({"verb": "apply", "members": [{"node": "a", "addr": "h:1"}] * 2}, UsageError, "a node is named twice"),
        ({"verb": "apply", "members": [], "without": "b"}, UsageError, "without: a list of names"),
        ({"verb": "apply", "members": [], "without": []}, Refused, "there is nothing to apply"),
        ({"verb": "force", "without": []}, UsageError, "without: the members that are gone for good"),
        ({"verb": "force"}, UsageError, "without: the members that are gone for good"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_remedy(body: dict[str, Any], kind: type, sentence: str) -> None:
    with pytest.raises(kind) as refused:
        said(**body)
    assert sentence in str(refused.value)


def test_a_file_that_names_the_members_has_nothing_to_apply() -> None:
    rows = [{"node": m.id, "kind": str(m.kind), "addr": m.address, "priority": m.priority} for m in THREE.members]
    assert members_of(rows) == THREE.members
    with pytest.raises(Refused, match="the file names the members of version 7: there is nothing to apply"):
        said(verb="apply", members=rows)


def test_the_difference_is_said_node_by_node() -> None:
    wanted = (
        A._replace(priority=0, address="h:9"),
        C._replace(kind=Kind.VOTER),
        Member("d", Kind.OBSERVER, 4, address="h:1"),
    )
    assert difference(wanted, THREE) == (
        "add d at h:1 as observer with priority 4",
        "remove b",
        "change a: address 10.0.0.1:7400 becomes h:9, priority 2 becomes 0",
        "change c: kind witness becomes voter",
    )
    assert difference(THREE.members, THREE) == ()


def test_the_document_tells_the_members_and_what_is_on_its_way() -> None:
    joint = THREE._replace(prior=(A, B), goal=Goal((A, C), "root on h", WALL_MS))
    status = node_status()
    shown = document(status._replace(register=joint, view=status.view._replace(change="c to be heard")))
    assert (shown["version"], shown["term"], shown["waits_for"]) == (7, 3, "c to be heard")
    assert [row["node"] for row in shown["members"]] == ["a", "b", "c"]
    assert shown["needs"] == [{"voters": ["a", "b", "c"], "needed": 2}, {"voters": ["a", "b"], "needed": 2}]
    assert shown["goal"]["by"] == "root on h"
    left = document(status._replace(register=joint._replace(members=(A, C))))
    assert left["leaving"] == ["b"]
    none = document(status)
    assert (none["version"], none["members"]) == (None, [])


def test_the_document_tells_who_has_which_members_who_was_not_told_and_who_asks() -> None:
    status = node_status(FOLLOWS)._replace(
        register=THREE,
        others={
            "b": Heard(RUNS._replace(members=(3, 7), untold=("x",)), 1, 0),
            "c": Heard(RUNS._replace(members=(3, 6)), 1, 0),
        },
        asking=(("d", "10.0.0.4"),),
    )
    shown = document(status)
    assert [row["has_version"] for row in shown["members"]] == [7, 7, 6]
    assert shown["removed_untold"] == ["x"], "as the leader says"
    assert shown["asking"] == [{"node": "d", "host": "10.0.0.4"}]
    text = "\n".join(lines(shown))
    assert "c  10.0.0.3:7400          witness   heard 5.0 s ago, has version 6" in text
    assert "x was removed and was not told: keep it off, or remove its state folder" in text
    assert "a node that asks to belong: d, from 10.0.0.4; to take it in: primacy members add d" in text
    state = {**state_document(status), "rows": cluster(status)["nodes"], "acting": [], "alerts": []}
    screen = "\n".join(status_lines(state))
    assert "members: version 7; c has version 6; what w has is not known here" not in screen, "w is no member"
    assert "members: version 7; c has version 6" in screen
    assert "x was removed and was not told" in screen
    assert "a node that asks to belong: d" in screen
    own = document(status._replace(view=VIEW._replace(removed_untold=("y",))))
    assert own["removed_untold"] == ["y"], "as the leader itself knows"


def test_R12_the_file_and_the_members_differ_in_one_sentence_with_the_remedy() -> None:
    file = of_mapping({"cluster": {"manager": {"nodes": {"a": {"addr": "10.0.0.1:7400"}, "d": {"addr": "h:1"}}}}})
    said = sentence_of(file, THREE)
    assert said.startswith("the file names a,d; the members (version 7) are a,b,c (add d at h:1; remove b; remove c; ")
    assert "to edit it changes nothing. To make its nodes the members: primacy members apply;" in said
    assert sentence_of(file, Register(MembersId(3, 7), members_in(file))) == ""


def test_what_was_asked_for_is_said_in_words() -> None:
    wanted = ChangeMembers((A, B, C, E), "root on h", WALL_MS, 0)
    said = request_sentence("a", wanted, "b", THREE)
    assert said == "a is told by root on h to change the members: add e at h:1 (said at b)"
    assert request_sentence("a", CancelChange("")) == "a is told by an operator to give up the change of the members"
    forced = request_sentence("a", ForceMembers(("b", "c")))
    assert forced == "a is told by an operator to go on without the members b, c, which are gone for good"


@pytest.mark.parametrize(
    ("verb", "body", "made"),
    [
        ("add", {"node": "c", "addr": "h:1", "kind": "witness"}, True),
        ("add", {"node": "c", "addr": "h:1", "kind": "voter"}, False),
        ("add", {"node": "d", "addr": "h:1", "kind": "voter"}, False),
        ("remove", {"node": "d"}, True),
        ("remove", {"node": "b"}, False),
        ("replace", {"node": "d", "new": "b", "addr": "h:1"}, True),
        ("replace", {"node": "a", "new": "b", "addr": "h:1"}, False),
        ("replace", {"node": "a", "new": "d", "addr": "h:1"}, False),
        ("promote", {"node": "b"}, True),
        ("promote", {"node": "c"}, False),
        ("demote", {"node": "c", "kind": "witness"}, True),
        ("demote", {"node": "c", "kind": "observer"}, False),
        ("set", {"node": "a", "addr": "", "priority": 2}, True),
        ("set", {"node": "a", "addr": "10.0.0.1:7400"}, True),
        ("set", {"node": "a", "addr": "", "priority": 0}, False),
        ("set", {"node": "a", "addr": "10.0.0.9:7400", "priority": 2}, False),
        ("set", {"node": "d", "addr": "10.0.0.9:7400"}, False),
        ("apply", {"members": [], "without": ["d"]}, True),
        ("apply", {"members": [], "without": ["b"]}, False),
        ("apply", {"members": [{"node": "b", "addr": "10.0.0.2:7400", "kind": "voter"}], "without": []}, True),
        ("apply", {"members": [{"node": "b", "addr": "10.0.0.2:7400", "kind": "witness"}], "without": []}, False),
        ("apply", {"members": [{"node": "d", "addr": "10.0.0.2:7400", "kind": "voter"}], "without": []}, False),
        ("cancel", {}, True),
    ],
)
def test_a_command_says_that_a_change_is_made_only_if_the_members_are_as_was_asked_for(
    verb: str, body: dict[str, Any], made: bool
) -> None:
    """A change that was cancelled by another operator, or died with its leader, leaves the members settled, too."""
    assert is_made(verb, body, document(node_status(FOLLOWS)._replace(register=THREE))) is made
