"""`python -m tests.behaviour record FOLDER`, at one version; `… replay FOLDER`, at another. See docs/behaviour.md."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

from primacy import __version__
from tests.behaviour.commands import ROOT
from tests.behaviour.names import TABLE, Names
from tests.behaviour.replay import replay_trials, total
from tests.behaviour.surfaces import RECORDS, REPLAYS
from tests.behaviour.trials import LENGTH, STRATEGIES, record_trials

PARTS = ("machines", *RECORDS)
SHOWN_MAX = 20
"""Differences of one part that are shown; more follow from the same cause, mostly."""
SHOWN_CHARS = 1_500


def record(folder: Path, trials: int, length: float, jobs: int, parts: tuple[str, ...]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        print(f"{folder} is not empty: a log is never mixed with another", file=sys.stderr)
        return 2
    began = time.monotonic()
    about = {"version": __version__, "commit": commit(), "python": platform.python_version(), "trials": trials}
    (folder / "about.json").write_text(json.dumps({**about, "length": length}) + "\n", encoding="utf-8")
    if "machines" in parts:
        counts = dict.fromkeys(STRATEGIES, (0, 0, 0, 0, 0))
        for one in record_trials(folder, trials, jobs, length=length):
            more = (1, one.machines, one.calls, one.effects, one.written)
            counts[one.strategy] = tuple(map(sum, zip(counts[one.strategy], more, strict=True)))  # type: ignore[assignment]
        for strategy, (done, machines, calls, effects, written) in counts.items():
            said = f"{done} trials, {machines:,} machines, {calls:,} calls, {effects:,} effects"
            print(f"{strategy}: {said}, {written / 1e6:.1f} MB")
    for part, action in RECORDS.items():
        if part in parts:
            print(f"{part}: {action(folder)} recorded")
    print(f"recorded in {time.monotonic() - began:.0f} s: {folder}")
    return 0


def commit() -> str:
    """Which version that is; with a mark behind it if files were changed since."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--tags"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"


def replay(folder: Path, names: Names, jobs: int, parts: tuple[str, ...]) -> int:
    began = time.monotonic()
    compared_any = differ = False
    if "machines" in parts and (folder / "machines").is_dir():
        found = replay_trials(folder, names, jobs)
        for name, one in [*found.items(), ("all", total(found.values()))]:
            said = f"{one.trials} trials, {one.machines:,} machines, {one.calls:,} calls, {one.effects:,} effects"
            print(f"{name}: {said} compared; {one.differing} machines differ")
            if one.first is not None and name != "all":
                print(f"first difference: {one.first}"[:SHOWN_CHARS])
        compared_any, differ = bool(found), any(one.differing for one in found.values())
    for part, (file, action) in REPLAYS.items():
        if part in parts and (folder / file).exists():
            looked = action(folder, names)
            print(f"{part}: {looked.compared} compared; {len(looked.others)} differ")
            for other in looked.others[:SHOWN_MAX]:
                print(str(other)[:SHOWN_CHARS])
            compared_any, differ = True, differ or bool(looked.others)
    print(f"compared in {time.monotonic() - began:.0f} s")
    if not compared_any:
        print(f"nothing of {', '.join(parts)} is recorded in {folder}", file=sys.stderr)
        return 2
    return 1 if differ else 0


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.behaviour", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("record", "replay"):
        one = verbs.add_parser(verb)
        one.add_argument("folder", type=Path)
        one.add_argument("--jobs", type=int, default=2, help="processes at once (2)")
        one.add_argument("--parts", default=",".join(PARTS), help=f"which of {', '.join(PARTS)}; default: all")
        if verb == "record":
            one.add_argument("--trials", type=int, default=200, help="of each strategy (200)")
            one.add_argument("--length", type=float, default=LENGTH, help="of a trial; 0.1: a tenth as long (1)")
        else:
            one.add_argument("--names", type=Path, default=TABLE, help="what was renamed; default: names.toml here")
    said = parser.parse_args(args)
    parts = tuple(said.parts.split(","))
    if strange := [part for part in parts if part not in PARTS]:
        parser.error(f"no part: {', '.join(strange)}; there are {', '.join(PARTS)}")
    if said.verb == "record":
        return record(said.folder, said.trials, said.length, said.jobs, parts)
    return replay(said.folder, Names.read(said.names), said.jobs, parts)


if __name__ == "__main__":
    sys.exit(main())
