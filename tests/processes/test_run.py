"""`primacy run` with real processes: it starts, starts again, stops, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from primacy.settings.timing import PROFILES
from tests.support.canary import beside_a_canary
from tests.support.real_nodes import interpreter
from tests.support.run_process import WITHIN_S, Start, alive, children, start
from tests.support.safety_checks import safe, tokens_grow

pytestmark = [pytest.mark.moments(order=50), pytest.mark.ordinary]

__all__ = ["start"]

TELL = 'echo "$PRIMACY_TOKEN $PRIMACY_RUN $PRIMACY_TERM $PRIMACY_NODE $PRIMACY_ELECTION";'


# --- starting ---------------------------------------------------------------------------------------------------------


@beside_a_canary(100)
def test_the_command_runs_within_a_second_at_the_first_start_and_at_every_other(start: Start) -> None:
    """The best of three, for other tests share the processors; the median on a quiet machine is about 0.3 s.

    Where an interpreter alone takes long to start, so may we.
    """
    took_s, tokens, bare_s = [], [], []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
        bare_s.append(time.monotonic() - began)
        agent = start("--restart", "never", "--", "sh", "-c", TELL)
        tokens.append(agent.lines()[0].split()[0])
        took_s.append(time.monotonic() - agent.began)
        assert agent.ends() == 0
    tokens_grow(map(int, tokens))
    assert min(took_s) < max(1.0, 10 * min(bare_s)), (took_s, bare_s)


def test_the_first_line_says_the_containment_and_every_line_its_time_and_gravity(start: Start) -> None:
    agent = start("--restart", "never", "--", "true")
    agent.ends()
    lines = agent.err.read_text().splitlines()
    assert re.search(r"(info|warn) +containment is (strong \(\w+\)|weak): ", lines[0])
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (debug|info |warn |error) \S", line), line


def test_what_the_command_is_told(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMACY_SECRET", "of another agent")
    agent = start("--election", "nightly", "--restart", "never", "--", "sh", "-c", TELL + "env | grep -c ^PRIMACY_")
    first, count = agent.lines(2)
    token, run, term, node, election = first.split()
    assert (run, term, node, election) == ("1", "1", "a", "nightly")
    assert abs(int(token) / 1_000 - time.time()) < 120
    assert count == "6"
    assert agent.ends() == 0


def test_the_command_has_no_descriptors_but_the_three(start: Start) -> None:
    agent = start(
        "--restart", "never", "--", interpreter(), "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"
    )
    assert agent.lines()[0] == "['0', '1', '2', '3']"  # the last one is the look itself
    assert agent.ends() == 0


def test_the_lease_file_follows_the_renewals_and_goes_with_the_work(start: Start) -> None:
    agent = start("--", "sh", "-c", "echo $PRIMACY_LEASE_FILE; exec sleep 60")
    path = Path(agent.lines()[0])
    first = json.loads(path.read_text())
    assert {"election", "node", "term", "token", "run"} < first.keys()
    later = agent.until(
        lambda: (
            (now := json.loads(path.read_text()))["valid_until_boottime_ms"] > first["valid_until_boottime_ms"] and now
        ),
        "a renewal",
    )
    assert later["token"] == first["token"]
    assert abs(later["valid_until_unix_ms"] / 1_000 - time.time()) < WITHIN_S
    agent.signal(signal.SIGTERM)
    agent.ends()
    assert not path.exists()


def test_output_to_files_and_a_folder_of_its_own(start: Start, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    args = ("--cwd", "there", "--stdout", "o", "--stderr", "e", "--restart", "never")
    for _ in range(2):
        agent = start(*args, "--", "sh", "-c", "pwd; echo oops >&2")
        assert agent.ends() == 0
        assert agent.out.read_text() == ""
    assert (tmp_path / "o").read_text() == f"{tmp_path}/there\n" * 2
    assert (tmp_path / "e").read_text() == "oops\noops\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")
def test_the_command_runs_as_another_user(start: Start, tmp_path: Path) -> None:
    script = 'id -un; cat "$PRIMACY_LEASE_FILE" | cut -c1-11; echo $USER'
    agent = start("--user", "nobody", "--cwd", "/", "--restart", "never", "--", "sh", "-c", script)
    assert agent.lines(3) == ["nobody", '{"election"', "nobody"]
    assert agent.ends() == 0


# --- ending and starting again ----------------------------------------------------------------------------------------


def test_after_a_crash_it_is_started_again_with_the_same_token_and_the_next_run(start: Start) -> None:
    agent = start("--", "sh", "-c", TELL + '[ "$PRIMACY_RUN" -lt 3 ] && exit 1; exec sleep 60')
    told = [line.split()[:3] for line in agent.lines(3)]
    assert [run for _, run, _ in told] == ["1", "2", "3"]
    assert len({(token, term) for token, _, term in told}) == 1
    assert "starts it again in 100 ms (run 2)" in agent.err.read_text()
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0


@pytest.mark.parametrize(
    ("restart", "script", "code"),
    [
        ("never", "exit 7", 7),
        ("never", "exit 0", 0),
        ("never", "kill -KILL $$", 128 + 9),
        ("never", "kill -TERM $$", 128 + 15),
        ("on-failure", '[ "$PRIMACY_RUN" = 2 ]', 0),
    ],
)
def test_the_agent_ends_with_the_commands_own_code(start: Start, restart: str, script: str, code: int) -> None:
    assert start("--restart", restart, "--", "sh", "-c", script).ends() == code


def test_what_the_command_leaves_behind_is_cleared_before_the_next_start(start: Start) -> None:
    """G10: the grandchild of the first run is gone when the second one starts."""
    script = 'if [ "$PRIMACY_RUN" = 1 ]; then setsid sleep 61 & exit 1; fi; pgrep -c -x sleep; exec sleep 60'
    agent = start("--", "sh", "-c", script)
    assert agent.lines()[0] == "0"
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0


# --- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGHUP, 0)])
def test_a_signal_stops_the_tree_in_order(start: Start, number: int, code: int) -> None:
    script = 'trap "echo bye; exit 0" TERM; setsid sleep 60 & echo up; wait'
    agent = start("--", "sh", "-c", script)
    agent.lines()
    pid = agent.pid()
    tree = [pid, *children(pid)]
    agent.signal(number)
    assert agent.ends() == code
    assert agent.out.read_text() == "up\nbye\n"
    safe(not any(alive(each) for each in tree), "something of it lives")
    assert "its work is confirmed gone and released" in agent.err.read_text()


def test_a_command_that_ignores_term_is_killed_after_its_stop_time(start: Start) -> None:
    agent = start("--stop-ms", "150", "--", "sh", "-c", 'trap "" TERM; echo up; while :; do sleep 60; done')
    agent.lines()
    pid = agent.pid()
    asked = time.monotonic()
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0
    assert time.monotonic() - asked >= 0.15
    safe(not alive(pid), "something of it lives")


@beside_a_canary(PROFILES["fast"].heartbeat_ms)
def test_a_planned_stop_may_last_longer_than_the_hold(start: Start) -> None:
    """G9: the hold of this profile is a second; the command takes more than that, and is not killed."""
    script = 'trap "sleep 1.2; echo finished; exit 0" TERM; echo up; while :; do sleep 0.05; done'
    agent = start("--profile", "fast", "--stop-ms", "10000", "--", "sh", "-c", script)
    agent.lines()
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0
    assert agent.out.read_text() == "up\nfinished\n"


def test_asked_twice_it_kills_at_once(start: Start) -> None:
    agent = start("--stop-ms", "60000", "--", "sh", "-c", 'trap "" TERM; echo up; while :; do sleep 60; done')
    agent.lines()
    agent.pid()
    agent.signal(signal.SIGINT)
    agent.said("is told to end, and is killed if it lasts 60,000 ms more")
    agent.signal(signal.SIGINT)
    assert agent.ends() == 130


def test_nothing_is_left_of_the_agents_own_processes(start: Start) -> None:
    agent = start("--", "sleep", "60")
    agent.pid()
    guards = agent.until(lambda: len(found := children(agent.process.pid)) == 2 and found, "a guard and a spare one")
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0
    assert not any(alive(pid) for pid in guards)
