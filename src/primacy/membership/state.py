"""What one node knows of itself and of the others, for all parts of the membership machine. Pure.

Each part changes what it finds here, and none reaches into another. What the present step asks for is collected in
`effects`, in order.
"""

from __future__ import annotations

from base64 import b64decode
from collections import defaultdict, deque
from typing import Any, NamedTuple

from primacy.election.inputs import Input as ElectionInput
from primacy.election.inputs import MembersChanged, Received
from primacy.election.messages import Message
from primacy.membership.http_wire import Answer, Said, Silent, as_text, pairs
from primacy.membership.members import Entry, MemberList, kept
from primacy.membership.pace import Pace
from primacy.membership.procedures import Procedures, Signal, Timer
from primacy.membership.vocabulary import Call, Complain, Effect, Fail, Keep, Overheard, Tell
from primacy.rate_limiter import RateLimiter
from primacy.settings.timing import RankTiming
from primacy.transport import Trouble, notices
from primacy.transport.duplicates import Duplicates, Spoken
from primacy.transport.layout import unpacked_word
from primacy.transport.link_cuts import LinkCuts

WORDS_MAX = 64
"""To one node that wait to be told; more are lost."""
PEERS_MAX = 4_096
"""Nodes that something is remembered of; whoever is listed is heard again soon."""
SAY_AGAIN_MS = 600_000
"""Before the same trouble with a node is said again in the log; `status` shows it all the time."""
STRANGER_S = 60.0
"""So long the trouble with a node that is not listed is shown, after it was heard."""
DUPLICATE_S = 10.0
"""An alert about two machines with one id stands until one was silent for so long, or for some heartbeats: a node that
is refused, as its id is taken, asks again after 6 s at most."""
DUPLICATE_HEARTBEATS = 4
KEEP_S = 0.2
"""After a change the list is written to the disk: several changes at once are written once."""


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

    @property
    def kin(self) -> str:
        """What nodes of one cluster have in common; those with another refuse each other."""
        return f"{self.cluster}/{self.election}/{self.strategy}/{self.rank}"


class JoinPlan(NamedTuple):
    """How this node comes into the cluster."""

    join: tuple[str, ...] = ()
    """Addresses of nodes to join; none: it begins a cluster, unless those that it remembers know better."""
    retry: bool = True
    fixed: bool = False
    """The list is a fixed one: nobody joins."""
    entries: tuple[Entry, ...] = ()
    """The fixed list, or what was remembered."""
    seed: int = 0


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


