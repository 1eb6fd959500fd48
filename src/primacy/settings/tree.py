"""From the bytes of a file to a bounded tree of texts with line numbers. Nothing here knows a setting.

Scalars stay *texts*: what `000`, `no`, `12:30` or `1e3` means is decided by the setting that it is written at
(`reading.py`), not by the rules of YAML, so that a slot `000` is a slot and a password 12345 is a password. For the
same reason there are no tags. Everything has a bound, because a file may come from anywhere: see the constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primacy.errors import Problem, SettingsError

if TYPE_CHECKING:
    import yaml

FILE_BYTES_MAX = 256 * 1024
"""A thousand slots with users fill about a third of it; parsing this much takes about a second."""
DEPTH_MAX = 12
"""The deepest setting, a slot's user, stands five levels deep."""
NODES_MAX = 20_000
"""Values in a file, aliases counted as often as they are used, so that a small file cannot grow into a large one."""
SHOWN_MAX = 60
"""Characters of a value that a message shows."""


@dataclass(slots=True)
class Scalar:
    """A text. `plain`: it stood without quotes, so an empty one or `null` means nothing at all."""

    text: str
    plain: bool
    line: int = 0

    @property
    def nothing(self) -> bool:
        return self.plain and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(slots=True)
class Entries:
    """A mapping, in the order of the file; keys are unique texts."""

    items: dict[str, tuple[Scalar, Tree]] = field(default_factory=dict)
    line: int = 0


@dataclass(slots=True)
class Items:
    """A list."""

    items: list[Tree] = field(default_factory=list)
    line: int = 0


Tree = Scalar | Entries | Items


def shown(tree: Tree) -> str:
    """A value for a message: short, on one line, without control characters."""
    match tree:
        case Scalar(text=text):
            clean = "".join(c if c.isprintable() else "?" for c in text)
            return clean if len(clean) <= SHOWN_MAX else clean[: SHOWN_MAX - 1] + "…"
        case Entries():
            return "{…}"
        case Items():
            return "[…]"


def read_file(path: str | Path) -> bytes:
    """The bytes of the file, at most one more than allowed. Errors of the file system become one sentence."""
    try:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise _wrong("there is no such file", path) from None
    except IsADirectoryError:
        raise _wrong("this is a folder; name the file in it", path) from None
    except PermissionError:
        raise _wrong("not readable by this user", path) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _wrong(f"cannot be read: {reason}", path) from None


def parse(data: bytes, source: str = "") -> Entries:
    """The tree of a file. Raises `SettingsError` with one sentence if it is not one bounded YAML mapping in UTF-8."""
    if len(data) > FILE_BYTES_MAX:
        raise _wrong(f"larger than {FILE_BYTES_MAX} bytes; this is not a configuration file", source)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _wrong(f"not UTF-8 text: byte 0x{data[error.start]:02x} at position {error.start}", source) from None
    tree = _Builder(source).build(text)
    if isinstance(tree, Scalar) and tree.nothing:
        return Entries()
    if not isinstance(tree, Entries):
        raise _wrong("a file of settings is a mapping, `cluster:` and so on; this is something else", source)
    return tree


def of_plain(value: object, depth: int = 0) -> Tree:
    """The same tree from Python values, for callers that have no file."""
    if depth > DEPTH_MAX:
        raise _wrong(f"nested more than {DEPTH_MAX} deep", "")
    match value:
        case None:
            return Scalar("", plain=True)
        case bool():
            return Scalar("true" if value else "false", plain=True)
        case str():
            return Scalar(value, plain=False)
        case int() | float():
            return Scalar(str(value), plain=True)
        case Mapping():
            return Entries({str(k): (Scalar(str(k), plain=True), of_plain(v, depth + 1)) for k, v in value.items()})
        case Sequence() if not isinstance(value, bytes | bytearray):
            return Items([of_plain(v, depth + 1) for v in value])
    raise _wrong(f"a {type(value).__name__} is no value for a setting", "")


def _wrong(sentence: str, source: str | Path, line: int = 0) -> SettingsError:
    return SettingsError([Problem("", "", sentence, line)], str(source))


