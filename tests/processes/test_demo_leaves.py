"""A demo of every scenario ends by itself and leaves nothing: here in short, for 40 s each in `make proof`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from primacy.cli import demo as command
from primacy.lab import tour
from tests.support import leftovers as alone
from tests.support.demo_leaves import check, play

pytestmark = pytest.mark.beside(order=190)

ESCAPES = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.execve("/bin/sleep", ["sleep", "300"], {})
    os._exit(0)
os.wait()
"""
LITTERS = """
import os, socket, sys
outside = sys.argv[1]
open(outside, "w").write("outside")
open(os.path.join(os.environ["TMPDIR"], "inside"), "w").close()
os.unlink(os.path.join(os.environ["HOME"], "before"))
os.chdir(os.path.dirname(outside))
os.mkdir("folder")
socket.socket(socket.AF_UNIX).bind(outside + ".socket")
"""


def test_a_process_that_slips_away_is_seen(tmp_path: Path) -> None:
    """The check itself: a session of its own, no environment, no parent, no terminal."""
    left = alone.run(tmp_path / "at", [sys.executable, "-c", ESCAPES], grace_s=1.0)
    assert left.code == 0, left
    assert [words.partition(": ")[2] for words in left.processes] == ["sleep 300 "]
    assert left.files == []


def test_a_file_here_or_anywhere_is_seen(tmp_path: Path) -> None:
    """The check itself, likewise."""
    traced, outside, at = shutil.which("strace") is not None, tmp_path / "outside", tmp_path / "at"
    left = alone.run(at, [sys.executable, "-c", LITTERS, str(outside)], traced=traced)
    assert left.code == 0, left
    assert left.files == [str(at / "home" / "before"), str(at / "tmp" / "inside")]
    assert left.processes == []
    if traced:
        wanted = [at / "home" / "before", "folder", outside, f"{outside}.socket"]
        assert left.elsewhere == sorted(map(str, wanted))


@pytest.mark.parametrize("traced", [False, True], ids=["unobserved", "every call looked at"])
def test_a_demo_ends_by_itself_and_leaves_neither_process_nor_file(tmp_path: Path, traced: bool) -> None:
    if traced and shutil.which("strace") is None:
        pytest.skip("strace is not here: make packages installs it, as root")
    scenario, seconds = ("one-way", 15) if traced else ("power", 8)  # time for a failover on a busy machine
    left, result = play(tmp_path, scenario, seconds, "--profile", "lab", "--nodes", "3", traced=traced)
    check(left, result, scenario, seconds)
    assert not traced or left.calls > 100


def test_every_scenario_is_explained_and_is_a_scene(capsys: pytest.CaptureFixture[str]) -> None:
    from primacy.cli import main as entry

    assert list(command.SCENARIOS) == list(tour.SCENARIOS)
    assert set(command.KEYS.values()) == set(command.SCENARIOS) - {"calm"}
    assert entry.run(["demo", "--help"]) == 0
    said = capsys.readouterr().out
    lab = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()
    for name, what in command.SCENARIOS.items():
        assert f"{name:<8}  {what}" in said
        assert f"| `{name}`" in lab
    assert max(map(len, said.splitlines())) <= 80
