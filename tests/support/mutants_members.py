"""Planted defects of the register of members (rules R): each takes one rule out of the machine.

Each says where it is looked for: in trials with their checkers, or in walks without clocks, which find what random
trials let pass. Those that only a schedule by hand finds stand with the schedules, in `tests/rules/`.
`python -m tests.support.mutants_members` searches catching seeds and writes them down.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from primacy.election.effects import Persist
from primacy.election.raft.admit import Admitting
from primacy.election.raft.change import Changing
from primacy.election.raft.follow import Following
from primacy.election.raft.lead import Leading
from primacy.election.raft.quorum import Quorum
from primacy.election.raft.recall import Recall
from primacy.election.raft.recovery import FLOOR
from primacy.election.raft.state import RaftState
from primacy.election.raft.strategy import RaftStrategy
from primacy.election.raft.tell import Telling
from primacy.sim.model.settings import RegisterSetting
from primacy.sim.model.walks import Walk
from primacy.sim.trials.members import MembersTrial, registered
from primacy.sim.trials.trial import Plan

SAFETY = ("I1", "I2", "I3", "I4", "I5", "I7", "I9")


# --- R1 ---------------------------------------------------------------------------------------------------------------


class NamedEarly(RaftStrategy):
    """R1: a register is durable after the messages that name it."""

    def _with_persist(self, effects):
        effects = super()._with_persist(effects)
        return [e for e in effects if not isinstance(e, Persist)] + [e for e in effects if isinstance(e, Persist)]


class OlderWins(RaftStrategy):
    """R1: the register that was told last wins, however old it is."""

    class telling_class(Telling):
        def is_newer(self, register):
            return register.id != self.state.members_id


class LeaderTakes(RaftStrategy):
    """R1: a leader takes the register of another one."""

    class telling_class(Telling):
        def may_take(self):
            return True


class CandidacyStays(RaftStrategy):
    """R1: who takes a register goes on with its candidacy, and counts votes that were given for an older one."""

    class telling_class(Telling):
        def give_up_candidacy(self, now_ms):
            pass


# --- R2 ---------------------------------------------------------------------------------------------------------------


class NewHalfOnly(RaftStrategy):
    """R2: while a change is on its way, the voters before are not asked."""

    class state_class(RaftState):
        def halves_of(self, register):
            return (register.voters,)


class OldHalfOnly(RaftStrategy):
    """R2: while a change is on its way, only the voters before are asked."""

    class state_class(RaftState):
        def halves_of(self, register):
            return register.halves[-1:]


class ObserversCount(RaftStrategy):
    """R2: observers count like voters."""

    class state_class(RaftState):
        def halves_of(self, register):
            return (tuple(member.id for member in register.members), *register.halves[1:])


class EitherQuorum(Quorum):
    def has(self, yes):
        return any(2 * sum(name in yes for name in half) > len(half) for half in self.halves)

    def newest_by_halves(self, acked):
        return max(sorted((acked.get(n, 0) for n in half), reverse=True)[len(half) // 2] for half in self.halves)


class EitherHalf(RaftStrategy):
    """R2: a majority of either half is enough."""

    class state_class(RaftState):
        def refresh_members(self):
            super().refresh_members()
            if self.quorum.halves:
                self.quorum = EitherQuorum(*self.quorum)


# --- R3 to R7 ---------------------------------------------------------------------------------------------------------


class OlderGetsVotes(RaftStrategy):
    """R3: a candidate with an older register gets votes."""

    class following_class(Following):
        def is_outdated(self, request):
            return False


class KeepsItsTerm(RaftStrategy):
    """R4: the winner's register keeps the term of who wrote it."""

    class leading_class(Leading):
        def rename_members(self, now_ms, leader):
            pass

    class telling_class(Telling):
        def _rename(self, *_):
            return []


class Unproved(RaftStrategy):
    """R5: the next register is written before a quorum has acked the present one."""

    class changing_class(Changing):
        def is_proved(self, leader):
            return True


