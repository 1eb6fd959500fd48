"""`primacy audit`: which changes were asked for, who asked, and what came of it; also when no node runs any more."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

from primacy.cli.call import Call, json_option
from primacy.cli.local import NodeFolder, events_of, local_options, place
from primacy.control.client import ask, find
from primacy.errors import NotReached

SHOWN = 20
LAST_MAX = 1_000


@click.command()
@local_options
@click.option("--last", default=SHOWN, show_default=True, type=click.IntRange(1, LAST_MAX), help="How many requests.")
@json_option
@click.pass_obj
def audit(call: Call, /, *, last: int, as_json: bool, **where: str | None) -> None:
    """The audit trail of this node: each change that was asked for, oldest first, with who asked and what came of it.

    Each node has its own: a request that was passed on to another node stands in both, and the first names who asked.
    Without a running node, what it kept in its state folder is shown.
    """
    found = events_of(call, place(call, **where))
    requests, running = read_requests(found, call.at, last)
    if as_json:
        click.echo(json.dumps({"api": 1, "requests": requests}, indent=2, ensure_ascii=False))
        return
    if not running:
        click.echo("no node runs here; this is what it kept:", err=True)
    if not requests:
        click.echo("nothing was asked for yet")
    for request in requests:
        click.echo(line_of(request))


def read_requests(where: NodeFolder, at: str | None, last: int) -> tuple[list[dict[str, Any]], bool]:
    """The newest, and whether a running node told them."""
    found = find(where.folder, at)
    if found is not None:
        try:
            return ask(found, f"/v1/audit?last={last}")["requests"], True
        except NotReached:
            if at is not None:
                raise
    from primacy.control.audit import kept, row_of

    entries = kept(where.folder)
    if found is None and not entries and not where.has_events():
        raise where.nobody()
    return [row_of(entry) for entry in entries[-last:]], False


def line_of(request: dict[str, Any]) -> str:
    at = datetime.fromtimestamp(request["at_unix_ms"] / 1_000).astimezone()
    why = f": {request['why']}" if request["why"] else ""
    origin = f" ({request['origin']})" if request["origin"] else ""
    when, who = at.strftime("%Y-%m-%d %H:%M:%S %Z"), f"{request['who']}{origin}"
    return f"{when}  {request['asked']}  asked for by {who}  {request['outcome']}{why}"
