"""Parts of a peer of mode `own` that know no key's election: its list, its ceiling, its floors, its touch. Pure.

Each keeps one thing and answers questions about it; none sends anything. `own.py` asks them.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

from primacy.cache.messages import Trailer
from primacy.cache.model import TERM_MAX, Floor, PeerAddress
from primacy.settings.timing_cache import PINGS_KEPT, CacheTiming

NO_FLOOR = -1
LENGTH_MAX = (1 << 32) - 1
TERMS_AHEAD = 64
"""Terms that are covered beyond the one in use while terms are ahead of the wall clock: there they count elections. A
restart wastes so many, and a thousand pass each second: no number of restarts lets terms run away from the clock."""


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") & TERM_MAX


class Members:
    """The list of peers (C10): who counts, how many are a majority, with which other lists it works together."""

    def __init__(self, me: str, peers: tuple[PeerAddress, ...]) -> None:
        self.me = me
        self.previous = 0
        self.pending = 0
        """Hash of the list that is about to be taken. Who was started with it knows no list before it, so that it is
        told which lists are its neighbours by those that have one of these."""
        self._set(peers)

    def _set(self, peers: tuple[PeerAddress, ...]) -> None:
        self.pending = 0
        self.peers = tuple(sorted(peers))
        urls = tuple(peer.url for peer in self.peers)
        self.others = tuple(url for url in urls if url != self.me)
        self.listed = self.me in urls
        self.size = len(urls)
        self.majority = self.size // 2 + 1 if self.listed else self.size + 1  # who was removed is no part of any
        self.hash = self.hash_of(self.peers)

    @staticmethod
    def hash_of(peers: tuple[PeerAddress, ...]) -> int:
        return _hash(b"\0".join(peer.url.encode() for peer in sorted(peers)))

    def wait_for(self, peers: tuple[PeerAddress, ...]) -> None:
        """This list will be taken, once it may."""
        self.pending = self.hash_of(peers) if self.difference(peers) == 1 else 0

    def change(self, peers: tuple[PeerAddress, ...]) -> None:
        """Another list is in force from now on."""
        before = self.hash
        self._set(peers)
        if self.hash != before:
            self.previous = before

    def works_with(self, trailer: Trailer) -> bool:
        """Does the sender have the same list, a neighbour of it, or one that either of us is about to take? (C10)"""
        if self.is_neighbour(trailer) or self.hash == trailer.pending:
            return True
        return trailer.membership != 0 and trailer.membership == self.pending

    def is_neighbour(self, trailer: Trailer) -> bool:
        """The same list, or one that was taken: its majorities share a peer with those of this list (C10)."""
        if self.hash == trailer.previous:
            return True
        return trailer.membership != 0 and trailer.membership in (self.hash, self.previous)  # 0: none

    def difference(self, peers: tuple[PeerAddress, ...]) -> int:
        """How many peers another list adds or removes."""
        return len({peer.url for peer in self.peers} ^ {peer.url for peer in peers})


class Ceiling:
    """One number, at or above every term that was ever voted for, acked or asked with (C2). Written ahead."""

    def __init__(self, ahead_ms: int, durable: bool) -> None:
        self._ahead_ms = ahead_ms
        self._durable = durable
        self.stored = 0
        self.asked = 0

    def covers(self, term: int) -> bool:
        """May something be said in this term?"""
        return not self._durable or term <= self.stored

    def wish(self, term: int, wall_ms: int) -> int | None:
        """The number to write, if this term, or what comes in the next half of the time ahead, is not covered.

        Ahead of the wall clock, not of the term: a start begins at the ceiling, and would otherwise carry the terms a
        step further ahead of time with each restart, where a start without memory does not expect them."""
        enough = max(term + TERMS_AHEAD // 2, wall_ms + self._ahead_ms // 2)
        if not self._durable or max(self.stored, self.asked) >= enough:
            return None
        self.asked = min(max(term + TERMS_AHEAD, wall_ms + self._ahead_ms), TERM_MAX)
        return self.asked

    def written(self, ceiling: int) -> None:
        """It is durable, or cannot be made so: then terms rest on wall clocks until the next one is written."""
        self.stored = max(self.stored, ceiling)
        if ceiling >= self.asked:
            self.asked = 0


class FloorBook:
    """All floors, none of which is covered by another (C11). So two peers that know the same have the same digest."""

    def __init__(self, most: int, most_bytes: int = 1 << 62) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._exact: dict[bytes, int] = {}
        self._prefixes: dict[bytes, int] = {}
        self._lengths: tuple[int, ...] = ()
        self._sorted: list[Floor] | None = None
        self._durable: dict[tuple[bytes, bool], int] = {}
        self.digest = 0

    def __len__(self) -> int:
        return len(self._exact) + len(self._prefixes)

    def of(self, key: bytes) -> int:
        """The highest floor of this key; `NO_FLOOR` without one."""
        term = self._exact.get(key, NO_FLOOR)
        for length in self._lengths:
            if length <= len(key):
                term = max(term, self._prefixes.get(key[:length], NO_FLOOR))
        return term

    def covering(self, floor: Floor) -> Floor:
        """The highest floor that holds for everything that this one is about; itself without a higher one."""
        known = [Floor(floor.key[:length], True, NO_FLOOR) for length in self._lengths if length <= len(floor.key)]
        known = [each._replace(term=self._prefixes.get(each.key, NO_FLOOR)) for each in known]
        if not floor.prefix:
            known.append(Floor(floor.key, False, self._exact.get(floor.key, NO_FLOOR)))
        best = max(known, key=lambda each: each.term, default=floor)
        return best if best.term >= floor.term else floor

    def holds(self, floor: Floor) -> bool:
        """Is everything that it says known?"""
        lowest = floor._replace(term=NO_FLOOR)
        return self.covering(lowest).term >= floor.term

    def apply(self, floor: Floor) -> bool:
        """Take it in. False: nothing that it says is new."""
        if self.holds(floor):
            return False
        self._put(floor)
        if floor.prefix:
            for old in self._under(floor):
                self._drop(old)
        return True

    def _under(self, floor: Floor) -> list[Floor]:
        """What a floor of a prefix makes needless."""
        return [
            old for old in self.sorted() if old.key.startswith(floor.key) and old.term <= floor.term and old != floor
        ]

    def too_many(self) -> Floor | None:
        """Beyond the bound: the floor for every key that makes the older half needless."""
        if len(self) <= self._most and self._bytes <= self._most_bytes:
            return None
        terms = sorted(floor.term for floor in self.sorted())
        return Floor(b"", True, terms[len(terms) // 2])

    def _put(self, floor: Floor) -> None:
        table = self._prefixes if floor.prefix else self._exact
        before = table.get(floor.key)
        if before is not None:
            self.digest ^= _digest(floor._replace(term=before))
        else:
            self._bytes += len(floor.key)
        table[floor.key] = floor.term
        self.digest ^= _digest(floor)
        self._changed()

    def _drop(self, floor: Floor) -> None:
        table = self._prefixes if floor.prefix else self._exact
        del table[floor.key]
        self._bytes -= len(floor.key)
        self.digest ^= _digest(floor)
        self._changed()

    def _changed(self) -> None:
        self._sorted = None
        self._lengths = tuple(sorted({len(prefix) for prefix in self._prefixes}))

    def sorted(self) -> list[Floor]:
        """All of them, in the order in which they are sent."""
        if self._sorted is None:
            exact = [Floor(key, False, term) for key, term in self._exact.items()]
            prefixes = [Floor(key, True, term) for key, term in self._prefixes.items()]
            self._sorted = sorted(exact + prefixes, key=cursor)
        return self._sorted

    def page(self, after: bytes, most: int) -> tuple[tuple[Floor, ...], bool]:
        """The floors behind `after` (a cursor of `cursor`), and whether there are more."""
        rest = [floor for floor in self.sorted() if cursor(floor) > after]
        return tuple(rest[:most]), len(rest) > most

    def older(self, term: int) -> list[Floor]:
        """Forget those below this term, and say which they were."""
        old = [floor for floor in self.sorted() if floor.term < term]
        for floor in old:
            self._drop(floor)
            self._durable.pop((floor.key, floor.prefix), None)
        return old

    def stored(self, floor: Floor) -> list[Floor]:
        """It is durable; gives those that need not be kept any more."""
        self._durable[floor.key, floor.prefix] = max(self._durable.get((floor.key, floor.prefix), 0), floor.term)
        if not floor.prefix:
            return []
        needless = [
            Floor(key, prefix, term)
            for (key, prefix), term in self._durable.items()
            if key.startswith(floor.key) and term <= floor.term and (key, prefix) != (floor.key, True)
        ]
        for old in needless:
            del self._durable[old.key, old.prefix]
        return sorted(needless)

    def is_durable(self, floor: Floor) -> bool:
        """Would it be known after a restart?"""
        if self._durable.get((floor.key, floor.prefix), NO_FLOOR) >= floor.term:
            return True
        return any(
            self._durable.get((floor.key[:length], True), NO_FLOOR) >= floor.term
            for length in self._lengths
            if length <= len(floor.key)
        )


def cursor(floor: Floor) -> bytes:
    """Where a page ends; floors are sent in this order: by term, of one term exact ones first, then longer prefixes.

    A floor that makes another one needless, or is raised, thus comes behind it: whatever changes while the pages are
    read, nothing that was known at the first page is overlooked."""
    kind = bytes([floor.prefix]) + (LENGTH_MAX - len(floor.key)).to_bytes(4, "big")
    return floor.term.to_bytes(8, "big") + kind + blake2b(floor.key, digest_size=16).digest()


def _digest(floor: Floor) -> int:
    return _hash(cursor(floor))


ACKS_MAX = 10_000
"""Floors that wait for the disk, and acks that wait for these. A disk that hangs answers nothing."""
A = TypeVar("A")


class Storing(Generic[A]):
    """Floors on their way to the disk, and who is told once they are there (C11). Bounded in number and in bytes of
    keys: beyond it nothing is remembered of a floor. It holds nevertheless; it is not acked, and is sent again."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._acks: dict[Floor, dict[A, int]] = {}
        """Each with the bytes of what it is about."""
        self._count = self._bytes = 0

    def __len__(self) -> int:
        return len(self._acks)

    def __contains__(self, floor: Floor) -> bool:
        return floor in self._acks

    def has_room(self, floor: Floor) -> bool:
        """Can one more be remembered?"""
        return len(self) < ACKS_MAX and self._bytes + len(floor.key) <= self._most_bytes

    def add(self, floor: Floor) -> None:
        """It is to be stored."""
        if floor not in self and self.has_room(floor):
            self._acks[floor] = {}
            self._bytes += len(floor.key)

    def owe(self, floor: Floor, ack: A, size: int) -> bool:
        """This is said once the floor is there. False: it is known already, or there is no room."""
        acks = self._acks.get(floor)
        if acks is None or ack in acks or self._count >= ACKS_MAX or self._bytes + size > self._most_bytes:
            return False
        acks[ack] = size
        self._count += 1
        self._bytes += size
        return True

    def pop(self, floor: Floor) -> tuple[A, ...]:
        """It is there, or cannot be: what was to be said then."""
        acks = self._acks.pop(floor, None)
        if acks is None:
            return ()
        self._count -= len(acks)
        self._bytes -= len(floor.key) + sum(acks.values())
        return tuple(acks)


