"""Schedules of ANNOUNCEs that leave as one message, and of their acks (C4, C5): each gives what is broken, or nothing.

A peer that fetches several keys renews all of its holds together. Each key still has a hold of its own: a follower acks
only what it follows, and an ack counts for nothing but its own ballot.
"""

from __future__ import annotations

from typing import Any

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.model import Ballot, Floor
from tests.support.cache_harness import KEY, SETTINGS, Harness
from tests.support.cache_one_peer import BOOTS, One, T, did, said, says_to
from tests.support.cache_schedules import TIMING, Machine, broken

OTHER = b"l"
BOTH = (KEY, OTHER)


# --- who follows ------------------------------------------------------------------------------------------------------


def begins(one: One, sender: str, key: bytes, term: int = T) -> bool:
    """A first ANNOUNCE of one key. Was it acked?"""
    trailer = one.trailer(sender, one.ballot(sender, term), number=1)
    return bool(says_to(one.hear(sender, says.Announce(key, term, 0, trailer)), sender, says.Ack))


def renews(one: One, sender: str, number: int = 2, term: int = T, boot: int = 0) -> tuple[list[bytes], list[Any]]:
    """A message that renews both keys: which of them are acked, and what else is answered."""
    trailer = one.trailer(sender, boot=boot or BOOTS[sender])
    numbered = tuple(says.Numbered(key, term, number) for key in BOTH)
    effects = one.hear(sender, says.Announces(numbered, trailer))
    effects += one.run(1)
    acks = says_to(effects, sender, says.Acks)
    assert len(acks) <= 1, "one message is answered by one"
    acked = [key for ack in acks for key, of, counted in ack.keys if (of, counted) == (term, number)]
    return acked, says_to(effects, sender, says.Answer) + says_to(effects, sender, says.Ack)


def acked_together(machine: Machine) -> str:
    """Both are followed: one ack for both, and both promises count from now on."""
    one = One(machine)
    begun = [begins(one, "a", key) for key in BOTH]
    one.run(TIMING.promise_ms - 50)
    acked, others = renews(one, "a")
    one.run(TIMING.promise_ms - 50)
    states = [one.machine.keys[key] for key in BOTH]
    return broken(
        begun=all(begun),
        acked=acked == list(BOTH),
        in_one=not others,
        promised=all(one.now < state.promise_until_ms for state in states),
        bound=not begins(one, "c", KEY, T + 1) and not begins(one, "c", OTHER, T + 1),
    )


def acked_if_followed(machine: Machine) -> str:
    """One of the two was promised to another peer meanwhile: it is not acked. Its source goes on whatever it is told,
    and is told nothing."""
    one = One(machine)
    begun = [begins(one, "a", key) for key in BOTH]
    one.run(TIMING.promise_ms + 1)
    other = begins(one, "c", KEY, T + 1)
    acked, others = renews(one, "a")
    return broken(begun=all(begun), other=other, only_that=acked == [OTHER], untold=not others)


def not_acked_after_a_start(machine: Machine) -> str:
    """A peer that has just started knows neither key, and is silent."""
    one = One(machine, calm=False)
    acked, _ = renews(one, "a")
    one.run(TIMING.promise_ms + 1)
    later, _ = renews(one, "a", 3)
    return broken(silent=not acked, afterwards=later == list(BOTH))


def not_acked_when_over(machine: Machine) -> str:
    """One of the two ended, and an old message that renews both comes late."""
    one = One(machine)
    begun = [begins(one, "a", key) for key in BOTH]
    one.ended(one.ballot("a"))
    acked, _ = renews(one, "a")
    return broken(begun=all(begun), only_that=acked == [OTHER])


def not_acked_for_another_boot(machine: Machine) -> str:
    """A restarted peer has other ballots, whatever its terms are."""
    one = One(machine)
    begun = [begins(one, "a", key) for key in BOTH]
    acked, _ = renews(one, "a", boot=7)
    return broken(begun=all(begun), not_acked=not acked)


def refused_below_a_floor(machine: Machine) -> str:
    """An invalidation came to one of the two: it is told, because that ends the call (C11)."""
    one = One(machine)
    begun = [begins(one, "a", key) for key in BOTH]
    one.hear("c", says.FloorSet(Floor(KEY, False, T), 1, one.trailer("c")))
    acked, others = renews(one, "a")
    floors = [answer.trailer.floor for answer in others if isinstance(answer, says.Answer)]
    return broken(begun=all(begun), only_that=acked == [OTHER], told=floors == [T])


# --- who fetches ------------------------------------------------------------------------------------------------------


def fetches_both(one: One) -> list[Ballot]:
    """This peer calls its source for both keys."""
    ballots = []
    for request, key in enumerate(BOTH, 1):
        (asked,) = said(one.ask(request, key), says.Question)
        ballot = asked.trailer.ballot
        ballots.append(ballot)
        one.hear("a", says.Answer(key, ballot.term, 0, True, one.trailer("a", ballot)))
        assert did(one.hear("a", says.Ack(key, one.trailer("a", ballot, number=1))), does.Call)
        one.run(10)
    return ballots


