"""Ghoti's wire as plain functions: bodies, answers, credentials, and the one header that carries what is ours.

A real node reads exactly two fields of a join, one of an announcement, and nothing of a call; it ignores headers. So
everything that our nodes say besides stands in the header `Primacy`, a line of `key=value` pairs, of which only those
are believed that came with good credentials. Whatever is handed in, nothing here raises: what cannot be read is None.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from hmac import compare_digest
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from primacy.settings.accepted import ID_CHARS_MAX, wrong_address

HEADER = "Primacy"
BODY_BYTES_MAX = 4_096
"""Of a request, as later real nodes have it; the longest of ours is a baton."""
ANSWER_BYTES_MAX = 1 << 20
"""Of an answer: a list of a thousand nodes with what each says of itself."""
WORDS_BYTES_MAX = 1 << 16
"""Of what nodes tell each other beside the election, in one request."""
HEADER_CHARS_MAX = 6_000
ID_BYTES_MAX = 4 * ID_CHARS_MAX
"""Of an id that is heard: as many characters as the settings allow, whichever. A real node checks nothing of this."""
PRUNED_MAX = 64
NAMES_CHARS_MAX = 2_000
"""Of names in the header, whatever they are made of: with a longer one nothing that stands in it would be heard."""
NUMBER_MAX = 2**53 - 1
PROBE = "?does-this-node-lead?"
"""Longer than any id may be: removing it changes nothing, and a real node answers 200 only while it leads."""
OPEN = ("/heartbeat", "/leader")
"""Asked without credentials."""


class Credentials(NamedTuple):
    """A user and a password, of Basic authentication."""

    user: str
    password: str

    @property
    def header(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def is_allowed(header: str | None, accepted: Iterable[Credentials]) -> bool:
    """Compared in constant time, each of those that are accepted."""
    kind, _, said = (header or "").partition(" ")
    try:
        given = base64.b64decode(said.strip(), validate=True) if kind.lower() == "basic" else b""
    except (binascii.Error, ValueError):
        given = b""
    digest = hashlib.blake2b(given).digest()
    found = False
    for each in accepted:
        wanted = hashlib.blake2b(f"{each.user}:{each.password}".encode()).digest()
        found |= compare_digest(digest, wanted)
    return found


# --- bodies -----------------------------------------------------------------------------------------------------------


def texts_in(body: bytes) -> dict[str, str] | None:
    """The first JSON value of a body as real nodes read it: an object of texts; null is the empty one."""
    try:
        value, _ = json.JSONDecoder().raw_decode(body.decode("utf-8", "replace").lstrip(" \t\r\n"))
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    if not isinstance(value, dict):
        return None
    found = {}
    for key, each in value.items():
        if each is not None and not isinstance(each, str):
            return None
        found[key] = each or ""
    return found


def is_id(text: str) -> bool:
    """Of use as a node's id: printable, hence on one line, and not too long."""
    try:
        return 0 < len(text.encode()) <= ID_BYTES_MAX and text.isprintable()
    except UnicodeEncodeError:
        return False


def address_of(text: str, remote: str = "") -> str | None:
    """`host:port` as others can dial it. Where the host is missing, or any is meant, it is `remote`."""
    if not text or len(text) > 255 or wrong_address(text, host_needed=False):
        return None
    host, _, port = text.rpartition(":")
    if host not in ("", "0.0.0.0", "[::]"):
        return text
    if not remote:
        return None
    return f"[{remote}]:{port}" if ":" in remote else f"{remote}:{port}"


def dialled(peers: Mapping[str, str], at: str) -> dict[str, str]:
    """What the node at this address says of others, as far as others can dial it."""
    host = at.rpartition(":")[0].removeprefix("[").removesuffix("]")
    found = {name: address_of(addr, host if addr != at else "") for name, addr in peers.items() if is_id(name)}
    return {name: addr for name, addr in found.items() if addr is not None}


def encoded(value: Mapping[str, Any]) -> bytes:
    """As Go writes it: sorted, without spaces, with the marks of HTML escaped."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text.encode("utf-8", "replace")


def id_body(node: str) -> bytes:
    return encoded({"id": node})


def join_body(node: str, addr: str) -> bytes:
    """Exactly two fields: a third makes a real node refuse it."""
    return encoded({"addr": addr, "id": node})


def join_answer(leader: str, peers: Mapping[str, str]) -> bytes:
    return encoded({"leader": leader, "peers": dict(peers)}) + b"\n"


class JoinAnswer(NamedTuple):
    """What a node says to one that joins."""

    leader: str
    peers: dict[str, str]


def read_join_answer(body: bytes) -> JoinAnswer | None:
    """As a real node reads it: members by any case, a missing leader is nobody."""
    found = object_in(body)
    if found is None:
        return None
    said = {key.lower(): value for key, value in found.items()}
    leader, peers = said.get("leader"), said.get("peers")
    leader = "" if leader is None else leader
    peers = {} if peers is None else peers
    if not isinstance(leader, str) or not isinstance(peers, dict):
        return None
    if not all(isinstance(value, str) for value in peers.values()):
        return None
    return JoinAnswer(leader, peers)


def object_in(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# --- the header -------------------------------------------------------------------------------------------------------


def pairs(said: Mapping[str, str | int]) -> str:
    """One header line, in ASCII whatever the values are."""
    return "&".join(f"{key}={quote(str(value), safe=':,/')}" for key, value in said.items() if value != "")


class Said:
    """What another node says in the header; nothing, if it has none. Values that make no sense are not there."""

    def __init__(self, header: str | None) -> None:
        self.is_ours = bool(header)
        self._values: dict[str, str] = {}
        if header and len(header) <= HEADER_CHARS_MAX:
            try:
                self._values = dict(parse_qsl(header, keep_blank_values=True, max_num_fields=32))
            except ValueError:
                self.is_ours = False
        name = self.text("node")
        self.node = name if is_id(name) else ""

    def text(self, key: str) -> str:
        value = self._values.get(key, "")
        return value if value.isprintable() and len(value) <= 255 else ""

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def number(self, key: str) -> int:
        value = self._values.get(key, "")
        found = int(value) if value.isascii() and value.isdigit() and len(value) <= 20 else 0
        return found if found <= 2**63 - 1 else 0

    def names(self, key: str) -> tuple[str, ...]:
        names = map(unquote, self._values.get(key, "").split(",")[:PRUNED_MAX])
        return tuple(name for name in names if is_id(name))

    def data(self, key: str) -> bytes:
        try:
            return base64.b64decode(self._values.get(key, ""), validate=True)
        except (binascii.Error, ValueError):
            return b""


def as_names(names: Iterable[str]) -> str:
    """As many as fit into their part of the header, where they are quoted once more."""
    taken: list[str] = []
    left = NAMES_CHARS_MAX
    for name in tuple(names)[:PRUNED_MAX]:
        said = quote(name, safe="")
        left -= len(quote(said, safe="")) + 1
        if left < 0:
            break
        taken.append(said)
    return ",".join(taken)


def as_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- requests and answers, as both ends of a socket have them ---------------------------------------------------------


class Asked(NamedTuple):
    """A request, read whole."""

    method: str
    path: str
    authorization: str | None
    header: str | None
    body: bytes
    too_long: bool
    remote: str


class Reply(NamedTuple):
    """Its answer."""

    status: int
    body: bytes = b""
    said: str = ""
    kind: str = "application/json"


class Answer(NamedTuple):
    """What came back."""

    status: int
    said: Said
    body: bytes


class Silent(NamedTuple):
    """Nothing came back. `refused`: nobody listens there, which is known at once."""

    refused: bool
    why: str
