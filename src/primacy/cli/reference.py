"""All commands with their options, made from the commands themselves: a page for the site, and the manual page.

python -m primacy.cli.reference markdown
python -m primacy.cli.reference man > docs/man/primacy.1

Nothing here is said a second time: every sentence is the one that `--help` prints. A test compares the manual page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

import click

from primacy import __version__
from primacy.cli.main import COMMANDS, cli

EXIT_CODES = (
    (0, "done"),
    (1, "the answer is no"),
    (2, "wrong call or file"),
    (3, "not reached"),
    (4, "in use, or not possible here"),
    (5, "unsafe without an operator"),
    (70, "a fault of primacy itself"),
    (130, "Ctrl-C"),
)
"""A test compares them with the errors' own and with the README."""


class Explained(NamedTuple):
    """One command, as its help explains it."""

    name: str
    """All words: `primacy lease list`"""
    usage: str
    paragraphs: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    """As it is written, and what it means."""
    verbs: tuple[tuple[str, str], ...]
    """Of a noun: each verb with its short help."""


def explained() -> Iterator[Explained]:
    """`primacy` itself, then every command that is shown, each noun before its verbs."""
    yield from _walk(cli, click.Context(cli, info_name="primacy", **cli.context_settings))


def _walk(command: click.Command, ctx: click.Context) -> Iterator[Explained]:
    below: list[tuple[str, click.Command]] = []
    if isinstance(command, click.Group):
        found = [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]
        below = [(name, each) for name, each in found if each is not None and not each.hidden]
    root = ctx.parent is None
    records = [
        param.get_help_record(ctx)
        for param in command.get_params(ctx)
        if isinstance(param, click.Option) and (root or "--help" not in param.opts)
    ]
    yield Explained(
        ctx.command_path,
        " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)]),
        tuple(_paragraphs("\n\n".join(filter(None, (command.help, command.epilog))))),
        tuple(record for record in records if record is not None),
        tuple((name, COMMANDS[name].help if root else each.get_short_help_str(limit=200)) for name, each in below),
    )
    for name, each in below:
        yield from _walk(each, click.Context(each, info_name=name, parent=ctx))


def _paragraphs(text: str) -> Iterator[str]:
    """A help text, as click reads it: lines are joined, but for a paragraph that begins with \\b."""
    for paragraph in re.split(r"\n\s*\n", text.partition("\f")[0].strip()):
        if paragraph.startswith("\b"):
            yield "\n".join(f"    {line}" for line in paragraph.splitlines()[1:])
        elif paragraph.strip():
            yield " ".join(paragraph.split())


# --- a page -----------------------------------------------------------------------------------------------------------

PAGE_HEAD = """\
# Commands

Every command and option of primacy {version}, made from the commands themselves; `primacy help COMMAND` prints the
same. Options of `primacy` itself stand before the command. What each setting of the file means:
[config.md](docs/config.md).
"""


def markdown() -> str:
    parts = [PAGE_HEAD.format(version=__version__)]
    for one in explained():
        parts.append(f"{'###' if one.name.count(' ') > 1 else '##'} {one.name}\n")
        parts.append(f"```text\n{one.usage}\n```\n")
        parts += [f"{_escaped(paragraph)}\n" for paragraph in one.paragraphs]
        parts += _table("verb" if " " in one.name else "command", one.verbs)
        parts += _table("option", one.options)
    parts.append("## Exit codes\n")
    parts += _table("code", [(str(code), meaning) for code, meaning in EXIT_CODES])
    return "\n".join(parts)


def _table(head: str, rows: tuple[tuple[str, str], ...] | list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    lines = [f"| {head} | meaning |", "|---|---|"]
    lines += [f"| `{name.replace('|', chr(92) + '|')}` | {_escaped(text)} |" for name, text in rows]
    return ["\n".join(lines) + "\n"]


def _escaped(text: str) -> str:
    """What Markdown would take for markup outside of code, and what would end the cell of a table."""
    if text.startswith("    "):
        return text
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        piece.replace("|", r"\|") if piece.startswith("`") else re.sub(r"([\\*_<>\[\]|])", r"\\\1", piece)
        for piece in pieces
    )


# --- a manual page ----------------------------------------------------------------------------------------------------


def man() -> str:
    """In roff with the macros of man(7). No date: the same commands make the same page."""
    first, *others = explained()
    lines = [f'.TH PRIMACY 1 "" "primacy {__version__}" "User Commands"']
    lines += [".SH NAME", f"primacy \\- {_roff(first.paragraphs[0]).partition(':')[0]}"]
    lines += [".SH SYNOPSIS", rf"\fB{_roff(first.usage)}\fR"]
    lines += [".SH DESCRIPTION"]
    for paragraph in first.paragraphs:
        lines += [".PP", _roff(paragraph)]
    lines += [".PP", "The documents of this version are at hand offline: \\fBprimacy docs\\fR."]
    lines += [".SH OPTIONS", *_listed(first.options), ".SH COMMANDS"]
    for one in others:
        lines += [f".SS {_roff(one.usage)}"]
        for paragraph in one.paragraphs:
            lines += [".nf", _roff(paragraph), ".fi"] if paragraph.startswith("    ") else [".PP", _roff(paragraph)]
        lines += _listed(one.options)
    lines += [".SH EXIT STATUS", *_listed([(str(code), meaning) for code, meaning in EXIT_CODES])]
    lines += [".SH ENVIRONMENT", ".PP", "Options that can be given by a variable name it in their text."]
    return "\n".join(lines) + "\n"


def _listed(rows: tuple[tuple[str, str], ...] | list[tuple[str, str]]) -> list[str]:
    return [line for name, text in rows for line in (".TP", rf"\fB{_roff(name)}\fR", _roff(" ".join(text.split())))]


def _roff(text: str) -> str:
    """As it stands: backslashes, hyphens that are typed, and dots and quotes at the beginning of a line."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("`", "")
    text = re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)
    return "".join(sign if sign.isascii() else f"\\[u{ord(sign):04X}]" for sign in text)


if __name__ == "__main__":
    makers = {"markdown": markdown, "man": man}
    if len(sys.argv) != 2 or sys.argv[1] not in makers:
        sys.exit(f"which one? {' or '.join(makers)}")
    sys.stdout.write(makers[sys.argv[1]]())
