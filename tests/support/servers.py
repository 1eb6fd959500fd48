"""Real servers for the tests: PostgreSQL, MariaDB, etcd, Redis (and MySQL where there is one), on free ports and in
folders of their own, started when a test first asks, stopped when the tests end.

They run as an ordinary user; where the tests run as root, as one that Debian has for this. Nothing is shared with a
server that the machine may have: other port, other folder, other socket. A server that is not installed makes its tests
skip, with the reason.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.waiting import wait_until

WITHIN_S = 120
"""How long a server may take to start on a busy machine."""
REPORT = "PRIMACY_SERVERS_FILE"
"""Names the file in which the servers that ran are noted, for the last line of `make test`."""


def find(program: str, *folders: str) -> str | None:
    """A server's program; Debian keeps some outside of the path."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *folders))
    return shutil.which(program, path=path)


class Server:
    """One process of a server, with its folder. It can be stopped, killed and started again, with its data."""

    kind = ""
    program = ""
    user = "nobody"
    """Whom it runs as if the tests run as root."""

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"primacy-{self.kind}-"))
        self.process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            entry = pwd.getpwnam(self.user)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
            self._as = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        self.log = self.folder / "log"

    @classmethod
    def missing(cls) -> str:
        """Why it cannot run here; empty if it can."""
        return "" if cls.where() else f"{cls.program} is not installed here (make packages)"

    @classmethod
    def where(cls) -> str | None:
        return find(cls.program, "/usr/sbin", "/usr/local/sbin")

    def prepare(self) -> None:
        """Once, before the first start."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def url(self) -> str:
        raise NotImplementedError

    def version(self) -> str:
        raise NotImplementedError

    def empty(self) -> None:
        """No leases any more, and no table."""
        raise NotImplementedError

    def run(self, *command: str) -> None:
        """A command as the server's user."""
        done = subprocess.run(command, capture_output=True, cwd=self.folder, check=False, env=ENVIRONMENT, **self._as)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def start(self) -> None:
        assert self.process is None
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=ENVIRONMENT,
                start_new_session=True,
                **self._as,
            )
        wait_for(self.answers, f"{self.kind} to answer", self)

    def stop(self) -> None:
        """In order, as for a restart."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """All of it, at once."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Until it stands: a thread may go on for a moment after the signal, and may start a process in that moment."""
        wait_for(self._all_stand, f"{self.kind} to stand still", self)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        if self.process is not None:
            self.thaw()
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _all_stand(self) -> bool:
        """Told again at each look: only under a parent that stands is the list of its children whole."""
        self._signal(signal.SIGSTOP)
        assert self.process is not None
        return stands(self.process.pid) and all(map(stands, self._pids()))

    def _signal(self, number: int) -> None:
        """To it and to every process that it started: PostgreSQL's are each a session of their own."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _pids(self) -> list[int]:
        assert self.process is not None
        return [self.process.pid, *children_of(self.process.pid)]

    def _end(self, number: int) -> None:
        assert self.process is not None
        if number == signal.SIGKILL and self.process.poll() is None:
            self.freeze()  # nothing is started any more, so that nothing is left out
        pids = self._pids()
        if number == signal.SIGKILL:
            self._signal(number)
        else:
            self.process.send_signal(number)
        self.process.wait(WITHIN_S)
        self.process = None
        if number == signal.SIGKILL:  # PostgreSQL does not start again while one of its processes is still dying
            wait_for(lambda: not any(map(is_alive, pids)), f"all of {self.kind} to be gone")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def stands(pid: int) -> bool:
    """Every thread of it is stopped, or it is gone."""
    try:
        states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # one of them ended just now: ask again
    return all(state in "TtZX" for state in states)


def stop_whole(pid: int) -> None:
    """Until every thread of it stands: one may go on for a moment after the signal, and lock a file in that moment."""
    with contextlib.suppress(ProcessLookupError):  # one that is gone stands
        os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: stands(pid), f"process {pid} to stand still")


def children_of(pid: int) -> list[int]:
    """And theirs. One that ends while it is being looked for has none."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                found += [child, *children_of(child)]
    return found


ENVIRONMENT = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": "/nonexistent"}


def wait_for(happened: Callable[[], bool], what: str, server: Server | None = None, within_s: float = WITHIN_S) -> None:
    """Until it happened, unless the server ends before."""

    def over() -> bool:
        if happened():
            return True
        if server is not None and server.process is not None and server.process.poll() is not None:
            raise AssertionError(f"{server.kind} ended: {server.log.read_text(errors='replace')[-2000:]}")
        return False

    wait_until(over, what, within_s, 0.02)


