"""A process of its own that answers calls of the command line, one after the other, without a start for each.

Reads one JSON document from its standard input: {"calls": [[argument, ...], ...]}; without calls, the helps of all
commands are meant. Writes one JSON document: [{"args", "code", "out", "err"}, ...].
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import click

from primacy.cli.main import cli, run

LIMIT_S = 20
TOO_LONG = 124


def paths(command: click.Command, ctx: click.Context, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and every group, the program itself included."""
    yield path
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None, name
            yield from paths(found, click.Context(found, ctx, name), (*path, name))


def too_long(number: int, frame: object) -> None:
    os._exit(TOO_LONG)


def called(args: list[str]) -> dict[str, Any]:
    """One that does not end ends this process, and is named on its standard error."""
    out, err = io.StringIO(), io.StringIO()
    print(*args, file=sys.stderr, flush=True)
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = run(args)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return {"args": args, "code": code, "out": out.getvalue(), "err": err.getvalue()}


def main() -> None:
    wanted = json.load(sys.stdin)
    calls = wanted.get("calls") or [[*path, "--help"] for path in paths(cli, click.Context(cli))]
    json.dump([called(args) for args in calls], sys.stdout)


if __name__ == "__main__":
    main()
