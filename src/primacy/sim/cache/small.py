"""Every order of events in a small world of the cache: few peers, one key, tiny times, nothing left to chance.

The real machine of mode `own`. Free, hence in every combination: whatever is under way at one moment arrives at a peer
in every order; what was held back arrives at any later moment, or never; clients ask at any moment; a source answers at
any moment of its hold or not at all. What happens at different peers at the same moment is tried in one order, because
nobody could notice another. A disturbance is counted: a message is held back (to be overtaken within one moment by the
answer to another message is to be held back, too), a peer restarts. Judged are S1, S2 and S4, as in the trials.

What bounds it: peers, disturbances, ballots (elections in all), ANNOUNCEs per ballot, restarts, clients. Time has no
bound: a machine is compared by its times relative to its clock, so that what repeats is one state. Within these bounds
the search is complete, and says so. Clocks run alike. Peers are always in touch. Refusals are always lost, nothing is
repeated, and a value travels by UPDATE to all, not by ENTRYREQ; the trials have all of these. Terms are small: wall
time lifts nothing, so that all of S2 and S4 rests on what is remembered.

    python -m primacy.sim.cache.small --peers 3 --ballots 2 --announces 2 --restarts 2
"""

from __future__ import annotations

import gc
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from primacy.cache import effects as e
from primacy.cache.inputs import Asked, CeilingStored, Input, Received, SourceEnded, Started, TimerPassed
from primacy.cache.messages import Ack, Announce, Answer, EntryRequest, Message, Ping, Pong, Question, Update
from primacy.cache.model import ALL, Ballot, CacheSettings, Failure, Fetched, Meta, PeerAddress, SourceSettings, order
from primacy.cache.own import OwnMachine
from primacy.cache.own_parts import Ceiling
from primacy.settings.timing_cache import CacheTiming
from primacy.sim.model.settings import Steady
from primacy.sim.model.snapshot import fork

KEY = b"k"
WALL_MS = 1
"""Unix time stands still: nothing expires, and no term is lifted by it."""
FAR = 1_000_000
TIMES = CacheTiming(
    announce_ms=2,
    hold_ms=3,
    cancel_at_ms=2,
    promise_ms=3,
    election_ms=1,
    question_repeat_ms=FAR,
    spread_ms=0,
    touch_ms=FAR,
    ping_ms=FAR,
    ping_lost_ms=FAR,
    entry_ms=FAR,
    ceiling_ahead_ms=0,
    skew_max_ms=0,
    keepalive_ms=2_000,
    backoff_ms=1,
    backoff_max_ms=1,
    drift_ppm=0,
)
SETTINGS = CacheSettings(timing=TIMES, sources=(SourceSettings(ttl_ms=FAR),), wait_max_ms=10 * FAR)
SEEN = ("boot", "base_term", "base_epoch", "silent_until_ms", "metas", "keys", "ceiling", "_deferred")
"""Fields of a machine that decide something here, beside the clients that wait. The others are fixed (settings), follow
from these (timers), serve people (counts), or concern what this world does not have (touch, lists, floors)."""
SINCE = frozenset({"asked_ms", "won_ms", "hold_from_ms", "departed"})
"""Moments from which something counts; all others are moments until which, and are alike once they have passed."""
OLD, LATE = -TIMES.hold_ms - 1, 50
"""Moments further back, or further ahead, are all alike: no interval above is longer."""


class Scope(NamedTuple):
    """How far the search goes."""

    peers: int = 3
    ballots: int = 2
    announces: int = 2
    """Per ballot."""
    restarts: int = 2
    disturbances: int = 3
    askers: tuple[int, ...] = (0, 1)
    """Which peers have clients. The first asks at the beginning, before which nothing happens; the others at any
    moment, each once."""
    results: bool = True
    """False: a source never answers, and its calls last as long as they may. For S1, which is then judged alone."""
    forgets: bool = False
    """A restart loses everything: then S1 is judged alone."""
    states: int = 10_000_000


