"""No guard process can be started for a while: as with no memory, no descriptors, no processes left."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.settings.timing import PROFILES
from tests.processes.test_run import TELL
from tests.support.run_process import Running, Start, children, start
from tests.support.safety_checks import safe

pytestmark = [pytest.mark.beside(order=174), pytest.mark.ordinary]

__all__ = ["start"]

HOLDS_S = 3 * PROFILES["fast"].hold_ms / 1_000
"""In which a leader that cannot start its work resigns, more than once."""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The interpreter of agent and guards, by a name of its own that can be taken away."""
    own = Path(sys.prefix)
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/lib").symlink_to(own / "lib")
    if (own / "pyvenv.cfg").exists():
        (tmp_path / "venv/pyvenv.cfg").write_text((own / "pyvenv.cfg").read_text())
    python = tmp_path / "venv/bin" / Path(sys.executable).name
    python.symlink_to(os.path.realpath(sys.executable))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        yield python


def without_a_guard(agent: Running, python: Path) -> int:
    """Its guards are killed, and others cannot be started. The token of the command that ran."""
    token = int(agent.lines()[0].split()[0])
    agent.until(lambda: len(children(agent.process.pid)) > 1, "a spare guard")
    python.rename(python.with_name("gone"))
    for guard in children(agent.process.pid):
        os.kill(guard, signal.SIGKILL)
    agent.said("no guard process could be started")
    time.sleep(HOLDS_S)
    return token


def test_Q6_a_leader_without_a_guard_resigns_and_leads_again_when_there_is_one(start: Start, python: Path) -> None:
    agent = start("--profile", "fast", "--", "sh", "-c", TELL + "exec sleep 60")
    token = without_a_guard(agent, python)
    python.with_name("gone").rename(python)
    again = int(agent.lines(2)[1].split()[0])
    safe(again > token, "a token that went back")
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0


def test_Q6_an_agent_without_a_guard_can_be_ended(start: Start, python: Path) -> None:
    agent = start("--profile", "fast", "--", "sh", "-c", TELL + "exec sleep 60")
    without_a_guard(agent, python)
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0


def test_what_is_said_about_it_is_bounded(start: Start, python: Path) -> None:
    agent = start("--profile", "fast", "--", "sh", "-c", TELL + "exec sleep 60")
    without_a_guard(agent, python)
    said = re.findall("warn +no guard process could be started", agent.err.read_text())
    assert len(said) == 1, "once in an interval"
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0
