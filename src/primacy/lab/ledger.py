"""What a chain accepts and what it notices, as a pure machine: told what a signer sent, it answers yes or why not.

The protected resource of the demo, and its judge. A signer *opens* with its fencing token before it signs: from then on
everything older, in the order of (token, run), is stale and refused, also what was sent before its sender died. So the
next height that the opener is told is final.

A stale signature alone is no crime. A **double** is a proof of two where one was promised: one height with two signers,
two signers with one (token, run), whenever they come, or a signature that an older signer *made* after a newer one had
begun. The last is judged by the signers' own stamps of CLOCK_BOOTTIME, which is one clock only while all are on one
machine, as in a lab.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

SIGNATURES_MAX = 1_000
"""Kept: minutes at the demo's pace."""
ALERTS_MAX = 20
SIGNERS_MAX = 1_000
"""Remembered by their token and run: as many handovers."""
GAP_INTERVALS = 3
"""A pause of more than so many intervals is a gap: one late signature is none."""


class Signer(NamedTuple):
    """One start of the command."""

    token: int
    run: int
    node: str
    id: str
    """Drawn at its start: two with the same token and run are two nevertheless."""

    @property
    def order(self) -> tuple[int, int]:
        return self.token, self.run

    def __str__(self) -> str:
        return f"{self.node} (token {self.token}, run {self.run})"


class Signature(NamedTuple):
    """One accepted signature."""

    number: int
    height: int
    token: int
    run: int
    node: str
    signer: str
    made_us: int
    """When it was made, on CLOCK_BOOTTIME."""
    gap_ms: int
    """Since the one before; 0 for the first."""
    at_unix_ms: int
    """When the chain took it; for people."""


class Verdict(NamedTuple):
    """The answer to a signer."""

    is_taken: bool
    next_height: int
    why: str = ""


class Ledger:
    """The whole chain."""

    def __init__(self) -> None:
        self.signer: Signer | None = None
        self.signatures: deque[Signature] = deque(maxlen=SIGNATURES_MAX)
        self.next_height = 1
        self.alerts: deque[str] = deque(maxlen=ALERTS_MAX)
        self.counters = dict.fromkeys(
            ("signatures", "handovers", "restarts", "repeats", "gaps", "longest_gap_ms", "stale", "double_signatures"),
            0,
        )
        self._opened_us = 0
        self._interval_ms = 0
        self._ids: dict[tuple[int, int], list[str]] = {}
        """Who came with a token and run: the first has them, each other one is a double."""

    def open(self, signer: Signer, made_us: int, interval_ms: int) -> Verdict:
        """A signer begins."""
        now = self.signer
        if now is not None and signer.id == now.id:
            return self._yes()
        if self._is_second(signer):
            return self._no(f"token {signer.token}, run {signer.run} is another signer's")
        if now is not None and signer.order < now.order:
            return self._stale(signer, made_us, "begins")
        if now is not None:
            self.counters["handovers" if signer.token > now.token else "restarts"] += 1
        last = self.signatures[-1] if self.signatures else None
        if last is not None and last.made_us > made_us:
            self._double(f"{now} signed height {last.height} after {signer} had begun")
        self.signer, self._opened_us, self._interval_ms = signer, made_us, interval_ms
        return self._yes()

    def sign(self, signer: Signer, height: int, made_us: int, at_unix_ms: int) -> Verdict:
        """A signature for a height."""
        now = self.signer
        if self._is_second(signer):
            return self._no(f"token {signer.token}, run {signer.run} is another signer's")
        if now is not None and signer.order < now.order:
            return self._stale(signer, made_us, f"signs height {height}")
        if now is None or signer.id != now.id:
            return self._no("a signer opens before it signs: POST /v1/open")
        if height > self.next_height:
            return self._no(f"height {height} would leave out height {self.next_height}")
        if height < self.next_height:
            return self._again(signer, height)
        last = self.signatures[-1] if self.signatures else None
        gap_ms = max(0, made_us - last.made_us) // 1_000 if last is not None else 0
        self.counters["gaps"] += gap_ms > GAP_INTERVALS * self._interval_ms
        self.counters["longest_gap_ms"] = max(self.counters["longest_gap_ms"], gap_ms)
        self.counters["signatures"] += 1
        number = self.counters["signatures"]
        self.signatures.append(Signature(number, height, *signer, made_us, gap_ms, at_unix_ms))
        self.next_height += 1
        return self._yes()

    def after(self, number: int) -> list[Signature]:
        """Those that a reader has not seen; a number that was never given is of another chain: then all."""
        return [each for each in self.signatures if each.number > number or number > self.newest]

    @property
    def newest(self) -> int:
        return self.counters["signatures"]

    def _again(self, signer: Signer, height: int) -> Verdict:
        """An answer was lost and the signer asks again; or it signs what another one has signed."""
        kept = next((each for each in self.signatures if each.height == height), None)
        if kept is None:
            return self._no(f"height {height} is long signed")
        if kept.signer == signer.id:
            self.counters["repeats"] += 1
            return self._yes()
        self._double(f"height {height} has two signers: {kept.node} and {signer.node}")
        return self._no(f"height {height} is signed by {kept.node}")

    def _is_second(self, signer: Signer) -> bool:
        """Another one came with this token and run before: two nodes were given one, which no fence can tell apart."""
        ids = self._ids.setdefault(signer.order, [signer.id])
        if signer.id not in ids:
            ids.append(signer.id)
            self._double(f"{signer} has the token and run of another signer")
        if len(self._ids) > SIGNERS_MAX:
            del self._ids[next(iter(self._ids))]
        return signer.id != ids[0]

    def _stale(self, signer: Signer, made_us: int, does: str) -> Verdict:
        assert self.signer is not None
        self.counters["stale"] += 1
        if made_us > self._opened_us:
            self._double(f"{signer} {does} after {self.signer} had begun")
        return self._no(f"token {signer.token}, run {signer.run} is stale: {self.signer} has begun")

    def _double(self, sentence: str) -> None:
        self.counters["double_signatures"] += 1
        self.alerts.append(sentence)

    def _yes(self) -> Verdict:
        return Verdict(True, self.next_height)

    def _no(self, why: str) -> Verdict:
        return Verdict(False, self.next_height, why)
