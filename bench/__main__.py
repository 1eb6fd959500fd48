"""`python -m bench`: the simulator's speed beside a bare event loop, growth with history, messages per failure.

Exit 1 if one of the bounds is missed.
"""

from __future__ import annotations

import argparse
import json
import sys

from bench import messages, simulator


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds, with more noise")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    args = parser.parse_args()
    speed = simulator.speed(*((5, 4) if args.quick else (15, 20)))
    growth = simulator.growth(*((10, 3) if args.quick else (60, 5)))
    rows = messages.table(*((messages.SIZES_QUICK, 2) if args.quick else (messages.SIZES, 5)))
    missed = _missed(speed, growth, rows)
    if args.json:
        document = {"speed": speed._asdict(), "growth": growth, "messages": [row._asdict() for row in rows]}
        print(json.dumps({**document, "missed": missed}, indent=2))
    else:
        _print(speed, growth, rows, missed)
    return 1 if missed else 0


def _missed(speed: simulator.Speed, growth: float, rows: list[messages.Count]) -> list[str]:
    """Every bound that does not hold, as a sentence. The goal of simulated seconds is for people: machines differ."""
    found = []
    if speed.ratio < simulator.RATIO_LEAST:
        found.append(f"ratio {speed.ratio:.3f} is below {simulator.RATIO_LEAST}")
    if growth > simulator.GROWTH_MOST:
        found.append(f"cost per step grew by {growth:.2f}, more than {simulator.GROWTH_MOST}")
    found += [
        f"{row.strategy}, {row.nodes} nodes: {row.most} messages, more than {row.bound}"
        for row in rows
        if row.most > row.bound
    ]
    return found


def _print(speed: simulator.Speed, growth: float, rows: list[messages.Count], missed: list[str]) -> None:
    print("simulator: raft, five nodes, lan, faults and checkers on, one core")
    print(f"  beside five bare nodes       {speed.ratio:8.3f}   at least {simulator.RATIO_LEAST}")
    print(f"  beside a heap alone          {speed.ratio_heap:8.3f}")
    print(f"  simulated seconds per second {speed.simulated_per_s:8,.0f}   goal {simulator.GOAL_PER_S:,}")
    print(f"  events per second            {speed.events_per_s:8,.0f}")
    print(
        f"  cost per step, last tenth of a long trial over the first: {growth:.2f}   at most {simulator.GROWTH_MOST}\n"
    )
    print("messages per failure (median, most of several failures, bound), and until all follow the new leader")
    print(f"  {'':8}{'nodes':>6}{'median':>9}{'most':>7}{'bound':>8}{'took ms':>9}")
    for row in rows:
        print(f"  {row.strategy:8}{row.nodes:6}{row.messages:9.0f}{row.most:7}{row.bound:8}{row.took_ms:9,.0f}")
    for sentence in missed:
        print(f"MISSED: {sentence}")


if __name__ == "__main__":
    sys.exit(main())
