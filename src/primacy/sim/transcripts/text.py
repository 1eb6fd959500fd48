"""Tells what happens in a world in sentences that a person can check against the rules.

Facts become "b follows a in term 2", messages become "a to b, c: would you vote for me in term 1?". Steady traffic
(heartbeats and their acks) is not told, a question that is repeated is told once per command, and nothing random stands
in a sentence: a token is the name of its base and a count ("A+2"), a time is in milliseconds since the last command.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from primacy.election import messages as m
from primacy.election.events import Code
from primacy.sim.checkers import Violation
from primacy.sim.facts import Fact, Kind
from primacy.sim.sentences import agreed, saying

Told = tuple[str, object]
"""A sentence, and the key under which it is told once per command; None to tell it always."""


@dataclass(slots=True)
class _Line:
    """One sentence in the making: equal ones of one millisecond are drawn together."""

    ms: int
    who: list[str]
    to: list[str]
    lost: list[str]
    text: str


class Tokens:
    """Names for tokens that do not depend on the wall clock.

    raft: its base (A, B, ... in the order of appearance) and the term, "A+2". lease: a count, "#2". Others have none.
    """

    def __init__(self) -> None:
        self.strategy = "raft"
        self._bases: list[int] = []
        self._tokens: list[int] = []

    def base(self, base: int) -> str:
        if base not in self._bases:
            self._bases.append(base)
        return chr(ord("A") + self._bases.index(base))

    def name(self, token: int) -> str:
        if self.strategy == "lease":
            if token not in self._tokens:
                self._tokens.append(token)
            return f"#{self._tokens.index(token) + 1}"
        below = [base for base in self._bases if base <= token]
        return f"{self.base(max(below))}+{token - max(below)}" if below else str(token)

    def with_work(self, token: int) -> str:
        """To be set behind "work"."""
        return f": token {self.name(token)}" if self.strategy in ("raft", "lease") else ""


class TranscriptText:
    """Listens to a world and keeps the lines since the last `take`."""

    def __init__(self) -> None:
        self.tokens = Tokens()
        self.silent = False
        self._since_ms = 0.0
        self._lines: list[_Line] = []
        self._said: set[object] = set()  # only asked for membership, never walked

    def prepare(self, strategy: str, base: int) -> None:
        self.tokens.strategy = strategy
        self.tokens.base(base)

    def term(self, term: int) -> str:
        """As the table shows it; the lease's is its token."""
        return self.tokens.name(term) if self.tokens.strategy == "lease" and term else str(term)

    def begin(self, now_ms: float) -> None:
        """A new command: times count from here, and what was said may be said again."""
        self._since_ms = now_ms
        self._said.clear()

    def take(self) -> list[str]:
        """The sentences since the last call."""
        lines, self._lines = self._lines, []
        return [f"{line.ms:>6}  {_sentence(line)}" for line in lines]

    # --- what the world tells -----------------------------------------------------------------------------------------

    def fact(self, fact: Fact) -> None:
        text = self._of_fact(fact)
        if text and not self.silent:
            self._add(fact.at_ms, fact.node, "", text, lost=False)

    def message(self, at_ms: float, sender: str, to: str, message: m.Message, delay_ms: float) -> None:
        if self.silent or isinstance(message, SILENT):
            return
        text, key = self._of_message(message)
        if key is not None:
            if (sender, to, key) in self._said:
                return
            self._said.add((sender, to, key))
        self._add(at_ms, sender, to, text, lost=delay_ms < 0)

    def _of_message(self, message: m.Message) -> Told:
        if isinstance(message, m.FirstBallot):
            return f"write this first ballot, token base {self.tokens.base(message.base)}", ("first", message.base)
        tell = SAID.get(type(message))
        return tell(message) if tell is not None else FIXED[type(message)]

    def violation(self, violation: Violation) -> None:
        self._add(violation.at_ms, f"VIOLATION of {violation.rule}:", "", violation.sentence, lost=False)

    def _add(self, at_ms: float, who: str, to: str, text: str, *, lost: bool) -> None:
        line = self._line(round(at_ms - self._since_ms), who, to, text)
        for name, names in ((who, line.who), (to, line.to), (to if lost else "", line.lost)):
            if name and name not in names:
                names.append(name)

    def _line(self, ms: int, who: str, to: str, text: str) -> _Line:
        """The line of this millisecond that says the same, or a new one."""
        for line in reversed(self._lines):
            if line.ms != ms:
                break
            if line.text == text and _joins(line, who, to):
                return line
        self._lines.append(_Line(ms, [], [], [], text))
        return self._lines[-1]

    # --- facts --------------------------------------------------------------------------------------------------------

    def _of_fact(self, fact: Fact) -> str:
        match fact.kind:
            case Kind.WORK_STARTED:
                again = f", run {fact.extra}" if fact.extra > 1 else ""
                return f"'s work starts{self.tokens.with_work(fact.number)}{again}"
            case Kind.WORK_ENDED:
                return f"'s work is over{self.tokens.with_work(fact.number)}"
            case Kind.RELEASE_SENT:
                told = f"to all: all work up to term {fact.number} is gone"
                return f"'s guard {told if self.tokens.strategy == 'raft' else 'marks the row released'}"
            case Kind.UP:
                return "start{s}" if fact.number == 1 else "start{s} again"
            case Kind.BAD_ORDER:
                return f"lets a {fact.text} of term {fact.number} go before it is durable"
            case Kind.EVENT:
                return self._of_event(fact)
        return ""

    def _of_event(self, fact: Fact) -> str:
        code = Code(fact.text)
        if code in UNTOLD:
            return ""
        if code is Code.FIRST_BALLOT:
            return f"write{{s}} a first ballot, token base {self.tokens.base(fact.extra)}"
        if code is Code.ELECTED and self.tokens.strategy == "raft":
            return f"lead{{s}} term {fact.number}, token {self.tokens.name(fact.extra)}"
        if code is Code.LEASE_TAKEN:
            return f"take{{s}} the lease: token {self.tokens.name(fact.extra or fact.number)}"
        return saying(fact, term=self.tokens.strategy == "raft")


