"""`primacy run` with real processes: it starts, starts again, stops, waits its turn, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import stamp
from tests.canary import beside_a_canary
from tests.crowd import interpreter

from primacy.agent.child import ORDER_BYTES_MAX, child_of, told
from primacy.agent.lease_file import lease_folder
from primacy.agent.log import Level, Log
from primacy.agent.state import state_root
from primacy.agent.words import of_exit, of_note
from primacy.cli import main as entry
from primacy.cli.run import run as command
from primacy.election.model import Leadership
from primacy.errors import CannotHere, UsageError
from primacy.node.clock import HandClock, SystemClock
from primacy.settings import of_mapping
from primacy.settings.schema import Settings
from primacy.settings.schema_work import Run
from primacy.settings.timing import PROFILES
from primacy.watchdog.machine import BACK_OFF_MS, BACK_OFF_MS_MAX, FAILURES_MAX, STEADY_MS
from primacy.watchdog.vocabulary import Happened, Note

FILES = Path(__file__).parent / "files"
WITHIN_S = 20.0
"""Far more than anything here takes: only a hang reaches it."""
TELL = 'echo "$PRIMACY_TOKEN $PRIMACY_RUN $PRIMACY_TERM $PRIMACY_NODE $PRIMACY_ELECTION";'


class Running:
    """One `primacy run`, its output in files."""

    def __init__(
        self, folder: Path, number: int, *args: str, state: str = "state", under: tuple[str, ...] = ()
    ) -> None:
        self.out, self.err = folder / f"out{number}", folder / f"err{number}"
        command = [sys.executable, "-m", "primacy.cli.main", "run", "--state-dir", str(folder / state), *args]
        command = [*under, *command]
        self.began = time.monotonic()
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder)

    def until(self, check: Callable[[], Any], what: str) -> Any:
        """Looks every few milliseconds: what is waited for is another process."""
        last = time.monotonic() + WITHIN_S
        while time.monotonic() < last:
            found = check()
            if found:
                return found
            time.sleep(0.003)
        raise AssertionError(f"never came: {what}\n{self.err.read_text()}\n{self.out.read_text()}")

    def lines(self, count: int = 1) -> list[str]:
        """The first lines that the command prints, once they are there."""
        self.until(lambda: self.out.read_text().count("\n") >= count, f"{count} lines")
        return self.out.read_text().splitlines()

    def said(self, text: str) -> re.Match[str]:
        return self.until(lambda: re.search(text, self.err.read_text()), text)  # type: ignore[no-any-return]

    def pid(self, run: int = 1, nth: int = 1) -> int:
        """The command's process number, of the n-th start that is the run-th of its term."""
        pattern = rf"the command runs: process (\d+), run {run}\b"

        def look() -> str | None:
            found = re.findall(pattern, self.err.read_text())
            return found[nth - 1] if len(found) >= nth else None

        return int(self.until(look, pattern))

    def ends(self) -> int:
        return self.process.wait(WITHIN_S)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts agents, and leaves none of them behind."""
    started: list[Running] = []

    def begin(*args: str, state: str = "state", under: tuple[str, ...] = ()) -> Running:
        started.append(Running(tmp_path, len(started), *args, state=state, under=under))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.signal(signal.SIGCONT)
            one.process.kill()
            one.process.wait(WITHIN_S)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    found = []
    for entry_ in os.listdir("/proc"):
        if entry_.isdigit():
            try:
                parent = int(Path(f"/proc/{entry_}/stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == pid:
                found.append(int(entry_))
    return found


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
    assert min(took_s) < max(1.0, 10 * min(bare_s)), (took_s, bare_s)
    assert sorted(tokens) == tokens
    assert len(set(tokens)) == 3


def test_the_first_line_says_the_containment_and_every_line_its_time_and_gravity(start: Start) -> None:
    agent = start("--restart", "never", "--", "true")
    agent.ends()
    lines = agent.err.read_text().splitlines()
    assert re.search(r"(info|warn) +containment is (strong|weak): ", lines[0])
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
    assert not any(alive(each) for each in tree)
    assert "its work is confirmed gone and released" in agent.err.read_text()


def test_a_command_that_ignores_term_is_killed_after_its_stop_time(start: Start) -> None:
    agent = start("--stop-ms", "150", "--", "sh", "-c", 'trap "" TERM; echo up; while :; do sleep 60; done')
    agent.lines()
    pid = agent.pid()
    asked = time.monotonic()
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0
    assert time.monotonic() - asked >= 0.15
    assert not alive(pid)


@beside_a_canary(PROFILES["fast"].beat_ms)
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
    agent.said("is told to end, and killed in 60,000 ms")
    agent.signal(signal.SIGINT)
    assert agent.ends() == 130


def test_nothing_is_left_of_the_agents_own_processes(start: Start) -> None:
    agent = start("--", "sleep", "60")
    agent.pid()
    guards = agent.until(lambda: len(found := children(agent.process.pid)) == 2 and found, "a guard and a spare one")
    agent.signal(signal.SIGTERM)
    assert agent.ends() == 0
    assert not any(alive(pid) for pid in guards)


# --- what goes wrong --------------------------------------------------------------------------------------------------


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
    assert not any(alive(each) for each in tree)
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
    assert not alive(pid)
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


def test_another_name_for_the_node_needs_an_operator(start: Start, tmp_path: Path) -> None:
    assert start("--restart", "never", "--", "true").ends() == 0
    command = [sys.executable, "-m", "primacy.cli.main", "--node", "b", "run", "--state-dir", str(tmp_path / "state")]
    result = subprocess.run([*command, "--", "true"], capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert result.returncode == 5
    assert "its new list of nodes to be reported by a" in result.stderr


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
    assert stamp.overlaps(stamp.read(stamps)) == []


def silent(stamps: str, run: tuple[int, int]) -> bool:
    """Nobody of this run has stamped for a tenth of a second."""
    return all(stamp.now_ns() - one.last_ns > 10**8 for one in stamp.read(stamps) if (one.token, one.run) == run)


WEAK = ("setpriv", "--bounding-set=-sys_admin")
can_be_weak = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv to take a capability away"
)


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
        "import sys; from primacy.cli import main; from primacy.watchdog.machine import Watchdog\n"
        "def fail(*_): raise AssertionError('planted')\n"
        "Watchdog.renewed = fail\n"
        f"sys.exit(main.run(['run', '--state-dir', {str(tmp_path / 'state')!r}, '--', 'sleep', '60']))"
    )
    agent = start(under=(sys.executable, "-c", broken))
    pid = agent.pid()
    assert agent.ends() == 70
    agent.until(lambda: not alive(pid), "the end of the command")
    assert "a fault of primacy itself, please report it: AssertionError: planted" in agent.err.read_text()


# --- wrong calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "code", "part"),
    [
        ([], 2, "there is no command: primacy run -- COMMAND"),
        (["--", "no-such-command"], 2, "there is no command no-such-command in PATH"),
        (["--", "./nothing"], 2, "the command ./nothing is not there"),
        (["--", "/"], 2, "the command / cannot be executed"),
        (["--", ""], 2, "first word is empty"),
        (["--election", "a/b", "--", "true"], 2, "--election 'a/b'"),
        (["--election", "..", "--", "true"], 2, "--election '..'"),
        (["--profile", "moon", "--", "true"], 2, "raft has lab, fast, lan, wan"),
        (["--profile", "ghoti", "--", "true"], 2, "does not fit the strategy raft"),
        (["--restart", "sometimes", "--", "true"], 2, "--restart"),
        (["--stop-ms", "-1", "--", "true"], 2, "--stop-ms"),
        (["--stop-ms", "soon", "--", "true"], 2, "--stop-ms"),
        (["--require-containment", "iron", "--", "true"], 2, "--require-containment"),
        (["--frobnicate", "--", "true"], 2, "--frobnicate"),
        (["--strategy", "bully", "--", "true"], 2, "--allow-split-brain"),
        (["--strategy", "ring", "--", "true"], 2, "does not promise at most one"),
        (["--strategy", "ring", "--allow-split-brain", "--", "true"], 2, "needs other nodes"),
        (["--strategy", "lease", "--", "true"], 2, "needs a store: say --store URL"),
        (["--user", "nobody-at-all", "--", "true"], 2, "--user nobody-at-all"),
        (["--cwd", "nowhere", "--", "true"], 2, "nowhere: there is no such folder"),
        (["--stdout", "nowhere/o", "--", "true"], 2, "--stdout nowhere/o"),
        (["--stderr", ".", "--", "true"], 2, "--stderr .: this is a folder"),
        (["--config", "nowhere.yaml", "--", "true"], 2, "nowhere.yaml: there is no such file"),
        (["--config", str(FILES / "complete.yaml"), "--", "true"], 2, "--node with one of a, b, c"),
        (["--config", str(FILES / "ghoti_first.yaml"), "--", "true"], 2, "--allow-split-brain"),
        (["--state-dir", "/proc/nowhere", "--", "true"], 4, "the state folder /proc/nowhere cannot be used"),
    ],
)
def test_nonsense_gets_one_sentence(
    args: list[str],
    code: int,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry.run(["run", *args]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert part in err
    assert err.startswith("primacy: ")
    assert len(err.splitlines()) <= 2


def test_elsewhere_than_on_linux_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert entry.run(["run", "--", "true"]) == 4
    assert capsys.readouterr().err.startswith("primacy: primacy run needs Linux: ")


def test_a_file_says_it_all(start: Start, tmp_path: Path) -> None:
    (tmp_path / "primacy.yaml").write_text(
        "cluster: {name: one, manager: {nodes: {solo: {addr: '127.0.0.1:7400'}}}, node: solo}\n"
        "election: {name: job, profile: fast}\n"
        "run: {command: [sh, -c, 'echo $PRIMACY_NODE $HUE'], environment: {HUE: blue}, restart: never, cwd: sub}\n"
        "log: {format: json}\n"
    )
    (tmp_path / "sub").mkdir()
    agent = start()
    assert agent.ends() == 0
    assert agent.lines() == ["solo blue"]
    assert (tmp_path / "state/one/job/ballot").is_file()
    assert {json.loads(line)["level"] for line in agent.err.read_text().splitlines()} <= {"info", "warn"}


# --- small parts ------------------------------------------------------------------------------------------------------


def test_where_the_state_is_kept() -> None:
    assert state_root(Settings(), {}, 0) == "/var/lib/primacy"
    assert state_root(Settings(), {"XDG_STATE_HOME": "/x", "HOME": "/h"}, 7) == "/x/primacy"
    assert state_root(Settings(), {"XDG_STATE_HOME": "not/absolute", "HOME": "/h"}, 7) == "/h/.local/state/primacy"
    assert state_root(Settings(state_dir="state", source="/etc/p/primacy.yaml"), {}, 0) == "/etc/p/state"
    with pytest.raises(CannotHere, match="--state-dir"):
        state_root(Settings(), {}, 7)


def test_the_lease_stands_beside_the_state_where_there_is_no_other_place(tmp_path: Path) -> None:
    uid = os.geteuid() or 7
    assert lease_folder("/state", {}, uid) == "/state"
    assert lease_folder("/state", {"XDG_RUNTIME_DIR": "/nowhere"}, uid) == "/state"
    (tmp_path / "primacy").mkdir(mode=0o777)
    (tmp_path / "primacy").chmod(0o777)
    assert lease_folder("/state", {"XDG_RUNTIME_DIR": str(tmp_path)}, uid) == "/state"


@pytest.mark.skipif(os.geteuid() != 0, reason="the system's folders are root's")
def test_the_lease_of_root_is_not_on_a_disk_if_there_is_memory(tmp_path: Path) -> None:
    folder = Path(lease_folder(str(tmp_path), {}, 0))
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
        memory = [base for base in ("/run", "/dev/shm") if [base, "tmpfs"] in mounts]
        assert str(folder.parents[1]) == (memory or ["/run"])[0]
    finally:
        folder.rmdir()


def test_a_reader_that_stopped_reading_does_not_stop_the_log() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 65_536)
    except BlockingIOError:
        os.set_blocking(writing, True)
    log = Log(HandClock(), handle=writing)
    log.info("nobody reads this")
    log.debug("nor this")
    assert log.lost == 1
    os.set_blocking(reading, False)
    while len(os.read(reading, 1 << 20)) == 1 << 20:
        pass
    log.warn("a line\nwith a break")
    assert (
        os.read(reading, 4096)
        .decode()
        .endswith("warn  a line?with a break (1 lines before this one found no reader)\n")
    )
    for handle in (reading, writing):
        os.close(handle)
    log.error("to nobody at all")
    assert log.lost == 1


@pytest.mark.parametrize("what", list(Happened))
def test_every_note_has_a_sentence(what: Happened) -> None:
    level, text = of_note(Note(what, 1, 137, "why"))
    assert isinstance(level, Level)
    assert 10 < len(text) < 120


def test_exit_codes_in_words() -> None:
    assert [of_exit(code) for code in (0, 137, 250)] == ["with code 0", "by signal SIGKILL", "by signal 122"]


def test_a_command_too_large_for_a_packet_is_refused() -> None:
    run = Run(command=("true",), environment={"BIG": "x" * ORDER_BYTES_MAX})
    with pytest.raises(UsageError, match="smaller environment"):
        child_of(run, "", None, None, os.environ)


def test_the_settings_reach_the_command() -> None:
    made = of_mapping({"run": {"command": ["true"], "stop_signal": "INT", "user": ""}})
    child = child_of(made.run, "", None, None, {"PRIMACY_TOKEN": "1", "PATH": os.environ["PATH"]})
    assert child.stop_signal == signal.SIGINT
    assert "PRIMACY_TOKEN" not in child.environment
    assert child.argv[0].endswith("/true")
    assert SystemClock().now_ms() > 0


def test_the_page_names_every_option_variable_and_number() -> None:
    page = (Path(__file__).parents[1] / "docs/run.md").read_text()
    for option in command.params:
        if option.name != "command":
            assert f"`{option.opts[0]}" in page, option.opts
    told_ = told("main", "a", Leadership("a", 1, 2, 3), 1, "/f")
    others = {"PRIMACY_PREDECESSOR", "PRIMACY_EVENT", "PRIMACY_EXIT_CODE", "PRIMACY_REASON"}
    assert set(re.findall(r"PRIMACY_[A-Z_]+", page)) == {*told_, *others}
    for number in (
        f"{STEADY_MS // 1_000} s",
        f"{BACK_OFF_MS} ms",
        f"{BACK_OFF_MS_MAX // 1_000} s",
        f"{FAILURES_MAX} quick",
    ):
        assert number in page
    assert f"| `--stop-ms MS` | {Run().stop_ms} |" in page
