"""Every SQL statement of the stores, in one place, so that a test can read them all (`tests/test_store_text.py`).

Parameters are written `:name`; each driver gets its own spelling. All conditions compare what the asker saw (token,
seq, holder, server) with what stands there; the database's clock stands in none (L1). `written_at` is for people.
`IDENTITY` is the one expression in which a clock is named: MariaDB's start time is the difference of two readings that
are taken at the same moment, hence a constant.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from primacy.store.port import HOLD_MS_MAX, HOLDER_MAX, MEMBERS_MAX, NAME_MAX, check_table

COLUMNS = ("holder", "token", "seq", "hold_ms", "wait_ms", "released", "members", "successor", "server")
"""In the order of `Row`."""
NAMED = ", ".join(("name", *COLUMNS))
OF_L = ", ".join(f"l.{column}" for column in ("name", *COLUMNS))


class Texts(NamedTuple):
    """The statements of one dialect, for one table."""

    create: str
    look: str
    take: str
    """If the row is as it was seen."""
    first: str
    """If there is no row."""
    renew: str
    release: str
    sheets: str


def spelled(text: str, style: str) -> str:
    """`:name` in the driver's own style, such as `%({})s`."""
    return re.sub(r"(?<!:):([a-z_]+)\b", lambda found: style.format(found.group(1)), text)


# --- SQLite -----------------------------------------------------------------------------------------------------------

SQLITE_TIME = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
SQLITE_BATCH = "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), \
json_extract(value, '$[3]')"


def sqlite(table: str) -> Texts:
    """`:me` is the identity of the file, which SQL cannot know; it is compared all the same."""
    t = check_table(table)
    return Texts(
        create=f"""CREATE TABLE IF NOT EXISTS {t} (
  name TEXT NOT NULL PRIMARY KEY CHECK (length(name) <= {NAME_MAX}),
  holder TEXT NOT NULL CHECK (length(holder) <= {HOLDER_MAX}),
  token INTEGER NOT NULL CHECK (token >= 0),
  seq INTEGER NOT NULL CHECK (seq >= 0),
  hold_ms INTEGER NOT NULL CHECK (hold_ms BETWEEN 0 AND {HOLD_MS_MAX}),
  wait_ms INTEGER NOT NULL CHECK (wait_ms BETWEEN 0 AND {2 * HOLD_MS_MAX}),
  released INTEGER NOT NULL CHECK (released IN (0, 1)),
  members TEXT NOT NULL CHECK (length(members) <= {MEMBERS_MAX}),
  successor TEXT NOT NULL CHECK (length(successor) <= {HOLDER_MAX}),
  server TEXT NOT NULL CHECK (length(server) <= {HOLDER_MAX}),
  written_at TEXT NOT NULL
) WITHOUT ROWID""",
        look=f"SELECT {NAMED} FROM {t} WHERE name IN (SELECT value FROM json_each(:names))",
        take=f"""UPDATE {t} SET holder = :holder, token = :token, seq = :seq, hold_ms = :hold_ms, wait_ms = :wait_ms,
  released = 0, members = :members, successor = '', server = :me, written_at = {SQLITE_TIME}
WHERE name = :name AND token = :seen_token AND seq = :seen_seq AND members = :seen_members AND :me = :server
RETURNING {NAMED}""",
        first=f"""INSERT INTO {t} ({NAMED}, written_at)
SELECT :name, :holder, :token, :seq, :hold_ms, :wait_ms, 0, :members, '', :me, {SQLITE_TIME}
WHERE :me = :server
ON CONFLICT (name) DO NOTHING
RETURNING {NAMED}""",
        renew=f"""UPDATE {t} SET seq = seq + 1, server = :me, written_at = {SQLITE_TIME}
WHERE released = 0 AND (name, holder, token, seq) IN ({SQLITE_BATCH} FROM json_each(:batch)
  WHERE json_extract(value, '$[4]') = :me)
RETURNING {NAMED}""",
        release=f"""UPDATE {t} SET released = 1, written_at = {SQLITE_TIME},
  successor = (SELECT json_extract(value, '$[4]') FROM json_each(:batch) WHERE json_extract(value, '$[0]') = name)
WHERE server = :me AND (name, holder, token, seq) IN ({SQLITE_BATCH} FROM json_each(:batch))
RETURNING {NAMED}""",
        sheets=f"SELECT {NAMED}, written_at FROM {t} ORDER BY name LIMIT :most",
    )


# --- PostgreSQL -------------------------------------------------------------------------------------------------------

POSTGRESQL_IDENTITY = """'postgresql:' || s.system_identifier || ':' ||
    substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || CASE current_setting('fsync') WHEN 'on' THEN ''
    ELSE ':' || CAST(extract(epoch FROM pg_postmaster_start_time()) AS text) END"""
"""System identifier and timeline. The timeline is the one that is written to now: the one in the control file is that
of the last checkpoint, which a promoted standby makes late. A standby raises an error here, so it is never believed.
With fsync off a server may forget at a restart: then its start time is part of its name."""