class ProvedEarlier(RaftStrategy):
    """R5: a heartbeat that carried an older register proves the present one."""

    class changing_class(Changing):
        def is_proved(self, leader):
            return leader.progress.proved > 0


class StoredIsProved(RaftStrategy):
    """R5: that a quorum has stored the register is taken for a proof, whatever term its nodes are in."""

    class changing_class(Changing):
        def is_proved(self, leader):
            state = self.state
            known = state.peers.known
            has = [name for name in known if known[name].members >= state.origin.members]
            return state.quorum.has([state.node, *has])


class AnybodyTakesBack(RaftStrategy):
    """R5: a leader takes back, unproved, what another one wrote."""

    class changing_class(Changing):
        def may_take_back(self, leader):
            return True


class WithoutJoint(RaftStrategy):
    """R6: voters change in one step."""

    class changing_class(Changing):
        def needs_joint(self, register, goal):
            return False


class NotAsked(RaftStrategy):
    """R7: nobody asks whether the new voters are there, and what is not proved is never taken back."""

    class changing_class(Changing):
        def is_ready(self, leader, register, goal):
            return True

        def may_take_back(self, leader):
            return False


# --- R8, R9 -----------------------------------------------------------------------------------------------------------


class AdmitsAtOnce(RaftStrategy):
    """R8: a leader admits without a proof that it still leads."""

    class admitting_class(Admitting):
        def is_proved(self, leader, number):
            return True


class AnyAdmission(RaftStrategy):
    """R8: an admission counts although it was given to an earlier boot."""

    class admitting_class(Admitting):
        def is_answer(self, admission):
            return True


class AdmitsVoters(RaftStrategy):
    """R8: a voter without memory is admitted like a newcomer."""

    class admitting_class(Admitting):
        def may_admit(self, register, node):
            return register.named(node)


def recalled(kind):
    """A state whose node without memory decides like this."""

    class state_class(RaftState):
        def __init__(self, seat, timing, ballot, options):
            super().__init__(seat, timing, ballot, options)
            was, self.recovery = self.recovery, kind(seat, auto=options.auto, token_max=options.token_max)
            self.recovery.__dict__.update(was.__dict__)

    return state_class


class MajorityRecall(Recall):
    def remembered(self, wall_ms):
        missing = self.missing(None)
        if not missing or 2 * (1 + len(missing)) > 1 + len(self._needed(None)):
            return super().remembered(wall_ms)
        without, self.without = self.without, (*self.without, *missing)
        ballot = super().remembered(wall_ms)
        self.without = without
        return ballot if ballot is None else ballot._replace(term=ballot.term - FLOOR)


class MajorityAnswers(RaftStrategy):
    """R9: a majority of answers is enough."""

    state_class = recalled(MajorityRecall)


class NewestRecall(Recall):
    def counted_registers(self):
        newest = self.newest()
        return [] if newest is None else [newest]


class WithoutClosure(RaftStrategy):
    """R9: only the voters of the newest register are asked."""

    state_class = recalled(NewestRecall)


class AloneRecall(Recall):
    def is_alone(self, newest):
        return False


class AlonePasses(RaftStrategy):
    """R9: the only voter of a half gets its memory from others, who cannot know what it did alone."""

    state_class = recalled(AloneRecall)


class OpenRecall(Recall):
    def remembered(self, wall_ms):
        ballot = super().remembered(wall_ms)
        return ballot if ballot is None else ballot._replace(voted_for="")


class VoteLeft(RaftStrategy):
    """R9: a vote is left in the term that it was told."""

    state_class = recalled(OpenRecall)


# --- where they are looked for ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """One planted defect."""

    rule: str
    machine: type[RaftStrategy]
    where: str
    """`trials` or `walks`."""
    plan: Plan | None = None
    walks: tuple[int, int] = (0, 0)
    """Nodes, and voters at the beginning."""
    begin: str = "fresh"
    caught_by: tuple[str, ...] = SAFETY

    @property
    def name(self) -> str:
        return self.machine.__name__

    @property
    def key(self) -> str:
        return f"{self.rule}: {self.name}"

    def is_caught(self, seed: int) -> bool:
        with suppress(AssertionError):  # a machine found out by itself, before any checker could see it
            if self.where == "walks":
                nodes, voters = self.walks
                setting = RegisterSetting(voters, nodes=nodes, clocks="none", machine=self.machine, pre_vote=False)
                return Walk(setting, seed, begin=self.begin).go().wrong[:2] in self.caught_by
            assert self.plan is not None
            violations = MembersTrial(self.plan, seed, registered(self.machine)).run().violations
            return any(violation.rule in self.caught_by for violation in violations)
        return False