class Postgres(Server):
    kind = "postgresql"
    program = "postgres"
    user = "postgres"

    @classmethod
    def where(cls) -> str | None:
        versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), reverse=True)
        return find("postgres", *map(str, versions))

    @classmethod
    def tool(cls, name: str) -> str:
        where = cls.where()
        assert where is not None
        return str(Path(where).resolve().parent / name)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def prepare(self) -> None:
        self.run(self.tool("initdb"), "-D", str(self.data), "-U", "admin", "-A", "trust", "--no-sync", "-E", "UTF8")

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "60",
            "wal_level": "replica",
            "max_wal_senders": "4",
            "wal_keep_size": "64MB",
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [self.tool("postgres"), "-D", str(self.data), *options]

    def stop(self) -> None:
        """A fast shut-down: open connections are cut."""
        self._end(signal.SIGINT)

    def admin(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(
            f"postgresql://admin@127.0.0.1:{self.port}/{database}", autocommit=True, connect_timeout=20
        ) as connection:
            found: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
                found = cursor.fetchall() if cursor.description else []
            return found

    def answers(self) -> bool:
        import psycopg

        try:
            self.admin("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def start(self) -> None:
        super().start()
        if not self.admin("SELECT 1 FROM pg_roles WHERE rolname = 'app'"):
            self.admin("CREATE ROLE app LOGIN", "CREATE DATABASE app OWNER app")

    def url(self) -> str:
        """As an ordinary user: what a superuser may do proves little."""
        return f"postgresql://app@127.0.0.1:{self.port}/app"

    def version(self) -> str:
        return f"PostgreSQL {self.admin('SHOW server_version')[0][0].split()[0]}"

    def empty(self) -> None:
        self.admin("DROP TABLE IF EXISTS primacy_leases, locks", database="app")


class MariaDb(Server):
    kind = "mariadb"
    program = "mariadbd"
    user = "mysql"

    def prepare(self) -> None:
        installer = find("mariadb-install-db") or "mariadb-install-db"
        self.run(
            installer, "--no-defaults", f"--datadir={self.folder}/data", f"--tmpdir={self.folder}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db", "--skip-name-resolve",
        )  # fmt: skip

    def command(self) -> list[str]:
        where = self.where()
        assert where is not None
        return [
            where, "--no-defaults", f"--datadir={self.folder}/data", f"--tmpdir={self.folder}",
            f"--socket={self.folder}/socket",
            "--bind-address=127.0.0.1", f"--port={self.port}", f"--pid-file={self.folder}/pid", "--skip-name-resolve",
            "--innodb-buffer-pool-size=32M", "--skip-log-bin", "--max-connections=100",
        ]  # fmt: skip

    def admin(self, *statements: str, database: str | None = None) -> tuple[Any, ...]:
        import pymysql

        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True, connect_timeout=20
        )
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return tuple(cursor.fetchall())
        finally:
            connection.close()

    def answers(self) -> bool:
        import pymysql

        try:
            self.admin("SELECT 1")
        except pymysql.Error:
            return False
        return True

    def start(self) -> None:
        super().start()
        self.admin(
            "CREATE DATABASE IF NOT EXISTS app",
            "CREATE USER IF NOT EXISTS app@'%' IDENTIFIED BY 'secret word'",
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON app.* TO app@'%'",
        )

    def url(self) -> str:
        return f"{self.kind}://app:secret%20word@127.0.0.1:{self.port}/app"

    def version(self) -> str:
        return f"MariaDB {self.admin('SELECT VERSION()')[0][0].split('-')[0]}"

    def empty(self) -> None:
        self.admin("DROP TABLE IF EXISTS primacy_leases, locks", database="app")


class MySql(MariaDb):
    kind = "mysql"
    program = "mysqld"

    @classmethod
    def missing(cls) -> str:
        where = cls.where()
        if where is None or "maria" in os.path.realpath(where):
            return "no MySQL server here: Debian packages MariaDB only"
        return ""

    def prepare(self) -> None:
        where = self.where()
        assert where is not None
        self.run(where, "--no-defaults", "--initialize-insecure", f"--datadir={self.folder}/data")

    def command(self) -> list[str]:
        return [*super().command(), "--mysqlx=OFF"]

    def version(self) -> str:
        return f"MySQL {self.admin('SELECT VERSION()')[0][0]}"


class Etcd(Server):
    kind = "etcd"
    program = "etcd"

    @classmethod
    def where(cls) -> str | None:
        return find("etcd", str(Path(__file__).parents[2] / ".venv/peers/usr/bin"))  # where `make peers` puts it

    def command(self) -> list[str]:
        where = self.where()
        assert where is not None
        peer = f"http://127.0.0.1:{self.peer_port}"
        client = f"http://127.0.0.1:{self.port}"
        return [
            where, "--name", "one", "--data-dir", f"{self.folder}/data", "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"one={peer}", "--initial-cluster-token", f"primacy-{self.port}", "--logger", "zap",
        ]  # fmt: skip

    def prepare(self) -> None:
        self.peer_port = free_port()

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        import json
        from urllib.request import Request, urlopen

        request = Request(f"http://127.0.0.1:{self.port}/v3/{path}", json.dumps(body).encode())
        with urlopen(request, timeout=20) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def answers(self) -> bool:
        from http.client import HTTPException

        try:
            self.post("kv/range", {"key": "AA=="})
        except (OSError, HTTPException, ValueError):  # half an answer, of one that starts or dies
            return False
        return True

    def age(self) -> None:
        """Entries, as a cluster has them that was in use for a while; they change no key."""
        from primacy.store.etcd_rows import INDEX_LEAST

        left = INDEX_LEAST + 50 - int(self.post("maintenance/status", {})["raftIndex"])
        threads = [threading.Thread(target=self._entries, args=(left // 8 + 1,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert int(self.post("maintenance/status", {})["raftIndex"]) >= INDEX_LEAST

    def _entries(self, number: int) -> None:
        import json
        from http.client import HTTPConnection

        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        for _ in range(number):
            connection.request("POST", "/v3/lease/revoke", json.dumps({"ID": "7587848943239472601"}).encode())
            connection.getresponse().read()
        connection.close()

    def url(self) -> str:
        return f"etcd://127.0.0.1:{self.port}"

    def version(self) -> str:
        return f"etcd {self.post('maintenance/status', {})['version']}"

    def empty(self) -> None:
        self.post("kv/deleterange", {"key": "AA==", "range_end": "AA=="})


class Redis(Server):
    """Redis, or Valkey where it is what there is, set as a lease needs it."""

    kind = "redis"
    program = "redis-server"
    tls: Any = None
    settings: tuple[str, ...] = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")

    @classmethod
    def where(cls) -> str | None:
        return find("redis-server") or find("valkey-server")

    def command(self) -> list[str]:
        where = self.where()
        assert where is not None
        own = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--appenddirname", "data")
        own += ("--save", "", "--enable-debug-command", "local", "--repl-diskless-sync-delay", "0")
        return [where, *own, *self.settings]

    def admin(self, *words: str | bytes | int) -> Any:
        """One command, and its answer; what the server refuses raises."""
        from primacy.store.redis_wire import Said, Target, Wire

        wire = Wire(Target("127.0.0.1", self.port, tls=self.tls), 20)
        try:
            (answer,) = wire.ask(words)
        finally:
            wire.close()
        if isinstance(answer, Said):
            raise wire.refusal(answer)
        return answer

    def answers(self) -> bool:
        from primacy.errors import PrimacyError

        try:
            return bool(self.admin("PING") == b"PONG")
        except PrimacyError:
            return False

    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def version(self) -> str:
        info = self.admin("INFO", "server").decode()
        name, version = ("Valkey", "valkey_version") if "valkey_version:" in info else ("Redis", "redis_version")
        return f"{name} {info.partition(version + ':')[2].split()[0]}"

    def empty(self) -> None:
        self.admin("FLUSHALL")


class Pooler(Server):
    """PgBouncer in transaction mode before a PostgreSQL: each statement may get another connection."""

    kind = "pgbouncer"
    program = "pgbouncer"
    user = "postgres"

    def __init__(self, postgres: Postgres) -> None:
        super().__init__()
        self.postgres = postgres

    def prepare(self) -> None:
        (self.folder / "ini").write_text(
            f"[databases]\napp = host=127.0.0.1 port={self.postgres.port} user=app\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nauth_type = any\nunix_socket_dir =\n"
            f"pool_mode = transaction\ndefault_pool_size = 4\nserver_round_robin = 1\n"
        )

    def command(self) -> list[str]:
        where = self.where()
        assert where is not None
        return [where, str(self.folder / "ini")]

    def answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url(), connect_timeout=20).close()
        except psycopg.Error:
            return False
        return True

    def url(self) -> str:
        return f"postgresql://app@127.0.0.1:{self.port}/app"


KINDS: dict[str, type[Server]] = {kind.kind: kind for kind in (Postgres, MariaDb, MySql, Etcd, Redis)}
_RUNNING: dict[str, Server] = {}


def kinds() -> list[str]:
    """Every store that can be tried here; `test_store_contract.py` says which servers are missing, and why."""
    return ["memory", "sqlite", *servers_here()]


def servers_here() -> list[str]:
    return [kind for kind, made in KINDS.items() if not made.missing()]


def fresh(kind: str) -> Server:
    """A server that nobody else uses: for tests that stop and break it. `remove()` it."""
    return fresh_of(KINDS[kind])


def fresh_of(made: type[Server]) -> Server:
    if reason := made.missing():
        pytest.skip(reason)
    server = made()
    atexit.register(server.remove)
    server.prepare()
    server.start()
    if isinstance(server, Etcd):
        server.age()
    report(server)
    return server


def server(kind: str) -> Server:
    """The one that is shared by all tests of this process."""
    if kind not in _RUNNING:
        _RUNNING[kind] = fresh(kind)
    return _RUNNING[kind]


def empty(kind: str) -> str:
    """The address of a server without a lease."""
    found = server(kind)
    found.empty()
    return found.url()


@pytest.fixture
def pooler() -> Iterator[Pooler]:
    """Before the shared PostgreSQL, without a lease."""
    if reason := Postgres.missing() or Pooler.missing():
        pytest.skip(reason)
    empty("postgresql")
    postgres = server("postgresql")
    assert isinstance(postgres, Postgres)
    found = Pooler(postgres)
    found.prepare()
    found.start()
    yield found
    found.remove()


def report(server: Server) -> None:
    """For the last line of `make test`."""
    path = os.environ.get(REPORT)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(server.version() + "\n")
