"""`primacy drill`: real faults against a running cluster, and whether it kept what its times promise."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from primacy.cli.call import EXIT_INTERRUPTED, Call, json_option, type_name, yes_option
from primacy.cli.local import folder_options
from primacy.errors import CannotHere, NotReached, PrimacyError, UsageError

if TYPE_CHECKING:
    from primacy.drill.catalogue import Scenario
    from primacy.drill.player import Player
    from primacy.drill.target import Subject, Target
    from primacy.settings.schema import Settings

EXIT_NOT_KEPT = 1
MINUTES_MAX = 24 * 60


def _listing() -> str:
    from primacy.drill.catalogue import CLUSTER, LAB, SCENARIOS

    def lines(on: str) -> list[str]:
        there = [each for each in SCENARIOS if each.on == on]
        width = max(len(each.name) for each in SCENARIOS)
        said = []
        for each in there:
            only = f" ({each.strategies[0]})" if len(each.strategies) == 1 else ""
            beyond = " [beyond the quorum]" if each.beyond_quorum else ""
            said.append(f"  {each.name:<{width}}  {each.title}{only}{beyond}")
        return said

    of_lab = "\n".join(["\b", "Scenarios on a lab:", *lines(LAB)])
    return "\n\n".join([of_lab, "\n".join(["\b", "On a cluster whose file says control.drills:", *lines(CLUSTER)])])


class Listed(click.Command):
    """Its help ends with the scenarios, which are loaded for that only."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = _listing()
        super().format_epilog(ctx, formatter)


@click.command(cls=Listed)
@folder_options
@click.option("--lab", "lab_folder", metavar="DIR", is_flag=False, flag_value="", help="Drill a lab: its folder.")
@click.option("--scenario", "names", metavar="NAME", multiple=True, help="Which fault; may be said again. See below.")
@click.option("--all", "every", is_flag=True, help="All that are offered; the default.")
@click.option(
    "--minutes",
    metavar="M",
    type=click.FloatRange(0, MINUTES_MAX, min_open=True),
    help="Again and again, for so long; default: each once.",
)
@click.option("--report", metavar="FILE", help="A new file: FILE.html is a page that opens offline, any other JSON.")
@click.option("--beyond-quorum", is_flag=True, help="Also faults with which nobody can run the command for a while.")
@yes_option
@json_option
@click.pass_obj
def drill(
    call: Call,
    /,
    *,
    lab_folder: str | None,
    names: tuple[str, ...],
    every: bool,
    minutes: float | None,
    report: str | None,
    beyond_quorum: bool,
    yes: bool,
    as_json: bool,
    **where: str | None,
) -> int:
    """Play real faults against a running cluster, watch it, and compare with what `primacy contract` promises.

    The file of a lab that is up, or --lab, names a lab. Any other cluster must allow it (`control.drills` in its file),
    and you type its name first. Each fault ends by itself, also if this process is killed. Exit code 0 if everything
    promised was kept, else 1.
    """
    if every and names:
        raise UsageError("--all and --scenario exclude each other")
    from primacy.drill.catalogue import chosen, known
    from primacy.drill.player import Player, reached

    known(names)
    target = _lab(call, lab_folder, where.get("config")) or _cluster(call, where)
    plan = chosen(names, target.subject.on, target.subject.strategy, beyond_quorum=beyond_quorum)

    def say(sentence: str) -> None:
        click.echo(sentence, err=as_json)

    player = Player(target, say)
    reached(target, player.record)
    _confirm(target.subject, plan, yes)
    with _new_file(report) as write:
        began_ms = _play(player, plan, minutes or 0.0)
        document = _document(player, plan, began_ms)
        write(document)
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        say("")
        say(document["verdict"])
        if report:
            say(f"the report is in {report}")
    if player.interrupted:
        return EXIT_INTERRUPTED
    return 0 if document["kept"] else EXIT_NOT_KEPT


