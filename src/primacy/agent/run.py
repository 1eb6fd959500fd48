"""The life of an agent: take the folder, wait for one's turn, lead, do what a leader does, end in order.

One agent per election and machine; a second one waits and says for whom. It ends when it is told to (a signal), or when
its duty is done and is not to be started again: always stop, confirm, release, in this order. What the duty is (a
command, the slot server, nothing) stands in the plan; everything else is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from primacy.agent.asked import Asked, take_turn
from primacy.agent.assemble import (
    addresses,
    holding_times,
    is_alone,
    lease_of,
    promised,
    raft_of,
    seat_of,
    transport_of,
)
from primacy.agent.care import Care
from primacy.agent.child import Child
from primacy.agent.correspondence import Correspondence
from primacy.agent.desk import Desk
from primacy.agent.duty import Duty, HostedDuty, Nothing, Performer, Spans
from primacy.agent.gatekeeper import GateKeeper
from primacy.agent.lease_file import LeaseFile, lease_folder
from primacy.agent.log import Level, Log
from primacy.agent.memory import gather
from primacy.agent.meter import Meter, MeteredDurable
from primacy.agent.notify import Notifier
from primacy.agent.page import Page
from primacy.agent.process_duty import ProcessDuty
from primacy.agent.renewed import RenewedWork
from primacy.agent.state import claim, forget_pause, is_paused, keep_pause, open_state, state_root
from primacy.agent.stored import Stored, earlier_holders, opened, seen_in_store
from primacy.agent.words import of_note, of_order
from primacy.control import Approve, Heard, MonitorSays, Order, Remove, Snapshot
from primacy.control.orders import carry_out
from primacy.control.post import Happened as Told
from primacy.election.events import Code, Event, sentence
from primacy.election.inputs import Input, Pause, Resume, Shutdown, Started
from primacy.election.lease import LeaseStrategy
from primacy.election.messages import Release
from primacy.election.model import Role, Seat, View
from primacy.election.raft import RaftStrategy
from primacy.election.store import holder_id
from primacy.errors import CannotHere, InUse, Unsafe
from primacy.loop import QuickLoop
from primacy.node.ballot import FileDurable
from primacy.node.clock import Clock, SystemClock
from primacy.node.driver import Driver
from primacy.node.folder import Folder
from primacy.node.lock import AgentLock, RunLock
from primacy.settings import is_ranked
from primacy.settings.schema import Settings
from primacy.strategies import is_own
from primacy.transport import ReadyDatagram, Transport
from primacy.watchdog.containment import containment_sentence
from primacy.watchdog.gate import Gate, Rule
from primacy.watchdog.machine import Note, Policy, Restart, State, Watchdog

if TYPE_CHECKING:  # each is loaded by those nodes only that need it: a start is short, and an idle node small
    from primacy.election.follow import RankStrategy
    from primacy.election.own import Plugged
    from primacy.transport.http import HttpTransport
    from primacy.transport.http_roll import Entry

TOKENS = "tokens"
"""In the state folder, beside `ballot`: the largest token that a lease has shown."""
PATIENCE = 2
"""Asked to end more often than this, the agent leaves; the guard goes on, and the run lock keeps others away."""
MUTE_LOOK_S = 2.0
"""How often a node that may not speak looks whether it has something new to say about that."""
SAY_AGAIN_MS = 60_000
"""A connection that fails again and again is said so often."""


class Plan(NamedTuple):
    """All that a life needs to know, checked."""

    settings: Settings
    child: Child | None
    """The command; None: the duty is done in this process."""
    log: Log
    clock: Clock
    duty: Duty | None = None
    """What this process does itself while its node leads; None, without a command: nothing."""
    waits: bool = True
    """Another agent of this node runs here: wait for one's turn; else refuse."""


def run(plan: Plan) -> int:
    """Until the end; returns the exit code."""
    if not sys.platform.startswith("linux"):
        raise CannotHere("a node of primacy needs Linux: it stands on kernel clocks, timers and process namespaces")
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(_run(plan))


async def _run(plan: Plan) -> int:
    asked = Asked()
    try:
        return await _live(plan, asked)
    finally:
        await asked.settle()


