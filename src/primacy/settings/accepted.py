"""Which texts are accepted: names, ids, addresses. Each function returns what is wrong, in words, or nothing.

Commands ask the same of their arguments as the file does of its settings.
"""

from __future__ import annotations

import re
import shlex
from urllib.parse import urlsplit

ID_CHARS_MAX = 20
"""Ghoti refuses longer ids, and its nodes must be able to meet ours."""
ID_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ID_CHARS_MAX - 1}}}"
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
STRATEGIES = ("raft", "lease", "bully", "ring")
RANKS = ("id", "natural", "started", "priority")
SPAN_MS_MAX = 24 * 3600 * 1000
"""A day: no span of an election is longer, and a slip of the unit (microseconds) is noticed."""
HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
"""Labels, none of them empty or too long for the resolver."""


def wrong_address(text: str, *, host_needed: bool = True) -> str:
    """What is wrong with `host:port`, or nothing."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 1 <= int(port[:6]) <= 65_535:
        return "this is no host:port with a port from 1 to 65535, such as 10.0.0.1:7400"
    if not host:
        return "the host is missing; others must be able to dial it, such as 10.0.0.1:7400" if host_needed else ""
    if host.startswith("[") and host.endswith("]"):
        return "" if re.fullmatch(r"[0-9A-Fa-f:.%]+", host[1:-1]) else "this is no address in brackets, such as [::1]"
    if "/" in text:
        return "an address is a host and a port, nothing before or after, such as 10.0.0.1:7400"
    if ":" in host:
        return f"an IPv6 address goes in brackets: [{host}]:{port}"
    return "" if HOST.fullmatch(host) else "a host is a name or an address, such as 10.0.0.1:7400"


def wrong_listen(text: str) -> str:
    """What is wrong with an address to listen on: the host may be left out."""
    return wrong_address(text, host_needed=False)


def wrong_id(text: str) -> str:
    """What is wrong with the id of a node. In a fixed list ids are stricter; Ghoti's files may have any."""
    if 1 <= len(text) <= ID_CHARS_MAX and text.isprintable() and text == text.strip() and "/" not in text:
        return ""
    return f"an id has 1 to {ID_CHARS_MAX} characters that can be printed, none of them a slash"


def wrong_store(text: str) -> str:
    """What is wrong with the address of a store."""
    scheme = re.split(r"[:+]", text, maxsplit=1)[0]
    known = ("sqlite", "postgresql", "mysql", "mariadb", "etcd", "etcds", "redis", "rediss", "kubernetes")
    if scheme not in (*known, "postgres") or ("://" not in text and scheme != "kubernetes"):
        return f"a store is one of {', '.join(known)}, such as postgresql://host/db or sqlite:///leases.db"
    return ""


def wrong_zmq(text: str) -> str:
    """What is wrong with a ZeroMQ address."""
    if text.startswith("tcp://"):
        return wrong_address(text[6:].replace("*", "0.0.0.0"))
    if re.fullmatch(r"(ipc|inproc)://.+", text):
        return ""
    return "a peer's address starts with tcp://, such as tcp://10.0.0.1:6000"


def wrong_dialled(text: str) -> str:
    """What is wrong with a ZeroMQ address that others connect to."""
    if re.match(r"tcp://(\*|0\.0\.0\.0|\[::\]):", text):
        return "others must be able to connect to it; name the host here, and bind_url or bind_api for all addresses"
    return wrong_zmq(text)


KEY = "{key}"
"""In the template of a source, where the key of the entry goes."""


def url_of(source: str) -> str:
    """The URL template of a source: `http://...` and `https://...` are their own, `http:` may stand before either."""
    return source.removeprefix("http:") if re.match(r"http:https?://", source) else source


def wrong_source(text: str) -> str:
    """What is wrong with the source of a cache: `call:`, `http:` or `cmd:`."""
    if text.startswith("call:"):
        if re.fullmatch(r"call:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", text):
            return ""
        return "a function is named call:package.module:function"
    if text.startswith("cmd:"):
        return _wrong_command(text[4:])
    if text.startswith(("http:", "https:")):
        return _wrong_url(url_of(text))
    return "a source is call:package.module:function, http://host/path/{key}, or cmd:program {key}"


def _wrong_command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        return f"the command cannot be split into words: {error}"
    if not words or KEY in words[0]:
        return "the program is missing, such as cmd:./fetch {key}"
    if not any(KEY in word for word in words):
        return "the command does not say where the key goes, such as cmd:./fetch {key}"
    return ""


def _wrong_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and parts.port != 0 and parts.scheme in ("http", "https")
    except ValueError:
        usable = False
    if not usable or " " in text:
        return "this is no URL with a host, such as http://10.0.0.1/rates/{key}"
    if KEY in parts.netloc:
        return "the key must not choose the host; it goes in the path or in the query, as {key}"
    if parts.fragment or "@" in parts.netloc:
        return "a URL here has neither a fragment nor a password; servers never see the one, and logs would the other"
    if KEY not in text:
        return "the URL does not say where the key goes, such as http://10.0.0.1/rates/{key}"
    return ""


def wrong_strategy(text: str) -> str:
    """What is wrong with the name of a strategy: one of ours, or `package.module:Class`."""
    if text in STRATEGIES or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        return ""
    return f"a strategy is one of {', '.join(STRATEGIES)}, or your own as package.module:Class"
