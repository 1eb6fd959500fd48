"""Who may read (a viewer) and who may change (an operator). Pure but for chance, which makes session names; the time is
an argument.

Reading is open on loopback; elsewhere it needs a session. Changing needs a session, which begins with the control key
or with a link that works once; in the lab, where nothing but toys can be hurt, a browser on loopback needs none.
Who comes through a trusted proxy is whom its header names, and nobody if it names nobody, also on loopback: the
proxy brings people from anywhere. A header is believed from the listed addresses only.
Every change needs, besides, a header that no page of another site can send, and a Host that is ours.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from primacy.control.audit import NAMELESS
from primacy.control.key import is_key

SESSION_MS = 12 * 3_600_000
SESSIONS_MAX = 64
"""The oldest goes first."""
CODE_MS = 15 * 60_000
"""How long the printed link works, once."""
TRIES_MAX = 10
TRIES_MS = 60_000
"""Wrong keys in this time, from everybody together; then nobody may try until it has passed."""
COOKIE = "primacy_session"
USER_CHARS_MAX = 100
NOBODY, VIEWER, OPERATOR = "", "viewer", "operator"


class Who(NamedTuple):
    """Who asks."""

    name: str
    """For the audit trail."""
    role: str
    """viewer, operator, or empty: nobody."""
    named: str = ""
    """Whom a trusted proxy names."""


class TrustedProxy(NamedTuple):
    """Whose header is believed, and what the people that it names may do. Without networks nobody's is."""

    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    header: str = ""
    operators: tuple[str, ...] = ()
    viewers: tuple[str, ...] = ()
    """Empty: everybody whom the proxy names."""

    def is_from(self, remote: str) -> bool:
        """An address of the list asks."""
        try:
            address = ipaddress.ip_address(remote.partition("%")[0])
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.networks)

    def role(self, user: str) -> str:
        if not user:
            return NOBODY
        if user in self.operators:
            return OPERATOR
        return VIEWER if not self.viewers or user in self.viewers else NOBODY


NO_PROXY = TrustedProxy()


def user_of(values: Sequence[str]) -> str:
    """Whom a header names; empty if it is missing, comes twice, or is no name."""
    if len(values) != 1:
        return ""
    user = values[0].strip()
    return user if len(user) <= USER_CHARS_MAX and user.isprintable() else ""


class Access:
    """Sessions, in memory only: a restart signs everybody out."""

    def __init__(self, key: str, *, loopback: bool, lab: bool, proxy: TrustedProxy = NO_PROXY) -> None:
        self.proxy = proxy
        self.key = key
        """The control key; empty if it could not be read, and then nothing can be changed."""
        self.loopback = loopback
        self.lab = lab
        self._sessions: dict[bytes, int] = {}
        self._code = b""
        self._code_until_ms = 0
        self._wrong_ms: list[int] = []

    def new_code(self, now_ms: int) -> str:
        """For the link that works once. Making another one ends the one before."""
        code = secrets.token_urlsafe(24)
        self._code, self._code_until_ms = _digest(code), now_ms + CODE_MS
        return code

    def enter(self, *, key: str, code: str, now_ms: int) -> str | None:
        """The name of a new session, or None: wrong, or tried too often."""
        self._wrong_ms = [at_ms for at_ms in self._wrong_ms if now_ms - at_ms < TRIES_MS]
        if len(self._wrong_ms) >= TRIES_MAX:
            return None
        by_key = bool(self.key) and is_key(key, self.key)
        by_code = bool(self._code) and now_ms < self._code_until_ms and hmac.compare_digest(_digest(code), self._code)
        if not by_key and not by_code:
            self._wrong_ms.append(now_ms)
            return None
        if by_code:
            self._code = b""
        name = secrets.token_urlsafe(32)
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_digest(name)] = now_ms + SESSION_MS
        return name

    def leave(self, name: str) -> None:
        self._sessions.pop(_digest(name), None)

    def is_in(self, name: str, now_ms: int) -> bool:
        return bool(name) and now_ms < self._sessions.get(_digest(name), 0)

    def who(self, name: str, now_ms: int, user: str | None = None) -> Who:
        """`name`: of a session. `user`: whom a trusted proxy names, empty for nobody; None: no trusted proxy asks."""
        if self.is_in(name, now_ms):
            holder = f"{user}, with the control key" if user else NAMELESS
            return Who(holder, OPERATOR if self.key else VIEWER, user or "")
        if user is not None:
            role = self.proxy.role(user)
            return Who(user, VIEWER if role == OPERATOR and not self.key else role, user)
        if not self.loopback:
            return Who("", NOBODY)
        return Who("", OPERATOR if self.lab else VIEWER)

    def may_read(self, name: str, now_ms: int) -> bool:
        return self.who(name, now_ms).role != NOBODY

    def may_change(self, name: str, now_ms: int) -> bool:
        return self.who(name, now_ms).role == OPERATOR


def _digest(name: str) -> bytes:
    """Names are looked up by their digest, so that the time of a look-up tells nothing about them."""
    return blake2b(name.encode("utf-8", "replace"), digest_size=32).digest()
