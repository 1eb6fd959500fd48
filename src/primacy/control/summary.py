"""What a node says of itself to the others, about once a second and when it changes: so that any one shows them all.

A row of plain values in one small datagram. It is for people: nothing is decided by it. A later version may add values
at the end, which are ignored here, and words that are not known here, which are shown as `?`. The texts are cut so that
the longest names fit.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, NamedTuple

from primacy import __version__
from primacy.control import NodeStatus
from primacy.election.model import Role

SUMMARY = 1
"""The kind of this row; the others are in `gossip_rows.py`."""
ROLES = tuple(str(role) for role in Role)
STATES = ("stopped", "waiting", "starting", "running", "stopping", "stuck")
KINDS = ("none", "process", "slots")
CONTAINMENTS = ("", "strong", "weak")
WAITS_BYTES_MAX = 130
HEALTH_BYTES_MAX = 60
VERSION_CHARS_MAX = 16
NAME_CHARS_MAX = 20
DOUBLED_MAX = 2
UNTOLD_MAX = 2
MEMBERS_AT = 17
"""The place in a row of what a node says of the members; nodes of an earlier version end before it."""
CONFIG_BYTES = 8
"""As much of the configuration hash as tells two files apart."""
NUMBER_MAX = 2**63 - 1
SENT_AT = 16
"""The place of the moment of sending in a row."""
DELAYS_KEPT = 20
"""News that the quickest is looked for in: seconds, in which no two clocks drift apart by a millisecond."""
UNKNOWN = "?"


class Summary(NamedTuple):
    """How one node stands, in its own words."""

    role: str
    term: int
    leader: str
    token: int
    hold_left_ms: int
    waits_for: str
    workload_kind: str
    workload_state: str
    run_ms: int
    """How long the command has run; -1 if it does not."""
    pid: int
    containment: str
    health: str
    version: str
    config: str
    """The beginning of its configuration hash."""
    doubled: tuple[str, ...]
    """Ids with which two nodes run, as far as it hears."""
    members: tuple[int, int] = (0, 0)
    """Term and version of the members that it has; zeros for none."""
    untold: tuple[str, ...] = ()
    """Of a leader: who was removed and does not know it."""

    @property
    def news(self) -> tuple[Any, ...]:
        """What is worth telling at once when it changes: not what merely counts down."""
        waits = re.sub(r"[\d,]+", "", self.waits_for)
        what = (self.role, self.term, self.leader, self.token, self.workload_state, self.pid, self.health)
        return (*what, self.containment, waits, self.doubled, self.members, self.untold)


def summary_of(status: NodeStatus) -> Summary:
    """What this node says of itself now."""
    view, workload = status.view, status.workload
    ran = workload.since_ms and workload.state in ("running", "stopping", "stuck")
    return Summary(
        role=str(view.role),
        term=view.term,
        leader=view.leader,
        token=view.token,
        hold_left_ms=view.hold_left_ms,
        waits_for=view.waits_for,
        workload_kind=workload.kind,
        workload_state=str(workload.state),
        run_ms=max(0, status.now_ms - workload.since_ms) if ran else -1,
        pid=workload.pid,
        containment=workload.containment,
        health=status.health,
        version=__version__,
        config=status.config[: 2 * CONFIG_BYTES],
        doubled=tuple(trouble.node for trouble in status.troubles if trouble.alert),
        members=view.members or (0, 0),
        untold=view.removed_untold,
    )


def row_of(summary: Summary, sent_ms: int = 0) -> list[Any]:
    """As it travels. `sent_ms`: on the sender's own clock, for `delay_ms`."""
    return [
        SUMMARY,
        ROLES.index(summary.role),
        summary.term,
        summary.leader,
        summary.token,
        summary.hold_left_ms,
        KINDS.index(summary.workload_kind),
        STATES.index(summary.workload_state),
        summary.run_ms,
        summary.pid,
        CONTAINMENTS.index(summary.containment),
        bytes.fromhex(summary.config),
        summary.version[:VERSION_CHARS_MAX],
        short(summary.waits_for, WAITS_BYTES_MAX),
        "" if summary.health == "ok" else short(summary.health, HEALTH_BYTES_MAX),
        list(summary.doubled[:DOUBLED_MAX]),
        sent_ms,
        *((*summary.members, list(summary.untold[:UNTOLD_MAX])) if any(summary.members) else ()),
    ]


def sent_in(row: list[Any]) -> int | None:
    """When it was sent, on its sender's clock."""
    sent_ms = row[SENT_AT] if len(row) > SENT_AT else None
    return sent_ms if type(sent_ms) is int and 0 < sent_ms <= NUMBER_MAX else None


class Delays:
    """How long the news of one start were on their way, beyond the quickest of late.

    Two clocks agree about spans, whatever they show: news that took longer than others stood in a queue, most likely
    ours, while this machine or this process stood still. What they say is as much older.
    """

    def __init__(self) -> None:
        self._apart_ms: deque[int] = deque(maxlen=DELAYS_KEPT)

    def delay_ms(self, now_ms: int, sent_ms: int) -> int:
        self._apart_ms.append(now_ms - sent_ms)
        return self._apart_ms[-1] - min(self._apart_ms)


def summary_in(row: list[Any]) -> Summary | None:
    """What a row says, or None if it is none of ours. Whatever stands in it, nothing is raised."""
    try:
        _, role, term, leader, token, hold, kind, state, run, pid, held, config, version, waits, health, doubled = row[
            :16
        ]
        return Summary(
            role=_word(ROLES, role),
            term=_number(term),
            leader=_text(leader, NAME_CHARS_MAX),
            token=_number(token),
            hold_left_ms=_number(hold),
            waits_for=_text(waits, WAITS_BYTES_MAX),
            workload_kind=_word(KINDS, kind),
            workload_state=_word(STATES, state),
            run_ms=_number(run),
            pid=_number(pid),
            containment=_word(CONTAINMENTS, held),
            health=_text(health, HEALTH_BYTES_MAX) or "ok",
            version=_text(version, VERSION_CHARS_MAX),
            config=_bytes(config).hex(),
            doubled=tuple(_text(name, NAME_CHARS_MAX) for name in _list(doubled)),
            **_of_members(row[MEMBERS_AT : MEMBERS_AT + 3]),
        )
    except ValueError:
        return None


def _of_members(said: list[Any]) -> dict[str, Any]:
    """A node of an earlier version says nothing of them."""
    if len(said) < 3:
        return {}
    term, version, untold = said
    names = tuple(_text(name, NAME_CHARS_MAX) for name in _list(untold))
    return {"members": (_number(term), _number(version)), "untold": names}


def short(text: str, most_bytes: int) -> str:
    """At most so many bytes of UTF-8, with a mark where it was cut. Half of a character cannot be sent: it is a `?`."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return data.decode()
    return data[: most_bytes - 3].decode("utf-8", "ignore") + "…"


def _word(words: tuple[str, ...], place: Any) -> str:
    if type(place) is not int or place < 0:
        raise ValueError
    return words[place] if place < len(words) else UNKNOWN


def _number(value: Any) -> int:
    if type(value) is not int or not -1 <= value <= NUMBER_MAX:
        raise ValueError
    return value


def _text(value: Any, most: int) -> str:
    if type(value) is not str or len(value) > most or not value.isprintable():
        raise ValueError
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes or len(value) > CONFIG_BYTES:
        raise ValueError
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list or len(value) > DOUBLED_MAX:
        raise ValueError
    return value
