"""All faults at once, drawn by chance: real nodes, real links, in the profile `lab`; one command at a time (I1).

What no list of cases thinks of: faults that meet. The seed is printed; a run cannot be repeated exactly, for real
processes are not, but the order of faults can.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from primacy.errors import PrimacyError
from tests.support import real_nodes as crowds
from tests.support.real_nodes import HANG, LEAVING, Crowd, Node, burning, crowd_in, tell_all
from tests.support.safety_checks import SafetyViolation

pytestmark = pytest.mark.beside(order=180)

CHAOS_S = 6.0
STAMPED_MAX = 450
"""Commands that the file of stamps can hold; a run ends before it is full."""


class Chaos:
    """One run of faults against one crowd."""

    def __init__(self, crowd: Crowd, seed: int) -> None:
        self.crowd = crowd
        self.chance = random.Random(seed)
        self.burners = contextlib.ExitStack()
        self.told: list[str] = []
        self.ending: list[Node] = []
        self.forgot = False

    @property
    def acting(self) -> str:
        return next((one.node for one in reversed(self.crowd.living())), self.chance.choice(self.crowd.names))

    def target(self) -> Node:
        """Mostly the one that acts."""
        name = self.acting if self.chance.random() < 0.7 else self.chance.choice(self.crowd.names)
        return self.crowd.nodes[name]

    def strike(self, harm: Callable[[Node], object]) -> None:
        node = self.target()
        if node.is_up:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                harm(node)

    def kill_guard(self, node: Node) -> None:
        tell_all(signal.SIGKILL, [pid for pid in node.guards if len(crowds.tree(pid)) > 1])

    def stop_guards(self, node: Node) -> None:
        tell_all(signal.SIGSTOP, node.guards)

    def stop_guards_and_kill_agent(self, node: Node) -> None:
        tell_all(signal.SIGSTOP, node.guards)
        node.process.kill()
        node.wait()
        self.crowd.start(node.name)

    def kill_command(self, _: Node) -> None:
        tell_all(signal.SIGKILL, self.crowd.commands()[:1])

    def end(self, node: Node) -> None:
        node.process.terminate()
        self.ending.append(node)

    def forget(self, node: Node) -> None:
        """Its disk is lost, once: two at a time would need an operator."""
        if not self.forgot:
            self.forgot = True
            crowds.kill_all(node)
            node.wait()
            node.ballot.unlink(missing_ok=True)

    def say(self, node: Node) -> None:
        """An operator, who cannot wait either."""
        path, body = self.chance.choice(
            (
                ("step-down", {}),
                ("transfer", {"to": self.chance.choice(self.crowd.names)}),
                ("pause", {}),
                ("resume", {}),
            )
        )
        with contextlib.suppress(PrimacyError):
            node.ask(f"/v1/{path}", body)

    def partition(self, _: Node) -> None:
        names = list(self.crowd.names)
        self.chance.shuffle(names)
        at = self.chance.randrange(1, len(names))
        self.crowd.apart("".join(names[:at]), "".join(names[at:]))

    def one_way(self, node: Node) -> None:
        others = [name for name in self.crowd.names if name != node.name]
        ways = [node.name + other for other in others if self.chance.random() < 0.8]
        self.crowd.cut(*(way if self.chance.random() < 0.5 else way[::-1] for way in ways))

    def lossy(self, _: Node) -> None:
        self.crowd.switch(loss=self.chance.choice((0, 0, 0.1, 0.4)), double=self.chance.choice((0, 0.3)))

    def burn(self, _: Node) -> None:
        self.burners.close()
        if self.chance.random() < 0.5:
            self.burners.enter_context(burning(self.chance.choice((1, 4))))

    def heal(self) -> None:
        self.crowd.mend()
        for node in self.crowd.started:
            if node.is_up:
                tell_all(signal.SIGCONT, crowds.tree(node.pid))
        self.crowd.start_missing()

    def run(self, seconds: float) -> None:
        harms: list[Callable[[Node], object]] = [
            *(crowds.kill_agent, crowds.kill_all, self.kill_guard, crowds.stop_agent, crowds.stop_agent_and_guards),
            *(crowds.stop_guards_and_agent, crowds.hang, self.stop_guards, self.stop_guards_and_kill_agent),
            *(self.kill_command, self.forget, self.say, self.say, self.partition, self.partition, self.one_way),
            *(self.one_way, self.lossy, self.burn, self.end),
        ]
        end = time.monotonic() + seconds
        with self.burners:
            while time.monotonic() < end and len(self.crowd.stamped()) < STAMPED_MAX:
                harm = self.chance.choice(harms)
                self.told.append(getattr(harm, "__name__", "?"))
                self.strike(harm)
                time.sleep(self.chance.choice((0.0, 0.02, 0.1, 0.3, 0.7)))
                if self.chance.random() < 0.4:
                    self.heal()
                self.crowd.one_at_a_time()


def case_chaos(crowd: Crowd, seed: int, seconds: float = CHAOS_S) -> None:
    """Faults for a while, then calm: one at a time all along, and in the end one."""
    crowd.settle(*LEAVING, "ignore-term")
    chaos = Chaos(crowd, seed)
    try:
        chaos.run(seconds)
        crowd.switch(loss=0, double=0)
        chaos.heal()
        for node in chaos.ending:
            node.wait()
        crowd.start_missing()
        for node in crowd.nodes.values():
            crowd.order(node, "/v1/resume", {})
        crowd.agree()
        crowd.one_now()
    except (AssertionError, SafetyViolation) as fault:
        raise type(fault)(f"seed {seed}: {', '.join(chaos.told)}\n{fault}") from None
    print(f"chaos {seed}: {len(chaos.told)} faults, {len(crowd.tokens())} leaderships")


def test_F54_faults_that_meet_by_chance(tmp_path: Path) -> None:
    seed, seconds = int(os.environ.get("PRIMACY_SEED", "1")), float(os.environ.get("PRIMACY_CHAOS_S", CHAOS_S))
    with crowd_in(tmp_path, "abcde", switched=True, plant=HANG) as crowd:
        case_chaos(crowd, seed, seconds)
