"""Trials that draw inputs, for what no trial of the simulator gives.

That is: the machines around the process tree, lists that grow by joining, every way to rank nodes, witnesses, observers
and priorities, and messages with a field that is not what the sender would say. Nobody judges these trials. What a
machine does with such inputs, and what it raises for some, is behaviour like all other.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from primacy.election import effects, inputs
from primacy.election.model import Kind, Leadership, Member, Membership, Seat
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.election.ranked.bully import BullyStrategy
from primacy.election.ranked.rank import RankOptions
from primacy.election.ranked.ring import RingStrategy
from primacy.settings.timing import PROFILES, RANK_PROFILES
from primacy.supervise import gate, health, vocabulary
from primacy.supervise.machine import Policy, Restart, Watchdog

STEPS = 600
NODES_MAX = 5
WAITING_MAX = 200
"""Inputs that are on their way."""
RANKS = ("id", "natural", "started", "priority")


class Actor(NamedTuple):
    """One machine, its clock, and what may be given to it."""

    name: str
    machine: Any
    offset_ms: int


class Trial:
    """Machines that hear each other, and what is drawn."""

    def __init__(self, seed: str) -> None:
        self.chance = Random(seed)
        self.now_ms = 1_000
        self.actors: list[Actor] = []
        self.waiting: list[tuple[int, Any]] = []
        """Who is to be told what: in any order, perhaps twice, perhaps never."""
        self.follows: Callable[[Random, Any], list[Any]] = _nothing
        """From an effect, what its machine may be told of it."""
        self.any_input: Callable[[Random], Any] = _none

    def add(self, name: str, machine: Any) -> None:
        self.actors.append(Actor(name, machine, self.chance.randrange(1_000_000)))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        chance = self.chance
        self.now_ms += chance.choice((0, 1, chance.randrange(60), chance.randrange(400)))
        place = chance.randrange(len(self.actors))
        drawn = chance.random()
        if drawn < 0.35:
            actor = self.actors[place]
            deadline_ms = actor.machine.deadline_ms
            if deadline_ms is not None:
                self.now_ms = max(self.now_ms, deadline_ms - actor.offset_ms + chance.choice((0, 0, 1, 300)))
            self.give(place, self._wakes())
        elif drawn < 0.9 and self.waiting:
            at = chance.randrange(len(self.waiting))
            place, given = self.waiting[at] if chance.random() < 0.1 else self.waiting.pop(at)
            self.give(place, given)
        else:
            self.give(place, self.any_input(chance))

    def _wakes(self) -> Any:
        kinds = {gate.Gate: gate.Woke, health.HealthWatch: health.Woke, Watchdog: vocabulary.Woke}
        return kinds.get(type(self.actors[0].machine), inputs.DeadlinePassed)()

    def give(self, place: int, given: Any) -> None:
        actor = self.actors[place]
        try:
            done = actor.machine.step(self.now_ms + actor.offset_ms, given)
        except AssertionError:
            return  # it was recorded: some orders make no sense, and the machine says so
        for effect in done:
            for follows in self.follows(self.chance, effect):
                self._wait(place, follows)
            if type(effect) is effects.Send:
                receivers = [n for n, other in enumerate(self.actors) if other.name == effect.to]
                for receiver in receivers:
                    self._wait(receiver, inputs.Received(self._bent(effect.message)))

    def _wait(self, place: int, given: Any) -> None:
        if len(self.waiting) < WAITING_MAX:
            self.waiting.append((place, given))

    def _bent(self, message: Any) -> Any:
        """As it was sent; now and then with another value in one field."""
        if self.chance.random() > 0.03:
            return message
        fields = [name for name in message._fields[1:] if type(getattr(message, name)) in (int, bool)]
        if not fields:
            return message
        name = self.chance.choice(fields)
        value = getattr(message, name)
        return message._replace(
            **{name: not value if type(value) is bool else max(0, value + self.chance.choice((-1, 1)))}
        )


def _nothing(_chance: Random, _effect: Any) -> list[Any]:
    return []


def _none(_chance: Random) -> Any:
    return inputs.DeadlinePassed()


# --- elections --------------------------------------------------------------------------------------------------------


def _election(strategy: str, trial: Trial) -> None:
    chance = trial.chance
    names = [f"n{n + 1}" for n in range(chance.randint(1, NODES_MAX))]
    kinds = (Kind.VOTER, Kind.VOTER, Kind.VOTER, Kind.WITNESS, Kind.OBSERVER) if strategy == "raft" else (Kind.VOTER,)
    members = [Member(name, chance.choice(kinds), chance.randrange(3), 1_000 + chance.randrange(9)) for name in names]
    membership = Membership.of(members, "list-1")
    profile = chance.choice(("fast", "lan", "wan"))
    rank = RankOptions(
        chance.choice(RANKS),
        chance.random() < 0.3,
        chance.choice((0, 0, 2_000)),
        chance.random() < 0.2,
        chance.random() < 0.2,
    )
    for name in names:
        seat = Seat(name, chance.getrandbits(62) | 1, membership, Random(chance.getrandbits(64)))
        if strategy == "raft":
            options = RaftOptions(chance.random() < 0.7, chance.choice((0, 1_700_000_000_000)))
            trial.add(name, RaftStrategy(seat, PROFILES[profile], None, options))
        else:
            made = BullyStrategy if strategy == "bully" else RingStrategy
            trial.add(name, made(seat, RANK_PROFILES[profile], rank))
    trial.follows = _of_an_election
    trial.any_input = lambda chance: _election_input(chance, names)
    for place in range(len(names)):
        trial.give(place, inputs.Started(1_700_000_000_000 + chance.randrange(9_999), chance.random() < 0.05))


def _of_an_election(chance: Random, effect: Any) -> list[Any]:
    match effect:
        case effects.Start(leadership):
            term = leadership.term
            if chance.random() < 0.1:
                return [inputs.WorkDeferred(term, "an approval"), inputs.WorkDeferred(term), inputs.WorkStarted(term)]
            return [inputs.WorkStarted(term)]
        case effects.Stop(term, _, planned):
            return [inputs.WorkGone(term, planned and chance.random() < 0.7)]
        case effects.Persist() if chance.random() < 0.01:
            return [inputs.PersistFailed("the disk is full")]
    return []


def _election_input(chance: Random, names: list[str]) -> Any:
    name = chance.choice([*names, "stranger"])
    listed = tuple(
        (each, chance.randrange(3), 1_000 + n) for n, each in enumerate([*names, "n9"]) if chance.random() < 0.9
    )
    return chance.choice(
        (
            inputs.Unanswered(name),
            inputs.Answered(name),
            inputs.Paced(chance.choice((1, 2, 4))),
            inputs.MembersChanged(listed, chance.randrange(9)),
            inputs.StepDown(chance.choice(("", name))),
            inputs.Pause(),
            inputs.Resume(),
            inputs.Resume(),
            inputs.Health(chance.random() < 0.6, "a probe"),
            inputs.RunLock(chance.random() < 0.4),
            inputs.GuardLost(chance.randrange(1, 5)),
            inputs.WorkGone(chance.randrange(1, 5), chance.random() < 0.5),
            inputs.Init(1_700_000_000_000, chance.choice(((), (name,)))),
            inputs.Rejoin((name,)),
            inputs.PersistFailed("the disk is full"),
            inputs.Shutdown() if chance.random() < 0.1 else inputs.Resume(),
        )
    )


# --- around the process tree ------------------------------------------------------------------------------------------


def _leadership(chance: Random, trial: Trial) -> Leadership:
    term = chance.randrange(1, 4)
    now_ms = trial.now_ms + trial.actors[0].offset_ms
    return Leadership("n1", term, 1_700_000_000_000 + term, now_ms + chance.choice((3_000, 2_000, 500)))


def _watchdog(trial: Trial) -> None:
    chance = trial.chance
    restart = chance.choice(list(Restart))
    policy = Policy(restart, chance.choice((500, 3_000)), chance.choice((2, 20)))
    trial.add("n1", Watchdog(PROFILES[chance.choice(("fast", "lan"))], policy))

    def follows(chance: Random, effect: Any) -> list[Any]:
        match effect:
            case vocabulary.OrderStart(run, _):
                ends = [vocabulary.Exited(run, chance.choice((0, 1, 143))), vocabulary.Gone(run, chance.random() < 0.5)]
                other = [vocabulary.NotStarted(run, "no such file"), vocabulary.Locked(77)]
                return [vocabulary.Ran(run, 4_711), *ends] if chance.random() < 0.85 else [chance.choice(other)]
            case vocabulary.OrderStop():
                return [vocabulary.Gone(chance.randrange(1, 4), True)]
            case vocabulary.Dismiss():
                return [vocabulary.GuardEnded()]
            case vocabulary.WatchLock():
                return [vocabulary.LockFree()]
        return []

    def any_input(chance: Random) -> Any:
        term = chance.randrange(1, 4)
        return chance.choice(
            (
                vocabulary.Begin(_leadership(chance, trial)),
                vocabulary.Begin(_leadership(chance, trial)),
                vocabulary.Renew(_leadership(chance, trial)),
                vocabulary.Renew(_leadership(chance, trial)),
                vocabulary.End(term, chance.random() < 0.5),
                vocabulary.LetGo(term, chance.choice(("", "n2"))),
                vocabulary.GuardEnded(),
                vocabulary.LockFree(),
                vocabulary.Hurry(),
            )
        )

    trial.follows, trial.any_input = follows, any_input


def _gate(trial: Trial) -> None:
    chance = trial.chance
    rule = gate.Rule(chance.random() < 0.5, chance.random() < 0.7, chance.choice((200, 30_000)))
    trial.add("n1", gate.Gate(PROFILES["lan"], rule, "n1"))

    def follows(chance: Random, effect: Any) -> list[Any]:
        if isinstance(effect, gate.RunFence):
            return [gate.FenceEnded(effect.number, chance.choice((0, 0, 1)), chance.choice(("", "no such file")))]
        return []

    def any_input(chance: Random) -> Any:
        term = chance.randrange(1, 4)
        asked = gate.Ask(_leadership(chance, trial), chance.random() < 0.3)
        renewed = gate.Renewed(_leadership(chance, trial))
        return chance.choice((asked, asked, renewed, renewed, gate.Ended(term), gate.Approved(term, "an operator")))

    trial.follows, trial.any_input = follows, any_input


def _health(trial: Trial) -> None:
    chance = trial.chance
    rules = tuple(
        health.Rule(f"probe{n}", chance.random() < 0.6, chance.choice((200, 1_000)), chance.randint(1, 3))
        for n in range(chance.randint(1, 3))
    )
    trial.add("n1", health.HealthWatch(rules))

    def follows(chance: Random, effect: Any) -> list[Any]:
        if isinstance(effect, health.AskProbe):
            return [health.Answered(effect.place, chance.random() < 0.6, "said so")]
        return []

    def any_input(chance: Random) -> Any:
        monitor = f"monitor{chance.randrange(20)}"
        said = health.Said(monitor, chance.random() < 0.5, "said so", chance.choice((0, 500)))
        return chance.choice((health.Runs(chance.random() < 0.7), health.Began(), said))

    trial.follows, trial.any_input = follows, any_input


KINDS: dict[str, Callable[[Trial], None]] = {
    "drawn-raft": lambda trial: _election("raft", trial),
    "drawn-bully": lambda trial: _election("bully", trial),
    "drawn-ring": lambda trial: _election("ring", trial),
    "drawn-watchdog": _watchdog,
    "drawn-gate": _gate,
    "drawn-health": _health,
}


def run(kind: str, seed: int, length: float) -> str:
    """One trial. Returns where it ended, so that two runs can be compared."""
    trial = Trial(f"{kind}/{seed}")
    KINDS[kind](trial)
    trial.run(int(STEPS * length))
    return f"{trial.now_ms}/{len(trial.waiting)}/{trial.chance.random()}"
