"""`primacy simulate --strategy cache`: many trials of the cache, and whether any promise was broken."""

from __future__ import annotations

import difflib
from dataclasses import replace

import click

from primacy.cli.call import print_json
from primacy.errors import InUse, UsageError
from primacy.sim.cache.batch import CacheSummary, batch, command, shrink
from primacy.sim.cache.faults import CLASSES
from primacy.sim.cache.trial import STORAGES, CachePlan, CacheTrial

PEERS_LEAST, PEERS_MOST = 2, 9
SHOWN_MAX = 10
COLUMNS = 3
EXIT_VIOLATION = 1
EXIT_INTERRUPTED = 130


def plan_of(
    nodes: int | None, storage: str | None, minutes: float | None, faults: str | None, drift: float
) -> CachePlan:
    """What the options say; what they do not say is drawn for each seed."""
    if nodes is not None and not PEERS_LEAST <= nodes <= PEERS_MOST:
        raise UsageError(f"--nodes {nodes}: say {PEERS_LEAST} to {PEERS_MOST} peers, or nothing for 3 and 5 in turn")
    if storage is not None and storage not in STORAGES:
        raise UsageError(f"--storage {storage}: there are {', '.join(STORAGES)}")
    plan = CachePlan(peers=nodes or 0, storage=storage or "", drift=drift)
    if minutes is not None:
        plan = replace(plan, seconds=minutes * 60)
    if faults is None or faults.strip() == "all":
        return plan
    wanted = () if faults.strip() == "none" else tuple(name.strip() for name in faults.split(","))
    for name in wanted:
        if name not in CLASSES:
            near = difflib.get_close_matches(name, CLASSES, n=1, cutoff=0.5)
            hint = f"is {near[0]} meant? " if near else ""
            raise UsageError(f"--faults {name or repr(faults)}: there is no such class; {hint}There are {_names()}")
    return replace(plan, faults=tuple(name for name in CLASSES if name in wanted), draw=False)


def _names() -> str:
    return ", ".join(CLASSES)


def print_classes() -> None:
    click.echo("Fault classes of cache, for --faults:\n")
    for name, strike in CLASSES.items():
        click.echo(f"  {name:<14} {(strike.__doc__ or '').strip().splitlines()[0]}")


def simulate_cache(plan: CachePlan, seeds: range, jobs: int, *, trace: str | None, shrinks: bool, as_json: bool) -> int:
    """The whole answer; returns the exit code."""
    if trace is not None:
        _traced(plan, seeds.start, trace)
    summary = batch(plan, seeds, jobs)
    line = ""
    if summary.found and not summary.interrupted:
        first = summary.found[0]
        small = shrink(plan, first.seed, first.rule) if shrinks and first.rule not in ("raised", "lost") else plan
        line = command(small, first.seed)
    if as_json:
        print_json({**summary.as_dict(), "command": line or None})
    else:
        _print(summary, line, trace or "")
    if summary.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_VIOLATION if summary.violations else 0


def _traced(plan: CachePlan, seed: int, trace: str) -> None:
    """Every input, effect and fact of one trial, one per line."""
    try:
        with open(trace, "w", encoding="utf-8") as file:
            trial = CacheTrial(plan, seed)
            trial.world.log = lambda at_ms, who, what: print(f"{at_ms:10.3f} {who:12} {what}", file=file)
            trial.run()
    except OSError as error:
        raise InUse(f"--trace {trace}: cannot be written: {error.strerror or error}") from None


def _print(summary: CacheSummary, line: str, trace: str) -> None:
    plan = summary.plan
    if summary.interrupted:
        click.echo("stopped early; this covers what was run", err=True)
    peers = f"{plan.peers} peers" if plan.peers else "3 and 5 peers"
    trials = f"one trial, seed {summary.first_seed}" if summary.seeds == 1 else f"{summary.seeds:,} trials"
    click.echo(f"cache, {peers}, storage {plan.storage or 'of every kind'}, {trials}\n")
    for name, value in _rows(summary):
        click.echo(f"  {name:<30} {value}")
    _columns(summary.faults)
    click.echo("")
    if not summary.violations:
        click.echo(f"  No violation.  trace {summary.trace_hash}")
    else:
        trials = "one trial" if len(summary.failing) == 1 else f"{len(summary.failing):,} trials"
        click.secho(f"  {summary.violations:,} violations in {trials}:", bold=True)
        for found in summary.found[:SHOWN_MAX]:
            click.echo(f"    seed {found.seed}, {found.at_ms / 1000:.3f} s, {found.rule}: {found.sentence}")
        if summary.violations > SHOWN_MAX:
            click.echo(f"    and {summary.violations - SHOWN_MAX:,} more")
        click.echo(f"  trace {summary.trace_hash}")
        click.echo(f"\n  Repeat it: {line}")
        click.echo("    --trace FILE behind it writes every input, effect and fact.")
    if trace:
        click.echo(f"  wrote {trace}")


def _rows(summary: CacheSummary) -> list[tuple[str, str]]:
    simulated_s = summary.simulated_ms / 1000
    speed = simulated_s / max(summary.wall_s, 1e-9)
    p50, p99, most = (summary.wait_ms(share) for share in (0.5, 0.99, 1.0))
    waits = "none" if p50 is None else f"p50 {p50:,} ms, p99 {p99:,} ms, max {most:,} ms"
    rows = [
        ("simulated", f"{simulated_s:,.0f} s in {summary.wall_s:.1f} s ({speed:,.0f} s per s)"),
        ("calls of sources", f"{summary.starts:,}"),
        ("messages between peers", f"{summary.sent:,}"),
        ("waits of clients, settled calm", waits),
    ]
    rows += [(name, f"{count:,}") for name, count in sorted(summary.rare.items())]
    return [*rows, ("faults injected", f"{sum(summary.faults.values()):,}")]


def _columns(counts: dict[str, int]) -> None:
    names = sorted(counts)
    rows = -(-len(names) // COLUMNS)
    for row in range(rows):
        cells = [f"{counts[name]:>8,}  {name:<14}" for name in names[row::rows]]
        click.echo(("  " + " ".join(cells)).rstrip())
