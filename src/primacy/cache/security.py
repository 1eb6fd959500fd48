"""Who may speak to a cache peer: seals on frames, and keys for clients. Pure but for randomness.

`secret`: every message ends in one more frame, the seal. It holds the sender's boot, a number, and a tag: BLAKE2b with
a key over cluster, direction, every frame with its length, boot and number. Original peers ignore it. A number is heard
once per boot, so a recorded message does nothing the second time. What a receiver that has just started cannot know is
which numbers were used before its start; answers, acks and PONGs echo its boot (C1), so none of those can be replayed
to it, and a client's seal says when it was made, so that none from before the start counts.

An answer's seal is a tag alone, bound to the boot of the client that asked. It covers the id and the last frame as they
are, and what stands between them by a digest of it: a value that is given again and again is digested once.

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
from collections.abc import Callable, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, NamedTuple

import msgspec

from primacy.errors import CannotHere, UsageError
from primacy.transport.seal import Window, Windows, derived

TAG_BYTES = 16
KEY_BYTES = 32
DIGEST_BYTES = 32
"""Twice a tag: to find two values of one digest needs as many attempts as for a tag."""
NO_LAST = 0xFFFF_FFFF
"""In place of the length of the last frame, where there is none. No frame is as long."""
PERSON = b"primacy cache 1"
PEER_HEAD = struct.Struct("!QQ")
"""Boot and number."""
CLIENT_HEAD = struct.Struct("!QQQ")
"""Boot, number, and the client's wall clock in ms."""
CLIENT_END = struct.Struct(f"!QQ{TAG_BYTES}s")
"""What a client's seal has behind the name and the boot: the number, the clock, the tag."""
_end_of = CLIENT_END.unpack_from
SEAL_END = CLIENT_END.size
CLIENT_SEAL_LEAST = 1 + CLIENT_HEAD.size + TAG_BYTES
"""Without the name, whose length stands first."""
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

    __slots__ = ("_others", "begin_answer", "begin_request", "is_new", "opened", "window")

    def __init__(self, opened: Opened, inward: Sequence[blake2b], outward: blake2b) -> None:
        self.opened = opened
        first, *self._others = inward
        self.begin_request = first.copy
        """Begins the tag of a request, by the secret that seals; the others are accepted as well."""
        self.begin_answer = outward.copy
        """Begins the tag of an answer: keyed, and the boot is in it."""
        self.window = Window()
        self.is_new = True
        """Nothing with a good seal has come from it yet."""

    def is_of_another_secret(self, text: bytes, tag: bytes) -> bool:
        return any(_matches(inward, text, tag) for inward in self._others)


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


def counted(frames: Sequence[bytes]) -> bytes:
    """The frames as one text that no other frames give: all lengths first."""
    count = len(frames)
    pack = _COUNTS[count] if count < len(_COUNTS) else struct.Struct(f"!{count + 1}I").pack
    return pack(count, *map(len, frames)) + b"".join(frames)


_packed: Callable[[Sequence[bytes | int]], bytes] = msgspec.msgpack.Encoder().encode
"""The same as a MessagePack array of binaries (each with its length in front) and integers, in the shortest form: one
call for what clients send all the time."""


def digested(between: Sequence[bytes], last_bytes: int) -> bytes:
    """What the tag of an answer covers instead of the frames between the first and the last one. The length of the last
    one is in it, so that no other id and last frame give the same text."""
    return blake2b(_packed((*between, last_bytes.to_bytes(4, "big"))), digest_size=DIGEST_BYTES, person=PERSON).digest()


def covered(frames: Sequence[bytes]) -> bytes:
    """The text of an answer's tag: the id, the last frame (none: only the id is there), the digest of the others."""
    last = frames[-1] if len(frames) > 1 else b""
    return frames[0] + last + digested(frames[1:-1], len(last) if len(frames) > 1 else NO_LAST)


def _keyed(key: bytes, cluster: str, direction: bytes) -> blake2b:
    made = blake2b(key=key, digest_size=TAG_BYTES, person=PERSON)
    made.update(counted((cluster.encode(), direction)))
    return made


