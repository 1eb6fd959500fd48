"""What a raft node knows, and every change of its role: the state that all parts of the strategy work on.

The parts (`follow.py`, `campaign.py`, `lead.py`, `release.py`, `meet.py`, `memory.py`) keep nothing of their own, so a
copy of this is a copy of the node. What a role needs stands in `roles.py` and goes with the role; here stands what
binds a node in every role, and the small questions that all parts ask.
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.messages import Heartbeat, MembersTold, Origin, Release, VoteReply, VoteRequest
from primacy.election.model import Ballot, Kind, Member, MembersId, Register, Role, Seat
from primacy.election.raft.ballot import DurableBallot
from primacy.election.raft.quorum import Quorum
from primacy.election.raft.recovery import FirstStart, Recovery
from primacy.election.raft.register import UNKNOWN
from primacy.election.raft.roles import Candidate, Follower, Leader, Recovering, RoleState
from primacy.settings.timing import Timing

TERM_JUMP_MAX = 1_000_000
"""A term further above ours than this is a fault or an attack, not an election (Q9); unless a token asks for it: those
of a lease are moments in milliseconds."""
BELIEVED_MAX = 10**14
"""Tokens are moments in milliseconds, or count on from one: a larger one than this, of the year 5138, is a fault."""
made = tuple.__new__
"""A NamedTuple from its fields, without the function that gives them their names: for what is made all the time."""
ORDER_STEPS = 2
"""Who is third or later in an order of campaigns waits as long as the third: nobody is late for the sake of a wish."""
REFUSED_MAX = 256
"""How many refusals of the last heartbeat are remembered: a few per node of a large cluster. Beyond it none is sent."""
SEEN_MAX = 100
"""Of so many nodes the starts are remembered: as many as a file may name."""
NOTED_MAX = 64
"""How many complaints about other nodes are remembered, so that each is recorded once."""


class RaftOptions(NamedTuple):
    """What a node is told besides its seat and its times."""

    auto: bool = False
    """`cluster.first_start: auto` (M3)."""
    token_max: int = 0
    """Largest token that this machine knows of this election, from whatever strategy (T2)."""
    joins: bool = False
    """`cluster.first_start: join`: it begins no cluster."""
    aligned: bool = False
    """Heartbeats go at whole multiples of their time, never later than else: several elections send theirs together."""


class Promise:
    """What a voter acked or sent last, and what was released since: it binds in every role (Q4, Q5, G6)."""

    def __init__(self) -> None:
        self.newest_at_ms: int | None = None
        """When the newest heartbeat was acked or sent, or the ballot read; None: nothing that still binds."""
        self.newest_term = 0
        self.acked_of = (0, 0)
        """Term and leader's boot of the newest heartbeat that was acked, or followed by a node that does not vote."""
        self.acked_number = 0
        """The number of that heartbeat: none up to it renews anything (Q4)."""
        self.released_term = -1
        self.release: Release | None = None


class Peers:
    """What was heard of others, and told to them."""

    def __init__(self) -> None:
        self.known: dict[str, Origin] = {}
        """Who was met in this boot, as it spoke then."""
        self.duplicates: set[str] = set()  # only asked for membership, never walked
        self.elsewhere: dict[str, int] = {}
        """When a member was last heard that runs under another configuration; only people ask for it."""
        self.noted: dict[tuple[str, str], bool] = {}
        self.refused: dict[tuple[str | int, ...], int] = {}
        """When which refusal was sent to whom, for one heartbeat (E1)."""