def _joins(line: _Line, who: str, to: str) -> bool:
    """Several do the same, one says the same to several, or several say the same to one."""
    if not to or not line.to:
        return not to and not line.to and who not in line.who
    return line.who == [who] or (line.to == [to] and not line.lost)


def _sentence(line: _Line) -> str:
    who = ", ".join(line.who)
    text = agreed(line.text, many=len(line.who) > 1)
    if line.to:
        lost = f" (lost on the way to {', '.join(line.lost)})" if line.lost else ""
        return f"{who} to {', '.join(line.to)}{lost}: {text}"
    return f"{who}{text}" if text.startswith("'") else f"{who} {text}"


def _vote_request(asked: m.VoteRequest) -> Told:
    proof = f" (term {asked.evidence.term} is released)" if asked.evidence is not None else ""
    if asked.pre:
        return f"would you vote for me in term {asked.term}?{proof}", ("pre", asked.term)
    return f"vote for me in term {asked.term}{proof}", None


def _vote_reply(reply: m.VoteReply) -> Told:
    if not reply.granted:
        when = f", ask again in {reply.retry_ms} ms" if reply.retry_ms else f", I am at term {reply.term}"
        return f"no{when}", ("no", reply.pre, reply.term)
    if reply.pre:
        return "yes, I would", ("yes", reply.asked)
    if reply.age_ms < 0:
        return "yes; nothing binds me", None
    return f"yes; the newest I know of is term {reply.age_term}, {reply.age_ms} ms ago", None


def _report(report: m.Report) -> Told:
    under = f"under configuration {report.origin.config}"
    more = "; I still listen" if report.listens else ""
    more += f"; I heard {', '.join(report.strangers)}" if report.strangers else ""
    if not report.memory:
        return f"no memory, {under}{more}", f"report-blank{more}"
    unused = "" if report.used else ", never used"
    return f"I remember term {report.term}, {under}{unused}{more}", ("report", report.term, under, report.used, more)


UNTOLD = (Code.STARTED, Code.PROMISE_REFUSED)
"""Events that another line tells: the start of the agent, and the refusal itself."""

SILENT = (m.Heartbeat, m.Ack, m.Release, m.HeartbeatRequest, m.Alive, m.BatonTaken)
"""Steady traffic; and releases, which the guard's fact tells."""

FIXED: dict[type, Told] = {
    m.Query: ("what do you remember, and under which configuration?", "query"),
    m.FirstBallotTaken: ("it is written", "written"),
    m.Stale: ("another start of you was heard, as late as this one or later", "stale"),
    m.Election: ("election!", None),
    m.Okay: ("I am here and call my own", None),
    m.Unable: ("I am here but do not stand", None),
    m.Coordinator: ("I lead", "coordinator"),
    m.Won: ("the baton came round: you win", None),
    m.FailsafeHeartbeat: ("the store is away: may I go on?", "failsafe"),
    m.FailsafeAck: ("go on", "failsafe-ack"),
}
"""Messages that always say the same."""


def _members_id(origin: m.Origin) -> str:
    return ".".join(map(str, origin.members))


SAID: dict[type, Callable[[Any], Told]] = {
    m.VoteRequest: _vote_request,
    m.VoteReply: _vote_reply,
    m.Report: _report,
    m.Ahead: lambda said: (f"I am already at term {said.term}", ("ahead", said.term)),
    m.MembersTold: lambda said: (f"the members are {said.register.id}", ("members", said.register.id)),
    m.MembersTaken: lambda said: (f"I have the members {_members_id(said.origin)}", ("taken", said.origin.members)),
    m.Admission: lambda said: (f"you are admitted, with the members {said.register.id}", ("admitted", said.echo)),
    m.Handover: lambda said: (f"{said.successor} shall lead", None),
    m.Baton: lambda said: (f"baton of {said.starter}, highest so far {said.best}", None),
}
"""Messages whose sentence depends on what is in them."""
