"""Who asked for an order, as far as the control API knows it. For the record: what counts is the control key.

The one who asks says a name in the header that every order has. From another machine the address is known besides, and
the name in the certificate, if one had to be shown.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from primacy.control import ORDER_HEADER, NodeStatus
from primacy.control.loopback import is_loopback
from primacy.control.members import BY_CHARS_MAX
from primacy.control.requests import NAMED, target_of
from primacy.errors import PrimacyError

PLAIN = "1"
"""The header of somebody that says no name."""
CERTIFIED_CHARS_MAX = 40
FIRST = (0, 2)
"""The version whose nodes take a name with every order that is passed on to them."""


def asker_of(request: web.Request) -> str:
    """Empty if nothing is known but that the key was shown on this machine."""
    said = request.headers.get(ORDER_HEADER, "")
    name = said if said != PLAIN and said.isprintable() else ""
    remote = request.remote or ""
    known = [f"certificate of {certified}"] if (certified := _certified(request)) else []
    known += [f"from {remote}"] if remote and not is_loopback(remote) else []
    beside = f" ({', '.join(known)})" if name and known else ", ".join(known)
    return (name[: BY_CHARS_MAX - len(beside)] + beside)[:BY_CHARS_MAX]


def _certified(request: web.Request) -> str:
    """The common name in the certificate that was shown and trusted."""
    shown: Any = request.transport.get_extra_info("peercert") if request.transport is not None else None
    if not isinstance(shown, dict):
        return ""
    parts = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    name = str(parts[0])[:CERTIFIED_CHARS_MAX] if parts else ""
    return name if name.isprintable() else ""


def with_asker(request: web.Request, body: dict[str, Any], status: NodeStatus) -> dict[str, Any]:
    """The order with who asked for it, unless it says so itself or is for a node that would refuse the field."""
    name, by = request.path.rpartition("/")[2], asker_of(request)
    if name not in (*NAMED, "approve", "members") or "by" in body or not by:
        return body
    try:
        heard = status.others.get(target := target_of(name, body, status))
    except PrimacyError:  # it is refused in a moment, with the same sentence
        return body
    if target and name in NAMED and not (heard is not None and takes_names(heard.summary.version)):
        return body
    return {**body, "by": by}


def takes_names(version: str) -> bool:
    """Whether a node of this version takes a name with an order that is passed on; an older one refuses the field."""
    parts = version.split(".")[:2]
    return all(part.isdigit() for part in parts) and tuple(map(int, parts)) >= FIRST
