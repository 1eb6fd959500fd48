"""The code of an earlier version, out of the repository's own history, for tests of an upgrade.

A clone without that history (a shallow one, an archive) has none: those tests are skipped then, and say so.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMIT = "0c176d498dc1fc9bda319ca880d55d816892c5c7"
"""The last one before the renames of the rooms: modules, settings, events, documents and metrics had other names."""
WITHIN_S = 60


def missing() -> str:
    """Why it cannot be had here; empty if it can."""
    call = ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    try:
        found = subprocess.run(call, cwd=ROOT, capture_output=True, check=False, timeout=WITHIN_S).returncode == 0
    except OSError as fault:
        return f"git cannot be asked for the earlier version: {fault}"
    return "" if found else f"the history here does not reach back to the earlier version ({COMMIT[:7]})"


def exported(folder: Path) -> tuple[str, ...]:
    """Writes its code there; says what stands in front of a command that is to run with it."""
    if reason := missing():
        pytest.skip(reason)
    call = ["git", "archive", "--format=tar", COMMIT, "src"]
    archive = subprocess.run(call, cwd=ROOT, capture_output=True, check=True, timeout=WITHIN_S).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    folder.chmod(0o755)
    return ("env", f"PYTHONPATH={folder / 'src'}")
