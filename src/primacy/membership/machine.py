"""The machine of a list that grows by joining, and of the conversations between those who are on it. Pure.

    Input ──► step(now_ms, given) ──► [Effect, ...] ──► shell (`manager.py`) or the simulator
                deadline_ms: when it next wants to be woken

A message of the election is a request to another node, or the answer to one; which is which stands in `messages.py`.
What must be answered at once is: a request is told to the election, and what the election sends back to the one who
asked, in that very step, is the answer. A call that is refused becomes `Unanswered`, one that is answered `Answered`,
or the message that the answer means; silence becomes nothing at all, as the elections have limits of their own.

Real nodes of Ghoti are met on the same paths. They say less, so they are asked more: a look at one is two calls, of
which the second (`PROBE`) tells whether it leads. What our own nodes add is in the header (`http_wire.py`).

The list (`members.py`) grows by `/join` and shrinks by `/remove`; our nodes compare digests of it with every exchange
and fetch it (`GET /members`) when they differ. `http_handlers.py` answers requests, `join.py` joins, fetches and tells
on, `send.py` speaks, `http_gossip.py` hears of others where a real node leads; `ghoti/` has the rest that real nodes
need. They share what they know (`state.py`), and each is handed what it uses of the others. What takes several steps is
a procedure (`procedures.py`).
"""

from __future__ import annotations

from typing import assert_never

from primacy.election.inputs import DeadlinePassed
from primacy.election.messages import Message
from primacy.membership.ghoti.beliefs import Beliefs
from primacy.membership.ghoti.claims import ClaimWatch
from primacy.membership.ghoti.storms import StormControl
from primacy.membership.http_gossip import Gossip
from primacy.membership.http_handlers import Handlers
from primacy.membership.http_wire import Asked, Credentials
from primacy.membership.join import Joining
from primacy.membership.procedures import Procedure, Timer
from primacy.membership.send import Sending
from primacy.membership.state import Identity, JoinPlan, State
from primacy.membership.vocabulary import (
    Abandoned,
    Begin,
    CallEnded,
    Close,
    Done,
    Effect,
    Ending,
    Fail,
    Input,
    JoinAt,
    LeaderIs,
    Outgoing,
    Remove,
    Requested,
    Respond,
    Settle,
    Told,
    Word,
)
from primacy.settings.timing import RankTiming
from primacy.transport import Trouble
from primacy.transport.link_cuts import LinkCuts

WORDS_S = 0.02
"""What is told within a moment goes together."""
WORDS_EACH_S = 0.05
"""For each call that carried words, before the next ones leave: news of many nodes must not crowd out the election that
they are about. Among three nodes nobody notices; among twenty what happened is known a second later."""
ANSWER = "answer"
UNTOLD = ("/heartbeat", "join", ANSWER)
"""Procedures that a node which ends does not wait for: they would tell nobody anything."""


