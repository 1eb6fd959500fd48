"""The demo: a tour of real faults without a double signature, keys in a terminal, and nothing left at its end."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from primacy.cli import demo as command
from primacy.cli import main as entry
from primacy.errors import PrimacyError, Refused
from primacy.lab import ledger, temporary, tour
from primacy.lab.bound_process import Held, children, ended
from primacy.lab.cluster import Lab
from primacy.lab.place import LOCK, TEMPORARY, LabFolder
from primacy.lab.screen import lines, strip

pytestmark = pytest.mark.beside(order=110)

WITHIN_S = 180.0
SCENES = (
    "a stopped node",
    "a killed agent",
    "a lost majority",
    "links of one way",
    "a smaller side",
    "a split network",
    "a frozen node",
    "a lost machine",
)


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """The command, in a hurry, with a temporary folder of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tour, "REST_S", 0.05)

    def run(*args: str) -> Said:
        code = entry.run(["demo", *args])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Said(code, out, err)

    return run


def test_a_tour_of_real_faults_has_no_double_signature_and_leaves_nothing(
    say: Callable[..., Said], tmp_path: Path
) -> None:
    before = children(os.getpid())
    said = say("--profile", "lab", "--json")
    assert said.code == 0, said.err
    result = json.loads(said.out)
    assert tuple(each["after"] for each in result["failovers"]) == SCENES
    assert result["overlaps"] == 0
    assert result["signatures"] > 20
    assert children(os.getpid()) == before
    assert list(tmp_path.iterdir()) == []


