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
    STANDS = "stands"
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
    MUTED = "muted"
    UNMUTED = "unmuted"
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
    OTHER_SERVER = "other-server"
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
