"""Who may speak to a cache peer: seals on frames, and keys for clients. Pure but for randomness.

`secret`: every message ends in one more frame, the seal. It holds the sender's boot, a number, and a tag: keyed BLAKE2b
over cluster, direction, every frame with its length, boot and number. Original peers ignore it. A number is heard once
per boot, so a recorded message does nothing the second time. What a receiver that has just started cannot know is which
numbers were used before its start; answers, acks and PONGs echo its boot (C1), so none of those can be replayed to it,
and a client's seal says when it was made, so that none from before the start counts.

Clients never get the cluster's secret. `primacy cache key NAME` derives a key for one name: who has it can ask and put,
as that name, and can neither speak as a peer nor make keys for others.

`curve`: ZeroMQ's own encryption. The peers share one pair of keys, derived from the secret; each client name has its
own. Who is admitted is decided by `zap.py`.

Keys stand in no message, log or exception.
"""

from __future__ import annotations

import os
import stat
import struct
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from primacy.errors import CannotHere, UsageError
from primacy.transport.seal import Window, Windows, derived

TAG_BYTES = 16
PERSON = b"primacy cache 1"
PEER_HEAD = struct.Struct("!QQ")
"""Boot and number."""
CLIENT_HEAD = struct.Struct("!QQQ")
"""Boot, number, and the client's wall clock in ms."""
CLIENT_NUMBERS = struct.Struct("!QQ")
"""The same without the boot."""
_numbers_of = CLIENT_NUMBERS.unpack_from
CLIENT_SEAL_LEAST = 1 + CLIENT_HEAD.size + TAG_BYTES
"""Without the name, whose length stands first."""
SEAL_END = CLIENT_NUMBERS.size + TAG_BYTES
"""What a client's seal has behind the name and the boot."""
NAME_BYTES_MAX = 64
CLIENTS_MAX = 10_000
"""Boots of clients that are known: what is computed once for each, and the numbers that were heard."""
ASIDE_MAX = 100_000
"""Boots of which only the numbers are kept, because others came after them: about 20 MB. A number that was heard is
never heard again, however many boots there are."""
LEFT_MAX = 64
"""Peers that left the list whose numbers are still remembered: twice as many as a list has."""
OLD_MS = 30_000
"""A client's seal older than this, or as far ahead, is refused: the clocks are far apart, or somebody repeats it."""
KEY_HEAD = "primacy-cache-key 1"
KEY_FILE_BYTES_MAX = 4_096
BOOT_BYTES = 8


class Opened(NamedTuple):
    """What a good seal says about a message from a client."""

    name: str
    boot: int


class ClientBoot:
    """One boot of one client that was heard with a good seal, and what is computed once for all of its requests."""

    __slots__ = ("_others", "inward", "opened", "outward", "window")

    def __init__(self, opened: Opened, inward: Sequence[blake2b], outward: blake2b) -> None:
        self.opened = opened
        self.inward, *self._others = inward
        """For requests, by the secret that seals, and by the others that are accepted."""
        self.outward = outward
        """For answers: keyed, and the boot is in it."""
        self.window = Window()

    def sealed(self, counted: bytes) -> bytes:
        """The frame to append to an answer, whose other frames are given as `counted` gives them."""
        made = self.outward.copy()
        made.update(counted)
        return made.digest()

    def is_of_another_secret(self, text: bytes, seal: bytes) -> bool:
        return any(_matches(inward, text, seal[-TAG_BYTES:]) for inward in self._others)


class ClientKey(NamedTuple):
    """What a client needs to be heard: its name and key, and for `curve` two pairs' worth of Z85 text."""

    name: str
    key: bytes
    public: bytes = b""
    private: bytes = b""
    server: bytes = b""


def new_boot() -> int:
    """Differs from every other boot, of every peer and client."""
    return int.from_bytes(os.urandom(BOOT_BYTES), "big") or 1


def wrong_name(name: str) -> str:
    """What is wrong with a client's name, or nothing."""
    if not name:
        return "a client's name is empty"
    if len(name.encode(errors="surrogateescape")) > NAME_BYTES_MAX:
        return f"a client's name has at most {NAME_BYTES_MAX} bytes"
    if not all(char.isalnum() or char in "._-@" for char in name) or not name.isascii():
        return f"a client's name {name!r} has other characters than letters, digits, dots, dashes, underscores and @"
    return ""


