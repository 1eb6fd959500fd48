"""The lifecycle of an agent whose turn it is: start, lead, do what a leader does, end in order.

It ends when it is told to (a signal), or when its workload is done and is not to be started again: always stop,
confirm, release, in this order. What the workload is (a command, the slot server, nothing) stands in the plan;
everything else is the same. What it shows, says and is asked stands in `status.py`, `events.py` and `operations.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple

from primacy.agent.assemble import holding_times, is_alone, promised, transport_of
from primacy.agent.chosen import Chosen, Place, choose
from primacy.agent.events import EventSink
from primacy.agent.gossip import Gossip
from primacy.agent.hooks import Hooks
from primacy.agent.integrations import Integrations
from primacy.agent.lock_watch import LockWatch
from primacy.agent.meter import Meter, MeteredDurable
from primacy.agent.operations import Operations
from primacy.agent.peers import Peers
from primacy.agent.performer import gate_of, guarded_workload, hosted_workload
from primacy.agent.shared import OWN, Shared
from primacy.agent.signals import Ending, Notified
from primacy.agent.state import is_paused, state_root
from primacy.agent.status import StatusSource
from primacy.control.members import file_differs
from primacy.election.inputs import Input, Pause, Shutdown, Started, StrangerHeard
from primacy.election.model import Ballot, Leadership, Role, Seat
from primacy.errors import CannotHere, Unsafe
from primacy.node.ballot import Durable
from primacy.node.clock import Clock
from primacy.node.driver import Driver
from primacy.node.log import Level, Log
from primacy.rate_limiter import RateLimiter
from primacy.settings.loading import containment_required
from primacy.settings.schema import Settings
from primacy.supervise.child import Child
from primacy.supervise.containment import containment_sentence
from primacy.supervise.probes import HealthProbes
from primacy.supervise.renewed import RenewedWork
from primacy.supervise.vocabulary import Note
from primacy.supervise.workload import Nothing, Performer, Workload
from primacy.transport import Transport
from primacy.transport.udp import UdpTransport

PATIENCE = 2
"""Asked to end more often than this, the agent leaves; the guard goes on, and the run lock keeps others away."""
RECOVERING_LOOK_S = 2.0
"""How often a node that may not speak looks whether it has something new to say about that."""
SAY_AGAIN_MS = 60_000
"""A connection that fails again and again, and a node that is late again and again, is said so often."""


class Plan(NamedTuple):
    """All that an agent needs to know, checked."""

    settings: Settings
    child: Child | None
    """The command; None: the workload is done in this process."""
    log: Log
    clock: Clock
    workload: Workload | None = None
    """What this process does itself while its node leads; None, without a command: nothing."""
    waits: bool = True
    """Another agent of this node runs here: wait for one's turn; else refuse."""
    again: Callable[[], Plan] | None = None
    """The same by the file as it is now, for one that has waited. Raises `UsageError`, or as a start would."""


class Reports(NamedTuple):
    """Where each report of a workload goes: its host."""

    tell: Callable[[Input], None]
    note: Callable[[Note], None]
    complain: Callable[[str], None]
    give_up: Callable[[int], None]
    stepped: Callable[[], None]