class Shell(NamedTuple):
    """One peer: its machine, what its disk has, and its calls."""

    machine: int
    boot: int
    ceiling: int | None
    meta: Meta | None
    calls: tuple[tuple[Ballot, int], ...]
    """With the time after which each is over at the latest."""


class SearchState(NamedTuple):
    """The world at one moment. Shells and messages are numbers that stand for values."""

    shells: tuple[int, ...]
    sent: int
    """One bit for each message that arrives now."""
    coming: int
    """Those that were sent meanwhile: they arrive next, still at this moment."""
    held: int
    """Those that were held back."""
    left: int
    """Disturbances that may still happen."""
    asks: tuple[int, ...]
    """Peers whose client has not asked yet."""
    restarts: int
    ballots: int = 0
    """For which a QUESTION was sent."""
    announced: int = 0
    """The highest number of an ANNOUNCE."""
    highest: tuple[int, int, int] = (0, 0, 0)
    """Epoch of the latest call."""


Event = tuple[Any, ...]


class CacheSearchResult(NamedTuple):
    """What a search came to."""

    states: int
    events: int
    seconds: float
    complete: bool
    wrong: str = ""
    story: tuple[str, ...] = ()
    calls: int = 0
    """States in which a call runs: the bounds are wide enough to matter."""
    second: int = 0
    """States after a second call has begun under a higher epoch."""


Maker = type[OwnMachine]


class _InTouch:
    """What this world leaves out of a machine."""

    def _ping(self) -> None:
        self._ping_ms = FAR * FAR

    def _reachable(self) -> bool:
        return True

    def _vouched(self, _epoch: Ballot) -> bool:
        return True

    def _said_lately(self, _mark: Any) -> bool:
        return False


