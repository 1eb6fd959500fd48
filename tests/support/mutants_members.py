"""Planted defects of the register of members (rules R): each takes one rule out of the machine.

Each says who catches it: trials with their checkers, walks without clocks, which find what random trials let pass, or a
schedule (`members_schedules.py`), which passes with the rule and comes to something wrong without it.
`python -m tests.support.mutants_members` searches catching seeds and writes them down.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from primacy.election.effects import Persist
from primacy.election.inputs import ForceMembers
from primacy.election.model import MembersId
from primacy.election.raft.admit import Admitting
from primacy.election.raft.change import Changing
from primacy.election.raft.follow import Following
from primacy.election.raft.lead import Leading
from primacy.election.raft.quorum import Quorum
from primacy.election.raft.recovery import FLOOR, Recovery
from primacy.election.raft.state import RaftState
from primacy.election.raft.strategy import RaftStrategy
from primacy.election.raft.tell import Telling
from primacy.sim.model.settings import RegisterSetting
from primacy.sim.model.walks import Walk
from primacy.sim.trials.raft import RaftTrial, registered
from primacy.sim.trials.trial import Plan
from tests.support import mutants
from tests.support.members_schedules import SCHEDULES
from tests.support.mutants import caught_seeds, write_seeds

SAFETY = (*mutants.SAFETY, "I9")


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

        def see_newer(self, now_ms, origin):
            return []


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

    def newest_acked(self, acked):
        return max(sorted((acked.get(n, 0) for n in half), reverse=True)[len(half) // 2] for half in self.halves)


class EitherHalf(RaftStrategy):
    """R2: a majority of either half is enough."""

    class state_class(RaftState):
        def refresh_members(self):
            super().refresh_members()
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


class AdmitsAnybody(RaftStrategy):
    """R8: a leader admits every node that asks."""

    class admitting_class(Admitting):
        def may_admit(self, register, node):
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


class AnyRecall(Recovery):
    def is_enough(self, missing):
        return len(missing) < len(self._needed(None))

    def remembered(self, wall_ms):
        missing = self.missing(None)
        if not missing or not self.is_enough(missing):
            return super().remembered(wall_ms)
        without, self.without = self.without, (*self.without, *missing)
        ballot = super().remembered(wall_ms)
        self.without = without
        return ballot if ballot is None else ballot._replace(term=ballot.term - FLOOR)


class OneAnswers(RaftStrategy):
    """R9: one answer is enough."""

    state_class = recalled(AnyRecall)


class MajorityRecall(AnyRecall):
    def is_enough(self, missing):
        return 2 * (1 + len(missing)) <= 1 + len(self._needed(None))


class MajorityAnswers(RaftStrategy):
    """R9: a majority of answers is enough."""

    state_class = recalled(MajorityRecall)


class FileRecall(Recovery):
    def counted_registers(self):
        return [self.first()]


class WithoutClosure(RaftStrategy):
    """R9: only the voters of its file are asked, not those of the registers that they tell of."""

    state_class = recalled(FileRecall)


class AloneRecall(Recovery):
    def is_alone(self, newest):
        return False


class AlonePasses(RaftStrategy):
    """R9: the only voter of a half gets its memory from others, who cannot know what it did alone."""

    state_class = recalled(AloneRecall)


class OpenRecall(Recovery):
    def remembered(self, wall_ms):
        ballot = super().remembered(wall_ms)
        return ballot if ballot is None else ballot._replace(voted_for="")


class VoteLeft(RaftStrategy):
    """R9: a vote is left in the term that it was told."""

    state_class = recalled(OpenRecall)


# --- R13, R14 ---------------------------------------------------------------------------------------------------------


class LockSuffices(RaftStrategy):
    """R13: one voter with a free run lock starts at once, whatever its members were."""

    class state_class(RaftState):
        def has_changed_members(self):
            return False


class ForcesAtOnce(RaftStrategy):
    """R14: who was told to go on without others votes at once."""

    class changing_class(Changing):
        def _force(self, now_ms, given):
            effects = super()._force(now_ms, given)
            self.state.promise.newest_at_ms, self.state.campaign_at_ms = None, now_ms
            return effects


class ForcesInItsTerm(RaftStrategy):
    """R14: the term of a forced register is the present one."""

    class changing_class(Changing):
        def _force(self, now_ms, given):
            term = self.state.term
            effects = super()._force(now_ms, given)
            ballot = self.state.ballot
            forced = ballot.register._replace(id=MembersId(term, ballot.register.id.version))
            self.state.ballot = ballot._replace(term=term, register=forced)
            self.state.refresh_members()
            return effects


class ForgetsThoseBefore(RaftStrategy):
    """R14: a forced register knows nothing of a change that was on its way."""

    class changing_class(Changing):
        def _force(self, now_ms, given):
            self.state.ballot = self.state.ballot._replace(register=self.state.register._replace(prior=()))
            return super()._force(now_ms, given)


class ForcesWhatWasNeverUsed(RaftStrategy):
    """R14: a first ballot that was never used is forced, too."""

    class changing_class(Changing):
        def on_request(self, now_ms, given):
            if isinstance(given, ForceMembers) and self.state.term == 0:
                return self._force(now_ms, given)
            return super().on_request(now_ms, given)


# --- who catches them -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """One planted defect."""

    rule: str
    asks: str
    """What of the rule is taken out: one of its parts that carries safety, or R7's liveness."""
    machine: type[RaftStrategy]
    plan: Plan | None = None
    """The trials that catch it."""
    walks: tuple[int, int] = (0, 0)
    """Nodes, and voters at the beginning, of the walks that catch it."""
    begin: str = "fresh"
    schedule: str = ""
    """The schedule that catches it."""
    caught_by: tuple[str, ...] = SAFETY

    @property
    def name(self) -> str:
        return self.machine.__name__

    @property
    def key(self) -> str:
        return f"{self.rule}: {self.name}"

    @property
    def is_searched(self) -> bool:
        return self.plan is not None or self.walks != (0, 0)

    def is_caught(self, seed: int) -> bool:
        if self.plan is not None:
            violations = RaftTrial(self.plan, seed, registered(self.machine)).run().violations
            return any(violation.rule in self.caught_by for violation in violations)
        nodes, voters = self.walks
        setting = RegisterSetting(voters, nodes=nodes, clocks="none", machine=self.machine, pre_vote=False)
        return Walk(setting, seed, begin=self.begin).go().wrong[:2] in self.caught_by

    def goes_wrong(self) -> str:
        """What its schedule comes to."""
        return SCHEDULES[self.schedule](self.machine)


