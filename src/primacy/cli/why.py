"""`primacy why`: what changed, why, and how long each phase took; also when no node runs any more.

`--since`, `--from` and `--to` choose a range of the last day, which the node keeps in its state folder. `--export`
writes all of it: as JSON, or, into FILE.html, as the timeline that the dashboard draws (docs/timeline.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import click

from primacy.cli.call import Call, SpanMs, json_option
from primacy.cli.local import NodeFolder, events_of, local_options, place
from primacy.control.changes import TOKENS_FROM, Change, MembersChange, changes, members_changes
from primacy.control.client import FoundNode, ask, find
from primacy.control.when import DATE_MAX_MS
from primacy.errors import CannotHere, Later, NotReached, Refused, UsageError

if TYPE_CHECKING:
    from primacy.timeline.history import Past
    from primacy.timeline.schema import Timeline

SHOWN = 20
LAST_MAX = 1_000
"""As many as a node remembers."""
STRATEGY_NOT_KNOWN = (
    "Which strategy it ran under is not known: two at work at once are shown, and not called a violation. "
    "Say --config FILE as it was started."
)
AROUND_MS = 5_000
"""A link to a moment shows this much before and after it."""


SINCE_MAX_MS = 7 * 24 * 3_600_000
"""More than any node keeps."""
FOR_EVER_MS = 10**15 - 1


class Range(NamedTuple):
    """Both ends belong to it."""

    from_ms: int = 0
    to_ms: int = FOR_EVER_MS


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """The type of an option for a moment, in the time of this machine unless it says another.

    When clocks are set back, an hour comes twice: a range that begins or ends in it has both.
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002
        text, option = str(value).strip(), param.opts[0] if param is not None else "the time"
        for dated in (text, f"{datetime.now().astimezone():%Y-%m-%d} {text}"):
            try:
                at = datetime.fromisoformat(dated)
                twice = [round(at.replace(fold=fold).timestamp() * 1_000) for fold in (0, 1)]
            except (ValueError, OverflowError, OSError):
                continue
            found_ms = max(twice) if option == "--to" else min(twice)
            if 0 <= found_ms < DATE_MAX_MS:
                return found_ms
        raise UsageError(f"{option} {text[:40]!r}: a moment is 2026-11-17T22:05, 22:05 or 22:05:31.250 (of today)")


@click.command()
@local_options
@click.option(
    "--last",
    type=click.IntRange(1, LAST_MAX),
    help=f"How many events. Default: {SHOWN}, or all of the range, {LAST_MAX} at most.",
)
@click.option("--since", metavar="SPAN", type=SpanMs(1, SINCE_MAX_MS), help="The range: the last 90s, 30m or 3h.")
@click.option("--from", "begin", metavar="TIME", type=Moment(), help="Where the range begins: 22:05, 2026-11-17T22:05.")
@click.option("--to", "end", metavar="TIME", type=Moment(), help="Where the range ends.")
@click.option(
    "--export",
    metavar="FILE",
    help="Write all that is known, or all of the range, into a new file: FILE.html is a timeline that opens offline, "
    "any other JSON.",
)
@json_option
@click.pass_obj
def why(
    call: Call,
    /,
    *,
    last: int | None,
    since: int | None,
    begin: int | None,
    end: int | None,
    export: str | None,
    as_json: bool,
    **local: str | None,
) -> None:
    """What changed and why, oldest first: first each change of leader with its phases and of the members, then the last
    events.

    An event that follows another of its term says how long it took. Without a running node, the events that it kept
    in its state folder are shown. A node keeps the last day, 16 MB at most: --since, --from and --to choose a range.
    """
    span = range_of(since, begin, end)
    where = events_of(call, place(call, **local))
    if span is None and export is None:
        events, running = read_events(where, call.at)
        past, left = None, 0
    else:
        said, running = read_history(where, call.at, span or Range())
        past = _past(said)
        events, left = rows_of(said), past.left
    found, members = changes(events), members_changes(events)
    if export is not None and past is not None:
        drawn = incident_of(past, cluster_of(where, call.at) if running else {}, where.at_most_one)
        _export(export, {**document(events, found, members), "timeline": drawn.document()}, drawn)
        click.echo(f"{len(events)} events are in {export}{_left_words(left, events)}")
        return
    shown = events[-(last or (SHOWN if span is None else LAST_MAX)) :]
    if as_json:
        click.echo(json.dumps(document(shown, found, members), indent=2, ensure_ascii=False))
        return
    if not running:
        silent = find(where.folder, call.at) is not None
        who = "the node here does not answer" if silent else "no node runs here"
        click.echo(f"{who}; this is what it kept:", err=True)
    if left:
        click.echo(f"{len(events)} events{_left_words(left, events)}", err=True)
    if not shown:
        click.echo("nothing has happened yet" if span is None else _nothing(past))
        return
    first_ms = min(event["at_unix_ms"] for event in shown)
    dated = [(one.at_unix_ms, change_line(one)) for one in found]
    dated += [(one.at_unix_ms, members_line(one)) for one in members]
    told = [line for at_ms, line in sorted(dated) if at_ms >= first_ms]
    for line in (*told, *([""] if told else []), *lines(shown)):
        click.echo(line)
    at_ms = [one.at_unix_ms for one in found if one.at_unix_ms >= first_ms]
    click.echo(f"\ntimeline of it, on the page of primacy dashboard: {timeline_link(at_ms[-1:], shown)}")


