"""The guarded work of one node, with its guard, in true time.

It stands for the guard process, the child and its tree: starting and stopping take time, the child may ignore TERM, the
kill takes a while, the agent may be dead or stopped meanwhile, and so may the guard itself; then the kernel's dead-man
timer acts. All its moments are instants of the node's own clock. The release leaves only when the tree is gone (G5).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from primacy.election.messages import Release
from primacy.election.model import Leadership
from primacy.settings.timing import Timing
from primacy.sim.facts import Kind

if TYPE_CHECKING:
    from primacy.sim.world.node import Node
    from primacy.sim.world.world import World


class Phase(StrEnum):
    """Where the work stands."""

    WAITING = "waiting"
    """The agent keeps its start back on purpose (G8): there is no process, no lock and no release yet."""
    SPAWNING = "spawning"
    RUNNING = "running"
    STOPPING = "stopping"
    KILLED = "killed"
    BETWEEN = "between"
    """The child ended by itself; its next run waits for the back-off."""
    GONE = "gone"


class Guard:
    """One guard per term (G4)."""

    def __init__(
        self, world: World, node: Node, leadership: Leadership, release: Release | None, timing: Timing
    ) -> None:
        self.world = world
        self.node = node
        self.term = leadership.term
        self.token = leadership.token
        self.release = release
        self.timing = timing
        self.boot = node.boot
        self.hold_from_ms = leadership.valid_until_ms - timing.hold_ms
        self.phase = Phase.SPAWNING
        self.run = 0
        self.frozen = False
        self.lost = False
        """The guard process itself was killed; its tree dies with it and nobody sends a release."""
        self.release_ordered = False
        self.reported = False
        self.successor = ""
        self.planned_kill_at_ms: int | None = None
        self._scheduled = float("inf")
        if world.conditions.deferred and node.chance.random() < world.conditions.deferred:
            self.phase = Phase.WAITING
            world.after(0, lambda: self._tell_deferred("an approval"))
            world.after(node.draw_ms(0, world.conditions.deferred_ms), self.let_in)
        else:
            self._spawn()

    def _spawn(self) -> None:
        self.world.after(self.node.draw_ms(1, self.world.conditions.spawn_ms), self._spawned)
        self._watch()

    # --- the agent's words --------------------------------------------------------------------------------------------

    def extend(self, leadership: Leadership) -> None:
        """Only for a later absolute deadline (G1); a stopped guard reads nothing."""
        if not self.frozen:
            self.hold_from_ms = max(self.hold_from_ms, leadership.valid_until_ms - self.timing.hold_ms)

    def stop(self, *, planned: bool) -> None:
        """TERM now; KILL after the planned stop time, or at the point of the hold."""
        if self.frozen or self.phase in (Phase.GONE, Phase.KILLED):
            return
        if planned:
            self.planned_kill_at_ms = self.node.local_ms() + self.world.conditions.planned_stop_ms
        self._terminate()
        self._watch()

    def order_release(self, successor: str) -> None:
        if not self.frozen:
            self.release_ordered = True
            self.successor = successor

    # --- what befalls it ----------------------------------------------------------------------------------------------

    def agent_died(self) -> None:
        """Seen by pidfd: the tree is stopped at once, confirmed gone, then the release leaves."""
        self.world.after(self.node.draw_ms(1, 5), self._agent_is_dead)

    def _agent_is_dead(self) -> None:
        if not self.frozen and not self.lost:
            self._kill()

    def freeze(self, frozen: bool) -> None:
        if self.phase is Phase.WAITING:
            return  # there is no guard yet; what waits is a part of the agent
        self.frozen = frozen
        if not frozen:
            if self.phase is Phase.GONE:
                self._report()
            elif self._agent_is_gone():
                self._kill()
            self._watch()

    def kill_guard(self) -> None:
        """The guard process dies: the parent-death signal takes the tree with it (G2)."""
        if self.phase is not Phase.GONE and not self.lost:
            self.lost = True
            self.node.guard_lost(self)
            self._kill()

    def child_ends(self) -> None:
        """The child ends by itself and is started again on this node, in this term, after a back-off (G10)."""
        if self.phase is Phase.RUNNING and not self.frozen:
            self._ended()
            self.phase = Phase.BETWEEN
            self.world.after(self.node.draw_ms(5, 100), self._spawned)

    def power_lost(self) -> None:
        """The whole machine is off: nothing runs, nothing is sent."""
        if self.phase in (Phase.RUNNING, Phase.STOPPING, Phase.KILLED):
            self._ended()
        self.phase = Phase.GONE
        self.lost = self.reported = True

    # --- a start that is kept back ------------------------------------------------------------------------------------

    def _tell_deferred(self, why: str) -> None:
        if self.node.boot == self.boot and not self._agent_is_gone():
            self.node.tell_deferred(self.term, why)

    def let_in(self) -> None:
        """The approval is there. All conditions of a start are looked at again; a stopped agent hears it later."""
        if self.phase is not Phase.WAITING or self._agent_is_gone():
            return
        if self.node.stopped or self.node.busy is not None:
            self.world.after(self.timing.heartbeat_ms, self.let_in)
        elif self._may_begin():
            self.phase = Phase.SPAWNING
            self._tell_deferred("")
            self._spawn()

    def _may_begin(self) -> bool:
        """Still in this term (it was not told to stop), and with a hold that has not reached TERM (Q8, G8)."""
        return self.node.local_ms() < self.hold_from_ms + self.timing.term_at_ms

    # --- inside -------------------------------------------------------------------------------------------------------

    def _agent_is_gone(self) -> bool:
        return self.node.machine is None or self.node.boot != self.boot

    def _spawned(self) -> None:
        """The child runs, unless the time for it is over or it was told to stop meanwhile (I5)."""
        if self.phase not in (Phase.SPAWNING, Phase.BETWEEN) or self.frozen:
            if self.frozen and self.phase in (Phase.SPAWNING, Phase.BETWEEN):
                self._kill()
            return
        if self.node.local_ms() >= self.hold_from_ms + self.timing.term_at_ms or self._agent_is_gone():
            self._kill()
            return
        self.phase = Phase.RUNNING
        self.run += 1
        left_ms = self.hold_from_ms + self.timing.kill_at_ms - self.node.local_ms()
        self.world.emit(Kind.WORK_STARTED, self.node.name, self.token, str(self.term), self.run, str(left_ms))
        if self.run == 1:
            self.node.tell_started(self.term)

    def _terminate(self) -> None:
        if self.phase in (Phase.WAITING, Phase.SPAWNING, Phase.BETWEEN):
            self._gone()
        elif self.phase is Phase.RUNNING:
            self.phase = Phase.STOPPING
            conditions = self.world.conditions
            if self.node.chance.random() >= conditions.ignores_term:
                self.world.after(self.node.draw_ms(1, conditions.stop_ms), self._stopped_by_itself)

    def _stopped_by_itself(self) -> None:
        if self.phase is Phase.STOPPING:
            self._died()

    def _kill(self) -> None:
        if self.phase in (Phase.WAITING, Phase.SPAWNING, Phase.BETWEEN):
            self._gone()
        elif self.phase in (Phase.RUNNING, Phase.STOPPING):
            self.phase = Phase.KILLED
            self.world.after(self._dying_ms(), self._died)

    def _dying_ms(self) -> float:
        """How long a kill takes: within what the hold leaves after the dead-man point, on the fastest clock (A2)."""
        allowed_ms = (self.timing.hold_ms - self.timing.deadman_at_ms) * 0.985
        slowest_ms = allowed_ms * self.world.conditions.slow_kill
        return max(0.2, slowest_ms if self.node.chance.random() < 0.5 else self.node.draw_ms(0.2, slowest_ms))

    def _died(self) -> None:
        if self.phase in (Phase.STOPPING, Phase.KILLED):
            self._ended()
            self._gone()

    def _ended(self) -> None:
        self.world.emit(Kind.WORK_ENDED, self.node.name, self.token, str(self.term), self.run)

    def _gone(self) -> None:
        """The tree is gone; the guard confirms it a moment later."""
        self.phase = Phase.GONE
        self.world.after(self.node.draw_ms(0.1, 1), self._report)

    def _report(self) -> None:
        """The tree is gone. The release leaves if the agent ordered it or is dead, and the guard still lives (G5)."""
        if self.reported:
            return
        if self.frozen and not self.lost:
            return  # it goes on when it is thawed
        self.reported = True
        released = not self.lost and self._may_release(self._agent_is_gone())
        if released:
            self.send_release()
        self.node.guard_finished(self, released)

    def _may_release(self, agent_gone: bool) -> bool:
        """All three: ordered or the agent is dead; the tree is gone; the work of this term ran (G5, G7)."""
        return self.phase is Phase.GONE and self.run > 0 and (agent_gone or self.release_ordered)

    def send_release(self) -> None:
        """To all nodes (raft), or to the store (lease)."""
        self.world.emit(Kind.RELEASE_SENT, self.node.name, self.term)
        if self.release is None:
            self.world.store_way.release_row(self.node, self.token, self.successor)
            return
        release = self.release._replace(successor=self.successor)
        for name in self.node.release_targets():
            self.world.send(self.node, name, release)

    def _watch(self) -> None:
        """Wakes at the next point of the hold: TERM, KILL, dead-man; extensions only move it away."""
        if self.phase in (Phase.GONE, Phase.KILLED, Phase.WAITING):
            return
        now_ms = self.node.local_ms()
        points = [
            self.hold_from_ms + at for at in (self.timing.term_at_ms, self.timing.kill_at_ms, self.timing.deadman_at_ms)
        ]
        if self.planned_kill_at_ms is not None:
            points.append(self.planned_kill_at_ms)
        ahead = [point for point in points if point > now_ms]
        if ahead:
            at = self.node.clock.true_ms(min(ahead))
            if at < self._scheduled:
                self._scheduled = at
                self.world.at(at, lambda: self._point(at))

    def _point(self, scheduled_ms: float) -> None:
        if scheduled_ms != self._scheduled or self.phase is Phase.GONE or self.phase is Phase.KILLED:
            return
        self._scheduled = float("inf")
        now_ms = self.node.local_ms()
        after_s = now_ms - self.hold_from_ms
        if after_s >= self.timing.deadman_at_ms:
            if self.frozen and not self.lost:  # the kernel kills the guard; nobody releases
                self.lost = True
                self.node.guard_lost(self)
            self._kill()
        elif not self.frozen:
            planned_over = self.planned_kill_at_ms is not None and now_ms >= self.planned_kill_at_ms
            if after_s >= self.timing.kill_at_ms or planned_over:
                self._kill()
            elif after_s >= self.timing.term_at_ms:
                self._terminate()
        self._watch()