def trials(
    rule: str, machine: type[RaftStrategy], *classes: str, nodes: int = 3, caught_by: tuple[str, ...] = SAFETY
) -> Mutant:
    plan = Plan("raft", nodes, "lab", 1.0, (*classes, "members"), draw=False, register=True)
    return Mutant(rule, machine, "trials", plan, caught_by=caught_by)


def walks(rule: str, machine: type[RaftStrategy], nodes: int = 4, voters: int = 4, *, begin: str = "fresh") -> Mutant:
    return Mutant(rule, machine, "walks", walks=(nodes, voters), begin=begin)


MUTANTS: tuple[Mutant, ...] = (
    trials("R1", NamedEarly, "lossy"),
    walks("R1", OlderWins),
    walks("R1", CandidacyStays, 5, 5, begin="split"),
    walks("R2", NewHalfOnly),
    walks("R2", OldHalfOnly, 4, 3),
    walks("R2", EitherHalf),
    walks("R3", OlderGetsVotes, 4, 3),
    walks("R5", Unproved, 4, 3),
    walks("R6", WithoutJoint),
    trials("R7", NotAsked, caught_by=("P1", "P5", "P6")),
    walks("R9", VoteLeft, 3, 3),
)
SELDOM: tuple[Mutant, ...] = (
    walks("R1", LeaderTakes),
    walks("R2", ObserversCount, 4, 3),
    trials("R4", KeepsItsTerm, "crash-node", "partition", "link", caught_by=("P1", "P6")),
    walks("R5", ProvedEarlier, 4, 3),
    walks("R5", StoredIsProved),
    walks("R5", AnybodyTakesBack),
    walks("R8", AdmitsAtOnce, 4, 3),
    walks("R8", AnyAdmission, 4, 3),
    walks("R8", AdmitsVoters),
    walks("R9", MajorityAnswers),
    walks("R9", WithoutClosure, 4, 3),
    walks("R9", AlonePasses, 3, 2),
)
"""Of these, 800 walks, or 200 trials, found none. The tests of their rules see them, and schedules by hand show what
they lead to: `tests/rules/test_rules_members*.py`. `make proof PART=members` hunts them for longer, and says what it
found."""
SEEDS_FILE = Path(__file__).with_name("mutant_members_seeds.json")
RECORDED = 2


def recorded() -> dict[str, list[int]]:
    """Seeds that catch each mutant, from the last `python -m tests.support.mutants_members`."""
    return json.loads(SEEDS_FILE.read_text())


def caught_seeds(mutant: Mutant, seeds: range, wanted: int) -> list[int]:
    """The first seeds of the range that catch it."""
    found: list[int] = []
    for seed in seeds:
        if mutant.is_caught(seed):
            found.append(seed)
        if len(found) >= wanted:
            break
    return found


def record(chosen: Callable[[Mutant], bool], most: int) -> None:
    """Searches catching seeds and writes them down; the others stay as they are."""
    found = recorded() if SEEDS_FILE.exists() else {}
    for mutant in MUTANTS:
        if chosen(mutant):
            found[mutant.key] = caught_seeds(mutant, range(most), RECORDED)
            print(f"{mutant.key:30} {found[mutant.key]}", flush=True)
    rows = [f"  {json.dumps(m.key)}: {json.dumps(found.get(m.key, []))}" for m in MUTANTS]
    SEEDS_FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    names = sys.argv[2:]
    record(lambda mutant: not names or mutant.name in names, int(sys.argv[1]) if sys.argv[1:] else 3_000)
