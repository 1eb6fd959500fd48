"""Datagrams: a head, a message, a seal. Nothing that is not sealed by the cluster's secret is looked at further.

    magic 1 | layout 1 | key 1 | sort 1 | sender's boot 8 | receiver's boot 8 | counter 8 | length 1 | sender's name
    | payload | tag 16

The tag is keyed BLAKE2b over all that stands before it, and over what both sides know without saying it: cluster,
election and receiver. So a datagram of another cluster, of another election, for somebody else, or one's own thrown
back, has no good seal. `key` is kept for keys of single nodes; 0 is the cluster's one secret, and all nodes that have
it trust each other fully.

Seven sorts:

- a message belongs to this start of the receiver, and comes once: the receiver's boot must be ours, the counter must be
  new in the window of its sender's start. So nothing that was recorded before a restart is ever heard after it.
- a greeting says "this is my boot" to a node that did not know it, and carries nothing but the counter of the datagram
  that it answers. That one's seal was good, and the greeting is bound to the boot that it came from.
- a release stands outside of both (G6): it is sealed beforehand, for whoever the receiver is by then, and may be
  repeated. Its term and its sender's boot are in it.
- a word is what nodes tell each other beside the election (how they stand, what happened, orders of an operator): as
  safe from repetition as a message, and never seen by a strategy.
- a message that carries a word along, which was in no hurry: the length of the message in two bytes, both after it.
- a question of a node that is in no list, or not where it is listed: answered where it came from (`guests.py`).
- a word between agents with several elections: this start takes several datagrams in one (`shared_udp.py`).

A sort that is not known here is of a later version: counted, and not heard.

Secrets are compared in constant time, and stand in no message, log or exception.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from enum import IntEnum
from hmac import compare_digest
from typing import NamedTuple

from primacy.errors import CannotHere, UsageError
from primacy.transport.layout import LAYOUT

DATAGRAM_BYTES_MAX = 512
MAGIC = 0xB7
KEY_CLUSTER = 0
HEAD = struct.Struct("!BBBBQQQB")
COUNTER_AT, COUNTER_BYTES = 20, 8
"""Where the counter stands in the head."""
TAG_BYTES = 16
NAME_BYTES_MAX = 20
LEAST_BYTES = HEAD.size + 1 + TAG_BYTES
WINDOW = 1024
"""Datagrams of one start that may arrive out of order; older ones count as replayed."""
HEARD = (1 << WINDOW) - 1
STARTS_MAX = 8
"""Starts of one node whose windows are kept. What comes from an earlier one, which is over, counts as replayed."""
STARTS_OVER_MAX = 4_096
"""Starts of one node, during one of ours, that are remembered to be over."""
OUT_MAX = 1_024
"""Beginnings of datagrams that are kept: these sorts for a hundred nodes, each started anew once."""
SECRET_BYTES_LEAST = 32
SECRET_BYTES_MAX = 4_096
DISTINCT_LEAST = 8
"""32 random bytes have about 30 different ones, their hexadecimal text about 15: fewer is no random secret."""
OTHER_SUFFIX = ".other"
"""A second file beside the secret: accepted as well, and never used to seal."""
LABEL = b"primacy datagram"


class Sort(IntEnum):
    """What a datagram is."""

    MESSAGE = 0
    RELEASE = 1
    GREETING = 2
    WORD = 3
    CARRIES = 4
    QUESTION = 5
    GATHERS = 6


_SORTS = {int(sort): sort for sort in Sort}


class Drop(NamedTuple):
    """Why a datagram was dropped, and from whom it came if that is proved."""

    why: str
    sender: str = ""
    layout: int = 0


class Opened(NamedTuple):
    """A datagram whose seal was good."""

    sort: Sort
    sender: str
    boot: int
    receiver_boot: int
    counter: int
    payload: bytes


# --- secrets ----------------------------------------------------------------------------------------------------------


def read_secret(path: str) -> bytes:
    """The secret in the file. Refused if others can read it, or if it is too short to be one."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise UsageError(f"cluster.secret_file = {path}: it is not there; make one with: primacy keygen") from None
    except OSError as error:
        raise CannotHere(f"cluster.secret_file = {path}: it cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(handle)
        wrong = _exposure(path, found)
        if wrong:
            raise CannotHere(f"cluster.secret_file = {path}: {wrong}")
        secret = os.read(handle, SECRET_BYTES_MAX + 1).strip()
    finally:
        os.close(handle)
    wrong = weakness(secret)
    if wrong:
        raise UsageError(f"cluster.secret_file = {path}: {wrong}; make a secret with: primacy keygen")
    return secret


def _exposure(path: str, found: os.stat_result) -> str:
    """Why this file cannot hold a secret, or nothing."""
    if not stat.S_ISREG(found.st_mode):
        return "it is no plain file"
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        return f"others can read it (mode {mode:04o}): chmod 600 {path}"
    if found.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {found.st_uid}, who can change it: chown {os.geteuid()} {path}"
    return ""


def weakness(secret: bytes) -> str:
    """What is wrong with a secret, or nothing. The text of `keygen` has two characters for each byte."""
    bytes_ = len(secret) // 2 if all(char in b"0123456789abcdefABCDEF" for char in secret) else len(secret)
    if len(secret) > SECRET_BYTES_MAX:
        return f"it has more than {SECRET_BYTES_MAX} bytes"
    if bytes_ < SECRET_BYTES_LEAST:
        return f"it has {bytes_} bytes, and {SECRET_BYTES_LEAST} random ones are needed"
    if len(set(secret)) < DISTINCT_LEAST:
        return "it is not random"
    return ""


def read_secrets(path: str) -> tuple[bytes, ...]:
    """The secret to seal with, and the other one that is accepted as well, if its file is there."""
    other = path + OTHER_SUFFIX
    return (read_secret(path), read_secret(other)) if os.path.lexists(other) else (read_secret(path),)


def derived(secret: bytes, label: bytes = b"udp seal") -> bytes:
    """The key for one use: what is known of it tells nothing about the other uses of the one secret."""
    return hashlib.blake2b(secret, digest_size=32, person=label).digest()


# --- seals ------------------------------------------------------------------------------------------------------------


class Seal:
    """Makes datagrams of one node, and opens those that are for it."""

    def __init__(self, cluster: str, election: str, node: str, boot: int, secrets: tuple[bytes, ...]) -> None:
        self.cluster = cluster
        self.election = election
        self.node = node
        self.boot = boot
        self.keys = tuple(derived(secret) for secret in secrets)
        self.counter = 0
        self._name = node.encode()
        assert 1 <= len(self._name) <= NAME_BYTES_MAX, node
        self._out: dict[tuple[str, int, Sort], tuple[hashlib.blake2b, bytes, bytes]] = {}
        """What is the same in all datagrams of a sort for one start of a receiver: of the tag, before and after the
        counter. Of starts that are over, too, but no more than `OUT_MAX`."""
        self._in = tuple(self._begun(key, node) for key in self.keys)
        self.begun = self._in[0]
        """The beginning of each tag that is made for us with the secret that we seal with."""

    def _begun(self, key: bytes, receiver: str) -> hashlib.blake2b:
        """The part of the tag that is the same in every datagram for this receiver."""
        begun = hashlib.blake2b(key=key, digest_size=TAG_BYTES, person=LABEL)
        for text in (self.cluster, self.election, receiver):
            data = text.encode()
            begun.update(len(data).to_bytes(2, "big") + data)
        return begun

    def sealed(self, sort: Sort, to: str, receiver_boot: int, payload: bytes) -> bytes:
        """A datagram. May be longer than one can be; whoever sends it looks."""
        counter = 0
        if sort is not Sort.RELEASE:
            self.counter += 1
            counter = self.counter
        begun, before, after = self._out.get((to, receiver_boot, sort)) or self._outward(to, receiver_boot, sort)
        tag = begun.copy()
        body = before + counter.to_bytes(COUNTER_BYTES, "big") + after + payload
        tag.update(body)
        return body + tag.digest()

    def _outward(self, to: str, receiver_boot: int, sort: Sort) -> tuple[hashlib.blake2b, bytes, bytes]:
        head = HEAD.pack(MAGIC, LAYOUT, KEY_CLUSTER, sort, self.boot, receiver_boot, 0, len(self._name)) + self._name
        if len(self._out) >= OUT_MAX:
            self._out.clear()
        made = self._begun(self.keys[0], to), head[:COUNTER_AT], head[COUNTER_AT + COUNTER_BYTES :]
        self._out[to, receiver_boot, sort] = made
        return made

    def opened(self, data: bytes) -> Opened | Drop:
        """Seal first: nothing of it is believed before."""
        if not LEAST_BYTES <= len(data) <= DATAGRAM_BYTES_MAX:
            return Drop("size")
        if data[0] != MAGIC:
            return Drop("foreign")
        body, tag = data[:-TAG_BYTES], data[-TAG_BYTES:]
        if not self.fits(body, tag):
            return Drop("seal")
        _, layout, key, sort, boot, receiver_boot, counter, length = HEAD.unpack_from(body)
        name = body[HEAD.size : HEAD.size + length]
        sender = name.decode("utf-8", "replace")
        if layout != LAYOUT:
            return Drop("layout", sender, layout)
        if key != KEY_CLUSTER or len(name) != length:
            return Drop("head", sender)
        if sort not in _SORTS:
            return Drop("unknown", sender)
        return Opened(_SORTS[sort], sender, boot, receiver_boot, counter, body[HEAD.size + length :])

    def head_of_messages(self, sort: Sort, sender: str, boot: int) -> tuple[bytes, bytes]:
        """How each of this sort, from this start of another node to ours, begins: before and after its counter."""
        name = sender.encode()
        head = HEAD.pack(MAGIC, LAYOUT, KEY_CLUSTER, sort, boot, self.boot, 0, len(name)) + name
        return head[:COUNTER_AT], head[COUNTER_AT + COUNTER_BYTES :]

    def fits(self, body: bytes, tag: bytes) -> bool:
        """It was sealed for this node, in this cluster and election."""
        good = False
        for begun in self._in:
            made = begun.copy()
            made.update(body)
            good |= compare_digest(made.digest(), tag)
        return good


class Window:
    """Which counters of one start were heard."""

    def __init__(self) -> None:
        self.highest = 0
        self._heard = 0
        """Bit n: highest - run - n was heard."""
        self._run = 0
        """The last so many came in order. They are written down when one comes that does not: that costs much more."""

    def is_new(self, counter: int) -> bool:
        """True once for each counter that is not too old; it counts as heard from then on."""
        if counter == self.highest + 1:  # nearly always
            self.highest = counter
            self._run += 1
            return True
        if self._run:
            run = min(self._run, WINDOW)
            self._heard = (self._heard << run | (1 << run) - 1) & HEARD
            self._run = 0
        if counter > self.highest:
            shift = counter - self.highest
            self._heard = (self._heard << shift | 1) & HEARD if shift < WINDOW else 1
            self.highest = counter
            return True
        bit = 1 << (self.highest - counter) if self.highest - counter < WINDOW else 0
        if not bit or self._heard & bit:
            return False
        self._heard |= bit
        return True


class Windows:
    """The windows of one sender, by its starts."""

    def __init__(self) -> None:
        self._of: dict[int, Window] = {}
        self._over: dict[int, None] = {}

    def of(self, boot: int) -> Window | None:
        return self._of.get(boot)

    def knows(self, boot: int) -> bool:
        """This start was heard before."""
        return boot in self._of

    def is_new(self, boot: int, counter: int) -> bool:
        window = self._of.get(boot)
        if window is None:
            if boot in self._over:
                return False
            if len(self._of) >= STARTS_MAX:
                self._forget_oldest()
            window = self._of[boot] = Window()
        return window.is_new(counter)

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._of))
        del self._of[oldest]
        self._over[oldest] = None
        if len(self._over) > STARTS_OVER_MAX:
            del self._over[next(iter(self._over))]
