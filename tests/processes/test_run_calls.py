"""`primacy run` called wrongly, by a file, and the small parts of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from primacy.agent.sentences import exit_sentence, note_sentence
from primacy.agent.state import state_root
from primacy.cli import main as entry
from primacy.cli.run import run as command
from primacy.election.model import Leadership
from primacy.errors import CannotHere, UsageError
from primacy.node.clock import HandClock, SystemClock
from primacy.node.log import Level, Log
from primacy.settings import of_mapping
from primacy.settings.schema import Settings
from primacy.settings.schema_work import Run
from primacy.supervise.child import ORDER_BYTES_MAX, child_of, told
from primacy.supervise.lease_folder import lease_folder
from primacy.supervise.machine import BACK_OFF_MS, BACK_OFF_MS_MAX, FAILURES_MAX, STEADY_MS
from primacy.supervise.vocabulary import Happened, Note
from tests.support.run_process import Start, start

pytestmark = [pytest.mark.beside(order=560), pytest.mark.ordinary]

__all__ = ["start"]

FILES = Path(__file__).parents[1] / "files"


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
    for uid in (0, 7):
        assert state_root(Settings(), {"PRIMACY_STATE_DIR": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}, uid) == "/s"
        assert state_root(Settings(state_dir="/told"), {"PRIMACY_STATE_DIR": "/s"}, uid) == "/told"
        with pytest.raises(CannotHere, match="PRIMACY_STATE_DIR = here: the whole path of a folder"):
            state_root(Settings(), {"PRIMACY_STATE_DIR": "here"}, uid)


def test_no_test_sees_the_state_of_the_system_or_of_the_user() -> None:
    """Nor does a command that it starts."""
    call = "import os; from primacy.agent.state import *; print(state_root(Settings(), os.environ, os.geteuid()))"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True)
    own = Path(done.stdout.strip())
    assert own == Path(os.environ["PRIMACY_STATE_DIR"])
    assert not own.exists()
    assert own.parent == Path(os.environ["HOME"])
    assert own.parent not in (Path("/root"), Path("/var/lib"))
    assert not [name for name in os.environ if name.startswith("XDG_")]


def test_the_lease_stands_beside_the_state_where_there_is_no_other_place(tmp_path: Path) -> None:
    uid = os.geteuid() or 7
    assert lease_folder("/state", {}, uid).path == "/state"
    assert lease_folder("/state", {"XDG_RUNTIME_DIR": "/nowhere"}, uid).path == "/state"
    (tmp_path / "primacy").mkdir(mode=0o777)
    (tmp_path / "primacy").chmod(0o777)
    assert lease_folder("/state", {"XDG_RUNTIME_DIR": str(tmp_path)}, uid).path == "/state"


@pytest.mark.skipif(os.geteuid() != 0, reason="the system's folders are root's")
def test_the_lease_of_root_is_not_on_a_disk_if_there_is_memory(tmp_path: Path) -> None:
    folder = lease_folder(str(tmp_path), {}, 0)
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
        memory = [base for base in ("/run", "/dev/shm") if [base, "tmpfs"] in mounts]
        assert str(Path(folder.path).parents[1]) == (memory or ["/run"])[0]
    finally:
        folder.close()


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
    level, text = note_sentence(Note(what, 1, 137, "why"))
    assert isinstance(level, Level)
    assert 10 < len(text) < 120


def test_exit_codes_in_words() -> None:
    assert [exit_sentence(code) for code in (0, 137, 250)] == ["with code 0", "by signal SIGKILL", "by signal 122"]


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
    page = (Path(__file__).parents[2] / "docs/run.md").read_text()
    for option in command.params:
        if option.name != "command":
            assert f"`{option.opts[0]}" in page, option.opts
    told_ = told("main", "a", Leadership("a", 1, 2, 3), 1, "/f")
    others = {"PRIMACY_STATE_DIR", "PRIMACY_PREDECESSOR", "PRIMACY_EVENT", "PRIMACY_EXIT_CODE", "PRIMACY_REASON"}
    assert set(re.findall(r"PRIMACY_[A-Z_]+", page)) == {*told_, *others}
    for number in (
        f"{STEADY_MS // 1_000} s",
        f"{BACK_OFF_MS} ms",
        f"{BACK_OFF_MS_MAX // 1_000} s",
        f"{FAILURES_MAX} quick",
    ):
        assert number in page
    assert f"| `--stop-ms MS` | {Run().stop_ms} |" in page
