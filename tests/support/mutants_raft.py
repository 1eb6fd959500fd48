"""Planted defects of raft and of the world around it: each takes one safety rule out. Their table: `mutants.py`."""

from __future__ import annotations

from primacy.election.effects import Persist, Send
from primacy.election.events import Code
from primacy.election.inputs import Init
from primacy.election.messages import Ahead, Heartbeat, Release, Stale, VoteRequest
from primacy.election.model import Ballot, Membership, Role
from primacy.election.raft.campaign import Campaigning
from primacy.election.raft.follow import Following
from primacy.election.raft.lead import Leading
from primacy.election.raft.meet import Meeting
from primacy.election.raft.memory import Remembering
from primacy.election.raft.recovery import Recovery
from primacy.election.raft.release import Releasing
from primacy.election.raft.state import RaftState
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.settings.timing import Timing
from primacy.sim.facts import Kind
from primacy.sim.faults.classes import Change
from primacy.sim.world.disk import Disk
from primacy.sim.world.guard import Guard, Phase
from primacy.supervise.machine import Watchdog
from primacy.supervise.vocabulary import OrderStart


class LeadsOn(RaftState):
    """Only where a rule is out, a leader grants a vote, or gives up its ballot: it leads on, shown as a follower.

    A real leader never gets there; if it did, it would lead no more. The recorded seeds catch machines that lead on.
    """

    hidden = None

    @property
    def role(self):
        return super().role if self.hidden is None or self.role_state is not self.hidden else Role.FOLLOWER

    def lead_on(self, leader):
        if leader is not None:
            self.role_state = self.hidden = leader

    def vote_for(self, candidate, term):
        leader = self.leader_state
        super().vote_for(candidate, term)
        self.lead_on(leader)


class NoPromise(RaftStrategy):
    """Q4 off: a voter grants at once. Safe because of Q5, but a healthy leader may be deposed."""

    class state_class(LeadsOn):
        def promise_left(self, now_ms):
            return 0


class Eager(RaftStrategy):
    """The base without promise, and with candidates that do not wait for it either: all safety rests on Q5."""

    class state_class(NoPromise.state_class):
        def timeout(self, from_ms):
            return from_ms + 2 * self.timing.heartbeat_ms + int(self.seat.random.random() * self.timing.spread_ms)


class PersistLate(RaftStrategy):
    """Q1: the ballot becomes durable after the messages that rely on it."""

    def _with_persist(self, effects):
        effects = super()._with_persist(effects)
        return [e for e in effects if not isinstance(e, Persist)] + [e for e in effects if isinstance(e, Persist)]


class EarlyRequests(RaftStrategy):
    """Q1: a candidate asks for votes before its own is durable."""

    def _with_persist(self, effects):
        effects = super()._with_persist(effects)
        early = [e for e in effects if isinstance(e, Send) and isinstance(e.message, VoteRequest)]
        return early + [e for e in effects if e not in early]


class CountFromAck(Eager):
    """Q3: the hold counts from the ack instead of from before the heartbeat left."""

    class leading_class(Leading):
        def prove(self, now_ms, leader):
            leader.progress.departures[self.proved_number(leader)] = now_ms
            return super().prove(now_ms, leader)


class AnyAckProves(Eager):
    """Q3: acks count whatever heartbeat they name."""

    class leading_class(Leading):
        def proved_number(self, leader):
            progress = leader.progress
            return progress.number if len(progress.acked) >= self.state.quorum.majority - 1 else 0


class OldHeartbeatsRenew(RaftStrategy):
    """Q4: a heartbeat that is repeated renews the promise, and is followed again."""

    class following_class(Following):
        def is_old(self, heartbeat):
            return False

    def again(self, now_ms, message):
        return None


def repeated(trial):
    """Every heartbeat arrives a second time, ten seconds later; the leader's machine is without power for longer."""
    world = trial.world

    def again(_, sender, to, message, delay_ms):
        if isinstance(message, Heartbeat) and delay_ms >= 0:
            world.deliver_later(delay_ms + 10_000, to, message)

    def power_lost():
        for node in [node for node in world.nodes.values() if node.role == "leader"]:
            world.crash(node, power=True)

    world.watches_messages = again
    world.after(20_000, power_lost)


class NoStartDelay(RaftStrategy):
    """Q5: the winner does not wait for older holds."""

    class leading_class(Leading):
        def start_at(self, now_ms, ages):
            return now_ms


class NoStartDelayEager(NoStartDelay, Eager):
    """Q5 on the base without promise."""


class RestartForgetsAge(Eager):
    """Q5: a restarted voter reports no age instead of the time since it read its ballot."""

    class remembering_class(Remembering):
        def ballot_read(self, now_ms):
            effects = super().ballot_read(now_ms)
            self.state.promise.newest_at_ms = None
            return effects


