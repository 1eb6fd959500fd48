"""What an operator may do to a store while leases are held in it, drawn by chance (L3 to L5, L9; real servers).

Rows put back or changed by hand, a table emptied or dropped, a server killed, a folder or a file put back. Outside of
the promise, and so left out: both the SQLite file and the note beside it put back; rows written by hand in Redis, and
in MariaDB into the table as it stands.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from primacy.errors import PrimacyError
from primacy.store.redis_wire import Target, Wire
from tests.support.servers import Etcd, MariaDb, Postgres, Redis, Server, find, wait_for

TABLE = "primacy_leases"
NAME = "race"
BUSY_S = 2.0
NOT_POSSIBLE = (
    sqlite3.Error, psycopg.Error, pymysql.Error, subprocess.CalledProcessError, OSError, HTTPException, LookupError,
    PrimacyError,
)  # fmt: skip
"""There is no table just now, the server is coming up, or nothing was kept that could be put back."""
Act = Callable[[], None]


class Acts:
    """One store, and the acts that fit it, by name. What cannot be done just now raises, and is left out."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.kept: list[Any] = []
        """Rows, files and folders of before, of one kind per store."""
        self.folders: list[Path] = []
        self.done: list[str] = []

    def one(self) -> str:
        """Does one of them, and says which."""
        name = self.rng.choice(sorted(self.named()))
        self.named()[name]()
        self.done.append(name)
        return name

    def named(self) -> dict[str, Act]:
        raise NotImplementedError

    def any_kept(self) -> Any:
        if not self.kept:
            raise LookupError("nothing was kept yet")
        return self.rng.choice(self.kept)


class SqliteActs(Acts):
    def __init__(self, file: Path, rng: random.Random) -> None:
        super().__init__(rng)
        self.file = file

    def named(self) -> dict[str, Act]:
        return {
            "keep": self._keep,
            "keep by copy": self._keep_copy,
            "replace the file": self._replace,
            "copy over the file": self._copy_over,
            "restore in place": self._restore,
            "remove the file": self._remove_file,
            "remove the note": lambda: Path(f"{self.file}-primacy").unlink(missing_ok=True),
            "row put back": self._row_back,
            **{
                text: lambda text=text: self._execute(text)  # type: ignore[misc]
                for text in (
                    f"UPDATE {TABLE} SET released = 1 WHERE name = '{NAME}'",
                    f"UPDATE {TABLE} SET seq = seq - 1 WHERE name = '{NAME}'",
                    f"DELETE FROM {TABLE} WHERE name = '{NAME}'",
                    f"DROP TABLE {TABLE}",
                    "VACUUM",
                    "PRAGMA journal_mode = DELETE",
                )
            },
        }

    def _new(self) -> Path:
        return self.file.with_name(f"kept{len(self.kept)}")

    def _keep(self) -> None:
        where = self._new()
        with self._open(self.file) as source, self._open(where) as target:
            source.backup(target)
        self.kept.append(where)

    def _keep_copy(self) -> None:
        shutil.copyfile(self.file, self._new())
        self.kept.append(self._new())

    def _replace(self) -> None:
        new = self.file.with_name("new")
        shutil.copyfile(self.any_kept(), new)
        os.replace(new, self.file)

    def _copy_over(self) -> None:
        data = self.any_kept().read_bytes()
        with self.file.open("r+b") as file:
            file.write(data)
            file.truncate(len(data))

    def _restore(self) -> None:
        with self._open(self.any_kept()) as source, self._open(self.file) as target:
            source.backup(target)

    def _remove_file(self) -> None:
        for suffix in ("-wal", "-shm", ""):
            Path(f"{self.file}{suffix}").unlink(missing_ok=True)

    def _row_back(self) -> None:
        with self._open(self.file) as connection:
            connection.execute("ATTACH ? AS kept", (str(self.any_kept()),))
            connection.execute(f"REPLACE INTO {TABLE} SELECT * FROM kept.{TABLE} WHERE name = '{NAME}'")

    def _execute(self, text: str) -> None:
        with self._open(self.file) as connection:
            connection.execute(text)

    @staticmethod
    def _open(path: Path) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None))


