"""Every SQL statement of PostgreSQL and MySQL, in one place, so that a test can read them all (SQLite's have a file of
their own: `sqlite_text.py`).

Parameters are written `:name`; each driver gets its own spelling. All conditions compare what the asker saw with what
stands there; the database's clock stands in none (L1). `written_at` is for people, and the clock that every answer
tells lifts tokens (T1). `IDENTITY` is the one expression in which a clock is named: MariaDB's start time is the
difference of two readings that are taken at the same moment, hence a constant.

The genesis row stands in the same table: server = settled, wait_ms = wait_max, token = floor, hold_ms = names,
seq = version.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from primacy.election.store import GENESIS
from primacy.store.port import HOLD_MS_MAX, HOLDER_MAX, MEMBERS_MAX, NAME_MAX, check_table

COLUMNS = ("holder", "token", "seq", "hold_ms", "wait_ms", "released", "members", "successor", "server")
"""In the order of `Row`."""
NAMED = ", ".join(("name", *COLUMNS))
OF_L = ", ".join(f"l.{column}" for column in ("name", *COLUMNS))


class Texts(NamedTuple):
    """The statements of one dialect, for one table."""

    create: str
    genesis: str
    """Makes the genesis row if it is missing: unsettled, with `:wait_max`."""
    wait_max: str
    """Raises the table's longest wait to `:wait_max`; never lowers it."""
    look: str
    counted: str
    """The same, with the number of lease rows."""
    take: str
    """If the row is as it was seen."""
    renew: str
    release: str
    listings: str


def spelled(text: str, style: str) -> str:
    """`:name` in the driver's own style, such as `%({})s`. What stands behind a quote, as in ':genesis', is a text."""
    return re.sub(r"(?<![:']):([a-z_]+)\b", lambda found: style.format(found.group(1)), text)


# --- PostgreSQL -------------------------------------------------------------------------------------------------------

POSTGRESQL_START = "CAST(extract(epoch FROM pg_postmaster_start_time()) AS text)"
POSTGRESQL_TABLE = """(SELECT concat_ws('.', d.oid, d.xmin) FROM pg_database AS d WHERE d.datname = current_database())
    || '.' || (SELECT concat_ws('.', c.oid, c.xmin, (SELECT n.xmin FROM pg_namespace AS n WHERE n.oid = c.relnamespace))
    FROM pg_class AS c WHERE c.oid = CAST('{table}' AS regclass))"""
"""The numbers of database and table: one that was dropped and made anew, or copied by `CREATE DATABASE … TEMPLATE`, has
others. And the transactions that last changed what the catalog says of database, table and schema: whatever was renamed
and took its old name again, while a copy stood in its place, has others. VACUUM, ANALYZE and freezing leave them; what
rewrites or alters the table, and GRANT, does not, and then a live holder moves along. An error if there is no table."""

POSTGRESQL_IDENTITY = f"""'postgresql:' || s.system_identifier || ':' ||
    substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || ':' || {POSTGRESQL_START} || ':' ||
    {POSTGRESQL_TABLE}"""
"""System identifier, timeline, start time, database and table. The timeline is the one that is written to now: the one
in the control file is that of the last checkpoint, which a promoted standby makes late. A standby raises an error here,
so it is never believed. The start time tells a data folder that was put back, which keeps all the rest."""

POSTGRESQL_PLAIN = f"""'postgresql:' || coalesce(host(inet_server_addr()), 'local') || ':' ||
    coalesce(inet_server_port(), 0) || ':' || {POSTGRESQL_START} || ':' || {POSTGRESQL_TABLE}"""
"""Where the functions above are not for us, as with some providers: address, start time, database and table, which
change at least as often. `pg_is_in_recovery` is asked instead of the error. There is no position then."""

POSTGRESQL_POSITION = "CAST(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS bigint)"
POSTGRESQL_WALL = "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)"

