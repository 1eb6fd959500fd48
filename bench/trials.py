"""One failure of one party at a time: what is done to it, and when the next leader and its command were there.

Each trial leaves its cluster whole and calm again, so that trials of all parties can take turns.
"""

from __future__ import annotations

import os
import select
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from bench.nodes import Nodes
from bench.peers import EtcdLocks, SyncObjs
from bench.processes import ENDS_S
from bench.watch import Watch, rings

LOCK_S_MOST = 180.0


class Took(NamedTuple):
    """Milliseconds since the failure, or since the order."""

    elected_ms: float = 0.0
    command_ms: float = 0.0
    gap_ms: float = 0.0
    """From the end of the old command to the start of the next."""
    notice_ms: float = 0.0
    """From SIGKILL until the death of the agent could be seen: what nobody who watches it can undercut."""


def since_ms(began_ns: int, at_ns: int) -> float:
    return (at_ns - began_ns) / 1e6


# --- the agent, or its counterpart, is killed with -9 -----------------------------------------------------------------


def agent_killed(nodes: Nodes) -> Took:
    """Its guard ends the command and releases."""
    old, since = nodes.runs_on, len(nodes.watch.lines)
    with Ending(nodes.agents[old].pid) as ending:
        began_ns = time.monotonic_ns()
        ending.ask(signal.SIGKILL)
        noticed_ns = ending.wait(nodes.watch)
    took = _next(nodes, since, began_ns)
    nodes.back(old)
    return took._replace(notice_ms=since_ms(began_ns, noticed_ns))


def node_lost(nodes: Nodes) -> Took:
    """Agent, guard and command at once, so that nobody is left to release."""
    old, since = nodes.runs_on, len(nodes.watch.lines)
    began_ns = nodes.kill_whole(old)
    took = _next(nodes, since, began_ns)
    nodes.back(old)
    return took


def _next(nodes: Nodes, since: int, began_ns: int) -> Took:
    elected = nodes.watch.until(nodes.elected, since, f"the next leader of {nodes.name}")
    rang = nodes.note(nodes.watch.until(rings(nodes.name), since, f"the next command of {nodes.name}"))
    return Took(since_ms(began_ns, elected.at_ns), since_ms(began_ns, rang.at_ns))


def holder_killed(locks: EtcdLocks) -> Took:
    """`etcdctl lock` is killed; its lease runs out. What it ran is left behind, and ended by us."""
    orphan, since = locks.command_pid, len(locks.watch.lines)
    began_ns = time.monotonic_ns()
    locks.kill_holder()
    rang = locks.note(locks.watch.until(rings(locks.name), since, "the next command under etcdctl lock"))
    locks.back(orphan)
    return Took(command_ms=since_ms(began_ns, rang.at_ns))


def leader_killed(objs: SyncObjs) -> Took:
    """PySyncObj has leaders and no commands."""
    watch = objs.watch
    leads = next(line for line in reversed(watch.lines) if objs.leads(line))
    old, since = leads.source.partition(" ")[2], len(watch.lines)
    began_ns = time.monotonic_ns()
    objs.nodes[old].kill()
    elected = watch.until(objs.leads, since, "the next leader of PySyncObj")
    objs.back(old)
    return Took(since_ms(began_ns, elected.at_ns))


def lock_holder_killed(watch: Watch) -> float:
    """PySyncObj's lock, once: it is given to another when nothing was heard of its holder for 75 s."""
    objs = SyncObjs(watch, lock=True)
    try:
        objs.start()
        holds = watch.until(objs.holds, 0, "the first holder of PySyncObj's lock")
        since, began_ns = len(watch.lines), time.monotonic_ns()
        objs.nodes[holds.source.partition(" ")[2]].kill()
        again = watch.until(objs.holds, since, "the next holder of PySyncObj's lock", LOCK_S_MOST)
    finally:
        objs.end()
    return since_ms(began_ns, again.at_ns)


# --- in order ---------------------------------------------------------------------------------------------------------


def stepped_down(nodes: Nodes) -> Took:
    """`step-down`, as the command line says it."""
    old, watch = nodes.runs_on, nodes.watch
    with Ending(nodes.command_pid(old)) as ending, ThreadPoolExecutor(1) as pool:
        ended = pool.submit(ending.moment)  # the answer to the order may come after the end
        since, began_ns = len(watch.lines), time.monotonic_ns()
        nodes.step_down(old)
        ended_ns = ended.result()
    elected = watch.until(nodes.elected, since, f"the next leader of {nodes.name}")
    rang = nodes.note(watch.until(rings(nodes.name), since, f"the next command of {nodes.name}"))
    watch.rest(1.0)  # guards are made ready
    return Took(*(since_ms(began_ns, line.at_ns) for line in (elected, rang)), since_ms(ended_ns, rang.at_ns))


def unlocked(locks: EtcdLocks) -> Took:
    """The command under `etcdctl lock` is told to end: then it unlocks. TERM to `etcdctl` itself ends nothing."""
    watch = locks.watch
    with Ending(locks.command_pid) as ending:
        since, began_ns = len(watch.lines), time.monotonic_ns()
        ending.ask()
        ended_ns = ending.wait(watch)
    rang = locks.note(watch.until(rings(locks.name), since, "the next command under etcdctl lock"))
    locks.back()
    return Took(command_ms=since_ms(began_ns, rang.at_ns), gap_ms=since_ms(ended_ns, rang.at_ns))


class Ending:
    """The end of one process, seen by its handle."""

    def __init__(self, pid: int) -> None:
        self.handle = os.pidfd_open(pid)
        self.pid = pid

    def __enter__(self) -> Ending:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)

    def ask(self, number: int = signal.SIGTERM) -> None:
        signal.pidfd_send_signal(self.handle, number)

    def wait(self, watch: Watch) -> int:
        """When it ended. What was written until then is read."""
        at_ns = self.moment()
        watch.pump()
        return at_ns

    def moment(self) -> int:
        """When it ended."""
        ready, _, _ = select.select([self.handle], [], [], ENDS_S)
        at_ns = time.monotonic_ns()
        if not ready:
            raise TimeoutError(f"process {self.pid} did not end within {ENDS_S:g} s")
        return at_ns