class ServerActs(Acts):
    """What is done to every server with a data folder of its own."""

    def __init__(self, server: Server, data: Path, rng: random.Random) -> None:
        super().__init__(rng)
        self.server, self.data = server, data

    def named(self) -> dict[str, Act]:
        return {
            "kill": self._killed,
            "restart": self._restarted,
            "keep the folder": self._keep_folder,
            "folder put back": self._folder_back,
        }

    def _killed(self) -> None:
        self.server.kill()
        self.server.start()

    def _restarted(self) -> None:
        self.server.stop()
        self.server.start()

    def _keep_folder(self) -> None:
        copy = self.data.with_name(f"kept{len(self.folders)}")
        self.server.stop()
        subprocess.run(["cp", "-a", str(self.data), str(copy)], check=True)
        self.folders.append(copy)
        self.server.start()

    def _folder_back(self) -> None:
        if not self.folders:
            raise LookupError("no folder was kept yet")
        self.rng.choice((self.server.kill, self.server.stop))()
        shutil.rmtree(self.data)
        subprocess.run(["cp", "-a", str(self.rng.choice(self.folders)), str(self.data)], check=True)
        self.server.start()

    def _stopped(self) -> None:
        """What was sent meanwhile is done later, also for who has given up on it."""
        assert self.server.process is not None
        self.server.process.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.1, 2))
        self.server.process.send_signal(signal.SIGCONT)


class PostgresActs(ServerActs):
    def __init__(self, server: Postgres, rng: random.Random) -> None:
        super().__init__(server, server.data, rng)
        self.postgres = server

    def named(self) -> dict[str, Act]:
        texts = (
            f"UPDATE {TABLE} SET released = true WHERE name = '{NAME}'",
            f"UPDATE {TABLE} SET seq = seq - 1 WHERE name = '{NAME}'",
            f"UPDATE {TABLE} SET wait_ms = 1",
            f"DELETE FROM {TABLE} WHERE name = '{NAME}'",
            f"TRUNCATE {TABLE}",
            f"DROP TABLE {TABLE}",
            f"VACUUM FULL {TABLE}",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'",
        )
        by_hand = {text: lambda text=text: self._execute(text) for text in texts}  # type: ignore[misc]
        return {**super().named(), **by_hand, "keep": self._keep, "rows put back": self._rows_back}

    def _execute(self, text: str) -> None:
        self.postgres.admin(text, database="app")

    def _keep(self) -> None:
        with psycopg.connect(self.postgres.url()) as connection:
            found = connection.execute(f"SELECT * FROM {TABLE}")  # type: ignore[arg-type]
            assert found.description is not None
            self.kept.append(([column.name for column in found.description], found.fetchall()))

    def _rows_back(self) -> None:
        """The row alone, or the genesis row with it, as a dump that is read into the running server."""
        columns, rows = self.any_kept()
        alone = self.rng.random() < 0.5
        marks = ", ".join(["%s"] * len(columns))
        with psycopg.connect(self.postgres.url()) as connection:
            for row in rows:
                name = row[columns.index("name")]
                if name == NAME or not alone:
                    connection.execute(f"DELETE FROM {TABLE} WHERE name = %s", (name,))  # type: ignore[arg-type]
                    insert = f"INSERT INTO {TABLE} ({', '.join(columns)}) VALUES ({marks})"
                    connection.execute(insert, row)  # type: ignore[arg-type]