class SmallCache:
    """All states of a scope, and what follows on each."""

    def __init__(self, scope: Scope, maker: Maker = OwnMachine) -> None:
        self.scope = scope
        self.maker: Any = type(maker.__name__, (_InTouch, maker), {})
        self.urls = tuple(f"p{n}" for n in range(scope.peers))
        self.addresses = tuple(PeerAddress(url, url) for url in self.urls)
        self._machines: list[tuple[Any, int]] = []
        """With the moment of its clock."""
        self._ticks: dict[int, int] = {}
        self._known: dict[Any, int] = {}
        self._shells: list[Shell] = []
        self._shell_numbers: dict[Shell, int] = {}
        self._messages: list[tuple[int, str, Message]] = []
        """Receiver, sender, message."""
        self._message_numbers: dict[tuple[int, str, Message], int] = {}
        self._to = [0] * scope.peers
        """The messages to each peer, as bits."""
        self._dead: dict[tuple[int, int], int] = {}
        self._steps: dict[tuple[int, Input], tuple[int, tuple[e.Effect, ...]]] = {}
        self.wrong = ""

    # --- values as numbers --------------------------------------------------------------------------------------------

    def _machine_number(self, machine: Any, now: int) -> int:
        key = _frozen(machine, now)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self._machines)
            self._machines.append((machine, now))
        return number

    def _shell_number(self, shell: Shell) -> int:
        number = self._shell_numbers.get(shell)
        if number is None:
            number = self._shell_numbers[shell] = len(self._shells)
            self._shells.append(shell)
        return number

    def _message_bit(self, receiver: int, sender: str, message: Message) -> int:
        known = (receiver, sender, message)
        number = self._message_numbers.get(known)
        if number is None:
            number = self._message_numbers[known] = len(self._messages)
            self._messages.append(known)
            self._to[receiver] |= 1 << number
        return 1 << number

    def shell(self, number: int) -> Shell:
        return self._shells[number]

    # --- steps --------------------------------------------------------------------------------------------------------

    def _step(self, machine: int, given: Input) -> tuple[int, tuple[e.Effect, ...]]:
        found = self._steps.get((machine, given))
        if found is None:
            known, now = self._machines[machine]
            copy = fork(known)
            effects = tuple(_relative(effect, now) for effect in copy.step(now, WALL_MS, given))
            found = self._steps[machine, given] = (self._machine_number(copy, now), effects)
        return found

    def _tick(self, state: SearchState) -> SearchState:
        """One unit of time passes, for all."""
        shells = []
        for number in state.shells:
            shell = self._shells[number]
            machine = self._ticks.get(shell.machine)
            if machine is None:
                known, now = self._machines[shell.machine]
                machine = self._ticks[shell.machine] = self._machine_number(known, now + 1)
            calls = tuple((ballot, left - 1) for ballot, left in shell.calls)
            shells.append(self._shell_number(shell._replace(machine=machine, calls=calls)))
        return state._replace(shells=tuple(shells))

    def after(self, state: SearchState, place: int, given: Input, shell: Shell | None = None) -> SearchState:
        """One peer is told something."""
        shell = shell or self._shells[state.shells[place]]
        machine, effects = self._step(shell.machine, given)
        return self._perform(state, place, shell._replace(machine=machine), effects)

    def _perform(self, state: SearchState, place: int, shell: Shell, effects: Sequence[e.Effect]) -> SearchState:
        sent, highest, ballots, announced = state.coming, state.highest, state.ballots, state.announced
        told: list[Input] = []
        for effect in effects:
            match effect:
                case e.Send(to, message):
                    sent |= self._send(place, to, message)
                    ballots += isinstance(message, Question)
                    if isinstance(message, Announce) and message.trailer is not None:
                        announced = max(announced, message.trailer.number)
                case e.SendEntry(to, message, meta) if isinstance(message, Update):
                    if shell.meta is not None and shell.meta.epoch == meta.epoch:
                        sent |= self._send(place, to, message._replace(value=b"v"))
                case e.StoreEntry(_, meta) | e.StoreMeta(_, meta) | e.DropValue(_, meta):
                    shell = self._store(shell, meta)
                case e.StoreCeiling(ceiling):
                    shell = shell._replace(ceiling=max(ceiling, shell.ceiling or 0))
                    told.append(CeilingStored(ceiling))
                case e.Call(_, ballot, _, over_at_ms):
                    highest = self._call(state, place, shell, ballot)
                    shell = shell._replace(calls=(*shell.calls, (ballot, over_at_ms)))
                case e.Extend(_, ballot, _, over_at_ms):
                    calls = ((b, max(at, over_at_ms) if b == ballot else at) for b, at in shell.calls)
                    shell = shell._replace(calls=tuple(calls))
        shells = list(state.shells)
        shells[place] = self._shell_number(shell)
        state = state._replace(shells=tuple(shells), coming=sent, ballots=ballots, announced=announced, highest=highest)
        for given in told:
            state = self.after(state, place, given)
        alive = self._alive(state.sent | state.coming | state.held, place, state.shells[place])
        return state._replace(sent=state.sent & alive, coming=state.coming & alive, held=state.held & alive)

    def _alive(self, sent: int, place: int, shell: int) -> int:
        """Without what can never again change this hearer."""
        known = (sent & self._to[place], shell)
        dead = self._dead.get(known)
        if dead is None:
            machine = self._machines[self._shells[shell].machine][0]
            dead, rest = 0, known[0]
            while rest:
                bit = rest & -rest
                rest ^= bit
                if self._is_dead(machine, self._messages[bit.bit_length() - 1][2]):
                    dead |= bit
            self._dead[known] = dead
        return sent & ~dead

    def _is_dead(self, machine: Any, message: Message) -> bool:
        """Answers and acks to a ballot that is over; what asks for a promise below one that was given."""
        assert message.trailer is not None
        ballot = message.trailer.ballot
        state = machine.keys.get(KEY)
        if isinstance(message, Ack | Answer) and ballot.peer == machine.me:
            mine = [] if state is None else [one.ballot for one in (state.candidacy, state.claim) if one is not None]
            return ballot not in mine
        if isinstance(message, Question | Announce) and not self.scope.forgets:
            promised = (machine.base_term, LATE, 0) if state is None else order(KEY, state.promised)
            return order(KEY, ballot) < promised or ballot.term <= machine.base_term
        return False

    def _send(self, place: int, to: str, message: Message) -> int:
        if isinstance(message, Ping | Pong | EntryRequest):
            return 0
        if (
            isinstance(message, Answer)
            and not message.vote
            and message.trailer is not None
            and not message.trailer.ended
        ):
            return 0
        receivers = [n for n, url in enumerate(self.urls) if n != place and to in (ALL, url)]
        bits = 0
        for receiver in receivers:
            bits |= self._message_bit(receiver, self.urls[place], message)
        return bits

    # --- judging ------------------------------------------------------------------------------------------------------

    def _call(self, state: SearchState, place: int, shell: Shell, ballot: Ballot) -> tuple[int, int, int]:
        for other, number in enumerate(state.shells):
            calls = shell.calls if other == place else self._shells[number].calls
            if any(left > 0 for _, left in calls):
                self.wrong = f"S1: {self.urls[place]} sources while {self.urls[other]} does"
        epoch = order(KEY, ballot)
        if epoch <= state.highest and not self.scope.forgets:
            self.wrong = f"S4: {self.urls[place]} sources under {ballot.term}, not above an earlier call"
        return max(epoch, state.highest)

    def _store(self, shell: Shell, meta: Meta) -> Shell:
        before = shell.meta
        if before is not None and order(KEY, meta.epoch) < order(KEY, before.epoch) and not self.scope.forgets:
            self.wrong = f"S2: a value of {before.epoch} is replaced by the older {meta.epoch}"
        return shell._replace(meta=meta)

    # --- the beginning and the end ------------------------------------------------------------------------------------

    def first(self) -> SearchState:
        """Every peer has been started, and its first silence is over."""
        blank = self._shell_number(Shell(-1, 0, None, None, ()))
        left = self.scope.disturbances
        state = SearchState((blank,) * self.scope.peers, 0, 0, 0, left, self.scope.askers, self.scope.restarts)
        for place in range(self.scope.peers):
            state = self._start(state, place)
        for _ in range(TIMES.promise_ms):
            state = self._tick(state)
        return self._asked(state, self.scope.askers[0])

    def _asked(self, state: SearchState, place: int) -> SearchState:
        asks = tuple(one for one in state.asks if one != place)
        return self.after(state._replace(asks=asks), place, Asked(1, KEY, after_ms=WALL_MS))

    def _start(self, state: SearchState, place: int) -> SearchState:
        shell = self._shells[state.shells[place]]
        boot = shell.boot + 1
        machine = self.maker(self.urls[place], self.addresses, SETTINGS, Steady(0.0))
        kept = {} if shell.meta is None else {KEY: shell.meta}
        effects = [_relative(effect, 0) for effect in machine.step(0, WALL_MS, Started(boot, kept, (), shell.ceiling))]
        shell = Shell(self._machine_number(machine, 0), boot, shell.ceiling, shell.meta, ())
        return self._perform(state, place, shell, effects)

    def is_beyond(self, state: SearchState) -> bool:
        return state.ballots > self.scope.ballots or state.announced > self.scope.announces

    # --- what may follow ----------------------------------------------------------------------------------------------

    def follow(self, state: SearchState) -> Iterator[tuple[Event, SearchState]]:
        """Everything that may happen next: first what arrives, at one peer after the other."""
        for mine in self._to:
            if state.sent & mine:
                yield from self._arrives(state, state.sent & mine)
                return
        if state.coming:
            yield ("round",), state._replace(sent=state.coming, coming=0)
            return
        yield from self._hears(state, state.held, "late")
        waits = False
        for place, number in enumerate(state.shells):
            shell = self._shells[number]
            machine, now = self._machines[shell.machine]
            if machine.deadline_ms is not None and machine.deadline_ms <= now:
                waits = True
                yield ("timer", place), self.after(state, place, TimerPassed())
            for ballot, left in shell.calls:
                yield from self._ends(state, place, shell, ballot, left)
                waits = waits or left <= 0
            if place in state.asks:
                yield ("ask", place), self._asked(state, place)
            if state.restarts and state.left:
                yield ("restart", place), self._restarted(state, place, shell)
        if not waits:
            yield ("tick",), self._tick(state)

    def _arrives(self, state: SearchState, bits: int) -> Iterator[tuple[Event, SearchState]]:
        yield from self._hears(state, bits, "hear")
        while bits and state.left:
            bit = bits & -bits
            bits ^= bit
            rest = state._replace(sent=state.sent & ~bit, held=state.held | bit, left=state.left - 1)
            yield ("held", bit.bit_length() - 1), rest

    def _hears(self, state: SearchState, bits: int, what: str) -> Iterator[tuple[Event, SearchState]]:
        """One of these messages is heard."""
        while bits:
            bit = bits & -bits
            bits ^= bit
            number = bit.bit_length() - 1
            receiver, sender, message = self._messages[number]
            gone = state._replace(sent=state.sent & ~bit, held=state.held & ~bit)
            yield (what, number), self.after(gone, receiver, Received(sender, message))

    def _ends(
        self, state: SearchState, place: int, shell: Shell, ballot: Ballot, left: int
    ) -> Iterator[tuple[Event, SearchState]]:
        """The source answers, at any moment of the hold; or the call is ended with it."""
        rest = shell._replace(calls=tuple(call for call in shell.calls if call[0] != ballot))
        result: Fetched | Failure = Fetched(b"v")
        if self.scope.results:
            yield ("result", place), self.after(state, place, SourceEnded(KEY, ballot, result), rest)
        if left <= 0:
            result = Failure("over")
            yield ("over", place), self.after(state, place, SourceEnded(KEY, ballot, result), rest)

    def _restarted(self, state: SearchState, place: int, shell: Shell) -> SearchState:
        if self.scope.forgets:
            shell = shell._replace(ceiling=None, meta=None)
        shells = list(state.shells)
        shells[place] = self._shell_number(shell._replace(calls=()))
        return self._start(
            state._replace(shells=tuple(shells), restarts=state.restarts - 1, left=state.left - 1), place
        )

    # --- telling ------------------------------------------------------------------------------------------------------

    def told(self, event: Event) -> str:
        match event:
            case ("hear" | "late" | "held", number):
                receiver, sender, message = self._messages[number]
                trailer = message.trailer
                assert trailer is not None
                about = f"of ({trailer.ballot.term}, {trailer.ballot.peer}, boot {trailer.ballot.boot})"
                what = f"{type(message).__name__} {trailer.number or ''} {about}"
                verb = {"hear": "hears", "late": "hears, late, of", "held": "does not hear yet"}[event[0]]
                return f"{self.urls[receiver]} {verb} {sender}: {what}"
            case ("round",):
                return ""
            case ("tick",):
                return "time passes"
            case (what, place):
                return f"{self.urls[place]}: {what}"
        return ""


