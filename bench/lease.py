"""`python -m bench.lease`: a lease in SQLite, PostgreSQL, MariaDB and etcd: killed, frozen, released, idle, many.

Medians of rounds in which all stores take turns. Beside them what databases offer themselves: PostgreSQL's advisory
locks and MariaDB's GET_LOCK; and, for many leases in one process, redis-py. Exit 1 if a promise is not kept.
docs/speed.md says what each part does.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tests.support import servers

from bench import lease_many, processes, trials
from bench.lease_many import Cost
from bench.lease_nodes import NOTIFY, RELEASES, STORES, LeaseNodes, Place, Trips
from bench.lease_pair import releases_ms
from bench.lease_peers import SessionLocks
from bench.report import Row, measurable, spread, told
from bench.trials import Took, since_ms
from bench.watch import Doorbell, Watch, rings

PARTS = ("killed", "frozen", "released", "idle", "many")
KILLED_MOST = 0.2
"""Of the hold."""
FROZEN_TOLD_MOST = 1.1
"""Of the hold, where the store tells of changes."""
TRIPS_MOST = 10.0
PER_S_MOST = 4.0
IDLE_PROFILE = "lan"
FROZEN_HOLDS = 3
"""So many holds a session's lock is waited for before we say never."""

Progress = Callable[[str], None]


def frozen(nodes: LeaseNodes) -> Took:
    """Everything of the holder stands still; the kernel ends its command, and the hold is waited out."""
    watch = nodes.watch
    watch.rest(random.uniform(0, nodes.timing.look_ms) / 1_000)  # whatever came before set everybody's clock
    nodes.catch_up()
    old = nodes.runs_on
    since = len(watch.lines)
    pids, began_ns = nodes.freeze(old)
    elected = watch.until(nodes.elected, since, f"the next leader of {nodes.name}")
    rang = nodes.note(watch.until(rings(nodes.name), since, f"the next command of {nodes.name}"))
    since = len(watch.lines)
    for pid in pids:
        processes.signal_to(pid, signal.SIGCONT)
    watch.until(lambda line: line.source == f"{nodes.name}-{old}" and "follows" in line.text, since, f"{old} to follow")
    watch.rest(1.0)
    return Took(since_ms(began_ns, elected.at_ns), since_ms(began_ns, rang.at_ns))


