"""Real nodes on a lease: a crowd without a list, whose nodes meet in a store only."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from primacy.election.store import FAILSAFE, Look, Row
from primacy.settings.timing import PROFILES, for_lease
from primacy.store import open_store, perform
from tests.support.real_nodes import CLUSTER, Crowd
from tests.support.store_harness import LIMIT_MS, made_new, place


class LeaseCrowd(Crowd):
    """`url`: where the lease is kept. `speak`: they have a list and a secret, and so speak to each other as well."""

    def __init__(
        self, folder: Path, url: str, names: str = "abc", profile: str = "lab", *, speak: bool = False, **more: Any
    ) -> None:
        self.url, self.speak = url, speak
        super().__init__(folder, names, profile, **more)
        self.timing = for_lease(PROFILES[profile])

    def file(self, name: str, profile: str = "", cluster: str = CLUSTER, **bound: int) -> Path:
        ports = {**self.ports, **bound}
        nodes = "".join(f'      {one}: {{addr: "127.0.0.1:{ports[one]}"}}\n' for one in self.names)
        listed = f"  secret_file: secret\n  manager:\n    nodes:\n{nodes}" if self.speak else ""
        (self.folder / name).write_text(
            f"cluster:\n  name: {cluster}\n{listed}election:\n  strategy: lease\n  profile: {profile or self.profile}\n"
            f'  store: {{url: "{self.url}"}}\n{self.more}'
        )
        return self.folder / name

    def is_locked(self) -> bool:
        """Somebody reads or writes the file now; a server is never locked by one that stands still."""
        if not self.url.startswith("sqlite:///"):
            return False
        with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=0)) as connection:
            try:
                connection.execute("BEGIN EXCLUSIVE")
                connection.rollback()
            except sqlite3.OperationalError:
                return True
        return False

    def row(self, lease: str = "main") -> Row:
        """As it stands in the store; of a failsafe election under a name of its own kind."""
        if "failsafe: true" in self.more:
            lease = FAILSAFE + lease
        store = open_store(self.url, create=False, limit_ms=LIMIT_MS)
        try:
            (answer,) = perform(store, [Look(lease)])
        finally:
            store.close()
        assert answer.row is not None, answer
        return answer.row


@contextlib.contextmanager
def lease_crowd(kind: str, folder: Path, names: str = "abc", profile: str = "lab", **more: Any) -> Iterator[LeaseCrowd]:
    """A crowd on an empty store of this kind, ended whatever happens. Nothing is started yet."""
    with place(kind, folder) as found:
        made_new(found.url)
        made = LeaseCrowd(folder, found.url, names, profile, **more)
        try:
            yield made
        finally:
            made.end()
