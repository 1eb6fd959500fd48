"""Prose is executed: what the documents say is compared with the program, and their commands are run."""

from __future__ import annotations

import ast
import re
import sys
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from primacy import errors, settings
from primacy.cli.call import EXIT_INTERRUPTED
from primacy.cli.main import EXIT_OUR_FAULT
from primacy.election import guarantees
from primacy.settings.contract import Contract, contract
from primacy.settings.page import config_page
from primacy.settings.timing import DEFAULT_PROFILE, PROFILES
from primacy.sim.faults.classes import CLASSES
from tests.support.mutants import MUTANTS, SAFETY
from tests.support.mutants_cache import CACHE_MUTANTS
from tests.support.mutants_lease import LEASE_MUTANTS
from tests.support.mutants_members import MUTANTS as MEMBER_MUTANTS
from tests.support.readme import README, run_readme, runnable

ROOT = Path(__file__).parents[2]
ORIGINS = (ROOT / "docs/origins/origins.md").read_text()
RULES = (ROOT / "docs/rules.md").read_text()
FAULTS = (ROOT / "docs/faults.md").read_text()
SIM = ROOT / "src/primacy/sim"
SOURCES = {file: file.read_text() for file in sorted((ROOT / "src").rglob("*.py"))}
PAGES = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")] + sorted(
    (ROOT / "docs").rglob("*.md")
)


def test_commands_in_the_readme_run(tmp_path: Path) -> None:
    """One test: several would go to several workers."""
    assert run_readme([sys.executable, "-m", "primacy.cli.main"], tmp_path, ROOT / "docs") >= 4


def test_the_readme_shows_some_commands() -> None:
    assert {each.command.split()[1] for each in runnable()} >= {"simulate", "contract", "new", "check"}


def test_the_table_of_guarantees_is_the_programs_own() -> None:
    rows = ["| strategy | whole network | partition | fencing token | relies on |", "|---|---|---|---|---|"]
    for name, g in guarantees.OF.items():
        rows.append(f"| `{name}` | {g.whole_network} | {g.partition} | {g.token} | {g.relies_on} |")
    table = README.partition("<!-- guarantees -->\n")[2].partition("\n\n")[0]
    assert table == "\n".join(rows)


def test_the_readme_is_short_and_its_file_is_right(tmp_path: Path) -> None:
    assert len(README.splitlines()) <= 150
    activated = re.findall(r"^\$ (.*)\. (\S+)/bin/activate", README, re.MULTILINE)
    assert [(before.strip(" &"), made) for before, made in activated] == [("make setup", ".venv")], "demo makes another"
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "example.yaml").write_text(example)
    assert settings.load(tmp_path / "example.yaml").election.strategy == "raft"


def test_the_file_on_the_page_of_leases_is_accepted(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/leases.md").read_text(), re.DOTALL)
    (tmp_path / "example.yaml").write_text(example)
    found = settings.load(tmp_path / "example.yaml", "a")
    assert (found.election.strategy, found.election.failsafe, settings.has_peers(found)) == ("lease", True, True)


def test_the_page_of_settings_is_made_from_the_settings() -> None:
    found = (ROOT / "docs/config.md").read_text()
    assert found == config_page(), "run: python -m primacy.settings.page > docs/config.md"


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {t for page in PAGES for t in re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text())}
    elsewhere = {"dashboardbuilder"}  # of the single executor
    assert named - elsewhere <= targets
    assert "run-demo" in targets


def rows_of(page: str, first: str) -> dict[str, list[str]]:
    """The cells of all table rows whose first cell is of this form, by that cell."""
    rows: dict[str, list[str]] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and re.fullmatch(first, cells[0]):
            assert cells[0] not in rows, f"{cells[0]} stands twice"
            rows[cells[0]] = cells
    return rows


LETTERED, _, _JUDGED = RULES.partition("## The judges of the simulator")
_JUDGED, _, JUDGED_CACHE = _JUDGED.partition("## The judges of the cache")
JUDGED, _, JUDGED_MEMBERSHIP = _JUDGED.partition("## The judges of the membership machine")
"""L1 to L4 are rules of the lease in one part of the page, and judges of liveness in the other."""
RULE_ROWS = rows_of(LETTERED, r"[QMRGBLTUCE][0-9]{1,2}")


@cache
def functions_of(path: Path) -> tuple[str, ...]:
    return tuple(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))


def named_tests(text: str) -> list[str]:
    return sorted(set(re.findall(r"`(tests/[^`]+)`", text)))


