"""The wheel and the source archive: what is in them, and that an environment with nothing else in it can use them.

Nothing here needs a network. What the wheel depends on is linked from the environment of the tests: exactly the
packages that its own metadata asks for, so that an import which the metadata does not declare fails here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from primacy import __version__
from primacy.errors import EXTRAS
from tests.support.product_requirements import product
from tests.support.readme import run_readme

pytestmark = pytest.mark.beside(order=570)

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = f"primacy-{__version__}"
DOCUMENTS = "primacy/documents"
KINDS = {".py", ".pyi", ".typed", ".html", ".css", ".js", ".svg"}
"""What the package may consist of. A new kind of file is added here on purpose, or it was an accident."""
PAGE = ("index.html", "app.js", "base.css", "favicon.svg", "pages/overview.js")


def started(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """How it ended. It sees nothing of the caller's Python path and settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRIMACY_", "PYTHON", "PYTEST_"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, "HOME": str(cwd), "PRIMACY_STATE_DIR": str(cwd / "state")},  # not root's own
        capture_output=True,
        text=True,
        check=False,
        timeout=600,  # only a hang reaches it
    )


def ran(*command: str | Path, cwd: Path) -> str:
    """Its output; it must succeed."""
    done = started(*command, cwd=cwd)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def built(source: Path, into: Path, *kinds: str) -> dict[str, Path]:
    """By ending: what hatchling makes of this tree."""
    ran(sys.executable, "-m", "hatchling", "build", "-d", into, *(f"-t{kind}" for kind in kinds), cwd=source)
    return {file.suffix: file for file in into.iterdir()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return built(ROOT, tmp_path_factory.mktemp("dist"), "sdist", "wheel")


def names_in_the_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(made: dict[str, Path]) -> None:
    package = ROOT / "src"
    files = {
        str(file.relative_to(package))
        for file in (package / "primacy").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {Path(name).suffix for name in files} <= KINDS
    assert files >= {"primacy/py.typed", "primacy/__init__.pyi", "primacy/timeline/static/file.html"}
    assert files >= {f"primacy/dashboard/static/{name}" for name in PAGE}
    about = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    beside = {f"{NAME}.dist-info/{name}" for name in about} | {f"{NAME}.data/data/share/man/man1/primacy.1"}
    carried = {
        f"{DOCUMENTS}/{file.relative_to(ROOT)}"
        for file in (*(ROOT / "docs").rglob("*.md"), *(ROOT / "contrib").rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert len(carried) > 30
    assert names_in_the_wheel(made[".whl"]) == files | beside | carried


def test_the_source_archive_has_what_builds_tests_and_explains(made: dict[str, Path]) -> None:
    with tarfile.open(made[".gz"]) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert all(not name.startswith(("/", "..")) for name in names)
    first = {name.partition("/")[0] for name in names}
    assert first == {
        *(
            "PKG-INFO",
            "pyproject.toml",
            "hatch_build.py",
            "Makefile",
            "LICENSE",
            ".gitignore",
            "Containerfile",
            ".dockerignore",
            ".github",
            ".pre-commit-config.yaml",
        ),
        *("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
        *("requirements.txt", "requirements-product.txt", "requirements-bench.txt", "requirements-examples.txt"),
        *("requirements-site.txt", "requirements-page.txt", "requirements-release.txt"),
        *("src", "tests", "docs", "bench", "examples", "contrib"),
    }
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".log"))]


def test_the_source_archive_builds_the_same_wheel(made: dict[str, Path], tmp_path: Path) -> None:
    with tarfile.open(made[".gz"]) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    again = built(tmp_path / "source" / NAME, tmp_path / "dist", "wheel")
    assert again[".whl"].name == made[".whl"].name
    assert again[".whl"].read_bytes() == made[".whl"].read_bytes()


def test_the_metadata_says_who_may_use_it_and_where_it_is_found(made: dict[str, Path]) -> None:
    with zipfile.ZipFile(made[".whl"]) as archive:
        text = archive.read(f"{NAME}.dist-info/METADATA").decode()
    head = text.partition("\n\n")[0]
    assert f"Version: {__version__}" in head
    assert "License-Expression: Apache-2.0" in head
    assert "Requires-Python: >=3.11" in head
    urls = dict(re.findall(r"^Project-URL: (\w+), (\S+)$", head, re.MULTILINE))
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert all(url.startswith("https://") for url in urls.values())


# --- an environment with nothing else in it ---------------------------------------------------------------------------


def needed(requirements: list[str]) -> set[str]:
    """These distributions and what they need themselves, here and with this Python; no extra that nobody asked for."""
    found: set[str] = set()
    wanted = [Requirement(text) for text in requirements]
    while wanted:
        one = wanted.pop()
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        if one.name.lower() not in found:
            found.add(one.name.lower())
            wanted += [Requirement(text) for text in metadata.requires(one.name) or []]
    return found


def link_what_it_needs(site: Path) -> None:
    """The files of each of them, as if they were installed there."""
    for name in needed(PROJECT["dependencies"]):
        files = metadata.files(name)
        assert files, f"{name}: which files it has is not recorded"
        for first in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            link = site / first
            if not link.exists():
                link.symlink_to(Path(str(metadata.distribution(name).locate_file(first))))


@pytest.fixture(scope="module")
def empty(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of an environment that has the wheel, and what that asks for."""
    place = tmp_path_factory.mktemp("empty")
    ran(sys.executable, "-m", "venv", "--without-pip", place / "env", cwd=place)
    programs = place / "env/bin"
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "--quiet", "--disable-pip-version-check")
    ran(*pip, "install", "--no-index", "--no-deps", made[".whl"], cwd=place)
    site = Path(ran(programs / "python", "-c", "import primacy; print(primacy.__path__[0])", cwd=place).strip()).parent
    assert site.is_relative_to(place), "another primacy than the one in the wheel is found"
    link_what_it_needs(site)
    return programs


def test_the_installed_wheel_works_without_anything_else(empty: Path, tmp_path: Path) -> None:
    """The commands of the README's beginning, and a real process under the guard."""
    primacy = empty / "primacy"
    assert __version__ in ran(primacy, "--version", cwd=tmp_path)
    trial = tmp_path / "trial"
    trial.mkdir()
    assert run_readme([str(primacy)], tmp_path, trial) >= 4
    assert "margin" in ran(primacy, "contract", cwd=tmp_path)
    ran(primacy, "simulate", "--nodes", "3", "--seed", "1", "--minutes", "1", "--trace", "t.html", cwd=trial)
    assert "<script" in (trial / "t.html").read_text()
    told = ran(
        primacy, "run", "--restart", "never", "--", "/bin/sh", "-c", "echo it ran with $PRIMACY_TOKEN", cwd=trial
    )
    assert re.search(r"it ran with \d+", told)


def test_every_command_of_the_installed_wheel_can_explain_itself(empty: Path, tmp_path: Path) -> None:
    """Also those whose work needs an extra: no command may fail by importing it before it was asked to do anything."""
    program = (
        "from primacy.cli import main\n"
        "for name in main.COMMANDS:\n"
        "    print('====', name, main.run([name, '--help']))\n"
    )
    said = ran(empty / "python", "-c", program, cwd=tmp_path)
    codes = re.findall(r"^==== (\S+) (\d+)$", said, re.MULTILINE)
    assert len(codes) > 20
    assert {code for _, code in codes} == {"0"}


def test_what_the_starter_file_and_errors_point_to_is_in_the_installed_wheel(empty: Path, tmp_path: Path) -> None:
    """Every document that a text for users names, read where there is no checkout."""
    texts = [file.read_text() for file in sorted((ROOT / "src").rglob("*.py"))]
    named = {name for text in texts for name in re.findall(r"`primacy docs ([\w./-]+)", text)}
    assert named >= {"config", "strategies", "haproxy.cfg"}
    for name in named:
        path = Path(ran(empty / "primacy", "docs", "--path", name, cwd=tmp_path).strip())
        assert path.is_relative_to(empty.parent), name
        assert ran(empty / "primacy", "docs", name, cwd=tmp_path) == path.read_text()
    assert (empty.parent / "share/man/man1/primacy.1").read_text() == (ROOT / "docs/man/primacy.1").read_text()


def test_the_extras_are_the_same_in_the_project_the_errors_and_the_page() -> None:
    extras = {name: packages for name, packages in PROJECT["optional-dependencies"].items() if name != "all"}
    assert {name: list(packages) for name, packages in EXTRAS.items()} == extras
    page = (ROOT / "docs/install.md").read_text()
    for name, packages in extras.items():
        brings = ", ".join(f"`{package}`" for package in packages)
        assert re.search(rf"^\| `{name}` \| .* \| {re.escape(brings)} \|$", page, re.MULTILINE), name


def test_a_missing_extra_is_named_with_what_installs_it(empty: Path, tmp_path: Path) -> None:
    """By commands, with the exit code for it, and by the library, as the exception for it."""
    calls = {
        "run(['cache', 'serve', '--source', 'cmd:true'])": "cache",
        "run(['cache', 'get', 'rates'])": "cache",
        "run(['lease', 'list', '--store', 'postgresql://h/db'])": "postgres",
        "run(['lease', 'list', '--store', 'mysql://h/db'])": "mysql",
        "importlib.import_module('primacy.cache').Peer": "cache",
        "importlib.import_module('primacy.blocking').CacheClient(['tcp://127.0.0.1:6001'])": "cache",
        "importlib.import_module('primacy.cache.zap')": "cache",
        "importlib.import_module('primacy.cache.lmdb_storage')": "cache",
    }
    program = (
        "import importlib, sys\n"
        "from primacy.cli.main import run\n"
        "from primacy.errors import MissingExtra\n"
        "for call in sys.argv[1:]:\n"
        "    try:\n"
        "        print(eval(call), end=' ', flush=True)\n"
        "    except MissingExtra as error:\n"
        "        print(error.exit_code, error, flush=True)\n"
    )
    done = started("/bin/sh", "-c", 'exec "$@" 2>&1', "sh", empty / "python", "-c", program, *calls, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert len(lines) == len(calls), lines
    for line, extra in zip(lines, calls.values(), strict=True):
        packages = " ".join(f"'{package}'" for package in PROJECT["optional-dependencies"][extra])
        assert f"the extra `{extra}`: pip install {packages} (" in line
    assert {line.split()[0] for line in lines[1:]} == {"4"}


def test_the_page_of_the_installed_wheel_is_whole(empty: Path, tmp_path: Path) -> None:
    """Every file that the dashboard offers is read from the installed package."""
    program = (
        "from importlib.resources import files\n"
        "static = files('primacy.dashboard').joinpath('static')\n"
        f"print(sum(len(static.joinpath(name).read_bytes()) > 0 for name in {PAGE!r}))"
    )
    assert ran(empty / "python", "-c", program, cwd=tmp_path).strip() == str(len(PAGE))


def test_a_type_checker_reads_the_types_of_the_installed_wheel(empty: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "import primacy\n\nelection = primacy.Election('reports', store='sqlite:///leases')\nreveal_type(election)\n"
    )
    call = (sys.executable, "-m", "mypy", "--strict", "--python-executable", empty / "python", "user.py")
    assert 'Revealed type is "primacy.library.election.Election"' in ran(*call, cwd=tmp_path)


def test_the_requirements_of_the_demo_are_those_of_the_product_as_the_lock_has_them() -> None:
    """`make demo` installs these and nothing else: no more and no less than the metadata asks for."""
    kept = (ROOT / "requirements-product.txt").read_text()
    assert kept == product((ROOT / "requirements.txt").read_text()), "run: make lock"
    named = {name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)==", kept, re.MULTILINE)}
    wanted = [Requirement(text) for text in PROJECT["dependencies"]]
    needed: set[str] = set()
    while wanted:
        one = wanted.pop()
        name = one.name.lower().replace("_", "-")
        if name in needed or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        needed.add(name)
        wanted += [Requirement(text) for text in metadata.requires(name) or ()]
    assert needed <= named
    assert len(named) < 25, "the demo grows"
