"""The reference of the commands, the manual page that is made from it, and `primacy docs`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from primacy import errors
from primacy.cli import docs
from primacy.cli.call import EXIT_INTERRUPTED
from primacy.cli.main import COMMANDS, EXIT_OUR_FAULT, run
from primacy.cli.reference import EXIT_CODES, Explained, explained, man, markdown
from tests.support.readme import README

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/man/primacy.1"


@pytest.fixture(scope="module")
def commands() -> dict[str, Explained]:
    return {one.name: one for one in explained()}


def test_every_command_and_every_verb_is_explained(commands: dict[str, Explained]) -> None:
    assert commands.keys() >= {"primacy", *(f"primacy {name}" for name in COMMANDS), "primacy lease list"}
    for name, one in commands.items():
        assert one.paragraphs, name
        assert all(text for _, text in (*one.options, *one.verbs)), name
    made = markdown()
    for name, one in commands.items():
        assert re.search(rf"^##+ {re.escape(name)}$", made, re.MULTILINE), name
        for option, _ in one.options:
            assert option.replace("|", r"\|") in made, (name, option)


def test_it_says_what_help_says(commands: dict[str, Explained], capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["run"], ["members", "replace"], ["demo"]):
        assert run([*words, "--help"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        one = commands[" ".join(["primacy", *words])]
        for text in (*one.paragraphs, *(name for name, _ in one.options), *(text for _, text in one.options)):
            assert " ".join(text.split()) in said, text


def test_the_exit_codes_are_the_errors_own_and_those_of_the_readme() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PrimacyError)]
    known = {kind.exit_code for kind in kinds} | {0, EXIT_INTERRUPTED, EXIT_OUR_FAULT}
    assert {code for code, _ in EXIT_CODES} == known
    said = " ".join(README.partition("Exit codes: ")[2].split())
    assert said == " · ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES) + "."


def test_the_manual_page_is_made_from_the_commands() -> None:
    assert PAGE.read_text() == man(), "run: python -m primacy.cli.reference man > docs/man/primacy.1"
    assert PAGE.read_text().isascii()


def test_groff_takes_the_manual_page() -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not here (apt-get install groff)")
    call = [groff, "-man", "-Tutf8", "-ww", str(PAGE)]
    done = subprocess.run(call, capture_output=True, text=True, check=True, timeout=60)
    assert not done.stderr
    shown = re.sub(r"\x1b\[\d*m|.\x08", "", done.stdout)
    assert "primacy members replace [OPTIONS] NODE NEW" in shown
    assert "--allow-split-brain" in shown


def test_documents_are_listed_by_name_and_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].startswith("tasks/")
    assert re.search(r"^config +The file$", "\n".join(listed), re.MULTILINE)
    assert {line.split()[0] for line in listed} == dict(docs.documents()).keys()


@pytest.mark.parametrize("name", ["config", "docs/config.md", "config.md"])
def test_a_document_is_printed_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", name]) == 0
    assert capsys.readouterr().out == (ROOT / "docs/config.md").read_text()


def test_a_name_that_is_not_there_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "confg"]) == 2
    assert "is config" in capsys.readouterr().err
    assert run(["docs", "../pyproject.toml"]) == 2
    assert "there is no document" in capsys.readouterr().err


def test_without_documents_it_says_where_it_looked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "CARRIED", tmp_path / "documents")
    monkeypatch.setattr(docs, "CHECKOUT", tmp_path)
    assert run(["docs"]) == 4
    assert str(tmp_path) in capsys.readouterr().err


def test_a_paragraph_that_must_not_be_wrapped_keeps_its_lines() -> None:
    @click.command(help="First line\nand second.\n\n\b\nname  what\n  more\n")
    def made() -> None: ...

    from primacy.cli.reference import _paragraphs

    assert list(_paragraphs(made.help or "")) == ["First line and second.", "    name  what\n      more"]
