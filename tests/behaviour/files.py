"""Files that outlive a process: written by the version that is recorded, read by the code at hand.

A node of a later version finds them in its state folder after an upgrade. What it reads from a copy of them must be
what was read when they were recorded; those whose bytes depend on nothing but their content must also be written alike.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from primacy.cache import effects, model
from primacy.cache.lmdb_storage import LmdbStorage
from primacy.control.eventlog import FILE_NAME, EventLog, kept
from primacy.election.model import Ballot, ListRecord
from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take
from primacy.library.tokens import TokenFile
from primacy.node.ballot import NAME, FileDurable
from primacy.node.folder import Folder
from primacy.store import perform
from primacy.store.sqlite import SqliteStore

TOKEN = 1_700_000_000_123
BALLOT = Ballot(
    base=1_700_000_000_000,
    term=7,
    voted_for="n2",
    hold_max_ms=3_000,
    token_max=TOKEN,
    incarnation=4,
    lists=(ListRecord("list-1", ("n1", "n2", "n3"), True), ListRecord("list-2", ("n1", "n2"), False)),
    changed=True,
    seen=(("n2", 3, 12_345), ("n3", 1, 54_321)),
    void=False,
)
EPOCH = model.Ballot(1_700_000_000_001, "tcp://p1:1", 99)
LATER = 4_000_000_000_000
"""Unix ms of an expiry that no test reaches."""


class Kept(NamedTuple):
    """One kind of file, in a folder of its own."""

    write: Callable[[Path], None]
    read: Callable[[Path], Any]
    exact: tuple[str, ...] = ()
    """Files whose bytes depend on their content alone."""


def _write_ballot(where: Path) -> None:
    with closing(Folder(str(where))) as folder:
        FileDurable(folder).save(BALLOT)


def _read_ballot(where: Path) -> Any:
    with closing(Folder(str(where))) as folder:
        return FileDurable(folder).load()


def _tokens(where: Path) -> TokenFile:
    return TokenFile(where, "primacy_leases", "main", lambda token: None)


def _write_token(where: Path) -> None:
    tokens = _tokens(where)
    assert tokens.known() == 0  # it makes the folder
    tokens.save(BALLOT)


def _read_token(where: Path) -> Any:
    return _tokens(where).known()


def _write_leases(where: Path) -> None:
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(SqliteStore(str(where / "leases.db"), limit_ms=20_000)) as store:
        store.make_table(new=True)

        def ask(request: StoreRequest) -> StoreAnswer:
            (answer,) = perform(store, [request])
            assert answer.ok, answer
            return answer

        for name, seq in (("held", 3), ("released", 2), ("for-n2", 1)):
            seen = ask(Look(name, True))
            first = Row(f"n1#{name}", TOKEN, 1, 3_000, 3_061, False, "list-1" if seq == 1 else "")
            assert ask(Take(name, None, seen.server, first, seen.genesis)).done
            for number in range(1, seq):
                assert ask(Renew(name, first.holder, TOKEN, number, seen.server)).done
        assert ask(ReleaseRow("released", "n1#released", TOKEN, 2, "")).done
        assert ask(ReleaseRow("for-n2", "n1#for-n2", TOKEN, 1, "n2")).done


def _read_leases(where: Path) -> Any:
    """Without what the store says of itself: a copy is another file, and of another server."""
    with closing(SqliteStore(str(where / "leases.db"), limit_ms=20_000)) as store:
        listings = [
            listing._replace(
                written_at="", row=listing.row and listing.row._replace(server="", proof="", mark="", vouches=True)
            )
            for listing in store.listings()
        ]
    return sorted(listings, key=lambda listing: listing.name)


KEYS = (b"k0", b"k1", b"\x00\xff", b"k2/long/" + b"x" * 600)


def _write_cache(where: Path) -> None:
    with closing(LmdbStorage(str(where), 1 << 20)) as storage:
        storage.apply(
            [
                *(
                    effects.StoreEntry(key, model.Meta(EPOCH.term + n, LATER + n, EPOCH, 5 + n, TOKEN), b"value%d" % n)
                    for n, key in enumerate(KEYS)
                ),
                effects.StoreMeta(b"only meta", model.Meta(EPOCH.term, voted="tcp://p2:1")),
                effects.StoreFloor(model.Floor(b"dead", False, EPOCH.term - 5)),
                effects.StoreFloor(model.Floor(b"dead/", True, EPOCH.term - 4)),
                effects.StoreCeiling(EPOCH.term + 10_000),
            ]
        )


def _read_cache(where: Path) -> Any:
    with closing(LmdbStorage(str(where), 1 << 20)) as storage:
        found = storage.load()
        return found._replace(floors=tuple(sorted(found.floors))), [storage.read(key) for key in KEYS]


def _write_events(where: Path) -> None:
    with closing(Folder(str(where))) as folder, closing(EventLog(folder, print)) as log:
        log.add(TOKEN, "n1", 7, "elected", "n1 leads (term 7)")
        log.add(TOKEN + 5, "n2", 0, "follows", "n2 follows n1", 12)
        log.flush()


def _read_events(where: Path) -> Any:
    return kept(str(where / FILE_NAME))


FILES: dict[str, Kept] = {
    "ballot": Kept(_write_ballot, _read_ballot, (NAME,)),
    "token": Kept(_write_token, _read_token, ("primacy_leases.main.token",)),
    "leases": Kept(_write_leases, _read_leases),
    "cache": Kept(_write_cache, _read_cache),
    "events": Kept(_write_events, _read_events, (FILE_NAME,)),
}


def record(folder: Path) -> Iterator[tuple[str, Any]]:
    """Writes all of them below the folder. Yields what is read from a copy of each."""
    for name, kind in FILES.items():
        kind.write(folder / name)
        yield name, read_copy(folder, name)


def read_copy(folder: Path, name: str) -> Any:
    """The recorded ones stay as they are."""
    with tempfile.TemporaryDirectory(prefix="primacy-behaviour-") as place:
        copy = Path(place, name)
        shutil.copytree(folder / name, copy)
        return FILES[name].read(copy)


def rewritten(folder: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Name, recorded bytes and the bytes that the code at hand writes, of each file that is written alike."""
    with tempfile.TemporaryDirectory(prefix="primacy-behaviour-") as place:
        for name, kind in FILES.items():
            if kind.exact:
                kind.write(Path(place, name))
            for file in kind.exact:
                yield f"{name}/{file}", (folder / name / file).read_bytes(), Path(place, name, file).read_bytes()
