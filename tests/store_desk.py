"""What the tests of the stores share: every store under test by name, and requests that are easy to write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take
from primacy.store import LeaseStore, open_store, perform
from primacy.store.port import News, Notifies

HOLD_MS, WAIT_MS = 3_000, 3_061
KEPT_READY = "postgresql, statements kept ready"
"""As a node uses it that listens. Without that, each statement is sent as its text."""
LIMIT_MS = 20_000
"""For an answer, where a test is not about limits: a machine may stall, and a disk be slow."""


def row(holder: str = "a#1", token: int = 10, seq: int = 1, members: str = "", server: str = "") -> Row:
    return Row(holder, token, seq, HOLD_MS, WAIT_MS, False, members, "", server)


class Desk:
    """One store, asked one thing at a time."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store

    def ask(self, request: StoreRequest) -> StoreAnswer:
        (answer,) = perform(self.store, [request])
        return answer

    def look(self, name: str = "job") -> StoreAnswer:
        return self.ask(Look(name))

    def server(self) -> str:
        return self.look("nobody").server

    def take(
        self, name: str = "job", seen: tuple[int, int] = (0, 0), new: Row | None = None, **more: str
    ) -> StoreAnswer:
        server = more.pop("server", None) or self.server()
        return self.ask(Take(name, *seen, server, new or row(), **more))

    def renew(
        self, name: str = "job", holder: str = "a#1", token: int = 10, seq: int = 1, server: str = ""
    ) -> StoreAnswer:
        return self.ask(Renew(name, holder, token, seq, server or self.server()))

    def release(
        self, name: str = "job", holder: str = "a#1", token: int = 10, seq: int = 1, to: str = ""
    ) -> StoreAnswer:
        return self.ask(ReleaseRow(name, holder, token, seq, to))


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

    def desk(self) -> Desk:
        desk = Desk(self.open())
        if self._listening:
            desk.look()
            assert isinstance(desk.store, Notifies)
            assert desk.store.listen() >= 0
        return desk


def lied_to(here: Place) -> tuple[Desk, Desk, StoreAnswer]:
    """A holder, a watcher on PostgreSQL who was told of a renewal before it was made, and what it was told.

    Everybody who may connect may notify. The renewal is then made, so that what was announced is true by now.
    """
    import psycopg
    from tests.servers import wait_until

    holder, watcher = here.desk(), here.desk()
    assert holder.take().done
    watcher.look()
    store = watcher.store
    assert isinstance(store, Notifies)
    assert store.listen() >= 0
    with psycopg.connect(here.url, autocommit=True) as liar:
        liar.execute("SELECT pg_notify('primacy_leases', 'job 10 2 0 00000000-0000-0000-0000-000000000000 ')")
    told: list[News] = []
    wait_until(lambda: bool(told.extend(store.news()) or told), "the lie")
    assert told[0].answer is not None
    assert told[0].answer.row == row(seq=2, server=told[0].answer.server)
    assert holder.renew(seq=1).done
    return holder, watcher, told[0].answer


@contextmanager
def place(kind: str, folder: Path) -> Iterator[Place]:
    """An empty store of this kind."""
    if kind == "memory":
        found = Place(f"memory:{folder}")
    elif kind == "sqlite":
        found = Place(f"sqlite:///{folder}/leases.db")
    else:
        from tests import servers

        kept_ready = kind == KEPT_READY
        found = Place(servers.empty("postgresql" if kept_ready else kind), listening=kept_ready)
    try:
        yield found
    finally:
        for store in found.opened:
            store.close()