def _play(player: Player, plan: list[Scenario], minutes: float) -> int:
    """Ctrl-C and the other signals end the running fault; a second one ends this at once. Returns when it began."""
    from primacy.drill.player import now_ms

    def hear(number: int, _: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        player.interrupted = f"stopped by {signal.Signals(number).name}"
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    began_ms = now_ms()
    for number in before:
        signal.signal(number, hear)
    try:
        player.play(plan, minutes)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return began_ms


def _document(player: Player, plan: list[Scenario], began_ms: int) -> dict[str, Any]:
    from primacy.drill.player import now_ms
    from primacy.drill.report import document

    span = (began_ms, now_ms())
    return document(player.target.subject, plan, player.attempts, player.timeline(), span, player.interrupted)


@contextlib.contextmanager
def _new_file(path: str | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Made before anything is broken, so that a report is never lost for want of a place; removed if it stays empty."""
    if path is None:
        yield lambda _: None
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise UsageError(f"--report {path}: it is there already; name another file") from None
    except OSError as error:
        raise CannotHere(f"--report {path}: {error.strerror}") from None
    file = os.fdopen(handle, "w", encoding="utf-8")

    def write(document: dict[str, Any]) -> None:
        if path.lower().endswith((".html", ".htm")):
            from primacy.drill.page import page

            file.write(page(document))
        else:
            json.dump(document, file, indent=2, ensure_ascii=False)
            file.write("\n")

    try:
        with file:
            yield write
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _confirm(subject: Subject, plan: list[Scenario], yes: bool) -> None:
    """A lab is there to be broken. Of a real cluster the name is typed."""
    from primacy.drill.catalogue import LAB

    if subject.on == LAB:
        return
    faults = ", ".join(each.name for each in plan)
    risk = (
        f"A drill of cluster {subject.name} ({subject.nodes} nodes, {subject.where}): {faults}. Its command is stopped "
        "and started on another node, each time."
    )
    type_name(risk, yes, "cluster", subject.cluster)


# --- what is drilled --------------------------------------------------------------------------------------------------


def _lab(call: Call, folder: str | None, config: str | None) -> Target | None:
    """The lab that is meant; None if a cluster is."""
    from primacy.control.client import find
    from primacy.drill.catalogue import LAB
    from primacy.drill.lab_target import LabTarget
    from primacy.lab.place import FILE, default_folder
    from primacy.settings import load

    file = call.file(config)
    if folder is not None:
        where = Path(folder).absolute() if folder else default_folder()
    elif file is None and find(str(default_folder())) is not None:
        where = default_folder()
    elif file is not None and Path(file).name == FILE and _has_lab(Path(file).absolute().parent):
        where = Path(file).absolute().parent
    else:
        return None
    found = find(str(where))
    if found is None:
        raise NotReached(f"no lab is up in {where}; start one: primacy lab up")
    return LabTarget(found, _subject(load(str(where / FILE), "a"), LAB, str(where)))


def _has_lab(folder: Path) -> bool:
    """A lab is up there: who listens has the lock of a lab's folder, and says so."""
    from primacy.control.client import ask, find

    found = find(str(folder))
    try:
        return found is not None and "cuts" in ask(found, "/v1/lab")
    except PrimacyError:
        return False


def _cluster(call: Call, where: dict[str, str | None]) -> Target:
    """A cluster that allows it, through its node of this machine."""
    from primacy.cli.local import local
    from primacy.control.client import ask, find
    from primacy.drill.catalogue import CLUSTER
    from primacy.drill.cluster_target import ClusterTarget
    from primacy.settings import load
    from primacy.settings.elections import one_of

    file = call.file(where.get("config"))
    if file is None:
        raise UsageError("which cluster? Say --config with its file, or --lab; primacy lab up starts a lab")
    settings = one_of(load(file, call.node), where.get("election"))
    here = local(call, **where)
    running = ask(here.found, "/v1/config")
    allowed = settings.control.drills and running["settings"].get("control", {}).get("drills") is True
    if not allowed:
        says = "the file" if not settings.control.drills else "the running agent, which was started without it,"
        raise UsageError(
            f"{file}: a drill stops and moves the command, and {says} does not allow it; control.drills: true does"
        )
    subject = _subject(settings, CLUSTER, file)
    again = (lambda: here.found) if call.at is not None else (lambda: find(here.folder))
    return ClusterTarget(again, subject, one_machine=_on_one_machine(settings), reader=str(running["node"]))


def _subject(settings: Settings, on: str, where: str) -> Subject:
    """Raises `UsageError` for a strategy whose times promise nothing."""
    from primacy.drill.target import Subject
    from primacy.settings import membership_rows, timing_of
    from primacy.settings.contract import Contract, contract
    from primacy.settings.timing import Timing

    election = settings.election
    if election.strategy not in ("raft", "lease"):
        raise UsageError(f"{where}: {election.strategy} does not promise at most one; a drill is for raft and lease")
    rows = [priority for _, kind, priority in membership_rows(settings) if kind != "observer"]
    timing = timing_of(settings)
    made = contract(timing, election.strategy, settings.run.stop_ms, max(1, len(rows)), max(1, len(set(rows))))
    assert isinstance(made, Contract)
    assert isinstance(timing, Timing)
    name = f"{settings.cluster.name} · {election.name}"
    return Subject(name, election.strategy, election.profile, on, len(rows), made, timing, where, settings.cluster.name)


def _on_one_machine(settings: Settings) -> bool:
    """All addresses of the file are of this machine's loopback: all nodes read one clock."""
    hosts = [node.addr.rpartition(":")[0].strip("[]") for node in settings.cluster.manager.nodes.values()]
    return bool(hosts) and all(_is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