POSTGRESQL_PLAIN = """'postgresql:' || coalesce(host(inet_server_addr()), 'local') || ':' ||
    coalesce(inet_server_port(), 0) || ':' || CAST(extract(epoch FROM pg_postmaster_start_time()) AS text)"""
"""Where the functions above are not for us, as with some providers: address and start time, which change at least as
often. `pg_is_in_recovery` is asked instead of the error."""

POSTGRESQL_ME = """WITH me AS MATERIALIZED (
  SELECT {identity} AS server, CASE WHEN pg_is_in_recovery() THEN 'on' ELSE current_setting('transaction_read_only') END
    AS read_only, set_config('lock_timeout', :limit, true),
    set_config('synchronous_commit', {commit}, true)
  FROM {source} AS s)"""
"""Limits and durability hold for the one statement: a pooler that gives each statement another connection neither loses
them nor finds them on a connection of somebody else."""
POSTGRESQL_DURABLE = "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END"
POSTGRESQL_SOON = "'off'"
"""For a release alone, whose commit nobody waits for: it is told at once, and on disk a moment later.

A release that the server forgets in a crash leaves the row as it stood before, with the same token and seq: a holder
that fell silent, whose hold the others wait out; and its holder, if it lives, finds its row and releases it again.
Nobody can have acted on it: whoever sees a release can only take the row, and that take is durable before it is
answered. The log is written in order, so that all before it is then on disk, too, the release included; the same holds
for what a synchronous standby has. So no leadership begins on a release that can be lost (L4), and its token is as
durable as ever (T1). A renewal must not be like this: it is itself what a hold relies on."""


POSTGRESQL_TELLS = "pg_notify('{}', concat_ws(' ', l.name, l.token, l.seq, CAST(l.released AS integer), l.proof, \
l.successor))"
"""Everybody who is connected may send and hear notifications. So they carry the `proof` that this very write has drawn:
a take compares it, and nobody could know it before."""


def postgresql(table: str, identity: str = POSTGRESQL_IDENTITY) -> Texts:
    """All in one statement each, with the server's identity compared inside."""
    t = check_table(table)
    source = "pg_control_system()" if identity is POSTGRESQL_IDENTITY else "(SELECT 1)"
    me = POSTGRESQL_ME.format(identity=identity, source=source, commit=POSTGRESQL_DURABLE)
    me_soon = POSTGRESQL_ME.format(identity=identity, source=source, commit=POSTGRESQL_SOON)
    bounded = 'text COLLATE "C" NOT NULL CHECK (octet_length({}) <= {})'
    returning = f"RETURNING me.server, l.proof, {OF_L}"
    tells = POSTGRESQL_TELLS.format(t)
    return Texts(
        create=f"""CREATE TABLE IF NOT EXISTS {t} (
  name {bounded.format("name", NAME_MAX)} PRIMARY KEY,
  holder {bounded.format("holder", HOLDER_MAX)},
  token bigint NOT NULL CHECK (token >= 0),
  seq bigint NOT NULL CHECK (seq >= 0),
  hold_ms integer NOT NULL CHECK (hold_ms BETWEEN 0 AND {HOLD_MS_MAX}),
  wait_ms integer NOT NULL CHECK (wait_ms BETWEEN 0 AND {2 * HOLD_MS_MAX}),
  released boolean NOT NULL,
  members {bounded.format("members", MEMBERS_MAX)},
  successor {bounded.format("successor", HOLDER_MAX)},
  server {bounded.format("server", HOLDER_MAX)},
  written_at timestamptz NOT NULL,
  proof text COLLATE "C" NOT NULL DEFAULT CAST(gen_random_uuid() AS text)
) WITH (fillfactor = 50)""",
        look=f"""{me}
SELECT me.server, me.read_only, l.proof, {OF_L} FROM me LEFT JOIN {t} AS l ON l.name = ANY (CAST(:names AS text[]))""",
        take=f"""{me}
UPDATE {t} AS l SET holder = :holder, token = :token, seq = :seq, hold_ms = :hold_ms, wait_ms = :wait_ms,
  released = false, members = :members, successor = '', server = me.server, written_at = clock_timestamp(),
  proof = DEFAULT
FROM me
WHERE l.name = :name AND l.token = :seen_token AND l.seq = :seen_seq AND l.members = :seen_members
  AND me.server = :server AND l.proof = coalesce(CAST(:proof AS text), l.proof)
{returning}""",
        first=f"""{me}
INSERT INTO {t} AS l ({NAMED}, written_at)
SELECT :name, :holder, :token, :seq, :hold_ms, :wait_ms, false, :members, '', me.server, clock_timestamp()
FROM me WHERE me.server = :server
ON CONFLICT (name) DO NOTHING
RETURNING l.server, l.proof, {OF_L}""",
        renew=f"""{me}
UPDATE {t} AS l SET seq = l.seq + 1, server = me.server, written_at = clock_timestamp(), proof = DEFAULT
FROM me, unnest(CAST(:names AS text[]), CAST(:holders AS text[]), CAST(:tokens AS bigint[]), CAST(:seqs AS bigint[]),
  CAST(:servers AS text[])) AS r (name, holder, token, seq, server)
WHERE l.name = r.name AND l.holder = r.holder AND l.token = r.token AND l.seq = r.seq AND NOT l.released
  AND me.server = r.server
{returning}, {tells}""",
        release=f"""{me_soon}
UPDATE {t} AS l SET released = true, successor = r.successor, written_at = clock_timestamp(),
  proof = CASE WHEN l.released THEN l.proof ELSE CAST(gen_random_uuid() AS text) END
FROM me, unnest(CAST(:names AS text[]), CAST(:holders AS text[]), CAST(:tokens AS bigint[]), CAST(:seqs AS bigint[]),
  CAST(:successors AS text[])) AS r (name, holder, token, seq, successor)
WHERE l.name = r.name AND l.holder = r.holder AND l.token = r.token AND l.seq = r.seq AND l.server = me.server
{returning}, {tells}""",
        sheets=f"SELECT {NAMED}, written_at FROM {t} ORDER BY name LIMIT :most",
    )


