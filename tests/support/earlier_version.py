"""The code of an earlier version, out of the repository's own history, for tests of an upgrade.

A shallow clone and an archive without git have no such history: those tests are skipped then, and say so. Where the
whole history is here and the commit is not in it, they fail: what a pin names can be lost when branches are squashed.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import urllib.request
from pathlib import Path

import pytest

from primacy.control.client import find

ROOT = Path(__file__).parents[2]
COMMIT = "0c176d498dc1fc9bda319ca880d55d816892c5c7"
"""The last one before the renames of the rooms: modules, settings, events, documents and metrics had other names."""
LAST_0_1 = "49a9f05010ac957eda78482816c385cc863485e9"
"""The last one that calls itself 0.1.0."""
WITHIN_S = 60


def missing(commit: str = COMMIT, root: Path = ROOT) -> str:
    """Why it cannot be had here; empty if it can. It is a failure if it is not in a history that is whole."""
    try:
        found = git(root, "rev-parse", "--show-toplevel", "--is-shallow-repository")
    except OSError as fault:
        return f"git cannot be asked for the earlier version: {fault}"
    if found.returncode:
        return f"there is no history here: {found.stderr.strip()}"
    top, is_shallow = found.stdout.splitlines()
    if Path(top) != root.resolve():
        return f"there is no history here: the repository is that of {top}"
    if git(root, "cat-file", "-e", f"{commit}^{{commit}}").returncode == 0:
        return ""
    if is_shallow == "false":
        pytest.fail(f"the earlier version {commit} is not in this history, which is whole: pin a commit that is in it")
    return f"the history here does not reach back to the earlier version ({commit[:7]})"


def git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False, timeout=WITHIN_S)


def exported(folder: Path, commit: str = COMMIT) -> tuple[str, ...]:
    """Writes its code there; says what stands in front of a command that is to run with it."""
    if reason := missing(commit):
        pytest.skip(reason)
    call = ["git", "archive", "--format=tar", commit, "src"]
    archive = subprocess.run(call, cwd=ROOT, capture_output=True, check=True, timeout=WITHIN_S).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    folder.chmod(0o755)
    return ("env", f"PYTHONPATH={folder / 'src'}")


def version_of(state: Path) -> str:
    """Of the node with this state folder, by its own document: our client would translate that of an older one."""
    found = find(str(state))
    assert found is not None, state
    with urllib.request.urlopen(f"http://{found.host}:{found.port}/v1/state", timeout=WITHIN_S) as answer:
        return str(json.load(answer)["version"])