class State:
    """One node's knowledge."""

    def __init__(self, identity: Identity, timing: RankTiming, plan: JoinPlan, links: LinkCuts, wall_ms: int) -> None:
        self.identity = identity
        self.node = identity.node
        self.timing = timing
        self.plan = plan
        self.links = links
        self.effects: list[Effect] = []
        self.procedures = Procedures(lambda error: self.effects.append(Fail(error)))
        self.counters: dict[str, int] = defaultdict(int)
        self.member_list = MemberList(
            Entry(identity.node, identity.addr, wall_ms, False, identity.data, identity.priority, identity.started_ms),
            plan.entries,
        )
        self.peers: dict[str, Peer] = {}
        self.pace = Pace()
        self.leader = ""
        """As the election has it."""
        self.leads = False
        self.is_outside = bool(plan.join) and not plan.fixed and not any(not entry.gone for entry in plan.entries)
        """It was not taken in yet, and knows nobody."""
        self.is_ending = False
        self.closed = False
        self.stands_in = False
        """Real nodes look for each other here (`ghoti/storms.py`): they are told that it lives, whether this node can
        lead or not."""
        self.own_word = b""
        """What this node said of itself last."""
        self._duplicates = Duplicates(max(DUPLICATE_S, DUPLICATE_HEARTBEATS * timing.heartbeat_ms / 1_000))
        self._returns = 0
        """Times that a start was heard which is not the only one of its node."""
        self._keeping: Timer | None = None
        self._open: dict[int, Signal[Any]] = {}
        """Questions that wait for an answer from outside, by their number."""
        self._asked = 0
        self._prefix = pairs(
            {
                "node": identity.node,
                "boot": identity.boot,
                "addr": identity.addr,
                "kin": identity.kin,
                "data": identity.data,
                "rank": f"{identity.priority}.{identity.started_ms}",
                "config": identity.config,
            }
        )

    @property
    def now_s(self) -> float:
        return self.procedures.now_s

    def count(self, what: str) -> None:
        self.counters[what] += 1

    # --- the outside --------------------------------------------------------------------------------------------------

    async def call(
        self, method: str, addr: str, path: str, body: bytes | None, said: str, limit_s: float
    ) -> Answer | Silent:
        number, answered = self._question()
        self.effects.append(Call(number, method, addr, path, body, said, limit_s))
        found = await self.procedures.wait(answered)
        assert isinstance(found, Answer | Silent)
        return found

    async def ask_election(self, sender: str, given: ElectionInput) -> Message | None:
        """Returns when the election has heard it, with what it answers the sender in the same step."""
        number, answered = self._question()
        self.effects.append(Tell(given, number, sender))
        found: Message | None = await self.procedures.wait(answered)
        return found

    def _question(self) -> tuple[int, Signal[Any]]:
        self._asked += 1
        answered = self._open[self._asked] = Signal()
        return self._asked, answered

    def answered(self, number: int, found: Answer | Silent | Message | None) -> None:
        """Nobody waits any more for an answer to what was cancelled."""
        if (waiting := self._open.pop(number, None)) is not None:
            waiting.set(found)

    def tell(self, given: ElectionInput) -> None:
        self.effects.append(Tell(given))

    def hear(self, message: Message) -> None:
        self.tell(Received(message))

    def complain(self, sentence: str) -> None:
        self.effects.append(Complain(sentence))

    async def ours_at(self, addr: str, limit_s: float) -> str:
        """Which node of ours answers there; empty if none does."""
        found = await self.call("GET", addr, "/heartbeat", None, self.header(), limit_s)
        return found.said.node if isinstance(found, Answer) else ""

    def header(self, to: str = "", **more: str | int) -> str:
        """What this node says of itself, to one that is listed or to anybody."""
        said: dict[str, str | int] = {"list": self.member_list.digest, **more}
        peer = self.peers.get(to)
        if peer is not None and peer.summary:
            said["word"] = as_text(peer.summary)
            peer.summary = b""
        return f"{self._prefix}&{pairs(said)}"

    # --- the list -----------------------------------------------------------------------------------------------------

    @property
    def members_changed(self) -> MembersChanged:
        return MembersChanged(self.member_list.members, self.member_list.version)

    def list_changed(self) -> None:
        """The election is told, and the disk a little later."""
        self.tell(self.members_changed)
        self.keep()

    def keep(self) -> None:
        if self._keeping is None and not self.plan.fixed:
            self._keeping = self.procedures.later(KEEP_S, self._keep_now)

    def _keep_now(self) -> None:
        self._keeping = None
        self.effects.append(Keep(kept(self.member_list)))

    def close(self) -> None:
        self.closed = self.is_ending = True
        if self._keeping is not None:
            self._keeping.cancel()
            self._keep_now()

    # --- the others ---------------------------------------------------------------------------------------------------

    def peer(self, node: str) -> Peer:
        found = self.peers.get(node)
        if found is None:
            if len(self.peers) >= PEERS_MAX:
                self.peers.clear()
            found = self.peers[node] = Peer()
        return found

    @property
    def is_led_by_real(self) -> bool:
        """A real node leads, as far as this one knows."""
        leader = self.leader
        return leader in self.member_list and leader != self.node and self.peer(leader).is_real

    def met(self, said: Said, remote: str = "") -> None:
        """A node of ours spoke, with good credentials. `remote`: who asked; empty for an answer."""
        peer = self.peer(said.node)
        peer.boot, peer.is_real = said.number("boot"), False
        if peer.spoken.again(self.now_s, peer.boot):
            self.spoke_beside(said, remote)
        self.trouble(said.node, self._other_file(said))
        word = said.data("word")
        if word:
            self.overheard(said.node, peer.boot, word)

    def is_taken(self, said: Said) -> bool:
        """Another start with this id speaks: it was heard within the time after which a node counts as gone."""
        timing = self.timing
        within_ms = ((timing.misses + 1) * timing.heartbeat_ms + timing.answer_ms) * self.pace.factor
        return self.peer(said.node).spoken.beside(self.now_s, said.number("boot"), within_ms / 1_000)

    def spoke_beside(self, said: Said, remote: str) -> None:
        """A start spoke which is not the only one of its node: of another, or of this one."""
        self._returns += 1
        addr = said.text("addr")
        source = f"{remote} ({addr})" if remote and not addr.startswith(f"{remote}:") else addr
        self._duplicates.note(self.now_s, said.node, said.number("boot"), self._returns, source)

    def trouble(self, node: str, sentence: str) -> None:
        """What is amiss with a node, or that nothing is; the log has it once, not at every exchange."""
        peer = self.peer(node)
        peer.trouble = sentence
        if not sentence:
            return
        peer.troubled_s = self.now_s
        if peer.said.passes(self.procedures.now_ms, sentence):
            self.complain(sentence)

    def duplicate_nodes(self, now_s: float) -> list[Trouble]:
        return [notices.duplicate_nodes(name, source) for name, source in self._duplicates.found(now_s).items()]

    def troubles(self, now_s: float) -> list[Trouble]:
        """With listed nodes first. One that is not listed has no row of its own where this would be shown."""
        found = [(name, peer) for name, peer in sorted(self.peers.items()) if peer.trouble]
        listed = [Trouble(name, peer.trouble) for name, peer in found if name in self.member_list]
        return listed + [
            Trouble(self.node, peer.trouble)
            for name, peer in found
            if name not in self.member_list and peer.troubled_s > now_s - STRANGER_S
        ]

    def _other_file(self, said: Said) -> str:
        """With fixed lists that differ one may lead among some nodes and another among others."""
        theirs = said.text("config")
        if not self.plan.fixed or theirs in ("", self.identity.config):
            return ""
        unlisted = "" if said.node in self.member_list else f" and is not in cluster.manager.nodes of {self.node}"
        return (
            f"node {said.node} runs with another file than {self.node} (nodes, times or election differ){unlisted}: "
            "more than one may lead. Compare primacy check on both, then restart one of them with the same file"
        )

    # --- what nodes say of themselves ---------------------------------------------------------------------------------

    def overheard(self, node: str, boot: int, word: bytes) -> None:
        """A word, from the node itself or passed on by the leader."""
        peer = self.peer(node)
        row = unpacked_word(word)
        if row is None or word == peer.word or node not in self.member_list:
            return
        peer.word = word
        peer.boot = peer.boot or boot
        self.effects.append(Overheard(node, boot, row))

    def overheard_by_way(self, node: str, boot: int, text: str) -> None:
        """Passed on by the leader: of use only if the node did not say something itself in the meantime."""
        peer = self.peer(node)
        if not peer.boot or peer.boot == boot:
            self.overheard(node, boot, b64decode(text, validate=True))

    def told(self, node: str, words: list[bytes]) -> None:
        """Words that another node had to say, each to be heard once."""
        for word in words:
            row = unpacked_word(word)
            if row is not None:
                self.effects.append(Overheard(node, self.peer(node).boot, row))

    @property
    def words(self) -> dict[str, list[Any]]:
        """What each node said of itself last, itself included."""
        known = {name: [peer.boot, as_text(peer.word)] for name, peer in self.peers.items() if peer.word and peer.boot}
        if self.own_word:
            known[self.node] = [self.identity.boot, as_text(self.own_word)]
        return {name: word for name, word in sorted(known.items()) if name in self.member_list}