def renewed_together(machine: Machine) -> str:
    """One message for both, before either is due; an ack for one of them renews that one, from the departure."""
    one = One(machine)
    ballots = fetches_both(one)
    effects = one.run(TIMING.announce_ms - 20)
    sent = said(effects, says.Announces)
    left_ms = one.now
    alone = said(effects, says.Announce)
    numbered = tuple(says.Numbered(key, ballot.term, 2) for key, ballot in zip(BOTH, ballots, strict=True))
    one.run(40)
    first = did(one.hear("a", says.Acks(numbered[:1], one.trailer("a"))), does.Extend)
    second = did(one.hear("c", says.Acks(numbered, one.trailer("c"))), does.Extend)
    times = (left_ms + TIMING.cancel_at_ms, left_ms + TIMING.hold_ms)
    return broken(
        together=[message.keys for message in sent] == [numbered],
        not_alone=not alone,
        first=first == [does.Extend(KEY, ballots[0], *times)],
        second=second == [does.Extend(OTHER, ballots[1], *times)],
    )


def acks_count_for_their_ballot(machine: Machine) -> str:
    """Acks for an earlier boot of this peer, for another term or for a number that never left renew nothing; both calls
    are cancelled in time."""
    one = One(machine)
    ballots = fetches_both(one)
    one.run(TIMING.announce_ms)

    def heard(add: int, number: int, **more: Any) -> list[does.Effect]:
        numbered = tuple(says.Numbered(key, one_.term + add, number) for key, one_ in zip(BOTH, ballots, strict=True))
        return did(one.hear("a", says.Acks(numbered, one.trailer("a", **more))), does.Extend)

    boot, term, number = heard(0, 2, echo=7), heard(-1, 2), heard(0, 9)
    cancelled = did(one.run(TIMING.cancel_at_ms), does.Cancel)
    late = heard(0, 3)
    return broken(
        boot=not boot,
        term=not term,
        number=not number,
        cancelled=[cancel.key for cancel in cancelled] == list(BOTH),
        late=not late,
    )


def late_is_not_renewed(machine: Machine) -> str:
    """A process that stood still finds one call whose cancel is due beside one that is in time: only the latter is
    renewed, and the former is cancelled."""
    one = One(machine)
    ballots = fetches_both(one)
    one.run(TIMING.announce_ms)
    one.hear("a", says.Acks((says.Numbered(OTHER, ballots[1].term, 2),), one.trailer("a")))
    one.now += TIMING.cancel_at_ms - TIMING.announce_ms
    effects = one.run(0)
    renewed = [message.key for message in said(effects, says.Announce)]
    renewed += [each.key for message in said(effects, says.Announces) for each in message.keys]
    return broken(renewed=renewed == [OTHER], cancelled=[cancel.key for cancel in did(effects, does.Cancel)] == [KEY])


def bounded_messages(machine: Machine) -> str:
    """Many keys, long ones among them: several messages, each of them bounded."""
    one = One(machine, SETTINGS._replace(key_bytes_max=8_192))
    keys = [b"%d" % number + b"x" * (8_000 if number % 10 == 0 else 0) for number in range(150)]
    for request, key in enumerate(keys, 1):
        (asked,) = said(one.ask(request, key), says.Question)
        ballot = asked.trailer.ballot
        one.hear("a", says.Answer(key, ballot.term, 0, True, one.trailer("a", ballot)))
        one.hear("a", says.Ack(key, one.trailer("a", ballot, number=1)))
    sent = said(one.run(TIMING.announce_ms), says.Announces)
    told_of = [each.key for message in sent for each in message.keys]
    return broken(
        all_of_them=sorted(told_of) == sorted(keys),
        few=all(len(message.keys) <= 64 for message in sent),
        small=all(sum(len(each.key) for each in message.keys) <= 64 * 1_024 for message in sent),
    )


# --- whole ------------------------------------------------------------------------------------------------------------


def crowd_of_keys(machine: Machine) -> str:
    """Twenty keys at one peer, a source of a second: one call each, and few messages for all of them."""
    harness = Harness(machine=machine)
    harness.source_ms = 1_000
    keys = [b"k%d" % number for number in range(20)]
    for number, key in enumerate(keys):
        harness.ask("a", key)
        harness.run(7 if number % 3 else 0)
    harness.run(2_000)
    sent = [message for _, sender, to, message in harness.sent if (sender, to) == ("a", "b")]
    renewals = [message for message in sent if isinstance(message, says.Announces)]
    alone = [message.trailer for message in sent if isinstance(message, says.Announce)]
    renewed_alone = [trailer for trailer in alone if trailer is not None and trailer.number > 1]
    return broken(
        once=sorted(key for _, _, key, _ in harness.calls) == sorted(keys),
        alone=not harness.overlaps,
        not_cancelled=("a", "fetch-cancelled") not in harness.events,
        gathered=len(renewals) + len(renewed_alone) <= 25,
    )


def follower_of_two(machine: Machine) -> str:
    """a fetches two keys and is cut off. c takes one of them over; then a's renewal, late, reaches b: it must not bring
    a's hold of that key back while c fetches it (S1)."""
    harness = Harness(machine=machine)
    harness.source_ms = None
    for key in BOTH:
        harness.ask("a", key)
    harness.run(100)
    harness.hold("a", "b", says.Announces)
    harness.run(60)
    late = harness.held["a", "b", says.Announces][:1]
    harness.cut("a", "b c")
    harness.ask("c")
    harness.run(TIMING.promise_ms + 20)
    callers = [name for _, name, key, _ in harness.calls if key == KEY]
    for message in late:
        harness.tell("b", told.Received("a", message))
    harness.run(3)
    state = harness.peers["b"].keys[KEY]
    return broken(
        renewal=[[each.key for each in message.keys] for message in late] == [list(BOTH)],
        taken_over=callers == ["a", "c"],
        alone=not harness.overlaps,
        still_promised=state.promise is not None and state.promise.peer == "c",
    )
