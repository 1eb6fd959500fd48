"""Schedules of whole clusters that random trials do not find: two peers that source one key at once (V1, V4)."""

from __future__ import annotations

from tests.cache_schedules import TIMING, Machine, broken
from tests.cache_stage import KEY, Stage

from primacy.cache import inputs as told
from primacy.cache import messages as says


def two_winners_and_a_forgetful_voter(machine: Machine) -> str:
    """V1: c votes for a, then for b, and forgets both in a restart. Its acks come long after: to a, then to b.

    Needs claims without an end and terms that a start does not close; then only the one promise is left.
    """
    stage = Stage(machine=machine)
    stage.source_ms = None
    stage.cut("a", "b")
    for sender in "ab":
        stage.hold(sender, "c", says.Announce)
    stage.ask("a")
    stage.run(3)
    stage.ask("b")
    stage.run(3)
    won = [name for name in "ab" if stage.peers[name].keys[KEY].claim is not None]
    stage.kill("c")
    stage.start("c", forgets=True)
    stage.run(TIMING.promise_ms + 100)
    stage.release("a", "c", says.Announce)
    stage.run(3)
    stage.release("b", "c", says.Announce)
    stage.run(200)
    called = {name for _, name, _, _ in stage.calls}
    return broken(both_won=won == ["a", "b"], one_called="a" in called, one_at_a_time=not stage.overlaps)


def candidate_while_promised(machine: Machine) -> str:
    """V4: a sources by the ack of b alone. a is cut off, and b has a client: c would help it at once."""
    stage = Stage(machine=machine)
    stage.source_ms = None
    stage.cut("a", "c")
    stage.ask("a")
    stage.run(100)
    stage.cut("a", "b c")
    stage.ask("b")
    stage.run(1_500)
    called = [name for _, name, _, _ in stage.calls]
    return broken(first=called[:1] == ["a"], second=len(called) >= 2, one_at_a_time=not stage.overlaps)


def restarted_follower(machine: Machine) -> str:
    """The only follower restarts and forgets its promise: within Ps it helps nobody."""
    stage = Stage(machine=machine)
    stage.source_ms = None
    stage.cut("a", "c")
    stage.ask("a")
    stage.run(100)
    stage.kill("b")
    stage.start("b", forgets=True)
    stage.cut("a", "b c")
    stage.ask("c")
    stage.run(1_500)
    return "; ".join(stage.overlaps)


def reload_of_two(machine: Machine) -> str:
    """V13: one reload that replaces two peers: the majorities of the two lists share nobody."""
    stage = Stage("a b c d e", machine=machine)
    for name in "abcde":
        stage.lists[name] = "a b c d e"
    stage.source_ms = None
    stage.cut("a b c", "d e")
    stage.ask("a")
    stage.run(100)
    for name in "de":
        request = stage.order(name, told.Reload, tuple(p for p in stage.peers[name].members.peers if p.url in "cde"))
        if not stage.finished.get(request) or not stage.finished[request].ok:
            return ""
    stage.run(50)
    stage.ask("d")
    stage.run(400)
    return "; ".join(stage.overlaps)
