"""The commands of the README that are run: by a test from the checkout, and with what a release installs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
RUN_TAG = re.compile(r"<!-- runnable(: prints)? -->\n```console\n(.*?)```", re.DOTALL)
WITHIN_S = 120


class Runnable(NamedTuple):
    """One command, and what the page says that it prints."""

    command: str
    printed: str
    prints: bool


def runnable() -> list[Runnable]:
    found = []
    for prints, block in RUN_TAG.findall(README):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, printed = part.partition("\n")
            found.append(Runnable(line.partition("#")[0].strip(), printed.strip(), bool(prints)))
    return found


def run_readme(primacy: list[str], folder: Path, bare: Path) -> int:
    """In the order of the page, in one folder, as a reader would; how many. What prints does so in one without a file.

    `primacy` is what is called by that name. A command that fails or prints something else is an AssertionError.
    """
    ours = ("PRIMACY_", "PYTHON", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    kept["PRIMACY_STATE_DIR"] = str(folder / "state")  # that of this machine is nobody's to try things in
    count = 0
    for command, printed, prints in runnable():
        program, *args = command.split()
        assert program == "primacy", command
        for place in (folder, bare) if prints else (folder,):
            done = subprocess.run(
                [*primacy, *args], capture_output=True, text=True, check=False, cwd=place, env=kept, timeout=WITHIN_S
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"
        assert not prints or printed in done.stdout, f"{command} prints something else: {done.stdout}"
        count += 1
    return count
