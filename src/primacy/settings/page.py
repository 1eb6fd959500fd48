"""docs/config.md, made from the schema, so that the page and the program cannot disagree.

python -m primacy.settings.page > docs/config.md
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from typing import Any

from primacy.settings.rule import Rule, key_of, rule_of
from primacy.settings.schema import Settings
from primacy.settings.timing import PROFILES, PROFILES_OF, RANK_PROFILES, RankTiming, Timing, for_lease
from primacy.settings.timing_cache import CACHE_PROFILES

HEAD = """\
# The file

One YAML file, the same on every node. Which node this is: `--node`, else `cluster.node`, else the host name if it is
listed. Unknown keys are errors that name the nearest known one, and all problems are reported at once: `primacy check`.
Spans of time (`_ms`) are written `250ms`, `3s`, `2m`, `1h`, or as plain milliseconds.
Scalars are read by what the setting needs, so that a slot `000` and a password `12345` need no quotes. A file has at
most 256 KiB. A Ghoti file is a valid file: its `addr`, `protocol`, `users`, `metrics`, `telemetry` and `slot_NNN` are
accepted spellings of `slots.*`.

This page is made from the settings themselves (`python -m primacy.settings.page`), and a test compares it.
"""

TAIL = """\
## Relations

`primacy check` refuses, with both settings and both values named:

- a profile or a time that does not fit the strategy;
- times out of order: heartbeat < TERM < KILL < dead-man < hold;
- too little room for the kill itself between KILL, dead-man and the end of the hold;
- fewer lost heartbeats borne than 2 (raft) or 1 (lease);
- a promise shorter than the hold on the fastest clock (raft), because every winner would have to wait;
- raft without a fixed list; lease without a store; a witness where nobody counts votes; a list in which nobody leads;
- one address for two nodes or peers; a node that is not in the list;
- `control.listen` or `cache.http` open to others without a certificate;
- of the cache: ANNOUNCE < cancel < hold, with room to end a call; a promise shorter than the hold on the slowest clock;
  copies fresh for less than a hold; `security: none` off loopback without `allow_open`; a secret that is needed and not
  given; `mode: mixed` with other times or security than the original's; values that fit into no storage.

Of `elections`, every entry is checked like this, with what it takes from `election` and `run`. Refused is a placement
that names a node or an election that is not there, prefers a node that may not lead it, or wants an election both with
another one and away from it.

