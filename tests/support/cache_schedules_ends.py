"""Schedules written by hand for the cache's rules C6 and C7: each gives what is broken, or nothing."""

from __future__ import annotations

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.model import Ballot, Failure, SourceSettings
from tests.support.cache_harness import KEY, SETTINGS, WALL_MS, Harness
from tests.support.cache_one_peer import BOOTS, One, T, did, said, says_to
from tests.support.cache_schedules import TIMING, Machine, broken

# --- C6: need ---------------------------------------------------------------------------------------------------------


def fresh_refuses(machine: Machine) -> str:
    """A fresh copy of at least the needed epoch refuses, saying epoch and expiry; a lower one says yes."""
    one = One(machine)
    one.update("a", one.ballot("a", T))
    trailer = one.trailer("c", one.ballot("c", T + 9), need=T)
    (answer,) = says_to(one.hear("c", says.Question(KEY, T + 9, trailer)), "c", says.Answer)
    one.run(100)
    above = one.question("c", T + 9, need=T + 1)
    return broken(
        refused=not answer.vote,
        epoch=answer.trailer.epoch == one.ballot("a", T),
        expiry=answer.expire_ms > one.wall,
        above=above is True,
    )


def refused_claim_fetches(machine: Machine) -> str:
    """The asker ends its claim and fetches the copy."""
    one = One(machine)
    ballot = one.wins()
    one.refuse("c", ballot, epoch=one.ballot("c", T))
    one.run(1)
    ends = [message.trailer.ballot for message in said(one.seen, says.Answer) if message.trailer.ended]
    requests = says_to(one.seen, "c", says.EntryRequest)
    one.update("c", one.ballot("c", T), result=False)
    given = did(one.seen, does.Give)
    return broken(ended=ends == [ballot], fetched=len(requests) == 1, given=[g.stale for g in given] == [False])


def undelivered_raises_need(machine: Machine) -> str:
    """A copy that is claimed and does not come within 100 ms: the next question needs a higher epoch."""
    one = One(machine)
    ballot = one.stands()
    one.refuse("a", ballot, epoch=one.ballot("a", T))
    asked = said(one.run(TIMING.entry_ms + 50), says.Question)
    return broken(again=bool(asked), need=bool(asked) and asked[0].trailer.need == T + 1)


def expired_copy_needs_more(machine: Machine) -> str:
    one = One(machine)
    one.update("a", one.ballot("a", T), ttl_ms=100)
    one.run(200)
    asked = said(one.ask(), says.Question)
    return broken(need=[message.trailer.need for message in asked] == [T + 1])


def clocks_apart(machine: Machine) -> str:
    """V8: who sees a copy expired is not refused by those whose clocks do not, again and again."""
    harness = Harness(machine=machine, settings=SETTINGS._replace(sources=(SourceSettings(ttl_ms=4_000),)))
    harness.skew.update(a=1_400, b=-1_400, c=-1_400)
    harness.run(3_000)
    harness.ask("c")
    harness.run(1_500)
    request = harness.ask("a", after_ms=2 * WALL_MS)
    harness.run(1_000)
    return broken(answered=harness.got(request) == "fresh", one_at_a_time=not harness.overlaps)


def called_is_not_refused(machine: Machine) -> str:
    """V10: once the source is called, a copy that became fresh meanwhile does not cost it its acks."""
    follower = One(machine)
    source = One(machine)
    ballot = source.calls()
    announced = said(source.run(TIMING.announce_ms), says.Announce)[-1]
    follower.update("c", follower.ballot("c", T))
    trailer = follower.trailer("a", Ballot(T + 5, "a", BOOTS["a"]), number=2, need=announced.trailer.need)
    acked = says_to(follower.hear("a", says.Announce(KEY, T + 5, 0, trailer)), "a", says.Ack)
    source.refuse("a", ballot, epoch=source.ballot("a", T))
    return broken(acked=bool(acked), goes_on=not did(source.seen, does.Cancel))


# --- C7: ends ---------------------------------------------------------------------------------------------------------


