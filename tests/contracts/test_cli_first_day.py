"""What a careful person tries on the first day: help, completion, variables, Ctrl-C at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from primacy.cli import main as entry
from primacy.cli.local import Local
from primacy.cli.node import _end, _ending
from primacy.control.client import FoundNode
from tests.support.waiting import wait_until


def test_help_says_what_the_option_says(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["status"], ["members", "add"], ["help"], []):
        assert entry.run(["help", *words]) == 0
        said = capsys.readouterr().out
        assert entry.run([*words, "--help"]) == 0
        assert said == capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["stauts"], "primacy: 'stauts' is not a command: there are run"),
        (["status", "x"], "primacy: 'x' is not a command of `primacy status`: it has"),
    ],
)
def test_help_of_nothing_is_refused(words: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["help", *words]) == 2
    assert part in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_what_the_shell_runs(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert "_PRIMACY_COMPLETE" in said
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=said.encode(), check=True)
        asked = {**os.environ, "_PRIMACY_COMPLETE": "bash_complete", "COMP_WORDS": "primacy st", "COMP_CWORD": "1"}
        done = subprocess.run([sys.executable, "-m", "primacy"], env=asked, capture_output=True, text=True, check=False)
        assert "plain,status" in done.stdout.split()
        assert "plain,step-down" in done.stdout.split()


def test_variables_stand_for_the_options_in_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIMACY_CONFIG", "missing.yaml")
    assert entry.run(["status"]) == 2
    assert "missing.yaml" in capsys.readouterr().err
    Path("other.yaml").write_text("cluster: {manager: {nodes: {a: {addr: '127.0.0.1:1'}}}}\n", encoding="utf-8")
    monkeypatch.setenv("PRIMACY_NODE", "zz")
    assert entry.run(["--config", "other.yaml", "contract"]) == 0, "an option wins; a new node is none of the list yet"
    monkeypatch.delenv("PRIMACY_CONFIG")
    monkeypatch.delenv("PRIMACY_NODE")
    capsys.readouterr()
    monkeypatch.setenv("PRIMACY_AT", "127.0.0.1:1")
    assert entry.run(["status"]) == 3
    assert "127.0.0.1:1 does not answer" in capsys.readouterr().err
    assert entry.run(["status", "--at", "nonsense"]) == 2, "after the command, too"
    assert "--at nonsense: an address is HOST:PORT" in capsys.readouterr().err


def test_ctrl_c_while_python_imports_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "primacy", "status"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "primacy: stopped.\n")


def test_spans_of_time_are_written_with_units_in_options(capsys: pytest.CaptureFixture[str]) -> None:
    for span in ("2s", "2000ms", "2000"):
        assert entry.run(["contract", "--stop-after-loss", span, "--json"]) == 0
        assert '"stop_after_loss_ms": 2000' in capsys.readouterr().out
    for words, part in (
        (["run", "--stop-ms", "3 parsecs", "--", "true"], "--stop-ms '3 parsecs': a span of time is 250ms, 3s, 2m, or"),
        (["run", "--stop-ms", "25h", "--", "true"], "--stop-ms 25h: from 0 to 86400000 ms"),
        (["contract", "--stop-after-loss", "0"], "--stop-after-loss 0: from 1 to"),
        (["cache", "get", "k", "--within-ms", "-1"], "a span of time is"),
    ):
        assert entry.run(words) == 2
        assert part in capsys.readouterr().err


def test_check_fails_without_the_secret_that_every_node_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry.run(["new", "--nodes", "3"]) == 0
    assert entry.run(["check"]) == 0
    Path("secret").chmod(0o644)
    assert entry.run(["check"]) == 2
    assert "cluster.secret_file" in capsys.readouterr().err
    Path("secret").unlink()
    assert entry.run(["check"]) == 2
    assert "cluster.secret_file = secret: it is not there; make one with: primacy keygen" in capsys.readouterr().err
    assert entry.run(["check", "--json"]) == 2
    assert '"path": "cluster.secret_file"' in capsys.readouterr().out


def test_check_says_that_a_file_of_ghoti_is_served_on_another_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for more, said in (("", True), ("addr: localhost:9090\n", False), ("cluster: {bind: 'localhost:7'}\n", False)):
        Path("primacy.yaml").write_text(f"slot_000: {{kind: simple_memory}}\n{more}", encoding="utf-8")
        assert entry.run(["check"]) == 0
        noted = (
            "slots are served on localhost:25873, where Ghoti serves them on localhost:9090" in capsys.readouterr().err
        )
        assert noted is said


def test_a_frozen_node_that_is_stopped_says_what_it_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on as soon as that was said, however long this took."""
    echo = click.echo

    def said(*words: Any, **more: Any) -> None:
        echo(*words, **more)
        process.send_signal(signal.SIGCONT)

    process = subprocess.Popen(["sleep", "60"])
    try:
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: "frozen" in _ending("a", process.pid), "a stopped process")
        monkeypatch.setattr(click, "echo", said)
        assert _end("a", Local("", "main", FoundNode("127.0.0.1", 1, "", process.pid)))
    finally:
        process.kill()
        process.wait()
    frozen = f"waits: node a is frozen (SIGSTOP) and ends when it goes on: kill -CONT {process.pid}; at most 30 s\n"
    assert capsys.readouterr().err == frozen
