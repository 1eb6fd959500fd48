"""The blocks and the command lines of the documents, as a reader meets them; and whether the program takes a command
line, without running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from primacy.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY")),
    *(ROOT / name / "README.md" for name in ("contrib", "examples", "tests")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
INDENT = "    "
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
PLACEHOLDER = re.compile(r"[A-Z]{2,}[A-Z0-9]*|[A-Z]|.*…|\.\.\.")
"""What stands for a value: NODE, N, postgresql://…"""
COMMAND = re.compile(r"(\w+=\S+ )*[\w./-]*(primacy|make|python|docker|kubectl|git|nft) ")
"""How an indented block of commands begins."""
BETWEEN = frozenset(";&|<>()")
KEYWORDS = frozenset({"!", "do", "done", "else", "exec", "fi", "if", "sudo", "then", "until", "while"})


class Block(NamedTuple):
    """Lines that are set apart: between fences, or indented by four."""

    page: Path
    number: int
    """Of its first line."""
    language: str
    """As the fence says it; empty if there is none."""
    fenced: bool
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.number}"


class Line(NamedTuple):
    """One command line of primacy, its words behind that name."""

    where: str
    words: tuple[str, ...]
    inline: bool
    """It stands in a sentence, where a command may be named without its arguments."""


class Wrong(Exception):
    """The program would not take it."""


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text().splitlines()
    number, blank = 0, True
    while number < len(lines):
        line, begin = lines[number], number
        if opened := re.match(r"( *)```(\S*)", line):
            number += 1
            while lines[number].strip() != "```":
                number += 1
            text = "\n".join(inner.removeprefix(opened[1]) for inner in lines[begin + 1 : number])
            yield Block(page, begin + 2, opened[2], True, f"{text}\n")
        elif blank and line.startswith(INDENT):
            while number + 1 < len(lines) and (lines[number + 1].startswith(INDENT) or _goes_on(lines, number + 1)):
                number += 1
            text = "\n".join(inner.removeprefix(INDENT) for inner in lines[begin : number + 1])
            yield Block(page, begin + 1, "", False, f"{text}\n")
        blank = not lines[number].strip()
        number += 1


def _goes_on(lines: list[str], number: int) -> bool:
    """An empty line with more of the same block behind it."""
    return not lines[number] and number + 1 < len(lines) and lines[number + 1].startswith(INDENT)


def sentences(page: Path) -> Iterator[tuple[int, str]]:
    """All that stands between the blocks, paragraph by paragraph, each as one line; with the number of its first."""
    lines = page.read_text().splitlines()
    for block in blocks(page):
        first, count = block.number - 1, len(block.text.splitlines())
        lines[first - block.fenced : first + count + block.fenced] = [""] * (count + 2 * block.fenced)
    found: list[str] = []
    for number, line in enumerate([*lines, ""], 1):
        if line.strip():
            found.append(line.strip())
        elif found:
            yield number - len(found), " ".join(found)
            found = []