def client_secret(secret: bytes, cluster: str, name: str) -> bytes:
    """The key of one client name, for `secret`."""
    made = blake2b(key=derived(secret, b"cache clients"), digest_size=32, person=PERSON)
    made.update(counted((cluster.encode(), name.encode())))
    return made.digest()


def curve_seed(secret: bytes, cluster: str, name: str = "") -> bytes:
    """32 bytes from which the private CURVE key of the peers (no name) or of one client is made."""
    made = blake2b(key=derived(secret, b"cache curve"), digest_size=32, person=PERSON)
    made.update(counted((cluster.encode(), name.encode())))
    return made.digest()


_COUNTS = tuple(struct.Struct(f"!{count + 1}I").pack for count in range(24))
"""By the number of frames: that number and their lengths. Messages have fewer."""
_COUNT_OF_6 = _COUNTS[6]


def counted(frames: Sequence[bytes]) -> bytes:
    """The frames as one text that no other frames give: all lengths first."""
    count = len(frames)
    pack = _COUNTS[count] if count < len(_COUNTS) else struct.Struct(f"!{count + 1}I").pack
    return pack(count, *map(len, frames)) + b"".join(frames)


def _keyed(key: bytes, cluster: str, direction: bytes) -> blake2b:
    made = blake2b(key=key, digest_size=TAG_BYTES, person=PERSON)
    made.update(counted((cluster.encode(), direction)))
    return made


class PeerSeal:
    """Seals what one peer publishes, and opens what others do."""

    def __init__(self, cluster: str, boot: int, secrets: Sequence[bytes]) -> None:
        """The first secret seals; all are accepted, so that a secret can be changed peer by peer."""
        self._keyed = tuple(_keyed(derived(secret, b"cache peers"), cluster, b"peer") for secret in secrets)
        self._boot = boot
        self._number = 0
        self._heard: dict[str, Windows] = {}

    def sealed(self, frames: Sequence[bytes]) -> bytes:
        """The frame to append to these."""
        self._number += 1
        head = PEER_HEAD.pack(self._boot, self._number)
        made = self._keyed[0].copy()
        made.update(head + counted(frames))
        return head + made.digest()

    def refused(self, sender: str, frames: Sequence[bytes], seal: bytes) -> str:
        """Why this message of a listed sender is not heard, or nothing. It counts as heard from then on."""
        if len(seal) != PEER_HEAD.size + TAG_BYTES:
            return "unsealed"
        head, tag = seal[: PEER_HEAD.size], seal[PEER_HEAD.size :]
        text = head + counted(frames)
        if not any(_matches(keyed, text, tag) for keyed in self._keyed):
            return "bad-seal"
        boot, number = PEER_HEAD.unpack(head)
        if not self._heard.setdefault(sender, Windows()).is_new(boot, number):
            return "replayed"
        return ""

    def forget(self, listed: Sequence[str]) -> None:
        """The list has changed. What was heard of peers that left is kept for a while: one may return, in the same boot
        or in another one, and nothing that it said before is heard again."""
        left = [sender for sender in self._heard if sender not in listed]
        for gone in left[:-LEFT_MAX]:
            del self._heard[gone]


def _matches(keyed: blake2b, text: bytes, tag: bytes) -> bool:
    made = keyed.copy()
    made.update(text)
    return compare_digest(made.digest(), tag)