class MembershipMachine:
    """One node's list, and its conversations."""

    def __init__(
        self,
        identity: Identity,
        timing: RankTiming,
        plan: JoinPlan,
        credentials: tuple[Credentials, ...],
        wall_ms: int,
        links: LinkCuts,
    ) -> None:
        state = self.state = State(identity, timing, plan, links, wall_ms)
        self.storms = StormControl(state, lambda leader: self.sending.set_right(leader))  # noqa: PLW0108  made below
        self.joining = Joining(state, self.storms.at_once)
        self.beliefs = Beliefs(state)
        self.sending = Sending(state, self.beliefs, self.joining, self.storms.lost)
        self.handlers = Handlers(state, credentials, self.beliefs, self.joining, self.sending, self.storms)
        self.gossip = Gossip(state, self.sending, self.joining.fetch)
        self.claim_watch = ClaimWatch(state, self.sending, self.joining.introduce)
        self._answering: dict[int, Procedure] = {}
        self._flush: Timer | None = None
        self._words_from_s = 0.0
        """No words leave before this moment."""

    @property
    def deadline_ms(self) -> int | None:
        return self.state.procedures.deadline_ms

    def troubles(self, now_ms: int) -> list[Trouble]:
        now_s = now_ms / 1_000
        duplicate_nodes = self.state.duplicate_nodes(now_s)
        return [*self.joining.troubles, *duplicate_nodes, *self.claim_watch.troubles, *self.state.troubles(now_s)]

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        state, procedures = self.state, self.state.procedures
        procedures.now_ms = now_ms
        match given:
            case DeadlinePassed():
                procedures.pass_deadlines()
            case Requested(number, wall_ms, asked):
                self._request(number, wall_ms, asked)
            case CallEnded(number, found):
                state.answered(number, found)
            case Told(number, answer):
                state.answered(number, answer)
            case Outgoing(to, message):
                self._send(to, message)
            case LeaderIs(leader, leads):
                state.leader, state.leads = leader, leads
            case Word():
                self._word(given)
            case Abandoned(number):
                if number in self._answering:
                    procedures.cancel(self._answering[number])
            case Begin(number):
                procedures.spawn(self._begin(number), "join")
            case JoinAt(number, addr):
                procedures.spawn(self._join(number, addr))
            case Remove(node, wall_ms):
                self.joining.remove(node, wall_ms)
            case Ending():
                state.is_ending = True
            case Settle(number):
                self._settle(number)
            case Close():
                self._close()
            case _:
                assert_never(given)
        procedures.run()
        effects = state.effects.copy()
        state.effects.clear()
        return effects

    # --- beginning and end --------------------------------------------------------------------------------------------

    async def _begin(self, number: int) -> None:
        """It joins first: what is announced meanwhile is heard, for this node listens."""
        why = await self.joining.start()
        if not why:
            self.gossip.start()
            self.claim_watch.start()
        self.state.effects.append(Done(number, why))

    async def _join(self, number: int, addr: str) -> None:
        why = await self.joining.join_at(addr)
        self.state.effects.append(Done(number, why))

    def _settle(self, number: int) -> None:
        """The next leader is told to stand, and lists of real nodes that are bent are put right."""
        self.state.is_ending = True
        if self._flush is not None:
            self._flush.cancel()
            self._flush_words(last=True)
        procedures = self.state.procedures
        telling = [each for each in procedures.under_way if each.name not in UNTOLD]
        procedures.spawn(self._settled(number, telling), ANSWER)

    async def _settled(self, number: int, telling: list[Procedure]) -> None:
        for each in telling:
            await self.state.procedures.wait(each.ended)
        self.state.effects.append(Done(number))

    def _close(self) -> None:
        """Requests are answered as long as they come."""
        self.state.close()
        self.gossip.close()
        self.claim_watch.close()
        if self._flush is not None:
            self._flush.cancel()
        for each in self.state.procedures.under_way:
            if each.name != ANSWER:
                self.state.procedures.cancel(each)

    # --- requests and messages ----------------------------------------------------------------------------------------

    def _request(self, number: int, wall_ms: int, asked: Asked) -> None:
        def over() -> None:
            del self._answering[number]

        self._answering[number] = self.state.procedures.spawn(self._answer(number, wall_ms, asked), ANSWER, over)

    async def _answer(self, number: int, wall_ms: int, asked: Asked) -> None:
        try:
            reply = await self.handlers.answer(asked, wall_ms)
        except Exception as error:  # noqa: BLE001  who asked must not wait for ever because of a bug of ours
            self.state.effects.append(Fail(error, number))
        else:
            self.state.effects.append(Respond(number, reply))

    def _send(self, to: str, message: Message) -> None:
        state = self.state
        if state.closed or to not in state.member_list:
            state.count("unsent")
        elif to in state.links.dumb_to:
            state.count("cut")
        else:
            self.sending.begin(to, message)

    # --- words --------------------------------------------------------------------------------------------------------

    def boot_of(self, node: str) -> int:
        """The start of a listed node that alone would hear a word; 0 if nobody can."""
        return self.state.peer(node).boot if node in self.state.member_list else 0

    def _word(self, given: Word) -> None:
        if given.later:
            self.state.own_word = given.word
        boot = self.boot_of(given.to)
        if not boot or given.only not in (0, boot):
            return
        peer = self.state.peer(given.to)
        if given.later:
            peer.summary = given.word
        else:
            peer.words.append(given.word)
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flush is None and not self.state.closed:
            span_s = max(WORDS_S, self._words_from_s - self.state.now_s)
            self._flush = self.state.procedures.later(span_s, self._flush_words)

    def _flush_words(self, *, last: bool = False) -> None:
        """To each node one call at a time; what it is to be told meanwhile goes with the next, unless there is none."""
        state = self.state
        self._flush = None
        ready = [name for name, peer in state.peers.items() if peer.words and peer.boot and name in state.member_list]
        told = 0
        for name in ready:
            if name in state.links.dumb_to or (self.sending.is_under_way(name, "/words") and not last):
                continue
            words = state.peers[name].words
            taken = [words.popleft() for _ in range(len(words))]
            self.sending.call(name, "/words", self.sending.say(name, taken), 2)
            told += 1
        self._words_from_s = state.now_s + told * WORDS_EACH_S * state.pace.factor
        if told < len(ready) and not last:
            self._flush_soon()