class Heard(NamedTuple):
    """The newest PING of this boot that a peer answered, with all its floors applied here."""

    departed_ms: int
    since: int


class Touch:
    """Who answered which PING, and until when a majority vouches for a value (C12)."""

    def __init__(self, timing: CacheTiming) -> None:
        self._touch_ms = timing.touch_ms
        self.number = 0
        self.since = 0
        """The own floors are complete for epochs above this."""
        self._departed: dict[int, int] = {}
        self._heard: dict[str, Heard] = {}
        self.usual_above = 0
        self.usual_until_ms = 0

    def leaves(self, now_ms: int) -> int:
        """A PING leaves; its number."""
        self.number += 1
        self._departed[self.number] = now_ms
        self._departed.pop(self.number - PINGS_KEPT, None)
        return self.number

    def counts(self, members: Members, peer: str, number: int, since: int) -> None:
        """This peer answered this PING, and every floor that it knows is applied here."""
        departed_ms = self._departed.get(number)
        known = self._heard.get(peer)
        if departed_ms is not None and (known is None or departed_ms > known.departed_ms):
            self._heard[peer] = Heard(departed_ms, since)
            self._usual(members)

    def keep(self, members: Members) -> None:
        """The list has changed, or `since`. Who is not in its own list is in touch with nobody: it is told of no floor
        any more, and must hear all of them again when it returns (C12)."""
        if not members.listed:
            self._departed.clear()
            self._heard.clear()
        self._heard = {peer: heard for peer, heard in self._heard.items() if peer in members.others}
        self._usual(members)

    def _usual(self, members: Members) -> None:
        """Most values are younger than every start that is known: for them the answer is computed once per PONG."""
        self.usual_above = max([self.since, *(heard.since for heard in self._heard.values())])
        self.usual_until_ms = self.until_ms(members, 0) if members.majority > 1 else 1 << 62

    def vouched(self, members: Members, now_ms: int, term: int) -> bool:
        """Is a value of this term known to be above every floor of a completed invalidation?"""
        if term > self.usual_above:
            return now_ms < self.usual_until_ms
        return now_ms < self.until_ms(members, now_ms, term)

    def departed_ms(self, number: int) -> int | None:
        """When this PING left."""
        return self._departed.get(number)

    def majority_ms(self, members: Members, now_ms: int, term: int | None = None) -> int | None:
        """The newest instant for which a majority, the own peer included, has answered a PING that left then or later;
        None without one. With a term: counting only those who vouch for epochs of it."""
        moments = [heard.departed_ms for heard in self._heard.values() if term is None or heard.since < term]
        moments.sort(reverse=True)
        needed = members.majority - (term is None or self.since < term)
        if needed == 0:
            return now_ms
        return moments[needed - 1] if len(moments) >= needed else None

    def until_ms(self, members: Members, now_ms: int, term: int | None = None) -> int:
        """In touch before this instant."""
        from_ms = self.majority_ms(members, now_ms, term)
        return now_ms if from_ms is None else from_ms + self._touch_ms
