"""`primacy node start` and the variables that stand for its options: PRIMACY_STORE and PRIMACY_CONFIG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from primacy.cli.node_settings import NodeOptions as Words
from primacy.cli.node_settings import settings_of
from primacy.errors import UsageError
from tests.contracts.test_cli import Said, say  # noqa: F401

Say = Callable[..., Said]


@pytest.mark.parametrize("words", [Words(), Words(strategy="lease"), Words(strategy="LEASE", port=5002)])
def test_the_store_of_the_environment_counts_where_a_lease_is_meant(
    words: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIMACY_STORE", "sqlite:///here.db")
    found = settings_of(words._replace(state_dir=str(tmp_path / "state")), None)
    assert (found.election.strategy, found.election.store.url) == ("lease", f"sqlite:///{tmp_path}/here.db")


def test_an_option_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMACY_STORE", "sqlite:////not/this.db")
    found = settings_of(Words(store=f"sqlite:///{tmp_path}/this.db", state_dir=str(tmp_path)), None)
    assert found.election.store.url == f"sqlite:///{tmp_path}/this.db"


@pytest.mark.parametrize(
    ("words", "strategy"),
    [
        (Words(leader=True), "bully"),
        (Words(port=5002, join=("localhost:5001",)), "bully"),
        (Words(nodes=("localhost:5001", "localhost:5002"), strategy="raft"), "raft"),
    ],
)
def test_no_other_node_is_put_on_a_lease_by_the_environment(
    words: Words, strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = words._replace(state_dir=str(tmp_path))
    before = settings_of(words, None)
    monkeypatch.setenv("PRIMACY_STORE", "sqlite:///here.db")
    assert settings_of(words, None) == before
    assert before.election.strategy == strategy


def test_words_that_leave_it_open_are_refused_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMACY_STORE", "sqlite:///here.db")
    with pytest.raises(UsageError, match="is this the first node of a cluster"):
        settings_of(Words(port=5001, state_dir=str(tmp_path)), None)


def test_a_wrong_store_in_the_environment_is_named_and_not_shown(
    say: Say,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PRIMACY_STORE", "oracle://u:hidden@h")
    said = say("node", "start", "--state-dir", "state")
    assert (said.code, said.out) == (2, "")
    assert "PRIMACY_STORE: " in said.err
    assert "hidden" not in said.err


@pytest.mark.parametrize("words", [("--leader",), ("--cluster", "x")])
def test_words_that_a_file_excludes_name_the_variable_that_named_the_file(
    words: tuple[str, ...],
    say: Say,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "f.yaml").write_text("cluster: {name: x}\n")
    monkeypatch.setenv("PRIMACY_CONFIG", "f.yaml")
    said = say("node", "start", *words)
    assert said.code == 2
    assert f"{' '.join(words)} and PRIMACY_CONFIG=f.yaml exclude each other" in said.err
