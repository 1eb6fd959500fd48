"""What the file says of the command, with real processes: group, umask, outputs, and when the node gives up."""

from __future__ import annotations

import grp
import json
import os
import re
import sys
from pathlib import Path

import pytest

from primacy.cli import main as entry
from primacy.errors import CannotHere, UsageError
from primacy.settings.schema_work import Run
from primacy.supervise.child import child_of
from tests.support.run_process import Start, start

pytestmark = pytest.mark.beside(order=420)

__all__ = ["start"]
ONE = "run: {restart: never, "
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the group")


def test_umask_and_outputs_of_the_file_count_from_its_folder(start: Start, tmp_path: Path) -> None:
    (tmp_path / "primacy.yaml").write_text(
        ONE + "umask: '027', stdout: out.log, stderr: err.log, command: [sh, -c, 'umask; echo oops >&2; touch made']}\n"
    )
    agent = start()
    assert agent.ends() == 0
    assert ((tmp_path / "out.log").read_text(), (tmp_path / "err.log").read_text()) == ("0027\n", "oops\n")
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o640


@ROOT
@pytest.mark.parametrize(("user", "name"), [("", "root"), ("user: nobody, ", "nobody")])
def test_a_group_is_the_only_one(start: Start, tmp_path: Path, user: str, name: str) -> None:
    group = grp.getgrgid(1).gr_name
    (tmp_path / "primacy.yaml").write_text(
        ONE + f"cwd: /, {user}group: {group}, command: [sh, -c, 'id -un; id -Gn']}}\n"
    )
    agent = start()
    assert agent.lines(2) == [name, group]
    assert agent.ends() == 0


def test_what_cannot_be_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def made(**run: str) -> None:
        child_of(Run(command=("true",), **run), str(tmp_path), None, None, os.environ)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match=r"run.group = nobody-at-all: there is no such group"):
        made(group="nobody-at-all")
    with pytest.raises(UsageError, match=r"run.stdout = no/where: the folder .* is not there"):
        made(stdout="no/where")
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(CannotHere, match=r"run.group = .*only root"):
        made(group=grp.getgrgid(1).gr_name)


def test_what_the_agent_was_told_by_the_system_is_not_for_the_command() -> None:
    around = {"PATH": os.environ["PATH"], "NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1", "LISTEN_FDS": "1", "HUE": "red"}
    child = child_of(Run(command=("true",)), "", None, None, around)
    assert child.environment == {"PATH": os.environ["PATH"], "HUE": "red"}


def test_the_limit_of_quick_ends_is_a_setting(start: Start, tmp_path: Path) -> None:
    (tmp_path / "primacy.yaml").write_text("run: {restart_limit: 2, command: [sh, -c, 'echo x; exit 3']}\n")
    agent = start()
    assert agent.ends() == 3
    assert agent.out.read_text() == "x\n" * 3
    assert "gives up: the command ended 3 times in a row soon after its start" in agent.err.read_text()


# --- what one is told before ------------------------------------------------------------------------------------------


def test_the_contract_says_which_containment_holds_here_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["contract", "--profile", "lan", "--stop-after-loss", "30000"]) == 0
    said = capsys.readouterr().out
    whole = " ".join(said.split())
    assert re.search(
        r"Started by this user on this machine: containment is (strong \(\w+\): .*|weak: .*to make it strong)", whole
    )
    assert "time to stop when planned (run.stop_ms)        3,000 ms, leadership is kept meanwhile" in said
    assert "time to stop after a loss (TERM to KILL)       1,100 ms" in said
    assert "hold_ms: 31900" in said
    assert entry.run(["--json", "contract"]) == 0
    assert "containment is" in json.loads(capsys.readouterr().out)["containment"]


def test_elsewhere_than_on_linux_only_run_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert entry.run(["run", "--", "true"]) == 4
    said = capsys.readouterr().err
    assert (said.count("\n"), said.startswith("primacy: primacy run needs Linux: ")) == (1, True)
    assert entry.run(["contract"]) == 0
    assert "Containment: known only while a node runs" in capsys.readouterr().out
    assert (
        entry.run(["simulate", "--seeds", "2", "--nodes", "3", "--profile", "lab", "--minutes", "1", "--jobs", "1"])
        == 0
    )
