"""Placement, one test per rule of section W."""

from __future__ import annotations

from primacy.placement.machine import PlacementMachine
from primacy.placement.model import ElectionSeen, Intent, NodeSeen, Placement, Step, View
from primacy.placement.order import aside, orders
from primacy.placement.plan import Allowed, next_step, plan, stays
from primacy.placement.vocabulary import Announce, DeadlinePassed, Effect, Move, MoveEnded, Order, Rebalance, Seen
from primacy.settings.timing import PROFILES, PlacementTiming, placement_timing

TIMING = PlacementTiming(intent_ms=1_200, intent_max_ms=12_000, gap_ms=500, calm_ms=3_000, settle_ms=5_000)
LONG_MS = 1_000_000


def cluster(leads: dict[str, str], placements: dict[str, Placement] | None = None, **nodes: NodeSeen) -> View:
    """`leads`: who leads which election, as {"e1": "a"}; nodes a, b and c are up, unless said otherwise."""
    known = {name: NodeSeen(name, up_ms=LONG_MS) for name in "abc"} | nodes
    wishes = placements or {}
    return View(
        tuple(node for _, node in sorted(known.items())),
        tuple(ElectionSeen(name, wishes.get(name, Placement()), leader) for name, leader in sorted(leads.items())),
    )


def led_by(*nodes: str) -> dict[str, str]:
    return {f"e{number}": node for number, node in enumerate(nodes)}


def at_end(view: View) -> dict[str, str]:
    found = {seen.name: seen.leader for seen in view.elections}
    return found | {step.election: step.to for step in plan(view)}


def settled(view: View, node: str = "a") -> tuple[PlacementMachine, int, list[Effect]]:
    """A machine that has seen this for long enough, and what it does then."""
    machine = PlacementMachine(node, TIMING)
    machine.step(1_000, Seen(view))
    now_ms = 1_000 + 2 * TIMING.settle_ms
    return machine, now_ms, machine.step(now_ms, Seen(view))


# --- W1, W2 -----------------------------------------------------------------------------------------------------------


def test_W1_all_that_comes_out_is_an_order_an_announcement_or_a_transfer() -> None:
    machine, now_ms, effects = settled(cluster(led_by("a", "a", "a", "b")))
    effects += machine.step(now_ms + TIMING.intent_ms, DeadlinePassed())
    assert {type(effect) for effect in effects} <= {Order, Announce, Move}
    assert [effect for effect in effects if isinstance(effect, Move)] == [Move("e0", "c", "spread")]


def test_W2_a_node_that_is_drained_or_not_in_only_stands_aside() -> None:
    view = cluster(led_by("b"), {"e0": Placement(only=("a", "b"))}, a=NodeSeen("a", drained=True))
    assert aside(view, "e0", "a") == "it is drained"
    assert not aside(view, "e0", "b")
    assert aside(view, "e0", "c") == "placement.only does not name it"


# --- W3 ---------------------------------------------------------------------------------------------------------------


def test_W3_spread_is_within_one_of_even_and_a_difference_of_one_stays() -> None:
    assert sorted(at_end(cluster(led_by(*"aaaaaaa"))).values()).count("a") == 3
    assert next_step(cluster(led_by("a", "a", "b", "c"))) is None


def test_W3_weights_are_shares() -> None:
    view = cluster(led_by(*"aaaaaaaa"), b=NodeSeen("b", weight=2, up_ms=LONG_MS), c=NodeSeen("c", weight=0))
    found = sorted(at_end(view).values())
    assert (found.count("a"), found.count("b"), found.count("c")) == (3, 5, 0)


def test_W3_avoid_counts_more_than_prefer_and_prefer_more_than_spread() -> None:
    wishes = {
        "e0": Placement(prefer=("a",)),
        "e1": Placement(prefer=("a",)),
        "e2": Placement(prefer=("a",), avoid=("e0",)),
    }
    found = at_end(cluster(led_by("b", "b", "c"), wishes))
    assert found["e1"] == "a"
    assert (found["e0"] == "a") != (found["e2"] == "a")


