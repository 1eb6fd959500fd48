"""TLS for what is open to others: a certificate, and how a local command knows that of the control API.

A command of this machine need not trust anybody's certificate authority: the node writes the fingerprint of its
certificate into its private state folder, and the command compares before it sends the key.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import stat

from primacy.errors import CannotHere, UsageError
from primacy.settings.schema import Settings
from primacy.settings.schema_work import Tls


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """Of the control API; None if no certificate is given. Raises one of ours for files that cannot be used.

    A command of this machine shows the control key, so that a certificate is not asked of everybody.
    """
    return context_of(settings.control.tls, "control.tls", settings.source, ssl.CERT_OPTIONAL)


def context_of(tls: Tls, name: str, source: str, with_ca: ssl.VerifyMode) -> ssl.SSLContext | None:
    """`name`: the section. `source`: the file, from whose folder paths count. `with_ca`: what `ca` asks of a client."""
    if not tls.cert:
        return None
    folder = os.path.dirname(source)
    cert, key = os.path.join(folder, tls.cert), os.path.join(folder, tls.key)
    refuse_exposed(key, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{name}: {cert} and {key} are no certificate and its key: {why}") from None
    if tls.ca:
        ca = os.path.join(folder, tls.ca)
        try:
            context.load_verify_locations(ca)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"{name}.ca = {ca}: {why}") from None
        context.verify_mode = with_ca
    return context


def fingerprint_of(settings: Settings) -> str:
    """Of the certificate, as a connection shows it; empty without one."""
    if not settings.control.tls.cert:
        return ""
    path = os.path.join(os.path.dirname(settings.source), settings.control.tls.cert)
    with open(path, encoding="ascii") as file:
        first = file.read().partition("-----END CERTIFICATE-----")
    text = first[0][first[0].index("-----BEGIN CERTIFICATE-----") :] + first[1]
    return fingerprint(ssl.PEM_cert_to_DER_cert(text))


def fingerprint(der: bytes | None) -> str:
    return hashlib.sha256(der).hexdigest() if der else ""


def pinned_context() -> ssl.SSLContext:
    """For a client that compares the fingerprint itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def refuse_exposed(path: str, name: str) -> None:
    """Raises one of ours for a private key that others of this machine can read, or that is not there."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError as error:
        raise UsageError(f"{name}.key = {path}: {error.strerror}") from None
    if mode & 0o077:
        raise CannotHere(f"{name}.key = {path}: others can read it (mode {mode:04o}): chmod 600 {path}")


def _no_password() -> str:
    raise ValueError("the key has a password; give one without")
