"""`primacy simulate`: many trials of a cluster, with faults, and whether any promise was broken."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from primacy.cli.call import EXIT_INTERRUPTED, Call, config_option, json_option, near_of, print_json
from primacy.cli.simulate_cache import plan_of, simulate_cache
from primacy.cli.simulate_cache import print_classes as print_cache_classes
from primacy.cli.simulate_text import EXIT_VIOLATION, print_classes, print_shrunk, print_summary
from primacy.errors import InUse, UsageError
from primacy.settings.accepted import STRATEGIES
from primacy.settings.timing import DEFAULT_PROFILE, profiles_of
from primacy.sim.cache.trial import STORAGES
from primacy.sim.faults.classes import CLASSES, RENAMED, WITH_CHANGES, named_of
from primacy.sim.trials.batch import cores, run_batch, run_or_raised
from primacy.sim.trials.shrink import Shrunk, command, shrink
from primacy.sim.trials.summary import Summary
from primacy.sim.trials.trial import Outcome, Plan
from primacy.sim.world.engines import BY_NAME
from primacy.strategies import promise_of

CACHE = "cache"
SEEDS_DEFAULT = 100
SEEDS_MOST = 10**9
SEED_MOST = 2**63 - 1
NODES_DEFAULT = 5
NODES_MOST = 50
MINUTES_LEAST, MINUTES_MOST = 1, 24 * 60
"""Below a minute there is no time to see that a leader comes and stays after the faults end."""
DRIFT_MOST = 0.2
JOBS_MOST = 256


class Number(click.FloatRange):
    """A range that also refuses what is no number: it compares with nothing, and so passes every bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:  # noqa: PLR0124  (the definition of not being a number)
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number


def _removed(ctx: click.Context, param: click.Parameter, value: object) -> None:  # noqa: ARG001
    if value is not None:
        raise UsageError(
            f"{param.opts[0]} is gone: write one trial as a page with --seed K --trace FILE.html, "
            "or watch a real cluster with primacy demo"
        )


@click.command()
@click.option("--strategy", metavar="S", help=f"{', '.join(STRATEGIES)}, cache, or package.module:Name. Default: raft.")
@config_option
@click.option("--election", metavar="NAME", help="Which election, of a file with several.")
@click.option("--nodes", metavar="N", type=click.IntRange(1, NODES_MOST), help=f"How many. Default: {NODES_DEFAULT}.")
@click.option("--profile", metavar="P", help=f"Times: lab, fast, lan, wan and others. Default: {DEFAULT_PROFILE}.")
@click.option(
    "--seeds", metavar="COUNT", type=click.IntRange(1, SEEDS_MOST), help=f"How many trials. Default: {SEEDS_DEFAULT}."
)
@click.option("--first-seed", metavar="K", type=click.IntRange(0, SEED_MOST), help="The first of them. Default: 0.")
@click.option("--seed", metavar="K", type=click.IntRange(0, SEED_MOST), help="This one trial only.")
@click.option(
    "--minutes",
    metavar="M",
    type=Number(MINUTES_LEAST, MINUTES_MOST),
    default=2.0,
    show_default=True,
    help="Simulated minutes per trial.",
)
@click.option("--storage", metavar="KIND", help=f"cache: {', '.join(STORAGES)}. Default: drawn for each seed.")
@click.option(
    "--engine", metavar="KIND", help=f"lease: which store, {', '.join(BY_NAME)}. Default: drawn for each seed."
)
@click.option(
    "--faults",
    metavar="LIST",
    help="Exactly these classes in every trial: a,b,c; or none; `help` lists them. Default: drawn for each seed.",
)
@click.option(
    "--members",
    "members_change",
    is_flag=True,
    help="raft: operators change the members in every trial, and use the last resort in some. Default: in a third.",
)
@click.option(
    "--changes",
    is_flag=True,
    help="raft: nodes change to a lease, to another store and to other times, one after the other, and back.",
)
@click.option(
    "--drift",
    metavar="D",
    type=Number(0, DRIFT_MOST),
    default=0.01,
    show_default=True,
    help="Largest clock rate error. The promises hold up to 0.01; with 0.03, 100 trials find overlaps (raft, lease).",
)
@click.option(
    "--jobs", metavar="J", type=click.IntRange(1, JOBS_MOST), help="Processes at a time. Default: one per core."
)
@click.option("--trace", metavar="FILE", help="With --seed: write this trial as one HTML page to look at.")
@click.option("--show", is_flag=True, default=None, hidden=True, expose_value=False, callback=_removed)
@click.option("--seconds", hidden=True, expose_value=False, callback=_removed)
@click.option("--shrink/--no-shrink", "shrinks", default=True, help="Look for the smallest trial that fails alike.")
@json_option
@click.pass_obj
def simulate(
    call: Call,
    *,
    strategy: str | None,
    config: str | None,
    election: str | None,
    nodes: int | None,
    profile: str | None,
    seeds: int | None,
    first_seed: int | None,
    seed: int | None,
    minutes: float,
    storage: str | None,
    engine: str | None,
    faults: str | None,
    members_change: bool,
    changes: bool,
    drift: float,
    jobs: int | None,
    trace: str | None,
    shrinks: bool,
    as_json: bool,
) -> None:
    """Run many trials of a cluster in a world that loses messages, stops nodes and bends clocks.

    With --strategy cache, trials of the cache: --nodes, --storage, --seeds, --seed, --minutes (of trouble), --faults,
    --drift, --jobs, --trace (a text file) and --json count; 3 and 5 peers, with and without storage, are drawn.

    Every trial is drawn from its seed: the same seed is the same trial, to the byte. Checkers outside look at the work
    itself, in true time. Exit 0 without a violation, 1 with one.
    """
    if strategy == CACHE:
        others = {"members": members_change or None, "changes": changes or None, "engine": engine}
        _not_for_cache(config=config, profile=profile, **others)
        said = click.get_current_context().get_parameter_source("minutes") is not ParameterSource.DEFAULT
        if faults is not None and faults.strip() == "help":
            print_cache_classes()
            return
        cache_plan = plan_of(nodes, storage, minutes if said else None, faults, drift)
        chosen = _seeds(seed, seeds, first_seed, trace)
        code = simulate_cache(cache_plan, chosen, jobs or cores(), trace=trace, shrinks=shrinks, as_json=as_json)
        raise click.exceptions.Exit(code)
    if election is not None and not (config or call.config or call.file()):
        raise UsageError(f"--election {election[:80]} is about a file, and there is none; name it with --config")
    if storage is not None:
        raise UsageError(f"--storage {storage} is of --strategy cache; other strategies have no such choice")
    file = _file(call, config, strategy, nodes, profile)
    plan = _of_file(file, call.node, election) if file else _of_options(strategy, nodes, profile)
    if members_change and plan.strategy != "raft":
        raise UsageError(f"--members is of --strategy raft; {plan.strategy} keeps no register of members")
    if changes and (members_change or plan.strategy != "raft"):
        raise UsageError(
            f"--changes is of --strategy raft without --members; its nodes do not start as {plan.strategy}"
        )
    if faults is not None and faults.strip() == "help":
        print_classes(plan.strategy, changes)
        return
    plan = _with_engine(plan, engine)
    plan = replace(plan, minutes=minutes, drift=drift, members_change=members_change, changes=changes)
    plan = _with_faults(plan, faults)
    chosen = _seeds(seed, seeds, first_seed, trace)
    summary = _tried(plan, chosen, jobs or cores()) if trace is None else _traced(plan, chosen[0], trace)
    said_file = f"{file} --election {election}" if file and election else file or ""
    raise click.exceptions.Exit(_told(summary, said_file, trace or "", shrinks=shrinks, as_json=as_json))


