"""Facts as sentences, for the trace page, the terminal and the scenes. One line each; whom it is about stands first."""

from __future__ import annotations

from primacy.election import events
from primacy.election.events import SAYS, agreed, in_term
from primacy.sim.facts import Fact, Kind

__all__ = ["SAYS", "agreed", "saying", "sentence"]


def sentence(fact: Fact) -> str:
    """What happened, for people. Empty for facts that are shown in another way."""
    name = fact.node
    match fact.kind:
        case Kind.EVENT:
            return f"{name} {agreed(saying(fact))}"
        case Kind.WORK_STARTED:
            run = f", run {fact.extra}" if fact.extra > 1 else ""
            return f"{name} runs the work{in_term(fact.text)}{run}"
        case Kind.WORK_ENDED:
            return f"{name}: the work has ended{in_term(fact.text)}"
        case Kind.RELEASE_SENT:
            return f"{name}: the guard sends the release{in_term(str(fact.number))}"
        case Kind.UP:
            return f"{name} is up" if fact.number <= 1 else f"{name} is up again (start {fact.number})"
        case Kind.DOWN:
            return f"{name} loses its power" if fact.number else f"{name}: the agent is killed"
        case Kind.FROZEN:
            return f"{name}: the machine is frozen"
        case Kind.THAWED:
            return f"{name}: the machine goes on"
        case Kind.VOTE:
            return f"{name} votes for {fact.text}"
        case Kind.REGISTER:
            goal = f"; wanted: {fact.detail}" if fact.detail else ""
            return f"{name} has saved the members {fact.subject}: {fact.text.removesuffix(' | ')}{goal}"
        case Kind.BAD_ORDER:
            return f"{name} let {fact.text} go before what it relies on was durable"
        case Kind.FAULT:
            return f"fault: {fact.text}" if not name else f"{name}: fault, {fact.text}"
    return ""


def saying(fact: Fact, *, term: bool = True) -> str:
    """What an event says, without its node: what, in which term, and why. Its verbs are still to agree."""
    return events.saying(fact.text, fact.number if term else 0, fact.subject, fact.detail, fact.extra)