def simple_commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """The words of each command of a shell, with the number of its line in the text; comments, assignments, words of
    the shell, and where it reads and writes are left out."""
    joined = re.sub(r"\\\n *", lambda found: " " * len(found[0]), text)
    for offset, line in enumerate(joined.splitlines()):
        lexer = shlex.shlex(line.removeprefix("$ ").replace("…", "..."), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        names_file = False
        for word in [*lexer, ";"]:
            if set(word) & {"<", ">"} and set(word) <= BETWEEN:
                names_file = not word.endswith(")")
                if command and command[-1].isdigit():  # 2> of a shell
                    command.pop()
            elif set(word) <= BETWEEN:
                if command:
                    yield offset, command
                command, names_file = [], False
            elif names_file:
                names_file = False
            elif command or not (word in KEYWORDS or re.match(r"\w+=", word)):
                command.append(word)


def of_primacy(command: list[str]) -> tuple[str, ...] | None:
    """What it gives to primacy; None if it calls another program."""
    for place, word in enumerate(command):
        if (place == 0 or command[place - 1] == "--") and word.rpartition("/")[2] == "primacy":
            return tuple(command[place + 1 :])
    return None


def lines_of(page: Path) -> Iterator[Line]:
    """Every command line of primacy on the page."""
    name = page.relative_to(ROOT)
    for block in blocks(page):
        if is_of_commands(block):
            for offset, command in simple_commands(commands_in(block)):
                if (words := of_primacy(command)) is not None:
                    yield Line(f"{name}:{block.number + offset}", words, inline=False)
    for number, text in sentences(page):
        for code in INLINE.findall(text):
            for _, command in simple_commands(code) if "primacy " in code else ():
                if (words := of_primacy(command)) is not None:
                    yield Line(f"{name}:{number}: `{code}`", words, inline=True)


def is_of_commands(block: Block) -> bool:
    if block.language in ("console", "sh"):
        return not block.text.startswith("#!")
    return not block.fenced and COMMAND.match(block.text) is not None


def commands_in(block: Block) -> str:
    """Of a console, what it prints is left out; the lines stay where they are."""
    if block.language != "console":
        return block.text
    kept, goes_on = [], False
    for line in block.text.splitlines():
        mine = line.startswith("$ ") or goes_on
        kept.append(line if mine else "")
        goes_on = mine and line.endswith("\\")
    return "\n".join(kept)


def refuse(line: Line) -> None:
    """Nothing, or Wrong: no such command, no such option, one that is hidden, an argument too few or too many, a word
    that the option does not take."""
    optional = any(word.startswith("[") for word in line.words)
    words = [word.strip("[]") for word in line.words if word != "[options]"]
    command: click.Command = cli
    context = click.Context(cli, info_name="primacy", **cli.context_settings)
    while True:
        ends_with_option = line.inline and words and words[-1].startswith("--")
        options, left, given = _parsed(command, context, words, bool(ends_with_option))
        _look_at(command, options, given)
        if not isinstance(command, click.Group):
            break
        if not left:
            if not (line.inline or command.invoke_without_command or _asks_for_help(given)):
                raise Wrong(f"{context.command_path} needs a verb")
            return
        if PLACEHOLDER.fullmatch(left[0]):
            return
        found = command.get_command(context, left[0])
        if found is None or found.hidden:
            raise Wrong(f"{context.command_path} has no {left[0]!r}")
        command, words = found, left[1:]
        context = click.Context(found, info_name=left[0], parent=context, **found.context_settings)
    if left:
        raise Wrong(f"{context.command_path} does not take {' '.join(left)!r}")
    if (not words and line.inline) or ends_with_option or optional or _asks_for_help(given):
        return
    for param in command.get_params(context):
        if param.required and not isinstance(options.get(param.name or ""), str | tuple | list | bool | int):
            raise Wrong(f"{context.command_path} needs {param.make_metavar(context)}")


def _parsed(
    command: click.Command, context: click.Context, words: list[str], names_option: bool
) -> tuple[dict[str, object], list[str], list[click.Parameter]]:
    try:
        return command.make_parser(context).parse_args(list(words))
    except click.BadOptionUsage as error:
        if names_option and not isinstance(error, click.NoSuchOption) and error.option_name == words[-1]:
            return command.make_parser(context).parse_args([*words, "..."])
        raise Wrong(error.format_message()) from None
    except click.UsageError as error:
        raise Wrong(error.format_message()) from None


def _asks_for_help(given: list[click.Parameter]) -> bool:
    return any(param.is_eager for param in given)


def _look_at(command: click.Command, options: dict[str, object], given: list[click.Parameter]) -> None:
    """At what was given: hidden options, and words of which only some are taken."""
    for param in given:
        if isinstance(param, click.Option) and param.hidden:
            raise Wrong(f"{param.opts[0]} is an option of earlier versions")
        said = options.get(param.name or "")
        for value in said if isinstance(said, tuple | list) else [said]:
            if isinstance(value, str) and not PLACEHOLDER.fullmatch(value.replace("...", "…")):
                if isinstance(param.type, click.Path | click.File):
                    continue
                try:
                    param.type.convert(value, param, None)
                except click.UsageError as error:
                    raise Wrong(error.format_message()) from None
