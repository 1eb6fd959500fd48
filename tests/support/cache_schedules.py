"""Schedules written by hand for the cache's rules C1 to C5: each gives what is broken, or nothing.

The machine is an argument: the rules' tests run them with the real one, the mutants' tests with one that lacks a rule.
"""

from __future__ import annotations

from random import Random

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.model import Failure, Fetched, Meta
from primacy.cache.own import OwnMachine
from tests.support.cache_harness import KEY, SETTINGS, WALL_MS, Harness, addresses
from tests.support.cache_one_peer import START_MS, One, T, by_rank, did, said, says_to

Machine = type[OwnMachine]
TIMING = SETTINGS.timing


def broken(**claims: bool) -> str:
    """The names of the claims that do not hold."""
    return ", ".join(name.replace("_", " ") for name, holds in claims.items() if not holds)


# --- C1: mode and trailer ---------------------------------------------------------------------------------------------


def old_peer(machine: Machine) -> str:
    """A message without a trailer is of an original peer: an alert, once, and nothing else."""
    one = One(machine)
    first = one.hear("a", says.Question(KEY, T, None))
    second = one.hear("a", says.Announce(KEY, T, 0, None))
    alerts = [effect.event for effect in did(first + second, does.Record)]
    return broken(told_once=alerts == ["old-peer"], not_answered=not did(first + second, does.Send))


def other_boot_does_not_answer(machine: Machine) -> str:
    """Answers, acks and PONGs echo the asker's boot; those to an earlier boot of this peer count for nothing."""
    one = One(machine)
    ballot = one.stands()
    one.vote("a", ballot, echo=7)
    won_by_old = bool(said(one.vote("c", ballot, echo=7), says.Announce))
    won = bool(said(one.vote("a", ballot), says.Announce))
    called_by_old = bool(did(one.ack("a", ballot, 1, echo=7), does.Call))
    called = bool(did(one.ack("a", ballot, 1), does.Call))
    one.answers_pings = False
    one.run(TIMING.touch_ms + 1)
    touched_by_old = one.machine.in_touch(one.now)
    one.hear("a", says.Pong(one.trailer("a", number=one.machine.touch.number, echo=7)))
    touched_by_old = touched_by_old or one.machine.in_touch(one.now)
    return broken(votes=won and not won_by_old, acks=called and not called_by_old, pongs=not touched_by_old)


# --- C2: what is promised, and the ceiling ----------------------------------------------------------------------------


def yes_only_above(machine: Machine) -> str:
    one = One(machine)
    first = one.question("a", T + 5)
    one.run(100)
    lower, again = one.question("c", T), one.question("a", T + 5)
    one.run(100)
    higher = one.question("c", T + 6)
    return broken(first=first is True, lower=lower is False, repeat=again is True, higher=higher is True)


def rank_orders_one_term(machine: Machine) -> str:
    """In one term the higher rank takes the votes of the lower (C9), and not the other way round."""
    low, high = by_rank(T)
    one = One(machine)
    up = (one.question(low.peer), one.question(high.peer))
    other = One(machine)
    down = (other.question(high.peer), other.question(low.peer))
    return broken(upwards=up == (True, True), downwards=down == (True, False))


def announce_below(machine: Machine) -> str:
    """An ANNOUNCE below what is promised is neither acked nor followed."""
    one = One(machine)
    one.question("a", T + 5)
    one.run(TIMING.election_ms + 1)
    acked = one.announce("c", T)
    state = one.machine.keys[KEY]
    return broken(not_acked=not acked, not_followed=state.promise is None)


def question_does_not_promise(machine: Machine) -> str:
    """A QUESTION raises the term that is known, and nothing more: what was refused may still be acked."""
    one = One(machine, calm=False)
    refused = one.question("a", T)
    one.run(TIMING.promise_ms + 1)
    return broken(refused=refused is False, acked=one.announce("a", T))


def source_keeps_its_term(machine: Machine) -> str:
    one = One(machine)
    ballot = one.calls()
    one.question("c", ballot.term + 1_000)
    announced = {message.trailer.ballot for message in said(one.run(300), says.Announce)}
    return broken(one_ballot=announced == {ballot})


def ceiling_first(machine: Machine) -> str:
    """Durable before a yes, an ack or an own QUESTION: the ceiling."""
    one = One(machine, calm=False)
    one.stores = False
    one.run(TIMING.promise_ms + 1)
    far = one.wall + 60_000
    yes, acked = one.question("a", far), one.announce("c", far)
    asked = said(one.ask(key=b"cold"), says.Question) if one.machine.ceiling.stored < one.wall else []
    one.tell(told.CeilingStored(far + TIMING.ceiling_ahead_ms))
    one.run(200)
    return broken(
        no_yes=yes is None,
        no_ack=not acked,
        no_question=not asked,
        later=one.question("a", far) is True,
    )


