"""Tells a history of the bounded model: one line per event, with the moment and who hears what from whom."""

from __future__ import annotations

from typing import assert_never

from primacy.election import messages as m
from primacy.election.inputs import ChangeMembers, GuardLost, Input, RunLock, StoreAnswered, WorkGone, WorkStarted
from primacy.election.store import Look, Place, Prune, ReleaseRow, Renew, Settle, StoreAnswer, StoreRequest, Take
from primacy.sim.model.states import BoundedModel, Event
from primacy.sim.model.values import Ask, FreeRow, Item, Packet, Spawn, Word
from primacy.sim.model.world import REFUSED
from primacy.sim.transcripts.text import SAID


def history_lines(model: BoundedModel, history: tuple[Event, ...]) -> list[str]:
    """The history as lines: the time in units since the first start, `!` for what disturbed the ordinary course."""
    lines = []
    now = 0
    for event in history:
        if event[0] == "tick":
            now += 1
            continue
        mark = "!" if event[0] in DISTURBANCES else " "
        lines.append(f"{now:>4} {mark} {sentence(model, event)}")
    return lines


DISTURBANCES = (
    *("hold", "repeat", "refuse", "crash", "asleep", "guard", "step down", "cut"),
    *("fail over", "promoted again", "dump", "flush", "rows removed", "request", "forget"),
)


def sentence(model: BoundedModel, event: Event) -> str:
    """One event."""
    names, items = model.names, model.numbers.items
    match event:
        case ("hear", item):
            return arrival(names, items[item])
        case ("late", item):
            return f"{arrival(names, items[item])} (it was held back)"
        case ("hold", item):
            return f"held back: {arrival(names, items[item])}"
        case ("repeat", item):
            return f"{arrival(names, items[item])} (and once more, later or never)"
        case ("refuse", item):
            return f"the store fails: {arrival(names, items[item])}"
        case ("wake", i):
            return f"{names[i]}'s deadline has come"
        case ("crash", i, item, crash_at, power):
            when = arrival(names, items[item]) if item >= 0 else f"{names[i]}'s deadline has come"
            if crash_at == REFUSED:
                return f"{when}, but its disk refuses to save"
            what = "loses power" if power else "'s agent is killed"
            return f"{when}; {names[i]}{'' if what.startswith(chr(39)) else ' '}{what} after effect {crash_at} of that"
        case ("restart", i):
            return f"{names[i]} starts"
        case ("asleep", i):
            return f"{names[i]}'s agent is stopped"
        case ("awake", i):
            return f"{names[i]}'s agent goes on"
        case ("guard", i, term):
            return f"{names[i]}'s guard of term {term} is killed"
        case ("end", i, term):
            return f"{names[i]}'s work of term {term} is gone"
        case ("step down", i):
            return f"{names[i]} is asked to step down"
        case ("request", i, which):
            return f"{names[i]} is asked for {_request(model.requests[which])}"
        case ("power", i):
            return f"{names[i]} loses power"
        case ("forget", i):
            return f"{names[i]}'s agent is killed and its memory is lost"
        case ("cut", which):
            return str(which)
        case ("mend",):
            return "the cut is mended"
        case ("fail over", lost):
            return f"another server takes over, without the last {lost} commits"
        case ("promoted again", lost):
            return f"the server follows another and is promoted again, without the last {lost} commits"
        case ("flush", _):
            return "the table is emptied, its genesis row included"
        case ("dump", commits):
            return f"a dump of {commits} commits ago is read into the running server"
        case ("rows removed", _):
            return "all rows are removed by hand"
    return str(event[0])


def _request(given: Input) -> str:
    if isinstance(given, ChangeMembers):
        return f"the members {', '.join(member.id for member in given.members)}"
    return "the end of the change of members"


def arrival(names: tuple[str, ...], item: Item) -> str:
    match item:
        case Packet(to, message):
            return f"{names[to]} hears {message.origin.node}: {_said(message)}"
        case Word(to, _, given):
            return f"{names[to]} is told: {_told(given)}"
        case Spawn(to, term):
            return f"{names[to]}'s work of term {term} starts"
        case Ask(sender, _, number, request):
            return f"the store hears {names[sender]}, request {number}: {_asked(request)}"
        case FreeRow(sender, _, token, _):
            return f"the store hears {names[sender]}'s guard: the work of token {token} is gone"


def _said(message: m.Message) -> str:
    match message:
        case m.Heartbeat():
            return f"heartbeat {message.number} of term {message.term}"
        case m.Ack():
            return f"ack of heartbeat {message.number} of term {message.term}"
        case m.Release():
            return f"all work up to term {message.term} is gone"
    tell = SAID.get(type(message))
    return tell(message)[0] if tell is not None else type(message).__name__


def _told(given: Input) -> str:
    match given:
        case WorkStarted(term):
            return f"the work of term {term} runs"
        case WorkGone(term, released):
            return f"the work of term {term} is gone{', and released' if released else ''}"
        case GuardLost(term):
            return f"the guard of term {term} is gone"
        case RunLock(held):
            return f"the run lock is {'held' if held else 'free'}"
        case StoreAnswered(number, answer):
            return f"answer {number}: {_answered(answer)}"
    return type(given).__name__


def _answered(answer: StoreAnswer) -> str:
    if not answer.ok:
        return "the store failed"
    row = answer.row
    stands = "no row" if row is None else f"{row.holder}, token {row.token}, seq {row.seq}{', released' * row.released}"
    return f"{'done; ' if answer.done else ''}{stands}"


def _asked(request: StoreRequest) -> str:
    match request:
        case Look():
            return "look"
        case Take(seen=seen):
            stands = "a name that has no row" if seen is None else f"what stands at token {seen.token}, seq {seen.seq}"
            return f"take with token {request.row.token} {stands}"
        case Renew():
            return f"renew token {request.token}, seq {request.seq}"
        case ReleaseRow():
            return f"release token {request.token}, seq {request.seq}"
        case Place():
            return "make a placeholder"
        case Settle():
            return f"settle the table for {request.server}"
        case Prune():
            return f"remove the row of token {request.seen.token}"
    assert_never(request)
