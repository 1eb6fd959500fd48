"""Touch and lists in mode `own`: PING and PONG, who has which list, and changes of it (C10, C12).

One peer is added or removed at a time. The next change waits until every peer that stays has reported the present list
with the same floors, and Ps longer: so two lists that meet are neighbours, and their majorities share a peer.
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.cache.effects import Finished, Membership, Send
from primacy.cache.inputs import Reload
from primacy.cache.machine import NOT_LISTED
from primacy.cache.messages import Ping, Pong, Trailer
from primacy.cache.model import ALL
from primacy.cache.own_floor import Flooring

CLOCKS_MIN = 2
"""A wall clock is compared with the others' only if so many of them are known to agree."""


class Report(NamedTuple):
    """What a peer says of its list and its floors."""

    membership: int = 0
    """Hash of the list that it has: this peer's, or another one."""
    list_ms: int | None = None
    """Since when it has reported that list."""
    same_ms: int | None = None
    """When it first reported that list together with the same floors."""
    skew_ms: int = 0
    """How far its wall clock is ahead of this peer's."""


class Membering(Flooring):
    """Layer of the machine: the list of peers and the touch with them."""

    _reports: dict[str, Report]
    _pending: Reload | None
    _clock_alert: bool
    _waits_with: dict[str, None]
    """Peers whose list is only about to be taken, here or there: what they say counts for no majority (C10)."""

    # --- touch --------------------------------------------------------------------------------------------------------

    def _ping(self) -> None:
        """Every 500 ms, every 150 while out of touch, at once at start (C12)."""
        lost = not self._reachable()
        self._ping_ms = self._now_ms + (self.timing.ping_lost_ms if lost else self.timing.ping_ms)
        if self.members.listed and self.members.others:
            number = self.touch.leaves(self._now_ms)
            self._send(ALL, Ping(self._trailer(number=number, since=self.touch.since, wall_ms=self._wall_ms)))

    def _heard_ping(self, sender: str, ping: Ping) -> None:
        trailer = ping.trailer
        assert trailer is not None
        self._reported(sender, trailer)
        answer = self._trailer(echo=trailer.boot, number=trailer.number, since=self.touch.since, wall_ms=self._wall_ms)
        self._out.append(Send(sender, Pong(answer)))

    def _count_pong(self, sender: str, number: int, since: int) -> None:
        if sender in self._waits_with:
            return
        above = self.touch.usual_above
        self.touch.counts(self.members, sender, number, self._since(since))
        if self.touch.usual_above > above:
            self._look_for_unusual()
        self._still_fresh()
        if self._lost_ms is not None:
            from_ms = self.touch.majority_ms(self.members, self._now_ms)
            if from_ms is not None and from_ms > self._lost_ms:
                self._lost_ms = None
                self._record("majority-found")

    def _since(self, since: int) -> int:
        return since

    def _reported(self, sender: str, trailer: Trailer) -> None:
        known = self._reports.get(sender, Report())
        if trailer.membership != known.membership:
            known = Report(trailer.membership)
        list_ms = self._now_ms if known.list_ms is None else known.list_ms
        same_ms = known.same_ms
        if same_ms is None and trailer.digest == self.floors.digest:
            same_ms = self._now_ms
        self._reports[sender] = Report(trailer.membership, list_ms, same_ms, trailer.wall_ms - self._wall_ms)
        self._compare_clocks()
        self._try_reload()

    def _compare_clocks(self) -> None:
        """A wall clock that is off by more than half of what is allowed is an alert (C2)."""
        skews = sorted(report.skew_ms for report in self._reports.values())
        if len(skews) < CLOCKS_MIN:
            return
        middle = skews[len(skews) // 2]
        off = abs(middle) > self.timing.skew_max_ms // 2
        if off and not self._clock_alert:
            self._record("clock-off", b"", f"{-middle} ms from the other peers")
        self._clock_alert = off

    def _list_is_old(self) -> bool:
        """Everybody has reported this list, so long ago that nobody is in touch by an earlier one."""
        reports = [self._reports.get(peer, Report()) for peer in self.members.others]
        return all(
            report.membership == self.members.hash
            and report.list_ms is not None
            and self._now_ms >= report.list_ms + self._untouched_ms()
            for report in reports
        )

    # --- lists --------------------------------------------------------------------------------------------------------

    def _reload(self, given: Reload) -> None:
        """Another list stands in the file."""
        if self._pending is not None:
            self._out.append(Finished(self._pending.request, False, "a newer list came"))
            self._pending = None
        difference = self.members.difference(given.peers)
        if difference > 1 and not given.force:
            reason = f"{difference} peers differ; add or remove one at a time"
            self._out.append(Finished(given.request, False, reason))
            return
        self._pending = given
        self.members.wait_for(given.peers)
        self._try_reload()

    def _try_reload(self) -> None:
        given = self._pending
        if given is None:
            return
        if (
            given.force
            or self.members.difference(given.peers) == 0
            or self._concerns_me(given)
            or self._may_change(given)
        ):
            self._pending = None
            self._change_list(given)

    def _concerns_me(self, given: Reload) -> bool:
        """This peer itself leaves, or comes back: it waits for nobody. The others hear it no more, or not yet; leaving
        is like ending, and coming back like a start."""
        return not self.members.listed or all(peer.url != self.me for peer in given.peers)

    def _may_change(self, given: Reload) -> bool:
        """Every peer that stays has reported the present list with the same floors, Ps ago; or the one that is about to
        be taken, which it would not have otherwise, or was started with (C10)."""
        if self.members.size == 1 and any(state.claim is not None for state in self.keys.values()):
            return False  # a call that only the run lock protects
        urls = [peer.url for peer in given.peers]
        staying = [peer for peer in self.members.others if peer in urls]
        return all(
            report.membership in (self.members.hash, self.members.pending)
            and report.same_ms is not None
            and self._now_ms >= report.same_ms + self.timing.promise_ms
            for report in (self._reports.get(peer, Report()) for peer in staying)
        )

    def _change_list(self, given: Reload) -> None:
        """Promises, holds and values stay as they are."""
        changed = self.members.difference(given.peers) > 0
        returns = not self.members.listed
        self.members.change(given.peers)
        if returns and self.members.listed:
            self.silent_until_ms = self._now_ms + self.timing.promise_ms
        if changed:
            self._reports.clear()
            self._waits_with.clear()
            self._readings = {peer: known for peer, known in self._readings.items() if peer in self.members.others}
            self.touch.keep(self.members)
            self._still_fresh()
            self._ping_ms = self._now_ms
            if not self.members.listed:
                self._out += self.waiting.see_other_all()
                self._end_requests()
        self._record("list-changed", b"", f"{self.members.size} peers")
        self._out.append(Membership(self.members.peers))
        self._out.append(Finished(given.request, True))

    def _end_requests(self) -> None:
        """This peer was removed: what it was to do is told to have failed, and nothing is begun any more."""
        for number, work in tuple(self._invalidations.items()):
            self._end_invalidation(number, Finished(work.request, False, NOT_LISTED, self.members.others))
        for state in self.keys.values():
            self._dirty[state.key] = None
            requests = [wish.request for wish in state.wishes] + [gift.request for gift in state.gifts]
            self._out += [Finished(request, False, NOT_LISTED) for request in requests]
            state.wishes, state.gifts, state.wanted, state.candidacy = [], [], False, None
            if state.claim is not None and not state.claim.called:
                self._finish_claim(state)