def no_question_before_the_ceiling(machine: Machine) -> str:
    one = One(machine, calm=False, ceiling=None)
    one.stores = False
    other = machine("b", addresses("a b c"), SETTINGS, Random(1))
    first = other.step(START_MS, WALL_MS, told.Started(1, {}, (), None))
    wished = did(first, does.StoreCeiling)
    other.step(START_MS + 1, WALL_MS, told.Received("a", says.Pong(one.trailer("a", number=1, echo=1))))
    late_ms = START_MS + TIMING.promise_ms + 1
    asked = other.step(late_ms, WALL_MS, told.Asked(1, KEY))
    stored = other.step(late_ms, WALL_MS, told.CeilingStored(wished[0].ceiling))
    return broken(wished=len(wished) == 1, waits=not said(asked, says.Question), then=bool(said(stored, says.Question)))


def ceiling_closes_terms(machine: Machine) -> str:
    """At a start nothing at or below the ceiling, the stored term or the wall clock is helped; without memory the
    allowance for wall clocks is added."""
    ceiling = WALL_MS + 500_000
    one = One(machine, ceiling=ceiling)
    at, above = one.question("a", ceiling), one.question("a", ceiling + 1)
    stored = One(machine, metas={KEY: Meta(ceiling + 50)})
    known = stored.question("a", ceiling + 50)
    bare = One(machine, ceiling=None)
    allowed = WALL_MS + START_MS + TIMING.skew_max_ms + 2 * TIMING.ceiling_ahead_ms
    skewed, ahead = bare.question("a", allowed), bare.question("a", allowed + 1)
    return broken(
        at_ceiling=at is False,
        above_ceiling=above is True,
        at_stored_term=known is False,
        at_allowance=skewed is False,
        above_allowance=ahead is True,
    )


def ceiling_is_rarely_written(machine: Machine) -> str:
    """Ten seconds ahead: at most one write per five seconds, and none in the path of an election."""
    one = One(machine)
    one.run(60_000)
    idle = len(did(one.seen, does.StoreCeiling))
    one.seen.clear()
    one.calls()
    return broken(rarely=idle <= 12, often_enough=idle >= 10, not_in_elections=not did(one.seen, does.StoreCeiling))


def lower_epoch_after_a_restart(machine: Machine) -> str:
    """V6: a peer that helped a term and restarts does not help a lower one: its value would have a lower epoch."""
    one = One(machine)
    one.announce("a", T + 60_000)
    helped = one.announce("a", T + 60_000, number=2)
    ceiling = max(effect.ceiling for effect in did(one.seen, does.StoreCeiling))
    again = One(machine, ceiling=ceiling)
    return broken(helped=helped, lower=not again.announce("c", T))


def clock_alert(machine: Machine) -> str:
    one = One(machine)
    one.skew = -TIMING.skew_max_ms
    one.answers_pings = False
    for peer in ("a", "c"):
        one.hear(peer, says.Ping(one.trailer(peer, number=1, wall_ms=one.wall + 2_000)))
    return broken(told="clock-off" in [effect.event for effect in did(one.seen, does.Record)])


# --- C3: votes --------------------------------------------------------------------------------------------------------


def answers_in_time(machine: Machine) -> str:
    """An ANSWER counts for its ballot, boot included, within E of the QUESTION's departure."""
    one = One(machine)
    ballot = one.stands()
    other = bool(said(one.vote("a", ballot._replace(term=ballot.term - 1)), says.Announce))
    reborn = bool(said(one.vote("a", ballot._replace(boot=7)), says.Announce))
    one.now += TIMING.election_ms
    late = bool(said(one.vote("a", ballot), says.Announce))
    return broken(other_term=not other, other_boot=not reborn, late=not late)


def votes_give_no_right(machine: Machine) -> str:
    one = One(machine)
    ballot = one.stands()
    effects = one.vote("a", ballot) + one.vote("c", ballot)
    return broken(announces=bool(said(effects, says.Announce)), does_not_call=not did(effects, does.Call))


def refusal_says_when(machine: Machine) -> str:
    """A refusal says the highest term and how long the promise runs; the asker comes back then, above it."""
    one = One(machine)
    one.announce("a", T)
    one.run(100)
    trailer = one.trailer("c", one.ballot("c", T + 9))
    (answer,) = says_to(one.hear("c", says.Question(KEY, T + 9, trailer)), "c", says.Answer)
    asker = One(machine)
    ballot = asker.stands()
    for peer in ("a", "c"):
        asker.refuse(peer, ballot, term=T + 77, wait_ms=400)
    early = said(asker.run(399), says.Question)
    back = said(asker.run(60), says.Question)
    return broken(
        wait=answer.trailer.wait_ms == TIMING.promise_ms - 100,
        term=answer.term == T + 9,
        not_early=not early,
        back_above=bool(back) and back[0].term > T + 77,
    )


