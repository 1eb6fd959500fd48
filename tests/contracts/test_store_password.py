"""The password of a store stands on no command line: a file, the environment, or the driver's own way."""

from __future__ import annotations

from pathlib import Path

import pytest

from primacy.errors import SettingsError, UsageError
from primacy.settings import load
from primacy.store.url import mysql_options, with_password


def test_the_first_line_of_a_file_is_the_password(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("a/b:c@d é\nsecond line\n")
    inside = "a%2Fb%3Ac%40d%20%C3%A9"
    for url, said in (
        (f"postgresql://u@h/db?password_file={file}", f"postgresql://u:{inside}@h/db"),
        (f"mysql://u@h:3307/db?ssl_ca=x&password_file={file}", f"mysql://u:{inside}@h:3307/db?ssl_ca=x"),
        (f"etcds://u@h:1,g:2?password_file={file}&ca=y", f"etcds://u:{inside}@h:1,g:2?ca=y"),
    ):
        assert with_password(url) == said
    assert mysql_options(with_password(f"mysql://u@h/db?password_file={file}"))["password"] == "a/b:c@d é"
    assert with_password("postgresql://u:p@h/db?sslmode=require") == "postgresql://u:p@h/db?sslmode=require"


def test_a_password_file_that_cannot_be_used_is_named_with_the_remedy(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    for url, part in (
        ("postgresql://u@h/db?password_file=password", "name the file from the root"),
        (f"postgresql://u@h/db?password_file={tmp_path}/none", "No such file or directory; make it"),
        (f"postgresql://u@h/db?password_file={empty}", "write the password there"),
        (f"postgresql://u@h/db?password_file={binary}", "is no text"),
        (f"postgresql://h/db?password_file={empty}", "postgresql://USER@host/db"),
        (f"postgresql://u:p@h/db?password_file={empty}", "without a password in the address"),
    ):
        with pytest.raises(UsageError) as caught:
            with_password(url)
        assert part in str(caught.value)


def test_mysql_reads_its_own_option_file() -> None:
    options = mysql_options("mysql://h/db?read_default_file=/etc/x.cnf&read_default_group=primacy")
    assert (options["read_default_file"], options["read_default_group"]) == ("/etc/x.cnf", "primacy")


def test_the_environment_names_the_store_where_a_lease_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIMACY_STORE", "sqlite:///here.db")
    found = load(None)
    assert (found.election.strategy, found.election.store.url) == ("lease", f"sqlite:///{tmp_path}/here.db")
    file = tmp_path / "f.yaml"
    file.write_text("election: {strategy: lease, store: {url: 'sqlite:///other.db', table: mine}}\n")
    found = load(file)
    assert (found.election.store.url, found.election.store.table) == (f"sqlite:///{tmp_path}/here.db", "mine")


@pytest.mark.parametrize(
    "text",
    [
        "cluster: {manager: {nodes: {a: {addr: '127.0.0.1:1'}}}}\n",
        "cluster: {manager: {addr: '127.0.0.1:1'}, node: a}\n",
        "election: {strategy: raft}\n",
    ],
)
def test_the_environment_turns_no_other_election_into_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    before = load(file, "a")
    monkeypatch.setenv("PRIMACY_STORE", "sqlite:///here.db")
    assert load(file, "a") == before


def test_a_wrong_store_in_the_environment_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMACY_STORE", "oracle://u:hidden@h")
    with pytest.raises(SettingsError) as caught:
        load(None)
    assert "PRIMACY_STORE" in str(caught.value)
    assert "hidden" not in str(caught.value)
