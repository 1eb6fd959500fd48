"""What a lease node knows: its options, what it saw in the store, its leadership; and the rules for tokens (T).

The theory stands at the head of `strategy.py`; what may be concluded from a sight in `evidence.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from primacy.election.effects import Effect, Persist, Record
from primacy.election.events import Code, Event
from primacy.election.lease.changed import Changed
from primacy.election.messages import Origin
from primacy.election.model import TOKEN_MAX, Ballot, Kind, ListRecord, Seat
from primacy.election.store import Genesis, Row, StoreRequest, Take, holder_id, list_hash, node_of
from primacy.settings.timing import Timing

TICK_MS = 1
"""What reading a clock in whole milliseconds may cut off."""
OUTSTANDING_MAX = 8
"""Unanswered renewals, and failsafe heartbeats, that may still be proved. Older ones are past TERM in every profile."""
LATE_MAX = 3
"""Proofs in a row that came too late to start on; then the row is left to a node whose store answers faster."""
AGAIN_MS = 60_000
"""Between two words about a store that goes on failing. Sooner fills the log, later makes people scroll back."""
RETRY_MAX_MS = 5_000
"""Longest pause between two tries at a store that fails. Longer would only delay the recovery."""
UNEVEN = 5
"""Two renewals leave a heartbeat and a fifth, and a heartbeat less a fifth, after those before them. More uneven: a
frozen holder is noticed sooner where renewals are told of, but a store may stall for less long before TERM."""
WALL_MAX_MS = 253_402_300_800_000
"""The year 10000. A wall clock beyond it would use up the tokens and is not believed."""


class LeaseOptions(NamedTuple):
    """What a lease needs to know besides its timing. A time of 0 means the default named there."""

    name: str
    """Name of the row as it stands in the store: the election's name, behind `FAILSAFE` where that is on (L7)."""
    token_max: int = 0
    """The largest token that this node has ever seen in this election, under whatever strategy (T2)."""
    dead: tuple[str, ...] = ()
    """Holders of earlier starts under this node's own run lock: a free lock proves them dead (L4)."""
    failsafe: tuple[str, ...] = ()
    """Fixed list of at least two nodes, this one included, that keep the holder alive while the store is away (L7)."""
    look_every_ms: int = 0
    """Between two looks; default the heartbeat. Larger: fewer reads, but a release is noticed later."""
    answer_ms: int = 0
    """A watcher's request without an answer for this long is given up; default a third of the hold."""
    start_within_ms: int = 0
    """A holder whose work has not started by then gives up; default the hold. Larger where people must approve."""
    rest_ms: int = 0
    """After its work ended in order a node lets the others go first for so long; default three looks."""
    watched: bool = False
    """Nothing is taken without a wait before one connection was watched for wait_max, whatever the store says (L4)."""
    config: str = ""
    """Names strategy, store and table (M1); empty: what this node ran under before is not remembered."""
    lists: tuple[ListRecord, ...] = ()
    """The configurations that its disk tells of, this one included."""
    hold_max_ms: int = 0
    """The longest hold under any of them."""
    left: tuple[str, ...] = ()
    """Those that were replaced."""
    speaks: bool = True
    """It can ask other nodes."""


class Sighting(NamedTuple):
    """What stood in the store, and the moment on the own clock from which on it was seen unchanged (L3)."""

    server: str
    row: Row | None
    since_ms: int
    jitter_ms: int = 0
    genesis: Genesis | None = None
    """The genesis row of the newest answer that had it."""


class Settling(NamedTuple):
    """An unsettled genesis row, and the moment from which on this very state of it was seen (L9)."""

    state: tuple[object, ...]
    since_ms: int
    jitter_ms: int
    genesis: Genesis
    """As it was counted last."""
    again: bool
    """It is not the first state that was watched under this identity."""


class Asked(NamedTuple):
    """The one outstanding request of a node that does not hold the lease."""

    number: int
    request: StoreRequest
    asked_ms: int
    position: tuple[str, int] = ("", 0)
    """Identity and position that were known when it left (L5)."""
    link: int = 0
    """The connection that its evidence came over, where only that counts; 0: any."""


class Renewal(NamedTuple):
    """A renewal without an answer."""

    sent_ms: int
    seq: int
    server: str
    position: tuple[str, int] = ("", 0)


class Outage(NamedTuple):
    """The store fails, and that was recorded. Nothing is decided by it."""

    since_ms: int
    said_ms: int
    writes: bool
    """What failed first was a write. A look that is answered does not end it: a file may be locked, a replica lag."""


class Round(NamedTuple):
    """A failsafe heartbeat: when it left, and who acked it."""

    sent_ms: int
    acked: tuple[str, ...]