def yes_is_quiet(machine: Machine) -> str:
    """Who says yes, or loses to a higher ballot, does not ask for E."""
    one = One(machine)
    one.question("a", T)
    asked = said(one.ask(), says.Question)
    early = said(one.run(TIMING.election_ms - 1), says.Question)
    later = said(one.run(100), says.Question)
    loser = One(machine)
    ballot = loser.stands()
    gives = loser.question("a", ballot.term + 1)
    silent = said(loser.run(TIMING.election_ms - 1), says.Question)
    return broken(at_once=not asked, early=not early, later=bool(later), gives=gives is True, loser=not silent)


# --- C4: claims, holds, calls -----------------------------------------------------------------------------------------


def call_after_majority(machine: Machine) -> str:
    """Numbered ANNOUNCEs every b; the call after the first that a majority acked, once per ballot."""
    one = One(machine, names="a b c d e")
    ballot = one.stands()
    one.vote("a", ballot)
    first = said(one.vote("c", ballot), says.Announce)
    early = did(one.ack("a", ballot, 1), does.Call)
    calls = did(one.ack("d", ballot, 1), does.Call)
    numbers = [message.trailer.number for message in said(one.run(3 * TIMING.announce_ms), says.Announce)]
    for peer in "acd":
        one.ack(peer, ballot, 4)
    return broken(
        first=[message.trailer.number for message in first] == [1],
        not_early=not early,
        call=[call.ballot for call in calls] == [ballot],
        numbered=numbers == [2, 3, 4],
        once=len(did(one.seen, does.Call)) == 1,
    )


def hold_from_departure(machine: Machine) -> str:
    """The hold counts from the departure of the newest ANNOUNCE that a majority acked, never from the ack."""
    one = One(machine)
    ballot = one.wins()
    left_ms = one.now
    one.run(80)
    (call,) = did(one.ack("a", ballot, 1), does.Call)
    one.run(40)
    second_ms = one.now
    one.run(30)
    extends = did(one.ack("c", ballot, 2), does.Extend)
    return broken(
        cancel=call.cancel_at_ms == left_ms + TIMING.cancel_at_ms,
        over=call.over_at_ms == left_ms + TIMING.hold_ms,
        extended=[(e.cancel_at_ms, e.over_at_ms) for e in extends]
        == [(second_ms + TIMING.cancel_at_ms, second_ms + TIMING.hold_ms)],
    )


def cancelled_in_time(machine: Machine) -> str:
    """Without acks the call is cancelled; an ack after that changes nothing."""
    one = One(machine)
    ballot = one.calls()
    left_ms = one.now
    before = did(one.run(TIMING.cancel_at_ms - 1), does.Cancel)
    cancelled = did(one.run(1), does.Cancel)
    late = one.ack("a", ballot, 3)
    return broken(
        not_early=not before,
        cancelled=[c.over_at_ms for c in cancelled] == [left_ms + TIMING.hold_ms],
        late=not did(late, does.Extend),
        silent=not said(one.run(200), says.Announce),
    )


def late_ack_of_a_frozen_source(machine: Machine) -> str:
    """The ack was there in time, the process was not: the cancel was due, so the hold is lost."""
    one = One(machine)
    ballot = one.calls()
    one.run(TIMING.announce_ms)
    one.now += TIMING.cancel_at_ms - TIMING.announce_ms
    return broken(not_extended=not did(one.ack("a", ballot, 2), does.Extend))


def result_needs_the_hold(machine: Machine) -> str:
    """A result is used only if the hold stands when it is used: not after a freeze."""
    one = One(machine)
    ballot = one.calls()
    one.now += TIMING.hold_ms
    late = one.tell(told.SourceEnded(KEY, ballot, Fetched(b"late")))
    other = One(machine)
    ballot = other.calls()
    other.run(TIMING.cancel_at_ms)
    cancelled = other.tell(told.SourceEnded(KEY, ballot, Fetched(b"late")))
    return broken(
        frozen=not did(late, does.StoreEntry) and not said(late, says.Update),
        cancelled=not did(cancelled, does.StoreEntry) and not said(cancelled, says.Update),
    )


def claim_ends(machine: Machine) -> str:
    """A claim not acked within E of its win ends, and everybody is told."""
    one = One(machine)
    ballot = one.wins()
    ends = [message for message in said(one.run(TIMING.election_ms), says.Answer) if message.trailer.ended]
    late = did(one.ack("a", ballot, 1), does.Call)
    return broken(told=[end.trailer.ballot for end in ends] == [ballot], closed=not late)


