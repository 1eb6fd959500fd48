"""What came of one scenario of a drill. Data."""

from __future__ import annotations

from typing import NamedTuple

from primacy.drill.catalogue import Scenario
from primacy.drill.judge import Finding, Verdict


class Attempt(NamedTuple):
    """One scenario of the plan, and what came of it."""

    scenario: Scenario
    outcome: str
    """played | skipped | interrupted"""
    reason: str = ""
    """Why it was not played, or not to its end."""
    node: str = ""
    """The holder that it was done to."""
    from_ms: int = 0
    to_ms: int = 0
    steps: tuple[tuple[int, str], ...] = ()
    """What was done, and when."""
    findings: tuple[Finding, ...] = ()
    late_ms: int = 0
    """By how much this machine was late meanwhile, at most."""
    attempt: int = 1

    @property
    def verdicts(self) -> set[Verdict]:
        return {finding.verdict for finding in self.findings}