class ServerSeal:
    """The peer's side towards clients: opens requests, seals answers. Keys are derived when a name is first heard."""

    def __init__(self, cluster: str, secrets: Sequence[bytes], started_wall_ms: int, names: Sequence[str] = ()) -> None:
        """`names`: the only clients that are heard; empty: every name whose key was made with the secret."""
        self._cluster = cluster
        self._secrets = tuple(secrets)
        self._started_ms = started_wall_ms
        self._names = frozenset(names)
        self._keyed: OrderedDict[str, tuple[tuple[blake2b, blake2b], ...]] = OrderedDict()
        self._known: OrderedDict[bytes, ClientBoot] = OrderedDict()
        """By what a seal begins with: the name and the boot."""
        self._boots: dict[Opened, ClientBoot] = {}
        """The same ones."""
        self._aside: OrderedDict[bytes, tuple[Window, int]] = OrderedDict()
        """Boots that had to give way, and until when (wall clock) something of them could be repeated."""

    def opened(self, frames: Sequence[bytes], seal: bytes, wall_ms: int) -> Opened | str:
        """Whose request this is, or why it is not heard."""
        found = self.heard((b"", *frames), seal, *self.times(wall_ms))
        return found if isinstance(found, str) else found.opened

    def times(self, wall_ms: int) -> tuple[int, int]:
        """When a seal that is heard now was made at the earliest, and at the latest."""
        return max(self._started_ms, wall_ms - OLD_MS), wall_ms + OLD_MS

    def heard(self, frames: Sequence[bytes], seal: bytes, earliest_ms: int, latest_ms: int) -> ClientBoot | str:
        """The same with the client's identity in front of the frames, which no seal covers."""
        known = self._known.get(seal[:-SEAL_END])
        is_new = known is None  # one that is known has the right length: what it begins with says how long it is
        if known is None:
            found = self._stranger(seal, latest_ms - OLD_MS)
            if isinstance(found, str):
                return found
            known = found
        if len(frames) == 7:  # those of a GET; written out, for it is what clients do all the time
            _, a, b, c, d, e, f = frames
            lengths = _COUNT_OF_6(6, len(a), len(b), len(c), len(d), len(e), len(f))
            text = b"".join((seal[:-TAG_BYTES], lengths, a, b, c, d, e, f))
        else:
            text = seal[:-TAG_BYTES] + counted(frames[1:])
        made = known.inward.copy()
        made.update(text)
        if not compare_digest(made.digest(), seal[-TAG_BYTES:]) and not known.is_of_another_secret(text, seal):
            return "bad-seal"
        number, at_ms = _numbers_of(seal, -SEAL_END)
        if not earliest_ms <= at_ms <= latest_ms:
            # One from ahead could be repeated to a later start of this peer.
            return "old-seal" if at_ms < earliest_ms else "early-seal"
        if not known.window.is_new(number):
            return "replayed"
        if is_new:
            self._remember(seal[:-SEAL_END], known, latest_ms - OLD_MS)
        return known

    def _stranger(self, seal: bytes, wall_ms: int) -> ClientBoot | str:
        """A boot that was not heard before. It is remembered once its seal was found to be good."""
        if len(seal) <= CLIENT_SEAL_LEAST or len(seal) != CLIENT_SEAL_LEAST + seal[0]:
            return "unsealed"
        name, boot = seal[1 : 1 + seal[0]].decode("ascii", "replace"), seal[1 + seal[0] : -SEAL_END]
        if self._names and name not in self._names:
            return "unknown-client"
        if wrong_name(name):
            return "unsealed"
        head = seal[:-SEAL_END]
        if self._is_full(head, wall_ms):
            return "too-many-clients"
        keyed = self._of(name)
        outward = keyed[0][1].copy()
        outward.update(boot)
        known = ClientBoot(Opened(name, int.from_bytes(boot, "big")), [inward for inward, _ in keyed], outward)
        if head in self._aside:
            known.window = self._aside[head][0]
        return known

    def _is_full(self, head: bytes, wall_ms: int) -> bool:
        """One more boot cannot be remembered: it is not heard, for what it says could be repeated."""
        if len(self._known) < CLIENTS_MAX or len(self._aside) < ASIDE_MAX or head in self._aside:
            return False
        return next(iter(self._aside.values()))[1] >= wall_ms

    def _remember(self, head: bytes, known: ClientBoot, wall_ms: int) -> None:
        self._aside.pop(head, None)
        self._known[head] = self._boots[known.opened] = known
        if len(self._known) > CLIENTS_MAX:
            gone, oldest = self._known.popitem(last=False)
            del self._boots[oldest.opened]
            # The latest of its seals may have said that it was made OLD_MS from now, and counts for OLD_MS after that.
            self._aside[gone] = oldest.window, wall_ms + 2 * OLD_MS
        while self._aside and next(iter(self._aside.values()))[1] < wall_ms:
            self._aside.popitem(last=False)

    def sealed(self, to: Opened, frames: Sequence[bytes]) -> bytes:
        """The frame to append to an answer for this client. Bound to its boot; the request's id is in the frames."""
        known = self._boots.get(to)
        if known is not None:
            return known.sealed(counted(frames))
        made = self._of(to.name)[0][1].copy()
        made.update(to.boot.to_bytes(BOOT_BYTES, "big") + counted(frames))
        return made.digest()

    def _of(self, name: str) -> tuple[tuple[blake2b, blake2b], ...]:
        found = self._keyed.get(name)
        if found is None:
            keys = [client_secret(secret, self._cluster, name) for secret in self._secrets]
            found = self._keyed[name] = tuple(
                (_keyed(key, self._cluster, b"request"), _keyed(key, self._cluster, b"answer")) for key in keys
            )
            if len(self._keyed) > CLIENTS_MAX:
                self._keyed.popitem(last=False)
        return found


