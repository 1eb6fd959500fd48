"""What one setting is: a field of a dataclass with a rule, which reading, checking and the documentation go by."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """What a setting accepts, and what it means. Everything that a reader or the documentation needs to know of it."""

    text: str
    choices: tuple[str, ...] = ()
    earlier: tuple[tuple[str, str], ...] = ()
    """Choices of before, each with what it is called now."""
    least: int | None = None
    most: int | None = None
    pattern: str = ""
    says: str = ""
    """The pattern in words, for the message: "host:port"."""
    check: Callable[[str], str] | None = None
    """Returns what is wrong with a text, or nothing."""
    key: str = ""
    """The word in the file, if it is no name in Python."""
    also: tuple[str, ...] = ()
    """Other accepted spellings."""
    secret: bool = False
    """Never shown: not in a message, not in the canonical form."""
    keys: str = ""
    """Of a mapping: the pattern of its keys."""
    keys_say: str = ""
    inline: bool = False
    """Of a mapping: its entries stand directly in the section, told apart by the pattern of their keys."""
    one_or_more: bool = False
    """Of a list: a single text is accepted in its place."""
    least_chars: int = 0
    like: str = ""
    """Of a section: the one whose settings it has, too; the documentation shows them once."""
    hidden: bool = False
    """Not in the file at all: where a value came from."""


def setting(default: Any, text: str, **rule: Any) -> Any:
    """A field with its rule. A callable default makes the value anew each time."""
    meta = {"rule": Rule(text, **rule)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=meta)
    return dataclasses.field(default=default, metadata=meta)


def rule_of(field: dataclasses.Field[Any]) -> Rule:
    rule = field.metadata["rule"]
    assert isinstance(rule, Rule)
    return rule


def key_of(field: dataclasses.Field[Any]) -> str:
    """The word in the file."""
    return rule_of(field).key or field.name
