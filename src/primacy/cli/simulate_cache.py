"""`primacy simulate --strategy cache`: many trials of the cache, and whether any promise was broken."""

from __future__ import annotations

from dataclasses import replace

import click

from primacy.cli.call import EXIT_INTERRUPTED, near_of, print_json
from primacy.cli.simulate_text import EXIT_VIOLATION, print_figures, print_verdict, simulated
from primacy.errors import InUse, UsageError
from primacy.sim.cache.batch import CacheSummary, batch, command, shrink
from primacy.sim.cache.faults import CLASSES
from primacy.sim.cache.trial import STORAGES, CachePlan, CacheTrial

PEERS_LEAST, PEERS_MOST = 2, 9


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
            raise UsageError(f"--faults {name or repr(faults)}: there is no such class; {near_of(name, CLASSES)}")
    return replace(plan, faults=tuple(name for name in CLASSES if name in wanted), draw=False)


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
    peers = f"{plan.peers} peers" if plan.peers else "3 and 5 peers"
    print_figures(summary, f"cache, {peers}, storage {plan.storage or 'of every kind'}", _rows(summary))
    click.echo("")
    print_verdict(summary)
    if summary.violations:
        click.echo(f"\n  Repeat it: {line}")
        click.echo("    --trace FILE behind it writes every input, effect and fact.")
    if trace:
        click.echo(f"  wrote {trace}")


def _rows(summary: CacheSummary) -> list[tuple[str, str]]:
    p50, p99, most = (summary.wait_ms(share) for share in (0.5, 0.99, 1.0))
    waits = "none" if p50 is None else f"p50 {p50:,} ms, p99 {p99:,} ms, max {most:,} ms"
    rows = [
        simulated(summary),
        ("calls of sources", f"{summary.starts:,}"),
        ("messages between peers", f"{summary.sent:,}"),
        ("waits of clients, settled calm", waits),
    ]
    rows += [(name, f"{count:,}") for name, count in sorted(summary.rare.items())]
    return [*rows, ("faults injected", f"{sum(summary.faults.values()):,}")]
