"""From settings to whoever performs the workload of a node, and to the gate before it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial

from primacy.agent.assemble import holding_times
from primacy.agent.chosen import Place
from primacy.agent.peers import Peers
from primacy.control.disk_thread import DiskThread
from primacy.errors import Later
from primacy.node.clock import Clock
from primacy.settings.loading import containment_required
from primacy.settings.schema import Settings
from primacy.supervise.child import Child
from primacy.supervise.gate import Gate, Rule
from primacy.supervise.lease_file import LeaseFile
from primacy.supervise.lease_folder import lease_folder, sweep
from primacy.supervise.machine import Policy, Restart, Watchdog
from primacy.supervise.process_workload import ProcessWorkload, Reserve, Rights
from primacy.supervise.start_gate import StartGate, Told
from primacy.supervise.workload import HostedWorkload, Spans, Workload, WorkloadHost


def gate_of(settings: Settings, node: str, clock: Clock, cwd: str, told: Told) -> StartGate:
    rule = Rule(settings.election.mode == "manual", bool(settings.run.fence_command), settings.run.fence_ms)
    return StartGate(Gate(holding_times(settings), rule, node), clock, settings.run.fence_command, cwd, told)


def sweep_lease_folders(clock: Clock) -> None:
    """Once for each agent that starts: what killed ones left is removed. Nobody waits for it, for it may be on a disk
    that hangs."""
    thread = DiskThread("primacy-sweep")
    with contextlib.suppress(Later):
        thread.ask(partial(sweep, dict(os.environ), os.geteuid(), clock))
    thread.end()


def guarded_workload(
    place: Place,
    child: Child,
    clock: Clock,
    complain: Callable[[str], None],
    host: WorkloadHost,
    gate: StartGate,
    peers: Peers,
    rights: Rights | None,
    reserve: Reserve | None = None,
) -> ProcessWorkload:
    """A command, under a guard."""
    settings, timing, election = place.settings, holding_times(place.settings), place.settings.election.name
    where = lease_folder(place.folder.where, os.environ, os.geteuid())
    policy = Policy(Restart(settings.run.restart), settings.run.stop_ms, settings.run.restart_limit)
    return ProcessWorkload(
        election,
        child,
        Watchdog(timing, policy),
        timing,
        clock,
        place.run_lock,
        LeaseFile(where, election, clock, complain),
        containment_required(settings),
        host,
        gate,
        peers.ready_release,
        rights,
        reserve,
    )


def hosted_workload(
    place: Place, workload: Workload, clock: Clock, host: WorkloadHost, gate: StartGate, peers: Peers
) -> HostedWorkload:
    """What this process does itself."""
    timing = holding_times(place.settings)
    spans = Spans(place.settings.run.stop_ms, timing.kill_at_ms - timing.term_at_ms)
    send = peers.send_release if peers.transport is not None else None
    return HostedWorkload(workload, spans, clock, place.run_lock, host, gate, send)
