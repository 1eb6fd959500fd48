"""From a tree of texts to the frozen settings, by the schema's own types and rules. Finds *all* problems.

A setting that is wrong keeps its default, so that the rest can still be read and the relations still be checked. Every
problem has the path, the value (never a secret), the line, and what would be right.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
import types
import typing
from typing import Any

from primacy.errors import Problem
from primacy.settings.rule import Rule, key_of, rule_of
from primacy.settings.schema import Settings
from primacy.settings.tree import Entries, Items, Scalar, Tree, shown

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
UNITS_MS = {"ms": 1, "s": 1_000, "sec": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
DIGITS_MAX = 18
NUMBER = re.compile(rf"[+-]?[0-9]{{1,{DIGITS_MAX}}}")
SPAN = re.compile(r"([0-9]{1,9})\s*([a-z]+)")


def in_ms(text: str) -> int | None:
    """A span of time, in milliseconds: 250ms, 3s, 2m, 1h, or a plain number of them. None if it is none."""
    plain = text.replace("_", "")
    if plain.isascii() and plain.isdigit():
        return int(plain) if len(plain) <= DIGITS_MAX else None
    span = SPAN.fullmatch(text)
    return int(span[1]) * UNITS_MS[span[2]] if span and span[2] in UNITS_MS else None


class TreeReader:
    """One reading of one tree."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.lines: dict[str, int] = {}
        """Every setting that the file gives, by path, with its line (0 without a file)."""

    def section(self, cls: type[Any], tree: Tree, path: str) -> Any:
        """A dataclass from a mapping."""
        if isinstance(tree, Scalar) and tree.nothing:
            return cls()
        if not isinstance(tree, Entries):
            self._wrong(path, tree, "a section is needed here: `key: value` pairs")
            return cls()
        fields = {name: field for field in _fields(cls) for name in (key_of(field), *rule_of(field).also)}
        inline = next((field for field in _fields(cls) if rule_of(field).inline), None)
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        rest = Entries(line=tree.line)
        for word, (key, value) in tree.items.items():
            field = fields.get(word)
            if field is None or field is inline:
                if inline is not None and re.fullmatch(rule_of(inline).keys, word):
                    rest.items[word] = (key, value)
                else:
                    self._unknown(cls, word, key, path)
                continue
            here = _join(path, word)
            self.lines[here] = key.line
            if field.name in values:
                other = next(w for w in (key_of(field), *rule_of(field).also) if w != word)
                self._wrong(here, value, f"is set twice, the other time as `{other}`", Rule("", secret=True))
                continue
            values[field.name] = self._value(hints[field.name], rule_of(field), value, here, _default(field))
        if inline is not None and rest.items:
            values[inline.name] = self._mapping(hints[inline.name], rule_of(inline), rest, path, {})
        return cls(**values)

    def _value(self, kind: Any, rule: Rule, tree: Tree, path: str, default: Any) -> Any:
        """A value of any type that a setting may have."""
        if isinstance(kind, types.UnionType):  # X | None, where None means "not given"
            kind = next(k for k in typing.get_args(kind) if k is not types.NoneType)
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            return self.section(kind, tree, path)
        match typing.get_origin(kind):
            case t if t is dict:
                return self._mapping(kind, rule, tree, path, default)
            case t if t is tuple:
                return self._list(kind, rule, tree, path, default)
        if not isinstance(tree, Scalar):
            self._wrong(
                path, tree, f"a {'number' if kind is int else 'single word'} is needed here, not a list or section"
            )
            return default
        if tree.nothing:
            self._wrong(path, tree, "has no value; write one, or leave the line out")
            return default
        if kind is int:
            return self._number(rule, tree, path, default)
        if kind is bool:
            return self._switch(tree, path, default)
        assert kind is str, f"the schema uses a type that the walker does not know: {kind}"
        return self._text(rule, tree, path, default)

    def _text(self, rule: Rule, tree: Scalar, path: str, default: str) -> str:
        text = tree.text
        if not text:
            return default
        wrong = ""
        if any(not c.isprintable() for c in text):
            wrong = "holds a control character"
        elif renamed := dict(rule.earlier).get(text):
            wrong = f"is called {renamed} now"
        elif rule.choices and text not in rule.choices:
            near = _nearest(text, rule.choices)
            wrong = f"must be one of {', '.join(rule.choices)}" + (f"; is `{near}` meant?" if near else "")
        elif rule.pattern and not re.fullmatch(rule.pattern, text):
            wrong = f"must be {rule.says}"
        elif len(text.encode()) < rule.least_chars:
            wrong = f"must have at least {rule.least_chars} characters"
        elif rule.check:
            wrong = rule.check(text)
        if wrong:
            self._wrong(path, tree, wrong, rule)
            return default
        return text

    def _number(self, rule: Rule, tree: Scalar, path: str, default: int | None) -> int | None:
        text = tree.text.replace("_", "")
        span_ms = in_ms(tree.text) if path.endswith("_ms") and not NUMBER.fullmatch(text) else None
        if span_ms is None and not NUMBER.fullmatch(text):
            what = "a span of time: 250ms, 3s, 2m, or 3000 (milliseconds)" if path.endswith("_ms") else "a whole number"
            self._wrong(path, tree, f"must be {what}" + ("" if path.endswith("_ms") else ", without a unit"))
            return default
        number = int(text) if span_ms is None else span_ms
        if rule.least is not None and number < rule.least:
            self._wrong(path, tree, f"must be at least {rule.least}")
            return default
        if rule.most is not None and number > rule.most:
            self._wrong(path, tree, f"must be at most {rule.most}")
            return default
        return number

    def _switch(self, tree: Scalar, path: str, default: bool) -> bool:
        word = tree.text.lower()
        if word not in TRUE + FALSE:
            self._wrong(path, tree, "must be true or false")
            return default
        return word in TRUE

    def _list(self, kind: Any, rule: Rule, tree: Tree, path: str, default: Any) -> Any:
        item = typing.get_args(kind)[0]
        if isinstance(tree, Scalar):
            if tree.nothing or (rule.one_or_more and not tree.text):
                return ()
            if not rule.one_or_more:
                hint = f"[{', '.join(tree.text.split()[:4])}]" if item is str else "- …"
                self._wrong(path, tree, f"must be a list, such as {hint}")
                return default
            tree = Items([tree], tree.line)
        if not isinstance(tree, Items):
            self._wrong(path, tree, "must be a list, not a section")
            return default
        return tuple(self._value(item, rule, one, f"{path}[{n}]", "") for n, one in enumerate(tree.items))

    def _mapping(self, kind: Any, rule: Rule, tree: Tree, path: str, default: Any) -> Any:
        if isinstance(tree, Scalar) and tree.nothing:
            return {}
        if not isinstance(tree, Entries):
            self._wrong(path, tree, "a section is needed here: `key: value` pairs", rule)
            return default
        item = typing.get_args(kind)[1]
        values: dict[str, Any] = {}
        for word, (key, value) in tree.items.items():
            here = _join(path, word)
            self.lines[here] = key.line
            if rule.keys and not re.fullmatch(rule.keys, word):
                self._wrong(_join(path, shown(key)), Scalar("", True, key.line), rule.keys_say)
                continue
            values[word] = self._value(item, rule, value, here, () if typing.get_origin(item) is tuple else "")
        return values

    def _unknown(self, cls: type[Any], word: str, key: Scalar, path: str) -> None:
        known = [name for f in _fields(cls) if not rule_of(f).inline for name in (key_of(f), *rule_of(f).also)]
        near = _nearest(word, known)
        elsewhere = [p for p in known_paths() if p.rpartition(".")[2] == word]
        if near:
            hint = f"; is `{near}` meant?"
        elif elsewhere:
            hint = f"; it belongs at `{elsewhere[0]}`"
        else:
            hint = f"; known here: {', '.join(known)}"
        self._wrong(_join(path, shown(key)), Scalar("", True, key.line), "there is no such setting" + hint)

    def _wrong(self, path: str, tree: Tree, sentence: str, rule: Rule | None = None) -> None:
        value = "" if rule is not None and rule.secret else shown(tree)
        self.problems.append(Problem(path, value, sentence, tree.line))


@functools.cache
def known_paths() -> tuple[str, ...]:
    """Every setting of the schema that has a fixed path, in the order of the file."""
    found: list[str] = []

    def visit(cls: type[Any], path: str) -> None:
        hints = typing.get_type_hints(cls)
        for field in _fields(cls):
            kind = hints[field.name]
            here = _join(path, key_of(field))
            found.append(here)
            if dataclasses.is_dataclass(kind) and isinstance(kind, type):
                visit(kind, here)

    visit(Settings, "")
    return tuple(found)


def _fields(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if not rule_of(field).hidden]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _join(path: str, word: str) -> str:
    return f"{path}.{word}" if path else word


def _nearest(word: str, known: typing.Iterable[str]) -> str:
    """The known word that is most like it, or nothing."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), folded, n=1, cutoff=0.7)
    return folded[near[0]] if near else ""
