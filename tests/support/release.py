"""`make release`: builds, checks, writes checksums, and runs the README with what an empty environment installs of it.

python -m tests.support.release dist

KEY in the environment names a key of GnuPG that signs the checksums. Nothing is uploaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from primacy import __version__
from tests.support.readme import run_readme

ROOT = Path(__file__).parents[2]
SUMS = "SHA256SUMS"
WITHIN_S = 600


class Refused(Exception):
    """There is no release, and why."""


def ran(*command: str | Path, cwd: Path = ROOT) -> str:
    """What it said. The environment of Python is not passed on: nothing of this one may be found by accident."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PRIMACY_"))}
    call = [str(part) for part in command]
    try:
        done = subprocess.run(call, cwd=cwd, env=kept, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    except OSError as error:
        raise Refused(f"{call[0]}: {error.strerror or error}") from None
    if done.returncode:
        raise Refused(f"{' '.join(call)}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def disagreements(root: Path = ROOT, version: str = __version__) -> list[str]:
    """Where the version is said otherwise: all at once."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    said = {
        "pyproject.toml": project["version"],
        "CHANGELOG.md": (re.findall(r"^## (\S+)", (root / "CHANGELOG.md").read_text(), re.MULTILINE) or ["none"])[0],
    }
    found = [f"{file} says {other}, the program {version}" for file, other in said.items() if other != version]
    notes = f"docs/releases/{version}.md"
    return found if (root / notes).exists() else [*found, f"there is no {notes}: what is new, for its users"]


def left_to_do() -> list[str]:
    """What does not stop a build, and must be done by a person before others get it."""
    found = []
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    if any(".example/" in url for url in urls.values()):
        found.append("[project.urls] of pyproject.toml has addresses that lead nowhere")
    if re.search(r"^## \S+ \(unreleased\)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE):
        found.append(f"CHANGELOG.md says that {__version__} is unreleased: put the date there")
    try:
        changed = ran("git", "status", "--porcelain").splitlines()
    except Refused as error:
        found.append(f"whether everything is committed is not known: {error}")
    else:
        found += [f"not committed: {', '.join(line[3:] for line in changed[:5])}"] if changed else []
    return found


def build(dist: Path) -> list[Path]:
    """The source archive and the wheel, from nothing."""
    shutil.rmtree(dist, ignore_errors=True)
    ran(sys.executable, "-m", "hatchling", "build", "-d", dist)
    return sorted(dist.iterdir())


def check(files: list[Path]) -> str:
    """What twine says of the metadata, or that it could not be asked."""
    if importlib.util.find_spec("twine") is None:
        return "twine is not here (make release-tools installs it): the metadata are NOT checked"
    ran(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files)
    return "twine finds nothing wrong with the metadata"


def write_sums(dist: Path, files: list[Path]) -> Path:
    """As sha256sum writes and reads them."""
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (dist / SUMS).write_text("".join(lines))
    return dist / SUMS


def sign(sums: Path, key: str) -> str:
    """Its signature beside it; or that there is none."""
    if not key:
        return f"{sums.name} is NOT signed: make release KEY=… signs it with that key of GnuPG"
    signature = sums.with_name(f"{sums.name}.asc")
    ran("gpg", "--batch", "--yes", "--local-user", key, "--armor", "--output", signature, "--detach-sign", sums)
    ran("gpg", "--batch", "--verify", signature, sums)
    return f"{signature.name} is the signature of {sums.name} with {key}"


def install_and_try(wheel: Path) -> str:
    """In an environment with the locked requirements and this wheel, and nothing of the checkout."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # stopped halfway, pip may still write
        place = Path(folder)
        ran(sys.executable, "-m", "venv", place / "env")
        programs = place / "env/bin"
        pip = (programs / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
        ran(*pip, "install", "--require-hashes", "--no-deps", "-r", ROOT / "requirements-product.txt", cwd=place)
        ran(*pip, "install", "--no-index", "--no-deps", wheel.resolve(), cwd=place)
        ran(*pip, "check", cwd=place)
        (place / "try").mkdir()
        (place / "bare").mkdir()
        if __version__ not in (said := ran(programs / "primacy", "--version", cwd=place)):
            raise Refused(f"the installed primacy is another version: {said.strip()}")
        try:
            count = run_readme([str(programs / "primacy")], place / "try", place / "bare")
        except AssertionError as error:
            raise Refused(f"of the README: {error}") from None
        ran(programs / "primacy", "docs", "config", cwd=place)
        return f"installed in an empty environment, the {count} commands of the README do what it says"


def main(dist: Path, key: str) -> int:
    try:
        if wrong := disagreements():
            raise Refused("\n".join(wrong))
        files = build(dist)
        print(*(f"built {file}" for file in files), sep="\n")
        print(check(files))
        sums = write_sums(dist, files)
        print(sums.read_text(), end="")
        print(sign(sums, key))
        print(install_and_try(next(file for file in files if file.suffix == ".whl")), flush=True)
    except Refused as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("no release: stopped", file=sys.stderr)
        return 130
    for thing in left_to_do():
        print(f"before others get it: {thing}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), os.environ.get("KEY", "")))