class Agent:
    """One node, alone or of several, with its workload: put together here from parts that do not know each other."""

    def __init__(self, plan: Plan, place: Place, signals: Ending, notifier: Notified, shared: Shared = OWN) -> None:
        """`place`: its folder, with what was found there. `shared`: what it has in common with other elections."""
        self.settings = settings = plan.settings
        self.shared = shared
        self.log = plan.log
        self.clock = plan.clock
        self.signals = signals
        self.folder = folder = place.folder
        self.promise = promised(settings)
        seat = place.seat
        self.node = seat.node
        self.alone = is_alone(settings)
        self.run_lock = place.run_lock
        chosen = choose(place, self.clock, self.log)
        self.strategy, self.can, self.stored, self.ranked = chosen.strategy, chosen.can, chosen.stored, chosen.ranked
        self.events = EventSink(self.node, self.clock, self.log, place.events, lambda: self.strategy.term, shared.disk)
        if self.ranked is not None:
            self.ranked.connect(self.tell)
        udp = self._udp(seat) if self.ranked is None else None
        self.transport: Transport | None = self.ranked.manager if self.ranked is not None else udp
        cwd = plan.child.cwd if plan.child is not None else os.getcwd()
        self.peers = Peers(settings, chosen, self.transport, udp)
        if udp is not None:
            udp.moved = self._say_where
            if settings.election.strategy == "raft":
                udp.stranger = lambda node: self.tell(StrangerHeard(node))
        self.gate = gate_of(settings, self.node, self.clock, cwd, self._fence_told)
        self.guards = plan.child is not None
        """It has a command to stop."""
        self.workload = self._performer(plan, place)
        self.meter = Meter()
        run = settings.run
        hooks = Hooks(run.hooks, run.hook_ms, cwd, partial(self.events.remark, "hook"))
        health = HealthProbes(run.health, self.clock, cwd, self.tell, partial(self.events.remark, "health"))
        self.shown = StatusSource(
            settings,
            self.clock,
            chosen,
            self.peers,
            self.workload,
            self.gate,
            health,
            self.meter,
            self.promise.at_most_one,
        )
        self.integrations = Integrations(settings, self.node, self.shown.status, hooks, health, notifier)
        self.events.on_event += (self.integrations.recorded, self.meter.recorded)
        self.events.on_note.append(self.integrations.noted)
        self.events.on_heard.append(self.integrations.heard)
        holds = self.promise.at_most_one or not self.guards
        self.renewed = None if holds else RenewedWork(self.workload, holding_times(settings), self.clock)
        self.began_aside = False
        """It was paused at its start, because placement wants that (W2): who ends it must know."""
        self.driver = self._driver(chosen)
        operations = Operations(folder, self.shown.status, self.tell, self.events, self.peers, self.gate, health)
        operations.is_saving = lambda: self.driver.is_saving
        self.disk_orders = operations.disk
        self.control_api = shared.control(settings, folder, self.node, operations, self.events.events)
        self.page = shared.page(settings, self.node, state_root(settings, os.environ, os.geteuid()), self.log.warn)
        self.gossip = self._gossip(operations)
        self._late_said = RateLimiter(SAY_AGAIN_MS)
        self._recovering_said = ""
        self._recovering_timer: asyncio.TimerHandle | None = None
        self._settle_timer: asyncio.TimerHandle | None = None
        self._lock_watch: LockWatch | None = None
        self._unsafe = ""
        """Why this agent must not go on."""
        self._broken_said = RateLimiter(SAY_AGAIN_MS)
        self.exit_code = 0
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _udp(self, seat: Seat) -> UdpTransport | None:
        return transport_of(self.settings, seat, self.can.register(), self.log.warn, self.shared.transport)

    def _performer(self, plan: Plan, place: Place) -> Performer:
        host = Reports(self.tell, self._note, self.log.warn, self.give_up, self.stepped)
        if plan.child is None:
            workload = plan.workload or Nothing()
            return hosted_workload(place, workload, self.clock, host, self.gate, self.peers)
        rights = self.stored.right if self.stored is not None else None
        return guarded_workload(
            place, plan.child, self.clock, self.log.warn, host, self.gate, self.peers, rights, self.shared.reserve
        )

    def _driver(self, chosen: Chosen) -> Driver:
        durable = MeteredDurable(chosen.durable, self.meter)
        driver = Driver(
            chosen.strategy,
            self.clock,
            durable,
            self.renewed or self.workload,
            self.events.recorded,
            self.transport,
            self.stored,
            chosen.can.again,
        )
        if self.promise.at_most_one and self.guards:
            driver.late_ms, driver.late = max(1, self._reserve_ms // 2), self._late
        driver.stepped = self.looked
        if self.shared.saves is not None:
            driver.saver = partial(_save_beside, self.shared.saves, durable)
        return driver

    def _gossip(self, operations: Operations) -> Gossip | None:
        if self.transport is None:
            return None
        names, carry_out = self.peers.names(), operations.carry_out
        gossip = Gossip(self.node, names, self.transport, self.clock, self.shown, self.events, carry_out)
        gossip.of_agents = self.shared.of_agents
        operations.gossip = gossip
        self.shown.others = gossip.others
        self.events.on_record.append(gossip.happened)
        return gossip

    def tell(self, given: Input) -> None:
        self.driver.give(given)

    def _note(self, note: Note) -> None:
        self.events.note(note, self.workload.term)

    def _fence_told(self, leadership: Leadership) -> dict[str, str]:
        return self.integrations.fence_told(leadership)

    async def live(self) -> int:
        """Until nothing is left to do."""
        if self.shared is OWN:
            asyncio.get_running_loop().set_exception_handler(self.broken)
        if self.shared.saves is None:
            self.control_api.bind()
        else:
            await asyncio.to_thread(self.control_api.bind)  # it writes files only, and other elections go on meanwhile
        await self.workload.prepare()
        self._say_containment()
        if self.transport is not None and self.gossip is not None:
            await self.transport.start(self.driver.hear, self.gossip.hear)
            self.gossip.start()
            self._say_where()
        held = self.run_lock.is_held()
        if held:
            self.log.warn("waits for the run lock: work of an earlier agent on this machine is still ending")
            self.workload.watch_lock()
        self.signals.told = self.asked_to_end
        self._lock_watch = LockWatch(self.folder, self._lock_lost, alone=self.shared is OWN)
        self.meter.start()
        if self.stored is not None:
            self.stored.start(self.driver.give, self._finish, releases=self.guards)
            self.log.info(f"node {self.node} campaigns for the lease {self.settings.election.name}", node=self.node)
        if is_paused(self.folder):
            self.log.info(f"node {self.node} was paused before this start and stays so: primacy resume")
            self.driver.give(Pause())  # before it could campaign
        elif aside := self.shared.aside(self.settings.election.name):
            self.log.info(f"node {self.node} does not lead; it waits for {aside}")
            self.began_aside = True
            self.driver.give(Pause(aside))
        self.driver.give(Started(self.clock.wall_ms(), held))
        if differs := file_differs(self.shown.status()):
            self.log.warn(differs)
        self.control_api.serve()
        self.page.serve()
        self.integrations.start()
        if self.alone and not self.can.awaits_word():
            self._refuse_to_recover()
        else:
            self._say_recovering()
        if self.signals.exit_code is not None:
            self.asked_to_end(1)
        await self._over
        if self._unsafe:
            raise Unsafe(self._unsafe)
        code = self.signals.exit_code
        return self.exit_code if code is None else code

    def _say_where(self) -> None:
        self.log.info(self.peers.where(), node=self.node)

    async def close(self) -> None:
        self.signals.told = None
        self.driver.close()
        self.disk_orders.close()
        await self.driver.settled()
        if self._recovering_timer is not None:
            self._recovering_timer.cancel()
        if self._settle_timer is not None:
            self._settle_timer.cancel()
        if self._lock_watch is not None:
            self._lock_watch.close()
        self.meter.close()
        if self.gossip is not None:
            self.gossip.close()
        if self.renewed is not None:
            self.renewed.end()
        if self.ranked is not None:
            await self.ranked.manager.settle()
            await self.ranked.manager.aclose()
        elif self.transport is not None:
            self.transport.close()
        await self.page.close()
        await self.control_api.close()
        await self.events.close()
        await self.workload.close()
        if self.stored is not None:
            await self.stored.close()
        await self.integrations.close()
        self.run_lock.close()

    @property
    def _reserve_ms(self) -> int:
        """What the times leave the kernel for its own kill."""
        timing = holding_times(self.settings)
        return timing.hold_ms - timing.deadman_at_ms

    def _late(self, late_ms: int) -> None:
        """Whatever makes this process late may make the kill of a lost command late: said before the reserve is gone.

        After a stop, too, and after a sleep of the machine: the same would have happened to the kill.
        """
        self.meter.late(late_ms)
        if not self._late_said.passes(self.clock.now_ms()):
            return
        self.events.remark(
            "late",
            False,
            f"node {self.node} woke {late_ms:,} ms late: this machine stood still, or has too much to do. If it did so "
            f"at the end of a hold, the kernel's kill of the command would be late, too, and {self._reserve_ms:,} ms "
            "are kept for that (primacy contract): choose a slower profile, or give the machine less to do",
        )

    def _say_containment(self) -> None:
        if not self.guards:
            return
        held = self.workload.view()
        found = held.containment
        if not found:
            raise CannotHere("the guard process could not be started; the lines above say why")
        sentence = containment_sentence(found, held.containment_why, held.way)
        if found != "strong" and containment_required(self.settings) == "strong":
            whom = " on a lease" if self.settings.election.strategy == "lease" else " of several nodes"
            by_default = "" if self.settings.run.require_containment else whom
            raise CannotHere(
                f"strong containment is required{by_default}, and {sentence}; or accept it as it is, with "
                "--require-containment any"
            )
        self.log.say(Level.INFO if found == "strong" else Level.WARN, sentence, containment=found)

    def _refuse_to_recover(self) -> None:
        """Nobody else can answer a node that is alone, so that waiting would be for ever."""
        view = self.strategy.view(self.clock.now_ms())
        if view.role is Role.RECOVERING:
            raise Unsafe(f"node {self.node} waits for {view.waits_for}")

    def _say_recovering(self) -> None:
        """What a node that may not speak yet waits for, each time that this changes."""
        self._recovering_timer = None
        said, self._recovering_said = self._recovering_said, ""
        if self.strategy.role is not Role.RECOVERING:
            return
        self._recovering_timer = asyncio.get_running_loop().call_later(RECOVERING_LOOK_S, self._say_recovering)
        self._recovering_said = self.strategy.view(self.clock.now_ms()).waits_for
        if self._recovering_said and self._recovering_said != said:
            self.log.info(f"node {self.node} waits for {self._recovering_said}", node=self.node)

    # --- the end ------------------------------------------------------------------------------------------------------

    def asked_to_end(self, times: int) -> None:
        """Once: in order, with the command's own stop time. Twice: now."""
        if times == 1:
            what = "stops the command, then releases" if self.guards else "hands over, then ends"
            self.log.info(f"was asked to end: {what}")
        else:
            self.log.warn(f"was asked to end again: {'kills the command' if self.guards else 'ends at once'}")
            self.workload.hurry()
        self._end()
        if times > PATIENCE or (times > 1 and (self.workload.is_orphaned or self.workload.is_over)):
            self._finish(None)

    def abandon(self) -> None:
        """At once, as if it were killed: the guard sees to the rest."""
        self._finish(None)

    def _lock_lost(self, why: str) -> None:
        """At once, and in order: the command is killed, confirmed gone, and the role given up (G11)."""
        if not self._unsafe:
            self._unsafe = why
            self.log.error("the lock of this agent was removed: it ends at once")
            self._end()
            self.workload.hurry()
            if self.workload.is_orphaned:
                self._finish(None)

    def give_up(self, code: int) -> None:
        self.exit_code = code
        self._end()

    def _end(self) -> None:
        if not self.shown.ending:
            self.shown.ending = True
            self.integrations.stopping()
            self.driver.give(Shutdown())
            self.stepped()

    def stepped(self) -> None:
        """The work made a step."""
        self.looked()
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        """Nothing runs, and the lease is released. For one hold only: then nobody needs the release any more."""
        if not self.shown.ending or not self.workload.is_over:
            return
        if self.can.is_settled():
            self._finish(None)
        elif self._settle_timer is None:
            hold_s = holding_times(self.settings).hold_ms / 1_000
            self._settle_timer = asyncio.get_running_loop().call_later(hold_s, self._unsettled)

    def _unsettled(self) -> None:
        self.log.warn(
            "the store did not take the release of the lease within one hold; another node takes it when it has waited "
            "the hold out"
        )
        self._finish(None)

    def looked(self) -> None:
        """Election or work made a step: the moment to see what changed."""
        if self.gossip is not None:
            self.peers.follow()
            self.gossip.names = self.peers.names()
        if self.shown.has_changed():
            if self.gossip is not None:
                self.gossip.changed()
            self.integrations.looked()
        leader = self.strategy.leader
        if leader == self.node:
            leader = ""
        self.workload.looked(leader, self.peers.clients_find(leader))
        if self.stored is not None:
            self._look_for_the_end()
        if self.strategy.role is Role.RECOVERING and self._recovering_timer is None and not self.alone:
            self._recovering_timer = asyncio.get_running_loop().call_later(RECOVERING_LOOK_S, self._say_recovering)

    def _finish(self, fault: BaseException | None) -> None:
        if self._over.done():
            return
        if fault is not None:
            self._over.set_exception(fault)
        else:
            self._over.set_result(None)

    def broken(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG002
        """A bug of ours in a callback: half an agent would be worse than none, and the guard sees to the rest.

        A connection that failed is no bug: no more can be accepted just now, or one broke.
        """
        fault = context.get("exception")
        if isinstance(fault, OSError) and ("socket" in context or "transport" in context):
            said = f"{context.get('message')}: {fault.strerror or type(fault).__name__}"
            if self._broken_said.passes(self.clock.now_ms(), said):  # a flood of them is one line
                self.log.warn(said)
            return
        self._finish(context.get("exception") or RuntimeError(str(context.get("message"))))


def _save_beside(pool: Executor, durable: Durable, ballot: Ballot, told: Callable[[OSError | None], None]) -> None:
    """In a thread. What is no fault of the disk is a bug of ours: the loop's to report, as with any callback."""
    loop = asyncio.get_running_loop()

    def save() -> OSError | None:
        try:
            durable.save(ballot)
        except OSError as error:
            return error
        return None

    def saved(done: asyncio.Future[OSError | None]) -> None:
        told(done.result())

    loop.run_in_executor(pool, save).add_done_callback(saved)