def closed_for_good(machine: Machine) -> str:
    """A ballot that ended is never helped again, even if its ANNOUNCE comes late."""
    one = One(machine)
    first = one.announce("a", T)
    one.ended(one.ballot("a"))
    again = one.announce("a", T, number=2)
    asked = one.question("a", T)
    return broken(first=first, announce=not again, question=asked is not True)


def no_slot_no_candidate(machine: Machine) -> str:
    one = One(machine, SETTINGS._replace(calls_max=1))
    ballot = one.calls()
    second = said(one.ask(2, b"other"), says.Question)
    one.tell(told.SourceEnded(KEY, ballot, Fetched(b"v")))
    one.run(50)
    asked = [message.key for message in said(one.seen, says.Question)]
    return broken(waits=not second, then=b"other" in asked)


def source_died(machine: Machine) -> str:
    """The source is killed: one other call, after the promise, and every client is answered."""
    harness = Harness(machine=machine)
    harness.source_ms = 1_000
    requests = [harness.ask(name) for name in "abc"]
    harness.run(500)
    source = harness.calls[0][1]
    killed_ms = harness.now
    harness.kill(source)
    harness.run(3_000)
    others = [request for request, name in zip(requests, "abc", strict=True) if name != source]
    return broken(
        calls=len(harness.calls) == 2,
        in_time=harness.calls[-1][0] - killed_ms <= 700,
        answered=all(harness.got(request) == "fresh" for request in others),
        one_at_a_time=not harness.overlaps,
    )


# --- C5: the one promise ----------------------------------------------------------------------------------------------


def no_other_ack(machine: Machine) -> str:
    one = One(machine)
    first = one.announce("a", T)
    one.run(TIMING.promise_ms - 1)
    second = one.announce("c", T + 50)
    one.run(1)
    third = one.announce("c", T + 50, number=2)
    return broken(first=first, within=not second, afterwards=third)


def no_yes_within(machine: Machine) -> str:
    one = One(machine)
    one.announce("a", T)
    one.run(TIMING.promise_ms - 1)
    within = one.question("c", T + 50)
    one.run(100)
    return broken(within=within is False, afterwards=one.question("c", T + 50) is True)


def no_candidacy_within(machine: Machine) -> str:
    """Candidacy is a yes: not while the own promise runs."""
    one = One(machine)
    one.announce("a", T)
    one.ask()
    within = said(one.run(TIMING.promise_ms - 1), says.Question)
    later = said(one.run(100), says.Question)
    return broken(within=not within, afterwards=bool(later))


def acks_renew(machine: Machine) -> str:
    """Each ack of the same ballot begins the promise anew."""
    one = One(machine)
    one.announce("a", T)
    one.run(400)
    again = one.announce("a", T, number=2)
    one.run(TIMING.promise_ms - 1)
    return broken(again=again, still=one.question("c", T + 50) is False)


def silent_yes(machine: Machine) -> str:
    one = One(machine, calm=False)
    one.run(TIMING.promise_ms - 1)
    return broken(within=one.question("a", T) is not True)


def silent_ack(machine: Machine) -> str:
    one = One(machine, calm=False)
    one.run(TIMING.promise_ms - 1)
    within = one.announce("a", T)
    one.run(100)
    return broken(within=not within, afterwards=one.announce("a", T, number=2))


def silent_candidate(machine: Machine) -> str:
    one = One(machine, calm=False)
    one.run(1)
    one.ask()
    within = said(one.run(TIMING.promise_ms - 3), says.Question)
    return broken(within=not within, afterwards=bool(said(one.run(100), says.Question)))


def source_acks_nobody(machine: Machine) -> str:
    one = One(machine)
    ballot = one.calls()
    holding = one.announce("c", ballot.term + 50)
    one.run(TIMING.cancel_at_ms)
    one.run(TIMING.hold_ms)
    calling = one.announce("c", ballot.term + 50, number=9)
    one.tell(told.SourceEnded(KEY, ballot, Failure("cancelled")))
    over = one.announce("c", ballot.term + 50, number=10)
    return broken(holding=not holding, calling=not calling, over=over)


def claim_loses(machine: Machine) -> str:
    """Who only claims loses to a higher ANNOUNCE: its ballot ends, and it acks."""
    one = One(machine)
    ballot = one.wins()
    acked = one.announce("c", ballot.term + 1)
    one.run(1)
    ends = [message.trailer.ballot for message in said(one.seen, says.Answer) if message.trailer.ended]
    called = did(one.ack("a", ballot, 1), does.Call)
    return broken(acked=acked, told=ends == [ballot], closed=not called)


def promise_covers_the_hold(machine: Machine) -> str:
    """Ps is at least Hs on the slowest clock against the fastest, and a tick for clocks read in whole milliseconds."""
    one = One(machine)
    one.announce("a", T)
    one.run(TIMING.promise_least_ms)
    return broken(covered=one.question("c", T + 50) is False)
