"""`primacy run` when something goes wrong: killed, stopped, in the way of another, with a weak containment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from primacy.cli import main as entry
from primacy.election.model import Ballot, ListRecord
from primacy.node.ballot import packed, unpacked
from primacy.settings.timing import PROFILES
from tests.processes.test_run import TELL
from tests.support import stamp
from tests.support.canary import Canary
from tests.support.real_nodes import interpreter
from tests.support.run_process import WITHIN_S, Running, Start, alive, children, start
from tests.support.safety_checks import one_at_a_time, safe

pytestmark = [pytest.mark.beside(order=170), pytest.mark.ordinary]

__all__ = ["start"]


def test_an_agent_killed_takes_the_command_along_and_the_next_one_starts_at_once(start: Start) -> None:
    first = start("--profile", "wan", "--", "sh", "-c", TELL + "setsid sleep 60 & wait")
    token = int(first.lines()[0].split()[0])
    pid = first.pid()
    tree = [pid, *children(pid)]
    first.process.kill()
    first.process.wait()
    second = start("--profile", "wan", "--", "sh", "-c", TELL + "exec sleep 60")
    told = second.lines()[0].split()
    took_s = time.monotonic() - second.began
    safe(not any(alive(each) for each in tree), "the old tree lives beside the next")
    assert (int(told[0]), told[1]) == (token + 1, "1")
    assert took_s < PROFILES["wan"].hold_ms / 1_000, "it was not waited for"
    second.signal(signal.SIGTERM)
    assert second.ends() == 0


def test_a_guard_killed_takes_the_command_along_and_another_term_begins(start: Start) -> None:
    agent = start("--", "sh", "-c", TELL + "exec sleep 60")
    token = int(agent.lines()[0].split()[0])
    pid = agent.pid()
    os.kill(guard_of(agent, pid), signal.SIGKILL)
    told = agent.lines(2)[1].split()
    assert (int(told[0]), told[1]) == (token + 1, "1")
    safe(not alive(pid), "the old command lives beside the next")
    agent.said("lost the guard of run 1")
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0


def guard_of(agent: Running, pid: int) -> int:
    """The child of the agent from which the command stems."""
    while (parent := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])) != agent.process.pid:
        pid = parent
    return pid


def test_an_agent_stopped_longer_than_the_hold_loses_the_command_and_leads_anew(start: Start, tmp_path: Path) -> None:
    stamps = str(tmp_path / "stamps")
    stamp.make_file(stamps)
    agent = start("--profile", "fast", "--", interpreter(), "-I", "-S", stamp.__file__, stamps)
    first = agent.until(lambda: stamp.read(stamps), "the command")[0]
    pid = agent.pid()
    agent.signal(signal.SIGSTOP)
    stopped_ns = stamp.now_ns()
    agent.until(lambda: not alive(pid), "the end of the command")
    ended_ns = max(one.last_ns for one in stamp.read(stamps))
    assert ended_ns - stopped_ns <= PROFILES["fast"].hold_ms * 10**6
    agent.signal(signal.SIGCONT)
    second = agent.until(lambda: stamp.read(stamps)[1:], "the command again")[0]
    assert (second.token > first.token, second.run) == (True, 1)
    agent.said("lost its majority and stops its work")
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0


def test_the_second_agent_waits_names_the_first_and_takes_over(start: Start) -> None:
    first = start("--", "sh", "-c", TELL + "exec sleep 60")
    token = int(first.lines()[0].split()[0])
    second = start("--", "sh", "-c", TELL + "exec sleep 60")
    second.said(rf"waits for process {first.process.pid} \(.+\), which holds election main on this machine")
    assert second.out.read_text() == ""
    other = start("--election", "other", "--restart", "never", "--", "true")
    assert other.ends() == 0
    first.signal(signal.SIGTERM)
    assert first.ends() == 0
    assert int(second.lines()[0].split()[0]) == token + 1
    second.signal(signal.SIGINT)
    assert second.ends() == 130


def test_one_that_waits_can_be_asked_to_end(start: Start) -> None:
    first = start("--", "sleep", "60")
    first.pid()
    second = start("--", "sleep", "60")
    second.said("waits for process")
    second.signal(signal.SIGINT)
    assert second.ends() == 130
    first.signal(signal.SIGTERM)
    assert first.ends() == 0


def test_another_profile_is_no_other_list_and_costs_no_wait(start: Start) -> None:
    for profile in ("lab", "lan", "wan"):
        agent = start("--profile", profile, "--restart", "never", "--", "true")
        assert agent.ends() == 0
    assert time.monotonic() - agent.began < PROFILES["wan"].promise_ms / 1_000


def test_a_torn_ballot_is_never_a_fresh_start(start: Start, tmp_path: Path) -> None:
    assert start("--restart", "never", "--", "true").ends() == 0
    ballot = tmp_path / "state/primacy/main/ballot"
    os.truncate(ballot, 40)
    agent = start("--restart", "never", "--", "true")
    assert agent.ends() == 5
    assert f"the ballot {ballot} cannot be trusted: its checksum does not fit" in agent.err.read_text()
    ballot.unlink()
    assert start("--restart", "never", "--", "true").ends() == 0


def test_M3_a_node_that_was_listed_with_others_begins_no_cluster_alone(start: Start, tmp_path: Path) -> None:
    """It said under a list of three that it has no memory, and theirs may have begun without it."""
    assert start("--restart", "never", "--", "true").ends() == 0
    ballot = tmp_path / "state/primacy/main/ballot"
    kept = unpacked(ballot.read_bytes()).ballot
    assert kept is not None
    node = kept.lists[0].voters[0]
    mark = Ballot(0, 0, "", 0, 0, 0, (ListRecord("list", (node, "x", "y"), confirmed=False),), void=True)
    ballot.write_bytes(packed(mark))
    agent = start("--restart", "never", "--", "true")
    assert agent.ends() == 5
    assert "tells that it was listed with x, y" in agent.err.read_text()
    ballot.unlink()
    assert start("--restart", "never", "--", "true").ends() == 0


def test_another_name_for_the_node_needs_an_operator(start: Start, tmp_path: Path) -> None:
    assert start("--restart", "never", "--", "true").ends() == 0
    command = [sys.executable, "-m", "primacy.cli.main", "--node", "b", "run", "--state-dir", str(tmp_path / "state")]
    result = subprocess.run([*command, "--", "true"], capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert result.returncode == 5
    assert "is the ballot of node a, and this is node b: say --node a" in result.stderr


def test_a_state_folder_that_is_not_private_is_refused(start: Start, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o750)
    agent = start("--", "true", state="open")
    assert agent.ends() == 4
    assert agent.err.read_text() == (
        f"primacy: the state folder {tmp_path}/open is open to others (mode 0750): chmod 700 {tmp_path}/open\n"
    )


def test_no_two_runs_overlap_whatever_is_killed_or_stopped(start: Start, tmp_path: Path) -> None:
    """Every process of every run stamps the clock into a file each millisecond; (token, run) orders them."""
    stamps = str(tmp_path / "stamps")
    stamp.make_file(stamps)
    command_ = (interpreter(), "-I", "-S", stamp.__file__, stamps, "ignore-term", "escape")

    def runs() -> list[tuple[int, int]]:
        return sorted({(one.token, one.run) for one in stamp.read(stamps) if one.kind == stamp.ESCAPED})

    def next_run(agent: Running, before: int) -> None:
        agent.until(lambda: len(runs()) > before, f"run {before + 1}")

    agent = start("--", *command_)
    next_run(agent, 0)
    second = start("--", *command_)
    second.said("waits for process")
    agent.process.kill()  # the agent
    next_run(second, 1)
    os.kill(second.pid(), signal.SIGKILL)  # the command
    next_run(second, 2)
    os.kill(guard_of(second, second.pid(run=2)), signal.SIGKILL)  # the guard
    next_run(second, 3)
    second.signal(signal.SIGSTOP)  # the agent, longer than the hold
    last = runs()[-1]
    second.until(lambda: silent(stamps, last), "the end of the work")
    second.signal(signal.SIGCONT)
    next_run(second, 4)
    second.signal(signal.SIGTERM)
    second.said("was asked to end: ")
    second.signal(signal.SIGTERM)
    assert second.ends() == 0
    one_at_a_time(stamp.read(stamps))


def test_an_agent_that_is_late_says_so_before_the_reserve_is_gone(start: Start) -> None:
    """What makes it late may make the kernel's kill late; half of what the profile keeps for that is the limit."""
    timing = PROFILES["lan"]
    reserve_ms = timing.hold_ms - timing.deadman_at_ms
    with Canary(reserve_ms / 2, reserve_ms / 4) as canary:
        agent = start("--", "sh", "-c", TELL + "exec sleep 60")
        agent.lines()
        agent.signal(signal.SIGSTOP)
        time.sleep((timing.heartbeat_ms + reserve_ms // 2 + 50) / 1_000)
        agent.signal(signal.SIGCONT)
        agent.said(" ms late: this machine stood still, or has too much to do. If it did so at the end of a hold")
        assert "300 ms are kept for that" in agent.err.read_text()
        starts = len(agent.lines())
        agent.signal(signal.SIGTERM)
        assert agent.ends() == 0
    (events,) = agent.err.parent.rglob("events.jsonl")
    late = [each["code"] for each in map(json.loads, events.read_text().splitlines())].count("late")
    assert late >= 1
    canary.judge((starts, late) == (1, 1), f"nothing else happened, but {starts} starts and {late} times late")


def silent(stamps: str, run: tuple[int, int]) -> bool:
    """Nobody of this run has stamped for a tenth of a second."""
    return all(stamp.now_ns() - one.last_ns > 10**8 for one in stamp.read(stamps) if (one.token, one.run) == run)


WEAK = (sys.executable, "-I", str(Path(__file__).parents[1] / "support/weak_containment.py"))
TRACED = ("setpriv", "--bounding-set=-sys_admin,-sys_ptrace")
"""As in most containers."""
can_be_weak = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to take a capability away")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_without_a_namespace_a_killed_guard_takes_all_of_the_command_along(start: Start) -> None:
    """What left the command by double fork and session once ran for seconds beside the next leader."""
    agent = start("--", "sh", "-c", "setsid sleep 60 & echo $!; exec sleep 61", under=TRACED)
    escaped = int(agent.lines()[0])
    first = agent.err.read_text().splitlines()[0]
    assert "info  containment is strong (ptrace): the guard traces every process of the command, for no pid" in first
    pid = agent.pid()
    os.kill(guard_of(agent, pid), signal.SIGKILL)
    agent.said("lost the guard of run 1")
    agent.lines(2)
    safe(not alive(escaped), "something of it lives")
    safe(not alive(pid), "something of it lives")
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0


@can_be_weak
def test_where_containment_is_weak_it_says_so_and_still_takes_the_tree_along(start: Start) -> None:
    agent = start("--", "sh", "-c", "setsid sleep 60 & echo up; wait", under=WEAK)
    agent.lines()
    assert "warn  containment is weak: " in agent.err.read_text().splitlines()[0]
    pid = agent.pid()
    tree = [pid, *children(pid)]
    agent.process.kill()
    agent.until(lambda: not any(alive(each) for each in tree), "the end of the tree")


@can_be_weak
def test_strong_containment_may_be_required(start: Start) -> None:
    agent = start("--require-containment", "strong", "--", "true", under=WEAK)
    assert agent.ends() == 4
    said = agent.err.read_text()
    assert said.startswith("primacy: strong containment is required, and containment is weak: ")
    assert len(said.splitlines()) == 1


@can_be_weak
def test_several_nodes_require_strong_containment(start: Start, tmp_path: Path) -> None:
    """What left the command would run beside the next leader's: whoever accepts that says so."""
    assert entry.run(["new", "--nodes", "3", "--dir", str(tmp_path / "three")]) == 0
    call = ("--config", str(tmp_path / "three" / "primacy.yaml"), "--node", "a", "--", "true")
    agent = start(*call, under=WEAK)
    assert agent.ends() == 4
    said = agent.err.read_text()
    assert said.startswith("primacy: strong containment is required of several nodes, and containment is weak: ")
    assert said.endswith("; or accept it as it is, with --require-containment any\n")
    assert "to make it strong, allow ptrace" in said
    asked = start("--require-containment", "any", *call, under=WEAK)
    asked.said("waits for")
    assert "warn  containment is weak: " in asked.err.read_text().splitlines()[0]
    asked.signal(signal.SIGTERM)
    assert asked.ends() == 0


@can_be_weak
def test_a_node_on_a_lease_requires_strong_containment(start: Start, tmp_path: Path) -> None:
    """Its file may name no other node, and yet any may take the lease."""
    agent = start("--store", f"sqlite:///{tmp_path}/s.db", "--", "true", under=WEAK)
    assert agent.ends() == 4
    said = agent.err.read_text()
    assert said.startswith("primacy: strong containment is required on a lease, and containment is weak: ")
    assert said.endswith("; or accept it as it is, with --require-containment any\n")


@can_be_weak
def test_what_a_lost_guard_held_keeps_the_next_start_away(start: Start) -> None:
    """Weak: a process that left the command outlives a killed guard, and has the run lock; nothing starts beside it."""
    agent = start("--", "sh", "-c", "setsid sleep 60 & echo $!; exec sleep 61", under=WEAK)
    escaped = int(agent.lines()[0])
    pid = agent.pid()
    os.kill(guard_of(agent, pid), signal.SIGKILL)
    agent.said("lost the guard of run 1")
    agent.said("waits for the run lock: something of an earlier start still lives")
    assert alive(escaped)
    assert len(agent.lines()) == 1
    os.kill(escaped, signal.SIGKILL)
    agent.lines(2)
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0


def test_a_bug_of_ours_ends_the_agent_and_the_guard_ends_the_command(start: Start, tmp_path: Path) -> None:
    """Half an agent would be worse than none."""
    broken = (
        "import sys; from primacy.cli import main; from primacy.supervise.machine import Watchdog\n"
        "def fail(*_): raise AssertionError('planted')\n"
        "Watchdog.renewed = fail\n"
        f"sys.exit(main.run(['run', '--state-dir', {str(tmp_path / 'state')!r}, '--', 'sleep', '60']))"
    )
    agent = start(under=(sys.executable, "-c", broken))
    pid = agent.pid()
    assert agent.ends() == 70
    agent.until(lambda: not alive(pid), "the end of the command")
    assert "a fault of primacy itself, please report it: AssertionError: planted" in agent.err.read_text()
