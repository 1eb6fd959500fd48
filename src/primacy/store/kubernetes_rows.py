"""A lease's row as a Lease of Kubernetes.

The row stands in an annotation, whole; it alone decides. What the Lease itself has fields for (who holds, since when,
for how long) is written beside it for people and for `kubectl get leases`, and is read by nobody here.

Names of leases may have more characters than names of objects: one that does not fit is written in base32.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from primacy.election.store import Row, node_of
from primacy.errors import Refused
from primacy.store.port import checked_row

API = "coordination.k8s.io/v1"
ROW = "primacy-row"
"""The annotation."""
TABLE = "primacy-table"
"""The label, by which all rows of one table are found."""
FIELDS = ("holder", "token", "seq", "hold_ms", "wait_ms", "released", "members", "successor", "server", "proof")
ENCODED = "x--"
"""Begins a name that is written in base32."""
PLAIN = re.compile(r"(?!x--)[a-z0-9]([a-z0-9-]*[a-z0-9])?")
VERSION = re.compile(r"[0-9]{1,19}")
UID = re.compile(r"[0-9A-Za-z-]{1,40}")


class Known(NamedTuple):
    """A Lease as it was last seen. Without one: uid is empty."""

    uid: str = ""
    version: str = ""
    """Its resourceVersion."""
    row: Row | None = None
    """As it stands there, with its mark."""
    body: Mapping[str, Any] = MappingProxyType({})
    """The whole object: what others have added to it stays."""


def object_name(table: str, name: str) -> str:
    """What the Lease of this row is called."""
    return f"{_part(table.replace('_', '-'))}.{_part(name)}"  # no table has a hyphen of its own


def _part(text: str) -> str:
    if PLAIN.fullmatch(text):
        return text
    return ENCODED + base64.b32encode(text.encode()).decode().lower().rstrip("=")


def known(name: str, body: dict[str, Any]) -> Known:
    """From an answer. Raises `Refused` if it is not one of primacy's."""
    meta = body["metadata"]
    uid, version = str(meta["uid"]), str(meta["resourceVersion"])
    if not UID.fullmatch(uid) or not VERSION.fullmatch(version):
        raise ValueError(f"uid {uid[:40]!r}, resourceVersion {version[:40]!r}")
    found = _document(name, body)
    try:
        row = checked_row([*(found.get(field) for field in FIELDS), f"{uid}.{version}", True])
    except Refused as error:
        raise Refused(f"the Lease {meta['name']!s:.120}: {error}") from None
    return Known(uid, version, row, body)


def name_in(body: dict[str, Any]) -> str:
    """The name of the lease that stands in it; empty if it is none of primacy's."""
    try:
        return str(_document("", body)["name"])
    except (Refused, KeyError):
        return ""


def written_at(body: dict[str, Any]) -> str:
    return str(_document("", body).get("written_at", ""))[:40]


def made(table: str, namespace: str, name: str, row: Row, before: Known) -> dict[str, Any]:
    """The object to be written: instead of the one before, and only of that very one."""
    now = datetime.datetime.now(datetime.UTC)
    fields = {field: getattr(row, field) for field in FIELDS}
    document = {
        "name": name,
        **fields,
        "released": int(row.released),
        "written_at": now.isoformat(timespec="milliseconds"),
    }
    old_meta, old_spec = before.body.get("metadata", {}), before.body.get("spec") or {}
    meta = {
        key: old_meta[key] for key in ("uid", "resourceVersion", "ownerReferences", "finalizers") if key in old_meta
    }
    meta |= {
        "name": object_name(table, name),
        "namespace": namespace,
        "labels": {**(old_meta.get("labels") or {}), TABLE: table},
        "annotations": {
            **(old_meta.get("annotations") or {}),
            ROW: json.dumps(document, separators=(",", ":")),
        },
    }
    return {"apiVersion": API, "kind": "Lease", "metadata": meta, "spec": _spec(row, before.row, old_spec, now)}


def _spec(row: Row, before: Row | None, old: dict[str, Any], now: datetime.datetime) -> dict[str, Any]:
    """For people: who holds, since when, for how long."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    is_new = before is None or before.token != row.token
    changes = old.get("leaseTransitions")
    spec: dict[str, Any] = {
        "leaseDurationSeconds": max(1, -(-row.wait_ms // 1_000)),
        "renewTime": stamp,
        "acquireTime": stamp if is_new else old.get("acquireTime") or stamp,
        "leaseTransitions": (changes if type(changes) is int and 0 <= changes < 2**31 - 1 else 0) + is_new,
    }
    if row.holder and not row.released:
        spec["holderIdentity"] = node_of(row.holder)
    return spec


def _document(name: str, body: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(body["metadata"]["annotations"][ROW])
    except (ValueError, KeyError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict) or (name and found.get("name") != name):
        called = str(body.get("metadata", {}).get("name"))[:120]
        raise Refused(f"the Lease {called} is not one of primacy's: it holds no row of that name")
    return found