# --- what is asked ----------------------------------------------------------------------------------------------------


def _file(call: Call, config: str | None, strategy: str | None, nodes: int | None, profile: str | None) -> str | None:
    """The file that counts. One that merely lies in the working folder counts if no option contradicts it."""
    said = config or call.config
    options = {"--strategy": strategy, "--nodes": nodes, "--profile": profile}
    given = [f"{name} {value}" for name, value in options.items() if value is not None]
    if said and given:
        raise UsageError(f"{given[0]} and --config {said} exclude each other: leave out one of them")
    return None if given else call.file(config)


def _not_for_cache(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name} is nothing that --strategy cache knows: leave it out")


def _of_options(strategy: str | None, nodes: int | None, profile: str | None) -> Plan:
    strategy, profile = strategy or "raft", profile or DEFAULT_PROFILE
    if strategy not in STRATEGIES and ":" not in strategy:
        raise UsageError(
            f"--strategy {strategy}: there is no such strategy; {near_of(strategy, STRATEGIES)}, or package.module:Name"
        )
    fitting = profiles_of(strategy)
    if profile not in fitting:
        raise UsageError(f"--profile {profile}: {strategy} has no such profile; {near_of(profile, fitting)}")
    promise_of(strategy)  # one that cannot be loaded is said now, not by every worker
    return Plan(strategy=strategy, nodes=nodes or NODES_DEFAULT, profile=profile)


def _of_file(file: str, node: str | None, named: str | None) -> Plan:
    """Strategy, nodes and times of the file."""
    from primacy.election.model import Kind, Member
    from primacy.settings import load, membership_rows, rank_timing_of, timing_of
    from primacy.settings.elections import one_of

    settings = one_of(load(file, node), named)
    election = settings.election
    promise = promise_of(election.strategy, os.path.dirname(file))
    rows = membership_rows(settings)
    members = tuple(Member(name, Kind(kind), priority) for name, kind, priority in rows)
    if len(members) > NODES_MOST:
        raise UsageError(f"{file}: {len(members)} nodes are too many to simulate; at most {NODES_MOST}")
    timing = timing_of(settings) if promise.at_most_one else rank_timing_of(settings)
    return Plan(election.strategy, len(members), election.profile, timing=timing, members=members)


