"""What CONTRIBUTING.md tells a newcomer to do is done, in a copy of the tree; workflow and hooks call what it names."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

from primacy.cli.main import COMMANDS

pytestmark = pytest.mark.beside(order=580)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCK = re.compile(
    r"<!-- (?P<kind>runnable|runnable: fails|file: (?P<name>\S+)) -->\n```(console|text)\n(?P<text>.*?)```", re.DOTALL
)
TESTS_FAILED = 1
"""What pytest ends with then; not 2 to 5, which mean that nothing was tested."""


class Step(NamedTuple):
    """One thing that the reader is asked to do."""

    command: str
    """Empty: write the file."""
    code: int
    name: str = ""
    text: str = ""


def steps() -> Iterator[Step]:
    for found in BLOCK.finditer(PAGE):
        if found["name"]:
            yield Step("", 0, found["name"], found["text"])
            continue
        for line in found["text"].splitlines():
            assert line.startswith("$ "), line
            yield Step(line.removeprefix("$ "), TESTS_FAILED if found["kind"].endswith("fails") else 0)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree, with the environment of this run as its `.venv`. What is changed there changes nothing here."""
    place = tmp_path_factory.mktemp("tree")
    for name in ("src", "tests", "docs", "bench", "examples"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("[A-Z]*"), *ROOT.glob("requirements*.txt"), ROOT / "pyproject.toml"):
        shutil.copy2(file, place)
    (place / ".venv").symlink_to(sys.prefix)
    return place


def test_everything_that_the_page_tells_can_be_done(copy: Path) -> None:
    """In the order of the page."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRIMACY_", "PYTEST_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # each of a dozen processes would compile all modules
    environment = {**kept, "PYTHONPATH": str(copy / "src"), "PYTHONPYCACHEPREFIX": str(copy / ".compiled")}
    taken = list(steps())
    assert {step.code for step in taken} == {0, TESTS_FAILED}
    assert len(taken) >= 10
    for step in taken:
        if step.name:
            (copy / step.name).write_text(step.text)
            continue
        done = subprocess.run(
            ["/bin/bash", "-c", step.command],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,  # only a hang reaches it
        )
        assert done.returncode == step.code, f"{step.command}: {done.stdout}{done.stderr}"
    written = (copy / "tests/transcripts/ring_first_change.txt").read_text()
    assert written.count("leads") > 2


def test_the_copy_is_what_was_tested(copy: Path) -> None:
    """Else a change of the copy's source could change nothing, and the page would be believed for nothing."""
    call = [sys.executable, "-c", "import primacy; print(primacy.__file__)"]
    found = subprocess.run(
        call, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy / "src")}, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).is_relative_to(copy)


# --- hooks and workflow -----------------------------------------------------------------------------------------------


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def loaded(name: str) -> dict[Any, Any]:
    found = yaml.safe_load((ROOT / name).read_text())
    assert isinstance(found, dict)
    return found


def test_the_hooks_are_the_parts_of_make_check_and_fetch_nothing() -> None:
    (only,) = loaded(".pre-commit-config.yaml")["repos"]
    assert only["repo"] == "local"
    parts = re.search(r"^check: (.*?) ##", MAKEFILE, re.MULTILINE)
    assert parts is not None
    assert [hook["entry"] for hook in only["hooks"]] == [f"make {part}" for part in parts[1].split()]
    for hook in only["hooks"]:
        assert (hook["language"], hook["pass_filenames"]) == ("system", False)
        file = "dashboard/static/app.js" if hook["id"] == "check-pages" else "loop.py"
        assert re.search(hook["files"], f"src/primacy/{file}")


def test_the_workflow_runs_the_commands_of_a_person_on_every_python() -> None:
    flow = loaded(".github/workflows/tests.yml")
    assert flow["permissions"] == {"contents": "read"}
    versions = flow["jobs"]["quick"]["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={versions[0]}"
    classified = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert classified == versions[: len(classified)]
    assert flow["jobs"]["test"]["strategy"]["matrix"]["python"] == [versions[0], versions[-1]]
    ran = [step["run"] for job in flow["jobs"].values() for step in job["steps"] if "run" in step]
    called = {word for line in ran if "make " in line for word in line.split() if re.fullmatch(r"[a-z-]+", word)}
    assert called - {"make", "sudo"} <= targets()
    assert called >= {"check", "quick", "test", "build"}
    for line in ran:
        assert "make " in line or (ROOT / line.split()[-1]).exists(), line


def test_the_page_says_of_every_python_who_ran_it() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| 3.")]
    flow = loaded(".github/workflows/tests.yml")
    assert [row[0] for row in rows] == flow["jobs"]["quick"]["strategy"]["matrix"]["python"]
    for version, here, there in rows:
        assert here or there, version
        classified = f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
        assert classified == bool(here), f"{version}: a classifier stands for what was run"


def test_commands_that_the_changelog_names_exist() -> None:
    """With their second word where they have one, and no line says that something is still to come."""
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert "not yet" not in changes.lower()
    assert len(set(re.findall(r"^## (\S+)", changes, re.MULTILINE))) == changes.count("\n## ")
    assert f"\n## {PROJECT['version']} " in changes
    named = set(re.findall(r"`primacy ([a-z-]+)(?: ([a-z][a-z-]+))?", changes))
    assert len(named) > 20
    for first, second in named:
        group = importlib.import_module(COMMANDS[first].home.partition(":")[0])
        command = getattr(group, COMMANDS[first].home.partition(":")[2])
        if isinstance(command, click.Group) and second:
            assert second in command.commands, f"{first} {second}"


def test_no_file_names_a_registry_of_packages() -> None:
    """Where packages come from is the user's choice. Addresses of the project itself lead nowhere yet, and say so."""
    registry = re.compile(r"index-url|extra-index|files\.pythonhosted|pypi\.org|ghcr\.io|docker\.io[/:]", re.IGNORECASE)
    here = Path(__file__).name
    files = [
        *(
            ROOT / name
            for name in (
                "Makefile",
                "Containerfile",
                "pyproject.toml",
                ".pre-commit-config.yaml",
                ".github/workflows/tests.yml",
            )
        ),
        *ROOT.glob("*.md"),
        *ROOT.glob("requirements*.txt"),
        *(
            file
            for folder in ("src", "tests", "docs", "bench", "examples", "contrib")
            for file in (ROOT / folder).rglob("*.*")
        ),
    ]
    for file in files:
        if file.is_file() and file.suffix in {"", ".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".json"}:
            for line in file.read_text(errors="replace").splitlines():
                assert file.name == here or "--no-emit-index-url" in line or not registry.search(line), (
                    f"{file}: {line}"
                )
