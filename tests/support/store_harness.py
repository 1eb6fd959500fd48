"""What the tests of the stores share: every store under test by name, and requests that are easy to write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from primacy.election.store import Genesis, Look, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take
from primacy.election.store import Place as PlaceRow
from primacy.store import LeaseStore, open_store, perform
from primacy.store.port import MakesTable, Notifies

HOLD_MS, WAIT_MS = 3_000, 3_061
KEPT_READY = "postgresql, statements kept ready"
"""As a node uses it that listens. Without that, each statement is sent as its text."""
LIMIT_MS = 20_000
"""For an answer, where a test is not about limits: a machine may stall, and a disk be slow."""


def row(holder: str = "a#1", token: int = 10, seq: int = 1, members: str = "", server: str = "") -> Row:
    return Row(holder, token, seq, HOLD_MS, WAIT_MS, False, members, "", server)


def plain(found: Row | None) -> Row | None:
    """What a taker says of its row; the store's own fields (proof, mark, vouches) are left out."""
    return None if found is None else found._replace(proof="", mark="", vouches=True)


class Harness:
    """One store, asked one thing at a time."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store

    def ask(self, request: StoreRequest) -> StoreAnswer:
        (answer,) = perform(self.store, [request])
        return answer

    def look(self, name: str = "job", count: bool = False) -> StoreAnswer:
        return self.ask(Look(name, count))

    def server(self) -> str:
        return self.look("nobody").server

    def seen(self, names: Sequence[str]) -> list[StoreAnswer]:
        """What takes of these names rest on."""
        return perform(self.store, [Look(name, True) for name in names])

    def take(
        self, name: str = "job", new: Row | None = None, seen: StoreAnswer | None = None, server: str = ""
    ) -> StoreAnswer:
        """Takes the row that stands there, or inserts, unless another answer is what it saw."""
        if seen is None:
            (seen,) = self.seen([name])
        genesis = seen.genesis if seen.row is None else None
        return self.ask(Take(name, seen.row, server or seen.server, new or row(), genesis))

    def take_all(self, names: Sequence[str]) -> list[StoreAnswer]:
        """The same of many at once."""
        found = zip(names, self.seen(names), strict=True)
        return perform(self.store, [Take(name, seen.row, seen.server, row(), seen.genesis) for name, seen in found])

    def renew(
        self, name: str = "job", holder: str = "a#1", token: int = 10, seq: int = 1, server: str = ""
    ) -> StoreAnswer:
        return self.ask(Renew(name, holder, token, seq, server or self.server()))

    def release(
        self, name: str = "job", holder: str = "a#1", token: int = 10, seq: int = 1, to: str = ""
    ) -> StoreAnswer:
        return self.ask(ReleaseRow(name, holder, token, seq, to))


class Placing(Harness):
    """Of a store in which no name is fresh: a missing row is placed before it is taken (L3)."""

    def seen(self, names: Sequence[str]) -> list[StoreAnswer]:
        server = self.server()
        perform(self.store, [PlaceRow(name, server) for name in names])  # where there is one, nothing is done
        return super().seen(names)


class Place:
    """Where stores of one kind live in a test: several connections to the same rows."""

    def __init__(self, url: str, listening: bool = False) -> None:
        self.url = url
        self.opened: list[LeaseStore] = []
        self._listening = listening

    def open(self, limit_ms: int = LIMIT_MS, create: bool = True, table: str = "primacy_leases") -> LeaseStore:
        store = open_store(self.url, limit_ms=limit_ms, create=create, table=table)
        self.opened.append(store)
        return store

    def harness(self) -> Harness:
        """A store of its own. Names are free in it at once: the first one says that the table is new."""
        is_first = not self.opened
        harness = Harness(self.open())
        if is_first:
            assert isinstance(harness.store, MakesTable)
            harness.store.make_table(new=True)
        if self._listening:
            harness.look()
            assert isinstance(harness.store, Notifies)
            assert harness.store.listen() >= 0
        return harness


class PlaceWithoutGenesis(Place):
    """Nobody can say that it is new."""

    def harness(self) -> Harness:
        return Placing(self.open())


def short_waits(monkeypatch: pytest.MonkeyPatch, wait_ms: int) -> None:
    """Tables that this process makes from now on have a longest wait that a test can wait for.

    It is a table's own, in its genesis row, so that every user of the table keeps to it, also from another process. No
    operator can have one below the usual: it can be raised only.
    """
    monkeypatch.setattr("primacy.store.sql.WAIT_MAX_MS", wait_ms)
    for module in ("etcd", "etcd_rows", "redis"):
        monkeypatch.setattr(f"primacy.store.{module}.Genesis", partial(Genesis, wait_max_ms=wait_ms))


def made_new(url: str) -> str:
    """The address, once its table is made by an operator who says that there was never one: names are free at once."""
    store = open_store(url, limit_ms=LIMIT_MS)
    assert isinstance(store, MakesTable)
    store.make_table(new=True)
    store.close()
    return url


@contextmanager
def place(kind: str, folder: Path) -> Iterator[Place]:
    """An empty store of this kind."""
    if kind == "memory":
        found = Place(f"memory:{folder}")
    elif kind == "sqlite":
        found = Place(f"sqlite:///{folder}/leases.db")
    elif kind == "kubernetes":
        from tests.support import kubernetes_server

        found = PlaceWithoutGenesis(kubernetes_server.empty())
    else:
        from tests.support import servers

        kept_ready = kind == KEPT_READY
        found = Place(servers.empty("postgresql" if kept_ready else kind), listening=kept_ready)
    try:
        yield found
    finally:
        for store in found.opened:
            store.close()


def opened(url: str, limit_ms: int = LIMIT_MS) -> Harness:
    """A store at this address, whose table is new, so that names are free at once."""
    store = open_store(url, limit_ms=limit_ms)
    assert isinstance(store, MakesTable)
    store.make_table(new=True)
    return Harness(store)
