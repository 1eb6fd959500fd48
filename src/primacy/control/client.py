"""How a command reaches the node of this machine: its address and its key stand in the state folder.

Plain `http.client`: a command starts faster than aiohttp loads. The key is sent only to an address that a living
process of the folder's owner has written.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pwd
from typing import Any, NamedTuple
from urllib.parse import quote

from primacy.control import ADDRESS_FILE, KEY_HEADER, ORDER_HEADER
from primacy.control.earlier import current
from primacy.control.key import KEY_FILE, key_in
from primacy.errors import Later, NotReached, Refused, UsageError

TIMEOUT_S = 5.0
"""The node is on this machine; one that takes longer is stopped or hangs."""
ANSWER_BYTES_MAX = 4_000_000
FILE_BYTES_MAX = 4_096
LOCK_FILE = "agent.lock"
"""In the folder: whoever runs there has it open, from before its address stands there to its end."""


class FoundNode(NamedTuple):
    """A node that says where it listens."""

    host: str
    port: int
    key: str
    """Empty if it cannot be read: then only reading is possible."""
    pid: int = 0
    """Who listens there; 0 if only the address was given."""
    certificate: str = ""
    """The fingerprint that it must show; empty without TLS."""
    election: str = ""
    """Which of the several elections that are served there is meant; empty if there is one."""


def find(folder: str, at: str | None = None) -> FoundNode | None:
    """The node of this folder, or None if none runs. `at`: listens there, whatever the folder says."""
    key = key_in(_bytes(os.path.join(folder, KEY_FILE)))
    if at is not None:
        election = _said(folder, "election")
        return FoundNode(*_address(at), key, certificate=_said(folder, "certificate"), election=election)
    try:
        said = json.loads(_bytes(os.path.join(folder, ADDRESS_FILE)))
        host, port, pid = said["host"], said["port"], said["pid"]
    except (ValueError, TypeError, KeyError):
        return None
    if not (isinstance(host, str) and isinstance(port, int) and isinstance(pid, int)) or not _is_alive(pid, folder):
        return None
    return FoundNode(host, port, key, pid, _said(folder, "certificate"), _said(folder, "election"))


def ask(
    found: FoundNode, path: str, order: dict[str, Any] | None = None, within_s: float = TIMEOUT_S, by: str = ""
) -> Any:
    """The answer, under today's names. With an order it is a POST, and `by` says who asks, if it is no user of a
    command. Raises `NotReached`, `Refused` or `UsageError`."""
    headers = {KEY_HEADER: found.key, ORDER_HEADER: by or asked_by(path)} if order is not None else {}
    body = json.dumps(order) if order is not None else None
    if order is not None and not found.key:
        raise Refused("the control key of this node cannot be read; run this as the user that runs the node")
    connection = _connection(found, within_s)
    try:
        connection.request("GET" if order is None else "POST", path_of(found, path), body, headers)
        answer = connection.getresponse()
        status, data = answer.status, answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NotReached(f"the node at {found.host}:{found.port} does not answer: {why}") from None
    finally:
        connection.close()
    try:
        said = json.loads(data)
    except ValueError:
        raise NotReached(f"what answers at {found.host}:{found.port} is no node of primacy") from None
    if status >= 400:
        sentence = said.get("error") if isinstance(said, dict) else None
        again = isinstance(said, dict) and said.get("again") is True
        kind = {400: UsageError, 504: NotReached}.get(status, Later if again else Refused)
        raise kind(str(sentence or f"refused with {status}"))
    return current(said)


def asked_by(path: str) -> str:
    """Who asks, for the audit trail: the user of this command, and who that is beside `sudo`. A lab keeps none."""
    if path.startswith("/v1/lab"):
        return "1"
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"user {os.getuid()}"
    behind = os.environ.get("SUDO_USER", "")
    name += f" (sudo by {behind})" if behind else ""
    return f"{name} on the command line" if name.isascii() and name.isprintable() else f"user {os.getuid()}"


def _connection(found: FoundNode, within_s: float) -> http.client.HTTPConnection:
    """Over TLS it is made here, and the certificate compared: nothing was said yet. Raises `NotReached`."""
    if not found.certificate:
        return http.client.HTTPConnection(found.host, found.port, timeout=within_s)
    from primacy.control.tls import fingerprint, pinned_context  # noqa: PLC0415

    made = http.client.HTTPSConnection(found.host, found.port, timeout=within_s, context=pinned_context())
    try:
        made.connect()
    except OSError as error:
        raise NotReached(f"the node at {found.host}:{found.port} does not answer: {error}") from None
    shown = fingerprint(made.sock.getpeercert(binary_form=True))
    if shown != found.certificate:
        made.close()
        raise NotReached(f"what answers at {found.host}:{found.port} shows another certificate than this node's")
    return made


def path_of(found: FoundNode, path: str) -> str:
    """With the election that is meant, where several are served."""
    if not found.election:
        return path
    return f"{path}{'&' if '?' in path else '?'}election={quote(found.election, safe='')}"


def _said(folder: str, word: str) -> str:
    try:
        said = json.loads(_bytes(os.path.join(folder, ADDRESS_FILE)))
        return str(said.get(word, ""))
    except (ValueError, AttributeError):
        return ""


def _bytes(path: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(handle, FILE_BYTES_MAX)
    except OSError:
        return b""
    finally:
        os.close(handle)


def _address(at: str) -> tuple[str, int]:
    host, _, port = at.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise UsageError(f"--at {at[:80]}: an address is HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_alive(pid: int, folder: str) -> bool:
    """A node that was killed leaves its address behind; another program, of somebody else, may listen there by now.

    Its number may belong to another process, too, soon after a restart of the machine: one that would be sent our key,
    or told to end. So it must be a process of the folder's owner that has the folder's lock open.
    """
    try:
        own = pid > 0 and os.stat(f"/proc/{pid}").st_uid == os.stat(folder).st_uid
        return own and _has_open(pid, os.path.join(folder, LOCK_FILE))
    except OSError:
        return False


def _has_open(pid: int, path: str) -> bool:
    """True also where nothing can be said: there is no such file, or that process is not ours to look into."""
    try:
        wanted = os.stat(path)
        handles = sorted(os.listdir(f"/proc/{pid}/fd"), key=int)  # the lock is among its first
    except FileNotFoundError:
        return not os.path.lexists(path)
    except PermissionError:
        return True
    for handle in handles:
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{handle}"), wanted):
                return True
    return False
