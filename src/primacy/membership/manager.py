"""Ghoti's manager: nodes that find each other by joining, and speak HTTP. The port `Transport`, and the list.

A message of the machines is a request, or the answer to one; which is which stands in `messages.py`. What must be
answered at once is: a request is told to the machine, and what the machine sends back to the one who asked, in that
very step, is the answer. A call that is refused becomes `Unanswered`, one that is answered `Answered`, or the message
that the answer means; silence becomes nothing at all, as the machines have limits of their own.

Real nodes of Ghoti are met on the same paths. They say less, so they are asked more: a look at one is two calls, of
which the second (`PROBE`) tells whether it leads. What our own nodes add is in the header (`http_wire.py`).

The list of nodes (`members.py`) grows by `/join` and shrinks by `/remove`; our nodes compare digests of it with
every exchange and fetch it (`GET /members`) when they differ. `http_handlers.py` answers requests, `join.py`
joins, fetches and tells on, `send.py` speaks, `http_gossip.py` hears of others where a real node leads,
`claims.py` ends it that two real ones lead, `http_server.py` and `http_client.py` are the sockets.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

from primacy.election.inputs import Input, MembersChanged
from primacy.election.messages import (
    Alive,
    BatonTaken,
    Message,
    Okay,
    Release,
    Unable,
)
from primacy.election.model import Role, View
from primacy.errors import CannotHere, InUse
from primacy.membership.claims import ClaimWatch
from primacy.membership.http_gossip import Gossip
from primacy.membership.http_handlers import Handlers
from primacy.membership.http_wire import (
    Credentials,
    Said,
    as_text,
    pairs,
)
from primacy.membership.join import Joining, JoinPlan
from primacy.membership.members import Entry, MemberList
from primacy.membership.send import Sending
from primacy.rate_limiter import RateLimiter
from primacy.settings.timing import RankTiming
from primacy.transport import Hear, Overhear, ReadyDatagram, Trouble, ignored, notices
from primacy.transport.drop_counters import DropCounters
from primacy.transport.duplicates import Duplicates, Spoken
from primacy.transport.layout import packed_word, unpacked_word
from primacy.transport.link_cuts import LinkCuts

REPLIES = (Okay, Unable, Alive, BatonTaken)
"""Messages that are answers to requests."""
WORDS_MAX = 64
"""To one node that wait to be told; more are lost."""
WORDS_S = 0.02
"""What is told within a moment goes together."""
WORDS_EACH_S = 0.05
"""For each call that carried words, before the next ones leave: news of many nodes must not crowd out the election that
they are about. Among three nodes nobody notices; among twenty what happened is known a second later."""
PEERS_MAX = 4_096
"""Nodes that something is remembered of; whoever is listed is heard again soon."""
SAY_AGAIN_MS = 600_000
"""Before the same trouble with a node is said again in the log; `status` shows it all the time."""
STRANGER_S = 60.0
"""So long the trouble with a node that is not listed is shown, after it was heard."""
DUPLICATE_S = 10.0
"""An alert about two machines with one id stands until one was silent for so long, or for some beats: a node that is
refused, as its id is taken, asks again after 6 s at most."""
DUPLICATE_BEATS = 4
SETTLE_S = 2.0
"""For the last calls of a node that ends: the next leader is told to stand."""
UNTOLD = ("/heartbeat", "join")
"""Work that a node which ends does not wait for: it would tell nobody anything."""


class Identity(NamedTuple):
    """Who this node is, and what it must have in common with others of ours."""

    node: str
    boot: int
    addr: str
    """What others dial."""
    cluster: str
    election: str
    strategy: str
    rank: str
    data: str = ""
    """Where its clients find it."""
    priority: int = 0
    started_ms: int = 0
    config: str = ""


class Peer:
    """What was learned of another node from what it sends."""

    def __init__(self) -> None:
        self.boot = 0
        """Of its present start; 0 for a real node of Ghoti, or one that was not heard yet."""
        self.is_real = False
        """It answered as only a real node of Ghoti does, and nothing else was heard of it since."""
        self.word = b""
        """What it said of itself last."""
        self.trouble = ""
        self.troubled_s = 0.0
        """When that was found last."""
        self.said = RateLimiter(SAY_AGAIN_MS)
        """Which trouble with it the log told last, and when."""
        self.spoken = Spoken()
        self.was_down = False
        """It refused a connection since it was heard: a real node that comes back has forgotten everybody."""
        self.summary = b""
        """What this node wants to tell it with the next exchange."""
        self.words: deque[bytes] = deque(maxlen=WORDS_MAX)


class HttpTransport:
    """One node's end. Set `give` and `view` before `start`; both are the driver's side of it."""

    def __init__(
        self,
        identity: Identity,
        listen: str,
        credentials: tuple[Credentials, ...],
        timing: RankTiming,
        plan: JoinPlan,
        complain: Callable[[str], None],
        wall_ms: Callable[[], int],
        tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    ) -> None:
        """`credentials`: the first is used, all are accepted. `tls`: of the server, of the client."""
        # aiohttp is loaded by those who need it: it takes as long as everything else of a node's start
        from primacy.membership.http_client import ManagerClient  # noqa: PLC0415
        from primacy.membership.http_server import ManagerServer  # noqa: PLC0415

        self.identity = identity
        self.node = identity.node
        self.listen = listen
        self.credentials = credentials
        self.timing = timing
        self.complain = complain
        self.wall_ms = wall_ms
        self.drops = DropCounters(complain)
        self.links = LinkCuts()
        self.duplicates = Duplicates(max(DUPLICATE_S, DUPLICATE_BEATS * timing.heartbeat_ms / 1_000))
        self._returns = 0
        """Times that a start was heard which is not the only one of its node."""
        own = Entry(
            identity.node, identity.addr, wall_ms(), False, identity.data, identity.priority, identity.started_ms
        )
        self.member_list = MemberList(own, plan.entries)
        self.peers: dict[str, Peer] = {}
        self.calls = ManagerClient(credentials[0].header, tls[1] if tls else None)
        self.joining = Joining(self, plan)
        self.server = ManagerServer(Handlers(self).answer, complain)
        self.give: Callable[[Input], None] = lambda _: None
        self.view: Callable[[], View] = lambda: View(Role.STARTING, "", 0, "", 0, 0, (), "")
        self.closed = False
        self._server_tls = tls[0] if tls else None
        self._hear: Hear = lambda _: None
        self._overhear: Overhear = ignored
        self._slot: list[Message] | None = None
        self._slot_for = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self.sending = Sending(self)
        self.gossip = Gossip(self)
        self.claim_watch = ClaimWatch(self, Random(plan.seed))
        self._flush: asyncio.TimerHandle | None = None
        self._words_from_s = 0.0
        """No words leave before this moment."""
        self._own_word = b""
        self._prefix = pairs(
            {
                "node": identity.node,
                "boot": identity.boot,
                "addr": identity.addr,
                "kin": self.kin,
                "data": identity.data,
                "rank": f"{identity.priority}.{identity.started_ms}",
                "config": identity.config,
            }
        )

    @property
    def kin(self) -> str:
        """What nodes of one cluster have in common; those with another refuse each other."""
        who = self.identity
        return f"{who.cluster}/{who.election}/{who.strategy}/{who.rank}"

    # --- the port -----------------------------------------------------------------------------------------------------

    @property
    def counters(self) -> dict[str, int]:
        now = {"connections": self.server.connections, "hung_up": self.server.hung_up, "pace": self.sending.pace.factor}
        return {**self.drops.counters, **now}

    @property
    def troubles(self) -> list[Trouble]:
        found = [Trouble(name, peer.trouble) for name, peer in sorted(self.peers.items()) if peer.trouble]
        listed = [each for each in found if each.node in self.member_list]
        duplicate_nodes = [
            notices.duplicate_nodes(name, source) for name, source in self.duplicates.found(time.monotonic()).items()
        ]
        claims = self.claim_watch.troubles
        return [*self.joining.troubles, *duplicate_nodes, *claims, *listed, *self._with_strangers(found)]

    def _with_strangers(self, found: list[Trouble]) -> list[Trouble]:
        """One that is not listed has no row of its own where this would be shown."""
        since_s = time.monotonic() - STRANGER_S
        return [
            Trouble(self.node, each.sentence)
            for each in found
            if each.node not in self.member_list and self.peers[each.node].troubled_s > since_s
        ]

    async def start(self, hear: Hear, overhear: Overhear = ignored) -> None:
        """Listens first, and joins afterwards: what is announced meanwhile must not be lost."""
        self._hear, self._overhear = hear, overhear
        listening = self._listening()
        self.calls.open()
        await self.server.open(listening, self._server_tls)
        await self.joining.start()
        self.gossip.start()
        self.claim_watch.start()

    def send(self, to: str, message: Message) -> None:
        if isinstance(message, REPLIES):
            if self._slot is not None and to == self._slot_for:
                self._slot.append(message)
            return
        if self.closed or to not in self.member_list:
            self.drops.count("unsent")
        elif to in self.links.dumb_to:
            self.drops.count("cut")
        else:
            self.sending.begin(to, message)

    def tell(self, to: str, row: list[Any], only: int = 0, *, later: bool = False) -> int:
        peer = self.peer(to)
        if later:
            self._own_word = packed_word(row)
        if not peer.boot or to not in self.member_list or (only and peer.boot != only):
            return peer.boot if to in self.member_list else 0
        if later:
            peer.summary = self._own_word
            return peer.boot
        peer.words.append(packed_word(row))
        self._flush_soon()
        return peer.boot

    def ready_release(self, release: Release) -> list[ReadyDatagram]:  # noqa: ARG002
        """There is no hold to release here."""
        return []

    def close(self) -> None:
        """At once. `aclose` is the one that lets calls end and waits for the sockets."""
        self.closed = True
        self.joining.close()
        self.gossip.close()
        self.claim_watch.close()
        self.drops.close()
        if self._flush is not None:
            self._flush.cancel()
        for task in tuple(self._tasks):
            task.cancel()

    async def settle(self) -> None:
        """The calls that are under way end, within a limit: the next leader is told to stand. Looks tell nobody."""
        self.joining.is_ending = True  # lists of real nodes that are bent are put right before this node goes
        if self._flush is not None:
            self._flush.cancel()
            self._flush_words(last=True)
        telling = [task for task in self._tasks if task.get_name() not in UNTOLD]
        if telling:
            await asyncio.wait(telling, timeout=SETTLE_S)

    async def aclose(self) -> None:
        self.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.joining.over()
        await self.server.close()
        await self.calls.close()
        for _ in range(2):  # what was closed is told to the loop, and done in its next turn
            await asyncio.sleep(0)

    def _listening(self) -> socket.socket:
        host, _, port = self.listen.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        fixed = self.joining.plan.fixed
        setting = f"cluster.manager.nodes.{self.node}.bind" if fixed else "cluster.manager.addr"
        try:
            found = socket.getaddrinfo(host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
            return socket.create_server(address[:2], family=family, backlog=512)
        except socket.gaierror:
            raise CannotHere(f"the manager's address {self.listen} cannot be resolved; correct {setting}") from None
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else error
            raise InUse(
                f"the manager cannot listen on {self.listen}: {why}; end what has it (ss -ltnp shows it), or choose "
                f"another {setting}"
            ) from None

    # --- what the rest of the manager uses ----------------------------------------------------------------------------

    def peer(self, node: str) -> Peer:
        found = self.peers.get(node)
        if found is None:
            if len(self.peers) >= PEERS_MAX:
                self.peers.clear()
            found = self.peers[node] = Peer()
        return found

    def header(self, to: str = "", **more: str | int) -> str:
        """What this node says of itself, to one that is listed or to anybody."""
        said: dict[str, str | int] = {"list": self.member_list.digest, **more}
        peer = self.peers.get(to)
        if peer is not None and peer.summary:
            said["word"] = as_text(peer.summary)
            peer.summary = b""
        return f"{self._prefix}&{pairs(said)}"

    def spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """Work that ends by itself, and with this node at the latest."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def ask_machine(self, sender: str, message: Message) -> Message | None:
        """Tells the machine, and returns what it answers the sender in the same step."""
        assert self._slot is None
        self._slot, self._slot_for = [], sender
        try:
            self._hear(message)
            return self._slot[0] if self._slot else None
        finally:
            self._slot = None

    def hear(self, message: Message) -> None:
        self._hear(message)

    def list_changed(self) -> None:
        """The machine is told, and the disk a little later."""
        self.give(MembersChanged(self.member_list.members, self.member_list.version))
        self.joining.keep()

    def leader(self) -> str:
        return self.view().leader

    def leads(self) -> bool:
        return self.view().role is Role.LEADER

    def met(self, said: Said, remote: str = "") -> None:
        """A node of ours spoke, with good credentials. `remote`: who asked; empty for an answer."""
        peer = self.peer(said.node)
        peer.boot, peer.is_real = said.number("boot"), False
        if peer.spoken.again(time.monotonic(), peer.boot):
            self.spoke_beside(said, remote)
        self.trouble(said.node, self._other_file(said))
        word = said.data("word")
        if word:
            self.overheard(said.node, peer.boot, word)

    def is_taken(self, said: Said) -> bool:
        """Another start with this id speaks: it was heard within the time after which a node counts as gone."""
        timing = self.timing
        within_ms = ((timing.misses + 1) * timing.heartbeat_ms + timing.answer_ms) * self.sending.pace.factor
        return self.peer(said.node).spoken.beside(time.monotonic(), said.number("boot"), within_ms / 1_000)

    def spoke_beside(self, said: Said, remote: str) -> None:
        """A start spoke which is not the only one of its node: of another, or of this one."""
        self._returns += 1
        addr = said.text("addr")
        source = f"{remote} ({addr})" if remote and not addr.startswith(f"{remote}:") else addr
        self.duplicates.note(time.monotonic(), said.node, said.number("boot"), self._returns, source)

    def trouble(self, node: str, sentence: str) -> None:
        """What is amiss with a node, or that nothing is; the log has it once, not at every exchange."""
        peer = self.peer(node)
        peer.trouble = sentence
        if not sentence:
            return
        peer.troubled_s = time.monotonic()
        if peer.said.passes(peer.troubled_s * 1_000, sentence):
            self.complain(sentence)

    def _other_file(self, said: Said) -> str:
        """With fixed lists that differ one may lead among some nodes and another among others."""
        theirs = said.text("config")
        if not self.joining.plan.fixed or theirs in ("", self.identity.config):
            return ""
        unlisted = "" if said.node in self.member_list else f" and is not in cluster.manager.nodes of {self.node}"
        return (
            f"node {said.node} runs with another file than {self.node} (nodes, times or election differ){unlisted}: "
            "more than one may lead. Compare primacy check on both, then restart one of them with the same file"
        )

    def overheard(self, node: str, boot: int, word: bytes) -> None:
        """A word, from the node itself or passed on by the leader."""
        peer = self.peer(node)
        row = unpacked_word(word)
        if row is None or word == peer.word or node not in self.member_list:
            return
        peer.word = word
        peer.boot = peer.boot or boot
        self._overhear(node, boot, row)

    def overheard_by_way(self, node: str, boot: int, text: str) -> None:
        """Passed on by the leader: of use only if the node did not say something itself in the meantime."""
        peer = self.peer(node)
        if not peer.boot or peer.boot == boot:
            self.overheard(node, boot, b64decode(text, validate=True))

    def said(self, **more: str | int) -> str:
        """Fields for an answer; an empty text is said, too."""
        return "&".join(f"{key}={quote(str(value), safe='')}" for key, value in more.items())

    def told(self, node: str, words: list[bytes]) -> None:
        """Words that another node had to say, each to be heard once."""
        for word in words:
            row = unpacked_word(word)
            if row is not None:
                self._overhear(node, self.peer(node).boot, row)

    @property
    def words(self) -> dict[str, list[Any]]:
        """What each node said of itself last, itself included."""
        known = {name: [peer.boot, as_text(peer.word)] for name, peer in self.peers.items() if peer.word and peer.boot}
        if self._own_word:
            known[self.node] = [self.identity.boot, as_text(self._own_word)]
        return {name: word for name, word in sorted(known.items()) if name in self.member_list}

    def _flush_soon(self) -> None:
        if self._flush is None and not self.closed:
            loop = asyncio.get_running_loop()
            self._flush = loop.call_at(max(loop.time() + WORDS_S, self._words_from_s), self._flush_words)

    def _flush_words(self, *, last: bool = False) -> None:
        """To each node one call at a time; what it is to be told meanwhile goes with the next, unless there is none."""
        self._flush = None
        ready = [name for name, peer in self.peers.items() if peer.words and peer.boot and name in self.member_list]
        told = 0
        for name in ready:
            if name in self.links.dumb_to or (self.sending.is_under_way(name, "/words") and not last):
                continue
            words = self.peers[name].words
            taken = [words.popleft() for _ in range(len(words))]
            self.sending.call(name, "/words", self.sending.say(name, taken), 2)
            told += 1
        self._words_from_s = asyncio.get_running_loop().time() + told * WORDS_EACH_S * self.sending.pace.factor
        if told < len(ready) and not last:
            self._flush_soon()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a call of the manager failed", "exception": fault, "task": task}
            )