def only(*classes: str) -> Plan:
    """Trials with these faults, and other members asked for."""
    return Plan("raft", 3, "lab", 1.0, (*classes, "members"), draw=False, members_change=True)


MUTANTS: tuple[Mutant, ...] = (
    Mutant("R1", "durable before a message names it", NamedEarly, only("lossy")),
    Mutant("R1", "an older one never wins", OlderWins, walks=(4, 4)),
    Mutant("R1", "a leader takes none but its own", LeaderTakes, schedule="S8"),
    Mutant("R1", "who takes one gives up its candidacy", CandidacyStays, walks=(5, 5), begin="split", schedule="S0"),
    Mutant("R2", "a majority of the voters", OldHalfOnly, walks=(4, 3)),
    Mutant("R2", "observers never count", ObserversCount, schedule="S9"),
    Mutant("R2", "of those before as well", NewHalfOnly, walks=(4, 4)),
    Mutant("R2", "of both halves", EitherHalf, walks=(4, 4)),
    Mutant("R3", "no vote for an older register", OlderGetsVotes, walks=(4, 3)),
    Mutant("R4", "the winner's term", KeepsItsTerm, schedule="S14"),
    Mutant("R5", "acked, in its term, before the next", Unproved, walks=(4, 3)),
    Mutant("R5", "by a heartbeat that carried it", ProvedEarlier, schedule="S10"),
    Mutant("R5", "to have stored it is no proof", StoredIsProved, schedule="S11"),
    Mutant("R5", "only the writer takes back unproved", AnybodyTakesBack, schedule="S3"),
    Mutant("R6", "voters change in two steps", WithoutJoint, walks=(4, 4), schedule="S1"),
    Mutant("R7", "new voters are there first", NotAsked, only(), caught_by=("P1", "P5", "P6")),
    Mutant("R8", "admitted as observer", AdmitsAnybody, schedule="S6"),
    Mutant("R8", "never as voter", AdmitsVoters, schedule="S6"),
    Mutant("R8", "proved after the question", AdmitsAtOnce, schedule="S4"),
    Mutant("R8", "the nonce is echoed", AnyAdmission, schedule="S5"),
    Mutant("R9", "a voter without memory asks", OneAnswers, walks=(3, 3), schedule="S12"),
    Mutant("R9", "every voter of every register told of", WithoutClosure, schedule="S13"),
    Mutant("R9", "all have answered", MajorityAnswers, schedule="S12"),
    Mutant("R9", "the term is closed", VoteLeft, walks=(3, 3)),
    Mutant("R9", "not the only voter of a half", AlonePasses, schedule="S2"),
    Mutant("R13", "the lock suffices for the first register only", LockSuffices, schedule="S7"),
    Mutant("R14", "silent as after a start", ForcesAtOnce, schedule="S15"),
    Mutant("R14", "a term that nobody can have voted in", ForcesInItsTerm, schedule="S16"),
    Mutant("R14", "the voters before count on", ForgetsThoseBefore, schedule="S17"),
    Mutant("R14", "nothing that was never used", ForcesWhatWasNeverUsed, schedule="S18"),
)
SEARCHED = tuple(mutant for mutant in MUTANTS if mutant.is_searched)
SCHEDULED = tuple(mutant for mutant in MUTANTS if mutant.schedule)
SEEDS_FILE = Path(__file__).with_name("mutant_members_seeds.json")
RECORDED = 2


def recorded() -> dict[str, list[int]]:
    """Seeds that catch each mutant that is searched for, from the last `python -m tests.support.mutants_members`."""
    return mutants.recorded(SEEDS_FILE)


def record(chosen: Callable[[Mutant], bool], most: int) -> None:
    """Searches catching seeds and writes them down; the others stay as they are."""
    found = recorded() if SEEDS_FILE.exists() else {}
    for mutant in SEARCHED:
        if chosen(mutant):
            found[mutant.key] = caught_seeds(mutant, range(most), RECORDED)
            print(f"{mutant.key:30} {found[mutant.key]}", flush=True)
    write_seeds(SEEDS_FILE, {mutant.key: found.get(mutant.key, []) for mutant in SEARCHED})


if __name__ == "__main__":
    names = sys.argv[2:]
    record(lambda mutant: not names or mutant.name in names, int(sys.argv[1]) if sys.argv[1:] else 3_000)
