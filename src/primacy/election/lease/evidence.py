"""What a lease node may conclude from what the store showed (L3, L4, L5, L9).

A store may forget. Who held the lease in history that was lost had its last proof before the store went back, and
no holder of a table waits for longer than wait_max: so whatever was lost, wait_max after the first answer of what came
back its holder is dead. Everything here is that sentence: when an observation starts anew, how long it lasts, what may
be believed at once, and when a table is settled, so that nobody needs to wait for each name.

Each rule that has a mutant has a method of its own.
"""

from __future__ import annotations

from primacy.election.effects import Effect
from primacy.election.events import Code
from primacy.election.lease.state import TICK_MS, Asked, LeaseState, Settling, Sighting
from primacy.election.store import (
    WAIT_MAX_MS,
    Genesis,
    Look,
    Renew,
    Row,
    Settle,
    StoreAnswer,
    StoreRequest,
    Take,
    heir_of,
)
from primacy.settings.timing import stretched, waited


class LeaseEvidence(LeaseState):
    """The observation, the wait, and the four things that spare it."""

    # --- every answer (L5) --------------------------------------------------------------------------------------------

    def _note_answer(self, now_ms: int, answer: StoreAnswer, known: tuple[str, int]) -> list[Effect]:
        """What an answer tells of the store itself. `known`: identity and position when its request left.

        Answers may overtake each other, so a position has fallen only if it is below one known before it was asked for.
        """
        effects: list[Effect] = []
        if answer.wall_ms > 0:
            self._store_wall = (now_ms, answer.wall_ms)
        self._unnamed = answer.watched
        if answer.link != self._link or self._away:
            if self._link is not None and self._broken_counts(answer):
                self._watch_anew()
            if self._away and self._take is not None:
                self._fell_ms = now_ms  # it may be done only now, in a history that its evidence is not from
            self._link, self._link_ms, self._away = answer.link, now_ms, False
        self._bound = self._broken_counts(answer)
        if self._bound:
            self._answered_ms = now_ms
        if self._has_fallen(known, answer):
            effects.append(self._note(Code.OBSERVATION_RESTARTED, detail="the store went back", value=self._long_ms()))
            self._watch_anew()
            self._fell_ms, self._position = now_ms, (answer.server, answer.position)
        elif answer.server != self._position[0] or answer.position > self._position[1]:
            self._position = (answer.server, answer.position)
        return effects

    def _has_fallen(self, known: tuple[str, int], answer: StoreAnswer) -> bool:
        """Under one identity a position only grows while history is kept."""
        return known[0] == answer.server and answer.position < known[1]

    def _broken_counts(self, answer: StoreAnswer) -> bool:
        """Where the identity does not tell all restarts, another connection starts every observation anew."""
        return answer.linked or self._is_watched()

    def _looked_away(self, now_ms: int) -> bool:
        """Where only the connection tells that the store came back, nothing was looked at for too long to rest on it.

        A connection to a proxy goes on when the store behind it starts again, and a process that was stopped has seen
        nothing of what happened meanwhile. So every observation begins anew if this node was woken later than it wanted
        to be by more than the time between two looks. A store that answers slowly does no harm, nor does waiting for
        a renewal that was told of. Where looks fail, the connection is another one next; if it is not, they may fail
        for a hold. A holder has until TERM for its answers.
        """
        if self.deadline_ms is not None and now_ms > self.deadline_ms + self._look_ms:
            return True
        timing = self.timing
        return now_ms > self._answered_ms + (timing.term_at_ms if self._lead else timing.hold_ms + self._answer_ms)

    def _evidence_link(self) -> int:
        """The connection that a write must use, as its evidence came over it; 0: any.

        A take that is done over another one would write into a history that it knows nothing of, under a name that
        looks the same: nobody could tell afterwards that it was taken without a wait.
        """
        return self._link or 0 if self._bound else 0

    def _done_here(self, now_ms: int, asked: Asked, answer: StoreAnswer) -> bool:
        """A write was done in the history that its evidence came from.

        If not, or if the store went back between the two, the row may be ours and proves nothing. What spares the wait
        is not believed for wait_max then, as after a position that fell: it is watched.
        """
        same = not isinstance(asked.request, Take | Renew | Settle) or asked.request.server == answer.server
        return same and self._same_link(asked, answer) and now_ms >= self._fallen_until_ms()

    def _same_link(self, asked: Asked, answer: StoreAnswer) -> bool:
        return asked.link in (0, answer.link)

    def _watch_anew(self) -> None:
        """All observations start with the next look."""
        self._sight, self._settling, self._genesis, self._settled_for, self._refused = None, None, None, "", False

    # --- the observation (L3) -----------------------------------------------------------------------------------------

    def _unchanged(self, old: Sighting, answer: StoreAnswer) -> bool:
        """Nothing has changed that a take compares, nor anything else in the row."""
        return self._same_server(old, answer) and self._same_row(old.row, answer.row)

    def _same_server(self, old: Sighting, answer: StoreAnswer) -> bool:
        return old.server == answer.server

    def _same_row(self, old: Row | None, new: Row | None) -> bool:
        """Every field: holder, token, seq, released, members, server, proof, mark and whether it vouches."""
        return old == new

    def _anchor_ms(self, asked_ms: int, now_ms: int) -> int:  # noqa: ARG002 -- what a mutant would use
        """After the answer arrived: a renewal may have left, and counted, while the look was under way."""
        return now_ms

    def _wait_ms(self, sight: Sighting) -> int:
        """The holder's own wait if it is longer than ours; the longest of all if its row may not be the newest."""
        row = sight.row
        wait_ms = self._d_ms if row is None else max(self._d_ms, self._row_wait_ms(row))
        return max(wait_ms, self._long_ms()) if row is None or self._may_be_old(sight, row) else wait_ms

    def _row_wait_ms(self, row: Row) -> int:
        """What this row asks for: its holder's wait, or its hold stretched by our own drift, if we reckon with more.

        The holder knows how much its own clock may lose, and not how fast ours may run. A placeholder has no hold: its
        wait is the table's.
        """
        if row.is_placeholder:
            return self._on_own_clock(row.wait_ms)
        return max(row.wait_ms, stretched(row.hold_ms, self.timing.drift_ppm))

    def _on_own_clock(self, wait_ms: int) -> int:
        """A wait for a hold that is not known, if our clock may be off by more than the default."""
        return waited(wait_ms, self.timing.drift_ppm)

    def _may_be_old(self, sight: Sighting, row: Row) -> bool:
        """After it there may have been a holder of whom the store has forgotten everything, its wait included."""
        elsewhere = not self._written_here(sight, row) or not self._vouched(row)
        return elsewhere or row.is_placeholder or not self._not_below_known(row.token)

    def _long_ms(self) -> int:
        """What the longest hold of this table needs, as far as this node ever heard (L3)."""
        return max(self._table_wait_ms(), self._longest_ms)

    def _table_wait_ms(self) -> int:
        return max(self._on_own_clock(self._wait_max_ms or WAIT_MAX_MS), self._d_ms)

    def _ripe_ms(self, sight: Sighting) -> int:
        """When the row has been watched for the whole wait.

        If the store went back under its name, or where its name proves nothing, not before wait_max has passed since.
        """
        seen_ms = sight.since_ms + self._wait_ms(sight) + TICK_MS
        return max(seen_ms, self._fallen_until_ms(), self._watched_from_ms())

    # --- what spares the wait (L4) ------------------------------------------------------------------------------------

    def _spared_at_ms(self, sight: Sighting) -> int | None:
        """From when on what is seen may be taken although it was not watched for the wait; None: not at all."""
        row = sight.row
        if row is None:
            at_ms = max(sight.since_ms, self._hold_off_ms) if self._is_fresh(sight) else None
        elif self._release_counts(sight, row):
            back_ms = 2 * self._look_ms if heir_of(row) not in ("", self.seat.node) else 0
            at_ms = max(sight.since_ms + back_ms, self._hold_off_ms)
        elif self._cold_start(sight, row) or self._found(sight) is not None:
            at_ms = sight.since_ms
        else:
            at_ms = None
        return None if at_ms is None else max(at_ms, self._trusted_at_ms())

    def _spared(self, now_ms: int, sight: Sighting) -> bool:
        at_ms = self._spared_at_ms(sight)
        return at_ms is not None and now_ms >= at_ms

    def _release_counts(self, sight: Sighting, row: Row) -> bool:
        """A clean release: all work under the row is gone (L4)."""
        return self._is_released(row) and self._evident(sight, row, settles=True)

    def _is_released(self, row: Row) -> bool:
        return row.released

    def _cold_start(self, sight: Sighting, row: Row) -> bool:
        """A row of an earlier start of this node whose run lock is free (L4). `_may_lead` asks whether it is.

        Not with a failsafe: what this node acked before it was started again, it does not know.
        """
        return row.holder in self.options.dead and not self._others and self._evident(sight, row)

    def _ours(self, sight: Sighting | None) -> Row | None:
        """The row, if it is ours, unreleased, and may be believed.

        One written under an earlier identity proves nothing: a leadership after ours may have been lost. It is watched
        like anybody's.
        """
        row = None if sight is None else sight.row
        if sight is None or row is None or row.holder != self.holder or row.released:
            return None
        return row if self._evident(sight, row) else None

    def _found(self, sight: Sighting | None) -> Row | None:
        """An own take whose answer was lost, of a leadership that is not closed (L4)."""
        row = self._ours(sight)
        return row if row is not None and row.token > self._used_token else None

    def _is_fresh(self, sight: Sighting) -> bool:
        """Under a settled identity a missing row stands for a released one whose token is the floor (L9).

        The insert itself counts the rows. After one that changed nothing, a look has to count them first.
        """
        genesis = sight.genesis
        if sight.row is not None or genesis is None or not self._says_settled(sight, genesis):
            return False
        counted = genesis.count == genesis.names
        uncounted = genesis.count < 0 and self._settling is None and not self._refused
        return (counted or uncounted) and self._not_below_known(genesis.floor)

    def _evident(self, sight: Sighting, row: Row, *, settles: bool = False) -> bool:
        """(a) to (c) of L4, which all four need. `settles`: a settled identity is as good as the row's own."""
        here = self._written_here(sight, row) or (settles and self._is_settled(sight))
        return here and self._vouched(row) and self._not_below_known(row.token)

    def _written_here(self, sight: Sighting, row: Row) -> bool:
        """(a) It was last written under the identity that answers."""
        return row.server == sight.server

    def _is_settled(self, sight: Sighting) -> bool:
        """(a) Under this identity all holders of lost history are dead (L9)."""
        return sight.genesis is not None and sight.genesis.is_settled(sight.server)

    def _says_settled(self, sight: Sighting, genesis: Genesis) -> bool:
        """As far as a look tells that did not count."""
        return genesis.vouches and genesis.settled == sight.server

    def _vouched(self, row: Row) -> bool:
        """(b) Its mark fits: it was written in this history, by a user of leases."""
        return row.vouches

    def _not_below_known(self, token: int) -> bool:
        """(c) This node, or its machine, knows of nothing newer."""
        return token >= self._largest_known()

    def _trusted_at_ms(self) -> int:
        """(d), (e) and `watched`: before this moment nothing spares the wait."""
        silent_ms = max(self._acked_until_ms(), self._without_memory_until_ms())
        return max(self._fallen_until_ms(), silent_ms, self._watched_from_ms())

    def _fallen_until_ms(self) -> int:
        """(d) No position fell within wait_max."""
        return 0 if self._fell_ms is None else self._fell_ms + self._long_ms() + TICK_MS

    def _acked_until_ms(self) -> int:
        """(e) This node acked no failsafe heartbeat within D."""
        return 0 if self._acked_ms is None else self._acked_ms + self._d_ms + TICK_MS

    def _without_memory_until_ms(self) -> int:
        """(e) A listed node that knows of no token may have acked before it forgot: it has run for D."""
        if not self._others or self.options.token_max or self._born is None:
            return 0
        return self._born[0] + self._d_ms + TICK_MS

    def _watched_from_ms(self) -> int:
        """`watched`: this process has watched over one unbroken connection for wait_max."""
        return self._link_ms + self._long_ms() + TICK_MS if self._is_watched() else 0

    def _is_watched(self) -> bool:
        """An operator said so, or the engine cannot name its start (L4)."""
        return self.options.watched or self._unnamed

    # --- the genesis row (L9) -----------------------------------------------------------------------------------------

    def _see_genesis(self, now_ms: int, answer: StoreAnswer) -> list[Effect]:
        """Follows the state of an unsettled table; records a hold that the table does not admit."""
        genesis = answer.genesis
        if genesis is None or (answer.server, genesis) == self._genesis:
            return []
        self._genesis, self._admits_ms = (answer.server, genesis), genesis.wait_max_ms
        self._wait_max_ms = max(self._wait_max_ms, genesis.wait_max_ms)
        self._settling = self._settling_now(now_ms, answer, genesis)
        admitted, self._admitted = self._admitted, self._hold_admitted()
        if self._admitted or not admitted:
            return []
        return [self._note(Code.HOLD_TOO_LONG, detail=self._too_long(), value=genesis.wait_max_ms)]

    def _settling_now(self, now_ms: int, answer: StoreAnswer, genesis: Genesis) -> Settling | None:
        """The observation of the table after this answer; it begins with the first look that counts.

        Who waits for a name comes first; of all the others, most see then that it was done.
        """
        server, row = answer.server, answer.row
        old, says = self._settling, genesis.vouches and genesis.settled == server
        if genesis.count < 0:
            same = old is not None and old.state[:-1] == self._genesis_state(server, genesis)[:-1]
            return old if same else None
        if says and genesis.names == genesis.count:
            return None
        state = self._genesis_state(server, genesis)
        if old is not None and old.state == state:
            return old._replace(genesis=genesis)
        again, self._settled_for = self._settled_for == server, server
        waits = self._may_lead() and (row is None or row.released)
        jitter_ms = self._jitter(self._look_ms // 5 if waits else 3 * self._look_ms)
        return Settling(state, now_ms, jitter_ms, genesis, again)

    def _genesis_state(self, server: str, genesis: Genesis) -> tuple[object, ...]:
        """What must stay the same for wait_max before a table is settled.

        A placeholder that somebody makes meanwhile adds one to names, count and version, and changes nothing here:
        otherwise a busy table would never be settled. A row that is removed or added by hand shows in the last, a
        settling by another node in the one before; under an unsettled table nothing else is written. A genesis row that
        was made anew has another version, drawn by chance. One that does not vouch may come from a dump that was read
        twice, with a settled table in between: its mark tells. The next write makes it vouch.
        """
        differs, mark = genesis.names - genesis.count, "" if genesis.vouches else genesis.mark
        return (server, genesis.settled, genesis.vouches, mark, genesis.version - genesis.names, differs)

    def _settle_at_ms(self) -> int | None:
        """When this node settles the table, if it is still as it was (L9). Who watches does it, for all names."""
        settling, sight = self._settling, self._sight
        if settling is None or sight is None or sight.server != settling.state[0] or not self._settles():
            return None
        return settling.since_ms + self._settle_after_ms() + TICK_MS + settling.jitter_ms

    def _settle_after_ms(self) -> int:
        return self._long_ms()

    def _settles(self) -> bool:
        return self._stands and not self._closing

    def _counts(self, sight: Sighting) -> bool:
        """Whether the next look should count the rows: only if something depends on it."""
        genesis, row = sight.genesis, sight.row
        if genesis is None or self._settling is not None or not self._settles():
            return False  # without a genesis row a missing row is placed
        if not self._says_settled(sight, genesis):
            return True
        if row is not None and not row.released:
            return False
        needed = self._refused if row is None else not self._written_here(sight, row) and not self._is_settled(sight)
        return needed and self._may_lead()

    def _must_place(self, sight: Sighting) -> bool:
        """A missing row cannot be watched, a placeholder can (L3).

        Where the name will be free as soon as the table is settled, this node waits for that: it takes no longer, and
        is over at once if another node has watched for longer. If the state that it waits for has changed, it places.
        So does a node that must not take it yet (M1): nobody's row is nobody's, and the watch is over sooner.
        """
        if sight.row is not None or self._is_fresh(sight) or not self._is_able():
            return False
        genesis, settling = sight.genesis, self._settling
        if genesis is None or not self._not_below_known(genesis.floor):
            return True
        return settling is not None and settling.again

    # --- small things -------------------------------------------------------------------------------------------------

    def _still_open(self, take: Take, answer: StoreAnswer) -> bool:
        """Whether an unanswered take could still be written, going by what stands there now."""
        return take.server == answer.server and take.seen == answer.row

    def _ends_outage(self, request: StoreRequest, answer: StoreAnswer) -> bool:
        """After a write that failed: an answered write, or a look that shows that somebody's got through, or our last.

        Nothing but words depends on it.
        """
        if self._outage is None or not self._outage.writes or not isinstance(request, Look):
            return True
        sight, row = self._sight, answer.row
        moved = not self._unchanged(sight, answer) if sight is not None else row is None or row.holder != self.holder
        return moved or not (self._may_lead() or self._owes)
