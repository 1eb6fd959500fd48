"""A lease's row, and the genesis row, as the value of a key in etcd; and what vouches for it (L5).

The value carries what its writer knew of the history it wrote in: the raft index (`index`), a lower bound, and which
change of this key it is (`version`). A cluster that was restored from a snapshot counts raft indices from one again,
so that a row of before has one above the present. A value that was put back by hand has another version than its key.

The genesis row has the same fields, so that version 0.1 reads it as a lease that nobody needs: `server` is the settled
identity, `wait_ms` wait_max, `token` the floor, `hold_ms` the names and `seq` the version.
"""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any, NamedTuple

from primacy.election.store import Genesis, Row
from primacy.errors import Refused
from primacy.store.port import checked_genesis, checked_row

INDEX_LEAST = 1_000
"""Below this, a restored cluster soon has as many entries as the row is old: its index proves little (`watched`)."""
INDEX_MAX = 2**63
PLAIN = ("holder", "token", "seq", "hold_ms", "wait_ms", "released", "members", "successor", "server")
"""The fields of version 0.1."""


class Known(NamedTuple):
    """A key as it was last seen. Without a value: revision and version are 0, which is what etcd compares for none."""

    revision: int = 0
    version: int = 0
    """Changes since the key was made, by etcd's count."""
    raft_index: int = -1
    """Its writer's raft index; -1: none, or it is not this change of the key that has it."""
    row: Row | None = None
    genesis: Genesis | None = None

    @property
    def mark(self) -> str:
        return f"{self.revision}.{self.raft_index}"

    @property
    def is_young(self) -> bool:
        return self.revision > 0 and self.raft_index < INDEX_LEAST

    def vouches(self, index: int) -> bool:
        """Whether this very value was written in the history whose raft index is now this one."""
        return 0 <= self.raft_index <= index

    def row_at(self, index: int) -> Row | None:
        return None if self.row is None else self.row._replace(mark=self.mark, vouches=self.vouches(index))

    def genesis_at(self, index: int, count: int) -> Genesis:
        """If there is none: one that nobody can take for settled."""
        if self.genesis is None:
            return Genesis(vouches=False, count=count)
        return self.genesis._replace(mark=self.mark, vouches=self.vouches(index), count=count)


def known_row(kv: dict[str, Any]) -> Known:
    """From a key-value pair of an answer."""
    found = _document(kv)
    values = [found.get(field) for field in PLAIN]
    try:
        row = checked_row([*values, found.get("proof", ""), "", True])
    except Refused as error:
        raise Refused(f"the key {key_of(kv)[:160]!r} in etcd: {error}") from None
    return _known(kv, found)._replace(row=row)


def known_genesis(kv: dict[str, Any]) -> Known:
    """From its key-value pair."""
    found = _document(kv)
    values = [found.get(field) for field in ("server", "wait_ms", "token", "hold_ms", "seq")]
    try:
        genesis = checked_genesis([*values, "", True, -1])
    except Refused as error:
        raise Refused(f"the key {key_of(kv)[:160]!r} in etcd: {error}") from None
    return _known(kv, found)._replace(genesis=genesis)


def row_value(row: Row, version: int, index: int) -> str:
    fields = {field: getattr(row, field) for field in PLAIN}
    return _text({**fields, "released": int(row.released), "proof": row.proof}, version, index)


def genesis_value(genesis: Genesis, version: int, index: int) -> str:
    fields = {
        "holder": "",
        "token": genesis.floor,
        "seq": genesis.version,
        "hold_ms": genesis.names,
        "wait_ms": genesis.wait_max_ms,
        "released": 1,
        "members": "",
        "successor": "",
        "server": genesis.settled,
    }
    return _text(fields, version, index)


def written_at(kv: dict[str, Any]) -> str:
    return str(_document(kv).get("written_at", ""))[:40]


def key_of(kv: dict[str, Any]) -> str:
    return base64.b64decode(kv["key"]).decode(errors="replace")


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _text(fields: dict[str, Any], version: int, index: int) -> str:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return json.dumps({**fields, "version": version, "index": index, "written_at": now}, separators=(",", ":"))


def _known(kv: dict[str, Any], found: dict[str, Any]) -> Known:
    version, index = found.get("version"), found.get("index")
    if type(index) is not int or not 0 <= index < INDEX_MAX or version != int(kv["version"]):
        index = -1
    return Known(int(kv["mod_revision"]), int(kv["version"]), index)


def _document(kv: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(base64.b64decode(kv["value"]))
    except (ValueError, KeyError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(f"the key {key_of(kv)[:160]!r} in etcd is not one of primacy's: it holds no row")
    return found
