"""What a person did to a lab, as spans: from the sentences of its events. Pure.

A fault ends when it is mended: a killed or stopped node when it is started, a frozen one when it is thawed or gone, a
cut link when it is mended. What cannot be read is a moment with its sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from primacy.timeline.schema import Told

LAB = "lab"
NODE = re.compile(r"the lab (starts|stops|restarts|kills|freezes|thaws|kills the command of) node (\S+)")
CUT = re.compile(r"the lab cuts the link (between|from) ([^\s,]+) (?:and|to) ([^\s,]+)")
MEND_LINK = re.compile(r"the lab mends the link between ([^\s,]+) and ([^\s,]+)")
CUT_BEFORE = re.compile(r"the lab sets the link of (\S+) with (\S+): cut (both|in|out|none)")
"""As labs of before said it: their events are read as ever."""
DIVIDE = re.compile(r"the lab divides the network: (.*?)(?:, asked for by .*)?$")
MEND = "the lab mends all links"
STORE_AWAY, STORE_BACK = "the lab keeps the store from all nodes", "the lab gives the store back"
DOWN = {"stops": "stopped", "kills": "killed", "restarts": "restarted"}


class LabFault(NamedTuple):
    node: str
    """Empty: of the network."""
    from_ms: int
    to_ms: int
    what: str
    text: str


def lab_faults(events: Sequence[Told], end_ms: int) -> list[LabFault]:
    """`end_ms`: what still lasts ends there."""
    found: list[LabFault] = []
    lasting: dict[str, tuple[int, str, str, str]] = {}

    def begin(key: str, one: Told, node: str, what: str) -> None:
        close(key, one.at_unix_ms)
        lasting[key] = (one.at_unix_ms, node, what, what)

    def close(key: str, at_ms: int) -> None:
        if (before := lasting.pop(key, None)) is not None:
            since_ms, node, what, text = before
            found.append(LabFault(node, since_ms, at_ms, what, text))

    for one in sorted((one for one in events if one.code == LAB), key=lambda row: row.at_unix_ms):
        if (match := NODE.match(one.text)) is not None:
            verb, node = match[1], match[2].rstrip(",")
            if verb in DOWN:
                close(f"frozen {node}", one.at_unix_ms)
                begin(f"down {node}", one, node, DOWN[verb])
            elif verb == "freezes":
                begin(f"frozen {node}", one, node, "frozen")
            elif verb == "kills the command of":
                found.append(LabFault(node, one.at_unix_ms, one.at_unix_ms, "command killed", "command killed"))
            else:
                close(f"{'down' if verb == 'starts' else 'frozen'} {node}", one.at_unix_ms)
        elif (link := _link(one.text)) is not None:
            if link.what:
                begin(link.key, one, "", link.what)
            else:
                close(link.key, one.at_unix_ms)
        elif (match := DIVIDE.match(one.text)) is not None:
            begin("divided", one, "", f"divided: {match[1]}")
        elif one.text.startswith(STORE_AWAY):
            begin("store", one, "", "store away")
        elif one.text.startswith(STORE_BACK):
            close("store", one.at_unix_ms)
        elif one.text.startswith(MEND):
            for key in [key for key in lasting if key == "divided" or key.startswith("link ")]:
                close(key, one.at_unix_ms)
        else:
            found.append(LabFault("", one.at_unix_ms, one.at_unix_ms, "lab", one.text))
    for key in tuple(lasting):
        close(key, max(end_ms, lasting[key][0]))
    return sorted(found, key=lambda fault: (fault.from_ms, fault.node))


class _Link(NamedTuple):
    """What became of one link."""

    key: str
    what: str
    """Empty: it is whole again."""


def _link(text: str) -> _Link | None:
    how, one, other = "", "", ""
    if (match := CUT.match(text)) is not None:
        how, one, other = match.groups()
    elif (match := MEND_LINK.match(text)) is not None:
        one, other = match.groups()
    elif (match := CUT_BEFORE.match(text)) is not None:
        way = match[3]
        one, other = (match[2], match[1]) if way == "in" else (match[1], match[2])
        how = {"both": "between", "none": ""}.get(way, "from")
    else:
        return None
    what = f"link {how} {one} {'and' if how == 'between' else 'to'} {other} cut" if how else ""
    return _Link("link " + " with ".join(sorted((one, other))), what)


def restarted(fault: LabFault, started_ms: Sequence[int]) -> LabFault:
    """A restart ends when the node says that it started."""
    back = next((at_ms for at_ms in sorted(started_ms) if at_ms > fault.from_ms), None)
    ends = fault.what == "restarted" and back is not None and back < fault.to_ms
    return fault._replace(to_ms=back) if ends and back is not None else fault
