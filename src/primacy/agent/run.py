"""The life of `primacy run`: take the folder, wait for one's turn, lead, run the command, end in order.

One agent per election and machine; a second one waits and says for whom. It ends when it is told to (a signal), or when
the command is done and is not to be started again: always stop, confirm, release, in this order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from primacy.agent.asked import Asked, take_turn
from primacy.agent.assemble import addresses, holding_times, is_alone, lease_of, raft_of, seat_of, transport_of
from primacy.agent.care import Care
from primacy.agent.child import Child
from primacy.agent.correspondence import Correspondence
from primacy.agent.desk import Desk
from primacy.agent.gatekeeper import GateKeeper
from primacy.agent.lease_file import LeaseFile, lease_folder
from primacy.agent.log import Level, Log
from primacy.agent.memory import gather
from primacy.agent.meter import Meter, MeteredDurable
from primacy.agent.notify import Notifier
from primacy.agent.page import Page
from primacy.agent.process_duty import ProcessDuty
from primacy.agent.state import claim, forget_pause, is_paused, keep_pause, open_state, state_root
from primacy.agent.stored import Stored, earlier_holders, opened, seen_in_store
from primacy.agent.words import of_note, of_order
from primacy.control import Approve, Heard, MonitorSays, Order, Snapshot
from primacy.control.orders import carry_out
from primacy.control.post import Happened as Told
from primacy.election.events import Code, Event, sentence
from primacy.election.inputs import Input, Pause, Resume, Shutdown, Started
from primacy.election.lease import LeaseStrategy
from primacy.election.messages import Release
from primacy.election.model import Role, Seat, View
from primacy.election.raft import RaftStrategy
from primacy.election.store import holder_id
from primacy.errors import CannotHere, Unsafe
from primacy.loop import QuickLoop
from primacy.node.ballot import FileDurable
from primacy.node.clock import Clock, SystemClock
from primacy.node.driver import Driver
from primacy.node.folder import Folder
from primacy.node.lock import AgentLock, RunLock
from primacy.settings.schema import Settings
from primacy.transport import ReadyDatagram
from primacy.watchdog.containment import containment_sentence
from primacy.watchdog.gate import Gate, Rule
from primacy.watchdog.machine import Note, Policy, Restart, State, Watchdog

TOKENS = "tokens"
"""In the state folder, beside `ballot`: the largest token that a lease has shown."""
PATIENCE = 2
"""Asked to end more often than this, the agent leaves; the guard goes on, and the run lock keeps others away."""
MUTE_LOOK_S = 2.0
"""How often a node that may not speak looks whether it has something new to say about that."""
SAY_AGAIN_MS = 60_000
"""A connection that fails again and again is said so often."""


class Plan(NamedTuple):
    """All that a run needs to know, checked."""

    settings: Settings
    child: Child
    log: Log
    clock: Clock


def run(plan: Plan) -> int:
    """Until the end; returns the exit code."""
    if not sys.platform.startswith("linux"):
        raise CannotHere("primacy run needs Linux: its guard stands on kernel timers and process namespaces")
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
        await take_turn(lock, plan.settings.election.name, plan.log, asked, notifier)
        if asked.exit_code is not None:
            return asked.exit_code
        agent = Agent(plan, folder, asked, notifier)
        try:
            return await agent.live()
        finally:
            await agent.close()


class Agent:
    """One node, alone or of several, with its command. The duty's boss, and the driver's listener."""

    def __init__(self, plan: Plan, folder: Folder, asked: Asked, notifier: Notifier) -> None:
        self.settings = settings = plan.settings
        self.log = plan.log
        self.clock = plan.clock
        self.asked = asked
        self.folder = folder
        seat = seat_of(settings)
        self.node = seat.node
        self.alone = is_alone(settings)
        if not self.alone:
            claim(folder, self.node)
        self.run_lock = RunLock(folder)
        durable = self._assemble(seat)
        self.transport = transport_of(settings, seat, self.complain)
        election = settings.election.name
        lease = LeaseFile(lease_folder(folder.where, os.environ, os.geteuid()), election, self.clock, self.complain)
        policy = Policy(Restart(settings.run.restart), settings.run.stop_ms, settings.run.restart_limit)
        timing = holding_times(settings)
        self.care = Care(settings, self.node, plan.child, self.clock, self, notifier)
        rule = Rule(settings.election.mode == "manual", bool(settings.run.fence_command), settings.run.fence_ms)
        self.gate = GateKeeper(
            Gate(timing, rule, self.node), self.clock, settings.run.fence_command, plan.child.cwd, self.care.fence_told
        )
        self.duty = ProcessDuty(
            election,
            plan.child,
            Watchdog(timing, policy),
            timing,
            self.clock,
            self.run_lock,
            lease,
            settings.run.require_containment,
            self,
            self.gate,
            self.ready_release,
            self.stored.releasers.right if self.stored is not None else None,
        )
        self.meter = Meter()
        metered = MeteredDurable(durable, self.meter)
        again = self.strategy.again if isinstance(self.strategy, RaftStrategy) else None
        self.driver = Driver(
            self.strategy, self.clock, metered, self.duty, self.recorded, self.transport, self.stored, again
        )
        self.desk = Desk(settings, folder, self.node, self)
        self.page = Page(settings, self.node, state_root(settings, os.environ, os.geteuid()), self)
        self.correspondence: Correspondence | None = None
        if self.transport is not None:
            names = seat.membership.ids
            self.correspondence = Correspondence(self.node, names, self.transport, self.clock, self)
        self.driver.stepped = self.looked
        self._mute_said = ""
        self._mute_timer: asyncio.TimerHandle | None = None
        self._settle_timer: asyncio.TimerHandle | None = None
        self._said_until_ms: dict[str, int] = {}
        """Connections that failed, and until when that need not be said again."""
        self.ending = False
        self.exit_code = 0
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _assemble(self, seat: Seat) -> FileDurable:
        """The strategy, what it remembers, and its store if it has one. Tokens are known under either strategy (T2).

        A lease keeps them in a file of its own: a ballot has promises besides, which must not be written over.
        """
        settings, folder = self.settings, self.folder
        ballot, tokens = FileDurable(folder), FileDurable(folder, TOKENS)
        voted, seen = ballot.load(), tokens.load()
        self.strategy: RaftStrategy | LeaseStrategy
        self.stored: Stored | None = None
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
            self.log.info(addresses(self.settings, self.node), node=self.node)
        held = self.run_lock.is_held()
        if held:
            self.log.warn("waits for the run lock: work of an earlier agent on this machine is still ending")
            self.duty.watch_lock()
        self.asked.agent = self
        self.meter.start()
        if self.stored is not None:
            self.stored.start(self.driver.give)
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
        if self.transport is not None:
            self.transport.close()
        await self.page.close()
        await self.desk.close()
        await self.duty.close()
        if self.stored is not None:
            await self.stored.close()
        await self.care.close()
        self.run_lock.close()

    def _say_containment(self) -> None:
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
            self.log.info("was asked to end: stops the command, then releases")
        else:
            self.log.warn("was asked to end again: kills the command")
            self.duty.hurry()
        self._end()
        if times > PATIENCE or (times > 1 and (self.duty.is_orphaned or self.duty.is_over)):
            self._finish(None)

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
        if isinstance(self.strategy, RaftStrategy) or self.strategy.settled:
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
            self.correspondence.stepped()
        self.care.looked()
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

    def note(self, note: Note) -> None:
        level, text = of_note(note)
        self.log.say(level, text, code=note.what, node=self.node, run=note.run)
        self.record(self.duty.watchdog.term or self.gate.gate.term, note.what, text, note.number)
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

    def role(self) -> Role:
        return self.strategy.role

    def view(self) -> View:
        return self.strategy.view(self.clock.now_ms())

    def duty_state(self) -> State:
        return self.duty.state

    def pid(self) -> int:
        return self.duty.watchdog.pid

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
        now_ms = self.clock.now_ms()
        transport, stored = self.transport, self.stored
        return Snapshot(
            settings=self.settings,
            node=self.node,
            view=self.strategy.view(now_ms),
            duty=self.duty.view(),
            heard_ms=self._heard_ms(now_ms),
            counters={**(transport.counters if transport else {}), **(stored.counters if stored else {})},
            now_ms=now_ms,
            wall_ms=self.clock.wall_ms(),
            ending=self.ending,
            health=self.care.health.sentence,
            containment=containment_sentence(self.duty.containment, self.duty.containment_why),
            approval_term=self.gate.approval_term,
            others=self._others(now_ms),
            troubles=transport.troubles if transport is not None else (),
            config=self.strategy.seat.membership.hash,
            boot=self.strategy.seat.boot,
            links=self.links(),
            meters=self.meter.readings(),
        )

    def _heard_ms(self, now_ms: int) -> dict[str, int]:
        if isinstance(self.strategy, LeaseStrategy):
            return {name: now_ms - heard.at_ms for name, heard in self._others(now_ms).items()}
        return {name: now_ms - at_ms for name, at_ms in self.strategy.heard.items()}

    def _others(self, now_ms: int) -> dict[str, Heard]:
        """What each says of itself; of the holder of a lease, if it says nothing, what its row says."""
        told = self.correspondence.others if self.correspondence is not None else {}
        if isinstance(self.strategy, LeaseStrategy):
            return {**seen_in_store(self.strategy, now_ms), **told}
        return told

    def changing(self) -> tuple[Any, ...]:
        """What is worth telling the others soon, without the cost of a snapshot."""
        strategy, dog = self.strategy, self.duty.watchdog
        return (
            strategy.role,
            strategy.term,
            strategy.leader,
            isinstance(strategy, RaftStrategy) and strategy.muted,
            strategy.paused,
            strategy.healthy,
            dog.state,
            dog.pid,
            self.gate.gate.phase,
        )

    def hold_left_ms(self) -> int:
        strategy, now_ms = self.strategy, self.clock.now_ms()
        if isinstance(strategy, RaftStrategy):
            return strategy.hold_left_ms(now_ms)
        return strategy.view(now_ms).hold_left_ms

    def links(self) -> dict[str, str]:
        others = [member.id for member in self.strategy.seat.membership.members if member.id != self.node]
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