class ClientSeal:
    """The client's side: seals requests, opens answers."""

    def __init__(self, cluster: str, key: ClientKey, boot: int) -> None:
        self._out = _keyed(key.key, cluster, b"request")
        self._in = _keyed(key.key, cluster, b"answer")
        self._name = bytes((len(key.name),)) + key.name.encode()
        self._boot = boot
        self._number = 0

    def sealed(self, frames: Sequence[bytes], wall_ms: int) -> bytes:
        """The frame to append to a request."""
        self._number += 1
        head = self._name + CLIENT_HEAD.pack(self._boot, self._number, wall_ms)
        made = self._out.copy()
        made.update(head + counted(frames))
        return head + made.digest()

    def is_good(self, frames: Sequence[bytes], seal: bytes) -> bool:
        """Whether a peer made this answer, for this boot of this client."""
        return _matches(self._in, self._boot.to_bytes(BOOT_BYTES, "big") + counted(frames), seal)


# --- the file of a client's key ---------------------------------------------------------------------------------------


def key_text(cluster: str, key: ClientKey) -> str:
    """The file that `primacy cache key NAME` writes."""
    lines = [KEY_HEAD, f"cluster: {cluster}", f"name: {key.name}", f"key: {key.key.hex()}"]
    if key.public:
        lines += [
            f"public: {key.public.decode()}",
            f"private: {key.private.decode()}",
            f"server: {key.server.decode()}",
        ]
    return "\n".join(lines) + "\n"


def parsed_key(text: str, where: str) -> tuple[str, ClientKey]:
    """Cluster and key of such a file. Errors name the file, never its content."""
    lines = text.splitlines()
    again = f"make one with: primacy cache key NAME --to {where}"
    if not lines or lines[0].strip() != KEY_HEAD:
        raise UsageError(f"{where}: it is no key of a cache client; {again}")
    found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    try:
        key = bytes.fromhex(found["key"])
        made = ClientKey(
            found["name"],
            key,
            found.get("public", "").encode(),
            found.get("private", "").encode(),
            found.get("server", "").encode(),
        )
        cluster = found["cluster"]
    except (KeyError, ValueError):
        raise UsageError(f"{where}: a line of the key is missing or damaged; {again}") from None
    if len(key) != 32 or wrong_name(made.name):
        raise UsageError(f"{where}: the key is damaged; {again}")
    return cluster, made


def read_key(path: str) -> tuple[str, ClientKey]:
    """The key of a client from its file. Refused if others can read it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise UsageError(f"{path}: it is not there; make a key with: primacy cache key NAME --to {path}") from None
    except OSError as error:
        raise CannotHere(f"{path}: it cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise CannotHere(f"{path}: it is no plain file")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise CannotHere(f"{path}: others can read it (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600 {path}")
        text = os.read(handle, KEY_FILE_BYTES_MAX).decode("utf-8", "replace")
    finally:
        os.close(handle)
    return parsed_key(text, path)
