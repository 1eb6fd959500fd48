"""A disk that hangs while an agent reads its file again: what starts and ends waits for it, and no other election."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from primacy.agent.placing import MAINTENANCE
from primacy.agent.state import AGENT, PAUSED
from primacy.cli import main
from primacy.control.eventlog import FILE_NAME, kept
from primacy.errors import Later, Refused
from tests.support import hanging_disk
from tests.support.many_agents import CLUSTER, PATIENT, AgentProcess, agents_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=305)

ROOT = Path(__file__).parents[2]
LEASE: dict[str, Any] = {"store": {"url": "sqlite:///leases.db"}, "placement": {"spread": False}}
RENEWED_S = 1.0
"""After the disk began to hang. What waits for it does so until this test lets it go."""
WITHIN_S = 60.0
"""Only a loop that hangs reaches it."""


def row_of(agent: AgentProcess) -> dict[str, Any]:
    """Of the election that nothing is done to; it holds nothing if the agent does not answer."""
    return agent.rows().get("stays") or {"token": 0, "hold_left_ms": 0, "role": ""}


def renewed(agent: AgentProcess, wanted_s: float) -> dict[str, Any] | None:
    """The row, once its hold lasts up to that moment."""
    row = row_of(agent)
    left_ms = row["hold_left_ms"]
    return row if left_ms and time.monotonic() + left_ms / 1_000 > wanted_s else None


def test_a_disk_that_hangs_while_the_file_is_read_again_holds_up_no_other_election(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, runtime = tmp_path / "hangs", tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(runtime))  # the lease files of commands are no matter of the disk
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv(hanging_disk.FOLDER, str(tmp_path / "state-a"))
    monkeypatch.setenv(hanging_disk.HANGS, str(hangs))
    store = f"sqlite:///{tmp_path}/leases.db"
    assert main.run(["lease", "schema", "--new", "--yes", "--store", store]) == 0, "names are free at once"
    first = {"stays": LEASE, "goes": LEASE, "changes": LEASE}
    with agents_in(tmp_path, first, names="a", module="tests.support.hanging_disk") as agents:
        before, agent = agents.all_run(*first), agents.agents["a"]
        token = wait_until(lambda: row_of(agent)["token"], "an answer")
        try:
            hangs.touch()
            began_s = time.monotonic()
            changed = {**LEASE, "run": {"command": agents.command("changes", "escape")}}
            agents.write({"stays": LEASE, "changes": changed, "new": LEASE})
            agent.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "new" in agent.rows(), "an answer that tells of the new one", WITHIN_S, 0.05)
            wanted_s = began_s + RENEWED_S + PATIENT["hold_ms"] / 1_000
            row = wait_until(lambda: renewed(agent, wanted_s), "a hold that is renewed", WITHIN_S, 0.05)
            assert row is not None
            assert (row["role"], row["token"]) == ("leader", token)
            assert agents.acting("new") is None, "it cannot begin before its folder is made"
        finally:
            hangs.unlink()
        wait_until(lambda: agents.acting("goes") is None, "the end of what was removed")
        wait_until(lambda: agents.all_run("changes")["changes"].start != before["changes"].start, "the changed one")
        assert agents.all_run("stays", "new")["stays"].start == before["stays"].start
        agent.process.terminate()
        assert agent.process.wait(WITHIN_S) == 0
    for election in ("stays", "changes", "new"):
        path = agent.state / CLUSTER / election / FILE_NAME
        numbers = [json.loads(line)["number"] for line in path.read_text().splitlines()]
        assert numbers == list(range(1, len(numbers) + 1)), "all of them, in their order"
        assert kept(str(path))[-1].code == "released", "up to the end"


def test_orders_that_a_hanging_disk_must_keep_are_answered_and_hold_up_no_election(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each says what becomes of it; it is done when the disk takes it, and the next start knows."""
    hangs, runtime = tmp_path / "hangs", tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(runtime))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv(hanging_disk.FOLDER, str(tmp_path / "state-a"))
    monkeypatch.setenv(hanging_disk.HANGS, str(hangs))
    store = f"sqlite:///{tmp_path}/leases.db"
    assert main.run(["lease", "schema", "--new", "--yes", "--store", store]) == 0, "names are free at once"
    elections = {"stays": LEASE, "goes": LEASE}
    with agents_in(tmp_path, elections, names="a", module="tests.support.hanging_disk") as agents:
        agents.all_run(*elections)
        agent = agents.agents["a"]
        token = wait_until(lambda: row_of(agent)["token"], "an answer")
        folder = agent.state / CLUSTER
        try:
            hangs.touch()
            began_s = time.monotonic()
            late = r"did not answer within 2 s: .*see: primacy (status|placement)"
            with pytest.raises(Refused, match=late):
                agent.ask("/v1/pause", "goes", {})
            with pytest.raises(Later, match="waits for its disk"):
                agent.ask("/v1/resume", "goes", {})
            missed = agent.ask("/v1/maintenance", order={"on": True})["missed"]
            assert re.search(late, missed["a"]), missed
            wanted_s = began_s + RENEWED_S + PATIENT["hold_ms"] / 1_000
            row = wait_until(lambda: renewed(agent, wanted_s), "a hold that is renewed", WITHIN_S, 0.05)
            assert row is not None
            assert (row["role"], row["token"]) == ("leader", token)
            assert not (folder / "goes" / PAUSED).exists()
            assert not agent.ask("/v1/placement")["maintenance"]
        finally:
            hangs.unlink()
        wait_until((folder / "goes" / PAUSED).exists, "the pause that is kept")
        wait_until(lambda: agent.ask("/v1/placement")["maintenance"], "the maintenance that is kept")
        assert (folder / AGENT / MAINTENANCE).exists()
        wait_until(lambda: agents.acting("goes") is None, "the end of what is paused")
        assert agent.ask("/v1/resume", "goes", {})["role"] != "paused"
        assert not (folder / "goes" / PAUSED).exists(), "an answer means that it is durable"
        agents.all_run("goes")