class MariaDbActs(ServerActs):
    """Rows that are put back into the table as it stands are outside of the promise: MariaDB has no mark.

    A table that is made anew with old rows is inside, for it has another time. MariaDB keeps that to the second, so
    such an act waits for the next one.
    """

    def __init__(self, server: MariaDb, rng: random.Random) -> None:
        super().__init__(server, server.folder / "data", rng)
        self.maria = server
        self.dumps: list[bytes] = []
        self.login = ["--no-defaults", "-h", "127.0.0.1", "-P", str(server.port), "-u", "root"]

    def named(self) -> dict[str, Act]:
        texts = (
            f"DELETE FROM {TABLE} WHERE name = '{NAME}'",
            f"DELETE FROM {TABLE} WHERE name <> '{NAME}'",
            f"TRUNCATE {TABLE}",
            f"DROP TABLE {TABLE}",
            f"OPTIMIZE TABLE {TABLE}",
            f"ALTER TABLE {TABLE} FORCE",
            "FLUSH STATUS",
            "FLUSH TABLES",
            "KILL USER app",
        )
        by_hand = {text: lambda text=text: self._execute(text) for text in texts}  # type: ignore[misc]
        others = {
            "keep": self._keep,
            "made anew with rows of before": self._made_anew,
            "dump": self._dump,
            "dump read back": self._dump_back,
            "renamed away for a while": self._renamed,
            "a replica for a moment": self._follows,
            "read only for a moment": lambda: self._between("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
            "locked by a backup": lambda: self._between("FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES"),
            "stopped": self._stopped,
            "last commits lost": self._forgets,
        }
        return {**super().named(), **by_hand, **others}

    def _execute(self, *texts: str) -> None:
        self._found(*texts)

    def _found(self, *texts: str) -> tuple[Any, ...]:
        """A player that is frozen may hold a lock meanwhile."""
        return self.maria.admin("SET SESSION lock_wait_timeout = 5", *texts, database="app")

    def _between(self, first: str, last: str) -> None:
        self._execute(first, f"SELECT SLEEP({self.rng.uniform(0.1, 1.5)})", last)

    def _keep(self) -> None:
        ((_, made),) = self._found(f"SHOW CREATE TABLE {TABLE}")
        columns = [one[0] for one in self._found(f"SHOW COLUMNS FROM {TABLE}")]
        self.kept.append((made, columns, self._found(f"SELECT * FROM {TABLE}")))

    def _made_anew(self) -> None:
        """The row alone, or the genesis row with it, in a table that takes the place of the other one at once."""
        made, columns, rows = self.any_kept()
        alone = self.rng.random() < 0.5
        names = ", ".join(columns)
        self._execute("DROP TABLE IF EXISTS old, anew", made.replace(TABLE, "anew", 1))
        for row in rows:
            if row[columns.index("name")] == NAME or not alone:
                values = ", ".join(pymysql.converters.escape_item(value, "utf8mb4") for value in row)
                self._execute(f"INSERT INTO anew ({names}) VALUES ({values})")
        self._next_second()
        self._execute(f"RENAME TABLE {TABLE} TO old, anew TO {TABLE}")

    def _dump(self) -> None:
        program = find("mariadb-dump") or "mysqldump"
        done = subprocess.run([program, *self.login, "app", TABLE], check=True, capture_output=True)
        self.dumps.append(done.stdout)

    def _dump_back(self) -> None:
        if not self.dumps:
            raise LookupError("there is no dump yet")
        self._next_second()
        command = [find("mariadb") or "mysql", *self.login, "app"]
        subprocess.run(command, check=True, input=self.rng.choice(self.dumps), capture_output=True)

    def _renamed(self) -> None:
        """Meanwhile a new one is made and used."""
        self._execute("DROP TABLE IF EXISTS away", f"RENAME TABLE {TABLE} TO away")
        time.sleep(self.rng.uniform(0.1, 4))
        self._next_second()
        self._execute(f"DROP TABLE IF EXISTS {TABLE}", f"RENAME TABLE away TO {TABLE}")

    def _next_second(self) -> None:
        """In which a table is another one than what stands there now."""

        def is_over() -> bool:
            ((here, made),) = self._found(
                "SELECT UNIX_TIMESTAMP(), (SELECT UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.TABLES "
                f"WHERE TABLE_SCHEMA = 'app' AND TABLE_NAME = '{TABLE}')"
            )
            return made is None or here > made

        wait_for(is_over, "the next second", self.server)

    def _follows(self) -> None:
        """Another one, which does not answer."""
        self._execute("SET GLOBAL read_only = 1")
        try:
            self._execute(
                "CHANGE MASTER TO master_host = '127.0.0.1', master_port = 1, master_user = 'x'",
                "START SLAVE",
                f"SELECT SLEEP({self.rng.random()})",
                "STOP SLAVE",
                "RESET SLAVE ALL",
            )
        finally:
            self._execute("SET GLOBAL read_only = 0")

    def _forgets(self) -> None:
        """Commits are in its memory alone for a second, and it dies then."""
        self._execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        time.sleep(self.rng.uniform(0, 2))
        self._killed()


class EtcdActs(ServerActs):
    def __init__(self, server: Etcd, rng: random.Random) -> None:
        super().__init__(server, server.folder / "data", rng)
        self.etcd = server
        self.all = {"key": _b64(f"{TABLE}/"), "range_end": _b64(f"{TABLE}0")}

    def named(self) -> dict[str, Act]:
        return {
            **super().named(),
            "keep": lambda: self.kept.append(self._rows()),
            "rows put back": self._rows_back,
            "released by hand": self._released,
            "row removed": lambda: self._post("kv/deleterange", {"key": _b64(f"{TABLE}/{NAME}")}),
            "all removed": lambda: self._post("kv/deleterange", self.all),
            "compacted": self._compacted,
        }

    def _post(self, path: str, body: dict[str, Any]) -> None:
        self.etcd.post(path, body)

    def _rows(self) -> list[dict[str, str]]:
        return [{"key": kv["key"], "value": kv["value"]} for kv in self.etcd.post("kv/range", self.all).get("kvs", [])]

    def _rows_back(self) -> None:
        for kv in self.any_kept():
            self._post("kv/put", kv)

    def _released(self) -> None:
        for kv in self._rows():
            if base64.b64decode(kv["key"]).decode() == f"{TABLE}/{NAME}":
                value = json.loads(base64.b64decode(kv["value"]))
                self._post("kv/put", {"key": kv["key"], "value": _b64(json.dumps({**value, "released": 1}))})

    def _compacted(self) -> None:
        revision = self.etcd.post("kv/range", {"key": "AA=="})["header"]["revision"]
        self._post("kv/compaction", {"revision": revision, "physical": True})


class RedisActs(ServerActs):
    """Rows put back by hand are outside of the promise: Redis has no mark."""

    def __init__(self, server: Redis, rng: random.Random) -> None:
        super().__init__(server, server.folder / "data", rng)
        self.redis = server

    def named(self) -> dict[str, Act]:
        words = (
            "FLUSHALL", f"DEL {TABLE}", f"HDEL {TABLE} {NAME}", f"HDEL {TABLE} :genesis", "BGREWRITEAOF",
            "CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub", "SCRIPT FLUSH", "DEBUG CHANGE-REPL-ID",
            "DEBUG SLEEP 0.7", "CLIENT PAUSE 700 WRITE", "CLIENT PAUSE 700 ALL", "EXPIRE primacy_leases 1",
        )  # fmt: skip
        by_hand = {text: lambda text=text: self.redis.admin(*text.split()) for text in words}  # type: ignore[misc]
        others = {"a replica for a moment": self._follows, "stopped": self._stopped, "torn file": self._torn}
        return {**super().named(), **by_hand, **others, "set otherwise": self._set, "no room": self._full}

    def _follows(self) -> None:
        """Another one, which does not answer."""
        self.redis.admin("REPLICAOF", "127.0.0.1", 1)
        time.sleep(self.rng.random())
        self.redis.admin("REPLICAOF", "NO", "ONE")

    def _torn(self) -> None:
        """The end of what was answered is lost."""
        self.redis.kill()
        for file in self.data.glob("*.incr.aof"):
            os.truncate(file, max(0, file.stat().st_size - self.rng.randrange(5_000)))
        self.redis.start()

    def _set(self) -> None:
        for value in ("everysec", "always"):
            self.redis.admin("CONFIG", "SET", "appendfsync", value)
            time.sleep(self.rng.random())

    def _full(self) -> None:
        with contextlib.closing(Wire(Target("127.0.0.1", self.redis.port), BUSY_S)) as wire:  # there may be no other
            for most in (2, 10_000):
                wire.ask(("CONFIG", "SET", "maxclients", most), ("CLIENT", "KILL", "TYPE", "normal"))
                time.sleep(self.rng.random())


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
