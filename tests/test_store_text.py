"""The statements themselves: no store's clock in any condition, nothing deleted, and every write compares (L1)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from primacy.errors import UsageError
from primacy.store import sql_text
from primacy.store.sql_text import Texts

IDENTITIES = (
    sql_text.POSTGRESQL_IDENTITY,
    sql_text.POSTGRESQL_PLAIN,
    sql_text.MARIADB_IDENTITY,
    sql_text.MYSQL_IDENTITY,
)
DIALECTS: dict[str, Texts] = {
    "sqlite": sql_text.sqlite("leases"),
    "postgresql": sql_text.postgresql("leases"),
    "postgresql-plain": sql_text.postgresql("leases", sql_text.POSTGRESQL_PLAIN),
    "mariadb": sql_text.mysql("leases", sql_text.MARIADB_IDENTITY),
    "mysql": sql_text.mysql("leases", sql_text.MYSQL_IDENTITY),
}
CLOCK = re.compile(
    r"\b(now|clock_timestamp|current_timestamp|current_time|localtime\w*|statement_timestamp|transaction_timestamp|age|"
    r"timeofday|utc_timestamp|sysdate|unix_timestamp|curtime|curdate|strftime|julianday|unixepoch|datetime|interval|"
    r"written_at|uptime)\b",
    re.IGNORECASE,
)
WRITES = ("take", "first", "renew", "release")


def conditions(text: str) -> str:
    """Everything of a statement that decides whether, and which, rows it changes. A `SET` list and a list of values to
    be inserted are not part of it; an expression that names the server counts as one word."""
    for identity in IDENTITIES:
        text = text.replace(identity, "IDENTITY")
    text = re.sub(r"SET .*?\n?(?=FROM|WHERE)", "SET … ", text, flags=re.DOTALL)
    text = re.sub(r"INSERT INTO .*?\nSELECT .*?\n", "INSERT … ", text, flags=re.DOTALL)
    return text.partition("RETURNING")[0]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", [*WRITES, "look"])
def test_L1_no_clock_of_the_store_in_any_condition(dialect: str, kind: str) -> None:
    text = conditions(getattr(DIALECTS[dialect], kind))
    assert not CLOCK.findall(text), text


@pytest.mark.parametrize(
    "wrong",
    [
        "UPDATE leases SET seq = seq + 1 WHERE name = :name AND expires_at > now()",
        "UPDATE leases SET seq = seq + 1\nWHERE name = :name AND written_at < :then",
        "INSERT INTO leases (name)\nSELECT :name\nWHERE UTC_TIMESTAMP(3) > :then",
    ],
)
def test_the_check_can_fail(wrong: str) -> None:
    assert CLOCK.findall(conditions(wrong))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_L1_every_write_compares_what_was_seen(dialect: str) -> None:
    texts = DIALECTS[dialect]
    for kind in ("take", "renew", "release"):
        text = conditions(getattr(texts, kind))
        for word in ("token", "seq", "server" if dialect != "sqlite" else ":me"):
            assert re.search(rf"{word}\b", text), (kind, word)
    for kind in ("renew", "release"):
        assert re.search(r"\bholder\b", conditions(getattr(texts, kind))), kind
    assert "released = 0" in texts.renew or "NOT l.released" in texts.renew
    assert "members = :seen_members" in texts.take


@pytest.mark.parametrize("dialect", DIALECTS)
def test_rows_are_never_deleted_and_each_write_is_one_statement(dialect: str) -> None:
    for text in DIALECTS[dialect]:
        assert not re.search(r"\b(DELETE|TRUNCATE|DROP|REPLACE)\b", text)
        assert ";" not in text


def test_statements_stand_in_one_file() -> None:
    """Or this page would not have read them all. The seed's table has its own, which must use the seed's own rules."""
    room = Path(sql_text.__file__).parent
    for file in sorted(room.glob("*.py")):
        if file.name not in ("sql_text.py", "seed.py"):
            assert not re.search(r"\b(UPDATE \{|INSERT INTO|UPDATE primacy)", file.read_text()), file.name


@pytest.mark.parametrize("table", ["", "a b", "leases; DROP TABLE x", "x" * 64, "1st", "jöb", 'a"b'])
def test_A30_a_table_needs_no_quoting(table: str) -> None:
    for dialect in (sql_text.sqlite, sql_text.postgresql, sql_text.mysql):
        with pytest.raises(UsageError, match="a table's name is"):
            dialect(table)
