"""Facts as sentences, for the trace page and the terminal. One line each; the node that it is about stands first."""

from __future__ import annotations

from primacy.election.events import Code
from primacy.sim.facts import Fact, Kind

SAYS: dict[str, str] = {
    Code.STARTED: "starts",
    Code.STANDS: "stands for election",
    Code.ELECTED: "is elected",
    Code.FOLLOWS: "follows {subject}",
    Code.LEADER_SILENT: "has not heard its leader {subject} for too long",
    Code.LEADER_LEFT: "hears that its leader {subject} leads no more",
    Code.MAJORITY_LOST: "lost its majority and stops its work",
    Code.HIGHER_TERM: "gives way to a higher term",
    Code.TERM_AHEAD: "steps down to stand again above a higher term",
    Code.STEP_DOWN: "steps down",
    Code.TRANSFER: "hands over to {subject}",
    Code.PAUSED: "is paused",
    Code.UNHEALTHY: "is unhealthy",
    Code.STOPPING: "is stopping",
    Code.CANNOT_START: "could not start its work in time and resigns",
    Code.GUARD_LOST: "lost the guard of its work: this term is closed for it",
    Code.RENEWAL_LATE: "was too late to renew and stops its work",
    Code.LEASE_LOST: "lost its lease",
    Code.LEASE_TAKEN: "took the lease",
    Code.OUTRANKED: "gives way to {subject}, which ranks higher",
    Code.OVERSLEPT: "slept past its time",
    Code.REMOVED: "was removed from the list",
    Code.WORK_ENDED: "has ended its work",
    Code.RELEASED: "has released: the next start need not wait",
    Code.TOKEN_LOW: "knows of a larger token and does not start",
    Code.MUTED: "is mute",
    Code.UNMUTED: "speaks again",
    Code.NO_MEMORY: "has no memory",
    Code.FIRST_BALLOT: "wrote its first ballot",
    Code.INIT_REFUSED: "refuses the first start",
    Code.OTHER_LIST: "hears {subject}, which has another list",
    Code.OTHER_CLUSTER: "hears {subject}, which is of another cluster",
    Code.TWO_BOOTS: "hears two starts of {subject} at once",
    Code.STALE_INCARNATION: "finds that its state is an old copy",
    Code.TERM_JUMP: "refuses a jump of the term",
    Code.DISK_FAILED: "could not save its ballot",
    Code.LOCK_HELD: "finds old work still running on its machine",
    Code.STORE_FAILED: "got no answer from the store",
    Code.OTHER_SERVER: "finds another server behind the store and observes anew",
    Code.START_DELAY: "waits {value} ms before it may start the work",
    Code.PROMISE_REFUSED: "refuses {subject} its vote: its promise lasts {value} ms more",
    Code.RELEASE_APPLIED: "heard the release of {subject}: no promise is left",
    Code.RELEASE_REFUSED: "heard the release of {subject} and has acked a newer term",
    Code.LATE_ACK: "got an ack of an old beat from {subject}",
    Code.SPLIT_VOTE: "got no majority and tries again",
    Code.CROSSED: "meets another coordinator, {subject}",
    Code.BATON_LOST: "renews a baton that did not come round",
    Code.BATON_MERGED: "drops a baton in favour of another",
    Code.SKIPPED: "skips {subject}, which does not answer",
    Code.WINNER_DEAD: "waited for an announcement that never came",
    Code.OBSERVATION_RESTARTED: "observes the row anew",
    Code.ANSWER_LOST: "cannot know whether its last write was done",
    Code.PRUNED: "removes {subject}, silent for too long",
    Code.RETURNED: "is back",
}


def sentence(fact: Fact) -> str:
    """What happened, for people. Empty for facts that are shown in another way."""
    name = fact.node
    match fact.kind:
        case Kind.EVENT:
            return f"{name} {_event(fact)}"
        case Kind.WORK_STARTED:
            run = f", run {fact.extra}" if fact.extra > 1 else ""
            return f"{name} runs the work{_term(fact.text)}{run}"
        case Kind.WORK_ENDED:
            return f"{name}: the work has ended{_term(fact.text)}"
        case Kind.RELEASE_SENT:
            return f"{name}: the guard sends the release{_term(str(fact.number))}"
        case Kind.UP:
            return f"{name} is up" if fact.number <= 1 else f"{name} is up again (start {fact.number})"
        case Kind.DOWN:
            return f"{name} loses its power" if fact.number else f"{name}: the agent is killed"
        case Kind.VOTE:
            return f"{name} votes for {fact.text}"
        case Kind.BAD_ORDER:
            return f"{name} let {fact.text} go before what it relies on was durable"
        case Kind.FAULT:
            return f"fault: {fact.text}" if not name else f"{name}: fault, {fact.text}"
    return ""


def _event(fact: Fact) -> str:
    says = SAYS.get(fact.text, fact.text.replace("-", " "))
    text = says.format(subject=fact.subject or "another", value=f"{fact.extra:,}")
    text += _term(str(fact.number)) if fact.number else ""
    return f"{text}: {fact.detail}" if fact.detail else text


def _term(term: str) -> str:
    """Terms are small; a lease has its token in that place."""
    if term in ("", "0"):
        return ""
    return f" (term {term})" if len(term) < 10 else f" (token {term})"
