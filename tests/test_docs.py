"""Prose is executed: what the documents say is compared with the program, and their commands are run."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from primacy import settings
from primacy.cli.main import COMMANDS
from primacy.election import guarantees
from primacy.settings.page import config_page

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SEEDS = (ROOT / "docs/seeds.md").read_text()
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)
TO_COME = "## Test files that are named above and still to come"
RUN_TAG = re.compile(r"<!-- runnable(: prints)? -->\n```console\n(.*?)```", re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """(command, what the document says that it prints) of a console block."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(line.partition("#")[0].strip(), output) for line, _, output in (part.partition("\n") for part in parts)]


RUNNABLE = [(*pair, bool(prints)) for prints, block in RUN_TAG.findall(README) for pair in commands(block)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.mark.parametrize(("command", "printed", "prints"), RUNNABLE, ids=[command for command, _, _ in RUNNABLE])
def test_commands_in_the_readme_run(command: str, printed: str, prints: bool, folder: Path) -> None:
    """In the order of the page, in one folder, as a reader would."""
    program, name, *args = command.split()
    assert program == "primacy"
    if importlib.util.find_spec(COMMANDS[name].home.partition(":")[0]) is None:
        pytest.skip(f"`primacy {name}` is still to come")
    call = [sys.executable, "-m", "primacy.cli.main", name, *args]
    result = subprocess.run(call, capture_output=True, text=True, check=False, cwd=folder, timeout=120)
    assert result.returncode == 0, result.stderr
    if prints:
        bare = subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT / "docs", timeout=120)
        assert printed.strip() in bare.stdout


def test_the_readme_shows_some_commands() -> None:
    assert {command.split()[1] for command, _, _ in RUNNABLE} >= {"simulate", "contract", "new", "check"}


def test_the_table_of_guarantees_is_the_programs_own() -> None:
    rows = ["| strategy | whole network | partition | fencing token | relies on |", "|---|---|---|---|---|"]
    for name, g in guarantees.OF.items():
        rows.append(f"| `{name}` | {g.whole_network} | {g.partition} | {g.token} | {g.relies_on} |")
    table = README.partition("<!-- guarantees -->\n")[2].partition("\n\n")[0]
    assert table == "\n".join(rows)


def test_the_readme_is_short_and_its_file_is_right(tmp_path: Path) -> None:
    assert len(README.splitlines()) <= 150
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "example.yaml").write_text(example)
    assert settings.load(tmp_path / "example.yaml").election.strategy == "raft"


def test_the_page_of_settings_is_made_from_the_settings() -> None:
    found = (ROOT / "docs/config.md").read_text()
    assert found == config_page(), "run: python -m primacy.settings.page > docs/config.md"


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {t for page in PAGES for t in re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text())}
    elsewhere = {"dashboardbuilder"}  # of seed 004
    assert named - elsewhere <= targets
    assert "run-demo" in targets


def test_every_test_file_that_is_named_exists_or_is_said_to_come() -> None:
    body, _, rest = SEEDS.partition(TO_COME)
    to_come = set(re.findall(r"`(tests/[^`]+)`", rest))
    for name in sorted(set(re.findall(r"`(tests/[^`]+)`", body))):
        assert name in to_come or list(ROOT.glob(name)), name


def test_every_row_of_the_seeds_says_what_shows_it() -> None:
    rows = [line for line in SEEDS.splitlines() if line.startswith("| ") and not line.startswith("| item")]
    assert len(rows) > 150
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == 3 or row.endswith("** | | |"), row
        if len(cells) == 3:
            assert cells[2].startswith(("`tests/", "planned: ", "not here")), row


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_rooms_that_the_architecture_names_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for name in re.findall(r"`(?:settings|cli)/[a-z_]+\.py`", text):
        assert (ROOT / "src/primacy" / name.strip("`")).exists(), name


def test_the_exit_codes_of_the_readme_are_the_errors_own() -> None:
    from primacy import errors

    listed = {int(code) for code in re.findall(r"(?::|·)\s(\d+)\s", README.partition("Exit codes")[2])}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PrimacyError)]
    assert {kind.exit_code for kind in kinds} | {0, 130} == listed


def test_the_documents_have_lines_of_bounded_length() -> None:
    for page in PAGES:
        fenced = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            fenced ^= line.startswith("```")
            assert fenced or line.startswith("|") or len(line) <= 120, f"{page.name}:{number}"


def test_the_machines_import_nothing_that_touches_the_world() -> None:
    """The first of the absences that the architecture states."""
    never = {"asyncio", "datetime", "logging", "os", "pathlib", "select", "socket", "subprocess", "threading", "time"}
    for file in sorted((ROOT / "src/primacy/election").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not never & {name.partition(".")[0] for name in names}, f"{file.name}:{getattr(node, 'lineno', 0)}"