def test_W3_elections_that_belong_together_move_one_after_the_other() -> None:
    view = cluster(led_by("a", "a", "a", "a"), {"e0": Placement(together=("e1",))})
    found = at_end(view)
    assert found["e0"] == found["e1"]
    assert sorted(found.values()) != list("aaaa")
    first = next_step(cluster(led_by("b", "a", "a", "c"), {"e0": Placement(together=("e1",))}), Allowed(("e0",)))
    assert first == Step("e1", "a", "b", "with"), "who has arrived is followed, and does not go back"


def test_W3_above_a_capacity_another_one_leaves() -> None:
    found = at_end(cluster(led_by(*"aabbcc"), {"e0": Placement(capacity=1)}))
    assert list(found.values()).count(found["e0"]) == 1


def test_W3_a_chain_of_moves_evens_what_no_single_one_does() -> None:
    wishes = {name: Placement(only=("a", "b")) for name in ("e0", "e1")} | {"e2": Placement(only=("b", "c"))}
    view = cluster(led_by("a", "a", "b"), wishes)
    assert next_step(view) == Step("e2", "b", "c", "spread")
    assert sorted(at_end(view).values()) == ["a", "b", "c"]


# --- W4 ---------------------------------------------------------------------------------------------------------------


def test_W4_what_is_about_to_move_is_announced_and_looked_at_again() -> None:
    view = cluster(led_by("a", "a", "a", "b"))
    machine, now_ms, effects = settled(view)
    assert effects == [Announce(Intent("e0", "c"))]
    assert machine.deadline_ms == now_ms + TIMING.intent_ms
    gone = view._replace(nodes=(*view.nodes[:2], view.nodes[2]._replace(heard=False)))
    machine.step(now_ms + 100, Seen(gone))
    assert machine.step(now_ms + TIMING.intent_ms, DeadlinePassed()) == [Announce(None)]


def test_W4_of_two_that_announce_at_once_the_first_by_name_goes_on() -> None:
    for node, other, goes_on in (("a", "b", True), ("b", "a", False)):
        view = cluster(led_by(node, node, node, other))
        machine, now_ms, effects = settled(view, node)
        assert effects == [Announce(Intent("e0", "c"))]
        seen = tuple(each._replace(intent=Intent("e3", "c")) if each.node == other else each for each in view.nodes)
        machine.step(now_ms + 100, Seen(view._replace(nodes=seen)))
        expected = Move("e0", "c", "spread") if goes_on else Announce(None)
        assert machine.step(now_ms + TIMING.intent_ms, DeadlinePassed()) == [expected]


def test_W4_while_another_moves_nothing_is_announced_but_not_for_ever() -> None:
    view = cluster(led_by("a", "a", "a", "b"), b=NodeSeen("b", up_ms=LONG_MS, intent=Intent("e3", "c")))
    machine, now_ms, effects = settled(view)
    assert not effects
    assert machine.step(1_000 + TIMING.intent_max_ms, Seen(view)) == [Announce(Intent("e0", "c"))]
    assert now_ms < 1_000 + TIMING.intent_max_ms


def test_W4_without_calm_only_what_has_to_leave_moves() -> None:
    view = cluster(led_by("a", "a", "a", "b"))
    machine = PlacementMachine("a", TIMING)
    assert not [e for e in machine.step(1_000, Seen(view)) if isinstance(e, Announce)]
    drained = view._replace(nodes=(view.nodes[0]._replace(drained=True), *view.nodes[1:]))
    machine.step(1_100, Seen(drained))
    assert machine.intent == Intent("e0", "c")
    assert machine.step_reason == "drain"


def test_W4_a_node_whose_turn_it_is_is_not_waited_for_for_ever() -> None:
    view = cluster(led_by("a", "a", "a", "a", "b", "b", "b"))
    machine, now_ms, effects = settled(view, "b")
    assert not effects, "it is the turn of a"
    assert machine.step(now_ms + TIMING.turn_ms, Seen(view)) == [Announce(Intent("e4", "c"))]


# --- W5 to W7 ---------------------------------------------------------------------------------------------------------


