"""Which store an address means.

    memory:                              within this process
    sqlite:///file.db                    a file (three strokes: relative, four: absolute)
    postgresql://user:password@host/db   also postgres://, and SQLAlchemy's spellings such as postgresql+asyncpg://
    mysql://…  mariadb://…               likewise
    etcd://host:port,host:port           etcds:// for TLS
    redis://user:password@host:port/0    Redis or Valkey; rediss:// for TLS
    kubernetes:                          Leases of the pod's own namespace; kubernetes://namespace?kubeconfig=FILE

or an SQLAlchemy engine that the application already has, synchronous or not: its address and connect arguments are used
for an own connection.
"""

from __future__ import annotations

import re
import ssl
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from primacy.errors import UsageError
from primacy.store.engine import from_engine, is_engine
from primacy.store.port import LeaseStore, check_table

TABLE = "primacy_leases"
LIMIT_MS = 900
"""For a hold of 3 s, the default profile's."""


def open_store(where: Any, *, table: str = TABLE, limit_ms: int = LIMIT_MS, create: bool = True) -> LeaseStore:
    """A store that is not connected yet. Raises at once if the address, or what it needs, is wrong.

    `limit_ms` bounds each statement, lock wait and trip; see `limit_of_ms`. `create` False: only an existing table.
    """
    check_table(table)
    if isinstance(where, str):
        return _by_url(where, table, limit_ms, create)
    if hasattr(where, "look") and hasattr(where, "renew"):
        store: LeaseStore = where
        return store
    if is_engine(where):
        return from_engine(where, table, limit_ms, create)
    raise UsageError(f"a store is an address such as postgresql://host/db, or an SQLAlchemy engine, not {where!r:.60}")


PASSWORD_FILE = "password_file"
PASSWORD_BYTES_MAX = 4_096


def with_password(url: str) -> str:
    """`?password_file=FILE` of any store: its first line is the password, which then stands in no address that others
    see (`ps`, a file that is shared)."""
    head, mark, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    named = [value for key, value in options if key == PASSWORD_FILE]
    if not named:
        return url
    rest = "&".join(part for part in query.split("&") if not part.startswith(f"{PASSWORD_FILE}="))
    scheme, found, place = head.partition("://")
    login = place.partition("/")[0].rpartition("@")[0]
    if not found or not login or ":" in login:
        raise UsageError(f"?{PASSWORD_FILE}= needs a user without a password in the address: {scheme}://USER@host/db")
    password = quote(_first_line(named[-1]), safe="")
    return f"{scheme}://{login}:{password}@{place[len(login) + 1 :]}{mark if rest else ''}{rest}"


def _first_line(path: str) -> str:
    if not path.startswith("/"):
        raise UsageError(f"?{PASSWORD_FILE}={path[:80]}: name the file from the root, such as /etc/primacy/password")
    try:
        with open(path, "rb") as file:
            line = file.read(PASSWORD_BYTES_MAX).split(b"\n", 1)[0].rstrip(b"\r").decode()
    except OSError as error:
        raise UsageError(f"?{PASSWORD_FILE}={path[:80]}: {error.strerror}; make it, readable for this user") from None
    except UnicodeDecodeError:
        raise UsageError(f"?{PASSWORD_FILE}={path[:80]}: its first line is no text") from None
    if not line:
        raise UsageError(f"?{PASSWORD_FILE}={path[:80]}: its first line is empty; write the password there")
    return line


def _by_url(url: str, table: str, limit_ms: int, create: bool) -> LeaseStore:
    url = with_password(url)
    scheme = re.split(r"[:+]", url, maxsplit=1)[0].lower()
    rest = url.partition(":")[2]
    match scheme:
        case "memory":
            from primacy.store.memory import MemoryStore, shared

            return MemoryStore(shared(rest.strip("/")))
        case "sqlite":
            from primacy.store.sqlite import SqliteStore

            return SqliteStore(sqlite_path(url), table, limit_ms, create)
        case "postgresql" | "postgres":
            from primacy.store.postgresql import PostgresqlStore, options_of

            return PostgresqlStore(options_of(f"postgresql:{rest}"), table, limit_ms, create)
        case "mysql" | "mariadb":
            from primacy.store.mysql import MysqlStore

            options = mysql_options(url)
            return MysqlStore(lambda: options, table, limit_ms, create)
        case "etcd" | "etcds":
            return _etcd(url, table, limit_ms)
        case "redis" | "rediss":
            return _redis(url, table, limit_ms, create)
        case "kubernetes":
            return _kubernetes(url, table, limit_ms)
    raise UsageError(
        f"{scheme[:20]!r} is no store: an address begins with memory:, sqlite:///, postgresql://, mysql://, "
        "mariadb://, etcd://, redis:// or kubernetes:"
    )


def sqlite_path(url: str) -> str:
    """The file of `sqlite:///file`, as SQLAlchemy reads it: three strokes and a relative path, or four."""
    _, found, path = url.partition(":///")
    path = path.partition("?")[0]
    if not found or not path:
        raise UsageError(
            f"a SQLite address is sqlite:///file.db (relative) or sqlite:////folder/file.db, not {url[:60]}"
        )
    return path


MYSQL_TEXTS = (
    "unix_socket",
    "read_default_file",
    "read_default_group",
    "ssl_ca",
    "ssl_cert",
    "ssl_key",
    "ssl_key_password",
    "server_public_key",
    "bind_address",
)
MYSQL_FLAGS = ("ssl_verify_cert", "ssl_verify_identity", "ssl_disabled")


