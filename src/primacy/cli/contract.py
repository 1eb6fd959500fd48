"""`primacy contract`: what the times of a configuration promise, drawn as a timeline of a failover."""

from __future__ import annotations

import click

from primacy.cli.call import Call, SpanMs, config_option, json_option, print_json
from primacy.errors import SettingsError, UsageError
from primacy.settings import load, membership_rows, timing_of
from primacy.settings.accepted import STRATEGIES
from primacy.settings.checks import profile_or_default, profile_problem
from primacy.settings.contract import Contract, RankContract, as_dict, for_stop_after_loss, timeline
from primacy.settings.contract import contract as made_of
from primacy.settings.elections import one_of
from primacy.settings.schema import Settings
from primacy.settings.timing import DEFAULT_PROFILE, PROFILES, PROFILES_OF, RANK_PROFILES, RankTiming, Timing

DRAWN_COLUMNS = 72
STOP_WANTED_MS_MAX = 3_600_000


@click.command()
@click.option(
    "--profile", metavar="P", help=f"Times of a profile: {', '.join(dict.fromkeys((*PROFILES, *RANK_PROFILES)))}."
)
@config_option
@click.option("--election", metavar="NAME", help="Which election, of a file with several.")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="Which strategy; default: the file's, else raft.")
@click.option(
    "--stop-after-loss",
    metavar="SPAN",
    type=SpanMs(1, STOP_WANTED_MS_MAX),
    help="Which hold would give the work this long to stop after a loss.",
)
@json_option
@click.pass_obj
def contract(
    call: Call,
    *,
    profile: str | None,
    config: str | None,
    election: str | None,
    strategy: str | None,
    stop_after_loss: int | None,
    as_json: bool,
) -> None:
    """What your times promise: latest stop of the old holder, earliest start of the new one, and the margin between.

    Exit 2, with every problem, if the times are unsafe.
    """
    if profile and (config or call.config):
        raise UsageError("--profile and --config exclude each other; a file names its own profile")
    title, strategy, timing, stop_ms, nodes, levels = _subject(call, profile, config, election, strategy)
    made = made_of(timing, strategy, stop_ms, nodes, levels)
    wanted = _wanted(timing, strategy, stop_after_loss)
    if as_json:
        document = {"subject": title, **as_dict(made, timing)}
        if isinstance(made, Contract):
            document["containment"] = _containment(made)
        if wanted:
            document["for_stop_after_loss"] = {"stop_after_loss_ms": stop_after_loss, **wanted._asdict()}
        print_json(document)
        return
    click.echo(title)
    if isinstance(made, RankContract):
        _print_rank(made)
    else:
        assert isinstance(timing, Timing)
        _print_holding(timing, made)
    if wanted and stop_after_loss:
        _print_wanted(wanted, made_of(wanted, strategy, stop_ms, nodes, levels), stop_after_loss)


def _subject(
    call: Call, profile: str | None, config: str | None, named: str | None, strategy: str | None
) -> tuple[str, str, Timing | RankTiming, int, int, int]:
    """What is asked about: title, strategy, times, planned stop, number of voters, and of different priorities."""
    file = None if profile else call.file(config)
    if named is not None and not file:
        raise UsageError(f"--election {named[:80]} is about a file, and there is none; name it with --config")
    if file:
        whole = load(file, call.node)
        settings = one_of(whole, named)
        if strategy and strategy != settings.election.strategy:
            raise UsageError(
                f"--strategy {strategy} is not what {file} says, {settings.election.strategy}; leave one of them out"
            )
        election = settings.election
        if election.strategy not in STRATEGIES:
            raise UsageError(
                f"{file}: election.strategy = {election.strategy} is your own, and so is what its times promise; "
                "primacy simulate looks whether it keeps it"
            )
        which = f", election {election.name}" if whole.elections else ""
        title = f"{file}{which}: {election.strategy}, profile {election.profile}"
        voters = [priority for _, kind, priority in membership_rows(settings) if kind != "observer"]
        counts = max(1, len(voters)), max(1, len(set(voters)))
        return title, election.strategy, timing_of(settings), settings.run.stop_ms, *counts
    chosen = profile or DEFAULT_PROFILE
    known = tuple(dict.fromkeys((*PROFILES, *RANK_PROFILES)))
    if chosen not in known:
        raise UsageError(f"--profile {chosen}: there is no such profile; there are {', '.join(known)}")
    strategy = strategy or next((s for s in STRATEGIES if chosen in PROFILES_OF[s]), "raft")
    wrong = profile_problem(strategy, chosen, "--profile")
    if wrong:
        raise SettingsError([wrong])
    timing = profile_or_default(strategy, chosen)
    return f"{strategy}, profile {chosen}", strategy, timing, Settings().run.stop_ms, 3, 1


