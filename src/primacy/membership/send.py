"""Messages of the machines as calls to other nodes, and their answers as what the machines hear.

Which request stands for which message is said in `messages.py`. A look at a real node of Ghoti is two calls, for its
heartbeat does not say whether it leads. Silence is told to nobody; a refusal is, for it is silence known at once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from primacy.election.inputs import Answered, Paced, Unanswered
from primacy.election.messages import (
    Alive,
    Baton,
    BatonTaken,
    Coordinator,
    Election,
    Handover,
    HeartbeatRequest,
    Message,
    Okay,
    Origin,
    Unable,
    Won,
)
from primacy.membership.ghoti.beliefs import Beliefs
from primacy.membership.http_wire import OPEN, PROBE, Answer, Said, Silent, as_names, as_text, encoded, id_body
from primacy.membership.pace import PATIENCE_S
from primacy.membership.state import State
from primacy.rate_limiter import RateLimiter

WORDS_LIMIT_S = 2.0
PATIENT = ("/heartbeat", "/election", "/ring")
"""What the machines have limits for."""
SAID_FROM = 4
"""A pace that is worth a line in the log: twice as slow is a burst."""
SAY_AGAIN_MS = 60_000
ANNOUNCE_LEAST_S = 1.0
"""For an announcement to arrive: it is repeated, and nobody waits for its answer."""

SET_RIGHT_S = 1.0
"""So often at most real nodes are told for another one that it leads."""


class ListExchange(Protocol):
    """What an answer may be a reason for (`join.py`)."""

    def introduce(self, to: str) -> None: ...

    def looked_at(self, node: str, said: Said) -> None: ...

    def heard_list(self, node: str, said: Said) -> None: ...


class Sending:
    """One node's side of speaking."""

    def __init__(self, state: State, beliefs: Beliefs, joining: ListExchange, lost: Callable[[str], None]) -> None:
        """`lost` is told each node that is found to be down."""
        self.state = state
        self._beliefs = beliefs
        self._joining = joining
        self._lost = lost
        self._under_way: dict[tuple[str, str], int] = {}
        self._set_right_s = -SET_RIGHT_S
        self._said = RateLimiter(SAY_AGAIN_MS)
        self._patient: set[str] = set()
        """Nodes to which a call is under way that is waited for beyond its limit."""

    def begin(self, to: str, message: Message) -> None:
        if not isinstance(message, Election) and self.state.leader:
            self._beliefs.somebody_leads()
        match message:
            case Election(_, number):
                self.call(to, "/election", self._elect(to, number))
            case Coordinator(_, epoch) if self._beliefs.knows(to, epoch):
                self.call(to, "/heartbeat", self._see(to), 1)
            case Coordinator():
                self.call(to, "/coordinator", self._announce(to, message), 1)
            case HeartbeatRequest(_, number):
                self.call(to, "/heartbeat", self._look(to, number))
            case Handover(_, successor):
                self.call(to, "/handover", self._hand_over(to, successor))
            case Baton() | Won():
                self.call(to, "/ring", self._pass(to, message), 4)
            case _:
                raise AssertionError(f"{type(message).__name__} does not travel by HTTP")

    def call(self, to: str, kind: str, work: Coroutine[Any, Any, None], most: int = 3) -> None:
        """Few of a kind to one node at a time: one that hangs must not pile them up."""
        key = (to, kind)
        if self._under_way.get(key, 0) >= most:
            work.close()
            self.state.count("held_back")
            return
        self._under_way[key] = self._under_way.get(key, 0) + 1
        self.state.count("sent")
        self.state.count(f"sent{kind}")

        def over() -> None:
            left = self._under_way.pop(key, 1) - 1
            if left:
                self._under_way[key] = left

        self.state.procedures.spawn(work, kind, over)

    def is_under_way(self, to: str, kind: str) -> bool:
        return (to, kind) in self._under_way

    async def _elect(self, to: str, number: int) -> None:
        found = await self.ask(
            "POST", to, "/election", id_body(self.state.node), self.state.timing.election_ms / 1_000, n=number
        )
        if isinstance(found, Answer) and found.status == 200:
            if not found.said.is_ours and self._beliefs.called_in_vain(to):
                self._joining.introduce(to)
            self.state.hear(Okay(_origin(to, found.said), number))
        elif isinstance(found, Answer) and found.status == 503:
            self.state.hear(Unable(_origin(to, found.said), number))
        elif _is_no(found):
            self.state.tell(Unanswered(to))

    async def _announce(self, to: str, message: Coordinator) -> None:
        limit_s = max(ANNOUNCE_LEAST_S, self.state.timing.answer_ms / 1_000)
        more: dict[str, str | int] = {"epoch": message.epoch, "pruned": as_names(message.pruned)}
        self._beliefs.stop_knowing(to)
        moves = self._beliefs.moves
        found = await self.ask("POST", to, "/coordinator", id_body(self.state.node), limit_s, **more)
        if isinstance(found, Answer) and found.status == 200:
            if not found.said.is_ours and moves == self._beliefs.moves:
                self._beliefs.told(to, message.epoch)
            self.state.tell(Answered(to))

    async def _see(self, to: str) -> None:
        """In place of an announcement: it lives. If it does not say so, it is told again at the next heartbeat."""
        found = await self.ask("GET", to, "/heartbeat", None, self.state.timing.answer_ms / 1_000, n=0)
        if isinstance(found, Answer) and found.status == 200 and not found.said.is_ours:
            self.state.tell(Answered(to))
        else:
            self._beliefs.stop_knowing(to)

    async def _hand_over(self, to: str, successor: str) -> None:
        """Real nodes take the word for an announcement, and the successor among them for its own victory."""
        limit_s = max(ANNOUNCE_LEAST_S, self.state.timing.answer_ms / 1_000)
        await self.ask("POST", to, "/coordinator", id_body(successor), limit_s, handover=1)

    def set_right(self, leader: str) -> None:
        """One that is not ours looks at this node, which does not lead: only followers look, and only at their leader.

        It would go on so for ever, as long as this node lives. A leader of ours tells it at the next heartbeat; a real
        one says that it leads once and never again, so that it is said for it. Whoever looks says no name: all are
        told.
        """
        state = self.state
        now_s = self.state.now_s
        is_real = leader in state.member_list and not state.peer(leader).boot
        if not is_real or now_s < self._set_right_s + SET_RIGHT_S:
            return
        self._set_right_s = now_s
        for other in state.member_list.others:
            if other.node != leader and not state.peer(other.node).boot and other.node not in state.links.dumb_to:
                self.call(other.node, "/handover", self._hand_over(other.node, leader))

    async def _look(self, to: str, number: int) -> None:
        limit_s = self.state.timing.answer_ms / 1_000
        began_s = self.state.now_s
        found = await self.ask("GET", to, "/heartbeat", None, limit_s, n=number)
        if not isinstance(found, Answer) or found.status not in (200, 503):
            if _is_no(found):
                self.state.tell(Unanswered(to))
            return
        able = found.status == 200
        leader: str | None = None
        if found.said.is_ours:
            leader = found.said.text("leader")
            self._joining.looked_at(to, found.said)
        elif able:
            left_s = limit_s - (self.state.now_s - began_s)
            is_sure = to == self.state.leader and self._beliefs.claims(to)
            leader = to if is_sure else await self.claim_of(to, max(0.01, left_s))
        self.state.hear(Alive(_origin(to, found.said), number, leader, found.said.number("epoch"), able))

    async def claim_of(self, to: str, limit_s: float) -> str | None:
        """Whether a real node believes to lead: its id, nobody, or None if it does not say."""
        moves = self._beliefs.moves
        self._beliefs.stop_claiming(to)
        found = await self.ask("POST", to, "/remove", id_body(PROBE), limit_s)
        if not isinstance(found, Answer):
            return None
        if found.status == 200 and moves == self._beliefs.moves:
            self._beliefs.claimed(to)
        return to if found.status == 200 else ""

    async def _pass(self, to: str, message: Baton | Won) -> None:
        baton = isinstance(message, Baton)
        body = {"id": self.state.node, "kind": "baton" if baton else "won"}
        body |= {"starter": message.starter, "round": str(message.round)}
        if isinstance(message, Baton):
            body |= {"best": message.best, "hops": str(message.hops)}
        found = await self.ask("POST", to, "/ring", encoded(body), self.state.timing.answer_ms / 1_000)
        if isinstance(found, Answer) and found.status == 200:
            if baton:
                self.state.hear(BatonTaken(_origin(to, found.said), message.starter, message.round))
        elif _is_no(found):
            self.state.tell(Unanswered(to))

    async def ask(
        self, method: str, to: str, path: str, body: bytes | None, limit_s: float, **more: str | int
    ) -> Answer | Silent:
        """One call to a listed node. What comes over a link that was cut meanwhile is silence."""
        addr = self.state.member_list.addr(to)
        if not addr:
            return Silent(False, "it is not listed any more")
        found = await self._timed(method, to, addr, path, body, limit_s, **more)
        if self.state.closed:
            return Silent(False, "this node ends")
        if to in self.state.links.deaf_to or to in self.state.links.dumb_to:
            self.state.count("cut")
            return Silent(False, "the link is cut")
        return self._learned(to, path, found)

    async def _timed(
        self, method: str, to: str, addr: str, path: str, body: bytes | None, limit_s: float, **more: str | int
    ) -> Answer | Silent:
        """One call, with the limit of the present pace; every answer helps to find the next one."""
        began_s = self.state.now_s
        waits_s = limit_s * self.state.pace.factor
        patient = path in PATIENT and waits_s < PATIENCE_S and to not in self._patient
        if patient:
            self._patient.add(to)
        try:
            header = self.state.header(to, **more)
            found = await self.state.call(method, addr, path, body, header, PATIENCE_S if patient else waits_s)
        finally:
            if patient:
                self._patient.discard(to)
        now_s = self.state.now_s
        answer_s = self.state.timing.answer_ms / 1_000
        if isinstance(found, Answer) and self.state.pace.answered(now_s, to, now_s - began_s, answer_s):
            self._say_pace(now_s)
            self.state.tell(Paced(self.state.pace.factor))
        return found

    def _say_pace(self, now_s: float) -> None:
        """That it slowed down, now and then: a machine that is always too slow for its profile should be known."""
        factor, state = self.state.pace.factor, self.state
        if factor >= SAID_FROM and self._said.passes(now_s * 1_000):
            state.complain(
                f"several nodes answer later than the limit of {state.timing.answer_ms} ms allows for: node "
                f"{state.node} does everything {factor} times more slowly until they answer in time again. If this "
                "stays, give the machines less to do, or choose a slower election.profile"
            )

    def _learned(self, to: str, path: str, found: Answer | Silent) -> Answer | Silent:
        """What an answer tells besides. One of another node than the one that was meant is none."""
        state, peer = self.state, self.state.peer(to)
        if isinstance(found, Silent):
            state.count("unanswered")
            if found.refused and not peer.was_down:
                peer.was_down = True
                self._lost(to)
            return found
        said = found.said
        if said.is_ours and said.node != to:
            state.trouble(
                to,
                f"node {said.node or '?'} answers at {state.member_list.addr(to)}, where node {to} is listed: "
                "it has gone "
                f"(primacy remove {to}), or two nodes advertise one address",
            )
            return Silent(True, peer.trouble)
        if peer.was_down:
            peer.was_down = False
            if not said.is_ours and state.leads:
                self._joining.introduce(to)
        if said.is_ours:
            state.met(said)
            if "unknown" in said:
                self._joining.introduce(to)
            elif "removed" in said:  # the word of it was lost: a leader, which looks at nobody, would go on for ever
                self._joining.heard_list(to, said)
        elif found.status not in (400, 409):
            peer.boot, peer.is_real = 0, True
            if path not in OPEN:  # which is answered whatever the credentials are
                state.trouble(to, "")
        if found.status == 409:
            state.trouble(to, f"node {to} refuses this node: {found.body.decode('utf-8', 'replace')[:300]}")
        elif found.status == 400 and not said.is_ours and path in ("/election", "/coordinator"):
            state.count("refused")
            state.trouble(
                to,
                f"node {to} refuses what this node says: cluster.user and cluster.pass, or the secret, are others "
                "there, so that both may lead. Make them the same in both files, then restart one of the two",
            )
        return found

    async def say(self, to: str, words: list[bytes]) -> None:
        body = encoded({"words": [as_text(word) for word in words]})
        await self.ask("POST", to, "/words", body, WORDS_LIMIT_S)


def _is_no(found: Answer | Silent) -> bool:
    """Known at once not to be of use: refused, or answered with an error."""
    return found.refused if isinstance(found, Silent) else True


def _origin(node: str, said: Said) -> Origin:
    return Origin(node, boot=said.number("boot"), config=said.text("config"))
