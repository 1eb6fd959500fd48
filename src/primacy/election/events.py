"""Recorded facts with a reason: what `why`, the log, the metrics, the dashboard and the simulator's checkers read.

A strategy records every change of who leads, every refusal that an operator must know of, and every rare situation that
the simulator counts. Codes are closed; the sentence is for people.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Code(StrEnum):
    """Why something changed. Closed."""

    # who leads
    STARTED = "started"
    CAMPAIGNS = "campaigns"
    ELECTED = "elected"
    FOLLOWS = "follows"
    LEADER_SILENT = "leader-silent"
    LEADER_LEFT = "leader-left"
    MAJORITY_LOST = "majority-lost"
    HIGHER_TERM = "higher-term"
    TERM_AHEAD = "term-ahead"
    STEP_DOWN = "step-down"
    TRANSFER = "transfer"
    PAUSED = "paused"
    UNHEALTHY = "unhealthy"
    STOPPING = "stopping"
    CANNOT_START = "cannot-start"
    GUARD_LOST = "guard-lost"
    RENEWAL_LATE = "renewal-late"
    LEASE_LOST = "lease-lost"
    LEASE_TAKEN = "lease-taken"
    OUTRANKED = "outranked"
    OVERSLEPT = "overslept"
    REMOVED = "removed"
    WORK_ENDED = "work-ended"
    RELEASED = "released"
    TOKEN_LOW = "token-low"
    # what holds a node back
    RECOVERING = "recovering"
    RECOVERED = "recovered"
    NO_MEMORY = "no-memory"
    FIRST_BALLOT = "first-ballot"
    INIT_REFUSED = "init-refused"
    OTHER_LIST = "other-list"
    OTHER_CLUSTER = "other-cluster"
    TWO_BOOTS = "two-boots"
    STALE_INCARNATION = "stale-incarnation"
    TERM_JUMP = "term-jump"
    DISK_FAILED = "disk-failed"
    LOCK_HELD = "lock-held"
    STORE_FAILED = "store-failed"
    STORE_ANSWERS = "store-answers"
    STORE_UNUSABLE = "store-unusable"
    HOLD_TOO_LONG = "hold-too-long"
    SETTLED = "settled"
    OTHER_SERVER = "other-server"
    NEW_NAME = "new-name"
    EARLIER_GONE = "earlier-gone"
    FAILSAFE = "failsafe"
    # the register of members
    MEMBERS_CHANGED = "members-changed"
    MEMBERS_REFUSED = "members-refused"
    MEMBERS_TAKEN_BACK = "members-taken-back"
    MEMBERS_DONE = "members-done"
    ADMITTED = "admitted"
    NOT_A_MEMBER = "not-a-member"
    # rare situations, counted by the simulator
    START_DELAY = "start-delay"
    PROMISE_REFUSED = "promise-refused"
    RELEASE_APPLIED = "release-applied"
    RELEASE_REFUSED = "release-refused"
    LATE_ACK = "late-ack"
    SPLIT_VOTE = "split-vote"
    CROSSED = "crossed-coordinators"
    BATON_LOST = "baton-lost"
    BATON_MERGED = "baton-merged"
    SKIPPED = "skipped-neighbour"
    WINNER_DEAD = "winner-dead"
    OBSERVATION_RESTARTED = "observation-restarted"
    ANSWER_LOST = "answer-lost"
    PRUNED = "pruned"
    RETURNED = "returned"


class Event(NamedTuple):
    """One recorded fact."""

    code: Code
    term: int = 0
    subject: str = ""
    """The node that it is about, if another than the recorder."""
    detail: str = ""
    """The rest of the sentence, for people."""
    value: int = 0
    """A number that belongs to the code: a delay in milliseconds, a token, a count."""


SAYS: dict[str, str] = {
    Code.STARTED: "start{s}",
    Code.CAMPAIGNS: "campaign{s}",
    Code.ELECTED: "lead{s}",
    Code.FOLLOWS: "follow{s} {whom}",
    Code.LEADER_SILENT: "no longer hear{s} {whom}",
    Code.LEADER_LEFT: "lose{s} the leader {whom}",
    Code.MAJORITY_LOST: "lost its majority and stops its work",
    Code.HIGHER_TERM: "give{s} way to a higher term",
    Code.TERM_AHEAD: "step{s} down in order, to campaign again above a higher term",
    Code.STEP_DOWN: "step{s} down",
    Code.TRANSFER: "step{s} down in favour of {whom}",
    Code.PAUSED: "{is} paused and stand{s} back",
    Code.UNHEALTHY: "{is} unhealthy and stand{s} back",
    Code.STOPPING: "{is} stopping and stand{s} back",
    Code.CANNOT_START: "resign{s}",
    Code.GUARD_LOST: "lost the guard of its work and give{s} up",
    Code.RENEWAL_LATE: "give{s} up the lease",
    Code.LEASE_LOST: "lost the lease",
    Code.LEASE_TAKEN: "take{s} the lease",
    Code.OUTRANKED: "yield{s} to {whom}, which ranks higher",
    Code.OVERSLEPT: "slept past its time",
    Code.REMOVED: "{is} no longer in the list",
    Code.WORK_ENDED: "{has} ended its work and lead{s} no more",
    Code.RELEASED: "lead{s} no more: its work is confirmed gone and released",
    Code.TOKEN_LOW: "resign{s}, for a larger token is known",
    Code.RECOVERING: "{is} recovering",
    Code.RECOVERED: "{has} recovered",
    Code.NO_MEMORY: "{has} no memory",
    Code.FIRST_BALLOT: "write{s} a first ballot",
    Code.INIT_REFUSED: "refuse{s} to begin a cluster",
    Code.OTHER_LIST: "ignore{s} {whom}",
    Code.OTHER_CLUSTER: "ignore{s} {whom}",
    Code.TWO_BOOTS: "raise{s} an alert about an id that is used twice",
    Code.STALE_INCARNATION: "forget{s} its ballot",
    Code.TERM_JUMP: "refuse{s} to believe {whom}",
    Code.DISK_FAILED: "cannot save to the disk",
    Code.LOCK_HELD: "find{s} old work still running on this machine",
    Code.STORE_FAILED: "get{s} no answer from the store",
    Code.STORE_UNUSABLE: "cannot use the store before somebody changes something",
    Code.HOLD_TOO_LONG: "may not lead with this hold",
    Code.SETTLED: "settle{s} the table of the store: names are free",
    Code.STORE_ANSWERS: "get{s} answers from the store again, after {value} ms",
    Code.OTHER_SERVER: "find{s} another server behind the store",
    Code.EARLIER_GONE: "know{s} by the free run lock that the work of {whom}, which stands in the row, is gone",
    Code.FAILSAFE: "keep{s} its work going without the store, for all nodes of the list agree",
    Code.NEW_NAME: "find{s} no row of this name in the store and cannot know whether there was one: waits {value} ms",
    Code.MEMBERS_CHANGED: "{has} the members {whom}",
    Code.MEMBERS_REFUSED: "refuse{s} to change the members",
    Code.MEMBERS_TAKEN_BACK: "take{s} a change of the members back, with {whom}",
    Code.MEMBERS_DONE: "{has} changed the members, as was asked for, to {whom}",
    Code.ADMITTED: "{is} admitted by {whom}",
    Code.NOT_A_MEMBER: "{is} not among the members",
    Code.START_DELAY: "must wait {value} ms before the work may start",
    Code.PROMISE_REFUSED: "refuse{s} {whom} its vote: the promise lasts {value} ms more",
    Code.RELEASE_APPLIED: "take{s} the release by {whom}",
    Code.RELEASE_REFUSED: "{is} bound by a newer term and refuse{s} the release by {whom}",
    Code.LATE_ACK: "get{s} an answer{of_whom}, too late to count",
    Code.SPLIT_VOTE: "got no majority of the votes",
    Code.CROSSED: "meet{s} another leader, {whom}",
    Code.BATON_LOST: "lost a baton",
    Code.BATON_MERGED: "drop{s} a baton in favour of another",
    Code.SKIPPED: "skip{s} {whom}",
    Code.WINNER_DEAD: "waited in vain for an announcement",
    Code.OBSERVATION_RESTARTED: "observe{s} the row anew",
    Code.ANSWER_LOST: "missed an answer of the store",
    Code.PRUNED: "strike{s} {whom} from the list",
    Code.RETURNED: "find{s} {whom} back",
}
"""What a node does, for every code. {s}, {is} and {has} agree with how many nodes do it: see `agreed`."""

RECOVERS = {
    "no-memory": ("it has no memory of this cluster", "it had no memory of this cluster"),
    "other-list": ("its ballot has other members", "its ballot had other members"),
    "other-configuration": ("it ran with another configuration", "it had run with another configuration"),
    "two-boots": ("its id is used twice", "its id was used twice"),
}
"""Why a node recovers, as its machine names it: in words, while it does, and afterwards."""


def saying(code: str, term: int, subject: str, detail: str, value: int) -> str:
    """What an event says, without its node: what, in which term (0: left out), and why. Its verbs are to agree."""
    says = SAYS.get(code, code.replace("-", " "))
    whom = {"{whom}": subject or "another", "{of_whom}": f" of {subject}" if subject else ""}
    for mark, text in (*whom.items(), ("{value}", f"{value:,}")):
        says = says.replace(mark, text)
    says += in_term(str(term))
    if detail in RECOVERS and code in (Code.RECOVERING, Code.RECOVERED):
        detail = RECOVERS[detail][code == Code.RECOVERED]
    return f"{says}: {detail}" if detail else says


def agreed(text: str, *, many: bool = False) -> str:
    """One node stands, is and has; many stand, are and have."""
    for mark, one, more in (("{s}", "s", ""), ("{is}", "is", "are"), ("{has}", "has", "have")):
        text = text.replace(mark, more if many else one)
    return text


def in_term(term: str) -> str:
    """Terms are small; a lease has its token in that place."""
    if term in ("", "0"):
        return ""
    return f" (term {term})" if len(term) < 10 else f" (token {term})"


def sentence(node: str, event: Event) -> str:
    """One event as a sentence, whom it is about first."""
    return f"{node} {agreed(saying(event.code, event.term, event.subject, event.detail, event.value))}"
