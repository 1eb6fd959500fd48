"""Plays the scenarios of a drill one after the other, and watches. Blocking; a second thread looks at the time.

Ctrl-C ends the running fault, and what there is becomes the report. Should this process be killed, each fault ends by
itself after the time that it was begun with.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

from primacy.drill.attempt import Attempt
from primacy.drill.catalogue import Promise, Scenario
from primacy.drill.judge import Finding, Limits, Played, judged
from primacy.drill.record import Record, Standing
from primacy.drill.target import Span, Target
from primacy.errors import NotReached, PrimacyError
from primacy.timeline.schema import Timeline

LOOK_S = 0.1
CANARY_S = 0.01
"""How often it is looked whether this machine wakes a process in time."""
DISK_CANARY_S = 0.05
"""The same of its disk: as often as the quickest lease is renewed."""
LATE_LEAST_MS = 5
"""Less is not noted."""
LATE_MAX = 20_000
PATIENCE_MS = 15_000
"""Beyond some failovers: how long is waited for what must come, and how long a fault may last at most."""
FAILOVERS = 4
SETTLE_S = 60.0
"""For all nodes to be up again before the next fault."""
BEFORE_MS = 2_000
"""Drawn before the first fault."""
TRIES = 3
"""Of a scenario whose times could not be judged, because this machine was late."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Lateness:
    """Notes when this machine wakes a thread late, and when its disk takes long, where a lease depends on it."""

    def __init__(self, late: list[tuple[int, int]], disk: str) -> None:
        """`disk`: a folder on it; empty: nothing that is judged waits for a disk."""
        self.late, self.disk = late, disk
        self._over = threading.Event()
        watches = [self._watch, *([self._watch_disk] if disk else [])]
        self._threads = [threading.Thread(target=watch, name="lateness", daemon=True) for watch in watches]

    def __enter__(self) -> Lateness:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self) -> None:
        due_s = time.monotonic()
        while not self._over.is_set():
            due_s = max(due_s + CANARY_S, time.monotonic())
            time.sleep(max(0.0, due_s - time.monotonic()))
            self._note(time.monotonic() - due_s)

    def _watch_disk(self) -> None:
        """As a renewal does it: a few bytes, until they are safe."""
        with tempfile.TemporaryFile(dir=self.disk) as file:
            while not self._over.wait(DISK_CANARY_S):
                began_s = time.monotonic()
                os.pwrite(file.fileno(), b"x" * 512, 0)
                os.fsync(file.fileno())
                self._note(time.monotonic() - began_s)

    def _note(self, late_s: float) -> None:
        late_ms = int(late_s * 1_000)
        if late_ms > LATE_LEAST_MS and len(self.late) < LATE_MAX:
            self.late.append((now_ms(), late_ms))


