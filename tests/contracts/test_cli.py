"""The command line: what it prints, with which exit code, and that nonsense gets one sentence, never a traceback."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from primacy import __version__, settings
from primacy.cli import main as entry
from primacy.cli.call import Call, SpanMs
from primacy.cli.new import write_secret
from primacy.election.model import Ballot, Member, MembersId, Register
from primacy.errors import (
    CannotHere,
    InUse,
    MissingExtra,
    NotReached,
    PrimacyError,
    Problem,
    Refused,
    SettingsError,
    Unsafe,
    UsageError,
)
from primacy.node.ballot import packed

NOBODY = 65534
FULL = os.strerror(errno.ENOSPC)
FILES = Path(__file__).parents[1] / "files"
OWN = (
    *("contract", "check", "new", "keygen"),
    *("status", "why", "step-down", "transfer", "pause", "resume", "init", "rejoin"),
)


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Runs a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Said:
        code = entry.run(list(args))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Said(code, out, err)

    return run


def process(*args: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "primacy.cli.main", *args]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **environment}, timeout=60
    )


# --- help -----------------------------------------------------------------------------------------------------------


def test_without_arguments_a_short_friendly_help(say: Callable[..., Said]) -> None:
    said = say()
    assert (said.code, said.err) == (0, "")
    assert len(said.out.splitlines()) < 15
    assert "primacy demo" in said.out


def test_help_and_version(say: Callable[..., Said]) -> None:
    assert say("--help").out == say("-h").out
    for name, lazy in entry.COMMANDS.items():
        assert f"  {name} " in say("--help").out
        assert lazy.help.endswith(".")
    assert say("--version") == (0, f"primacy {__version__}\n", "")


def test_the_version_is_the_one_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{__version__}"' in text


@pytest.mark.parametrize("command", OWN)
def test_every_command_explains_itself(say: Callable[..., Said], command: str) -> None:
    said = say(command, "--help")
    assert said.code == 0
    assert "Usage: primacy " + command in said.out


def test_help_imports_no_command_and_nothing_heavy() -> None:
    """What `primacy --help` may cost is click; everything else waits until it is needed."""
    command = [sys.executable, "-X", "importtime", "-m", "primacy.cli.main", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    loaded = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")}
    assert "click" in loaded
    heavy = (
        "rich",
        "yaml",
        "asyncio",
        "dataclasses",
        "hypothesis",
        "primacy.sim",
        "primacy.election",
        "primacy.settings",
    )
    assert not [name for name in loaded if name in heavy or name.startswith(tuple(f"{h}." for h in heavy))]
    ours = sorted(name for name in loaded if name.startswith("primacy"))
    assert ours == ["primacy", "primacy.cli", "primacy.cli.call", "primacy.errors"]


def test_importing_the_package_or_the_times_loads_nothing_heavy() -> None:
    heavy = ["yaml", "rich", "click", "asyncio", "socket", "dataclasses", "primacy.settings.schema"]
    code = f"import sys, primacy, primacy.settings.timing; print([m for m in sys.modules if m in {heavy}])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"


# --- wrong calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["contrct"], ["There is no command 'contrct'", "is `contract` meant?"]),
        (["zzz"], ["There is no command 'zzz'", "demo, dashboard, drill, simulate, contract"]),
        (["x" * 5000], ["There is no command"]),
        (["--frobnicate"], ["--frobnicate"]),
        (["contract", "--profle", "lan"], ["--profle", "--profile"]),
        (["contract", "--profile"], ["--profile"]),
        (["contract", "--profile", "moon"], ["--profile moon", "lab, fast, lan, wan"]),
        (["contract", "--profile", "lan", "--strategy", "paxos"], ["--strategy", "paxos", "raft"]),
        (["contract", "--profile", "ghoti", "--strategy", "raft"], ["--profile = ghoti", "raft has lab, fast"]),
        (["contract", "--profile", "coordinator", "--strategy", "raft"], ["does not fit the strategy raft"]),
        (["contract", "--profile", "lan", "--config", "x"], ["--profile and --config exclude each other"]),
        (["contract", "--config", "nowhere.yaml"], ["nowhere.yaml: there is no such file"]),
        (["contract", "--stop-after-loss", "soon"], ["--stop-after-loss", "soon"]),
        (["contract", "--stop-after-loss", "-1"], ["--stop-after-loss", "-1"]),
        (["contract", "--profile", "ghoti", "--stop-after-loss", "5"], ["bully holds nothing"]),
        (["contract", "surplus"], ["surplus"]),
        (["check"], ["there is no primacy.yaml here", "primacy new"]),
        (["check", "."], [".: this is a folder"]),
        (["--config", "nowhere.yaml", "check"], ["nowhere.yaml: there is no such file"]),
        (["new", "--nodes", "0"], ["--nodes", "0"]),
        (["new", "--nodes", "1000"], ["--nodes", "1000"]),
        (["members", "cancel", "--within", "soon"], ["--within 'soon': a span of time is 250ms, 3s, 2m"]),
        (["members", "cancel", "--within", "-3s"], ["--within '-3s': a span"]),
        (["members", "cancel", "--within", "3 weeks"], ["--within '3 weeks': a span"]),
        (["members", "cancel", "--within", "25h"], ["--within 25h: from 0 to 86400000 ms"]),
    ],
)
def test_nonsense_gets_one_sentence_and_exit_2(say: Callable[..., Said], args: list[str], parts: list[str]) -> None:
    said = say(*args)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("primacy: ")
    assert all(part in said.err for part in parts), said.err
    assert len(said.err.splitlines()) <= 2
    assert len(said.err) < 600


@pytest.mark.parametrize(
    ("text", "ms"), [("250ms", 250), ("3s", 3_000), ("2m", 120_000), ("0", 0), ("15000", 15_000), (" 1 h", 3_600_000)]
)
def test_spans_have_a_unit_or_are_milliseconds(text: str, ms: int) -> None:
    option = click.Option(["--within"])
    assert SpanMs().convert(text, option, None) == ms


def test_arguments_that_are_no_text(tmp_path: Path) -> None:
    """Bytes that no encoding knows reach us as lone surrogates; even they get a sentence."""
    command = [sys.executable.encode(), b"-m", b"primacy.cli.main", b"check", b"\xff\xfe.yaml"]
    result = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path, timeout=60)
    assert result.returncode == 2
    assert b"Traceback" not in result.stderr


# --- contract -------------------------------------------------------------------------------------------------------


def test_contract_draws_the_failover(say: Callable[..., Said]) -> None:
    said = say("contract")
    assert said.code == 0
    assert said.out.startswith("raft, profile lan\n")
    for part in ("old holder", "new holder", "3,030  X", "3,069  S", "39.0 ms", "1,100 ms", "3,000 ms", "containment"):
        assert part in said.out
    assert max(map(len, said.out.splitlines())) <= 150


def test_contract_of_bully_says_what_it_does_not_promise(say: Callable[..., Said]) -> None:
    said = say("contract", "--profile", "ghoti")
    assert said.code == 0
    assert "bully does not promise at most one" in said.out


def test_contract_in_json(say: Callable[..., Said]) -> None:
    after = json.loads(say("contract", "--profile", "fast", "--json").out)
    front = json.loads(say("--json", "contract", "--profile", "fast").out)
    assert after == front
    assert after["margin_ms"] > 0
    assert after["timing"]["hold_ms"] == 1000


def test_contract_of_a_file(say: Callable[..., Said]) -> None:
    said = say("contract", "--config", str(FILES / "complete.yaml"))
    assert said.code == 0
    assert "complete.yaml: raft, profile lan" in said.out
    assert say("--config", str(FILES / "complete.yaml"), "contract").out == said.out
    assert say("contract", "--config", str(FILES / "complete.yaml"), "--strategy", "ring").code == 2


def test_contract_refuses_what_is_unsafe_with_every_problem(say: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "primacy.yaml").write_text(
        "election:\n  timing: {hold_ms: 2750, deadman_at_ms: 2740, promise_ms: 2000, heartbeat_ms: 600}\n"
    )
    said = say("contract")
    assert (said.code, said.out) == (2, "")
    assert "3 problems in primacy.yaml" in said.err
    for part in ("deadman_at_ms = 2740", "hold_ms = 2750", "promise_ms = 2000", "heartbeat_ms = 600"):
        assert part in said.err


def test_contract_tells_the_hold_for_a_longer_stop(say: Callable[..., Said], tmp_path: Path) -> None:
    said = say("contract", "--stop-after-loss", "5000")
    assert "timing: {kill_at_ms: 6200, deadman_at_ms: 6600, hold_ms: 6900, promise_ms: 7079}" in said.out
    (tmp_path / "primacy.yaml").write_text(
        "election:\n  timing: {kill_at_ms: 6200, deadman_at_ms: 6600, hold_ms: 6900, promise_ms: 7079}\n"
    )
    assert json.loads(say("contract", "--json").out)["stop_after_loss_ms"] == 5000


# --- check ----------------------------------------------------------------------------------------------------------


def test_check_prints_the_canonical_form(say: Callable[..., Said], tmp_path: Path) -> None:
    write_secret(tmp_path / "secret")
    (tmp_path / "complete.yaml").write_text((FILES / "complete.yaml").read_text())
    said = say("check", "complete.yaml")
    assert said.code == 0
    assert "election.store is not used" in said.err
    (tmp_path / "primacy.yaml").write_text(said.out)
    assert say("check").out.splitlines()[1:] == said.out.splitlines()[1:]


def test_check_in_json(say: Callable[..., Said], tmp_path: Path) -> None:
    good = json.loads(say("check", str(FILES / "ghoti_first.yaml"), "--json").out)
    assert (good["ok"], good["node"], good["settings"]["cluster"]["pass"]) == (True, "node1", "********")
    (tmp_path / "primacy.yaml").write_text("log: {level: loud}\nfoo: 1\n")
    said = say("--json", "check")
    bad = json.loads(said.out)
    assert said.code == 2
    assert [p["path"] for p in bad["problems"]] == ["log.level", "foo"]


LISTED = "cluster: {name: x, secret_file: s, manager: {nodes: {a: {addr: 'h:1'}, b: {addr: 'h:2'}}}}\n"


def test_R12_check_says_how_the_members_differ_and_what_it_could_not_see(
    say: Callable[..., Said], tmp_path: Path
) -> None:
    """From what a node left on the disk; without that it says so."""
    (tmp_path / "primacy.yaml").write_text(LISTED)
    write_secret(tmp_path / "s")
    unseen = say("check", "--state-dir", "state")
    path = tmp_path / "state" / "x" / "main" / "ballot"
    assert unseen.code == 0
    assert "whether the members of the cluster are still the nodes of this file was not seen" in unseen.err
    assert str(path) in unseen.err
    assert not path.parent.exists(), "it only looks"
    members = (Member("a", address="h:1"), Member("c", address="h:3"))
    path.parent.mkdir(parents=True)
    path.write_bytes(packed(Ballot(5, 7, "", 500, 12, 3, (), register=Register(MembersId(4, 9), members))))
    seen = say("check", "--state-dir", "state")
    assert "the file names a,b; the members (version 9) are a,c (add b at h:2; remove c)" in seen.err
    assert f"({path} says so)" in seen.err
    said = json.loads(say("check", "--state-dir", "state", "--json").out)["members"]
    assert said == {"seen": str(path), "version": 9, "differ": ["add b at h:2", "remove c"]}
    path.write_bytes(path.read_bytes()[:-9])
    assert "was not seen" in say("check", "--state-dir", "state").err
    (tmp_path / "primacy.yaml").write_text("election: {store: {url: 'sqlite:///x'}}\n")
    assert "members" not in say("check").err


# --- new and keygen -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 25])
def test_new_writes_a_file_that_is_right(say: Callable[..., Said], tmp_path: Path, nodes: int) -> None:
    said = say("new", "--nodes", str(nodes), "--dir", "deep/er")
    assert said.code == 0
    made = settings.load(tmp_path / "deep/er/primacy.yaml")
    assert len(made.cluster.manager.nodes) == nodes
    assert made.cluster.first_start == "auto"
    secret = tmp_path / "deep/er/secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert len(bytes.fromhex(secret.read_text())) == 32


def test_new_never_writes_over_a_secret(say: Callable[..., Said], tmp_path: Path) -> None:
    assert say("new").code == 0
    before = (tmp_path / "secret").read_text()
    again = say("new")
    assert again.code == 2
    assert "primacy.yaml is there already" in again.err
    forced = say("new", "--force", "--nodes", "5")
    assert forced.code == 0
    assert "kept secret" in forced.out
    assert (tmp_path / "secret").read_text() == before
    assert len(settings.load(tmp_path / "primacy.yaml").cluster.manager.nodes) == 5


def test_new_in_a_place_that_cannot_be_written(say: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = say("new", "--dir", "file/below")
    assert said.code == 4
    assert "--dir file/below" in said.err


def test_keygen_makes_a_private_file_and_follows_no_link(say: Callable[..., Said], tmp_path: Path) -> None:
    assert say("keygen", "key").code == 0
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert say("keygen", "key").code == 2
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert say("keygen", "link").code == 2
    assert not (tmp_path / "elsewhere").exists()
    assert say("keygen").code == 0
    assert (tmp_path / "secret").read_text() != (tmp_path / "key").read_text()


# --- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("no"), 1),
        (UsageError("wrong"), 2),
        (SettingsError([Problem("a", "1", "wrong")]), 2),
        (NotReached("nobody"), 3),
        (InUse("taken"), 4),
        (CannotHere("not here"), 4),
        (MissingExtra("the cache", "cache"), 4),
        (Unsafe("ask somebody"), 5),
        (KeyboardInterrupt(), 130),
        (ValueError("a bug"), 70),
        (BrokenPipeError(), 0),
    ],
)
def test_every_error_has_its_exit_code(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(entry, "_invoke", fail)
    monkeypatch.setattr(entry, "_forget_output", lambda: None)
    said = say("anything")
    assert said.code == code
    assert said.out == ""
    if isinstance(error, PrimacyError):
        assert said.err == f"primacy: {error}\n"


def test_a_missing_extra_is_named_with_its_command() -> None:
    assert "pip install 'pyzmq>=26' 'lmdb>=1.5'" in str(MissingExtra("the cache", "cache"))


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """`primacy … | head -1`: the pipe is closed while we write."""
    command = f"{sys.executable} -m primacy.cli.main contract --json; echo $? >&2"
    script = f"set -o pipefail; ({command}) | true"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert result.stderr.strip() in ("0", "")


def test_a_closed_output_is_no_traceback() -> None:
    script = f"{sys.executable} -m primacy.cli.main contract >&-"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_full_disk_is_one_sentence() -> None:
    script = f"{sys.executable} -m primacy.cli.main contract > /dev/full"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (4, "primacy: No space left on device\n")


def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    """A pipe that nobody writes to keeps the command reading until the signal comes."""
    fifo = tmp_path / "never"
    os.mkfifo(fifo)
    child = subprocess.Popen(
        [sys.executable, "-m", "primacy.cli.main", "check", str(fifo)], stderr=subprocess.PIPE, text=True
    )
    keep = os.open(fifo, os.O_WRONLY)  # returns when the child has opened its end, and so is inside the command
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    os.close(keep)
    assert child.returncode == 130
    assert "Traceback" not in err


def test_output_that_is_no_terminal_is_plain() -> None:
    for environment in ({}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1", "NO_COLOR": "1"}):
        assert "\x1b" not in process("contract", **environment).stdout


def test_the_options_in_front_reach_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Call().file() is None
    (tmp_path / "primacy.yaml").write_text("")
    assert Call().file() == "primacy.yaml"
    assert Call(config="front").file() == "front"
    assert Call(config="front").file("own") == "own"


def test_options_of_members_stand_behind_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """Before it they would be left out in silence, and another node be asked."""
    assert entry.run(["members", "--state-dir", "x", "cancel"]) == 2
    assert "options stand behind the verb: primacy members cancel [OPTIONS]" in capsys.readouterr().err
    assert entry.run(["members", "cancel", "--within", "-1"]) == 2


# --- what a careful stranger tries ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (("--config", "", "run", "--", "true"), "--config"),
        (("--node", "", "status"), "--node"),
        (("--at", "", "status"), "--at"),
        (("status", "--at", ""), "--at"),
        (("status", "--config", ""), "--config"),
        (("run", "--state-dir", "", "--", "true"), "--state-dir"),
        (("run", "--node", "", "--", "true"), "--node"),
        (("drain", "b", "--state-dir="), "--state-dir"),
        (("members", "add", "d", "--addr", "h:1", "--config", ""), "--config"),
        (("lease", "break", "main", "--store", ""), "--store"),
    ],
)
def test_an_empty_value_is_no_default(say: Callable[..., Said], args: tuple[str, ...], option: str) -> None:
    """`--config "$FILE"` of a script that did not set FILE ran the command without its cluster."""
    assert say(*args) == (2, "", f"primacy: {option} is empty: leave it out, or give it a value\n")


def test_an_empty_variable_is_none(say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PRIMACY_CONFIG", "PRIMACY_NODE", "PRIMACY_AT", "PRIMACY_STATE_DIR", "PRIMACY_STORE"):
        monkeypatch.setenv(name, "")
    assert say("contract").code == 0
    assert "which store?" in say("lease", "list").err
    assert say("check", "") == (2, "", "primacy: the name of the file is empty: leave it out, or say which\n")


def test_an_error_that_cannot_be_written_keeps_its_exit_code(tmp_path: Path) -> None:
    script = f"{sys.executable} -m primacy.cli.main status --state-dir {tmp_path}/none 2> /dev/full"
    assert subprocess.run(["bash", "-c", script], check=False, timeout=60, cwd=tmp_path).returncode == 3


def test_a_node_that_is_no_text_is_not_there(tmp_path: Path) -> None:
    for command in ("why", "audit", "status"):
        call = [sys.executable.encode(), b"-m", b"primacy.cli.main", b"--node", b"\xff", command.encode()]
        said = subprocess.run(
            [*call, b"--state-dir", b"none"], check=False, timeout=60, cwd=tmp_path, capture_output=True
        )
        assert (said.returncode, b"runs here" in said.stderr) == (3, True), said


def test_a_full_disk_leaves_no_secret_and_names_the_file(say: Callable[..., Said], tmp_path: Path) -> None:
    """Half a secret would be taken for one by the next try, and never written over."""
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tiny], check=False).returncode:
        pytest.skip("a small disk needs the right to mount")
    try:
        with contextlib.suppress(OSError), (tiny / "fill").open("wb", buffering=0) as file:
            while file.write(b"0" * 4096):
                pass
        assert say("keygen", f"{tiny}/secret").err == f"primacy: {tiny}/secret: cannot be written: {FULL}\n"
        assert say("new", "--dir", str(tiny)).err == f"primacy: --dir {tiny}: cannot write there: {FULL}\n"
        assert [each.name for each in tiny.iterdir()] == ["fill"]
        told = process("run", "--state-dir", f"{tiny}/state", "--", "true", cwd=tmp_path)
        where = f"the state folder {tiny}/state/primacy/main cannot be written"
        assert (told.returncode, told.stderr) == (
            4,
            f"primacy: {where}: {FULL}; make room on that disk, or name another folder with --state-dir\n",
        )
    finally:
        subprocess.run(["umount", tiny], check=True)


def test_a_cache_that_does_not_answer_is_named_with_the_next_command(say: Callable[..., Said]) -> None:
    said = say("cache", "get", "b", "--api", "tcp://127.0.0.1:1", "--within-ms", "100")
    assert (said.code, said.out) == (3, "")
    assert said.err.endswith("; asked: tcp://127.0.0.1:1; which peers answer: primacy cache status\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_a_folder_of_another_user_is_not_an_empty_one(tmp_path: Path) -> None:
    """ "Start one" would be wrong: one may run there."""
    (tmp_path / "state").mkdir(mode=0o700)
    call = [sys.executable, "-m", "primacy.cli.main"]
    try:
        subprocess.run([*call, "--version"], user=NOBODY, check=True, capture_output=True)
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip("another user cannot read this checkout")
    for command in ("status", "why", "step-down"):
        ask = [*call, command, "--state-dir", f"{tmp_path}/state"]
        said = subprocess.run(ask, user=NOBODY, check=False, capture_output=True, text=True, cwd="/")
        wanted = (
            f"primacy: the state folder {tmp_path}/state/primacy/main cannot be read by this user: say it as the user"
        )
        assert (said.returncode, said.stderr.startswith(wanted)) == (3, True), said