def search(scope: Scope, maker: Maker = OwnMachine) -> CacheSearchResult:
    """All states of the scope, the nearest first, until a violation or the bound on states."""
    began = time.perf_counter()
    world = SmallCache(scope, maker)
    first = world.first()
    parents: dict[SearchState, tuple[SearchState, Event] | None] = {first: None}
    level, events, calls, second = [first], 0, 0, 0
    gc.collect()
    gc.freeze()
    gc.disable()  # tuples and numbers: there are no cycles to look for
    try:
        while level and len(parents) < scope.states:
            after: list[SearchState] = []
            for state in level:
                for event, following in world.follow(state):
                    events += 1
                    if world.wrong:
                        parents[following] = (state, event)
                        story = tuple(_story(world, parents, following))
                        return CacheSearchResult(
                            len(parents), events, time.perf_counter() - began, False, world.wrong, story
                        )
                    if following in parents:
                        continue
                    parents[following] = (state, event)
                    running = any(world.shell(number).calls for number in following.shells)
                    calls += running
                    second += running and following.highest > state.highest > (0, 0, 0)
                    if not world.is_beyond(following):
                        after.append(following)
            level = after
    finally:
        gc.enable()
        gc.unfreeze()
    seconds = time.perf_counter() - began
    return CacheSearchResult(len(parents), events, seconds, not level, "", (), calls, second)