def end_frees_its_ballot(machine: Machine) -> str:
    """UPDATE, or ANSWER with the mark "ended": frees the promise to that ballot, and to no other."""
    one = One(machine)
    one.announce("a", T)
    one.ended(one.ballot("c", T + 1))
    one.update("c", one.ballot("c", T - 5))
    other = one.question("c", T + 9)
    one.ended(one.ballot("a"))
    one.run(100)
    freed = one.question("c", T + 9)
    updated = One(machine)
    updated.announce("a", T)
    updated.update("a", updated.ballot("a"))
    return broken(other=other is False, freed=freed is True, by_update=updated.question("c", T + 9, need=T + 1) is True)


def end_names_the_boot(machine: Machine) -> str:
    """The end of a ballot of an earlier boot frees nothing of this one, and nobody ends another boot's ballot."""
    one = One(machine)
    one.announce("a", T)
    one.ended(one.ballot("a")._replace(boot=7))
    one.ended(one.ballot("a"), boot=7)
    return broken(kept=one.question("c", T + 9) is False)


def failure_rests(machine: Machine) -> str:
    """After a failure clients are told why, and the key rests: twice as long each time."""
    one = One(machine)
    rests = []
    for number in (1, 2):
        ballot = one.calls(number)
        ends = one.tell(told.SourceEnded(KEY, ballot, Failure("boom")))
        (end,) = said(ends, says.Answer)
        rests.append(end.trailer.wait_ms)
        refused = did(ends, does.Refuse)
        meanwhile = one.ask(10 + number)
        if not did(meanwhile, does.Refuse) or said(meanwhile, says.Question) or refused[0].reason != "boom":
            return "a key that failed is asked for at once"
        one.run(rests[-1])
    follower = One(machine)
    follower.announce("a", T)
    follower.ask()
    told_of = did(follower.ended(follower.ballot("a"), wait_ms=500), does.Refuse)
    early = said(follower.run(499), says.Question)
    return broken(doubled=rests == [500, 1_000], followers=bool(told_of), follower_rests=not early)


def negative_is_remembered(machine: Machine) -> str:
    """`negative_ms`: what the source does not have is not asked for again for so long."""
    source = SourceSettings(negative_ms=3_000)
    one = One(machine, SETTINGS._replace(sources=(source,)))
    ballot = one.calls()
    ends = one.tell(told.SourceEnded(KEY, ballot, Failure("no such entry", missing=True)))
    one.run(2_900)
    within = one.ask(2)
    one.run(200)
    refusal = does.Refuse(2, "no such entry", miss=True)
    return broken(
        told=did(ends, does.Refuse) == [refusal._replace(request=1)],
        within=did(within, does.Refuse) == [refusal],
        afterwards=bool(said(one.ask(3), says.Question)),
    )


def missing_is_told(machine: Machine) -> str:
    """That the source has no such entry is no failure: peers that follow are told so, and tell who waits there."""
    one = One(machine)
    ends = one.tell(told.SourceEnded(KEY, one.calls(), Failure("no such entry", missing=True)))
    fails = One(machine)
    failed = fails.tell(told.SourceEnded(KEY, fails.calls(), Failure("boom")))
    follower = One(machine)
    follower.announce("a", T)
    follower.ask()
    trailer = follower.trailer("a", follower.ballot("a"), ended=True, wait_ms=500, echo=0, missing=True)
    heard = follower.hear("a", says.Answer(KEY, T, 0, False, trailer))
    later = follower.ask(2)
    return broken(
        says=[answer.trailer.missing for answer in said(ends, says.Answer)] == [True],
        of_a_failure=[answer.trailer.missing for answer in said(failed, says.Answer)] == [False],
        who_waits=[refusal.miss for refusal in did(heard, does.Refuse)] == [True],
        who_comes=[refusal.miss for refusal in did(later, does.Refuse)] == [True],
        failure=[refusal.miss for refusal in did(failed, does.Refuse)] == [False],
    )