class Player:
    """One drill."""

    def __init__(self, target: Target, say: Callable[[str], None]) -> None:
        self.target, self.say = target, say
        self.record = Record()
        self.attempts: list[Attempt] = []
        self.interrupted = ""
        made, timing = target.subject.contract, target.subject.timing
        self.limits = Limits(made, timing.heartbeat_ms / 2)
        self.patience_ms = PATIENCE_MS + FAILOVERS * made.failover_worst_ms + made.stop_planned_ms
        self._steps: list[tuple[int, str]] = []
        self._hold_ms = timing.hold_ms

    def play(self, plan: Sequence[Scenario], minutes: float) -> None:
        """Each once; with `minutes`, again and again until they are over. What is not reached is said."""
        with Lateness(self.record.late, self.target.disk):
            end_s = time.monotonic() + minutes * 60 if minutes else float("inf")
            self.record.since_ms = now_ms() - BEFORE_MS
            try:
                self.look()
                while True:
                    for place, scenario in enumerate(plan):
                        if self.attempts and time.monotonic() >= end_s:
                            self._left_out(plan[place:])
                            return
                        self._play_until_judged(scenario, end_s)
                    if not minutes or not any(each.outcome == "played" for each in self.attempts[-len(plan) :]):
                        return
            except KeyboardInterrupt:
                self.interrupted = self.interrupted or "stopped by a signal"

    def _left_out(self, rest: Sequence[Scenario]) -> None:
        played = {each.scenario.name for each in self.attempts}
        self.attempts += [
            Attempt(each, "skipped", "the time was over before its turn") for each in rest if each.name not in played
        ]

    def _play_until_judged(self, scenario: Scenario, end_s: float) -> None:
        for attempt in range(1, TRIES + 1):
            found = self._play(scenario)._replace(attempt=attempt)
            self.attempts.append(found)
            self._tell(found)
            if not any(each.again for each in found.findings) or attempt == TRIES or time.monotonic() >= end_s:
                return
            self.say(f"  {scenario.name} is repeated: this machine was late")

    # --- one scenario -------------------------------------------------------------------------------------------------

    def _play(self, scenario: Scenario) -> Attempt:
        self._steps = []
        before, waits = self._settled()
        if waits:
            return Attempt(scenario, "skipped", f"waited {SETTLE_S:.0f} s in vain: {waits}")
        if why := self.target.refuses(scenario, before):
            return Attempt(scenario, "skipped", why, before.leader)
        self.say(f"{scenario.name} ({scenario.fault}): {scenario.title}: {before.leader}")
        doubles, begun = self.record.doubles.number, Span(now_ms(), now_ms())
        try:
            begun = self.target.strike(scenario, before, self.patience_ms + PATIENCE_MS)
            self._step(begun.from_ms, f"{scenario.title}: {before.leader}")
            after, mended = self._watch(scenario, before)
            after = self._rest(self._hold_ms / 1_000 + 3 * LOOK_S) if scenario.promise is Promise.STEADY else after
        except (KeyboardInterrupt, PrimacyError) as error:
            self._end(scenario, before)
            reason = str(error) or "stopped by a signal"
            cut_short = Attempt(scenario, "interrupted", reason, before.leader, begun.from_ms, now_ms())
            found = cut_short._replace(
                steps=tuple(self._steps), findings=self._safety(scenario, before, begun, doubles)
            )
            if isinstance(error, PrimacyError):
                return found
            self.attempts.append(found)
            raise
        if scenario.promise is not Promise.STEADY:
            self._rest(self._hold_ms / 1_000 + 3 * LOOK_S)
        played = Played(
            scenario,
            before,
            after,
            begun.from_ms,
            begun.done_ms,
            mended.done_ms if scenario.promise is Promise.OUTAGE else mended.from_ms,
            now_ms(),
            self.record.doubles.number - doubles,
            self.target.wants(scenario, before),
        )
        findings = judged(played, self.timeline(), self.record, self.limits)
        late_ms = self.record.late_ms(played.from_ms, played.to_ms)
        return Attempt(
            scenario,
            "played",
            "",
            before.leader,
            played.from_ms,
            played.to_ms,
            tuple(self._steps),
            tuple(findings),
            late_ms,
        )

    def _watch(self, scenario: Scenario, before: Standing) -> tuple[Standing, Span]:
        """Until what must come of it has come, or was waited for long enough; then the fault is ended."""
        if scenario.promise is Promise.STEADY:
            if scenario.name == "child":
                run = self._newest_run(before)
                self._until(lambda _: self._newest_run(before) > run)
            self._rest(1.5 * self._hold_ms / 1_000)
            return self.look(), self._mend(scenario, before)
        if scenario.promise is Promise.OUTAGE:
            self._rest((self.limits.contract.latest_stop_ms + self._hold_ms) / 1_000)
            mended = self._mend(scenario, before)
            return self._until(lambda now: self._is_later(now, before)), mended
        after = self._until(lambda now: self._is_later(now, before))
        return after, self._mend(scenario, before)

    def _is_later(self, now: Standing, before: Standing) -> bool:
        """Somebody leads and runs it under a later token, and the chain has heard of it."""
        heard = not self.record.has_chain or any(each.token > before.token for each in self.record.signatures[-50:])
        return bool(now.leader) and now.token > before.token and heard

    def _newest_run(self, before: Standing) -> int:
        """When the holder last started its command."""
        started = [one.at_unix_ms for one in self.record.told if one.node == before.leader and one.code == "running"]
        return max(started, default=0)

    def _mend(self, scenario: Scenario, before: Standing) -> Span:
        mended = self.target.mend(scenario, before)
        self._step(mended.from_ms, f"{scenario.name} is over")
        return mended

    def _end(self, scenario: Scenario, before: Standing) -> None:
        """Whatever happened: the fault is ended now. If that fails, too, it ends by itself."""
        try:
            self._mend(scenario, before)
            self.look()
        except PrimacyError as error:
            self._step(now_ms(), f"it could not be ended from here, and ends by itself: {error}")

    def _safety(self, scenario: Scenario, before: Standing, begun: Span, doubles: int) -> tuple[Finding, ...]:
        """Of a scenario that was not played to its end: what was promised at every moment."""
        at_ms = now_ms()
        count = self.record.doubles.number - doubles
        played = Played(scenario, before, before, begun.from_ms, begun.done_ms, at_ms, at_ms, count)
        return tuple(judged(played, self.timeline(), self.record, self.limits)[:1])

    # --- waiting ------------------------------------------------------------------------------------------------------

    def look(self) -> Standing:
        return self.target.read(self.record)

    def _settled(self) -> tuple[Standing, str]:
        """How the cluster stands once all is well; and what it still waits for, should that not come."""
        last_s = time.monotonic() + SETTLE_S
        while True:
            now = self.look()
            if not now.disturbed or time.monotonic() > last_s:
                return now, now.disturbed
            time.sleep(LOOK_S)

    def _until(self, check: Callable[[Standing], bool]) -> Standing:
        last_s = time.monotonic() + self.patience_ms / 1_000
        while True:
            now = self.look()
            if check(now) or time.monotonic() > last_s:
                return now
            time.sleep(LOOK_S)

    def _rest(self, seconds: float) -> Standing:
        last_s = time.monotonic() + seconds
        while True:
            now = self.look()
            if time.monotonic() > last_s:
                return now
            time.sleep(LOOK_S)

    # --- telling ------------------------------------------------------------------------------------------------------

    def _step(self, at_ms: int, text: str) -> None:
        self._steps.append((at_ms, text))

    def _tell(self, found: Attempt) -> None:
        if found.outcome != "played":
            self.say(f"{found.scenario.name} was {found.outcome}: {found.reason}")
        for each in found.findings:
            why = f" ({each.why})" if each.why else ""
            self.say(f"  {each.verdict:<10}  {each.what}: {each.measured}, promised: {each.promised}{why}")

    def timeline(self) -> Timeline:
        subject = self.target.subject
        title = f"Drill of {subject.name} · {subject.strategy} · {subject.profile}"
        return self.record.timeline(title, now_ms(), one_machine=self.target.one_machine, reader=self.target.reader)


def reached(target: Target, record: Record) -> Standing:
    """Once, before anything is done. Raises `NotReached`."""
    now = target.read(record)
    if not now.names:
        raise NotReached("no node is known there")
    return now