class RaftState:
    """All that a raft node keeps in memory."""

    def __init__(self, seat: Seat, timing: Timing, ballot: Ballot | None, options: RaftOptions) -> None:
        self.seat = seat
        self.timing = timing
        self.options = options
        self.node = seat.node
        self.quorum = Quorum.of(seat.membership, self.node)
        self.order: tuple[str, ...] = ()
        """Who should campaign first; empty: as the priorities say."""
        self.lag_ms = 0
        """Who stands behind another waits one spread longer per step, in an order at most two; it never blocks."""
        self.set_lag()
        self.ballot = ballot if ballot is not None and not ballot.void else None
        self.disk = DurableBallot(self.ballot)
        self.origin = Origin(self.node, 0, seat.boot, seat.membership.hash, 0)
        self.booted = False
        self.role_state: RoleState = Follower()
        self.leader = ""
        """Who leads, as far as this node knows."""
        self.campaign_at_ms = 0
        """When it asks for votes, unless it hears a leader; as long as it neither leads nor recovers."""
        self.ask_at_ms = 0
        """When it asks what others remember, or reads its ballot again; as long as it recovers or starts."""
        self.promise = Promise()
        self.lock_held = False
        self.work_term = 0
        """The term whose work was ordered here and is not confirmed gone; 0 for none."""
        self.paused = False
        self.pause_ends_by = ""
        """What the end of it waits for, if that is not an operator's `resume`."""
        self.healthy = True
        self.ill = ""
        """What its probes complain of."""
        self.heard_at_ms: dict[str, int] = {}
        self.peers = Peers()
        self.recovery = Recovery(seat, auto=options.auto, token_max=options.token_max)
        if ballot is not None and ballot.void:
            self.recovery.found(ballot)
        if ballot is not None:
            self.recovery.ran_on(ballot)
        self.first = FirstStart()
        self.wall_offset_ms = 0
        self.read_at_ms = 0
        self.steady: Heartbeat | None = None
        """The heartbeat that this node acked in its last step, if another one like it changes nothing but moments."""
        self.calm = False
        """After its last step the ballot was as the disk has it, and this node waited for nobody's memory."""
        self.unacked: Heartbeat | None = None
        """The newest heartbeat that names a register which this node has still to be told (R1)."""
        self.unacked_at_ms = 0
        self.early: VoteRequest | None = None
        """The last question of a candidate that heard the release of this node's work before this node did (G6)."""
        self.file_ask_at_ms = 0
        """When it asks the nodes of its file again whether they know of newer members (R12); 0 for no more."""
        self.refresh_members()

    # --- the role, and every way in which it changes ------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The word for it."""
        role_state = self.role_state
        if type(role_state) is Leader:
            return Role.LEADER
        if type(role_state) is Candidate and role_state.is_shown:
            return Role.CANDIDATE
        if not self.booted:
            return Role.STARTING
        if type(role_state) is Recovering:
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

    def become_follower(self, leader: str = "") -> None:
        """Whatever it was, it follows this one, or nobody yet. Only memory ends recovering (`become_able`)."""
        self.leader = leader
        if type(self.role_state) is not Recovering:
            self.role_state = Follower()

    def become_candidate(self, term: int, *, pre: bool) -> Candidate:
        """It asks for this term: first whether others would vote, then for the votes (Q9)."""
        self.role_state = candidate = Candidate(term, pre)
        return candidate

    def become_leader(self, leader: Leader) -> None:
        """A majority voted for it. That gives no hold yet (Q3)."""
        self.role_state = leader
        self.leader = self.node

    def become_recovering(self, why: str) -> None:
        """From now on it says nothing but questions and answers, and asks at once (M2, Q10)."""
        self.role_state = Recovering(why)
        self.leader = ""
        self.ask_at_ms = 0

    def become_able(self, why_not: str) -> str:
        """The ballot was read: a follower, or recovering for this reason (M1). Returns why it recovered before.

        A candidate asked for its votes under a first ballot that was never used; those under way still count.
        """
        was = self.muted
        if why_not:
            self.role_state = Recovering(why_not)
        elif was:
            self.role_state = Follower()
        else:
            self.show_as_follower()
        return was

    def show_as_follower(self) -> None:
        if type(self.role_state) is Candidate:
            self.role_state.is_shown = False

    def retire(self, now_ms: int) -> None:
        """A leader becomes a follower of nobody, without a heartbeat; its own heartbeats still bind (Q4)."""
        self.become_follower()
        newest_ms = self.promise.newest_at_ms
        self.campaign_at_ms = self.timeout(now_ms if newest_ms is None else newest_ms)

    # --- the register of members (rules R) ----------------------------------------------------------------------------

    @property
    def register(self) -> Register | None:
        return self.ballot.register if self.ballot is not None else None

    @property
    def members_id(self) -> MembersId:
        """Of the register that this node has; (0, 0) for none."""
        register = self.register
        return register.id if register is not None else UNKNOWN

    @property
    def members(self) -> tuple[Member, ...]:
        """Who belongs: by the register, else by the file."""
        register = self.register
        return register.members if register is not None else self.seat.membership.members

    @property
    def leaving(self) -> tuple[str, ...]:
        """Who is to lead no more by the goal of a change."""
        register = self.register
        if register is None or register.goal is None:
            return ()
        staying = [m.id for m in register.goal.members if m.kind is Kind.VOTER]
        return tuple(m.id for m in register.members if m.id not in staying)

    def set_lag(self) -> None:
        place = self.order.index(self.node) if self.node in self.order else ORDER_STEPS
        rank = min(place, ORDER_STEPS) if self.order else self.quorum.rank
        self.lag_ms = rank * self.timing.spread_ms

    def take_order(self, nodes: tuple[str, ...]) -> None:
        """A campaign that is waited for comes so much earlier or later; voters keep their promises (Q4)."""
        before_ms, self.order = self.lag_ms, nodes
        self.set_lag()
        if self.campaign_at_ms:
            self.campaign_at_ms += self.lag_ms - before_ms

    def refresh_members(self) -> None:
        """The ballot may have another register than before: what is derived from it."""
        register = self.register
        if register is None:
            self.quorum = Quorum.of(self.seat.membership, self.node)
        else:
            self.quorum = Quorum.of_register(register, self.halves_of(register), self.node)
        self.set_lag()
        term, version = self.members_id
        membership = self.seat.membership
        config = membership.listed_hash if membership.listed_hash and version == 1 else membership.hash
        self.origin = self.origin._replace(config=config, members=(term, version))

    def draw_boot(self) -> None:
        """What was said to this node before is for another: as if it were started anew (R10)."""
        boot = self.seat.random.getrandbits(62) + 1
        self.seat = self.recovery.seat = self.seat._replace(boot=boot)
        self.origin = self.origin._replace(boot=boot)

    def halves_of(self, register: Register) -> tuple[tuple[str, ...], ...]:
        """A quorum is a majority of the voters and, while a change is on its way, of those before (R2)."""
        return register.halves

    def write_register(self, register: Register) -> None:
        """From this step on it is the register of this node: durable before anything leaves that names it (R1)."""
        assert self.ballot is not None
        self.ballot = self.ballot._replace(register=register)
        self.adopt(register.id.term)
        self.refresh_members()

    def tell_members(self, now_ms: int, node: str) -> list[Effect]:
        """The whole register, the same one at most once per heartbeat and receiver (E1)."""
        register = self.register
        if register is None:
            return []
        return self.refuse(now_ms, Send(node, MembersTold(self.origin, register)), *register.id)

    def is_never_refused(self, register: Register) -> bool:
        """It is in this register and does not campaign: an observer, a witness, or a voter that is to leave. Who asks
        for no vote is not told by a refusal that there are newer members."""
        return register.named(self.node) and not self.quorum.campaigns

    # --- small questions ----------------------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        return self.ballot.term if self.ballot is not None else 0

    @property
    def token_max(self) -> int:
        """The largest token that was seen (T2)."""
        return self.ballot.token_max if self.ballot is not None else 0

    @property
    def reached_term(self) -> int:
        """Its own, or a later one whose token was seen: a lease gives larger tokens than base and term make (T2)."""
        ballot = self.ballot
        return max(ballot.term, ballot.token_max - ballot.base) if ballot is not None else 0

    def is_too_far(self, term: int) -> bool:
        """A jump of more than a million (Q9)."""
        return term - self.reached_term > TERM_JUMP_MAX

    def learn_token(self, token: int) -> None:
        """A voter has seen this token (T2)."""
        ballot = self.ballot
        assert ballot is not None
        if ballot.token_known < token <= BELIEVED_MAX:
            self.ballot = ballot._replace(token_max=token)

    def doubt(self, now_ms: int, node: str, term: int) -> list[Effect]:
        """Its term is too far above ours: not believed and reported (Q9). Perhaps a lease gave such tokens while this
        node was away: it is asked for its vote, once per heartbeat, and tells the largest one with its answer (T2)."""
        ask = Send(node, VoteRequest(self.origin, self.reached_term + 1, pre=True))
        noted = self.note(Code.TERM_JUMP, node, f"term {term} is too far above {self.term}")
        return noted + self.refuse(now_ms, ask)

    def vote_for(self, candidate: str, term: int) -> None:
        """Its one vote of this term (Q1), which it had none of or had given to the same candidate."""
        assert self.ballot is not None
        self.become_follower()
        self.ballot = self.ballot._replace(term=term, voted_for=candidate)

    def adopt(self, term: int) -> None:
        ballot = self.ballot
        assert ballot is not None
        if term > ballot.term:
            self.ballot = ballot._replace(term=term, voted_for="")

    def saved(self) -> None:
        """No failure was told: what was on its way to the disk has arrived."""
        disk = self.disk
        disk.fault = ""
        if disk.marking:
            disk.marking = disk.void_due = self.recovery.mark_due = False

    def promise_left(self, now_ms: int) -> int:
        """How long this voter still grants nothing (Q4): P from the newest heartbeat acked or sent, or from reading."""
        newest_ms = self.promise.newest_at_ms
        if newest_ms is None or self.lock_suffices():
            return 0
        return max(0, newest_ms + self.timing.promise_ms - now_ms)

    def work_unconfirmed(self) -> bool:
        """The run lock is held: by work of ours that is not confirmed gone, or by an old tree (Q6)."""
        return self.lock_held or self.work_term > 0

    def lock_suffices(self) -> bool:
        """One voter whose ballot never held another configuration: the free run lock takes the place of P and of the
        delay (M4)."""
        ballot = self.ballot
        if ballot is None or ballot.changed or self.quorum.voters != (self.node,) or self.has_changed_members():
            return False
        return not self.work_unconfirmed()

    def has_changed_members(self) -> bool:
        """The members are not those of the first start any more: the run lock alone proves nothing (R13)."""
        return self.members_id.version > 1

    def _age(self, now_ms: int) -> int:
        """Since the newest heartbeat acked or sent, or the ballot read (Q5); -1 for none that counts."""
        newest_ms = self.promise.newest_at_ms
        return -1 if newest_ms is None or self.lock_suffices() else now_ms - newest_ms

    def yes(self, now_ms: int, request: VoteRequest) -> VoteReply:
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
            self.promise.newest_term,
            ballot.hold_max_ms,
            ballot.token_known,
        )

    def timeout(self, from_ms: int) -> int:
        """When to campaign if nothing is heard: P after the newest heartbeat, spread at random."""
        return from_ms + self.timing.promise_ms + self.lag_ms + int(self.seat.random.random() * self.timing.spread_ms)

    def seen(self, node: str) -> tuple[int, int]:
        """The highest incarnation heard of a node, and the boot that spoke with it (Q10)."""
        seen = self.ballot.seen if self.ballot is not None else ()
        return next(((incarnation, boot) for name, incarnation, boot in seen if name == node), (0, 0))

    # --- what is told to others, once ---------------------------------------------------------------------------------

    def refuse(self, now_ms: int, refusal: Send, *reason: int) -> list[Effect]:
        """A refusal, at most once per receiver and reason within a heartbeat (E1): repeated datagrams multiply
        nothing."""
        key: tuple[str | int, ...] = (refusal.to, type(refusal.message).__name__, *reason)
        refused = self.peers.refused
        if key in refused or len(refused) >= REFUSED_MAX:
            return []
        refused[key] = now_ms
        return [refusal]

    def forget_refusals(self, now_ms: int) -> None:
        """What was refused a heartbeat ago may be refused again."""
        oldest_ms = now_ms - self.timing.heartbeat_ms
        self.peers.refused = {key: at_ms for key, at_ms in self.peers.refused.items() if at_ms > oldest_ms}

    def note(self, code: Code, subject: str, detail: str) -> list[Effect]:
        """Records a complaint about another node once per boot."""
        noted = self.peers.noted
        if (code, subject) in noted or len(noted) >= NOTED_MAX:
            return []
        noted[code, subject] = True
        return [Record(Event(code, self.term, subject, detail))]
