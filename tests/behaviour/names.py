"""What is called otherwise now: the table `names.toml`, and the classes of the code at hand behind it.

Keys are the names of the version that was recorded, values those of the code at hand. What the table does not name has
kept its name. `names.toml` explains each of its sections.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from ast import literal_eval
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

TABLE = Path(__file__).with_name("names.toml")
SECTIONS = ("modules", "classes", "fields", "dropped", "defaults", "values", "methods", "words")


class NameMissing(Exception):
    """The code at hand has no such thing, or the table is wrong."""


class Home(NamedTuple):
    """A class of the code at hand, or a function that makes what it stands for."""

    old: str
    made_by: Any
    names: Names

    def made(self, fields: dict[str, Any]) -> Any:
        """From the fields, or the arguments, that were recorded."""
        given = self.names.given(self.old, fields)
        try:
            return self.made_by(**given)
        except TypeError as error:
            raise NameMissing(
                f"{self.old} cannot be made of {', '.join(given)}: {error}. Do [fields], [dropped] or [defaults] "
                "lack something?"
            ) from error

    def member(self, value: Any) -> Any:
        """Of an enumeration."""
        wanted = self.names.table["values"].get(f"{self.old}.{value}", value)
        try:
            return self.made_by(wanted)
        except ValueError as error:
            raise NameMissing(f"{error}. Does [values] lack {self.old}.{value}?") from error


class Names:
    """The whole table."""

    def __init__(self, table: dict[str, dict[str, Any]] | None = None) -> None:
        table = table or {}
        strange = sorted(set(table) - set(SECTIONS))
        if strange:
            raise NameMissing(f"no section of names: {', '.join(strange)}; there are {', '.join(SECTIONS)}")
        self.table: dict[str, dict[str, Any]] = {section: table.get(section, {}) for section in SECTIONS}
        words = sorted(self.table["words"], key=len, reverse=True)
        edges = (rf"(?<!\w){re.escape(word)}(?!\w)" for word in words)
        self._words = re.compile("|".join(edges)) if words else None
        self._changes: dict[str, tuple[dict[str, str], tuple[str, ...], dict[str, Any]]] = {}

    @classmethod
    def read(cls, path: Path = TABLE) -> Names:
        return cls(tomllib.loads(path.read_text(encoding="utf-8")))

    def full(self, old: str, fields: Iterable[str] = ()) -> str:
        """Where a class stands now: `module.Class`, or `module:function` for what is made by a function.

        An entry with fields counts before one without: a name may have been given to another class since.
        """
        classes = self.table["classes"]
        named = classes.get(f"{old}({', '.join(fields)})", classes.get(old))
        if named is not None and ("." in named or ":" in named):
            return str(named)
        module, _, name = old.rpartition(".")
        parts = module.split(".")
        for length in range(len(parts), 0, -1):
            moved = self.table["modules"].get(".".join(parts[:length]))
            if moved is not None:
                module = ".".join([moved, *parts[length:]])
                break
        return f"{module}.{named or name}"

    def home(self, old: str, fields: Iterable[str] = ()) -> Home:
        now = self.full(old, fields)
        module, _, name = now.rpartition(":" if ":" in now else ".")
        try:
            return Home(old, getattr(importlib.import_module(module), name), self)
        except (ImportError, AttributeError) as error:
            raise NameMissing(f"{old}: {error}. Do [modules] or [classes] lack something?") from error

    def given(self, old: str, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields, or arguments, under their present names, without dropped ones, with new ones."""
        if old not in self._changes:
            self._changes[old] = self._changes_of(old)
        renamed, dropped, added = self._changes[old]
        if not renamed and not dropped and not added:
            return fields
        kept = {renamed.get(name, name): value for name, value in fields.items() if name not in dropped}
        return {**added, **kept}

    def _changes_of(self, old: str) -> tuple[dict[str, str], tuple[str, ...], dict[str, Any]]:
        def of(section: str) -> dict[str, Any]:
            marked = old + "."
            found = self.table[section].items()
            return {key.removeprefix(marked): value for key, value in found if key.startswith(marked)}

        defaults = {name: literal_eval(text) for name, text in of("defaults").items()}
        return of("fields"), tuple(of("dropped")), defaults

    def method(self, old: str, name: str) -> str:
        methods = self.table["methods"]
        return str(methods.get(f"{old}.{name}", methods.get(name, name)))

    def text(self, old: str) -> str:
        """With each word exchanged: whole words only, the longest first, once."""
        if self._words is None:
            return old
        return self._words.sub(lambda found: str(self.table["words"][found[0]]), old)
