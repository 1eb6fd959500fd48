"""A model of one guard process with its tree and the kernel's timer, in true time.

It decides nothing that the agent decides: when a run is started, again or at all, comes from the real watchdog
(`sim/world/workload.py`). It does what the process does (`supervise/guard/guard.py`). Starting and stopping take time,
the command may ignore TERM, a kill takes a while, the agent may be dead or stopped meanwhile, and so may the guard
itself; then the kernel's dead-man timer acts. All its moments are instants of the node's own clock. A stopped guard
reads its orders when it goes on. The release leaves only when the tree is gone (G5).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from primacy.election.messages import Release
from primacy.election.model import Leadership
from primacy.sim.facts import Kind
from primacy.supervise.vocabulary import Exited, Gone, GuardEnded, Locked, NotStarted, Ran

if TYPE_CHECKING:
    from primacy.sim.world.workload import Workload
    from primacy.sim.world.world import World


UNKILLABLE_LOOK_MS = 5.0
"""How often a process that cannot be killed is looked at: it dies once it can be."""


class Phase(StrEnum):
    """What the guard holds."""

    IDLE = "idle"
    """No process: before the first run, between two, after the last."""
    SPAWNING = "spawning"
    RUNNING = "running"
    STOPPING = "stopping"
    KILLED = "killed"
    GONE = "gone"
    """The tree is gone, which the guard is about to see."""
    ENDED = "ended"
    """The guard process itself."""


class Guard:
    """One guard per term (G4)."""

    def __init__(self, world: World, agent: Workload, leadership: Leadership, release: Release | None) -> None:
        self.world = world
        self.agent = agent
        self.node = agent.node
        self.timing = agent.timing
        self.term = leadership.term
        self.token = leadership.token
        self.release = release
        self.hold_from_ms = leadership.valid_until_ms - self.timing.hold_ms
        self.phase = Phase.IDLE
        self.run = 0
        self.ran = False
        """The command of this run was executed."""
        self.holds_lock = False
        self.closed = False
        """Nothing can be started or extended any more (Q8)."""
        self.frozen = False
        self.lost = False
        """The guard process itself was killed; its tree dies with it and nobody sends a release."""
        self.release_ordered = False
        self.released = False
        self.successor = ""
        self.store = agent.node.store
        """Of a lease: where its row is, whatever the node's next start uses."""
        self.stop_kill_at_ms: int | None = None
        self._unread: list[Callable[[], None]] = []
        self._unseen: list[Callable[[], None]] = []
        """What the agent ordered, and what the tree did, while the guard was stopped."""
        self._scheduled = float("inf")

    # --- orders of the agent ------------------------------------------------------------------------------------------

    def order(self, what: Callable[[], None]) -> None:
        """One of the following, in order; a stopped guard reads it later, a dead one never."""
        if self.frozen:
            self._unread.append(what)
        elif not self.lost:
            what()

    def start(self, run: int, leadership: Leadership) -> None:
        left_ms = leadership.valid_until_ms - self.timing.hold_ms + self.timing.term_at_ms - self.node.local_ms()
        if self.phase is not Phase.IDLE or self.closed or self.release_ordered or left_ms <= 0:
            self.agent.hear(NotStarted(run, "not now, or not in this term any more"))
        elif not self._take_lock():
            self.agent.hear(Locked(0))
        else:
            self.run, self.ran, self.phase, self.stop_kill_at_ms = run, False, Phase.SPAWNING, None
            self.extend(leadership)
            self.world.after(self.node.draw_ms(1, self.world.conditions.spawn_ms), partial(self._spawned, run))
            self._watch()

    def _take_lock(self) -> bool:
        """Held from the first start to the end of the guard and its tree; no start without it (G3)."""
        self.holds_lock = self.holds_lock or not self.node.lock_held()
        return self.holds_lock

    def extend(self, leadership: Leadership) -> None:
        """Only for a later absolute deadline (G1). It comes with every heartbeat, and needs no `order`."""
        if self.frozen:
            self._unread.append(partial(self.extend, leadership))
        elif not self.closed:
            self.hold_from_ms = max(self.hold_from_ms, leadership.valid_until_ms - self.timing.hold_ms)

    def stop(self, kill_at_ms: int) -> None:
        """TERM now; KILL at this moment or at that of the hold."""
        self.stop_kill_at_ms = min(kill_at_ms, self.stop_kill_at_ms or kill_at_ms)
        self._terminate()
        self._watch()

    def order_release(self, successor: str) -> None:
        self.release_ordered = True
        self.successor = successor
        if self.phase is Phase.IDLE:
            self.agent.hear(Gone(self.run, self._releases()))

    def dismiss(self) -> None:
        if self.phase is Phase.IDLE:
            self._end()

    # --- what befalls it ----------------------------------------------------------------------------------------------

    def agent_died(self) -> None:
        """Seen by pidfd: the tree is stopped at once, confirmed gone, then the release leaves."""
        self.world.after(self.node.draw_ms(1, 5), self._agent_is_dead)

    def _agent_is_dead(self) -> None:
        if self.node.waits(self._agent_is_dead):
            return
        if not self.frozen and not self.lost:
            self.closed = True
            self._end_all()

    def freeze(self, frozen: bool) -> None:
        """Once it goes on it reads its orders, before it looks at the deadlines and at its tree."""
        self.frozen = frozen
        if not frozen and not self.lost and not self.node.frozen:
            self._catch_up()

    def thaw(self) -> None:
        """The machine goes on. A guard that is stopped by itself stays so, and the kernel's timer counts on."""
        if self.frozen and not self.lost:
            self._keep_deadlines()
        elif not self.lost:
            self._catch_up()

    def _catch_up(self) -> None:
        unread, self._unread = self._unread, []
        for order in unread:
            order()
        if self._agent_is_gone():
            self._agent_is_dead()
        self._keep_deadlines()
        unseen, self._unseen = self._unseen, []
        for seen in unseen:
            seen()

    def kill_guard(self) -> None:
        """The guard process dies: the parent-death signal takes the tree with it (G2)."""
        if self.phase is not Phase.ENDED and not self.lost:
            self.lost = True
            self.agent.hear(GuardEnded())
            self._end_all()
            unseen, self._unseen = self._unseen, []
            for seen in unseen:  # a stopped guard never saw it; its death ends what is left, and frees the lock
                seen()

    def child_ends(self) -> None:
        """The command ends by itself."""
        if self.phase is Phase.RUNNING and not self.frozen and not self.node.frozen:
            self._ended()
            self._gone()

    def power_lost(self) -> None:
        """The whole machine is off: nothing runs, nothing is sent."""
        if self.phase in (Phase.RUNNING, Phase.STOPPING, Phase.KILLED):
            self._tell_end(self.run)
        self.phase = Phase.ENDED
        self.lost = True
        self.holds_lock = False

    # --- inside -------------------------------------------------------------------------------------------------------

    def _agent_is_gone(self) -> bool:
        return self.node.workload is not self.agent

    def _spawned(self, run: int) -> None:
        """The command is executed, unless the time for it is over or it was told to stop meanwhile (I5)."""
        if self.phase is not Phase.SPAWNING or self.run != run or self.node.waits(partial(self._spawned, run)):
            return
        if self.frozen:
            self._unseen.append(partial(self._spawned, run))  # the child waits for a byte from its guard
            return
        now_ms = self.node.local_ms()
        if self.closed or now_ms >= self.hold_from_ms + self.timing.term_at_ms or self._agent_is_gone():
            self._kill()
            return
        self.phase, self.ran = Phase.RUNNING, True
        left_ms = self.hold_from_ms + self.timing.kill_at_ms - now_ms
        self.world.emit(Kind.WORK_STARTED, self.node.name, self.token, str(self.term), self.run, str(left_ms))
        self.agent.hear(Ran(run, 1))

    def _terminate(self) -> None:
        if self.phase is Phase.SPAWNING:
            self._gone()
        elif self.phase is Phase.RUNNING:
            self.phase = Phase.STOPPING
            conditions = self.world.conditions
            if self.node.chance.random() >= conditions.ignores_term:
                self.world.after(self.node.draw_ms(1, conditions.stop_ms), partial(self._died, Phase.STOPPING))

    def _kill(self) -> None:
        if self.phase is Phase.SPAWNING:
            self._gone()
        elif self.phase in (Phase.RUNNING, Phase.STOPPING):
            self.phase = Phase.KILLED
            self.world.after(self._dying_ms(), partial(self._died, Phase.KILLED))

    def _end_all(self) -> None:
        """The agent or the guard is dead: nothing of this term goes on."""
        self._kill()
        if self.phase is Phase.IDLE:
            self.phase = Phase.GONE
            self._confirm()

    def _dying_ms(self) -> float:
        """How long a kill takes: within what the hold leaves after the dead-man point, on the fastest clock (A2)."""
        allowed_ms = (self.timing.hold_ms - self.timing.deadman_at_ms) * 0.985
        slowest_ms = allowed_ms * self.world.conditions.slow_kill
        return max(0.2, slowest_ms if self.node.chance.random() < 0.5 else self.node.draw_ms(0.2, slowest_ms))

    def _died(self, phase: Phase) -> None:
        """Of TERM or of KILL, unless something else came first."""
        if self.phase is not phase or self.node.waits(partial(self._died, phase)):
            return
        if self.node.unkillable:
            self.world.after(UNKILLABLE_LOOK_MS, partial(self._died, phase))
            return
        self._ended()
        self._gone()

    def _ended(self) -> None:
        """All that the guard sees of the work is gone."""
        if self.node.escaping is None:
            self._tell_end(self.run)
        else:
            self.node.escaping.append(partial(self._tell_end, self.run))

    def _tell_end(self, run: int) -> None:
        self.world.emit(Kind.WORK_ENDED, self.node.name, self.token, str(self.term), run)

    def _gone(self) -> None:
        """The tree is gone; the guard confirms it a moment later."""
        self.phase = Phase.GONE
        self.world.after(self.node.draw_ms(0.1, 1), self._confirm)

    def _confirm(self) -> None:
        """The release leaves if the agent ordered it or is dead, and the guard still lives (G5)."""
        if self.phase is not Phase.GONE or self.node.waits(self._confirm):
            return
        if self.frozen and not self.lost:
            self._unseen.append(self._confirm)
            return
        self.phase = Phase.IDLE
        released = self._releases()
        if self.lost or self._agent_is_gone():
            self._end()
        elif self.ran:
            self.agent.hear(Exited(self.run, 0))
            self.agent.hear(Gone(self.run, released))
        else:
            self.agent.hear(NotStarted(self.run, "it was ended before it was executed"))

    def _end(self) -> None:
        """The guard process is gone, and so is all that it held: the run lock is free."""
        self.phase = Phase.ENDED
        self.holds_lock = False
        self.node.forget(self)
        if not self.lost:
            self.agent.hear(GuardEnded())
        if self.node.workload is not None:
            self.node.workload.look_at_lock()

    def _releases(self) -> bool:
        if self.lost or self.released or not self._may_release():
            return False
        self.released = True
        self.send_release()
        return True

    def _may_release(self) -> bool:
        """All three: ordered or the agent is dead; the tree is gone; the run lock is held (G5)."""
        return (self.release_ordered or self._agent_is_gone()) and self.phase is Phase.IDLE and self.holds_lock

    def send_release(self) -> None:
        """To all nodes (raft), or to the store (lease)."""
        self.world.emit(Kind.RELEASE_SENT, self.node.name, self.term)
        if self.release is None:
            self.world.store_way.release_row(self.node, self.store, self.token, self.successor)
            return
        release = self.release._replace(successor=self.successor)
        for name in self.node.release_targets():
            self.world.send(self.node, name, release)

    # --- the points of the hold ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Wakes at the next of them: TERM, KILL, dead-man; extensions only move it away."""
        now_ms = self.node.local_ms()
        points = [
            self.hold_from_ms + at for at in (self.timing.term_at_ms, self.timing.kill_at_ms, self.timing.deadman_at_ms)
        ]
        if self.stop_kill_at_ms is not None:
            points.append(self.stop_kill_at_ms)
        ahead = [point for point in points if point > now_ms]
        if ahead:
            at = self.node.clock.true_ms(min(ahead))
            if at < self._scheduled:
                self._scheduled = at
                self.world.at(at, partial(self._point, at))

    def _point(self, scheduled_ms: float) -> None:
        if scheduled_ms == self._scheduled and self.phase is not Phase.ENDED and not self.lost:
            self._scheduled = float("inf")
            self._keep_deadlines()

    def _keep_deadlines(self) -> None:
        if self.node.frozen:
            return  # they are kept once the machine goes on
        now_ms = self.node.local_ms()
        held_ms = now_ms - self.hold_from_ms
        if held_ms >= self.timing.deadman_at_ms:
            self.kill_guard()  # by the kernel, whether it is stopped or not
            return
        if not self.frozen:
            if held_ms >= self.timing.term_at_ms and not self.closed:
                self.closed = True
                self._terminate()
            stop_is_over = self.stop_kill_at_ms is not None and now_ms >= self.stop_kill_at_ms
            if held_ms >= self.timing.kill_at_ms or stop_is_over:
                self._kill()
        self._watch()
