"""Which store an address or an engine means, and what is refused before anything is asked."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from primacy.election.store import Genesis
from primacy.errors import CannotHere, NotReached, PrimacyError, UsageError
from primacy.store import LeaseStore, open_store
from primacy.store.engine import mysql_arguments, postgresql_arguments
from primacy.store.port import MakesTable, checked_genesis, checked_row
from primacy.store.sqlite import SqliteStore, file_system_of, refuse_network
from primacy.store.url import mysql_options
from tests.support.servers import empty, servers_here
from tests.support.store_harness import LIMIT_MS, Harness, row

pytestmark = pytest.mark.beside(order=540)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("oracle://host/db", "'oracle' is no store"),
        ("leases.db", "is no store"),
        ("sqlite://leases.db", "three|relative"),
        ("sqlite:///", "sqlite:///file.db"),
        ("sqlite:///:memory:", "needs a file"),
        ("postgresql://host:port/db", "not an address of PostgreSQL"),
        ("postgresql://host/db?nonsense=1", "not an address of PostgreSQL"),
        ("mysql://host", "names its database"),
        ("mysql://host:x/db", "not a URL"),
        ("mysql://host/db?nonsense=1", "nonsense= is unknown here; there are unix_socket"),
        ("mysql://host/db?ssl_verify_cert=perhaps", "neither true nor false"),
        ("etcd://", "etcd://host:port,host:port"),
        ("etcds://host?ca=/nowhere/ca.pem", "certificates of the store cannot be used"),
        ("etcds://host?nonsense=1", "nonsense= is unknown here"),
        ("redis://", "redis://user:password@host:port/0"),
        ("redis://one,two/0", "one server"),
        ("redis://host/leases", "its database's number"),
        ("redis+sentinel://host/0", "one server"),
        ("redis://host:x/0", "not a URL"),
        ("redis://host/0?ca=/nowhere/ca.pem", "rediss:// has ca"),
        ("redis://host/0?durability=no", "neither strict nor advisory"),
        ("redis://host/0?durability=durable", "durability=durable is called strict now"),
        ("rediss://host?ca=/nowhere/ca.pem", "certificates of the store cannot be used"),
        ("rediss://host?nonsense=1", "nonsense= is unknown here"),
    ],
)
def test_a_wrong_address_says_what_would_be_right(address: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        open_store(address)


def test_a_password_stays_where_it_is() -> None:
    for address in (
        "postgresql://u:hidden@host:port/db",
        "mysql://u:hidden@host:port/db",
        "etcd://u:hidden@h:p",
        "redis://u:hidden@h:p",
    ):
        with pytest.raises(UsageError) as wrong:
            open_store(address)
        assert "hidden" not in str(wrong.value)
    for address in (
        "postgresql://u:hidden@127.0.0.1:1/db",
        "mysql://u:hidden@127.0.0.1:1/db",
        "etcd://u:hidden@127.0.0.1:1",
        "redis://:hidden@127.0.0.1:1",
    ):
        answer = Harness(open_store(address)).look()
        assert not answer.ok
        assert answer.reason
        assert "hidden" not in answer.reason


def test_TLS_options_pass_through() -> None:
    options = mysql_options("mysql://u%40x:p%20w@host:3307/db?ssl_ca=/ca.pem&ssl_verify_identity=true&unix_socket=/s")
    assert options == {
        "host": "host", "port": 3307, "user": "u@x", "password": "p w", "database": "db", "ssl_ca": "/ca.pem",
        "ssl_verify_identity": True, "unix_socket": "/s",
    }  # fmt: skip


def test_a_missing_driver_is_one_sentence() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None; sys.modules['pymysql'] = None\n"
        "from primacy.store import open_store\n"
        "for url in ('postgresql://h/d', 'mysql://h/d'):\n"
        "    try: open_store(url)\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [
        "MissingExtra a store in PostgreSQL needs the extra `postgres`: pip install 'psycopg[binary]>=3.2' "
        "(pipx inject primacy 'psycopg[binary]>=3.2')",
        "MissingExtra a store in MySQL or MariaDB needs the extra `mysql`: pip install 'PyMySQL[rsa]>=1.1' "
        "(pipx inject primacy 'PyMySQL[rsa]>=1.1')",
    ]


def test_importing_the_room_loads_no_driver() -> None:
    code = (
        "import primacy.store, sys; print(sorted({'psycopg', 'pymysql', 'sqlalchemy', 'sqlite3'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def new_table(store: LeaseStore) -> Harness:
    """On a table that an operator has called new."""
    assert isinstance(store, MakesTable)
    store.make_table(new=True)
    return Harness(store)


# --- engines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["sqlite", "sqlite+aiosqlite"])
def test_an_engine_for_a_file(driver: str, tmp_path: Path) -> None:
    _tried(driver, f"{driver}:///{tmp_path}/leases.db")


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "postgresql+psycopg_async", "postgresql+asyncpg"])
@pytest.mark.skipif("postgresql" not in servers_here(), reason="PostgreSQL is not installed here")
def test_an_engine_for_postgresql(driver: str) -> None:
    arguments = {"server_settings": {"jit": "off"}, "timeout": 30} if "asyncpg" in driver else {"connect_timeout": 30}
    _tried(driver, empty("postgresql").replace("postgresql:", f"{driver}:"), **arguments)


@pytest.mark.parametrize("driver", ["mysql+pymysql", "mariadb+aiomysql"])
@pytest.mark.skipif("mariadb" not in servers_here(), reason="MariaDB is not installed here")
def test_an_engine_for_mariadb(driver: str) -> None:
    _tried(driver, empty("mariadb").replace("mariadb:", f"{driver}:"), charset="utf8mb4")


def _tried(driver: str, url: str, **arguments: object) -> None:
    """The engine's address and arguments lead to the same rows, and its pool is left alone."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    asyncio = pytest.importorskip("sqlalchemy.ext.asyncio")
    is_async = any(word in driver for word in ("aio", "async"))
    if "aio" in driver or "asyncpg" in driver:
        pytest.importorskip(driver.partition("+")[2])
    make = asyncio.create_async_engine if is_async else sqlalchemy.create_engine
    engine = make(url, connect_args=arguments)
    harness = new_table(open_store(engine, limit_ms=LIMIT_MS))
    try:
        assert harness.take().done
        assert harness.renew().done
        assert engine.pool.checkedout() == 0
        assert engine.pool.checkedin() == 0
    finally:
        harness.store.close()