POSTGRESQL_ME = f"""WITH me AS MATERIALIZED (
  SELECT {{identity}} AS server,
    CASE WHEN pg_is_in_recovery() THEN 'on' ELSE current_setting('transaction_read_only') END AS read_only,
    {{position}} AS position, {POSTGRESQL_WALL} AS wall_ms, set_config('lock_timeout', :limit, true),
    set_config('synchronous_commit', {{commit}}, true)
  FROM {{source}} AS s)"""
"""Limits and durability hold for the one statement: a pooler that gives each statement another connection neither loses
them nor finds them on a connection of somebody else."""
POSTGRESQL_DURABLE = "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END"
POSTGRESQL_SOON = "'off'"
"""For a release alone, whose commit nobody waits for: it is told at once, and on disk a moment later.

A release that the server forgets in a crash leaves the row as it stood before, with the same token and seq: a holder
that fell silent, whose hold the others wait out; and its holder, if it lives, finds its row and releases it again.
Nobody can have acted on it: who sees a release can only take the row, and that take is durable before it is answered.
The log is written in order, so that all before it is then on disk, too, the release included; the same holds for what a
synchronous standby has. So no leadership begins on a release that can be lost (L4), and its token is as durable as ever
(T1). A renewal must not be like this: it is itself what a hold relies on."""

POSTGRESQL_MARK = "concat_ws('/', CAST(l.xmin AS text), CAST(l.xid AS text))"
POSTGRESQL_VOUCHES = (
    "coalesce(CAST(CAST(l.xid AS text) AS bigint) & 4294967295 = CAST(CAST(l.xmin AS text) AS bigint), \
false)"
)
"""Every write stores the number of its transaction in `xid`, and PostgreSQL itself notes it as `xmin`. A row
that came from a dump, by replication or by hand has the `xid` of an earlier write. The column has no default: one would
vouch for rows of a dump that was made before there was the column, and for those that an older version writes."""
POSTGRESQL_OWN = "written_at = clock_timestamp(), proof = DEFAULT, xid = pg_current_xact_id()"

POSTGRESQL_TELLS = "pg_notify('{}', l.name)"
POSTGRESQL_RENEWED = "pg_notify('{}', l.name || ' renewed')"
"""A reason to look, and nothing else: everybody who is connected may send and hear notifications. That of a renewal
says only when a look would find something new; it is no evidence that the holder lives. A take over a row is not told:
its first renewal is, a heartbeat later, and nobody who may take it now is kept waiting."""
POSTGRESQL_VERSION = "1 + CAST(floor(random() * 1000000000) AS bigint)"
"""Of a genesis row that is made: who waits for the table to be settled must not take it for one that stood there
before somebody emptied the table (L9)."""
POSTGRESQL_MIGRATE = "ALTER TABLE {} ADD COLUMN IF NOT EXISTS xid xid8"


class Steps(NamedTuple):
    """What changes the genesis row, too: each one statement, and the genesis row's lock puts them in order.

    All parts of a statement see the table as it was when it began, but a row that somebody else changed meanwhile is
    compared once more as it is now. So whatever rests on rows other than the one that is compared, such as their count,
    needs that the genesis row is unchanged: it would have another version.
    """

    first: str
    place: str
    settle: str
    prune: str


class Postgresql(NamedTuple):
    """What the statements of one table are made of."""

    table: str
    me: str
    me_soon: str


def _postgresql(table: str, identity: str) -> Postgresql:
    plain = identity is not POSTGRESQL_IDENTITY
    given = {
        "identity": identity.format(table=check_table(table)),
        "source": "(SELECT 1)" if plain else "pg_control_system()",
        "position": "CAST(0 AS bigint)" if plain else POSTGRESQL_POSITION,
    }
    me = POSTGRESQL_ME.format(commit=POSTGRESQL_DURABLE, **given)
    return Postgresql(table, me, POSTGRESQL_ME.format(commit=POSTGRESQL_SOON, **given))


