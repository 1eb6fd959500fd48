"""A process of its own that answers calls of the command line, one after the other, without a start for each.

Reads one JSON document from its standard input: {"helps": true or false, "calls": [[argument, ...], ...]}. Writes one
JSON document: [{"args", "code", "out", "err"}, ...], of the helps of all commands, if wanted, then of the calls.
"""

from __future__ import annotations

import gc
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
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    print(*args, file=sys.stderr, flush=True)
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = run(args)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return {"args": args, "code": code, "out": written(out), "err": written(err)}


def written(file: io.TextIOWrapper) -> str:
    assert isinstance(file.buffer, io.BytesIO)
    return file.buffer.getvalue().decode("utf-8", "replace")


def main() -> None:
    wanted = json.load(sys.stdin)
    helps = [[*path, "--help"] for path in paths(cli, click.Context(cli))] if wanted["helps"] else []
    gc.disable()  # each command expects a process of its own, and leaves to its end what it has opened
    json.dump([called(args) for args in (*helps, *wanted["calls"])], sys.stdout)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
