"""Rows as they stand in Redis, and the one script that reads and writes them.

A table is one hash: a field per lease, and one for the genesis row. So the rows are counted in one step, nothing of a
table can be evicted or expire without all of it, and a cluster keeps it on one node.

The script decides nothing. It is told what each row was, byte for byte, and what it shall be; every row has a random
proof in it, so that the same bytes are the same write. Everything that the rules compare (L1 to L4, L9, L10) is judged
beforehand on what was read (`conditions.py`), and the bytes prove that it still stands there. The identity is read by
the script itself, in the same step as it writes (L5). No clock stands in it (L1).
"""

from __future__ import annotations

import datetime
import json
from hashlib import sha1
from typing import Any, NamedTuple

from primacy.election.store import GENESIS, Genesis, Row
from primacy.errors import Refused
from primacy.store.port import checked_genesis, checked_row

ROW = ("holder", "token", "seq", "hold_ms", "wait_ms", "released", "members", "successor", "server", "proof")
GENESIS_FIELDS = ("settled", "wait_max_ms", "floor", "names", "version")

LOOK, WRITE, REMOVE, SETTLE = "look", "write", "remove", "settle"
"""What a step does: nothing, a row (and the genesis row with it), a row goes, only the genesis row."""

SCRIPT = f"""#!lua flags=allow-oom
-- KEYS[1]: the hash. ARGV[1]: the identity that all of it is meant for, ARGV[2]: where to tell of it.
-- Then for each step: its kind, the name, the row as it was and as it shall be, the genesis row likewise, how many
-- fields there were, and what to tell. What was not there, and what shall not be written, is empty.
local info = redis.call('INFO', 'server', 'replication', 'cluster')
local function of(field) return string.match(info, '\\n' .. field .. ':([^\\r\\n]*)') or '' end
local function row(name) return redis.call('HGET', KEYS[1], name) end
local server = of('run_id') .. ':' .. of('master_replid') .. ':' .. of('role')
local found = {{}}
for at = 3, #ARGV, 8 do
  local kind, name, was, new = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local genesis_was, genesis_new, fields, told = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
  local done = kind ~= '{LOOK}' and ARGV[1] == server
    and (kind == '{SETTLE}' or (row(name) or '') == was)
    and (genesis_new == '' or (row('{GENESIS}') or '') == genesis_was)
    and (fields == '' or redis.call('HLEN', KEYS[1]) == tonumber(fields))
  if done then
    if kind == '{WRITE}' then redis.call('HSET', KEYS[1], name, new) end
    if kind == '{REMOVE}' then redis.call('HDEL', KEYS[1], name) end
    if genesis_new ~= '' then redis.call('HSET', KEYS[1], '{GENESIS}', genesis_new) end
    -- who may not publish may write all the same: an error here must not end a step that has begun to write
    if told ~= '' then redis.pcall('PUBLISH', ARGV[2], told) end
  end
  found[#found + 1] = done and 1 or 0
  found[#found + 1] = row(name)
end
return {{server, of('master_repl_offset'), of('cluster_enabled'), row('{GENESIS}'), redis.call('HLEN', KEYS[1]), found}}
"""
"""`allow-oom`: a server whose memory is full still lets a holder renew; what is written is as large as what was."""
SCRIPT_SHA = sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()


class Step(NamedTuple):
    """One row, as the script takes it."""

    kind: str
    name: str
    was: bytes = b""
    new: bytes = b""
    genesis_was: bytes = b""
    genesis_new: bytes = b""
    fields: str = ""
    told: str = ""


def row_text(row: Row) -> bytes:
    fields = {field: getattr(row, field) for field in ROW}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return _packed({**fields, "released": int(row.released), "written_at": now})


def genesis_text(genesis: Genesis, proof: str) -> bytes:
    return _packed({**{field: getattr(genesis, field) for field in GENESIS_FIELDS}, "proof": proof})


def row_of(name: str, text: bytes) -> Row:
    """Raises `Refused` if it is not one of primacy's. There is no mark in Redis: every row vouches (L5)."""
    found = _document(name, text)
    try:
        return checked_row([*(found.get(field) for field in ROW), "", True])
    except Refused as error:
        raise Refused(f"the field {name[:160]!r} in Redis: {error}") from None


def genesis_of(text: bytes, count: int) -> Genesis:
    found = _document(GENESIS, text)
    try:
        return checked_genesis([*(found.get(field) for field in GENESIS_FIELDS), "", True, count])
    except Refused as error:
        raise Refused(f"the field {GENESIS!r} in Redis: {error}") from None


def written_at(name: str, text: bytes) -> str:
    """By the clock of who wrote it; for people."""
    return str(_document(name, text).get("written_at", ""))[:40]


def _packed(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _document(name: str, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(f"the field {name[:160]!r} in Redis is not one of primacy's: it holds no row")
    return found