def check_named_test(name: str) -> None:
    """A file, a pattern of files, or tests of a file by name or by the beginning of a name."""
    path, _, function = name.partition("::")
    assert list(ROOT.glob(path)), f"no file {name}"
    if function:
        assert any(fnmatchcase(found, function) for found in functions_of(ROOT / path)), f"no test {name}"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_test_that_is_named_exists(page: Path) -> None:
    for name in named_tests(page.read_text()):
        check_named_test(name)


def test_every_row_of_the_seeds_says_what_shows_it() -> None:
    rows = [line for line in ORIGINS.splitlines() if line.startswith("| ") and not line.startswith("| item")]
    assert len(rows) > 150
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == 3 or row.endswith("** | | |"), row
        if len(cells) == 3:
            assert cells[2].startswith(("`tests/", "comes with ", "not here")), row


# --- rules and judges -------------------------------------------------------------------------------------------------


def test_every_scenario_and_limitation_of_the_first_seed_is_a_test_and_has_its_line() -> None:
    """Ten and seven, as Ghoti has them; the tests are named by their numbers."""
    files = "".join(file.read_text() for file in sorted((ROOT / "tests").rglob("test_manager*.py")))
    lines = (ROOT / "docs/origins/deviations.md").read_text()
    for kind, count in (("scenario", 10), ("limitation", 7)):
        wanted = set(range(1, count + 1))
        assert {int(found) for found in re.findall(rf"^def test_{kind}_(\d+)_", files, re.MULTILINE)} == wanted
        assert [int(found) for found in re.findall(rf"^\| {kind} (\d+), ", lines, re.MULTILINE)] == sorted(wanted)


def test_every_rule_that_the_code_names_has_a_row() -> None:
    for file, text in SOURCES.items():
        named = set(re.findall(r"\b[QMRGBLTUCE][0-9]{1,2}\b", text))
        assert named <= RULE_ROWS.keys(), f"{file.name}: {sorted(named - RULE_ROWS.keys())}"


def test_the_worked_example_is_that_of_the_default_times() -> None:
    timing = PROFILES[DEFAULT_PROFILE]
    made = contract(timing, "raft")
    assert isinstance(made, Contract)
    moments_ms = (timing.hold_ms, timing.wait_ms, timing.promise_ms, made.latest_stop_ms, made.earliest_start_ms)
    example = LETTERED.partition("**In numbers")[2].partition("**Why")[0]
    for moment_ms in moments_ms:
        assert f"{moment_ms:,.0f} ms" in example, moment_ms
    assert f"{made.margin_ms:.0f} ms lie between" in example


def test_the_rules_are_numbered_without_a_gap() -> None:
    numbers = {"Q": 10, "M": 4, "R": 14, "G": 11, "B": 10, "L": 10, "T": 2, "U": 1, "C": 12, "E": 2}
    assert RULE_ROWS.keys() == {f"{letter}{n}" for letter, most in numbers.items() for n in range(1, most + 1)}


def test_every_row_of_a_rule_says_what_shows_it_and_what_its_absence_does() -> None:
    for rule, cells in RULE_ROWS.items():
        assert len(cells) == 4, rule
        assert cells[1].endswith("."), rule
        assert "`tests/" in cells[2] or "comes with" in cells[2], rule
        assert cells[3], rule


def test_every_test_that_is_named_by_a_rule_stands_in_its_row() -> None:
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for function in functions_of(file):
            rule = re.match(r"test_([QMRGBLTUCE][0-9]{1,2})_", function)
            if rule is not None:
                named = named_tests(" ".join(RULE_ROWS[rule[1]]))
                assert any(fnmatchcase(f"{file.relative_to(ROOT)}::{function}", name) for name in named), function


def test_every_mutant_stands_in_the_row_of_its_rule() -> None:
    for mutant in MUTANTS:
        absence = RULE_ROWS[mutant.rule][3] if mutant.rule != "time" else LETTERED
        assert f"*{mutant.name}*" in absence, f"{mutant.rule}: {mutant.name}"
        said = absence.partition(f"*{mutant.name}*")[2].partition(".")[0]
        judges = set(re.findall(r"\b[IP][0-9]\b", said)) or set(SAFETY)
        assert judges <= set(mutant.caught_by), f"{mutant.name} is caught by {', '.join(mutant.caught_by)}"
    names = {mutant.name for mutant in MUTANTS}
    said = " ".join(cells[3] for cells in RULE_ROWS.values())
    assert set(re.findall(r"(?<!`)\*([^*`]+)\*", said)) <= names


