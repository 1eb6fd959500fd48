"""What every command is told by the options in front of it, and the few things that all of them do alike.

A command takes it with `@click.pass_obj`. Options that a command repeats after its own name (`--json`, `--config`) win
over the ones in front.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from primacy.errors import Refused, UsageError

if TYPE_CHECKING:
    from primacy.node.clock import SystemClock
    from primacy.node.log import Log
    from primacy.settings.schema import Settings

CONFIG_VARIABLE = "PRIMACY_CONFIG"
FILE_NAME = "primacy.yaml"
"""Read from the working folder if no other file is named."""

EXIT_INTERRUPTED = 130
"""By Ctrl-C, as a shell says it."""

F = TypeVar("F", bound=Callable[..., Any])


class Call(NamedTuple):
    """The options in front of the command."""

    config: str | None = None
    node: str | None = None
    at: str | None = None
    json: bool = False
    verbose: int = 0

    def file(self, said: str | None = None) -> str | None:
        """The file that counts: the command's own, the one in front, the working folder's, or none."""
        if said == "":
            raise UsageError("the name of the file is empty: leave it out, or say which")
        if said or self.config:
            return said or self.config
        return FILE_NAME if os.path.isfile(FILE_NAME) else None

    def log(self, settings: Settings, clock: SystemClock) -> Log:
        """Of an agent that this command starts."""
        from primacy.node.log import Log, level_of

        return Log(clock, level_of(settings.log.level, self.verbose), settings.log.format)


def json_option(command: F) -> F:
    """`--json`, after the command's name or in front of it."""
    return click.option(
        "--json", "as_json", is_flag=True, callback=_or_in_front, help="One JSON document instead of text."
    )(command)


def _or_in_front(ctx: click.Context, param: click.Parameter, value: bool) -> bool:  # noqa: ARG001
    call = ctx.find_object(Call)
    return value or (call is not None and call.json)


def not_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001
    """An empty value is a variable of a script that was not set: another file, node or folder would be meant."""
    if value == "":
        raise UsageError(f"{param.opts[0]} is empty: leave it out, or give it a value")
    return value


def config_option(command: F) -> F:
    """`--config` after the command's name."""
    return click.option("--config", metavar="FILE", help=f"The file; default: {FILE_NAME} here, if there is one.")(
        command
    )


def _listen_address(ctx: click.Context, param: click.Parameter, value: str) -> str:  # noqa: ARG001
    from primacy.settings.accepted import wrong_listen

    if value and (wrong := wrong_listen(value)):
        raise UsageError(f"--bind {value[:80]}: {wrong}")
    return value


bind_option = click.option(
    "--bind",
    default="",
    metavar="HOST:PORT",
    callback=_listen_address,
    help="Where it listens for the other nodes (raft); default: as the file says, or the members.",
)


class SpanMs(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """The type of an option for a span of time: 250ms, 3s, 2m, 1h, or plain milliseconds."""

    name = "span"

    def __init__(self, least_ms: int = 0, most_ms: int | None = None) -> None:
        self.least_ms = least_ms
        self.most_ms = most_ms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002
        from primacy.settings.accepted import SPAN_MS_MAX
        from primacy.settings.reading import in_ms

        text, option = str(value).strip(), param.opts[0] if param is not None else "the span"
        found_ms = in_ms(text)
        if found_ms is None:
            raise UsageError(f"{option} {text[:40]!r}: a span of time is 250ms, 3s, 2m, or 3000 (milliseconds)")
        most_ms = SPAN_MS_MAX if self.most_ms is None else self.most_ms
        if not self.least_ms <= found_ms <= most_ms:
            raise UsageError(f"{option} {text[:40]}: from {self.least_ms} to {most_ms} ms")
        return found_ms


yes_option = click.option("--yes", is_flag=True, help="Do not ask: the answer is yes.")


def type_yes(risk: str, yes: bool, question: str = "Type yes to go on") -> None:
    """Says what is at risk, and goes on only after a typed yes, or --yes."""
    if not yes and _typed(risk, question, "no") != "yes":
        raise Refused("nothing was done: the answer was not yes")


def type_name(risk: str, yes: bool, what: str, name: str) -> None:
    """The same, where the name of what is at risk must be typed: nobody types that by habit, or for another one."""
    if not yes and _typed(risk, f"Type the name of the {what} to go on", "") != name:
        raise Refused(f"nothing was done: the answer was not the name of the {what}, {name}")


def _typed(risk: str, question: str, default: str) -> str:
    """The answer. A closed input is none: `Refused`."""
    click.echo(risk, err=True)
    try:
        answer = click.prompt(question, default=default, show_default=bool(default), err=True)
    except click.Abort:
        if sys.stdin is not None and sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise Refused("nothing was done: nobody answered; if you are sure, say --yes") from None
    return str(answer).strip()


def print_json(document: dict[str, Any]) -> None:
    """The whole answer as one document."""
    import json

    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def near_of(name: str, known: Collection[str]) -> str:
    """What is there instead, and which of it may be meant."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    there = ", ".join(known)
    return f"is {near[0]} meant? There are {there}" if near else f"there are {there}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, its cells below each other."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def checked_name(option: str, name: str | None) -> str | None:
    """A cluster's or an election's, which becomes a folder's. Raises `UsageError`."""
    from primacy.settings.accepted import NAME_PATTERN

    if name is not None and not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(f"{option} {name[:80]!r}: a name has letters, digits, dots, dashes or underscores, at most 63")
    return name
