"""What an agent says: into its log, its list of events, and to the other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from primacy.agent.control_api import ControlApi
from primacy.agent.gossip import Gossip
from primacy.agent.integrations import Integrations
from primacy.agent.meter import Meter
from primacy.agent.sentences import note_sentence
from primacy.control.gossip_rows import GossipEvent as Told
from primacy.election.events import Code, Event, sentence
from primacy.node.clock import Clock
from primacy.node.log import Level, Log
from primacy.supervise.vocabulary import Note
from primacy.supervise.workload import Performer

if TYPE_CHECKING:
    from primacy.agent.chosen import AnyStrategy


class AgentEvents:
    """Whatever is worth a line goes this way, once."""

    node: str
    clock: Clock
    strategy: AnyStrategy
    workload: Performer
    integrations: Integrations
    meter: Meter
    gossip: Gossip | None
    log: Log
    control_api: ControlApi

    def note(self, note: Note) -> None:
        level, text = note_sentence(note)
        self.log.say(level, text, code=note.what, node=self.node, run=note.run)
        self.record(self.workload.term, note.what, text, note.number)
        self.integrations.noted(note)

    def complain(self, sentence: str) -> None:
        self.log.warn(sentence)

    def recorded(self, events: Sequence[Event]) -> None:
        """A muteness that ends in the step it began in (the first start) is no news."""
        brief = {event.code for event in events} >= {Code.RECOVERING, Code.RECOVERED}
        for event in events:
            self.integrations.recorded(event)
            self.meter.recorded(event)
            quiet = brief and event.code in (Code.RECOVERING, Code.RECOVERED)
            self.log.event(self.node, event, Level.DEBUG if quiet else None)
            if not quiet:
                said = sentence(self.node, event)
                self.record(event.term, event.code, said, event.value)

    def record(self, term: int, code: str, text: str, value: int = 0) -> None:
        """Into the log of events, and to the other nodes."""
        at_ms = self.clock.wall_ms()
        self.control_api.record(at_ms, term, code, text, value)
        if self.gossip is not None:
            self.gossip.happened(Told(at_ms, term, code, text, value))

    def heard_event(self, node: str, event: Told) -> None:
        self.integrations.heard(node, event.code, event.term)
        self.control_api.record_of(node, *event)

    def remark(self, code: str, well: bool, text: str) -> None:
        """What hooks and probes have to say."""
        self.log.say(Level.INFO if well else Level.WARN, text, code=code, node=self.node)
        self.record(self.strategy.term, code, text)

    def alert(self, sentence: str) -> None:
        self.log.error(sentence, code="alert", node=self.node)
        self.control_api.record(self.clock.wall_ms(), self.strategy.term, "alert", sentence)
