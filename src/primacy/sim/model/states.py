"""The states of the bounded model: what may follow on each, and what must never be.

Free of charge, hence in every combination: whatever was sent at one moment arrives at a place in every order; and what
may happen by itself (a dead agent is started again, a sleeping one wakes, a cut is mended, a message that was held back
arrives) may happen at any moment. Work that was told to stop is gone at once, a little later, or when its hold ends.
What happens at different places at the same moment has no order that anybody could notice; it is tried in one order.

A disturbance is counted: a message is held back (for ever: it is lost) or repeated; an agent, or its whole machine, is
killed between any two effects of a step; a disk refuses to save; an agent is stopped just before it hears something; a
guard is killed; a node's ears, its mouth or both are cut, or one link; a leader is asked to step down, for other
members, or to cancel that; a memory is lost; a request to the store fails; another server takes over, with or without
the last commit; a dump of a commit or two ago is read into the running server; the rows are removed by hand. Redis has
no place for a dump (it is outside of the promise): its table is emptied, and the server follows another one and is
promoted again. To be overtaken within one moment by the answer to another message is to be held back, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from primacy.sim.model.values import DOWN, STORE, Ask, Fact, FreeRow, Move, Node, Packet, Phase, Setting, Spawn, Word
from primacy.sim.model.world import REFUSED, WHOLE, ModelWorld

NOWHERE = 9
"""In place of a place: nothing happens at this moment any more."""
ENDS_AFTER = (0, 2)
"""Work that was told to stop is gone after so many units, or clings to life until the end of its hold."""
FAIL_OVER, REMOVED = (("fail over", 0), ("fail over", 1)), (("rows removed", 0),)
WAYS_BACK: dict[str, tuple[tuple[str, int], ...]] = {
    "postgresql": (*FAIL_OVER, ("dump", 1), ("dump", 2), *REMOVED),
    "redis": (*FAIL_OVER, ("promoted again", 1), ("promoted again", 2), ("flush", 0), *REMOVED),
}
"""How a store loses commits, and how many. A folder or a snapshot put back is a fail-over that lost them (L5). The
model has no connections: what etcd and Kubernetes go by is not in it."""


class State(NamedTuple):
    """The model at one moment. Everything but the time is a number that stands for a value."""

    now: int
    nodes: tuple[int, ...]
    under_way: tuple[int, ...]
    """What arrives now, or when its hearer wakes."""
    coming: tuple[int, ...]
    """What was sent meanwhile: it arrives next, still at this moment."""
    held: tuple[int, ...]
    cut: int
    """The ways that are cut, one bit each, see `way`."""
    ledger: int
    store: int


class Ledger(NamedTuple):
    """What must be remembered of the past to judge the future."""

    token: int = 0
    """The largest one that work was started with."""
    leaders: tuple[tuple[int, int], ...] = ()
    """(term, node) of everybody that was elected."""
    votes: tuple[tuple[int, int, int], ...] = ()
    """(term, voter, candidate)."""


Event = tuple[Any, ...]
"""(what, number, ...): what leads from one state to the next."""


class Next(NamedTuple):
    """One possible next state, or the violation on the way to it."""

    event: Event
    state: State
    wrong: str = ""


def way(sender: int, receiver: int) -> int:
    return 1 << (sender * 4 + receiver)


def partitions(names: tuple[str, ...], stored: bool) -> dict[str, int]:
    """The cuts that are tried, by name."""
    everybody = range(len(names))
    found: dict[str, int] = {}
    for i in everybody:
        others = (STORE,) if stored else tuple(j for j in everybody if j != i)
        found[f"{names[i]} is deaf"] = sum(way(j, i) for j in others)
        found[f"{names[i]} is mute"] = sum(way(i, j) for j in others)
        found[f"{names[i]} is cut off"] = found[f"{names[i]} is deaf"] | found[f"{names[i]} is mute"]
    if not stored:
        for i in everybody:
            for j in range(i + 1, len(names)):
                found[f"{names[i]} and {names[j]} are cut from each other"] = way(i, j) | way(j, i)
    return found


class BoundedModel:
    """All states that can be reached from the first one, within the bounds of time and terms."""

    def __init__(self, setting: Setting, world: ModelWorld | None = None, *, terms: int = 2) -> None:
        self.world = world or ModelWorld(setting)
        self.numbers = self.world.numbers
        self.names = setting.names
        self.terms = terms
        self.until = 1 << 30
        """The last moment that is looked at."""
        store = setting.first_store()
        self.stored = store is not None
        self.ways_back = () if store is None else WAYS_BACK[store.engine.name]
        self.requests = setting.requests
        self.partitions = partitions(setting.names, self.stored)
        self.ledgers: list[Ledger] = []
        self._ledger_ids: dict[Ledger, int] = {}
        nodes = tuple(self.numbers.node(Node(i, DOWN, 0, setting.first_ballot(i))) for i in self.world.everybody)
        store_number = self.numbers.store(store) if store is not None else DOWN
        first = State(0, nodes, (), (), (), 0, self._ledger_number(Ledger()), store_number)
        for i in self.world.everybody:
            first = self.after(first, i, self.world.once(self.world.start, first.nodes[i], 0), ("restart", i)).state
        self.first = first

    # --- free of charge -----------------------------------------------------------------------------------------------

    def follow(self, state: State) -> Iterator[Next]:
        """Everything that may happen next without a disturbance."""
        place = self.place(state.now, state.nodes, state.under_way)
        before = DOWN
        for item in state.held:
            if item != before and (place in (NOWHERE, self.numbers.place[item])) and self._ready(state.nodes, item):
                rest = state._replace(held=less(state.held, item))
                yield self._arrive(rest, item, ("late", item))
            before = item
        if place == NOWHERE:
            yield from self._by_itself(state)
            return
        for item in self._here(state, place):
            yield self._arrive(state._replace(under_way=less(state.under_way, item)), item, ("hear", item))
        if self._is_due(state, place):
            move = self.world.once(self.world.wake, state.nodes[place], state.now, WHOLE, False)
            yield self.after(state, place, move, ("wake", place))

    def place(self, now: int, nodes: tuple[int, ...], under_way: tuple[int, ...]) -> int:
        """The first place where something happens now."""
        numbers = self.numbers
        found = NOWHERE
        for i, number in enumerate(nodes):
            if numbers.due[number] <= now:
                found = i
                break
        for item in under_way:
            place = numbers.place[item]
            if place < found and (not numbers.for_agent[item] or numbers.awake[nodes[place]]):
                found = place
        return found

    def _ready(self, nodes: tuple[int, ...], item: int) -> bool:
        return not self.numbers.for_agent[item] or self.numbers.awake[nodes[self.numbers.place[item]]]

    def _here(self, state: State, place: int) -> list[int]:
        """What arrives at this place now, equal things once."""
        numbers = self.numbers
        found = {item: True for item in state.under_way if numbers.place[item] == place}
        return [item for item in found if self._ready(state.nodes, item)]

    def _is_due(self, state: State, place: int) -> bool:
        return place != STORE and self.numbers.due[state.nodes[place]] <= state.now

    def _arrive(self, state: State, item: int, event: Event) -> Next:
        """At a node, or at the store."""
        place = self.numbers.place[item]
        if place == STORE:
            move = self.world.once(self.world.ask, state.store, item)
            asked = self.numbers.items[item]
            assert isinstance(asked, Ask | FreeRow)
            state = state._replace(store=move.after)
            return self.after(state, asked.sender, move._replace(after=state.nodes[asked.sender]), event)
        move = self.world.once(self.world.hear, state.nodes[place], state.now, item, WHOLE, False)
        return self.after(state, place, move, event)

    def _by_itself(self, state: State) -> Iterator[Next]:
        """Nothing more happens at this moment: time goes on, or one of the things that may happen at any moment."""
        world = self.world
        for i, number in enumerate(state.nodes):
            node = self.numbers.nodes[number]
            if node.machine == DOWN:
                yield self.after(state, i, world.once(world.start, number, state.now), ("restart", i))
            elif node.asleep:
                yield self.after(state, i, world.once(world.sleep, number, False), ("awake", i))
            for work in node.works:
                if work.phase is Phase.STOPPING and state.now - work.stopped in ENDS_AFTER:
                    yield self.after(state, i, world.once(world.end, number, work.term), ("end", i, work.term))
        if state.cut:
            yield Next(("mend",), state._replace(cut=0))
        if state.now < self.until:
            yield self._tick(state)

    def _tick(self, state: State) -> Next:
        """One unit of time: every guard looks at its points before anything else happens."""
        state = state._replace(now=state.now + 1)
        for i in self.world.everybody:
            number = state.nodes[i]
            if self.numbers.settles[number] or self.numbers.nodes[number].works:
                move = self.world.once(self.world.pass_time, state.nodes[i], state.now)
                state = self.after(state, i, move, ("tick",)).state
        return Next(("tick",), state)

    # --- disturbances -------------------------------------------------------------------------------------------------

    def disturb(self, state: State) -> Iterator[Next]:
        """Every way in which the ordinary course may be disturbed now."""
        place = self.place(state.now, state.nodes, state.under_way)
        if place == NOWHERE:
            yield from self._disturb_quiet(state)
            return
        for item in self._here(state, place):
            yield from self._disturb_arrival(state, item)
        if place == STORE:
            return
        number = state.nodes[place]
        if self._is_due(state, place):
            whole = self.world.once(self.world.wake, number, state.now, WHOLE, False)
            for crash_at, power in crashes(whole):
                move = self.world.once(self.world.wake, number, state.now, crash_at, power)
                if crash_at != REFUSED or move != whole:
                    yield self.after(state, place, move, ("crash", place, -1, crash_at, power))
        if self.numbers.awake[number]:
            yield self.after(state, place, self.world.once(self.world.sleep, number, True), ("asleep", place))

    def _disturb_arrival(self, state: State, item: int) -> Iterator[Next]:
        world = self.world
        thing = self.numbers.items[item]
        gone = state._replace(under_way=less(state.under_way, item))
        kept = gone._replace(held=more(state.held, item))
        if self.stored or not isinstance(thing, Word):  # what a guard says to its own agent is not lost
            yield Next(("hold", item), self._settled(kept))
        if isinstance(thing, Packet):
            yield self._arrive(kept, item, ("repeat", item))
        if isinstance(thing, Ask):
            refused = gone._replace(coming=more(state.coming, world.refuse(item)))
            yield Next(("refuse", item), self._settled(refused))
        if isinstance(thing, Packet | Word):
            number = state.nodes[thing.to]
            whole = world.once(world.hear, number, state.now, item, WHOLE, False)
            for crash_at, power in crashes(whole):
                move = world.once(world.hear, number, state.now, item, crash_at, power)
                if crash_at != REFUSED or move != whole:
                    yield self.after(gone, thing.to, move, ("crash", thing.to, item, crash_at, power))

    def _disturb_quiet(self, state: State) -> Iterator[Next]:
        world = self.world
        for i, number in enumerate(state.nodes):
            if not self.numbers.awake[number]:
                continue
            node = self.numbers.nodes[number]
            if self.numbers.leads[node.machine]:
                yield self.after(state, i, world.once(world.step_down, number, state.now), ("step down", i))
                for which, given in enumerate(self.requests):
                    move = world.once(world.request, number, state.now, given)
                    if move.after != number:
                        yield self.after(state, i, move, ("request", i, which))
            if self.requests and node.ballot is not None:
                yield self.after(state, i, world.once(world.forget, number, state.now), ("forget", i))
            for work in node.works:
                if work.phase is not Phase.SPAWNING and not work.lost:
                    move = world.once(world.lose_guard, number, state.now, work.term)
                    yield self.after(state, i, move, ("guard", i, work.term))
        if not state.cut:
            for name, ways in self.partitions.items():
                yield Next(("cut", name), state._replace(cut=ways))
        if self.stored:
            for way, commits in self.ways_back:
                move = world.once(world.go_back, state.store, way, commits)
                yield Next((way, commits), state._replace(store=move.after))

    # --- the next state -----------------------------------------------------------------------------------------------

    def after(self, state: State, i: int, move: Move, event: Event) -> Next:
        """Puts what a move at node i led to into the state, and judges it."""
        now, nodes, under_way, coming, held, cut, ledger, store = state
        was, number = nodes[i], move.after
        if number != was:
            nodes = (*nodes[:i], number, *nodes[i + 1 :])
            if self.numbers.nodes[number].machine == DOWN and self.numbers.nodes[was].machine != DOWN:
                under_way = tuple(item for item in under_way if not self._dies_with(i, item))
                coming = tuple(item for item in coming if not self._dies_with(i, item))
                held = tuple(x for x in held if isinstance(self.numbers.items[x], Packet) or not self._dies_with(i, x))
        for item in move.items:
            if self._travels(nodes, cut, i, item):
                under_way, coming = self._sent(nodes, under_way, coming, item)
        wrong = ""
        if move.facts:
            ledger, wrong = self.judge(state.nodes, ledger, move.facts)
        if coming and self.place(now, nodes, under_way) == NOWHERE:
            under_way, coming = tuple(sorted(under_way + coming)), ()
        return Next(event, State(now, nodes, under_way, coming, held, cut, ledger, store), wrong)

    def _settled(self, state: State) -> State:
        """Once everything under way has arrived, what was sent meanwhile is under way."""
        if state.coming and self.place(state.now, state.nodes, state.under_way) == NOWHERE:
            return state._replace(under_way=tuple(sorted(state.under_way + state.coming)), coming=())
        return state

    def _dies_with(self, i: int, item: int) -> bool:
        thing = self.numbers.items[item]
        return isinstance(thing, Packet | Word | Spawn) and thing.to == i

    def _travels(self, nodes: tuple[int, ...], cut: int, i: int, item: int) -> bool:
        """False for what is lost at once: the way is cut, or nobody is there to hear it."""
        thing = self.numbers.items[item]
        if isinstance(thing, Packet):
            return not cut & way(i, thing.to) and self.numbers.nodes[nodes[thing.to]].machine != DOWN
        if isinstance(thing, Word):
            cut_from_store = self.stored and cut & way(STORE, thing.to)
            return self.numbers.nodes[nodes[thing.to]].machine != DOWN and not cut_from_store
        return isinstance(thing, Spawn) or not cut & way(i, STORE)

    def _sent(
        self, nodes: tuple[int, ...], under_way: tuple[int, ...], coming: tuple[int, ...], item: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """A sleeping agent's socket keeps the newest message of each sender; everything else comes next."""
        thing = self.numbers.items[item]
        if isinstance(thing, Packet) and not self.numbers.awake[nodes[thing.to]]:
            sender = thing.message.origin.node
            under_way = tuple(x for x in under_way if not self._is_from(self.numbers.items[x], thing.to, sender))
            return more(under_way, item), coming
        return under_way, more(coming, item)

    def _is_from(self, thing: Any, to: int, sender: str) -> bool:
        return isinstance(thing, Packet) and thing.to == to and thing.message.origin.node == sender

    # --- what must never be -------------------------------------------------------------------------------------------

    def _ledger_number(self, ledger: Ledger) -> int:
        number = self._ledger_ids.get(ledger)
        if number is None:
            number = self._ledger_ids[ledger] = len(self.ledgers)
            self.ledgers.append(ledger)
        return number

    def judge(self, nodes: tuple[int, ...], number: int, facts: tuple[Fact, ...]) -> tuple[int, str]:
        ledger, found = self.ledgers[number], []
        for fact in facts:
            match fact:
                case ("work", i, token, left_ms):
                    found += self._wrong_start(nodes, ledger, i, token, left_ms)
                    ledger = ledger._replace(token=max(ledger.token, token))
                case ("elected", i, term):
                    others = [leader for known, leader in ledger.leaders if known == term and leader != i]
                    found += [f"I2: {self.names[other]} and {self.names[i]} both lead term {term}" for other in others]
                    ledger = ledger._replace(leaders=tuple(sorted({*ledger.leaders, (term, i)})))
                case ("vote", i, term, candidate):
                    voted = {other for known, who, other in ledger.votes if (known, who) == (term, i)} | {candidate}
                    if len(voted) > 1:
                        both = " and for ".join(self.names[other] for other in sorted(voted))
                        found.append(f"I3: {self.names[i]} voted for {both} in term {term}")
                    ledger = ledger._replace(votes=tuple(sorted({*ledger.votes, (term, i, candidate)})))
                case ("forgot", i):  # what it voted may be of a register that elects nobody any more (R8, R9)
                    ledger = ledger._replace(votes=tuple(v for v in ledger.votes if v[1] != i or _elected(ledger, v)))
                case ("bad", sentence):
                    found.append(f"I7: {sentence}")
        return self._ledger_number(ledger), "; ".join(found)

    def _wrong_start(self, nodes: tuple[int, ...], ledger: Ledger, i: int, token: int, left_ms: int) -> list[str]:
        """I1: beside work that runs. I4: with a token that is not the largest. I5: too late to be stopped in time."""
        mine = f"work {token} of {self.names[i]} started"
        found = [
            f"I1: {mine} beside work {work.token} of {self.names[j]}"
            for j, number in enumerate(nodes)
            for work in self.numbers.nodes[number].works
            if work.ran
        ]
        if token <= ledger.token:
            found.append(f"I4: {mine} after work {ledger.token}")
        return [*found, f"I5: {mine} with no time left to be stopped"] if left_ms <= 0 else found

    def is_beyond(self, state: State) -> bool:
        """Past the bound of terms: what follows is not looked at."""
        if len(self.ledgers[state.ledger].leaders) > self.terms:
            return True
        ballots = [self.numbers.nodes[number].ballot for number in state.nodes]
        return not self.stored and any(ballot is not None and ballot.term > self.terms for ballot in ballots)


def _elected(ledger: Ledger, vote: tuple[int, int, int]) -> bool:
    """Its candidate has won: of that quorum somebody remembers the term."""
    term, _, candidate = vote
    return (term, candidate) in ledger.leaders


def crashes(whole: Move) -> Iterator[tuple[int, bool]]:
    """After each effect, of the agent alone or of the whole machine; and a disk that refuses.

    A crash before the first effect is one after the last step, with the message lost: it is tried there.
    """
    for crash_at in range(1, whole.effects + 1):
        yield crash_at, False
        yield crash_at, True
    yield REFUSED, False


def less(items: tuple[int, ...], item: int) -> tuple[int, ...]:
    at = items.index(item)
    return items[:at] + items[at + 1 :]


def more(items: tuple[int, ...], item: int) -> tuple[int, ...]:
    return tuple(sorted((*items, item)))
