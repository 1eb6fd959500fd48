"""A node on a lease that ran under another configuration before: raft, another store, another table (M1).

A node that ran under it with this one may still do so, and hold there what this one would take. So it takes nothing
and acks nothing until every node concerned has reported, to this very boot, that it runs with the new configuration;
each has that on its disk before it says so. A node that is gone for good is named by an operator; where the lease of
before had no list, only an operator knows who else used it. Then the longest hold of before is waited out: who has
reported holds nothing any more, but its work may still be dying.

A node without any memory cannot know what its neighbours did before. It listens for one promise whether one of them
runs with another configuration, and waits with them if so. A node that has run under its configuration before may have
been away while that was replaced: it listens for two heartbeats whether one of them has left it. Nothing else is
concluded from silence.

This module keeps the answers and decides; the strategy sends, saves and shows.
"""

from __future__ import annotations

from primacy.election.effects import Send
from primacy.election.messages import Origin, Query, Report
from primacy.election.model import ListRecord, Seat
from primacy.election.remembered import with_left
from primacy.settings.timing import Timing, stretched

TICK_MS = 1
"""What reading a clock in whole milliseconds may cut off."""
LISTENS_HEARTBEATS = 2
"""How long a node that knows its configuration waits for those that do not answer: each is asked twice."""


class Changed:
    """The configurations that one boot must wait for, and what was answered about them."""

    def __init__(
        self,
        seat: Seat,
        timing: Timing,
        config: str,
        lists: tuple[ListRecord, ...],
        hold_ms: int,
        left: tuple[str, ...] = (),
    ) -> None:
        """`config`: the own one; empty for a user of the library, who remembers none."""
        self.seat = seat
        self.timing = timing
        self.lists = lists
        self.left = left
        """The configurations that it ran under and that were replaced."""
        self.hold_max_ms = max(hold_ms, timing.hold_ms)
        self.origin = Origin(seat.node, boot=seat.boot, config=config)
        self.reports: dict[str, Report] = {}
        """The last answer of each node to this boot."""
        self.without: tuple[str, ...] = ()
        self.others_stopped = False
        self.listens = False
        """It has not heard yet whether its own configuration was replaced while it was away."""
        self.ask_at_ms = 0
        self.began_ms = 0
        self.heard_ms = 0
        """When the last answer, or word of an operator, came that was still missing."""

    # --- what it waits for --------------------------------------------------------------------------------------------

    @property
    def others(self) -> tuple[ListRecord, ...]:
        """The configurations of before."""
        return tuple(record for record in self.lists if record.hash != self.origin.config)

    @property
    def is_over(self) -> bool:
        """Nothing but the own configuration is left, that counts, and nobody is known to have left it."""
        return not self.listens and self.is_own_alone

    @property
    def is_own_alone(self) -> bool:
        """It has run under its configuration before, and must wait for no other one."""
        return all(record.hash == self.origin.config and record.confirmed for record in self.lists)

    @property
    def is_blank(self) -> bool:
        """It has no memory, and no neighbour has told of another configuration yet."""
        return not self.others and not self.is_own_alone

    def missing(self) -> tuple[str, ...]:
        """The nodes that have still to report the new configuration, in order."""
        return tuple(name for name in self._concerned() if not self._reported(name))

    def _concerned(self) -> tuple[str, ...]:
        """Everybody of any of the lists: those of before may still act, those of the new one must not act yet."""
        names = {name for record in self.lists for name in record.voters}
        return tuple(sorted(names - {self.seat.node} - set(self.without)))

    def _reported(self, node: str) -> bool:
        report = self.reports.get(node)
        return report is not None and report.origin.config == self.origin.config

    def replaced_by(self) -> tuple[str, ...]:
        """The nodes that have left the configuration that this one was started with.

        Nobody, if this node has left it, too: then it was given that file again.
        """
        if self.origin.config in self.left:
            return ()
        return tuple(name for name in sorted(self.reports) if self.reports[name].has_left(self.origin.config))

    @property
    def is_unlisted(self) -> bool:
        """Nobody knows who else ran under a configuration of before, and no operator has vouched for them."""
        return not self.others_stopped and any(not record.voters for record in self.others)

    def over_at_ms(self) -> int | None:
        """When it may take part; None while somebody is missing.

        Without a configuration of before: at once when all have reported, else when it has listened for long enough.
        """
        if not self.others:
            listens_ms = self.timing.promise_ms if self.is_blank else LISTENS_HEARTBEATS * self.timing.heartbeat_ms
            return self.began_ms + (listens_ms if self.missing() else 0)
        if self.missing() or self.is_unlisted:
            return None
        return self.heard_ms + stretched(self.hold_max_ms, self.timing.drift_ppm) + TICK_MS

    def wake_ms(self) -> int:
        over_ms = self.over_at_ms()
        return self.ask_at_ms if over_ms is None else min(self.ask_at_ms, over_ms)

    # --- what is said and heard ---------------------------------------------------------------------------------------

    def begin(self, now_ms: int, *, speaks: bool) -> None:
        """`speaks`: it can ask other nodes."""
        self.began_ms = self.heard_ms = self.ask_at_ms = now_ms
        self.listens = speaks and bool(self._concerned())

    def ask(self, now_ms: int) -> list[Send]:
        """Those that have not answered, every heartbeat."""
        if now_ms < self.ask_at_ms:
            return []
        self.ask_at_ms = now_ms + self.timing.heartbeat_ms
        return [Send(node, Query(self.origin, True)) for node in self.missing()]

    def answer(self, query: Query, token_max: int) -> Send:
        """Under which configuration this node runs; it is on its disk."""
        left = tuple((one, ()) for one in self.left)
        report = Report(self.origin, query.origin.boot, True, True, 0, self.hold_max_ms, token_max, left)
        return Send(query.origin.node, report)

    def hear(self, now_ms: int, report: Report) -> bool:
        """True if it changed which configurations this node must wait for: that is to be durable."""
        node, config = report.origin.node, report.origin.config
        if report.echo != self.seat.boot or self.is_over:
            return False
        missed = node in self.missing()
        self.reports[node] = report
        if config == self.origin.config:
            self.heard_ms = now_ms if missed else self.heard_ms
            self.hold_max_ms = max(self.hold_max_ms, report.hold_max_ms)
            return False
        if self.others or node not in self._concerned() or not (self.is_blank or self._is_replaced_by(report)):
            return False
        self.lists = (self._told_of(report), *self.lists)
        return True

    def _is_replaced_by(self, report: Report) -> bool:
        """Its sender has left the configuration of this node: then others may act under the one that it has now."""
        return report.has_left(self.origin.config)

    def _told_of(self, report: Report) -> ListRecord:
        """Of a neighbour that runs with another configuration: its voters, or all of our list."""
        halves = report.register.halves if report.register is not None else (self.seat.membership.voters,)
        voters = tuple(sorted({name for half in halves for name in half}))
        return ListRecord(report.origin.config, voters, confirmed=False, elsewhere=True)

    def vouched(self, now_ms: int, without: tuple[str, ...], others_stopped: bool) -> None:
        """An operator's word, which counts from now on as an answer does."""
        self.without, self.others_stopped, self.heard_ms = without, others_stopped, now_ms

    def end(self) -> None:
        """All of it is over: only the own configuration is left."""
        own = next(record for record in self.lists if record.hash == self.origin.config)
        self.left = with_left(self.left, tuple(record.hash for record in self.others), own.hash)
        self.listens = False
        self.lists = (own._replace(confirmed=True),)
        self.reports.clear()
