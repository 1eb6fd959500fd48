"""The canonical form of a file, which `primacy check` prints, and the hash by which nodes know that they agree."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from primacy.settings.loading import store_url, timing_of
from primacy.settings.rule import key_of, rule_of
from primacy.settings.schema import Settings

HIDDEN = "********"
"""In place of a secret; long enough to be accepted where a password is."""
ALWAYS = ("cluster", "election")
HASH_BYTES = 16
HASHED_AS = {"heartbeat_ms": "beat_ms"}
"""By the name of a time: the one that stands in the hash."""


def canonical(settings: Settings) -> dict[str, Any]:
    """Settings as they stand in a file: our own spelling, one order, defaults of used sections said, secrets hidden.

    Read again it gives the same settings (but for the secrets). Sections that say nothing are left out.
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if rule_of(field).hidden:
            continue
        if not dataclasses.is_dataclass(value):
            if value:
                found[key_of(field)] = _entries(value, settings) if field.name == "elections" else value
        elif field.name in ALWAYS or not _says_nothing(value):
            found[key_of(field)] = _section(value)
    if settings.elections:
        del found["election"]["name"]  # the keys there are the names
    return found


def _entries(entries: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Each whole. A section that says nothing is said all the same where it would be taken from the common one."""
    common = {"run": settings.run, "timing": settings.election.timing, "store": settings.election.store}
    return {
        name: {
            **_section(entry),
            **{word: _section(getattr(entry, word)) for word, one in common.items() if not _says_nothing(one)},
        }
        for name, entry in entries.items()
    }


def config_hash(settings: Settings, nodes: Mapping[str, tuple[str, str, int]] | None = None) -> str:
    """What two nodes must have in common to exchange votes: name, nodes, all of the election but the store's URL.

    Times count as they are, not by the profile's name, so that a profile whose numbers change is noticed. `nodes`:
    address, kind and priority of others than the file's. Of raft, whose members are a register, `plain_hash` counts.
    """
    if nodes is None:
        listed = settings.cluster.manager.nodes
        nodes = {name: (node.addr, node.kind, node.priority) for name, node in listed.items()}
    return _digest(settings, {"nodes": nodes})


def plain_hash(settings: Settings) -> str:
    """The same without the nodes: they are a register, and change while the nodes run (rules R)."""
    return _digest(settings, {})


def lease_hash(settings: Settings) -> str:
    """Which lease a node means, so that two nodes know whether they look at the same row (M1).

    How it is spelled does not count: no user, password or option, but hosts, database, table and failsafe. Times do not
    either, for the row tells them. A name and a number of one host are two.
    """
    store = settings.election.store
    covered = [
        settings.cluster.name,
        settings.election.name,
        settings.election.strategy,
        place_of_store(store_url(settings)),
        store.table,
        settings.election.failsafe,
    ]
    text = json.dumps(covered, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).hexdigest()


PORTS = {"postgresql": 5432, "mysql": 3306, "etcd": 2379, "redis": 6379}
SCHEMES = {"postgres": "postgresql", "mariadb": "mysql", "etcds": "etcd", "rediss": "redis"}
PLACES = ("host", "hostaddr", "port", "dbname", "unix_socket")
"""What may stand behind the `?` of an address and says where the store is."""


def place_of_store(url: str) -> list[str]:
    """Kind, hosts in order, database and what else tells one store from another."""
    scheme = re.split(r"[:+]", url, maxsplit=1)[0].lower()
    scheme = SCHEMES.get(scheme, scheme)
    where, _, query = url.partition(":")[2].partition("?")
    if scheme == "kubernetes":
        return [scheme, where.strip("/")]
    if scheme not in PORTS:
        return [scheme, where]
    hosts, _, path = where.removeprefix("//").rpartition("@")[2].partition("/")
    known = [host if re.search(r":\d+$", host) else f"{host}:{PORTS[scheme]}" for host in hosts.lower().split(",")]
    options = sorted(one for one in query.split("&") if one.partition("=")[0] in PLACES)
    database = path.strip("/") or ("0" if scheme == "redis" else "")
    return [scheme, *sorted(known), f"/{database}", *options]


def _digest(settings: Settings, more: dict[str, Any]) -> str:
    election = {
        name: getattr(settings.election, name)
        for name in ("name", "strategy", "rank", "mode", "require_majority", "prune_after_ms", "failsafe")
    }
    covered = {
        "cluster": settings.cluster.name,
        **more,
        "election": {
            **election,
            "timing": _hashed(timing_of(settings)._asdict()),
            "table": settings.election.store.table,
        },
    }
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).hexdigest()


def _hashed(times: dict[str, int]) -> dict[str, int]:
    """Under the names of the first version: nodes of two versions of primacy have one hash, and vote for each other."""
    return {HASHED_AS.get(name, name): span for name, span in times.items()}


def _section(section: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(section):
        value, rule = getattr(section, field.name), rule_of(field)
        if value is None or value in ("", (), {}):
            continue
        if rule.inline:
            found.update({key: _section(value[key]) for key in sorted(value)})
        elif rule.secret:
            found[key_of(field)] = _hidden(value)
        elif dataclasses.is_dataclass(value):
            inner = _section(value)
            if inner and not _says_nothing(value):
                found[key_of(field)] = inner
        else:
            found[key_of(field)] = _plain(value)
    return found


def _says_nothing(section: Any) -> bool:
    return bool(section == type(section)())


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _section(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    return value


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return dict.fromkeys(sorted(value), HIDDEN)
    address = re.fullmatch(r"([a-z+0-9]+://)([^/@]*@)?(.*)", str(value), re.DOTALL)
    if not address:
        return HIDDEN
    user = (address[2] or "").partition(":")[0].rstrip("@")
    shown_user = f"{user}:{HIDDEN}@" if address[2] and ":" in address[2] else address[2] or ""
    query = re.sub(r"(?i)(pass[a-z]*|secret|token|key)=[^&]*", rf"\1={HIDDEN}", address[3])
    return f"{address[1]}{shown_user}{query}"
