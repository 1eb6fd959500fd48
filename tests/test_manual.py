"""What an operator decides, with real processes: a pause that is kept, and starts that wait for an approval (G8)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.test_cli_agent import Node, Say, alive, say  # noqa: F401

from primacy.agent.state import forget_pause, is_paused, keep_pause
from primacy.errors import Refused
from primacy.node.folder import Folder

WITHIN_S = 20.0


# --- pause ------------------------------------------------------------------------------------------------------------


def test_a_pause_outlives_the_agent_and_resume_ends_it(say: Say, tmp_path: Path) -> None:  # noqa: F811
    node = Node(tmp_path)
    ran = node.runs(say)
    assert say("pause", "--state-dir", node.state).code == 0
    node.until(say, lambda s: s["role"] == "paused" and s["duty"]["state"] == "stopped", "a paused node")
    node.process.kill()
    node.process.wait(WITHIN_S)
    node = Node(tmp_path)
    state = node.until(say, lambda s: s["role"] == "paused", "a node that is still paused")
    assert (state["term"], state["waits_for"]) == (ran["term"], "an operator: primacy resume")
    assert "was paused before this start and stays so: primacy resume" in node.err.read_text()
    assert say("resume", "--state-dir", node.state).code == 0
    node.runs(say)
    assert node.end() == 0
    node = Node(tmp_path)
    node.runs(say)
    assert node.end() == 0


def test_a_pause_that_the_disk_does_not_take_is_said(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "state"))
    try:
        assert not is_paused(folder)
        os.mkdir(folder.path("paused"))  # nothing can be renamed onto it, nor is it unlinked
        with pytest.raises(Refused, match="only until its next start"):
            keep_pause(folder)
        with pytest.raises(Refused, match="stays paused"):
            forget_pause(folder)
        os.rmdir(folder.path("paused"))
        keep_pause(folder)
        assert is_paused(folder)
        forget_pause(folder)
        forget_pause(folder)
        assert not is_paused(folder)
    finally:
        folder.close()


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_in_the_last_moment_does_not_change_the_exit_code(number: int, tmp_path: Path) -> None:
    """The loop is closed and the interpreter about to end: this was once death by the signal."""
    script = (
        "import atexit, os, sys; from primacy.cli.main import main;"
        f"atexit.register(lambda: os.kill(os.getpid(), {int(number)})); main(sys.argv[1:])"
    )
    call = [sys.executable, "-c", script, "run", "--state-dir", str(tmp_path / "s"), "--restart", "never", "--"]
    done = subprocess.run(
        [*call, "sh", "-c", "exit 7"], cwd=tmp_path, capture_output=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 7, done.stderr


def test_however_often_it_is_asked_to_end_it_ends_with_0(say: Say, tmp_path: Path) -> None:  # noqa: F811
    node = Node(tmp_path)
    pid = node.runs(say)["duty"]["pid"]
    last = time.monotonic() + WITHIN_S
    while node.process.poll() is None and time.monotonic() < last:
        node.process.send_signal(signal.SIGTERM)
    assert node.process.poll() == 0, node.err.read_text()
    while alive(pid):  # asked more than twice it leaves, and the guard goes on
        assert time.monotonic() < last