class CandidateAgeForgotten(Eager):
    """Q5: the candidate leaves its own age out."""

    class leading_class(Leading):
        def win(self, now_ms, campaign):
            self.state.promise.newest_at_ms = None
            return super().win(now_ms, campaign)


class OldestAge(Eager):
    """Q5: the largest age instead of the smallest."""

    class leading_class(Leading):
        def start_at(self, now_ms, ages):
            return max(now_ms, min((at_ms for _, at_ms in ages.values()), default=now_ms))


class NoDriftRatio(Eager):
    """Q5: the wait is not stretched by the drift ratio."""

    def __init__(self, seat, timing, ballot, options=None):
        super().__init__(seat, timing._replace(drift_ppm=0), ballot, options)


class LockIgnored(RaftStrategy):
    """Q6: votes and starts beside work that is not confirmed gone."""

    class state_class(RaftState):
        def work_unconfirmed(self):
            return False


class WaitsInVain(RaftStrategy):
    """G8: a start that is kept back on purpose counts as one that fails, so that its leader resigns after H."""

    class leading_class(Leading):
        def work_deferred(self, now_ms, term, why):
            return []


class NeverLate(RaftStrategy):
    """Q7: a leader without a majority goes on sending heartbeats."""

    class leading_class(Leading):
        def is_late(self, now_ms, leader):
            return False


class TermReopens(RaftStrategy):
    """Q8: after its work is gone, the leader starts again in the same term."""

    class releasing_class(Releasing):
        def work_gone(self, now_ms, term, released):
            leader = self.state.leader_state
            if leader is None or leader.term != term:
                return super().work_gone(now_ms, term, released)
            self.state.work_term = 0 if term == self.state.work_term else self.state.work_term
            leader.ordered = leader.ran = leader.closed = False
            return self.leading.start_if_ready(now_ms)


class NoPreVote(RaftStrategy):
    """Q9: a returning node raises the term at once."""

    class campaigning_class(Campaigning):
        def ask_votes(self, now_ms, term, *, pre):
            return super().ask_votes(now_ms, term, pre=False)


class NoPreVoteNoPromise(NoPreVote, NoPromise):
    """Q9 with Q4: and the others listen to it."""


class AheadIgnored(RaftStrategy):
    """Q9: a leader does not care for a voter that is a term ahead."""

    class leading_class(Leading):
        def on_ahead(self, now_ms, ahead):
            return []


class UnmutedAtOnce(Eager):
    """M1: the end of muteness does not count as reading the ballot."""

    class remembering_class(Remembering):
        def decide(self, now_ms):
            was = self.state.muted
            effects = super().decide(now_ms)
            if was and not self.state.muted:
                self.state.promise.newest_at_ms = None
            return effects


class _ForgetfulRoll(Recovery):
    def remembered(self, wall_ms):
        heard = [r for r in self._reports() if r.memory and r.origin.config == self.own.hash]
        if not heard:
            return None
        term = min(r.term for r in heard)
        register = self.newest()
        return Ballot(heard[0].origin.base, term, "", heard[0].hold_max_ms, 0, 99, (self.own,), register=register)


class AmnesiacVotes(RaftStrategy):
    """M2: a node without memory asks one other and votes again, in terms in which it may have voted."""

    def __init__(self, seat, timing, ballot, options=None):
        super().__init__(seat, timing, ballot, options)
        told = self.state.options
        self.state.recovery = _ForgetfulRoll(seat, auto=told.auto, token_max=told.token_max)


class _BoldRoll(Recovery):
    def wants_first(self, *, waited_long, base):
        lowest = self.own.voters[0] == self.seat.node
        return self.init or (Init(0) if lowest and not base else None)

    def first_refused(self, init):
        return ""

    def first_complete(self, init):
        return len(self.reports) + 1 > len(self.own.voters) // 2

    def take_offers(self, init):
        self.init = None
        return {node: report.origin.boot for node, report in sorted(self.reports.items())}


class InitWithoutAsking(RaftStrategy):
    """M3: a majority of answers is enough for a first start, whatever they say, and a ballot in use gives way."""

    state_class = LeadsOn

    def __init__(self, seat, timing, ballot, options=None):
        super().__init__(seat, timing, ballot, RaftOptions(auto=True))
        self.state.recovery = _BoldRoll(seat, auto=True, token_max=0)

    class remembering_class(Remembering):
        def on_first_ballot(self, now_ms, message):
            leader = None
            if self.state.ballot is not None and message.base != self.state.ballot.base:
                leader = self.state.leader_state
                self.forget()
            effects = super().on_first_ballot(now_ms, message)
            self.state.lead_on(leader)  # type: ignore[attr-defined]
            return effects


class ReleaseCoversAll(RaftStrategy):
    """G6: a release clears promises of newer terms, too."""

    class releasing_class(Releasing):
        def covers(self, term):
            return True

        def apply(self, now_ms, release):
            effects = super().apply(now_ms, release)
            promise = self.state.promise
            promise.released_term = max(promise.released_term, release.term)
            return effects


