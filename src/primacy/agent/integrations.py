"""What stands around the work of a node and never in its way: hooks, health, the word to systemd, and who led before.

The agent tells it what happens; it looks at the node after each step, notices what changed, and passes it on. Nothing
here can delay a heartbeat, a start or a stop.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from primacy.agent.hooks import Hooks
from primacy.agent.signals import Notified
from primacy.control import NodeStatus
from primacy.control.gossip_rows import GossipEvent
from primacy.election.events import Code, Event
from primacy.election.model import Leadership, Role, View
from primacy.node.bound import outer_environment
from primacy.settings.schema import Settings
from primacy.supervise.child import told
from primacy.supervise.probes import HealthProbes
from primacy.supervise.vocabulary import Happened, Note, State

ENDINGS = (
    Code.STEP_DOWN,
    Code.TRANSFER,
    Code.PAUSED,
    Code.UNHEALTHY,
    Code.STOPPING,
    Code.MAJORITY_LOST,
    Code.RENEWAL_LATE,
    Code.LEASE_LOST,
    Code.DISK_FAILED,
    Code.HIGHER_TERM,
    Code.TERM_AHEAD,
    Code.GUARD_LOST,
    Code.CANNOT_START,
    Code.TOKEN_LOW,
)
"""Why a leadership ends. The first one of a term is the reason; what follows is its consequence."""
STOP_RESERVE_MS = 10_000
"""Besides the command's own stop time: for the kill, the release, and the last hooks."""


@dataclass(eq=False)
class Integrations:
    """One node's hooks, probes and supervisor."""

    settings: Settings
    node: str
    status: Callable[[], NodeStatus]
    hooks: Hooks
    health: HealthProbes
    notifier: Notified
    _ran: tuple[str, int] = ("", 0)
    """Whose command ran in the newest term of which this node knows that, and that term."""
    _leads: Leadership | None = None
    _reason: str = ""
    _state: str = State.STOPPED
    _run: int = 0
    """The run that a hook was told of as started, and not yet as stopped."""
    _runs: Leadership | None = None
    """Under which it was started: its end may come after that of the role."""

    def start(self) -> None:
        self.notifier.ready(_status_line(self.status()))
        self.health.start()

    async def close(self) -> None:
        await self.health.close()
        await self.hooks.close()
        self.notifier.close()

    def stopping(self) -> None:
        self.notifier.stopping(self.settings.run.stop_ms + STOP_RESERVE_MS)

    def fence_told(self, leadership: Leadership) -> dict[str, str]:
        """What a fence command is told: for whom it fences, and, if that is known, against whom.

        It is known only if somebody's command is known to have run in the very last term: then that node had seen to
        all before it. Whom this node heard of last may be another one. Somebody else may have led while it was cut
        off; and one that led without starting (its own fence command failed) leaves behind whom it did not fence. Such
        a name would have the wrong machine switched off, or none.
        """
        more = told(self.settings.election.name, self.node, leadership)
        status = self.status()
        node, term = max(self._ran, _running_elsewhere(status), key=lambda ran: ran[1])
        known = node if term >= max(1, status.preceding_term) else ""
        return {**outer_environment(os.environ), **more, "PRIMACY_PREDECESSOR": known}

    # --- what happens -------------------------------------------------------------------------------------------------

    def recorded(self, event: Event) -> None:
        if event.code in ENDINGS and not self._reason:
            self._reason = event.code

    def heard(self, node: str, event: GossipEvent) -> None:
        """What another node says that happened there."""
        if event.code == Happened.RUNNING and event.term > self._ran[1]:
            self._ran = node, event.term

    def noted(self, note: Note) -> None:
        match note.what:
            case Happened.RUNNING:
                self._run, self._runs = note.run, self._leads
                if self._leads is not None:
                    self._ran = self.node, self._leads.term
                self._hook("started", self._leads, PRIMACY_RUN=str(note.run))
            case Happened.EXITED if self._run:
                self._stopped(note.run, str(note.number))
            case Happened.GUARD_LOST if self._run:
                self._stopped(note.run, "")

    def _stopped(self, run: int, code: str) -> None:
        self._run = 0
        self._hook("stopped", self._runs, PRIMACY_RUN=str(run), PRIMACY_EXIT_CODE=code)

    def looked(self) -> None:
        """The status has changed: has the role, has the work?"""
        status = self.status()
        if (status.view.role is Role.LEADER) != (self._leads is not None):
            self._role_changed(status.view)
        state = status.workload.state
        if state != self._state:
            self._state = state
            self.health.runs(state == State.RUNNING)
            self.notifier.status(_status_line(self.status()))

    def _role_changed(self, view: View) -> None:
        if view.role is Role.LEADER:
            self._leads = Leadership(self.node, view.term, view.token, 0)
            self._reason = ""
            self._hook("elected", self._leads)
        else:
            self._hook("lost", self._leads, PRIMACY_REASON=self._reason)
            self._leads = None
        self.notifier.status(_status_line(self.status()))

    def _hook(self, kind: str, leadership: Leadership | None, **more: str) -> None:
        if leadership is not None:
            self.hooks.happened(kind, {**told(self.settings.election.name, self.node, leadership), **more})


def _running_elsewhere(status: NodeStatus) -> tuple[str, int]:
    """The other node that said last that it leads and runs the command, with its term; empty and 0 for none."""
    ran = [
        (name, heard.summary.term)
        for name, heard in status.others.items()
        if heard.summary.role == Role.LEADER and heard.summary.workload_state == State.RUNNING
    ]
    return max(ran, key=lambda each: each[1], default=("", 0))


def _status_line(status: NodeStatus) -> str:
    """One sentence for `systemctl status`."""
    view, workload = status.view, status.workload
    if workload.state == State.RUNNING:
        return f"leads term {view.term}; " + (
            f"the command runs, process {workload.pid}" if workload.pid else "its work is done here"
        )
    if view.waits_for:
        return f"{view.role}, term {view.term}; waits for {view.waits_for}"
    leader = f", {view.leader} leads" if view.leader else ""
    return f"{view.role}, term {view.term}; its work is {workload.state} here{leader}"