OF_ME = "me.server, me.position, me.wall_ms"
POSTGRESQL_ROW = f"{OF_L}, l.proof, {POSTGRESQL_MARK}, {POSTGRESQL_VOUCHES}"
POSTGRESQL_SAME = f"""l.name = :name AND l.token = :seen_token AND l.seq = :seen_seq AND l.proof = :seen_proof
  AND l.released = :seen_released AND l.members = :seen_members AND {POSTGRESQL_MARK} = :seen_mark
  AND {POSTGRESQL_VOUCHES} = :seen_vouches AND me.server = :server"""
"""Everything that a decision rests on (L3)."""
POSTGRESQL_SAME_GENESIS = f"""l.name = '{GENESIS}' AND l.server = :settled AND l.token = :floor AND l.seq = :version
  AND {POSTGRESQL_MARK} = :genesis_mark AND me.server = :server"""
POSTGRESQL_SETTLED = f"""{POSTGRESQL_VOUCHES} AND l.server = me.server
  AND l.hold_ms = (SELECT count(*) FROM {{table}} AS r WHERE r.name <> '{GENESIS}')"""


def postgresql(table: str, identity: str = POSTGRESQL_IDENTITY) -> Texts:
    """All in one statement each, with the server's identity compared inside."""
    t, me, me_soon = _postgresql(table, identity)
    bounded = 'text COLLATE "C" NOT NULL CHECK (octet_length({}) <= {})'
    returning = f"RETURNING {OF_ME}, {POSTGRESQL_ROW}"
    tells = POSTGRESQL_TELLS.format(t)
    look = f"""{me}
SELECT {OF_ME}, me.read_only, {{count}}, {POSTGRESQL_ROW}
FROM me LEFT JOIN {t} AS l ON l.name = ANY (CAST(:names AS text[]))"""
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
  proof text COLLATE "C" NOT NULL DEFAULT CAST(gen_random_uuid() AS text),
  xid xid8
) WITH (fillfactor = 50)""",
        genesis=f"""INSERT INTO {t} ({NAMED}, written_at, xid)
VALUES ('{GENESIS}', '', 0, {POSTGRESQL_VERSION}, 0, :wait_max, true, '', '', '', clock_timestamp(),
  pg_current_xact_id())
ON CONFLICT (name) DO NOTHING""",
        wait_max=f"""UPDATE {t} AS l SET wait_ms = :wait_max, seq = l.seq + 1,
  server = CASE WHEN {POSTGRESQL_VOUCHES} THEN l.server ELSE '' END, {POSTGRESQL_OWN}
WHERE l.name = '{GENESIS}' AND l.wait_ms < :wait_max""",
        look=look.format(count="-1"),
        counted=look.format(count=f"(SELECT count(*) FROM {t} AS r WHERE r.name <> '{GENESIS}')"),
        take=f"""{me}
UPDATE {t} AS l SET holder = :holder, token = :token, seq = :seq, hold_ms = :hold_ms, wait_ms = :wait_ms,
  released = false, members = :members, successor = '', server = me.server, {POSTGRESQL_OWN}
FROM me
WHERE {POSTGRESQL_SAME}
{returning}""",
        renew=f"""{me}
UPDATE {t} AS l SET seq = l.seq + 1, server = me.server, {POSTGRESQL_OWN}
FROM me, unnest(CAST(:names AS text[]), CAST(:holders AS text[]), CAST(:tokens AS bigint[]), CAST(:seqs AS bigint[]),
  CAST(:servers AS text[])) AS r (name, holder, token, seq, server)
WHERE l.name = r.name AND l.holder = r.holder AND l.token = r.token AND l.seq = r.seq AND NOT l.released
  AND me.server = r.server AND {POSTGRESQL_VOUCHES}
{returning}, {POSTGRESQL_RENEWED.format(t)}""",
        release=f"""{me_soon}
UPDATE {t} AS l SET released = true, successor = r.successor, {POSTGRESQL_OWN}
FROM me, unnest(CAST(:names AS text[]), CAST(:holders AS text[]), CAST(:tokens AS bigint[]), CAST(:seqs AS bigint[]),
  CAST(:successors AS text[])) AS r (name, holder, token, seq, successor)