class Rounds:
    """All stores, alive at the same time."""

    def __init__(self, folder: Path, stores: tuple[str, ...], profile: str, progress: Progress) -> None:
        self.progress = progress
        self.profile = profile
        self.watch = Watch()
        self.bell = Doorbell(self.watch, folder)
        self.folder = folder
        self.places: dict[str, Place] = {}
        self.nodes: dict[str, LeaseNodes] = {}
        self.locks: dict[str, SessionLocks] = {}
        self.stores = stores
        self.took: dict[str, list[Took]] = {}
        self.never: dict[str, float | None] = {}
        self.trips: dict[str, Trips] = {}
        self.released: dict[str, list[float]] = {}
        self.idle: dict[str, tuple[float, float | None]] = {}
        self.many: dict[str, Cost] = {}

    def run(self, parts: tuple[str, ...], rounds: int, idle_s: float, leases: int = lease_many.LEASES) -> None:
        try:
            for kind in self.stores:
                self.progress(f"starts {kind}")
                self.places[kind] = Place(kind, self.folder)
            if {"killed", "frozen"} & set(parts):
                self._take_turns(parts, rounds)
            if "released" in parts:
                for kind, place in self.places.items():
                    self.progress(f"releases: {kind}")
                    self.trips[kind] = place.trips_ms()
                    self.released[kind] = asyncio.run(releases_ms(place.url, self.profile, rounds))
            if "idle" in parts:
                for kind, place in self.places.items():
                    self._idle(kind, place, idle_s)
            if "many" in parts:
                self._many(leases, idle_s)
        finally:
            for party in (*self.nodes.values(), *self.locks.values(), *self.places.values()):
                party.end()
            self.watch.close()

    def _take_turns(self, parts: tuple[str, ...], rounds: int) -> None:
        for kind, place in self.places.items():
            self.progress(f"starts three nodes on {kind}")
            self.nodes[kind] = LeaseNodes(self.watch, self.bell, self.folder, self.profile, place)
            self.nodes[kind].start()
            if kind in ("postgresql", "mariadb"):
                self.locks[kind] = SessionLocks(self.watch, self.folder, kind, place.url, self.bell.path)
        for number in range(rounds):
            for kind, nodes in self.nodes.items():
                if "killed" in parts:
                    nodes.catch_up()
                    self._note(f"killed {kind}", trials.agent_killed(nodes))
                if "frozen" in parts:
                    self._note(f"frozen {kind}", frozen(nodes))
            if "killed" in parts:
                for kind, locks in self.locks.items():
                    self._note(f"killed session {kind}", Took(command_ms=locks.killed_ms()))
            last = ", ".join(f"{name} {took[-1].command_ms:.0f}" for name, took in self.took.items())
            self.progress(f"round {number + 1} of {rounds}: {last} ms")
        if "frozen" in parts:
            for kind, locks in self.locks.items():
                hold_s = self.nodes[kind].timing.hold_ms / 1_000
                self.never[kind] = locks.frozen_ms(FROZEN_HOLDS * hold_s)
        for party in (*self.nodes.values(), *self.locks.values()):
            party.end()

    def _idle(self, kind: str, place: Place, idle_s: float) -> None:
        self.progress(f"idle: three nodes on {kind} for {idle_s:.0f} s")
        folder = self.folder / f"idle-{kind}"
        folder.mkdir()
        nodes = LeaseNodes(self.watch, self.bell, folder, IDLE_PROFILE, place)
        self.nodes[f"idle {kind}"] = nodes
        nodes.start()
        self.watch.rest(4.0)
        ours, theirs, began_s = nodes.counted(), place.statements(), time.monotonic()
        self.watch.rest(idle_s)
        span_s = time.monotonic() - began_s
        ours, after = nodes.counted() - ours, place.statements()
        counted = (after - theirs) / span_s if after is not None and theirs is not None else None
        self.idle[kind] = (ours / span_s, counted)
        nodes.end()

    def _many(self, leases: int, span_s: float) -> None:
        self.progress(f"many: {leases} locks of redis-py for {span_s:.0f} s")
        redis = lease_many.RedisServer(self.folder)
        try:
            where = str(redis.port)
            self.many["redis"] = lease_many.measured("redis", where, leases, IDLE_PROFILE, span_s, redis.process.pid)
        finally:
            redis.end()
        for kind, place in self.places.items():
            self.progress(f"many: {leases} leases on {kind} for {span_s:.0f} s")
            self.many[kind] = lease_many.measured("store", place.url, leases, IDLE_PROFILE, span_s, place.pid)

    def _note(self, name: str, took: Took) -> None:
        self.took.setdefault(name, []).append(took)


def rows_of(rounds: Rounds) -> list[Row]:
    rows: list[Row] = []
    for kind in rounds.stores:
        if f"killed {kind}" in rounds.took:
            rows.append(_killed(rounds, kind))
        if f"frozen {kind}" in rounds.took:
            rows.append(_frozen(rounds, kind))
        if kind in rounds.released:
            rows += _released(rounds, kind)
        if kind in rounds.idle:
            ours, counted = rounds.idle[kind]
            beside = (
                f"the server counted {counted:.1f} (docs/speed.md)" if counted is not None else "as the nodes count"
            )
            rows.append(
                Row(f"idle, {kind}", "statements a second, three nodes", f"{ours:.2f}", beside, ours, PER_S_MOST)
            )
        if kind in rounds.many:
            rows += _many(kind, rounds.many[kind], rounds.many["redis"])
    return rows


def _many(kind: str, ours: Cost, redis: Cost) -> list[Row]:
    part, all_ms, theirs_ms = f"many, {kind}", ours.cpu_ms + ours.server_ms, redis.cpu_ms + redis.server_ms
    return [
        Row(
            part,
            "processor with the server, over redis-py",
            f"{ours.cpu_ms:.0f} + {ours.server_ms:.0f} ms/s",
            f"{redis.cpu_ms:.0f} + {redis.server_ms:.0f} ms/s",
            all_ms / theirs_ms,
            1.0,
            False,
        ),
        Row(
            part,
            "statements, over redis-py",
            f"{ours.statements:.0f}/s for {ours.renewals:.0f} renewals",
            f"{redis.statements:.0f}/s",
            ours.statements / redis.statements,
            1.0,
            False,
        ),
        Row(part, "leaderships lost", str(ours.lost), f"{redis.lost} locks", ours.lost, 0.0),
    ]


