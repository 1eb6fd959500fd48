"""How a node of ours ends the storm of joins that real nodes of the first version keep up among themselves.

Such a node passes every join on to all that it lists but the one who joined, known or not, and reads no answer. Two of
them send a join to and fro for ever, of three each doubles it, and the node it is about is never told. No answer ends
that; but an entry of their lists can be overwritten by a join. So for a moment each of them is told that the others are
to be found at *our* address (nothing is passed on here, hence every join ends at this node), until nothing comes any
more; then the true addresses are told again, in an order in which the tellings die out.

With two of them nothing is left over. With three, the last entry to be put right closes a circle of two, and one word
may stay under way. It passes this node at every turn, and its teller is kept waiting: a real node tells its list one
after the other and waits without a limit, so that it stands still there. The same slows down what is not ended yet.

Meanwhile (about half a second) this node answers for them: it lives, and called to an election it begins one, which
asks the true ones. If two of them came to lead because they could not find each other, or one missed who does, that is
mended afterwards. Ours never believe such an address, whoever gave it out: they ask who answers there. Only nodes that
prove to be of the first version are treated so: they alone answer an unknown path with 200 and nothing, and `/leader`
is unknown to them. Later ones pass on what is new, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, NamedTuple

from primacy.membership.http_wire import PROBE, Answer, Silent, id_body, join_body
from primacy.membership.members import Entry
from primacy.membership.procedures import Gate, Procedure, Signal
from primacy.membership.state import State
from primacy.rate_limiter import RateLimiter

PROBE_S = 5.0
"""Two nodes that tell each other of joins as fast as they can answer late."""
THERE_S = 2.0
"""For one of ours to say that it is there."""
TOLD_S = 5.0
"""For one answer: nodes in a storm are slow."""
QUIET_S = 0.25
"""Nothing was told for so long: the storm has run dry."""
PAUSE_S = 0.05
"""Between two addresses that are put right: what the one sets off has ended when the other follows."""
DRAIN_S = 0.75
"""Then the lists are bent again: a word that was under way may have undone it."""
ROUNDS_MAX = 12
NODES_MOST = 3
"""With four of them, what is put right last goes on to three, which double it: only waiting helps there."""
TRIES_MAX = 2
OWED_S = 10.0
"""Between tries to put a list right whose node was silent: cut off in the middle, it would look here for ever."""
AGAIN_S = 3.0
"""Before this node does it again."""
OTHER_S = 1.0
"""After a word of another of ours that does it: no teller waits meanwhile."""
ALONE_S = (2.0, 8.0, 35.0)
"""After the last other one of ours went down the lists are put right again, so often: a word about this node that was
under way to a dead one comes back when that call ends, after half a minute at most, and nobody would tell us of it."""
LED_S = (0.5, 2.5, 6.0)
"""After the lists are true again it is asked, at these distances, who of them leads: what was announced before may
still be under way."""
WATCH_S = (2.0, 2.0, 4.0)
"""After the first word of another of ours that ends a storm it is looked, at these distances, whether it lives."""
TURN_S = 0.3
"""Up to so long it waits before, so that of several of ours one does it."""
STORM_S = 10.0
STORM_LEAST = 3
"""A known join that comes more often than this, and more often than once per node, within `STORM_S` is an echo."""
HELD_S = 30.0
"""So long the teller of an echo waits; one after the other, so that they do not begin again together."""
STARTS_S = 1.0
"""So often at most a node is asked whether it is just starting: echoes about one that is down must not pass freely."""
SAY_AGAIN_MS = 60_000
"""Before the log has it again that tellers are kept waiting."""
HELD_MAX = 512
"""Tellers that are kept waiting at one time. Of three real nodes each doubles what it hears, until all of them wait."""
ECHOES_MAX = 256
"""Of one node that are counted, and nodes of which they are."""
BURST = 20
"""Known joins within a second, from nodes that are not ours: a storm, whatever is kept waiting."""
HELD_MOST = 12
"""Tellers that are kept waiting; one word between two nodes has as many only once in four thousand times."""


class Word(NamedTuple):
    """A join to be told: at this address, that `node` is at `addr`."""

    at: str
    node: str
    addr: str


def bent(nodes: Sequence[tuple[str, str]], here: str) -> list[Word]:
    """Each of these nodes, given as (id, address), is to look for all others at `here`."""
    return [Word(at, node, here) for name, at in nodes for node, _ in nodes if node != name]


def mended(nodes: Sequence[tuple[str, str]]) -> list[Word]:
    """The true addresses, one after the other.

    A node is told of those behind it first and of those before it last, so that whoever passes the word on still has
    the circle open. What closes it for good is the last word of all: one circle of two for three nodes, none for two.
    """
    words = []
    for place, (_, at) in enumerate(nodes):
        turned = (*nodes[place + 1 :], *nodes[:place])
        words += [Word(at, node, addr) for node, addr in turned]
    return words


class StormControl:
    """One node's part in it: notices a storm, and ends it."""

    def __init__(self, state: State, set_right: Callable[[str], None]) -> None:
        """`set_right` tells real nodes for another one that it leads."""
        self.state = state
        self._set_right = set_right
        self._random = Random(state.plan.seed)
        self._ending: Procedure | None = None
        """What ends a storm, while it is under way."""
        self._first_version: dict[str, str] = {}
        """Nodes that proved to be, and the address where they did."""
        self._bent = False
        self._owed: set[Word] = set()
        """What is yet to be put right at nodes that were silent."""
        self._last_s = 0.0
        """When a join of somebody who is not ours was heard last."""
        self._recent: deque[float] = deque(maxlen=BURST)
        self._not_before_s = 0.0
        self._other_until_s = 0.0
        self._benders: set[str] = set()
        """Others of ours that end a storm: if one goes down, it may have been in the middle of it."""
        self._must = False
        self._pauses: list[float] = []
        """Before each time that it is done again without being asked."""
        self._let_go: Signal[bool] = Signal()
        self._asking = Gate(state.procedures, 1)
        self._echoes: dict[tuple[str, str], deque[float]] = {}
        self._held = 0
        self._asked_s: dict[str, float] = {}
        """By node: when it was asked last whether it is just starting."""
        self._said = RateLimiter(SAY_AGAIN_MS)

    # --- what is heard ------------------------------------------------------------------------------------------------

    async def is_bent(self, entry: Entry) -> bool:
        """A join from one who is not ours. True: the address was given out to end a storm, and is not to be kept."""
        state = self.state
        if entry.addr == state.identity.addr:
            if not self._bent:  # a late word of what is long put right: it would go on for ever
                self.soon()
            return True
        known = state.member_list.addr(entry.node)
        if known == entry.addr:
            return False
        owner = (
            next((other.node for other in state.member_list.others if other.addr == entry.addr), "") if known else ""
        )
        if not owner or owner in self._first_version or state.peer(owner).was_down:
            async with self._asking:  # of many that say the same one is asked about, and the others then know
                is_known = state.member_list.addr(entry.node) == entry.addr
                owner = "" if is_known else await state.ours_at(entry.addr, THERE_S)
            if owner in ("", entry.node):
                return False
        self._other_until_s = self.state.now_s + OTHER_S
        if owner not in self._benders:
            self._benders.add(owner)
            state.procedures.spawn(self._watch(owner, entry.addr))
        self._release()
        return True

    def heard(self) -> None:
        """A join from one who is not ours, about anybody."""
        self._last_s = self.state.now_s

    async def heard_again(self, entry: Entry) -> None:
        """A join of a node that is known, from one who is not ours. In a storm of them the teller is kept waiting."""
        is_ending = self._bent or self.state.now_s < self._other_until_s
        if is_ending and not self._too_many():
            return
        is_echo = self._is_echo(entry)
        if self._is_burst() or self._held >= HELD_MOST:
            self.soon()
        if is_echo and self._held < HELD_MAX and not await self._starts(entry):
            self._held += 1
            self._say_held(entry)
            self.state.count("echoes_held")
            try:
                await self._wait(HELD_S * (0.5 + self._random.random()))
            finally:
                self._held -= 1

    def _is_echo(self, entry: Entry) -> bool:
        now_s = self.state.now_s
        if len(self._echoes) > ECHOES_MAX:
            self._echoes.clear()
        times = self._echoes.setdefault((entry.node, entry.addr), deque(maxlen=ECHOES_MAX))
        times.append(now_s)
        while now_s - times[0] > STORM_S:
            times.popleft()
        return len(times) > max(STORM_LEAST, len(self.state.member_list.others))

    async def _starts(self, entry: Entry) -> bool:
        """It is the node itself that joins again and waits for the answer. A real one joins before it listens, so that
        nobody is at its address; of one that others tell of, somebody is."""
        state, now_s = self.state, self.state.now_s
        if now_s - self._asked_s.get(entry.node, -STARTS_S) < STARTS_S:
            return False
        if len(self._asked_s) > ECHOES_MAX:
            self._asked_s.clear()
        self._asked_s[entry.node] = now_s
        found = await state.call("GET", entry.addr, "/heartbeat", None, state.header(), THERE_S)
        return isinstance(found, Silent) and found.refused

    def _say_held(self, entry: Entry) -> None:
        if self._said.passes(self.state.procedures.now_ms):
            self.state.complain(
                f"nodes that are not ours tell of node {entry.node} again and again, as those of Ghoti's first version "
                f"do: each who does waits for its answer for up to {1.5 * HELD_S:.0f} s"
            )

    def _is_burst(self) -> bool:
        now_s = self.state.now_s
        burst = len(self._recent) == BURST and now_s - self._recent[0] < 1.0
        self._recent.append(now_s)
        return burst

    async def over(self) -> None:
        """A new node, not ours, waits while a storm is ended: it would be one more to pass words on."""
        state = self.state
        last_s = state.now_s + TOLD_S
        while (self._bent or state.now_s < self._other_until_s) and state.now_s < last_s:
            await self.state.procedures.pause(PAUSE_S)

    def lost(self, node: str) -> None:
        """A node is down. What goes round about this one passed the others of ours; if that was the last, nobody."""
        if self.state.peer(node).boot and self._is_alone():
            self._pauses = list(ALONE_S)
            self._must = True
            self.soon()

    def _is_alone(self) -> bool:
        """No other one of ours is known to live."""
        others = [self.state.peer(other.node) for other in self.state.member_list.others]
        return not any(peer.boot and not peer.was_down for peer in others)

    def _once_more(self) -> None:
        if self._is_alone():
            self._must = True
            self.soon()
        else:
            self._pauses.clear()

    async def _watch(self, bender: str, addr: str) -> None:
        """What another of ours has begun and cannot end any more is ended by this node."""
        for pause_s in WATCH_S:
            await self.state.procedures.pause(pause_s)
            if await self.state.ours_at(addr, PROBE_S) != bender:
                self._must = True
                self.soon()
                break
        self._benders.discard(bender)

    async def _wait(self, span_s: float) -> None:
        """Keeps a teller waiting; not while a storm is ended, for what waits now would begin it anew."""
        await self.state.procedures.wait(self._let_go, span_s)

    def _release(self) -> None:
        self._let_go.set(True)
        self._let_go = Signal()

    # --- what is done -------------------------------------------------------------------------------------------------

    def soon(self) -> None:
        """A storm is heard. One at a time, and not all of ours together."""
        self._begin(self._in_turn)

    def at_once(self) -> None:
        """This node itself was told of to real ones: it will not hear what they make of it."""
        if self._ending is not None:  # it may be past the point where it would end this, too
            self._must = True
        self._begin(self._calm)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._ending is None and not (self.state.is_ending or self.state.plan.fixed):
            self._ending = self.state.procedures.spawn(work(), then=self._over)

    def _over(self) -> None:
        self._ending = None
        if self._must:
            self.soon()
        elif self._pauses and not self.state.closed:
            self.state.procedures.later(self._pauses.pop(0), self._once_more)

    async def _in_turn(self) -> None:
        await self.state.procedures.pause(
            max(0.0, self._not_before_s - self.state.now_s) + TURN_S * self._random.random()
        )
        if self._must or self.state.now_s >= self._other_until_s:
            await self._calm()

    async def _calm(self) -> None:
        """Does nothing where nobody, or nobody else, is of the first version."""
        self._must = False
        nodes, unsure = await self._storming()
        self._not_before_s = self.state.now_s + AGAIN_S
        if self._too_many() or self.state.is_ending:
            return
        if len(nodes) < 2:
            self._must = unsure  # the storm itself may keep them from answering, and perhaps nobody tells us of it
            return
        self._bent = self.state.stands_in = True
        try:
            await self._drain(nodes)
            await self._mend(nodes)
        finally:
            self._bent = self.state.stands_in = False
            if not self.state.is_ending:
                self.state.procedures.spawn(self._one_leads(nodes))
            self._not_before_s = self.state.now_s + AGAIN_S

    async def _drain(self, nodes: list[tuple[str, str]]) -> None:
        state = self.state
        state.count("storms_calmed")
        for _ in range(ROUNDS_MAX):
            await self.state.procedures.every(*map(self._tell, bent(nodes, state.identity.addr)))
            self._release()
            is_over = await self._is_quiet(QUIET_S, DRAIN_S) or state.is_ending
            if is_over or self._too_many():
                return
        names = ", ".join(node for node, _ in nodes)
        state.complain(f"nodes {names} tell each other of joins without end, and it could not be ended; replace them")

    async def _mend(self, nodes: list[tuple[str, str]]) -> None:
        *first, last = mended(nodes)
        for word in first:
            await self._put_right(word)
            await self._is_quiet(PAUSE_S, QUIET_S)
        self._bent = False  # from here on tellers wait again: this word may go round
        await self._put_right(last)

    async def _one_leads(self, nodes: list[tuple[str, str]]) -> None:
        """Two that could not find each other may both lead now, and neither would ever notice: the higher one is called
        to an election, and says to all that it leads. One that could not be told who leads is told."""
        state = self.state
        for pause_s in LED_S:
            await self.state.procedures.pause(pause_s)
            claims = await self.state.procedures.every(*(self._claims(at) for _, at in nodes))
            leading = [node for node, claimed in zip(nodes, claims, strict=True) if claimed]
            if len(leading) > 1 and not self._bent:
                await self._call(max(leading)[1], "/election", id_body(state.node))
            elif [node for node, _ in leading] == [state.leader]:
                self._set_right(state.leader)

    async def _claims(self, at: str) -> bool:
        """Only who leads takes nodes off the list, also one that nobody has."""
        found = await self._call(at, "/remove", id_body(PROBE))
        return isinstance(found, Answer) and found.status == 200

    async def _call(self, at: str, path: str, body: bytes) -> Answer | Silent:
        return await self.state.call("POST", at, path, body, self.state.header(), TOLD_S)

    async def _storming(self) -> tuple[list[tuple[str, str]], bool]:
        """The listed nodes of the first version, in id order. True: of two or more real ones, not all have said."""
        real = self._real()
        answered = await self.state.procedures.every(*map(self._prove, real))
        proved = [(entry.node, entry.addr) for entry in real if self._first_version.get(entry.node) == entry.addr]
        return proved, len(real) > 1 and not all(answered)

    def _real(self) -> list[Entry]:
        """Listed nodes that are not ours, or were not heard yet, as far as they are not known to be down."""
        state = self.state
        others = [(entry, state.peer(entry.node)) for entry in state.member_list.others]
        up = [entry for entry, peer in others if not peer.boot and not peer.was_down]
        return [entry for entry in up if entry.node not in state.links.dumb_to]

    def _too_many(self) -> bool:
        """Only waiting helps then, and what was begun is put right at once."""
        return len(self._real()) > NODES_MOST

    async def _prove(self, entry: Entry) -> bool:
        """False: there was no answer."""
        state = self.state
        found = await state.call("GET", entry.addr, "/leader", None, state.header(), PROBE_S)
        if isinstance(found, Answer):
            self._first_version.pop(entry.node, None)
            if found.said.node == entry.node:
                state.met(found.said)
            if found.status == 200 and not found.body and not found.said.is_ours:
                self._first_version[entry.node] = entry.addr
        elif found.refused:
            self._first_version.pop(entry.node, None)
        return isinstance(found, Answer) or found.refused

    async def _tell(self, word: Word) -> Answer | Silent:
        self.state.count("sent/join")
        return await self._call(word.at, "/join", join_body(word.node, word.addr))

    async def _put_right(self, word: Word) -> None:
        """One that is down forgets all lists by itself; one that is silent is told when it is heard again."""
        for _ in range(TRIES_MAX):
            if await self._is_right(word):
                return
        if word not in self._owed:
            self._owed.add(word)
            self.state.procedures.spawn(self._put_right_later(word))

    async def _is_right(self, word: Word) -> bool:
        found = await self._tell(word)
        return isinstance(found, Answer) or found.refused

    async def _put_right_later(self, word: Word) -> None:
        """Until it is heard, or is not true any more."""
        while {word.at, word.addr} <= {entry.addr for entry in self.state.member_list.others}:
            await self.state.procedures.pause(OWED_S)
            if await self._is_right(word):
                break
        self._owed.discard(word)

    async def _is_quiet(self, span_s: float, limit_s: float) -> bool:
        """True once nothing was told for so long; False at the limit. A node that ends does not wait for longer."""
        state = self.state
        began_s = state.now_s
        while (now_s := state.now_s) < began_s + (span_s if self.state.is_ending else limit_s):
            left_s = max(began_s, self._last_s) + span_s - now_s
            if left_s <= 0:
                return True
            await self.state.procedures.pause(left_s)
        return False
