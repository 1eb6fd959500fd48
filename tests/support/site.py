"""The documents as a site that needs no network: `python -m tests.support.site FOLDER`, which is `make site`.

The pages are laid out as they lie in the repository, so that the links between them hold as they stand; the page of all
commands is made from the commands. `FOLDER/site` is what a reader opens, `FOLDER/site-source` what it was made of.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from primacy.cli.reference import markdown

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "contrib", "examples")
FILES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
COMMANDS_PAGE = "commands.md"
WITHIN_S = 300


def lacks() -> str:
    """Why it cannot be built here; empty if it can."""
    return "" if importlib.util.find_spec("zensical") else "zensical is not here (make site-tools installs it)"


def lay_out(source: Path) -> None:
    """Writes all that the site is made of there, from nothing."""
    shutil.rmtree(source, ignore_errors=True)
    pages = source / "pages"
    pages.mkdir(parents=True)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, pages / name, ignore=shutil.ignore_patterns("__pycache__", "site"))
    for name in FILES:
        shutil.copy2(ROOT / name, pages)
    (pages / COMMANDS_PAGE).write_text(markdown(), encoding="utf-8")
    shutil.copy2(ROOT / "docs/site/iframe-worker.js", pages)
    shutil.copy2(ROOT / "docs/site/zensical.toml", source)


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Of what is laid out, from nothing: how the builder ended, and what it said. A link that leads nowhere ends it."""
    shutil.rmtree(site, ignore_errors=True)
    call = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "zensical.toml"]
    done = subprocess.run(call, cwd=source, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    if done.returncode == 0:
        (source / "made").rename(site)
    return done


def main(folder: Path) -> int:
    if reason := lacks():
        print(f"the site is not built: {reason}", file=sys.stderr)
        return 4
    source, site = folder / "site-source", folder / "site"
    lay_out(source)
    done = build(source, site)
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        return done.returncode
    print(f"wrote {site / 'index.html'}: open it in a browser; it needs no server and no network")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]).resolve()))
    except KeyboardInterrupt:
        sys.exit(130)
