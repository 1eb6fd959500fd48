"""What the manager answers: paths, methods, credentials, bodies and status codes as real nodes of Ghoti expect them.

Better than there, and invisible to a real node: an unknown path is 404, a wrong method 405, an empty or unusable id is
refused, and so is an announcement of somebody unknown. Nodes of ours whose strategies differ get 409 and a sentence.
Credentials are checked before anything else is looked at; `/heartbeat` and `/leader` need none, and then say nothing
but their status.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from urllib.parse import quote

from primacy.election.inputs import Received
from primacy.election.messages import (
    Alive,
    Baton,
    Coordinator,
    Election,
    Handover,
    HeartbeatRequest,
    Message,
    Okay,
    Origin,
    Won,
)
from primacy.membership.ghoti.beliefs import Beliefs
from primacy.membership.ghoti.storms import StormControl
from primacy.membership.http_wire import (
    OPEN,
    WORDS_BYTES_MAX,
    Asked,
    Credentials,
    Reply,
    Said,
    address_of,
    encoded,
    is_allowed,
    is_id,
    join_answer,
    object_in,
    texts_in,
)
from primacy.membership.join import Joining
from primacy.membership.members import Entry
from primacy.membership.send import Sending
from primacy.membership.state import State
from primacy.rate_limiter import RateLimiter

METHODS = {
    "/join": "POST",
    "/remove": "POST",
    "/election": "POST",
    "/coordinator": "POST",
    "/heartbeat": "GET",
    "/leader": "GET",
    "/members": "GET",
    "/ring": "POST",
    "/words": "POST",
}
MOVING = ("/election", "/coordinator", "/join")
"""From a real node: it may believe in another leader now, and so may those whom it told."""
BAD = Reply(400)
WORDS_MAX = 64
HOPS_MAX = 10_000
SAY_AGAIN_MS = 60_000
"""So often it is said at most that somebody's credentials are wrong."""