def test_arguments_that_cannot_be_translated_are_named() -> None:
    with pytest.raises(UsageError, match="Python object"):
        postgresql_arguments("asyncpg", {"host": "h", "ssl": object()})
    assert postgresql_arguments("asyncpg", {"host": "h", "database": "d", "ssl": "require"}) == {
        "host": "h", "dbname": "d", "sslmode": "require",
    }  # fmt: skip
    with pytest.raises(UsageError, match="asyncpg's connection_class"):
        postgresql_arguments("asyncpg", {"connection_class": object})
    with pytest.raises(UsageError, match="pymysql's conv"):
        mysql_arguments("pymysql", {"database": "d", "conv": {}})
    with pytest.raises(UsageError, match="names no database"):
        mysql_arguments("pymysql", {"host": "h"})


# --- SQLite's own -----------------------------------------------------------------------------------------------------

MOUNTS = """\
22 1 0:20 / / rw - ext4 /dev/vda rw
23 22 0:21 / /srv rw - nfs4 server:/srv rw
24 23 0:22 / /srv/local\\040disk rw - xfs /dev/vdb rw
25 22 0:23 / /mnt/win rw - cifs //host/share rw
"""


def test_L5_a_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert file_system_of("/home/x/leases.db", str(mounts)) == "ext4"
    assert file_system_of("/srvice/leases.db", str(mounts)) == "ext4"
    refuse_network("/srv/local disk/leases.db", str(mounts))
    for path in ("/srv/leases.db", "/srv/deep/er/leases.db", "/mnt/win/leases.db"):
        with pytest.raises(CannotHere, match="network file system"):
            refuse_network(path, str(mounts))
    assert file_system_of(str(tmp_path / "x")), "this machine tells"


