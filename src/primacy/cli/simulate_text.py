"""What `primacy simulate` says to people, of elections and in part of the cache."""

from __future__ import annotations

import click

from primacy.sim.cache.batch import CacheSummary
from primacy.sim.faults.classes import CLASSES, OUTSIDE, named_of
from primacy.sim.trials.shrink import Shrunk
from primacy.sim.trials.summary import Summary

SHOWN_MAX = 10
COLUMNS = 3
EXIT_VIOLATION = 1


def print_classes(strategy: str, changes: bool = False) -> None:
    """The fault classes of a strategy, each with its sentence."""
    click.echo(f"Fault classes of {strategy}, for --faults:\n")
    names = named_of(strategy, changes)
    outside = next((name for name in names if name in OUTSIDE), "")
    for name in names:
        if name == outside:
            click.echo("\nBeyond the promise, drawn only if asked for; a violation is to be expected:\n")
        text = (CLASSES[name].__doc__ or "").strip().splitlines() or [""]
        click.echo(f"  {name:<14} {text[0]}")


def print_summary(summary: Summary, file: str, trace: str) -> None:
    """The whole answer."""
    plan = summary.plan
    where = f"{file}: " if file else ""
    subject = f"{where}{plan.strategy}, {summary.nodes} nodes, profile {plan.profile}"
    print_figures(summary, subject, _rows(summary))
    _print_rare(summary.rare)
    click.echo("")
    print_verdict(summary)
    if trace:
        click.echo(f"  wrote {trace}: open it in a browser")


def print_shrunk(shrunk: Shrunk, line: str) -> None:
    """The smallest failing trial, and how to run it again."""
    plan = shrunk.plan
    classes = ", ".join(plan.faults or ()) or "none"
    if plan.draw:
        classes = "as drawn"
    click.echo(f"\n  The smallest trial that breaks {shrunk.violation.rule}, of {shrunk.trials} run to find it:")
    store = f" on {plan.engine}" if plan.engine else ""
    click.echo(f"    {len(plan.members) or plan.nodes} nodes{store}, {plan.minutes:g} minutes, faults: {classes}")
    click.echo(f"    {shrunk.violation.at_ms / 1000:.3f} s: {shrunk.violation.sentence}")
    click.echo(f"    {line}")
    click.echo("    --trace FILE.html behind it draws it.")


def print_figures(summary: Summary | CacheSummary, subject: str, rows: list[tuple[str, str]]) -> None:
    """What was run, the figures, and the faults that were injected."""
    if summary.interrupted:
        click.echo("stopped early; this covers what was run", err=True)
    trials = f"one trial, seed {summary.first_seed}" if summary.seeds == 1 else f"{summary.seeds:,} trials"
    click.echo(f"{subject}, {trials}\n")
    for name, value in rows:
        click.echo(f"  {name:<30} {value}")
    names = sorted(summary.faults)
    lines = -(-len(names) // COLUMNS)
    for line in range(lines):
        cells = [f"{summary.faults[name]:>8,}  {name:<14}" for name in names[line::lines]]
        click.echo(("  " + " ".join(cells)).rstrip())


def simulated(summary: Summary | CacheSummary) -> tuple[str, str]:
    """The first row of the figures."""
    simulated_s = summary.simulated_ms / 1000
    speed = simulated_s / max(summary.wall_s, 1e-9)
    return "simulated", f"{simulated_s:,.0f} s in {summary.wall_s:.1f} s ({speed:,.0f} s per s)"


def print_verdict(summary: Summary | CacheSummary) -> None:
    """No violation, or the first of them."""
    if not summary.violations:
        click.echo(f"  No violation.  trace {summary.trace_hash}")
        return
    trials = "one trial" if len(summary.failing) == 1 else f"{len(summary.failing):,} trials"
    count = "1 violation" if summary.violations == 1 else f"{summary.violations:,} violations"
    click.secho(f"  {count} in {trials}:", bold=True)
    for found in summary.found[:SHOWN_MAX]:
        click.echo(f"    seed {found.seed}, {found.at_ms / 1000:.3f} s, {found.rule}: {found.sentence}")
    if summary.violations > SHOWN_MAX:
        click.echo(f"    and {summary.violations - SHOWN_MAX:,} more")
    click.echo(f"  trace {summary.trace_hash}")


def _rows(summary: Summary) -> list[tuple[str, str]]:
    p50, p99, most = (summary.wait_ms(share) for share in (0.5, 0.99, 1.0))
    waits = "none" if p50 is None else f"p50 {p50:,} ms, p99 {p99:,} ms, max {most:,} ms, of {summary.failovers:,}"
    stores = ", ".join(f"{count:,} {name}" for name, count in sorted(summary.engines.items()))
    return [
        simulated(summary),
        *([("trials on each kind of store", stores)] if stores else []),
        ("elections", f"{summary.elections:,}"),
        ("failover (nobody at work)", waits),
        ("needless failovers", f"{summary.needless:,}"),
        ("leader within the bound", _in_time(summary)),
        ("messages per node and second", f"{summary.messages_per_node_s:.1f}"),
        ("time with the work running", f"{100 * summary.working_share:.1f} %"),
        ("overlaps", f"{summary.overlaps:,}"),
        ("faults injected", f"{sum(summary.faults.values()):,}"),
    ]


def _in_time(summary: Summary) -> str:
    """Of the trials in which everything was healed; what has no leader within three bounds is a violation."""
    share = summary.in_time_share
    return "not judged" if share is None else f"{100 * share:.1f} % of {summary.led:,}"


def _print_rare(counts: dict[str, int]) -> None:
    if counts:
        click.echo("  rare situations")
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        click.echo(f"  {count:>8,}  {name}")
