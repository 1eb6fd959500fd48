"""What a raft node knows, and the small questions that every part of the strategy asks of it.

The strategy is layered by idea, each layer in its file: this state, then leading (`lead.py`), voting
(`vote.py`), members and memory (`memory.py`), and at the top the one way in (`strategy.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.inputs import Init
from primacy.election.messages import Ahead, Beat, Message, Origin, Release, Stale, VoteReply, VoteRequest
from primacy.election.model import Ballot, Role, Seat
from primacy.election.raft.quorum import Quorum
from primacy.election.raft.recovery import Recovery
from primacy.election.raft.roles import Candidate, Follower, Leader, Recovering, RoleState
from primacy.settings.timing import Timing

TERM_JUMP_MAX = 1_000_000
"""A term further above ours than this is a fault or an attack, not an election (Q9)."""
made = tuple.__new__
"""A NamedTuple from its fields, without the function that gives them their names: for what is made all the time."""
REFUSED_MAX = 256
"""How many refusals of the last beat are remembered: a few per node of a large cluster. Beyond it none is sent."""
NOTED_MAX = 64
"""How many complaints about other nodes are remembered, so that each is recorded once."""


class RaftOptions(NamedTuple):
    """What a node is told besides its seat and its times."""

    auto: bool = False
    """`cluster.first_start: auto` (M3)."""
    token_max: int = 0
    """Largest token that this machine knows of this election, from whatever strategy (T2)."""


class RaftState:
    """All that a raft node keeps in memory."""

    def __init__(self, seat: Seat, timing: Timing, ballot: Ballot | None, options: RaftOptions | None = None) -> None:
        self.seat = seat
        self.timing = timing
        self.options = options or RaftOptions()
        self.node = seat.node
        self.ballot = ballot if ballot is not None and not ballot.void else None
        self.deadline_ms: int | None = None
        self.role_state: RoleState = Follower()
        self.leader = ""
        self.stand_at_ms = 0
        self.released_term = -1
        self.release: Release | None = None
        self.newest_at_ms: int | None = None
        """When the newest beat was acked or sent, or the ballot read; None: nothing that still binds."""
        self.newest_term = 0
        self._acked_of = (0, 0)
        """Term and leader's boot of the newest beat that was acked, or followed by a node that does not vote."""
        self._acked_number = 0
        """The number of that beat: none up to it renews anything (Q4)."""
        self.lock_held = False
        self.work_term = 0
        """The term whose work was ordered here and is not confirmed gone; 0 for none."""
        self.paused = False
        self.healthy = True
        self.ill = ""
        """What its probes complain of."""
        self.heard: dict[str, int] = {}
        self.origin = Origin(self.node, 0, seat.boot, seat.membership.hash, 0)
        self.recovery = Recovery(seat, auto=self.options.auto, token_max=self.options.token_max)
        if ballot is not None and ballot.void:
            self.recovery.found(ballot)
        self._blank_saving()
        self._blank_hearing()
        self.quorum = Quorum.of(seat.membership, self.node)
        self._lag_ms = self.quorum.rank * timing.spread_ms
        """A lower priority waits one spread longer per step; it never blocks."""

    def _blank_saving(self) -> None:
        """What the disk has of the ballot, and what is on its way there."""
        self._durable = self.ballot
        self._earlier = self.ballot
        self._saving = False
        """A ballot is on its way to the disk; anything but `PersistFailed` next means that it arrived."""
        self._gave_way = False
        """This boot gave up a first ballot that was never used (M3)."""
        self._voiding = False
        """A mark is on its way to the disk: that the ballot is an old copy, or who was listed."""
        self._void_due = False
        """That mark has still to be saved."""
        self._disk_fault = ""
        """Why the last save failed; while it stands, nothing leaves but what a new save lets through (F31)."""
        self._booted = False
        self._wall_offset_ms = 0
        self._read_at_ms = 0

    def _blank_hearing(self) -> None:
        """What was heard of others and told to them."""
        self._starts = False
        """The last list of effects had a start behind its ballot."""
        self._steady: Beat | None = None
        """The beat that this node acked in its last step, if another one like it changes nothing but moments."""
        self._calm = False
        """After its last step the ballot was as the disk has it, and this node waited for nobody's memory."""
        self._known: dict[str, Origin] = {}
        self._elsewhere: dict[str, int] = {}
        """When a listed node was last heard that runs under another list; only people ask for it."""
        self._duplicates: set[str] = set()  # only asked for membership, never walked
        self._noted: dict[tuple[str, str], bool] = {}
        self._refused: dict[tuple[str | int, ...], int] = {}
        """When which refusal was sent to whom, for one beat (E1)."""
        self._ask_at_ms = 0
        self._offer_at_ms = 0
        self._offers: dict[str, int] = {}
        """First start: the boots that said they are blank and have not confirmed the first ballot yet."""
        self._init_tried: Init | None = None
        """The operator's word that the last first ballot was made on, until that ballot is on the disk."""

    @property
    def term(self) -> int:
        return self.ballot.term if self.ballot is not None else 0

    # --- the role, and every way in which it changes ------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The word for it."""
        match self.role_state:
            case Leader():
                return Role.LEADER
            case Candidate(is_shown=True):
                return Role.CANDIDATE
        if not self._booted:
            return Role.STARTING
        if self.muted:
            return Role.RECOVERING
        if not self.quorum.votes:
            return Role.OBSERVER
        return Role.PAUSED if self.paused else Role.FOLLOWER

    @property
    def leader_state(self) -> Leader | None:
        role_state = self.role_state
        return role_state if type(role_state) is Leader else None

    @property
    def campaign(self) -> Candidate | None:
        role_state = self.role_state
        return role_state if type(role_state) is Candidate else None

    @property
    def muted(self) -> str:
        """Why it recovers; empty if it does not."""
        role_state = self.role_state
        return role_state.why if type(role_state) is Recovering else ""

    def _become_follower(self, leader: str = "") -> None:
        """Whatever it was, it follows this one, or nobody yet. Only memory ends recovering (`_become_able`)."""
        self.leader = leader
        if not self.muted:
            self.role_state = Follower()

    def _become_candidate(self, term: int, *, pre: bool) -> Candidate:
        self.role_state = Candidate(term, pre)
        return self.role_state

    def _become_leader(self, leader: Leader) -> None:
        self.role_state = leader
        self.leader = self.node

    def _become_recovering(self, why: str) -> None:
        """From now on it says nothing but questions and answers, and asks at once."""
        self.role_state = Recovering(why)
        self.leader = ""
        self._ask_at_ms = 0

    def _become_able(self, why_not: str) -> str:
        """The ballot was read: a follower, or recovering for this reason. Why it recovered before.

        A candidate asked for its votes under a first ballot that was never used; those under way still count.
        """
        was = self.muted
        if why_not:
            self.role_state = Recovering(why_not)
        elif was:
            self.role_state = Follower()
        else:
            self._show_as_follower()
        return was

    def _show_as_follower(self) -> None:
        if type(self.role_state) is Candidate:
            self.role_state.is_shown = False

    # --- small questions ----------------------------------------------------------------------------------------------

    def _promise_left(self, now_ms: int) -> int:
        """How long this voter still grants nothing (Q4): P from the newest beat acked or sent, or from reading."""
        if self.newest_at_ms is None or self._lock_suffices():
            return 0
        return max(0, self.newest_at_ms + self.timing.promise_ms - now_ms)

    def _work_unconfirmed(self) -> bool:
        """The run lock is held: by work of ours that is not confirmed gone, or by an old tree (Q6)."""
        return self.lock_held or self.work_term > 0

    def _lock_suffices(self) -> bool:
        """One voter whose ballot never held another list: the free run lock takes the place of P and delay (M4)."""
        ballot = self.ballot
        if ballot is None or ballot.changed or self.quorum.voters != (self.node,):
            return False
        return not self._work_unconfirmed()

    def _age(self, now_ms: int) -> int:
        """Since the newest beat acked or sent, or the ballot read (Q5); -1 for none that counts."""
        if self.newest_at_ms is None or self._lock_suffices():
            return -1
        return now_ms - self.newest_at_ms

    def _yes(self, now_ms: int, request: VoteRequest) -> VoteReply:
        ballot = self.ballot
        assert ballot is not None
        return VoteReply(
            self.origin,
            request.term,
            request.pre,
            True,
            request.origin.boot,
            ballot.term,
            self._age(now_ms),
            self.newest_term,
            ballot.hold_max_ms,
            ballot.token_known,
        )

    def _timeout(self, from_ms: int) -> int:
        """When to stand if nothing is heard: P after the newest beat, spread at random."""
        return from_ms + self.timing.promise_ms + self._lag_ms + int(self.seat.random.random() * self.timing.spread_ms)

    def _adopt(self, term: int) -> None:
        ballot = self.ballot
        assert ballot is not None
        if term > ballot.term:
            self.ballot = ballot._replace(term=term, voted_for="")

    def _is_refusal(self, message: Message) -> bool:
        """It reports a refusal, a difference or staleness: nothing may be sent because of it (E1)."""
        return isinstance(message, Stale | Ahead) or (isinstance(message, VoteReply) and not message.granted)

    def _refuse(self, now_ms: int, refusal: Send, *reason: int) -> list[Effect]:
        """A refusal, at most once per receiver and reason within a beat (E1): repeated datagrams multiply nothing."""
        key: tuple[str | int, ...] = (refusal.to, type(refusal.message).__name__, *reason)
        if key in self._refused or len(self._refused) >= REFUSED_MAX:
            return []
        self._refused[key] = now_ms
        return [refusal]

    def _forget_refusals(self, now_ms: int) -> None:
        """What was refused a beat ago may be refused again."""
        oldest_ms = now_ms - self.timing.heartbeat_ms
        self._refused = {key: at_ms for key, at_ms in self._refused.items() if at_ms > oldest_ms}

    def _note(self, code: Code, subject: str, detail: str) -> list[Effect]:
        """Records a complaint about another node once per boot."""
        if (code, subject) in self._noted or len(self._noted) >= NOTED_MAX:
            return []
        self._noted[code, subject] = True
        return [Record(Event(code, self.term, subject, detail))]