class ResignWithRelease(Eager):
    """G7: a leader that never started its work says that all work is gone."""

    class leading_class(Leading):
        def resign(self, now_ms, leader, code, detail):
            effects = super().resign(now_ms, leader, code, detail)
            release = Release(self.state.origin, leader.term)
            return effects + [Send(node, release) for node in self.state.quorum.others]


class Uncounted(Watchdog):
    """G10: every start of a term is the first one."""

    def _start_next(self, leadership):
        super()._start_next(leadership)
        self.run = 1
        return [OrderStart(1, leadership)]


class NeverAgain(Watchdog):
    """G10: a command that ended by itself is not started again."""

    def _decide(self, now_ms):
        return []


class LocklessGuard(Guard):
    """G3 off: a guard starts beside a tree that is not gone. Safe because of Q6, which it would mask."""

    def _take_lock(self):
        self.holds_lock = True
        return True


class EarlyReleaseGuard(Guard):
    """G5: the release leaves when the stop is ordered, before the tree is gone."""

    def order_release(self, successor):
        super().order_release(successor)
        if self.ran and self.phase is not Phase.IDLE:
            self.send_release()


def spare_release(trial):
    """G4: a guard that is kept ready already holds the release, and sends it when the agent dies in its start delay."""
    crash = trial.world.crash

    def crash_with_release(node, *, power=False):
        state = node.machine.state if isinstance(node.machine, RaftStrategy) else None
        leader = state and state.leader_state
        if leader is not None and not leader.ordered and not power:
            for name in node.release_targets():
                trial.world.send(node, name, Release(state.origin, leader.term))
        crash(node, power=power)

    trial.world.crash = crash_with_release


def faster_list(trial):
    """All nodes get a file with shorter times at once, while the guards of the old times are stopped."""
    timing = trial.timing
    faster = Timing(*(int(value * 0.7) for value in timing[:-1]))
    trial.faults.change = Change("faster", Membership.of(trial.names, "times-2"), faster)
    trial.faults.stops_guards = 1.0
    sluggish(trial)


def sluggish(trial):
    """Kills take as long as they may."""
    trial.world.conditions.slow_kill = 1.0
    trial.world.conditions.spawn_ms = 1.0


def agreeing_walls(trial):
    """Fail-overs lose commits only in lives whose wall clocks agree."""
    trial.faults.walls_agree = True
    sluggish(trial)


def deaf(trial):
    """The work does not hear TERM."""
    trial.world.conditions.ignores_term = 1.0


def one_ahead(trial):
    """A follower comes back five terms ahead of the leader, as after candidacies that nobody heard of."""

    def come_back():
        name = next(name for name in trial.names if trial.world.nodes[name].role == "follower")
        node = trial.world.nodes[name]
        trial.world.crash(node, power=True)
        node.disk.ballot = node.disk.ballot._replace(term=node.disk.ballot.term + 5, voted_for=name)
        trial.world.start(node)

    trial.world.after(30_000, come_back)


def much_amnesia(trial):
    """Any number of nodes may lose their memory."""
    trial.faults.memory_left = 99


class LazyDisk(Disk):
    """Q1: a save is not synced; a crash takes the last one back."""

    older: Ballot | None = None

    def save(self, ballot):
        self.older = self.ballot
        return super().save(ballot)

    def crash(self, chance):
        if chance.random() < 0.5:
            self.ballot = self.older


class RefusesEach(RaftStrategy):
    """E1: every message that is not heard is refused, however often it is repeated."""

    class state_class(RaftState):
        def refuse(self, now_ms, refusal, *reason):
            return [refusal]


class AnswersRefusals(RefusesEach):
    """E1 and Q10 as they were: whoever is told that it is an old copy answers that the teller is one."""

    class meeting_class(Meeting):
        def is_refusal(self, message):
            return False

        def meet_incarnation(self, now_ms, message):
            known = Ahead(message.origin, 0) if isinstance(message, Stale) else message
            return super().meet_incarnation(now_ms, known)


class Unmarked(RaftStrategy):
    """M3: a node says that it has no memory, and does not write down under which list."""

    class remembering_class(Remembering):
        def mark(self):
            return []


def one_is_left(trial):
    """Nobody has a memory yet. When the cluster begins, the last node, which has said so, is cut off and is started
    again with a file that names nobody but itself."""
    world, left = trial.world, trial.names[-1]
    for name in trial.names:
        world.nodes[name].disk.ballot = None

    def cut_off():
        node = world.nodes[left]
        if left in node.membership.voters and len(node.membership.voters) > 1:
            for other in trial.names[:-1]:
                world.cut(left, other)
                world.cut(other, left)
            world.crash(node)
            node.membership = Membership.of([left], "times-1")
            world.start(node)

    def begins(fact):
        if fact.kind is Kind.EVENT and fact.text == Code.FIRST_BALLOT and fact.node != left:
            world.after(0.0, cut_off)

    world.listeners.append(begins)
