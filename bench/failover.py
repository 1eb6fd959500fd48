"""`python -m bench.failover`: how soon another node does the job, and what it costs to be ready, beside the peers.

Medians of rounds in which all parties take turns, so that whatever else this machine does meets all of them. Exit 1 if
a promise is not kept. The peers come by `make peers`; docs/speed.md says what each part does and what was found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench import busy, idle, peers, processes, trials
from bench.floor import Floor, measure
from bench.nodes import Nodes
from bench.report import Row, measurable, spread, told
from bench.trials import Took
from bench.watch import Doorbell, Watch

PARTS = ("killed", "silent", "handover", "idle", "busy", "lock")
UNASKED = PARTS[:-1]
ALONE = ("silent", "busy")
"""Beside no peer."""
"""All but the last, which takes a minute and a half for one figure."""
EIGHTH = 1 / 8
FLOORS_MOST = 4.0
ELECTED_MS, COMMAND_MS = 40.0, 150.0
SILENT_P50, SILENT_MOST = 1.35, 1.8
CPU_MOST, BYTES_MOST = 0.35, 0.5
AGENT_MIB, GUARD_MIB = 60.0, 14.0
PROFILES = ("fast", "lan")

Progress = Callable[[str], None]


class Rounds:
    """All parties, alive at the same time; each is let fail in turn."""

    def __init__(
        self, folder: Path, parts: tuple[str, ...], progress: Progress, profiles: tuple[str, ...] = PROFILES
    ) -> None:
        self.folder = folder
        self.parts = parts
        self.progress = progress
        self.profiles = profiles
        self.watch = Watch()
        self.bell = Doorbell(self.watch, folder)
        self.nodes = {profile: Nodes(self.watch, self.bell, folder, profile) for profile in profiles}
        self.etcd: peers.Etcd | None = None
        self.locks: peers.EtcdLocks | None = None
        self.objs: peers.SyncObjs | None = None
        self.took: dict[str, list[Took]] = {}
        self.floors: dict[str, list[Floor]] = {}

    def run(self, rounds: int) -> None:
        try:
            self._start()
            for number in range(rounds):
                self._round()
                last = ", ".join(
                    f"{name} {took[-1].command_ms or took[-1].elected_ms:.0f}" for name, took in self.took.items()
                )
                self.progress(f"round {number + 1} of {rounds}: {last} ms")
        finally:
            for party in (*self.nodes.values(), self.locks, self.etcd, self.objs):
                if party is not None:
                    party.end()
            self.watch.close()

    def _start(self) -> None:
        if {"killed", "handover"} & set(self.parts):
            self.progress("starts etcd")
            self.etcd = peers.Etcd(self.watch, self.folder, fast=True)
            self.etcd.wait()
            self.locks = peers.EtcdLocks(self.etcd, self.bell, self.watch)
            self.locks.start()
        if "killed" in self.parts:
            self.progress("starts PySyncObj")
            self.objs = peers.SyncObjs(self.watch)
            self.objs.start()
        for profile, nodes in self.nodes.items():
            self.progress(f"starts primacy, {profile}")
            nodes.start()

    def _round(self) -> None:
        if "killed" in self.parts:
            assert self.locks is not None
            assert self.objs is not None
            for profile, nodes in self.nodes.items():
                self._note(f"killed {profile}", trials.agent_killed(nodes))
                self.floors.setdefault(profile, []).append(measure(self.watch, self.bell, self.folder))
            self._note("killed etcd", trials.holder_killed(self.locks))
            self._note("killed pysyncobj", trials.leader_killed(self.objs))
        if "handover" in self.parts:
            assert self.locks is not None
            for profile, nodes in self.nodes.items():
                self._note(f"handover {profile}", trials.stepped_down(nodes))
            self._note("handover etcd", trials.unlocked(self.locks))
        if "silent" in self.parts:
            for profile, nodes in self.nodes.items():
                self._note(f"silent {profile}", trials.node_lost(nodes))

    def _note(self, name: str, took: Took) -> None:
        self.took.setdefault(name, []).append(took)


# --- rows -------------------------------------------------------------------------------------------------------------


def _commands(took: list[Took]) -> list[float]:
    return [one.command_ms for one in took]


def rows_of(rounds: Rounds) -> list[Row]:
    rows: list[Row] = []
    for profile in rounds.profiles:
        if "killed" in rounds.parts:
            rows += _killed_rows(rounds, profile)
        if "silent" in rounds.parts:
            rows += _silent_rows(rounds, profile)
        if "handover" in rounds.parts:
            rows += _handover_rows(rounds, profile)
    return rows


def _killed_rows(rounds: Rounds, profile: str) -> list[Row]:
    took, etcd, objs = (rounds.took[f"killed {name}"] for name in (profile, "etcd", "pysyncobj"))
    elected, commands = [one.elected_ms for one in took], _commands(took)
    theirs, leaders = _commands(etcd), [one.elected_ms for one in objs]
    floors = [
        one.notice_ms + 2 * floor.sync_ms + floor.spawn_ms
        for one, floor in zip(took, rounds.floors[profile], strict=True)
    ]
    part = f"killed, {profile}"
    beside = f"etcdctl lock {spread(theirs)}"
    return [
        Row(part, "command, over etcd's", spread(commands), beside, median(commands) / median(theirs), EIGHTH),
        Row(part, "next leader, over etcd's", spread(elected), beside, median(elected) / median(theirs), EIGHTH),
        Row(
            part,
            "next leader, over PySyncObj's",
            spread(elected),
            f"PySyncObj {spread(leaders)}",
            median(elected) / median(leaders),
            EIGHTH,
        ),
        Row(
            part,
            "command, over notice, two syncs, spawn",
            spread(commands),
            f"floor {spread(floors)}",
            median(a / b for a, b in zip(commands, floors, strict=True)),
            FLOORS_MOST,
        ),
        Row(part, "next leader, ms", spread(elected), "goal", median(elected), ELECTED_MS, promise=False),
        Row(part, "command, ms", spread(commands), "goal", median(commands), COMMAND_MS, promise=False),
    ]


def _silent_rows(rounds: Rounds, profile: str) -> list[Row]:
    hold_ms = rounds.nodes[profile].timing.hold_ms
    commands = _commands(rounds.took[f"silent {profile}"])
    part, beside = f"silent, {profile}", f"hold {hold_ms} ms"
    return [
        Row(part, "command, p50 over hold", spread(commands), beside, median(commands) / hold_ms, SILENT_P50),
        Row(part, "command, max over hold", spread(commands), beside, max(commands) / hold_ms, SILENT_MOST),
    ]


def _handover_rows(rounds: Rounds, profile: str) -> list[Row]:
    """Beside what etcd needs after a failure; its unlock confirms nothing and elects nobody, and is shown as news."""
    gaps = [one.gap_ms for one in rounds.took[f"handover {profile}"]]
    part = f"handover, {profile}"
    theirs = [one.gap_ms for one in rounds.took["handover etcd"]]
    unlocks = Row(
        part,
        "gap, over etcd's unlock",
        spread(gaps),
        f"unlock {spread(theirs)}",
        median(gaps) / median(theirs),
        EIGHTH,
        promise=False,
    )
    if "killed" not in rounds.parts:
        return [unlocks]
    failovers = _commands(rounds.took["killed etcd"])
    return [
        Row(
            part,
            "gap, over etcd's failover",
            spread(gaps),
            f"etcdctl lock {spread(failovers)}",
            median(gaps) / median(failovers),
            EIGHTH,
        ),
        unlocks,
    ]


def idle_rows(seen: idle.Idle) -> list[Row]:
    ours, etcds = seen.ours, seen.etcds
    return [
        Row("idle", "processor", f"{ours.cpu_ms:.1f} ms/s", f"etcd {etcds.cpu_ms:.1f} ms/s", seen.cpu_ratio, CPU_MOST),
        Row(
            "idle",
            "bytes sent",
            f"{ours.sent_bytes:.0f} B/s in {ours.sent_packets:.0f}",
            f"etcd {etcds.sent_bytes:.0f} B/s in {etcds.sent_packets:.0f}",
            seen.bytes_ratio,
            BYTES_MOST,
        ),
        Row("idle", "agent resident, MiB", f"{seen.agent_mib:.1f}", "", seen.agent_mib, AGENT_MIB),
        Row("idle", "guard resident, MiB", f"{seen.guard_mib:.1f}", "", seen.guard_mib, GUARD_MIB),
    ]


def busy_rows(seen: busy.Busy) -> list[Row]:
    beside = f"{seen.seconds:.0f} s, canary late by {seen.canary_ms} ms at most, load {seen.load:.1f}"
    return [Row("busy", "needless failovers", f"{seen.failovers} in all", beside, seen.needless, 0.0)]


def lock_row(lock_ms: float, took: dict[str, list[dict[str, float]]]) -> Row:
    """Beside our own command after a kill, if that was measured in this run; it is news, nobody promised it."""
    commands = [one["command_ms"] for one in took.get("killed lan", [])]
    shown, value = (spread(commands), median(commands) / lock_ms) if commands else ("not measured", 0.0)
    return Row("lock", "command, lan, over PySyncObj's lock", shown, f"{lock_ms:.0f} ms", value, EIGHTH, promise=False)


# --- the command ------------------------------------------------------------------------------------------------------


def compare(
    parts: tuple[str, ...], rounds: int, idle_s: float, busy_s: float, progress: Progress
) -> tuple[list[Row], dict[str, Any]]:
    """All rows, and what they were made from."""
    rows: list[Row] = []
    raw: dict[str, Any] = {}
    if {"killed", "silent", "handover"} & set(parts):
        with tempfile.TemporaryDirectory(prefix="primacy-bench-") as name:
            turns = Rounds(Path(name), parts, progress)
            turns.run(rounds)
        rows += rows_of(turns)
        raw["took"] = {name: [one._asdict() for one in took] for name, took in turns.took.items()}
        raw["floors"] = {name: [floor._asdict() for floor in floors] for name, floors in turns.floors.items()}
    if "idle" in parts:
        progress(f"idle: two clusters for {idle_s * rounds:.0f} s")
        seen = idle.measure(idle_s, rounds)
        rows += idle_rows(seen)
        raw["idle"] = {"ours": seen.ours._asdict(), "etcd": seen.etcds._asdict()}
    if "lock" in parts:
        progress("PySyncObj's lock: its holder is killed, once")
        watch = Watch()
        try:
            raw["lock_ms"] = trials.lock_holder_killed(watch)
        finally:
            watch.close()
        rows.append(lock_row(raw["lock_ms"], raw.get("took", {})))
    if "busy" in parts:
        found = busy.measure(busy_s, progress)
        rows += busy_rows(found)
        raw["busy"] = found._asdict()
    return rows, raw


def _missing(part: str) -> str:
    """What a part needs and is not here: the peers, or a network namespace."""
    return ("" if part in ALONE else peers.missing()) or (idle.cannot() if part == "idle" else "")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="how often each party fails (default 15)")
    parser.add_argument(
        "--only", metavar="PARTS", help=f"of {', '.join(PARTS)}; default: all but lock that can be measured"
    )
    parser.add_argument("--idle-s", type=float, default=4.0, metavar="S", help="length of a slice of idleness")
    parser.add_argument("--busy-s", type=float, default=60.0, metavar="S", help="how long all cores are busy")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    args = parser.parse_args(words)
    parts = UNASKED if args.only is None else tuple(args.only.split(","))
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"no part named {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    if args.rounds < 1 or args.idle_s <= 0 or args.busy_s <= 0:
        parser.error("rounds and seconds must be above 0")
    possible = measurable(parts, _missing, named=args.only is not None)
    if possible is None:
        return 4
    try:
        with processes.ended_in_order():
            rows, raw = compare(
                possible, args.rounds, args.idle_s, args.busy_s, lambda text: print(text, file=sys.stderr, flush=True)
            )
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    return told(rows, raw, args.rounds, args.json)


if __name__ == "__main__":
    sys.exit(main())
