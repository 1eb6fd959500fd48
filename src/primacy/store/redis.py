"""Leases in Redis or Valkey: one hash, written by one script (`redis_rows.py`), on one server.

The identity is `run_id`, `master_replid` and the role, read by the script that writes. A restart changes both ids, a
promotion only the second. A primary draws a new `master_replid`, too, when its first replica comes, and an hour after
its last one went: it costs one wait, and a live holder nothing. There is no mark: keys that somebody puts back with
RESTORE, or SWAPDB, are outside of the promise. A table that is gone (FLUSHALL, eviction) is made anew unsettled, so
that everybody waits (L9).

Nothing is held on a server that may forget what it has answered, or that somebody else may replace: `appendonly yes`,
`appendfsync always` and `noeviction` are asked for with every request, in the same trip, and so is whether a Sentinel
watches the server; a node of a cluster says so itself. Two primaries behind one of these can grant at once, and WAIT
undoes nothing. A Sentinel is seen only while it reaches the server: a help against mistakes, no proof. Who says
`advisory` takes all of that, and is not asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from primacy.election.store import (
    GENESIS,
    Genesis,
    Look,
    ReleaseRow,
    Renew,
    Row,
    Settle,
    StoreAnswer,
    StoreRequest,
    Take,
)
from primacy.errors import NotReached, PrimacyError, Refused, StoreUnusable
from primacy.store import conditions
from primacy.store.port import (
    LIST_MAX,
    Listing,
    News,
    check_table,
    check_wait_max,
    listing_of,
)
from primacy.store.redis_rows import (
    LOOK,
    REMOVE,
    SCRIPT,
    SCRIPT_SHA,
    SETTLE,
    WRITE,
    Step,
    genesis_of,
    genesis_text,
    row_of,
    row_text,
    written_at,
)
from primacy.store.redis_wire import Reply, Said, Target, Wire, explained
from primacy.store.rounds import KNOWN_MAX, MAKE_MAX, first_version, perform_in_rounds

SCAN_COUNT = 500
"""Rows of one page of a list: about 200 kB."""
SENTINEL = "__sentinel__:hello"
"""The channel on every server that a Sentinel watches: it subscribes to it to find the other ones."""
IDENTITY = re.compile(r"redis:[0-9a-f]{40}:[0-9a-f]{40}:(master|slave)")
"""What only speaks like Redis may leave these out, or have the same for ever."""
NUMBER = re.compile(r"[0-9]{1,20}")
CONFIG = {
    "appendonly": ("yes", "it keeps nothing on disk, and a restart forgets who holds"),
    "appendfsync": ("always", "a crash forgets what it has answered in the last moment"),
    "no-appendfsync-on-rewrite": ("no", "a crash while it rewrites its file forgets what it has answered"),
    "maxmemory-policy": ("noeviction", "it removes leases when its memory is full"),
}
"""What a server must be set to, and what it does otherwise."""
ADVICE = (
    "keep the lease in a database; where two holders at once do no harm, the library takes ?durability=advisory in the "
    "address"
)


class Shown(NamedTuple):
    """What one answer tells beside the rows."""

    server: str
    position: int
    genesis: bytes | None
    fields: int

    @property
    def leases(self) -> int:
        """How many leases there are."""
        return self.fields - (self.genesis is not None)


class RedisStore:
    """One server, one hash."""

    def __init__(
        self,
        target: Target,
        table: str = "primacy_leases",
        limit_ms: int = 900,
        create: bool = True,
        advisory: bool = False,
    ) -> None:
        self._target = target
        self._table = check_table(table)
        self._limit_s = limit_ms / 1_000
        self._create = create
        self._advisory = advisory
        self._wire: Wire | None = None
        self._answered = False
        """At least once."""
        self._shown: Shown | None = None
        """The newest answer on this connection; None: nothing is known of it."""
        self._known: dict[str, bytes | None] = {}
        """Rows as they were last seen on this connection; None: there is none."""
        self._subscribed: Wire | None = None
        self._pid = os.getpid()

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # the sockets are the parent's as well; nothing is said on them
        for wire in (self._wire, self._subscribed):
            if wire is not None:
                wire.close()
        self._wire = self._subscribed = None
        self._forget()

    def listings(self) -> list[Listing]:
        found: dict[bytes, bytes] = {}
        cursor: Reply = b"0"
        while True:
            (page,) = self._asked(("HSCAN", self._table, _text(cursor), "COUNT", SCAN_COUNT))
            cursor, pairs = self._parts(page, 2)
            found.update(self._paired(pairs))
            if cursor == b"0" or len(found) > LIST_MAX:
                break
        names = sorted(name.decode(errors="replace") for name in found if name != GENESIS.encode())
        return [_listing(name, found.get(name.encode(), b"")) for name in names][:LIST_MAX]

    def make_table(self, new: bool = False, wait_max_ms: int = 0) -> None:
        check_wait_max(wait_max_ms)
        for _ in range(MAKE_MAX):
            shown, _ = self._step([])
            if new and shown.leases:
                raise Refused(
                    f"{shown.leases} leases are in {self._table} in Redis, so it is not new: without that word, fresh "
                    "names are free some seconds after somebody began to use it"
                )
            found = self._genesis(shown)
            wanted = found._replace(wait_max_ms=max(found.wait_max_ms, wait_max_ms))
            if new:
                wanted = wanted._replace(settled=shown.server, names=0)
            if shown.genesis is not None and wanted == found:
                return
            version = found.version if shown.genesis is None else found.version + 1
            if self._write_genesis(shown, wanted._replace(version=version)):
                return
        raise Refused(f"the leases in {self._table} in Redis changed all the time: try again")

    # --- requests -----------------------------------------------------------------------------------------------------

    def _perform(self, requests: Sequence[StoreRequest]) -> list[StoreAnswer]:
        return perform_in_rounds(requests, self._round)

    look = take = renew = release = change = _perform
    """Each request says itself what is asked."""

    def _round(self, requests: Sequence[StoreRequest], last: bool) -> list[StoreAnswer | None]:
        """One trip (`rounds.py`)."""
        planned = [self._planned(request) for request in requests]
        shown, done = self._step([self._as_step(*pair) for pair in zip(requests, planned, strict=True)])
        if shown.genesis is None and self._create and not last:
            meant = shown.server
            self._write_genesis(shown, Genesis(version=first_version()))  # or somebody else was quicker
            assert self._shown is not None
            shown = self._shown
            if shown.server != meant:  # what was done before was done under another identity
                raise self._dropped(NotReached(f"{self._target} became another server in this moment"))
        answers: list[StoreAnswer | None] = []
        for request, is_done in zip(requests, done, strict=True):
            try:
                again = not is_done and not last and self._planned(request) is not None
                answers.append(None if again else self._answer(request, shown, is_done))
            except Refused as error:  # a row that is not primacy's must not cost the others of this trip their proof
                answers.append(StoreAnswer(ok=False, reason=str(error)))
        return answers

    def _planned(self, request: StoreRequest) -> conditions.Change | None:
        """What to write, going by what is remembered; None: only read."""
        shown = self._shown
        if self._wire is None or shown is None or request.name not in self._known or isinstance(request, Look):
            return None
        if isinstance(request, Take | Settle) and request.link not in (0, self._wire.link):
            return None  # its evidence came over another connection
        try:
            row, genesis = self._row(request.name), Genesis()
            if not isinstance(request, Renew | ReleaseRow):  # a live holder does not depend on what stands there
                genesis = self._genesis(shown)
        except Refused:
            return None  # the answer says what is wrong
        return conditions.after(row, genesis, request, shown.server)

    def _as_step(self, request: StoreRequest, change: conditions.Change | None) -> Step:
        shown = self._shown
        if change is None or shown is None:
            return Step(LOOK, request.name)
        proof = _proof()
        told = f"{request.name} {proof}{' renewed' if isinstance(request, Renew) else ''}"
        step = Step(WRITE if change.row else REMOVE if change.removed else SETTLE, request.name)
        if step.kind != SETTLE:
            step = step._replace(was=self._known[request.name] or b"", told=told)
        if change.row is not None:
            step = step._replace(new=row_text(change.row._replace(proof=proof)))
        if change.genesis is not None:
            step = step._replace(genesis_was=shown.genesis or b"", genesis_new=genesis_text(change.genesis, _proof()))
        if conditions.needs_count(request):
            step = step._replace(fields=str(shown.fields))
        return step

    def _answer(self, request: StoreRequest, shown: Shown, done: bool) -> StoreAnswer:
        assert self._wire is not None
        genesis = None
        if not done or not isinstance(request, Renew | ReleaseRow):
            genesis = self._shown_genesis(request, shown)
        return StoreAnswer(
            ok=True,
            done=done,
            row=self._row(request.name),
            server=shown.server,
            genesis=genesis,
            position=shown.position,
            link=self._wire.link,
        )

    def _shown_genesis(self, request: StoreRequest, shown: Shown) -> Genesis:
        try:
            genesis = self._genesis(shown)
        except Refused:
            if not isinstance(request, Renew | ReleaseRow):
                raise
            genesis = Genesis(vouches=False)  # whatever stands there, a live holder does not depend on it
        return genesis if conditions.needs_count(request) else genesis._replace(count=-1)

    def _row(self, name: str) -> Row | None:
        text = self._known[name]
        return None if text is None else row_of(name, text)

    # --- the genesis row ----------------------------------------------------------------------------------------------

    def _genesis(self, shown: Shown) -> Genesis:
        """If there is none: one that nobody can take for settled, and that is no earlier one (L9)."""
        if shown.genesis is None:
            return Genesis(version=first_version(), vouches=False, count=shown.leases)
        return genesis_of(shown.genesis, shown.leases)

    def _write_genesis(self, shown: Shown, genesis: Genesis) -> bool:
        """Writes it if it is as it was shown, and no row was added or removed."""
        text = genesis_text(genesis, _proof())
        step = Step(SETTLE, GENESIS, b"", b"", shown.genesis or b"", text, str(shown.fields))
        _, (done,) = self._step([step])
        self._known.pop(GENESIS, None)
        return done

    # --- trips --------------------------------------------------------------------------------------------------------

    def _step(self, steps: list[Step]) -> tuple[Shown, list[bool]]:
        """One trip: all steps, each with its own condition. What was read is remembered; true for what was done."""
        meant = "" if self._shown is None else self._shown.server.removeprefix("redis:")
        words = [word for step in steps for word in step]
        found = self._parts(self._run(1, self._table, meant, self._table, *words), 6)
        server, offset, cluster, genesis, fields, rows = found
        pairs = self._parts(rows, 2 * len(steps))
        shown = Shown(f"redis:{_text(server)}", self._number(offset), _bytes(genesis), self._number(fields))
        if not IDENTITY.fullmatch(shown.server):
            raise self._dropped(
                StoreUnusable(f"{self._target} does not say which start of it answers: is this Redis or Valkey itself?")
            )
        if not shown.server.endswith(":master"):
            raise self._dropped(Refused(f"{self._target} is a replica: a lease needs the server that is written to"))
        if _text(cluster) != "0" and not self._advisory:
            raise self._dropped(self._unfit("is a node of a cluster, in which two primaries can grant at once"))
        if self._shown is not None and self._shown.server != shown.server:
            self._forget()
        self._shown = shown
        for step, text in zip(steps, pairs[1::2], strict=True):
            self._remember(step.name, _bytes(text))
        return shown, [one == 1 for one in pairs[::2]]

    def _run(self, *arguments: str | bytes | int) -> Reply:
        """The script; a server that does not know it yet did nothing, and gets its text."""
        checks: tuple[tuple[str, ...], ...] = ()
        if not self._advisory:
            checks = (("CONFIG", "GET", *CONFIG), ("PUBSUB", "NUMSUB", SENTINEL))
        *checked, found = self._asked(*checks, ("EVALSHA", SCRIPT_SHA, *arguments), raw=True)
        if isinstance(found, Said) and found.text.startswith("NOSCRIPT"):
            (found,) = self._asked(("EVAL", SCRIPT, *arguments), raw=True)
        if isinstance(found, Said):
            assert self._wire is not None
            raise self._dropped(self._wire.refusal(found))
        if checked:
            self._check(*checked)
        return found

    def _check(self, config: Reply, sentinels: Reply) -> None:
        """Raises for a server on which nothing may be held."""
        if isinstance(config, Said) or isinstance(sentinels, Said):
            what = "CONFIG GET" if isinstance(config, Said) else "PUBSUB NUMSUB"
            raise self._dropped(
                self._unfit(
                    f"refuses {what}, so that nobody knows whether it keeps what it answers; allow it (`primacy lease "
                    "schema --store redis://…` prints the rights)"
                )
            )
        values = self._paired(config)
        for name, (wanted, why) in CONFIG.items():
            if (value := _text(values.get(name.encode(), b""))) != wanted:
                raise self._dropped(self._unfit(f"has {name} {value or 'unknown'}: {why}; set {name} to {wanted}"))
        if self._number(self._parts(sentinels, 2)[1]):
            raise self._dropped(self._unfit("is watched by a Sentinel, behind which two primaries can grant at once"))

    def _unfit(self, why: str) -> StoreUnusable:
        return StoreUnusable(f"{self._target} {why}. Or {ADVICE}")

    def _asked(self, *commands: Sequence[str | bytes | int], raw: bool = False) -> list[Reply]:
        """One trip. `raw`: errors of the server are the caller's."""
        if os.getpid() != self._pid:
            raise NotReached("this store belongs to the process that it was forked from")
        try:
            if self._wire is None:
                self._forget()
                self._wire = Wire(self._target, self._limit_s)
            found = self._wire.ask(*commands)
        except PrimacyError as error:
            meant = error if self._answered else explained(error, self._target, self._limit_s)
            raise self._dropped(meant) from None
        self._answered = True
        for answer in found:
            if isinstance(answer, Said) and not raw:
                raise self._dropped(self._wire.refusal(answer))
        return found

    def _dropped(self, error: PrimacyError) -> PrimacyError:
        """Nothing that was seen before an error is the ground of a write; a refusal may be of this connection alone."""
        if self._wire is not None and (self._wire.is_over or not isinstance(error, Refused)):
            self._wire.close()
            self._wire = None
        self._forget()
        return error

    def _forget(self) -> None:
        self._known.clear()
        self._shown = None

    def _remember(self, name: str, text: bytes | None) -> None:
        self._known.pop(name, None)  # those of this trip stand last: its answers are made of what is remembered
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]  # the oldest: a batch is far smaller than this memory
        self._known[name] = text

    def _parts(self, found: Reply, number: int = -1) -> list[Reply]:
        if not isinstance(found, list) or (number >= 0 and len(found) != number):
            raise self._dropped(self._strange())
        return found

    def _paired(self, found: Reply) -> dict[bytes, bytes]:
        """Names and values, one after the other."""
        words = [word for word in self._parts(found) if isinstance(word, bytes)]
        if len(words) % 2:
            raise self._dropped(self._strange())
        return dict(zip(words[::2], words[1::2], strict=True))

    def _number(self, found: Reply) -> int:
        text = _text(found)
        if not NUMBER.fullmatch(text):
            raise self._dropped(self._strange())
        return int(text)

    def _strange(self) -> NotReached:
        return NotReached(f"{self._target} does not answer like Redis 7.0 or newer, or Valkey")

    # --- news ---------------------------------------------------------------------------------------------------------

    def listen(self) -> int:
        if self._subscribed is None:
            wire = Wire(self._target, self._limit_s)
            (answer,) = wire.ask(("SUBSCRIBE", self._table))
            if isinstance(answer, Said):
                wire.close()
                raise wire.refusal(answer)
            self._subscribed = wire
        return self._subscribed.fileno()

    def news(self) -> list[News]:
        if self._subscribed is None:
            return []
        try:
            messages = self._subscribed.pushed()
        except PrimacyError:
            self._subscribed.close()
            self._subscribed = None
            raise
        return [one for message in messages for one in self._told(message)]

    def _told(self, message: Reply) -> list[News]:
        """Who wrote which row, and whether it was a mere renewal. Anybody may say anything here."""
        if not isinstance(message, list) or len(message) != 3 or message[0] != b"message":
            return []
        name, _, rest = _text(message[2]).partition(" ")
        proof, _, word = rest.partition(" ")
        known = self._known.get(name)
        if not name or (known is not None and proof and f'"proof":"{proof}"'.encode() in known):
            return []  # our own write, or an answer was quicker
        return [News(name, renewed=word == "renewed")]


def _listing(name: str, text: bytes) -> Listing:
    found = listing_of(name, lambda: row_of(name, text), "")
    return found if found.row is None else found._replace(written_at=written_at(name, text))


def _proof() -> str:
    return os.urandom(8).hex()


def _text(found: Reply) -> str:
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found)


def _bytes(found: Reply) -> bytes | None:
    return found if isinstance(found, bytes) else None