# --- MySQL and MariaDB ------------------------------------------------------------------------------------------------

MARIADB_IDENTITY = """(SELECT CONVERT(CONCAT('mariadb:', @@server_id, ':', @@hostname, ':', @@port, ':',
    UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS UNSIGNED)) USING ascii) COLLATE ascii_bin
    FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME')"""
"""Server id, host and start time. Both readings of the clock are those of the statement's beginning, so that their
difference is the moment of the start, to the second, whatever the clock does. A restarted server counts as another one:
with many settings it may have forgotten its last commits."""
MYSQL_IDENTITY = """(SELECT CONVERT(CONCAT('mysql:', @@server_uuid, ':',
    UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS UNSIGNED)) USING ascii) COLLATE ascii_bin
    FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime')"""
MYSQL_WRITABLE = "CAST(@@global.read_only AS CHAR) IN ('0', 'OFF')"


def mysql(table: str, identity: str = MARIADB_IDENTITY) -> Texts:
    """Without RETURNING: a write leaves a random `proof` in each row that it changes, to be found by the look after it.

    A seq alone would prove nothing: an earlier renewal, whose answer was lost, leaves the same one.
    """
    t = check_table(table)
    text = "VARCHAR({}) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
    same_place = f"{MYSQL_WRITABLE} AND {identity} = :server"
    return Texts(
        create=f"""CREATE TABLE IF NOT EXISTS {t} (
  name {text.format(NAME_MAX)} PRIMARY KEY,
  holder {text.format(HOLDER_MAX)},
  token BIGINT NOT NULL,
  seq BIGINT NOT NULL,
  hold_ms INT NOT NULL,
  wait_ms INT NOT NULL,
  released TINYINT NOT NULL,
  members {text.format(MEMBERS_MAX)},
  successor {text.format(HOLDER_MAX)},
  server {text.format(HOLDER_MAX)},
  written_at DATETIME(3) NOT NULL,
  proof BIGINT NOT NULL,
  CHECK (token >= 0 AND seq >= 0 AND hold_ms BETWEEN 0 AND {HOLD_MS_MAX}
    AND wait_ms BETWEEN 0 AND {2 * HOLD_MS_MAX} AND released IN (0, 1))
) ENGINE = InnoDB""",
        look=f"""SELECT {identity}, {MYSQL_WRITABLE}, l.proof, {OF_L}
FROM (SELECT 1 AS one) AS o LEFT JOIN {t} AS l ON l.name IN :names""",
        take=f"""UPDATE {t} SET holder = :holder, token = :token, seq = :seq, hold_ms = :hold_ms, wait_ms = :wait_ms,
  released = 0, members = :members, successor = '', server = :server, written_at = UTC_TIMESTAMP(3), proof = :proof
WHERE name = :name AND token = :seen_token AND seq = :seen_seq AND members = :seen_members AND {same_place}""",
        first=f"""INSERT INTO {t} ({NAMED}, written_at, proof)
SELECT :name, :holder, :token, :seq, :hold_ms, :wait_ms, 0, :members, '', :server, UTC_TIMESTAMP(3), :proof
FROM (SELECT 1 AS one) AS o WHERE {same_place}""",
        renew=f"""UPDATE {t} SET seq = seq + 1, server = :server, written_at = UTC_TIMESTAMP(3), proof = :proof
WHERE name IN :names AND (name, holder, token, seq) IN :batch AND released = 0 AND {same_place}""",
        release=f"""UPDATE {t} SET released = 1, successor = :successor, written_at = UTC_TIMESTAMP(3), proof = :proof
WHERE name IN :names AND (name, holder, token, seq) IN :batch AND server = {identity} AND {MYSQL_WRITABLE}""",
        sheets=f"SELECT {NAMED}, written_at FROM {t} ORDER BY name LIMIT :most",
    )
