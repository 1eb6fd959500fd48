"""Drills against real labs and a real cluster: what they report, what they find, and what they leave behind.

Safety is asserted always. A bound of time that a late machine did not meet is *not judged*, and says so: that is the
only other verdict that is taken here for kept.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.cli import main as entry
from primacy.control.client import ask, find
from primacy.lab.cluster import Lab
from primacy.lab.place import CLUSTER
from primacy.settings.timing import PROFILES
from tests.support.safety_checks import safe
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=115)

CANARY_HEARTBEAT_MS = PROFILES["lab"].heartbeat_ms
"""On a machine that stands still for longer the holder changes by itself, in the middle of a fault."""

TRIES = 3
WITHIN_S = 120.0
"""Far more than anything here takes: only a hang reaches it."""
STANDS_STILL = """
import os, signal, sys
from primacy.cli import main
from primacy.drill import cluster_target, lab_target, player

def still(strike):
    def struck(*given):
        strike(*given)
        os.kill(os.getpid(), signal.SIGSTOP)
    return struck

for target in (lab_target.LabTarget, cluster_target.ClusterTarget):
    target.strike = still(target.strike)
player.PATIENCE_MS, player.FAILOVERS = 500, 1
sys.exit(main.run(sys.argv[1:]))
"""
"""The command, whose faults last a few seconds at most, and which stops where it stands once the fault is there."""


@contextlib.contextmanager
def lab_up(folder: Path, *options: str, call: tuple[str, ...] = ()) -> Iterator[Path]:
    """In a process of its own, as a user has it; ended in order, whatever happens."""
    start = call or (sys.executable, "-m", "primacy.cli.main", "lab", "up", "--dir")
    with (folder.parent / f"{folder.name}.out").open("wb") as out:
        process = subprocess.Popen([*start, str(folder), *options], stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or find(str(folder)), "a lab", WITHIN_S, 0.05)
        wait_until(lambda: process.poll() is not None or document(folder)["leader"], "a leader", WITHIN_S, 0.05)
        assert process.poll() is None, (folder.parent / f"{folder.name}.out").read_text()
        yield folder
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WITHIN_S)


def document(folder: Path) -> dict[str, Any]:
    found = find(str(folder))
    assert found is not None
    said: dict[str, Any] = ask(found, "/v1/lab", within_s=20)
    return said


@pytest.fixture
def drill(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    def run(*args: str) -> tuple[int, dict[str, Any]]:
        code = entry.run(["drill", *args, "--json"])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, json.loads(out) if out else {"error": err}

    return run


def broken(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Promises that were not kept, and those that could not be judged although this machine was on time."""
    return [
        {"scenario": done["scenario"], "late_ms": done["late_ms"], **each}
        for done in report["done"]
        for each in done["findings"]
        if each["verdict"] == "not kept" or (each["verdict"] == "not judged" and "late" not in each["why"])
    ]


def assert_kept(code: int, report: dict[str, Any]) -> None:
    at_once = report["summary"]["overlaps"], report["summary"]["violations"]
    safe(at_once == (0, 0), f"two at once, or a promise that holds at every moment was broken: {at_once}")
    assert not broken(report), json.dumps(broken(report), indent=2)
    judged = [each["verdict"] for done in report["done"] for each in done["findings"]]
    assert code == (0 if report["kept"] else 1)
    assert report["kept"] or "not judged" in judged, report["verdict"]