def _story(
    world: SmallCache, parents: dict[SearchState, tuple[SearchState, Event] | None], state: SearchState
) -> list[str]:
    lines: list[str] = []
    while (step := parents[state]) is not None:
        before, event = step
        lines += [line] if (line := world.told(event)) else []
        state = before
        if len(lines) > 1_000:
            break
    return lines[::-1]


def _frozen(machine: Any, now: int) -> Any:
    """Everything that the machine's future depends on here."""
    return (machine.me, machine.waiting.keys(), *(_plain(name, getattr(machine, name), now) for name in SEEN))


def _plain(name: str, value: Any, now: int) -> Any:
    """A value to compare, with times relative to the clock."""
    if name in ("heard_ms", "entry"):
        return 0  # how long an idle key is remembered; an ENTRYREQ that nobody hears
    if isinstance(value, int) and (name.endswith("_ms") or name in ("departed", "no")):
        return max(OLD if name in SINCE else 0, min(LATE, value - now))
    if isinstance(value, dict):
        inner = name if name in ("departed", "no") else ""
        return tuple(sorted(((key, _plain(inner, part, now)) for key, part in value.items()), key=repr))
    if isinstance(value, list):
        return tuple(_plain("", part, now) for part in value)
    if hasattr(value, "__slots__") and not isinstance(value, tuple):
        return tuple(_plain(field, getattr(value, field), now) for field in value.__slots__)
    if isinstance(value, Ceiling):
        return (value.stored, value.asked)
    return value


