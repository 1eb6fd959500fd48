"""A change of members is broken at each of its steps, with real nodes: kill -9 of the leader, of the new node, of the
one that leaves, of one that stays. Whatever happened, the change ends and somebody acts; never two (R1 to R8). Whoever
was removed learns it, also if it was dead meanwhile, or the leader that was to tell it died (R10).

Safety, in the profile `lan`: several clusters live at the same time here, each in a thread of its own. A change stands
still at a step until the test lets it go on.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from primacy.errors import PrimacyError
from tests.support import real_nodes as crowds
from tests.support.real_members import MembersCrowd, hold, members_crowd, side_by_side, steps_held

pytestmark = pytest.mark.beside(order=21)

AT_ONCE = 3
STEPS = ("asked", "observer", "joint", "written", "told")
"""`steps_held` says what each is. From the third on, the new node votes."""
BEFORE_IT_VOTES = ("asked", "observer")
VICTIMS = ("leader", "new", "leaving", "staying")


def reach(crowd: MembersCrowd, step: str, leaves: str) -> None:
    """A change to replace this node by d, which stands still at this step. On a machine that stalls it may be lost with
    the leader that it was said to, before anything was written; then it is said to the next."""
    hold(crowd, step)
    crowd.ask_for("replace", node=leaves, new="d", addr=crowd.addr("d"))

    def is_there() -> bool:
        leader = crowd.leader()
        said = leader.ask("/v1/members")
        if not said:
            return False
        if is_last(said, leaves):
            return step == ("told" if others_have(crowd, said) else "written")
        if is_quiet(said):
            with contextlib.suppress(PrimacyError):
                body = {"verb": "replace", "by": "test", "node": leaves, "new": "d", "addr": crowd.addr("d")}
                leader.ask("/v1/members", body)
            return False
        kinds = {row["node"]: row["kind"] for row in said["members"]}
        match step:
            case "asked":
                return bool(said["waits_for"]) and "d" not in kinds
            case "observer":
                return kinds.get("d") == "observer" and said["goal"] is not None
            case "joint":
                return len(said["needs"]) == 2 and leaves in said["leaving"]
        return False

    crowd.until(is_there, f"the step {step}")


def broken(folder: Path, step: str, victim: str) -> None:
    with members_crowd(folder, "abc", "lan", plant=steps_held(folder)) as crowd:
        crowd.settle()
        crowd.come("d")
        first = crowd.agree()
        leaves = next(name for name in "abc" if name != first)
        reach(crowd, step, leaves)
        leader = crowd.leader().name
        other = next(name for name in "abc" if name not in (leader, leaves))
        killed = {"leader": leader, "new": "d", "leaving": leaves, "staying": other}[victim]
        before = crowd.tokens()[-1]
        crowds.kill_all(crowd.nodes[killed])
        crowd.nodes[killed].wait()
        hold(crowd, "")
        if killed == leader:
            crowd.acting(before)
        if victim == "new" and step in BEFORE_IT_VOTES:
            waits_in_vain(crowd, before)
        else:
            ends(crowd, leaves, before)
        crowd.one_now()
        crowd.start(killed, file="d.yaml" if killed == "d" else "primacy.yaml")
        voters = crowd.settled()[0]
        crowd.agreed("".join(sorted(voters)), **observers(crowd))
        if leaves not in voters:
            crowd.until(lambda: knows_that_it_is_out(crowd, leaves), f"{leaves} to know that it was removed")
        assert crowd.one_now().node in voters


def is_last(said: dict[str, Any], leaves: str) -> bool:
    """The register after the change."""
    return is_quiet(said) and {row["node"] for row in said["members"]} == {*"abcd"} - {leaves}


def others_have(crowd: MembersCrowd, said: dict[str, Any]) -> bool:
    """Another of its members has this register, too."""
    ids = [node.ask("/v1/members") for node in crowd.up() if node.name in {row["node"] for row in said["members"]}]
    return sum((each["term"], each["version"]) == (said["term"], said["version"]) for each in ids if each) > 1


def knows_that_it_is_out(crowd: MembersCrowd, name: str) -> bool:
    document = crowd.nodes[name].ask()
    return bool(document) and "it is not among the members" in (document["waits_for"] or "")


def waits_in_vain(crowd: MembersCrowd, before: int) -> None:
    """The new node is gone before it could vote: nothing has changed for the others, and the leader says so."""

    def waits() -> bool:
        said = crowd.leader().ask("/v1/members")
        return bool(said) and "d to be heard" in str(said["waits_for"])

    found = crowd.until(
        lambda: "waits" if waits() else "led anew" if is_led_anew(crowd, before) else "", "what it waits for"
    )
    if found == "waits":
        crowd.until(lambda: cancelled(crowd), "nothing on its way")
    voters, _ = crowd.settled()
    assert voters == {*"abc"}


def is_quiet(said: dict[str, Any]) -> bool:
    """Nothing is on its way."""
    return said["goal"] is None and not said["waits_for"] and len(said["needs"]) == 1


def cancelled(crowd: MembersCrowd) -> bool:
    """By somebody that leads; or there is nothing to cancel, for it was lost with the leader that it was said to."""
    leader = crowd.leader()
    with contextlib.suppress(PrimacyError):
        if leader.ask("/v1/members", {"verb": "cancel", "by": "test"}) is not None:
            return True
    said = leader.ask("/v1/members")
    return bool(said) and is_quiet(said)


def ends(crowd: MembersCrowd, leaves: str, before: int) -> None:
    """Done; or void, if the leader that was asked leads no more, and with it what it had not told a majority."""
    done = {*"abcd"} - {leaves}

    def is_over() -> bool:
        voters, _ = crowd.settled()
        assert voters in (done, {*"abc"})
        return voters == done or is_led_anew(crowd, before)

    crowd.until(is_over, f"the voters {done}")


def is_led_anew(crowd: MembersCrowd, before: int) -> bool:
    return crowd.tokens()[-1] > before


def observers(crowd: MembersCrowd) -> dict[str, str]:
    return {row["node"]: row["kind"] for row in crowd.settled()[1]["members"] if row["kind"] != "voter"}


@pytest.mark.parametrize("step", STEPS)
def test_R7_a_node_is_killed_at_a_step_of_a_change_and_it_ends(tmp_path: Path, step: str) -> None:
    side_by_side(
        [lambda v=victim: broken(tmp_path / v, step, v) for victim in VICTIMS],  # type: ignore[misc]
        AT_ONCE,
    )
