"""Leases in Kubernetes: one Lease object for each row (`kubernetes_rows.py`), written if it is still the very one that
was seen: uid and resourceVersion are sent with every write, and the server compares them (L1).

The identity is the uid of the namespace `kube-system`, which is the cluster's. It names no start: etcd below the API
may be put back and the API still answers to that name. So nothing here is believed at once before this process has
watched over one connection for the longest wait (`watched`, L4), and a broken one starts everything anew (`linked`).
The mark is the uid and the resourceVersion of the object: one that was removed and made anew, or put back by hand, has
another. The position is the resourceVersion of the whole list, which never falls while history is kept.

Only one object can be written in one step. So there is no genesis row: a missing row is always placed and watched (L3),
no row is ever pruned, and the longest wait is that of every table that nobody raised. Who asks for a longer hold is
refused.

A request of several leases is several requests of the API, one after the other. If one fails, those before it are
proved all the same.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from primacy.election.store import (
    WAIT_MAX_MS,
    Genesis,
    Look,
    Place,
    Prune,
    Settle,
    StoreAnswer,
    StoreRequest,
    Take,
)
from primacy.errors import NotReached, PrimacyError, Refused, UsageError
from primacy.store import conditions
from primacy.store.etcd_http import Watch
from primacy.store.kubernetes_http import CONFLICT, MISSING, Api
from primacy.store.kubernetes_rows import (
    API,
    TABLE,
    UID,
    VERSION,
    Known,
    known,
    made,
    name_in,
    object_name,
    written_at,
)
from primacy.store.port import LIST_MAX, NAME_MAX, Listing, News, check_request, check_table

log = logging.getLogger("primacy.store")

CLUSTER = "/api/v1/namespaces/kube-system"
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NO_GENESIS = Genesis(vouches=False)
"""There is none; what a placeholder needs of it: the floor, and the longest wait."""


class KubernetesStore:
    """The Leases of one namespace that belong to one table."""

    def __init__(self, api: Api, table: str = "primacy_leases") -> None:
        self._api = api
        self._table = check_table(table)
        if table.strip("_") != table:
            raise UsageError(f"in Kubernetes a table's name neither begins nor ends with an underscore: {table!r}")
        self._known: dict[str, Known] = {}
        """The rows as they stand, as far as this connection showed them."""
        self._server = ""
        """The identity, asked for once on each connection; empty: not asked yet."""
        self._position = 0
        self._watch: Watch | None = None
        self._heard: dict[str, int] = {}
        """The newest token of each name that the watch told of."""
        self._pid = os.getpid()

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # the sockets are the parent's as well; nothing is said on them
        self._api.close()
        self._forget()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def make_table(self, new: bool = False, wait_max_ms: int = 0) -> None:
        """Nothing has to be made. Neither word of an operator can be kept here."""
        if wait_max_ms > WAIT_MAX_MS:
            raise UsageError(f"the longest wait of leases in Kubernetes is {WAIT_MAX_MS} ms and cannot be raised")
        if new:
            raise UsageError("in Kubernetes every fresh name is watched before it is taken: leave --new out")
        self.look([Look("nobody")])

    def listings(self) -> list[Listing]:
        with self._understood():
            found = self._listed()
            return [_listing(body) for body in sorted(found, key=name_in) if name_in(body)][:LIST_MAX]

    # --- requests -----------------------------------------------------------------------------------------------------

    def _perform(self, requests: Sequence[StoreRequest]) -> list[StoreAnswer]:
        for request in requests:
            check_request(request)
        answers: list[StoreAnswer] = []
        looked = False
        for request in requests:
            try:
                if not looked and (isinstance(request, Look) or not self._is_known(request)):
                    self._look()
                    looked = True
                answers.append(self._one(request))
            except PrimacyError as error:
                if not answers:
                    raise
                answers.append(StoreAnswer(ok=False, reason=str(error)))
        return answers

    look = take = renew = release = change = _perform
    """Each request says itself what is asked."""

    def _is_known(self, request: StoreRequest) -> bool:
        return bool(self._server) and self._api.is_open and request.name in self._known

    def _one(self, request: StoreRequest) -> StoreAnswer:
        """One request; if the row is not what was remembered, once more with what is there now."""
        if isinstance(request, Take) and request.row.wait_ms > WAIT_MAX_MS:
            raise UsageError(
                f"a hold that others must wait {request.row.wait_ms} ms for is too long for Kubernetes, which admits "
                f"{WAIT_MAX_MS} ms: choose a quicker profile"
            )
        for _ in range(2):
            row = self._planned(request)
            if row is None:
                return self._answer(request)
            if self._write(request.name, row):
                return self._answer(request, done=True)
            self._look()
        if isinstance(request, Place) and request.name not in self._known:
            raise Refused(
                f"a Lease named {object_name(self._table, request.name)} is there already and is not one of primacy's: "
                "choose another name for the election, or another table"
            )
        return self._answer(request)

    def _planned(self, request: StoreRequest) -> Any:
        """The row to be written, going by what is remembered; None: nothing."""
        if isinstance(request, Look | Settle | Prune) or not self._api.is_open:
            return None
        if isinstance(request, Take) and request.link not in (0, self._api.link):
            return None  # its evidence came over another connection
        change = conditions.after(self._row(request), NO_GENESIS, request, self._server)
        return None if change is None else change.row

    def _row(self, request: StoreRequest) -> Any:
        found = self._known.get(request.name, Known())
        if found.uid and found.row is None:
            raise Refused(f"the Lease {object_name(self._table, request.name)} is not one of primacy's")
        return found.row

    def _answer(self, request: StoreRequest, done: bool = False) -> StoreAnswer:
        return StoreAnswer(
            ok=True,
            done=done,
            row=self._row(request),
            server=self._server,
            position=self._position,
            link=self._api.link,
            linked=True,
            watched=True,
        )

    def _write(self, name: str, row: Any) -> bool:
        """One object, if it is the very one that was seen, or if there is none and none was seen."""
        before = self._known.get(name, Known())
        body = made(self._table, self._api.account.namespace, name, row._replace(proof=os.urandom(8).hex()), before)
        link = self._api.link
        if before.uid:
            answer = self._ask("PUT", f"{self._folder()}/{object_name(self._table, name)}", body)
        else:
            answer = self._ask("POST", self._folder(), body)
        if answer.status in (CONFLICT, MISSING):
            return False
        with self._understood():
            found = known(name, answer.body)
            if (before.uid and found.uid != before.uid) or self._api.link != link:
                raise ValueError("another object was written than the one that was meant")
            self._known[name] = found
            self._position = max(self._position, int(found.version))
        return True

    # --- looks --------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """All rows of the table, in one answer that is as new as the store itself."""
        with self._understood():
            found = {name_in(body): body for body in self._listed()}
            self._known = {name: _seen(name, body) for name, body in found.items() if name}

    def _listed(self) -> list[dict[str, Any]]:
        if not self._server or not self._api.is_open:
            self._forget()
            cluster = self._ask("GET", CLUSTER)
            uid = str(cluster.body["metadata"]["uid"]) if cluster.status == 200 else ""
            if not UID.fullmatch(uid):
                raise ValueError("it has no namespace kube-system")
            self._server = f"kubernetes:{uid}"
        answer = self._ask("GET", self._folder(), labelSelector=f"{TABLE}={self._table}")
        if answer.status != 200:
            raise Refused(f"{self._api.account}: {str(answer.body.get('message'))[:160]}")
        version = str(answer.body["metadata"]["resourceVersion"])
        if not VERSION.fullmatch(version):
            raise ValueError(f"resourceVersion {version[:40]!r}")
        self._position = int(version)
        items: list[dict[str, Any]] = answer.body["items"] or []
        return items

    def _folder(self) -> str:
        return f"/apis/{API}/namespaces/{self._api.account.namespace}/leases"

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None, **query: str) -> Any:
        if os.getpid() != self._pid:
            raise NotReached("this store belongs to the process that it was forked from")
        try:
            return self._api.ask(method, path, body, **query)
        except PrimacyError:
            self._forget()
            raise

    def _forget(self) -> None:
        """Nothing that was seen on another connection is the ground of a write."""
        self._known.clear()
        self._server, self._position = "", 0

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """What speaks JSON and is not Kubernetes: nothing that it says proves anything."""
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            log.debug("an answer of Kubernetes was not understood", exc_info=True)
            where = str(self._api.account)
            self._api.close()
            self._forget()
            said = f"{type(error).__name__}: {error}"[:80]
            raise NotReached(f"{where} does not answer like the API of Kubernetes ({said})") from None

    # --- news ---------------------------------------------------------------------------------------------------------

    def listen(self) -> int:
        if self._watch is None:
            self._look()
            query = {"labelSelector": f"{TABLE}={self._table}", "resourceVersion": str(self._position)}
            self._watch = self._api.watch(self._folder(), **query)
        return self._watch.stream.fileno()

    def news(self) -> list[News]:
        if self._watch is None:
            return []
        try:
            return [news for line in self._watch.lines() for news in self._told(line)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._watch.close()
            self._watch = None
            raise NotReached(f"the watch ended: {error}") from None

    def _told(self, line: dict[str, Any]) -> list[News]:
        """What one line of the watch says: whose row was written, and whether it was a mere renewal."""
        if line["type"] == "ERROR":
            raise ValueError(str(line["object"].get("message") or "error")[:120])
        if line["type"] == "BOOKMARK" or not (name := name_in(line["object"])):
            return []
        before = self._known.get(name, Known())
        if before.version and int(line["object"]["metadata"]["resourceVersion"]) <= int(before.version):
            return []  # our own write, or an answer was quicker
        row = _seen(name, line["object"]).row if line["type"] != "DELETED" else None
        renewed = row is not None and not row.released and self._heard.get(name) == row.token
        if row is not None and (name in self._heard or len(self._heard) < LIST_MAX):
            self._heard[name] = row.token
        return [News(name, renewed)]


def _seen(name: str, body: dict[str, Any]) -> Known:
    """One that is not primacy's must not cost the others of the same answer their proof."""
    try:
        return known(name, body)
    except Refused:
        return Known(uid="foreign")


def _listing(body: dict[str, Any]) -> Listing:
    name = name_in(body)
    try:
        return Listing(name, known(name, body).row, written_at(body))
    except Refused as error:
        return Listing(ascii(name)[1:-1][:NAME_MAX], None, "", str(error))