def _killed(rounds: Rounds, kind: str) -> Row:
    commands = [one.command_ms for one in rounds.took[f"killed {kind}"]]
    hold_ms = rounds.nodes[kind].timing.hold_ms
    session = [one.command_ms for one in rounds.took.get(f"killed session {kind}", [])]
    beside = f"hold {hold_ms} ms" + (f"; session lock {spread(session)}" if session else "")
    return Row(
        f"killed, {kind}", "command, p50 over hold", spread(commands), beside, median(commands) / hold_ms, KILLED_MOST
    )


def _frozen(rounds: Rounds, kind: str) -> Row:
    timing = rounds.nodes[kind].timing
    commands = [one.command_ms for one in rounds.took[f"frozen {kind}"]]
    most = FROZEN_TOLD_MOST if kind in NOTIFY else (timing.wait_ms + timing.hold_ms / 6) / timing.hold_ms
    beside = f"hold {timing.hold_ms} ms"
    if kind in rounds.never:
        got_ms = rounds.never[kind]
        beside += "; session lock never" if got_ms is None else f"; session lock {got_ms:.0f} ms"
    return Row(
        f"frozen, {kind}", "command, p50 over hold", spread(commands), beside, median(commands) / timing.hold_ms, most
    )


def _released(rounds: Rounds, kind: str) -> list[Row]:
    """A committed write is the least that it takes, the take, so that a write is the bare trip that counts."""
    took, trips = rounds.released[kind], rounds.trips[kind]
    told = kind in NOTIFY or kind in RELEASES
    beside = {
        "write": (trips.writes, told),
        "question": (trips.asks, False),
        "write, warm": (trips.warm_writes, False),
        "question, warm": (trips.warm_asks, False),
    }
    return [
        Row(
            f"released, {kind}",
            f"next holder, over a bare {word}",
            spread(took),
            f"{word} {median(trip):.2f} ({min(trip):.2f}..{max(trip):.1f}) ms",
            median(took) / median(trip),
            TRIPS_MOST,
            promise,
        )
        for word, (trip, promise) in beside.items()
    ]


def raw_of(rounds: Rounds) -> dict[str, Any]:
    return {
        "profile": rounds.profile,
        "took": {name: [one._asdict() for one in took] for name, took in rounds.took.items()},
        "released_ms": rounds.released,
        "trips_ms": {kind: trips._asdict() for kind, trips in rounds.trips.items()},
        "idle_per_s": rounds.idle,
        "session_frozen_ms": rounds.never,
        "many_per_s": {name: cost._asdict() for name, cost in rounds.many.items()},
    }


def _missing_store(kind: str) -> str:
    return "" if kind == "sqlite" else servers.KINDS[kind].missing()


def _missing_part(part: str) -> str:
    return lease_many.missing() if part == "many" else ""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lease", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="how often each holder fails (default 9)")
    parser.add_argument(
        "--only", metavar="PARTS", help=f"of {', '.join(PARTS)}; default: all that can be measured here"
    )
    parser.add_argument("--stores", metavar="STORES", help=f"of {', '.join(STORES)}; default: all that are here")
    parser.add_argument("--profile", default="lan", choices=("lab", "fast", "lan"), help="for killed and frozen")
    parser.add_argument(
        "--idle-s", type=float, default=20.0, metavar="S", help="length of idle and of many, for each store"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    args = parser.parse_args(words)
    parts = PARTS if args.only is None else tuple(args.only.split(","))
    stores = STORES if args.stores is None else tuple(args.stores.split(","))
    for given, known in ((parts, PARTS), (stores, STORES)):
        if unknown := [one for one in given if one not in known]:
            parser.error(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
    if args.rounds < 1 or args.idle_s <= 0:
        parser.error("rounds and seconds must be above 0")
    there = measurable(stores, _missing_store, named=args.stores is not None)
    possible = measurable(parts, _missing_part, named=args.only is not None)
    if there is None or possible is None:
        return 4
    try:
        with processes.ended_in_order(), tempfile.TemporaryDirectory(prefix="primacy-bench-") as name:
            rounds = Rounds(Path(name), there, args.profile, lambda text: print(text, file=sys.stderr, flush=True))
            rounds.run(possible, args.rounds, args.idle_s)
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    return told(rows_of(rounds), raw_of(rounds), args.rounds, args.json)


if __name__ == "__main__":
    sys.exit(main())
