"""`primacy why`: what changed here, why, and how long each step took."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from primacy.cli.call import Call, json_option
from primacy.cli.local import local, local_options

SHOWN = 20
LAST_MAX = 1_000
"""As many as a node remembers."""


@click.command()
@local_options
@click.option("--last", default=SHOWN, show_default=True, type=click.IntRange(1, LAST_MAX), help="How many events.")
@json_option
@click.pass_obj
def why(
    call: Call, *, config: str | None, election: str | None, state_dir: str | None, last: int, as_json: bool
) -> None:
    """What changed on this node and why, oldest first.

    Between two events of the same term stands how long the second took.
    """
    events = local(call, config, election, state_dir).get(f"/v1/events?last={last}")
    if as_json or call.json:
        import json

        click.echo(json.dumps({"api": 1, "events": events}, indent=2, ensure_ascii=False))
        return
    if not events:
        click.echo("nothing has happened yet")
    for line in lines(events):
        click.echo(line)


def lines(events: list[dict[str, Any]]) -> list[str]:
    """One per event: when, how long after the one before in its term, and its sentence."""
    said = []
    before_ms: dict[int, int] = {}
    for event in events:
        at_ms, term = event["at_unix_ms"], event["term"]
        at = datetime.fromtimestamp(at_ms / 1_000).astimezone()
        took = took_text(at_ms - before_ms[term]) if term in before_ms else ""
        before_ms[term] = at_ms
        said.append(f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1_000:03}  {took:>11}  {event['text']}")
    return said


def took_text(ms: int) -> str:
    """A wall clock may be set back; that is no duration."""
    if ms < 0:
        return "?"
    if ms < 10_000:
        return f"+{ms:,} ms"
    return f"+{ms // 1_000:,} s"