def mysql_options(url: str) -> dict[str, Any]:
    """PyMySQL's arguments. What stands behind `?` is passed on if PyMySQL has it and a lease can bear it."""
    found = address(url, 3306)
    if not found.path.strip("/"):
        raise UsageError("an address of MySQL or MariaDB names its database: mysql://user@host/database")
    options: dict[str, Any] = {
        "host": found.host or "127.0.0.1",
        "port": found.port,
        "user": found.user,
        "password": found.password,
        "database": found.path.strip("/"),
    }
    for key, value in found.options.items():
        if key in MYSQL_TEXTS:
            options[key] = value
        elif key in MYSQL_FLAGS:
            options[key] = truth(key, value)
        elif key != "charset":  # ours is ASCII anyway
            raise UsageError(f"?{key}= is unknown here; there are {', '.join((*MYSQL_TEXTS, *MYSQL_FLAGS))}")
    return options


def _etcd(url: str, table: str, limit_ms: int) -> LeaseStore:
    from primacy.store.etcd import EtcdStore
    from primacy.store.etcd_http import Endpoint, Gateway

    scheme, _, rest = url.partition("://")
    login, _, hosts = rest.partition("?")[0].rstrip("/").rpartition("@")
    endpoints = []
    for text in hosts.split(","):
        found = address(f"etcd://{text}", 2379)
        if not found.host or found.path.strip("/"):
            raise UsageError(f"an address of etcd is etcd://host:port,host:port, not {hosts[:60]!r}")
        endpoints.append(Endpoint(found.host, found.port))
    user, _, password = login.partition(":")
    tls = _tls(address(url.replace(hosts, "x"), 2379).options) if scheme == "etcds" else None
    return EtcdStore(Gateway(endpoints, limit_ms, tls, unquote(user), unquote(password)), table)


DURABILITY = "durability"


def _redis(url: str, table: str, limit_ms: int, create: bool) -> LeaseStore:
    """`?durability=advisory`: also where the server may forget who holds, or two may grant at once."""
    from primacy.store.redis import RedisStore
    from primacy.store.redis_wire import Target

    scheme = url.partition("://")[0].lower()
    found = address(url, 6379)
    database = found.path.strip("/") or "0"
    is_one = scheme in ("redis", "rediss") and found.host and "," not in found.host
    if not is_one or not re.fullmatch(r"[0-9]{1,5}", database):
        raise UsageError(
            "an address of Redis is redis://user:password@host:port/0: one server, and its database's number"
        )
    durability = found.options.pop(DURABILITY, "strict")
    if durability == "durable":
        raise UsageError(f"?{DURABILITY}=durable is called strict now")
    if durability not in ("strict", "advisory"):
        raise UsageError(f"?{DURABILITY}={durability[:20]} is neither strict nor advisory")
    if found.options and scheme == "redis":
        raise UsageError(
            f"?{next(iter(found.options))}= is unknown here; there is {DURABILITY}; rediss:// has ca, cert, key"
        )
    tls = _tls(found.options) if scheme == "rediss" else None
    target = Target(found.host, found.port, int(database), found.user, found.password, tls)
    return RedisStore(target, table, limit_ms, create, advisory=durability == "advisory")


def _kubernetes(url: str, table: str, limit_ms: int) -> LeaseStore:
    """`?kubeconfig=FILE&context=NAME`: from outside of a pod."""
    from primacy.store.kubernetes import NAMESPACE, KubernetesStore
    from primacy.store.kubernetes_http import Api, by_kubeconfig, in_pod

    where, _, query = url.partition(":")[2].partition("?")
    namespace, options = where.strip("/"), dict(parse_qsl(query, keep_blank_values=True))
    if namespace and not NAMESPACE.fullmatch(namespace):
        raise UsageError(
            "an address of Kubernetes is kubernetes: or kubernetes://namespace, and a namespace has at most 63 lower "
            f"case letters, digits and hyphens, not {namespace[:60]!r}"
        )
    for key in options:
        if key not in ("kubeconfig", "context"):
            raise UsageError(f"?{key}= is unknown here; there are kubeconfig, context")
    path, context = options.get("kubeconfig", ""), options.get("context", "")
    if context and not path:
        raise UsageError(f"?context={context[:40]} is of a kubeconfig: name the file, too")
    if path and not path.startswith("/"):
        raise UsageError(f"?kubeconfig={path[:80]}: name the file from the root, such as /home/me/.kube/config")
    account = (lambda: by_kubeconfig(path, context, namespace)) if path else (lambda: in_pod(namespace))
    return KubernetesStore(Api(account, limit_ms), table)


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    """`?ca=FILE&cert=FILE&key=FILE`: whom to trust, and who we are."""
    for key in options:
        if key not in ("ca", "cert", "key"):
            raise UsageError(f"?{key}= is unknown here; there are ca, cert, key")
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
    except OSError as error:
        raise UsageError(f"the certificates of the store cannot be used: {error.strerror or error}") from None
    return context


def truth(key: str, value: str) -> bool:
    """Yes or no in an address."""
    if value.lower() in ("1", "true", "yes", "on"):
        return True
    if value.lower() in ("0", "false", "no", "off"):
        return False
    raise UsageError(f"?{key}={value[:20]} is neither true nor false")


class Address(NamedTuple):
    """The parts of a URL, decoded."""

    host: str
    port: int
    user: str
    password: str
    path: str
    options: dict[str, str]


def address(url: str, port: int) -> Address:
    """Its parts. Errors show no password."""
    try:
        parts = urlsplit(url)
        found_port = parts.port
    except ValueError as error:
        raise UsageError(f"the store's address is not a URL: {str(error)[:80]}") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Address(
        parts.hostname or "",
        found_port or port,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        unquote(parts.path),
        options,
    )