@pytest.mark.parametrize(
    "kind",
    ["gpfs", "pvfs2", "prl_fs", "fuse", "fuse.juicefs", "fuse.gcsfuse", "fuse.mfs", "fuse.goofys", "fuse.vmhgfs-fuse",
     "fuse.sshfs", "fuse.of-next-year"],
)  # fmt: skip
def test_L5_what_may_be_a_network_file_system_is_refused(kind: str, tmp_path: Path) -> None:
    """Above all what a program serves (FUSE) that is not known to be local."""
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.replace("nfs4", kind))
    with pytest.raises(CannotHere, match=f"may be \\({kind}\\)"):
        refuse_network("/srv/leases.db", str(mounts))


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuseblk", "fuse.fuse-overlayfs"])
def test_L5_a_local_file_system_is_not_refused(kind: str, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.replace("nfs4", kind))
    refuse_network("/srv/leases.db", str(mounts))


def test_a_file_that_was_replaced_is_another_server(tmp_path: Path) -> None:
    """An old holder must not go on renewing in a file that nobody else sees."""
    path = tmp_path / "leases.db"
    holder = new_table(SqliteStore(str(path)))
    assert holder.take().done
    before = holder.server()
    keep = os.open(path, os.O_RDONLY)  # its inode stays taken
    for name in ("leases.db", "leases.db-wal", "leases.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    answer = holder.renew(server=before)
    assert (answer.ok, answer.done, answer.row) == (True, False, None)
    assert answer.server != before
    os.close(keep)
    holder.store.close()


def test_commits_are_durable(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "leases.db"))
    assert new_table(store).take().done
    assert store._connected().execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    store.close()


def test_a_file_of_the_application_keeps_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    sqlite3.connect(path).executescript("CREATE TABLE things (id)").close()
    harness = new_table(SqliteStore(str(path)))
    assert harness.take().done
    harness.store.close()
    with sqlite3.connect(path) as app:
        assert app.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    app.close()


def test_a_locked_file_is_a_refusal_within_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "leases.db"
    harness = new_table(SqliteStore(str(path), limit_ms=50))
    assert harness.take().done
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answer = harness.renew()
    assert (answer.ok, answer.done) == (False, False)
    assert "locked by somebody else for 50 ms" in answer.reason
    other.execute("ROLLBACK")
    other.close()
    assert harness.renew().done
    harness.store.close()


def test_a_file_that_is_no_database_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello " * 1000)
    for path in ("text", "nowhere/leases.db"):
        answer = Harness(SqliteStore(str(tmp_path / path))).look()
        assert not answer.ok
        assert str(tmp_path) in answer.reason
    with pytest.raises(NotReached, match="there is no file"):
        SqliteStore(str(tmp_path / "x.db"), create=False).listings()
    assert not (tmp_path / "x.db").exists()


def test_a_forked_child_leaves_the_connection_alone(tmp_path: Path) -> None:
    harness = new_table(SqliteStore(str(tmp_path / "leases.db")))
    assert harness.take().done
    child = os.fork()
    if child == 0:
        answer = harness.renew(server="x")
        os._exit(0 if not answer.ok and "forked" in answer.reason else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert harness.renew().done
    harness.store.close()


# --- hostile rows (A31) -----------------------------------------------------------------------------------------------

GOOD = list(row()._replace(released=0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, None),
        (0, "x" * 1000),
        (0, b"a"),
        (0, "two words"),
        (0, "\x1b[31mred"),
        (0, "\ud800"),
        (6, "a "),
        (7, "b\n"),
        (8, "\0"),
        (9, "é"),
        (1, -1),
        (1, 2**53),
        (1, "7"),
        (1, True),
        (3, 10**9),
        (4, 10**9),
        (5, 2),
        (5, None),
        (9, None),
        (9, "x" * 65),
        (10, 7),
    ],
)
def test_A31_a_row_out_of_bounds_is_refused(place: int, value: object) -> None:
    assert checked_row(GOOD) == row()
    wrong = list(GOOD)
    wrong[place] = value  # type: ignore[call-overload]
    with pytest.raises(PrimacyError, match="is not one of primacy's"):
        checked_row(wrong)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, None),
        (0, "x" * 200),
        (0, "a b"),
        (1, -1),
        (1, 10**9),
        (2, 2**53),
        (3, -1),
        (3, 10**10),
        (4, None),
        (5, 1),
        (7, -2),
    ],
)
def test_A31_a_genesis_row_out_of_bounds_is_refused(place: int, value: object) -> None:
    good = list(Genesis(count=0))
    assert checked_genesis(good) == Genesis(count=0)
    good[place] = value  # type: ignore[call-overload]
    with pytest.raises(PrimacyError, match="is not one of primacy's"):
        checked_genesis(good)