class _Builder:
    """Builds the tree from YAML's events, without recursion, so that every bound is met before memory is spent."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.count = 0
        self.anchors: dict[str, tuple[Tree, int]] = {}
        self.problems: list[Problem] = []

    def build(self, text: str) -> Tree:
        import yaml  # noqa: PLC0415  loaded only when a file is read

        try:
            tree = self._documents(yaml.parse(text, Loader=yaml.SafeLoader))
        except yaml.reader.ReaderError as error:
            at = f"character {error.character!r}" if isinstance(error.character, str) else "a character"
            raise _wrong(f"not a text file: {at} at position {error.position}", self.source) from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = " ".join(str(part) for part in (error.context, error.problem) if part)
            raise _wrong(f"not YAML: {what or 'syntax error'}", self.source, mark.line + 1 if mark else 0) from None
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise _wrong(f"not YAML: {str(error) or type(error).__name__}", self.source) from None
        if self.problems:
            raise SettingsError(self.problems, self.source)
        return tree

    def _documents(self, events: Any) -> Tree:
        import yaml  # noqa: PLC0415

        root: Tree = Scalar("", plain=True)
        documents = 0
        open_nodes: list[tuple[Entries | Items, Scalar | None, str | None, int]] = []
        # (the collection, the key that waits for its value, its anchor, the count before it)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._stop("one file holds one document; there is a second one after `---`", event)
                continue
            done: Tree
            if isinstance(event, yaml.ScalarEvent):
                self._counted(event)
                done = Scalar(event.value, plain=event.implicit[0], line=self._line(event))
                self._keep(event.anchor, done, 1)
            elif isinstance(event, yaml.AliasEvent):
                done = self._alias(event)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._counted(event)
                if len(open_nodes) >= DEPTH_MAX:
                    raise self._stop(f"nested more than {DEPTH_MAX} deep", event)
                new = Entries if isinstance(event, yaml.MappingStartEvent) else Items
                open_nodes.append((new(line=self._line(event)), None, event.anchor, self.count - 1))
                continue
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                done, _, anchor, before = open_nodes.pop()
                self._keep(anchor, done, self.count - before)
            else:
                continue
            if open_nodes:
                open_nodes[-1] = self._placed(open_nodes[-1], done, event)
            else:
                root = done
        return root

    def _placed(
        self, parent: tuple[Entries | Items, Scalar | None, str | None, int], done: Tree, event: yaml.Event
    ) -> tuple[Entries | Items, Scalar | None, str | None, int]:
        """Puts a finished node into its parent: as item, as key, or as the value of the waiting key."""
        into, key, anchor, before = parent
        if isinstance(into, Items):
            into.items.append(done)
        elif key is None:
            if not isinstance(done, Scalar):
                raise self._stop("a key must be a word, not a list or a mapping", event)
            return into, done, anchor, before
        elif key.text in into.items:
            first = into.items[key.text][0].line
            self.problems.append(Problem(key.text, "", f"is set twice; the first is on line {first}", key.line))
        else:
            into.items[key.text] = (key, done)
        return into, None, anchor, before

    def _alias(self, event: yaml.AliasEvent) -> Tree:
        if event.anchor not in self.anchors:
            raise self._stop(f"*{event.anchor} names nothing that is complete before it", event)
        tree, size = self.anchors[event.anchor]
        self._counted(event, size)
        return tree

    def _keep(self, anchor: str | None, tree: Tree, size: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (tree, size)

    def _counted(self, event: yaml.Event, size: int = 1) -> None:
        self.count += size
        if self.count > NODES_MAX:
            raise self._stop(f"more than {NODES_MAX} values", event)
        if getattr(event, "tag", None) not in (None, "!"):
            raise self._stop(
                f"the tag {shown(Scalar(str(getattr(event, 'tag', '')), True))} has no meaning here", event
            )

    def _line(self, event: yaml.Event) -> int:
        return event.start_mark.line + 1 if event.start_mark else 0

    def _stop(self, sentence: str, event: yaml.Event) -> SettingsError:
        return _wrong(sentence, self.source, self._line(event))
