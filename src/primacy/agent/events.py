"""Where everything goes that is worth a line: the log, the event log, the other nodes, and whoever acts on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from primacy.agent.sentences import note_sentence
from primacy.control.disk_thread import DiskThread
from primacy.control.eventlog import EventLog
from primacy.control.gossip_rows import GossipEvent
from primacy.election.events import Code, Event, sentence
from primacy.errors import Later
from primacy.node.clock import Clock
from primacy.node.log import Level, Log
from primacy.supervise.vocabulary import Note

FLUSH_S = 0.1
"""Events are written when an election is over, not during it: a disk that is just syncing a vote would hold it up."""
WRITER = "primacy-events"
"""The thread that writes them."""


class EventSink:
    """Takes each event once. Who acts on events is in one of its lists; nobody else is told by anybody else."""

    def __init__(
        self,
        node: str,
        clock: Clock,
        log: Log,
        events: EventLog,
        term: Callable[[], int],
        disk: DiskThread | None = None,
    ) -> None:
        """`term`: the newest that the election knows. `disk`: who writes events, of all elections of the process;
        None: a thread of its own."""
        self.node = node
        self.clock = clock
        self.log = log
        self.events = events
        self.term = term
        self.on_event: list[Callable[[Event], None]] = []
        """Told each event of the election, before its line is written."""
        self.on_note: list[Callable[[Note], None]] = []
        """Told each note about the workload, after its line is written."""
        self.on_heard: list[Callable[[str, GossipEvent], None]] = []
        """Told what another node says that happened there."""
        self.on_record: list[Callable[[GossipEvent], None]] = []
        """Told what was recorded here, for the other nodes."""
        self._flush: asyncio.Handle | None = None
        self._writing: Future[None] | None = None
        self._disk = disk or DiskThread(WRITER)
        self._is_own_disk = disk is None
        self._closed = False

    # --- of this node -------------------------------------------------------------------------------------------------

    def recorded(self, events: Sequence[Event]) -> None:
        """The driver's listener. A recovery that ends in the step it began in (the first start) is no news."""
        brief = {event.code for event in events} >= {Code.RECOVERING, Code.RECOVERED}
        for event in events:
            for told in self.on_event:
                told(event)
            quiet = brief and event.code in (Code.RECOVERING, Code.RECOVERED)
            self.log.event(self.node, event, Level.DEBUG if quiet else None)
            if not quiet:
                self.record(event.term, event.code, sentence(self.node, event), event.value)

    def note(self, note: Note, term: int) -> None:
        """`term`: of the workload that it is about."""
        level, text = note_sentence(note)
        self.log.say(level, text, code=note.what, node=self.node, run=note.run)
        self.record(term, note.what, text, note.number)
        for told in self.on_note:
            told(note)

    def remark(self, code: str, well: bool, text: str) -> None:
        """What hooks, probes and operators have to say."""
        self.log.say(Level.INFO if well else Level.WARN, text, code=code, node=self.node)
        self.record(self.term(), code, text)

    def complain(self, sentence: str) -> None:
        """Something that should not be: a line, and no event."""
        self.log.warn(sentence)

    def alert(self, sentence: str) -> None:
        """For the people here: each node sees for itself what calls for one."""
        self.log.error(sentence, code="alert", node=self.node)
        self._add(self.node, GossipEvent(self.clock.wall_ms(), self.term(), "alert", sentence, 0))

    def record(self, term: int, code: str, text: str, value: int = 0) -> None:
        """Into the event log, and to the other nodes; no line in the log."""
        event = GossipEvent(self.clock.wall_ms(), term, code, text, value)
        self._add(self.node, event)
        for told in self.on_record:
            told(event)

    # --- of others ----------------------------------------------------------------------------------------------------

    def heard_event(self, node: str, event: GossipEvent) -> None:
        for told in self.on_heard:
            told(node, event)
        self._add(node, event)

    # --- the event log ------------------------------------------------------------------------------------------------

    def _add(self, node: str, event: GossipEvent) -> None:
        """It is written a little later: what led to it, and what follows, must not wait for a file."""
        self.events.add(event.at_unix_ms, node, event.term, event.code, event.text, event.value)
        if self._flush is None and not self._closed:
            self._flush_later()

    def _flush_later(self) -> None:
        self._flush = asyncio.get_running_loop().call_later(FLUSH_S, self._flush_now)

    def _flush_now(self) -> None:
        """One order at a time, so that a disk that hangs has one wait; what comes meanwhile is written after it."""
        self._flush = None
        if self._writing is not None:
            if not self._writing.done():
                self._flush_later()
                return
            self._writing.result()  # a fault of this code is told
        try:
            self._writing = self._disk.ask(self.events.flush)
        except Later:  # no thread is to be had now
            self._writing = None
            self._flush_later()

    async def close(self) -> None:
        """Other elections of this process go on meanwhile. What happens from now on is not written any more."""
        self._closed = True
        if self._flush is not None:
            self._flush.cancel()
        await self.events.aclose(self._disk)
        if self._is_own_disk:
            self._disk.end()
