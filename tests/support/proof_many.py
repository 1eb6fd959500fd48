"""The proof of placement: thousands of trials of its machine, and five real agents with sixty elections in chaos.

    python -m tests.support.proof_many [--trials 4000] [--minutes 10] [--elections 60] [--profile lan]

Agents are killed and started, drained and undrained, elections transferred, for so long. At the end every election runs
somewhere, the spread is within one of even, and no command has ever run twice at once. Exit 1 if anything was violated.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from multiprocessing import Pool
from pathlib import Path

from primacy.sim.placement.trial import Trial
from tests.support.many_agents import Agents, agents_in
from tests.support.waiting import wait_until

FIRST_SEED = 100_000
"""Other seeds than those of `make test`."""
JOBS = 2
NAMES = "abcde"
EVERY_S = (2.0, 12.0)
"""Between two disturbances."""
SPREAD_S = 300.0


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


def say(agents: Agents, *words: str) -> None:
    """A command at any agent that is up; how it ends is no matter in chaos."""
    at = agents.up[0].name
    call = [sys.executable, "-m", "primacy.cli.main", words[0], "--config", str(agents.folder / f"{at}.yaml")]
    call += ["--state-dir", str(agents.folder / f"state-{at}"), *words[1:]]
    subprocess.run(call, capture_output=True, timeout=120, check=False)


def disturb(agents: Agents, draw: random.Random, down: list[str], drained: list[str]) -> str:
    """One thing that goes wrong, or that an operator does. A majority stays up."""
    what = draw.choice(("kill", "start", "drain", "undrain", "transfer", "rebalance"))
    name = draw.choice(NAMES)
    if what == "kill" and len(down) < 2 and name not in down:
        agents.agents[name].process.kill()
        agents.agents[name].process.wait(60)
        down.append(name)
    elif what == "start" and down:
        name = down.pop(0)
        agents.start(name)
    elif what == "drain" and not drained and name not in down:
        say(agents, "drain", name, "--no-wait")
        drained.append(name)
    elif what == "undrain" and drained and drained[0] not in down:
        name = drained.pop()
        say(agents, "undrain", name)
    elif what == "transfer":
        say(agents, "transfer", name, "--election", draw.choice(list(agents.elections)))
    elif what == "rebalance":
        say(agents, "rebalance", "--no-wait")
    else:
        return ""
    return what


def chaos(minutes: float, count: int, profile: str) -> bool:
    """Overlaps are judged at the end of `agents_in`, over every run of every command."""
    draw, done = random.Random(14), Counter[str]()
    elections = {f"e{number:02}": {} for number in range(count)}
    with (
        tempfile.TemporaryDirectory(prefix="primacy-many-") as folder,
        agents_in(Path(folder), elections, names=NAMES, profile=profile) as agents,
    ):
        agents.all_run(*elections)
        down: list[str] = []
        drained: list[str] = []
        ends = time.monotonic() + minutes * 60
        while time.monotonic() < ends:
            done[disturb(agents, draw, down, drained)] += 1
            time.sleep(draw.uniform(*EVERY_S))
        agents.start(*down)
        for name in drained:
            wait_until(lambda: len(agents.up[0].rows()) == count, "an agent that answers")
            say(agents, "undrain", name)

        def even() -> bool:
            found = Counter(one.node for one in agents.all_run(*elections).values())
            return max(found.values()) - min(found[name] for name in NAMES) <= 1

        wait_until(even, "an even spread", SPREAD_S, 1.0, agents.told)
        runs = sum(len(agents.stamps(name)) for name in elections)
    done.pop("", None)
    told = ", ".join(f"{what} {times}" for what, times in sorted(done.items()))
    print(f"chaos: {minutes} minutes, {count} elections, {told}; {runs} runs of commands, 0 overlaps", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=4_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--elections", type=int, default=60)
    parser.add_argument("--profile", default="lan")
    asked = parser.parse_args()
    clean = trials(asked.trials)
    return 0 if chaos(asked.minutes, asked.elections, asked.profile) and clean else 1


if __name__ == "__main__":
    sys.exit(main())
