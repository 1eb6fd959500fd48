"""The pages by task are done as they stand: their files are written, their commands run in one shell, in order.

A line below a command is what it prints, with … for what differs from run to run.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from primacy.settings.timing import PROFILES
from tests.support.canary import beside_a_canary
from tests.support.ports import free_ports

pytestmark = pytest.mark.beside(order=585)

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/tasks").glob("*.md"))
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
RUN = re.compile(r"<!-- runnable -->\n```console\n(.*?)```", re.DOTALL)
NEEDS = {"haproxy.md": ("haproxy", "curl")}
"""Programs that are not ours."""
PORTS = ("7401", "7402", "7403", "7404", "7481", "8000", "8080", "6000", "6001")
MARK = "==== command "
LEAVE = "code=$?; set +e; kill $(jobs -p) 2> /dev/null; wait; exit $code"
"""What the shell does at its end: what the page left in the background ends with it."""
WITHIN_S = 600
"""Only a hang reaches it."""


class Step(NamedTuple):
    """A command, and the lines that the page shows below it."""

    command: str
    shown: list[str]


def steps(page: str) -> list[Step]:
    found: list[Step] = []
    for block in RUN.findall(page):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line.removeprefix("$ "), []))
            else:
                found[-1].shown.append(line)
    return found


def test_there_is_a_page_for_each_task() -> None:
    assert {page.stem for page in PAGES} == {
        *("one-scheduler", "cron-once", "haproxy", "replace-machine", "cache-paid-api"),
    }
    for page in PAGES:
        assert len(steps(page.read_text())) >= 2, page.name
        assert len(page.read_text().splitlines()) < 90, f"{page.name} is short, and links"


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
@beside_a_canary(PROFILES["lan"].heartbeat_ms, passes_if_late=True)
def test_what_the_page_says_can_be_done(page: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
    for name in NEEDS.get(page.name, ()):
        if shutil.which(name, path=path) is None:
            pytest.skip(f"{name} is not here (make packages)")
    text = page.read_text()
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))

    def elsewhere(said: str) -> str:
        """With ports that are free here."""
        return re.sub(r"\b(" + "|".join(PORTS) + r")\b", lambda found: ports[found[0]], said)

    for name, content in FILE.findall(text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(elsewhere(content))
    done = steps(text)
    script = ["set -eu -o pipefail", f"trap '{LEAVE}' EXIT"]
    for number, step in enumerate(done):
        script += [f"echo '{MARK}{number}'", elsewhere(step.command)]
        if step.command.startswith(("primacy new", "primacy docs")):  # what they wrote is changed as the page was
            written = step.command.rpartition("> ")[2] if ">" in step.command else "primacy.yaml"
            changes = [f"s/\\b{old}\\b/{new}/" for old, new in ports.items()]
            script.append(f"sed -i '{';'.join(changes)}' {written}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRIMACY_", "PYTEST_"))}
    (tmp_path / "script").write_text("\n".join(script) + "\n")
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen(
            ["/bin/bash", "script"],
            cwd=tmp_path,
            env={**kept, "PATH": path, "HOME": str(tmp_path), "PRIMACY_STATE_DIR": str(tmp_path / "state-of-all")},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(WITHIN_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said.seek(0)
        told = said.read()
    logs = "".join(f"\n--- {log.name}\n{log.read_text()[-2_000:]}" for log in sorted(tmp_path.glob("*.log")))
    assert code == 0, told + logs
    parts = re.split(rf"^{MARK}\d+\n", told, flags=re.MULTILINE)[1:]
    assert len(parts) == len(done), told
    for step, part in zip(done, parts, strict=True):
        lines = iter(" ".join(line.split()) for line in part.splitlines())
        for line in step.shown:
            pattern = ".*".join(map(re.escape, elsewhere(line).split("…")))
            assert any(re.fullmatch(pattern, found) for found in lines), f"{step.command}: no {line!r} in {part}"