@dataclass(slots=True)
class Lead:
    """A leadership from its start to its loss, or to the confirmed end of its work."""

    token: int
    seq: int
    server: str
    proved_ms: int
    """s: departure of the newest proved renewal, on our clock."""
    started_ms: int
    renew_at_ms: int | None
    """When the next renewal leaves; None once the row is known to be released."""
    failsafe_at_ms: int
    running: bool = False
    deferred: str = ""
    """What its start waits for on purpose (G8): an approval, a fence command."""
    ending: Code | None = None
    """Why the work was told to stop in order. From then on it is closed, but renewed until the work is gone."""
    successor: str = ""
    heard: int = 0
    """Number of the newest renewal whose answer was used."""
    renewals: dict[int, Renewal] = field(default_factory=dict)
    """The unanswered ones by number."""
    rounds: dict[int, Round] = field(default_factory=dict)
    kept: bool = False
    """By the others alone, and that was recorded (L7)."""


def gaps_ms(timing: Timing) -> tuple[int, int]:
    """From a write to the next renewal: after one with an even seq, and after one with an odd seq."""
    heartbeat_ms = timing.heartbeat_ms
    uneven_ms = max(0, min(heartbeat_ms // UNEVEN, (timing.term_at_ms - heartbeat_ms) // UNEVEN))
    return heartbeat_ms + uneven_ms, heartbeat_ms - uneven_ms


class LeaseState:
    """Everything that a lease node remembers within one boot, and the small questions about it."""

    def __init__(self, seat: Seat, timing: Timing, options: LeaseOptions) -> None:
        self.seat = seat
        self.timing = timing
        self.options = options
        self.holder = holder_id(seat.node, seat.boot)
        self.token_max = options.token_max
        self.deadline_ms: int | None = None
        self._d_ms = timing.wait_ms
        """D: how long others wait for our hold."""
        self._look_ms = options.look_every_ms or timing.heartbeat_ms
        self._gaps_ms = gaps_ms(timing)
        self._answer_ms = options.answer_ms or timing.hold_ms // 3
        self._start_within_ms = options.start_within_ms or timing.hold_ms
        self._others = tuple(sorted(name for name in set(options.failsafe) if name != seat.node))
        self._list_hash = list_hash(options.failsafe)
        self._origin = Origin(seat.node, boot=seat.boot, config=self._list_hash)
        member = seat.membership.get(seat.node)
        listed = not options.failsafe or seat.node in options.failsafe
        self._stands = listed and (member is None or member.kind is Kind.VOTER)
        self._changed = Changed(seat, timing, options.config, options.lists, options.hold_max_ms, options.left)
        self._blank_node()
        self._blank_sight()
        self._blank_hold()

    def _blank_node(self) -> None:
        """Of the node itself: its start, its tokens on the disk, its requests under way."""
        self._born: tuple[int, int] | None = None
        """Own clock and wall clock at the start, once started."""
        self._saved: tuple[int, tuple[ListRecord, ...]] | None = (self.options.token_max, self.options.lists)
        """What the disk has; None if that is in doubt."""
        self._saving = False
        """A token is on its way to the disk; anything but `PersistFailed` next means that it arrived."""
        self._unsaved = ""
        """Why the largest token is not on the disk (T2); empty if it is."""
        self._number = 0
        self._pending: Asked | None = None
        self._take: Take | None = None
        """The newest take that may still be written, answered or not (L7)."""
        self._next_ask_ms = 0
        self._news = False
        """The store had news while a request was under way, whose answer may be older."""
        self._failures = 0
        self._failure = ""
        self._final = ""
        """What the store refuses for good, and that was recorded."""
        self._outage: Outage | None = None
        self._hold_off_ms = 0
        self._lock_held = False
        self._paused = False
        self._pause_ends_by = ""
        """What the end of it waits for, if that is not an operator's `resume`."""
        self._ill = ""
        self._closing = False

    def _blank_sight(self) -> None:
        """What was seen in the store, and over which connection."""
        self._sight: Sighting | None = None
        self._settling: Settling | None = None
        self._settled_for = ""
        """The identity for which such an observation was begun last."""
        self._refused = False
        """An insert under this identity changed nothing, so that the next one needs a count (L9)."""
        self._follows = ""
        """The holder of whom it was last recorded that this node follows it."""
        self._ever_saw = False
        self._admits_ms = 0
        """wait_max as the genesis row had it last; 0 before it was seen."""
        self._wait_max_ms = 0
        """The largest that it ever was."""
        self._admitted = True
        """What `_hold_admitted` said of it."""
        self._genesis: tuple[str, Genesis] | None = None
        """Identity and genesis row as they were last looked at."""
        self._longest_ms = 0
        """The longest wait that the row ever asked for (L3)."""
        self._position = ("", 0)
        """Identity, and the newest position under it (L5)."""
        self._fell_ms: int | None = None
        """When a position was seen to fall."""
        self._link: int | None = None
        self._link_ms = 0
        """The connection that answered last, and when its first answer came."""
        self._bound = False
        """What was seen counts over this connection only (L4 `watched`, L5)."""
        self._answered_ms = 0
        """When the newest answer came, where that is so."""
        self._away = False
        """It has looked at nothing for too long, and nothing was answered since (L5)."""
        self._unnamed = False
        """The newest answer came from an engine that cannot name its start at the moment."""
        self._acked_ms: int | None = None
        """When this node last acked a failsafe heartbeat (L7)."""
        self._store_wall: tuple[int, int] | None = None
        """Own clock and the store's Unix time, as it was told last (T1)."""
        self._looked_ms = 0
        self._heard = 0
        """Renewals heard of since that look."""

    def _blank_hold(self) -> None:
        """Its own leadership, and what is left of earlier ones."""
        self._lead: Lead | None = None
        self._work = 0
        """Token of our work that may be alive."""
        self._used_token = 0
        """The highest token of this boot that was started or given up: never started again."""
        self._owes = False
        """A row of ours may stand unreleased."""
        self._heir = ""
        """Whom a release of ours should name."""
        self._preceding = 0
        self._idle = True
        """No work of ours ran under the newest token, so that a release of ours covers nobody before it (G8)."""
        self._released_token = 0
        """The highest token whose release was recorded."""
        self._late = 0

    # --- how it stands, for whoever drives it -------------------------------------------------------------------------

    @property
    def term(self) -> int:
        """The newest token that it knows of."""
        return self.token_max

    @property
    def preceding_term(self) -> int:
        """The largest token before the newest that this node stood for: whoever had it may have worked last."""
        return self._preceding

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def healthy(self) -> bool:
        return not self._ill

    @property
    def settled(self) -> bool:
        """Nothing of ours is left, neither work nor a row that nobody else could take at once."""
        return self._lead is None and not self._work and not self._owes

    @property
    def undisturbed(self) -> int:
        """The token that it leads with while there is nothing to be told of that but how long the hold lasts; or 0."""
        lead = self._lead
        if lead is None or not lead.running or lead.ending or self._failures or lead.kept or self._closing:
            return 0
        return lead.token

    @property
    def seen(self) -> Sighting | None:
        """What stood in the store at the last look of a node that does not hold."""
        return self._sight

    @property
    def unusable(self) -> str:
        """Why the store is of no use before somebody changes something; empty again with its next answer."""
        return self._final

    def learn(self, token: int) -> None:
        """A neighbour on this machine has seen this token (T2)."""
        self._note_token(token)

    def _may_lead(self) -> bool:
        """Nothing holds this node back, nor is anybody to report first that it runs with the same file (M1)."""
        return self._changed.is_over and self._is_able()

    def _is_able(self) -> bool:
        """Nothing that people, probes or the machine itself say holds this node back (Q6 for the run lock)."""
        held_back = self._paused or self._ill or self._closing or self._lock_held or self._work or self._unsaved
        return self._stands and self._admitted and not held_back

    def _hold_admitted(self) -> bool:
        """A hold whose D exceeds wait_max is refused (L3)."""
        return not self._admits_ms or self.timing.admitted_ms <= self._admits_ms

    def _too_long(self) -> str:
        wait_ms = self.timing.admitted_ms
        return (
            f"others would have to wait {wait_ms:,} ms for this node's hold, and the table admits {self._admits_ms:,} "
            f"ms; shorten the hold, or raise that with `primacy lease schema --wait-max-ms {wait_ms}`"
        )

    # --- when to renew, and which renewals to look at -----------------------------------------------------------------

    def _gap_ms(self, seq: int) -> int:
        """From the write with this seq to the next renewal: longer and shorter by turns, two of them are two
        heartbeats.

        Those who hear of renewals look at the ones before the longer gaps. So a holder that falls silent does so, more
        often than not, after a renewal that somebody has seen, although nobody looks at more than one of four. Where
        one heartbeat is nearly all the time to TERM, most of what is left of it is kept for the trip.
        """
        return self._gaps_ms[seq % 2]

    def _looks_at(self, holder: str, seq: int) -> bool:
        """Whether a renewal of this holder that was told of is this node's to look at: one of four.

        Two nodes look at different ones if their places are not equally far behind the holder's: so it is with three in
        a row, in the list or, where there is none, by names such as a, b, c or web-1, web-2, web-3. Nothing depends on
        it but the number of statements and the moment of a takeover.
        """
        ids, names = self.seat.membership.ids, (self.seat.node, node_of(holder))
        listed = all(name in ids for name in names)
        own, its = (ids.index(name) if listed else sum(name.encode(errors="replace")) for name in names)
        return seq % 4 == 2 * (((own - its) % 3 or self.seat.boot) % 2)

    # --- tokens (T1, T2) ----------------------------------------------------------------------------------------------

    def _next_token(self, now_ms: int, sight: Sighting) -> int:
        """Above everything known, and drawn anew for each take; wall time only ever lifts it (T1).

        It lifts it above a take that was lost with the store's history before we saw it, as long as the wall clocks
        agree within the wait, for that is how much later ours comes at least.
        """
        seen = 0 if sight.row is None else sight.row.token
        floor = 0 if sight.genesis is None else sight.genesis.floor
        return max(seen + 1, floor + 1, self._largest_known() + 1, 1, *self._walls_ms(now_ms))

    def _tokens_left(self, sight: Sighting) -> bool:
        """There is a token above everything known; wall time never uses them up (T1)."""
        seen = 0 if sight.row is None else sight.row.token
        floor = 0 if sight.genesis is None else sight.genesis.floor
        return max(seen, floor, self._largest_known()) < TOKEN_MAX

    def _walls_ms(self, now_ms: int) -> list[int]:
        """Unix time here and at the store, as far as they can be believed."""
        told = (self._born, self._store_wall)
        walls = [wall_ms + now_ms - then_ms for then_ms, wall_ms in (pair for pair in told if pair is not None)]
        return [wall_ms for wall_ms in walls if wall_ms < WALL_MAX_MS]

    def _largest_known(self) -> int:
        """The largest token that this node ever saw (T2)."""
        return self.token_max

    def _token_grows(self, token: int) -> bool:
        """No start below the largest token known (T2)."""
        return token >= self._largest_known()

    def _note_token(self, token: int) -> None:
        if token <= TOKEN_MAX:
            self.token_max = max(self.token_max, token)

    def _save(self) -> list[Effect]:
        """The largest token (T2) and the configurations (M1) outlive this boot. Of a ballot's other fields a lease
        needs none."""
        wanted = (self.token_max, self._changed.lists)
        if wanted == self._saved:
            return []
        self._saved, self._saving = wanted, True
        token, lists = wanted
        changed = self._changed
        return [Persist(Ballot(0, token, "", changed.hold_max_ms, token, 0, lists, left=changed.left))]

    # --- small things -------------------------------------------------------------------------------------------------

    def _own_row(self, token: int, seq: int, server: str) -> Row:
        timing = self.timing
        return Row(self.holder, token, seq, timing.hold_ms, timing.wait_ms, False, self._list_hash, server=server)

    def _failed(self, now_ms: int, reason: str, *, writes: bool, final: bool = False) -> list[Effect]:
        """Counted; recorded when it begins, and again once a minute, so that an outage makes no storm of events.

        What cannot pass by itself is recorded at once, also in the middle of an outage, and once for each reason.
        """
        self._failures += 1
        self._failure = reason or "no reason given"
        outage = self._outage or Outage(now_ms, now_ms, writes)
        code = Code.STORE_UNUSABLE if final else Code.STORE_FAILED
        news = final and self._failure != self._final
        self._final = self._failure if final else self._final
        if self._outage is None or news:
            self._outage = outage._replace(said_ms=now_ms)
            return [self._note(code, detail=self._failure)]
        if now_ms - outage.said_ms < AGAIN_MS:
            return []
        self._outage = outage._replace(said_ms=now_ms)
        lasts_ms = now_ms - outage.since_ms
        return [self._note(code, detail=f"{self._failure}; for {lasts_ms // 1_000:,} s now", value=lasts_ms)]

    def _answers(self) -> None:
        self._failures, self._failure, self._final = 0, "", ""

    def _recovered(self, now_ms: int) -> list[Effect]:
        outage, self._outage = self._outage, None
        return [] if outage is None else [self._note(Code.STORE_ANSWERS, value=now_ms - outage.since_ms)]

    def _jitter(self, most_ms: int) -> int:
        return self.seat.random.randrange(max(0, most_ms) + 1)

    def _note_release(self, token: int) -> list[Effect]:
        """Once per leadership: guard and node may both write the release."""
        if token <= self._released_token:
            return []
        self._released_token = token
        return [self._note(Code.RELEASED, token, self._heir)]

    def _note(self, code: Code, term: int = 0, subject: str = "", detail: str = "", value: int = 0) -> Record:
        return Record(Event(code, term, subject, detail, value))
