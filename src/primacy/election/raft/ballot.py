"""What the disk has of the ballot, and what is on its way there (Q1, F31).

A changed ballot is durable before anything leaves that relies on it. The machine is told only if a save failed, at
once; any other input means that it arrived.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.model import Ballot

URGENT = (Stop, Extend, OrderRelease)
"""Effects that end or extend work: they rely on no ballot and must not wait for a disk."""
RELY = (Send, Start)
"""Effects that rely on the ballot of their step."""


class DurableBallot:
    """The last ballot that was given to the disk, and the one before it."""

    def __init__(self, ballot: Ballot | None) -> None:
        self.durable = ballot
        self.earlier = ballot
        self.saving = False
        """A ballot is on its way to the disk; anything but `PersistFailed` next means that it arrived."""
        self.starts = False
        """The last list of effects had a start behind its ballot."""
        self.marking = False
        """A mark is on its way to the disk: that the ballot is an old copy, or who was listed."""
        self.void_due = False
        """The mark that the ballot is an old copy has still to be saved."""
        self.fault = ""
        """Why the last save failed; while it stands, nothing leaves but what a new save lets through (F31)."""

    def with_persist(self, ballot: Ballot | None, effects: list[Effect], *, leads: bool) -> list[Effect]:
        """A changed ballot becomes durable before the first message, or start, of this step (Q1).

        What ends or extends work stands in front: it relies on no ballot, and must not wait for a slow disk. While the
        disk is in doubt, a node that does not lead saves again before it says anything (F31).
        """
        self.starts = self.saving = False
        if ballot is None:
            return effects
        if ballot is self.durable:
            if not self.fault or leads or not any(type(e) is Send for e in effects):
                return effects
        else:
            self.earlier, self.durable = self.durable, ballot
        last = max((place for place, effect in enumerate(effects) if type(effect) in URGENT), default=-1)
        urgent = [effect for effect in effects[: last + 1] if type(effect) not in RELY]
        rest = [effect for place, effect in enumerate(effects) if place > last or type(effect) in RELY]
        self.starts = any(type(effect) is Start for effect in rest)
        self.saving = True
        return [*urgent, Persist(ballot), *rest]

    def refused(self, term: int, reason: str) -> list[Effect]:
        """The disk did not take it. The first of several failures is recorded."""
        was, self.fault = self.fault, reason or "no reason given"
        return [] if was else [Record(Event(Code.DISK_FAILED, term, detail=reason))]