def _wanted(timing: Timing | RankTiming, strategy: str, stop_ms: int | None) -> Timing | None:
    if stop_ms is None:
        return None
    if isinstance(timing, RankTiming):
        raise UsageError(f"--stop-after-loss asks for a hold, and {strategy} holds nothing; use raft or lease")
    return for_stop_after_loss(timing, stop_ms)


def _print_holding(timing: Timing, made: Contract) -> None:
    moments = timeline(timing, made)
    last_ms = moments[-1].at_ms
    click.echo("")
    for who, name in (("old", "old holder"), ("new", "new holder")):
        lane = ["·"] * (DRAWN_COLUMNS + 1)
        end = made.latest_stop_ms if who == "old" else last_ms
        begin = 0.0 if who == "old" else made.earliest_start_ms
        for column in range(_column(begin, last_ms), _column(end, last_ms) + 1):
            lane[column] = "━"
        for moment in moments:
            if moment.who == who:
                lane[_column(moment.at_ms, last_ms)] = moment.mark
        click.echo(f"  {name}  {''.join(lane)}")
    click.echo("\n  milliseconds after the last proved renewal left:\n")
    for moment in moments:
        click.echo(f"  {moment.at_ms:>9,.0f}  {moment.mark}  {moment.text}")
    click.echo("")
    rows = (
        ("margin between latest stop and earliest start", f"{made.margin_ms:,.1f} ms"),
        ("clock error of all nodes that it bears", f"{made.tolerated_clock_error_ppm / 10_000:.2f} %"),
        ("stall of the holder that costs nothing", f"{made.tolerated_stall_ms:,} ms"),
        ("lost heartbeats in a row that cost nothing", str(made.lost_heartbeats)),
        ("reserve for the kernel's kill", f"{made.kill_reserve_ms:,} ms"),
        ("failover after sudden silence", f"{made.failover_expected_ms:,} ms, at worst {made.failover_worst_ms:,} ms"),
        ("failover after a clean release", f"{made.release_expected_ms:,} ms, at worst {made.release_worst_ms:,} ms"),
        ("time to stop when planned (run.stop_ms)", f"{made.stop_planned_ms:,} ms, leadership is kept meanwhile"),
        ("time to stop after a loss (TERM to KILL)", f"{made.stop_after_loss_ms:,} ms"),
    )
    for name, value in rows:
        click.echo(f"  {name:<46} {value}")
    click.echo("\n" + click.wrap_text(_containment(made), DRAWN_COLUMNS + 14, "  ", "  "))
    if made.stop_planned_ms > made.stop_after_loss_ms:
        click.echo(
            f"\n  After a loss the work has {made.stop_after_loss_ms:,} ms, not {made.stop_planned_ms:,} ms. "
            f"What it would need: --stop-after-loss {made.stop_planned_ms}"
        )


def _containment(made: Contract) -> str:
    """What a guard could hold here and now; elsewhere, what would decide it."""
    from primacy.supervise.containment import containment_here

    found = containment_here()
    return f"Started by this user on this machine: {found}." if found else f"Containment: {made.containment}."


def _print_rank(made: RankContract) -> None:
    rows = (
        ("looks without an answer until a leader is gone", str(made.looks_missed)),
        ("silence is noticed after", f"{made.detection_expected_ms:,} ms, at worst {made.detection_worst_ms:,} ms"),
        ("the election takes", f"{made.election_expected_ms:,} ms, at worst {made.election_worst_ms:,} ms"),
        ("failover", f"{made.failover_expected_ms:,} ms, at worst {made.failover_worst_ms:,} ms"),
        ("time to stop when planned (run.stop_ms)", f"{made.stop_planned_ms:,} ms"),
    )
    click.echo("")
    for name, value in rows:
        click.echo(f"  {name:<46} {value}")
    click.echo(f"\n  {made.warning}")


def _print_wanted(wanted: Timing, made: Contract | RankContract, stop_ms: int) -> None:
    fields = ["kill_at_ms", "deadman_at_ms", "hold_ms"] + (["promise_ms"] if made.strategy != "lease" else [])
    values = ", ".join(f"{name}: {getattr(wanted, name)}" for name in fields)
    click.echo(f"\n  For {stop_ms:,} ms to stop after a loss:\n\n    election:\n      timing: {{{values}}}\n")
    click.echo(f"  Failover after sudden silence then takes {made.failover_expected_ms:,} ms.")


def _column(at_ms: float, last_ms: float) -> int:
    return round(DRAWN_COLUMNS * at_ms / last_ms) if last_ms else 0
