"""Refuses metaphors in identifiers, and some words in the documents for users: `python -m tests.support.words`, a part
of `make check`. docs/glossary.md has the words.

Texts in the code are not looked at, and neither are names from outside (`typing.cast`, `os.walk`): what is looked for
is what this code itself names.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
METAPHORS = """
boss care cast correspondence desk desks door doors duty duties errand errands keeper keepers leash life lives office
picture pictures reign reigns roster sheet sheets stage tale tales twin twins universe universes voice voices weather
"""
REFUSED = frozenset(METAPHORS.split())
"""Closed: a word is added with the commit that takes it out of every folder below."""
ROOMS = ("src/primacy", "tests", "bench", "examples")
"""Folders that are clean, from the root of the repository."""
EXCUSED = {"tests/support/screenshots.py": ("PICTURES", "_picture")}
"""By file: pictures that are such."""


class Refusal(NamedTuple):
    """One identifier."""

    file: str
    line: int
    name: str
    word: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.name} says {self.word!r}; docs/glossary.md has the word for it"


def words_of(name: str) -> list[str]:
    """`_process_duty`, `ProcessDuty` and `PROCESS_DUTY` are all process and duty."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().strip("_").split("_")


def named_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What the code gives a name: functions, classes, arguments, variables, attributes that are set, and aliases."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name


def refusals_in(source: str, file: str, excused: frozenset[str] = frozenset()) -> Iterator[Refusal]:
    names = [(0, Path(file).stem), *named_in(ast.parse(source))]
    for line, name in names:
        for word in words_of(name):
            if word in REFUSED and name not in excused:
                yield Refusal(file, line, name, word)


def files() -> list[Path]:
    found = [ROOT / room for room in ROOMS]
    return sorted(file for room in found for file in ([room] if room.suffix else room.rglob("*.py")))


def refusals() -> list[Refusal]:
    found = []
    for file in files():
        name = str(file.relative_to(ROOT))
        found += refusals_in(file.read_text(encoding="utf-8"), name, frozenset(EXCUSED.get(name, ())))
    return found


UNPLAIN = re.compile(r"\b(shall|beside|whoever|of ours|by way of|(?<!no )such(?! as\b))\b", re.IGNORECASE)
OF_USERS = ("README.md", "docs/*.md", "docs/tasks/*.md")
NOT_OF_USERS = ("rules.md", "faults.md", "glossary.md", "map.md")
CODE = re.compile(r"```.*?```|`[^`]*`|^    .*?$", re.DOTALL | re.MULTILINE)


def unplain_in(text: str, file: str) -> Iterator[Refusal]:
    """In sentences: code is left out, with its lines kept."""
    sentences = CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(sentences.splitlines(), 1):
        for word in UNPLAIN.findall(line):
            yield Refusal(file, number, line.strip()[:60], word)


def unplain() -> list[Refusal]:
    pages = [page for one in OF_USERS for page in sorted(ROOT.glob(one)) if page.name not in NOT_OF_USERS]
    return [one for page in pages for one in unplain_in(page.read_text(), str(page.relative_to(ROOT)))]


def main() -> int:
    found = [*refusals(), *unplain()]
    for one in found:
        print(one, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