def _begun(key: bytes, cluster: str, direction: bytes, boot: bytes) -> blake2b:
    """The beginning of all tags between the peers and one boot of a client, in one direction: a key of their own, in
    front of the text. Prefix-MAC, which is safe with BLAKE2 (unlike with SHA-2) and hashes a block less each time than
    its keyed mode, which gives the key a block to itself: a third of what a tag costs."""
    own = blake2b(counted((cluster.encode(), direction, boot)), key=key, digest_size=KEY_BYTES, person=PERSON)
    return blake2b(own.digest(), digest_size=TAG_BYTES, person=PERSON)


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
        self._keyed: OrderedDict[str, tuple[bytes, ...]] = OrderedDict()
        self._known: OrderedDict[bytes, ClientBoot] = OrderedDict()
        """By what a seal begins with: the name and the boot."""
        self._boots: dict[Opened, ClientBoot] = {}
        """The same ones."""
        self._aside: OrderedDict[bytes, tuple[Window, int]] = OrderedDict()
        """Boots that had to give way, and until when (wall clock) something of them could be repeated."""
        self.why = ""
        """Why the last request that was not heard was not."""

    def opened(self, frames: Sequence[bytes], seal: bytes, wall_ms: int) -> Opened | str:
        """Whose request this is, or why it is not heard."""
        found = self.heard([b"", *frames, seal], *self.times(wall_ms))
        return found.opened if found is not None else self.why

    def times(self, wall_ms: int) -> tuple[int, int]:
        """When a seal that is heard now was made at the earliest, and at the latest."""
        return max(self._started_ms, wall_ms - OLD_MS), wall_ms + OLD_MS

    def heard(self, frames: list[Any], earliest_ms: int, latest_ms: int) -> ClientBoot | None:
        """The same with the client's identity in front of the frames, which no seal covers, and the seal behind them,
        which is taken off. None: it is not heard; `why` says the reason."""
        seal = frames[-1]
        known = self._known.get(seal[:-SEAL_END]) or self._stranger(seal, latest_ms - OLD_MS)
        if known is None:
            frames.pop()
            return None
        # One that is known has the right length: what it begins with says how long it is.
        number, at_ms, tag = _end_of(seal, -SEAL_END)
        identity = frames[0]
        frames[0], frames[-1] = number, at_ms  # in the places of what the tag does not cover: one list less to make
        text = _packed(frames)
        frames[0] = identity
        frames.pop()
        made = known.begin_request()
        made.update(text)
        if not compare_digest(made.digest(), tag) and not known.is_of_another_secret(text, tag):
            self.why = "bad-seal"
        elif not earliest_ms <= at_ms <= latest_ms:
            # One from ahead could be repeated to a later start of this peer.
            self.why = "old-seal" if at_ms < earliest_ms else "early-seal"
        elif not known.window.is_new(number):
            self.why = "replayed"
        else:
            if known.is_new:
                self._remember(seal[:-SEAL_END], known, latest_ms - OLD_MS)
            return known
        return None

    def _stranger(self, seal: bytes, wall_ms: int) -> ClientBoot | None:
        """A boot that was not heard before. It is remembered once its seal was found to be good."""
        self.why = "unsealed"
        if len(seal) <= CLIENT_SEAL_LEAST or len(seal) != CLIENT_SEAL_LEAST + seal[0]:
            return None
        name, boot = seal[1 : 1 + seal[0]].decode("ascii", "replace"), seal[1 + seal[0] : -SEAL_END]
        if self._names and name not in self._names:
            self.why = "unknown-client"
            return None
        if wrong_name(name):
            return None
        head = seal[:-SEAL_END]
        if self._is_full(head, wall_ms):
            self.why = "too-many-clients"
            return None
        keys = self._of(name)
        inward = [_begun(key, self._cluster, b"request", boot) for key in keys]
        outward = _begun(keys[0], self._cluster, b"answer", boot)
        known = ClientBoot(Opened(name, int.from_bytes(boot, "big")), inward, outward)
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
        known.is_new = False
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
            made = known.begin_answer()
        else:
            made = _begun(self._of(to.name)[0], self._cluster, b"answer", to.boot.to_bytes(BOOT_BYTES, "big"))
        made.update(covered(frames))
        return made.digest()

    def _of(self, name: str) -> tuple[bytes, ...]:
        """The keys of a name, by each secret."""
        found = self._keyed.get(name)
        if found is None:
            found = self._keyed[name] = tuple(client_secret(secret, self._cluster, name) for secret in self._secrets)
            if len(self._keyed) > CLIENTS_MAX:
                self._keyed.popitem(last=False)
        return found


class ClientSeal:
    """The client's side: seals requests, opens answers."""

    def __init__(self, cluster: str, key: ClientKey, boot: int) -> None:
        boot_text = boot.to_bytes(BOOT_BYTES, "big")
        self._head = bytes((len(key.name),)) + key.name.encode() + boot_text
        self._out = _begun(key.key, cluster, b"request", boot_text)
        self._in = _begun(key.key, cluster, b"answer", boot_text)
        self._number = 0

    def sealed(self, frames: Sequence[bytes], wall_ms: int) -> bytes:
        """The frame to append to a request."""
        self._number += 1
        made = self._out.copy()
        made.update(_packed((self._number, *frames, wall_ms)))
        return self._head + CLIENT_END.pack(self._number, wall_ms, made.digest())

    def is_good(self, frames: Sequence[bytes], seal: bytes) -> bool:
        """Whether a peer made this answer, for this boot of this client."""
        return _matches(self._in, covered(frames), seal)


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
