"""Who may read and who may change. Pure but for chance, which makes session names; the time is an argument.

Reading is open on loopback; elsewhere it needs a session. Changing needs a session, which begins with the control key
or with a link that works once; in the lab, where nothing but toys can be hurt, a browser on loopback needs none.
Every change needs, besides, a header that no page of another site can send, and a Host that is ours.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import blake2b

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


class Access:
    """Sessions, in memory only: a restart signs everybody out."""

    def __init__(self, key: str, *, loopback: bool, lab: bool) -> None:
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

    def may_read(self, name: str, now_ms: int) -> bool:
        return self.loopback or self.is_in(name, now_ms)

    def may_change(self, name: str, now_ms: int) -> bool:
        if self.lab and self.loopback:
            return True
        return bool(self.key) and self.is_in(name, now_ms)


def _digest(name: str) -> bytes:
    """Names are looked up by their digest, so that the time of a look-up tells nothing about them."""
    return blake2b(name.encode("utf-8", "replace"), digest_size=32).digest()
