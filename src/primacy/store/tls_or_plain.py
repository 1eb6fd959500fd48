"""Whether a server of which nothing was heard speaks TLS, or plain text only: one of both was asked of it in vain.

Some servers hang up without a word, or wait for the rest, when they are spoken to in the other way. That looks as if
they were gone, and would be waited for, although it never passes by itself. So a server that never answered before is
asked once more in the other way. Nothing is told on this connection, and nothing is believed that comes over it but
the way in which the server speaks.
"""

from __future__ import annotations

import contextlib
import socket
import ssl

PART = 4
"""Of the time for an answer: it comes on top of that."""
READ_BYTES = 64


def speaks_plain(host: str, port: int, asks: bytes, begins: tuple[bytes, ...], limit_s: float) -> bool:
    """Whether it answers this question, and how its answer begins."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), limit_s / PART) as plain:
        plain.sendall(asks)
        return plain.recv(READ_BYTES).startswith(begins)
    return False


def speaks_tls(host: str, port: int, limit_s: float) -> bool:
    """Whether it answers the first words of TLS, be it with an alert. Its certificate does not matter here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), limit_s / PART) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