def test_W5_nothing_moves_to_a_node_that_came_up_a_moment_ago() -> None:
    view = cluster(led_by("a", "a", "b", "b"), c=NodeSeen("c", up_ms=TIMING.settle_ms - 1))
    machine, now_ms, effects = settled(view)
    assert not effects
    lasting = view._replace(nodes=(*view.nodes[:2], view.nodes[2]._replace(up_ms=TIMING.settle_ms)))
    lasting = lasting._replace(elections=cluster(led_by("a", "a", "a", "b")).elections)
    machine.step(now_ms, Seen(lasting))
    assert machine.step(now_ms + 2 * TIMING.settle_ms, Seen(lasting)) == [Announce(Intent("e0", "c"))]


def test_W5_a_node_that_returns_often_has_to_last_longer() -> None:
    view = cluster(led_by("a", "a", "a", "b"))
    away = view._replace(nodes=(*view.nodes[:2], view.nodes[2]._replace(heard=False)))
    machine = PlacementMachine("a", TIMING)
    for number in range(3):
        machine.step(1_000 + number * 2_000, Seen(away))
        machine.step(2_000 + number * 2_000, Seen(view))
    back_ms = 6_000
    assert "c" in machine._unsteady(back_ms + 4 * TIMING.settle_ms - 1)
    assert "c" not in machine._unsteady(back_ms + 4 * TIMING.settle_ms)


def test_W6_an_election_that_moved_rests_twice_as_long_each_time() -> None:
    machine, rests = PlacementMachine("a", TIMING), []
    for number in range(4):
        now_ms = 1_000 + number * 1_000
        machine.step(now_ms, Seen(cluster(led_by("a" if number % 2 else "b"))))
        rests.append(machine._rests["e0"].until_ms - now_ms)
    assert rests[1:] == [TIMING.rest_ms, 2 * TIMING.rest_ms, 4 * TIMING.rest_ms]


def test_W6_a_handover_that_failed_is_tried_again_later_and_later() -> None:
    view = cluster(led_by("a", "a", "a", "b"))
    machine, now_ms, _ = settled(view)
    machine.step(now_ms + TIMING.intent_ms, DeadlinePassed())
    ended_ms = now_ms + TIMING.intent_ms + 100
    assert machine.step(ended_ms, MoveEnded("e0", moved=False)) == [Announce(None)]
    assert not machine.step(ended_ms + TIMING.retry_ms, Seen(view))


def test_W7_maintenance_stops_what_nobody_asked_for() -> None:
    view = cluster(led_by("a", "a", "a", "b"))._replace(maintenance=True)
    machine, now_ms, effects = settled(view)
    assert not effects
    assert machine.step(now_ms, Rebalance()) == [Announce(Intent("e0", "c"))]


# --- W8, W9 -----------------------------------------------------------------------------------------------------------


def test_W8_what_a_lost_node_led_is_spread_over_all_others() -> None:
    found = orders(cluster(led_by("a", "a", "a", "a", "b", "c")))
    assert [found[f"e{number}"][0] for number in range(4)] == ["b", "c", "b", "c"]
    assert all(found[f"e{number}"][-1] == "a" for number in range(4))
    assert [order[0] for order in orders(cluster(led_by("", "", ""))).values()] == ["a", "b", "c"]


def test_W8_without_a_leader_the_order_stays() -> None:
    machine = PlacementMachine("a", TIMING)
    machine.step(1_000, Seen(cluster(led_by("b", "b", "c"))))
    machine.step(2_000, Seen(cluster(led_by("", "", "c"))))
    effects = machine.step(2_100, Seen(cluster(led_by("", "a", "c"))))
    assert "e0" not in [effect.election for effect in effects if isinstance(effect, Order)], "who is first stays first"


def test_W9_what_stays_on_a_drained_node_is_named_with_the_reason() -> None:
    wishes = {"e0": Placement(only=("a", "b"))}
    view = cluster(led_by("a", "a"), wishes, a=NodeSeen("a", drained=True), b=NodeSeen("b", heard=False))
    assert stays(view, "a") == (("e0", "b is not heard; c is not named by placement.only"),)
    assert [step.election for step in plan(view)] == ["e1"]


def test_times_follow_the_profile_and_the_longest_stop() -> None:
    lan, wan = placement_timing(PROFILES["lan"], 3_000), placement_timing(PROFILES["wan"], 60_000)
    assert lan.intent_max_ms > lan.intent_ms + 3_000
    assert wan.intent_max_ms > 60_000
    assert wan.calm_ms > lan.calm_ms
