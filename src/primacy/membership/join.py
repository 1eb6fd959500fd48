"""How a node comes into a cluster and how the list spreads: joining, telling on, fetching, removing, remembering.

A join is told on once, by whoever took the node in, and never again for a node that is known: real nodes pass every
join on, and melt. Our nodes compare digests of the list with their leader's at every exchange, fetch the list when they
differ (and every eighth look anyway, Hecaton's refresh), and tell the leader what it does not know. So a word that got
lost is repeated within a heartbeat or two, and two clusters of which one learned of the other become one.

Where real nodes echo joins in a storm: `ghoti/storms.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import Any

from primacy.election.messages import Alive, Origin
from primacy.membership.http_wire import (
    Answer,
    Said,
    Silent,
    address_of,
    dialled,
    id_body,
    join_body,
    object_in,
    read_join_answer,
)
from primacy.membership.members import WITHOUT_STAMP, Entry
from primacy.membership.procedures import Gate
from primacy.membership.state import State
from primacy.rate_limiter import RateLimiter
from primacy.transport import Trouble

JOIN_S = 5.0
"""For one answer to a join."""
ASK_S = 2.0
"""A node that begins a cluster, and remembers one, lets that one answer before it could call itself its leader."""
AGAIN_FIRST_S = 0.25
AGAIN_MAX_S = 5.0
SAY_AGAIN_MS = 60_000
"""Before a reason for not being taken in is said again, after another one."""
REASONS_MAX = 16
"""Reasons that are remembered for that: a file names few nodes to join."""
REFRESH_LOOKS = 8
FETCH_S = 2.0
TELL_S = 5.0
TELL_AGAIN_S = (0.1, 0.4, 1.0, 3.0, 10.0)
"""Between tries to tell a real node that does not listen yet."""
TELLS_MAX = 16
"""Nodes that are told on at one time."""
PUSHED_MAX = 32
"""Entries that the leader is told of after one fetch."""


class Joining:
    """One node's place in the list, and the list's way to others."""

    def __init__(self, state: State, told_real: Callable[[], None]) -> None:
        """`told_real` is called when real nodes were told of this node: they will pass it on and on."""
        self.state = state
        self.plan = state.plan
        self._told_real = told_real
        self._met_at: set[str] = set()
        """Addresses to join where this node was taken in."""
        self._random = Random(state.plan.seed)
        self._sentence = ""
        self._looks = 0
        self._busy: set[str] = set()
        self._telling = Gate(state.procedures, TELLS_MAX)
        self._lacked: tuple[str, frozenset[Entry]] = ("", frozenset())
        """What the node whose list was fetched last did not know."""

    @property
    def troubles(self) -> list[Trouble]:
        state = self.state
        found = [Trouble(state.node, self._sentence)] if self._sentence else []
        if state.member_list.own.gone:
            sentence = f"node {state.node} was removed from the cluster; restart it to join again, or end it"
            found.append(Trouble(state.node, sentence))
        return found

    # --- joining ------------------------------------------------------------------------------------------------------

    async def start(self) -> str:
        """With `retry` in the background. Without, says why if nobody takes this node in."""
        procedures = self.state.procedures
        if self.plan.fixed:
            return ""
        if not self.plan.join:
            greeting = procedures.spawn(self._greet(), "join")
            await procedures.wait(greeting.ended, ASK_S)  # they may follow one that it does not know
        elif self.plan.retry:
            procedures.spawn(self._keep_trying(self.plan.join), "join")
        elif not await self._try(self.plan.join):
            return f"{self._sentence}; cluster.manager.join_retry is off, so this node ends"
        return ""

    async def _greet(self) -> None:
        """One that begins a cluster, and remembers others, says once where it is now.

        To nodes of ours only: real ones that live remember it, and would pass the word on and on.
        """
        others = self.state.member_list.others
        names = await self.state.procedures.every(*(self.state.ours_at(entry.addr, ASK_S / 2) for entry in others))
        for entry, name in zip(others, names, strict=True):
            if name == entry.node and not await self.join_at(entry.addr):
                return

    async def _keep_trying(self, targets: tuple[str, ...]) -> None:
        """Until each of those that the file names has been met: they may be of two clusters that are to be one."""
        wait_s = AGAIN_FIRST_S
        said = RateLimiter(SAY_AGAIN_MS, REASONS_MAX)
        while not self.state.closed:
            await self._try(targets if self._met_at else self._with_remembered(targets))
            if all(self._is_met(addr) for addr in targets):
                return
            pause_s = wait_s * (0.75 + self._random.random() / 2)
            if self._sentence:
                self._say_why(said)
                self._sentence += f"; next try in {pause_s:.1f} s"
            await self.state.procedures.pause(pause_s)
            wait_s = min(AGAIN_MAX_S, wait_s * 2)

    def _say_why(self, said: RateLimiter) -> None:
        """At first, and when the reason is another; reasons that take turns are not a line at each try."""
        if self._sentence != said.newest and said.passes(self.state.procedures.now_ms, self._sentence):
            self.state.complain(f"{self._sentence}; it is tried again until one answers")

    def _with_remembered(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Whoever is listed knows the cluster as well as the node that the file names."""
        return tuple(dict.fromkeys((*targets, *(entry.addr for entry in self.state.member_list.others))))

    def _is_met(self, addr: str) -> bool:
        """Taken in there in this start, or listed where it was taken in."""
        listed = {entry.addr for entry in self.state.member_list.others} if self._met_at else set()
        return addr in self._met_at or addr in listed or addr == self.state.identity.addr

    async def _try(self, targets: Iterable[str]) -> bool:
        """Asks one after the other, as far as they are not known to be of the same cluster."""
        whys = []
        for addr in targets:
            if self._is_met(addr):
                continue
            if why := await self.join_at(addr):
                whys.append(f"{addr} {why}")
            else:
                self._met_at.add(addr)
        self._sentence = (
            f"no cluster was joined yet: {'; '.join(whys) or 'no other node is named'}" if self.state.is_outside else ""
        )
        return bool(self._met_at)

    async def join_at(self, addr: str) -> str:
        """Empty if this node was taken in there; else why not."""
        state = self.state
        body = join_body(state.node, state.identity.addr)
        found = await state.call("POST", addr, "/join", body, state.header(), JOIN_S)
        if not isinstance(found, Answer):
            return f"cannot be reached ({found.why})"
        if found.status == 400:
            return (
                "refuses this node: cluster.user and cluster.pass, or the secret, are others there, or its id is taken"
            )
        if found.status == 409:
            return f"refuses this node: {found.body.decode('utf-8', 'replace')[:300]}"
        answer = read_join_answer(found.body) if found.status == 200 else None
        if answer is None:
            busy = found.status == 503
            alone = "is in no cluster itself yet (one node begins it, without cluster.manager.join), or ends"
            return alone if busy else f"answers {found.status}, and no list"
        listed = dialled(answer.peers, addr)
        node = found.said.node or next((name for name, good in listed.items() if good == addr), "")
        await self._take_over(listed, is_ours=found.said.is_ours)
        self.state.is_outside = False
        state.list_changed()
        if found.said.is_ours and node:
            await self.fetch(node)
        if not found.said.is_ours or sum(not entry.started_ms for entry in state.member_list.others) > 1:
            self._told_real()  # ours say when they started: there are two real ones, which are told by now
        self._tell_who_leads(node, answer.leader)
        return ""

    async def _take_over(self, listed: Mapping[str, str], *, is_ours: bool) -> None:
        """The list of the node that was joined, as far as it is news. One of ours may not know yet that somebody was
        removed; its stamps, which are fetched, tell who is right."""
        state, others = self.state, []
        for name, addr in listed.items():
            if name == state.node or name in (state.member_list.entries if is_ours else state.member_list):
                continue
            owner = await self._owner(name, addr, listed)
            if owner == name:
                state.member_list.take(Entry(name, addr, state.member_list.next_stamp(name, WITHOUT_STAMP)))
            elif owner != state.node:
                others.append(owner)
        for owner in dict.fromkeys(others):
            await self.fetch(owner)

    async def _owner(self, name: str, addr: str, listed: Mapping[str, str]) -> str:
        """Who is at this address: another one of ours may have given its own out for a moment (`ghoti/storms.py`), and
        knows the true one. If it was this node, before a crash, and it remembers nothing, nobody does."""
        state = self.state
        if addr == state.identity.addr:
            state.complain(
                f"node {name} is looked for at {addr}, where node {state.node} is, and where it is itself is not "
                f"known here: restart node {name}, so that it joins again; or {name} was this node's id before"
            )
            return state.node
        is_shared = list(listed.values()).count(addr) > 1
        return (await self.state.ours_at(addr, ASK_S) if is_shared else "") or name

    def _tell_who_leads(self, node: str, leader: str) -> None:
        """The answer to a join names the leader, which a look at the node would tell as well, later."""
        who = node if node in self.state.member_list else leader
        if who in self.state.member_list and who != self.state.node:
            self.state.hear(Alive(Origin(who), 0, leader))

    def introduce(self, to: str) -> None:
        """A node does not know this one any more, and perhaps nobody: it is told of all that it lacks."""
        if not self.plan.fixed and not self.state.member_list.own.gone:
            self._once(f"introduce {to}", self._introduce(to))

    async def _introduce(self, to: str) -> None:
        state = self.state
        addr = state.member_list.addr(to)
        body = join_body(state.node, state.identity.addr)
        if addr and to not in state.links.dumb_to:
            found = await state.call("POST", addr, "/join", body, state.header(to), JOIN_S)
            if isinstance(found, Answer) and not found.said.is_ours:
                await self._tell_lacking(to, found)
                self._told_real()

    async def _tell_lacking(self, to: str, found: Answer) -> None:
        """One that was restarted without a node to join has forgotten the others, too. It never asks for them."""
        answer = read_join_answer(found.body) if found.status == 200 else None
        if answer is not None:
            listed = {to, *answer.peers}
            lacking = [entry for entry in self.state.member_list.others if entry.node not in listed]
            for entry in lacking[:PUSHED_MAX]:
                await self._tell(to, entry)

    def meet(self, said: Said) -> None:
        """A node of ours that is not listed leads somewhere: two clusters met."""
        addr = address_of(said.text("addr"))
        known = self.state.member_list.entries.get(said.node)
        if addr is None or self.plan.fixed or (known is not None and known.gone):
            return
        self._once(f"meet {said.node}", self._meet(said.node, addr))

    async def _meet(self, node: str, addr: str) -> None:
        state = self.state
        if state.member_list.take(Entry(node, addr, state.member_list.next_stamp(node, WITHOUT_STAMP))):
            state.list_changed()
        await self.fetch(node)

    # --- the list's way -----------------------------------------------------------------------------------------------

    def may_join(self, entry: Entry, said: Said) -> bool:
        """Not into a fixed list; and the ring's baton is not for real nodes of Ghoti."""
        state = self.state
        if self.plan.fixed:
            return state.member_list.addr(entry.node) == entry.addr
        if state.identity.strategy == "ring" and not said.is_ours:
            state.complain(f"node {entry.node} cannot join: it does not know the ring, and election.strategy is ring")
            return False
        return True

    def tell_on(self, entry: Entry, known: Entry | None) -> None:
        """To all others, once. Real nodes read id and address only, and need not hear what they know."""
        is_news = known is None or known.gone or known.addr != entry.addr
        for other in self.state.member_list.others:
            if other.node != entry.node and (is_news or self.state.peer(other.node).boot):
                self.state.procedures.spawn(self._tell_until_heard(other.node, entry))

    async def _tell_until_heard(self, to: str, entry: Entry) -> None:
        """A real node joins before it listens, and never asks: what it misses in between it would never know."""
        for pause_s in TELL_AGAIN_S:
            if not await self._tell(to, entry) or self.state.peer(to).boot:
                return
            await self.state.procedures.pause(pause_s)
            if self.state.member_list.entries.get(entry.node) != entry:
                return

    def remove(self, node: str, wall_ms: int) -> None:
        """The leader takes a node off the list, and tells those of ours; a real node cannot be told."""
        state = self.state
        known = state.member_list.entries.get(node)
        if known is None or known.gone:
            return
        entry = known._replace(gone=True, stamp=state.member_list.next_stamp(node, wall_ms))
        targets = [other.node for other in state.member_list.others if state.peer(other.node).boot]
        addr = known.addr
        state.member_list.take(entry)
        state.list_changed()
        state.procedures.spawn(self._tell_all(targets, entry, addr))

    async def _tell_all(self, targets: list[str], entry: Entry, addr: str) -> None:
        """At once; the node that it is about, too, at the address that is not listed any more. A word that is lost is
        repeated when lists are compared."""
        await self.state.procedures.every(*(self._tell(to, entry, addr if to == entry.node else "") for to in targets))

    async def _tell(self, to: str, entry: Entry, addr: str = "") -> bool:
        """One entry to one node, as Ghoti says it, with the rest of it in the header. True: nobody listens there."""
        state = self.state
        addr = addr or state.member_list.addr(to)
        if not addr or to in state.links.dumb_to:
            return False
        more: dict[str, str | int] = {
            "stamp": entry.stamp,
            "of_data": entry.data,
            "of_addr": entry.addr,
            "of_rank": f"{entry.priority}.{entry.started_ms}",
        }
        path, body = ("/remove", id_body(entry.node)) if entry.gone else ("/join", join_body(entry.node, entry.addr))
        async with self._telling:
            state.count(f"sent{path}")
            found = await state.call("POST", addr, path, body, state.header(to, **more), TELL_S)
        return isinstance(found, Silent) and found.refused

    def looked_at(self, node: str, said: Said) -> None:
        """A look was answered by a node of ours."""
        self._looks += 1
        if self._looks % REFRESH_LOOKS == 0:
            self._fetch_soon(node)
        else:
            self.heard_list(node, said)

    def heard_list(self, node: str, said: Said) -> None:
        if said.text("list") not in ("", self.state.member_list.digest):
            self._fetch_soon(node)

    def _fetch_soon(self, node: str) -> None:
        if not self.state.closed:
            self._once("fetch", self.fetch(node, at_once=False))

    async def fetch(self, node: str, *, at_once: bool = True) -> None:
        """The list of another node, what all said of themselves, and back to it what it does not know.

        Not `at_once`: what it did not know at the last look either. The word of a join is on its way to it from whoever
        took that node in; if all who have heard it told it too, twenty joins would be a thousand words.
        """
        state = self.state
        addr = state.member_list.addr(node)
        if not addr or node in state.links.dumb_to:
            return
        found = await state.call("GET", addr, "/members", None, state.header(node), FETCH_S)
        if not isinstance(found, Answer) or found.status != 200 or node in state.links.deaf_to:
            return
        state.count("fetched")
        if found.said.is_ours and found.said.node == node:
            state.met(found.said)
        said = object_in(found.body) or {}
        rows, words = said.get("members"), said.get("words")
        if isinstance(words, dict):
            self._take_words(words, node)
        if self.plan.fixed or not isinstance(rows, list):
            return
        if state.member_list.take_all(rows):
            state.list_changed()
        newer = state.member_list.newer_than(rows)
        lacked, self._lacked = self._lacked, (node, frozenset(newer))
        for entry in newer[:PUSHED_MAX]:
            if at_once or (lacked[0] == node and entry in lacked[1]):
                await self._tell(node, entry)

    def _take_words(self, words: dict[str, Any], via: str) -> None:
        for name, word in words.items():
            if name in (self.state.node, via) or not isinstance(word, list) or len(word) != 2:
                continue
            boot, text = word
            if type(boot) is int and isinstance(text, str):
                with contextlib.suppress(ValueError):
                    self.state.overheard_by_way(name, boot, text)

    def _once(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """One of a kind at a time."""
        if what in self._busy:
            work.close()
            return
        self._busy.add(what)
        self.state.procedures.spawn(work, then=lambda: self._busy.discard(what))