def test_every_mutant_of_lease_bully_and_ring_stands_there_too() -> None:
    for mutant in (*LEASE_MUTANTS, *CACHE_MUTANTS, *MEMBER_MUTANTS):
        assert f"`{mutant.name}`" in RULE_ROWS[mutant.rule][3], mutant.name  # type: ignore[attr-defined]
    ranked = " ".join(cells[3] for rule, cells in RULE_ROWS.items() if rule[0] == "B")
    for strategy in ("bully", "ring"):
        text = (ROOT / f"tests/rules/test_rules_{strategy}.py").read_text()
        for name in re.findall(r"^class (\w+)\((?:Bully|Ring)Strategy\)", text, re.MULTILINE):
            assert re.search(rf"`{name}` \([^)]*{strategy}", ranked), f"{strategy}: {name}"


def test_every_judge_has_a_row() -> None:
    rows = rows_of(JUDGED, r"[IEP][0-9]")
    judging = [text for file, text in SOURCES.items() if SIM in file.parents and SIM / "cache" not in file.parents]
    judges = {judge for text in judging for judge in re.findall(r"Violation\([^\"]*\"([IEP][0-9])\"", text)}
    named = {judge for text in SOURCES.values() for judge in re.findall(r"\bI[0-9]\b", text)}
    assert judges | named == rows.keys()
    assert judges >= {"I1", "I7", "P1", "P4"}


def test_every_judge_of_the_membership_machine_has_a_row() -> None:
    rows = rows_of(JUDGED_MEMBERSHIP, r"[NE][0-9]")
    judging = [text for file, text in SOURCES.items() if SIM / "membership" in file.parents]
    assert {judge for text in judging for judge in re.findall(r"\"([NE][0-9])\b", text)} == rows.keys()
    assert rows.keys() == {"N1", "N2", "N3", "E2"}


def test_every_judge_of_the_cache_has_a_row() -> None:
    rows = rows_of(JUDGED_CACHE, r"[SCREKP][0-9]*")
    judging = [text for file, text in SOURCES.items() if SIM / "cache" in file.parents]
    judges = {judge for text in judging for judge in re.findall(r"\"([SCEP][0-9]{1,2}|[RK])\"", text)}
    assert judges == rows.keys()
    assert judges >= {"S1", "S2", "S3", "S4", "R", "K", "P1"}


# --- faults -----------------------------------------------------------------------------------------------------------


def test_the_catalogue_of_faults_is_whole() -> None:
    rows = rows_of(FAULTS, r"F[0-9]{2}")
    assert list(rows) == [f"F{n:02}" for n in range(1, 61)]
    for number, cells in rows.items():
        assert len(cells) == 4, number
        known = re.findall(r"`([a-z-]+)`", cells[3])
        assert set(known) <= CLASSES.keys(), number
        sayings = ("`tests/", "comes with ", "not injected", "drawn for every trial")
        assert known or any(saying in cells[3] for saying in sayings), number


def test_every_fault_class_stands_in_the_catalogue() -> None:
    tables = "\n".join(line for line in FAULTS.splitlines() if line.startswith("|"))
    for name in CLASSES:
        assert f"`{name}`" in tables, name


def test_every_fault_that_is_named_anywhere_has_a_row() -> None:
    texts = {**SOURCES, **{file: file.read_text() for file in sorted((ROOT / "tests").rglob("*.txt"))}}
    rows = rows_of(FAULTS, r"F[0-9]{2}")
    for file, text in texts.items():
        for number in re.findall(r"\bF[0-9]{2}\b", text):
            assert number in rows, f"{file.name}: {number}"


def test_the_catalogue_says_of_each_class_what_its_docstring_says() -> None:
    rows = rows_of(FAULTS, r"F[0-9]{2}")
    for name, inject in CLASSES.items():
        for number in re.findall(r"\bF[0-9]{2}\b", inject.__doc__ or ""):
            assert f"`{name}`" in rows[number][3], f"{number}: {name}"


