"""Whether a node of bully or ring could lead, and what holds it back if not."""

from __future__ import annotations

PAUSED = "an operator: primacy resume"
"""What a paused node waits for."""


class Fitness:
    """What the agent, an operator, a health probe and the workload say about this node."""

    def __init__(self) -> None:
        self.up = self.stopping = self.paused = self.lock_held = False
        self.ill = ""
        self.work = 0
        """The leadership whose work is not confirmed gone."""
        self.sits_out_ms = 0
        """After a step-down it does not campaign before this moment."""

    def hindrance(self, now_ms: int, *, leads: bool, eligible: bool) -> str:
        """Why it cannot lead; empty if it can."""
        if not self.up:
            return "it is not running"
        if not eligible:
            return "a leader to be elected: no voter of the list, it only follows"
        if self.paused:
            return PAUSED
        if self.ill:
            return f"its health probe to pass ({self.ill})"
        if self.lock_held or (self.work and not leads):
            return "the run lock: its old work is not confirmed gone"
        return "others to lead first, as it stepped down a moment ago" if now_ms < self.sits_out_ms else ""