@pytest.mark.parametrize(("strategy", "names"), [("raft", "stop minority freeze"), ("lease", "kill child power")])
def test_a_drill_of_a_lab_plays_faults_and_reports_what_was_kept(
    strategy: str, names: str, tmp_path: Path, drill: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    """All faults in three profiles: `make proof PART=dashboard`."""
    page = tmp_path / "report.html"
    chosen = [word for name in names.split() for word in ("--scenario", name)]
    with lab_up(tmp_path / "lab", "--nodes", "3", "--profile", "lab", "--strategy", strategy) as folder:
        code, report = drill("--config", str(folder / "primacy.yaml"), *chosen, "--report", str(page))
        after = document(folder)
    assert_kept(code, report)
    assert [each["scenario"] for each in report["plan"]] == names.split()
    assert {each["scenario"] for each in report["done"] if each["outcome"] == "played"} == set(names.split())
    assert not after["cuts"]
    assert [row["process"] for row in after["nodes"]] == ["running"] * 3
    assert report["timeline"]["kind"] == "drill"
    assert len(report["timeline"]["runs"]) >= 3
    assert report["timeline"]["chain"]
    written = page.read_text(encoding="utf-8")
    assert f'"scenario":"{names.split(maxsplit=1)[0]}"' in written
    assert "http://" not in written.replace("http://www.w3.org", "")


def test_a_planted_defect_is_reported(tmp_path: Path, drill: Callable[..., tuple[int, dict[str, Any]]]) -> None:
    """A command whose work is started where no guard ends it: the drill says that two ran, and ends with 1."""
    call = (sys.executable, "-m", "tests.support.lab_with_defect")
    with lab_up(tmp_path / "lab", "--nodes", "3", "--profile", "lab", call=call) as folder:
        signs = "a signer, which is started elsewhere and takes its time"
        wait_until(lambda: document(folder)["chain"]["counters"]["signatures"] > 5, signs, WITHIN_S)
        for _ in range(TRIES):  # a drill tells what happens while it looks: on a slow machine a signer may miss that
            code, report = drill("--lab", str(folder), "--scenario", "power")
            if code == 1:
                break
    assert code == 1, report["verdict"]
    assert report["kept"] is False
    assert report["verdict"].startswith("NOT KEPT: copies of the command at once (power)")
    (found,) = [each for each in report["done"][0]["findings"] if each["what"] == "copies of the command at once"]
    assert found["verdict"] == "not kept"
    assert re.search(r"the chain recorded (1 double signature|[\d,]+ double signatures)(;|$)", found["why"])
    assert report["summary"]["violations"] > 0


def test_a_drill_that_is_stopped_or_killed_leaves_no_fault(tmp_path: Path) -> None:
    with lab_up(tmp_path / "lab", "--nodes", "3", "--profile", "lab") as folder:
        report = tmp_path / "report.json"
        with started(folder, "--scenario", "halves", "--beyond-quorum", "--report", str(report)) as stopped:
            wait_until(lambda: document(folder)["cuts"], "cut links", WITHIN_S, 0.05)
            stopped.send_signal(signal.SIGINT)
            assert stopped.wait(WITHIN_S) == 130
        assert not document(folder)["cuts"]
        said = json.loads(report.read_text())
        assert said["interrupted"] == "stopped by SIGINT"
        assert [(each["scenario"], each["outcome"]) for each in said["done"]] == [("halves", "interrupted")]
        assert said["timeline"]["faults"]

        wait_until(lambda: document(folder)["leader"], "a leader", WITHIN_S, 0.05)
        with started(folder, "--scenario", "hang", stands_still=True) as killed:
            wait_until(lambda: "frozen" in processes(folder), "a frozen node", WITHIN_S, 0.05)
            killed.kill()
            killed.wait(WITHIN_S)
            wait_until(lambda: processes(folder) == ["running"] * 3, "the end of the fault", WITHIN_S, 0.05)
        found = find(str(folder))
        assert found is not None

        def last_said() -> str:
            """What was done is written down behind it."""
            return next(row["text"] for row in reversed(ask(found, "/v1/events?last=100")) if row["code"] == "lab")

        over = re.compile("the lab thaws node ., for the time of the fault is over")
        wait_until(lambda: over.fullmatch(last_said()), "its event", WITHIN_S, 0.05, told=last_said)


@contextlib.contextmanager
def started(folder: Path, *options: str, stands_still: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    program = ["-c", STANDS_STILL] if stands_still else ["-m", "primacy.cli.main"]
    call = [sys.executable, *program, "drill", "--config", str(folder / "primacy.yaml"), *options]
    with (folder.parent / "drill.out").open("ab") as out:
        process = subprocess.Popen(call, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def processes(folder: Path) -> list[str]:
    return [row["process"] for row in document(folder)["nodes"]]


def test_a_drill_of_a_cluster_must_be_allowed_and_moves_the_command(
    tmp_path: Path, drill: Callable[..., tuple[int, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real agents that know of no lab. The drill asks, and is refused where the file does not allow it."""
    monkeypatch.setattr("sys.stdin", io.StringIO())  # nobody answers
    with Lab(tmp_path / "nodes", 3, "fast", more={"control": {"lab": False, "drills": True}}) as lab:
        lab.start()
        lab.until_acting()
        file = lab.place.path / "primacy.yaml"
        where = ("--config", str(file), "--state-dir", str(lab.place.state_dir("a")))
        forbidden = tmp_path / "forbidden.yaml"
        forbidden.write_text(
            file.read_text()
            .replace("drills: true", "drills: false")
            .replace("secret_file: ", f"secret_file: {file.parent}/")
        )
        code, said = drill("--config", str(forbidden), "--state-dir", str(lab.place.state_dir("a")))
        assert (code, "control.drills: true does" in said["error"]) == (2, True), said
        code, said = drill(*where)
        assert (code, "nothing was done" in said["error"]) == (1, True), said
        monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
        code, said = drill(*where)
        assert (code, "was not the name of the cluster" in said["error"]) == (1, True), said
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{CLUSTER}\n"))
        code, report = drill(*where)
        states = [wait_until(lambda n=name: lab.state(n), f"an answer of {name}", WITHIN_S) for name in lab.names]
    assert_kept(code, report)
    assert [each["scenario"] for each in report["plan"]] == ["step-down", "transfer", "pause"]
    assert {each["outcome"] for each in report["done"]} == {"played"}
    assert all(state["role"] != "paused" for state in states if state)


def test_a_pause_ends_although_the_drill_is_killed(tmp_path: Path) -> None:
    with Lab(tmp_path / "nodes", 3, "fast", more={"control": {"lab": False, "drills": True}}) as lab:
        lab.start()
        lab.until_acting()
        where = ("--state-dir", str(lab.place.state_dir("a")), "--scenario", "pause", "--yes")

        def paused() -> list[str]:
            return [name for name in lab.names if (lab.state(name) or {}).get("role") == "paused"]

        with started(lab.place.path, *where, stands_still=True) as drill:
            wait_until(paused, "a paused node", WITHIN_S, 0.02)
            drill.kill()
            drill.wait(WITHIN_S)
            wait_until(lambda: not paused(), "the end of the pause", WITHIN_S, 0.05)
