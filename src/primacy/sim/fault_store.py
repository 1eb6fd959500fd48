"""Faults of the store that a lease is kept in, and of the way to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primacy.sim.facts import Kind

if TYPE_CHECKING:
    from primacy.sim.faults import Faults


def store_away(f: Faults) -> None:
    """The store is down for a while (F40)."""
    f.world.store_way.up = False

    def undo() -> None:
        f.world.store_way.up = True

    f.lasting("store away", "", undo, 0.1, 3)


def store_hangs(f: Faults) -> None:
    """The store takes requests and does nothing; when it goes on, it does them all (F42)."""
    f.world.store_way.hangs = True
    f.lasting("store hangs", "", f.world.store_way.go_on, 0.1, 3)


def store_slow(f: Faults) -> None:
    """Statements take up to most of a hold (F42)."""
    f.weather({"store_ms": f.unit_ms * f.chance.uniform(0.05, 0.45)}, "store slow")


def store_answers(f: Faults) -> None:
    """Answers are lost although the statement was performed (F43), or statements fail."""
    layer = {"store_answer_lost": f.chance.choice((0.1, 0.5)), "store_fails": f.chance.choice((0.0, 0.1, 0.3))}
    f.weather(layer, "store answers lost")


def store_cut(f: Faults) -> None:
    """One node does not reach the store."""
    node = f.some_node()
    node.cut["store"] = node.cut.get("store", 0) + 1
    f.lasting("cut from the store", node.name, lambda: f.world.mend(node.name, "store"), 0.1, 3)


def store_other(f: Faults) -> None:
    """A fail-over to another server, which may lack the last commits (F41).

    A token that was lost with a commit, and that no other node ever saw, is only exceeded by the next taker's wall
    clock: tokens grow then if wall clocks agree within a hold. Lives with wilder wall clocks lose no commits.
    """
    assert f.world.store is not None
    f.world.store.fail_over(f.chance.choice((0, 1, 3, 15)) if f.walls_agree else 0)
    f.world.emit(Kind.FAULT, "", 0, "store failed over")
