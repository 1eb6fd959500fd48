"""What a node is, and what it keeps for as long as it is that: one object per role, gone with the role.

    follower ──► candidate (pre-vote, then vote) ──► leader
       ▲  ▲          │                                 │
       │  └──────────┴─────────────────────────────────┘
       └──► recovering: mute until others have answered (M1, M2, Q10)

Starting, observer and paused are words for a follower that may not do all of it yet. The transitions stand in
`state.py`, together. What binds a node in every role (ballot, promise, work) stands there, too: a term that was left
must not take a promise with it.
"""

from __future__ import annotations

from primacy.election.messages import VoteReply
from primacy.election.model import Goal, Register
from primacy.election.raft.progress import Progress


class Follower:
    """Nothing of its own: whom it follows, and what it acked, it must know in every role."""


class Candidate:
    """The votes for one asked term."""

    def __init__(self, term: int, pre: bool) -> None:
        self.term = term
        self.pre = pre
        """It only asks whether others would vote (Q9)."""
        self.yes: dict[str, VoteReply] = {}
        self.no: dict[str, int] = {}
        """Who refused, and for how many milliseconds it will; 0 if this term is not to be had."""
        self.is_shown = True
        """False after a resume or a new first ballot: it is shown as a follower, though the votes asked for count."""


class Change:
    """What a leader keeps of a change of members (`change.py`, `admit.py`). What must outlive it, the register has."""

    def __init__(self) -> None:
        self.since_ms = 0
        """When it was elected."""
        self.carried_from = 1
        """The number of the first heartbeat that carries the present register (R5)."""
        self.wanted: Goal | None = None
        """What it was asked for and has not written yet."""
        self.cancelled = False
        self.before: Register | None = None
        """What it had before the joint register that it wrote itself: only it may take that back unproved (R5)."""
        self.written_at_ms = 0
        self.retry_at_ms = 0
        """When a joint register that was taken back is tried again."""
        self.is_done_due = False
        """The change is written, and not proved yet."""
        self.removed: dict[str, bool] = {}
        """Whom it removed, and who has not said that it knows (R10)."""
        self.questions: dict[str, tuple[int, int]] = {}
        """Blank nodes that ask to be admitted: their boot, and the newest heartbeat that had left by then (R8)."""

    def is_busy(self, register: Register | None) -> bool:
        """There is something to do besides sending heartbeats."""
        if self.wanted is not None or self.cancelled or self.is_done_due or self.removed or self.questions:
            return True
        return register is not None and (bool(register.prior) or register.goal is not None)


class Leader:
    """What a leader keeps of its term."""

    def __init__(self, now_ms: int, term: int, token: int, start_at_ms: int, ages: dict[str, tuple[int, int]]) -> None:
        self.term = term
        self.token = token
        self.start_at_ms = start_at_ms
        """The end of the start delay (Q5)."""
        self.ages = ages
        """Voter -> (term of its newest heartbeat, when work of that term is surely gone)."""
        self.progress = Progress(now_ms)
        self.next_heartbeat_ms = now_ms
        self.ordered = False
        """The work of this term was ordered to start."""
        self.ran = False
        """The work of this term was seen running."""
        self.deferred = ""
        """What its start waits for on purpose (G8): an approval, a fence command."""
        self.due_ms = now_ms
        """From when on its work should start, or after the start delay: H later it resigns (Q6)."""
        self.closed = False
        """TERM was sent for its sake, its guard was lost, or a release was ordered (Q8)."""
        self.successor = ""
        """Whom a planned stop is in favour of."""
        self.newest_term = 0
        """Term of the newest heartbeat that the winner itself had acked or sent before."""
        self.ahead_term = 0
        """A voter is ahead of us: step down in order and campaign again above this term (Q9)."""
        self.change = Change()

    @property
    def preceding_term(self) -> int:
        """The newest earlier term of which it or a voter of its majority knows a heartbeat; 0 for none."""
        return max(self.newest_term, *(term for term, _ in self.ages.values()), 0)


class Recovering:
    """It grants, acks and asks for nothing until others have answered (M1, M2) or an operator acted (Q10)."""

    def __init__(self, why: str) -> None:
        self.why = why


RoleState = Follower | Candidate | Leader | Recovering
