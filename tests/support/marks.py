"""The marks of whole test files, by which `sizes.py` chooses what runs when. README.md says what each means.

They are read, not imported: a phase that needs six files need not import two hundred.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
APART = ("coverage", "moments", "alone", "beside", "real_time")
"""Marks of files whose phase in `make test` is not that of their folder."""


def marks_of(text: str) -> dict[str, int]:
    """The marks in `pytestmark`, by name, and their order."""
    said = re.search(r"^pytestmark = (.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    found = re.findall(r"pytest\.mark\.(\w+)(?:\(order=(\d+)\))?", said[1]) if said else []
    return {name: int(order or 0) for name, order in found}


@cache
def marked(name: str) -> tuple[str, ...]:
    """Files with this mark, in its order, from the root of the repository."""
    found = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        marks = marks_of(file.read_text(encoding="utf-8"))
        if name in marks:
            found.append((marks[name], str(file.relative_to(ROOT))))
    return tuple(file for _, file in sorted(found))


def unmarked(*folders: str) -> tuple[str, ...]:
    """Files of these folders of tests/ whose phase is that of the folder, from the root of the repository."""
    found = (file for folder in folders for file in sorted((ROOT / "tests" / folder).rglob("test_*.py")))
    return tuple(
        str(file.relative_to(ROOT))
        for file in found
        if not marks_of(file.read_text(encoding="utf-8")).keys() & set(APART)
    )
