"""The ballot file of one node: what a crash leaves of a save, and the faults of a disk.

A save is a write of a new file, its sync, the exchange of names, and the sync of the folder: after a crash in the
middle, the old ballot or the new one stands, never a mixture (I8). Lost and torn files read as no memory at all.
"""

from __future__ import annotations

from random import Random

from primacy.election.model import Ballot


class Disk:
    """Durable storage for one ballot; and where nodes change their strategy, for what they keep under the other."""

    def __init__(self) -> None:
        self.ballot: Ballot | None = None
        self.other: Ballot | None = None
        """What the other of raft and lease has left there."""
        self.strategy = ""
        """Whose the ballot is; empty where nobody changes it."""
        self.full = False
        self.slow_ms = 0

    def save(self, ballot: Ballot) -> bool:
        """True once it is durable; False if the disk refused it, and then the old one still stands."""
        if self.full:
            return False
        self.ballot = ballot
        return True

    def crash_while_saving(self, ballot: Ballot, chance: Random) -> None:
        """Old or new, by chance."""
        if not self.full and chance.random() < 0.5:
            self.ballot = ballot

    def crash(self, chance: Random) -> None:
        """The machine went down. What was durable stays."""

    def lose(self) -> None:
        """The file is gone, or torn: its checksum says so, and that is no memory, never a fresh start (F36, F37)."""
        self.ballot = self.other = None

    def use(self, strategy: str) -> None:
        """The next start is of this strategy: its own file is the ballot then."""
        if self.strategy != strategy:
            self.ballot, self.other, self.strategy = self.other, self.ballot, strategy
