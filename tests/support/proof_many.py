"""The proof of many elections: thousands of trials of placement, and real agents with sixty elections and with fifty.

    python -m tests.support.proof_many [--trials 4000] [--minutes 10] [--elections 60] [--profile lan] [--part NAME]

**trials** of the machine of placement.

**spread**: five agents with sixty elections. Within one of even after the start, after an agent was killed, after it
is back, after `drain` and after `undrain`. `tests/processes/test_placement.py` does so with twelve.

**killed**: three agents, of which one leads fifty elections, and is killed; the same with one election. 0 overlaps are
demanded. The goal for the last command that runs elsewhere is printed as kept or not: three times the time of one, and
10 ms for each election.

**chaos**: agents are killed and started, drained and undrained, elections transferred, for so long. No command has ever
run twice at once. No election was without a command for longer than its bound, judged beside a canary. At the end every
election runs somewhere, and the spread is within one of even. `tests/processes/test_many_chaos.py` does the same with
fewer elections, for a minute.

Exit 1 if anything was violated, or if the canary was late where a bound was not kept.

**The bound.** An election is without a command from the last stamp of one start to the first of the next. One failure
alone costs at most what `primacy contract` calls the slowest start: the promise, and a spread for each of two nodes
that campaign earlier and are not there. What goes wrong meanwhile may cost it the election that it was about to win:
the count begins anew. A majority takes part all the time: an agent is killed only while three others take part in all
elections. What is left is processor time: a node that fails hands over all that it led, and each of these needs a guard
and a command, one after the other if nobody else leaves them a processor.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from multiprocessing import Pool
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from primacy.election.raft.state import ORDER_STEPS
from primacy.settings.contract import Contract, contract
from primacy.settings.timing import PROFILES
from primacy.sim.placement.trial import Trial
from tests.support import stamp
from tests.support.canary import VOIDS, Canary
from tests.support.many_agents import PATIENT, STOP_MS, AgentProcess, Agents, agents_in
from tests.support.real_nodes import children
from tests.support.waiting import wait_until

PARTS = ("trials", "spread", "killed", "chaos")
FIRST_SEED = 100_000
"""Other seeds than those of `make test`."""
JOBS = 2
NAMES = "abcde"
EVERY_S = (2.0, 12.0)
"""Between two disturbances."""
SPREAD_S = 900.0
"""Handovers are made one after the other, about two seconds each, after some seconds of calm, which a machine that
stalls makes longer. Only a hang reaches it."""
KILLED_COUNT, KILLED_ROUNDS = 50, 3
START_S = 300.0
"""Until fifty elections of three agents run where they are wanted. Only a hang reaches it."""
TIMES_ONE, EACH_MS = 3, 10.0
"""The goal of `killed`."""
STAMP_MS = 5
"""So often a command of `spread` and of `killed` says that it is alive: fifty that do it each millisecond, as in chaos,
would take a processor from those that start."""
TICKS = os.sysconf("SC_CLK_TCK")
HEARTBEAT_MS = 250
LATE_MS = 1_000.0
"""What the canary may be late by, and what the bound has for it: far less than makes a leader step down (TERM)."""
BEGIN_MS = 150.0
"""Processor time of the start of a guard and a command, each an interpreter, on a machine that does nothing else."""
NO_WAIT = {"drain": ("--no-wait",), "undrain": ()}
STAMPED_NS = 500_000_000
"""The last moment that is judged lies so far back: who is alive stamps every millisecond, or some later."""
ABLE = ("leader", "follower", "candidate", "paused")
"""Roles of a node that votes."""


class Disturbance(NamedTuple):
    what: str
    at_ns: int


class Gap(NamedTuple):
    """An election was without a command."""

    election: str
    from_ns: int
    to_ns: int

    @property
    def ms(self) -> float:
        return (self.to_ns - self.from_ns) / 1e6


class Told(NamedTuple):
    """What one chaos did, and the longest time that an election was without a command."""

    disturbances: list[Disturbance]
    runs: int
    longest: Gap
    bound_ms: float
    """Of that one."""

    def __str__(self) -> str:
        counts = Counter(one.what for one in self.disturbances)
        told = ", ".join(f"{what} {times}" for what, times in sorted(counts.items()))
        return (
            f"{told}; {self.runs} runs of commands, 0 overlaps; longest without a command {self.longest.ms:,.0f} ms "
            f"({self.longest.election}), bound {self.bound_ms:,.0f} ms"
        )


def judged(seed: int) -> tuple[int, list[str]]:
    return seed, Trial(seed).violations()


def trials(count: int) -> bool:
    began, wrong = time.monotonic(), 0
    with Pool(JOBS) as pool:
        for seed, found in pool.imap_unordered(judged, range(FIRST_SEED, FIRST_SEED + count), 8):
            if found:
                wrong += 1
                print(f"    {seed}: {found[0]}", flush=True)
    print(f"placement: {count} trials in {time.monotonic() - began:.0f} s, violations {wrong}", flush=True)
    return not wrong


def say(agents: Agents, *words: str) -> bool:
    """A command at any agent that is up: whether it did it, which is no matter in chaos."""
    at = agents.up[0].name
    call = [sys.executable, "-m", "primacy.cli.main", words[0], "--config", str(agents.folder / f"{at}.yaml")]
    call += ["--state-dir", str(agents.folder / f"state-{at}"), *words[1:]]
    return not subprocess.run(call, capture_output=True, timeout=120, check=False).returncode


# --- spread -----------------------------------------------------------------------------------------------------------


def loads(agents: Agents) -> Counter[str]:
    """How many commands run on each node."""
    return Counter(one.node for one in agents.all_run(*agents.elections, within_s=START_S).values())


def is_even(found: Counter[str], nodes: str) -> bool:
    """Within one of even over these, and nothing elsewhere."""
    return set(found) <= {*nodes} and max(found.values()) - min(found[name] for name in nodes) <= 1


def even_over(agents: Agents, nodes: str, after: str) -> None:
    """Waits for it, and says how long that took."""
    began_s, found = time.monotonic(), Counter[str]()

    def look() -> bool:
        nonlocal found
        found = loads(agents)
        return is_even(found, nodes)

    wait_until(look, f"an even spread over {nodes} after {after}", SPREAD_S, 1.0, lambda: f"{found}\n{agents.told()}")
    told = ", ".join(f"{name} {found[name]}" for name in NAMES)
    print(f"    after {after}: even within {time.monotonic() - began_s:.0f} s ({told})", flush=True)


def spread(count: int, profile: str) -> None:
    """Raises `SafetyViolation` at an overlap, as chaos does, and `AssertionError` if it is not even in the end."""
    print(f"spread: {count} elections, {len(NAMES)} agents", flush=True)
    elections: dict[str, dict[str, Any]] = {f"e{number:02}": {} for number in range(count)}
    lost, drained = NAMES[-2], NAMES[-1]
    with (
        tempfile.TemporaryDirectory(prefix="primacy-many-") as folder,
        agents_in(Path(folder), elections, names=NAMES, profile=profile, ways=(f"every={STAMP_MS}",)) as agents,
    ):
        even_over(agents, NAMES, "the start")
        agents.agents[lost].process.kill()
        agents.agents[lost].process.wait(60)
        even_over(agents, NAMES.replace(lost, ""), f"{lost} was killed")
        agents.start(lost)
        even_over(agents, NAMES, f"{lost} was started again")
        for verb, nodes in (("drain", NAMES.replace(drained, "")), ("undrain", NAMES)):
            wait_until(lambda verb=verb: say(agents, verb, drained, *NO_WAIT[verb]), f"{verb} {drained}", START_S, 1.0)
            even_over(agents, nodes, f"{verb} {drained}")
        runs = sum(len(agents.stamps(name)) for name in elections)
    print(f"    {runs} runs of commands, 0 overlaps", flush=True)


# --- killed -----------------------------------------------------------------------------------------------------------


class Killed(NamedTuple):
    """What the death of one agent cost."""

    elections: int
    """That it led."""
    took_ms: float
    """Until the last of their commands ran elsewhere."""
    cpu_ms: float
    """Processor time of the other agents and their guards meanwhile."""


def cpu_ms(agents: list[AgentProcess]) -> float:
    """Of these and their guards, without the commands."""
    found = 0.0
    for pid in [each for agent in agents for each in (agent.process.pid, *children(agent.process.pid))]:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found += (int(words[11]) + int(words[12])) / TICKS * 1_000
    return found


def killed_once(count: int, profile: str) -> Killed:
    """Agent a leads all, for all elections prefer it; the others lead them evenly after it."""
    entries = {f"e{number:02}": {"placement": {"prefer": ["a"]}} for number in range(count)}
    election = {"profile": profile}
    with (
        tempfile.TemporaryDirectory(prefix="primacy-many-") as folder,
        agents_in(Path(folder), entries, names="abc", election=election, ways=(f"every={STAMP_MS}",)) as agents,
    ):
        wait_until(lambda: set(loads(agents)) == {"a"}, "all on a", START_S, 1.0, agents.told)
        others = [agents.agents[name] for name in "bc"]
        used_ms, at_ns = cpu_ms(others), stamp.now_ns()
        agents.agents["a"].process.kill()
        agents.all_run(*entries, other="a", within_s=START_S)
        used_ms = cpu_ms(others) - used_ms
        firsts = [min(one.first_ns for one in agents.stamps(name) if one.first_ns > at_ns) for name in entries]
    return Killed(count, (max(firsts) - at_ns) / 1e6, used_ms)


def killed(count: int, rounds: int, profile: str) -> None:
    """Raises `SafetyViolation` at an overlap. How long it took is told, with whether the goal was kept."""
    with Canary(HEARTBEAT_MS) as canary:
        one, many = ([killed_once(each, profile) for _ in range(rounds)] for each in (1, count))
    one_ms, many_ms = (median(each.took_ms for each in found) for found in (one, many))
    goal_ms = TIMES_ONE * one_ms + count * EACH_MS
    for found in (one, many):
        times = ", ".join(f"{each.took_ms:,.0f}" for each in found)
        used_ms = median(each.cpu_ms for each in found)
        print(
            f"killed with {found[0].elections}: all run elsewhere after {times} ms; processor time of the other agents "
            f"and their guards {used_ms:,.0f} ms, {used_ms / found[0].elections:,.0f} for each election",
            flush=True,
        )
    print(
        f"killed: {many_ms:,.0f} ms, goal {goal_ms:,.0f} ms ({TIMES_ONE} x {one_ms:,.0f} + {count} x {EACH_MS:.0f}): "
        f"{'kept' if many_ms <= goal_ms else 'NOT KEPT'}; 0 overlaps; {canary.figures()}",
        flush=True,
    )


# --- chaos ------------------------------------------------------------------------------------------------------------


def able(agents: Agents) -> set[str]:
    """Agents that take part in all elections, and vote there."""
    every = len(agents.elections)
    return {agent.name for agent in agents.up if sum(row.get("role") in ABLE for row in agent.rows().values()) == every}


class Chaos:
    """Some minutes of it."""

    def __init__(self, agents: Agents, seed: int) -> None:
        self.agents = agents
        self.draw = random.Random(seed)
        self.down: list[str] = []
        self.drained: list[str] = []
        self.done: list[Disturbance] = []

    def run(self, minutes: float, every_s: tuple[float, float]) -> None:
        ends_s = time.monotonic() + minutes * 60
        while time.monotonic() < ends_s:
            self.disturb()
            time.sleep(self.draw.uniform(*every_s))

    def disturb(self) -> None:
        """One thing that goes wrong, or that an operator does."""
        what = self.draw.choice(("kill", "start", "drain", "undrain", "transfer", "rebalance"))
        name = self.draw.choice(NAMES)
        if what == "kill" and name not in self.down and len(able(self.agents) - {name}) > len(NAMES) // 2:
            self.note(what)
            self.agents.agents[name].process.kill()
            self.agents.agents[name].process.wait(60)
            self.down.append(name)
        elif what == "start" and self.down:
            self.note(what)
            self.agents.start(self.down.pop(0))
        elif what == "drain" and not self.drained and name not in self.down:
            self.note(what)
            say(self.agents, "drain", name, "--no-wait")
            self.drained.append(name)
        elif what == "undrain" and self.drained and self.drained[0] not in self.down:
            self.note(what)
            say(self.agents, "undrain", self.drained.pop())
        elif what == "transfer":
            self.note(what)
            say(self.agents, "transfer", name, "--election", self.draw.choice(list(self.agents.elections)))
        elif what == "rebalance":
            self.note(what)
            say(self.agents, "rebalance", "--no-wait")

    def note(self, what: str) -> None:
        self.done.append(Disturbance(what, stamp.now_ns()))

    def calm(self) -> None:
        """All are up, nobody is drained, every election runs."""
        self.agents.start(*self.down)
        for name in self.drained:
            wait_until(lambda: len(self.agents.up[0].rows()) == len(self.agents.elections), "an agent that answers")
            say(self.agents, "undrain", name)
        self.agents.all_run(*self.agents.elections)


def gaps(election: str, stamps: list[stamp.Stamp], from_ns: int, to_ns: int) -> list[Gap]:
    """Times between these two moments at which no start of its command was alive."""
    found, alive_ns = [], from_ns
    for one in sorted(stamp.starts(stamps), key=lambda one: one.first_ns):
        if alive_ns < min(one.first_ns, to_ns):
            found.append(Gap(election, alive_ns, min(one.first_ns, to_ns)))
        alive_ns = max(alive_ns, one.last_ns)
    return found + ([Gap(election, alive_ns, to_ns)] if alive_ns < to_ns else [])


def slowest_start_ms(profile: str) -> float:
    """After one failure."""
    made = contract(PROFILES[profile]._replace(**PATIENT), "raft", STOP_MS, len(NAMES), 1 + ORDER_STEPS)
    assert isinstance(made, Contract)
    return made.failover_worst_ms


def bound_ms(gap: Gap, disturbances: list[Disturbance], one_ms: float, elections: int) -> float:
    """What began before it may be its cause; what began while it lasted may have made it begin anew."""
    anew = sum(gap.from_ns < each.at_ns < gap.to_ns for each in disturbances)
    return (1 + anew) * one_ms + elections * BEGIN_MS + LATE_MS


def chaos(
    minutes: float, count: int, profile: str, *, even: bool = True, every_s: tuple[float, float] = EVERY_S
) -> Told:
    """Raises `SafetyViolation` at an overlap: that is judged at the end of `agents_in`, over all runs of all commands.

    A bound that was not kept fails it, or is noted as void if the canary was late. `even`: waits for an even spread.
    """
    elections = {f"e{number:02}": {} for number in range(count)}
    with (
        Canary(HEARTBEAT_MS, LATE_MS) as canary,
        tempfile.TemporaryDirectory(prefix="primacy-many-") as folder,
        agents_in(Path(folder), elections, names=NAMES, profile=profile) as agents,
    ):
        agents.all_run(*elections)
        made, began_ns = Chaos(agents, 14), stamp.now_ns()
        made.run(minutes, every_s)
        made.calm()

        if even:
            even_over(agents, NAMES, "the chaos")
        ended_ns = stamp.now_ns() - STAMPED_NS
        each = {name: agents.stamps(name) for name in elections}
    found = [gap for name, stamps in each.items() for gap in gaps(name, stamps, began_ns, ended_ns)]
    one_ms = slowest_start_ms(profile)
    bounds = {gap: bound_ms(gap, made.done, one_ms, count) for gap in found}
    for gap, bound in bounds.items():
        canary.judge(gap.ms <= bound, f"{gap.election} was without a command for {gap.ms:,.0f} ms of {bound:,.0f} ms")
    longest = max(found, key=lambda gap: gap.ms, default=Gap("none", 0, 0))
    return Told(made.done, sum(len(stamps) for stamps in each.values()), longest, bounds.get(longest, one_ms))


def chaos_told(given: argparse.Namespace) -> None:
    told = chaos(given.minutes, given.elections, given.profile)
    print(f"chaos: {given.minutes:g} minutes, {given.elections} elections: {told}", flush=True)
    for void in VOIDS:
        print(f"void: {void}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=4_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--elections", type=int, default=60)
    parser.add_argument("--killed", type=int, default=KILLED_COUNT)
    parser.add_argument("--rounds", type=int, default=KILLED_ROUNDS)
    parser.add_argument("--profile", default="lan")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one; all without it")
    given = parser.parse_args()
    parts, clean = given.part or PARTS, True
    if "trials" in parts:
        clean = trials(given.trials)
    if "spread" in parts:
        spread(given.elections, given.profile)
    if "killed" in parts:
        killed(given.killed, given.rounds, given.profile)
    if "chaos" in parts:
        chaos_told(given)
    return 0 if clean and not VOIDS else 1


if __name__ == "__main__":
    sys.exit(main())