def range_of(since_ms: int | None, begin_ms: int | None, end_ms: int | None) -> Range | None:
    """None: none was asked for. Raises `UsageError`."""
    if since_ms is None and begin_ms is None and end_ms is None:
        return None
    if since_ms is not None and begin_ms is not None:
        raise UsageError("--since and --from both say where the range begins; say one of them")
    if since_ms is not None:
        begin_ms = (end_ms if end_ms is not None else time.time_ns() // 1_000_000) - since_ms
    found = Range(max(0, begin_ms or 0), FOR_EVER_MS if end_ms is None else end_ms)
    if found.from_ms > found.to_ms:
        raise UsageError(f"--from {moment(found.from_ms)} is after --to {moment(found.to_ms)}")
    return found


def _left_words(left: int, events: list[dict[str, Any]]) -> str:
    if not left:
        return ""
    at = datetime.fromtimestamp(events[0]["at_unix_ms"] / 1_000).astimezone() if events else None
    to = f"; go on with --to {at.isoformat()}" if at is not None else ""
    return f", the newest of the range; {left:,} older ones are not{to}"


def _nothing(past: Past | None) -> str:
    if past is None or not past.kept_from_ms:
        return "nothing happened in this range"
    what = "nothing happened in this range"
    if past.to_ms < past.kept_from_ms:
        what = "nothing is known of this range"
    elif time.time_ns() // 1_000_000 < past.from_ms < DATE_MAX_MS:
        what = f"this range begins later than now, at {moment(past.from_ms)}: a time without a day is of today"
    return f"{what}; it is kept since {moment(past.kept_from_ms)}"


def read_events(where: NodeFolder, at: str | None) -> tuple[list[dict[str, Any]], bool]:
    """The last ones, and whether a running node told them."""
    found = find(where.folder, at)
    if found is not None:
        try:
            return ask(found, f"/v1/events?last={LAST_MAX}"), True
        except NotReached:
            if at is not None or not where.has_events():
                raise
    elif not where.has_events():
        raise where.nobody()
    from primacy.control.eventlog import kept

    return [entry._asdict() for entry in kept(where.events_file)], False


def read_history(where: NodeFolder, at: str | None, span: Range) -> tuple[dict[str, Any], bool]:
    """The document of a range, and whether a running node told it."""
    found = find(where.folder, at)
    if found is not None:
        try:
            return _asked(found, span), True
        except NotReached:
            if at is not None or not where.has_events():
                raise
    elif not where.has_events():
        raise where.nobody()
    from primacy.control import eventlog, history

    return history.kept(where.folder, *span, beside=eventlog.kept(where.events_file)), False


def _asked(found: FoundNode, span: Range) -> dict[str, Any]:
    """Of a running node; one of an earlier version has its last events only. Raises `Later` if too many ask."""
    try:
        said = ask(found, f"/v1/history?from={span.from_ms}&to={span.to_ms}")
        assert isinstance(said, dict), "the document of /v1/history"
        return said
    except Later:
        raise
    except Refused:
        keys = ("at_unix_ms", "code", "node", "term", "number", "value", "text")
        rows = [[event.get(key, 0) for key in keys] for event in ask(found, f"/v1/events?last={LAST_MAX}")]
        return {"events": [row for row in rows if span.from_ms <= row[0] <= span.to_ms]}


def _past(said: dict[str, Any]) -> Past:
    from primacy.timeline.history import past_of

    found = past_of(said)
    if found is None:
        raise NotReached("what answers is no node of primacy")
    return found


def rows_of(said: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a document of `/v1/history`, as those of `/v1/events`."""
    return [
        {"number": number, "at_unix_ms": at_ms, "node": node, "term": term, "code": code, "text": text, "value": value}
        for at_ms, code, node, term, number, value, text in said["events"]
    ]


def document(events: list[dict[str, Any]], found: list[Change], members: list[MembersChange]) -> dict[str, Any]:
    said = {"changes": [change._asdict() for change in found], "members": [one._asdict() for one in members]}
    return {"api": 1, **said, "events": events}


def timeline_link(changed_ms: list[int], events: list[dict[str, Any]]) -> str:
    """To the last change of leader, else to the last event."""
    at_ms = changed_ms[-1] if changed_ms else max(event["at_unix_ms"] for event in events)
    return f"/dashboard#/timeline?{urlencode({'from': at_ms - AROUND_MS, 'to': at_ms + AROUND_MS, 'at': at_ms})}"


def cluster_of(where: NodeFolder, at: str | None) -> dict[str, Any]:
    """How the cluster stands, for the timeline; empty if nobody says it any more."""
    try:
        found = find(where.folder, at)
        said = ask(found, "/v1/cluster") if found is not None else {}
    except (NotReached, Refused):
        return {}
    return said if isinstance(said, dict) else {}


def timeline(events: list[dict[str, Any]], cluster: dict[str, Any], promised: bool | None = None) -> Timeline:
    """What these events tell, and nothing else."""
    from primacy.timeline.history import Past
    from primacy.timeline.schema import Told

    return incident_of(
        Past(told=tuple(Told(*(event[name] for name in Told._fields)) for event in events)), cluster, promised
    )


def incident_of(past: Past, cluster: dict[str, Any], promised: bool | None = None) -> Timeline:
    """`cluster` is a node's `/v1/cluster`, and empty if none runs. `promised`: whether there is at most one, by the
    file; None if that is not known. It is claimed only of what is known to promise it."""
    from primacy.timeline.history import incident

    now_ms = time.time_ns() // 1_000_000 if cluster else 0
    notes = [STRATEGY_NOT_KNOWN] if not cluster and promised is None else []
    return incident([past], cluster, now_ms, promised=promised, notes=notes)


def _export(path: str, said: dict[str, Any], drawn: Timeline) -> None:
    """A new file: nothing is written over, and none is left that is not whole."""
    if path.lower().endswith((".html", ".htm")):
        from primacy.timeline.page import page

        text = page(drawn)
    else:
        text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise UsageError(f"--export {path}: it is there already; name another file") from None
    except OSError as error:
        raise CannotHere(f"--export {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except BaseException as fault:
        with contextlib.suppress(OSError):
            os.unlink(path)
        if isinstance(fault, OSError):
            raise CannotHere(f"--export {path}: {fault.strerror}") from None
        raise


def change_line(change: Change) -> str:
    """One change of leader: when, who, why, and the phases."""
    phases = (("noticed", change.noticed_ms), ("elected", change.elected_ms), ("started", change.started_ms))
    took = ", ".join(f"{name} {took_text(ms)}" for name, ms in phases if ms is not None)
    stood = f"; the command stood still for {change.gap_ms:,} ms" if change.gap_ms is not None else ""
    what = f"{'term' if change.term < TOKENS_FROM else 'token'} {change.term}"
    said = f"{moment(change.at_unix_ms)}  {change.leader} leads {what}, because: {change.reason}"
    return f"{said} ({took}{stood})" if took else said


def members_line(change: MembersChange) -> str:
    """One change of the members: when, what came of it, who asked, and how long it took."""
    took = f" {took_text(change.took_ms)}" if change.took_ms is not None else ""
    asked = f" ({change.asked};{took})" if change.asked else ""
    return f"{moment(change.at_unix_ms)}  {change.text}{asked}"


def lines(events: list[dict[str, Any]]) -> list[str]:
    """One per event: when, how long after the one before in its term, and its sentence."""
    said = []
    before_ms: dict[int, int] = {}
    several = len({event["node"] for event in events}) > 1
    if several:
        events = sorted(events, key=lambda event: (event["at_unix_ms"], event["number"]))
    for event in events:
        at_ms, term = event["at_unix_ms"], event["term"]
        took = took_text(at_ms - before_ms[term]) if term in before_ms else ""
        before_ms[term] = at_ms
        named = event["text"].startswith(f"{event['node']} ")
        text = event["text"] if named or not several else f"{event['node']}: {event['text']}"
        said.append(f"{moment(at_ms)}  {took:>11}  {text}")
    return said


def moment(unix_ms: int) -> str:
    at = datetime.fromtimestamp(unix_ms / 1_000).astimezone()
    return f"{at:%Y-%m-%d %H:%M:%S}.{unix_ms % 1_000:03}"


def took_text(ms: int) -> str:
    """A wall clock may be set back; that is no duration."""
    if ms < 0:
        return "?"
    if ms < 10_000:
        return f"+{ms:,} ms"
    return f"+{ms // 1_000:,} s"
