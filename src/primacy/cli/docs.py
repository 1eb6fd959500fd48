"""`primacy docs [NAME]`: the documents that belong to this version, also where only the wheel was installed."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

import primacy
from primacy.errors import CannotHere, UsageError

CARRIED = Path(primacy.__file__).parent / "documents"
"""In an installed wheel. `hatch_build.py` puts them there."""
CHECKOUT = Path(primacy.__file__).parents[2]
TITLE_MOST = 70
"""Characters: name and title stand on one line."""


@click.command()
@click.argument("name", required=False)
@click.option("--path", is_flag=True, help="Print where the file is, instead of what it says.")
def docs(name: str | None, path: bool) -> None:
    """Print a document, or list them: pages by task, explanations, the settings, files for other programs.

    They are those of this version, and no network is needed: `primacy docs config` explains every setting of the file,
    `primacy docs haproxy.cfg > haproxy.cfg` writes a file to start from.
    """
    found = dict(documents())
    if not found:
        raise CannotHere(
            f"the documents are neither in {CARRIED} nor in {CHECKOUT}: install primacy anew from its wheel"
        )
    if name is None:
        width = max(map(len, found))
        click.echo("\n".join(f"{each:<{width}}  {title(file)}" for each, file in found.items()))
        return
    file = found.get(name) or found.get(name.removeprefix("docs/").removeprefix("contrib/").removesuffix(".md"))
    if file is None:
        near = difflib.get_close_matches(name, found, n=3, cutoff=0.5)
        hint = f"is {' or '.join(near)} meant?" if near else "`primacy docs` lists them"
        raise UsageError(f"there is no document {name[:40]!r}: {hint}")
    if path:
        click.echo(file)
    elif sys.stdout.isatty():
        click.echo_via_pager(file.read_text(encoding="utf-8"))
    else:
        click.echo(file.read_text(encoding="utf-8"), nl=False)


def documents() -> Iterator[tuple[str, Path]]:
    """By name: pages without their ending, other files with it. Pages by task come first."""
    home = CARRIED if CARRIED.is_dir() else CHECKOUT
    pages = {str(page.relative_to(home / "docs").with_suffix("")): page for page in (home / "docs").rglob("*.md")}
    yield from sorted(pages.items(), key=lambda named: (not named[0].startswith("tasks/"), named[0]))
    for file in sorted(file for file in (home / "contrib").rglob("*") if file.is_file()):
        name = str(file.relative_to(home / "contrib"))
        yield ("contrib" if name == "README.md" else name), file


def title(file: Path) -> str:
    """Its first line, without what marks it as one, as far as a terminal shows it."""
    with file.open(encoding="utf-8") as lines:
        text = lines.readline().strip().lstrip("# ")
    return text if len(text) <= TITLE_MOST else text[: TITLE_MOST - 1] + "…"
