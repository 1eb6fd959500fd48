"""The control key: what a command must show to change anything. Made at the first start, 0600, in the state folder.

Whoever can read that folder is this node's operator; the key makes a browser, and every other user of the machine,
somebody else. It is not the secret of the cluster, and never leaves the machine.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets

from primacy.control import Files
from primacy.errors import CannotHere

KEY_FILE = "control.key"
KEY_BYTES = 32
FILE_BYTES_MAX = 256


def own_key(files: Files) -> str:
    """The key of this folder; made if there is none yet. A crash while it is made leaves none, never half of one."""
    try:
        data = files.read(KEY_FILE, FILE_BYTES_MAX)
    except FileNotFoundError:
        return _made(files)
    key = key_in(data)
    if not key:
        path = files.path(KEY_FILE)
        raise CannotHere(f"{path} holds no control key; it is made anew at the next start: rm {path}")
    return key


def key_in(data: bytes) -> str:
    """The key that a file holds; empty if it holds something else."""
    text = data.decode("ascii", "replace").strip()
    return text if re.fullmatch(rf"[0-9a-f]{{{2 * KEY_BYTES}}}", text) else ""


def is_key(said: str, key: str) -> bool:
    """Takes as long for a wrong key as for the right one."""
    return hmac.compare_digest(said.encode("utf-8", "replace"), key.encode())


def _made(files: Files) -> str:
    key = secrets.token_hex(KEY_BYTES)
    write_whole(files, KEY_FILE, f"{key}\n".encode())
    return key


def write_whole(files: Files, name: str, data: bytes) -> None:
    """A small file, exchanged as a whole."""
    new = f"{name}.new"
    write_new(files, new, data)
    files.rename(new, name)


def write_new(files: Files, name: str, data: bytes) -> None:
    handle = files.create(name)
    try:
        while data:
            data = data[os.write(handle, data) :]
    finally:
        os.close(handle)