def test_plain_sentences_where_there_is_no_terminal(say: Callable[..., Said], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    said = say("--profile", "lab", "--nodes", "3", "--scenario", "kill", "--dir", str(kept))
    assert said.code == 0
    for words in (
        "3 real nodes, raft, profile lab",
        "is killed (kill -9).",
        "is back",
        "1 failover:",
        "never were two",
    ):
        assert words in said.out
    assert "\x1b" not in said.out
    assert (
        "leads"
        in (kept / "logs" / "a.log").read_text()
        + (kept / "logs" / "b.log").read_text()
        + (kept / "logs" / "c.log").read_text()
    )


def test_a_signature_of_the_killed_run_is_not_taken_for_one_of_the_next(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill comes late: the old run signs again after the demo has counted, as on a busy machine."""
    kill = tour._kill_work

    def late(lab: Lab, node: str) -> None:
        time.sleep(0.5)
        kill(lab, node)

    monkeypatch.setattr(tour, "_kill_work", late)
    said = say("--nodes", "3", "--scenario", "child")
    assert said.code == 0, said.err
    assert " as run " in said.out
    assert " as run 1, under the same token" not in said.out


def test_a_leader_that_changes_before_the_harm_is_done_holds_up_no_scene(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a busy machine: the harm strikes one that leads no more, and nobody need come after the one that does."""
    fails_over = tour.DemoScript.fails_over

    def late(script: tour.DemoScript, after: str, harm: Callable[[], None]) -> str:
        lab, token = script.up.lab, script.token

        def is_led_by_another() -> bool:
            leader = lab.leader()
            if leader and (lab.state(leader) or {}).get("token") == token:
                with contextlib.suppress(PrimacyError):  # it may have given up by itself just now
                    lab.order(leader, "step-down")
            return bool((script.chain()["signer"] or {"token": 0})["token"] > token)

        script.until(is_led_by_another, "another signer")
        return fails_over(script, after, harm)

    monkeypatch.setattr(tour.DemoScript, "fails_over", late)
    said = say("--profile", "lan", "--nodes", "3", "--scenario", "kill")
    assert said.code == 0, said.err
    assert "1 failover:" in said.out


def test_a_signer_that_is_gone_before_it_is_killed_ends_no_tour(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    kill, refusals = tour._kill_work, iter([Refused("node x runs nothing now")])

    def late(lab: Lab, node: str) -> None:
        for refusal in refusals:
            raise refusal
        kill(lab, node)

    monkeypatch.setattr(tour, "_kill_work", late)
    said = say("--profile", "lab", "--nodes", "3", "--scenario", "child")
    assert said.code == 0, said.err
    assert "node x runs nothing now: once more, with the leader of now" in said.out
    assert " as run " in said.out


def test_exit_1_and_the_logs_are_kept_if_the_chain_saw_two_at_once(
    say: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scene that signs with an old token, as a second signer would."""
    from primacy.control import ORDER_HEADER

    def cheat(script: tour.DemoScript) -> None:
        import http.client

        host, _, port = script.up.chain_at.rpartition(":")
        body = {"token": 1, "run": 1, "node": "z", "id": "f" * 16, "made_us": 2**50, "interval_ms": 100}
        connection = http.client.HTTPConnection(host, int(port), timeout=WITHIN_S)
        connection.request("POST", "/v1/open", json.dumps(body), {ORDER_HEADER: "1"})
        assert connection.getresponse().status == 409
        connection.close()

    monkeypatch.setitem(tour.SCENARIOS, "kill", cheat)
    said = say("--profile", "lab", "--nodes", "3", "--scenario", "kill")
    assert said.code == 1
    assert "DOUBLE SIGNATURE: z (token 1, run 1) begins after" in said.out
    assert "the logs are kept in" in said.out
    (kept,) = tmp_path.iterdir()
    assert (kept / "logs").is_dir()
    assert not (kept / TEMPORARY).exists(), "nobody may remove it"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--nodes", "2"), "'--nodes': 2 is not in the range 3<=x<=9"),
        (("--profile", "ghoti"), "--profile ghoti: raft has lab, fast, lan, wan, executor"),
        (("--strategy", "bully"), "primacy simulate --strategy bully --seed 1 --trace trial.html"),
        (("--scenario", "earthquake"), "'earthquake' is not one of"),
        (("--seconds", "nan"), "--seconds nan: more than 0"),
        (("--seconds", "-1"), "--seconds -1: more than 0"),
    ],
)
def test_nonsense_gets_one_sentence(say: Callable[..., Said], args: tuple[str, ...], sentence: str) -> None:
    said = say(*args)
    assert said.code == 2
    assert sentence in said.err
    assert said.out == ""


def test_the_usual_folder_is_used_if_it_is_free_and_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    usual, is_ours = command._where(None)
    assert is_ours
    assert not usual.exists()
    with Lab(usual, 1):
        assert command._where(None)[0] != usual
    usual.chmod(0o755)
    assert command._where(None)[0] != usual
    assert command._where("mine") == (Path("mine").absolute(), False)


# --- what an earlier one left -----------------------------------------------------------------------------------------


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder, in which another lab has the usual place."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Lab(command._where(None)[0], 1):
        yield tmp_path


def left_behind(temp: Path) -> list[Path]:
    return sorted(temp.glob(f"{temporary.PREFIX}*"))


def test_the_next_demo_removes_what_a_killed_one_left_once_it_is_dead(temp: Path) -> None:
    terminal = Terminal(temp, "--profile", "lab", "--nodes", "3")
    try:
        terminal.until("All is well.")
        terminal.held.take_tree(terminal.pid)
        (folder,) = left_behind(temp)
        temporary.sweep()
        assert (folder / LOCK).exists(), "it lives"
        os.kill(terminal.pid, signal.SIGKILL)
        os.waitpid(terminal.pid, 0)
        terminal.nothing_left()
        assert left_behind(temp) == [folder]
        new, is_ours = command._where(None)
        assert is_ours
        assert left_behind(temp) == [new]
    finally:
        os.close(terminal.fd)
        terminal.held.send(signal.SIGKILL)
        terminal.held.close()


def test_nothing_else_is_removed(temp: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither what has no mark (it starts just now, or is kept), nor what others may change, nor what a link leads
    to."""
    unmarked, is_open, elsewhere, begun = (temporary.new_temporary() for _ in range(4))
    for folder in (is_open, elsewhere):
        write_marked(folder)
    is_open.chmod(0o755)
    theirs = elsewhere.rename(tmp_path_factory.mktemp("elsewhere") / "theirs")
    elsewhere.symlink_to(theirs)
    write_marked(begun)
    (begun / TEMPORARY).unlink()
    (begun / TEMPORARY).symlink_to(theirs / TEMPORARY)
    before = left_behind(temp)
    temporary.sweep()
    assert left_behind(temp) == before == sorted((unmarked, is_open, elsewhere, begun))
    assert (theirs / "logs" / "a.log").exists()


def test_what_a_link_in_it_leads_to_is_left_alone(temp: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, theirs = temporary.new_temporary(), tmp_path_factory.mktemp("theirs")
    write_marked(folder)
    (theirs / "file").touch()
    for place in (folder, folder / "logs"):
        (place / "link").symlink_to(theirs)
    temporary.sweep()
    assert left_behind(temp) == []
    assert (theirs / "file").exists()


def write_marked(folder: Path) -> None:
    """As a demo that was killed leaves it."""
    made = LabFolder(folder)
    temporary.mark(made.folder)
    (folder / "logs").mkdir()
    (folder / "logs" / "a.log").touch()
    made.close()


# --- in a terminal ----------------------------------------------------------------------------------------------------


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", TMPDIR=str(folder), COLUMNS="100", LINES="40")
            os.execv(sys.executable, [sys.executable, "-m", "primacy.cli.main", "demo", *args])
        self.text = ""
        self.held = Held()

    def until(self, words: str) -> None:
        last_s = time.monotonic() + WITHIN_S
        while words not in self.text:
            assert time.monotonic() < last_s, self.text[-3_000:]
            self.read()

    def read(self) -> bool:
        if not select.select([self.fd], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self.fd, 65_536)
        except OSError:  # nobody has the other end any more
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)

    def press(self, key: str) -> None:
        os.write(self.fd, key.encode())

    def end(self) -> int:
        while self.read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def nothing_left(self) -> None:
        for pid, handle in self.held.handles.items():
            assert ended(handle, WITHIN_S), f"process {pid} lives on"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path, "--profile", "lab", "--nodes", "3")
    yield made
    made.held.send(signal.SIGKILL)
    made.held.close()


def test_keys_break_it_and_ctrl_c_cleans_up(terminal: Terminal, tmp_path: Path) -> None:
    terminal.until("All is well.")
    terminal.held.take_tree(terminal.pid)
    terminal.press("p")
    terminal.until("loses its power")
    terminal.until("is back, and disturbs nobody")
    terminal.press("\x03")
    assert terminal.end() == 130
    assert "after a lost machine: nobody signed for" in terminal.text
    assert "No double signature" in terminal.text
    terminal.nothing_left()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_usual", [True, False], ids=["in the usual folder", "in one of its own"])
def test_a_closed_terminal_ends_all_of_it(is_usual: bool, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Its folder goes with the next demo at the latest."""
    if not is_usual:
        request.getfixturevalue("temp")
    terminal = request.getfixturevalue("terminal")
    terminal.until("All is well.")
    terminal.held.take_tree(terminal.pid)
    assert len(terminal.held.handles) >= 3 * 2 + 1
    assert len(left_behind(tmp_path)) == (not is_usual)
    os.close(terminal.fd)
    os.waitpid(terminal.pid, 0)
    terminal.nothing_left()
    temporary.sweep()
    assert left_behind(tmp_path) == []


# --- drawing ----------------------------------------------------------------------------------------------------------


def document(**changed: Any) -> dict[str, Any]:
    state = {
        "node": "a",
        "role": "leader",
        "leader": "a",
        "term": 3,
        "token": 7,
        "hold_left_ms": 950,
        "waits_for": None,
    }
    running = {**state, "workload": {"state": "running"}}
    nodes = [
        {"node": "a", "process": "running", "pid": 1, "exit_code": None, "state": running},
        {"node": "b", "process": "ended", "pid": None, "exit_code": 4, "state": None},
    ]
    chain = {"counters": dict.fromkeys(ledger.Ledger().counters, 0), "alerts": [], "signatures": [], "address": "x"}
    base = {"nodes": nodes, "acting": ["a"], "cuts": [["a", "b"], ["b", "a"], ["c", "a"]], "chain": chain}
    return {**base, **changed}


def test_the_lab_in_a_few_lines() -> None:
    text = "\n".join(lines(document()))
    for words in ("a     running    leader  a", "950 ms", "ended (4)", "a runs the command (token 7)", "cut a-b, c→a"):
        assert words in text
    assert "ALERT: a and b claim to run the command at once" in lines(document(acting=["a", "b"]))
    assert "nobody runs the command" in lines(document(acting=[]))
    assert "the chain at x does not answer" in lines(document(chain={"address": "x"}))


def test_the_strip_shows_signers_and_gaps() -> None:
    rows = [{"node": node, "gap_ms": gap_ms} for node, gap_ms in (("a", 0), ("a", 100), ("b", 420), ("b", 98))]
    assert strip(rows, 100, 20) == "aa...bb"
    assert strip(rows, 100, 4) == "..bb"


@pytest.mark.parametrize("width", [40, 100])
def test_frames_fit_the_terminal(width: int, tmp_path: Path) -> None:
    screen = command.Screen(tmp_path)
    screen.scene("A very long title " * 5, "look " * 40)
    for number in range(20):
        screen.line(f"sentence {number} " * 9)
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(screen.frame(document(), width), no_wrap=True, overflow="ellipsis")
    console.file.close()
    shown = console.export_text().splitlines()
    assert max(map(len, shown)) <= width
    assert len(shown) <= 30
    assert "sentence 19" in "".join(shown)
