"""Who is shown as acting: the one function that `/v1/cluster`, `status` and every page of the dashboard ask. Pure.

What is known of another node is what it said, and how long ago. So there are four answers, and the third is an answer:

- acts: it said that something of the command lives there, and it was heard since so recently that it cannot have lost
  its hold without saying so;
- no: it said that nothing of the command lives there, or it never said anything;
- unknown: it said that it acts, and is not heard any more: it is stopped, cut off or only far away;
- over: it said that it acts, and that cannot be so any more. A later start of another node shows it, or its hold has
  ended and nobody can have renewed it.

What a node said counts as its guard's report: `running` until the guard confirms that nothing is left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

ACTS = ("starting", "running", "stopping", "stuck")
"""States in which something of the command may live."""
LOOKS_MS = 600
"""No node is called silent before this: a reader looks four times a second, and a look may be late."""
NEWS_MS = 1_500
"""The same where no heartbeats are heard, but what a node says of itself once a second."""
CLAIM_MS = 2_500
"""What a node said of itself counts for so long, or for the hold that it spoke of: two news may be lost."""
SLACK_MS = 500
"""By so much the news of two nodes may be late against each other, on a busy machine."""


class Acting(StrEnum):
    """What may be shown of a node."""

    ACTS = "acts"
    NO = "no"
    UNKNOWN = "unknown"
    OVER = "over"


class Statement(NamedTuple):
    """What one node said of itself last; moments on the reader's clock."""

    node: str
    state: str = "stopped"
    said_ms: int | None = None
    """None: it never said anything."""
    heard_ms: int | None = None
    """When anything of it was heard, this or a heartbeat: a change would have been told at once."""
    began_ms: int = 0
    """When the command was started, if it said so."""
    token: int = 0
    hold_ms: int = 0
    """What was left of its hold when it said so."""
    leader: str = ""
    """Whom it follows; itself, if it leads."""
    votes: bool = True
    process: str = ""
    """Where the reader sees the process itself (a lab): frozen | killed | stopped (in order); empty if not."""


class Rules(NamedTuple):
    """What the strategy lets a reader conclude."""

    fresh_ms: int = NEWS_MS
    """Who was heard within this time is as it said."""
    hold_ms: int = 0
    """After this time without a renewal the command is dead, whatever happened; 0: the strategy has no hold."""
    by_majority: bool = False
    """A hold is renewed by a majority of the voters, who say whom they follow (raft)."""
    slack_ms: int = SLACK_MS


def rules_of(strategy: str, heartbeat_ms: int, term_at_ms: int, hold_ms: int) -> Rules:
    """Until `term_at_ms` after its last renewal a holder goes on, so that silence of this length means nothing."""
    if strategy == "raft":
        return Rules(max(LOOKS_MS, term_at_ms), hold_ms, by_majority=True)
    return Rules(max(NEWS_MS, term_at_ms, 2 * heartbeat_ms), hold_ms)


def shown_as(
    statements: Sequence[Statement], now_ms: int, rules: Rules, at_once: Collection[str] = ()
) -> dict[str, Acting]:
    """By node. `at_once`: nodes that are known to have acted at the same time; none of them ends the other's claim."""
    claims = [each for each in statements if each.state in ACTS and each.said_ms is not None]
    shown = {each.node: Acting.NO for each in statements}
    for claim in claims:
        others = [each for each in claims if not (each.node in at_once and claim.node in at_once)]
        if any(overtaken(claim, other, rules.slack_ms) for other in others) or claim.process == "stopped":
            shown[claim.node] = Acting.OVER
        elif not claim.process and _is_fresh(claim, now_ms, rules):
            shown[claim.node] = Acting.ACTS
        else:
            ended = _has_ended(claim, statements, now_ms, rules)
            shown[claim.node] = Acting.OVER if ended else Acting.UNKNOWN
    return shown


def overtaken(one: Statement, other: Statement, slack_ms: int = SLACK_MS) -> bool:
    """A later start of another node, after the last time at which this one claimed to act."""
    later = (other.began_ms, other.token) > (one.began_ms, one.token)
    return other.node != one.node and later and (one.said_ms or 0) - slack_ms <= other.began_ms


def _last_ms(claim: Statement) -> int:
    return max(claim.said_ms or 0, claim.heard_ms or 0)


def _is_fresh(claim: Statement, now_ms: int, rules: Rules) -> bool:
    said_ms = now_ms - (claim.said_ms or 0)
    return now_ms - _last_ms(claim) <= rules.fresh_ms and said_ms <= max(CLAIM_MS, claim.hold_ms)


def _has_ended(claim: Statement, statements: Sequence[Statement], now_ms: int, rules: Rules) -> bool:
    """Its hold is over, and nobody can have renewed it: its process stands still, or a majority follows it not."""
    if not rules.hold_ms or claim.state == "stuck" or now_ms - _last_ms(claim) <= rules.hold_ms:
        return False
    if claim.process:
        return True
    voters = [each for each in statements if each.votes]
    denying = [
        each
        for each in voters
        if each.node != claim.node
        and not each.process
        and each.said_ms is not None
        and now_ms - _last_ms(each) <= rules.fresh_ms
        and each.leader != claim.node
    ]
    return rules.by_majority and len(denying) > len(voters) // 2


def not_known(
    here: str, statements: Sequence[Statement], shown: Mapping[str, Acting], now_ms: int, rules: Rules
) -> str:
    """What node `here` cannot know while it sees nobody act; empty if it knows that nobody does, or sees who does.

    Where a majority decides, a node that hears less than one may be the smaller part of a divided network.
    """
    if Acting.ACTS in shown.values():
        return ""
    lost = [each for each in statements if shown.get(each.node) is Acting.UNKNOWN]
    if lost:
        newest = max(lost, key=_last_ms)
        silent_s = (now_ms - _last_ms(newest)) // 1_000
        return (
            f"node {newest.node} ran the command when it was last heard, {silent_s:,} s ago; whether it still does is "
            "not known here"
        )
    voters = [each for each in statements if each.votes]
    heard = [each for each in statements if each.node == here or _is_heard(each, now_ms, rules)]
    if len(heard) < 2 <= len(statements):
        return "this node hears nobody; it does not know whether the command runs elsewhere"
    count, needed = sum(each.votes for each in heard), len(voters) // 2 + 1
    if rules.by_majority and count < needed:
        return (
            f"this node hears {count} of {len(voters)} nodes, {needed} are needed; it does not know whether the "
            "command runs elsewhere"
        )
    names = {each.node for each in heard}
    led = sorted({each.leader for each in heard if each.leader} - names)
    return f"node {led[0]} leads, as others say; whether the command runs there is not known here" if led else ""


def _is_heard(each: Statement, now_ms: int, rules: Rules) -> bool:
    return each.heard_ms is not None and now_ms - each.heard_ms <= max(rules.fresh_ms, NEWS_MS)
