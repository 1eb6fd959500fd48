"""The cache: hits beside a bare C ROUTER and zmq.asyncio, callers beside redis and memcached, cold keys, a crowd.

    python -m bench.cache [--rounds 7] [--only hits,original,sealed,curve,asyncio,users,cold,crowd] [--json]

What is compared takes turns, round by round, and medians are compared. All but the last three parts are
processor time of the server, by the scheduler's own account: whatever else this machine does matters little. The rest
is time by the wall, which on a machine that others share says less. What is not here (a compiler, libzmq's header,
servers) is skipped, and said.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench import cache_cold, cache_hits, cache_users, processes
from bench.report import Row, told

PARTS = ("hits", "original", "sealed", "curve", "asyncio", "users", "cold", "crowd")
IN_C = ("hits", "original", "sealed", "curve", "asyncio")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(parts: tuple[str, ...], rounds: int, folder: Path) -> tuple[list[Row], dict[str, list[float]]]:
    rows: list[Row] = []
    raw: dict[str, list[float]] = {}
    program = cache_hits.compiled(folder) if set(parts) & set(IN_C) else None
    for part in parts:
        if part in IN_C and program is None:
            say(f"skipped: {part}: a C compiler (cc) or libzmq's header is not here: install them with make peers")
            continue
        say(part)
        if program is not None and part in IN_C:
            found = cache_hits.compared(part, rounds, folder, program)
        elif part == "users":
            found = cache_users.compared(rounds, folder, say)
        else:
            found = cache_cold.run(part, rounds, folder)
        rows += found[0]
        raw |= found[1]
    return rows, raw


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cache", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="of each comparison (default 7)")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PARTS", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    args = parser.parse_args(words)
    parts = tuple(args.only.split(","))
    if unknown := [one for one in parts if one not in PARTS]:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(PARTS)}")
    if args.rounds < 1:
        parser.error("rounds must be above 0")
    try:
        with processes.ended_in_order(), tempfile.TemporaryDirectory(prefix="primacy-bench-") as name:
            rows, raw = run(parts, args.rounds, Path(name))
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    return told(rows, raw, args.rounds, args.json)


if __name__ == "__main__":
    sys.exit(main())