def _relative(effect: e.Effect, now: int) -> e.Effect:
    """Times of calls count from now."""
    if isinstance(effect, e.Call | e.Extend):
        return effect._replace(cancel_at_ms=effect.cancel_at_ms - now, over_at_ms=effect.over_at_ms - now)
    return effect


def report(scope: Scope, found: CacheSearchResult) -> list[str]:
    """What a person is told of a search."""
    names = ("peers", "disturbances", "ballots", "announces", "restarts")
    bounds = ", ".join(f"{getattr(scope, name)} {name}" for name in names) + f", clients at {scope.askers}"
    lines = [
        f"cache, mode own{', restarts forget everything' if scope.forgets else ''}: {bounds}",
        f"distinct states   {found.states:>12,}",
        f"events            {found.events:>12,}",
        f"with a call       {found.calls:>12,}",
        f"second calls      {found.second:>12,}",
        f"violations        {1 if found.wrong else 0:>12}",
        f"time              {found.seconds:>10.1f} s",
        "complete" if found.complete else "not complete",
    ]
    if found.wrong:
        lines += ["", *found.story, f"    VIOLATION {found.wrong}"]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m primacy.sim.cache.small", description="Walks over every order of events.")
    for name, value in Scope()._asdict().items():
        if name == "forgets":
            parser.add_argument("--forgets", action="store_true", help="restarts lose everything; S1 is judged alone")
        elif name == "results":
            parser.add_argument("--no-results", dest="results", action="store_false", help="sources never answer")
        elif name == "askers":
            parser.add_argument("--askers", type=int, nargs="+", default=value)
        else:
            parser.add_argument(f"--{name}", type=int, default=value)
    given = vars(parser.parse_args(arguments))
    scope = Scope(**{**given, "askers": tuple(given["askers"])})
    found = search(scope)
    print("\n".join(report(scope, found)))
    return 1 if found.wrong or not found.complete else 0


if __name__ == "__main__":
    sys.exit(main())
