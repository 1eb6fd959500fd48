"""A model small enough to be known whole: three nodes, whole units of time, and nothing left to chance.

It performs the same machines as `sim/world/world.py`, but as a function: a node, the moment and what happens to it give
the next node and what leaves it. All values are numbered, so that a state of the model is a short tuple of small
numbers, and each different happening is computed once, however many states it occurs in. The values stand in
`values.py`; `states.py` says what may follow on a state; `exhaustive.py` searches all of them.

What is simpler than in `sim/world/world.py`:

- Time runs in whole units. A clock shows whole milliseconds, each of so many units, so that a slow one and a fast one
  differ by the whole drift ratio; every deadline is met exactly, or late if the agent sleeps.
- The guard has two points instead of four. From TERM of the hold on the work may end; at the end of the hold it is
  dead. KILL and the kernel's dead-man timer only choose a moment between the two.
- A disk keeps what it confirmed. A crash may fall between any two effects, and a save may be refused.
- Messages take no time unless they are held back; then they arrive at any later moment, or never.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from primacy.election.effects import AskStore, Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    DeadlinePassed,
    GuardLost,
    Input,
    PersistFailed,
    Received,
    RunLock,
    Started,
    StepDown,
    StoreAnswered,
    WorkGone,
    WorkStarted,
)
from primacy.election.messages import Ack, Heartbeat, Message, Release, VoteReply, VoteRequest
from primacy.election.model import Ballot, Leadership, Strategy
from primacy.election.store import StoreAnswer, holder_id
from primacy.sim.model.snapshot import fork
from primacy.sim.model.values import (
    DOWN,
    Ask,
    Fact,
    FreeRow,
    Item,
    Move,
    Node,
    Numbers,
    Packet,
    Phase,
    Setting,
    Spawn,
    Word,
    Work,
    changed,
)

WHOLE, REFUSED = -1, -2
"""In place of the effect that a crash falls before: no crash; no crash, but the disk refuses to save."""


class ModelWorld:
    """What can happen to a node or to the store. A rule of the guard that a test may take out is a method by itself."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.timing = setting.timing
        self.names = setting.names
        self.everybody = tuple(range(len(setting.names)))
        self.index = {name: index for index, name in enumerate(self.names)}
        self.numbers = Numbers(setting)
        self._moves: dict[Any, Move] = {}

    def once(self, how: Callable[..., Move], *what: Any) -> Move:
        """Each happening is computed once."""
        key = (how.__name__, *what)
        move = self._moves.get(key)
        if move is None:
            move = self._moves[key] = how(*what)
        return move

    def local_ms(self, index: int, now: int) -> int:
        return (now + self.numbers.phases[index]) // self.numbers.periods[index]

    def boot(self, node: Node) -> int:
        """The random number of its present start, which is not random here."""
        return 100 * (node.who + 1) + node.boots

    # --- what can happen to a node ------------------------------------------------------------------------------------

    def start(self, number: int, now: int) -> Move:
        """A boot, with what the disk has."""
        node = self.numbers.nodes[number]
        node = node._replace(boots=node.boots + 1, asleep=False)
        machine = self.setting.make(node.who, self.boot(node), node.ballot)
        return self._step(node, machine, now, Started(now, bool(node.works)), WHOLE, False)

    def hear(self, number: int, now: int, item: int, crash_at: int, power: bool) -> Move:
        """Something arrives. With `crash_at`, the agent, or its machine, dies before the effect of that number."""
        node, thing = self.numbers.nodes[number], self.numbers.items[item]
        match thing:
            case Packet(_, message):
                return self._tell(node, now, Received(message), crash_at, power)
            case Word(_, boot, given) if boot == self.boot(node):
                return self._tell(node, now, given, crash_at, power)
            case Spawn(_, term):
                return self._spawn(node, now, term)
        return Move(number)

    def wake(self, number: int, now: int, crash_at: int, power: bool) -> Move:
        """Its deadline has come."""
        return self._tell(self.numbers.nodes[number], now, DeadlinePassed(), crash_at, power)

    def step_down(self, number: int, now: int) -> Move:
        """An operator asks for it."""
        return self._tell(self.numbers.nodes[number], now, StepDown(), WHOLE, False)

    def request(self, number: int, now: int, given: Input) -> Move:
        """An operator asks for other members, or cancels a change of them."""
        return self._tell(self.numbers.nodes[number], now, given, WHOLE, False)

    def forget(self, number: int, now: int) -> Move:
        """The agent is killed and its ballot is gone; its guard stops the work."""
        doing = Doing(self, self.numbers.nodes[number], now)
        doing.crash(power=False)
        return Move(self.numbers.node(doing.node._replace(ballot=None)), (), (("forgot", doing.node.who),))

    def lose_power(self, number: int, now: int) -> Move:
        """The whole machine is off; its disk has what it confirmed."""
        doing = Doing(self, self.numbers.nodes[number], now)
        doing.crash(power=True)
        return Move(self.numbers.node(doing.node))

    def pass_time(self, number: int, now: int) -> Move:
        """A unit of time has passed: the guards look at their points, and machines may have become equal."""
        node = self.numbers.nodes[number]
        items: list[Item] = []
        local_ms = self.local_ms(node.who, now)
        if node.machine != DOWN:
            node = node._replace(machine=self.numbers.later(node.machine, local_ms))
        for work in node.works:
            if work.phase is not Phase.SPAWNING and local_ms >= work.hold_from_ms + self.timing.hold_ms:
                node, told = self._gone(node, work)
                items += told
            elif work.phase is Phase.RUNNING and local_ms >= work.hold_from_ms + self.timing.term_at_ms:
                node = changed(node, work, work._replace(phase=Phase.STOPPING, stopped=now))
        return self._move(node, items)

    def end(self, number: int, term: int) -> Move:
        """Work that was told to stop is gone."""
        node = self.numbers.nodes[number]
        return self._move(*self._gone(node, next(work for work in node.works if work.term == term)))

    def lose_guard(self, number: int, now: int, term: int) -> Move:
        """The guard of this term is killed: its tree dies with it, by the end of the hold at the latest."""
        node = self.numbers.nodes[number]
        work = next(work for work in node.works if work.term == term)
        node = changed(node, work, work._replace(lost=True, phase=Phase.STOPPING, stopped=now))
        return self._move(node, [Word(node.who, work.boot, GuardLost(term))])

    def sleep(self, number: int, asleep: bool) -> Move:
        """The agent is stopped, or goes on. Its guard is not."""
        return Move(self.numbers.node(self.numbers.nodes[number]._replace(asleep=asleep)))

    # --- what can happen to the store ---------------------------------------------------------------------------------

    def ask(self, store: int, item: int) -> Move:
        """A request arrives; its answer is on its way."""
        after = fork(self.numbers.stores[store])
        asked = self.numbers.items[item]
        told: list[Item] = []
        if isinstance(asked, Ask):
            answer = after.perform(asked.request)
            told = [Word(asked.sender, asked.boot, StoreAnswered(asked.number, answer))]
        elif isinstance(asked, FreeRow):
            for name in sorted(after.rows):
                after.release(name, asked.holder, asked.token, asked.successor)
        return Move(self.numbers.store(after), self._numbered(told))

    def refuse(self, item: int) -> int:
        """The request fails, and its sender is told so."""
        asked = self.numbers.items[item]
        assert isinstance(asked, Ask)
        answer = StoreAnswer(ok=False, reason="refused")
        return self.numbers.item(Word(asked.sender, asked.boot, StoreAnswered(asked.number, answer)))

    def go_back(self, store: int, way: str, commits: int) -> Move:
        """Another server answers, a dump is read into this one, or a person removes the rows: commits are lost (L5)."""
        after = fork(self.numbers.stores[store])
        if way == "fail over":
            after.fail_over(commits)
        elif way == "promoted again":
            after.promote_again(commits)
        elif way == "dump":
            after.read_dump(after.earlier(commits), anew=False)
        elif way == "flush":
            after.empty()
        else:
            after.by_hand(*((name, None) for name in after.rows))
        return Move(self.numbers.store(after))

    # --- performing ---------------------------------------------------------------------------------------------------

    def _numbered(self, items: list[Item]) -> tuple[int, ...]:
        return tuple(self.numbers.item(item) for item in items)

    def _move(self, node: Node, items: list[Item]) -> Move:
        return Move(self.numbers.node(node), self._numbered(items))

    def _tell(self, node: Node, now: int, given: Input, crash_at: int, power: bool) -> Move:
        if node.machine == DOWN:
            return Move(self.numbers.node(node))
        return self._step(node, fork(self.numbers.machines[node.machine]), now, given, crash_at, power)

    def _step(self, node: Node, machine: Strategy, now: int, given: Input, crash_at: int, power: bool) -> Move:
        local_ms = self.local_ms(node.who, now)
        doing = Doing(self, node, now)
        effects = [effect for effect in machine.step(local_ms, given) if doing.notes(effect)]
        for place, effect in enumerate(effects):
            if place == crash_at:
                break
            if crash_at == REFUSED and isinstance(effect, Persist):
                for other in machine.step(local_ms, PersistFailed("the disk is full")):
                    doing.perform(other)
                break
            doing.perform(effect)
        if crash_at >= 0:
            doing.crash(power)
        else:
            doing.node = doing.node._replace(machine=self.numbers.machine(machine, local_ms))
        return Move(self.numbers.node(doing.node), self._numbered(doing.items), tuple(doing.facts), len(effects))

    def _spawn(self, node: Node, now: int, term: int) -> Move:
        """The child runs, unless the time for it is over; the agent hears of it at once, or when it wakes."""
        work = next((work for work in node.works if work.term == term and work.phase is Phase.SPAWNING), None)
        if work is None:
            return Move(self.numbers.node(node))
        local_ms = self.local_ms(node.who, now)
        if local_ms >= work.hold_from_ms + self.timing.term_at_ms:
            return self._move(*self._gone(node, work))
        fact = ("work", node.who, work.token, work.hold_from_ms + self.timing.kill_at_ms - local_ms)
        node = changed(node, work, work._replace(phase=Phase.RUNNING, ran=True))
        if node.asleep:
            return self._move(node, [Word(node.who, work.boot, WorkStarted(term))])._replace(facts=(fact,))
        told = self._tell(node, now, WorkStarted(term), WHOLE, False)
        return told._replace(facts=(fact, *told.facts))

    def _gone(self, node: Node, work: Work) -> tuple[Node, list[Item]]:
        """The tree is gone: the release leaves, if it may; the agent hears of it, or finds the run lock free."""
        items: list[Item] = []
        works = tuple(other for other in node.works if other is not work)
        released = self.may_release(node, work)
        if released:
            items += self.release_items(node, work)
        if node.machine != DOWN:
            boot = self.boot(node)
            if boot == work.boot and not work.lost:
                items.append(Word(node.who, boot, WorkGone(work.term, released)))
            elif not works:
                items.append(Word(node.who, boot, RunLock(False)))
        return node._replace(works=works), items

    def may_release(self, node: Node, work: Work) -> bool:
        """The agent ordered it, or is dead; the work ran; and the guard lives (G5, G7)."""
        agent_gone = node.machine == DOWN or self.boot(node) != work.boot
        return work.ran and not work.lost and (work.ordered or agent_gone)

    def ordered(self, node: Node, work: Work) -> list[Item]:  # noqa: ARG002  (a mutant releases here)
        """What leaves as soon as a release is ordered: nothing, for the work is not gone yet (G5)."""
        return []

    def release_items(self, node: Node, work: Work) -> list[Item]:
        """The release, to every other node (raft), or to the store (lease)."""
        if work.release is None:
            return [FreeRow(node.who, holder_id(self.names[node.who], work.boot), work.token, work.successor)]
        release = work.release._replace(successor=work.successor)
        return [Packet(index, release) for index in self.everybody if index != node.who]