# --- the house --------------------------------------------------------------------------------------------------------


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_rooms_that_the_architecture_names_exist() -> None:
    """Every file that the map names is there, and every file of the rooms is on the map; a family, by its pattern."""
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(architecture.splitlines()) <= 90, "it is read at a glance: a screen and a half"
    text = (ROOT / "docs/map.md").read_text()
    assert len(text.splitlines()) <= 125, "a map is read at a glance: two screens"
    for name in re.findall(r"`([a-z/]+/[a-z_]+\.py)`", architecture + text):
        assert (ROOT / "src/primacy" / name).exists(), name
    rooms = (
        "settings",
        "election",
        "placement",
        "node",
        "supervise",
        "agent",
        "library",
        "contrib",
        "sim",
        "control",
        "transport",
        "membership",
        "store",
        "fence",
        "slots",
        "cache",
        "lab",
        "drill",
        "timeline",
        "dashboard",
        "cli",
    )
    for room, following in pairwise(rooms):
        here = text.partition(f"\n      {room}/ ")[2].partition(f"\n      {following}/ ")[0]
        files = {file for file in (ROOT / "src/primacy" / room).rglob("*.py") if file.name != "__init__.py"}
        head, *more = re.split(r" ([a-z]+/): ", " ".join(here.split()))
        named = {
            f"{room}/{name if '/' in name else folder + name}"
            for folder, part in (("", head), *zip(more[::2], more[1::2], strict=True))
            for name in re.findall(r"\b(?:[a-z]+/)*[a-z_]*\*?\.py\b", part)
        }
        found = {(file, name) for file in files for name in named if file.match(name)}
        assert {file for file, _ in found} == files, room
        assert {name for _, name in found} == named, room


def test_the_exit_codes_of_the_readme_are_the_errors_own() -> None:
    listed = {int(code) for code in re.findall(r"(?::|·)\s(\d+)\s", README.partition("Exit codes")[2])}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PrimacyError)]
    assert {kind.exit_code for kind in kinds} | {0, EXIT_INTERRUPTED, EXIT_OUR_FAULT} == listed


def test_the_documents_have_lines_of_bounded_length() -> None:
    for page in PAGES:
        fenced = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            fenced ^= line.startswith("```")
            assert fenced or line.startswith("|") or len(line) <= 120, f"{page.name}:{number}"


def test_the_machines_import_nothing_that_touches_the_world() -> None:
    """The first of the absences that the architecture states."""
    never = {"asyncio", "datetime", "logging", "os", "pathlib", "select", "socket", "subprocess", "threading", "time"}
    never |= {"aiohttp"}
    slots = [ROOT / f"src/primacy/slots/{name}.py" for name in ("kinds", "board", "session")]
    shell = {"manager.py", "http_client.py", "http_server.py"}
    membership = [each for each in sorted((ROOT / "src/primacy/membership").rglob("*.py")) if each.name not in shell]
    assert len(membership) > 10
    for file in [*sorted((ROOT / "src/primacy/election").rglob("*.py")), *slots, *membership]:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not never & {name.partition(".")[0] for name in names}, f"{file.name}:{getattr(node, 'lineno', 0)}"


def test_the_page_for_operators_explains_every_sentence_of_status() -> None:
    """What a node may wait for, what stands between two nodes, and every alert: as the code says it."""
    page = re.sub(r"\s+", " ", (ROOT / "docs/operate.md").read_text())
    spoken = {
        "election/raft/view.py": ("waits_for", "waits_leading", "waits_muted", "waits_first", "waits_changed"),
        "election/lease/view.py": ("waits_for", "waits_for_row", "waits_for_names", "waits_changed", "doubt"),
        "transport/notices.py": ("unresolved", "no_route", "other_layout", "no_seal", "duplicate_nodes", "unheard"),
        "control/cluster.py": ("alerts", "_both"),
        "cli/status.py": ("sentences",),
    }
    known = 0
    for file, functions in spoken.items():
        tree = ast.parse((ROOT / "src/primacy" / file).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in functions:
                inner = {
                    id(part) for whole in ast.walk(node) if isinstance(whole, ast.JoinedStr) for part in whole.values
                }
                skip = first_words(ast.Constant(ast.get_docstring(node, clean=False)))
                said = {first_words(part) for part in ast.walk(node) if id(part) not in inner}
                for text in said - {"", skip}:
                    assert text in page, (file, node.name, text)
                    known += 1
    assert known >= 25, known


def first_words(part: ast.AST) -> str:
    """Of a text with several words: what stands before its first value, or after it; empty if that is too little."""
    values = part.values if isinstance(part, ast.JoinedStr) else [part]
    texts = [each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    for text in texts:
        words = re.split(r"[;:,(]", text.strip(" ;:,."))[0].strip()
        if words.count(" ") >= 2:
            return words
    return ""
