"""Schedules of whole clusters that random trials do not find: two peers that source one key at once (V1, V2, V4)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.model import ALL, TERM_MAX, Floor
from tests.support.cache_harness import KEY, Harness
from tests.support.cache_one_peer import One, did
from tests.support.cache_schedules import TIMING, Machine, broken


def two_winners_and_a_forgetful_voter(machine: Machine) -> str:
    """V1: c votes for a, then for b, and forgets both in a restart. Its acks come long after: to a, then to b.

    Needs claims without an end and terms that a start does not close; then only the one promise is left.
    """
    harness = Harness(machine=machine)
    harness.source_ms = None
    harness.cut("a", "b")
    for sender in "ab":
        harness.hold(sender, "c", says.Announce)
    harness.ask("a")
    harness.run(3)
    harness.ask("b")
    harness.run(3)
    won = [name for name in "ab" if harness.peers[name].keys[KEY].claim is not None]
    harness.kill("c")
    harness.start("c", forgets=True)
    harness.run(TIMING.promise_ms + 100)
    harness.release("a", "c", says.Announce)
    harness.run(3)
    harness.release("b", "c", says.Announce)
    harness.run(200)
    called = {name for _, name, _, _ in harness.calls}
    return broken(both_won=won == ["a", "b"], one_called="a" in called, one_at_a_time=not harness.overlaps)


def candidate_while_promised(machine: Machine) -> str:
    """V4: a sources by the ack of b alone. a is cut off, and b has a client: c would help it at once."""
    harness = Harness(machine=machine)
    harness.source_ms = None
    harness.cut("a", "c")
    harness.ask("a")
    harness.run(100)
    harness.cut("a", "b c")
    harness.ask("b")
    harness.run(1_500)
    called = [name for _, name, _, _ in harness.calls]
    return broken(first=called[:1] == ["a"], second=len(called) >= 2, one_at_a_time=not harness.overlaps)


def restarted_follower(machine: Machine) -> str:
    """The only follower restarts and forgets its promise: within Ps it helps nobody."""
    harness = Harness(machine=machine)
    harness.source_ms = None
    harness.cut("a", "c")
    harness.ask("a")
    harness.run(100)
    harness.kill("b")
    harness.start("b", forgets=True)
    harness.cut("a", "b c")
    harness.ask("c")
    harness.run(1_500)
    return "; ".join(harness.overlaps)


def terms_do_not_run_out(machine: Machine) -> str:
    """One peer says a term near the end of all terms, of a key and for a floor: the others go on."""
    one = One(machine)
    one.question("a", TERM_MAX - 1)
    one.hear("c", says.FloorSet(Floor(b"", True, TERM_MAX - 1), 1, one.trailer("c")))
    one.run(2_000)
    exhausted = [effect for effect in did(one.ask(), does.Record) if effect.event == "terms-exhausted"]
    stored = [effect.ceiling for effect in did(one.seen, does.StoreCeiling)]
    return broken(asks=not exhausted, ceiling=max([0, *stored]) < TERM_MAX // 2)


def reload_of_two(machine: Machine) -> str:
    """V13: one reload that replaces two peers: the majorities of the two lists share nobody."""
    harness = Harness("a b c d e", machine=machine)
    for name in "abcde":
        harness.lists[name] = "a b c d e"
    harness.source_ms = None
    harness.cut("a b c", "d e")
    harness.ask("a")
    harness.run(100)
    for name in "de":
        request = harness.order(
            name, told.Reload, tuple(p for p in harness.peers[name].members.peers if p.url in "cde")
        )
        if not harness.finished.get(request) or not harness.finished[request].ok:
            return ""
    harness.run(50)
    harness.ask("d")
    harness.run(400)
    return "; ".join(harness.overlaps)


class ByHand(Harness):
    """Only PINGs and PONGs travel by themselves; every other message when it is delivered by hand."""

    def __init__(self, names: str, machine: Machine) -> None:
        self.post: dict[tuple[str, str], list[says.Message]] = {}
        super().__init__(names, machine=machine)

    def _send(self, sender: str, to: str, message: says.Message) -> None:
        if isinstance(message, says.Ping | says.Pong):
            super()._send(sender, to, message)
            return
        for receiver in self.peers[sender].members.others if to == ALL else (to,):
            self.post.setdefault((sender, receiver), []).append(message)

    def deliver(self, sender: str, receiver: str, kind: type) -> None:
        """The newest message of this kind arrives; the answer to it comes back when that is delivered."""
        box = self.post[sender, receiver]
        message = next(message for message in reversed(box) if isinstance(message, kind))
        self.tell(receiver, told.Received(sender, message))

    def votes(self, candidate: str, voter: str) -> None:
        self.deliver(candidate, voter, says.Question)
        self.deliver(voter, candidate, says.Answer)

    def acks(self, source: str, follower: str) -> None:
        self.deliver(source, follower, says.Announce)
        self.deliver(follower, source, says.Ack)

    def until(self, at_ms: int) -> None:
        self.run(at_ms - self.now)

    def forget(self, name: str) -> None:
        """A restart without memory."""
        self.kill(name)
        self.start(name, forgets=True)


def five_peers_and_two_forgetful_voters(machine: Machine) -> str:
    """V2: claims end after E, and still two of five source at once, if an ack does not bind against higher ballots.

    p4 (here e) sources by d and c, which both restart; a, of a lower ballot, has b's vote and later theirs. b and c ack
    both: e goes on by b and c, a begins by c and d. Needs starts that close no terms.
    """
    harness = ByHand("a b c d e", machine)
    harness.skew["a"] = -1_000  # so that a's ballot is below e's
    harness.source_ms = None
    harness.ask("e")
    zero_ms = harness.now
    harness.votes("e", "d")
    harness.votes("e", "c")
    harness.acks("e", "d")
    harness.acks("e", "c")
    harness.until(zero_ms + 3)
    harness.forget("c")
    harness.until(zero_ms + 362)
    harness.acks("e", "d")
    harness.forget("d")
    harness.until(zero_ms + 440)
    harness.ask("a")
    harness.votes("a", "b")
    _quietly(harness.acks, "e", "b")
    harness.until(zero_ms + 735)
    harness.votes("a", "c")
    _quietly(harness.acks, "a", "c")
    _quietly(harness.acks, "e", "c")
    _quietly(harness.acks, "e", "b")
    for at_ms in range(745, 1_035, 10):
        harness.until(zero_ms + at_ms)
        _quietly(harness.acks, "e", "b")
        _quietly(harness.acks, "e", "c")
        _quietly(harness.acks, "a", "d")
    return "; ".join(harness.overlaps)


def _quietly(act: Callable[[str, str], None], one: str, other: str) -> None:
    """A message that was never sent cannot be delivered: a machine that refuses goes on without it."""
    with contextlib.suppress(StopIteration, KeyError):
        act(one, other)