WHERE l.name = r.name AND l.holder = r.holder AND l.token = r.token AND l.seq = r.seq AND l.server = me.server
  AND {POSTGRESQL_VOUCHES}
{returning}, {tells}""",
        listings=f"""SELECT {POSTGRESQL_ROW}, l.written_at FROM {t} AS l WHERE l.name <> '{GENESIS}'
ORDER BY l.name LIMIT :most""",
    )


def postgresql_steps(table: str, identity: str = POSTGRESQL_IDENTITY) -> Steps:
    """A name that somebody else makes in the same moment is an error, and undoes the whole statement."""
    t, me, _ = _postgresql(table, identity)
    settled = POSTGRESQL_SETTLED.format(table=t)
    missing = f"NOT EXISTS (SELECT 1 FROM {t} AS r WHERE r.name = :name)"
    return Steps(
        first=f"""{me}, genesis AS (
  UPDATE {t} AS l SET hold_ms = l.hold_ms + 1, seq = l.seq + 1, {POSTGRESQL_OWN}
  FROM me
  WHERE {POSTGRESQL_SAME_GENESIS} AND {settled} AND l.token < :token AND {missing}
  RETURNING {OF_ME})
INSERT INTO {t} AS l ({NAMED}, written_at, xid)
SELECT :name, CAST(:holder AS text), CAST(:token AS bigint), CAST(:seq AS bigint), CAST(:hold_ms AS integer),
  CAST(:wait_ms AS integer), false, CAST(:members AS text), '', genesis.server, clock_timestamp(), pg_current_xact_id()
FROM genesis
RETURNING l.server, (SELECT position FROM me), (SELECT wall_ms FROM me), {POSTGRESQL_ROW}""",
        place=f"""{me}, genesis AS (
  UPDATE {t} AS l SET hold_ms = l.hold_ms + 1, seq = l.seq + 1,
    server = CASE WHEN {POSTGRESQL_VOUCHES} THEN l.server ELSE '' END, {POSTGRESQL_OWN}
  FROM me
  WHERE l.name = '{GENESIS}' AND me.server = :server AND {missing}
  RETURNING me.server, l.token, l.wait_ms)
INSERT INTO {t} ({NAMED}, written_at, xid)
SELECT :name, '', token, 1, wait_ms, wait_ms, false, '', '', server, clock_timestamp(), pg_current_xact_id()
FROM genesis
RETURNING name""",
        settle=f"""{me}, rows AS (SELECT count(*) AS number FROM {t} AS r WHERE r.name <> '{GENESIS}')
UPDATE {t} AS l SET server = me.server, hold_ms = rows.number, seq = l.seq + 1, {POSTGRESQL_OWN}
FROM me, rows
WHERE {POSTGRESQL_SAME_GENESIS} AND rows.number = :count
RETURNING l.name""",
        prune=f"""{me}, old AS (
  SELECT l.token FROM {t} AS l, me
  WHERE {POSTGRESQL_SAME}
  FOR UPDATE OF l), genesis AS (
  UPDATE {t} AS l SET token = greatest(l.token, old.token), hold_ms = l.hold_ms - 1, seq = l.seq + 1, {POSTGRESQL_OWN}
  FROM me, old
  WHERE {POSTGRESQL_SAME_GENESIS} AND {settled}
  RETURNING l.name)