def _with_engine(plan: Plan, engine: str | None) -> Plan:
    if engine is None:
        return plan
    if plan.strategy != "lease":
        raise UsageError(f"--engine {engine[:80]} is of --strategy lease; {plan.strategy} has no store")
    if engine not in BY_NAME:
        raise UsageError(f"--engine {engine[:80]}: there is no such store; {near_of(engine, tuple(BY_NAME))}")
    return replace(plan, engine=engine)


def _with_faults(plan: Plan, faults: str | None) -> Plan:
    """None: drawn for each seed. A list: exactly these, so that a seed can be run again with fewer."""
    if faults is None or faults.strip() == "all":
        return plan
    fitting = named_of(plan.strategy, plan.changes)
    wanted = () if faults.strip() == "none" else tuple(name.strip() for name in faults.split(","))
    for name in wanted:
        if name in RENAMED:
            raise UsageError(f"--faults {name}: this class is called {RENAMED[name]} now")
        if name not in fitting:
            wrong = f"does not befall {plan.strategy}" if name in CLASSES else "there is no such class"
            if name in WITH_CHANGES:
                wrong = "only with --changes"
            raise UsageError(f"--faults {name or repr(faults)}: {wrong}; {near_of(name, fitting)}")
    return replace(plan, faults=tuple(name for name in fitting if name in wanted), draw=False)


def _seeds(seed: int | None, seeds: int | None, first_seed: int | None, trace: str | None) -> range:
    if seed is None:
        if trace is not None:
            raise UsageError(f"--trace {trace} is of one trial: say which one with --seed K")
        first = first_seed or 0
        return range(first, first + (seeds or SEEDS_DEFAULT))
    for option, value in (("--seeds", seeds), ("--first-seed", first_seed)):
        if value is not None:
            raise UsageError(f"{option} {value} and --seed {seed} exclude each other: --seed is one trial")
    return range(seed, seed + 1)


# --- doing it ---------------------------------------------------------------------------------------------------------


def _tried(plan: Plan, seeds: range, jobs: int) -> Summary:
    if not sys.stderr.isatty():
        return run_batch(plan, seeds, jobs)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{plan.strategy}, {len(plan.members) or plan.nodes} nodes", total=len(seeds))

        def told(outcome: Outcome) -> None:
            progress.advance(task)
            for violation in outcome.violations[:1]:
                progress.console.print(f"seed {outcome.seed}: {violation.rule}, {violation.sentence}", markup=False)

        return run_batch(plan, seeds, jobs, told=told)


def _traced(plan: Plan, seed: int, trace: str) -> Summary:
    """One trial, drawn. The file is opened first: a wrong name is found before the trial is run."""
    from time import perf_counter

    from primacy.sim.trace import page, recorded

    began = perf_counter()
    try:
        with open(trace, "w", encoding="utf-8") as file:
            recording = recorded(plan, seed)
            file.write(page(recording))
    except OSError as error:
        raise InUse(f"--trace {trace}: cannot be written: {error.strerror or error}") from None
    summary = Summary(plan, seed)
    summary.add(recording.outcome)
    summary.wall_s = perf_counter() - began
    return summary


def _shrunk(summary: Summary) -> Shrunk | None:
    """The smallest trial that fails as the first failing one does."""
    first = summary.found[0]
    click.echo(f"seed {first.seed} breaks {first.rule}; looking for the smallest trial that does ...", err=True)
    outcome = run_or_raised(summary.plan, first.seed)
    return shrink(summary.plan, first.seed, first.rule, outcome.classes, engine=outcome.engine)


def _told(summary: Summary, file: str, trace: str, *, shrinks: bool, as_json: bool) -> int:
    """Prints what was found; returns the exit code."""
    shrunk = _shrunk(summary) if summary.found and shrinks and not summary.interrupted else None
    line = command(shrunk.plan, shrunk.seed, file) if shrunk else ""
    if as_json:
        print_json({**summary.as_dict(), "shrunk": _as_dict(shrunk, line) if shrunk else None})
    else:
        print_summary(summary, file, trace)
        if shrunk:
            print_shrunk(shrunk, line)
    if summary.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_VIOLATION if summary.violations else 0


def _as_dict(shrunk: Shrunk, line: str) -> dict[str, object]:
    return {
        "seed": shrunk.seed,
        "nodes": len(shrunk.plan.members) or shrunk.plan.nodes,
        "engine": shrunk.plan.engine,
        "faults": list(shrunk.plan.faults or ()),
        "minutes": shrunk.plan.minutes,
        "rule": shrunk.violation.rule,
        "sentence": shrunk.violation.sentence,
        "command": line,
    }
