"""Leases in etcd: the same row in one key, compared by the revision of its last change, renewed by put (L5).

No etcd lease: its time runs out on the server's clock and shows no renewals, so that a taker would have to wait a whole
hold after *its own* take. A put per renewal can be watched like a row.

etcd's transactions compare one state of the world. A batch is therefore one transaction of many small ones, each with
its own condition and its own answer. What a condition needs to know of the row (token, seq, holder) is judged here, on
the newest state that was read; the revision then proves that it was still so. One trip as long as nobody else wrote.

The identity is the cluster's id and its raft term. A transaction cannot compare it: what is answered under another one
than it was meant for is not done. Neither tells that a data folder was put back, as the term may be the one of the
history that was lost: only the broken connection does (`linked`). So all that is known here is of one connection,
and no request is ever sent again on another one.

What vouches for a row stands in `etcd_rows.py`. The raft index is asked for once per connection; from then on it
grows at least by one with every revision, and is asked for again if a row claims a larger one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from primacy.election.store import (
    GENESIS,
    Genesis,
    Look,
    ReleaseRow,
    Renew,
    Settle,
    StoreAnswer,
    StoreRequest,
    Take,
)
from primacy.errors import NotReached, PrimacyError, Refused, StoreUnusable
from primacy.node.clock import Clock, SystemClock
from primacy.store import conditions
from primacy.store.etcd_http import Gateway, Watch
from primacy.store.etcd_rows import (
    INDEX_LEAST,
    Known,
    b64,
    genesis_value,
    key_of,
    known_genesis,
    known_row,
    row_value,
    written_at,
)
from primacy.store.port import (
    LIST_MAX,
    NAME_MAX,
    Listing,
    News,
    check_table,
    check_wait_max,
)
from primacy.store.rounds import KNOWN_MAX, MAKE_MAX, first_version, perform_in_rounds, writes_genesis

log = logging.getLogger("primacy.store")


class Shown(NamedTuple):
    """What one answer of etcd tells beside the rows."""

    server: str
    revision: int
    raft_index: int
    """At that moment, or less."""
    genesis: Known
    rows: int = -1
    """How many leases there are; -1: not counted."""


class EtcdStore:
    """One cluster, one folder of keys."""

    def __init__(self, gateway: Gateway, table: str = "primacy_leases", clock: Clock | None = None) -> None:
        self._gateway = gateway
        self._prefix = f"{check_table(table)}/"
        self._clock = clock or SystemClock()
        self._known: dict[str, Known] = {}
        self._genesis = Known()
        self._wrong_genesis = ""
        """What is wrong with the genesis row, if it is not one of primacy's."""
        self._shown: Shown | None = None
        """The newest answer on this connection; None: nothing is known of it."""
        self._stamp_ms = 0
        """When the first answer on this connection had come, or its genesis row was last looked at."""
        self._status = (0, 0)
        """Raft index and revision, as they were once on this connection."""
        self._heard: dict[str, int] = {}
        """The newest token of each name that the watch told of."""
        self._watch: Watch | None = None
        self._pid = os.getpid()

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # the sockets are the parent's as well; nothing is said on them
        self._gateway.close()
        self._forget()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def listings(self) -> list[Listing]:
        body = {**self._folder(), "limit": LIST_MAX + 1}
        found = self._post("kv/range", body)
        index, _ = self._asked_status()
        listings = []
        with self._understood():
            for kv in found.get("kvs", []):
                name = key_of(kv)[len(self._prefix) :]
                if name != GENESIS:
                    listings.append(_listing(name, kv, index))
        return listings[:LIST_MAX]

    def make_table(self, new: bool = False, wait_max_ms: int = 0) -> None:
        check_wait_max(wait_max_ms)
        for _ in range(MAKE_MAX):
            with self._understood():
                _, shown, _ = self._ask([], count=True)
            if self._wrong_genesis:
                raise Refused(self._wrong_genesis)
            if new and shown.rows:
                raise Refused(
                    f"{shown.rows} leases are below {self._prefix} in etcd, so it is not new: without that word, "
                    "fresh names are free some seconds after somebody began to use it"
                )
            found = shown.genesis.genesis_at(shown.raft_index, shown.rows)
            wanted = found._replace(wait_max_ms=max(found.wait_max_ms, wait_max_ms))
            if new:
                wanted = wanted._replace(settled=shown.server, names=0)
            elif not found.vouches:
                wanted = wanted._replace(settled="")  # its next mark vouches, and it must not look settled by that
            if shown.genesis.revision and wanted == found and (found.vouches or not new):
                return
            version = found.version + 1 if shown.genesis.revision else first_version()
            if self._write_genesis(shown, wanted._replace(version=version)):
                return
        raise Refused(f"the leases below {self._prefix} in etcd changed all the time: try again")

    # --- requests -----------------------------------------------------------------------------------------------------

    def _perform(self, requests: Sequence[StoreRequest]) -> list[StoreAnswer]:
        return perform_in_rounds(requests, self._round)

    look = take = renew = release = change = _perform
    """Each request says itself what is asked."""

    def _round(self, requests: Sequence[StoreRequest], last: bool) -> list[StoreAnswer | None]:
        """One trip (`rounds.py`)."""
        if not self._gateway.is_open:
            self._forget()  # it was of another connection
        meant, before, index = self._shown, dict(self._known), self._index_now()
        planned = [self._planned(request, last) for request in requests]
        steps = [self._step(request, change, index) for request, change in zip(requests, planned, strict=True)]
        count = any(conditions.needs_count(request) for request in requests)
        with self._understood():
            inners, shown, wrong = self._ask(list(zip((r.name for r in requests), steps, strict=True)), count)
        if not shown.genesis.revision and not self._wrong_genesis and not last and self._made_genesis(shown):
            shown = shown._replace(genesis=self._genesis)
        answers: list[StoreAnswer | None] = []
        for request, change, inner in zip(requests, planned, inners, strict=True):
            if change is not None and inner.get("succeeded"):
                assert meant is not None
                self._wrote(request.name, change, before[request.name], shown.revision, index)
                # under another identity it was written where nobody meant it, with a stamp that nobody trusts
                answers.append(self._answer(request, shown, done=shown.server == meant.server))
                continue
            if request.name in wrong or (self._wrong_genesis and not isinstance(request, Renew | ReleaseRow)):
                reason = wrong.get(request.name, self._wrong_genesis)
                answers.append(StoreAnswer(ok=False, reason=reason))
                continue
            again = not last and self._planned(request, last=True) is not None
            answers.append(None if again else self._answer(request, shown))
        self._stamp_genesis(shown)
        return answers

    def _planned(self, request: StoreRequest, last: bool) -> conditions.Change | None:
        """What to write, going by what is remembered; None: only read.

        The genesis row and a count are not remembered: what needs them reads first, and writes in the last round.
        """
        shown, known = self._shown, self._known.get(request.name)
        if shown is None or known is None or isinstance(request, Look) or (writes_genesis(request) and not last):
            return None
        if isinstance(request, Take | Settle) and request.link not in (0, self._gateway.link):
            return None  # its evidence came over another connection
        genesis = self._genesis.genesis_at(shown.raft_index, shown.rows)
        change = conditions.after(known.row_at(shown.raft_index), genesis, request, shown.server)
        if change is None or change.row is None:
            return change
        return change._replace(row=change.row._replace(proof=os.urandom(8).hex()))

    def _step(self, request: StoreRequest, change: conditions.Change | None, index: int) -> dict[str, Any]:
        """One small transaction: write if row and genesis row are as they were, else read the row."""
        key = b64(self._prefix + request.name)
        read = {"request_range": {"key": key}}
        if change is None:
            return {"success": [read]}
        known, compare, writes = self._known[request.name], [], []
        if change.row is not None:
            value = row_value(change.row, known.version + 1, index)
            compare, writes = [_same(key, known.revision)], [{"request_put": {"key": key, "value": b64(value)}}]
        elif change.removed:
            compare, writes = [_same(key, known.revision)], [{"request_delete_range": {"key": key}}]
        else:
            writes = [read]
        if change.genesis is not None:
            condition, write = self._genesis_step(self._genesis, change.genesis, index)
            compare, writes = [*compare, condition], [*writes, write]
        return {"compare": compare, "success": writes, "failure": [read]}

    def _genesis_step(self, known: Known, genesis: Genesis, index: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Its condition and its write."""
        key = b64(self._prefix + GENESIS)
        value = genesis_value(genesis, known.version + 1, index)
        return _same(key, known.revision), {"request_put": {"key": key, "value": b64(value)}}

    def _wrote(self, name: str, change: conditions.Change, before: Known, revision: int, index: int) -> None:
        """What stands there now, as this very transaction wrote it. The genesis row was read after it."""
        if change.row is not None:
            self._remember(name, Known(revision, before.version + 1, index, row=change.row))
        elif change.removed:
            self._remember(name, Known())

    def _answer(self, request: StoreRequest, shown: Shown, done: bool = False) -> StoreAnswer:
        known = self._known[request.name]
        whole = not done or not isinstance(request, Renew | ReleaseRow)
        count = shown.rows if conditions.needs_count(request) else -1
        is_here = known.row is not None and known.row.server == shown.server
        return StoreAnswer(
            ok=True,
            done=done,
            row=known.row_at(shown.raft_index),
            server=shown.server,
            genesis=shown.genesis.genesis_at(shown.raft_index, count) if whole else None,
            position=shown.revision,
            link=self._gateway.link,
            linked=True,
            watched=known.is_young or (shown.genesis.is_young and not is_here),
        )

    # --- the genesis row ----------------------------------------------------------------------------------------------

    def _made_genesis(self, shown: Shown) -> bool:
        """It is made if it is missing. One who may only read sees a table that nobody has settled."""
        try:
            return self._write_genesis(shown, Genesis(version=first_version()))
        except (Refused, StoreUnusable):
            return False

    def _stamp_genesis(self, shown: Shown) -> None:
        """A genesis row from the cluster's beginnings gets a raft index that proves more (L5).

        Only after this connection stood for wait_max: whatever was lost before it, its holders are dead by now.
        """
        genesis, now_ms = shown.genesis.genesis_at(shown.raft_index, -1), self._clock.now_ms()
        if not shown.genesis.is_young or not genesis.vouches or now_ms <= self._stamp_ms + genesis.wait_max_ms:
            return
        self._stamp_ms = now_ms
        try:
            self._status = self._asked_status()
            if self._index_now() >= INDEX_LEAST:
                self._write_genesis(shown, genesis._replace(version=genesis.version + 1))
        except (Refused, StoreUnusable) as error:
            log.debug("the genesis row was not written: %s", error)

    def _write_genesis(self, shown: Shown, genesis: Genesis) -> bool:
        """Writes it if it is as it was shown."""
        index = self._index_now()
        condition, write = self._genesis_step(shown.genesis, genesis, index)
        found = self._post("kv/txn", {"compare": [condition], "success": [write]})
        with self._understood():
            if not found.get("succeeded") or _identity(found) != shown.server:
                return False
            revision = int(found["header"]["revision"])
        self._genesis = Known(revision, shown.genesis.version + 1, index, genesis=genesis)
        return True

    # --- trips --------------------------------------------------------------------------------------------------------

    def _ask(
        self, steps: list[tuple[str, dict[str, Any]]], count: bool
    ) -> tuple[list[dict[str, Any]], Shown, dict[str, str]]:
        """One transaction: the steps, each with the name of its row, then the genesis row, and the count.

        What was read is remembered, as it stood after what was written; of a row that is not primacy's, what is wrong
        with it: it must not cost the others of the same transaction their proof.
        """
        beside: list[dict[str, Any]] = [{"request_range": {"key": b64(self._prefix + GENESIS)}}]
        if count:
            beside.append({"request_range": {**self._folder(), "count_only": True}})
        found = self._post("kv/txn", _transaction([step for _, step in steps], beside))
        if self._shown is not None and self._shown.server != _identity(found):
            self._forget()
        answers = found["responses"]
        parts = answers[: -len(beside)]
        inners: list[dict[str, Any]] = [{**found, "responses": parts}]
        if len(steps) != 1:
            inners = [answer["response_txn"] for answer in parts]
        self._read_genesis(answers[-len(beside)])
        wrong: dict[str, str] = {}
        largest = self._genesis.raft_index
        for (name, _), inner in zip(steps, inners, strict=True):
            for answer in inner.get("responses", []):
                if "response_range" not in answer:
                    continue
                try:
                    self._remember(name, _read(answer, known_row))
                    largest = max(largest, self._known[name].raft_index)
                except Refused as error:
                    self._known.pop(name, None)
                    wrong[name] = str(error)
        number = int(answers[-1]["response_range"].get("count", 0)) if count else 0
        shown = self._show(found, largest, number - (self._genesis.revision > 0) if count else -1)
        return inners, shown, wrong

    def _read_genesis(self, answer: dict[str, Any]) -> None:
        """Whatever stands in that row, a live holder does not depend on it."""
        self._wrong_genesis = ""
        try:
            self._genesis = _read(answer, known_genesis)
        except Refused as error:
            self._genesis, self._wrong_genesis = Known(), str(error)

    def _show(self, found: dict[str, Any], largest: int, count: int) -> Shown:
        """Remembers what an answer tells of the store. `largest`: the raft index of a row that it showed."""
        revision = int(found["header"]["revision"])
        is_first = self._shown is None
        self._shown = Shown(_identity(found), revision, 0, self._genesis, count)
        if is_first:
            self._stamp_ms = self._clock.now_ms()
        if is_first or largest > self._index_now():
            self._status = self._asked_status()
        self._shown = self._shown._replace(raft_index=self._index_now())
        return self._shown

    def _index_now(self) -> int:
        """Every revision is an entry of raft's log."""
        index, at_revision = self._status
        return 0 if self._shown is None else index + max(0, self._shown.revision - at_revision)

    def _asked_status(self) -> tuple[int, int]:
        found = self._post("maintenance/status", {})
        with self._understood():
            index = int(found.get("raftAppliedIndex") or found["raftIndex"])
            return index, int(found["header"]["revision"])

    def _forget(self) -> None:
        """Nothing that was seen on another connection, or under another identity, is the ground of a write."""
        self._known.clear()
        self._genesis, self._shown, self._status = Known(), None, (0, 0)

    def _remember(self, name: str, known: Known) -> None:
        self._known.pop(name, None)  # those of this trip stand last: its answers are made of what is remembered
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]  # the oldest: a batch is far smaller than this memory
        self._known[name] = known

    def _folder(self) -> dict[str, str]:
        """All keys of this table."""
        return {"key": b64(self._prefix), "range_end": b64(self._prefix[:-1] + "0")}

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if os.getpid() != self._pid:
            raise NotReached("this store belongs to the process that it was forked from")
        try:
            return self._gateway.post(path, body)
        except PrimacyError:
            self._forget()
            raise

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """What speaks JSON and is not etcd, or is one of another version: nothing that it says proves anything."""
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            log.debug("an answer of etcd was not understood", exc_info=True)
            where = self._gateway.where()
            self._gateway.close()
            self._forget()
            said = f"{type(error).__name__}: {error}"[:80]
            raise NotReached(f"{where} does not answer like etcd ({said}): is this etcd 3.4 or newer?") from None

    # --- news ---------------------------------------------------------------------------------------------------------

    def listen(self) -> int:
        if self._watch is None:
            self._watch = self._gateway.watch({"create_request": self._folder()})
        return self._watch.stream.fileno()

    def news(self) -> list[News]:
        if self._watch is None:
            return []
        try:
            return [news for line in self._watch.lines() for news in self._told(line["result"])]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._watch.close()
            self._watch = None
            raise NotReached(f"the watch ended: {error}") from None

    def _told(self, result: dict[str, Any]) -> list[News]:
        """What one line of the watch says: whose row was written, and whether it was a mere renewal."""
        if result.get("canceled"):
            raise ValueError(str(result.get("cancel_reason") or "cancelled"))
        found = []
        for event in result.get("events", []):
            name = key_of(event["kv"])[len(self._prefix) :]
            before = self._known.get(name)
            if name == GENESIS or (before is not None and int(event["kv"]["mod_revision"]) <= before.revision):
                continue  # our own write, or an answer was quicker
            try:
                row = known_row(event["kv"]).row if event.get("type") != "DELETE" else None
            except Refused:
                row = None  # the look says what is wrong with it
            renewed = row is not None and not row.released and self._heard.get(name) == row.token
            if row is not None and (name in self._heard or len(self._heard) < KNOWN_MAX):
                self._heard[name] = row.token
            found.append(News(name, renewed))
        return found


def _listing(name: str, kv: dict[str, Any], index: int) -> Listing:
    try:
        return Listing(name, known_row(kv).row_at(index), written_at(kv))
    except Refused as error:
        return Listing(ascii(name)[1:-1][:NAME_MAX], None, "", str(error))


def _identity(found: dict[str, Any]) -> str:
    header = found["header"]
    return f"etcd:{header['cluster_id']}:{header.get('raft_term', 0)}"


def _transaction(steps: list[dict[str, Any]], beside: list[dict[str, Any]]) -> dict[str, Any]:
    """All steps, and what is read after them. A single one is not wrapped: etcd 3.4 checks no rights inside."""
    if len(steps) != 1:
        return {"success": [*({"request_txn": step} for step in steps), *beside]}
    (step,) = steps
    return {
        "compare": step.get("compare", []),
        "success": [*step["success"], *beside],
        "failure": [*step.get("failure", []), *beside],
    }


def _same(key: str, revision: int) -> dict[str, Any]:
    return {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def _read(answer: dict[str, Any], known: Callable[[dict[str, Any]], Known]) -> Known:
    kvs = answer["response_range"].get("kvs", [])
    return known(kvs[0]) if kvs else Known()
