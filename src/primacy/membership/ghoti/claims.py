"""What our nodes do about two real nodes of Ghoti that lead at once.

After a split two real nodes may both lead. They never ask each other, and their followers are content, so that it
stays. A leader of ours would end it by its next announcement; where ours only follow, they find it out: in turn they
ask the real nodes, apart from their leader, whether they lead (`PROBE`, which changes nothing).

If two claim it twice in a row, the higher one is called to an election. It then announces itself to all that it knows,
or a still higher one does: the election that ends with the highest node, as Ghoti's document promises after a split.
The lower one is told nothing by us. The announcement takes the very link that must work again; while it does not,
nothing changes. If we told the lower one who leads, it would follow, miss its leader and lead again, to and fro.
One that was restarted without `join` knows nobody, and announces itself to nobody: when calls did not help
(`CALLS_FIRST`), this node joins it, and tells it of the others that its answer lacks.

If two lead again soon after one was left, only one direction of a link works: each time the next call comes after twice
as long. Several of our nodes share the asking; that two of them call does no harm. `Claims` decides and is pure,
`ClaimWatch` asks and calls.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random
from typing import assert_never

from primacy.membership.http_wire import id_body
from primacy.membership.procedures import Timer
from primacy.membership.send import Sending
from primacy.membership.state import State
from primacy.rate_limiter import RateLimiter
from primacy.transport import Trouble

EVERY_S = 4.0
"""One real node is asked so often, by all our nodes together: each time it writes lines into its log."""
SURE_S = 2.0
"""Then it is asked again, before anything is done: a new leader may be about to tell the old one."""
CALL_AGAIN_S = 10.0
"""Between two calls. An election of theirs takes 3 s for each higher node that is dead, and as an announcement 2 s."""
CALLS_FIRST = 2
"""Calls before this node makes itself and the others known to the higher one, once."""
RETURNS_MAX = 5
"""Times that the wait between calls is doubled: about five minutes at most."""
FORGET_S = 900.0
"""After so long with one leader, two are a new matter."""
ASK_S = 2.0
SAY_AGAIN_MS = 600_000
"""Before the log has the same sentence again; `status` shows it all the time."""
SENTENCES_MAX = 4
"""That are remembered for it: two of each pair of leaders."""


class Remedy(Enum):
    """What is to be done now."""

    NOTHING = 0
    SURE = 1
    """Ask both again soon."""
    CALL = 2
    """Call the higher one to an election."""
    INTRODUCE = 3
    """Make the others known to the higher one."""


class Claims:
    """What is known of two leaders, and when something is done about it. Pure: moments are arguments."""

    def __init__(self) -> None:
        self._two = False
        """Two lead, as far as was heard last."""
        self._pair: tuple[str, ...] = ()
        """The lower one and the higher one."""
        self._calls = 0
        """For this pair, since one leader was left last."""
        self._has_introduced = False
        self._returns = 0
        """Times that there were two again after calls had left one."""
        self._ended_s: float | None = None
        """When calls had left one, and there are not two again."""
        self._not_before_s = float("-inf")

    def both(self, now_s: float, rival: str, leader: str) -> Remedy:
        """Both said just now that they lead."""
        pair = tuple(sorted((rival, leader)))
        if not self._two or pair != self._pair:
            self._found(now_s, pair)
            return Remedy.SURE
        if now_s < self._not_before_s:
            return Remedy.NOTHING
        self._not_before_s = now_s + self._wait_s
        if self._calls >= CALLS_FIRST and not self._has_introduced:
            self._has_introduced = True
            return Remedy.INTRODUCE
        self._calls += 1
        return Remedy.CALL

    @property
    def _wait_s(self) -> float:
        return CALL_AGAIN_S * (1 << self._returns)

    def _found(self, now_s: float, pair: tuple[str, ...]) -> None:
        if self._ended_s is not None:
            is_forgotten = now_s - self._ended_s > FORGET_S
            self._returns = 0 if is_forgotten else min(RETURNS_MAX, self._returns + 1)
            self._has_introduced = not is_forgotten
            self._not_before_s = self._ended_s + self._wait_s
        if self._ended_s is not None or pair != self._pair:
            self._calls = 0
        self._two, self._pair, self._ended_s = True, pair, None

    def one(self, now_s: float, node: str) -> bool:
        """It does not lead. True: it was one of two, and something was done about it."""
        if not self._two or node not in self._pair:
            return False
        self._two = False
        if self._calls:
            self._ended_s = now_s
        return self._calls > 0

    def unknown(self) -> None:
        """Whether two lead could not be found out; what was seen before says nothing any more."""
        self._two = False

    def rival(self, leader: str) -> str:
        """Who is to be asked next, beside this one; empty if two were not seen."""
        return next(name for name in reversed(self._pair) if name != leader) if self._two else ""

    @property
    def lower(self) -> str:
        return self._pair[0]

    @property
    def sentence(self) -> str:
        """For `status` and the log; empty while nothing was done."""
        if not self._two or not self._calls:
            return ""
        lower, higher = self._pair
        if self._calls <= CALLS_FIRST + 1:
            return f"nodes {lower} and {higher} of Ghoti both lead: node {higher} is called to an election"
        return (
            f"nodes {lower} and {higher} of Ghoti both lead, and elections do not end it: what node {higher} announces "
            f"does not reach node {lower}. Repair the network between the two, or restart node {lower} so that it "
            f"joins node {higher}"
        )


class ClaimWatch:
    """Asks, calls and tells for one node."""

    def __init__(self, state: State, sending: Sending, introduce: Callable[[str], None]) -> None:
        self.state = state
        self._sending = sending
        self._introduce = introduce
        self.claims = Claims()
        self._random = Random(state.plan.seed)
        self._timer: Timer | None = None
        self._last = ""
        self._said = RateLimiter(SAY_AGAIN_MS, SENTENCES_MAX)

    @property
    def troubles(self) -> list[Trouble]:
        sentence = self.claims.sentence
        return [Trouble(self.claims.lower, sentence)] if sentence else []

    def start(self) -> None:
        self._after(self._every_s())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _after(self, span_s: float) -> None:
        self.close()
        span_s *= self.state.pace.factor * (0.75 + self._random.random() / 2)
        self._timer = self.state.procedures.later(span_s, self._turn)

    def _every_s(self) -> float:
        """Our nodes take turns, so that real ones write no more lines because we are many."""
        peers = [self.state.peer(entry.node) for entry in self.state.member_list.others]
        return EVERY_S * (1 + sum(peer.boot > 0 and not peer.was_down for peer in peers))

    def _turn(self) -> None:
        to = self._next() if self._is_needed() else ""
        if to:
            self._last = to
            self._sending.call(to, "/claims", self._ask(to), 1)
        else:
            self.claims.unknown()
        self._after(self._every_s())

    def _is_needed(self) -> bool:
        """No list is bent to end a storm of joins."""
        return self.state.is_led_by_real and not self.state.stands_in

    def _next(self) -> str:
        """Who was heard to lead beside the leader; else the next real node in the order of names."""
        state = self.state
        leader = state.leader
        names = [
            entry.node
            for entry in state.member_list.others
            if entry.node != leader and state.peer(entry.node).is_real and entry.node not in state.links.dumb_to
        ]
        rival = self.claims.rival(leader)
        if rival in names:
            return rival
        return next((name for name in names if name > self._last), names[0] if names else "")

    async def _ask(self, rival: str) -> None:
        """Whether it leads, and then whether the leader still does."""
        state, claims = self.state, self.claims
        leader = state.leader
        claimed = await self._sending.claim_of(rival, ASK_S)
        if claimed == "":
            if claims.one(state.now_s, rival) and await self._still_leads(leader):
                self._sending.set_right(leader)  # some may have missed the announcement
        elif claimed is None or not await self._still_leads(leader):
            claims.unknown()
        else:
            await self._do(claims.both(state.now_s, rival, leader), max(rival, leader))

    async def _still_leads(self, leader: str) -> bool:
        return await self._sending.claim_of(leader, ASK_S) == leader == self.state.leader

    async def _do(self, remedy: Remedy, higher: str) -> None:
        state = self.state
        self._say()
        match remedy:
            case Remedy.NOTHING:
                pass
            case Remedy.SURE:
                self._after(SURE_S)
            case Remedy.CALL:
                state.count("leaders_called")
                await self._sending.ask("POST", higher, "/election", id_body(state.node), ASK_S)
            case Remedy.INTRODUCE:
                state.count("leaders_joined")
                self._introduce(higher)
            case _:
                assert_never(remedy)

    def _say(self) -> None:
        sentence = self.claims.sentence
        if sentence and self._said.passes(self.state.procedures.now_ms, sentence):
            self.state.complain(sentence)