async def _live(plan: Plan, asked: Asked) -> int:
    with contextlib.ExitStack() as ends:
        folder = open_state(plan.settings, os.environ, os.geteuid())
        ends.callback(folder.close)
        lock = AgentLock(folder)
        ends.callback(lock.close)
        notifier = Notifier(os.environ, os.getpid())
        ends.callback(notifier.close)
        if not plan.waits:
            _refuse_second(lock, plan.settings)
        await take_turn(lock, plan.settings.election.name, plan.log, asked, notifier)
        if asked.exit_code is not None:
            return asked.exit_code
        agent = Agent(plan, folder, asked, notifier)
        try:
            return await agent.live()
        finally:
            await agent.close()


def _refuse_second(lock: AgentLock, settings: Settings) -> None:
    """Raises `InUse` if another agent has this folder. Ours alone from here on, if not."""
    if not lock.take():
        named = f" {settings.node}" if settings.node else ""
        raise InUse(f"node{named} runs here already: {lock.holder()} has its folder; primacy node stop{named}")


class Agent:
    """One node, alone or of several, with its duty: whose boss it is. The driver's listener."""

    def __init__(self, plan: Plan, folder: Folder, asked: Asked, notifier: Notifier) -> None:
        self.settings = settings = plan.settings
        self.log = plan.log
        self.clock = plan.clock
        self.asked = asked
        self.folder = folder
        self.promise = promised(settings)
        self.ranked: RankStrategy | None = None
        self.manager: HttpTransport | None = None
        """Of bully and ring: the strategy, and what its nodes speak through."""
        self.remembered: tuple[Entry, ...] = ()
        seat = self._seat()
        self.node = seat.node
        self.alone = is_alone(settings)
        if not self.alone:
            claim(folder, self.node)
        self.run_lock = RunLock(folder)
        durable = self._assemble(seat)
        self.transport = self._transport(seat)
        cwd = plan.child.cwd if plan.child is not None else os.getcwd()
        self.care = Care(settings, self.node, cwd, self.clock, self, notifier)
        rule = Rule(settings.election.mode == "manual", bool(settings.run.fence_command), settings.run.fence_ms)
        self.gate = GateKeeper(
            Gate(holding_times(settings), rule, self.node),
            self.clock,
            settings.run.fence_command,
            cwd,
            self.care.fence_told,
        )
        self.duty: Performer
        if plan.child is not None:
            self.duty = self._process_duty(plan.child)
        else:
            self.duty = self._hosted_duty(plan.duty or Nothing())
        self.meter = Meter()
        metered = MeteredDurable(durable, self.meter)
        holds = self.promise.at_most_one or not self._guards
        self.renewed = None if holds else RenewedWork(self.duty, holding_times(settings), self.clock)
        work = self.renewed or self.duty
        again = self.strategy.again if isinstance(self.strategy, RaftStrategy) else None
        self.driver = Driver(
            self.strategy, self.clock, metered, work, self.recorded, self.transport, self.stored, again
        )
        self.desk = Desk(settings, folder, self.node, self)
        self.page = Page(settings, self.node, state_root(settings, os.environ, os.geteuid()), self)
        self.correspondence: Correspondence | None = None
        if self.transport is not None:
            self.correspondence = Correspondence(self.node, self.names(), self.transport, self.clock, self)
        self.driver.stepped = self.looked
        self._mute_said = ""
        self._mute_timer: asyncio.TimerHandle | None = None
        self._settle_timer: asyncio.TimerHandle | None = None
        self._said_until_ms: dict[str, int] = {}
        """Connections that failed, and until when that need not be said again."""
        self.ending = False
        self.exit_code = 0
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _seat(self) -> Seat:
        if not is_ranked(self.settings):
            return seat_of(self.settings)
        from primacy.agent.managed import ranked_seat, recalled

        self.remembered = recalled(self.settings, self.folder)
        return ranked_seat(self.settings, self.remembered)

    def _transport(self, seat: Seat) -> Transport | None:
        if self.ranked is None:
            return transport_of(self.settings, seat, self.complain)
        from primacy.agent.managed import keeper, manager_of

        keep = keeper(self.folder, self.complain)
        manager = manager_of(self.settings, seat, self.clock, self.complain, self.remembered, keep)
        manager.give, manager.view = self.tell, self.view
        self.manager = manager
        return manager

    def _assemble(self, seat: Seat) -> FileDurable:
        """The strategy, what it remembers, and its store if it has one. Tokens are known under either strategy (T2).

        A lease keeps them in a file of its own: a ballot has promises besides, which must not be written over.
        """
        settings, folder = self.settings, self.folder
        ballot, tokens = FileDurable(folder), FileDurable(folder, TOKENS)
        voted, seen = ballot.load(), tokens.load()
        self.strategy: RaftStrategy | LeaseStrategy | RankStrategy | Plugged
        self.stored: Stored | None = None
        if is_own(settings.election.strategy):
            from primacy.agent.owned import KEPT, own_of

            kept = FileDurable(folder, KEPT)
            memory = kept.load()
            if memory.lost:
                self.log.warn(f"{kept.path} cannot be trusted: {memory.lost}; the strategy begins without it")
            known = max((each.ballot.token_known for each in (voted, seen) if each.ballot is not None), default=0)
            self.strategy = own_of(settings, seat, memory, known, self.clock.now_ms())
            return kept
        if is_ranked(settings):
            from primacy.agent.managed import rank_of

            self.strategy = self.ranked = rank_of(settings, seat, self.remembered)
            return ballot
        if settings.election.strategy != "lease":
            known = seen.ballot.token_max if seen.ballot is not None else 0
            self.strategy = raft_of(settings, seat, voted, ballot.path, known)
            if voted.lost:
                self.log.warn(f"the ballot {ballot.path} cannot be trusted: {voted.lost}")
            return ballot
        timing = holding_times(settings)
        store = opened(settings, timing)
        holder = holder_id(seat.node, seat.boot)
        known = voted.ballot.token_known if voted.ballot is not None else 0
        self.strategy = lease_of(
            settings, seat, seen, tokens.path, known, earlier_holders(folder, self.run_lock, holder)
        )
        self.stored = Stored(settings, store, timing, holder, self.complain)
        return tokens

    def _process_duty(self, child: Child) -> ProcessDuty:
        settings, timing, election = self.settings, holding_times(self.settings), self.settings.election.name
        where = lease_folder(self.folder.where, os.environ, os.geteuid())
        policy = Policy(Restart(settings.run.restart), settings.run.stop_ms, settings.run.restart_limit)
        return ProcessDuty(
            election,
            child,
            Watchdog(timing, policy),
            timing,
            self.clock,
            self.run_lock,
            LeaseFile(where, election, self.clock, self.complain),
            settings.run.require_containment,
            self,
            self.gate,
            self.ready_release,
            self.stored.releasers.right if self.stored is not None else None,
        )

    def _hosted_duty(self, duty: Duty) -> HostedDuty:
        timing = holding_times(self.settings)
        spans = Spans(self.settings.run.stop_ms, timing.kill_at_ms - timing.term_at_ms)
        send = self.send_release if self.transport is not None else None
        return HostedDuty(duty, spans, self.clock, self.run_lock, self, self.gate, send)

    async def live(self) -> int:
        """Until nothing is left to do."""
        asyncio.get_running_loop().set_exception_handler(self._broken)
        self.desk.bind()
        await self.duty.prepare()
        self._say_containment()
        gather()
        if self.transport is not None and self.correspondence is not None:
            await self.transport.start(self.driver.hear, self.correspondence.hear)
            self.correspondence.start()
            self.log.info(self._where(), node=self.node)
        held = self.run_lock.is_held()
        if held:
            self.log.warn("waits for the run lock: work of an earlier agent on this machine is still ending")
            self.duty.watch_lock()
        self.asked.agent = self
        self.meter.start()
        if self.stored is not None:
            self.stored.start(self.driver.give, releasers=isinstance(self.duty, ProcessDuty))
            self.log.info(f"node {self.node} stands for the lease {self.settings.election.name}", node=self.node)
        if is_paused(self.folder):
            self.log.info(f"node {self.node} was paused before this start and stays so: primacy resume")
            self.driver.give(Pause())  # before it could stand
        self.driver.give(Started(self.clock.wall_ms(), held))
        self.desk.serve()
        self.page.serve()
        self.care.start()
        if self.alone:
            self._refuse_to_be_mute()
        else:
            self._say_mute()
        if self.asked.exit_code is not None:
            self.asked_to_end(1)
        await self._over
        code = self.asked.exit_code
        return self.exit_code if code is None else code

    async def close(self) -> None:
        self.asked.agent = None
        self.driver.close()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        if self._settle_timer is not None:
            self._settle_timer.cancel()
        self.meter.close()
        if self.correspondence is not None:
            self.correspondence.close()
        if self.renewed is not None:
            self.renewed.end()
        if self.manager is not None:
            await self.manager.settle()
            await self.manager.aclose()
        elif self.transport is not None:
            self.transport.close()
        await self.page.close()
        await self.desk.close()
        await self.duty.close()
        if self.stored is not None:
            await self.stored.close()
        await self.care.close()
        self.run_lock.close()

    def _say_containment(self) -> None:
        if not isinstance(self.duty, ProcessDuty):
            return
        found, why = self.duty.containment, self.duty.containment_why
        if not found:
            raise CannotHere("the guard process could not be started; the lines above say why")
        sentence = containment_sentence(found, why)
        if found != "strong" and self.duty.require == "strong":
            raise CannotHere(f"strong containment is required, and {sentence}")
        self.log.say(Level.INFO if found == "strong" else Level.WARN, sentence, containment=found)

    def _refuse_to_be_mute(self) -> None:
        """Nobody else can answer a node that is alone, so that waiting would be for ever."""
        view = self.strategy.view(self.clock.now_ms())
        if view.role is Role.MUTED:
            raise Unsafe(f"node {self.node} waits for {view.waits_for}")

    def _say_mute(self) -> None:
        """What a node that may not speak yet waits for, each time that this changes."""
        self._mute_timer = None
        said, self._mute_said = self._mute_said, ""
        if self.strategy.role is not Role.MUTED:
            return
        self._mute_timer = asyncio.get_running_loop().call_later(MUTE_LOOK_S, self._say_mute)
        self._mute_said = self.strategy.view(self.clock.now_ms()).waits_for
        if self._mute_said and self._mute_said != said:
            self.log.info(f"node {self.node} waits for {self._mute_said}", node=self.node)

    # --- the end ------------------------------------------------------------------------------------------------------

    def asked_to_end(self, times: int) -> None:
        """Once: in order, with the command's own stop time. Twice: now."""
        if times == 1:
            what = "stops the command, then releases" if self._guards else "hands over, then ends"
            self.log.info(f"was asked to end: {what}")
        else:
            self.log.warn(f"was asked to end again: {'kills the command' if self._guards else 'ends at once'}")
            self.duty.hurry()
        self._end()
        if times > PATIENCE or (times > 1 and (self.duty.is_orphaned or self.duty.is_over)):
            self._finish(None)

    @property
    def _guards(self) -> bool:
        """It has a command to stop."""
        return isinstance(self.duty, ProcessDuty)

    def give_up(self, code: int) -> None:
        self.exit_code = code
        self._end()

    def _end(self) -> None:
        if not self.ending:
            self.ending = True
            self.care.stopping()
            self.driver.give(Shutdown())
            self.stepped()

    def stepped(self) -> None:
        """The work made a step."""
        self.looked()
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        """Nothing runs, and the lease is released. For one hold only: then nobody needs the release any more."""
        if not self.ending or not self.duty.is_over:
            return
        if not isinstance(self.strategy, LeaseStrategy) or self.strategy.settled:
            self._finish(None)
        elif self._settle_timer is None:
            hold_s = self.strategy.timing.hold_ms / 1_000
            self._settle_timer = asyncio.get_running_loop().call_later(hold_s, self._unsettled)

    def _unsettled(self) -> None:
        self.complain(
            "the store did not take the release of the lease within one hold; another node takes it when it has waited "
            "the hold out"
        )
        self._finish(None)

    def looked(self) -> None:
        """Election or work made a step: the moment to see what changed."""
        if self.correspondence is not None:
            self.correspondence.names = tuple(name for name in self.names() if name != self.node)
            self.correspondence.stepped()
        self.care.looked()
        leader = self.strategy.leader
        if leader == self.node:
            leader = ""
        self.duty.looked(leader, self._clients_find(leader))
        if self.stored is not None:
            self._look_for_the_end()
        if self.strategy.role is Role.MUTED and self._mute_timer is None and not self.alone:
            self._mute_timer = asyncio.get_running_loop().call_later(MUTE_LOOK_S, self._say_mute)

    def _finish(self, fault: BaseException | None) -> None:
        if self._over.done():
            return
        if fault is not None:
            self._over.set_exception(fault)
        else:
            self._over.set_result(None)

    def _broken(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG002
        """A bug of ours in a callback: half an agent would be worse than none, and the guard sees to the rest.

        A connection that failed is no bug: no more can be accepted just now, or one broke.
        """
        fault = context.get("exception")
        if isinstance(fault, OSError) and ("socket" in context or "transport" in context):
            said = f"{context.get('message')}: {fault.strerror or type(fault).__name__}"
            if self.clock.now_ms() >= self._said_until_ms.get(said, 0):  # a flood of them is one line
                self._said_until_ms = {said: self.clock.now_ms() + SAY_AGAIN_MS}
                self.complain(said)
            return
        self._finish(context.get("exception") or RuntimeError(str(context.get("message"))))

    # --- what is told -------------------------------------------------------------------------------------------------

    def tell(self, given: Input) -> None:
        self.driver.give(given)

    def ready_release(self, release: Release) -> list[ReadyDatagram]:
        return self.transport.ready_release(release) if self.transport is not None else []

    def send_release(self, release: Release) -> None:
        """To all others, at once: nothing of this leadership is left."""
        if self.transport is not None:
            for name in self.names():
                if name != self.node:
                    self.transport.send(name, release)

    def note(self, note: Note) -> None:
        level, text = of_note(note)
        self.log.say(level, text, code=note.what, node=self.node, run=note.run)
        self.record(self.duty.term, note.what, text, note.number)
        self.care.noted(note)

    def complain(self, sentence: str) -> None:
        self.log.warn(sentence)

    def recorded(self, events: Sequence[Event]) -> None:
        """A muteness that ends in the step it began in (the first start) is no news."""
        brief = {event.code for event in events} >= {Code.MUTED, Code.UNMUTED}
        for event in events:
            self.care.recorded(event)
            self.meter.recorded(event)
            quiet = brief and event.code in (Code.MUTED, Code.UNMUTED)
            self.log.event(self.node, event, Level.DEBUG if quiet else None)
            if not quiet:
                said = sentence(self.node, event)
                self.record(event.term, event.code, said, event.value)

    def record(self, term: int, code: str, text: str, value: int = 0) -> None:
        """Into the log of events, and to the other nodes."""
        at_ms = self.clock.wall_ms()
        self.desk.record(at_ms, term, code, text, value)
        if self.correspondence is not None:
            self.correspondence.happened(Told(at_ms, term, code, text, value))

    def heard_event(self, node: str, event: Told) -> None:
        self.care.heard(node, event.code, event.term)
        self.desk.record_of(node, *event)

    def remark(self, code: str, well: bool, text: str) -> None:
        """What hooks and probes have to say."""
        self.log.say(Level.INFO if well else Level.WARN, text, code=code, node=self.node)
        self.record(self.strategy.term, code, text)

    def alarm(self, sentence: str) -> None:
        self.log.error(sentence, code="alarm", node=self.node)
        self.desk.record(self.clock.wall_ms(), self.strategy.term, "alarm", sentence)

    # --- what is asked for --------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """The nodes as they are listed now."""
        listed = self.ranked.membership if self.ranked is not None else self.strategy.seat.membership
        return listed.ids

    def listed(self) -> tuple[tuple[str, str, str], ...]:
        """Id, kind and address of each node of a list that grows by joining; of a fixed one the settings know it."""
        if self.ranked is None or self.manager is None:
            return ()
        kinds = {member.id: str(member.kind) for member in self.ranked.membership.members}
        return tuple((e.node, kinds.get(e.node, "voter"), e.addr) for e in self.manager.roll.listed)

    def _where(self) -> str:
        if self.manager is not None:
            from primacy.agent.managed import where

            return where(self.settings, self.manager)
        return addresses(self.settings, self.node)

    def role(self) -> Role:
        return self.strategy.role

    def view(self) -> View:
        return self.strategy.view(self.clock.now_ms())

    def duty_state(self) -> State:
        return self.duty.state

    def pid(self) -> int:
        return self.duty.view().pid

    def preceding_term(self) -> int:
        return self.strategy.preceding_term

    def running_elsewhere(self) -> tuple[str, int]:
        others = self.correspondence.others if self.correspondence is not None else {}
        ran = [
            (name, heard.summary.term)
            for name, heard in others.items()
            if heard.summary.role == Role.LEADER and heard.summary.duty_state == State.RUNNING
        ]
        return max(ran, key=lambda each: each[1], default=("", 0))

    def snapshot(self) -> Snapshot:
        now_ms, duty = self.clock.now_ms(), self.duty.view()
        transport = self.transport
        return Snapshot(
            settings=self.settings,
            node=self.node,
            view=self.strategy.view(now_ms),
            duty=duty,
            heard_ms=self._heard_ms(now_ms),
            counters=self._counters(),
            now_ms=now_ms,
            wall_ms=self.clock.wall_ms(),
            ending=self.ending,
            health=self.care.health.sentence,
            containment=containment_sentence(duty.containment, duty.containment_why) if duty.containment else "",
            approval_term=self.gate.approval_term,
            others=self._others(now_ms),
            troubles=transport.troubles if transport is not None else (),
            config=self.strategy.seat.membership.hash,
            boot=self.strategy.seat.boot,
            links=self.links(),
            meters=self.meter.readings(),
            listed=self.listed(),
            at_most_one=self.promise.at_most_one,
        )

    def _clients_find(self, node: str) -> str:
        """Where the slots of another node are: as it said itself, or by the file that all have; empty if unknown."""
        if not node:
            return ""
        from primacy.slots.host import names_no_host, reached

        if self.manager is not None:
            others = self.manager.roll.others
            return next((reached(each.data, each.addr) for each in others if each.node == node), "")
        listed = self.settings.cluster.manager.nodes.get(node)
        listens = self.settings.slots.addr
        return reached(listens, listed.addr) if listed is not None and names_no_host(listens) else ""

    def _counters(self) -> dict[str, int]:
        counted = dict(self.duty.counters())
        if self.transport is not None:
            counted.update(self.transport.counters)
        if self.stored is not None:
            counted.update(self.stored.counters)
        return counted

    def _heard_ms(self, now_ms: int) -> dict[str, int]:
        if isinstance(self.strategy, LeaseStrategy):
            return {name: now_ms - heard.at_ms for name, heard in self._others(now_ms).items()}
        return {name: now_ms - at_ms for name, at_ms in self.strategy.heard.items()}

    def _others(self, now_ms: int) -> dict[str, Heard]:
        """What each says of itself; of the holder of a lease, if it says nothing, what its row says."""
        told = self.correspondence.others if self.correspondence is not None else {}
        if isinstance(self.strategy, LeaseStrategy):
            return {**seen_in_store(self.strategy, now_ms, self.duty.view().kind), **told}
        return told

    def changing(self) -> tuple[Any, ...]:
        """What is worth telling the others soon, without the cost of a snapshot."""
        strategy, duty = self.strategy, self.duty.view()
        return (
            strategy.role,
            strategy.term,
            strategy.leader,
            isinstance(strategy, RaftStrategy) and strategy.muted,
            strategy.paused,
            strategy.healthy,
            duty.state,
            duty.pid,
            self.gate.gate.phase,
        )

    def hold_left_ms(self) -> int:
        strategy, now_ms = self.strategy, self.clock.now_ms()
        if isinstance(strategy, RaftStrategy):
            return strategy.hold_left_ms(now_ms)
        return strategy.view(now_ms).hold_left_ms

    def links(self) -> dict[str, str]:
        others = [name for name in self.names() if name != self.node]
        return {name: self.transport.links.way(name) for name in others} if self.transport is not None else {}

    def cut(self, node: str, way: str) -> None:
        if self.transport is None:
            return
        if node:
            self.transport.links.cut(node, way)
        else:
            self.transport.links.heal()
        cut = ", ".join(f"{name} {way}" for name, way in self.links().items() if way != "none")
        text = f"{self.node} has its links cut: {cut}" if cut else f"{self.node} has all its links again"
        self.log.info(text, code="links", node=self.node)
        self.record(self.strategy.term, "links", text)

    def order(self, given: Order, said_at: str = "") -> None:
        """Raises `Refused` if the disk does not take what the order must leave there."""
        if isinstance(given, MonitorSays):
            self.care.says(given)  # what it changes is an event; that it spoke is none
            return
        if isinstance(given, Resume):
            forget_pause(self.folder)
        text = of_order(self.node, given, said_at)
        self.log.info(text, code="told", node=self.node)
        self.record(self.strategy.term, "told", text)
        if isinstance(given, Approve):
            self.gate.approve(given.term, given.by)
            return
        if isinstance(given, Remove):
            assert self.manager is not None, "a fixed list, and a node removed from it"
            self.manager.joining.remove(given.node)
            return
        self.driver.give(given)
        if isinstance(given, Pause):
            keep_pause(self.folder)

    def carry_out(self, name: str, body: dict[str, Any], said_at: str) -> None:
        carry_out(name, body, self, self.desk.events, said_at)

    async def pass_on(self, to: str, name: str, body: dict[str, Any]) -> str:
        assert self.correspondence is not None, "alone, and another node is listed"
        return await self.correspondence.pass_on(to, name, body)


def system_clock() -> Clock:
    return SystemClock()
