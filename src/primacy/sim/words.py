"""Facts as sentences, for the trace page, the terminal and the scenes. One line each; whom it is about stands first."""

from __future__ import annotations

from primacy.election.events import Code
from primacy.sim.facts import Fact, Kind

SAYS: dict[str, str] = {
    Code.STARTED: "start{s}",
    Code.STANDS: "stand{s} for election",
    Code.ELECTED: "lead{s}",
    Code.FOLLOWS: "follow{s} {whom}",
    Code.LEADER_SILENT: "hear{s} nothing of {whom} any more",
    Code.LEADER_LEFT: "lose{s} the leader {whom}",
    Code.MAJORITY_LOST: "lost its majority and stops its work",
    Code.HIGHER_TERM: "give{s} way to a higher term",
    Code.TERM_AHEAD: "step{s} down in order, to stand again above a higher term",
    Code.STEP_DOWN: "step{s} down",
    Code.TRANSFER: "step{s} down in favour of {whom}",
    Code.PAUSED: "{is} paused and stand{s} back",
    Code.UNHEALTHY: "{is} unhealthy and stand{s} back",
    Code.STOPPING: "{is} stopping and stand{s} back",
    Code.CANNOT_START: "resign{s}",
    Code.GUARD_LOST: "lost the guard of its work and give{s} up",
    Code.RENEWAL_LATE: "give{s} up the lease",
    Code.LEASE_LOST: "lost the lease",
    Code.LEASE_TAKEN: "take{s} the lease",
    Code.OUTRANKED: "yield{s} to {whom}, which ranks higher",
    Code.OVERSLEPT: "slept past its time",
    Code.REMOVED: "{is} no longer in the list",
    Code.WORK_ENDED: "{has} ended its work and lead{s} no more",
    Code.RELEASED: "lead{s} no more: its work is confirmed gone and released",
    Code.TOKEN_LOW: "resign{s}, for a larger token is known",
    Code.MUTED: "become{s} mute",
    Code.UNMUTED: "speak{s} again after being mute",
    Code.NO_MEMORY: "{has} no memory",
    Code.FIRST_BALLOT: "write{s} a first ballot",
    Code.INIT_REFUSED: "refuse{s} to begin a cluster",
    Code.OTHER_LIST: "ignore{s} {whom}",
    Code.OTHER_CLUSTER: "ignore{s} {whom}",
    Code.TWO_BOOTS: "raise{s} an alarm about an id that is used twice",
    Code.STALE_INCARNATION: "forget{s} its ballot",
    Code.TERM_JUMP: "refuse{s} to believe {whom}",
    Code.DISK_FAILED: "cannot save to the disk",
    Code.LOCK_HELD: "find{s} old work still running on this machine",
    Code.STORE_FAILED: "get{s} no answer from the store",
    Code.OTHER_SERVER: "find{s} another server behind the store",
    Code.START_DELAY: "must wait {value} ms before the work may start",
    Code.PROMISE_REFUSED: "refuse{s} {whom} its vote: the promise lasts {value} ms more",
    Code.RELEASE_APPLIED: "take{s} the release by {whom}",
    Code.RELEASE_REFUSED: "{is} bound by a newer term and refuse{s} the release by {whom}",
    Code.LATE_ACK: "get{s} an answer{of_whom}, too late to count",
    Code.SPLIT_VOTE: "got no majority of the votes",
    Code.CROSSED: "meet{s} another leader, {whom}",
    Code.BATON_LOST: "lost a baton",
    Code.BATON_MERGED: "drop{s} a baton in favour of another",
    Code.SKIPPED: "skip{s} {whom}",
    Code.WINNER_DEAD: "waited in vain for an announcement",
    Code.OBSERVATION_RESTARTED: "observe{s} the row anew",
    Code.ANSWER_LOST: "missed an answer of the store",
    Code.PRUNED: "strike{s} {whom} from the list",
    Code.RETURNED: "find{s} {whom} back",
}
"""What a node does, for every code. {s}, {is} and {has} agree with how many nodes do it: see `agreed`."""


def sentence(fact: Fact) -> str:
    """What happened, for people. Empty for facts that are shown in another way."""
    name = fact.node
    match fact.kind:
        case Kind.EVENT:
            return f"{name} {agreed(saying(fact))}"
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


def saying(fact: Fact, *, term: bool = True) -> str:
    """What an event says, without its node: what, in which term, and why. Its verbs are still to agree."""
    says = SAYS.get(fact.text, fact.text.replace("-", " "))
    whom = {"{whom}": fact.subject or "another", "{of_whom}": f" of {fact.subject}" if fact.subject else ""}
    for mark, text in (*whom.items(), ("{value}", f"{fact.extra:,}")):
        says = says.replace(mark, text)
    says += _term(str(fact.number)) if term else ""
    return f"{says}: {fact.detail}" if fact.detail else says


def agreed(text: str, *, many: bool = False) -> str:
    """One node stands, is and has; many stand, are and have."""
    for mark, one, more in (("{s}", "s", ""), ("{is}", "is", "are"), ("{has}", "has", "have")):
        text = text.replace(mark, more if many else one)
    return text


def _term(term: str) -> str:
    """Terms are small; a lease has its token in that place."""
    if term in ("", "0"):
        return ""
    return f" (term {term})" if len(term) < 10 else f" (token {term})"