DELETE FROM {t} AS l USING genesis
WHERE l.name = :name
RETURNING l.name""",
    )


# --- MySQL and MariaDB ------------------------------------------------------------------------------------------------

MYSQL_MADE = """(SELECT MAX(UNIX_TIMESTAMP(c.CREATE_TIME)) FROM information_schema.TABLES AS c
    WHERE c.TABLE_SCHEMA = DATABASE() AND c.TABLE_NAME = '{table}')"""
"""When the table was made, to the second: one that was dropped and made anew, as by a dump, has another time."""
MYSQL_ASCII = "CONVERT({} USING ascii) COLLATE ascii_bin"

MARIADB_COUNTED = "'COM_CHANGE_MASTER', 'COM_START_ALL_SLAVES', 'COM_START_SLAVE'"
FOLLOWING = "following"
MARIADB_START = f"""(SELECT GROUP_CONCAT(CASE v.VARIABLE_NAME WHEN 'UPTIME' THEN UNIX_TIMESTAMP() -
      CAST(v.VARIABLE_VALUE AS UNSIGNED) WHEN 'SLAVES_RUNNING' THEN IF(v.VARIABLE_VALUE = '0', NULL, '{FOLLOWING}')
      ELSE v.VARIABLE_VALUE END ORDER BY v.VARIABLE_NAME SEPARATOR ':')
    FROM information_schema.GLOBAL_STATUS AS v
    WHERE v.VARIABLE_NAME IN ({MARIADB_COUNTED}, 'SLAVES_RUNNING', 'UPTIME'))"""
"""How often it was made to follow another server, and when it started. Both readings of the clock are those of the
statement's beginning, so that their difference is the moment of the start, to the second, whatever the clock does.

A restarted server counts as another one: with many settings it may have forgotten its last commits. So does one that
followed another server in between: it may be writable again without that one's last commits, and neither its name nor
its start tells. One that follows while it is writable, as where two follow each other all the time, was not *made* to
follow: a word in its identity says it, and a look refuses it, so that nothing is ever written under that identity."""
MARIADB_DRAWN = "RIGHT(UUID(), 17)"
"""What this start drew for its UUIDs: one that crashes in the second of its start may start again in that second, and
may have forgotten commits in between."""
MARIADB_IDENTITY = MYSQL_ASCII.format(
    f"CONCAT('mariadb:', {{who}}, ':', {MARIADB_START}, ':', {MARIADB_DRAWN}, ':', {MYSQL_MADE})"
)
MARIADB_WHO = ("@@server_uid", "CONCAT(@@server_id, ':', @@hostname, ':', @@port)")
"""Since 10.5.26, 10.6.19 and 10.11.9 it has a number of its own; before, server id, host and port stand for it."""
MARIADB_POSITION = """(SELECT MAX(CAST(v.VARIABLE_VALUE AS UNSIGNED)) FROM information_schema.GLOBAL_STATUS AS v
    WHERE v.VARIABLE_NAME = 'INNODB_LSN_CURRENT')"""

MYSQL_IDENTITY = MYSQL_ASCII.format(
    f"""CONCAT('mysql:', @@server_uuid, ':', (SELECT UNIX_TIMESTAMP() - CAST(v.VARIABLE_VALUE AS UNSIGNED)
    FROM performance_schema.global_status AS v WHERE v.VARIABLE_NAME = 'Uptime'), ':', {MYSQL_MADE})"""
)
"""MySQL keeps its counts of statements where only an administrator may read them, so they are not part of it."""
MYSQL_POSITION = """(SELECT MAX(CAST(v.VARIABLE_VALUE AS UNSIGNED)) FROM performance_schema.global_status AS v
    WHERE v.VARIABLE_NAME = 'Innodb_redo_log_current_lsn')"""
MYSQL_WRITABLE = "CAST(@@global.read_only AS CHAR) IN ('0', 'OFF')"
MYSQL_WALL = "CAST(FLOOR(UNIX_TIMESTAMP(SYSDATE(3)) * 1000) AS SIGNED)"
MYSQL_COUNT = f"(SELECT COUNT(*) FROM {{table}} AS r WHERE r.name <> '{GENESIS}')"
MYSQL_VERSION = "1 + FLOOR(RAND() * 1000000000)"
"""As in PostgreSQL."""
MYSQL_ROW = f"{OF_L}, CAST(l.proof AS CHAR), '', 1"
"""There is no mark: nothing tells who wrote a row, so that each one vouches."""


class MysqlSteps(NamedTuple):
    """What changes the genesis row, too: a transaction that begins with its lock, decides, and writes."""

    lock: str
    """One row, as it is now, until the transaction ends."""
    counted: str
    """The identity, and the number of lease rows."""
    genesis: str
    insert: str
    delete: str


def mysql(table: str, identity: str, position: str = MARIADB_POSITION) -> Texts:
    """Without RETURNING: a write leaves a random `proof` in each row that it changes, to be found by the look after it.

    A seq alone would prove nothing: an earlier renewal, whose answer was lost, leaves the same one.
    """
    t = check_table(table)
    text = "VARCHAR({}) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
    same_place = f"{MYSQL_WRITABLE} AND {identity} = :server"
    look = f"""SELECT {identity}, {position}, {MYSQL_WALL}, {MYSQL_WRITABLE}, {{count}}, {MYSQL_ROW}