class Doing:
    """The effects of one step, performed one by one."""

    def __init__(self, world: ModelWorld, node: Node, now: int) -> None:
        self.world = world
        self.node = node
        self.now = now
        self.name = world.names[node.who]
        self.items: list[Item] = []
        self.facts: list[Fact] = []

    def notes(self, effect: Effect) -> bool:
        """Keeps what was recorded; True for an effect that does something."""
        if not isinstance(effect, Record):
            return True
        if effect.event.code is Code.ELECTED:
            self.facts.append(("elected", self.node.who, effect.event.term))
        return False

    def perform(self, effect: Effect) -> None:
        match effect:
            case Persist(ballot):
                before = self.node.ballot
                if before is not None and ballot.term < before.term:
                    self.facts.append(("bad", f"{self.name} saved term {ballot.term} over term {before.term}"))
                self._check_register(before, ballot)
                self.node = self.node._replace(ballot=ballot)
            case Send(to, message):
                self._check_order(to, message)
                self.items.append(Packet(self.world.index[to], message))
            case Start(leadership, release, _):
                self._start(leadership, release)
            case Extend(leadership):
                self._extend(leadership)
            case Stop(term, _, _):
                self._stop(term)
            case OrderRelease(term, successor):
                self._order(term, successor)
            case AskStore(number, request):
                self.items.append(Ask(self.node.who, self.world.boot(self.node), number, request))
            case Record():
                self.notes(effect)

    def _check_order(self, to: str, message: Message) -> None:
        """What a vote, an ack or a heartbeat relies on stands on the disk before it leaves (I7)."""
        named = message.origin.members
        if named != (0, 0):
            ballot = self.node.ballot
            if ballot is None or ballot.register is None or ballot.register.id < named:
                self.facts.append(("bad", f"{self.name} named the members {named} before they were durable"))
        if isinstance(message, Ack | Heartbeat):
            if self.node.ballot is None or self.node.ballot.term < message.term:
                kind = type(message).__name__.lower()
                self.facts.append(("bad", f"{self.name} let a {kind} of term {message.term} go before it was durable"))
        elif isinstance(message, VoteReply) and message.granted and not message.pre:
            self._check_vote(message.asked, to)
        elif isinstance(message, VoteRequest) and not message.pre:
            self._check_vote(message.term, self.name)

    def _check_register(self, before: Ballot | None, ballot: Ballot) -> None:
        """A register is never exchanged for an older one (I9)."""
        was, now = before.register if before is not None else None, ballot.register
        if was is not None and now is not None and now.id < was.id:
            self.facts.append(("bad", f"{self.name} saved the members {now.id} over {was.id}"))

    def _check_vote(self, term: int, candidate: str) -> None:
        """Whoever says that it voted, for another or by standing itself, has it on its disk."""
        self.facts.append(("vote", self.node.who, term, self.world.index[candidate]))
        ballot = self.node.ballot
        if ballot is None or (ballot.term, ballot.voted_for) != (term, candidate):
            self.facts.append(("bad", f"{self.name} let its vote of term {term} go before it was durable"))

    def _work(self, term: int) -> Work | None:
        """The work of this boot and term, if its guard still hears."""
        boot = self.world.boot(self.node)
        return next((w for w in self.node.works if (w.term, w.boot, w.lost) == (term, boot, False)), None)

    def _start(self, leadership: Leadership, release: Release | None) -> None:
        from_ms = leadership.valid_until_ms - self.world.timing.hold_ms
        work = Work(leadership.term, leadership.token, self.world.boot(self.node), from_ms, release)
        self.node = self.node._replace(works=(*self.node.works, work))
        self.items.append(Spawn(self.node.who, work.term))

    def _extend(self, leadership: Leadership) -> None:
        """Only for a later deadline (G1)."""
        work = self._work(leadership.term)
        if work is not None:
            from_ms = max(work.hold_from_ms, leadership.valid_until_ms - self.world.timing.hold_ms)
            self.node = changed(self.node, work, work._replace(hold_from_ms=from_ms))

    def _stop(self, term: int) -> None:
        work = self._work(term)
        if work is None:
            return
        if work.phase is Phase.SPAWNING:
            self.node, items = self.world._gone(self.node, work)
            self.items += items
        elif work.phase is Phase.RUNNING:
            self.node = changed(self.node, work, work._replace(phase=Phase.STOPPING, stopped=self.now))

    def _order(self, term: int, successor: str) -> None:
        work = self._work(term)
        if work is not None:
            told = work._replace(ordered=True, successor=successor)
            self.node = changed(self.node, work, told)
            self.items += self.world.ordered(self.node, told)

    def crash(self, power: bool) -> None:
        """The agent is dead. Its guard stops the work; or everything on the machine is gone with the power."""
        ran = [work for work in self.node.works if work.phase is not Phase.SPAWNING]
        dying = tuple(
            work._replace(phase=Phase.STOPPING, stopped=self.now) if work.phase is Phase.RUNNING else work
            for work in ran
        )
        self.node = self.node._replace(machine=DOWN, asleep=False, works=() if power else dying)
