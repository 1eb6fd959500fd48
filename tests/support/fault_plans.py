"""Writes the fault plan of a seed that violates a rule today, for `test_replay.py`.

    python -m tests.support.fault_plans --nodes 5 --profile lan SEED ...

A seed that shows a defect is bound to the draws of this version: record it before any draw changes, and before the
defect is mended.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from primacy.sim.trials.replay import FaultPlan, Replayed, record
from primacy.sim.trials.trial import Plan

FOLDER = Path(__file__).parents[1] / "data" / "plans"
STREAMS_WANTED = 3
STREAMS_TRIED = 40


def written(plan: Plan, seed: int, *, storms: bool = False) -> Path:
    """The file that was made. It fails where a replay does not violate what the seed did."""
    faults = record(plan, seed, storms=storms)
    if not faults.rule or not _violates(faults, 0):
        raise SystemExit(f"seed {seed} violates nothing")
    found: list[int] = []
    for streams in range(1, STREAMS_TRIED + 1):
        if len(found) < STREAMS_WANTED and _violates(faults, streams):
            found.append(streams)
    faults.streams = tuple(found)
    path = FOLDER / f"{plan.strategy}-{plan.nodes}-{plan.profile}-{seed}.json"
    faults.write(path)
    return path


def _violates(faults: FaultPlan, streams: int) -> bool:
    return any(violation.rule == faults.rule for violation in Replayed(faults, streams).run().violations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--profile", default="lan")
    parser.add_argument("--storms", action="store_true", help="it has storms: each is stilled, and recording goes on")
    parser.add_argument("seeds", type=int, nargs="+")
    said = parser.parse_args()
    for seed in said.seeds:
        print(written(Plan("raft", said.nodes, said.profile), seed, storms=said.storms))


if __name__ == "__main__":
    main()
