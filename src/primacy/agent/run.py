"""An agent from its start to its exit code: take the folder, wait for one's turn, live.

One agent per election and machine; a second one waits and says for whom. It may wait for days: when its turn has come
it reads its file again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from primacy.agent.chosen import take_place
from primacy.agent.lifecycle import Agent, Plan
from primacy.agent.notify import Notifier
from primacy.agent.performer import sweep_lease_folders
from primacy.agent.signals import EndSignals, take_turn
from primacy.agent.state import is_elsewhere, open_state, owner_of, room_in
from primacy.errors import CannotHere, InUse
from primacy.loop import QuickLoop
from primacy.node.folder import Folder
from primacy.node.lock import AgentLock
from primacy.settings.schema import Settings


def run(plan: Plan) -> int:
    """Until the end; returns the exit code."""
    if not sys.platform.startswith("linux"):
        raise CannotHere("a node of primacy needs Linux: it uses kernel clocks, timers and process namespaces")
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(_run(plan))


async def _run(plan: Plan) -> int:
    signals = EndSignals()
    try:
        return await _run_agent(plan, signals)
    finally:
        await signals.settle()


async def _run_agent(plan: Plan, signals: EndSignals) -> int:
    with contextlib.closing(Notifier(os.environ, os.getpid())) as notifier:
        while True:
            with contextlib.ExitStack() as ends:
                folder = open_state(plan.settings, os.environ, os.geteuid())
                ends.callback(folder.close)
                lock = AgentLock(folder)
                ends.callback(lock.close)
                what = f"election {plan.settings.election.name}"
                with room_in(folder):
                    if not plan.waits:
                        _refuse_second(lock, folder, plan.settings)
                    waited = await take_turn(lock, what, plan.log, signals, notifier)
                if signals.exit_code is not None:
                    return signals.exit_code
                if waited and plan.again is not None:
                    before, plan = plan, await asyncio.to_thread(plan.again)
                    if is_elsewhere(plan.settings, before.settings, os.environ, os.geteuid()):
                        continue  # it is another agent's turn there, perhaps
                return await _live(plan, folder, signals, notifier)


async def _live(plan: Plan, folder: Folder, signals: EndSignals, notifier: Notifier) -> int:
    sweep_lease_folders(plan.clock)
    agent = Agent(plan, take_place(plan.settings, folder, plan.log), signals, notifier)
    try:
        return await agent.live()
    finally:
        await agent.close()


def _refuse_second(lock: AgentLock, folder: Folder, settings: Settings) -> None:
    """Raises `InUse` if another agent has this folder. Ours alone from here on, if not."""
    if lock.take():
        return
    owner = owner_of(folder)
    if owner and settings.node and owner != settings.node:
        raise InUse(
            f"node {owner} runs here: {lock.holder()} has the state folder {folder.where}, and node {settings.node} "
            "needs one of its own: say --state-dir"
        )
    named = f" {settings.node}" if settings.node else ""
    raise InUse(f"node{named} runs here already: {lock.holder()} has its folder; primacy node stop{named}")
