"""Whether a scenario kept what the contract promises: from the timeline and the record to findings. Pure.

Safety is judged always. A bound of time that was not met says nothing about the cluster if the machine that measured it
stood still meanwhile: that is *not judged*, with the figure. Nobody is called on time by this: a bound that was met
counts as met on a slow machine, too.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from primacy.drill.catalogue import Promise, Scenario
from primacy.drill.record import Record, Standing
from primacy.settings.contract import Contract
from primacy.timeline.overlap import uncertainty
from primacy.timeline.schema import CONFIRMED, Run, Timeline

AGENT_LATE, WOKE = "late", re.compile(r" woke ([\d,]+) ms late")
"""The event of an agent that woke late. One that a drill froze does so, too, and does not count."""


class Verdict(StrEnum):
    KEPT = "kept"
    NOT_KEPT = "not kept"
    NOT_JUDGED = "not judged"


class Finding(NamedTuple):
    """One promise, and what was measured."""

    what: str
    promised: str
    measured: str
    verdict: Verdict
    why: str = ""
    promised_ms: float | None = None
    measured_ms: float | None = None
    at_ms: float | None = None
    """Where to look on the timeline."""
    again: bool = False
    """Not judged because this machine was late: worth another try."""


class Played(NamedTuple):
    """One scenario that was played. Moments on the clock of the axis."""

    scenario: Scenario
    before: Standing
    after: Standing
    from_ms: int
    """When the fault began."""
    done_ms: int
    """When it was complete."""
    mended_ms: int
    """When it was over; of a moment, like the death of a process, when it was complete."""
    to_ms: int
    """Watched until then."""
    doubles: int = 0
    """Proofs of two at once that came meanwhile, of an outside system."""
    successor: str = ""
    """Who must lead then; empty: anybody."""


class Limits(NamedTuple):
    """What the numbers are compared with."""

    contract: Contract
    late_ms: float
    """This machine is late from here on: half a heartbeat."""


def judged(played: Played, drawn: Timeline, record: Record, limits: Limits) -> list[Finding]:
    """All that this scenario promised, safety first."""
    look = Look(played, drawn, record, limits)
    found = [look.at_most_one()]
    match played.scenario.promise:
        case Promise.SILENCE:
            found += [look.old_is_dead(), look.next_start(), *look.gap(), look.token_grows()]
        case Promise.RELEASE:
            found += [look.ends_in_order(), look.start_after_end(), look.token_grows()]
        case Promise.STEADY:
            found += [look.keeps_role()]
        case Promise.OUTAGE:
            found += [look.old_is_dead(), look.nobody_starts(), look.start_after_mending(), look.token_grows()]
    return found


class Look:
    """At one scenario."""

    def __init__(self, played: Played, drawn: Timeline, record: Record, limits: Limits) -> None:
        self.played, self.drawn, self.record, self.limits = played, drawn, record, limits
        self.made = limits.contract
        self.names = [node.name for node in drawn.nodes]
        self.old = self._old_run()

    # --- safety -------------------------------------------------------------------------------------------------------

    def at_most_one(self) -> Finding:
        """From the first moment to the last at which anybody watched."""
        begin, end = self.played.from_ms, self.played.to_ms
        seen = [each for each in self.drawn.overlaps if each.to_ms >= begin and each.from_ms <= end]
        count = max(len(seen), self.played.doubles)
        what, promised = "copies of the command at once", "never two"
        if not count:
            return Finding(what, promised, "never two were seen", Verdict.KEPT)
        where = [f"{self.names[each.node]} and {self.names[each.other]} ran at once" for each in seen[:1]]
        said = [_recorded(self.played.doubles), *self.record.doubles.sentences[-1:]] if self.played.doubles else []
        at_ms = seen[0].from_ms if seen else self.played.from_ms
        often = "once" if count == 1 else f"{count:,} times"
        return Finding(what, promised, f"two, {often}", Verdict.NOT_KEPT, "; ".join([*where, *said]), at_ms=at_ms)

    def token_grows(self) -> Finding:
        before, after = self.played.before.token, self.played.after.token
        what, promised, at_ms = "the next token", f"above {before}", self.played.from_ms
        if not after:
            return Finding(what, promised, "nobody leads", Verdict.NOT_KEPT, at_ms=at_ms)
        verdict = Verdict.KEPT if after > before else Verdict.NOT_KEPT
        wrong = self.played.successor not in ("", self.played.after.leader)
        if wrong and verdict is Verdict.KEPT:
            why = f"{self.played.after.leader} leads, not {self.played.successor}"
            return self._unless_late(Finding(what, promised, str(after), Verdict.NOT_KEPT, why, at_ms=at_ms))
        return Finding(what, promised, str(after), verdict, at_ms=at_ms)

    # --- times --------------------------------------------------------------------------------------------------------

    def old_is_dead(self) -> Finding:
        """By the last sign of it that anybody outside saw, and by its guard's report if that came in time."""
        what, most_ms = "the old command is dead, after the fault", self.made.latest_stop_ms
        last_ms = self._last_sign()
        if last_ms is None:
            return Finding(
                what, _within(most_ms), "nobody could report it", Verdict.NOT_JUDGED, "no outside system saw its end"
            )
        return self._after_fault(what, most_ms, last_ms)

    def gap(self) -> list[Finding]:
        """From the last sign of the old command to the next start; nothing where nobody saw either."""
        run, last_ms = self._next_run(self.played.from_ms), self._last_sign()
        if run is None or last_ms is None:
            return []
        what, most_ms = "nobody ran it", self.made.failover_worst_ms
        return [self._bound(what, most_ms, max(0.0, run.from_ms - last_ms), run.from_ms, self._unsure(run))]

    def next_start(self) -> Finding:
        what, most_ms = "the next start, after the fault", self.made.failover_worst_ms
        run = self._next_run(self.played.from_ms)
        if run is None:
            return self._none(what, most_ms)
        return self._after_fault(what, most_ms, run.from_ms, self._unsure(run))

    def ends_in_order(self) -> Finding:
        what, most_ms = "the command ends, after the request", self.made.stop_planned_ms
        if self.old is None or self.old.end != CONFIRMED:
            why = "no end was reported"
            return Finding(what, _within(most_ms), "not known", Verdict.NOT_JUDGED, why, most_ms)
        return self._bound(what, most_ms, max(0.0, self.old.to_ms - self.played.from_ms), self.old.to_ms)

    def start_after_end(self) -> Finding:
        what, most_ms = "the next start, after the confirmed end", self.made.release_worst_ms
        run = self._next_run(self.played.from_ms)
        if run is None:
            return self._none(what, most_ms)
        if self.old is None or self.old.end != CONFIRMED:
            why = "no end was reported"
            return Finding(what, _within(most_ms), "not known", Verdict.NOT_JUDGED, why, most_ms)
        return self._bound(what, most_ms, run.from_ms - self.old.to_ms, run.from_ms, self._unsure(run))

    def start_after_mending(self) -> Finding:
        what, most_ms = "the next start, after the fault is over", self.made.failover_worst_ms
        run = self._next_run(self.played.mended_ms)
        if run is None:
            return self._none(what, most_ms)
        return self._bound(what, most_ms, run.from_ms - self.played.mended_ms, run.from_ms)

    def nobody_starts(self) -> Finding:
        """While it lasts; what began before it was complete does not count."""
        what = "starts while nobody may run it"
        runs = [each for each in self.drawn.runs if self.played.done_ms < each.from_ms < self.played.mended_ms]
        old = self.played.before.token
        again = [each for each in runs if each.token != old]
        verdict = Verdict.NOT_KEPT if again else Verdict.KEPT
        why = f"{self.names[again[0].node]} started" if again else ""
        at_ms = again[0].from_ms if again else self.played.from_ms
        return Finding(what, "none", str(len(again)) if again else "none", verdict, why, at_ms=at_ms)

    def keeps_role(self) -> Finding:
        before, after = self.played.before, self.played.after
        took_ms = self.played.mended_ms - self.played.from_ms
        what, promised = "the holder and its token", f"{before.leader} and {before.token}, as before"
        if self.played.scenario.name == "stall":
            most_ms = self.made.tolerated_stall_ms
            what = f"the holder and its token, after {took_ms:,} ms of {most_ms:,} ms that it may stand still"
            if took_ms > most_ms:
                why = f"this machine was late: it stood still for {took_ms:,} ms, longer than it may"
                return Finding(what, promised, after.leader or "nobody", Verdict.NOT_JUDGED, why, again=True)
        if (after.leader, after.token) == (before.leader, before.token):
            return Finding(what, promised, "as before", Verdict.KEPT, at_ms=self.played.from_ms)
        measured = f"{after.leader or 'nobody'} and {after.token}"
        return self._unless_late(Finding(what, promised, measured, Verdict.NOT_KEPT, at_ms=self.played.from_ms))

    # --- how ----------------------------------------------------------------------------------------------------------

    def _old_run(self) -> Run | None:
        """The holder's, which was on when the fault began."""
        leader = self.played.before.leader
        if leader not in self.names:
            return None
        place = self.names.index(leader)
        runs = [each for each in self.drawn.runs if each.node == place and each.from_ms <= self.played.done_ms]
        return runs[-1] if runs else None

    def _last_sign(self) -> float | None:
        """Of the old command, after the fault began; None if nobody outside looked and no end was reported in time."""
        begin, end, token = self.played.from_ms, self.played.to_ms, self.played.before.token
        signs: list[float] = [
            each.at_unix_ms
            for each in self.record.signatures
            if each.token == token and begin <= each.at_unix_ms <= end
        ]
        old = self.old
        if old is not None and old.end == CONFIRMED and old.sure_ms == old.to_ms:
            signs.append(old.to_ms)
        if not signs and not self.record.has_chain:
            return None
        return max(signs, default=float(begin))

    def _next_run(self, after_ms: float) -> Run | None:
        """The first under a later token."""
        old = self.played.before.token
        runs = [each for each in self.drawn.runs if each.from_ms >= after_ms and each.token > old]
        return runs[0] if runs else None

    def _unsure(self, run: Run) -> float | None:
        """Between the clock of the old holder and that of the new one."""
        return uncertainty(self.drawn.nodes, self.old.node, run.node) if self.old is not None else 0.0

    def _after_fault(self, what: str, most_ms: float, at_ms: float, unsure_ms: float | None = 0.0) -> Finding:
        """A fault takes its time: several links are cut one after the other. So a span after it has two ends."""
        longest_ms, shortest_ms = at_ms - self.played.from_ms, max(0.0, at_ms - self.played.done_ms)
        if shortest_ms > most_ms or longest_ms <= most_ms:
            return self._bound(what, most_ms, longest_ms if longest_ms <= most_ms else shortest_ms, at_ms, unsure_ms)
        measured = f"{shortest_ms:,.0f} to {longest_ms:,.0f} ms"
        why = f"this machine was late: the fault took {longest_ms - shortest_ms:,.0f} ms to be complete"
        return Finding(
            what, _within(most_ms), measured, Verdict.NOT_JUDGED, why, most_ms, longest_ms, at_ms, again=True
        )

    def _bound(
        self, what: str, most_ms: float, measured_ms: float, at_ms: float, unsure_ms: float | None = 0.0
    ) -> Finding:
        about = "" if not unsure_ms or unsure_ms <= 2 else f" ± {unsure_ms:,.0f}"
        facts = (what, _within(most_ms), f"{measured_ms:,.0f}{about} ms")
        numbers = (most_ms, measured_ms, at_ms)
        if unsure_ms is None or abs(measured_ms - most_ms) <= (unsure_ms if unsure_ms > 2 else 0.0):
            return Finding(*facts, Verdict.NOT_JUDGED, "the clocks of the nodes are not known so well", *numbers)
        if measured_ms <= most_ms:
            return Finding(*facts, Verdict.KEPT, "", *numbers)
        return self._unless_late(Finding(*facts, Verdict.NOT_KEPT, "", *numbers))

    def _none(self, what: str, most_ms: float) -> Finding:
        waited_ms = self.played.to_ms - self.played.from_ms
        return Finding(what, _within(most_ms), f"none in {waited_ms:,} ms", Verdict.NOT_KEPT, "", most_ms)

    def _late_ms(self) -> int:
        """Of this machine, by its own canary; an agent that woke late says so itself."""
        begin, end = self.played.from_ms, self.played.to_ms
        said = [
            int(found[1].replace(",", ""))
            for one in self.record.told
            if one.code == AGENT_LATE and begin <= one.at_unix_ms <= end and one.node != self.played.before.leader
            if (found := WOKE.search(one.text)) is not None
        ]
        return max([self.record.late_ms(begin, end), *said])

    def _unless_late(self, found: Finding) -> Finding:
        """What was not kept says nothing if this machine was late. Never of safety."""
        late_ms = self._late_ms()
        if late_ms <= self.limits.late_ms:
            return found
        why = f"this machine was late by {late_ms:,} ms meanwhile; repeat it on one that has less to do"
        return found._replace(verdict=Verdict.NOT_JUDGED, why=f"{found.why}; {why}" if found.why else why, again=True)


def _recorded(doubles: int) -> str:
    return f"the chain recorded {doubles:,} double {'signature' if doubles == 1 else 'signatures'}"


def _within(most_ms: float) -> str:
    return f"within {most_ms:,.0f} ms"