FROM (SELECT 1 AS one) AS o LEFT JOIN {t} AS l ON l.name IN :names"""
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
        genesis=f"""INSERT IGNORE INTO {t} ({NAMED}, written_at, proof)
VALUES ('{GENESIS}', '', 0, {MYSQL_VERSION}, 0, :wait_max, 1, '', '', '', UTC_TIMESTAMP(3), 0)""",
        wait_max=f"""UPDATE {t} SET wait_ms = :wait_max, seq = seq + 1, written_at = UTC_TIMESTAMP(3)
WHERE name = '{GENESIS}' AND wait_ms < :wait_max""",
        look=look.format(count="-1"),
        counted=look.format(count=MYSQL_COUNT.format(table=t)),
        take=f"""UPDATE {t} SET holder = :holder, token = :token, seq = :seq, hold_ms = :hold_ms, wait_ms = :wait_ms,
  released = 0, members = :members, successor = '', server = :server, written_at = UTC_TIMESTAMP(3), proof = :proof
WHERE name = :name AND token = :seen_token AND seq = :seen_seq AND proof = :seen_proof AND released = :seen_released
  AND members = :seen_members AND {same_place}""",
        renew=f"""UPDATE {t} SET seq = seq + 1, server = :server, written_at = UTC_TIMESTAMP(3), proof = :proof
WHERE name IN :names AND (name, holder, token, seq) IN :batch AND released = 0 AND {same_place}""",
        release=f"""UPDATE {t} SET released = 1, successor = :successor, written_at = UTC_TIMESTAMP(3), proof = :proof
WHERE name IN :names AND (name, holder, token, seq) IN :batch AND server = {identity} AND {MYSQL_WRITABLE}""",
        listings=f"""SELECT {MYSQL_ROW}, l.written_at FROM {t} AS l WHERE l.name <> '{GENESIS}'
ORDER BY l.name LIMIT :most""",
    )


def mysql_steps(table: str, identity: str) -> MysqlSteps:
    """The identity is compared by the writes as well: whatever was decided holds on this server only."""
    t = check_table(table)
    same_place = f"{MYSQL_WRITABLE} AND {identity} = :server"
    return MysqlSteps(
        lock=f"SELECT {MYSQL_ROW} FROM {t} AS l WHERE l.name = :name FOR UPDATE",
        counted=f"SELECT {identity}, {MYSQL_COUNT.format(table=t)}",
        genesis=f"""UPDATE {t} SET server = :settled, token = :floor, hold_ms = :names, seq = :version,
  written_at = UTC_TIMESTAMP(3), proof = :proof
WHERE name = '{GENESIS}' AND {same_place}""",
        insert=f"""INSERT INTO {t} ({NAMED}, written_at, proof)
SELECT :name, :holder, :token, :seq, :hold_ms, :wait_ms, 0, :members, '', :server, UTC_TIMESTAMP(3), :proof
FROM (SELECT 1 AS one) AS o WHERE {same_place}""",
        delete=f"DELETE FROM {t} WHERE name = :name AND {same_place}",
    )


def mysql_identity(identity: str, table: str, who: str = "") -> str:
    """With the table's name in it."""
    return identity.format(table=check_table(table), who=who)