class Handlers:
    """One node's answers."""

    def __init__(
        self,
        state: State,
        credentials: tuple[Credentials, ...],
        beliefs: Beliefs,
        joining: Joining,
        sending: Sending,
        storms: StormControl,
    ) -> None:
        """`credentials`: all that are accepted."""
        self.state = state
        self._credentials = credentials
        self._beliefs = beliefs
        self._joining = joining
        self._sending = sending
        self._storms = storms
        self._said = RateLimiter(SAY_AGAIN_MS)

    async def answer(self, asked: Asked, wall_ms: int) -> Reply | None:
        """None: not at all, for the link is cut."""
        state = self.state
        method = METHODS.get(asked.path)
        if method is None:
            return Reply(404)
        if asked.method != method and (asked.method, method) != ("HEAD", "GET"):
            return Reply(405)
        allowed = is_allowed(asked.authorization, self._credentials)
        if not allowed and asked.path not in OPEN:
            return self._wrong_credentials(asked)
        said = Said(asked.header if allowed else None)
        if said.is_ours and (refusal := self._stranger(said, asked.remote)) is not None:
            return refusal
        sender = said.node if said.is_ours else (texts_in(asked.body) or {}).get("id", "")
        if sender in state.links.deaf_to:
            state.count("cut")
            return None
        state.count("received")
        state.count(f"received{asked.path}")
        if asked.too_long:
            return BAD
        if said.is_ours:
            state.met(said, asked.remote)
        elif asked.path in MOVING:
            self._beliefs.moved()
        reply = await self._of(asked, said, wall_ms)
        if sender in state.links.dumb_to:
            state.count("cut")
            return None
        return reply._replace(said=self._header(said, reply.said)) if said.is_ours else reply._replace(said="")

    def _wrong_credentials(self, asked: Asked) -> Reply:
        """Who it is cannot be believed; that it asks is worth a line, for it may be a node of this very cluster."""
        self.state.count("credentials")
        if self._said.passes(self.state.procedures.now_ms):
            self.state.complain(
                f"somebody at {asked.remote or '?'} asks with other credentials than this node has. If that is a node "
                "of this cluster: make cluster.user and cluster.pass, or the secret, the same in both files, then "
                "restart one of the two"
            )
        return BAD

    def _header(self, said: Said, more: str) -> str:
        state = self.state
        known = state.member_list.entries.get(said.node)
        fields: dict[str, str | int] = {"unknown": 1} if known is None else {"removed": 1} if known.gone else {}
        header = state.header(said.node, **fields)
        return f"{header}&{more}" if more else header

    def _stranger(self, said: Said, remote: str) -> Reply | None:
        """A node of ours that does not belong here, with the sentence that says why."""
        state = self.state
        theirs, ours = said.text("kin"), state.identity.kin
        if theirs == ours:
            if said.node == state.node and said.number("boot") != state.identity.boot:
                state.spoke_beside(said, remote)
            return None if said.node and said.node != state.node else BAD
        names = ("cluster.name", "election.name", "election.strategy", "election.rank")
        differs = [
            f"{name} is {mine} at node {state.node} and {other} at node {said.node}"
            for name, mine, other in zip(names, ours.split("/"), theirs.split("/"), strict=False)
            if mine != other
        ]
        sentence = "; ".join(differs) or "it speaks another version"
        state.count("other_kin")
        if said.node:
            state.trouble(said.node, f"node {said.node} is refused: {sentence}")
        return Reply(409, f"{sentence}: nodes of one cluster need the same".encode(), kind="text/plain; charset=utf-8")

    async def _of(self, asked: Asked, said: Said, wall_ms: int) -> Reply:
        match asked.path:
            case "/heartbeat":
                return await self._heartbeat(said)
            case "/election":
                return await self._election(asked, said)
            case "/coordinator":
                return await self._coordinator(asked, said)
            case "/join":
                return await self._join(asked, said, wall_ms)
            case "/remove":
                return self._remove(asked, said, wall_ms)
            case "/members":
                return self._members()
            case "/ring":
                return await self._ring(asked, said)
            case "/words":
                return self._words(asked, said)
            case _:
                return self._leader()

    # --- the election -------------------------------------------------------------------------------------------------

    async def _heartbeat(self, said: Said) -> Reply:
        state = self.state
        answer = await state.ask_election(
            said.node, Received(HeartbeatRequest(_origin(said.node, said), said.number("n")))
        )
        if not said.is_ours and state.stands_in:
            return Reply(200)
        if not isinstance(answer, Alive):
            return Reply(503)
        leader = answer.leader or ""
        if not said.is_ours and leader not in ("", state.node):
            self._sending.set_right(leader)
        more = _in_header(leader=leader, epoch=answer.epoch)
        return Reply(200 if answer.able and not state.is_outside else 503, said=more)

    async def _election(self, asked: Asked, said: Said) -> Reply:
        """The body of a real node is not read there, so that it may be anything; nobody in particular asks then."""
        state = self.state
        sender = said.node or (texts_in(asked.body) or {}).get("id", "")
        if sender == state.node:
            return BAD
        if state.is_outside:
            return Reply(503)
        sender = sender if is_id(sender) else ""
        answer = await state.ask_election(sender, Received(Election(_origin(sender, said), said.number("n"))))
        stands_in = not said.is_ours and state.stands_in
        return Reply(200) if stands_in or isinstance(answer, Okay) else Reply(503)

    async def _coordinator(self, asked: Asked, said: Said) -> Reply:
        state = self.state
        body = texts_in(asked.body)
        leader = (body or {}).get("id", "")
        if not is_id(leader):
            return BAD
        message: Message
        if "handover" in said:
            message = Handover(_origin(said.node, said), leader)
        elif leader == state.node or (said.is_ours and said.node != leader):
            return BAD
        else:
            message = Coordinator(_origin(leader, said), said.number("epoch"), said.names("pruned"))
        if message.origin.node not in state.member_list:
            if said.is_ours:
                self._joining.meet(said)
            return BAD
        await state.ask_election("", Received(message))
        if said.is_ours and leader == said.node == state.leader:
            self._joining.heard_list(said.node, said)
        return Reply(200)

    async def _ring(self, asked: Asked, said: Said) -> Reply:
        state = self.state
        body = texts_in(asked.body) or {}
        starter, best = body.get("starter", ""), body.get("best", "")
        number, hops = _number(body.get("round", "")), _number(body.get("hops", "0"))
        known = said.node in state.member_list and is_id(starter) and number is not None
        if state.identity.strategy != "ring" or not known or number is None:
            return BAD
        origin = _origin(said.node, said)
        if body.get("kind") == "won":
            state.hear(Won(origin, starter, number))
            return Reply(200)
        if body.get("kind") != "baton" or not is_id(best) or hops is None or hops > HOPS_MAX:
            return BAD
        answer = await state.ask_election(said.node, Received(Baton(origin, starter, number, best, hops)))
        return Reply(200) if answer is not None else Reply(503)

    # --- the list -----------------------------------------------------------------------------------------------------

    async def _join(self, asked: Asked, said: Said, wall_ms: int) -> Reply:
        state = self.state
        body = texts_in(asked.body)
        if body is None or len(body) != 2 or not is_id(body.get("id", "")):
            return BAD
        node = body["id"]
        is_told = said.is_ours and said.node != node
        addr = address_of(body.get("addr", ""), "" if is_told else asked.remote)
        if addr is None:
            return BAD
        if not said.is_ours:
            self._storms.heard()
        if node == state.node:
            self._hear_of_itself(node, addr, said, wall_ms, is_told=is_told)
            return self._joined() if addr == state.identity.addr else BAD
        if state.is_ending or state.is_outside:
            return Reply(503)  # one that is in no cluster cannot take anybody in
        entry = self._entry(node, addr, said, wall_ms, is_told=is_told)
        if not self._joining.may_join(entry, said):
            return BAD
        if not said.is_ours and await self._storms.is_bent(entry):
            await self._storms.heard_again(entry)
            return self._joined()
        known = state.member_list.entries.get(node)
        if known is not None and said.is_ours and not is_told and (refusal := self._unwelcome(known, entry, said)):
            return Reply(409, refusal.encode(), kind="text/plain; charset=utf-8")
        if not is_told and known is not None and not known.gone and known._replace(stamp=entry.stamp) == entry:
            if not said.is_ours:
                await self._storms.heard_again(entry)
            return self._joined()
        if not said.is_ours and known is None:
            await self._storms.over()
        if state.member_list.take(entry):
            state.keep()
            await state.ask_election("", state.members_changed)  # the answer below names whom it then follows
            if not is_told:
                self._joining.tell_on(entry, known)
        return self._joined()

    def _hear_of_itself(self, node: str, addr: str, said: Said, wall_ms: int, *, is_told: bool) -> None:
        """Others have it with a later stamp than it has itself. A leader asks nobody for a list, so it must be told."""
        entry = self._entry(node, addr, said, wall_ms, is_told=is_told)
        if is_told and not self.state.plan.fixed and self.state.member_list.take(entry):
            self.state.keep()

    def _unwelcome(self, known: Entry, entry: Entry, said: Said) -> str:
        """Why a node of ours that is on the list cannot join as it is, or nothing."""
        if known.gone:
            again = f"node {known.node} was removed from the cluster; restart it to join again"
            return again if known.started_ms == entry.started_ms else ""
        if known.addr == entry.addr or not self.state.is_taken(said):
            return ""
        return (
            f"another node runs with the id {known.node}, at {known.addr}: give this one an id of its own "
            "(cluster.node), or stop that one"
        )

    def _entry(self, node: str, addr: str, said: Said, wall_ms: int, *, is_told: bool) -> Entry:
        """As the node says itself, as another of ours has it, or as little as a real node says."""
        state = self.state
        prefix = "of_" if is_told else ""
        priority, _, started = said.text(f"{prefix}rank").partition(".")
        stamp = said.number("stamp") if is_told else state.member_list.next_stamp(node, wall_ms)
        return Entry(
            node, addr, stamp or 1, False, said.text(f"{prefix}data"), _number(priority) or 0, _number(started) or 0
        )

    def _joined(self) -> Reply:
        return Reply(200, join_answer(self.state.leader, self.state.member_list.peers))

    def _remove(self, asked: Asked, said: Said, wall_ms: int) -> Reply:
        """Of the leader only, or told on by a node of ours, with its stamp."""
        state = self.state
        is_told = said.number("stamp") > 0
        if not is_told and not state.leads:
            return BAD
        body = texts_in(asked.body)
        if body is None or "id" not in body:
            return BAD
        node = body["id"]
        if state.plan.fixed:
            return BAD if node in state.member_list else Reply(200)
        if is_told:
            known = state.member_list.entries.get(node)
            addr = known.addr if known is not None else address_of(said.text("of_addr")) or ""
            entry = self._entry(node, addr, said, wall_ms, is_told=True)._replace(gone=True)
            if addr and state.member_list.take(entry):
                state.list_changed()
        elif node != state.node:
            self._joining.remove(node, wall_ms)
        return Reply(200)

    def _members(self) -> Reply:
        state = self.state
        found = {"leader": state.leader, "members": state.member_list.rows, "words": state.words}
        return Reply(200, encoded(found))

    def _words(self, asked: Asked, said: Said) -> Reply:
        found = (object_in(asked.body) or {}).get("words")
        if not isinstance(found, list) or said.node not in self.state.member_list:
            return BAD
        words = []
        for word in found[:WORDS_MAX]:
            try:
                words.append(b64decode(word, validate=True))
            except (binascii.Error, ValueError, TypeError):
                return BAD
        assert len(asked.body) <= WORDS_BYTES_MAX
        self.state.told(said.node, words)
        return Reply(200)

    def _leader(self) -> Reply:
        state = self.state
        leads = state.leads
        text = "leader" if leads else f"not leader: {state.leader}"
        return Reply(200 if leads else 503, text.encode(), kind="text/plain; charset=utf-8")


def _in_header(**more: str | int) -> str:
    """For the header of an answer; an empty text is said, too."""
    return "&".join(f"{key}={quote(str(value), safe='')}" for key, value in more.items())


def _origin(node: str, said: Said) -> Origin:
    return Origin(node, boot=said.number("boot"), config=said.text("config"))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 16 else None
