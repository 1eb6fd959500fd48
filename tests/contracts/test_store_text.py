"""The statements themselves: no store's clock in any condition, rows go by a prune only, every write compares (L1)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from primacy.errors import UsageError
from primacy.store import sql_text

IDENTITIES = (
    sql_text.POSTGRESQL_IDENTITY.format(table="leases"),
    sql_text.POSTGRESQL_PLAIN.format(table="leases"),
    *(sql_text.mysql_identity(sql_text.MARIADB_IDENTITY, "leases", who) for who in sql_text.MARIADB_WHO),
    sql_text.mysql_identity(sql_text.MYSQL_IDENTITY, "leases"),
)
TOLD = (sql_text.POSTGRESQL_WALL, sql_text.MYSQL_WALL)
"""The clock that an answer tells, for tokens alone (T1)."""


def dialects() -> dict[str, dict[str, str]]:
    """Every statement of every dialect, by name."""
    plain = sql_text.POSTGRESQL_PLAIN
    found = {
        "postgresql": (sql_text.postgresql("leases"), sql_text.postgresql_steps("leases")),
        "postgresql-plain": (sql_text.postgresql("leases", plain), sql_text.postgresql_steps("leases", plain)),
    }
    texts = {name: texts._asdict() | steps._asdict() for name, (texts, steps) in found.items()}
    for name, identity in zip(("mariadb", "mariadb-before-uid", "mysql"), IDENTITIES[2:], strict=True):
        steps = sql_text.mysql_steps("leases", identity)._asdict()
        more = {f"step_{key}": text for key, text in steps.items()}
        texts[name] = sql_text.mysql("leases", identity)._asdict() | more
    return texts


DIALECTS = dialects()
STATEMENTS = [(dialect, kind) for dialect, texts in DIALECTS.items() for kind in texts if kind != "create"]
CLOCK = re.compile(
    r"\b(now|clock_timestamp|current_timestamp|current_time|localtime\w*|statement_timestamp|transaction_timestamp|age|"
    r"timeofday|utc_timestamp|sysdate|unix_timestamp|curtime|curdate|strftime|julianday|unixepoch|datetime|interval|"
    r"written_at|uptime|wall_ms|pg_postmaster_start_time)\b",
    re.IGNORECASE,
)


def conditions(text: str) -> str:
    """Everything of a statement that decides whether, and which, rows it changes. A `SET` list, a list of values to be
    inserted and a list of what is shown are not part of it; an expression that names the server counts as one word."""
    for identity in IDENTITIES:
        text = text.replace(identity, "IDENTITY")
    for told in TOLD:
        text = text.replace(f"{told} AS wall_ms", "TOLD").replace(told, "TOLD")
    text = re.sub(r"SET .*?\n?(?=\bFROM\b|\bWHERE\b)", "SET … ", text, flags=re.DOTALL)
    text = re.sub(r"INSERT INTO .*?\nSELECT .*?\n(?=FROM|WHERE)", "INSERT … ", text, flags=re.DOTALL)
    text = re.sub(r"INSERT (?:IGNORE )?INTO .*?\nVALUES .*", "INSERT … ", text, flags=re.DOTALL)
    text = re.sub(r"RETURNING .*?(?=\)\n(?:INSERT|DELETE)|$)", "RETURNING …", text, flags=re.DOTALL)
    return re.sub(r"SELECT (?:me\.server|l\.name).*?\n?(?=\bFROM\b)", "SELECT … ", text, flags=re.DOTALL)


@pytest.mark.parametrize(("dialect", "kind"), STATEMENTS)
def test_L1_no_clock_of_the_store_in_any_condition(dialect: str, kind: str) -> None:
    text = conditions(DIALECTS[dialect][kind])
    assert not CLOCK.findall(text), text


@pytest.mark.parametrize(
    "wrong",
    [
        "UPDATE leases SET seq = seq + 1 WHERE name = :name AND expires_at > now()",
        "UPDATE leases SET seq = seq + 1\nWHERE name = :name AND written_at < :then",
        "INSERT INTO leases (name)\nSELECT :name\nWHERE UTC_TIMESTAMP(3) > :then",
        DIALECTS["postgresql"]["take"].replace("l.seq = :seen_seq", "me.wall_ms > :seen_seq"),
        DIALECTS["postgresql"]["first"].replace("l.token < :token", "l.written_at < clock_timestamp()"),
        DIALECTS["postgresql"]["place"].replace("AND NOT EXISTS", "AND l.written_at < :then AND NOT EXISTS"),
        DIALECTS["postgresql"]["prune"].replace("FOR UPDATE OF l", "AND l.written_at < :then FOR UPDATE OF l"),
        DIALECTS["mariadb"]["take"] + " AND written_at < :then",
        DIALECTS["mariadb"]["step_delete"] + " AND written_at < UTC_TIMESTAMP()",
    ],
)
def test_the_check_can_fail(wrong: str) -> None:
    assert CLOCK.findall(conditions(wrong)), conditions(wrong)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_L1_every_write_compares_what_was_seen(dialect: str) -> None:
    texts = DIALECTS[dialect]
    marked = dialect.startswith("postgresql")
    compared = {
        "take": ["token = :seen_token", "seq = :seen_seq", "proof = :seen_proof", "released = :seen_released",
                 "members = :seen_members", "= :server", *(["= :seen_mark", "= :seen_vouches"] if marked else [])],
        "renew": ["holder", "token", "seq", "= r.server" if marked else "= :server"],
        "release": ["holder", "token", "seq", "server = "],
    }  # fmt: skip
    if marked:
        of_genesis = ["server = :settled", "token = :floor", "seq = :version", "= :genesis_mark", "= :server"]
        compared |= {"first": of_genesis, "settle": [*of_genesis, "number = :count"]}
        compared |= {"prune": [*of_genesis, *compared["take"]], "place": ["= :server"]}
        for kind in ("renew", "release", "first"):
            assert "xmin" in conditions(texts[kind]), kind
    else:
        compared |= {f"step_{kind}": ["= :server"] for kind in ("genesis", "insert", "delete")}
    for kind, words in compared.items():
        text = conditions(texts[kind])
        assert all(re.search(rf"{re.escape(word)}\b", text) for word in words), (kind, text)
    assert "released = 0" in texts["renew"] or "NOT l.released" in texts["renew"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_rows_go_by_a_prune_only_and_each_text_is_one_statement(dialect: str) -> None:
    for kind, text in DIALECTS[dialect].items():
        assert bool(re.search(r"\bDELETE\b", text)) is (kind in ("prune", "step_delete")), kind
        assert not re.search(r"\b(TRUNCATE|DROP|REPLACE)\b", text)
        assert ";" not in text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_L5_the_identity_names_the_start_and_the_table(dialect: str) -> None:
    text = DIALECTS[dialect]["take"]
    assert ("pg_postmaster_start_time" in text and "regclass" in text) or (
        "UPTIME" in text.upper() and "CREATE_TIME" in text
    )
    assert ("COM_START_SLAVE" in text) is dialect.startswith("mariadb"), "it may have followed another one in between"


def test_a_quoted_name_is_no_parameter() -> None:
    text = "SELECT :name, ':genesis', CAST(x::text AS xid8)"
    assert sql_text.spelled(text, "%({})s") == "SELECT %(name)s, ':genesis', CAST(x::text AS xid8)"


def test_statements_stand_in_the_files_of_statements() -> None:
    """Or this page would not have read them all. The old table has its own, which must use its own rules."""
    room = Path(sql_text.__file__).parent
    for file in sorted(room.glob("*.py")):
        if not file.name.endswith("_text.py") and file.name != "sql_coordinator.py":
            assert not re.search(r"\b(UPDATE \{|INSERT INTO|UPDATE primacy)", file.read_text()), file.name


@pytest.mark.parametrize("table", ["", "a b", "leases; DROP TABLE x", "x" * 64, "1st", "jöb", 'a"b'])
def test_A30_a_table_needs_no_quoting(table: str) -> None:
    for dialect in (sql_text.postgresql, sql_text.postgresql_steps):
        with pytest.raises(UsageError, match="a table's name is"):
            dialect(table)
    for with_identity in (sql_text.mysql, sql_text.mysql_steps):
        with pytest.raises(UsageError, match="a table's name is"):
            with_identity(table, "x")
