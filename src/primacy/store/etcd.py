"""Leases in etcd: the same row in one key, compared by the revision of its last change, renewed by put (L5).

No etcd lease: its time runs out on the server's clock and shows no renewals, so that a taker would have to wait a whole
hold after *its own* take. A put per renewal can be watched like a row.

etcd's transactions compare one state of the world. A batch is therefore one transaction of many small ones, each with
its own condition and its own answer. What a condition needs to know of the row (token, seq, holder) is judged here, on
the newest state that was read; the revision then proves that it was still so. One trip as long as nobody else wrote.

The "server" is the cluster's id. A cluster that was restored from a backup may come back under the same id: its
revision went back then, and that one answer names another server, which starts every observation anew.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take
from primacy.errors import NotReached, Refused
from primacy.store.conditions import after
from primacy.store.etcd_http import Gateway, Watch
from primacy.store.port import LIST_MAX, News, Sheet, check_request, check_table, checked_row

ROUNDS_MAX = 2
"""With what is remembered, and with what the store then showed. Whoever loses twice in a row has lost."""
KNOWN_MAX = 10_000
"""Rows that are remembered between requests."""


class Known(NamedTuple):
    """A row and the revision of its last change; 0 for none."""

    revision: int
    row: Row | None


class EtcdStore:
    """One cluster, one folder of keys."""

    def __init__(self, gateway: Gateway, table: str = "primacy_leases") -> None:
        self._gateway = gateway
        self._prefix = f"{check_table(table)}/"
        self._known: dict[str, Known] = {}
        self._cluster = ""
        self._revision = 0
        self._watch: Watch | None = None
        self._pid = os.getpid()

    def look(self, requests: Sequence[Look]) -> list[StoreAnswer]:
        return self._perform(requests)

    def take(self, requests: Sequence[Take]) -> list[StoreAnswer]:
        return self._perform(requests)

    def renew(self, requests: Sequence[Renew]) -> list[StoreAnswer]:
        return self._perform(requests)

    def release(self, requests: Sequence[ReleaseRow]) -> list[StoreAnswer]:
        return self._perform(requests)

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # the sockets are the parent's as well; nothing is said on them
        self._gateway.close()
        self._known.clear()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def sheets(self) -> list[Sheet]:
        body = {"key": _b64(self._prefix), "range_end": _b64(self._prefix[:-1] + "0"), "limit": LIST_MAX}
        found = self._post("kv/range", body)
        return [_sheet(kv, len(self._prefix)) for kv in found.get("kvs", [])]

    # --- requests -----------------------------------------------------------------------------------------------------

    def _perform(self, requests: Sequence[StoreRequest]) -> list[StoreAnswer]:
        for request in requests:
            check_request(request)
        answers: dict[int, StoreAnswer] = {}
        for _ in range(ROUNDS_MAX):
            left = [i for i in range(len(requests)) if i not in answers]
            if left:
                found = self._round([requests[i] for i in left])
                answers.update((i, answer) for i, answer in zip(left, found, strict=True) if answer is not None)
        left = [i for i in range(len(requests)) if i not in answers]
        for i in left:  # beaten by somebody else both times: what stands there is what its failure showed
            known = self._known.get(requests[i].name, Known(0, None))
            answers[i] = StoreAnswer(ok=True, row=known.row, server=self._cluster)
        return [answers[i] for i in range(len(requests))]

    def _round(self, requests: Sequence[StoreRequest]) -> list[StoreAnswer | None]:
        """One trip. None: not decided, as the row was not what we remembered; now we know it, and may try again."""
        meant = self._cluster
        planned = [self._planned(request) for request in requests]
        steps = [self._step(request, new) for request, new in zip(requests, planned, strict=True)]
        found, inners = self._transact(steps)
        server = self._answered_by(found)
        revision = int(found["header"]["revision"])
        answers: list[StoreAnswer | None] = []
        for request, new, inner in zip(requests, planned, inners, strict=True):
            if new is not None and inner.get("succeeded"):
                self._remember(request.name, Known(revision, new))
                done = server == meant  # else it was written where nobody meant it, under a name that nobody trusts
                answers.append(StoreAnswer(ok=True, done=done, row=new, server=server))
                continue
            before = self._known.get(request.name)
            kvs = inner["responses"][0]["response_range"].get("kvs", [])
            known = _known(kvs[0]) if kvs else Known(0, None)
            self._remember(request.name, known)
            again = new is not None or before is None or before != known
            if again and not isinstance(request, Look) and after(known.row, request, server) is not None:
                answers.append(None)
            else:
                answers.append(StoreAnswer(ok=True, row=known.row, server=server))
        return answers

    def _planned(self, request: StoreRequest) -> Row | None:
        """What to write, going by what is remembered; None: only read."""
        known = self._known.get(request.name)
        return None if known is None or not self._cluster else after(known.row, request, self._cluster)

    def _step(self, request: StoreRequest, new: Row | None) -> dict[str, Any]:
        """One small transaction: write if the row is as it was, else read it."""
        key = _b64(self._prefix + request.name)
        read = {"request_range": {"key": key}}
        if new is None:
            return {"success": [read]}
        revision = self._known[request.name].revision
        write = {"request_put": {"key": key, "value": _b64(_value(new))}}
        same = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        return {"compare": [same], "success": [write], "failure": [read]}

    def _transact(self, steps: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The answer, and the part of each step. A single one is not wrapped: older servers check less inside."""
        if len(steps) == 1:
            found = self._post("kv/txn", steps[0])
            return found, [found]
        found = self._post("kv/txn", {"success": [{"request_txn": step} for step in steps]})
        return found, [answer.get("response_txn", {}) for answer in found.get("responses", [])]

    def _answered_by(self, found: dict[str, Any]) -> str:
        """Who answered; another name for a cluster whose revision went back."""
        header = found["header"]
        cluster, revision = f"etcd:{header['cluster_id']}", int(header["revision"])
        went_back = cluster == self._cluster and revision < self._revision
        if cluster != self._cluster or went_back:
            self._known.clear()
        self._cluster, self._revision = cluster, revision
        return f"{cluster}:restored:{revision}" if went_back else cluster

    def _remember(self, name: str, known: Known) -> None:
        if len(self._known) >= KNOWN_MAX and name not in self._known:
            del self._known[next(iter(self._known))]  # the oldest: a batch is far smaller than this memory
        self._known[name] = known

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if os.getpid() != self._pid:
            raise NotReached("this store belongs to the process that it was forked from")
        try:
            return self._gateway.post(path, body)
        except NotReached:
            self._known.clear()
            raise

    # --- news ---------------------------------------------------------------------------------------------------------

    def listen(self) -> int:
        if self._watch is None:
            keys = {"key": _b64(self._prefix), "range_end": _b64(self._prefix[:-1] + "0")}
            self._watch = self._gateway.watch({"create_request": keys})
        return self._watch.stream.fileno()

    def news(self) -> list[News]:
        if self._watch is None:
            return []
        try:
            found = [news for line in self._watch.lines() for news in self._told(line["result"])]
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._watch.close()
            self._watch = None
            raise NotReached(f"the watch ended: {error}") from None
        return found

    def _told(self, result: dict[str, Any]) -> list[News]:
        """What one line of the watch says. Who may write these keys may write the rows: it is as good as a read."""
        if result.get("canceled"):
            raise ValueError(str(result.get("cancel_reason") or "cancelled"))
        same = f"etcd:{result['header']['cluster_id']}" == self._cluster
        found = []
        for event in result.get("events", []):
            name = base64.b64decode(event["kv"]["key"]).decode()[len(self._prefix) :]
            if event.get("type") == "DELETE" or not same:
                found.append(News(name))
                continue
            before = self._known.get(name)
            revision = int(event["kv"]["mod_revision"])
            if before is not None and revision <= before.revision:
                continue  # our own write, or an answer was quicker
            try:
                known = _known(event["kv"])
            except Refused:
                found.append(News(name))  # the look says what is wrong with it
                continue
            self._revision = max(self._revision, revision)
            self._remember(name, known)
            found.append(News(name, StoreAnswer(ok=True, row=known.row, server=self._cluster)))
        return found


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _value(row: Row) -> str:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return json.dumps({**row._asdict(), "released": int(row.released), "written_at": now}, separators=(",", ":"))


def _document(kv: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(base64.b64decode(kv["value"]))
    except (ValueError, KeyError) as error:
        raise Refused(f"a key in etcd is not one of primacy's: {error}") from None
    if not isinstance(found, dict):
        raise Refused("a key in etcd is not one of primacy's")
    return found


def _known(kv: dict[str, Any]) -> Known:
    found = _document(kv)
    return Known(int(kv["mod_revision"]), checked_row([found.get(field) for field in Row._fields]))


def _sheet(kv: dict[str, Any], skip: int) -> Sheet:
    name = base64.b64decode(kv["key"]).decode(errors="replace")[skip:]
    row = _known(kv).row
    assert row is not None
    return Sheet(name, row, str(_document(kv).get("written_at", "")))