The *configuration hash* covers `cluster.name`, the nodes (id, address, kind, priority) and everything of `election` but
`store.url`, with the times as they are after profile and overrides. Nodes whose hashes differ exchange no votes.
"""


def config_page() -> str:
    """The whole page."""
    parts = [HEAD, _section(Settings, "", "")]
    parts.append(_profiles())
    parts.append(TAIL)
    return "\n".join(parts)


def _section(cls: type[Any], path: str, text: str) -> str:
    """A heading and a table for one section, then its sections."""
    title = f"## `{path}`\n\n{text}\n" if path else "## Top level\n"
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    inner = []
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        rule = rule_of(field)
        if rule.hidden:
            continue
        kind, key = hints[field.name], key_of(field)
        here = f"{path}.{key}" if path else key
        section = _section_of(kind)
        if rule.like:
            rows.append(f"| `{key}` | a section like `{rule.like}` | | {rule.text} |")
            continue
        if section:
            shape = {dict: "a section of sections", tuple: "a list of sections"}.get(
                typing.get_origin(kind), "a section"
            )
            rows.append(f"| `{key}` | {shape}, below | | {rule.text} |")
            named = "NAME" if here == "elections" else "ID"
            below = {dict: here if rule.inline else f"{here}.{named}", tuple: f"{here}[]"}.get(
                typing.get_origin(kind), here
            )
            inner.append(_section(section, below, rule.text))
            continue
        also = f" Also `{'`, `'.join(rule.also)}`." if rule.also else ""
        rows.append(f"| `{key}` | {_value(kind, rule)} | {_default(field)} | {rule.text}{also} |")
    return "\n".join([title, *rows, "", *inner])


def _section_of(kind: Any) -> type[Any] | None:
    """The dataclass inside a type, if there is one."""
    for one in (kind, *typing.get_args(kind)):
        if dataclasses.is_dataclass(one) and isinstance(one, type):
            return one
    return None


def _value(kind: Any, rule: Rule) -> str:
    if isinstance(kind, types.UnionType):
        kind = next(k for k in typing.get_args(kind) if k is not types.NoneType)
    if rule.choices:
        return " \\| ".join(f"`{choice}`" for choice in rule.choices)
    if kind is int:
        return f"{rule.least:,} to {rule.most:,}" if rule.least is not None and rule.most is not None else "a number"
    if kind is bool:
        return "`true` \\| `false`"
    if typing.get_origin(kind) is tuple:
        return "one or a list" if rule.one_or_more else "a list of words"
    if typing.get_origin(kind) is dict:
        return "`name: [words]` pairs" if typing.get_args(kind)[1] is not str else "`name: text` pairs"
    return "text"


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value in (None, "") or value is dataclasses.MISSING:
        return ""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    return f"`{value}`"


def _profiles() -> str:
    """The table of profiles, from the numbers themselves."""
    rows = ["## Profiles\n", "raft and lease, milliseconds after the last proved renewal left the holder:\n"]
    rows.append(
        "| profile | for | heartbeat | TERM | KILL | dead-man | hold | successor waits | promise "
        "| candidates campaign |"
    )
    rows.append("|---|---|---|---|---|---|---|---|---|---|")
    for name, t in PROFILES.items():
        campaign = f"{t.promise_ms:,} to {t.promise_ms + t.spread_ms:,}"
        numbers = (t.heartbeat_ms, t.term_at_ms, t.kill_at_ms, t.deadman_at_ms, t.hold_ms, t.wait_ms, t.promise_ms)
        rows.append(f"| `{name}` | {_users(name, Timing)} | {' | '.join(f'{n:,}' for n in numbers)} | {campaign} |")
    at = ", ".join(f"`{name}` {for_lease(PROFILES[name]).heartbeat_ms:,}" for name in PROFILES_OF["lease"])
    look = ", ".join(f"`{name}` {PROFILES[name].look_ms:,}" for name in PROFILES_OF["lease"])
    rows += ["", "A lease renews less often, for each renewal is a statement of a database: so that one may be lost"]
    rows += [f"before TERM. Heartbeat: {at}.", f"The others look after at least: {look}."]
    rows += [
        "",
        "bully and ring, milliseconds:\n",
        "| profile | heartbeat | misses | answer | election | coordinator |",
    ]
    rows.append("|---|---|---|---|---|---|")
    for name, r in RANK_PROFILES.items():
        rows.append(f"| `{name}` | {' | '.join(f'{n:,}' for n in r)} |")
    rows += [
        "",
        "cache, milliseconds (`cache.profile`; `ha-cache` is that of `mode: mixed`, with the document's times):\n",
    ]
    rows.append("| profile | ANNOUNCE | cancel | hold | promise | election | PING | out of touch | copies fresh for |")
    rows.append("|---|---|---|---|---|---|---|---|---|")
    for name, c in CACHE_PROFILES.items():
        own = (c.cancel_at_ms, c.hold_ms, c.promise_ms)
        shown = [f"{n:,}" for n in own] if name != "ha-cache" else ["-"] * 3
        elections = f"{c.election_ms:,}" if name != "ha-cache" else f"{c.candidate_min_ms} to {c.candidate_max_ms}"
        fresh = f"{c.touch_ms:,}" if name != "ha-cache" else "-"
        rows.append(
            f"| `{name}` | {c.announce_ms:,} | {' | '.join(shown)} | {elections} | {c.ping_ms:,} | {c.ping_lost_ms:,} "
            f"| {fresh} |"
        )
    return "\n".join([*rows, ""])


def _users(profile: str, kind: type[Timing | RankTiming]) -> str:
    names = [
        s for s, profiles in PROFILES_OF.items() if profile in profiles and (s in ("raft", "lease")) == (kind is Timing)
    ]
    return ", ".join(names)


if __name__ == "__main__":
    sys.stdout.write(config_page())
