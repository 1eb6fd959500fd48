"""`primacy why`: what changed, why, and how long each phase took; also when no node runs any more."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import Any

import click

from primacy.cli.call import Call, json_option
from primacy.cli.local import NodeFolder, events_of, local_options, place
from primacy.control.changes import TOKENS_FROM, Change, changes
from primacy.control.client import ask, find
from primacy.errors import CannotHere, NotReached, UsageError

SHOWN = 20
LAST_MAX = 1_000
"""As many as a node remembers."""


@click.command()
@local_options
@click.option("--last", default=SHOWN, show_default=True, type=click.IntRange(1, LAST_MAX), help="How many events.")
@click.option("--export", metavar="FILE", help="Write all that is known into a new file, as JSON, to hand it on.")
@json_option
@click.pass_obj
def why(call: Call, /, *, last: int, export: str | None, as_json: bool, **local: str | None) -> None:
    """What changed and why, oldest first: first each change of leader with its phases, then the last events.

    An event that follows another of its term says how long it took. Without a running node, the events that it kept
    in its state folder are shown.
    """
    where = events_of(call, place(call, **local))
    events, running = read_events(where, call.at)
    found = changes(events)
    if export is not None:
        _export(export, document(events, found))
        click.echo(f"{len(events)} events are in {export}")
        return
    if as_json:
        click.echo(json.dumps(document(events[-last:], found), indent=2, ensure_ascii=False))
        return
    if not running:
        click.echo("no node runs here; this is what it kept:", err=True)
    if not events:
        click.echo("nothing has happened yet")
        return
    first_ms = min(event["at_unix_ms"] for event in events[-last:])
    told = [change_line(change) for change in found if change.at_unix_ms >= first_ms]
    for line in (*told, *([""] if told else []), *lines(events[-last:])):
        click.echo(line)


def read_events(where: NodeFolder, at: str | None) -> tuple[list[dict[str, Any]], bool]:
    """All that are known, and whether a running node told them."""
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


def document(events: list[dict[str, Any]], found: list[Change]) -> dict[str, Any]:
    return {"api": 1, "changes": [change._asdict() for change in found], "events": events}


def _export(path: str, said: dict[str, Any]) -> None:
    """A new file: nothing is written over."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise UsageError(f"--export {path}: it is there already; name another file") from None
    except OSError as error:
        raise CannotHere(f"--export {path}: {error.strerror}") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(said, file, indent=2, ensure_ascii=False)
        file.write("\n")


def change_line(change: Change) -> str:
    """One change of leader: when, who, why, and the phases."""
    phases = (("noticed", change.noticed_ms), ("elected", change.elected_ms), ("started", change.started_ms))
    took = ", ".join(f"{name} {took_text(ms)}" for name, ms in phases if ms is not None)
    stood = f"; the command stood still for {change.gap_ms:,} ms" if change.gap_ms is not None else ""
    what = f"{'term' if change.term < TOKENS_FROM else 'token'} {change.term}"
    said = f"{moment(change.at_unix_ms)}  {change.leader} leads {what}, because: {change.reason}"
    return f"{said} ({took}{stood})" if took else said


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
